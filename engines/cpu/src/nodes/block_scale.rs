//! Block scales: numbers of few bits with a scale for each block of them.
//!
//! As in hipDNN's reference executor (`CpuFpReferenceBlockScaleQuantize`, `CpuReferenceBlockScaleDequantize` and their
//! plans in hipDNN's test SDK):
//! * a block's scale is its largest magnitude by the largest number of the result's type, rounded up to the scale's
//!   type (to nearest for float), at most the type's largest number; NaN does not count; elements are divided by it, or
//!   0 where it is 0, and rounded to nearest even, saturated; NaN becomes 0 where the type has none;
//! * quantization has blocks along `axis`, the last dimension where that is absent; the scale has x's extents but for
//!   that one, of which it has one for each block that has begun; `transpose` speaks of strides that the frontend
//!   chooses, and the tensors have those;
//! * the sizes of blocks of a dequantization are those of the last dimensions; an element is multiplied by its scale,
//!   or with `is_negative_scale` by 2^-scale.
//!
//! Numbers of 4 and 6 bits have a byte each in that executor. Here they lie as [`code`] says, as the wire format counts
//! their bits.

use std::sync::Arc;

use half::{bf16, f16};
use hipdnn_cpu_simd::isa::Isa;
use hipdnn_cpu_simd::minifloat;
use hipdnn_cpu_threads::Pool;
use hipdnn_engine_core::checks::{check_compute_type, check_type};
use hipdnn_engine_core::{Declined, NodeLabel, TensorLabel};
use hipdnn_schemas::{BlockScaleDequantize, BlockScaleQuantize, DataType, Graph, Tensor, TensorUid};

use super::{LibraryKernel, LibraryOp, Recipe};
use crate::work::Work;
use hipdnn_cpu_pointwise::Storage;

/// Types of the unquantized side: the input of a quantization, the output of a dequantization.
pub const WIDE: &[DataType] = &[DataType::Float, DataType::Half, DataType::BFloat16];

/// Types of quantized numbers.
pub const QUANTIZED: &[DataType] = &[
    DataType::Fp8E4M3,
    DataType::Fp8E5M2,
    DataType::Fp8E4M3Fnuz,
    DataType::Fp8E5M2Fnuz,
    DataType::Fp6E2M3,
    DataType::Fp6E3M2,
    DataType::Fp4E2M1,
    DataType::Int8,
    DataType::UInt8,
    DataType::Int32,
    DataType::Float,
    DataType::Half,
    DataType::BFloat16,
];

/// Types of scales that are computed.
pub const SCALES: &[DataType] =
    &[DataType::Float, DataType::Half, DataType::BFloat16, DataType::Fp8E8M0, DataType::Fp8E4M3];

/// Types of scales that are read.
pub const GIVEN_SCALES: &[DataType] = &[
    DataType::Float,
    DataType::Half,
    DataType::BFloat16,
    DataType::Fp8E8M0,
    DataType::Fp8E4M3,
    DataType::Fp8E5M2,
    DataType::Int8,
    DataType::UInt8,
    DataType::Int32,
];

/// Compute types that these nodes may ask for; all are computed in `f32`.
pub const COMPUTE: &[DataType] = &[DataType::Float, DataType::Half, DataType::BFloat16];

/// Number of elements that are worked on at once.
const PIECE: usize = 512;

/// Number of elements below which waking another thread costs more than it saves.
const PER_UNIT: usize = 16 * 1024;

fn storage(tensor: &Tensor) -> Storage {
    Storage::of(tensor.data_type()).expect("the types of the tables have a storage")
}

/// Largest number of a quantized type.
fn largest(storage: Storage) -> f64 {
    match storage {
        Storage::Code(code) => f64::from(code.largest()),
        Storage::F16 => f16::MAX.to_f64(),
        Storage::BF16 => bf16::MAX.to_f64(),
        Storage::F32 => f64::from(f32::MAX),
        Storage::I32 => f64::from(i32::MAX),
        Storage::I8 => f64::from(i8::MAX),
        Storage::U8 => f64::from(u8::MAX),
        Storage::F64 | Storage::I64 | Storage::Boolean => unreachable!("nothing is quantised to {storage:?}"),
    }
}

/// Declines an operand whose extents are not these.
fn check_shape(
    graph: &Graph,
    index: usize,
    role: &'static str,
    uid: TensorUid,
    wanted: &[usize],
) -> Result<(), Declined> {
    let dims = graph.tensor(uid).dims();
    if dims == wanted {
        return Ok(());
    }
    Err(Declined::Shape {
        node: NodeLabel::of(graph, index),
        role,
        tensor: TensorLabel::of(graph, uid),
        dims: dims.to_vec(),
        wanted: format!("{wanted:?}"),
    })
}

/// Lowers a quantization.
///
/// # Errors
/// Reason for which the engine declines the node.
pub fn lower_quantize(graph: &Graph, index: usize, node: &BlockScaleQuantize) -> Result<Work, Declined> {
    check_compute_type(graph, index, COMPUTE)?;
    check_type(graph, index, "x", node.x, WIDE)?;
    check_type(graph, index, "y", node.y, QUANTIZED)?;
    check_type(graph, index, "scale", node.scale, SCALES)?;
    let (x, y, scale) = (graph.tensor(node.x), graph.tensor(node.y), graph.tensor(node.scale));
    let axis = node.axis.map_or(x.rank() - 1, |axis| usize::try_from(axis).expect("a checked axis is a dimension"));
    let block = usize::try_from(node.block_size).expect("a checked block has elements");
    let mut scale_dims = x.dims().to_vec();
    scale_dims[axis] = scale_dims[axis].div_ceil(block);
    check_shape(graph, index, "y", node.y, x.dims())?;
    check_shape(graph, index, "scale", node.scale, &scale_dims)?;
    let recipe = Quantize {
        dims: x.dims().to_vec(),
        axis,
        block,
        x: storage(x),
        y: storage(y),
        scale: storage(scale),
        strides: [x, y, scale].map(|tensor| tensor.strides().to_vec()),
    };
    Ok(Work::Node(LibraryOp {
        name: "block scale quantisation",
        inputs: vec![Some(node.x)],
        outputs: vec![Some(node.y), Some(node.scale)],
        recipe: Arc::new(recipe),
    }))
}

/// Lowers a dequantization.
///
/// # Errors
/// Reason for which the engine declines the node.
pub fn lower_dequantize(graph: &Graph, index: usize, node: &BlockScaleDequantize) -> Result<Work, Declined> {
    check_compute_type(graph, index, COMPUTE)?;
    check_type(graph, index, "x", node.x, QUANTIZED)?;
    check_type(graph, index, "scale", node.scale, GIVEN_SCALES)?;
    check_type(graph, index, "y", node.y, WIDE)?;
    let (x, y, scale) = (graph.tensor(node.x), graph.tensor(node.y), graph.tensor(node.scale));
    let Some(whole) = x.rank().checked_sub(node.block_size.len()) else {
        return Err(Declined::Attribute {
            node: NodeLabel::of(graph, index),
            attribute: "block_size",
            value: format!("{:?}", node.block_size),
            wanted: "at most as many entries as x has dimensions",
        });
    };
    let mut blocks = vec![1; whole];
    blocks.extend(node.block_size.iter().map(|size| usize::try_from(*size).expect("a checked block has elements")));
    let scale_dims: Vec<usize> = x.dims().iter().zip(&blocks).map(|(extent, block)| extent.div_ceil(*block)).collect();
    check_shape(graph, index, "scale", node.scale, &scale_dims)?;
    let recipe = Dequantize {
        dims: x.dims().to_vec(),
        blocks,
        negative: node.is_negative_scale,
        x: storage(x),
        y: storage(y),
        scale: storage(scale),
        strides: [x, y, scale].map(|tensor| tensor.strides().to_vec()),
    };
    Ok(Work::Node(LibraryOp {
        name: "block scale dequantisation",
        inputs: vec![Some(node.x), Some(node.scale)],
        outputs: vec![Some(node.y)],
        recipe: Arc::new(recipe),
    }))
}

/// Some dimensions: extents, and strides of x, y and scale.
#[derive(Clone, Debug, Default)]
struct Dims(Vec<(usize, [usize; 3])>);

impl Dims {
    fn count(&self) -> usize {
        self.0.iter().map(|(extent, _)| extent).product()
    }

    /// Calls `f` with the number of each dimension, the index along it and its strides, for the `n`th place.
    fn walk(&self, mut n: usize, mut f: impl FnMut(usize, usize, [usize; 3])) {
        for (which, (extent, strides)) in self.0.iter().enumerate().rev() {
            f(which, n % extent, *strides);
            n /= extent;
        }
    }
}

#[derive(Debug)]
struct Quantize {
    dims: Vec<usize>,
    axis: usize,
    block: usize,
    x: Storage,
    y: Storage,
    scale: Storage,
    /// Strides of x, y and scale.
    strides: [Vec<usize>; 3],
}

impl Recipe for Quantize {
    fn kernel(&self, _threads: usize) -> Box<dyn LibraryKernel> {
        Box::new(QuantizeKernel::new(self))
    }
}

#[derive(Debug)]
struct QuantizeKernel {
    extent: usize,
    block: usize,
    x: Storage,
    y: Storage,
    scale: Storage,
    /// Strides of the axis in x and y.
    step: [usize; 2],
    /// Places that may be worked on at once, and those of each that may not, as neighbors share bytes.
    apart: Dims,
    together: Dims,
    /// Dimension that numbers blocks of the axis: true if it is in `apart`, and its number there.
    blocks: (bool, usize),
}

impl QuantizeKernel {
    fn new(work: &Quantize) -> QuantizeKernel {
        let extent = work.dims[work.axis];
        let step = [work.strides[0][work.axis], work.strides[1][work.axis]];
        let mut dims: Vec<(bool, usize, [usize; 3])> = Vec::new();
        for (axis, extent) in work.dims.iter().enumerate().filter(|(axis, _)| *axis != work.axis) {
            dims.push((false, *extent, std::array::from_fn(|i| work.strides[i][axis])));
        }
        let scale_step = work.strides[2][work.axis];
        dims.push((true, extent.div_ceil(work.block), [step[0] * work.block, step[1] * work.block, scale_step]));
        let whole_bytes = |stride: usize| (stride * work.y.bits()).is_multiple_of(8);
        // Where all larger strides are whole bytes, places along them share no byte.
        let inner = if extent.min(work.block) > 1 && !whole_bytes(step[1]) { Some(step[1]) } else { None };
        let crooked = dims.iter().filter(|(_, extent, s)| *extent > 1 && !whole_bytes(s[1])).map(|(_, _, s)| s[1]);
        let limit = crooked.chain(inner).max();
        let (mut apart, mut together, mut blocks) = (Dims::default(), Dims::default(), (true, 0));
        for (is_block, extent, strides) in dims {
            let alone = limit.is_none_or(|limit| strides[1] > limit);
            let list = if alone { &mut apart } else { &mut together };
            if is_block {
                blocks = (alone, list.0.len());
            }
            list.0.push((extent, strides));
        }
        QuantizeKernel {
            extent,
            block: work.block,
            x: work.x,
            y: work.y,
            scale: work.scale,
            step,
            apart,
            together,
            blocks,
        }
    }
}

/// Addresses of x, y and scale, shared with the threads that work on them.
struct Addresses {
    x: *const u8,
    y: *mut u8,
    scale: *mut u8,
}

// SAFETY: inputs are only read, and no byte of a result is used by two units.
unsafe impl Sync for Addresses {}

impl LibraryKernel for QuantizeKernel {
    unsafe fn run(&self, pool: &Pool, inputs: &[*const u8], outputs: &[*mut u8], _scratch: *mut u8) {
        let isa = Isa::best();
        let addresses = &Addresses { x: inputs[0], y: outputs[0], scale: outputs[1] };
        let (units, each) = (self.apart.count(), self.together.count());
        let per_unit = (PER_UNIT / (each * self.block.min(self.extent)).max(1)).max(1);
        pool.run(units.div_ceil(per_unit), &|group| {
            for unit in group * per_unit..((group + 1) * per_unit).min(units) {
                for within in 0..each {
                    let (mut at, mut block) = ([0; 3], 0);
                    for (alone, dims, n) in [(true, &self.apart, unit), (false, &self.together, within)] {
                        dims.walk(n, |which, i, strides| {
                            for (at, stride) in at.iter_mut().zip(strides) {
                                *at += i * stride;
                            }
                            if (alone, which) == self.blocks {
                                block = i;
                            }
                        });
                    }
                    let len = self.block.min(self.extent - block * self.block);
                    // SAFETY: the block lies within the views, for which the caller answers; units share no byte.
                    unsafe { self.quantize(isa, addresses, at, len) };
                }
            }
        });
    }
}

impl QuantizeKernel {
    /// # Safety
    /// The block's elements and its scale can be used, and nobody else uses their bytes.
    unsafe fn quantize(&self, isa: Isa, addresses: &Addresses, [x, y, scale]: [usize; 3], len: usize) {
        let mut values = [0f32; PIECE];
        let mut largest = 0f32;
        for start in (0..len).step_by(PIECE) {
            let values = &mut values[..PIECE.min(len - start)];
            // SAFETY: the caller's promise.
            unsafe { self.x.load(isa, addresses.x, x + start * self.step[0], self.step[0], values) };
            // `max` passes over NaN.
            largest = values.iter().fold(largest, |largest, value| largest.max(value.abs()));
        }
        let most = self::largest(self.y);
        let wanted = f64::from(largest) / most;
        // SAFETY: the caller's promise.
        let divisor = unsafe { self.put_scale(isa, addresses.scale, scale, wanted) };
        for start in (0..len).step_by(PIECE) {
            let values = &mut values[..PIECE.min(len - start)];
            if len > PIECE {
                // SAFETY: the caller's promise.
                unsafe { self.x.load(isa, addresses.x, x + start * self.step[0], self.step[0], values) };
            }
            for value in values.iter_mut() {
                let quotient = if divisor == 0.0 { 0.0 } else { *value / divisor };
                *value = quotient.clamp(-most as f32, most as f32);
            }
            // SAFETY: the caller's promise.
            unsafe { self.y.store(isa, values, addresses.y, y + start * self.step[1], self.step[1]) };
        }
    }

    /// Writes a scale that is not below `wanted` if there is one, and returns it.
    ///
    /// # Safety
    /// The scale can be written.
    unsafe fn put_scale(&self, isa: Isa, base: *mut u8, offset: usize, wanted: f64) -> f32 {
        let scale = match self.scale {
            Storage::Code(code) => {
                let scale = code.encode_up(wanted);
                // SAFETY: the caller's promise.
                unsafe { minifloat::write(base, offset, code.bits(), scale) };
                return code.decode(scale);
            }
            Storage::F16 => {
                let near = f16::from_f64(wanted);
                let up = if near.to_f64() < wanted { f16::from_bits(near.to_bits() + 1) } else { near };
                up.min(f16::MAX).to_f32()
            }
            Storage::BF16 => {
                let near = bf16::from_f64(wanted);
                let up = if near.to_f64() < wanted { bf16::from_bits(near.to_bits() + 1) } else { near };
                up.min(bf16::MAX).to_f32()
            }
            _ => (wanted as f32).min(f32::MAX),
        };
        // SAFETY: the caller's promise.
        unsafe { self.scale.store(isa, &[scale], base, offset, 1) };
        scale
    }
}

#[derive(Debug)]
struct Dequantize {
    dims: Vec<usize>,
    /// Extents of a block.
    blocks: Vec<usize>,
    negative: bool,
    x: Storage,
    y: Storage,
    scale: Storage,
    /// Strides of x, y and scale.
    strides: [Vec<usize>; 3],
}

impl Recipe for Dequantize {
    fn kernel(&self, _threads: usize) -> Box<dyn LibraryKernel> {
        Box::new(DequantizeKernel::new(self))
    }
}

#[derive(Debug)]
struct DequantizeKernel {
    negative: bool,
    x: Storage,
    y: Storage,
    scale: Storage,
    /// Dimension that lines run along: extent, strides in x, y and scale, elements of a block.
    inner: (usize, [usize; 3], usize),
    /// Other dimensions; the elements of a block along each are `blocks`.
    outer: Dims,
    blocks: Vec<usize>,
}

impl DequantizeKernel {
    fn new(work: &Dequantize) -> DequantizeKernel {
        let strides = |axis: usize| -> [usize; 3] { std::array::from_fn(|i| work.strides[i][axis]) };
        let axes = 0..work.dims.len();
        // Lines along the closest elements of the result.
        let inner = axes.clone().filter(|a| work.dims[*a] > 1).min_by_key(|a| work.strides[1][*a]).unwrap_or(0);
        let outer: Vec<usize> = axes.filter(|axis| *axis != inner).collect();
        DequantizeKernel {
            negative: work.negative,
            x: work.x,
            y: work.y,
            scale: work.scale,
            inner: (work.dims[inner], strides(inner), work.blocks[inner]),
            outer: Dims(outer.iter().map(|axis| (work.dims[*axis], strides(*axis))).collect()),
            blocks: outer.iter().map(|axis| work.blocks[*axis]).collect(),
        }
    }
}

impl LibraryKernel for DequantizeKernel {
    unsafe fn run(&self, pool: &Pool, inputs: &[*const u8], outputs: &[*mut u8], _scratch: *mut u8) {
        let isa = Isa::best();
        let addresses = &Addresses { x: inputs[0], y: outputs[0], scale: inputs[1].cast_mut() };
        let pieces = self.inner.0.div_ceil(PIECE);
        let all = self.outer.count() * pieces;
        let per_unit = (PER_UNIT / self.inner.0.min(PIECE)).max(1);
        pool.run(all.div_ceil(per_unit), &|unit| {
            for n in unit * per_unit..((unit + 1) * per_unit).min(all) {
                let mut at = [0; 3];
                self.outer.walk(n / pieces, |which, i, [x, y, scale]| {
                    at[0] += i * x;
                    at[1] += i * y;
                    at[2] += i / self.blocks[which] * scale;
                });
                // SAFETY: the line lies within the views, for which the caller answers; no other unit has it.
                unsafe { self.dequantize(isa, addresses, at, n % pieces * PIECE) };
            }
        });
    }
}

impl DequantizeKernel {
    /// Computes a piece of a line.
    ///
    /// # Safety
    /// The line's elements and their scales can be used, and nobody else writes them.
    unsafe fn dequantize(&self, isa: Isa, addresses: &Addresses, at: [usize; 3], start: usize) {
        let (extent, strides, block) = self.inner;
        let len = PIECE.min(extent - start);
        let mut values = [0f32; PIECE];
        // SAFETY: the caller's promise.
        unsafe { self.x.load(isa, addresses.x, at[0] + start * strides[0], strides[0], &mut values[..len]) };
        let mut i = 0;
        while i < len {
            let (which, place) = ((start + i) / block, (start + i) % block);
            let end = len.min(i + block - place);
            let mut scale = [0f32];
            // SAFETY: the caller's promise.
            unsafe { self.scale.load(isa, addresses.scale, at[2] + which * strides[2], 1, &mut scale) };
            let factor = if self.negative { (-f64::from(scale[0])).exp2() as f32 } else { scale[0] };
            values[i..end].iter_mut().for_each(|value| *value *= factor);
            i = end;
        }
        // SAFETY: the caller's promise.
        unsafe { self.y.store(isa, &values[..len], addresses.y, at[1] + start * strides[1], strides[1]) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::testing::{Bench, code_of, noise, unit};
    use DataType::{
        BFloat16, Boolean, Float, Fp4E2M1, Fp6E2M3, Fp6E3M2, Fp8E4M3, Fp8E4M3Fnuz, Fp8E5M2, Fp8E8M0, Half, Int8, Int32,
        UInt8,
    };
    use hipdnn_schemas::{Operation, TensorDef};

    /// Case: name, extents, strides of x and of y, the axis, elements of a block.
    type Case = (&'static str, &'static [i64], &'static [i64], &'static [i64], Option<i64>, i32);

    const CASES: &[Case] = &[
        ("rows", &[5, 64], &[64, 1], &[64, 1], None, 32),
        ("rows with a rest", &[5, 75], &[75, 1], &[75, 1], Some(1), 32),
        ("columns", &[70, 6], &[6, 1], &[6, 1], Some(0), 16),
        ("channels of images", &[2, 40, 3, 5], &[600, 15, 5, 1], &[600, 15, 5, 1], Some(1), 32),
        ("channels last", &[2, 40, 3, 5], &[600, 1, 200, 40], &[600, 1, 200, 40], Some(1), 8),
        ("the axis becomes the closest", &[6, 33, 4], &[132, 4, 1], &[132, 1, 33], Some(1), 32),
        ("with gaps", &[3, 5, 20], &[500, 99, 3], &[430, 85, 4], None, 7),
        ("blocks longer than a piece", &[2, 1500], &[1500, 1], &[1500, 1], None, 1100),
        ("one number", &[1], &[1], &[1], None, 32),
        ("blocks of one", &[3, 7], &[7, 1], &[7, 1], None, 1),
        ("many rows", &[300, 321], &[321, 1], &[321, 1], None, 32),
    ];

    fn blocks(dims: &[i64], axis: usize, block: i64) -> Vec<i64> {
        let mut dims = dims.to_vec();
        dims[axis] = (dims[axis] + block - 1) / block;
        dims
    }

    /// Number of an element's block among all blocks.
    fn block_of(mut i: usize, dims: &[i64], sizes: &[i64]) -> usize {
        let (mut block, mut blocks) = (0, 1);
        for (extent, size) in dims.iter().zip(sizes).rev() {
            let at = i as i64 % extent;
            i /= *extent as usize;
            block += at / size * blocks;
            blocks *= (extent + size - 1) / size;
        }
        block as usize
    }

    #[test]
    fn quantising_scales_blocks_to_the_range_of_their_type() {
        let types = [
            (Float, Fp8E4M3, Fp8E8M0),
            (Half, Fp8E5M2, Float),
            (BFloat16, Fp4E2M1, Fp8E8M0),
            (Float, Fp4E2M1, Fp8E4M3),
            (Float, Fp6E2M3, Half),
            (Float, Fp6E3M2, BFloat16),
            (Half, Fp8E4M3Fnuz, Fp8E8M0),
            (Float, Int8, Float),
            (BFloat16, UInt8, Half),
            (Float, Int32, Fp8E8M0),
            (Float, BFloat16, BFloat16),
        ];
        for ((what, dims, x_strides, y_strides, axis, size), (x_type, y_type, scale_type)) in
            CASES.iter().flat_map(|case| types.iter().map(move |types| (*case, *types)))
        {
            let at = axis.map_or(dims.len() - 1, |axis| axis as usize);
            let node = BlockScaleQuantize {
                x: TensorUid(0),
                y: TensorUid(1),
                scale: TensorUid(2),
                block_size: size,
                axis,
                transpose: x_strides != y_strides,
            };
            let mut bench = Bench::new(
                Operation::BlockScaleQuantize(node),
                vec![
                    TensorDef::new(0, x_type, dims).strided(x_strides),
                    TensorDef::new(1, y_type, dims).strided(y_strides),
                    TensorDef::new(2, scale_type, &blocks(dims, at, i64::from(size))),
                ],
            );
            let mut sizes = vec![1; dims.len()];
            sizes[at] = i64::from(size);
            // Blocks of very different magnitudes, some all zero.
            let x = bench.fill(0, |i| {
                let block = block_of(i, dims, &sizes);
                if block % 5 == 4 { 0.0 } else { noise(i) * 2f64.powi(block as i32 * 7 % 23 - 11) }
            });
            let largest = match y_type {
                Int8 => 127.0,
                UInt8 => 255.0,
                Int32 => 2147483647.0,
                BFloat16 => bf16::MAX.to_f64(),
                narrow => f64::from(code_of(narrow).unwrap().largest()),
            };
            let rounded = |quotient: f64| match y_type {
                Int8 => quotient.round_ties_even().clamp(-128.0, 127.0),
                UInt8 => quotient.round_ties_even().clamp(0.0, 255.0),
                Int32 => quotient.round_ties_even().clamp(-2147483648.0, 2147483647.0),
                BFloat16 => bf16::from_f32(quotient.clamp(-largest, largest) as f32).to_f64(),
                narrow => {
                    let code = code_of(narrow).unwrap();
                    f64::from(code.decode(code.encode(quotient as f32)))
                }
            };
            for threads in [1, 3] {
                let got = bench.run(threads);
                let mut most = vec![0f64; got[&2].len()];
                for (i, x) in x.iter().enumerate() {
                    let block = block_of(i, dims, &sizes);
                    most[block] = most[block].max(x.abs());
                }
                for (block, (scale, most)) in got[&2].iter().zip(&most).enumerate() {
                    let wanted = most / largest;
                    // The next number of the scale's type below it would be too small; for float it is the nearest.
                    let below = match scale_type {
                        Fp8E8M0 => scale / 2.0,
                        Fp8E4M3 => {
                            let code = code_of(scale_type).unwrap();
                            f64::from(code.decode(code.encode(*scale as f32).saturating_sub(1)))
                        }
                        _ => (scale * (1.0 - 2.0 * unit(scale_type).0)).min(scale - 2.0 * unit(scale_type).1),
                    };
                    let smallest = scale_type == Fp8E8M0 && *scale == 2f64.powi(-127);
                    let fits = *scale >= wanted * (1.0 - if scale_type == Float { 2f64.powi(-24) } else { 0.0 });
                    assert!(
                        fits && (below < wanted || smallest || *scale == 0.0),
                        "{what} {block}: {scale} for {wanted}"
                    );
                }
                for (i, x) in x.iter().enumerate() {
                    let scale = got[&2][block_of(i, dims, &sizes)];
                    let quotient = if scale == 0.0 { 0.0 } else { *x as f32 / scale as f32 };
                    let want = rounded(f64::from(quotient));
                    assert_eq!(got[&1][i], want, "{what} {y_type} {scale_type} element {i}: {x} by {scale}");
                }
            }
        }
    }

    #[test]
    fn dequantising_multiplies_by_the_scale_of_the_block() {
        let types = [
            (Fp8E4M3, Fp8E8M0, Float, false),
            (Fp8E5M2, Float, Half, false),
            (Fp4E2M1, Fp8E4M3, BFloat16, false),
            (Fp6E2M3, Half, Float, false),
            (Fp6E3M2, Int8, Float, true),
            (Int8, Float, Float, true),
            (Half, BFloat16, Float, false),
        ];
        // The sizes of blocks of the last dimensions.
        let sizes = |rank: usize, size: i32| match rank {
            1 => vec![size],
            2 => vec![2, size],
            _ => vec![3, 1, size],
        };
        for ((what, dims, x_strides, y_strides, _, size), (x_type, scale_type, y_type, negative)) in
            CASES.iter().flat_map(|case| types.iter().map(move |types| (*case, *types)))
        {
            let block_size = sizes(dims.len(), size);
            let mut all = vec![1i64; dims.len() - block_size.len()];
            all.extend(block_size.iter().map(|size| i64::from(*size)));
            let scale_dims: Vec<i64> = dims.iter().zip(&all).map(|(d, b)| (d + b - 1) / b).collect();
            let node = BlockScaleDequantize {
                x: TensorUid(0),
                scale: TensorUid(1),
                y: TensorUid(2),
                block_size,
                is_negative_scale: negative,
            };
            let mut bench = Bench::new(
                Operation::BlockScaleDequantize(node),
                vec![
                    TensorDef::new(0, x_type, dims).strided(x_strides),
                    TensorDef::new(1, scale_type, &scale_dims),
                    TensorDef::new(2, y_type, dims).strided(y_strides),
                ],
            );
            let x = bench.fill(0, |i| noise(i) * 6.0);
            let scale = bench.fill(1, |i| (noise(i + 7) * 3.0).abs() + 0.5);
            for threads in [1, 3] {
                let got = bench.run(threads);
                for (i, x) in x.iter().enumerate() {
                    let scale = scale[block_of(i, dims, &all)];
                    let want = if negative { x * (-scale).exp2() } else { x * scale };
                    let (relative, smallest) = unit(y_type);
                    // A factor and a product rounded to f32, and then to the type.
                    let bound = want.abs() * (relative + 2.0 * 2f64.powi(-24)) + smallest;
                    assert!((got[&2][i] - want).abs() <= bound, "{what} {x_type} {i}: {} for {want}", got[&2][i]);
                }
            }
        }
    }

    #[test]
    fn extreme_values_saturate() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        // x, the code of the scale, and what the codes of y stand for.
        for (y_type, x, scale, want) in [
            (Fp8E4M3, [inf, -1.0, 0.0, 1.0], 0xFE, [448.0, 0.0, 0.0, 0.0]),
            (Fp8E4M3, [nan, 448.0, -448.0, 1.0], 0x7F, [nan, 448.0, -448.0, 1.0]),
            (Fp4E2M1, [nan, 6.0, -6.0, 0.25], 0x7F, [0.0, 6.0, -6.0, 0.0]),
            (Fp4E2M1, [6.5, 6.0, -3.0, 1.5], 0x80, [3.0, 3.0, -1.5, 1.0]),
            (Fp8E5M2, [0.0, 0.0, 0.0, 0.0], 0x00, [0.0, 0.0, 0.0, 0.0]),
            (Fp8E5M2, [1e-45, 0.0, 0.0, 0.0], 0x00, [0.0, 0.0, 0.0, 0.0]),
        ] {
            let node = BlockScaleQuantize {
                x: TensorUid(0),
                y: TensorUid(1),
                scale: TensorUid(2),
                block_size: 4,
                axis: None,
                transpose: false,
            };
            let tensors =
                vec![TensorDef::new(0, Float, &[4]), TensorDef::new(1, y_type, &[4]), TensorDef::new(2, Fp8E8M0, &[1])];
            let mut bench = Bench::new(Operation::BlockScaleQuantize(node), tensors);
            bench.fill(0, |i| x[i]);
            let got = bench.run(1);
            assert_eq!(got[&2][0], f64::from(code_of(Fp8E8M0).unwrap().decode(scale)), "{y_type} {x:?}");
            for (got, want) in got[&1].iter().zip(want) {
                assert!(*got == want || (got.is_nan() && want.is_nan()), "{y_type} {x:?}: {got} for {want}");
            }
        }
    }

    #[test]
    fn what_is_not_served_is_declined_by_name() {
        let quantize = |y, scale, dims: &[i64], block_size| {
            let node = BlockScaleQuantize {
                x: TensorUid(0),
                y: TensorUid(1),
                scale: TensorUid(2),
                block_size,
                axis: None,
                transpose: false,
            };
            let tensors = vec![
                TensorDef::new(0, Float, &[4, 64]),
                TensorDef::new(1, y, &[4, 64]),
                TensorDef::new(2, scale, dims),
            ];
            Bench::declined(Operation::BlockScaleQuantize(node), tensors)
        };
        let dequantize = |block_size: &[i32], dims: &[i64]| {
            let node = BlockScaleDequantize {
                x: TensorUid(0),
                scale: TensorUid(1),
                y: TensorUid(2),
                block_size: block_size.to_vec(),
                is_negative_scale: false,
            };
            let tensors = vec![
                TensorDef::new(0, Fp8E4M3, &[4, 64]),
                TensorDef::new(1, Float, dims),
                TensorDef::new(2, Float, &[4, 64]),
            ];
            Bench::declined(Operation::BlockScaleDequantize(node), tensors)
        };
        for (reason, want) in [
            (
                quantize(Boolean, Float, &[4, 2], 32),
                "node 0 (BlockScaleQuantize): y (tensor 1): expected fp8_e4m3, fp8_e5m2, fp8_e4m3_fnuz, fp8_e5m2_fnuz, fp6_e2m3, fp6_e3m2, fp4_e2m1, int8, uint8, int32, float, half or bfloat16, got boolean",
            ),
            (
                quantize(Fp8E4M3, Int8, &[4, 2], 32),
                "scale (tensor 2): expected float, half, bfloat16, fp8_e8m0 or fp8_e4m3, got int8",
            ),
            (quantize(Fp8E4M3, Float, &[4, 3], 32), "scale (tensor 2): expected extents [4, 2], got [4, 3]"),
            (
                dequantize(&[1, 1, 32], &[4, 2]),
                "node 0 (BlockScaleDequantize): block_size: expected at most as many entries as x has dimensions, got [1, 1, 32]",
            ),
            (dequantize(&[32], &[2, 2]), "scale (tensor 1): expected extents [4, 2], got [2, 2]"),
        ] {
            assert!(reason.contains(want), "{reason}");
        }
    }
}
