//! Squares of memory with rows and columns swapped, in registers.

use hipdnn_cpu_simd::isa::{Isa, Kernel, MAX_LANES, Simd};

/// Number of rows up to which the next line of each is fetched while one is transposed, so that they stay in the first-level
/// cache until they are.
const AHEAD: usize = 64;

/// Transposition of `f32` values: `to[column·out + row] = from[row·across + column]`.
#[derive(Clone, Copy)]
pub struct Transposition {
    /// First value of the first row.
    pub from: *const f32,
    /// Stride between rows of `from`.
    pub across: usize,
    /// Place of that value.
    pub to: *mut f32,
    /// Stride between rows of `to`.
    pub out: usize,
    /// Number of rows of `from`.
    pub rows: usize,
    /// Number of its columns.
    pub columns: usize,
}

impl Transposition {
    /// Transposes.
    ///
    /// # Safety
    /// All values can be read, and their places in `to` be written.
    pub unsafe fn run(self, isa: Isa) {
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
                        if self.is_square::<S>((row, high), (column, wide)) {
                            square::<S>(s, (from, across, high), (to, out, wide));
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

impl Transposition {
    /// Interleaves `N` rows, two to four: the channels of an image, the columns of a transposed convolution.
    ///
    /// # Safety
    /// As [`Transposition::run`], for `N` rows whose columns follow each other in `to`.
    #[inline(always)]
    unsafe fn zip_rows<S: Simd, const N: usize>(self, s: S) {
        let Transposition { from, across, to, columns, .. } = self;
        let mut column = 0;
        // SAFETY: the caller's promise: so many columns are left of each row, and places for `N` values of each.
        unsafe {
            while column + S::LANES <= columns {
                let row = |row: usize| s.load(from.wrapping_add(row * across + column));
                let none = s.splat(0.0);
                let zipped = match N {
                    2 => {
                        let (low, high) = s.zip(row(0), row(1));
                        [low, high, none, none]
                    }
                    3 => {
                        let [low, middle, high] = s.zip_three([row(0), row(1), row(2)]);
                        [low, middle, high, none]
                    }
                    _ => {
                        let (even, odd) = (s.zip(row(0), row(2)), s.zip(row(1), row(3)));
                        let (low, high) = (s.zip(even.0, odd.0), s.zip(even.1, odd.1));
                        [low.0, low.1, high.0, high.1]
                    }
                };
                for (i, vector) in zipped.into_iter().take(N).enumerate() {
                    s.store(to.add(N * column + i * S::LANES), vector);
                }
                column += S::LANES;
            }
            edge((from.wrapping_add(column), across, N), (to.wrapping_add(N * column), N, columns - column));
        }
    }

    /// Deinterleaves three columns.
    ///
    /// # Safety
    /// As [`Transposition::run`], for three columns whose rows follow each other in `from`.
    #[inline(always)]
    unsafe fn unzip_columns<S: Simd>(self, s: S) {
        let Transposition { from, to, out, rows, .. } = self;
        let mut row = 0;
        // SAFETY: the caller's promise: three values are left of so many rows, and places for them in each column.
        unsafe {
            while row + S::LANES <= rows {
                let unzipped = s.unzip_three([0, 1, 2].map(|i| s.load(from.add(3 * row + i * S::LANES))));
                for (column, vector) in unzipped.into_iter().enumerate() {
                    s.store(to.wrapping_add(column * out + row), vector);
                }
                row += S::LANES;
            }
            edge((from.wrapping_add(3 * row), 3, rows - row), (to.wrapping_add(row), out, 3));
        }
    }

    /// True if whole vectors may be read from the rows and written to the columns of a rectangle: it is a square, or what
    /// vectors reach beyond it are values of the rows behind, or places of the columns behind, which are written later.
    #[inline(always)]
    fn is_square<S: Simd>(&self, (row, high): (usize, usize), (column, wide): (usize, usize)) -> bool {
        // Values from the first of some line to the end of a vector that begins with the last of `LANES` lines.
        let reach = |first: usize, line: usize| (first + S::LANES - 1) * line + S::LANES;
        let Transposition { across, out, rows, columns, .. } = *self;
        match (high == S::LANES, wide == S::LANES) {
            (true, true) => true,
            (true, false) => columns == wide && across == columns && reach(row, across) <= rows * across,
            (false, true) => rows == high && out == rows && reach(column, out) <= columns * out,
            (false, false) => false,
        }
    }
}

/// A [`Transposition`] whose memory its maker has been promised.
struct Squares(Transposition);

impl Kernel for Squares {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Transposition { across, out, rows, columns, .. } = self.0;
        // SAFETY: `Transposition::run` has been promised the memory.
        unsafe {
            match (rows, columns) {
                (2, _) if out == 2 => self.0.zip_rows::<S, 2>(s),
                (3, _) if out == 3 => self.0.zip_rows::<S, 3>(s),
                (4, _) if out == 4 => self.0.zip_rows::<S, 4>(s),
                (_, 3) if across == 3 => self.0.unzip_columns(s),
                _ => self.0.squares(s),
            }
        }
    }
}

/// Transposes `high` rows of a vector each into `wide` columns of a vector each, neither more than a vector has lanes.
///
/// # Safety
/// As [`Transposition::run`], for whole vectors.
#[inline(always)]
unsafe fn square<S: Simd>(
    s: S,
    (from, across, high): (*const f32, usize, usize),
    (to, out, wide): (*mut f32, usize, usize),
) {
    let mut rows = [s.splat(0.0); MAX_LANES];
    // SAFETY: the caller's promise.
    unsafe {
        let mut i = 0;
        while i < S::LANES {
            // Of rows that are not there the last one, as many loads are known to the compiler.
            rows[i] = s.load(from.wrapping_add(i.min(high - 1) * across));
            i += 1;
        }
        let columns = s.transpose(rows);
        let mut i = 0;
        while i < S::LANES {
            if i < wide {
                s.store(to.wrapping_add(i * out), columns[i]);
            }
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
    use hipdnn_cpu_simd::guarded::Guarded;

    /// Values that end at a page which can't be accessed.
    fn values(count: usize) -> Guarded {
        Guarded::new(count * size_of::<f32>(), true, 0xff)
    }

    #[test]
    fn every_value_comes_to_its_place_and_no_other() {
        let sizes = [
            (1, 1),
            (8, 8),
            (16, 16),
            (3, 40),
            (33, 17),
            (64, 5),
            (24, 48),
            (3, 1000),
            (1000, 3),
            (2, 1000),
            (4, 77),
            (3, 3),
            (7, 9),
            (9, 7),
        ];
        for (isa, (rows, columns)) in Isa::of_vectors().flat_map(|isa| sizes.map(|size| (isa, size))) {
            for (of_from, of_to) in [(0, 0), (0, 2), (3, 0), (3, 2)] {
                let (across, out) = (columns + of_from, rows + of_to);
                let from = values((rows - 1) * across + columns);
                for (i, value) in (0..(rows - 1) * across + columns).map(|i| (i, i as f32)) {
                    // SAFETY: so many values are there.
                    unsafe { from.data.cast::<f32>().add(i).write(value) };
                }
                let mut to = values((columns - 1) * out + rows);
                let work = Transposition {
                    from: from.data.cast::<f32>().cast_const(),
                    across,
                    to: to.data.cast(),
                    out,
                    rows,
                    columns,
                };
                // SAFETY: both have as many values.
                unsafe { work.run(isa) };
                for (i, got) in to.bytes().chunks_exact(size_of::<f32>()).enumerate() {
                    let (column, row) = (i / out, i % out);
                    let got = f32::from_ne_bytes(got.try_into().unwrap());
                    let want = if row < rows { (row * across + column) as f32 } else { f32::from_bits(u32::MAX) };
                    assert_eq!(got.to_bits(), want.to_bits(), "{isa} {rows}×{columns} at {column} {row}: got {got}");
                }
            }
        }
    }
}
