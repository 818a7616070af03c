//! Tests of single nodes: kernels over groups against the CPU engine.

pub(super) use hipdnn_engine_cpu::nodes::testing::graph;
use hipdnn_engine_cpu::nodes::testing::{Bench, unit};
use hipdnn_schemas::{DataType, Graph, Operation, TensorDef, TensorValue};

use super::interpret::{Tensors, interpret};
use super::shifted::shift;
use super::split_reduction::{Limits, split_by};
use crate::fuse::Chain;
use crate::ir::group::{GroupKernel, GroupWork, Pass};
use crate::lower::{Work, lower};

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

/// Computes a node with this engine and with the CPU engine in double precision, from the same inputs: every element of
/// every result has to be the same, up to the rounding to its type. Kernels are also split wherever they can be, which
/// changes nothing.
pub(super) fn compare(what: &str, operation: Operation, tensors: Vec<TensorDef>, fill: impl Fn(i64, usize) -> f64) {
    let (graph, bench, inputs) = alone(operation, tensors, DataType::Double, fill);
    compare_results(what, &graph, &inputs, &bench.run(2));
}

/// Computes a node with both engines and by its definition, in the elements of the inputs by uid, and compares: kernels
/// as [`compare`] does, and the CPU engine, whose values may be `f32`.
pub(super) fn compare_with_definition(
    what: &str,
    operation: Operation,
    tensors: Vec<TensorDef>,
    fill: impl Fn(i64, usize) -> f64,
    definition: impl Fn(&Tensors) -> Tensors,
) {
    let (graph, bench, inputs) = alone(operation, tensors, DataType::Float, fill);
    let want = definition(&inputs);
    compare_results(what, &graph, &inputs, &want);
    let got = bench.run(2);
    assert!(got.keys().eq(want.keys()), "{what}: {:?} for {:?}", got.keys(), want.keys());
    for (uid, want) in &want {
        let (relative, smallest) = unit(graph.tensor(hipdnn_schemas::TensorUid(*uid)).data_type());
        assert_eq!(got[uid].len(), want.len(), "{what}, CPU engine, tensor {uid}");
        for (i, (got, want)) in got[uid].iter().zip(want).enumerate() {
            // Some roundings to f32 of values around 1, and the last one to the tensor's type.
            let bound = want.abs() * relative * 1.01 + smallest + 16.0 * f64::from(f32::EPSILON) * want.abs().max(1.0);
            let near = (got - want).abs() <= bound || got == want || (got.is_nan() && want.is_nan());
            assert!(near, "{what}, CPU engine, tensor {uid}, element {i}: {got} for {want} ± {bound}");
        }
    }
}

/// Graph of a node alone, the node on the CPU engine with a compute type of its own, and the elements of its inputs as
/// they are stored.
fn alone(
    operation: Operation,
    tensors: Vec<TensorDef>,
    cpu: DataType,
    fill: impl Fn(i64, usize) -> f64,
) -> (Graph, Bench, Tensors) {
    let mut bench = Bench::of_graph(graph(&operation, &tensors, cpu));
    let graph = graph(&operation, &tensors, DataType::Float);
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
    (graph, bench, inputs)
}

/// Compares what a node's kernels compute, whole and in parts, with its results.
fn compare_results(what: &str, graph: &Graph, inputs: &Tensors, want: &Tensors) {
    assert!(!want.is_empty(), "{what}");
    let check = |got: &Tensors, how: &str| {
        for (uid, want) in want {
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
    match lower(graph).unwrap_or_else(|reason| panic!("{what}: {reason}")).remove(0) {
        Work::Groups(work) => {
            let mut tensors = inputs.clone();
            interpret(graph, &work, &mut tensors, |value| value);
            check(&tensors, "whole");
            let mut shifted = work.clone();
            for kernel in &mut shifted.kernels {
                let reductions = |kernel: &GroupKernel| {
                    kernel.passes.iter().filter(|pass| matches!(pass, Pass::Reduce { .. })).count()
                };
                if let Some(one) = shift(kernel) {
                    assert_eq!(reductions(&one) + 1, reductions(kernel), "{what}");
                    *kernel = one;
                }
            }
            let mut tensors = inputs.clone();
            interpret(graph, &shifted, &mut tensors, |value| value);
            check(&tensors, "shifted");
            for (limits, is_shifted) in [
                (Limits { groups: usize::MAX, members: 1, part: 1 }, false),
                (Limits { groups: 40, members: 2, part: 3 }, false),
                (Limits { groups: 40, members: 2, part: 3 }, true),
            ] {
                let mut tensors = inputs.clone();
                interpret(graph, &split_by(work.clone(), limits, is_shifted), &mut tensors, |value| value);
                check(&tensors, &format!("in parts by {limits:?}, shifted: {is_shifted}"));
            }
        }
        Work::Pointwise(formula) => {
            let (node, kernels) = (formula.node, vec![Chain::new(formula).kernel(graph)]);
            let mut tensors = inputs.clone();
            let work = GroupWork { node, name: "", locals: Vec::new(), kernels, partial: DataType::Float };
            interpret(graph, &work, &mut tensors, |value| value);
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
