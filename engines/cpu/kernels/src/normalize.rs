//! Rows that are normalized in one pass: what a normalization does with its elements once its statistics are known.

use super::activation::{self, Operand, Part, Row};
use hipdnn_cpu_simd::isa::{Isa, Kernel, Simd, first};

/// Operands of `((x - less) · factor) · scale + summand`, each step rounded. Where nothing is to be done, they are 0, 1, 1
/// and -0: then all values stay as they are.
#[derive(Clone, Copy)]
pub struct Steps {
    /// Subtrahend; no row.
    pub less: Operand,
    /// Factor, or divisor; no row.
    pub factor: Operand,
    /// True if `factor` is a divisor. Its inverse is a factor, unless that is out of range.
    pub divides: bool,
    /// Second factor.
    pub scale: Operand,
    /// Summand.
    pub summand: Operand,
}

impl Steps {
    /// True if nothing but the factor is to be done.
    fn is_factor_alone(&self) -> bool {
        let is =
            |operand: Operand, value: f32| matches!(operand, Operand::Same(same) if same.to_bits() == value.to_bits());
        is(self.less, 0.0) && is(self.scale, 1.0) && is(self.summand, -0.0)
    }
}

/// Normalizes a row.
///
/// # Safety
/// As [`Row`] says; the operands can be read as [`Operand`] says, and overlap the results only as the values do.
///
/// # Panics
/// If an operand is a row that must be none.
pub unsafe fn normalize_row(isa: Isa, row: Row, steps: Steps) {
    isa.run(Normalize { row, steps });
}

struct Normalize {
    row: Row,
    steps: Steps,
}

impl Kernel for Normalize {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let is_factor_alone = self.steps.is_factor_alone();
        let Normalize { row, steps: Steps { less, factor, divides, scale, summand } } = self;
        let len = row.len;
        let lanes = less.lanes(len).min(factor.lanes(len)).min(scale.lanes(len)).min(summand.lanes(len));
        let mut at = 0;
        while at < len {
            // SAFETY: the caller's promise.
            let parts = unsafe {
                [less.part(at, lanes), factor.part(at, lanes), scale.part(at, lanes), summand.part(at, lanes)]
            };
            let [Part::Same(less), Part::Same(factor), scale, summand] = parts else {
                panic!("expected one value for all lanes of a group, got a row");
            };
            let row = row.part(at, lanes);
            let (less, inverse) = (s.splat(less), 1.0 / factor);
            // The inverse of a number beyond these has fewer digits, or is none.
            if !divides || (1e-37..=1e37).contains(&factor.abs()) {
                let factor = s.splat(if divides { inverse } else { factor });
                if is_factor_alone {
                    // SAFETY: the caller's promise, of a part of the row.
                    unsafe { multiply(s, row, factor) };
                    at += lanes;
                    continue;
                }
                // SAFETY: the caller's promise, of a part of the row.
                unsafe {
                    normalize(
                        s,
                        row,
                        [scale, summand],
                        #[inline(always)]
                        |x| s.mul(s.sub(x, less), factor),
                    );
                }
            } else {
                let divisor = s.splat(factor);
                // SAFETY: the caller's promise, of a part of the row.
                unsafe {
                    normalize(
                        s,
                        row,
                        [scale, summand],
                        #[inline(always)]
                        |x| s.div(s.sub(x, less), divisor),
                    );
                }
            }
            at += lanes;
        }
    }
}

/// Number of vectors that are multiplied in a turn.
const TURN: usize = 4;

/// Multiplies a row by a factor.
///
/// # Safety
/// As [`Row`] says.
#[inline(always)]
pub(crate) unsafe fn multiply<S: Simd>(s: S, row: Row, factor: S::V) {
    let Row { from, to, len } = row;
    let mut at = 0;
    // SAFETY: the caller's promise: so many values are left in the row, and each is read before its place is written.
    unsafe {
        while at + TURN * S::LANES <= len {
            for vector in (at..at + TURN * S::LANES).step_by(S::LANES) {
                s.store(to.add(vector), s.mul(s.load(from.add(vector)), factor));
            }
            at += TURN * S::LANES;
        }
    }
    activation::map(
        s,
        row.part(at, len - at),
        #[inline(always)]
        |x| s.mul(x, factor),
    );
}

/// Computes `f(x) · scale + summand` of a row.
///
/// # Safety
/// As [`map_with`] says.
#[inline(always)]
unsafe fn normalize<S: Simd>(s: S, row: Row, operands: [Part; 2], f: impl Fn(S::V) -> S::V) {
    // SAFETY: the caller's promise.
    unsafe {
        map_with(
            s,
            row,
            operands,
            #[inline(always)]
            |x, [scale, summand]| s.add(s.mul(f(x), scale), summand),
        );
    }
}

/// Maps `f` over the values of a row and of two operands.
///
/// # Safety
/// As [`Row`] says; operands that are rows have as many values, and overlap the results only as the values do.
#[inline(always)]
pub(crate) unsafe fn map_with<S: Simd>(s: S, row: Row, operands: [Part; 2], f: impl Fn(S::V, [S::V; 2]) -> S::V) {
    // SAFETY: the caller's promise; a row that stands in for a value of all lanes is read and not used.
    unsafe {
        match operands {
            [Part::Same(one), Part::Same(other)] => {
                let same = [s.splat(one), s.splat(other)];
                map(
                    s,
                    row,
                    [row.from; 2],
                    #[inline(always)]
                    |x, _| f(x, same),
                );
            }
            [Part::Row(one), Part::Same(other)] => {
                let other = s.splat(other);
                map(
                    s,
                    row,
                    [one; 2],
                    #[inline(always)]
                    |x, [one, _]| f(x, [one, other]),
                );
            }
            [Part::Same(one), Part::Row(other)] => {
                let one = s.splat(one);
                map(
                    s,
                    row,
                    [other; 2],
                    #[inline(always)]
                    |x, [_, other]| f(x, [one, other]),
                );
            }
            [Part::Row(one), Part::Row(other)] => map(s, row, [one, other], f),
        }
    }
}

/// Maps `f` over the values of a row and of two others.
///
/// # Safety
/// As [`Row`] says; the others have as many values, and overlap the results only as the values do.
#[inline(always)]
unsafe fn map<S: Simd>(s: S, row: Row, others: [*const f32; 2], f: impl Fn(S::V, [S::V; 2]) -> S::V) {
    let Row { from, to, len } = row;
    let mut at = 0;
    // SAFETY: the caller's promise; so many values are left, and each is read before a place in its row is written.
    unsafe {
        while at + S::LANES <= len {
            let [a, b] = [s.load(others[0].add(at)), s.load(others[1].add(at))];
            s.store(to.add(at), f(s.load(from.add(at)), [a, b]));
            at += S::LANES;
        }
        if at < len {
            let mask = s.mask(first(len - at));
            let [a, b] = [s.load_masked(mask, others[0].add(at)), s.load_masked(mask, others[1].add(at))];
            s.store_first(len - at, to.add(at), f(s.load_masked(mask, from.add(at)), [a, b]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Value of an operand for one of the results.
    fn value(operand: Operand, i: usize) -> f32 {
        match operand {
            // SAFETY: the tests' rows have a value for each result.
            Operand::Row(row) => unsafe { row.add(i).read() },
            Operand::Same(value) => value,
            // SAFETY: the tests have a value for each group of so many results.
            Operand::Each(values, lanes) => unsafe { values.add(i / lanes).read() },
            // SAFETY: the tests' rows have so many values and more.
            Operand::Again(row, lanes) => unsafe { row.add(i % lanes).read() },
        }
    }

    #[test]
    fn steps_are_those_of_a_loop_over_elements() {
        const GROUPS: usize = 3;
        for (isa, lanes) in Isa::of_vectors().flat_map(|isa| [1, 5, 8, 16, 37, 70].map(|lanes| (isa, lanes))) {
            let len = GROUPS * lanes;
            let row = |from: f32, by: f32| Vec::from_iter((0..len).map(|i| from + by * i as f32));
            let (x, scales, summands) = (row(-3.0, 0.37), row(0.5, -0.11), row(7.0, 0.23));
            let groups = [1.5f32, -0.75, 1e-3];
            let each = Operand::Each(groups.as_ptr(), lanes);
            let none = [Operand::Same(0.0), Operand::Same(1.0), Operand::Same(1.0), Operand::Same(-0.0)];
            let again = Operand::Again(summands.as_ptr(), lanes);
            let (scales, summands) = (Operand::Row(scales.as_ptr()), Operand::Row(summands.as_ptr()));
            for (less, factor, divides, scale, summand) in [
                (none[0], none[1], false, none[2], none[3]),
                (none[0], Operand::Same(0.3), false, none[2], none[3]),
                (none[0], each, false, none[2], none[3]),
                (none[0], each, true, none[2], none[3]),
                (each, each, false, each, each),
                (each, Operand::Same(0.3), true, scales, summands),
                (none[0], each, true, scales, none[3]),
                (each, each, false, none[2], summands),
                (each, each, false, again, summands),
                (none[0], Operand::Same(2.0), false, none[2], again),
                // Their inverses are no normal numbers.
                (each, Operand::Same(3e38), true, scales, summands),
                (none[0], Operand::Same(1e-40), true, none[2], none[3]),
                (none[0], Operand::Same(0.0), true, none[2], none[3]),
            ] {
                let steps = Steps { less, factor, divides, scale, summand };
                for in_place in [false, true] {
                    let (mut from, mut to) = (x.clone(), vec![7f32; len + 1]);
                    let at = if in_place { from.as_mut_ptr() } else { to.as_mut_ptr() };
                    // SAFETY: all rows have this number of values, and there is a value for each group.
                    unsafe { normalize_row(isa, Row { from: from.as_ptr(), to: at, len }, steps) };
                    assert_eq!(to[len], 7.0, "{isa} {lanes}: something was written behind the row");
                    let got = if in_place { &from } else { &to };
                    for (i, (x, got)) in x.iter().zip(got).enumerate() {
                        let [less, factor, scale, summand] = [less, factor, scale, summand].map(|of| value(of, i));
                        let difference = x - less;
                        let normal = if divides { difference / factor } else { difference * factor };
                        let want = normal * scale + summand;
                        // A quotient by an inverse is rounded twice, which may round the sum another way.
                        let size = (normal * scale).abs() + want.abs();
                        let bound = if divides { size * f32::EPSILON } else { 0.0 };
                        let near = *got == want || (got - want).abs() <= bound || (got.is_nan() && want.is_nan());
                        assert!(near, "{isa} {i} of {lanes}: expected {want}, got {got}");
                    }
                }
            }
        }
    }
}
