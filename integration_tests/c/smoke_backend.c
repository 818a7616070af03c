/* smoke_backend LIBRARY ENGINE: runs conv + bias + ReLU through a hipDNN backend library, once from JSON and once from
 * the binary form, and wants it to be served by the engine of that name. HIPDNN_PLUGIN_DIR chooses the plugin. */
#include "conv_case.h"
#include "hipdnn_rs/hipdnn_backend.h"
#include "library.h"

static void* library;

static void check(hipdnnStatus_t status, const char* what) {
    if (status == HIPDNN_STATUS_SUCCESS) return;
    char text[2048];
    FUNCTION(library, hipdnnGetLastErrorString);
    FUNCTION(library, hipdnnGetErrorString);
    p_hipdnnGetLastErrorString(text, sizeof text);
    fprintf(stderr, "%s: %s (%d): %s\n", what, p_hipdnnGetErrorString(status), (int)status, text);
    exit(1);
}

static void run(hipdnnHandle_t handle, hipdnnBackendDescriptor_t graph, const char* engine_name, const char* form) {
    FUNCTION(library, hipdnnBackendCreateDescriptor);
    FUNCTION(library, hipdnnBackendDestroyDescriptor);
    FUNCTION(library, hipdnnBackendSetAttribute);
    FUNCTION(library, hipdnnBackendGetAttribute);
    FUNCTION(library, hipdnnBackendFinalize);
    FUNCTION(library, hipdnnBackendExecute);

    check(p_hipdnnBackendSetAttribute(graph, HIPDNN_ATTR_OPERATIONGRAPH_HANDLE, HIPDNN_TYPE_HANDLE, 1, &handle),
          "give the graph its handle");
    check(p_hipdnnBackendFinalize(graph), "finalize the graph");

    hipdnnBackendDescriptor_t heuristic, config, engine, plan, pack;
    hipdnnBackendHeurMode_t mode = HIPDNN_HEUR_MODE_FALLBACK;
    check(p_hipdnnBackendCreateDescriptor(HIPDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic), "create the heuristic");
    check(p_hipdnnBackendSetAttribute(heuristic, HIPDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                      HIPDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph),
          "give the heuristic its graph");
    check(p_hipdnnBackendSetAttribute(heuristic, HIPDNN_ATTR_ENGINEHEUR_MODE, HIPDNN_TYPE_HEUR_MODE, 1, &mode),
          "give the heuristic its mode");
    check(p_hipdnnBackendFinalize(heuristic), "finalize the heuristic");
    int64_t found = 0;
    check(p_hipdnnBackendGetAttribute(heuristic, HIPDNN_ATTR_ENGINEHEUR_RESULTS, HIPDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                      &found, NULL),
          "count the engines");
    if (found != 1) {
        fprintf(stderr, "%s: %d engines offer themselves, wanted exactly one (%s)\n", form, (int)found, engine_name);
        exit(1);
    }
    check(p_hipdnnBackendCreateDescriptor(HIPDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config), "create the configuration");
    check(p_hipdnnBackendGetAttribute(heuristic, HIPDNN_ATTR_ENGINEHEUR_RESULTS, HIPDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                      &found, &config),
          "get the configuration");
    check(p_hipdnnBackendFinalize(config), "finalize the configuration");

    char name[64] = "";
    check(p_hipdnnBackendGetAttribute(config, HIPDNN_ATTR_ENGINECFG_ENGINE, HIPDNN_TYPE_BACKEND_DESCRIPTOR, 1, NULL,
                                      &engine),
          "get the engine");
    check(p_hipdnnBackendGetAttribute(engine, HIPDNN_ATTR_ENGINE_NAME_EXT, HIPDNN_TYPE_CHAR, sizeof name, NULL, name),
          "get the engine's name");
    if (strcmp(name, engine_name) != 0) {
        fprintf(stderr, "%s: the engine is %s, wanted %s\n", form, name, engine_name);
        exit(1);
    }

    int64_t workspace_bytes = -1;
    check(p_hipdnnBackendCreateDescriptor(HIPDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan), "create the plan");
    check(p_hipdnnBackendSetAttribute(plan, HIPDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, HIPDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                      &config),
          "give the plan its configuration");
    check(p_hipdnnBackendFinalize(plan), "finalize the plan");
    check(p_hipdnnBackendGetAttribute(plan, HIPDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, HIPDNN_TYPE_INT64, 1, NULL,
                                      &workspace_bytes),
          "get the workspace size");

    float *x = aligned_alloc(64, (X_LEN * 4 + 63) / 64 * 64), *w = aligned_alloc(64, (W_LEN * 4 + 63) / 64 * 64),
          *b = aligned_alloc(64, 64), *y = aligned_alloc(64, (Y_LEN * 4 + 63) / 64 * 64);
    void* workspace = workspace_bytes > 0 ? aligned_alloc(64, ((size_t)workspace_bytes + 63) / 64 * 64) : NULL;
    fill(x, X_LEN, 1);
    fill(w, W_LEN, 2);
    fill(b, FILTERS, 3);

    int64_t uids[] = {UID_Y, UID_X, UID_B, UID_W};
    void* pointers[] = {y, x, b, w};
    check(p_hipdnnBackendCreateDescriptor(HIPDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack), "create the variant pack");
    check(p_hipdnnBackendSetAttribute(pack, HIPDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, HIPDNN_TYPE_INT64, 4, uids),
          "give the pack its uids");
    check(p_hipdnnBackendSetAttribute(pack, HIPDNN_ATTR_VARIANT_PACK_DATA_POINTERS, HIPDNN_TYPE_VOID_PTR, 4, pointers),
          "give the pack its pointers");
    check(p_hipdnnBackendSetAttribute(pack, HIPDNN_ATTR_VARIANT_PACK_WORKSPACE, HIPDNN_TYPE_VOID_PTR, 1, &workspace),
          "give the pack its workspace");
    check(p_hipdnnBackendFinalize(pack), "finalize the variant pack");

    for (int round = 1; round <= 2; round++) {
        memset(y, 0xff, Y_LEN * sizeof *y);
        check(p_hipdnnBackendExecute(handle, plan, pack), "execute");
        double error = worst_error(x, w, b, y);
        printf("%s, execution %d on %s: largest error is %.3f of its bound\n", form, round, name, error);
        if (!(error <= 1.0)) exit(1);
    }

    hipdnnBackendDescriptor_t all[] = {pack, plan, engine, config, heuristic, graph};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check(p_hipdnnBackendDestroyDescriptor(all[i]), "destroy a descriptor");
    free(x), free(w), free(b), free(y), free(workspace);
}

int main(int argc, char** argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s LIBRARY ENGINE\n", argv[0]);
        return 2;
    }
    library = open_library(argv[1]);
    FUNCTION(library, hipdnnCreate);
    FUNCTION(library, hipdnnDestroy);
    FUNCTION(library, hipdnnVersionString_ext);
    FUNCTION(library, hipdnnBackendCreateAndDeserializeJsonGraph_ext);
    FUNCTION(library, hipdnnBackendCreateAndDeserializeGraph_ext);
    FUNCTION(library, hipdnnBackendGetSerializedBinaryGraph_ext);
    printf("backend version %s\n", p_hipdnnVersionString_ext());

    hipdnnHandle_t handle;
    check(p_hipdnnCreate(&handle), "create a handle");

    hipdnnBackendDescriptor_t from_json, from_bytes;
    check(p_hipdnnBackendCreateAndDeserializeJsonGraph_ext(&from_json, CONV_BIAS_RELU_JSON,
                                                           strlen(CONV_BIAS_RELU_JSON)),
          "read the JSON graph");
    size_t size = 0;
    check(p_hipdnnBackendGetSerializedBinaryGraph_ext(from_json, 0, &size, NULL), "get the size of the binary graph");
    uint8_t* bytes = malloc(size);
    check(p_hipdnnBackendGetSerializedBinaryGraph_ext(from_json, size, &size, bytes), "get the binary graph");
    check(p_hipdnnBackendCreateAndDeserializeGraph_ext(&from_bytes, bytes, size), "read the binary graph");
    /* The library must have taken a copy. */
    memset(bytes, 0, size);
    free(bytes);

    run(handle, from_json, argv[2], "JSON graph");
    run(handle, from_bytes, argv[2], "binary graph");
    check(p_hipdnnDestroy(handle), "destroy the handle");
    return 0;
}
