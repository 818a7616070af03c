//! The functions of an engine plugin, as this library calls them.

use std::ffi::CStr;

use hipdnn_sdk_bindings::hipdnn::plugin::{
    ConstData, Create, CreateExecutionContext, Destroy, DestroyEngineDetails, DestroyExecutionContext, ExecuteOpGraph,
    ExecuteOpGraphWithOverrides, ExecutionContextPtr, GetAllEngineIds, GetApplicableEngineIds, GetEngineDetails,
    GetEngineName, GetLastErrorString, GetText, GetType, GetWorkspaceSize, GetWorkspaceSizeFromExecutionContext,
    PluginHandlePtr, PluginStatus, SetLogLevel, SetLoggingCallback, SetStream,
};
use hipdnn_sdk_bindings::library::{Library, LibraryError};

/// `hipdnnEnginePluginSerializeExecutionContext`
type SerializeExecutionContext = unsafe extern "C" fn(
    handle: PluginHandlePtr,
    context: ExecutionContextPtr,
    serialized: *mut ConstData,
) -> PluginStatus;

/// `hipdnnEnginePluginDestroySerializedExecutionContext`
type DestroySerializedExecutionContext =
    unsafe extern "C" fn(handle: PluginHandlePtr, serialized: *mut ConstData) -> PluginStatus;

/// `hipdnnEnginePluginCreateExecutionContextFromSerialized`
type CreateExecutionContextFromSerialized = unsafe extern "C" fn(
    handle: PluginHandlePtr,
    serialized: *const ConstData,
    context: *mut ExecutionContextPtr,
) -> PluginStatus;

/// Defines the table of the functions of a plugin, and how it is resolved; a field is the symbol without its prefix.
macro_rules! plugin_api {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident;
        required { $($required:ident: $rtype:ty = $rsymbol:literal,)* }
        optional { $($optional:ident: $otype:ty = $osymbol:literal,)* }
    ) => {
        $(#[$attribute])*
        $visibility struct $name {
            $(pub(crate) $required: $rtype,)*
            $(pub(crate) $optional: Option<$otype>,)*
        }

        impl $name {
            pub(crate) fn resolve(library: &Library) -> Result<$name, LibraryError> {
                Ok($name {
                    // SAFETY: the plugin ABI gives the symbol this signature; the owner of the table keeps the library.
                    $($required: unsafe {
                        library.symbol::<$rtype>($crate::plugins::api::symbol(concat!("hipdnn", $rsymbol, "\0")))
                    }?,)*
                    // SAFETY: the plugin ABI gives an optional symbol, where it is there, this signature; the owner of
                    // the table keeps the library.
                    $($optional: unsafe {
                        library.optional::<$otype>($crate::plugins::api::symbol(concat!("hipdnn", $osymbol, "\0")))
                    },)*
                })
            }
        }
    };
}
pub(super) use plugin_api;

pub(super) fn symbol(name: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(name.as_bytes()).expect("symbols are written with one NUL at the end")
}

plugin_api! {
    /// The functions of one engine plugin, good as long as the library they came from is open.
    #[derive(Debug)]
    pub(crate) struct EngineApi;
    required {
        get_name: GetText = "PluginGetName",
        get_version: GetText = "PluginGetVersion",
        get_type: GetType = "PluginGetType",
        get_last_error_string: GetLastErrorString = "PluginGetLastErrorString",
        get_all_engine_ids: GetAllEngineIds = "EnginePluginGetAllEngineIds",
        create: Create = "EnginePluginCreate",
        destroy: Destroy = "EnginePluginDestroy",
        set_stream: SetStream = "EnginePluginSetStream",
        get_applicable_engine_ids: GetApplicableEngineIds = "EnginePluginGetApplicableEngineIds",
        get_engine_details: GetEngineDetails = "EnginePluginGetEngineDetails",
        destroy_engine_details: DestroyEngineDetails = "EnginePluginDestroyEngineDetails",
        get_workspace_size: GetWorkspaceSize = "EnginePluginGetWorkspaceSize",
        create_execution_context: CreateExecutionContext = "EnginePluginCreateExecutionContext",
        destroy_execution_context: DestroyExecutionContext = "EnginePluginDestroyExecutionContext",
        get_context_workspace_size: GetWorkspaceSizeFromExecutionContext =
            "EnginePluginGetWorkspaceSizeFromExecutionContext",
        execute: ExecuteOpGraph = "EnginePluginExecuteOpGraph",
    }
    optional {
        set_logging_callback: SetLoggingCallback = "PluginSetLoggingCallback",
        set_log_level: SetLogLevel = "PluginSetLogLevel",
        get_api_version: GetText = "PluginGetApiVersion",
        get_engine_name: GetEngineName = "EnginePluginGetEngineName",
        execute_with_overrides: ExecuteOpGraphWithOverrides = "EnginePluginExecuteOpGraphWithOverrides",
        serialize_context: SerializeExecutionContext = "EnginePluginSerializeExecutionContext",
        destroy_serialized_context: DestroySerializedExecutionContext =
            "EnginePluginDestroySerializedExecutionContext",
        create_context_from_serialized: CreateExecutionContextFromSerialized =
            "EnginePluginCreateExecutionContextFromSerialized",
    }
}
