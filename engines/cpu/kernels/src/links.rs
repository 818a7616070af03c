//! Sums, products and clamps of a row one after the other, in registers: each value is loaded and stored once for all of them.

use hipdnn_cpu_simd::isa::{Isa, Kernel, Simd, first};

use crate::activation::{Arithmetic, Operand};

/// Number of vectors that go through the steps together: a step is chosen once for them.
const TOGETHER: usize = 8;

/// Step on the value so far.
#[derive(Clone, Copy)]
pub enum Step {
    /// Of the value and an operand.
    Right(Arithmetic, Operand),
    /// Of an operand and the value.
    Left(Arithmetic, Operand),
    /// The lower and the upper bound; NaN is kept.
    Clamp(f32, f32),
}

impl Step {
    /// The operand, if it is a row.
    #[inline(always)]
    fn row(&self) -> Option<*const f32> {
        match *self {
            Step::Right(_, Operand::Row(row)) | Step::Left(_, Operand::Row(row)) => Some(row),
            _ => None,
        }
    }
}

/// Computes steps, in order, on a row of `len` values at `from`, and writes the results at `to`.
///
/// # Safety
/// `len` values can be read at `from`, operands can be read as [`Operand`] says, for as many values, and `len` be written at `to`, which
/// may be one of these rows and overlaps them in no other way.
pub unsafe fn run(isa: Isa, steps: &[Step], from: *const f32, to: *mut f32, len: usize) {
    isa.run(Run { steps, from, to, len });
}

/// Steps on a row; made by [`run`], whose caller answers for the memory.
struct Run<'a> {
    steps: &'a [Step],
    from: *const f32,
    to: *mut f32,
    len: usize,
}

impl Kernel for Run<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut at = 0;
        // SAFETY: the values from `at` on are of the row, of which all lanes or the first ones are left.
        unsafe {
            while at + TOGETHER * S::LANES <= self.len {
                self.vectors::<S, TOGETHER>(s, at);
                at += TOGETHER * S::LANES;
            }
            while at + S::LANES <= self.len {
                self.vectors::<S, 1>(s, at);
                at += S::LANES;
            }
            if at < self.len {
                let mask = s.mask(first(self.len - at));
                let mut value = [s.load_masked(mask, self.from.add(at))];
                for step in self.steps {
                    let row = match step.row() {
                        Some(row) => [s.load_masked(mask, row.add(at))],
                        None => value,
                    };
                    value = apply(s, step, value, row);
                }
                s.store_first(self.len - at, self.to.add(at), value[0]);
            }
        }
    }
}

impl Run<'_> {
    /// Computes `N` vectors.
    ///
    /// # Safety
    /// The row has so many values from `at` on.
    #[inline(always)]
    unsafe fn vectors<S: Simd, const N: usize>(&self, s: S, at: usize) {
        // SAFETY: the caller's promise, and that of the run.
        unsafe {
            let mut values = load::<S, N>(s, self.from.add(at));
            for step in self.steps {
                let row = match step.row() {
                    Some(row) => load::<S, N>(s, row.add(at)),
                    None => values,
                };
                values = apply(s, step, values, row);
            }
            for (i, value) in values.into_iter().enumerate() {
                s.store(self.to.add(at + i * S::LANES), value);
            }
        }
    }
}

/// # Safety
/// `N` vectors can be read at `p`.
#[inline(always)]
unsafe fn load<S: Simd, const N: usize>(s: S, p: *const f32) -> [S::V; N] {
    let mut values = [s.splat(0.0); N];
    for (i, value) in values.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *value = unsafe { s.load(p.add(i * S::LANES)) };
    }
    values
}

/// A step of values, and of its operand's where that is a row.
#[inline(always)]
fn apply<S: Simd, const N: usize>(s: S, step: &Step, mut values: [S::V; N], row: [S::V; N]) -> [S::V; N] {
    match *step {
        Step::Clamp(low, high) => {
            let (low, high) = (s.splat(low), s.splat(high));
            for value in &mut values {
                *value = s.min(high, s.max(low, *value));
            }
            values
        }
        Step::Right(arithmetic, operand) => compute(s, arithmetic, values, others(s, operand, row)),
        Step::Left(arithmetic, operand) => compute(s, arithmetic, others(s, operand, row), values),
    }
}

#[inline(always)]
fn others<S: Simd, const N: usize>(s: S, operand: Operand, row: [S::V; N]) -> [S::V; N] {
    match operand {
        Operand::Same(value) => [s.splat(value); N],
        _ => row,
    }
}

#[inline(always)]
fn compute<S: Simd, const N: usize>(s: S, arithmetic: Arithmetic, mut a: [S::V; N], b: [S::V; N]) -> [S::V; N] {
    match arithmetic {
        Arithmetic::Add => a.iter_mut().zip(b).for_each(
            #[inline(always)]
            |(a, b)| *a = s.add(*a, b),
        ),
        Arithmetic::Sub => a.iter_mut().zip(b).for_each(
            #[inline(always)]
            |(a, b)| *a = s.sub(*a, b),
        ),
        Arithmetic::Mul => a.iter_mut().zip(b).for_each(
            #[inline(always)]
            |(a, b)| *a = s.mul(*a, b),
        ),
        Arithmetic::Div => a.iter_mut().zip(b).for_each(
            #[inline(always)]
            |(a, b)| *a = s.div(*a, b),
        ),
    }
    a
}
