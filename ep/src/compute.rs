//! A compiled group of nodes, and how it runs.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use hipdnn_sdk_bindings::ort::{self, ElementType, NodeComputeInfo, Status};

use crate::backend::{Context, Plan, Wish};
use crate::claim::{MAX_BOUNDS, scalar};
use crate::constants::{Contents, Known, Promise, Token};
use crate::dump::Dump;
use crate::error::Error;
use crate::extension::RuntimeThreads;
use crate::graph::TensorType;
use crate::plan_cache::PlanCache;
use crate::pointer::{Handles, Place};
use crate::runtime::{Runtime, status_of};
use crate::translate::{Group, Side, Y};

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
    /// What is wished of the engine beside the promise about constants.
    wish: Wish,
    inputs: Vec<Input>,
    constants: Vec<Constant>,
    /// Of each input, then of the output.
    uids: Vec<i64>,
    plan_cache: usize,
    binding: RwLock<Arc<Binding>>,
    /// Held by the one run that looks at constants.
    looking: Mutex<()>,
    /// Where the graphs of new shapes go.
    dump: Option<Arc<Dump>>,
}

/// The group with the constants that a session has for it.
struct Binding {
    known: Known,
    promise: Promise,
    /// Its bounds are those of the constants.
    group: Arc<Group>,
    plans: Arc<PlanCache<Ready>>,
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
    /// Whether it is among the constants, too.
    pub constant: bool,
}

/// An initializer that the group reads.
#[derive(Clone, Debug)]
pub(crate) struct Constant {
    /// Which of the fused node's inputs it is.
    pub index: usize,
    /// Which of the group's inputs it is; a bound is none.
    pub input: Option<usize>,
    /// For messages.
    pub name: String,
    /// Type and extents in the model.
    pub tensor: TensorType,
    /// What it is in the group.
    pub role: Role,
}

/// What a constant is in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The tensor of that uid.
    Tensor(i64),
    /// A number in the group itself: a bound of that step.
    Bound(usize, Side),
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
    /// A group with these inputs, the convolution's first. `promise` has the tokens of the model's constants.
    pub(crate) fn new(
        runtime: Runtime,
        context: Arc<Context>,
        group: Group,
        (wish, promise): (Wish, Promise),
        (inputs, constants): (Vec<Input>, Vec<Constant>),
        plan_cache: usize,
    ) -> Result<Box<Kernel>, Error> {
        if inputs.is_empty() || inputs.len() > MAX_INPUTS {
            return Err(Error::failed(format!("expected 1 to {MAX_INPUTS} inputs of a group, got {}", inputs.len())));
        }
        let callbacks = NodeComputeInfo {
            ort_version_supported: runtime.version(),
            create_state: Some(create_state),
            compute: Some(compute),
            release_state: Some(release_state),
        };
        let uids = inputs.iter().map(|input| input.uid).chain([Y]).collect();
        let plans = Arc::new(PlanCache::new(plan_cache));
        let binding = Binding { known: Known::Model, promise, group: Arc::new(group), plans };
        Ok(Box::new(Kernel {
            callbacks,
            runtime,
            context,
            wish,
            inputs,
            constants,
            uids,
            plan_cache,
            binding: RwLock::new(Arc::new(binding)),
            looking: Mutex::new(()),
            dump: None,
        }))
    }

    /// The callbacks, as the runtime holds them; [`Kernel::take_back`] undoes it.
    pub(crate) fn into_raw(self: Box<Self>) -> *mut NodeComputeInfo {
        debug_assert!(self.callbacks.compute.is_some());
        let raw = Box::into_raw(self).cast();
        KERNELS.add(raw);
        raw
    }

    /// # Safety
    /// Nobody uses the kernel any more.
    ///
    /// # Errors
    /// If it did not come from [`Kernel::into_raw`], or was taken back.
    pub(crate) unsafe fn take_back(raw: *mut NodeComputeInfo) -> Result<(), Error> {
        KERNELS.remove(raw)?;
        // SAFETY: the callbacks are the first member of a kernel, which was boxed and is known no more.
        drop(unsafe { Box::from_raw(raw.cast::<Kernel>()) });
        Ok(())
    }

    /// The same group, which writes the graph of each new shape.
    pub(crate) fn dumping(mut self: Box<Kernel>, dump: Option<Arc<Dump>>) -> Box<Kernel> {
        self.dump = dump;
        self
    }

    /// Keeps a plan that was built for these extents of the input, with the model's constants.
    pub(crate) fn prepare(&self, x: &[i64], plan: Arc<Plan>) -> Result<(), Error> {
        let binding = self.current();
        let geometry = binding.group.geometry(x).map_err(Error::invalid)?;
        binding.plans.insert(x, Arc::new(Ready { y: geometry.y, plan: Some(plan), zeros: None }));
        Ok(())
    }

    fn current(&self) -> Arc<Binding> {
        self.binding.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The group with the constants of this run, whose inputs are at these addresses.
    ///
    /// # Safety
    /// `context` is the runtime's for one call of this group.
    unsafe fn bind(
        &self,
        context: *const ort::KernelContext,
        inputs: &[*mut c_void; MAX_INPUTS + 1],
    ) -> Result<Arc<Binding>, Error> {
        let mut addresses = [0; MAX_INPUTS + MAX_BOUNDS];
        let Some(addresses) = addresses.get_mut(..self.constants.len()) else {
            return Err(Error::failed(format!("{} constants are too many", self.constants.len())));
        };
        for (constant, address) in self.constants.iter().zip(&mut *addresses) {
            *address = match constant.input {
                Some(position) => inputs[position].addr(),
                None => {
                    // SAFETY: the caller's duty.
                    let value = unsafe { self.value(context, constant.index, &constant.name) }?;
                    // SAFETY: `value` is a tensor of this call.
                    unsafe { self.data(value) }?.addr()
                }
            };
        }
        let current = self.current();
        if current.known.fits(addresses) {
            return Ok(current);
        }
        let _looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.current();
        if current.known.fits(addresses) {
            return Ok(current);
        }
        let (known, promised) = current.known.after(addresses);
        let (mut promise, mut group) = (Promise::default(), Group::clone(&current.group));
        for constant in &self.constants {
            // SAFETY: the caller's duty.
            let value = unsafe { self.value(context, constant.index, &constant.name) }?;
            // SAFETY: `value` is a tensor of this call.
            let bytes = unsafe { self.contents(value, constant) }?;
            match constant.role {
                Role::Tensor(uid) if promised && !bytes.is_empty() => promise.add(uid, Token::of(bytes)),
                Role::Tensor(_) => {}
                Role::Bound(step, side) => {
                    let number = scalar(constant.tensor.element, bytes);
                    let number = number.ok_or_else(|| Error::failed(format!("{:?} is no number", constant.name)))?;
                    group.set_bound(step, side, number);
                }
            }
        }
        let (group, plans) = if promise == current.promise && group == *current.group {
            (current.group.clone(), current.plans.clone())
        } else {
            (Arc::new(group), Arc::new(PlanCache::new(self.plan_cache)))
        };
        let binding = Arc::new(Binding { known, promise, group, plans });
        *self.binding.write().unwrap_or_else(PoisonError::into_inner) = binding.clone();
        Ok(binding)
    }

    /// The bytes of a constant, if it is of the type and extents that it has in the model: the runtime lets others take its
    /// place.
    ///
    /// # Safety
    /// `value` is a tensor that lives as long as `'a`, and nobody writes to it.
    unsafe fn contents<'a>(&self, value: *const ort::Value, constant: &Constant) -> Result<&'a [u8], Error> {
        // SAFETY: the tensor is alive.
        let found = unsafe { self.runtime.shape_of(value) }?;
        if found != constant.tensor {
            let text = |tensor: &TensorType| {
                format!("{} of extents {:?}", tensor.element, tensor.shape.as_deref().unwrap_or_default())
            };
            let (name, expected, found) = (&constant.name, text(&constant.tensor), text(&found));
            return Err(Error::invalid(format!("initializer {name:?}: expected {expected}, got {found}")));
        }
        // SAFETY: the tensor is alive, and not written to.
        unsafe { self.runtime.bytes_of(value) }
    }

    /// The bytes of what is promised, for plans that are built in a run that was bound.
    ///
    /// # Safety
    /// `context` is the runtime's for one call of this group, as long as `'a`, and `binding` is bound to it.
    unsafe fn promised<'a>(
        &self,
        context: *const ort::KernelContext,
        binding: &Binding,
    ) -> Result<Contents<'a>, Error> {
        let mut contents = Contents::new();
        for constant in &self.constants {
            if let Role::Tensor(uid) = constant.role
                && let Some(token) = binding.promise.token(uid)
            {
                // SAFETY: the caller's duty.
                let value = unsafe { self.value(context, constant.index, &constant.name) }?;
                // SAFETY: `value` is a tensor of this call, which nobody writes to.
                contents.push((token, unsafe { self.contents(value, constant) }?));
            }
        }
        Ok(contents)
    }

    fn make_ready(&self, binding: &Binding, contents: &[(Token, &[u8])], x: &[i64]) -> Result<Ready, Error> {
        let group = &binding.group;
        let geometry = group.geometry(x).map_err(Error::invalid)?;
        if geometry.y.contains(&0) {
            return Ok(Ready { y: geometry.y, plan: None, zeros: None });
        }
        let graph = group.graph(&geometry).to_bytes();
        if let Some(dump) = &self.dump {
            dump.write(&group.name, Some(x), &graph);
        }
        let plan = self
            .context
            .plan_with_constants(&graph, &self.wish.promising(&binding.promise), contents)
            .map_err(|error| Error::failed(format!("no plan for an input of extents {x:?}: {error}")))?;
        let zeros = if geometry.only_padding { Some(zeros(group, &geometry.x)?) } else { None };
        Ok(Ready { y: geometry.y, plan: Some(Arc::new(plan)), zeros })
    }

    /// # Safety
    /// `context` is the runtime's for one call of this group.
    unsafe fn run(&self, context: *mut ort::KernelContext) -> Result<(), Error> {
        let (mut values, mut addresses) = ([null(); MAX_INPUTS], [null_mut::<c_void>(); MAX_INPUTS + 1]);
        for ((input, value), address) in self.inputs.iter().zip(&mut values).zip(&mut addresses) {
            // SAFETY: the caller's duty.
            *value = unsafe { self.value(context, input.index, &input.name) }?;
            // SAFETY: the value is a tensor of this call.
            *address = unsafe { self.data(*value) }?.cast_mut();
        }
        // SAFETY: the caller's duty.
        let binding = unsafe { self.bind(context, &addresses) }?;
        // SAFETY: the first value is a tensor of this call: a group has inputs.
        let x = unsafe { self.extents(values[0]) }?;
        let ready = binding.plans.get_or_build(&x, || {
            // SAFETY: the context is of this call, which was bound above.
            let contents = unsafe { self.promised(context, &binding) }?;
            self.make_ready(&binding, &contents, &x)
        })?;
        for (input, value) in self.inputs.iter().zip(values).skip(1) {
            // Constants were looked at when they were bound.
            if input.constant {
                continue;
            }
            // SAFETY: the value is a tensor of this call.
            let found = unsafe { self.extents(value) }?;
            let expected = input.extents.as_ref().unwrap_or(&ready.y);
            if **expected != *found {
                let (name, found) = (&input.name, &*found);
                return Err(Error::invalid(format!("input {name:?}: expected extents {expected:?}, got {found:?}")));
            }
        }
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
        // SAFETY: the context is of this call.
        let threads = unsafe { RuntimeThreads::new(self.runtime, context) };
        let _lent = self.context.extension().map(|extension| extension.lend(&threads));
        // SAFETY: these are all tensors of the graph but the virtual ones, of the extents that the plan was made for:
        // checked above or when they were bound; the runtime gives each call an output of its own.
        unsafe { plan.execute(&self.uids, &addresses[..self.uids.len()]) }
    }

    /// The fused node's input of that number.
    ///
    /// # Safety
    /// `context` is the runtime's for one call of this group.
    unsafe fn value(
        &self,
        context: *const ort::KernelContext,
        index: usize,
        name: &str,
    ) -> Result<*const ort::Value, Error> {
        let mut value = null();
        // SAFETY: the context is of this call, and `value` is valid for it.
        let status = unsafe { self.runtime.api.kernel_context_get_input()(context, index, &mut value) };
        // SAFETY: the status is ours.
        unsafe { self.runtime.check(status) }?;
        if value.is_null() {
            return Err(Error::invalid(format!("input {name:?} is missing")));
        }
        Ok(value)
    }

    /// Where a tensor's elements are.
    ///
    /// # Safety
    /// `value` is a tensor that is alive.
    unsafe fn data(&self, value: *const ort::Value) -> Result<*const c_void, Error> {
        let mut data = null();
        // SAFETY: the tensor is alive, and `data` is valid for the call.
        let status = unsafe { self.runtime.api.get_tensor_data()(value, &mut data) };
        // SAFETY: the status is ours.
        unsafe { self.runtime.check(status) }?;
        Ok(data)
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

/// Zeros for an input of these extents. They come from the model's run, so that they may ask for any size.
fn zeros(group: &Group, extents: &[i64]) -> Result<Box<[u64]>, Error> {
    let elements = extents.iter().fold(1usize, |product, extent| product.saturating_mul(*extent as usize));
    let bytes = elements.saturating_mul(group.data_type.bits().unwrap_or(64) as usize / 8);
    if bytes > MOST_ZEROS {
        return Err(Error::failed(format!(
            "the output is padding alone, and an input of extents {extents:?} in its place would take {bytes} bytes, \
             expected at most {MOST_ZEROS}"
        )));
    }
    Ok(vec![0u64; bytes.div_ceil(8)].into_boxed_slice())
}

/// The kernels of this process.
static KERNELS: Handles = Handles::new("compute function");

/// Runs a callback's body with the kernel that its callbacks belong to.
fn with_kernel(this: *const NodeComputeInfo, body: impl FnOnce(&Kernel) -> Result<(), Error>) -> *mut Status {
    if let Err(stranger) = KERNELS.check(this) {
        return status_of(Err(stranger));
    }
    // SAFETY: the callbacks are the first member of a kernel, which lives until the runtime releases it.
    let kernel = unsafe { &*this.cast::<Kernel>() };
    kernel.runtime.guard(|| body(kernel))
}

unsafe extern "system" fn create_state(
    this: *mut NodeComputeInfo,
    _context: *mut ort::NodeComputeContext,
    state: *mut *mut c_void,
) -> *mut Status {
    with_kernel(this, |_| {
        // The kernel holds all there is; the state only must not look like none.
        // SAFETY: the place is the runtime's, if it is one.
        unsafe { Place::new(state, "the place for the state") }?.set(this.cast());
        Ok(())
    })
}

unsafe extern "system" fn compute(
    this: *mut NodeComputeInfo,
    _state: *mut c_void,
    context: *mut ort::KernelContext,
) -> *mut Status {
    with_kernel(this, |kernel| {
        if context.is_null() {
            return Err(Error::invalid(format!("{}: the kernel context is null", crate::NAME_TEXT)));
        }
        // SAFETY: the context is the runtime's for this call.
        unsafe { kernel.run(context) }
            .map_err(|error| error.at(format_args!("{} ({})", kernel.current().group.name, crate::NAME_TEXT)))
    })
}

unsafe extern "system" fn release_state(_this: *mut NodeComputeInfo, _state: *mut c_void) {}
