//! The functions of `libhiprtc`, by NVRTC.

mod program;
mod translate;

pub(crate) use program::code_for;
pub(crate) use translate::prelude_fingerprint;
