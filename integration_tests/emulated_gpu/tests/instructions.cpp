// Instructions that only some functions of the compiler's math library use, by those functions, and operands that it rarely
// writes.
#include "kernels.h"

#include <cmath>

namespace {
// Of each value all the functions, one after the other.
constexpr int FUNCTIONS = 3;

hipModule_t load(const char* source)
{
    hiprtcProgram program;
    if(hiprtcCreateProgram(&program, source, "functions.hip", 0, nullptr, nullptr)) check::fail("hiprtcCreateProgram");
    if(hiprtcCompileProgram(program, 0, nullptr)) check::fail("hiprtcCompileProgram");
    size_t bytes;
    if(hiprtcGetCodeSize(program, &bytes)) check::fail("hiprtcGetCodeSize");
    std::vector<char> code(bytes);
    if(hiprtcGetCode(program, code.data())) check::fail("hiprtcGetCode");
    (void)hiprtcDestroyProgram(&program);
    hipModule_t module;
    HIP(hipModuleLoadData(&module, code.data()));
    return module;
}

std::vector<double> on_device(const std::vector<double>& values)
{
    const char* source = R"(
extern "C" __global__ void functions(const double* from, double* to, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if(i >= n) return;
    to[3 * i]     = sin(from[i]);
    to[3 * i + 1] = cos(from[i]);
    to[3 * i + 2] = tan(from[i]);
}
)";
    hipModule_t module = load(source);
    hipFunction_t functions;
    HIP(hipModuleGetFunction(&functions, module, "functions"));
    int n = (int)values.size();
    std::vector<double> results(FUNCTIONS * values.size());
    double *from, *to;
    HIP(hipMalloc((void**)&from, n * sizeof(double)));
    HIP(hipMalloc((void**)&to, FUNCTIONS * n * sizeof(double)));
    HIP(hipMemcpy(from, values.data(), n * sizeof(double), hipMemcpyHostToDevice));
    void* arguments[] = {&from, &to, &n};
    HIP(hipModuleLaunchKernel(functions, (n + 63) / 64, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr));
    HIP(hipMemcpy(results.data(), to, results.size() * sizeof(double), hipMemcpyDeviceToHost));
    HIP(hipFree(from));
    HIP(hipFree(to));
    HIP(hipModuleUnload(module));
    return results;
}

void compare(const std::vector<double>& values)
{
    auto got = on_device(values);
    for(size_t i = 0; i < values.size(); i++)
    {
        double x = values[i], wanted[FUNCTIONS] = {std::sin(x), std::cos(x), std::tan(x)};
        const char* names[] = {"sin", "cos", "tan"};
        for(int k = 0; k < FUNCTIONS; k++)
        {
            double result = got[FUNCTIONS * i + k];
            // The library promises two units in the last place, the host's one.
            double bound = 4 * 0x1p-53 * std::fabs(wanted[k]);
            bool same    = std::isnan(wanted[k]) ? std::isnan(result) : std::fabs(result - wanted[k]) <= bound;
            if(!same) check::fail("%s(%a) is %a, not %a", names[k], x, result, wanted[k]);
        }
    }
}
} // namespace

int main()
{
    check::test("small angles", [] {
        std::vector<double> angles;
        for(int i = -200; i <= 200; i++) angles.push_back(i * 0.37);
        compare(angles);
    });
    // v_trig_preop_f64: bits of 2/pi by the exponent.
    check::test("angles of any size", [] {
        std::vector<double> angles;
        for(int exponent = 20; exponent < 1024; exponent += 3)
            for(double mantissa : {1.0, 1.3, 1.9999999}) angles.push_back(std::ldexp(mantissa, exponent));
        for(size_t i = 0, n = angles.size(); i < n; i++) angles.push_back(-angles[i]);
        compare(angles);
    });
    check::test("angles that are no number", [] { compare({INFINITY, -INFINITY, NAN}); });
    // Where one is encoded though there is a shorter way the disassembler says lit(…). 64 bits of 32 have zeros in front.
    check::test("literals", [] {
        hipModule_t module = load(R"hip(
extern "C" __global__ void literals(unsigned long* to)
{
    unsigned long pair, large;
    unsigned one;
    asm volatile("s_mov_b64 %0, lit(0x0)" : "=s"(pair));
    asm volatile("v_mov_b32 %0, lit(0x7)" : "=v"(one));
    asm volatile("s_mov_b64 %0, 0x80000001" : "=s"(large));
    to[0] = pair;
    to[1] = one;
    to[2] = large;
}
)hip");
        hipFunction_t literals;
        HIP(hipModuleGetFunction(&literals, module, "literals"));
        unsigned long results[3], *to;
        HIP(hipMalloc((void**)&to, sizeof results));
        void* arguments[] = {&to};
        HIP(hipModuleLaunchKernel(literals, 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr));
        HIP(hipMemcpy(results, to, sizeof results, hipMemcpyDeviceToHost));
        if(results[0] != 0 || results[1] != 7 || results[2] != 0x80000001ul)
            check::fail("the literals are %lx, %lx and %lx", results[0], results[1], results[2]);
        HIP(hipFree(to));
        HIP(hipModuleUnload(module));
    });
    return check::result();
}
