//! Places of temporaries in the workspace.

use hipdnn_engine_core::error::Error;
use hipdnn_engine_core::memory::workspace::{Block, Planner};
use hipdnn_engine_kernel::legalize::{Dispatch, Legalized, Value};

use super::ALIGNMENT;

/// Places of temporaries, and the free space behind them at each dispatch.
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    /// The place of each temporary.
    pub(super) offsets: Vec<usize>,
    /// For each dispatch where the temporaries end that are alive then: MIOpen's workspace goes behind them.
    pub(super) ends: Vec<usize>,
    /// Bytes of all temporaries.
    pub(super) bytes: usize,
}

impl Layout {
    /// Plans the places of temporaries by their lifetime.
    ///
    /// # Errors
    /// If no address space is large enough.
    pub fn new(legalized: &Legalized) -> Result<Layout, Error> {
        let count = legalized.temporaries.len();
        let mut last_use = vec![0; count];
        for (index, dispatch) in legalized.dispatches.iter().enumerate() {
            for temporary in temporaries(dispatch) {
                last_use[temporary] = index;
            }
        }
        let mut planner = Planner::aligned(ALIGNMENT);
        let mut blocks: Vec<Option<Block>> = vec![None; count];
        let mut offsets = vec![0; count];
        let mut live: Vec<usize> = Vec::new();
        let mut ends = Vec::with_capacity(legalized.dispatches.len());
        for (index, dispatch) in legalized.dispatches.iter().enumerate() {
            for temporary in temporaries(dispatch) {
                if blocks[temporary].is_none() {
                    let block = planner.take(legalized.temporaries[temporary])?;
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

/// The temporaries that a dispatch reads or writes.
fn temporaries(dispatch: &Dispatch) -> impl Iterator<Item = usize> {
    let values: Vec<Value> = match dispatch {
        Dispatch::Convolution(dispatch) => {
            [dispatch.x, dispatch.w, dispatch.y].into_iter().chain(dispatch.bias).collect()
        }
        Dispatch::Kernel(dispatch) => dispatch.reads.iter().chain(&dispatch.writes).copied().collect(),
    };
    values.into_iter().filter_map(|value| match value {
        Value::Temporary(index) => Some(index),
        Value::Tensor(_) => None,
    })
}
