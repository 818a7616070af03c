// Packed and mixed precision, dot products and WMMA.
#include "tables.h"

namespace gfxemu {
namespace {
// packed 16-bit operands
inline u16 pk(Wave& w, const Inst& i, int k, int l, bool hi, bool flt)
{
    const Operand& o = i.o[k];
    bool sel = (hi ? i.op_sel_hi : i.op_sel) >> (k - 1) & 1;
    u16 x;
    if(o.k == Operand::C) x = o.isf ? (sel ? 0 : o.c16) : (sel ? o.c32 >> 16 : o.c32);
    else x = rd32(w, o, l) >> (sel ? 16 : 0);
    if(flt)
    {
        bool ng = (hi ? i.neg_hi : i.neg_lo) >> (k - 1) & 1;
        if(ng) x ^= 0x8000;
    }
    return x;
}
inline f16 H(u16 x) { return bits<f16>(x); }
#define PKH(name, expr) D(name, LANES { u32 r = 0; for(int h = 0; h < 2; h++) { f16 a = H(pk(w, i, 1, l, h, true)), b = i.n > 2 ? H(pk(w, i, 2, l, h, true)) : (f16)0, c = i.n > 3 ? H(pk(w, i, 3, l, h, true)) : (f16)0; (void)a; (void)b; (void)c; r |= u32(bits<u16>(mods(i, (f16)(expr)))) << (16 * h); } wr32(w, i.o[0], l, r); })
#define PKI(name, ty, expr) D(name, LANES { u32 r = 0; for(int h = 0; h < 2; h++) { ty a = (ty)pk(w, i, 1, l, h, false), b = i.n > 2 ? (ty)pk(w, i, 2, l, h, false) : (ty)0, c = i.n > 3 ? (ty)pk(w, i, 3, l, h, false) : (ty)0; (void)a; (void)b; (void)c; r |= u32(u16(expr)) << (16 * h); } wr32(w, i.o[0], l, r); })
inline float mixsrc(Wave& w, const Inst& i, int k, int l)
{
    const Operand& o = i.o[k];
    u32 b = 1u << (k - 1);
    float x;
    if(!(i.op_sel_hi & b)) x = bits<float>(rd32(w, o, l));
    else x = o.k == Operand::C ? (float)H(o.c16) : (float)H(u16(rd32(w, o, l) >> (i.op_sel & b ? 16 : 0)));
    if(i.neg_hi & b || o.abs) x = fabsf(x);
    if(i.neg_lo & b || o.neg) x = -x;
    return x;
}
// Packed 32-bit operands: a register of a pair for each half of the result. A constant is the same for both.
inline u32 pair32(const Wave& w, const Inst& i, int k, int l, bool hi)
{
    const Operand& o = i.o[k];
    const int place  = o.idx + ((hi ? i.op_sel_hi : i.op_sel) >> (k - 1) & 1);
    u32 x            = o.k == Operand::C ? o.c32 : o.k == Operand::V ? w.v[place][l] : w.s[place];
    if((hi ? i.neg_hi : i.neg_lo) >> (k - 1) & 1) x ^= 0x80000000;
    return x;
}
#define PKF(name, expr) D(name, LANES { u32 r[2]; for(int h = 0; h < 2; h++) { float a = bits<float>(pair32(w, i, 1, l, h)), b = bits<float>(pair32(w, i, 2, l, h)), c = i.n > 3 ? bits<float>(pair32(w, i, 3, l, h)) : 0; (void)c; r[h] = bits<u32>(mods(i, (float)(expr))); } wr64(w, i.o[0], l, r[0] | u64(r[1]) << 32); })
// Dot products of the parts of 32 bits.
template <class X> u32 dot(u32 x, u32 y, u32 sum, int width)
{
    for(int k = 0; k < 32; k += width) sum += u32(i32(X(x >> k)) * i32(X(y >> k)));
    return sum;
}
template <class CV> void wmma(Wave& w, const Inst& i, CV cv, bool f16out)
{
    if(w.lanes != 32) fail("expected a wave of 32 lanes");
    float a[16][16], b[16][16], c[16][16];
    for(int r = 0; r < 16; r++)
        for(int k = 0; k < 16; k++)
        {
            a[r][k] = cv(u16(w.v[i.o[1].idx + k / 2][r] >> (k & 1 ? 16 : 0)));
            b[r][k] = cv(u16(w.v[i.o[2].idx + k / 2][r] >> (k & 1 ? 16 : 0)));
        }
    bool hi = i.op_sel & 4;
    for(int r = 0; r < 8; r++)
        for(int l = 0; l < 32; l++)
        {
            u32 x = i.o[3].k == Operand::V ? w.v[i.o[3].idx + r][l] : i.o[3].c32;
            c[2 * r + l / 16][l % 16] = f16out ? cv(u16(hi ? x >> 16 : x)) : bits<float>(x);
        }
    for(int r = 0; r < 16; r++)
        for(int n = 0; n < 16; n++)
            for(int k = 0; k < 16; k++) c[r][n] += a[r][k] * b[n][k];
    for(int r = 0; r < 8; r++)
        for(int l = 0; l < 32; l++)
        {
            float x = c[2 * r + l / 16][l % 16];
            u32& d  = w.v[i.o[0].idx + r][l];
            if(!f16out) d = bits<u32>(x);
            else
            {
                u32 h = bits<u16>((f16)x);
                d     = hi ? (d & 0xffff) | h << 16 : (d & 0xffff0000) | h;
            }
        }
}
} // namespace

void matrix_table()
{
    PKH("v_pk_add_f16", a + b); PKH("v_pk_mul_f16", a * b); PKH("v_pk_fma_f16", (f16)fma((double)a, (double)b, (double)c)); PKH("v_pk_max_f16", fmaxf(a, b)); PKH("v_pk_min_f16", fminf(a, b));
    PKI("v_pk_add_u16", u16, a + b); PKI("v_pk_sub_u16", u16, a - b); PKI("v_pk_add_i16", u16, a + b); PKI("v_pk_sub_i16", u16, a - b); PKI("v_pk_mul_lo_u16", u16, a * b); PKI("v_pk_mad_u16", u16, a * b + c); PKI("v_pk_mad_i16", u16, a * b + c);
    PKI("v_pk_lshlrev_b16", u16, b << (a & 15)); PKI("v_pk_lshrrev_b16", u16, b >> (a & 15)); PKI("v_pk_ashrrev_i16", i16, b >> (a & 15)); PKI("v_pk_max_i16", i16, std::max(a, b)); PKI("v_pk_min_i16", i16, std::min(a, b)); PKI("v_pk_max_u16", u16, std::max(a, b)); PKI("v_pk_min_u16", u16, std::min(a, b));
    D("v_pk_fmac_f16", LANES { u32 r = 0, x = rd32(w, i.o[1], l), y = rd32(w, i.o[2], l), z = rd32(w, i.o[0], l); for(int s = 0; s < 32; s += 16) r |= u32(bits<u16>((f16)fma((double)H(x >> s), (double)H(y >> s), (double)H(z >> s)))) << s; wr32(w, i.o[0], l, r); });
    D("v_fma_mix_f32", LANES wrf(w, i, l, fmaf(mixsrc(w, i, 1, l), mixsrc(w, i, 2, l), mixsrc(w, i, 3, l))););
    D("v_fma_mixlo_f16", LANES { u16 h = bits<u16>((f16)mods(i, fmaf(mixsrc(w, i, 1, l), mixsrc(w, i, 2, l), mixsrc(w, i, 3, l)))); u32& r = w.v[i.o[0].idx][l]; r = (r & 0xffff0000) | h; });
    D("v_fma_mixhi_f16", LANES { u16 h = bits<u16>((f16)mods(i, fmaf(mixsrc(w, i, 1, l), mixsrc(w, i, 2, l), mixsrc(w, i, 3, l)))); u32& r = w.v[i.o[0].idx][l]; r = (r & 0xffff) | u32(h) << 16; });
    D("v_dot2_f32_f16", LANES { float r = AF(3); for(int h = 0; h < 2; h++) r += (float)H(pk(w, i, 1, l, h, true)) * (float)H(pk(w, i, 2, l, h, true)); wrf(w, i, l, r); });
    D("v_dot2_f32_bf16", LANES { float r = AF(3); for(int h = 0; h < 2; h++) r += bf2f(pk(w, i, 1, l, h, true)) * bf2f(pk(w, i, 2, l, h, true)); wrf(w, i, l, r); });
    D("v_dot2acc_f32_f16", LANES { u32 x = A32(1), y = A32(2); wrf(w, i, l, rdf(w, i.o[0], l) + (float)H(x) * (float)H(y) + (float)H(x >> 16) * (float)H(y >> 16)); });
    D("v_dot4_i32_iu8", LANES { u32 x = A32(1), y = A32(2); i32 r = A32(3); for(int k = 0; k < 32; k += 8) r += (i.neg_lo & 1 ? (i32)(i8)(x >> k) : (i32)(u8)(x >> k)) * (i.neg_lo & 2 ? (i32)(i8)(y >> k) : (i32)(u8)(y >> k)); wr32(w, i.o[0], l, r); });
    PKF("v_pk_add_f32", a + b); PKF("v_pk_mul_f32", a * b); PKF("v_pk_fma_f32", fmaf(a, b, c));
    // op_sel chooses for the low register out of the first source, and for the high one out of the second.
    D("v_pk_mov_b32", LANES { u32 r[2]; for(int h = 0; h < 2; h++) { const Operand& o = i.o[1 + h]; int place = o.idx + (i.op_sel >> h & 1); r[h] = o.k == Operand::C ? o.c32 : o.k == Operand::V ? w.v[place][l] : w.s[place]; } wr64(w, i.o[0], l, r[0] | u64(r[1]) << 32); });
    VI("v_dot4_i32_i8", dot<i8>(a, b, c, 8)); VI("v_dot4_u32_u8", dot<u8>(a, b, c, 8)); VI("v_dot2_i32_i16", dot<i16>(a, b, c, 16)); VI("v_dot2_u32_u16", dot<u16>(a, b, c, 16));
    D("v_dot4c_i32_i8", LANES wr32(w, i.o[0], l, dot<i8>(A32(1), A32(2), A32(0), 8)););
    VI("v_accvgpr_read_b32", a); VI("v_accvgpr_write_b32", a); VI("v_accvgpr_mov_b32", a);
    D("v_wmma_f32_16x16x16_f16", wmma(w, i, [](u16 x) { return (float)H(x); }, false););
    D("v_wmma_f32_16x16x16_bf16", wmma(w, i, [](u16 x) { return bf2f(x); }, false););
    D("v_wmma_i32_16x16x16_iu8", if(w.lanes != 32) fail("expected a wave of 32 lanes"); i32 c[16][16]; for(int r = 0; r < 16; r++) for(int n = 0; n < 16; n++) { i32 x = 0; for(int k = 0; k < 16; k++) { u32 a = w.v[i.o[1].idx + k / 4][r] >> (8 * (k & 3)) & 255, b = w.v[i.o[2].idx + k / 4][n] >> (8 * (k & 3)) & 255; x += (i.neg_lo & 1 ? (i32)(i8)a : (i32)a) * (i.neg_lo & 2 ? (i32)(i8)b : (i32)b); } c[r][n] = x; }
        for(int r = 0; r < 8; r++) for(int l = 0; l < 32; l++) w.v[i.o[0].idx + r][l] = (i.o[3].k == Operand::V ? w.v[i.o[3].idx + r][l] : i.o[3].c32) + c[2 * r + l / 16][l % 16];);
    D("v_wmma_f16_16x16x16_f16", wmma(w, i, [](u16 x) { return (float)H(x); }, true););
}
} // namespace gfxemu
