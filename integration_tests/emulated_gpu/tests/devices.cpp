// Two devices in one process, replays of graphs on them, pinned memory, and processes that fork.
#include "kernels.h"

#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

namespace {
constexpr int N = 64, BYTES = N * 4;
constexpr uint64_t LATE_US = 5000;

// The current device within a block; the first one after it.
struct On
{
    explicit On(int device) { HIP(hipSetDevice(device)); }
    ~On() { (void)hipSetDevice(0); }
};
struct Late
{
    Late() { hipemu_set_delay(LATE_US, 11); }
    ~Late() { hipemu_set_delay(0, 1); }
};
// Memory and a stream of one device, with kernels for it.
struct Side
{
    On on;
    Buffer b;
    Stream s;
    Kernels k;
    Side(int device, float value, const Kernels& kernels) : on(device), b(N, value), k(kernels) { k.load(); }
    ~Side() { (void)hipModuleUnload(k.module); }
};
struct Pinned
{
    float* p = nullptr;
    explicit Pinned(float value, unsigned flags = hipHostMallocDefault)
    {
        HIP(hipHostMalloc((void**)&p, BYTES, flags));
        fill(value);
    }
    ~Pinned() { (void)hipHostFree(p); }
    Pinned(const Pinned&) = delete;
    void fill(float value) { std::fill(p, p + N, value); }
    void expect(float value) const
    {
        for(int i = 0; i < N; i++)
            if(p[i] != value) check::fail("element %d is %g, not %g", i, p[i], value);
    }
};
// What a process of its own ends with.
template <class Body> int ends_with(Body body)
{
    pid_t child = fork();
    if(child < 0) check::fail("fork");
    if(child == 0) _exit(body());
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}
} // namespace

int main()
{
    setenv("HIPEMU_DEVICES", "2", 1);
    check::test("a process that forked before it used the device goes on, and so does the other", [] {
        EXPECT(ends_with([] {
                   void* p;
                   return hipMalloc(&p, 64) == hipSuccess && hipFree(p) == hipSuccess ? 0 : 1;
               }) == 0);
        void* p;
        HIP(hipMalloc(&p, 64));
        HIP(hipFree(p));
    });
    Kernels k;
    check::test("calls of a process that forked after it used the device fail, and change nothing", [&] {
        Buffer b(N, 1);
        Stream s;
        Event e;
        launch(k.add, b, 1, s);
        HIP(hipStreamSynchronize(s));
        EXPECT(ends_with([&] {
                   void* p;
                   int count;
                   float host[N];
                   const hipError_t all[] = {hipMalloc(&p, 64), hipGetDeviceCount(&count), hipSetDevice(0), hipDeviceSynchronize(), hipStreamSynchronize(s),
                                             hipMemcpy(host, b.p, BYTES, hipMemcpyDeviceToHost), hipMemset(b.p, 0, BYTES), try_launch(k.add, b, 1, s),
                                             hipEventRecord(e, s), hipEventDestroy(e), hipStreamDestroy(s), hipFree(b.p), hipModuleUnload(k.module)};
                   for(size_t i = 0; i < sizeof all / sizeof *all; i++)
                       if(all[i] != hipErrorNotInitialized) return (int)i + 1;
                   return hipGetLastError() == hipErrorNotInitialized ? 0 : 99;
               }) == 0);
        HIP(hipEventRecord(e, s));
        HIP(hipStreamSynchronize(s));
        b.expect(2);
    });
    check::test("each device has a bus of its own, and is found by it", [] {
        char first[32], second[32];
        HIP(hipDeviceGetPCIBusId(first, sizeof first, 0));
        HIP(hipDeviceGetPCIBusId(second, sizeof second, 1));
        EXPECT(strcmp(first, second) != 0 && strlen(first) == strlen("0000:03:00.0"));
        HIP_GIVES(hipErrorInvalidDevice, hipDeviceGetPCIBusId(first, sizeof first, 2));
        int device = 7, bus, domain;
        HIP(hipDeviceGetByPCIBusId(&device, second));
        EXPECT(device == 1);
        HIP_GIVES(hipErrorInvalidDevice, hipDeviceGetByPCIBusId(&device, "0000:f0:00.0"));
        HIP_GIVES(hipErrorInvalidValue, hipDeviceGetByPCIBusId(&device, "second"));
        HIP(hipDeviceGetAttribute(&bus, hipDeviceAttributePciBusId, 1));
        HIP(hipDeviceGetAttribute(&domain, hipDeviceAttributePciDomainID, 1));
        hipDeviceProp_t properties;
        HIP(hipGetDeviceProperties(&properties, 1));
        char built[32];
        snprintf(built, sizeof built, "%04x:%02x:%02x.0", domain, bus, properties.pciDeviceID);
        EXPECT(strcmp(built, second) == 0 && properties.pciBusID == bus && properties.pciDomainID == domain);
    });
    check::test("copies go from one device to the other in their stream's turn", [&] {
        for(auto kind : {hipMemcpyDefault, hipMemcpyDeviceToDevice})
        {
            Side near(0, 1, k), far(1, 5, k);
            HIP(hipSetDevice(0));
            Event done;
            Late late;
            launch(near.k.add, near.b, 1, near.s);
            HIP(hipMemcpyAsync(far.b.p, near.b.p, BYTES, kind, near.s));
            HIP(hipEventRecord(done, near.s));
            HIP(hipSetDevice(1));
            HIP(hipStreamWaitEvent(far.s, done, 0));
            launch(far.k.scale, far.b, 3, far.s);
            HIP(hipMemcpyAsync(near.b.p, far.b.p, BYTES, kind, far.s));
            HIP(hipStreamSynchronize(far.s));
            far.b.expect(6);
            near.b.expect(6);
        }
    });
    check::test("a copy between devices that names them is refused where they are others", [&] {
        Side near(0, 1, k), far(1, 5, k);
        {
            Held held;
            HIP(hipMemcpyPeerAsync(far.b.p, 1, near.b.p, 0, BYTES, near.s));
            HIP_GIVES(hipErrorNotReady, hipStreamQuery(near.s));
        }
        HIP(hipStreamSynchronize(near.s));
        far.b.expect(1);
        auto before = counters().violations;
        HIP_GIVES(hipErrorInvalidValue, hipMemcpyPeerAsync(far.b.p, 0, near.b.p, 1, BYTES, near.s));
        HIP_GIVES(hipErrorInvalidValue, hipMemcpyPeer(far.b.p, 1, near.b.p, 1, BYTES));
        HIP_GIVES(hipErrorInvalidDevice, hipMemcpyPeer(far.b.p, 2, near.b.p, 0, BYTES));
        HIP_GIVES(hipErrorInvalidValue, hipMemcpyPeerAsync(far.b.p, 1, near.b.p, 0, BYTES + 1, near.s));
        EXPECT(counters().violations == before + 4); // too long at both ends
    });
    check::test("a kernel runs on its module's device alone, whatever device is current", [&] {
        Side near(0, 1, k), far(1, 1, k);
        HIP(hipSetDevice(0));
        HIP_GIVES(hipErrorInvalidHandle, try_launch(near.k.add, near.b, 1, far.s));
        HIP_GIVES(hipErrorInvalidHandle, try_launch(far.k.add, far.b, 1, near.s));
        HIP_GIVES(hipErrorInvalidHandle, try_launch(far.k.add, far.b, 1, nullptr));
        launch(far.k.add, far.b, 1, far.s);
        HIP(hipSetDevice(1));
        HIP_GIVES(hipErrorInvalidHandle, try_launch(near.k.add, near.b, 1, nullptr));
        launch(near.k.add, near.b, 2, near.s);
        // A non-blocking stream and the default one are not ordered against each other.
        HIP(hipStreamSynchronize(far.s));
        launch(far.k.add, far.b, 1, nullptr);
        HIP(hipDeviceSynchronize());
        HIP(hipStreamSynchronize(near.s));
        far.b.expect(3);
        near.b.expect(3);
        // Nor does it reach the other's memory.
        launch(far.k.add, near.b, 1, far.s);
        HIP_GIVES(hipErrorIllegalAddress, hipStreamSynchronize(far.s));
        hipemu_clear_errors();
        near.b.expect(3);
    });
    check::test("streams, events and memory are of the device that was current", [&] {
        Side near(0, 1, k), far(1, 1, k);
        HIP(hipSetDevice(0));
        void* p;
        HIP(hipMallocAsync(&p, BYTES, far.s));
        hipPointerAttribute_t attributes;
        HIP(hipPointerGetAttributes(&attributes, p));
        EXPECT(attributes.device == 1);
        HIP(hipFreeAsync(p, far.s));
        Event here;
        HIP_GIVES(hipErrorInvalidHandle, hipEventRecord(here, far.s));
        HIP(hipSetDevice(1));
        Event there;
        HIP(hipEventRecord(there, far.s));
        HIP(hipEventRecord(here, near.s));
        HIP(hipEventSynchronize(here));
        HIP(hipEventSynchronize(there));
        float ms;
        HIP_GIVES(hipErrorInvalidHandle, hipEventElapsedTime(&ms, here, there));
    });
    check::test("streams tell their flags", [] {
        Stream blocking(hipStreamDefault), other(hipStreamNonBlocking);
        unsigned flags = 7;
        HIP(hipStreamGetFlags(blocking, &flags));
        EXPECT(flags == hipStreamDefault);
        HIP(hipStreamGetFlags(other, &flags));
        EXPECT(flags == hipStreamNonBlocking);
        HIP(hipStreamGetFlags(nullptr, &flags));
        EXPECT(flags == hipStreamDefault);
        hipStream_t s;
        HIP_GIVES(hipErrorInvalidValue, hipStreamCreateWithFlags(&s, 2));
    });
    check::test("pinned memory keeps its flags, and serves both devices", [&] {
        Pinned plain(1), portable(2, hipHostMallocPortable | hipHostMallocMapped);
        unsigned flags = 7;
        HIP(hipHostGetFlags(&flags, plain.p));
        EXPECT(flags == hipHostMallocDefault);
        HIP(hipHostGetFlags(&flags, portable.p + 3));
        EXPECT(flags == (hipHostMallocPortable | hipHostMallocMapped));
        HIP_GIVES(hipErrorInvalidValue, hipHostGetFlags(&flags, &flags));
        void* p;
        HIP_GIVES(hipErrorInvalidValue, hipHostMalloc(&p, BYTES, 0x100));
        HIP_GIVES(hipErrorInvalidValue, hipHostMalloc(&p, BYTES, hipHostMallocCoherent | hipHostMallocNonCoherent));
        HIP(hipHostGetDevicePointer(&p, portable.p, 0));
        EXPECT(p == portable.p);
        HIP_GIVES(hipErrorInvalidValue, hipHostGetDevicePointer(&p, portable.p, 1));
        for(int device : {0, 1})
        {
            Side side(device, 1, k);
            HIP(hipMemcpyAsync(side.b.p, portable.p, BYTES, hipMemcpyHostToDevice, side.s));
            HIP(hipStreamSynchronize(side.s));
            side.b.expect(2);
        }
    });
    check::test("a graph of copies and a kernel reads new inputs at each replay, on late streams", [&] {
        Pinned in(0), out(-1);
        Buffer b(N);
        Stream s, other;
        hipGraph_t graph;
        hipGraphExec_t exec;
        HIP(hipStreamBeginCapture(s, hipStreamCaptureModeThreadLocal));
        HIP(hipMemcpyAsync(b.p, in.p, BYTES, hipMemcpyHostToDevice, s));
        launch(k.add, b, 1, s);
        launch(k.scale, b, 10, s);
        HIP(hipMemcpyAsync(out.p, b.p, BYTES, hipMemcpyDeviceToHost, s));
        HIP(hipStreamEndCapture(s, &graph));
        HIP(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
        HIP(hipGraphDestroy(graph));
        auto run = counters().kernels_run;
        Late late;
        for(int turn = 1; turn <= 6; turn++)
        {
            hipStream_t stream = turn % 2 ? (hipStream_t)s : (hipStream_t)other;
            in.fill((float)turn);
            HIP(hipGraphLaunch(exec, stream));
            HIP(hipStreamSynchronize(stream));
            out.expect(10.f * (turn + 1));
        }
        EXPECT(counters().kernels_run == run + 12);
        // It is released while its last replay is still to come.
        in.fill(9);
        HIP(hipGraphLaunch(exec, s));
        HIP(hipGraphExecDestroy(exec));
        HIP_GIVES(hipErrorInvalidValue, hipGraphLaunch(exec, s));
        HIP_GIVES(hipErrorInvalidValue, hipGraphExecDestroy(exec));
        HIP(hipStreamSynchronize(s));
        out.expect(100);
    });
    check::test("a graph over two devices runs each node on its own", [&] {
        Side near(0, 1, k), far(1, 1, k);
        HIP(hipSetDevice(0));
        Event fork;
        HIP(hipSetDevice(1));
        Event join;
        HIP(hipStreamBeginCapture(near.s, hipStreamCaptureModeThreadLocal));
        launch(near.k.add, near.b, 1, near.s);
        HIP(hipEventRecord(fork, near.s));
        HIP(hipStreamWaitEvent(far.s, fork, 0));
        HIP(hipMemcpyAsync(far.b.p, near.b.p, BYTES, hipMemcpyDeviceToDevice, far.s));
        launch(far.k.scale, far.b, 4, far.s);
        HIP(hipEventRecord(join, far.s));
        HIP(hipStreamWaitEvent(near.s, join, 0));
        hipGraph_t graph;
        hipGraphExec_t exec;
        HIP(hipStreamEndCapture(near.s, &graph));
        HIP(hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0));
        Late late;
        for(float value : {8.f, 12.f})
        {
            HIP(hipGraphLaunch(exec, near.s));
            HIP(hipStreamSynchronize(near.s));
            far.b.expect(value);
        }
        HIP(hipGraphExecDestroy(exec));
        HIP(hipGraphDestroy(graph));
    });
    check::test("nothing is left", [&] {
        HIP(hipSetDevice(0));
        HIP(hipModuleUnload(k.module));
        auto all = counters();
        EXPECT(all.live_streams == 0 && all.live_events == 0 && all.live_allocations == 0 && all.live_host_allocations == 0);
        EXPECT(all.live_modules == 0 && all.live_graphs == 0 && all.live_graph_execs == 0);
    });
    return check::result();
}
