//! The functions under test, from a library that was opened or, in the fuzz target, from the program itself.

use std::ffi::{c_char, c_int, c_void};

use hipdnn_sdk_bindings::hipdnn::backend::{
    AttributeName, AttributeType, DescriptorPtr, DescriptorType, HandlePtr, Status,
};
use hipdnn_sdk_bindings::hipdnn::plugin;

macro_rules! table {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $type:ty = $symbol:ident;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }

        impl $name {
            /// The functions that `find` finds by name.
            ///
            /// # Safety
            /// Each has the signature of its field, and stays where it is.
            pub(crate) unsafe fn of(find: impl Fn(&'static str) -> *mut c_void) -> $name {
                $name {
                    $($field: {
                        let address = find(stringify!($symbol));
                        assert!(!address.is_null(), stringify!($symbol));
                        // SAFETY: a function pointer is an address, and the caller vouches for the signature.
                        unsafe { std::mem::transmute::<*mut c_void, $type>(address) }
                    },)*
                }
            }
        }
    };
}

table! {
    /// Functions that the engine plugin exports.
    PluginApi {
        get_last_error_string: plugin::GetLastErrorString = hipdnnPluginGetLastErrorString;
        get_all_engine_ids: plugin::GetAllEngineIds = hipdnnEnginePluginGetAllEngineIds;
        create: plugin::Create = hipdnnEnginePluginCreate;
        destroy: plugin::Destroy = hipdnnEnginePluginDestroy;
        get_applicable_engine_ids: plugin::GetApplicableEngineIds = hipdnnEnginePluginGetApplicableEngineIds;
        get_engine_details: plugin::GetEngineDetails = hipdnnEnginePluginGetEngineDetails;
        destroy_engine_details: plugin::DestroyEngineDetails = hipdnnEnginePluginDestroyEngineDetails;
        get_workspace_size: plugin::GetWorkspaceSize = hipdnnEnginePluginGetWorkspaceSize;
        create_execution_context: plugin::CreateExecutionContext = hipdnnEnginePluginCreateExecutionContext;
        destroy_execution_context: plugin::DestroyExecutionContext = hipdnnEnginePluginDestroyExecutionContext;
        get_context_workspace_size: plugin::GetWorkspaceSizeFromExecutionContext
            = hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext;
        execute: plugin::ExecuteOpGraph = hipdnnEnginePluginExecuteOpGraph;
    }
}

type Deserialize = unsafe extern "C" fn(*mut DescriptorPtr, *const u8, usize) -> Status;
type DeserializeJson = unsafe extern "C" fn(*mut DescriptorPtr, *const c_char, usize) -> Status;
type Serialize = unsafe extern "C" fn(DescriptorPtr, usize, *mut usize, *mut u8) -> Status;
type SerializeJson = unsafe extern "C" fn(DescriptorPtr, usize, *mut usize, *mut c_char) -> Status;
type Set = unsafe extern "C" fn(DescriptorPtr, AttributeName, AttributeType, i64, *const c_void) -> Status;
type Get = unsafe extern "C" fn(DescriptorPtr, AttributeName, AttributeType, i64, *mut i64, *mut c_void) -> Status;

table! {
    /// Functions that the backend exports, as far as clients hand it data from outside.
    BackendApi {
        create: unsafe extern "C" fn(*mut HandlePtr) -> Status = hipdnnCreate;
        destroy: unsafe extern "C" fn(HandlePtr) -> Status = hipdnnDestroy;
        create_descriptor: unsafe extern "C" fn(DescriptorType, *mut DescriptorPtr) -> Status
            = hipdnnBackendCreateDescriptor;
        destroy_descriptor: unsafe extern "C" fn(DescriptorPtr) -> Status = hipdnnBackendDestroyDescriptor;
        finalize: unsafe extern "C" fn(DescriptorPtr) -> Status = hipdnnBackendFinalize;
        set_attribute: Set = hipdnnBackendSetAttribute;
        get_attribute: Get = hipdnnBackendGetAttribute;
        execute: unsafe extern "C" fn(HandlePtr, DescriptorPtr, DescriptorPtr) -> Status = hipdnnBackendExecute;
        get_last_error_string: unsafe extern "C" fn(*mut c_char, usize) = hipdnnGetLastErrorString;
        deserialize_graph: Deserialize = hipdnnBackendCreateAndDeserializeGraph_ext;
        deserialize_json: DeserializeJson = hipdnnBackendCreateAndDeserializeJsonGraph_ext;
        serialize_graph: Serialize = hipdnnBackendGetSerializedBinaryGraph_ext;
        serialize_json: SerializeJson = hipdnnBackendGetSerializedJsonGraph_ext;
        deserialize_plan: unsafe extern "C" fn(HandlePtr, *mut DescriptorPtr, *const u8, usize) -> Status
            = hipdnnBackendCreateAndDeserializeExecutionPlan_ext;
        get_contents: unsafe extern "C" fn(*const u8, usize, *mut c_int) -> Status
            = hipdnnBackendGetSerializedBinaryContents_ext;
    }
}
