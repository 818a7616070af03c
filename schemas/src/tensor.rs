//! Tensors of a graph: as described ([`TensorDef`]) and as checked ([`Tensor`]).

use smallvec::{SmallVec, smallvec};

use crate::DataType;

/// Identifies a tensor within a graph; any 64-bit value, 0 included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorUid(pub i64);

impl std::fmt::Display for TensorUid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The value of a pass-by-value scalar, as the wire carries it (half and bfloat16 are widened).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TensorValue {
    /// For [`DataType::Float`].
    Float32(f32),
    /// For [`DataType::Half`].
    Float16(f32),
    /// For [`DataType::BFloat16`].
    BFloat16(f32),
    /// The raw byte of any 8-bit type.
    Float8(u8),
    /// For [`DataType::Int32`].
    Int32(i32),
    /// For [`DataType::Double`].
    Float64(f64),
    /// For [`DataType::Int64`].
    Int64(i64),
    /// For [`DataType::Boolean`].
    Bool(bool),
}

/// Largest rank of which extents and strides are kept without an allocation: that of 3-D convolutions, and one more.
pub(crate) const INLINE_RANK: usize = 6;

/// Extents or strides of a tensor as described, of any number.
pub type Extents = SmallVec<[i64; INLINE_RANK]>;

/// Tensors that a node reads, or writes.
pub type Uids = SmallVec<[TensorUid; 6]>;

/// Rows of variable length: the row offsets are themselves a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ragged {
    /// The tensor of row offsets.
    pub offset: TensorUid,
    /// Elements per unit of a stored offset.
    pub multiplier: i64,
}

/// A tensor as a graph describes it, not yet checked.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorDef {
    /// Identity within the graph.
    pub uid: TensorUid,
    /// Name for messages only; may be empty.
    pub name: String,
    /// Element type; [`DataType::Unset`] takes the graph's default.
    pub data_type: DataType,
    /// Extents in logical order: N, C, then spatial.
    pub dims: Extents,
    /// Strides: distances between neighbors along each dimension, in elements.
    pub strides: Extents,
    /// True for an intermediate: no memory of the caller stands behind it.
    pub is_virtual: bool,
    /// Scalar fixed in the graph, if the tensor is one.
    pub value: Option<TensorValue>,
    /// True if the scalar is read from the host when the graph is executed.
    pub is_runtime_pass_by_value: bool,
    /// Rows of variable length, if any.
    pub ragged: Option<Ragged>,
    /// Alignment of the address, in bytes.
    pub alignment: i64,
}

/// Default alignment, in bytes.
pub const DEFAULT_ALIGNMENT: i64 = 16;

impl TensorDef {
    /// A packed tensor: the last dimension is contiguous.
    pub fn new(uid: i64, data_type: DataType, dims: &[i64]) -> TensorDef {
        TensorDef {
            uid: TensorUid(uid),
            name: String::new(),
            data_type,
            dims: Extents::from_slice(dims),
            strides: packed_strides(dims),
            is_virtual: false,
            value: None,
            is_runtime_pass_by_value: false,
            ragged: None,
            alignment: DEFAULT_ALIGNMENT,
        }
    }

    /// The same tensor under a name.
    pub fn named(mut self, name: impl Into<String>) -> TensorDef {
        self.name = name.into();
        self
    }

    /// The same tensor with these strides, in elements.
    pub fn strided(mut self, strides: &[i64]) -> TensorDef {
        self.strides = Extents::from_slice(strides);
        self
    }

    /// The same tensor with the channels innermost in memory (NHWC and its kin); dimensions stay in logical order.
    pub fn channels_last(mut self) -> TensorDef {
        self.strides = channels_last_strides(&self.dims);
        self
    }

    /// The same tensor as an intermediate.
    pub fn intermediate(mut self) -> TensorDef {
        self.is_virtual = true;
        self
    }

    /// The same tensor as a scalar fixed in the graph.
    pub fn with_value(mut self, value: TensorValue) -> TensorDef {
        self.value = Some(value);
        self
    }
}

/// Strides of a packed tensor whose last dimension is contiguous, in elements. Saturates on overflow.
pub fn packed_strides(dims: &[i64]) -> Extents {
    let mut strides: Extents = smallvec![1; dims.len()];
    for i in (0..dims.len().saturating_sub(1)).rev() {
        strides[i] = strides[i + 1].saturating_mul(dims[i + 1]);
    }
    strides
}

/// Strides of a packed tensor whose dimension 1 is contiguous, then the last to the third, then the first.
pub fn channels_last_strides(dims: &[i64]) -> Extents {
    let mut strides: Extents = smallvec![1; dims.len()];
    let mut step = dims.get(1).copied().unwrap_or(1);
    for i in (2..dims.len()).rev() {
        strides[i] = step;
        step = step.saturating_mul(dims[i]);
    }
    if !dims.is_empty() {
        strides[0] = step;
    }
    strides
}

/// A tensor of a [`Graph`](crate::Graph): every extent is at least 1, every stride at least 0, the type is set, and
/// the last element's offset fits in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub(crate) def: TensorDef,
    pub(crate) dims: SmallVec<[usize; INLINE_RANK]>,
    pub(crate) strides: SmallVec<[usize; INLINE_RANK]>,
}

impl Tensor {
    /// Identity within the graph.
    pub fn uid(&self) -> TensorUid {
        self.def.uid
    }

    /// Name for messages only; may be empty.
    pub fn name(&self) -> &str {
        &self.def.name
    }

    /// Element type; never [`DataType::Unset`].
    pub fn data_type(&self) -> DataType {
        self.def.data_type
    }

    /// Extents in logical order: N, C, then spatial; each at least 1.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Strides: distances between neighbors along each dimension, in elements; as many as dimensions.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// Number of elements from the first to the last one in memory, both included.
    pub fn span(&self) -> usize {
        1 + self.dims.iter().zip(&*self.strides).map(|(d, s)| (d - 1) * s).sum::<usize>()
    }

    /// Bytes from the first to the last element, rounded up to whole bytes.
    pub fn span_bytes(&self) -> usize {
        (self.span() * self.def.data_type.bits().expect("a checked tensor has a type") as usize).div_ceil(8)
    }

    /// True if this is an intermediate without memory of the caller behind it.
    pub fn is_virtual(&self) -> bool {
        self.def.is_virtual
    }

    /// The scalar fixed in the graph, if this tensor is one.
    pub fn value(&self) -> Option<TensorValue> {
        self.def.value
    }

    /// True if the scalar is read from the host at execution (when there is no [`Tensor::value`]).
    pub fn is_runtime_pass_by_value(&self) -> bool {
        self.def.is_runtime_pass_by_value
    }

    /// Rows of variable length, if any.
    pub fn ragged(&self) -> Option<Ragged> {
        self.def.ragged
    }

    /// Alignment of the address, in bytes.
    pub fn alignment(&self) -> i64 {
        self.def.alignment
    }

    /// The description this tensor was made from, with its type filled in.
    pub fn def(&self) -> &TensorDef {
        &self.def
    }
}
