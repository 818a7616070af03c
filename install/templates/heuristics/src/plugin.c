/* A heuristics plugin with one policy, which ranks engines as EXAMPLE_ENGINE_ORDER lists them. */
#include <hipdnn_rs/hipdnn_heuristics_plugin.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define POLICY "EXAMPLE_ORDER_OF_NAMES"
#define VARIABLE "EXAMPLE_ENGINE_ORDER"

/* The message of the thread's last error. */
static _Thread_local char last_error[256];
static hipdnnCallback_t callback;
static hipdnnSeverity_t level = HIPDNN_SEV_INFO;

static hipdnnPluginStatus_t fail(hipdnnPluginStatus_t status, const char* message) {
    snprintf(last_error, sizeof last_error, "%s", message);
    return status;
}

/* Refuses a null pointer of the caller's, named as the argument. */
#define NEED(pointer) \
    if (!(pointer)) return fail(HIPDNN_PLUGIN_STATUS_BAD_PARAM, #pointer ": expected a pointer, got null")

/* Ids of engines and policies are FNV-1a hashes of their names. */
static int64_t id_of(const char* name, size_t length) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)name[i]) * 0x100000001b3u;
    return (int64_t)hash;
}

struct hipdnnHeuristicHandle_opaque {
    int has_device;
};

struct hipdnnHeuristicPolicyDescriptor_opaque {
    hipdnnHeuristicHandle_t handle;
    int64_t* candidates;
    size_t count;
    int has_graph;
    /* The answer, of as much room as there are candidates. */
    int64_t* ranked;
    size_t ranked_count;
    int has_ranked;
};

/* Every plugin. */

EXPORT hipdnnPluginStatus_t hipdnnPluginGetName(const char** name) {
    NEED(name);
    *name = "example_heuristics_plugin";
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT hipdnnPluginStatus_t hipdnnPluginGetVersion(const char** version) {
    NEED(version);
    *version = "0.1.0";
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT hipdnnPluginStatus_t hipdnnPluginGetApiVersion(const char** version) {
    NEED(version);
    *version = HIPDNN_HEURISTIC_API_VERSION;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT hipdnnPluginStatus_t hipdnnPluginGetType(hipdnnPluginType_t* type) {
    NEED(type);
    *type = HIPDNN_PLUGIN_TYPE_HEURISTIC;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT void hipdnnPluginGetLastErrorString(const char** error_str) {
    if (error_str) *error_str = last_error;
}

EXPORT hipdnnPluginStatus_t hipdnnPluginSetLoggingCallback(hipdnnCallback_t new_callback) {
    NEED(new_callback);
    callback = new_callback;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT hipdnnPluginStatus_t hipdnnPluginSetLogLevel(hipdnnSeverity_t new_level) {
    level = new_level;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

/* Policies. */

EXPORT hipdnnPluginStatus_t hipdnnHeuristicPluginGetAllPolicyIds(int64_t* policy_ids, uint32_t max_policies,
                                                                 uint32_t* num_policies) {
    NEED(num_policies);
    *num_policies = 1;
    if (max_policies == 0) return HIPDNN_PLUGIN_STATUS_SUCCESS;
    NEED(policy_ids);
    policy_ids[0] = id_of(POLICY, strlen(POLICY));
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT hipdnnPluginStatus_t hipdnnHeuristicPluginGetPolicyName(int64_t policy_id, const char** name) {
    NEED(name);
    if (policy_id != id_of(POLICY, strlen(POLICY)))
        return fail(HIPDNN_PLUGIN_STATUS_BAD_PARAM, "expected the id of " POLICY ", got another");
    *name = POLICY;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

/* Handles. */

EXPORT hipdnnPluginStatus_t hipdnnHeuristicHandleCreate(hipdnnHeuristicHandle_t* out_handle) {
    NEED(out_handle);
    *out_handle = calloc(1, sizeof **out_handle);
    if (!*out_handle) return fail(HIPDNN_PLUGIN_STATUS_ALLOC_FAILED, "no memory for a handle");
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT hipdnnPluginStatus_t hipdnnHeuristicHandleDestroy(hipdnnHeuristicHandle_t handle) {
    NEED(handle);
    free(handle);
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

/* A policy that reads the facts verifies them by the schema, which this one has no use for. */
EXPORT hipdnnPluginStatus_t hipdnnHeuristicHandleSetDeviceProperties(hipdnnHeuristicHandle_t handle,
                                                                     const hipdnnPluginConstData_t* device_props_serialized) {
    NEED(handle);
    NEED(device_props_serialized);
    NEED(device_props_serialized->ptr);
    handle->has_device = 1;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

/* One request. */

EXPORT hipdnnPluginStatus_t hipdnnHeuristicPolicyDescriptorCreate(hipdnnHeuristicHandle_t plugin_handle,
                                                                  int64_t policy_id,
                                                                  hipdnnHeuristicPolicyDescriptor_t* out_desc) {
    const char* name;
    NEED(plugin_handle);
    NEED(out_desc);
    hipdnnPluginStatus_t status = hipdnnHeuristicPluginGetPolicyName(policy_id, &name);
    if (status != HIPDNN_PLUGIN_STATUS_SUCCESS) return status;
    *out_desc = calloc(1, sizeof **out_desc);
    if (!*out_desc) return fail(HIPDNN_PLUGIN_STATUS_ALLOC_FAILED, "no memory for a policy descriptor");
    (*out_desc)->handle = plugin_handle;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT hipdnnPluginStatus_t hipdnnHeuristicPolicyDescriptorDestroy(hipdnnHeuristicPolicyDescriptor_t desc) {
    NEED(desc);
    free(desc->candidates);
    free(desc->ranked);
    free(desc);
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT hipdnnPluginStatus_t hipdnnHeuristicPolicySetEngineIds(hipdnnHeuristicPolicyDescriptor_t desc,
                                                              const int64_t* engine_ids,
                                                              size_t engine_id_count) {
    NEED(desc);
    if (engine_id_count > 0) NEED(engine_ids);
    int64_t* candidates = calloc(engine_id_count + 1, sizeof *candidates);
    int64_t* ranked = calloc(engine_id_count + 1, sizeof *ranked);
    if (!candidates || !ranked) {
        free(candidates);
        free(ranked);
        return fail(HIPDNN_PLUGIN_STATUS_ALLOC_FAILED, "no memory for the candidates");
    }
    if (engine_id_count > 0) memcpy(candidates, engine_ids, engine_id_count * sizeof *candidates);
    free(desc->candidates);
    free(desc->ranked);
    desc->candidates = candidates;
    desc->ranked = ranked;
    desc->count = engine_id_count;
    desc->has_ranked = 0;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT hipdnnPluginStatus_t hipdnnHeuristicPolicySetSerializedGraph(hipdnnHeuristicPolicyDescriptor_t desc,
                                                                    const hipdnnPluginConstData_t* serialized_graph) {
    NEED(desc);
    NEED(serialized_graph);
    NEED(serialized_graph->ptr);
    desc->has_graph = 1;
    desc->has_ranked = 0;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

/* The heart: what to change for a policy of your own. */
EXPORT hipdnnPluginStatus_t hipdnnHeuristicPolicyFinalize(hipdnnHeuristicPolicyDescriptor_t desc,
                                                          int32_t* out_applied) {
    NEED(desc);
    NEED(out_applied);
    *out_applied = 0;
    if (!desc->candidates || !desc->has_graph || !desc->handle->has_device)
        return fail(HIPDNN_PLUGIN_STATUS_NOT_INITIALIZED,
                    "expected candidates, a graph and device properties before, got less");
    const char* order = getenv(VARIABLE);
    desc->ranked_count = 0;
    for (const char* name = order ? order : ""; *name;) {
        size_t length = strcspn(name, ",");
        int64_t id = id_of(name, length);
        int is_new = 1, is_candidate = 0;
        for (size_t i = 0; i < desc->ranked_count; i++) is_new &= desc->ranked[i] != id;
        for (size_t i = 0; i < desc->count; i++) is_candidate |= desc->candidates[i] == id;
        if (is_new && is_candidate) desc->ranked[desc->ranked_count++] = id;
        name += length + (name[length] == ',');
    }
    desc->has_ranked = desc->ranked_count > 0;
    *out_applied = desc->has_ranked;
    if (callback && level <= HIPDNN_SEV_INFO) {
        char text[256];
        if (desc->has_ranked)
            snprintf(text, sizeof text, POLICY " ranks %zu of %zu engines", desc->ranked_count, desc->count);
        else
            snprintf(text, sizeof text, POLICY " declines: none of %zu engines is in " VARIABLE, desc->count);
        callback(HIPDNN_SEV_INFO, text);
    }
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

EXPORT hipdnnPluginStatus_t hipdnnHeuristicPolicyGetSortedEngineIds(hipdnnHeuristicPolicyDescriptor_t desc,
                                                                    int64_t* engine_ids,
                                                                    size_t* num_engines) {
    NEED(desc);
    NEED(num_engines);
    if (!desc->has_ranked) return fail(HIPDNN_PLUGIN_STATUS_NOT_INITIALIZED,
                                       "expected a policy that ranked, got one that did not");
    size_t count = desc->ranked_count;
    if (engine_ids) {
        if (count > *num_engines) count = *num_engines;
        memcpy(engine_ids, desc->ranked, count * sizeof *engine_ids);
    }
    *num_engines = count;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}
