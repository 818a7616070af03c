//! Table of the caller's buffers by tensor uid: made with the plan, filled in one pass by an execution.

use hipdnn_schemas::TensorUid;
use hipdnn_sdk_bindings::hipdnn::plugin::DeviceBuffer;

use crate::TensorLabel;
use crate::error::Error;

/// Location of an operand during an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Caller's buffer of that index in the plan's [`BufferTable`].
    Buffer(usize),
    /// Offset into the workspace, in bytes.
    Workspace(usize),
    /// Index into the plan's own constants.
    Constant(usize),
}

/// Tensor that the caller gives memory for.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Uid of the tensor.
    pub uid: TensorUid,
    /// Label for messages.
    pub label: TensorLabel,
    /// Required alignment of the address, in bytes.
    pub alignment: usize,
    /// True if an execution fails without it.
    pub required: bool,
}

/// Table of the tensors that the caller gives memory for, by uid.
#[derive(Clone, Debug, Default)]
pub struct BufferTable {
    buffers: Box<[Buffer]>,
}

impl BufferTable {
    /// Table of these tensors; each uid once.
    pub fn new(mut buffers: Vec<Buffer>) -> BufferTable {
        buffers.sort_by_key(|buffer| buffer.uid);
        BufferTable { buffers: buffers.into() }
    }

    /// Number of buffers.
    pub fn len(&self) -> usize {
        self.buffers.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// Index of a tensor.
    pub fn index(&self, uid: TensorUid) -> Option<usize> {
        self.buffers.binary_search_by_key(&uid, |buffer| buffer.uid).ok()
    }

    /// Tensor of that index.
    pub fn get(&self, index: usize) -> &Buffer {
        &self.buffers[index]
    }

    /// Fills `addresses`, one for each buffer, from the caller's variant pack. Entries that the plan has no use for are
    /// skipped; addresses of buffers that may be missing can be null afterwards.
    ///
    /// # Errors
    /// If a buffer that is required is missing or null, is given twice with different addresses, or is misaligned.
    ///
    /// # Panics
    /// If the length of `addresses` is not the number of buffers.
    pub fn resolve(&self, pack: &[DeviceBuffer], addresses: &mut [*mut u8]) -> Result<(), Error> {
        assert_eq!(addresses.len(), self.buffers.len(), "one address for each buffer");
        addresses.fill(std::ptr::null_mut());
        for entry in pack {
            let Some(index) = self.index(TensorUid(entry.uid)) else { continue };
            let address = entry.ptr.cast::<u8>();
            let buffer = &self.buffers[index];
            if !addresses[index].is_null() && addresses[index] != address {
                let (label, first) = (&buffer.label, addresses[index]);
                return Err(Error::invalid_value(format!("{label} has two buffers: {first:p} and {address:p}")));
            }
            if address.addr() % buffer.alignment != 0 {
                let (label, wanted) = (&buffer.label, buffer.alignment);
                return Err(Error::invalid_value(format!("{label}: expected a multiple of {wanted}, got {address:p}")));
            }
            addresses[index] = address;
        }
        for (buffer, address) in self.buffers.iter().zip(&*addresses) {
            if address.is_null() && buffer.required {
                return Err(missing(buffer, pack));
            }
        }
        Ok(())
    }
}

/// Error for a required buffer that is missing.
pub fn missing(buffer: &Buffer, pack: &[DeviceBuffer]) -> Error {
    let label = &buffer.label;
    let came = if pack.iter().any(|entry| entry.uid == buffer.uid.0) { "null" } else { "no entry with its uid" };
    Error::invalid_value(format!("{label}: expected a buffer, got {came}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_pack_is_looked_up_by_uid() {
        let buffer = |uid: i64, name: &str, required| Buffer {
            uid: TensorUid(uid),
            label: TensorLabel::new(uid, name),
            alignment: 4,
            required,
        };
        let table = BufferTable::new(vec![buffer(7, "y", true), buffer(0, "x", true), buffer(-3, "", false)]);
        let at = |address: usize| std::ptr::without_provenance_mut::<std::ffi::c_void>(address);
        let entry = |uid, address| DeviceBuffer { uid, ptr: at(address) };
        type Case<'a> = (&'a str, Vec<DeviceBuffer>, Result<[usize; 3], &'a str>);
        let cases: [Case<'_>; 7] = [
            ("in any order, with strangers", vec![entry(7, 16), entry(9, 3), entry(0, 8)], Ok([0, 8, 16])),
            ("all", vec![entry(-3, 4), entry(7, 16), entry(0, 8)], Ok([4, 8, 16])),
            ("the same twice", vec![entry(7, 16), entry(7, 16), entry(0, 8)], Ok([0, 8, 16])),
            ("missing", vec![entry(0, 8)], Err("tensor 7 \"y\": expected a buffer, got no entry with its uid")),
            ("null", vec![entry(0, 0), entry(7, 16)], Err("tensor 0 \"x\": expected a buffer, got null")),
            ("two places", vec![entry(7, 16), entry(7, 20)], Err("tensor 7 \"y\" has two buffers: 0x10 and 0x14")),
            ("misaligned", vec![entry(-3, 6)], Err("tensor -3: expected a multiple of 4, got 0x6")),
        ];
        for (what, pack, want) in cases {
            let mut addresses = [at(1).cast(); 3];
            let got = table.resolve(&pack, &mut addresses).map(|()| addresses.map(|a: *mut u8| a.addr()));
            assert_eq!(got.map_err(|error| error.to_string()), want.map_err(str::to_string), "{what}");
        }
    }

    /// Buffers are found by uid, in whatever order they came; indices are those of the addresses.
    #[test]
    fn buffers_are_found_by_uid() {
        let table = |uids: &[i64]| {
            let label = |uid| TensorLabel::new(uid, "");
            let buffer = |uid: &i64| Buffer { uid: TensorUid(*uid), label: label(*uid), alignment: 1, required: true };
            BufferTable::new(uids.iter().map(buffer).collect())
        };
        for uids in [&[][..], &[4], &[7, -3], &[9, 5, i64::MAX, 0, i64::MIN]] {
            let table = table(uids);
            assert_eq!((table.len(), table.is_empty()), (uids.len(), uids.is_empty()), "{uids:?}");
            let mut indices: Vec<usize> = uids.iter().map(|uid| table.index(TensorUid(*uid)).unwrap()).collect();
            for (uid, index) in uids.iter().zip(&indices) {
                assert_eq!(table.get(*index).uid, TensorUid(*uid), "{uids:?}");
            }
            indices.sort();
            assert!(indices.into_iter().eq(0..uids.len()), "{uids:?}: one index for each");
            for stranger in [-4, 1, 6, 10] {
                assert_eq!(table.index(TensorUid(stranger)), None, "{uids:?}");
            }
        }
    }
}
