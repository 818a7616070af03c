/* smoke_plugin PLUGIN GRAPH CONFIG: drives an engine plugin's ABI directly, in the order in which a hipDNN backend
 * does. GRAPH is a file with the serialized graph of conv_case.h, CONFIG one with an engine configuration. */
#include "conv_case.h"
#include "hipdnn_rs/hipdnn_rs_extension.h"
#include "library.h"

static void* library;

static void check(hipdnnPluginStatus_t status, const char* what) {
    if (status == HIPDNN_PLUGIN_STATUS_SUCCESS) return;
    const char* text = NULL;
    FUNCTION(library, hipdnnPluginGetLastErrorString);
    p_hipdnnPluginGetLastErrorString(&text);
    fprintf(stderr, "%s: status %d: %s\n", what, (int)status, text ? text : "(null)");
    exit(1);
}

static void on_log(hipdnnSeverity_t severity, const char* message) {
    printf("log %d: %s\n", (int)severity, message);
}

static hipdnnPluginConstData_t read_file(const char* path) {
    FILE* file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) {
        perror(path);
        exit(2);
    }
    long size = ftell(file);
    rewind(file);
    void* bytes = malloc((size_t)size);
    if (fread(bytes, 1, (size_t)size, file) != (size_t)size) {
        perror(path);
        exit(2);
    }
    fclose(file);
    hipdnnPluginConstData_t data = {bytes, (size_t)size};
    return data;
}

static void want(int holds, const char* what) {
    if (holds) return;
    fprintf(stderr, "does not hold: %s\n", what);
    exit(1);
}

/* A pool of one thread, which takes the items from the last to the first. */
static int run_backwards(void* context, size_t items, void (*body)(void* data, size_t item), void* data) {
    ++*(int*)context;
    while (items > 0) body(data, --items);
    return 0;
}

int main(int argc, char** argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s PLUGIN GRAPH CONFIG\n", argv[0]);
        return 2;
    }
    library = open_library(argv[1]);
    FUNCTION(library, hipdnnPluginGetName);
    FUNCTION(library, hipdnnPluginGetVersion);
    FUNCTION(library, hipdnnPluginGetApiVersion);
    FUNCTION(library, hipdnnPluginGetType);
    FUNCTION(library, hipdnnPluginSetLoggingCallback);
    FUNCTION(library, hipdnnPluginSetLogLevel);
    FUNCTION(library, hipdnnEnginePluginGetAllEngineIds);
    FUNCTION(library, hipdnnEnginePluginGetEngineName);
    FUNCTION(library, hipdnnEnginePluginCreate);
    FUNCTION(library, hipdnnEnginePluginDestroy);
    FUNCTION(library, hipdnnEnginePluginSetStream);
    FUNCTION(library, hipdnnEnginePluginGetApplicableEngineIds);
    FUNCTION(library, hipdnnEnginePluginGetEngineDetails);
    FUNCTION(library, hipdnnEnginePluginDestroyEngineDetails);
    FUNCTION(library, hipdnnEnginePluginGetWorkspaceSize);
    FUNCTION(library, hipdnnEnginePluginCreateExecutionContext);
    FUNCTION(library, hipdnnEnginePluginDestroyExecutionContext);
    FUNCTION(library, hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext);
    FUNCTION(library, hipdnnEnginePluginExecuteOpGraph);
    FUNCTION(library, hipdnnRsGetExtension);

    const char *name = NULL, *version = NULL, *api = NULL, *engine_name = NULL;
    hipdnnPluginType_t type = HIPDNN_PLUGIN_TYPE_UNSPECIFIED;
    check(p_hipdnnPluginGetName(&name), "name");
    check(p_hipdnnPluginGetType(&type), "type");
    check(p_hipdnnPluginGetVersion(&version), "version");
    check(p_hipdnnPluginSetLoggingCallback(on_log), "log callback");
    check(p_hipdnnPluginSetLogLevel(HIPDNN_SEV_INFO), "log level");
    check(p_hipdnnPluginGetApiVersion(&api), "API version");
    want(type == HIPDNN_PLUGIN_TYPE_ENGINE, "the plugin is an engine plugin");

    uint32_t count = 0, again = 0;
    check(p_hipdnnEnginePluginGetAllEngineIds(NULL, 0, &count), "count the engines");
    want(count > 0, "the plugin has engines");
    int64_t* ids = calloc(count, sizeof *ids);
    check(p_hipdnnEnginePluginGetAllEngineIds(ids, count, &again), "list the engines");
    want(again == count, "both counts of engines agree");

    hipdnnPluginConstData_t graph = read_file(argv[2]), config = read_file(argv[3]), details = {NULL, 0};
    hipdnnEnginePluginHandle_t handle = NULL;
    check(p_hipdnnEnginePluginCreate(&handle), "create");
    check(p_hipdnnEnginePluginSetStream(handle, NULL), "set the stream");
    check(p_hipdnnEnginePluginGetApplicableEngineIds(handle, &graph, ids, count, &again), "applicable engines");
    want(again == 1, "one engine takes the graph");
    check(p_hipdnnEnginePluginGetEngineName(ids[0], &engine_name), "engine name");
    printf("%s %s, API %s, engine %s\n", name, version, api, engine_name);
    check(p_hipdnnEnginePluginGetEngineDetails(handle, ids[0], &graph, &details), "engine details");
    want(details.ptr != NULL && details.size > 0, "the details are not empty");

    size_t config_workspace = 0, workspace_bytes = 0;
    hipdnnEnginePluginExecutionContext_t context = NULL;
    check(p_hipdnnEnginePluginGetWorkspaceSize(handle, &config, &graph, &config_workspace), "workspace of the config");
    check(p_hipdnnEnginePluginCreateExecutionContext(handle, &config, &graph, &context), "create the context");
    check(p_hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext(handle, context, &workspace_bytes),
          "workspace of the context");
    want(workspace_bytes <= config_workspace, "the context needs no more workspace than the configuration said");
    /* The plugin must not look at these again. */
    memset((void*)graph.ptr, 0, graph.size);
    memset((void*)config.ptr, 0, config.size);

    float *x = malloc(X_LEN * sizeof *x), *w = malloc(W_LEN * sizeof *w), *b = malloc(FILTERS * sizeof *b),
          *y = malloc(Y_LEN * sizeof *y);
    void* workspace = workspace_bytes > 0 ? malloc(workspace_bytes) : NULL;
    fill(x, X_LEN, 1);
    fill(w, W_LEN, 2);
    fill(b, FILTERS, 3);
    /* In no particular order, with a stranger among them. */
    hipdnnPluginDeviceBuffer_t buffers[] = {{UID_B, b}, {UID_Y, y}, {4711, NULL}, {UID_X, x}, {UID_W, w}};
    const hipdnnRsExtension_t* extension = NULL;
    check(p_hipdnnRsGetExtension(HIPDNN_RS_EXTENSION_VERSION, &extension), "extension");
    want(extension->version >= HIPDNN_RS_EXTENSION_VERSION, "the extension is of the version that was asked for");
    int calls = 0;
    hipdnnRsParallelFor_t mine = {run_backwards, &calls}, before;
    for (int round = 1; round <= 3; round++) {
        memset(y, 0xff, Y_LEN * sizeof *y);
        if (round == 2) check(extension->lend_parallel_for(&mine, &before), "lend");
        check(p_hipdnnEnginePluginExecuteOpGraph(handle, context, workspace, buffers, 5), "execute");
        if (round == 2) check(extension->lend_parallel_for(&before, &mine), "lend what was lent before");
        double error = worst_error(x, w, b, y);
        printf("execution %d: largest error is %.3f of its bound\n", round, error);
        want(error <= 1.0, "the result is right within rounding");
        want((calls > 0) == (round > 1), "the parallel-for was called while it was lent");
    }
    want(before.run == NULL, "nothing was lent before");
    want(mine.run == run_backwards && mine.context == &calls, "the loan ended as it began");
    int calls_lent = calls;
    check(p_hipdnnEnginePluginExecuteOpGraph(handle, context, workspace, buffers, 5), "execute");
    want(calls == calls_lent, "the parallel-for is not called any more");
    want(p_hipdnnEnginePluginExecuteOpGraph(handle, context, workspace, buffers, 2) != HIPDNN_PLUGIN_STATUS_SUCCESS,
         "missing buffers are refused");

    check(p_hipdnnEnginePluginDestroyExecutionContext(handle, context), "destroy the context");
    check(p_hipdnnEnginePluginDestroyEngineDetails(handle, &details), "destroy the details");
    check(p_hipdnnEnginePluginDestroy(handle), "destroy");
    free(x), free(w), free(b), free(y), free(workspace), free(ids), free((void*)graph.ptr), free((void*)config.ptr);
    want(dlclose(library) == 0, "the library can be closed");
    return 0;
}
