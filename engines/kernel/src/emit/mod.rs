//! Code generation of our own kernels: everything that is not a convolution.
//!
//! There are two kinds. Element-wise kernels read any number of strided tensors at the index of an output's element,
//! compute a program of pointwise operations, and write the element. A chain of pointwise nodes is one launch, and so
//! is a copy into another layout, into or out of a padded buffer, with dimensions reversed, or to another type. Kernels
//! over groups ([`grouped`]) do the same for groups of elements, after a reduction over each group.
//!
//! ```text
//! Elementwise ─► Loops ─► KernelSource (text, arguments)
//! Grouped ─► Loops, Mapping ─► KernelSource (text, arguments)
//! ```
//!
//! Text is specialized for the program, the types and the number of loops; shapes are arguments.
//!
//! Arithmetic is `i64` if all inputs and outputs are integers and every operation maps integers to integers; `f64` if
//! an input has values that are not exact in `f32`, or the result is `f64`; else `f32`. Pointwise modes have the
//! semantics of the CPU engine, with its limits at infinities, and nothing is contracted or reordered.

mod arguments;
mod element;
mod expression;
pub mod grouped;
mod layout;
mod program;
mod source;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::ffi::CStr;

use hipdnn_engine_core::error::Error;
use hipdnn_schemas::PointwiseMode;

use arguments::Arguments;
pub use arguments::MOST_BYTES;
pub use element::Element;
pub use layout::Window;
use layout::{Axis, Loops, Place};
pub use program::Op;
use program::{ComputeType, Text, fits_single, is_whole};
use source::{BLOCK, FUNCTION, Slot, Source, Values, Work};

/// Kernel in C++ for hiprtc, and the argument of a launch: a structure that begins with a pointer for each tensor.
#[derive(Debug)]
pub struct KernelSource {
    /// Name of the kernel function.
    pub name: &'static CStr,
    /// C++ source text.
    pub text: String,
    /// Bytes of the argument structure, with room for the pointers at its beginning.
    pub arguments: Box<[u8]>,
    /// Offsets to add to the pointers, in bytes.
    pub offsets: Box<[isize]>,
    /// Offsets in the structure of the scalars that a launch may replace, in bytes.
    pub scalars: Box<[usize]>,
    /// True if the scalars are `f64`, not `f32`.
    pub double: bool,
    /// Number of blocks to launch.
    pub blocks: u32,
    /// Number of threads of a block.
    pub threads: u32,
    /// Mapping of threads to the work, as text for the log.
    pub mapping: String,
}

/// Work that can be emitted as a kernel.
pub trait Emit {
    /// Emits the kernel; `None` if there is nothing to do.
    ///
    /// # Errors
    /// If the work breaks the conditions of its fields.
    fn source(&self) -> Result<Option<KernelSource>, Error>;

    /// Number of input tensors; their pointers come first.
    fn reads(&self) -> usize;

    /// Number of output tensors.
    fn writes(&self) -> usize;

    /// Number of scalars that a launch may replace.
    fn scalars(&self) -> usize;
}

/// Checks that the arguments are within HIP's limit.
fn check_size(arguments: &Arguments) -> Result<(), Error> {
    let bytes = arguments.bytes.len();
    if bytes > MOST_BYTES {
        let text = format!("expected at most {MOST_BYTES} bytes of arguments, got {bytes}");
        return Err(Error::invalid_value(text));
    }
    Ok(())
}

/// Limit of input tensors of a kernel.
pub const MOST_INPUTS: usize = 16;

/// Element-wise kernel: a program over every element of an output.
#[derive(Clone, Debug, PartialEq)]
pub struct Elementwise {
    /// Extents of the output.
    pub dims: Vec<usize>,
    /// Inputs of the program: slots 0, 1, …
    pub inputs: Vec<Input>,
    /// Destination of the last operation's result, or of the only input if there are no operations.
    pub output: Output,
    /// Operations in order.
    pub program: Vec<Op>,
}

/// Source of a slot that is filled before the program runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Element of a tensor.
    Tensor(View),
    /// Index along a dimension of the output.
    Index {
        /// Number of the dimension.
        axis: usize,
    },
    /// Scalar argument, which may be replaced for a launch ([`KernelSource::scalars`]).
    Scalar(f64),
    /// Constant of the program: kernels for other values are other kernels.
    Literal(f64),
}

/// Strided view of an input tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Element type.
    pub element: Element,
    /// Strides along the dimensions of the output, in elements; 0 broadcasts, negative ones go backwards.
    pub strides: Vec<i64>,
    /// Offset of the element that index 0 reads, from the address given at launch, in elements.
    pub offset: i64,
    /// Windows of the dimensions, or an empty list: the indices that read an element; others read zero. With a window
    /// the stride is that of the tensor's own dimension, and `offset` is its element 0.
    pub windows: Vec<Option<Window>>,
}

/// Strided view of the output tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Element type.
    pub element: Element,
    /// Strides in elements. No two elements share an address.
    pub strides: Vec<i64>,
    /// Offset of the element of index 0 from the address given at launch, in elements.
    pub offset: i64,
}

impl View {
    /// View of a whole tensor, from its first element on.
    pub fn new(element: Element, strides: impl Into<Vec<i64>>) -> View {
        View { element, strides: strides.into(), offset: 0, windows: Vec::new() }
    }
}

impl Output {
    /// View of a whole tensor, from its first element on.
    pub fn new(element: Element, strides: impl Into<Vec<i64>>) -> Output {
        Output { element, strides: strides.into(), offset: 0 }
    }
}

/// Generated source and its launch parameters.
struct Generated {
    source: Source,
    offsets: Vec<isize>,
    compute_type: ComputeType,
}

/// Generates the kernel of a work; `None` if it has no element.
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
    let compute_type = match values {
        Values::Computed(compute_type) => compute_type,
        // The program, of identities, is not asked for.
        Values::Bytes(_) => ComputeType::F32,
    };
    let mut program = Text::new(compute_type);
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
    check_size(&source.arguments)?;
    Ok(Some(Generated { source, offsets, compute_type }))
}

fn too_large(work: &Elementwise) -> Error {
    Error::invalid_value(format!("a kernel over {:?} would reach further than addresses do", work.dims))
}

/// Checks the preconditions of code generation.
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
                return wrong(format!("input {i}: expected the index along a dimension below {rank}, got {axis}"));
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

/// True if the program is a copy: it leaves its only input as it is.
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
        return Values::Computed(ComputeType::I64);
    }
    let double = |input: &Input| match input {
        Input::Tensor(view) => !view.element.fits_single(),
        Input::Index { axis } => !fits_single(work.dims[*axis]),
        Input::Scalar(_) | Input::Literal(_) => false,
    };
    let double = work.output.element == Element::F64 || work.inputs.iter().any(double);
    Values::Computed(if double { ComputeType::F64 } else { ComputeType::F32 })
}

impl Elementwise {
    /// [`Emit::source`], with 64-bit indices even where 32 bits are enough if `wide`.
    ///
    /// # Errors
    /// As [`Emit::source`].
    pub fn source_with(&self, wide: bool) -> Result<Option<KernelSource>, Error> {
        let Some(Generated { source, offsets, compute_type }) = generate(self, wide)? else { return Ok(None) };
        let Source { text, arguments, threads } = source;
        Ok(Some(KernelSource {
            name: FUNCTION,
            text,
            arguments: arguments.bytes.into(),
            offsets: offsets.into(),
            scalars: arguments.scalars.into(),
            double: compute_type == ComputeType::F64,
            blocks: u32::try_from(threads.div_ceil(u64::from(BLOCK))).expect("threads are below 2³¹"),
            threads: BLOCK,
            mapping: "a thread for each element or vector of them".to_owned(),
        }))
    }
}

impl Emit for Elementwise {
    fn source(&self) -> Result<Option<KernelSource>, Error> {
        self.source_with(false)
    }

    fn reads(&self) -> usize {
        self.inputs.iter().filter(|input| matches!(input, Input::Tensor(_))).count()
    }

    fn writes(&self) -> usize {
        1
    }

    fn scalars(&self) -> usize {
        self.inputs.iter().filter(|input| matches!(input, Input::Scalar(_))).count()
    }
}
