//! Validation: from a description to a checked graph.
//!
//! Time and memory are linear in the description: ranks are bounded, so every check of a tensor or node is constant,
//! and tensors are found by hash.

mod operation;
mod tensor;

use std::collections::HashMap;

use crate::{DataType, Graph, GraphDef, GraphError, Tensor, TensorUid};

pub(crate) fn check(mut def: GraphDef) -> Result<Graph, GraphError> {
    let mut tensors = Vec::with_capacity(def.tensors.len());
    let mut index = HashMap::with_capacity(def.tensors.len());
    let (intermediate, io) = (def.intermediate_data_type, def.io_data_type);
    for (i, tensor) in def.tensors.iter_mut().enumerate() {
        if index.insert(tensor.uid, i).is_some() {
            return Err(GraphError::Tensor { uid: tensor.uid.0, reason: "its uid is taken by another tensor".into() });
        }
        if tensor.data_type == DataType::Unset {
            tensor.data_type = if tensor.is_virtual { intermediate } else { io };
        }
        tensors.push(tensor::check(tensor).map_err(|reason| GraphError::Tensor { uid: tensor.uid.0, reason })?);
    }
    for tensor in &tensors {
        let offset = tensor.ragged().map(|ragged| ragged.offset);
        if let Some(offset) = offset.filter(|offset| !index.contains_key(offset)) {
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
    let (producers, consumers) = edges(&def, &tensors, &index)?;
    let graph = Graph { def, tensors, index, producers, consumers };
    for (i, node) in graph.nodes().iter().enumerate() {
        operation::check(&graph, &node.operation).map_err(|reason| GraphError::Node {
            index: i,
            kind: node.operation.kind(),
            reason,
        })?;
    }
    Ok(graph)
}

type Edges = (Vec<Option<usize>>, Vec<Vec<usize>>);

/// Producer and consumers of each tensor. Producers stand before consumers, so there is no cycle.
fn edges(def: &GraphDef, tensors: &[Tensor], index: &HashMap<TensorUid, usize>) -> Result<Edges, GraphError> {
    let mut producers = vec![None; tensors.len()];
    let mut consumers = vec![Vec::new(); tensors.len()];
    let wrong = |i: usize, reason| Err(GraphError::Node { index: i, kind: def.nodes[i].operation.kind(), reason });
    for (i, node) in def.nodes.iter().enumerate() {
        let outputs = node.operation.outputs();
        if outputs.is_empty() {
            return wrong(i, "it writes no tensor".into());
        }
        for uid in outputs {
            let Some(&t) = index.get(&uid) else {
                return wrong(i, format!("it writes tensor {uid}, which the graph does not have"));
            };
            if let Some(first) = producers[t].replace(i) {
                return wrong(i, format!("it writes tensor {uid}, which node {first} writes too"));
            }
            tensor::check_written(&tensors[t]).map_err(|reason| GraphError::Tensor { uid: uid.0, reason })?;
        }
    }
    for (i, node) in def.nodes.iter().enumerate() {
        for uid in node.operation.inputs() {
            let Some(&t) = index.get(&uid) else {
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
    Ok((producers, consumers))
}
