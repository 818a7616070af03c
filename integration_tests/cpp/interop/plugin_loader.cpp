// Loads an engine plugin the way hipDNN's backend does (its symbols in that order, what it checks of versions, ids and
// names), and takes graphs through it: applicability, details, workspace, context, execution, results.
//   plugin_loader PLUGIN.so [--device] [--only TEXT]
#include <dlfcn.h>

#include <map>
#include <set>

#include "engine_generated.h"
#include "graphs.hpp"
#include "hipdnn_plugin.h"
#include "memory.hpp"
#include "report.hpp"

// hipDNN's engine id of a name: FNV-1a of 64 bits.
static int64_t id_of(const char* name)
{
    uint64_t hash = 14695981039346656037ull;
    for(; *name; name++) hash = (hash ^ uint8_t(*name)) * 1099511628211ull;
    return int64_t(hash);
}

static std::string last_line; // of the log
static void log_line(hipdnnSeverity_t, const char* text)
{
    last_line = text ? text : "(null)";
}

// What the loader needs, in the order in which it looks.
#define ENGINE_FUNCTIONS(X)                                                                                            \
    X(GetAllEngineIds)                                                                                                 \
    X(Create)                                                                                                          \
    X(Destroy)                                                                                                         \
    X(SetStream)                                                                                                       \
    X(GetApplicableEngineIds)                                                                                          \
    X(GetEngineDetails)                                                                                                \
    X(DestroyEngineDetails)                                                                                            \
    X(GetWorkspaceSize)                                                                                                \
    X(CreateExecutionContext)                                                                                          \
    X(DestroyExecutionContext)                                                                                         \
    X(GetWorkspaceSizeFromExecutionContext)                                                                            \
    X(ExecuteOpGraph)                                                                                                  \
    X(SerializeExecutionContext)                                                                                       \
    X(DestroySerializedExecutionContext)                                                                               \
    X(CreateExecutionContextFromSerialized)

struct Plugin
{
    decltype(&hipdnnPluginGetName) name;
    decltype(&hipdnnPluginGetVersion) version;
    decltype(&hipdnnPluginGetType) type;
    decltype(&hipdnnPluginGetLastErrorString) last_error;
    decltype(&hipdnnPluginGetApiVersion) api_version;
    decltype(&hipdnnPluginSetLoggingCallback) set_log;
    decltype(&hipdnnPluginSetLogLevel) set_level;
    decltype(&hipdnnEnginePluginGetEngineName) engine_name;
#define X(function) decltype(&hipdnnEnginePlugin##function) function;
    ENGINE_FUNCTIONS(X)
#undef X

    std::string error() const
    {
        const char* text = nullptr;
        last_error(&text);
        return text ? text : "(null)";
    }
    std::string told(const char* call, int status) const
    {
        return std::string(call) + ": status " + std::to_string(status) + " " + error();
    }
};

static Plugin plugin;
static hipdnnEnginePluginHandle_t handle;

// Whether all symbols are there that the loader needs.
static bool resolve(void* library)
{
    bool all = true;
    auto find = [&](auto& function, const std::string& name)
    {
        function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name.c_str()));
        report::check("symbol " + name, function, "it is missing");
        all = all && function;
    };
    find(plugin.name, "hipdnnPluginGetName");
    find(plugin.version, "hipdnnPluginGetVersion");
    find(plugin.type, "hipdnnPluginGetType");
    find(plugin.last_error, "hipdnnPluginGetLastErrorString");
    find(plugin.api_version, "hipdnnPluginGetApiVersion");
    find(plugin.set_log, "hipdnnPluginSetLoggingCallback");
    find(plugin.set_level, "hipdnnPluginSetLogLevel");
#define X(function) find(plugin.function, "hipdnnEnginePlugin" #function);
    ENGINE_FUNCTIONS(X)
#undef X
    find(plugin.engine_name, "hipdnnEnginePluginGetEngineName");
    return all;
}

// What the loader asks once; the engines' names by id.
static std::map<int64_t, std::string> identify()
{
    const char *name = nullptr, *version = nullptr, *api = nullptr;
    hipdnnPluginType_t type{};
    report::check("the plugin has a name and a version",
                  !plugin.name(&name) && name && !plugin.version(&version) && version, "null");
    report::check("the plugin's type is engine", !plugin.type(&type) && type == HIPDNN_PLUGIN_TYPE_ENGINE,
                  std::to_string(type));
    int major = -1, minor = -1, patch = -1;
    bool read = !plugin.api_version(&api) && api && std::sscanf(api, "%d.%d.%d", &major, &minor, &patch) == 3;
    report::check("the API version is 1.x.y", read && major == 1, api ? api : "null");
    report::check("a log level before a callback", !plugin.set_level(HIPDNN_SEV_INFO), plugin.error());
    report::check("a log callback", !plugin.set_log(log_line), plugin.error());

    uint32_t total = 0, filled = 0;
    bool counted = !plugin.GetAllEngineIds(nullptr, 0, &total) && total > 0;
    std::vector<int64_t> ids(total);
    report::check("the engines are counted, then listed",
                  counted && !plugin.GetAllEngineIds(ids.data(), total, &filled) && filled == total, plugin.error());
    report::check("engine ids differ", std::set<int64_t>(ids.begin(), ids.end()).size() == ids.size(), "some repeat");
    std::map<int64_t, std::string> names;
    for(auto id : ids)
    {
        const char* engine = nullptr;
        bool named = !plugin.engine_name(id, &engine) && engine;
        names[id] = named ? engine : std::to_string(id);
        report::check("the id of " + names[id] + " is its name's", named && id_of(engine) == id, "it is another");
    }
    return names;
}

// A configuration with every knob at its default, as the backend makes it of the details; empty with a reason in
// `wrong`.
static std::vector<uint8_t> configuration(int64_t id, const hipdnnPluginConstData_t& graph, std::string& wrong)
{
    hipdnnPluginConstData_t details{};
    if(auto status = plugin.GetEngineDetails(handle, id, &graph, &details))
    {
        wrong = plugin.told("GetEngineDetails", status);
        return {};
    }
    flatbuffers::Verifier verifier(static_cast<const uint8_t*>(details.ptr), details.size);
    flatbuffers::FlatBufferBuilder b;
    if(!verifier.VerifyBuffer<wire::EngineDetails>()) wrong = "the details do not verify";
    else
    {
        auto* described = flatbuffers::GetRoot<wire::EngineDetails>(details.ptr);
        if(described->engine_id() != id) wrong = "the details are another engine's";
        std::vector<flatbuffers::Offset<wire::KnobSetting>> settings;
        if(described->knobs())
            for(auto* knob : *described->knobs())
            {
                auto type = knob->default_value_type();
                auto value =
                    type == wire::KnobValue::IntValue
                        ? wire::CreateIntValue(b, knob->default_value_as_IntValue()->value()).Union()
                    : type == wire::KnobValue::FloatValue
                        ? wire::CreateFloatValue(b, knob->default_value_as_FloatValue()->value()).Union()
                        : wire::CreateStringValue(b, b.CreateString(knob->default_value_as_StringValue()->value()))
                              .Union();
                settings.push_back(wire::CreateKnobSetting(b, b.CreateString(knob->knob_id()), type, value));
            }
        b.Finish(wire::CreateEngineConfigDirect(b, id, settings.empty() ? nullptr : &settings));
    }
    plugin.DestroyEngineDetails(handle, &details);
    if(wrong.empty() && details.ptr) wrong = "DestroyEngineDetails leaves the pointer";
    return wrong.empty() ? std::vector<uint8_t>(b.GetBufferPointer(), b.GetBufferPointer() + b.GetSize())
                         : std::vector<uint8_t>();
}

// The largest difference of a case's output from what is expected.
static double difference(const Case& c, const std::vector<hipdnnPluginDeviceBuffer_t>& buffers, const Memory& memory)
{
    double worst = 0;
    for(size_t i = 0; i < c.buffers.size(); i++)
    {
        if(c.buffers[i].uid != c.out) continue;
        std::vector<uint8_t> got(c.buffers[i].bytes.size());
        memory.read(got.data(), buffers[i].ptr, got.size());
        for(size_t e = 0; e < c.expected.size(); e++)
        {
            float value = got[e];
            if(c.out_width == 4) std::memcpy(&value, &got[e * 4], 4);
            double away = std::fabs(double(value) - c.expected[e]);
            if(!(away <= worst)) worst = away;
        }
    }
    return worst;
}

// A context of a case, with memory for its buffers and its workspace.
struct Context
{
    hipdnnEnginePluginExecutionContext_t raw = nullptr;
    size_t announced = 0, wanted = 0;
    std::vector<hipdnnPluginDeviceBuffer_t> buffers;
    void* workspace = nullptr;
};

// Calls that are wrong in one respect are answered with a status and a text.
static void mistakes(const std::string& name, const Case& c, const hipdnnPluginConstData_t& graph,
                     const Context& context)
{
    auto refuses = [&](const char* what, int status)
    { report::check(name + ", " + what, status != 0 && !plugin.error().empty(), "status " + std::to_string(status)); };
    auto execute = [&](void* workspace, const std::vector<hipdnnPluginDeviceBuffer_t>& buffers)
    { return plugin.ExecuteOpGraph(handle, context.raw, workspace, buffers.data(), uint32_t(buffers.size())); };
    if(context.wanted > 0) refuses("no workspace", execute(nullptr, context.buffers));
    auto fewer = context.buffers;
    fewer.pop_back();
    refuses("a tensor missing", execute(context.workspace, fewer));
    auto more = context.buffers;
    more.push_back({999, context.buffers[0].ptr});
    int status = execute(context.workspace, more);
    report::check(name + ", a tensor too many is passed over", status == 0, plugin.told("ExecuteOpGraph", status));
    flatbuffers::FlatBufferBuilder b;
    b.Finish(wire::CreateEngineConfigDirect(b, 12345));
    hipdnnPluginConstData_t unknown{b.GetBufferPointer(), b.GetSize()};
    hipdnnEnginePluginExecutionContext_t none = nullptr;
    refuses("an unknown engine", plugin.CreateExecutionContext(handle, &unknown, &graph, &none));
    hipdnnPluginConstData_t half{c.graph.data(), c.graph.size() / 2};
    uint32_t count = 0;
    status = plugin.GetApplicableEngineIds(handle, &half, nullptr, 0, &count);
    report::check(name + ", half a graph has no engine", count == 0,
                  std::to_string(count) + " engines, status " + std::to_string(status));
}

// Stores a context, destroys it and makes it again, as the loader does for a client that keeps a plan; what went wrong.
static std::string travel(Context& context)
{
    hipdnnPluginConstData_t lent{};
    if(auto status = plugin.SerializeExecutionContext(handle, context.raw, &lent))
        return plugin.told("SerializeExecutionContext", status);
    if(!lent.ptr || !lent.size) return "SerializeExecutionContext gives nothing";
    auto* bytes = static_cast<const uint8_t*>(lent.ptr);
    std::vector<uint8_t> stored(bytes, bytes + lent.size);
    if(auto status = plugin.DestroySerializedExecutionContext(handle, &lent))
        return plugin.told("DestroySerializedExecutionContext", status);
    if(lent.ptr) return "DestroySerializedExecutionContext leaves the pointer";
    if(auto status = plugin.DestroyExecutionContext(handle, context.raw))
        return plugin.told("DestroyExecutionContext", status);
    context.raw = nullptr;
    hipdnnPluginConstData_t half{stored.data(), stored.size() / 2}, whole{stored.data(), stored.size()};
    if(!plugin.CreateExecutionContextFromSerialized(handle, &half, &context.raw)) return "half a context is taken";
    if(auto status = plugin.CreateExecutionContextFromSerialized(handle, &whole, &context.raw))
        return plugin.told("CreateExecutionContextFromSerialized", status);
    size_t wanted = 0;
    if(auto status = plugin.GetWorkspaceSizeFromExecutionContext(handle, context.raw, &wanted))
        return plugin.told("GetWorkspaceSizeFromExecutionContext", status);
    return wanted == context.wanted ? "" : "the context wants another workspace after it was stored";
}

// Executes a context; what went wrong.
static std::string execute(const Case& c, const Context& context, const Memory& memory)
{
    for(size_t i = 0; i < c.buffers.size(); i++)
        memory.write(context.buffers[i].ptr, c.buffers[i].bytes.data(), c.buffers[i].bytes.size());
    if(auto status = plugin.ExecuteOpGraph(handle, context.raw, context.workspace, context.buffers.data(),
                                           uint32_t(context.buffers.size())))
        return plugin.told("ExecuteOpGraph", status);
    double worst = difference(c, context.buffers, memory);
    return worst <= c.tolerance ? "" : "largest difference " + std::to_string(worst);
}

// Builds and runs a case on an engine; what went wrong.
static std::string run(const std::string& name, const Case& c, int64_t id, bool with_mistakes, const Memory& memory)
{
    hipdnnPluginConstData_t graph{c.graph.data(), c.graph.size()};
    std::string wrong;
    auto bytes = configuration(id, graph, wrong);
    if(!wrong.empty()) return wrong;
    hipdnnPluginConstData_t config{bytes.data(), bytes.size()};
    Context context;
    if(auto status = plugin.GetWorkspaceSize(handle, &config, &graph, &context.announced))
        return plugin.told("GetWorkspaceSize", status);
    if(auto status = plugin.CreateExecutionContext(handle, &config, &graph, &context.raw))
        return plugin.told("CreateExecutionContext", status);
    if(auto status = plugin.GetWorkspaceSizeFromExecutionContext(handle, context.raw, &context.wanted))
        wrong = plugin.told("GetWorkspaceSizeFromExecutionContext", status);
    else if(context.wanted > context.announced) wrong = "the context wants more workspace than the configuration said";
    for(auto& buffer : c.buffers)
    {
        void* address = memory.get(buffer.bytes.size());
        context.buffers.push_back({buffer.uid, address});
    }
    if(context.wanted > 0) context.workspace = memory.get(context.wanted);
    if(wrong.empty()) wrong = execute(c, context, memory);
    if(with_mistakes && wrong.empty()) mistakes(name, c, graph, context);
    if(wrong.empty())
    {
        wrong = travel(context);
        if(wrong.empty()) wrong = execute(c, context, memory);
        if(!wrong.empty()) wrong = "after it was stored: " + wrong;
    }
    auto status = context.raw ? plugin.DestroyExecutionContext(handle, context.raw) : 0;
    if(status) wrong = plugin.told("DestroyExecutionContext", status);
    for(auto& buffer : context.buffers) memory.put(buffer.ptr);
    if(context.workspace) memory.put(context.workspace);
    return wrong;
}

int main(int count, char** words)
{
    Options options(count, words);
    Memory memory(options.device);
    void* library = dlopen(options.argument.c_str(), RTLD_NOW | RTLD_LOCAL);
    if(!library)
    {
        report::fail("dlopen", dlerror());
        return 1;
    }
    if(!resolve(library)) return 1;
    auto names = identify();
    if(plugin.Create(&handle))
    {
        report::fail("Create", plugin.error());
        return 1;
    }
    report::check("SetStream", !plugin.SetStream(handle, static_cast<hipStream_t>(memory.stream())), plugin.error());
    bool mistaken = false;
    for(auto& c : cases())
    {
        if(!options.takes(c.name)) continue;
        hipdnnPluginConstData_t graph{c.graph.data(), c.graph.size()};
        uint32_t fitting = 0;
        last_line.clear();
        int status = plugin.GetApplicableEngineIds(handle, &graph, nullptr, 0, &fitting);
        std::vector<int64_t> ids(fitting);
        if(!status && fitting > 0)
            status = plugin.GetApplicableEngineIds(handle, &graph, ids.data(), fitting, &fitting);
        if(status) report::fail(c.name, plugin.told("GetApplicableEngineIds", status));
        else if(ids.empty()) report::refused(c.name, last_line);
        for(auto id : ids)
        {
            auto name = c.name + " on " + names[id];
            auto wrong = run(name, c, id, !mistaken, memory);
            mistaken = true;
            report::check(name, wrong.empty(), wrong);
        }
    }
    report::check("Destroy", !plugin.Destroy(handle), plugin.error());
    report::check("dlclose", dlclose(library) == 0, "it fails");
    return report::failures() != 0;
}
