//! Gradient with respect to the input, as convolutions of the output's gradient, or as one product where windows share no place
//! ([`disjoint`]).
//!
//! With stride s, dilation d and padding p, `dx[i] = Σ dy[(i + p - t·d) / s]·w[t]` over the taps t for which that is a place
//! of dy. Input places of one residue class modulo s use the same taps, each g-th with g = s / gcd(s, d): with i = r + s·j and
//! t = t₀ + g·m the place is `j + e - m·(d / gcd(s, d))`, where s·e = r + p - t₀·d. So each class is a convolution of stride 1
//! whose filter is every g-th tap, mirrored, and whose output is every s-th place of dx.

use hipdnn_engine_core::{Declined, NodeLabel};
use hipdnn_schemas::Graph;

use std::sync::Arc;

use super::outputs::storage;
use super::{Forward, disjoint};
use crate::nodes::epilogue::{Epilogue, OnLines};
use crate::nodes::view::Walk;
use crate::nodes::{LibraryKernel, Recipe};
use hipdnn_cpu_convolution::{Args, ConvolutionPlan, Element, Layout, Problem, Shape, Weights};
use hipdnn_cpu_threads::Pool;

/// Maximum number of classes of places that have taps: each is a plan of its own.
const CLASSES: u128 = 4096;

/// Maximum number of rows and columns of all these plans, which make tables of them.
const ROWS: u128 = 1 << 25;

/// Number of elements that are zeroed together.
const ZEROS: usize = 16 * 1024;

#[derive(Debug)]
pub(super) struct Gradient {
    forward: Forward,
    /// Classes of each dimension that have taps which read a place of dy.
    classes: [Vec<Class>; 3],
    epilogue: Option<Arc<OnLines>>,
}

/// A residue class of places along a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    /// First place of dx, and number of places.
    first: usize,
    places: usize,
    /// First tap, and number of taps.
    tap: usize,
    taps: usize,
    /// First place of dy that is read, and number of places from there on.
    from: usize,
    input: usize,
    /// Padding: zeros before that place.
    pad: usize,
}

/// Strides of the taps of a class, and of the places that they read.
fn steps(stride: usize, dilation: usize) -> (usize, usize) {
    let (mut a, mut b) = (stride, dilation);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    (stride / a, dilation / a)
}

fn classes(shape: &Shape, axis: usize) -> Vec<Class> {
    let (stride, dilation, pad) = (shape.stride[axis], shape.dilation[axis], shape.pad_before[axis]);
    let (size, kernel, output) = (shape.input[axis], shape.kernel[axis], shape.output[axis]);
    let (tap_step, place_step) = steps(stride, dilation);
    // Every first tap has a class of its own: the place that it reads is a multiple of the stride.
    let mut classes: Vec<Class> = (0..kernel.min(tap_step))
        .filter_map(|tap| {
            // The least r with r + p - t₀·d a multiple of s.
            let lead = tap * dilation;
            let first = (lead % stride + stride - pad % stride) % stride;
            if first >= size {
                return None;
            }
            let (places, taps) = ((size - first).div_ceil(stride), (kernel - tap).div_ceil(tap_step));
            // The place of dy that output 0 and the mirrored filter's first tap (m = taps - 1) read.
            let begin = (first + pad) as isize - (lead as isize);
            let begin = begin / stride as isize - ((taps - 1) * place_step) as isize;
            let from = usize::try_from(begin).unwrap_or(0).min(output);
            let pad = usize::try_from(-begin).unwrap_or(0);
            let reach = (places + (taps - 1) * place_step).saturating_sub(pad);
            let input = reach.min(output - from);
            (input > 0).then_some(Class { first, places, tap, taps, from, input, pad })
        })
        .collect();
    classes.sort_by_key(|class| class.first);
    classes
}

impl Gradient {
    pub(super) fn new(graph: &Graph, index: usize, forward: Forward) -> Result<Gradient, Declined> {
        let shape = &forward.shape;
        let count: u128 =
            (0..3).map(|i| shape.kernel[i].min(steps(shape.stride[i], shape.dilation[i]).0) as u128).product();
        if count > CLASSES {
            let what = "places modulo the stride that have taps of their own";
            return Err(Declined::Size { node: NodeLabel::of(graph, index), what, came: count, most: CLASSES });
        }
        let classes = [0, 1, 2].map(|axis| classes(&forward.shape, axis));
        let parts: u128 = classes.iter().map(|classes| classes.len() as u128).product();
        let rows_of = |axis: usize| parts / (classes[axis].len() as u128).max(1) * forward.shape.input[axis] as u128;
        let rows = rows_of(0) + rows_of(1) + rows_of(2);
        if rows > ROWS {
            let what = "rows and columns of all places modulo the stride";
            return Err(Declined::Size { node: NodeLabel::of(graph, index), what, came: rows, most: ROWS });
        }
        Ok(Gradient { forward, classes, epilogue: None })
    }
}

impl Recipe for Gradient {
    fn kernel(&self, threads: usize) -> Box<dyn LibraryKernel> {
        match disjoint::Kernel::applies(&self.forward) {
            true => Box::new(disjoint::Kernel::new(&self.forward, self.epilogue.clone(), threads)),
            false => Box::new(Kernel::new(&self.forward, &self.classes, threads)),
        }
    }

    fn takes_epilogue(&self) -> bool {
        self.epilogue.is_none() && disjoint::Kernel::applies(&self.forward)
    }

    fn with_epilogue(&self, epilogue: Epilogue, output: Layout) -> Option<Arc<dyn Recipe>> {
        let forward = Forward { x: output, ..self.forward.clone() };
        if self.epilogue.is_some() || !disjoint::Kernel::applies(&forward) {
            return None;
        }
        let epilogue = OnLines::new(epilogue, storage(output.element)).map(Arc::new);
        epilogue.is_some().then(|| Arc::new(Gradient { forward, classes: self.classes.clone(), epilogue }) as _)
    }
}

/// Convolution that computes a class of places, of one group or of all.
#[derive(Debug)]
struct Part {
    plan: ConvolutionPlan,
    /// Offset of the first element of each tensor.
    dy: usize,
    w: usize,
    dx: usize,
}

#[derive(Debug)]
struct Kernel {
    parts: Vec<Part>,
    /// Number of runs of the parts; and element type and stride between runs of each tensor.
    runs: usize,
    dy: (Element, usize),
    w: (Element, usize),
    dx: (Element, usize),
    /// All of dx as (rows, extent, stride), where places are left that no tap writes.
    zeros: Option<(Walk, usize, usize)>,
}

impl Kernel {
    fn new(forward: &Forward, classes: &[Vec<Class>; 3], threads: usize) -> Kernel {
        let Forward { shape, x, w, y } = forward;
        // Filters of all groups can be seen as one only if each group has one channel of dx.
        let together = shape.groups == 1 || shape.group_in() == 1;
        let (groups, runs) = if together { (shape.groups, 1) } else { (1, shape.groups) };
        let (channels_in, channels_out) = (shape.out_channels / runs, shape.in_channels / runs);
        let w_channel = if shape.groups == 1 { w.strides[1] } else { shape.group_out() * w.strides[0] };
        let w_strides = if together { w_channel } else { w.strides[1] };
        let mut parts = Vec::new();
        for a in &classes[0] {
            for b in &classes[1] {
                for c in &classes[2] {
                    let class = [a, b, c];
                    let step = |i: usize| steps(shape.stride[i], shape.dilation[i]);
                    let offset = |layout: &Layout, places: [usize; 3]| -> usize {
                        (0..3).map(|i| places[i] * layout.strides[2 + i]).sum()
                    };
                    let spaced = |layout: &Layout, by: [usize; 3]| {
                        let [n, k, z, p, q] = layout.strides;
                        [n, k, z * by[0], p * by[1], q * by[2]]
                    };
                    // The mirrored filter of a mirrored filter runs from the last tap of the class to the first, which are
                    // mirrored again by the plan unless the forward convolution is a mirrored one itself.
                    let first_tap = |i: usize| match shape.flip {
                        false => class[i].tap,
                        true => shape.kernel[i] - 1 - class[i].tap - (class[i].taps - 1) * step(i).0,
                    };
                    let [sn, _, sz, sp, sq] = spaced(w, [0, 1, 2].map(|i| step(i).0));
                    let problem = Problem {
                        shape: Shape {
                            batch: shape.batch,
                            groups,
                            in_channels: channels_in,
                            out_channels: channels_out,
                            input: class.map(|c| c.input),
                            kernel: class.map(|c| c.taps),
                            output: class.map(|c| c.places),
                            stride: [1; 3],
                            dilation: [0, 1, 2].map(|i| step(i).1),
                            pad_before: class.map(|c| c.pad),
                            flip: !shape.flip,
                        },
                        x: *y,
                        w: Layout { element: w.element, strides: [w_strides, sn, sz, sp, sq] },
                        y: Layout { element: x.element, strides: spaced(x, shape.stride) },
                        epilogue: Vec::new(),
                        constant_weights: false,
                        winograd: false,
                    };
                    parts.push(Part {
                        plan: ConvolutionPlan::new(&problem, threads),
                        dy: offset(y, class.map(|c| c.from)),
                        w: offset(w, [0, 1, 2].map(first_tap)),
                        dx: offset(x, class.map(|c| c.first)),
                    });
                }
            }
        }
        let covered = (0..3).all(|i| classes[i].iter().map(|c| c.places).sum::<usize>() == shape.input[i]);
        let zeros = (!covered).then(|| {
            let [d, h, w] = shape.input;
            let mut pairs: Vec<(usize, usize)> =
                [shape.batch, shape.in_channels, d, h, w].into_iter().zip(x.strides).filter(|(n, _)| *n > 1).collect();
            pairs.sort_unstable_by_key(|(_, stride)| std::cmp::Reverse(*stride));
            let mut walk = Walk::new(pairs);
            let (extent, stride) = walk.pop();
            (walk, extent, stride)
        });
        Kernel {
            parts,
            runs,
            dy: (y.element, shape.group_out() * y.strides[1]),
            w: (w.element, shape.group_out() * w.strides[0]),
            dx: (x.element, shape.group_in() * x.strides[1]),
            zeros,
        }
    }
}

impl LibraryKernel for Kernel {
    fn scratch_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.plan.workspace_bytes()).max().unwrap_or(0)
    }

    unsafe fn run(&self, pool: &Pool, inputs: &[*const u8], outputs: &[*mut u8], scratch: *mut u8) {
        if let Some((rows, extent, stride)) = &self.zeros {
            // SAFETY: the walk is all of dx.
            unsafe { zero(pool, self.dx.0, rows, *extent, *stride, outputs[0]) };
        }
        for run in 0..self.runs {
            for part in &self.parts {
                let at = |(element, step): (Element, usize), offset: usize| (run * step + offset) * element.bytes();
                let args = Args {
                    x: inputs[0].wrapping_add(at(self.dy, part.dy)),
                    weights: Weights::Raw(inputs[1].wrapping_add(at(self.w, part.w))),
                    y: outputs[0].wrapping_add(at(self.dx, part.dx)),
                    operands: &[],
                    workspace: scratch,
                };
                // SAFETY: the class's places and taps are within the tensors, for which the caller answers.
                unsafe { part.plan.run(pool, &args) };
            }
        }
    }
}

/// # Safety
/// `to` can be written at every place of the walk and, from each, `extent` times with the stride.
unsafe fn zero(pool: &Pool, element: Element, rows: &Walk, extent: usize, stride: usize, to: *mut u8) {
    struct To(*mut u8);
    // SAFETY: each row is written by one thread.
    unsafe impl Sync for To {}
    let to = &To(to);
    let group = (ZEROS / extent.max(1)).max(1);
    pool.run(rows.len().div_ceil(group), &|unit| {
        for row in unit * group..((unit + 1) * group).min(rows.len()) {
            let first = to.0.wrapping_add(rows.offset(row) * element.bytes());
            // SAFETY: the caller's promise; zeros of all types are zero bytes.
            unsafe {
                if stride == 1 || extent == 1 {
                    first.write_bytes(0, extent * element.bytes());
                } else {
                    for i in 0..extent {
                        first.add(i * stride * element.bytes()).write_bytes(0, element.bytes());
                    }
                }
            }
        }
    });
}
