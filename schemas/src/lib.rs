//! hipDNN's wire format: FlatBuffer graphs, engine configurations and plan containers, and their JSON form.
//!
//! Data flows one way: bytes or JSON → [`GraphDef`] (decoded) → [`Graph`] (checked, immutable).

mod check;
mod engine;
mod error;
mod graph;
mod json;
mod node;
mod read;
mod tensor;
mod types;
mod write;

pub use engine::*;
pub use error::GraphError;
pub use graph::{EngineApiVersion, Graph, GraphDef};
pub use node::*;
pub use tensor::*;
pub use types::*;
