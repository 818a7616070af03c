//! hipDNN kernel engine plugin.

pub mod engine;
