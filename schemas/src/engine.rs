//! What passes between host and engine beside graphs: configurations, details, knobs and plan containers.

use crate::GraphError;

/// The value of a knob.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the types")]
pub enum KnobValue {
    Int(i64),
    Float(f64),
    String(String),
}

/// Which values a knob takes.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub enum KnobConstraint {
    Int { min: i64, max: i64, step: i64, valid: Vec<i64> },
    Float { min: f64, max: f64 },
    String { max_length: i32, valid: Vec<String> },
}

/// A setting that an engine offers.
#[derive(Clone, Debug, PartialEq)]
pub struct Knob {
    /// `<plugin>.<category>.<name>`, or one of hipDNN's `global.*`.
    pub id: String,
    /// What it does.
    pub description: String,
    /// What holds when it is not set.
    pub default: KnobValue,
    /// Which values it takes.
    pub constraint: Option<KnobConstraint>,
    /// Still taken, but no longer of use.
    pub deprecated: bool,
}

/// An engine and the knobs set on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineConfig {
    /// The engine.
    pub engine_id: i64,
    /// Knob id and value, in the client's order.
    pub knobs: Vec<(String, KnobValue)>,
}

impl EngineConfig {
    /// Verifies and decodes.
    ///
    /// # Errors
    /// If the bytes are not an engine configuration.
    pub fn from_bytes(_bytes: &[u8]) -> Result<EngineConfig, GraphError> {
        todo!()
    }

    /// As a FlatBuffer.
    pub fn to_bytes(&self) -> Vec<u8> {
        todo!()
    }
}

/// What an engine says of itself for a graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineDetails {
    /// The engine.
    pub engine_id: i64,
    /// The knobs it offers.
    pub knobs: Vec<Knob>,
    /// Behaviour notes, by number.
    pub behavior_notes: Vec<i32>,
    /// Informational; the engine-name entry point is what names an engine.
    pub name: Option<String>,
}

impl EngineDetails {
    /// Verifies and decodes.
    ///
    /// # Errors
    /// If the bytes are not engine details.
    pub fn from_bytes(_bytes: &[u8]) -> Result<EngineDetails, GraphError> {
        todo!()
    }

    /// As a FlatBuffer.
    pub fn to_bytes(&self) -> Vec<u8> {
        todo!()
    }
}
