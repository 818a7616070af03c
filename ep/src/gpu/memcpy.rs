//! Kernels of the nodes by which the runtime moves tensors between host and device: without them it gives these nodes to its
//! CPU provider, and hands the provider host addresses.

use std::ffi::{CStr, CString, c_void};
use std::ptr::{null, null_mut};

use hipdnn_sdk_bindings::ort::{ElementType, KernelContext, KernelImpl, KernelInfo, KernelRegistry, MemType, Status};

use super::Gpu;
use super::sync::failure;
use super::transfer;
use crate::error::Error;
use crate::pointer::{Handles, Held, Place};
use crate::runtime::{Runtime, caught, status_of};

/// Element types of a fixed size.
const ELEMENTS: [ElementType; 20] = [
    ElementType::FLOAT,
    ElementType::UINT8,
    ElementType::INT8,
    ElementType::UINT16,
    ElementType::INT16,
    ElementType::INT32,
    ElementType::INT64,
    ElementType::BOOL,
    ElementType::FLOAT16,
    ElementType::DOUBLE,
    ElementType::UINT32,
    ElementType::UINT64,
    ElementType::BFLOAT16,
    ElementType::FLOAT8E4M3FN,
    ElementType::FLOAT8E4M3FNUZ,
    ElementType::FLOAT8E5M2,
    ElementType::FLOAT8E5M2FNUZ,
    ElementType::UINT4,
    ElementType::INT4,
    ElementType::COMPLEX64,
];

/// A registry of the two kernels under each of a provider's names.
pub(crate) struct Registry {
    runtime: Runtime,
    raw: *mut KernelRegistry,
    /// State that the kernels are made with; the registry has its address.
    _state: Box<State>,
}

/// State that a kernel is made with.
struct State {
    runtime: Runtime,
    gpu: &'static Gpu,
}

impl Registry {
    /// Makes a registry for nodes on a device; `None` where the runtime has none.
    ///
    /// # Errors
    /// The runtime's error.
    pub(crate) fn new(runtime: Runtime, gpu: &'static Gpu, names: &[CString]) -> Result<Option<Registry>, Error> {
        let (Some(create), Some(_)) = (runtime.ep.create_kernel_registry(), runtime.ep.kernel_registry_add_kernel())
        else {
            return Ok(None);
        };
        let mut raw = null_mut();
        // SAFETY: a place for a registry.
        unsafe { runtime.check(create(&mut raw)) }?;
        let state = Box::new(State { runtime, gpu });
        let registry = Registry { runtime, raw, _state: state };
        let mut kinds = Vec::new();
        for element in ELEMENTS {
            let mut kind = null();
            let get = runtime.ep.get_tensor_data_type().expect("as new as registries");
            // SAFETY: a place for a type. One that the runtime does not know it has no tensors of.
            if unsafe { runtime.check(get(element, &mut kind)) }.is_ok() && !kind.is_null() {
                kinds.push(kind);
            }
        }
        for name in names {
            for (operator, from_host) in [(c"MemcpyFromHost", true), (c"MemcpyToHost", false)] {
                registry.add(operator, name, from_host, &kinds)?;
            }
        }
        Ok(Some(registry))
    }

    fn add(
        &self,
        operator: &CStr,
        provider: &CStr,
        from_host: bool,
        kinds: &[*const hipdnn_sdk_bindings::ort::DataType],
    ) -> Result<(), Error> {
        let api = &self.runtime.ep;
        let newer = "as new as registries";
        let mut builder = null_mut();
        // SAFETY: a place for a builder.
        unsafe { self.runtime.check(api.create_kernel_def_builder().expect(newer)(&mut builder)) }?;
        let mut definition = null_mut();
        // SAFETY: the builder is ours and alive; texts and types are read during the calls.
        let built = (|| unsafe {
            let check = |status| self.runtime.check(status);
            check(api.kernel_def_builder_set_operator_type().expect(newer)(builder, operator.as_ptr()))?;
            check(api.kernel_def_builder_set_domain().expect(newer)(builder, c"".as_ptr()))?;
            check(api.kernel_def_builder_set_since_version().expect(newer)(builder, 1, i32::MAX))?;
            check(api.kernel_def_builder_set_execution_provider().expect(newer)(builder, provider.as_ptr()))?;
            if from_host {
                check(api.kernel_def_builder_set_input_mem_type().expect(newer)(builder, 0, MemType::CPUInput))?;
            } else {
                check(api.kernel_def_builder_set_output_mem_type().expect(newer)(builder, 0, MemType::CPUOutput))?;
            }
            let constrain = api.kernel_def_builder_add_type_constraint().expect(newer);
            check(constrain(builder, c"T".as_ptr(), kinds.as_ptr(), kinds.len()))?;
            check(api.kernel_def_builder_build().expect(newer)(builder, &mut definition))
        })();
        // SAFETY: the builder is ours, and not used again.
        unsafe { api.release_kernel_def_builder().expect(newer)(builder) };
        built?;
        let state: *const State = &*self._state;
        let add = api.kernel_registry_add_kernel().expect(newer);
        // SAFETY: registry, definition and state are ours; the state lives as long as the registry.
        let added = unsafe { self.runtime.check(add(self.raw, definition, create, state.cast_mut().cast())) };
        // SAFETY: the definition is ours; the registry has its own.
        unsafe { api.release_kernel_def().expect(newer)(definition) };
        added
    }

    /// The runtime's object, as long as this lives.
    pub(crate) fn raw(&self) -> *const KernelRegistry {
        self.raw
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        if let Some(release) = self.runtime.ep.release_kernel_registry() {
            // SAFETY: the registry is ours, and the runtime asks for it no more.
            unsafe { release(self.raw) };
        }
    }
}

/// A kernel, as the runtime holds it: its callbacks, then ours.
#[repr(C)]
struct Memcpy {
    callbacks: KernelImpl,
    runtime: Runtime,
    gpu: &'static Gpu,
}

static KERNELS: Handles<Memcpy> = Handles::new("kernel");

// SAFETY: the struct is `repr(C)` and begins with its callbacks.
unsafe impl Held for Memcpy {
    type Callbacks = KernelImpl;

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

/// Makes the kernel of a node.
unsafe extern "system" fn create(
    state: *mut c_void,
    _info: *const KernelInfo,
    kernel: *mut *mut KernelImpl,
) -> *mut Status {
    status_of(caught(|| {
        // SAFETY: the place is the runtime's, if it is one.
        let place = unsafe { Place::new(kernel, "the place for the kernel") }?;
        // SAFETY: the registry passes its own state, which lives as long as its kernels are made.
        let State { runtime, gpu } = unsafe { &*state.cast::<State>() };
        let callbacks = KernelImpl {
            ort_version_supported: runtime.version(),
            compute: Some(compute),
            release: Some(release),
            ..KernelImpl::default()
        };
        let raw = Box::into_raw(Box::new(Memcpy { callbacks, runtime: *runtime, gpu })).cast();
        KERNELS.add(raw);
        place.set(raw);
        Ok(())
    }))
}

unsafe extern "system" fn release(this: *mut KernelImpl) {
    // Neither a panic while dropping nor a stranger can be told.
    let _ = caught(|| {
        KERNELS.remove(this)?;
        // SAFETY: it was boxed, and is known no more.
        drop(unsafe { Box::from_raw(this.cast::<Memcpy>()) });
        Ok(())
    });
}

unsafe extern "system" fn compute(this: *mut KernelImpl, context: *mut KernelContext) -> *mut Status {
    KERNELS.with(this, |kernel| {
        if context.is_null() {
            return Err(Error::invalid(format!("{}: the kernel context is null", crate::NAME_TEXT)));
        }
        // SAFETY: the context is the runtime's for this call.
        unsafe { kernel.run(context) }
    })
}

impl Memcpy {
    /// # Safety
    /// `context` is the runtime's for one call.
    unsafe fn run(&self, context: *mut KernelContext) -> Result<(), Error> {
        let api = &self.runtime.api;
        let (mut input, mut raw) = (null(), null_mut());
        // SAFETY: the context is of this call, and the answers' places are valid for it.
        unsafe {
            self.runtime.check(api.kernel_context_get_input()(context, 0, &mut input))?;
            self.runtime.check(api.kernel_context_get_gpu_compute_stream()(context, &mut raw))?;
        }
        if input.is_null() {
            return Err(Error::invalid(format!("{}: expected a tensor to copy, got none", crate::NAME_TEXT)));
        }
        // SAFETY: the tensor is of this call.
        let dims = unsafe { self.runtime.shape_of(input) }?.shape.unwrap_or_default();
        let mut output = null_mut();
        // SAFETY: the context is of this call; the extents and the answer's place are valid for it.
        let status = unsafe { api.kernel_context_get_output()(context, 0, dims.as_ptr(), dims.len(), &mut output) };
        // SAFETY: the status is ours.
        unsafe { self.runtime.check(status) }?;
        let stream = if raw.is_null() { None } else { Some(self.gpu.stream_of(raw)?) };
        // SAFETY: the tensors are the runtime's, and stay until the stream has passed.
        match unsafe { transfer::copy(&self.runtime, input, output, stream) }? {
            Some(stream) => stream.synchronize().map_err(|error| failure(stream.gpu(), &error)),
            None => Ok(()),
        }
    }
}
