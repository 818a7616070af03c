//! Pooling, and its gradient: see [`hipdnn_engine_core::ops::pooling`].
//!
//! Vectors run along the channels where these lie closest together, else along the last spatial dimension, see [`single`] and
//! [`rows`]; sums are kept in `f64` but for those of `f32` in lines.

mod backward;
mod forward;
mod rows;
mod single;

use std::sync::Arc;

use hipdnn_cpu_threads::Pool;
use hipdnn_engine_core::Declined;
use hipdnn_engine_core::ops::NUMBERS_AND_FP8;
use hipdnn_engine_core::ops::pooling::{self, Mode};
use hipdnn_schemas::{DataType, Graph, ResampleBwd, ResampleFwd, Tensor};

use super::LibraryOp;
use crate::geometry::{lift, lift_spatial};
use crate::pointwise::Storage;
use crate::work::Work;

/// Number of places that are worked on together.
const LANES: usize = 128;

/// Number of elements below which waking another thread costs more than it saves.
const PER_UNIT: usize = 16 * 1024;

/// Lowers pooling.
///
/// # Errors
/// Reason for which the engine declines the node.
pub fn lower(graph: &Graph, index: usize, node: &ResampleFwd) -> Result<Work, Declined> {
    let pooling = pooling::forward(graph, index, node, NUMBERS_AND_FP8)?;
    Ok(Work::Node(LibraryOp {
        name: "pooling",
        inputs: vec![Some(node.x)],
        outputs: vec![Some(node.y), node.index],
        recipe: Arc::new(forward::Recipe(Pooling::new(graph, index, &pooling))),
    }))
}

/// Lowers the gradient of pooling.
///
/// # Errors
/// Reason for which the engine declines the node.
pub fn lower_backward(graph: &Graph, index: usize, node: &ResampleBwd) -> Result<Work, Declined> {
    let pooling = pooling::backward(graph, index, node, NUMBERS_AND_FP8)?;
    Ok(Work::Node(LibraryOp {
        name: "pooling gradient",
        inputs: vec![Some(node.dy), node.index],
        outputs: vec![Some(node.dx)],
        recipe: Arc::new(backward::Recipe(Pooling::new(graph, index, &pooling))),
    }))
}

/// Layout of an image, lifted to three spatial dimensions.
#[derive(Clone, Copy, Debug)]
struct Image {
    storage: Storage,
    /// Strides of (batch, channel, depth, height, width).
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

/// Pooling: `large` is its input, `small` its output.
#[derive(Clone, Debug)]
struct Pooling {
    mode: Mode,
    /// True if sums are kept in `f64` wherever they are.
    double: bool,
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
    fn new(graph: &Graph, index: usize, node: &pooling::Pooling<'_>) -> Pooling {
        let [large, small] = [node.large, node.small].map(|uid| graph.tensor(uid));
        let spatial = |tensor: &Tensor| {
            let [_, _, sizes @ ..] = lift(tensor.dims(), 1);
            sizes
        };
        Pooling {
            mode: node.mode,
            double: matches!(graph.nodes()[index].compute_data_type, DataType::Double | DataType::Int32),
            batch: large.dims()[0],
            channels: large.dims()[1],
            large: Image::new(large),
            small: Image::new(small),
            index: node.index.map(|uid| Image::new(graph.tensor(uid))),
            input: spatial(large),
            output: spatial(small),
            window: lift_spatial(node.window, 1),
            stride: lift_spatial(node.stride, 1),
            pad: lift_spatial(node.padding, 0),
        }
    }

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

    /// Divisor of a sum over a window: a product over the axes.
    fn divisor(&self, at: [usize; 3]) -> f64 {
        (0..3).map(|axis| self.divisor_of(axis, at[axis])).product()
    }

    /// Factor of the divisor for an axis.
    fn divisor_of(&self, axis: usize, at: usize) -> f64 {
        match self.mode {
            Mode::Max { .. } => 1.0,
            Mode::Average { zeros: true } => self.window[axis] as f64,
            // A window wholly outside sums nothing: whatever it is divided by gives 0.
            Mode::Average { zeros: false } => self.taps(axis, at).0.len().max(1) as f64,
        }
    }

    /// Calls `f` with the first place and the number of lanes that follow it, `most` or fewer along the channels or the
    /// last dimension, until all places of images of these extents are done. A place costs as much as `taps` elements.
    fn walk(
        &self,
        pool: &Pool,
        extents: [usize; 3],
        (along_channels, most): (bool, usize),
        taps: usize,
        f: impl Fn([usize; 5], usize) + Sync,
    ) {
        let [depth, height, width] = extents;
        let channels = if along_channels { 1 } else { self.channels };
        let rows = self.batch * channels * depth * height;
        let of_row = width * (self.channels / channels) * taps;
        let group = (PER_UNIT / of_row.max(1)).max(1);
        pool.run(rows.div_ceil(group), &|unit| {
            for row in unit * group..((unit + 1) * group).min(rows) {
                let (h, rest) = (row % height, row / height);
                let (d, rest) = (rest % depth, rest / depth);
                let (c, n) = (rest % channels, rest / channels);
                if along_channels {
                    for w in 0..width {
                        for c in (0..self.channels).step_by(most) {
                            f([n, c, d, h, w], most.min(self.channels - c));
                        }
                    }
                } else {
                    for w in (0..width).step_by(most) {
                        f([n, c, d, h, w], most.min(width - w));
                    }
                }
            }
        });
    }

    /// True if vectors run along the channels.
    fn along_channels(&self) -> bool {
        let [_, large, .., large_width] = self.large.strides;
        self.channels > 1 && (self.output[2] == 1 || large < large_width)
    }
}

#[cfg(test)]
mod tests;
