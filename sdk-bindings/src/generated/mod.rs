//! Output of bindgen for the headers of HIP, hiprtc and MIOpen; `cargo xtask codegen` writes it again.

#[allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unsafe_op_in_unsafe_fn,
    reason = "generated code"
)]
#[rustfmt::skip]
pub(crate) mod hip;

#[allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    reason = "generated code"
)]
#[rustfmt::skip]
pub(crate) mod hiprtc;

#[allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    reason = "generated code"
)]
#[rustfmt::skip]
pub(crate) mod miopen;
