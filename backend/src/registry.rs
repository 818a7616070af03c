//! The objects that callers hold, behind opaque pointers.
//!
//! A `hipdnnHandle_t` or `hipdnnBackendDescriptor_t` of ours is a number that is never given twice, not an address: a
//! destroyed, foreign or made-up one is simply not found, and an object stays alive for the length of every call that
//! found it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

const _: () = assert!(size_of::<usize>() == 8, "tokens need pointers of 64 bits");

const SHARDS: usize = 16;

/// Tokens are multiples of this, as pointers to objects are.
const STEP: u64 = 16;

/// Tokens are consecutive: they need no mixing.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only tokens are hashed");
    }

    fn write_u64(&mut self, token: u64) {
        // The map takes its bucket from the low bits and its tag from the high ones.
        self.0 = (token / STEP / SHARDS as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

type Shard<T> = RwLock<HashMap<u64, T, BuildHasherDefault<Identity>>>;

/// The live objects of one kind. Locks are held only to look up, and by thread-local use rarely contended.
pub(crate) struct Registry<T> {
    base: u64,
    next: AtomicU64,
    shards: [Shard<T>; SHARDS],
}

impl<T: Clone> Registry<T> {
    /// A registry whose tokens start at `kind` · 2⁵⁶: above every address that a process can have, and apart from
    /// those of other kinds.
    pub(crate) const fn new(kind: u8) -> Registry<T> {
        assert!(kind > 0, "token 0 is the null pointer");
        Registry {
            base: (kind as u64) << 56,
            next: AtomicU64::new(1),
            shards: [const { RwLock::new(HashMap::with_hasher(BuildHasherDefault::new())) }; SHARDS],
        }
    }

    fn shard(&self, token: u64) -> &Shard<T> {
        &self.shards[(token / STEP) as usize % SHARDS]
    }

    /// Takes an object in and gives its token.
    pub(crate) fn insert(&self, object: T) -> usize {
        let token = self.base + STEP * self.next.fetch_add(1, Ordering::Relaxed);
        self.shard(token).write().unwrap_or_else(PoisonError::into_inner).insert(token, object);
        token as usize
    }

    /// The object of a token, if it lives.
    pub(crate) fn get(&self, token: usize) -> Option<T> {
        let token = token as u64;
        self.shard(token).read().unwrap_or_else(PoisonError::into_inner).get(&token).cloned()
    }

    /// Takes an object out. The caller drops it, with no lock held: its destructor may call plugins.
    pub(crate) fn remove(&self, token: usize) -> Option<T> {
        let token = token as u64;
        self.shard(token).write().unwrap_or_else(PoisonError::into_inner).remove(&token)
    }

    /// How many objects live.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }

    /// Gives the tables' memory back if no object lives; the library is about to be unloaded.
    pub(crate) fn release_if_empty(&self) {
        for shard in &self.shards {
            if let Ok(mut shard) = shard.try_write()
                && shard.is_empty()
            {
                *shard = HashMap::default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn only_live_tokens_are_found() {
        let registry: Registry<Arc<i32>> = Registry::new(1);
        let tokens: Vec<usize> = (0..100).map(|i| registry.insert(Arc::new(i))).collect();
        assert_eq!(registry.len(), 100);
        for (i, token) in tokens.iter().enumerate() {
            assert_eq!(registry.get(*token).as_deref(), Some(&(i as i32)));
        }
        for never in [0, 1, 0x1000, tokens[99] + 16, tokens[0] + 1, usize::MAX] {
            assert_eq!(registry.get(never), None, "{never:#x}");
        }
        assert_eq!(registry.remove(tokens[3]).as_deref(), Some(&3));
        assert_eq!(registry.get(tokens[3]), None);
        assert_eq!(registry.remove(tokens[3]), None);
        assert!(!tokens.contains(&registry.insert(Arc::new(7))), "no token is given twice");
    }
}
