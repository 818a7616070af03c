//! The compiler of the ONNX Runtime execution provider: nodes of an ONNX model become hipDNN graphs over planned memory.
//!
//! ```text
//! model ─► partition ─► import ─► ir (with constants folded, views) ─► rewrite ─► outline (graphs) ─► memory
//! ```
//!
//! It knows neither the runtime that a model comes from nor the backend that runs the graphs, and touches no memory of theirs:
//! the provider reads a [`model::Model`], asks engines about the graphs of [`outline`], and runs programs of them. [`print`]
//! writes each stage as MLIR; [`cost`] says what of ONNX Runtime's traffic a partition saves or adds.

#![forbid(unsafe_code)]

pub mod constants;
pub mod cost;
pub mod import;
pub mod ir;
pub mod memory;
pub mod model;
pub mod outline;
pub mod partition;
pub mod print;
pub mod rewrite;
pub mod support;
