//! Contexts: compiled kernels, MIOpen's handles and choices, shared by the plans of a process on each device.

use std::sync::{Arc, Mutex, PoisonError};

use hipdnn_capi::shared::{Share, Shared};
use hipdnn_engine_core::error::{Error, ErrorKind};
use hipdnn_sdk_bindings::hip::hipStream_t;

use crate::device::Device;
use crate::hip::{Gpu, gpu};
use crate::jit::Kernels;
use crate::miopen::Miopen;
use crate::miopen::library::Library;

/// The contexts of devices that plans were built for, as long as somebody holds this.
#[derive(Debug, Default)]
pub struct Contexts {
    known: Mutex<Vec<Arc<Context>>>,
}

static SHARED: Shared<Contexts> = Shared::new();

impl Contexts {
    /// The process's contexts: the same for all who hold them at a time.
    pub fn get() -> Share<Contexts> {
        SHARED.get(Contexts::default)
    }

    /// The context of the calling thread's current device.
    ///
    /// # Errors
    /// If there is no device, or HIP does not answer.
    pub fn current(&self) -> Result<Arc<Context>, Error> {
        let gpu = usable()?;
        self.numbered(gpu, gpu.current_device()?)
    }

    /// The context of a stream's device; for a default stream that of the calling thread's current device.
    ///
    /// # Errors
    /// As [`Contexts::current`], or if it is no stream.
    pub(super) fn of(&self, stream: hipStream_t) -> Result<Arc<Context>, Error> {
        let gpu = usable()?;
        self.numbered(gpu, Device::ordinal_of(gpu, stream)?)
    }

    fn numbered(&self, gpu: &'static Gpu, ordinal: i32) -> Result<Arc<Context>, Error> {
        // Nothing that is guarded is left half-done by a panic.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = known.iter().find(|context| context.device.ordinal() == ordinal) {
            return Ok(Arc::clone(context));
        }
        let context = Arc::new(Context::new(Device::new(gpu, ordinal)?, Library::new(gpu)));
        known.push(Arc::clone(&context));
        Ok(context)
    }
}

fn usable() -> Result<&'static Gpu, Error> {
    gpu().map_err(|reason| Error::new(ErrorKind::Device, reason))
}

/// A device, and what plans for it share.
#[derive(Debug)]
pub struct Context {
    /// Or why there is none.
    miopen: Result<Miopen, &'static str>,
    kernels: Kernels,
    device: Arc<Device>,
    fingerprint: String,
}

impl Context {
    pub(super) fn new(device: Device, library: Result<Library, &'static str>) -> Context {
        let device = Arc::new(device);
        let kernels = Kernels::new(Arc::clone(&device));
        let miopen = library.map(|library| Miopen::new(library, Arc::clone(&device)));
        let fingerprint = match &miopen {
            Ok(miopen) => miopen.handles().fingerprint().to_owned(),
            Err(_) => format!("{}, no MIOpen", device.fingerprint()),
        };
        Context { miopen, kernels, device, fingerprint }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Its compiled kernels.
    pub(super) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// MIOpen on it.
    ///
    /// # Errors
    /// If there is none, with the reason.
    pub(super) fn miopen(&self) -> Result<&Miopen, Error> {
        self.miopen.as_ref().map_err(|reason| Error::new(ErrorKind::Device, *reason))
    }

    /// Fingerprint of plans: the device and HIP's version; if they have convolutions, MIOpen's build too.
    pub fn fingerprint(&self, convolutions: bool) -> &str {
        if convolutions { &self.fingerprint } else { self.device.fingerprint() }
    }
}
