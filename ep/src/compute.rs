//! A compiled group of nodes, and how it runs.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use hipdnn_sdk_bindings::ort::{self, ElementType, NodeComputeInfo, Status};

use crate::backend::{Context, Plan, Wish};
use crate::dump::Dump;
use crate::error::Error;
use crate::plan_cache::PlanCache;
use crate::runtime::Runtime;
use crate::translate::{Group, Y};

/// The most inputs that a group has.
pub(crate) const MAX_INPUTS: usize = 15;

/// The most dimensions that the extents of a run's tensors may have.
const MAX_RANK: usize = 8;

/// The most bytes of zeros that stand for an input without elements.
const MOST_ZEROS: usize = 1 << 30;

/// What the runtime holds for a compiled group: its callbacks, then ours.
#[repr(C)]
pub(crate) struct Kernel {
    callbacks: NodeComputeInfo,
    runtime: Runtime,
    context: Arc<Context>,
    group: Group,
    wish: Wish,
    inputs: Vec<Input>,
    /// Of each input, then of the output.
    uids: Vec<i64>,
    ready: PlanCache<Ready>,
    /// Where the graphs of new shapes go.
    dump: Option<Arc<Dump>>,
}

/// An input of a group at run time.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    /// Which of the fused node's inputs it is.
    pub index: usize,
    /// Which of the graph's tensors it is.
    pub uid: i64,
    /// For messages.
    pub name: String,
    /// Its extents; `None` if those of the output. That of the first input is not looked at.
    pub extents: Option<Vec<i64>>,
    /// Whether the extents cannot change.
    pub constant: bool,
}

/// What is known once the extents of the input are.
pub(crate) struct Ready {
    y: Vec<i64>,
    /// `None` if the output has no elements.
    plan: Option<Arc<Plan>>,
    /// What the plan gets for an input without elements, if it does not take that; in words, to be aligned for any type.
    zeros: Option<Box<[u64]>>,
}

/// Extents of a run's tensor.
struct Extents {
    values: [i64; MAX_RANK],
    rank: usize,
}

impl std::ops::Deref for Extents {
    type Target = [i64];

    fn deref(&self) -> &[i64] {
        &self.values[..self.rank]
    }
}

impl Kernel {
    /// A group with these inputs, the convolution's first.
    pub(crate) fn new(
        runtime: Runtime,
        context: Arc<Context>,
        group: Group,
        wish: Wish,
        inputs: Vec<Input>,
        plan_cache: usize,
    ) -> Result<Box<Kernel>, Error> {
        if inputs.is_empty() || inputs.len() > MAX_INPUTS {
            return Err(Error::failed(format!("a group has {} inputs", inputs.len())));
        }
        let callbacks = NodeComputeInfo {
            ort_version_supported: runtime.version(),
            create_state: Some(create_state),
            compute: Some(compute),
            release_state: Some(release_state),
        };
        let uids = inputs.iter().map(|input| input.uid).chain([Y]).collect();
        let ready = PlanCache::new(plan_cache);
        Ok(Box::new(Kernel { callbacks, runtime, context, group, wish, inputs, uids, ready, dump: None }))
    }

    /// The same group, which writes the graph of each new shape.
    pub(crate) fn dumping(mut self: Box<Kernel>, dump: Option<Arc<Dump>>) -> Box<Kernel> {
        self.dump = dump;
        self
    }

    /// Keeps a plan that was built for these extents of the input.
    pub(crate) fn prepare(&self, x: &[i64], plan: Arc<Plan>) -> Result<(), Error> {
        let geometry = self.group.geometry(x).map_err(Error::invalid)?;
        self.ready.insert(x, Arc::new(Ready { y: geometry.y, plan: Some(plan), zeros: None }));
        Ok(())
    }

    fn make_ready(&self, x: &[i64]) -> Result<Ready, Error> {
        let geometry = self.group.geometry(x).map_err(Error::invalid)?;
        if geometry.y.contains(&0) {
            return Ok(Ready { y: geometry.y, plan: None, zeros: None });
        }
        let graph = self.group.graph(&geometry).to_bytes();
        if let Some(dump) = &self.dump {
            dump.write(&self.group.name, Some(x), &graph)?;
        }
        let plan = self
            .context
            .plan(&graph, &self.wish)
            .map_err(|error| Error::failed(format!("no plan for an input of extents {x:?}: {error}")))?;
        let zeros = if geometry.only_padding { Some(self.zeros(&geometry.x)?) } else { None };
        Ok(Ready { y: geometry.y, plan: Some(Arc::new(plan)), zeros })
    }

    /// Zeros for an input of these extents. They come from the model's run, so that they may ask for any size.
    fn zeros(&self, extents: &[i64]) -> Result<Box<[u64]>, Error> {
        let elements = extents.iter().fold(1usize, |product, extent| product.saturating_mul(*extent as usize));
        let bytes = elements.saturating_mul(self.group.data_type.bits().unwrap_or(64) as usize / 8);
        if bytes > MOST_ZEROS {
            return Err(Error::failed(format!(
                "the output is padding alone, and an input of extents {extents:?} in its place would take {bytes} bytes, \
                 wanted at most {MOST_ZEROS}"
            )));
        }
        Ok(vec![0u64; bytes.div_ceil(8)].into_boxed_slice())
    }

    /// # Safety
    /// `context` is the runtime's for one call of this group.
    unsafe fn run(&self, context: *mut ort::KernelContext) -> Result<(), Error> {
        let mut addresses = [null_mut::<c_void>(); MAX_INPUTS + 1];
        let mut x = None;
        let mut ready = None;
        for (input, address) in self.inputs.iter().zip(&mut addresses) {
            // SAFETY: the caller's duty.
            let value = unsafe { self.input(context, input) }?;
            if x.is_none() {
                // SAFETY: `value` is a tensor of this call.
                let extents = unsafe { self.extents(value) }?;
                ready = Some(self.ready.get_or_build(&extents, || self.make_ready(&extents))?);
                x = Some(extents);
            } else if !input.constant {
                // SAFETY: as above.
                let extents = unsafe { self.extents(value) }?;
                let wanted = input.extents.as_ref().or(ready.as_ref().map(|ready| &ready.y));
                if wanted.is_some_and(|wanted| **wanted != *extents) {
                    let (found, wanted) = (&*extents, wanted.map_or(&[][..], |wanted| wanted));
                    let message = format!("input {:?} has extents {found:?}, wanted {wanted:?}", input.name);
                    return Err(Error::invalid(message));
                }
            }
            let mut data = null();
            // SAFETY: `value` is a tensor of this call, and `data` is valid for the call.
            let status = unsafe { self.runtime.api.get_tensor_data()(value, &mut data) };
            // SAFETY: the status is ours.
            unsafe { self.runtime.check(status) }?;
            *address = data.cast_mut();
        }
        let ready = ready.expect("a group has inputs");
        let mut output = null_mut();
        // SAFETY: the context is of this call; the extents and `output` are valid for it.
        let status = unsafe {
            self.runtime.api.kernel_context_get_output()(context, 0, ready.y.as_ptr(), ready.y.len(), &mut output)
        };
        // SAFETY: the status is ours.
        unsafe { self.runtime.check(status) }?;
        let Some(plan) = &ready.plan else { return Ok(()) };
        let mut data = null_mut();
        // SAFETY: `output` is a tensor of this call, and `data` is valid for the call.
        let status = unsafe { self.runtime.api.get_tensor_mutable_data()(output, &mut data) };
        // SAFETY: the status is ours.
        unsafe { self.runtime.check(status) }?;
        addresses[self.inputs.len()] = data;
        if let Some(zeros) = &ready.zeros {
            addresses[0] = zeros.as_ptr().cast_mut().cast();
        }
        // SAFETY: these are all tensors of the graph but the virtual ones, of the extents that the plan was made for:
        // checked above or fixed by the model; the runtime gives each call an output of its own.
        unsafe { plan.execute(&self.uids, &addresses[..self.uids.len()]) }
    }

    /// # Safety
    /// `context` is the runtime's for one call of this group.
    unsafe fn input(&self, context: *const ort::KernelContext, input: &Input) -> Result<*const ort::Value, Error> {
        let mut value = null();
        // SAFETY: the context is of this call, and `value` is valid for it.
        let status = unsafe { self.runtime.api.kernel_context_get_input()(context, input.index, &mut value) };
        // SAFETY: the status is ours.
        unsafe { self.runtime.check(status) }?;
        if value.is_null() {
            return Err(Error::invalid(format!("input {:?} is missing", input.name)));
        }
        Ok(value)
    }

    /// # Safety
    /// `value` is a tensor that is alive.
    unsafe fn extents(&self, value: *const ort::Value) -> Result<Extents, Error> {
        let mut extents = Extents { values: [0; MAX_RANK], rank: 0 };
        let mut keep = |dims: &[i64]| {
            let too_many = || Error::invalid(format!("a tensor has {} dimensions", dims.len()));
            extents.values.get_mut(..dims.len()).ok_or_else(too_many)?.copy_from_slice(dims);
            extents.rank = dims.len();
            Ok::<(), Error>(())
        };
        match self.runtime.api.get_tensor_element_type_and_shape_data_reference() {
            Some(reference) => {
                let (mut element, mut dims, mut rank) = (ElementType::UNDEFINED, null(), 0);
                // SAFETY: the tensor is alive, and the answers' places are valid for the call.
                let status = unsafe { reference(value, &mut element, &mut dims, &mut rank) };
                // SAFETY: the status is ours.
                unsafe { self.runtime.check(status) }?;
                if rank == 0 || dims.is_null() {
                    keep(&[])?;
                } else {
                    // SAFETY: the tensor has that many extents there, which do not change while it is alive.
                    keep(unsafe { std::slice::from_raw_parts(dims, rank) })?;
                }
            }
            None => {
                // SAFETY: the tensor is alive.
                let described = unsafe { self.runtime.shape_of(value) }?;
                keep(described.shape.as_deref().unwrap_or(&[]))?;
            }
        }
        Ok(extents)
    }
}

/// # Safety
/// `this` is a kernel's callbacks, as the runtime got them.
unsafe fn kernel<'a>(this: *mut NodeComputeInfo) -> &'a Kernel {
    // SAFETY: the callbacks are the first member of a kernel, which lives until it is released.
    unsafe { &*this.cast::<Kernel>() }
}

unsafe extern "system" fn create_state(
    this: *mut NodeComputeInfo,
    _context: *mut ort::NodeComputeContext,
    state: *mut *mut c_void,
) -> *mut Status {
    // The kernel holds all there is; the state only must not look like none.
    // SAFETY: the runtime gives a place for the state.
    unsafe { *state = this.cast() };
    null_mut()
}

unsafe extern "system" fn compute(
    this: *mut NodeComputeInfo,
    _state: *mut c_void,
    context: *mut ort::KernelContext,
) -> *mut Status {
    // SAFETY: the runtime calls with what it was given.
    let kernel = unsafe { kernel(this) };
    kernel.runtime.guard(|| {
        // SAFETY: the context is the runtime's for this call.
        unsafe { kernel.run(context) }
            .map_err(|error| error.at(format_args!("{} ({})", kernel.group.name, crate::NAME_TEXT)))
    })
}

unsafe extern "system" fn release_state(_this: *mut NodeComputeInfo, _state: *mut c_void) {}
