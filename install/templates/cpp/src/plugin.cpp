// hipDNN's engine-plugin ABI: what comes in is checked here, and no exception leaves.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>

// The functions of the header are the ones to be seen from outside.
#pragma GCC visibility push(default)
#include <hipdnn_rs/hipdnn_plugin.h>
#pragma GCC visibility pop

#include "flatbuffer.hpp"
#include "relu.hpp"

struct HipdnnEnginePluginHandle {
    // Work for a GPU goes here.
    hipStream_t stream = nullptr;
};

struct HipdnnEnginePluginExecutionContext {
    Relu plan;
};

namespace {

constexpr const char* PLUGIN_NAME = "example_cpp_relu_plugin";
constexpr const char* PLUGIN_VERSION = "0.1.0";
// The oldest that hipDNN loads: it promises nothing about overridden shapes, scalars at run time or ragged tensors, so that
// no graph with them comes.
constexpr const char* API_VERSION = "1.0.0";
constexpr const char* ENGINE_NAME = "EXAMPLE_CPP_RELU_ENGINE";

/// FNV-1a of the name: how hipDNN numbers engines.
std::int64_t engine_id() {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const char* c = ENGINE_NAME; *c; c++) hash = (hash ^ static_cast<std::uint8_t>(*c)) * 0x100000001b3u;
    return static_cast<std::int64_t>(hash);
}

thread_local char last_error[2048];
std::atomic<hipdnnCallback_t> log_callback{nullptr};
std::atomic<int> log_level{HIPDNN_SEV_INFO};

void log(hipdnnSeverity_t severity, const std::string& text) {
    const auto callback = log_callback.load();
    if (callback && severity >= log_level.load()) callback(severity, (std::string(PLUGIN_NAME) + ": " + text).c_str());
}

struct Failure {
    hipdnnPluginStatus_t status;
    const char* text;
};

/// Runs a body; what it throws is a status and the thread's last error.
template <class Body> hipdnnPluginStatus_t guarded(Body body) noexcept {
    const auto failed = [](hipdnnPluginStatus_t status, const char* text) {
        std::strncpy(last_error, text, sizeof last_error - 1);
        return status;
    };
    try {
        body();
        return HIPDNN_PLUGIN_STATUS_SUCCESS;
    } catch (const Failure& failure) {
        return failed(failure.status, failure.text);
    } catch (const std::bad_alloc&) {
        return failed(HIPDNN_PLUGIN_STATUS_ALLOC_FAILED, "out of memory");
    } catch (const flatbuffer::Malformed& problem) {
        return failed(HIPDNN_PLUGIN_STATUS_INVALID_VALUE, problem.what());
    } catch (const std::invalid_argument& problem) {
        return failed(HIPDNN_PLUGIN_STATUS_INVALID_VALUE, problem.what());
    } catch (const std::exception& problem) {
        return failed(HIPDNN_PLUGIN_STATUS_INTERNAL_ERROR, problem.what());
    } catch (...) {
        return failed(HIPDNN_PLUGIN_STATUS_INTERNAL_ERROR, "an exception of no known kind");
    }
}

template <class... Pointers> void wanted(const char* names, Pointers... pointers) {
    if (!(... && (pointers != nullptr))) throw Failure{HIPDNN_PLUGIN_STATUS_BAD_PARAM, names};
}

} // namespace

hipdnnPluginStatus_t hipdnnPluginGetName(const char** name) {
    return guarded([&] {
        wanted("expected a name, got null", name);
        *name = PLUGIN_NAME;
    });
}

hipdnnPluginStatus_t hipdnnPluginGetVersion(const char** version) {
    return guarded([&] {
        wanted("expected a version, got null", version);
        *version = PLUGIN_VERSION;
    });
}

hipdnnPluginStatus_t hipdnnPluginGetApiVersion(const char** version) {
    return guarded([&] {
        wanted("expected a version, got null", version);
        *version = API_VERSION;
    });
}

hipdnnPluginStatus_t hipdnnPluginGetType(hipdnnPluginType_t* type) {
    return guarded([&] {
        wanted("expected a type, got null", type);
        *type = HIPDNN_PLUGIN_TYPE_ENGINE;
    });
}

void hipdnnPluginGetLastErrorString(const char** error_str) {
    if (error_str) *error_str = last_error;
}

hipdnnPluginStatus_t hipdnnPluginSetLoggingCallback(hipdnnCallback_t callback) {
    return guarded([&] {
        wanted("expected a callback, got null", callback);
        log_callback = callback;
    });
}

hipdnnPluginStatus_t hipdnnPluginSetLogLevel(hipdnnSeverity_t level) {
    log_level = level;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginGetAllEngineIds(int64_t* engine_ids, uint32_t max_engines, uint32_t* num_engines) {
    return guarded([&] {
        wanted("expected a number of engines, got null", num_engines);
        if (engine_ids && max_engines > 0) engine_ids[0] = engine_id();
        *num_engines = 1;
    });
}

hipdnnPluginStatus_t hipdnnEnginePluginGetEngineName(int64_t id, const char** name) {
    if (id != engine_id()) return HIPDNN_PLUGIN_STATUS_NOT_APPLICABLE;
    return guarded([&] {
        wanted("expected a name, got null", name);
        *name = ENGINE_NAME;
    });
}

hipdnnPluginStatus_t hipdnnEnginePluginCreate(hipdnnEnginePluginHandle_t* handle) {
    return guarded([&] {
        wanted("expected a handle, got null", handle);
        *handle = new HipdnnEnginePluginHandle;
    });
}

hipdnnPluginStatus_t hipdnnEnginePluginDestroy(hipdnnEnginePluginHandle_t handle) {
    delete handle;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginSetStream(hipdnnEnginePluginHandle_t handle, hipStream_t stream) {
    return guarded([&] {
        wanted("expected a handle, got null", handle);
        handle->stream = stream;
    });
}

// Declining is an answer, not an error: no engines, and the reason in the log.
hipdnnPluginStatus_t hipdnnEnginePluginGetApplicableEngineIds(hipdnnEnginePluginHandle_t handle,
                                                              const hipdnnPluginConstData_t* op_graph,
                                                              int64_t* engine_ids, uint32_t max_engines,
                                                              uint32_t* num_engines) {
    return guarded([&] {
        wanted("expected a handle, a graph and a number of engines, got null", handle, op_graph, num_engines);
        *num_engines = 0;
        std::string reason;
        try {
            const auto plan = Relu::of_graph(*op_graph);
            if (const auto* declined = std::get_if<Declined>(&plan)) reason = declined->reason;
        } catch (const flatbuffer::Malformed& problem) {
            reason = problem.what();
        }
        if (!reason.empty()) return log(HIPDNN_SEV_INFO, std::string(ENGINE_NAME) + " declines: " + reason);
        if (engine_ids && max_engines > 0) {
            engine_ids[0] = engine_id();
            *num_engines = 1;
        }
    });
}

hipdnnPluginStatus_t hipdnnEnginePluginGetEngineDetails(hipdnnEnginePluginHandle_t handle, int64_t id,
                                                        const hipdnnPluginConstData_t* op_graph,
                                                        hipdnnPluginConstData_t* engine_details) {
    return guarded([&] {
        wanted("expected a handle, a graph and details, got null", handle, op_graph, engine_details);
        if (id != engine_id()) throw Failure{HIPDNN_PLUGIN_STATUS_BAD_PARAM, "expected the engine's number, got another one"};
        // The smallest FlatBuffer with a number in it: where the table is, its list of fields (8 bytes with the padding
        // before it), the table, and the number. An engine with knobs has flatc's code for this.
        constexpr std::uint8_t head[16] = {12, 0, 0, 0, 0, 0, 6, 0, 12, 0, 4, 0, 6, 0, 0, 0};
        constexpr std::size_t size = sizeof head + sizeof id;
        auto* buffer = static_cast<std::uint8_t*>(std::malloc(size));
        if (!buffer) throw std::bad_alloc();
        std::memcpy(buffer, head, sizeof head);
        std::memcpy(buffer + sizeof head, &id, sizeof id);
        *engine_details = {buffer, size};
    });
}

hipdnnPluginStatus_t hipdnnEnginePluginDestroyEngineDetails(hipdnnEnginePluginHandle_t,
                                                            hipdnnPluginConstData_t* engine_details) {
    return guarded([&] {
        wanted("expected details, got null", engine_details);
        std::free(const_cast<void*>(engine_details->ptr));
        *engine_details = {nullptr, 0};
    });
}

hipdnnPluginStatus_t hipdnnEnginePluginGetWorkspaceSize(hipdnnEnginePluginHandle_t handle,
                                                        const hipdnnPluginConstData_t* engine_config,
                                                        const hipdnnPluginConstData_t* op_graph,
                                                        size_t* workspace_size) {
    return guarded([&] {
        wanted("expected a handle, a configuration, a graph and a size, got null", handle, engine_config, op_graph, workspace_size);
        *workspace_size = 0;
    });
}

hipdnnPluginStatus_t hipdnnEnginePluginCreateExecutionContext(hipdnnEnginePluginHandle_t handle,
                                                              const hipdnnPluginConstData_t* engine_config,
                                                              const hipdnnPluginConstData_t* op_graph,
                                                              hipdnnEnginePluginExecutionContext_t* execution_context) {
    return guarded([&] {
        wanted("expected a handle, a configuration, a graph and a context, got null", handle, engine_config, op_graph,
               execution_context);
        auto plan = Relu::of_graph(*op_graph);
        if (const auto* declined = std::get_if<Declined>(&plan)) throw std::invalid_argument(declined->reason);
        *execution_context = new HipdnnEnginePluginExecutionContext{std::get<Relu>(plan)};
    });
}

hipdnnPluginStatus_t hipdnnEnginePluginDestroyExecutionContext(hipdnnEnginePluginHandle_t,
                                                               hipdnnEnginePluginExecutionContext_t execution_context) {
    delete execution_context;
    return HIPDNN_PLUGIN_STATUS_SUCCESS;
}

hipdnnPluginStatus_t hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext(
    hipdnnEnginePluginHandle_t handle, hipdnnEnginePluginExecutionContext_t execution_context, size_t* workspace_size) {
    return guarded([&] {
        wanted("expected a handle, a context and a size, got null", handle, execution_context, workspace_size);
        *workspace_size = 0;
    });
}

hipdnnPluginStatus_t hipdnnEnginePluginExecuteOpGraph(hipdnnEnginePluginHandle_t handle,
                                                      hipdnnEnginePluginExecutionContext_t execution_context, void*,
                                                      const hipdnnPluginDeviceBuffer_t* device_buffers,
                                                      uint32_t num_device_buffers) {
    return guarded([&] {
        wanted("expected a handle, a context and buffers, got null", handle, execution_context, device_buffers);
        execution_context->plan.run(device_buffers, num_device_buffers);
    });
}
