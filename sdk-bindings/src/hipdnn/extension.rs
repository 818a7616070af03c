//! Extension of hipDNN's plugin ABI by this project's engine plugin: a table of functions behind one exported symbol.
//!
//! A client of any backend finds the plugin's file by `hipdnnGetLoadedEnginePluginPaths_ext`, opens it once more without
//! loading it, and looks [`SYMBOL`] up. `hipdnn_rs_extension.h` is the same for C, with the contract in full.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;

use super::plugin::{PluginStatus, StreamPtr};

/// The exported function: a [`GetExtension`].
pub const SYMBOL: &CStr = c"hipdnnRsGetExtension";

/// The newest version of [`Extension`]. A version has what older ones have, at the same places.
pub const VERSION: u32 = 4;

/// Gives the table of at least this version; `NOT_APPLICABLE` where the plugin is older.
pub type GetExtension = unsafe extern "C" fn(version: u32, extension: *mut *const Extension) -> PluginStatus;

/// `hipdnnRsExtension_t`: valid as long as the plugin is loaded.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Extension {
    /// Version of the plugin's table.
    pub version: u32,
    /// Since version 1: lends executions by the calling thread a parallel-for, until something else is lent.
    pub lend_parallel_for: unsafe extern "C" fn(lent: *const ParallelFor, before: *mut ParallelFor) -> PluginStatus,
    /// Since version 1: lends plan builds by the calling thread the contents of constants, until others are lent.
    pub lend_constants: unsafe extern "C" fn(lent: *const Constants, before: *mut Constants) -> PluginStatus,
    /// Since version 2: sets the memory of the tensors of handles that the calling thread makes from now on.
    pub set_handle_memory: unsafe extern "C" fn(memory: MemoryKind, before: *mut MemoryKind) -> PluginStatus,
    /// Since version 3: sets the directory of the engines' caches for handles that the calling thread makes from now
    /// on; null leaves the choice to the environment.
    pub set_handle_cache: unsafe extern "C" fn(directory: *const c_char, before: *mut *const c_char) -> PluginStatus,
    /// Since version 4: records what executions by the calling thread launch, from here on.
    pub begin_recording: unsafe extern "C" fn() -> PluginStatus,
    /// Since version 4: ends that; gives the number of executions that were recorded, and what replays them, or null if
    /// one of them did what no launch repeats.
    pub end_recording: unsafe extern "C" fn(executions: *mut usize, recording: *mut RecordingPtr) -> PluginStatus,
    /// Since version 4: repeats a recording's launches on a stream; where one fails, `execution` gets the number of its
    /// execution.
    pub replay: unsafe extern "C" fn(recording: RecordingPtr, stream: StreamPtr, execution: *mut usize) -> PluginStatus,
    /// Since version 4: destroys a recording.
    pub destroy_recording: unsafe extern "C" fn(recording: RecordingPtr) -> PluginStatus,
}

/// Opaque target of [`RecordingPtr`].
#[repr(C)]
#[derive(Debug)]
pub struct OpaqueRecording {
    _private: [u8; 0],
}

/// `hipdnnRsRecording_t`: the launches of several executions.
pub type RecordingPtr = *mut OpaqueRecording;

/// `hipdnnRsMemoryKind_t`: the memory that the tensors of a handle are in.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryKind(pub c_int);

impl MemoryKind {
    /// Unspecified: engines decide by the presence of a GPU in the process.
    pub const UNSPECIFIED: MemoryKind = MemoryKind(0);
    /// Memory that the CPU reads and writes.
    pub const HOST: MemoryKind = MemoryKind(1);
    /// Memory of the GPU of the handle's stream.
    pub const DEVICE: MemoryKind = MemoryKind(2);
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            MemoryKind::HOST => "host memory",
            MemoryKind::DEVICE => "device memory",
            _ => "memory of any kind",
        })
    }
}

/// `hipdnnRsConstant_t`: the contents behind a token of the knob `hipdnn_rs.constants`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// Ends in NUL.
    pub token: *const c_char,
    /// The first byte of the tensor.
    pub data: *const c_void,
    /// Its bytes.
    pub size: usize,
}

/// `hipdnnRsConstants_t`: several constants.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Constants {
    /// The first; may be null if there are none.
    pub constants: *const Constant,
    /// Number of constants.
    pub count: usize,
}

impl Constants {
    /// Nothing lent: constants are prepared at the first execution.
    pub const NONE: Constants = Constants { constants: std::ptr::null(), count: 0 };
}

/// One item of a parallel-for: `item` is below the number of items.
pub type Body = unsafe extern "C" fn(data: *mut c_void, item: usize);

/// Calls `body(data, item)` once for every `item` below `items`, in any order, on any threads, and returns when all are
/// done: 0, or anything else if some were left out.
pub type RunItems = unsafe extern "C" fn(context: *mut c_void, items: usize, body: Body, data: *mut c_void) -> c_int;

/// `hipdnnRsParallelFor_t`: a client's parallel-for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ParallelFor {
    /// `None` lends nothing.
    pub run: Option<RunItems>,
    /// First argument of `run`.
    pub context: *mut c_void,
}

impl ParallelFor {
    /// Nothing lent: the engine works on its own threads.
    pub const NONE: ParallelFor = ParallelFor { run: None, context: std::ptr::null_mut() };
}
