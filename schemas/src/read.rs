//! From bytes to a description.

use crate::{GraphDef, GraphError};

impl GraphDef {
    /// Verifies and decodes a serialised graph.
    ///
    /// # Errors
    /// If the bytes are not a FlatBuffer of this schema or use members it does not have.
    pub fn from_bytes(_bytes: &[u8]) -> Result<GraphDef, GraphError> {
        todo!()
    }
}
