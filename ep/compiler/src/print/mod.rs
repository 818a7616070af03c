//! The stages of a program as MLIR text.
//!
//! | stage | form |
//! |---|---|
//! | `1-import` | the partition as `onnx.*` operators of the torch dialect, free extents as symbols |
//! | `2-outlined` | the function at concrete extents: a `hipdnn.graph` operator with a region for each hipDNN graph, and views |
//! | `3-executables` | calls of one private function for each distinct graph, with the engine that runs it |
//! | `4-dps` | the same on builtin tensors, every result with a destination |
//! | `5-memref` | the flat list of steps, on windows of inputs, outputs, constants and one arena |
//!
//! The real `torch-mlir-opt` takes each of them. The text depends on the program only, so that texts can be compared.

mod executables;
mod memref;
mod onnx;
mod tensor;
mod text;
mod torch;
mod values;
mod window;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use hipdnn_schemas::{GraphDef, TensorDef};

use crate::ir::{BufferId, Function, ValueId};
use crate::model::Model;

/// A program as it was linked.
pub struct Linked<'a> {
    /// The function that was outlined.
    pub function: &'a Function,
    /// Steps in order of execution.
    pub steps: Vec<Step<'a>>,
    /// Places of buffers in the arena, in bytes.
    pub places: &'a HashMap<BufferId, usize>,
    /// Size of the arena in bytes.
    pub arena: usize,
    /// Bytes that the plans work in, beside the arena.
    pub workspace: usize,
}

/// A step of a program.
pub struct Step<'a> {
    /// The hipDNN graph.
    pub graph: &'a GraphDef,
    /// Tensors of the graph that have memory: their uids and values.
    pub arguments: &'a [(i64, ValueId)],
    /// The engine that runs the graph.
    pub engine: &'a str,
    /// Bytes that its plan works in.
    pub workspace: usize,
}

impl Step<'_> {
    /// True if a node of the graph writes the tensor.
    fn writes(&self, uid: i64) -> bool {
        self.graph.nodes.iter().any(|node| node.operation.outputs().iter().any(|output| output.0 == uid))
    }

    /// Arguments that are read and not written.
    fn operands(&self) -> impl Iterator<Item = (i64, ValueId)> {
        self.arguments.iter().copied().filter(|(uid, _)| !self.writes(*uid))
    }

    /// Arguments that are written.
    fn results(&self) -> impl Iterator<Item = (i64, ValueId)> {
        self.arguments.iter().copied().filter(|(uid, _)| self.writes(*uid))
    }

    /// The graph's tensor of that uid.
    fn tensor(&self, uid: i64) -> &TensorDef {
        let mut tensors = self.graph.tensors.iter();
        tensors.find(|tensor| tensor.uid.0 == uid).expect("a graph describes its tensors")
    }

    /// The ONNX nodes that the step computes, each once.
    fn labels(&self) -> Vec<&str> {
        let mut labels: Vec<&str> = self.graph.nodes.iter().map(|node| node.name.as_str()).collect();
        labels.dedup();
        labels
    }
}

/// Every stage of a program: its name and its text.
pub fn stages(model: &Model, linked: &Linked<'_>) -> [(&'static str, String); 5] {
    [
        ("1-import", onnx::print(model)),
        ("2-outlined", torch::print(linked, torch::Form::Regions)),
        ("3-executables", torch::print(linked, torch::Form::Calls)),
        ("4-dps", tensor::print(linked)),
        ("5-memref", memref::print(linked)),
    ]
}
