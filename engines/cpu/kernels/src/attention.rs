//! Attention of blocks that lie in the cache: products, and the softmax between them.

use crate::activation::{FALLING, exp, falling_exp, falling_exps};
use hipdnn_cpu_simd::isa::{Isa, Kernel, MAX_LANES, Simd, UNROLLED, first};

/// Row granularity of blocks whose rows are padded: every instruction set's tile is as high or half as high.
pub const ROWS: usize = 12;

/// Beta of a product, the factor of its destination in `c = β·c + a·b`.
#[derive(Clone, Copy, Debug)]
pub enum Beta {
    /// 0: the destination is overwritten, and not read.
    Zero,
    /// 1: the product is accumulated.
    One,
    /// Factors, one for each row: as online softmax rescales what it has accumulated.
    Rows(*const f32),
}

/// Product `c[r][n] = (β[r]·c[r][n] + Σ a[r·row + k·step] · b[panel of n + k·pitch]) · scale[r]`.
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
    /// Factor of `c` before the product is added.
    pub beta: Beta,
    /// Factor of each row of the result; null for none.
    pub scale: *const f32,
}

impl Multiply {
    /// Multiplies.
    ///
    /// # Safety
    /// All elements that the extents reach can be read, those of `c` written, and read unless beta is zero; beta and scale have a
    /// factor for each row, where they are given.
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
            let at = |r: usize, v: usize| m.c.add((row + r) * m.to + column + v * S::LANES);
            match m.beta {
                Beta::Zero => {}
                Beta::One => each(&mut sums, |r, v, sum| s.add(s.load(at(r, v)), sum)),
                Beta::Rows(factors) => {
                    each(&mut sums, |r, v, sum| s.fma(s.load(at(r, v)), s.splat(*factors.add(row + r)), sum));
                }
            }
            if !m.scale.is_null() {
                each(&mut sums, |r, _, sum| s.mul(sum, s.splat(*m.scale.add(row + r))));
            }
            for (r, sums) in sums.into_iter().enumerate() {
                for (v, sum) in sums.into_iter().enumerate() {
                    s.store(at(r, v), sum);
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

/// Replaces each vector, of a row and a column, by what `f` makes of it.
#[inline(always)]
fn each<V: Copy, const R: usize, const N: usize>(sums: &mut [[V; N]; R], f: impl Fn(usize, usize, V) -> V) {
    for (r, sums) in sums.iter_mut().enumerate() {
        for (v, sum) in sums.iter_mut().enumerate() {
            *sum = f(r, v, *sum);
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

/// Biases of a block of scores.
#[derive(Clone, Copy, Debug)]
pub enum Bias {
    /// None.
    None,
    /// One for each key: the first key's, and the stride between keys.
    Keys(*const f32, usize),
    /// One for each score, those of a query side by side: the first query's, and the stride between queries.
    Rows(*const f32, usize),
    /// One for each score, those of a key side by side: the first key's, and the stride between keys.
    Columns(*const f32, usize),
}

/// Scores of a block times the scale, plus a bias each.
pub struct Biased<'a> {
    /// Scores, the queries of a key side by side.
    pub scores: &'a mut [f32],
    /// Stride between the scores of two keys.
    pub pitch: usize,
    /// Number of queries. Up to whole vectors of them there is room in `scores`, for values that mean nothing.
    pub queries: usize,
    /// Factor of the scores.
    pub scale: f32,
    /// Biases.
    pub bias: Bias,
}

impl Biased<'_> {
    /// Scales the scores and adds the biases.
    ///
    /// # Safety
    /// There is a bias for each key, or for each key and query; of [`Bias::Columns`] whole vectors of queries' for each key.
    pub unsafe fn run(self, isa: Isa) {
        assert!(self.queries.next_multiple_of(isa.lanes()) <= self.pitch, "queries of a key fit between two");
        assert!(self.scores.len().is_multiple_of(self.pitch), "scores of whole keys");
        isa.run(AddBias(self));
    }
}

/// A [`Biased`] whose biases its maker has been promised.
struct AddBias<'a>(Biased<'a>);

impl Kernel for AddBias<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Biased { scores, pitch, queries, scale, bias } = self.0;
        let keys = scores.len() / pitch;
        let (scores, scale) = (scores.as_mut_ptr(), s.splat(scale));
        // SAFETY: scores of whole vectors of queries are there for each key, and the biases as `Biased::run` was promised.
        unsafe {
            if let Bias::Rows(from, across) = bias {
                let (mut key, mut query) = (0, 0);
                while key < keys {
                    let (scores, from) = (scores.add(key * pitch + query), from.add(query * across + key));
                    add_square(s, (scores, pitch), scale, (from, across), [keys - key, queries - query]);
                    query += S::LANES;
                    if query >= queries {
                        (key, query) = (key + S::LANES, 0);
                    }
                }
                return;
            }
            for key in 0..keys {
                let row = scores.add(key * pitch);
                let mut each = s.splat(match bias {
                    Bias::Keys(from, step) => *from.add(key * step),
                    _ => 0.0,
                });
                let mut q = 0;
                while q < queries {
                    if let Bias::Columns(from, width) = bias {
                        each = s.load(from.add(key * width + q));
                    }
                    s.store(row.add(q), s.fma(s.load(row.add(q)), scale, each));
                    q += S::LANES;
                }
            }
        }
    }
}

/// Scales the scores of up to `LANES` keys and queries, and adds their biases, which lie by queries.
///
/// # Safety
/// Scores of a vector of queries are there for each key, and a bias for each of both.
#[inline(always)]
unsafe fn add_square<S: Simd>(
    s: S,
    (scores, pitch): (*mut f32, usize),
    scale: S::V,
    (bias, across): (*const f32, usize),
    [keys, queries]: [usize; 2],
) {
    let mut rows = [s.splat(0.0); MAX_LANES];
    let there = s.mask(first(keys.min(S::LANES)));
    // SAFETY: the caller's promise. Of queries that are not there the last one's biases are loaded.
    unsafe {
        let mut i = 0;
        while i < S::LANES {
            let from = bias.add(i.min(queries - 1) * across);
            rows[i] = if keys >= S::LANES { s.load(from) } else { s.load_masked(there, from) };
            i += 1;
        }
        let columns = s.transpose(rows);
        let mut i = 0;
        while i < S::LANES {
            if i < keys {
                let to = scores.add(i * pitch);
                s.store(to, s.fma(s.load(to), scale, columns[i]));
            }
            i += 1;
        }
    }
}

/// Online softmax for a row of queries: its state after some of the keys.
pub struct Softmax<'a> {
    /// Scores, the queries of a key side by side; they become e^(scale · score - largest).
    pub scores: &'a mut [f32],
    /// Stride between the scores of two keys.
    pub pitch: usize,
    /// Factor of the scores, not negative.
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
        assert!(self.scale >= 0.0, "a factor of {}", self.scale);
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
                let before = s.load(largest.as_ptr().add(q));
                let mut most = [s.splat(f32::NEG_INFINITY); KEYS];
                let whole = keys / KEYS * KEYS;
                for key in (0..whole).step_by(KEYS) {
                    for (k, most) in most.iter_mut().enumerate() {
                        *most = s.max(s.load(at(key + k)), *most);
                    }
                }
                let mut most = s.max(s.max(most[0], most[1]), s.max(most[2], most[3]));
                for key in whole..keys {
                    most = s.max(s.load(at(key)), most);
                }
                // A factor that is not negative keeps the order of what it multiplies.
                let most = s.max(s.mul(most, scale), before);
                // Where all is masked so far, the base is 0 and every power below is.
                let base = s.select(s.lt(most, s.splat(f32::MIN)), s.splat(0.0), most);
                let rescale = falling_exp(s, s.sub(before, base));
                // Rounded as the base is: the greatest score's power is 1, however large it is.
                let difference = |key: usize| s.sub(s.mul(s.load(at(key)), scale), base);
                let mut total = s.splat(0.0);
                for key in (0..whole).step_by(KEYS) {
                    let differences = std::array::from_fn::<_, KEYS, _>(|k| difference(key + k));
                    let powers = falling_exps(s, differences, &FALLING);
                    for (k, power) in powers.into_iter().enumerate() {
                        s.store(at(key + k), power);
                    }
                    total = s.add(total, s.add(s.add(powers[0], powers[1]), s.add(powers[2], powers[3])));
                }
                for key in whole..keys {
                    let power = falling_exp(s, difference(key));
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
                let (thrice, halves) = (vec![3f32; rows], vec![0.5f32; rows]);
                let scaled = |row: usize| if row.is_multiple_of(3) { 0.5 } else { 2.0 };
                let scales: Vec<f32> = (0..rows).map(scaled).collect();
                for (beta, times, scale, in_panels) in [
                    (Beta::Zero, 0.0, &halves, false),
                    (Beta::One, 1.0, &vec![], false),
                    (Beta::Rows(thrice.as_ptr()), 3.0, &vec![], true),
                    (Beta::Rows(thrice.as_ptr()), 3.0, &scales, true),
                ] {
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
                        beta,
                        scale: if scale.is_empty() { std::ptr::null() } else { scale.as_ptr() },
                    };
                    // SAFETY: the vectors have as many elements.
                    unsafe { multiply.run(isa) };
                    for r in 0..rows {
                        for n in 0..columns {
                            let sum: f32 = (0..depth).map(|k| a[r * row + k * step] * b_at(k, n)).sum();
                            let want = (sum + times) * scale.get(r).unwrap_or(&1.0);
                            assert_eq!(c[r * columns + n], want, "{isa} {rows} {columns} {beta:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn biases_of_every_layout_are_added() {
        for (isa, (queries, keys)) in
            Isa::of_vectors().flat_map(|isa| [(1usize, 1usize), (16, 32), (21, 19), (40, 5)].map(|size| (isa, size)))
        {
            let pitch = queries.next_multiple_of(isa.lanes()) + 3;
            let bias = |key: usize, query: usize| (key * 100 + query) as f32;
            let rows: Vec<f32> = (0..queries).flat_map(|query| (0..keys).map(move |key| bias(key, query))).collect();
            let columns: Vec<f32> = (0..keys).flat_map(|key| (0..pitch).map(move |query| bias(key, query))).collect();
            let each: Vec<f32> = (0..2 * keys).map(|i| bias(i / 2, i % 2)).collect();
            for (bias, of_query) in [
                (Bias::None, None),
                (Bias::Keys(each.as_ptr(), 2), Some(0.0)),
                (Bias::Rows(rows.as_ptr(), keys), Some(1.0)),
                (Bias::Columns(columns.as_ptr(), pitch), Some(1.0)),
            ] {
                let mut scores: Vec<f32> = (0..keys * pitch).map(|i| (i % 7) as f32).collect();
                // SAFETY: the vectors have a bias for each key and query.
                unsafe { Biased { scores: &mut scores, pitch, queries, scale: -0.5, bias }.run(isa) };
                for (key, query) in (0..keys).flat_map(|key| (0..queries).map(move |query| (key, query))) {
                    let at = key * pitch + query;
                    let added = of_query.map_or(0.0, |of_query| (key * 100) as f32 + of_query * query as f32);
                    assert_eq!(scores[at], (at % 7) as f32 * -0.5 + added, "{isa} {bias:?}, key {key}, query {query}");
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

    #[test]
    fn the_greatest_score_has_a_power_of_one() {
        // Of scores so large that a rounding of theirs is beyond the range of powers, by a scale that rounds.
        for (isa, largest) in Isa::of_vectors().flat_map(|isa| [1.0f32, 3e5, 3e10, -7e30].map(|largest| (isa, largest)))
        {
            let (queries, keys) = (isa.lanes(), 9);
            let mut scores: Vec<f32> =
                (0..keys * queries).map(|i| if i / queries == 5 { largest } else { largest - largest.abs() }).collect();
            let (mut most, mut sum) = (vec![f32::NEG_INFINITY; queries], vec![0f32; queries]);
            let (pitch, scale, mut factor) = (queries, std::f32::consts::FRAC_1_SQRT_2, vec![0f32; queries]);
            Softmax { scores: &mut scores, pitch, scale, largest: &mut most, sum: &mut sum, factor: &mut factor }
                .run(isa);
            for query in 0..queries {
                assert_eq!(scores[5 * queries + query], 1.0, "{isa}, greatest score {largest}");
                assert!((1.0..=9.0).contains(&sum[query]), "{isa}, greatest score {largest}: sum {}", sum[query]);
            }
        }
    }
}
