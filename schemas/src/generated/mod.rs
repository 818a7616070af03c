//! Output of flatc for `fbs/`; `cargo xtask codegen` writes it again.

#[allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    deprecated,
    mismatched_lifetime_syntaxes,
    missing_docs,
    non_camel_case_types,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_imports,
    reason = "generated code"
)]
#[rustfmt::skip]
mod hipdnn;

pub(crate) use hipdnn::hipdnn_flatbuffers_sdk::data_objects::*;
