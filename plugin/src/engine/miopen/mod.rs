//! The MIOpen engine: convolutions by libMIOpen on an AMD GPU, everything around them by kernels of our own.

pub mod choose;
pub mod convolution;
pub mod descriptor;
pub mod device;
pub mod gpu;
pub mod kernels;
pub mod lower;
pub mod record;
mod search;
pub mod settings;
pub mod store;
mod trial;
