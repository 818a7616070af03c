//! Threads without `std::thread`.
//!
//! Starting a thread with `std::thread` registers a destructor in the thread that starts it (for its spawn hooks), and
//! the C library keeps a library loaded as long as any thread has a destructor of its code to run. A host's thread that
//! made a plan would pin the plugin for the rest of that thread's life. POSIX threads register nothing.

use std::ffi::{CStr, c_void};
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::ptr;

type Body = Box<dyn FnOnce() + Send>;

/// A running thread. It must be joined: dropping it leaves the thread running.
#[must_use]
pub(super) struct OsThread(libc::pthread_t);

// SAFETY: a thread may be joined from any other.
unsafe impl Send for OsThread {}
// SAFETY: joining takes the value; nothing is done through a reference.
unsafe impl Sync for OsThread {}

impl OsThread {
    /// Starts a thread; a debugger shows its first 15 bytes of `name`.
    ///
    /// # Errors
    /// If the system refuses.
    pub(super) fn start(name: &CStr, body: impl FnOnce() + Send + 'static) -> io::Result<OsThread> {
        let body: Box<Body> = Box::new(Box::new(body));
        let argument = Box::into_raw(body);
        let mut thread = 0;
        // SAFETY: `thread` is valid for the call, null asks for the defaults, and `run` takes what `argument` is.
        let error = unsafe { libc::pthread_create(&mut thread, ptr::null(), run, argument.cast()) };
        if error != 0 {
            // SAFETY: no thread was made, so the box is still ours.
            drop(unsafe { Box::from_raw(argument) });
            return Err(io::Error::from_raw_os_error(error));
        }
        let mut short = [0u8; 16];
        let bytes = name.to_bytes();
        let length = bytes.len().min(short.len() - 1);
        short[..length].copy_from_slice(&bytes[..length]);
        // SAFETY: the thread is not joined yet, so it is known, and the name ends in a NUL within 16 bytes. Failing is
        // of no consequence.
        #[cfg(target_os = "linux")]
        unsafe {
            libc::pthread_setname_np(thread, short.as_ptr().cast());
        }
        Ok(OsThread(thread))
    }

    /// Joins the thread: true if it ended without a panic.
    pub(super) fn join(self) -> bool {
        let mut result = ptr::null_mut();
        // SAFETY: the thread is ours, and only joined here, where the value goes.
        let error = unsafe { libc::pthread_join(self.0, &mut result) };
        error == 0 && result.is_null()
    }
}

/// Entry point of the thread: null at a good end, not null after a panic.
extern "C" fn run(argument: *mut c_void) -> *mut c_void {
    // SAFETY: `start` made the box and gave it to this thread alone.
    let body = unsafe { Box::from_raw(argument.cast::<Body>()) };
    match panic::catch_unwind(AssertUnwindSafe(body)) {
        Ok(()) => ptr::null_mut(),
        Err(payload) => {
            // A payload may panic when it is dropped; it is lost then.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| drop(payload)));
            ptr::without_provenance_mut(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn threads_run_and_say_how_they_ended() {
        static RAN: AtomicUsize = AtomicUsize::new(0);
        let good = OsThread::start(c"a name longer than the system takes", || {
            RAN.fetch_add(1, Ordering::SeqCst);
        });
        assert!(good.unwrap().join());
        let bad = OsThread::start(c"bad", || {
            RAN.fetch_add(1, Ordering::SeqCst);
            panic::resume_unwind(Box::new("ended on purpose"));
        });
        assert!(!bad.unwrap().join());
        assert_eq!(RAN.load(Ordering::SeqCst), 2);
    }
}
