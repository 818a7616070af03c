//! Poolings that engines are tested with.

use hipdnn_schemas::{DataType, PaddingMode, ResampleBwd, ResampleFwd, ResampleMode, TensorDef, TensorUid};

/// Extents of the image and of windows, strides, paddings in front and behind, whether a window may hang over the end.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) what: &'static str,
    pub(crate) x: &'static [i64],
    pub(crate) window: &'static [i64],
    pub(crate) stride: &'static [i64],
    pub(crate) pads: [&'static [i64]; 2],
    pub(crate) over: bool,
}

/// A case, field by field.
pub(crate) const fn case(
    what: &'static str,
    x: &'static [i64],
    window: &'static [i64],
    stride: &'static [i64],
    pads: [&'static [i64]; 2],
    over: bool,
) -> Case {
    Case { what, x, window, stride, pads, over }
}

/// What windows are combined to.
pub(crate) const MODES: [(ResampleMode, PaddingMode); 4] = [
    (ResampleMode::MaxPool, PaddingMode::NegInf),
    (ResampleMode::MaxPool, PaddingMode::Zero),
    (ResampleMode::AvgPoolExcludePadding, PaddingMode::Zero),
    (ResampleMode::AvgPoolIncludePadding, PaddingMode::Zero),
];

impl Case {
    pub(crate) fn y(&self) -> Vec<i64> {
        let extent = |axis: usize| {
            let room = self.x[2 + axis] + self.pads[0][axis] + self.pads[1][axis] - self.window[axis];
            let up = if self.over { self.stride[axis] - 1 } else { 0 };
            (room + up) / self.stride[axis] + 1
        };
        self.x[..2].iter().copied().chain((0..self.window.len()).map(extent)).collect()
    }

    pub(crate) fn forward(
        &self,
        (resample_mode, padding_mode): (ResampleMode, PaddingMode),
        index: bool,
    ) -> ResampleFwd {
        ResampleFwd {
            x: TensorUid(0),
            y: TensorUid(1),
            index: index.then_some(TensorUid(2)),
            pre_padding: self.pads[0].to_vec(),
            post_padding: self.pads[1].to_vec(),
            stride: self.stride.to_vec(),
            window: self.window.to_vec(),
            resample_mode,
            padding_mode,
            generate_index: Some(index),
        }
    }

    pub(crate) fn backward(
        &self,
        (resample_mode, padding_mode): (ResampleMode, PaddingMode),
        index: bool,
    ) -> ResampleBwd {
        ResampleBwd {
            dy: TensorUid(1),
            dx: TensorUid(0),
            index: index.then_some(TensorUid(2)),
            pre_padding: self.pads[0].to_vec(),
            post_padding: self.pads[1].to_vec(),
            stride: self.stride.to_vec(),
            window: self.window.to_vec(),
            resample_mode,
            padding_mode,
        }
    }

    pub(crate) fn tensors(&self, [x, y, index]: [DataType; 3], last: bool) -> Vec<TensorDef> {
        let tensor = |uid, data_type, dims: &[i64]| {
            let tensor = TensorDef::new(uid, data_type, dims);
            if last { tensor.channels_last() } else { tensor }
        };
        vec![tensor(0, x, self.x), tensor(1, y, &self.y()), tensor(2, index, &self.y())]
    }

    /// Places of an image.
    pub(crate) fn places(&self) -> i64 {
        self.x[2..].iter().product()
    }
}
