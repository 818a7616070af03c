//! Kernels over groups, against their definition.

use hipdnn_schemas::PointwiseMode;

use super::*;
use crate::emit::Op;
use crate::emit::grouped::testing::{LEN, MAPPINGS, Window, at, folds, layer_norm, op, pooling, read, softmax, store};
use crate::emit::grouped::{Access, Bound, Fold, Input, Pass, ReduceOp};
use crate::emit::testing::Random;

/// The work's own choice and one of [`MAPPINGS`], with narrow and wide indices; others for another number.
fn several(n: usize) -> Vec<Choice> {
    let mapping = Choice { mapping: Some(MAPPINGS[n % MAPPINGS.len()]), wide: n % 2 == 1 };
    vec![Choice { mapping: None, wide: n % 5 == 4 }, mapping]
}

/// Numbers of which even long products are exact.
fn tame(len: usize) -> Vec<f64> {
    (0..len).map(|i| if i % 97 == 5 { 2.0 } else { [1.0, -1.0, 1.0][i % 3] }).collect()
}

/// Elements from the first to the last one that loops of those strides reach.
fn span(extents: &[usize], strides: &[i64]) -> usize {
    let along = extents.iter().zip(strides).map(|(extent, stride)| (*extent - 1) * stride.unsigned_abs() as usize);
    along.sum::<usize>() + 1
}

/// Name, groups, members and strides.
type Layout<'a> = (&'a str, &'a [usize], &'a [usize], &'a [i64]);

#[test]
fn every_fold_over_any_layout_gives_its_definition() {
    let mut launches = Launches::default();
    let cases: &[Layout<'_>] = &[
        ("rows", &[5], &[70], &[70, 1]),
        ("rows of vectors", &[5], &[3, 36], &[300, 40, 1]),
        ("rows that end within a vector", &[20], &[2, 35], &[100, 50, 1]),
        ("columns", &[67], &[45], &[1, 67]),
        ("columns in vectors", &[64], &[45], &[1, 64]),
        ("columns in short vectors", &[3, 14], &[37, 2], &[14, 1, 42, 1600]),
        ("channels last in vectors", &[24], &[2, 11], &[1, 264, 24]),
        ("channels", &[3], &[4, 35], &[35, 105, 1]),
        ("everything", &[], &[2, 300], &[300, 1]),
        ("one member", &[300], &[1], &[1, 5]),
        ("no loop over members", &[3, 50], &[], &[50, 1]),
        ("neither", &[], &[], &[]),
        ("members against the order of memory", &[4], &[6, 5, 7], &[210, 1, 6, 30]),
        ("three loops with gaps", &[2, 3], &[3, 4, 5], &[1000, 400, 130, 24, 2]),
        ("the same for all groups", &[3, 4], &[20], &[0, 0, 1]),
        ("members that repeat", &[6], &[5, 9], &[9, 0, 1]),
        ("loops of one", &[1, 7, 1], &[1, 9, 1], &[5, 9, 3, 0, 1, 8]),
    ];
    for (n, (what, groups, members, strides)) in cases.iter().enumerate() {
        let (len, total) = (span(&[*groups, members].concat(), strides), groups.iter().product::<usize>());
        // Tensors of that length, backwards too.
        for backwards in [false, true] {
            if backwards && n % 4 != 0 {
                continue;
            }
            let strides: Vec<i64> = strides.iter().map(|stride| if backwards { -stride } else { *stride }).collect();
            let mut work = folds(groups, members, &strides, Element::F32, Element::F32);
            let Pass::Reduce { inputs, .. } = &mut work.passes[0] else { unreachable!("the first pass reduces") };
            for input in inputs {
                if let Input::Tensor { access, .. } = input {
                    access.offset = if backwards { len as i64 - 1 } else { 0 };
                }
            }
            launches.add(what, &work, &several(n), &[small(len, 3), tame(len)], &[total; 6], EXACT);
        }
    }
    for (n, element) in Element::ALL.iter().enumerate() {
        let (what, reads) = (format!("{element:?}"), [small(600, 3), tame(600)]);
        let rows = folds(&[5], &[40], &[40, 1], *element, *element);
        launches.add(&what, &rows, &several(n)[..1], &reads, &[5; 6], EXACT);
        let columns = folds(&[40], &[13], &[1, 40], *element, *element);
        launches.add(&what, &columns, &several(n)[1..], &reads, &[40; 6], EXACT);
    }
    for members in [&[0][..], &[3, 0, 2]] {
        let work = folds(&[5], members, &vec![1; 1 + members.len()], Element::F32, Element::F32);
        launches.add("no members", &work, &several(0), &[vec![1.0], vec![1.0]], &[5; 6], EXACT);
    }
    launches.check();
}

#[test]
fn normalizations_are_one_kernel() {
    let mut launches = Launches::default();
    let cases: &[Layout<'_>] = &[
        ("rows", &[6], &[77], &[77, 1]),
        ("rows of vectors", &[6], &[64], &[80, 1]),
        ("rows of several steps of a lane", &[20], &[776], &[776, 1]),
        ("rows that end within a vector", &[9], &[770], &[772, 1]),
        ("rows of two loops", &[7], &[3, 96], &[400, 128, 1]),
        ("columns", &[66], &[40], &[1, 66]),
        ("columns in vectors", &[72], &[40], &[1, 72]),
        ("channels", &[5], &[3, 50], &[50, 250, 1]),
        ("rows in pieces", &[2, 3], &[5, 9], &[900, 5, 15, 100]),
    ];
    for (n, (what, groups, members, strides)) in cases.iter().enumerate() {
        let extents = [*groups, members].concat();
        let (len, outer, inner) = (span(&extents, strides), groups.iter().product(), members.iter().product());
        for (e, element) in [Element::F32, Element::F16, Element::BF16, Element::F64].into_iter().enumerate() {
            let what = format!("{what} of {element:?}");
            let choices = &several(n + e)[..if (n + e) % 3 == 0 { 2 } else { 1 }];
            let work = softmax(groups, members, strides, element);
            // What double precision is compared with has roundings of its own.
            let units = if element == Element::F64 { 64.0 } else { 8.0 };
            let near = Near { units, scale: 0.0 };
            launches.add(&format!("softmax, {what}"), &work, choices, &[mixed(len, 1)], &[len], near);
            let work = layer_norm(groups, members, strides, element);
            let reads = [mixed(len, 2), mixed(inner, 3), vec![3.0; inner]];
            let near = Near { units, scale: 4.0 };
            launches.add(&format!("layer norm, {what}"), &work, choices, &reads, &[len, outer, outer], near);
        }
    }
    launches.check();
}

/// Where lanes keep a power of each member, the last pass has other operands before and behind it.
#[test]
fn kept_powers_are_scaled() {
    use PointwiseMode::{Add, Div, Exp, Mul, Sub};
    let mut launches = Launches::default();
    for (n, members) in [776, 770, 64].into_iter().enumerate() {
        let (rows, row) = ([members as i64 + 6, 1], [0, 1]);
        let mut work = softmax(&[9], &[members], &rows, Element::F16);
        work.reads.extend([Element::F32, Element::F16]);
        work.writes.push(Element::F32);
        work.passes[2] = Pass::PerMember {
            inputs: vec![read(1, &row), read(0, &rows), Input::Scalar(2.0), read(2, &rows), Input::Literal(0.25)],
            program: vec![
                op(Sub, &[3, 0]),
                op(Exp, &[7]),
                op(Mul, &[2, 4]),
                op(Div, &[8, 1]),
                op(Mul, &[10, 9]),
                op(Add, &[11, 5]),
                op(Sub, &[12, 6]),
            ],
            stores: vec![store(13, 0, &rows), store(10, 1, &rows)],
        };
        let text = work.source().unwrap().expect("there is something to do").text;
        assert!(text.contains("= e[c][k];") && text.matches("= power(").count() == 1, "{text}");
        let len = span(&[9, members], &rows);
        let reads = [mixed(len, 1), mixed(members, 2), mixed(len, 3)];
        let near = Near { units: 8.0, scale: 1.0 };
        launches.add(&format!("{members} members"), &work, &several(n)[..1], &reads, &[len; 2], near);
    }
    launches.check();
}

#[test]
fn windows_are_read_within_bounds() {
    let mut launches = Launches::default();
    let window = |extent, window, stride, pad| Window { extent, window, stride, pad };
    let near = Near { units: 0.5, scale: 0.0 };
    for (n, (what, h, w)) in [
        ("3 by 3, padded", window(9, 3, 2, 1), window(8, 3, 1, 1)),
        ("2 by 2, no padding", window(8, 2, 2, 0), window(10, 2, 2, 0)),
        ("1 by 4 with much padding", window(5, 1, 1, 0), window(6, 4, 3, 3)),
        ("all of it", window(7, 7, 1, 0), window(7, 7, 1, 0)),
        ("larger than the image", window(3, 5, 1, 1), window(20, 6, 5, 2)),
    ]
    .iter()
    .enumerate()
    {
        for channels_last in [false, true] {
            for element in if n == 0 { &[Element::F32, Element::I32, Element::U8][..] } else { &[Element::F32] } {
                let work = pooling(h, w, channels_last, *element);
                let planes = if channels_last { 8 } else { 6 };
                let (image, output) = (planes * h.extent * w.extent, planes * h.outputs() * w.outputs());
                let what = format!("{what}, {element:?}, channels last: {channels_last}");
                launches.add(&what, &work, &several(n), &[small(image, 2)], &[output; 3], near);
            }
        }
    }
    // Place i of the image is element k of the window of output (i + pad - k) / stride.
    for (n, (stride, pad, window, extent)) in
        [(2, 1, 3, 9), (3, 0, 2, 11), (1, 2, 5, 6), (5, 4, 9, 23)].into_iter().enumerate()
    {
        let outputs = (extent + 2 * pad - window) / stride + 1;
        let (steps, divisor) = (vec![0, 1, -1], stride as u64);
        let bound = Bound { offset: pad as i64, steps, divisor, extent: outputs as u64, stride: 1 };
        let access = Access { offset: 3, strides: vec![outputs as i64, 0, 0], bounds: vec![bound] };
        let inputs = vec![Input::Tensor { tensor: 0, access: access.clone(), pad_value: 0.5 }, Input::InBounds(access)];
        let folds = [0, 1].map(|slot| Fold { mode: ReduceOp::Sum, slot }).to_vec();
        let stores = [0, 1].map(|k| store(k, k, &[extent as i64, 1, 0])).to_vec();
        let work = Grouped {
            groups: vec![4, extent],
            members: vec![window],
            reads: vec![Element::F32],
            writes: vec![Element::F32; 2],
            passes: vec![
                Pass::Reduce { inputs, program: vec![], folds },
                Pass::PerGroup { inputs: vec![], program: vec![], keep: vec![], stores },
            ],
        };
        let what = format!("gradients: stride {stride}, padding {pad}, window {window}");
        launches.add(&what, &work, &several(n), &[small(4 * outputs + 3, 1)], &[4 * extent; 2], EXACT);
    }
    launches.check();
}

/// Many windows, whose threads have several side by side, which share lines of what they read.
#[test]
fn windows_side_by_side_share_what_they_read() {
    let mut launches = Launches::default();
    // Rows of that extent, between which windows go one by one. Fewer planes have a thread for each window.
    let (planes, rows, outputs) = (1 << 8, 16, 32);
    for (what, element, extent, stride, pad, window, has_lines) in [
        ("halves", Element::F16, 64, 2, 1, [3, 3], true),
        ("rows that end between vectors", Element::F16, 62, 2, 0, [3, 3], false),
        ("floats without padding", Element::F32, 68, 2, 0, [3, 3], true),
        ("windows further apart", Element::F32, 96, 3, 2, [1, 4], true),
    ] {
        let bound = |offset: i64, steps: [i64; 5], extent: usize, stride: usize| Bound {
            offset,
            steps: steps.to_vec(),
            divisor: 1,
            extent: extent as u64,
            stride: stride as i64,
        };
        let bounds = vec![bound(-1, [0, 1, 0, 1, 0], rows, extent), bound(-pad, [0, 0, stride, 0, 1], extent, 1)];
        let plane = (rows * extent) as i64;
        let access = Access { offset: 0, strides: vec![plane, 0, 0, 0, 0], bounds };
        let inputs = vec![Input::Tensor { tensor: 0, access, pad_value: -9.0 }];
        let row = outputs as i64;
        let stores = [0, 1].map(|k| store(k, k, &[rows as i64 * row, row, 1, 0, 0])).to_vec();
        let folds = [ReduceOp::Max, ReduceOp::Sum].map(|mode| Fold { mode, slot: 0 }).to_vec();
        let work = Grouped {
            groups: vec![planes, rows, outputs],
            members: window.to_vec(),
            reads: vec![element],
            writes: vec![element; 2],
            passes: vec![
                Pass::Reduce { inputs, program: vec![], folds },
                Pass::PerGroup { inputs: vec![], program: vec![], keep: vec![], stores },
            ],
        };
        let text = work.source().unwrap().expect("there is something to do").text;
        assert!(text.contains("#define EACH") && text.contains("line0[") == has_lines, "{what}:\n{text}");
        let (image, output) = (planes * rows * extent, planes * rows * outputs);
        launches.add(what, &work, &[Choice::default()], &[small(image, 2)], &[output; 2], EXACT);
    }
    launches.check();
}

#[test]
fn what_is_no_number_and_what_is_infinite_is_found_first() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let rows: &[&[(usize, f64)]] = &[
        &[],
        &[(7, nan)],
        &[(30, nan), (3, nan), (2, inf)],
        &[(9, inf), (39, inf)],
        &[(0, -inf)],
        &[(39, nan)],
        &[(20, inf), (21, -inf)],
    ];
    let mut values = mixed(40 * (rows.len() + 3), 9);
    for (row, places) in rows.iter().enumerate() {
        for (place, value) in *places {
            values[40 * row + place] = *value;
        }
    }
    // Nothing but the least of all; nothing but no numbers; equal ones.
    for (row, value) in [(rows.len(), -inf), (rows.len() + 1, nan), (rows.len() + 2, 3.0)] {
        values[40 * row..40 * (row + 1)].fill(value);
    }
    let groups = rows.len() + 3;
    let mut launches = Launches::default();
    for (n, element) in [Element::F32, Element::F64, Element::F16, Element::BF16].into_iter().enumerate() {
        for (m, mode) in [ReduceOp::ArgMax { at: 1 }, ReduceOp::Max, ReduceOp::Min, ReduceOp::Sum].iter().enumerate() {
            let at = if let ReduceOp::ArgMax { at } = *mode { at } else { 0 };
            let work = Grouped {
                groups: vec![groups],
                members: vec![40],
                reads: vec![element],
                writes: vec![element; 2],
                passes: vec![
                    Pass::Reduce {
                        inputs: vec![read(0, &[40, 1]), Input::Index { axis: 1 }],
                        program: vec![],
                        folds: vec![Fold { mode: mode.clone(), slot: 0 }, Fold { mode: ReduceOp::Max, slot: at }],
                    },
                    Pass::PerGroup {
                        inputs: vec![],
                        program: vec![],
                        keep: vec![],
                        stores: vec![store(0, 0, &[1, 0]), store(1, 1, &[1, 0])],
                    },
                ],
            };
            let what = format!("{mode:?} of {element:?}");
            let near = Near { units: 1.0, scale: 4.0 };
            launches.add(&what, &work, &several(n + m), &[values.clone()], &[groups; 2], near);
        }
    }
    launches.check();
}

/// Columns whose sums of a few members are in single precision first.
#[test]
fn columns_are_summed_in_parts() {
    let mut launches = Launches::default();
    for (n, members) in [5, 8, 33, 140, 1100].into_iter().enumerate() {
        for (program, slot) in [(vec![], 0), (vec![op(PointwiseMode::Abs, &[0])], 1)] {
            let work = Grouped {
                groups: vec![64],
                members: vec![members],
                reads: vec![Element::F16],
                writes: vec![Element::F32],
                passes: vec![
                    Pass::Reduce {
                        inputs: vec![read(0, &[1, 64])],
                        program,
                        folds: vec![Fold { mode: ReduceOp::Sum, slot }],
                    },
                    Pass::PerMember {
                        inputs: vec![read(0, &[1, 64]), Input::Index { axis: 0 }, Input::Index { axis: 1 }],
                        program: vec![
                            op(PointwiseMode::Add, &[0, 1]),
                            op(PointwiseMode::Add, &[4, 2]),
                            op(PointwiseMode::Add, &[5, 3]),
                        ],
                        stores: vec![store(6, 0, &[1, 64])],
                    },
                ],
            };
            let len = 64 * members;
            launches.add(&format!("{members} members"), &work, &several(n + slot), &[small(len, 4)], &[len], EXACT);
        }
    }
    launches.check();
}

#[test]
fn random_work_computes_its_definition() {
    let mut launches = Launches::default();
    for seed in 0..40 {
        let work = Random::new(seed).grouped();
        let reads: Vec<_> = (0..work.reads.len()).map(|t| small(LEN, t)).collect();
        let lens = vec![LEN; work.writes.len()];
        let choices = &several(seed as usize)[..if seed % 4 == 0 { 2 } else { 1 }];
        launches.add(&format!("seed {seed}: {work:?}"), &work, choices, &reads, &lens, EXACT);
    }
    launches.check();
}

#[test]
fn scalars_and_constants_go_to_the_passes_that_have_them() {
    use PointwiseMode::{Add, Mul};
    let mut launches = Launches::default();
    for (n, (groups, members)) in [(7, 101), (3, 70), (40, 127)].into_iter().enumerate() {
        let rows = [members as i64, 1];
        let work = Grouped {
            groups: vec![groups],
            members: vec![members],
            reads: vec![Element::F32, Element::F32],
            writes: vec![Element::F32],
            passes: vec![
                Pass::Reduce {
                    inputs: vec![read(0, &rows), Input::Scalar(2.0), Input::Scalar(-1.0)],
                    program: vec![op(Mul, &[0, 1]), op(Add, &[3, 2])],
                    folds: vec![Fold { mode: ReduceOp::Sum, slot: 4 }],
                },
                Pass::PerMember {
                    inputs: vec![
                        Input::Scalar(3.0),
                        Input::Tensor { tensor: 1, access: at(2, &rows), pad_value: 0.0 },
                        Input::Literal(0.5),
                    ],
                    program: vec![op(Mul, &[1, 2]), op(Add, &[4, 0]), Op::pointwise(Mul, &[5, 3])],
                    stores: vec![store(6, 0, &rows)],
                },
            ],
        };
        let len = groups * members;
        launches.add("scalars", &work, &several(n), &[small(len, 5), small(len + 2, 1)], &[len], EXACT);
    }
    launches.check();
}
