/* The host's time for runs of a session on the emulated GPU, as a server in C makes them: one after the other, with tensors bound in
 * the device's memory, and launches that succeed and run nothing.
 *
 *     program_times RUNTIME TIMES MODEL OUTPUT COLUMNS RUNS
 *
 * RUNTIME is ONNX Runtime's library, TIMES that of callback_times.c, MODEL a network from `x`, 1×3×32×32 floats, to OUTPUT,
 * 1×COLUMNS. What is printed: the launches of a run, and nanoseconds, as medians of RUNS runs: of the bare launches in a loop, of
 * the provider's Compute, of its other callbacks, and of the runtime's part of a run. The loop is in turn with the runs. */
#include <time.h>

#include "runtime.h"

enum { COMPUTE, KINDS = 5, ROOM = 4096, CHANNELS = 3, SIDE = 32, WARM = 16 };

static size_t (*take)(int, long long*);
static long long times[ROOM];
static long long look;

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

/* Nanoseconds of the calls of a kind since the last question, without what the clock itself takes. */
static long long taken(int kind) {
    long long sum = 0;
    size_t count = take(kind, times);
    for (size_t i = 0; i < count; i++) sum += times[i] - look;
    return sum;
}

static int ascending(const void* one, const void* other) {
    long long a = *(const long long*)one, b = *(const long long*)other;
    return (a > b) - (a < b);
}

static long long median(long long* values, size_t count) {
    qsort(values, count, sizeof *values, ascending);
    return values[count / 2];
}

int main(int count, char** arguments) {
    CHECK(count == 7, "usage: program_times RUNTIME TIMES MODEL OUTPUT COLUMNS RUNS");
    const char* output = arguments[4];
    const int64_t input_shape[] = {1, CHANNELS, SIDE, SIDE}, output_shape[] = {1, atoll(arguments[5])};
    size_t runs = (size_t)atoll(arguments[6]);
    CHECK(runs > 0, "expected a number of runs, got %s", arguments[6]);
    void* env = opened(arguments[1], arguments[2], "program_times");
    void* clock = dlopen(arguments[2], RTLD_NOW);
    CHECK(clock, "%s", dlerror());
    *(void**)&take = symbol(clock, "callback_times_take");
    long long (*pause)(void), (*repeat)(void*, void*);
    size_t (*recorded)(void);
    *(void**)&pause = symbol(clock, "callback_times_clock");
    *(void**)&repeat = symbol(clock, "callback_times_launches");
    *(void**)&recorded = symbol(clock, "callback_times_recorded");
    void (*watch)(void*);
    *(void**)&watch = symbol(hip, "hipemu_watch_launches");
    void* launch = symbol(hip, "hipModuleLaunchKernel");

    const void* device = first_gpu(env);
    struct Allocator* allocator = NULL;
    GOOD(SHARED_ALLOCATOR(env, DEVICE_MEMORY(device, DEVICE), (void**)&allocator));
    CHECK(allocator, "there is no allocator of device memory");
    void *options = NULL, *session, *binding = NULL, *x = NULL, *y = NULL, *stream = NULL;
    GOOD(CREATE_SESSION_OPTIONS(&options));
    session = session_on(env, device, arguments[3], options);
    RELEASE_SESSION_OPTIONS(options);
    GOOD(CREATE_TENSOR(allocator, input_shape, 4, FLOAT, &x));
    GOOD(CREATE_TENSOR(allocator, output_shape, 2, FLOAT, &y));
    void* content = NULL;
    GOOD(TENSOR_DATA(x, &content));
    HIP(hipMemset, content, 0, sizeof(float) * CHANNELS * SIDE * SIDE);
    HIP(hipStreamCreateWithFlags, &stream, 1);
    GOOD(CREATE_BINDING(session, &binding));
    GOOD(BIND_INPUT(binding, "x", x));
    GOOD(BIND_OUTPUT(binding, output, y));

    /* Plans are built and first executions done; then the launches of one run are taken down. */
    for (int i = 0; i < 2; i++) GOOD(RUN_WITH_BINDING(session, NULL, binding));
    ((void (*)(void))symbol(clock, "callback_times_forget"))();
    watch(symbol(clock, "callback_times_record"));
    GOOD(RUN_WITH_BINDING(session, NULL, binding));
    watch(NULL);
    size_t launches = recorded();

    ((void (*)(int))symbol(hip, "hipemu_skip_launches"))(1);
    long long* figures[4];
    for (int i = 0; i < 4; i++) CHECK(figures[i] = calloc(runs, sizeof **figures), "there is no memory for %zu runs", runs);
    for (size_t i = 0; i < runs; i++) figures[0][i] = pause();
    look = median(figures[0], runs);
    for (size_t run = 0; run < runs + WARM; run++) {
        long long start = now();
        GOOD(RUN_WITH_BINDING(session, NULL, binding));
        long long whole = now() - start - look, compute = taken(COMPUTE), others = 0;
        for (int kind = COMPUTE + 1; kind < KINDS; kind++) others += taken(kind);
        long long bare = repeat(launch, stream);
        CHECK(bare >= 0, "a bare launch failed, or not all of the %zu launches could be taken down", launches);
        if (run < WARM) continue;
        long long figure[] = {bare - look, compute, others, whole - compute - others};
        for (int i = 0; i < 4; i++) figures[i][run - WARM] = figure[i];
    }
    ((void (*)(int))symbol(hip, "hipemu_skip_launches"))(0);
    printf("%zu", launches);
    for (int i = 0; i < 4; i++) {
        printf(" %lld", median(figures[i], runs));
        free(figures[i]);
    }
    printf("\n");

    RELEASE_BINDING(binding);
    RELEASE_VALUE(x);
    RELEASE_VALUE(y);
    HIP(hipStreamDestroy, stream);
    RELEASE_SESSION(session);
    GOOD(UNREGISTER_LIBRARY(env, "hipdnn_rs"));
    RELEASE_ENV(env);
    return 0;
}
