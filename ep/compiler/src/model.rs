//! The ONNX model as the compiler sees it: nodes, values, attributes and small constants, copied out of the runtime.
//!
//! A [`Model`] borrows nothing, so that programs for new shapes can be built from it at any run.

use std::collections::HashMap;
use std::sync::Arc;

use hipdnn_sdk_bindings::ort::ElementType;
use serde::{Deserialize, Serialize};

use crate::constants::Token;

/// Index of a value in [`Model::values`].
pub type ValueIndex = usize;

/// A graph, or a partition of one, in topological order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Model {
    /// Name of the graph.
    pub name: String,
    /// Every value that a node reads or writes.
    pub values: Vec<Value>,
    /// Nodes in topological order.
    pub nodes: Vec<Node>,
    /// Run-time inputs, constant initializers among them, in the runtime's order.
    pub inputs: Vec<ValueIndex>,
    /// Values that leave the graph, in the runtime's order.
    pub outputs: Vec<ValueIndex>,
    /// Kind of processor that programs are for.
    pub target: Target,
}

/// Kind of processor that programs are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// Tensors are in the host's memory: their content can be looked at.
    #[default]
    Cpu,
    /// Tensors are in a GPU's memory; its engines have no matrix products.
    Gpu,
}

/// Element types as the runtime's numbers.
mod element {
    use super::ElementType;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(element: &Option<ElementType>, to: S) -> Result<S::Ok, S::Error> {
        element.map(|element| element.0).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ElementType>, D::Error> {
        Option::<i32>::deserialize(from).map(|number| number.map(ElementType))
    }
}

/// A named value.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Value {
    /// Name, unique in the graph.
    pub name: String,
    /// Element type; `None` if the value is no tensor.
    #[serde(with = "element")]
    pub element: Option<ElementType>,
    /// Extents; `None` if not even the rank is known.
    pub shape: Option<Vec<Extent>>,
    /// The content, if it is an initializer that no run replaces.
    #[serde(skip)]
    pub constant: Option<Constant>,
    /// True if the graph hands the value out, or a node outside of the model reads it.
    pub is_output: bool,
}

/// An extent of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Extent {
    /// The same in every run.
    Known(i64),
    /// Free; equal symbols are equal extents within a run.
    Symbol(String),
}

/// A constant initializer.
#[derive(Clone, Debug)]
pub struct Constant {
    /// Extents.
    pub dims: Vec<i64>,
    /// Content in the host's byte order, of constants of at most [`SMALL_CONSTANT`] bytes.
    pub bytes: Option<Arc<[u8]>>,
    /// Token of the content, for the promise that it never changes; of weights.
    pub token: Option<Token>,
}

/// Most bytes of a constant whose content the compiler looks at: bounds, axes, shapes, scales.
pub const SMALL_CONSTANT: usize = 16 * 1024;

/// An ONNX node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Node {
    /// Name, or that of the first output.
    pub label: String,
    /// Domain; empty for ONNX's own.
    pub domain: String,
    /// Operator.
    pub op_type: String,
    /// Operator set version that the operator's definition dates from.
    pub since_version: i32,
    /// Inputs, then what bodies read of the values around them; `None` for one that is left out.
    pub inputs: Vec<Option<ValueIndex>>,
    /// Outputs; `None` for one that is left out.
    pub outputs: Vec<Option<ValueIndex>>,
    /// Attributes that are set.
    pub attributes: HashMap<String, Attribute>,
    /// Provider that has the node already; empty if none has.
    pub owner: String,
}

/// An attribute of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Attribute {
    /// An integer.
    Int(i64),
    /// Integers.
    Ints(Vec<i64>),
    /// A number.
    Float(f32),
    /// Numbers.
    Floats(Vec<f32>),
    /// A text.
    String(String),
    /// A body.
    Graph,
    /// An attribute of a kind that no operator here reads.
    Other,
}

impl Model {
    /// True if every index is one of a value, and no extent is negative: what was read from a file may hold any.
    pub fn is_whole(&self) -> bool {
        let nodes = self.nodes.iter().flat_map(|node| node.inputs.iter().chain(&node.outputs).flatten());
        let extents = self.values.iter().flat_map(|value| value.shape.iter().flatten());
        nodes.chain(&self.inputs).chain(&self.outputs).all(|value| *value < self.values.len())
            && extents.into_iter().all(|extent| !matches!(extent, Extent::Known(..0)))
    }

    /// True if an extent of a value that is no constant is free.
    pub fn is_symbolic(&self) -> bool {
        let values = self.values.iter().filter(|value| value.constant.is_none());
        values.flat_map(|value| value.shape.iter().flatten()).any(|extent| !extent.is_known())
    }

    /// The extents of `inputs` for so large a batch, if no more than that is free: one symbol, always a first extent.
    pub fn dims_of_batch(&self, inputs: &[ValueIndex], batch: i64) -> Option<Vec<Vec<i64>>> {
        let inputs = || inputs.iter().map(|value| &self.values[*value]);
        let free = inputs().filter(|value| value.constant.is_none());
        let symbol = free.flat_map(|value| value.shape.iter().flatten()).find(|extent| !extent.is_known());
        let dims = |value: &Value| {
            let extent = |(axis, extent): (usize, &Extent)| match extent {
                Extent::Known(extent) => Some(*extent),
                Extent::Symbol(_) => (axis == 0 && Some(extent) == symbol).then_some(batch),
            };
            value.known_dims().or_else(|| value.shape.as_ref()?.iter().enumerate().map(extent).collect())
        };
        inputs().map(dims).collect()
    }
}

impl Extent {
    fn is_known(&self) -> bool {
        matches!(self, Extent::Known(_))
    }
}

impl Value {
    /// True if every extent is known.
    pub fn is_known(&self) -> bool {
        self.constant.is_some() || self.shape.as_ref().is_some_and(|shape| shape.iter().all(Extent::is_known))
    }

    /// The extents, if every one is known.
    pub fn known_dims(&self) -> Option<Vec<i64>> {
        if let Some(constant) = &self.constant {
            return Some(constant.dims.clone());
        }
        self.shape
            .as_ref()?
            .iter()
            .map(|extent| match extent {
                Extent::Known(extent) => Some(*extent),
                Extent::Symbol(_) => None,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_for_a_batch() {
        let known = Extent::Known;
        let symbol = |name: &str| Extent::Symbol(name.to_string());
        let model = |shapes: &[Option<Vec<Extent>>]| Model {
            values: shapes
                .iter()
                .map(|shape| Value {
                    name: String::new(),
                    element: None,
                    shape: shape.clone(),
                    constant: None,
                    is_output: false,
                })
                .collect(),
            inputs: (0..shapes.len()).collect(),
            ..Model::default()
        };
        let image = Some(vec![symbol("n"), known(3), known(8)]);
        for (other, expected) in [
            (Some(vec![symbol("n"), known(2)]), Some(vec![vec![5, 3, 8], vec![5, 2]])),
            (Some(vec![known(7)]), Some(vec![vec![5, 3, 8], vec![7]])),
            (Some(vec![symbol("m"), known(2)]), None),
            (Some(vec![symbol("n"), symbol("n")]), None),
            (Some(vec![known(2), symbol("n")]), None),
            (None, None),
        ] {
            let model = model(&[image.clone(), other.clone()]);
            assert_eq!(model.dims_of_batch(&model.inputs, 5), expected, "{other:?}");
        }
    }
}
