//! Convolution problems for a library of kernels: packed tensors of one type, the same padding on both sides.

use std::fmt;

pub use hipdnn_engine_core::ops::convolution::Direction;

/// Element type of a convolution problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataType {
    /// 16 bits, IEEE.
    Half,
    /// 32 bits.
    Float,
    /// Upper half of a [`DataType::Float`].
    BFloat16,
}

impl DataType {
    /// Size of an element in bytes.
    pub fn width(self) -> usize {
        match self {
            DataType::Half | DataType::BFloat16 => 2,
            DataType::Float => 4,
        }
    }

    fn name(self) -> &'static str {
        match self {
            DataType::Half => "f16",
            DataType::Float => "f32",
            DataType::BFloat16 => "bf16",
        }
    }
}

/// Element type, extents and strides (in elements) of a tensor, outermost dimension first: N, C, (D,) H, W.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorShape {
    /// Element type.
    pub data_type: DataType,
    /// Extents.
    pub dims: Vec<usize>,
    /// Strides in elements.
    pub strides: Vec<usize>,
}

impl TensorShape {
    /// Shape of a tensor without gaps, its last dimension innermost.
    pub fn packed(data_type: DataType, dims: &[usize]) -> TensorShape {
        TensorShape::ordered(data_type, dims, &(0..dims.len()).collect::<Vec<_>>())
    }

    /// Shape of a tensor without gaps, its channels (dimension 1) innermost.
    pub fn channels_last(data_type: DataType, dims: &[usize]) -> TensorShape {
        let order: Vec<_> = [0].into_iter().chain(2..dims.len()).chain([1]).collect();
        TensorShape::ordered(data_type, dims, &order)
    }

    fn ordered(data_type: DataType, dims: &[usize], order: &[usize]) -> TensorShape {
        let mut strides = vec![0; dims.len()];
        let mut step = 1;
        for axis in order.iter().rev() {
            strides[*axis] = step;
            step *= dims[*axis];
        }
        TensorShape { data_type, dims: dims.to_vec(), strides }
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.dims.iter().product()
    }

    /// Span from the first to the last element in memory, gaps included, in elements.
    pub fn span(&self) -> usize {
        self.dims.iter().zip(&self.strides).map(|(extent, stride)| (extent - 1) * stride).sum::<usize>() + 1
    }

    /// Size of the span in bytes.
    pub fn bytes(&self) -> usize {
        self.span() * self.data_type.width()
    }
}

impl fmt::Display for TensorShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}:{:?}", self.data_type.name(), self.dims, self.strides)
    }
}

/// Convolution problem for MIOpen: two or three spatial dimensions, the same padding on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvolutionProblem {
    /// Direction: the tensor that is computed.
    pub direction: Direction,
    /// Image side (for backward data: the result).
    pub x: TensorShape,
    /// Filters: K, C/groups, (D,) H, W (for backward weights: the result).
    pub w: TensorShape,
    /// Output side: N, K, (D,) H, W (for forward: the result).
    pub y: TensorShape,
    /// Padding of each spatial dimension, on both sides.
    pub padding: Vec<i32>,
    /// Stride of each spatial dimension.
    pub stride: Vec<i32>,
    /// Dilation of each spatial dimension.
    pub dilation: Vec<i32>,
    /// Number of groups: independent convolutions that the channels are split into.
    pub groups: i32,
    /// Restricts MIOpen to solvers that give the same bits each time.
    pub deterministic: bool,
}

impl fmt::Display for ConvolutionProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConvolutionProblem { direction, x, w, y, padding, stride, dilation, groups, deterministic } = self;
        write!(
            f,
            "{} convolution x {x} w {w} y {y} padding {padding:?} stride {stride:?} dilation {dilation:?} groups {groups}{}",
            direction.name(),
            if *deterministic { " deterministic" } else { "" }
        )
    }
}

impl ConvolutionProblem {
    /// Checks that it is a convolution at all, so that MIOpen is never asked what it answers with lines on standard
    /// error.
    ///
    /// # Errors
    /// With the mismatch.
    pub fn check(&self) -> Result<(), String> {
        let ConvolutionProblem { x, w, y, padding, stride, dilation, groups, .. } = self;
        let spatial = padding.len();
        if !(2..=3).contains(&spatial) || stride.len() != spatial || dilation.len() != spatial {
            return Err(format!(
                "expected 2 or 3 spatial dimensions, got padding {padding:?}, stride {stride:?}, dilation {dilation:?}"
            ));
        }
        for (name, tensor) in [("x", x), ("w", w), ("y", y)] {
            if tensor.dims.len() != spatial + 2 || tensor.strides.len() != spatial + 2 {
                return Err(format!("{name}: expected {} dimensions, got {tensor}", spatial + 2));
            }
            if tensor.data_type != x.data_type {
                return Err(format!("{name}: expected the element type of x, {}, got {tensor}", x.data_type.name()));
            }
            // MIOpen's kernels count in 32 bits, with a sign.
            let limit = i32::MAX as usize;
            if tensor.dims.iter().chain(&tensor.strides).any(|value| *value == 0 || *value > limit) {
                return Err(format!("{name}: expected extents and strides of 1 to {limit}, got {tensor}"));
            }
            let steps = tensor.dims.iter().zip(&tensor.strides).map(|(extent, step)| (extent - 1).checked_mul(*step));
            let last = steps.into_iter().try_fold(0usize, |sum, step| sum.checked_add(step?));
            if last.and_then(|last| (last + 1).checked_mul(8)).is_none_or(|bytes| bytes > isize::MAX as usize) {
                return Err(format!("{name} is too large: {tensor}"));
            }
        }
        let parts = usize::try_from(*groups).unwrap_or(0);
        if parts == 0 || x.dims[1] % parts != 0 || w.dims[0] % parts != 0 || x.dims[1] / parts != w.dims[1] {
            let [of_x, filters, of_w] = [x.dims[1], w.dims[0], w.dims[1]];
            return Err(format!(
                "expected groups that fit the {of_x} channels of x and the {filters} by {of_w} of w, got {groups}"
            ));
        }
        if y.dims[0] != x.dims[0] || y.dims[1] != w.dims[0] {
            return Err(format!("y: expected the batch of x {x} and the channels of w {w}, got {y}"));
        }
        for axis in 0..spatial {
            let (pad, step, spread) = (padding[axis], stride[axis], dilation[axis]);
            if pad < 0 || step < 1 || spread < 1 {
                return Err(format!(
                    "expected padding from 0, stride and dilation from 1, got {padding:?}, {stride:?}, {dilation:?}"
                ));
            }
            // None of these overflows 64 bits: each is below 2^31, each product below 2^62.
            let [extent, taps] = [x, w].map(|tensor| tensor.dims[axis + 2] as i64);
            let room = extent + 2 * i64::from(pad) - i64::from(spread) * (taps - 1) - 1;
            let wanted = if room < 0 { 0 } else { room / i64::from(step) + 1 };
            if y.dims[axis + 2] as i64 != wanted {
                return Err(format!("y: expected {wanted} as extent of spatial dimension {axis}, got {y}: {self}"));
            }
        }
        Ok(())
    }

    /// Shape of the tensor that is computed.
    pub fn output(&self) -> &TensorShape {
        match self.direction {
            Direction::Forward => &self.y,
            Direction::BackwardData => &self.x,
            Direction::BackwardWeights => &self.w,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem() -> ConvolutionProblem {
        let shape = |dims: &[usize]| TensorShape::packed(DataType::Half, dims);
        ConvolutionProblem {
            direction: Direction::Forward,
            x: shape(&[2, 4, 9, 8]),
            w: shape(&[6, 2, 3, 1]),
            y: shape(&[2, 6, 5, 3]),
            padding: vec![1, 0],
            stride: vec![2, 3],
            dilation: vec![1, 1],
            groups: 2,
            deterministic: false,
        }
    }

    #[test]
    fn what_is_no_convolution_is_refused() {
        assert_eq!(problem().check(), Ok(()));
        type Change = fn(&mut ConvolutionProblem);
        let cases: [(&str, Change, &str); 16] = [
            ("one dimension", |p| p.padding = vec![1], "expected 2 or 3 spatial dimensions"),
            ("strides of another rank", |p| p.stride = vec![1; 3], "expected 2 or 3 spatial dimensions"),
            (
                "an x of another rank",
                |p| p.x = TensorShape::packed(DataType::Half, &[2, 4, 9]),
                "x: expected 4 dimensions",
            ),
            ("a missing stride", |p| p.y.strides.truncate(3), "y: expected 4 dimensions"),
            ("mixed types", |p| p.w.data_type = DataType::Float, "w: expected the element type of x, f16"),
            ("nothing", |p| p.x.dims[0] = 0, "x: expected extents and strides of 1 to 2147483647"),
            ("a broadcast", |p| p.w.strides[2] = 0, "w: expected extents and strides of 1"),
            ("too many", |p| p.x.dims[2] = 1 << 31, "x: expected extents"),
            (
                "too large",
                |p| {
                    p.x.dims = vec![1 << 30, 4, 1 << 30, 8];
                    p.x.strides = vec![1 << 30; 4];
                },
                "x is too large",
            ),
            ("no groups", |p| p.groups = 0, "expected groups that fit the 4 channels of x and the 6 by 2 of w, got 0"),
            (
                "fewer than none",
                |p| p.groups = -2,
                "expected groups that fit the 4 channels of x and the 6 by 2 of w, got -2",
            ),
            (
                "groups that don't divide",
                |p| p.groups = 4,
                "expected groups that fit the 4 channels of x and the 6 by 2 of w, got 4",
            ),
            ("another batch", |p| p.y.dims[0] = 3, "y: expected the batch of x"),
            ("negative padding", |p| p.padding[1] = -1, "expected padding from 0"),
            ("no stride", |p| p.stride[0] = 0, "stride and dilation from 1"),
            ("another extent", |p| p.y.dims[3] = 4, "expected 3 as extent of spatial dimension 1"),
        ];
        for (name, change, want) in cases {
            let mut problem = problem();
            change(&mut problem);
            let reason = problem.check().expect_err(name);
            assert!(reason.contains(want), "{name}: {reason}");
        }
        // The filter is larger than the padded image: nothing is left to compute.
        let mut problem = problem();
        problem.w = TensorShape::packed(DataType::Half, &[6, 2, 12, 1]);
        assert!(problem.check().expect_err("no room").contains("expected 0 as extent"));
    }

    #[test]
    fn shapes_know_their_memory() {
        let last = TensorShape::channels_last(DataType::BFloat16, &[2, 3, 4, 5]);
        assert_eq!(last.strides, [60, 1, 15, 3]);
        assert_eq!((last.elements(), last.span(), last.bytes()), (120, 120, 240));
        let gaps = TensorShape { data_type: DataType::Float, dims: vec![2, 1, 1, 2], strides: vec![5, 5, 5, 2] };
        assert_eq!((gaps.elements(), gaps.span(), gaps.bytes()), (4, 8, 32));
        let three = TensorShape::packed(DataType::Float, &[1, 2, 3, 4, 5]);
        assert_eq!(three.strides, [120, 60, 20, 5, 1]);
    }

    #[test]
    fn a_problem_is_its_text() {
        let text = problem().to_string();
        let mut others: Vec<ConvolutionProblem> = vec![problem(); 5];
        others[0].direction = Direction::BackwardData;
        others[1].deterministic = true;
        others[2].x.strides[0] += 1;
        others[3].dilation[0] = 2;
        others[4].groups = 1;
        for other in others {
            assert_ne!(other.to_string(), text);
        }
    }
}
