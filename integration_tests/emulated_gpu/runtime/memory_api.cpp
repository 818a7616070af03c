// Allocation, copies and fills.
#include <algorithm>
#include <cstring>
#include <vector>

#include "call.h"
#include "graph.h"
#include "memory.h"
#include "stream.h"

namespace hipemu {
namespace {
// Rows of bytes from one place to another.
struct Copy
{
    void* to;
    size_t to_pitch;
    const void* from;
    size_t from_pitch;
    size_t width, rows;
    hipMemcpyKind kind;
    std::shared_ptr<std::vector<uint8_t>> staged; // the source's bytes, when they were taken at the call

    size_t to_span() const { return (rows - 1) * to_pitch + width; }
    size_t from_span() const { return (rows - 1) * from_pitch + width; }
};

hipError_t check_copy(const Copy& c)
{
    Place to = locate(c.to, c.to_span(), "copy to"), from = locate(c.from, c.from_span(), "copy from");
    if(!to.host || !from.host) return hipErrorInvalidValue;
    bool wrong = false;
    switch((int)c.kind)
    {
    case hipMemcpyHostToDevice: wrong = from.on_device || !(to.on_device || to.pinned); break;
    case hipMemcpyDeviceToHost: wrong = to.on_device || !(from.on_device || from.pinned); break;
    case hipMemcpyDeviceToDevice:
    case hipMemcpyDeviceToDeviceNoCU: wrong = !(to.on_device || to.pinned) || !(from.on_device || from.pinned); break;
    case hipMemcpyHostToHost: wrong = to.on_device || from.on_device; break;
    case hipMemcpyDefault: break;
    default: return hipErrorInvalidMemcpyDirection;
    }
    if(!wrong) return hipSuccess;
    counts().violations++;
    message(0, "%s: kind %d does not fit: to %s, from %s", last_call(), (int)c.kind, describe_address((uintptr_t)c.to).c_str(),
            describe_address((uintptr_t)c.from).c_str());
    return hipErrorInvalidMemcpyDirection;
}

hipError_t gone(int device)
{
    // Memory that was there when the work was submitted was freed before it ran.
    Guard guard(lock());
    set_sticky_error(device, hipErrorIllegalAddress);
    return hipErrorIllegalAddress;
}

hipError_t run_copy(const Copy& c, int device)
{
    Place to = locate(c.to, c.to_span(), "copy to"), from;
    if(c.staged) from.host = c.staged->data();
    else from = locate(c.from, c.from_span(), "copy from");
    if(!to.host || !from.host) return gone(device);
    for(size_t row = 0; row < c.rows; row++) memmove(to.host + row * c.to_pitch, from.host + row * c.from_pitch, c.width);
    return hipSuccess;
}

// What the copy's node in a graph tells: of one row, addresses and length alone.
std::shared_ptr<const NodeParams> describe_copy(const Copy& c)
{
    auto node   = std::make_shared<NodeParams>();
    auto& told  = node->of.emplace<hipMemcpy3DParms>();
    bool is_row = c.rows == 1;
#if HIP_VERSION_MAJOR < 7
    // These releases leave the parameters of such a node unset.
    if(is_row)
    {
        memset((void*)&told, 0xa5, sizeof told);
        return node;
    }
#endif
    told.srcPtr.ptr   = (void*)c.from;
    told.dstPtr.ptr   = c.to;
    told.srcPtr.pitch = is_row ? 0 : c.from_pitch;
    told.dstPtr.pitch = is_row ? 0 : c.to_pitch;
    told.extent       = {c.width, c.rows, 1};
    told.kind         = c.kind;
    return node;
}

std::shared_ptr<const NodeParams> describe_fill(void* to, unsigned value, size_t value_bytes, size_t count)
{
    auto node        = std::make_shared<NodeParams>();
    auto& told       = node->of.emplace<hipMemsetParams>();
    told.dst         = to;
    told.value       = value;
    told.elementSize = (unsigned)value_bytes;
    told.width       = count;
    told.height      = 1;
    return node;
}

// A copy between devices names the one that each address is on.
hipError_t check_peers(const void* to, int to_device, const void* from, int from_device)
{
    for(int device : {to_device, from_device})
        if(device < 0 || device >= Settings::get().devices) return hipErrorInvalidDevice;
    Allocation a;
    auto is_on = [&](const void* address, int device) { return find_allocation(address, a) && a.kind == Kind::Device && a.device == device; };
    if(is_on(to, to_device) && is_on(from, from_device)) return hipSuccess;
    counts().violations++;
    message(0, "%s to device %d from device %d: to %s, from %s", last_call(), to_device, from_device, describe_address((uintptr_t)to).c_str(),
            describe_address((uintptr_t)from).c_str());
    return hipErrorInvalidValue;
}

enum class Wait { Never, Always, UnlessDeviceToDevice };

hipError_t copy(Call& call, Copy c, hipStream_t handle, Wait wait)
{
    call.detail("bytes=%zu kind=%d to=%p from=%p", c.width * c.rows, (int)c.kind, c.to, c.from);
    if(c.width == 0 || c.rows == 0) return hipSuccess;
    if(!c.to || !c.from || (c.rows > 1 && (c.to_pitch < c.width || c.from_pitch < c.width))) return hipErrorInvalidValue;
    if(auto error = check_copy(c)) return error;
    Place to = locate(c.to, 1, "copy to"), from = locate(c.from, 1, "copy from");
    bool waits = wait == Wait::Always || (wait == Wait::UnlessDeviceToDevice && !(to.on_device && from.on_device));
    Guard guard(lock());
    hipError_t error;
    auto stream = find_stream(handle, error);
    if(!stream) return error;
    call.detail("stream=%llu", (unsigned long long)stream->id);
    // Memory that isn't pinned is read at the call: a program may change it afterwards.
    if(!waits && !from.on_device && !from.pinned && !stream->capture)
        c.staged = std::make_shared<std::vector<uint8_t>>((const uint8_t*)c.from, (const uint8_t*)c.from + c.from_span());
    counts().copies++;
    char name[48];
    snprintf(name, sizeof name, "%zu bytes", c.width * c.rows);
    auto node = stream->capture ? describe_copy(c) : nullptr;
    if(auto refused = submit(stream, {"copy", name, hipGraphNodeTypeMemcpy, [c](int device) { return run_copy(c, device); }, node})) return refused;
    return waits ? wait_stream(guard, stream) : hipSuccess;
}
Copy line(void* to, const void* from, size_t bytes, hipMemcpyKind kind) { return {to, bytes, from, bytes, bytes, 1, kind, nullptr}; }

hipError_t fill(Call& call, void* to, unsigned value, size_t value_bytes, size_t count, hipStream_t handle)
{
    size_t bytes = value_bytes * count;
    call.detail("bytes=%zu to=%p", bytes, to);
    if(!bytes) return hipSuccess;
    if(!to || !locate(to, bytes, "fill of").host) return hipErrorInvalidValue;
    Guard guard(lock());
    hipError_t error;
    auto stream = find_stream(handle, error);
    if(!stream) return error;
    counts().fills++;
    char name[48];
    snprintf(name, sizeof name, "%zu bytes", bytes);
    auto node = stream->capture ? describe_fill(to, value, value_bytes, count) : nullptr;
    auto run  = [=](int device) {
        Place place = locate(to, bytes, "fill of");
        if(!place.host) return gone(device);
        if(value_bytes == 1) memset(place.host, (int)value, bytes);
        else
            for(size_t i = 0; i < count; i++) memcpy(place.host + i * value_bytes, &value, value_bytes);
        return hipSuccess;
    };
    return submit(stream, {"fill", name, hipGraphNodeTypeMemset, run, node});
}

hipError_t device_memory(Call& call, void** out, size_t bytes, int device)
{
    if(!out) return hipErrorInvalidValue;
    *out = nullptr;
    if(!bytes) return hipSuccess;
    *out = allocate(device, bytes, Kind::Device);
    call.detail("bytes=%zu address=%p", bytes, *out);
    return *out ? hipSuccess : hipErrorOutOfMemory;
}

// Work may still use the memory: as on hardware, freeing waits for the device.
hipError_t free_memory(Call& call, void* address, bool pinned)
{
    call.detail("address=%p", address);
    if(!address) return hipSuccess;
    Allocation a;
    if(!find_allocation(address, a) || a.address != (uintptr_t)address || a.kind != (pinned ? Kind::Pinned : Kind::Device))
    {
        message(0, "%s of what was not allocated so: %s", last_call(), describe_address((uintptr_t)address).c_str());
        return hipErrorInvalidValue;
    }
    call.detail("bytes=%zu", a.bytes);
    Guard guard(lock());
    if(wait_device(guard, a.device) == hipErrorLaunchTimeOut) return hipErrorLaunchTimeOut;
    guard.unlock();
    return release(address, pinned) ? hipSuccess : hipErrorInvalidValue;
}

#ifdef hipHostMallocUncached
constexpr unsigned UNCACHED = hipHostMallocUncached;
#else
constexpr unsigned UNCACHED = 0; // these releases have none
#endif
// What hipHostMalloc takes; other bits are refused, and memory can't be coherent and not.
constexpr unsigned HOST_FLAGS = hipHostMallocPortable | hipHostMallocMapped | hipHostMallocWriteCombined | hipHostMallocNumaUser |
                                hipHostMallocCoherent | hipHostMallocNonCoherent | UNCACHED;
constexpr unsigned REGISTER_FLAGS = hipHostRegisterPortable | hipHostRegisterMapped | hipHostRegisterIoMemory | hipHostRegisterReadOnly;

hipError_t pinned_memory(Call& call, void** out, size_t bytes, unsigned flags = 0)
{
    constexpr unsigned both = hipHostMallocCoherent | hipHostMallocNonCoherent;
    if(!out || (flags & ~HOST_FLAGS) || (flags & both) == both) return hipErrorInvalidValue;
    *out = nullptr;
    if(!bytes) return hipSuccess;
    *out = allocate(current_device(), bytes, Kind::Pinned, flags);
    call.detail("bytes=%zu address=%p", bytes, *out);
    return *out ? hipSuccess : hipErrorOutOfMemory;
}
} // namespace
} // namespace hipemu

using namespace hipemu;

API hipError_t hipMalloc(void** out, size_t bytes)
{
    ENTER(Device | Unsafe) return device_memory(call, out, bytes, current_device()); LEAVE
}
API hipError_t hipExtMallocWithFlags(void** out, size_t bytes, unsigned)
{
    ENTER(Device | Unsafe) return device_memory(call, out, bytes, current_device()); LEAVE
}
API hipError_t hipFree(void* address)
{
    ENTER(Device | Unsafe | Release)
        // Managed memory is pinned memory here.
        Allocation a;
        bool managed = find_allocation(address, a) && a.kind == Kind::Pinned;
        return free_memory(call, address, managed);
    LEAVE
}
API hipError_t hipHostMalloc(void** out, size_t bytes, unsigned flags)
{
    ENTER(Device | Unsafe) return pinned_memory(call, out, bytes, flags); LEAVE
}
API hipError_t hipHostAlloc(void** out, size_t bytes, unsigned flags)
{
    ENTER(Device | Unsafe) return pinned_memory(call, out, bytes, flags); LEAVE
}
API hipError_t hipMallocManaged(void** out, size_t bytes, unsigned)
{
    ENTER(Device | Unsafe) return pinned_memory(call, out, bytes); LEAVE
}
API hipError_t hipHostFree(void* address)
{
    ENTER(Device | Unsafe | Release) return free_memory(call, address, true); LEAVE
}
API hipError_t hipFreeHost(void* address)
{
    ENTER(Device | Unsafe | Release) return free_memory(call, address, true); LEAVE
}
API hipError_t hipMallocAsync(void** out, size_t bytes, hipStream_t handle)
{
    ENTER(Device)
        Guard guard(lock());
        hipError_t error;
        auto stream = find_stream(handle, error);
        if(!stream) return error;
        // Real graphs can have nodes that allocate; these can't.
        if(stream->capture) return hipErrorStreamCaptureUnsupported;
        guard.unlock();
        return device_memory(call, out, bytes, stream->device);
    LEAVE
}
API hipError_t hipFreeAsync(void* address, hipStream_t handle)
{
    ENTER(Device | Release)
        Allocation a;
        if(!address) return hipSuccess;
        if(!find_allocation(address, a) || a.address != (uintptr_t)address || a.kind != Kind::Device) return hipErrorInvalidValue;
        Guard guard(lock());
        hipError_t error;
        auto stream = find_stream(handle, error);
        if(!stream) return error;
        if(stream->capture) return hipErrorStreamCaptureUnsupported;
        return submit(stream, {"free", "", hipGraphNodeTypeMemFree, [address](int) { return release(address, false) ? hipSuccess : hipErrorInvalidValue; }});
    LEAVE
}
API hipError_t hipHostRegister(void* address, size_t bytes, unsigned flags)
{
    ENTER(Device | Unsafe)
        if(!address || !bytes || (flags & ~REGISTER_FLAGS)) return hipErrorInvalidValue;
        return adopt(address, bytes, Kind::Registered, current_device(), flags) ? hipSuccess : hipErrorHostMemoryAlreadyRegistered;
    LEAVE
}
API hipError_t hipHostUnregister(void* address)
{
    ENTER(Device | Unsafe | Release) return forget(address, Kind::Registered) ? hipSuccess : hipErrorHostMemoryNotRegistered; LEAVE
}
API hipError_t hipHostGetFlags(unsigned* flags, void* address)
{
    ENTER(Device)
        Allocation a;
        if(!flags || !find_allocation(address, a) || a.kind == Kind::Device || a.kind == Kind::Code) return hipErrorInvalidValue;
        *flags = a.flags;
        return hipSuccess;
    LEAVE
}
API hipError_t hipHostGetDevicePointer(void** out, void* address, unsigned flags)
{
    ENTER(Device)
        Allocation a;
        if(!out || flags || !find_allocation(address, a) || a.kind == Kind::Device || a.kind == Kind::Code) return hipErrorInvalidValue;
        *out = address;
        return hipSuccess;
    LEAVE
}
API hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t* pool, int)
{
    ENTER(Device)
        static int only;
        if(!pool) return hipErrorInvalidValue;
        *pool = (hipMemPool_t)&only;
        return hipSuccess;
    LEAVE
}
API hipError_t hipMemPoolTrimTo(hipMemPool_t, size_t)
{
    ENTER(Device) return hipSuccess; LEAVE
}

API hipError_t hipMemcpy(void* to, const void* from, size_t bytes, hipMemcpyKind kind)
{
    ENTER(Device | Unsafe) return copy(call, line(to, from, bytes, kind), nullptr, Wait::UnlessDeviceToDevice); LEAVE
}
API hipError_t hipMemcpyWithStream(void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream)
{
    ENTER(Device | Unsafe) return copy(call, line(to, from, bytes, kind), stream, Wait::Always); LEAVE
}
API hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream)
{
    ENTER(Device) return copy(call, line(to, from, bytes, kind), stream, Wait::Never); LEAVE
}
#if HIP_VERSION_MAJOR < 7
using HostSource = void*;
#else
using HostSource = const void*;
#endif
API hipError_t hipMemcpyHtoD(hipDeviceptr_t to, HostSource from, size_t bytes)
{
    ENTER(Device | Unsafe) return copy(call, line((void*)to, from, bytes, hipMemcpyHostToDevice), nullptr, Wait::Always); LEAVE
}
API hipError_t hipMemcpyDtoH(void* to, hipDeviceptr_t from, size_t bytes)
{
    ENTER(Device | Unsafe) return copy(call, line(to, (void*)from, bytes, hipMemcpyDeviceToHost), nullptr, Wait::Always); LEAVE
}
API hipError_t hipMemcpyDtoD(hipDeviceptr_t to, hipDeviceptr_t from, size_t bytes)
{
    ENTER(Device | Unsafe) return copy(call, line((void*)to, (void*)from, bytes, hipMemcpyDeviceToDevice), nullptr, Wait::UnlessDeviceToDevice); LEAVE
}
API hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t to, HostSource from, size_t bytes, hipStream_t stream)
{
    ENTER(Device) return copy(call, line((void*)to, from, bytes, hipMemcpyHostToDevice), stream, Wait::Never); LEAVE
}
API hipError_t hipMemcpyDtoHAsync(void* to, hipDeviceptr_t from, size_t bytes, hipStream_t stream)
{
    ENTER(Device) return copy(call, line(to, (void*)from, bytes, hipMemcpyDeviceToHost), stream, Wait::Never); LEAVE
}
API hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t to, hipDeviceptr_t from, size_t bytes, hipStream_t stream)
{
    ENTER(Device) return copy(call, line((void*)to, (void*)from, bytes, hipMemcpyDeviceToDevice), stream, Wait::Never); LEAVE
}
API hipError_t hipMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes)
{
    ENTER(Device | Unsafe)
        if(auto error = check_peers(to, to_device, from, from_device)) return error;
        return copy(call, line(to, from, bytes, hipMemcpyDeviceToDevice), nullptr, Wait::Always);
    LEAVE
}
API hipError_t hipMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes, hipStream_t stream)
{
    ENTER(Device)
        if(auto error = check_peers(to, to_device, from, from_device)) return error;
        return copy(call, line(to, from, bytes, hipMemcpyDeviceToDevice), stream, Wait::Never);
    LEAVE
}
API hipError_t hipMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows, hipMemcpyKind kind)
{
    ENTER(Device | Unsafe) return copy(call, {to, to_pitch, from, from_pitch, width, rows, kind, nullptr}, nullptr, Wait::UnlessDeviceToDevice); LEAVE
}
API hipError_t hipMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows, hipMemcpyKind kind,
                                hipStream_t stream)
{
    ENTER(Device) return copy(call, {to, to_pitch, from, from_pitch, width, rows, kind, nullptr}, stream, Wait::Never); LEAVE
}

API hipError_t hipMemset(void* to, int value, size_t bytes)
{
    ENTER(Device | Unsafe) return fill(call, to, (unsigned)value, 1, bytes, nullptr); LEAVE
}
API hipError_t hipMemsetAsync(void* to, int value, size_t bytes, hipStream_t stream)
{
    ENTER(Device) return fill(call, to, (unsigned)value, 1, bytes, stream); LEAVE
}
API hipError_t hipMemsetD8(hipDeviceptr_t to, unsigned char value, size_t count)
{
    ENTER(Device | Unsafe) return fill(call, (void*)to, value, 1, count, nullptr); LEAVE
}
API hipError_t hipMemsetD8Async(hipDeviceptr_t to, unsigned char value, size_t count, hipStream_t stream)
{
    ENTER(Device) return fill(call, (void*)to, value, 1, count, stream); LEAVE
}
API hipError_t hipMemsetD16(hipDeviceptr_t to, unsigned short value, size_t count)
{
    ENTER(Device | Unsafe) return fill(call, (void*)to, value, 2, count, nullptr); LEAVE
}
API hipError_t hipMemsetD16Async(hipDeviceptr_t to, unsigned short value, size_t count, hipStream_t stream)
{
    ENTER(Device) return fill(call, (void*)to, value, 2, count, stream); LEAVE
}
API hipError_t hipMemsetD32(hipDeviceptr_t to, int value, size_t count)
{
    ENTER(Device | Unsafe) return fill(call, (void*)to, (unsigned)value, 4, count, nullptr); LEAVE
}
API hipError_t hipMemsetD32Async(hipDeviceptr_t to, int value, size_t count, hipStream_t stream)
{
    ENTER(Device) return fill(call, (void*)to, (unsigned)value, 4, count, stream); LEAVE
}

API hipError_t hipMemPtrGetInfo(void* address, size_t* bytes)
{
    ENTER(Device)
        Allocation a;
        if(!bytes || !find_allocation(address, a)) return hipErrorInvalidValue;
        *bytes = a.bytes;
        return hipSuccess;
    LEAVE
}
API hipError_t hipMemGetAddressRange(hipDeviceptr_t* base, size_t* bytes, hipDeviceptr_t address)
{
    ENTER(Device)
        Allocation a;
        if(!find_allocation((void*)address, a)) return hipErrorNotFound;
        if(base) *base = (hipDeviceptr_t)a.address;
        if(bytes) *bytes = a.bytes;
        return hipSuccess;
    LEAVE
}
API hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* address)
{
    ENTER(Device)
        Allocation a;
        if(!attributes || !address) return hipErrorInvalidValue;
        memset(attributes, 0, sizeof *attributes);
        // Memory that HIP doesn't know is no error.
        attributes->type   = hipMemoryTypeUnregistered;
        attributes->device = hipInvalidDeviceId;
        if(!find_allocation(address, a)) return hipSuccess;
        bool on_device            = a.kind == Kind::Device || a.kind == Kind::Code;
        attributes->type          = on_device ? hipMemoryTypeDevice : hipMemoryTypeHost;
        attributes->device        = a.device;
        attributes->devicePointer = (void*)address;
        attributes->hostPointer   = on_device ? nullptr : (void*)address;
        return hipSuccess;
    LEAVE
}
