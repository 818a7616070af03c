//! Values of some elements of a convolution, computed one by one: enough to notice a solver that computes something
//! else.

use hipdnn_engine_kernel::convolution::{ConvolutionProblem, Direction};

use super::record::operand;

/// One element of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Place of the element, in elements from the first.
    pub place: usize,
    /// Its index in dimension 1.
    pub channel: usize,
    /// The sum of its products.
    pub sum: i64,
    /// Number of products that are not zero.
    pub products: i64,
}

/// Elements that are looked at, at most; the first and the last are among them.
const MOST_SAMPLES: usize = 32;

/// Products that are computed for all of them together, about: they take a few milliseconds.
const MOST_PRODUCTS: usize = 1 << 20;

/// Number of products that an element of the output is the sum of, at most.
pub(crate) fn reduction(problem: &ConvolutionProblem) -> usize {
    let ConvolutionProblem { direction, w, y, groups, .. } = problem;
    let taps: usize = w.dims[2..].iter().product();
    match direction {
        Direction::Forward => w.dims[1] * taps,
        Direction::BackwardData => w.dims[0] / usize::try_from(*groups).expect("checked") * taps,
        Direction::BackwardWeights => y.dims[0] * y.dims[2..].iter().product::<usize>(),
    }
}

/// Some elements, where the value of an operand's element depends on its place in memory only.
pub(crate) fn samples(problem: &ConvolutionProblem, value: &dyn Fn(usize, usize) -> i64) -> Vec<Sample> {
    let output = problem.output();
    let elements = output.elements();
    let count = (MOST_PRODUCTS / reduction(problem).max(1)).clamp(4, MOST_SAMPLES).min(elements);
    let index_of = |mut element: usize| {
        let mut index = vec![0; output.dims.len()];
        for (axis, extent) in output.dims.iter().enumerate().rev() {
            index[axis] = element % extent;
            element /= extent;
        }
        index
    };
    // The golden ratio spreads any number of samples evenly over any number of elements.
    let spread = |n: usize| (n as f64 * 0.618_033_988_749_895).fract();
    let chosen = (0..count).map(|n| match n {
        0 => 0,
        1 => elements - 1,
        n => ((spread(n) * elements as f64) as usize).min(elements - 1),
    });
    chosen.map(|element| sample(problem, &index_of(element), value)).collect()
}

fn place(strides: &[usize], index: &[usize]) -> usize {
    strides.iter().zip(index).map(|(stride, index)| stride * index).sum()
}

fn sample(problem: &ConvolutionProblem, index: &[usize], value: &dyn Fn(usize, usize) -> i64) -> Sample {
    let ConvolutionProblem { direction, x, w, y, padding, stride, dilation, groups, .. } = problem;
    let spatial = padding.len();
    let filters = w.dims[0] / usize::try_from(*groups).expect("checked");
    let number = |value: i32| i64::from(value);
    // Where in x an output reads with a tap.
    let read = |axis: usize, out: usize, tap: usize| {
        let at = out as i64 * number(stride[axis]) - number(padding[axis]) + tap as i64 * number(dilation[axis]);
        usize::try_from(at).ok().filter(|at| *at < x.dims[axis + 2])
    };
    // Which output reads there with a tap.
    let reader = |axis: usize, at: usize, tap: usize| {
        let from = at as i64 + number(padding[axis]) - tap as i64 * number(dilation[axis]);
        let out = usize::try_from(from).ok().filter(|_| from % number(stride[axis]) == 0)? / stride[axis] as usize;
        (out < y.dims[axis + 2]).then_some(out)
    };
    let (mut sum, mut products) = (0, 0);
    let mut add = |first: (usize, usize), second: (usize, usize)| {
        let product = value(first.0, first.1) * value(second.0, second.1);
        sum += product;
        products += i64::from(product != 0);
    };
    let [xs, ws, ys] = [x, w, y].map(|tensor| tensor.strides.as_slice());
    let output = match direction {
        Direction::Forward => {
            let (n, k) = (index[0], index[1]);
            for_each(&w.dims[1..], |tap| {
                let mut from = vec![n, k / filters * w.dims[1] + tap[0]];
                from.extend((0..spatial).map_while(|axis| read(axis, index[axis + 2], tap[axis + 1])));
                if from.len() == spatial + 2 {
                    let filter = [&[k], tap].concat();
                    add((operand::X, place(xs, &from)), (operand::W, place(ws, &filter)));
                }
            });
            ys
        }
        Direction::BackwardData => {
            let (n, c) = (index[0], index[1]);
            let extents = [&[filters], &w.dims[2..]].concat();
            for_each(&extents, |tap| {
                let k = c / w.dims[1] * filters + tap[0];
                let mut from = vec![n, k];
                from.extend((0..spatial).map_while(|axis| reader(axis, index[axis + 2], tap[axis + 1])));
                if from.len() == spatial + 2 {
                    let filter = [&[k, c % w.dims[1]], &tap[1..]].concat();
                    add((operand::Y, place(ys, &from)), (operand::W, place(ws, &filter)));
                }
            });
            xs
        }
        Direction::BackwardWeights => {
            let (k, c) = (index[0], index[1]);
            let extents = [&[y.dims[0]], &y.dims[2..]].concat();
            for_each(&extents, |out| {
                let mut from = vec![out[0], k / filters * w.dims[1] + c];
                from.extend((0..spatial).map_while(|axis| read(axis, out[axis + 1], index[axis + 2])));
                if from.len() == spatial + 2 {
                    let at = [&[out[0], k], &out[1..]].concat();
                    add((operand::X, place(xs, &from)), (operand::Y, place(ys, &at)));
                }
            });
            ws
        }
    };
    Sample { place: place(output, index), channel: index[1], sum, products }
}

/// Calls `f` with every index below the extents.
fn for_each(extents: &[usize], mut f: impl FnMut(&[usize])) {
    let mut index = vec![0; extents.len()];
    loop {
        f(&index);
        let Some(axis) = (0..extents.len()).rev().find(|axis| index[*axis] + 1 < extents[*axis]) else { return };
        index[axis] += 1;
        index[axis + 1..].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hipdnn_engine_kernel::convolution::{DataType, TensorShape};

    /// Two channels in two groups, a filter of 1 × 2 with stride 2.
    fn problem(direction: Direction) -> ConvolutionProblem {
        let shape = |dims: &[usize]| TensorShape::packed(DataType::Float, dims);
        ConvolutionProblem {
            direction,
            x: shape(&[1, 2, 1, 4]),
            w: shape(&[2, 1, 1, 2]),
            y: shape(&[1, 2, 1, 3]),
            padding: vec![0, 1],
            stride: vec![1, 2],
            dilation: vec![1, 1],
            groups: 2,
            deterministic: false,
        }
    }

    #[test]
    fn samples_are_the_sums_of_a_convolution() {
        // x is 1 2 3 4 | 5 6 7 8, w is 1 2 | 3 4, y is 1 2 3 | 4 5 6.
        let value = |_: usize, place: usize| place as i64 + 1;
        let all = |direction| {
            let problem = problem(direction);
            let mut found: Vec<Sample> = Vec::new();
            let output = problem.output();
            for_each(&output.dims, |index| found.push(sample(&problem, index, &value)));
            found.iter().map(|sample| sample.sum).collect::<Vec<_>>()
        };
        // Outputs read 0 1, 2 3 and 4 0.
        assert_eq!(all(Direction::Forward), [2, 2 + 6, 4, 20, 18 + 28, 24]);
        // Each x is read once: by taps 1, 0, 1, 0 of outputs 0, 1, 1, 2.
        assert_eq!(all(Direction::BackwardData), [2, 2, 4, 3, 16, 15, 20, 18]);
        // Tap 0 meets x 1 and 3 in outputs 1 and 2, tap 1 x 0 and 2 in outputs 0 and 1.
        assert_eq!(all(Direction::BackwardWeights), [2 * 2 + 4 * 3, 1 + 3 * 2, 6 * 5 + 8 * 6, 5 * 4 + 7 * 5]);
        assert_eq!(Direction::ALL.map(|direction| reduction(&problem(direction))), [2, 2, 3]);
    }

    #[test]
    fn first_and_last_are_among_the_samples() {
        let problem = problem(Direction::Forward);
        let places: Vec<_> = samples(&problem, &|_, _| 1).iter().map(|sample| sample.place).collect();
        assert!(places.contains(&0) && places.contains(&5) && places.len() == 6, "{places:?}");
    }
}
