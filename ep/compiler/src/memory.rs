//! Memory planning: places in one arena for buffers that live for a while.

use std::collections::HashMap;

use crate::ir::{BufferId, Function, Source, ValueId};

/// Alignment of places, in bytes: a cache line, and a vector of any instruction set.
pub const ALIGNMENT: usize = 64;

/// A buffer's size and the first and last step that it lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Size in bytes.
    pub bytes: usize,
    /// First step that uses it.
    pub first: usize,
    /// Last step that uses it.
    pub last: usize,
}

/// Offsets of buffers in an arena, and its size. Those that live at the same time do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// First byte of each buffer, in the order in which they were given.
    pub offsets: Vec<usize>,
    /// Size in bytes.
    pub bytes: usize,
}

/// Places buffers, the largest first, each at the lowest offset that is free throughout its life. Sizes that would not fit in
/// memory saturate.
pub fn plan(buffers: &[Lifetime]) -> Layout {
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    order.sort_by_key(|index| (std::cmp::Reverse(buffers[*index].bytes), buffers[*index].first));
    let mut layout = Layout { offsets: vec![0; buffers.len()], bytes: 0 };
    let mut placed: Vec<usize> = Vec::new();
    for index in order {
        let buffer = buffers[index];
        let bytes = buffer.bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX);
        let mut taken: Vec<(usize, usize)> = placed
            .iter()
            .map(|other| (buffers[*other], layout.offsets[*other]))
            .filter(|(other, _)| other.first <= buffer.last && buffer.first <= other.last)
            .map(|(other, offset)| (offset, offset.saturating_add(other.bytes)))
            .collect();
        taken.sort_unstable();
        let mut offset = 0usize;
        for (start, end) in taken {
            if offset.saturating_add(bytes) <= start {
                break;
            }
            offset = offset.max(end.checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX));
        }
        layout.offsets[index] = offset;
        layout.bytes = layout.bytes.max(offset.saturating_add(bytes));
        placed.push(index);
    }
    layout
}

/// Places of intermediates' buffers in one arena.
pub struct Places {
    /// Size of the arena in bytes.
    pub arena: usize,
    /// First byte of each buffer that a step uses.
    pub offsets: HashMap<BufferId, usize>,
}

impl Places {
    /// Places every buffer of the arena for the steps that use it; `steps` are their arguments.
    pub fn of<'a>(function: &Function, steps: impl Iterator<Item = &'a [(i64, ValueId)]>) -> Places {
        let mut lifetimes: Vec<Lifetime> = Vec::new();
        let mut numbers: HashMap<BufferId, usize> = HashMap::new();
        for (step, arguments) in steps.enumerate() {
            for (_, id) in arguments {
                let buffer = function.value(*id).buffer.expect("arguments have memory");
                if function.buffer(buffer).source != Source::Arena {
                    continue;
                }
                let number = *numbers.entry(buffer).or_insert_with(|| {
                    lifetimes.push(Lifetime { bytes: function.buffer(buffer).bytes(), first: step, last: step });
                    lifetimes.len() - 1
                });
                lifetimes[number].last = step;
            }
        }
        let layout = plan(&lifetimes);
        let offsets = numbers.into_iter().map(|(buffer, number)| (buffer, layout.offsets[number])).collect();
        Places { arena: layout.bytes, offsets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetimes(list: &[(usize, usize, usize)]) -> Vec<Lifetime> {
        list.iter().map(|&(bytes, first, last)| Lifetime { bytes, first, last }).collect()
    }

    #[test]
    fn a_chain_needs_its_largest_neighbors() {
        // Each step reads the one before: two buffers are alive at a time.
        let layout = plan(&lifetimes(&[(64, 0, 1), (128, 1, 2), (256, 2, 3), (128, 3, 4), (64, 4, 5)]));
        assert_eq!(layout.bytes, 384);
    }

    #[test]
    fn nothing_overlaps_that_lives_at_the_same_time() {
        let mut state = 7u64;
        let mut random = |most: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % most) as usize
        };
        for _ in 0..200 {
            let buffers: Vec<_> = (0..random(40))
                .map(|_| {
                    let first = random(20);
                    Lifetime { bytes: random(1000), first, last: first + random(6) }
                })
                .collect();
            let layout = plan(&buffers);
            let most: usize = (0..30)
                .map(|step| {
                    buffers
                        .iter()
                        .filter(|b| b.first <= step && step <= b.last)
                        .map(|b| b.bytes.next_multiple_of(ALIGNMENT))
                        .sum()
                })
                .max()
                .unwrap_or(0);
            assert!(
                layout.bytes >= most && layout.bytes <= most * 2 + 64,
                "{} bytes where {most} are alive",
                layout.bytes
            );
            for (i, a) in buffers.iter().enumerate() {
                assert_eq!(layout.offsets[i] % ALIGNMENT, 0);
                assert!(layout.offsets[i] + a.bytes <= layout.bytes);
                for (j, b) in buffers.iter().enumerate().skip(i + 1) {
                    let apart = layout.offsets[i] + a.bytes <= layout.offsets[j]
                        || layout.offsets[j] + b.bytes <= layout.offsets[i];
                    assert!(apart || a.last < b.first || b.last < a.first || a.bytes == 0 || b.bytes == 0);
                }
            }
        }
    }
}
