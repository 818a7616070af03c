//! Convolutions and transposed convolutions.

use hipdnn_schemas::{Convolution, ConvolutionBwd, ConvolutionFwd, Operation, PointwiseMode};

use super::{Declined, Importer, Operator, declined, sums};
use crate::ir::ValueId;

pub(super) const OPERATORS: &[Operator] = &[sums("Conv", convolution), sums("ConvTranspose", transposed_convolution)];

/// ONNX's `auto_pad`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AutoPad {
    /// Padding is given.
    NotSet,
    /// As much padding as makes the output `ceil(input / stride)`, the odd one after the image.
    SameUpper,
    /// The same, the odd one before the image.
    SameLower,
    /// No padding.
    Valid,
}

/// Geometry of windows, one entry for each spatial dimension.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub auto_pad: AutoPad,
    pub kernel: Vec<i64>,
    pub strides: Vec<i64>,
    pub dilations: Vec<i64>,
    /// Padding before each dimension, then after each.
    pub pads: Vec<i64>,
}

impl Window {
    /// Reads the attributes of a node whose windows have these extents.
    ///
    /// # Errors
    /// The attribute that does not fit.
    pub(super) fn read(n: &Importer<'_>, kernel: &[i64]) -> Result<Window, Declined> {
        let spatial = kernel.len();
        let auto_pad = match n.text("auto_pad") {
            "" | "NOTSET" => AutoPad::NotSet,
            "SAME_UPPER" => AutoPad::SameUpper,
            "SAME_LOWER" => AutoPad::SameLower,
            "VALID" => AutoPad::Valid,
            other => {
                return declined(format!("expected auto_pad NOTSET, SAME_UPPER, SAME_LOWER or VALID, got {other:?}"));
            }
        };
        let list = |name: &str, count: usize, least: i64, default: i64| {
            let list = n.ints_of(name).filter(|list| !list.is_empty()).unwrap_or_else(|| vec![default; count]);
            match list.iter().find(|value| **value < least) {
                _ if list.len() != count => declined(format!("expected {count} values of {name}, got {}", list.len())),
                Some(value) => declined(format!("expected {name} of at least {least}, got {value}")),
                None => Ok(list),
            }
        };
        let pads = list("pads", 2 * spatial, 0, 0)?;
        if auto_pad != AutoPad::NotSet && n.attribute("pads").is_some() {
            return declined("pads beside auto_pad is refused by ONNX Runtime");
        }
        Ok(Window {
            auto_pad,
            kernel: kernel.to_vec(),
            strides: list("strides", spatial, 1, 1)?,
            dilations: list("dilations", spatial, 1, 1)?,
            pads,
        })
    }

    /// Extent of the dilated window along `axis`.
    pub(super) fn extent(&self, axis: usize) -> i128 {
        i128::from(self.dilations[axis]) * i128::from(self.kernel[axis] - 1) + 1
    }

    /// Padding before and after along `axis` for an image of `input`. Where strides are larger than windows, ONNX Runtime
    /// leaves rows of the image out on both sides: the padding is negative, and one less than half of it goes before.
    ///
    /// # Errors
    /// If it is larger than an extent can be.
    pub(super) fn padding(&self, axis: usize, input: i64) -> Result<(i64, i64), Declined> {
        match self.auto_pad {
            AutoPad::NotSet => Ok((self.pads[axis], self.pads[axis + self.kernel.len()])),
            AutoPad::Valid => Ok((0, 0)),
            AutoPad::SameUpper | AutoPad::SameLower => {
                let (input, stride) = (i128::from(input), i128::from(self.strides[axis]));
                let output = (input + stride - 1) / stride;
                let needed = (output - 1) * stride + self.extent(axis) - input;
                let more = i128::from(needed < 0) + i128::from(self.auto_pad == AutoPad::SameLower);
                let before = (needed + more) / 2;
                match (i64::try_from(before), i64::try_from(needed - before)) {
                    (Ok(before), Ok(after)) => Ok((before, after)),
                    _ => declined(format!("the padding of {needed} along dimension {} is beyond 64 bits", axis + 2)),
                }
            }
        }
    }

    /// Padding along all dimensions of an image of extents [N, C, ...].
    pub(super) fn paddings(&self, dims: &[i64]) -> Result<Vec<(i64, i64)>, Declined> {
        (0..self.kernel.len()).map(|axis| self.padding(axis, dims[axis + 2])).collect()
    }

    /// True if the window is larger than the padded image along a dimension.
    pub(super) fn hangs(&self, dims: &[i64], pre: &[i64], post: &[i64]) -> bool {
        (0..self.kernel.len())
            .any(|axis| self.extent(axis) > i128::from(dims[axis + 2]) + i128::from(pre[axis]) + i128::from(post[axis]))
    }

    /// Windows that fit into a padded image of extents [N, C, ...] along each dimension. ONNX Runtime also has one that is
    /// larger than the image by less than a stride, and an empty result where it is larger by less than two. With `ceil`
    /// there is one more that hangs over the end, if it begins in the image or the padding before it.
    ///
    /// # Errors
    /// If none fits, or a number is beyond what engines count with.
    pub(super) fn outputs(&self, dims: &[i64], pre: &[i64], post: &[i64], ceil: bool) -> Result<Vec<i64>, Declined> {
        let most = i128::from(i32::MAX);
        (0..self.kernel.len())
            .map(|axis| {
                let (input, stride) = (i128::from(dims[axis + 2]), i128::from(self.strides[axis]));
                let (before, after) = (i128::from(pre[axis]), i128::from(post[axis]));
                let (window, padded) = (self.extent(axis), input + before + after);
                let at = axis + 2;
                if window > padded && (window - padded >= 2 * stride || padded < 1) {
                    return declined(format!(
                        "expected a window within the input of {input} with its padding of {before} and {after} along \
                         dimension {at}, got {window}"
                    ));
                }
                let room = padded - window;
                // Quotients are cut to 0.
                let mut extent = room / stride + 1;
                if ceil && room > 0 && room % stride != 0 && extent * stride < input + before {
                    extent += 1;
                }
                let numbers =
                    [("padding", before), ("padding", after), ("stride", stride), ("output's extent", extent)];
                let dilation = ("dilation", i128::from(self.dilations[axis]));
                match numbers.into_iter().chain([dilation]).find(|(_, number)| *number > most) {
                    Some((what, number)) => {
                        declined(format!("the {what} of {number} along dimension {at} is beyond {most}"))
                    }
                    None => Ok(extent as i64),
                }
            })
            .collect()
    }
}

impl Importer<'_> {
    /// The window of an image of [N, C, ...] that is left where padding is negative, and the padding that remains.
    pub(super) fn cropped(
        &mut self,
        x: ValueId,
        padding: &[(i64, i64)],
    ) -> Result<(ValueId, Vec<i64>, Vec<i64>), Declined> {
        let (pre, post): (Vec<i64>, Vec<i64>) = padding.iter().map(|(pre, post)| (pre.max(&0), post.max(&0))).unzip();
        if padding.iter().all(|(pre, post)| *pre >= 0 && *post >= 0) {
            return Ok((x, pre, post));
        }
        let value = self.function.value(x);
        let (mut dims, strides, mut offset) = (value.dims.clone(), value.strides.clone(), 0);
        for (axis, (before, after)) in padding.iter().enumerate() {
            let (cut, end) = ((-before).max(0), (-after).max(0));
            dims[axis + 2] -= cut + end;
            offset += cut * strides[axis + 2];
            if dims[axis + 2] < 1 {
                return declined("nothing of the image is left by negative padding");
            }
        }
        Ok((self.function.view(x, &dims, &strides, offset), pre, post))
    }

    /// The node's output: [N, C, ...], with the bias added if the node has one as its third input.
    fn output_with_bias(&mut self, mut y: ValueId) -> Result<(), Declined> {
        if self.has_input(2) {
            let bias = self.float_input(2)?;
            y = self.add_bias(y, bias)?;
        }
        self.output(0, y);
        Ok(())
    }

    /// Adds one number a channel to [N, C, ...].
    fn add_bias(&mut self, y: ValueId, bias: ValueId) -> Result<ValueId, Declined> {
        let dims = self.dims(y);
        let mut shape = vec![1; dims.len()];
        shape[1] = dims[1];
        if self.function.value(bias).elements() != dims[1] {
            return declined(format!("expected a bias of {} elements, got extents {:?}", dims[1], self.dims(bias)));
        }
        let bias = self.reshape(bias, &shape);
        self.binary(PointwiseMode::Add, y, bias)
    }

    /// Input and weights of a convolution, of the same rank, with `kernel_shape` checked.
    fn convolution_operands(&mut self) -> Result<(ValueId, ValueId, Window), Declined> {
        let (x, w) = (self.float_input(0)?, self.float_input(1)?);
        let (x, w) = (self.apart(x), self.apart(w));
        let (dims, weights) = (self.dims(x), self.dims(w));
        if !(3..=5).contains(&dims.len()) || dims.len() != weights.len() {
            return declined(format!(
                "expected an image and weights of 3 to 5 dimensions, got {} and {}",
                dims.len(),
                weights.len()
            ));
        }
        if let Some(axis) = weights.iter().position(|extent| *extent < 1) {
            return declined(format!("the weights have extent {} along dimension {axis}", weights[axis]));
        }
        let kernel = &weights[2..];
        match self.ints_of("kernel_shape") {
            Some(shape) if !shape.is_empty() && shape != kernel => {
                return declined(format!("expected kernel_shape {kernel:?} as the weights have, got {shape:?}"));
            }
            _ => {}
        }
        let window = Window::read(self, kernel)?;
        Ok((x, w, window))
    }
}

fn convolution(n: &mut Importer<'_>) -> Result<(), Declined> {
    let (x, w, window) = n.convolution_operands()?;
    let (dims, weights) = (n.dims(x), n.dims(w));
    let group = n.int("group", 1);
    if group < 1 || weights[0] % group != 0 {
        return declined(format!("{} filters cannot be split into {group} groups", weights[0]));
    }
    let channels = weights[1].checked_mul(group);
    if channels != Some(dims[1]) {
        return declined(format!(
            "the image has {} channels, the weights want {} in each of {group} groups",
            dims[1], weights[1]
        ));
    }
    let padding = window.paddings(&dims)?;
    let (x, pre_padding, post_padding) = n.cropped(x, &padding)?;
    let dims = n.dims(x);
    let outputs = window.outputs(&dims, &pre_padding, &post_padding, false)?;
    // ONNX Runtime computes one that hangs over by less than two strides; engines have none such.
    if window.hangs(&dims, &pre_padding, &post_padding) {
        return declined("the window is larger than the input with its padding");
    }
    let mut y = vec![dims[0], weights[0]];
    y.extend(outputs);
    let convolution = Convolution {
        pre_padding,
        post_padding,
        stride: window.strides.clone(),
        dilation: window.dilations.clone(),
        ..Convolution::new(window.kernel.len())
    };
    let data_type = n.data_type(x);
    let result = n.emit(data_type, &y, |y| {
        Operation::ConvolutionFwd(ConvolutionFwd { x: x.uid(), w: w.uid(), y: y.uid(), convolution })
    })?;
    n.output_with_bias(result)
}

/// The gradient of a convolution with respect to its image: weights are [C, K/groups, ...] for C channels in and K out.
fn transposed_convolution(n: &mut Importer<'_>) -> Result<(), Declined> {
    let (x, w, window) = n.convolution_operands()?;
    let (dims, weights) = (n.dims(x), n.dims(w));
    let spatial = window.kernel.len();
    let group = n.int("group", 1);
    if group < 1 || dims[1] % group != 0 || dims[1] != weights[0] {
        return declined(format!(
            "the image has {} channels, the weights want {} in {group} groups",
            dims[1], weights[0]
        ));
    }
    let Some(filters) = weights[1].checked_mul(group) else { return declined("there are too many filters") };
    let more = n.ints_of("output_padding").filter(|list| !list.is_empty()).unwrap_or_else(|| vec![0; spatial]);
    let shape = n.ints_of("output_shape").filter(|list| !list.is_empty());
    if more.len() != spatial || more.iter().any(|value| *value < 0) {
        return declined(format!("expected output_padding of {spatial} values of at least 0, got {more:?}"));
    }
    if shape.as_ref().is_some_and(|shape| shape.len() != spatial) {
        return declined(format!("expected output_shape of {spatial} values, got {shape:?}"));
    }
    let mut convolution =
        Convolution { stride: window.strides.clone(), dilation: window.dilations.clone(), ..Convolution::new(spatial) };
    let mut y = vec![dims[0], filters];
    for axis in 0..spatial {
        let (input, stride) = (dims[axis + 2], window.strides[axis]);
        let natural = i128::from(stride) * i128::from(input - 1) + i128::from(more[axis]) + window.extent(axis);
        let Ok(natural) = i64::try_from(natural) else {
            return declined(format!("an output of {natural} along dimension {} is beyond 64 bits", axis + 2));
        };
        let (pre, post, output) = match (&shape, window.auto_pad) {
            (Some(shape), _) => {
                let total = natural.saturating_sub(shape[axis]).max(0);
                let (pre, post) = split(total, window.auto_pad);
                (pre, post, shape[axis])
            }
            (None, AutoPad::SameUpper | AutoPad::SameLower) => {
                let total = natural.saturating_sub(input.saturating_mul(stride)).max(0);
                let (pre, post) = split(total, window.auto_pad);
                (pre, post, natural - total)
            }
            (None, _) => {
                let (pre, post) = window.padding(axis, input)?;
                (pre, post, natural.saturating_sub(pre).saturating_sub(post))
            }
        };
        (convolution.pre_padding[axis], convolution.post_padding[axis]) = (pre, post);
        // The convolution that this is the gradient of has to give the image's extent.
        if output < 1 || convolution.output_extent(axis, output, window.kernel[axis]) != Some(input) {
            return declined(format!(
                "an output of {output} along dimension {} is none that a convolution takes to {input}",
                axis + 2
            ));
        }
        y.push(output);
    }
    let data_type = n.data_type(x);
    let result = n.emit(data_type, &y, |y| {
        Operation::ConvolutionBwd(ConvolutionBwd { dy: x.uid(), w: w.uid(), dx: y.uid(), convolution })
    })?;
    n.output_with_bias(result)
}

/// Splits padding; the odd one goes before the image unless `auto_pad` is `SAME_UPPER`.
fn split(total: i64, auto_pad: AutoPad) -> (i64, i64) {
    let small = total / 2;
    if auto_pad == AutoPad::SameUpper { (small, total - small) } else { (total - small, small) }
}
