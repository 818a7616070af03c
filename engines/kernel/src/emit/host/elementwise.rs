//! Element-wise kernels, against their definition.

use hipdnn_schemas::PointwiseMode;

use super::*;
use crate::emit::grouped::testing::LEN;
use crate::emit::testing::{Elementwise, Input, Output, PARAMETERS, Random, View, rounded, rows, scaled, vector};

fn choices(n: usize) -> [Choice; 1] {
    [Choice { mapping: None, wide: n % 4 == 3 }]
}

#[test]
fn random_functions_compute_their_definition() {
    let mut launches = Launches::default();
    for seed in 0..100 {
        let work = Random::new(seed).work();
        let kernel = work.kernel();
        let reads: Vec<_> = (0..kernel.reads.len()).map(|t| small(LEN, t)).collect();
        launches.add(&format!("seed {seed}: {work:?}"), &kernel, &choices(seed as usize), &reads, &[LEN], EXACT);
    }
    launches.check();
}

#[test]
fn what_lies_across_goes_through_tiles() {
    let mut launches = Launches::default();
    for (n, (from, to, dims, gap)) in [
        (Element::F16, Element::F16, [100, 200], 0),
        (Element::F32, Element::F32, [70, 136], 3),
        (Element::F32, Element::F16, [33, 65], 0),
        (Element::I8, Element::F32, [129, 64], 0),
        (Element::BF16, Element::F32, [64, 128], 1),
    ]
    .into_iter()
    .enumerate()
    {
        // Two batches, and a second operand that lies as the result does.
        let [rows, columns] = dims;
        let plane = ((rows + gap) * columns) as i64;
        let across = View { offset: 1, ..View::new(from, [plane, 1, (rows + gap) as i64]) };
        let along = View::new(from, [(rows * columns) as i64, columns as i64, 1]);
        let work = Elementwise {
            dims: vec![2, rows, columns],
            inputs: vec![Input::Tensor(across), Input::Tensor(along)],
            output: Output::new(to, [(rows * columns) as i64, columns as i64, 1]),
            program: vec![crate::emit::Op::pointwise(PointwiseMode::Max, &[0, 1])],
        };
        let kernel = work.kernel();
        let text = kernel.source().unwrap().expect("there is something to do").text;
        assert!(text.contains("tile0["), "{text}");
        let (from, to) = (2 * plane as usize + 1, 2 * rows * columns);
        launches.add(&format!("{dims:?}"), &kernel, &choices(n)[..1], &[small(from, 1), small(to, 2)], &[to], EXACT);
    }
    launches.check();
}

/// Rows that are longer than a block, which has members of two.
#[test]
fn blocks_go_on_from_row_to_row() {
    let mut launches = Launches::default();
    for (n, (element, dims)) in [
        (Element::F16, [5, 2048]),
        (Element::F16, [3, 2056]),
        (Element::F16, [4, 3333]),
        (Element::F32, [7, 1027]),
        (Element::F64, [3, 301]),
    ]
    .into_iter()
    .enumerate()
    {
        let [rows, columns] = dims;
        let strides = [columns as i64 + 3, 1];
        let work = Elementwise {
            dims: dims.to_vec(),
            inputs: vec![Input::Tensor(View::new(element, strides)), Input::Tensor(View::new(element, [1, 0]))],
            output: Output::new(element, strides),
            program: vec![crate::emit::Op::pointwise(PointwiseMode::Max, &[0, 1])],
        };
        let kernel = work.kernel();
        let len = rows * (columns + 3);
        let reads = [small(len, n), small(rows, n + 1)];
        let choices = [Choice::default(), Choice { wide: true, ..Choice::default() }];
        launches.add(&format!("{dims:?} of {element:?}"), &kernel, &choices, &reads, &[len], EXACT);
    }
    launches.check();
}

#[test]
fn every_mode_computes_its_definition() {
    let mut launches = Launches::default();
    let xs: Vec<f64> = (-40..=40).map(|i| f64::from(i) * 37.0 / 256.0 + 1.0 / 512.0).collect();
    let ys: Vec<f64> = xs.iter().rev().map(|v| v * 0.5 + 0.125).collect();
    let ts: Vec<f64> = (0..xs.len()).map(|i| (i % 2) as f64).collect();
    let is_mode = |mode: &PointwiseMode| !matches!(mode, PointwiseMode::Unset | PointwiseMode::GenIndex);
    let modes: Vec<PointwiseMode> = PointwiseMode::ALL.iter().copied().filter(is_mode).collect();
    for element in [Element::F32, Element::F64] {
        let reads = [&xs, &ys, &ts].map(|values| values.iter().map(|v| rounded(element, *v)).collect::<Vec<_>>());
        for modes in modes.chunks(12) {
            let work = rows(modes, PARAMETERS, element, xs.len());
            let near = Near { units: 64.0, scale: 1.0 };
            launches.add(&format!("{modes:?}"), &work.kernel(), &choices(0), &reads, &[xs.len() * modes.len()], near);
        }
    }
    use PointwiseMode::{Abs, Add, Max, Min, Mul, Neg, Sub};
    for mode in [Abs, Add, Max, Min, Mul, Neg, Sub] {
        let work = vector(mode, PARAMETERS, Element::I32, Element::I64, 90).kernel();
        assert!(work.source().unwrap().expect("there is something to do").text.contains("typedef long real"));
        let reads = [small(90, 1), small(90, 2)][..mode.operands()].to_vec();
        launches.add(&format!("whole {mode}"), &work, &choices(0), &reads, &[90], EXACT);
    }
    for mode in [PointwiseMode::GeluFwd, PointwiseMode::Div, PointwiseMode::Exp] {
        let work = vector(mode, PARAMETERS, Element::F16, Element::F16, xs.len());
        let reads = [xs.clone(), ys.clone()][..mode.operands()].to_vec();
        let near = Near { units: 1.0, scale: 0.01 };
        launches.add(&format!("short {mode}"), &work.kernel(), &choices(0), &reads, &[xs.len()], near);
    }
    for (n, last) in [false, true].into_iter().enumerate() {
        let work = scaled([2, 3, 5, 8], last, 2.5).kernel();
        let reads = vec![small(LEN, 1), small(LEN, 2)];
        launches.add("scaled", &work, &choices(n), &reads, &[LEN], EXACT);
    }
    launches.check();
}

/// Copies have no type but a size.
#[test]
fn copies_move_bytes() {
    let mut launches = Launches::default();
    for (n, element) in Element::ALL.iter().enumerate() {
        for (what, strides, dims) in
            [("rows", [70, 1], [3, 67]), ("columns", [1, 5], [4, 36]), ("backwards", [70, -1], [3, 37])]
        {
            let offset = if strides[1] < 0 { 40 } else { 1 };
            let work = Elementwise {
                dims: dims.to_vec(),
                inputs: vec![Input::Tensor(View { offset, ..View::new(*element, strides) })],
                output: Output { offset: 2, ..Output::new(*element, [dims[1] as i64 + 1, 1]) },
                program: vec![],
            };
            let what = format!("{what} of {element:?}");
            launches.add(&what, &work.kernel(), &choices(n), &[small(300, n)], &[300], EXACT);
        }
    }
    launches.check();
}
