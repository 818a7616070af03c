//! A convolution by plain loops in double precision, and how far rounding may take a result from it.

use hipdnn_schemas::{ConvMode, Convolution, DataType};

use crate::tensor::{HostTensor, indices};

/// One element of the exact result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exact {
    /// The value, to double precision.
    pub value: f64,
    /// How far an engine that accumulates in fp32 may be from it before the result is rounded to its own type.
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

/// `y = conv(x, w)` in the order of `indices(y)`.
///
/// A sum of n products, each rounded, in any order and with any use of fused multiply-add, is off by at most
/// (n + 1) u Σ|products| to first order, with fp32's u (Higham, Accuracy and Stability of Numerical Algorithms, 3.1);
/// twice that covers the second order. Products of two halves or two bfloat16 are exact in fp32, which only helps.
/// For a 3×3 window of stride and dilation 1 in fp32 an engine may use Winograd's algorithm: its transforms add and
/// subtract inputs of a whole tile with coefficients up to 5 before multiplying, so cancelled terms leave their rounding
/// behind. `winograd` times the bound covers that.
pub fn convolve(
    x: &HostTensor,
    w: &HostTensor,
    y_dims: &[i64],
    convolution: &Convolution,
    winograd: f64,
) -> Vec<Exact> {
    let (x_dims, w_dims) = (&x.def().dims, &w.def().dims);
    let spatial = x_dims.len() - 2;
    let groups = x_dims[1] / w_dims[1];
    let filters_per_group = w_dims[0] / groups;
    let tile = w_dims[2..] == [3, 3] && convolution.stride == [1, 1] && convolution.dilation == [1, 1];
    let allowance = if tile && x.def().data_type == DataType::Float { winograd } else { 1.0 };
    let terms = w_dims[1..].iter().product::<i64>() as f64;
    indices(y_dims)
        .map(|at| {
            let (mut value, mut magnitude) = (0.0, 0.0);
            let group = at[1] / filters_per_group;
            for tap in indices(&w_dims[1..]) {
                let mut from = vec![at[0], group * w_dims[1] + tap[0]];
                let mut through = vec![at[1], tap[0]];
                let mut inside = true;
                for axis in 0..spatial {
                    let position = at[2 + axis] * convolution.stride[axis] + tap[1 + axis] * convolution.dilation[axis]
                        - convolution.pre_padding[axis];
                    inside &= (0..x_dims[2 + axis]).contains(&position);
                    from.push(position);
                    through.push(match convolution.mode {
                        ConvMode::Convolution => w_dims[2 + axis] - 1 - tap[1 + axis],
                        _ => tap[1 + axis],
                    });
                }
                if inside {
                    let product = x.get(&from) * w.get(&through);
                    value += product;
                    magnitude += product.abs();
                }
            }
            Exact { value, error: 2.0 * allowance * (terms + 1.0) * roundoff(DataType::Float) * magnitude + 1e-37 }
        })
        .collect()
}

/// Panics at the first element that is further from the exact one than its error allows, after rounding to the output's type.
///
/// # Panics
/// As said, with the coordinates, the values and the number of elements that are off.
pub fn assert_close(what: &str, y: &HostTensor, wanted: &[Exact]) {
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
        panic!(
            "{what}: y{index:?} is {got:e}, wanted {value:e}: {excess:.3} times the allowed error; {} of {} elements are off",
            wrong.len(),
            wanted.len()
        );
    }
}

#[cfg(test)]
mod tests {
    use hipdnn_schemas::TensorDef;

    use super::*;

    /// A convolution with the accuracy of fp32, whose every element can be spoilt.
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
