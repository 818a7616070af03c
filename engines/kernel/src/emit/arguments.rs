//! Argument structure of a kernel.

use std::fmt::Write;

use super::program::ComputeType;

/// Limit of a kernel's arguments in bytes.
pub const MOST_BYTES: usize = 4096;

/// Argument structure of a kernel: first a pointer for each tensor that is read or written.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) bytes: Vec<u8>,
    /// Offsets of the scalars that a launch may replace, in order.
    pub(super) scalars: Vec<usize>,
    /// Declarations of the structure's fields in C.
    pub(super) declarations: String,
}

impl Arguments {
    /// Appends a field; returns its offset.
    pub(super) fn field(&mut self, c_type: &str, name: &str, value: &[u8]) -> usize {
        while !self.bytes.len().is_multiple_of(value.len()) {
            self.bytes.push(0);
        }
        let offset = self.bytes.len();
        self.bytes.extend(value);
        writeln!(self.declarations, "  {c_type} {name};").expect("strings take everything");
        offset
    }

    /// True if there is a field of that name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.declarations
            .lines()
            .any(|line| line.strip_suffix(';').and_then(|line| line.rsplit(' ').next()) == Some(name))
    }

    /// Appends a pointer, whose value comes at launch.
    pub(super) fn pointer(&mut self, c_type: &str, name: &str) {
        self.field(&format!("{c_type}*"), name, &0u64.to_le_bytes());
    }

    /// Appends a number of the type `index`: of 64 bits if indices are wide, else of 32.
    pub(super) fn index(&mut self, wide: bool, name: &str, value: i64) {
        if wide {
            self.field("index", name, &value.to_le_bytes());
        } else {
            self.field("index", name, &(value as i32).to_le_bytes());
        }
    }

    /// Appends the divisor `d`: with narrow indices fields `<name>` for the divisor itself, and `<name>_m` and
    /// `<name>_r` for the multiplier and shift of [`divisor`]; with wide indices only the first.
    pub(super) fn divisor(&mut self, wide: bool, name: &str, d: u64) {
        self.index(wide, name, d as i64);
        if !wide {
            let (multiplier, shift) = divisor(d);
            self.field("unsigned", &format!("{name}_m"), &multiplier.to_le_bytes());
            self.field("unsigned", &format!("{name}_r"), &shift.to_le_bytes());
        }
    }

    /// Appends a number of the type `real`; returns its offset.
    ///
    /// # Panics
    /// If `real` is an integer type: kernels with scalars compute in floats.
    pub(super) fn real(&mut self, compute_type: ComputeType, name: &str, value: f64) -> usize {
        match compute_type {
            ComputeType::F64 => self.field("real", name, &value.to_le_bytes()),
            ComputeType::F32 => self.field("real", name, &(value as f32).to_le_bytes()),
            ComputeType::I64 | ComputeType::Bits(_) => unreachable!("what has scalars is computed in floats"),
        }
    }

    /// Pads the bytes to the size of the structure, a multiple of its pointers' alignment.
    pub(super) fn finish(&mut self) {
        let bytes = self.bytes.len().next_multiple_of(8);
        self.bytes.resize(bytes, 0);
    }
}

/// Multiplier and shift of a division by `d`: `q = n / d` for n below 2³¹ is `(mulhi(n, multiplier) + n) >> shift`.
pub(super) fn divisor(d: u64) -> (u32, u32) {
    let shift = if d <= 1 { 0 } else { 64 - (d - 1).leading_zeros() };
    let multiplier = ((1u128 << 32) * ((1u128 << shift) - u128::from(d)) / u128::from(d)) as u64 + 1;
    (u32::try_from(multiplier).expect("the divisor is below 2³¹"), shift)
}

/// C expression of the quotient of a `count` by a divisor of that name in the arguments ([`Arguments::divisor`]).
pub(super) fn quotient(wide: bool, n: &str, name: &str) -> String {
    if wide { format!("{n} / a.{name}") } else { format!("(mulhi({n}, a.{name}_m) + {n}) >> a.{name}_r") }
}

/// C types of indices, and the helper that [`quotient`] calls.
pub(super) fn index_types(wide: bool) -> &'static str {
    if wide {
        "typedef long index;\ntypedef unsigned long count;\n"
    } else {
        "typedef int index;\ntypedef unsigned count;\n"
    }
}

/// C helper that [`quotient`] calls where indices are narrow.
pub(super) const MULHI: &str = "DEVICE unsigned mulhi(unsigned a, unsigned b) { return (unsigned long)a * b >> 32; }\n";

/// C helpers that load and store several adjacent elements. Vectors are as aligned as their elements: every target of
/// HIP can do that. `A` is a number of bytes of which the distance from the beginning of the tensor is a multiple, for
/// targets where that matters.
pub(super) const VECTORS: &str = "template <class T, int N, int A> struct Lanes {
  typedef T V __attribute__((ext_vector_type(N), aligned(sizeof(T))));
};
template <int N, int A, class T> DEVICE void load(T* to, const T* from) {
  const typename Lanes<T, N, A>::V v = *(const typename Lanes<T, N, A>::V*)from;
  _Pragma(\"unroll\") for (int k = 0; k < N; ++k) to[k] = v[k];
}
template <int N, int A, class T> DEVICE void store(T* to, const T* from) {
  typename Lanes<T, N, A>::V v;
  _Pragma(\"unroll\") for (int k = 0; k < N; ++k) v[k] = from[k];
  *(typename Lanes<T, N, A>::V*)to = v;
}
";

/// Qualifiers of device functions.
pub(super) const DEVICE: &str = "#define DEVICE static inline __attribute__((device, always_inline))\n";
