//! Programs that are a chain of sums, products and clamps, computed in registers: each value is loaded and stored once for all of
//! them.

use hipdnn_cpu_kernels::activation::{Activation, Arithmetic, Operand};
use hipdnn_cpu_kernels::links::{self, Step};
use hipdnn_cpu_simd::isa::Isa;

use super::{Arg, Lie, Program};

/// Maximum number of links: what they are is on the stack during a run.
const MAX_LINKS: usize = 16;

/// Step of a chain, on the value so far.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Link {
    /// Of the value and an input.
    Right(Arithmetic, usize),
    /// Of an input and the value.
    Left(Arithmetic, usize),
    /// Between two bounds.
    Clamp(f32, f32),
}

/// A program from input 0 on, each of whose steps takes the result of the one before it, and an input that is side by side or the
/// same for a row.
#[derive(Clone, Debug)]
pub struct Chain {
    links: Vec<Link>,
    /// For each input whether it is the same for a row.
    same: Vec<bool>,
}

impl Chain {
    /// The chain that a program is, for inputs that lie so; `None` if it is none, or has a single step.
    pub fn new(program: &Program, lies: &[Lie]) -> Option<Chain> {
        let mut chain = Chain { links: Vec::new(), same: lies.iter().map(|lie| *lie == Lie::Same).collect() };
        let other = |arg: Arg| match arg {
            Arg::Input(input) if input > 0 && lies[input] != Lie::Apart => Some(input),
            _ => None,
        };
        for (at, step) in program.steps.iter().enumerate() {
            let value = at.checked_sub(1).map_or(Arg::Input(0), Arg::Step);
            if step.round.is_some() {
                return None;
            }
            let function = step.function;
            let link = match (function.arithmetic(), function.activation(), &step.args[..]) {
                (Some(arithmetic), _, [a, b]) if *a == value => Link::Right(arithmetic, other(*b)?),
                (Some(arithmetic), _, [a, b]) if *b == value => Link::Left(arithmetic, other(*a)?),
                (_, Some(Activation::Relu { lower_clip, upper_clip, slope: 0.0 }), [a]) if *a == value => {
                    Link::Clamp(lower_clip, upper_clip)
                }
                _ => return None,
            };
            chain.links.push(link);
        }
        (program.steps.len() > 1 && !chain.links.is_empty() && chain.links.len() <= MAX_LINKS).then_some(chain)
    }

    /// Computes `len` results at `to` from as many values; `address(input)` is where an input lies. The bits are those of the
    /// functions one by one.
    ///
    /// # Safety
    /// `len` values can be read at `from` and at the address of each input that is side by side, one at that of each other one;
    /// `len` can be written at `to`, which may be one of these rows and overlaps them in no other way.
    pub unsafe fn run(
        &self,
        isa: Isa,
        (from, len): (*const f32, usize),
        address: impl Fn(usize) -> *const f32,
        to: *mut f32,
    ) {
        let operand = |input: usize| match self.same[input] {
            // SAFETY: the caller's promise.
            true => Operand::Same(unsafe { address(input).read() }),
            false => Operand::Row(address(input)),
        };
        let mut steps = [Step::Clamp(0.0, 0.0); MAX_LINKS];
        for (step, link) in steps.iter_mut().zip(&self.links) {
            *step = match *link {
                Link::Right(arithmetic, input) => Step::Right(arithmetic, operand(input)),
                Link::Left(arithmetic, input) => Step::Left(arithmetic, operand(input)),
                Link::Clamp(low, high) => Step::Clamp(low, high),
            };
        }
        // SAFETY: the caller's promise.
        unsafe { links::run(isa, &steps[..self.links.len()], from, to, len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ComputeType, Function, Parameters, ProgramStep, SLOTS};
    use hipdnn_schemas::PointwiseMode;

    #[test]
    fn random_chains_give_the_bits_of_rows() {
        use PointwiseMode::{Add, Div, Mul, ReluFwd, Sub};
        let mut random = fastrand::Rng::with_seed(7);
        let (mut made, isas) = (0, Vec::from_iter(Isa::of_vectors()));
        for case in 0..2000 {
            let (len, inputs) = (random.usize(1..150), random.usize(2..=4));
            let count = random.usize(2..=6);
            let mut program = Program { compute_type: ComputeType::F32, steps: smallvec::smallvec![] };
            for at in 0..count {
                let mode = *random.choice(&[Add, Sub, Mul, Div, ReluFwd]).unwrap();
                let clip = Parameters { relu_upper_clip: 2.5, ..Parameters::default() };
                let function = Function::new(mode, &clip).unwrap();
                let mut args: smallvec::SmallVec<[Arg; 3]> =
                    (0..function.operands()).map(|_| Arg::Input(random.usize(1..inputs))).collect();
                let place = random.usize(0..args.len());
                args[place] = if at == 0 { Arg::Input(0) } else { Arg::Step(at - 1) };
                program.steps.push(ProgramStep { function, args, round: None });
            }
            let lies: Vec<Lie> =
                (0..inputs).map(|at| if at > 0 && random.bool() { Lie::Same } else { Lie::Beside }).collect();
            let Some(chain) = Chain::new(&program, &lies) else { continue };
            made += 1;
            let mut memory: Vec<Vec<f32>> =
                (0..inputs).map(|_| (0..len).map(|_| random.f32() * 6.0 - 3.0).collect()).collect();
            memory[0][len / 2] = f32::NAN;
            let isa = isas[case % isas.len()];
            let mut rows = vec![f32::NAN; SLOTS * len];
            let read = |input: usize, to: &mut [f32]| match lies[input] {
                Lie::Same => to.fill(memory[input][0]),
                _ => to.copy_from_slice(&memory[input]),
            };
            let want = program.compile().unwrap().run(isa, &mut rows, len, len, read).to_vec();
            // In place of an input in every other case.
            let mut to = vec![f32::NAN; len];
            let shared = (1..inputs).find(|input| lies[*input] == Lie::Beside && case % 2 == 0);
            let addresses: Vec<*mut f32> = memory.iter_mut().map(|row| row.as_mut_ptr()).collect();
            let at = shared.map_or(to.as_mut_ptr(), |input| addresses[input]);
            // SAFETY: inputs and output have this number of values.
            let got = unsafe {
                chain.run(isa, (addresses[0].cast_const(), len), |input| addresses[input].cast_const(), at);
                std::slice::from_raw_parts(at, len)
            };
            let bits =
                |row: &[f32]| row.iter().map(|v| if v.is_nan() { !0 } else { v.to_bits() }).collect::<Vec<u32>>();
            assert_eq!(bits(got), bits(&want), "{isa}: case {case}, {lies:?}: {program}");
        }
        assert!(made > 300, "{made} are too few to say anything");
    }
}
