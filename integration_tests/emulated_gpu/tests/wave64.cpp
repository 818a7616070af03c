// Instructions of gfx942: waves of 64 lanes, the names and forms of GFX9, and the matrix instructions of CDNA 3. Each group by
// a small kernel, beside the host's result.
#include "kernels.h"

#include <cmath>
#include <cstring>
#include <random>
#include <string>

namespace {
constexpr int LANES = 64;

// Kernels of a source, each run by one work-group.
struct Program
{
    hipModule_t module;
    explicit Program(const std::string& source)
    {
        hiprtcProgram program;
        if(hiprtcCreateProgram(&program, source.c_str(), "wave64.hip", 0, nullptr, nullptr)) check::fail("hiprtcCreateProgram");
        if(hiprtcCompileProgram(program, 0, nullptr))
        {
            size_t bytes;
            std::string log;
            if(!hiprtcGetProgramLogSize(program, &bytes))
            {
                log.resize(bytes);
                (void)hiprtcGetProgramLog(program, log.data());
            }
            check::fail("hiprtcCompileProgram: %s", log.c_str());
        }
        size_t bytes;
        if(hiprtcGetCodeSize(program, &bytes)) check::fail("hiprtcGetCodeSize");
        std::vector<char> code(bytes);
        if(hiprtcGetCode(program, code.data())) check::fail("hiprtcGetCode");
        (void)hiprtcDestroyProgram(&program);
        HIP(hipModuleLoadData(&module, code.data()));
    }
    ~Program() { (void)hipModuleUnload(module); }
    Program(const Program&) = delete;

    // Runs `name` on copies of `in`, for `out`.
    template <class I, class O> std::vector<O> run(const char* name, const std::vector<I>& in, size_t out, int threads = LANES) const
    {
        hipFunction_t kernel;
        HIP(hipModuleGetFunction(&kernel, module, name));
        void *from, *to;
        std::vector<O> results(out);
        HIP(hipMalloc(&from, in.size() * sizeof(I)));
        HIP(hipMalloc(&to, out * sizeof(O)));
        HIP(hipMemcpy(from, in.data(), in.size() * sizeof(I), hipMemcpyHostToDevice));
        HIP(hipMemset(to, 0, out * sizeof(O)));
        void* arguments[] = {&from, &to};
        HIP(hipModuleLaunchKernel(kernel, 1, 1, 1, threads, 1, 1, 0, nullptr, arguments, nullptr));
        HIP(hipMemcpy(results.data(), to, out * sizeof(O), hipMemcpyDeviceToHost));
        HIP(hipFree(from));
        HIP(hipFree(to));
        return results;
    }
};

template <class T> void same(const std::vector<T>& got, const std::vector<T>& wanted, const char* what)
{
    for(size_t i = 0; i < wanted.size(); i++)
        if(memcmp(&got[i], &wanted[i], sizeof(T)))
            check::fail("%s: element %zu is %g (%llx), not %g (%llx)", what, i, (double)got[i], (unsigned long long)got[i], (double)wanted[i], (unsigned long long)wanted[i]);
}

// Values that no two lanes share.
std::vector<unsigned> numbers(size_t n)
{
    std::mt19937 random(7);
    std::vector<unsigned> all(n);
    for(auto& x : all) x = random();
    return all;
}
std::vector<float> floats(size_t n, unsigned seed = 3)
{
    std::mt19937 random(seed);
    std::vector<float> all(n);
    for(auto& x : all) x = (int(random() % 4001) - 2000) / 256.f;
    return all;
}
using Words = std::vector<unsigned>;

// A kernel whose body makes `r` of `x`, the lane's number, by one instruction.
std::string one(const char* name, const std::string& assembly)
{
    return std::string("extern \"C\" __global__ void ") + name + "(const unsigned* from, unsigned* to) { unsigned l = threadIdx.x, x = from[l], r = 0xabcd0123; asm volatile(\"" +
           assembly + "\" : \"+v\"(r) : \"v\"(x)); to[l] = r; }\n";
}

void lanes()
{
    struct Case { const char* name; const char* control; std::function<int(int)> from; bool zero; };
    // The lane that each reads; below zero: none.
    const Case cases[] = {
        {"quad_perm", "quad_perm:[3,1,0,2]", [](int l) { return (l & ~3) | (int[]){3, 1, 0, 2}[l & 3]; }, false},
        {"row_shl", "row_shl:3", [](int l) { return l % 16 + 3 < 16 ? l + 3 : -1; }, false},
        {"row_shr", "row_shr:5", [](int l) { return l % 16 >= 5 ? l - 5 : -1; }, false},
        {"row_shr_zero", "row_shr:5", [](int l) { return l % 16 >= 5 ? l - 5 : -1; }, true},
        {"row_ror", "row_ror:4", [](int l) { return (l & ~15) + (l + 12) % 16; }, false},
        {"row_mirror", "row_mirror", [](int l) { return (l & ~15) + 15 - l % 16; }, false},
        {"row_half_mirror", "row_half_mirror", [](int l) { return (l & ~7) + 7 - l % 8; }, false},
        {"wave_shl", "wave_shl:1", [](int l) { return l < 63 ? l + 1 : -1; }, false},
        {"wave_shr", "wave_shr:1", [](int l) { return l - 1; }, false},
        {"wave_rol", "wave_rol:1", [](int l) { return (l + 1) % 64; }, false},
        {"wave_ror", "wave_ror:1", [](int l) { return (l + 63) % 64; }, false},
        {"row_bcast15", "row_bcast:15", [](int l) { return l / 16 * 16 - 1; }, false},
        {"row_bcast31", "row_bcast:31", [](int l) { return l < 32 ? -1 : 31; }, false},
        {"row_newbcast", "row_newbcast:6", [](int l) { return l / 16 * 16 + 6; }, false},
    };
    std::string source;
    for(auto& c : cases)
        source += one(c.name, std::string("s_nop 4\\n v_mov_b32_dpp %0, %1 ") + c.control + " row_mask:0xf bank_mask:0xf" + (c.zero ? " bound_ctrl:0" : ""));
    source += one("masked", "s_nop 4\\n v_add_u32_dpp %0, %1, %1 row_mirror row_mask:0xa bank_mask:0x5");
    Program program(source);
    const auto x = numbers(LANES);
    for(auto& c : cases)
    {
        Words wanted(LANES);
        for(int l = 0; l < LANES; l++) wanted[l] = c.from(l) >= 0 ? x[c.from(l)] : c.zero ? 0 : 0xabcd0123;
        same(program.run<unsigned, unsigned>(c.name, x, LANES), wanted, c.name);
    }
    Words wanted(LANES, 0xabcd0123);
    for(int l = 0; l < LANES; l++)
        if((0xa >> (l / 16) & 1) && (0x5 >> (l % 16 / 4) & 1)) wanted[l] = x[l] + x[(l & ~15) + 15 - l % 16];
    same(program.run<unsigned, unsigned>("masked", x, LANES), wanted, "masked");
}

void parts()
{
    const char* names[] = {"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD"};
    auto part = [](unsigned x, int which) { return which == 6 ? x : which > 3 ? x >> 16 * (which - 4) & 0xffff : x >> 8 * which & 0xff; };
    std::string source;
    auto name = [](const char* kind, int k) { return std::string(kind) + std::to_string(k); };
    for(int k = 0; k < 7; k++)
    {
        source += one(name("source", k).c_str(), std::string("v_add_u32_sdwa %0, %1, %1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:") + names[k] + " src1_sel:DWORD");
        for(const char* rest : {"PAD", "SEXT", "PRESERVE"})
            source += one(name(rest, k).c_str(), std::string("v_mov_b32_sdwa %0, %1 dst_sel:") + names[k] + " dst_unused:UNUSED_" + rest + " src0_sel:DWORD");
    }
    source += one("sext", "v_add_u32_sdwa %0, sext(%1), %1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_2 src1_sel:WORD_1");
    Program program(source);
    const auto x = numbers(LANES);
    for(int k = 0; k < 7; k++)
    {
        Words wanted[4] = {Words(LANES), Words(LANES), Words(LANES), Words(LANES)};
        const int shift = k == 6 ? 0 : k > 3 ? 16 * (k - 4) : 8 * k, width = k == 6 ? 32 : k > 3 ? 16 : 8;
        for(int l = 0; l < LANES; l++)
        {
            wanted[0][l]          = part(x[l], k) + x[l];
            const unsigned value  = part(x[l], k == 6 ? 6 : k > 3 ? 4 : 0) << shift;
            const unsigned filled = width == 32 ? ~0u : ((1u << width) - 1) << shift;
            wanted[1][l]          = value;
            wanted[2][l]          = width == 32 ? value : unsigned((int)(value << (32 - width - shift)) >> (32 - width - shift));
            wanted[3][l]          = value | (0xabcd0123 & ~filled);
        }
        const char* kinds[] = {"source", "PAD", "SEXT", "PRESERVE"};
        for(int kind = 0; kind < 4; kind++)
            same(program.run<unsigned, unsigned>(name(kinds[kind], k).c_str(), x, LANES), wanted[kind], name(kinds[kind], k).c_str());
    }
    Words wanted(LANES);
    for(int l = 0; l < LANES; l++) wanted[l] = (int)(signed char)(x[l] >> 16) + (x[l] >> 16);
    same(program.run<unsigned, unsigned>("sext", x, LANES), wanted, "sext");
}

void across()
{
    Program program(R"hip(
extern "C" __global__ void across(const unsigned* from, unsigned* to)
{
    unsigned l = threadIdx.x, x = from[l];
    to[l]       = __builtin_amdgcn_ds_bpermute(4 * ((l * 7 + 3) & 63), x);
    to[64 + l]  = __builtin_amdgcn_ds_permute(4 * ((l * 5 + 1) & 63), x);
    to[128 + l] = __builtin_amdgcn_ds_swizzle(x, 0x401f); // lane xor 16
    to[192 + l] = __builtin_amdgcn_ds_swizzle(x, 0x801b); // a quad backwards
    to[256 + l] = __builtin_amdgcn_readlane(x, 45);
    to[320 + l] = l > 40 ? __builtin_amdgcn_readfirstlane(x) : 1;
    to[384 + l] = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
    unsigned long ballot = __builtin_amdgcn_ballot_w64(x & 1);
    to[448 + l] = ballot >> l & 1;
    to[512 + l] = __builtin_popcountl(ballot);
    unsigned written = x;
    asm volatile("v_writelane_b32 %0, %1, 50" : "+v"(written) : "s"(77));
    to[576 + l] = written;
}
)hip");
    const auto x = numbers(LANES);
    Words wanted(640);
    unsigned ones = 0;
    for(auto value : x) ones += value & 1;
    for(int l = 0; l < LANES; l++)
    {
        wanted[l]                          = x[(l * 7 + 3) & 63];
        wanted[64 + ((l * 5 + 1) & 63)]    = x[l];
        wanted[128 + l]                    = x[l ^ 16];
        wanted[192 + l]                    = x[(l & ~3) + 3 - (l & 3)];
        wanted[256 + l]                    = x[45];
        wanted[320 + l]                    = l > 40 ? x[41] : 1;
        wanted[384 + l]                    = l;
        wanted[448 + l]                    = x[l] & 1;
        wanted[512 + l]                    = ones;
        wanted[576 + l]                    = l == 50 ? 77 : x[l];
    }
    same(program.run<unsigned, unsigned>("across", x, 640), wanted, "across");
}

// Branches that lanes take apart, loops of different length, and a group whose last wave is not full.
void branches()
{
    Program program(R"hip(
extern "C" __global__ void branches(const unsigned* from, unsigned* to)
{
    unsigned l = threadIdx.x, x = from[l], r = 0;
    for(unsigned k = 0; k < l % 37; k++)
    {
        if(x >> (k & 31) & 1) r += k * 3;
        else if(k % 5 == 2) continue;
        else r ^= x + k;
        if(r == 0x1234567) break;
    }
    __shared__ unsigned all[200];
    all[l] = r;
    __syncthreads();
    to[l] = all[(l + 71) % blockDim.x] + __ballot(l > 100) % 1009;
}
)hip");
    const int threads = 150;
    const auto x      = numbers(threads);
    Words r(threads), wanted(threads);
    for(int l = 0; l < threads; l++)
        for(unsigned k = 0; k < unsigned(l) % 37; k++)
        {
            if(x[l] >> (k & 31) & 1) r[l] += k * 3;
            else if(k % 5 == 2) continue;
            else r[l] ^= x[l] + k;
            if(r[l] == 0x1234567) break;
        }
    for(int l = 0; l < threads; l++)
    {
        unsigned long ballot = 0;
        for(int other = l / 64 * 64; other < std::min(threads, l / 64 * 64 + 64); other++) ballot |= (unsigned long)(other > 100) << other % 64;
        wanted[l] = r[(l + 71) % threads] + ballot % 1009;
    }
    same(program.run<unsigned, unsigned>("branches", x, threads, threads), wanted, "branches");
}

void integers()
{
    Program program(R"hip(
extern "C" __global__ void integers(const unsigned* from, unsigned long* to)
{
    unsigned l = threadIdx.x, x = from[l], y = from[63 - l];
    unsigned long a = (unsigned long)x << 32 | y, b = (unsigned long)y << 20 | l;
    to[l]       = a + b;
    to[64 + l]  = a - b;
    to[128 + l] = a * b;
    to[192 + l] = (a << 3) + b;
    to[256 + l] = __builtin_clz(x | 1) + 100 * __builtin_ctz(x | 1u << 31) + 10000 * __builtin_popcountl(a);
    to[320 + l] = a / (y | 1);
    to[384 + l] = (long)a >> (l & 63);
    to[448 + l] = a < b ? x % 1000 : y % 77;
    to[512 + l] = (unsigned short)((unsigned short)x * (unsigned short)y + (short)l) + ((unsigned long)(unsigned char)(x >> 8) << 32);
    to[576 + l] = __builtin_elementwise_sub_sat(x, y) + (unsigned long)__builtin_elementwise_add_sat(x, y);
}
)hip");
    const auto v = numbers(LANES);
    using Longs  = std::vector<unsigned long>;
    Longs wanted(640);
    for(int l = 0; l < LANES; l++)
    {
        const unsigned x = v[l], y = v[63 - l];
        const unsigned long a = (unsigned long)x << 32 | y, b = (unsigned long)y << 20 | l;
        wanted[l]       = a + b;
        wanted[64 + l]  = a - b;
        wanted[128 + l] = a * b;
        wanted[192 + l] = (a << 3) + b;
        wanted[256 + l] = __builtin_clz(x | 1) + 100 * __builtin_ctz(x | 1u << 31) + 10000 * __builtin_popcountl(a);
        wanted[320 + l] = a / (y | 1);
        wanted[384 + l] = (long)a >> (l & 63);
        wanted[448 + l] = a < b ? x % 1000 : y % 77;
        wanted[512 + l] = (unsigned short)((unsigned)(unsigned short)x * (unsigned short)y + l) + ((unsigned long)(unsigned char)(x >> 8) << 32);
        wanted[576 + l] = (unsigned long)(x > y ? x - y : 0) + (unsigned)std::min<unsigned long>((unsigned long)x + y, ~0u);
    }
    same(program.run<unsigned, unsigned long>("integers", v, 640), wanted, "integers");
}

void packed()
{
    Program program(R"hip(
typedef float pair __attribute__((ext_vector_type(2)));
typedef _Float16 halves __attribute__((ext_vector_type(2)));
extern "C" __global__ void packed(const float* from, float* to)
{
    unsigned l = threadIdx.x;
    pair a = {from[l], from[l + 64]}, b = {from[l + 128], from[l + 192]}, r;
    asm volatile("v_pk_fma_f32 %0, %1, %2, %1" : "=v"(r) : "v"(a), "v"(b));
    to[l] = r.x; to[64 + l] = r.y;
    asm volatile("v_pk_mul_f32 %0, %1, %2 op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[1,0]" : "=v"(r) : "v"(a), "v"(b));
    to[128 + l] = r.x; to[192 + l] = r.y;
    asm volatile("v_pk_add_f32 %0, %1, %2" : "=v"(r) : "v"(a), "v"(b));
    to[256 + l] = r.x; to[320 + l] = r.y;
    asm volatile("v_pk_mov_b32 %0, %1, %2 op_sel:[1,0]" : "=v"(r) : "v"(a), "v"(b));
    to[384 + l] = r.x; to[448 + l] = r.y;
    float through;
    asm volatile("v_accvgpr_write_b32 a7, %1\n s_nop 4\n v_accvgpr_read_b32 %0, a7" : "=v"(through) : "v"(a.x) : "a7");
    to[512 + l] = through;
    halves h = {(_Float16)a.x, (_Float16)a.y}, g = {(_Float16)b.x, (_Float16)b.y}, s = h * g + h;
    to[576 + l] = (float)s.x; to[640 + l] = (float)s.y;
    // What the older operations of 16 bits leave in the upper half is zero.
    unsigned high = 0xffffffff;
    asm volatile("v_add_f16 %0, %1, %1" : "+v"(high) : "v"((_Float16)1));
    to[704 + l] = (float)high;
    high = 0xffff0000;
    asm volatile("v_fma_f16 %0, %1, %1, %1" : "+v"(high) : "v"((_Float16)1));
    to[768 + l] = (float)(high >> 16);
}
)hip");
    const auto v = floats(256);
    std::vector<float> wanted(832);
    auto half = [](float x) { return (_Float16)x; };
    for(int l = 0; l < LANES; l++)
    {
        const float a0 = v[l], a1 = v[l + 64], b0 = v[l + 128], b1 = v[l + 192];
        const float all[] = {fmaf(a0, b0, a0), fmaf(a1, b1, a1), -a1 * b0, a0 * b1, a0 + b0, a1 + b1, a1, b0, a0};
        for(int k = 0; k < 9; k++) wanted[64 * k + l] = all[k];
        wanted[576 + l] = (float)half((float)fma((double)half(a0), (double)half(b0), (double)half(a0)));
        wanted[640 + l] = (float)half((float)fma((double)half(a1), (double)half(b1), (double)half(a1)));
        wanted[704 + l] = 0x4000;
        wanted[768 + l] = 0xffff;
    }
    same(program.run<float, float>("packed", v, 832), wanted, "packed");
}

void doubles()
{
    Program program(R"hip(
extern "C" __global__ void doubles(const float* from, double* to)
{
    unsigned l = threadIdx.x;
    double a = from[l], b = from[l + 64];
    to[l]       = a * b + a;
    to[64 + l]  = a / (b * b + 1);
    to[128 + l] = sqrt(a * a + 2);
    to[192 + l] = (double)(long)(a * 1e6) + (int)b;
    to[256 + l] = (float)(a / 3);
    to[320 + l] = fmin(a, b) + floor(b) + (a > b ? 1 : 0);
}
)hip");
    const auto v = floats(128);
    std::vector<double> wanted(384);
    for(int l = 0; l < LANES; l++)
    {
        const double a = v[l], b = v[l + 64];
        wanted[l]       = fma(a, b, a);
        wanted[64 + l]  = a / fma(b, b, 1);
        wanted[128 + l] = sqrt(fma(a, a, 2));
        wanted[192 + l] = (double)(long)(a * 1e6) + (int)b;
        wanted[256 + l] = (float)(a / 3);
        wanted[320 + l] = fmin(a, b) + floor(b) + (a > b ? 1 : 0);
    }
    same(program.run<float, double>("doubles", v, 384), wanted, "doubles");
}

// Sizes of access, byte by byte too, and LDS; atomics of all lanes on one place.
void memory()
{
    Program program(R"hip(
typedef unsigned four __attribute__((ext_vector_type(4)));
typedef unsigned three __attribute__((ext_vector_type(3)));
extern "C" __global__ void memory(const unsigned* from, unsigned* to)
{
    unsigned l = threadIdx.x;
    __shared__ unsigned char bytes[1024];
    __shared__ unsigned counters[8];
    __shared__ unsigned long wide[2];
    __shared__ float sums[2];
    if(l < 8) counters[l] = l == 3 ? ~0u : 0;
    if(l < 2) { wide[l] = 0; sums[l] = 0; }
    *(four*)(bytes + 16 * l) = *(const four*)(from + 4 * l);
    __syncthreads();
    unsigned o = (l * 13) & 63;
    to[l]       = bytes[16 * o + 5] | *(unsigned short*)(bytes + 16 * o + 6) << 8;
    to[64 + l]  = (int)(signed char)bytes[16 * o + 1] + (int)*(short*)(bytes + 16 * o + 2);
    to[128 + l] = *(unsigned*)(bytes + 8 * o) + *(unsigned*)(bytes + 8 * o + 512 - (o & 32) * 16);
    unsigned long two = *(unsigned long*)(bytes + 8 * o);
    to[192 + l] = (unsigned)(two >> 24);
    ((unsigned char*)(to + 256))[l] = (unsigned char)from[l];
    ((unsigned short*)(to + 320))[l] = (unsigned short)(from[l] >> 7);
    *(three*)(to + 384 + 3 * l) = three{from[l], from[l + 1], from[l + 2]};
    unsigned before = atomicAdd(&counters[0], l);
    atomicOr(&counters[1], 1u << (l & 31));
    atomicMax((int*)&counters[2], (int)(l * 37 % 64));
    atomicMin(&counters[3], l + 5);
    atomicCAS(&counters[4], 0u, l + 1);
    atomicAdd(&wide[0], (unsigned long)l << 30);
    atomicAdd(&sums[0], (float)l);
    unsigned taken = atomicExch(&counters[5], l);
    __syncthreads();
    to[576 + l] = l < 6 ? counters[l] : l == 6 ? (unsigned)(wide[0] >> 20) : l == 7 ? (unsigned)sums[0] : 0;
    atomicAdd(to + 640, 1u);
    atomicAdd((float*)(to + 641), 0.5f);
    atomicMax((unsigned long*)(to + 642), (unsigned long)l << 33);
    atomicAdd((double*)(to + 644), 0.25);
    to[646 + l] = (before < 2016 + l) + (taken < 64);
}
)hip");
    const auto v = numbers(256);
    const auto* b = (const unsigned char*)v.data();
    auto at16 = [&](int o) { return b[o] | b[o + 1] << 8; };
    auto at32 = [&](int o) { unsigned x; memcpy(&x, b + o, 4); return x; };
    Words wanted(710);
    for(int l = 0; l < LANES; l++)
    {
        const int o        = (l * 13) & 63;
        wanted[l]          = b[16 * o + 5] | at16(16 * o + 6) << 8;
        wanted[64 + l]     = (int)(signed char)b[16 * o + 1] + (int)(short)at16(16 * o + 2);
        wanted[128 + l]    = at32(8 * o) + at32(8 * o + 512 - (o & 32) * 16);
        wanted[192 + l]    = (unsigned)((at32(8 * o) | (unsigned long)at32(8 * o + 4) << 32) >> 24);
        ((unsigned char*)&wanted[256])[l]  = (unsigned char)v[l];
        ((unsigned short*)&wanted[320])[l] = (unsigned short)(v[l] >> 7);
        for(int k = 0; k < 3; k++) wanted[384 + 3 * l + k] = v[l + k];
        wanted[646 + l] = 2;
    }
    // Lanes take their turns in order in the emulator, and any order gives all but the first to come and the last.
    const unsigned counters[] = {2016, ~0u, 63, 5, 1, 63, unsigned((2016ul << 30) >> 20), 2016};
    for(int k = 0; k < 8; k++) wanted[576 + k] = counters[k];
    wanted[640] = 64;
    const float sum = 32;
    memcpy(&wanted[641], &sum, 4);
    const unsigned long most = 63ul << 33;
    memcpy(&wanted[642], &most, 8);
    const double wide = 16;
    memcpy(&wanted[644], &wide, 8);
    same(program.run<unsigned, unsigned>("memory", v, 710), wanted, "memory");
}

void conversions()
{
    Program program(R"hip(
extern "C" __global__ void conversions(const float* from, float* to)
{
    unsigned l = threadIdx.x;
    float a = from[l], b = from[l + 64];
    _Float16 h = (_Float16)a;
    __bf16 c = (__bf16)b;
    to[l]       = (float)h;
    to[64 + l]  = (float)c;
    to[128 + l] = (float)(int)a + (float)(unsigned)(b * b);
    to[192 + l] = (float)(signed char)(int)a + (float)((unsigned char*)&b)[1];
    to[256 + l] = rintf(a) + truncf(b) + ceilf(a) + floorf(b);
    to[320 + l] = (float)(short)h + (float)(_Float16)(unsigned short)(b * b);
}
)hip");
    const auto v = floats(128);
    std::vector<float> wanted(384);
    auto bf = [](float x) {
        unsigned bits;
        memcpy(&bits, &x, 4);
        bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
        memcpy(&x, &bits, 4);
        return x;
    };
    for(int l = 0; l < LANES; l++)
    {
        const float a = v[l], b = v[l + 64];
        wanted[l]       = (float)(_Float16)a;
        wanted[64 + l]  = bf(b);
        wanted[128 + l] = (float)(int)a + (float)(unsigned)(b * b);
        wanted[192 + l] = (float)(signed char)(int)a + (float)((const unsigned char*)&b)[1];
        wanted[256 + l] = rintf(a) + truncf(b) + ceilf(a) + floorf(b);
        wanted[320 + l] = (float)(short)(_Float16)a + (float)(_Float16)(float)(unsigned short)(b * b);
    }
    same(program.run<float, float>("conversions", v, 384), wanted, "conversions");
}

// A register chosen by a number that only the run knows.
void chosen_registers()
{
    Program program(R"hip(
extern "C" __global__ void chosen(const unsigned* from, unsigned* to)
{
    unsigned l = threadIdx.x, v[12];
    for(int k = 0; k < 12; k++) v[k] = from[(l + 5 * k) & 63];
    unsigned which = __builtin_amdgcn_readfirstlane(from[64]) % 12;
    v[which] += 9;
    unsigned sum = 0;
    for(int k = 0; k < 12; k++) sum = sum * 31 + v[k];
    to[l] = sum + v[(which + 4) % 12];
}
)hip");
    const auto x = numbers(65);
    Words wanted(LANES);
    for(int l = 0; l < LANES; l++)
    {
        unsigned v[12], sum = 0;
        const unsigned which = x[64] % 12;
        for(int k = 0; k < 12; k++) v[k] = x[(l + 5 * k) & 63];
        v[which] += 9;
        for(int k = 0; k < 12; k++) sum = sum * 31 + v[k];
        wanted[l] = sum + v[(which + 4) % 12];
    }
    same(program.run<unsigned, unsigned>("chosen", x, LANES), wanted, "chosen");
}

// A matrix product by one instruction, beside the sum in double precision. How the kernel lays out rows and columns is told by
// AMD's published tables, here written for each shape, and not by what the emulator computes from.
struct Product
{
    const char *name, *builtin, *element;
    int side, k, blocks, in_lane; // neighboring k in a lane
};
void product(const Product& p)
{
    const int registers = p.side * p.side * p.blocks / 64;
    std::string source = "typedef " + std::string(p.element) + " element;\n";
    const std::string n = std::to_string(p.in_lane), r = std::to_string(registers);
    source += p.in_lane > 1 ? "typedef element run __attribute__((ext_vector_type(" + n + ")));\n" : "typedef element run;\n";
    source += "typedef float result __attribute__((ext_vector_type(" + r + ")));\n";
    const bool is_short = std::string(p.element) == "short";
    source += R"hip(
extern "C" __global__ void product(const float* from, float* to)
{
    unsigned l = threadIdx.x;
    run a, b;
    result c;
)hip";
    auto input = [&](const char* name, int offset) {
        for(int e = 0; e < p.in_lane; e++)
        {
            std::string at = "from[" + std::to_string(offset) + " + l * " + n + " + " + std::to_string(e) + "]";
            // bfloat16 comes as its bits: inputs are exact in it.
            std::string value = is_short ? "(short)(__builtin_bit_cast(unsigned, " + at + ") >> 16)" : "(element)" + at;
            source += std::string("    ") + name + (p.in_lane > 1 ? "[" + std::to_string(e) + "]" : "") + " = " + value + ";\n";
        }
    };
    input("a", 0);
    input("b", 64 * p.in_lane);
    for(int k = 0; k < registers; k++) source += "    c[" + std::to_string(k) + "] = from[" + std::to_string(128 * p.in_lane) + " + l * " + r + " + " + std::to_string(k) + "];\n";
    source += "    c = " + std::string(p.builtin) + "(a, b, c, 0, 0, 0);\n";
    for(int k = 0; k < registers; k++) source += "    to[l * " + r + " + " + std::to_string(k) + "] = c[" + std::to_string(k) + "];\n";
    source += "}\n";
    Program program(source);

    // Eighths up to two: exact in every type.
    std::mt19937 random(11);
    std::vector<float> in(128 * p.in_lane + 64 * registers);
    for(auto& x : in) x = (int(random() % 33) - 16) / 8.f;
    const auto got = program.run<float, float>("product", in, 64 * registers);
    // Where rows of A (columns of B) lie: lane and place in the lane.
    auto operand = [&](int offset, int row, int block, int k) {
        const int lane = p.blocks > 1 ? row + p.side * block : row + p.side * (k / p.in_lane);
        return (double)in[offset + lane * p.in_lane + k % p.in_lane];
    };
    for(int block = 0; block < p.blocks; block++)
        for(int row = 0; row < p.side; row++)
            for(int column = 0; column < p.side; column++)
            {
                int lane, place;
                if(p.side == 32) lane = column + 32 * (row / 4 % 2), place = 16 * block + row / 8 * 4 + row % 4;
                else if(p.side == 16) lane = column + 16 * (row / 4), place = 4 * block + row % 4;
                else lane = column + 4 * block, place = row;
                double wanted = in[128 * p.in_lane + lane * registers + place], magnitude = std::fabs(wanted);
                for(int k = 0; k < p.k; k++)
                {
                    const double term = operand(0, row, block, k) * operand(64 * p.in_lane, column, block, k);
                    wanted += term;
                    magnitude += std::fabs(term);
                }
                const double result = got[lane * registers + place];
                if(!(std::fabs(result - wanted) <= p.k * 0x1p-23 * magnitude))
                    check::fail("block %d, row %d, column %d is %g, not %g", block, row, column, result, wanted);
            }
}
} // namespace

int main()
{
    hipDeviceProp_tR0600 properties;
    check::test("properties", [&] {
        HIP(hipGetDevicePropertiesR0600(&properties, 0));
        EXPECT(properties.warpSize == LANES);
        EXPECT(std::string(properties.gcnArchName) == "gfx942:sramecc+:xnack-");
        EXPECT(properties.multiProcessorCount == 8);
        EXPECT(properties.major == 9 && properties.minor == 4);
    });
    check::test("lanes moved by DPP", lanes);
    check::test("parts of registers by SDWA", parts);
    check::test("lanes across the wave", across);
    check::test("branches of 64 lanes", branches);
    check::test("integers", integers);
    check::test("packed floats, accumulation registers, halves", packed);
    check::test("doubles", doubles);
    check::test("memory, LDS and atomics", memory);
    check::test("conversions", conversions);
    check::test("registers chosen at run time", chosen_registers);
    for(auto& p : {Product{"f32 32x32x2", "__builtin_amdgcn_mfma_f32_32x32x2f32", "float", 32, 2, 1, 1}, Product{"f32 16x16x4", "__builtin_amdgcn_mfma_f32_16x16x4f32", "float", 16, 4, 1, 1},
                   Product{"f32 32x32x1, 2 blocks", "__builtin_amdgcn_mfma_f32_32x32x1f32", "float", 32, 1, 2, 1},
                   Product{"f32 16x16x1, 4 blocks", "__builtin_amdgcn_mfma_f32_16x16x1f32", "float", 16, 1, 4, 1},
                   Product{"f32 4x4x1, 16 blocks", "__builtin_amdgcn_mfma_f32_4x4x1f32", "float", 4, 1, 16, 1},
                   Product{"f16 32x32x8", "__builtin_amdgcn_mfma_f32_32x32x8f16", "_Float16", 32, 8, 1, 4}, Product{"f16 16x16x16", "__builtin_amdgcn_mfma_f32_16x16x16f16", "_Float16", 16, 16, 1, 4},
                   Product{"f16 32x32x4, 2 blocks", "__builtin_amdgcn_mfma_f32_32x32x4f16", "_Float16", 32, 4, 2, 4},
                   Product{"bf16 32x32x8", "__builtin_amdgcn_mfma_f32_32x32x8bf16_1k", "short", 32, 8, 1, 4},
                   Product{"bf16 16x16x16", "__builtin_amdgcn_mfma_f32_16x16x16bf16_1k", "short", 16, 16, 1, 4},
                   Product{"bf16 4x4x4, 16 blocks", "__builtin_amdgcn_mfma_f32_4x4x4bf16_1k", "short", 4, 4, 16, 4}})
        check::test(std::string("matrix product ") + p.name, [&] { product(p); });
    check::test("an instruction that is not there is named", [] {
        Program program(one("unknown", "v_cvt_pk_fp8_f32 %0, %1, %1"));
        hipFunction_t kernel;
        HIP(hipModuleGetFunction(&kernel, program.module, "unknown"));
        Buffer in(LANES), out(LANES);
        void* arguments[] = {&in.p, &out.p};
        HIP(hipModuleLaunchKernel(kernel, 1, 1, 1, LANES, 1, 1, 0, nullptr, arguments, nullptr));
        HIP_GIVES(hipErrorLaunchFailure, hipDeviceSynchronize());
    });
    return check::result();
}
