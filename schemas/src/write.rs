//! From a description to bytes.

use crate::GraphDef;

impl GraphDef {
    /// The description as a FlatBuffer (no size prefix, no file identifier).
    pub fn to_bytes(&self) -> Vec<u8> {
        todo!()
    }
}
