//! Pointwise nodes: one pass over the output. Rows of operands are widened to `f32`, combined, and narrowed to the
//! output's type, a few hundred elements at a time, so that everything between load and store stays in the first cache.

mod function;
mod row;

pub use function::{Function, Parameters};
pub use row::Storage;

use super::isa::Isa;
use super::threads::Pool;

/// Elements of a row that are worked on together: three operands and a result of this length fit the first cache.
const ROW: usize = 512;

/// Elements below which waking another thread costs more than it saves.
const PER_UNIT: usize = 16 * 1024;

/// Where an operand's or the output's elements lie, along the dimensions of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Type in memory.
    pub storage: Storage,
    /// Distance of neighbours in elements, for each dimension of the output; 0 repeats (broadcasts).
    pub strides: Vec<usize>,
}

/// A pointwise function over strided tensors, ready to run.
#[derive(Clone, Debug)]
pub struct PointwiseKernel {
    function: Function,
    /// Extents, outermost first, after neighbouring dimensions that lie behind each other have been joined.
    dims: Vec<usize>,
    inputs: Vec<View>,
    output: View,
}

impl PointwiseKernel {
    /// Prepares `output[i] = function(inputs[0][i], …)` for all `i` within `dims`.
    ///
    /// # Panics
    /// If a view has not one stride for each dimension, or the number of inputs is not the function's.
    pub fn new(function: Function, dims: &[usize], inputs: &[View], output: &View) -> PointwiseKernel {
        assert_eq!(inputs.len(), function.operands(), "operands of {function:?}");
        for view in inputs.iter().chain([output]) {
            assert_eq!(view.strides.len(), dims.len(), "one stride for each dimension");
        }
        let mut kernel = PointwiseKernel {
            function,
            dims: Vec::new(),
            inputs: inputs.iter().map(|v| View { storage: v.storage, strides: Vec::new() }).collect(),
            output: View { storage: output.storage, strides: Vec::new() },
        };
        for (axis, &extent) in dims.iter().enumerate() {
            if extent != 1 {
                kernel.push(extent, inputs.iter().map(|v| v.strides[axis]).collect(), output.strides[axis]);
            }
        }
        if kernel.dims.is_empty() {
            kernel.push(1, vec![1; inputs.len()], 1);
        }
        kernel
    }

    /// Appends a dimension, joined to the one before it where every view steps from one to the other without a gap.
    fn push(&mut self, extent: usize, input_strides: Vec<usize>, output_stride: usize) {
        let mut views: Vec<(&mut View, usize)> = self.inputs.iter_mut().zip(input_strides).collect();
        views.push((&mut self.output, output_stride));
        let joins = !self.dims.is_empty() && views.iter().all(|(v, s)| v.strides.last() == Some(&(s * extent)));
        for (view, stride) in views {
            if joins {
                view.strides.pop();
            }
            view.strides.push(stride);
        }
        let before = if joins { self.dims.pop().unwrap_or(1) } else { 1 };
        self.dims.push(before * extent);
    }

    /// Computes all of the output.
    ///
    /// # Safety
    /// Each input and the output must point to memory of its view: aligned for its storage, readable (writable for the
    /// output) at every offset that `dims` and strides reach. The output may be an input only where their views are the
    /// same; it may not overlap one in any other way.
    pub unsafe fn run(&self, isa: Isa, pool: &Pool, inputs: &[*const u8], output: *mut u8) {
        assert_eq!(inputs.len(), self.inputs.len(), "as many addresses as inputs");
        let (inner, outer) = self.dims.split_last().expect("there is at least one dimension");
        let rows: usize = outer.iter().product();
        let chunks_of_row = inner.div_ceil(ROW);
        let chunks = rows * chunks_of_row;
        let chunks_per_unit = (PER_UNIT / inner.min(&ROW)).max(1);
        let addresses = Addresses { inputs, output };
        // The whole value moves into the closure, so that its promise about threads is what is checked.
        let addresses = &addresses;
        pool.run(chunks.div_ceil(chunks_per_unit), &|unit| {
            let first = unit * chunks_per_unit;
            for chunk in first..(first + chunks_per_unit).min(chunks) {
                let start = chunk % chunks_of_row * ROW;
                // SAFETY: the row and the part of it lie within `dims`, for which the caller answers.
                unsafe { self.chunk(isa, addresses, chunk / chunks_of_row, start, ROW.min(inner - start)) };
            }
        });
    }

    /// Computes `len` elements of a row from its element `start` on.
    ///
    /// # Safety
    /// As [`PointwiseKernel::run`]; `row` and `start + len` lie within `dims`.
    unsafe fn chunk(&self, isa: Isa, addresses: &Addresses<'_>, row: usize, start: usize, len: usize) {
        let place = |view: &View| {
            let (inner, outer) = view.strides.split_last().expect("there is at least one dimension");
            let (mut offset, mut rest) = (start * inner, row);
            for (extent, stride) in self.dims[..outer.len()].iter().zip(outer).rev() {
                offset += rest % extent * stride;
                rest /= extent;
            }
            (offset, *inner)
        };
        let mut operands = [[0f32; ROW]; 3];
        for ((view, address), values) in self.inputs.iter().zip(addresses.inputs).zip(&mut operands) {
            let (offset, stride) = place(view);
            // SAFETY: `offset + (len - 1) * stride` is within the view, which the caller says is readable.
            unsafe { view.storage.load(isa, *address, offset, stride, &mut values[..len]) };
        }
        let [a, b, c] = &mut operands;
        self.function.apply(isa, &mut a[..len], &b[..len], &c[..len]);
        let (offset, stride) = place(&self.output);
        // SAFETY: as above, for the output.
        unsafe { self.output.storage.store(isa, &a[..len], addresses.output, offset, stride) };
    }
}

/// The addresses of a run, shared with the threads that work on it.
struct Addresses<'a> {
    inputs: &'a [*const u8],
    output: *mut u8,
}

// SAFETY: the inputs are only read, and each element of the output is written by the one unit that computes it.
unsafe impl Sync for Addresses<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use hipdnn_schemas::PointwiseMode;

    fn packed(storage: Storage, dims: &[usize]) -> View {
        let mut strides = vec![1; dims.len()];
        for i in (0..dims.len().saturating_sub(1)).rev() {
            strides[i] = strides[i + 1] * dims[i + 1];
        }
        View { storage, strides }
    }

    fn function(mode: PointwiseMode) -> Function {
        Function::new(mode, &Parameters::default()).unwrap()
    }

    #[test]
    fn dimensions_without_gaps_are_joined() {
        let dims = [2, 3, 4, 5];
        let full = packed(Storage::F32, &dims);
        let channel = View { storage: Storage::F32, strides: vec![0, 1, 0, 0] };
        let sliced = View { storage: Storage::F32, strides: vec![1000, 100, 10, 1] };
        for (what, inputs, want) in [
            ("all packed", [full.clone(), full.clone()], vec![120]),
            ("one operand for each channel", [full.clone(), channel], vec![2, 3, 20]),
            ("a slice of a larger tensor", [full.clone(), sliced], vec![2, 3, 4, 5]),
        ] {
            let kernel = PointwiseKernel::new(function(PointwiseMode::Add), &dims, &inputs, &full);
            assert_eq!(kernel.dims, want, "{what}");
        }
        let scalar = packed(Storage::F32, &[1, 1]);
        let kernel =
            PointwiseKernel::new(function(PointwiseMode::Abs), &[1, 1], std::slice::from_ref(&scalar), &scalar);
        assert_eq!(kernel.dims, [1]);
    }

    #[test]
    fn strides_broadcasts_and_threads_give_the_same_as_plain_loops() {
        // (extents, strides of x, strides of y, strides of the output)
        type Case = (&'static str, [usize; 4], [usize; 4], [usize; 4], [usize; 4]);
        let cases: [Case; 5] = [
            ("packed", [2, 3, 40, 50], [6000, 2000, 50, 1], [6000, 2000, 50, 1], [6000, 2000, 50, 1]),
            ("per channel", [2, 3, 40, 50], [6000, 2000, 50, 1], [0, 1, 0, 0], [6000, 2000, 50, 1]),
            ("channels last", [2, 3, 40, 50], [6000, 1, 150, 3], [0, 1, 0, 0], [6000, 2000, 50, 1]),
            ("scalar, padded rows", [2, 3, 7, 9], [500, 150, 16, 1], [0, 0, 0, 0], [700, 200, 20, 2]),
            ("one row longer than a chunk", [1, 1, 1, 1300], [0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 1]),
        ];
        for threads in [1, 3] {
            let pool = Pool::new(threads);
            for (what, dims, xs, ys, os) in cases {
                let span = |s: [usize; 4]| 1 + dims.iter().zip(s).map(|(d, s)| (d - 1) * s).sum::<usize>();
                let x: Vec<f32> = (0..span(xs)).map(|i| i as f32 * 0.5 - 7.0).collect();
                let y: Vec<f32> = (0..span(ys)).map(|i| 3.0 - i as f32).collect();
                let mut out = vec![f32::NAN; span(os)];
                let view = |s: [usize; 4]| View { storage: Storage::F32, strides: s.to_vec() };
                let kernel =
                    PointwiseKernel::new(function(PointwiseMode::Sub), &dims, &[view(xs), view(ys)], &view(os));
                let inputs = [x.as_ptr().cast(), y.as_ptr().cast()];
                // SAFETY: the vectors are as long as the views' spans.
                unsafe { kernel.run(Isa::best(), &pool, &inputs, out.as_mut_ptr().cast()) };
                let at = |i: [usize; 4], s: [usize; 4]| i.iter().zip(s).map(|(i, s)| i * s).sum::<usize>();
                let mut written = vec![false; out.len()];
                for n in 0..dims.iter().product::<usize>() {
                    let i = [
                        n / (dims[1] * dims[2] * dims[3]),
                        n / (dims[2] * dims[3]) % dims[1],
                        n / dims[3] % dims[2],
                        n % dims[3],
                    ];
                    assert_eq!(out[at(i, os)], x[at(i, xs)] - y[at(i, ys)], "{what} at {i:?}, {threads} threads");
                    written[at(i, os)] = true;
                }
                let kept = out.iter().zip(&written).filter(|(_, w)| !**w).all(|(v, _)| v.is_nan());
                assert!(kept, "{what}: something was written between the elements");
            }
        }
    }

    #[test]
    fn in_place_is_allowed() {
        let pool = Pool::new(2);
        let view = packed(Storage::F32, &[5000]);
        let kernel = PointwiseKernel::new(function(PointwiseMode::Neg), &[5000], std::slice::from_ref(&view), &view);
        let mut values: Vec<f32> = (0..5000).map(|i| i as f32).collect();
        let at = values.as_mut_ptr();
        // SAFETY: 5000 values, and input and output have the same view.
        unsafe { kernel.run(Isa::best(), &pool, &[at.cast_const().cast()], at.cast()) };
        assert!(values.iter().enumerate().all(|(i, v)| *v == -(i as f32)));
    }
}
