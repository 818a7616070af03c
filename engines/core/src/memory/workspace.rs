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

    #[test]
    fn places_are_reused_and_joined() {
        let mut planner = Planner::default();
        let a = planner.take(100).unwrap();
        let b = planner.take(64).unwrap();
        let c = planner.take(1).unwrap();
        assert_eq!([a.offset, b.offset, c.offset], [0, 128, 192]);
        planner.give_back(a);
        planner.give_back(b);
        assert_eq!(planner.take(192).unwrap().offset, 0, "neighbours are joined");
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
}
