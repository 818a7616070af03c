//! Mapping of threads to groups and their members.

use super::schedule::{Axis, Vector};

/// Mapping of a block's threads to its work. All numbers are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadMap {
    /// Number of groups, or of vectors of them, that a block works on at a time.
    pub side: u32,
    /// Number of threads that work on one group or vector.
    pub lanes: u32,
    /// True if adjacent threads work on the same group, not on adjacent ones.
    pub lanes_first: bool,
}

/// Number of threads of a block; the larger one where there are few groups of many members.
pub(super) const THREADS: u32 = 256;
pub(super) const MANY_THREADS: u32 = 1024;

/// Number of threads of a block whose lanes keep rows in registers, and where so few lanes share one that all of them
/// are in a wave: the fewer wait for each other, the more rows are under way at different places of their passes.
const ROW_THREADS: u32 = 64;
const SHORT_ROW_THREADS: u32 = 128;

/// Minimum number of lanes of a wave.
pub(super) const LEAST_WAVE: u32 = 32;

/// Up to this number of members one thread reduces a group alone, unless its loads coalesce.
const FEW: u64 = 32;

/// Minimum number of members for each thread of a group.
const PER_LANE: u64 = 4;

/// From this number of groups on each gets one thread.
const MANY_GROUPS: u64 = 1 << 17;

/// Number of blocks that keep a device busy.
const BUSY: u64 = 128;

/// Strides up to this, in elements, share a cache line.
const NEAR: u64 = 8;

/// Numbers of vectors that make a run of memory: half a kilobyte, and a cache line.
const WIDE_ROW: u32 = 32;
const NARROW_ROW: u32 = 8;

/// Number of threads of a group that are worth it, a power of two.
fn lanes(worth: u64, most: u32) -> u32 {
    let lanes = 1 << worth.clamp(1, u64::from(most)).ilog2();
    // A barrier costs more than one step of the loop.
    if lanes < 4 { 1 } else { lanes }
}

impl ThreadMap {
    /// Mapping of a kernel without reductions: a thread for each element or vector of them.
    pub(super) const ELEMENTWISE: ThreadMap = ThreadMap { side: THREADS, lanes: 1, lanes_first: false };

    /// Mapping for the numbers of groups and members, for the strides along each (`None`: the stride is 0), and for what a thread
    /// takes together.
    pub(super) fn new(
        groups: u64,
        members: u64,
        neighbors: (Option<u64>, Option<u64>),
        vector: Option<Vector>,
    ) -> ThreadMap {
        let per_lane = match vector {
            Some(Vector { axis: Axis::Groups, width }) => {
                return ThreadMap::columns(groups / u64::from(width), members);
            }
            Some(Vector { axis: Axis::Members, width }) => PER_LANE.max(u64::from(width)),
            None => PER_LANE,
        };
        let lanes = |most: u32| lanes(members / per_lane, most);
        let (group, member) = (neighbors.0.unwrap_or(u64::MAX), neighbors.1.unwrap_or(u64::MAX));
        if member < group && group > NEAR {
            let threads = if groups < BUSY && members >= 8 * u64::from(MANY_THREADS) { MANY_THREADS } else { THREADS };
            let lanes = lanes(threads);
            return ThreadMap { side: threads / lanes, lanes, lanes_first: lanes > 1 };
        }
        if members <= FEW || groups >= MANY_GROUPS {
            return ThreadMap { side: THREADS, lanes: 1, lanes_first: false };
        }
        let mut side = 64;
        while side > 8 && groups / u64::from(side) < BUSY {
            side /= 2;
        }
        let few = groups / u64::from(side) < BUSY && members >= 8 * u64::from(MANY_THREADS);
        let threads = if few { MANY_THREADS } else { THREADS };
        let lanes = lanes(threads / side);
        ThreadMap { side: threads / lanes, lanes, lanes_first: false }
    }

    /// Mapping of vectors of groups, of which neighbors are contiguous: a row of some is a run of memory.
    fn columns(vectors: u64, members: u64) -> ThreadMap {
        if members <= FEW || vectors >= MANY_GROUPS {
            return ThreadMap { side: THREADS, lanes: 1, lanes_first: false };
        }
        let mut side = WIDE_ROW;
        while side > NARROW_ROW && vectors / u64::from(side) < BUSY {
            side /= 2;
        }
        let lanes = lanes(members / PER_LANE, THREADS / side);
        ThreadMap { side: THREADS / lanes, lanes, lanes_first: false }
    }

    /// Mapping of rows that so many lanes keep in registers.
    pub(super) fn rows(groups: u64, lanes: u32) -> ThreadMap {
        let threads = if lanes < LEAST_WAVE { SHORT_ROW_THREADS } else { ROW_THREADS };
        let mut side = (threads / lanes).max(1);
        while side * lanes > NARROW_ROW * NARROW_ROW && side > 1 && groups / u64::from(side) < BUSY {
            side /= 2;
        }
        ThreadMap { side, lanes, lanes_first: lanes > 1 }
    }

    /// The same mapping with blocks of the usual size.
    pub fn smaller(self) -> ThreadMap {
        let ThreadMap { side, lanes, lanes_first } = self;
        let times = (side * lanes / THREADS).max(1);
        if lanes >= times { ThreadMap { side, lanes: lanes / times, lanes_first } } else { self }
    }

    /// Number of threads of a block.
    pub fn threads(self) -> u32 {
        self.side * self.lanes
    }

    /// Minimum number of lanes of a group that are in one wave.
    pub(super) fn together(self) -> u32 {
        self.lanes.min((LEAST_WAVE / self.lane_stride()).max(1))
    }

    /// Number of threads that exchange accumulators through shared memory, at most: one for each wave of a group, if
    /// it has several.
    pub(super) fn exchanged(self) -> u32 {
        let together = self.together();
        if together < self.lanes { self.threads() / together } else { 0 }
    }

    /// Distance, in threads, from a lane of a group to the next.
    pub fn lane_stride(self) -> u32 {
        if self.lanes_first { 1 } else { self.side }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_follow_memory() {
        let first = |side, lanes| ThreadMap { side, lanes, lanes_first: true };
        let last = |side, lanes| ThreadMap { side, lanes, lanes_first: false };
        // (what, groups, members, neighbors, wanted)
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
        for (what, groups, members, neighbors, want) in cases {
            let got = ThreadMap::new(groups, members, neighbors, None);
            assert_eq!(got, want, "{what}");
            assert!(got.threads().is_power_of_two() && got.threads() <= MANY_THREADS, "{what}");
            let smaller = got.smaller();
            assert_eq!((smaller.threads(), smaller.side), (THREADS, want.side), "{what}");
        }
    }

    #[test]
    fn threads_follow_numbers() {
        let first = |side, lanes| ThreadMap { side, lanes, lanes_first: true };
        let last = |side, lanes| ThreadMap { side, lanes, lanes_first: false };
        let rows = (Some(1 << 20), Some(1));
        let columns = (Some(1), Some(1 << 20));
        let along = |axis, width| Some(Vector { axis, width });
        let (members, groups) = (along(Axis::Members, 8), along(Axis::Groups, 8));
        // (what, groups, members, neighbors, vector, wanted)
        let cases = [
            ("the shortest rows of several lanes", 1000, 16, rows, None, first(64, 4)),
            ("shorter ones", 1000, 15, rows, None, last(256, 1)),
            ("rows in vectors", 1000, 256, rows, members, first(8, 32)),
            ("rows in short vectors", 1000, 256, rows, along(Axis::Members, 2), first(4, 64)),
            ("the most groups of large blocks", 127, 8192, rows, None, first(1, 1024)),
            ("more groups", 128, 8192, rows, None, first(1, 256)),
            ("fewer members", 127, 8191, rows, None, first(1, 256)),
            ("groups in a cache line", 1000, 64, (Some(8), Some(1)), None, last(16, 16)),
            ("groups in another", 1000, 64, (Some(9), Some(1)), None, first(16, 16)),
            ("members as near as groups", 1000, 64, (Some(9), Some(9)), None, last(16, 16)),
            ("few members of columns", 1 << 16, 32, columns, None, last(256, 1)),
            ("more members", 1 << 16, 33, columns, None, last(64, 4)),
            ("the fewest columns of a thread each", 1 << 17, 512, columns, None, last(256, 1)),
            ("fewer", (1 << 17) - 1, 512, columns, None, last(64, 4)),
            ("the fewest columns of long runs", 128 * 64, 512, columns, None, last(64, 4)),
            ("fewer, in shorter runs", 128 * 64 - 1, 512, columns, None, last(32, 8)),
            ("the shortest runs", 128 * 16 - 1, 512, columns, None, last(8, 32)),
            ("the most columns of large blocks", 128 * 8 - 1, 8192, columns, None, last(8, 128)),
            ("more columns", 128 * 8, 8192, columns, None, last(8, 32)),
            ("columns in vectors", 8 * 4096, 512, columns, groups, last(32, 8)),
            ("fewer columns in vectors", 8 * 4095, 512, columns, groups, last(16, 16)),
            ("few columns in vectors", 8 * 2047, 512, columns, groups, last(8, 32)),
            ("columns of few members in vectors", 8 * 4096, 32, columns, groups, last(256, 1)),
            ("columns of more members in vectors", 8 * 4096, 33, columns, groups, last(32, 8)),
            ("vectors of a thread each", 8 << 17, 512, columns, groups, last(256, 1)),
            ("fewer vectors", (8 << 17) - 8, 512, columns, groups, last(32, 8)),
        ];
        for (what, groups, members, neighbors, vector, want) in cases {
            assert_eq!(ThreadMap::new(groups, members, neighbors, vector), want, "{what}");
        }
        let cases = [
            ("a lane for each", 1 << 20, 1, last(128, 1)),
            ("short rows", 2048, 8, first(16, 8)),
            ("fewer short rows", 2047, 8, first(8, 8)),
            ("few of four lanes", 100, 4, first(16, 4)),
            ("few of sixteen lanes", 100, 16, first(4, 16)),
            ("a wave each", 100, 32, first(2, 32)),
            ("several waves", 1 << 20, 128, first(1, 128)),
        ];
        for (what, groups, lanes, want) in cases {
            assert_eq!(ThreadMap::rows(groups, lanes), want, "{what}");
        }
    }

    #[test]
    fn lanes_of_a_wave_need_no_shared_memory() {
        // (lanes of groups side by side, lanes in one wave, threads that exchange, the same in blocks of 256)
        for (side, lanes, lanes_first, together, exchanged, smaller) in [
            (256, 1, false, 1, 0, (256, 1)),
            (64, 4, false, 1, 256, (64, 4)),
            (32, 8, false, 1, 256, (32, 8)),
            (8, 32, false, 4, 64, (8, 32)),
            (8, 128, false, 4, 256, (8, 32)),
            (1, 32, true, 32, 0, (1, 32)),
            (16, 16, true, 16, 0, (16, 16)),
            (1, 256, true, 32, 8, (1, 256)),
            (1, 1024, true, 32, 32, (1, 256)),
            (256, 4, false, 1, 1024, (256, 1)),
            (512, 1, false, 1, 0, (512, 1)),
        ] {
            let map = ThreadMap { side, lanes, lanes_first };
            let stride = if lanes_first { 1 } else { side };
            assert_eq!((map.together(), map.exchanged(), map.lane_stride()), (together, exchanged, stride), "{map:?}");
            let (side, lanes) = smaller;
            assert_eq!(map.smaller(), ThreadMap { side, lanes, lanes_first }, "{map:?}");
        }
    }
}
