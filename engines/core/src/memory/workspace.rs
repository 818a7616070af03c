//! Planned allocation of one workspace for values that live from one step to another.

use std::collections::BTreeMap;

use crate::error::Error;

/// Alignment of blocks in host memory, in bytes: a cache line.
pub const ALIGNMENT: usize = 64;

/// Limit of free blocks that are searched: planning stays linear whatever the graph.
const SEARCH: usize = 256;

/// First-fit allocator for steps in order; freed blocks are reused.
#[derive(Debug)]
pub struct Planner {
    alignment: usize,
    /// Free blocks below `end`, offset to size; no two touch.
    free: BTreeMap<usize, usize>,
    end: usize,
    peak: usize,
}

/// Block of the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Offset in bytes, a multiple of the planner's alignment.
    pub offset: usize,
    size: usize,
}

impl Block {
    /// Offset of the end, where the next block may begin.
    pub fn end(&self) -> usize {
        self.offset + self.size
    }
}

impl Default for Planner {
    fn default() -> Planner {
        Planner::aligned(ALIGNMENT)
    }
}

impl Planner {
    /// Planner with that alignment of blocks, in bytes.
    pub fn aligned(alignment: usize) -> Planner {
        Planner { alignment, free: BTreeMap::new(), end: 0, peak: 0 }
    }

    /// Allocates a block of that many bytes, until it is given back.
    ///
    /// # Errors
    /// If the workspace would be larger than an address space.
    pub fn take(&mut self, bytes: usize) -> Result<Block, Error> {
        let too_large = || Error::alloc_failed(format!("no workspace has room for another {bytes} bytes"));
        let size = bytes.checked_next_multiple_of(self.alignment).ok_or_else(too_large)?;
        let fit = self.free.iter().take(SEARCH).find(|(_, free)| **free >= size).map(|(offset, free)| (*offset, *free));
        if let Some((offset, free)) = fit {
            self.free.remove(&offset);
            if free > size {
                self.free.insert(offset + size, free - size);
            }
            return Ok(Block { offset, size });
        }
        let offset = self.end;
        self.end = offset.checked_add(size).filter(|end| *end <= isize::MAX as usize / 2).ok_or_else(too_large)?;
        self.peak = self.peak.max(self.end);
        Ok(Block { offset, size })
    }

    /// Frees a block for steps after the current one.
    pub fn give_back(&mut self, block: Block) {
        let Block { mut offset, mut size } = block;
        if size == 0 {
            return;
        }
        if let Some((before, length)) = self.free.range(..offset).next_back().map(|(o, s)| (*o, *s))
            && before + length == offset
        {
            self.free.remove(&before);
            (offset, size) = (before, size + length);
        }
        if let Some(length) = self.free.remove(&(offset + size)) {
            size += length;
        }
        if offset + size == self.end {
            self.end = offset;
        } else {
            self.free.insert(offset, size);
        }
    }

    /// Peak size of the workspace in bytes.
    pub fn bytes(&self) -> usize {
        self.peak
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn places_are_reused_and_joined() {
        let mut planner = Planner::default();
        let a = planner.take(100).unwrap();
        let b = planner.take(64).unwrap();
        let c = planner.take(1).unwrap();
        assert_eq!([a.offset, b.offset, c.offset], [0, 128, 192]);
        planner.give_back(a);
        planner.give_back(b);
        assert_eq!(planner.take(192).unwrap().offset, 0, "neighbors are joined");
        assert_eq!(planner.take(65).unwrap().offset, 256);
        assert_eq!(planner.bytes(), 384);
        planner.give_back(c);
        assert_eq!(planner.take(64).unwrap().offset, 192);
        assert_eq!(planner.take(0).unwrap().offset, 384);
        assert_eq!(planner.bytes(), 384);
        for bytes in [usize::MAX, usize::MAX / 2, isize::MAX as usize] {
            assert!(planner.take(bytes).is_err());
        }
    }

    #[test]
    fn live_places_never_overlap() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut planner = Planner::default();
        let mut live: Vec<(Block, usize)> = Vec::new();
        let mut sum = 0;
        for _ in 0..5000 {
            if live.len() < 40 && random.bool() {
                let bytes = random.usize(1..=5000);
                let block = planner.take(bytes).unwrap();
                assert_eq!(block.offset % ALIGNMENT, 0);
                for (other, size) in &live {
                    let apart = block.offset + bytes <= other.offset || other.offset + size <= block.offset;
                    assert!(apart, "{block:?} {other:?}");
                }
                assert!(block.offset + bytes <= planner.bytes());
                live.push((block, bytes));
                sum += bytes;
            } else if !live.is_empty() {
                let (block, _) = live.swap_remove(random.usize(..live.len()));
                planner.give_back(block);
            }
        }
        assert!(planner.bytes() < sum / 20, "places are reused");
    }

    /// Offsets and ends of blocks that are taken at once.
    fn ranges(planner: &mut Planner, bytes: &[usize]) -> Vec<(usize, usize)> {
        bytes.iter().map(|bytes| planner.take(*bytes).unwrap()).map(|block| (block.offset, block.end())).collect()
    }

    /// A block reaches up to where the next one may begin, at multiples of the planner's own alignment.
    #[test]
    fn blocks_are_rounded_up_to_the_planners_alignment() {
        assert_eq!(ranges(&mut Planner::default(), &[1, 64, 65]), [(0, 64), (64, 128), (128, 256)]);
        assert_eq!(ranges(&mut Planner::aligned(256), &[1, 256, 257]), [(0, 256), (256, 512), (512, 1024)]);
        assert_eq!(ranges(&mut Planner::aligned(1), &[3, 0, 7]), [(0, 3), (3, 3), (3, 10)]);
        assert_eq!(Planner::default().bytes(), 0, "nothing was taken");
    }

    /// The rest of a freed block stays free, to its last byte, and a block that is used up is gone.
    #[test]
    fn the_rest_of_a_block_stays_free() {
        let mut planner = Planner::aligned(1);
        let [front, hole, behind] = [10, 30, 5].map(|bytes| planner.take(bytes).unwrap());
        planner.give_back(hole);
        assert_eq!(ranges(&mut planner, &[12, 18, 1]), [(10, 22), (22, 40), (45, 46)]);
        planner.give_back(front);
        planner.give_back(behind);
        assert_eq!(ranges(&mut planner, &[10, 5, 1]), [(0, 10), (40, 45), (46, 47)]);
    }

    /// The first hole is taken in which a block fits, not the best one.
    #[test]
    fn the_first_hole_that_fits_is_taken() {
        let mut planner = Planner::aligned(1);
        let blocks = [10, 1, 30, 1, 20, 1].map(|bytes| planner.take(bytes).unwrap());
        for hole in [4, 0, 2] {
            planner.give_back(blocks[hole]);
        }
        assert_eq!(ranges(&mut planner, &[20, 20, 10, 10]), [(11, 31), (42, 62), (0, 10), (31, 41)]);
        assert_eq!(planner.bytes(), 63, "all of that was there before");
    }

    /// Free neighbors are one hole, whichever is freed last; blocks in use keep holes apart.
    #[test]
    fn holes_that_touch_are_one() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut planner = Planner::aligned(1);
            let _front = planner.take(7).unwrap();
            let blocks = [3, 5, 4].map(|bytes| planner.take(bytes).unwrap());
            let _behind = planner.take(2).unwrap();
            for (freed, block) in order.into_iter().enumerate() {
                let probe = planner.take(12).unwrap();
                assert_eq!(probe.offset, 21, "{order:?}: {freed} of the three leave no room for all");
                planner.give_back(probe);
                planner.give_back(blocks[block]);
            }
            assert_eq!(ranges(&mut planner, &[12, 1]), [(7, 19), (21, 22)], "{order:?}");
        }
    }

    /// A block that is freed at the end is no hole: the next one begins there, however large. The peak stays.
    #[test]
    fn the_end_moves_back() {
        let mut planner = Planner::aligned(1);
        let [_front, middle, last] = [10, 20, 30].map(|bytes| planner.take(bytes).unwrap());
        planner.give_back(middle);
        planner.give_back(last);
        assert_eq!(ranges(&mut planner, &[25]), [(10, 35)]);
        assert_eq!(planner.bytes(), 60);
        assert_eq!(ranges(&mut planner, &[26]), [(35, 61)]);
        assert_eq!(planner.bytes(), 61);
    }

    /// Blocks of no bytes take no room, and giving them back frees nothing of others.
    #[test]
    fn empty_blocks_take_no_room() {
        let mut planner = Planner::aligned(1);
        let [empty, first, nothing, _second] = [0, 8, 0, 8].map(|bytes| planner.take(bytes).unwrap());
        assert_eq!([empty.offset, first.offset, nothing.offset], [0, 0, 8]);
        planner.give_back(empty);
        planner.give_back(nothing);
        assert_eq!(ranges(&mut planner, &[1]), [(16, 17)]);
        planner.give_back(first);
        assert_eq!(ranges(&mut planner, &[0, 8]), [(0, 0), (0, 8)]);
    }

    /// A workspace of half of what a program can address is the limit, which is itself allowed; a refusal changes
    /// nothing.
    #[test]
    fn the_limit_is_half_an_address_space() {
        let most = isize::MAX as usize / 2;
        let mut planner = Planner::aligned(1);
        assert!(planner.take(most + 1).is_err());
        assert_eq!(planner.take(5).unwrap().offset, 0);
        let error = planner.take(most - 4).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AllocFailed);
        assert!(error.to_string().contains(&(most - 4).to_string()), "{error}");
        assert_eq!(planner.bytes(), 5);
        assert_eq!(planner.take(most - 5).unwrap().end(), most);
    }
}
