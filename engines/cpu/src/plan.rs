//! Plan: a graph ready to run on the CPU.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, TryLockError};

use hipdnn_cpu_convolution::{Args, ConvolutionPlan, LayerArgs, MAX_OPERANDS, MOST_LAYERS, Weights};
use hipdnn_cpu_simd::isa::Isa;
use hipdnn_cpu_threads::Pool;
use hipdnn_cpu_threads::lent;
use hipdnn_engine_core::Plan;
use hipdnn_engine_core::error::Error;
use hipdnn_engine_core::memory::buffers::{Place, missing};
use hipdnn_engine_core::memory::workspace::ALIGNMENT;
use hipdnn_engine_core::payload::Portrait;
use hipdnn_sdk_bindings::hipdnn::plugin::DeviceBuffer;
use smallvec::{SmallVec, smallvec};

use super::nodes::{self, LibraryKernel, Preparation};
use super::resources::{Form, PreparedWeights, Resources};
use super::schedule::{
    ADDRESSES_ON_STACK, Constant, ConvolutionStep, FusedLayersStep, Layer, NodeStep, PointwiseStep, Schedule, Step,
};
use super::settings::Token;

/// Maximum number of operands of a normalization that is folded into a convolution.
const MAX_FOLDED: usize = 5;

/// Addresses of an epilogue's operands.
type Operands = [*const u8; MAX_OPERANDS];

/// Number of weights whose preparation is worth starting threads for: it takes about a millisecond.
const WORTH_THREADS: usize = 1 << 18;

/// Held by the thread that prepares weights on several.
static PREPARING: Mutex<()> = Mutex::new(());

/// Platform of a stored plan: results depend on the width of vectors.
pub(super) fn platform(isa: Isa) -> String {
    format!("{} {isa}", std::env::consts::ARCH)
}

/// Weights that a step wants prepared.
enum Wanted<'a> {
    Filter(&'a ConvolutionPlan),
    Matrix(&'a dyn LibraryKernel, Preparation),
}

impl Wanted<'_> {
    fn form(&self) -> Form {
        match self {
            Wanted::Filter(plan) => Form::Filter(plan.packing()),
            Wanted::Matrix(_, of) => Form::Matrix(of.form.clone()),
        }
    }

    /// Number of prepared values.
    fn len(&self) -> usize {
        match self {
            Wanted::Filter(plan) => plan.prepared_len(),
            Wanted::Matrix(_, of) => of.len,
        }
    }

    /// True if these bytes can be the tensor, as far as their number and address tell.
    fn is_of(&self, bytes: &[u8]) -> bool {
        match self {
            Wanted::Filter(plan) => plan.holds_weights(bytes),
            Wanted::Matrix(_, of) => of.form.holds(bytes),
        }
    }

    /// # Safety
    /// `from` is the tensor's first element, with the memory that its extents and strides reach; `to` has [`Wanted::len`] values.
    unsafe fn prepare(&self, from: *const u8, to: &mut [f32], pool: &Pool) {
        match self {
            // SAFETY: the caller's promise: a filter of the plan's sizes and layout.
            Wanted::Filter(plan) => unsafe { plan.prepare(from, to, pool) },
            // SAFETY: the caller's promise: the kernel's input, and as many values as its preparation says.
            Wanted::Matrix(kernel, _) => unsafe { kernel.prepare(from, to, pool) },
        }
    }
}

/// Weights that a step has, each with its token where it is constant and wanted prepared.
fn wanted(step: &Step) -> SmallVec<[Option<(&Token, Wanted<'_>)>; 1]> {
    match step {
        Step::Convolution(step) => smallvec![wanted_filter(&step.layer, &step.plan)],
        Step::FusedLayers(step) => {
            let plans = (0..step.plan.count()).map(|layer| step.plan.plan(layer));
            step.layers.iter().zip(plans).map(|(layer, plan)| wanted_filter(layer, plan)).collect()
        }
        Step::Node(step) => {
            let of = step.token.as_ref().zip(step.kernel.preparation());
            smallvec![of.map(|(token, of)| (token, Wanted::Matrix(&*step.kernel, of)))]
        }
        Step::Pointwise(_) => SmallVec::new(),
    }
}

fn wanted_filter<'a>(layer: &'a Layer, plan: &'a ConvolutionPlan) -> Option<(&'a Token, Wanted<'a>)> {
    layer.token.as_ref().map(|token| (token, Wanted::Filter(plan)))
}

/// Steps of a graph, with their threads, prepared weights and constants.
pub struct CpuPlan {
    schedule: Schedule,
    /// Prepared weights of each step: as many as it wants.
    weights: Vec<SmallVec<[Option<Arc<PreparedWeights>>; 1]>>,
    pool: Arc<Pool>,
    isa: Isa,
    /// Share in the resources of the process; dropped behind everything that came out of them.
    _resources: Resources,
}

impl CpuPlan {
    /// Makes a plan that runs on `threads` threads of the engine's.
    #[cfg(test)]
    pub(super) fn new(schedule: Schedule, threads: usize, resources: Resources) -> Result<CpuPlan, Error> {
        let pool = resources.pool(threads);
        CpuPlan::with_pool(schedule, pool, resources)
    }

    /// Binds memory and a pool to a schedule.
    ///
    /// # Errors
    /// If memory could not be had.
    pub fn with_pool(schedule: Schedule, pool: Arc<Pool>, resources: Resources) -> Result<CpuPlan, Error> {
        log::debug!("CPU engine: {schedule}");
        let weights = schedule.steps.iter().map(|step| {
            let of_step = wanted(step).into_iter();
            let shared = |(token, wanted): (_, Wanted<'_>)| resources.weights(token, wanted.form(), wanted.len());
            of_step.map(|wanted| wanted.map(shared).transpose()).collect::<Result<_, _>>()
        });
        let weights = weights.collect::<Result<_, _>>()?;
        Ok(CpuPlan { weights, pool, isa: Isa::best(), schedule, _resources: resources })
    }

    /// Prepares weights whose contents the calling thread lent, on threads that end here.
    fn prepare_weights(&self) {
        let missing = || {
            let steps = self.schedule.steps.iter().zip(&self.weights);
            steps.flat_map(|(step, weights)| {
                let pairs = weights.iter().zip(wanted(step));
                pairs.filter_map(|(weights, wanted)| {
                    let weights = weights.as_ref().filter(|weights| weights.get().is_none())?;
                    wanted.map(|(token, wanted)| (token, wanted, weights))
                })
            })
        };
        let mut values = 0;
        for (token, _, weights) in missing() {
            lent::with_contents(token, |_| values += weights.count());
        }
        if values == 0 {
            return;
        }
        // Plans may be built on many threads at once: one of them at a time has threads of its own.
        let alone = match (values >= WORTH_THREADS).then(|| PREPARING.try_lock()) {
            Some(Ok(alone)) => Some(alone),
            Some(Err(TryLockError::Poisoned(alone))) => Some(alone.into_inner()),
            Some(Err(TryLockError::WouldBlock)) | None => None,
        };
        let pool = Pool::new(if alone.is_some() { self.pool.width() } else { 1 });
        for (token, wanted, weights) in missing() {
            lent::with_contents(token, |bytes| {
                if wanted.is_of(bytes) {
                    // SAFETY: there are as many bytes as the tensor has, aligned for its elements; the client answers for their
                    // layout, and for their not changing while they are lent.
                    let prepare = |out: &mut [f32]| unsafe { wanted.prepare(bytes.as_ptr(), out, &pool) };
                    lent::aside(|| weights.get_or_prepare(prepare));
                }
            });
        }
    }

    #[cfg(test)]
    pub(super) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    #[cfg(test)]
    pub(super) fn weights(&self, step: usize) -> Option<&Arc<PreparedWeights>> {
        self.weights[step].first()?.as_ref()
    }

    /// # Safety
    /// As [`Plan::execute`], for memory that was resolved, after all steps before.
    unsafe fn step(&self, index: usize, step: &Step, memory: &Memory<'_>) -> Result<(), Error> {
        match step {
            // SAFETY: the caller's promise.
            Step::Convolution(step) => unsafe { self.convolve(index, step, memory) },
            // SAFETY: the caller's promise.
            Step::FusedLayers(step) => unsafe { self.convolve_by_bands(index, step, memory) },
            Step::Pointwise(step) => {
                // SAFETY: the caller's promise; the memory's addresses are this step's buffers and workspace.
                unsafe { self.pointwise(step, memory) };
                Ok(())
            }
            // SAFETY: the caller's promise; the memory's addresses are this step's buffers and workspace.
            Step::Node(step) => unsafe { self.node(index, step, memory) },
        }
    }

    /// # Safety
    /// As [`Plan::execute`], for memory that was resolved.
    unsafe fn convolve(&self, index: usize, step: &ConvolutionStep, memory: &Memory<'_>) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        let (weights, operands) = unsafe { self.layer(&step.layer, &step.plan, &self.weights[index][0], memory) }?;
        let args = Args {
            x: memory.at(step.x),
            weights,
            y: memory.at(step.y),
            operands: &operands[..step.layer.operands.len()],
            workspace: memory.at(step.scratch),
        };
        // SAFETY: the caller answers for its buffers; places in the workspace are as large as the schedule took them and
        // apart from each other while both are used; prepared filters are of this packing and contents.
        unsafe { step.plan.run(&self.pool, &args) };
        Ok(())
    }

    /// # Safety
    /// As [`Plan::execute`], for memory that was resolved.
    unsafe fn convolve_by_bands(&self, index: usize, step: &FusedLayersStep, memory: &Memory<'_>) -> Result<(), Error> {
        let mut layers: SmallVec<[(Weights<'_>, Operands); MOST_LAYERS]> = SmallVec::new();
        for (at, (layer, prepared)) in step.layers.iter().zip(&self.weights[index]).enumerate() {
            // SAFETY: the caller's promise.
            layers.push(unsafe { self.layer(layer, step.plan.plan(at), prepared, memory) }?);
        }
        let args = layers.iter().zip(&step.layers).map(|((weights, operands), layer)| LayerArgs {
            weights: *weights,
            operands: &operands[..layer.operands.len()],
        });
        let args: SmallVec<[LayerArgs<'_>; MOST_LAYERS]> = args.collect();
        let (x, y, scratch) = (memory.at(step.x), memory.at(step.y), memory.at(step.scratch));
        // SAFETY: the caller answers for its buffers; places in the workspace are as large as the schedule took them and apart from
        // each other while both are used, but for the output and a residual of the last layer; prepared filters are of their plans'
        // packing and contents.
        unsafe { step.plan.run(&self.pool, x, y, &args, scratch) };
        Ok(())
    }

    /// Weights and operands of a convolution, after its scales and shifts are computed.
    ///
    /// # Safety
    /// As [`Plan::execute`], for memory that was resolved.
    unsafe fn layer<'a>(
        &'a self,
        layer: &Layer,
        plan: &ConvolutionPlan,
        prepared: &'a Option<Arc<PreparedWeights>>,
        memory: &Memory<'_>,
    ) -> Result<(Weights<'a>, Operands), Error> {
        let raw = memory.at(layer.w).cast_const();
        let weights = match prepared {
            None if raw.is_null() => return Err(memory.missing(self, layer.w)),
            None => Weights::Raw(raw),
            Some(prepared) => Weights::Prepared(match prepared.get() {
                Some(weights) => weights,
                None if raw.is_null() => return Err(memory.missing(self, layer.w)),
                None => lent::aside(|| {
                    // SAFETY: the caller answers for the filter's memory, which has the problem's sizes and layout.
                    prepared.get_or_prepare(|out| unsafe { plan.prepare(raw, out, &self.pool) })
                }),
            }),
        };
        let mut operands = [std::ptr::null(); MAX_OPERANDS];
        for (to, place) in operands.iter_mut().zip(&layer.operands) {
            *to = memory.at(*place).cast_const();
        }
        for fold in &layer.folds {
            let mut inputs = [std::ptr::null(); MAX_FOLDED];
            for (to, place) in inputs.iter_mut().zip(&fold.inputs) {
                *to = memory.at(*place).cast_const();
            }
            // SAFETY: the caller answers for its buffers; the factors and the shifts have places of their own in the
            // workspace.
            unsafe { fold.factors.run(&inputs, memory.at(fold.to).cast(), memory.at(fold.shifts).cast()) };
        }
        Ok((weights, operands))
    }

    /// # Safety
    /// As [`Plan::execute`], for memory that was resolved.
    unsafe fn pointwise(&self, step: &PointwiseStep, memory: &Memory<'_>) {
        let mut inputs = [std::ptr::null(); nodes::MAX_INPUTS];
        for (to, place) in inputs.iter_mut().zip(&step.inputs) {
            *to = place.map_or(std::ptr::null(), |place| memory.at(place).cast_const());
        }
        // SAFETY: the caller answers for its buffers; places in the workspace are as large as the schedule took them,
        // and apart from each other while both are used; every place is aligned for its element.
        unsafe { step.kernel.run(self.isa, &self.pool, &inputs[..step.inputs.len()], memory.at(step.output)) };
    }

    /// # Safety
    /// As [`Plan::execute`], for memory that was resolved.
    unsafe fn node(&self, index: usize, step: &NodeStep, memory: &Memory<'_>) -> Result<(), Error> {
        let mut inputs = [std::ptr::null(); nodes::MAX_INPUTS];
        for (to, place) in inputs.iter_mut().zip(&step.inputs) {
            *to = place.map_or(std::ptr::null(), |place| memory.at(place).cast_const());
        }
        if let Some((prepared, of)) = self.weights[index][0].as_ref().zip(step.kernel.preparation()) {
            let raw = &mut inputs[of.input];
            let values = match (prepared.get(), step.inputs[of.input]) {
                (Some(values), _) => values,
                (None, Some(place)) if raw.is_null() => return Err(memory.missing(self, place)),
                (None, _) => lent::aside(|| {
                    // SAFETY: the caller answers for the input's memory, which has the tensor's sizes and layout.
                    prepared.get_or_prepare(|out| unsafe { step.kernel.prepare(*raw, out, &self.pool) })
                }),
            };
            *raw = values.as_ptr().cast();
        }
        let mut outputs = [std::ptr::null_mut(); nodes::MAX_OUTPUTS];
        for (to, place) in outputs.iter_mut().zip(&step.outputs) {
            *to = place.map_or(std::ptr::null_mut(), |place| memory.at(place));
        }
        let (inputs, outputs) = (&inputs[..step.inputs.len()], &outputs[..step.outputs.len()]);
        // SAFETY: the caller answers for its buffers; places in the workspace are as large as the schedule took them
        // and begin on cache lines, outputs and scratch memory have their own while the step runs, and prepared
        // values are of the kernel's form.
        unsafe { step.kernel.run(&self.pool, inputs, outputs, memory.at(step.scratch)) };
        Ok(())
    }
}

/// Memory of an execution.
struct Memory<'a> {
    addresses: &'a [*mut u8],
    workspace: *mut u8,
    constants: &'a [Constant],
    pack: &'a [DeviceBuffer],
}

// SAFETY: addresses, of the pack too, are numbers, which any thread may copy, and constants are not written; what may be done with
// the memory is said where it is dereferenced. A thread of the lender's that leads an execution has ended that when `lent::crew`
// returns, so that the caller's promise holds for it.
unsafe impl Sync for Memory<'_> {}

impl Memory<'_> {
    fn at(&self, place: Place) -> *mut u8 {
        match place {
            Place::Buffer(index) => self.addresses[index],
            Place::Workspace(offset) => self.workspace.wrapping_add(offset),
            Place::Constant(index) => (&raw const self.constants[index]).cast::<u8>().cast_mut(),
        }
    }

    fn missing(&self, plan: &CpuPlan, place: Place) -> Error {
        match place {
            Place::Buffer(index) => missing(plan.schedule.buffers.get(index), self.pack),
            _ => unreachable!("only buffers of the caller can be missing"),
        }
    }
}

impl Plan for CpuPlan {
    fn workspace_bytes(&self) -> usize {
        self.schedule.workspace_bytes()
    }

    fn portrait(&self) -> Result<Portrait, Error> {
        // Kernels are chosen by rules, and packed weights are named by their tokens: there is nothing else to store.
        let (platform, description) = (platform(self.isa), self.schedule.to_string());
        Ok(Portrait { platform, description, entries: Vec::new() })
    }

    fn make_ready(&self, _stream: *mut c_void) {
        self.prepare_weights();
    }

    unsafe fn execute(&self, _stream: *mut c_void, workspace: *mut u8, pack: &[DeviceBuffer]) -> Result<(), Error> {
        let bytes = self.workspace_bytes();
        if bytes > 0 && workspace.is_null() {
            return Err(Error::invalid_value(format!("workspace: expected {bytes} bytes, got null")));
        }
        // The workspace has another `ALIGNMENT` bytes for this.
        let workspace = workspace.wrapping_add(workspace.align_offset(ALIGNMENT));
        let count = self.schedule.buffers.len();
        let mut on_stack = [std::ptr::null_mut(); ADDRESSES_ON_STACK];
        let addresses = match self.schedule.addresses {
            None => &mut on_stack[..count],
            Some(offset) => {
                let table = workspace.wrapping_add(offset).cast::<*mut u8>();
                // SAFETY: the schedule took this place for so many addresses, aligned, and never gave it back; writing
                // null makes them values.
                unsafe {
                    table.write_bytes(0, count);
                    std::slice::from_raw_parts_mut(table, count)
                }
            }
        };
        self.schedule.buffers.resolve(pack, addresses)?;
        let memory = Memory { addresses, workspace, constants: &self.schedule.constants, pack };
        // A step of the first loop shows that there are any; a crew is for the steps behind it.
        let mut steps = self.schedule.steps.iter().enumerate();
        let calls = lent::calls();
        while lent::calls() == calls {
            let Some((index, step)) = steps.next() else { return Ok(()) };
            // SAFETY: the caller's promise, for memory that was just resolved.
            unsafe { self.step(index, step, &memory) }?;
        }
        let (several, memory) = (steps.len() > 1, &memory);
        // SAFETY: the caller's promise, for memory that was just resolved.
        let mut rest = move || steps.try_for_each(|(index, step)| unsafe { self.step(index, step, memory) });
        if several { lent::crew(&self.pool, rest) } else { rest() }
    }
}
