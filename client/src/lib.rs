//! hipDNN's backend as its clients use it: where the library is, handles, descriptors, and plans of graphs. The library is opened
//! at run time, and may be ROCm's or this project's.

pub mod descriptor;
pub mod engines;
pub mod extension;
pub mod handle;
pub mod library;
pub mod planning;
pub mod search;
pub mod workspace;
