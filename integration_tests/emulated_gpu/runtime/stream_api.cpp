// Streams and events.
#include "call.h"
#include "graph.h"
#include "stream.h"

using namespace hipemu;

namespace {
hipError_t create_stream(Call& call, hipStream_t* out, unsigned flags, int priority)
{
    if(!out || (flags & ~(unsigned)hipStreamNonBlocking)) return hipErrorInvalidValue;
    Guard guard(lock());
    auto stream = new_stream(current_device(), flags, priority);
    counts().live_streams++;
    *out = (hipStream_t)stream.get();
    call.detail("stream=%llu flags=%u", (unsigned long long)stream->id, flags);
    return hipSuccess;
}

hipError_t create_event(hipEvent_t* out, unsigned flags)
{
    if(!out) return hipErrorInvalidValue;
    Guard guard(lock());
    *out = new_event(flags);
    return hipSuccess;
}

hipError_t record(Call& call, hipEvent_t event_handle, hipStream_t handle)
{
    Guard guard(lock());
    auto event = find_event(event_handle);
    if(!event) return hipErrorInvalidHandle;
    hipError_t error;
    auto stream = find_stream(handle, error);
    if(!stream) return error;
    call.detail("event=%p stream=%llu", (void*)event_handle, (unsigned long long)stream->id);
    return record_event(event, stream);
}

// A stream that captures runs nothing: asking what it has done makes no sense, and ends the capture.
hipError_t refuse_capturing(const StreamRef& stream)
{
    if(!stream->capture) return hipSuccess;
    invalidate_capture(stream->capture);
    return hipErrorStreamCaptureUnsupported;
}
hipError_t refuse_captured(const EventRef& event)
{
    if(!event->capture) return hipSuccess;
    if(!event->capture->ended) invalidate_capture(event->capture);
    return hipErrorCapturedEvent;
}

hipError_t call_host(hipStream_t handle, std::function<void()> run)
{
    Guard guard(lock());
    hipError_t error;
    auto stream = find_stream(handle, error);
    if(!stream) return error;
    return submit(stream, {"host", "", hipGraphNodeTypeHost, [run](int) {
                               run();
                               return hipSuccess;
                           }});
}
} // namespace

API hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags)
{
    ENTER(Device) return create_stream(call, stream, flags, 0); LEAVE
}
API hipError_t hipStreamCreate(hipStream_t* stream)
{
    ENTER(Device) return create_stream(call, stream, hipStreamDefault, 0); LEAVE
}
API hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned flags, int priority)
{
    ENTER(Device) return create_stream(call, stream, flags, priority); LEAVE
}
API hipError_t hipStreamDestroy(hipStream_t handle)
{
    ENTER(Device | Release)
        if(handle == nullptr || handle == hipStreamLegacy || handle == hipStreamPerThread) return hipErrorInvalidHandle;
        Guard guard(lock());
        hipError_t error;
        auto stream = find_stream(handle, error);
        if(!stream) return error;
        call.detail("stream=%llu", (unsigned long long)stream->id);
        leave_capture(stream);
        // What was submitted is still done.
        close_stream(stream);
        counts().live_streams--;
        return hipSuccess;
    LEAVE
}
API hipError_t hipStreamSynchronize(hipStream_t handle)
{
    ENTER(Device)
        Guard guard(lock());
        hipError_t error;
        auto stream = find_stream(handle, error);
        if(!stream) return error;
        call.detail("stream=%llu", (unsigned long long)stream->id);
        if(auto refused = refuse_capturing(stream)) return refused;
        return wait_stream(guard, stream);
    LEAVE
}
API hipError_t hipStreamQuery(hipStream_t handle)
{
    ENTER(Device)
        Guard guard(lock());
        hipError_t error;
        auto stream = find_stream(handle, error);
        if(!stream) return error;
        if(auto refused = refuse_capturing(stream)) return refused;
        if(auto stuck = sticky_error(stream->device)) return stuck;
        if(!stream->idle()) return hipErrorNotReady;
        return stream->failure;
    LEAVE
}
API hipError_t hipStreamGetFlags(hipStream_t handle, unsigned* flags)
{
    ENTER(Device)
        if(!flags) return hipErrorInvalidValue;
        Guard guard(lock());
        hipError_t error;
        auto stream = find_stream(handle, error);
        if(!stream) return error;
        *flags = stream->flags;
        return hipSuccess;
    LEAVE
}
API hipError_t hipStreamGetPriority(hipStream_t handle, int* priority)
{
    ENTER(Device)
        if(!priority) return hipErrorInvalidValue;
        Guard guard(lock());
        hipError_t error;
        auto stream = find_stream(handle, error);
        if(!stream) return error;
        *priority = stream->priority;
        return hipSuccess;
    LEAVE
}
API hipError_t hipStreamGetDevice(hipStream_t handle, hipDevice_t* device)
{
    ENTER(Device)
        if(!device) return hipErrorInvalidValue;
        Guard guard(lock());
        if(handle == nullptr || handle == hipStreamLegacy)
        {
            *device = current_device();
            return hipSuccess;
        }
        hipError_t error;
        auto stream = find_stream(handle, error);
        if(!stream) return error;
        *device = stream->device;
        return hipSuccess;
    LEAVE
}
API int hipGetStreamDeviceId(hipStream_t handle)
{
    Guard guard(lock());
    return is_stream(handle) ? ((Stream*)handle)->device : current_device();
}
API hipError_t hipStreamWaitEvent(hipStream_t handle, hipEvent_t event_handle, unsigned flags)
{
    ENTER(Device)
        Guard guard(lock());
        auto event = find_event(event_handle);
        if(!event) return hipErrorInvalidHandle;
        hipError_t error;
        auto stream = find_stream(handle, error);
        if(!stream) return error;
        call.detail("stream=%llu event=%p", (unsigned long long)stream->id, (void*)event_handle);
        return wait_event(stream, event, flags);
    LEAVE
}
API hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t function, void* data)
{
    ENTER(Device)
        if(!function) return hipErrorInvalidValue;
        return call_host(stream, [=] { function(data); });
    LEAVE
}
API hipError_t hipStreamAddCallback(hipStream_t stream, hipStreamCallback_t callback, void* data, unsigned flags)
{
    ENTER(Device | Unsafe)
        if(!callback || flags) return hipErrorInvalidValue;
        return call_host(stream, [=] { callback(stream, hipSuccess, data); });
    LEAVE
}

API hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags)
{
    ENTER(Device) return create_event(event, flags); LEAVE
}
API hipError_t hipEventCreate(hipEvent_t* event)
{
    ENTER(Device) return create_event(event, hipEventDefault); LEAVE
}
API hipError_t hipEventDestroy(hipEvent_t event)
{
    ENTER(Device | Release)
        Guard guard(lock());
        return drop_event(event) ? hipSuccess : hipErrorInvalidHandle;
    LEAVE
}
API hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream)
{
    ENTER(Device) return record(call, event, stream); LEAVE
}
API hipError_t hipEventRecordWithFlags(hipEvent_t event, hipStream_t stream, unsigned)
{
    ENTER(Device) return record(call, event, stream); LEAVE
}
API hipError_t hipEventSynchronize(hipEvent_t handle)
{
    ENTER(Device)
        Guard guard(lock());
        auto event = find_event(handle);
        if(!event) return hipErrorInvalidHandle;
        if(auto refused = refuse_captured(event)) return refused;
        auto record = event->record;
        if(!record) return hipSuccess;
        if(auto error = wait_point(guard, record->point)) return error;
        auto stuck = sticky_error(event->device);
        return stuck != hipSuccess ? stuck : record->error;
    LEAVE
}
API hipError_t hipEventQuery(hipEvent_t handle)
{
    ENTER(Device)
        Guard guard(lock());
        auto event = find_event(handle);
        if(!event) return hipErrorInvalidHandle;
        if(auto refused = refuse_captured(event)) return refused;
        if(!event->record) return hipSuccess;
        if(auto stuck = sticky_error(event->device)) return stuck;
        return reached(event->record->point) ? event->record->error : hipErrorNotReady;
    LEAVE
}
API hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t first, hipEvent_t second)
{
    ENTER(Device)
        if(!milliseconds) return hipErrorInvalidValue;
        Guard guard(lock());
        auto a = find_event(first), b = find_event(second);
        if(!a || !b || !a->record || !b->record || a->device != b->device || ((a->flags | b->flags) & hipEventDisableTiming)) return hipErrorInvalidHandle;
        if(!a->record->happened || !b->record->happened) return hipErrorNotReady;
        *milliseconds = (float)((b->record->time_us - a->record->time_us) * 1e-3);
        // Programs divide by it.
        if(*milliseconds == 0) *milliseconds = 1e-4f;
        return hipSuccess;
    LEAVE
}
