//! Pooling, and its gradient.
//!
//! Conventions are those of hipDNN's own reference: an index is the flattened place in the image, -1 where zero padding
//! is the greatest; of equal values the first wins. Other than there a NaN in the window is the greatest.

use hipdnn_schemas::{DataType, Graph, PaddingMode, ResampleBwd, ResampleFwd, ResampleMode, TensorUid};

use crate::checks::{check_compute_type, check_type};
use crate::{Declined, NodeLabel, TensorLabel};

/// Types of indices.
pub const INDEX_TYPES: &[DataType] = &[DataType::Int32, DataType::Int64];

/// Types that pooling may ask to be computed in.
pub const COMPUTE: &[DataType] =
    &[DataType::Float, DataType::Half, DataType::BFloat16, DataType::Double, DataType::Int32];

/// Reduction of the elements of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Maximum; zeros around the image count if that is set.
    Max {
        /// True if the zeros around the image count.
        zeros: bool,
    },
    /// Average; zeros around the image count if that is set.
    Average {
        /// True if the zeros around the image count.
        zeros: bool,
    },
}

impl Mode {
    /// True for the maximum, whose result is one of the elements.
    pub fn is_greatest(self) -> bool {
        matches!(self, Mode::Max { .. })
    }
}

/// Pooling as its node describes it: `large` is the image that windows move over, or its gradient, `small` has a place
/// for each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooling<'g> {
    /// Reduction of the elements of a window.
    pub mode: Mode,
    /// Image that windows move over.
    pub large: TensorUid,
    /// Image with a place for each window.
    pub small: TensorUid,
    /// Indices of the maxima.
    pub index: Option<TensorUid>,
    /// Extents of a window.
    pub window: &'g [i64],
    /// Stride from window to window.
    pub stride: &'g [i64],
    /// Padding in front: distance by which the first window begins before the image.
    pub padding: &'g [i64],
}

/// Reads pooling of images of these types.
///
/// # Errors
/// If the engine does not support the node, with the reason.
pub fn forward<'g>(
    graph: &Graph,
    index: usize,
    node: &'g ResampleFwd,
    types: &[DataType],
) -> Result<Pooling<'g>, Declined> {
    let lists = [&node.pre_padding, &node.post_padding, &node.stride, &node.window];
    let images = [("x", node.x), ("y", node.y)];
    pooling(graph, index, images, node.index, lists, (node.resample_mode, node.padding_mode), types)
}

/// Reads the gradient of pooling, of images of these types.
///
/// # Errors
/// If the engine does not support the node, with the reason.
pub fn backward<'g>(
    graph: &Graph,
    index: usize,
    node: &'g ResampleBwd,
    types: &[DataType],
) -> Result<Pooling<'g>, Declined> {
    let lists = [&node.pre_padding, &node.post_padding, &node.stride, &node.window];
    let images = [("dx", node.dx), ("dy", node.dy)];
    let pooling = pooling(graph, index, images, node.index, lists, (node.resample_mode, node.padding_mode), types)?;
    if pooling.mode.is_greatest() && node.index.is_none() {
        let (attribute, wanted) = ("index_tensor_uid", "the indices of the forward pass for maxpool");
        let (node, value) = (NodeLabel::of(graph, index), "none".to_string());
        return Err(Declined::Attribute { node, attribute, value, wanted });
    }
    Ok(pooling)
}

fn pooling<'g>(
    graph: &Graph,
    index: usize,
    [large, small]: [(&'static str, TensorUid); 2],
    indices: Option<TensorUid>,
    [pre_padding, post_padding, stride, window]: [&'g Vec<i64>; 4],
    (resample_mode, padding_mode): (ResampleMode, PaddingMode),
    types: &[DataType],
) -> Result<Pooling<'g>, Declined> {
    let node = || NodeLabel::of(graph, index);
    check_compute_type(graph, index, COMPUTE)?;
    let declined = |attribute, value: String, wanted| Declined::Attribute { node: node(), attribute, value, wanted };
    let pads = pre_padding.iter().chain(post_padding).any(|pad| *pad > 0);
    let mode = match (resample_mode, padding_mode) {
        (ResampleMode::MaxPool, PaddingMode::Zero) => Mode::Max { zeros: true },
        (ResampleMode::MaxPool, PaddingMode::Unset) if pads => {
            return Err(declined(
                "padding_mode",
                padding_mode.to_string(),
                "neg_inf_pad or zero_pad for padded maxpool",
            ));
        }
        (ResampleMode::MaxPool, _) => Mode::Max { zeros: false },
        (ResampleMode::AvgPoolIncludePadding, _) => Mode::Average { zeros: true },
        (ResampleMode::AvgPoolExcludePadding, _) => Mode::Average { zeros: false },
        (other, _) => {
            let wanted = "maxpool, avgpool_exclude_padding or avgpool_include_padding";
            return Err(declined("resample_mode", other.to_string(), wanted));
        }
    };
    for (role, uid) in [large, small] {
        check_type(graph, index, role, uid, types)?;
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
    let ((_, large), (_, small)) = (large, small);
    Ok(Pooling { mode, large, small, index: indices, window, stride, padding: pre_padding })
}

#[cfg(test)]
mod tests;
