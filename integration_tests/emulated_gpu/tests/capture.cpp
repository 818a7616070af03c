// Stream capture: what is recorded, what may not be called meanwhile, and running the graph.
#include "kernels.h"

#include <cstring>
#include <thread>

// <hip/hip_ext.h> declares it for AMD's compiler alone.
extern "C" hipError_t hipExtModuleLaunchKernel(hipFunction_t function, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz,
                                               size_t shared, hipStream_t stream, void** params, void** extra, hipEvent_t start, hipEvent_t stop,
                                               uint32_t flags);

namespace {
struct Graph
{
    hipGraph_t g           = nullptr;
    hipGraphExec_t exec    = nullptr;
    ~Graph()
    {
        if(exec) (void)hipGraphExecDestroy(exec);
        if(g) (void)hipGraphDestroy(g);
    }
    void end(hipStream_t s)
    {
        HIP(hipStreamEndCapture(s, &g));
        HIP(hipGraphInstantiate(&exec, g, nullptr, nullptr, 0));
    }
    size_t nodes() const
    {
        size_t count = 0;
        HIP(hipGraphGetNodes(g, nullptr, &count));
        return count;
    }
    std::vector<hipGraphNode_t> all() const
    {
        std::vector<hipGraphNode_t> handles(nodes());
        size_t count = handles.size();
        HIP(hipGraphGetNodes(g, handles.data(), &count));
        return handles;
    }
};
// The arguments of `add` and `scale` as they lie in memory.
struct Packed
{
    float* p;
    float value;
    int n;
};
bool same(dim3 a, unsigned x, unsigned y, unsigned z) { return a.x == x && a.y == y && a.z == z; }
// Ends a capture that is expected to be no good any more.
void end_invalid(hipStream_t s)
{
    hipGraph_t g = (hipGraph_t)1;
    HIP_GIVES(hipErrorStreamCaptureInvalidated, hipStreamEndCapture(s, &g));
    EXPECT(g == nullptr);
    hipStreamCaptureStatus status;
    HIP(hipStreamIsCapturing(s, &status));
    EXPECT(status == hipStreamCaptureStatusNone);
}
} // namespace

int main()
{
    Kernels k;

    check::test("captured work runs when the graph is launched, each time", [&] {
        Buffer b(100, 1);
        Stream s;
        Graph graph;
        HIP(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
        hipStreamCaptureStatus status;
        HIP(hipStreamIsCapturing(s, &status));
        EXPECT(status == hipStreamCaptureStatusActive);
        launch(k.add, b, 1, s);
        launch(k.scale, b, 2, s);
        HIP(hipMemsetAsync(b.p, 0, 4, s));
        graph.end(s);
        EXPECT(graph.nodes() == 3);
        b.expect(1); // nothing ran yet
        HIP(hipGraphLaunch(graph.exec, s));
        HIP(hipGraphLaunch(graph.exec, s));
        HIP(hipStreamSynchronize(s));
        auto values = b.read();
        EXPECT(values[0] == 0);
        EXPECT(values[1] == 10); // ((1 + 1) * 2 + 1) * 2
    });
    check::test("a graph outlives its source and what was captured from", [&] {
        Buffer b(64, 1);
        Graph graph;
        {
            Stream s;
            HIP(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
            launch(k.add, b, 1, s);
            graph.end(s);
        }
        HIP(hipGraphDestroy(graph.g));
        graph.g = nullptr;
        HIP(hipGraphLaunch(graph.exec, nullptr));
        b.expect(2);
    });
    check::test("streams join by events and run in any order the graph allows", [&] {
        for(int turn = 0; turn < 20; turn++)
        {
            Buffer b(64, 1), c(64, 1);
            Stream s, other;
            Event fork, join;
            Graph graph;
            HIP(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
            launch(k.add, b, 1, s);
            HIP(hipEventRecord(fork, s));
            HIP(hipStreamWaitEvent(other, fork, 0));
            launch(k.scale, b, 3, s);
            launch(k.add, c, 4, other);
            HIP(hipEventRecord(join, other));
            HIP(hipStreamWaitEvent(s, join, 0));
            HIP(hipMemcpyAsync(c.p, b.p, 32 * 4, hipMemcpyDeviceToDevice, s));
            graph.end(s);
            EXPECT(graph.nodes() == 4);
            HIP(hipGraphLaunch(graph.exec, s));
            HIP(hipStreamSynchronize(s));
            b.expect(6);
            auto values = c.read();
            EXPECT(values[0] == 6);
            EXPECT(values[63] == 5);
        }
    });
    check::test("a stream that joined and was not joined again spoils the end", [&] {
        Buffer b(64, 1);
        Stream s, other;
        Event fork;
        HIP(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
        HIP(hipEventRecord(fork, s));
        HIP(hipStreamWaitEvent(other, fork, 0));
        launch(k.add, b, 4, other);
        hipGraph_t g;
        HIP_GIVES(hipErrorStreamCaptureUnmatched, hipStreamEndCapture(other, &g));
        HIP_GIVES(hipErrorStreamCaptureUnjoined, hipStreamEndCapture(s, &g));
        EXPECT(g == nullptr);
    });

    // Each of these is refused, and the capture with it.
    Buffer spare(64, 1);
    float host[64];
    hipModule_t module;
    void* memory = nullptr;
    struct Illegal { const char* name; std::function<hipError_t(hipStream_t)> make; };
    const Illegal illegal[] = {
        {"hipMalloc", [&](hipStream_t) { return hipMalloc(&memory, 64); }},
        {"hipHostMalloc", [&](hipStream_t) { return hipHostMalloc(&memory, 64, 0); }},
        {"hipMemcpy", [&](hipStream_t) { return hipMemcpy(host, spare.p, 64, hipMemcpyDeviceToHost); }},
        {"hipMemset", [&](hipStream_t) { return hipMemset(spare.p, 0, 64); }},
        {"hipFree", [&](hipStream_t) { return hipFree(spare.p); }},
        {"hipDeviceSynchronize", [&](hipStream_t) { return hipDeviceSynchronize(); }},
        {"hipStreamSynchronize", [&](hipStream_t s) { return hipStreamSynchronize(s); }},
        {"hipStreamQuery", [&](hipStream_t s) { return hipStreamQuery(s); }},
        {"hipModuleLoadData", [&](hipStream_t) { return hipModuleLoadData(&module, k.code.data()); }},
    };
    for(auto& call : illegal)
    {
        check::test(std::string(call.name) + " is refused while capturing", [&] {
            Stream s;
            HIP(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
            launch(k.add, spare, 1, s);
            HIP_GIVES(hipErrorStreamCaptureUnsupported, call.make(s));
            HIP_GIVES(hipErrorStreamCaptureInvalidated, try_launch(k.add, spare, 1, s));
            end_invalid(s);
            // The stream works again.
            launch(k.add, spare, 0, s);
            HIP(hipStreamSynchronize(s));
        });
    }
    check::test("what only asks is allowed while capturing", [&] {
        Stream s;
        Graph graph;
        HIP(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
        int value, device;
        size_t free_bytes, total;
        hipDeviceProp_tR0600 properties;
        HIP(hipGetDevice(&device));
        HIP(hipDeviceGetAttribute(&value, hipDeviceAttributeWarpSize, 0));
        HIP(hipGetDevicePropertiesR0600(&properties, 0));
        HIP(hipMemGetInfo(&free_bytes, &total));
        graph.end(s);
        EXPECT(graph.nodes() == 0);
    });
    check::test("the default stream is refused beside a blocking capture", [&] {
        Stream s(hipStreamDefault);
        HIP(hipStreamBeginCapture(s, hipStreamCaptureModeRelaxed));
        HIP_GIVES(hipErrorStreamCaptureImplicit, try_launch(k.add, spare, 1, nullptr));
        end_invalid(s);
    });
    check::test("the default stream is free beside a non-blocking capture", [&] {
        Stream s;
        Graph graph;
        HIP(hipStreamBeginCapture(s, hipStreamCaptureModeRelaxed));
        launch(k.add, spare, 0, nullptr);
        HIP(hipStreamSynchronize(nullptr));
        graph.end(s);
    });
    check::test("the default stream can't capture", [&] { HIP_GIVES(hipErrorStreamCaptureUnsupported, hipStreamBeginCapture(nullptr, hipStreamCaptureModeGlobal)); });
    check::test("captures don't nest and don't end twice", [&] {
        Stream s;
        hipGraph_t g;
        HIP_GIVES(hipErrorIllegalState, hipStreamEndCapture(s, &g));
        HIP(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
        HIP_GIVES(hipErrorIllegalState, hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
        HIP(hipStreamEndCapture(s, &g));
        HIP(hipGraphDestroy(g));
        HIP_GIVES(hipErrorIllegalState, hipStreamEndCapture(s, &g));
    });
    check::test("events of a capture can't be asked, nor events from outside waited for", [&] {
        Stream s, outside;
        Event inner, outer;
        HIP(hipEventRecord(outer, outside));
        HIP(hipStreamSynchronize(outside));
        HIP(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
        HIP(hipEventRecord(inner, s));
        HIP_GIVES(hipErrorCapturedEvent, hipEventQuery(inner));
        end_invalid(s);
        HIP(hipStreamBeginCapture(s, hipStreamCaptureModeGlobal));
        HIP_GIVES(hipErrorStreamCaptureIsolation, hipStreamWaitEvent(s, outer, 0));
        end_invalid(s);
    });
    check::test("two captures don't merge", [&] {
        Stream a, b;
        Event e;
        HIP(hipStreamBeginCapture(a, hipStreamCaptureModeGlobal));
        HIP(hipStreamBeginCapture(b, hipStreamCaptureModeGlobal));
        HIP(hipEventRecord(e, a));
        HIP_GIVES(hipErrorStreamCaptureMerge, hipStreamWaitEvent(b, e, 0));
        end_invalid(a);
        end_invalid(b);
    });

    // Whether a thread may allocate while this one, or another, captures.
    struct Mode { const char* name; hipStreamCaptureMode mode; bool own, other; };
    for(auto& m : {Mode{"global", hipStreamCaptureModeGlobal, false, false}, Mode{"thread-local", hipStreamCaptureModeThreadLocal, false, true},
                   Mode{"relaxed", hipStreamCaptureModeRelaxed, true, true}})
        check::test(std::string("who may allocate beside a capture: ") + m.name, [&] {
            for(bool own : {true, false})
            {
                Stream s;
                HIP(hipStreamBeginCapture(s, m.mode));
                hipError_t got = hipErrorUnknown;
                auto allocate  = [&] {
                    void* p = nullptr;
                    got     = hipMalloc(&p, 64);
                    if(got == hipSuccess) got = hipFree(p);
                };
                if(own) allocate();
                else std::thread(allocate).join();
                bool allowed = own ? m.own : m.other;
                EXPECT(got == (allowed ? hipSuccess : hipErrorStreamCaptureUnsupported));
                hipGraph_t g;
                HIP_GIVES(allowed ? hipSuccess : hipErrorStreamCaptureInvalidated, hipStreamEndCapture(s, &g));
                if(g) HIP(hipGraphDestroy(g));
            }
        });
    check::test("another thread can't end a capture, unless it is relaxed", [&] {
        for(auto mode : {hipStreamCaptureModeGlobal, hipStreamCaptureModeThreadLocal, hipStreamCaptureModeRelaxed})
        {
            Stream s;
            hipGraph_t g;
            HIP(hipStreamBeginCapture(s, mode));
            hipError_t got;
            std::thread([&] { got = hipStreamEndCapture(s, &g); }).join();
            bool relaxed = mode == hipStreamCaptureModeRelaxed;
            EXPECT(got == (relaxed ? hipSuccess : hipErrorStreamCaptureWrongThread));
            if(!relaxed) HIP(hipStreamEndCapture(s, &g));
            HIP(hipGraphDestroy(g));
        }
    });
    check::test("a kernel's node tells the launch, with arguments of its own: by address", [&] {
        Buffer b(100, 1);
        Stream s;
        Graph graph;
        HIP(hipStreamBeginCapture(s, hipStreamCaptureModeRelaxed));
        launch(k.add, b, 2.5f, s);
        graph.end(s);
        auto node = graph.all().at(0);
        hipGraphNodeType type;
        HIP(hipGraphNodeGetType(node, &type));
        EXPECT(type == hipGraphNodeTypeKernel);
        hipKernelNodeParams params;
        HIP(hipGraphKernelNodeGetParams(node, &params));
        EXPECT(params.func == (void*)k.add);
        EXPECT(same(params.gridDim, 2, 1, 1));
        EXPECT(same(params.blockDim, 64, 1, 1));
        EXPECT(params.sharedMemBytes == 0);
        EXPECT(params.extra == nullptr);
        EXPECT(*(float**)params.kernelParams[0] == b.p);
        EXPECT(*(float*)params.kernelParams[1] == 2.5f);
        EXPECT(*(int*)params.kernelParams[2] == 100);
        // As they are, they launch the kernel again.
        HIP(hipModuleLaunchKernel((hipFunction_t)params.func, params.gridDim.x, params.gridDim.y, params.gridDim.z, params.blockDim.x, params.blockDim.y,
                                  params.blockDim.z, params.sharedMemBytes, s, params.kernelParams, params.extra));
        HIP(hipStreamSynchronize(s));
        b.expect(3.5f);
    });
    struct Way { const char* name; bool ext; };
    for(auto& way : {Way{"hipModuleLaunchKernel", false}, Way{"hipExtModuleLaunchKernel", true}})
        check::test(std::string("a kernel's node tells the launch, with arguments of its own: packed, by ") + way.name, [&] {
            Buffer b(128, 1), other(128, 1);
            Stream s;
            Graph graph;
            Packed packed{b.p, 2, 128};
            size_t bytes  = sizeof packed;
            void* extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &packed, HIP_LAUNCH_PARAM_BUFFER_SIZE, &bytes, HIP_LAUNCH_PARAM_END};
            HIP(hipStreamBeginCapture(s, hipStreamCaptureModeRelaxed));
            if(way.ext) HIP(hipExtModuleLaunchKernel(k.add, 128, 1, 1, 32, 1, 1, 256, s, nullptr, extra, nullptr, nullptr, 0));
            else HIP(hipModuleLaunchKernel(k.add, 4, 1, 1, 32, 1, 1, 256, s, nullptr, extra));
            graph.end(s);
            packed = {};
            bytes  = 0;
            hipKernelNodeParams params;
            HIP(hipGraphKernelNodeGetParams(graph.all().at(0), &params));
            EXPECT(params.func == (void*)k.add);
            EXPECT(same(params.gridDim, 4, 1, 1));
            EXPECT(same(params.blockDim, 32, 1, 1));
            EXPECT(params.sharedMemBytes == 256);
            EXPECT(params.kernelParams == nullptr);
            EXPECT(params.extra != extra);
            EXPECT(params.extra[0] == HIP_LAUNCH_PARAM_BUFFER_POINTER);
            EXPECT(params.extra[1] != &packed);
            EXPECT(params.extra[2] == HIP_LAUNCH_PARAM_BUFFER_SIZE);
            EXPECT(*(size_t*)params.extra[3] == sizeof packed);
            EXPECT(params.extra[4] == HIP_LAUNCH_PARAM_END);
            Packed kept;
            memcpy(&kept, params.extra[1], sizeof kept);
            EXPECT(kept.p == b.p && kept.value == 2 && kept.n == 128);
            // Patched, they launch it elsewhere.
            kept.p           = other.p;
            size_t kept_size = sizeof kept;
            void* again[]    = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &kept, HIP_LAUNCH_PARAM_BUFFER_SIZE, &kept_size, HIP_LAUNCH_PARAM_END};
            HIP(hipModuleLaunchKernel((hipFunction_t)params.func, 4, 1, 1, 32, 1, 1, params.sharedMemBytes, s, nullptr, again));
            HIP(hipStreamSynchronize(s));
            other.expect(3);
            b.expect(1);
            HIP(hipGraphLaunch(graph.exec, s));
            HIP(hipStreamSynchronize(s));
            b.expect(3);
        });
    check::test("a graph loses what a launch has over a multiple of its block", [&] {
        Buffer b(100, 1);
        Packed packed{b.p, 1, 100};
        size_t bytes  = sizeof packed;
        void* extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &packed, HIP_LAUNCH_PARAM_BUFFER_SIZE, &bytes, HIP_LAUNCH_PARAM_END};
        Stream s;
        Graph graph;
        HIP(hipExtModuleLaunchKernel(k.add, 100, 1, 1, 64, 1, 1, 0, s, nullptr, extra, nullptr, nullptr, 0));
        HIP(hipStreamSynchronize(s));
        b.expect(2);
        HIP(hipStreamBeginCapture(s, hipStreamCaptureModeRelaxed));
        HIP(hipExtModuleLaunchKernel(k.add, 100, 1, 1, 64, 1, 1, 0, s, nullptr, extra, nullptr, nullptr, 0));
        HIP_GIVES(hipErrorInvalidValue, hipExtModuleLaunchKernel(k.add, 63, 1, 1, 64, 1, 1, 0, s, nullptr, extra, nullptr, nullptr, 0));
        graph.end(s);
        hipKernelNodeParams params;
        HIP(hipGraphKernelNodeGetParams(graph.all().at(0), &params));
        EXPECT(same(params.gridDim, 1, 1, 1));
        HIP(hipGraphLaunch(graph.exec, s));
        HIP(hipStreamSynchronize(s));
        auto values = b.read();
        EXPECT(values[63] == 3);
        EXPECT(values[64] == 2);
    });
    check::test("nodes of fills and copies tell what they do", [&] {
        Buffer b(64, 1), c(64, 1);
        Stream s;
        Graph graph;
        HIP(hipStreamBeginCapture(s, hipStreamCaptureModeRelaxed));
        HIP(hipMemsetAsync(b.p, 0x17, 20, s));
        HIP(hipMemsetD32Async((hipDeviceptr_t)(b.p + 8), 0x12345678, 3, s));
        HIP(hipMemcpyAsync(c.p, b.p, 40, hipMemcpyDeviceToDevice, s));
        HIP(hipMemcpy2DAsync(c.p, 32, b.p, 16, 8, 3, hipMemcpyDeviceToDevice, s));
        graph.end(s);
        auto nodes = graph.all();
        hipMemsetParams fill;
        HIP(hipGraphMemsetNodeGetParams(nodes.at(0), &fill));
        EXPECT(fill.dst == b.p && fill.value == 0x17 && fill.elementSize == 1 && fill.width == 20 && fill.height == 1);
        HIP(hipGraphMemsetNodeGetParams(nodes.at(1), &fill));
        EXPECT(fill.dst == b.p + 8 && fill.value == 0x12345678 && fill.elementSize == 4 && fill.width == 3 && fill.height == 1);
        hipMemcpy3DParms copy;
        HIP(hipGraphMemcpyNodeGetParams(nodes.at(2), &copy));
#if HIP_VERSION_MAJOR >= 7
        EXPECT(copy.dstPtr.ptr == c.p && copy.srcPtr.ptr == b.p && copy.kind == hipMemcpyDeviceToDevice);
        EXPECT(copy.extent.width == 40 && copy.extent.height == 1 && copy.extent.depth == 1);
#else
        EXPECT(copy.dstPtr.ptr != c.p && copy.srcPtr.ptr != b.p);
#endif
        HIP(hipGraphMemcpyNodeGetParams(nodes.at(3), &copy));
        EXPECT(copy.dstPtr.ptr == c.p && copy.dstPtr.pitch == 32 && copy.srcPtr.ptr == b.p && copy.srcPtr.pitch == 16);
        EXPECT(copy.extent.width == 8 && copy.extent.height == 3 && copy.extent.depth == 1);
        const hipGraphNodeType types[] = {hipGraphNodeTypeMemset, hipGraphNodeTypeMemset, hipGraphNodeTypeMemcpy, hipGraphNodeTypeMemcpy};
        for(int i = 0; i < 4; i++)
        {
            hipGraphNodeType type;
            HIP(hipGraphNodeGetType(nodes.at(i), &type));
            EXPECT(type == types[i]);
        }
        hipKernelNodeParams kernel;
        HIP_GIVES(hipErrorInvalidValue, hipGraphKernelNodeGetParams(nodes.at(0), &kernel));
        HIP_GIVES(hipErrorInvalidValue, hipGraphKernelNodeGetParams(nodes.at(2), &kernel));
        HIP_GIVES(hipErrorInvalidValue, hipGraphMemsetNodeGetParams(nodes.at(2), &fill));
        HIP_GIVES(hipErrorInvalidValue, hipGraphMemcpyNodeGetParams(nodes.at(0), &copy));
    });
    check::test("edges and roots are those of the events", [&] {
        Buffer b(64, 1), c(64, 1);
        Stream s, other;
        Event fork, join;
        Graph graph;
        HIP(hipStreamBeginCapture(s, hipStreamCaptureModeRelaxed));
        launch(k.add, b, 1, s); // node 0
        HIP(hipEventRecord(fork, s));
        HIP(hipStreamWaitEvent(other, fork, 0));
        launch(k.add, c, 4, other); // 1
        launch(k.scale, b, 3, s);   // 2
        HIP(hipEventRecord(join, other));
        HIP(hipStreamWaitEvent(s, join, 0));
        launch(k.add, b, 1, s); // 3
        graph.end(s);
        auto nodes = graph.all();
        EXPECT(nodes.size() == 4);
        size_t count = 0;
        HIP(hipGraphGetEdges(graph.g, nullptr, nullptr, &count));
        EXPECT(count == 4);
        hipGraphNode_t from[6], to[6];
        count = 6;
        HIP(hipGraphGetEdges(graph.g, from, to, &count));
        EXPECT(count == 4);
        EXPECT(from[4] == nullptr && to[5] == nullptr);
        const int wanted[][2] = {{0, 1}, {0, 2}, {1, 3}, {2, 3}};
        for(auto& edge : wanted)
        {
            bool found = false;
            for(size_t i = 0; i < count; i++) found |= from[i] == nodes[edge[0]] && to[i] == nodes[edge[1]];
            EXPECT(found);
        }
        count = 2;
        HIP(hipGraphGetEdges(graph.g, from, to, &count));
        EXPECT(count == 2);
        HIP_GIVES(hipErrorInvalidValue, hipGraphGetEdges(graph.g, from, nullptr, &count));
        count = 6;
        HIP(hipGraphGetRootNodes(graph.g, from, &count));
        EXPECT(count == 1 && from[0] == nodes[0] && from[1] == nullptr);
    });
    check::test("nodes die with their graph", [&] {
        Buffer b(64, 1);
        Stream s;
        Graph graph;
        HIP(hipStreamBeginCapture(s, hipStreamCaptureModeRelaxed));
        launch(k.add, b, 1, s);
        graph.end(s);
        auto node = graph.all().at(0);
        HIP(hipGraphDestroy(graph.g));
        graph.g = nullptr;
        hipGraphNodeType type;
        hipKernelNodeParams params;
        HIP_GIVES(hipErrorInvalidValue, hipGraphNodeGetType(node, &type));
        HIP_GIVES(hipErrorInvalidValue, hipGraphKernelNodeGetParams(node, &params));
        HIP_GIVES(hipErrorInvalidValue, hipGraphNodeGetType(nullptr, &type));
    });
    check::test("launches that hipModuleLaunchKernel refuses", [&] {
        Buffer b(64, 1);
        Packed packed{b.p, 1, 64};
        float value   = 1;
        size_t bytes  = sizeof packed;
        void* extra[] = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &packed, HIP_LAUNCH_PARAM_BUFFER_SIZE, &bytes, HIP_LAUNCH_PARAM_END};
        void* both[]  = {&b.p, &value, &b.n};
        struct Refused { unsigned grid[3], block; void** params; hipError_t error; };
        const Refused all[] = {
            {{1, 1, 1}, 64, both, hipErrorInvalidValue},           // arguments in both ways
            {{0, 1, 1}, 64, nullptr, hipErrorInvalidValue},        // no block
            {{1, 1, 1}, 0, nullptr, hipErrorInvalidConfiguration}, // empty blocks
            {{1, 65537, 1}, 64, nullptr, hipErrorInvalidValue},    // more than 65536 in the second dimension
            {{1, 1, 65537}, 64, nullptr, hipErrorInvalidValue},    // or the third
            {{1u << 28, 1, 1}, 64, nullptr, hipErrorInvalidConfiguration}, // 2^34 items
        };
        for(auto& r : all) HIP_GIVES(r.error, hipModuleLaunchKernel(k.add, r.grid[0], r.grid[1], r.grid[2], r.block, 1, 1, 0, nullptr, r.params, extra));
        // The size before the buffer, a buffer without the last argument, none at all.
        void* turned[] = {HIP_LAUNCH_PARAM_BUFFER_SIZE, &bytes, HIP_LAUNCH_PARAM_BUFFER_POINTER, &packed, HIP_LAUNCH_PARAM_END};
        size_t less    = bytes - 4;
        void* cut[]    = {HIP_LAUNCH_PARAM_BUFFER_POINTER, &packed, HIP_LAUNCH_PARAM_BUFFER_SIZE, &less, HIP_LAUNCH_PARAM_END};
        for(void** wrong : {turned, cut, (void**)nullptr}) HIP_GIVES(hipErrorInvalidValue, hipModuleLaunchKernel(k.add, 1, 1, 1, 64, 1, 1, 0, nullptr, nullptr, wrong));
    });
    check::test("nothing is left", [&] {
        auto c = counters();
        EXPECT(c.live_streams == 0);
        EXPECT(c.live_events == 0);
        EXPECT(c.live_graphs == 0);
        EXPECT(c.live_graph_execs == 0);
        EXPECT(c.live_allocations == 1); // `spare`
    });
    return check::result();
}
