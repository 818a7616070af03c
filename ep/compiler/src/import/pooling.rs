//! Pooling.

use hipdnn_schemas::{DataType, Operation, PaddingMode, PointwiseMode, ReductionMode, ResampleFwd, ResampleMode};

use super::convolution::{AutoPad, Window};
use super::fold::Folded;
use super::{Declined, Importer, Operator, declined, sums};
use crate::ir::ValueId;

pub(super) const OPERATORS: &[Operator] = &[
    sums("AveragePool", average_pool),
    sums("GlobalAveragePool", |n| global(n, ReductionMode::Average)),
    sums("GlobalLpPool", global_lp_pool),
    sums("GlobalMaxPool", |n| global(n, ReductionMode::Max)),
    sums("LpPool", lp_pool),
    sums("MaxPool", max_pool),
];

/// Reduces all spatial dimensions of [N, C, ...] to extent 1.
fn global(n: &mut Importer<'_>, mode: ReductionMode) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let rank = n.rank(x);
    if rank < 3 {
        return declined(format!("expected at least 3 dimensions, got {rank}"));
    }
    let y = n.reduce(mode, x, &(2..rank).collect::<Vec<_>>())?;
    n.output(0, y);
    Ok(())
}

fn global_lp_pool(n: &mut Importer<'_>) -> Result<(), Declined> {
    match n.int("p", 2) {
        1 => global(n, ReductionMode::Norm1),
        2 => global(n, ReductionMode::Norm2),
        p => declined(format!("expected p 1 or 2, got {p}")),
    }
}

/// The windows of a pooling node.
fn windows(n: &Importer<'_>, x: ValueId) -> Result<Window, Declined> {
    let rank = n.rank(x);
    if !(3..=5).contains(&rank) {
        return declined(format!("expected 3 to 5 dimensions, got {rank}"));
    }
    let Some(kernel) = n.ints_of("kernel_shape").filter(|kernel| kernel.len() == rank - 2) else {
        return declined(format!(
            "expected kernel_shape of {} values, got {:?}",
            rank - 2,
            n.ints_of("kernel_shape").unwrap_or_default()
        ));
    };
    if let Some(extent) = kernel.iter().find(|extent| !(1..=i64::from(i32::MAX)).contains(*extent)) {
        return declined(format!("expected a kernel_shape of 1 to {}, got {extent}", i32::MAX));
    }
    let window = Window::read(n, &kernel)?;
    let same = matches!(window.auto_pad, AutoPad::SameUpper | AutoPad::SameLower);
    if same && (0..kernel.len()).any(|axis| i128::from(window.strides[axis]) > window.extent(axis)) {
        return declined(
            "strides beyond the window make negative padding, which ONNX Runtime refuses or reads beyond the image",
        );
    }
    Ok(window)
}

/// Pools windows with holes, or that hang over the end: the elements of each window are dimensions of a view, which are
/// reduced. Without a mode they are summed.
fn dilated_pool(
    n: &mut Importer<'_>,
    x: ValueId,
    window: &Window,
    mode: Option<ResampleMode>,
    ceil: bool,
) -> Result<ValueId, Declined> {
    let dims = n.dims(x);
    let spatial = window.kernel.len();
    let (x, pre, post) = n.cropped(x, &window.paddings(&dims)?)?;
    let dims = n.dims(x);
    let outputs = window.outputs(&dims, &pre, &post, ceil)?;
    if outputs.contains(&0) {
        let data_type = n.data_type(x);
        return Ok(n.function.result(data_type, &[&dims[..2], &outputs].concat()));
    }
    let max = mode == Some(ResampleMode::MaxPool);
    let mut y = dims[..2].to_vec();
    let mut pads = vec![(0, 0); 2];
    // How many elements of each window count, along each dimension.
    let mut counts = Vec::new();
    for axis in 0..spatial {
        let (input, stride, dilation) = (dims[axis + 2], window.strides[axis], window.dilations[axis]);
        let extent = outputs[axis];
        y.push(extent);
        // A window that fits is no larger than the padded image, and hangs over by less than a stride.
        let needed = (extent - 1) * stride + window.extent(axis) as i64;
        pads.push((pre[axis], (needed - input - pre[axis]).max(post[axis])));
        let counted = if mode == Some(ResampleMode::AvgPoolIncludePadding) {
            (0, input + pre[axis] + post[axis])
        } else {
            (pre[axis], pre[axis] + input)
        };
        let count = |place: i64| {
            let taps = (0..window.kernel[axis]).map(|tap| place * stride + tap * dilation);
            // The mean of nothing is 0.
            taps.filter(|at| (counted.0..counted.1).contains(at)).count().max(1) as f64
        };
        counts.push((0..extent).map(count).collect::<Vec<f64>>());
    }
    let data_type = n.data_type(x);
    let fill = n.number(if max { least(data_type) } else { 0.0 }, data_type, dims.len());
    let x = n.padded(x, &pads, fill);
    let value = n.function.value(x);
    let (mut shape, mut strides) = (y.clone(), value.strides[..2].to_vec());
    strides.extend((0..spatial).map(|axis| value.strides[axis + 2] * window.strides[axis]));
    shape.extend(&window.kernel);
    strides.extend((0..spatial).map(|axis| value.strides[axis + 2] * window.dilations[axis]));
    let windows = n.function.view(x, &shape, &strides, 0);
    let taps: Vec<usize> = (2 + spatial..2 + 2 * spatial).collect();
    let reduced = n.reduce(if max { ReductionMode::Max } else { ReductionMode::Add }, windows, &taps)?;
    let mut reduced = n.reshape(reduced, &y);
    if mode.is_some() && !max {
        for (axis, counts) in counts.into_iter().enumerate() {
            let mut row = vec![1; y.len()];
            row[axis + 2] = y[axis + 2];
            let counts = n.constant(&Folded::real(data_type, row, counts));
            reduced = n.binary(PointwiseMode::Div, reduced, counts)?;
        }
    }
    Ok(reduced)
}

/// The maximum of a window without elements, which holes make possible: minus infinity, but for the least `f32`, which ONNX
/// Runtime's maxima in `f32` begin with.
fn least(data_type: DataType) -> f64 {
    if data_type == DataType::Float { f64::from(f32::MIN) } else { f64::NEG_INFINITY }
}

/// Pools windows of [N, C, ...]. With `ceil` the last window may hang over the end, if it begins before the end of the image.
fn pool(
    n: &mut Importer<'_>,
    x: ValueId,
    window: &Window,
    mode: ResampleMode,
    ceil: bool,
) -> Result<ValueId, Declined> {
    let dims = n.dims(x);
    let padding = window.paddings(&dims)?;
    let whole = x;
    let (x, pre_padding, post_padding) = n.cropped(x, &padding)?;
    let holes = window.dilations.iter().zip(&window.kernel).any(|(dilation, extent)| *dilation != 1 && *extent != 1);
    let cropped = n.dims(x);
    // Padding counts, and what lies beyond it does not: hipDNN divides by the whole window.
    let outputs = window.outputs(&cropped, &pre_padding, &post_padding, ceil)?;
    if outputs.contains(&0) {
        let data_type = n.data_type(x);
        return Ok(n.function.result(data_type, &[&cropped[..2], &outputs].concat()));
    }
    let over = (0..window.kernel.len()).any(|axis| {
        let end = (outputs[axis] - 1) * window.strides[axis] + window.kernel[axis];
        end > cropped[axis + 2] + pre_padding[axis] + post_padding[axis]
    });
    if holes
        || window.hangs(&cropped, &pre_padding, &post_padding)
        || (over && mode == ResampleMode::AvgPoolIncludePadding)
    {
        return dilated_pool(n, whole, window, Some(mode), ceil);
    }
    let x = n.apart(x);
    let dims = n.dims(x);
    let mut y = dims[..2].to_vec();
    y.extend(outputs);
    let node = ResampleFwd {
        x: x.uid(),
        y: x.uid(),
        index: None,
        pre_padding,
        post_padding,
        stride: window.strides.clone(),
        window: window.kernel.clone(),
        resample_mode: mode,
        padding_mode: if mode == ResampleMode::MaxPool { PaddingMode::NegInf } else { PaddingMode::Zero },
        generate_index: None,
    };
    let data_type = n.data_type(x);
    n.emit(data_type, &y, |y| Operation::ResampleFwd(ResampleFwd { y: y.uid(), ..node }))
}

fn max_pool(n: &mut Importer<'_>) -> Result<(), Declined> {
    if n.has_output(1) {
        return declined("the indices of maximum pooling count otherwise in hipDNN");
    }
    let x = n.number_input(0)?;
    let window = windows(n, x)?;
    let ceil = n.int("ceil_mode", 0) != 0;
    let y = pool(n, x, &window, ResampleMode::MaxPool, ceil)?;
    n.output(0, y);
    Ok(())
}

fn average_pool(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let window = windows(n, x)?;
    let ceil = n.int("ceil_mode", 0) != 0;
    let includes = n.int("count_include_pad", 0) != 0;
    let mode = if includes { ResampleMode::AvgPoolIncludePadding } else { ResampleMode::AvgPoolExcludePadding };
    let y = pool(n, x, &window, mode, ceil)?;
    n.output(0, y);
    Ok(())
}

/// Norms of windows: of `p` 1 the sum of magnitudes, of `p` 2 the root of the sum of squares.
fn lp_pool(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let window = windows(n, x)?;
    let p = n.int("p", 2);
    let magnitudes = match p {
        1 => n.apply(PointwiseMode::Abs, x)?,
        2 => n.binary(PointwiseMode::Mul, x, x)?,
        p => return declined(format!("expected p 1 or 2, got {p}")),
    };
    let mut y = dilated_pool(n, magnitudes, &window, None, n.int("ceil_mode", 0) != 0)?;
    if p == 2 {
        y = n.apply(PointwiseMode::Sqrt, y)?;
    }
    n.output(0, y);
    Ok(())
}
