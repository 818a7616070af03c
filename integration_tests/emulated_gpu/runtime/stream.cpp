#include "stream.h"

#include <algorithm>
#include <map>
#include <thread>
#include <unistd.h>
#include <unordered_map>
#include <utility>

#include "call.h"
#include "graph.h"

namespace hipemu {
namespace {
struct State
{
    std::unordered_map<void*, StreamRef> streams; // by handle
    std::unordered_map<void*, EventRef> events;
    std::vector<StreamRef> unfinished; // those with a worker, closed ones too
    std::map<int, StreamRef> null_streams;
    std::map<int, hipError_t> sticky;
    uint64_t made = 0;
};
State& state()
{
    static auto* all = new State;
    return *all;
}
thread_local int device_of_thread = 0;
// What hipStreamPerThread stands for, by device.
thread_local std::map<int, std::weak_ptr<Stream>> streams_of_thread;

bool all_reached(const std::vector<Point>& points)
{
    return std::all_of(points.begin(), points.end(), [](const Point& p) { return p.stream->done >= p.number; });
}

void work_loop(StreamRef stream)
{
    Guard guard(lock());
    for(;;)
    {
        changed().wait(guard, [&] {
            if(stream->queue.empty()) return stream->closing;
            return !switches().held && all_reached(stream->queue.front().after);
        });
        if(stream->queue.empty()) break;
        Stream::Queued next = std::move(stream->queue.front());
        stream->queue.pop_front();
        uint64_t limit = switches().delay_us, pause = limit ? stream->random() % (limit + 1) : 0;
        guard.unlock();
        if(pause) usleep(pause);
        double start      = now_us();
        hipError_t result = next.work.run(stream->device);
        trace_work(next.work.kind, next.work.name, stream->id, start, result);
        // What the work holds may be released only by taking the lock.
        next.work.run = nullptr;
        next.after.clear();
        guard.lock();
        if(result != hipSuccess && stream->failure == hipSuccess) stream->failure = result;
        stream->done++;
        changed().notify_all();
    }
    auto& list = state().unfinished;
    list.erase(std::find(list.begin(), list.end(), stream));
    guard.unlock();
}

hipError_t take_failure(const StreamRef& stream)
{
    hipError_t error = std::exchange(stream->failure, hipSuccess);
    hipError_t stuck = sticky_error(stream->device);
    return stuck != hipSuccess ? stuck : error;
}

bool would_never_end(const Point& point)
{
    if(!switches().held || reached(point)) return false;
    counts().violations++;
    message(0, "%s waits for a stream that is held: it would never return", last_call());
    return true;
}
} // namespace

int current_device() { return device_of_thread; }
void set_current_device(int device) { device_of_thread = device; }

StreamRef new_stream(int device, unsigned flags, int priority)
{
    auto stream      = std::make_shared<Stream>();
    stream->device   = device;
    stream->flags    = flags;
    stream->priority = priority;
    stream->null     = false;
    stream->id       = ++state().made;
    stream->random.seed(switches().seed * 1000003 + stream->id);
    state().streams[stream.get()] = stream;
    return stream;
}

void close_stream(const StreamRef& stream)
{
    stream->closing = true;
    state().streams.erase(stream.get());
    changed().notify_all();
}

StreamRef null_stream(int device)
{
    auto& stream = state().null_streams[device];
    if(!stream)
    {
        stream = new_stream(device, 0, 0);
        state().streams.erase(stream.get());
        stream->null = true;
    }
    return stream;
}

bool is_stream(hipStream_t handle) { return state().streams.count(handle) != 0; }

StreamRef find_stream(hipStream_t handle, hipError_t& error)
{
    error = hipSuccess;
    if(handle == nullptr || handle == hipStreamLegacy)
    {
        error = refuse_null_stream_while_capturing(current_device());
        return error == hipSuccess ? null_stream(current_device()) : nullptr;
    }
    if(handle == hipStreamPerThread)
    {
        auto& known = streams_of_thread[current_device()];
        auto stream = known.lock();
        if(!stream)
        {
            stream = new_stream(current_device(), 0, 0);
            known  = stream;
        }
        return stream;
    }
    auto found = state().streams.find(handle);
    if(found == state().streams.end())
    {
        message(0, "%s: %p is no stream, or no more", last_call(), (void*)handle);
        error = hipErrorInvalidHandle;
        return nullptr;
    }
    return found->second;
}

EventRef find_event(hipEvent_t handle)
{
    auto found = state().events.find(handle);
    if(found != state().events.end()) return found->second;
    message(0, "%s: %p is no event, or no more", last_call(), (void*)handle);
    return nullptr;
}
hipEvent_t new_event(unsigned flags)
{
    auto event    = std::make_shared<Event>();
    event->flags  = flags;
    event->device = current_device();
    state().events[event.get()] = event;
    counts().live_events++;
    return (hipEvent_t)event.get();
}
bool drop_event(hipEvent_t handle)
{
    if(!state().events.erase(handle)) return false;
    counts().live_events--;
    return true;
}

void enqueue(const StreamRef& stream, Work work, std::vector<Point> after)
{
    // The default stream waits for all others that don't opt out, and they for it.
    auto add = [&](const StreamRef& other) {
        if(other != stream && !other->idle()) after.push_back({other, other->submitted});
    };
    if(stream->null)
    {
        for(auto& other : state().unfinished)
            if(other->device == stream->device && other->blocking()) add(other);
    }
    else if(stream->blocking()) add(null_stream(stream->device));
    stream->queue.push_back({std::move(work), std::move(after)});
    stream->submitted++;
    if(!stream->worker)
    {
        stream->worker = true;
        state().unfinished.push_back(stream);
        std::thread(work_loop, stream).detach();
    }
    changed().notify_all();
}

hipError_t submit(const StreamRef& stream, Work work, std::vector<Point> after)
{
    if(stream->capture) return add_to_capture(stream, std::move(work));
    if(auto error = sticky_error(stream->device)) return error;
    enqueue(stream, std::move(work), std::move(after));
    return hipSuccess;
}

bool reached(const Point& point) { return !point.stream || point.stream->done >= point.number; }

hipError_t wait_point(Guard& guard, const Point& point)
{
    counts().waits++;
    if(would_never_end(point)) return hipErrorLaunchTimeOut;
    changed().wait(guard, [&] { return reached(point); });
    return hipSuccess;
}

hipError_t wait_stream(Guard& guard, const StreamRef& stream)
{
    // The default stream is done when what it waits for is.
    Point end{stream, stream->submitted};
    if(stream->null)
    {
        std::vector<StreamRef> others;
        for(auto& other : state().unfinished)
            if(other->device == stream->device && other->blocking()) others.push_back(other);
        for(auto& other : others)
            if(auto error = wait_point(guard, {other, other->submitted})) return error;
    }
    if(auto error = wait_point(guard, end)) return error;
    return take_failure(stream);
}

hipError_t wait_device(Guard& guard, int device)
{
    std::vector<StreamRef> all;
    for(auto& stream : state().unfinished)
        if(stream->device == device) all.push_back(stream);
    hipError_t first = hipSuccess;
    for(auto& stream : all)
    {
        if(auto error = wait_point(guard, {stream, stream->submitted})) return error;
        hipError_t error = take_failure(stream);
        if(first == hipSuccess) first = error;
    }
    return first != hipSuccess ? first : sticky_error(device);
}

hipError_t record_event(const EventRef& event, const StreamRef& stream)
{
    if(event->device != stream->device) return hipErrorInvalidHandle;
    if(stream->capture)
    {
        event->capture = stream->capture;
        event->nodes   = stream->frontier;
        event->record  = nullptr;
        return hipSuccess;
    }
    if(auto error = sticky_error(stream->device)) return error;
    auto record    = std::make_shared<Record>();
    event->capture = nullptr;
    event->record  = record;
    // The stream itself, not a reference that counts: its queue holds the work.
    Stream* owner = stream.get();
    enqueue(stream, {"event", "", hipGraphNodeTypeEventRecord, [record, owner](int) {
                         Guard guard(lock());
                         record->time_us  = now_us();
                         record->happened = true;
                         record->error    = owner->failure;
                         return hipSuccess;
                     }});
    record->point = {stream, stream->submitted};
    return hipSuccess;
}

hipError_t wait_event(const StreamRef& stream, const EventRef& event, unsigned)
{
    if(event->capture) return join_capture(stream, event);
    if(!event->record) return hipSuccess; // never recorded: nothing to wait for
    if(stream->capture)
    {
        // Work outside the graph can't come before work inside it.
        invalidate_capture(stream->capture);
        return hipErrorStreamCaptureIsolation;
    }
    enqueue(stream, {"wait", "", hipGraphNodeTypeWaitEvent, [](int) { return hipSuccess; }}, {event->record->point});
    return hipSuccess;
}

hipError_t sticky_error(int device)
{
    auto found = state().sticky.find(device);
    return found == state().sticky.end() ? hipSuccess : found->second;
}
void set_sticky_error(int device, hipError_t error)
{
    if(error == hipSuccess) state().sticky.erase(device);
    else state().sticky.emplace(device, error);
}
} // namespace hipemu

using namespace hipemu;

API void hipemu_hold_streams(int hold)
{
    Guard guard(lock());
    switches().held = hold != 0;
    changed().notify_all();
}
API void hipemu_set_delay(uint64_t max_us, uint64_t seed)
{
    Guard guard(lock());
    switches().delay_us = max_us;
    switches().seed     = seed;
}
API void hipemu_clear_errors(void)
{
    Guard guard(lock());
    state().sticky.clear();
    for(auto& stream : state().unfinished) stream->failure = hipSuccess;
}
API void hipemu_skip_launches(int skip) { switches().skip = skip != 0; }
API void hipemu_watch_launches(hipemu_launch_watcher watcher) { switches().watcher = watcher; }
API void hipemu_set_memory_limit(uint64_t total, uint64_t single)
{
    switches().memory_limit = total;
    switches().single_limit = single;
}
