//! Code on the device.

use std::ffi::CStr;

use hipdnn_engine_core::error::Error;
use hipdnn_sdk_bindings::hip::{hipFunction_t, hipModule_t};

use super::Gpu;

/// A loaded code object, on the device that was current when it was loaded.
#[derive(Debug)]
pub struct Module {
    gpu: &'static Gpu,
    raw: hipModule_t,
}

// SAFETY: HIP's modules belong to no thread.
unsafe impl Send for Module {}
// SAFETY: the handle never changes, and HIP locks where calls on one module need it.
unsafe impl Sync for Module {}

/// A kernel of a [`Module`]. It is good as long as the module is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function(pub(crate) hipFunction_t);

// SAFETY: HIP's functions belong to no thread.
unsafe impl Send for Function {}
// SAFETY: the handle never changes, and HIP locks where calls on one function need it.
unsafe impl Sync for Function {}

impl Function {
    /// HIP's handle of it.
    pub fn raw(self) -> hipFunction_t {
        self.0
    }
}

impl Module {
    /// Loads a code object on the thread's current device.
    ///
    /// # Safety
    /// The bytes are a code object that a compiler made, whole.
    ///
    /// # Errors
    /// If HIP refuses.
    pub unsafe fn load(gpu: &'static Gpu, code: &[u8]) -> Result<Module, Error> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: a place for one handle; HIP reads the object's own size from it, which is the caller's promise.
        let status = unsafe { (gpu.hip.hipModuleLoadData)(&mut raw, code.as_ptr().cast()) };
        gpu.check_hip(status, "hipModuleLoadData")?;
        Ok(Module { gpu, raw })
    }

    /// The kernel of that name.
    ///
    /// # Errors
    /// If there is none.
    pub fn function(&self, name: &CStr) -> Result<Function, Error> {
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is alive; a place for one handle.
        let status = unsafe { (self.gpu.hip.hipModuleGetFunction)(&mut function, self.raw, name.as_ptr()) };
        let named = |error: Error| error.within(format!("kernel {}", name.to_string_lossy()));
        self.gpu.check_hip(status, "hipModuleGetFunction").map_err(named)?;
        Ok(Function(function))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: `load` loaded it, and nobody has it any more.
        let status = unsafe { (self.gpu.hip.hipModuleUnload)(self.raw) };
        self.gpu.log_hip(status, "hipModuleUnload");
    }
}
