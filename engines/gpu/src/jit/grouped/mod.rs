//! Kernels over groups on a device, where the process has one, against an evaluation by their definition in `f64`.

mod random;
mod windows;

use hipdnn_engine_kernel::emit::Element;
use hipdnn_engine_kernel::emit::grouped::testing::{
    MAPPINGS, at, evaluate, folds, layer_norm, op, read, softmax, store,
};
use hipdnn_engine_kernel::emit::grouped::{Access, Choice, Fold, Grouped, Input, Pass, ReduceOp, ThreadMap};
use hipdnn_engine_kernel::emit::testing::{decode, decoded, encode, encoded, rounded, ulp};
use hipdnn_schemas::PointwiseMode;

use super::tests::{Bench, bench};
use super::*;
use crate::hip::{DeviceMemory, Queue};

impl Bench {
    /// Contents that the kernel of `work` leaves in buffers that held `writes` before.
    fn group(&self, work: &Grouped, choice: Choice, reads: &[Vec<u8>], writes: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let kernel = PreparedKernel::new(self.context.kernels(), work, work.source_with(choice).unwrap(), &self.store);
        self.launch_group(&kernel.unwrap_or_else(|error| panic!("{work:?}: {error}")), reads, writes, &[])
    }

    fn launch_group(
        &self,
        kernel: &PreparedKernel,
        reads: &[Vec<u8>],
        writes: &[Vec<u8>],
        scalars: &[f64],
    ) -> Vec<Vec<u8>> {
        let _entered = self.context.device().enter().unwrap();
        let memory = |bytes: &Vec<u8>| {
            let memory = DeviceMemory::new(self.context.device().gpu(), bytes.len()).unwrap();
            memory.write(0, bytes, &self.stream).unwrap();
            memory
        };
        let reads: Vec<_> = reads.iter().map(memory).collect();
        let writes: Vec<_> = writes.iter().map(memory).collect();
        let sources: Vec<_> = reads.iter().map(|memory| memory.address().cast_const()).collect();
        let targets: Vec<_> = writes.iter().map(|memory| memory.address()).collect();
        // SAFETY: the buffers are as large as the caller made them for the work, and are read after the kernel.
        unsafe { kernel.launch(&mut Queue::new(self.stream.raw().cast()), &sources, &targets, scalars) }.unwrap();
        let read = |memory: &DeviceMemory| {
            let mut bytes = vec![0; memory.bytes()];
            memory.read(0, &mut bytes, &self.stream).unwrap();
            bytes
        };
        writes.iter().map(read).collect()
    }
}

/// Choices to test: the work's own and two of [`MAPPINGS`], with narrow and wide indices; others for another number.
fn several(n: usize) -> Vec<Choice> {
    let mapping = |m: usize, wide| Choice { mapping: Some(MAPPINGS[m % MAPPINGS.len()]), wide };
    vec![Choice { mapping: None, wide: n % 3 == 2 }, mapping(n, false), mapping(n + 3, n % 2 == 1)]
}

/// One thread for a group, several that are apart, and a block.
fn some() -> Vec<Choice> {
    [0, 2, 4].map(|m| Choice { mapping: Some(MAPPINGS[m]), wide: m == 2 }).to_vec()
}

/// As they are after they have been written as that type.
fn kept_as(element: Element, values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| decode(element, &encode(element, *value))).collect()
}

/// Tolerance of results: within so many units in the last place, of a value that is at least so large.
#[derive(Clone, Copy)]
struct Near {
    units: f64,
    scale: f64,
}

const EXACT: Near = Near { units: 0.0, scale: 0.0 };

/// Runs the work in different ways on the values, and compares all of the buffers it writes, whose lengths these are.
fn check(
    bench: &Bench,
    what: &str,
    work: &Grouped,
    choices: &[Choice],
    reads: &[Vec<f64>],
    lens: &[usize],
    near: Near,
) {
    let reads: Vec<_> = reads.iter().zip(&work.reads).map(|(values, element)| kept_as(*element, values)).collect();
    // Places that nothing is written to keep this.
    let before: Vec<_> =
        lens.iter().zip(&work.writes).map(|(len, element)| kept_as(*element, &vec![1.0; *len])).collect();
    let want = evaluate(work, &reads, &before, &[]);
    let bytes = |values: &[Vec<f64>], elements: &[Element]| {
        values.iter().zip(elements).map(|(values, element)| encoded(*element, values)).collect::<Vec<_>>()
    };
    let (source, target) = (bytes(&reads, &work.reads), bytes(&before, &work.writes));
    for choice in choices {
        let got = bench.group(work, *choice, &source, &target);
        for (t, (got, want)) in got.iter().zip(&want).enumerate() {
            let element = work.writes[t];
            for (i, (got, want)) in decoded(element, got).iter().zip(kept_as(element, want)).enumerate() {
                // What is computed has many more digits than the shorter types.
                let (units, scale) =
                    if element.bytes() == 2 { (near.units.min(1.0), 0.01) } else { (near.units, near.scale) };
                let near = (got - want).abs() <= units * ulp(element, want.abs().max(scale));
                let same = *got == want || (got.is_nan() && want.is_nan()) || near;
                assert!(same, "{what}, {choice:?}: element {i} of tensor {t}: expected {want:e}, got {got:e}");
            }
        }
    }
}

/// Small whole numbers, of which sums are exact.
fn small(len: usize, seed: usize) -> Vec<f64> {
    (0..len).map(|i| ((i * (2 * seed + 3) * 7 + i / 11 + seed) % 15) as f64 - 7.0).collect()
}

/// Name, groups, members and strides.
type Layout<'a> = (&'a str, &'a [usize], &'a [usize], &'a [i64]);

/// Numbers of which even long products are exact.
fn tame(len: usize) -> Vec<f64> {
    (0..len).map(|i| if i % 97 == 5 { 2.0 } else { [1.0, -1.0, 1.0][i % 3] }).collect()
}

/// Elements from the first to the last one that loops of those strides reach.
fn span(extents: &[usize], strides: &[i64]) -> usize {
    extents.iter().zip(strides).map(|(extent, stride)| (*extent - 1) * stride.unsigned_abs() as usize).sum::<usize>()
        + 1
}

#[test]
fn every_fold_over_any_layout_gives_its_definition() {
    let Some(bench) = bench("every_fold_over_any_layout_gives_its_definition") else { return };
    let cases: &[Layout<'_>] = &[
        ("rows", &[5], &[70], &[70, 1]),
        ("rows of vectors", &[5], &[3, 36], &[300, 40, 1]),
        ("rows that end within a vector", &[20], &[2, 35], &[100, 50, 1]),
        ("columns", &[67], &[45], &[1, 67]),
        ("columns in vectors", &[64], &[45], &[1, 64]),
        ("columns in short vectors", &[3, 14], &[37, 2], &[14, 1, 42, 1600]),
        ("channels last in vectors", &[24], &[2, 11], &[1, 264, 24]),
        ("padded rows, backwards", &[9], &[33], &[-40, -1]),
        ("channels", &[3], &[4, 35], &[35, 105, 1]),
        ("channels last", &[70], &[3, 11], &[1, 770, 70]),
        ("everything", &[], &[2, 300], &[300, 1]),
        ("one member", &[300], &[1], &[1, 5]),
        ("no loop over members", &[3, 50], &[], &[50, 1]),
        ("neither", &[], &[], &[]),
        ("members against the order of memory", &[4], &[6, 5, 7], &[210, 1, 6, 30]),
        ("three loops with gaps", &[2, 3], &[3, 4, 5], &[1000, 400, 130, 24, 2]),
        ("the same for all groups", &[3, 4], &[20], &[0, 0, 1]),
        ("groups that repeat", &[5, 3], &[40], &[40, 0, 1]),
        ("members that repeat", &[6], &[5, 9], &[9, 0, 1]),
        ("loops of one", &[1, 7, 1], &[1, 9, 1], &[5, 9, 3, 0, 1, 8]),
        ("groups between members", &[5, 3], &[7, 4], &[4, 140, 20, 1]),
    ];
    for (n, (what, groups, members, strides)) in cases.iter().enumerate() {
        let mut work = folds(groups, members, strides, Element::F32, Element::F32);
        let extents = [*groups, members].concat();
        let len = span(&extents, strides);
        // Negative strides go back from the end.
        if strides.iter().any(|stride| *stride < 0) {
            let Pass::Reduce { inputs, .. } = &mut work.passes[0] else {
                unreachable!("the first pass is a reduction")
            };
            for input in inputs {
                if let Input::Tensor { access, .. } = input {
                    access.offset = len as i64 - 1;
                }
            }
        }
        let total = groups.iter().product::<usize>();
        check(&bench, what, &work, &several(n), &[small(len, 3), tame(len)], &[total; 6], EXACT);
    }
}

#[test]
fn every_type_is_folded() {
    let Some(bench) = bench("every_type_is_folded") else { return };
    for element in Element::ALL {
        for (groups, members, strides) in [(&[5], &[40], &[40, 1]), (&[40], &[13], &[1, 40])] {
            let work = folds(groups, members, strides, *element, *element);
            check(&bench, &format!("{element:?}"), &work, &some(), &[small(600, 3), tame(600)], &[groups[0]; 6], EXACT);
        }
    }
}

/// Numbers between -2 and 2 without a pattern.
fn mixed(len: usize, seed: u64) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| f64::from(4.0 * random.f32() - 2.0)).collect()
}

#[test]
fn normalizations_are_one_kernel() {
    let Some(bench) = bench("normalizations_are_one_kernel") else { return };
    let cases: &[Layout<'_>] = &[
        ("rows", &[6], &[77], &[77, 1]),
        ("rows of vectors", &[6], &[64], &[80, 1]),
        ("columns", &[66], &[40], &[1, 66]),
        ("columns in vectors", &[72], &[40], &[1, 72]),
        ("channels", &[5], &[3, 50], &[50, 250, 1]),
        ("rows in pieces", &[2, 3], &[5, 9], &[900, 5, 15, 100]),
    ];
    for (n, (what, groups, members, strides)) in cases.iter().enumerate() {
        let extents = [*groups, members].concat();
        let (len, outer, inner) = (span(&extents, strides), groups.iter().product(), members.iter().product());
        for element in [Element::F32, Element::F16, Element::BF16, Element::F64] {
            let what = format!("{what} of {element:?}");
            let choices = if element == Element::F32 { several(n) } else { some()[n % 3..][..1].to_vec() };
            let work = softmax(groups, members, strides, element);
            check(
                &bench,
                &format!("softmax, {what}"),
                &work,
                &choices,
                &[mixed(len, 1)],
                &[len],
                Near { units: 8.0, scale: 0.0 },
            );
            let work = layer_norm(groups, members, strides, element);
            let reads = [mixed(len, 2), mixed(inner, 3), vec![3.0; inner]];
            check(
                &bench,
                &format!("layer norm, {what}"),
                &work,
                &choices,
                &reads,
                &[len, outer, outer],
                Near { units: 8.0, scale: 4.0 },
            );
        }
    }
}

/// A fold of tensor 0 to tensor 0.
fn reduction(groups: usize, members: usize, strides: [i64; 2], mode: ReduceOp, element: Element) -> Grouped {
    let at = if let ReduceOp::ArgMax { at } = mode { at } else { 0 };
    Grouped {
        groups: vec![groups],
        members: vec![members],
        reads: vec![element],
        writes: vec![element; 2],
        passes: vec![
            Pass::Reduce {
                inputs: vec![read(0, &strides), Input::Index { axis: 1 }],
                program: vec![],
                folds: vec![Fold { mode, slot: 0 }, Fold { mode: ReduceOp::Max, slot: at }],
            },
            Pass::PerGroup {
                inputs: vec![],
                program: vec![],
                keep: vec![],
                stores: vec![store(0, 0, &[1, 0]), store(1, 1, &[1, 0])],
            },
        ],
    }
}

#[test]
fn what_is_no_number_and_what_is_infinite_is_found_first() {
    let Some(bench) = bench("what_is_no_number_and_what_is_infinite_is_found_first") else { return };
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let rows: &[&[(usize, f64)]] = &[
        &[],
        &[(7, nan)],
        &[(30, nan), (3, nan), (2, inf)],
        &[(9, inf), (40, inf)],
        &[(0, -inf)],
        &[(39, nan)],
        &[(20, inf), (21, -inf)],
    ];
    let mut values = mixed(40 * (rows.len() + 3), 9);
    for (row, places) in rows.iter().enumerate() {
        for (place, value) in *places {
            values[40 * row + place.min(&39)] = *value;
        }
    }
    // Nothing but the least of all; nothing but no numbers; equal ones.
    for (row, value) in [(rows.len(), -inf), (rows.len() + 1, nan), (rows.len() + 2, 3.0)] {
        values[40 * row..40 * (row + 1)].fill(value);
    }
    let groups = rows.len() + 3;
    let near = Near { units: 1.0, scale: 4.0 };
    for element in [Element::F32, Element::F64, Element::F16] {
        for mode in [ReduceOp::ArgMax { at: 1 }, ReduceOp::Max, ReduceOp::Min, ReduceOp::Sum] {
            let what = format!("{mode:?} of {element:?}");
            let choices = if element == Element::F32 { several(3) } else { some() };
            let work = reduction(groups, 40, [40, 1], mode, element);
            check(&bench, &what, &work, &choices, &[values.clone()], &[groups; 2], near);
        }
    }
}

#[test]
fn equal_whole_numbers_are_told_apart_and_sums_saturate() {
    let Some(bench) = bench("equal_whole_numbers_are_told_apart_and_sums_saturate") else { return };
    let one = 1i64 << 53;
    let rows: [[i64; 4]; 5] = [
        [one, one + 1, one + 1, 5],
        [i64::MIN; 4],
        [i64::MAX, 1, 0, -2],
        [i64::MIN, 0, -1, 3],
        [-3, 3, 1 << 31, 1 << 32],
    ];
    let bytes: Vec<u8> = rows.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
    let whole = |bytes: &[u8]| -> Vec<i64> {
        bytes.chunks(8).map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap())).collect()
    };
    // One thread for each group: the order is that of the members.
    let choice = Choice { mapping: Some(MAPPINGS[0]), wide: false };
    type Function = fn(&[i64; 4]) -> [i64; 2];
    let cases: [(ReduceOp, Function); 4] = [
        (ReduceOp::Sum, |row| [row.iter().fold(0, |a: i64, b| a.saturating_add(*b)), *row.iter().max().unwrap()]),
        (ReduceOp::Product, |row| [row.iter().fold(1, |a: i64, b| a.saturating_mul(*b)), *row.iter().max().unwrap()]),
        (ReduceOp::Min, |row| [*row.iter().min().unwrap(), *row.iter().max().unwrap()]),
        (ReduceOp::ArgMax { at: 1 }, |row| {
            let most = row.iter().max().unwrap();
            [*most, row.iter().position(|v| v == most).unwrap() as i64]
        }),
    ];
    for (mode, want) in cases {
        let work = reduction(5, 4, [4, 1], mode.clone(), Element::I64);
        assert!(work.source_with(choice).unwrap().unwrap().text.contains("typedef long real"));
        let got = bench.group(&work, choice, std::slice::from_ref(&bytes), &[vec![0; 40], vec![0; 40]]);
        let want: Vec<_> = rows.iter().map(want).collect();
        for t in 0..2 {
            assert_eq!(whole(&got[t]), want.iter().map(|pair| pair[t]).collect::<Vec<_>>(), "{mode:?}, tensor {t}");
        }
    }
}

#[test]
fn long_sums_are_as_good_as_short_ones() {
    let Some(bench) = bench("long_sums_are_as_good_as_short_ones") else { return };
    const LEN: usize = 100_000;
    for element in [Element::F32, Element::F64] {
        // All of one sign, so that what is rounded off adds up; then a large one on top.
        let mut values: Vec<f64> = mixed(LEN, 4).iter().map(|v| rounded(element, v.abs() + 0.1)).collect();
        values[3] = 1e5;
        // In parts, so that the sum that is wanted is exact to the last digits of f64.
        let parts = values.iter().map(|v| (v * 1048576.0).floor());
        let rest = values.iter().map(|v| v - (v * 1048576.0).floor() / 1048576.0);
        let want = rounded(element, parts.sum::<f64>() / 1048576.0 + rest.sum::<f64>());
        for mapping in [None, Some(MAPPINGS[0]), Some(MAPPINGS[4]), Some(MAPPINGS[6])] {
            let work = reduction(1, LEN, [0, 1], ReduceOp::Sum, element);
            let before = vec![encoded(element, &[0.0]); 2];
            let got = bench.group(&work, Choice { mapping, wide: false }, &[encoded(element, &values)], &before);
            let got = decoded(element, &got[0])[0];
            let units = (got - want).abs() / ulp(element, want);
            assert!(units <= 1.0, "{mapping:?} of {element:?}: expected {want}, got {got}: {units} units");
        }
    }
}

#[test]
fn more_groups_than_blocks_are_gone_through() {
    let Some(bench) = bench("more_groups_than_blocks_are_gone_through") else { return };
    // A block for each group, and more of them than are launched.
    const GROUPS: usize = (1 << 14) + 700;
    let work = reduction(GROUPS, 3, [3, 1], ReduceOp::ArgMax { at: 1 }, Element::F32);
    let choices = [Choice { mapping: Some(ThreadMap { side: 1, lanes: 4, lanes_first: true }), wide: false }];
    check(&bench, "a block for each", &work, &choices, &[small(3 * GROUPS, 1)], &[GROUPS; 2], EXACT);
}

#[test]
fn elements_may_be_written_where_they_are_read() {
    let Some(bench) = bench("elements_may_be_written_where_they_are_read") else { return };
    for (groups, members, strides) in
        [(vec![6], vec![77], vec![77, 1]), (vec![66], vec![50], vec![1, 66]), (vec![64], vec![50], vec![1, 64])]
    {
        // Means, which a pass of its own adds to: in place too.
        let mut work = layer_norm(&groups, &members, &strides, Element::F32);
        let Pass::PerGroup { inputs, program, keep, .. } = &mut work.passes[1] else {
            unreachable!("that of the mean")
        };
        inputs.push(Input::Tensor { tensor: 3, access: at(0, &[1, 0]), pad_value: 0.0 });
        program[0] = op(PointwiseMode::Div, &[0, 1]);
        program.push(op(PointwiseMode::Add, &[3, 2]));
        keep[0] = 4;
        let Pass::PerGroup { stores, .. } = &mut work.passes[1] else { unreachable!("that of the mean") };
        stores[0].slot = 4;
        work.reads.push(Element::F32);
        let (len, outer, inner) = (groups[0] * members[0], groups[0], members[0]);
        let reads = [mixed(len, 2), mixed(inner, 3), mixed(inner, 4), mixed(outer, 5)];
        let reads: Vec<_> = reads.iter().map(|values| kept_as(Element::F32, values)).collect();
        let want = evaluate(&work, &reads, &[vec![0.0; len], vec![0.0; outer], vec![0.0; outer]], &[]);
        for choice in several(2).into_iter().chain(some()) {
            let kernel =
                PreparedKernel::new(bench.context.kernels(), &work, work.source_with(choice).unwrap(), &bench.store)
                    .unwrap();
            let _entered = bench.context.device().enter().unwrap();
            let memory = |values: &[f64]| {
                let bytes = encoded(Element::F32, values);
                let memory = DeviceMemory::new(bench.context.device().gpu(), bytes.len()).unwrap();
                memory.write(0, &bytes, &bench.stream).unwrap();
                memory
            };
            let memory: Vec<_> = reads.iter().map(|values| memory(values)).chain([memory(&vec![0.0; outer])]).collect();
            let address = |m: usize| memory[m].address();
            let (sources, targets) =
                ([0, 1, 2, 3].map(|m| address(m).cast_const()), [address(0), address(3), address(4)]);
            // SAFETY: the buffers have the elements of the work, and are read after the kernel.
            unsafe { kernel.launch(&mut Queue::new(bench.stream.raw().cast()), &sources, &targets, &[]) }.unwrap();
            for (m, want) in [0, 3, 4].into_iter().zip(&want) {
                let mut bytes = vec![0; memory[m].bytes()];
                memory[m].read(0, &mut bytes, &bench.stream).unwrap();
                for (i, (got, want)) in decoded(Element::F32, &bytes).iter().zip(want).enumerate() {
                    let near = (got - want).abs() <= 8.0 * ulp(Element::F32, 4.0);
                    assert!(near, "{choice:?}: element {i} of buffer {m}: expected {want}, got {got}");
                }
            }
        }
    }
}

#[test]
fn one_kernel_serves_many_shapes_and_scalars() {
    let Some(bench) = bench("one_kernel_serves_many_shapes_and_scalars") else { return };
    use PointwiseMode::{Add, Mul};
    // Σ (x · a) + b, then y = x · c + that; two scalars in the first pass, one in the second.
    let work = |groups: usize, members: usize| Grouped {
        groups: vec![groups],
        members: vec![members],
        reads: vec![Element::F32],
        writes: vec![Element::F32],
        passes: vec![
            Pass::Reduce {
                inputs: vec![read(0, &[members as i64, 1]), Input::Scalar(2.0), Input::Scalar(-1.0)],
                program: vec![op(Mul, &[0, 1]), op(Add, &[3, 2])],
                folds: vec![Fold { mode: ReduceOp::Sum, slot: 4 }],
            },
            Pass::PerMember {
                inputs: vec![Input::Scalar(3.0), read(0, &[members as i64, 1])],
                program: vec![op(Mul, &[1, 2]), op(Add, &[3, 0])],
                stores: vec![store(4, 0, &[members as i64, 1])],
            },
        ],
    };
    let mut functions = Vec::new();
    for (groups, members) in [(7, 101), (3, 70), (40, 127)] {
        let work = work(groups, members);
        let kernel = prepare(bench.context.kernels(), &work, &bench.store).unwrap();
        let values = small(groups * members, 5);
        for scalars in [&[][..], &[1.0, 4.0, -2.0]] {
            let want = evaluate(&work, std::slice::from_ref(&values), &[vec![0.0; values.len()]], scalars);
            let bytes = encoded(Element::F32, &values);
            let got = bench.launch_group(&kernel, std::slice::from_ref(&bytes), std::slice::from_ref(&bytes), scalars);
            assert_eq!(decoded(Element::F32, &got[0]), want[0], "{groups} by {members}, {scalars:?}");
        }
        functions.push(kernel.kernel.as_ref().unwrap().compiled.function());
    }
    assert!(functions.iter().all(|function| *function == functions[0]), "one code object");

    let kernel = prepare(bench.context.kernels(), &work(3, 4), &bench.store).unwrap();
    let null = std::ptr::null_mut();
    // SAFETY: nothing is launched.
    let errors = unsafe {
        let stream = bench.stream.raw().cast();
        [
            kernel.launch(&mut Queue::new(stream), &[], &[null], &[]),
            kernel.launch(&mut Queue::new(stream), &[null], &[null, null], &[]),
            kernel.launch(&mut Queue::new(stream), &[null], &[null], &[1.0]),
        ]
    };
    for (error, want) in errors.into_iter().zip([
        "expected 1 tensors to read and 1 to write, got 0 and 1",
        "expected 1 tensors to read and 1 to write, got 1 and 2",
        "expected values for the kernel's 3 scalars, got 1",
    ]) {
        assert_eq!(error.unwrap_err().to_string(), want);
    }
}

#[test]
fn no_members_leave_what_folds_begin_with() {
    let Some(bench) = bench("no_members_leave_what_folds_begin_with") else { return };
    for members in [&[0][..], &[3, 0, 2]] {
        let strides = vec![1; 1 + members.len()];
        let work = folds(&[5], members, &strides, Element::F32, Element::F32);
        check(&bench, "folds", &work, &several(0), &[vec![1.0], vec![1.0]], &[5; 6], EXACT);
    }
    let work = folds(&[5], &[0], &[1, 1], Element::I32, Element::I32);
    check(&bench, "of whole numbers", &work, &some(), &[vec![1.0], vec![1.0]], &[5; 6], EXACT);
    // Nothing is written for no members, and nothing is launched for no groups.
    let work = softmax(&[5], &[0], &[1, 1], Element::F32);
    check(&bench, "each", &work, &several(0), &[vec![1.0]], &[9], EXACT);
    let kernel =
        prepare(bench.context.kernels(), &softmax(&[5, 0], &[7], &[7, 7, 1], Element::F32), &bench.store).unwrap();
    let null = std::ptr::null_mut();
    // SAFETY: there is no element to read or write.
    unsafe { kernel.launch(&mut Queue::new(bench.stream.raw().cast()), &[null], &[null], &[]) }.unwrap();
    assert_eq!(kernel.mapping(), "nothing to do");
}

#[test]
fn kernels_compile_for_other_devices_too() {
    let Some(bench) = bench("kernels_compile_for_other_devices_too") else { return };
    let work = folds(&[3], &[4, 35], &[35, 105, 1], Element::F16, Element::F16);
    let text = |wide| work.source_with(Choice { mapping: None, wide }).unwrap().unwrap().text;
    // With waves of 64 and of 32.
    for (arch, wide) in [("gfx906", false), ("gfx942", true), ("gfx1030", true), ("gfx1201", false)] {
        let code = compile::compile(bench.context.device().gpu(), arch, &text(wide)).unwrap();
        assert!(code.starts_with(b"\x7fELF"), "{arch}");
    }
}

#[test]
fn what_all_members_share_is_folded() {
    let Some(bench) = bench("what_all_members_share_is_folded") else { return };
    use ReduceOp::{ArgMax, Max, Min, Product, Sum};
    for element in [Element::F64, Element::F32] {
        for value in [-5.0, 5.0] {
            // An element, an argument and a constant; beside them what keeps the loops apart.
            let strides = [0, 7, 2, 30];
            let inputs = vec![
                read(0, &[0; 4]),
                Input::Scalar(value),
                Input::Literal(value),
                read(1, &strides),
                Input::Index { axis: 2 },
            ];
            for slot in 0..3 {
                let modes = [Max, Min, Sum, Product, ArgMax { at: 4 }];
                let folds = modes.map(|mode| Fold { mode, slot }).to_vec();
                let seen = [Fold { mode: ArgMax { at: slot }, slot: 3 }];
                let work = Grouped {
                    groups: vec![3],
                    members: vec![3, 4, 5],
                    reads: vec![element; 2],
                    writes: vec![element; 8],
                    passes: vec![
                        Pass::Reduce { inputs: inputs.clone(), program: vec![], folds: [&folds[..], &seen].concat() },
                        Pass::PerGroup {
                            inputs: vec![],
                            program: vec![],
                            keep: vec![],
                            stores: (0..8).map(|k| store(k, k, &[1, 0, 0, 0])).collect(),
                        },
                    ],
                };
                let what = format!("{:?} of {element:?}", inputs[slot]);
                let near = Near { units: 1.0, scale: 0.0 };
                check(&bench, &what, &work, &some(), &[vec![value], small(200, 1)], &[3; 8], near);
            }
        }
    }
}
