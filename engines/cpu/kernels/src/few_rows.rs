//! Products of a few rows with a matrix that is read once, in the order in which it lies: dot products with its columns where
//! these are contiguous, sums of its rows where those are.

use hipdnn_cpu_simd::isa::{Isa, Kernel, MAX_LANES, Simd, first};

/// Maximum number of rows of the left side that are multiplied together.
pub const ROWS: usize = 4;

/// Maximum number of rows of the left side where rows of the right one are summed.
pub const MOST_ROWS: usize = 16;

/// Number of columns whose dot products are summed together.
pub const GROUP: usize = 4;

/// Product `sums[r][j] = Σ a[r][k] · b[k][j]` with `depth` terms.
pub struct FewRows<'a> {
    /// Address of the first row of the left side, and stride between rows.
    pub a: *const f32,
    /// See `a`.
    pub pitch: usize,
    /// Address of the first value of the right side.
    pub b: *const f32,
    /// Stride between contiguous columns, or rows, of the right side.
    pub stride: usize,
    /// Number of rows of the left side, at least 1.
    pub rows: usize,
    /// Number of columns of the right side.
    pub count: usize,
    /// Number of terms of a sum.
    pub depth: usize,
    /// The result: `count` sums of each row.
    pub sums: &'a mut [f32],
    /// Stride between the sums of two rows, at least `count`.
    pub sums_pitch: usize,
}

impl FewRows<'_> {
    /// Dot products of any number of rows with columns that are contiguous.
    ///
    /// # Panics
    /// If there are no rows, sums of two rows overlap, or the result is shorter.
    ///
    /// # Safety
    /// All rows of the left side and columns of the right one can be read.
    pub unsafe fn by_columns(self, isa: Isa) {
        self.check();
        isa.run(ByColumns(self));
    }

    /// Sums of rows that are contiguous, each times a value of the left side, in the order of rows.
    ///
    /// # Panics
    /// If there are none or more than [`MOST_ROWS`] rows, sums of two rows overlap, or the result is shorter.
    ///
    /// # Safety
    /// All rows of both sides can be read.
    pub unsafe fn by_rows(self, isa: Isa) {
        assert!(self.rows <= MOST_ROWS, "expected at most {MOST_ROWS} rows, got {}", self.rows);
        self.check();
        isa.run(ByRows(self));
    }

    fn check(&self) {
        assert!(self.rows > 0, "expected rows of the left side, got none");
        assert!(self.sums_pitch >= self.count, "expected sums at least {} apart, got {}", self.count, self.sums_pitch);
        let len = (self.rows - 1) * self.sums_pitch + self.count;
        assert!(self.sums.len() >= len, "expected room for {len} sums, got {}", self.sums.len());
    }
}

/// [`FewRows::by_columns`], whose memory its caller has been promised.
struct ByColumns<'a>(FewRows<'a>);

impl Kernel for ByColumns<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let FewRows { rows, count, .. } = self.0;
        // Eight lanes go with sixteen registers: those of more sums would not be enough.
        let most = if S::LANES < 16 { 2 } else { ROWS };
        let mut from = 0;
        while from < count {
            let mut row = 0;
            while row < rows {
                // SAFETY: there are as many rows.
                unsafe {
                    match (rows - row).min(most) {
                        1 => self.multiply::<S, 1>(s, row, from),
                        2 => self.multiply::<S, 2>(s, row, from),
                        3 => self.multiply::<S, 3>(s, row, from),
                        _ => self.multiply::<S, ROWS>(s, row, from),
                    }
                }
                row += most;
            }
            from += GROUP;
        }
    }
}

impl ByColumns<'_> {
    /// Multiplies `R` rows from `row` on with the columns of a group from `from` on.
    ///
    /// # Safety
    /// There are as many rows.
    #[inline(always)]
    unsafe fn multiply<S: Simd, const R: usize>(&mut self, s: S, row: usize, from: usize) {
        let FewRows { a, pitch, b, stride, count, depth, sums: to, sums_pitch, .. } = &mut self.0;
        let (pitch, stride, count, depth, sums_pitch) = (*pitch, *stride, *count, *depth, *sums_pitch);
        let (left, b) = (a.wrapping_add(row * pitch), *b);
        // Columns that are not there repeat the last one.
        let at = |j: usize| b.wrapping_add((from + j).min(count - 1) * stride);
        let columns: [*const f32; GROUP] = [at(0), at(1), at(2), at(3)];
        let ahead = GROUP * stride;
        let mut sums = [[s.splat(0.0); R]; GROUP];
        let mut k = 0;
        // SAFETY: `by_columns` has been promised rows and columns of `depth` values; the mask ends there.
        unsafe {
            while k + S::LANES <= depth {
                let mut a = [s.splat(0.0); R];
                for (r, a) in a.iter_mut().enumerate() {
                    *a = s.load(left.wrapping_add(r * pitch + k));
                }
                for (j, sums) in sums.iter_mut().enumerate() {
                    // The columns behind these come while these are multiplied.
                    s.prefetch_far(columns[j].wrapping_add(ahead + k));
                    let b = s.load(columns[j].wrapping_add(k));
                    for (sum, a) in sums.iter_mut().zip(a) {
                        *sum = s.fma(a, b, *sum);
                    }
                }
                k += S::LANES;
            }
            if k < depth {
                let mask = s.mask(first(depth - k));
                for (j, sums) in sums.iter_mut().enumerate() {
                    let b = s.load_masked(mask, columns[j].wrapping_add(k));
                    for (r, sum) in sums.iter_mut().enumerate() {
                        *sum = s.fma(s.load_masked(mask, left.wrapping_add(r * pitch + k)), b, *sum);
                    }
                }
            }
            let mut totals = [0f32; ROWS * GROUP + MAX_LANES];
            let mut done = 0;
            while done < R * GROUP {
                let mut square = [s.splat(0.0); MAX_LANES];
                let mut i = 0;
                while i < S::LANES && done + i < R * GROUP {
                    square[i] = sums[(done + i) / R][(done + i) % R];
                    i += 1;
                }
                s.store(totals.as_mut_ptr().add(done), total::<S>(s, square));
                done += S::LANES;
            }
            let columns = GROUP.min(count - from);
            for r in 0..R {
                for j in 0..columns {
                    to[(row + r) * sums_pitch + from + j] = totals[j * R + r];
                }
            }
        }
    }
}

/// Sum of the lanes of each of `LANES` vectors, halves first.
#[inline(always)]
fn total<S: Simd>(s: S, square: [S::V; MAX_LANES]) -> S::V {
    let mut lanes = s.transpose(square);
    let mut width = S::LANES;
    while width > 1 {
        width /= 2;
        let mut i = 0;
        while i < width {
            lanes[i] = s.add(lanes[i], lanes[i + width]);
            i += 1;
        }
    }
    lanes[0]
}

/// [`FewRows::by_rows`], whose memory its caller has been promised.
struct ByRows<'a>(FewRows<'a>);

impl Kernel for ByRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let FewRows { rows, count, sums, sums_pitch, .. } = &mut self.0;
        for row in 0..*rows {
            sums[row * *sums_pitch..][..*count].fill(0.0);
        }
        // As many rows of the right side at a time as there are registers for factors.
        match self.0.rows {
            1 => self.multiply::<S, 8>(s),
            2 => self.multiply::<S, 4>(s),
            _ => self.multiply::<S, 2>(s),
        }
    }
}

impl ByRows<'_> {
    /// Adds `G` rows of the right side at a time.
    #[inline(always)]
    fn multiply<S: Simd, const G: usize>(&mut self, s: S) {
        let depth = self.0.depth;
        let mut k = 0;
        while k + G <= depth {
            self.add_to_all::<S, G>(s, k);
            k += G;
        }
        while k < depth {
            self.add_to_all::<S, 1>(s, k);
            k += 1;
        }
    }

    /// Adds `G` terms from `k` on to the sums of all rows, some at a time, which find these rows of the right side in the
    /// first-level cache.
    #[inline(always)]
    fn add_to_all<S: Simd, const G: usize>(&mut self, s: S, k: usize) {
        let rows = self.0.rows;
        let mut row = 0;
        // SAFETY: there are as many rows, and `depth` terms.
        unsafe {
            while row + ROWS <= rows {
                self.add::<S, ROWS, G>(s, k, row);
                row += ROWS;
            }
            match rows - row {
                1 => self.add::<S, 1, G>(s, k, row),
                2 => self.add::<S, 2, G>(s, k, row),
                3 => self.add::<S, 3, G>(s, k, row),
                _ => {}
            }
        }
    }

    /// Adds `G` terms from `k` on to the sums of `R` rows from one on.
    ///
    /// # Safety
    /// There are as many rows and terms.
    #[inline(always)]
    unsafe fn add<S: Simd, const R: usize, const G: usize>(&mut self, s: S, k: usize, row: usize) {
        let FewRows { a, pitch, b, stride, count, sums, sums_pitch, .. } = &mut self.0;
        let (b, count, sums_pitch) = (b.wrapping_add(k * *stride), *count, *sums_pitch);
        let sums = sums[row * sums_pitch..].as_mut_ptr();
        let mut factors = [[s.splat(0.0); G]; R];
        for (r, factors) in factors.iter_mut().enumerate() {
            for (g, factor) in factors.iter_mut().enumerate() {
                // SAFETY: the caller's promise.
                *factor = s.splat(unsafe { *a.add((row + r) * *pitch + k + g) });
            }
        }
        let mut j = 0;
        // SAFETY: rows of the right side have `count` values, as the result's have; masks end there.
        unsafe {
            while j + S::LANES <= count {
                let mut values = [s.splat(0.0); G];
                for (g, value) in values.iter_mut().enumerate() {
                    *value = s.load(b.wrapping_add(g * *stride + j));
                }
                for (r, factors) in factors.iter().enumerate() {
                    let to = sums.add(r * sums_pitch + j);
                    let mut sum = s.load(to);
                    for (factor, value) in factors.iter().zip(&values) {
                        sum = s.fma(*factor, *value, sum);
                    }
                    s.store(to, sum);
                }
                j += S::LANES;
            }
            if j < count {
                let mask = s.mask(first(count - j));
                for (r, factors) in factors.iter().enumerate() {
                    let to = sums.add(r * sums_pitch + j);
                    let mut sum = s.load_masked(mask, to);
                    for (g, factor) in factors.iter().enumerate() {
                        sum = s.fma(*factor, s.load_masked(mask, b.wrapping_add(g * *stride + j)), sum);
                    }
                    s.store_first(count - j, to, sum);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_small_integers_are_exact_in_either_form() {
        let value = |i: usize| (i * 7 % 13) as f32 - 6.0;
        for isa in Isa::of_vectors() {
            for (rows, count, depth) in (1..=MOST_ROWS)
                .flat_map(|rows| [(1, 1), (5, 3), (16, 8), (33, 40), (70, 19)].map(|(c, d)| (rows, c, d)))
            {
                let (pitch, stride) = (depth + 3, count.max(depth) + 5);
                let a: Vec<f32> = (0..rows * pitch).map(value).collect();
                let b: Vec<f32> = (0..count.max(depth) * stride).map(|i| value(i + 4)).collect();
                for by_rows in [false, true] {
                    let sums_pitch = count + depth % 3;
                    let mut sums = vec![f32::NAN; rows * sums_pitch];
                    let product = FewRows {
                        a: a.as_ptr(),
                        pitch,
                        b: b.as_ptr(),
                        stride,
                        rows,
                        count,
                        depth,
                        sums: &mut sums,
                        sums_pitch,
                    };
                    // SAFETY: the sides have a stride for each row and column.
                    unsafe { if by_rows { product.by_rows(isa) } else { product.by_columns(isa) } };
                    for (r, j) in (0..rows).flat_map(|r| (0..count).map(move |j| (r, j))) {
                        let right = |k: usize| if by_rows { b[k * stride + j] } else { b[j * stride + k] };
                        let want: f32 = (0..depth).map(|k| a[r * pitch + k] * right(k)).sum();
                        assert_eq!(
                            sums[r * sums_pitch + j],
                            want,
                            "{isa} {rows}×{count}×{depth}, by rows {by_rows}: {r} {j}"
                        );
                    }
                }
            }
        }
    }
}
