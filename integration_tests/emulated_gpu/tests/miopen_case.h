// One 2-d convolution problem: tensors on the device, and the answer in double precision.
#pragma once
#include "check.h"
#include <miopen/miopen.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#define MIOPEN(call) check::miopen((call), #call, __LINE__)

namespace check {
inline void miopen(miopenStatus_t status, const char* what, int line)
{
    if(status != miopenStatusSuccess) fail("line %d: %s gave %d %s", line, what, (int)status, miopenGetErrorString(status));
}
} // namespace check

enum class Direction { Forward, Backward, Weights };
enum class Layout { ChannelsFirst, ChannelsLast };

struct Problem
{
    miopenDataType_t type = miopenFloat;
    Direction direction   = Direction::Forward;
    Layout layout         = Layout::ChannelsFirst;
    int n = 1, c = 4, h = 8, w = 8, k = 8, r = 3, s = 3, pad = 1, stride = 1, dilation = 1, groups = 1;

    int out_h() const { return (h + 2 * pad - dilation * (r - 1) - 1) / stride + 1; }
    int out_w() const { return (w + 2 * pad - dilation * (s - 1) - 1) / stride + 1; }
    // The solver that has a plain HIP kernel for every problem of the direction.
    uint64_t naive_solver() const { return direction == Direction::Forward ? 85 : direction == Direction::Backward ? 86 : 87; }
    std::string name() const
    {
        const char* types[]      = {"f16", "f32", "i32", "i8", "", "bf16"};
        const char* directions[] = {"forward", "backward", "weights"};
        char text[200];
        snprintf(text, sizeof text, "%s %s %s n%d c%d %dx%d k%d %dx%d pad%d stride%d dilation%d groups%d", directions[(int)direction],
                 types[(int)type], layout == Layout::ChannelsFirst ? "nchw" : "nhwc", n, c, h, w, k, r, s, pad, stride, dilation, groups);
        return text;
    }
};

// Values are multiples of 1/8 up to 1, exact in every type.
struct Tensor
{
    miopenDataType_t type;
    std::vector<int> lengths, strides;
    miopenTensorDescriptor_t descriptor = nullptr;
    void* device                        = nullptr;
    std::vector<float> values;

    Tensor(std::vector<int> sizes, miopenDataType_t t, Layout layout, unsigned seed) : type(t), lengths(std::move(sizes)), strides(4, 1)
    {
        const int first[] = {0, 1, 2, 3}, last[] = {0, 2, 3, 1};
        int step = 1;
        for(int i = 3; i >= 0; i--)
        {
            int axis      = (layout == Layout::ChannelsFirst ? first : last)[i];
            strides[axis] = step;
            step *= lengths[axis];
        }
        MIOPEN(miopenCreateTensorDescriptor(&descriptor));
        MIOPEN(miopenSetTensorDescriptor(descriptor, type, 4, lengths.data(), strides.data()));
        HIP(hipMalloc(&device, bytes()));
        std::mt19937 random(seed);
        values.resize(count());
        for(auto& value : values) value = (int(random() % 17) - 8) / 8.f;
    }
    ~Tensor()
    {
        (void)hipFree(device);
        (void)miopenDestroyTensorDescriptor(descriptor);
    }
    Tensor(const Tensor&) = delete;

    size_t count() const { return size_t(lengths[0]) * lengths[1] * lengths[2] * lengths[3]; }
    size_t bytes() const { return count() * (type == miopenFloat ? 4 : 2); }
    size_t at(int a, int b, int c, int d) const { return size_t(a) * strides[0] + b * strides[1] + c * strides[2] + d * strides[3]; }

    void upload()
    {
        std::vector<uint8_t> raw(bytes());
        for(size_t i = 0; i < count(); i++)
        {
            if(type == miopenFloat) memcpy(&raw[i * 4], &values[i], 4);
            else if(type == miopenHalf)
            {
                _Float16 half = (_Float16)values[i];
                memcpy(&raw[i * 2], &half, 2);
            }
            else memcpy(&raw[i * 2], (const char*)&values[i] + 2, 2); // exact: no rounding needed
        }
        HIP(hipMemcpy(device, raw.data(), raw.size(), hipMemcpyHostToDevice));
    }
    std::vector<float> download() const
    {
        std::vector<uint8_t> raw(bytes());
        HIP(hipMemcpy(raw.data(), device, raw.size(), hipMemcpyDeviceToHost));
        std::vector<float> out(count());
        for(size_t i = 0; i < count(); i++)
        {
            if(type == miopenFloat) memcpy(&out[i], &raw[i * 4], 4);
            else if(type == miopenHalf)
            {
                _Float16 half;
                memcpy(&half, &raw[i * 2], 2);
                out[i] = (float)half;
            }
            else
            {
                out[i] = 0;
                memcpy((char*)&out[i] + 2, &raw[i * 2], 2);
            }
        }
        return out;
    }
};

struct Case
{
    Problem p;
    Tensor x, weights, y;
    miopenConvolutionDescriptor_t convolution = nullptr;
    std::vector<double> wanted;

    explicit Case(const Problem& problem)
        : p(problem),
          x({p.n, p.c, p.h, p.w}, p.type, p.layout, 1),
          weights({p.k, p.c / p.groups, p.r, p.s}, p.type, p.layout, 2),
          y({p.n, p.k, p.out_h(), p.out_w()}, p.type, p.layout, 3)
    {
        MIOPEN(miopenCreateConvolutionDescriptor(&convolution));
        MIOPEN(miopenInitConvolutionDescriptor(convolution, miopenConvolution, p.pad, p.pad, p.stride, p.stride, p.dilation, p.dilation));
        if(p.groups > 1) MIOPEN(miopenSetConvolutionGroupCount(convolution, p.groups));
        compute();
        for(Tensor* t : {&x, &weights, &y})
            if(t != &output()) t->upload();
    }
    ~Case() { (void)miopenDestroyConvolutionDescriptor(convolution); }

    Tensor& output() { return p.direction == Direction::Forward ? y : p.direction == Direction::Backward ? x : weights; }

    void compute()
    {
        wanted.assign(output().count(), 0);
        const int per_group = p.k / p.groups, channels = p.c / p.groups;
        for(int n = 0; n < p.n; n++)
            for(int k = 0; k < p.k; k++)
                for(int i = 0; i < p.out_h(); i++)
                    for(int j = 0; j < p.out_w(); j++)
                        for(int c = 0; c < channels; c++)
                            for(int r = 0; r < p.r; r++)
                                for(int s = 0; s < p.s; s++)
                                {
                                    int row = i * p.stride - p.pad + r * p.dilation, column = j * p.stride - p.pad + s * p.dilation;
                                    if(row < 0 || column < 0 || row >= p.h || column >= p.w) continue;
                                    size_t xi = x.at(n, k / per_group * channels + c, row, column), wi = weights.at(k, c, r, s), yi = y.at(n, k, i, j);
                                    if(p.direction == Direction::Forward) wanted[yi] += double(x.values[xi]) * weights.values[wi];
                                    else if(p.direction == Direction::Backward) wanted[xi] += double(y.values[yi]) * weights.values[wi];
                                    else wanted[wi] += double(y.values[yi]) * x.values[xi];
                                }
    }

    // Runs one solver in immediate mode on the handle's stream.
    void launch(miopenHandle_t handle, uint64_t solver, void* workspace = nullptr, size_t bytes = 0)
    {
        if(p.direction == Direction::Forward)
            MIOPEN(miopenConvolutionForwardImmediate(handle, weights.descriptor, weights.device, x.descriptor, x.device, convolution,
                                                     y.descriptor, y.device, workspace, bytes, solver));
        else if(p.direction == Direction::Backward)
            MIOPEN(miopenConvolutionBackwardDataImmediate(handle, y.descriptor, y.device, weights.descriptor, weights.device, convolution,
                                                          x.descriptor, x.device, workspace, bytes, solver));
        else
            MIOPEN(miopenConvolutionBackwardWeightsImmediate(handle, y.descriptor, y.device, x.descriptor, x.device, convolution,
                                                             weights.descriptor, weights.device, workspace, bytes, solver));
    }

    void compile(miopenHandle_t handle, uint64_t solver)
    {
        if(p.direction == Direction::Forward)
            MIOPEN(miopenConvolutionForwardCompileSolution(handle, weights.descriptor, x.descriptor, convolution, y.descriptor, solver));
        else if(p.direction == Direction::Backward)
            MIOPEN(miopenConvolutionBackwardDataCompileSolution(handle, y.descriptor, weights.descriptor, convolution, x.descriptor, solver));
        else
            MIOPEN(miopenConvolutionBackwardWeightsCompileSolution(handle, y.descriptor, x.descriptor, convolution, weights.descriptor, solver));
    }

    // Sums of multiples of 1/64 are exact in the accumulator (below 2^18); what is left is rounding once to the
    // output type: half a unit in the last place, 2^-24, 2^-11 or 2^-8 of the value.
    void compare()
    {
        const double unit = p.type == miopenFloat ? 0x1p-24 : p.type == miopenHalf ? 0x1p-11 : 0x1p-8;
        auto got          = output().download();
        for(size_t i = 0; i < got.size(); i++)
        {
            double bound = unit * std::fabs(wanted[i]);
            if(!(std::fabs(got[i] - wanted[i]) <= bound)) check::fail("element %zu is %g, not %g", i, got[i], wanted[i]);
        }
    }
};
