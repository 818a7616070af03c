// Reporting of test results: one line each, `PASS name` or `FAIL name: reason`.
#pragma once
#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>

#include <cstdarg>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>

namespace check {
struct Failure : std::runtime_error
{
    using std::runtime_error::runtime_error;
};

[[noreturn]] __attribute__((format(printf, 1, 2))) inline void fail(const char* format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    throw Failure(text);
}

inline int& failures()
{
    static int count = 0;
    return count;
}

// Runs one test. Other tests run whatever this one does.
inline void test(const std::string& name, const std::function<void()>& body)
{
    try
    {
        body();
        printf("PASS %s\n", name.c_str());
    }
    catch(const std::exception& problem)
    {
        failures()++;
        printf("FAIL %s: %s\n", name.c_str(), problem.what());
    }
    fflush(stdout);
}

inline int result() { return failures() ? 1 : 0; }

inline void hip(hipError_t got, hipError_t wanted, const char* what, int line)
{
    if(got != wanted)
        fail("line %d: %s gave %s, not %s", line, what, hipGetErrorName(got), hipGetErrorName(wanted));
}
} // namespace check

// The call succeeds, or gives just this error.
#define HIP(call) check::hip((call), hipSuccess, #call, __LINE__)
#define HIP_GIVES(error, call) check::hip((call), error, #call, __LINE__)
#define EXPECT(condition)                                                    \
    do                                                                       \
    {                                                                        \
        if(!(condition)) check::fail("line %d: not %s", __LINE__, #condition); \
    } while(0)
