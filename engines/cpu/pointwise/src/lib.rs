//! Pointwise nodes: one pass over the output. Rows of operands are widened to the compute type, combined, and narrowed
//! to the output's type, a few hundred elements at a time, so that everything between load and store stays in the first
//! cache.

mod chain;
mod direct;
mod function;
mod program;
mod row;

use std::ops::RangeInclusive;

pub use hipdnn_engine_core::ops::pointwise::Parameters;

pub use chain::Chain;
pub use direct::{Direct, Lie};
pub use function::Function;
use hipdnn_cpu_kernels::lines::Lines;
use hipdnn_cpu_kernels::transpose::Transposition;
use hipdnn_cpu_simd::isa::Isa;
pub use hipdnn_cpu_simd::minifloat::Code;
use hipdnn_cpu_simd::scratch::LINE;
use hipdnn_cpu_threads::Pool;
use hipdnn_schemas::PointwiseMode;
pub use program::{Arg, Compiled, ComputeType, Program, ProgramStep, SLOTS};
pub use row::{Placement, Storage, Value, copy};

/// Number of elements of a row that are worked on together: the rows of a program fit the first cache.
const ROW: usize = 512;

/// Number of elements of a row of a program that reads and writes where they lie: it has fewer rows.
const DIRECT_ROW: usize = 1024;

/// Extent of the last dimension below which it forms rows together with the one before it.
const SHORT: usize = 256;

/// Number of values of all slots that suffices for most programs.
const FEW_VALUES: usize = 3 * DIRECT_ROW;

/// Number that suffices for all programs of rows that are loaded.
const MORE_VALUES: usize = SLOTS * ROW;

/// Number of elements below which waking another thread costs more than it saves, and that a unit has at most.
const PER_UNIT: usize = 16 * 1024;

/// Number of elements of a unit for so many threads: where there are enough for several threads, each gets as many units as even
/// out what they do.
fn per_unit(elements: usize, threads: usize) -> usize {
    let share = (elements / (2 * threads)).next_multiple_of(LINE / size_of::<f32>());
    if elements <= PER_UNIT { PER_UNIT } else { share.clamp(PER_UNIT / 4, PER_UNIT) }
}

/// Least rows and columns of a matrix that is transposed by squares, unless its lines follow on each other: in a smaller one
/// there is no square of eight lanes.
const LEAST_SQUARE: usize = 8;

/// Layout of an operand or the output, along the dimensions of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Element type in memory.
    pub storage: Storage,
    /// Stride of each dimension of the output, in elements; 0 repeats (broadcasts).
    pub strides: Vec<usize>,
}

/// Input of a program, along the dimensions of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputView {
    /// Elements in memory.
    Memory(View),
    /// Iota: numbers that grow by these steps along the dimensions, from 0 on.
    Count(Vec<usize>),
}

impl InputView {
    /// Stride of each dimension of the output.
    pub fn strides(&self) -> &[usize] {
        match self {
            InputView::Memory(view) => &view.strides,
            InputView::Count(steps) => steps,
        }
    }

    fn strides_mut(&mut self) -> &mut Vec<usize> {
        match self {
            InputView::Memory(view) => &mut view.strides,
            InputView::Count(steps) => steps,
        }
    }
}

/// Copy of `f32` values by vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copying {
    /// By squares that are turned in registers: the input is contiguous along this dimension, the output along the last one.
    Turned(usize),
    /// Line by line: both are contiguous along the last dimension, which is no longer than a unit is.
    Lines,
}

/// Values of a line that is copied with others: of shorter ones many are one row, longer ones are more than a unit has.
const LINES: RangeInclusive<usize> = 8..=PER_UNIT;

/// Kernel of a pointwise program over strided tensors.
#[derive(Clone, Debug)]
pub struct PointwiseKernel {
    program: Compiled,
    /// The program from memory to memory, if it computes in `f32`.
    direct: Option<Direct>,
    /// Extents, outermost first, after neighboring dimensions that lie behind each other have been joined.
    dims: Vec<usize>,
    inputs: Vec<InputView>,
    output: View,
    /// Copy that the kernel is, if it is nothing else and vectors do it.
    copy: Option<Copying>,
    /// Number of dimensions that form a row: several where the last one is short and the output goes from one to the other
    /// without a gap.
    row_dims: usize,
}

impl PointwiseKernel {
    /// Prepares `output[i] = program(inputs[0][i], …)` for all `i` within `dims`.
    ///
    /// # Panics
    /// If a view has not one stride for each dimension, the number of inputs is not the program's, or the program wants too
    /// many values at a time.
    pub fn new(program: &Program, dims: &[usize], inputs: &[InputView], output: &View) -> PointwiseKernel {
        assert!(inputs.len() >= program.inputs(), "operands of {program}");
        for strides in inputs.iter().map(InputView::strides).chain([&output.strides[..]]) {
            assert_eq!(strides.len(), dims.len(), "one stride for each dimension");
        }
        if let ([step], [InputView::Memory(input)]) = (&program.steps[..], inputs)
            && [input.storage, output.storage] == [Storage::I32; 2]
            && is_copy(step)
        {
            // Copied bits are those of `f32`, whatever they mean.
            let single = |view: &View| View { storage: Storage::F32, strides: view.strides.clone() };
            let program = Program::single(ComputeType::F32, step.function);
            return PointwiseKernel::new(&program, dims, &[InputView::Memory(single(input))], &single(output));
        }
        let mut kernel = PointwiseKernel {
            program: program.compile().expect("programs are as large as rows allow"),
            direct: None,
            dims: Vec::new(),
            inputs: inputs.to_vec(),
            output: View { storage: output.storage, strides: Vec::new() },
            copy: None,
            row_dims: 1,
        };
        kernel.inputs.iter_mut().for_each(|input| input.strides_mut().clear());
        // Dimensions in the order in which the output lies in memory, as no element depends on another one.
        let mut axes: Vec<usize> = (0..dims.len()).filter(|axis| dims[*axis] != 1).collect();
        axes.sort_by_key(|axis| std::cmp::Reverse(output.strides[*axis]));
        for axis in axes {
            kernel.push(dims[axis], inputs.iter().map(|v| v.strides()[axis]).collect(), output.strides[axis]);
        }
        if kernel.dims.is_empty() {
            kernel.push(1, vec![1; inputs.len()], 1);
        }
        if let ([.., before, last], [.., outer, inner]) = (&kernel.dims[..], &kernel.output.strides[..])
            && *last < SHORT
            && *outer == inner * last
            && before * last > *last
            && kernel.inputs.iter().all(|input| matches!(input, InputView::Memory(_)))
        {
            kernel.row_dims = 2;
            kernel.lengthen();
        }
        kernel.copy = kernel.copying(program);
        if program.compute_type == ComputeType::F32 {
            let lies: Vec<Lie> = kernel.inputs.iter().map(|input| kernel.lie(input)).collect();
            let output = kernel.output.storage == Storage::F32 && kernel.output.strides.last() == Some(&1);
            kernel.direct = Direct::new(program, &lies, output);
        }
        kernel
    }

    /// Placement of an input's elements along a row.
    fn lie(&self, input: &InputView) -> Lie {
        let InputView::Memory(View { storage: Storage::F32, strides }) = input else { return Lie::Apart };
        match strides[strides.len() - 1] {
            1 if self.is_even(strides) => Lie::Beside,
            0 if self.is_even(strides) => Lie::Same,
            _ => Lie::Apart,
        }
    }

    /// True if one stride leads through all elements of a row.
    fn is_even(&self, strides: &[usize]) -> bool {
        let first = self.dims.len() - self.row_dims;
        is_even(&self.dims[first..], &strides[first..])
    }

    /// Takes dimensions before a row's into it where an operand repeats each element for the last dimension, as enlarged images do:
    /// what a row costs beside its elements is then for many of them. Operands of one stride keep it.
    fn lengthen(&mut self) {
        let last = self.dims.len() - 1;
        let repeats = |input: &InputView| input.strides()[last] == 0 && input.strides()[last - 1] != 0;
        if !self.inputs.iter().any(repeats) {
            return;
        }
        while self.row_dims <= last {
            let next = last - self.row_dims;
            let goes_on = |strides: &[usize]| strides[next] == strides[next + 1] * self.dims[next + 1];
            let all_go_on =
                self.inputs.iter().map(InputView::strides).all(|strides| !self.is_even(strides) || goes_on(strides));
            if !goes_on(&self.output.strides) || !all_go_on {
                break;
            }
            self.row_dims += 1;
        }
    }

    /// Copy by vectors, if the kernel copies `f32` and the output is contiguous along the last dimension.
    fn copying(&self, program: &Program) -> Option<Copying> {
        let [step] = &program.steps[..] else { return None };
        let [InputView::Memory(input)] = &self.inputs[..] else { return None };
        let singles = input.storage == Storage::F32 && self.output.storage == Storage::F32;
        let last = self.dims.len() - 1;
        if !is_copy(step) || !singles || self.output.strides[last] != 1 {
            return None;
        }
        if input.strides[last] == 1 {
            return (last > 0 && LINES.contains(&self.dims[last])).then_some(Copying::Lines);
        }
        let turned = input.strides.iter().position(|stride| *stride == 1).filter(|_| input.strides[last] > 1)?;
        let (rows, columns) = (self.dims[last], self.dims[turned]);
        // As images of few channels are.
        let is_narrow =
            (rows > 1 && self.output.strides[turned] == rows) || (columns > 1 && input.strides[last] == columns);
        let has_squares = rows.min(columns) >= LEAST_SQUARE || rows.max(columns) >= LEAST_SQUARE && is_narrow;
        has_squares.then_some(Copying::Turned(turned))
    }

    /// Copies line by line.
    ///
    /// # Safety
    /// As [`PointwiseKernel::run`]; the kernel copies lines.
    unsafe fn run_lines(&self, isa: Isa, pool: &Pool, input: *const u8, output: *mut u8) {
        let last = self.dims.len() - 1;
        let (count, of_input, of_output) = (self.dims[last], self.inputs[0].strides(), &self.output.strides);
        // Lines along the dimension before are at one distance.
        let (rows, along): (usize, usize) = (self.dims[..last].iter().product(), self.dims[last - 1]);
        let each = (per_unit(rows * count, pool.width()) / count).max(1);
        let offset = |strides: &[usize], row: usize| offset(&self.dims[..last], strides, row);
        let addresses = &(Shared(input.cast_mut()), Shared(output));
        pool.run(rows.div_ceil(each), &|unit| {
            let (mut row, end) = (unit * each, rows.min((unit + 1) * each));
            while row < end {
                let lines = (along - row % along).min(end - row);
                let work = Lines {
                    from: addresses.0.0.cast::<f32>().cast_const().wrapping_add(offset(of_input, row)),
                    step: of_input[last - 1],
                    count,
                    to: addresses.1.0.cast::<f32>().wrapping_add(offset(of_output, row)),
                    out: of_output[last - 1],
                    lines,
                };
                // SAFETY: the caller's promise: these are elements of the views; units have rows of their own.
                unsafe { work.run(isa) };
                row += lines;
            }
        });
    }

    /// Copies by squares that are turned in registers.
    ///
    /// # Safety
    /// As [`PointwiseKernel::run`]; `turned` is the kernel's.
    unsafe fn run_turned(&self, isa: Isa, pool: &Pool, input: *const u8, output: *mut u8, turned: usize) {
        let last = self.dims.len() - 1;
        let (rows, columns) = (self.dims[last], self.dims[turned]);
        let of_input = self.inputs[0].strides();
        let count: usize = (0..last).filter(|axis| *axis != turned).map(|axis| self.dims[axis]).product();
        // Whole lines of the input, as many of them as a unit has, and no more rows of them.
        let line = LINE / size_of::<f32>();
        let per_unit = per_unit(count * rows * columns, pool.width());
        let strip = (per_unit / rows.max(1)).max(1).next_multiple_of(line);
        let tall = (per_unit / strip.min(columns)).max(1).next_multiple_of(line);
        let (strips, blocks) = (columns.div_ceil(strip), rows.div_ceil(tall));
        let addresses = &(Shared(input.cast_mut()), Shared(output));
        pool.run(count * strips * blocks, &|unit| {
            let (first, top) = (unit % strips * strip, unit / strips % blocks * tall);
            let mut rest = unit / strips / blocks;
            let (mut from, mut to) = (first + top * of_input[last], first * self.output.strides[turned] + top);
            for axis in (0..last).rev().filter(|axis| *axis != turned) {
                let at = rest % self.dims[axis];
                from += at * of_input[axis];
                to += at * self.output.strides[axis];
                rest /= self.dims[axis];
            }
            let work = Transposition {
                from: addresses.0.0.cast::<f32>().cast_const().wrapping_add(from),
                across: of_input[last],
                to: addresses.1.0.cast::<f32>().wrapping_add(to),
                out: self.output.strides[turned],
                rows: tall.min(rows - top),
                columns: strip.min(columns - first),
            };
            // SAFETY: the caller's promise: these are elements of the views; units have columns of their own.
            unsafe { work.run(isa) };
        });
    }

    /// Appends a dimension, joined to the one before it where every view steps from one to the other without a gap.
    fn push(&mut self, extent: usize, input_strides: Vec<usize>, output_stride: usize) {
        let all = self.inputs.iter_mut().map(InputView::strides_mut).chain([&mut self.output.strides]);
        let mut all: Vec<(&mut Vec<usize>, usize)> =
            all.zip(input_strides.into_iter().chain([output_stride])).collect();
        let joins = !self.dims.is_empty() && all.iter().all(|(strides, step)| strides.last() == Some(&(step * extent)));
        for (strides, step) in &mut all {
            if joins {
                strides.pop();
            }
            strides.push(*step);
        }
        let before = if joins { self.dims.pop().unwrap_or(1) } else { 1 };
        self.dims.push(before * extent);
    }

    /// Computes all of the output.
    ///
    /// # Safety
    /// Each input in memory, and the output, must point to memory of its view: aligned for its storage, readable
    /// (writable for the output) at every offset that `dims` and strides reach. The output may be an input only where their
    /// views are the same; it may not overlap one in any other way.
    pub unsafe fn run(&self, isa: Isa, pool: &Pool, inputs: &[*const u8], output: *mut u8) {
        match self.copy {
            // SAFETY: the caller's promise.
            Some(Copying::Turned(turned)) => return unsafe { self.run_turned(isa, pool, inputs[0], output, turned) },
            // SAFETY: the caller's promise; the kernel copies lines.
            Some(Copying::Lines) => return unsafe { self.run_lines(isa, pool, inputs[0], output) },
            None => {}
        }
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(direct) = &self.direct {
                return self.run_direct(isa, pool, direct, inputs, output);
            }
            match self.program.compute_type() {
                ComputeType::F32 => self.run_in::<f32>(isa, pool, inputs, output),
                ComputeType::F64 => self.run_in::<f64>(isa, pool, inputs, output),
                ComputeType::I64 => self.run_in::<i64>(isa, pool, inputs, output),
            }
        }
    }

    /// # Safety
    /// As [`PointwiseKernel::run`].
    unsafe fn run_in<T: Value>(&self, isa: Isa, pool: &Pool, inputs: &[*const u8], output: *mut u8) {
        self.chunks(pool, ROW, self.program.slots(), inputs, output, |addresses, chunk, slots: &mut [T]| {
            // SAFETY: the part of the row lies within `dims`, for which the caller answers.
            unsafe { self.chunk(isa, addresses, chunk, slots) };
        });
    }

    /// # Safety
    /// As [`PointwiseKernel::run`]; the program is the kernel's.
    unsafe fn run_direct(&self, isa: Isa, pool: &Pool, direct: &Direct, inputs: &[*const u8], output: *mut u8) {
        // Without rows of its own there is nothing that the first cache has to hold.
        let elements = self.dims.iter().product();
        let most = if direct.rows() == 0 { per_unit(elements, pool.width()) } else { DIRECT_ROW };
        self.chunks(pool, most, direct.rows(), inputs, output, |addresses, chunk, slots: &mut [f32]| {
            let (offset, stride) = self.place(&self.output.strides, chunk.row);
            let to = addresses.output.cast::<f32>().wrapping_add(offset + chunk.start * stride);
            let address = |input: usize| {
                let (offset, stride) = self.place(self.inputs[input].strides(), chunk.row);
                addresses.inputs[input].cast::<f32>().wrapping_add(offset + chunk.start * stride)
            };
            // SAFETY: the part of the row lies within `dims`, for which the caller answers; what lies side by side has one
            // stride throughout, as the output has.
            unsafe {
                let load = |input: usize, values: &mut [f32]| self.load(isa, addresses, input, chunk, values);
                if let Some(values) = direct.run(isa, (slots, most, chunk.len), load, address, to) {
                    let first = offset + chunk.start * stride;
                    f32::store(self.output.storage, isa, values, addresses.output, first, stride);
                }
            }
        });
    }

    /// Calls `work` for parts of rows of at most this number of elements, with as many slots of as many elements.
    fn chunks<T: Value>(
        &self,
        pool: &Pool,
        most: usize,
        slots: usize,
        inputs: &[*const u8],
        output: *mut u8,
        work: impl Fn(&Addresses<'_>, Chunk, &mut [T]) + Sync,
    ) {
        assert_eq!(inputs.len(), self.inputs.len(), "as many addresses as inputs");
        let (outer, row) = self.dims.split_at(self.dims.len() - self.row_dims);
        let (rows, inner): (usize, usize) = (outer.iter().product(), row.iter().product());
        let chunks_of_row = inner.div_ceil(most);
        let chunks = rows * chunks_of_row;
        let chunks_per_unit = match self.output.storage.shares_bytes() {
            true => chunks,
            false => (per_unit(rows * inner, pool.width()) / inner.min(most)).max(1),
        };
        let addresses = Addresses { inputs, output };
        // The whole value moves into the closure, so that its promise about threads is what is checked.
        let addresses = &addresses;
        pool.run(chunks.div_ceil(chunks_per_unit), &|unit| {
            let first = unit * chunks_per_unit;
            let all = |slots: &mut [T]| {
                for chunk in first..(first + chunks_per_unit).min(chunks) {
                    let start = chunk % chunks_of_row * most;
                    work(addresses, Chunk { row: chunk / chunks_of_row, start, len: most.min(inner - start) }, slots);
                }
            };
            // Clearing rows that no step uses would cost as much as a step.
            match slots * most {
                0 => all(&mut []),
                few if few <= FEW_VALUES => all(&mut [T::default(); FEW_VALUES]),
                more if more <= MORE_VALUES => all(&mut [T::default(); MORE_VALUES]),
                _ => all(&mut [T::default(); SLOTS * DIRECT_ROW]),
            }
        });
    }

    /// Offset of a row in a view, and the stride of its last dimension.
    fn place(&self, strides: &[usize], row: usize) -> (usize, usize) {
        let (outer, within) = strides.split_at(strides.len() - self.row_dims);
        (offset(&self.dims[..outer.len()], outer, row), within[self.row_dims - 1])
    }

    /// Reads elements of an input.
    ///
    /// # Safety
    /// As [`PointwiseKernel::run`]; the part of the row lies within `dims`.
    unsafe fn load<T: Value>(&self, isa: Isa, addresses: &Addresses<'_>, input: usize, chunk: Chunk, values: &mut [T]) {
        let strides = self.inputs[input].strides();
        let (offset, inner) = self.place(strides, chunk.row);
        match &self.inputs[input] {
            InputView::Memory(view) => {
                let first = self.dims.len() - self.row_dims;
                let row = Row {
                    base: addresses.inputs[input],
                    offset,
                    dims: &self.dims[first..],
                    strides: &strides[first..],
                };
                // SAFETY: these elements of the row are within the view, which the caller says is readable and aligned.
                unsafe { row.load(view.storage, isa, chunk.start, values) };
            }
            InputView::Count(_) => {
                let first = offset + chunk.start * inner;
                values.iter_mut().enumerate().for_each(|(i, value)| *value = T::of(first + i * inner));
            }
        }
    }

    /// Computes elements of a row.
    ///
    /// # Safety
    /// As [`PointwiseKernel::run`]; the part of the row lies within `dims`.
    unsafe fn chunk<T: Value>(&self, isa: Isa, addresses: &Addresses<'_>, chunk: Chunk, slots: &mut [T]) {
        let values = self.program.run(isa, slots, ROW, chunk.len, |input, values| {
            // SAFETY: the caller's promise.
            unsafe { self.load(isa, addresses, input, chunk, values) };
        });
        let (offset, stride) = self.place(&self.output.strides, chunk.row);
        let first = offset + chunk.start * stride;
        // SAFETY: a row of the output has one stride throughout, and these elements of it are within the view, which the
        // caller says is writable and aligned.
        unsafe { T::store(self.output.storage, isa, values, addresses.output, first, stride) };
    }
}

impl std::fmt::Display for PointwiseKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.program.fmt(f)
    }
}

fn is_copy(step: &ProgramStep) -> bool {
    step.function.mode() == PointwiseMode::Identity && step.round.is_none()
}

/// Offset of an element of dimensions of these extents by its number, the last dimension first.
fn offset(extents: &[usize], strides: &[usize], number: usize) -> usize {
    let (mut offset, mut rest) = (0, number);
    for (extent, stride) in extents.iter().zip(strides).rev() {
        offset += rest % extent * stride;
        rest /= extent;
    }
    offset
}

/// Part of a row: its first element and the number of elements.
#[derive(Clone, Copy)]
struct Chunk {
    row: usize,
    start: usize,
    len: usize,
}

/// Address that threads share.
struct Shared(*mut u8);

// SAFETY: inputs are only read, and each element of the output is written by the one unit that computes it.
unsafe impl Sync for Shared {}

/// True if the elements of dimensions of these extents have one stride.
fn is_even(extents: &[usize], strides: &[usize]) -> bool {
    (1..extents.len()).all(|axis| strides[axis - 1] == strides[axis] * extents[axis])
}

/// Row of an operand.
struct Row<'a> {
    base: *const u8,
    /// Offset of the first element.
    offset: usize,
    /// Extents and strides of the dimensions that form the row.
    dims: &'a [usize],
    strides: &'a [usize],
}

impl Row<'_> {
    /// Reads elements of the row from its element `start` on.
    ///
    /// # Safety
    /// As [`Storage::load`], for each of them.
    unsafe fn load<T: Value>(&self, storage: Storage, isa: Isa, start: usize, values: &mut [T]) {
        let Row { base, offset, dims, strides } = *self;
        let inner = strides[strides.len() - 1];
        if is_even(dims, strides) {
            // SAFETY: one stride leads to each element, and the caller answers for them.
            return unsafe { T::load(storage, isa, base, offset + start * inner, inner, values) };
        }
        // An uneven row has two dimensions at least.
        let (outer, last_two) = dims.split_at(dims.len() - 2);
        let plane = last_two[0] * last_two[1];
        let mut done = 0;
        while done < values.len() {
            let (number, at) = ((start + done) / plane, (start + done) % plane);
            let count = (plane - at).min(values.len() - done);
            let runs = Runs {
                base,
                offset: offset + self::offset(outer, strides, number),
                outer: strides[strides.len() - 2],
                inner,
                last: last_two[1],
            };
            // SAFETY: these elements of the plane are among those that the caller answers for.
            unsafe { runs.load(storage, isa, at, &mut values[done..done + count]) };
            done += count;
        }
    }
}

/// Last two dimensions of an operand's row: runs of `last` elements.
struct Runs {
    base: *const u8,
    /// Offset of the first element.
    offset: usize,
    /// Stride between runs.
    outer: usize,
    /// Stride between elements within a run.
    inner: usize,
    last: usize,
}

impl Runs {
    /// Reads elements from the element `start` on.
    ///
    /// # Safety
    /// As [`Storage::load`], for each of them.
    unsafe fn load<T: Value>(&self, storage: Storage, isa: Isa, start: usize, values: &mut [T]) {
        let Runs { base, offset, outer, inner, last } = *self;
        let first = start / last;
        if inner == 0 {
            // Each run repeats one element: these are loaded, and then spread from the last to the first.
            let runs = (start + values.len() - 1) / last - first + 1;
            // SAFETY: the first element of each run is one of those that the caller answers for.
            unsafe { T::load(storage, isa, base, offset + first * outer, outer, &mut values[..runs]) };
            let rest = ((first + 1) * last - start).min(values.len());
            if rest == last {
                return T::spread(isa, values, (0, 0), last);
            }
            // The first run has begun before.
            let value = values[0];
            if rest < values.len() {
                T::spread(isa, values, (1, rest), last);
            }
            values[..rest].fill(value);
            return;
        }
        let mut done = 0;
        while done < values.len() {
            let (run, at) = ((start + done) / last, (start + done) % last);
            let count = (last - at).min(values.len() - done);
            let part = &mut values[done..done + count];
            // SAFETY: these elements of the run are among those that the caller answers for.
            unsafe { T::load(storage, isa, base, offset + run * outer + at * inner, inner, part) };
            done += count;
        }
    }
}

/// Addresses of a run, shared with the threads that work on it.
struct Addresses<'a> {
    inputs: &'a [*const u8],
    output: *mut u8,
}

// SAFETY: the inputs are only read, and each element of the output is written by the one unit that computes it.
unsafe impl Sync for Addresses<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use hipdnn_cpu_simd::minifloat;

    fn packed(storage: Storage, dims: &[usize]) -> View {
        let mut strides = vec![1; dims.len()];
        for i in (0..dims.len().saturating_sub(1)).rev() {
            strides[i] = strides[i + 1] * dims[i + 1];
        }
        View { storage, strides }
    }

    fn function(mode: PointwiseMode) -> Program {
        Program::single(ComputeType::F32, Function::new(mode, &Parameters::default()).unwrap())
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
            let kernel =
                PointwiseKernel::new(&function(PointwiseMode::Add), &dims, &inputs.map(InputView::Memory), &full);
            assert_eq!(kernel.dims, want, "{what}");
        }
        let scalar = packed(Storage::F32, &[1, 1]);
        let kernel =
            PointwiseKernel::new(&function(PointwiseMode::Abs), &[1, 1], &[InputView::Memory(scalar.clone())], &scalar);
        assert_eq!(kernel.dims, [1]);
    }

    #[test]
    fn strides_broadcasts_and_threads_give_the_same_as_plain_loops() {
        // (extents, strides of x, strides of y, strides of the output)
        type Case = (&'static str, [usize; 4], [usize; 4], [usize; 4], [usize; 4]);
        let cases: [Case; 8] = [
            ("repeated twice", [5, 40, 30, 2], [1200, 30, 1, 0], [0, 1, 0, 0], [2400, 60, 2, 1]),
            ("rows of three", [2, 7, 500, 3], [10_500, 1500, 3, 1], [0, 2000, 4, 1], [10_500, 1500, 3, 1]),
            ("turned, short", [2, 3, 300, 8], [7200, 2400, 1, 300], [7200, 2400, 8, 1], [7200, 2400, 8, 1]),
            ("packed", [2, 3, 40, 50], [6000, 2000, 50, 1], [6000, 2000, 50, 1], [6000, 2000, 50, 1]),
            ("per channel", [2, 3, 40, 50], [6000, 2000, 50, 1], [0, 1, 0, 0], [6000, 2000, 50, 1]),
            ("channels last", [2, 3, 40, 50], [6000, 1, 150, 3], [0, 1, 0, 0], [6000, 2000, 50, 1]),
            ("scalar, padded rows", [2, 3, 7, 9], [500, 150, 16, 1], [0, 0, 0, 0], [700, 200, 20, 2]),
            ("one row longer than a chunk", [1, 1, 1, 40_000], [0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 1]),
        ];
        for threads in [1, 3] {
            let pool = Pool::new(threads);
            for (what, dims, xs, ys, os) in cases {
                let span = |s: [usize; 4]| 1 + dims.iter().zip(s).map(|(d, s)| (d - 1) * s).sum::<usize>();
                let x: Vec<f32> = (0..span(xs)).map(|i| i as f32 * 0.5 - 7.0).collect();
                let y: Vec<f32> = (0..span(ys)).map(|i| 3.0 - i as f32).collect();
                let mut out = vec![f32::NAN; span(os)];
                let view = |s: [usize; 4]| View { storage: Storage::F32, strides: s.to_vec() };
                let kernel = PointwiseKernel::new(
                    &function(PointwiseMode::Sub),
                    &dims,
                    &[view(xs), view(ys)].map(InputView::Memory),
                    &view(os),
                );
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
    fn enlarged_images_are_rows_of_their_own_and_operands() {
        use Storage::{BF16, F16, F32, I8, I32};
        // (images, rows, columns), and what each row and column becomes.
        let cases = [
            ([3, 5, 7], [2, 2], 4),
            ([2, 9, 33], [2, 2], 4),
            ([2, 3, 130], [8, 8], 4),
            ([1, 6, 40], [4, 4], 4),
            ([4, 2, 17], [3, 5], 4),
            ([2, 3, 300], [1, 2], 2),
            ([2, 4, 21], [2, 1], 2),
        ];
        for (isa, (extents, [tall, wide], row_dims)) in Isa::of_vectors().flat_map(|isa| cases.map(|case| (isa, case)))
        {
            let [images, rows, columns] = extents;
            let dims = [images, rows, tall, columns, wide];
            let image = [rows * columns, columns, 0, 1, 0];
            for (storage, mode) in [F32, F16, BF16, I32, I8]
                .into_iter()
                .map(|storage| (storage, PointwiseMode::Identity))
                .chain([F32, F16].map(|storage| (storage, PointwiseMode::Add)))
            {
                // Each image in its part of a larger tensor.
                let count = dims[1..].iter().product::<usize>();
                let mut output = packed(storage, &dims);
                output.strides[0] = count + 10;
                let views = [View { storage, strides: image.to_vec() }, packed(storage, &dims)];
                let operands = mode.operands();
                let compute_type = if storage.is_whole() { ComputeType::I64 } else { ComputeType::F32 };
                let program = Program::single(compute_type, Function::new(mode, &Parameters::default()).unwrap());
                let inputs = views.map(InputView::Memory);
                let kernel = PointwiseKernel::new(&program, &dims, &inputs[..operands], &output);
                if images > 1 {
                    assert_eq!(kernel.row_dims, row_dims, "{storage:?} {mode} of {dims:?}");
                }
                let bytes = storage.bits() / 8;
                let write = |values: &[f32]| {
                    let mut memory = vec![0u64; (values.len() * bytes).div_ceil(8)];
                    // SAFETY: the vector has room for the values, aligned for any type.
                    unsafe { storage.store(isa, values, memory.as_mut_ptr().cast(), 0, 1) };
                    memory
                };
                let x: Vec<f32> = (0..images * rows * columns).map(|i| (i % 101) as f32 - 50.0).collect();
                let y: Vec<f32> = (0..images * count).map(|i| (i % 67) as f32).collect();
                let memory = [write(&x), write(&y)];
                let addresses = [memory[0].as_ptr().cast(), memory[1].as_ptr().cast()];
                for threads in [1, 3] {
                    let mut out = write(&vec![-77.0; images * (count + 10)]);
                    let mut got = vec![0f32; images * (count + 10)];
                    // SAFETY: the vectors have as many elements as the views.
                    unsafe {
                        kernel.run(isa, &Pool::new(threads), &addresses[..operands], out.as_mut_ptr().cast());
                        storage.load(isa, out.as_ptr().cast(), 0, 1, &mut got);
                    }
                    for (i, got) in got.into_iter().enumerate() {
                        let (of, at) = (i / (count + 10), i % (count + 10));
                        let (row, column) = (at / (columns * wide), at % (columns * wide));
                        let mut want = -77.0;
                        if at < count {
                            want = x[(of * rows + row / tall) * columns + column / wide];
                            if operands == 2 {
                                want += y[of * count + at];
                            }
                        }
                        assert_eq!(got, want, "{isa}: {storage:?} {mode} of {dims:?}, {threads} threads, at {i}");
                    }
                }
            }
        }
    }

    #[test]
    fn counting_follows_the_dimensions() {
        let pool = Pool::new(2);
        let dims = [3, 5, 700];
        for (axis, compute_type) in [(0, ComputeType::I64), (1, ComputeType::F64), (2, ComputeType::F32)] {
            let identity = Function::new(PointwiseMode::GenIndex, &Parameters::default()).unwrap();
            let steps = (0..3).map(|i| usize::from(i == axis)).collect();
            // The output lies with its first dimension innermost.
            let output = View { storage: Storage::I32, strides: vec![1, 2100, 3] };
            let program = Program::single(compute_type, identity);
            let kernel = PointwiseKernel::new(&program, &dims, &[InputView::Count(steps)], &output);
            let mut out = vec![-1i32; 10_500];
            // SAFETY: the output's span is the vector's length.
            unsafe { kernel.run(Isa::best(), &pool, &[std::ptr::null()], out.as_mut_ptr().cast()) };
            for (n, value) in out.iter().enumerate() {
                assert_eq!(*value as usize, [n % 3, n / 2100, n / 3 % 700][axis], "axis {axis}, place {n}");
            }
        }
    }

    #[test]
    fn copies_of_any_order_of_dimensions_put_every_element_in_its_place() {
        // Extents of the output, packed, for each the dimension of the input that it is, and what is copied at once.
        for (dims, order, kind) in [
            (&[2, 35, 3][..], &[0, 2, 1][..], "squares"),
            (&[2, 3, 35], &[0, 2, 1], "squares"),
            (&[9, 4, 3], &[2, 1, 0], ""),
            (&[2, 5, 3], &[0, 2, 1], ""),
            (&[3, 5, 17, 66], &[0, 2, 3, 1], "squares"),
            (&[9, 4, 20], &[1, 0, 2], "lines"),
            (&[70, 300, 65], &[1, 0, 2], "lines"),
            (&[2, 3, 5, 512], &[2, 0, 1, 3], "lines"),
            (&[2, 3, 16_384], &[1, 0, 2], "lines"),
            (&[2, 3, 16_385], &[1, 0, 2], ""),
            (&[9, 4, 7], &[1, 0, 2], ""),
            (&[70, 129], &[1, 0], "squares"),
            (&[2, 9, 4, 20], &[0, 1, 3, 2], "squares"),
            (&[2, 9, 8, 20], &[0, 1, 3, 2], "squares"),
            (&[600, 100], &[1, 0], "squares"),
            (&[20, 40_000], &[1, 0], "squares"),
            (&[3, 40_000], &[1, 0], "squares"),
            (&[40_000, 3], &[1, 0], "squares"),
        ] {
            let mut input = vec![0; dims.len()];
            let mut step = 1;
            for axis in (0..dims.len()).rev() {
                let at = order.iter().position(|from| *from == axis).unwrap();
                input[at] = step;
                step *= dims[at];
            }
            let output = packed(Storage::F32, dims);
            let view = View { storage: Storage::F32, strides: input.clone() };
            let kernel =
                PointwiseKernel::new(&function(PointwiseMode::Identity), dims, &[InputView::Memory(view)], &output);
            let got = match kernel.copy {
                Some(Copying::Turned(_)) => "squares",
                Some(Copying::Lines) => "lines",
                None => "",
            };
            assert_eq!(got, kind, "{dims:?} of {order:?}");
            let from: Vec<f32> = (0..step).map(|i| i as f32).collect();
            for threads in [1, 3] {
                let mut to = vec![-1f32; step];
                // SAFETY: both vectors have as many elements as the extents say.
                unsafe {
                    let (from, to) = (from.as_ptr().cast(), to.as_mut_ptr().cast());
                    kernel.run(Isa::best(), &Pool::new(threads), &[from], to);
                }
                for (i, got) in to.iter().enumerate() {
                    let place = dims.iter().zip(&output.strides).zip(&input);
                    let want: usize = place.map(|((extent, stride), from)| i / stride % extent * from).sum();
                    assert_eq!(*got, want as f32, "{dims:?} of {order:?} at {i}");
                }
            }
        }
    }

    #[test]
    fn in_place_is_allowed() {
        let pool = Pool::new(2);
        let view = packed(Storage::F32, &[5000]);
        let kernel =
            PointwiseKernel::new(&function(PointwiseMode::Neg), &[5000], &[InputView::Memory(view.clone())], &view);
        let mut values: Vec<f32> = (0..5000).map(|i| i as f32).collect();
        let at = values.as_mut_ptr();
        // SAFETY: 5000 values, and input and output have the same view.
        unsafe { kernel.run(Isa::best(), &pool, &[at.cast_const().cast()], at.cast()) };
        assert!(values.iter().enumerate().all(|(i, v)| *v == -(i as f32)));
    }

    #[test]
    fn narrow_results_are_rounded_whatever_the_threads() {
        let dims = [3, 20_001];
        let x: Vec<f32> = (0..60_003).map(|i| (i % 997) as f32 * 0.0625 - 31.0).collect();
        for (code, scaled) in
            [(Code::E4M3, false), (Code::E5M2, true), (Code::E2M3, false), (Code::E3M2, true), (Code::E2M1, true)]
        {
            // A scale for each row: a half, one, two.
            let scales = [0x7Eu8, 0x7F, 0x80];
            let factor = |i: usize| if scaled { [0.5, 1.0, 2.0][i / 20_001] } else { 1.0 };
            let views = [
                packed(Storage::F32, &dims),
                View { storage: Storage::Code(Code::E8M0), strides: vec![usize::from(scaled), 0] },
            ];
            let inputs = [x.as_ptr().cast(), scales[usize::from(!scaled)..].as_ptr()];
            let output = packed(Storage::Code(code), &dims);
            let kernel =
                PointwiseKernel::new(&function(PointwiseMode::Mul), &dims, &views.map(InputView::Memory), &output);
            for threads in [1, 4] {
                let mut memory = vec![0u8; (x.len() * code.bits() as usize).div_ceil(8)];
                // SAFETY: as many elements as the views have, and three scales.
                unsafe { kernel.run(Isa::best(), &Pool::new(threads), &inputs, memory.as_mut_ptr()) };
                for (i, x) in x.iter().enumerate() {
                    // SAFETY: the vector has as many bits as all elements of x.
                    let got = unsafe { minifloat::read(memory.as_ptr(), i, code.bits()) };
                    assert_eq!(got, code.encode(x * factor(i)), "{code:?}, {threads} threads: element {i}");
                }
            }
        }
    }
}
