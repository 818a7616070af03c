//! Last error of a thread.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char};

/// Text of at most `SIZE - 1` bytes and its NUL, for a thread-local: it has no destructor, so that the library may be
/// unloaded before the thread ends.
#[derive(Debug)]
pub struct LastError<const SIZE: usize> {
    /// Bytes of the text, always with a NUL.
    text: UnsafeCell<[u8; SIZE]>,
}

impl<const SIZE: usize> LastError<SIZE> {
    /// Empty text.
    pub const fn new() -> LastError<SIZE> {
        assert!(SIZE > 0, "there is room for a NUL");
        LastError { text: UnsafeCell::new([0; SIZE]) }
    }

    /// Stores a message, cut at a character boundary to fit. A NUL within would end it early and is left out.
    pub fn set(&self, message: &str) {
        let mut end = message.len().min(SIZE - 1);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        // SAFETY: the cell is not `Sync`, so no other thread has it, and no method gives out a reference to the text.
        let text = unsafe { &mut *self.text.get() };
        let mut len = 0;
        for byte in message[..end].bytes().filter(|byte| *byte != 0) {
            text[len] = byte;
            len += 1;
        }
        text[len] = 0;
    }

    /// Pointer to the text, valid until the next [`LastError::set`].
    pub fn as_ptr(&self) -> *const c_char {
        self.text.get().cast_const().cast()
    }

    /// Copies the text and a NUL, cut to fit.
    ///
    /// # Panics
    /// If there is no room for the NUL.
    pub fn copy(&self, out: &mut [u8]) {
        // SAFETY: the text has a NUL, and nothing changes it meanwhile: the cell is not `Sync`.
        let text = unsafe { CStr::from_ptr(self.as_ptr()) }.to_bytes();
        let len = text.len().min(out.len() - 1);
        out[..len].copy_from_slice(&text[..len]);
        out[len] = 0;
    }
}

impl<const SIZE: usize> Default for LastError<SIZE> {
    fn default() -> LastError<SIZE> {
        LastError::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied<const SIZE: usize>(last: &LastError<SIZE>, room: usize) -> String {
        let mut out = vec![b'x'; room];
        last.copy(&mut out);
        CStr::from_bytes_until_nul(&out).expect("a NUL").to_str().expect("cut between characters").to_owned()
    }

    #[test]
    fn messages_are_cut_between_characters() {
        let last = LastError::<2048>::new();
        assert_eq!(copied(&last, 10), "");
        let long = "é".repeat(2000);
        for (message, want) in [
            ("plain", "plain".to_string()),
            ("a\0b", "ab".to_string()),
            ("", String::new()),
            (&"x".repeat(2047), "x".repeat(2047)),
            (&"x".repeat(2048), "x".repeat(2047)),
            // 2047 bytes would cut the 1024th character in two.
            (&long, "é".repeat(1023)),
        ] {
            last.set(message);
            assert_eq!(copied(&last, 5000), want);
        }
    }

    #[test]
    fn copies_are_cut_to_the_room_there_is() {
        let last = LastError::<16>::new();
        last.set("abc");
        for (room, want) in [(10, "abc"), (4, "abc"), (3, "ab"), (1, "")] {
            assert_eq!(copied(&last, room), want, "{room}");
        }
    }
}
