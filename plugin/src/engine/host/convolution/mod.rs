//! Convolution on the CPU: a plan chosen and sized once, then run any number of times.
//!
//! Memory, algorithm and work split are decided in [`ConvolutionPlan::new`]; a run allocates nothing and shares no lock
//! with other plans.

mod naive;
mod problem;

pub use problem::{Element, EpilogueStep, Layout, Problem, Shape};

use super::isa::Isa;
use super::threads::Pool;

/// The form a plan wants its weights in. Plans with equal packings can share prepared weights, as long as these are of
/// the same tensor (contents, sizes, layout and mirroring).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packing(Form);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    /// As they lie in the tensor.
    Raw,
}

/// The weights given to a run.
#[derive(Clone, Copy)]
pub enum Weights<'a> {
    /// The tensor itself; a plan that wants another form prepares it in the workspace at every run.
    Raw(*const u8),
    /// What [`ConvolutionPlan::prepare`] wrote.
    Prepared(&'a [f32]),
}

/// The memory a run works on.
pub struct Args<'a> {
    /// The input tensor.
    pub x: *const u8,
    /// The weights.
    pub weights: Weights<'a>,
    /// The output tensor.
    pub y: *mut u8,
    /// The operands of the epilogue.
    pub operands: &'a [*const u8],
    /// Scratch memory of [`ConvolutionPlan::workspace_bytes`], of any alignment.
    pub workspace: *mut u8,
}

/// A convolution ready to run.
#[derive(Debug)]
pub struct ConvolutionPlan {
    problem: Problem,
    isa: Isa,
    threads: usize,
}

/// Pointers that go to the workers of a pool, which write disjoint places.
#[derive(Clone, Copy)]
struct Send2(*const u8, *mut u8);
// SAFETY: a pointer is a number; what may be done with it is said where it is dereferenced.
unsafe impl Send for Send2 {}
// SAFETY: as above.
unsafe impl Sync for Send2 {}

impl Send2 {
    fn x(&self) -> *const u8 {
        self.0
    }

    fn y(&self) -> *mut u8 {
        self.1
    }
}

impl ConvolutionPlan {
    /// The plan for a problem, to be run by up to `threads` threads with the fastest instruction set of this CPU.
    pub fn new(problem: &Problem, threads: usize) -> ConvolutionPlan {
        ConvolutionPlan::with_isa(problem, threads, Isa::best())
    }

    /// As [`ConvolutionPlan::new`] with the instruction set given.
    pub fn with_isa(problem: &Problem, threads: usize, isa: Isa) -> ConvolutionPlan {
        ConvolutionPlan { problem: problem.clone(), isa, threads: threads.max(1) }
    }

    /// The name of the algorithm chosen.
    pub fn algorithm(&self) -> &'static str {
        "naive"
    }

    /// Bytes of workspace a run needs. It is enough for pools of any size: no more workers take part than the plan was
    /// made for.
    pub fn workspace_bytes(&self) -> usize {
        0
    }

    /// The form of the weights the plan works on.
    pub fn packing(&self) -> Packing {
        Packing(Form::Raw)
    }

    /// `f32` values of the prepared weights; 0 if the plan takes them as they lie, and [`Weights::Raw`] has to be given.
    pub fn prepared_len(&self) -> usize {
        0
    }

    /// Writes the prepared weights to `out`, which has [`ConvolutionPlan::prepared_len`] values and best begins on a cache
    /// line ([`super::scratch::AlignedBuffer`]).
    ///
    /// # Safety
    /// `w` points to a tensor of the problem's sizes and weight layout.
    pub unsafe fn prepare(&self, _w: *const u8, out: &mut [f32], _pool: &Pool) {
        assert_eq!(out.len(), self.prepared_len(), "the prepared weights' length is the plan's");
    }

    /// Convolves.
    ///
    /// # Safety
    /// The pointers refer to tensors of the problem's sizes and layouts and to the workspace; output and workspace
    /// overlap nothing else, except that an epilogue operand may be the output itself in the same layout. Prepared
    /// weights are of a plan with equal [`Packing`], sizes and layout. Nobody else writes to any of it during the run.
    pub unsafe fn run(&self, pool: &Pool, args: &Args<'_>) {
        let Weights::Raw(w) = args.weights else { panic!("a plan without prepared weights was given some") };
        // SAFETY: the caller's duty.
        unsafe { naive::run(self.isa, &self.problem, pool, self.threads, args, w) };
    }
}
