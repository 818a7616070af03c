/* list_policies [PLUGIN_DIR]: names of the policies that the linked hipDNN backend ranks engines by, one a line, of
 * heuristics plugins in
 * a folder or of those that it finds by itself. */
#include <stdint.h>
#include <stdio.h>

#include <hipdnn_rs/hipdnn_backend.h>
#include <hipdnn_rs/hipdnn_heuristics_plugin.h>

static int failed(hipdnnStatus_t status, const char* what) {
    char text[2048] = "";
    if (status == HIPDNN_STATUS_SUCCESS) return 0;
    hipdnnGetLastErrorString(text, sizeof text);
    fprintf(stderr, "%s: %s: %s\n", what, hipdnnGetErrorString(status), text);
    return 1;
}

int main(int argc, char** argv) {
    if (argc > 1) {
        const char* path = argv[1];
        if (failed(hipdnnSetHeuristicPluginPaths_ext(1, &path, HIPDNN_PLUGIN_LOADING_ABSOLUTE),
                                                     "set the plugins' path")) return 1;
    }
    hipdnnHandle_t handle;
    if (failed(hipdnnCreate(&handle), "create a handle")) return 1;
    size_t count = 0;
    int bad = failed(hipdnnGetHeuristicPolicyCount_ext(handle, &count), "count the policies");
    for (size_t i = 0; i < count && !bad; i++) {
        char name[128], plugin[128], version[64], api[64];
        size_t lengths[4] = {sizeof name, sizeof plugin, sizeof version, sizeof api};
        int64_t id;
        bad = failed(hipdnnGetHeuristicPolicyInfo_ext(handle, i, &id, name, &lengths[0], plugin, &lengths[1], version,
                                                      &lengths[2], api, &lengths[3]),
                     "describe a policy");
        if (!bad) printf("%s\n", name);
    }
    hipdnnDestroy(handle);
    return bad;
}
