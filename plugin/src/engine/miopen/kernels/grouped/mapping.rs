//! Which thread works on which group and on which of its members.

/// How the threads of a block share its work. All numbers are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// Groups that a block works on at a time.
    pub(super) side: u32,
    /// Threads that work on one group.
    pub(super) lanes: u32,
    /// Whether neighbouring threads work on the same group, not on neighbouring ones.
    pub(super) lanes_first: bool,
}

/// Threads of a block, and where there are few groups of many members.
const THREADS: u32 = 256;
const MANY_THREADS: u32 = 1024;

/// Members that one thread goes through without help, unless they lie side by side.
const FEW: u64 = 32;

/// Members that are worth another thread.
const PER_LANE: u64 = 4;

/// With so many groups each can have a thread of its own.
const MANY_GROUPS: u64 = 1 << 17;

/// Blocks that keep a device busy.
const BUSY: u64 = 128;

/// Neighbours that lie so near, in elements, are read together even if what lies between them is not for both.
const NEAR: u64 = 8;

impl Mapping {
    /// The mapping for so many groups and members, whose neighbours lie so far from each other (`None`: nothing lies along
    /// them).
    pub(super) fn new(groups: u64, members: u64, neighbours: (Option<u64>, Option<u64>)) -> Mapping {
        let lanes = |most: u32| {
            let worth = (members / PER_LANE).clamp(1, u64::from(most));
            let lanes = 1 << worth.ilog2();
            // A barrier costs more than one step of the loop.
            if lanes < 4 { 1 } else { lanes }
        };
        let (group, member) = (neighbours.0.unwrap_or(u64::MAX), neighbours.1.unwrap_or(u64::MAX));
        if member < group && group > NEAR {
            let threads = if groups < BUSY && members >= 8 * u64::from(MANY_THREADS) { MANY_THREADS } else { THREADS };
            let lanes = lanes(threads);
            return Mapping { side: threads / lanes, lanes, lanes_first: lanes > 1 };
        }
        if members <= FEW || groups >= MANY_GROUPS {
            return Mapping { side: THREADS, lanes: 1, lanes_first: false };
        }
        let mut side = 64;
        while side > 8 && groups / u64::from(side) < BUSY {
            side /= 2;
        }
        let few = groups / u64::from(side) < BUSY && members >= 8 * u64::from(MANY_THREADS);
        let threads = if few { MANY_THREADS } else { THREADS };
        let lanes = lanes(threads / side);
        Mapping { side: threads / lanes, lanes, lanes_first: false }
    }

    /// The same with blocks of the usual size.
    pub(super) fn smaller(self) -> Mapping {
        let Mapping { side, lanes, lanes_first } = self;
        let times = (side * lanes / THREADS).max(1);
        if lanes >= times { Mapping { side, lanes: lanes / times, lanes_first } } else { self }
    }

    /// Threads of a block.
    pub(super) fn threads(self) -> u32 {
        self.side * self.lanes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_follow_memory() {
        let first = |side, lanes| Mapping { side, lanes, lanes_first: true };
        let last = |side, lanes| Mapping { side, lanes, lanes_first: false };
        // (what, groups, members, neighbours, wanted)
        let cases = [
            ("long rows", 1000, 4096, (Some(4096), Some(1)), first(1, 256)),
            ("short rows", 100_000, 64, (Some(64), Some(1)), first(16, 16)),
            ("tiny rows", 1 << 20, 10, (Some(10), Some(1)), last(256, 1)),
            ("few long rows", 10, 1 << 20, (Some(1 << 20), Some(1)), first(1, 1024)),
            ("everything", 1, 1 << 20, (None, Some(1)), first(1, 1024)),
            ("channels", 64, 100_352, (Some(3136), Some(1)), first(1, 1024)),
            ("columns", 4096, 512, (Some(1), Some(4096)), last(32, 8)),
            ("many columns", 1 << 18, 512, (Some(1), Some(1 << 18)), last(256, 1)),
            ("few columns of many rows", 64, 100_000, (Some(1), Some(64)), last(8, 128)),
            ("windows", 1 << 16, 9, (Some(2), Some(1)), last(256, 1)),
            ("large windows", 1 << 16, 49, (Some(1), Some(1)), last(64, 4)),
            ("no member but one", 1000, 1, (Some(1), None), last(256, 1)),
            ("no group but one, and nothing along its members", 1, 5000, (None, None), last(8, 32)),
        ];
        for (what, groups, members, neighbours, want) in cases {
            let got = Mapping::new(groups, members, neighbours);
            assert_eq!(got, want, "{what}");
            assert!(got.threads().is_power_of_two() && got.threads() <= MANY_THREADS, "{what}");
            let smaller = got.smaller();
            assert_eq!((smaller.threads(), smaller.side), (THREADS, want.side), "{what}");
        }
    }
}
