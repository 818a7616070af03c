//! Threads without `std::thread`.
//!
//! Starting a thread with `std::thread` registers a destructor in the thread that starts it (for its spawn hooks), and
//! the C library keeps a library loaded as long as any thread has a destructor of its code to run. A host's thread that
//! made a plan would pin the plugin for the rest of that thread's life. POSIX threads register nothing.

use std::ffi::{CStr, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::panic::{self, AssertUnwindSafe};
use std::ptr;

type Body = Box<dyn FnOnce() + Send>;

/// Bytes of a thread's stack, as many as `std::thread` gives: the C library's own default follows the process's limit
/// (8 MiB on most Linux systems, of which a pool for many threads reserves gigabytes) or is 128 KiB (musl).
const STACK_BYTES: usize = 2 << 20;

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
        let create = |thread: &mut libc::pthread_t| {
            let attributes = Attributes::new()?;
            // SAFETY: `thread` is valid for the call, the attributes are initialized, and `run` takes what `argument` is.
            check(unsafe { libc::pthread_create(thread, &attributes.0, run, argument.cast()) })
        };
        let mut thread = 0;
        if let Err(error) = create(&mut thread) {
            // SAFETY: no thread was made, so the box is still ours.
            drop(unsafe { Box::from_raw(argument) });
            return Err(error);
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

/// Initialized attributes of a thread with [`STACK_BYTES`] of stack.
struct Attributes(libc::pthread_attr_t);

impl Attributes {
    fn new() -> io::Result<Attributes> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the memory is valid for the call, which initializes it.
        check(unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) })?;
        // SAFETY: the call before succeeded, so the attributes are initialized.
        let mut attributes = Attributes(unsafe { attributes.assume_init() });
        // SAFETY: the attributes are initialized.
        check(unsafe { libc::pthread_attr_setstacksize(&mut attributes.0, STACK_BYTES) })?;
        Ok(attributes)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: `new` initialized them, and nobody uses them after this.
        unsafe { libc::pthread_attr_destroy(&mut self.0) };
    }
}

/// The error that a function of POSIX threads returned, if it isn't 0.
fn check(error: libc::c_int) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
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
