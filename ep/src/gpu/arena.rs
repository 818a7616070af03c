//! An arena: blocks of a few large regions, reused in the order of streams.
//!
//! A block that is freed may still be read by work that was enqueued before. It carries fences: streams, each with the
//! number that its work reached then. Work on the same stream comes later anyway and may have the block at once; others
//! get it when the fences have passed, or when their stream waits for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Alignment of blocks' addresses and sizes, in bytes: GPUs want it of tensors, and of copies at full speed.
pub(crate) const GRANULE: usize = 256;

/// Progress of a stream, as far as it is known without asking the device.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// Fences that were set.
    issued: AtomicU64,
    /// The last fence that has passed.
    passed: AtomicU64,
}

impl Timeline {
    /// A fence behind everything that was enqueued so far.
    pub(crate) fn fence(timeline: &Arc<Timeline>) -> Fence {
        Fence { timeline: timeline.clone(), number: timeline.issue() }
    }

    /// The number of a new fence.
    fn issue(&self) -> u64 {
        self.issued.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The last fence that was set.
    pub(crate) fn reached(&self) -> u64 {
        self.issued.load(Ordering::Acquire)
    }

    /// Takes note that all work before that fence is done.
    pub(crate) fn pass(&self, number: u64) {
        self.passed.fetch_max(number, Ordering::AcqRel);
    }
}

/// A point of a stream's work.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    timeline: Arc<Timeline>,
    number: u64,
}

impl Fence {
    fn has_passed(&self) -> bool {
        self.timeline.passed.load(Ordering::Acquire) >= self.number
    }
}

/// The stream that a block is for.
pub(crate) trait Consumer {
    /// Its timeline; `None` if the block is used by the host, or on any stream.
    fn timeline(&self) -> Option<&Arc<Timeline>>;

    /// True if the stream's work comes after a fence of that timeline.
    fn comes_after(&self, timeline: &Arc<Timeline>, number: u64) -> bool;
}

/// No stream: the block is used by the host, or at any time.
pub(crate) struct Nobody;

impl Consumer for Nobody {
    fn timeline(&self) -> Option<&Arc<Timeline>> {
        None
    }

    fn comes_after(&self, _timeline: &Arc<Timeline>, _number: u64) -> bool {
        false
    }
}

/// Blocks for everybody.
pub(crate) const SHARED: u32 = 0;

#[derive(Debug)]
struct Block {
    bytes: usize,
    is_used: bool,
    /// Whose alone it is: [`SHARED`], or the number of a capture.
    pool: u32,
    /// Of a used one, the stream that it is used on, if it is one.
    timeline: Option<Arc<Timeline>>,
    /// Of a free one, what its memory was used for before.
    fences: Vec<Fence>,
}

impl Block {
    fn free(bytes: usize, pool: u32, fences: Vec<Fence>) -> Block {
        Block { bytes, is_used: false, pool, timeline: None, fences }
    }
}

/// A block that a stream gave back and nobody else has asked for since: it stays whole, since most runs want what the run before
/// had. One that the stream has again keeps its place.
#[derive(Debug)]
struct Parked {
    address: usize,
    bytes: usize,
    pool: u32,
    /// Of the stream that gets it at once.
    timeline: Arc<Timeline>,
    /// Of its fence there.
    number: u64,
    /// True if the stream has it.
    is_taken: bool,
}

/// Most blocks that are parked.
const MOST_PARKED: usize = 8;

/// Statistics of an arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    /// Bytes of all regions.
    pub held: usize,
    /// Bytes of blocks in use.
    pub used: usize,
    /// The most that this was.
    pub most_used: usize,
    /// The largest block that was asked for.
    pub largest: usize,
    /// Blocks given.
    pub allocations: u64,
    /// Regions taken.
    pub extensions: u64,
    /// Regions given back.
    pub shrinkages: u64,
}

/// Blocks of regions that somebody else takes from the device and gives back to it.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    /// By address. Blocks of a region are neighbors; `regions` has where they begin.
    blocks: BTreeMap<usize, Block>,
    /// Free blocks by size.
    free: BTreeSet<(usize, usize)>,
    /// Blocks that are free, but taken for used everywhere else. Who finds no other unparks them all.
    parked: Vec<Parked>,
    /// Bytes of each region, by address.
    regions: BTreeMap<usize, usize>,
    stats: Stats,
}

impl Arena {
    /// The arena's numbers.
    pub(crate) fn stats(&self) -> Stats {
        self.stats
    }

    /// Bytes that a request takes.
    pub(crate) fn rounded(bytes: usize) -> Option<usize> {
        bytes.max(1).checked_next_multiple_of(GRANULE)
    }

    /// A block of at least so many bytes that `consumer` may use at once; `None` if no free one is.
    ///
    /// `pool` is [`SHARED`] or a capture's number: a capture takes shared blocks for good, until [`Arena::release`].
    pub(crate) fn take(&mut self, bytes: usize, pool: u32, consumer: &dyn Consumer) -> Option<usize> {
        let wanted = Arena::rounded(bytes)?;
        if let Some(address) = self.take_parked(wanted, pool, consumer) {
            self.count(bytes, wanted);
            return Some(address);
        }
        self.unpark();
        let fits = |address: usize, pools: &[u32]| {
            let block = &self.blocks[&address];
            pools.contains(&block.pool)
                && block.fences.iter().all(|f| f.has_passed() || consumer.comes_after(&f.timeline, f.number))
        };
        let search = |pools: &[u32]| {
            self.free.range((wanted, 0)..).map(|(_, address)| *address).find(|address| fits(*address, pools))
        };
        let own = (pool != SHARED).then(|| search(&[pool])).flatten();
        let address = own.or_else(|| search(&[SHARED]))?;
        let block = self.blocks.get_mut(&address).expect("free blocks are blocks");
        self.free.remove(&(block.bytes, address));
        block.is_used = true;
        let pool_of_rest = std::mem::replace(&mut block.pool, pool);
        block.timeline = consumer.timeline().cloned();
        let rest = block.bytes - wanted;
        let fences = std::mem::take(&mut block.fences);
        if rest >= GRANULE {
            block.bytes = wanted;
            self.blocks.insert(address + wanted, Block::free(rest, pool_of_rest, fences));
            self.free.insert((rest, address + wanted));
        }
        self.count(bytes, self.blocks[&address].bytes);
        Some(address)
    }

    /// Counts a block of `bytes` that was asked for as `wanted`.
    fn count(&mut self, wanted: usize, bytes: usize) {
        self.stats.allocations += 1;
        self.stats.largest = self.stats.largest.max(wanted);
        self.stats.used += bytes;
        self.stats.most_used = self.stats.most_used.max(self.stats.used);
    }

    /// A parked block of just so many bytes that the consumer's stream gave back itself.
    fn take_parked(&mut self, bytes: usize, pool: u32, consumer: &dyn Consumer) -> Option<usize> {
        let own = consumer.timeline()?;
        let is_it = |parked: &&mut Parked| {
            !parked.is_taken && (parked.bytes, parked.pool) == (bytes, pool) && Arc::ptr_eq(&parked.timeline, own)
        };
        let parked = self.parked.iter_mut().rev().find(is_it)?;
        parked.is_taken = true;
        Some(parked.address)
    }

    /// Frees the parked blocks for everybody; those that are taken are blocks in use as any.
    fn unpark(&mut self) {
        while let Some(Parked { address, number, is_taken, .. }) = self.parked.pop() {
            if is_taken {
                continue;
            }
            let timeline = self.blocks.get_mut(&address).and_then(|block| block.timeline.take());
            let fence = timeline.map(|timeline| Fence { timeline, number });
            self.free(address, fence.into_iter().collect());
        }
    }

    /// Frees a block behind these fences.
    fn free(&mut self, address: usize, fences: Vec<Fence>) {
        let block = self.blocks.get_mut(&address).expect("it is a block");
        (block.is_used, block.timeline, block.fences) = (false, None, fences);
        self.free.insert((block.bytes, address));
        self.join(address);
    }

    /// Takes a block back, which is free behind what was enqueued on its stream and on `others`, or on `all` if it has none.
    /// Gives its bytes; `None` if it is no block in use.
    pub(crate) fn put_back(
        &mut self,
        address: usize,
        all: &[Arc<Timeline>],
        others: &[Arc<Timeline>],
    ) -> Option<usize> {
        if let Some(index) = self.parked.iter().rposition(|parked| parked.address == address) {
            let parked = &mut self.parked[index];
            if !parked.is_taken {
                return None;
            }
            if others.iter().all(|other| Arc::ptr_eq(&parked.timeline, other)) {
                (parked.is_taken, parked.number) = (false, parked.timeline.issue());
                self.stats.used -= parked.bytes;
                return Some(parked.bytes);
            }
            self.parked.swap_remove(index);
        }
        let block = self.blocks.get(&address).filter(|block| block.is_used)?;
        let (bytes, pool) = (block.bytes, block.pool);
        self.stats.used -= bytes;
        let Some(own) = &block.timeline else {
            self.free(address, all.iter().map(Timeline::fence).collect());
            return Some(bytes);
        };
        let mut others = others.iter().filter(|other| !Arc::ptr_eq(own, other)).peekable();
        // A place that is kept for a block in use is the first to go.
        if self.parked.len() == MOST_PARKED
            && let Some(index) = self.parked.iter().position(|parked| parked.is_taken)
        {
            self.parked.swap_remove(index);
        }
        if others.peek().is_none() && self.parked.len() < MOST_PARKED {
            let (timeline, number) = (own.clone(), own.issue());
            self.parked.push(Parked { address, bytes, pool, timeline, number, is_taken: false });
        } else {
            let fences = std::iter::once(Timeline::fence(own)).chain(others.map(Timeline::fence)).collect();
            self.free(address, fences);
        }
        Some(bytes)
    }

    /// Joins a free block with its neighbors.
    fn join(&mut self, address: usize) {
        let mut address = address;
        if let Some((before, _)) = self.blocks.range(..address).next_back()
            && self.joins(*before, address)
        {
            let before = *before;
            self.merge(before, address);
            address = before;
        }
        let after = address + self.blocks[&address].bytes;
        if self.joins(address, after) {
            self.merge(address, after);
        }
    }

    /// True if two blocks are free neighbors of one region and pool that are free at the same time.
    fn joins(&self, one: usize, other: usize) -> bool {
        let (Some(first), Some(second)) = (self.blocks.get(&one), self.blocks.get(&other)) else { return false };
        let same = |a: &Fence, b: &Fence| Arc::ptr_eq(&a.timeline, &b.timeline);
        let alike = first.fences.len() == second.fences.len()
            && first.fences.iter().all(|fence| second.fences.iter().any(|other| same(fence, other)));
        one + first.bytes == other
            && !self.regions.contains_key(&other)
            && !first.is_used
            && !second.is_used
            && first.pool == second.pool
            && alike
    }

    fn merge(&mut self, one: usize, other: usize) {
        let second = self.blocks.remove(&other).expect("a neighbor is a block");
        self.free.remove(&(second.bytes, other));
        let first = self.blocks.get_mut(&one).expect("a neighbor is a block");
        self.free.remove(&(first.bytes, one));
        first.bytes += second.bytes;
        for fence in &mut first.fences {
            let later = second.fences.iter().find(|other| Arc::ptr_eq(&fence.timeline, &other.timeline));
            fence.number = fence.number.max(later.map_or(0, |later| later.number));
        }
        self.free.insert((first.bytes, one));
    }

    /// Forgets fences that have passed, and joins what that makes free.
    pub(crate) fn settle(&mut self) {
        self.unpark();
        for block in self.blocks.values_mut() {
            block.fences.retain(|fence| !fence.has_passed());
        }
        let free: Vec<usize> = self.free.iter().map(|(_, address)| *address).collect();
        for address in free {
            if self.blocks.contains_key(&address) {
                self.join(address);
            }
        }
    }

    /// Adds a region of so many bytes, a multiple of [`GRANULE`].
    pub(crate) fn extend(&mut self, address: usize, bytes: usize) {
        debug_assert!(bytes.is_multiple_of(GRANULE) && !self.blocks.contains_key(&address));
        self.regions.insert(address, bytes);
        self.blocks.insert(address, Block::free(bytes, SHARED, Vec::new()));
        self.free.insert((bytes, address));
        self.stats.held += bytes;
        self.stats.extensions += 1;
    }

    /// Takes regions out of which nothing is used or waited for, for their owner to give back.
    pub(crate) fn shrink(&mut self) -> Vec<usize> {
        self.settle();
        let idle = |(address, bytes): (&usize, &usize)| {
            let block = &self.blocks[address];
            let whole = block.bytes == *bytes && !block.is_used;
            (whole && block.pool == SHARED && block.fences.is_empty()).then_some(*address)
        };
        let idle: Vec<usize> = self.regions.iter().filter_map(idle).collect();
        for address in &idle {
            let bytes = self.regions.remove(address).expect("it is a region");
            self.blocks.remove(address);
            self.free.remove(&(bytes, *address));
            self.stats.held -= bytes;
            self.stats.shrinkages += 1;
        }
        idle
    }

    /// Gives the blocks of a capture, which was replayed on that stream, to everybody.
    pub(crate) fn release(&mut self, pool: u32, replayed: &Arc<Timeline>) {
        self.unpark();
        for block in self.blocks.values_mut().filter(|block| block.pool == pool) {
            block.pool = SHARED;
            if !block.is_used {
                block.fences.push(Timeline::fence(replayed));
            }
        }
        self.settle();
    }

    /// True if some free block of so many bytes is only waited for.
    pub(crate) fn has_waiting(&self, bytes: usize) -> bool {
        let Some(wanted) = Arena::rounded(bytes) else { return false };
        let waiting = |address: &usize| self.blocks[address].pool == SHARED && !self.blocks[address].fences.is_empty();
        self.free.range((wanted, 0)..).any(|(_, address)| waiting(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream that waits for nobody but itself.
    struct Own(Arc<Timeline>);

    impl Consumer for Own {
        fn timeline(&self) -> Option<&Arc<Timeline>> {
            Some(&self.0)
        }

        fn comes_after(&self, timeline: &Arc<Timeline>, _number: u64) -> bool {
            Arc::ptr_eq(&self.0, timeline)
        }
    }

    fn arena(bytes: usize) -> Arena {
        let mut arena = Arena::default();
        arena.extend(0x10000, bytes);
        arena
    }

    #[test]
    fn a_block_is_reused_in_the_order_of_streams() {
        let mut arena = arena(1024);
        let (one, other) = (Own(Arc::default()), Own(Arc::default()));
        let block = arena.take(1000, SHARED, &one).unwrap();
        assert_eq!(arena.put_back(block, &[], &[]), Some(1024));
        assert_eq!(arena.take(1000, SHARED, &other), None, "another stream would overtake");
        assert_eq!(arena.take(1000, SHARED, &Nobody), None, "so would the host");
        assert!(arena.has_waiting(1000) && !arena.has_waiting(1025));
        assert_eq!(arena.take(1000, SHARED, &one), Some(block), "its own work comes later anyway");
        arena.put_back(block, &[], &[]);
        one.0.pass(one.0.reached());
        assert_eq!(arena.take(1000, SHARED, &other), Some(block), "the work before is done");
    }

    #[test]
    fn a_stream_gets_back_what_it_gave() {
        let mut arena = arena(1024);
        let (one, other) = (Own(Arc::default()), Own(Arc::default()));
        let (first, second) = (arena.take(512, SHARED, &one).unwrap(), arena.take(512, SHARED, &one).unwrap());
        for block in [first, second] {
            assert!(arena.put_back(block, &[], &[]).is_some());
            assert_eq!(arena.put_back(block, &[], &[]), None, "it is free");
        }
        assert_eq!(arena.stats().used, 0);
        assert_eq!(arena.take(500, SHARED, &one), Some(second), "as large, though neighbors would be one block");
        assert_eq!((arena.stats().used, arena.stats().allocations), (512, 3));
        assert_eq!(arena.put_back(second, &[], &[]), Some(512));
        // Whoever wants something else finds it joined.
        assert_eq!(arena.take(1024, SHARED, &other), None, "the stream may still use it");
        assert_eq!(arena.take(1024, SHARED, &one), Some(first));
        assert_eq!(arena.put_back(first, &[], &[]), Some(1024));
        assert_eq!(arena.take(1024, 7, &one), Some(first), "a capture of the stream comes later, too");
        assert_eq!(arena.put_back(first, &[], &[]), Some(1024));
        assert_eq!(arena.take(1024, SHARED, &one), None, "it is the capture's");
        arena.release(7, &one.0);
        one.0.pass(one.0.reached());
        assert_eq!(arena.take(1024, SHARED, &other), Some(first));
    }

    #[test]
    fn a_block_that_is_taken_again_is_in_use_as_any() {
        let mut arena = arena(1024);
        let (one, other) = (Own(Arc::default()), Own(Arc::default()));
        let block = arena.take(512, SHARED, &one).unwrap();
        for _ in 0..3 {
            assert_eq!(arena.put_back(block, &[], &[]), Some(512));
            assert_eq!(arena.take(512, SHARED, &one), Some(block));
            assert_eq!(arena.stats().used, 512);
        }
        let rest = arena.take(512, SHARED, &one).expect("the other half");
        assert_ne!(rest, block);
        arena.put_back(rest, &[], &[]);
        assert_eq!(arena.take(1024, SHARED, &one), None, "half of it is in use");
        assert_eq!(arena.put_back(block, &[], &[]), Some(512));
        assert_eq!(arena.put_back(block, &[], &[]), None, "it is free");
        assert_eq!(arena.take(1024, SHARED, &one), Some(block.min(rest)));
        arena.put_back(block.min(rest), &[], &[]);
        // The second time another stream reads it.
        assert_eq!(arena.take(1024, SHARED, &one), Some(block.min(rest)));
        assert_eq!(arena.put_back(block.min(rest), &[], std::slice::from_ref(&other.0)), Some(1024));
        assert_eq!(arena.take(1024, SHARED, &one), None, "the other stream may still read it");
        other.0.pass(other.0.reached());
        assert_eq!(arena.take(1024, SHARED, &one), Some(block.min(rest)));
    }

    #[test]
    fn places_of_blocks_in_use_are_for_others() {
        let mut arena = arena(GRANULE * (MOST_PARKED + 1));
        let one = Own(Arc::default());
        let take = |arena: &mut Arena| arena.take(GRANULE, SHARED, &one).expect("there is one for each");
        let first: Vec<usize> = (0..MOST_PARKED).map(|_| take(&mut arena)).collect();
        first.iter().for_each(|block| assert!(arena.put_back(*block, &[], &[]).is_some()));
        let again: Vec<usize> = (0..MOST_PARKED).map(|_| take(&mut arena)).collect();
        assert_eq!(arena.parked.len(), MOST_PARKED);
        for block in again {
            assert_eq!(arena.put_back(block, &[], &[]), Some(GRANULE));
        }
        assert!(arena.parked.len() <= MOST_PARKED && arena.stats().used == 0);
        let taken = take(&mut arena);
        let index = arena.parked.iter().position(|parked| parked.is_taken).expect("it keeps its place");
        assert_eq!(arena.parked[index].address, taken);
        // A block that never was parked takes the place of the one in use.
        let timeline = Some(one.0.clone());
        let stranger = 0x20000;
        arena.extend(stranger, GRANULE);
        arena.free.remove(&(GRANULE, stranger));
        let block = arena.blocks.get_mut(&stranger).expect("a region is a block");
        (block.is_used, block.timeline) = (true, timeline);
        arena.stats.used += GRANULE;
        assert_eq!(arena.put_back(stranger, &[], &[]), Some(GRANULE));
        assert!(arena.parked.len() == MOST_PARKED && arena.parked.iter().all(|parked| !parked.is_taken));
        assert_eq!(arena.put_back(taken, &[], &[]), Some(GRANULE), "in use all the while");
        assert_eq!(arena.stats().used, 0);
    }

    #[test]
    fn what_was_done_before_a_block_was_given_back_is_passed() {
        let mut arena = arena(512);
        let own = Own(Arc::default());
        let block = arena.take(512, SHARED, &own).unwrap();
        arena.put_back(block, &[], &[]);
        own.0.pass(own.0.reached());
        assert_eq!(arena.take(512, SHARED, &Nobody), Some(block), "parking sets the fence");
    }

    #[test]
    fn a_block_that_another_stream_read_waits_for_it() {
        let mut arena = arena(512);
        let (one, other) = (Own(Arc::default()), Own(Arc::default()));
        let block = arena.take(512, SHARED, &one).unwrap();
        arena.put_back(block, &[], &[one.0.clone(), other.0.clone()]);
        assert_eq!(arena.take(512, SHARED, &one), None, "the other stream may still read it");
        other.0.pass(other.0.reached());
        assert_eq!(arena.take(512, SHARED, &one), Some(block));
    }

    #[test]
    fn streams_that_wait_come_after() {
        struct Waits(Arc<Timeline>, u64);
        impl Consumer for Waits {
            fn timeline(&self) -> Option<&Arc<Timeline>> {
                None
            }

            fn comes_after(&self, timeline: &Arc<Timeline>, number: u64) -> bool {
                Arc::ptr_eq(&self.0, timeline) && number <= self.1
            }
        }
        let mut arena = arena(512);
        let producer = Own(Arc::default());
        let block = arena.take(512, SHARED, &producer).unwrap();
        arena.put_back(block, &[], &[]);
        assert_eq!(arena.take(512, SHARED, &Waits(producer.0.clone(), 0)), None);
        assert_eq!(arena.take(512, SHARED, &Waits(producer.0.clone(), 1)), Some(block));
    }

    #[test]
    fn neighbors_join_when_both_are_free() {
        let mut arena = arena(1024);
        let own = Own(Arc::default());
        let mut blocks: Vec<usize> = (0..2).map(|_| arena.take(256, SHARED, &Nobody).unwrap()).collect();
        blocks.extend((0..2).map(|_| arena.take(256, SHARED, &own).unwrap()));
        assert_eq!(arena.take(1, SHARED, &own), None);
        for block in [0, 2, 1, 3] {
            arena.put_back(blocks[block], &[], &[]);
        }
        assert_eq!(arena.take(1024, SHARED, &own), None, "halves are free at different times");
        own.0.pass(own.0.reached());
        arena.settle();
        assert_eq!(arena.take(1024, SHARED, &Nobody), Some(blocks[0]));
        assert_eq!(arena.shrink(), [] as [usize; 0], "it is in use");
        arena.put_back(blocks[0], std::slice::from_ref(&own.0), &[]);
        assert_eq!(arena.shrink(), [] as [usize; 0], "a stream may have used it");
        own.0.pass(own.0.reached());
        assert_eq!(arena.shrink(), [0x10000]);
        assert_eq!((arena.stats().held, arena.stats().used, arena.stats().most_used), (0, 0, 1024));
    }

    #[test]
    fn regions_never_join() {
        let mut arena = arena(512);
        arena.extend(0x10000 + 512, 512);
        assert_eq!(arena.take(1024, SHARED, &Nobody), None);
        assert_eq!(arena.shrink(), [0x10000, 0x10000 + 512]);
    }

    #[test]
    fn a_capture_keeps_its_blocks() {
        let mut arena = arena(1024);
        let own = Own(Arc::default());
        let block = arena.take(256, 7, &own).unwrap();
        arena.put_back(block, &[], &[]);
        own.0.pass(own.0.reached());
        assert_eq!(arena.take(1024, SHARED, &own), None, "what the capture used is its own");
        assert_eq!(arena.take(256, 7, &own), Some(block), "it may use it again");
        arena.put_back(block, &[], &[]);
        arena.release(7, &own.0);
        assert_eq!(arena.take(1024, SHARED, &Nobody), None, "a replay may be under way");
        own.0.pass(own.0.reached());
        arena.settle();
        assert_eq!(arena.take(1024, SHARED, &own), Some(block));
    }

    #[test]
    fn strangers_and_blocks_that_are_free_are_not_taken_back() {
        let mut arena = arena(512);
        let block = arena.take(10, SHARED, &Nobody).unwrap();
        assert_eq!(arena.put_back(block + 256, &[], &[]), None);
        assert_eq!(arena.put_back(1, &[], &[]), None);
        assert_eq!(arena.put_back(block, &[], &[]), Some(256));
        assert_eq!(arena.put_back(block, &[], &[]), None);
        assert_eq!(arena.take(usize::MAX, SHARED, &Nobody), None);
    }

    #[test]
    fn blocks_never_overlap_and_nothing_is_lost() {
        let mut state = 11u64;
        let mut random = |most: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % most
        };
        let mut arena = arena(1 << 16);
        let streams: Vec<Own> = (0..3).map(|_| Own(Arc::default())).collect();
        let mut living: Vec<(usize, usize)> = Vec::new();
        for _ in 0..20_000 {
            match random(5) {
                0..=2 => {
                    let (bytes, stream) = (random(5000), &streams[random(3)]);
                    if let Some(address) = arena.take(bytes, SHARED, stream) {
                        let end = address + Arena::rounded(bytes).unwrap();
                        assert!(address >= 0x10000 && end <= 0x10000 + (1 << 16) && address.is_multiple_of(GRANULE));
                        assert!(living.iter().all(|(from, to)| end <= *from || *to <= address), "overlap");
                        living.push((address, end));
                    }
                }
                3 if !living.is_empty() => {
                    let (address, _) = living.swap_remove(random(living.len()));
                    assert!(arena.put_back(address, &[], &[]).is_some());
                }
                _ => {
                    let timeline = &streams[random(3)].0;
                    timeline.pass(timeline.reached());
                    if random(4) == 0 {
                        arena.settle();
                    }
                }
            }
            let total: usize = arena.blocks.values().map(|block| block.bytes).sum();
            assert_eq!(total, 1 << 16);
        }
        for (address, _) in living {
            arena.put_back(address, &[], &[]);
        }
        streams.iter().for_each(|stream| stream.0.pass(stream.0.reached()));
        assert_eq!(arena.shrink(), [0x10000], "all of it joins again");
    }
}
