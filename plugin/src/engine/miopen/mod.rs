//! The MIOpen engine: convolutions by libMIOpen on an AMD GPU, everything around them by kernels of our own.

pub mod lower;
pub mod settings;
pub mod store;
