//! Common part of the tests over the built libraries: the libraries' paths, small owners over the two C ABIs, seeded
//! tensors, and a convolution in double precision with a bound on what rounding may do.
//!
//! Nothing here links the plugin, the backend or the provider: they are opened as their users open them.

pub mod artifacts;
pub mod backend;
pub mod emulator;
pub mod mutation;
pub mod plugin;
pub mod program;
pub mod reference;
pub mod tensor;
