//! Kernels over groups on a device, where the process has one, against an evaluation by their definition in `f64`.

use hipdnn_schemas::PointwiseMode;

use super::*;
use crate::engine::host::pointwise::Parameters;
use crate::engine::miopen::gpu::DeviceMemory;
use crate::engine::miopen::kernels::arguments::MOST_BYTES;
use crate::engine::miopen::kernels::tests::{
    Bench, bench, decode, decoded, defined, encode, encoded, packed, rounded, ulp,
};

impl Bench {
    /// What the kernel of `work` leaves in buffers that held `writes` before.
    fn group(&self, work: &Grouped, choice: Choice, reads: &[Vec<u8>], writes: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let kernel = prepare_as(&self.device, work, &self.store, choice);
        self.launch_group(&kernel.unwrap_or_else(|error| panic!("{work:?}: {error}")), reads, writes, &[])
    }

    fn launch_group(
        &self,
        kernel: &PreparedGrouped,
        reads: &[Vec<u8>],
        writes: &[Vec<u8>],
        scalars: &[f64],
    ) -> Vec<Vec<u8>> {
        let _entered = self.device.enter().unwrap();
        let memory = |bytes: &Vec<u8>| {
            let memory = DeviceMemory::new(self.device.gpu(), bytes.len()).unwrap();
            memory.write(0, bytes, &self.stream).unwrap();
            memory
        };
        let reads: Vec<_> = reads.iter().map(memory).collect();
        let writes: Vec<_> = writes.iter().map(memory).collect();
        let sources: Vec<_> = reads.iter().map(|memory| memory.address().cast_const()).collect();
        let targets: Vec<_> = writes.iter().map(|memory| memory.address()).collect();
        // SAFETY: the buffers are as large as the caller made them for the work, and are read after the kernel.
        unsafe { kernel.launch_with(self.stream.raw().cast(), &sources, &targets, scalars) }.unwrap();
        let read = |memory: &DeviceMemory| {
            let mut bytes = vec![0; memory.bytes()];
            memory.read(0, &mut bytes, &self.stream).unwrap();
            bytes
        };
        writes.iter().map(read).collect()
    }
}

/// The indices of all elements of some loops, in order.
fn indices(extents: &[usize]) -> Vec<Vec<i64>> {
    let mut all = vec![Vec::new()];
    for extent in extents {
        all = all.iter().flat_map(|index| (0..*extent as i64).map(move |i| [&index[..], &[i]].concat())).collect();
    }
    all
}

/// Where an element lies, by the definition; `None` outside.
fn place(access: &Access, index: &[i64]) -> Option<i64> {
    let along = |steps: &[i64]| index.iter().zip(steps).map(|(i, step)| i * step).sum::<i64>();
    let mut at = access.offset + along(&access.strides);
    for bound in &access.bounds {
        let (i, divisor) = (bound.offset + along(&bound.steps), bound.divisor as i64);
        if i < 0 || i % divisor != 0 || i / divisor >= bound.extent as i64 {
            return None;
        }
        at += i / divisor * bound.stride;
    }
    Some(at)
}

/// The slots of a program for some index.
fn run(
    kept: &[f64],
    parts: &check::Parts<'_>,
    index: &[i64],
    reads: &[Vec<f64>],
    scalars: &mut impl Iterator<Item = f64>,
) -> Vec<f64> {
    let mut slots = kept.to_vec();
    for input in parts.inputs {
        slots.push(match input {
            Input::Literal(value) => *value,
            Input::Scalar(value) => scalars.next().unwrap_or(*value),
            Input::Index { axis } => index[*axis] as f64,
            Input::Inside(access) => f64::from(u8::from(place(access, index).is_some())),
            Input::Tensor { tensor, access, outside } => {
                place(access, index).map_or(*outside, |at| reads[*tensor][at as usize])
            }
        });
    }
    for op in parts.program {
        slots.push(match op {
            Op::Round { to, operand } => rounded(*to, slots[*operand]),
            Op::Pointwise { mode, parameters, operands } => {
                let operands: Vec<f64> = operands.iter().map(|slot| slots[*slot]).collect();
                defined(*mode, parameters, &operands)
            }
        });
    }
    slots
}

/// What a fold leaves behind, of the slots of all members in order.
fn fold(fold: &Fold, members: &[Vec<f64>]) -> Vec<f64> {
    let values = || members.iter().map(|slots| slots[fold.slot]);
    let pick = |better: fn(f64, f64) -> bool, none: f64| {
        values().fold(none, |a, b| if a.is_nan() || (!b.is_nan() && !better(b, a)) { a } else { b })
    };
    match fold.mode {
        FoldMode::Sum => vec![values().sum()],
        FoldMode::Product => vec![values().product()],
        FoldMode::Least => vec![pick(|b, a| b < a, f64::INFINITY)],
        FoldMode::Greatest => vec![pick(|b, a| b > a, f64::NEG_INFINITY)],
        FoldMode::FirstGreatest { at } => {
            let greatest = pick(|b, a| b > a, f64::NEG_INFINITY);
            let same = |v: f64| v == greatest || (v.is_nan() && greatest.is_nan());
            let first = members.iter().find(|slots| same(slots[fold.slot]));
            vec![greatest, first.map_or(-1.0, |slots| slots[at])]
        }
    }
}

/// What a kernel is to leave in buffers of some values: all steps by their definition, in `f64`.
fn evaluate(work: &Grouped, reads: &[Vec<f64>], writes: &[Vec<f64>], scalars: &[f64]) -> Vec<Vec<f64>> {
    let mut writes = writes.to_vec();
    for group in indices(&work.groups) {
        let mut kept: Vec<f64> = Vec::new();
        let mut rest = scalars;
        for phase in &work.phases {
            let parts = phase.parts();
            let count = parts.inputs.iter().filter(|input| matches!(input, Input::Scalar(_))).count();
            let (own, others) = rest.split_at(count.min(rest.len()));
            rest = others;
            let members = if parts.members { indices(&work.members) } else { vec![vec![0; work.members.len()]] };
            let slots: Vec<Vec<f64>> = members
                .iter()
                .map(|member| run(&kept, &parts, &[&group[..], member].concat(), reads, &mut own.iter().copied()))
                .collect();
            for (member, slots) in members.iter().zip(&slots) {
                let index = [&group[..], member].concat();
                for store in parts.stores {
                    let at = place(&store.access, &index).unwrap();
                    writes[store.tensor][at as usize] = slots[store.slot];
                }
            }
            kept.extend(parts.folds.iter().flat_map(|one| fold(one, &slots)));
            kept.extend(parts.keep.iter().map(|slot| slots[0][*slot]));
        }
    }
    writes
}

/// Elements at `offset` and further along the loops.
fn at(offset: i64, strides: &[i64]) -> Access {
    Access { offset, strides: strides.to_vec(), bounds: Vec::new() }
}

fn read(tensor: usize, strides: &[i64]) -> Input {
    Input::Tensor { tensor, access: at(0, strides), outside: 0.0 }
}

fn store(slot: usize, tensor: usize, strides: &[i64]) -> Store {
    Store { slot, tensor, access: at(0, strides) }
}

/// The mappings that differ.
const MAPPINGS: [Mapping; 7] = [
    Mapping { side: 256, lanes: 1, lanes_first: false },
    Mapping { side: 64, lanes: 4, lanes_first: false },
    Mapping { side: 8, lanes: 32, lanes_first: false },
    Mapping { side: 8, lanes: 128, lanes_first: false },
    Mapping { side: 1, lanes: 256, lanes_first: true },
    Mapping { side: 16, lanes: 16, lanes_first: true },
    Mapping { side: 1, lanes: 1024, lanes_first: true },
];

/// Runs the work with every mapping on the values, with narrow and wide indices, and compares all that is written: within so
/// many units in the last place.
fn check_all(bench: &Bench, what: &str, work: &Grouped, reads: &[Vec<f64>], writes: &[usize], units: f64) {
    let encode_all = |values: &[Vec<f64>], elements: &[Element]| -> Vec<Vec<u8>> {
        values.iter().zip(elements).map(|(values, element)| encoded(*element, values)).collect()
    };
    let reads: Vec<Vec<f64>> = reads
        .iter()
        .zip(&work.reads)
        .map(|(values, element)| values.iter().map(|v| decode(*element, &encode(*element, *v))).collect())
        .collect();
    let before: Vec<Vec<f64>> = writes.iter().map(|len| vec![77.0; *len]).collect();
    let want = evaluate(work, &reads, &before, &[]);
    let (source, target) = (encode_all(&reads, &work.reads), encode_all(&before, &work.writes));
    let mut choices: Vec<Choice> = vec![Choice::default()];
    choices.extend(MAPPINGS.iter().map(|mapping| Choice { mapping: Some(*mapping), wide: false }));
    choices.extend([0, 2, 4].map(|m| Choice { mapping: Some(MAPPINGS[m]), wide: true }));
    for choice in choices {
        let got = bench.group(work, choice, &source, &target);
        for (t, (got, want)) in got.iter().zip(&want).enumerate() {
            let element = work.writes[t];
            for (i, (got, want)) in decoded(element, got).iter().zip(want).enumerate() {
                let want = decode(element, &encode(element, *want));
                let bound = units * ulp(element, want);
                let same = *got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= bound;
                assert!(same, "{what}, {choice:?}: element {i} of tensor {t} is {got}, wanted {want}");
            }
        }
    }
}

/// Small whole numbers, of which sums are exact.
fn small(len: usize, seed: usize) -> Vec<f64> {
    (0..len).map(|i| ((i * (2 * seed + 3) * 7 + i / 11 + seed) % 15) as f64 - 7.0).collect()
}

/// A fold over tensor 0, whose result goes to tensor 0.
fn reduction(groups: &[usize], members: &[usize], strides: &[i64], mode: FoldMode, types: [Element; 2]) -> Grouped {
    let loops = [packed(groups), vec![0; members.len()]].concat();
    Grouped {
        groups: groups.to_vec(),
        members: members.to_vec(),
        reads: vec![types[0]],
        writes: vec![types[1]],
        phases: vec![
            Phase::Fold { inputs: vec![read(0, strides)], program: vec![], folds: vec![Fold { mode, slot: 0 }] },
            Phase::Once { inputs: vec![], program: vec![], keep: vec![], stores: vec![store(0, 0, &loops)] },
        ],
    }
}

#[test]
fn reductions_smoke() {
    let Some(bench) = bench("reductions_smoke") else { return };
    let work = reduction(&[5], &[70], &[70, 1], FoldMode::Sum, [Element::F32, Element::F32]);
    println!("{}", generate(&work, Choice::default()).unwrap().unwrap().source.text);
    check_all(&bench, "rows", &work, &[small(350, 1)], &[5], 0.0);
}
