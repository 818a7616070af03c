//! Matrix products over the last two dimensions, with element-wise epilogues.
//!
//! Products of floats of up to 32 bits are summed in `f32`, all others in `f64`.

use std::sync::Arc;

use hipdnn_cpu_kernels::few_rows::{self, FewRows};
use hipdnn_cpu_kernels::lines::Lines;
use hipdnn_cpu_kernels::transpose::Transposition;
use hipdnn_cpu_simd::isa::{Isa, Kernel as IsaKernel, Simd, first as first_lanes};
use hipdnn_cpu_simd::scratch::lines;
use hipdnn_cpu_threads::Pool;
use hipdnn_engine_core::Declined;
use hipdnn_engine_core::checks::{check_compute_type, check_type};
use hipdnn_engine_core::ops::NUMBERS;
use hipdnn_engine_kernel::fuse::may_share;
use hipdnn_schemas::{DataType, Graph, Matmul, PointwiseMode, Tensor, TensorUid, Uids};

use super::view::Walk;
use super::{LibraryKernel, LibraryOp, Panels, Preparation, Recipe};
use crate::geometry::broadcast;
use crate::work::{Elementwise, Input, Work};
use hipdnn_cpu_kernels::product::{self, DEPTH, Factor, MAX_COLUMNS, Product, Results, Sink};
use hipdnn_cpu_pointwise::{Arg, Compiled, ComputeType, InputView, SLOTS, Storage, Value, View, copy};

/// Types of the factors, in any mix.
pub const TYPES: &[DataType] =
    &[DataType::Float, DataType::Half, DataType::BFloat16, DataType::Double, DataType::Int8, DataType::UInt8];

/// Compute types that a product may ask for.
pub const COMPUTE: &[DataType] = &[DataType::Float, DataType::Double, DataType::Int32];

/// Matrix product with its epilogue.
#[derive(Clone, Debug)]
pub struct MatmulWork {
    node: Matmul,
    /// Accumulator type.
    pub compute_type: ComputeType,
    /// Epilogue: one of its inputs is the product. The result is its output.
    pub epilogue: Option<Elementwise>,
}

/// Lowers a matrix product.
///
/// # Errors
/// Reason for which the engine declines the node.
pub fn lower(graph: &Graph, index: usize, node: &Matmul) -> Result<Work, Declined> {
    check_compute_type(graph, index, COMPUTE)?;
    check_type(graph, index, "a", node.a, TYPES)?;
    check_type(graph, index, "b", node.b, TYPES)?;
    check_type(graph, index, "c", node.c, NUMBERS)?;
    let single = |uid| matches!(storage(graph.tensor(uid)), Storage::F32 | Storage::F16 | Storage::BF16);
    let compute = graph.nodes()[index].compute_data_type;
    let compute_type = match compute == DataType::Float && [node.a, node.b, node.c].into_iter().all(single) {
        true => ComputeType::F32,
        false => ComputeType::F64,
    };
    Ok(Work::Matmul(MatmulWork { node: node.clone(), compute_type, epilogue: None }))
}

fn storage(tensor: &Tensor) -> Storage {
    Storage::of(tensor.data_type()).expect("the types of the tables have a storage")
}

impl MatmulWork {
    /// Output tensor.
    pub fn output(&self) -> TensorUid {
        self.epilogue.as_ref().map_or(self.node.c, |epilogue| epilogue.output)
    }

    /// Input tensors.
    pub fn reads(&self) -> Uids {
        let others = self.epilogue.iter().flat_map(Elementwise::tensors).filter(|uid| *uid != self.node.c);
        [self.node.a, self.node.b].into_iter().chain(others).collect()
    }

    /// The right side, if it is wanted prepared where its contents are constant.
    pub fn constant(&self, graph: &Graph) -> Option<TensorUid> {
        self.node(graph).recipe.constant().map(|_| self.node.b)
    }

    /// The work as a node.
    pub fn node(&self, graph: &Graph) -> LibraryOp {
        let mut inputs = vec![Some(self.node.a), Some(self.node.b)];
        let [a, b] = [self.node.a, self.node.b].map(|uid| graph.tensor(uid));
        let output = graph.tensor(self.output());
        let epilogue = self.epilogue.as_ref().map(|epilogue| {
            let sources = epilogue.inputs.iter().map(|input| match input {
                Input::Tensor(uid) if *uid == self.node.c => Source::Product,
                Input::Tensor(uid) => {
                    inputs.push(Some(*uid));
                    let tensor = graph.tensor(*uid);
                    let view = View { storage: storage(tensor), strides: broadcast(tensor, output) };
                    Source::Other(Some(inputs.len() - 1), InputView::Memory(view))
                }
                Input::Index(axis) => {
                    let steps = (0..output.rank()).map(|i| usize::from(i == *axis)).collect();
                    Source::Other(None, InputView::Count(steps))
                }
            });
            Epilogue {
                sources: sources.collect(),
                program: epilogue.program.compile().expect("fused programs are as large as rows allow"),
                round: storage(graph.tensor(self.node.c)),
                terms: terms(epilogue, self.node.c).unwrap_or_default(),
                may_share: epilogue.tensors().any(|uid| may_share(graph, uid, epilogue.output)),
            }
        });
        LibraryOp {
            name: "matmul",
            inputs,
            outputs: vec![Some(self.output())],
            recipe: Arc::new(Plan::new(self.compute_type, a, b, output, epilogue)),
        }
    }
}

/// Epilogue of a product.
#[derive(Clone, Debug)]
struct Epilogue {
    program: Compiled,
    sources: Vec<Source>,
    /// Type of the tensor that the product would have been.
    round: Storage,
    /// Terms that the product is combined with, one after the other, if the program is nothing else.
    terms: Vec<Term>,
    /// True if a caller may have the result at the place of an operand.
    may_share: bool,
}

/// Arithmetic of a term: sums as for biases, residuals and masks, factors as for the scale of scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arithmetic {
    Add,
    Multiply,
    /// Division by the term.
    Divide,
}

/// Input that is combined with what was computed so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Term {
    arithmetic: Arithmetic,
    /// Its position among the epilogue's sources.
    source: usize,
}

/// Maximum number of terms that are combined with a product without a program.
const TERMS: usize = 3;

/// Terms that an epilogue combines with the product, in order, if it does nothing else.
fn terms(epilogue: &Elementwise, product: TensorUid) -> Option<Vec<Term>> {
    let is_product = |input: &Input| matches!(input, Input::Tensor(uid) if *uid == product);
    let mut value = Arg::Input(epilogue.inputs.iter().position(is_product)?);
    let mut terms = Vec::new();
    for (at, step) in epilogue.program.steps.iter().enumerate() {
        let [one, other] = step.args[..] else { return None };
        let (operand, is_first) = match (one == value, other == value) {
            (true, false) => (other, true),
            (false, true) => (one, false),
            _ => return None,
        };
        let arithmetic = match step.function.mode() {
            PointwiseMode::Add => Arithmetic::Add,
            PointwiseMode::Mul => Arithmetic::Multiply,
            PointwiseMode::Div if is_first => Arithmetic::Divide,
            _ => return None,
        };
        let Arg::Input(source) = operand else { return None };
        if step.round.is_some() {
            return None;
        }
        terms.push(Term { arithmetic, source });
        value = Arg::Step(at);
    }
    (terms.len() <= TERMS).then_some(terms)
}

/// Values of a term in memory.
#[derive(Clone, Copy)]
struct Operand {
    arithmetic: Arithmetic,
    from: *const f32,
    /// Stride between rows.
    row: usize,
    /// True if a row has one value for every column, false if the columns' values lie side by side.
    is_one: bool,
}

impl Operand {
    const NONE: Operand = Operand { arithmetic: Arithmetic::Add, from: std::ptr::null(), row: 0, is_one: true };
}

/// Rows of values combined with operands: `to[row·pitch + i] = from[row·step + i] ∘ operands`; `from` may be `to`.
struct Combined<'a> {
    operands: &'a [Operand],
    from: *const f32,
    step: usize,
    to: *mut f32,
    pitch: usize,
    rows: usize,
    columns: usize,
}

impl Combined<'_> {
    /// Combines.
    ///
    /// # Safety
    /// All values can be read, those of the operands too, and their places in `to` be written.
    unsafe fn run(self, isa: Isa) {
        isa.run(CombineKernel(self));
    }
}

/// [`Combined`] whose memory its maker has been promised.
struct CombineKernel<'a>(Combined<'a>);

impl CombineKernel<'_> {
    /// Combines the values of a row from `i` on that `load` gives.
    ///
    /// # Safety
    /// `load` is for addresses of columns from `i` on.
    #[inline(always)]
    unsafe fn at<S: Simd>(&self, s: S, row: usize, i: usize, load: impl Fn(*const f32) -> S::V) -> S::V {
        let mut value = load(self.0.from.wrapping_add(row * self.0.step + i));
        for operand in self.0.operands {
            let from = operand.from.wrapping_add(row * operand.row);
            let other = match operand.is_one {
                // SAFETY: the row's value, which the maker has been promised.
                true => s.splat(unsafe { *from }),
                false => load(from.wrapping_add(i)),
            };
            value = match operand.arithmetic {
                Arithmetic::Add => s.add(value, other),
                Arithmetic::Multiply => s.mul(value, other),
                Arithmetic::Divide => s.div(value, other),
            };
        }
        value
    }
}

impl IsaKernel for CombineKernel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Combined { to, pitch, rows, columns, .. } = self.0;
        for row in 0..rows {
            let to = to.wrapping_add(row * pitch);
            let mut i = 0;
            while i < columns {
                let lanes = S::LANES.min(columns - i);
                let mask = s.mask(first_lanes(lanes));
                // SAFETY: the mask's lanes are values of the row, which the maker has been promised.
                unsafe {
                    if lanes == S::LANES {
                        s.store(to.add(i), self.at(s, row, i, |from| s.load(from)));
                    } else {
                        s.store_first(lanes, to.add(i), self.at(s, row, i, |from| s.load_masked(mask, from)));
                    }
                }
                i += lanes;
            }
        }
    }
}

/// Input of an epilogue.
#[derive(Clone, Debug)]
enum Source {
    /// The product.
    Product,
    /// Another tensor: its position among the node's inputs, and its strides along the output.
    Other(Option<usize>, InputView),
}

/// Layout of a matrix: the offset of each of a batch, and the strides of rows and columns.
#[derive(Clone, Debug)]
struct Matrix {
    storage: Storage,
    batch: Walk,
    row: usize,
    column: usize,
}

impl Matrix {
    /// Layout of `tensor` along the batches of `output`.
    fn new(tensor: &Tensor, output: &Tensor) -> Matrix {
        let batches = output.rank() - 2;
        let stride = |axis: usize| if tensor.dims()[axis] == 1 { 0 } else { tensor.strides()[axis] };
        let pairs = (0..batches).map(|axis| (output.dims()[axis], stride(axis)));
        Matrix {
            storage: storage(tensor),
            batch: Walk::apart(pairs),
            row: tensor.strides()[batches],
            column: tensor.strides()[batches + 1],
        }
    }
}

#[derive(Clone, Debug)]
struct Plan {
    compute_type: ComputeType,
    isa: Isa,
    a: Matrix,
    b: Matrix,
    output: Matrix,
    /// True if the right side is one matrix for all batches.
    one_right: bool,
    /// Extents of the batches, for the epilogue's operands.
    batches: Vec<usize>,
    /// Number of rows, of columns, and of products of a sum.
    sizes: [usize; 3],
    epilogue: Option<Epilogue>,
}

impl Plan {
    fn new(compute_type: ComputeType, a: &Tensor, b: &Tensor, output: &Tensor, epilogue: Option<Epilogue>) -> Plan {
        let batches = output.rank() - 2;
        Plan {
            compute_type,
            isa: Isa::best(),
            a: Matrix::new(a, output),
            b: Matrix::new(b, output),
            output: Matrix::new(output, output),
            one_right: b.dims()[..batches].iter().all(|extent| *extent == 1),
            batches: output.dims()[..batches].to_vec(),
            sizes: [output.dims()[batches], output.dims()[batches + 1], a.dims()[batches + 1]],
            epilogue,
        }
    }

    fn batch(&self) -> usize {
        self.batches.iter().product()
    }

    /// Applies the epilogue to values of a row of the product and stores them. `rows` is room for [`SLOTS`] rows of
    /// `pitch` values.
    ///
    /// # Safety
    /// The place is in the result and nobody else writes it; the addresses are the node's.
    unsafe fn put<T: Value>(
        &self,
        addresses: &Addresses<'_>,
        [batch, row, column]: [usize; 3],
        values: &mut [T],
        rows: &mut [T],
        pitch: usize,
    ) {
        let len = values.len();
        let mut values = values;
        if let Some(epilogue) = &self.epilogue {
            if !matches!((epilogue.round, self.compute_type), (Storage::F32, ComputeType::F32) | (Storage::F64, _)) {
                T::round(epilogue.round, self.isa, values);
            }
            let product = values;
            values = epilogue.program.run(self.isa, rows, pitch, len, |input, to| match &epilogue.sources[input] {
                Source::Product => copy(product, to),
                Source::Other(place, view) => {
                    let offset = self.offset([batch, row, column], view.strides());
                    let of_column = view.strides().last().expect("two dimensions at least");
                    match (view, place) {
                        (InputView::Memory(view), Some(place)) => {
                            let address = addresses.inputs[*place];
                            // SAFETY: the operand is broadcast to the output, in which the place is.
                            unsafe { T::load(view.storage, self.isa, address, offset, *of_column, to) };
                        }
                        _ => to.iter_mut().enumerate().for_each(|(i, v)| *v = T::of(offset + i * of_column)),
                    }
                }
            });
        }
        let (to, offset) = (&self.output, self.place([batch, row, column]));
        // SAFETY: the caller's promise.
        unsafe { T::store(to.storage, self.isa, values, addresses.output, offset, to.column) };
    }
}

impl Plan {
    /// [`Plan::put`] of values in `f32`.
    ///
    /// # Safety
    /// As there.
    unsafe fn put_single(
        &self,
        addresses: &Addresses<'_>,
        [batch, row, column]: [usize; 3],
        values: &mut [f32],
        rows: &mut [f32],
        pitch: usize,
    ) {
        let at = [batch, row, column];
        // SAFETY: the caller's promise.
        unsafe {
            if !self.combine(addresses, at, (values.as_ptr(), 0), [1, values.len()]) {
                self.put(addresses, at, values, rows, pitch);
            }
        }
    }

    /// True if sums are computed in the result, where an epilogue then combines them with its terms: none of these may lie
    /// there.
    fn is_in_place(&self) -> bool {
        let to = &self.output;
        let single = self.compute_type == ComputeType::F32 && to.storage == Storage::F32 && to.column == 1;
        single && self.epilogue.as_ref().is_none_or(|epilogue| !epilogue.may_share && epilogue.in_memory(to).is_some())
    }

    /// Offset of a place of the output in it.
    fn place(&self, [batch, row, column]: [usize; 3]) -> usize {
        let to = &self.output;
        to.batch.offset(batch) + row * to.row + column * to.column
    }

    /// Address of a place of a result of `f32`, and the stride between rows.
    fn result(&self, addresses: &Addresses<'_>, at: [usize; 3]) -> (*mut f32, usize) {
        (addresses.output.cast::<f32>().wrapping_add(self.place(at)), self.output.row)
    }

    /// Combines rows and columns of sums, which are those of the result from a place on, with the epilogue's terms and stores them
    /// there; false, and nothing is done, if the epilogue is more or there is none. `sums`: address, which may be the result's,
    /// and stride between rows.
    ///
    /// # Safety
    /// The sums can be read, the places are in the result and nobody else writes them; the addresses are the node's.
    unsafe fn combine(
        &self,
        addresses: &Addresses<'_>,
        at: [usize; 3],
        (from, step): (*const f32, usize),
        [rows, columns]: [usize; 2],
    ) -> bool {
        let Some(epilogue) = &self.epilogue else { return false };
        let Some(places) = epilogue.in_memory(&self.output) else { return false };
        let mut operands = [Operand::NONE; TERMS];
        let terms = epilogue.terms.iter().zip(places.into_iter().flatten());
        for (operand, (term, (place, strides))) in operands.iter_mut().zip(terms) {
            let [.., row, column] = strides else { unreachable!("two dimensions at least") };
            let from = addresses.inputs[place].cast::<f32>().wrapping_add(self.offset(at, strides));
            *operand = Operand { arithmetic: term.arithmetic, from, row: *row, is_one: *column == 0 };
        }
        let operands = &operands[..epilogue.terms.len()];
        let (to, pitch) = self.result(addresses, at);
        // SAFETY: the caller's promise; operands are broadcast to the output.
        unsafe { Combined { operands, from, step, to, pitch, rows, columns }.run(self.isa) };
        true
    }

    /// Offset of a place of the output in an operand that is broadcast to it.
    fn offset(&self, [batch, row, column]: [usize; 3], strides: &[usize]) -> usize {
        let [outer @ .., of_row, of_column] = strides else { unreachable!("two dimensions at least") };
        let (mut offset, mut rest) = (row * of_row + column * of_column, batch);
        for (extent, stride) in self.batches.iter().zip(outer).rev() {
            offset += rest % extent * stride;
            rest /= extent;
        }
        offset
    }
}

/// Position of an operand among the inputs, and its strides along the output.
type Place<'a> = (usize, &'a [usize]);

impl Epilogue {
    /// Position among the inputs, and strides, of each term, if the epilogue is nothing else and all of it, and the
    /// output, is `f32` with columns side by side, or one value for all columns.
    fn in_memory(&self, output: &Matrix) -> Option<[Option<Place<'_>>; TERMS]> {
        let mut places = [None; TERMS];
        let singles = self.round == Storage::F32 && output.storage == Storage::F32 && output.column == 1;
        if !singles || self.terms.is_empty() {
            return None;
        }
        for (to, term) in places.iter_mut().zip(&self.terms) {
            let Source::Other(Some(place), InputView::Memory(view)) = &self.sources[term.source] else { return None };
            if view.storage != Storage::F32 || !matches!(view.strides.last(), Some(0 | 1)) {
                return None;
            }
            *to = Some((*place, &view.strides[..]));
        }
        Some(places)
    }
}

impl Recipe for Plan {
    fn kernel(&self, threads: usize) -> Box<dyn LibraryKernel> {
        match (self.compute_type, Few::serves(self)) {
            (ComputeType::F32, Some(by_rows)) => Box::new(Few::new(self, threads, by_rows)),
            (ComputeType::F32, None) => Box::new(Single::new(self, threads, false)),
            _ => Box::new(Wide(self.clone())),
        }
    }

    fn constant(&self) -> Option<usize> {
        // Columns, and the rows that a single one is multiplied with, are read as fast where they lie as in panels.
        let is_in_order = Few::serves(self).is_some_and(|by_rows| !by_rows || self.sizes[0] == 1);
        (self.compute_type == ComputeType::F32 && self.one_right && !is_in_order).then_some(RIGHT)
    }

    fn kernel_of_constant(&self, threads: usize) -> Box<dyn LibraryKernel> {
        match self.constant() {
            Some(_) => Box::new(Single::new(self, threads, true)),
            None => self.kernel(threads),
        }
    }
}

/// Position of the right side among the inputs.
const RIGHT: usize = 1;

/// Addresses of a run, shared with the threads that work on it.
struct Addresses<'a> {
    inputs: &'a [*const u8],
    output: *mut u8,
}

// SAFETY: the inputs are only read, and each element of the output is written by one thread.
unsafe impl Sync for Addresses<'_> {}

/// Kernel in `f32`.
#[derive(Debug)]
struct Single {
    plan: Plan,
    product: Product,
    /// True if the right side comes in panels.
    prepared: bool,
}

impl Single {
    fn new(plan: &Plan, threads: usize, prepared: bool) -> Single {
        let results = match &plan.epilogue {
            _ if plan.is_in_place() => Results::InPlace,
            Some(_) => Results::Rows { spare: SLOTS * MAX_COLUMNS },
            None => Results::Rows { spare: 0 },
        };
        let product = Product::new(plan.isa, threads, plan.batch(), plan.sizes, results);
        Single { plan: plan.clone(), product, prepared }
    }

    /// The right side at an address, not in panels.
    fn right(&self, address: *const u8) -> Side<'_> {
        let Plan { b, isa, .. } = &self.plan;
        Side { isa: *isa, matrix: b, sum: b.row, result: b.column, address, panels: None }
    }
}

impl LibraryKernel for Single {
    fn scratch_bytes(&self) -> usize {
        self.product.scratch_bytes()
    }

    fn preparation(&self) -> Option<Preparation> {
        let Plan { b, isa, sizes: [_, columns, depth], .. } = &self.plan;
        let width = product::width(*isa);
        let form = Panels { storage: b.storage, extents: [*depth, *columns], strides: [b.row, b.column], width };
        let len = columns.next_multiple_of(width) * depth;
        self.prepared.then_some(Preparation { input: RIGHT, form, len })
    }

    unsafe fn prepare(&self, from: *const u8, to: &mut [f32], pool: &Pool) {
        let [_, columns, depth] = self.plan.sizes;
        let width = product::width(self.plan.isa);
        assert_eq!(to.len(), columns.next_multiple_of(width) * depth, "prepared values");
        let work = &(self.right(from), Prepared(to.as_mut_ptr()));
        pool.run(columns.div_ceil(width), &|panel| {
            let (right, to) = (&work.0, &work.1);
            let count = width.min(columns - panel * width);
            let to = to.0.wrapping_add(panel * width * depth);
            for k in (0..depth).step_by(DEPTH) {
                let steps = DEPTH.min(depth - k);
                // SAFETY: the places are the matrix's, for which the caller answers; each panel is written by one
                // thread.
                unsafe {
                    if count < width {
                        to.add(k * width).write_bytes(0, steps * width);
                    }
                    right.gather(0, (k, steps), (panel * width, count), width, to.add(k * width));
                }
            }
        });
    }

    unsafe fn run(&self, pool: &Pool, inputs: &[*const u8], outputs: &[*mut u8], scratch: *mut u8) {
        let Plan { a, isa, .. } = &self.plan;
        let a = Side { isa: *isa, matrix: a, sum: a.column, result: a.row, address: inputs[0], panels: None };
        let panels = self.prepared.then(|| inputs[RIGHT].cast::<f32>());
        let b = Side { panels, ..self.right(inputs[RIGHT]) };
        let sink = Rows { plan: &self.plan, addresses: Addresses { inputs, output: outputs[0] } };
        // SAFETY: the caller answers for the tensors and the scratch memory.
        unsafe { self.product.run(pool, &a, &b, &sink, scratch) };
    }
}

/// Address of prepared values, of which each thread writes its own.
struct Prepared(*mut f32);

// SAFETY: threads write panels of their own.
unsafe impl Sync for Prepared {}

/// Matrix as a factor: strides along the sum and along the result.
struct Side<'a> {
    isa: Isa,
    matrix: &'a Matrix,
    sum: usize,
    result: usize,
    address: *const u8,
    /// The matrix in panels, if it was prepared.
    panels: Option<*const f32>,
}

// SAFETY: the tensor is only read.
unsafe impl Sync for Side<'_> {}

impl Factor for Side<'_> {
    unsafe fn in_place(&self, batch: usize, k: usize, j: usize) -> Option<(*const f32, [usize; 2])> {
        if self.matrix.storage != Storage::F32 || self.panels.is_some() {
            return None;
        }
        let offset = self.matrix.batch.offset(batch) + k * self.sum + j * self.result;
        Some((self.address.cast::<f32>().wrapping_add(offset), [self.sum, self.result]))
    }

    fn panels(&self) -> Option<*const f32> {
        self.panels
    }

    unsafe fn gather(&self, batch: usize, k: (usize, usize), j: (usize, usize), width: usize, to: *mut f32) {
        let storage = self.matrix.storage;
        let base = self.matrix.batch.offset(batch) + k.0 * self.sum + j.0 * self.result;
        let values = self.address.cast::<f32>().wrapping_add(base);
        // SAFETY: the places are the matrix's, and `to` takes `width` values for each place of the sum.
        unsafe {
            if storage == Storage::F32 && self.result == 1 {
                return Lines { from: values, step: self.sum, count: j.1, to, out: width, lines: k.1 }.run(self.isa);
            }
            if storage == Storage::F32 && self.sum == 1 {
                let (from, across, rows, columns) = (values, self.result, j.1, k.1);
                return Transposition { from, across, to, out: width, rows, columns }.run(self.isa);
            }
            if self.result <= self.sum || k.1 == 1 {
                for i in 0..k.1 {
                    let to = std::slice::from_raw_parts_mut(to.add(i * width), j.1);
                    storage.load(self.isa, self.address, base + i * self.sum, self.result, to);
                }
                return;
            }
            let mut values = [0f32; DEPTH];
            let values = &mut values[..k.1];
            for lane in 0..j.1 {
                storage.load(self.isa, self.address, base + lane * self.result, self.sum, values);
                for (i, value) in values.iter().enumerate() {
                    to.add(i * width + lane).write(*value);
                }
            }
        }
    }
}

/// Few rows times a matrix whose columns, or long rows, are contiguous: it is read once, in order.
#[derive(Debug)]
struct Few {
    plan: Plan,
    /// True if rows of the matrix are contiguous.
    by_rows: bool,
    /// Number of columns of a unit.
    columns: usize,
}

/// Number of columns of a unit where columns are contiguous, and of those that are finished together.
const FEW_COLUMNS: usize = 64;

/// Limits of the columns of a unit where rows are contiguous: runs of memory are long, and the sums stay in the first-level cache.
const LONG_ROWS: std::ops::RangeInclusive<usize> = 256..=1024;

/// Limit of a unit's sums there.
const SUMS: usize = few_rows::MOST_ROWS * 512;

/// Number of values of a matrix from which on it comes from outer caches, so that reading it in order makes up for sums in memory.
const LARGE: usize = 1 << 18;

impl Few {
    /// True if the matrix is read by rows, false if by columns; `None` if the product is another kernel's.
    fn serves(plan: &Plan) -> Option<bool> {
        let [rows, columns, depth] = plan.sizes;
        if rows == 0 || depth < 16 || plan.b.storage != Storage::F32 {
            return None;
        }
        let is_few = rows <= few_rows::ROWS;
        if plan.b.row == 1 {
            return is_few.then_some(false);
        }
        let is_long = plan.b.column == 1 && columns >= *LONG_ROWS.start();
        let is_large = rows <= few_rows::MOST_ROWS && depth * columns >= LARGE;
        (is_long && (is_few || is_large)).then_some(true)
    }

    fn new(plan: &Plan, threads: usize, by_rows: bool) -> Few {
        let [rows, columns, _] = plan.sizes;
        let most = (SUMS / rows / FEW_COLUMNS * FEW_COLUMNS).min(*LONG_ROWS.end());
        let columns = if by_rows {
            // The same number of units for each thread, if they are long enough.
            let units = columns.div_ceil(most).next_multiple_of(threads.max(1)).max(1);
            columns.div_ceil(units).next_multiple_of(FEW_COLUMNS).clamp(*LONG_ROWS.start(), most)
        } else {
            FEW_COLUMNS
        };
        Few { plan: plan.clone(), by_rows, columns }
    }

    /// Values of a row of the left side in scratch memory.
    fn pitch(&self) -> usize {
        self.plan.sizes[2].next_multiple_of(16)
    }
}

impl LibraryKernel for Few {
    fn scratch_bytes(&self) -> usize {
        lines(4 * self.plan.batch() * self.plan.sizes[0] * self.pitch())
    }

    unsafe fn run(&self, pool: &Pool, inputs: &[*const u8], outputs: &[*mut u8], scratch: *mut u8) {
        let plan = &self.plan;
        let [rows, columns, depth] = plan.sizes;
        let pitch = self.pitch();
        let left = scratch.cast::<f32>();
        for batch in 0..plan.batch() {
            for row in 0..rows {
                let from = plan.a.batch.offset(batch) + row * plan.a.row;
                // SAFETY: the row is the left side's, and the scratch memory has a place for it.
                unsafe {
                    let to = std::slice::from_raw_parts_mut(left.add((batch * rows + row) * pitch), depth);
                    plan.a.storage.load(plan.isa, inputs[0], from, plan.a.column, to);
                }
            }
        }
        let work = &FewWork { left, addresses: Addresses { inputs, output: outputs[0] } };
        let across = columns.div_ceil(self.columns);
        pool.run(plan.batch() * across, &|unit| {
            let (batch, first) = (unit / across, unit % across * self.columns);
            // SAFETY: the places are this unit's; the caller answers for the tensors.
            unsafe {
                if self.by_rows {
                    self.unit(work, batch, first, &mut [0f32; SUMS]);
                } else {
                    self.unit(work, batch, first, &mut [0f32; few_rows::ROWS * FEW_COLUMNS]);
                }
            }
        });
    }
}

impl Few {
    /// Computes the results of a unit's columns, with room for their sums.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`], and nobody else computes these results.
    unsafe fn unit(&self, work: &FewWork<'_>, batch: usize, first: usize, sums: &mut [f32]) {
        let plan = &self.plan;
        let [rows, columns, depth] = plan.sizes;
        let count = self.columns.min(columns - first);
        let stride = if self.by_rows { plan.b.row } else { plan.b.column };
        let offset = plan.b.batch.offset(batch) + first * plan.b.column;
        let sums = &mut sums[..rows * count];
        let product = FewRows {
            a: work.left.cast_const().wrapping_add(batch * rows * self.pitch()),
            pitch: self.pitch(),
            b: work.addresses.inputs[RIGHT].cast::<f32>().wrapping_add(offset),
            stride,
            rows,
            count,
            depth,
            sums: &mut *sums,
            sums_pitch: count,
        };
        // SAFETY: the left side was gathered, and the columns are the right side's, contiguous as the form says.
        unsafe { if self.by_rows { product.by_rows(plan.isa) } else { product.by_columns(plan.isa) } };
        let mut spare = [0f32; SLOTS * FEW_COLUMNS];
        for (row, sums) in sums.chunks_exact_mut(count).enumerate() {
            for (part, sums) in sums.chunks_mut(FEW_COLUMNS).enumerate() {
                let column = first + part * FEW_COLUMNS;
                // SAFETY: the caller's promise.
                unsafe { plan.put_single(&work.addresses, [batch, row, column], sums, &mut spare, FEW_COLUMNS) };
            }
        }
    }
}

/// Shared state of the threads of a run of [`Few`].
struct FewWork<'a> {
    left: *mut f32,
    addresses: Addresses<'a>,
}

// SAFETY: the left side is only read once units run.
unsafe impl Sync for FewWork<'_> {}

struct Rows<'a> {
    plan: &'a Plan,
    addresses: Addresses<'a>,
}

impl Sink for Rows<'_> {
    unsafe fn put(&self, batch: usize, row: usize, column: usize, values: &mut [f32], spare: &mut [f32]) {
        // SAFETY: the caller's promise.
        unsafe { self.plan.put_single(&self.addresses, [batch, row, column], values, spare, MAX_COLUMNS) };
    }

    unsafe fn in_place(&self, batch: usize, row: usize, column: usize) -> (*mut f32, usize) {
        self.plan.result(&self.addresses, [batch, row, column])
    }

    unsafe fn finish(&self, batch: usize, (row, rows): (usize, usize), (column, columns): (usize, usize)) {
        let at = [batch, row, column];
        let (sums, pitch) = self.plan.result(&self.addresses, at);
        // SAFETY: the caller's promise. Without an epilogue the sums are the results.
        unsafe { self.plan.combine(&self.addresses, at, (sums, pitch), [rows, columns]) };
    }
}

/// Kernel in `f64`.
#[derive(Debug)]
struct Wide(Plan);

/// Number of rows and columns that are computed together, and of products that are summed between two loads of the left
/// side.
const WIDE_ROWS: usize = 8;
const WIDE_COLUMNS: usize = 128;
const WIDE_DEPTH: usize = 64;

impl LibraryKernel for Wide {
    unsafe fn run(&self, pool: &Pool, inputs: &[*const u8], outputs: &[*mut u8], _: *mut u8) {
        let plan = &self.0;
        let addresses = Addresses { inputs, output: outputs[0] };
        let addresses = &addresses;
        let [rows, columns, _] = plan.sizes;
        let (down, across) = (rows.div_ceil(WIDE_ROWS), columns.div_ceil(WIDE_COLUMNS));
        pool.run(plan.batch() * down * across, &|unit| {
            let (column, rest) = (unit % across * WIDE_COLUMNS, unit / across);
            let (row, batch) = (rest % down * WIDE_ROWS, rest / down);
            // SAFETY: the block is within the result.
            unsafe { self.block(addresses, batch, row, column) };
        });
    }
}

impl Wide {
    /// # Safety
    /// As [`LibraryKernel::run`]; the place is in the result, and blocks are computed by one thread each.
    unsafe fn block(&self, addresses: &Addresses<'_>, batch: usize, row: usize, column: usize) {
        let Plan { a, b, sizes: [rows, columns, depth], isa, .. } = &self.0;
        let (rows, columns) = (WIDE_ROWS.min(rows - row), WIDE_COLUMNS.min(columns - column));
        let mut sums = [[0f64; WIDE_COLUMNS]; WIDE_ROWS];
        let mut left = [[0f64; WIDE_DEPTH]; WIDE_ROWS];
        let mut right = [0f64; WIDE_COLUMNS];
        let (from_a, from_b) = (a.batch.offset(batch), b.batch.offset(batch));
        for k in (0..*depth).step_by(WIDE_DEPTH) {
            let steps = WIDE_DEPTH.min(depth - k);
            for (i, left) in left[..rows].iter_mut().enumerate() {
                let offset = from_a + (row + i) * a.row + k * a.column;
                // SAFETY: the places are the left matrix's.
                unsafe { a.storage.load_wide(addresses.inputs[0], offset, a.column, &mut left[..steps]) };
            }
            for step in 0..steps {
                let right = &mut right[..columns];
                let offset = from_b + (k + step) * b.row + column * b.column;
                // SAFETY: the places are the right matrix's.
                unsafe { b.storage.load_wide(addresses.inputs[1], offset, b.column, right) };
                for (sums, left) in sums[..rows].iter_mut().zip(&left) {
                    isa.run(AddScaled(&mut sums[..columns], right, left[step]));
                }
            }
        }
        let mut spare = [0f64; SLOTS * WIDE_COLUMNS];
        for (i, sums) in sums[..rows].iter_mut().enumerate() {
            let at = [batch, row + i, column];
            // SAFETY: the caller's promise.
            unsafe { self.0.put(addresses, at, &mut sums[..columns], &mut spare, WIDE_COLUMNS) };
        }
    }
}

/// Multiply-add `a += b · c`.
struct AddScaled<'a>(&'a mut [f64], &'a [f64], f64);

impl IsaKernel for AddScaled<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (sum, value) in self.0.iter_mut().zip(self.1) {
            *sum += value * self.2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::testing::{Bench, noise, unit};
    use DataType::{BFloat16, Double, Float, Half, Int8, Int32, UInt8};
    use hipdnn_schemas::{Operation, TensorDef};

    fn node() -> Operation {
        Operation::Matmul(Matmul { a: TensorUid(0), b: TensorUid(1), c: TensorUid(2) })
    }

    /// Checks a product. `types` are those of a, b and c; `transposed`: strides are those of transposed matrices;
    /// `apart`: they are twice those of packed ones.
    fn check(what: &str, dims: [&[i64]; 3], types: [DataType; 3], transposed: [bool; 3], apart: bool) {
        let tensors: Vec<TensorDef> = (0..3)
            .map(|i| {
                let tensor = TensorDef::new(i as i64, types[i], dims[i]);
                let (rank, mut strides) = (dims[i].len(), tensor.strides.clone());
                if transposed[i] {
                    (strides[rank - 2], strides[rank - 1]) = (1, dims[i][rank - 2]);
                }
                let scale = if apart { 2 } else { 1 };
                tensor.strided(&strides.iter().map(|s| s * scale).collect::<Vec<_>>())
            })
            .collect();
        let mut bench = Bench::new(node(), tensors);
        let whole = |i: usize| matches!(types[i], Int8 | UInt8);
        let value = |which: usize, i: usize| match types[which] {
            Int8 => (noise(i + which * 7919) * 100.0).round(),
            UInt8 => (noise(i).abs() * 200.0).round(),
            _ => noise(i + which * 7919),
        };
        let a = bench.fill(0, |i| value(0, i));
        let b = bench.fill(1, |i| value(1, i));
        let dims = dims.map(|dims| dims.iter().map(|d| *d as usize).collect::<Vec<_>>());
        let batches = dims[2].len() - 2;
        let [rows, columns, depth] = [dims[2][batches], dims[2][batches + 1], dims[0][batches + 1]];
        let batch_of = |side: usize, batch: usize| {
            let (mut index, mut step, mut rest) = (0, 1, batch);
            for axis in (0..batches).rev() {
                let at = rest % dims[2][axis];
                rest /= dims[2][axis];
                index += if dims[side][axis] == 1 { 0 } else { at * step };
                step *= dims[side][axis];
            }
            index
        };
        let runs = [1, 3].into_iter().flat_map(|threads| [Some(bench.run(threads)), bench.run_prepared(threads)]);
        for run in runs.flatten() {
            for (n, got) in run[&2].iter().enumerate() {
                let (batch, i, j) = (n / (rows * columns), n / columns % rows, n % columns);
                let product = |k: usize| {
                    let x = a[(batch_of(0, batch) * rows + i) * depth + k];
                    x * b[(batch_of(1, batch) * depth + k) * columns + j]
                };
                let value: f64 = (0..depth).map(product).sum();
                let magnitude: f64 = (0..depth).map(|k| product(k).abs()).sum();
                // n products summed in any order: within (n + 1)·u·Σ|x·y|; whole numbers are exact. Then the rounding.
                let u = if types.contains(&Double) || whole(0) { f64::EPSILON } else { 2f64.powi(-24) };
                let error = (depth + 1) as f64 * u * magnitude;
                let bound = match types[2] {
                    Int32 => 0.5,
                    Double => error + f64::EPSILON * value.abs(),
                    to => error + unit(to).0 * (value.abs() + error) + unit(to).1,
                };
                assert!(
                    (got - value).abs() <= bound,
                    "{what} {types:?} at {n}: expected {value} ± {bound:e}, got {got}"
                );
            }
        }
    }

    #[test]
    fn products_are_what_loops_give() {
        type Case<'a> = (&'a str, [&'a [i64]; 3]);
        let cases: [Case<'_>; 11] = [
            ("one element", [&[1, 1], &[1, 1], &[1, 1]]),
            ("odd", [&[5, 7], &[7, 3], &[5, 3]]),
            ("a row", [&[1, 300], &[300, 130], &[1, 130]]),
            ("a row of several units", [&[1, 40], &[40, 1300], &[1, 1300]]),
            ("some rows of a large matrix", [&[6, 300], &[300, 900], &[6, 900]]),
            ("few rows in batches", [&[2, 3, 19], &[2, 19, 300], &[2, 3, 300]]),
            ("a column", [&[33, 300], &[300, 1], &[33, 1]]),
            ("long", [&[3, 3000], &[3000, 4], &[3, 4]]),
            ("batches", [&[3, 17, 20], &[3, 20, 35], &[3, 17, 35]]),
            ("a batch of one side only", [&[2, 3, 9, 8], &[1, 3, 8, 10], &[2, 3, 9, 10]]),
            ("both broadcast", [&[2, 1, 4, 5], &[1, 3, 5, 6], &[2, 3, 4, 6]]),
        ];
        for (what, dims) in cases {
            for transposed in [[false; 3], [true, false, false], [false, true, false], [true; 3]] {
                check(what, dims, [Float; 3], transposed, false);
            }
            check(what, dims, [Float; 3], [false; 3], true);
            for types in [
                [Half; 3],
                [BFloat16; 3],
                [Half, BFloat16, Float],
                [Double; 3],
                [Float, Double, Half],
                [Int8, Int8, Int32],
                [UInt8, Int8, Float],
            ] {
                check(what, dims, types, [false, true, false], false);
            }
        }
    }

    /// Panels of a constant right side, unless it is read in order: by columns for few rows, by rows for a single one.
    #[test]
    fn single_rows_want_no_panels() {
        for (rows, transposed, wanted) in
            [(1, false, false), (1, true, false), (3, true, false), (3, false, true), (6, true, true)]
        {
            let dims: [&[i64]; 3] = [&[rows, 40], &[40, 1300], &[rows, 1300]];
            let mut tensors: Vec<TensorDef> = (0..3).map(|i| TensorDef::new(i as i64, Float, dims[i])).collect();
            if transposed {
                tensors[1] = TensorDef::new(1, Float, dims[1]).strided(&[1, 40]);
            }
            let mut bench = Bench::new(node(), tensors);
            for uid in 0..2 {
                bench.fill(uid, noise);
            }
            assert_eq!(bench.run_prepared(1).is_some(), wanted, "{rows} rows, transposed: {transposed}");
        }
    }

    #[test]
    fn other_types_are_declined() {
        let tensors = |types: [DataType; 3]| (0..3).map(|i| TensorDef::new(i, types[i as usize], &[2, 2])).collect();
        for (types, want) in [
            (
                [DataType::Fp8E4M3, Float, Float],
                "a (tensor 0): expected float, half, bfloat16, double, int8 or uint8, got fp8_e4m3",
            ),
            ([Float, Int32, Float], "b (tensor 1): expected float, half, bfloat16, double, int8 or uint8, got int32"),
            (
                [Float, Float, DataType::Int64],
                "c (tensor 2): expected float, half, bfloat16, double, int32, int8 or uint8, got int64",
            ),
        ] {
            let got = Bench::declined(node(), tensors(types));
            assert!(got.contains(want), "{got}");
        }
    }
}
