// The cases of the integration tests of hipDNN's MIOpen plugin (shapes, types, layouts and tolerances of 2025), with
// the calls of that year's C++ frontend: a serialized graph, heuristics, the configuration finalized late, a plan
// without a handle, the size of the workspace asked without a count, addresses set before uids. References are in
// double precision.
//   miopen_cases [--device] [--only TEXT] [--every N] [--large]
#include "backend.hpp"
#include "graphs.hpp"
#include "memory.hpp"
#include "report.hpp"
using D = hipdnnBackendDescriptor_t;
using Doubles = std::vector<double>;
static hipdnnHandle_t handle;
static const Memory* memory;
static const Options* options;

enum Type
{
    F32 = 1,
    F16 = 2,
    BF16 = 3
};
static const char* type_name(Type t)
{
    return t == F32 ? "Fp32" : t == F16 ? "Fp16" : "Bfp16";
}
static uint16_t to_half(float f)
{
    uint32_t x;
    std::memcpy(&x, &f, 4);
    uint32_t s = (x >> 16) & 0x8000;
    int e = int((x >> 23) & 255) - 127;
    uint32_t m = x & 0x7fffff;
    if(e > 15) return uint16_t(s | 0x7c00);
    if(e < -25) return uint16_t(s);
    uint32_t full = m | 0x800000;
    int shift = e < -14 ? -14 - e + 13 : 13;
    uint32_t v = full >> shift, rest = full & ((1u << shift) - 1), half = 1u << (shift - 1);
    if(rest > half || (rest == half && (v & 1))) v++;
    if(e >= -14) v += uint32_t(e + 14) << 10;
    return uint16_t(s | v);
}
static float from_half(uint16_t h)
{
    int e = (h >> 10) & 31, m = h & 1023;
    float f = e == 31 ? (m ? NAN : INFINITY) : e ? std::ldexp(1024.f + m, e - 25) : std::ldexp(float(m), -24);
    return h & 0x8000 ? -f : f;
}
static uint16_t to_bf(float f)
{
    uint32_t x;
    std::memcpy(&x, &f, 4);
    x += 0x7fff + ((x >> 16) & 1);
    return uint16_t(x >> 16);
}
static float from_bf(uint16_t b)
{
    uint32_t x = uint32_t(b) << 16;
    float f;
    std::memcpy(&f, &x, 4);
    return f;
}
static double rounded(double v, Type t)
{
    return t == F32   ? double(float(v))
           : t == F16 ? double(from_half(to_half(float(v))))
                      : double(from_bf(to_bf(float(v))));
}

static Dims strides(const Dims& d, bool channels_last)
{
    if(!channels_last) return packed(d);
    Dims s(d.size());
    int64_t n = 1;
    s[1] = n;
    n *= d[1];
    for(size_t i = d.size(); i-- > 2;)
    {
        s[i] = n;
        n *= d[i];
    }
    s[0] = n;
    return s;
}
static int64_t place(int64_t linear, const Dims& d, const Dims& s)
{
    int64_t p = 0;
    for(size_t i = d.size(); i-- > 0;)
    {
        p += (linear % d[i]) * s[i];
        linear /= d[i];
    }
    return p;
}
// values are kept in packed order; memory has the layout's
struct Tensor
{
    int64_t uid;
    Dims d, s;
    Type t;
    Doubles v;
    double abs = 0, rel = 0;
    bool out = false, rms = false;
};
struct Test
{
    std::string name;
    flatbuffers::FlatBufferBuilder b;
    std::vector<flatbuffers::Offset<wire::TensorAttributes>> attributes;
    std::vector<flatbuffers::Offset<wire::Node>> nodes;
    std::vector<Tensor> tensors;
    Tensor& add(int64_t uid, const Dims& d, Type t, bool last, double lo, double hi, bool is_virtual = false)
    {
        Dims s = strides(d, last);
        attributes.push_back(wire::CreateTensorAttributesDirect(b, uid, ("t" + std::to_string(uid)).c_str(),
                                                                wire::DataType(t), &s, &d, is_virtual));
        static Tensor none;
        if(is_virtual) return none;
        Tensor x{uid, d, s, t, Doubles(count(d))};
        auto f = values(count(d), unsigned(uid * 7 + 3), float(lo), float(hi));
        for(size_t i = 0; i < f.size(); i++) x.v[i] = rounded(f[i], t);
        tensors.push_back(std::move(x));
        return tensors.back();
    }
    void output(int64_t uid, const Dims& d, Type t, bool last, Doubles expected, double tolerance, bool rms = false)
    {
        auto& x = add(uid, d, t, last, 0, 0);
        for(auto& e : expected) e = rounded(e, t);
        x.v = std::move(expected);
        x.abs = x.rel = tolerance;
        x.out = true;
        x.rms = rms;
    }
    template <class T> void node(flatbuffers::Offset<T> a)
    {
        nodes.push_back(wire::CreateNodeDirect(b, "node", wire::DataType::FLOAT,
                                               wire::NodeAttributesTraits<T>::enum_value, a.Union()));
    }
};
static void run(Test& t)
{
    t.b.Finish(wire::CreateGraphDirect(t.b, t.name.c_str(), wire::DataType::FLOAT, wire::DataType::FLOAT,
                                       wire::DataType::FLOAT, &t.attributes, &t.nodes));
    std::vector<D> made;
    std::vector<void*> memories;
    std::string bad;
    auto need = [&](hipdnnStatus_t s, const char* what)
    {
        if(s && bad.empty()) bad = std::string(what) + ": " + std::to_string(s) + " " + last_error();
        return !s && bad.empty();
    };
    auto create = [&](int type, D* d)
    {
        bool good = need(hipdnnBackendCreateDescriptor(hipdnnBackendDescriptorType_t(type), d), "CreateDescriptor");
        if(good) made.push_back(*d);
        return good;
    };
    D g = nullptr, h = nullptr, c = nullptr, p = nullptr, v = nullptr;
    int64_t n = 0, w = 0;
    int mode = 0;
    double worst = 0;
    [&]
    {
        if(!need(hipdnnBackendCreateAndDeserializeGraph_ext(&g, t.b.GetBufferPointer(), t.b.GetSize()), "deserialize"))
            return;
        made.push_back(g);
        if(!need(hipdnnBackendSetAttribute(g, HIPDNN_ATTR_OPERATIONGRAPH_HANDLE, HIPDNN_TYPE_HANDLE, 1, &handle),
                 "handle") ||
           !need(hipdnnBackendFinalize(g), "graph"))
            return;
        if(!create(HIPDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &h) ||
           !need(hipdnnBackendSetAttribute(h, HIPDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, HIPDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                           &g),
                 "heur graph") ||
           !need(hipdnnBackendSetAttribute(h, HIPDNN_ATTR_ENGINEHEUR_MODE, HIPDNN_TYPE_HEUR_MODE, 1, &mode),
                 "heur mode") ||
           !need(hipdnnBackendFinalize(h), "heuristics"))
            return;
        if(!need(hipdnnBackendGetAttribute(h, HIPDNN_ATTR_ENGINEHEUR_RESULTS, HIPDNN_TYPE_BACKEND_DESCRIPTOR, 0, &n,
                                           nullptr),
                 "results"))
            return;
        if(!n)
        {
            bad = "no engine: " + last_error();
            return;
        }
        if(!create(HIPDNN_BACKEND_ENGINECFG_DESCRIPTOR, &c) ||
           !need(
               hipdnnBackendGetAttribute(h, HIPDNN_ATTR_ENGINEHEUR_RESULTS, HIPDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &c),
               "results"))
            return;
        if(!create(HIPDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &p) || !need(hipdnnBackendFinalize(c), "configuration") ||
           !need(hipdnnBackendSetAttribute(p, HIPDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, HIPDNN_TYPE_BACKEND_DESCRIPTOR,
                                           1, &c),
                 "plan config") ||
           !need(hipdnnBackendFinalize(p), "plan"))
            return;
        if(!need(hipdnnBackendGetAttribute(p, HIPDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, HIPDNN_TYPE_INT64, 1, nullptr,
                                           &w),
                 "workspace size"))
            return;
        std::vector<void*> pointers;
        std::vector<int64_t> uids;
        for(auto& x : t.tensors)
        {
            size_t z = x.t == F32 ? 4 : 2;
            std::vector<uint8_t> raw(x.v.size() * z, 0xff);
            if(!x.out)
                for(size_t i = 0; i < x.v.size(); i++)
                {
                    int64_t q = place(int64_t(i), x.d, x.s);
                    float f = float(x.v[i]);
                    if(z == 4) std::memcpy(&raw[q * 4], &f, 4);
                    else
                    {
                        uint16_t k = x.t == F16 ? to_half(f) : to_bf(f);
                        std::memcpy(&raw[q * 2], &k, 2);
                    }
                }
            void* m = memory->get(raw.size());
            memory->write(m, raw.data(), raw.size());
            memories.push_back(m);
            pointers.push_back(m);
            uids.push_back(x.uid);
        }
        void* work = w ? memory->get(size_t(w)) : nullptr;
        if(work) memories.push_back(work);
        if(!create(HIPDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &v) ||
           !need(hipdnnBackendSetAttribute(v, HIPDNN_ATTR_VARIANT_PACK_DATA_POINTERS, HIPDNN_TYPE_VOID_PTR,
                                           int64_t(pointers.size()), pointers.data()),
                 "pointers") ||
           !need(hipdnnBackendSetAttribute(v, HIPDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, HIPDNN_TYPE_INT64,
                                           int64_t(uids.size()), uids.data()),
                 "uids") ||
           !need(hipdnnBackendSetAttribute(v, HIPDNN_ATTR_VARIANT_PACK_WORKSPACE, HIPDNN_TYPE_VOID_PTR, 1, &work),
                 "workspace") ||
           !need(hipdnnBackendFinalize(v), "variant pack") || !need(hipdnnBackendExecute(handle, p, v), "execute"))
            return;
        for(size_t i = 0; i < t.tensors.size(); i++)
        {
            auto& x = t.tensors[i];
            if(!x.out) continue;
            size_t z = x.t == F32 ? 4 : 2;
            std::vector<uint8_t> raw(x.v.size() * z);
            memory->read(raw.data(), pointers[i], raw.size());
            double sum = 0, top = 1e-30;
            size_t wrong = 0;
            for(size_t e = 0; e < x.v.size(); e++)
            {
                int64_t q = place(int64_t(e), x.d, x.s);
                float f;
                if(z == 4) std::memcpy(&f, &raw[q * 4], 4);
                else
                {
                    uint16_t k;
                    std::memcpy(&k, &raw[q * 2], 2);
                    f = x.t == F16 ? from_half(k) : from_bf(k);
                }
                double o = std::fabs(double(f) - x.v[e]);
                sum += o * o;
                top = std::fmax(top, std::fmax(std::fabs(double(f)), std::fabs(x.v[e])));
                if(!(o <= worst)) worst = o;
                if(!(o <= x.abs + x.rel * std::fabs(x.v[e]))) wrong++;
            }
            double rms = std::sqrt(sum) / (std::sqrt(double(x.v.size())) * top);
            if(x.rms ? !(rms <= x.abs) : wrong > 0)
                if(bad.empty())
                    bad = "tensor " + std::to_string(x.uid) + ": " + std::to_string(wrong) + " of " +
                          std::to_string(x.v.size()) + " beyond the tolerance " + std::to_string(x.abs) +
                          ", largest difference " + std::to_string(worst) + ", rms " + std::to_string(rms);
        }
    }();
    for(auto* m : memories) memory->put(m);
    while(!made.empty())
    {
        hipdnnBackendDestroyDescriptor(made.back());
        made.pop_back();
    }
    report::check(t.name, bad.empty(), bad);
}
static bool wants(const std::string& name, int64_t elements)
{
    return options->takes(name) && (options->large || elements <= 2000000);
}
static std::string text(const Dims& d)
{
    std::string s;
    for(auto v : d) s += (s.empty() ? "" : "x") + std::to_string(v);
    return s;
}

struct Conv
{
    Dims x, w, pad, stride, dilation, y{};
};
static std::vector<Conv> conv_cases(int spatial)
{
    auto all = [&](int64_t v) { return Dims(spatial, v); };
    auto dims = [&](int64_t a, int64_t b, int64_t s)
    {
        Dims d{a, b};
        for(int i = 0; i < spatial; i++) d.push_back(s);
        return d;
    };
    Dims odd = spatial == 2 ? Dims{1, 16, 16, 8} : Dims{1, 16, 16, 8, 4};
    std::vector<Conv> c{{dims(1, 16, 16), dims(1, 16, 1), all(0), all(1), all(1)},
                        {dims(1, 16, 16), dims(1, 16, 3), all(0), all(1), all(1)},
                        {dims(1, 16, 16), dims(1, 16, 3), all(1), all(1), all(1)},
                        {dims(1, 16, 16), dims(1, 16, 3), all(1), all(2), all(1)},
                        {dims(1, 16, 16), dims(1, 16, 3), all(2), all(1), all(2)},
                        {dims(8, 16, 16), dims(1, 16, 1), all(0), all(1), all(1)},
                        {odd, dims(1, 16, 3), all(1), all(1), all(1)},
                        {dims(1, 16, 16), dims(2, 8, 3), all(1), all(1), all(1)},
                        {dims(2, 32, 16), dims(4, 8, 3), all(1), all(2), all(2)}};
    for(auto& k : c)
    {
        k.y = {k.x[0], k.w[0]};
        for(int i = 0; i < spatial; i++)
            k.y.push_back((k.x[2 + i] + 2 * k.pad[i] - (k.dilation[i] * (k.w[2 + i] - 1) + 1)) / k.stride[i] + 1);
    }
    return c;
}
// calls f(x index, w index, y index) for every product of the convolution
template <class F> static void products(const Conv& c, F f)
{
    int n = int(c.x.size()) - 2;
    auto at = [&](const Dims& d, int i) { return i < n ? d[2 + i] : 1; };
    auto par = [&](const Dims& d, int i, int64_t e) { return i < n ? d[i] : e; };
    int64_t groups = c.x[1] / c.w[1], per = c.w[0] / groups;
    for(int64_t b = 0; b < c.x[0]; b++)
        for(int64_t k = 0; k < c.w[0]; k++)
            for(int64_t p0 = 0; p0 < at(c.y, 0); p0++)
                for(int64_t p1 = 0; p1 < at(c.y, 1); p1++)
                    for(int64_t p2 = 0; p2 < at(c.y, 2); p2++)
                    {
                        int64_t y = (((b * c.w[0] + k) * at(c.y, 0) + p0) * at(c.y, 1) + p1) * at(c.y, 2) + p2;
                        for(int64_t q = 0; q < c.w[1]; q++)
                            for(int64_t r0 = 0; r0 < at(c.w, 0); r0++)
                                for(int64_t r1 = 0; r1 < at(c.w, 1); r1++)
                                    for(int64_t r2 = 0; r2 < at(c.w, 2); r2++)
                                    {
                                        int64_t h0 = p0 * par(c.stride, 0, 1) - par(c.pad, 0, 0) +
                                                     r0 * par(c.dilation, 0, 1),
                                                h1 = p1 * par(c.stride, 1, 1) - par(c.pad, 1, 0) +
                                                     r1 * par(c.dilation, 1, 1),
                                                h2 = p2 * par(c.stride, 2, 1) - par(c.pad, 2, 0) +
                                                     r2 * par(c.dilation, 2, 1);
                                        if(h0 < 0 || h1 < 0 || h2 < 0 || h0 >= at(c.x, 0) || h1 >= at(c.x, 1) ||
                                           h2 >= at(c.x, 2))
                                            continue;
                                        int64_t channel = k / per * c.w[1] + q;
                                        f((((b * c.x[1] + channel) * at(c.x, 0) + h0) * at(c.x, 1) + h1) * at(c.x, 2) +
                                              h2,
                                          (((k * c.w[1] + q) * at(c.w, 0) + r0) * at(c.w, 1) + r1) * at(c.w, 2) + r2,
                                          y);
                                    }
                    }
}
static double tol(Type t, double f, double h, double b)
{
    return t == F32 ? f : t == F16 ? h : b;
}
static void conv_tests(int spatial, Type t, bool last)
{
    std::string layout = spatial == 2 ? (last ? "Nhwc" : "Nchw") : (last ? "Ndhwc" : "Ncdhw");
    for(auto& c : conv_cases(spatial))
        for(int kind = 0; kind < 3; kind++)
        {
            const char* names[] = {"ConvFwd", "ConvBwdData", "ConvWrw"};
            Test q;
            q.name = names[kind] + layout + type_name(t) + " " + text(c.x) + " * " + text(c.w) + " p" +
                     std::to_string(c.pad[0]) + " s" + std::to_string(c.stride[0]) + " d" +
                     std::to_string(c.dilation[0]);
            if(!wants(q.name, count(c.x))) continue;
            q.tensors.reserve(4);
            auto mode = wire::ConvMode::CROSS_CORRELATION;
            if(kind == 0)
            {
                auto& x = q.add(1, c.x, t, last, -1, 1);
                auto& w = q.add(2, c.w, t, last, -1, 1);
                Doubles e(count(c.y));
                products(c, [&](int64_t i, int64_t j, int64_t k) { e[k] += x.v[i] * w.v[j]; });
                q.output(3, c.y, t, last, e, tol(t, 8.5e-6, 1e-2, 1e-2));
                q.node(wire::CreateConvolutionFwdAttributesDirect(q.b, 1, 2, 3, &c.pad, &c.pad, &c.stride, &c.dilation,
                                                                  mode));
            }
            if(kind == 1)
            {
                auto& y = q.add(1, c.y, t, last, -1, 1);
                auto& w = q.add(2, c.w, t, last, -1, 1);
                Doubles e(count(c.x));
                products(c, [&](int64_t i, int64_t j, int64_t k) { e[i] += y.v[k] * w.v[j]; });
                q.output(3, c.x, t, last, e, tol(t, 8.5e-6, 2e-2, 2e-2));
                q.node(wire::CreateConvolutionBwdAttributesDirect(q.b, 1, 2, 3, &c.pad, &c.pad, &c.stride, &c.dilation,
                                                                  mode));
            }
            if(kind == 2)
            {
                auto& x = q.add(1, c.x, t, last, -1, 1);
                auto& y = q.add(2, c.y, t, last, -1, 1);
                Doubles e(count(c.w));
                products(c, [&](int64_t i, int64_t j, int64_t k) { e[j] += x.v[i] * y.v[k]; });
                q.output(3, c.w, t, last, e, tol(t, 2e-4, 2e-1, 2e-1));
                q.node(wire::CreateConvolutionWrwAttributesDirect(q.b, 1, 2, 3, &c.pad, &c.pad, &c.stride, &c.dilation,
                                                                  mode));
            }
            run(q);
        }
}
static void batchnorm_tests(Type t, bool last)
{
    const std::vector<Dims> shapes{{1, 3, 14, 14}, {1, 256, 1, 1}, {2, 3, 1, 1},       {32, 1, 14, 14},
                                   {32, 3, 1, 14}, {32, 3, 14, 1}, {64, 64, 112, 112}, {64, 512, 14, 14}};
    for(auto& d : shapes)
        for(int kind = 0; kind < 4; kind++)
        {
            if(kind && d[1] == 256) continue; // not among the cases of the backward pass
            const char* names[] = {"BatchnormForwardInference", "BatchnormBackward",
                                   "BatchnormFwdTraining.BatchStatsOnly", "BatchnormBackwardActivation"};
            Test q;
            q.name = names[kind] + std::string(last ? "Nhwc" : "Nchw") + type_name(t) + " " + text(d);
            if(!wants(q.name, count(d))) continue;
            q.tensors.reserve(16);
            int64_t C = d[1], S = d[2] * d[3];
            Dims p{1, C, 1, 1};
            auto ch = [&](int64_t i) { return i / S % C; };
            double m = double(d[0] * S);
            if(kind == 0)
            {
                auto& x = q.add(1, d, t, last, 0, 1);
                auto& mean = q.add(2, p, F32, false, 0, 1);
                auto& iv = q.add(3, p, F32, false, 0.1, 1);
                auto& s = q.add(4, p, F32, false, 0, 1);
                auto& b = q.add(5, p, F32, false, 0, 1);
                Doubles e(x.v.size());
                for(size_t i = 0; i < e.size(); i++)
                    e[i] = (x.v[i] - mean.v[ch(i)]) * iv.v[ch(i)] * s.v[ch(i)] + b.v[ch(i)];
                q.output(6, d, t, last, e, tol(t, 2e-4, 5e-4, 5e-3));
                q.node(wire::CreateBatchnormInferenceAttributes(q.b, 1, 2, 3, 4, 5, 6));
            }
            if(kind == 1 || kind == 3)
            {
                bool act = kind == 3;
                auto& x = q.add(1, d, t, last, act ? -1.8 : -1, act ? 1.8 : 1);
                auto& dy = q.add(2, d, t, last, act ? -1.8 : -0.1, act ? 1.8 : 0.1);
                auto& s = q.add(3, p, F32, false, act ? 0.5 : -0.1, act ? 1.5 : 0.1);
                auto& mean = q.add(4, p, F32, false, -0.1, 0.1);
                auto& iv = q.add(5, p, F32, false, act ? 0.5 : 1.9, 2);
                Tensor* bias = act ? &q.add(9, p, F32, false, -0.1, 0.1) : nullptr;
                Doubles g(dy.v), dx(x.v.size()), ds(C), db(C);
                if(act)
                    for(size_t i = 0; i < g.size(); i++)
                    {
                        double y = rounded((x.v[i] - mean.v[ch(i)]) * iv.v[ch(i)] * s.v[ch(i)] + bias->v[ch(i)], t);
                        if(!(y > 0)) g[i] = 0;
                    }
                for(size_t i = 0; i < g.size(); i++)
                {
                    db[ch(i)] += g[i];
                    ds[ch(i)] += g[i] * (x.v[i] - mean.v[ch(i)]) * iv.v[ch(i)];
                }
                for(size_t i = 0; i < g.size(); i++)
                {
                    auto c = ch(i);
                    double xh = (x.v[i] - mean.v[c]) * iv.v[c];
                    dx[i] = s.v[c] * iv.v[c] / m * (m * g[i] - db[c] - xh * ds[c]);
                }
                double e = act ? 4e-3 : tol(t, 4e-3, 4e-3, 4e-3);
                q.output(6, d, t, last, dx, e, act);
                q.output(7, p, F32, false, ds, e, act);
                q.output(8, p, F32, false, db, e, act);
                int64_t source = 2;
                if(act)
                {
                    q.add(20, d, t, last, 0, 0, true);
                    q.add(21, d, t, last, 0, 0, true);
                    q.node(wire::CreateBatchnormInferenceAttributes(q.b, 1, 4, 5, 3, 9, 20));
                    q.node(wire::CreatePointwiseAttributes(q.b, wire::PointwiseMode::RELU_BWD, {}, {}, {}, {}, 20, 2,
                                                           {}, 21));
                    source = 21;
                }
                q.node(wire::CreateBatchnormBackwardAttributes(q.b, source, 1, 4, 5, 3, 0, 6, 7, 8));
            }
            if(kind == 2)
            {
                auto& x = q.add(1, d, t, last, -1, 1);
                auto& s = q.add(2, p, F32, false, -2, 2);
                auto& b = q.add(3, p, F32, false, -2, 2);
                q.attributes.push_back(constant(q.b, 10, wire::DataType::DOUBLE, 6, 3e-5));
                Doubles mean(C), iv(C), y(x.v.size());
                for(size_t i = 0; i < y.size(); i++) mean[ch(i)] += x.v[i] / m;
                for(size_t i = 0; i < y.size(); i++) iv[ch(i)] += (x.v[i] - mean[ch(i)]) * (x.v[i] - mean[ch(i)]) / m;
                for(auto& v : iv) v = 1 / std::sqrt(v + 3e-5);
                for(size_t i = 0; i < y.size(); i++)
                    y[i] = (x.v[i] - mean[ch(i)]) * iv[ch(i)] * s.v[ch(i)] + b.v[ch(i)];
                q.output(4, d, t, last, y, 4e-3, true);
                q.output(5, p, F32, false, mean, 4e-3, true);
                q.output(6, p, F32, false, iv, 4e-3, true);
                q.node(wire::CreateBatchnormAttributesDirect(q.b, 1, 2, 3, 10, nullptr, {}, {}, {}, 4, 5, 6, {}, {}));
            }
            run(q);
        }
}

// A graph with the tables of the 2025 schema: a node had no compute type then, so its union sits a slot earlier. It
// must be refused, not taken for something else.
static void schema_of_2025()
{
    const std::string name = "a graph of the 2025 schema is refused";
    if(!options->takes(name)) return;
    flatbuffers::FlatBufferBuilder b;
    Dims d{1, 3, 4, 4}, s = packed(d);
    std::vector<flatbuffers::Offset<wire::TensorAttributes>> tensors{
        wire::CreateTensorAttributesDirect(b, 1, "x", wire::DataType::FLOAT, &s, &d),
        wire::CreateTensorAttributesDirect(b, 2, "y", wire::DataType::FLOAT, &s, &d)};
    auto attributes = wire::CreatePointwiseAttributes(b, wire::PointwiseMode::RELU_FWD, {}, {}, {}, {}, 1, {}, {}, 2);
    auto label = b.CreateString("relu");
    auto start = b.StartTable();
    b.AddOffset(4, label);
    b.AddElement<uint8_t>(6, uint8_t(wire::NodeAttributes::PointwiseAttributes), 0);
    b.AddOffset(8, flatbuffers::Offset<void>(attributes.o));
    std::vector<flatbuffers::Offset<wire::Node>> nodes{flatbuffers::Offset<wire::Node>(b.EndTable(start))};
    b.Finish(wire::CreateGraphDirect(b, "2025", wire::DataType::FLOAT, wire::DataType::FLOAT, wire::DataType::FLOAT,
                                     &tensors, &nodes));
    D g = nullptr;
    auto status = hipdnnBackendCreateAndDeserializeGraph_ext(&g, b.GetBufferPointer(), b.GetSize());
    const auto text = last_error();
    report::check(name, status == HIPDNN_STATUS_BAD_PARAM && !text.empty(),
                  "status " + std::to_string(status) + " " + text);
    if(g) hipdnnBackendDestroyDescriptor(g);
}

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
    schema_of_2025();
    for(Type t : {F32, F16, BF16})
        for(bool last : {false, true})
        {
            conv_tests(2, t, last);
            batchnorm_tests(t, last);
        }
    for(Type t : {F32, F16, BF16})
        for(bool last : {false, true}) conv_tests(3, t, last);
    if(hipdnnDestroy(handle)) report::fail("hipdnnDestroy", last_error());
    return report::failures() != 0;
}
