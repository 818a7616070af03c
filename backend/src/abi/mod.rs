//! The C boundary: pointers coming in ([`pointer`]) and panics going out ([`unwind`]).

pub(crate) mod pointer;
pub(crate) mod unwind;
