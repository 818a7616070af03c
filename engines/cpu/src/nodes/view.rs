//! Layout of a tensor in memory, for kernels that walk over any strides.

use hipdnn_cpu_simd::isa::Isa;
use hipdnn_schemas::Tensor;

use hipdnn_cpu_pointwise::Storage;

/// A tensor's element type, extents and strides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorView {
    /// Element type in memory.
    pub storage: Storage,
    /// Extents.
    pub dims: Vec<usize>,
    /// Stride of each dimension, in elements.
    pub strides: Vec<usize>,
}

impl TensorView {
    /// Layout of that tensor; `None` for types that have no [`Storage`].
    pub fn of(tensor: &Tensor) -> Option<TensorView> {
        let storage = Storage::of(tensor.data_type())?;
        Some(TensorView { storage, dims: tensor.dims().to_vec(), strides: tensor.strides().to_vec() })
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// Reads `values.len()` elements from the element `offset` on, each `stride` after the one before it.
    ///
    /// # Safety
    /// As [`Storage::load`].
    pub unsafe fn load(&self, isa: Isa, base: *const u8, offset: usize, stride: usize, values: &mut [f32]) {
        // SAFETY: the caller's promise.
        unsafe { self.storage.load(isa, base, offset, stride, values) };
    }
}

/// Extents and strides of some dimensions, walked in logical order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Walk {
    dims: Vec<usize>,
    strides: Vec<usize>,
}

impl Walk {
    /// Makes a walk over these (extent, stride) pairs, outermost first. Neighbors that lie behind each other are
    /// joined.
    pub fn new(pairs: impl IntoIterator<Item = (usize, usize)>) -> Walk {
        let mut walk = Walk::default();
        for (extent, stride) in pairs {
            if extent == 1 {
                continue;
            }
            if walk.strides.last() == Some(&(stride * extent)) {
                *walk.dims.last_mut().expect("as many extents as strides") *= extent;
                *walk.strides.last_mut().expect("it was just looked at") = stride;
            } else {
                walk.dims.push(extent);
                walk.strides.push(stride);
            }
        }
        walk
    }

    /// Makes a walk over these pairs as they are: walks over the same extents then have elements in common places.
    pub fn apart(pairs: impl IntoIterator<Item = (usize, usize)>) -> Walk {
        let (dims, strides) = pairs.into_iter().unzip();
        Walk { dims, strides }
    }

    /// Number of elements that the walk passes.
    #[expect(clippy::len_without_is_empty, reason = "extents are at least 1")]
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Offset of the `n`th element.
    pub fn offset(&self, n: usize) -> usize {
        let (mut offset, mut rest) = (0, n);
        for (extent, stride) in self.dims.iter().zip(&self.strides).rev() {
            offset += rest % extent * stride;
            rest /= extent;
        }
        offset
    }

    /// Takes the innermost dimension off: its extent and stride, or a single place where there is none.
    pub fn pop(&mut self) -> (usize, usize) {
        match (self.dims.pop(), self.strides.pop()) {
            (Some(extent), Some(stride)) => (extent, stride),
            _ => (1, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_join_what_lies_behind_each_other() {
        for (what, pairs, dims, offsets) in [
            ("packed", vec![(2, 12), (3, 4), (4, 1)], vec![24], vec![(0, 0), (23, 23)]),
            ("sliced", vec![(2, 20), (3, 4), (4, 1)], vec![2, 12], vec![(11, 11), (12, 20)]),
            ("single places mean nothing", vec![(1, 99), (5, 3), (1, 7)], vec![5], vec![(4, 12)]),
            ("one element", vec![(1, 9)], vec![], vec![(0, 0)]),
        ] {
            let walk = Walk::new(pairs);
            assert_eq!(walk.dims, dims, "{what}");
            for (n, offset) in offsets {
                assert_eq!(walk.offset(n), offset, "{what}");
            }
        }
    }
}
