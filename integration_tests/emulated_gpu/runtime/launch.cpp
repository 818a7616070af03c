#include "launch.h"

#include <dlfcn.h>

#include "../include/hipemu_dispatch.h"
#include "call.h"
#include "memory.h"
#include "stream.h"

namespace hipemu {
struct Launch
{
    std::shared_ptr<Module> module; // kept: a module may be unloaded while its kernels are queued
    std::string name;
    const uint8_t* descriptor;
    Size3 grid, block;
    uint32_t shared;
    std::vector<uint64_t> arguments; // words, for alignment
    size_t argument_bytes;
};

namespace {
struct AqlPacket // hsa_kernel_dispatch_packet_t
{
    uint16_t header, setup, workgroup[3], reserved0;
    uint32_t grid[3], private_size, group_size;
    uint64_t kernel_object, kernarg, reserved2, completion;
};

// The parts of the 64-byte kernel descriptor that a dispatch needs.
struct Descriptor
{
    uint32_t group_bytes, private_bytes, resources2;
    int64_t entry;
    uint16_t properties;
    explicit Descriptor(const uint8_t* d)
    {
        memcpy(&group_bytes, d, 4);
        memcpy(&private_bytes, d + 4, 4);
        memcpy(&entry, d + 16, 8);
        memcpy(&resources2, d + 52, 4);
        memcpy(&properties, d + 56, 2);
    }
};

hipemu_run_fn emulator()
{
    static hipemu_run_fn run = []() -> hipemu_run_fn {
        auto& path = Settings::get().emulator;
        if(path.empty())
        {
            message(0, "HIPEMU_EMULATOR is not set: kernels can't run");
            return nullptr;
        }
        void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if(!library)
        {
            message(0, "%s", dlerror());
            return nullptr;
        }
        auto found = (hipemu_run_fn)dlsym(library, "hipemu_run");
        if(!found) message(0, "%s has no hipemu_run", path.c_str());
        return found;
    }();
    return run;
}

bool is_hidden(const Function::Argument& argument) { return argument.kind.compare(0, 7, "hidden_") == 0; }

// The end of the last of a kernel's own arguments.
size_t own_bytes(const Function& function)
{
    size_t end = 0;
    for(auto& argument : function.arguments)
        if(!is_hidden(argument)) end = std::max<size_t>(end, argument.offset + argument.size);
    return end;
}

// Arguments as they come in `extra`, whose entries HIP takes in one order alone.
struct Packed
{
    const void* bytes = nullptr;
    size_t size       = 0;
    bool read(void** extra)
    {
        if(extra[0] != HIP_LAUNCH_PARAM_BUFFER_POINTER || extra[2] != HIP_LAUNCH_PARAM_BUFFER_SIZE || extra[4] != HIP_LAUNCH_PARAM_END) return false;
        bytes = extra[1];
        size  = *(size_t*)extra[3];
        return bytes != nullptr;
    }
};

// What the compiler adds to a kernel's own arguments.
uint64_t hidden_value(const std::string& kind, const Size3& grid, const Size3& block, uint32_t shared)
{
    if(kind == "hidden_grid_dims") return grid[2] > 1 ? 3 : grid[1] > 1 ? 2 : 1;
    if(kind == "hidden_dynamic_lds_size") return shared;
    const char axes[] = "xyz";
    for(int i = 0; i < 3; i++)
    {
        std::string axis(1, axes[i]);
        if(kind == "hidden_block_count_" + axis) return grid[i] / block[i];
        if(kind == "hidden_group_size_" + axis) return block[i];
        if(kind == "hidden_remainder_" + axis) return grid[i] % block[i];
    }
    return 0;
}
} // namespace

const std::string& kernel_name(const Launch& launch) { return launch.name; }

hipError_t prepare_launch(const std::shared_ptr<Module>& module, const Function& function, Size3 grid, Size3 block, size_t shared, void** params,
                          void** extra, std::shared_ptr<const Launch>& out)
{
    uint64_t block_items = 1;
    if(params && extra) return hipErrorInvalidValue;
    for(int i = 0; i < 3; i++)
    {
        if(!block[i]) return hipErrorInvalidConfiguration;
        if(!grid[i]) return hipErrorInvalidValue;
        block_items *= block[i];
    }
    if(block_items > 1024) return hipErrorInvalidValue;
    if(Descriptor(function.descriptor).group_bytes + shared > 65536) return hipErrorInvalidValue;
    Packed packed;
    if(extra && !packed.read(extra)) return hipErrorInvalidValue;
    if(packed.bytes && packed.size < own_bytes(function))
    {
        // HIP would read on behind the buffer.
        counts().violations++;
        message(0, "%s: %zu bytes of arguments for kernel %s, which takes %zu", last_call(), packed.size, function.name.c_str(), own_bytes(function));
        return hipErrorInvalidValue;
    }
    auto launch        = std::make_shared<Launch>();
    launch->module     = module;
    launch->name       = function.name;
    launch->descriptor = function.descriptor;
    launch->grid       = grid;
    launch->block      = block;
    launch->shared     = (uint32_t)shared;
    // Hand-written kernels may have no metadata: then the buffer's size counts.
    launch->argument_bytes = std::max<size_t>(function.argument_bytes, function.arguments.empty() ? packed.size : 0);
    launch->arguments.assign(launch->argument_bytes / 8 + 33, 0);
    auto* bytes = (uint8_t*)launch->arguments.data();
    if(packed.bytes) memcpy(bytes, packed.bytes, std::min(packed.size, launch->argument_bytes));
    else
    {
        size_t next = 0;
        for(auto& a : function.arguments)
        {
            if(is_hidden(a)) continue;
            if(!params) return hipErrorInvalidValue;
            memcpy(bytes + a.offset, params[next++], a.size);
        }
    }
    for(auto& a : function.arguments)
    {
        if(!is_hidden(a)) continue;
        uint64_t value = hidden_value(a.kind, grid, block, (uint32_t)shared);
        memcpy(bytes + a.offset, &value, std::min<size_t>(a.size, 8));
    }
    out = std::move(launch);
    return hipSuccess;
}

std::shared_ptr<const NodeParams> describe_launch(const Function& function, const void* handle, Size3 grid, Size3 block, size_t shared, void** params,
                                                  void** extra)
{
    auto node  = std::make_shared<NodeParams>();
    auto& kept = node->of.emplace<KernelParams>();
    kept.params.func           = (void*)handle;
    kept.params.gridDim        = dim3(grid[0], grid[1], grid[2]);
    kept.params.blockDim       = dim3(block[0], block[1], block[2]);
    kept.params.sharedMemBytes = (unsigned)shared;
    if(params)
    {
        for(auto& argument : function.arguments)
        {
            if(is_hidden(argument)) continue;
            std::vector<uint64_t> value(argument.size / 8 + 1);
            memcpy(value.data(), params[kept.values.size()], argument.size);
            kept.values.push_back(std::move(value));
        }
        for(auto& value : kept.values) kept.pointers.push_back(value.data());
        kept.params.kernelParams = kept.pointers.data();
    }
    else if(extra)
    {
        Packed packed;
        (void)packed.read(extra); // the launch was prepared with it
        kept.packed_bytes = packed.size;
        kept.packed.resize(packed.size / 8 + 1);
        memcpy(kept.packed.data(), packed.bytes, packed.size);
        kept.extra[0]     = HIP_LAUNCH_PARAM_BUFFER_POINTER;
        kept.extra[1]     = kept.packed.data();
        kept.extra[2]     = HIP_LAUNCH_PARAM_BUFFER_SIZE;
        kept.extra[3]     = &kept.packed_bytes;
        kept.extra[4]     = HIP_LAUNCH_PARAM_END;
        kept.params.extra = kept.extra;
    }
    return node;
}

hipError_t run_launch(const Launch& launch, int device)
{
    static std::atomic<uint64_t> executions{0};
    static uint64_t fake_queue[64];
    const Descriptor kernel(launch.descriptor);
    const std::string& isa = Settings::get().arch;
    auto* arguments        = (const uint8_t*)launch.arguments.data();

    AqlPacket packet{};
    packet.setup = 3;
    hipemu_dispatch d{};
    for(int i = 0; i < 3; i++)
    {
        packet.workgroup[i] = launch.block[i];
        packet.grid[i] = d.grid[i] = launch.grid[i];
        d.block[i]                 = launch.block[i];
        d.groups[i]                = (launch.grid[i] + launch.block[i] - 1) / launch.block[i];
    }
    packet.private_size  = d.scratch_bytes = kernel.private_bytes;
    packet.group_size    = d.lds_bytes = kernel.group_bytes + launch.shared;
    packet.kernel_object = (uint64_t)launch.descriptor;
    packet.kernarg       = (uint64_t)arguments;

    d.version    = HIPEMU_DISPATCH_VERSION;
    d.wave_size  = kernel.properties & 0x400 ? 32 : 64;
    d.isa        = isa.c_str();
    d.kernel     = launch.name.c_str();
    d.image      = launch.module->image;
    d.image_size = launch.module->size;
    d.entry      = (const uint32_t*)(launch.descriptor + kernel.entry);
    d.descriptor = launch.descriptor;

    uint32_t n  = 0;
    auto push64 = [&](uint64_t v) {
        d.user_sgpr[n++] = (uint32_t)v;
        d.user_sgpr[n++] = (uint32_t)(v >> 32);
    };
    uint64_t execution = ++executions;
    bool before_gfx11  = isa.compare(0, 4, "gfx9") == 0 || isa.compare(0, 5, "gfx10") == 0;
    if(before_gfx11 && (kernel.properties & 1)) { push64(0); push64(0); }
    if(kernel.properties & 2) push64((uint64_t)&packet);
    if(kernel.properties & 4) push64((uint64_t)fake_queue);
    if(kernel.properties & 8) push64((uint64_t)arguments);
    if(kernel.properties & 16) push64(execution);
    if(before_gfx11 && (kernel.properties & 32)) push64(0);
    if(kernel.properties & 64) d.user_sgpr[n++] = kernel.private_bytes;
    d.n_user_sgpr      = (kernel.resources2 >> 1) & 31;
    d.sys_sgpr         = (kernel.resources2 >> 7) & 15;
    d.vgpr_workitem_id = (kernel.resources2 >> 11) & 3;

    KernelContext context{};
    context.device    = device;
    context.id        = execution;
    context.ranges[0] = {(uint64_t)arguments, (uint64_t)arguments + launch.arguments.size() * 8};
    context.ranges[1] = {(uint64_t)&packet, (uint64_t)(&packet + 1)};
    d.resolve         = resolve_for_kernel;
    d.context         = &context;

    message(1, "kernel %s grid %ux%ux%u block %ux%ux%u lds %u scratch %u wave%u", d.kernel, d.grid[0], d.grid[1], d.grid[2], d.block[0],
            d.block[1], d.block[2], d.lds_bytes, d.scratch_bytes, d.wave_size);
    if(auto error = injected_kernel_failure())
    {
        counts().kernels_failed++;
        return error;
    }
    if(switches().skip) return hipSuccess;
    auto run = emulator();
    char why[512] = "";
    int result    = run ? run(&d, why, sizeof why) : HIPEMU_FAILED;
    if(result == HIPEMU_OK)
    {
        counts().kernels_run++;
        return hipSuccess;
    }
    counts().kernels_failed++;
    message(0, "kernel %s failed: %s", d.kernel, why);
    if(result != HIPEMU_BAD_ADDRESS) return hipErrorLaunchFailure;
    counts().violations++;
    Guard guard(lock());
    set_sticky_error(device, hipErrorIllegalAddress);
    return hipErrorIllegalAddress;
}
} // namespace hipemu
