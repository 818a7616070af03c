//! Kernels of our own: everything that is not a convolution.
//!
//! There are two kinds. One reads any number of strided tensors at the index of an output's element, computes a program of
//! pointwise operations, and writes the element. A chain of pointwise nodes is one launch, and so is a copy into another
//! layout, into or out of a padded buffer, with dimensions reversed, or to another type. The other ([`grouped`]) does the same
//! for groups of elements, after it has combined something over each group.
//!
//! ```text
//! Elementwise ─► Loops ─► Source (text, arguments) ─► code object ─► PreparedKernel ─► launch
//! Grouped ─► Loops, Mapping ─► Source (text, arguments) ─► code object ─► PreparedGrouped ─► launch
//! ```
//!
//! Text is generated for the program, the types and the number of loops, and compiled by hiprtc; shapes are arguments.
//! Code objects are kept for the process and in the [`Store`].
//!
//! Values are computed in whole numbers of 64 bits where there are only such and the operations keep to them; in `f64`
//! where a tensor that is read has numbers that `f32` has not, or the result is `f64`; else in `f32`. Pointwise modes mean
//! what they do on the host engine, with its limits at infinities, and nothing is contracted or reordered.

mod arguments;
mod compile;
mod element;
pub mod grouped;
mod launch;
mod layout;
mod program;
mod source;
#[cfg(test)]
mod tests;

use std::ffi::c_void;
use std::sync::Arc;

use hipdnn_schemas::PointwiseMode;

pub use compile::{Compiled, Kernels, compiler, is_compiler_known};
pub use element::Element;
pub use layout::Window;
pub use program::Op;

use super::device::Device;
use super::store::Store;
use crate::engine::payload::Entry;
use crate::error::Error;
use launch::{Grid, Launch};
use layout::{Axis, Loops, Place};
use program::{Numbers, Text, fits_single, is_whole};
use source::{BLOCK, FUNCTION, Slot, Source, Values, Work};

/// The most tensors that one kernel reads.
pub const MOST_INPUTS: usize = 16;

/// A program over every element of an output.
#[derive(Clone, Debug, PartialEq)]
pub struct Elementwise {
    /// Extents of the output.
    pub dims: Vec<usize>,
    /// What the program starts from: slots 0, 1, …
    pub inputs: Vec<Input>,
    /// Where the last operation's result goes, or the only input if there are no operations.
    pub output: Output,
    /// The operations, in order.
    pub program: Vec<Op>,
}

/// What fills a slot before the program runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// An element of a tensor.
    Tensor(View),
    /// The index along a dimension of the output.
    Index {
        /// Which dimension.
        axis: usize,
    },
    /// The same value everywhere; it may be replaced for a launch ([`PreparedKernel::launch_with`]).
    Scalar(f64),
    /// A constant of the program: kernels for other values are other kernels.
    Literal(f64),
}

/// A tensor that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The type of its elements.
    pub element: Element,
    /// Distance of neighbours along each dimension of the output, in elements; 0 repeats, negative ones go backwards.
    pub strides: Vec<i64>,
    /// The element that index 0 reads, counted from the address given at launch.
    pub offset: i64,
    /// For each dimension, or none at all: which indices read an element and which zero. With a window the stride is
    /// that of the tensor's own neighbours, and `offset` is its element 0.
    pub windows: Vec<Option<Window>>,
}

/// The tensor that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The type of its elements.
    pub element: Element,
    /// Distance of neighbours along each dimension, in elements. No two elements lie in one place.
    pub strides: Vec<i64>,
    /// The element of index 0, counted from the address given at launch.
    pub offset: i64,
}

impl View {
    /// All of a tensor, from its first element on.
    pub fn new(element: Element, strides: impl Into<Vec<i64>>) -> View {
        View { element, strides: strides.into(), offset: 0, windows: Vec::new() }
    }
}

impl Output {
    /// All of a tensor, from its first element on.
    pub fn new(element: Element, strides: impl Into<Vec<i64>>) -> Output {
        Output { element, strides: strides.into(), offset: 0 }
    }
}

/// A kernel for one [`Elementwise`], ready to launch from any thread on any stream of its device.
#[derive(Debug)]
pub struct PreparedKernel {
    /// `None` where there is nothing to do.
    kernel: Option<Launch>,
    device: Arc<Device>,
    tensors: usize,
    scalars: usize,
}

/// Compiles a kernel, or takes it from this process's or the store's kernels, and fixes its arguments.
///
/// # Errors
/// If the work is not what its fields ask for, or the kernel does not compile or load.
pub fn prepare(device: &Arc<Device>, work: &Elementwise, store: &Store) -> Result<PreparedKernel, Error> {
    prepare_with(device, work, store, false)
}

/// [`prepare`], with indices of 64 bits even where 32 do.
fn prepare_with(device: &Arc<Device>, work: &Elementwise, store: &Store, wide: bool) -> Result<PreparedKernel, Error> {
    let Some(generated) = generate(work, wide)? else {
        return Ok(PreparedKernel {
            kernel: None,
            device: device.clone(),
            tensors: tensors(work),
            scalars: scalars(work),
        });
    };
    let compiled = device.kernels().get(device, FUNCTION, &generated.source.text, store)?;
    let Source { arguments, threads, .. } = generated.source;
    let blocks = u32::try_from(threads.div_ceil(u64::from(BLOCK))).expect("threads are below 2³¹");
    let grid = Grid { blocks, threads: BLOCK };
    let launch = Launch::new(compiled, arguments, generated.offsets, generated.numbers, grid);
    Ok(PreparedKernel { kernel: Some(launch), device: device.clone(), tensors: tensors(work), scalars: scalars(work) })
}

/// Whether [`prepare`] has what it needs: the kernel in the store, or a compiler.
///
/// # Errors
/// As [`prepare`], without compiling or loading the kernel.
pub fn can_prepare(device: &Device, work: &Elementwise, store: &Store) -> Result<(), Error> {
    match generate(work, false)? {
        Some(generated) => device.kernels().can_get(device, &generated.source.text, store),
        None => Ok(()),
    }
}

fn tensors(work: &Elementwise) -> usize {
    work.inputs.iter().filter(|input| matches!(input, Input::Tensor(_))).count()
}

fn scalars(work: &Elementwise) -> usize {
    work.inputs.iter().filter(|input| matches!(input, Input::Scalar(_))).count()
}

/// What there is to compile and launch.
struct Generated {
    source: Source,
    offsets: Vec<isize>,
    numbers: Numbers,
}

/// The kernel of some work; `None` if it has no element.
fn generate(work: &Elementwise, wide: bool) -> Result<Option<Generated>, Error> {
    check(work)?;
    let values = values(work);
    let mut places = Vec::new();
    let mut slots = Vec::new();
    let mut elements = Vec::new();
    for input in &work.inputs {
        let place = places.len();
        slots.push(match *input {
            Input::Scalar(value) => Slot::Scalar(value),
            Input::Literal(value) => Slot::Literal(value),
            Input::Index { axis } => {
                let axes = (0..work.dims.len()).map(|d| Axis { stride: i64::from(d == axis), window: None }).collect();
                places.push(Place { offset: 0, axes });
                Slot::Index { place }
            }
            Input::Tensor(View { element, ref strides, offset, ref windows }) => {
                let window = |d| windows.get(d).copied().flatten();
                let axes = strides.iter().enumerate().map(|(d, s)| Axis { stride: *s, window: window(d) }).collect();
                places.push(Place { offset, axes });
                elements.push((place, element));
                Slot::Tensor { place, element }
            }
        });
    }
    let axes = work.output.strides.iter().map(|stride| Axis { stride: *stride, window: None }).collect();
    let output = Place { offset: work.output.offset, axes };
    let loops = Loops::new(&work.dims, places, output);
    let (Some(count), Some(reach)) = (loops.elements(), loops.reach()) else { return Err(too_large(work)) };
    if count == 0 {
        return Ok(None);
    }
    // Addresses have fewer bits than this, in bytes.
    if count.max(reach) > 1 << 55 {
        return Err(too_large(work));
    }
    let numbers = match values {
        Values::Numbers(numbers) => numbers,
        // The program, of identities, is not asked for.
        Values::Bytes(_) => Numbers::Single,
    };
    let mut program = Text::new(numbers);
    let statements = program.program(work.inputs.len(), &work.program).map_err(Error::invalid_value)?;
    for (_, element) in &elements {
        program.widen(*element);
    }
    program.narrow(work.output.element);
    let byte_offset = |elements: i64, element: Element| {
        let bytes = elements.checked_mul(element.bytes() as i64).and_then(|bytes| isize::try_from(bytes).ok());
        bytes.ok_or_else(|| too_large(work))
    };
    let mut offsets = Vec::new();
    for (place, element) in elements {
        offsets.push(byte_offset(loops.inputs[place].offset, element)?);
    }
    offsets.push(byte_offset(loops.output.offset, work.output.element)?);
    let result = match values {
        // The program has nothing but identities.
        Values::Bytes(_) => work.inputs.len() - 1,
        _ => work.inputs.len() + work.program.len() - 1,
    };
    let source = Source::new(&Work {
        loops: &loops,
        inputs: &slots,
        output: work.output.element,
        program,
        statements: &statements,
        result,
        values,
        wide,
    });
    launch::check_size(&source.arguments)?;
    Ok(Some(Generated { source, offsets, numbers }))
}

fn too_large(work: &Elementwise) -> Error {
    Error::invalid_value(format!("a kernel over {:?} would reach further than addresses do", work.dims))
}

/// What generation relies on.
fn check(work: &Elementwise) -> Result<(), Error> {
    let rank = work.dims.len();
    let wrong = |text: String| Err(Error::invalid_value(text));
    if work.inputs.is_empty() || work.inputs.len() > MOST_INPUTS {
        return wrong(format!("a kernel takes 1 to {MOST_INPUTS} inputs, this one has {}", work.inputs.len()));
    }
    if work.program.is_empty() && work.inputs.len() != 1 {
        return wrong(format!("without operations there is one input, this kernel has {}", work.inputs.len()));
    }
    for (i, input) in work.inputs.iter().enumerate() {
        match input {
            Input::Index { axis } if *axis >= rank => {
                return wrong(format!("input {i} is the index along dimension {axis}, but there are {rank}"));
            }
            Input::Tensor(view) if view.strides.len() != rank => {
                return wrong(format!("input {i} has {} strides for {rank} dimensions", view.strides.len()));
            }
            Input::Tensor(view) if !view.windows.is_empty() && view.windows.len() != rank => {
                return wrong(format!("input {i} has {} windows for {rank} dimensions", view.windows.len()));
            }
            Input::Tensor(view) if view.windows.iter().flatten().any(|window| window.step == 0) => {
                return wrong(format!("input {i} has a window of step 0"));
            }
            _ => {}
        }
    }
    if work.output.strides.len() != rank {
        return wrong(format!("the output has {} strides for {rank} dimensions", work.output.strides.len()));
    }
    for (d, (extent, stride)) in work.dims.iter().zip(&work.output.strides).enumerate() {
        if *extent > 1 && *stride == 0 && !work.dims.contains(&0) {
            return wrong(format!("the output has {extent} elements in one place along dimension {d}"));
        }
    }
    Ok(())
}

/// Whether the program leaves its only input as it is.
fn is_copy(work: &Elementwise) -> bool {
    let identity =
        |op: &Op| matches!(op, Op::Pointwise { mode: PointwiseMode::Identity, operands, .. } if operands.len() == 1);
    work.inputs.len() == 1 && work.program.iter().enumerate().all(|(i, op)| identity(op) && op.operands() == [i])
}

fn values(work: &Elementwise) -> Values {
    match &work.inputs[0] {
        // true may be any byte that is not 0, and is written as 1.
        Input::Tensor(view)
            if is_copy(work) && view.element == work.output.element && view.element != Element::Boolean =>
        {
            return Values::Bytes(view.element.bytes());
        }
        _ => {}
    }
    let whole = |input: &Input| match input {
        Input::Tensor(view) => view.element.is_whole(),
        Input::Index { .. } => true,
        Input::Literal(value) => is_whole(*value),
        Input::Scalar(_) => false,
    };
    if work.output.element.is_whole() && work.inputs.iter().all(whole) && work.program.iter().all(Op::keeps_whole) {
        return Values::Numbers(Numbers::Whole);
    }
    let double = |input: &Input| match input {
        Input::Tensor(view) => !view.element.fits_single(),
        Input::Index { axis } => !fits_single(work.dims[*axis]),
        Input::Scalar(_) | Input::Literal(_) => false,
    };
    let double = work.output.element == Element::F64 || work.inputs.iter().any(double);
    Values::Numbers(if double { Numbers::Double } else { Numbers::Single })
}

impl PreparedKernel {
    /// What is stored with a plan that launches it.
    pub(super) fn entry(&self) -> Option<Entry> {
        self.kernel.as_ref().map(|launch| launch.compiled.entry(&self.device))
    }

    /// Launches it: `output` is written when the stream gets there. Nothing is allocated and nothing waited for.
    ///
    /// # Safety
    /// `inputs` has an address for each [`Input::Tensor`], in order. Each, and `output`, is memory of the device with all
    /// the elements that the work reads and writes, aligned for them, until the stream has run the kernel. The output
    /// overlaps an input only where it is the same tensor with the same strides. The stream is one of the device.
    ///
    /// # Errors
    /// If the number of inputs is wrong, or HIP refuses.
    pub unsafe fn launch(&self, stream: *mut c_void, inputs: &[*const u8], output: *mut u8) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_with(stream, inputs, output, &[]) }
    }

    /// [`PreparedKernel::launch`] with other values for every [`Input::Scalar`], or with none.
    ///
    /// # Safety
    /// As [`PreparedKernel::launch`].
    ///
    /// # Errors
    /// As [`PreparedKernel::launch`], and if the number of scalars is neither 0 nor theirs.
    pub unsafe fn launch_with(
        &self,
        stream: *mut c_void,
        inputs: &[*const u8],
        output: *mut u8,
        scalars: &[f64],
    ) -> Result<(), Error> {
        if inputs.len() != self.tensors {
            return Err(Error::invalid_value(format!(
                "the kernel reads {} tensors, came {}",
                self.tensors,
                inputs.len()
            )));
        }
        launch::check_scalars(self.scalars, scalars.len())?;
        let Some(launch) = &self.kernel else { return Ok(()) };
        let addresses = inputs.iter().copied().chain([output.cast_const()]);
        // SAFETY: the caller's promise, with an address for each tensor.
        unsafe { launch.run(&self.device, stream, addresses, scalars) }
    }
}
