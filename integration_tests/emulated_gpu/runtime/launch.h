// A kernel launch: its arguments copied, ready to be run by the emulator.
#pragma once
#include <array>

#include "graph.h"
#include "module.h"

namespace hipemu {
using Size3 = std::array<uint32_t, 3>;

// A launch whose arguments have been copied. May run many times, from a graph, at once.
struct Launch;

// Takes the arguments either as pointers to each or packed in `extra`, as hipModuleLaunchKernel does.
hipError_t prepare_launch(const std::shared_ptr<Module>& module, const Function& function, Size3 grid, Size3 block, size_t shared, void** params,
                          void** extra, std::shared_ptr<const Launch>& out);
// What the launch's node in a graph tells; the grid is in blocks.
std::shared_ptr<const NodeParams> describe_launch(const Function& function, const void* handle, Size3 grid, Size3 block, size_t shared, void** params,
                                                  void** extra);
// Called by a stream's thread.
hipError_t run_launch(const Launch& launch, int device);
const std::string& kernel_name(const Launch& launch);
} // namespace hipemu
