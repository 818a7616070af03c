//! Plan: a graph ready to run on the CPU.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, TryLockError};

use hipdnn_cpu_convolution::MAX_OPERANDS;
use hipdnn_cpu_convolution::{Args, Weights};
use hipdnn_cpu_simd::isa::Isa;
use hipdnn_cpu_threads::Pool;
use hipdnn_cpu_threads::lent;
use hipdnn_engine_core::Plan;
use hipdnn_engine_core::error::Error;
use hipdnn_engine_core::memory::buffers::{Place, missing};
use hipdnn_engine_core::memory::workspace::ALIGNMENT;
use hipdnn_engine_core::payload::Portrait;
use hipdnn_sdk_bindings::hipdnn::plugin::DeviceBuffer;

use super::nodes;
use super::resources::{Form, PreparedWeights, Resources};
use super::schedule::{ADDRESSES_ON_STACK, Constant, ConvolutionStep, NodeStep, PointwiseStep, Schedule, Step};

/// Maximum number of operands of a normalization that is folded into a convolution.
const MAX_FOLDED: usize = 5;

/// Number of weights whose preparation is worth starting threads for: it takes about a millisecond.
const WORTH_THREADS: usize = 1 << 18;

/// Held by the thread that prepares weights on several.
static PREPARING: Mutex<()> = Mutex::new(());

/// Platform of a stored plan: results depend on the width of vectors.
pub(super) fn platform(isa: Isa) -> String {
    format!("{} {isa}", std::env::consts::ARCH)
}

/// Steps of a graph, with their threads, prepared weights and constants.
pub struct CpuPlan {
    schedule: Schedule,
    /// Prepared filter of each step, if it has one.
    weights: Vec<Option<Arc<PreparedWeights>>>,
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
        let weights = schedule.steps.iter().map(|step| match step {
            Step::Convolution(step) => {
                let (plan, token) = (&step.plan, step.token.as_ref());
                token
                    .map(|token| resources.weights(token, Form::Filter(plan.packing()), plan.prepared_len()))
                    .transpose()
            }
            Step::Node(step) => {
                let wanted = step.token.as_ref().zip(step.kernel.preparation());
                wanted.map(|(token, of)| resources.weights(token, Form::Matrix(of.form), of.len)).transpose()
            }
            Step::Pointwise(_) => Ok(None),
        });
        let weights = weights.collect::<Result<_, _>>()?;
        Ok(CpuPlan { weights, pool, isa: Isa::best(), schedule, _resources: resources })
    }

    /// Prepares weights whose contents the calling thread lent, on threads that end here.
    fn prepare_weights(&self) {
        let missing = || {
            let steps = self.schedule.steps.iter().zip(&self.weights);
            steps.filter_map(|(step, weights)| {
                let weights = weights.as_ref().filter(|weights| weights.get().is_none())?;
                let token = match step {
                    Step::Convolution(step) => step.token.as_deref(),
                    Step::Node(step) => step.token.as_deref(),
                    Step::Pointwise(_) => None,
                };
                Some((step, weights, token?))
            })
        };
        let mut values = 0;
        for (_, weights, token) in missing() {
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
        for (step, weights, token) in missing() {
            lent::with_contents(token, |bytes| match step {
                Step::Convolution(step) if step.plan.holds_weights(bytes) => {
                    // SAFETY: there are as many bytes as the filter has, aligned for its elements; the client answers for
                    // their layout, and for their not changing while they are lent.
                    let prepare = |out: &mut [f32]| unsafe { step.plan.prepare(bytes.as_ptr(), out, &pool) };
                    lent::aside(|| weights.get_or_prepare(prepare));
                }
                Step::Node(step) if step.kernel.preparation().is_some_and(|of| of.form.holds(bytes)) => {
                    // SAFETY: there are as many bytes as the matrix has, aligned for its elements; the client answers
                    // for their layout, and for their not changing while they are lent.
                    let prepare = |out: &mut [f32]| unsafe { step.kernel.prepare(bytes.as_ptr(), out, &pool) };
                    lent::aside(|| weights.get_or_prepare(prepare));
                }
                _ => {}
            });
        }
    }

    #[cfg(test)]
    pub(super) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    #[cfg(test)]
    pub(super) fn weights(&self) -> &[Option<Arc<PreparedWeights>>] {
        &self.weights
    }

    /// # Safety
    /// As [`Plan::execute`], for memory that was resolved, after all steps before.
    unsafe fn step(&self, index: usize, step: &Step, memory: &Memory<'_>) -> Result<(), Error> {
        match step {
            // SAFETY: the caller's promise.
            Step::Convolution(step) => unsafe { self.convolve(index, step, memory) },
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
        let raw = memory.at(step.w).cast_const();
        let weights = match &self.weights[index] {
            None if raw.is_null() => return Err(memory.missing(self, step.w)),
            None => Weights::Raw(raw),
            Some(prepared) => Weights::Prepared(match prepared.get() {
                Some(weights) => weights,
                None if raw.is_null() => return Err(memory.missing(self, step.w)),
                None => lent::aside(|| {
                    // SAFETY: the caller answers for the filter's memory, which has the problem's sizes and layout.
                    prepared.get_or_prepare(|out| unsafe { step.plan.prepare(raw, out, &self.pool) })
                }),
            }),
        };
        let mut operands = [std::ptr::null(); MAX_OPERANDS];
        for (to, place) in operands.iter_mut().zip(&step.operands) {
            *to = memory.at(*place).cast_const();
        }
        for fold in &step.folds {
            let mut inputs = [std::ptr::null(); MAX_FOLDED];
            for (to, place) in inputs.iter_mut().zip(&fold.inputs) {
                *to = memory.at(*place).cast_const();
            }
            // SAFETY: the caller answers for its buffers; the factors and the shifts have places of their own in the
            // workspace.
            unsafe { fold.factors.run(&inputs, memory.at(fold.to).cast(), memory.at(fold.shifts).cast()) };
        }
        let args = Args {
            x: memory.at(step.x),
            weights,
            y: memory.at(step.y),
            operands: &operands[..step.operands.len()],
            workspace: memory.at(step.scratch),
        };
        // SAFETY: the caller answers for its buffers; places in the workspace are as large as the schedule took them and
        // apart from each other while both are used; prepared filters are of this packing and contents.
        unsafe { step.plan.run(&self.pool, &args) };
        Ok(())
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
        if let Some((prepared, of)) = self.weights[index].as_ref().zip(step.kernel.preparation()) {
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
