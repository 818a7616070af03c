#include "call.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>
#include <vector>

#include "graph.h"

namespace hipemu {
namespace {
std::atomic<Site*> sites{nullptr};
std::atomic<uint64_t> total_calls{0}, injected_failures{0};

struct Rule
{
    std::string function;
    uint64_t left; // calls until it fails
    int error;
};
std::atomic<bool> armed{false};
std::mutex& rules_lock()
{
    static auto* mutex = new std::mutex;
    return *mutex;
}
std::vector<Rule>& rules()
{
    static auto* list = new std::vector<Rule>;
    return *list;
}

// "hipMalloc:3=2,*:17=719": the third hipMalloc gives 2, the 17th call of all gives 719.
bool read_environment()
{
    std::string text = Settings::get().fail;
    for(size_t at = 0; at < text.size();)
    {
        size_t end       = std::min(text.find(',', at), text.size());
        std::string rule = text.substr(at, end - at);
        at               = end + 1;
        size_t colon = rule.find(':'), equals = rule.find('=');
        if(colon == std::string::npos) message(0, "HIPEMU_FAIL: %s is not function:number[=error]", rule.c_str());
        else
            hipemu_fail_call(rule.substr(0, colon).c_str(), strtoull(rule.c_str() + colon + 1, nullptr, 10),
                             equals == std::string::npos ? hipErrorUnknown : atoi(rule.c_str() + equals + 1));
    }
    return true;
}

hipError_t take_rule(const char* name, bool counted)
{
    static const bool read = read_environment();
    (void)read;
    if(!armed.load(std::memory_order_relaxed)) return hipSuccess;
    std::lock_guard<std::mutex> guard(rules_lock());
    hipError_t error = hipSuccess;
    auto& all        = rules();
    for(size_t i = 0; i < all.size();)
    {
        bool about = all[i].function == name || (counted && all[i].function == "*");
        if(about && --all[i].left == 0)
        {
            error = (hipError_t)all[i].error;
            all.erase(all.begin() + i);
            injected_failures++;
        }
        else i++;
    }
    armed = !all.empty();
    return error;
}

std::atomic<int> trace_file{-2}; // -2: the environment was not asked yet, -1: none
int open_trace(const char* path) { return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644); }
int trace_descriptor()
{
    int file = trace_file.load(std::memory_order_relaxed);
    if(file != -2) return file;
    std::lock_guard<std::mutex> guard(rules_lock());
    if(trace_file == -2)
    {
        auto& path = Settings::get().trace;
        int opened = path.empty() ? -1 : open_trace(path.c_str());
        if(!path.empty() && opened < 0) message(0, "HIPEMU_TRACE: %s can't be opened", path.c_str());
        trace_file = opened;
    }
    return trace_file;
}

std::string quoted(const std::string& text)
{
    std::string out = "\"";
    for(char c : text)
    {
        if(c == '"' || c == '\\') out += '\\';
        if((unsigned char)c < 0x20) out += ' ';
        else out += c;
    }
    return out + "\"";
}

// One write a line, so that lines of several threads and processes don't mix.
void write_line(const char* kind, const std::string& name, double start, double end, const char* format, ...)
{
    char more[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(more, sizeof more, format, arguments);
    va_end(arguments);
    char head[256];
    snprintf(head, sizeof head, "{\"t_us\":%.3f,\"us\":%.3f,\"pid\":%d,\"thread\":%d,\"", start, end - start, (int)getpid(), thread_id());
    std::string line = std::string(head) + kind + "\":" + quoted(name) + more + "}\n";
    (void)!write(trace_file, line.data(), line.size());
}

// A device doesn't follow a fork: the child has neither the threads of its streams nor memory of its own.
std::atomic<bool> forked{false};
void watch_forks()
{
    static const int watched = pthread_atfork(nullptr, nullptr, [] { forked = true; });
    (void)watched;
}
bool refuse_forked()
{
    if(!forked.load(std::memory_order_relaxed)) return false;
    static std::atomic<bool> told{false};
    if(!told.exchange(true)) message(0, "%s in process %d, which was forked from one that uses the device", last_call(), (int)getpid());
    return true;
}

thread_local hipError_t thread_error  = hipSuccess;
thread_local const char* thread_call = "none";
} // namespace

Site::Site(const char* n, bool c) : name(n), counted(c), next(sites.load())
{
    while(!sites.compare_exchange_weak(next, this)) {}
}

hipError_t& last_error() { return thread_error; }
const char* last_call() { return thread_call; }
bool tracing() { return trace_descriptor() >= 0; }

void trace_work(const char* kind, const std::string& name, uint64_t stream, double start, hipError_t result)
{
    if(tracing()) write_line(kind, name, start, now_us(), ",\"stream\":%llu,\"result\":%d", (unsigned long long)stream, (int)result);
}

hipError_t injected_kernel_failure() { return take_rule("kernel", false); }

Call::Call(Site& site, unsigned flags) : site_(site), flags_(flags)
{
    thread_call = site.name;
    site.count.fetch_add(1, std::memory_order_relaxed);
    if(site.counted) total_calls.fetch_add(1, std::memory_order_relaxed);
    if(tracing()) start_ = now_us();
    if(Settings::get().log >= 2) message(2, "%s", site.name);
    if(flags & Device) watch_forks();
    if((flags & Device) && Settings::get().devices == 0) refused = hipErrorNoDevice;
    else if((flags & Device) && refuse_forked()) refused = hipErrorNotInitialized;
    else if(!(flags & Quiet)) refused = take_rule(site.name, site.counted), injected = refused != hipSuccess;
    if(refused == hipSuccess && (flags & Unsafe)) refused = refuse_while_capturing(site.name);
}

void Call::detail(const char* format, ...)
{
    if(!tracing()) return;
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if(!detail_.empty()) detail_ += ' ';
    detail_ += text;
}

hipError_t Call::finish(hipError_t result)
{
    // "Not ready" is an answer, not an error.
    if(result != hipSuccess && result != hipErrorNotReady && !(flags_ & Quiet)) thread_error = result;
    if(tracing())
    {
        std::string more = detail_.empty() ? "" : ",\"detail\":" + quoted(detail_);
        char end[64];
        snprintf(end, sizeof end, ",\"result\":%d", (int)result);
        double stop = now_us();
        char head[256];
        snprintf(head, sizeof head, "{\"t_us\":%.3f,\"us\":%.3f,\"pid\":%d,\"thread\":%d,\"call\":", start_, stop - start_, (int)getpid(), thread_id());
        std::string line = head + quoted(site_.name) + end + more + "}\n";
        (void)!write(trace_file, line.data(), line.size());
    }
    return result;
}
} // namespace hipemu

using namespace hipemu;

API void hipemu_fail_call(const char* function, uint64_t nth, int error)
{
    if(nth == 0) return;
    std::lock_guard<std::mutex> guard(rules_lock());
    rules().push_back({function, nth, error});
    armed = true;
}
API void hipemu_fail_clear(void)
{
    std::lock_guard<std::mutex> guard(rules_lock());
    rules().clear();
    armed = false;
}
API uint64_t hipemu_call_count(const char* function)
{
    if(strcmp(function, "*") == 0) return total_calls;
    uint64_t sum = 0;
    for(Site* site = sites; site; site = site->next)
        if(strcmp(site->name, function) == 0) sum += site->count;
    return sum;
}
API int hipemu_trace(const char* path)
{
    int opened = path ? open_trace(path) : -1;
    if(path && opened < 0) return -1;
    int before = trace_descriptor();
    trace_file = opened;
    // The old file stays open: another thread may be about to write to it.
    (void)before;
    return 0;
}
API void hipemu_trace_mark(const char* text)
{
    if(tracing()) write_line("mark", text, now_us(), now_us(), "%s", "");
}
API void hipemu_get_counters(hipemu_counters* out, size_t size)
{
    auto& c = counts();
    hipemu_counters all{};
    all.live_streams          = c.live_streams;
    all.live_events           = c.live_events;
    all.live_allocations      = c.live_allocations;
    all.live_bytes            = c.live_bytes;
    all.live_host_allocations = c.live_host_allocations;
    all.live_modules          = c.live_modules;
    all.live_graphs           = c.live_graphs;
    all.live_graph_execs      = c.live_graph_execs;
    all.calls                 = total_calls;
    all.launches              = c.launches;
    all.kernels_run           = c.kernels_run;
    all.kernels_failed        = c.kernels_failed;
    all.copies                = c.copies;
    all.fills                 = c.fills;
    all.waits                 = c.waits;
    all.injected_failures     = injected_failures;
    all.violations            = c.violations;
    memcpy(out, &all, size < sizeof all ? size : sizeof all);
}
