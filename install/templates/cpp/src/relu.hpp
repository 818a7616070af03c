// The engine: what graphs it takes, and what it computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include <hipdnn_rs/hipdnn_plugin.h>

/// Why the engine does not take a graph.
struct Declined {
    std::string reason;
};

/// One ReLU or identity, ready to run.
class Relu {
  public:
    /// The plan of a graph, or why there is none.
    /// @throws flatbuffer::Malformed if the bytes are no graph
    static std::variant<Relu, Declined> of_graph(const hipdnnPluginConstData_t& graph);

    /// Computes on the host memory that a variant pack names.
    /// @throws std::invalid_argument if a tensor is not in it
    void run(const hipdnnPluginDeviceBuffer_t* buffers, std::size_t count) const;

  private:
    std::int64_t input_ = 0, output_ = 0;
    std::size_t elements_ = 0;
    bool clips_ = false;
};
