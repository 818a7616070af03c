//! Convolution problem: shape, layouts, element types and epilogue.

use hipdnn_cpu_kernels::activation::Activation;

/// Maximum number of an epilogue's operands.
pub const MAX_OPERANDS: usize = 8;

/// Sizes of a convolution, lifted to three spatial dimensions (depth, height, width): missing ones come first, with
/// input, kernel, output, stride and dilation 1 and padding 0.
///
/// The padding after an axis is what the output size needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Number of images.
    pub batch: usize,
    /// Number of groups; they divide both channel numbers.
    pub groups: usize,
    /// Number of input channels of all groups.
    pub in_channels: usize,
    /// Number of output channels of all groups.
    pub out_channels: usize,
    /// Input sizes.
    pub input: [usize; 3],
    /// Kernel sizes.
    pub kernel: [usize; 3],
    /// Output sizes.
    pub output: [usize; 3],
    /// Stride between outputs, in input places.
    pub stride: [usize; 3],
    /// Dilation: the distance of neighboring taps, in input places.
    pub dilation: [usize; 3],
    /// Padding: zeros before the first input.
    pub pad_before: [usize; 3],
    /// True for a convolution in the mathematical sense, whose kernel is mirrored in every spatial dimension; false for
    /// the cross-correlation networks use.
    pub flip: bool,
}

impl Shape {
    /// Number of input channels of a group.
    pub fn group_in(&self) -> usize {
        self.in_channels / self.groups
    }

    /// Number of output channels of a group.
    pub fn group_out(&self) -> usize {
        self.out_channels / self.groups
    }

    /// True if each channel is a group of its own, with one output channel.
    pub fn is_depthwise(&self) -> bool {
        (self.group_in(), self.group_out()) == (1, 1)
    }

    /// Bytes of an input image of `f32` values in two dimensions.
    pub(super) fn image_bytes(&self) -> usize {
        size_of::<f32>() * self.in_channels * self.input[1] * self.input[2]
    }

    /// Input places of an axis between the first and the last one that an output looks at, both counted.
    pub(super) fn reach(&self, axis: usize) -> usize {
        (self.kernel[axis] - 1).saturating_mul(self.dilation[axis]).saturating_add(1)
    }

    /// Number of taps of the kernel.
    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Number of products summed for an output.
    pub fn depth(&self) -> usize {
        self.group_in() * self.taps()
    }

    /// Number of outputs of a channel of an image.
    pub fn pixels(&self) -> usize {
        self.output.iter().product()
    }

    /// True if there is no output to compute.
    pub fn is_empty(&self) -> bool {
        self.batch * self.out_channels * self.pixels() == 0
    }
}

/// Element type of a tensor.
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

/// Layout of a tensor: element type and strides of (batch, channel, depth, height, width), in elements.
///
/// For weights the first two are (output channel, input channel of the group). Strides of dimensions of size 1 mean
/// nothing; a stride of 0 repeats one value, for epilogue operands only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Element type.
    pub element: Element,
    /// Strides in elements.
    pub strides: [usize; 5],
}

impl Layout {
    /// Makes the layout without gaps whose last dimension is innermost (NCHW).
    pub fn packed(element: Element, sizes: [usize; 5]) -> Layout {
        let mut strides = [1; 5];
        for i in (0..4).rev() {
            strides[i] = strides[i + 1] * sizes[i + 1];
        }
        Layout { element, strides }
    }

    /// Makes the layout without gaps whose channels are innermost (NHWC).
    pub fn channels_last(element: Element, sizes: [usize; 5]) -> Layout {
        let [_, c, d, h, w] = sizes;
        Layout { element, strides: [d * h * w * c, 1, h * w * c, w * c, c] }
    }

    /// Offset of a place, in elements.
    #[inline]
    pub fn offset(&self, [n, c, d, h, w]: [usize; 5]) -> usize {
        let [image, channel, plane, line, column] = self.strides;
        n * image + c * channel + d * plane + h * line + w * column
    }

    /// Number of elements from the first to behind the last value of a tensor of these sizes.
    pub fn span(&self, sizes: [usize; 5]) -> usize {
        if sizes.contains(&0) {
            return 0;
        }
        1 + (0..5).map(|i| (sizes[i] - 1) * self.strides[i]).sum::<usize>()
    }
}

/// Step of the epilogue: a function of the `f32` sums before they are stored. `operand` is an index into the operands
/// given to the run.
#[derive(Clone, Debug, PartialEq)]
pub enum EpilogueStep {
    /// Adds a value for each output channel.
    Bias {
        /// Index of the operand.
        operand: usize,
        /// Element type of the operand.
        element: Element,
        /// Stride between channels, in elements.
        channel_stride: usize,
    },
    /// Adds a tensor that has the output's sizes or, with stride 0, repeats along dimensions.
    Add {
        /// Index of the operand.
        operand: usize,
        /// Layout of the operand.
        layout: Layout,
    },
    /// Multiplies by a tensor as in `Add`.
    Mul {
        /// Index of the operand.
        operand: usize,
        /// Layout of the operand.
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

/// Inputs of planning. Sizes and strides have been checked: groups divide the channels, the tensors do not overlap
/// themselves, and every output has its place.
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
    /// Epilogue, in order.
    pub epilogue: Vec<EpilogueStep>,
    /// True if the weights' contents are the same at every run, so that preparing them costs nothing.
    pub constant_weights: bool,
    /// True if Winograd's algorithm may be used, whose rounding errors are somewhat larger.
    pub winograd: bool,
}

impl Problem {
    /// True if an image's input is a matrix of channels by places in `f32`, the places side by side, and the
    /// convolution a product with it.
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
