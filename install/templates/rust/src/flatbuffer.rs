//! Reads FlatBuffers, of which every offset is checked: a graph comes from outside.

/// A buffer that is none.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

const OUTSIDE: Malformed = Malformed("an offset leads out of the buffer");

/// A number as it lies in a buffer.
pub trait Scalar: Sized {
    /// Reads it at an offset.
    fn read(bytes: &[u8], at: usize) -> Result<Self, Malformed>;
}

macro_rules! scalars {
    ($($kind:ty)*) => {$(
        impl Scalar for $kind {
            fn read(bytes: &[u8], at: usize) -> Result<Self, Malformed> {
                let end = at.checked_add(size_of::<Self>()).ok_or(OUTSIDE)?;
                let found = bytes.get(at..end).ok_or(OUTSIDE)?;
                Ok(Self::from_le_bytes(found.try_into().map_err(|_| OUTSIDE)?))
            }
        }
    )*};
}

scalars!(i8 u8 u16 i32 u32 i64 f32);

/// A table. Fields are numbered as the schema has them, where a union counts as two.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Table<'a> {
    /// The table that a buffer begins with.
    pub fn root(bytes: &'a [u8]) -> Result<Table<'a>, Malformed> {
        Table { bytes, at: 0 }.behind(0)
    }

    /// A number; `None` where the field is absent.
    pub fn scalar<T: Scalar>(&self, field: usize) -> Result<Option<T>, Malformed> {
        self.place(field)?.map(|at| T::read(self.bytes, at)).transpose()
    }

    /// A table; `None` where the field is absent.
    pub fn table(&self, field: usize) -> Result<Option<Table<'a>>, Malformed> {
        self.place(field)?.map(|at| self.behind(at)).transpose()
    }

    /// The tables of a vector; none where it is absent. More than `limit` are an error.
    pub fn tables(&self, field: usize, limit: usize) -> Result<Vec<Table<'a>>, Malformed> {
        self.vector(field, limit, 4)?.map(|at| self.behind(at)).collect()
    }

    /// The numbers of a vector; none where it is absent. More than `limit` are an error.
    pub fn longs(&self, field: usize, limit: usize) -> Result<Vec<i64>, Malformed> {
        self.vector(field, limit, 8)?.map(|at| i64::read(self.bytes, at)).collect()
    }

    /// The table that the offset at a place leads to.
    fn behind(&self, at: usize) -> Result<Table<'a>, Malformed> {
        let offset = u32::read(self.bytes, at)? as usize;
        Ok(Table { bytes: self.bytes, at: at.checked_add(offset).ok_or(OUTSIDE)? })
    }

    fn place(&self, field: usize) -> Result<Option<usize>, Malformed> {
        // Behind a table's start is how far its list of fields lies before it.
        let back = i32::read(self.bytes, self.at)?;
        let list = usize::try_from(self.at as i64 - i64::from(back)).map_err(|_| OUTSIDE)?;
        let slot = 4 + 2 * field;
        if slot + 2 > usize::from(u16::read(self.bytes, list)?) {
            return Ok(None);
        }
        let offset = u16::read(self.bytes, list + slot)?;
        Ok((offset != 0).then(|| self.at + usize::from(offset)))
    }

    /// Places of a vector's elements, which are this wide.
    fn vector(&self, field: usize, limit: usize, width: usize) -> Result<impl Iterator<Item = usize>, Malformed> {
        let (mut first, mut count) = (0, 0);
        if let Some(at) = self.place(field)? {
            let vector = self.behind(at)?.at;
            count = u32::read(self.bytes, vector)? as usize;
            first = vector.checked_add(4).ok_or(OUTSIDE)?;
        }
        if count > limit {
            return Err(Malformed("a vector is longer than any that is taken"));
        }
        Ok((0..count).map(move |index| first.saturating_add(width * index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of one long.
    const ONE: [u8; 24] = [12, 0, 0, 0, 0, 0, 6, 0, 12, 0, 4, 0, 6, 0, 0, 0, 42, 0, 0, 0, 0, 0, 0, 0];

    #[test]
    fn fields_are_read_and_absent_ones_are_none() {
        let table = Table::root(&ONE).expect("a table");
        assert_eq!(table.scalar::<i64>(0), Ok(Some(42)));
        assert_eq!(table.scalar::<i64>(1), Ok(None));
        assert_eq!(table.longs(3, 4), Ok(Vec::new()));
    }

    #[test]
    fn no_change_of_a_byte_leads_out_of_the_buffer() {
        for at in 0..ONE.len() {
            for value in 0..=255 {
                let mut bytes = ONE;
                bytes[at] = value;
                for end in [at, ONE.len()] {
                    if let Ok(table) = Table::root(&bytes[..end]) {
                        let _ = (table.scalar::<i64>(0), table.longs(0, 8), table.table(0).map(|_| ()));
                        let _ = table.tables(0, 8).map(|tables| tables.len());
                    }
                }
            }
        }
    }
}
