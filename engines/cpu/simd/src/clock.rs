//! Clocks of benchmarks.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Clock for kernels that run on so many threads, the caller's among them. With one thread the caller does all the work: its own
/// time leaves out what else the machine does.
pub fn of_threads(threads: usize) -> fn() -> Duration {
    if threads == 1 { computing } else { passing }
}

/// CPU time of the calling thread.
fn computing() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on Linux, and writes one time.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(status, 0, "expected the thread's clock, got an error");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Wall time since the benchmark began.
fn passing() -> Duration {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    BEGIN.get_or_init(Instant::now).elapsed()
}
