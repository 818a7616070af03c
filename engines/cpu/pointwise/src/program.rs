//! Pointwise programs: one or several functions, computed one after the other while the values are in the first cache.

use std::fmt;

use smallvec::{SmallVec, smallvec};

use super::{Function, Storage, Value, copy};
use hipdnn_cpu_simd::isa::Isa;

/// Compute type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ComputeType {
    /// `f32`.
    F32,
    /// `f64`.
    F64,
    /// `i64`, saturating.
    I64,
}

/// Operand of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// Input of the program.
    Input(usize),
    /// Result of an earlier step.
    Step(usize),
}

/// Function of a program, with its operands.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramStep {
    /// The function.
    pub function: Function,
    /// Operands of the function.
    pub args: SmallVec<[Arg; 3]>,
    /// Type that the result is rounded to, where it is no longer stored between two steps. With it the program gives
    /// the very bits that its functions give one by one.
    pub round: Option<Storage>,
}

/// Functions in the order in which they are computed; the last one's value is the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Compute type.
    pub compute_type: ComputeType,
    /// Functions, at least one.
    pub steps: SmallVec<[ProgramStep; 1]>,
}

/// Maximum number of rows of values that a program has at a time.
pub const SLOTS: usize = 8;

/// Instruction on rows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Move {
    /// Reads an input.
    Load { input: usize, to: usize },
    /// Copies a row.
    Copy { from: usize, to: usize },
    /// Applies a step's function to the first row.
    Apply { step: usize, rows: [usize; 3] },
    /// Rounds a row.
    Round { row: usize, storage: Storage },
}

/// Program with a row assigned to each value.
#[derive(Clone, Debug)]
pub struct Compiled {
    compute_type: ComputeType,
    functions: Vec<Function>,
    moves: Vec<Move>,
    result: usize,
    /// Number of rows that are used.
    slots: usize,
}

impl Program {
    /// Makes a program of one function.
    pub fn single(compute_type: ComputeType, function: Function) -> Program {
        let args = (0..function.operands()).map(Arg::Input).collect();
        Program { compute_type, steps: smallvec![ProgramStep { function, args, round: None }] }
    }

    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        let args = self.steps.iter().flat_map(|step| &step.args);
        args.map(|arg| if let Arg::Input(i) = arg { i + 1 } else { 0 }).max().unwrap_or(0)
    }

    /// Assigns rows; `None` if more than [`SLOTS`] would be needed.
    pub fn compile(&self) -> Option<Compiled> {
        let last_use = |step: usize| {
            let uses = self.steps.iter().enumerate().filter(|(_, s)| s.args.contains(&Arg::Step(step)));
            uses.map(|(at, _)| at).next_back().unwrap_or(self.steps.len())
        };
        let mut row_of = vec![usize::MAX; self.steps.len()];
        let mut free = [true; SLOTS];
        let mut moves = Vec::new();
        let mut slots = 0;
        let mut take = |free: &mut [bool; SLOTS]| {
            let row = free.iter().position(|free| *free)?;
            free[row] = false;
            slots = slots.max(row + 1);
            Some(row)
        };
        for (at, step) in self.steps.iter().enumerate() {
            let mut rows = [0; 3];
            let mut temporary = Vec::new();
            for (i, arg) in step.args.iter().enumerate() {
                rows[i] = match *arg {
                    Arg::Input(input) => {
                        let row = take(&mut free)?;
                        moves.push(Move::Load { input, to: row });
                        temporary.push(row);
                        row
                    }
                    // The first operand's row becomes the result's.
                    Arg::Step(of) if i == 0 && (last_use(of) > at || step.args[1..].contains(arg)) => {
                        let row = take(&mut free)?;
                        moves.push(Move::Copy { from: row_of[of], to: row });
                        temporary.push(row);
                        row
                    }
                    Arg::Step(of) => row_of[of],
                };
            }
            for i in step.args.len()..3 {
                // Operands that the function does not take are not read.
                rows[i] = rows[0];
            }
            moves.push(Move::Apply { step: at, rows });
            row_of[at] = rows[0];
            if let Some(storage) = step.round {
                moves.push(Move::Round { row: rows[0], storage });
            }
            for row in temporary.into_iter().filter(|row| *row != rows[0]) {
                free[row] = true;
            }
            for arg in &step.args {
                if let Arg::Step(of) = *arg
                    && last_use(of) == at
                    && row_of[of] != rows[0]
                {
                    free[row_of[of]] = true;
                }
            }
        }
        let functions = self.steps.iter().map(|step| step.function).collect();
        Some(Compiled { compute_type: self.compute_type, functions, moves, result: *row_of.last()?, slots })
    }
}

impl Compiled {
    /// Compute type.
    pub fn compute_type(&self) -> ComputeType {
        self.compute_type
    }

    /// Number of rows that a run uses.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Computes `len` values in `rows`, each of `pitch` values, of which there are [`Compiled::slots`]; `load(input,
    /// to)` reads an input. Returns the row of the result.
    pub fn run<'r, T: Value>(
        &self,
        isa: Isa,
        rows: &'r mut [T],
        pitch: usize,
        len: usize,
        mut load: impl FnMut(usize, &mut [T]),
    ) -> &'r mut [T] {
        assert!(rows.len() >= self.slots * pitch && len <= pitch, "as many rows as the program uses");
        let range = |row: usize| row * pitch..row * pitch + len;
        for step in &self.moves {
            match *step {
                Move::Load { input, to } => load(input, &mut rows[range(to)]),
                Move::Copy { from, to } => {
                    let [from, to] = rows.get_disjoint_mut([range(from), range(to)]).expect("a copy is of another row");
                    copy(from, to);
                }
                Move::Apply { step, rows: [a, b, c] } => {
                    let base = rows.as_mut_ptr();
                    let other = |row: usize| -> &[T] {
                        if row == a {
                            return &[];
                        }
                        // SAFETY: the row is within `rows`, as asserted, and another one than `a`, the only one that is
                        // written while this borrow is used.
                        unsafe { std::slice::from_raw_parts(base.add(row * pitch).cast_const(), len) }
                    };
                    // SAFETY: row `a` is within `rows`, as asserted, and nothing else refers to it.
                    let first = unsafe { std::slice::from_raw_parts_mut(base.add(a * pitch), len) };
                    T::apply(&self.functions[step], isa, first, other(b), other(c));
                }
                Move::Round { row, storage } => T::round(storage, isa, &mut rows[range(row)]),
            }
        }
        &mut rows[range(self.result)]
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.activation() {
            Some(activation) => write!(f, "{activation:?}"),
            None => write!(f, "{}", self.mode()),
        }
    }
}

impl fmt::Display for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, function) in self.functions.iter().enumerate() {
            write!(f, "{}{function}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.steps.iter().enumerate() {
            let separator = if i == 0 { "" } else { "; " };
            write!(f, "{separator}{}(", step.function)?;
            for (j, arg) in step.args.iter().enumerate() {
                let comma = if j == 0 { "" } else { ", " };
                match arg {
                    Arg::Input(input) => write!(f, "{comma}in{input}")?,
                    Arg::Step(step) => write!(f, "{comma}#{step}")?,
                }
            }
            f.write_str(")")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Parameters;
    use hipdnn_schemas::PointwiseMode;

    fn step(mode: PointwiseMode, args: &[Arg]) -> ProgramStep {
        let function = Function::new(mode, &Parameters::default()).unwrap();
        ProgramStep { function, args: args.into(), round: None }
    }

    #[test]
    fn values_are_kept_as_long_as_they_are_used() {
        use Arg::{Input, Step};
        use PointwiseMode::{Add, BinarySelect, Mul, Neg, Sub};
        let x = [1.5f32, -2.0, 3.0];
        let y = [4.0f32, 0.5, -1.0];
        type Case<'a> = (&'a str, Vec<ProgramStep>, fn(f32, f32) -> f32, usize);
        let cases: [Case<'_>; 6] = [
            ("one", vec![step(Sub, &[Input(0), Input(1)])], |x, y| x - y, 2),
            ("the same input twice", vec![step(Mul, &[Input(0), Input(0)])], |x, _| x * x, 2),
            (
                "a value that is used twice at once",
                vec![step(Neg, &[Input(0)]), step(Mul, &[Step(0), Step(0)])],
                |x, _| x * x,
                2,
            ),
            (
                "a value that is used again later",
                vec![
                    step(Add, &[Input(0), Input(1)]),
                    step(Neg, &[Step(0)]),
                    step(Mul, &[Step(1), Step(0)]),
                    step(Sub, &[Input(1), Step(2)]),
                ],
                |x, y| y + (x + y) * (x + y),
                2,
            ),
            ("as second operand", vec![step(Neg, &[Input(1)]), step(Sub, &[Input(0), Step(0)])], |x, y| x + y, 2),
            (
                "three operands",
                vec![step(Neg, &[Input(0)]), step(BinarySelect, &[Step(0), Input(1), Input(0)])],
                |x, y| if x != 0.0 { -x } else { y },
                3,
            ),
        ];
        for (what, steps, want, slots) in cases {
            let program = Program { compute_type: ComputeType::F32, steps: steps.into() };
            let compiled = program.compile().unwrap();
            assert_eq!(compiled.slots(), slots, "{what}");
            let mut rows = vec![f32::NAN; SLOTS * 4];
            let got = compiled.run(Isa::best(), &mut rows, 4, 3, |input, to| to.copy_from_slice(&[x, y][input]));
            let want: Vec<f32> = x.iter().zip(y).map(|(x, y)| want(*x, y)).collect();
            assert_eq!(got, want, "{what}: {program}");
        }
    }

    #[test]
    fn too_many_values_at_a_time_are_refused() {
        let mut steps: SmallVec<_> = (0..9).map(|i| step(PointwiseMode::Neg, &[Arg::Input(i)])).collect();
        steps.push(step(PointwiseMode::Add, &[Arg::Step(0), Arg::Step(1)]));
        for i in 2..9 {
            steps.push(step(PointwiseMode::Add, &[Arg::Step(7 + i), Arg::Step(i)]));
        }
        assert!(Program { compute_type: ComputeType::F32, steps }.compile().is_none());
    }
}
