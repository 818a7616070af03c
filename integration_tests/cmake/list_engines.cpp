// list_engines [PLUGIN_DIR]: names of the engines that the linked hipDNN backend has, one a line, of plugins in a folder or of those
// that it finds by itself.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

#include <hipdnn_rs/hipdnn_backend.h>
#include <hipdnn_rs/hipdnn_plugin.h>

namespace {

void check(hipdnnStatus_t status, const char* what) {
    if (status == HIPDNN_STATUS_SUCCESS) return;
    char text[2048] = "";
    hipdnnGetLastErrorString(text, sizeof text);
    throw std::runtime_error(std::string(what) + ": " + hipdnnGetErrorString(status) + ": " + text);
}

using Handle = std::unique_ptr<std::remove_pointer_t<hipdnnHandle_t>, decltype(&hipdnnDestroy)>;

Handle create() {
    hipdnnHandle_t made = nullptr;
    check(hipdnnCreate(&made), "create a handle");
    return Handle(made, &hipdnnDestroy);
}

} // namespace

int main(int argc, char** argv) try {
    if (argc > 1) {
        const char* path = argv[1];
        check(hipdnnSetEnginePluginPaths_ext(1, &path, HIPDNN_PLUGIN_LOADING_ABSOLUTE), "set the plugins' path");
    }
    const Handle handle = create();
    std::size_t count = 0;
    check(hipdnnGetEngineCount_ext(handle.get(), &count), "count the engines");
    for (std::size_t i = 0; i < count; i++) {
        char name[128], plugin[128], version[64], type[64];
        std::size_t lengths[4] = {sizeof name, sizeof plugin, sizeof version, sizeof type};
        std::int64_t id = 0;
        check(hipdnnGetEngineInfo_ext(handle.get(), i, &id, name, &lengths[0], plugin, &lengths[1], version, &lengths[2], type,
                                      &lengths[3]),
              "describe an engine");
        std::printf("%s\n", name);
    }
    return count == 0;
} catch (const std::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 1;
}
