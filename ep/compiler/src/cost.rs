//! The cost rule: partitions that would make a session slower stay with other providers.
//!
//! On the CPU a partition has to compute something worth its boundary. On a GPU the values exchanged with nodes of
//! other providers are copied, and the host waits: its arithmetic has to take the CPU longer than that.

use std::collections::{HashMap, HashSet};

use hipdnn_schemas::Operation;

use crate::import::{self, Work};
use crate::ir::{Function, ValueId, element_bytes};
use crate::model::{Model, Target, ValueIndex};

/// Operations a second of the CPU that the nodes would run on otherwise. With the two below an assumption about common machines,
/// not a measurement of this one.
const CPU_OPERATIONS: f64 = 50e9;

/// Bytes a second of copies between host and GPU.
const COPY_BYTES: f64 = 12e9;

/// Seconds that a copy takes whatever its size, the host's waiting included.
const COPY_SECONDS: f64 = 15e-6;

/// Data exchanged between a partition and nodes of other providers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Tensors.
    pub copies: u32,
    /// Bytes of them.
    pub bytes: f64,
}

impl Traffic {
    /// Of some nodes, with the extents of the values that they share with others.
    pub fn of(model: &Model, nodes: &[usize], extents: &HashMap<ValueIndex, Vec<i64>>) -> Traffic {
        let members: HashSet<usize> = nodes.iter().copied().collect();
        let others = model.nodes.iter().enumerate().filter(|(index, _)| !members.contains(index));
        let (mut written, mut read) = (HashSet::<ValueIndex>::new(), HashSet::<ValueIndex>::new());
        for (_, node) in others {
            written.extend(node.outputs.iter().flatten());
            read.extend(node.inputs.iter().flatten());
        }
        let mine = || nodes.iter().map(|node| &model.nodes[*node]);
        let entering = mine().flat_map(|node| node.inputs.iter().flatten()).filter(|value| written.contains(value));
        let leaving = mine().flat_map(|node| node.outputs.iter().flatten()).filter(|value| read.contains(value));
        let exchanged: HashSet<ValueIndex> = entering.chain(leaving).copied().collect();
        let mut traffic = Traffic::default();
        for value in exchanged {
            let element = model.values[value].element.and_then(|element| import::data_type(element).ok());
            let elements = extents.get(&value).map_or(0.0, |dims| dims.iter().map(|extent| *extent as f64).product());
            traffic.copies += 1;
            traffic.bytes += elements * element.map_or(0.0, |element| element_bytes(element) as f64);
        }
        traffic
    }

    /// Seconds that it takes.
    fn seconds(&self) -> f64 {
        f64::from(self.copies) * COPY_SECONDS + self.bytes / COPY_BYTES
    }
}

/// Arithmetic operations of a function: two for each product that is summed, one for each element otherwise.
pub fn operations(function: &Function) -> f64 {
    let elements = |uid| function.value(ValueId::of(uid)).dims.iter().map(|extent| *extent as f64).product::<f64>();
    let dims = |uid| &function.value(ValueId::of(uid)).dims;
    let of = |operation: &Operation| match operation {
        // Each output, or each input of a gradient, meets one filter.
        Operation::ConvolutionFwd(conv) => 2.0 * elements(conv.y) * elements(conv.w) / dims(conv.w)[0].max(1) as f64,
        Operation::ConvolutionBwd(conv) => 2.0 * elements(conv.dy) * elements(conv.w) / dims(conv.w)[0].max(1) as f64,
        Operation::Matmul(product) => 2.0 * elements(product.c) * *dims(product.a).last().unwrap_or(&1) as f64,
        other => other.inputs().into_iter().chain(other.outputs()).map(elements).fold(0.0, f64::max),
    };
    function.ops.iter().map(|op| of(&op.operation)).sum()
}

/// Checks that a partition pays.
///
/// # Errors
/// The reason why it does not.
pub fn pays(model: &Model, nodes: &[usize], function: &Function, traffic: Traffic) -> Result<(), String> {
    let rows = nodes.iter().filter_map(|node| import::operator(&model.nodes[*node]));
    match (model.target, rows.map(|operator| operator.work).max()) {
        (_, None | Some(Work::None)) => {
            Err("nothing is computed between nodes of other providers: data would only be moved".to_string())
        }
        (Target::Cpu, Some(Work::Light)) => {
            Err("by the cost rule: a partition of element-wise operators is not faster here".to_string())
        }
        (Target::Cpu, Some(Work::Heavy)) => Ok(()),
        // With its inputs and outputs on the device it costs no copies.
        (Target::Gpu, _) if traffic.copies == 0 => Ok(()),
        (Target::Gpu, _) => {
            let (operations, copies) = (operations(function), traffic.copies);
            if operations / CPU_OPERATIONS > traffic.seconds() {
                return Ok(());
            }
            let (millions, kilobytes) = (operations / 1e6, traffic.bytes / 1e3);
            Err(format!(
                "by the cost rule: {millions:.3} million operations are not worth {copies} copies of {kilobytes:.1} kB from and to \
                 other providers"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Node, Value};
    use hipdnn_sdk_bindings::ort::ElementType;

    /// Three nodes in a row of that operator, over values of 1,000 floats.
    fn chain(op_type: &str, target: Target) -> Model {
        let value = |index: usize| Value {
            name: format!("v{index}"),
            element: Some(ElementType::FLOAT),
            shape: None,
            constant: None,
            is_output: index == 3,
        };
        let node = |index: usize| Node {
            op_type: op_type.to_string(),
            inputs: vec![Some(index)],
            outputs: vec![Some(index + 1)],
            ..Node::default()
        };
        Model { values: (0..4).map(value).collect(), nodes: (0..3).map(node).collect(), target, ..Model::default() }
    }

    #[test]
    fn what_others_read_and_write_is_traffic() {
        let model = chain("Relu", Target::Gpu);
        let extents = (0..4).map(|value| (value, vec![10, 100])).collect();
        for (nodes, copies) in [(vec![0, 1, 2], 0), (vec![1], 2), (vec![0, 1], 1), (vec![2], 1)] {
            let want = Traffic { copies, bytes: f64::from(copies) * 4000.0 };
            assert_eq!(Traffic::of(&model, &nodes, &extents), want, "{nodes:?}");
        }
    }

    #[test]
    fn a_partition_has_to_be_worth_its_copies() {
        let (empty, none) = (Function::default(), Traffic::default());
        let some = Traffic { copies: 2, bytes: 8000.0 };
        for (op_type, target, traffic, pays_off) in [
            ("Conv", Target::Cpu, some, true),
            ("Relu", Target::Cpu, none, false),
            ("Reshape", Target::Cpu, none, false),
            ("Relu", Target::Gpu, none, true),
            ("Reshape", Target::Gpu, none, false),
            ("Conv", Target::Gpu, some, false),
        ] {
            let got = pays(&chain(op_type, target), &[1], &empty, traffic);
            assert_eq!(got.is_ok(), pays_off, "{op_type} {target:?}: {got:?}");
        }
    }
}
