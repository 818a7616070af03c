// What goes around convolutions, by the real MIOpen: activations, sums with broadcasting, scaling; and convolutions
// of three dimensions.
#include "miopen_case.h"

namespace {
// Bounds: results are rounded once to the type, from fp32 arithmetic whose own error is some 2^-22 of the operands.
double bound(miopenDataType_t type, double value)
{
    double unit = type == miopenFloat ? 0x1p-22 : type == miopenHalf ? 0x1p-11 : 0x1p-8;
    // Half precision kernels compute transcendental functions in half precision, in a few steps.
    return (type == miopenFloat ? 2 : 4) * unit * (1 + std::fabs(value));
}
void compare(const std::vector<float>& got, const std::vector<double>& wanted, miopenDataType_t type)
{
    for(size_t i = 0; i < got.size(); i++)
        if(!(std::fabs(got[i] - wanted[i]) <= bound(type, wanted[i]))) check::fail("element %zu is %g, not %g", i, got[i], wanted[i]);
}
const char* name(miopenDataType_t type) { return type == miopenFloat ? " f32" : type == miopenHalf ? " f16" : " bf16"; }

// A packed tensor of any rank.
struct Packed
{
    miopenTensorDescriptor_t descriptor = nullptr;
    std::vector<int> lengths;
    float* device = nullptr;
    std::vector<float> values;
    Packed(std::vector<int> sizes, unsigned seed) : lengths(std::move(sizes))
    {
        std::vector<int> strides(lengths.size(), 1);
        for(int i = (int)lengths.size() - 2; i >= 0; i--) strides[i] = strides[i + 1] * lengths[i + 1];
        MIOPEN(miopenCreateTensorDescriptor(&descriptor));
        MIOPEN(miopenSetTensorDescriptor(descriptor, miopenFloat, (int)lengths.size(), lengths.data(), strides.data()));
        values.resize(size_t(strides[0]) * lengths[0]);
        std::mt19937 random(seed);
        for(auto& value : values) value = (int(random() % 17) - 8) / 8.f;
        HIP(hipMalloc((void**)&device, values.size() * 4));
        HIP(hipMemcpy(device, values.data(), values.size() * 4, hipMemcpyHostToDevice));
    }
    ~Packed()
    {
        (void)hipFree(device);
        (void)miopenDestroyTensorDescriptor(descriptor);
    }
    std::vector<float> download() const
    {
        std::vector<float> out(values.size());
        HIP(hipMemcpy(out.data(), device, out.size() * 4, hipMemcpyDeviceToHost));
        return out;
    }
};

// Forward convolution of `rank` spatial dimensions: 3 wide, padded by 1.
void convolve(miopenHandle_t handle, int rank, int stride)
{
    const int n = 2, c = 3, k = 4, side = 5, out_side = (side - 1) / stride + 1;
    auto sizes = [&](int a, int b, int s) {
        std::vector<int> all{a, b};
        all.insert(all.end(), rank, s);
        return all;
    };
    Packed x(sizes(n, c, side), 1), w(sizes(k, c, 3), 2), y(sizes(n, k, out_side), 3);
    std::vector<int> pads(rank, 1), strides(rank, stride), dilations(rank, 1);
    miopenConvolutionDescriptor_t convolution;
    MIOPEN(miopenCreateConvolutionDescriptor(&convolution));
    MIOPEN(miopenInitConvolutionNdDescriptor(convolution, rank, pads.data(), strides.data(), dilations.data(), miopenConvolution));
    MIOPEN(miopenConvolutionForwardImmediate(handle, w.descriptor, w.device, x.descriptor, x.device, convolution, y.descriptor, y.device, nullptr, 0, 85));
    MIOPEN(miopenDestroyConvolutionDescriptor(convolution));
    auto volume = [&](int s) { return rank == 2 ? s * s : s * s * s; };
    std::vector<double> wanted(y.values.size());
    for(int image = 0; image < n; image++)
        for(int out = 0; out < k; out++)
            for(int at = 0; at < volume(out_side); at++)
                for(int in = 0; in < c; in++)
                    for(int tap = 0; tap < volume(3); tap++)
                    {
                        int from = 0, place = 1, rest_at = at, rest_tap = tap;
                        bool inside = true;
                        for(int d = 0; d < rank; d++)
                        {
                            int position = rest_at % out_side * stride + rest_tap % 3 - 1;
                            inside       = inside && position >= 0 && position < side;
                            from += position * place;
                            place *= side;
                            rest_at /= out_side;
                            rest_tap /= 3;
                        }
                        if(!inside) continue;
                        wanted[(image * k + out) * volume(out_side) + at] +=
                            double(x.values[(image * c + in) * volume(side) + from]) * w.values[(out * c + in) * volume(3) + tap];
                    }
    compare(y.download(), wanted, miopenFloat);
}
} // namespace

int main()
{
    miopenHandle_t handle = nullptr;
    check::test("create a handle", [&] { MIOPEN(miopenCreate(&handle)); });
    if(!handle) return check::result();

    struct Activation { const char* name; miopenActivationMode_t mode; double alpha, beta, gamma; double (*f)(double); };
    const Activation activations[] = {
        {"identity", miopenActivationPASTHRU, 0, 0, 0, [](double x) { return x; }},
        {"sigmoid", miopenActivationLOGISTIC, 0, 0, 0, [](double x) { return 1 / (1 + exp(-x)); }},
        {"tanh", miopenActivationTANH, 1, 1, 0, [](double x) { return tanh(x); }},
        {"relu", miopenActivationRELU, 0, 0, 0, [](double x) { return x > 0 ? x : 0; }},
        {"softplus", miopenActivationSOFTRELU, 0, 0, 0, [](double x) { return log1p(exp(x)); }},
        {"abs", miopenActivationABS, 0, 0, 0, [](double x) { return fabs(x); }},
        {"clipped relu", miopenActivationCLIPPEDRELU, 0.5, 0, 0, [](double x) { return x < 0 ? 0 : x > 0.5 ? 0.5 : x; }},
        {"leaky relu", miopenActivationLEAKYRELU, 0.25, 0, 0, [](double x) { return x > 0 ? x : 0.25 * x; }},
        {"elu", miopenActivationELU, 0.5, 0, 0, [](double x) { return x > 0 ? x : 0.5 * expm1(x); }},
    };
    struct Place { Layout layout; bool same; const char* name; };
    for(auto type : {miopenFloat, miopenHalf})
        for(auto& a : activations)
            for(auto& place : {Place{Layout::ChannelsFirst, false, " nchw"}, Place{Layout::ChannelsFirst, true, " nchw in place"},
                               Place{Layout::ChannelsLast, true, " nhwc in place"}})
                check::test(std::string(a.name) + name(type) + place.name, [&] {
                    Tensor x({2, 3, 5, 7}, type, place.layout, 1), y({2, 3, 5, 7}, type, place.layout, 2);
                    x.upload();
                    miopenActivationDescriptor_t activation;
                    MIOPEN(miopenCreateActivationDescriptor(&activation));
                    MIOPEN(miopenSetActivationDescriptor(activation, a.mode, a.alpha, a.beta, a.gamma));
                    float one = 1, zero = 0;
                    Tensor& out = place.same ? x : y;
                    MIOPEN(miopenActivationForward(handle, activation, &one, x.descriptor, x.device, &zero, out.descriptor, out.device));
                    MIOPEN(miopenDestroyActivationDescriptor(activation));
                    std::vector<double> wanted;
                    for(float value : x.values) wanted.push_back(a.f(value));
                    compare(out.download(), wanted, type);
                });

    struct Sum { const char* name; miopenTensorOp_t op; double (*f)(double, double); };
    for(auto& sum : {Sum{"add", miopenTensorOpAdd, [](double a, double b) { return a + b; }}, Sum{"multiply", miopenTensorOpMul, [](double a, double b) { return a * b; }},
                     Sum{"min", miopenTensorOpMin, [](double a, double b) { return std::min(a, b); }},
                     Sum{"max", miopenTensorOpMax, [](double a, double b) { return std::max(a, b); }}})
        // In bfloat16 these kernels of MIOpen don't compile.
        for(auto type : {miopenFloat, miopenHalf})
            for(auto layout : {Layout::ChannelsFirst, Layout::ChannelsLast})
                for(bool bias : {true, false})
                    check::test(std::string(sum.name) + (bias ? " one value a channel" : " a whole tensor") + name(type) + (layout == Layout::ChannelsFirst ? " nchw" : " nhwc"),
                                [&] {
                                    Tensor x({2, 4, 5, 3}, type, layout, 1);
                                    Tensor b(bias ? std::vector<int>{1, 4, 1, 1} : std::vector<int>{2, 4, 5, 3}, type, layout, 2);
                                    x.upload();
                                    b.upload();
                                    // For one value a channel MIOpen's kernel takes the pixels of a channel to be adjacent, whatever the
                                    // strides say. As images of one pixel they are.
                                    if(bias && layout == Layout::ChannelsLast)
                                    {
                                        const int lengths[] = {2 * 5 * 3, 4, 1, 1}, strides[] = {4, 1, 1, 1}, bias_lengths[] = {1, 4, 1, 1};
                                        MIOPEN(miopenSetTensorDescriptor(x.descriptor, type, 4, lengths, strides));
                                        MIOPEN(miopenSetTensorDescriptor(b.descriptor, type, 4, bias_lengths, strides));
                                    }
                                    float one = 1, zero = 0;
                                    MIOPEN(miopenOpTensor(handle, sum.op, &one, x.descriptor, x.device, &one, b.descriptor, b.device, &zero, x.descriptor, x.device));
                                    std::vector<double> wanted(x.count());
                                    for(int n = 0; n < 2; n++)
                                        for(int c = 0; c < 4; c++)
                                            for(int h = 0; h < 5; h++)
                                                for(int w = 0; w < 3; w++)
                                                    wanted[x.at(n, c, h, w)] = sum.f(x.values[x.at(n, c, h, w)], b.values[bias ? b.at(0, c, 0, 0) : b.at(n, c, h, w)]);
                                    compare(x.download(), wanted, type);
                                });
    for(auto type : {miopenFloat, miopenHalf})
        check::test(std::string("scale and set") + name(type), [&] {
            Tensor x({2, 4, 5, 3}, type, Layout::ChannelsFirst, 1);
            x.upload();
            float half = 0.5f, seven = 7;
            // The value is of the tensor's type.
            const uint16_t half_bits = 0x3800, seven_bits = 0x4700;
            const void* factor       = type == miopenFloat ? (const void*)&half : &half_bits;
            const void* value        = type == miopenFloat ? (const void*)&seven : &seven_bits;
            MIOPEN(miopenScaleTensor(handle, x.descriptor, x.device, factor));
            std::vector<double> wanted;
            for(float v : x.values) wanted.push_back(v * 0.5);
            compare(x.download(), wanted, type);
            MIOPEN(miopenSetTensor(handle, x.descriptor, x.device, value));
            compare(x.download(), std::vector<double>(x.count(), 7), type);
        });

    for(int stride : {1, 2})
        check::test("convolution of three dimensions, stride " + std::to_string(stride), [&] { convolve(handle, 3, stride); });
    check::test("convolution by a general descriptor", [&] { convolve(handle, 2, 1); });
    check::test("destroy the handle", [&] { MIOPEN(miopenDestroy(handle)); });
    return check::result();
}
