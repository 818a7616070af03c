// A wave of 32 or 64 lanes, decoded instructions, and access to their operands.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "../include/hipemu_dispatch.h"

namespace gfxemu {
using u8  = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i8  = int8_t;
using i16 = int16_t;
using i32 = int32_t;
using i64 = int64_t;
using f16 = _Float16;

template <class T, class F> T bits(F f)
{
    static_assert(sizeof(T) == sizeof(F), "");
    T t;
    memcpy(&t, &f, sizeof t);
    return t;
}
inline float bf2f(u16 b) { return bits<float>(u32(b) << 16); }

// Places of scalar registers: the encoding's of RDNA 3, whatever the architecture, because operands come by name.
enum { FLAT_SCRATCH = 102, XNACK_MASK = 104, VCC = 106, M0 = 125, SNULL = 124, EXEC = 126, SCC = 200, SHARED_BASE = 201, PRIVATE_BASE = 202, ZERO_SREG = 203 };
// Vector registers: accumulation registers follow those that every architecture has, and behind them are the operands that
// DPP and SDWA select, which no program can name.
enum { MOST_LANES = 64, ACCUMULATION = 256, SELECTED = 512, VECTOR_REGISTERS = 516 };
constexpr u64 SHARED_APERTURE = 0x0001000000000000ull, PRIVATE_APERTURE = 0x0002000000000000ull;

struct Inst;
struct Wave;
using Handler = void (*)(Wave&, const Inst&);

struct Operand
{
    enum K : u8 { None, V, S, C } k = None;
    u8 half = 0; // 1: .l  2: .h  ZERO_HIGH: a result of 16 bits fills the register with zeros
    u8 n    = 1; // registers
    bool neg = false, abs = false, hex = false, isf = false, sext = false;
    u16 idx = 0;
    u32 c32 = 0;
    u16 c16 = 0;
    u64 c64 = 0, cf64 = 0; // as an integer / as a double
};
constexpr u8 ZERO_HIGH = 3;
// Lane controls; a wave is shifted, and a row's last lane is broadcast to what follows, on GFX9 only.
enum Dpp : u8 { NoDpp, QuadPerm, RowShl, RowShr, RowRor, RowMirror, RowHalfMirror, RowShare, RowXmask, Dpp8, WaveShl, WaveShr, WaveRol, WaveRor, RowBcast };
// What SDWA takes of a source's register, and where in the destination's it puts the result.
enum Select : u8 { Byte0, Byte1, Byte2, Byte3, Word0, Word1, Dword };
enum Unused : u8 { Pad, Sext, Preserve };
struct Inst
{
    Handler h = nullptr;
    int n     = 0;
    Operand o[6];
    u32 size = 4, raw = 0;
    u8 bytes[20] = {}; // what was decoded: code memory may be reused by another module
    Handler inner = nullptr; // the plain operation under h_dual
    int offset = 0, off0 = 0, off1 = 0, aux = 0, omod = 0;
    u8 op_sel = 0, op_sel_hi = 7, neg_lo = 0, neg_hi = 0;
    bool clamp = false, glc = false, offen = false, idxen = false, saddr_off = false, has_op_sel = false;
    u8 dpp = NoDpp, row_mask = 15, bank_mask = 15;
    bool bound_ctrl = false;
    u8 dpp_sel[8] = {};
    bool sdwa = false;
    Select dst_sel = Dword, src_sel[2] = {Dword, Dword};
    Unused dst_unused = Pad;
    u8 first_source = 1;     // place among the operands
    u8 cbsz = 0, abid = 0, blgp = 0; // matrix instructions: blocks of A that are broadcast, which, permutation of B
    Inst* y       = nullptr; // second half of a dual-issue pair
    Inst* plain   = nullptr; // the operation on operands that DPP or SDWA selected
    std::string text;
};

enum State : u8 { Running, AtBarrier, Done };
struct Group;
struct Wave
{
    u32 v[VECTOR_REGISTERS][MOST_LANES];
    u32 s[256];
    u32 lanes; // 32 or 64
    bool gfx9;
    bool indexed; // GFX9: M0 is added to the places of vector registers
    const u8* pc = nullptr;
    const u8* next;
    State state = Running;
    Group* g;
    u8* scratch;
    u32 scratch_size;
    // A scalar register, or pair, that has a bit for each lane.
    u64 mask(u16 place) const { return lanes == 32 ? s[place] : s[place] | u64(s[place + 1]) << 32; }
    void set_mask(u16 place, u64 mask)
    {
        if(place == SNULL) return;
        s[place] = (u32)mask;
        if(lanes == 64) s[place + 1] = mask >> 32;
    }
    u64 exec() const { return mask(EXEC); }
    u32& scc() { return s[SCC]; }
};
struct Group
{
    const hipemu_dispatch* d;
    std::vector<u8> lds;
};

// A kernel's access outside its memory, as opposed to something the emulator can't do.
struct BadAddress : std::runtime_error
{
    using std::runtime_error::runtime_error;
};
[[noreturn]] inline void fail(const std::string& m) { throw std::runtime_error(m); }

#define LANES for(u64 m_ = w.exec(), l = 0; m_ && (l = __builtin_ctzll(m_), true); m_ &= m_ - 1)

// Reading and writing operands of one lane.
inline u32 rd32(const Wave& w, const Operand& o, int l)
{
    switch(o.k)
    {
    case Operand::V: return w.v[o.idx][l];
    case Operand::S: return w.s[o.idx];
    default: return o.c32;
    }
}
inline u64 rd64(const Wave& w, const Operand& o, int l)
{
    switch(o.k)
    {
    case Operand::V: return w.v[o.idx][l] | u64(w.v[o.idx + 1][l]) << 32;
    case Operand::S:
        if(o.idx == SNULL || o.idx >= SCC)
            return o.idx == SHARED_BASE ? SHARED_APERTURE : o.idx == PRIVATE_BASE ? PRIVATE_APERTURE : w.s[o.idx];
        if(o.n == 1 && o.idx != VCC && o.idx != EXEC)
            return w.s[o.idx];
        return w.s[o.idx] | u64(w.s[o.idx + 1]) << 32;
    default: return o.c64;
    }
}
inline u16 rd16(const Wave& w, const Operand& o, int l)
{
    if(o.k == Operand::C)
        return o.c16;
    u32 x = rd32(w, o, l);
    return o.half == 2 ? x >> 16 : x;
}
inline float rdf(const Wave& w, const Operand& o, int l)
{
    u32 x = rd32(w, o, l);
    if(o.abs) x &= 0x7fffffff;
    if(o.neg) x ^= 0x80000000;
    return bits<float>(x);
}
inline double rdd(const Wave& w, const Operand& o, int l)
{
    u64 x = o.k == Operand::C ? o.cf64 : rd64(w, o, l);
    if(o.abs) x &= ~(1ull << 63);
    if(o.neg) x ^= 1ull << 63;
    return bits<double>(x);
}
inline f16 rdh(const Wave& w, const Operand& o, int l)
{
    u16 x = rd16(w, o, l);
    if(o.abs) x &= 0x7fff;
    if(o.neg) x ^= 0x8000;
    return bits<f16>(x);
}
inline void ws32(Wave& w, const Operand& o, u32 x)
{
    if(o.idx != SNULL) w.s[o.idx] = x;
}
inline void ws64(Wave& w, const Operand& o, u64 x)
{
    if(o.idx == SNULL) return;
    w.s[o.idx] = (u32)x;
    w.s[o.idx + 1] = x >> 32;
}
inline void wr32(Wave& w, const Operand& o, int l, u32 x) { w.v[o.idx][l] = x; }
inline void wr64(Wave& w, const Operand& o, int l, u64 x)
{
    w.v[o.idx][l]     = (u32)x;
    w.v[o.idx + 1][l] = x >> 32;
}
inline void wr16(Wave& w, const Operand& o, int l, u16 x)
{
    u32& r = w.v[o.idx][l];
    if(o.half == ZERO_HIGH) r = x;
    else r = o.half == 2 ? (r & 0xffff) | u32(x) << 16 : (r & 0xffff0000) | x;
}
inline float mods(const Inst& i, float x)
{
    if(i.omod) x *= i.omod == 1 ? 2.f : i.omod == 2 ? 4.f : .5f;
    if(i.clamp) x = x > 0 ? (x < 1 ? x : 1) : 0;
    return x;
}
inline double mods(const Inst& i, double x)
{
    if(i.omod) x *= i.omod == 1 ? 2. : i.omod == 2 ? 4. : .5;
    if(i.clamp) x = x > 0 ? (x < 1 ? x : 1) : 0;
    return x;
}
inline f16 mods(const Inst& i, f16 x) { return (f16)mods(i, (float)x); }
inline void wrf(Wave& w, const Inst& i, int l, float x) { wr32(w, i.o[0], l, bits<u32>(mods(i, x))); }
inline void wrd(Wave& w, const Inst& i, int l, double x) { wr64(w, i.o[0], l, bits<u64>(mods(i, x))); }
inline void wrh(Wave& w, const Inst& i, int l, f16 x) { wr16(w, i.o[0], l, bits<u16>(mods(i, x))); }
} // namespace gfxemu
