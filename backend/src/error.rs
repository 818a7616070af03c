//! Errors: a status for the caller and a sentence for the person reading it.

use hipdnn_sdk_bindings::hipdnn::backend::Status;

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Error {
    /// Status that the C function returns.
    pub(crate) status: Status,
    /// Sentence with what was wanted and what came.
    pub(crate) message: String,
}

/// The result of everything that can fail here.
pub(crate) type Result<T> = std::result::Result<T, Error>;

macro_rules! constructors {
    ($($(#[$meta:meta])* $name:ident = $status:ident;)*) => {
        impl Error {
            $($(#[$meta])*
            pub(crate) fn $name(message: impl Into<String>) -> Error {
                Error { status: Status::$status, message: message.into() }
            })*
        }
    };
}

constructors! {
    /// The call comes too early or too late in the object's life.
    not_initialized = NOT_INITIALIZED;
    /// An argument is wrong.
    bad_param = BAD_PARAM;
    /// An argument is null.
    null = BAD_PARAM_NULL_POINTER;
    /// A descriptor that is referred to is not finalized.
    not_finalized = BAD_PARAM_NOT_FINALIZED;
    /// The caller's buffer is too small.
    too_small = BAD_PARAM_SIZE_INSUFFICIENT;
    /// The request is not supported by this library.
    not_supported = NOT_SUPPORTED;
    /// An internal error.
    internal = INTERNAL_ERROR;
    /// A plugin failed.
    plugin = PLUGIN_ERROR;
}

impl From<hipdnn_capi::Error> for Error {
    fn from(error: hipdnn_capi::Error) -> Error {
        let status = match error {
            hipdnn_capi::Error::Null { .. } => Status::BAD_PARAM_NULL_POINTER,
            hipdnn_capi::Error::Full { .. } => Status::ALLOC_FAILED,
            _ => Status::BAD_PARAM,
        };
        Error { status, message: error.to_string() }
    }
}
