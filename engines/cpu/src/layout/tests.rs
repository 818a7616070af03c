//! Tests of layout assignment: the intermediates that are given another layout, and that graphs compute the same with
//! it.

use std::collections::BTreeSet;

use hipdnn_schemas::{
    BatchnormInference, DataType, Graph, Operation, PaddingMode, PointwiseMode as Mode, Reduction, ReductionMode,
    ResampleFwd, ResampleMode, TensorDef, TensorUid,
};

use super::*;
use crate::plan::CpuPlan;
use crate::resources;
use crate::settings::Settings;
use crate::tests::{binary, build, check, conv, execute, memory, pack, schedule, settings, tensor, unary};

const IMAGE: [i64; 4] = [2, 16, 5, 5];

fn y(uid: i64) -> TensorDef {
    tensor(uid, DataType::Float, &IMAGE)
}

fn v(uid: i64) -> TensorDef {
    y(uid).intermediate()
}

fn filter(uid: i64, extent: i64) -> TensorDef {
    tensor(uid, DataType::Float, &[16, 16, extent, extent])
}

fn pool(x: i64, y: i64, mode: ResampleMode, [window, stride, pad]: [i64; 3]) -> Operation {
    Operation::ResampleFwd(ResampleFwd {
        x: TensorUid(x),
        y: TensorUid(y),
        index: None,
        pre_padding: vec![pad; 2],
        post_padding: vec![pad; 2],
        stride: vec![stride; 2],
        window: vec![window; 2],
        resample_mode: mode,
        padding_mode: PaddingMode::NegInf,
        generate_index: None,
    })
}

fn reduce(input: i64, output: i64) -> Operation {
    let [input, output] = [input, output].map(TensorUid);
    Operation::Reduction(Reduction { mode: ReductionMode::Average, input, output, is_deterministic: true })
}

/// Makes three convolutions in a row, x is 0, the filter 1, the tensors between them 2 and 3; then `rest`, from 4 on.
fn row(rest: Vec<TensorDef>, nodes: Vec<Operation>) -> Graph {
    let mut tensors = vec![y(0), filter(1, 3), v(2), v(3)];
    tensors.extend(rest);
    let convolutions = [conv(0, 1, 2, 1), conv(2, 1, 3, 1), conv(3, 1, 4, 1)];
    build(&tensors, convolutions.into_iter().chain(nodes).collect())
}

#[test]
fn images_between_convolutions_are_channels_last() {
    let float = DataType::Float;
    let per_channel = |uid| tensor(uid, float, &[1, 16, 1, 1]);
    let small = |uid| tensor(uid, float, &[2, 16, 1, 1]).intermediate();
    let depthwise = tensor(5, float, &[16, 1, 3, 3]);
    let grouped = tensor(5, float, &[16, 2, 3, 3]);
    let large = |uid| tensor(uid, float, &[1, 16, 260, 260]);
    let within = |uid| large(uid).intermediate();
    let normalization = |x, y| {
        let [mean, inv_variance, scale, bias] = [6, 6, 6, 6].map(TensorUid);
        Operation::BatchnormInference(BatchnormInference {
            x: TensorUid(x),
            mean,
            inv_variance,
            scale,
            bias,
            y: TensorUid(y),
        })
    };
    let short = |uid| tensor(uid, DataType::Half, &IMAGE);
    type Case = (&'static str, Graph, &'static [i64]);
    let cases: Vec<Case> = vec![
        ("three convolutions", row(vec![y(4)], vec![]), &[2, 3]),
        (
            "two convolutions read and write as much in the caller's layout as between them",
            build(&[y(0), filter(1, 3), v(2), y(3)], vec![conv(0, 1, 2, 1), conv(2, 1, 3, 1)]),
            &[],
        ),
        (
            "one convolution",
            build(
                &[y(0), filter(1, 3), v(2), v(3), y(4)],
                vec![conv(0, 1, 2, 1), unary(Mode::ReluFwd, 2, 3), unary(Mode::Neg, 3, 4)],
            ),
            &[],
        ),
        (
            "a residual, an activation, pooling of windows and of all",
            row(
                vec![
                    v(4),
                    v(5),
                    v(6),
                    tensor(7, float, &[2, 16, 3, 3]).intermediate(),
                    small(8),
                    tensor(9, float, &[2, 16, 1, 1]),
                ],
                vec![
                    binary(Mode::Add, 4, 2, 5),
                    unary(Mode::ReluFwd, 5, 6),
                    pool(6, 7, ResampleMode::MaxPool, [3, 2, 1]),
                    reduce(7, 8),
                    unary(Mode::Neg, 8, 9),
                ],
            ),
            &[2, 3, 4, 5, 6, 7],
        ),
        (
            "a bias and a normalization",
            row(
                vec![v(4), v(5), per_channel(6), v(7), y(8)],
                vec![binary(Mode::Add, 4, 6, 5), normalization(5, 7), conv(7, 1, 8, 1)],
            ),
            &[2, 3, 4, 5, 7],
        ),
        (
            "a gate for each channel",
            row(
                vec![v(4), small(5), small(6), v(7), y(8)],
                vec![reduce(4, 5), unary(Mode::SigmoidFwd, 5, 6), binary(Mode::Mul, 4, 6, 7), conv(7, 1, 8, 1)],
            ),
            &[2, 3, 4, 7],
        ),
        (
            "what a reduction of rows reads stays",
            row(vec![v(4), tensor(5, float, &[2, 16, 5, 1])], vec![reduce(4, 5)]),
            &[2, 3],
        ),
        ("a depthwise convolution", row(vec![v(4), depthwise.clone(), y(6)], vec![conv(4, 5, 6, 1)]), &[2, 3, 4]),
        (
            "what a depthwise convolution of images that no cache holds reads stays",
            build(
                &[large(0), filter(1, 3), within(2), within(3), within(4), depthwise.clone(), large(6)],
                vec![conv(0, 1, 2, 1), conv(2, 1, 3, 1), conv(3, 1, 4, 1), conv(4, 5, 6, 1)],
            ),
            &[2, 3],
        ),
        (
            "what it reads of a pointwise one, with which it is fused, does not",
            build(
                &[large(0), filter(1, 1), within(2), within(3), within(4), depthwise.clone(), within(6), large(7)],
                vec![
                    conv(0, 1, 2, 0),
                    conv(2, 1, 3, 0),
                    unary(Mode::ReluFwd, 3, 4),
                    conv(4, 5, 6, 1),
                    conv(6, 1, 7, 0),
                ],
            ),
            &[2, 3, 4, 6],
        ),
        (
            "planes of a caller's few channels stay",
            build(
                &[
                    tensor(0, float, &[2, 3, 9, 9]),
                    tensor(1, float, &[2, 3, 9, 9]).intermediate(),
                    tensor(2, float, &[16, 3, 3, 3]),
                    tensor(3, float, &[2, 16, 9, 9]).intermediate(),
                    tensor(4, float, &[16, 16, 3, 3]),
                    tensor(5, float, &[2, 16, 9, 9]).intermediate(),
                    tensor(6, float, &[2, 16, 9, 9]),
                ],
                vec![unary(Mode::ReluFwd, 0, 1), conv(1, 2, 3, 1), conv(3, 4, 5, 1), conv(5, 4, 6, 1)],
            ),
            &[3, 5],
        ),
        ("what a convolution of groups reads stays", row(vec![v(4), grouped, y(6)], vec![conv(4, 5, 6, 1)]), &[2, 3]),
        (
            "a filter that is computed stays",
            build(
                &[y(0), filter(1, 3), v(2), v(3), y(4), filter(5, 3).intermediate()],
                vec![unary(Mode::Neg, 1, 5), conv(0, 5, 2, 1), conv(2, 5, 3, 1), conv(3, 5, 4, 1)],
            ),
            &[2, 3],
        ),
        (
            "convolutions of types of 16 bits",
            build(
                &[short(0), filter(1, 3), short(2).intermediate(), short(3).intermediate(), short(4)],
                vec![conv(0, 1, 2, 1), conv(2, 1, 3, 1), conv(3, 1, 4, 1)],
            ),
            &[2, 3],
        ),
        (
            "few channels",
            build(
                &[
                    tensor(0, float, &[2, 8, 6, 7]),
                    tensor(1, float, &[8, 8, 3, 3]),
                    tensor(2, float, &[2, 8, 6, 7]).intermediate(),
                    tensor(3, float, &[2, 8, 6, 7]).intermediate(),
                    tensor(4, float, &[2, 8, 6, 7]),
                ],
                vec![conv(0, 1, 2, 1), conv(2, 1, 3, 1), conv(3, 1, 4, 1)],
            ),
            &[],
        ),
        (
            "element-wise functions of the caller's images cost more than convolutions gain",
            build(
                &[y(0), filter(1, 1), v(2), v(3), v(4), y(5), y(6)],
                vec![conv(0, 1, 2, 0), conv(2, 1, 3, 0), binary(Mode::Add, 3, 5, 4), conv(4, 1, 6, 0)],
            ),
            &[],
        ),
        (
            "images that are not linked are looked at apart",
            build(
                &[y(0), filter(1, 1), v(2), v(3), y(4), v(5), y(6)],
                vec![
                    conv(0, 1, 2, 0),
                    conv(2, 1, 3, 0),
                    conv(3, 1, 4, 0),
                    unary(Mode::ReluFwd, 4, 5),
                    conv(5, 1, 6, 0),
                ],
            ),
            &[2, 3],
        ),
    ];
    for (what, graph, want) in cases {
        let got: Vec<i64> = channels_last(&graph).iter().map(|uid| uid.0).collect();
        assert_eq!(got, want, "{what}");
        let assigned = assign(&graph).unwrap();
        assert_eq!(assigned.is_some(), !want.is_empty(), "{what}");
        for tensor in assigned.iter().flat_map(Graph::tensors) {
            let before = graph.tensor(tensor.uid());
            assert_eq!(is_channels_last(tensor), want.contains(&tensor.uid().0), "{what}: tensor {}", tensor.uid());
            assert!(is_channels_last(tensor) || tensor == before, "{what}: tensor {}", tensor.uid());
        }
    }
}

#[test]
fn graphs_compute_the_same_in_either_layout() {
    let float = DataType::Float;
    let small = |uid| tensor(uid, float, &[2, 16, 3, 3]).intermediate();
    let single = |uid| tensor(uid, float, &[2, 16, 1, 1]);
    let per_channel = |uid| tensor(uid, float, &[1, 16, 1, 1]);
    let inner = |uid| tensor(uid, float, &[2, 20, 5, 5]).intermediate();
    let graphs = [
        ("a row", row(vec![y(4)], vec![])),
        (
            "a residual block and pooling of windows and of all",
            row(
                vec![v(4), v(5), v(6), small(7), single(8), per_channel(9), v(10)],
                vec![
                    binary(Mode::Add, 4, 9, 10),
                    binary(Mode::Add, 10, 2, 5),
                    unary(Mode::ReluFwd, 5, 6),
                    pool(6, 7, ResampleMode::MaxPool, [3, 2, 1]),
                    reduce(7, 8),
                ],
            ),
        ),
        (
            "averages of windows and of all, a gate",
            row(
                vec![
                    v(4),
                    small(5),
                    single(6).intermediate(),
                    single(7).intermediate(),
                    small(8),
                    filter(9, 1),
                    tensor(10, float, &[2, 16, 3, 3]),
                ],
                vec![
                    pool(4, 5, ResampleMode::AvgPoolExcludePadding, [3, 2, 1]),
                    pool(5, 6, ResampleMode::AvgPoolIncludePadding, [3, 1, 0]),
                    unary(Mode::SigmoidFwd, 6, 7),
                    binary(Mode::Mul, 5, 7, 8),
                    conv(8, 9, 10, 0),
                ],
            ),
        ),
        (
            "channels that are no whole vectors",
            build(
                &[
                    y(0),
                    tensor(1, float, &[20, 16, 1, 1]),
                    inner(2),
                    tensor(3, float, &[20, 20, 3, 3]),
                    inner(4),
                    inner(5),
                    tensor(6, float, &[16, 20, 1, 1]),
                    y(7),
                ],
                vec![conv(0, 1, 2, 0), conv(2, 3, 4, 1), unary(Mode::ReluFwd, 4, 5), conv(5, 6, 7, 0)],
            ),
        ),
    ];
    for (what, graph) in graphs {
        assert!(assign(&graph).unwrap().is_some(), "{what}: the layout changes");
        // Constant filters have kernels of their own.
        let filters = graph.nodes().iter().filter_map(|node| match &node.operation {
            Operation::ConvolutionFwd(node) => Some(node.w),
            _ => None,
        });
        let filters: BTreeSet<TensorUid> = filters.collect();
        let constants: Vec<_> =
            filters.iter().map(|uid| (*uid, format!("{what}-{uid}").replace([' ', ','], "-").into())).collect();
        for (fuse, threads) in [(true, 1), (true, 3), (false, 2)] {
            let settings =
                Settings { layout: true, winograd: false, fuse, constants: constants.clone(), ..settings(threads) };
            let plan = CpuPlan::new(schedule(&graph, &settings), threads, resources::get()).unwrap();
            let memory = memory(&graph, 11);
            execute(&plan, &pack(&memory)).unwrap();
            check(&graph, &memory, &format!("{what}, constant filters, fuse {fuse}, {threads} threads"));
        }
        for fuse in [true, false] {
            let mut bits: Vec<Vec<Vec<f64>>> = Vec::new();
            for (layout, threads) in [(false, 2), (true, 1), (true, 2), (true, 3)] {
                let settings = Settings { layout, fuse, ..settings(threads) };
                let plan = CpuPlan::new(schedule(&graph, &settings), threads, resources::get()).unwrap();
                let memory = memory(&graph, 11);
                execute(&plan, &pack(&memory)).unwrap();
                if bits.len() < 2 {
                    check(&graph, &memory, &format!("{what}, layout {layout}, fuse {fuse}"));
                }
                let written = graph.tensors().iter().filter(|t| !t.is_virtual() && graph.producer(t.uid()).is_some());
                bits.push(written.map(|tensor| memory[&tensor.uid()].values()).collect());
            }
            assert!(bits[1..].windows(2).all(|pair| pair[0] == pair[1]), "{what}: threads change the bits");
        }
    }
}
