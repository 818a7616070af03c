//! ONNX Runtime's C ABI as a plugin execution provider sees it, API versions 23 to 31.
//!
//! [`Api`], [`EpApi`] and [`ModelEditorApi`] are the runtime's function tables: entries are read by number, and one that
//! is newer than the negotiated version is `None`. The structs that a provider hands to the runtime ([`EpFactory`],
//! [`Ep`], [`NodeComputeInfo`], …) have all members up to version 31; the runtime reads a member only if the struct's
//! version word reaches it.

mod api;
mod ep;

pub use api::{Api, ApiBase, EpApi, MissingEntry, ModelEditorApi};
pub use ep::*;

/// The oldest API version of these bindings: the first with the complete compile flow.
pub const MINIMUM_VERSION: u32 = 23;

/// The newest API version of these bindings.
pub const MAXIMUM_VERSION: u32 = 31;

/// `ORTCHAR_T`: the element of paths.
#[cfg(windows)]
pub type PathChar = u16;
/// `ORTCHAR_T`: the element of paths.
#[cfg(not(windows))]
pub type PathChar = std::ffi::c_char;

macro_rules! opaque {
    ($($(#[$meta:meta])* $name:ident;)*) => {
        $($(#[$meta])* #[repr(C)] pub struct $name { _opaque: [u8; 0] })*
    };
}

opaque! {
    /// `OrtStatus`: an error; null is success.
    Status;
    /// `OrtLogger`
    Logger;
    /// `OrtValue`: a tensor or another value.
    Value;
    /// `OrtTypeInfo`
    TypeInfo;
    /// `OrtTensorTypeAndShapeInfo`
    TensorTypeAndShapeInfo;
    /// `OrtSessionOptions`
    SessionOptions;
    /// `OrtEpContextConfig`: the callbacks of a session for compiled models. 1.31
    EpContextConfig;
    /// `OrtRunOptions`
    RunOptions;
    /// `OrtMemoryInfo`
    MemoryInfo;
    /// `OrtMemoryDevice`
    MemoryDevice;
    /// `OrtGraph`
    Graph;
    /// `OrtNode`
    Node;
    /// `OrtValueInfo`: a named value of a graph.
    ValueInfo;
    /// `OrtOpAttr`: an attribute of a node.
    OpAttr;
    /// `OrtKernelContext`: one call of a node's compute function.
    KernelContext;
    /// `OrtKernelRegistry`
    KernelRegistry;
    /// `OrtKernelDef`
    KernelDef;
    /// `OrtKernelDefBuilder`
    KernelDefBuilder;
    /// `OrtKernelInfo`: the node that a kernel is made for.
    KernelInfo;
    /// `OrtDataType`: a type of values, for constraints of kernels.
    DataType;
    /// `OrtSharedPrePackedWeightCache`
    SharedPrePackedWeightCache;
    /// `OrtHardwareDevice`
    HardwareDevice;
    /// `OrtEpDevice`: a hardware device as one provider serves it.
    EpDevice;
    /// `OrtKeyValuePairs`
    KeyValuePairs;
    /// `OrtNodeComputeContext`: the context that a node's state is made from.
    NodeComputeContext;
    /// `OrtEpGraphSupportInfo`: collects a provider's claims.
    EpGraphSupportInfo;
    /// `OrtSyncStream`
    SyncStream;
    /// `OrtExternalInitializerInfo`
    ExternalInitializerInfo;
    /// `OrtCustomOpDomain`
    CustomOpDomain;
    /// `OrtDeviceEpIncompatibilityDetails`
    DeviceEpIncompatibilityDetails;
    /// `OrtGraphicsInteropConfig`
    GraphicsInteropConfig;
    /// `OrtExternalResourceImporterImpl`
    ExternalResourceImporterImpl;
    /// `OrtProfilingEvent`
    ProfilingEvent;
    /// `OrtProfilingEventsContainer`
    ProfilingEventsContainer;
}

c_enum! {
    /// `OrtErrorCode`
    ErrorCode, "ORT_" {
        OK = 0,
        FAIL = 1,
        INVALID_ARGUMENT = 2,
        NO_SUCHFILE = 3,
        NO_MODEL = 4,
        ENGINE_ERROR = 5,
        RUNTIME_EXCEPTION = 6,
        INVALID_PROTOBUF = 7,
        MODEL_LOADED = 8,
        NOT_IMPLEMENTED = 9,
        INVALID_GRAPH = 10,
        EP_FAIL = 11,
        MODEL_LOAD_CANCELED = 12,
        MODEL_REQUIRES_COMPILATION = 13,
        NOT_FOUND = 14,
        DEVICE_RESET = 15,
    }
}

c_enum! {
    /// `OrtProfilingEventCategory`: category of a profiling event.
    ProfilingEventCategory, "OrtProfilingEventCategory_" {
        SESSION = 0,
        NODE = 1,
        KERNEL = 2,
        API = 3,
    }
}

c_enum! {
    /// `ONNXTensorElementDataType`
    ElementType, "ONNX_TENSOR_ELEMENT_DATA_TYPE_" {
        UNDEFINED = 0,
        FLOAT = 1,
        UINT8 = 2,
        INT8 = 3,
        UINT16 = 4,
        INT16 = 5,
        INT32 = 6,
        INT64 = 7,
        STRING = 8,
        BOOL = 9,
        FLOAT16 = 10,
        DOUBLE = 11,
        UINT32 = 12,
        UINT64 = 13,
        COMPLEX64 = 14,
        COMPLEX128 = 15,
        BFLOAT16 = 16,
        FLOAT8E4M3FN = 17,
        FLOAT8E4M3FNUZ = 18,
        FLOAT8E5M2 = 19,
        FLOAT8E5M2FNUZ = 20,
        UINT4 = 21,
        INT4 = 22,
        FLOAT4E2M1 = 23,
        UINT2 = 24,
        INT2 = 25,
        FLOAT8E8M0 = 26,
    }
}

c_enum! {
    /// `ONNXType`
    ValueType, "ONNX_TYPE_" {
        UNKNOWN = 0,
        TENSOR = 1,
        SEQUENCE = 2,
        MAP = 3,
        OPAQUE = 4,
        SPARSETENSOR = 5,
        OPTIONAL = 6,
    }
}

c_enum! {
    /// `OrtOpAttrType`
    OpAttrType, "ORT_OP_ATTR_" {
        UNDEFINED = 0,
        INT = 1,
        INTS = 2,
        FLOAT = 3,
        FLOATS = 4,
        STRING = 5,
        STRINGS = 6,
        GRAPH = 7,
        TENSOR = 8,
    }
}

c_enum! {
    /// `OrtLoggingLevel`: a larger number is more severe.
    LoggingLevel, "ORT_LOGGING_LEVEL_" {
        VERBOSE = 0,
        INFO = 1,
        WARNING = 2,
        ERROR = 3,
        FATAL = 4,
    }
}

c_enum! {
    /// `OrtHardwareDeviceType`
    HardwareDeviceType, "OrtHardwareDeviceType_" {
        CPU = 0,
        GPU = 1,
        NPU = 2,
    }
}

c_enum! {
    /// `OrtMemoryInfoDeviceType`
    MemoryInfoDeviceType, "OrtMemoryInfoDeviceType_" {
        CPU = 0,
        GPU = 1,
        FPGA = 2,
        NPU = 3,
    }
}

c_enum! {
    /// `OrtDeviceMemoryType`
    DeviceMemoryType, "OrtDeviceMemoryType_" {
        DEFAULT = 0,
        HOST_ACCESSIBLE = 5,
    }
}

c_enum! {
    /// `OrtAllocatorType`
    AllocatorType, "OrtAllocatorType_" {
        INVALID = -1,
        DEVICE = 0,
        ARENA = 1,
        READ_ONLY = 2,
    }
}

c_enum! {
    /// `OrtMemType`: the memory of a kernel's input or output.
    MemType, "OrtMemType" {
        CPUInput = -2,
        CPUOutput = -1,
        Default = 0,
    }
}

c_enum! {
    /// `OrtDeviceEpIncompatibilityReason`: bits.
    IncompatibilityReason, "OrtDeviceEpIncompatibility_" {
        NONE = 0,
        DRIVER_INCOMPATIBLE = 1,
        DEVICE_INCOMPATIBLE = 2,
        MISSING_DEPENDENCY = 4,
        UNKNOWN = -2147483648,
    }
}

c_enum! {
    /// `OrtEpDataLayout`
    EpDataLayout, "OrtEpDataLayout_" {
        NCHW = 0,
        NHWC = 1,
    }
}

c_enum! {
    /// `OrtCompiledModelCompatibility`
    CompiledModelCompatibility, "OrtCompiledModelCompatibility_EP_" {
        NOT_APPLICABLE = 0,
        SUPPORTED_OPTIMAL = 1,
        SUPPORTED_PREFER_RECOMPILATION = 2,
        UNSUPPORTED = 3,
    }
}

c_enum! {
    /// `OrtGraphCaptureNodeAssignmentPolicy`
    GraphCaptureNodeAssignmentPolicy, "OrtGraphCaptureNodeAssignmentPolicy_" {
        ALL_NODES_ON_EP = 0,
        ALLOW_CPU_FOR_SHAPES = 1,
    }
}

c_enum! {
    /// `OrtWeightlessSupport`
    WeightlessSupport, "OrtWeightlessSupport_" {
        NONE = 0,
        EXTERNAL_ONLY = 1,
        ALL_INITIALIZERS = 2,
    }
}
