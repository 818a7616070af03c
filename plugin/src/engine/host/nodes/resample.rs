//! Pooling, and its gradient.
//!
//! Vectors run along the channels where these lie closest together, else along the last spatial dimension; sums are kept in
//! `f64`. Conventions are those of hipDNN's own reference: an index is the flattened place in the image, -1 where zero padding
//! is the greatest; of equal values the first wins. Other than there a NaN in the window is the greatest.

mod backward;
mod forward;

use std::sync::Arc;

use hipdnn_schemas::{DataType, Graph, PaddingMode, ResampleBwd, ResampleFwd, ResampleMode, Tensor, TensorUid};

use super::NodeWork;
use crate::engine::checks::{check_compute_type, check_type};
use crate::engine::host::applicability::Work;
use crate::engine::host::blueprint::{lift, lift_spatial};
use crate::engine::host::pointwise::Storage;
use crate::engine::{Declined, NodeLabel, TensorLabel};

/// Types of images, in any mix.
pub const TYPES: &[DataType] = &[
    DataType::Float,
    DataType::Half,
    DataType::BFloat16,
    DataType::Double,
    DataType::Int32,
    DataType::Int8,
    DataType::UInt8,
];

/// Types of indices.
pub const INDEX_TYPES: &[DataType] = &[DataType::Int32, DataType::Int64];

/// Types that pooling may ask to be computed in.
pub const COMPUTE: &[DataType] =
    &[DataType::Float, DataType::Half, DataType::BFloat16, DataType::Double, DataType::Int32];

/// Places that are worked on together.
const LANES: usize = 128;

/// Looks at pooling.
///
/// # Errors
/// Why the engine does not take it.
pub fn lower(graph: &Graph, index: usize, node: &ResampleFwd) -> Result<Work, Declined> {
    let lists = [&node.pre_padding, &node.post_padding, &node.stride, &node.window];
    let images = [("x", node.x), ("y", node.y)];
    let pooling = pooling(graph, index, images, node.index, lists, (node.resample_mode, node.padding_mode))?;
    Ok(Work::Node(NodeWork {
        name: "pooling",
        inputs: vec![Some(node.x)],
        outputs: vec![Some(node.y), node.index],
        recipe: Arc::new(forward::Recipe(pooling)),
    }))
}

/// Looks at the gradient of pooling.
///
/// # Errors
/// Why the engine does not take it.
pub fn lower_backward(graph: &Graph, index: usize, node: &ResampleBwd) -> Result<Work, Declined> {
    let lists = [&node.pre_padding, &node.post_padding, &node.stride, &node.window];
    let images = [("dx", node.dx), ("dy", node.dy)];
    let pooling = pooling(graph, index, images, node.index, lists, (node.resample_mode, node.padding_mode))?;
    if pooling.mode.is_greatest() && node.index.is_none() {
        let (attribute, wanted) = ("index_tensor_uid", "the indices of the forward pass for maxpool");
        let (node, value) = (NodeLabel::of(graph, index), "absent".to_string());
        return Err(Declined::Attribute { node, attribute, value, wanted });
    }
    Ok(Work::Node(NodeWork {
        name: "pooling gradient",
        inputs: vec![Some(node.dy), node.index],
        outputs: vec![Some(node.dx)],
        recipe: Arc::new(backward::Recipe(pooling)),
    }))
}

/// How the elements of a window are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Their greatest; zeros around the image count if that is set.
    Greatest { zeros: bool },
    /// Their sum over their number; zeros around the image count if that is set.
    Average { zeros: bool },
}

impl Mode {
    fn is_greatest(self) -> bool {
        matches!(self, Mode::Greatest { .. })
    }
}

/// How an image lies, lifted to three spatial dimensions.
#[derive(Clone, Copy, Debug)]
struct Image {
    storage: Storage,
    /// Of (batch, channel, depth, height, width).
    strides: [usize; 5],
}

impl Image {
    fn new(tensor: &Tensor) -> Image {
        let storage = Storage::of(tensor.data_type()).expect("the types of the tables have a storage");
        Image { storage, strides: lift(tensor.strides(), 0) }
    }

    fn offset(&self, at: [usize; 5]) -> usize {
        at.iter().zip(self.strides).map(|(i, stride)| i * stride).sum()
    }
}

/// A pooling: `large` is its input, `small` its output.
#[derive(Clone, Debug)]
struct Pooling {
    mode: Mode,
    batch: usize,
    channels: usize,
    large: Image,
    small: Image,
    index: Option<Image>,
    input: [usize; 3],
    output: [usize; 3],
    window: [usize; 3],
    stride: [usize; 3],
    pad: [usize; 3],
}

impl Pooling {
    /// Taps of a window along an axis that are inside of the image, and the place of the first of them.
    fn taps(&self, axis: usize, output: usize) -> (std::ops::Range<usize>, usize) {
        let begin = output * self.stride[axis];
        let first = self.pad[axis].saturating_sub(begin).min(self.window[axis]);
        let last = (self.input[axis] + self.pad[axis]).saturating_sub(begin).min(self.window[axis]);
        (first..last.max(first), (begin + first).saturating_sub(self.pad[axis]))
    }

    /// Windows along an axis that have this place of the image.
    fn windows(&self, axis: usize, place: usize) -> std::ops::Range<usize> {
        let padded = place + self.pad[axis];
        let first = (padded + 1).saturating_sub(self.window[axis]).div_ceil(self.stride[axis]);
        let last = (padded / self.stride[axis] + 1).min(self.output[axis]);
        first..last.max(first)
    }

    /// What a sum over a window is divided by: a product over the axes.
    fn divisor(&self, at: [usize; 3]) -> f64 {
        (0..3).map(|axis| self.divisor_of(axis, at[axis])).product()
    }

    /// An axis' part of the divisor.
    fn divisor_of(&self, axis: usize, at: usize) -> f64 {
        match self.mode {
            Mode::Greatest { .. } => 1.0,
            Mode::Average { zeros: true } => self.window[axis] as f64,
            // A window wholly outside sums nothing: whatever it is divided by gives 0.
            Mode::Average { zeros: false } => self.taps(axis, at).0.len().max(1) as f64,
        }
    }

    /// Whether vectors run along the channels.
    fn along_channels(&self) -> bool {
        let [_, large, .., large_width] = self.large.strides;
        self.channels > 1 && (self.output[2] == 1 || large < large_width)
    }
}

fn pooling(
    graph: &Graph,
    index: usize,
    [large, small]: [(&'static str, TensorUid); 2],
    indices: Option<TensorUid>,
    [pre_padding, post_padding, stride, window]: [&Vec<i64>; 4],
    (resample_mode, padding_mode): (ResampleMode, PaddingMode),
) -> Result<Pooling, Declined> {
    let node = || NodeLabel::of(graph, index);
    check_compute_type(graph, index, COMPUTE)?;
    let declined = |attribute, value: String, wanted| Declined::Attribute { node: node(), attribute, value, wanted };
    let pads = pre_padding.iter().chain(post_padding).any(|pad| *pad > 0);
    let mode = match (resample_mode, padding_mode) {
        (ResampleMode::MaxPool, PaddingMode::Zero) => Mode::Greatest { zeros: true },
        (ResampleMode::MaxPool, PaddingMode::Unset) if pads => {
            return Err(declined(
                "padding_mode",
                padding_mode.to_string(),
                "neg_inf_pad or zero_pad for padded maxpool",
            ));
        }
        (ResampleMode::MaxPool, _) => Mode::Greatest { zeros: false },
        (ResampleMode::AvgPoolIncludePadding, _) => Mode::Average { zeros: true },
        (ResampleMode::AvgPoolExcludePadding, _) => Mode::Average { zeros: false },
        (other, _) => {
            let wanted = "maxpool, avgpool_exclude_padding or avgpool_include_padding";
            return Err(declined("resample_mode", other.to_string(), wanted));
        }
    };
    for (role, uid) in [large, small] {
        check_type(graph, index, role, uid, TYPES)?;
        let rank = graph.tensor(uid).rank();
        if !(3..=5).contains(&rank) {
            let tensor = TensorLabel::of(graph, uid);
            return Err(Declined::Rank { node: node(), role, tensor, rank, wanted: "3 to 5" });
        }
    }
    if let Some(uid) = indices {
        if !mode.is_greatest() {
            return Err(declined("index_tensor_uid", uid.to_string(), "no indices but for maxpool"));
        }
        check_type(graph, index, "index", uid, INDEX_TYPES)?;
    }
    let [large, small] = [large, small].map(|(_, uid)| graph.tensor(uid));
    let spatial = |tensor: &Tensor| {
        let [_, _, sizes @ ..] = lift(tensor.dims(), 1);
        sizes
    };
    Ok(Pooling {
        mode,
        batch: large.dims()[0],
        channels: large.dims()[1],
        large: Image::new(large),
        small: Image::new(small),
        index: indices.map(|uid| Image::new(graph.tensor(uid))),
        input: spatial(large),
        output: spatial(small),
        window: lift_spatial(window, 1),
        stride: lift_spatial(stride, 1),
        pad: lift_spatial(pre_padding, 0),
    })
}

#[cfg(test)]
mod tests;
