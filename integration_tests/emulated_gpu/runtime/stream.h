// Streams: work done in order, later, by a thread of the stream; events; the order between streams.
#pragma once
#include <deque>
#include <functional>
#include <random>
#include <vector>

#include "common.h"

namespace hipemu {
struct Capture;
struct Graph;
struct NodeParams;

// A piece of work, queued on a stream or kept in a graph.
struct Work
{
    const char* kind; // for the trace: "kernel", "copy", "fill", "host", "event", "wait", "graph"
    std::string name;
    hipGraphNodeType node;
    // Runs without the lock held. `device` is the one of the stream it runs on.
    std::function<hipError_t(int device)> run;
    std::shared_ptr<const NodeParams> params = nullptr; // what a graph's node tells of it
};

struct Stream;
using StreamRef = std::shared_ptr<Stream>;

// Everything up to a piece of work of a stream.
struct Point
{
    StreamRef stream;
    uint64_t number = 0;
};

struct Stream : std::enable_shared_from_this<Stream>
{
    int device;
    unsigned flags;
    int priority;
    bool null; // the device's default stream
    uint64_t id;

    struct Queued
    {
        Work work;
        std::vector<Point> after;
    };
    std::deque<Queued> queue;
    uint64_t submitted = 0, done = 0;
    bool worker = false, closing = false;
    hipError_t failure = hipSuccess; // of work since the last synchronize
    std::mt19937_64 random;

    std::shared_ptr<Capture> capture;
    std::vector<size_t> frontier; // nodes that the next one captured comes after

    bool blocking() const { return !null && !(flags & hipStreamNonBlocking); }
    bool idle() const { return submitted == done; }
};

// When an event was recorded.
struct Record
{
    Point point;
    double time_us  = 0;
    bool happened   = false;
    hipError_t error = hipSuccess;
};
struct Event
{
    unsigned flags;
    int device;
    std::shared_ptr<Record> record; // of the latest hipEventRecord
    std::shared_ptr<Capture> capture;
    std::vector<size_t> nodes; // in the capture
};
using EventRef = std::shared_ptr<Event>;

// All of these are called with the lock held, unless they take it themselves.

StreamRef new_stream(int device, unsigned flags, int priority);
void close_stream(const StreamRef& stream);
// The stream of a handle, null ones too; nothing for a handle that is none. `error` then says why.
StreamRef find_stream(hipStream_t handle, hipError_t& error);
StreamRef null_stream(int device);
bool is_stream(hipStream_t handle);

EventRef find_event(hipEvent_t handle);
hipEvent_t new_event(unsigned flags);
bool drop_event(hipEvent_t handle);

// Queues the work, or adds it to the graph when the stream captures.
hipError_t submit(const StreamRef& stream, Work work, std::vector<Point> after = {});
// Queues it even so.
void enqueue(const StreamRef& stream, Work work, std::vector<Point> after = {});

// Waits until the stream has done all that was submitted; gives and forgets what failed.
hipError_t wait_stream(Guard& guard, const StreamRef& stream);
hipError_t wait_point(Guard& guard, const Point& point);
hipError_t wait_device(Guard& guard, int device);
bool reached(const Point& point);

hipError_t record_event(const EventRef& event, const StreamRef& stream);
hipError_t wait_event(const StreamRef& stream, const EventRef& event, unsigned flags);

// An error that stays, as after a bad address on real hardware.
hipError_t sticky_error(int device);
void set_sticky_error(int device, hipError_t error);

int current_device();
} // namespace hipemu
