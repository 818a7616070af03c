//! Layouts of tensors.

use hipdnn_schemas::{Extents, channels_last_strides, packed_strides};
use serde::Deserialize;

/// A rule that gives strides to extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// The last dimension is contiguous: NCHW.
    First,
    /// The channels are contiguous: NHWC.
    Last,
    /// Packed, with a gap behind every row, plane and image.
    Padded,
    /// Every second channel of a larger tensor.
    Sliced,
    /// The first dimension is contiguous.
    Reversed,
}

impl Layout {
    /// Strides, in elements.
    pub fn strides(self, dims: &[i64]) -> Extents {
        match self {
            Layout::First => packed_strides(dims),
            Layout::Last => channels_last_strides(dims),
            Layout::Padded => packed_strides(&dims.iter().map(|extent| extent + 1).collect::<Vec<_>>()),
            Layout::Sliced => {
                let channel = usize::from(dims.len() > 1);
                let mut whole = dims.to_vec();
                whole[channel] *= 2;
                let mut strides = packed_strides(&whole);
                strides[channel] *= 2;
                strides
            }
            Layout::Reversed => {
                let mut strides = Extents::new();
                let mut step = 1;
                for extent in dims {
                    strides.push(step);
                    step *= extent;
                }
                strides
            }
        }
    }

    /// As part of a name.
    pub fn name(self) -> &'static str {
        match self {
            Layout::First => "first",
            Layout::Last => "last",
            Layout::Padded => "padded",
            Layout::Sliced => "sliced",
            Layout::Reversed => "reversed",
        }
    }
}
