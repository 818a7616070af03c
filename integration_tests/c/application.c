/* An application of ONNX Runtime's C API on the emulated GPU, for what Python has no call for: runs on streams that run options
 * name (RunOptionsSetSyncStream), pinned memory, an allocator's numbers, and why a device can't be used:
 *
 *     application RUNTIME PROVIDER MODEL OUTPUT
 *
 * RUNTIME is ONNX Runtime's library, PROVIDER the provider's, MODEL a network from `x`, 1×3×16×16 floats, to OUTPUT, 1×6×16×16.
 * Exit status 0, or a line on standard error and 1. */
#include <math.h>

#include "../emulated_gpu/include/hipemu_control.h"
#include "runtime.h"

enum { MOST_DEVICES = 16, INPUT = 3 * 16 * 16, OUTPUT = 6 * 16 * 16, TURNS = 12 };

static void* env;
static void* session;
static const void* host_memory;
static struct Allocator *allocator, *pinned;
static const int64_t INPUT_SHAPE[] = {1, 3, 16, 16}, OUTPUT_SHAPE[] = {1, 6, 16, 16};
static const char* const INPUTS[] = {"x"};
static const char* OUTPUTS[1];

static struct hipemu_counters counters(void) {
    struct hipemu_counters now;
    ((void (*)(struct hipemu_counters*, size_t))symbol(hip, "hipemu_get_counters"))(&now, sizeof now);
    return now;
}

static void hold(int held) {
    ((void (*)(int))symbol(hip, "hipemu_hold_streams"))(held);
}

static void mark(const char* text) {
    ((void (*)(const char*))symbol(hip, "hipemu_trace_mark"))(text);
}

static void* over(float* data, size_t count, const int64_t* shape) {
    void* value = NULL;
    GOOD(CREATE_TENSOR_WITH_DATA(host_memory, data, count * sizeof *data, shape, 4, FLOAT, &value));
    return value;
}

static void* from(struct Allocator* where, const int64_t* shape) {
    void* value = NULL;
    GOOD(CREATE_TENSOR(where, shape, 4, FLOAT, &value));
    return value;
}

static void* address(void* value) {
    void* data = NULL;
    GOOD(TENSOR_DATA(value, &data));
    return data;
}

static long long number(struct Allocator* of, const char* key) {
    void* numbers = NULL;
    GOOD(of->get_stats(of, &numbers));
    const char* text = KEY_VALUE(numbers, key);
    CHECK(text, "the allocator does not tell %s", key);
    long long value = atoll(text);
    RELEASE_KEY_VALUES(numbers);
    return value;
}

/* Beside a GPU the CPU is not offered, and it is said why; of a GPU that is offered nothing is said. */
static void hardware(const void* offered) {
    const void* found[MOST_DEVICES];
    size_t count = 0;
    GOOD(COUNT_HARDWARE(env, &count));
    CHECK(count > 0 && count <= MOST_DEVICES, "%zu devices", count);
    GOOD(LIST_HARDWARE(env, found, count));
    for (size_t i = 0; i <= count; i++) {
        const void* device = i < count ? found[i] : offered;
        void* details = NULL;
        uint32_t reasons = 0;
        const char* notes = NULL;
        GOOD(INCOMPATIBILITY(env, PROVIDER, device, &details));
        GOOD(INCOMPATIBILITY_REASONS(details, &reasons));
        GOOD(INCOMPATIBILITY_NOTES(details, &notes));
        if (device == offered)
            CHECK(reasons == 0, "the GPU that is offered can't be used: %s", notes ? notes : "");
        else if (DEVICE_TYPE(device) == CPU)
            CHECK(reasons != 0 && notes && strstr(notes, "HIPDNN_RS_CPU_ENGINE=on"), "the CPU: %u, %s", reasons, notes ? notes : "");
        RELEASE_INCOMPATIBILITY(details);
    }
}

/* What is given to a run and what is to come of it. */
struct Example {
    float x[INPUT], y[OUTPUT];
    float* got;
    /* `x` in the host's own memory and in pinned memory; pinned memory for the result, where `got` is. */
    void *input, *pinned_input, *output;
};

static void compare(const struct Example* example, const char* when) {
    for (size_t i = 0; i < OUTPUT; i++)
        /* False for what is not a number, too. */
        CHECK(fabsf(example->got[i] - example->y[i]) <= 1e-4f, "%s: element %zu is %g, expected %g", when, i, example->got[i], example->y[i]);
}

/* A stream of the application's, the options of runs on it, and tensors that they use. */
struct Lane {
    void *stream, *handle, *options, *x, *y;
};

static struct Lane lane(const void* device) {
    struct Lane made = {0};
    GOOD(CREATE_SYNC_STREAM(device, NULL, &made.stream));
    made.handle = STREAM_HANDLE(made.stream);
    CHECK(made.handle, "a stream without a handle");
    GOOD(CREATE_RUN_OPTIONS(&made.options));
    SET_SYNC_STREAM(made.options, made.stream);
    GOOD(ADD_RUN_CONFIG_ENTRY(made.options, "disable_synchronize_execution_providers", "1"));
    made.x = from(allocator, INPUT_SHAPE);
    made.y = from(allocator, OUTPUT_SHAPE);
    return made;
}

/* Enqueues the way of an example: to the device, through the network, and back. The copies of one enqueued before come before it. */
static void enqueue(struct Lane* lane, struct Example* example) {
    const void *source = example->pinned_input, *result = lane->y;
    GOOD(COPY_TENSORS(env, &source, &lane->x, lane->stream, 1));
    GOOD(RUN(session, lane->options, INPUTS, &lane->x, 1, OUTPUTS, 1, &lane->y));
    GOOD(COPY_TENSORS(env, &result, &example->output, lane->stream, 1));
}

static void leave(struct Lane* lane) {
    RELEASE_VALUE(lane->x);
    RELEASE_VALUE(lane->y);
    RELEASE_RUN_OPTIONS(lane->options);
    RELEASE_SYNC_STREAM(lane->stream);
}

int main(int count, char** arguments) {
    CHECK(count == 5, "usage: application RUNTIME PROVIDER MODEL OUTPUT");
    OUTPUTS[0] = arguments[4];
    env = opened(arguments[1], arguments[2], "application");
    GOOD(CREATE_CPU_MEMORY_INFO(0, 0, (void**)&host_memory));
    const void* device = first_gpu(env);
    hardware(HARDWARE_DEVICE(device));
    GOOD(SHARED_ALLOCATOR(env, DEVICE_MEMORY(device, DEVICE), (void**)&allocator));
    GOOD(SHARED_ALLOCATOR(env, DEVICE_MEMORY(device, PINNED), (void**)&pinned));
    CHECK(allocator && pinned, "there is no allocator of device memory, or of pinned memory");
    long long used = number(allocator, "InUse");

    static struct Example examples[TURNS];
    void *options = NULL, *cpu = NULL;
    GOOD(CREATE_SESSION_OPTIONS(&options));
    GOOD(CREATE_SESSION(env, arguments[3], options, &cpu));
    for (size_t turn = 0; turn < TURNS; turn++) {
        struct Example* example = &examples[turn];
        for (size_t i = 0; i < INPUT; i++)
            example->x[i] = (float)((i * 7 + turn * 31) % 101) / 50.0f - 1.0f;
        example->input = over(example->x, INPUT, INPUT_SHAPE);
        example->pinned_input = from(pinned, INPUT_SHAPE);
        example->output = from(pinned, OUTPUT_SHAPE);
        memcpy(address(example->pinned_input), example->x, sizeof example->x);
        example->got = address(example->output);
        void* output = over(example->y, OUTPUT, OUTPUT_SHAPE);
        GOOD(RUN(cpu, NULL, INPUTS, &example->input, 1, OUTPUTS, 1, &output));
        RELEASE_VALUE(output);
    }
    RELEASE_SESSION(cpu);
    session = session_on(env, device, arguments[3], options);
    RELEASE_SESSION_OPTIONS(options);

    struct Lane first = lane(device), second = lane(device);
    CHECK(first.handle != second.handle, "two streams are one");
    CHECK(number(allocator, "InUse") >= used + 2 * (INPUT + OUTPUT) * (long long)sizeof(float), "InUse is %lld", number(allocator, "InUse"));
    CHECK(number(allocator, "TotalAllocated") >= number(allocator, "InUse"), "more is in use than there is");
    for (size_t turn = 0; turn < 3; turn++) {
        enqueue(&first, &examples[turn]);
        enqueue(&second, &examples[turn + 3]);
        HIP(hipStreamSynchronize, first.handle);
        HIP(hipStreamSynchronize, second.handle);
        compare(&examples[turn], "a first run");
        compare(&examples[turn + 3], "a first run on the other stream");
    }

    /* While streams are held, whoever waits fails; all is enqueued all the same, and nothing happens before they are let go. */
    struct hipemu_counters before = counters();
    hold(1);
    mark("held");
    memset(examples[6].got, 0, OUTPUT * sizeof(float));
    enqueue(&first, &examples[6]);
    mark("let go");
    int ready = ((int (*)(void*))symbol(hip, "hipStreamQuery"))(first.handle);
    CHECK(ready == 600, "hipStreamQuery gave %d, expected 600: the run was not enqueued on the application's stream", ready);
    CHECK(examples[6].got[0] == 0, "a result is there before the streams run");
    struct hipemu_counters after = counters();
    hold(0);
    CHECK(after.launches > before.launches, "a run launches nothing");
    CHECK(after.waits == before.waits && after.violations == before.violations, "a run waits");
    HIP(hipStreamSynchronize, first.handle);
    compare(&examples[6], "a run on a held stream");

    /* Runs that follow one another on a stream that is late use the same tensors: each has to find its own input. */
    ((void (*)(uint64_t, uint64_t))symbol(hip, "hipemu_set_delay"))(500, 3);
    for (size_t turn = 0; turn < TURNS; turn++) {
        memset(examples[turn].got, 0, OUTPUT * sizeof(float));
        enqueue(turn % 3 ? &first : &second, &examples[turn]);
    }
    HIP(hipStreamSynchronize, first.handle);
    HIP(hipStreamSynchronize, second.handle);
    for (size_t turn = 0; turn < TURNS; turn++)
        compare(&examples[turn], "a run on a late stream");

    /* A run that is told nothing else has ended when it returns. */
    void* waiting = NULL;
    GOOD(CREATE_RUN_OPTIONS(&waiting));
    SET_SYNC_STREAM(waiting, first.stream);
    const void* source = examples[1].input;
    void* target = over(examples[1].got, OUTPUT, OUTPUT_SHAPE);
    memset(examples[1].got, 0, OUTPUT * sizeof(float));
    GOOD(COPY_TENSORS(env, &source, &first.x, first.stream, 1));
    GOOD(RUN(session, waiting, INPUTS, &first.x, 1, OUTPUTS, 1, &target));
    compare(&examples[1], "a run that waits");
    RELEASE_VALUE(target);
    RELEASE_RUN_OPTIONS(waiting);

    CHECK(counters().violations == before.violations, "an address was bad");
    leave(&first);
    leave(&second);
    for (size_t turn = 0; turn < TURNS; turn++) {
        RELEASE_VALUE(examples[turn].input);
        RELEASE_VALUE(examples[turn].pinned_input);
        RELEASE_VALUE(examples[turn].output);
    }
    RELEASE_SESSION(session);
    CHECK(number(allocator, "InUse") == used, "%lld bytes stay in use", number(allocator, "InUse") - used);
    GOOD(UNREGISTER_LIBRARY(env, "hipdnn_rs"));
    RELEASE_MEMORY_INFO((void*)host_memory);
    struct hipemu_counters left = counters();
    CHECK(left.live_streams == 0 && left.live_events == 0 && left.live_allocations == 0 && left.live_host_allocations == 0,
          "left behind: %llu streams, %llu events, %llu and %llu allocations", (unsigned long long)left.live_streams,
          (unsigned long long)left.live_events, (unsigned long long)left.live_allocations,
          (unsigned long long)left.live_host_allocations);
    RELEASE_ENV(env);
    return 0;
}
