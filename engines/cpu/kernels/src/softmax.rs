//! Softmax of rows: `eˣ⁻ᵐ` over the sum of a row's, where `m` is the greatest of its values.
//!
//! A row's three loops follow each other, so that it stays in the first-level cache between them; those of short rows are software-pipelined.

use hipdnn_cpu_simd::isa::{Isa, Kernel, Simd};

use crate::activation::{Row, falling_exponential_sum};
use crate::extremes::extreme;
use crate::normalize::multiply;

/// Row length up to which rows are software-pipelined: the maximum of the next row, the exponentials of a row, and the scaling of the one
/// before, each of which waits for a reduction over its row. Of longer rows three would not stay in the first-level cache.
const SHORT: usize = 1024;

/// Rows of values beside each other, and where their results go.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The first row's values.
    pub from: *const f32,
    /// The first row's results: its values' own place, or apart from those of all rows.
    pub to: *mut f32,
    /// Number of values of a row.
    pub len: usize,
    /// Number of rows.
    pub count: usize,
    /// Values from a row to the next, of those that are read and of results.
    pub pitch: [usize; 2],
}

/// Computes the softmax of each row: a result is within 2 ulp of the exponential of a rounded difference, times the inverse of the
/// rounded sum. Results of a row with a NaN, or whose greatest value is infinite, are NaN.
///
/// # Safety
/// The rows can be read, and their results written.
pub unsafe fn softmax_rows(isa: Isa, rows: Rows) {
    isa.run(Softmax(rows));
}

struct Softmax(Rows);

impl Kernel for Softmax {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Rows { len, count, .. } = self.0;
        // SAFETY: the caller's promise, of rows that there are; results of a row take no place of values of a row behind it.
        unsafe {
            if len > SHORT || count == 0 {
                for row in 0..count {
                    let factor = self.powers(s, row, self.greatest(s, row));
                    self.scale(s, row, factor);
                }
                return;
            }
            let (mut most, mut before) = (self.greatest(s, 0), 0.0);
            for row in 0..count {
                let next = if row + 1 < count { self.greatest(s, row + 1) } else { most };
                let factor = self.powers(s, row, most);
                if row > 0 {
                    self.scale(s, row - 1, before);
                }
                (most, before) = (next, factor);
            }
            self.scale(s, count - 1, before);
        }
    }
}

impl Softmax {
    /// Place of a row's first value and of its first result.
    #[inline(always)]
    fn row(&self, number: usize) -> Row {
        let Rows { from, to, len, pitch, .. } = self.0;
        Row { from: from.wrapping_add(number * pitch[0]), to: to.wrapping_add(number * pitch[1]), len }
    }

    /// Greatest value of a row.
    ///
    /// # Safety
    /// There is such a row.
    #[inline(always)]
    unsafe fn greatest<S: Simd>(&self, s: S, number: usize) -> f32 {
        // SAFETY: a row's values, to which nobody writes while they are borrowed.
        extreme::<S, true>(s, unsafe { std::slice::from_raw_parts(self.row(number).from, self.0.len) })
    }

    /// Computes the exponentials of a row; gives the inverse of their sum.
    ///
    /// # Safety
    /// There is such a row.
    #[inline(always)]
    unsafe fn powers<S: Simd>(&self, s: S, number: usize, greatest: f32) -> f32 {
        // SAFETY: the caller's promise.
        let sum = unsafe { falling_exponential_sum(s, self.row(number), greatest, self.0.pitch[0]) };
        1.0 / sum as f32
    }

    /// Multiplies a row's results.
    ///
    /// # Safety
    /// There is such a row, whose exponentials have been computed.
    #[inline(always)]
    unsafe fn scale<S: Simd>(&self, s: S, number: usize, factor: f32) {
        let to = self.row(number).to;
        // SAFETY: the caller's promise.
        unsafe { multiply(s, Row { from: to, to, len: self.0.len }, s.splat(factor)) };
    }
}
