// Failure on demand, the counters, launches that are skipped, the trace.
#include "kernels.h"

#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace {
std::vector<std::string> lines(const std::string& path)
{
    std::ifstream file(path);
    std::vector<std::string> all;
    for(std::string line; std::getline(file, line);) all.push_back(line);
    return all;
}
bool has(const std::string& line, const char* part) { return line.find(part) != std::string::npos; }

// A small program that cleans up after itself whatever fails; its first error.
hipError_t program(const Kernels& k)
{
    hipStream_t s  = nullptr;
    hipEvent_t e   = nullptr;
    void* p        = nullptr;
    hipModule_t m  = nullptr;
    hipFunction_t f;
    float value = 1, *q;
    int n       = 64;
    hipError_t error;
    auto run = [&] {
        if((error = hipStreamCreateWithFlags(&s, hipStreamNonBlocking))) return;
        if((error = hipEventCreate(&e))) return;
        if((error = hipMalloc(&p, 256))) return;
        if((error = hipModuleLoadData(&m, k.code.data()))) return;
        if((error = hipModuleGetFunction(&f, m, "add"))) return;
        if((error = hipMemsetAsync(p, 0, 256, s))) return;
        q                 = (float*)p;
        void* arguments[] = {&q, &value, &n};
        if((error = hipModuleLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, s, arguments, nullptr))) return;
        if((error = hipEventRecord(e, s))) return;
        error = hipStreamSynchronize(s);
    };
    run();
    auto keep = [&](hipError_t later) {
        if(!error) error = later;
    };
    if(m) keep(hipModuleUnload(m));
    if(p) keep(hipFree(p));
    if(e) keep(hipEventDestroy(e));
    if(s) keep(hipStreamDestroy(s));
    return error;
}
} // namespace

int main()
{
    Kernels k;

    check::test("the n-th call of a function fails, once", [&] {
        void* p;
        hipemu_fail_call("hipMalloc", 2, hipErrorOutOfMemory);
        HIP(hipMalloc(&p, 16));
        HIP(hipFree(p));
        HIP_GIVES(hipErrorOutOfMemory, hipMalloc(&p, 16));
        EXPECT(hipGetLastError() == hipErrorOutOfMemory);
        HIP(hipMalloc(&p, 16));
        HIP(hipFree(p));
        hipemu_fail_call("hipMalloc", 1, hipErrorOutOfMemory);
        hipemu_fail_clear();
        HIP(hipMalloc(&p, 16));
        HIP(hipFree(p));
    });
    check::test("a kernel fails when it runs", [&] {
        Buffer b(64, 1);
        Stream s;
        hipemu_fail_call("kernel", 2, hipErrorLaunchFailure);
        launch(k.add, b, 1, s);
        launch(k.add, b, 1, s);
        HIP_GIVES(hipErrorLaunchFailure, hipStreamSynchronize(s));
        HIP(hipStreamSynchronize(s)); // told once
        b.expect(2);
    });
    check::test("every call of a program fails in turn, and nothing is left", [&] {
        HIP(program(k));
        auto calls_before = hipemu_call_count("*");
        HIP(program(k));
        auto calls = hipemu_call_count("*") - calls_before;
        EXPECT(calls == 13);
        for(uint64_t nth = 1; nth <= calls; nth++)
        {
            auto before = counters();
            hipemu_fail_call("*", nth, hipErrorUnknown);
            HIP_GIVES(hipErrorUnknown, program(k));
            auto after = counters();
            EXPECT(after.injected_failures == before.injected_failures + 1);
            EXPECT(after.live_streams == before.live_streams);
            EXPECT(after.live_events == before.live_events);
            EXPECT(after.live_allocations == before.live_allocations);
            EXPECT(after.live_bytes == before.live_bytes);
            EXPECT(after.live_modules == before.live_modules);
        }
        HIP(program(k));
    });
    check::test("counters count", [&] {
        auto before = counters();
        {
            Stream s;
            Event e;
            Buffer b(100, 0);
            launch(k.add, b, 1, s);
            HIP(hipMemsetAsync(b.p, 0, 8, s));
            auto during = counters();
            EXPECT(during.live_streams == before.live_streams + 1);
            EXPECT(during.live_events == before.live_events + 1);
            EXPECT(during.live_allocations == before.live_allocations + 1);
            EXPECT(during.live_bytes == before.live_bytes + 400);
            EXPECT(during.launches == before.launches + 1);
            EXPECT(during.copies == before.copies + 1);
            EXPECT(during.fills == before.fills + 1);
            HIP(hipStreamSynchronize(s));
            EXPECT(counters().kernels_run == before.kernels_run + 1);
        }
        auto after = counters();
        EXPECT(after.live_streams == before.live_streams);
        EXPECT(after.live_allocations == before.live_allocations);
        EXPECT(after.calls > before.calls);
        hipemu_counters shorter{};
        shorter.live_events = 77;
        hipemu_get_counters(&shorter, sizeof(uint64_t));
        EXPECT(shorter.live_events == 77); // an older, shorter structure
    });
    check::test("skipped launches succeed and run nothing", [&] {
        Buffer b(64, 1);
        Stream s;
        auto before = counters();
        hipemu_skip_launches(1);
        launch(k.add, b, 1, s);
        HIP(hipStreamSynchronize(s));
        hipemu_skip_launches(0);
        EXPECT(counters().launches == before.launches + 1);
        EXPECT(counters().kernels_run == before.kernels_run);
        b.expect(1);
    });
    check::test("a watcher sees launches as they are given", [&] {
        static std::vector<std::pair<void*, unsigned>> seen;
        Buffer b(64, 1);
        Stream s;
        hipemu_watch_launches([](void* function, const unsigned grid[3], const unsigned block[3], unsigned, void** params, void** extra) {
            EXPECT(!params != !extra);
            seen.emplace_back(function, grid[0] * block[0]);
        });
        launch(k.add, b, 1, s);
        HIP_GIVES(hipErrorInvalidHandle, try_launch(nullptr, b, 1, s));
        hipemu_watch_launches(nullptr);
        launch(k.add, b, 1, s);
        HIP(hipStreamSynchronize(s));
        EXPECT(seen.size() == 2 && seen[0].first == k.add && seen[0].second >= 64 && seen[1].first == nullptr);
    });
    check::test("the trace has every call and what streams did", [&] {
        std::string path = (std::filesystem::temp_directory_path() / ("hipemu-trace-" + std::to_string(getpid()))).string();
        Buffer b(64, 1);
        Stream s;
        EXPECT(hipemu_trace(path.c_str()) == 0);
        hipemu_trace_mark("before \"it\"");
        launch(k.add, b, 1, s);
        HIP(hipStreamSynchronize(s));
        void* p;
        hipemu_fail_call("hipMalloc", 1, hipErrorOutOfMemory);
        HIP_GIVES(hipErrorOutOfMemory, hipMalloc(&p, 16));
        EXPECT(hipemu_trace(nullptr) == 0);
        HIP(hipStreamSynchronize(s));
        auto all = lines(path);
        unlink(path.c_str());
        int launches = 0, ran = 0, waits = 0, marks = 0, failed = 0;
        for(auto& line : all)
        {
            EXPECT(line.front() == '{' && line.back() == '}' && has(line, "\"t_us\":") && has(line, "\"thread\":"));
            launches += has(line, "\"call\":\"hipModuleLaunchKernel\"") && has(line, "kernel=add grid=64x1x1") && has(line, "\"result\":0");
            ran += has(line, "\"kernel\":\"add\"") && has(line, "\"stream\":");
            waits += has(line, "\"call\":\"hipStreamSynchronize\"");
            marks += has(line, "\"mark\":\"before \\\"it\\\"\"");
            failed += has(line, "\"call\":\"hipMalloc\"") && has(line, "\"result\":2");
        }
        EXPECT(all.size() == 5);
        EXPECT(launches == 1 && ran == 1 && waits == 1 && marks == 1 && failed == 1);
    });
    return check::result();
}
