//! Lines of values in memory, copied to lines at another distance.

use hipdnn_cpu_simd::isa::{Isa, Kernel, Simd, first};

/// Prefetch distance, in lines.
const AHEAD: usize = 16;

/// Copies of lines of `f32` values: `to[line·out + i] = from[line·step + i]`.
#[derive(Clone, Copy)]
pub struct Lines {
    /// First value of the first line.
    pub from: *const f32,
    /// Stride between lines of `from`.
    pub step: usize,
    /// Number of values of a line.
    pub count: usize,
    /// Place of that value.
    pub to: *mut f32,
    /// Stride between lines of `to`.
    pub out: usize,
    /// Number of lines.
    pub lines: usize,
}

impl Lines {
    /// Copies.
    ///
    /// # Safety
    /// All values can be read, and their places in `to` be written.
    pub unsafe fn run(self, isa: Isa) {
        isa.run(Promised(self));
    }
}

/// [`Lines`] whose memory its maker has been promised.
struct Promised(Lines);

impl Kernel for Promised {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Lines { mut from, step, count, mut to, out, lines } = self.0;
        let whole = count / S::LANES * S::LANES;
        let (rest, mask) = (count - whole, s.mask(first(count - whole)));
        for _ in 0..lines {
            // Lines may be a page apart, where the CPU does not see what comes: lines further on, and what is beside this one, which is
            // copied next.
            s.prefetch(from.wrapping_add(AHEAD * step));
            s.prefetch_far(from.wrapping_add(count));
            // SAFETY: `Lines::run` has been promised the lines; the mask's lanes are values behind the whole vectors.
            unsafe {
                let mut at = 0;
                while at < whole {
                    s.store(to.add(at), s.load(from.add(at)));
                    at += S::LANES;
                }
                if rest > 0 {
                    s.store_first(rest, to.add(whole), s.load_masked(mask, from.add(whole)));
                }
            }
            (from, to) = (from.wrapping_add(step), to.wrapping_add(out));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_to_their_places_and_no_others() {
        for (isa, count) in Isa::of_vectors().flat_map(|isa| [1, 7, 8, 16, 33, 64].map(|count| (isa, count))) {
            let (step, out, lines) = (count + 5, count + 3, 4);
            let from: Vec<f32> = (0..lines * step).map(|i| i as f32).collect();
            let mut to = vec![-1f32; lines * out];
            // SAFETY: the vectors have as many lines.
            unsafe { Lines { from: from.as_ptr(), step, count, to: to.as_mut_ptr(), out, lines }.run(isa) };
            for (i, got) in to.iter().enumerate() {
                let (line, at) = (i / out, i % out);
                let want = if at < count { (line * step + at) as f32 } else { -1.0 };
                assert_eq!(*got, want, "{isa} {count} at {i}");
            }
        }
    }
}
