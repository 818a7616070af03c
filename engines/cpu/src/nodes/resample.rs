//! Pooling, and its gradient: see [`hipdnn_engine_core::ops::pooling`].
//!
//! Vectors run along the channels where these lie closest together, else along the last spatial dimension, see
//! [`hipdnn_cpu_kernels::pooling`] and [`rows`]; sums are kept in `f64` but for those of `f32` in lines.

mod backward;
mod forward;
mod rows;

use std::sync::Arc;

use hipdnn_cpu_kernels::pooling::{Mode, PER_UNIT, Strides, Windows};
use hipdnn_cpu_threads::Pool;
use hipdnn_engine_core::Declined;
use hipdnn_engine_core::ops::NUMBERS_AND_FP8;
use hipdnn_engine_core::ops::pooling;
use hipdnn_schemas::{DataType, Graph, ResampleBwd, ResampleFwd, Tensor};

use super::LibraryOp;
use crate::geometry::{lift, lift_spatial};
use crate::work::Work;
use hipdnn_cpu_pointwise::Storage;

/// Number of places that are worked on together.
const LANES: usize = 128;

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
    strides: Strides,
}

impl Image {
    fn new(tensor: &Tensor) -> Image {
        let storage = Storage::of(tensor.data_type()).expect("the types of the tables have a storage");
        Image { storage, strides: Strides(lift(tensor.strides(), 0)) }
    }
}

/// Pooling: windows over its input, which is `large`, with a result each in its output, which is `small`.
#[derive(Clone, Debug)]
struct Pooling {
    windows: Windows,
    /// True if sums are kept in `f64` wherever they are.
    double: bool,
    /// Type of the input.
    large: Storage,
    /// Type of the output.
    small: Storage,
    index: Option<Image>,
}

impl Pooling {
    fn new(graph: &Graph, index: usize, node: &pooling::Pooling<'_>) -> Pooling {
        let [large, small] = [node.large, node.small].map(|uid| graph.tensor(uid));
        let spatial = |tensor: &Tensor| {
            let [_, _, sizes @ ..] = lift(tensor.dims(), 1);
            sizes
        };
        let mode = match node.mode {
            pooling::Mode::Max { zeros } => Mode::Max { zeros },
            pooling::Mode::Average { zeros } => Mode::Average { zeros },
        };
        let [of_large, of_small] = [large, small].map(Image::new);
        Pooling {
            windows: Windows {
                mode,
                batch: large.dims()[0],
                channels: large.dims()[1],
                large: of_large.strides,
                small: of_small.strides,
                input: spatial(large),
                output: spatial(small),
                window: lift_spatial(node.window, 1),
                stride: lift_spatial(node.stride, 1),
                pad: lift_spatial(node.padding, 0),
            },
            double: matches!(graph.nodes()[index].compute_data_type, DataType::Double | DataType::Int32),
            large: of_large.storage,
            small: of_small.storage,
            index: node.index.map(|uid| Image::new(graph.tensor(uid))),
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
        let channels = if along_channels { 1 } else { self.windows.channels };
        let rows = self.windows.batch * channels * depth * height;
        let of_row = width * (self.windows.channels / channels) * taps;
        let group = (PER_UNIT / of_row.max(1)).max(1);
        pool.run(rows.div_ceil(group), &|unit| {
            for row in unit * group..((unit + 1) * group).min(rows) {
                let (h, rest) = (row % height, row / height);
                let (d, rest) = (rest % depth, rest / depth);
                let (c, n) = (rest % channels, rest / channels);
                if along_channels {
                    for w in 0..width {
                        for c in (0..self.windows.channels).step_by(most) {
                            f([n, c, d, h, w], most.min(self.windows.channels - c));
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
        let [_, large, .., large_width] = self.windows.large.0;
        self.windows.channels > 1 && (self.windows.output[2] == 1 || large < large_width)
    }
}

#[cfg(test)]
mod tests;
