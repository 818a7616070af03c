// Device memory: out of the host's reach, checked for every kernel and copy, limited, on several devices.
//
// Started again by itself, with a test's name, for what ends a process or needs another environment.
#include "kernels.h"

#include <csignal>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

namespace {
int child(const std::string& what)
{
    if(what == "read" || what == "write")
    {
        float* p;
        if(hipMalloc((void**)&p, 256) != hipSuccess) return 3;
        volatile float* far = p + 4;
        if(what == "read") return (int)*far;
        *far = 1;
        return 0;
    }
    if(what == "freed")
    {
        float* p;
        if(hipMalloc((void**)&p, 256) != hipSuccess || hipFree(p) != hipSuccess) return 3;
        return (int)*(volatile float*)p;
    }
    if(what == "accessible")
    {
        float* p;
        if(hipMalloc((void**)&p, 256) != hipSuccess) return 3;
        p[0] = 5;
        float got = 0;
        if(hipMemcpy(&got, p, 4, hipMemcpyDeviceToHost) != hipSuccess) return 3;
        return got == 5 ? 0 : 1;
    }
    if(what == "nodevice")
    {
        int count = 7;
        void* p;
        hipStream_t s;
        if(hipGetDeviceCount(&count) != hipErrorNoDevice || count != 0) return 1;
        if(hipMalloc(&p, 16) != hipErrorNoDevice || hipStreamCreate(&s) != hipErrorNoDevice || hipSetDevice(0) != hipErrorNoDevice) return 2;
        int version;
        return hipRuntimeGetVersion(&version) == hipSuccess && version > 0 ? 0 : 4;
    }
    if(what == "devices")
    {
        check::test("several devices", [] {
            int count;
            HIP(hipGetDeviceCount(&count));
            EXPECT(count == 3);
            HIP_GIVES(hipErrorInvalidDevice, hipSetDevice(3));
            HIP(hipSetDevice(0));
            Kernels k;
            Buffer near(64, 1);
            Stream near_stream;
            HIP(hipSetDevice(2));
            Buffer far(64, 5);
            Stream far_stream;
            hipPointerAttribute_t attributes;
            HIP(hipPointerGetAttributes(&attributes, far.p));
            EXPECT(attributes.device == 2);
            int device;
            HIP(hipStreamGetDevice(far_stream, &device));
            EXPECT(device == 2);
            // A kernel belongs to the device it was loaded for.
            HIP_GIVES(hipErrorInvalidHandle, try_launch(k.add, far, 1, far_stream));
            // Copies go between devices, kernels only with leave.
            HIP(hipMemcpyPeer(far.p, 2, near.p, 0, 64 * 4));
            far.expect(1);
            HIP(hipSetDevice(0));
            HIP(hipDeviceEnablePeerAccess(2, 0));
            launch(k.add, far, 2, near_stream);
            HIP(hipStreamSynchronize(near_stream));
            far.expect(3);
            HIP(hipDeviceDisablePeerAccess(2));
            launch(k.add, far, 2, near_stream);
            HIP_GIVES(hipErrorIllegalAddress, hipStreamSynchronize(near_stream));
            // The error sticks to the device that ran the kernel.
            HIP_GIVES(hipErrorIllegalAddress, try_launch(k.add, near, 2, near_stream));
            HIP(hipSetDevice(2));
            HIP(hipDeviceSynchronize());
            hipemu_clear_errors();
            HIP(hipSetDevice(0));
            near.expect(1);
            // An event belongs to a device too.
            Event e;
            HIP_GIVES(hipErrorInvalidHandle, hipEventRecord(e, far_stream));
            HIP(hipEventRecord(e, near_stream));
            HIP(hipStreamWaitEvent(far_stream, e, 0));
            HIP(hipStreamSynchronize(far_stream));
        });
        return check::result();
    }
    return 9;
}

struct Ended { int status; std::string errors; };
// This program again; `more` goes into its environment.
Ended again(char** argv, const char* what, const char* name = nullptr, const char* value = nullptr)
{
    int pipe_ends[2];
    if(pipe(pipe_ends)) check::fail("pipe");
    pid_t pid = fork();
    if(pid == 0)
    {
        if(name) setenv(name, value, 1);
        dup2(pipe_ends[1], 2);
        dup2(pipe_ends[1], 1);
        close(pipe_ends[0]);
        // The loader that runs this program has its own arguments before the program's name.
        std::vector<char*> arguments;
        FILE* f = fopen("/proc/self/cmdline", "rb");
        static char line[65536];
        size_t n = f ? fread(line, 1, sizeof line - 1, f) : 0;
        for(size_t i = 0; i < n; i += strlen(line + i) + 1) arguments.push_back(line + i);
        arguments.push_back((char*)what);
        arguments.push_back(nullptr);
        execv(n ? "/proc/self/exe" : argv[0], arguments.data());
        _exit(99);
    }
    close(pipe_ends[1]);
    Ended out;
    char text[4096];
    for(ssize_t n; (n = read(pipe_ends[0], text, sizeof text)) > 0;) out.errors.append(text, n);
    close(pipe_ends[0]);
    waitpid(pid, &out.status, 0);
    return out;
}
} // namespace

int main(int argc, char** argv)
{
    if(argc > 1) return child(argv[1]);
    Kernels k;

    struct Stray { const char* what; const char* wanted; };
    for(auto& stray : {Stray{"read", "is byte 16 of 256 of device memory"}, Stray{"write", "is byte 16 of 256 of device memory"},
                       Stray{"freed", "is not allocated"}})
        check::test(std::string("a host access to device memory ends the process with a report: ") + stray.what, [&] {
            auto ended = again(argv, stray.what);
            if(!WIFSIGNALED(ended.status) || WTERMSIG(ended.status) != SIGSEGV) check::fail("ended with %d: %s", ended.status, ended.errors.c_str());
            if(ended.errors.find(stray.wanted) == std::string::npos) check::fail("said: %s", ended.errors.c_str());
            const char* last = strcmp(stray.what, "freed") == 0 ? "last HIP call was hipFree" : "last HIP call was hipMalloc";
            if(ended.errors.find(last) == std::string::npos) check::fail("said: %s", ended.errors.c_str());
        });
    struct Environment { const char *title, *what, *name, *value; };
    for(auto& e : {Environment{"HIPEMU_HOST_ACCESS lets the host read and write", "accessible", "HIPEMU_HOST_ACCESS", "1"},
                   Environment{"no device", "nodevice", "HIPEMU_DEVICES", "0"}, Environment{"three devices", "devices", "HIPEMU_DEVICES", "3"}})
        check::test(e.title, [&] {
            auto ended = again(argv, e.what, e.name, e.value);
            if(!WIFEXITED(ended.status) || WEXITSTATUS(ended.status) != 0) check::fail("ended with %d: %s", ended.status, ended.errors.c_str());
        });

    check::test("fresh memory is not zero", [&] {
        float* p;
        HIP(hipMalloc((void**)&p, 64));
        float values[16];
        HIP(hipMemcpy(values, p, 64, hipMemcpyDeviceToHost));
        for(float value : values) EXPECT(value != value);
        HIP(hipFree(p));
    });
    check::test("a kernel outside its memory fails, and the error sticks", [&] {
        Buffer b(16, 1), unharmed(16, 2);
        Stream s;
        auto before = counters().violations;
        for(int at : {16, -1, 1 << 20})
        {
            void* arguments[] = {&b.p, &at};
            HIP(hipModuleLaunchKernel(k.stray, 1, 1, 1, 1, 1, 1, 0, s, arguments, nullptr));
            HIP_GIVES(hipErrorIllegalAddress, hipStreamSynchronize(s));
            HIP_GIVES(hipErrorIllegalAddress, hipDeviceSynchronize());
            HIP_GIVES(hipErrorIllegalAddress, try_launch(k.add, b, 1, s));
            hipemu_clear_errors();
        }
        EXPECT(counters().violations == before + 3);
        b.expect(1);
        unharmed.expect(2);
    });
    check::test("copies and fills are checked at the call", [&] {
        Buffer b(16, 1);
        std::vector<float> host(64);
        HIP_GIVES(hipErrorInvalidValue, hipMemcpy(host.data(), b.p, 65, hipMemcpyDeviceToHost));
        HIP_GIVES(hipErrorInvalidValue, hipMemcpy(b.p + 1, host.data(), 64, hipMemcpyHostToDevice));
        HIP_GIVES(hipErrorInvalidValue, hipMemset(b.p + 8, 0, 33));
        HIP_GIVES(hipErrorInvalidMemcpyDirection, hipMemcpy(host.data(), b.p, 64, hipMemcpyHostToDevice));
        HIP_GIVES(hipErrorInvalidMemcpyDirection, hipMemcpy(b.p, b.p, 64, hipMemcpyHostToDevice));
        HIP_GIVES(hipErrorInvalidMemcpyDirection, hipMemcpy(host.data(), host.data(), 64, hipMemcpyDeviceToDevice));
        HIP_GIVES(hipErrorInvalidValue, hipMemcpy(nullptr, b.p, 64, hipMemcpyDeviceToHost));
        HIP(hipMemcpy(host.data(), b.p, 64, hipMemcpyDefault));
        EXPECT(host[15] == 1);
        b.expect(1);
    });
    check::test("rows of a plane", [&] {
        Buffer b(12, 0);
        float rows[2][3] = {{1, 2, 3}, {4, 5, 6}};
        HIP(hipMemcpy2D(b.p + 1, 6 * 4, rows, 3 * 4, 2 * 4, 2, hipMemcpyHostToDevice));
        auto got = b.read();
        const float wanted[] = {0, 1, 2, 0, 0, 0, 0, 4, 5, 0, 0, 0};
        for(int i = 0; i < 12; i++) EXPECT(got[i] == wanted[i]);
        HIP_GIVES(hipErrorInvalidValue, hipMemcpy2D(b.p + 5, 6 * 4, rows, 3 * 4, 2 * 4, 2, hipMemcpyHostToDevice));
    });
    check::test("what is not allocated can't be freed", [&] {
        Buffer b(16);
        int on_stack;
        HIP_GIVES(hipErrorInvalidValue, hipFree(b.p + 1));
        HIP_GIVES(hipErrorInvalidValue, hipFree(&on_stack));
        HIP_GIVES(hipErrorInvalidValue, hipHostFree(b.p));
        HIP(hipFree(nullptr));
        float* twice;
        HIP(hipMalloc((void**)&twice, 64));
        HIP(hipFree(twice));
        HIP_GIVES(hipErrorInvalidValue, hipFree(twice));
    });
    check::test("memory runs out where it is told to", [&] {
        size_t free_bytes, total;
        void *a, *b;
        hipemu_set_memory_limit(1 << 20, 300000);
        HIP(hipMemGetInfo(&free_bytes, &total));
        EXPECT(total == 1 << 20);
        HIP_GIVES(hipErrorOutOfMemory, hipMalloc(&a, 300001));
        EXPECT(a == nullptr);
        hipemu_set_memory_limit(1 << 20, 0);
        HIP(hipMalloc(&a, 1000000));
        HIP_GIVES(hipErrorOutOfMemory, hipMalloc(&b, 100000));
        HIP(hipFree(a));
        HIP(hipMalloc(&b, 100000));
        HIP(hipFree(b));
        hipemu_set_memory_limit(0, 0);
    });
    check::test("whose memory an address is in", [&] {
        Buffer b(16);
        int on_stack;
        void* pinned;
        HIP(hipHostMalloc(&pinned, 64, 0));
        struct Case { const char* what; const void* address; hipMemoryType type; int device; };
        for(auto& c : {Case{"the device's", b.p + 3, hipMemoryTypeDevice, 0}, Case{"pinned", (char*)pinned + 5, hipMemoryTypeHost, 0},
                       Case{"unknown", &on_stack, hipMemoryTypeUnregistered, hipInvalidDeviceId}})
        {
            hipPointerAttribute_t attributes;
            HIP(hipPointerGetAttributes(&attributes, c.address));
            if(attributes.type != c.type || attributes.device != c.device) check::fail("%s: type %d, device %d", c.what, attributes.type, attributes.device);
            EXPECT(c.type == hipMemoryTypeUnregistered ? attributes.devicePointer == nullptr : attributes.devicePointer == c.address);
        }
        hipPointerAttribute_t attributes;
        HIP_GIVES(hipErrorInvalidValue, hipPointerGetAttributes(&attributes, nullptr));
        HIP(hipHostFree(pinned));
    });
    check::test("registered memory", [&] {
        std::vector<float> host(64, 3);
        Buffer b(64, 0);
        Stream s;
        HIP(hipHostRegister(host.data(), 256, 0));
        HIP_GIVES(hipErrorHostMemoryAlreadyRegistered, hipHostRegister(host.data() + 8, 16, 0));
        {
            Held held;
            HIP(hipMemcpyAsync(b.p, host.data(), 256, hipMemcpyHostToDevice, s));
            host.assign(64, 4); // pinned: read when the copy runs
        }
        HIP(hipStreamSynchronize(s));
        b.expect(4);
        HIP(hipHostUnregister(host.data()));
        HIP_GIVES(hipErrorHostMemoryNotRegistered, hipHostUnregister(host.data()));
    });
    check::test("memory freed on a stream is used by what came before", [&] {
        Buffer copy(64, 0);
        Stream s;
        float* p;
        HIP(hipMallocAsync((void**)&p, 256, s));
        {
            Held held;
            HIP(hipMemsetD32Async((hipDeviceptr_t)p, 0x3f800000, 64, s));
            HIP(hipMemcpyAsync(copy.p, p, 256, hipMemcpyDeviceToDevice, s));
            HIP(hipFreeAsync(p, s));
        }
        HIP(hipStreamSynchronize(s));
        copy.expect(1);
        HIP_GIVES(hipErrorInvalidValue, hipFree(p));
    });
    check::test("nothing is left", [&] {
        auto c = counters();
        EXPECT(c.live_allocations == 0);
        EXPECT(c.live_bytes == 0);
        EXPECT(c.live_host_allocations == 0);
        EXPECT(c.live_streams == 0);
    });
    return check::result();
}
