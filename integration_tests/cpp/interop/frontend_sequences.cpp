// Sends libhipdnn_backend.so what hipDNN's C++ frontend sends it for each operation: descriptors, in its order of
// calls, with its attributes and element types. Graphs that come through are planned, run and compared with a
// reference; the first call that is refused is told. Then what the frontend asks around a graph.
//   frontend_sequences [--device] [--only TEXT]
#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "backend.hpp"
#include "engine_generated.h"
#include "graphs.hpp"
#include "memory.hpp"
#include "report.hpp"
using D = hipdnnBackendDescriptor_t;
#define A(x) HIPDNN_ATTR_##x
#define TY(x) HIPDNN_TYPE_##x
static hipdnnHandle_t handle;
static const Memory* memory;
static const Options* options;
struct Refused
{
    std::string what;
};
static void must(hipdnnStatus_t s, const std::string& what)
{
    if(s) throw Refused{what + ": status " + std::to_string(s) + " " + last_error()};
}

struct Descriptor
{
    D d = nullptr;
    std::string what;
    Descriptor(int type, std::string w) : what(std::move(w))
    {
        must(hipdnnBackendCreateDescriptor(hipdnnBackendDescriptorType_t(type), &d),
             what + ": CreateDescriptor(" + std::to_string(type) + ")");
    }
    Descriptor(D raw, std::string w) : d(raw), what(std::move(w)) {}
    Descriptor(const Descriptor&) = delete;
    ~Descriptor()
    {
        if(d) hipdnnBackendDestroyDescriptor(d);
    }
    void set(int a, int t, int64_t n, const void* p)
    {
        must(hipdnnBackendSetAttribute(d, hipdnnBackendAttributeName_t(a), hipdnnBackendAttributeType_t(t), n, p),
             what + ": set " + std::to_string(a) + " (type " + std::to_string(t) + ")");
    }
    void i64(int a, int64_t v) { set(a, TY(INT64), 1, &v); }
    void i32(int a, int32_t v) { set(a, TY(INT32), 1, &v); }
    void boolean(int a, bool v) { set(a, TY(BOOLEAN), 1, &v); }
    void real(int a, float v) { set(a, TY(FLOAT), 1, &v); }
    void i64s(int a, const Dims& v) { set(a, TY(INT64), int64_t(v.size()), v.data()); }
    void i32s(int a, const std::vector<int32_t>& v) { set(a, TY(INT32), int64_t(v.size()), v.data()); }
    void choice(int a, int type, int v) { set(a, type, 1, &v); }
    void type(int a, int v = HIPDNN_DATA_FLOAT) { choice(a, TY(DATA_TYPE), v); }
    void text(int a, const std::string& s) { set(a, TY(CHAR), int64_t(s.size()), s.data()); }
    void ref(int a, const Descriptor& o) { set(a, TY(BACKEND_DESCRIPTOR), 1, &o.d); }
    void done() { must(hipdnnBackendFinalize(d), what + ": Finalize"); }
};
using P = std::shared_ptr<Descriptor>;

struct Graph
{
    std::map<int64_t, P> tensors;
    std::vector<P> ops;
    std::vector<Buffer> buffers;
    int64_t out = 0;
    Floats expected;
    double tolerance = 1e-4;
    P tensor(int64_t uid, const Dims& d, int type = HIPDNN_DATA_FLOAT, bool is_virtual = false,
             const float* value = nullptr)
    {
        auto t = std::make_shared<Descriptor>(int(HIPDNN_BACKEND_TENSOR_DESCRIPTOR), "tensor " + std::to_string(uid));
        Dims s = packed(d);
        t->i64(A(TENSOR_UNIQUE_ID), uid);
        t->text(A(TENSOR_NAME_EXT), "t" + std::to_string(uid));
        t->type(A(TENSOR_DATA_TYPE), type);
        t->i64s(A(TENSOR_DIMENSIONS), d);
        t->i64s(A(TENSOR_STRIDES), s);
        t->boolean(A(TENSOR_IS_VIRTUAL), is_virtual);
        if(value) t->set(A(TENSOR_VALUE_EXT), TY(CHAR), 4, value);
        t->done();
        return tensors[uid] = t;
    }
    Floats input(int64_t uid, const Dims& d, unsigned seed, float lo = -1, float hi = 1)
    {
        tensor(uid, d);
        auto f = values(count(d), seed, lo, hi);
        auto* q = reinterpret_cast<uint8_t*>(f.data());
        buffers.push_back({uid, {q, q + f.size() * 4}});
        return f;
    }
    void output(int64_t uid, const Dims& d, Floats e = {}, double tol = 1e-4, int type = HIPDNN_DATA_FLOAT,
                int width = 4)
    {
        tensor(uid, d, type);
        buffers.push_back({uid, std::vector<uint8_t>(count(d) * width, 0xcd)});
        if(!e.empty())
        {
            out = uid;
            expected = e;
            tolerance = tol;
        }
    }
    Descriptor& op(int type, const char* name)
    {
        auto o = std::make_shared<Descriptor>(type, name);
        ops.push_back(o);
        return *o;
    }
    Descriptor& at(int64_t uid) { return *tensors.at(uid); }
};

static void graph_attributes(Descriptor& g, const Graph& b, bool override_shapes = false)
{
    std::vector<D> ops;
    for(auto& o : b.ops) ops.push_back(o->d);
    g.set(A(OPERATIONGRAPH_OPS), TY(BACKEND_DESCRIPTOR), int64_t(ops.size()), ops.data());
    g.type(A(OPERATIONGRAPH_COMPUTE_DATA_TYPE_EXT));
    g.type(A(OPERATIONGRAPH_INTERMEDIATE_DATA_TYPE_EXT));
    g.type(A(OPERATIONGRAPH_IO_DATA_TYPE_EXT));
    g.boolean(A(OPERATIONGRAPH_IS_OVERRIDE_SHAPE_ENABLED_EXT), override_shapes);
    g.text(A(OPERATIONGRAPH_NAME_EXT), "graph");
    g.set(A(OPERATIONGRAPH_HANDLE), TY(HANDLE), 1, &handle);
    g.done();
}
static std::vector<P> configurations(const Descriptor& g)
{
    Descriptor h(HIPDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristics");
    h.ref(A(ENGINEHEUR_OPERATION_GRAPH), g);
    h.choice(A(ENGINEHEUR_MODE), TY(HEUR_MODE), 0);
    int64_t policies[] = {id_of("SelectionHeuristic::Config"), id_of("SelectionHeuristic::StaticOrdering")};
    h.set(A(ENGINEHEUR_POLICY_ORDER_EXT), TY(INT64), 2, policies);
    h.done();
    int64_t n = 0;
    must(hipdnnBackendGetAttribute(h.d, A(ENGINEHEUR_RESULTS), TY(BACKEND_DESCRIPTOR), 0, &n, nullptr),
         "heuristics: count");
    if(!n) throw Refused{"no engine takes the graph: " + last_error()};
    std::vector<P> all;
    std::vector<D> raw;
    for(int64_t i = 0; i < n; i++)
    {
        all.push_back(std::make_shared<Descriptor>(int(HIPDNN_BACKEND_ENGINECFG_DESCRIPTOR), "configuration"));
        raw.push_back(all.back()->d);
    }
    must(hipdnnBackendGetAttribute(h.d, A(ENGINEHEUR_RESULTS), TY(BACKEND_DESCRIPTOR), n, &n, raw.data()),
         "heuristics: results");
    for(auto& c : all) c->done();
    return all;
}
static std::string engine_name(const Descriptor& config)
{
    Descriptor e(HIPDNN_BACKEND_ENGINE_DESCRIPTOR, "engine");
    int64_t n = 0;
    must(hipdnnBackendGetAttribute(config.d, A(ENGINECFG_ENGINE), TY(BACKEND_DESCRIPTOR), 1, &n, &e.d),
         "configuration: engine");
    int64_t id = 0;
    must(hipdnnBackendGetAttribute(e.d, A(ENGINE_GLOBAL_INDEX), TY(INT64), 1, &n, &id), "engine: index");
    char name[128] = {};
    size_t size = sizeof name;
    if(hipdnnGetEngineNameById_ext(handle, id, name, &size)) return std::to_string(id);
    return name;
}
static P plan_of(const Descriptor& config)
{
    auto p = std::make_shared<Descriptor>(int(HIPDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), "plan");
    p->set(A(EXECUTION_PLAN_HANDLE), TY(HANDLE), 1, &handle);
    p->ref(A(EXECUTION_PLAN_ENGINE_CONFIG), config);
    p->done();
    return p;
}
static hipdnnStatus_t execute(const Descriptor& plan, Graph& b, double* worst, int misalign = 0)
{
    int64_t n = 0, w = 0;
    must(hipdnnBackendGetAttribute(plan.d, A(EXECUTION_PLAN_WORKSPACE_SIZE), TY(INT64), 1, &n, &w),
         "plan: workspace size");
    std::vector<void*> base;
    std::vector<void*> ptr;
    std::vector<int64_t> uid;
    for(auto& u : b.buffers)
    {
        char* m = static_cast<char*>(memory->get(u.bytes.size() + 64));
        base.push_back(m);
        m += misalign;
        memory->write(m, u.bytes.data(), u.bytes.size());
        ptr.push_back(m);
        uid.push_back(u.uid);
    }
    void* work = w ? memory->get(w) : nullptr;
    Descriptor v(HIPDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "variant pack");
    v.i64s(A(VARIANT_PACK_UNIQUE_IDS), uid);
    v.set(A(VARIANT_PACK_DATA_POINTERS), TY(VOID_PTR), int64_t(ptr.size()), ptr.data());
    v.set(A(VARIANT_PACK_WORKSPACE), TY(VOID_PTR), 1, &work);
    v.done();
    auto s = hipdnnBackendExecute(handle, plan.d, v.d);
    if(!s && worst)
        for(size_t i = 0; i < b.buffers.size(); i++)
            if(b.buffers[i].uid == b.out)
            {
                std::vector<uint8_t> got(b.buffers[i].bytes.size());
                memory->read(got.data(), ptr[i], got.size());
                bool wide = got.size() >= b.expected.size() * 4;
                *worst = 0;
                for(size_t e = 0; e < b.expected.size(); e++)
                {
                    float f;
                    if(wide) std::memcpy(&f, &got[e * 4], 4);
                    else f = got[e];
                    double o = std::fabs(double(f) - b.expected[e]);
                    if(!(o <= *worst)) *worst = o;
                }
            }
    for(auto* m : base) memory->put(m);
    if(work) memory->put(work);
    return s;
}

static void graph_case(const std::string& name, const std::function<void(Graph&)>& make)
{
    if(!options->takes(name)) return;
    try
    {
        Graph b;
        make(b);
        for(auto& o : b.ops)
        {
            o->text(A(OPERATION_NAME_EXT), "node");
            o->done();
        }
        Descriptor g(HIPDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "graph");
        graph_attributes(g, b);
        size_t bytes = 0;
        must(hipdnnBackendGetSerializedBinaryGraph_ext(g.d, 0, &bytes, nullptr), "serialize");
        for(auto& c : configurations(g))
        {
            auto where = name + " on " + engine_name(*c);
            auto p = plan_of(*c);
            double worst = 0;
            auto s = execute(*p, b, &worst);
            if(s) report::fail(where, "Execute: status " + std::to_string(s) + " " + last_error());
            else
                report::check(where, b.expected.empty() || worst <= b.tolerance,
                              "largest difference " + std::to_string(worst));
        }
    }
    catch(Refused& r)
    {
        report::refused(name, r.what);
    }
}

// What every convolution here has: 3x3 windows on images padded by one, and its type of computation.
static void geometry(Descriptor& o)
{
    Dims one{1, 1};
    o.i64s(A(CONVOLUTION_PRE_PADDINGS), one);
    o.i64s(A(CONVOLUTION_POST_PADDINGS), one);
    o.i64s(A(CONVOLUTION_FILTER_STRIDES), one);
    o.i64s(A(CONVOLUTION_DILATIONS), one);
    o.choice(A(CONVOLUTION_CONV_MODE), TY(CONVOLUTION_MODE), HIPDNN_CROSS_CORRELATION);
    o.type(A(CONVOLUTION_COMP_TYPE));
}
// What every pooling here has: windows of 2x2, two apart, without padding.
static void windows(Descriptor& o, int mode, int padding)
{
    Dims two{2, 2}, zero{0, 0};
    o.i64s(A(RESAMPLE_PRE_PADDINGS), zero);
    o.i64s(A(RESAMPLE_POST_PADDINGS), zero);
    o.i64s(A(RESAMPLE_STRIDES), two);
    o.i64s(A(RESAMPLE_WINDOW_DIMS), two);
    o.choice(A(RESAMPLE_MODE), TY(RESAMPLE_MODE), mode);
    o.choice(A(RESAMPLE_PADDING_MODE), TY(PADDING_MODE), padding);
    o.type(A(RESAMPLE_COMP_TYPE));
}
static void conv(Graph& g, int64_t x, int64_t w, int64_t y)
{
    auto& o = g.op(HIPDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, "conv_fwd");
    o.ref(A(OPERATION_CONVOLUTION_FORWARD_X), g.at(x));
    o.ref(A(OPERATION_CONVOLUTION_FORWARD_W), g.at(w));
    o.ref(A(OPERATION_CONVOLUTION_FORWARD_Y), g.at(y));
    geometry(o);
}
static Descriptor& pointwise(Graph& g, int mode, int64_t x, int64_t b, int64_t y)
{
    auto& o = g.op(HIPDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "pointwise");
    o.ref(A(OPERATION_POINTWISE_IN_0_EXT), g.at(x));
    if(b) o.ref(A(OPERATION_POINTWISE_IN_1_EXT), g.at(b));
    o.ref(A(OPERATION_POINTWISE_OUT_0_EXT), g.at(y));
    o.choice(A(POINTWISE_MODE), TY(POINTWISE_MODE), mode);
    o.type(A(POINTWISE_MATH_PREC));
    return o;
}
static const Dims XD{1, 3, 8, 8}, WD{4, 3, 3, 3}, YD{1, 4, 8, 8};
static void conv_graph(Graph& g)
{
    auto x = g.input(1, XD, 1), w = g.input(2, WD, 2);
    g.output(3, YD, ::conv(x, w, XD, WD, 1, 1));
    conv(g, 1, 2, 3);
}

// An answer to a question around a graph: success and a good answer, or not supported, with a text.
static void answer(const std::string& name, hipdnnStatus_t status, bool good = true, const std::string& got = "")
{
    const auto text = status ? last_error() : std::string();
    if(status == HIPDNN_STATUS_NOT_SUPPORTED && !text.empty()) return report::refused(name, text);
    report::check(name, status == HIPDNN_STATUS_SUCCESS && good,
                  status ? "status " + std::to_string(status) + " " + text : "got " + got);
}
// A question that hipDNN does not answer either: not supported, with a text.
static void unanswered(const std::string& name, hipdnnStatus_t status)
{
    report::check(name, status == HIPDNN_STATUS_NOT_SUPPORTED && !last_error().empty(), std::to_string(status));
}
static hipdnnStatus_t get(D d, int a, int t, int64_t wanted, int64_t* count, void* into)
{
    return hipdnnBackendGetAttribute(d, hipdnnBackendAttributeName_t(a), hipdnnBackendAttributeType_t(t), wanted, count,
                                     into);
}
static hipdnnStatus_t put(D d, int a, int t, int64_t count, const void* from)
{
    return hipdnnBackendSetAttribute(d, hipdnnBackendAttributeName_t(a), hipdnnBackendAttributeType_t(t), count, from);
}

static void operations();
static void engines();
static void around_a_graph();
static void of_heuristics(const Descriptor& graph);
static void of_engine(const Descriptor& graph, const Descriptor& configuration);
// The time of an execution, as the frontend's autotuning takes it.
static float timed(Graph& b, const Descriptor& plan)
{
    Descriptor p(HIPDNN_BACKEND_PROFILING_CONTROL_EXT, "profiling control");
    p.set(A(PROFILING_HANDLE_EXT), TY(HANDLE), 1, &handle);
    p.boolean(A(PROFILING_DEVICE_SYNC_EXT), true);
    p.boolean(A(PROFILING_START_EXT), true);
    must(execute(plan, b, nullptr), "Execute");
    p.boolean(A(PROFILING_STOP_EXT), true);
    p.done();
    float ms = -1;
    int64_t count = 0;
    auto s = get(p.d, A(PROFILING_ELAPSED_MS_EXT), TY(FLOAT), 1, &count, &ms);
    answer("profiling control: an execution's time", s, ms > 0 && ms < 60e3, std::to_string(ms) + " ms");
    return ms;
}
static int64_t engine_of(const Descriptor& configuration)
{
    Descriptor e(HIPDNN_BACKEND_ENGINE_DESCRIPTOR, "engine");
    int64_t count = 0, id = 0;
    must(get(configuration.d, A(ENGINECFG_ENGINE), TY(BACKEND_DESCRIPTOR), 1, &count, &e.d), "configuration: ENGINE");
    must(get(e.d, A(ENGINE_GLOBAL_INDEX), TY(INT64), 1, &count, &id), "engine: GLOBAL_INDEX");
    return id;
}
// As the frontend tunes: every engine's plan is run once and timed, the order is written, and later heuristics follow it.
static void autotuned(Graph& b, const Descriptor& graph)
{
    std::vector<std::pair<float, int64_t>> measured;
    for(auto& c : configurations(graph))
    {
        auto plan = plan_of(*c);
        must(execute(*plan, b, nullptr), "Execute");
        measured.push_back({timed(b, *plan), engine_of(*c)});
    }
    std::sort(measured.begin(), measured.end());
    std::vector<int64_t> order;
    for(auto& [ms, id] : measured) order.push_back(id);
    // First the other way round: what was measured earlier is replaced.
    std::vector<int64_t> reversed(order.rbegin(), order.rend());
    for(auto& wanted : {reversed, order})
    {
        int outcome = -1;
        auto s = hipdnnBackendWriteEngineRankingResults_ext(handle, graph.d, wanted.data(), wanted.size(), &outcome);
        answer("WriteEngineRankingResults_ext", s, outcome == 0 || outcome == 4, "outcome " + std::to_string(outcome));
        std::vector<int64_t> got;
        for(auto& c : configurations(graph)) got.push_back(engine_of(*c));
        // One engine is in any order.
        if(wanted.size() > 1) report::check("engines are ranked as was measured", got == wanted, "another order");
    }
}
// A plan from what holds the graph too, as the frontend keeps them.
static void stored_and_read(Graph& b, const Descriptor& graph, const Descriptor& plan)
{
    size_t size = 0;
    must(hipdnnBackendGetSerializedBinaryGraphAndPlan_ext(graph.d, plan.d, 0, &size, nullptr), "size");
    std::vector<uint8_t> bytes(size);
    must(hipdnnBackendGetSerializedBinaryGraphAndPlan_ext(graph.d, plan.d, size, &size, bytes.data()), "bytes");
    int contents = 0;
    auto s = hipdnnBackendGetSerializedBinaryContents_ext(bytes.data(), size, &contents);
    report::check("a graph with a plan has both", !s && contents == 3, std::to_string(contents));
    D raw = nullptr;
    s = hipdnnBackendCreateAndDeserializeExecutionPlan_ext(handle, &raw, bytes.data(), size);
    answer("CreateAndDeserializeExecutionPlan_ext", s);
    if(s) return;
    Descriptor again(raw, "plan");
    double worst = 0;
    s = execute(again, b, &worst);
    report::check("a plan that was stored", !s && worst <= b.tolerance, "largest difference " + std::to_string(worst));
}

static void of_plan(Graph& b, const Descriptor& graph, const Descriptor& configuration);
static void written_and_read(const Descriptor& graph);
static void deserialized(const Case& c);
static void boolean_on_the_wire();
static void override_shapes();

int main(int count, char** words)
{
    Options given(count, words);
    options = &given;
    Memory where(given.device);
    memory = &where;
    if(hipdnnCreate(&handle) || hipdnnSetStream(handle, where.stream()))
    {
        report::fail("hipdnnCreate", last_error());
        return 1;
    }
    operations();
    if(given.only.empty())
    {
        engines();
        try
        {
            around_a_graph();
        }
        catch(Refused& r)
        {
            report::fail("what is asked around a graph", r.what);
        }
        for(auto& c : cases()) deserialized(c);
        try
        {
            boolean_on_the_wire();
            override_shapes();
        }
        catch(Refused& r)
        {
            report::fail("graphs of few nodes", r.what);
        }
    }
    if(hipdnnDestroy(handle)) report::fail("hipdnnDestroy", last_error());
    return report::failures() != 0;
}

static void operations()
{
    graph_case("conv_fwd", conv_graph);
    graph_case("conv_fwd + bias + relu",
               [](Graph& g)
               {
                   auto x = g.input(1, XD, 1), w = g.input(2, WD, 2), b = g.input(3, {1, 4, 1, 1}, 3);
                   auto y = ::conv(x, w, XD, WD, 1, 1);
                   for(size_t i = 0; i < y.size(); i++) y[i] = std::fmax(0.f, y[i] + b[i / 64 % 4]);
                   g.tensor(10, YD, HIPDNN_DATA_FLOAT, true);
                   g.tensor(11, YD, HIPDNN_DATA_FLOAT, true);
                   g.output(4, YD, y);
                   conv(g, 1, 2, 10);
                   pointwise(g, HIPDNN_POINTWISE_ADD, 10, 3, 11);
                   pointwise(g, HIPDNN_POINTWISE_RELU_FWD, 11, 0, 4);
               });
    graph_case("conv_bwd data",
               [](Graph& g)
               {
                   auto dy = g.input(1, YD, 1), w = g.input(2, WD, 2);
                   Floats t(w.size());
                   for(int k = 0; k < 4; k++)
                       for(int c = 0; c < 3; c++)
                           for(int r = 0; r < 9; r++) t[(c * 4 + k) * 9 + 8 - r] = w[(k * 3 + c) * 9 + r];
                   g.output(3, XD, ::conv(dy, t, YD, {3, 4, 3, 3}, 1, 1));
                   auto& o = g.op(HIPDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, "dgrad");
                   o.ref(A(OPERATION_CONVOLUTION_BWD_DATA_DY), g.at(1));
                   o.ref(A(OPERATION_CONVOLUTION_BWD_DATA_W), g.at(2));
                   o.ref(A(OPERATION_CONVOLUTION_BWD_DATA_DX), g.at(3));
                   geometry(o);
               });
    graph_case("conv_bwd filter",
               [](Graph& g)
               {
                   auto x = g.input(1, XD, 1), dy = g.input(2, YD, 2);
                   g.output(3, WD, filter_gradient(x, dy));
                   auto& o = g.op(HIPDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, "wgrad");
                   o.ref(A(OPERATION_CONVOLUTION_BWD_FILTER_X), g.at(1));
                   o.ref(A(OPERATION_CONVOLUTION_BWD_FILTER_DY), g.at(2));
                   o.ref(A(OPERATION_CONVOLUTION_BWD_FILTER_DW), g.at(3));
                   geometry(o);
               });
    graph_case("pointwise ADD",
               [](Graph& g)
               {
                   Dims d{2, 3, 4, 4};
                   auto x = g.input(1, d, 1), y = g.input(2, d, 2);
                   Floats e(x);
                   for(size_t i = 0; i < e.size(); i++) e[i] += y[i];
                   g.output(3, d, e);
                   pointwise(g, HIPDNN_POINTWISE_ADD, 1, 2, 3);
               });
    graph_case("pointwise RELU, slope and clips",
               [](Graph& g)
               {
                   Dims d{2, 3, 4, 4};
                   auto x = g.input(1, d, 1);
                   Floats e(x);
                   for(auto& f : e) f = f > 0 ? std::fmin(f, 0.5f) : 0.1f * f;
                   g.output(3, d, e);
                   auto& o = pointwise(g, HIPDNN_POINTWISE_RELU_FWD, 1, 0, 3);
                   o.real(A(POINTWISE_RELU_LOWER_CLIP), 0);
                   o.real(A(POINTWISE_RELU_UPPER_CLIP), 0.5);
                   o.real(A(POINTWISE_RELU_LOWER_CLIP_SLOPE), 0.1f);
               });
    graph_case("pointwise CMP_GT into BOOLEAN",
               [](Graph& g)
               {
                   Dims d{4, 16};
                   auto x = g.input(1, d, 1), y = g.input(2, d, 2);
                   Floats e(64);
                   for(int i = 0; i < 64; i++) e[i] = x[i] > y[i];
                   g.output(3, d, e, 0, HIPDNN_DATA_BOOLEAN, 1);
                   pointwise(g, HIPDNN_POINTWISE_CMP_GT, 1, 2, 3);
               });
    graph_case("matmul",
               [](Graph& g)
               {
                   auto a = g.input(1, {2, 3, 5}, 1), b = g.input(2, {2, 5, 4}, 2);
                   Floats e(24);
                   for(int q = 0; q < 2; q++)
                       for(int i = 0; i < 3; i++)
                           for(int j = 0; j < 4; j++)
                           {
                               double s = 0;
                               for(int k = 0; k < 5; k++) s += double(a[(q * 3 + i) * 5 + k]) * b[(q * 5 + k) * 4 + j];
                               e[(q * 3 + i) * 4 + j] = float(s);
                           }
                   g.output(3, {2, 3, 4}, e);
                   auto& o = g.op(HIPDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "matmul");
                   o.ref(A(OPERATION_MATMUL_ADESC), g.at(1));
                   o.ref(A(OPERATION_MATMUL_BDESC), g.at(2));
                   o.ref(A(OPERATION_MATMUL_CDESC), g.at(3));
                   o.type(A(MATMUL_COMP_TYPE));
               });
    graph_case("batchnorm inference",
               [](Graph& g)
               {
                   Dims d{2, 3, 4, 4}, p{1, 3, 1, 1};
                   auto x = g.input(1, d, 1), mean = g.input(2, p, 2), iv = g.input(3, p, 3, 0.5, 2),
                        s = g.input(4, p, 4), b = g.input(5, p, 5);
                   Floats y(x.size());
                   for(size_t i = 0; i < y.size(); i++)
                   {
                       int c = i / 16 % 3;
                       y[i] = (x[i] - mean[c]) * iv[c] * s[c] + b[c];
                   }
                   g.output(6, d, y);
                   auto& o = g.op(HIPDNN_BACKEND_OPERATION_BATCHNORM_INFERENCE_DESCRIPTOR_EXT, "batchnorm inference");
                   int a[] = {A(OPERATION_BATCHNORM_INFERENCE_X_EXT),
                              A(OPERATION_BATCHNORM_INFERENCE_MEAN_EXT),
                              A(OPERATION_BATCHNORM_INFERENCE_INV_VARIANCE_EXT),
                              A(OPERATION_BATCHNORM_INFERENCE_SCALE_EXT),
                              A(OPERATION_BATCHNORM_INFERENCE_BIAS_EXT),
                              A(OPERATION_BATCHNORM_INFERENCE_Y_EXT)};
                   for(int i = 0; i < 6; i++) o.ref(a[i], g.at(i + 1));
                   o.type(A(BATCHNORM_INF_COMP_TYPE_EXT));
               });
    graph_case("reduction ADD",
               [](Graph& g)
               {
                   Dims d{2, 3, 4, 4};
                   auto x = g.input(1, d, 1);
                   Floats e(6);
                   for(size_t i = 0; i < x.size(); i++) e[i / 16] += x[i];
                   g.output(2, {2, 3, 1, 1}, e);
                   auto& o = g.op(HIPDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "reduction");
                   o.ref(A(OPERATION_REDUCTION_XDESC), g.at(1));
                   o.ref(A(OPERATION_REDUCTION_YDESC), g.at(2));
                   o.choice(A(REDUCTION_OPERATOR), TY(REDUCTION_OPERATOR_TYPE), HIPDNN_REDUCE_TENSOR_ADD);
                   o.boolean(A(REDUCTION_IS_DETERMINISTIC), false);
                   o.type(A(REDUCTION_COMP_TYPE));
               });
    graph_case("resample fwd MAXPOOL",
               [](Graph& g)
               {
                   auto x = g.input(1, XD, 1);
                   g.output(2, {1, 3, 4, 4}, max_pool(x, XD));
                   auto& o = g.op(HIPDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR, "resample");
                   o.ref(A(OPERATION_RESAMPLE_FWD_XDESC), g.at(1));
                   o.ref(A(OPERATION_RESAMPLE_FWD_YDESC), g.at(2));
                   windows(o, HIPDNN_RESAMPLE_MAXPOOL, HIPDNN_PADDING_NEG_INF_PAD);
               });
    graph_case("resample bwd AVGPOOL",
               [](Graph& g)
               {
                   auto dy = g.input(1, {1, 3, 4, 4}, 1);
                   Floats dx(192);
                   for(int c = 0; c < 3; c++)
                       for(int h = 0; h < 8; h++)
                           for(int w = 0; w < 8; w++) dx[(c * 8 + h) * 8 + w] = dy[(c * 4 + h / 2) * 4 + w / 2] / 4;
                   g.output(2, XD, dx);
                   auto& o = g.op(HIPDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR, "resample bwd");
                   o.ref(A(OPERATION_RESAMPLE_BWD_DYDESC), g.at(1));
                   o.ref(A(OPERATION_RESAMPLE_BWD_DXDESC), g.at(2));
                   windows(o, HIPDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING, HIPDNN_PADDING_ZERO_PAD);
               });
    graph_case("rmsnorm",
               [](Graph& g)
               {
                   float eps = 1e-5f;
                   auto x = g.input(1, {4, 16}, 1), s = g.input(2, {1, 16}, 2);
                   g.tensor(3, {1}, HIPDNN_DATA_FLOAT, false, &eps);
                   g.output(4, {4, 16}, normalized(x, s, nullptr, eps));
                   auto& o = g.op(HIPDNN_BACKEND_OPERATION_RMSNORM_DESCRIPTOR_EXT, "rmsnorm");
                   o.ref(A(OPERATION_RMSNORM_X_EXT), g.at(1));
                   o.ref(A(OPERATION_RMSNORM_SCALE_EXT), g.at(2));
                   o.ref(A(OPERATION_RMSNORM_EPSILON_EXT), g.at(3));
                   o.ref(A(OPERATION_RMSNORM_Y_EXT), g.at(4));
                   o.choice(A(OPERATION_RMSNORM_FWD_PHASE_EXT), TY(NORM_FWD_PHASE), HIPDNN_NORM_FWD_INFERENCE);
                   o.type(A(RMSNORM_COMP_TYPE_EXT));
               });
    graph_case("layernorm",
               [](Graph& g)
               {
                   float eps = 1e-5f;
                   auto x = g.input(1, {4, 16}, 1), s = g.input(2, {1, 16}, 2), b = g.input(3, {1, 16}, 3);
                   g.tensor(4, {1}, HIPDNN_DATA_FLOAT, false, &eps);
                   g.output(5, {4, 16}, normalized(x, s, &b, eps));
                   auto& o = g.op(HIPDNN_BACKEND_OPERATION_LAYERNORM_DESCRIPTOR_EXT, "layernorm");
                   for(int i = 0; i < 5; i++) o.ref(A(OPERATION_LAYERNORM_X_EXT) + i, g.at(i + 1));
                   o.choice(A(OPERATION_LAYERNORM_FWD_PHASE_EXT), TY(NORM_FWD_PHASE), HIPDNN_NORM_FWD_INFERENCE);
                   o.i64(A(OPERATION_LAYERNORM_NORMALIZED_DIM_COUNT_EXT), 1);
                   o.type(A(LAYERNORM_COMP_TYPE_EXT));
               });
    const Dims heads{1, 2, 8, 16}, rows{1, 2, 8, 1};
    // What both directions of attention send whether or not it is asked for.
    auto masks = [](Descriptor& o, int first)
    {
        for(int i = 0; i < 4; i++) o.boolean(first + i, false);
    };
    graph_case("sdpa fwd",
               [&](Graph& g)
               {
                   auto q = g.input(1, heads, 1), k = g.input(2, heads, 2), v = g.input(3, heads, 3);
                   g.output(5, rows);
                   g.output(4, heads, attention(q, k, v, {}, heads).o);
                   auto& o = g.op(HIPDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, "sdpa");
                   for(int i = 0; i < 4; i++) o.ref(A(OPERATION_SDPA_FWD_QDESC) + i, g.at(i + 1));
                   o.ref(A(OPERATION_SDPA_FWD_STATSDESC), g.at(5));
                   o.boolean(A(SDPA_FWD_GENERATE_STATS_EXT), true);
                   masks(o, A(SDPA_FWD_ALIBI_MASK_EXT));
                   o.real(A(SDPA_FWD_ATTN_SCALE_VALUE_EXT), 0.25f);
                   o.choice(A(SDPA_FWD_DIAGONAL_ALIGNMENT_EXT), TY(DIAGONAL_ALIGNMENT_EXT),
                            HIPDNN_DIAGONAL_ALIGNMENT_TOP_LEFT_EXT);
                   o.choice(A(SDPA_FWD_IMPLEMENTATION_EXT), TY(ATTENTION_IMPLEMENTATION_EXT),
                            HIPDNN_ATTENTION_IMPLEMENTATION_AUTO_EXT);
                   o.type(A(SDPA_FWD_COMP_TYPE_EXT));
               });
    graph_case("sdpa bwd",
               [&](Graph& g)
               {
                   auto q = g.input(1, heads, 1), k = g.input(2, heads, 2), v = g.input(3, heads, 3),
                        gradient = g.input(5, heads, 5);
                   auto a = attention(q, k, v, gradient, heads);
                   auto given = [&](int64_t uid, const Dims& d, const Floats& f)
                   {
                       g.tensor(uid, d);
                       auto* p = reinterpret_cast<const uint8_t*>(f.data());
                       g.buffers.push_back({uid, {p, p + f.size() * 4}});
                   };
                   given(4, heads, a.o);
                   given(6, rows, a.stats);
                   g.output(7, heads);
                   g.output(9, heads);
                   g.output(8, heads, a.dk);
                   auto& o = g.op(HIPDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR_EXT, "sdpa bwd");
                   for(int i = 0; i < 9; i++) o.ref(A(OPERATION_SDPA_BWD_Q_EXT) + i, g.at(i + 1));
                   masks(o, A(SDPA_BWD_ALIBI_MASK_EXT));
                   o.real(A(SDPA_BWD_ATTN_SCALE_VALUE_EXT), 0.25f);
                   o.choice(A(SDPA_BWD_DIAGONAL_ALIGNMENT_EXT), TY(DIAGONAL_ALIGNMENT_EXT),
                            HIPDNN_DIAGONAL_ALIGNMENT_TOP_LEFT_EXT);
                   o.type(A(SDPA_BWD_COMP_TYPE_EXT));
               });
    graph_case("block scale quantize and dequantize",
               [](Graph& g)
               {
                   Dims d{2, 64}, blocks{2, 2};
                   auto x = g.input(1, d, 1);
                   g.tensor(10, d, HIPDNN_DATA_FP8_E4M3, true);
                   g.tensor(11, blocks, HIPDNN_DATA_FP8_E8M0, true);
                   // An element has three bits behind the point, and subnormal ones beside a maximum of one are small.
                   g.output(2, d, x, 0.0626);
                   auto& q = g.op(HIPDNN_BACKEND_OPERATION_BLOCK_SCALE_QUANTIZE_DESCRIPTOR, "quantize");
                   q.ref(A(OPERATION_BLOCK_SCALE_QUANTIZE_XDESC), g.at(1));
                   q.ref(A(OPERATION_BLOCK_SCALE_QUANTIZE_YDESC), g.at(10));
                   q.ref(A(OPERATION_BLOCK_SCALE_QUANTIZE_SCALE_DESC), g.at(11));
                   q.i32(A(OPERATION_BLOCK_SCALE_QUANTIZE_BLOCK_SIZE), 32);
                   q.i64(A(OPERATION_BLOCK_SCALE_QUANTIZE_AXIS_EXT), 1);
                   q.boolean(A(OPERATION_BLOCK_SCALE_QUANTIZE_TRANSPOSE_EXT), false);
                   q.type(A(OPERATION_BLOCK_SCALE_QUANTIZE_MATH_PREC));
                   auto& o = g.op(HIPDNN_BACKEND_OPERATION_BLOCK_SCALE_DEQUANTIZE_DESCRIPTOR, "dequantize");
                   o.ref(A(OPERATION_BLOCK_SCALE_DEQUANTIZE_XDESC), g.at(10));
                   o.ref(A(OPERATION_BLOCK_SCALE_DEQUANTIZE_SCALE_DESC), g.at(11));
                   o.ref(A(OPERATION_BLOCK_SCALE_DEQUANTIZE_YDESC), g.at(2));
                   o.i32s(A(OPERATION_BLOCK_SCALE_DEQUANTIZE_BLOCK_SIZE), {1, 32});
                   o.boolean(A(OPERATION_BLOCK_SCALE_DEQUANTIZE_NEG_SCALE), false);
                   o.type(A(OPERATION_BLOCK_SCALE_DEQUANTIZE_MATH_PREC));
               });
    graph_case("mixture-of-experts product",
               [](Graph& g)
               {
                   g.input(1, {1, 6, 4}, 1);
                   g.input(2, {2, 4, 5}, 2);
                   g.tensor(3, {2, 1, 1}, HIPDNN_DATA_INT32);
                   g.buffers.push_back({3, std::vector<uint8_t>(8)});
                   g.output(4, {1, 6, 5});
                   auto& o = g.op(HIPDNN_BACKEND_OPERATION_MOE_GROUPED_MATMUL_DESCRIPTOR, "product");
                   o.ref(A(OPERATION_MOE_GROUPED_MATMUL_TOKEN_DESC), g.at(1));
                   o.ref(A(OPERATION_MOE_GROUPED_MATMUL_WEIGHT_DESC), g.at(2));
                   o.ref(A(OPERATION_MOE_GROUPED_MATMUL_FIRST_TOKEN_OFFSET_DESC), g.at(3));
                   o.ref(A(OPERATION_MOE_GROUPED_MATMUL_OUTPUT_DESC), g.at(4));
                   o.choice(A(OPERATION_MOE_GROUPED_MATMUL_MODE), TY(MOE_GROUPED_MATMUL_MODE),
                            HIPDNN_MOE_GROUPED_MATMUL_MODE_NONE);
                   o.type(A(OPERATION_MOE_GROUPED_MATMUL_MATH_PREC));
               });
    const std::pair<int, const char*> others[] = {{20, "batchnorm backward"}, {21, "batchnorm inference, variance"},
                                                  {27, "batchnorm"},          {29, "custom op"},
                                                  {33, "rmsnorm backward"},   {34, "profiling control"},
                                                  {35, "layernorm backward"},
                                                  {38, "mixture-of-experts gradient"}};
    for(auto [number, what] : others)
    {
        const std::string name = std::string("descriptor: ") + what;
        if(!options->takes(name)) continue;
        D d = nullptr;
        answer(name, hipdnnBackendCreateDescriptor(hipdnnBackendDescriptorType_t(number), &d));
        if(d) hipdnnBackendDestroyDescriptor(d);
    }
}

static void engines()
{
    size_t count = 0;
    auto s = hipdnnGetEngineCount_ext(handle, &count);
    answer("the number of engines", s, count > 0, std::to_string(count));
    std::vector<std::string> names;
    for(size_t i = 0; i < count; i++)
    {
        int64_t id = 0;
        char text[4][256] = {};
        size_t sizes[4] = {256, 256, 256, 256};
        s = hipdnnGetEngineInfo_ext(handle, i, &id, text[0], &sizes[0], text[1], &sizes[1], text[2], &sizes[2], text[3],
                                    &sizes[3]);
        answer("engine " + std::to_string(i), s, id == id_of(text[0]), "an id that is not the name's");
        names.push_back(text[0]);
    }
    report::check("engines are in alphabetical order", std::is_sorted(names.begin(), names.end()),
                  names.empty() ? "none" : names[0] + " first");
}

static void around_a_graph()
{
    Graph b;
    conv_graph(b);
    for(auto& o : b.ops) o->done();
    Descriptor g(HIPDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "graph");
    graph_attributes(g, b);
    of_heuristics(g);
    auto all = configurations(g);
    of_engine(g, *all[0]);
    of_plan(b, g, *all[0]);
    written_and_read(g);
}

static void of_heuristics(const Descriptor& graph)
{
    Descriptor h(HIPDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristics");
    h.ref(A(ENGINEHEUR_OPERATION_GRAPH), graph);
    h.choice(A(ENGINEHEUR_MODE), TY(HEUR_MODE), HIPDNN_HEUR_MODE_FALLBACK);
    bool first = true;
    answer("heuristics: FIND_FIRST_EXT", put(h.d, A(ENGINEHEUR_FIND_FIRST_EXT), TY(BOOLEAN), 1, &first));
    answer("heuristics: RANKING_METRIC_EXT", put(h.d, A(ENGINEHEUR_RANKING_METRIC_EXT), TY(CHAR), 6, "tflops"));
    answer("heuristics: Finalize", hipdnnBackendFinalize(h.d));
}

struct Bytes
{
    const void* data = nullptr;
    size_t size = 0;
};

// A prediction that is not available, but one: of this kind, in the metric that was asked for.
static void of_prediction(const std::string& name, D d, int attribute, wire::PredictionKind kind, const char* metric)
{
    Bytes bytes;
    int64_t count = 0;
    auto s = get(d, attribute, TY(FLATBUFFER_DATA_STRUCT_EXT), 1, &count, &bytes);
    if(s) return answer(name, s);
    flatbuffers::Verifier check(static_cast<const uint8_t*>(bytes.data), bytes.size);
    if(!check.VerifyBuffer<wire::EnginePrediction>()) return report::check(name, false, "it does not verify");
    auto* prediction = flatbuffers::GetRoot<wire::EnginePrediction>(bytes.data);
    bool right = prediction->kind() == kind && prediction->status() == wire::PredictionStatus::UNAVAILABLE
                 && prediction->metric() && prediction->metric()->str() == metric && prediction->reason();
    answer(name, s, count == 1 && right, "another prediction");
}

static void of_engine(const Descriptor& graph, const Descriptor& configuration)
{
    Descriptor e(HIPDNN_BACKEND_ENGINE_DESCRIPTOR, "engine");
    int64_t count = 0;
    must(get(configuration.d, A(ENGINECFG_ENGINE), TY(BACKEND_DESCRIPTOR), 1, &count, &e.d), "configuration: ENGINE");
    const std::tuple<const char*, int, int, bool> lists[] = {
        {"engine: NAME_EXT", A(ENGINE_NAME_EXT), TY(CHAR), true},
        {"engine: KNOB_INFO", A(ENGINE_KNOB_INFO), TY(BACKEND_DESCRIPTOR), true},
        {"engine: BEHAVIOR_NOTE", A(ENGINE_BEHAVIOR_NOTE), TY(BEHAVIOR_NOTE), false}};
    for(auto& [name, attribute, type, some] : lists)
    {
        count = 0;
        auto s = get(e.d, attribute, type, 0, &count, nullptr);
        answer(name, s, count > 0 || !some, "no element");
    }
    Descriptor fresh(HIPDNN_BACKEND_ENGINE_DESCRIPTOR, "engine");
    fresh.ref(A(ENGINE_OPERATION_GRAPH), graph);
    const int64_t evaluate = 1;
    answer("engine: PREDICTION_EVALUATE_EXT", put(fresh.d, A(ENGINE_PREDICTION_EVALUATE_EXT), TY(INT64), 1, &evaluate));
    answer("engine: PREDICTION_METRIC_EXT", put(fresh.d, A(ENGINE_PREDICTION_METRIC_EXT), TY(CHAR), 4, "time"));
    of_prediction("engine: PREDICTION_EXT", e.d, A(ENGINE_PREDICTION_EXT), wire::PredictionKind::ENGINE, "tflops");
    Bytes page;
    unanswered("engine: NUMERICAL_NOTE", get(e.d, A(ENGINE_NUMERICAL_NOTE), TY(NUMERICAL_NOTE), 0, &count, nullptr));
    // Engines that don't enumerate configurations have no page, not an empty one.
    unanswered("engine: CANDIDATES_EXT",
               get(e.d, A(ENGINE_CANDIDATES_EXT), TY(FLATBUFFER_DATA_STRUCT_EXT), 1, &count, &page));
    int64_t bytes = -1;
    auto s = get(configuration.d, A(ENGINECFG_WORKSPACE_SIZE), TY(INT64), 1, &count, &bytes);
    answer("configuration: WORKSPACE_SIZE", s, bytes >= 0, std::to_string(bytes));
    char metric[256] = {};
    answer("configuration: RANKING_METRIC_EXT",
           get(configuration.d, A(ENGINECFG_RANKING_METRIC_EXT), TY(CHAR), 255, &count, metric));
    of_prediction("configuration: PREDICTION_EXT", configuration.d, A(ENGINECFG_PREDICTION_EXT),
                  wire::PredictionKind::CONFIGURATION, "tflops");
}

static void of_plan(Graph& b, const Descriptor& graph, const Descriptor& configuration)
{
    auto plan = plan_of(configuration);
    int64_t count = 0;
    int64_t index = 0;
    auto s = get(plan->d, A(EXECUTION_PLAN_ENGINE_GLOBAL_INDEX_EXT), TY(INT64), 1, &count, &index);
    answer("plan: ENGINE_GLOBAL_INDEX_EXT", s, index != 0, "0");
    Dims uids(8);
    s = get(plan->d, A(EXECUTION_PLAN_TENSOR_UIDS_EXT), TY(INT64), 8, &count, uids.data());
    answer("plan: TENSOR_UIDS_EXT", s, count == 3, std::to_string(count));
    bool override = true;
    s = get(plan->d, A(EXECUTION_PLAN_IS_OVERRIDE_SHAPE_ENABLED_EXT), TY(BOOLEAN), 1, &count, &override);
    answer("plan: IS_OVERRIDE_SHAPE_ENABLED_EXT", s, !override, "true");
    s = execute(*plan, b, nullptr, 4);
    report::check("addresses that are no multiple of 16 are a bad parameter", s == HIPDNN_STATUS_BAD_PARAM,
                  "status " + std::to_string(s));
    Graph more = b;
    more.buffers.push_back({77, std::vector<uint8_t>(16)});
    answer("a tensor that the graph does not have is passed over", execute(*plan, more, nullptr));
    size_t bytes = 0;
    answer("GetSerializedExecutionPlan_ext", hipdnnBackendGetSerializedExecutionPlan_ext(plan->d, 0, &bytes, nullptr));
    answer("GetSerializedBinaryGraphAndPlan_ext",
           hipdnnBackendGetSerializedBinaryGraphAndPlan_ext(graph.d, plan->d, 0, &bytes, nullptr));
    stored_and_read(b, graph, *plan);
    autotuned(b, graph);
}

static void written_and_read(const Descriptor& graph)
{
    size_t size = 0;
    must(hipdnnBackendGetSerializedBinaryGraph_ext(graph.d, 0, &size, nullptr), "size");
    std::vector<uint8_t> bytes(size);
    must(hipdnnBackendGetSerializedBinaryGraph_ext(graph.d, size, &size, bytes.data()), "bytes");
    flatbuffers::Verifier check(bytes.data(), size);
    report::check("a serialized graph verifies", check.VerifyBuffer<wire::Graph>(), "it does not");
    int contents = 0;
    auto s = hipdnnBackendGetSerializedBinaryContents_ext(bytes.data(), size, &contents);
    answer("GetSerializedBinaryContents_ext", s, contents != 0, "0");
    D raw = nullptr;
    s = hipdnnBackendCreateAndDeserializeGraph_ext(&raw, bytes.data(), size);
    answer("CreateAndDeserializeGraph_ext", s);
    if(raw)
    {
        Descriptor again(raw, "deserialized");
        again.set(A(OPERATIONGRAPH_HANDLE), TY(HANDLE), 1, &handle);
        again.done();
        int64_t count = 0;
        s = get(raw, A(OPERATIONGRAPH_OPS), TY(BACKEND_DESCRIPTOR), 0, &count, nullptr);
        answer("OPS of a deserialized graph are counted", s, count == 1, std::to_string(count));
        Descriptor op(HIPDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, "operation");
        D before = op.d;
        s = get(raw, A(OPERATIONGRAPH_OPS), TY(BACKEND_DESCRIPTOR), 1, &count, &op.d);
        answer("OPS of a deserialized graph", s);
        if(op.d != before) hipdnnBackendDestroyDescriptor(before);
        int type = -1;
        s = get(op.d, A(OPERATION_TYPE_EXT), TY(OPERATION_TYPE_EXT), 1, &count, &type);
        answer("OPERATION_TYPE_EXT of a convolution", s, type == HIPDNN_OPERATION_TYPE_CONVOLUTION_FORWARD_EXT,
               std::to_string(type));
    }
    size = 0;
    s = hipdnnBackendGetSerializedJsonGraph_ext(graph.d, 0, &size, nullptr);
    answer("GetSerializedJsonGraph_ext", s, size > 0, "no byte");
    std::string json(size, 0);
    must(hipdnnBackendGetSerializedJsonGraph_ext(graph.d, size, &size, &json[0]), "JSON");
    D j = nullptr;
    answer("CreateAndDeserializeJsonGraph_ext", hipdnnBackendCreateAndDeserializeJsonGraph_ext(&j, json.c_str(), size));
    if(j) hipdnnBackendDestroyDescriptor(j);
}

// The frontend reads a deserialized graph back through OPS.
static void deserialized(const Case& c)
{
    const std::string name = "operations of a deserialized graph: " + c.name;
    D raw = nullptr;
    if(hipdnnBackendCreateAndDeserializeGraph_ext(&raw, c.graph.data(), c.graph.size()))
        return report::fail(name, "deserialize: " + last_error());
    Descriptor d(raw, c.name);
    put(raw, A(OPERATIONGRAPH_HANDLE), TY(HANDLE), 1, &handle);
    if(hipdnnBackendFinalize(raw)) return report::fail(name, "finalize: " + last_error());
    int64_t count = 0;
    auto s = get(raw, A(OPERATIONGRAPH_OPS), TY(BACKEND_DESCRIPTOR), 0, &count, nullptr);
    std::vector<D> ops(count, nullptr);
    if(!s) s = get(raw, A(OPERATIONGRAPH_OPS), TY(BACKEND_DESCRIPTOR), count, &count, ops.data());
    answer(name, s, count > 0, "none");
    for(auto* o : ops)
        if(o) hipdnnBackendDestroyDescriptor(o);
}

static void boolean_on_the_wire()
{
    Graph b;
    Dims d{4, 16};
    b.input(1, d, 1);
    b.input(2, d, 2);
    b.output(3, d, {}, 0, HIPDNN_DATA_BOOLEAN, 1);
    pointwise(b, HIPDNN_POINTWISE_CMP_GT, 1, 2, 3);
    b.ops[0]->done();
    Descriptor g(HIPDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "graph");
    graph_attributes(g, b);
    size_t size = 0;
    must(hipdnnBackendGetSerializedBinaryGraph_ext(g.d, 0, &size, nullptr), "size");
    std::vector<uint8_t> bytes(size);
    must(hipdnnBackendGetSerializedBinaryGraph_ext(g.d, size, &size, bytes.data()), "bytes");
    for(auto* t : *flatbuffers::GetRoot<wire::Graph>(bytes.data())->tensors())
        if(t->uid() == 3)
            report::check("a BOOLEAN tensor is written with number 16", int(t->data_type()) == 16,
                          std::to_string(int(t->data_type())));
}

static void override_shapes()
{
    Graph b;
    conv_graph(b);
    b.ops[0]->done();
    Descriptor g(HIPDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "graph");
    graph_attributes(g, b, true);
    try
    {
        configurations(g);
        report::pass("a graph with override shapes");
    }
    catch(Refused& r)
    {
        report::refused("a graph with override shapes", r.what);
    }
}
