// What happens at each exported function: counting, failure on demand, refusal while capturing, the trace.
#pragma once
#include "common.h"

namespace hipemu {

// One exported function.
struct Site
{
    const char* name;
    bool counted; // "*" means it too
    std::atomic<uint64_t> count{0};
    Site* next;
    Site(const char* name, bool counted);
};

enum Flags : unsigned
{
    Plain   = 0,
    Device  = 1, // needs a device
    Unsafe  = 2, // not allowed while a stream captures
    Release = 4, // releases something: does so even when it is made to fail
    Quiet   = 8, // can't be made to fail, and doesn't change the last error
};

// One call in progress.
class Call
{
public:
    Call(Site& site, unsigned flags);
    // Adds to the trace's line.
    __attribute__((format(printf, 2, 3))) void detail(const char* format, ...);
    hipError_t finish(hipError_t result);

    hipError_t refused = hipSuccess; // what the call gives instead of being made
    bool injected      = false;      // because it was asked to fail

private:
    Site& site_;
    unsigned flags_;
    double start_ = 0;
    std::string detail_;
};

template <class Body> hipError_t enter(Site& site, unsigned flags, Body&& body)
{
    Call call(site, flags);
    if(call.refused == hipSuccess) return call.finish(body(call));
    if(call.injected && (flags & Release)) (void)body(call);
    return call.finish(call.refused);
}

// Whether the n-th execution of a kernel was asked to fail; the error.
hipError_t injected_kernel_failure();

hipError_t& last_error();
const char* last_call(); // of this thread, for messages

// The trace.
bool tracing();
// A line about work that a stream did.
void trace_work(const char* kind, const std::string& name, uint64_t stream, double start_us, hipError_t result);

#define ENTER(flags)                                    \
    static hipemu::Site site_(__func__, !((flags)&Quiet)); \
    return hipemu::enter(site_, flags, [&](hipemu::Call& call) -> hipError_t { (void)call;
#define LEAVE });

} // namespace hipemu
