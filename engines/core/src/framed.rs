//! Bytes that outlive the process: fields behind their lengths, and a checksum of everything.
//!
//! ```text
//! magic (8) │ length (8) field │ length (8) field │ … │ checksum (16)
//! ```
//!
//! The checksum finds damage, not malice: whoever can write such bytes can make it right.

/// Bytes of the checksum at the end.
const CHECKSUM: usize = 16;

const CUT: &str = "it is cut short";

/// Writer of fields.
#[derive(Debug)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Writer that begins with the magic bytes of the format.
    pub fn new(magic: &[u8; 8]) -> Writer {
        Writer(magic.to_vec())
    }

    /// Adds a field.
    pub fn field(&mut self, field: &[u8]) {
        self.0.extend((field.len() as u64).to_le_bytes());
        self.0.extend(field);
    }

    /// Adds the checksum.
    pub fn finish(mut self) -> Vec<u8> {
        let checksum = fnv128([&self.0[..]]);
        self.0.extend(checksum.to_le_bytes());
        self.0
    }
}

/// Reader of fields. Their contents are valid only once [`Reader::finish`] has seen the checksum.
#[derive(Debug)]
pub struct Reader<'a> {
    all: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reader of the fields after the magic; `None` if the bytes do not begin with it.
    pub fn new(all: &'a [u8], magic: &[u8; 8]) -> Option<Reader<'a>> {
        Some(Reader { all, rest: all.strip_prefix(magic)? })
    }

    /// Reads the next field.
    ///
    /// # Errors
    /// If there are fewer bytes than the field's length.
    pub fn field(&mut self) -> Result<&'a [u8], &'static str> {
        let (length, after) = self.rest.split_first_chunk::<8>().ok_or(CUT)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| CUT)?;
        let (field, after) = after.split_at_checked(length).ok_or(CUT)?;
        self.rest = after;
        Ok(field)
    }

    /// True if nothing but the checksum is left.
    pub fn is_at_end(&self) -> bool {
        self.rest.len() <= CHECKSUM
    }

    /// Checks that all fields were read, and the checksum.
    ///
    /// # Errors
    /// If bytes are left over or damaged.
    pub fn finish(self) -> Result<(), &'static str> {
        if self.rest.len() != CHECKSUM {
            return Err("its length is wrong");
        }
        let (bytes, checksum) = self.all.split_last_chunk::<CHECKSUM>().ok_or(CUT)?;
        if fnv128([bytes]) != u128::from_le_bytes(*checksum) {
            return Err("its checksum is wrong");
        }
        Ok(())
    }
}

/// FNV-1a with 128 bits: bytes of the same length of which a single one differs never have the same.
pub fn fnv128<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u128 {
    let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    for byte in parts.into_iter().flatten() {
        hash = (hash ^ u128::from(*byte)).wrapping_mul((1 << 88) + 0x13b);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: &[u8; 8] = b"12345678";

    fn read(bytes: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
        let mut reader = Reader::new(bytes, MAGIC).ok_or("another magic")?;
        let mut fields = Vec::new();
        while !reader.is_at_end() {
            fields.push(reader.field()?.to_vec());
        }
        reader.finish().map(|()| fields)
    }

    #[test]
    fn fields_come_back_and_damage_is_noticed() {
        let fields = [b"one".to_vec(), Vec::new(), vec![7; 300]];
        let mut writer = Writer::new(MAGIC);
        fields.iter().for_each(|field| writer.field(field));
        let bytes = writer.finish();
        assert_eq!(read(&bytes), Ok(fields.to_vec()));
        for at in 0..bytes.len() {
            assert!(read(&bytes[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert!(read(&damaged).is_err(), "bit {bit} of byte {at}");
            }
        }
        assert!(read(&[&bytes[..], &[0]].concat()).is_err(), "longer");
        assert_eq!(read(&Writer::new(MAGIC).finish()), Ok(Vec::new()));
    }

    /// Files outlive the build that wrote them, so the function may not change. Its offset, prime and test vectors are
    /// those of <http://www.isthe.com/chongo/tech/comp/fnv/>.
    #[test]
    fn the_checksum_is_the_published_function() {
        let offset = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        // One step by its definition, in two halves of 64 bits: the prime is 2⁸⁸ + 2⁸ + 0x3b.
        let step = |hash: u128, byte: u8| {
            let hash = hash ^ u128::from(byte);
            (hash << 88).wrapping_add(hash << 8).wrapping_add(hash.wrapping_mul(0x3b))
        };
        assert_eq!(fnv128([]), offset);
        assert_eq!(fnv128([&b"a"[..]]), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        let text = b"plans and kernels";
        let want = text.iter().fold(offset, |hash, byte| step(hash, *byte));
        for at in 0..=text.len() {
            let (front, back) = text.split_at(at);
            assert_eq!(fnv128([front, back]), want, "parts of {at} bytes and the rest");
        }
    }
}
