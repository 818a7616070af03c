/* ONNX Runtime's C API and HIP for programs of tests, opened at run time. Layouts and numbers are those of ONNX Runtime's C API
 * of version 24. What fails ends the program, with a line on standard error and exit status 1. */
#ifndef RUNTIME_H
#define RUNTIME_H
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*Function)(void);
typedef struct Status Status;

struct Allocator {
    uint32_t version;
    void* (*alloc)(struct Allocator*, size_t);
    void (*free)(struct Allocator*, void*);
    const void* (*info)(const struct Allocator*);
    void* (*reserve)(struct Allocator*, size_t);
    Status* (*get_stats)(const struct Allocator*, void**);
};

struct ApiBase {
    const Function* (*get_api)(uint32_t version);
    const char* (*get_version_string)(void);
};

enum { API = 24, CPU = 0, GPU = 1, FLOAT = 1, DEVICE = 0, PINNED = 5 };

/* Entries of the runtime's table, by their numbers from 0. */
#define ENTRY(number, result, ...) ((result(*)(__VA_ARGS__))api[number])
#define ERROR_MESSAGE ENTRY(2, const char*, const Status*)
#define CREATE_ENV ENTRY(3, Status*, int, const char*, void**)
#define CREATE_SESSION ENTRY(7, Status*, void*, const char*, void*, void**)
#define RUN ENTRY(9, Status*, void*, void*, const char* const*, void* const*, size_t, const char* const*, size_t, void**)
#define CREATE_SESSION_OPTIONS ENTRY(10, Status*, void**)
#define CREATE_RUN_OPTIONS ENTRY(39, Status*, void**)
#define CREATE_TENSOR ENTRY(48, Status*, void*, const int64_t*, size_t, int, void**)
#define CREATE_TENSOR_WITH_DATA ENTRY(49, Status*, const void*, void*, size_t, const int64_t*, size_t, int, void**)
#define TENSOR_DATA ENTRY(51, Status*, void*, void**)
#define CREATE_CPU_MEMORY_INFO ENTRY(69, Status*, int, int, void**)
#define RELEASE_ENV ENTRY(92, void, void*)
#define RELEASE_MEMORY_INFO ENTRY(94, void, void*)
#define RELEASE_SESSION ENTRY(95, void, void*)
#define RELEASE_VALUE ENTRY(96, void, void*)
#define RELEASE_RUN_OPTIONS ENTRY(97, void, void*)
#define RELEASE_SESSION_OPTIONS ENTRY(100, void, void*)
#define RUN_WITH_BINDING ENTRY(133, Status*, void*, const void*, const void*)
#define CREATE_BINDING ENTRY(134, Status*, void*, void**)
#define RELEASE_BINDING ENTRY(135, void, void*)
#define BIND_INPUT ENTRY(136, Status*, void*, const char*, const void*)
#define BIND_OUTPUT ENTRY(137, Status*, void*, const char*, const void*)
#define ADD_RUN_CONFIG_ENTRY ENTRY(165, Status*, void*, const char*, const char*)
#define KEY_VALUE ENTRY(297, const char*, const void*, const char*)
#define RELEASE_KEY_VALUES ENTRY(300, void, void*)
#define REGISTER_LIBRARY ENTRY(301, Status*, void*, const char*, const char*)
#define UNREGISTER_LIBRARY ENTRY(302, Status*, void*, const char*)
#define GET_EP_DEVICES ENTRY(303, Status*, const void*, const void* const**, size_t*)
#define APPEND_PROVIDER \
    ENTRY(304, Status*, void*, void*, const void* const*, size_t, const char* const*, const char* const*, size_t)
#define DEVICE_TYPE ENTRY(307, int, const void*)
#define PROVIDER_NAME ENTRY(312, const char*, const void*)
#define HARDWARE_DEVICE ENTRY(316, const void*, const void*)
#define DEVICE_MEMORY ENTRY(374, const void*, const void*, int)
#define SHARED_ALLOCATOR ENTRY(376, Status*, void*, const void*, void**)
#define CREATE_SYNC_STREAM ENTRY(383, Status*, const void*, const void*, void**)
#define STREAM_HANDLE ENTRY(384, void*, void*)
#define RELEASE_SYNC_STREAM ENTRY(385, void, void*)
#define COPY_TENSORS ENTRY(386, Status*, const void*, const void* const*, void* const*, void*, size_t)
#define COUNT_HARDWARE ENTRY(397, Status*, const void*, size_t*)
#define LIST_HARDWARE ENTRY(398, Status*, const void*, const void**, size_t)
#define INCOMPATIBILITY ENTRY(399, Status*, const void*, const char*, const void*, void**)
#define INCOMPATIBILITY_REASONS ENTRY(400, Status*, const void*, uint32_t*)
#define INCOMPATIBILITY_NOTES ENTRY(401, Status*, const void*, const char**)
#define RELEASE_INCOMPATIBILITY ENTRY(403, void, void*)
#define SET_SYNC_STREAM ENTRY(413, void, void*, void*)

static const char PROVIDER[] = "HipDnnRsExecutionProvider";

/* The runtime's table, and HIP's library. */
static const Function* api;
static void* hip;

#define WRONG(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))
#define CHECK(condition, ...) ((condition) ? (void)0 : WRONG(__VA_ARGS__))

static inline void good(Status* status, const char* call) {
    CHECK(!status, "%s: %s", call, ERROR_MESSAGE(status));
}
#define GOOD(call) good((call), #call)

static inline void* symbol(void* library, const char* name) {
    void* found = dlsym(library, name);
    CHECK(found, "there is no %s", name);
    return found;
}

#define HIP(name, ...) hip_good(((int (*)())symbol(hip, #name))(__VA_ARGS__), #name)
static inline void hip_good(int code, const char* call) {
    CHECK(code == 0, "%s gave %d", call, code);
}

/* Opens the runtime's library and HIP's, and gives an environment with the provider's library registered. */
static inline void* opened(const char* runtime, const char* provider, const char* name) {
    void *library = dlopen(runtime, RTLD_NOW), *env = NULL;
    CHECK(library, "%s", dlerror());
    hip = dlopen("libamdhip64.so", RTLD_NOW);
    CHECK(hip, "%s", dlerror());
    api = ((const struct ApiBase* (*)(void))symbol(library, "OrtGetApiBase"))()->get_api(API);
    CHECK(api, "ONNX Runtime is older than 1.%d", API);
    GOOD(CREATE_ENV(3, name, &env));
    GOOD(REGISTER_LIBRARY(env, "hipdnn_rs", provider));
    return env;
}

/* The provider's first GPU. */
static inline const void* first_gpu(const void* env) {
    const void* const* devices = NULL;
    size_t offered = 0;
    GOOD(GET_EP_DEVICES(env, &devices, &offered));
    for (size_t i = 0; i < offered; i++)
        if (!strcmp(PROVIDER_NAME(devices[i]), PROVIDER) && DEVICE_TYPE(HARDWARE_DEVICE(devices[i])) == GPU) return devices[i];
    WRONG("the provider offers no GPU among %zu devices", offered);
    return NULL;
}

/* A session on one device with the CPU provider behind it. A network of a test is not worth a copy: without the cost rule. */
static inline void* session_on(void* env, const void* device, const char* model, void* options) {
    static const char *const keys[] = {"cost_rule"}, *const values[] = {"0"};
    void* session = NULL;
    GOOD(APPEND_PROVIDER(options, env, &device, 1, keys, values, 1));
    GOOD(CREATE_SESSION(env, model, options, &session));
    return session;
}
#endif
