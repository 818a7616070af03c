// The tables of mnemonics, and the macros that fill them.
#pragma once
#include "wave.h"

namespace gfxemu {
// What each mnemonic does.
inline std::unordered_map<std::string, Handler>& T()
{
    static auto* t = new std::unordered_map<std::string, Handler>;
    return *t;
}
// A number that goes with some mnemonics: bytes moved, flags, kind of atomic.
inline std::unordered_map<std::string, int>& AUX()
{
    static auto* t = new std::unordered_map<std::string, int>;
    return *t;
}

#define D(name, ...) T()[name] = [](Wave& w, const Inst& i) { (void)w; (void)i; __VA_ARGS__ }
#define A32(k) rd32(w, i.o[k], l)
#define A64(k) rd64(w, i.o[k], l)
#define A16(k) rd16(w, i.o[k], l)
#define AF(k) rdf(w, i.o[k], l)
#define AD(k) rdd(w, i.o[k], l)
#define AH(k) rdh(w, i.o[k], l)
// vector op, 32-bit integer result of a, b, c
#define VI(name, expr) D(name, LANES { u32 a = A32(1), b = i.n > 2 ? A32(2) : 0, c = i.n > 3 ? A32(3) : 0; (void)a; (void)b; (void)c; wr32(w, i.o[0], l, (u32)(expr)); })
#define VF(name, expr) D(name, LANES { float a = AF(1), b = i.n > 2 ? AF(2) : 0, c = i.n > 3 ? AF(3) : 0; (void)a; (void)b; (void)c; wrf(w, i, l, (float)(expr)); })
#define VD(name, expr) D(name, LANES { double a = AD(1), b = i.n > 2 ? AD(2) : 0, c = i.n > 3 ? AD(3) : 0; (void)a; (void)b; (void)c; wrd(w, i, l, (expr)); })
#define VH(name, expr) D(name, LANES { f16 a = AH(1), b = i.n > 2 ? AH(2) : (f16)0, c = i.n > 3 ? AH(3) : (f16)0; (void)a; (void)b; (void)c; wrh(w, i, l, (f16)(expr)); })
#define VS(name, expr) D(name, LANES { u16 a = A16(1), b = i.n > 2 ? A16(2) : 0, c = i.n > 3 ? A16(3) : 0; (void)a; (void)b; (void)c; wr16(w, i.o[0], l, (u16)(expr)); })
// scalar ops
#define SI(name, expr, sccexpr) D(name, const int l = 0; (void)l; u32 a = A32(1), b = i.n > 2 ? A32(2) : 0; (void)a; (void)b; u32 r = (u32)(expr); u32 sc = (sccexpr); ws32(w, i.o[0], r); w.scc() = sc;)
#define SL(name, expr, sccexpr) D(name, const int l = 0; (void)l; u64 a = A64(1), b = i.n > 2 ? (i.o[2].n == 2 || i.o[2].k == Operand::C ? A64(2) : A32(2)) : 0; (void)a; (void)b; u64 r = (u64)(expr); u32 sc = (sccexpr); ws64(w, i.o[0], r); w.scc() = sc;)

template <class S> S sat_cast(double x)
{
    if(std::isnan(x)) return 0;
    if(x <= (double)std::numeric_limits<S>::min()) return std::numeric_limits<S>::min();
    if(x >= (double)std::numeric_limits<S>::max()) return std::numeric_limits<S>::max();
    return (S)x;
}

// One per family of instructions; called once before the first decode.
void scalar_table();
void vector_table();
void matrix_table();
void mfma_table();
void memory_table();
} // namespace gfxemu
