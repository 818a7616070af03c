//! Rows against the kernel compiler's results in `f64`, and against nodes one by one.

use std::collections::HashMap;
use std::sync::Arc;

use hipdnn_cpu_simd::isa::Isa;
use hipdnn_cpu_simd::scratch::AlignedBuffer;
use hipdnn_cpu_threads::Pool;
use hipdnn_engine_kernel::fuse::{FusionGroup, examples, fuse};
use hipdnn_engine_kernel::lower::lower_node;
use hipdnn_schemas::{
    DataType, Graph, GraphBuilder, Operation, Pointwise, PointwiseMode, Reduction, ReductionMode, TensorDef, TensorUid,
};

use super::{Rows, bind_for};
use crate::applicability;
use crate::nodes::LibraryOp;
use crate::plan::CpuPlan;
use crate::resources;
use crate::schedule::Schedule;
use crate::settings::Settings;
use crate::tests::{Memory, execute, memory, pack, settings};

/// The fusion groups of a graph as the engine's rule has them: few groups of many members are several kernels.
fn fused(graph: &Graph) -> Vec<FusionGroup> {
    let works = (0..graph.nodes().len()).map(|index| lower_node(graph, index).unwrap());
    fuse(graph, works.collect())
}

/// A pointwise node of two operands.
fn binary(mode: PointwiseMode, a: i64, b: i64, y: i64) -> Operation {
    Operation::Pointwise(Pointwise::binary(mode, TensorUid(a), TensorUid(b), TensorUid(y)))
}

/// A reduction.
fn reduce(mode: ReductionMode, x: i64, y: i64) -> Operation {
    Operation::Reduction(Reduction { mode, input: TensorUid(x), output: TensorUid(y), is_deterministic: true })
}

/// A graph from tensor 0 to tensor 1, of these extents. Between them are further ones up to `last`, and 10 and 11 with a
/// value for each row.
fn graph_of_rows(name: &str, dims: [i64; 2], last: i64, nodes: impl IntoIterator<Item = Operation>) -> Graph {
    let mut graph = GraphBuilder::new(name).compute(DataType::Float);
    for uid in 0..=last {
        let tensor = TensorDef::new(uid, DataType::Float, &dims);
        graph.tensor(if uid < 2 { tensor } else { tensor.intermediate() });
    }
    for uid in [10, 11] {
        graph.tensor(TensorDef::new(uid, DataType::Float, &[dims[0], 1]).intermediate());
    }
    for node in nodes {
        graph.node("", node);
    }
    graph.build().unwrap()
}

/// Runs a kernel on a number of threads; returns the elements of its outputs, in their order.
fn run(
    graph: &Graph,
    work: &LibraryOp,
    read: &HashMap<TensorUid, Vec<f64>>,
    threads: usize,
) -> Vec<(TensorUid, Vec<f64>)> {
    let given = |uid: &TensorUid| {
        let mut memory = Memory::new(graph.tensor(*uid));
        let mut values = read.get(uid).into_iter().flatten().copied();
        memory.fill(|| values.next().unwrap_or(f64::NAN));
        memory
    };
    let inputs: Vec<Memory> = work.inputs.iter().flatten().map(given).collect();
    let outputs: Vec<Memory> = work.outputs.iter().flatten().map(given).collect();
    let kernel = work.recipe.kernel(threads);
    let mut scratch = AlignedBuffer::new(kernel.scratch_bytes().div_ceil(4));
    scratch.fill(f32::NAN);
    let from: Vec<*const u8> = inputs.iter().map(|memory| memory.address().cast_const().cast()).collect();
    let to: Vec<*mut u8> = outputs.iter().map(|memory| memory.address().cast()).collect();
    // SAFETY: every tensor's memory has its span, and the scratch memory, which begins on a line, what the kernel asks for.
    unsafe { kernel.run(&Pool::new(threads), &from, &to, scratch.as_mut_ptr().cast()) };
    work.outputs.iter().flatten().zip(outputs).map(|(uid, memory)| (*uid, memory.values())).collect()
}

#[test]
fn rows_compute_what_the_kernel_compiler_says() {
    let mut bound = 0;
    for example in examples() {
        let graph = &example.graph;
        let fusion_groups = fused(graph);
        let [FusionGroup::Groups(groups)] = &fusion_groups[..] else { continue };
        let [kernel] = &groups.work.kernels[..] else { continue };
        let mut read = example.read.clone();
        read.extend(
            graph.tensors().iter().filter(|t| t.value().is_some()).map(|t| (t.uid(), vec![f64::from(1e-3f32)])),
        );
        for isa in Isa::of_vectors() {
            let work = match bind_for(isa, 1, graph, kernel) {
                Ok(work) => work,
                Err(reason) => {
                    assert!(reason.contains("windows") || reason.contains("indices"), "{}: {reason}", example.what);
                    continue;
                }
            };
            bound += 1;
            let alone = run(graph, &work, &read, 1);
            for (uid, got) in &alone {
                for (got, want) in got.iter().zip(&example.written[uid]) {
                    let near = (got - want).abs() <= 2e-5 * want.abs().max(1.0);
                    assert!(near, "{}, {isa}, tensor {uid}: expected {want}, got {got}", example.what);
                }
            }
            for threads in 2..=3 {
                let bits = |results: &[(TensorUid, Vec<f64>)]| -> Vec<u64> {
                    results.iter().flat_map(|(_, values)| values.iter().map(|value| value.to_bits())).collect()
                };
                let shared = run(graph, &work, &read, threads);
                assert_eq!(bits(&shared), bits(&alone), "{}, {isa}, {threads} threads", example.what);
            }
        }
    }
    assert!(bound >= 20, "{bound} are too few to say anything");
}

/// Random graph of reductions and functions over images with rows that are long enough.
fn random_graph(random: &mut fastrand::Rng) -> Graph {
    let whole = [[2, 5, 49], [3, 21, 130], [2, 3, 600], [4, 37, 18]][random.usize(..4)];
    let shapes: [[i64; 3]; 4] = [whole, [whole[0], whole[1], 1], [whole[0], 1, whole[2]], [1, whole[1], 1]];
    let mut graph = GraphBuilder::new("random").compute(DataType::Float);
    let mut tensors: Vec<[i64; 3]> = Vec::new();
    let types = [DataType::Float, DataType::Float, DataType::Half, DataType::BFloat16];
    let define = |graph: &mut GraphBuilder, random: &mut fastrand::Rng, uid: i64, dims: [i64; 3], is_virtual: bool| {
        let data_type = if uid == 0 { DataType::Float } else { types[random.usize(..4)] };
        let mut tensor = TensorDef::new(uid, data_type, &dims);
        match random.usize(..5) {
            0 => tensor = tensor.strided(&[dims[1] * dims[2], 1, dims[1]]),
            1 => tensor = tensor.strided(&[(dims[1] + 1) * (dims[2] + 3), dims[2] + 3, 1]),
            _ => {}
        }
        graph.tensor(if is_virtual { tensor.intermediate() } else { tensor });
    };
    for uid in 0..3 {
        let dims = if uid == 0 { whole } else { shapes[random.usize(..4)] };
        define(&mut graph, random, uid, dims, false);
        tensors.push(dims);
    }
    let nodes = 2 + random.usize(..8);
    for node in 0..nodes {
        let uid = tensors.len() as i64;
        let pick = |random: &mut fastrand::Rng| match random.usize(..3) {
            0 => random.usize(..tensors.len()),
            _ => tensors.len() - 1 - random.usize(..tensors.len().min(3)),
        };
        let (a, b) = (pick(random), pick(random));
        let [of_a, of_b, to] = [a as i64, b as i64, uid].map(TensorUid);
        let (dims, operation) = match random.usize(..5) {
            0 | 1 => {
                let dims = match random.usize(..3) {
                    0 => [tensors[a][0], 1, tensors[a][2]],
                    1 => [tensors[a][0], tensors[a][1], 1],
                    _ => [1, tensors[a][1], 1],
                };
                use ReductionMode::*;
                let mode = [Add, Average, Max, Min, Norm1, AbsMax][random.usize(..6)];
                let node = Reduction { mode, input: of_a, output: to, is_deterministic: true };
                (dims, Operation::Reduction(node))
            }
            2 => {
                use PointwiseMode::*;
                let mode = [Neg, TanhFwd, Abs, SigmoidFwd, ReluFwd][random.usize(..5)];
                (tensors[a], Operation::Pointwise(Pointwise::unary(mode, of_a, to)))
            }
            _ => {
                use PointwiseMode::*;
                let mode = [Add, Mul, Sub, Max][random.usize(..4)];
                let dims = std::array::from_fn(|axis| tensors[a][axis].max(tensors[b][axis]));
                (dims, Operation::Pointwise(Pointwise::binary(mode, of_a, of_b, to)))
            }
        };
        let is_virtual = node + 1 < nodes && random.usize(..4) > 0;
        define(&mut graph, random, uid, dims, is_virtual);
        graph.node("", operation);
        tensors.push(dims);
    }
    graph.build().unwrap()
}

/// Results of a graph for the caller, and the number of nodes that are rows.
fn results(graph: &Graph, settings: &Settings) -> (HashMap<TensorUid, Vec<f64>>, usize) {
    let fused = crate::fuse::fuse(graph, applicability::lower(graph).unwrap(), settings);
    let works = fused.works.iter().zip(&fused.nodes);
    let in_rows = works.filter(|(work, _)| work.name() == "rows").map(|(_, nodes)| nodes.len()).sum();
    let plan = CpuPlan::new(Schedule::new(graph, &fused, settings).unwrap(), 2, resources::get()).unwrap();
    let memory = memory(graph, 5);
    execute(&plan, &pack(&memory)).unwrap();
    let of_nodes = memory.iter().filter(|(uid, _)| graph.producer(**uid).is_some());
    (of_nodes.map(|(uid, memory)| (*uid, memory.values())).collect(), in_rows)
}

#[test]
fn random_graphs_compute_the_same_in_rows() {
    let mut random = fastrand::Rng::with_seed(11);
    let mut fused = 0;
    for case in 0..600 {
        let graph = random_graph(&mut random);
        let (got, in_rows) = results(&graph, &settings(2));
        fused += usize::from(in_rows > 1);
        let (want, _) = results(&graph, &Settings { fuse: false, ..settings(2) });
        for (uid, want) in &want {
            // Intermediates of a shorter type are rounded to it one by one; sums of 126 of them add up.
            let largest = want.iter().fold(1.0, |most: f64, value| most.max(value.abs()));
            let short = graph.tensors().iter().any(|tensor| tensor.data_type() == DataType::BFloat16);
            let unit = if short { 2f64.powi(-7) } else { 2f64.powi(-10) };
            for (i, (got, want)) in got[uid].iter().zip(want).enumerate() {
                let near =
                    (got - want).abs() <= 16.0 * unit * largest || got == want || (got.is_nan() && want.is_nan());
                assert!(near, "case {case}, tensor {uid}[{i}]: expected {want}, got {got}: {graph:#?}");
            }
        }
    }
    assert!(fused > 150, "{fused} are too few to say anything");
}

#[test]
fn a_result_may_be_where_an_operand_is() {
    use PointwiseMode::{Add, Exp, Mul, Sub};
    for (dims, sums) in [([7, 5, 40], [7, 5, 1]), ([2, 3, 2000], [2, 3, 1]), ([3, 21, 70], [3, 1, 70])] {
        let mut graph = GraphBuilder::new("in place").compute(DataType::Float);
        for uid in [0, 1, 2, 10, 11, 12] {
            let tensor = TensorDef::new(uid, DataType::Float, &dims);
            graph.tensor(if uid < 10 { tensor } else { tensor.intermediate() });
        }
        for uid in [20, 21] {
            graph.tensor(TensorDef::new(uid, DataType::Float, &sums).intermediate());
        }
        let uid = |uid: i64| TensorUid(uid);
        let binary = |mode, a, b, y| Operation::Pointwise(Pointwise::binary(mode, uid(a), uid(b), uid(y)));
        let reduce = |mode, x, y| {
            Operation::Reduction(Reduction { mode, input: uid(x), output: uid(y), is_deterministic: true })
        };
        for node in [
            reduce(ReductionMode::Max, 0, 20),
            binary(Sub, 0, 20, 10),
            Operation::Pointwise(Pointwise::unary(Exp, uid(10), uid(11))),
            reduce(ReductionMode::Add, 11, 21),
            binary(Mul, 11, 21, 12),
            binary(Add, 12, 1, 2),
        ] {
            graph.node("", node);
        }
        let graph = graph.build().unwrap();
        let fused = crate::fuse::fuse(&graph, applicability::lower(&graph).unwrap(), &settings(2));
        assert_eq!(fused.works.len(), 1, "{dims:?}: {:?}", fused.remarks);
        let schedule = || Schedule::new(&graph, &fused, &settings(2)).unwrap();
        let apart = memory(&graph, 3);
        execute(&CpuPlan::new(schedule(), 2, resources::get()).unwrap(), &pack(&apart)).unwrap();
        for operand in [0, 1] {
            let shared = memory(&graph, 3);
            let mut buffers = pack(&shared);
            let at = buffers.iter().find(|buffer| buffer.uid == operand).unwrap().ptr;
            buffers.iter_mut().find(|buffer| buffer.uid == 2).unwrap().ptr = at;
            execute(&CpuPlan::new(schedule(), 2, resources::get()).unwrap(), &buffers).unwrap();
            assert_eq!(shared[&uid(operand)].values(), apart[&uid(2)].values(), "{dims:?} over tensor {operand}");
        }
    }
}

/// A layer norm spelled out, with a quotient by the deviation or a product with its inverse.
fn layer_norm(dims: [i64; 2], divides: bool, parameters: DataType) -> Graph {
    use PointwiseMode::{Add, Div, Mul, Rsqrt, Sqrt, Sub};
    let mut graph = GraphBuilder::new("layer norm").compute(DataType::Float);
    for uid in [0, 1, 2, 3, 4, 5] {
        let tensor = TensorDef::new(uid, DataType::Float, &dims);
        graph.tensor(if uid < 2 { tensor } else { tensor.intermediate() });
    }
    for uid in [10, 11, 12] {
        graph.tensor(TensorDef::new(uid, DataType::Float, &[dims[0], 1]).intermediate());
    }
    for uid in [20, 21] {
        graph.tensor(TensorDef::new(uid, parameters, &[1, dims[1]]));
    }
    let uid = |uid: i64| TensorUid(uid);
    let binary = |mode, a, b, y| Operation::Pointwise(Pointwise::binary(mode, uid(a), uid(b), uid(y)));
    let reduce =
        |mode, x, y| Operation::Reduction(Reduction { mode, input: uid(x), output: uid(y), is_deterministic: true });
    let root = if divides { Sqrt } else { Rsqrt };
    for node in [
        reduce(ReductionMode::Average, 0, 10),
        binary(Sub, 0, 10, 2),
        binary(Mul, 2, 2, 3),
        reduce(ReductionMode::Average, 3, 11),
        Operation::Pointwise(Pointwise::unary(root, uid(11), uid(12))),
        binary(if divides { Div } else { Mul }, 2, 12, 4),
        binary(Mul, 4, 20, 5),
        binary(Add, 5, 21, 1),
    ] {
        graph.node("", node);
    }
    graph.build().unwrap()
}

#[test]
fn differences_that_are_taken_twice_are_computed() {
    use PointwiseMode::{Add, Mul, Sub};
    for [rows, width] in [[7, 130], [70, 4999]] {
        let nodes = [
            reduce(ReductionMode::Average, 0, 10),
            reduce(ReductionMode::Max, 0, 11),
            binary(Sub, 0, 10, 2),
            binary(Mul, 2, 11, 3),
            binary(Mul, 3, 2, 4),
            binary(Add, 4, 0, 1),
        ];
        let graph = graph_of_rows("twice", [rows, width], 4, nodes);
        let fusion_groups = fused(&graph);
        let [FusionGroup::Groups(groups)] = &fusion_groups[..] else { panic!("expected one group") };
        let (rows, width) = (rows as usize, width as usize);
        let x: Vec<f64> = (0..rows * width).map(|i| f64::from((i * 37 % 101) as f32 * 0.25)).collect();
        for isa in Isa::of_vectors() {
            let work = bind_for(isa, 8, &graph, &groups.work.kernels[0]).unwrap();
            let results = run(&graph, &work, &HashMap::from([(TensorUid(0), x.clone())]), 1);
            for (x, got) in x.chunks(width).zip(results[0].1.chunks(width)) {
                let mean = x.iter().sum::<f64>() / width as f64;
                let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                for (x, got) in x.iter().zip(got) {
                    let want = (x - mean) * most * (x - mean) + x;
                    // Roundings of numbers up to 25³.
                    assert!((got - want).abs() <= 2f64.powi(-20) * 15_625.0, "{isa}: expected {want}, got {got}");
                }
            }
        }
    }
}

#[test]
fn norms_have_rows_of_any_length_and_what_is_no_number_stays() {
    // Rows of several groups, of one, and of one in several parts.
    for ([rows, width], divides, parameters) in [
        ([7, 130], true, DataType::Float),
        ([9, 131], false, DataType::Half),
        ([30, 1021], false, DataType::Float),
        ([30, 1021], true, DataType::Half),
        ([70, 4999], true, DataType::Float),
    ] {
        let graph = layer_norm([rows, width], divides, parameters);
        let fusion_groups = fused(&graph);
        let [FusionGroup::Groups(groups)] = &fusion_groups[..] else { panic!("expected one group") };
        let (rows, width) = (rows as usize, width as usize);
        let x: Vec<f64> = (0..rows * width)
            .map(|i| match i / width {
                0 if i % width == 17 => f64::INFINITY,
                1 if i % width == width - 1 => f64::NAN,
                // No deviation at all.
                2 => 3.5,
                row => f64::from((i * 37 % 101) as f32 * 0.37 + row as f32 * 100.0),
            })
            .collect();
        let of_row = |by: f64| Vec::from_iter((0..width).map(|i| (i % 13) as f64 * by - 1.0));
        let (scale, bias) = (of_row(0.25), of_row(0.5));
        let read =
            HashMap::from([(TensorUid(0), x.clone()), (TensorUid(20), scale.clone()), (TensorUid(21), bias.clone())]);
        for isa in Isa::of_vectors() {
            let work = bind_for(isa, 8, &graph, &groups.work.kernels[0]).unwrap();
            let what = format!("{isa} {rows}×{width}");
            let results = run(&graph, &work, &read, 1);
            let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&results[0].1), bits(&run(&graph, &work, &read, 3)[0].1), "{what}");
            for (row, (x, got)) in x.chunks(width).zip(results[0].1.chunks(width)).enumerate() {
                if row < 3 {
                    assert!(got.iter().all(|got| got.is_nan()), "{what}: row {row} has a number");
                    continue;
                }
                let mean = x.iter().sum::<f64>() / width as f64;
                let deviation = (x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64).sqrt();
                // The mean is rounded to `f32`, which moves all elements; then come difference, deviation and its inverse,
                // quotient, product and sum.
                let moved = mean.abs() * 2f64.powi(-24) / deviation;
                for (i, (x, got)) in x.iter().zip(got).enumerate() {
                    let normal = (x - mean) / deviation;
                    let want = normal * scale[i] + bias[i];
                    let of_normal =
                        (moved * (1.0 + normal.abs()) + 6.0 * 2f64.powi(-24) * normal.abs()) * scale[i].abs();
                    let bound = of_normal + want.abs() * 2f64.powi(-24);
                    assert!((got - want).abs() <= bound, "{what}, row {row}, {i}: expected {want}, got {got}");
                }
            }
        }
    }
}

#[test]
fn softmax_has_masked_elements_and_rows_that_are_no_numbers() {
    use PointwiseMode::{Div, Exp, Sub};
    // Rows of several groups, of one, and of one in several parts.
    for [rows, width] in [[7, 130], [30, 701], [30, 2500], [70, 4999]] {
        let nodes = [
            reduce(ReductionMode::Max, 0, 10),
            binary(Sub, 0, 10, 2),
            Operation::Pointwise(Pointwise::unary(Exp, TensorUid(2), TensorUid(3))),
            reduce(ReductionMode::Add, 3, 11),
            binary(Div, 3, 11, 1),
        ];
        let graph = graph_of_rows("softmax", [rows, width], 3, nodes);
        let fusion_groups = fused(&graph);
        let [FusionGroup::Groups(groups)] = &fusion_groups[..] else { panic!("expected one group") };
        let x: Vec<f64> = (0..rows * width)
            .map(|i| match (i / width, i % 11) {
                (0, 3) => f64::NEG_INFINITY,
                (1, _) if i % width == 15 => f64::NAN,
                (row, _) => f64::from(((i * 37 % 101) as f32 - 50.0) * 0.37 + row as f32 * 30.0),
            })
            .collect();
        for isa in Isa::of_vectors() {
            let work = bind_for(isa, 8, &graph, &groups.work.kernels[0]).unwrap();
            let read = HashMap::from([(TensorUid(0), x.clone())]);
            let results = run(&graph, &work, &read, 1);
            let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&results[0].1), bits(&run(&graph, &work, &read, 3)[0].1), "{isa} {rows}×{width}");
            // Passes over blocks of rows add in the same order, unless they cut a row.
            let (mut passes, _) = Rows::new(isa, Some(8), &graph, &groups.work.kernels[0]).unwrap();
            assert!(passes.compiled.softmax.take().is_some(), "{isa} {rows}×{width}");
            if passes.compiled.chunk.lanes == width as usize {
                let work = LibraryOp { recipe: Arc::new(Arc::new(passes)), ..work };
                assert_eq!(bits(&results[0].1), bits(&run(&graph, &work, &read, 1)[0].1), "{isa} {rows}×{width}");
            }
            for (x, got) in x.chunks(width as usize).zip(results[0].1.chunks(width as usize)) {
                let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = x.iter().map(|x| (x - most).exp()).sum();
                for (x, got) in x.iter().zip(got) {
                    let want = (x - most).exp() / sum;
                    // Two units of the exponential, half of the difference, which moves the exponential by its value, and
                    // roundings of sum, inverse and product.
                    let roundings = 8.0 + (most - x).min(200.0);
                    let bound = want * 2f64.powi(-24) * roundings + f64::from(f32::MIN_POSITIVE);
                    let near = (got - want).abs() <= bound || (got.is_nan() && sum.is_nan());
                    assert!(near, "{isa} {rows}×{width}, of {x}: expected {want}, got {got}");
                }
            }
        }
    }
}
