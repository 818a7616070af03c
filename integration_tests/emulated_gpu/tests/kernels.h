// Small kernels, compiled at run time, and an allocation that cleans up after itself.
#pragma once
#include "check.h"
#include "../include/hipemu_control.h"

#include <hip/hiprtc.h>
#include <vector>

inline hipemu_counters counters()
{
    hipemu_counters all;
    hipemu_get_counters(&all, sizeof all);
    return all;
}

struct Kernels
{
    hipModule_t module;
    hipFunction_t add, scale, stray;

    Kernels()
    {
        const char* source = R"(
extern "C" __global__ void add(float* p, float value, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) p[i] = p[i] + value; }
extern "C" __global__ void scale(float* p, float value, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) p[i] = p[i] * value; }
extern "C" __global__ void stray(float* p, int at) { p[at] = p[0] + 1; }
)";
        hiprtcProgram program;
        if(hiprtcCreateProgram(&program, source, "kernels.hip", 0, nullptr, nullptr)) check::fail("hiprtcCreateProgram");
        const char* options[] = {"-O2"};
        if(hiprtcCompileProgram(program, 1, options)) check::fail("hiprtcCompileProgram");
        size_t bytes;
        if(hiprtcGetCodeSize(program, &bytes)) check::fail("hiprtcGetCodeSize");
        code.resize(bytes);
        if(hiprtcGetCode(program, code.data())) check::fail("hiprtcGetCode");
        (void)hiprtcDestroyProgram(&program);
        load();
    }
    // For the current device.
    void load()
    {
        HIP(hipModuleLoadData(&module, code.data()));
        HIP(hipModuleGetFunction(&add, module, "add"));
        HIP(hipModuleGetFunction(&scale, module, "scale"));
        HIP(hipModuleGetFunction(&stray, module, "stray"));
    }
    std::vector<char> code;
};

struct Buffer
{
    float* p = nullptr;
    int n;
    explicit Buffer(int count, float value = 0) : n(count)
    {
        HIP(hipMalloc((void**)&p, n * sizeof(float)));
        std::vector<float> values(n, value);
        HIP(hipMemcpy(p, values.data(), n * sizeof(float), hipMemcpyHostToDevice));
    }
    ~Buffer() { (void)hipFree(p); }
    Buffer(const Buffer&) = delete;
    std::vector<float> read() const
    {
        std::vector<float> values(n);
        HIP(hipMemcpy(values.data(), p, n * sizeof(float), hipMemcpyDeviceToHost));
        return values;
    }
    // All elements are this.
    void expect(float value) const
    {
        auto values = read();
        for(int i = 0; i < n; i++)
            if(values[i] != value) check::fail("element %d is %g, not %g", i, values[i], value);
    }
};

inline hipError_t try_launch(hipFunction_t kernel, Buffer& b, float value, hipStream_t stream)
{
    void* arguments[] = {&b.p, &value, &b.n};
    return hipModuleLaunchKernel(kernel, (b.n + 63) / 64, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr);
}
inline void launch(hipFunction_t kernel, Buffer& b, float value, hipStream_t stream) { HIP(try_launch(kernel, b, value, stream)); }

struct Stream
{
    hipStream_t s;
    explicit Stream(unsigned flags = hipStreamNonBlocking) { HIP(hipStreamCreateWithFlags(&s, flags)); }
    ~Stream() { (void)hipStreamDestroy(s); }
    Stream(const Stream&) = delete;
    operator hipStream_t() const { return s; }
};
struct Event
{
    hipEvent_t e;
    explicit Event(unsigned flags = hipEventDefault) { HIP(hipEventCreateWithFlags(&e, flags)); }
    ~Event() { (void)hipEventDestroy(e); }
    Event(const Event&) = delete;
    operator hipEvent_t() const { return e; }
};
// Streams run nothing while this lives.
struct Held
{
    Held() { hipemu_hold_streams(1); }
    ~Held() { hipemu_hold_streams(0); }
};
