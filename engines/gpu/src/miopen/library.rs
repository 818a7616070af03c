//! MIOpen's functions, and its statuses as errors.

use hipdnn_engine_core::error::{Error, ErrorKind};
use hipdnn_sdk_bindings::miopen::{Functions, miopenStatus_t};

use crate::hip::{Gpu, LoadedMiopen};

/// MIOpen's functions, with the HIP that they use. They are good until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    /// HIP.
    pub gpu: &'static Gpu,
    /// MIOpen's.
    pub functions: &'static Functions,
    /// Functions, version and build of the MIOpen that was opened.
    pub loaded: &'static LoadedMiopen,
}

impl Library {
    /// The MIOpen that was opened with that HIP.
    ///
    /// # Errors
    /// If none can be used, with the reason.
    pub fn new(gpu: &'static Gpu) -> Result<Library, &'static str> {
        let loaded = gpu.miopen.as_ref().map_err(|reason| reason.as_str())?;
        Ok(Library { gpu, functions: &loaded.functions, loaded })
    }

    /// Checks the status of a MIOpen call.
    ///
    /// # Errors
    /// If it is not success.
    pub fn check(&self, status: miopenStatus_t, call: &str) -> Result<(), Error> {
        if status == miopenStatus_t::miopenStatusSuccess { Ok(()) } else { Err(miopen_error(status, call)) }
    }

    /// For calls that release something: there is nobody to give an error to.
    pub(crate) fn log(&self, status: miopenStatus_t, call: &str) {
        if let Err(error) = self.check(status, call) {
            log::warn!("{error}");
        }
    }
}

/// `call` did not succeed.
fn miopen_error(status: miopenStatus_t, call: &str) -> Error {
    let kind = match status {
        miopenStatus_t::miopenStatusAllocFailed => ErrorKind::AllocFailed,
        miopenStatus_t::miopenStatusNotImplemented
        | miopenStatus_t::miopenStatusUnsupportedOp
        | miopenStatus_t::miopenStatusBadParm => ErrorKind::Unsupported,
        _ => ErrorKind::Device,
    };
    Error::new(kind, format!("{call} gave {status} ({})", status.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_named_with_their_numbers() {
        for (status, kind, text) in [
            (7, ErrorKind::Device, "miopenCreate gave miopenStatusUnknownError (7)"),
            (6, ErrorKind::Unsupported, "miopenCreate gave miopenStatusNotImplemented (6)"),
        ] {
            let error = miopen_error(miopenStatus_t(status), "miopenCreate");
            assert_eq!((error.kind(), error.to_string().as_str()), (kind, text));
        }
    }
}
