//! From what a node asks for to a [`Normalization`].

use std::sync::Arc;

use hipdnn_schemas::{Graph, TensorUid};

use super::{Normalization, SLOTS, Scalar, Source, View};
use crate::engine::host::applicability::Work;
use crate::engine::host::nodes::NodeWork;
use crate::engine::host::pointwise::Storage;
use crate::engine::nodes::normalization as node;

/// The work that computes a node.
pub fn lower(graph: &Graph, node: node::Normalization) -> Work {
    let storage = |uid: TensorUid| {
        Storage::of(graph.tensor(uid).data_type()).expect("the types of the tables of normalisations have a storage")
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
        centred: node.centred,
        given: node.given,
        views,
        sources,
        results,
        epsilon,
        momentum,
    };
    Work::Node(NodeWork { name: node.name, inputs, outputs, recipe: Arc::new(recipe) })
}
