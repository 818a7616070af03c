//! Devices of HIP.

use std::ffi::c_int;

use hipdnn_engine_core::error::{Error, ErrorKind};
use hipdnn_sdk_bindings::hip::{hipDeviceAttribute_t, hipStream_t, hipStreamPerThread};

use crate::hip::{Gpu, LastError, OnDevice, Relaxed, hip_error};

/// A device: its number, what code for it depends on, and being on it.
#[derive(Debug)]
pub struct Device {
    gpu: &'static Gpu,
    ordinal: i32,
    arch: String,
    compute_units: usize,
    fingerprint: String,
}

impl Device {
    /// The device of that number.
    ///
    /// # Errors
    /// If HIP does not tell what it is.
    pub fn new(gpu: &'static Gpu, ordinal: i32) -> Result<Device, Error> {
        // SAFETY: the libraries stay open once they are.
        let properties = unsafe { gpu.hip.device_properties(ordinal) };
        let full = properties.map_err(|status| hip_error(status, "hipGetDevicePropertiesR0600"))?.arch();
        let arch = full.split(':').next().unwrap_or_default().to_string();
        if arch.is_empty() {
            return Err(Error::new(
                ErrorKind::Device,
                format!("HIP does not tell the architecture of device {ordinal}"),
            ));
        }
        let mut units: c_int = 0;
        let attribute = hipDeviceAttribute_t::hipDeviceAttributeMultiprocessorCount;
        // SAFETY: a place for one number.
        let status = unsafe { (gpu.hip.hipDeviceGetAttribute)(&mut units, attribute, ordinal) };
        gpu.check_hip(status, "hipDeviceGetAttribute")?;
        let fingerprint = format!("{full}, {units} units, HIP {}", gpu.hip_version());
        let compute_units = usize::try_from(units).unwrap_or(0);
        Ok(Device { gpu, ordinal, arch, compute_units, fingerprint })
    }

    /// The number of a stream's device; for a default stream that of the calling thread's current device.
    ///
    /// # Errors
    /// If it is no stream, or HIP does not answer.
    pub(crate) fn ordinal_of(gpu: &'static Gpu, stream: hipStream_t) -> Result<i32, Error> {
        if is_default(stream) || gpu.devices() == 1 {
            return gpu.current_device();
        }
        let _errors = LastError::keep(gpu);
        let mut ordinal = 0;
        // SAFETY: the host keeps a handle's stream alive, and HIP knows what is no stream; a place for one number.
        let status = unsafe { (gpu.hip.hipStreamGetDevice)(stream, &mut ordinal) };
        gpu.check_hip(status, "hipStreamGetDevice")?;
        Ok(ordinal)
    }

    /// The libraries.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// Its number in HIP.
    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// Its architecture, without features: `gfx1100`.
    pub fn arch(&self) -> &str {
        &self.arch
    }

    /// Number of its compute units.
    pub fn compute_units(&self) -> usize {
        self.compute_units
    }

    /// Fingerprint of compiled code: architecture with features, compute units, HIP's version.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Makes it the thread's current device, in a mode that lets the thread allocate and load although others capture,
    /// until the guard is dropped.
    ///
    /// # Errors
    /// If HIP refuses.
    pub fn enter(&self) -> Result<Entered, Error> {
        let errors = LastError::keep(self.gpu);
        let relaxed = Relaxed::enter(self.gpu)?;
        Ok(Entered { _device: OnDevice::enter(self.gpu, self.ordinal)?, _relaxed: relaxed, _errors: errors })
    }

    /// Makes the device current if launches on that stream would go elsewhere otherwise: where there are several, the
    /// default streams are those of the thread's current device.
    pub(crate) fn enter_for(&self, stream: hipStream_t) -> Result<Option<OnDevice>, Error> {
        if is_default(stream) && self.gpu.devices() > 1 {
            return OnDevice::enter(self.gpu, self.ordinal).map(Some);
        }
        Ok(None)
    }
}

/// True if it stands for a stream of the thread's current device.
fn is_default(stream: hipStream_t) -> bool {
    (stream as usize) <= (hipStreamPerThread as usize)
}

/// While it lives the thread is on a device, and may allocate and load although others capture.
#[derive(Debug)]
pub struct Entered {
    _device: OnDevice,
    _relaxed: Relaxed,
    _errors: LastError,
}
