//! A small worker pool whose threads end with it: the library that owns them may be unloaded at any time.

use std::any::Any;
use std::ffi::CString;
use std::panic::{self, AssertUnwindSafe};

use super::lent;
use super::sync::{
    Arc, AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, OsThread, UnsafeCell, fence,
    spin_loop,
};

/// Number of polls of an idle thread for work, or of a waiting one for its helpers, before it goes to sleep.
const SPINS: u32 = if cfg!(all(loom, test)) { 1 } else { 4_000 };

/// Work shared by all threads of a call: `f(worker, unit)`.
type Task<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// Number of parts of a job's units that workers begin with.
const PARTS: usize = if cfg!(all(loom, test)) { 2 } else { 16 };

/// The units of a job, which workers take one after the other: first those of a part of their own, then what others have
/// left. The same part of jobs that follow each other is most likely of the same memory, which a core then has in its caches.
pub(super) struct Units {
    /// First unit of each part that nobody has taken.
    next: [Line<AtomicUsize>; PARTS],
    count: AtomicUsize,
    parts: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// A value on cache lines of its own, so that workers don't wait for each other's.
#[repr(align(64))]
struct Line<T>(T);

impl Units {
    /// Makes `count` units for so many workers, none of them taken.
    pub(super) fn new(count: usize, workers: usize) -> Units {
        let units = Units {
            next: std::array::from_fn(|_| Line(AtomicUsize::new(0))),
            count: AtomicUsize::new(0),
            parts: AtomicUsize::new(0),
            panic: Mutex::new(None),
        };
        units.restart(count, workers);
        units
    }

    /// Begins anew; no worker is at work.
    fn restart(&self, count: usize, workers: usize) {
        let parts = workers.clamp(1, PARTS);
        for (part, next) in self.next[..parts].iter().enumerate() {
            next.0.store(first_of(part, parts, count), Ordering::Relaxed);
        }
        self.count.store(count, Ordering::Relaxed);
        self.parts.store(parts, Ordering::Relaxed);
    }

    /// Takes units until none is left, those of part `home` first (counted on from the first part behind the last); a panic is
    /// kept for [`Units::end`] and ends the job.
    pub(super) fn work(&self, task: &Task<'_>, worker: usize, home: usize) {
        let (count, parts) = (self.count.load(Ordering::Relaxed), self.parts.load(Ordering::Relaxed));
        let result = panic::catch_unwind(AssertUnwindSafe(|| {
            for turn in 0..parts {
                let part = (home % parts + turn) % parts;
                let (next, end) = (&self.next[part].0, first_of(part + 1, parts, count));
                // A look at another's part that is done costs less than a write to its line.
                if turn > 0 && next.load(Ordering::Relaxed) >= end {
                    continue;
                }
                loop {
                    let unit = next.fetch_add(1, Ordering::Relaxed);
                    if unit >= end {
                        break;
                    }
                    task(worker, unit);
                }
            }
        }));
        if let Err(payload) = result {
            self.next.iter().for_each(|next| next.0.store(count, Ordering::Relaxed));
            self.panic.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(payload);
        }
    }

    /// Takes the panic of a unit, if there was one.
    fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        self.panic.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
    }

    /// Ends the job: raises the panic of a unit again.
    pub(super) fn end(&self) {
        if let Some(payload) = self.take_panic() {
            panic::resume_unwind(payload);
        }
    }
}

/// First of `count` units of a part.
fn first_of(part: usize, parts: usize, count: usize) -> usize {
    count / parts * part + (count % parts).min(part)
}

#[derive(Clone, Copy)]
struct Job {
    task: *const Task<'static>,
    /// Number of workers of the job; those with a higher index stay out.
    workers: usize,
}

/// `state` holds the job number in its upper half, this bit when the job takes no more helpers, and below it how many
/// helpers are inside.
const CLOSED: u64 = 1 << 31;
const INSIDE: u64 = CLOSED - 1;

/// A job at a time for a caller and its helpers, which may come and go.
pub(super) struct Shared {
    state: AtomicU64,
    job: UnsafeCell<Option<Job>>,
    units: Units,
    /// Set while a caller owns `job`.
    busy: AtomicBool,
    quit: AtomicBool,
    asleep: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
    done: Condvar,
}

// SAFETY: `job` is written only by the caller that holds `busy`, while the job is closed and no helper is inside;
// helpers read it only after they entered through `state`, which the caller published after writing.
unsafe impl Sync for Shared {}
// SAFETY: the task pointer in `job` refers to a `Sync` closure and is used only while its caller waits for the helpers.
unsafe impl Send for Shared {}

/// Threads that run the units of one job at a time; dropping it joins them. A caller that lent a parallel-for
/// ([`lent`]) has its units run on that instead.
pub struct Pool {
    shared: Arc<Shared>,
    helpers: Vec<OsThread>,
    /// Maximum number of workers of a job.
    width: usize,
}

impl Pool {
    /// Makes a pool in which `threads` threads work on a job: the caller's and `threads - 1` of its own.
    ///
    /// Should the system refuse a thread the pool has fewer; see [`Pool::threads`].
    pub fn new(threads: usize) -> Pool {
        Pool::with_helpers(threads, threads.saturating_sub(1))
    }

    /// Makes a pool without threads of its own: `threads` workers where the caller lends a parallel-for, else the
    /// caller alone.
    pub fn without_threads(threads: usize) -> Pool {
        Pool::with_helpers(threads, 0)
    }

    fn with_helpers(threads: usize, helpers: usize) -> Pool {
        let shared = Arc::new(Shared::new());
        let helpers = (1..=helpers)
            .map_while(|worker| {
                let shared = Arc::clone(&shared);
                let name = CString::new(format!("hipdnn-rs-{worker}")).unwrap_or_default();
                OsThread::start(&name, move || shared.help(worker, worker))
                    .map_err(|error| {
                        log::warn!("CPU engine: worker thread {worker} of {threads} did not start: {error}")
                    })
                    .ok()
            })
            .collect();
        Pool { shared, helpers, width: threads.max(1) }
    }

    /// Maximum number of workers of a job.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Number of threads that work on a job if nothing is lent, the caller included.
    pub fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Calls `f(unit)` once for each unit in `0..units`, in any order, and returns when all are done.
    ///
    /// The caller works too. While another job is running in the pool the caller does its units alone. A panic in `f`
    /// ends the job early and is raised again here.
    pub fn run(&self, units: usize, f: &(dyn Fn(usize) + Sync)) {
        self.run_indexed(units, usize::MAX, &|_, unit| f(unit));
    }

    /// Like [`Pool::run`] with `f(worker, unit)`, where no two calls at a time have the same `worker` and all are below
    /// `workers` and the number of threads that the pool was made for.
    pub fn run_indexed(&self, units: usize, workers: usize, f: &(dyn Fn(usize, usize) + Sync)) {
        let workers = workers.min(self.width).min(units);
        if workers <= 1 {
            (0..units).for_each(|unit| f(0, unit));
        } else if !lent::run(units, workers, f) {
            self.shared.run(units, workers.min(self.threads()), f);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.quit();
        for helper in self.helpers.drain(..) {
            if !helper.join() {
                log::error!("CPU engine: a worker thread ended by a panic");
            }
        }
    }
}

impl Shared {
    pub(super) fn new() -> Shared {
        Shared {
            state: AtomicU64::new(CLOSED),
            job: UnsafeCell::new(None),
            units: Units::new(0, 1),
            busy: AtomicBool::new(false),
            quit: AtomicBool::new(false),
            asleep: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            done: Condvar::new(),
        }
    }

    /// Runs a job with the helpers that are there; while another one runs, on the caller alone.
    pub(super) fn run(&self, units: usize, workers: usize, task: &Task<'_>) {
        if workers <= 1 || self.busy.swap(true, Ordering::Acquire) {
            (0..units).for_each(|unit| task(0, unit));
        } else {
            self.lead(units, workers, task);
        }
    }

    /// Has helpers return, those that are asleep too.
    pub(super) fn quit(&self) {
        // The lock orders it before the last look of whoever goes to sleep.
        self.quit.store(true, Ordering::Relaxed);
        drop(self.lock());
        self.wake.notify_all();
    }

    /// Locks the sleepers: the lock guards no data, so a poisoned one is as good as any.
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.sleep.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn lead(&self, units: usize, workers: usize, task: &Task<'_>) {
        // SAFETY: only the lifetime changes; helpers use the task while `lead` waits for them.
        let task_ptr = unsafe { std::mem::transmute::<*const Task<'_>, *const Task<'static>>(task) };
        // SAFETY: this caller holds `busy`; the last job is closed and its helpers have left.
        self.job.with_mut(|job| unsafe { *job = Some(Job { task: task_ptr, workers }) });
        self.units.restart(units, workers);
        let number = (self.state.load(Ordering::Relaxed) >> 32).wrapping_add(1);
        self.state.store(number << 32, Ordering::Release);
        // Between this and the look at `asleep`, as between a helper's entry there and its last look at `state`: one of
        // the two sees the other.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) > 0 {
            drop(self.lock());
            self.wake.notify_all();
        }
        self.units.work(task, 0, 0);
        let mut inside = self.state.fetch_or(CLOSED, Ordering::AcqRel) & INSIDE;
        for _ in 0..SPINS {
            if inside == 0 {
                break;
            }
            spin_loop();
            inside = self.state.load(Ordering::Acquire) & INSIDE;
        }
        if inside != 0 {
            let mut guard = self.lock();
            while self.state.load(Ordering::Acquire) & INSIDE != 0 {
                guard = self.done.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
        }
        let panic = self.units.take_panic();
        self.busy.store(false, Ordering::Release);
        if let Some(payload) = panic {
            panic::resume_unwind(payload);
        }
    }

    /// Helps with jobs of more than `worker` workers until [`Shared::quit`], in each with the units of part `home` first.
    pub(super) fn help(&self, worker: usize, home: usize) {
        let mut seen = 0;
        loop {
            let Some(state) = self.next_job(seen) else { return };
            seen = state >> 32;
            let entered = self
                .state
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
                    (now >> 32 == seen && now & CLOSED == 0).then_some(now + 1)
                })
                .is_ok();
            if !entered {
                continue;
            }
            // SAFETY: inside an open job `job` is not written, and its publication happened before the entry.
            if let Some(job) = self.job.with(|job| unsafe { *job })
                && worker < job.workers
            {
                // SAFETY: the caller keeps the task alive until every helper has left.
                self.units.work(unsafe { &*job.task }, worker, home);
            }
            let before = self.state.fetch_sub(1, Ordering::AcqRel);
            if before & INSIDE == 1 && before & CLOSED != 0 {
                drop(self.lock());
                self.done.notify_all();
            }
        }
    }

    /// State of an open job other than `seen`, or `None` at the end.
    fn next_job(&self, seen: u64) -> Option<u64> {
        let fresh = || {
            let state = self.state.load(Ordering::Acquire);
            (state >> 32 != seen && state & CLOSED == 0).then_some(state)
        };
        for _ in 0..SPINS {
            if let Some(state) = fresh() {
                return Some(state);
            }
            if self.quit.load(Ordering::Relaxed) {
                return None;
            }
            spin_loop();
        }
        let mut guard = self.lock();
        self.asleep.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let found = loop {
            if self.quit.load(Ordering::Relaxed) {
                break None;
            }
            if let Some(state) = fresh() {
                break Some(state);
            }
            guard = self.wake.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner());
        };
        self.asleep.fetch_sub(1, Ordering::Relaxed);
        found
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn every_unit_runs_once_on_any_number_of_threads() {
        for threads in [0, 1, 2, 3, 8] {
            let pool = Pool::new(threads);
            for units in [0, 1, 2, 7, 1000] {
                let hits: Vec<AtomicUsize> = (0..units).map(|_| AtomicUsize::new(0)).collect();
                pool.run(units, &|unit| {
                    hits[unit].fetch_add(1, Ordering::Relaxed);
                });
                assert!(hits.iter().all(|hit| hit.load(Ordering::Relaxed) == 1), "{threads} threads, {units} units");
            }
        }
    }

    #[test]
    fn a_worker_index_is_held_by_one_thread_at_a_time() {
        let pool = Pool::new(4);
        for workers in [1, 2, 4, 9] {
            let held: Vec<AtomicBool> = (0..4).map(|_| AtomicBool::new(false)).collect();
            pool.run_indexed(500, workers, &|worker, _| {
                assert!(worker < workers);
                assert!(!held[worker].swap(true, Ordering::SeqCst));
                thread::yield_now();
                held[worker].store(false, Ordering::SeqCst);
            });
        }
    }

    #[test]
    fn callers_at_once_and_nested_calls_finish() {
        let pool = Pool::new(3);
        let total = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        pool.run(5, &|_| {
                            pool.run(3, &|_| {
                                total.fetch_add(1, Ordering::Relaxed);
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(total.load(Ordering::Relaxed), 6 * 200 * 15);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(4);
        for round in 0..50 {
            let result = panic::catch_unwind(AssertUnwindSafe(|| {
                pool.run(64, &|unit| {
                    if unit == round % 64 {
                        panic::resume_unwind(Box::new("unit"));
                    }
                });
            }));
            assert_eq!(result.unwrap_err().downcast_ref(), Some(&"unit"));
            let count = AtomicUsize::new(0);
            pool.run(64, &|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.load(Ordering::Relaxed), 64);
        }
    }

    #[test]
    fn sleeping_workers_wake_and_end() {
        for _ in 0..20 {
            let pool = Pool::new(4);
            thread::sleep(std::time::Duration::from_millis(2));
            let count = AtomicUsize::new(0);
            pool.run(100, &|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.load(Ordering::Relaxed), 100);
        }
    }
}

#[cfg(all(loom, test))]
pub(super) mod interleavings {
    use super::*;
    use loom::thread;

    /// Counts of a job's units, written without synchronization of their own: the model reports two writes at the same
    /// time, and a look at one that is not over.
    pub(in super::super) struct Hits(Vec<UnsafeCell<usize>>);

    // SAFETY: the model reports accesses of a cell that are at the same time.
    unsafe impl Sync for Hits {}

    impl Hits {
        pub(in super::super) fn new(units: usize) -> Hits {
            Hits((0..units).map(|_| UnsafeCell::new(0)).collect())
        }

        pub(in super::super) fn hit(&self, unit: usize) {
            // SAFETY: nothing else refers to the cell's content here; the model reports accesses at the same time.
            self.0[unit].with_mut(|count| unsafe { *count += 1 });
        }

        /// The counts. The model takes the look for a write, so no hit may be under way.
        pub(in super::super) fn counts(&self) -> Vec<usize> {
            // SAFETY: no hit is under way when the counts are looked at; the model reports one that is.
            self.0.iter().map(|hit| hit.with_mut(|count| unsafe { *count })).collect()
        }
    }

    /// Runs a job of two units on two workers, and checks it.
    pub(in super::super) fn run_two_units(pool: &Pool) {
        let (hits, workers) = (Hits::new(2), Hits::new(2));
        pool.run_indexed(2, 2, &|worker, unit| {
            // The model reports a worker that two threads are.
            workers.hit(worker);
            hits.hit(unit);
        });
        assert_eq!(hits.counts(), [1, 1]);
    }

    #[test]
    fn units_run_once_and_are_done_when_the_job_is() {
        loom::model(|| {
            let hits = Hits::new(2);
            // A helper more than there are workers.
            Pool::new(3).run_indexed(2, 2, &|worker, unit| {
                assert!(worker < 2);
                hits.hit(unit);
            });
            assert_eq!(hits.counts(), [1, 1]);
        });
    }

    #[test]
    fn a_late_helper_does_not_take_the_job_before_for_the_next() {
        loom::model(|| {
            let pool = Pool::new(2);
            (0..2).for_each(|_| run_two_units(&pool));
        });
    }

    /// The caller alone would finish any other job: one of units that meet shows that a helper is not missed. Real units
    /// must not do that.
    #[test]
    fn a_helper_that_goes_to_sleep_sees_the_job_or_is_woken() {
        loom::model(|| {
            let (arrived, all) = (Mutex::new(0), Condvar::new());
            Pool::new(2).run(2, &|_| {
                let mut arrived = arrived.lock().unwrap();
                *arrived += 1;
                all.notify_all();
                while *arrived < 2 {
                    arrived = all.wait(arrived).unwrap();
                }
            });
        });
    }

    #[test]
    fn callers_at_once_finish() {
        loom::model(|| {
            let pool = Arc::new(Pool::new(2));
            let run = |pool: &Pool| {
                let hits = Hits::new(2);
                pool.run(2, &|unit| hits.hit(unit));
                assert_eq!(hits.counts(), [1, 1]);
            };
            let other = {
                let pool = pool.clone();
                thread::spawn(move || run(&pool))
            };
            run(&pool);
            other.join().unwrap();
        });
    }

    #[test]
    fn a_panic_waits_for_the_helpers_and_reaches_the_caller() {
        loom::model(|| {
            let pool = Pool::new(2);
            let hits = Hits::new(2);
            let result = panic::catch_unwind(AssertUnwindSafe(|| {
                pool.run(2, &|unit| {
                    hits.hit(unit);
                    if unit == 0 {
                        panic::resume_unwind(Box::new("unit"));
                    }
                });
            }));
            assert_eq!(result.unwrap_err().downcast_ref(), Some(&"unit"));
            assert!(hits.counts().iter().all(|count| *count <= 1));
        });
    }

    #[test]
    fn idle_helpers_wake_and_end() {
        loom::model(|| drop(Pool::new(3)));
    }
}
