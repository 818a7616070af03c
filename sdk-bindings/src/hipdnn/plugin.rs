//! The engine-plugin ABI: what passes between a hipDNN backend and a kernel engine plugin (`PluginApi.h`,
//! `EnginePluginApi.h`, `PluginApiDataTypes.h` of hipDNN's plugin SDK).

use std::ffi::{c_char, c_void};
use std::marker::{PhantomData, PhantomPinned};

c_enum! {
    /// What every plugin function but two answers.
    PluginStatus, "HIPDNN_PLUGIN_STATUS_" {
        SUCCESS = 0,
        BAD_PARAM = 1,
        INVALID_VALUE = 2,
        INTERNAL_ERROR = 3,
        ALLOC_FAILED = 4,
        NOT_APPLICABLE = 5,
        NOT_INITIALIZED = 6,
    }
}

c_enum! {
    /// What a plugin is for.
    PluginType, "HIPDNN_PLUGIN_TYPE_" {
        UNSPECIFIED = 0,
        ENGINE = 1,
        HEURISTIC = 2,
    }
}

c_enum! {
    /// How bad a message is; as a level, it lets itself and everything above through.
    Severity, "HIPDNN_SEV_" {
        INFO = 0,
        WARN = 1,
        ERROR = 2,
        FATAL = 3,
        OFF = 4,
    }
}

c_enum! {
    /// What an engine tells of its behaviour, as the numbers in its details.
    BehaviorNote, "HIPDNN_BEHAVIOR_NOTE_" {
        RUNTIME_COMPILATION = 0,
        REQUIRES_LAYOUT_TRANSFORM = 1,
        SUPPORTS_GRAPH_CAPTURE = 2,
        EXTERNAL_LIBRARY_DEPENDENCY = 3,
        SUPPORTS_EXECUTION_PLAN_SERIALIZATION = 4,
    }
}

/// A buffer of bytes, in or out.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ConstData {
    /// Where the bytes begin.
    pub ptr: *const c_void,
    /// How many there are.
    pub size: usize,
}

/// One entry of a variant pack: a tensor and where its memory is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DeviceBuffer {
    /// The tensor.
    pub uid: i64,
    /// Its memory; null for an absent optional tensor.
    pub ptr: *mut c_void,
}

/// What a plugin keeps for one hipDNN handle; opaque.
#[repr(C)]
pub struct PluginHandle {
    _opaque: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A built plan; opaque.
#[repr(C)]
pub struct ExecutionContext {
    _opaque: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// `hipdnnEnginePluginHandle_t`.
pub type PluginHandlePtr = *mut PluginHandle;

/// `hipdnnEnginePluginExecutionContext_t`.
pub type ExecutionContextPtr = *mut ExecutionContext;

/// Where a plugin's messages go.
pub type LogCallback = unsafe extern "C" fn(severity: Severity, message: *const c_char);

/// Longest error text, its NUL included.
pub const ERROR_STRING_MAX_LENGTH: usize = 2048;

/// The id of an engine: FNV-1a of its name's bytes, 64 bits, read as signed (`EngineIdHash.hpp`).
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
}
