//! Resources that clients lend to the calling thread: a parallel-for, on which executions work and on nothing else;
//! contents of constants, for plan builds.
//!
//! An execution of several steps calls the lender once for most of its loops, for a crew ([`crew`]): the first body to begin leads
//! the execution, the others help with its loops until it ends. A loop costs a crew a fraction of a call of the lender, and a worker is the
//! same thread in all loops, whose caches have what it computed before.
//!
//! No body waits for one that has not begun, and a thread that holds a lock calls no lender: a lender may run all bodies one
//! after the other, and one that waits may run other work of its client on the waiting thread.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::panic::{self, AssertUnwindSafe};

use hipdnn_sdk_bindings::hipdnn::extension::{Body, Constants, ParallelFor, RunItems};

use super::pool::{Pool, Shared, Units};
use super::sync::{AtomicUsize, Mutex, Ordering, thread_local};

thread_local! {
    // Without a destructor: the library may be unloaded before the thread ends.
    static LENT: Cell<ParallelFor> = const { Cell::new(ParallelFor::NONE) };
    static CONSTANTS: Cell<Constants> = const { Cell::new(Constants::NONE) };
    // Jobs of the crew that the thread leads, null if it leads none.
    static CREW: Cell<*const Shared> = const { Cell::new(std::ptr::null()) };
    // Number of loops that lenders were called for.
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

/// Lends the contents of these constants to the calling thread's plan builds, and returns those lent before.
///
/// # Safety
/// If there are any, they, their tokens and their bytes stay as they are until others are lent. Tokens and bytes are null
/// or valid.
pub unsafe fn replace_constants(lent: Constants) -> Constants {
    CONSTANTS.with(|slot| slot.replace(lent))
}

/// Calls `f` with the contents lent to the calling thread for a token, if there are any.
pub fn with_contents(token: &str, f: impl FnOnce(&[u8])) {
    let Constants { constants, count } = CONSTANTS.with(Cell::get);
    if count == 0 {
        return;
    }
    // SAFETY: by `replace_constants` so many are there as long as they are lent, and nobody can end that here.
    let constants = unsafe { std::slice::from_raw_parts(constants, count) };
    let is_it = |constant: &&hipdnn_sdk_bindings::hipdnn::extension::Constant| {
        // SAFETY: by `replace_constants` a token that is not null ends in NUL, and stays as long as it is lent.
        !constant.token.is_null() && unsafe { CStr::from_ptr(constant.token) }.to_bytes() == token.as_bytes()
    };
    if let Some(constant) = constants.iter().find(is_it)
        && !constant.data.is_null()
        && constant.size <= isize::MAX as usize
    {
        // SAFETY: by `replace_constants` the bytes stay as they are as long as they are lent.
        f(unsafe { std::slice::from_raw_parts(constant.data.cast(), constant.size) });
    }
}

/// Lends a parallel-for to the calling thread's executions, and returns the one lent before.
pub fn replace(lent: ParallelFor) -> ParallelFor {
    LENT.with(|slot| slot.replace(lent))
}

/// Scope in which the calling thread is lent something else; the previous loan comes back at its end.
struct Stretch(ParallelFor);

impl Stretch {
    fn begin(lent: ParallelFor) -> Stretch {
        Stretch(replace(lent))
    }
}

impl Drop for Stretch {
    fn drop(&mut self) {
        replace(self.0);
    }
}

/// Runs all items in their order on the calling thread.
unsafe extern "C" fn run_in_order(_context: *mut c_void, items: usize, body: Body, data: *mut c_void) -> c_int {
    for item in 0..items {
        // SAFETY: the body and its data are what the caller of this lender passes together.
        unsafe { body(data, item) };
    }
    0
}

const IN_ORDER: ParallelFor = ParallelFor { run: Some(run_in_order), context: std::ptr::null_mut() };

/// Result of `f`, during which a parallel-for lent to the calling thread is not called: `f` may hold a lock. A crew that the thread
/// leads works on loops of `f` all the same: its helpers run nothing but units, which wait for no lock of `f`'s.
pub fn aside<R>(f: impl FnOnce() -> R) -> R {
    let _stretch = LENT.with(Cell::get).run.map(|_| Stretch::begin(IN_ORDER));
    f()
}

/// Loop over units in a lender's hands.
struct Loop<'a> {
    units: Units,
    /// Number of workers that have begun.
    begun: AtomicUsize,
    workers: usize,
    f: &'a (dyn Fn(usize, usize) + Sync),
}

/// Body of the lent loop: works as one worker. Workers are counted here, so that a lender that calls for an item twice
/// does no harm; what they begin with is the item's, which a lender tends to run on the same thread.
unsafe extern "C" fn work(data: *mut c_void, item: usize) {
    // SAFETY: `run_on` passes a loop, which lives until the lender has returned.
    let shared = unsafe { &*data.cast::<Loop<'_>>() };
    let worker = shared.begun.fetch_add(1, Ordering::Relaxed);
    if worker < shared.workers {
        // What runs within a unit is that unit's thread's alone.
        let _stretch = Stretch::begin(IN_ORDER);
        shared.units.work(shared.f, worker, item);
    }
}

/// Runs `f(worker, unit)` for each unit below `units` on the crew that the calling thread leads, else on the lent
/// parallel-for, as [`Pool::run_indexed`] does; units that the lender leaves out run on the calling thread. `false` if there
/// is no crew and none is lent.
pub(super) fn run(units: usize, workers: usize, f: &(dyn Fn(usize, usize) + Sync)) -> bool {
    let crew = CREW.with(Cell::get);
    if !crew.is_null() {
        // SAFETY: `Leader` has it there as long as this thread leads the crew, whose jobs outlive that.
        unsafe { &*crew }.run(units, workers, f);
        return true;
    }
    let ParallelFor { run: Some(run), context } = LENT.with(Cell::get) else { return false };
    if !std::ptr::fn_addr_eq(run, run_in_order as RunItems) {
        CALLS.with(|calls| calls.set(calls.get().wrapping_add(1)));
    }
    run_on(run, context, units, workers, f);
    true
}

/// Number of single loops that the calling thread has called lenders for, which wraps.
pub fn calls() -> usize {
    CALLS.with(Cell::get)
}

/// Calls a lender.
///
/// # Safety
/// The function and its context are those lent to the calling thread, for which the lender answers until something else is lent.
/// `data` is what `body` takes, and outlives the call.
unsafe fn call(run: RunItems, context: *mut c_void, items: usize, body: Body, data: *mut c_void) {
    // A lender that waits may run other work of its client on this thread, which this thread has lent nothing.
    let stretch = Stretch::begin(ParallelFor::NONE);
    // SAFETY: the caller's promise.
    let answer = unsafe { run(context, items, body, data) };
    drop(stretch);
    if answer != 0 {
        log::warn!(
            "CPU engine: the lent parallel-for answered {answer}; what it left out runs on the execution's other threads"
        );
    }
}

/// Number of workers of a crew, at most.
const MOST_WORKERS: usize = 1024;

/// Execution in a lender's hands.
struct Crew<F, R> {
    jobs: Shared,
    roll: Mutex<Roll<F>>,
    result: Mutex<Option<std::thread::Result<R>>>,
}

/// Roll of a crew: the bodies that have begun, and the execution, which the first of them leads.
struct Roll<F> {
    /// The execution, until a body leads it.
    execution: Option<F>,
    /// Number of bodies that have begun.
    bodies: usize,
    /// A bit for each item that has begun, so that a lender that calls for one twice does no harm.
    begun: [u64; MOST_WORKERS / 64],
}

/// Scope in which the calling thread leads a crew; at its end the helpers return.
struct Leader<'a>(&'a Shared, *const Shared);

impl<'a> Leader<'a> {
    fn of(jobs: &'a Shared) -> Leader<'a> {
        Leader(jobs, CREW.with(|crew| crew.replace(jobs)))
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        CREW.with(|crew| crew.set(self.1));
        self.0.quit();
    }
}

/// Result of `execution`, whose loops run on a crew of up to the pool's width of the lent parallel-for's threads, on any of
/// which `execution` itself may run. Where nothing is lent its loops are the pool's.
pub fn crew<R: Send, F: FnOnce() -> R + Send>(pool: &Pool, execution: F) -> R {
    let ParallelFor { run: Some(run), context } = LENT.with(Cell::get) else { return execution() };
    let workers = pool.width().min(MOST_WORKERS);
    let roll = Roll { execution: Some(execution), bodies: 0, begun: [0; MOST_WORKERS / 64] };
    let crew = Crew { jobs: Shared::new(), roll: Mutex::new(roll), result: Mutex::new(None) };
    // SAFETY: function and context are those lent to this thread; the crew outlives the call, and `join::<R, F>` takes no other
    // data.
    unsafe { call(run, context, workers, join::<R, F>, (&raw const crew).cast_mut().cast()) };
    // The lender has returned, so no body is at work.
    let result = crew.result.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
    match result {
        Some(Ok(result)) => result,
        Some(Err(payload)) => panic::resume_unwind(payload),
        None => {
            let _stretch = Stretch::begin(IN_ORDER);
            let mut roll = crew.roll.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let execution = roll.execution.take().expect("without a result no body has led");
            drop(roll);
            execution()
        }
    }
}

/// Body of a crew: leads the execution, or helps until it ends.
unsafe extern "C" fn join<R: Send, F: FnOnce() -> R + Send>(data: *mut c_void, item: usize) {
    // SAFETY: `crew` passes a crew of this execution, which lives until the lender has returned.
    let crew = unsafe { &*data.cast::<Crew<F, R>>() };
    let mut roll = crew.roll.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let Some(begun) = roll.begun.get_mut(item / 64) else { return };
    let bit = 1 << (item % 64);
    if std::mem::replace(begun, *begun | bit) & bit != 0 {
        return;
    }
    // Workers are counted as they come: a loop of few units takes the first of them. What one begins with is its item's, which a
    // lender tends to run on the same thread in every execution.
    let worker = roll.bodies;
    roll.bodies += 1;
    let execution = roll.execution.take();
    drop(roll);
    // What runs within a unit is that unit's thread's alone.
    let _stretch = Stretch::begin(IN_ORDER);
    if let Some(execution) = execution {
        let leader = Leader::of(&crew.jobs);
        let result = panic::catch_unwind(AssertUnwindSafe(execution));
        drop(leader);
        *crew.result.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(result);
    } else {
        crew.jobs.help(worker, item);
    }
}

fn run_on(run: RunItems, context: *mut c_void, units: usize, workers: usize, f: &(dyn Fn(usize, usize) + Sync)) {
    let shared = Loop { units: Units::new(units, workers), begun: AtomicUsize::new(0), workers, f };
    // SAFETY: `run` passes what is lent to this thread; the loop outlives the call, and `work` takes no other data.
    unsafe { call(run, context, workers, work, (&raw const shared).cast_mut().cast()) };
    // The lender has returned, so no worker is at work.
    let _stretch = Stretch::begin(IN_ORDER);
    shared.units.work(f, 0, 0);
    shared.units.end();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::super::pool::Pool;

    /// Behavior of a test's lender.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Manner {
        InOrder,
        Backwards,
        /// Runs on this many threads, whatever the number of items.
        Threads(usize),
        /// Leaves all out.
        Refuses,
        /// Leaves out all but the first, and says so.
        StopsEarly,
        /// Leaves out all but the first, and says nothing.
        Forgets,
        /// Calls for each item twice, and for some that there are not.
        Repeats,
    }

    const MANNERS: [Manner; 9] = [
        Manner::InOrder,
        Manner::Backwards,
        Manner::Threads(1),
        Manner::Threads(2),
        Manner::Threads(7),
        Manner::Refuses,
        Manner::StopsEarly,
        Manner::Forgets,
        Manner::Repeats,
    ];

    struct Lender {
        manner: Manner,
        calls: AtomicUsize,
    }

    impl Lender {
        fn new(manner: Manner) -> Lender {
            Lender { manner, calls: AtomicUsize::new(0) }
        }

        fn lent(&self) -> ParallelFor {
            ParallelFor { run: Some(run_items), context: (&raw const *self).cast_mut().cast() }
        }
    }

    struct Data(*mut c_void);
    // SAFETY: the data of a loop may be used from any thread.
    unsafe impl Sync for Data {}
    impl Data {
        fn get(&self) -> *mut c_void {
            self.0
        }
    }

    unsafe extern "C" fn run_items(context: *mut c_void, items: usize, body: Body, data: *mut c_void) -> c_int {
        // SAFETY: `lent` made the context of a lender that outlives its being lent.
        let lender = unsafe { &*context.cast::<Lender>() };
        lender.calls.fetch_add(1, Ordering::Relaxed);
        let data = Data(data);
        // SAFETY: body and data come together.
        let run = |item: usize| unsafe { body(data.get(), item) };
        match lender.manner {
            Manner::InOrder => (0..items).for_each(run),
            Manner::Backwards => (0..items).rev().for_each(run),
            Manner::Threads(threads) => {
                let next = AtomicUsize::new(0);
                thread::scope(|scope| {
                    for _ in 0..threads {
                        scope.spawn(|| {
                            loop {
                                let item = next.fetch_add(1, Ordering::Relaxed);
                                if item >= items {
                                    break;
                                }
                                run(item);
                            }
                        });
                    }
                });
            }
            Manner::Refuses => return 7,
            Manner::StopsEarly => {
                run(0);
                return -1;
            }
            Manner::Forgets => run(0),
            Manner::Repeats => (0..2 * items + 3).for_each(|item| run(item / 2)),
        }
        0
    }

    fn hits(units: usize) -> Vec<AtomicUsize> {
        (0..units).map(|_| AtomicUsize::new(0)).collect()
    }

    fn each_once(hits: &[AtomicUsize]) -> bool {
        hits.iter().all(|hit| hit.load(Ordering::Relaxed) == 1)
    }

    #[test]
    fn every_unit_runs_once_whatever_the_lender_does() {
        for manner in MANNERS {
            let lender = Lender::new(manner);
            for width in [1, 2, 5] {
                let pool = Pool::new(width);
                for units in [0, 1, 2, 7, 500] {
                    let (hits, held) = (hits(units), hits(width));
                    let calls = lender.calls.load(Ordering::Relaxed);
                    let before = replace(lender.lent());
                    pool.run_indexed(units, usize::MAX, &|worker, unit| {
                        assert_eq!(held[worker].fetch_add(1, Ordering::SeqCst), 0, "{manner:?}: worker {worker}");
                        hits[unit].fetch_add(1, Ordering::Relaxed);
                        held[worker].fetch_sub(1, Ordering::SeqCst);
                    });
                    replace(before);
                    assert!(each_once(&hits), "{manner:?}, {width} wide, {units} units");
                    let calls = lender.calls.load(Ordering::Relaxed) - calls;
                    assert_eq!(calls, usize::from(width.min(units) > 1), "{manner:?}, {width} wide, {units} units");
                }
            }
        }
    }

    #[test]
    fn a_panic_in_a_unit_reaches_the_caller_and_the_lender_does_not_see_it() {
        let pool = Pool::new(3);
        for manner in MANNERS {
            let lender = Lender::new(manner);
            let before = replace(lender.lent());
            let result = panic::catch_unwind(AssertUnwindSafe(|| {
                pool.run(64, &|unit| {
                    if unit == 5 {
                        panic::resume_unwind(Box::new("unit"));
                    }
                });
            }));
            assert_eq!(result.unwrap_err().downcast_ref(), Some(&"unit"), "{manner:?}");
            // What is lent is as it was, and of use.
            let hits = hits(64);
            pool.run(64, &|unit| {
                hits[unit].fetch_add(1, Ordering::Relaxed);
            });
            assert!(each_once(&hits), "{manner:?}");
            assert_eq!(lender.calls.load(Ordering::Relaxed), 2, "{manner:?}");
            replace(before);
        }
    }

    #[test]
    fn a_crew_runs_every_unit_of_its_loops_once_whatever_the_lender_does() {
        for manner in MANNERS {
            let lender = Lender::new(manner);
            for width in [1, 2, 5, 70] {
                let pool = Pool::without_threads(width);
                let calls = lender.calls.load(Ordering::Relaxed);
                let before = replace(lender.lent());
                let sum = crew(&pool, || {
                    let mut sum = 0;
                    for units in [1, 2, 7, 500] {
                        let (hits, held) = (hits(units), hits(width));
                        pool.run_indexed(units, usize::MAX, &|worker, unit| {
                            assert_eq!(held[worker].fetch_add(1, Ordering::SeqCst), 0, "{manner:?}: worker {worker}");
                            // Loops of a unit are its thread's alone.
                            pool.run(2, &|_| {
                                hits[unit].fetch_add(1, Ordering::Relaxed);
                            });
                            held[worker].fetch_sub(1, Ordering::SeqCst);
                        });
                        assert!(hits.iter().all(|hit| hit.load(Ordering::Relaxed) == 2), "{manner:?}, {units} units");
                        sum += units;
                    }
                    sum
                });
                replace(before);
                assert_eq!((sum, lender.calls.load(Ordering::Relaxed) - calls), (510, 1), "{manner:?}, {width} wide");
                assert!(CREW.get().is_null(), "{manner:?}");
            }
        }
    }

    #[test]
    fn workers_of_a_crew_are_the_same_threads_in_every_loop() {
        let (pool, lender) = (Pool::without_threads(3), Lender::new(Manner::Threads(3)));
        let before = replace(lender.lent());
        let threads = std::sync::Mutex::new(std::collections::HashMap::new());
        crew(&pool, || {
            // Helpers come when they come.
            for round in 0.. {
                pool.run_indexed(30, usize::MAX, &|worker, _| {
                    let this = thread::current().id();
                    assert_eq!(*threads.lock().unwrap().entry(worker).or_insert(this), this, "worker {worker}");
                    thread::yield_now();
                });
                if round >= 50 && threads.lock().unwrap().len() == 3 {
                    break;
                }
            }
        });
        replace(before);
    }

    #[test]
    fn a_panic_of_a_crew_reaches_the_caller() {
        for manner in MANNERS {
            let (pool, lender) = (Pool::without_threads(3), Lender::new(manner));
            let before = replace(lender.lent());
            for in_a_unit in [true, false] {
                let result = panic::catch_unwind(AssertUnwindSafe(|| {
                    crew(&pool, || {
                        pool.run(64, &|unit| {
                            if in_a_unit && unit == 5 {
                                panic::resume_unwind(Box::new("unit"));
                            }
                        });
                        panic::resume_unwind(Box::new("execution"));
                    })
                }));
                let Err(payload) = result;
                let want = if in_a_unit { "unit" } else { "execution" };
                assert_eq!(payload.downcast_ref(), Some(&want), "{manner:?}");
            }
            assert_eq!(crew(&pool, || 7), 7, "{manner:?}");
            replace(before);
            assert!(CREW.get().is_null(), "{manner:?}");
        }
    }

    #[test]
    fn a_lender_is_its_threads_and_nested_runs_are_not_lent() {
        let (pool, outer, inner) = (Pool::new(3), Lender::new(Manner::Threads(3)), Lender::new(Manner::InOrder));
        let (total, unlent) = (AtomicUsize::new(0), AtomicBool::new(true));
        let before = replace(outer.lent());
        pool.run(4, &|_| {
            // Within a unit of this engine.
            pool.run(3, &|_| {
                total.fetch_add(1, Ordering::Relaxed);
            });
            // Another execution that the lender's thread runs meanwhile, with something else lent.
            let around = replace(inner.lent());
            pool.run(3, &|_| {
                total.fetch_add(1, Ordering::Relaxed);
            });
            replace(around);
        });
        thread::scope(|scope| {
            scope.spawn(|| unlent.store(LENT.get().run.is_none(), Ordering::Relaxed));
        });
        assert_eq!(replace(before).context, outer.lent().context, "what was lent is lent until it is taken back");
        assert!(unlent.load(Ordering::Relaxed), "another thread lent nothing");
        assert_eq!(total.load(Ordering::Relaxed), 24);
        assert_eq!((outer.calls.load(Ordering::Relaxed), inner.calls.load(Ordering::Relaxed)), (1, 4));
    }

    #[test]
    fn lenders_of_threads_at_once_do_not_meet() {
        let pool = Pool::new(2);
        let lenders: Vec<_> = (0..4).map(|i| Lender::new(MANNERS[i])).collect();
        thread::scope(|scope| {
            for lender in &lenders {
                scope.spawn(|| {
                    let before = replace(lender.lent());
                    for _ in 0..100 {
                        let hits = hits(9);
                        pool.run(9, &|unit| {
                            hits[unit].fetch_add(1, Ordering::Relaxed);
                        });
                        assert!(each_once(&hits), "{:?}", lender.manner);
                    }
                    replace(before);
                });
            }
        });
        for lender in &lenders {
            assert_eq!(lender.calls.load(Ordering::Relaxed), 100, "{:?}", lender.manner);
        }
    }

    #[test]
    fn a_lender_is_not_called_under_a_lock() {
        let (pool, lender) = (Pool::new(2), Lender::new(Manner::Backwards));
        let before = replace(lender.lent());
        let order = std::sync::Mutex::new(Vec::new());
        aside(|| pool.run(5, &|unit| order.lock().unwrap().push(unit)));
        assert_eq!(order.into_inner().unwrap(), [0, 1, 2, 3, 4]);
        assert_eq!(lender.calls.load(Ordering::Relaxed), 0);
        pool.run(5, &|_| {});
        assert_eq!(lender.calls.load(Ordering::Relaxed), 1);
        replace(before);
        aside(|| assert!(LENT.get().run.is_none(), "where nothing is lent, the pool stays"));
    }
}

#[cfg(all(loom, test))]
mod interleavings {
    use super::*;
    use loom::thread;

    use super::super::pool::Pool;
    use super::super::pool::interleavings::{Hits, run_two_units};

    /// Body and data of a loop, for another thread.
    #[derive(Clone, Copy)]
    struct Item(Body, *mut c_void);

    // SAFETY: the data of a loop may be used from any thread.
    unsafe impl Send for Item {}

    impl Item {
        fn run(self, item: usize) {
            // SAFETY: body and data came together, and the lender that has them has not returned.
            unsafe { self.0(self.1, item) };
        }
    }

    /// Runs the second item on two other threads at once, beside the first.
    unsafe extern "C" fn run_items(_context: *mut c_void, items: usize, body: Body, data: *mut c_void) -> c_int {
        assert_eq!(items, 2);
        let item = Item(body, data);
        let others = [(); 2].map(|()| thread::spawn(move || item.run(1)));
        item.run(0);
        others.into_iter().for_each(|other| other.join().unwrap());
        0
    }

    #[test]
    fn every_unit_runs_once_whatever_the_lender_does() {
        loom::model(|| {
            let before = replace(ParallelFor { run: Some(run_items), context: std::ptr::null_mut() });
            let (hits, workers) = (Hits::new(3), Hits::new(2));
            Pool::without_threads(2).run_indexed(3, 2, &|worker, unit| {
                // The model reports a worker that two threads are.
                workers.hit(worker);
                hits.hit(unit);
            });
            replace(before);
            assert_eq!(hits.counts(), [1, 1, 1]);
            assert_eq!(workers.counts().iter().sum::<usize>(), 3);
        });
    }

    #[test]
    fn a_crew_runs_every_unit_of_its_loops_once() {
        loom::model(|| {
            let before = replace(ParallelFor { run: Some(run_items), context: std::ptr::null_mut() });
            let pool = Pool::without_threads(2);
            let done = crew(&pool, || {
                (0..2).for_each(|_| run_two_units(&pool));
                true
            });
            replace(before);
            assert!(done);
        });
    }
}
