// Device memory that the host can't touch, pinned memory, and what an address belongs to.
//
// Each device has two views of one memory file: addresses given to the program, which no access is allowed to,
// and the same bytes at another place, which kernels and copies use.
#pragma once
#include "common.h"

namespace hipemu {

enum class Kind { Device, Pinned, Registered, Code };

struct Allocation
{
    uintptr_t address;
    size_t bytes;
    Kind kind;
    int device;
    uint64_t number; // counts allocations, for messages
    unsigned flags; // of pinned and registered memory
};

// What [address, address + bytes) is, as a place that the runtime itself can read and write.
struct Place
{
    uint8_t* host = nullptr; // null: not a place one may touch
    bool on_device = false;  // device memory or a code object: not the program's own memory
    bool pinned    = false;
    int device     = -1;
};

// Null when there is not enough, or more than a limit set.
void* allocate(int device, size_t bytes, Kind kind, unsigned flags = 0);
// Makes host memory or a code object known; `forget` takes it back. False when the address is taken or unknown.
bool adopt(void* address, size_t bytes, Kind kind, int device, unsigned flags = 0);
bool forget(void* address, Kind kind);
// Gives memory of `allocate` back; false for any other address.
bool release(void* address, bool pinned);

bool find_allocation(const void* address, Allocation& out);
// Tells of the violation when there is one. `what` names the access.
Place locate(const void* address, size_t bytes, const char* what);

size_t used_bytes(int device);
size_t total_bytes();

// What a running kernel may touch.
struct KernelContext
{
    int device;
    uint64_t id; // of this execution
    struct Range { uint64_t begin, end; } ranges[2]; // arguments, dispatch packet
};
uint8_t* resolve_for_kernel(const void* context, uint64_t address, uint64_t bytes);

void allow_peer(int device, int peer, bool allowed);
bool peer_allowed(int device, int peer);

// For messages: "device address 0x... in allocation 3 of 256 bytes on device 0".
std::string describe_address(uintptr_t address);
} // namespace hipemu
