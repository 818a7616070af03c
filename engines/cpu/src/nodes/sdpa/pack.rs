//! Blocks of operands in the order in which products read them: panels of two vectors of columns, in each of which the
//! values of a term lie side by side, then those of the next.

use super::Operand;
use hipdnn_cpu_kernels::transpose::Transposition;
use hipdnn_cpu_pointwise::Storage;
use hipdnn_cpu_simd::isa::{Isa, Kernel, Simd, first};
use hipdnn_cpu_simd::scratch;

/// Number of values that are converted together.
const PIECE: usize = 256;

/// `f32` values of a cache line.
pub(super) const LINE: usize = scratch::LINE / size_of::<f32>();

/// Prefetch distance, in rows.
const AHEAD: usize = 8;

/// Number of columns of a panel.
pub(super) fn width(isa: Isa) -> usize {
    2 * isa.lanes()
}

impl Operand {
    /// Address of a row, if its values are `f32` side by side.
    pub(super) fn in_place(&self, base: *const u8, [batch, head, row]: [usize; 3]) -> Option<*const f32> {
        let whole = self.storage == Storage::F32 && self.strides[3] == 1;
        whole.then(|| base.cast::<f32>().wrapping_add(self.at(batch, head, row)))
    }

    /// Address of a row, if those from it on are `f32` side by side.
    pub(super) fn columns_in_place(&self, base: *const u8, [batch, head, row]: [usize; 3]) -> Option<*const f32> {
        let whole = self.storage == Storage::F32 && self.strides[2] == 1;
        whole.then(|| base.cast::<f32>().wrapping_add(self.at(batch, head, row)))
    }
}

/// Loads `count` rows of `depth` values, whose columns are the panels'; columns that are missing are zeros.
///
/// # Safety
/// The rows can be read.
pub(super) unsafe fn rows(
    isa: Isa,
    operand: &Operand,
    base: *const u8,
    [batch, head, row]: [usize; 3],
    [count, depth]: [usize; 2],
    to: &mut [f32],
) {
    let width = width(isa);
    let to = &mut to[..count * depth.next_multiple_of(width)];
    if let Some(from) = operand.in_place(base, [batch, head, row]) {
        let (across, to) = (operand.strides[2], to.as_mut_ptr());
        return isa.run(Rows { from, across, count, depth, to });
    }
    let mut values = [0f32; PIECE];
    for i in 0..count {
        for start in (0..depth).step_by(PIECE) {
            let values = &mut values[..PIECE.min(depth - start)];
            let at = operand.at(batch, head, row + i) + start * operand.strides[3];
            // SAFETY: the caller's promise.
            unsafe { operand.storage.load(isa, base, at, operand.strides[3], values) };
            for (panel, values) in values.chunks(width).enumerate() {
                let (to, rest) =
                    to[((start / width + panel) * count + i) * width..][..width].split_at_mut(values.len());
                to.copy_from_slice(values);
                rest.fill(0.0);
            }
        }
    }
}

/// Rows of `f32` values; the maker has been promised that they can be read, and has room for whole panels.
struct Rows {
    from: *const f32,
    across: usize,
    count: usize,
    depth: usize,
    to: *mut f32,
}

impl Kernel for Rows {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Rows { from, across, count, depth, to } = self;
        let width = 2 * S::LANES;
        let rest = depth % width;
        let [low, high] = [rest.min(S::LANES), rest.saturating_sub(S::LANES)].map(|lanes| s.mask(first(lanes)));
        for row in 0..count {
            let from = from.wrapping_add(row * across);
            for line in (0..depth).step_by(LINE) {
                // Rows of heads side by side lie too far apart for the CPU to see where the next ones are.
                s.prefetch(from.wrapping_add(AHEAD * across + line));
            }
            let mut column = 0;
            while column < depth {
                let from = from.wrapping_add(column);
                let (next, to) = (from.wrapping_add(S::LANES), to.wrapping_add(column * count + row * width));
                // SAFETY: the maker's promise: these columns are the rows', and the panel has room for both vectors.
                unsafe {
                    let values = match column + width <= depth {
                        true => [s.load(from), s.load(next)],
                        false => [s.load_masked(low, from), s.load_masked(high, next)],
                    };
                    s.store(to, values[0]);
                    s.store(to.wrapping_add(S::LANES), values[1]);
                }
                column += width;
            }
        }
    }
}

/// Loads `count` rows of `depth` values, which become the columns of panels; columns that are missing are zeros.
///
/// # Safety
/// The rows can be read.
pub(super) unsafe fn columns(
    isa: Isa,
    operand: &Operand,
    base: *const u8,
    [batch, head, row]: [usize; 3],
    [count, depth]: [usize; 2],
    to: &mut [f32],
) {
    let width = width(isa);
    let to = &mut to[..depth * count.next_multiple_of(width)];
    for (panel, to) in to.chunks_exact_mut(depth * width).enumerate() {
        let (row, rows) = (row + panel * width, width.min(count - panel * width));
        if rows < width {
            to.fill(0.0);
        }
        if let Some(from) = operand.in_place(base, [batch, head, row]) {
            let (across, to) = (operand.strides[2], to.as_mut_ptr());
            // SAFETY: the rows are the operand's, and the panel takes a column for each.
            unsafe { Transposition { from, across, to, out: width, rows, columns: depth }.run(isa) };
            continue;
        }
        let mut values = [0f32; PIECE];
        for (start, i) in (0..depth).step_by(PIECE).flat_map(|start| (0..rows).map(move |i| (start, i))) {
            let values = &mut values[..PIECE.min(depth - start)];
            let at = operand.at(batch, head, row + i) + start * operand.strides[3];
            // SAFETY: the caller's promise.
            unsafe { operand.storage.load(isa, base, at, operand.strides[3], values) };
            for (value, to) in values.iter().zip(to[start * width..].chunks_exact_mut(width)) {
                to[i] = *value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_have_every_value_in_its_place() {
        for isa in Isa::of_vectors() {
            let width = width(isa);
            for (count, depth) in [(1, 1), (9, 16), (40, 37), (17, 300), (32, 64)] {
                // Rows side by side, and every other element with a gap behind rows.
                for (row, column) in [(depth, 1), (2 * depth + 3, 2)] {
                    let from: Vec<f32> = (0..(count + 2) * row).map(|i| i as f32).collect();
                    let operand = Operand { storage: Storage::F32, strides: [0, 0, row, column] };
                    let value = |i: usize, k: usize| ((i + 2) * row + k * column) as f32;
                    let mut panels = vec![f32::NAN; (count + width) * (depth + width)];
                    // SAFETY: the vector has rows 2 to `count + 2`.
                    unsafe {
                        rows(isa, &operand, from.as_ptr().cast(), [0, 0, 2], [count, depth], &mut panels);
                    }
                    for (i, k) in (0..count).flat_map(|i| (0..depth.next_multiple_of(width)).map(move |k| (i, k))) {
                        let want = if k < depth { value(i, k) } else { 0.0 };
                        assert_eq!(panels[(k / width * count + i) * width + k % width], want, "{isa} {i} {k}");
                    }
                    panels.fill(f32::NAN);
                    // SAFETY: the vector has rows 2 to `count + 2`.
                    unsafe {
                        columns(isa, &operand, from.as_ptr().cast(), [0, 0, 2], [count, depth], &mut panels);
                    }
                    for (i, k) in (0..count.next_multiple_of(width)).flat_map(|i| (0..depth).map(move |k| (i, k))) {
                        let want = if i < count { value(i, k) } else { 0.0 };
                        assert_eq!(panels[(i / width * depth + k) * width + i % width], want, "{isa} {i} {k}");
                    }
                }
            }
        }
    }
}
