// Stream capture: what is recorded, what may not be called meanwhile, and running the graph.
#include "kernels.h"

#include <thread>

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
};
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
