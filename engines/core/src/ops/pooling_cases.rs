//! Test cases of pooling, shared by engines.

use hipdnn_schemas::{DataType, PaddingMode, ResampleBwd, ResampleFwd, ResampleMode, TensorDef, TensorUid};

/// Test case of pooling.
#[derive(Clone, Copy)]
pub struct Case {
    /// Name for messages.
    pub what: &'static str,
    /// Extents of the image: N, C, then spatial.
    pub x: &'static [i64],
    /// Extents of a window.
    pub window: &'static [i64],
    /// Strides of windows.
    pub stride: &'static [i64],
    /// Padding in front and behind.
    pub pads: [&'static [i64]; 2],
    /// True if a window may hang over the end.
    pub over: bool,
}

/// Constructor of a case, field by field.
pub const fn case(
    what: &'static str,
    x: &'static [i64],
    window: &'static [i64],
    stride: &'static [i64],
    pads: [&'static [i64]; 2],
    over: bool,
) -> Case {
    Case { what, x, window, stride, pads, over }
}

/// Modes of pooling and of padding under test.
pub const MODES: [(ResampleMode, PaddingMode); 4] = [
    (ResampleMode::MaxPool, PaddingMode::NegInf),
    (ResampleMode::MaxPool, PaddingMode::Zero),
    (ResampleMode::AvgPoolExcludePadding, PaddingMode::Zero),
    (ResampleMode::AvgPoolIncludePadding, PaddingMode::Zero),
];

impl Case {
    /// Extents of the output.
    pub fn y(&self) -> Vec<i64> {
        let extent = |axis: usize| {
            let room = self.x[2 + axis] + self.pads[0][axis] + self.pads[1][axis] - self.window[axis];
            let up = if self.over { self.stride[axis] - 1 } else { 0 };
            (room + up) / self.stride[axis] + 1
        };
        self.x[..2].iter().copied().chain((0..self.window.len()).map(extent)).collect()
    }

    /// Forward node; tensor 0 is x, 1 y, 2 the index.
    pub fn forward(&self, (resample_mode, padding_mode): (ResampleMode, PaddingMode), index: bool) -> ResampleFwd {
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

    /// Backward node; tensor 0 is dx, 1 dy, 2 the index.
    pub fn backward(&self, (resample_mode, padding_mode): (ResampleMode, PaddingMode), index: bool) -> ResampleBwd {
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

    /// Tensors of both nodes, of these types, channels last or first.
    pub fn tensors(&self, [x, y, index]: [DataType; 3], last: bool) -> Vec<TensorDef> {
        let tensor = |uid, data_type, dims: &[i64]| {
            let tensor = TensorDef::new(uid, data_type, dims);
            if last { tensor.channels_last() } else { tensor }
        };
        vec![tensor(0, x, self.x), tensor(1, y, &self.y()), tensor(2, index, &self.y())]
    }

    /// Number of places of an image.
    pub fn places(&self) -> i64 {
        self.x[2..].iter().product()
    }

    /// Places in the image of the taps of a window of a channel, in order; `None` outside.
    pub fn taps(&self, at: &[usize]) -> Vec<Option<usize>> {
        let mut taps = vec![Some(0)];
        for (axis, out) in at.iter().enumerate() {
            let extent = self.x[2 + axis];
            taps = taps
                .into_iter()
                .flat_map(|flat: Option<usize>| {
                    (0..self.window[axis]).map(move |tap| {
                        let place = *out as i64 * self.stride[axis] + tap - self.pads[0][axis];
                        flat.filter(|_| (0..extent).contains(&place))
                            .map(|flat| flat * extent as usize + place as usize)
                    })
                })
                .collect();
        }
        taps
    }

    /// Indices of all windows of a channel, in order.
    pub fn windows(&self) -> Vec<Vec<usize>> {
        let mut all = vec![vec![]];
        for extent in &self.y()[2..] {
            let extent = *extent as usize;
            all =
                all.into_iter().flat_map(|at: Vec<usize>| (0..extent).map(move |i| [&at[..], &[i]].concat())).collect();
        }
        all
    }
}

#[cfg(test)]
mod tests;
