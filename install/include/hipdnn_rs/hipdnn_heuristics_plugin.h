/* hipDNN's heuristics-plugin ABI in plain C: libraries with policies that rank engines for a graph. It is version 0.1.0
 * of HeuristicsPluginApi.h (ROCm/rocm-libraries, projects/hipdnn/plugin_sdk, commit 02dc267), which is a branch's:
 * hosts take plugins of the same major version. Names, numbers and layouts are hipDNN's, the words are this project's.
 *
 * A plugin exports the functions of every plugin of hipdnn_plugin.h, with hipdnnPluginGetApiVersion ("0.1.0") and
 * hipdnnPluginSetLoggingCallback, and those below that are not called optional. Its type is
 * HIPDNN_PLUGIN_TYPE_HEURISTIC. Hosts look for it in hipdnn_plugins/heuristics/ beside their library, in
 * HIPDNN_HEURISTIC_PLUGIN_DIR, and where hipdnnSetHeuristicPluginPaths_ext says; its policies are asked if a client or
 * HIPDNN_HEUR_POLICY_ORDER names them.
 *
 * A host asks so, on one thread for each handle:
 *   HandleCreate, then for each graph: HandleSetDeviceProperties, PolicyDescriptorCreate, PolicySetEngineIds,
 *   PolicySetSerializedGraph, PolicyFinalizeWithHost or PolicyFinalize, and if that applied PolicyGetSortedEngineIds
 *   twice and PolicyGetEngineConfig for each engine; PolicyDescriptorDestroy.
 *
 * Every function answers HIPDNN_PLUGIN_STATUS_SUCCESS, or a status whose reason hipdnnPluginGetLastErrorString gives on
 * the same thread; a host then asks the next policy. Null out-pointers and handles that are none are
 * HIPDNN_PLUGIN_STATUS_BAD_PARAM. No exception leaves a function. A plugin calls nothing of HIP: what it may know of
 * the device it is told. */
#ifndef HIPDNN_RS_HIPDNN_HEURISTICS_PLUGIN_H
#define HIPDNN_RS_HIPDNN_HEURISTICS_PLUGIN_H

#include "hipdnn_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HIPDNN_HEURISTIC_API_VERSION "0.1.0"

/* What a plugin keeps for one hipDNN handle, and a policy that is asked about one graph. */
typedef struct hipdnnHeuristicHandle_opaque* hipdnnHeuristicHandle_t;
typedef struct hipdnnHeuristicPolicyDescriptor_opaque* hipdnnHeuristicPolicyDescriptor_t;

/* The subject of a prediction: an engine as it is without settings, or one configuration of it. */
typedef enum {
    HIPDNN_ENGINE_PREDICTION_ENGINE = 0,
    HIPDNN_ENGINE_PREDICTION_CONFIGURATION = 1
} hipdnnEnginePredictionKind_t;

/* What a host lends for the length of hipdnnHeuristicPolicyFinalizeWithHost, on its thread. Later versions append
 * fields: check version (now 2) and struct_size before a field is read. */
typedef struct {
    uint32_t version;
    size_t struct_size;
    void* context; /* the first argument of get_prediction */
    /* Lends a FlatBuffer EnginePrediction (engine.fbs) of a candidate, whose status may be UNAVAILABLE, until
     * finalizing ends. BAD_PARAM for an engine that is no candidate or a kind that is none. */
    hipdnnPluginStatus_t (*get_prediction)(void* context, int64_t engine_id, hipdnnEnginePredictionKind_t kind,
                                           hipdnnPluginConstData_t* prediction);
    /* Since version 2: "tflops" (more is better) or "time" (milliseconds, less is better), or a name that came later,
     * for which a policy that does not know it declines. Never null. */
    const char* ranking_metric;
} hipdnnHeuristicHostCallbacks_t;

/* The ids of the policies: FNV-1a hashes (64 bits, of the name's bytes) of their names, each once and the same as long
 * as the library is loaded. With max_policies 0 the number of all in *num_policies, else at most as many ids and
 * their number. */
hipdnnPluginStatus_t hipdnnHeuristicPluginGetAllPolicyIds(int64_t* policy_ids, uint32_t max_policies,
                                                          uint32_t* num_policies);

/* A policy's name, which lives as long as the library is loaded. A host refuses a plugin one of whose names has another
 * hash, or is another plugin's already. BAD_PARAM for an id that is none. */
hipdnnPluginStatus_t hipdnnHeuristicPluginGetPolicyName(int64_t policy_id, const char** name);

/* The plugin's side of a hipDNN handle; one host thread at a time uses it. */
hipdnnPluginStatus_t hipdnnHeuristicHandleCreate(hipdnnHeuristicHandle_t* out_handle);
hipdnnPluginStatus_t hipdnnHeuristicHandleDestroy(hipdnnHeuristicHandle_t handle);

/* The device that is ranked for: a FlatBuffer DeviceProperties (device.fbs, identifier HDDP) that is good for the call.
 * Verify it; BAD_PARAM if it is none. Called before policies of the handle are finalized, and again when the device is
 * another. device_id -1 is host memory: the units are threads then, and the architecture the CPU's. */
hipdnnPluginStatus_t hipdnnHeuristicHandleSetDeviceProperties(hipdnnHeuristicHandle_t handle,
                                                              const hipdnnPluginConstData_t* device_props_serialized);

/* A policy to be asked about one graph. It is destroyed before its handle. BAD_PARAM for an id that is none. */
hipdnnPluginStatus_t hipdnnHeuristicPolicyDescriptorCreate(hipdnnHeuristicHandle_t plugin_handle, int64_t policy_id,
                                                           hipdnnHeuristicPolicyDescriptor_t* out_desc);
hipdnnPluginStatus_t hipdnnHeuristicPolicyDescriptorDestroy(hipdnnHeuristicPolicyDescriptor_t desc);

/* The candidates: engines that take the graph. Copy them. */
hipdnnPluginStatus_t hipdnnHeuristicPolicySetEngineIds(hipdnnHeuristicPolicyDescriptor_t desc,
                                                       const int64_t* engine_ids,
                                                       size_t engine_id_count);

/* The graph: a FlatBuffer Graph (graph.fbs, no identifier) that is good for the call. Verify it and copy what is
 * needed; BAD_PARAM if it is none. */
hipdnnPluginStatus_t hipdnnHeuristicPolicySetSerializedGraph(hipdnnHeuristicPolicyDescriptor_t desc,
                                                             const hipdnnPluginConstData_t* serialized_graph);

/* Ranks. *out_applied is 1 if the policy has ranked, 0 if it declines: then the next policy is asked. Declining is no
 * error. NOT_INITIALIZED without device properties, candidates or graph. */
hipdnnPluginStatus_t hipdnnHeuristicPolicyFinalize(hipdnnHeuristicPolicyDescriptor_t desc, int32_t* out_applied);

/* Optional; called in place of hipdnnHeuristicPolicyFinalize where it is exported. A policy that ranks by predictions
 * declines if there are none; a null host has none. Nothing of the host is kept. */
hipdnnPluginStatus_t hipdnnHeuristicPolicyFinalizeWithHost(hipdnnHeuristicPolicyDescriptor_t desc,
                                                           const hipdnnHeuristicHostCallbacks_t* host, int32_t* out_applied);

/* The candidates, the best first: some of them or all, each once. With engine_ids null their number in *num_engines;
 * else *num_engines is the room before and what was written after the call. NOT_INITIALIZED if the policy has not
 * ranked. */
hipdnnPluginStatus_t hipdnnHeuristicPolicyGetSortedEngineIds(hipdnnHeuristicPolicyDescriptor_t desc,
                                                             int64_t* engine_ids,
                                                             size_t* num_engines);

/* Optional: the FlatBuffer EngineConfig (engine.fbs) that an engine of the answer was ranked with, 16 bytes aligned,
 * good until the descriptor changes; its engine is that engine. NOT_APPLICABLE for an engine that was ranked as it
 * is. */
hipdnnPluginStatus_t hipdnnHeuristicPolicyGetEngineConfig(hipdnnHeuristicPolicyDescriptor_t desc, int64_t engine_id,
                                                          hipdnnPluginConstData_t* engine_config);

/* Optional: an object in JSON that says for people how an engine came to its place, good until the descriptor changes.
 * NOT_APPLICABLE for an engine of which there is nothing to say. */
hipdnnPluginStatus_t hipdnnHeuristicPolicyGetTrace(hipdnnHeuristicPolicyDescriptor_t desc, int64_t engine_id,
                                                   const char** trace_json);

#ifdef __cplusplus
}
#endif
#endif
