//! Loops of normalizations over the elements of one line, without branches, compiled for each instruction set.

use super::activation::{Part, Row};
use super::normalize::map_with;
use super::sums;
use hipdnn_cpu_simd::isa::{Isa, Kernel, Simd};

/// Number of elements of a group whose sums are taken around one value: the error of their squares grows with the square of
/// this.
pub const AROUND: usize = 1024;

/// Number of sums that are added up side by side.
const SIDE: usize = 16;

/// Statistics of the group of each element of a line.
#[derive(Clone, Copy)]
pub enum Statistics<'a> {
    /// One group for all elements.
    Same {
        /// Mean of the group.
        mean: f64,
        /// Inverse of its deviation.
        inverse: f64,
    },
    /// A group for each element.
    Each {
        /// Means of the groups.
        mean: &'a [f64],
        /// Inverses of their deviations.
        inverse: &'a [f64],
    },
}

/// Two averages for the group of each element of a line.
#[derive(Clone, Copy)]
pub enum Averages<'a> {
    /// One group for all elements.
    Same(f64, f64),
    /// A group for each element.
    Each(&'a [f64], &'a [f64]),
}

/// Destination of the sums of a line.
pub enum Target<'a> {
    /// One pair of sums for all elements.
    One(&'a mut f64, &'a mut f64),
    /// A pair of sums for each element.
    Each(&'a mut [f64], &'a mut [f64]),
}

/// Mean of the values and sum of squares around it; or, not centered, 0 and the sum of squares.
pub fn moments(isa: Isa, values: &[f32], centered: bool) -> (f64, f64) {
    isa.run(Moments { values, centered })
}

/// Number that differences of values are taken from, of their first one: that, if it is finite.
#[inline(always)]
pub fn base_of(first: f32) -> f32 {
    if first.is_finite() { first } else { 0.0 }
}

struct Moments<'a> {
    values: &'a [f32],
    centered: bool,
}

impl Kernel for Moments<'_> {
    type Output = (f64, f64);
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> (f64, f64) {
        if !self.centered {
            return (0.0, sums::sum_of_squares(s, self.values));
        }
        let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
        // Plain loops: what iterators call is compiled without the instruction set.
        for values in self.values.chunks(AROUND) {
            let base = base_of(values[0]);
            let more = values.len() as f64;
            let [sum, around] = sums::sums_around(s, values, base);
            let (average, around) = around_mean(more, sum, around);
            let of_these = [more, f64::from(base) + average, around];
            (mean, squares) = join_moments([count, mean, squares], of_these);
            count += more;
        }
        (mean, squares)
    }
}

/// Mean of differences from a value, and the sum of squares around that, of their number, sum and sum of squares:
/// `Σ(d - mean)² = Σd² - (Σd)²/n`.
#[inline(always)]
pub fn around_mean(count: f64, sum: f64, squares: f64) -> (f64, f64) {
    let average = sum / count;
    let squares = squares - sum * average;
    // Rounding may leave less than nothing; what is no number stays that.
    (average, if squares < 0.0 { 0.0 } else { squares })
}

/// Mean and sum of squares of two sets of elements, of their numbers, means and sums of squares.
#[inline(always)]
pub fn join_moments([count, mean, squares]: [f64; 3], [more, other, others]: [f64; 3]) -> (f64, f64) {
    if count == 0.0 {
        return (other, others);
    }
    let total = count + more;
    let difference = other - mean;
    let apart = difference * difference * (count / total * more);
    // Infinities of one sign have that for their mean, and no difference.
    let joined = if mean.is_infinite() { mean + other } else { mean + difference * (more / total) };
    (joined, squares + (others + apart))
}

#[inline(always)]
fn halve(mut sums: [f64; SIDE]) -> f64 {
    let mut len = SIDE / 2;
    while len > 0 {
        for i in 0..len {
            sums[i] += sums[i + len];
        }
        len /= 2;
    }
    sums[0]
}

/// Sums of values and of their squares, each element of a line on its own, around a value near them.
pub struct Around<'a> {
    /// Value near them.
    pub base: &'a mut [f64],
    /// Sums of differences from it.
    pub sums: &'a mut [f64],
    /// Sums of their squares.
    pub squares: &'a mut [f64],
}

impl Around<'_> {
    /// Adds a line.
    pub fn add(&mut self, isa: Isa, values: &[f32]) {
        isa.run(AddAround { to: self, values });
    }
}

struct AddAround<'a, 'b> {
    to: &'a mut Around<'b>,
    values: &'a [f32],
}

impl Kernel for AddAround<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let sums = self.to.sums.iter_mut().zip(self.to.squares.iter_mut());
        for ((value, base), (sum, square)) in self.values.iter().zip(self.to.base.iter()).zip(sums) {
            let difference = f64::from(*value) - base;
            *sum += difference;
            *square += difference * difference;
        }
    }
}

/// Normalizes: `x = (x - mean) · inverse · scale + bias`.
pub fn apply(isa: Isa, x: &mut [f32], statistics: Statistics<'_>, scale: &[f32], bias: &[f32]) {
    isa.run(Apply { x, statistics, scale, bias });
}

struct Apply<'a> {
    x: &'a mut [f32],
    statistics: Statistics<'a>,
    scale: &'a [f32],
    bias: &'a [f32],
}

impl Kernel for Apply<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let lines = self.x.iter_mut().zip(self.scale).zip(self.bias);
        match self.statistics {
            Statistics::Same { mean, inverse } => {
                for ((x, scale), bias) in lines {
                    *x = ((f64::from(*x) - mean) * inverse * f64::from(*scale) + f64::from(*bias)) as f32;
                }
            }
            Statistics::Each { mean, inverse } => {
                for (((x, scale), bias), (mean, inverse)) in lines.zip(mean.iter().zip(inverse)) {
                    *x = ((f64::from(*x) - mean) * inverse * f64::from(*scale) + f64::from(*bias)) as f32;
                }
            }
        }
    }
}

/// Factors or summands of the elements of a line.
#[derive(Clone, Copy)]
pub enum Parameters<'a> {
    /// One for all elements.
    Same(f64),
    /// One for each element.
    Each(&'a [f32]),
}

/// Normalizes from memory to memory in `f32`, of one group: `y = (x - mean) · inverse · scale + bias`.
pub struct Normalized<'a> {
    /// Elements of the line.
    pub x: &'a [f32],
    /// The result.
    pub y: &'a mut [f32],
    /// Mean of the group.
    pub mean: f64,
    /// Inverse of its deviation.
    pub inverse: f64,
    /// Factors of the normalized elements.
    pub scale: Parameters<'a>,
    /// Summands of these products.
    pub bias: Parameters<'a>,
    /// True if elements are computed in `f64`, else where single precision has no range for them.
    pub double: bool,
}

/// Magnitudes of factors with which single precision is enough: products of normalized elements stay normal numbers.
const SINGLE: std::ops::RangeInclusive<f64> = 1e-30..=1e30;

impl Kernel for Normalized<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let factor = self.inverse * if let Parameters::Same(scale) = self.scale { scale } else { 1.0 };
        let fits = |factor: f64| factor == 0.0 || SINGLE.contains(&factor.abs());
        if self.double || !self.mean.is_finite() || !fits(self.inverse) || !fits(factor) {
            return self.in_double();
        }
        let Normalized { x, y, mean, inverse, scale, bias, .. } = self;
        // What the mean's rounding leaves is subtracted too: a mean far above the deviation costs no digits.
        let rounded = mean as f32;
        let (less, rest) = (s.splat(rounded), s.splat((mean - f64::from(rounded)) as f32));
        let inverse = s.splat(inverse as f32);
        let len = y.len().min(x.len());
        let row = Row { from: x.as_ptr(), to: y.as_mut_ptr(), len };
        let part = |parameters: Parameters<'_>| match parameters {
            Parameters::Same(value) => Part::Same(value as f32),
            Parameters::Each(values) => Part::Row(values[..len].as_ptr()),
        };
        let bias = part(bias);
        // SAFETY: the row and its parameters have `len` elements, as is checked; nobody else has the results' memory.
        unsafe {
            match scale {
                Parameters::Same(_) => map_with(
                    s,
                    row,
                    [Part::Same(factor as f32), bias],
                    #[inline(always)]
                    |x, [factor, bias]| s.fma(centered(s, x, [less, rest]), factor, bias),
                ),
                Parameters::Each(_) => map_with(
                    s,
                    row,
                    [part(scale), bias],
                    #[inline(always)]
                    |x, [scale, bias]| s.fma(s.mul(centered(s, x, [less, rest]), inverse), scale, bias),
                ),
            }
        }
    }
}

/// Spread of rows around their mean.
#[derive(Clone, Copy, Debug)]
pub enum Spread {
    /// Inverses of the deviations.
    Inverse(*const f32),
    /// Variances, and what is added to them.
    Variance(*const f32, f64),
}

/// Normalizes rows from memory to memory by statistics that are given: `y = (x - mean) · inverse · scale + bias`, with one value
/// of each for a row.
#[derive(Clone, Copy, Debug)]
pub struct GivenRows {
    /// Number of rows.
    pub rows: usize,
    /// Number of elements of a row.
    pub len: usize,
    /// Elements, and the stride between rows.
    pub x: (*const f32, usize),
    /// Results, and the stride between rows.
    pub y: (*mut f32, usize),
    /// Means.
    pub mean: *const f32,
    /// Deviations.
    pub spread: Spread,
    /// Factors, if there are any.
    pub scale: Option<*const f32>,
    /// Summands, if there are any.
    pub bias: Option<*const f32>,
    /// Stride between rows of statistics and parameters.
    pub stride: usize,
    /// True if elements are computed in `f64`.
    pub double: bool,
}

impl GivenRows {
    /// Normalizes.
    ///
    /// # Safety
    /// All rows can be read, their statistics and parameters too, and the results be written, which overlap nothing.
    pub unsafe fn run(self, isa: Isa) {
        isa.run(GivenRowsKernel(self));
    }
}

/// Number of rows whose deviations are inverted together.
const SPREADS: usize = 16;

/// [`GivenRows`] whose memory its maker has been promised.
struct GivenRowsKernel(GivenRows);

impl Kernel for GivenRowsKernel {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let GivenRows { rows, len, x, y, mean, spread, scale, bias, stride, double } = self.0;
        let mut first = 0;
        while first < rows {
            // SAFETY: the row's, which `GivenRows::run` has been promised.
            let of = |values: *const f32, row: usize| f64::from(unsafe { *values.add(row * stride) });
            // Those of several rows at once: a root and a quotient take as long as half a short row.
            let count = SPREADS.min(rows - first);
            let mut inverses = [0f64; SPREADS];
            for (i, inverse) in inverses[..count].iter_mut().enumerate() {
                *inverse = match spread {
                    Spread::Inverse(values) => of(values, first + i),
                    Spread::Variance(values, epsilon) => 1.0 / (of(values, first + i) + epsilon).sqrt(),
                };
            }
            for (row, inverse) in (first..first + count).zip(inverses) {
                // SAFETY: as many elements as a row has, which `GivenRows::run` has been promised; results overlap nothing.
                let (x, y) = unsafe {
                    let (x, y) = (x.0.add(row * x.1), y.0.add(row * y.1));
                    (std::slice::from_raw_parts(x, len), std::slice::from_raw_parts_mut(y, len))
                };
                let (scale, bias) =
                    (scale.map_or(1.0, |values| of(values, row)), bias.map_or(0.0, |values| of(values, row)));
                let [scale, bias] = [scale, bias].map(Parameters::Same);
                Normalized { x, y, mean: of(mean, row), inverse, scale, bias, double }.run(s);
            }
            first += count;
        }
    }
}

/// Difference of values from a number that is the sum of two.
#[inline(always)]
fn centered<S: Simd>(s: S, x: S::V, [less, rest]: [S::V; 2]) -> S::V {
    s.sub(s.sub(x, less), rest)
}

impl Normalized<'_> {
    /// The same in `f64`.
    #[inline(never)]
    fn in_double(self) {
        let of = |parameters: &Parameters<'_>, i: usize| match parameters {
            Parameters::Same(value) => *value,
            Parameters::Each(values) => f64::from(values[i]),
        };
        for (i, (x, y)) in self.x.iter().zip(self.y).enumerate() {
            let normal = (f64::from(*x) - self.mean) * self.inverse;
            *y = (normal * of(&self.scale, i) + of(&self.bias, i)) as f32;
        }
    }
}

/// Adds `g = dy · weight` to the first sums and `g · (x - mean) · inverse` to the second ones.
pub fn sums(isa: Isa, x: &[f32], dy: &[f32], weight: &[f32], statistics: Statistics<'_>, into: Target<'_>) {
    isa.run(Sums { x, dy, weight, statistics, into });
}

struct Sums<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    weight: &'a [f32],
    statistics: Statistics<'a>,
    into: Target<'a>,
}

impl Kernel for Sums<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        match self.statistics {
            Statistics::Same { mean, inverse } => self.add(
                #[inline(always)]
                |_| (mean, inverse),
            ),
            Statistics::Each { mean, inverse } => {
                let (mean, inverse) = (&mean[..self.x.len()], &inverse[..self.x.len()]);
                self.add(
                    #[inline(always)]
                    |i| (mean[i], inverse[i]),
                );
            }
        }
    }
}

impl Sums<'_> {
    #[inline(always)]
    fn add(self, statistics: impl Fn(usize) -> (f64, f64)) {
        let len = self.x.len();
        let (x, dy, weight) = (self.x, &self.dy[..len], &self.weight[..len]);
        match self.into {
            Target::One(first, second) => {
                let (mut a, mut b) = ([0f64; SIDE], [0f64; SIDE]);
                let mut i = 0;
                while i + SIDE <= len {
                    for side in 0..SIDE {
                        let at = i + side;
                        let (g, h) = term(x[at], dy[at], weight[at], statistics(at));
                        a[side] += g;
                        b[side] += h;
                    }
                    i += SIDE;
                }
                for side in 0..len - i {
                    let at = i + side;
                    let (g, h) = term(x[at], dy[at], weight[at], statistics(at));
                    a[side] += g;
                    b[side] += h;
                }
                *first += halve(a);
                *second += halve(b);
            }
            Target::Each(first, second) => {
                let (first, second) = (&mut first[..len], &mut second[..len]);
                for i in 0..len {
                    let (g, h) = term(x[i], dy[i], weight[i], statistics(i));
                    first[i] += g;
                    second[i] += h;
                }
            }
        }
    }
}

/// Terms of an element: `g` and `g · x̂`.
#[inline(always)]
fn term(x: f32, dy: f32, weight: f32, (mean, inverse): (f64, f64)) -> (f64, f64) {
    let g = f64::from(dy) * f64::from(weight);
    (g, g * ((f64::from(x) - mean) * inverse))
}

/// Operands of [`gradient`] that have one value for each element.
pub struct Gradient<'a> {
    /// Input of the forward pass.
    pub x: &'a [f32],
    /// Gradient of its result.
    pub dy: &'a [f32],
    /// Factor of `dy`.
    pub weight: &'a [f32],
    /// Factor of the result.
    pub factor: &'a [f32],
    /// The result.
    pub dx: &'a mut [f32],
}

/// Computes `dx = factor · inverse · (g - a - x̂ · b)` with `x̂ = (x - mean) · inverse`, `g = dy · weight` and averages
/// `a` and `b`.
pub fn gradient(isa: Isa, line: Gradient<'_>, statistics: Statistics<'_>, averages: Averages<'_>) {
    isa.run(WriteGradient { line, statistics, averages });
}

struct WriteGradient<'a> {
    line: Gradient<'a>,
    statistics: Statistics<'a>,
    averages: Averages<'a>,
}

impl Kernel for WriteGradient<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Gradient { x, dy, weight, factor, dx } = self.line;
        let len = x.len();
        let (dy, weight, factor, dx) = (&dy[..len], &weight[..len], &factor[..len], &mut dx[..len]);
        match (self.statistics, self.averages) {
            (Statistics::Same { mean, inverse }, Averages::Same(a, b)) => {
                for i in 0..len {
                    dx[i] = slope(x[i], dy[i], [weight[i], factor[i]], [mean, inverse, a, b]);
                }
            }
            (Statistics::Each { mean, inverse }, Averages::Each(a, b)) => {
                let (mean, inverse, a, b) = (&mean[..len], &inverse[..len], &a[..len], &b[..len]);
                for i in 0..len {
                    dx[i] = slope(x[i], dy[i], [weight[i], factor[i]], [mean[i], inverse[i], a[i], b[i]]);
                }
            }
            _ => unreachable!("statistics and averages of a line are both of one group or both of many"),
        }
    }
}

/// Gradient of an element.
#[inline(always)]
fn slope(x: f32, dy: f32, [weight, factor]: [f32; 2], [mean, inverse, a, b]: [f64; 4]) -> f32 {
    let normal = (f64::from(x) - mean) * inverse;
    let g = f64::from(dy) * f64::from(weight);
    (f64::from(factor) * inverse * (g - a - normal * b)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_of_infinities_of_one_sign_are_infinite() {
        let line = |at: &[(usize, f32)]| {
            let mut values = vec![1.0; 3 * AROUND];
            at.iter().for_each(|(at, value)| values[*at] = *value);
            values
        };
        let inf = f32::INFINITY;
        for isa in Isa::available() {
            for (at, want) in [
                (vec![(0, inf)], f64::INFINITY),
                (vec![(5, inf), (2 * AROUND, inf)], f64::INFINITY),
                (vec![(0, -inf), (AROUND, -inf), (2 * AROUND + 3, -inf)], f64::NEG_INFINITY),
                (vec![(0, -inf), (AROUND, inf)], f64::NAN),
                (vec![(0, f32::NAN), (AROUND, inf)], f64::NAN),
                (vec![], 1.0),
            ] {
                let (mean, squares) = moments(isa, &line(&at), true);
                assert!(mean == want || (mean.is_nan() && want.is_nan()), "{at:?}: expected {want}, got {mean}");
                assert_eq!(squares.is_nan(), !want.is_finite(), "{at:?}: sum of squares {squares}");
            }
        }
    }
}
