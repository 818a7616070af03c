//! The HIP of this process as tests use it, and the controls of the emulated GPU's runtime.
//!
//! The functions of `emulated_gpu/include/hipemu_control.h` exist only in the emulated runtime: [`Hip::control`] tells.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::path::Path;
use std::sync::OnceLock;

use hipdnn_schemas::TensorDef;
use hipdnn_sdk_bindings::hip::LIBRARY_NAMES;
use hipdnn_sdk_bindings::hipdnn::plugin::DeviceBuffer;
use hipdnn_sdk_bindings::library::{Library, LibraryError};

use crate::tensor::HostTensor;

/// A HIP call that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HipError {
    /// The function.
    pub call: &'static str,
    /// `hipError_t`.
    pub code: c_int,
    /// HIP's own text.
    pub text: String,
}

impl fmt::Display for HipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.call, self.code, self.text)
    }
}

impl std::error::Error for HipError {}

macro_rules! functions {
    ($(#[$meta:meta])* $table:ident { $($field:ident $symbol:literal ($($argument:ty),*) $(-> $result:ty)?;)* }) => {
        $(#[$meta])*
        struct $table { $($field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)* }

        impl $table {
            /// # Safety
            /// The library's functions of these names have these signatures, and the library outlives the table.
            unsafe fn resolve(library: &Library) -> Result<$table, LibraryError> {
                Ok($table { $(
                    // SAFETY: the caller's promise.
                    $field: unsafe {
                        library.symbol(const {
                            match CStr::from_bytes_with_nul(concat!($symbol, "\0").as_bytes()) {
                                Ok(name) => name,
                                Err(_) => panic!("a symbol has no NUL inside"),
                            }
                        })
                    }?,
                )* })
            }
        }
    };
}

functions! {
    /// Functions of `hip_runtime_api.h` that tests need.
    Functions {
        get_device_count "hipGetDeviceCount" (*mut c_int) -> c_int;
        get_device "hipGetDevice" (*mut c_int) -> c_int;
        set_device "hipSetDevice" (c_int) -> c_int;
        get_error_string "hipGetErrorString" (c_int) -> *const c_char;
        malloc "hipMalloc" (*mut *mut c_void, usize) -> c_int;
        free "hipFree" (*mut c_void) -> c_int;
        memcpy "hipMemcpy" (*mut c_void, *const c_void, usize, c_int) -> c_int;
        device_synchronize "hipDeviceSynchronize" () -> c_int;
        stream_create "hipStreamCreateWithFlags" (*mut *mut c_void, c_uint) -> c_int;
        stream_destroy "hipStreamDestroy" (*mut c_void) -> c_int;
        stream_synchronize "hipStreamSynchronize" (*mut c_void) -> c_int;
        stream_begin_capture "hipStreamBeginCapture" (*mut c_void, c_int) -> c_int;
        stream_end_capture "hipStreamEndCapture" (*mut c_void, *mut *mut c_void) -> c_int;
        graph_instantiate "hipGraphInstantiate" (*mut *mut c_void, *mut c_void, *mut *mut c_void, *mut c_char, usize) -> c_int;
        graph_launch "hipGraphLaunch" (*mut c_void, *mut c_void) -> c_int;
        graph_exec_destroy "hipGraphExecDestroy" (*mut c_void) -> c_int;
        graph_destroy "hipGraphDestroy" (*mut c_void) -> c_int;
        get_last_error "hipGetLastError" () -> c_int;
    }
}

functions! {
    /// `hipemu_control.h`.
    ControlFunctions {
        get_counters "hipemu_get_counters" (*mut Counters, usize);
        call_count "hipemu_call_count" (*const c_char) -> u64;
        fail_call "hipemu_fail_call" (*const c_char, u64, c_int);
        fail_clear "hipemu_fail_clear" ();
        set_memory_limit "hipemu_set_memory_limit" (u64, u64);
        hold_streams "hipemu_hold_streams" (c_int);
        set_delay "hipemu_set_delay" (u64, u64);
        skip_launches "hipemu_skip_launches" (c_int);
        trace "hipemu_trace" (*const c_char) -> c_int;
        trace_mark "hipemu_trace_mark" (*const c_char);
        clear_errors "hipemu_clear_errors" ();
    }
}

/// `struct hipemu_counters`: live objects, and operations since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "the names are the header's")]
pub struct Counters {
    pub live_streams: u64,
    pub live_events: u64,
    pub live_allocations: u64,
    pub live_bytes: u64,
    pub live_host_allocations: u64,
    pub live_modules: u64,
    pub live_graphs: u64,
    pub live_graph_execs: u64,
    pub calls: u64,
    pub launches: u64,
    pub kernels_run: u64,
    pub kernels_failed: u64,
    pub copies: u64,
    pub fills: u64,
    pub waits: u64,
    pub injected_failures: u64,
    pub violations: u64,
}

impl Counters {
    /// Live objects, by name.
    pub fn live(&self) -> [(&'static str, u64); 8] {
        [
            ("streams", self.live_streams),
            ("events", self.live_events),
            ("allocations", self.live_allocations),
            ("bytes", self.live_bytes),
            ("host allocations", self.live_host_allocations),
            ("modules", self.live_modules),
            ("graphs", self.live_graphs),
            ("graph execs", self.live_graph_execs),
        ]
    }
}

/// The HIP runtime of this process, open until it ends.
pub struct Hip {
    functions: Functions,
    control: Option<Control>,
    // The tables above are good as long as it is open.
    _library: Library,
}

/// Control functions that only the emulated runtime has.
pub struct Control {
    functions: ControlFunctions,
}

impl Hip {
    /// The HIP runtime that the dynamic loader finds, which is the one that the plugin finds.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn get() -> Result<&'static Hip, String> {
        static OPENED: OnceLock<Result<Hip, String>> = OnceLock::new();
        OPENED.get_or_init(Hip::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Hip, String> {
        // SAFETY: these are HIP's own names; loading it is what every user of it does. It stays in a static.
        let library =
            unsafe { Library::open("HIP (libamdhip64.so)", LIBRARY_NAMES) }.map_err(|error| error.to_string())?;
        // SAFETY: the signatures are those of `hip_runtime_api.h`, and the library stays beside the table.
        let functions = unsafe { Functions::resolve(&library) }.map_err(|error| error.to_string())?;
        // SAFETY: the signatures are those of `hipemu_control.h`, and the library stays beside the table.
        let control = unsafe { ControlFunctions::resolve(&library) }.ok().map(|functions| Control { functions });
        Ok(Hip { functions, control, _library: library })
    }

    /// The emulated runtime's own functions, if this is the emulated runtime.
    pub fn control(&self) -> Option<&Control> {
        self.control.as_ref()
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), HipError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: HIP takes any number here.
        let text = unsafe { (self.functions.get_error_string)(code) };
        let text = if text.is_null() {
            "no text".to_owned()
        } else {
            // SAFETY: HIP's texts are static and end in NUL.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(HipError { call, code, text })
    }

    /// Number of devices.
    ///
    /// # Errors
    /// HIP's, among them that there is none.
    pub fn device_count(&self) -> Result<c_int, HipError> {
        let mut count = 0;
        // SAFETY: a place for one number.
        self.check("hipGetDeviceCount", unsafe { (self.functions.get_device_count)(&mut count) })?;
        Ok(count)
    }

    /// The calling thread's device.
    ///
    /// # Errors
    /// HIP's.
    pub fn device(&self) -> Result<c_int, HipError> {
        let mut device = -1;
        // SAFETY: a place for one number.
        self.check("hipGetDevice", unsafe { (self.functions.get_device)(&mut device) })?;
        Ok(device)
    }

    /// Makes a device the calling thread's.
    ///
    /// # Errors
    /// HIP's.
    pub fn set_device(&self, device: c_int) -> Result<(), HipError> {
        // SAFETY: HIP checks the number.
        self.check("hipSetDevice", unsafe { (self.functions.set_device)(device) })
    }

    /// Waits for all work of the calling thread's device.
    ///
    /// # Errors
    /// HIP's, or that of the work.
    pub fn synchronize(&self) -> Result<(), HipError> {
        // SAFETY: the call has no arguments.
        self.check("hipDeviceSynchronize", unsafe { (self.functions.device_synchronize)() })
    }

    /// The calling thread's last error, which is forgotten.
    pub fn take_last_error(&self) -> c_int {
        // SAFETY: the call has no arguments.
        unsafe { (self.functions.get_last_error)() }
    }

    /// Memory on the calling thread's device.
    ///
    /// # Errors
    /// HIP's.
    pub fn memory(&'static self, bytes: usize) -> Result<DeviceMemory, HipError> {
        let mut address = std::ptr::null_mut();
        // SAFETY: a place for one address.
        self.check("hipMalloc", unsafe { (self.functions.malloc)(&mut address, bytes.max(1)) })?;
        Ok(DeviceMemory { hip: self, address: address.cast(), bytes })
    }

    /// A stream that does not wait for the default stream.
    ///
    /// # Errors
    /// HIP's.
    pub fn stream(&'static self) -> Result<Stream, HipError> {
        const NON_BLOCKING: c_uint = 1;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a place for one handle.
        self.check("hipStreamCreateWithFlags", unsafe { (self.functions.stream_create)(&mut raw, NON_BLOCKING) })?;
        Ok(Stream { hip: self, raw })
    }
}

impl Control {
    /// The counters now.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        // SAFETY: the structure has the header's layout and its size is given.
        unsafe { (self.functions.get_counters)(&mut counters, size_of::<Counters>()) };
        counters
    }

    /// Number of calls of a function since the process began; `*` for all together.
    pub fn call_count(&self, function: &CStr) -> u64 {
        // SAFETY: a text that ends in NUL.
        unsafe { (self.functions.call_count)(function.as_ptr()) }
    }

    /// Makes the `nth` call from now of a function (`*`: of any; `kernel`: execution of a kernel) give this error.
    pub fn fail_call(&self, function: &CStr, nth: u64, error: c_int) {
        // SAFETY: a text that ends in NUL.
        unsafe { (self.functions.fail_call)(function.as_ptr(), nth, error) }
    }

    /// Takes back every failure that has not happened yet.
    pub fn fail_clear(&self) {
        // SAFETY: the call has no arguments.
        unsafe { (self.functions.fail_clear)() }
    }

    /// At most so many bytes a device, and so many in one piece; 0: no such limit.
    pub fn set_memory_limit(&self, total: u64, single: u64) {
        // SAFETY: two numbers.
        unsafe { (self.functions.set_memory_limit)(total, single) }
    }

    /// While held, streams take work and run none of it.
    pub fn hold_streams(&self, hold: bool) {
        // SAFETY: a number.
        unsafe { (self.functions.hold_streams)(hold.into()) }
    }

    /// Before each piece of work a stream waits up to so many microseconds, at random.
    pub fn set_delay(&self, most_us: u64, seed: u64) {
        // SAFETY: two numbers.
        unsafe { (self.functions.set_delay)(most_us, seed) }
    }

    /// While set, launches succeed and run nothing.
    pub fn skip_launches(&self, skip: bool) {
        // SAFETY: a number.
        unsafe { (self.functions.skip_launches)(skip.into()) }
    }

    /// From now on every call is written to this file.
    ///
    /// # Panics
    /// If the file can't be written.
    pub fn trace_to(&self, path: &Path) {
        let text = CString::new(path.as_os_str().as_encoded_bytes()).expect("a path has no NUL");
        // SAFETY: a text that ends in NUL.
        assert_eq!(unsafe { (self.functions.trace)(text.as_ptr()) }, 0, "{} can't be written", path.display());
    }

    /// Ends the trace.
    pub fn trace_off(&self) {
        // SAFETY: null stands for no file.
        unsafe { (self.functions.trace)(std::ptr::null()) };
    }

    /// Writes a line of its own to the trace.
    pub fn mark(&self, text: &CStr) {
        // SAFETY: a text that ends in NUL.
        unsafe { (self.functions.trace_mark)(text.as_ptr()) }
    }

    /// Forgets errors that stick to devices.
    pub fn clear_errors(&self) {
        // SAFETY: the call has no arguments.
        unsafe { (self.functions.clear_errors)() }
    }
}

/// An allocation on a device.
pub struct DeviceMemory {
    hip: &'static Hip,
    address: *mut u8,
    bytes: usize,
}

// SAFETY: device memory belongs to no thread.
unsafe impl Send for DeviceMemory {}
// SAFETY: the shared calls only read the address, and copies are ordered by HIP.
unsafe impl Sync for DeviceMemory {}

const HOST_TO_DEVICE: c_int = 1;
const DEVICE_TO_HOST: c_int = 2;

impl DeviceMemory {
    /// The first byte.
    pub fn address(&self) -> *mut u8 {
        self.address
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies to the device, and waits for it.
    ///
    /// # Errors
    /// HIP's.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn upload(&self, offset: usize, from: &[u8]) -> Result<(), HipError> {
        assert!(offset + from.len() <= self.bytes, "the memory is too small");
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: the range is inside of the allocation, as was just checked.
        let to = unsafe { self.address.add(offset) };
        // SAFETY: both sides have that many bytes.
        let code = unsafe { (self.hip.functions.memcpy)(to.cast(), from.as_ptr().cast(), from.len(), HOST_TO_DEVICE) };
        self.hip.check("hipMemcpy", code)
    }

    /// Copies from the device, and waits for it.
    ///
    /// # Errors
    /// HIP's.
    ///
    /// # Panics
    /// If there are not that many bytes.
    pub fn download(&self, offset: usize, into: &mut [u8]) -> Result<(), HipError> {
        assert!(offset + into.len() <= self.bytes, "the memory is too small");
        if into.is_empty() {
            return Ok(());
        }
        // SAFETY: the range is inside of the allocation, as was just checked.
        let from = unsafe { self.address.add(offset) };
        // SAFETY: both sides have that many bytes.
        let code =
            unsafe { (self.hip.functions.memcpy)(into.as_mut_ptr().cast(), from.cast(), into.len(), DEVICE_TO_HOST) };
        self.hip.check("hipMemcpy", code)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: the allocation is live and freed once; HIP waits for work that uses it.
        let code = unsafe { (self.hip.functions.free)(self.address.cast()) };
        if let Err(error) = self.hip.check("hipFree", code)
            && !std::thread::panicking()
        {
            panic!("{error}");
        }
    }
}

/// A stream.
pub struct Stream {
    hip: &'static Hip,
    raw: *mut c_void,
}

// SAFETY: streams belong to no thread, and HIP's calls on them lock.
unsafe impl Send for Stream {}
// SAFETY: the handle never changes, and HIP's calls on a stream lock.
unsafe impl Sync for Stream {}

impl Stream {
    /// The raw stream.
    pub fn raw(&self) -> *mut c_void {
        self.raw
    }

    /// Waits for its work.
    ///
    /// # Errors
    /// HIP's, or that of the work.
    pub fn synchronize(&self) -> Result<(), HipError> {
        // SAFETY: the stream is live.
        self.hip.check("hipStreamSynchronize", unsafe { (self.hip.functions.stream_synchronize)(self.raw) })
    }

    /// Captures what `body` gives the stream, in the mode that refuses unsafe calls of every thread.
    ///
    /// # Errors
    /// HIP's; what `body` did has then no effect.
    pub fn capture<T>(&self, body: impl FnOnce() -> T) -> Result<(CapturedGraph, T), HipError> {
        const GLOBAL: c_int = 0;
        // SAFETY: the stream is live.
        let code = unsafe { (self.hip.functions.stream_begin_capture)(self.raw, GLOBAL) };
        self.hip.check("hipStreamBeginCapture", code)?;
        let value = body();
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream is live, and there is a place for one handle.
        let code = unsafe { (self.hip.functions.stream_end_capture)(self.raw, &mut graph) };
        self.hip.check("hipStreamEndCapture", code)?;
        let mut captured = CapturedGraph { hip: self.hip, graph, exec: std::ptr::null_mut() };
        // SAFETY: the graph is live, the exec has a place; no error text is wanted.
        let code = unsafe {
            let (nothing, text) = (std::ptr::null_mut(), std::ptr::null_mut());
            (self.hip.functions.graph_instantiate)(&mut captured.exec, graph, nothing, text, 0)
        };
        self.hip.check("hipGraphInstantiate", code)?;
        Ok((captured, value))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream is live and destroyed once.
        let code = unsafe { (self.hip.functions.stream_destroy)(self.raw) };
        if let Err(error) = self.hip.check("hipStreamDestroy", code)
            && !std::thread::panicking()
        {
            panic!("{error}");
        }
    }
}

/// Captured work, ready to be launched.
pub struct CapturedGraph {
    hip: &'static Hip,
    graph: *mut c_void,
    exec: *mut c_void,
}

impl CapturedGraph {
    /// Gives the work to a stream.
    ///
    /// # Errors
    /// HIP's.
    pub fn launch(&self, stream: &Stream) -> Result<(), HipError> {
        // SAFETY: both are live.
        self.hip.check("hipGraphLaunch", unsafe { (self.hip.functions.graph_launch)(self.exec, stream.raw) })
    }
}

impl Drop for CapturedGraph {
    fn drop(&mut self) {
        if !self.exec.is_null() {
            // SAFETY: it is live and destroyed once.
            unsafe { (self.hip.functions.graph_exec_destroy)(self.exec) };
        }
        if !self.graph.is_null() {
            // SAFETY: the graph is live and destroyed once.
            unsafe { (self.hip.functions.graph_destroy)(self.graph) };
        }
    }
}

/// Bytes of guard on each side of outputs and workspaces.
const GUARD: usize = 256;
const GUARD_BYTE: u8 = 0xa5;

/// Device memory between guard bytes.
pub struct GuardedMemory {
    memory: DeviceMemory,
    bytes: usize,
    before: usize,
}

impl GuardedMemory {
    /// `bytes` bytes of `fill` with guards on both sides; `shift` moves the first byte away from the allocation's alignment.
    ///
    /// # Errors
    /// HIP's.
    pub fn new(hip: &'static Hip, bytes: usize, shift: usize, fill: u8) -> Result<GuardedMemory, HipError> {
        let before = GUARD + shift;
        let memory = hip.memory(before + bytes + GUARD)?;
        let guarded = GuardedMemory { memory, bytes, before };
        guarded.reset(fill)?;
        Ok(guarded)
    }

    /// Fills it anew, guards and all.
    ///
    /// # Errors
    /// HIP's.
    pub fn reset(&self, fill: u8) -> Result<(), HipError> {
        let mut all = vec![GUARD_BYTE; self.memory.bytes()];
        all[self.before..self.before + self.bytes].fill(fill);
        self.memory.upload(0, &all)
    }

    /// Puts bytes between the guards.
    ///
    /// # Errors
    /// HIP's.
    pub fn upload(&self, bytes: &[u8]) -> Result<(), HipError> {
        assert!(bytes.len() <= self.bytes, "{} bytes are more than {}", bytes.len(), self.bytes);
        self.memory.upload(self.before, bytes)
    }

    /// The first byte between the guards.
    pub fn address(&self) -> *mut u8 {
        // SAFETY: the guard is inside of the allocation.
        unsafe { self.memory.address().add(self.before) }
    }

    /// The bytes between the guards.
    ///
    /// # Errors
    /// HIP's error, or the guard that was written to.
    pub fn read(&self) -> Result<Vec<u8>, String> {
        let mut all = vec![0; self.memory.bytes()];
        self.memory.download(0, &mut all).map_err(|error| error.to_string())?;
        let end = self.before + self.bytes;
        let written = |range: std::ops::Range<usize>| all[range].iter().position(|byte| *byte != GUARD_BYTE);
        if let Some(at) = written(0..self.before) {
            return Err(format!("written {} bytes before the memory", self.before - at));
        }
        if let Some(at) = written(end..all.len()) {
            return Err(format!("written {at} bytes behind the memory of {} bytes", self.bytes));
        }
        Ok(all[self.before..end].to_vec())
    }
}

/// A tensor on the device, with a copy on the host.
pub struct DeviceTensor {
    host: HostTensor,
    memory: Place,
}

enum Place {
    /// An input: to the end of its allocation, so that a read behind it is a bad address.
    Input { memory: DeviceMemory, shift: usize },
    /// An output: guards show writes outside of it. It may be an input as well, with these values before.
    Output { memory: GuardedMemory, before: Option<Box<HostTensor>> },
}

impl DeviceTensor {
    /// An input with the host tensor's values, `shift` bytes away from the allocation's alignment.
    ///
    /// # Errors
    /// HIP's.
    pub fn input(hip: &'static Hip, host: HostTensor, shift: usize) -> Result<DeviceTensor, HipError> {
        let memory = hip.memory(shift + host.bytes().len())?;
        memory.upload(shift, host.bytes())?;
        Ok(DeviceTensor { host, memory: Place::Input { memory, shift } })
    }

    /// An output of bytes `0xff`, of which no finite number is made.
    ///
    /// # Errors
    /// HIP's.
    pub fn output(hip: &'static Hip, def: &TensorDef, shift: usize) -> Result<DeviceTensor, HipError> {
        let host = HostTensor::blank(def);
        let memory = GuardedMemory::new(hip, host.bytes().len(), shift, 0xff)?;
        Ok(DeviceTensor { host, memory: Place::Output { memory, before: None } })
    }

    /// An output in the memory of an input that has these values.
    ///
    /// # Errors
    /// HIP's.
    pub fn in_place(hip: &'static Hip, def: &TensorDef, input: HostTensor) -> Result<DeviceTensor, HipError> {
        let host = HostTensor::blank(def);
        let memory = GuardedMemory::new(hip, host.bytes().len(), 0, 0xff)?;
        let tensor = DeviceTensor { host, memory: Place::Output { memory, before: Some(Box::new(input)) } };
        tensor.reset()?;
        Ok(tensor)
    }

    /// The values on the host: of an output, those of the last [`DeviceTensor::download`].
    pub fn host(&self) -> &HostTensor {
        &self.host
    }

    /// The entries of a variant pack: one, or two where an output is an input as well.
    pub fn buffers(&self) -> Vec<DeviceBuffer> {
        let own = self.buffer();
        let other = match &self.memory {
            Place::Output { before: Some(input), .. } => Some(DeviceBuffer { uid: input.def().uid.0, ..own }),
            _ => None,
        };
        [own].into_iter().chain(other).collect()
    }

    /// The entry of a variant pack.
    pub fn buffer(&self) -> DeviceBuffer {
        let address = match &self.memory {
            // SAFETY: the shift is inside of the allocation, or at its end where the tensor has no bytes.
            Place::Input { memory, shift } => unsafe { memory.address().add(*shift) },
            Place::Output { memory, .. } => memory.address(),
        };
        DeviceBuffer { uid: self.host.def().uid.0, ptr: address.cast() }
    }

    /// Restores an output's first contents; an input stays.
    ///
    /// # Errors
    /// HIP's.
    pub fn reset(&self) -> Result<(), HipError> {
        match &self.memory {
            Place::Input { .. } => Ok(()),
            Place::Output { memory, before } => {
                memory.reset(0xff)?;
                before.as_ref().map_or(Ok(()), |input| memory.upload(input.bytes()))
            }
        }
    }

    /// Brings an output's values to the host, or checks that an input still has its own.
    ///
    /// # Errors
    /// HIP's error, or the memory that must not be written but was.
    pub fn download(&mut self) -> Result<(), String> {
        let uid = self.host.def().uid.0;
        match &self.memory {
            Place::Input { memory, shift } => {
                let mut now = vec![0; self.host.bytes().len()];
                memory.download(*shift, &mut now).map_err(|error| error.to_string())?;
                if now != self.host.bytes() {
                    return Err(format!("input {uid} was written to"));
                }
            }
            Place::Output { memory, .. } => {
                let now = memory.read().map_err(|problem| format!("output {uid}: {problem}"))?;
                self.host.bytes_mut().copy_from_slice(&now);
                if self.host.gaps_written() {
                    return Err(format!("output {uid}: written between the elements"));
                }
            }
        }
        Ok(())
    }
}
