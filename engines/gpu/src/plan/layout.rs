//! Places of temporaries in the workspace.

use hipdnn_engine_core::error::Error;
use hipdnn_engine_core::memory::workspace::{Block, Planner};
use hipdnn_engine_kernel::arrange::{Arrangement, Task, Value};

use super::{ALIGNMENT, memory};

/// Places of temporaries, and the free space behind them at each task.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    /// The place of each temporary.
    pub(super) offsets: Vec<usize>,
    /// For each task where the temporaries end that are alive then: MIOpen's workspace goes behind them.
    pub(super) ends: Vec<usize>,
    /// Bytes of all temporaries.
    pub(super) bytes: usize,
}

impl Layout {
    /// Plans the places of temporaries by their lifetime.
    ///
    /// # Errors
    /// If no address space is large enough.
    pub fn new(arrangement: &Arrangement) -> Result<Layout, Error> {
        let count = arrangement.temporaries.len();
        let mut last_use = vec![0; count];
        for (index, task) in arrangement.tasks.iter().enumerate() {
            for temporary in temporaries(task) {
                last_use[temporary] = index;
            }
        }
        let mut planner = Planner::aligned(ALIGNMENT);
        let mut blocks: Vec<Option<Block>> = vec![None; count];
        let mut offsets = vec![0; count];
        let mut live: Vec<usize> = Vec::new();
        let mut ends = Vec::with_capacity(arrangement.tasks.len());
        for (index, task) in arrangement.tasks.iter().enumerate() {
            for temporary in temporaries(task) {
                if blocks[temporary].is_none() {
                    let block = planner.take(arrangement.temporaries[temporary])?;
                    offsets[temporary] = block.offset;
                    blocks[temporary] = Some(block);
                    live.push(temporary);
                }
            }
            let block = |temporary: &usize| blocks[*temporary].expect("what is alive has a place");
            ends.push(live.iter().map(|temporary| block(temporary).end()).max().unwrap_or(0));
            live.retain(|temporary| {
                let ends_here = last_use[*temporary] == index;
                if ends_here {
                    planner.give_back(block(temporary));
                }
                !ends_here
            });
        }
        Ok(Layout { offsets, ends, bytes: planner.bytes() })
    }
}

/// The temporaries that a task reads or writes.
fn temporaries(task: &Task) -> impl Iterator<Item = usize> {
    let values: Vec<Value> = match task {
        Task::Convolution(task) => [task.x, task.w, task.y].into_iter().chain(task.bias).collect(),
        Task::Map(task) => task.inputs.iter().filter_map(memory).chain([task.output]).collect(),
        Task::Grouped(task) => task.reads.iter().chain(&task.writes).copied().collect(),
    };
    values.into_iter().filter_map(|value| match value {
        Value::Temporary(index) => Some(index),
        Value::Tensor(_) => None,
    })
}
