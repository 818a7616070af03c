//! Bytes for FlatBuffer readers that dereference scalars in place.

use hipdnn_sdk_bindings::hipdnn::backend::FlatbufferData;

/// An immutable copy of bytes whose first byte is aligned to 16.
#[derive(Clone)]
pub(crate) struct Buffer {
    words: Box<[u128]>,
    length: usize,
}

impl Buffer {
    pub(crate) fn new(bytes: &[u8]) -> Buffer {
        let words = bytes
            .chunks(16)
            .map(|chunk| {
                let mut word = [0u8; 16];
                word[..chunk.len()].copy_from_slice(chunk);
                u128::from_ne_bytes(word)
            })
            .collect();
        Buffer { words, length: bytes.len() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the words hold `length` bytes or up to 15 more, all of them initialized.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.length) }
    }

    /// The bytes' place, for callers: it stays when the buffer is moved.
    pub(crate) fn data(&self) -> FlatbufferData {
        FlatbufferData { ptr: self.bytes().as_ptr().cast(), size: self.length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_it_was_given() {
        for length in [0, 1, 15, 16, 17, 100] {
            let bytes: Vec<u8> = (0..length).collect();
            let buffer = Buffer::new(&bytes);
            assert_eq!(buffer.bytes(), bytes);
            assert_eq!(buffer.bytes().as_ptr() as usize % 16, 0);
        }
    }
}
