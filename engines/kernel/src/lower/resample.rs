//! Pooling, and its gradient: see [`hipdnn_engine_core::ops::pooling`].
//!
//! A group is a place of the result. In pooling its members are the window's taps. In the gradient they are the windows
//! that may contain the place, numbered by the tap that the place is, or all windows where these are fewer: nothing is
//! scattered, and each sum has a fixed order.

use hipdnn_engine_core::Declined;
use hipdnn_engine_core::checks::check_size;
use hipdnn_engine_core::ops::NUMBERS;
use hipdnn_engine_core::ops::pooling::{self, Mode, Pooling};
use hipdnn_schemas::{DataType, Graph, PointwiseMode, ResampleBwd, ResampleFwd};

use super::build::{Body, Combine, Kernel, Value};
use super::check_digits;
use crate::ir::group::{AffineExpr, GroupWork, IndexMap, Input, Operand};
use crate::ir::op::Work;

/// Limit of an image's places: indices are computed in `f32`, which is exact up to 2²⁴.
const MOST_PLACES: u128 = 1 << 24;

/// Limit of a window's taps, the members of a group.
const MOST_TAPS: u128 = 1 << 24;

/// Lowers pooling.
///
/// # Errors
/// If the engine does not support the node, with the reason.
pub fn forward(graph: &Graph, index: usize, node: &ResampleFwd) -> Result<Work, Declined> {
    let pooling = pooling::forward(graph, index, node, NUMBERS)?;
    // One of the elements has no more digits than they have.
    if !pooling.mode.is_greatest() {
        check_digits(graph, index, [pooling.large], pooling.small)?;
    }
    let shape = Shape::new(graph, &pooling);
    check_members(graph, index, &shape.window)?;
    if pooling.index.is_some() {
        check_size(graph, index, "places of an image with padding, to be numbered", shape.reach(), MOST_PLACES)?;
    }
    let mut kernel = Kernel::new(shape.places(&shape.output), shape.window.clone());
    match pooling.mode {
        Mode::Average { zeros } => average(&shape, &pooling, zeros, &mut kernel),
        Mode::Max { zeros } if pooling.index.is_some() => greatest_with_index(&shape, &pooling, zeros, &mut kernel),
        Mode::Max { zeros } => {
            let pad_value = if zeros { 0.0 } else { f64::NEG_INFINITY };
            let result = kernel.fold(|body| vec![Combine::Max(shape.tap(body, &pooling, pad_value))])[0];
            kernel.once(|body| {
                body.store(result, Operand::Tensor(pooling.small), shape.here());
                []
            });
        }
    }
    Ok(finish(graph, index, "pooling", &pooling, kernel))
}

/// Lowers the gradient of pooling.
///
/// # Errors
/// If the engine does not support the node, with the reason.
pub fn backward(graph: &Graph, index: usize, node: &ResampleBwd) -> Result<Work, Declined> {
    let pooling = pooling::backward(graph, index, node, NUMBERS)?;
    check_digits(graph, index, [pooling.small].into_iter().chain(pooling.index), pooling.large)?;
    let shape = Shape::new(graph, &pooling);
    let members: Vec<usize> = (0..shape.window.len()).map(|axis| shape.windows_of_place(axis)).collect();
    check_members(graph, index, &members)?;
    if pooling.mode == (Mode::Average { zeros: false }) && shape.leaves_image() {
        for extent in &shape.input {
            check_size(graph, index, "places of a dimension, to be counted", *extent as u128, MOST_PLACES)?;
        }
    }
    let mut kernel = Kernel::new(shape.places(&shape.input), members);
    let place = pooling.index.map(|indices| {
        let [place] = kernel.once(|body| [shape.number(body, |axis| Input::Index(2 + axis))]);
        (indices, place)
    });
    let sum = kernel.fold(|body| {
        let at = shape.window_of_place();
        let mut part = body.element(Operand::Tensor(pooling.small), at.clone());
        let zero = body.literal(0.0);
        match place {
            Some((indices, place)) => {
                let chosen = body.input(Input::Element { of: Operand::Tensor(indices), at, pad_value: -1.0 });
                let is_here = body.op(PointwiseMode::CmpEq, &[chosen, place]);
                part = body.select(is_here, part, zero);
            }
            None => {
                let taps = shape.taps_inside(body, pooling.mode == Mode::Average { zeros: true });
                part = body.div(part, taps);
            }
        }
        if let Some(has_place) = shape.has_place(body) {
            part = body.select(has_place, part, zero);
        }
        vec![Combine::Sum(part)]
    })[0];
    kernel.once(|body| {
        body.store(sum, Operand::Tensor(pooling.large), shape.here());
        []
    });
    Ok(finish(graph, index, "pooling gradient", &pooling, kernel))
}

fn check_members(graph: &Graph, index: usize, extents: &[usize]) -> Result<(), Declined> {
    let count = extents.iter().fold(1, |count: u128, extent| count.saturating_mul(*extent as u128));
    check_size(graph, index, "taps of a window", count, MOST_TAPS)
}

fn finish(graph: &Graph, index: usize, name: &'static str, pooling: &Pooling<'_>, kernel: Kernel) -> Work {
    let is_wide = |uid| matches!(graph.tensor(uid).data_type(), DataType::Double | DataType::Int32 | DataType::Int64);
    let partial = if is_wide(pooling.large) || is_wide(pooling.small) { DataType::Double } else { DataType::Float };
    Work::Groups(GroupWork { node: index, name, locals: Vec::new(), kernels: vec![kernel.finish()], partial })
}

fn average(shape: &Shape, pooling: &Pooling<'_>, zeros: bool, kernel: &mut Kernel) {
    let is_partial = !zeros && shape.leaves_image();
    let left = kernel.fold(|body| {
        let mut combines = vec![Combine::Sum(shape.tap(body, pooling, 0.0))];
        if is_partial {
            combines.push(Combine::Sum(shape.is_inside(body)));
        }
        combines
    });
    kernel.once(|body| {
        let taps = match left.get(1) {
            // A window wholly outside sums nothing: whatever it is divided by gives 0.
            Some(inside) => {
                let one = body.literal(1.0);
                body.op(PointwiseMode::Max, &[*inside, one])
            }
            None => body.number(shape.window.iter().product::<usize>() as f64),
        };
        let result = body.div(left[0], taps);
        body.store(result, Operand::Tensor(pooling.small), shape.here());
        []
    });
}

fn greatest_with_index(shape: &Shape, pooling: &Pooling<'_>, zeros: bool, kernel: &mut Kernel) {
    // The number of the place that tap 0 would have.
    let [origin] = kernel.once(|body| {
        let spatial = shape.window.len();
        let mut steps = shape.steps();
        for (step, stride) in steps.iter_mut().zip(&shape.stride) {
            *step *= stride;
        }
        let before: i64 = shape.steps().iter().zip(&shape.padding).map(|(step, padding)| step * padding).sum();
        let number = weighted(body, (0..spatial).map(|axis| Input::Index(2 + axis)), &steps);
        let before = body.number(before as f64);
        [body.sub(number, before)]
    });
    let leaves = shape.leaves_image();
    let pad_value = if zeros { 0.0 } else { f64::NEG_INFINITY };
    let left = kernel.fold(|body| {
        let value = shape.tap(body, pooling, pad_value);
        let spatial = shape.window.len();
        let tap = weighted(body, (0..spatial).map(|axis| Input::Index(2 + spatial + axis)), &shape.steps());
        let mut place = body.add(origin, tap);
        let mut combines = Vec::new();
        if leaves {
            let inside = shape.is_inside(body);
            if !zeros {
                let none = body.literal(f64::INFINITY);
                combines.push(Combine::Min(body.select(inside, place, none)));
            }
            let none = body.literal(-1.0);
            place = body.select(inside, place, none);
        }
        combines.insert(0, Combine::ArgMax(value, place));
        combines
    });
    kernel.once(|body| {
        let mut place = left[1];
        if let Some(first) = left.get(2) {
            // Minus infinity is no greater than what is around the image, but has a place.
            let (zero, lowest) = (body.literal(0.0), body.literal(f64::NEG_INFINITY));
            let is_nowhere = body.op(PointwiseMode::CmpLt, &[place, zero]);
            let none = body.literal(f64::INFINITY);
            let is_somewhere = body.op(PointwiseMode::CmpLt, &[*first, none]);
            let is_lowest = body.op(PointwiseMode::CmpEq, &[left[0], lowest]);
            let both = body.op(PointwiseMode::LogicalAnd, &[is_nowhere, is_somewhere]);
            let all = body.op(PointwiseMode::LogicalAnd, &[both, is_lowest]);
            place = body.select(all, *first, place);
        }
        body.store(left[0], Operand::Tensor(pooling.small), shape.here());
        body.store(place, Operand::Tensor(pooling.index.expect("it was asked for")), shape.here());
        []
    });
}

/// Weighted sum `Σ index · factor`.
fn weighted(body: &mut Body, indices: impl Iterator<Item = Input>, factors: &[i64]) -> Value {
    let mut sum = None;
    for (index, factor) in indices.zip(factors) {
        let mut term = body.input(index);
        if *factor != 1 {
            let factor = body.number(*factor as f64);
            term = body.mul(term, factor);
        }
        sum = Some(sum.map_or(term, |sum| body.add(sum, term)));
    }
    sum.expect("an image has a dimension")
}

/// Geometry of the spatial dimensions: extents, windows, strides and paddings. Loops are batch, channels, spatial
/// dimensions of the result, and then those of the window.
struct Shape {
    batch: usize,
    channels: usize,
    input: Vec<usize>,
    output: Vec<usize>,
    window: Vec<usize>,
    stride: Vec<i64>,
    padding: Vec<i64>,
}

impl Shape {
    fn new(graph: &Graph, pooling: &Pooling<'_>) -> Shape {
        let (large, small) = (graph.tensor(pooling.large).dims(), graph.tensor(pooling.small).dims());
        let window = pooling.window.iter();
        Shape {
            batch: large[0],
            channels: large[1],
            input: large[2..].to_vec(),
            output: small[2..].to_vec(),
            window: window.map(|extent| usize::try_from(*extent).expect("a checked window has extents")).collect(),
            stride: pooling.stride.to_vec(),
            padding: pooling.padding.to_vec(),
        }
    }

    fn places(&self, spatial: &[usize]) -> Vec<usize> {
        [&[self.batch, self.channels], spatial].concat()
    }

    fn loops(&self) -> usize {
        2 + 2 * self.window.len()
    }

    /// Index map of the result's element.
    fn here(&self) -> IndexMap {
        (0..2 + self.window.len()).map(|which| AffineExpr::along(self.loops(), which)).collect()
    }

    /// Indices of the spatial dimensions, affine in the loops of the place and of the tap; `line` gives (offset, step
    /// of the place, step of the tap, divisor).
    fn lines(&self, line: impl Fn(usize) -> (i64, i64, i64, u64)) -> impl Iterator<Item = AffineExpr> {
        let spatial = self.window.len();
        (0..spatial).map(move |axis| {
            let (offset, place, tap, divisor) = line(axis);
            let mut line = AffineExpr { offset, divisor, ..AffineExpr::fixed(self.loops()) };
            line.steps[2 + axis] = place;
            line.steps[2 + spatial + axis] = tap;
            line
        })
    }

    /// Indices of the batch and of the channels.
    fn plane(&self) -> impl Iterator<Item = AffineExpr> {
        (0..2).map(|which| AffineExpr::along(self.loops(), which))
    }

    /// In pooling: indices in the image of a window's tap.
    fn taps(&self) -> impl Iterator<Item = AffineExpr> {
        self.lines(|axis| (-self.padding[axis], self.stride_between(axis), 1, 1))
    }

    /// In the gradient: true if the members of a place are all windows along that dimension, because these are fewer
    /// than a window's taps; else they are the taps that the place is of a window, if there is such a window.
    fn counts_windows(&self, axis: usize) -> bool {
        self.output[axis] < self.window[axis]
    }

    /// In the gradient: number of candidate windows of a place.
    fn windows_of_place(&self, axis: usize) -> usize {
        self.output[axis].min(self.window[axis])
    }

    /// In the gradient: index map of a candidate window, which contains the place if it is in bounds, and if
    /// [`Shape::has_place`].
    fn window_of_place(&self) -> IndexMap {
        let windows = self.lines(|axis| match self.counts_windows(axis) {
            true => (0, 0, 1, 1),
            false => (self.padding[axis], 1, -1, self.stride[axis].unsigned_abs()),
        });
        self.plane().chain(windows).collect()
    }

    /// In the gradient: predicate of a window that contains the place; `None` where every window in bounds does.
    fn has_place(&self, body: &mut Body) -> Option<Value> {
        let counted: Vec<usize> = (0..self.window.len()).filter(|axis| self.counts_windows(*axis)).collect();
        let tap: IndexMap = self.lines(|axis| (self.padding[axis], 1, -self.stride_between(axis), 1)).collect();
        let at: IndexMap = counted.iter().map(|axis| tap[*axis].clone()).collect();
        let dims: Vec<usize> = counted.iter().map(|axis| self.window[*axis]).collect();
        (!counted.is_empty()).then(|| body.input(Input::InBounds { dims, at }))
    }

    /// Stride between windows; 0 for a single window, whose stride may be of any size.
    fn stride_between(&self, axis: usize) -> i64 {
        if self.output[axis] > 1 { self.stride[axis] } else { 0 }
    }

    /// In pooling: element of the image at a tap, `pad_value` beyond the image.
    fn tap(&self, body: &mut Body, pooling: &Pooling<'_>, pad_value: f64) -> Value {
        let at = self.plane().chain(self.taps()).collect();
        body.input(Input::Element { of: Operand::Tensor(pooling.large), at, pad_value })
    }

    /// In pooling: predicate of a tap in the image.
    fn is_inside(&self, body: &mut Body) -> Value {
        body.input(Input::InBounds { dims: self.input.clone(), at: self.taps().collect() })
    }

    /// True if a window along that dimension may leave the image.
    fn leaves_along(&self, axis: usize) -> bool {
        let last = (self.output[axis] as i64 - 1) * self.stride[axis] + self.window[axis] as i64;
        self.padding[axis] > 0 || last > self.padding[axis] + self.input[axis] as i64
    }

    fn leaves_image(&self) -> bool {
        (0..self.window.len()).any(|axis| self.leaves_along(axis))
    }

    /// Strides of the spatial dimensions in the numbering of places.
    fn steps(&self) -> Vec<i64> {
        (0..self.input.len()).map(|axis| self.input[axis + 1..].iter().product::<usize>() as i64).collect()
    }

    /// Number of the place in the image at which the loops are.
    fn number(&self, body: &mut Body, index: impl Fn(usize) -> Input) -> Value {
        weighted(body, (0..self.input.len()).map(index), &self.steps())
    }

    /// Largest magnitude in the computation of place numbers.
    fn reach(&self) -> u128 {
        let axes = 0..self.input.len();
        let of_axis = |axis: usize| {
            let windows = (self.output[axis] as u128 - 1) * u128::from(self.stride[axis].unsigned_abs());
            (windows + self.window[axis] as u128 + u128::from(self.padding[axis].unsigned_abs()))
                .saturating_mul(self.input[axis + 1..].iter().map(|extent| *extent as u128).product())
        };
        axes.map(of_axis).fold(0, u128::saturating_add)
    }

    /// In the gradient of an average: number of places that count in the window. It depends on the window only where
    /// windows leave the image.
    fn taps_inside(&self, body: &mut Body, zeros: bool) -> Value {
        let spatial = self.window.len();
        let varies = |axis: usize| !zeros && self.leaves_along(axis);
        let fixed: usize = (0..spatial).filter(|axis| !varies(*axis)).map(|axis| self.window[axis]).product();
        let mut taps = (fixed != 1 || (0..spatial).all(|axis| !varies(axis))).then(|| body.number(fixed as f64));
        for axis in (0..spatial).filter(|axis| varies(*axis)) {
            let (place, member) = (Input::Index(2 + axis), Input::Index(2 + spatial + axis));
            let begin = if self.counts_windows(axis) {
                let first = weighted(body, [member].into_iter(), &[self.stride_between(axis)]);
                let padding = body.number(self.padding[axis] as f64);
                body.sub(first, padding)
            } else {
                // The member is the tap that the place is.
                let (place, tap) = (body.input(place), body.input(member));
                body.sub(place, tap)
            };
            let (window, extent) = (body.number(self.window[axis] as f64), body.number(self.input[axis] as f64));
            let end = body.add(begin, window);
            let end = body.op(PointwiseMode::Min, &[end, extent]);
            let zero = body.literal(0.0);
            let begin = body.op(PointwiseMode::Max, &[begin, zero]);
            let inside = body.sub(end, begin);
            taps = Some(taps.map_or(inside, |taps| body.mul(taps, inside)));
        }
        taps.expect("an image has a dimension")
    }
}

#[cfg(test)]
mod tests;
