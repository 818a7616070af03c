//! The C ABI: the only code that sees raw pointers of the host, and the only code that stops a panic.
//!
//! An exported function ([`exports`], [`extension`]) enters ([`unwind`]), converts ([`pointer`]), calls safe code and
//! answers ([`status`]). The opaque pointers that the host holds are keys of tables ([`hipdnn_capi::table`]), not
//! addresses; what it reads in place is memory that is lent to it ([`lent`]).

pub mod exports;
pub mod extension;
mod lent;
mod pointer;
mod status;
mod unwind;
