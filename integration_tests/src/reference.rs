//! A convolution's three directions by plain loops in double precision, with bounds on the rounding errors of results.

use hipdnn_schemas::{ConvMode, Convolution, DataType};

use crate::tensor::{HostTensor, indices};

/// One element of the exact result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exact {
    /// The value, to double precision.
    pub value: f64,
    /// Error bound of an engine that accumulates in fp32, before the result is rounded to its own type.
    pub error: f64,
}

/// Unit roundoff: half of the distance from 1 to the next number of the type.
///
/// # Panics
/// For types that no test here has.
pub fn roundoff(data_type: DataType) -> f64 {
    match data_type {
        DataType::Float => 2f64.powi(-24),
        DataType::Half => 2f64.powi(-11),
        DataType::BFloat16 => 2f64.powi(-8),
        other => panic!("no roundoff for {other}"),
    }
}

/// Half of the smallest positive number of the type: the absolute error of rounding near zero.
fn underflow(data_type: DataType) -> f64 {
    match data_type {
        DataType::Half => 2f64.powi(-25),
        _ => 2f64.powi(-134),
    }
}

/// Direction of a convolution: which of its three tensors is computed from the other two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// `y = conv(x, w)`.
    Forward,
    /// `dx` from `dy` and `w`.
    BackwardData,
    /// `dw` from `x` and `dy`.
    BackwardWeights,
}

impl Direction {
    /// All of them.
    pub const ALL: [Direction; 3] = [Direction::Forward, Direction::BackwardData, Direction::BackwardWeights];
}

/// `y = conv(x, w)` in the order of `indices(y)`; the bound is that of [`convolve_towards`].
pub fn convolve(
    x: &HostTensor,
    w: &HostTensor,
    y_dims: &[i64],
    convolution: &Convolution,
    winograd: f64,
) -> Vec<Exact> {
    convolve_towards(Direction::Forward, x, w, y_dims, convolution, winograd)
}

/// The result of a direction, of the extents `dims`, in the order of `indices(dims)`. The operands are x and w, dy and w,
/// or x and dy.
///
/// Every element of every direction is a sum of products: over channels and taps forward, over filters and taps towards
/// the data, over images and positions towards the weights. Its n terms, each rounded, summed in any order and with any
/// use of fused multiply-add, are off by at most (n + 1) u Σ|products| to first order, with fp32's u (Higham, Accuracy and
/// Stability of Numerical Algorithms, 3.1); twice that covers the second order. Terms that fall into the padding are zero
/// and only help, and so do products of two halves or two bfloat16, which are exact in fp32.
/// For a square window of three taps or more in each phase of the stride, in fp32 and without dilation, an engine may use
/// Winograd's algorithm: its transforms add and subtract inputs of a whole tile with coefficients up to 5.25 before
/// multiplying, so canceled terms leave their rounding behind. `winograd` times the bound covers that.
pub fn convolve_towards(
    direction: Direction,
    first: &HostTensor,
    second: &HostTensor,
    dims: &[i64],
    convolution: &Convolution,
    winograd: f64,
) -> Vec<Exact> {
    let (first_dims, second_dims) = (first.def().dims.as_slice(), second.def().dims.as_slice());
    let (x_dims, w_dims, y_dims) = match direction {
        Direction::Forward => (first_dims, second_dims, dims),
        Direction::BackwardData => (dims, second_dims, first_dims),
        Direction::BackwardWeights => (first_dims, dims, second_dims),
    };
    let tile = match (&w_dims[2..], convolution.stride.as_slice(), convolution.dilation.as_slice()) {
        ([rows, columns], [down, across], [1, 1]) => rows == columns && down == across && *rows > 2 * down,
        _ => false,
    };
    let allowance = if tile && first.def().data_type == DataType::Float { winograd } else { 1.0 };
    let per_group = w_dims[0] / (x_dims[1] / w_dims[1]);
    let taps: i64 = w_dims[2..].iter().product();
    let terms = match direction {
        Direction::Forward => w_dims[1] * taps,
        Direction::BackwardData => per_group * taps,
        Direction::BackwardWeights => y_dims[0] * y_dims[2..].iter().product::<i64>(),
    };
    let (first, second) = (values(first), values(second));
    let mut sums = vec![(0.0, 0.0); usize::try_from(dims.iter().product::<i64>()).expect("extents are positive")];
    for (y_at, x_at, w_at) in products(x_dims, w_dims, y_dims, convolution) {
        let (product, to) = match direction {
            Direction::Forward => (first[x_at] * second[w_at], y_at),
            Direction::BackwardData => (first[y_at] * second[w_at], x_at),
            Direction::BackwardWeights => (first[x_at] * second[y_at], w_at),
        };
        let (value, magnitude): &mut (f64, f64) = &mut sums[to];
        *value += product;
        *magnitude += product.abs();
    }
    let factor = 2.0 * allowance * (terms as f64 + 1.0) * roundoff(DataType::Float);
    sums.into_iter().map(|(value, magnitude)| Exact { value, error: factor * magnitude + 1e-37 }).collect()
}

/// All values in logical order.
fn values(tensor: &HostTensor) -> Vec<f64> {
    indices(&tensor.def().dims).map(|index| tensor.get(&index)).collect()
}

/// The places, in logical order, of y, x and w whose elements a convolution relates.
fn products(
    x_dims: &[i64],
    w_dims: &[i64],
    y_dims: &[i64],
    convolution: &Convolution,
) -> impl Iterator<Item = (usize, usize, usize)> {
    let per_group = w_dims[0] / (x_dims[1] / w_dims[1]);
    let taps: Vec<Vec<i64>> = indices(&w_dims[2..]).collect();
    let tap_count = taps.len() as i64;
    indices(y_dims).enumerate().flat_map(move |(y_at, at)| {
        let mut found = Vec::new();
        for (tap_at, tap) in taps.iter().enumerate() {
            let (mut pixel, mut inside, mut through) = (0, true, 0);
            for axis in 0..tap.len() {
                let position = at[2 + axis] * convolution.stride[axis] + tap[axis] * convolution.dilation[axis]
                    - convolution.pre_padding[axis];
                inside &= (0..x_dims[2 + axis]).contains(&position);
                pixel = pixel * x_dims[2 + axis] + position;
                through = through * w_dims[2 + axis] + w_dims[2 + axis] - 1 - tap[axis];
            }
            if convolution.mode != ConvMode::Convolution {
                through = tap_at as i64;
            }
            if !inside {
                continue;
            }
            let pixels: i64 = x_dims[2..].iter().product();
            for channel in 0..w_dims[1] {
                let from = (at[0] * x_dims[1] + at[1] / per_group * w_dims[1] + channel) * pixels + pixel;
                let weight = (at[1] * w_dims[1] + channel) * tap_count + through;
                found.push((y_at, from as usize, weight as usize));
            }
        }
        found
    })
}

/// Panics at the first element that is further from the exact one than its error allows, after rounding to the output's type.
///
/// # Panics
/// As said, with the coordinates, the values and the number of elements that are off.
pub fn assert_close(what: &str, y: &HostTensor, wanted: &[Exact]) {
    if let Err(problem) = check_close(y, wanted) {
        panic!("{what}: {problem}");
    }
}

/// Checks that each element is as close to the exact one as its error allows, after rounding to the output's type.
///
/// # Errors
/// The first that is not: coordinates, values, and the number of elements that are off.
pub fn check_close(y: &HostTensor, wanted: &[Exact]) -> Result<(), String> {
    let data_type = y.def().data_type;
    let mut wrong = Vec::new();
    for (index, exact) in indices(&y.def().dims).zip(wanted) {
        let allowed = exact.error * 1.01 + 1.01 * roundoff(data_type) * exact.value.abs() + underflow(data_type);
        let got = y.get(&index);
        let error = (got - exact.value).abs();
        if error > allowed || error.is_nan() {
            wrong.push((index, got, exact.value, error / allowed));
        }
    }
    if let Some((index, got, value, excess)) = wrong.first() {
        return Err(format!(
            "y{index:?}: expected {value:e}, got {got:e}: {excess:.3} times the allowed error; {} of {} elements are off",
            wrong.len(),
            wanted.len()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hipdnn_schemas::TensorDef;

    use super::*;

    /// A convolution with the accuracy of fp32, whose every element can be spoiled.
    fn computed(data_type: DataType) -> (HostTensor, Vec<Exact>) {
        let convolution = Convolution { pre_padding: vec![1, 1], ..Convolution::new(2) };
        let x = HostTensor::random(&TensorDef::new(1, data_type, &[1, 4, 6, 7]), 1);
        let w = HostTensor::random(&TensorDef::new(2, data_type, &[4, 2, 3, 3]).channels_last(), 2);
        let def = TensorDef::new(3, data_type, &[1, 4, 5, 6]);
        let exact = convolve(&x, &w, &[1, 4, 5, 6], &convolution, 1.0);
        let mut y = HostTensor::blank(&def);
        for (index, exact) in indices(&def.dims).zip(&exact) {
            y.set(&index, exact.value);
        }
        (y, exact)
    }

    #[test]
    fn a_value_outside_its_bound_is_seen() {
        for (data_type, relative) in [(DataType::Float, 1e-4), (DataType::Half, 2e-3), (DataType::BFloat16, 2e-2)] {
            let (mut y, exact) = computed(data_type);
            assert_close("rounded once", &y, &exact);
            let index = [0, 1, 2, 3];
            let good = y.get(&index);
            for bad in [good * (1.0 + relative), good * (1.0 - relative), good + 0.5, f64::NAN, f64::INFINITY] {
                y.set(&index, bad);
                let outcome =
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| assert_close("spoilt", &y, &exact)));
                assert!(outcome.is_err(), "{data_type}: {bad} passed for {good}");
            }
        }
    }

    #[test]
    fn the_three_directions_are_adjoint() {
        // conv is linear in each operand: Σ conv(x, w)·v = Σ x·dx(v, w) = Σ w·dw(x, v) for every v.
        for mode in [ConvMode::CrossCorrelation, ConvMode::Convolution] {
            let convolution = Convolution {
                pre_padding: vec![2, 0],
                post_padding: vec![0, 1],
                stride: vec![2, 1],
                dilation: vec![1, 2],
                mode,
            };
            let random = |dims: &[i64], seed| HostTensor::random(&TensorDef::new(1, DataType::Float, dims), seed);
            let (x, w, v) = (random(&[2, 6, 7, 6], 1), random(&[4, 3, 3, 2], 2), random(&[2, 4, 4, 5], 3));
            let total = |exact: Vec<Exact>, with: &HostTensor| -> f64 {
                exact.iter().zip(values(with)).map(|(exact, value)| exact.value * value).sum()
            };
            let y = convolve(&x, &w, &v.def().dims, &convolution, 1.0);
            let dx = convolve_towards(Direction::BackwardData, &v, &w, &x.def().dims, &convolution, 1.0);
            let dw = convolve_towards(Direction::BackwardWeights, &x, &v, &w.def().dims, &convolution, 1.0);
            let sums = [total(y, &v), total(dx, &x), total(dw, &w)];
            assert!(sums.iter().all(|sum| (sum - sums[0]).abs() < 1e-9 * (1.0 + sums[0].abs())), "{mode}: {sums:?}");
        }
    }

    #[test]
    fn small_cases_by_hand() {
        // x = [1, 2, 3], w = [10, 1]: cross-correlation slides w as it is, convolution flips it.
        for (mode, wanted) in [(ConvMode::CrossCorrelation, [12.0, 23.0]), (ConvMode::Convolution, [21.0, 32.0])] {
            let mut x = HostTensor::blank(&TensorDef::new(1, DataType::Float, &[1, 1, 3]));
            let mut w = HostTensor::blank(&TensorDef::new(2, DataType::Float, &[1, 1, 2]));
            for (at, value) in [1.0, 2.0, 3.0].into_iter().enumerate() {
                x.set(&[0, 0, at as i64], value);
            }
            w.set(&[0, 0, 0], 10.0);
            w.set(&[0, 0, 1], 1.0);
            let convolution = Convolution { mode, ..Convolution::new(1) };
            let got: Vec<f64> =
                convolve(&x, &w, &[1, 1, 2], &convolution, 1.0).iter().map(|exact| exact.value).collect();
            assert_eq!(got, wanted, "{mode}");
        }
    }
}
