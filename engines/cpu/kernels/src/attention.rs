//! Attention of blocks that lie in the cache: products, and the softmax between them.

use crate::activation::{FALLING, exp, falling_exp, falling_exps};
use hipdnn_cpu_simd::isa::{Isa, Kernel, Simd, UNROLLED};

/// Row granularity of blocks whose rows are padded: every instruction set's tile is as high or half as high.
pub const ROWS: usize = 12;

/// Product `c[r][n] = Σ a[r·row + k·step] · b[panel of n + k·pitch]`, added to `c` if `add`.
#[derive(Clone, Copy, Debug)]
pub struct Multiply {
    /// Number of rows of the result.
    pub rows: usize,
    /// Number of columns of the result, a multiple of the lanes of a vector.
    pub columns: usize,
    /// Number of terms of the sum.
    pub depth: usize,
    /// Left factor.
    pub a: *const f32,
    /// Stride between its rows.
    pub row: usize,
    /// Stride between its terms.
    pub step: usize,
    /// Right factor, in panels of two vectors of columns.
    pub b: *const f32,
    /// Stride between its terms.
    pub pitch: usize,
    /// Stride from two vectors of columns to the next two in `b`.
    pub panel: usize,
    /// Result, whose columns are contiguous.
    pub c: *mut f32,
    /// Stride between rows of `c`.
    pub to: usize,
    /// True if the product is added to what `c` holds.
    pub add: bool,
}

impl Multiply {
    /// Multiplies.
    ///
    /// # Safety
    /// All elements that the extents reach can be read, those of `c` written.
    pub unsafe fn run(self, isa: Isa) {
        isa.run(Blocks(self));
    }
}

/// A [`Multiply`] whose memory its maker has been promised.
struct Blocks(Multiply);

impl Kernel for Blocks {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let m = &self.0;
        let tallest = if S::LANES == 16 { 12 } else { 6 };
        // Rows in tiles of about one height, the taller ones first.
        let count = m.rows.div_ceil(tallest).max(1);
        let (low, taller) = (m.rows / count, m.rows % count);
        let mut column = 0;
        while column < m.columns {
            let two = column + 2 * S::LANES <= m.columns;
            let mut row = 0;
            for tile in 0..count {
                let height = low + usize::from(tile < taller);
                // SAFETY: `Multiply::run` has been promised all rows and columns.
                unsafe {
                    if two {
                        self.rows::<S, 2>(s, height, row, column);
                    } else {
                        self.rows::<S, 1>(s, height, row, column);
                    }
                }
                row += height;
            }
            column += if two { 2 * S::LANES } else { S::LANES };
        }
    }
}

impl Blocks {
    /// # Safety
    /// `height` rows and `V` vectors of columns can be used from there on.
    #[inline(always)]
    unsafe fn rows<S: Simd, const V: usize>(&self, s: S, height: usize, row: usize, column: usize) {
        macro_rules! among {
            ($($rows:literal)+) => {
                match height {
                    // SAFETY: the caller's promise.
                    $($rows => unsafe { self.tile::<S, $rows, V>(s, row, column) },)+
                    _ => {}
                }
            };
        }
        if S::LANES == 16 {
            among!(1 2 3 4 5 6 7 8 9 10 11 12);
        } else {
            among!(1 2 3 4 5 6);
        }
    }

    /// # Safety
    /// `R` rows and `V` vectors of columns can be used from there on.
    #[inline(always)]
    unsafe fn tile<S: Simd, const R: usize, const V: usize>(&self, s: S, row: usize, column: usize) {
        let m = &self.0;
        let mut sums = [[s.splat(0.0); V]; R];
        // SAFETY: the caller's promise.
        unsafe {
            let a = m.a.add(row * m.row);
            let b = m.b.add(column / (2 * S::LANES) * m.panel);
            // A stride that the compiler knows is a part of the instructions.
            match (m.row, m.step) {
                (1, step) => self.add(s, a, (1, step), b, &mut sums),
                (row, 1) => self.add(s, a, (row, 1), b, &mut sums),
                strides => self.add(s, a, strides, b, &mut sums),
            }
            for (r, sums) in sums.into_iter().enumerate() {
                for (v, sum) in sums.into_iter().enumerate() {
                    let to = m.c.add((row + r) * m.to + column + v * S::LANES);
                    s.store(to, if m.add { s.add(s.load(to), sum) } else { sum });
                }
            }
        }
    }

    /// Adds all terms; `strides`: those of the left factor, of rows and terms.
    ///
    /// # Safety
    /// `R` rows from `a` and `V` vectors of columns from `b` have the terms.
    #[inline(always)]
    unsafe fn add<S: Simd, const R: usize, const V: usize>(
        &self,
        s: S,
        mut a: *const f32,
        strides: (usize, usize),
        mut b: *const f32,
        sums: &mut [[S::V; V]; R],
    ) {
        let (pitch, mut left) = (self.0.pitch, self.0.depth);
        // SAFETY: the caller's promise.
        unsafe {
            // Of as many rows as vectors of sixteen lanes have the compiler loads the values of all steps of a round at once, which are
            // more than there are registers.
            while S::LANES < 16 && left >= UNROLLED {
                let mut i = 0;
                while i < UNROLLED {
                    step(s, a.wrapping_add(i * strides.1), strides.0, b.wrapping_add(i * pitch), sums);
                    i += 1;
                }
                a = a.wrapping_add(UNROLLED * strides.1);
                b = b.wrapping_add(UNROLLED * pitch);
                left -= UNROLLED;
            }
            while left > 0 {
                step(s, a, strides.0, b, sums);
                a = a.wrapping_add(strides.1);
                b = b.wrapping_add(pitch);
                left -= 1;
            }
        }
    }
}

/// Adds the products of a term: a value of each row, `stride` apart, and a vector of columns.
///
/// # Safety
/// Rows and columns have the term.
#[inline(always)]
unsafe fn step<S: Simd, const R: usize, const V: usize>(
    s: S,
    a: *const f32,
    stride: usize,
    b: *const f32,
    sums: &mut [[S::V; V]; R],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut values = [s.splat(0.0); V];
        for (v, value) in values.iter_mut().enumerate() {
            *value = s.load(b.add(v * S::LANES));
        }
        for (r, sums) in sums.iter_mut().enumerate() {
            let factor = s.splat(*a.add(r * stride));
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = s.fma(factor, value, *sum);
            }
        }
    }
}

/// Multiplication of values by a factor.
pub struct Times<'a>(pub &'a mut [f32], pub f32);

impl Kernel for Times<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        self.0.iter_mut().for_each(|value| *value *= self.1);
    }
}

/// Scores of a block times the scale, plus a bias each.
pub struct Biased<'a> {
    /// Scores, the queries of a key side by side.
    pub scores: &'a mut [f32],
    /// Stride between the scores of two keys.
    pub pitch: usize,
    /// Biases.
    pub bias: &'a [f32],
    /// Stride between the biases of two keys.
    pub width: usize,
    /// Factor of the scores.
    pub scale: f32,
}

impl Kernel for Biased<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (scores, bias) in self.scores.chunks_mut(self.pitch).zip(self.bias.chunks(self.width)) {
            scores.iter_mut().zip(bias).for_each(|(score, bias)| *score = *score * self.scale + bias);
        }
    }
}

/// Online softmax for a row of queries: its state after some of the keys.
pub struct Softmax<'a> {
    /// Scores, the queries of a key side by side; they become e^(scale · score - largest).
    pub scores: &'a mut [f32],
    /// Stride between the scores of two keys.
    pub pitch: usize,
    /// Factor of the scores.
    pub scale: f32,
    /// Largest score of each query.
    pub largest: &'a mut [f32],
    /// Sum of e^(score - largest) of each query.
    pub sum: &'a mut [f32],
    /// Correction factor of everything computed with the largest score before.
    pub factor: &'a mut [f32],
}

impl Softmax<'_> {
    /// Folds in the scores of some keys. The number of queries is a multiple of the lanes of a vector.
    pub fn run(self, isa: Isa) {
        let queries = self.largest.len();
        assert_eq!((self.sum.len(), self.factor.len(), self.scores.len() % self.pitch), (queries, queries, 0));
        assert!(queries <= self.pitch, "rows of {} queries, {} apart", queries, self.pitch);
        isa.run(Step(self));
    }
}

/// Number of keys whose powers are computed together.
const KEYS: usize = 4;

struct Step<'a>(Softmax<'a>);

impl Kernel for Step<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Softmax { scores, pitch, scale, largest, sum, factor } = self.0;
        let (queries, keys, scale) = (largest.len(), scores.len() / pitch, s.splat(scale));
        let scores = scores.as_mut_ptr();
        let mut q = 0;
        while q + S::LANES <= queries {
            // SAFETY: a vector from `q` on lies within the rows of all of them, and there are `keys` rows of scores.
            unsafe {
                let at = |key: usize| scores.add(key * pitch + q);
                let scaled = |key: usize| s.mul(s.load(at(key)), scale);
                let before = s.load(largest.as_ptr().add(q));
                let mut most = [before; KEYS];
                let whole = keys / KEYS * KEYS;
                for key in (0..whole).step_by(KEYS) {
                    for (k, most) in most.iter_mut().enumerate() {
                        *most = s.max(scaled(key + k), *most);
                    }
                }
                let mut most = s.max(s.max(most[0], most[1]), s.max(most[2], most[3]));
                for key in whole..keys {
                    most = s.max(scaled(key), most);
                }
                // Where all is masked so far, the base is 0 and every power below is.
                let base = s.select(s.lt(most, s.splat(f32::MIN)), s.splat(0.0), most);
                let rescale = falling_exp(s, s.sub(before, base));
                let mut total = s.splat(0.0);
                for key in (0..whole).step_by(KEYS) {
                    let differences = std::array::from_fn::<_, KEYS, _>(|k| s.sub(scaled(key + k), base));
                    let powers = falling_exps(s, differences, &FALLING);
                    for (k, power) in powers.into_iter().enumerate() {
                        s.store(at(key + k), power);
                    }
                    total = s.add(total, s.add(s.add(powers[0], powers[1]), s.add(powers[2], powers[3])));
                }
                for key in whole..keys {
                    let power = falling_exp(s, s.sub(scaled(key), base));
                    s.store(at(key), power);
                    total = s.add(total, power);
                }
                let sum = sum.as_mut_ptr().add(q);
                s.store(sum, s.fma(s.load(sum), rescale, total));
                s.store(largest.as_mut_ptr().add(q), most);
                s.store(factor.as_mut_ptr().add(q), rescale);
            }
            q += S::LANES;
        }
    }
}

/// Gradient of a softmax whose sums are known.
pub struct Gradient<'a> {
    /// Scores, the queries of a key side by side; they become `p = e^(score - base)`.
    pub scores: &'a mut [f32],
    /// Gradients of `p`; they become those of the scores, `p · (gradient - share)`.
    pub slopes: &'a mut [f32],
    /// Logarithm of each query's sum.
    pub base: &'a [f32],
    /// Average of each query's gradients, weighted with `p`.
    pub share: &'a [f32],
}

impl Gradient<'_> {
    /// Computes `p` and the gradients of the scores. The number of queries is a multiple of the lanes of a vector.
    pub fn run(self, isa: Isa) {
        let queries = self.base.len();
        assert_eq!((self.share.len(), self.scores.len() % queries), (queries, 0));
        assert_eq!(self.scores.len(), self.slopes.len());
        isa.run(Slopes(self));
    }
}

struct Slopes<'a>(Gradient<'a>);

impl Kernel for Slopes<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Gradient { scores, slopes, base, share } = self.0;
        let queries = base.len();
        for (scores, slopes) in scores.chunks_exact_mut(queries).zip(slopes.chunks_exact_mut(queries)) {
            let mut q = 0;
            while q + S::LANES <= queries {
                // SAFETY: a vector from `q` on lies within the rows of all of them.
                unsafe {
                    let (score, slope) = (scores.as_mut_ptr().add(q), slopes.as_mut_ptr().add(q));
                    let p = exp(s, s.sub(s.load(score), s.load(base.as_ptr().add(q))));
                    s.store(score, p);
                    s.store(slope, s.mul(p, s.sub(s.load(slope), s.load(share.as_ptr().add(q)))));
                }
                q += S::LANES;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_small_integers_are_exact() {
        // Rows, columns, terms; whether `a` is transposed.
        for (rows, columns, depth, transposed) in
            [(12, 16, 1, false), (25, 48, 7, false), (1, 32, 100, true), (19, 96, 33, true)]
        {
            let value = |i: usize| (i * 7 % 13) as f32 - 6.0;
            let a: Vec<f32> = (0..rows * depth).map(value).collect();
            let b: Vec<f32> = (0..columns * depth).map(|i| value(i + 5)).collect();
            let b_at = |k: usize, n: usize| b[k * columns + n];
            let (row, step) = if transposed { (1, rows) } else { (depth, 1) };
            for isa in Isa::of_vectors() {
                let two = 2 * isa.lanes();
                let mut panels = vec![0f32; depth * columns.next_multiple_of(two)];
                for (k, n) in (0..depth).flat_map(|k| (0..columns).map(move |n| (k, n))) {
                    panels[(n / two * depth + k) * two + n % two] = b_at(k, n);
                }
                for (add, in_panels) in [(false, false), (true, false), (true, true)] {
                    let mut c = vec![1f32; rows * columns];
                    let (b, pitch, panel) = if in_panels { (&panels, two, two * depth) } else { (&b, columns, two) };
                    let multiply = Multiply {
                        rows,
                        columns,
                        depth,
                        a: a.as_ptr(),
                        row,
                        step,
                        b: b.as_ptr(),
                        pitch,
                        panel,
                        c: c.as_mut_ptr(),
                        to: columns,
                        add,
                    };
                    // SAFETY: the vectors have as many elements.
                    unsafe { multiply.run(isa) };
                    for r in 0..rows {
                        for n in 0..columns {
                            let sum: f32 = (0..depth).map(|k| a[r * row + k * step] * b_at(k, n)).sum();
                            assert_eq!(c[r * columns + n], sum + f32::from(u8::from(add)), "{isa} {rows} {columns}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_softmax_in_steps_is_the_softmax() {
        let none = f32::NEG_INFINITY;
        let (queries, keys) = (16, 40);
        // Query 0 sees nothing, query 1 nothing in the first half, query 2 has scores beyond the range of powers.
        let score = |k: usize, q: usize| match q {
            0 => none,
            1 if k < 20 => none,
            2 => 1000.0 * (k as f32 - 25.0),
            _ => ((k * 31 + q * 17) % 23) as f32 * 0.4 - 3.0,
        };
        for isa in Isa::of_vectors() {
            let (mut largest, mut sum) = (vec![none; queries], vec![0f32; queries]);
            let mut kept = vec![0f64; queries];
            for part in 0..4 {
                // Halves of the scores, a gap behind those of a key.
                let pitch = queries + 3;
                let mut scores = vec![f32::NAN; 10 * pitch];
                for (k, q) in (0..10).flat_map(|k| (0..queries).map(move |q| (k, q))) {
                    scores[k * pitch + q] = 0.5 * score(part * 10 + k, q);
                }
                let mut factor = vec![0f32; queries];
                Softmax {
                    scores: &mut scores,
                    pitch,
                    scale: 2.0,
                    largest: &mut largest,
                    sum: &mut sum,
                    factor: &mut factor,
                }
                .run(isa);
                for q in 0..queries {
                    // The sum of k · power, rescaled as results are.
                    let new: f64 = (0..10).map(|k| (part * 10 + k) as f64 * f64::from(scores[k * pitch + q])).sum();
                    kept[q] = kept[q] * f64::from(factor[q]) + new;
                }
            }
            assert_eq!((largest[0], sum[0], kept[0]), (none, 0.0, 0.0), "{isa}");
            for q in 1..queries {
                let scores: Vec<f64> = (0..keys).map(|k| f64::from(score(k, q))).collect();
                let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let power = |k: usize| (scores[k] - most).exp();
                let want: f64 = (0..keys).map(power).sum();
                let average: f64 = (0..keys).map(|k| k as f64 * power(k)).sum::<f64>() / want;
                // 40 sums and powers within 2 units, of differences rounded to a unit of 10.
                let bound = 2f64.powi(-24) * (40.0 + 4.0 + 20.0);
                assert_eq!(f64::from(largest[q]), most);
                assert!((f64::from(sum[q]) / want - 1.0).abs() <= bound, "{isa} {q}: {} for {want}", sum[q]);
                assert!((kept[q] / f64::from(sum[q]) / average - 1.0).abs() <= 2.0 * bound, "{isa} {q}");
            }
        }
    }
}
