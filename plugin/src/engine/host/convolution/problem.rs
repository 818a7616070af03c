//! What is to be convolved: shape, layouts, element types and what follows.

use crate::engine::host::activation::Activation;

/// A convolution's sizes, lifted to three spatial dimensions (depth, height, width): missing ones come first, with
/// input, kernel, output, stride and dilation 1 and padding 0.
///
/// The padding after an axis is what the output size needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Images.
    pub batch: usize,
    /// Groups; they divide both channel numbers.
    pub groups: usize,
    /// Input channels of all groups.
    pub in_channels: usize,
    /// Output channels of all groups.
    pub out_channels: usize,
    /// Input sizes.
    pub input: [usize; 3],
    /// Kernel sizes.
    pub kernel: [usize; 3],
    /// Output sizes.
    pub output: [usize; 3],
    /// Distance of neighbouring outputs, in input places.
    pub stride: [usize; 3],
    /// Distance of neighbouring taps, in input places.
    pub dilation: [usize; 3],
    /// Zeros before the first input.
    pub pad_before: [usize; 3],
    /// True for a convolution in the mathematical sense, whose kernel is mirrored in every spatial dimension; false for
    /// the cross-correlation networks use.
    pub flip: bool,
}

impl Shape {
    /// Input channels of a group.
    pub fn group_in(&self) -> usize {
        self.in_channels / self.groups
    }

    /// Output channels of a group.
    pub fn group_out(&self) -> usize {
        self.out_channels / self.groups
    }

    /// Taps of the kernel.
    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Products summed for an output.
    pub fn depth(&self) -> usize {
        self.group_in() * self.taps()
    }

    /// Outputs of a channel of an image.
    pub fn pixels(&self) -> usize {
        self.output.iter().product()
    }

    /// True if there is no output to compute.
    pub fn is_empty(&self) -> bool {
        self.batch * self.out_channels * self.pixels() == 0
    }
}

/// The type of a tensor's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// The upper half of a single.
    BF16,
}

impl Element {
    /// Bytes of a value.
    pub fn bytes(self) -> usize {
        match self {
            Element::F32 => 4,
            Element::F16 | Element::BF16 => 2,
        }
    }
}

/// Where the values of a tensor lie: element type and strides of (batch, channel, depth, height, width), in elements.
///
/// For weights the first two are (output channel, input channel of the group). Strides of dimensions of size 1 mean
/// nothing; a stride of 0 repeats one value, for epilogue operands only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Type of the values.
    pub element: Element,
    /// Distances of neighbours in elements.
    pub strides: [usize; 5],
}

impl Layout {
    /// The layout without gaps whose last dimension is innermost (NCHW).
    pub fn packed(element: Element, sizes: [usize; 5]) -> Layout {
        let mut strides = [1; 5];
        for i in (0..4).rev() {
            strides[i] = strides[i + 1] * sizes[i + 1];
        }
        Layout { element, strides }
    }

    /// The layout without gaps whose channels are innermost (NHWC).
    pub fn channels_last(element: Element, sizes: [usize; 5]) -> Layout {
        let [_, c, d, h, w] = sizes;
        Layout { element, strides: [d * h * w * c, 1, h * w * c, w * c, c] }
    }

    /// Elements from the first to the value of that place.
    pub fn offset(&self, at: [usize; 5]) -> usize {
        (0..5).map(|i| at[i] * self.strides[i]).sum()
    }

    /// Elements from the first to behind the last value of a tensor of these sizes.
    pub fn span(&self, sizes: [usize; 5]) -> usize {
        if sizes.contains(&0) {
            return 0;
        }
        1 + (0..5).map(|i| (sizes[i] - 1) * self.strides[i]).sum::<usize>()
    }
}

/// A step on the `f32` sums before they are stored. `operand` is an index into the operands given to the run.
#[derive(Clone, Debug, PartialEq)]
pub enum EpilogueStep {
    /// Adds a value for each output channel.
    Bias {
        /// Index of the operand.
        operand: usize,
        /// Its element type.
        element: Element,
        /// Distance of neighbouring channels in elements.
        channel_stride: usize,
    },
    /// Adds a tensor that has the output's sizes or, with stride 0, repeats along dimensions.
    Add {
        /// Index of the operand.
        operand: usize,
        /// Its layout.
        layout: Layout,
    },
    /// Multiplies by a tensor as in `Add`.
    Mul {
        /// Index of the operand.
        operand: usize,
        /// Its layout.
        layout: Layout,
    },
    /// Applies an activation.
    Activation(Activation),
}

impl std::fmt::Display for EpilogueStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EpilogueStep::Bias { .. } => f.write_str("bias"),
            EpilogueStep::Add { .. } => f.write_str("add"),
            EpilogueStep::Mul { .. } => f.write_str("mul"),
            EpilogueStep::Activation(activation) => write!(f, "{activation:?}"),
        }
    }
}

/// Everything a plan depends on. Sizes and strides have been checked: groups divide the channels, the tensors do not
/// overlap themselves, and every output has its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The sizes.
    pub shape: Shape,
    /// Layout of the input.
    pub x: Layout,
    /// Layout of the weights.
    pub w: Layout,
    /// Layout of the output.
    pub y: Layout,
    /// Steps before the store, in order.
    pub epilogue: Vec<EpilogueStep>,
    /// The weights' contents are the same at every run, so that preparing them costs nothing.
    pub constant_weights: bool,
    /// Winograd's algorithm may be used, whose rounding errors are somewhat larger.
    pub winograd: bool,
}

impl Problem {
    /// True if an image's input is a matrix of channels by places in `f32`, the places side by side, and the convolution a
    /// product with it.
    pub(super) fn is_matrix(&self) -> bool {
        let (shape, strides) = (&self.shape, self.x.strides);
        let [d, h, w] = shape.input;
        self.x.element == Element::F32
            && shape.kernel == [1; 3]
            && shape.stride == [1; 3]
            && shape.pad_before == [0; 3]
            && shape.output == shape.input
            && d == 1
            && (w == 1 || strides[4] == 1)
            && (h == 1 || strides[3] == w)
    }

    /// Sizes of the input tensor.
    pub fn x_sizes(&self) -> [usize; 5] {
        let [d, h, w] = self.shape.input;
        [self.shape.batch, self.shape.in_channels, d, h, w]
    }

    /// Sizes of the weight tensor.
    pub fn w_sizes(&self) -> [usize; 5] {
        let [d, h, w] = self.shape.kernel;
        [self.shape.out_channels, self.shape.group_in(), d, h, w]
    }

    /// Sizes of the output tensor.
    pub fn y_sizes(&self) -> [usize; 5] {
        let [d, h, w] = self.shape.output;
        [self.shape.batch, self.shape.out_channels, d, h, w]
    }
}
