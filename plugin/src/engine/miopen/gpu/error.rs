//! Statuses of HIP and MIOpen as errors.

use hipdnn_sdk_bindings::hip::hipError_t;
use hipdnn_sdk_bindings::miopen::miopenStatus_t;

use super::Gpu;
use crate::error::{Error, ErrorKind};

/// `call` did not succeed.
pub fn hip_error(status: hipError_t, call: &str) -> Error {
    let kind = if status == hipError_t::hipErrorOutOfMemory { ErrorKind::AllocFailed } else { ErrorKind::Device };
    Error::new(kind, format!("{call} gave {status} ({})", status.0))
}

/// `call` did not succeed.
pub fn miopen_error(status: miopenStatus_t, call: &str) -> Error {
    let kind = match status {
        miopenStatus_t::miopenStatusAllocFailed => ErrorKind::AllocFailed,
        miopenStatus_t::miopenStatusNotImplemented
        | miopenStatus_t::miopenStatusUnsupportedOp
        | miopenStatus_t::miopenStatusBadParm => ErrorKind::Unsupported,
        _ => ErrorKind::Device,
    };
    Error::new(kind, format!("{call} gave {status} ({})", status.0))
}

impl Gpu {
    /// What a HIP call's status means.
    ///
    /// # Errors
    /// If it is not success.
    pub fn check_hip(&self, status: hipError_t, call: &str) -> Result<(), Error> {
        if status == hipError_t::hipSuccess { Ok(()) } else { Err(hip_error(status, call)) }
    }

    /// What a MIOpen call's status means.
    ///
    /// # Errors
    /// If it is not success.
    pub fn check_miopen(&self, status: miopenStatus_t, call: &str) -> Result<(), Error> {
        if status == miopenStatus_t::miopenStatusSuccess { Ok(()) } else { Err(miopen_error(status, call)) }
    }

    /// For calls that release something: there is nobody to give an error to.
    pub(in crate::engine::miopen) fn log_hip(&self, status: hipError_t, call: &str) {
        if let Err(error) = self.check_hip(status, call) {
            log::warn!("{error}");
        }
    }

    /// As [`Gpu::log_hip`].
    pub(in crate::engine::miopen) fn log_miopen(&self, status: miopenStatus_t, call: &str) {
        if let Err(error) = self.check_miopen(status, call) {
            log::warn!("{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_named_with_their_numbers() {
        for (error, kind, text) in [
            (
                hip_error(hipError_t::hipErrorOutOfMemory, "hipMalloc"),
                ErrorKind::AllocFailed,
                "hipMalloc gave hipErrorOutOfMemory (2)",
            ),
            (hip_error(hipError_t(4321), "hipFree"), ErrorKind::Device, "hipFree gave hipError_t 4321 (4321)"),
            (
                miopen_error(miopenStatus_t(7), "miopenCreate"),
                ErrorKind::Device,
                "miopenCreate gave miopenStatusUnknownError (7)",
            ),
            (
                miopen_error(miopenStatus_t(6), "miopenCreate"),
                ErrorKind::Unsupported,
                "miopenCreate gave miopenStatusNotImplemented (6)",
            ),
        ] {
            assert_eq!((error.kind(), error.to_string().as_str()), (kind, text));
        }
    }
}
