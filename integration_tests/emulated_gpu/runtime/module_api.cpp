// Modules, kernels and launches; kernels compiled into host programs.
#include <algorithm>
#include <fstream>
#include <unordered_map>

#include "call.h"
#include "launch.h"
#include "memory.h"
#include "stream.h"

using namespace hipemu;

namespace {
std::unordered_map<void*, std::shared_ptr<Module>>& modules()
{
    static auto* all = new std::unordered_map<void*, std::shared_ptr<Module>>;
    return *all;
}
// Handles that were given out, so that one of an unloaded module is known to be stale.
std::unordered_map<void*, std::weak_ptr<Module>>& functions()
{
    static auto* all = new std::unordered_map<void*, std::weak_ptr<Module>>;
    return *all;
}

hipError_t load(Call& call, hipModule_t* out, const void* data)
{
    if(!out || !data) return hipErrorInvalidValue;
    std::string why;
    auto module = load_code_object(data, current_device(), why);
    if(!module)
    {
        message(0, "%s: %s", last_call(), why.c_str());
        return hipErrorNoBinaryForGpu;
    }
    Guard guard(lock());
    modules()[module.get()] = module;
    counts().live_modules++;
    *out = (hipModule_t)module.get();
    call.detail("module=%p bytes=%zu", (void*)module.get(), module->size);
    return hipSuccess;
}

std::shared_ptr<Module> find_module(hipModule_t handle)
{
    auto found = modules().find(handle);
    return found == modules().end() ? nullptr : found->second;
}

Size3 product(Size3 a, Size3 b) { return {a[0] * b[0], a[1] * b[1], a[2] * b[2]}; }

// Arguments are copied at the call; the kernel runs when its turn comes. `function_handle` is what the caller named the function by.
hipError_t launch_on(Call& call, const std::shared_ptr<Module>& module, const Function& function, const void* function_handle, Size3 grid, Size3 block, size_t shared, hipStream_t handle,
                     void** params, void** extra, hipEvent_t start = nullptr, hipEvent_t stop = nullptr)
{
    call.detail("kernel=%s grid=%ux%ux%u block=%ux%ux%u", function.name.c_str(), grid[0], grid[1], grid[2], block[0], block[1], block[2]);
    // A skipped launch costs as little as can be: what is then measured is the caller.
    const bool skip = switches().skip;
    std::shared_ptr<const Launch> launch;
    if(!skip)
        if(auto error = prepare_launch(module, function, grid, block, shared, params, extra, launch)) return error;
    Guard guard(lock());
    hipError_t error;
    auto stream = find_stream(handle, error);
    if(!stream) return error;
    std::shared_ptr<const NodeParams> node;
    if(stream->capture)
    {
        if(!block[0] || !block[1] || !block[2]) return hipErrorInvalidConfiguration;
        // A node has its grid in blocks: what is left over a multiple of the block is lost.
        Size3 blocks{grid[0] / block[0], grid[1] / block[1], grid[2] / block[2]};
        if(auto failed = prepare_launch(module, function, product(blocks, block), block, shared, params, extra, launch)) return failed;
        node = describe_launch(function, function_handle, blocks, block, shared, params, extra);
    }
    call.detail("stream=%llu", (unsigned long long)stream->id);
    if(stream->device != module->device)
    {
        message(0, "kernel %s was loaded for device %d, the stream is of device %d", function.name.c_str(), module->device, stream->device);
        return hipErrorInvalidHandle;
    }
    auto mark = [&](hipEvent_t handle) {
        if(!handle) return hipSuccess;
        auto event = find_event(handle);
        return event ? record_event(event, stream) : hipErrorInvalidHandle;
    };
    if(auto failed = mark(start)) return failed;
    counts().launches++;
    if(launch)
    {
        auto run    = [launch](int device) { return run_launch(*launch, device); };
        auto failed = submit(stream, {"kernel", function.name, hipGraphNodeTypeKernel, run, node});
        if(failed != hipSuccess) return failed;
    }
    return mark(stop);
}

hipError_t launch_function(Call& call, hipFunction_t handle, Size3 grid, Size3 block, size_t shared, hipStream_t stream, void** params, void** extra,
                           hipEvent_t start = nullptr, hipEvent_t stop = nullptr)
{
    std::shared_ptr<Module> module;
    {
        Guard guard(lock());
        auto found = functions().find(handle);
        if(found != functions().end()) module = found->second.lock();
    }
    if(!module)
    {
        message(0, "%s: %p is no function, or its module was unloaded", last_call(), (void*)handle);
        return hipErrorInvalidHandle;
    }
    return launch_on(call, module, *(const Function*)handle, handle, grid, block, shared, stream, params, extra, start, stop);
}
} // namespace

API hipError_t hipModuleLoadData(hipModule_t* out, const void* data)
{
    ENTER(Device | Unsafe) return load(call, out, data); LEAVE
}
API hipError_t hipModuleLoadDataEx(hipModule_t* out, const void* data, unsigned, hipJitOption*, void**)
{
    ENTER(Device | Unsafe) return load(call, out, data); LEAVE
}
API hipError_t hipModuleLoad(hipModule_t* out, const char* file)
{
    ENTER(Device | Unsafe)
        if(!file) return hipErrorInvalidValue;
        std::ifstream stream(file, std::ios::binary);
        if(!stream) return hipErrorFileNotFound;
        std::string bytes((std::istreambuf_iterator<char>(stream)), {});
        call.detail("file=%s", file);
        return load(call, out, bytes.data());
    LEAVE
}
API hipError_t hipModuleUnload(hipModule_t handle)
{
    ENTER(Device | Unsafe | Release)
        Guard guard(lock());
        auto module = find_module(handle);
        if(!module) return hipErrorInvalidHandle;
        call.detail("module=%p", (void*)handle);
        for(auto& [name, function] : module->functions) functions().erase(function.get());
        modules().erase(handle);
        counts().live_modules--;
        guard.unlock();
        return hipSuccess;
    LEAVE
}
API hipError_t hipModuleGetFunction(hipFunction_t* out, hipModule_t handle, const char* name)
{
    ENTER(Device)
        if(!out || !name) return hipErrorInvalidValue;
        Guard guard(lock());
        auto module = find_module(handle);
        if(!module) return hipErrorInvalidHandle;
        call.detail("kernel=%s", name);
        auto* function = module->find(name);
        if(!function) return hipErrorNotFound;
        functions()[function] = module;
        *out                  = (hipFunction_t)function;
        return hipSuccess;
    LEAVE
}
API hipError_t hipModuleGetGlobal(hipDeviceptr_t* address, size_t* bytes, hipModule_t handle, const char* name)
{
    ENTER(Device)
        if(!name) return hipErrorInvalidValue;
        Guard guard(lock());
        auto module = find_module(handle);
        if(!module) return hipErrorInvalidHandle;
        auto symbol = module->symbols.find(name);
        if(symbol == module->symbols.end()) return hipErrorNotFound;
        if(address) *address = (hipDeviceptr_t)(module->image + symbol->second.first);
        if(bytes) *bytes = symbol->second.second;
        return hipSuccess;
    LEAVE
}
API hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, hipFunction_t, int, size_t)
{
    ENTER(Device)
        if(!blocks) return hipErrorInvalidValue;
        *blocks = 2;
        return hipSuccess;
    LEAVE
}
API hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                     hipStream_t stream, void** params, void** extra)
{
    ENTER(Device)
        if(auto watcher = switches().watcher.load())
        {
            const unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
            watcher(function, grid, block, shared, params, extra);
        }
        // Narrower than what the hardware and hipExtModuleLaunchKernel take.
        if(gx > INT32_MAX || gy > 65536 || gz > 65536) return hipErrorInvalidValue;
        if((uint64_t)gx * bx > UINT32_MAX) return hipErrorInvalidConfiguration;
        return launch_function(call, function, product({gx, gy, gz}, {bx, by, bz}), {bx, by, bz}, shared, stream, params, extra);
    LEAVE
}
API hipError_t hipModuleLaunchCooperativeKernel(hipFunction_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                                unsigned shared, hipStream_t stream, void** params)
{
    ENTER(Device) return launch_function(call, function, product({gx, gy, gz}, {bx, by, bz}), {bx, by, bz}, shared, stream, params, nullptr); LEAVE
}
// Unlike hipModuleLaunchKernel it takes the grid in work-items.
API hipError_t hipExtModuleLaunchKernel(hipFunction_t function, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz, size_t shared,
                                        hipStream_t stream, void** params, void** extra, hipEvent_t start, hipEvent_t stop, uint32_t)
{
    ENTER(Device) return launch_function(call, function, {gx, gy, gz}, {bx, by, bz}, shared, stream, params, extra, start, stop); LEAVE
}
API hipError_t hipHccModuleLaunchKernel(hipFunction_t function, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz, size_t shared,
                                        hipStream_t stream, void** params, void** extra, hipEvent_t start, hipEvent_t stop)
{
    ENTER(Device) return launch_function(call, function, {gx, gy, gz}, {bx, by, bz}, shared, stream, params, extra, start, stop); LEAVE
}

// Kernels compiled into host programs register themselves before main.
namespace {
struct FatWrapper
{
    uint32_t magic, version;
    const void* binary;
    void* unused;
};
struct FatBinary
{
    const FatWrapper* wrapper;
    std::unordered_map<int, std::shared_ptr<Module>> modules; // by device; null: can't be loaded
};
struct HostFunction
{
    FatBinary* binary;
    std::string name;
};
std::unordered_map<const void*, HostFunction>& host_functions()
{
    static auto* all = new std::unordered_map<const void*, HostFunction>;
    return *all;
}
struct Configuration
{
    dim3 grid, block;
    size_t shared;
    hipStream_t stream;
};
thread_local std::vector<Configuration> configurations;
} // namespace

API void** __hipRegisterFatBinary(const void* data) { return (void**)new FatBinary{(const FatWrapper*)data, {}}; }
API void __hipUnregisterFatBinary(void**) {}
API void __hipRegisterFunction(void** binary, const void* host, char*, const char* name, unsigned, void*, void*, void*, void*, int*)
{
    Guard guard(lock());
    host_functions()[host] = {(FatBinary*)binary, name};
}
API void __hipRegisterVar(void**, void*, char*, char*, int, size_t, int, int) {}
API hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared, hipStream_t stream)
{
    configurations.push_back({grid, block, shared, stream});
    return hipSuccess;
}
API hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, hipStream_t* stream)
{
    if(configurations.empty()) return hipErrorInvalidValue;
    auto last = configurations.back();
    configurations.pop_back();
    *grid   = last.grid;
    *block  = last.block;
    *shared = last.shared;
    *stream = last.stream;
    return hipSuccess;
}
API hipError_t hipLaunchKernel(const void* host, dim3 grid, dim3 block, void** args, size_t shared, hipStream_t stream)
{
    ENTER(Device)
        Guard guard(lock());
        auto found = host_functions().find(host);
        if(found == host_functions().end()) return hipErrorInvalidDeviceFunction;
        auto& loaded = found->second.binary->modules;
        int device   = current_device();
        if(is_stream(stream)) device = ((Stream*)stream)->device;
        if(!loaded.count(device))
        {
            std::string why;
            loaded[device] = load_code_object(found->second.binary->wrapper->binary, device, why);
            if(!loaded[device]) message(0, "kernel %s: %s", found->second.name.c_str(), why.c_str());
        }
        auto module = loaded[device];
        if(!module) return hipErrorNoBinaryForGpu;
        auto* function = module->find(found->second.name);
        if(!function) return hipErrorInvalidDeviceFunction;
        guard.unlock();
        Size3 b{block.x, block.y, block.z};
        return launch_on(call, module, *function, host, product({grid.x, grid.y, grid.z}, b), b, shared, stream, args, nullptr);
    LEAVE
}
