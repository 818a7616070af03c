//! From a description to a checked graph.

use crate::{Graph, GraphDef, GraphError};

pub(crate) fn check(_def: GraphDef) -> Result<Graph, GraphError> {
    todo!()
}
