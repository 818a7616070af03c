//! Singleton of a process, made for its first share and dropped with its last.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Storage of the singleton, as a static: without a share it has no memory.
#[derive(Debug)]
pub struct Shared<T>(Mutex<Weak<T>>);

/// Share in the singleton.
#[derive(Debug)]
pub struct Share<T: 'static> {
    /// `None` only while dropped.
    value: Option<Arc<T>>,
    home: &'static Shared<T>,
}

impl<T> Shared<T> {
    /// Empty storage.
    pub const fn new() -> Shared<T> {
        Shared(Mutex::new(Weak::new()))
    }

    /// Share in the singleton, which is made if there is no other share.
    pub fn get(&'static self, make: impl FnOnce() -> T) -> Share<T> {
        let mut current = self.lock();
        let value = current.upgrade().unwrap_or_else(|| {
            let value = Arc::new(make());
            *current = Arc::downgrade(&value);
            value
        });
        Share { value: Some(value), home: self }
    }

    /// Nothing that the lock guards is left half-done by a panic.
    fn lock(&self) -> MutexGuard<'_, Weak<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for Shared<T> {
    fn default() -> Shared<T> {
        Shared::new()
    }
}

impl<T> Clone for Share<T> {
    fn clone(&self) -> Share<T> {
        Share { value: self.value.clone(), home: self.home }
    }
}

impl<T> Deref for Share<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is there until it is dropped")
    }
}

impl<T> Drop for Share<T> {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else { return };
        let mut current = self.home.lock();
        let last = Arc::into_inner(value);
        if last.is_some() {
            // Even an empty allocation would stay behind when the library is unloaded.
            *current = Weak::new();
        }
        drop(current);
        // Dropping the value may take a while, and ask for a share: whoever does meanwhile gets a new one.
        drop(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static DROPPED: AtomicUsize = AtomicUsize::new(0);

    struct Counted(u32);

    impl Drop for Counted {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_value_lives_from_the_first_share_to_the_last() {
        static HOME: Shared<Counted> = Shared::new();
        let first = HOME.get(|| Counted(1));
        let second = HOME.get(|| Counted(2));
        let third = second.clone();
        assert_eq!((first.0, second.0, third.0), (1, 1, 1));
        drop((first, second));
        assert_eq!(DROPPED.load(Ordering::SeqCst), 0);
        drop(third);
        assert_eq!(DROPPED.load(Ordering::SeqCst), 1);
        assert_eq!(HOME.lock().strong_count(), 0);
        assert_eq!(HOME.get(|| Counted(3)).0, 3);
    }
}
