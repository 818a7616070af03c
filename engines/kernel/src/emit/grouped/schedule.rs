//! Schedule of a kernel: what its threads and the lanes of their vectors go through.

use super::Access;
use super::layout::Loops;
use super::mapping::{LEAST_WAVE, ThreadMap};

/// Bindings of a kernel's loops, beside the work itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    /// Mapping of a block's threads to groups, or vectors of them, and to steps of the members.
    pub mapping: ThreadMap,
    /// Adjacent steps that a thread takes together, if it takes several.
    pub vector: Option<Vector>,
    /// Tile that a block of an element-wise kernel takes, where it reads along another loop than it writes.
    pub tile: Option<Tile>,
    /// Members that each lane keeps in registers, where several passes read them.
    pub residency: Option<Residency>,
    /// True if the members of a group are so few that one thread goes through all of them, in loops whose extents are
    /// numbers in the text.
    pub is_unrolled: bool,
}

/// Steps of the members that a lane takes, as a number in the text: loops over them are unrolled, and what several
/// passes read of them is loaded once and stays in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Residency {
    /// Number of steps that each lane takes, at least 1.
    pub turns: u32,
    /// True if all lanes together take exactly the steps that there are.
    pub is_whole: bool,
}

/// Block of a kernel's elements that goes through shared memory: some steps of the innermost loop, which is contiguous where results
/// are stored, and some of a loop along which operands are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    /// Loop along which operands are contiguous.
    pub across: usize,
    /// Number of steps of the innermost loop.
    pub rows: u64,
    /// Number of steps of the other one.
    pub columns: u64,
}

/// Adjacent steps of the innermost loop over groups, or over members, that one thread takes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vector {
    /// Loop that it runs along.
    pub axis: Axis,
    /// Number of steps: a power of two.
    pub width: u32,
}

/// Lists of loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    /// The innermost loop over groups: each of a thread's groups has accumulators of its own.
    Groups,
    /// The innermost loop over members.
    Members,
}

/// Bytes of a thread's widest access.
const WIDEST: u64 = 16;

/// Limit of a vector's lanes, of which each has registers of its own for all values of a program.
const MOST_LANES: u64 = 8;

/// Number of contiguous elements from which on a thread takes several at a time.
const ROW: u64 = 32;

/// Statements for each member, of all passes together, up to which vectors are as wide as accesses can be. What computes more is not faster with
/// more registers, and takes longer to compile.
const FEW_STATEMENTS: usize = 24;

/// Limit of the bytes that a thread keeps of all its groups together, in registers.
const MOST_KEPT: usize = 256;

/// Limit of the bytes of a thread's accumulators, for which a block has as much shared memory: with more, less than half of a compute
/// unit's waves have room.
const MOST_FOLDED: usize = 64;

/// Limit of the bytes that a thread loads at a time along members, from all operands together; where it has members of
/// several steps at the same time, as of rows that it goes through more than once, half of that.
const MOST_LOADED: usize = 128;

impl Vector {
    /// Vector of an element-wise kernel, whose largest store is the main access, or along members that are contiguous.
    /// `loaded` are the bytes of one element's operands that are contiguous as well.
    pub(super) fn of_members(loops: &Loops, statements: usize, loaded: usize, elements: bool) -> Option<Vector> {
        let extent = loops.contiguous();
        let mut widest = widest(loops, statements);
        let most = if elements { MOST_LOADED } else { MOST_LOADED / 2 };
        while widest > 4 && loaded.saturating_mul(widest as usize) > most {
            widest /= 2;
        }
        // A tail takes as long as a vector.
        let mut width = if extent.is_multiple_of(widest) || extent >= 8 * ROW { widest } else { widest.min(4) };
        if extent < ROW || width == 1 {
            return None;
        }
        // Where a device has more lanes than there are vectors, and a wave has them for a group's, more lanes are faster.
        let (groups, members) = loops.count()?;
        let lanes = |width: u64| (members / extent).saturating_mul(extent.div_ceil(width / 2));
        let is_idle = |lanes: u64| lanes <= u64::from(LEAST_WAVE) && groups.saturating_mul(lanes) <= BUSY_THREADS;
        while !elements && width > 1 && is_idle(lanes(width)) {
            width /= 2;
        }
        Some(Vector { axis: Axis::Members, width: width as u32 })
    }

    /// Vector along groups that are contiguous in the main access, where members are not. `folded` are the bytes of each
    /// group's accumulators, `left` is how many values of four bytes passes leave behind.
    pub(super) fn of_groups(loops: &Loops, statements: usize, folded: usize, left: usize) -> Option<Vector> {
        let axis = loops.split.checked_sub(1)?;
        // Guards that move with the loop would be others for each lane.
        let is_bounded = |place: &Access| place.bounds.iter().any(|bound| bound.steps[axis] != 0);
        if loops.places.iter().any(is_bounded) {
            return None;
        }
        let mut width = widest(loops, statements);
        let is_small = |width: u64| {
            let bytes = |each: usize| each.saturating_mul(width as usize);
            bytes(folded) <= MOST_FOLDED && bytes(folded.saturating_add(4 * left)) <= MOST_KEPT
        };
        while !loops.extents[axis].is_multiple_of(width) || !is_small(width) {
            width /= 2;
            if width < 2 {
                return None;
            }
        }
        Some(Vector { axis: Axis::Groups, width: width as u32 })
    }
}

/// Limit of the members that a lane keeps in registers: each has others for the values that are computed of it.
const MOST_MEMBERS: u64 = 32;

/// Number of lanes of which each keeps twice as many: two such blocks share a compute unit, and one loads while the other
/// stores, where one of twice the lanes has it to itself.
const HALF_BLOCK: u32 = 512;

/// Statements for each member, of all passes together, up to which a lane keeps so many; half as many where there are more, since
/// each is compiled for every member.
const FEW_RESIDENT: usize = 24;

/// Limit of the bytes of a lane's members that stay in registers, of all operands together.
const MOST_RESIDENT: u64 = 128;

/// Limit of the members of a group, and of the statements for all of them, up to which loops over them are unrolled.
const MOST_UNROLLED: u64 = 32;
const MOST_UNROLLED_STATEMENTS: u64 = 128;

/// True if the loops over members may be unrolled, where one thread has all of them: extents are then numbers in the
/// text, loads of all members are under way at the same time, and guards of a row of a window are the same for its
/// elements.
pub(super) fn is_unrolled(members: u64, lanes: u32, statements: usize) -> bool {
    let all = members.saturating_mul(statements as u64);
    lanes == 1 && (2..=MOST_UNROLLED).contains(&members) && all <= MOST_UNROLLED_STATEMENTS
}

/// Minimum number of lanes of rows that have so many steps: a cache line of vectors.
const LEAST_LANES: u32 = 8;

/// Number of threads that keep a device busy: with fewer rows, more lanes share one.
const BUSY_THREADS: u64 = 1 << 15;

/// Work of passes over members that go in vectors, as far as keeping members in registers depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    /// Number of steps of a group's members.
    pub steps: u64,
    /// Number of members of a step.
    pub width: u64,
    /// True if each step has so many members.
    pub is_even: bool,
    /// Bytes of a member's operands that several passes read, more than 0.
    pub bytes: u64,
    /// Statements for each member, of all passes.
    pub statements: usize,
}

impl Rows {
    /// Largest number of steps that each of so many lanes can keep.
    fn most(&self, lanes: u32) -> u64 {
        let members = if lanes == HALF_BLOCK { 2 * MOST_MEMBERS } else { MOST_MEMBERS };
        let members = if self.statements > FEW_RESIDENT { members / 2 } else { members };
        (members / self.width).min(MOST_RESIDENT / (self.width * self.bytes))
    }

    /// Residency with a number of lanes; `None` if they have no registers for a row.
    pub(super) fn over(&self, lanes: u32) -> Option<Residency> {
        let turns = self.steps.div_ceil(u64::from(lanes));
        let is_whole = self.is_even && turns * u64::from(lanes) == self.steps;
        (1..=self.most(lanes)).contains(&turns).then_some(Residency { turns: turns as u32, is_whole })
    }

    /// Number of lanes, a power of two up to a limit, that keep a row with the fewest registers idle: of those the
    /// least that keep a device busy. Where none do, it is the most that have something to do.
    pub(super) fn lanes(&self, groups: u64, most: u32) -> Option<u32> {
        let useful = self.steps.next_power_of_two().min(u64::from(most)) as u32;
        let fitting = (useful.min(LEAST_LANES).ilog2()..=useful.ilog2()).map(|log| 1u32 << log);
        let fitting =
            fitting.filter_map(|lanes| Some((lanes, u64::from(lanes * self.over(lanes)?.turns) - self.steps)));
        let is_busy = |lanes: u32| groups.saturating_mul(u64::from(lanes)) >= BUSY_THREADS;
        let busy = fitting.clone().filter(|(lanes, _)| is_busy(*lanes)).min_by_key(|(lanes, idle)| (*idle, *lanes));
        busy.or_else(|| fitting.max_by_key(|(lanes, _)| *lanes)).map(|(lanes, _)| lanes)
    }
}

/// Number of groups that a thread has of windows, whose results lie together.
const WINDOWS: u32 = 4;

impl Vector {
    /// Vector along groups whose results lie together, where one thread goes through their few members, as of windows
    /// that slide along the innermost dimension: what is computed of the groups' indices is computed once for several.
    /// `stored` are the accesses of stores.
    pub(super) fn of_windows<'a>(
        loops: &Loops,
        statements: usize,
        mut stored: impl Iterator<Item = &'a Access>,
    ) -> Option<Vector> {
        let axis = loops.split.checked_sub(1)?;
        let (groups, members) = loops.count()?;
        let is_busy = groups / u64::from(WINDOWS) >= BUSY_THREADS;
        let is_together = loops.extents[axis].is_multiple_of(u64::from(WINDOWS))
            && stored.all(|place| place.strides[axis] == 1 && place.bounds.is_empty());
        (is_busy && is_together && is_unrolled(members, 1, statements * WINDOWS as usize))
            .then_some(Vector { axis: Axis::Groups, width: WINDOWS })
    }
}

/// Steps of the innermost loop in a tile: what is stored in one run.
const TILE_ROWS: u64 = 64;

/// Bytes of a tile that are loaded in one run.
const TILE_RUN: u64 = 128;

/// Limit of the operands that have tiles, so that several blocks have room beside each other.
const MOST_TILES: usize = 2;

impl Tile {
    /// Tile of an element-wise kernel, whose store is contiguous along the innermost loop. `reads` are the accesses of its operands
    /// with the sizes of their elements.
    pub(super) fn of_elements<'a>(
        loops: &Loops,
        reads: impl Iterator<Item = (&'a Access, usize)> + Clone,
    ) -> Option<Tile> {
        let inner = loops.extents.len().checked_sub(1)?;
        let tile = |across: usize| {
            let mut tile = Tile { across, rows: TILE_ROWS, columns: 0 };
            let crossed = reads.clone().filter(|(access, _)| tile.is_crossed(access, inner));
            let bytes: Vec<usize> = crossed.map(|(_, bytes)| bytes).collect();
            tile.columns = TILE_RUN / *bytes.iter().max()? as u64;
            (bytes.len() <= MOST_TILES && loops.extents[across] >= ROW).then_some(tile)
        };
        (loops.extents[inner] >= ROW).then(|| (0..inner).find_map(tile)).flatten()
    }

    /// True if an operand is contiguous along the other loop, and neither contiguous nor the same along the innermost one.
    pub(super) fn is_crossed(&self, access: &Access, inner: usize) -> bool {
        let strides = &access.strides;
        access.bounds.is_empty() && strides[self.across] == 1 && !matches!(strides[inner], 0 | 1)
    }
}

/// Number of lanes of the widest vector of the main access's elements.
fn widest(loops: &Loops, statements: usize) -> u64 {
    let bytes = loops.element_bytes().unwrap_or(4).max(1) as u64;
    let widest = (WIDEST / bytes).clamp(1, MOST_LANES);
    if statements > FEW_STATEMENTS { widest.min(4) } else { widest }
}

#[cfg(test)]
mod tests;
