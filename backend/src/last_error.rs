//! The text of each thread's last failure.

use hipdnn_capi::text::LastError;
use hipdnn_sdk_bindings::hipdnn::backend::ERROR_STRING_MAX_LENGTH;

thread_local! {
    static LAST: LastError<ERROR_STRING_MAX_LENGTH> = const { LastError::new() };
}

/// Keeps `message`, cut at the limit, as this thread's last failure.
pub(crate) fn set(message: &str) {
    LAST.with(|last| last.set(message));
}

/// Copies this thread's last failure and a NUL into `out`, cut to fit. `out` is not empty.
pub(crate) fn copy(out: &mut [u8]) {
    LAST.with(|last| last.copy(out));
}

/// Forgets this thread's last failure.
pub(crate) fn clear() {
    set("");
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
            [("abc", 10, "abc"), ("abc", 4, "abc"), ("abc", 3, "ab"), ("abc", 1, ""), ("a\0c", 10, "ac"), ("", 10, "")]
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
