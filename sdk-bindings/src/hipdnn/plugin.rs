//! The C ABI between hipDNN's backend and an engine plugin: types, statuses and the types of the exported functions.
//!
//! The plugin exports these functions, the backend looks them up by name.

use std::ffi::{c_char, c_void};

pub use super::backend::Severity;

/// Pointee of `hipdnnEnginePluginHandle_t`.
#[repr(C)]
pub struct PluginHandle {
    _opaque: [u8; 0],
}

/// Pointee of `hipdnnEnginePluginExecutionContext_t`.
#[repr(C)]
pub struct ExecutionContext {
    _opaque: [u8; 0],
}

/// `hipdnnEnginePluginHandle_t`: a plugin's state for one hipDNN handle.
pub type PluginHandlePtr = *mut PluginHandle;
/// `hipdnnEnginePluginExecutionContext_t`: a built plan.
pub type ExecutionContextPtr = *mut ExecutionContext;
/// `hipStream_t`, opaque to everyone but HIP.
pub type StreamPtr = *mut c_void;

/// `hipdnnCallback_t`: the host's callback for a plugin's log lines.
pub type LogCallback = Option<unsafe extern "C" fn(severity: Severity, message: *const c_char)>;

/// The size of last-error text that hipDNN recommends, its NUL included.
pub const ERROR_STRING_MAX_LENGTH: usize = 2048;

/// `hipdnnPluginConstData_t`: borrowed bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ConstData {
    /// The first byte.
    pub ptr: *const c_void,
    /// Number of bytes.
    pub size: usize,
}

/// `hipdnnPluginDeviceBuffer_t`: one entry of a variant pack.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DeviceBuffer {
    /// Uid of the tensor.
    pub uid: i64,
    /// Its memory, or the host address of a scalar; null for an absent optional tensor.
    pub ptr: *mut c_void,
}

c_enum! {
    /// `hipdnnPluginStatus_t`.
    PluginStatus, "HIPDNN_PLUGIN_STATUS_" {
        SUCCESS = 0,
        BAD_PARAM = 1,
        INVALID_VALUE = 2,
        INTERNAL_ERROR = 3,
        ALLOC_FAILED = 4,
        /// The call was well-formed, and there is nothing to supply.
        NOT_APPLICABLE = 5,
        NOT_INITIALIZED = 6,
    }
}

c_enum! {
    /// `hipdnnPluginType_t`.
    PluginType, "HIPDNN_PLUGIN_TYPE_" {
        UNSPECIFIED = 0,
        ENGINE = 1,
        HEURISTIC = 2,
    }
}

c_enum! {
    /// The numbers of `EngineDetails.behavior_notes`.
    BehaviorNote, "HIPDNN_BEHAVIOR_NOTE_" {
        RUNTIME_COMPILATION = 0,
        REQUIRES_LAYOUT_TRANSFORM = 1,
        SUPPORTS_GRAPH_CAPTURE = 2,
        EXTERNAL_LIBRARY_DEPENDENCY = 3,
        SUPPORTS_EXECUTION_PLAN_SERIALIZATION = 4,
    }
}

/// The id of an engine: FNV-1a of its name's bytes, 64 bits, read as signed; 0 for no name.
pub const fn engine_id(name: &str) -> i64 {
    let bytes = name.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    if bytes.is_empty() { 0 } else { hash.cast_signed() }
}

/// Declares the type of each exported function.
macro_rules! functions {
    ($($(#[$meta:meta])* $name:ident: fn($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)?;)*) => {
        $($(#[$meta])* pub type $name = unsafe extern "C" fn($($arg: $type),*) $(-> $ret)?;)*
    };
}

functions! {
    /// `hipdnnPluginGetName`, `hipdnnPluginGetVersion` and `hipdnnPluginGetApiVersion`: text that the plugin owns.
    GetText: fn(text: *mut *const c_char) -> PluginStatus;
    /// `hipdnnPluginGetType`
    GetType: fn(plugin_type: *mut PluginType) -> PluginStatus;
    /// `hipdnnPluginGetLastErrorString`: never null text of the calling thread.
    GetLastErrorString: fn(text: *mut *const c_char);
    /// `hipdnnPluginSetLoggingCallback`
    SetLoggingCallback: fn(callback: LogCallback) -> PluginStatus;
    /// `hipdnnPluginSetLogLevel`
    SetLogLevel: fn(level: Severity) -> PluginStatus;
    /// `hipdnnEnginePluginGetAllEngineIds`
    GetAllEngineIds: fn(ids: *mut i64, max: u32, count: *mut u32) -> PluginStatus;
    /// `hipdnnEnginePluginGetEngineName`
    GetEngineName: fn(engine_id: i64, name: *mut *const c_char) -> PluginStatus;
    /// `hipdnnEnginePluginCreate`
    Create: fn(handle: *mut PluginHandlePtr) -> PluginStatus;
    /// `hipdnnEnginePluginDestroy`
    Destroy: fn(handle: PluginHandlePtr) -> PluginStatus;
    /// `hipdnnEnginePluginSetStream`
    SetStream: fn(handle: PluginHandlePtr, stream: StreamPtr) -> PluginStatus;
    /// `hipdnnEnginePluginGetApplicableEngineIds`
    GetApplicableEngineIds: fn(
        handle: PluginHandlePtr, graph: *const ConstData, ids: *mut i64, max: u32, count: *mut u32,
    ) -> PluginStatus;
    /// `hipdnnEnginePluginGetEngineDetails`
    GetEngineDetails: fn(
        handle: PluginHandlePtr, engine_id: i64, graph: *const ConstData, details: *mut ConstData,
    ) -> PluginStatus;
    /// `hipdnnEnginePluginDestroyEngineDetails`
    DestroyEngineDetails: fn(handle: PluginHandlePtr, details: *mut ConstData) -> PluginStatus;
    /// `hipdnnEnginePluginGetWorkspaceSize`
    GetWorkspaceSize: fn(
        handle: PluginHandlePtr, config: *const ConstData, graph: *const ConstData, bytes: *mut usize,
    ) -> PluginStatus;
    /// `hipdnnEnginePluginCreateExecutionContext`
    CreateExecutionContext: fn(
        handle: PluginHandlePtr, config: *const ConstData, graph: *const ConstData, context: *mut ExecutionContextPtr,
    ) -> PluginStatus;
    /// `hipdnnEnginePluginDestroyExecutionContext`
    DestroyExecutionContext: fn(handle: PluginHandlePtr, context: ExecutionContextPtr) -> PluginStatus;
    /// `hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext`
    GetWorkspaceSizeFromExecutionContext: fn(
        handle: PluginHandlePtr, context: ExecutionContextPtr, bytes: *mut usize,
    ) -> PluginStatus;
    /// `hipdnnEnginePluginExecuteOpGraph`
    ExecuteOpGraph: fn(
        handle: PluginHandlePtr, context: ExecutionContextPtr, workspace: *mut c_void, buffers: *const DeviceBuffer,
        count: u32,
    ) -> PluginStatus;
    /// `hipdnnEnginePluginExecuteOpGraphWithOverrides`
    ExecuteOpGraphWithOverrides: fn(
        handle: PluginHandlePtr, context: ExecutionContextPtr, workspace: *mut c_void, buffers: *const DeviceBuffer,
        count: u32, override_count: u32, override_uids: *const i64, override_lengths: *const u32,
        override_shapes: *const *const i64, override_strides: *const *const i64,
    ) -> PluginStatus;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_ids_are_the_published_ones() {
        for (name, id) in [
            ("a", 0xAF63_DC4C_8601_EC8C_u64),
            ("MIOPEN_ENGINE", 0x15B4_6865_C717_A122),
            ("MIOPEN_ENGINE_DETERMINISTIC", 0xA258_541A_6DAA_1DE3),
            ("HIPBLASLT_ENGINE", 0x79AE_B174_32D4_A22B),
            ("", 0),
        ] {
            assert_eq!(engine_id(name), id.cast_signed(), "{name}");
        }
    }

    #[test]
    fn layouts_are_those_of_the_c_headers() {
        assert_eq!((size_of::<ConstData>(), align_of::<ConstData>()), (16, 8));
        assert_eq!(std::mem::offset_of!(ConstData, size), 8);
        assert_eq!((size_of::<DeviceBuffer>(), align_of::<DeviceBuffer>()), (16, 8));
        assert_eq!(std::mem::offset_of!(DeviceBuffer, ptr), 8);
        assert_eq!(size_of::<PluginStatus>(), 4);
        assert_eq!(size_of::<LogCallback>(), size_of::<*const ()>());
        assert_eq!(PluginStatus::NOT_APPLICABLE.name(), Some("HIPDNN_PLUGIN_STATUS_NOT_APPLICABLE"));
        assert_eq!(PluginStatus(77).to_string(), "HIPDNN_PLUGIN_STATUS_77");
    }
}
