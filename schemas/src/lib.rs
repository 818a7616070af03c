//! hipDNN's wire format: FlatBuffer graphs, engine configurations and plan containers, and their JSON form.
//!
//! Data flows one way: bytes or JSON → [`GraphDef`] (decoded) → [`Graph`] (checked, immutable).

mod builder;
mod check;
mod content;
mod device;
mod engine;
mod error;
mod features;
mod field;
mod form;
mod generated;
mod graph;
mod inference;
mod json;
mod models;
mod node;
mod operations;
mod overrides;
mod plan;
mod prediction;
mod read;
mod tensor;
mod types;
mod write;

pub use builder::GraphBuilder;
pub use device::DeviceProperties;
pub use engine::*;
pub use error::GraphError;
pub use features::{GraphFeatures, verify_graph};
pub use graph::{EngineApiVersion, Graph, GraphDef};
pub use models::*;
pub use node::*;
pub use overrides::ShapeOverride;
pub use plan::*;
pub use prediction::*;
pub use read::{MAX_NODES, MAX_TENSORS};
pub use tensor::*;
pub use types::*;
