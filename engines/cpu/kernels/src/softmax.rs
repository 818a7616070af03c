//! Softmax of rows: `eˣ⁻ᵐ` over the sum of a row's, where `m` is the greatest of its values.
//!
//! A row's three loops follow each other, so that it stays in the first-level cache between them.

use hipdnn_cpu_simd::isa::{Isa, Kernel, Simd};

use crate::activation::{Row, falling_exponential_sum};
use crate::extremes::extreme;
use crate::normalize::multiply;

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
        let Rows { from, to, len, count, pitch } = self.0;
        for number in 0..count {
            let (from, to) = (from.wrapping_add(number * pitch[0]), to.wrapping_add(number * pitch[1]));
            // SAFETY: the caller's promise, of a row: nobody writes to its values while they are borrowed.
            unsafe {
                let greatest = extreme::<S, true>(s, std::slice::from_raw_parts(from, len));
                let sum = falling_exponential_sum(s, Row { from, to, len }, greatest, pitch[0]) as f32;
                multiply(s, Row { from: to, to, len }, s.splat(1.0 / sum));
            }
        }
    }
}
