//! The two stages of a descriptor: a draft whose attributes are set, then its finalized state.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::error::{Error, Result};

/// A draft that, once finalized, becomes an immutable state that is read without a lock.
pub(crate) struct Staged<D, F> {
    draft: Mutex<D>,
    finished: OnceLock<F>,
}

impl<D: Default, F> Default for Staged<D, F> {
    fn default() -> Self {
        Staged { draft: Mutex::default(), finished: OnceLock::new() }
    }
}

impl<D, F> Staged<D, F> {
    /// A finalized descriptor that was never a draft of the caller's.
    pub(crate) fn finished_from(finished: F) -> Self
    where
        D: Default,
    {
        Staged { draft: Mutex::default(), finished: OnceLock::from(finished) }
    }

    pub(crate) fn from_draft(draft: D) -> Self {
        Staged { draft: Mutex::new(draft), finished: OnceLock::new() }
    }

    /// The draft, to look at.
    pub(crate) fn draft(&self) -> MutexGuard<'_, D> {
        self.draft.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The draft, to change: not after finalizing.
    pub(crate) fn edit(&self) -> Result<MutexGuard<'_, D>> {
        let draft = self.draft();
        if self.finished.get().is_some() {
            return Err(Error::not_initialized("the descriptor is finalized: it cannot be changed any more"));
        }
        Ok(draft)
    }

    pub(crate) fn finished(&self) -> Option<&F> {
        self.finished.get()
    }

    /// Finalized state, for reading an attribute.
    pub(crate) fn read(&self) -> Result<&F> {
        self.finished().ok_or_else(|| Error::not_initialized("the descriptor is not finalized: it cannot be read yet"))
    }

    /// Finalized state, for a descriptor that refers to this one.
    pub(crate) fn referred(&self, what: &str) -> Result<&F> {
        self.finished().ok_or_else(|| Error::not_finalized(format!("the {what} is not finalized")))
    }

    /// Refuses a second finalizing.
    pub(crate) fn expect_unfinished(&self) -> Result<()> {
        match self.finished() {
            None => Ok(()),
            Some(_) => Err(Error::bad_param("the descriptor is finalized already")),
        }
    }

    /// Stores the finalized state.
    pub(crate) fn finish(&self, finished: F) -> Result<()> {
        self.finished.set(finished).map_err(|_| Error::bad_param("the descriptor is finalized already"))
    }
}
