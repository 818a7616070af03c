//! Panics out.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of an exported function.
///
/// Changes that it makes before a panic are seen by later calls: locks have to be taken over poisoned, and objects
/// stored when they are complete.
///
/// # Errors
/// With the panic's message, if it panics.
pub fn caught<R>(body: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|payload| {
        let message = message(&*payload).to_owned();
        // A payload's destructor could panic again.
        std::mem::forget(payload);
        message
    })
}

fn message(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "a panic without a message"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a payload that panics when dropped");
        }
    }

    #[test]
    fn panics_are_their_messages() {
        type Body = fn() -> i32;
        let cases: [(Body, Result<i32, &str>); 4] = [
            (|| 7, Ok(7)),
            (|| panic!("split {}", 7), Err("split 7")),
            (|| panic!("plain"), Err("plain")),
            (|| std::panic::resume_unwind(Box::new(Bomb)), Err("a panic without a message")),
        ];
        for (body, want) in cases {
            assert_eq!(caught(body), want.map_err(str::to_owned));
        }
    }
}
