//! Gradient with respect to the filter for groups of few channels: a sum for each weight, over rows of places or, where
//! channels lie closest together, for vectors of groups.
//!
//! Sums of a row are kept in `f32`, those of all rows in `f64`.

use super::Forward;
use super::outputs::storage;
use super::weights::{inside, valid};
use crate::nodes::LibraryKernel;
use hipdnn_cpu_convolution::Shape;
use hipdnn_cpu_simd::isa::{Isa, Kernel as IsaKernel, Simd};
use hipdnn_cpu_threads::Pool;

/// Number of places of a row that are worked on together.
const ROW: usize = 512;

/// Number of groups that are worked on together.
const LANES: usize = 64;

/// Number of weights of a group that are summed in one walk over the places.
const TAPS: usize = 16;

#[derive(Debug)]
pub(super) struct Direct {
    forward: Forward,
    isa: Isa,
    along_groups: bool,
}

impl Direct {
    /// True if products of matrices would mostly be of padding.
    pub(super) fn applies(shape: &Shape) -> bool {
        shape.groups > 1 && shape.group_in() * shape.group_out() <= 4
    }

    pub(super) fn new(forward: &Forward) -> Direct {
        let (shape, x) = (&forward.shape, &forward.x);
        let close = x.strides[1] < x.strides[4] || shape.output[2] == 1;
        let along_groups = shape.group_in() == 1 && close;
        Direct { forward: forward.clone(), isa: Isa::best(), along_groups }
    }
}

/// Addresses of a run, shared with the threads that work on it.
struct Addresses {
    x: *const u8,
    dy: *const u8,
    dw: *mut u8,
}

// SAFETY: the inputs are only read, and each weight is written by one thread.
unsafe impl Sync for Addresses {}

impl LibraryKernel for Direct {
    unsafe fn run(&self, pool: &Pool, inputs: &[*const u8], outputs: &[*mut u8], _: *mut u8) {
        let shape = &self.forward.shape;
        let addresses = Addresses { x: inputs[0], dy: inputs[1], dw: outputs[0] };
        let addresses = &addresses;
        let blocks = shape.taps().div_ceil(TAPS);
        if self.along_groups {
            let chunks = shape.groups.div_ceil(LANES);
            pool.run(chunks * shape.group_out() * blocks, &|unit| {
                let (block, rest) = (unit % blocks, unit / blocks);
                // SAFETY: the groups, output channels and taps are the shape's; each unit has its own.
                unsafe {
                    self.groups(addresses, rest / shape.group_out() * LANES, rest % shape.group_out(), block * TAPS)
                };
            });
        } else {
            pool.run(shape.out_channels * shape.group_in() * blocks, &|unit| {
                let (block, rest) = (unit % blocks, unit / blocks);
                // SAFETY: the output channels, input channels and taps are the shape's; each unit has its own.
                unsafe { self.rows(addresses, rest / shape.group_in(), rest % shape.group_in(), block * TAPS) };
            });
        }
    }
}

/// Coordinates of a tap in the filter, and of its input: these differ for a mirrored filter.
fn tap(shape: &Shape, tap: usize) -> ([usize; 3], [usize; 3]) {
    let [_, r, s] = shape.kernel;
    let at = [tap / (r * s), tap / s % r, tap % s];
    let read = std::array::from_fn(|axis| if shape.flip { shape.kernel[axis] - 1 - at[axis] } else { at[axis] });
    (at, read)
}

impl Direct {
    /// Computes the weights of output channel `k` and input channel `c` of its group, from tap `first` on.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`]; the weights exist and no other thread writes them.
    unsafe fn rows(&self, addresses: &Addresses, k: usize, c: usize, first: usize) {
        let Forward { shape, x, w, y } = &self.forward;
        let taps = TAPS.min(shape.taps() - first);
        let channel = k / shape.group_out() * shape.group_in() + c;
        let [oz, oh, ow] = shape.output;
        let mut sums = [0f64; TAPS];
        let (mut gradients, mut values) = ([0f32; ROW], [0f32; ROW]);
        for row in 0..shape.batch * oz * oh {
            let (p, rest) = (row % oh, row / oh);
            let (z, n) = (rest % oz, rest / oz);
            for begin in (0..ow).step_by(ROW) {
                let len = ROW.min(ow - begin);
                let from = y.offset([n, k, z, p, begin]);
                // SAFETY: the places are of dy.
                unsafe { storage(y.element).load(self.isa, addresses.dy, from, y.strides[4], &mut gradients[..len]) };
                for (i, sum) in sums[..taps].iter_mut().enumerate() {
                    let (_, [t, r, s]) = tap(shape, first + i);
                    let (Some(iz), Some(iy)) = (inside(shape, 0, z, t), inside(shape, 1, p, r)) else { continue };
                    let places = valid(shape, s, begin..begin + len);
                    if places.is_empty() {
                        continue;
                    }
                    let ix = places.start * shape.stride[2] + s * shape.dilation[2] - shape.pad_before[2];
                    let from = x.offset([n, channel, iz, iy, ix]);
                    let values = &mut values[..places.len()];
                    let step = shape.stride[2] * x.strides[4];
                    // SAFETY: the places are inside of the image's row.
                    unsafe { storage(x.element).load(self.isa, addresses.x, from, step, values) };
                    *sum += f64::from(self.isa.run(Dot(values, &gradients[places.start - begin..places.end - begin])));
                }
            }
        }
        for (i, sum) in sums[..taps].iter().enumerate() {
            let ([t, r, s], _) = tap(shape, first + i);
            let to = w.offset([k, c, t, r, s]);
            // SAFETY: the caller's promise.
            unsafe { storage(w.element).store(self.isa, &[*sum as f32], addresses.dw, to, 1) };
        }
    }

    /// Computes the weights of output channel `j` of the groups from `group` on, from tap `first` on.
    ///
    /// # Safety
    /// As for [`Direct::rows`]; groups have one input channel.
    unsafe fn groups(&self, addresses: &Addresses, group: usize, j: usize, first: usize) {
        let Forward { shape, x, w, y } = &self.forward;
        let taps = TAPS.min(shape.taps() - first);
        let (lanes, of_group) = (LANES.min(shape.groups - group), shape.group_out());
        let k = group * of_group + j;
        let [oz, oh, ow] = shape.output;
        let mut sums = [[0f64; LANES]; TAPS];
        let (mut gradients, mut values) = ([0f32; LANES], [0f32; LANES]);
        for row in 0..shape.batch * oz * oh {
            let (p, rest) = (row % oh, row / oh);
            let (z, n) = (rest % oz, rest / oz);
            let mut of_row = [[0f32; LANES]; TAPS];
            for q in 0..ow {
                let from = y.offset([n, k, z, p, q]);
                let gradients = &mut gradients[..lanes];
                // SAFETY: the places are of dy.
                unsafe { storage(y.element).load(self.isa, addresses.dy, from, of_group * y.strides[1], gradients) };
                for (i, sums) in of_row[..taps].iter_mut().enumerate() {
                    let (_, [t, r, s]) = tap(shape, first + i);
                    let place = (inside(shape, 0, z, t), inside(shape, 1, p, r), inside(shape, 2, q, s));
                    let (Some(iz), Some(iy), Some(ix)) = place else { continue };
                    let from = x.offset([n, group, iz, iy, ix]);
                    let values = &mut values[..lanes];
                    // SAFETY: the place is inside of the image.
                    unsafe { storage(x.element).load(self.isa, addresses.x, from, x.strides[1], values) };
                    self.isa.run(AddProducts(&mut sums[..lanes], values, gradients));
                }
            }
            for (sums, of_row) in sums[..taps].iter_mut().zip(&of_row) {
                for (sum, of_row) in sums.iter_mut().zip(of_row) {
                    *sum += f64::from(*of_row);
                }
            }
        }
        for (i, sums) in sums[..taps].iter().enumerate() {
            let ([t, r, s], _) = tap(shape, first + i);
            let to = w.offset([k, 0, t, r, s]);
            let sums = sums.map(|sum| sum as f32);
            // SAFETY: the caller's promise.
            unsafe { storage(w.element).store(self.isa, &sums[..lanes], addresses.dw, to, of_group * w.strides[0]) };
        }
    }
}

/// Dot product `Σ a·b`.
struct Dot<'a>(&'a [f32], &'a [f32]);

impl IsaKernel for Dot<'_> {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let Dot(a, b) = self;
        let mut sums = s.splat(0.0);
        let whole = a.len() / S::LANES * S::LANES;
        let mut i = 0;
        let mut lanes = [0f32; hipdnn_cpu_simd::isa::MAX_LANES];
        // SAFETY: both slices have `whole` values, and the array a vector's lanes.
        unsafe {
            while i < whole {
                sums = s.fma(s.load(a.as_ptr().add(i)), s.load(b.as_ptr().add(i)), sums);
                i += S::LANES;
            }
            s.store(lanes.as_mut_ptr(), sums);
        }
        let mut sum = 0.0;
        let mut lane = 0;
        while lane < S::LANES {
            sum += lanes[lane];
            lane += 1;
        }
        while i < a.len() {
            sum += a[i] * b[i];
            i += 1;
        }
        sum
    }
}

/// Multiply-add `a += b · c`.
struct AddProducts<'a>(&'a mut [f32], &'a [f32], &'a [f32]);

impl IsaKernel for AddProducts<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for ((sum, b), c) in self.0.iter_mut().zip(self.1).zip(self.2) {
            *sum += b * c;
        }
    }
}
