//! hipDNN's C ABIs: engine plugins ([`plugin`]), heuristics plugins ([`heuristics`]) and the backend library
//! ([`backend`]); and this project's extension of the first ([`extension`]).

pub mod backend;
pub mod extension;
pub mod heuristics;
pub mod plugin;
