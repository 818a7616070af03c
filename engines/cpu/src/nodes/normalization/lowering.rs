//! Lowering: from a node's normalization to a [`Normalization`] of tensors in memory.

use std::sync::Arc;

use hipdnn_engine_core::ops::normalization as node;
use hipdnn_schemas::{DataType, Graph, TensorUid};

use super::{Normalization, SLOTS, Scalar, Source, View};
use crate::nodes::LibraryOp;
use crate::work::Work;
use hipdnn_cpu_pointwise::Storage;

/// Lowers a node's normalization to a work.
pub fn lower(graph: &Graph, node: node::Normalization) -> Work {
    let storage = |uid: TensorUid| {
        Storage::of(graph.tensor(uid).data_type()).expect("the types of the tables of normalizations have a storage")
    };
    let mut views = [const { None }; SLOTS];
    let (mut sources, mut results) = (Vec::new(), Vec::new());
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for operand in &node.operands {
        let mut strides = vec![0; node.dims.len()];
        for (axis, stride) in operand.axes.iter().zip(graph.tensor(operand.tensor).strides()) {
            if let Some(axis) = axis {
                strides[*axis] = *stride;
            }
        }
        views[operand.slot as usize] = Some(View { storage: storage(operand.tensor), strides });
        if operand.is_written {
            results.push(operand.slot);
            outputs.push(Some(operand.tensor));
        } else {
            sources.push(Source::Operand(operand.slot));
            inputs.push(Some(operand.tensor));
        }
    }
    let mut scalar = |scalar: node::Scalar, source: Source| match scalar {
        node::Scalar::Fixed(value) => Scalar::Fixed(value),
        node::Scalar::Tensor(uid) => {
            sources.push(source);
            inputs.push(Some(uid));
            Scalar::Read(storage(uid))
        }
    };
    let (epsilon, momentum) = (scalar(node.epsilon, Source::Epsilon), scalar(node.momentum, Source::Momentum));
    let recipe = Normalization {
        task: node.task,
        dims: node.dims,
        reduced: node.reduced,
        affine: node.affine,
        centered: node.centered,
        given: node.given,
        double: node.compute == DataType::Double,
        views,
        sources,
        results,
        epsilon,
        momentum,
    };
    Work::Node(LibraryOp { name: node.name, inputs, outputs, recipe: Arc::new(recipe) })
}
