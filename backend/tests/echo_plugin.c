/* A small engine plugin whose behavior is chosen with -D: its one engine computes tensor 3 = tensor 1 + tensor 2 over
 * ECHO_COUNT floats and does not look at the graph. It counts calls in echo_calls, which the tests read. */
#include <stdlib.h>
#include <string.h>

#include "hipdnn_rs/hipdnn_plugin.h"

#ifndef ECHO_NAME
#define ECHO_NAME "ECHO_ENGINE"
#endif
#ifndef ECHO_API
#define ECHO_API "1.4.0"
#endif
#ifndef ECHO_TYPE
#define ECHO_TYPE HIPDNN_PLUGIN_TYPE_ENGINE
#endif
#ifndef ECHO_COUNT
#define ECHO_COUNT 16
#endif
#ifndef ECHO_WORKSPACE
#define ECHO_WORKSPACE 64
#endif

/* The details' bytes, a FlatBuffer, written by the tests. */
static const unsigned char details_bytes[] __attribute__((aligned(16))) = {
#include ECHO_DETAILS
};

struct calls {
    int64_t created, destroyed, contexts_created, contexts_destroyed, details_given, details_taken, executed;
    int64_t graph_bytes, config_bytes, overrides, first_override;
    void* stream;
    void* workspace;
    int64_t log_level;
};
struct calls echo_calls;
/* The configuration that came last, if it fits. */
unsigned char echo_config[4096];

struct HipdnnEnginePluginHandle {
    hipStream_t stream;
};
struct HipdnnEnginePluginExecutionContext {
    int64_t token;
};

static _Thread_local const char* last_error = "";
static hipdnnCallback_t log_callback;

static hipdnnPluginStatus_t fail(const char* text) {
    last_error = text;
    return HIPDNN_PLUGIN_STATUS_INTERNAL_ERROR;
}

static int64_t engine_id(void) {
#ifdef ECHO_ID
    return ECHO_ID;
#else
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char* c = ECHO_NAME; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    return (int64_t)hash;
#endif
}

hipdnnPluginStatus_t hipdnnPluginGetName(const char** name) {
    *name = "echo";
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnPluginGetVersion(const char** version) {
    *version = "0.1.2";
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

#ifndef ECHO_NO_API
hipdnnPluginStatus_t hipdnnPluginGetApiVersion(const char** version) {
    *version = ECHO_API;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}
#endif

hipdnnPluginStatus_t hipdnnPluginGetType(hipdnnPluginType_t* type) {
    *type = ECHO_TYPE;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

void hipdnnPluginGetLastErrorString(const char** error_str) { *error_str = last_error; }

hipdnnPluginStatus_t hipdnnPluginSetLoggingCallback(hipdnnCallback_t callback) {
    log_callback = callback;
    callback(HIPDNN_SEV_INFO, "echo: hello");
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnPluginSetLogLevel(hipdnnSeverity_t level) {
    echo_calls.log_level = level;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginGetAllEngineIds(int64_t* ids, uint32_t max, uint32_t* count) {
#ifdef ECHO_TWICE
    *count = 2;
    if (max >= 2) ids[0] = ids[1] = engine_id();
#elif defined(ECHO_NONE)
    *count = 0;
#else
    *count = 1;
    if (max >= 1) ids[0] = engine_id();
#endif
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

#ifndef ECHO_UNNAMED
hipdnnPluginStatus_t hipdnnEnginePluginGetEngineName(int64_t id, const char** name) {
    if (id != engine_id()) return HIPDNN_PLUGIN_STATUS_NOT_APPLICABLE;
    *name = ECHO_NAME;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}
#endif

hipdnnPluginStatus_t hipdnnEnginePluginCreate(hipdnnEnginePluginHandle_t* handle) {
#ifdef ECHO_CREATE_FAILS
    return fail("no handle today");
#endif
    *handle = calloc(1, sizeof **handle);
    echo_calls.created++;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginDestroy(hipdnnEnginePluginHandle_t handle) {
    free(handle);
    echo_calls.destroyed++;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginSetStream(hipdnnEnginePluginHandle_t handle, hipStream_t stream) {
#ifdef ECHO_STREAM_FAILS
    return fail("no streams");
#endif
    handle->stream = stream;
    echo_calls.stream = stream;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginGetApplicableEngineIds(hipdnnEnginePluginHandle_t handle,
                                                              const hipdnnPluginConstData_t* op_graph, int64_t* ids,
                                                              uint32_t max, uint32_t* count) {
    (void)handle;
    echo_calls.graph_bytes = (int64_t)op_graph->size;
#ifdef ECHO_APPLICABLE_FAILS
    return fail("cannot say");
#endif
#ifdef ECHO_NOT_APPLICABLE
    *count = 0;
#elif defined(ECHO_TOO_MANY)
    *count = max + 1;
#else
    *count = 1;
    if (max >= 1) ids[0] = engine_id();
#endif
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginGetEngineDetails(hipdnnEnginePluginHandle_t handle, int64_t id,
                                                        const hipdnnPluginConstData_t* op_graph,
                                                        hipdnnPluginConstData_t* details) {
    (void)handle, (void)id, (void)op_graph;
#ifndef ECHO_NO_DETAILS
    echo_calls.details_given++;
    details->ptr = details_bytes;
    details->size = sizeof details_bytes;
#endif
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginDestroyEngineDetails(hipdnnEnginePluginHandle_t handle,
                                                            hipdnnPluginConstData_t* details) {
    (void)handle;
    echo_calls.details_taken += details->ptr == details_bytes && details->size == sizeof details_bytes;
    details->ptr = NULL;
    details->size = 0;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginGetWorkspaceSize(hipdnnEnginePluginHandle_t handle,
                                                        const hipdnnPluginConstData_t* config,
                                                        const hipdnnPluginConstData_t* op_graph, size_t* size) {
    (void)handle, (void)op_graph;
#ifdef ECHO_WORKSPACE_FAILS
    return fail("no workspace");
#endif
    echo_calls.config_bytes = (int64_t)config->size;
    if (config->size <= sizeof echo_config) memcpy(echo_config, config->ptr, config->size);
    *size = ECHO_WORKSPACE;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginCreateExecutionContext(hipdnnEnginePluginHandle_t handle,
                                                              const hipdnnPluginConstData_t* config,
                                                              const hipdnnPluginConstData_t* op_graph,
                                                              hipdnnEnginePluginExecutionContext_t* context) {
    (void)handle, (void)config, (void)op_graph;
#ifdef ECHO_CONTEXT_FAILS
    return fail("no context");
#endif
#ifndef ECHO_NULL_CONTEXT
    *context = calloc(1, sizeof **context);
    (*context)->token = 0x5eed;
    echo_calls.contexts_created++;
#endif
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginDestroyExecutionContext(hipdnnEnginePluginHandle_t handle,
                                                               hipdnnEnginePluginExecutionContext_t context) {
    (void)handle;
    free(context);
    echo_calls.contexts_destroyed++;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext(
    hipdnnEnginePluginHandle_t handle, hipdnnEnginePluginExecutionContext_t context, size_t* size) {
    (void)handle, (void)context;
    *size = ECHO_WORKSPACE / 2;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginExecuteOpGraph(hipdnnEnginePluginHandle_t handle,
                                                      hipdnnEnginePluginExecutionContext_t context, void* workspace,
                                                      const hipdnnPluginDeviceBuffer_t* buffers, uint32_t count) {
    const float *a = NULL, *b = NULL;
    float* out = NULL;
    (void)handle;
    if (context->token != 0x5eed) return fail("not a context of mine");
#ifdef ECHO_EXECUTE_FAILS
    return fail("not today");
#endif
    for (uint32_t i = 0; i < count; i++) {
        if (buffers[i].uid == 1) a = buffers[i].ptr;
        if (buffers[i].uid == 2) b = buffers[i].ptr;
        if (buffers[i].uid == 3) out = buffers[i].ptr;
    }
    if (!a || !b || !out) return fail("a tensor is missing");
    for (int i = 0; i < ECHO_COUNT; i++) out[i] = a[i] + b[i];
    echo_calls.executed++;
    echo_calls.workspace = workspace;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

#ifdef ECHO_OVERRIDES
hipdnnPluginStatus_t hipdnnEnginePluginExecuteOpGraphWithOverrides(
    hipdnnEnginePluginHandle_t handle, hipdnnEnginePluginExecutionContext_t context, void* workspace,
    const hipdnnPluginDeviceBuffer_t* buffers, uint32_t count, uint32_t overrides, const int64_t* uids,
    const uint32_t* lengths, const int64_t* const* shapes, const int64_t* const* strides) {
    echo_calls.overrides = overrides;
    echo_calls.first_override = uids[0] * 1000 + lengths[0] * 100 + shapes[0][lengths[0] - 1] * 10 + strides[0][0];
    return hipdnnEnginePluginExecuteOpGraph(handle, context, workspace, buffers, count);
}
#endif

#ifdef ECHO_SERIALIZE
hipdnnPluginStatus_t hipdnnEnginePluginSerializeExecutionContext(hipdnnEnginePluginHandle_t handle,
                                                                 hipdnnEnginePluginExecutionContext_t context,
                                                                 hipdnnPluginConstData_t* serialized) {
    (void)handle;
    serialized->ptr = &context->token;
    serialized->size = sizeof context->token;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginDestroySerializedExecutionContext(hipdnnEnginePluginHandle_t handle,
                                                                         hipdnnPluginConstData_t* serialized) {
    (void)handle;
    serialized->ptr = NULL;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginCreateExecutionContextFromSerialized(
    hipdnnEnginePluginHandle_t handle, const hipdnnPluginConstData_t* serialized,
    hipdnnEnginePluginExecutionContext_t* context) {
    (void)handle;
    if (serialized->size != sizeof(int64_t)) return fail("that is no plan of mine");
    *context = calloc(1, sizeof **context);
    memcpy(&(*context)->token, serialized->ptr, sizeof(int64_t));
    echo_calls.contexts_created++;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}
#endif
