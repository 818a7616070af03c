/* The provider with its callbacks timed. This library opens the provider's, gives the runtime the provider's own objects,
 * and puts functions of its own in the place of those that a run calls: they call the provider's and keep how long that
 * took. Runs of one thread are what is timed. Layouts are those of ONNX Runtime's C API.
 *
 * CALLBACK_TIMES_PROVIDER    the provider's library */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct Status Status;
typedef void (*Function)(void);

struct SyncStream {
    uint32_t version;
    Function unserved[3];
    Status* (*flush)(struct SyncStream*);
    Status* (*on_session_run_end)(struct SyncStream*);
};

struct NodeComputeInfo {
    uint32_t version;
    Function create_state;
    Status* (*compute)(struct NodeComputeInfo*, void*, void*);
    Function release_state;
};

struct Ep {
    uint32_t version;
    Function unserved[2];
    Status* (*compile)(struct Ep*, const void**, const void**, size_t, struct NodeComputeInfo**, void**);
    Function unserved_layout[4];
    Status* (*on_run_start)(struct Ep*, const void*);
    Status* (*on_run_end)(struct Ep*, const void*, _Bool);
    Function create_allocator;
    Status* (*create_sync_stream)(struct Ep*, const void*, struct SyncStream**);
};

struct Factory {
    uint32_t version;
    Function unserved[3];
    Status* (*create_ep)(struct Factory*, const void* const*, const void* const*, size_t, const void*, const void*, struct Ep**);
};

_Static_assert(offsetof(struct SyncStream, flush) == 32, "OrtSyncStreamImpl::Flush");
_Static_assert(offsetof(struct NodeComputeInfo, compute) == 16, "OrtNodeComputeInfo::Compute");
_Static_assert(offsetof(struct Ep, compile) == 24, "OrtEp::Compile");
_Static_assert(offsetof(struct Ep, on_run_start) == 64, "OrtEp::OnRunStart");
_Static_assert(offsetof(struct Ep, create_sync_stream) == 88, "OrtEp::CreateSyncStreamForDevice");
_Static_assert(offsetof(struct Factory, create_ep) == 32, "OrtEpFactory::CreateEp");

/* The provider's own callbacks: each is one function for all objects of its kind. */
static void* library;
static Status* (*create_ep)(struct Factory*, const void* const*, const void* const*, size_t, const void*, const void*, struct Ep**);
static Status* (*compile)(struct Ep*, const void**, const void**, size_t, struct NodeComputeInfo**, void**);
static Status* (*on_run_start)(struct Ep*, const void*);
static Status* (*on_run_end)(struct Ep*, const void*, _Bool);
static Status* (*create_sync_stream)(struct Ep*, const void*, struct SyncStream**);
static Status* (*compute)(struct NodeComputeInfo*, void*, void*);
static Status* (*flush)(struct SyncStream*);
static Status* (*on_session_run_end)(struct SyncStream*);

enum { COMPUTE, RUN_START, RUN_END, FLUSH, STREAM_END, KINDS, ROOM = 4096, MOST_LAUNCHES = 256, MOST_BYTES = 512 };

static long long times[KINDS][ROOM];
static size_t counts[KINDS];

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static void took(int kind, long long start) {
    long long end = now();
    if (counts[kind] < ROOM) times[kind][counts[kind]++] = end - start;
}

/* Nanoseconds of the calls of a kind since the last question. Gives their number. */
size_t callback_times_take(int kind, long long* out) {
    size_t count = counts[kind];
    for (size_t i = 0; i < count; i++) out[i] = times[kind][i];
    counts[kind] = 0;
    return count;
}

/* Nanoseconds between two looks at the clock. */
long long callback_times_clock(void) {
    long long start = now();
    return now() - start;
}

/* A launch as the provider made it. */
struct Launch {
    void* function;
    unsigned grid[3], block[3], shared;
    size_t bytes;
    _Alignas(16) char arguments[MOST_BYTES];
};

static struct Launch recorded[MOST_LAUNCHES];
static size_t launches;

/* Records a launch: a hipemu_launch_watcher. One whose arguments are not in one piece, or too many, leaves all of them useless. */
void callback_times_record(void* function, const unsigned grid[3], const unsigned block[3], unsigned shared, void** params, void** extra) {
    if (launches >= MOST_LAUNCHES || params || !extra || *(size_t*)extra[3] > MOST_BYTES) {
        launches = MOST_LAUNCHES + 1;
        return;
    }
    struct Launch* launch = &recorded[launches++];
    launch->function = function;
    for (int i = 0; i < 3; i++) launch->grid[i] = grid[i], launch->block[i] = block[i];
    launch->shared = shared;
    launch->bytes = *(size_t*)extra[3];
    memcpy(launch->arguments, extra[1], launch->bytes);
}

/* Number of launches that were recorded; more than MOST_LAUNCHES if some were not. */
size_t callback_times_recorded(void) { return launches; }

/* Nanoseconds in which a loop repeats the recorded launches on a stream; negative if one fails. */
long long callback_times_launches(int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**),
                                  void* stream) {
    void* extra[] = {(void*)1, NULL, (void*)2, NULL, (void*)3};
    int failed = 0;
    long long start = now();
    for (struct Launch* one = recorded; one < recorded + launches; one++) {
        extra[1] = one->arguments;
        extra[3] = &one->bytes;
        failed |= launch(one->function, one->grid[0], one->grid[1], one->grid[2], one->block[0], one->block[1], one->block[2], one->shared, stream, NULL, extra);
    }
    long long spent = now() - start;
    return failed || launches > MOST_LAUNCHES ? -1 : spent;
}

/* Forgets what was recorded. */
void callback_times_forget(void) { launches = 0; }

static Status* timed_compute(struct NodeComputeInfo* this, void* state, void* context) {
    long long start = now();
    Status* status = compute(this, state, context);
    took(COMPUTE, start);
    return status;
}

static Status* timed_on_run_start(struct Ep* this, const void* options) {
    long long start = now();
    Status* status = on_run_start(this, options);
    took(RUN_START, start);
    return status;
}

static Status* timed_on_run_end(struct Ep* this, const void* options, _Bool sync) {
    long long start = now();
    Status* status = on_run_end(this, options, sync);
    took(RUN_END, start);
    return status;
}

static Status* timed_flush(struct SyncStream* this) {
    long long start = now();
    Status* status = flush(this);
    took(FLUSH, start);
    return status;
}

static Status* timed_on_session_run_end(struct SyncStream* this) {
    long long start = now();
    Status* status = on_session_run_end(this);
    took(STREAM_END, start);
    return status;
}

/* Puts a function in the place of a callback, if it is served, and keeps the provider's. */
#define REPLACE(object, callback)                            \
    do {                                                     \
        if ((object)->callback && (object)->callback != timed_##callback) { \
            callback = (object)->callback;                   \
            (object)->callback = timed_##callback;           \
        }                                                    \
    } while (0)

static Status* timed_compile(struct Ep* this, const void** graphs, const void** nodes, size_t count, struct NodeComputeInfo** infos, void** contexts) {
    Status* status = compile(this, graphs, nodes, count, infos, contexts);
    for (size_t i = 0; !status && i < count; i++) REPLACE(infos[i], compute);
    return status;
}

static Status* timed_create_sync_stream(struct Ep* this, const void* device, struct SyncStream** stream) {
    Status* status = create_sync_stream(this, device, stream);
    if (!status && *stream) {
        REPLACE(*stream, flush);
        REPLACE(*stream, on_session_run_end);
    }
    return status;
}

static Status* timed_create_ep(struct Factory* this, const void* const* devices, const void* const* metadata, size_t count,
                               const void* options, const void* logger, struct Ep** ep) {
    Status* status = create_ep(this, devices, metadata, count, options, logger, ep);
    if (!status && *ep) {
        REPLACE(*ep, compile);
        REPLACE(*ep, on_run_start);
        REPLACE(*ep, on_run_end);
        REPLACE(*ep, create_sync_stream);
    }
    return status;
}

Status* CreateEpFactories(const char* name, const void* base, const void* logger, struct Factory** factories, size_t room, size_t* count) {
    const char* path = getenv("CALLBACK_TIMES_PROVIDER");
    library = dlopen(path ? path : "", RTLD_NOW | RTLD_LOCAL);
    Status* (*create)(const char*, const void*, const void*, struct Factory**, size_t, size_t*) = NULL;
    if (library) *(void**)&create = dlsym(library, "CreateEpFactories");
    if (!create) abort();
    Status* status = create(name, base, logger, factories, room, count);
    for (size_t i = 0; !status && i < *count; i++) REPLACE(factories[i], create_ep);
    return status;
}

Status* ReleaseEpFactory(struct Factory* this) {
    Status* (*release)(struct Factory*);
    *(void**)&release = dlsym(library, "ReleaseEpFactory");
    return release(this);
}
