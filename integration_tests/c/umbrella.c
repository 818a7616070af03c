/* An execution provider that has another one do its work, in the order in which AMD's umbrella provider calls those that it
 * opens: the inner factory gets no devices and no metadata, its allocators and its data transfer are asked for at each
 * session and never released, the allocators without a look whether it has any; the end of a session's initialization and
 * the memory that it reads by default are not forwarded, and neither devices nor names are asked for.
 *
 * UMBRELLA_BACKEND    the inner provider's library
 * UMBRELLA_NAME       this provider's name, which the inner library is told ("umbrella")
 * UMBRELLA_MEMORY     "device": offer a GPU that ONNX Runtime need not have found, with its memory and pinned host memory
 * UMBRELLA_DEVICE     the number of that memory's device (0)
 * UMBRELLA_RUNS       "hidden": do not forward where runs begin and end
 * UMBRELLA_PLUGIN     a test_plugin.c whose living plans are counted once compiled nodes are released
 * UMBRELLA_PROBE      call the functions of compiled nodes with what is none
 *
 * umbrella_log() gives what happened, a line each; umbrella_available() asks the last session that lives. Layouts and numbers are those of ONNX Runtime's C API. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct Status Status;
struct Ep;
typedef void (*Function)(void);

struct ApiBase {
    const Function* (*get_api)(uint32_t version);
    const char* (*get_version_string)(void);
};

struct Allocator {
    uint32_t version;
    void* (*alloc)(struct Allocator*, size_t);
    void (*free)(struct Allocator*, void*);
    const void* (*info)(const struct Allocator*);
    Function unserved[4];
    const void* memory_info;
};

struct DataTransfer {
    uint32_t version;
    void (*release)(struct DataTransfer*);
    _Bool (*can_copy)(const struct DataTransfer*, const void*, const void*);
    Status* (*copy_tensors)(struct DataTransfer*, const void**, void**, void**, size_t);
    /* Not of the interface: whom this stands for. */
    struct DataTransfer* inner;
};

struct Factory {
    uint32_t version;
    const char* (*get_name)(const struct Factory*);
    const char* (*get_vendor)(const struct Factory*);
    Status* (*get_supported_devices)(struct Factory*, const void* const*, size_t, void**, size_t, size_t*);
    Status* (*create_ep)(struct Factory*, const void* const*, const void* const*, size_t, const void*, const void*,
                         struct Ep**);
    void (*release_ep)(struct Factory*, struct Ep*);
    uint32_t (*get_vendor_id)(const struct Factory*);
    const char* (*get_version)(const struct Factory*);
    Function validate;
    Status* (*create_allocator)(struct Factory*, const void*, const void*, struct Allocator**);
    void (*release_allocator)(struct Factory*, struct Allocator*);
    Status* (*create_data_transfer)(struct Factory*, struct DataTransfer**);
    _Bool (*is_stream_aware)(const struct Factory*);
    Status* (*create_sync_stream)(struct Factory*, const void*, const void*, void**);
    Function unserved[7];
};

struct NodeComputeInfo {
    uint32_t version;
    Status* (*create_state)(struct NodeComputeInfo*, void*, void**);
    Status* (*compute)(struct NodeComputeInfo*, void*, void*);
    void (*release_state)(struct NodeComputeInfo*, void*);
};

/* The bytes are in the first word, where the kind is TOTAL_BYTES. */
struct ResourceCount {
    uint32_t kind, reserved;
    uint64_t value[6];
};

struct Ep {
    uint32_t version;
    const char* (*get_name)(const struct Ep*);
    Status* (*get_capability)(struct Ep*, const void*, void*);
    Status* (*compile)(struct Ep*, const void**, const void**, size_t, struct NodeComputeInfo**, void**);
    void (*release_node_compute_infos)(struct Ep*, struct NodeComputeInfo**, size_t);
    Function unserved_layout[3];
    Status* (*on_run_start)(struct Ep*, const void*);
    Status* (*on_run_end)(struct Ep*, const void*, _Bool);
    Status* (*create_allocator)(struct Ep*, const void*, struct Allocator**);
    Function unserved_stream[2];
    Status* (*get_kernel_registry)(struct Ep*, const void**);
    Function unserved[7];
    Status* (*get_available_resource)(const struct Ep*, struct ResourceCount*);
    Function unserved_memory[5];
    /* Not of the interface: whom this stands for. */
    struct Ep* inner;
};

_Static_assert(sizeof(struct Factory) == 168, "OrtEpFactory of API 28");
_Static_assert(offsetof(struct Factory, create_allocator) == 72, "OrtEpFactory::CreateAllocator");
_Static_assert(offsetof(struct Factory, create_sync_stream) == 104, "OrtEpFactory::CreateSyncStreamForDevice");
_Static_assert(offsetof(struct DataTransfer, inner) == 32, "OrtDataTransferImpl");
_Static_assert(offsetof(struct Ep, get_kernel_registry) == 104, "OrtEp::GetKernelRegistry");
_Static_assert(offsetof(struct Ep, create_allocator) == 80, "OrtEp::CreateAllocator");
_Static_assert(offsetof(struct Ep, get_available_resource) == 168, "OrtEp::GetAvailableResource");
_Static_assert(offsetof(struct Ep, inner) == 216, "OrtEp of API 31");

/* Entries of the runtime's tables, by their numbers from 0. */
#define CREATE_STATUS(message) ((Status * (*)(int, const char*)) api[0])(11, message)
#define ERROR_CODE(status) ((int (*)(const Status*))api[1])(status)
#define ERROR_MESSAGE(status) ((const char* (*)(const Status*))api[2])(status)
#define RELEASE_STATUS(status) ((void (*)(Status*))api[93])(status)
#define DEVICE_TYPE(device) ((int (*)(const void*))api[307])(device)
#define GET_EP_API() ((const Function* (*)(void))api[317])()
#define CREATE_MEMORY_INFO(name, device, kind, out) \
    ((Status * (*)(const char*, int, uint32_t, int32_t, int, size_t, int, void**)) api[320])(name, device, AMD, device_number(), kind, 0, 0, out)
#define RELEASE_MEMORY_INFO(info) ((void (*)(void*))api[94])(info)
#define MEMORY_INFO_NAME(info, out) ((Status * (*)(const void*, const char**)) api[71])(info, out)
#define CREATE_EP_DEVICE(factory, device, out) \
    ((Status * (*)(struct Factory*, const void*, const void*, const void*, void**)) ep_api[0])(factory, device, NULL, NULL, out)
#define ADD_ALLOCATOR_INFO(device, info) ((Status * (*)(void*, const void*)) ep_api[5])(device, info)
#define CREATE_HARDWARE_DEVICE(kind, out) \
    ((Status * (*)(int, uint32_t, uint32_t, const char*, const void*, void**)) ep_api[16])(kind, AMD, 0, "AMD", NULL, out)
#define RELEASE_HARDWARE_DEVICE(device) ((void (*)(void*))ep_api[17])(device)

enum { AMD = 0x1002, KINDS = 2, TOTAL_BYTES = 1 };

static const Function* api;
static const Function* ep_api;
static void* library;
static struct Factory* inner;
static struct Ep* last_inner_ep;
static unsigned minor;
/* What the runtime refers to until the factory is released. */
static void* hardware;
static void* memory_infos[KINDS];
static char log_text[1 << 16];

const char* umbrella_log(void) {
    return log_text;
}

/* Bytes that a session may still take on its device, as the runtime asks for a budget; -1 if it does not say. */
long long umbrella_available(void) {
    struct ResourceCount count = {0};
    if (!last_inner_ep || !last_inner_ep->get_available_resource) return -1;
    Status* status = last_inner_ep->get_available_resource(last_inner_ep, &count);
    if (status) RELEASE_STATUS(status);
    return status || count.kind != TOTAL_BYTES ? -1 : (long long)count.value[0];
}

static void note(const char* format, ...) {
    size_t used = strlen(log_text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(log_text + used, sizeof log_text - used, format, arguments);
    va_end(arguments);
}

/* Time that this thread has worked, in nanoseconds. */
static long long worked(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static int wanted(const char* name, const char* value) {
    const char* found = getenv(name);
    return found && (!value || strcmp(found, value) == 0);
}

static int device_number(void) {
    const char* number = getenv("UMBRELLA_DEVICE");
    return number ? atoi(number) : 0;
}

static const char* own_name(void) {
    const char* name = getenv("UMBRELLA_NAME");
    return name ? name : "umbrella";
}

static const char* get_name(const struct Factory* this) {
    (void)this;
    return own_name();
}

static uint32_t get_vendor_id(const struct Factory* this) {
    (void)this;
    return AMD;
}

static const char* get_version(const struct Factory* this) {
    (void)this;
    return "0.1.0";
}

/* Offers this provider on a device of the runtime's. */
static Status* offer(struct Factory* this, const void* device, int with_memory, void** out) {
    Status* status = CREATE_EP_DEVICE(this, device, out);
    for (int kind = 0; !status && with_memory && kind < KINDS; kind++) {
        /* Default memory of a GPU, then memory that the host can access, too. */
        if (!memory_infos[kind]) status = CREATE_MEMORY_INFO(kind ? "pinned" : "default", 1, kind ? 5 : 0, &memory_infos[kind]);
        if (!status) status = ADD_ALLOCATOR_INFO(*out, memory_infos[kind]);
    }
    return status;
}

static Status* get_supported_devices(struct Factory* this, const void* const* devices, size_t count, void** offers,
                                     size_t room, size_t* offered) {
    int with_memory = wanted("UMBRELLA_MEMORY", "device");
    *offered = 0;
    /* Before 1.24 a provider can't make devices. */
    if (with_memory && minor >= 24) {
        Status* status = hardware ? NULL : CREATE_HARDWARE_DEVICE(1, &hardware);
        if (!status) status = offer(this, hardware, 1, &offers[0]);
        *offered = !status;
        return status;
    }
    for (size_t i = 0; i < count && *offered < room; i++) {
        if (DEVICE_TYPE(devices[i]) != 0) continue;
        Status* status = offer(this, devices[i], with_memory, &offers[*offered]);
        if (status) return status;
        ++*offered;
    }
    return NULL;
}

static void* host_alloc(struct Allocator* this, size_t size) {
    (void)this;
    return malloc(size ? size : 1);
}

static void host_free(struct Allocator* this, void* memory) {
    (void)this;
    free(memory);
}

static const void* host_info(const struct Allocator* this) {
    return this->memory_info;
}

/* For the runtime's own use while it registers the library. */
static Status* create_shared_allocator(struct Factory* this, const void* info, const void* options,
                                       struct Allocator** allocator) {
    (void)this, (void)options;
    note("allocator of the environment\n");
    struct Allocator* made = calloc(1, sizeof *made);
    if (!made) return CREATE_STATUS("out of memory");
    made->version = 23;
    made->alloc = host_alloc;
    made->free = host_free;
    made->info = host_info;
    made->memory_info = info;
    *allocator = made;
    return NULL;
}

/* Those of the inner factory are not given back. */
static void release_allocator(struct Factory* this, struct Allocator* allocator) {
    (void)this;
    if (allocator->alloc == host_alloc) free(allocator);
}

/* The inner one is not given back. */
static void transfer_release(struct DataTransfer* this) {
    free(this);
}

static _Bool transfer_can_copy(const struct DataTransfer* this, const void* source, const void* destination) {
    return this->inner->can_copy(this->inner, source, destination);
}

static Status* transfer_copy_tensors(struct DataTransfer* this, const void** sources, void** destinations, void** streams,
                                     size_t count) {
    return this->inner->copy_tensors(this->inner, sources, destinations, streams, count);
}

static Status* create_data_transfer(struct Factory* this, struct DataTransfer** transfer) {
    static const struct DataTransfer* before;
    (void)this;
    struct DataTransfer* given = NULL;
    *transfer = NULL;
    Status* status = inner->create_data_transfer(inner, &given);
    note("data transfer: %s\n", status ? ERROR_MESSAGE(status) : !given ? "null" : given == before ? "given again" : "given");
    if (status || !given) return status;
    before = given;
    struct DataTransfer* made = calloc(1, sizeof *made);
    if (!made) return CREATE_STATUS("out of memory");
    made->version = minor;
    made->release = transfer_release;
    made->can_copy = transfer_can_copy;
    made->copy_tensors = transfer_copy_tensors;
    made->inner = given;
    *transfer = made;
    return NULL;
}

static Status* create_sync_stream(struct Factory* this, const void* device, const void* options, void** stream) {
    (void)this;
    if (!inner->create_sync_stream) return CREATE_STATUS("the inner provider has no streams");
    Status* status = inner->create_sync_stream(inner, device, options, stream);
    note("stream: %s\n", status ? ERROR_MESSAGE(status) : "given");
    return status;
}

static _Bool is_stream_aware(const struct Factory* this) {
    (void)this;
    return inner->is_stream_aware(inner);
}

/* ---- the provider of a session ---- */

static const char* ep_name(const struct Ep* this) {
    (void)this;
    return own_name();
}

static Status* ep_get_capability(struct Ep* this, const void* graph, void* info) {
    long long start = worked();
    Status* status = this->inner->get_capability(this->inner, graph, info);
    note("claiming took %lld ns\n", worked() - start);
    return status;
}

/* Says how a call with what is none ended. */
static void refused(const char* what, Status* status) {
    if (!status) {
        note("probe: %s: success\n", what);
        return;
    }
    note("probe: %s: error %d\n", what, ERROR_CODE(status));
    RELEASE_STATUS(status);
}

static void probe(const struct NodeComputeInfo* functions, struct NodeComputeInfo* this) {
    void* state = NULL;
    struct NodeComputeInfo* strangers[] = {NULL, (void*)0x1000, (void*)0x1001, (void*)log_text};
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++) {
        refused("state of a stranger", functions->create_state(strangers[i], NULL, &state));
        refused("run of a stranger", functions->compute(strangers[i], NULL, NULL));
        functions->release_state(strangers[i], NULL);
    }
    if (!this) return;
    refused("no place for the state", functions->create_state(this, NULL, NULL));
    refused("misaligned place for the state", functions->create_state(this, NULL, (void**)(log_text + 1)));
    refused("no context", functions->compute(this, NULL, NULL));
    functions->release_state(this, NULL);
}

static Status* ep_compile(struct Ep* this, const void** graphs, const void** nodes, size_t count,
                          struct NodeComputeInfo** infos, void** contexts) {
    long long start = worked();
    Status* status = this->inner->compile(this->inner, graphs, nodes, count, infos, contexts);
    note("compiling took %lld ns\n", worked() - start);
    if (!status && count > 0 && wanted("UMBRELLA_PROBE", NULL)) probe(infos[0], infos[0]);
    return status;
}

static void ep_release_node_compute_infos(struct Ep* this, struct NodeComputeInfo** infos, size_t count) {
    struct NodeComputeInfo functions = {0}, *stale = count > 0 ? infos[0] : NULL;
    if (stale) functions = *stale;
    this->inner->release_node_compute_infos(this->inner, infos, count);
    if (stale && wanted("UMBRELLA_PROBE", NULL)) {
        refused("run of a released one", functions.compute(stale, stale, stale));
        refused("state of a released one", functions.create_state(stale, NULL, (void**)&stale));
        this->inner->release_node_compute_infos(this->inner, infos, count);
        this->inner->release_node_compute_infos(this->inner, NULL, count);
        probe(&functions, NULL);
    }
    const char* path = getenv("UMBRELLA_PLUGIN");
    void* plugin = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (plugin) {
        int (*living)(void) = (int (*)(void))(size_t)dlsym(plugin, "test_plugin_living_contexts");
        note("%d plans live after %zu compiled nodes were released\n", living ? living() : -1, count);
        dlclose(plugin);
    }
}

static Status* ep_on_run_start(struct Ep* this, const void* options) {
    return this->inner->on_run_start ? this->inner->on_run_start(this->inner, options) : NULL;
}

static Status* ep_on_run_end(struct Ep* this, const void* options, _Bool sync) {
    return this->inner->on_run_end ? this->inner->on_run_end(this->inner, options, sync) : NULL;
}

static Status* ep_get_kernel_registry(struct Ep* this, const void** registry) {
    *registry = NULL;
    Status* status = this->inner->get_kernel_registry ? this->inner->get_kernel_registry(this->inner, registry) : NULL;
    note("kernels: %s\n", status ? ERROR_MESSAGE(status) : *registry ? "given" : "none");
    return status;
}

static Status* ep_create_allocator(struct Ep* this, const void* info, struct Allocator** allocator) {
    static const struct Allocator* before[KINDS];
    (void)this;
    const char* name = "";
    Status* status = MEMORY_INFO_NAME(info, &name);
    if (status) return status;
    note("allocator %s asked for\n", name);
    status = inner->create_allocator(inner, info, NULL, allocator);
    const struct Allocator** known = &before[strcmp(name, "pinned") == 0];
    note("allocator %s: %s\n", name, status ? ERROR_MESSAGE(status) : *allocator == *known ? "given again" : "given");
    if (!status) *known = *allocator;
    return status;
}

static Status* create_ep(struct Factory* this, const void* const* devices, const void* const* metadata, size_t count,
                         const void* options, const void* logger, struct Ep** ep) {
    (void)devices, (void)metadata, (void)count;
    struct Ep* made = calloc(1, sizeof *made);
    if (!made) return CREATE_STATUS("out of memory");
    Status* status = inner->create_ep(inner, NULL, NULL, 0, options, logger, &made->inner);
    if (status) {
        free(made);
        return status;
    }
    last_inner_ep = made->inner;
    made->version = this->version;
    made->get_name = ep_name;
    made->get_capability = ep_get_capability;
    made->compile = ep_compile;
    made->release_node_compute_infos = ep_release_node_compute_infos;
    if (!wanted("UMBRELLA_RUNS", "hidden")) {
        made->on_run_start = ep_on_run_start;
        made->on_run_end = ep_on_run_end;
    }
    if (wanted("UMBRELLA_MEMORY", "device")) made->create_allocator = ep_create_allocator;
    if (minor >= 24) made->get_kernel_registry = ep_get_kernel_registry;
    *ep = made;
    return NULL;
}

static void release_ep(struct Factory* this, struct Ep* ep) {
    (void)this;
    if (last_inner_ep == ep->inner) last_inner_ep = NULL;
    inner->release_ep(inner, ep->inner);
    free(ep);
}

static struct Factory factory = {
    .get_name = get_name,
    .get_vendor = get_name,
    .get_supported_devices = get_supported_devices,
    .create_ep = create_ep,
    .release_ep = release_ep,
    .get_vendor_id = get_vendor_id,
    .get_version = get_version,
    .create_allocator = create_shared_allocator,
    .release_allocator = release_allocator,
    .create_data_transfer = create_data_transfer,
    .is_stream_aware = is_stream_aware,
    .create_sync_stream = create_sync_stream,
};

typedef Status* (*CreateEpFactoriesFunction)(const char*, const struct ApiBase*, const void*, struct Factory**, size_t,
                                             size_t*);

Status* CreateEpFactories(const char* name, const struct ApiBase* base, const void* logger, struct Factory** factories,
                          size_t room, size_t* count) {
    (void)name;
    sscanf(base->get_version_string(), "1.%u", &minor);
    api = base->get_api(minor);
    ep_api = GET_EP_API();
    const char* path = getenv("UMBRELLA_BACKEND");
    library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library || room == 0) return CREATE_STATUS("UMBRELLA_BACKEND names no provider");
    CreateEpFactoriesFunction create = (CreateEpFactoriesFunction)(size_t)dlsym(library, "CreateEpFactories");
    size_t inner_count = 0;
    Status* status = create(own_name(), base, logger, &inner, 1, &inner_count);
    if (status) return status;
    factory.version = minor < 28 ? minor : 28;
    factories[0] = &factory;
    *count = 1;
    return NULL;
}

Status* ReleaseEpFactory(struct Factory* this) {
    (void)this;
    Status* (*release)(struct Factory*) = (Status * (*)(struct Factory*))(size_t) dlsym(library, "ReleaseEpFactory");
    Status* status = release(inner);
    dlclose(library);
    for (int kind = 0; kind < KINDS; kind++) {
        if (memory_infos[kind]) RELEASE_MEMORY_INFO(memory_infos[kind]);
        memory_infos[kind] = NULL;
    }
    if (hardware) RELEASE_HARDWARE_DEVICE(hardware);
    hardware = NULL;
    return status;
}
