// Vector instructions: integers, floats, conversions, compares.
#include "tables.h"

namespace gfxemu {
namespace {
template <class X> u32 fclass(X x)
{
    bool n = std::signbit((double)x);
    switch(std::fpclassify(x))
    {
    case FP_NAN: return 2;
    case FP_INFINITE: return n ? 4 : 512;
    case FP_NORMAL: return n ? 8 : 256;
    case FP_SUBNORMAL: return n ? 16 : 128;
    default: return n ? 32 : 64;
    }
}
u32 fclass16(f16 h)
{
    u16 b = bits<u16>(h);
    bool n = b >> 15;
    int e = (b >> 10) & 31, m = b & 1023;
    if(e == 31) return m ? 2 : n ? 4 : 512;
    if(e) return n ? 8 : 256;
    return m ? (n ? 16 : 128) : (n ? 32 : 64);
}
float med3(float a, float b, float c)
{
    if(a != a || b != b || c != c) return fminf(fminf(a, b), c);
    return std::max(std::min(a, b), std::min(std::max(a, b), c));
}
template <class X> X med3i(X a, X b, X c) { return std::max(std::min(a, b), std::min(std::max(a, b), c)); }
i32 s24(u32 x) { return (i32)(x << 8) >> 8; }
// 53 bits of 2/pi, where the segment and the exponent of the value say.
double trig_preop(double value, u32 segment)
{
    static const u64 two_over_pi[] = {0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0,
        0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
        0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab};
    int exponent = bits<u64>(value) >> 52 & 0x7ff;
    u32 shift    = (segment & 31) * 53 + (exponent > 1077 ? exponent - 1077 : 0);
    u64 segment_bits = 0;
    for(u32 bit = shift; bit < shift + 53; bit++)
    {
        u32 word     = bit / 64;
        segment_bits = segment_bits << 1 | (word < sizeof two_over_pi / 8 ? two_over_pi[word] >> (63 - bit % 64) & 1 : 0);
    }
    return ldexp((double)segment_bits, -53 - (int)shift + (exponent >= 1968 ? 128 : 0));
}

template <class RD> void compare(Wave& w, const Inst& i, RD cond, bool cmpx)
{
    u64 r = 0;
    LANES if(cond(l)) r |= 1ull << l;
    // Those that write EXEC write a second destination on GFX9.
    if(!cmpx || i.n > 2) w.set_mask(i.o[0].idx, r);
    if(cmpx) w.set_mask(EXEC, r);
}
#define CMP1(nm, ty, rd, cc, expr)                                                                                   \
    D("v_cmp_" cc "_" nm, compare(w, i, [&](int l) { ty a = (ty)rd(1), b = (ty)rd(2); return expr; }, false););        \
    D("v_cmpx_" cc "_" nm, compare(w, i, [&](int l) { int k0 = i.n > 2 ? 1 : 0; ty a = (ty)rd(k0), b = (ty)rd(k0 + 1); return expr; }, true););
#define CMPI(nm, ty, rd) CMP1(nm, ty, rd, "lt", a < b) CMP1(nm, ty, rd, "eq", a == b) CMP1(nm, ty, rd, "le", a <= b) \
    CMP1(nm, ty, rd, "gt", a > b) CMP1(nm, ty, rd, "ne", a != b) CMP1(nm, ty, rd, "ge", a >= b) \
    CMP1(nm, ty, rd, "t", (void(a), void(b), true)) CMP1(nm, ty, rd, "f", (void(a), void(b), false))
#define CMPF(nm, ty, rd) CMP1(nm, ty, rd, "lt", a < b) CMP1(nm, ty, rd, "eq", a == b) CMP1(nm, ty, rd, "le", a <= b) \
    CMP1(nm, ty, rd, "gt", a > b) CMP1(nm, ty, rd, "lg", a < b || a > b) CMP1(nm, ty, rd, "ge", a >= b)               \
    CMP1(nm, ty, rd, "o", a == a && b == b) CMP1(nm, ty, rd, "u", a != a || b != b) CMP1(nm, ty, rd, "nge", !(a >= b)) \
    CMP1(nm, ty, rd, "nlg", !(a < b || a > b)) CMP1(nm, ty, rd, "ngt", !(a > b)) CMP1(nm, ty, rd, "nle", !(a <= b))    \
    CMP1(nm, ty, rd, "neq", !(a == b)) CMP1(nm, ty, rd, "nlt", !(a < b))
} // namespace

void vector_table()
{
    VI("v_mov_b32", a); VI("v_not_b32", ~a); 
    // With `clamp` they saturate.
    VI("v_add_nc_u32", i.clamp && a + b < a ? ~0u : a + b); VI("v_sub_nc_u32", i.clamp && a < b ? 0 : a - b); VI("v_subrev_nc_u32", i.clamp && b < a ? 0 : b - a);
    VI("v_add_nc_i32", i.clamp ? std::clamp<i64>(i64(i32(a)) + i32(b), INT32_MIN, INT32_MAX) : i64(a) + b); VI("v_sub_nc_i32", i.clamp ? std::clamp<i64>(i64(i32(a)) - i32(b), INT32_MIN, INT32_MAX) : i64(a) - b);
    VI("v_and_b32", a & b); VI("v_or_b32", a | b); VI("v_xor_b32", a ^ b); VI("v_xnor_b32", ~(a ^ b));
    VI("v_lshlrev_b32", b << (a & 31)); VI("v_lshrrev_b32", b >> (a & 31)); VI("v_ashrrev_i32", i32(b) >> (a & 31));
    VI("v_mul_lo_u32", a * b); VI("v_mul_hi_u32", u64(a) * b >> 32); VI("v_mul_hi_i32", i64(i32(a)) * i32(b) >> 32);
    VI("v_mul_u32_u24", (a & 0xffffff) * (b & 0xffffff)); VI("v_mul_i32_i24", (i64)s24(a) * s24(b));
    VI("v_mul_hi_u32_u24", u64(a & 0xffffff) * (b & 0xffffff) >> 32); VI("v_mul_hi_i32_i24", i64(s24(a)) * s24(b) >> 32);
    VI("v_mad_u32_u24", (a & 0xffffff) * (b & 0xffffff) + c); VI("v_mad_i32_i24", (u32)((i64)s24(a) * s24(b)) + c);
    VI("v_min_u32", std::min(a, b)); VI("v_max_u32", std::max(a, b)); VI("v_min_i32", std::min(i32(a), i32(b))); VI("v_max_i32", std::max(i32(a), i32(b)));
    VI("v_min3_u32", std::min(std::min(a, b), c)); VI("v_max3_u32", std::max(std::max(a, b), c));
    VI("v_min3_i32", std::min(std::min(i32(a), i32(b)), i32(c))); VI("v_max3_i32", std::max(std::max(i32(a), i32(b)), i32(c)));
    VI("v_med3_i32", med3i<i32>(a, b, c)); VI("v_med3_u32", med3i<u32>(a, b, c));
    VI("v_add3_u32", a + b + c); VI("v_lshl_add_u32", (a << (b & 31)) + c); VI("v_add_lshl_u32", (a + b) << (c & 31)); VI("v_lshl_or_b32", a << (b & 31) | c);
    VI("v_and_or_b32", (a & b) | c); VI("v_or3_b32", a | b | c); VI("v_xor3_b32", a ^ b ^ c); VI("v_xad_u32", (a ^ b) + c);
    VI("v_bfe_u32", a >> (b & 31) & ((1u << (c & 31)) - 1)); VI("v_bfe_i32", (c & 31) ? i32((a >> (b & 31)) << (32 - (c & 31))) >> (32 - (c & 31)) : 0);
    D("v_bfe_i32", LANES { u32 a = A32(1), o = A32(2) & 31, n = A32(3) & 31; i32 r = 0; if(n) r = o + n >= 32 ? i32(a) >> o : i32(a << (32 - o - n)) >> (32 - n); wr32(w, i.o[0], l, r); });
    VI("v_bfi_b32", (a & b) | (~a & c)); VI("v_bfm_b32", ((1u << (a & 31)) - 1) << (b & 31));
    VI("v_alignbit_b32", (u64(a) << 32 | b) >> (c & 31)); VI("v_alignbyte_b32", (u64(a) << 32 | b) >> (8 * (c & 3)));
    VI("v_bcnt_u32_b32", __builtin_popcount(a) + b); VI("v_ctz_i32_b32", a ? __builtin_ctz(a) : -1); VI("v_clz_i32_u32", a ? __builtin_clz(a) : -1);
    VI("v_cls_i32", (a == 0 || a == ~0u) ? -1 : __builtin_clz(i32(a) < 0 ? ~a : a));
    D("v_bfrev_b32", LANES { u32 a = A32(1), r = 0; for(int k = 0; k < 32; k++) r |= (a >> k & 1) << (31 - k); wr32(w, i.o[0], l, r); });
    D("v_perm_b32", LANES { u64 d = u64(A32(1)) << 32 | A32(2); u32 s = A32(3), r = 0; for(int k = 0; k < 4; k++) { u32 c = s >> (8 * k) & 255, x; if(c < 8) x = d >> (8 * c) & 255; else if(c < 12) x = (d >> (16 * (c - 8) + 15) & 1) ? 255 : 0; else x = c == 12 ? 0 : 255; r |= x << (8 * k); } wr32(w, i.o[0], l, r); });
    // Bits of the lanes below this one, of the first 32 and of those behind.
    D("v_mbcnt_lo_u32_b32", LANES wr32(w, i.o[0], l, __builtin_popcount(A32(1) & (u32)((1ull << std::min<u64>(l, 32)) - 1)) + A32(2)););
    D("v_mbcnt_hi_u32_b32", LANES wr32(w, i.o[0], l, __builtin_popcount(A32(1) & (u32)((1ull << (l < 32 ? 0 : l - 32)) - 1)) + A32(2)););
    D("v_lshlrev_b64", LANES wr64(w, i.o[0], l, A64(2) << (A32(1) & 63)););
    D("v_lshrrev_b64", LANES wr64(w, i.o[0], l, A64(2) >> (A32(1) & 63)););
    D("v_ashrrev_i64", LANES wr64(w, i.o[0], l, i64(A64(2)) >> (A32(1) & 63)););
    D("v_lshl_add_u64", LANES wr64(w, i.o[0], l, (A64(1) << (A32(2) & 7)) + A64(3)););
    D("v_mov_b64", LANES wr64(w, i.o[0], l, A64(1)););
    D("v_mad_u64_u32", u64 cy = 0; LANES { u64 p = u64(A32(2)) * A32(3), c = A64(4), r = p + c; if(r < p) cy |= 1ull << l; wr64(w, i.o[0], l, r); } w.set_mask(i.o[1].idx, cy););
    D("v_mad_i64_i32", u64 cy = 0; LANES { i64 p = i64(i32(A32(2))) * i32(A32(3)), c = i.o[4].k == Operand::C ? (i64)i.o[4].c64 : (i64)A64(4), r; if(__builtin_add_overflow(p, c, &r)) cy |= 1ull << l; wr64(w, i.o[0], l, r); } w.set_mask(i.o[1].idx, cy););
    D("v_add_co_u32", u64 cy = 0; LANES { u64 r = u64(A32(2)) + A32(3); cy |= (r >> 32 & 1) << l; wr32(w, i.o[0], l, (u32)r); } w.set_mask(i.o[1].idx, cy););
    D("v_add_co_ci_u32", u64 cy = 0; u64 ci = w.mask(i.n > 4 ? i.o[4].idx : u16(VCC)); LANES { u64 r = u64(A32(2)) + A32(3) + (ci >> l & 1); cy |= (r >> 32 & 1) << l; wr32(w, i.o[0], l, (u32)r); } w.set_mask(i.o[1].idx, cy););
#define SUBCO(nm, A, B) D("v_" nm "_co_u32", u64 cy = 0; LANES { u32 a = A32(A), b = A32(B); cy |= u64(b > a) << l; wr32(w, i.o[0], l, a - b); } w.set_mask(i.o[1].idx, cy);); \
    D("v_" nm "_co_ci_u32", u64 cy = 0; u64 ci = w.mask(i.n > 4 ? i.o[4].idx : u16(VCC)); LANES { u32 a = A32(A), b = A32(B), c = ci >> l & 1; cy |= u64(u64(b) + c > a) << l; wr32(w, i.o[0], l, a - b - c); } w.set_mask(i.o[1].idx, cy);)
    SUBCO("sub", 2, 3); SUBCO("subrev", 3, 2);
    D("v_cndmask_b32", u64 c = w.mask(i.n > 3 ? i.o[3].idx : u16(VCC)); LANES wr32(w, i.o[0], l, bits<u32>(c >> l & 1 ? AF(2) : AF(1))););
    D("v_cndmask_b16", u64 c = w.mask(i.n > 3 ? i.o[3].idx : u16(VCC)); LANES wr16(w, i.o[0], l, bits<u16>(c >> l & 1 ? AH(2) : AH(1))););
    D("v_readfirstlane_b32", u64 e = w.exec(); int l = e ? __builtin_ctzll(e) : 0; ws32(w, i.o[0], A32(1)););
    D("v_readlane_b32", int l = rd32(w, i.o[2], 0) & (w.lanes - 1); ws32(w, i.o[0], A32(1)););
    D("v_writelane_b32", w.v[i.o[0].idx][rd32(w, i.o[2], 0) & (w.lanes - 1)] = rd32(w, i.o[1], 0););
    D("v_swap_b32", LANES std::swap(w.v[i.o[0].idx][l], w.v[i.o[1].idx][l]););
    D("v_permlanex16_b32", u32 t[MOST_LANES]; for(u32 l = 0; l < w.lanes; l++) t[l] = A32(1); u64 sel = rd32(w, i.o[2], 0) | u64(rd32(w, i.o[3], 0)) << 32; LANES wr32(w, i.o[0], l, t[((l & 48) ^ 16) | (sel >> (4 * (l & 15)) & 15)]););
    D("v_permlane16_b32", u32 t[MOST_LANES]; for(u32 l = 0; l < w.lanes; l++) t[l] = A32(1); u64 sel = rd32(w, i.o[2], 0) | u64(rd32(w, i.o[3], 0)) << 32; LANES wr32(w, i.o[0], l, t[(l & 48) | (sel >> (4 * (l & 15)) & 15)]););
    // 16-bit integer
    VS("v_mov_b16", a); VS("v_add_nc_u16", i.clamp ? std::min(a + b, 65535) : a + b); VS("v_sub_nc_u16", i.clamp ? std::max(a - b, 0) : a - b); VS("v_subrev_nc_u16", i.clamp ? std::max(b - a, 0) : b - a); VS("v_mul_lo_u16", a * b); VS("v_lshlrev_b16", b << (a & 15)); VS("v_lshrrev_b16", b >> (a & 15));
    VS("v_ashrrev_i16", i16(b) >> (a & 15)); VS("v_and_b16", a & b); VS("v_or_b16", a | b); VS("v_xor_b16", a ^ b); VS("v_not_b16", ~a); VS("v_add_nc_i16", a + b); VS("v_sub_nc_i16", a - b);
    VS("v_max_u16", std::max(a, b)); VS("v_min_u16", std::min(a, b)); VS("v_max_i16", std::max(i16(a), i16(b))); VS("v_min_i16", std::min(i16(a), i16(b))); VS("v_mad_u16", a * b + c); VS("v_mad_i16", a * b + c);
    VS("v_max3_u16", std::max(std::max(a, b), c)); VS("v_min3_u16", std::min(std::min(a, b), c)); VS("v_med3_u16", med3i<u16>(a, b, c));
    VS("v_max3_i16", std::max(std::max(i16(a), i16(b)), i16(c))); VS("v_min3_i16", std::min(std::min(i16(a), i16(b)), i16(c))); VS("v_med3_i16", med3i<i16>(a, b, c));
    D("v_mad_u32_u16", LANES wr32(w, i.o[0], l, u32(A16(1)) * A16(2) + A32(3)););
    D("v_mad_i32_i16", LANES wr32(w, i.o[0], l, u32(i32(i16(A16(1))) * i16(A16(2))) + A32(3)););
    D("v_pack_b32_f16", LANES wr32(w, i.o[0], l, bits<u16>(AH(1)) | u32(bits<u16>(AH(2))) << 16););
    // float
#define F3(S, P, FMA, FMIN, FMAX) \
    V##P("v_add_" S, a + b); V##P("v_sub_" S, a - b); V##P("v_subrev_" S, b - a); V##P("v_mul_" S, a * b); V##P("v_fma_" S, FMA(a, b, c)); \
    V##P("v_max_" S, FMAX(a, b)); V##P("v_min_" S, FMIN(a, b));
    F3("f32", F, fmaf, fminf, fmaxf) F3("f64", D, fma, fmin, fmax)
#define HF(x) ((float)(x))
    VH("v_add_f16", a + b); VH("v_sub_f16", a - b); VH("v_subrev_f16", b - a); VH("v_mul_f16", a * b); VH("v_fma_f16", (f16)fma((double)a, (double)b, (double)c));
    VH("v_max_f16", fmaxf(HF(a), HF(b))); VH("v_min_f16", fminf(HF(a), HF(b))); VH("v_max3_f16", fmaxf(fmaxf(HF(a), HF(b)), HF(c))); VH("v_min3_f16", fminf(fminf(HF(a), HF(b)), HF(c)));
    VH("v_med3_f16", med3(a, b, c)); VH("v_rcp_f16", 1.f / HF(a)); VH("v_sqrt_f16", sqrtf(a)); VH("v_rsq_f16", 1.f / sqrtf(a)); VH("v_exp_f16", exp2f(a)); VH("v_log_f16", log2f(a));
    VH("v_floor_f16", floorf(a)); VH("v_ceil_f16", ceilf(a)); VH("v_trunc_f16", truncf(a)); VH("v_rndne_f16", rintf(a)); VH("v_fract_f16", HF(a) - floorf(a));
    D("v_fmac_f16", LANES wrh(w, i, l, (f16)fma((double)AH(1), (double)AH(2), (double)rdh(w, i.o[0], l))););
    D("v_ldexp_f16", LANES wrh(w, i, l, (f16)ldexpf((float)AH(1), (i16)A16(2))););
    D("v_div_fixup_f16", LANES { f16 q = AH(1), d = AH(2), n = AH(3); float r = (float)n / (float)d; bool sp = d == 0 || !(fabsf(d) < INFINITY) || !(fabsf(n) < INFINITY) || n == 0; wrh(w, i, l, sp ? (f16)r : q); });
    VF("v_max3_f32", fmaxf(fmaxf(a, b), c)); VF("v_min3_f32", fminf(fminf(a, b), c)); VF("v_med3_f32", med3(a, b, c)); VF("v_minmax_f32", fmaxf(fminf(a, b), c)); VF("v_maxmin_f32", fminf(fmaxf(a, b), c));
    VF("v_mul_dx9_zero_f32", a == 0 || b == 0 ? 0.f : a * b);
    VH("v_fmaak_f16", (f16)fma((double)a, (double)b, (double)c)); VH("v_fmamk_f16", (f16)fma((double)a, (double)b, (double)c));
    VH("v_sin_f16", sin(6.283185307179586 * (double)a)); VH("v_cos_f16", cos(6.283185307179586 * (double)a));
    D("v_frexp_mant_f16", LANES { float a = AH(1); int e; wrh(w, i, l, (f16)(std::isfinite(a) ? frexpf(a, &e) : a)); });
    D("v_frexp_exp_i16_f16", LANES { float a = AH(1); int e = 0; if(std::isfinite(a)) frexpf(a, &e); wr16(w, i.o[0], l, (u16)e); });
    D("v_fmac_f32", LANES wrf(w, i, l, fmaf(AF(1), AF(2), rdf(w, i.o[0], l))););
    D("v_fmac_f64", LANES wrd(w, i, l, fma(AD(1), AD(2), rdd(w, i.o[0], l))););
    VF("v_fmaak_f32", fmaf(a, b, c)); VF("v_fmamk_f32", fmaf(a, b, c)); // operands are printed in the order of the formula
    VF("v_rcp_f32", 1.f / a); VF("v_rcp_iflag_f32", 1.f / a); VF("v_rsq_f32", 1.f / sqrtf(a)); VF("v_sqrt_f32", sqrtf(a)); VF("v_exp_f32", exp2f(a)); VF("v_log_f32", log2f(a));
    VF("v_sin_f32", sin(6.283185307179586 * a)); VF("v_cos_f32", cos(6.283185307179586 * a)); VF("v_floor_f32", floorf(a)); VF("v_ceil_f32", ceilf(a)); VF("v_trunc_f32", truncf(a));
    VF("v_rndne_f32", rintf(a)); VF("v_fract_f32", a - floorf(a));
    VD("v_rcp_f64", 1 / a); VD("v_rsq_f64", 1 / sqrt(a)); VD("v_sqrt_f64", sqrt(a)); VD("v_floor_f64", floor(a)); VD("v_ceil_f64", ceil(a)); VD("v_trunc_f64", trunc(a)); VD("v_rndne_f64", rint(a)); VD("v_fract_f64", a - floor(a));
    D("v_ldexp_f32", LANES wrf(w, i, l, ldexpf(AF(1), (i32)A32(2))););
    D("v_trig_preop_f64", LANES wrd(w, i, l, trig_preop(AD(1), A32(2))););
    D("v_ldexp_f64", LANES wrd(w, i, l, ldexp(AD(1), (i32)A32(2))););
    D("v_frexp_mant_f32", LANES { float a = AF(1); int e; wrf(w, i, l, std::isfinite(a) ? frexpf(a, &e) : a); });
    D("v_frexp_exp_i32_f32", LANES { float a = AF(1); int e = 0; if(std::isfinite(a)) frexpf(a, &e); wr32(w, i.o[0], l, e); });
    D("v_frexp_mant_f64", LANES { double a = AD(1); int e; wrd(w, i, l, std::isfinite(a) ? frexp(a, &e) : a); });
    D("v_frexp_exp_i32_f64", LANES { double a = AD(1); int e = 0; if(std::isfinite(a)) frexp(a, &e); wr32(w, i.o[0], l, e); });
    D("v_div_scale_f32", LANES wr32(w, i.o[0], l, bits<u32>(AF(2))); w.set_mask(i.o[1].idx, 0););
    D("v_div_scale_f64", LANES wr64(w, i.o[0], l, bits<u64>(AD(2))); w.set_mask(i.o[1].idx, 0););
    VF("v_div_fmas_f32", fmaf(a, b, c)); VD("v_div_fmas_f64", fma(a, b, c));
    VF("v_div_fixup_f32", c / b); VD("v_div_fixup_f64", c / b); // the exact quotient: what the refined sequence converges to
    // conversions
    D("v_cvt_f32_i32", LANES wrf(w, i, l, (float)(i32)A32(1)););
    D("v_cvt_f32_u32", LANES wrf(w, i, l, (float)A32(1)););
    D("v_cvt_i32_f32", LANES wr32(w, i.o[0], l, sat_cast<i32>(AF(1))););
    D("v_cvt_u32_f32", LANES wr32(w, i.o[0], l, sat_cast<u32>(AF(1))););
    D("v_cvt_floor_i32_f32", LANES wr32(w, i.o[0], l, sat_cast<i32>(floorf(AF(1)))););
    D("v_cvt_nearest_i32_f32", LANES wr32(w, i.o[0], l, sat_cast<i32>(floorf(AF(1) + .5f))););
    D("v_cvt_f64_f32", LANES wrd(w, i, l, AF(1)););
    D("v_cvt_f32_f64", LANES wrf(w, i, l, (float)AD(1)););
    D("v_cvt_f64_i32", LANES wrd(w, i, l, (i32)A32(1)););
    D("v_cvt_f64_u32", LANES wrd(w, i, l, A32(1)););
    D("v_cvt_i32_f64", LANES wr32(w, i.o[0], l, sat_cast<i32>(AD(1))););
    D("v_cvt_u32_f64", LANES wr32(w, i.o[0], l, sat_cast<u32>(AD(1))););
    D("v_cvt_f16_f32", LANES wrh(w, i, l, (f16)AF(1)););
    D("v_cvt_f32_f16", LANES wrf(w, i, l, (float)AH(1)););
    D("v_cvt_f16_u16", LANES wrh(w, i, l, (f16)A16(1)););
    D("v_cvt_f16_i16", LANES wrh(w, i, l, (f16)(i16)A16(1)););
    D("v_cvt_u16_f16", LANES wr16(w, i.o[0], l, sat_cast<u16>((double)AH(1))););
    D("v_cvt_i16_f16", LANES wr16(w, i.o[0], l, sat_cast<i16>((double)AH(1))););
    D("v_cvt_i32_i16", LANES wr32(w, i.o[0], l, (i32)(i16)A16(1)););
    D("v_cvt_u32_u16", LANES wr32(w, i.o[0], l, A16(1)););
    VF("v_cvt_f32_ubyte0", bits<u32>(a) & 255); VF("v_cvt_f32_ubyte1", bits<u32>(a) >> 8 & 255); VF("v_cvt_f32_ubyte2", bits<u32>(a) >> 16 & 255); VF("v_cvt_f32_ubyte3", bits<u32>(a) >> 24);
    D("v_cvt_pk_rtz_f16_f32", LANES { auto rtz = [](float x) { f16 h = (f16)x; if(fabsf((float)h) > fabsf(x) ) h = bits<f16>((u16)(bits<u16>(h) - 1)); return u32(bits<u16>(h)); }; wr32(w, i.o[0], l, rtz(AF(1)) | rtz(AF(2)) << 16); });
    T()["v_cvt_pkrtz_f16_f32"] = T()["v_cvt_pk_rtz_f16_f32"];
    D("v_cvt_pk_i16_i32", LANES wr32(w, i.o[0], l, u16(std::clamp((i32)A32(1), -32768, 32767)) | u32(u16(std::clamp((i32)A32(2), -32768, 32767))) << 16););
    D("v_cvt_pk_u16_u32", LANES wr32(w, i.o[0], l, std::min(A32(1), 65535u) | std::min(A32(2), 65535u) << 16););
    // compares
    CMPI("i16", i16, A16) CMPI("u16", u16, A16) CMPI("i32", i32, A32) CMPI("u32", u32, A32) CMPI("i64", i64, A64) CMPI("u64", u64, A64)
    CMPF("f16", float, AH) CMPF("f32", float, AF) CMPF("f64", double, AD)
    D("v_cmp_class_f32", compare(w, i, [&](int l) { return (fclass(AF(1)) & (A32(2) | (A32(2) & 1) << 1)) != 0; }, false););
    D("v_cmp_class_f64", compare(w, i, [&](int l) { return (fclass(AD(1)) & (A32(2) | (A32(2) & 1) << 1)) != 0; }, false););
    D("v_cmp_class_f16", compare(w, i, [&](int l) { return (fclass16(AH(1)) & (A32(2) | (A32(2) & 1) << 1)) != 0; }, false););
}
} // namespace gfxemu
