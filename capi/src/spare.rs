//! Objects that one user at a time takes and gives back, the last one without a lock.

use std::ptr::null_mut;
use std::sync::PoisonError;

use super::sync::{AtomicPtr, Mutex, Ordering};

/// Objects that nobody uses.
pub struct Spare<T> {
    /// One of them, owned, or null: threads that come one after the other need no more.
    last: AtomicPtr<T>,
    others: Mutex<Vec<Box<T>>>,
    /// Maximum number of `others`.
    most: usize,
}

impl<T> Spare<T> {
    /// No object, and room for `most`, which is 1 at least.
    pub fn new(most: usize) -> Spare<T> {
        let most = most.saturating_sub(1);
        Spare { last: AtomicPtr::new(null_mut()), others: Mutex::new(Vec::with_capacity(most)), most }
    }

    /// An object, if there is one.
    pub fn take(&self) -> Option<Box<T>> {
        self.take_last().or_else(|| self.others.lock().unwrap_or_else(PoisonError::into_inner).pop())
    }

    fn take_last(&self) -> Option<Box<T>> {
        let last = self.last.swap(null_mut(), Ordering::AcqRel);
        // SAFETY: what stands there came out of a box in `put`, and the exchange made this thread its only owner.
        (!last.is_null()).then(|| unsafe { Box::from_raw(last) })
    }

    /// Keeps an object, or gives it back if there are enough: dropping one may take long, or locks.
    pub fn put(&self, object: Box<T>) -> Option<Box<T>> {
        let raw = Box::into_raw(object);
        if self.last.compare_exchange(null_mut(), raw, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return None;
        }
        // SAFETY: it came out of a box above, and nobody else has seen it.
        let object = unsafe { Box::from_raw(raw) };
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if others.len() < self.most {
            others.push(object);
            return None;
        }
        Some(object)
    }

    /// All objects that are here now.
    pub fn take_all(&self) -> Vec<Box<T>> {
        let mut all = std::mem::take(&mut *self.others.lock().unwrap_or_else(PoisonError::into_inner));
        all.extend(self.take_last());
        all
    }
}

impl<T> Drop for Spare<T> {
    fn drop(&mut self) {
        drop(self.take_last());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn as_many_are_kept_as_there_is_room_for() {
        let spare = Spare::new(2);
        assert!(spare.take().is_none());
        assert!(spare.put(Box::new(1)).is_none() && spare.put(Box::new(2)).is_none());
        assert_eq!(spare.put(Box::new(3)).as_deref(), Some(&3));
        assert_eq!((spare.take().as_deref(), spare.take().as_deref(), spare.take()), (Some(&1), Some(&2), None));
        assert!(spare.put(Box::new(4)).is_none() && spare.put(Box::new(5)).is_none());
        assert_eq!(spare.take_all().iter().map(|kept| **kept).sum::<i32>(), 9);
        assert!(spare.take().is_none());
    }

    #[test]
    fn each_has_one_owner_at_a_time_and_none_is_lost() {
        struct Counted(Arc<AtomicUsize>, usize);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (dropped, made) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
        let spare = Spare::new(3);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for turn in 0..if cfg!(miri) { 50 } else { 5000 } {
                        let mut one = spare.take().unwrap_or_else(|| {
                            made.fetch_add(1, Ordering::Relaxed);
                            Box::new(Counted(dropped.clone(), 0))
                        });
                        one.1 += turn;
                        drop(spare.put(one));
                    }
                });
            }
        });
        let spilled = dropped.load(Ordering::Relaxed);
        drop(spare);
        assert!(dropped.load(Ordering::Relaxed) > spilled, "the last one was kept");
        assert_eq!(dropped.load(Ordering::Relaxed), made.load(Ordering::Relaxed));
    }
}

#[cfg(all(loom, test))]
mod interleavings {
    use super::*;
    use loom::alloc::Track;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    /// Object that the model misses if it leaks, with the number of its users so far: the model reports two at a time.
    struct Object(Track<UnsafeCell<usize>>);

    // SAFETY: the model reports accesses of the cell that are at the same time.
    unsafe impl Sync for Object {}

    impl Object {
        fn new() -> Object {
            Object(Track::new(UnsafeCell::new(0)))
        }

        fn use_it(&self) {
            // SAFETY: nothing else refers to the cell's content here; the model reports accesses at the same time.
            self.0.get_ref().with_mut(|users| unsafe { *users += 1 });
        }

        fn users(&self) -> usize {
            // SAFETY: no owner is left when the count is read; the model reports one that writes meanwhile.
            self.0.get_ref().with(|users| unsafe { *users })
        }
    }

    /// Takes an object, or makes one; uses it and gives it back. Returns its users if it is not kept.
    fn turn(spare: &Spare<Object>) -> usize {
        let object = spare.take().unwrap_or_else(|| Box::new(Object::new()));
        object.use_it();
        spare.put(object).map_or(0, |object| object.users())
    }

    #[test]
    fn an_object_has_one_user_at_a_time_and_none_is_lost() {
        for most in [1, 2] {
            loom::model(move || {
                let spare = Arc::new(Spare::new(most));
                let dropped = Arc::new(AtomicUsize::new(0));
                let users: Vec<_> = (0..2)
                    .map(|_| {
                        let (spare, dropped) = (spare.clone(), dropped.clone());
                        thread::spawn(move || {
                            for _ in 0..2 {
                                dropped.fetch_add(turn(&spare), Ordering::Relaxed);
                            }
                        })
                    })
                    .collect();
                users.into_iter().for_each(|user| user.join().unwrap());
                let kept = spare.take_all();
                assert!((1..=most).contains(&kept.len()), "{} are kept of at most {most}", kept.len());
                let used: usize = kept.iter().map(|object| object.users()).sum();
                assert_eq!(used + dropped.load(Ordering::Relaxed), 4, "each use is an object's");
            });
        }
    }

    #[test]
    fn what_is_taken_at_once_and_what_stays_is_dropped_once() {
        loom::model(|| {
            let spare = Arc::new(Spare::new(2));
            spare.put(Box::new(Object::new()));
            let other = {
                let spare = spare.clone();
                thread::spawn(move || turn(&spare))
            };
            spare.take_all().iter().for_each(|object| object.use_it());
            other.join().unwrap();
        });
    }
}
