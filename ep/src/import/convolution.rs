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
    /// Which attribute does not fit.
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
            match list.iter().find(|value| !(least..=i64::from(i32::MAX)).contains(value)) {
                _ if list.len() != count => declined(format!("expected {count} values of {name}, got {}", list.len())),
                Some(value) => declined(format!("expected {name} of {least} to {}, got {value}", i32::MAX)),
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
    pub(super) fn extent(&self, axis: usize) -> i64 {
        self.dilations[axis] * (self.kernel[axis] - 1) + 1
    }

    /// Padding before and after along `axis` for an image of `input`. Where a stride is larger than the window needs, ONNX
    /// Runtime leaves rows of the image out on both sides: the padding is negative.
    pub(super) fn padding(&self, axis: usize, input: i64) -> (i64, i64) {
        let stride = self.strides[axis];
        match self.auto_pad {
            AutoPad::NotSet => (self.pads[axis], self.pads[axis + self.kernel.len()]),
            AutoPad::Valid => (0, 0),
            AutoPad::SameUpper | AutoPad::SameLower => {
                let output = (input + stride - 1) / stride;
                let needed = (output - 1) * stride + self.extent(axis) - input;
                let before = if self.auto_pad == AutoPad::SameLower { (needed + 1) / 2 } else { needed / 2 };
                (before, needed - before)
            }
        }
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

    /// Adds one number a channel to [N, C, ...].
    pub(super) fn add_bias(&mut self, y: ValueId, bias: ValueId) -> Result<ValueId, Declined> {
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
    let padding: Vec<_> = (0..window.kernel.len()).map(|axis| window.padding(axis, dims[axis + 2])).collect();
    let (x, pre_padding, post_padding) = n.cropped(x, &padding)?;
    let dims = n.dims(x);
    let convolution = Convolution {
        pre_padding,
        post_padding,
        stride: window.strides.clone(),
        dilation: window.dilations.clone(),
        ..Convolution::new(window.kernel.len())
    };
    let mut y = vec![dims[0], weights[0]];
    for axis in 0..window.kernel.len() {
        let (input, kernel) = (dims[axis + 2], window.kernel[axis]);
        match convolution.output_extent(axis, input, kernel) {
            Some(extent) => y.push(extent),
            None => {
                return declined(format!(
                    "the window of {} along dimension {} is larger than the image of {input} with its padding of {} and {}",
                    window.extent(axis),
                    axis + 2,
                    convolution.pre_padding[axis],
                    convolution.post_padding[axis]
                ));
            }
        }
    }
    let data_type = n.data_type(x);
    let mut result = n.emit(data_type, &y, |y| {
        Operation::ConvolutionFwd(ConvolutionFwd { x: x.uid(), w: w.uid(), y: y.uid(), convolution })
    })?;
    if n.has_input(2) {
        let bias = n.float_input(2)?;
        result = n.add_bias(result, bias)?;
    }
    n.output(0, result);
    Ok(())
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
        let natural = stride * (input - 1) + more[axis] + window.extent(axis);
        let (pre, post, output) = match (&shape, window.auto_pad) {
            (Some(shape), _) => {
                let total = (natural - shape[axis]).max(0);
                let (pre, post) = split(total, window.auto_pad);
                (pre, post, shape[axis])
            }
            (None, AutoPad::SameUpper | AutoPad::SameLower) => {
                let total = (natural - input * stride).max(0);
                let (pre, post) = split(total, window.auto_pad);
                (pre, post, natural - total)
            }
            (None, _) => {
                let (pre, post) = window.padding(axis, input);
                (pre, post, natural - pre - post)
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
    let mut result = n.emit(data_type, &y, |y| {
        Operation::ConvolutionBwd(ConvolutionBwd { dy: x.uid(), w: w.uid(), dx: y.uid(), convolution })
    })?;
    if n.has_input(2) {
        let bias = n.float_input(2)?;
        result = n.add_bias(result, bias)?;
    }
    n.output(0, result);
    Ok(())
}

/// Splits padding; the odd one goes before the image unless `auto_pad` is `SAME_UPPER`.
fn split(total: i64, auto_pad: AutoPad) -> (i64, i64) {
    let small = total / 2;
    if auto_pad == AutoPad::SameUpper { (small, total - small) } else { (total - small, small) }
}
