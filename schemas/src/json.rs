//! hipDNN's JSON form.

use crate::{GraphDef, GraphError};

impl GraphDef {
    /// Decodes hipDNN's JSON form.
    ///
    /// # Errors
    /// If the text is not JSON, or a mandatory key is missing or of the wrong type.
    pub fn from_json(_text: &str) -> Result<GraphDef, GraphError> {
        todo!()
    }

    /// The description in hipDNN's JSON form.
    pub fn to_json(&self) -> String {
        todo!()
    }
}
