//! Memory for plans to work in.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

/// Alignment of a workspace's address, in bytes: a page holds whole vectors and whole cache lines.
const ALIGNMENT: usize = 4096;

/// Size of a huge page, in bytes. Each spares the first execution some five hundred page faults.
const HUGE_PAGE: usize = 2 << 20;

/// Size and alignment of the memory for a workspace of so many bytes: huge pages where they are at least half used, and any
/// rest in small ones.
fn layout(bytes: usize) -> Option<Layout> {
    let rest = bytes % HUGE_PAGE;
    let unit = if cfg!(target_os = "linux") && rest >= HUGE_PAGE / 2 { HUGE_PAGE } else { ALIGNMENT };
    let size = bytes.checked_next_multiple_of(unit)?;
    Layout::from_size_align(size, if size >= HUGE_PAGE { HUGE_PAGE } else { ALIGNMENT }).ok()
}

/// Asks the system for huge pages where they are whole.
fn advise(memory: NonNull<u8>, layout: Layout) {
    let whole = layout.size() / HUGE_PAGE * HUGE_PAGE;
    #[cfg(target_os = "linux")]
    if whole > 0 {
        // SAFETY: the range is within memory that was just allocated, and the advice changes no content; a system that does not
        // take it leaves small pages.
        unsafe { libc::madvise(memory.as_ptr().cast(), whole, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (memory, whole);
}

/// There is no memory for a workspace of so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no memory for a workspace of {0} bytes")]
pub struct NoMemory(pub usize);

/// A buffer that grows to what was asked of it most.
#[derive(Debug, Default)]
pub struct Workspace {
    memory: Option<(NonNull<u8>, Layout)>,
}

// SAFETY: the memory is plain and owned.
unsafe impl Send for Workspace {}

impl Workspace {
    /// At least `bytes` of memory, with any content; null if none is wanted.
    ///
    /// # Errors
    /// If there is not so much memory.
    pub fn get(&mut self, bytes: usize) -> Result<*mut c_void, NoMemory> {
        if bytes == 0 {
            return Ok(null_mut());
        }
        if let Some((memory, layout)) = self.memory
            && layout.size() >= bytes
        {
            return Ok(memory.as_ptr().cast());
        }
        self.release();
        let memory = layout(bytes).and_then(|layout| {
            // SAFETY: the size is not zero.
            NonNull::new(unsafe { alloc(layout) }).map(|memory| {
                advise(memory, layout);
                (memory, layout)
            })
        });
        self.memory = memory;
        match memory {
            Some((memory, _)) => Ok(memory.as_ptr().cast()),
            None => Err(NoMemory(bytes)),
        }
    }

    fn release(&mut self) {
        if let Some((memory, layout)) = self.memory.take() {
            // SAFETY: the memory was allocated with this layout, and nothing uses it: plans do only while they run.
            unsafe { dealloc(memory.as_ptr(), layout) };
        }
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn has_huge_pages_where_they_are_half_used() {
        const HALF: usize = HUGE_PAGE / 2;
        for (bytes, size, alignment) in [
            (1, ALIGNMENT, ALIGNMENT),
            (HALF - ALIGNMENT, HALF - ALIGNMENT, ALIGNMENT),
            (HALF, HUGE_PAGE, HUGE_PAGE),
            (HUGE_PAGE, HUGE_PAGE, HUGE_PAGE),
            (HUGE_PAGE + 1, HUGE_PAGE + ALIGNMENT, HUGE_PAGE),
            (3 * HALF, 2 * HUGE_PAGE, HUGE_PAGE),
        ] {
            let got = layout(bytes).expect("so many bytes have a layout");
            assert_eq!((got.size(), got.align()), (size, alignment), "{bytes} bytes");
        }
        let mut workspace = Workspace::default();
        let memory = workspace.get(3 * HALF).unwrap();
        assert_eq!(memory.addr() % HUGE_PAGE, 0);
        // SAFETY: there are at least so many bytes.
        unsafe { memory.cast::<u8>().add(3 * HALF - 1).write(7) };
    }

    #[test]
    fn grows_and_stays() {
        let mut workspace = Workspace::default();
        assert!(workspace.get(0).unwrap().is_null());
        let first = workspace.get(100).unwrap();
        assert_eq!(first.addr() % ALIGNMENT, 0);
        assert_eq!(workspace.get(4096).unwrap(), first);
        let second = workspace.get(5000).unwrap();
        // SAFETY: there are at least 5000 bytes.
        unsafe { second.cast::<u8>().add(4999).write(7) };
        assert_eq!(workspace.get(1).unwrap(), second);
        let error = workspace.get(usize::MAX).unwrap_err();
        assert_eq!(error.to_string(), format!("there is no memory for a workspace of {} bytes", usize::MAX));
        assert!(workspace.memory.is_none());
    }
}
