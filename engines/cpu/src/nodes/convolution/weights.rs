//! Gradient with respect to the filter: for each group a product of the output's gradient, by places of all images and
//! output channels, and the input, by places and (input channel, tap).

use std::ops::Range;

use super::Forward;
use super::direct::Direct;
use super::outputs::{Outputs, for_rows, spread, storage};
use crate::nodes::view::Walk;
use crate::nodes::{LibraryKernel, Recipe};
use hipdnn_cpu_convolution::{Layout, Shape};
use hipdnn_cpu_kernels::product::{DEPTH, Factor, Product, Results, Sink};
use hipdnn_cpu_simd::isa::Isa;
use hipdnn_cpu_threads::Pool;

#[derive(Debug)]
pub(super) struct Gradient(pub(super) Forward);

impl Recipe for Gradient {
    fn kernel(&self, threads: usize) -> Box<dyn LibraryKernel> {
        match Direct::applies(&self.0.shape) {
            true => Box::new(Direct::new(&self.0)),
            false => Box::new(Kernel::new(&self.0, threads)),
        }
    }
}

#[derive(Debug)]
struct Kernel {
    forward: Forward,
    isa: Isa,
    product: Product,
    /// Rows of places of dy, all images': each of the output's last extent.
    rows: Walk,
    /// The filter's columns (input channel of a group, taps), but for the innermost run, which is the extent and stride.
    columns: (Walk, usize, usize),
}

impl Kernel {
    fn new(forward: &Forward, threads: usize) -> Kernel {
        let shape = &forward.shape;
        let isa = Isa::best();
        let sizes = [shape.group_out(), shape.depth(), shape.batch * shape.pixels()];
        let [_, sc, st, sr, ss] = forward.w.strides;
        let [t, r, s] = shape.kernel;
        let mut columns = Walk::new([(shape.group_in(), sc), (t, st), (r, sr), (s, ss)]);
        let (extent, stride) = columns.pop();
        let [sn, _, sz, sp, _] = forward.y.strides;
        let [z, p, _] = shape.output;
        Kernel {
            product: Product::new(isa, threads, shape.groups, sizes, Results::Rows { spare: 0 }),
            isa,
            rows: Walk::apart([(shape.batch, sn), (z, sz), (p, sp)]),
            columns: (columns, extent, stride),
            forward: forward.clone(),
        }
    }
}

/// Input place along an axis that a tap reads for an output, if it is inside of the image.
pub(super) fn inside(shape: &Shape, axis: usize, output: usize, tap: usize) -> Option<usize> {
    let place = output * shape.stride[axis] + tap * shape.dilation[axis];
    place.checked_sub(shape.pad_before[axis]).filter(|place| *place < shape.input[axis])
}

/// Range of the output's columns for which column `tap` of the filter reads inside of the image.
pub(super) fn valid(shape: &Shape, tap: usize, columns: Range<usize>) -> Range<usize> {
    let lead = tap * shape.dilation[2];
    let low = shape.pad_before[2].saturating_sub(lead).div_ceil(shape.stride[2]);
    let high = (shape.input[2] + shape.pad_before[2]).saturating_sub(lead).div_ceil(shape.stride[2]);
    let low = low.clamp(columns.start, columns.end);
    low..high.clamp(low, columns.end)
}

impl LibraryKernel for Kernel {
    fn scratch_bytes(&self) -> usize {
        self.product.scratch_bytes()
    }

    unsafe fn run(&self, pool: &Pool, inputs: &[*const u8], outputs: &[*mut u8], scratch: *mut u8) {
        let a = ByPlaces(Outputs { forward: &self.forward, isa: self.isa, rows: &self.rows, dy: inputs[1] });
        let b = Inputs { kernel: self, x: inputs[0] };
        let sink = Filter { kernel: self, dw: outputs[0] };
        // SAFETY: the caller answers for the tensors and the scratch memory.
        unsafe { self.product.run(pool, &a, &b, &sink, scratch) };
    }
}

/// Factor dy by (place, output channel).
struct ByPlaces<'a>(Outputs<'a>);

impl Factor for ByPlaces<'_> {
    unsafe fn gather(&self, group: usize, k: (usize, usize), j: (usize, usize), width: usize, to: *mut f32) {
        let Forward { shape, y, .. } = self.0.forward;
        let base = (group * shape.group_out() + j.0) * y.strides[1];
        // SAFETY: the caller's promise: the places and channels are of dy, and `to` takes `width` values for each place.
        unsafe { self.0.gather(base, k, j.1, to, [width, 1]) };
    }
}

/// Factor x by (place of dy, column of the filter), zero outside of the image.
struct Inputs<'a> {
    kernel: &'a Kernel,
    x: *const u8,
}

// SAFETY: x is only read.
unsafe impl Sync for Inputs<'_> {}

impl Factor for Inputs<'_> {
    unsafe fn gather(&self, group: usize, k: (usize, usize), j: (usize, usize), width: usize, to: *mut f32) {
        let Kernel { forward, isa, .. } = self.kernel;
        let (shape, layout) = (&forward.shape, &forward.x);
        let (storage, [image, channel, strides @ ..]) = (storage(layout.element), layout.strides);
        let [oz, oh, ow] = shape.output;
        let [kt, kr, ks] = shape.kernel;
        let mut values = [0f32; DEPTH];
        for lane in 0..j.1 {
            // Column of the filter → channel and tap; a mirrored filter's taps are counted from its end.
            let column = j.0 + lane;
            let tap = |axis: usize, tap: usize| if shape.flip { shape.kernel[axis] - 1 - tap } else { tap };
            let (c, rest) = (column / (kt * kr * ks), column % (kt * kr * ks));
            let [t, r, s] = [tap(0, rest / (kr * ks)), tap(1, rest / ks % kr), tap(2, rest % ks)];
            for_rows(k, ow, |row, first, at, len| {
                let values = &mut values[..len];
                let (p, rest) = (row % oh, row / oh);
                let (z, n) = (rest % oz, rest / oz);
                values.fill(0.0);
                let columns = valid(shape, s, first..first + len);
                if let (Some(iz), Some(iy)) = (inside(shape, 0, z, t), inside(shape, 1, p, r))
                    && !columns.is_empty()
                {
                    let ix = columns.start * shape.stride[2] + s * shape.dilation[2] - shape.pad_before[2];
                    let channel = (group * shape.group_in() + c) * channel;
                    let offset = n * image + channel + iz * strides[0] + iy * strides[1] + ix * strides[2];
                    let step = shape.stride[2] * strides[2];
                    let values = &mut values[columns.start - first..columns.end - first];
                    // SAFETY: the places of these columns lie inside of the image's row.
                    unsafe { storage.load(*isa, self.x, offset, step, values) };
                }
                // SAFETY: `to` takes `width` values for each place.
                unsafe { spread(values, to.add(at * width + lane), width) };
            });
        }
    }
}

/// Destination of the products: the filter's gradient.
struct Filter<'a> {
    kernel: &'a Kernel,
    dw: *mut u8,
}

// SAFETY: each place is written by the thread that the product gives it to.
unsafe impl Sync for Filter<'_> {}

impl Sink for Filter<'_> {
    unsafe fn put(&self, group: usize, row: usize, column: usize, values: &mut [f32], _: &mut [f32]) {
        let Kernel { forward, isa, columns: (walk, extent, stride), .. } = self.kernel;
        let Layout { element, strides } = forward.w;
        let base = (group * forward.shape.group_out() + row) * strides[0];
        let mut done = 0;
        while done < values.len() {
            let (line, first) = ((column + done) / extent, (column + done) % extent);
            let len = (extent - first).min(values.len() - done);
            let offset = base + walk.offset(line) + first * stride;
            // SAFETY: the columns are the filter's; the caller answers for the place.
            unsafe { storage(element).store(*isa, &values[done..done + len], self.dw, offset, *stride) };
            done += len;
        }
    }
}
