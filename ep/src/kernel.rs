//! A compiled partition, and how the runtime calls it.

use std::borrow::Cow;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

use hipdnn_capi::spare::Spare;
use hipdnn_ep_compiler::constants::{Contents, Known, Token};
use hipdnn_ep_compiler::import::{self, Assumption, MAX_RANK};
use hipdnn_ep_compiler::ir::element_bytes;
use hipdnn_ep_compiler::model::{self, Constant, Model, ValueIndex};
use hipdnn_schemas::Extents;
use hipdnn_sdk_bindings::ort::{self, ElementType, NodeComputeInfo, Status};

use crate::error::Error;
use crate::extension::RuntimeThreads;
use crate::gpu::Gpu;
use crate::gpu::arena::SHARED;
use crate::gpu::clock::DeviceClock;
use crate::gpu::memory::{Account, Block};
use crate::gpu::stream::Stream;
use crate::plan_cache::PlanCache;
use crate::planner::{Planner, Purpose};
use crate::pointer::{Handles, Held, Place};
use crate::profile::{Clock, HostClock, Recording};
use crate::program::{Packs, PlanRequest, Program};
use crate::runtime::{Runtime, caught};

/// Compute info of a partition, as the runtime holds it: its callbacks, then ours.
#[repr(C)]
pub(crate) struct Kernel {
    callbacks: NodeComputeInfo,
    runtime: Runtime,
    planner: Arc<Planner>,
    /// Device of its tensors, if they are not in host memory.
    device: Option<Device>,
    name: String,
    /// Most programs that are kept.
    capacity: usize,
    /// For each input, true if its content decides the program.
    deciding: Vec<bool>,
    /// For each input, true if it is a constant initializer.
    constant: Vec<bool>,
    /// The inputs, and those that are no constant initializers.
    inputs: Box<[usize]>,
    free: Box<[usize]>,
    /// True if the constants are at the same addresses in every run.
    is_fixed: bool,
    binding: RwLock<Arc<Binding>>,
    /// Held by the one run that looks at constants.
    looking: Mutex<()>,
    /// Number of changes of binding or programs.
    changes: AtomicU64,
    /// Records of earlier runs.
    ready: Spare<RunState>,
}

/// A constant of a run that is held against the model's.
struct Looked<'a> {
    /// Number of the input.
    index: usize,
    /// What the model has.
    constant: &'a Constant,
    /// What the run has.
    bytes: Cow<'a, [u8]>,
    /// Content token of the run's bytes, once they were hashed.
    token: OnceLock<Token>,
}

/// Batch that programs are built for before a run, where only the batch is free: most models are exported with a free one, and
/// most sessions run one image at a time.
pub(crate) const ASSUMED_BATCH: i64 = 1;

/// Extent that programs are built for before a run where others than the batch are free, so that weights are prepared with the
/// session: between the images of classifiers and of detectors, and a length of texts. For other extents weights mostly have
/// the same form, and are shared.
const ASSUMED_EXTENT: i64 = 320;

/// Most runs that leave something: those of as many threads.
const MOST_READY: usize = 8;

/// Record of a run for the next one: where that is the same again, it is compared instead of looked up. One run at a time
/// has it.
struct RunState {
    /// [`Kernel::changes`] when the binding was taken.
    change: u64,
    binding: Arc<Binding>,
    /// Room for a run's key.
    key: Vec<i64>,
    /// The program's packs for `tensors`, which go before the program.
    packs: Option<Packs>,
    /// The last run's program, with its key.
    last: Option<(Vec<i64>, Arc<Program>)>,
    /// Addresses of inputs, and of the last run's outputs behind them.
    tensors: Vec<usize>,
    stream: KnownStream,
}

/// The stream of an earlier run, which ends when the runtime or the application wants.
#[derive(Default)]
struct KnownStream {
    /// HIP's own object.
    raw: usize,
    stream: Weak<Stream>,
}

/// A GPU whose memory a session's tensors are in.
#[derive(Clone)]
pub(crate) struct Device {
    /// The GPU.
    pub gpu: &'static Gpu,
    /// Account of the session's memory.
    pub account: Arc<Account>,
}

/// The partition with the constants that a session has for it.
struct Binding {
    known: Known,
    model: Arc<Model>,
    /// Addresses that the inputs have in every run, 0 for those that are no constants, if that is known.
    fixed: Option<Box<[usize]>>,
    /// Programs by the extents of the inputs that are no constants, and the content of those that decide.
    programs: Arc<PlanCache<Program>>,
}

/// Knowledge of the constants among a partition's inputs.
pub(crate) struct Constants<'a> {
    /// The model's bytes, where they are while it is compiled.
    pub contents: &'a [(Token, &'a [u8])],
    /// True if the addresses of the first run are those of every run of the session.
    pub is_fixed: bool,
}

impl Kernel {
    /// A partition under the name of its fused node. Its programs are built for the extents that turn up.
    pub(crate) fn new(
        runtime: Runtime,
        planner: Arc<Planner>,
        device: Option<Device>,
        name: &str,
        model: Model,
        constants: &Constants<'_>,
        capacity: usize,
    ) -> Box<Kernel> {
        let callbacks = NodeComputeInfo {
            ort_version_supported: runtime.version(),
            create_state: Some(create_state),
            compute: Some(compute),
            release_state: Some(release_state),
        };
        let programs = Arc::new(PlanCache::new(capacity));
        let decide = import::content::deciding(&model);
        let deciding = model.inputs.iter().map(|value| decide.contains(value)).collect();
        let constant: Vec<bool> = model.inputs.iter().map(|value| model.values[*value].constant.is_some()).collect();
        let inputs: Box<[usize]> = (0..constant.len()).collect();
        let free = inputs.iter().copied().filter(|index| !constant[*index]).collect();
        let known = Known::of_model(constants.contents);
        let binding = Binding { known, fixed: None, model: Arc::new(model), programs };
        Box::new(Kernel {
            callbacks,
            runtime,
            planner,
            device,
            name: name.to_string(),
            capacity,
            deciding,
            constant,
            inputs,
            free,
            is_fixed: constants.is_fixed,
            binding: RwLock::new(Arc::new(binding)),
            looking: Mutex::new(()),
            changes: AtomicU64::new(0),
            ready: Spare::new(MOST_READY),
        })
    }

    /// The callbacks, as the runtime holds them; [`Kernel::take_back`] undoes it.
    pub(crate) fn into_raw(self: Box<Self>) -> *mut NodeComputeInfo {
        debug_assert!(self.callbacks.compute.is_some());
        let raw = Box::into_raw(self).cast();
        KERNELS.add(raw);
        raw
    }

    /// # Safety
    /// Nobody uses the kernel any more.
    ///
    /// # Errors
    /// If it did not come from [`Kernel::into_raw`], or was taken back.
    pub(crate) unsafe fn take_back(raw: *mut NodeComputeInfo) -> Result<(), Error> {
        KERNELS.remove(raw)?;
        // SAFETY: the callbacks are the first member of a kernel, which was boxed and is known no more.
        drop(unsafe { Box::from_raw(raw.cast::<Kernel>()) });
        Ok(())
    }

    /// Builds the program now if no extent is free. On the host a free batch is assumed to be [`ASSUMED_BATCH`], and other free
    /// extents to be [`ASSUMED_EXTENT`] unless plans are kept beyond the session. Until the first run with other extents both
    /// programs' weights may be in memory, as far as their forms differ.
    ///
    /// # Errors
    /// If that fails where nothing is assumed.
    pub(crate) fn prepare(&self, contents: &[(Token, &[u8])]) -> Result<(), Error> {
        if self.deciding.contains(&true) {
            return Ok(());
        }
        let binding = self.current();
        let model = &binding.model;
        let known = model.inputs.iter().map(|value| model.values[*value].known_dims().map(Extents::from_vec));
        let known: Option<Vec<Extents>> = known.collect();
        if let Some(dims) = known {
            let key = key_of(model, &dims);
            return binding.programs.get_or_build(&key, || self.build(model, &dims, contents, None)).map(drop);
        }
        // On a GPU, where building takes longest, nothing is built in vain.
        if self.device.is_none()
            && let Some(dims) = assumed_dims(model, self.planner.keeps_plans())
        {
            // What can't be built is an error of the run that wants it, and of no other.
            let _ = caught(|| {
                let program = self.build(model, &dims, contents, None)?;
                binding.programs.assume(&key_of(model, &dims), Arc::new(program));
                Ok(())
            });
        }
        Ok(())
    }

    fn current(&self) -> Arc<Binding> {
        self.binding.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The partition with the constants of this run, which are at these addresses.
    ///
    /// # Safety
    /// `context` is the runtime's for one call of this partition.
    unsafe fn bind(
        &self,
        context: *const ort::KernelContext,
        addresses: &[usize],
        stream: Option<&Stream>,
    ) -> Result<Arc<Binding>, Error> {
        let current = self.current();
        if current.known.fits(addresses) {
            return Ok(current);
        }
        let _looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.current();
        if current.known.fits(addresses) {
            return Ok(current);
        }
        let (known, promised) = current.known.after(addresses);
        let mut looked = Vec::new();
        let inputs = current.model.inputs.iter().map(|value| &current.model.values[*value]).enumerate();
        let constants = inputs.filter_map(|(index, value)| Some((index, value, value.constant.as_ref()?)));
        for (address, (index, value, constant)) in addresses.iter().zip(constants) {
            let is_model = constant.token.is_some_and(|token| current.known.is_of_model(*address, token));
            if is_model || (constant.bytes.is_none() && constant.token.is_none()) {
                continue;
            }
            // SAFETY: the caller's duty.
            let tensor = unsafe { self.input(context, index, &value.name) }?;
            // SAFETY: the tensor is of this call, during which nobody writes to an initializer.
            let bytes = unsafe { self.contents(tensor, value, stream) }?;
            looked.push(Looked { index, constant, bytes, token: OnceLock::new() });
        }
        if promised {
            // SAFETY: the context is of this call.
            let threads = unsafe { RuntimeThreads::new(self.runtime, context) };
            let hashed: Vec<_> = looked.iter().filter(|one| one.constant.token.is_some()).collect();
            threads.for_each(hashed.len(), |item| {
                let one = hashed[item];
                one.token.get_or_init(|| Token::of(&one.bytes));
            })?;
        }
        let mut changed = Vec::new();
        for Looked { index, constant, bytes, token } in &looked {
            let small = constant.bytes.as_deref();
            let token = token.get().copied();
            if token != constant.token || small.is_some_and(|small| *small != **bytes) {
                let bytes = small.map(|_| Arc::from(&**bytes));
                let constant = Constant { dims: constant.dims.clone(), bytes, token };
                changed.push((current.model.inputs[*index], constant));
            }
        }
        let (model, programs) = if changed.is_empty() {
            (current.model.clone(), current.programs.clone())
        } else {
            let mut model = Model::clone(&current.model);
            for (value, constant) in changed {
                model.values[value].constant = Some(constant);
            }
            (Arc::new(model), Arc::new(PlanCache::new(self.capacity)))
        };
        let fixed = known.addresses().filter(|_| self.is_fixed).map(|known| {
            let mut known = known.iter().copied();
            let address = |is_constant: &bool| if *is_constant { known.next().unwrap_or(0) } else { 0 };
            self.constant.iter().map(address).collect()
        });
        let binding = Arc::new(Binding { known, fixed, model, programs });
        *self.binding.write().unwrap_or_else(PoisonError::into_inner) = binding.clone();
        self.note_change();
        Ok(binding)
    }

    /// The bytes of a constant, if it is of the type and extents that it has in the model: the runtime lets others take its
    /// place. Those of one in a GPU's memory are copied behind what `stream` has enqueued.
    ///
    /// # Safety
    /// `tensor` lives as long as `'a`, and nobody writes to it.
    unsafe fn contents<'a>(
        &self,
        tensor: *const ort::Value,
        value: &model::Value,
        stream: Option<&Stream>,
    ) -> Result<Cow<'a, [u8]>, Error> {
        // SAFETY: the tensor is alive.
        let found = unsafe { self.runtime.shape_of(tensor) }?;
        let (element, dims) = (value.element, value.known_dims());
        if Some(found.element) != element || found.shape != dims {
            return Err(Error::invalid(format!(
                "initializer {:?}: expected {} of extents {:?}, got {} of extents {:?}",
                value.name,
                element.unwrap_or(ElementType::UNDEFINED),
                dims.unwrap_or_default(),
                found.element,
                found.shape.unwrap_or_default()
            )));
        }
        let Some(stream) = stream else {
            // SAFETY: the tensor is alive, and not written to.
            return unsafe { self.runtime.bytes_of(tensor) }.map(Cow::Borrowed);
        };
        let (mut size, mut data) = (0, null());
        // SAFETY: the tensor is alive, and the answers' places are valid for the calls.
        unsafe {
            self.runtime.check(self.runtime.api.get_tensor_size_in_bytes()(tensor, &mut size))?;
            self.runtime.check(self.runtime.api.get_tensor_data()(tensor, &mut data))?;
        }
        let mut bytes = vec![0; size];
        // SAFETY: the tensor has so many bytes on the session's device.
        unsafe { stream.gpu().read(data, &mut bytes, stream) }?;
        Ok(Cow::Owned(bytes))
    }

    /// The bytes of what is promised, for programs that are built in a run that was bound.
    ///
    /// # Safety
    /// `context` is the runtime's for one call of this partition, as long as `'a`, and `model` has its constants.
    unsafe fn promised<'a>(&self, context: *const ort::KernelContext, model: &Model) -> Result<Contents<'a>, Error> {
        let mut contents = Contents::new();
        for (index, value) in model.inputs.iter().enumerate() {
            let value = &model.values[*value];
            if let Some(token) = value.constant.as_ref().and_then(|constant| constant.token) {
                // SAFETY: the caller's duty.
                let tensor = unsafe { self.input(context, index, &value.name) }?;
                // SAFETY: the tensor is of this call, during which nobody writes to an initializer.
                let bytes = unsafe { self.contents(tensor, value, None) }?;
                // What is in a GPU's memory has no token.
                if let Cow::Borrowed(bytes) = bytes {
                    contents.push((token, bytes));
                }
            }
        }
        Ok(contents)
    }

    /// Builds a program for inputs of these extents, on the runtime's threads if it is during a call.
    fn build(
        &self,
        model: &Model,
        dims: &[Extents],
        contents: &[(Token, &[u8])],
        threads: Option<&RuntimeThreads>,
    ) -> Result<Program, Error> {
        let views: Vec<&[i64]> = dims.iter().map(Extents::as_slice).collect();
        let function = import::import_model(model, &views).map_err(Error::invalid)?;
        let labels = |node: usize| model.nodes[node].label.as_str();
        let mut inputs = model.inputs.iter().map(|value| &model.values[*value]).zip(dims);
        let free = inputs.find(|(value, _)| !value.is_known()).map(|(_, dims)| dims.as_slice());
        let ask = &mut |question: PlanRequest<'_>| {
            let plan = self.planner.plan(&question, contents, Purpose::Program)?;
            self.planner.dump(free, question.graph);
            Ok(plan)
        };
        let ahead = &mut |requests: &[PlanRequest<'_>]| match threads {
            Some(threads) => self.planner.plan_ahead(requests, contents, threads),
            None => Vec::new(),
        };
        let built = Program::build_showing(&function, &labels, ahead, ask, |linked| {
            let free = dims.iter().zip(&model.inputs).filter(|(_, value)| !model.values[**value].is_known());
            let extents: Vec<i64> = free.flat_map(|(dims, _)| dims.iter().copied()).collect();
            self.planner.dump_stages(&extents, model, linked);
        });
        let mut program = built.map_err(|refused| {
            let reasons = refused.into_iter().map(|(node, reason)| format!("{}: {reason}", model.nodes[node].label));
            Error::failed(format!("no engine takes {}", reasons.collect::<Vec<_>>().join("; ")))
        })?;
        if let Some(device) = &self.device {
            program.upload(device.gpu, &device.account)?;
        }
        Ok(program)
    }

    /// An error of the runtime that an output has no memory, with what the allocator could not say itself.
    fn out_of_memory(&self, error: Error) -> Error {
        match self.device.as_ref().and_then(|device| device.gpu.memory().failure()) {
            Some(why) => Error { message: format!("{} ({why})", error.message), ..error },
            None => error,
        }
    }

    /// The stream that a run is enqueued on, and whether the runtime waits for it. `known` is that of an earlier run.
    ///
    /// # Safety
    /// `context` is the runtime's for one call of this partition.
    unsafe fn stream(
        &self,
        context: *const ort::KernelContext,
        known: &mut KnownStream,
    ) -> Result<Option<(Arc<Stream>, bool)>, Error> {
        let Some(device) = &self.device else { return Ok(None) };
        device.gpu.check_process()?;
        let mut raw = null_mut();
        // SAFETY: the context is of this call, and there is a place for the answer.
        let status = unsafe { self.runtime.api.kernel_context_get_gpu_compute_stream()(context, &mut raw) };
        // SAFETY: the status is ours.
        unsafe { self.runtime.check(status) }?;
        if raw.is_null() {
            return Ok(Some((device.gpu.transfers()?, false)));
        }
        if known.raw == raw.addr()
            && let Some(stream) = known.stream.upgrade()
        {
            return Ok(Some((stream, true)));
        }
        let stream = device.gpu.stream_of(raw)?;
        *known = KnownStream { raw: raw.addr(), stream: Arc::downgrade(&stream) };
        Ok(Some((stream, true)))
    }

    /// State that an earlier run left for the next one, or that there is before one.
    fn take_ready(&self) -> Box<RunState> {
        let change = self.changes.load(Ordering::Acquire);
        self.ready.take().filter(|ready| ready.change == change).unwrap_or_else(|| {
            let binding = self.current();
            let mut tensors = Vec::with_capacity(binding.model.inputs.len() + binding.model.outputs.len());
            match &binding.fixed {
                Some(fixed) => tensors.extend_from_slice(fixed),
                None => tensors.resize(binding.model.inputs.len(), 0),
            }
            let (key, last) = (Vec::with_capacity(4 * MAX_RANK), None);
            Box::new(RunState { change, binding, key, last, tensors, packs: None, stream: KnownStream::default() })
        })
    }

    /// Leaves what a run found for the next one, if it is as good then: not where each run looks for its constants, nor where the
    /// cache has to know which of several programs was used.
    fn keep_ready(&self, ready: Box<RunState>) {
        if ready.binding.fixed.is_none() || !ready.binding.programs.has_one() {
            return;
        }
        let change = ready.change;
        drop(self.ready.put(ready));
        // Whoever made a change meanwhile may have looked there before: what is stale holds memory, and is of no use.
        if change != self.changes.load(Ordering::Acquire) {
            drop(self.ready.take_all());
        }
    }

    /// Binding or programs are others from here on.
    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        drop(self.ready.take_all());
    }

    /// # Safety
    /// `context` is the runtime's for one call of this partition.
    unsafe fn run(&self, context: *mut ort::KernelContext) -> Result<(), Error> {
        let mut ready = self.take_ready();
        // SAFETY: the caller's duty.
        unsafe { self.run_with(context, &mut ready) }?;
        self.keep_ready(ready);
        Ok(())
    }

    /// Has `ready` be of the inputs of a run: their addresses, and the program for them.
    ///
    /// # Safety
    /// `context` is the runtime's for one call of this partition.
    unsafe fn look(
        &self,
        context: *const ort::KernelContext,
        ready: &mut RunState,
        on: Option<&Stream>,
    ) -> Result<(), Error> {
        let RunState { binding, key, last, tensors, packs, .. } = ready;
        let model = &binding.model;
        let is_fixed = binding.fixed.is_some();
        tensors.truncate(model.inputs.len());
        key.clear();
        for &index in if is_fixed { &self.free } else { &self.inputs } {
            let value = &model.values[model.inputs[index]];
            // SAFETY: the caller's duty.
            let tensor = unsafe { self.input(context, index, &value.name) }?;
            let mut data = null();
            // SAFETY: the tensor is of this call, and `data` is valid for it.
            let status = unsafe { self.runtime.api.get_tensor_data()(tensor, &mut data) };
            // SAFETY: the status is ours.
            unsafe { self.runtime.check(status) }?;
            tensors[index] = data.expose_provenance();
            if !self.constant[index] {
                // SAFETY: the tensor is of this call.
                unsafe { self.append_extents(tensor, key) }?;
                if self.deciding[index] {
                    // SAFETY: the tensor is of this call, during which nobody writes to it.
                    let bytes = unsafe { self.contents(tensor, value, on) }?;
                    key.extend(bytes.iter().map(|byte| i64::from(*byte)));
                }
            }
        }
        if !is_fixed {
            let constants = tensors.iter().zip(&self.constant).filter(|(_, is_constant)| **is_constant);
            let constants: Vec<usize> = constants.map(|(address, _)| *address).collect();
            // SAFETY: the caller's duty.
            *binding = unsafe { self.bind(context, &constants, on) }?;
        }
        if last.as_ref().is_some_and(|(of, _)| of == key) {
            return Ok(());
        }
        *packs = None;
        let model = &binding.model;
        let mut is_built = false;
        let program = binding.programs.get_or_build(key, || {
            is_built = true;
            // SAFETY: the context is of this call, which was bound above.
            let promised = unsafe { self.promised(context, model) }?;
            // SAFETY: the context is of this call. Plans for a device are built one after the other.
            let threads = self.device.is_none().then(|| unsafe { RuntimeThreads::new(self.runtime, context) });
            let threads = threads.as_ref();
            let (dims, deciding) = decoded(model, &self.deciding, key);
            if deciding.is_empty() {
                return self.build(model, &dims, &promised, threads);
            }
            let mut model = Model::clone(model);
            for (value, constant) in deciding {
                model.values[value].constant = Some(constant);
            }
            self.build(&model, &dims, &promised, threads)
        })?;
        if is_built {
            self.note_change();
        }
        *last = Some((key.clone(), program));
        Ok(())
    }

    /// Runs with what an earlier run left.
    ///
    /// # Safety
    /// `context` is the runtime's for one call of this partition.
    unsafe fn run_with(&self, context: *mut ort::KernelContext, ready: &mut RunState) -> Result<(), Error> {
        // SAFETY: the caller's duty.
        let stream = unsafe { self.stream(context, &mut ready.stream) }?;
        let on = stream.as_ref().map(|(stream, _)| &**stream);
        // SAFETY: the caller's duty.
        unsafe { self.look(context, ready, on) }?;
        let RunState { tensors, packs, last, .. } = ready;
        let (_, program) = last.as_ref().expect("a run that was looked at has its program");
        for (index, dims) in program.outputs.iter().enumerate() {
            let mut output = null_mut();
            // SAFETY: the context is of this call; the extents and `output` are valid for it.
            let status = unsafe {
                self.runtime.api.kernel_context_get_output()(context, index, dims.as_ptr(), dims.len(), &mut output)
            };
            // SAFETY: the status is ours.
            unsafe { self.runtime.check(status) }.map_err(|error| self.out_of_memory(error))?;
            let mut data = null_mut();
            // SAFETY: `output` is a tensor of this call, and `data` is valid for it.
            let status = unsafe { self.runtime.api.get_tensor_mutable_data()(output, &mut data) };
            // SAFETY: the status is ours.
            unsafe { self.runtime.check(status) }?;
            tensors.push(data.expose_provenance());
        }
        if program.steps.is_empty() {
            return Ok(());
        }
        let mut recording = Recording::start(|| match &stream {
            // The host's clock is right for what a capture enqueues: nothing runs yet.
            Some((stream, _)) if stream.capture() == SHARED => Box::new(DeviceClock::new(stream.clone())),
            _ => Box::new(HostClock::default()),
        });
        let clock = recording.as_mut().map(Recording::clock);
        match &stream {
            None => {
                let context_of_plans = self.planner.context();
                let mut pooled = context_of_plans.pooled_handle().map_err(|error| Error::failed(error.to_string()))?;
                // SAFETY: the context is of this call.
                let threads = unsafe { RuntimeThreads::new(self.runtime, context) };
                let _lent = context_of_plans.extension().map(|extension| extension.lend(&threads));
                let result = pooled.memory(program.memory()).and_then(|memory| {
                    // SAFETY: the program was built for inputs of these extents, constants have those of the model, and the
                    // runtime gives each call outputs of its own of the program's extents.
                    unsafe { program.run(&mut pooled, tensors, memory, packs, clock) }
                });
                context_of_plans.put_back(pooled);
                result
            }
            // SAFETY: the program was built for inputs of these extents, constants have those of the model, and the runtime
            // gives each call outputs of its own of the program's extents, which stay until the stream has passed.
            Some((stream, _)) => unsafe { self.enqueue(program, tensors, packs, stream, clock) },
        }?;
        if let Some(recording) = recording {
            recording.finish(&self.name, program);
        }
        match stream {
            Some((stream, false)) => Ok(stream.synchronize()?),
            _ => Ok(()),
        }
    }

    /// Enqueues a program on a stream of the session's device.
    ///
    /// # Safety
    /// As for [`Program::run`]; the tensors are in the device's memory.
    unsafe fn enqueue(
        &self,
        program: &Arc<Program>,
        tensors: &[usize],
        packs: &mut Option<Packs>,
        stream: &Arc<Stream>,
        clock: Option<&mut dyn Clock>,
    ) -> Result<(), Error> {
        let device = self.device.as_ref().expect("streams are a device's");
        let _entered = device.gpu.enter()?;
        let outputs = &tensors[tensors.len() - program.outputs.len()..];
        let empty = program.outputs.iter().map(|dims| dims.contains(&0));
        if outputs.iter().zip(empty).any(|(output, empty)| *output == 0 && !empty) {
            // An allocator has no other way to say that there was no memory.
            let why = device.gpu.memory().failure();
            return Err(Error::failed(why.unwrap_or_else(|| "an output has no memory".to_string())));
        }
        let block = match program.memory() {
            0 => None,
            bytes => Some(Block::take(device.gpu, bytes, Some(stream), &*device.account)?),
        };
        stream.touch();
        let memory = block.as_ref().map_or(null_mut(), Block::address);
        stream.count_call(program);
        let recording = packs.as_ref().and_then(|packs| packs.recording(tensors, memory)).filter(|_| clock.is_none());
        let enqueued = match recording {
            // SAFETY: the caller's duty; the block is the stream's, so that whoever gets it next comes after this work.
            Some(recording) => unsafe { program.replay(recording, stream.raw().cast()) },
            // SAFETY: the caller's duty; work that gets the block's memory next is enqueued behind this one.
            None => unsafe { self.execute_on(program, tensors, memory, packs, stream, clock) },
        };
        stream.count_work();
        enqueued
    }

    /// Executes a program's plans one by one on a stream.
    ///
    /// # Safety
    /// As for [`Program::run`]; the tensors and the memory are the stream's device's.
    #[inline(never)]
    unsafe fn execute_on(
        &self,
        program: &Program,
        tensors: &[usize],
        memory: *mut c_void,
        packs: &mut Option<Packs>,
        stream: &Stream,
        clock: Option<&mut dyn Clock>,
    ) -> Result<(), Error> {
        let context = self.planner.context();
        let mut pooled = context.pooled_handle().map_err(|error| Error::failed(error.to_string()))?;
        let set = pooled.on(stream.raw().cast()).map_err(|error| Error::failed(error.to_string()));
        // SAFETY: the caller's duty.
        let ran = set.and_then(|()| unsafe { program.run(&mut pooled, tensors, memory, packs, clock) });
        context.put_back(pooled);
        ran
    }

    /// # Safety
    /// `context` is the runtime's for one call of this partition.
    unsafe fn input(
        &self,
        context: *const ort::KernelContext,
        index: usize,
        name: &str,
    ) -> Result<*const ort::Value, Error> {
        let mut value = null();
        // SAFETY: the context is of this call, and `value` is valid for it.
        let status = unsafe { self.runtime.api.kernel_context_get_input()(context, index, &mut value) };
        // SAFETY: the status is ours.
        unsafe { self.runtime.check(status) }?;
        if value.is_null() {
            return Err(Error::invalid(format!("expected a tensor for the input {name:?}, got none")));
        }
        Ok(value)
    }

    /// Appends a tensor's rank and extents.
    ///
    /// # Safety
    /// `value` is a tensor that is alive.
    unsafe fn append_extents(&self, value: *const ort::Value, key: &mut Vec<i64>) -> Result<(), Error> {
        match self.runtime.api.get_tensor_element_type_and_shape_data_reference() {
            Some(reference) => {
                let (mut element, mut dims, mut rank) = (ElementType::UNDEFINED, null(), 0);
                // SAFETY: the tensor is alive, and the answers' places are valid for the call.
                let status = unsafe { reference(value, &mut element, &mut dims, &mut rank) };
                // SAFETY: the status is ours.
                unsafe { self.runtime.check(status) }?;
                key.push(rank as i64);
                if rank > 0 && !dims.is_null() {
                    // SAFETY: the tensor has that many extents there, which do not change while it is alive.
                    key.extend(unsafe { std::slice::from_raw_parts(dims, rank) });
                }
            }
            None => {
                // SAFETY: the tensor is alive.
                let described = unsafe { self.runtime.shape_of(value) }?;
                let dims = described.shape.unwrap_or_default();
                key.push(dims.len() as i64);
                key.extend(dims);
            }
        }
        Ok(())
    }
}

/// Extents of inputs that are likely where some are free; `None` if nothing is said of them.
fn assumed_dims(model: &Model, only_batch: bool) -> Option<Vec<Extents>> {
    if only_batch {
        let dims = model.dims_of_batch(&model.inputs, ASSUMED_BATCH)?;
        return Some(dims.into_iter().map(Extents::from_vec).collect());
    }
    let mut assumption = Assumption::new([ASSUMED_BATCH, ASSUMED_EXTENT], model);
    model.inputs.iter().map(|value| assumption.dims(model, *value).map(Extents::from_vec)).collect()
}

/// The key of programs for inputs of these extents, of which none decides by its content.
fn key_of(model: &Model, dims: &[Extents]) -> Vec<i64> {
    let free = dims.iter().zip(&model.inputs).filter(|(_, value)| model.values[**value].constant.is_none());
    free.flat_map(|(dims, _)| std::iter::once(dims.len() as i64).chain(dims.iter().copied())).collect()
}

/// The extents of all inputs, and the content of those that decide, by the key of those that are no constants.
fn decoded(model: &Model, deciding: &[bool], key: &[i64]) -> (Vec<Extents>, Vec<(ValueIndex, Constant)>) {
    let mut rest = key;
    let mut contents = Vec::new();
    let mut extents = Vec::new();
    for (index, decides) in model.inputs.iter().zip(deciding) {
        let value = &model.values[*index];
        if let Some(constant) = &value.constant {
            extents.push(constant.dims.as_slice().into());
            continue;
        }
        let (rank, after) = rest.split_first().expect("the key has every input");
        let (dims, after) = after.split_at(*rank as usize);
        rest = after;
        if *decides {
            let size = value.element.and_then(|element| import::data_type(element).ok()).map_or(0, element_bytes);
            let (bytes, after) = rest.split_at(dims.iter().product::<i64>() as usize * size);
            rest = after;
            let bytes: Vec<u8> = bytes.iter().map(|byte| *byte as u8).collect();
            contents.push((*index, Constant { dims: dims.to_vec(), bytes: Some(bytes.into()), token: None }));
        }
        extents.push(dims.into());
    }
    (extents, contents)
}

/// The kernels of this process.
static KERNELS: Handles<Kernel> = Handles::new("compute function");

// SAFETY: the struct is `repr(C)` and begins with its callbacks.
unsafe impl Held for Kernel {
    type Callbacks = NodeComputeInfo;

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

unsafe extern "system" fn create_state(
    this: *mut NodeComputeInfo,
    _context: *mut ort::NodeComputeContext,
    state: *mut *mut c_void,
) -> *mut Status {
    KERNELS.with(this, |_| {
        // The kernel holds all there is; the state only must not look like none.
        // SAFETY: the place is the runtime's, if it is one.
        unsafe { Place::new(state, "the place for the state") }?.set(this.cast());
        Ok(())
    })
}

unsafe extern "system" fn compute(
    this: *mut NodeComputeInfo,
    _state: *mut c_void,
    context: *mut ort::KernelContext,
) -> *mut Status {
    KERNELS.with(this, |kernel| {
        if context.is_null() {
            return Err(Error::invalid(format!("{}: the kernel context is null", crate::NAME_TEXT)));
        }
        // SAFETY: the context is the runtime's for this call.
        unsafe { kernel.run(context) }.map_err(|error| error.at(format_args!("{} ({})", kernel.name, crate::NAME_TEXT)))
    })
}

unsafe extern "system" fn release_state(_this: *mut NodeComputeInfo, _state: *mut c_void) {}
