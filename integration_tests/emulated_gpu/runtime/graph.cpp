#include "graph.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "call.h"

namespace hipemu {
namespace {
std::vector<std::shared_ptr<Capture>>& captures() // in progress
{
    static auto* all = new std::vector<std::shared_ptr<Capture>>;
    return *all;
}
// Cheap to ask at every call: most programs never capture.
std::atomic<int> in_progress{0};
uint64_t made = 0;

struct Exec
{
    std::shared_ptr<const Graph> graph;
};
std::unordered_map<void*, std::shared_ptr<Graph>>& graphs()
{
    static auto* all = new std::unordered_map<void*, std::shared_ptr<Graph>>;
    return *all;
}
std::unordered_map<void*, std::shared_ptr<Exec>>& execs()
{
    static auto* all = new std::unordered_map<void*, std::shared_ptr<Exec>>;
    return *all;
}

thread_local hipStreamCaptureMode thread_mode = hipStreamCaptureModeGlobal;

// Takes a capture out of all streams; its graph stays with whoever has it.
void end(const std::shared_ptr<Capture>& capture)
{
    capture->ended = true;
    for(auto& weak : capture->members)
        if(auto member = weak.lock())
        {
            member->capture = nullptr;
            member->frontier.clear();
        }
    auto& all = captures();
    all.erase(std::remove(all.begin(), all.end(), capture), all.end());
    in_progress = (int)all.size();
}

// Whether every node of the streams that joined comes before the end of the first.
bool all_joined(const Capture& capture)
{
    std::unordered_set<size_t> before;
    std::vector<size_t> open(capture.origin->frontier);
    while(!open.empty())
    {
        size_t node = open.back();
        open.pop_back();
        if(!before.insert(node).second) continue;
        auto& more = capture.graph->nodes[node].after;
        open.insert(open.end(), more.begin(), more.end());
    }
    for(auto& weak : capture.members)
        if(auto member = weak.lock())
            for(size_t node : member->frontier)
                if(!before.count(node)) return false;
    return true;
}

// Runs the nodes one by one; those without an order between them in one taken at random.
hipError_t run_graph(const Graph& graph, std::mt19937_64& random)
{
    std::vector<size_t> missing(graph.nodes.size()), ready;
    std::vector<std::vector<size_t>> followers(graph.nodes.size());
    for(size_t i = 0; i < graph.nodes.size(); i++)
    {
        missing[i] = graph.nodes[i].after.size();
        for(size_t before : graph.nodes[i].after) followers[before].push_back(i);
        if(!missing[i]) ready.push_back(i);
    }
    while(!ready.empty())
    {
        std::swap(ready[random() % ready.size()], ready.back());
        size_t node = ready.back();
        ready.pop_back();
        double start     = now_us();
        auto& work       = graph.nodes[node].work;
        hipError_t error = work.run(graph.nodes[node].device);
        trace_work(work.kind, work.name, 0, start, error);
        if(error != hipSuccess) return error;
        for(size_t next : followers[node])
            if(--missing[next] == 0) ready.push_back(next);
    }
    return hipSuccess;
}

// A handle that is no node, or one of a graph that was destroyed, is refused.
const Node* find_node(hipGraphNode_t handle)
{
    for(auto& [key, graph] : graphs())
        for(auto& node : graph->nodes)
            if((hipGraphNode_t)&node == handle) return &node;
    message(0, "%s: %p is no node, or its graph was destroyed", last_call(), (void*)handle);
    return nullptr;
}

// What `Params` a node of the type has; a node of another type has none.
template <class Params> hipError_t params_of(hipGraphNode_t handle, const Params*& out)
{
    auto* node = find_node(handle);
    if(!node || !node->work.params) return hipErrorInvalidValue;
    out = std::get_if<Params>(&node->work.params->of);
    return out ? hipSuccess : hipErrorInvalidValue;
}

// Gives the handles that fit into the caller's array; the rest of it becomes null.
template <class Handles> void give(const Handles& all, hipGraphNode_t* out, size_t room)
{
    for(size_t i = 0; i < room; i++) out[i] = i < all.size() ? (hipGraphNode_t)all[i] : nullptr;
}

hipError_t give_nodes(hipGraph_t handle, hipGraphNode_t* nodes, size_t* count, bool roots_only)
{
    if(!count) return hipErrorInvalidValue;
    Guard guard(lock());
    auto found = graphs().find(handle);
    if(found == graphs().end()) return hipErrorInvalidValue;
    std::vector<Node*> all;
    for(auto& node : found->second->nodes)
        if(!roots_only || node.after.empty()) all.push_back(&node);
    if(nodes) give(all, nodes, *count);
    *count = nodes ? std::min(*count, all.size()) : all.size();
    return hipSuccess;
}

hipError_t instantiate(hipGraphExec_t* out, hipGraph_t handle)
{
    if(!out) return hipErrorInvalidValue;
    Guard guard(lock());
    auto found = graphs().find(handle);
    if(found == graphs().end()) return hipErrorInvalidValue;
    auto exec = std::make_shared<Exec>();
    // A copy: the graph may be changed or destroyed.
    exec->graph         = std::make_shared<const Graph>(*found->second);
    execs()[exec.get()] = exec;
    counts().live_graph_execs++;
    *out = (hipGraphExec_t)exec.get();
    return hipSuccess;
}

hipError_t capture_info(hipStream_t handle, hipStreamCaptureStatus* status, unsigned long long* id)
{
    if(!status) return hipErrorInvalidValue;
    Guard guard(lock());
    *status = hipStreamCaptureStatusNone;
    if(handle == nullptr || handle == hipStreamLegacy) return hipSuccess;
    hipError_t error;
    auto stream = find_stream(handle, error);
    if(!stream) return error;
    if(!stream->capture) return hipSuccess;
    *status = stream->capture->invalid ? hipStreamCaptureStatusInvalidated : hipStreamCaptureStatusActive;
    if(id) *id = stream->capture->id;
    return hipSuccess;
}
} // namespace

void invalidate_capture(const std::shared_ptr<Capture>& capture) { capture->invalid = true; }

// Calls that wait, allocate or load. A capture forbids them to its own thread, and a global one to every thread
// that has not chosen another mode; a relaxed one to nobody.
hipError_t refuse_while_capturing(const char* function)
{
    if(in_progress.load(std::memory_order_relaxed) == 0 || thread_mode == hipStreamCaptureModeRelaxed) return hipSuccess;
    Guard guard(lock());
    bool refused = false;
    for(auto& capture : captures())
    {
        if(capture->mode == hipStreamCaptureModeRelaxed) continue;
        bool own = capture->thread == thread_id();
        if(own || (capture->mode == hipStreamCaptureModeGlobal && thread_mode == hipStreamCaptureModeGlobal))
        {
            invalidate_capture(capture);
            refused = true;
        }
    }
    if(refused) message(1, "%s is not allowed while a stream captures", function);
    return refused ? hipErrorStreamCaptureUnsupported : hipSuccess;
}

hipError_t refuse_null_stream_while_capturing(int device)
{
    bool refused = false;
    for(auto& capture : captures())
        for(auto& weak : capture->members)
        {
            auto member = weak.lock();
            if(member && member->device == device && member->blocking())
            {
                // The default stream would have to wait for a stream that runs nothing.
                invalidate_capture(capture);
                refused = true;
            }
        }
    return refused ? hipErrorStreamCaptureImplicit : hipSuccess;
}

hipError_t add_to_capture(const StreamRef& stream, Work work)
{
    auto& capture = *stream->capture;
    if(capture.invalid) return hipErrorStreamCaptureInvalidated;
    auto& nodes = capture.graph->nodes;
    nodes.push_back({std::move(work), stream->frontier, stream->device});
    stream->frontier = {nodes.size() - 1};
    return hipSuccess;
}

hipError_t join_capture(const StreamRef& stream, const EventRef& event)
{
    auto capture = event->capture;
    if(capture->ended) return hipErrorCapturedEvent;
    if(stream->null)
    {
        invalidate_capture(capture);
        return hipErrorStreamCaptureImplicit;
    }
    if(!stream->capture)
    {
        stream->capture  = capture;
        stream->frontier = event->nodes;
        capture->members.push_back(stream);
        return hipSuccess;
    }
    if(stream->capture != capture)
    {
        invalidate_capture(capture);
        invalidate_capture(stream->capture);
        return hipErrorStreamCaptureMerge;
    }
    for(size_t node : event->nodes)
        if(std::find(stream->frontier.begin(), stream->frontier.end(), node) == stream->frontier.end()) stream->frontier.push_back(node);
    return hipSuccess;
}

void leave_capture(const StreamRef& stream)
{
    auto capture = stream->capture;
    if(!capture) return;
    if(capture->origin == stream.get()) end(capture);
    else
    {
        invalidate_capture(capture);
        stream->capture = nullptr;
    }
}
} // namespace hipemu

using namespace hipemu;

API hipError_t hipStreamBeginCapture(hipStream_t handle, hipStreamCaptureMode mode)
{
    ENTER(Device)
        if(mode < hipStreamCaptureModeGlobal || mode > hipStreamCaptureModeRelaxed) return hipErrorInvalidValue;
        Guard guard(lock());
        if(handle == nullptr || handle == hipStreamLegacy) return hipErrorStreamCaptureUnsupported;
        hipError_t error;
        auto stream = find_stream(handle, error);
        if(!stream) return error;
        if(stream->capture) return hipErrorIllegalState;
        auto capture    = std::make_shared<Capture>();
        capture->mode   = mode;
        capture->thread = thread_id();
        capture->origin = stream.get();
        capture->id     = ++made;
        capture->members.push_back(stream);
        stream->capture = capture;
        stream->frontier.clear();
        captures().push_back(capture);
        in_progress = (int)captures().size();
        call.detail("stream=%llu mode=%d", (unsigned long long)stream->id, (int)mode);
        return hipSuccess;
    LEAVE
}

API hipError_t hipStreamEndCapture(hipStream_t handle, hipGraph_t* out)
{
    ENTER(Device | Release)
        if(!out) return hipErrorInvalidValue;
        *out = nullptr;
        Guard guard(lock());
        if(handle == nullptr || handle == hipStreamLegacy) return hipErrorIllegalState;
        hipError_t error;
        auto stream = find_stream(handle, error);
        if(!stream) return error;
        auto capture = stream->capture;
        if(!capture) return hipErrorIllegalState;
        if(capture->origin != stream.get()) return hipErrorStreamCaptureUnmatched;
        if(capture->mode != hipStreamCaptureModeRelaxed && capture->thread != thread_id()) return hipErrorStreamCaptureWrongThread;
        bool joined = all_joined(*capture);
        end(capture);
        if(capture->invalid) return hipErrorStreamCaptureInvalidated;
        if(!joined) return hipErrorStreamCaptureUnjoined;
        if(call.injected) return call.refused; // made to fail: the capture has ended, without a graph
        graphs()[capture->graph.get()] = capture->graph;
        counts().live_graphs++;
        *out = (hipGraph_t)capture->graph.get();
        call.detail("stream=%llu nodes=%zu", (unsigned long long)stream->id, capture->graph->nodes.size());
        return hipSuccess;
    LEAVE
}

API hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* status)
{
    ENTER(Device) return capture_info(stream, status, nullptr); LEAVE
}
API hipError_t hipStreamGetCaptureInfo(hipStream_t stream, hipStreamCaptureStatus* status, unsigned long long* id)
{
    ENTER(Device) return capture_info(stream, status, id); LEAVE
}

API hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode)
{
    ENTER(Plain)
        if(!mode || *mode < hipStreamCaptureModeGlobal || *mode > hipStreamCaptureModeRelaxed) return hipErrorInvalidValue;
        std::swap(*mode, thread_mode);
        return hipSuccess;
    LEAVE
}

API hipError_t hipGraphCreate(hipGraph_t* out, unsigned)
{
    ENTER(Device)
        if(!out) return hipErrorInvalidValue;
        Guard guard(lock());
        auto graph            = std::make_shared<Graph>();
        graphs()[graph.get()] = graph;
        counts().live_graphs++;
        *out = (hipGraph_t)graph.get();
        return hipSuccess;
    LEAVE
}
API hipError_t hipGraphDestroy(hipGraph_t graph)
{
    ENTER(Device | Release)
        Guard guard(lock());
        if(!graphs().erase(graph)) return hipErrorInvalidValue;
        counts().live_graphs--;
        return hipSuccess;
    LEAVE
}
API hipError_t hipGraphGetNodes(hipGraph_t handle, hipGraphNode_t* nodes, size_t* count)
{
    ENTER(Device) return give_nodes(handle, nodes, count, false); LEAVE
}
API hipError_t hipGraphGetRootNodes(hipGraph_t handle, hipGraphNode_t* nodes, size_t* count)
{
    ENTER(Device) return give_nodes(handle, nodes, count, true); LEAVE
}
API hipError_t hipGraphGetEdges(hipGraph_t handle, hipGraphNode_t* from, hipGraphNode_t* to, size_t* count)
{
    ENTER(Device)
        if(!count || !from != !to) return hipErrorInvalidValue;
        Guard guard(lock());
        auto found = graphs().find(handle);
        if(found == graphs().end()) return hipErrorInvalidValue;
        auto& nodes = found->second->nodes;
        std::vector<Node*> starts, ends;
        for(size_t start = 0; start < nodes.size(); start++)
            for(auto& end : nodes)
                if(std::find(end.after.begin(), end.after.end(), start) != end.after.end())
                {
                    starts.push_back(&nodes[start]);
                    ends.push_back(&end);
                }
        if(from)
        {
            give(starts, from, *count);
            give(ends, to, *count);
        }
        *count = from ? std::min(*count, starts.size()) : starts.size();
        return hipSuccess;
    LEAVE
}
API hipError_t hipGraphNodeGetType(hipGraphNode_t handle, hipGraphNodeType* type)
{
    ENTER(Device)
        if(!type) return hipErrorInvalidValue;
        Guard guard(lock());
        auto* node = find_node(handle);
        if(!node) return hipErrorInvalidValue;
        *type = node->work.node;
        return hipSuccess;
    LEAVE
}
// The addresses in `params` are good as long as the graph.
API hipError_t hipGraphKernelNodeGetParams(hipGraphNode_t node, hipKernelNodeParams* params)
{
    ENTER(Device)
        if(!params) return hipErrorInvalidValue;
        Guard guard(lock());
        const KernelParams* kernel = nullptr;
        if(auto error = params_of(node, kernel)) return error;
        *params = kernel->params;
        return hipSuccess;
    LEAVE
}
API hipError_t hipGraphMemsetNodeGetParams(hipGraphNode_t node, hipMemsetParams* params)
{
    ENTER(Device)
        if(!params) return hipErrorInvalidValue;
        Guard guard(lock());
        const hipMemsetParams* fill = nullptr;
        if(auto error = params_of(node, fill)) return error;
        *params = *fill;
        return hipSuccess;
    LEAVE
}
API hipError_t hipGraphMemcpyNodeGetParams(hipGraphNode_t node, hipMemcpy3DParms* params)
{
    ENTER(Device)
        if(!params) return hipErrorInvalidValue;
        Guard guard(lock());
        const hipMemcpy3DParms* copy = nullptr;
        if(auto error = params_of(node, copy)) return error;
        *params = *copy;
        return hipSuccess;
    LEAVE
}

API hipError_t hipGraphInstantiate(hipGraphExec_t* out, hipGraph_t graph, hipGraphNode_t*, char*, size_t)
{
    ENTER(Device) return instantiate(out, graph); LEAVE
}
API hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* out, hipGraph_t graph, unsigned long long)
{
    ENTER(Device) return instantiate(out, graph); LEAVE
}
API hipError_t hipGraphExecDestroy(hipGraphExec_t exec)
{
    ENTER(Device | Release)
        Guard guard(lock());
        if(!execs().erase(exec)) return hipErrorInvalidValue;
        counts().live_graph_execs--;
        return hipSuccess;
    LEAVE
}
API hipError_t hipGraphLaunch(hipGraphExec_t handle, hipStream_t stream_handle)
{
    ENTER(Device)
        Guard guard(lock());
        auto found = execs().find(handle);
        if(found == execs().end()) return hipErrorInvalidValue;
        hipError_t error;
        auto stream = find_stream(stream_handle, error);
        if(!stream) return error;
        // A generator of its own: the work runs without the lock.
        auto random = std::make_shared<std::mt19937_64>(stream->random());
        auto exec   = found->second;
        call.detail("stream=%llu nodes=%zu", (unsigned long long)stream->id, exec->graph->nodes.size());
        return submit(stream, {"graph", "", hipGraphNodeTypeGraph, [exec, random](int) { return run_graph(*exec->graph, *random); }});
    LEAVE
}
API hipError_t hipGraphUpload(hipGraphExec_t exec, hipStream_t)
{
    ENTER(Device)
        Guard guard(lock());
        return execs().count(exec) ? hipSuccess : hipErrorInvalidValue;
    LEAVE
}
