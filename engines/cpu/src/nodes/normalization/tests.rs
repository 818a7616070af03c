//! Common parts of the tests of normalizations, and tests of the walk over memory.

use hipdnn_schemas::DataType;

use super::*;
use crate::nodes::testing::unit;

/// The groups of a tensor, over values in logical order.
pub(crate) struct Groups<'a> {
    x: &'a [f64],
    dims: Vec<usize>,
    reduced: Vec<bool>,
}

/// Statistics of a group, by a plain loop.
pub(crate) struct Statistic {
    pub(crate) mean: f64,
    pub(crate) variance: f64,
    pub(crate) inverse: f64,
    /// Largest normalized magnitude.
    pub(crate) weight: f64,
    /// Largest magnitude.
    pub(crate) size: f64,
}

impl<'a> Groups<'a> {
    pub(crate) fn new(x: &'a [f64], dims: &[i64], reduced: impl Fn(usize) -> bool) -> Groups<'a> {
        let dims: Vec<usize> = dims.iter().map(|d| *d as usize).collect();
        Groups { x, reduced: (0..dims.len()).map(reduced).collect(), dims }
    }

    /// Number of elements of a group.
    pub(crate) fn count(&self) -> usize {
        self.dims.iter().zip(&self.reduced).filter(|(_, r)| **r).map(|(d, _)| *d).product()
    }

    /// Group of an element.
    pub(crate) fn group(&self, i: usize) -> usize {
        self.split(i).0
    }

    /// Group of an element and its number there.
    pub(crate) fn split(&self, mut i: usize) -> (usize, usize) {
        let (mut group, mut element, mut groups, mut elements) = (0, 0, 1, 1);
        for (extent, reduced) in self.dims.iter().zip(&self.reduced).rev() {
            let at = i % extent;
            i /= extent;
            if *reduced {
                element += at * elements;
                elements *= extent;
            } else {
                group += at * groups;
                groups *= extent;
            }
        }
        (group, element)
    }

    pub(crate) fn statistics(&self, epsilon: f64, centered: bool) -> Vec<Statistic> {
        let groups = self.x.len() / self.count();
        let mut elements = vec![Vec::new(); groups];
        for (i, x) in self.x.iter().enumerate() {
            elements[self.group(i)].push(*x);
        }
        let statistic = |x: &Vec<f64>| {
            let n = x.len() as f64;
            let mean = if centered { x.iter().sum::<f64>() / n } else { 0.0 };
            let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
            let inverse = 1.0 / (variance + epsilon).sqrt();
            let weight = x.iter().map(|x| (x - mean).abs()).fold(0.0, f64::max) * inverse;
            Statistic { mean, variance, inverse, weight, size: x.iter().map(|x| x.abs()).fold(0.0, f64::max) }
        };
        elements.iter().map(statistic).collect()
    }
}

/// Types to test: all of these for small tensors, the first for large ones, which are there for how they are cut.
pub(crate) fn types<'a, T>(types: &'a [T], dims: &[i64]) -> &'a [T] {
    if dims.iter().product::<i64>() < 50_000 { types } else { &types[..1] }
}

/// Gradients of a normalization whose scale is shared by groups, by plain loops.
pub(crate) struct Gradients {
    pub(crate) dx: Vec<f64>,
    /// Magnitude of the terms that each is a sum of.
    pub(crate) dx_weight: Vec<f64>,
    pub(crate) dscale: Vec<f64>,
    pub(crate) dbias: Vec<f64>,
    /// Magnitude of the terms that they are sums of.
    pub(crate) weight: Vec<f64>,
}

impl Gradients {
    pub(crate) fn new(
        groups: &Groups<'_>,
        statistics: &[Statistic],
        dy: &[f64],
        scale: &[f64],
        centered: bool,
    ) -> Gradients {
        let n = groups.count() as f64;
        let place: Vec<(usize, usize)> = (0..dy.len()).map(|i| groups.split(i)).collect();
        let mean = |g: usize| if centered { statistics[g].mean } else { 0.0 };
        let normal: Vec<f64> =
            place.iter().zip(groups.x).map(|((g, _), x)| (x - mean(*g)) * statistics[*g].inverse).collect();
        let (mut a, mut b, mut size) =
            (vec![0.0; statistics.len()], vec![0.0; statistics.len()], vec![0.0; statistics.len()]);
        let (mut dscale, mut dbias, mut weight) =
            (vec![0.0; scale.len()], vec![0.0; scale.len()], vec![0.0; scale.len()]);
        for (i, (group, element)) in place.iter().copied().enumerate() {
            let g = dy[i] * scale[element];
            a[group] += if centered { g / n } else { 0.0 };
            b[group] += g * normal[i] / n;
            size[group] += g.abs() * (1.0 + normal[i].abs()) / n;
            dbias[element] += dy[i];
            dscale[element] += dy[i] * normal[i];
            weight[element] += dy[i].abs() * (1.0 + normal[i].abs());
        }
        let mut dx = Vec::new();
        let mut dx_weight = Vec::new();
        for (i, (group, element)) in place.iter().copied().enumerate() {
            let (g, inverse) = (dy[i] * scale[element], statistics[group].inverse);
            dx.push(inverse * (g - a[group] - normal[i] * b[group]));
            dx_weight.push(inverse * (g.abs() + size[group] * (1.0 + normal[i].abs())));
        }
        Gradients { dx, dx_weight, dscale, dbias, weight }
    }
}

/// Compares normalized elements, of terms of such a magnitude: single precision rounds a difference twice, then the inverse
/// deviation and their product, where compute types allow it.
pub(crate) fn approx_normalized(
    got: &[f64],
    want: impl IntoIterator<Item = f64>,
    data_type: DataType,
    weight: impl Fn(usize) -> f64,
    what: &str,
) {
    approx(got, want, data_type, |i| weight(i) * (1.0 + 4.0 * 2f64.powi(32 - 24)), what);
}

/// Compares results. They are computed in f64 and rounded to f32 and then to their type. Before that only sums are off:
/// squares are summed around a value within the data, 1024 at most at a time, so that their sum is off by at most
/// 1024² · 2⁻⁵³ of itself even if that value is as far out as one can be; `weight` is the magnitude that such a relative
/// error goes with.
pub(crate) fn approx(
    got: &[f64],
    want: impl IntoIterator<Item = f64>,
    data_type: DataType,
    weight: impl Fn(usize) -> f64,
    what: &str,
) {
    let (relative, smallest) = unit(data_type);
    let mut count = 0;
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let bound = want.abs() * (relative + 2f64.powi(-24)) + weight(i) * 2f64.powi(-32) + smallest;
        let near = (got - want).abs() <= bound || (got.is_nan() && want.is_nan()) || *got == want;
        assert!(near, "{what}, {data_type}, element {i}: {got} for {want} ± {bound}");
        count += 1;
    }
    assert_eq!(count, got.len(), "{what}");
}

#[test]
fn lines_follow_memory() {
    let dims = |dims: &[usize], strides: &[usize]| -> Vec<Dim> {
        let dims = dims.iter().zip(strides);
        dims.map(|(extent, stride)| Dim { extent: *extent, strides: [*stride; SLOTS + 1] }).collect()
    };
    // What, extents, strides, reduced; blocks, steps, elements of the first line, across groups.
    type Case<'a> = (&'a str, &'a [usize], &'a [usize], &'a [bool], [usize; 3], bool);
    let cases: [Case<'_>; 7] = [
        ("images of channels", &[2, 3, 4, 5], &[60, 20, 5, 1], &[true, false, true, true], [3, 2, 20], false),
        ("channels last", &[2, 3, 4, 5], &[60, 1, 15, 3], &[true, false, true, true], [1, 40, 3], true),
        ("many channels last", &[2, 300], &[300, 1], &[true, false], [3, 2, 128], true),
        ("rows", &[2, 3, 1000], &[3000, 1000, 1], &[false, false, true], [6, 2, 512], false),
        ("everything", &[2, 3], &[3, 1], &[true, true], [1, 1, 6], false),
        ("nothing", &[2, 3], &[3, 1], &[false, false], [1, 1, 6], true),
        ("one element", &[1, 1], &[9, 9], &[true, false], [1, 1, 1], false),
    ];
    for (what, extents, strides, reduced, want, lanes) in cases {
        let walk = Walk::new(&dims(extents, strides), reduced, ROW);
        let first = walk.line(0, 0);
        assert_eq!(([walk.block_count(), walk.step_count(), first.len], walk.lanes), (want, lanes), "{what}");
        let mut seen = std::collections::BTreeSet::new();
        for block in 0..walk.block_count() {
            for segment in 0..walk.segments {
                for step in walk.steps_of(segment) {
                    let line = walk.line(block, step);
                    for i in 0..line.len {
                        assert!(seen.insert(line.at[0] + i * walk.inner.strides[0]), "{what}");
                    }
                }
            }
        }
        assert_eq!(seen.len(), extents.iter().product::<usize>(), "{what}");
    }
}

#[test]
fn a_large_mean_costs_no_digits() {
    // Neighboring f32 numbers far from zero: all of the variance is in the last bits.
    let around = 16_777_216f32 / 4.0;
    for (what, strides) in [("rows", [3000, 1]), ("lanes", [1, 5])] {
        let x: Vec<f32> = (0..15_000).map(|i| around + (i * 7 % 11) as f32 * 0.5).collect();
        let mut views = [const { None }; SLOTS];
        let view = |strides: &[usize]| Some(View { storage: Storage::F32, strides: strides.to_vec() });
        views[Slot::X as usize] = view(&strides);
        views[Slot::Out as usize] = view(&[3000, 1]);
        views[Slot::Mean as usize] = view(&[1, 0]);
        views[Slot::Inverse as usize] = view(&[1, 0]);
        let kernel = NormalizationKernel::new(&Normalization {
            task: Task::Forward,
            dims: vec![5, 3000],
            reduced: vec![false, true],
            affine: Affine::PerGroup,
            centered: true,
            given: false,
            double: false,
            views,
            sources: vec![Source::Operand(Slot::X)],
            results: vec![Slot::Out, Slot::Mean, Slot::Inverse],
            epsilon: Scalar::Fixed(0.0),
            momentum: Scalar::Fixed(0.0),
        });
        let (mut y, mut mean, mut inverse) = (vec![0f32; 15_000], [0f32; 5], [0f32; 5]);
        let mut scratch = vec![0f64; kernel.scratch_len()];
        let outputs = [y.as_mut_ptr().cast(), mean.as_mut_ptr().cast(), inverse.as_mut_ptr().cast()];
        // SAFETY: the vectors have the views' sizes.
        unsafe { kernel.run(&Pool::new(2), &[x.as_ptr().cast()], &outputs, scratch.as_mut_ptr().cast()) };
        for group in 0..5 {
            let element = |i: usize| f64::from(x[group * strides[0] + i * strides[1]]);
            let want = (0..3000).map(element).sum::<f64>() / 3000.0;
            let variance = (0..3000).map(|i| (element(i) - want).powi(2)).sum::<f64>() / 3000.0;
            approx(&[f64::from(inverse[group])], [1.0 / variance.sqrt()], DataType::Float, |_| 1.0, what);
            let result = (0..3000).map(|i| f64::from(y[group * 3000 + i]));
            let normal = (0..3000).map(|i| (element(i) - want) / variance.sqrt());
            approx_normalized(&Vec::from_iter(result), normal, DataType::Float, |_| 2.0, what);
        }
    }
}
