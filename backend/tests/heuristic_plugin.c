/* A heuristics plugin with two policies: REVERSE ranks candidates the other way round, NEVER declines. What it is asked it
   keeps in `heuristic_calls`. Macros make it fail. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "hipdnn_rs/hipdnn_plugin.h"

#ifndef HEURISTIC_API
#define HEURISTIC_API "0.1.0"
#endif
#ifndef HEURISTIC_TYPE
#define HEURISTIC_TYPE HIPDNN_PLUGIN_TYPE_HEURISTIC
#endif
#ifndef HEURISTIC_NAME
#define HEURISTIC_NAME "REVERSE"
#endif
#define EXPORT __attribute__((visibility("default")))

typedef struct {
    uint32_t version;
    size_t struct_size;
    void* context;
    hipdnnPluginStatus_t (*get_prediction)(void*, int64_t, int, hipdnnPluginConstData_t*);
    const char* ranking_metric;
} callbacks;

EXPORT struct {
    int64_t handles, policies, graph_bytes, device_bytes, predictions, foreign_predictions;
    char metric[32];
} heuristic_calls;

typedef struct {
    int64_t ids[64];
    size_t count;
    int declines, finished;
} policy;

static const char* const names[2] = {HEURISTIC_NAME, "NEVER"};

static int64_t id_of(const char* name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return (int64_t)hash;
}

EXPORT hipdnnPluginStatus_t hipdnnPluginGetName(const char** name) {
    *name = "reversing";
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT hipdnnPluginStatus_t hipdnnPluginGetVersion(const char** version) {
    *version = "3.2.1";
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT hipdnnPluginStatus_t hipdnnPluginGetApiVersion(const char** version) {
    *version = HEURISTIC_API;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT hipdnnPluginStatus_t hipdnnPluginGetType(hipdnnPluginType_t* type) {
    *type = HEURISTIC_TYPE;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT void hipdnnPluginGetLastErrorString(const char** text) { *text = "no luck"; }

EXPORT hipdnnPluginStatus_t hipdnnPluginSetLoggingCallback(hipdnnCallback_t callback) {
    (void)callback;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT hipdnnPluginStatus_t hipdnnHeuristicPluginGetAllPolicyIds(int64_t* ids, uint32_t max, uint32_t* count) {
    *count = 2;
    for (uint32_t i = 0; i < max && i < 2; i++) ids[i] = id_of(names[i]);
#ifdef HEURISTIC_WRONG_ID
    if (max) ids[0] += 1;
#endif
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT hipdnnPluginStatus_t hipdnnHeuristicPluginGetPolicyName(int64_t id, const char** name) {
    *name = names[id == id_of(names[1])];
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT hipdnnPluginStatus_t hipdnnHeuristicHandleCreate(void** handle) {
#ifdef HEURISTIC_NO_HANDLE
    (void)handle;
    return HIPDNN_PLUGIN_STATUS_INTERNAL_ERROR;
#else
    static int one;
    heuristic_calls.handles++;
    *handle = &one;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
#endif
}

EXPORT hipdnnPluginStatus_t hipdnnHeuristicHandleDestroy(void* handle) {
    (void)handle;
    heuristic_calls.handles--;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT hipdnnPluginStatus_t hipdnnHeuristicHandleSetDeviceProperties(void* handle, const hipdnnPluginConstData_t* data) {
    (void)handle;
    heuristic_calls.device_bytes = (int64_t)data->size;
    return memcmp((const char*)data->ptr + 4, "HDDP", 4) ? HIPDNN_PLUGIN_STATUS_BAD_PARAM : HIPDNN_PLUGIN_STATUS_SUCCESS;
}

static policy spare[8];

EXPORT hipdnnPluginStatus_t hipdnnHeuristicPolicyDescriptorCreate(void* handle, int64_t id, policy** out) {
    (void)handle;
    *out = &spare[heuristic_calls.policies++];
    memset(*out, 0, sizeof(policy));
    (*out)->declines = id == id_of(names[1]);
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT hipdnnPluginStatus_t hipdnnHeuristicPolicyDescriptorDestroy(policy* p) {
    (void)p;
    heuristic_calls.policies--;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT hipdnnPluginStatus_t hipdnnHeuristicPolicySetEngineIds(policy* p, const int64_t* ids, size_t count) {
    for (p->count = 0; p->count < count && p->count < 64; p->count++) p->ids[p->count] = ids[count - 1 - p->count];
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT hipdnnPluginStatus_t hipdnnHeuristicPolicySetSerializedGraph(policy* p, const hipdnnPluginConstData_t* graph) {
    (void)p;
    heuristic_calls.graph_bytes = (int64_t)graph->size;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT hipdnnPluginStatus_t hipdnnHeuristicPolicyFinalize(policy* p, int32_t* applied) {
#ifdef HEURISTIC_FAILS
    return HIPDNN_PLUGIN_STATUS_INTERNAL_ERROR;
#endif
    p->finished = 1;
    *applied = !p->declines;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

#ifdef HEURISTIC_HOST
EXPORT hipdnnPluginStatus_t hipdnnHeuristicPolicyFinalizeWithHost(policy* p, const callbacks* host, int32_t* applied) {
    if (host->version < 2 || host->struct_size < sizeof(callbacks)) return HIPDNN_PLUGIN_STATUS_BAD_PARAM;
    strncpy(heuristic_calls.metric, host->ranking_metric, sizeof(heuristic_calls.metric) - 1);
    for (size_t i = 0; i < p->count; i++)
        for (int kind = 0; kind < 2; kind++) {
            hipdnnPluginConstData_t data;
            if (host->get_prediction(host->context, p->ids[i], kind, &data) == HIPDNN_PLUGIN_STATUS_SUCCESS && data.size)
                heuristic_calls.predictions++;
        }
    hipdnnPluginConstData_t none;
    if (host->get_prediction(host->context, 77, 0, &none) == HIPDNN_PLUGIN_STATUS_BAD_PARAM)
        heuristic_calls.foreign_predictions++;
    if (host->get_prediction(host->context, p->ids[0], 7, &none) == HIPDNN_PLUGIN_STATUS_BAD_PARAM)
        heuristic_calls.foreign_predictions++;
    return hipdnnHeuristicPolicyFinalize(p, applied);
}
#endif

EXPORT hipdnnPluginStatus_t hipdnnHeuristicPolicyGetSortedEngineIds(policy* p, int64_t* ids, size_t* count) {
    if (!p->finished) return HIPDNN_PLUGIN_STATUS_NOT_INITIALIZED;
#ifdef HEURISTIC_FOREIGN
    p->ids[0] = 77;
#endif
#ifdef HEURISTIC_TWICE
    p->ids[1] = p->ids[0];
#endif
    size_t room = ids ? *count : p->count;
    *count = room < p->count ? room : p->count;
    if (ids) memcpy(ids, p->ids, *count * sizeof(int64_t));
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

#ifdef HEURISTIC_CONFIG
EXPORT hipdnnPluginStatus_t hipdnnHeuristicPolicyGetEngineConfig(policy* p, int64_t id, hipdnnPluginConstData_t* config) {
    static const unsigned char bytes[] __attribute__((aligned(16))) = {
#include HEURISTIC_CONFIG
    };
    if (id != p->ids[0]) return HIPDNN_PLUGIN_STATUS_NOT_APPLICABLE;
    config->ptr = bytes;
    config->size = sizeof(bytes);
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}
#endif
