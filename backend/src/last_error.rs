//! The text of each thread's last failure.

use std::cell::RefCell;

use hipdnn_sdk_bindings::hipdnn::backend::ERROR_STRING_MAX_LENGTH;

struct Text {
    bytes: [u8; ERROR_STRING_MAX_LENGTH - 1],
    length: usize,
}

thread_local! {
    // A fixed array has no destructor: threads may outlive this library, which can be unloaded.
    static LAST: RefCell<Text> = const { RefCell::new(Text { bytes: [0; ERROR_STRING_MAX_LENGTH - 1], length: 0 }) };
}

/// Keeps `message`, cut at the limit, as this thread's last failure.
pub(crate) fn set(message: &str) {
    LAST.with_borrow_mut(|text| {
        // A NUL inside would end the text for a C reader anyway.
        let message = message.split('\0').next().unwrap_or_default();
        let mut length = message.len().min(text.bytes.len());
        while !message.is_char_boundary(length) {
            length -= 1;
        }
        text.bytes[..length].copy_from_slice(&message.as_bytes()[..length]);
        text.length = length;
    });
}

/// Copies this thread's last failure and a NUL into `out`, cut to fit. `out` is not empty.
pub(crate) fn copy(out: &mut [u8]) {
    LAST.with_borrow(|text| {
        let length = text.length.min(out.len() - 1);
        out[..length].copy_from_slice(&text.bytes[..length]);
        out[length] = 0;
    });
}

/// Forgets this thread's last failure.
pub(crate) fn clear() {
    LAST.with_borrow_mut(|text| text.length = 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(size: usize) -> String {
        let mut out = vec![b'x'; size];
        copy(&mut out);
        let end = out.iter().position(|b| *b == 0).expect("a NUL");
        String::from_utf8(out[..end].to_vec()).unwrap()
    }

    #[test]
    fn texts_are_cut_and_cleared() {
        for (message, size, want) in
            [("abc", 10, "abc"), ("abc", 4, "abc"), ("abc", 3, "ab"), ("abc", 1, ""), ("a\0c", 10, "a"), ("", 10, "")]
        {
            set(message);
            assert_eq!(text(size), want, "{message:?} into {size}");
        }
        set(&"é".repeat(2000));
        assert_eq!(text(5000).len(), 2046);
        clear();
        assert_eq!(text(10), "");
    }

    #[test]
    fn threads_do_not_share() {
        set("mine");
        std::thread::spawn(|| assert_eq!(text(10), "")).join().unwrap();
        assert_eq!(text(10), "mine");
    }
}
