/* The part of hipDNN's backend ABI that a client of serialized graphs needs, in plain C, so that programs compile
 * without ROCm. The names and numbers are hipDNN's; link with, or open, any libhipdnn_backend.so. */
#ifndef HIPDNN_RS_HIPDNN_BACKEND_H
#define HIPDNN_RS_HIPDNN_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hipdnnHandle* hipdnnHandle_t;
typedef struct hipdnnBackendDescriptor* hipdnnBackendDescriptor_t;
typedef struct ihipStream_t* hipStream_t;

typedef enum {
    HIPDNN_STATUS_SUCCESS = 0,
    HIPDNN_STATUS_NOT_INITIALIZED = 1,
    HIPDNN_STATUS_BAD_PARAM = 2,
    HIPDNN_STATUS_BAD_PARAM_NULL_POINTER = 3,
    HIPDNN_STATUS_BAD_PARAM_NOT_FINALIZED = 4,
    HIPDNN_STATUS_BAD_PARAM_OUT_OF_BOUND = 5,
    HIPDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT = 6,
    HIPDNN_STATUS_BAD_PARAM_STREAM_MISMATCH = 7,
    HIPDNN_STATUS_NOT_SUPPORTED = 8,
    HIPDNN_STATUS_INTERNAL_ERROR = 9,
    HIPDNN_STATUS_ALLOC_FAILED = 10,
    HIPDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED = 11,
    HIPDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED = 12,
    HIPDNN_STATUS_EXECUTION_FAILED = 13,
    HIPDNN_STATUS_PLUGIN_ERROR = 14
} hipdnnStatus_t;

#ifndef HIPDNN_RS_SEVERITY_DEFINED
#define HIPDNN_RS_SEVERITY_DEFINED
typedef enum {
    HIPDNN_SEV_INFO = 0,
    HIPDNN_SEV_WARN = 1,
    HIPDNN_SEV_ERROR = 2,
    HIPDNN_SEV_FATAL = 3,
    HIPDNN_SEV_OFF = 4
} hipdnnSeverity_t;

typedef void (*hipdnnCallback_t)(hipdnnSeverity_t severity, const char* message);
#endif

typedef enum {
    HIPDNN_BACKEND_ENGINE_DESCRIPTOR = 1,
    HIPDNN_BACKEND_ENGINECFG_DESCRIPTOR = 2,
    HIPDNN_BACKEND_ENGINEHEUR_DESCRIPTOR = 3,
    HIPDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR = 4,
    HIPDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR = 6,
    HIPDNN_BACKEND_KNOB_INFO_DESCRIPTOR = 7,
    HIPDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR = 10,
    HIPDNN_BACKEND_VARIANT_PACK_DESCRIPTOR = 11,
    HIPDNN_BACKEND_TENSOR_DESCRIPTOR = 14,
    HIPDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR = 15,
    HIPDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR = 18
} hipdnnBackendDescriptorType_t;

typedef enum {
    HIPDNN_TYPE_HANDLE = 0,
    HIPDNN_TYPE_DATA_TYPE = 1,
    HIPDNN_TYPE_BOOLEAN = 2,
    HIPDNN_TYPE_INT64 = 3,
    HIPDNN_TYPE_FLOAT = 4,
    HIPDNN_TYPE_DOUBLE = 5,
    HIPDNN_TYPE_VOID_PTR = 6,
    HIPDNN_TYPE_HEUR_MODE = 7,
    HIPDNN_TYPE_BACKEND_DESCRIPTOR = 13,
    HIPDNN_TYPE_CHAR = 19,
    HIPDNN_TYPE_CONVOLUTION_MODE = 24,
    HIPDNN_TYPE_POINTWISE_MODE = 25
} hipdnnBackendAttributeType_t;

typedef enum {
    HIPDNN_ATTR_ENGINEHEUR_MODE = 100,
    HIPDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH = 101,
    HIPDNN_ATTR_ENGINEHEUR_RESULTS = 102,
    HIPDNN_ATTR_ENGINECFG_ENGINE = 200,
    HIPDNN_ATTR_ENGINECFG_KNOB_CHOICES = 202,
    HIPDNN_ATTR_ENGINECFG_WORKSPACE_SIZE = 203,
    HIPDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG = 301,
    HIPDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE = 302,
    HIPDNN_ATTR_KNOB_CHOICE_KNOB_TYPE = 500,
    HIPDNN_ATTR_KNOB_CHOICE_KNOB_VALUE = 501,
    HIPDNN_ATTR_OPERATIONGRAPH_HANDLE = 600,
    HIPDNN_ATTR_OPERATIONGRAPH_OPS = 601,
    HIPDNN_ATTR_VARIANT_PACK_UNIQUE_IDS = 700,
    HIPDNN_ATTR_VARIANT_PACK_DATA_POINTERS = 701,
    HIPDNN_ATTR_VARIANT_PACK_WORKSPACE = 703,
    HIPDNN_ATTR_ENGINE_OPERATION_GRAPH = 1000,
    HIPDNN_ATTR_ENGINE_GLOBAL_INDEX = 1001,
    HIPDNN_ATTR_ENGINE_NAME_EXT = 1008
} hipdnnBackendAttributeName_t;

typedef enum { HIPDNN_HEUR_MODE_FALLBACK = 0 } hipdnnBackendHeurMode_t;

typedef enum {
    HIPDNN_PLUGIN_LOADING_ADDITIVE = 0,
    HIPDNN_PLUGIN_LOADING_ABSOLUTE = 1
} hipdnnPluginLoadingMode_ext_t;

typedef enum {
    HIPDNN_PLUGIN_UNLOAD_LAZY = 0,
    HIPDNN_PLUGIN_UNLOAD_EAGER = 1
} hipdnnPluginUnloadingMode_ext_t;

hipdnnStatus_t hipdnnCreate(hipdnnHandle_t* handle);
hipdnnStatus_t hipdnnDestroy(hipdnnHandle_t handle);
hipdnnStatus_t hipdnnSetStream(hipdnnHandle_t handle, hipStream_t streamId);
hipdnnStatus_t hipdnnGetStream(hipdnnHandle_t handle, hipStream_t* streamId);
hipdnnStatus_t hipdnnBackendCreateDescriptor(hipdnnBackendDescriptorType_t type, hipdnnBackendDescriptor_t* descriptor);
hipdnnStatus_t hipdnnBackendDestroyDescriptor(hipdnnBackendDescriptor_t descriptor);
hipdnnStatus_t hipdnnBackendFinalize(hipdnnBackendDescriptor_t descriptor);
hipdnnStatus_t hipdnnBackendSetAttribute(hipdnnBackendDescriptor_t descriptor, hipdnnBackendAttributeName_t name,
                                         hipdnnBackendAttributeType_t type, int64_t elementCount,
                                         const void* arrayOfElements);
hipdnnStatus_t hipdnnBackendGetAttribute(hipdnnBackendDescriptor_t descriptor, hipdnnBackendAttributeName_t name,
                                         hipdnnBackendAttributeType_t type, int64_t requestedElementCount,
                                         int64_t* elementCount, void* arrayOfElements);
hipdnnStatus_t hipdnnBackendExecute(hipdnnHandle_t handle, hipdnnBackendDescriptor_t executionPlan,
                                    hipdnnBackendDescriptor_t variantPack);
const char* hipdnnGetErrorString(hipdnnStatus_t status);
void hipdnnGetLastErrorString(char* message, size_t maxSize);
void hipdnnPeekLastErrorString_ext(char* message, size_t maxSize);

hipdnnStatus_t hipdnnBackendCreateAndDeserializeGraph_ext(hipdnnBackendDescriptor_t* descriptor,
                                                          const uint8_t* serializedGraph, size_t graphByteSize);
hipdnnStatus_t hipdnnBackendGetSerializedBinaryGraph_ext(hipdnnBackendDescriptor_t descriptor, size_t requestedByteSize,
                                                         size_t* graphByteSize, uint8_t* serializedGraph);
hipdnnStatus_t hipdnnBackendGetSerializedJsonGraph_ext(hipdnnBackendDescriptor_t descriptor, size_t requestedByteSize,
                                                       size_t* graphByteSize, char* serializedJsonGraph);
hipdnnStatus_t hipdnnBackendCreateAndDeserializeJsonGraph_ext(hipdnnBackendDescriptor_t* descriptor,
                                                              const char* jsonGraph, size_t jsonByteSize);
hipdnnStatus_t hipdnnBackendGetSerializedExecutionPlan_ext(hipdnnBackendDescriptor_t descriptor,
                                                           size_t requestedByteSize, size_t* planByteSize,
                                                           uint8_t* serializedPlan);
hipdnnStatus_t hipdnnBackendCreateAndDeserializeExecutionPlan_ext(hipdnnHandle_t handle,
                                                                  hipdnnBackendDescriptor_t* descriptor,
                                                                  const uint8_t* serializedPlan, size_t planByteSize);

hipdnnStatus_t hipdnnSetEnginePluginPaths_ext(size_t numPaths, const char* const* pluginPaths,
                                              hipdnnPluginLoadingMode_ext_t loadingMode);
hipdnnStatus_t hipdnnSetPluginUnloadMode_ext(hipdnnPluginUnloadingMode_ext_t unloadingMode);
hipdnnStatus_t hipdnnGetLoadedEnginePluginPaths_ext(hipdnnHandle_t handle, size_t* numPluginPaths, char** pluginPaths,
                                                    size_t* maxStringLen);
hipdnnStatus_t hipdnnGetEngineCount_ext(hipdnnHandle_t handle, size_t* numEngines);
hipdnnStatus_t hipdnnGetEngineInfo_ext(hipdnnHandle_t handle, size_t engineIndex, int64_t* engineId, char* engineName,
                                       size_t* engineNameLen, char* pluginName, size_t* pluginNameLen, char* version,
                                       size_t* versionLen, char* type, size_t* typeLen);
hipdnnStatus_t hipdnnGetEngineIdByName_ext(hipdnnHandle_t handle, const char* engineName, int64_t* engineId);
hipdnnStatus_t hipdnnGetEngineNameById_ext(hipdnnHandle_t handle, int64_t engineId, char* engineName,
                                           size_t* engineNameLen);
hipdnnStatus_t hipdnnSetHeuristicPluginPaths_ext(size_t numPaths, const char* const* pluginPaths,
                                                 hipdnnPluginLoadingMode_ext_t loadingMode);
hipdnnStatus_t hipdnnGetHeuristicPolicyCount_ext(hipdnnHandle_t handle, size_t* numPolicies);
hipdnnStatus_t hipdnnGetHeuristicPolicyInfo_ext(hipdnnHandle_t handle, size_t policyIndex, int64_t* policyId,
                                                char* policyName, size_t* policyNameLen, char* pluginName,
                                                size_t* pluginNameLen, char* version, size_t* versionLen,
                                                char* apiVersion, size_t* apiVersionLen);
hipdnnStatus_t hipdnnBackendSetGlobalLogLevel_ext(hipdnnSeverity_t level);
hipdnnStatus_t hipdnnBackendGetGlobalLogLevel_ext(hipdnnSeverity_t* level);
const char* hipdnnVersionString_ext(void);

#ifdef __cplusplus
}
#endif
#endif
