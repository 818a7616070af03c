/* run_engine ENGINE OPERATION: runs a pointwise operation on 2 x 3 x 4 x 5 floats through the linked hipDNN backend, by the engine of
 * that name. Exit status 0: the result is right; 3: no engine of that name takes the graph; 1: an error. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hipdnn_rs/hipdnn_backend.h>

enum { ELEMENTS = 120, UID_X = 5, UID_Y = -7 };

static void check(hipdnnStatus_t status, const char* what) {
    if (status == HIPDNN_STATUS_SUCCESS) return;
    char text[2048] = "";
    hipdnnGetLastErrorString(text, sizeof text);
    fprintf(stderr, "%s: %s: %s\n", what, hipdnnGetErrorString(status), text);
    exit(1);
}

static void set(hipdnnBackendDescriptor_t descriptor, hipdnnBackendAttributeName_t name, hipdnnBackendAttributeType_t type,
                int64_t count, const void* values, const char* what) {
    check(hipdnnBackendSetAttribute(descriptor, name, type, count, values), what);
}

static hipdnnBackendDescriptor_t create(hipdnnBackendDescriptorType_t type, const char* what) {
    hipdnnBackendDescriptor_t made;
    check(hipdnnBackendCreateDescriptor(type, &made), what);
    return made;
}

static hipdnnBackendDescriptor_t graph_of(hipdnnHandle_t handle, const char* operation) {
    static const char* const form =
        "{\"name\":\"one\",\"compute_data_type\":\"float\",\"intermediate_data_type\":\"float\",\"io_data_type\":\"float\","
        "\"is_override_shape_enabled\":false,\"tensors\":["
        "{\"uid\":%d,\"name\":\"x\",\"data_type\":\"float\",\"dims\":[2,3,4,5],\"strides\":[60,20,5,1],\"virtual\":false},"
        "{\"uid\":%d,\"name\":\"y\",\"data_type\":\"float\",\"dims\":[2,3,4,5],\"strides\":[60,20,5,1],\"virtual\":false}],"
        "\"nodes\":[{\"type\":\"PointwiseAttributes\",\"name\":\"node\",\"compute_data_type\":\"float\","
        "\"inputs\":{\"operation\":\"%s\",\"in_0_tensor_uid\":%d,\"in_1_tensor_uid\":null,\"in_2_tensor_uid\":null,"
        "\"axis_tensor_uid\":null,\"relu_lower_clip\":null,\"relu_upper_clip\":null,\"relu_lower_clip_slope\":null,"
        "\"swish_beta\":null,\"elu_alpha\":null,\"softplus_beta\":null},\"outputs\":{\"out_0_tensor_uid\":%d}}]}";
    char text[2048];
    snprintf(text, sizeof text, form, UID_X, UID_Y, operation, UID_X, UID_Y);
    hipdnnBackendDescriptor_t graph;
    check(hipdnnBackendCreateAndDeserializeJsonGraph_ext(&graph, text, strlen(text)), "read the graph");
    set(graph, HIPDNN_ATTR_OPERATIONGRAPH_HANDLE, HIPDNN_TYPE_HANDLE, 1, &handle, "give the graph its handle");
    check(hipdnnBackendFinalize(graph), "finalize the graph");
    return graph;
}

/* The configuration of the engine of that name, or NULL. */
static hipdnnBackendDescriptor_t offered(hipdnnBackendDescriptor_t graph, const char* wanted) {
    hipdnnBackendHeurMode_t mode = HIPDNN_HEUR_MODE_FALLBACK;
    hipdnnBackendDescriptor_t heuristic = create(HIPDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "create the heuristic");
    set(heuristic, HIPDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, HIPDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph, "give it its graph");
    set(heuristic, HIPDNN_ATTR_ENGINEHEUR_MODE, HIPDNN_TYPE_HEUR_MODE, 1, &mode, "give it its mode");
    int64_t count = 0;
    hipdnnBackendDescriptor_t found = NULL;
    if (hipdnnBackendFinalize(heuristic) == HIPDNN_STATUS_SUCCESS)
        check(hipdnnBackendGetAttribute(heuristic, HIPDNN_ATTR_ENGINEHEUR_RESULTS, HIPDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, NULL),
              "count the engines");
    if (count > 0) {
        hipdnnBackendDescriptor_t configs[16], engine;
        if (count > 16) count = 16;
        for (int64_t i = 0; i < count; i++) configs[i] = create(HIPDNN_BACKEND_ENGINECFG_DESCRIPTOR, "create a configuration");
        check(hipdnnBackendGetAttribute(heuristic, HIPDNN_ATTR_ENGINEHEUR_RESULTS, HIPDNN_TYPE_BACKEND_DESCRIPTOR, count, &count,
                                        configs),
              "get the configurations");
        for (int64_t i = 0; i < count; i++) {
            char name[128] = "";
            check(hipdnnBackendFinalize(configs[i]), "finalize a configuration");
            check(hipdnnBackendGetAttribute(configs[i], HIPDNN_ATTR_ENGINECFG_ENGINE, HIPDNN_TYPE_BACKEND_DESCRIPTOR, 1, NULL, &engine),
                  "get the engine");
            check(hipdnnBackendGetAttribute(engine, HIPDNN_ATTR_ENGINE_NAME_EXT, HIPDNN_TYPE_CHAR, sizeof name, NULL, name),
                  "get the engine's name");
            check(hipdnnBackendDestroyDescriptor(engine), "destroy the engine");
            if (!found && strcmp(name, wanted) == 0) found = configs[i];
            else check(hipdnnBackendDestroyDescriptor(configs[i]), "destroy a configuration");
        }
    }
    check(hipdnnBackendDestroyDescriptor(heuristic), "destroy the heuristic");
    return found;
}

static float expected(const char* operation, float x) {
    if (strcmp(operation, "relu_fwd") == 0) return x < 0.0f ? 0.0f : x;
    if (strcmp(operation, "identity") == 0) return x;
    return sinf(x);
}

int main(int argc, char** argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s ENGINE relu_fwd|identity|sin\n", argv[0]);
        return 2;
    }
    hipdnnHandle_t handle;
    check(hipdnnCreate(&handle), "create a handle");
    hipdnnBackendDescriptor_t graph = graph_of(handle, argv[2]), config = offered(graph, argv[1]);
    int status = 3;
    if (config) {
        hipdnnBackendDescriptor_t plan = create(HIPDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "create the plan");
        set(plan, HIPDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, HIPDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config, "give it its configuration");
        check(hipdnnBackendFinalize(plan), "finalize the plan");
        _Alignas(64) float x[ELEMENTS + 8], y[ELEMENTS + 8];
        for (int i = 0; i < ELEMENTS + 8; i++) x[i] = 0.37f * (float)(i - 60), y[i] = 1234.5f;
        int64_t uids[] = {UID_Y, UID_X};
        void *pointers[] = {y, x}, *workspace = NULL;
        hipdnnBackendDescriptor_t pack = create(HIPDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "create the variant pack");
        set(pack, HIPDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, HIPDNN_TYPE_INT64, 2, uids, "give it its uids");
        set(pack, HIPDNN_ATTR_VARIANT_PACK_DATA_POINTERS, HIPDNN_TYPE_VOID_PTR, 2, pointers, "give it its pointers");
        set(pack, HIPDNN_ATTR_VARIANT_PACK_WORKSPACE, HIPDNN_TYPE_VOID_PTR, 1, &workspace, "give it its workspace");
        check(hipdnnBackendFinalize(pack), "finalize the variant pack");
        check(hipdnnBackendExecute(handle, plan, pack), "execute");
        status = 0;
        for (int i = 0; i < ELEMENTS + 8; i++) {
            /* Behind the tensor nothing is written. */
            float wanted = i < ELEMENTS ? expected(argv[2], x[i]) : 1234.5f;
            if (!(fabsf(y[i] - wanted) <= 1e-6f * (1.0f + fabsf(x[i])))) {
                fprintf(stderr, "element %d: expected %g, got %g\n", i, wanted, y[i]);
                status = 1;
            }
        }
        check(hipdnnBackendDestroyDescriptor(pack), "destroy the variant pack");
        check(hipdnnBackendDestroyDescriptor(plan), "destroy the plan");
        check(hipdnnBackendDestroyDescriptor(config), "destroy the configuration");
    }
    check(hipdnnBackendDestroyDescriptor(graph), "destroy the graph");
    check(hipdnnDestroy(handle), "destroy the handle");
    return status;
}
