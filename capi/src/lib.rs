//! The Rust side of C ABIs, the same for every library that we ship.
//!
//! | module | holds |
//! |---|---|
//! | [`pointer`] | raw pointers in: null and alignment |
//! | [`unwind`] | panics out: none leaves a library |
//! | [`table`] | handles: keys instead of addresses |
//! | [`text`] | a thread's last error |
//! | [`shared`] | the singleton of a process, dropped before its library is unloaded |
//! | [`spare`] | objects that one user at a time takes |
//! | [`error`] | errors in a caller's arguments |
//!
//! Hosts close libraries with `dlclose`, also while threads live that have called them. So nothing here leaves memory
//! behind in a static, or a thread-local that needs a destructor.

pub mod error;
pub mod pointer;
pub mod shared;
pub mod spare;
mod sync;
pub mod table;
pub mod text;
pub mod unwind;

pub use error::Error;
