//! Tests of single nodes: kernels over groups against the CPU engine.

use hipdnn_engine_cpu::nodes::testing::{Bench, unit};
use hipdnn_schemas::{DataType, Graph, GraphBuilder, Operation, TensorDef, TensorValue};

use super::interpret::{Tensors, interpret};
use super::split_reduction::{Limits, split_by};
use crate::fuse::Chain;
use crate::ir::group::GroupWork;
use crate::lower::{Work, lower};

/// Graph of that node alone.
pub(super) fn graph(operation: &Operation, tensors: &[TensorDef], compute: DataType) -> Graph {
    let mut builder = GraphBuilder::new("").compute(compute);
    let mut used = operation.inputs();
    used.extend(operation.outputs());
    for tensor in tensors.iter().filter(|tensor| used.contains(&tensor.uid)) {
        builder.tensor(tensor.clone());
    }
    builder.node("", operation.clone());
    builder.build().unwrap()
}

/// Work that a node is lowered to.
pub(super) fn work(operation: &Operation, tensors: &[TensorDef]) -> GroupWork {
    match lower(&graph(operation, tensors, DataType::Float)).unwrap_or_else(|reason| panic!("{reason}")).remove(0) {
        Work::Groups(work) => work,
        other => panic!("{other:?}"),
    }
}

/// Reason for which a node is declined.
pub(super) fn declined(operation: &Operation, tensors: &[TensorDef], compute: DataType) -> String {
    lower(&graph(operation, tensors, compute)).expect_err("the node is taken").to_string()
}

/// Computes a node with this engine and with the CPU engine, from the same inputs: every element of every result has to
/// be the same, up to the rounding to its type. Kernels are also split wherever they can be, which changes nothing.
pub(super) fn compare(what: &str, operation: Operation, tensors: Vec<TensorDef>, fill: impl Fn(i64, usize) -> f64) {
    let graph = graph(&operation, &tensors, DataType::Float);
    let mut bench = Bench::new(operation.clone(), tensors);
    let mut inputs = Tensors::new();
    for uid in operation.inputs() {
        let values = match graph.tensor(uid).value() {
            Some(TensorValue::Float32(value)) => vec![f64::from(value)],
            Some(TensorValue::Float64(value)) => vec![value],
            Some(other) => panic!("the tests have no {other:?}"),
            None => bench.fill(uid.0, |i| fill(uid.0, i)),
        };
        inputs.insert(uid.0, values);
    }
    let want = bench.run(2);
    assert!(!want.is_empty(), "{what}");
    let check = |got: &Tensors, how: &str| {
        for (uid, want) in &want {
            let data_type = graph.tensor(hipdnn_schemas::TensorUid(*uid)).data_type();
            let (relative, smallest) = match data_type {
                DataType::Double => (2f64.powi(-40), 0.0),
                DataType::Int32 | DataType::Int64 | DataType::Int8 | DataType::UInt8 => (0.0, 0.5),
                other => unit(other),
            };
            assert_eq!(got[uid].len(), want.len(), "{what}, {how}, tensor {uid}");
            for (i, (got, want)) in got[uid].iter().zip(want).enumerate() {
                let got = saturated(*got, data_type);
                let bound = want.abs() * relative * 1.01 + smallest + 1e-9;
                let near = (got - want).abs() <= bound || got == *want || (got.is_nan() && want.is_nan());
                assert!(near, "{what}, {how}, tensor {uid}, element {i}: {got} for {want} ± {bound}");
            }
        }
    };
    match lower(&graph).unwrap_or_else(|reason| panic!("{what}: {reason}")).remove(0) {
        Work::Groups(work) => {
            let mut tensors = inputs.clone();
            interpret(&graph, &work, &mut tensors, |value| value);
            check(&tensors, "whole");
            for limits in
                [Limits { groups: usize::MAX, members: 1, part: 1 }, Limits { groups: 40, members: 2, part: 3 }]
            {
                let mut tensors = inputs.clone();
                interpret(&graph, &split_by(work.clone(), limits), &mut tensors, |value| value);
                check(&tensors, &format!("in parts by {limits:?}"));
            }
        }
        Work::Pointwise(formula) => {
            let (node, kernels) = (formula.node, vec![Chain::new(formula).kernel(&graph)]);
            let mut tensors = inputs.clone();
            let work = GroupWork { node, name: "", locals: Vec::new(), kernels, sums: DataType::Float };
            interpret(&graph, &work, &mut tensors, |value| value);
            check(&tensors, "element by element");
        }
        Work::Convolution(_) | Work::Opaque(_) => panic!("{what} is no convolution"),
    }
}

/// Value saturated to an integer's range.
fn saturated(value: f64, data_type: DataType) -> f64 {
    let (least, most) = match data_type {
        DataType::Int8 => (-128.0, 127.0),
        DataType::UInt8 => (0.0, 255.0),
        DataType::Int32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
        _ => return value,
    };
    value.clamp(least, most)
}
