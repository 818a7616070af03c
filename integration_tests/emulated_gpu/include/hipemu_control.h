/* What tests can ask of the emulated HIP runtime, beside HIP itself. The functions are exported by our
 * libamdhip64; a real one does not have them, so look them up with dlsym. */
#ifndef HIPEMU_CONTROL_H
#define HIPEMU_CONTROL_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* What is alive now, and what was done since the process began. Only ever extended at the end. */
struct hipemu_counters
{
    uint64_t live_streams; /* made by the program: not the null streams */
    uint64_t live_events;
    uint64_t live_allocations; /* device memory */
    uint64_t live_bytes;
    uint64_t live_host_allocations; /* pinned memory, registered memory too */
    uint64_t live_modules;
    uint64_t live_graphs;
    uint64_t live_graph_execs;

    uint64_t calls;             /* of functions that return hipError_t */
    uint64_t launches;          /* accepted, skipped ones too */
    uint64_t kernels_run;       /* by the emulator, to the end */
    uint64_t kernels_failed;
    uint64_t copies;            /* accepted */
    uint64_t fills;             /* accepted memsets */
    uint64_t waits;             /* host waits: synchronize calls and synchronous copies */
    uint64_t injected_failures; /* failures made by hipemu_fail_call or HIPEMU_FAIL */
    uint64_t violations;        /* bad addresses of kernels and copies, waits while streams are held */
};

/* Copies at most `size` bytes, so an older program works with a newer library. */
void hipemu_get_counters(struct hipemu_counters *out, size_t size);

/* How often a function was called since the process began; "*" for all together. */
uint64_t hipemu_call_count(const char *function);

/* The n-th call from now (1: the next) of `function` ("*": of any) gives `error`, once. "kernel" stands for the
 * execution of a kernel, which then fails later, on its stream. Functions that release something do so nevertheless. */
void hipemu_fail_call(const char *function, uint64_t nth, int error);
/* Takes back every failure that has not happened yet. */
void hipemu_fail_clear(void);

/* From now on at most so many bytes of memory a device, and so many in one piece; 0: no such limit. */
void hipemu_set_memory_limit(uint64_t total, uint64_t single);

/* While held, streams take work and run none of it, and a call that would wait for it gives hipErrorLaunchTimeOut. */
void hipemu_hold_streams(int hold);

/* Before each piece of work a stream waits 0 to `max_us` microseconds, at random from the seed. */
void hipemu_set_delay(uint64_t max_us, uint64_t seed);

/* While set, launches succeed and run nothing. */
void hipemu_skip_launches(int skip);

/* From now on `watcher` is called with what each hipModuleLaunchKernel is given, before that is checked; NULL: none. */
typedef void (*hipemu_launch_watcher)(void *function, const unsigned grid[3], const unsigned block[3], unsigned shared,
                                      void **params, void **extra);
void hipemu_watch_launches(hipemu_launch_watcher watcher);

/* From now on every call is written to this file as a line of JSON (appended); NULL: none. 0 on success. */
int hipemu_trace(const char *path);
/* Writes a line of its own to the trace. */
void hipemu_trace_mark(const char *text);

/* Forgets errors that stick to devices after a bad address. */
void hipemu_clear_errors(void);

#ifdef __cplusplus
}
#endif
#endif
