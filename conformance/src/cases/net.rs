//! Builder of graphs.

use std::collections::HashMap;

use hipdnn_schemas::{DataType, GraphDef, Node, Operation, TensorDef, TensorUid, TensorValue};

use super::Layout;
use crate::inputs::Fill;

/// A graph under construction.
#[derive(Clone, Debug)]
pub struct Net {
    /// The graph so far.
    pub def: GraphDef,
    /// Distributions of inputs other than those that suit their readers.
    pub fills: HashMap<TensorUid, Fill>,
    /// The type that nodes compute in.
    pub compute: DataType,
}

impl Net {
    /// An empty graph whose nodes compute in that type.
    pub fn new(compute: DataType) -> Net {
        let def = GraphDef {
            compute_data_type: compute,
            intermediate_data_type: DataType::Float,
            io_data_type: DataType::Float,
            ..GraphDef::default()
        };
        Net { def, fills: HashMap::new(), compute }
    }

    fn add(&mut self, name: &str, data_type: DataType, dims: &[i64], strides: &[i64]) -> &mut TensorDef {
        // Uids need not be small, nor in order.
        let uid = 3 + 7 * self.def.tensors.len() as i64;
        self.def.tensors.push(TensorDef::new(uid, data_type, dims).strided(strides).named(name));
        self.def.tensors.last_mut().expect("just added")
    }

    /// A tensor with memory of the caller behind it.
    pub fn real(&mut self, name: &str, data_type: DataType, dims: &[i64], layout: Layout) -> TensorUid {
        self.add(name, data_type, dims, &layout.strides(dims)).uid
    }

    /// An intermediate.
    pub fn intermediate(&mut self, name: &str, data_type: DataType, dims: &[i64], layout: Layout) -> TensorUid {
        let tensor = self.add(name, data_type, dims, &layout.strides(dims));
        tensor.is_virtual = true;
        tensor.uid
    }

    /// A scalar fixed in the graph.
    pub fn scalar(&mut self, name: &str, data_type: DataType, value: f32) -> TensorUid {
        let tensor = self.add(name, data_type, &[1], &[1]);
        tensor.value = Some(match data_type {
            DataType::Half => TensorValue::Float16(value),
            DataType::BFloat16 => TensorValue::BFloat16(value),
            DataType::Double => TensorValue::Float64(value.into()),
            DataType::Int32 => TensorValue::Int32(value as i32),
            DataType::Int64 => TensorValue::Int64(value as i64),
            DataType::Boolean => TensorValue::Bool(value != 0.0),
            _ => TensorValue::Float32(value),
        });
        tensor.uid
    }

    /// A scalar that the host gives when the graph is executed.
    pub fn runtime_scalar(&mut self, name: &str, data_type: DataType) -> TensorUid {
        let tensor = self.add(name, data_type, &[1], &[1]);
        tensor.is_runtime_pass_by_value = true;
        tensor.uid
    }

    /// Fills an input with something else than its readers ask for.
    pub fn fill(&mut self, uid: TensorUid, fill: Fill) {
        self.fills.insert(uid, fill);
    }

    /// Adds a node.
    pub fn node(&mut self, operation: Operation) {
        self.node_in(self.compute, operation);
    }

    /// Adds a node that computes in that type.
    pub fn node_in(&mut self, compute: DataType, operation: Operation) {
        self.def.nodes.push(Node { name: String::new(), compute_data_type: compute, operation });
    }

    /// A tensor of the graph.
    ///
    /// # Panics
    /// If there is none of that uid.
    pub fn tensor(&mut self, uid: TensorUid) -> &mut TensorDef {
        self.def.tensors.iter_mut().find(|tensor| tensor.uid == uid).expect("a tensor of this graph")
    }
}
