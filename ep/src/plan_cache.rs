//! The plans of one node, by the extents of its input.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Keeps what was built for the most recently used keys. Readers of different keys do not wait for one another, and
/// not for a build.
pub(crate) struct PlanCache<T> {
    capacity: usize,
    entries: RwLock<Vec<Entry<T>>>,
    /// Number of entries.
    count: AtomicUsize,
    building: Mutex<()>,
    clock: AtomicU64,
}

struct Entry<T> {
    key: Box<[i64]>,
    value: Arc<T>,
    used: AtomicU64,
    /// True if it was built for a key that nobody asked for yet.
    is_assumed: AtomicBool,
}

impl<T> PlanCache<T> {
    /// A cache of at most `capacity` keys, at least 1.
    pub(crate) fn new(capacity: usize) -> PlanCache<T> {
        PlanCache {
            capacity: capacity.max(1),
            entries: RwLock::new(Vec::new()),
            count: AtomicUsize::new(0),
            building: Mutex::new(()),
            clock: AtomicU64::new(0),
        }
    }

    /// True if one key is kept, of whose uses no order is kept.
    pub(crate) fn has_one(&self) -> bool {
        self.count.load(Ordering::Acquire) == 1
    }

    /// Value that is kept for `key`.
    pub(crate) fn get(&self, key: &[i64]) -> Option<Arc<T>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.iter().find(|entry| *entry.key == *key)?;
        if entry.is_assumed.load(Ordering::Relaxed) {
            entry.is_assumed.store(false, Ordering::Relaxed);
        }
        // With one key there is no order to keep, and no cache line for threads to fight over.
        if entries.len() > 1 {
            entry.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        }
        Some(entry.value.clone())
    }

    /// Value that is kept for `key`, or else the one that `build` makes; of several callers with a new key one builds.
    ///
    /// # Errors
    /// Errors of `build`; then nothing is kept.
    pub(crate) fn get_or_build<E>(&self, key: &[i64], build: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        if let Some(value) = self.get(key) {
            return Ok(value);
        }
        let _building = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = self.get(key) {
            return Ok(value);
        }
        let value = Arc::new(build()?);
        self.insert(key, value.clone());
        Ok(value)
    }

    /// Keeps `value` for `key`, in place of what was assumed in vain, and of the least recently used one if there are too many.
    pub(crate) fn insert(&self, key: &[i64], value: Arc<T>) {
        self.add(key, value, false);
    }

    /// Keeps `value` for a key that was assumed, until another key is inserted: after it has been asked for, as any other.
    pub(crate) fn assume(&self, key: &[i64], value: Arc<T>) {
        self.add(key, value, true);
    }

    fn add(&self, key: &[i64], value: Arc<T>, is_assumed: bool) {
        let used = AtomicU64::new(self.clock.fetch_add(1, Ordering::Relaxed));
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let mut dropped: Vec<Entry<T>> =
            entries.extract_if(.., |entry| entry.is_assumed.load(Ordering::Relaxed)).collect();
        if entries.len() >= self.capacity {
            let oldest = entries.iter().enumerate().min_by_key(|(_, entry)| entry.used.load(Ordering::Relaxed));
            dropped.extend(oldest.map(|(index, _)| index).map(|index| entries.swap_remove(index)));
        }
        entries.push(Entry { key: key.into(), value, used, is_assumed: AtomicBool::new(is_assumed) });
        self.count.store(entries.len(), Ordering::Release);
        drop(entries);
        // A plan may take long to drop: not under the lock.
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(cache: &PlanCache<i64>, key: i64) -> (i64, bool) {
        let mut built = false;
        let value = cache.get_or_build(&[key], || {
            built = true;
            Ok::<_, ()>(10 * key)
        });
        (*value.unwrap(), built)
    }

    #[test]
    fn the_least_recently_used_goes() {
        let cache = PlanCache::new(2);
        for (key, built) in [
            (1, true),
            (2, true),
            (1, false),
            // 2 goes.
            (3, true),
            (1, false),
            (3, false),
            // 1 goes.
            (2, true),
            (3, false),
            (1, true),
        ] {
            assert_eq!(build(&cache, key), (10 * key, built), "{key}");
        }
    }

    #[test]
    fn a_failure_is_not_kept() {
        let cache = PlanCache::new(1);
        assert_eq!(cache.get_or_build(&[1], || Err("no")), Err("no"));
        assert!(!cache.has_one());
        assert_eq!(build(&cache, 1), (10, true));
        assert!(cache.has_one());
        assert_eq!(cache.get_or_build(&[2], || Err("no")), Err("no"));
        assert_eq!(build(&cache, 1), (10, false));
    }

    #[test]
    fn what_was_assumed_in_vain_goes() {
        let cache = PlanCache::new(8);
        cache.assume(&[1], Arc::new(10));
        assert!(cache.has_one());
        assert_eq!(build(&cache, 2), (20, true));
        assert!(cache.has_one());
        assert_eq!(build(&cache, 1), (10, true));
        // What was asked for stays.
        let cache = PlanCache::new(8);
        cache.assume(&[1], Arc::new(10));
        assert_eq!(build(&cache, 1), (10, false));
        assert_eq!(build(&cache, 2), (20, true));
        assert_eq!(build(&cache, 1), (10, false));
        assert!(!cache.has_one());
    }

    #[test]
    fn many_threads_build_once() {
        let cache = PlanCache::new(8);
        let builds = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for key in 0..8 {
                        let value = cache.get_or_build(&[key], || {
                            builds.fetch_add(1, Ordering::Relaxed);
                            Ok::<_, ()>(key)
                        });
                        assert_eq!(*value.unwrap(), key);
                    }
                });
            }
        });
        assert_eq!(builds.into_inner(), 8);
    }
}
