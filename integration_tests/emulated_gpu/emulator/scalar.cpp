// Scalar instructions: one value a wave.
#include "tables.h"

namespace gfxemu {
void scalar_table()
{
    D("s_mov_b32", ws32(w, i.o[0], rd32(w, i.o[1], 0)););
    // A literal is extended by zeros, as those of all 64-bit operations on bits.
    D("s_mov_b64", ws64(w, i.o[0], rd64(w, i.o[1], 0)););
    D("s_cmov_b32", if(w.scc()) ws32(w, i.o[0], rd32(w, i.o[1], 0)););
    D("s_cmov_b64", if(w.scc()) ws64(w, i.o[0], rd64(w, i.o[1], 0)););
    D("s_cselect_b32", ws32(w, i.o[0], rd32(w, i.o[w.scc() ? 1 : 2], 0)););
    D("s_cselect_b64", ws64(w, i.o[0], rd64(w, i.o[w.scc() ? 1 : 2], 0)););
    SI("s_add_u32", a + b, u64(a) + b > 0xffffffffull);
    SI("s_addc_u32", a + b + w.scc(), u64(a) + b + w.scc() > 0xffffffffull);
    SI("s_sub_u32", a - b, b > a);
    SI("s_subb_u32", a - b - w.scc(), u64(b) + w.scc() > a);
    SI("s_add_i32", a + b, ((a ^ r) & (b ^ r)) >> 31);
    SI("s_sub_i32", a - b, ((a ^ b) & (a ^ r)) >> 31);
    SI("s_mul_i32", a * b, w.scc());
    SI("s_mul_hi_u32", (u64(a) * b) >> 32, w.scc());
    SI("s_mul_hi_i32", (i64(i32(a)) * i32(b)) >> 32, w.scc());
    SI("s_and_b32", a & b, r != 0); SI("s_or_b32", a | b, r != 0); SI("s_xor_b32", a ^ b, r != 0);
    SI("s_nand_b32", ~(a & b), r != 0); SI("s_nor_b32", ~(a | b), r != 0); SI("s_xnor_b32", ~(a ^ b), r != 0);
    SI("s_and_not1_b32", a & ~b, r != 0); SI("s_or_not1_b32", a | ~b, r != 0);
    SL("s_and_b64", a & b, r != 0); SL("s_or_b64", a | b, r != 0); SL("s_xor_b64", a ^ b, r != 0);
    SL("s_nand_b64", ~(a & b), r != 0); SL("s_nor_b64", ~(a | b), r != 0); SL("s_xnor_b64", ~(a ^ b), r != 0);
    SL("s_and_not1_b64", a & ~b, r != 0); SL("s_or_not1_b64", a | ~b, r != 0);
    SI("s_not_b32", ~a, r != 0); SL("s_not_b64", ~a, r != 0);
    SI("s_lshl_b32", a << (b & 31), r != 0); SI("s_lshr_b32", a >> (b & 31), r != 0); SI("s_ashr_i32", i32(a) >> (b & 31), r != 0);
    SL("s_lshl_b64", a << (b & 63), r != 0); SL("s_lshr_b64", a >> (b & 63), r != 0); SL("s_ashr_i64", i64(a) >> (b & 63), r != 0);
    SI("s_lshl1_add_u32", (a << 1) + b, (u64(a) << 1) + b > 0xffffffffull); SI("s_lshl2_add_u32", (a << 2) + b, (u64(a) << 2) + b > 0xffffffffull);
    SI("s_lshl3_add_u32", (a << 3) + b, (u64(a) << 3) + b > 0xffffffffull); SI("s_lshl4_add_u32", (a << 4) + b, (u64(a) << 4) + b > 0xffffffffull);
    SI("s_min_i32", std::min(i32(a), i32(b)), i32(a) < i32(b)); SI("s_max_i32", std::max(i32(a), i32(b)), i32(a) > i32(b));
    SI("s_min_u32", std::min(a, b), a < b); SI("s_max_u32", std::max(a, b), a > b);
    SI("s_abs_i32", i32(a) < 0 ? 0 - a : a, r != 0); SI("s_absdiff_i32", i32(a) > i32(b) ? a - b : b - a, r != 0);
    SI("s_bfe_u32", (b >> 16 & 127) ? (a >> (b & 31)) & ((b >> 16 & 127) >= 32 ? ~0u : (1u << (b >> 16 & 127)) - 1) : 0, r != 0);
    SI("s_bfe_i32", (b >> 16 & 127) ? ((b >> 16 & 127) >= 32 ? i32(a) >> (b & 31) : i32((a >> (b & 31)) << (32 - (b >> 16 & 127))) >> (32 - (b >> 16 & 127))) : 0, r != 0);
    D("s_bfe_u64", u64 a = rd64(w, i.o[1], 0); u32 b = rd32(w, i.o[2], 0); u32 n = b >> 16 & 127; u64 r = a >> (b & 63); if(n < 64) r &= (1ull << n) - 1; ws64(w, i.o[0], r); w.scc() = r != 0;);
    D("s_bfe_i64", u64 a = rd64(w, i.o[1], 0); u32 b = rd32(w, i.o[2], 0); u32 n = b >> 16 & 127; i64 r = (i64)a >> (b & 63); if(n == 0) r = 0; else if(n < 64) r = i64(u64(r) << (64 - n)) >> (64 - n); ws64(w, i.o[0], r); w.scc() = r != 0;);
    SI("s_bfm_b32", ((1u << (a & 31)) - 1) << (b & 31), w.scc());
    SI("s_brev_b32", __builtin_bswap32(((a & 0x0f0f0f0f) << 4 & 0xf0f0f0f0) | (a >> 4 & 0x0f0f0f0f)), w.scc());
    T()["s_brev_b32"] = [](Wave& w, const Inst& i) { u32 a = rd32(w, i.o[1], 0), r = 0; for(int k = 0; k < 32; k++) r |= (a >> k & 1) << (31 - k); ws32(w, i.o[0], r); };
    SI("s_bcnt1_i32_b32", __builtin_popcount(a), r != 0); SI("s_bcnt0_i32_b32", 32 - __builtin_popcount(a), r != 0);
    D("s_bcnt0_i32_b64", u32 r = 64 - __builtin_popcountll(rd64(w, i.o[1], 0)); ws32(w, i.o[0], r); w.scc() = r != 0;);
    D("s_brev_b64", u64 a = rd64(w, i.o[1], 0), r = 0; for(int k = 0; k < 64; k++) r |= (a >> k & 1) << (63 - k); ws64(w, i.o[0], r););
    D("s_bfm_b64", ws64(w, i.o[0], ((1ull << (rd32(w, i.o[1], 0) & 63)) - 1) << (rd32(w, i.o[2], 0) & 63)););
    D("s_bitset0_b64", ws64(w, i.o[0], rd64(w, i.o[0], 0) & ~(1ull << (rd32(w, i.o[1], 0) & 63))););
    D("s_bitset1_b64", ws64(w, i.o[0], rd64(w, i.o[0], 0) | 1ull << (rd32(w, i.o[1], 0) & 63)););
    D("s_bcnt1_i32_b64", u32 r = __builtin_popcountll(rd64(w, i.o[1], 0)); ws32(w, i.o[0], r); w.scc() = r != 0;);
    SI("s_ctz_i32_b32", a ? __builtin_ctz(a) : -1, w.scc()); SI("s_clz_i32_u32", a ? __builtin_clz(a) : -1, w.scc());
    D("s_ctz_i32_b64", u64 a = rd64(w, i.o[1], 0); ws32(w, i.o[0], a ? __builtin_ctzll(a) : -1););
    D("s_clz_i32_u64", u64 a = rd64(w, i.o[1], 0); ws32(w, i.o[0], a ? __builtin_clzll(a) : -1););
    SI("s_cls_i32", (a == 0 || a == ~0u) ? -1 : __builtin_clz(i32(a) < 0 ? ~a : a), w.scc());
    SI("s_sext_i32_i8", (i32)(i8)a, w.scc()); SI("s_sext_i32_i16", (i32)(i16)a, w.scc());
    D("s_bitset0_b32", ws32(w, i.o[0], w.s[i.o[0].idx] & ~(1u << (rd32(w, i.o[1], 0) & 31))););
    D("s_bitset1_b32", ws32(w, i.o[0], w.s[i.o[0].idx] | 1u << (rd32(w, i.o[1], 0) & 31)););
    SI("s_pack_ll_b32_b16", (a & 0xffff) | b << 16, w.scc()); SI("s_pack_lh_b32_b16", (a & 0xffff) | (b & 0xffff0000), w.scc());
    SI("s_pack_hh_b32_b16", a >> 16 | (b & 0xffff0000), w.scc()); SI("s_pack_hl_b32_b16", a >> 16 | b << 16, w.scc());
#define SF(nm, expr) D(nm, float a = bits<float>(rd32(w, i.o[1], 0)), b = i.n > 2 ? bits<float>(rd32(w, i.o[2], 0)) : 0; (void)a; (void)b; ws32(w, i.o[0], bits<u32>((float)(expr)));)
    SF("s_add_f32", a + b); SF("s_sub_f32", a - b); SF("s_mul_f32", a * b); SF("s_min_f32", fminf(a, b)); SF("s_max_f32", fmaxf(a, b)); SF("s_floor_f32", floorf(a)); SF("s_ceil_f32", ceilf(a)); SF("s_trunc_f32", truncf(a)); SF("s_rndne_f32", rintf(a));
    D("s_fmac_f32", ws32(w, i.o[0], bits<u32>(fmaf(bits<float>(rd32(w, i.o[1], 0)), bits<float>(rd32(w, i.o[2], 0)), bits<float>(rd32(w, i.o[0], 0)))));); 
    D("s_cvt_f32_u32", ws32(w, i.o[0], bits<u32>((float)rd32(w, i.o[1], 0)));); D("s_cvt_f32_i32", ws32(w, i.o[0], bits<u32>((float)(i32)rd32(w, i.o[1], 0))););
    D("s_cvt_u32_f32", ws32(w, i.o[0], sat_cast<u32>(bits<float>(rd32(w, i.o[1], 0))));); D("s_cvt_i32_f32", ws32(w, i.o[0], sat_cast<i32>(bits<float>(rd32(w, i.o[1], 0)))););
#define SAVEEXEC(nm, expr)                                                                                                                          \
    D("s_" nm "_saveexec_b32", u32 s0 = rd32(w, i.o[1], 0); u32 e = w.s[EXEC]; u32 r = (expr); ws32(w, i.o[0], e); w.s[EXEC] = r; w.scc() = r != 0;); \
    D("s_" nm "_saveexec_b64", u64 s0 = rd64(w, i.o[1], 0); u64 e = w.exec(); u64 r = (expr); ws64(w, i.o[0], e); w.set_mask(EXEC, r); w.scc() = r != 0;)
    SAVEEXEC("and", s0 & e); SAVEEXEC("or", s0 | e); SAVEEXEC("xor", s0 ^ e); SAVEEXEC("and_not1", s0 & ~e); SAVEEXEC("or_not1", s0 | ~e);
    SAVEEXEC("and_not0", ~s0 & e); SAVEEXEC("or_not0", ~s0 | e); SAVEEXEC("nand", ~(s0 & e)); SAVEEXEC("nor", ~(s0 | e)); SAVEEXEC("xnor", ~(s0 ^ e));
#define WREXEC(nm, expr)                                                                                                             \
    D("s_" nm "_wrexec_b32", u32 s0 = rd32(w, i.o[1], 0); u32 e = w.s[EXEC]; u32 r = (expr); w.s[EXEC] = r; ws32(w, i.o[0], r); w.scc() = r != 0;); \
    D("s_" nm "_wrexec_b64", u64 s0 = rd64(w, i.o[1], 0); u64 e = w.exec(); u64 r = (expr); w.set_mask(EXEC, r); ws64(w, i.o[0], r); w.scc() = r != 0;)
    WREXEC("and_not1", s0 & ~e); WREXEC("and_not0", ~s0 & e);
#define SCMP(nm, ty, op) D(nm, w.scc() = (ty)rd32(w, i.o[0], 0) op (ty)rd32(w, i.o[1], 0);)
#define SCMPS(sfx, ty) SCMP("s_cmp_eq_" sfx, ty, ==); SCMP("s_cmp_lg_" sfx, ty, !=); SCMP("s_cmp_gt_" sfx, ty, >); SCMP("s_cmp_ge_" sfx, ty, >=); SCMP("s_cmp_lt_" sfx, ty, <); SCMP("s_cmp_le_" sfx, ty, <=);
    SCMPS("i32", i32) SCMPS("u32", u32)
    D("s_cmp_eq_u64", w.scc() = rd64(w, i.o[0], 0) == rd64(w, i.o[1], 0););
    D("s_cmp_lg_u64", w.scc() = rd64(w, i.o[0], 0) != rd64(w, i.o[1], 0););
    D("s_bitcmp0_b32", w.scc() = !(rd32(w, i.o[0], 0) >> (rd32(w, i.o[1], 0) & 31) & 1););
    D("s_bitcmp1_b32", w.scc() = rd32(w, i.o[0], 0) >> (rd32(w, i.o[1], 0) & 31) & 1;);
    D("s_bitcmp0_b64", w.scc() = !(rd64(w, i.o[0], 0) >> (rd32(w, i.o[1], 0) & 63) & 1););
    D("s_bitcmp1_b64", w.scc() = rd64(w, i.o[0], 0) >> (rd32(w, i.o[1], 0) & 63) & 1;);
#define K16 (i32)(i16)i.raw
    D("s_movk_i32", ws32(w, i.o[0], K16););
    D("s_cmovk_i32", if(w.scc()) ws32(w, i.o[0], K16););
    D("s_addk_i32", u32 a = w.s[i.o[0].idx], b = K16; u32 r = a + b; ws32(w, i.o[0], r); w.scc() = ((a ^ r) & (b ^ r)) >> 31;);
    D("s_mulk_i32", ws32(w, i.o[0], w.s[i.o[0].idx] * (u32)(K16)););
#define SCMPK(nm, op) D("s_cmpk_" nm "_i32", w.scc() = (i32)w.s[i.o[0].idx] op K16;); D("s_cmpk_" nm "_u32", w.scc() = w.s[i.o[0].idx] op (u32)(u16)i.raw;)
    SCMPK("eq", ==); SCMPK("lg", !=); SCMPK("gt", >); SCMPK("ge", >=); SCMPK("lt", <); SCMPK("le", <=);
    D("s_getreg_b32", ws32(w, i.o[0], 0););
    for(auto n : {"s_nop", "s_delay_alu", "s_waitcnt", "s_waitcnt_depctr", "s_waitcnt_vscnt", "s_waitcnt_vmcnt", "s_waitcnt_lgkmcnt", "s_waitcnt_expcnt", "s_clause",
                  "s_set_inst_prefetch_distance", "s_inst_prefetch", "s_sleep", "s_setprio", "s_sendmsg", "s_code_end", "s_icache_inv", "s_dcache_inv", "s_gl1_inv",
                  "s_ttracedata", "s_ttracedata_imm", "s_setreg_b32", "s_setreg_imm32_b32", "s_round_mode", "s_denorm_mode", "s_version", "buffer_gl0_inv", "buffer_gl1_inv", "buffer_inv", "buffer_wbl2", "buffer_wbinvl1", "buffer_wbinvl1_vol", "s_dcache_wb",
                  "v_nop", "s_wait_idle", "s_wait_event", "v_pipeflush", "s_incperflevel", "s_decperflevel", "s_sethalt"})
        D(n, );
    D("s_endpgm", w.state = Done;);
    // GFX9 adds an index to the places of vector registers: M0 has it, and which operands it is for.
    D("s_set_gpr_idx_on", w.s[M0] = (w.s[M0] & 0xffff0f00) | (rd32(w, i.o[0], 0) & 255) | (i.raw >> 8 & 15) << 12; w.indexed = true;);
    D("s_set_gpr_idx_off", w.indexed = false;);
    D("s_set_gpr_idx_mode", w.s[M0] = (w.s[M0] & 0xffff0fff) | (i.raw & 15) << 12;);
    D("s_set_gpr_idx_idx", w.s[M0] = (w.s[M0] & 0xffffff00) | (rd32(w, i.o[0], 0) & 255););
    D("s_memtime", ws64(w, i.o[0], 0););
    D("s_memrealtime", ws64(w, i.o[0], 0););
    D("s_barrier", w.state = AtBarrier;);
    D("s_trap", fail("s_trap"););
#define BR(nm, cond) D(nm, if(cond) w.next = w.pc + 4 + 4 * K16;)
    BR("s_branch", true); BR("s_cbranch_scc0", !w.scc()); BR("s_cbranch_scc1", w.scc()); BR("s_cbranch_vccz", !w.mask(VCC)); BR("s_cbranch_vccnz", w.mask(VCC));
    BR("s_cbranch_execz", !w.exec()); BR("s_cbranch_execnz", w.exec());
    D("s_getpc_b64", ws64(w, i.o[0], (u64)w.next););
    D("s_setpc_b64", w.next = (const u8*)rd64(w, i.o[0], 0););
    D("s_swappc_b64", u64 t = rd64(w, i.o[1], 0); ws64(w, i.o[0], (u64)w.next); w.next = (const u8*)t;);
    D("s_call_b64", ws64(w, i.o[0], (u64)w.next); w.next = w.pc + 4 + 4 * K16;);
}
} // namespace gfxemu
