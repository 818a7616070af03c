// Graphs as hipDNN's wire format has them, with buffers and expected results, made with the headers that flatc writes
// from schemas/fbs. Element types that once had other numbers are given by hipDNN's numbers.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>
#include "graph_generated.h"
namespace wire = hipdnn_flatbuffers_sdk::data_objects;
using Dims = std::vector<int64_t>;
using Floats = std::vector<float>;

inline Dims packed(const Dims& d)
{
    Dims s(d.size(), 1);
    for(size_t i = d.size(); i-- > 1;) s[i - 1] = s[i] * d[i];
    return s;
}
inline int64_t count(const Dims& d)
{
    int64_t n = 1;
    for(auto v : d) n *= v;
    return n;
}
inline Floats values(int64_t n, unsigned seed, float low = -1, float high = 1)
{
    Floats f(n);
    uint64_t x = seed * 2654435761u + 12345;
    for(auto& v : f)
    {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        v = low + (high - low) * float((x >> 40) & 0xffff) / 65535.0f;
    }
    return f;
}

struct Buffer
{
    int64_t uid;
    std::vector<uint8_t> bytes;
};
struct Case
{
    std::string name;
    std::vector<uint8_t> graph;
    std::vector<Buffer> buffers;
    int64_t out = 0;
    Floats expected;
    double tolerance = 1e-4;
    int out_width = 4;
};

// A scalar that the graph holds. schemas/fbs declares the slots of the union apart, since flatc's Rust has no unions of
// structs: `tag` is the number of Float32Value, Float64Value, and so on, and the slot behind it has the bare value.
template <class T>
flatbuffers::Offset<wire::TensorAttributes> constant(flatbuffers::FlatBufferBuilder& b, int64_t uid,
                                                     wire::DataType type, uint8_t tag, T value)
{
    const Dims one{1};
    auto name = b.CreateString("scalar");
    auto dims = b.CreateVector(one);
    auto number = b.CreateStruct(value);
    wire::TensorAttributesBuilder t(b);
    t.add_uid(uid);
    t.add_name(name);
    t.add_data_type(type);
    t.add_strides(dims);
    t.add_dims(dims);
    t.add_value_type(tag);
    b.AddOffset(flatbuffers::voffset_t(wire::TensorAttributes::VT_VALUE_TYPE + 2), number);
    return t.Finish();
}

struct Builder
{
    flatbuffers::FlatBufferBuilder b;
    std::vector<flatbuffers::Offset<wire::TensorAttributes>> tensors;
    std::vector<flatbuffers::Offset<wire::Node>> nodes;
    Case c;
    explicit Builder(std::string name) { c.name = std::move(name); }
    void tensor(int64_t uid, Dims d, wire::DataType t = wire::DataType::FLOAT, bool is_virtual = false, Dims s = {})
    {
        if(s.empty()) s = packed(d);
        tensors.push_back(
            wire::CreateTensorAttributesDirect(b, uid, ("t" + std::to_string(uid)).c_str(), t, &s, &d, is_virtual));
    }
    void scalar(int64_t uid, float v) { tensors.push_back(constant(b, uid, wire::DataType::FLOAT, 1, v)); }
    Floats input(int64_t uid, Dims d, unsigned seed, float low = -1, float high = 1, Dims s = {})
    {
        tensor(uid, d, wire::DataType::FLOAT, false, s);
        Floats f = values(count(d), seed, low, high);
        bytes(uid, f.data(), f.size() * 4);
        return f;
    }
    void bytes(int64_t uid, const void* p, size_t n)
    {
        auto* q = static_cast<const uint8_t*>(p);
        c.buffers.push_back({uid, std::vector<uint8_t>(q, q + n)});
    }
    void output(int64_t uid, Dims d, Floats expected, double tolerance = 1e-4, wire::DataType t = wire::DataType::FLOAT,
                int width = 4)
    {
        tensor(uid, d, t);
        c.buffers.push_back({uid, std::vector<uint8_t>(count(d) * width, 0xcd)});
        c.out = uid;
        c.expected = std::move(expected);
        c.tolerance = tolerance;
        c.out_width = width;
    }
    template <class T> void node(flatbuffers::Offset<T> a, wire::DataType compute = wire::DataType::FLOAT)
    {
        nodes.push_back(
            wire::CreateNodeDirect(b, "node", compute, wire::NodeAttributesTraits<T>::enum_value, a.Union()));
    }
    Case done(wire::DataType io = wire::DataType::FLOAT)
    {
        wire::EngineApiVersion v(1, 0, 0);
        b.Finish(wire::CreateGraphDirect(b, c.name.c_str(), wire::DataType::FLOAT, wire::DataType::FLOAT, io, &tensors,
                                         &nodes, flatbuffers::nullopt, false, &v));
        c.graph.assign(b.GetBufferPointer(), b.GetBufferPointer() + b.GetSize());
        return std::move(c);
    }
};

// ---- references, in double precision ----
inline Floats conv(const Floats& x, const Floats& w, Dims xd, Dims wd, int pad, int stride, bool flip = false)
{
    int64_t N = xd[0], C = xd[1], H = xd[2], W = xd[3], K = wd[0], R = wd[2], S = wd[3],
            P = (H + 2 * pad - R) / stride + 1, Q = (W + 2 * pad - S) / stride + 1;
    Floats y(N * K * P * Q);
    for(int64_t n = 0; n < N; n++)
        for(int64_t k = 0; k < K; k++)
            for(int64_t p = 0; p < P; p++)
                for(int64_t q = 0; q < Q; q++)
                {
                    double a = 0;
                    for(int64_t c = 0; c < C; c++)
                        for(int64_t r = 0; r < R; r++)
                            for(int64_t s = 0; s < S; s++)
                            {
                                int64_t h = p * stride - pad + r, v = q * stride - pad + s;
                                if(h < 0 || v < 0 || h >= H || v >= W) continue;
                                int64_t rr = flip ? R - 1 - r : r, ss = flip ? S - 1 - s : s;
                                a += double(x[((n * C + c) * H + h) * W + v]) * w[((k * C + c) * R + rr) * S + ss];
                            }
                    y[((n * K + k) * P + p) * Q + q] = float(a);
                }
    return y;
}

// The gradient of a 4x3x3x3 filter that went over a 1x3x8x8 image padded by 1.
inline Floats filter_gradient(const Floats& x, const Floats& dy)
{
    Floats dw(4 * 3 * 9);
    for(int k = 0; k < 4; k++)
        for(int c = 0; c < 3; c++)
            for(int r = 0; r < 3; r++)
                for(int s = 0; s < 3; s++)
                {
                    double a = 0;
                    for(int p = 0; p < 8; p++)
                        for(int q = 0; q < 8; q++)
                        {
                            int h = p - 1 + r, v = q - 1 + s;
                            if(h < 0 || v < 0 || h > 7 || v > 7) continue;
                            a += double(x[(c * 8 + h) * 8 + v]) * dy[(k * 8 + p) * 8 + q];
                        }
                    dw[((k * 3 + c) * 3 + r) * 3 + s] = float(a);
                }
    return dw;
}

// Maxima of 2x2 windows, two apart.
inline Floats max_pool(const Floats& x, const Dims& d)
{
    const int64_t planes = d[0] * d[1], H = d[2], W = d[3];
    Floats y(planes * H / 2 * W / 2, -INFINITY);
    for(int64_t c = 0; c < planes; c++)
        for(int64_t h = 0; h < H; h++)
            for(int64_t w = 0; w < W; w++)
            {
                auto& o = y[(c * (H / 2) + h / 2) * (W / 2) + w / 2];
                o = std::fmax(o, x[(c * H + h) * W + w]);
            }
    return y;
}

// Layer normalization of rows; without a bias by the root mean square.
inline Floats normalized(const Floats& x, const Floats& scale, const Floats* bias, double epsilon)
{
    const size_t n = scale.size();
    Floats y(x.size());
    for(size_t row = 0; row < x.size(); row += n)
    {
        double m = 0, v = 0;
        for(size_t i = 0; bias && i < n; i++) m += x[row + i] / double(n);
        for(size_t i = 0; i < n; i++) v += (x[row + i] - m) * (x[row + i] - m) / double(n);
        for(size_t i = 0; i < n; i++)
            y[row + i] = float((x[row + i] - m) / std::sqrt(v + epsilon) * scale[i] + (bias ? (*bias)[i] : 0.f));
    }
    return y;
}

// Attention over [batch, heads, rows, depth], the scores scaled by 1/sqrt(depth): result, logarithms of the sums of
// exponentials, and from the result's gradient the gradient of the keys.
struct Attention
{
    Floats o, stats, dk;
};
inline Attention attention(const Floats& q, const Floats& k, const Floats& v, const Floats& gradient, const Dims& d)
{
    const int64_t heads = d[0] * d[1], rows = d[2], depth = d[3];
    const double scale = 1 / std::sqrt(double(depth));
    Attention a{Floats(q.size()), Floats(heads * rows), Floats(k.size())};
    std::vector<double> dk(k.size());
    for(int64_t h = 0; h < heads; h++)
        for(int64_t i = 0; i < rows; i++)
        {
            const int64_t at = (h * rows + i) * depth;
            auto key = [&](int64_t j) { return (h * rows + j) * depth; };
            std::vector<double> p(rows);
            double sum = 0, inner = 0;
            for(int64_t j = 0; j < rows; j++)
            {
                double s = 0;
                for(int64_t c = 0; c < depth; c++) s += double(q[at + c]) * k[key(j) + c];
                sum += p[j] = std::exp(s * scale);
            }
            a.stats[h * rows + i] = float(std::log(sum));
            for(int64_t c = 0; c < depth; c++)
            {
                double o = 0;
                for(int64_t j = 0; j < rows; j++) o += p[j] / sum * v[key(j) + c];
                a.o[at + c] = float(o);
                if(!gradient.empty()) inner += o * gradient[at + c];
            }
            for(int64_t j = 0; j < rows && !gradient.empty(); j++)
            {
                double dp = 0;
                for(int64_t c = 0; c < depth; c++) dp += double(gradient[at + c]) * v[key(j) + c];
                const double ds = p[j] / sum * (dp - inner) * scale;
                for(int64_t c = 0; c < depth; c++) dk[key(j) + c] += ds * q[at + c];
            }
        }
    for(size_t i = 0; i < dk.size(); i++) a.dk[i] = float(dk[i]);
    return a;
}

inline std::vector<Case> cases()
{
    std::vector<Case> all;
    const Dims xd{1, 3, 8, 8}, wd{4, 3, 3, 3}, yd{1, 4, 8, 8}, one{1, 1}, pad{1, 1};
    for(int flip = 0; flip < 2; flip++)
    {
        Builder g(flip ? "conv_fwd, CONVOLUTION (flipped)" : "conv_fwd NCHW");
        auto x = g.input(1, xd, 1), w = g.input(2, wd, 2);
        g.output(3, yd, conv(x, w, xd, wd, 1, 1, flip));
        g.node(wire::CreateConvolutionFwdAttributesDirect(g.b, 1, 2, 3, &pad, &pad, &one, &one,
                                                          flip ? wire::ConvMode::CONVOLUTION
                                                               : wire::ConvMode::CROSS_CORRELATION));
        all.push_back(g.done());
    }
    {
        Builder g("conv_fwd + bias + relu");
        auto x = g.input(1, xd, 1), w = g.input(2, wd, 2), b = g.input(3, {1, 4, 1, 1}, 3);
        auto y = conv(x, w, xd, wd, 1, 1);
        for(size_t i = 0; i < y.size(); i++) y[i] = std::fmax(0.f, y[i] + b[i / 64 % 4]);
        g.tensor(10, yd, wire::DataType::FLOAT, true);
        g.tensor(11, yd, wire::DataType::FLOAT, true);
        g.output(4, yd, y);
        g.node(wire::CreateConvolutionFwdAttributesDirect(g.b, 1, 2, 10, &pad, &pad, &one, &one,
                                                          wire::ConvMode::CROSS_CORRELATION));
        g.node(wire::CreatePointwiseAttributes(g.b, wire::PointwiseMode::ADD, {}, {}, {}, {}, 10, 3, {}, 11));
        g.node(wire::CreatePointwiseAttributes(g.b, wire::PointwiseMode::RELU_FWD, {}, {}, {}, {}, 11, {}, {}, 4));
        all.push_back(g.done());
    }
    { // dgrad: the same as a full correlation with the filter turned and its channels swapped
        Builder g("conv_bwd (data)");
        auto dy = g.input(1, yd, 1), w = g.input(2, wd, 2);
        Floats t(w.size());
        for(int k = 0; k < 4; k++)
            for(int c = 0; c < 3; c++)
                for(int r = 0; r < 9; r++) t[(c * 4 + k) * 9 + 8 - r] = w[(k * 3 + c) * 9 + r];
        g.output(3, xd, conv(dy, t, yd, {3, 4, 3, 3}, 1, 1));
        g.node(wire::CreateConvolutionBwdAttributesDirect(g.b, 1, 2, 3, &pad, &pad, &one, &one,
                                                          wire::ConvMode::CROSS_CORRELATION));
        all.push_back(g.done());
    }
    {
        Builder g("conv_wrw (weights)");
        auto x = g.input(1, xd, 1), dy = g.input(2, yd, 2);
        g.output(3, wd, filter_gradient(x, dy));
        g.node(wire::CreateConvolutionWrwAttributesDirect(g.b, 1, 2, 3, &pad, &pad, &one, &one,
                                                          wire::ConvMode::CROSS_CORRELATION));
        all.push_back(g.done());
    }
    {
        Builder g("batchnorm inference");
        Dims d{2, 3, 4, 4}, p{1, 3, 1, 1};
        auto x = g.input(1, d, 1), m = g.input(2, p, 2), v = g.input(3, p, 3, 0.5, 2), s = g.input(4, p, 4),
             b = g.input(5, p, 5);
        Floats y(x.size());
        for(size_t i = 0; i < y.size(); i++)
        {
            int c = i / 16 % 3;
            y[i] = (x[i] - m[c]) * v[c] * s[c] + b[c];
        }
        g.output(6, d, y);
        g.node(wire::CreateBatchnormInferenceAttributes(g.b, 1, 2, 3, 4, 5, 6));
        all.push_back(g.done());
    }
    {
        Builder g("batchnorm inference, variance, + relu");
        Dims d{2, 3, 4, 4}, p{1, 3, 1, 1};
        auto x = g.input(1, d, 1), m = g.input(2, p, 2), v = g.input(3, p, 3, 0.5, 2), s = g.input(4, p, 4),
             b = g.input(5, p, 5);
        g.scalar(7, 1e-5f);
        Floats y(x.size());
        for(size_t i = 0; i < y.size(); i++)
        {
            int c = i / 16 % 3;
            y[i] = std::fmax(0., (x[i] - m[c]) / std::sqrt(double(v[c]) + 1e-5) * s[c] + b[c]);
        }
        g.tensor(8, d, wire::DataType::FLOAT, true);
        g.output(6, d, y);
        g.node(wire::CreateBatchnormInferenceAttributesVarianceExt(g.b, 1, 2, 3, 4, 5, 8, 7));
        g.node(wire::CreatePointwiseAttributes(g.b, wire::PointwiseMode::RELU_FWD, {}, {}, {}, {}, 8, {}, {}, 6));
        all.push_back(g.done());
    }
    {
        Builder g("pointwise ADD, broadcast");
        Dims d{2, 3, 4, 4};
        auto x = g.input(1, d, 1), y = g.input(2, {1, 3, 1, 1}, 2);
        Floats e(x.size());
        for(size_t i = 0; i < e.size(); i++) e[i] = x[i] + y[i / 16 % 3];
        g.output(3, d, e);
        g.node(wire::CreatePointwiseAttributes(g.b, wire::PointwiseMode::ADD, {}, {}, {}, {}, 1, 2, {}, 3));
        all.push_back(g.done());
    }
    {
        Builder g("pointwise RELU with slope 0.1");
        Dims d{2, 3, 4, 4};
        auto x = g.input(1, d, 1);
        Floats e(x);
        for(auto& f : e) f = f > 0 ? f : 0.1f * f;
        g.output(3, d, e);
        g.node(wire::CreatePointwiseAttributes(g.b, wire::PointwiseMode::RELU_FWD, 0.f, {}, 0.1f, {}, 1, {}, {}, 3));
        all.push_back(g.done());
    }
    {
        Builder g("reduction ADD");
        Dims d{2, 3, 4, 4};
        auto x = g.input(1, d, 1);
        Floats e(6);
        for(size_t i = 0; i < x.size(); i++) e[i / 16] += x[i];
        g.output(2, {2, 3, 1, 1}, e);
        g.node(wire::CreateReductionAttributes(g.b, wire::ReductionMode::ADD, 1, 2));
        all.push_back(g.done());
    }
    {
        Builder g("resample MAXPOOL 2x2");
        auto x = g.input(1, xd, 1);
        Dims two{2, 2}, zero{0, 0};
        g.output(2, {1, 3, 4, 4}, max_pool(x, xd));
        g.node(wire::CreateResampleFwdAttributesDirect(g.b, 1, 2, {}, &zero, &zero, &two, &two,
                                                       wire::ResampleMode::MAXPOOL, wire::PaddingMode::NEG_INF_PAD));
        all.push_back(g.done());
    }
    {
        Builder g("matmul");
        auto a = g.input(1, {2, 3, 5}, 1), b = g.input(2, {2, 5, 4}, 2);
        Floats e(24);
        for(int n = 0; n < 2; n++)
            for(int i = 0; i < 3; i++)
                for(int j = 0; j < 4; j++)
                {
                    double s = 0;
                    for(int k = 0; k < 5; k++) s += double(a[(n * 3 + i) * 5 + k]) * b[(n * 5 + k) * 4 + j];
                    e[(n * 3 + i) * 4 + j] = float(s);
                }
        g.output(3, {2, 3, 4}, e);
        g.node(wire::CreateMatmulAttributes(g.b, 1, 2, 3));
        all.push_back(g.done());
    }
    {
        Builder g("layernorm inference");
        Dims d{4, 16};
        auto x = g.input(1, d, 1), s = g.input(2, {1, 16}, 2), b = g.input(3, {1, 16}, 3);
        g.scalar(4, 1e-5f);
        g.output(5, d, normalized(x, s, &b, 1e-5));
        g.node(wire::CreateLayernormAttributes(g.b, 1, 2, 3, 4, 5, 1, {}, {}, wire::NormFwdPhase::INFERENCE));
        all.push_back(g.done());
    }
    {
        Builder g("rmsnorm inference");
        Dims d{4, 16};
        auto x = g.input(1, d, 1), s = g.input(2, {1, 16}, 2);
        g.scalar(4, 1e-5f);
        g.output(5, d, normalized(x, s, nullptr, 1e-5));
        g.node(wire::CreateRMSNormAttributes(g.b, 1, 2, 4, 5, {}, {}, wire::NormFwdPhase::INFERENCE));
        all.push_back(g.done());
    }
    // Element types by hipDNN's numbers.
    {
        Builder g("CMP_GT into BOOLEAN (16)");
        Dims d{4, 16};
        auto x = g.input(1, d, 1), y = g.input(2, d, 2);
        Floats e(64);
        for(int i = 0; i < 64; i++) e[i] = x[i] > y[i];
        g.output(3, d, e, 0, wire::DataType(16), 1);
        g.node(wire::CreatePointwiseAttributes(g.b, wire::PointwiseMode::CMP_GT, {}, {}, {}, {}, 1, 2, {}, 3));
        all.push_back(g.done());
    }
    auto f8 = [&](const char* name, int number, double bias, int mantissa) { // each finite positive code below 0x78, to float
    Builder g(name); Dims d{1, 112}; std::vector<uint8_t> codes(112); Floats e(112);
    for (int i = 0; i < 112; i++) { codes[i] = uint8_t(i + 1); int v = i + 1, m = v & ((1 << mantissa) - 1), x = v >> mantissa; double f = double(m) / (1 << mantissa); e[i] = float(x ? std::ldexp(1 + f, x - int(bias)) : std::ldexp(f, 1 - int(bias))); }
    g.tensor(1, d, wire::DataType(number)); g.bytes(1, codes.data(), codes.size());
    g.output(2, d, e, 0); g.node(wire::CreatePointwiseAttributes(g.b, wire::PointwiseMode::IDENTITY, {}, {}, {}, {}, 1, {}, {}, 2)); all.push_back(g.done()); };
    f8("FP8_E4M3 (8) to float", 8, 7, 3);
    f8("FP8_E5M2 (9) to float", 9, 15, 2);
    f8("FP8_E4M3_FNUZ (17) to float", 17, 8, 3);
    f8("FP8_E5M2_FNUZ (18) to float", 18, 16, 2);
    return all;
}
