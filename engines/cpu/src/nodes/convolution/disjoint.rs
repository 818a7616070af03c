//! Gradient with respect to the input for filters as large as their stride, whose windows share no place: one product of the
//! filter and dy over the output channels. The product's rows are the places in a window, with a channel of dx each, its columns
//! the places of dy; a row's values are every s-th place of dx.

use std::sync::Arc;

use super::Forward;
use super::outputs::{Outputs, for_rows, spread, storage};
use crate::nodes::LibraryKernel;
use crate::nodes::epilogue::{Bound, LINE, OnLines};
use crate::nodes::view::Walk;
use hipdnn_cpu_convolution::Element;
use hipdnn_cpu_kernels::product::{Factor, Product, Results, Sink};
use hipdnn_cpu_kernels::transpose::Transposition;
use hipdnn_cpu_simd::isa::Isa;
use hipdnn_cpu_simd::scratch::lines;
use hipdnn_cpu_threads::Pool;

/// Maximum stride between columns: a line of windows is put together on the stack.
const STEP: usize = 8;

/// Number of windows of a line that are put together at a time.
const PLACES: usize = 64;

#[derive(Debug)]
pub(super) struct Kernel {
    forward: Forward,
    isa: Isa,
    product: Product,
    /// Rows of places of dy.
    from: Walk,
    epilogue: Option<Arc<OnLines>>,
}

impl Kernel {
    /// True if windows share no place and leave none out, and columns of dx lie side by side: where channels do, convolutions
    /// with single taps store them as vectors.
    pub(super) fn applies(forward: &Forward) -> bool {
        let shape = &forward.shape;
        let is_apart = |i: usize| {
            let (kernel, stride) = (shape.kernel[i], shape.stride[i]);
            kernel == stride && shape.pad_before[i] == 0 && shape.input[i] == shape.output[i] * stride
        };
        let is_dense = |i: usize| shape.dilation[i] == 1 || shape.kernel[i] == 1;
        shape.groups == 1
            && (2..=STEP).contains(&shape.stride[2])
            && forward.x.strides[4] == 1
            && (0..3).all(|i| is_apart(i) && is_dense(i))
    }

    pub(super) fn new(forward: &Forward, epilogue: Option<Arc<OnLines>>, threads: usize) -> Kernel {
        let Forward { shape, y, .. } = forward;
        let spare = epilogue.as_ref().map_or(0, |epilogue| epilogue.spare());
        let isa = Isa::best();
        let sizes = [shape.in_channels * shape.taps(), shape.pixels(), shape.out_channels];
        let [oz, oh, _] = shape.output;
        Kernel {
            product: Product::new(isa, threads, shape.batch, sizes, Results::Rows { spare }),
            isa,
            from: Walk::apart([(oz, y.strides[2]), (oh, y.strides[3])]),
            epilogue,
            forward: forward.clone(),
        }
    }

    /// Number of rows of the product.
    fn rows(&self) -> usize {
        self.forward.shape.in_channels * self.forward.shape.taps()
    }

    /// Bytes of the filter's rows.
    fn filter_bytes(&self) -> usize {
        lines(size_of::<f32>() * self.rows() * self.forward.shape.out_channels)
    }

    /// Channel of dx and place in a window of a row: those of a row of a window are side by side, so that their lines are near.
    fn place(&self, row: usize) -> (usize, [usize; 3]) {
        let shape = &self.forward.shape;
        let [_, r, s] = shape.kernel;
        let (column, rest) = (row % s, row / s);
        let (channel, rest) = (rest % shape.in_channels, rest / shape.in_channels);
        (channel, [rest / r, rest % r, column])
    }
}

impl LibraryKernel for Kernel {
    fn scratch_bytes(&self) -> usize {
        let of_epilogue = self.epilogue.as_ref().map_or(0, |epilogue| epilogue.scratch_bytes());
        self.filter_bytes() + of_epilogue + self.product.scratch_bytes()
    }

    unsafe fn run(&self, pool: &Pool, inputs: &[*const u8], outputs: &[*mut u8], scratch: *mut u8) {
        let filter = Filter { kernel: self, w: inputs[1], rows: scratch.cast() };
        let of_rows = &filter;
        // SAFETY: a row is one thread's.
        pool.run(self.rows(), &|row| unsafe { of_rows.fill(row) });
        let b = ByChannels(Outputs { forward: &self.forward, isa: self.isa, rows: &self.from, dy: inputs[0] });
        let mut scratch = scratch.wrapping_add(self.filter_bytes());
        let epilogue = self.epilogue.as_ref().map(|epilogue| {
            let factors = scratch;
            scratch = scratch.wrapping_add(epilogue.scratch_bytes());
            // SAFETY: the caller answers for the inputs; the filter and the factors have whole cache lines of the scratch memory.
            unsafe { epilogue.bind(inputs, factors) }
        });
        let sink = Input { kernel: self, dx: outputs[0], epilogue };
        // SAFETY: the caller answers for the tensors and the scratch memory, the rest of which is the product's: it begins on a cache
        // line, as the filter and the factors have whole ones.
        unsafe { self.product.run(pool, &filter, &b, &sink, scratch) };
    }
}

/// Factor of the filter by (output channel, row), whose rows lie in scratch memory.
struct Filter<'a> {
    kernel: &'a Kernel,
    w: *const u8,
    rows: *mut f32,
}

// SAFETY: the tensor is only read; each row is written by one thread, and only read once all are.
unsafe impl Sync for Filter<'_> {}

impl Filter<'_> {
    /// Writes a row.
    ///
    /// # Safety
    /// No other thread uses the row.
    unsafe fn fill(&self, row: usize) {
        let Kernel { forward: Forward { shape, w, .. }, isa, .. } = self.kernel;
        let (channel, place) = self.kernel.place(row);
        let tap = |i: usize| if shape.flip { shape.kernel[i] - 1 - place[i] } else { place[i] };
        let offset = w.offset([0, channel, tap(0), tap(1), tap(2)]);
        let depth = shape.out_channels;
        // SAFETY: the tap and the channels are the filter's; there is room for `depth` values of each row.
        unsafe {
            let values = std::slice::from_raw_parts_mut(self.rows.add(row * depth), depth);
            storage(w.element).load(*isa, self.w, offset, w.strides[0], values);
        }
    }
}

impl Factor for Filter<'_> {
    unsafe fn gather(&self, _: usize, k: (usize, usize), j: (usize, usize), width: usize, to: *mut f32) {
        let depth = self.kernel.forward.shape.out_channels;
        for lane in 0..j.1 {
            // SAFETY: the rows have `depth` values each, and `to` takes `width` for each place of the sum.
            unsafe {
                let values = std::slice::from_raw_parts(self.rows.add((j.0 + lane) * depth + k.0), k.1);
                spread(values, to.add(lane), width);
            }
        }
    }

    unsafe fn in_place(&self, _: usize, k: usize, j: usize) -> Option<(*const f32, [usize; 2])> {
        let depth = self.kernel.forward.shape.out_channels;
        Some((self.rows.cast_const().wrapping_add(j * depth + k), [1, depth]))
    }
}

/// Factor dy by (output channel, place).
struct ByChannels<'a>(Outputs<'a>);

impl Factor for ByChannels<'_> {
    unsafe fn gather(&self, image: usize, k: (usize, usize), j: (usize, usize), width: usize, to: *mut f32) {
        let [images, channels, ..] = self.0.forward.y.strides;
        let base = image * images + k.0 * channels;
        // SAFETY: the caller's promise: the places and channels are of dy, and `to` takes `width` values for each channel.
        unsafe { self.0.gather(base, j, k.1, to, [1, width]) };
    }

    unsafe fn in_place(&self, image: usize, k: usize, j: usize) -> Option<(*const f32, [usize; 2])> {
        let Forward { shape, y, .. } = self.0.forward;
        let [images, channels, planes, rows, step] = y.strides;
        let [oz, oh, ow] = shape.output;
        let one_line = step == 1 && (oh == 1 || rows == ow) && (oz == 1 || planes == oh * ow);
        (one_line && y.element == Element::F32)
            .then(|| (self.0.dy.cast::<f32>().wrapping_add(image * images + k * channels + j), [channels, 1]))
    }
}

/// Destination of the product: dx, or the epilogue's result in its place.
struct Input<'a> {
    kernel: &'a Kernel,
    dx: *mut u8,
    epilogue: Option<Bound<'a>>,
}

// SAFETY: each place is written by the thread that the product gives it to.
unsafe impl Sync for Input<'_> {}

impl Sink for Input<'_> {
    unsafe fn put(&self, image: usize, row: usize, column: usize, values: &mut [f32], spare: &mut [f32]) {
        self.finish(image, row, values, spare);
        // SAFETY: the caller's promise.
        unsafe { self.put_row(image, row, column, values, spare) };
    }

    unsafe fn put_block(
        &self,
        image: usize,
        (row, rows): (usize, usize),
        columns: (usize, usize),
        (values, pitch): (*mut f32, usize),
        spare: &mut [f32],
    ) {
        let step = self.kernel.forward.shape.stride[2];
        let end = row + rows;
        let mut at = row;
        while at < end {
            let of_row = values.wrapping_add((at - row) * pitch);
            // Rows of whole windows: their columns follow each other in dx.
            let is_whole = at % step == 0 && at + step <= end;
            // SAFETY: the caller's promise, for rows of the block.
            unsafe {
                if is_whole {
                    for i in 0..step {
                        let sums = std::slice::from_raw_parts_mut(of_row.wrapping_add(i * pitch), columns.1);
                        self.finish(image, at + i, sums, spare);
                    }
                    self.put_windows(image, at, columns, (of_row, pitch), spare);
                } else {
                    let sums = std::slice::from_raw_parts_mut(of_row, columns.1);
                    self.finish(image, at, sums, spare);
                    self.put_row(image, at, columns.0, sums, spare);
                }
            }
            at += if is_whole { step } else { 1 };
        }
    }
}

impl Input<'_> {
    /// Computes an epilogue whose operands' values are those of channels on a row of the product.
    fn finish(&self, image: usize, row: usize, sums: &mut [f32], spare: &mut [f32]) {
        if let Some(epilogue) = self.epilogue.as_ref().filter(|epilogue| epilogue.is_by_channel()) {
            let (channel, _) = self.kernel.place(row);
            epilogue.finish(self.kernel.isa, sums, image, channel, &mut spare[LINE..]);
        }
    }

    /// The epilogue, if its operands have values of their own for each place.
    fn on_places(&self) -> Option<&Bound<'_>> {
        self.epilogue.as_ref().filter(|epilogue| !epilogue.is_by_channel())
    }

    /// Stores the values of the rows of a window's line, from a column on: those of a column are side by side in dx.
    ///
    /// # Safety
    /// As [`Sink::put_block`], for as many rows as the line has places.
    unsafe fn put_windows(
        &self,
        image: usize,
        row: usize,
        columns: (usize, usize),
        (values, pitch): (*mut f32, usize),
        spare: &mut [f32],
    ) {
        let Kernel { forward, isa, .. } = self.kernel;
        let (step, element) = (forward.shape.stride[2], forward.x.element);
        let windows = |first: usize, columns: usize, to: *mut f32| {
            let from = values.wrapping_add(first).cast_const();
            Transposition { from, across: pitch, to, out: step, rows: step, columns }
        };
        let mut on_stack = [0f32; STEP * PLACES];
        self.for_lines(image, row, columns, |place, first, len| {
            let offset = forward.x.offset(place);
            if let Some(epilogue) = self.on_places() {
                let (line, rows) = spare.split_at_mut(LINE);
                let most = LINE / step;
                for at in (0..len).step_by(most) {
                    let count = most.min(len - at);
                    let [n, c, d, h, w] = place;
                    let place = ([n, c, d, h, w + step * at], 1);
                    let to = self.dx.wrapping_add((offset + step * at) * element.bytes());
                    // SAFETY: the block has so many columns, and the line room for them; the places are of dx, and this thread's, and
                    // written as `f32` only where they are; what the epilogue leaves in a row has as many values.
                    unsafe {
                        windows(first + at, count, line.as_mut_ptr()).run(*isa);
                        let sums = (line.as_ptr(), step * count);
                        if let Some(results) = epilogue.run(*isa, sums, place, rows, to.cast()) {
                            storage(element).store(*isa, results, self.dx, offset + step * at, 1);
                        }
                    }
                }
                return;
            }
            if element == Element::F32 {
                let to = self.dx.cast::<f32>().wrapping_add(offset);
                // SAFETY: the block has so many columns of `step` rows; the places are of dx, and this thread's.
                unsafe { windows(first, len, to).run(*isa) };
                return;
            }
            for at in (0..len).step_by(PLACES) {
                let count = PLACES.min(len - at);
                // SAFETY: the block has so many columns, and the line room for them; the places are of dx, and this thread's.
                unsafe {
                    windows(first + at, count, on_stack.as_mut_ptr()).run(*isa);
                    let line = &on_stack[..step * count];
                    storage(element).store(*isa, line, self.dx, offset + step * at, 1);
                }
            }
        });
    }

    /// Stores values of a row from a column on, each `stride` places of dx after the one before it.
    ///
    /// # Safety
    /// The places are in the result, and no other thread stores them.
    unsafe fn put_row(&self, image: usize, row: usize, column: usize, values: &[f32], spare: &mut [f32]) {
        let Kernel { forward, isa, .. } = self.kernel;
        let (step, storage) = (forward.shape.stride[2], storage(forward.x.element));
        self.for_lines(image, row, (column, values.len()), |place, first, len| {
            let offset = forward.x.offset(place);
            let values = &values[first..first + len];
            let Some(epilogue) = self.on_places() else {
                // SAFETY: the places are of dx, whose columns lie side by side, and this thread's.
                return unsafe { storage.store(*isa, values, self.dx, offset, step) };
            };
            for (number, values) in values.chunks(LINE).enumerate() {
                let [n, c, d, h, w] = place;
                let ahead = step * LINE * number;
                let place = ([n, c, d, h, w + ahead], step);
                let sums = (values.as_ptr(), values.len());
                // SAFETY: as above; places that are apart are not written by the epilogue.
                unsafe {
                    let results = epilogue.run(*isa, sums, place, &mut spare[LINE..], std::ptr::null_mut());
                    let results = results.expect("an epilogue of places apart leaves its results in a row");
                    storage.store(*isa, results, self.dx, offset + ahead, step);
                }
            }
        });
    }

    /// Calls `f(place, at, len)` for the lines of dx that columns (first, count) of a row of the product go to: `len` of them, from
    /// the `at`-th on, from that place on.
    fn for_lines(
        &self,
        image: usize,
        row: usize,
        columns: (usize, usize),
        mut f: impl FnMut([usize; 5], usize, usize),
    ) {
        let shape = &self.kernel.forward.shape;
        let (channel, [z, p, q]) = self.kernel.place(row);
        let [_, height, width] = shape.output;
        for_rows(columns, width, |line, first, at, len| {
            let window = [line / height, line % height, first];
            let [d, h, w] = [0, 1, 2].map(|i| window[i] * shape.stride[i]);
            f([image, channel, d + z, h + p, w + q], at, len);
        });
    }
}
