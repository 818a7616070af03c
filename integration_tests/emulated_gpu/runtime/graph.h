// Stream capture and graphs.
#pragma once
#include <variant>

#include "stream.h"

namespace hipemu {

// What is kept of a launch for hipGraphKernelNodeGetParams, which gives addresses in here.
struct KernelParams
{
    hipKernelNodeParams params{};
    std::vector<uint64_t> packed; // words, for alignment
    size_t packed_bytes = 0;
    void* extra[5];
    std::vector<std::vector<uint64_t>> values;
    std::vector<void*> pointers;
};
struct NodeParams
{
    std::variant<KernelParams, hipMemsetParams, hipMemcpy3DParms> of;
};

struct Node
{
    Work work;
    std::vector<size_t> after; // earlier nodes
    int device; // of the stream that it was captured from
};
struct Graph
{
    std::deque<Node> nodes;
};

// One capture in progress, of one stream and those that joined it.
struct Capture
{
    std::shared_ptr<Graph> graph = std::make_shared<Graph>();
    hipStreamCaptureMode mode;
    int thread; // that began it
    Stream* origin;
    std::vector<std::weak_ptr<Stream>> members;
    uint64_t id;
    bool invalid = false, ended = false;
};

// With the lock held, but the first.
hipError_t refuse_while_capturing(const char* function);
hipError_t refuse_null_stream_while_capturing(int device);
hipError_t add_to_capture(const StreamRef& stream, Work work);
hipError_t join_capture(const StreamRef& stream, const EventRef& event);
void invalidate_capture(const std::shared_ptr<Capture>& capture);
void leave_capture(const StreamRef& stream);
} // namespace hipemu
