// What every part of the runtime uses: settings, messages, the lock.
#pragma once
#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "../include/hipemu_control.h"

#define API extern "C" __attribute__((visibility("default")))

namespace hipemu {

// From the environment, read once. README.md lists the names.
struct Settings
{
    std::string emulator, arch, dump, trace, fail;
    int devices, compute_units, log;
    size_t memory, largest;
    bool host_access, poison;
    uint64_t delay_us, seed;
    bool skip;
    static const Settings& get();
};

// Level 0 is always printed, 1 tells of launches, 2 of every call.
__attribute__((format(printf, 2, 3))) void message(int level, const char* format, ...);

// One lock for all state but the device memory's: the emulator is a thousand times slower than any contention.
// Both are never destroyed, because streams may still run while the process exits.
std::mutex& lock();
std::condition_variable& changed(); // notified whenever work of a stream is done

using Guard = std::unique_lock<std::mutex>;

double now_us(); // since the process began
int thread_id();

// Everything the counters count, in one place.
struct Counts
{
    std::atomic<uint64_t> live_streams{0}, live_events{0}, live_allocations{0}, live_bytes{0}, live_host_allocations{0}, live_modules{0},
        live_graphs{0}, live_graph_execs{0}, launches{0}, kernels_run{0}, kernels_failed{0}, copies{0}, fills{0}, waits{0}, violations{0};
};
Counts& counts();

// Changed by the control functions.
struct Switches
{
    std::atomic<bool> skip{false}, held{false};
    std::atomic<hipemu_launch_watcher> watcher{nullptr};
    std::atomic<uint64_t> delay_us{0}, seed{0}, memory_limit{0}, single_limit{0};
};
Switches& switches();

} // namespace hipemu
