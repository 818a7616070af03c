//! The runtime's function tables, read by entry number.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

use super::{
    Allocator, AllocatorType, DataType, DeviceEpIncompatibilityDetails, DeviceMemoryType, ElementType, EpContextConfig,
    EpDevice, EpFactory, EpGraphSupportInfo, ErrorCode, ExternalInitializerInfo, Graph, HardwareDevice,
    HardwareDeviceType, KernelContext, KernelCreate, KernelDef, KernelDefBuilder, KernelRegistry, KeyValuePairs,
    Logger, LoggingLevel, MINIMUM_VERSION, MemType, MemoryDevice, MemoryInfo, MemoryInfoDeviceType, Node,
    NodeComputeContext, NodeFusionOptions, OpAttr, OpAttrType, PathChar, ProfilingEvent, ProfilingEventCategory,
    ProfilingEventsContainer, ReadNamedBuffer, RunOptions, SessionOptions, Status, SyncStream, SyncStreamImpl,
    TensorTypeAndShapeInfo, TypeInfo, Value, ValueInfo, ValueType, WriteNamedBuffer,
};

/// `OrtApiBase`: entry point to the runtime's tables.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ApiBase {
    /// The table of that API version; null (and a line on standard error) if the runtime is older.
    pub get_api: unsafe extern "system" fn(version: u32) -> *const c_void,
    /// The runtime's version, as `1.31.1`.
    pub get_version_string: unsafe extern "system" fn() -> *const c_char,
}

/// An entry that every supported runtime has is null.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ONNX Runtime's table {table} lacks {entry}")]
pub struct MissingEntry {
    /// The table.
    pub table: &'static str,
    /// The entry's C name.
    pub entry: &'static str,
}

/// Declares a table: entries that [`MINIMUM_VERSION`] has, and later ones.
macro_rules! table {
    (
        $(#[$meta:meta])* $table:ident
        base { $($number:literal $name:ident $method:ident: fn($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)* }
        later {
            $($lnumber:literal $since:literal $lname:ident $lmethod:ident: fn($($larg:ident: $lty:ty),*) $(-> $lret:ty)?;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        pub struct $table {
            entries: NonNull<*const c_void>,
            version: u32,
        }

        // SAFETY: the runtime's tables are constants of the process; reading them from any thread is sound.
        unsafe impl Send for $table {}
        // SAFETY: the address and the version never change, and the runtime's tables are constants of the process.
        unsafe impl Sync for $table {}

        impl $table {
            /// Number (from 1), API version and C name of each entry bound here.
            pub const ENTRIES: &'static [(usize, u32, &'static str)] = &[
                $(($number, MINIMUM_VERSION, stringify!($name)),)*
                $(($lnumber, $since, stringify!($lname)),)*
            ];

            /// Takes a table that the runtime gave for `version`.
            ///
            /// # Safety
            /// `entries` is the runtime's table of this kind, of version `version` or newer, and `version` is at least
            /// [`MINIMUM_VERSION`]. The runtime outlives all use of the result.
            ///
            /// # Errors
            /// If an entry that every supported version has is null.
            pub unsafe fn new(entries: NonNull<c_void>, version: u32) -> Result<$table, MissingEntry> {
                let table = $table { entries: entries.cast(), version };
                for (number, since, entry) in Self::ENTRIES {
                    // SAFETY: the caller vouches that the table reaches `version`, and the entry is not newer.
                    if *since <= version && unsafe { table.entry(*number) }.is_null() {
                        return Err(MissingEntry { table: stringify!($table), entry });
                    }
                }
                Ok(table)
            }

            /// The negotiated API version.
            pub fn version(&self) -> u32 {
                self.version
            }

            /// # Safety
            /// The table has an entry of that number.
            unsafe fn entry(&self, number: usize) -> *const c_void {
                // SAFETY: the caller's duty.
                unsafe { *self.entries.as_ptr().add(number - 1) }
            }

            $(
                #[doc = concat!("`", stringify!($name), "`, entry ", $number, ".")]
                #[allow(clippy::type_complexity, reason = "these are C's types")]
                #[inline]
                pub fn $method(&self) -> unsafe extern "system" fn($($arg: $ty),*) $(-> $ret)? {
                    // SAFETY: `new` saw that the entry exists and is not null, and the type is the entry's.
                    unsafe {
                        std::mem::transmute::<*const c_void, unsafe extern "system" fn($($ty),*) $(-> $ret)?>(
                            self.entry($number),
                        )
                    }
                }
            )*

            $(
                #[doc = concat!("`", stringify!($lname), "`, entry ", $lnumber, ", since 1.", $since, ".")]
                #[allow(clippy::type_complexity, reason = "these are C's types")]
                #[inline]
                pub fn $lmethod(&self) -> Option<unsafe extern "system" fn($($larg: $lty),*) $(-> $lret)?> {
                    if self.version < $since {
                        return None;
                    }
                    // SAFETY: the version reaches the entry, `new` saw that it is not null, and the type is the entry's.
                    Some(unsafe {
                        std::mem::transmute::<*const c_void, unsafe extern "system" fn($($lty),*) $(-> $lret)?>(
                            self.entry($lnumber),
                        )
                    })
                }
            )*
        }
    };
}

table! {
    /// `OrtApi`: the entries that a provider needs.
    Api
    base {
        1 CreateStatus create_status: fn(code: ErrorCode, message: *const c_char) -> *mut Status;
        2 GetErrorCode get_error_code: fn(status: *const Status) -> ErrorCode;
        3 GetErrorMessage get_error_message: fn(status: *const Status) -> *const c_char;
        52 GetTensorMutableData get_tensor_mutable_data: fn(value: *mut Value, data: *mut *mut c_void) -> *mut Status;
        56 CastTypeInfoToTensorInfo cast_type_info_to_tensor_info:
            fn(info: *const TypeInfo, tensor: *mut *const TensorTypeAndShapeInfo) -> *mut Status;
        57 GetOnnxTypeFromTypeInfo get_onnx_type_from_type_info:
            fn(info: *const TypeInfo, kind: *mut ValueType) -> *mut Status;
        61 GetTensorElementType get_tensor_element_type:
            fn(info: *const TensorTypeAndShapeInfo, kind: *mut ElementType) -> *mut Status;
        62 GetDimensionsCount get_dimensions_count:
            fn(info: *const TensorTypeAndShapeInfo, count: *mut usize) -> *mut Status;
        63 GetDimensions get_dimensions:
            fn(info: *const TensorTypeAndShapeInfo, dims: *mut i64, count: usize) -> *mut Status;
        64 GetSymbolicDimensions get_symbolic_dimensions:
            fn(info: *const TensorTypeAndShapeInfo, names: *mut *const c_char, count: usize) -> *mut Status;
        66 GetTensorTypeAndShape get_tensor_type_and_shape:
            fn(value: *const Value, info: *mut *mut TensorTypeAndShapeInfo) -> *mut Status;
        79 GetAllocatorWithDefaultOptions get_allocator_with_default_options:
            fn(allocator: *mut *mut Allocator) -> *mut Status;
        89 KernelContext_GetInputCount kernel_context_get_input_count:
            fn(context: *const KernelContext, count: *mut usize) -> *mut Status;
        90 KernelContext_GetOutputCount kernel_context_get_output_count:
            fn(context: *const KernelContext, count: *mut usize) -> *mut Status;
        91 KernelContext_GetInput kernel_context_get_input:
            fn(context: *const KernelContext, index: usize, value: *mut *const Value) -> *mut Status;
        92 KernelContext_GetOutput kernel_context_get_output: fn(
            context: *mut KernelContext, index: usize, dims: *const i64, count: usize, value: *mut *mut Value
        ) -> *mut Status;
        94 ReleaseStatus release_status: fn(status: *mut Status);
        95 ReleaseMemoryInfo release_memory_info: fn(info: *mut MemoryInfo);
        97 ReleaseValue release_value: fn(value: *mut Value);
        100 ReleaseTensorTypeAndShapeInfo release_tensor_type_and_shape_info: fn(info: *mut TensorTypeAndShapeInfo);
        194 KernelContext_GetGPUComputeStream kernel_context_get_gpu_compute_stream:
            fn(context: *const KernelContext, stream: *mut *mut c_void) -> *mut Status;
        195 GetTensorMemoryInfo get_tensor_memory_info:
            fn(value: *const Value, info: *mut *const MemoryInfo) -> *mut Status;
        212 CreateOpAttr create_op_attr: fn(
            name: *const c_char, data: *const c_void, count: c_int, kind: OpAttrType, attribute: *mut *mut OpAttr
        ) -> *mut Status;
        213 ReleaseOpAttr release_op_attr: fn(attribute: *mut OpAttr);
        238 HasSessionConfigEntry has_session_config_entry:
            fn(options: *const SessionOptions, key: *const c_char, found: *mut c_int) -> *mut Status;
        239 GetSessionConfigEntry get_session_config_entry: fn(
            options: *const SessionOptions, key: *const c_char, value: *mut c_char, size: *mut usize
        ) -> *mut Status;
        248 Logger_LogMessage logger_log_message: fn(
            logger: *const Logger, severity: LoggingLevel, message: *const c_char, file: *const PathChar, line: c_int,
            function: *const c_char
        ) -> *mut Status;
        249 Logger_GetLoggingSeverityLevel logger_get_logging_severity_level:
            fn(logger: *const Logger, severity: *mut LoggingLevel) -> *mut Status;
        254 KernelContext_GetAllocator kernel_context_get_allocator: fn(
            context: *const KernelContext, info: *const MemoryInfo, allocator: *mut *mut Allocator
        ) -> *mut Status;
        273 ReadOpAttr read_op_attr: fn(
            attribute: *const OpAttr, kind: OpAttrType, data: *mut c_void, size: usize, needed: *mut usize
        ) -> *mut Status;
        275 KernelContext_ParallelFor kernel_context_parallel_for: fn(
            context: *const KernelContext, body: unsafe extern "C" fn(data: *mut c_void, item: usize), items: usize,
            batches: usize, data: *mut c_void
        ) -> *mut Status;
        290 GetValueInfoName get_value_info_name: fn(info: *const ValueInfo, name: *mut *const c_char) -> *mut Status;
        291 GetValueInfoTypeInfo get_value_info_type_info:
            fn(info: *const ValueInfo, kind: *mut *const TypeInfo) -> *mut Status;
        292 GetModelEditorApi get_model_editor_api: fn() -> *const c_void;
        296 CreateKeyValuePairs create_key_value_pairs: fn(pairs: *mut *mut KeyValuePairs);
        297 AddKeyValuePair add_key_value_pair:
            fn(pairs: *mut KeyValuePairs, key: *const c_char, value: *const c_char);
        298 GetKeyValue get_key_value: fn(pairs: *const KeyValuePairs, key: *const c_char) -> *const c_char;
        299 GetKeyValuePairs get_key_value_pairs: fn(
            pairs: *const KeyValuePairs, keys: *mut *const *const c_char, values: *mut *const *const c_char,
            count: *mut usize
        );
        301 ReleaseKeyValuePairs release_key_value_pairs: fn(pairs: *mut KeyValuePairs);
        308 HardwareDevice_Type hardware_device_type: fn(device: *const HardwareDevice) -> HardwareDeviceType;
        309 HardwareDevice_VendorId hardware_device_vendor_id: fn(device: *const HardwareDevice) -> u32;
        310 HardwareDevice_Vendor hardware_device_vendor: fn(device: *const HardwareDevice) -> *const c_char;
        311 HardwareDevice_DeviceId hardware_device_device_id: fn(device: *const HardwareDevice) -> u32;
        312 HardwareDevice_Metadata hardware_device_metadata:
            fn(device: *const HardwareDevice) -> *const KeyValuePairs;
        313 EpDevice_EpName ep_device_ep_name: fn(device: *const EpDevice) -> *const c_char;
        317 EpDevice_Device ep_device_device: fn(device: *const EpDevice) -> *const HardwareDevice;
        318 GetEpApi get_ep_api: fn() -> *const c_void;
        319 GetTensorSizeInBytes get_tensor_size_in_bytes: fn(value: *const Value, size: *mut usize) -> *mut Status;
        321 CreateMemoryInfo_V2 create_memory_info_v2: fn(
            name: *const c_char, device: MemoryInfoDeviceType, vendor_id: u32, device_id: i32, memory: DeviceMemoryType,
            alignment: usize, allocator: AllocatorType, info: *mut *mut MemoryInfo
        ) -> *mut Status;
        324 ValueInfo_GetValueProducer value_info_get_value_producer:
            fn(info: *const ValueInfo, node: *mut *const Node, index: *mut usize) -> *mut Status;
        325 ValueInfo_GetValueNumConsumers value_info_get_value_num_consumers:
            fn(info: *const ValueInfo, count: *mut usize) -> *mut Status;
        326 ValueInfo_GetValueConsumers value_info_get_value_consumers: fn(
            info: *const ValueInfo, nodes: *mut *const Node, indices: *mut i64, count: usize
        ) -> *mut Status;
        327 ValueInfo_GetInitializerValue value_info_get_initializer_value:
            fn(info: *const ValueInfo, value: *mut *const Value) -> *mut Status;
        328 ValueInfo_GetExternalInitializerInfo value_info_get_external_initializer_info:
            fn(info: *const ValueInfo, external: *mut *mut ExternalInitializerInfo) -> *mut Status;
        329 ValueInfo_IsRequiredGraphInput value_info_is_required_graph_input:
            fn(info: *const ValueInfo, answer: *mut bool) -> *mut Status;
        330 ValueInfo_IsOptionalGraphInput value_info_is_optional_graph_input:
            fn(info: *const ValueInfo, answer: *mut bool) -> *mut Status;
        331 ValueInfo_IsGraphOutput value_info_is_graph_output:
            fn(info: *const ValueInfo, answer: *mut bool) -> *mut Status;
        332 ValueInfo_IsConstantInitializer value_info_is_constant_initializer:
            fn(info: *const ValueInfo, answer: *mut bool) -> *mut Status;
        333 ValueInfo_IsFromOuterScope value_info_is_from_outer_scope:
            fn(info: *const ValueInfo, answer: *mut bool) -> *mut Status;
        334 Graph_GetName graph_get_name: fn(graph: *const Graph, name: *mut *const c_char) -> *mut Status;
        335 Graph_GetModelPath graph_get_model_path:
            fn(graph: *const Graph, path: *mut *const PathChar) -> *mut Status;
        339 Graph_GetNumInputs graph_get_num_inputs: fn(graph: *const Graph, count: *mut usize) -> *mut Status;
        340 Graph_GetInputs graph_get_inputs:
            fn(graph: *const Graph, inputs: *mut *const ValueInfo, count: usize) -> *mut Status;
        341 Graph_GetNumOutputs graph_get_num_outputs: fn(graph: *const Graph, count: *mut usize) -> *mut Status;
        342 Graph_GetOutputs graph_get_outputs:
            fn(graph: *const Graph, outputs: *mut *const ValueInfo, count: usize) -> *mut Status;
        345 Graph_GetNumNodes graph_get_num_nodes: fn(graph: *const Graph, count: *mut usize) -> *mut Status;
        346 Graph_GetNodes graph_get_nodes:
            fn(graph: *const Graph, nodes: *mut *const Node, count: usize) -> *mut Status;
        347 Graph_GetParentNode graph_get_parent_node:
            fn(graph: *const Graph, node: *mut *const Node) -> *mut Status;
        349 Node_GetId node_get_id: fn(node: *const Node, id: *mut usize) -> *mut Status;
        350 Node_GetName node_get_name: fn(node: *const Node, name: *mut *const c_char) -> *mut Status;
        351 Node_GetOperatorType node_get_operator_type:
            fn(node: *const Node, name: *mut *const c_char) -> *mut Status;
        352 Node_GetDomain node_get_domain: fn(node: *const Node, name: *mut *const c_char) -> *mut Status;
        353 Node_GetSinceVersion node_get_since_version: fn(node: *const Node, version: *mut c_int) -> *mut Status;
        354 Node_GetNumInputs node_get_num_inputs: fn(node: *const Node, count: *mut usize) -> *mut Status;
        355 Node_GetInputs node_get_inputs:
            fn(node: *const Node, inputs: *mut *const ValueInfo, count: usize) -> *mut Status;
        356 Node_GetNumOutputs node_get_num_outputs: fn(node: *const Node, count: *mut usize) -> *mut Status;
        357 Node_GetOutputs node_get_outputs:
            fn(node: *const Node, outputs: *mut *const ValueInfo, count: usize) -> *mut Status;
        358 Node_GetNumImplicitInputs node_get_num_implicit_inputs:
            fn(node: *const Node, count: *mut usize) -> *mut Status;
        359 Node_GetImplicitInputs node_get_implicit_inputs:
            fn(node: *const Node, inputs: *mut *const ValueInfo, count: usize) -> *mut Status;
        360 Node_GetNumAttributes node_get_num_attributes: fn(node: *const Node, count: *mut usize) -> *mut Status;
        361 Node_GetAttributes node_get_attributes:
            fn(node: *const Node, attributes: *mut *const OpAttr, count: usize) -> *mut Status;
        362 Node_GetAttributeByName node_get_attribute_by_name:
            fn(node: *const Node, name: *const c_char, attribute: *mut *const OpAttr) -> *mut Status;
        363 OpAttr_GetTensorAttributeAsOrtValue op_attr_get_tensor_attribute_as_value:
            fn(attribute: *const OpAttr, value: *mut *mut Value) -> *mut Status;
        364 OpAttr_GetType op_attr_get_type: fn(attribute: *const OpAttr, kind: *mut OpAttrType) -> *mut Status;
        365 OpAttr_GetName op_attr_get_name: fn(attribute: *const OpAttr, name: *mut *const c_char) -> *mut Status;
        368 Node_GetGraph node_get_graph: fn(node: *const Node, graph: *mut *const Graph) -> *mut Status;
        369 Node_GetEpName node_get_ep_name: fn(node: *const Node, name: *mut *const c_char) -> *mut Status;
        370 ReleaseExternalInitializerInfo release_external_initializer_info: fn(info: *mut ExternalInitializerInfo);
        371 ExternalInitializerInfo_GetFilePath external_initializer_info_get_file_path:
            fn(info: *const ExternalInitializerInfo) -> *const PathChar;
        372 ExternalInitializerInfo_GetFileOffset external_initializer_info_get_file_offset:
            fn(info: *const ExternalInitializerInfo) -> i64;
        373 ExternalInitializerInfo_GetByteSize external_initializer_info_get_byte_size:
            fn(info: *const ExternalInitializerInfo) -> usize;
        374 GetRunConfigEntry get_run_config_entry:
            fn(options: *const RunOptions, key: *const c_char) -> *const c_char;
        379 GetTensorData get_tensor_data: fn(value: *const Value, data: *mut *const c_void) -> *mut Status;
        380 GetSessionOptionsConfigEntries get_session_options_config_entries:
            fn(options: *const SessionOptions, pairs: *mut *mut KeyValuePairs) -> *mut Status;
    }
    later {
        391 24 TensorTypeAndShape_HasShape tensor_type_and_shape_has_shape:
            fn(info: *const TensorTypeAndShapeInfo) -> bool;
        415 24 GetTensorElementTypeAndShapeDataReference get_tensor_element_type_and_shape_data_reference: fn(
            value: *const Value, kind: *mut ElementType, dims: *mut *const i64, count: *mut usize
        ) -> *mut Status;
        424 28 KernelContext_GetSyncStream kernel_context_get_sync_stream:
            fn(context: *const KernelContext, stream: *mut *mut SyncStream) -> *mut Status;
    }
}

table! {
    /// `OrtEpApi`: the entries that a provider needs.
    EpApi
    base {
        1 CreateEpDevice create_ep_device: fn(
            factory: *mut EpFactory, device: *const HardwareDevice, metadata: *const KeyValuePairs,
            options: *const KeyValuePairs, ep_device: *mut *mut EpDevice
        ) -> *mut Status;
        2 ReleaseEpDevice release_ep_device: fn(device: *mut EpDevice);
        3 EpGraphSupportInfo_AddNodesToFuse add_nodes_to_fuse: fn(
            info: *mut EpGraphSupportInfo, nodes: *const *const Node, count: usize, options: *const NodeFusionOptions
        ) -> *mut Status;
        4 EpGraphSupportInfo_AddSingleNode add_single_node:
            fn(info: *mut EpGraphSupportInfo, node: *const Node) -> *mut Status;
        5 NodeComputeContext_NodeName node_compute_context_node_name:
            fn(context: *const NodeComputeContext) -> *const c_char;
        6 EpDevice_AddAllocatorInfo ep_device_add_allocator_info:
            fn(device: *mut EpDevice, info: *const MemoryInfo) -> *mut Status;
        7 MemoryInfo_GetMemoryDevice memory_info_get_memory_device: fn(info: *const MemoryInfo) -> *const MemoryDevice;
        8 Value_GetMemoryDevice value_get_memory_device: fn(value: *const Value) -> *const MemoryDevice;
        9 MemoryDevice_AreEqual memory_device_are_equal:
            fn(one: *const MemoryDevice, other: *const MemoryDevice) -> bool;
        10 MemoryDevice_GetDeviceType memory_device_get_device_type:
            fn(device: *const MemoryDevice) -> MemoryInfoDeviceType;
        11 MemoryDevice_GetMemoryType memory_device_get_memory_type:
            fn(device: *const MemoryDevice) -> DeviceMemoryType;
        12 MemoryDevice_GetVendorId memory_device_get_vendor_id: fn(device: *const MemoryDevice) -> u32;
        13 MemoryDevice_GetDeviceId memory_device_get_device_id: fn(device: *const MemoryDevice) -> u32;
        14 SyncStream_GetImpl sync_stream_get_impl: fn(stream: *const SyncStream) -> *const SyncStreamImpl;
        15 SyncStream_GetSyncId sync_stream_get_sync_id: fn(stream: *const SyncStream) -> u64;
        16 GetSyncIdForLastWaitOnSyncStream get_sync_id_for_last_wait_on_sync_stream:
            fn(producer: *const SyncStream, consumer: *const SyncStream) -> u64;
    }
    later {
        17 24 CreateHardwareDevice create_hardware_device: fn(
            kind: HardwareDeviceType, vendor_id: u32, device_id: u32, vendor: *const c_char,
            metadata: *const KeyValuePairs, device: *mut *mut HardwareDevice
        ) -> *mut Status;
        18 24 ReleaseHardwareDevice release_hardware_device: fn(device: *mut HardwareDevice);
        19 24 CreateKernelRegistry create_kernel_registry: fn(registry: *mut *mut KernelRegistry) -> *mut Status;
        20 24 ReleaseKernelRegistry release_kernel_registry: fn(registry: *mut KernelRegistry);
        21 24 KernelRegistry_AddKernel kernel_registry_add_kernel: fn(
            registry: *mut KernelRegistry, definition: *const KernelDef, create: KernelCreate, state: *mut c_void
        ) -> *mut Status;
        22 24 CreateKernelDefBuilder create_kernel_def_builder:
            fn(builder: *mut *mut KernelDefBuilder) -> *mut Status;
        23 24 ReleaseKernelDefBuilder release_kernel_def_builder: fn(builder: *mut KernelDefBuilder);
        24 24 KernelDefBuilder_SetOperatorType kernel_def_builder_set_operator_type:
            fn(builder: *mut KernelDefBuilder, operator: *const c_char) -> *mut Status;
        25 24 KernelDefBuilder_SetDomain kernel_def_builder_set_domain:
            fn(builder: *mut KernelDefBuilder, domain: *const c_char) -> *mut Status;
        26 24 KernelDefBuilder_SetSinceVersion kernel_def_builder_set_since_version:
            fn(builder: *mut KernelDefBuilder, first: c_int, last: c_int) -> *mut Status;
        27 24 KernelDefBuilder_SetExecutionProvider kernel_def_builder_set_execution_provider:
            fn(builder: *mut KernelDefBuilder, name: *const c_char) -> *mut Status;
        28 24 KernelDefBuilder_SetInputMemType kernel_def_builder_set_input_mem_type:
            fn(builder: *mut KernelDefBuilder, input: usize, memory: MemType) -> *mut Status;
        29 24 KernelDefBuilder_SetOutputMemType kernel_def_builder_set_output_mem_type:
            fn(builder: *mut KernelDefBuilder, output: usize, memory: MemType) -> *mut Status;
        30 24 KernelDefBuilder_AddTypeConstraint kernel_def_builder_add_type_constraint: fn(
            builder: *mut KernelDefBuilder, name: *const c_char, types: *const *const DataType, count: usize
        ) -> *mut Status;
        33 24 KernelDefBuilder_Build kernel_def_builder_build:
            fn(builder: *mut KernelDefBuilder, definition: *mut *mut KernelDef) -> *mut Status;
        34 24 ReleaseKernelDef release_kernel_def: fn(definition: *mut KernelDef);
        41 24 GetTensorDataType get_tensor_data_type:
            fn(element: ElementType, kind: *mut *const DataType) -> *mut Status;
        45 24 DeviceEpIncompatibilityDetails_SetDetails device_ep_incompatibility_details_set_details: fn(
            details: *mut DeviceEpIncompatibilityDetails, reasons: u32, code: i32, notes: *const c_char
        ) -> *mut Status;
        50 24 GetEnvConfigEntries get_env_config_entries: fn(pairs: *mut *mut KeyValuePairs) -> *mut Status;
        66 25 CreateProfilingEvent create_profiling_event: fn(
            category: ProfilingEventCategory, process_id: i32, thread_id: i32, name: *const c_char, timestamp_us: i64,
            duration_us: i64, argument_keys: *const *const c_char, argument_values: *const *const c_char,
            num_arguments: usize, event: *mut *mut ProfilingEvent
        ) -> *mut Status;
        67 25 ReleaseProfilingEvent release_profiling_event: fn(event: *mut ProfilingEvent);
        73 25 ProfilingEventsContainer_AddEvents add_profiling_events: fn(
            container: *mut ProfilingEventsContainer, events: *const *const ProfilingEvent, count: usize
        ) -> *mut Status;
        75 31 SessionOptionsGetEpContextConfig session_options_get_ep_context_config:
            fn(options: *const SessionOptions, config: *mut *mut EpContextConfig) -> *mut Status;
        76 31 ReleaseEpContextConfig release_ep_context_config: fn(config: *mut EpContextConfig);
        77 31 EpContextConfigGetEpContextDataReadFunc ep_context_config_get_read_func: fn(
            config: *const EpContextConfig, function: *mut Option<ReadNamedBuffer>, state: *mut *mut c_void
        ) -> *mut Status;
        78 31 EpContextConfigGetEpContextDataWriteFunc ep_context_config_get_write_func: fn(
            config: *const EpContextConfig, function: *mut Option<WriteNamedBuffer>, state: *mut *mut c_void
        ) -> *mut Status;
    }
}

table! {
    /// `OrtModelEditorApi`: the entries that a provider needs to write nodes of a compiled model.
    ModelEditorApi
    base {
        6 CreateValueInfo create_value_info:
            fn(name: *const c_char, kind: *const TypeInfo, info: *mut *mut ValueInfo) -> *mut Status;
        7 CreateNode create_node: fn(
            operator: *const c_char, domain: *const c_char, name: *const c_char, inputs: *const *const c_char,
            num_inputs: usize, outputs: *const *const c_char, num_outputs: usize, attributes: *mut *mut OpAttr,
            num_attributes: usize, node: *mut *mut Node
        ) -> *mut Status;
    }
    later {}
}

impl ApiBase {
    /// The runtime's version text; `None` if it is null or not UTF-8.
    ///
    /// # Safety
    /// `self` is the runtime's own.
    pub unsafe fn version_string(&self) -> Option<&'static str> {
        // SAFETY: the function takes nothing.
        let text = unsafe { (self.get_version_string)() };
        if text.is_null() {
            return None;
        }
        // SAFETY: the runtime's text ends in a NUL and is a constant of the process.
        unsafe { CStr::from_ptr(text) }.to_str().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::MAXIMUM_VERSION;
    use super::*;

    /// `OrtApi` had this many entries when the version was released; a later entry's number is past it.
    const LENGTHS: [(u32, usize); 1] = [(MAXIMUM_VERSION, 428)];

    #[test]
    fn numbers_and_names_are_unique_and_in_reach() {
        for (table, entries, length) in [
            ("OrtApi", Api::ENTRIES, LENGTHS[0].1),
            ("OrtEpApi", EpApi::ENTRIES, 78),
            ("OrtModelEditorApi", ModelEditorApi::ENTRIES, 20),
        ] {
            let numbers: std::collections::HashSet<_> = entries.iter().map(|e| e.0).collect();
            let names: std::collections::HashSet<_> = entries.iter().map(|e| e.2).collect();
            assert_eq!((numbers.len(), names.len()), (entries.len(), entries.len()), "{table}");
            for (number, since, name) in entries {
                assert!((1..=length).contains(number), "{table} {name}");
                assert!((MINIMUM_VERSION..=MAXIMUM_VERSION).contains(since), "{table} {name}");
            }
        }
    }

    unsafe extern "system" fn answer(_: *const TensorTypeAndShapeInfo) -> bool {
        true
    }

    #[test]
    fn entries_newer_than_the_version_are_absent() {
        let entry = answer as unsafe extern "system" fn(*const TensorTypeAndShapeInfo) -> bool as *const c_void;
        let mut entries = vec![entry; 428];
        let at = NonNull::new(entries.as_mut_ptr()).expect("a vector's address").cast();
        // SAFETY: the table has every entry of every version, and outlives the use below.
        let (old, new) = unsafe { (Api::new(at, 23).unwrap(), Api::new(at, 31).unwrap()) };
        assert!(old.tensor_type_and_shape_has_shape().is_none());
        let has_shape = new.tensor_type_and_shape_has_shape().expect("1.24 has it");
        // SAFETY: the entry is `answer`, which reads nothing.
        assert!(unsafe { has_shape(std::ptr::null()) });
        assert!(old.kernel_context_get_sync_stream().is_none() && new.kernel_context_get_sync_stream().is_some());
    }

    #[test]
    fn an_old_table_is_not_read_past_its_end() {
        // As many entries as the newest one that version 23 needs: reading entry 391 would be out of bounds.
        let entry = answer as unsafe extern "system" fn(*const TensorTypeAndShapeInfo) -> bool as *const c_void;
        let mut entries = vec![entry; 380].into_boxed_slice();
        let at = NonNull::new(entries.as_mut_ptr()).expect("a box's address").cast();
        // SAFETY: version 23 has no entry past 380 that is bound here.
        assert!(unsafe { Api::new(at, 23) }.is_ok());
        entries[90] = std::ptr::null();
        let at = NonNull::new(entries.as_mut_ptr()).expect("a box's address").cast();
        // SAFETY: the table has the 380 entries that version 23 may read, of which one is null.
        let error = unsafe { Api::new(at, 23) }.unwrap_err();
        assert_eq!(error.to_string(), "ONNX Runtime's table Api lacks KernelContext_GetInput");
    }
}
