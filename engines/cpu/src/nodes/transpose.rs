//! Squares of memory with rows and columns swapped, in registers.

use hipdnn_cpu_kernels::isa::{Isa, Kernel, MAX_LANES, Simd};

/// Number of rows up to which the next line of each is fetched while one is transposed, so that they stay in the first-level
/// cache until they are.
const AHEAD: usize = 64;

/// Transposition of `f32` values: `to[column·out + row] = from[row·across + column]`.
#[derive(Clone, Copy)]
pub(crate) struct Transposition {
    pub(crate) from: *const f32,
    /// Stride between rows of `from`.
    pub(crate) across: usize,
    pub(crate) to: *mut f32,
    /// Stride between rows of `to`.
    pub(crate) out: usize,
    /// Number of rows of `from`, and of its columns.
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Transposition {
    /// Transposes.
    ///
    /// # Safety
    /// All values can be read, and their places in `to` be written.
    pub(crate) unsafe fn run(self, isa: Isa) {
        isa.run(Squares(self));
    }

    /// Transposes where vectors are at hand already.
    ///
    /// # Safety
    /// As [`Transposition::run`].
    #[inline(always)]
    unsafe fn squares<S: Simd>(self, s: S) {
        let Transposition { from, across, to, out, rows, columns } = self;
        // All rows of as many columns as a cache line has, which is then read once.
        let mut first = 0;
        while first < columns {
            let end = columns.min(first + MAX_LANES);
            let mut row = 0;
            while row < rows {
                let high = S::LANES.min(rows - row);
                if rows <= AHEAD {
                    // Rows lie too far apart for the CPU to see where the next lines are.
                    for row in row..row + high {
                        s.prefetch(from.wrapping_add(row * across + end));
                    }
                }
                let mut column = first;
                while column < end {
                    let wide = S::LANES.min(end - column);
                    let (from, to) = (from.wrapping_add(row * across + column), to.wrapping_add(column * out + row));
                    // SAFETY: the square's values lie within those of the caller.
                    unsafe {
                        if high == S::LANES && wide == S::LANES {
                            square::<S>(s, from, across, to, out);
                        } else {
                            edge((from, across, high), (to, out, wide));
                        }
                    }
                    column += wide;
                }
                row += high;
            }
            first = end;
        }
    }
}

/// A [`Transposition`] whose memory its maker has been promised.
struct Squares(Transposition);

impl Kernel for Squares {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: `Transposition::run` has been promised the memory.
        unsafe { self.0.squares(s) };
    }
}

/// # Safety
/// As [`Transposition::run`], for a square of `LANES` by `LANES`.
#[inline(always)]
unsafe fn square<S: Simd>(s: S, from: *const f32, across: usize, to: *mut f32, out: usize) {
    let mut rows = [s.splat(0.0); MAX_LANES];
    // SAFETY: the caller's promise.
    unsafe {
        let mut i = 0;
        while i < S::LANES {
            rows[i] = s.load(from.wrapping_add(i * across));
            i += 1;
        }
        let columns = s.transpose(rows);
        let mut i = 0;
        while i < S::LANES {
            s.store(to.wrapping_add(i * out), columns[i]);
            i += 1;
        }
    }
}

/// # Safety
/// As [`Transposition::run`], for a rectangle of `high` rows and `wide` columns of `from`.
unsafe fn edge((from, across, high): (*const f32, usize, usize), (to, out, wide): (*mut f32, usize, usize)) {
    for row in 0..high {
        for column in 0..wide {
            // SAFETY: the caller's promise.
            unsafe { to.add(column * out + row).write(from.add(row * across + column).read()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_comes_to_its_place() {
        for isa in Isa::available() {
            for (rows, columns) in [(1, 1), (8, 8), (16, 16), (3, 40), (33, 17), (64, 5), (24, 48)] {
                let (across, out) = (columns + 3, rows + 2);
                let from: Vec<f32> = (0..rows * across).map(|i| i as f32).collect();
                let mut to = vec![-1f32; columns * out];
                let work = Transposition { from: from.as_ptr(), across, to: to.as_mut_ptr(), out, rows, columns };
                // SAFETY: the vectors have as many values.
                unsafe { work.run(isa) };
                for (i, got) in to.iter().enumerate() {
                    let (column, row) = (i / out, i % out);
                    let want = if row < rows { (row * across + column) as f32 } else { -1.0 };
                    assert_eq!(*got, want, "{isa} {rows}×{columns} at {column} {row}");
                }
            }
        }
    }
}
