//! The structs that a provider fills in and hands to the runtime, and the two functions its library exports.
//!
//! A member is null unless the provider serves it. `this` is the struct itself: a provider that puts it first in a
//! struct of its own gets that one back by a cast.

use std::ffi::{c_char, c_int, c_void};

use super::{
    ApiBase, CompiledModelCompatibility, CustomOpDomain, DeviceEpIncompatibilityDetails, EpApi, EpDataLayout, EpDevice,
    EpGraphSupportInfo, ExternalResourceImporterImpl, Graph, GraphCaptureNodeAssignmentPolicy, GraphicsInteropConfig,
    HardwareDevice, KernelContext, KernelInfo, KernelRegistry, KeyValuePairs, Logger, MemoryDevice, MemoryInfo, Node,
    NodeComputeContext, ProfilingEvent, ProfilingEventsContainer, RunOptions, SessionOptions,
    SharedPrePackedWeightCache, Status, SyncStream, Value, WeightlessSupport,
};

/// `CreateEpFactories`, exported by every provider library.
pub type CreateEpFactories = unsafe extern "system" fn(
    registered_name: *const c_char,
    base: *const ApiBase,
    default_logger: *const Logger,
    factories: *mut *mut EpFactory,
    max_factories: usize,
    num_factories: *mut usize,
) -> *mut Status;

/// `ReleaseEpFactory`, exported by every provider library.
pub type ReleaseEpFactory = unsafe extern "system" fn(factory: *mut EpFactory) -> *mut Status;

/// Declares a struct of nullable function pointers behind a version word.
macro_rules! callbacks {
    (
        $(#[$meta:meta])* $name:ident, $version:ident, $size:literal {
            $($(#[$fmeta:meta])* $offset:literal $field:ident: fn($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*
        }
    ) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name {
            /// The API version of the layout that the provider was built with.
            pub $version: u32,
            $($(#[$fmeta])* pub $field: Option<unsafe extern "system" fn($($arg: $ty),*) $(-> $ret)?>,)*
        }

        #[cfg(target_pointer_width = "64")]
        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(std::mem::offset_of!($name, $field) == $offset);)*
        };
    };
}

callbacks! {
    /// `OrtEpFactory`: factory of providers, and of their devices' allocators, streams and data transfers.
    EpFactory, ort_version_supported, 168 {
        /// The provider's name. Required.
        8 get_name: fn(this: *const EpFactory) -> *const c_char;
        /// The vendor's name. Required.
        16 get_vendor: fn(this: *const EpFactory) -> *const c_char;
        /// Offers devices for those hardware devices that the provider serves. Required.
        24 get_supported_devices: fn(
            this: *mut EpFactory, devices: *const *const HardwareDevice, num_devices: usize,
            ep_devices: *mut *mut EpDevice, max_ep_devices: usize, num_ep_devices: *mut usize
        ) -> *mut Status;
        /// Makes a provider for a session. Required.
        32 create_ep: fn(
            this: *mut EpFactory, devices: *const *const HardwareDevice, ep_metadata: *const *const KeyValuePairs,
            num_devices: usize, session_options: *const SessionOptions, logger: *const Logger, ep: *mut *mut Ep
        ) -> *mut Status;
        /// Takes a provider back. Required.
        40 release_ep: fn(this: *mut EpFactory, ep: *mut Ep);
        /// The vendor's PCI number.
        48 get_vendor_id: fn(this: *const EpFactory) -> u32;
        /// The provider's version, by Semantic Versioning 2.0. Required.
        56 get_version: fn(this: *const EpFactory) -> *const c_char;
        /// Judges a compiled model by its compatibility text.
        64 validate_compiled_model_compatibility_info: fn(
            this: *mut EpFactory, devices: *const *const HardwareDevice, num_devices: usize, info: *const c_char,
            compatibility: *mut CompiledModelCompatibility
        ) -> *mut Status;
        /// Makes an allocator for a memory that a device declared.
        72 create_allocator: fn(
            this: *mut EpFactory, memory_info: *const MemoryInfo, options: *const KeyValuePairs,
            allocator: *mut *mut Allocator
        ) -> *mut Status;
        /// Takes an allocator back.
        80 release_allocator: fn(this: *mut EpFactory, allocator: *mut Allocator);
        /// Makes a data transfer, or gives null. Required.
        88 create_data_transfer: fn(this: *mut EpFactory, data_transfer: *mut *mut DataTransferImpl) -> *mut Status;
        /// True if nodes run asynchronously, on streams.
        96 is_stream_aware: fn(this: *const EpFactory) -> bool;
        /// Makes a stream on a device.
        104 create_sync_stream_for_device: fn(
            this: *mut EpFactory, device: *const MemoryDevice, options: *const KeyValuePairs,
            stream: *mut *mut SyncStreamImpl
        ) -> *mut Status;
        /// Says why a hardware device is not offered. 1.24
        112 get_hardware_device_incompatibility_details: fn(
            this: *mut EpFactory, device: *const HardwareDevice, details: *mut DeviceEpIncompatibilityDetails
        ) -> *mut Status;
        /// Makes an importer of memory of other APIs. 1.24
        120 create_external_resource_importer_for_device: fn(
            this: *mut EpFactory, device: *const EpDevice, importer: *mut *mut ExternalResourceImporterImpl
        ) -> *mut Status;
        /// Number of custom operator domains. 1.24
        128 get_num_custom_op_domains: fn(this: *mut EpFactory, num_domains: *mut usize) -> *mut Status;
        /// The custom operator domains. 1.24
        136 get_custom_op_domains: fn(
            this: *mut EpFactory, domains: *mut *mut CustomOpDomain, num_domains: usize
        ) -> *mut Status;
        /// Begins sharing a device with a graphics API. 1.25
        144 init_graphics_interop: fn(
            this: *mut EpFactory, device: *const EpDevice, config: *const GraphicsInteropConfig
        ) -> *mut Status;
        /// Ends sharing a device with a graphics API. 1.25
        152 deinit_graphics_interop: fn(this: *mut EpFactory, device: *const EpDevice) -> *mut Status;
        /// Chooses among variants of a model. 1.28
        160 select_best_model_candidate: fn(
            this: *mut EpFactory, device: *const HardwareDevice, candidates: *const *const KeyValuePairs,
            num_candidates: usize, session_options: *const SessionOptions, selected: *mut usize
        ) -> *mut Status;
    }
}

callbacks! {
    /// `OrtEp`: the provider of one session.
    Ep, ort_version_supported, 216 {
        /// The provider's name. Required.
        8 get_name: fn(this: *const Ep) -> *const c_char;
        /// Claims nodes of a graph. Required.
        16 get_capability: fn(this: *mut Ep, graph: *const Graph, info: *mut EpGraphSupportInfo) -> *mut Status;
        /// Compiles claimed groups of nodes.
        24 compile: fn(
            this: *mut Ep, graphs: *mut *const Graph, fused_nodes: *mut *const Node, count: usize,
            node_compute_infos: *mut *mut NodeComputeInfo, ep_context_nodes: *mut *mut Node
        ) -> *mut Status;
        /// Takes compute functions back.
        32 release_node_compute_infos: fn(this: *mut Ep, infos: *mut *mut NodeComputeInfo, count: usize);
        /// The provider's preferred layout.
        40 get_preferred_data_layout: fn(this: *mut Ep, layout: *mut EpDataLayout) -> *mut Status;
        /// Decides on the conversion of an operator: 1, 0, or -1 to leave it to the runtime.
        48 should_convert_data_layout_for_op: fn(
            this: *mut Ep, domain: *const c_char, op_type: *const c_char, target: EpDataLayout, convert: *mut c_int
        ) -> *mut Status;
        /// Changes options of a living session.
        56 set_dynamic_options: fn(
            this: *mut Ep, keys: *const *const c_char, values: *const *const c_char, count: usize
        ) -> *mut Status;
        /// A run begins.
        64 on_run_start: fn(this: *mut Ep, options: *const RunOptions) -> *mut Status;
        /// A run ends.
        72 on_run_end: fn(this: *mut Ep, options: *const RunOptions, sync_stream: bool) -> *mut Status;
        /// Makes an allocator of this session.
        80 create_allocator: fn(
            this: *mut Ep, memory_info: *const MemoryInfo, allocator: *mut *mut Allocator
        ) -> *mut Status;
        /// Makes a stream of this session.
        88 create_sync_stream_for_device: fn(
            this: *mut Ep, device: *const MemoryDevice, stream: *mut *mut SyncStreamImpl
        ) -> *mut Status;
        /// A text by which a compiled model is judged later.
        96 get_compiled_model_compatibility_info: fn(this: *mut Ep, graph: *const Graph) -> *const c_char;
        /// The provider's kernels, if it has single-node ones. 1.24
        104 get_kernel_registry: fn(this: *mut Ep, registry: *mut *const KernelRegistry) -> *mut Status;
        /// Tells if several runs at once are safe; the runtime assumes so. 1.24
        112 is_concurrent_run_supported: fn(this: *mut Ep, is_supported: *mut bool) -> *mut Status;
        /// Waits for the device. 1.25
        120 sync: fn(this: *mut Ep) -> *mut Status;
        /// Makes a profiler. 1.25
        128 create_profiler: fn(this: *mut Ep, profiler: *mut *mut EpProfilerImpl) -> *mut Status;
        /// True if runs are captured and replayed. 1.26
        136 is_graph_capture_enabled: fn(this: *const Ep) -> bool;
        /// True if a capture is complete. 1.26
        144 is_graph_captured: fn(this: *const Ep, annotation_id: c_int) -> bool;
        /// Replays a capture. 1.26
        152 replay_graph: fn(this: *mut Ep, annotation_id: c_int) -> *mut Status;
        /// Policy for nodes that stay on other providers in a captured graph. 1.26
        160 get_graph_capture_node_assignment_policy: fn(this: *const Ep) -> GraphCaptureNodeAssignmentPolicy;
        /// Free capacity of the device. 1.26
        168 get_available_resource: fn(this: *const Ep, resource: *mut ResourceCount) -> *mut Status;
        /// The session is complete. 1.27
        176 on_session_initialization_end: fn(this: *mut Ep) -> *mut Status;
        /// The memory that nodes read and write by default. 1.27
        184 get_default_memory_device: fn(this: *const Ep, device: *mut *const MemoryDevice) -> *mut Status;
        /// Drops a capture. 1.27
        192 release_captured_graph: fn(this: *mut Ep, annotation_id: c_int) -> *mut Status;
        /// Support for compiled models without weights. 1.29
        200 get_weightless_support: fn(this: *const Ep, support: *mut WeightlessSupport) -> *mut Status;
        /// Served callbacks for compiled models: bit 0 read, bit 1 write. 1.31
        208 get_ep_context_data_callback_support: fn(this: *const Ep, flags: *mut u32) -> *mut Status;
    }
}

callbacks! {
    /// `OrtNodeComputeInfo`: compute functions of one compiled group of nodes.
    NodeComputeInfo, ort_version_supported, 32 {
        /// Makes the group's state.
        8 create_state: fn(
            this: *mut NodeComputeInfo, context: *mut NodeComputeContext, state: *mut *mut c_void
        ) -> *mut Status;
        /// Runs the group; on several threads at once, with the same state.
        16 compute: fn(this: *mut NodeComputeInfo, state: *mut c_void, context: *mut KernelContext) -> *mut Status;
        /// Takes the state back.
        24 release_state: fn(this: *mut NodeComputeInfo, state: *mut c_void);
    }
}

/// `OrtNodeFusionOptions`: options of a claimed group of nodes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeFusionOptions {
    /// The API version of this layout.
    pub ort_version_supported: u32,
    /// True if constants vanish from the group's inputs, because the provider keeps copies.
    pub drop_constant_initializers: bool,
}

const _: () = {
    assert!(size_of::<NodeFusionOptions>() == 8);
    assert!(std::mem::offset_of!(NodeFusionOptions, drop_constant_initializers) == 4);
};

callbacks! {
    /// `OrtAllocator`
    Allocator, version, 64 {
        /// Gives memory; a size of 0 happens.
        8 alloc: fn(this: *mut Allocator, size: usize) -> *mut c_void;
        /// Takes memory back.
        16 free: fn(this: *mut Allocator, memory: *mut c_void);
        /// The memory info that the allocator was made for.
        24 info: fn(this: *const Allocator) -> *const MemoryInfo;
        /// Gives memory that lives long.
        32 reserve: fn(this: *mut Allocator, size: usize) -> *mut c_void;
        /// Numbers on the allocator's use.
        40 get_stats: fn(this: *const Allocator, stats: *mut *mut KeyValuePairs) -> *mut Status;
        /// Gives memory for work on a stream.
        48 alloc_on_stream: fn(this: *mut Allocator, size: usize, stream: *mut SyncStream) -> *mut c_void;
        /// Gives unused memory back to the system. 1.25
        56 shrink: fn(this: *mut Allocator) -> *mut Status;
    }
}

callbacks! {
    /// `OrtDataTransferImpl`: copies tensors between memories.
    DataTransferImpl, ort_version_supported, 32 {
        /// Destroys this.
        8 release: fn(this: *mut DataTransferImpl);
        /// True if copies between the two memories are served.
        16 can_copy: fn(
            this: *const DataTransferImpl, source: *const MemoryDevice, destination: *const MemoryDevice
        ) -> bool;
        /// Copies tensors, each on its stream; complete on return where that is null.
        24 copy_tensors: fn(
            this: *mut DataTransferImpl, sources: *mut *const Value, destinations: *mut *mut Value,
            streams: *mut *mut SyncStream, count: usize
        ) -> *mut Status;
    }
}

callbacks! {
    /// `OrtSyncStreamImpl`
    SyncStreamImpl, ort_version_supported, 48 {
        /// Destroys this.
        8 release: fn(this: *mut SyncStreamImpl);
        /// The native stream.
        16 get_handle: fn(this: *mut SyncStreamImpl) -> *mut c_void;
        /// Makes a notification on this stream.
        24 create_notification: fn(
            this: *mut SyncStreamImpl, notification: *mut *mut SyncNotificationImpl
        ) -> *mut Status;
        /// Waits for the stream's work.
        32 flush: fn(this: *mut SyncStreamImpl) -> *mut Status;
        /// The run that used the stream has ended.
        40 on_session_run_end: fn(this: *mut SyncStreamImpl) -> *mut Status;
    }
}

callbacks! {
    /// `OrtSyncNotificationImpl`
    SyncNotificationImpl, ort_version_supported, 40 {
        /// Destroys this.
        8 release: fn(this: *mut SyncNotificationImpl);
        /// Marks this point of the stream.
        16 activate: fn(this: *mut SyncNotificationImpl) -> *mut Status;
        /// Makes another stream wait for the point.
        24 wait_on_device: fn(this: *mut SyncNotificationImpl, consumer: *mut SyncStream) -> *mut Status;
        /// Makes the host wait for the point.
        32 wait_on_host: fn(this: *mut SyncNotificationImpl) -> *mut Status;
    }
}

/// `OrtKernelImpl`: a node's kernel. 1.24
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelImpl {
    /// The API version of the layout that the provider was built with.
    pub ort_version_supported: u32,
    /// Zero.
    pub flags: u32,
    /// Runs the node. Required.
    pub compute: Option<unsafe extern "system" fn(this: *mut KernelImpl, context: *mut KernelContext) -> *mut Status>,
    /// Destroys this. Required.
    pub release: Option<unsafe extern "system" fn(this: *mut KernelImpl)>,
    /// Takes a constant input in a form of its own.
    pub pre_pack_weight: Option<
        unsafe extern "system" fn(
            this: *mut KernelImpl,
            tensor: *const Value,
            input: c_int,
            allocator: *mut Allocator,
            cache: *mut SharedPrePackedWeightCache,
            is_packed: *mut bool,
        ) -> *mut Status,
    >,
    /// Gives a constant input in the form that another session made.
    pub set_shared_pre_packed_weight: Option<
        unsafe extern "system" fn(
            this: *mut KernelImpl,
            buffers: *const *const c_void,
            sizes: *const usize,
            count: usize,
            input: c_int,
        ) -> *mut Status,
    >,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<KernelImpl>() == 40);
    assert!(std::mem::offset_of!(KernelImpl, compute) == 8);
    assert!(std::mem::offset_of!(KernelImpl, set_shared_pre_packed_weight) == 32);
};

/// `OrtReadNamedBufferFunc`: the application's callback that gives what was stored under a name, in memory of the allocator, and its
/// size in bytes. From any thread, several at once. 1.31
pub type ReadNamedBuffer = unsafe extern "system" fn(
    state: *mut c_void,
    name: *const c_char,
    allocator: *mut Allocator,
    data: *mut *mut c_void,
    size: *mut usize,
) -> *mut Status;

/// `OrtWriteNamedBufferFunc`: the application's callback that stores bytes under a name. From any thread, several at once. 1.31
pub type WriteNamedBuffer =
    unsafe extern "system" fn(state: *mut c_void, name: *const c_char, data: *const c_void, size: usize) -> *mut Status;

/// `OrtKernelCreateFunc`: makes the kernel of a node; the runtime owns it then. 1.24
pub type KernelCreate =
    unsafe extern "system" fn(state: *mut c_void, info: *const KernelInfo, kernel: *mut *mut KernelImpl) -> *mut Status;

callbacks! {
    /// `OrtEpProfilerImpl`. 1.25
    EpProfilerImpl, ort_version_supported, 48 {
        /// Destroys this.
        8 release: fn(this: *mut EpProfilerImpl);
        /// Profiling begins, so many nanoseconds after the runtime's own.
        16 start_profiling: fn(this: *mut EpProfilerImpl, offset_ns: i64) -> *mut Status;
        /// An event of the runtime begins.
        24 start_event: fn(this: *mut EpProfilerImpl, correlation_id: u64) -> *mut Status;
        /// An event of the runtime ends.
        32 stop_event: fn(this: *mut EpProfilerImpl, correlation_id: u64, event: *const ProfilingEvent) -> *mut Status;
        /// Profiling ends: events are handed over.
        40 end_profiling: fn(this: *mut EpProfilerImpl, events: *mut ProfilingEventsContainer) -> *mut Status;
    }
}

/// `OrtResourceCount`: amount of a device's resource. 1.26
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ResourceCount {
    /// Tag of the active union member.
    pub kind: u32,
    /// Zero.
    pub reserved: u32,
    /// Bytes, where the kind says so, in the first word.
    pub value: [u64; 6],
}

const _: () = assert!(size_of::<ResourceCount>() == 56);

// The tables are one pointer and a version: cheap to copy into every struct that a provider keeps.
const _: () = assert!(size_of::<EpApi>() == 16 || cfg!(not(target_pointer_width = "64")));
