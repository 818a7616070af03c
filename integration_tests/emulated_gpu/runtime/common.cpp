#include "common.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <sys/syscall.h>
#include <unistd.h>

namespace hipemu {
namespace {
uint64_t number(const char* name, uint64_t otherwise)
{
    const char* value = getenv(name);
    return value && *value ? strtoull(value, nullptr, 0) : otherwise;
}
std::string text(const char* name, const char* otherwise = "")
{
    const char* value = getenv(name);
    return value && *value ? value : otherwise;
}
double monotonic_us()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}
const double start_us = monotonic_us();
} // namespace

const Settings& Settings::get()
{
    static const Settings* settings = [] {
        auto* s          = new Settings;
        s->emulator      = text("HIPEMU_EMULATOR");
        s->arch          = text("HIPEMU_ARCH", "gfx1100");
        s->dump          = text("HIPEMU_DUMP");
        s->trace         = text("HIPEMU_TRACE");
        s->fail          = text("HIPEMU_FAIL");
        s->devices       = getenv("HIPEMU_NODEVICE") ? 0 : (int)number("HIPEMU_DEVICES", 1);
        s->compute_units = (int)number("HIPEMU_CUS", 8);
        s->log           = (int)number("HIPEMU_LOG", 0);
        s->memory        = number("HIPEMU_MEM_MB", 4096) << 20;
        s->largest       = number("HIPEMU_MAX_ALLOC_MB", 0) << 20;
        s->host_access   = number("HIPEMU_HOST_ACCESS", 0) != 0;
        s->poison        = number("HIPEMU_POISON", 1) != 0;
        s->delay_us      = number("HIPEMU_DELAY_US", 0);
        s->seed          = number("HIPEMU_SEED", 1);
        s->skip          = getenv("HIPEMU_SKIP") != nullptr;
        return s;
    }();
    return *settings;
}

void message(int level, const char* format, ...)
{
    if(level > Settings::get().log) return;
    char line[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(stderr, "[hipemu] %s\n", line);
}

std::mutex& lock()
{
    static auto* mutex = new std::mutex;
    return *mutex;
}
std::condition_variable& changed()
{
    static auto* condition = new std::condition_variable;
    return *condition;
}

double now_us() { return monotonic_us() - start_us; }
int thread_id()
{
    static thread_local int id = (int)syscall(SYS_gettid);
    return id;
}

Counts& counts()
{
    static auto* all = new Counts;
    return *all;
}
Switches& switches()
{
    static auto* all = [] {
        auto* s         = new Switches;
        auto& from      = Settings::get();
        s->skip         = from.skip;
        s->delay_us     = from.delay_us;
        s->seed         = from.seed;
        s->memory_limit = from.memory;
        s->single_limit = from.largest;
        return s;
    }();
    return *all;
}
} // namespace hipemu
