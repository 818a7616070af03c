//! Geometry: layouts of operands, broadcast and lifted to three spatial dimensions, and the convolutions that kernels
//! take.

use hipdnn_cpu_convolution::{Element, Layout, Shape};
use hipdnn_engine_core::checks::{check_compute_type, check_size, check_type};
use hipdnn_engine_core::{Declined, NodeLabel, TensorLabel};
use hipdnn_schemas::{ConvMode, DataType, Graph, Tensor, TensorUid};
use smallvec::SmallVec;

/// Types of a convolution's input, filter and output, in any mix.
pub const CONVOLUTION_TYPES: &[DataType] = &[DataType::Float, DataType::Half, DataType::BFloat16];

/// Compute types of a convolution.
pub const CONVOLUTION_COMPUTE: &[DataType] = &[DataType::Float];

/// Ranks of a convolution's tensors: one to three of the dimensions are spatial.
pub const CONVOLUTION_RANKS: std::ops::RangeInclusive<usize> = 3..=5;

/// Maximum extents with padding of (depth, height, width): planning makes tables of rows.
pub const CONVOLUTION_EXTENTS: [u128; 3] = [1 << 20, 1 << 20, 1 << 24];

/// Maximum number of taps of a filter: planning makes a table of them.
pub const CONVOLUTION_TAPS: u128 = 1 << 20;

/// Maximum number of elements of an image with padding, of all channels, and of all filters: sums of a few times as
/// many bytes for each thread do not overflow.
pub const CONVOLUTION_ELEMENTS: u128 = 1 << 40;

/// Element type of a convolution's tensors of that data type; `None` if its kernels do not take the type.
pub fn element(data_type: DataType) -> Option<Element> {
    match data_type {
        DataType::Float => Some(Element::F32),
        DataType::Half => Some(Element::F16),
        DataType::BFloat16 => Some(Element::BF16),
        _ => None,
    }
}

/// Declines convolutions, in any direction, that the kernels do not take. The operands are those that have the places
/// of x, w and y in the forward convolution.
pub(crate) fn check_convolution_operands(
    graph: &Graph,
    index: usize,
    operands: [(&'static str, TensorUid); 3],
    geometry: &hipdnn_schemas::Convolution,
) -> Result<(), Declined> {
    let node = || NodeLabel::of(graph, index);
    check_compute_type(graph, index, CONVOLUTION_COMPUTE)?;
    for (role, uid) in operands {
        check_type(graph, index, role, uid, CONVOLUTION_TYPES)?;
        let tensor = graph.tensor(uid);
        if !CONVOLUTION_RANKS.contains(&tensor.rank()) {
            let (rank, tensor) = (tensor.rank(), TensorLabel::of(graph, uid));
            return Err(Declined::Rank { node: node(), role, tensor, rank, wanted: "3 to 5" });
        }
        if overlaps(tensor) {
            return Err(Declined::Overlap {
                node: node(),
                role,
                tensor: TensorLabel::of(graph, uid),
                dims: tensor.dims().to_vec(),
                strides: tensor.strides().to_vec(),
            });
        }
    }
    let limit = |what, came, most| check_size(graph, index, what, came, most);
    let [x, w, _] = operands.map(|(_, uid)| graph.tensor(uid));
    let spatial = x.rank() - 2;
    let mut image = x.dims()[1] as u128;
    for axis in 0..spatial {
        let padding = geometry.pre_padding[axis] + geometry.post_padding[axis];
        let extent = x.dims()[2 + axis] as u128 + padding as u128;
        limit("an extent with padding", extent, CONVOLUTION_EXTENTS[3 - spatial + axis])?;
        image *= extent;
    }
    limit("taps of the filter", w.dims()[2..].iter().map(|d| *d as u128).product(), CONVOLUTION_TAPS)?;
    limit("elements of an image with padding", image, CONVOLUTION_ELEMENTS)?;
    limit("elements of the filter", w.elements() as u128, CONVOLUTION_ELEMENTS)
}

/// True if two elements may share a place: each stride has to step over all that the smaller ones reach.
fn overlaps(tensor: &Tensor) -> bool {
    let mut order: SmallVec<[(usize, usize); 5]> =
        tensor.strides().iter().copied().zip(tensor.dims().iter().copied()).collect();
    order.retain(|(_, extent)| *extent > 1);
    order.sort_unstable();
    let mut reach = 0;
    order.into_iter().any(|(stride, extent)| {
        let within = stride <= reach;
        reach += stride * (extent - 1);
        within
    })
}

/// Strides of a tensor along the dimensions of the output: 0 where it is broadcast. A scalar may have any rank.
pub(crate) fn broadcast(tensor: &Tensor, output: &Tensor) -> Vec<usize> {
    if tensor.elements() == 1 {
        return vec![0; output.rank()];
    }
    tensor.dims().iter().zip(tensor.strides()).map(|(extent, stride)| if *extent == 1 { 0 } else { *stride }).collect()
}

/// Lifts a list for (batch, channel, spatial…) to three spatial dimensions, with `missing` for those that are not
/// there: they come first.
pub(crate) fn lift(list: &[usize], missing: usize) -> [usize; 5] {
    let mut lifted = [missing; 5];
    lifted[..2].copy_from_slice(&list[..2]);
    lifted[5 - (list.len() - 2)..].copy_from_slice(&list[2..]);
    lifted
}

/// Variant of [`lift`] for lists of the spatial dimensions alone.
pub(crate) fn lift_spatial(list: &[i64], missing: usize) -> [usize; 3] {
    let mut lifted = [missing; 3];
    for (to, from) in lifted[3 - list.len()..].iter_mut().zip(list) {
        *to = usize::try_from(*from).expect("a checked convolution has no negative entries");
    }
    lifted
}

/// Layout of a tensor of a convolution, lifted to three spatial dimensions.
pub(crate) fn layout(tensor: &Tensor) -> Layout {
    let element = element(tensor.data_type()).expect("applicable convolution types have one");
    // Strides of single places mean nothing: given one value, equal tensors have equal layouts.
    let strides = lift(tensor.strides(), 1);
    let dims = lift(tensor.dims(), 1);
    Layout { element, strides: std::array::from_fn(|i| if dims[i] == 1 { 1 } else { strides[i] }) }
}

/// Sizes of a forward convolution, lifted to three spatial dimensions.
pub(crate) fn shape(geometry: &hipdnn_schemas::Convolution, x: &Tensor, w: &Tensor, y: &Tensor) -> Shape {
    let spatial = |tensor: &Tensor| {
        let [_, _, sizes @ ..] = lift(tensor.dims(), 1);
        sizes
    };
    Shape {
        batch: x.dims()[0],
        groups: x.dims()[1] / w.dims()[1],
        in_channels: x.dims()[1],
        out_channels: w.dims()[0],
        input: spatial(x),
        kernel: spatial(w),
        output: spatial(y),
        stride: lift_spatial(&geometry.stride, 1),
        dilation: lift_spatial(&geometry.dilation, 1),
        pad_before: lift_spatial(&geometry.pre_padding, 0),
        flip: geometry.mode == ConvMode::Convolution,
    }
}
