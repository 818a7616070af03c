//! Validation: from a description to a checked graph.
//!
//! Time and memory are linear in the description: ranks are bounded, so every check of a tensor or node is constant,
//! and tensors are found by number or by hash.

mod operation;
mod tensor;

use std::sync::Arc;

use smallvec::SmallVec;

use crate::graph::{Edges, Index, Shared};
use crate::{DataType, Graph, GraphDef, GraphError, Tensor, TensorDef};

pub(crate) fn check(mut def: GraphDef) -> Result<Graph, GraphError> {
    let mut tensors = Vec::with_capacity(def.tensors.len());
    let index = Index::new(&def.tensors)
        .map_err(|uid| GraphError::Tensor { uid: uid.0, reason: "its uid is taken by another tensor".into() })?;
    let (intermediate, io) = (def.intermediate_data_type, def.io_data_type);
    for mut tensor in std::mem::take(&mut def.tensors) {
        if tensor.data_type == DataType::Unset {
            tensor.data_type = if tensor.is_virtual { intermediate } else { io };
        }
        tensors.push(checked(tensor)?);
    }
    for tensor in &tensors {
        let offset = tensor.ragged().map(|ragged| ragged.offset);
        if let Some(offset) = offset.filter(|offset| index.get(*offset).is_none()) {
            let reason = format!("its row offsets are tensor {offset}, which the graph does not have");
            return Err(GraphError::Tensor { uid: tensor.uid().0, reason });
        }
    }
    if def.nodes.is_empty() {
        return Err(GraphError::NoNodes);
    }

    for (i, node) in def.nodes.iter_mut().enumerate() {
        if node.compute_data_type == DataType::Unset {
            node.compute_data_type = def.compute_data_type;
        }
        if node.compute_data_type == DataType::Unset {
            let reason = "neither the node nor the graph has a compute type".to_string();
            return Err(GraphError::Node { index: i, kind: node.operation.kind(), reason });
        }
    }
    let edges = edges(&def, &tensors, &index)?;
    let graph = Graph { tensors, shared: Arc::new(Shared { def, index, edges }) };
    (0..graph.nodes().len()).try_for_each(|node| check_node(&graph, node))?;
    Ok(graph)
}

impl Graph {
    /// Checks what changes of strides or types in the descriptions of the intermediates at these positions could have made
    /// wrong: these tensors, and the nodes that write or read them.
    pub(crate) fn recheck(&mut self, changed: &[usize]) -> Result<(), GraphError> {
        let Edges { producers, consumers } = &self.shared.edges;
        for position in changed {
            let tensor = &mut self.tensors[*position];
            *tensor = checked(tensor.def.clone())?;
            if producers[*position].is_some() {
                check_written(tensor)?;
            }
        }
        let of = |position: &usize| consumers[*position].iter().copied().chain(producers[*position]);
        let mut nodes: Vec<usize> = changed.iter().flat_map(of).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.into_iter().try_for_each(|node| check_node(self, node))
    }
}

fn checked(tensor: TensorDef) -> Result<Tensor, GraphError> {
    let uid = tensor.uid.0;
    tensor::check(tensor).map_err(|reason| GraphError::Tensor { uid, reason })
}

fn check_written(tensor: &Tensor) -> Result<(), GraphError> {
    tensor::check_written(tensor).map_err(|reason| GraphError::Tensor { uid: tensor.uid().0, reason })
}

fn check_node(graph: &Graph, index: usize) -> Result<(), GraphError> {
    let operation = &graph.nodes()[index].operation;
    let wrong = |reason| GraphError::Node { index, kind: operation.kind(), reason };
    operation::check(graph, operation).map_err(wrong)
}

/// Producer and consumers of each tensor. Producers stand before consumers, so there is no cycle.
fn edges(def: &GraphDef, tensors: &[Tensor], index: &Index) -> Result<Edges, GraphError> {
    let mut producers = vec![None; tensors.len()];
    let mut consumers: Vec<SmallVec<[usize; 2]>> = vec![SmallVec::new(); tensors.len()];
    let wrong = |i: usize, reason| Err(GraphError::Node { index: i, kind: def.nodes[i].operation.kind(), reason });
    for (i, node) in def.nodes.iter().enumerate() {
        let outputs = node.operation.outputs();
        if outputs.is_empty() {
            return wrong(i, "it writes no tensor".into());
        }
        for uid in outputs {
            let Some(t) = index.get(uid) else {
                return wrong(i, format!("it writes tensor {uid}, which the graph does not have"));
            };
            if let Some(first) = producers[t].replace(i) {
                return wrong(i, format!("it writes tensor {uid}, which node {first} writes too"));
            }
            check_written(&tensors[t])?;
        }
    }
    for (i, node) in def.nodes.iter().enumerate() {
        for uid in node.operation.inputs() {
            let Some(t) = index.get(uid) else {
                return wrong(i, format!("it reads tensor {uid}, which the graph does not have"));
            };
            match producers[t] {
                Some(producer) if producer >= i => {
                    return wrong(i, format!("it reads tensor {uid}, which only node {producer} writes"));
                }
                None if tensors[t].is_virtual() && tensors[t].value().is_none() => {
                    return wrong(i, format!("it reads tensor {uid}, which is virtual, but which no node writes"));
                }
                _ => {}
            }
            if consumers[t].last() != Some(&i) {
                consumers[t].push(i);
            }
        }
    }
    Ok(Edges { producers, consumers })
}
