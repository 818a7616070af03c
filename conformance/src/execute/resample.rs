//! Pooling and its gradient.
//!
//! The index of a maximum is its place within the image of its channel, the last dimension running fastest; the first
//! of equals wins. The average leaves padding out of its count or not, as its mode says; what a window has beyond the
//! padding counts as padding.

use hipdnn_schemas::{PaddingMode, ResampleBwd, ResampleFwd, ResampleMode};

use super::Step;
use crate::array::{Array, each_index};
use crate::number::Number;

/// Calls `body` with the places of a window: coordinates in the image, or `None` in the padding.
fn each_place(
    at: &[usize],
    image: &[usize],
    window: &[i64],
    stride: &[i64],
    padding: &[i64],
    mut body: impl FnMut(Option<&[usize]>),
) {
    let extents: Vec<usize> = window.iter().map(|extent| *extent as usize).collect();
    let mut place = at.to_vec();
    each_index(&extents, |tap| {
        let mut inside = true;
        for axis in 0..tap.len() {
            let position = at[axis + 2] as i64 * stride[axis] + tap[axis] as i64 - padding[axis];
            inside &= (0..image[axis + 2] as i64).contains(&position);
            place[axis + 2] = position.max(0) as usize;
        }
        body(inside.then_some(&place));
    });
}

fn flat(place: &[usize], image: &[usize]) -> usize {
    place[2..].iter().zip(&image[2..]).fold(0, |flat, (i, extent)| flat * extent + i)
}

pub(super) fn forward(step: &mut Step, node: &ResampleFwd) -> Result<(), String> {
    let a = step.arithmetic;
    let x = step.operand(node.x)?;
    let dims = step.tensor(node.y).dims().to_vec();
    let taps: i64 = node.window.iter().product();
    let mut y = Vec::new();
    let mut index = Vec::new();
    each_index(&dims, |at| {
        let mut inside = Vec::new();
        let mut padded = false;
        each_place(at, &x.dims, &node.window, &node.stride, &node.pre_padding, |place| match place {
            Some(place) => inside.push((x.at(place), flat(place, &x.dims) as f64)),
            None => padded = true,
        });
        match node.resample_mode {
            ResampleMode::MaxPool => {
                if padded && node.padding_mode == PaddingMode::Zero {
                    // No place in the image has the zero: engines say −1, or what they like.
                    inside.push((Number::exact(0.0), f64::NAN));
                }
                let (value, place) = maximum(&inside);
                y.push(value);
                index.push(place);
            }
            _ => {
                let mut sum = a.sum();
                inside.iter().for_each(|(x, _)| sum.push(*x));
                let count = match node.resample_mode {
                    ResampleMode::AvgPoolExcludePadding => inside.len().max(1) as f64,
                    _ => taps as f64,
                };
                // Engines divide, or multiply with the rounded reciprocal.
                y.push(a.div(sum.finish(), Number::exact(count)));
            }
        }
    });
    match node.resample_mode {
        ResampleMode::MaxPool | ResampleMode::AvgPoolExcludePadding | ResampleMode::AvgPoolIncludePadding => {}
        other => return Err(format!("the executor does not have the mode {other}")),
    }
    step.write(node.y, Array { dims: dims.clone(), data: y });
    if let Some(uid) = node.index {
        if node.resample_mode != ResampleMode::MaxPool {
            return Err("only a maximum has an index".into());
        }
        step.write(uid, Array { dims, data: index });
    }
    Ok(())
}

/// The maximum and its place; where that is open, the hull of the places of all candidates.
fn maximum(elements: &[(Number, f64)]) -> (Number, Number) {
    if elements.is_empty() || elements.iter().any(|(x, _)| x.is_any() || x.value.is_nan()) {
        return (Number::any(), Number::any());
    }
    let value = super::reduction::extreme(elements.iter().map(|(x, _)| *x), f64::max);
    let sure = elements.iter().all(|(x, _)| x.error == 0.0);
    let first = elements.iter().find(|(x, _)| x.value == value.value).map(|(_, place)| *place);
    if let (true, Some(place)) = (sure, first) {
        // A maximum of minus infinity is what windows start from: whether it counts as found depends on the engine.
        let open = place.is_nan() || value.value == f64::NEG_INFINITY;
        return (value, if open { Number::any() } else { Number::exact(place) });
    }
    let least = elements.iter().map(|(x, _)| x.low()).fold(f64::NEG_INFINITY, f64::max);
    let mut candidates = elements.iter().filter(|(x, _)| x.high() >= least).map(|(_, place)| *place);
    let Some(first) = candidates.next() else { return (value, Number::any()) };
    let place = candidates.fold(Number::exact(first), |hull, place| Number::hull(hull, Number::exact(place)));
    (value, if place.value.is_nan() { Number::any() } else { place })
}

pub(super) fn backward(step: &mut Step, node: &ResampleBwd) -> Result<(), String> {
    let a = step.arithmetic;
    let dy = step.operand(node.dy)?;
    let dims = step.tensor(node.dx).dims().to_vec();
    let taps: i64 = node.window.iter().product();
    let index = node.index.map(|uid| step.stored(uid)).transpose()?;
    let mut sums = vec![a.sum(); dims.iter().product()];
    let position = |place: &[usize]| place.iter().zip(&dims).fold(0, |position, (i, extent)| position * extent + i);
    let mut failed = None;
    each_index(&dy.dims, |at| {
        let gradient = dy.at(at);
        let mut places = Vec::new();
        each_place(at, &dims, &node.window, &node.stride, &node.pre_padding, |place| {
            places.extend(place.map(|place| (position(place), flat(place, &dims) as f64)));
        });
        match node.resample_mode {
            ResampleMode::MaxPool => {
                let Some(index) = index else {
                    failed = Some("the gradient of a maximum has no index".to_string());
                    return;
                };
                let index = index.at(at);
                for (position, flat) in &places {
                    if index.error == 0.0 && index.value == *flat {
                        sums[*position].push(gradient);
                    } else if index.is_any() || (index.error > 0.0 && index.low() <= *flat && *flat <= index.high()) {
                        sums[*position].push(Number::hull(Number::exact(0.0), gradient));
                    }
                }
            }
            ResampleMode::AvgPoolExcludePadding | ResampleMode::AvgPoolIncludePadding => {
                let exclude = node.resample_mode == ResampleMode::AvgPoolExcludePadding;
                let count = if exclude { places.len() as f64 } else { taps as f64 };
                for (position, _) in &places {
                    sums[*position].push(a.div(gradient, Number::exact(count)));
                }
            }
            other => failed = Some(format!("the executor does not have the mode {other}")),
        }
    });
    if let Some(reason) = failed {
        return Err(reason);
    }
    step.write(node.dx, Array { dims: dims.clone(), data: sums.into_iter().map(|sum| sum.finish()).collect() });
    Ok(())
}
