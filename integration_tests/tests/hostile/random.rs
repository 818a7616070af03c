//! Draws from seeded numbers: the same seed gives the same inputs on every machine.

/// The numbers of one input.
#[derive(Clone, Debug)]
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64, index: u64) -> Random {
        // Neighboring indices must not give overlapping sequences, so the index is scrambled first.
        Random(fastrand::Rng::with_seed(seed ^ index.wrapping_mul(0xd134_2543_de82_ef95)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// A number below `bound`, which is at least 1.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0.usize(..bound)
    }

    /// A number of `low..=high`.
    pub(crate) fn range(&mut self, low: i64, high: i64) -> i64 {
        self.0.i64(low..=high)
    }

    /// True once in `n` times.
    pub(crate) fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}
