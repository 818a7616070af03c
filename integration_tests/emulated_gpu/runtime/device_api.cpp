// Devices, versions and errors.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "call.h"
#include "memory.h"
#include "stream.h"

namespace hipemu {
void set_current_device(int device);

namespace {
// Each device has a bus of its own.
constexpr int FIRST_BUS = 3;

bool is_device(int device) { return device >= 0 && device < Settings::get().devices; }

// What architectures differ in beside their name: the features that it carries, which say how code must be compiled, and sizes.
struct Architecture
{
    const char *name, *features;
    int wave, registers, l2_bytes, bus_bits, memory_khz, core_khz;
};
const Architecture& architecture(const std::string& name)
{
    static const Architecture known[] = {
        {"gfx906", ":sramecc-:xnack-", 64, 65536, 4 << 20, 4096, 1000000, 1800000},
        {"gfx908", ":sramecc+:xnack-", 64, 131072, 8 << 20, 4096, 1200000, 1502000},
        {"gfx90a", ":sramecc+:xnack-", 64, 131072, 8 << 20, 4096, 1600000, 1700000},
        {"gfx942", ":sramecc+:xnack-", 64, 131072, 4 << 20, 8192, 1300000, 2100000},
        {"gfx9", "", 64, 65536, 4 << 20, 2048, 1000000, 1600000},
        {"", "", 32, 196608, 4 << 20, 256, 1000000, 2000000}, // RDNA
    };
    for(auto& a : known)
        if(name.compare(0, strlen(a.name), a.name) == 0) return a;
    return known[5];
}

void fill_properties(hipDeviceProp_tR0600* p, int device)
{
    memset(p, 0, sizeof *p);
    const std::string& arch = Settings::get().arch;
    snprintf(p->name, sizeof p->name, "Software emulated %s", arch.c_str());
    snprintf(p->gcnArchName, sizeof p->gcnArchName, "%s%s", arch.c_str(), architecture(arch).features);
    p->totalGlobalMem    = total_bytes();
    p->sharedMemPerBlock = p->maxSharedMemoryPerMultiProcessor = p->sharedMemPerBlockOptin = 65536;
    p->sharedMemPerMultiprocessor                                                         = 65536;
    p->regsPerBlock = p->regsPerMultiprocessor = architecture(arch).registers;
    p->warpSize                                = architecture(arch).wave;
    p->memPitch                                = 2147483647;
    p->maxThreadsPerBlock                      = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = p->maxThreadsDim[2] = 1024;
    p->maxGridSize[0]                                              = 2147483647;
    p->maxGridSize[1] = p->maxGridSize[2] = 65536;
    p->clockRate = p->clockInstructionRate = architecture(arch).core_khz;
    p->memoryClockRate                     = architecture(arch).memory_khz;
    p->memoryBusWidth                      = architecture(arch).bus_bits;
    p->totalConstMem                       = 2147483647;
    // "gfx1100": all digits but the last two are the major version, then minor and stepping.
    size_t digits = arch.find_first_of("0123456789");
    size_t n      = digits == std::string::npos ? 0 : arch.find_first_not_of("0123456789abcdef", digits);
    n             = digits == std::string::npos ? 0 : std::min(n, arch.size()) - digits;
    p->major      = n > 2 ? atoi(arch.substr(digits, n - 2).c_str()) : 9;
    p->minor      = n > 2 ? arch[digits + n - 2] - '0' : 0;
    p->multiProcessorCount         = Settings::get().compute_units;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxBlocksPerMultiProcessor  = 2;
    p->l2CacheSize                 = architecture(arch).l2_bytes;
    p->concurrentKernels           = 1;
    p->canMapHostMemory            = 1;
    p->unifiedAddressing           = 1;
    p->managedMemory               = 1;
    p->cooperativeLaunch           = 1;
    p->textureAlignment            = 256;
    p->surfaceAlignment            = 256;
    p->texturePitchAlignment       = 256;
    p->pciBusID                    = FIRST_BUS + device;
    p->arch.hasGlobalInt32Atomics = p->arch.hasSharedInt32Atomics = p->arch.hasGlobalInt64Atomics = 1;
    p->arch.hasSharedInt64Atomics = p->arch.hasDoubles = p->arch.hasWarpVote = p->arch.hasWarpBallot = 1;
    p->arch.hasWarpShuffle = p->arch.hasSyncThreadsExt = p->arch.has3dGrid = 1;
}

int attribute(const hipDeviceProp_tR0600& p, hipDeviceAttribute_t which)
{
    switch((int)which)
    {
    case hipDeviceAttributeMultiprocessorCount:
    case hipDeviceAttributePhysicalMultiProcessorCount: return p.multiProcessorCount;
    case hipDeviceAttributeWarpSize: return p.warpSize;
    case hipDeviceAttributeMaxThreadsPerBlock:
    case hipDeviceAttributeMaxBlockDimX:
    case hipDeviceAttributeMaxBlockDimY:
    case hipDeviceAttributeMaxBlockDimZ: return 1024;
    case hipDeviceAttributeMaxGridDimX: return p.maxGridSize[0];
    case hipDeviceAttributeMaxGridDimY:
    case hipDeviceAttributeMaxGridDimZ: return 65536;
    case hipDeviceAttributeMaxSharedMemoryPerBlock:
    case hipDeviceAttributeMaxSharedMemoryPerMultiprocessor: return 65536;
    case hipDeviceAttributeMaxThreadsPerMultiProcessor: return p.maxThreadsPerMultiProcessor;
    case hipDeviceAttributeMaxRegistersPerBlock:
    case hipDeviceAttributeMaxRegistersPerMultiprocessor: return p.regsPerBlock;
    case hipDeviceAttributeClockRate: return p.clockRate;
    case hipDeviceAttributeMemoryClockRate: return p.memoryClockRate;
    case hipDeviceAttributeMemoryBusWidth: return p.memoryBusWidth;
    case hipDeviceAttributeL2CacheSize: return p.l2CacheSize;
    case hipDeviceAttributeComputeCapabilityMajor: return p.major;
    case hipDeviceAttributeComputeCapabilityMinor: return p.minor;
    case hipDeviceAttributeTotalConstantMemory: return 2147483647;
    case hipDeviceAttributePciBusId: return p.pciBusID;
    case hipDeviceAttributePciDeviceId:
    case hipDeviceAttributePciDomainId: return 0;
    case hipDeviceAttributeConcurrentKernels:
    case hipDeviceAttributeCooperativeLaunch:
    case hipDeviceAttributeManagedMemory:
    case hipDeviceAttributeUnifiedAddressing:
    case hipDeviceAttributeCanMapHostMemory: return 1;
    case hipDeviceAttributeMemoryPoolsSupported: return 0;
    default: message(1, "hipDeviceGetAttribute %d: not known here, 0", (int)which); return 0;
    }
}
} // namespace
} // namespace hipemu

using namespace hipemu;

API hipError_t hipInit(unsigned flags)
{
    ENTER(Device) return flags ? hipErrorInvalidValue : hipSuccess; LEAVE
}
API hipError_t hipGetDeviceCount(int* count)
{
    if(count) *count = 0;
    ENTER(Device)
        if(!count) return hipErrorInvalidValue;
        *count = Settings::get().devices;
        return hipSuccess;
    LEAVE
}
API hipError_t hipGetDevice(int* device)
{
    ENTER(Device)
        if(!device) return hipErrorInvalidValue;
        *device = current_device();
        return hipSuccess;
    LEAVE
}
API hipError_t hipSetDevice(int device)
{
    ENTER(Device)
        call.detail("device=%d", device);
        if(!is_device(device)) return hipErrorInvalidDevice;
        set_current_device(device);
        return hipSuccess;
    LEAVE
}
API hipError_t hipDeviceGet(hipDevice_t* device, int ordinal)
{
    ENTER(Device)
        if(!device) return hipErrorInvalidValue;
        if(!is_device(ordinal)) return hipErrorInvalidDevice;
        *device = ordinal;
        return hipSuccess;
    LEAVE
}
API hipError_t hipDeviceGetName(char* name, int length, hipDevice_t device)
{
    ENTER(Device)
        if(!name || length <= 0) return hipErrorInvalidValue;
        if(!is_device(device)) return hipErrorInvalidDevice;
        snprintf(name, length, "Software emulated %s", Settings::get().arch.c_str());
        return hipSuccess;
    LEAVE
}
API hipError_t hipDeviceGetPCIBusId(char* id, int length, int device)
{
    ENTER(Device)
        if(!id || length <= 0) return hipErrorInvalidValue;
        if(!is_device(device)) return hipErrorInvalidDevice;
        snprintf(id, length, "0000:%02x:00.0", FIRST_BUS + device);
        return hipSuccess;
    LEAVE
}
API hipError_t hipDeviceGetByPCIBusId(int* device, const char* id)
{
    ENTER(Device)
        if(!device || !id) return hipErrorInvalidValue;
        unsigned domain, bus, slot, function;
        if(sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) return hipErrorInvalidValue;
        if(domain || slot || function || !is_device((int)bus - FIRST_BUS)) return hipErrorInvalidDevice;
        *device = (int)bus - FIRST_BUS;
        return hipSuccess;
    LEAVE
}
API hipError_t hipDeviceGetUuid(hipUUID* uuid, hipDevice_t device)
{
    ENTER(Device)
        if(!uuid) return hipErrorInvalidValue;
        if(!is_device(device)) return hipErrorInvalidDevice;
        snprintf(uuid->bytes, sizeof uuid->bytes, "hipemu-%08x", device);
        return hipSuccess;
    LEAVE
}
API hipError_t hipDeviceSynchronize()
{
    ENTER(Device | Unsafe)
        Guard guard(lock());
        return wait_device(guard, current_device());
    LEAVE
}
API hipError_t hipDeviceReset()
{
    ENTER(Device | Unsafe)
        Guard guard(lock());
        (void)wait_device(guard, current_device());
        set_sticky_error(current_device(), hipSuccess);
        return hipSuccess;
    LEAVE
}
API hipError_t hipRuntimeGetVersion(int* version)
{
    ENTER(Plain)
        if(!version) return hipErrorInvalidValue;
        *version = HIP_VERSION;
        return hipSuccess;
    LEAVE
}
API hipError_t hipDriverGetVersion(int* version)
{
    ENTER(Plain)
        if(!version) return hipErrorInvalidValue;
        *version = HIP_VERSION;
        return hipSuccess;
    LEAVE
}
API hipError_t hipDeviceTotalMem(size_t* bytes, hipDevice_t device)
{
    ENTER(Device)
        if(!bytes) return hipErrorInvalidValue;
        if(!is_device(device)) return hipErrorInvalidDevice;
        *bytes = total_bytes();
        return hipSuccess;
    LEAVE
}
API hipError_t hipMemGetInfo(size_t* free_bytes, size_t* total)
{
    ENTER(Device)
        if(!free_bytes || !total) return hipErrorInvalidValue;
        *total      = total_bytes();
        size_t used = used_bytes(current_device());
        *free_bytes = used < *total ? *total - used : 0;
        return hipSuccess;
    LEAVE
}
API hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* properties, int device)
{
    ENTER(Device)
        if(!properties) return hipErrorInvalidValue;
        if(!is_device(device)) return hipErrorInvalidDevice;
        fill_properties(properties, device);
        return hipSuccess;
    LEAVE
}
API hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t which, int device)
{
    ENTER(Device)
        if(!value) return hipErrorInvalidValue;
        if(!is_device(device)) return hipErrorInvalidDevice;
        hipDeviceProp_tR0600 properties;
        fill_properties(&properties, device);
        *value = attribute(properties, which);
        call.detail("attribute=%d value=%d", (int)which, *value);
        return hipSuccess;
    LEAVE
}
API hipError_t hipDeviceGetStreamPriorityRange(int* least, int* greatest)
{
    ENTER(Device)
        if(least) *least = 0;
        if(greatest) *greatest = 0;
        return hipSuccess;
    LEAVE
}
API hipError_t hipDeviceCanAccessPeer(int* can, int device, int peer)
{
    ENTER(Device)
        if(!can) return hipErrorInvalidValue;
        if(!is_device(device) || !is_device(peer)) return hipErrorInvalidDevice;
        *can = device != peer;
        return hipSuccess;
    LEAVE
}
API hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags)
{
    ENTER(Device)
        if(flags) return hipErrorInvalidValue;
        if(!is_device(peer) || peer == current_device()) return hipErrorInvalidDevice;
        if(peer_allowed(current_device(), peer)) return hipErrorPeerAccessAlreadyEnabled;
        allow_peer(current_device(), peer, true);
        return hipSuccess;
    LEAVE
}
API hipError_t hipDeviceDisablePeerAccess(int peer)
{
    ENTER(Device)
        if(!is_device(peer)) return hipErrorInvalidDevice;
        if(!peer_allowed(current_device(), peer)) return hipErrorPeerAccessNotEnabled;
        allow_peer(current_device(), peer, false);
        return hipSuccess;
    LEAVE
}

API const char* hipGetErrorName(hipError_t error)
{
    switch((int)error)
    {
#define NAME(x) \
    case x: return #x;
        NAME(hipSuccess)
        NAME(hipErrorInvalidValue)
        NAME(hipErrorOutOfMemory)
        NAME(hipErrorNotInitialized)
        NAME(hipErrorNoDevice)
        NAME(hipErrorInvalidDevice)
        NAME(hipErrorInvalidImage)
        NAME(hipErrorInvalidHandle)
        NAME(hipErrorInvalidMemcpyDirection)
        NAME(hipErrorInvalidConfiguration)
        NAME(hipErrorInvalidDeviceFunction)
        NAME(hipErrorInvalidDevicePointer)
        NAME(hipErrorNotFound)
        NAME(hipErrorNotReady)
        NAME(hipErrorNoBinaryForGpu)
        NAME(hipErrorLaunchFailure)
        NAME(hipErrorLaunchTimeOut)
        NAME(hipErrorIllegalAddress)
        NAME(hipErrorIllegalState)
        NAME(hipErrorNotSupported)
        NAME(hipErrorFileNotFound)
        NAME(hipErrorHostMemoryAlreadyRegistered)
        NAME(hipErrorHostMemoryNotRegistered)
        NAME(hipErrorPeerAccessAlreadyEnabled)
        NAME(hipErrorPeerAccessNotEnabled)
        NAME(hipErrorStreamCaptureUnsupported)
        NAME(hipErrorStreamCaptureInvalidated)
        NAME(hipErrorStreamCaptureMerge)
        NAME(hipErrorStreamCaptureUnmatched)
        NAME(hipErrorStreamCaptureUnjoined)
        NAME(hipErrorStreamCaptureIsolation)
        NAME(hipErrorStreamCaptureImplicit)
        NAME(hipErrorStreamCaptureWrongThread)
        NAME(hipErrorCapturedEvent)
        NAME(hipErrorUnknown)
#undef NAME
    default: return "hipErrorOther";
    }
}
API const char* hipGetErrorString(hipError_t error) { return hipGetErrorName(error); }
API hipError_t hipDrvGetErrorName(hipError_t error, const char** text)
{
    *text = hipGetErrorName(error);
    return hipSuccess;
}
API hipError_t hipDrvGetErrorString(hipError_t error, const char** text) { return hipDrvGetErrorName(error, text); }

API hipError_t hipGetLastError()
{
    ENTER(Quiet) return std::exchange(last_error(), hipSuccess); LEAVE
}
API hipError_t hipExtGetLastError()
{
    ENTER(Quiet) return std::exchange(last_error(), hipSuccess); LEAVE
}
API hipError_t hipPeekAtLastError()
{
    ENTER(Quiet) return last_error(); LEAVE
}
