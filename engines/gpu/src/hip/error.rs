//! Statuses of HIP as errors.

use hipdnn_engine_core::error::{Error, ErrorKind};
use hipdnn_sdk_bindings::hip::hipError_t;

use super::Gpu;

/// `call` did not succeed.
pub fn hip_error(status: hipError_t, call: &str) -> Error {
    let kind = if status == hipError_t::hipErrorOutOfMemory { ErrorKind::AllocFailed } else { ErrorKind::Device };
    Error::new(kind, format!("{call} gave {status} ({})", status.0))
}

impl Gpu {
    /// Result of a HIP call by its status.
    ///
    /// # Errors
    /// If it is not success.
    pub fn check_hip(&self, status: hipError_t, call: &str) -> Result<(), Error> {
        if status == hipError_t::hipSuccess { Ok(()) } else { Err(hip_error(status, call)) }
    }

    /// For calls that release something: there is nobody to give an error to.
    pub(crate) fn log_hip(&self, status: hipError_t, call: &str) {
        if let Err(error) = self.check_hip(status, call) {
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
        ] {
            assert_eq!((error.kind(), error.to_string().as_str()), (kind, text));
        }
    }
}
