//! MIOpen: convolutions by its solvers.

mod cache;
pub mod choice;
pub mod choose;
pub mod convolution;
pub mod descriptor;
pub mod follow;
pub mod fused;
mod handles;
pub mod library;
mod places;
mod prepared;
pub mod record;
mod sample;
mod search;
mod trial;

use std::sync::Arc;

use self::choice::Memo;
use self::handles::Handles;
use self::library::Library;
use crate::device::Device;

/// MIOpen on one device: its handles, and what was found out with them.
#[derive(Debug)]
pub struct Miopen {
    handles: Arc<Handles>,
    memo: Memo,
}

impl Miopen {
    pub(super) fn new(library: Library, device: Arc<Device>) -> Miopen {
        Miopen { handles: Arc::new(Handles::new(library, device)), memo: Memo::default() }
    }

    pub(super) fn handles(&self) -> &Arc<Handles> {
        &self.handles
    }

    fn memo(&self) -> &Memo {
        &self.memo
    }
}
