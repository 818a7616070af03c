//! A compiled partition, and how the runtime calls it.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;

use hipdnn_sdk_bindings::ort::{self, ElementType, NodeComputeInfo, Status};

use crate::claim;
use crate::error::Error;
use crate::import::MAX_RANK;
use crate::model::Model;
use crate::plan_cache::PlanCache;
use crate::planner::Planner;
use crate::program::Program;
use crate::runtime::Runtime;

/// What the runtime holds for a compiled partition: its callbacks, then ours.
#[repr(C)]
pub(crate) struct Kernel {
    callbacks: NodeComputeInfo,
    runtime: Runtime,
    planner: Arc<Planner>,
    name: String,
    model: Model,
    /// Programs by the extents of the inputs that are no constants.
    programs: PlanCache<Program>,
}

impl Kernel {
    /// A partition under the name of its fused node. Its programs are built for the extents that turn up.
    pub(crate) fn new(
        runtime: Runtime,
        planner: Arc<Planner>,
        name: &str,
        model: Model,
        capacity: usize,
    ) -> Box<Kernel> {
        let callbacks = NodeComputeInfo {
            ort_version_supported: runtime.version(),
            create_state: Some(create_state),
            compute: Some(compute),
            release_state: Some(release_state),
        };
        let programs = PlanCache::new(capacity);
        Box::new(Kernel { callbacks, runtime, planner, name: name.to_string(), model, programs })
    }

    /// Builds the program now if no extent is free.
    ///
    /// # Errors
    /// If that fails.
    pub(crate) fn prepare(&self) -> Result<(), Error> {
        let dims: Option<Vec<Vec<i64>>> =
            self.model.inputs.iter().map(|value| self.model.values[*value].known_dims()).collect();
        let Some(dims) = dims else { return Ok(()) };
        let key = self.key(dims.iter().map(Vec::as_slice));
        self.programs.get_or_build(&key, || self.build(&dims)).map(drop)
    }

    /// Key of the inputs that are no constants: each one's rank and extents.
    fn key<'a>(&self, dims: impl Iterator<Item = &'a [i64]>) -> Vec<i64> {
        let free = dims.zip(&self.model.inputs).filter(|(_, value)| self.model.values[**value].constant.is_none());
        free.flat_map(|(dims, _)| std::iter::once(dims.len() as i64).chain(dims.iter().copied())).collect()
    }

    fn build(&self, dims: &[Vec<i64>]) -> Result<Program, Error> {
        let views: Vec<&[i64]> = dims.iter().map(Vec::as_slice).collect();
        let function = claim::import_model(&self.model, &views).map_err(Error::invalid)?;
        let token = |input: usize| {
            let constant = self.model.values[self.model.inputs[input]].constant.as_ref();
            constant.and_then(|constant| constant.token.as_deref())
        };
        let labels = |node: usize| self.model.nodes[node].label.clone();
        let mut number = 0;
        let built = Program::build(&function, &labels, &mut |question| {
            let plan = self.planner.plan(&question, token)?;
            let _ = self.planner.dump(&format!("{}.{number}", self.name), question.graph);
            number += 1;
            Ok(plan)
        });
        built.map_err(|refused| {
            let reasons =
                refused.into_iter().map(|(node, reason)| format!("{}: {reason}", self.model.nodes[node].label));
            Error::failed(format!("no engine takes {}", reasons.collect::<Vec<_>>().join("; ")))
        })
    }

    /// # Safety
    /// `context` is the runtime's for one call of this partition.
    unsafe fn run(&self, context: *mut ort::KernelContext) -> Result<(), Error> {
        let count = self.model.inputs.len();
        let mut addresses = Vec::with_capacity(count + self.model.outputs.len());
        let mut key = Vec::with_capacity(4 * MAX_RANK);
        for (index, value) in self.model.inputs.iter().enumerate() {
            // SAFETY: the caller's duty.
            let tensor = unsafe { self.input(context, index) }?;
            if self.model.values[*value].constant.is_none() {
                // SAFETY: the tensor is of this call.
                unsafe { self.append_extents(tensor, &mut key) }?;
            }
            let mut data = null();
            // SAFETY: the tensor is of this call, and `data` is valid for it.
            let status = unsafe { self.runtime.api.get_tensor_data()(tensor, &mut data) };
            // SAFETY: the status is ours.
            unsafe { self.runtime.check(status) }?;
            addresses.push(data.cast_mut());
        }
        let program = self.programs.get_or_build(&key, || self.build(&self.extents(&key)))?;
        for (index, dims) in program.outputs.iter().enumerate() {
            let mut output = null_mut();
            // SAFETY: the context is of this call; the extents and `output` are valid for it.
            let status = unsafe {
                self.runtime.api.kernel_context_get_output()(context, index, dims.as_ptr(), dims.len(), &mut output)
            };
            // SAFETY: the status is ours.
            unsafe { self.runtime.check(status) }?;
            let mut data = null_mut();
            // SAFETY: `output` is a tensor of this call, and `data` is valid for it.
            let status = unsafe { self.runtime.api.get_tensor_mutable_data()(output, &mut data) };
            // SAFETY: the status is ours.
            unsafe { self.runtime.check(status) }?;
            addresses.push(data);
        }
        let (inputs, outputs) = addresses.split_at(count);
        // SAFETY: the program was built for inputs of these extents, constants have those of the model, and the runtime gives
        // each call outputs of its own of the program's extents.
        unsafe { program.run(self.planner.context(), inputs, outputs) }
    }

    /// The extents of all inputs, by the key of those that are no constants.
    fn extents(&self, key: &[i64]) -> Vec<Vec<i64>> {
        let mut rest = key;
        let values = self.model.inputs.iter().map(|value| &self.model.values[*value]);
        values
            .map(|value| match &value.constant {
                Some(constant) => constant.dims.clone(),
                None => {
                    let (rank, after) = rest.split_first().expect("the key has every input");
                    let (dims, after) = after.split_at(*rank as usize);
                    rest = after;
                    dims.to_vec()
                }
            })
            .collect()
    }

    /// # Safety
    /// `context` is the runtime's for one call of this partition.
    unsafe fn input(&self, context: *const ort::KernelContext, index: usize) -> Result<*const ort::Value, Error> {
        let mut value = null();
        // SAFETY: the context is of this call, and `value` is valid for it.
        let status = unsafe { self.runtime.api.kernel_context_get_input()(context, index, &mut value) };
        // SAFETY: the status is ours.
        unsafe { self.runtime.check(status) }?;
        if value.is_null() {
            let name = &self.model.values[self.model.inputs[index]].name;
            return Err(Error::invalid(format!("expected a tensor for the input {name:?}, got none")));
        }
        Ok(value)
    }

    /// Appends a tensor's rank and extents.
    ///
    /// # Safety
    /// `value` is a tensor that is alive.
    unsafe fn append_extents(&self, value: *const ort::Value, key: &mut Vec<i64>) -> Result<(), Error> {
        match self.runtime.api.get_tensor_element_type_and_shape_data_reference() {
            Some(reference) => {
                let (mut element, mut dims, mut rank) = (ElementType::UNDEFINED, null(), 0);
                // SAFETY: the tensor is alive, and the answers' places are valid for the call.
                let status = unsafe { reference(value, &mut element, &mut dims, &mut rank) };
                // SAFETY: the status is ours.
                unsafe { self.runtime.check(status) }?;
                key.push(rank as i64);
                if rank > 0 && !dims.is_null() {
                    // SAFETY: the tensor has that many extents there, which do not change while it is alive.
                    key.extend(unsafe { std::slice::from_raw_parts(dims, rank) });
                }
            }
            None => {
                // SAFETY: the tensor is alive.
                let described = unsafe { self.runtime.shape_of(value) }?;
                let dims = described.shape.unwrap_or_default();
                key.push(dims.len() as i64);
                key.extend(dims);
            }
        }
        Ok(())
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
        unsafe { kernel.run(context) }.map_err(|error| error.at(format_args!("{} ({})", kernel.name, crate::NAME_TEXT)))
    })
}

unsafe extern "system" fn release_state(_this: *mut NodeComputeInfo, _state: *mut c_void) {}
