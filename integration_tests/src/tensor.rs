//! Tensors in host memory with any element type and strides, read and written as double precision.

use half::{bf16, f16};
use hipdnn_schemas::{DataType, TensorDef};
use hipdnn_sdk_bindings::hipdnn::plugin::DeviceBuffer;

/// Memory aligned to 64 bytes, surrounded by guard bytes that show a write outside.
pub struct AlignedBytes {
    words: Vec<Line>,
    len: usize,
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

const GUARD: u8 = 0xa5;

impl AlignedBytes {
    /// `len` bytes of this value between two guard lines.
    pub fn filled(len: usize, value: u8) -> AlignedBytes {
        let mut bytes = AlignedBytes { words: vec![Line([GUARD; 64]); len.div_ceil(64) + 2], len };
        bytes.as_mut_slice().fill(value);
        bytes
    }

    /// The address of the first byte.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.as_mut_slice().as_mut_ptr()
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.all()[64..64 + self.len]
    }

    /// The bytes.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = self.len;
        // SAFETY: `Line` is 64 initialized bytes without padding, and the borrow of `words` covers the slice.
        let all =
            unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast::<u8>(), self.words.len() * 64) };
        &mut all[64..64 + len]
    }

    /// True if nothing was written just before or after the bytes.
    pub fn guards_hold(&self) -> bool {
        let all = self.all();
        all[..64].iter().chain(&all[64 + self.len..]).all(|byte| *byte == GUARD)
    }

    fn all(&self) -> &[u8] {
        // SAFETY: `Line` is 64 initialized bytes without padding, and `words` is borrowed as long as the slice.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast::<u8>(), self.words.len() * 64) }
    }
}

/// Seeded numbers in [-1, 1).
pub struct Random(fastrand::Rng);

impl Random {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Random {
        Random(fastrand::Rng::with_seed(seed))
    }

    /// The next number.
    pub fn value(&mut self) -> f64 {
        2.0 * self.0.f64() - 1.0
    }
}

/// A tensor of a graph with memory behind it.
pub struct HostTensor {
    def: TensorDef,
    bytes: AlignedBytes,
}

impl HostTensor {
    /// Memory for the tensor, every byte of it `0xff` (which no finite number is made of).
    ///
    /// # Panics
    /// If the element type is not a float, or an extent is negative.
    pub fn blank(def: &TensorDef) -> HostTensor {
        let last: i64 = def.dims.iter().zip(&def.strides).map(|(extent, stride)| (extent - 1).max(0) * stride).sum();
        let elements = usize::try_from(last + 1).expect("extents and strides are not negative");
        HostTensor { bytes: AlignedBytes::filled(elements * width(def.data_type), 0xff), def: def.clone() }
    }

    /// Memory with seeded values, already rounded to the element type.
    pub fn random(def: &TensorDef, seed: u64) -> HostTensor {
        let mut tensor = HostTensor::blank(def);
        let mut random = Random::new(seed);
        for index in indices(&def.dims) {
            tensor.set(&index, random.value());
        }
        tensor
    }

    /// The description.
    pub fn def(&self) -> &TensorDef {
        &self.def
    }

    /// The raw bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// The raw bytes, for values that come from elsewhere.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.as_mut_slice()
    }

    /// The entry of a variant pack.
    pub fn buffer(&mut self) -> DeviceBuffer {
        DeviceBuffer { uid: self.def.uid.0, ptr: self.bytes.as_mut_ptr().cast() }
    }

    /// The element at these coordinates.
    pub fn get(&self, index: &[i64]) -> f64 {
        let bytes = &self.bytes.as_slice()[self.position(index)..];
        match self.def.data_type {
            DataType::Float => f32::from_ne_bytes(bytes[..4].try_into().expect("four bytes")).into(),
            DataType::Half => f16::from_ne_bytes(bytes[..2].try_into().expect("two bytes")).into(),
            DataType::BFloat16 => bf16::from_ne_bytes(bytes[..2].try_into().expect("two bytes")).into(),
            other => panic!("no host tensors of type {other}"),
        }
    }

    /// Rounds the value to the element type and stores it.
    pub fn set(&mut self, index: &[i64], value: f64) {
        let position = self.position(index);
        let bytes = &mut self.bytes.as_mut_slice()[position..];
        match self.def.data_type {
            DataType::Float => bytes[..4].copy_from_slice(&(value as f32).to_ne_bytes()),
            DataType::Half => bytes[..2].copy_from_slice(&f16::from_f64(value).to_ne_bytes()),
            DataType::BFloat16 => bytes[..2].copy_from_slice(&bf16::from_f64(value).to_ne_bytes()),
            other => panic!("no host tensors of type {other}"),
        }
    }

    /// Panics if anything was written outside, or between the elements of a tensor with gaps.
    ///
    /// # Panics
    /// As said; `0xff` is what gaps were filled with.
    pub fn assert_untouched_outside(&self, what: &str) {
        assert!(self.bytes.guards_hold(), "{what}: written outside the tensor");
        assert!(!self.gaps_written(), "{what}: written between the elements");
    }

    /// True if a byte between the elements is not the `0xff` that gaps were filled with.
    pub fn gaps_written(&self) -> bool {
        let mut inside = vec![false; self.bytes.as_slice().len()];
        for index in indices(&self.def.dims) {
            let position = self.position(&index);
            inside[position..position + width(self.def.data_type)].fill(true);
        }
        self.bytes.as_slice().iter().zip(&inside).any(|(byte, inside)| !inside && *byte != 0xff)
    }

    fn position(&self, index: &[i64]) -> usize {
        let offset: i64 = index.iter().zip(&self.def.strides).map(|(at, stride)| at * stride).sum();
        usize::try_from(offset).expect("coordinates are inside") * width(self.def.data_type)
    }
}

fn width(data_type: DataType) -> usize {
    data_type.bits().expect("a tensor has a type") as usize / 8
}

/// All coordinates of a shape, the last one running fastest.
pub fn indices(dims: &[i64]) -> impl Iterator<Item = Vec<i64>> + use<> {
    let dims = dims.to_vec();
    let total: i64 = dims.iter().product();
    (0..total).map(move |mut linear| {
        let mut index = vec![0; dims.len()];
        for (at, extent) in index.iter_mut().zip(&dims).rev() {
            *at = linear % extent;
            linear /= extent;
        }
        index
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_rounded_and_gaps_stay() {
        for (data_type, stored, wanted) in [
            (DataType::Float, 0.1, f64::from(0.1f32)),
            (DataType::Half, 0.1, 0.099_975_585_937_5),
            (DataType::BFloat16, 0.1, 0.100_097_656_25),
        ] {
            let def = TensorDef::new(1, data_type, &[2, 3]).strided(&[8, 2]);
            let mut tensor = HostTensor::blank(&def);
            for index in indices(&def.dims) {
                tensor.set(&index, stored);
            }
            assert!(indices(&def.dims).all(|index| tensor.get(&index) == wanted), "{data_type}");
            tensor.assert_untouched_outside("gaps");
        }
    }

    #[test]
    #[should_panic(expected = "written between the elements")]
    fn a_written_gap_is_seen() {
        let mut tensor = HostTensor::random(&TensorDef::new(1, DataType::Float, &[2, 3]).strided(&[8, 2]), 1);
        tensor.bytes.as_mut_slice()[4] = 0;
        tensor.assert_untouched_outside("gap");
    }

    #[test]
    fn coordinates_run_over_the_whole_shape_once() {
        let all: Vec<_> = indices(&[2, 1, 3]).collect();
        assert_eq!(all, [[0, 0, 0], [0, 0, 1], [0, 0, 2], [1, 0, 0], [1, 0, 1], [1, 0, 2]]);
        assert_eq!(indices(&[2, 0]).count(), 0);
    }
}
