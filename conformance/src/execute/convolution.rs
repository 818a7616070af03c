//! Convolutions and their gradients.
//!
//! One loop serves all three: it visits every pair of an output place and a filter tap, and says which place of the image
//! they meet.

use hipdnn_schemas::{ConvMode, Convolution, ConvolutionBwd, ConvolutionFwd, ConvolutionWrw};

use super::Step;
use crate::array::Array;
use crate::number::Sum;

/// A convolution lifted to three spatial dimensions.
struct Geometry {
    batch: usize,
    groups: usize,
    /// Channels and filters of one group.
    channels: usize,
    filters: usize,
    image: [usize; 3],
    filter: [usize; 3],
    output: [usize; 3],
    stride: [usize; 3],
    dilation: [usize; 3],
    padding: [usize; 3],
    flipped: bool,
}

impl Geometry {
    fn new(x: &[usize], w: &[usize], y: &[usize], convolution: &Convolution) -> Geometry {
        let lift = |list: &[usize], missing: usize| {
            let mut lifted = [missing; 3];
            lifted[3 - list.len()..].copy_from_slice(list);
            lifted
        };
        let attribute =
            |list: &[i64], missing| lift(&list.iter().map(|entry| *entry as usize).collect::<Vec<_>>(), missing);
        let groups = x[1] / w[1];
        Geometry {
            batch: x[0],
            groups,
            channels: w[1],
            filters: w[0] / groups,
            image: lift(&x[2..], 1),
            filter: lift(&w[2..], 1),
            output: lift(&y[2..], 1),
            stride: attribute(&convolution.stride, 1),
            dilation: attribute(&convolution.dilation, 1),
            padding: attribute(&convolution.pre_padding, 0),
            flipped: convolution.mode == ConvMode::Convolution,
        }
    }

    /// Calls `body` with the places of the output, the filter and the image (`None`: in the padding) within their planes.
    fn each_meeting(&self, mut body: impl FnMut(usize, usize, Option<usize>)) {
        let flat = |at: [usize; 3], extents: [usize; 3]| (at[0] * extents[1] + at[1]) * extents[2] + at[2];
        let each = |extents: [usize; 3]| {
            (0..extents[0])
                .flat_map(move |a| (0..extents[1]).flat_map(move |b| (0..extents[2]).map(move |c| [a, b, c])))
        };
        for out in each(self.output) {
            for tap in each(self.filter) {
                let mut place = [0; 3];
                let mut inside = true;
                for axis in 0..3 {
                    let position = out[axis] * self.stride[axis] + tap[axis] * self.dilation[axis];
                    inside &= (self.padding[axis]..self.padding[axis] + self.image[axis]).contains(&position);
                    place[axis] = position.wrapping_sub(self.padding[axis]);
                }
                let through = match self.flipped {
                    true => std::array::from_fn(|axis| self.filter[axis] - 1 - tap[axis]),
                    false => tap,
                };
                body(flat(out, self.output), flat(through, self.filter), inside.then(|| flat(place, self.image)));
            }
        }
    }

    fn image_size(&self) -> usize {
        self.image.iter().product()
    }

    fn filter_size(&self) -> usize {
        self.filter.iter().product()
    }

    fn output_size(&self) -> usize {
        self.output.iter().product()
    }
}

fn finish(sums: Vec<Sum>, dims: &[usize]) -> Array {
    Array { dims: dims.to_vec(), data: sums.into_iter().map(Sum::finish).collect() }
}

/// `y[n, k, o] = Σ x[n, c, o·stride + t·dilation − padding] · w[k, c, t]`
pub(super) fn forward(step: &mut Step, node: &ConvolutionFwd) -> Result<(), String> {
    let (x, w) = (step.operand(node.x)?, step.operand(node.w)?);
    let dims = step.tensor(node.y).dims().to_vec();
    let g = Geometry::new(&x.dims, &w.dims, &dims, &node.convolution);
    let mut sums = vec![step.arithmetic.sum(); dims.iter().product()];
    g.each_meeting(|out, tap, place| {
        for n in 0..g.batch {
            for group in 0..g.groups {
                for k in group * g.filters..(group + 1) * g.filters {
                    let sum = &mut sums[(n * g.groups * g.filters + k) * g.output_size() + out];
                    for c in 0..g.channels {
                        let weight = w.data[(k * g.channels + c) * g.filter_size() + tap];
                        let Some(place) = place else {
                            // Engines that write the padding out multiply it with the weight, which tells if it is no number.
                            if !weight.value.is_finite() {
                                sum.spoil();
                            }
                            continue;
                        };
                        let channel = n * g.groups * g.channels + group * g.channels + c;
                        sum.push_product(x.data[channel * g.image_size() + place], weight);
                    }
                }
            }
        }
    });
    step.write(node.y, finish(sums, &dims));
    Ok(())
}

/// The transpose of [`forward`] as a function of x.
pub(super) fn backward_data(step: &mut Step, node: &ConvolutionBwd) -> Result<(), String> {
    let (dy, w) = (step.operand(node.dy)?, step.operand(node.w)?);
    let dims = step.tensor(node.dx).dims().to_vec();
    let g = Geometry::new(&dims, &w.dims, &dy.dims, &node.convolution);
    let mut sums = vec![step.arithmetic.sum(); dims.iter().product()];
    let mut met = vec![false; g.image_size() * g.filter_size()];
    g.each_meeting(|out, tap, place| {
        let Some(place) = place else { return };
        met[place * g.filter_size() + tap] = true;
        for n in 0..g.batch {
            for group in 0..g.groups {
                for c in 0..g.channels {
                    let channel = n * g.groups * g.channels + group * g.channels + c;
                    let sum = &mut sums[channel * g.image_size() + place];
                    for k in group * g.filters..(group + 1) * g.filters {
                        let gradient = dy.data[(n * g.groups * g.filters + k) * g.output_size() + out];
                        sum.push_product(gradient, w.data[(k * g.channels + c) * g.filter_size() + tap]);
                    }
                }
            }
        }
    });
    // Engines that pad or spread dy out multiply its zeros with the weight, which tells if that is no number.
    for i in (0..w.data.len()).filter(|i| !w.data[*i].value.is_finite()) {
        let (tap, c) = (i % g.filter_size(), i / g.filter_size() % g.channels);
        let group = i / g.filter_size() / g.channels / g.filters;
        for n in 0..g.batch {
            let channel = n * g.groups * g.channels + group * g.channels + c;
            for place in (0..g.image_size()).filter(|place| !met[place * g.filter_size() + tap]) {
                sums[channel * g.image_size() + place].spoil();
            }
        }
    }
    step.write(node.dx, finish(sums, &dims));
    Ok(())
}

/// The transpose of [`forward`] as a function of w.
pub(super) fn backward_weights(step: &mut Step, node: &ConvolutionWrw) -> Result<(), String> {
    let (x, dy) = (step.operand(node.x)?, step.operand(node.dy)?);
    let dims = step.tensor(node.dw).dims().to_vec();
    let g = Geometry::new(&x.dims, &dims, &dy.dims, &node.convolution);
    let mut sums = vec![step.arithmetic.sum(); dims.iter().product()];
    g.each_meeting(|out, tap, place| {
        for n in 0..g.batch {
            for group in 0..g.groups {
                for k in group * g.filters..(group + 1) * g.filters {
                    let gradient = dy.data[(n * g.groups * g.filters + k) * g.output_size() + out];
                    for c in 0..g.channels {
                        let sum = &mut sums[(k * g.channels + c) * g.filter_size() + tap];
                        let Some(place) = place else {
                            if !gradient.value.is_finite() {
                                sum.spoil();
                            }
                            continue;
                        };
                        let channel = n * g.groups * g.channels + group * g.channels + c;
                        sum.push_product(x.data[channel * g.image_size() + place], gradient);
                    }
                }
            }
        }
    });
    step.write(node.dw, finish(sums, &dims));
    Ok(())
}
