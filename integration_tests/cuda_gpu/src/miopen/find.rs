//! The search: cuDNN's ways to compute a problem, timed on scratch memory, best first.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::sys;
use hipdnn_sdk_bindings::hip::hipStream_t;
use hipdnn_sdk_bindings::miopen::{
    miopenConvolutionDescriptor_t, miopenDataType_t, miopenFindOptions_t, miopenFindResultsOrder_t, miopenHandle_t,
    miopenProblem_t, miopenProblemDirection_t, miopenSolution_t, miopenStatus_t, miopenTensorArgumentId_t,
    miopenTensorDescriptor_t,
};

use super::backend::Follower;
use super::cudnn::{self, Epilogue, Way};
use super::descriptor::{Convolution, Tensor, convolution, tensor};
use super::handle::{Handle, handle};
use super::solution::{Addresses, Direction, Problem};
use super::{Result, borrow, borrow_mut, from_hip, give, miopen, put};
use crate::device;
use crate::status::check;

/// Device memory for as long as something is timed.
struct Memory(*mut c_void);

impl Memory {
    /// Memory whose 16-bit numbers are small ones: what matrix instructions multiply has to do with their speed.
    fn new(bytes: usize) -> Result<Memory> {
        const SMALL: u8 = 0x2c;
        let mut made = 0;
        // SAFETY: a place for one address.
        check(unsafe { sys::cuMemAlloc_v2(&mut made, bytes.max(1)) }).map_err(from_hip)?;
        let memory = Memory(made as *mut c_void);
        // SAFETY: the memory is of so many bytes.
        check(unsafe { sys::cuMemsetD8_v2(made, SMALL, bytes.max(1)) }).map_err(from_hip)?;
        Ok(memory)
    }

    fn of(tensor: &Tensor) -> Result<Memory> {
        let width = if tensor.data_type == miopenDataType_t::miopenFloat { 4 } else { 2 };
        Memory::new(tensor.dims.iter().product::<usize>() * width)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `new` took it, and what was timed is over. There is nobody to tell an error.
        let _ = unsafe { sys::cuMemFree_v2(self.0 as sys::CUdeviceptr) };
    }
}

struct Event(sys::CUevent);

impl Event {
    fn new() -> Result<Event> {
        let mut made = null_mut();
        // SAFETY: a place for one handle.
        check(unsafe { sys::cuEventCreate(&mut made, 0) }).map_err(from_hip)?;
        Ok(Event(made))
    }

    fn record(&self, stream: hipStream_t) -> Result {
        // SAFETY: the event is alive; the stream is that of a handle in use.
        check(unsafe { sys::cuEventRecord(self.0, stream.cast()) }).map_err(from_hip)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: `new` made it, and nobody has it any more. There is nobody to tell an error.
        let _ = unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}

/// Bytes that are cleared before each measurement: so long that everything behind it is enqueued meanwhile, and no launch's own time counts.
const CLEARED_BYTES: usize = 256 << 20;

/// Milliseconds of the fastest of a few runs, each behind another one.
fn timed(stream: hipStream_t, cleared: &Memory, run: &dyn Fn() -> Result) -> Result<f32> {
    const RUNS: usize = 6;
    let (start, stop) = (Event::new()?, Event::new()?);
    // Loads code, and says whether it works at all.
    run()?;
    let mut least = f32::INFINITY;
    for _ in 0..RUNS {
        // SAFETY: the memory is as large; the stream is that of a handle in use.
        let status = unsafe { sys::cuMemsetD8Async(cleared.0 as sys::CUdeviceptr, 0, CLEARED_BYTES, stream.cast()) };
        check(status).map_err(from_hip)?;
        // In a network, operands are in the cache.
        run()?;
        start.record(stream)?;
        run()?;
        stop.record(stream)?;
        let mut milliseconds = 0.0;
        // SAFETY: the events are alive and recorded; a place for one number.
        unsafe {
            check(sys::cuEventSynchronize(stop.0)).map_err(from_hip)?;
            check(sys::cuEventElapsedTime_v2(&mut milliseconds, start.0, stop.0)).map_err(from_hip)?;
        }
        least = least.min(milliseconds);
    }
    Ok(least)
}

/// A way, the bytes that it works in, and its time.
#[derive(Clone, Copy, Debug)]
struct Found {
    way: Way,
    workspace: usize,
    milliseconds: f32,
}

/// The time after which no further way is tried: some of cuDNN's engines take half a second to compile.
const SEARCH_TIME: Duration = Duration::from_secs(1);

/// Times ways, best first; what does not work is left out.
///
/// # Safety
/// The addresses but the workspace's are of device memory as large as the problem's tensors, and the bias has an element for each channel of
/// the result.
unsafe fn search(
    handle: &Handle,
    problem: &Problem<'_>,
    at: &Addresses,
    epilogue: Epilogue,
    ways: &[Way],
    limit: usize,
) -> Vec<Found> {
    let started = Instant::now();
    let Ok(cleared) = Memory::new(CLEARED_BYTES) else { return Vec::new() };
    let one = |way: &Way| {
        if started.elapsed() > SEARCH_TIME {
            return None;
        }
        let workspace = cudnn::workspace(handle, problem, *way, epilogue.follower).ok()?;
        if workspace > limit {
            return None;
        }
        let memory = Memory::new(workspace).ok()?;
        let at = Addresses { workspace: memory.0, workspace_bytes: workspace, ..*at };
        // SAFETY: the caller's promise; the workspace is as large as is wanted.
        let run = || unsafe { cudnn::run(handle, problem, &at, *way, epilogue) };
        let milliseconds = timed(handle.stream, &cleared, &run).ok()?;
        Some(Found { way: *way, workspace, milliseconds })
    };
    let mut found: Vec<Found> = ways.iter().filter_map(one).collect();
    found.sort_by(|a, b| a.milliseconds.total_cmp(&b.milliseconds));
    found
}

/// The fastest way to compute a convolution with what follows it; the answer is kept, so that it is the same again.
///
/// # Errors
/// If there is none.
pub(super) fn fastest_fused(handle: &Handle, problem: &Problem<'_>, follower: Follower) -> Result<Way> {
    static KNOWN: Mutex<Option<HashMap<String, Option<Way>>>> = Mutex::new(None);
    let none = miopenStatus_t::miopenStatusNotImplemented;
    let key = format!("{} {problem:?} {follower:?}", device::current());
    let known = |key: &str| {
        let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().and_then(|known| known.get(key).copied())
    };
    if let Some(known) = known(&key) {
        return known.ok_or(none);
    }
    // Where cuDNN has nothing at all, no memory is taken.
    cudnn::workspace(handle, problem, Way::Algorithm(cudnn::WITH_INDICES), follower)?;
    let (x, w, y) = (Memory::of(problem.x)?, Memory::of(problem.w)?, Memory::of(problem.y)?);
    // The width of the widest elements.
    let bias = Memory::new(problem.y.dims[1] * 4)?;
    let at = Addresses { x: x.0, w: w.0, y: y.0, workspace: null_mut(), workspace_bytes: 0 };
    let epilogue = Epilogue { follower, bias: bias.0 };
    // SAFETY: the memory was taken for these tensors.
    let found = unsafe { search(handle, problem, &at, epilogue, &Way::all(Direction::Forward), usize::MAX) };
    let fastest = found.first().map(|found| found.way);
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(key, fastest);
    fastest.ok_or(none)
}

/// A problem to search for, under construction.
struct Wanted {
    direction: Direction,
    convolution: Convolution,
    /// x, w and y.
    tensors: [Option<Tensor>; 3],
}

/// What is said about a search.
struct Options {
    tuning: bool,
    limit: usize,
    /// Of x, w and y.
    tensors: [*mut c_void; 3],
}

/// A tensor's place among x, w and y.
fn place(id: miopenTensorArgumentId_t) -> Result<usize> {
    match id {
        miopenTensorArgumentId_t::miopenTensorConvolutionX => Ok(0),
        miopenTensorArgumentId_t::miopenTensorConvolutionW => Ok(1),
        miopenTensorArgumentId_t::miopenTensorConvolutionY => Ok(2),
        _ => Err(miopenStatus_t::miopenStatusNotImplemented),
    }
}

/// A solution that a search gave.
struct Solution {
    number: u64,
    found: Found,
}

miopen! {
    fn miopenCreateConvProblem(
        place: *mut miopenProblem_t, c: miopenConvolutionDescriptor_t, direction: miopenProblemDirection_t,
    ) {
        let direction = match direction {
            miopenProblemDirection_t::miopenProblemDirectionForward => Direction::Forward,
            miopenProblemDirection_t::miopenProblemDirectionBackward => Direction::Data,
            miopenProblemDirection_t::miopenProblemDirectionBackwardWeights => Direction::Weights,
            _ => return Err(miopenStatus_t::miopenStatusNotImplemented),
        };
        give(place, Wanted { direction, convolution: convolution(c)?.clone(), tensors: [const { None }; 3] })
    }

    fn miopenDestroyProblem(raw: miopenProblem_t) {
        drop(Box::from_raw(borrow_mut(raw.cast::<Wanted>())?));
        Ok(())
    }

    fn miopenSetProblemTensorDescriptor(
        raw: miopenProblem_t, id: miopenTensorArgumentId_t, descriptor: miopenTensorDescriptor_t,
    ) {
        borrow_mut(raw.cast::<Wanted>())?.tensors[place(id)?] = Some(tensor(descriptor)?.clone());
        Ok(())
    }

    fn miopenCreateFindOptions(place: *mut miopenFindOptions_t) {
        give(place, Options { tuning: false, limit: usize::MAX, tensors: [null_mut(); 3] })
    }

    fn miopenDestroyFindOptions(raw: miopenFindOptions_t) {
        drop(Box::from_raw(borrow_mut(raw.cast::<Options>())?));
        Ok(())
    }

    fn miopenSetFindOptionTuning(raw: miopenFindOptions_t, value: c_int) {
        borrow_mut(raw.cast::<Options>())?.tuning = value != 0;
        Ok(())
    }

    fn miopenSetFindOptionResultsOrder(raw: miopenFindOptions_t, order: miopenFindResultsOrder_t) {
        borrow_mut(raw.cast::<Options>())?;
        match order {
            miopenFindResultsOrder_t::miopenFindResultsOrderByTime => Ok(()),
            _ => Err(miopenStatus_t::miopenStatusNotImplemented),
        }
    }

    fn miopenSetFindOptionWorkspaceLimit(raw: miopenFindOptions_t, limit: usize) {
        borrow_mut(raw.cast::<Options>())?.limit = limit;
        Ok(())
    }

    fn miopenSetFindOptionPreallocatedTensor(raw: miopenFindOptions_t, id: miopenTensorArgumentId_t, at: *mut c_void) {
        borrow_mut(raw.cast::<Options>())?.tensors[place(id)?] = at;
        Ok(())
    }

    fn miopenFindSolutions(
        raw: miopenHandle_t, wanted: miopenProblem_t, options: miopenFindOptions_t, solutions: *mut miopenSolution_t,
        count: *mut usize, most: usize,
    ) {
        device::enter().map_err(from_hip)?;
        let (wanted, options): (&Wanted, &Options) = (borrow(wanted.cast())?, borrow(options.cast())?);
        let ([Some(x), Some(w), Some(y)], [x_at, w_at, y_at]) = (&wanted.tensors, options.tensors) else {
            return Err(miopenStatus_t::miopenStatusBadParm);
        };
        // MIOpen would take memory of its own for what is not given.
        if [x_at, w_at, y_at].iter().any(|at| at.is_null()) {
            return Err(miopenStatus_t::miopenStatusNotImplemented);
        }
        let problem = Problem::new(wanted.direction, x, w, y, &wanted.convolution)?;
        let at = Addresses { x: x_at, w: w_at, y: y_at, workspace: null_mut(), workspace_bytes: 0 };
        let mut ways = Way::all(wanted.direction);
        // What MIOpen tunes are its kernels' parameters: here, cuDNN's engines beside what it takes by itself.
        ways.retain(|way| options.tuning || matches!(way, Way::Algorithm(_)));
        let found = search(handle(raw)?, &problem, &at, Epilogue::NONE, &ways, options.limit);
        let given = found.len().min(most);
        for (index, found) in found.into_iter().take(given).enumerate() {
            give(solutions.add(index), Solution { number: wanted.direction.number(found.way), found })?;
        }
        put(count, given)
    }

    fn miopenDestroySolution(raw: miopenSolution_t) {
        drop(Box::from_raw(borrow_mut(raw.cast::<Solution>())?));
        Ok(())
    }

    fn miopenGetSolutionSolverId(raw: miopenSolution_t, number: *mut u64) {
        put(number, borrow(raw.cast::<Solution>())?.number)
    }

    fn miopenGetSolutionWorkspaceSize(raw: miopenSolution_t, bytes: *mut usize) {
        put(bytes, borrow(raw.cast::<Solution>())?.found.workspace)
    }

    fn miopenGetSolutionTime(raw: miopenSolution_t, milliseconds: *mut f32) {
        put(milliseconds, borrow(raw.cast::<Solution>())?.found.milliseconds)
    }
}
