//! State from the first handle to the last: contexts, and the choices made most recently.
//!
//! Hosts ask for the workspace of a graph, then for its plan: both come from the same choices.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hipdnn_capi::shared::{self, Share};
use hipdnn_engine_core::error::Error;
use hipdnn_schemas::Graph;

use super::context::{Context, Contexts};
use super::plan::Choices;
use super::settings::Settings;

/// Choices that are kept: a host that prepares several plans side by side asks for all workspaces first.
const RECENT: usize = 16;

/// Nodes of the largest graph that is kept.
const MOST_NODES: usize = 256;

/// See the module's documentation.
#[derive(Debug)]
pub struct Shared {
    contexts: Share<Contexts>,
    recent: Mutex<VecDeque<Recent>>,
}

/// Everything but the cache on disk that choices depend on, and the choices.
#[derive(Debug)]
struct Recent {
    graph: Graph,
    settings: Settings,
    context: Arc<Context>,
    choices: Weak<Choices>,
    /// Keeps them from the question for the workspace to the plan, which has them from then on.
    kept: Option<Arc<Choices>>,
}

static SHARED: shared::Shared<Shared> = shared::Shared::new();

/// Nothing that a lock here guards is left half-done by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// The process's: the same for all who hold it at a time.
    pub fn get() -> Share<Shared> {
        SHARED.get(|| Shared { contexts: Contexts::get(), recent: Mutex::default() })
    }

    /// The devices' contexts.
    pub fn contexts(&self) -> &Share<Contexts> {
        &self.contexts
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
        context: &Arc<Context>,
        to_plan: bool,
        choose: impl FnOnce() -> Result<Choices, Error>,
    ) -> Result<Arc<Choices>, Error> {
        let same = |recent: &Recent| {
            Arc::ptr_eq(&recent.context, context) && recent.settings == *settings && recent.graph == *graph
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
                graph: graph.clone(),
                settings: settings.clone(),
                context: Arc::clone(context),
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
