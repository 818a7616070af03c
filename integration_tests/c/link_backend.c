/* link_backend: linked with libhipdnn_backend.so in the ordinary way, lists the engines that its plugins offer. */
#include <stdio.h>
#include <stdlib.h>

#include "hipdnn_rs/hipdnn_backend.h"

int main(void) {
    hipdnnHandle_t handle;
    size_t count = 0;
    if (hipdnnCreate(&handle) != HIPDNN_STATUS_SUCCESS ||
        hipdnnGetEngineCount_ext(handle, &count) != HIPDNN_STATUS_SUCCESS) {
        char text[2048];
        hipdnnGetLastErrorString(text, sizeof text);
        fprintf(stderr, "%s\n", text);
        return 1;
    }
    printf("backend %s, %zu engines\n", hipdnnVersionString_ext(), count);
    for (size_t i = 0; i < count; i++) {
        char name[128], plugin[128], version[64], type[64];
        size_t lengths[4] = {sizeof name, sizeof plugin, sizeof version, sizeof type};
        int64_t id = 0;
        hipdnnStatus_t status = hipdnnGetEngineInfo_ext(handle, i, &id, name, &lengths[0], plugin, &lengths[1], version,
                                                        &lengths[2], type, &lengths[3]);
        if (status != HIPDNN_STATUS_SUCCESS) {
            fprintf(stderr, "engine %zu: %s\n", i, hipdnnGetErrorString(status));
            return 1;
        }
        printf("%s of %s %s (%s)\n", name, plugin, version, type);
    }
    hipdnnDestroy(handle);
    if (count == 0) {
        fprintf(stderr, "no plugin was found beside the backend\n");
        return 1;
    }
    return 0;
}
