#include "relu.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "flatbuffer.hpp"

namespace {

using flatbuffer::Table;

// Fields and numbers of the schemas, which are in share/hipdnn_rs/schemas.
namespace graph { enum { tensors = 4, nodes = 5 }; }
namespace node { enum { attributes_type = 2, attributes = 3 }; }
namespace tensor { enum { uid = 0, data_type = 2, strides = 3, dims = 4, is_virtual = 5, value_type = 6 }; }
namespace pointwise { enum { operation = 0, lower_clip = 1, upper_clip = 2, slope = 3, in_0 = 5, out_0 = 8 }; }
enum { POINTWISE_ATTRIBUTES = 2, FLOAT = 1, IDENTITY = 23, RELU_FWD = 34 };

constexpr std::size_t MAX_RANK = 8, MAX_TENSORS = 2, MAX_NODES = 64;
constexpr std::int64_t MAX_ELEMENTS = std::int64_t{1} << 40;

struct Shape {
    std::vector<std::int64_t> dims, strides;

    /// The number of elements if they fill one piece of memory, in whatever order of dimensions.
    std::optional<std::size_t> dense() const {
        if (dims.empty() || dims.size() != strides.size()) return std::nullopt;
        std::vector<std::pair<std::int64_t, std::int64_t>> order;
        for (std::size_t i = 0; i < dims.size(); i++) {
            if (dims[i] < 1) return std::nullopt;
            if (dims[i] > 1) order.emplace_back(strides[i], dims[i]);
        }
        std::sort(order.begin(), order.end());
        std::int64_t elements = 1;
        for (const auto& [stride, extent] : order) {
            if (stride != elements || extent > MAX_ELEMENTS / elements) return std::nullopt;
            elements *= extent;
        }
        return static_cast<std::size_t>(elements);
    }
};

/// A tensor that the engine can work on, or why it can't.
std::variant<Shape, Declined> find(const std::vector<Table>& tensors, std::int64_t uid) {
    for (const Table& found : tensors) {
        if (found.scalar<std::int64_t>(tensor::uid).value_or(0) != uid) continue;
        const std::string name = "tensor " + std::to_string(uid);
        if (found.scalar<std::int8_t>(tensor::data_type).value_or(0) != FLOAT) return Declined{"expected float, got " + name + " of another type"};
        if (found.scalar<std::uint8_t>(tensor::is_virtual).value_or(0) != 0) return Declined{"expected memory of the caller, got a virtual " + name};
        if (found.scalar<std::uint8_t>(tensor::value_type).value_or(0) != 0) return Declined{"expected memory of the caller, got a constant " + name};
        return Shape{found.longs(tensor::dims, MAX_RANK), found.longs(tensor::strides, MAX_RANK)};
    }
    return Declined{"tensor " + std::to_string(uid) + " is not in the graph"};
}

} // namespace

std::variant<Relu, Declined> Relu::of_graph(const hipdnnPluginConstData_t& bytes) {
    const Table root = Table::root({bytes.ptr, bytes.size});
    const auto nodes = root.tables(graph::nodes, MAX_NODES);
    if (nodes.size() != 1) return Declined{"expected 1 node, got " + std::to_string(nodes.size())};
    const auto attributes = nodes[0].table(node::attributes);
    if (nodes[0].scalar<std::uint8_t>(node::attributes_type).value_or(0) != POINTWISE_ATTRIBUTES || !attributes)
        return Declined{"expected a pointwise node, got another one"};
    const int operation = attributes->scalar<std::int8_t>(pointwise::operation).value_or(0);
    if (operation != RELU_FWD && operation != IDENTITY)
        return Declined{"expected ReLU or identity, got pointwise mode " + std::to_string(operation)};
    if (attributes->scalar<float>(pointwise::lower_clip).value_or(0) != 0 || attributes->scalar<float>(pointwise::slope).value_or(0) != 0 ||
        attributes->scalar<float>(pointwise::upper_clip))
        return Declined{"expected a ReLU without clips and slope, got one with them"};

    Relu plan;
    plan.clips_ = operation == RELU_FWD;
    plan.input_ = attributes->scalar<std::int64_t>(pointwise::in_0).value_or(0);
    plan.output_ = attributes->scalar<std::int64_t>(pointwise::out_0).value_or(0);
    const auto tensors = root.tables(graph::tensors, MAX_TENSORS);
    auto input = find(tensors, plan.input_), output = find(tensors, plan.output_);
    for (auto* found : {&input, &output})
        if (auto* declined = std::get_if<Declined>(found)) return std::move(*declined);
    const Shape &x = std::get<Shape>(input), &y = std::get<Shape>(output);
    const auto elements = x.dense();
    if (!elements || x.dims != y.dims || x.strides != y.strides)
        return Declined{"expected dense tensors of equal extents and strides, got others"};
    plan.elements_ = *elements;
    return plan;
}

void Relu::run(const hipdnnPluginDeviceBuffer_t* buffers, std::size_t count) const {
    const auto memory = [&](std::int64_t uid) {
        for (std::size_t i = 0; i < count; i++)
            if (buffers[i].uid == uid && buffers[i].ptr) return static_cast<float*>(buffers[i].ptr);
        throw std::invalid_argument("expected memory for tensor " + std::to_string(uid) + ", got none");
    };
    const float* x = memory(input_);
    float* y = memory(output_);
    // NaN stays NaN: it is not below zero.
    for (std::size_t i = 0; i < elements_; i++) y[i] = clips_ && x[i] < 0.0f ? 0.0f : x[i];
}
