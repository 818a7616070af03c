//! Programs of `f32` whose operands are read where they lie, and whose results go where they belong.
//!
//! A [`Compiled`](super::Compiled) program loads each operand to a row and computes in the row of its first operand. Here
//! functions go from rows to another one: operands that are `f32` side by side need no row, the last function writes to the
//! output, and what is the same for a whole row is one value where the function takes that.

use hipdnn_cpu_kernels::activation::Operand;
use hipdnn_cpu_simd::isa::Isa;

use super::{Arg, Function, Program, SLOTS, Storage, Value, copy};

/// Placement of an input's elements along a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// `f32` side by side.
    Beside,
    /// One element for the whole row.
    Same,
    /// Anything else: they are loaded to a row.
    Apart,
}

/// Operand of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// Row of the program.
    Row(usize),
    /// Input, where it lies.
    Input(usize),
    /// Single value of an input.
    Same(usize),
}

/// Place of a step's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Row(usize),
    Output,
}

#[derive(Clone, Debug)]
struct Step {
    function: Function,
    operands: [Option<From>; 3],
    to: To,
    round: Option<Storage>,
}

/// A program with places for all its values.
#[derive(Clone, Debug)]
pub struct Direct {
    /// Inputs that are loaded, and their rows.
    loads: Vec<(usize, usize)>,
    steps: Vec<Step>,
    rows: usize,
}

/// Rows that have no value.
struct Free([bool; SLOTS], usize);

impl Free {
    fn take(&mut self) -> Option<usize> {
        let row = self.0.iter().position(|free| *free)?;
        self.0[row] = false;
        self.1 = self.1.max(row + 1);
        Some(row)
    }
}

impl Direct {
    /// Assigns places; `None` if more than [`SLOTS`] rows would be needed, or nothing is won. The output takes results
    /// where it is `f32` side by side.
    pub fn new(program: &Program, lies: &[Lie], output: bool) -> Option<Direct> {
        let reads = |function: &Function, input: usize, operand: usize| match lies[input] {
            Lie::Beside => Some(From::Input(input)),
            Lie::Same if function.arithmetic().is_some() && operand < 2 => Some(From::Same(input)),
            Lie::Same | Lie::Apart => None,
        };
        let mut free = Free([true; SLOTS], 0);
        let mut loads: Vec<(usize, usize)> = Vec::new();
        let last_use = |arg: Arg| program.steps.iter().rposition(|step| step.args.contains(&arg));
        let mut row_of = vec![None; program.steps.len()];
        let mut steps = Vec::with_capacity(program.steps.len());
        // They are all loaded before the first step: no step has their rows.
        for step in &program.steps {
            for (place, arg) in step.args.iter().enumerate() {
                if let Arg::Input(input) = *arg
                    && reads(&step.function, input, place).is_none()
                    && loads.iter().all(|(loaded, _)| *loaded != input)
                {
                    loads.push((input, free.take()?));
                }
            }
        }
        for (at, step) in program.steps.iter().enumerate() {
            let function = step.function;
            let mut operands = [None; 3];
            for (place, arg) in step.args.iter().enumerate() {
                operands[place] = Some(match *arg {
                    Arg::Step(of) => From::Row(row_of[of]?),
                    Arg::Input(input) => match reads(&function, input, place) {
                        Some(from) => from,
                        None => From::Row(loads.iter().find(|(loaded, _)| *loaded == input)?.1),
                    },
                });
            }
            let dying = |free: &mut Free, from: usize| {
                for arg in &step.args[from..] {
                    let row = match *arg {
                        Arg::Step(of) => row_of[of],
                        Arg::Input(_) => None,
                    };
                    if let (Some(row), true) = (row, last_use(*arg) == Some(at)) {
                        free.0[row] = true;
                    }
                }
            };
            let is_last = at + 1 == program.steps.len();
            let to = if function.is_direct() {
                dying(&mut free, 0);
                if is_last && output && step.round.is_none() { To::Output } else { To::Row(free.take()?) }
            } else {
                // In the place of its first operand: the others keep theirs until it is computed.
                let dies = last_use(step.args[0]) == Some(at) && !step.args[1..].contains(&step.args[0]);
                let row = match (step.args[0], operands[0]) {
                    (Arg::Step(_), Some(From::Row(row))) if dies => row,
                    _ => free.take()?,
                };
                dying(&mut free, 0);
                free.0[row] = false;
                To::Row(row)
            };
            if let To::Row(row) = to {
                row_of[at] = Some(row);
            }
            steps.push(Step { function, operands, to, round: step.round });
        }
        Some(Direct { loads, steps, rows: free.1 })
    }

    /// Number of rows that a run uses.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Computes `len` elements in `rows`, each of `pitch` values. `load(input, to)` reads an input, `address(input)` is
    /// where one lies; results are written at `output`, or left in the row that is returned.
    ///
    /// # Safety
    /// As many `f32` values can be read at the address of each input that lies side by side, one at that of one that is the
    /// same, and written at `output` if the program was made for one. The output may be an input, and overlaps none in any
    /// other way.
    pub unsafe fn run<'r>(
        &self,
        isa: Isa,
        (rows, pitch, len): (&'r mut [f32], usize, usize),
        mut load: impl FnMut(usize, &mut [f32]),
        address: impl Fn(usize) -> *const f32,
        output: *mut f32,
    ) -> Option<&'r mut [f32]> {
        assert!(rows.len() >= self.rows * pitch && len <= pitch, "as many rows as the program uses");
        let base = rows.as_mut_ptr();
        let place = |row: usize| base.wrapping_add(row * pitch);
        // SAFETY: rows are within `rows`, as asserted, and nothing else refers to one while it is borrowed.
        let row = |row: usize| unsafe { std::slice::from_raw_parts_mut(place(row), len) };
        for (input, to) in &self.loads {
            load(*input, row(*to));
        }
        let mut result = None;
        for step in &self.steps {
            let read = |from: From| match from {
                From::Row(row) => place(row).cast_const(),
                From::Input(input) | From::Same(input) => address(input),
            };
            let to = match step.to {
                To::Row(row) => place(row),
                To::Output => output,
            };
            if step.function.is_direct() {
                let operand = |operand: Option<From>| match operand {
                    // SAFETY: the caller's promise.
                    Some(From::Same(input)) => Operand::Same(unsafe { address(input).read() }),
                    Some(from) => Operand::Row(read(from)),
                    None => Operand::Row(to.cast_const()),
                };
                // SAFETY: rows of the program are within `rows`, those of inputs and output are the caller's promise; a row
                // that takes the results is an operand's own or none.
                unsafe {
                    step.function.apply_row(isa, to, [operand(step.operands[0]), operand(step.operands[1])], len)
                };
            } else {
                let To::Row(at) = step.to else { unreachable!("only functions of rows write to the output") };
                let slice = |from: Option<From>| match from {
                    // SAFETY: rows of the program are within `rows`, those of inputs are the caller's promise; none is
                    // the one that is written.
                    Some(from) => unsafe { std::slice::from_raw_parts(read(from), len) },
                    None => &[],
                };
                if step.operands[0] != Some(From::Row(at)) {
                    copy(slice(step.operands[0]), row(at));
                }
                <f32 as Value>::apply(&step.function, isa, row(at), slice(step.operands[1]), slice(step.operands[2]));
            }
            result = None;
            if let To::Row(at) = step.to {
                if let Some(storage) = step.round {
                    <f32 as Value>::round(storage, isa, row(at));
                }
                result = Some(at);
            }
        }
        result.map(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ComputeType, Parameters, ProgramStep};
    use hipdnn_schemas::PointwiseMode;

    #[test]
    fn random_programs_give_the_bits_of_rows() {
        use PointwiseMode::{Add, BinarySelect, CmpLt, Div, Erf, Exp, Max, Mul, ReluFwd, SigmoidFwd, Sqrt, Sub};
        const LEN: usize = 37;
        let mut random = fastrand::Rng::with_seed(5);
        let mut made = 0;
        for case in 0..2000 {
            let inputs = random.usize(1..=3);
            let count = random.usize(1..=6);
            let steps = (0..count)
                .map(|at| {
                    let mode = *random
                        .choice(&[Add, Sub, Mul, Div, Exp, Erf, Max, CmpLt, Sqrt, ReluFwd, SigmoidFwd, BinarySelect])
                        .unwrap();
                    let function = Function::new(mode, &Parameters::default()).unwrap();
                    let args = (0..function.operands())
                        .map(|_| match random.usize(0..at + inputs) {
                            input if input < inputs => Arg::Input(input),
                            step => Arg::Step(step - inputs),
                        })
                        .collect();
                    let round = (random.u8(0..6) == 0).then_some(Storage::BF16);
                    ProgramStep { function, args, round }
                })
                .collect();
            let program = Program { compute_type: ComputeType::F32, steps };
            let Some(compiled) = program.compile() else { continue };
            let lies: Vec<Lie> =
                (0..inputs).map(|_| [Lie::Beside, Lie::Same, Lie::Apart][random.usize(0..3)]).collect();
            let memory: Vec<Vec<f32>> = lies
                .iter()
                .map(|lie| {
                    let mut row: Vec<f32> = (0..LEN).map(|_| random.f32() * 6.0 - 3.0).collect();
                    if *lie == Lie::Same {
                        let first = row[0];
                        row.fill(first);
                    }
                    row
                })
                .collect();
            let mut rows = vec![f32::NAN; SLOTS * LEN];
            let want = compiled.run(Isa::best(), &mut rows, LEN, LEN, |input, to| to.copy_from_slice(&memory[input]));
            // Which NaN comes of two is anyone's guess.
            let bits =
                |row: &[f32]| row.iter().map(|v| if v.is_nan() { !0 } else { v.to_bits() }).collect::<Vec<u32>>();
            let want = bits(want);
            for output in [true, false] {
                let Some(direct) = Direct::new(&program, &lies, output) else { continue };
                made += 1;
                let (mut rows, mut to) = (vec![f32::NAN; SLOTS * LEN], vec![f32::NAN; LEN]);
                // In place of an input in every other case, which the program has then read.
                let mut memory = memory.clone();
                let shared = (0..inputs).find(|input| lies[*input] == Lie::Beside && case % 2 == 0);
                let at = shared.map_or(to.as_mut_ptr(), |input| memory[input].as_mut_ptr());
                let addresses: Vec<*const f32> = memory.iter().map(|row| row.as_ptr()).collect();
                let read = |input: usize, to: &mut [f32]| {
                    // SAFETY: every input has this number of values.
                    to.copy_from_slice(unsafe { std::slice::from_raw_parts(addresses[input], LEN) });
                };
                // SAFETY: inputs and output have this number of values.
                let left = unsafe { direct.run(Isa::best(), (&mut rows, LEN, LEN), read, |i| addresses[i], at) };
                let got = match left {
                    Some(row) => bits(row),
                    // SAFETY: the output has this number of values.
                    None => bits(unsafe { std::slice::from_raw_parts(at, LEN) }),
                };
                assert_eq!(got, want, "case {case}, {lies:?}, output {output}: {program}");
            }
        }
        assert!(made > 2000, "{made} are too few to say anything");
    }
}
