//! What is kept from the first handle to the last: devices, and the choices made most recently.
//!
//! Hosts ask for the workspace of a graph, then for its plan: both come from the same choices.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hipdnn_schemas::{Graph, GraphDef};

use super::device::{Device, Devices};
use super::plan::Choices;
use super::settings::Settings;
use crate::error::Error;

/// Choices that are kept: a host that prepares several plans side by side asks for all workspaces first.
const RECENT: usize = 16;

/// Nodes of the largest graph that is kept.
const MOST_NODES: usize = 256;

/// See the module's documentation.
#[derive(Debug)]
pub struct Shared {
    devices: Arc<Devices>,
    recent: Mutex<VecDeque<Recent>>,
}

/// Everything but the cache on disk that choices depend on, and the choices.
#[derive(Debug)]
struct Recent {
    graph: GraphDef,
    settings: Settings,
    device: Arc<Device>,
    choices: Weak<Choices>,
    /// Keeps them from the question for the workspace to the plan, which has them from then on.
    kept: Option<Arc<Choices>>,
}

static SHARED: Mutex<Weak<Shared>> = Mutex::new(Weak::new());

/// Nothing that a lock here guards is left half-done by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// The process's: the same for all who hold it at a time.
    pub fn get() -> Arc<Shared> {
        let mut shared = lock(&SHARED);
        shared.upgrade().unwrap_or_else(|| {
            let new = Arc::new(Shared { devices: Devices::get(), recent: Mutex::default() });
            *shared = Arc::downgrade(&new);
            new
        })
    }

    /// The devices.
    pub fn devices(&self) -> &Arc<Devices> {
        &self.devices
    }

    /// The choices that were made for that graph with those settings, if they are still there, or those that `choose` makes
    /// now. They are kept until somebody asks for them `to_plan`.
    ///
    /// # Errors
    /// Those of `choose`.
    pub fn choices(
        &self,
        graph: &Graph,
        settings: &Settings,
        device: &Arc<Device>,
        to_plan: bool,
        choose: impl FnOnce() -> Result<Choices, Error>,
    ) -> Result<Arc<Choices>, Error> {
        let same = |recent: &Recent| {
            Arc::ptr_eq(&recent.device, device) && recent.settings == *settings && recent.graph == *graph.def()
        };
        if let Some(recent) = lock(&self.recent).iter_mut().find(|recent| same(recent))
            && let Some(choices) = recent.choices.upgrade()
        {
            recent.kept = (!to_plan).then(|| Arc::clone(&choices));
            return Ok(choices);
        }
        let choices = Arc::new(choose()?);
        if graph.nodes().len() <= MOST_NODES {
            let recent = Recent {
                graph: graph.def().clone(),
                settings: settings.clone(),
                device: Arc::clone(device),
                choices: Arc::downgrade(&choices),
                kept: (!to_plan).then(|| Arc::clone(&choices)),
            };
            // Freeing what a device gave takes time that others need not wait for.
            let forgotten = {
                let mut all = lock(&self.recent);
                let (mut forgotten, left): (VecDeque<_>, VecDeque<_>) = all.drain(..).partition(same);
                *all = left;
                all.push_front(recent);
                if all.len() > RECENT {
                    forgotten.extend(all.pop_back());
                }
                forgotten
            };
            drop(forgotten);
        }
        Ok(choices)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The static would keep our memory when this library is unloaded.
        let mut shared = lock(&SHARED);
        if shared.strong_count() == 0 {
            *shared = Weak::new();
        }
    }
}
