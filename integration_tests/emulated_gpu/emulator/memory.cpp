// Loads, stores and atomics: global, flat, scratch, buffer, LDS and scalar memory.
#include <mutex>

#include "tables.h"

namespace gfxemu {
namespace {
u8* mem(Wave& w, u64 addr, u32 size, bool lds_ok = true)
{
    u64 hi = addr & 0xffff000000000000ull;
    if(lds_ok && hi == SHARED_APERTURE)
    {
        u64 o = addr & 0xffffffff;
        if(o + size > w.g->lds.size()) fail("flat access outside LDS");
        return w.g->lds.data() + o;
    }
    const hipemu_dispatch* d = w.g->d;
    u8* place = d->resolve(d->context, addr, size);
    if(!place)
    {
        char b[96];
        snprintf(b, sizeof b, "access to memory that is not allocated: %u bytes at 0x%llx", size, (unsigned long long)addr);
        throw BadAddress(b);
    }
    return place;
}
u8* lds(Wave& w, u32 addr, u32 size)
{
    if(u64(addr) + size > w.g->lds.size())
    {
        static thread_local u8 sink[16];
        memset(sink, 0, sizeof sink);
        return sink; // out of range: loads give 0, stores are dropped
    }
    return w.g->lds.data() + addr;
}
u8* scratch(Wave& w, int lane, u64 off, u32 size)
{
    if(off + size > w.scratch_size) fail("access outside scratch");
    return w.scratch + u64(lane) * w.scratch_size + off;
}

// What a load or store moves.  aux: low 8 bits bytes; flags above.
enum { SIGNED = 0x100, D16LO = 0x200, D16HI = 0x400, STORE = 0x800, ATOMIC = 0x1000, OPSHIFT = 16 };
void load_into(Wave& w, const Operand& d, int l, const u8* p, int aux)
{
    u32 n = aux & 255;
    if(n >= 4)
    {
        for(u32 k = 0; k < n / 4; k++) memcpy(&w.v[d.idx + k][l], p + 4 * k, 4);
        return;
    }
    u32 x = 0;
    memcpy(&x, p, n);
    if(aux & SIGNED) x = n == 1 ? (u32)(i32)(i8)x : (u32)(i32)(i16)x;
    u32& r = w.v[d.idx][l];
    if(aux & D16LO) r = (r & 0xffff0000) | (x & 0xffff);
    else if(aux & D16HI) r = (r & 0xffff) | x << 16;
    else r = x;
}
void store_from(Wave& w, const Operand& s, int l, u8* p, int aux)
{
    u32 n = aux & 255;
    if(n >= 4)
    {
        for(u32 k = 0; k < n / 4; k++) memcpy(p + 4 * k, &w.v[s.idx + k][l], 4);
        return;
    }
    u32 x = w.v[s.idx][l];
    if(aux & D16HI) x >>= 16;
    memcpy(p, &x, n);
}
enum Atom { A_ADD_U32 = 1, A_SUB_U32, A_MIN_I32, A_MIN_U32, A_MAX_I32, A_MAX_U32, A_AND_B32, A_OR_B32, A_XOR_B32, A_SWAP_B32, A_CMPSWAP_B32,
            A_ADD_F32, A_MIN_F32, A_MAX_F32, A_ADD_U64, A_SWAP_B64, A_CMPSWAP_B64, A_PK_ADD_F16, A_INC_U32, A_DEC_U32, A_ADD_F64 };
std::mutex atomic_mu;
u64 atomic_op(u8* p, int op, u64 d, u64 cmp)
{
    std::lock_guard<std::mutex> lk(atomic_mu);
    bool wide = op == A_ADD_U64 || op == A_SWAP_B64 || op == A_CMPSWAP_B64 || op == A_ADD_F64;
    u64 old = 0;
    memcpy(&old, p, wide ? 8 : 4);
    u32 o = (u32)old, x = (u32)d;
    u64 n;
    switch(op)
    {
    case A_ADD_U32: n = o + x; break;
    case A_SUB_U32: n = o - x; break;
    case A_MIN_I32: n = std::min((i32)o, (i32)x); break;
    case A_MAX_I32: n = std::max((i32)o, (i32)x); break;
    case A_MIN_U32: n = std::min(o, x); break;
    case A_MAX_U32: n = std::max(o, x); break;
    case A_AND_B32: n = o & x; break;
    case A_OR_B32: n = o | x; break;
    case A_XOR_B32: n = o ^ x; break;
    case A_SWAP_B32: n = x; break;
    case A_CMPSWAP_B32: n = o == (u32)cmp ? x : o; break;
    case A_ADD_F32: n = bits<u32>(bits<float>(o) + bits<float>(x)); break;
    case A_MIN_F32: n = bits<u32>(fminf(bits<float>(o), bits<float>(x))); break;
    case A_MAX_F32: n = bits<u32>(fmaxf(bits<float>(o), bits<float>(x))); break;
    case A_INC_U32: n = o >= x ? 0 : o + 1; break;
    case A_DEC_U32: n = o == 0 || o > x ? x : o - 1; break;
    case A_PK_ADD_F16:
        n = bits<u16>((f16)(bits<f16>((u16)o) + bits<f16>((u16)x))) | u32(bits<u16>((f16)(bits<f16>((u16)(o >> 16)) + bits<f16>((u16)(x >> 16))))) << 16;
        break;
    case A_ADD_U64: n = old + d; break;
    case A_ADD_F64: n = bits<u64>(bits<double>(old) + bits<double>(d)); break;
    case A_SWAP_B64: n = d; break;
    case A_CMPSWAP_B64: n = old == cmp ? d : old; break;
    default: fail("atomic");
    }
    memcpy(p, &n, wide ? 8 : 4);
    return old;
}
void do_atomic(Wave& w, const Inst& i, int l, u8* p, const Operand* dst, const Operand& data)
{
    int op = i.aux >> OPSHIFT;
    bool wide = op == A_ADD_U64 || op == A_SWAP_B64 || op == A_CMPSWAP_B64 || op == A_ADD_F64;
    Operand hi = data;
    hi.idx += wide ? 2 : 1;
    u64 d = wide ? rd64(w, data, l) : rd32(w, data, l), c = 0;
    if(op == A_CMPSWAP_B32) c = rd32(w, hi, l);
    if(op == A_CMPSWAP_B64) c = rd64(w, hi, l);
    u64 old = atomic_op(p, op, d, c);
    if(dst)
    {
        if(wide) wr64(w, *dst, l, old);
        else wr32(w, *dst, l, (u32)old);
    }
}

// global_* and flat_*: [vdst,] vaddr, [data,] [saddr|off]
void h_global(Wave& w, const Inst& i)
{
    bool flat = i.off0, st = i.aux & STORE, at = i.aux & ATOMIC;
    bool has_dst = !st && (!at || i.glc);
    int k        = has_dst ? 1 : 0;
    const Operand& va = i.o[k];
    const Operand* data = st || at ? &i.o[k + 1] : nullptr;
    const Operand* sa   = flat ? nullptr : &i.o[k + 1 + (data ? 1 : 0)];
    if(sa && sa->k != Operand::S) sa = nullptr;
    LANES
    {
        u64 a = sa ? (w.s[sa->idx] | u64(w.s[sa->idx + 1]) << 32) + (va.k == Operand::V ? w.v[va.idx][l] : 0) : rd64(w, va, l);
        a += (i64)i.offset;
        u8* p = flat && (a & 0xffff000000000000ull) == PRIVATE_APERTURE ? scratch(w, l, a & 0xffffffff, i.aux & 255) : mem(w, a, i.aux & 255, flat);
        if(at) do_atomic(w, i, l, p, has_dst ? &i.o[0] : nullptr, *data);
        else if(st) store_from(w, *data, l, p, i.aux);
        else load_into(w, i.o[0], l, p, i.aux);
    }
}
// scratch_load vdst, vaddr|off, saddr|off    scratch_store vaddr|off, data, saddr|off
void h_scratch(Wave& w, const Inst& i)
{
    bool st = i.aux & STORE;
    const Operand& va = i.o[st ? 0 : 1];
    const Operand& sa = i.o[2];
    LANES
    {
        u64 a = (u32)((va.k == Operand::V ? w.v[va.idx][l] : 0) + (sa.k == Operand::S ? w.s[sa.idx] : 0) + (u32)i.offset);
        u8* p = scratch(w, l, a, i.aux & 255);
        if(st) store_from(w, i.o[1], l, p, i.aux);
        else load_into(w, i.o[0], l, p, i.aux);
    }
}
// buffer_* vdata, vaddr|off, srsrc, soffset
void h_buffer(Wave& w, const Inst& i)
{
    bool st = i.aux & STORE, at = i.aux & ATOMIC;
    const Operand &va = i.o[1], &rs = i.o[2], &so = i.o[3];
    const u32* r = &w.s[rs.idx];
    u64 base     = r[0] | u64(r[1] & 0xffff) << 32;
    u32 stride = (r[1] >> 16) & 0x3fff, recs = r[2];
    LANES
    {
        u32 index = 0, off = (u32)i.offset;
        if(i.idxen) index = w.v[va.idx][l];
        if(i.offen) off += w.v[va.idx + (i.idxen ? 1 : 0)][l];
        u32 soff  = rd32(w, so, l);
        u64 total = u64(index) * stride + off;
        bool oob  = stride && i.idxen ? index >= recs : total + soff + (i.aux & 255) > recs;
        if(oob)
        {
            static const u8 zero[64] = {};
            if(!st && !at) load_into(w, i.o[0], l, zero, i.aux);
            continue;
        }
        u8* p = mem(w, base + total + soff, i.aux & 255, false);
        if(at) do_atomic(w, i, l, p, i.glc ? &i.o[0] : nullptr, i.o[0]);
        else if(st) store_from(w, i.o[0], l, p, i.aux);
        else load_into(w, i.o[0], l, p, i.aux);
    }
}
void h_ds(Wave& w, const Inst& i)
{
    bool st = i.aux & STORE, at = i.aux & ATOMIC, rtn = i.off1;
    const Operand& a = i.o[st || (at && !rtn) ? 0 : 1];
    LANES
    {
        u8* p = lds(w, w.v[a.idx][l] + i.offset, i.aux & 255);
        if(at) do_atomic(w, i, l, p, rtn ? &i.o[0] : nullptr, i.o[rtn ? 2 : 1]);
        else if(st) store_from(w, i.o[1], l, p, i.aux);
        else load_into(w, i.o[0], l, p, i.aux);
    }
}
void h_ds2(Wave& w, const Inst& i) // 2addr forms; aux>>16 = unit in bytes
{
    bool st = i.aux & STORE;
    u32 n = i.aux & 255, unit = i.aux >> OPSHIFT;
    LANES
    {
        u32 a = w.v[i.o[st ? 0 : 1].idx][l];
        u8 tmp[16];
        for(int k = 0; k < 2; k++)
        {
            u8* p = lds(w, a + (k ? i.off1 : i.off0) * unit, n);
            if(st) store_from(w, i.o[1 + k], l, p, n);
            else memcpy(tmp + k * n, p, n);
        }
        if(!st)
            for(u32 k = 0; k < n / 2; k++) memcpy(&w.v[i.o[0].idx + k][l], tmp + 4 * k, 4);
    }
}
void h_smem(Wave& w, const Inst& i)
{
    u64 a = rd64(w, i.o[1], 0);
    if(i.off1) a &= 0xffffffffffffull; // s_buffer_load: base of the descriptor
    i64 off = i.offset;
    const Operand& x = i.o[2];
    if(i.n > 2)
    {
        if(x.k == Operand::S && x.idx != SNULL) off += w.s[x.idx];
        else if(x.k == Operand::C) off += (i32)x.c32;
    }
    u8* p = mem(w, (a & ~3ull) + off, i.aux, false);
    for(int k = 0; k < i.aux / 4; k++) memcpy(&w.s[i.o[0].idx + k], p + 4 * k, 4);
}
} // namespace

void memory_table()
{
    struct { const char* n; int aux; } acc[] = {{"load_b32", 4}, {"load_b64", 8}, {"load_b96", 12}, {"load_b128", 16}, {"load_u8", 1}, {"load_i8", 1 | SIGNED}, {"load_u16", 2}, {"load_i16", 2 | SIGNED},
        {"load_d16_b16", 2 | D16LO}, {"load_d16_hi_b16", 2 | D16HI}, {"load_d16_u8", 1 | D16LO}, {"load_d16_hi_u8", 1 | D16HI}, {"load_d16_i8", 1 | SIGNED | D16LO}, {"load_d16_hi_i8", 1 | SIGNED | D16HI},
        {"store_b8", 1 | STORE}, {"store_b16", 2 | STORE}, {"store_b32", 4 | STORE}, {"store_b64", 8 | STORE}, {"store_b96", 12 | STORE}, {"store_b128", 16 | STORE},
        {"store_d16_hi_b8", 1 | D16HI | STORE}, {"store_d16_hi_b16", 2 | D16HI | STORE},
        {"atomic_add_u32", 4 | ATOMIC | A_ADD_U32 << OPSHIFT}, {"atomic_sub_u32", 4 | ATOMIC | A_SUB_U32 << OPSHIFT}, {"atomic_min_i32", 4 | ATOMIC | A_MIN_I32 << OPSHIFT}, {"atomic_min_u32", 4 | ATOMIC | A_MIN_U32 << OPSHIFT},
        {"atomic_max_i32", 4 | ATOMIC | A_MAX_I32 << OPSHIFT}, {"atomic_max_u32", 4 | ATOMIC | A_MAX_U32 << OPSHIFT}, {"atomic_and_b32", 4 | ATOMIC | A_AND_B32 << OPSHIFT}, {"atomic_or_b32", 4 | ATOMIC | A_OR_B32 << OPSHIFT},
        {"atomic_xor_b32", 4 | ATOMIC | A_XOR_B32 << OPSHIFT}, {"atomic_swap_b32", 4 | ATOMIC | A_SWAP_B32 << OPSHIFT}, {"atomic_cmpswap_b32", 4 | ATOMIC | A_CMPSWAP_B32 << OPSHIFT}, {"atomic_add_f32", 4 | ATOMIC | A_ADD_F32 << OPSHIFT},
        {"atomic_min_f32", 4 | ATOMIC | A_MIN_F32 << OPSHIFT}, {"atomic_max_f32", 4 | ATOMIC | A_MAX_F32 << OPSHIFT}, {"atomic_add_u64", 8 | ATOMIC | A_ADD_U64 << OPSHIFT}, {"atomic_swap_b64", 8 | ATOMIC | A_SWAP_B64 << OPSHIFT},
        {"atomic_cmpswap_b64", 8 | ATOMIC | A_CMPSWAP_B64 << OPSHIFT}, {"atomic_inc_u32", 4 | ATOMIC | A_INC_U32 << OPSHIFT}, {"atomic_dec_u32", 4 | ATOMIC | A_DEC_U32 << OPSHIFT}};
    for(auto& a : acc)
        for(auto p : {"global_", "flat_", "scratch_", "buffer_"})
        {
            std::string n = std::string(p) + a.n;
            T()[n]   = *p == 's' ? h_scratch : *p == 'b' ? h_buffer : h_global;
            AUX()[n] = a.aux;
        }
    struct { const char* n; int aux; } ds[] = {{"load_b32", 4}, {"load_b64", 8}, {"load_b96", 12}, {"load_b128", 16}, {"load_u8", 1}, {"load_i8", 1 | SIGNED}, {"load_u16", 2}, {"load_i16", 2 | SIGNED},
        {"load_u16_d16", 2 | D16LO}, {"load_u16_d16_hi", 2 | D16HI}, {"load_u8_d16", 1 | D16LO}, {"load_u8_d16_hi", 1 | D16HI}, {"load_i8_d16", 1 | SIGNED | D16LO}, {"load_i8_d16_hi", 1 | SIGNED | D16HI},
        {"store_b8", 1 | STORE}, {"store_b16", 2 | STORE}, {"store_b32", 4 | STORE}, {"store_b64", 8 | STORE}, {"store_b96", 12 | STORE}, {"store_b128", 16 | STORE}, {"store_b8_d16_hi", 1 | D16HI | STORE}, {"store_b16_d16_hi", 2 | D16HI | STORE},
        {"add_u32", 4 | ATOMIC | A_ADD_U32 << OPSHIFT}, {"add_f32", 4 | ATOMIC | A_ADD_F32 << OPSHIFT}, {"min_i32", 4 | ATOMIC | A_MIN_I32 << OPSHIFT}, {"max_i32", 4 | ATOMIC | A_MAX_I32 << OPSHIFT}, {"min_u32", 4 | ATOMIC | A_MIN_U32 << OPSHIFT},
        {"max_u32", 4 | ATOMIC | A_MAX_U32 << OPSHIFT}, {"or_b32", 4 | ATOMIC | A_OR_B32 << OPSHIFT}, {"and_b32", 4 | ATOMIC | A_AND_B32 << OPSHIFT}, {"xor_b32", 4 | ATOMIC | A_XOR_B32 << OPSHIFT}, {"add_u64", 8 | ATOMIC | A_ADD_U64 << OPSHIFT}};
    for(auto& a : ds)
    {
        std::string n = std::string("ds_") + a.n;
        T()[n]   = h_ds;
        AUX()[n] = a.aux;
        if(a.aux & ATOMIC)
        {
            std::string r = std::string("ds_") + std::string(a.n).insert(std::string(a.n).rfind('_'), "_rtn");
            T()[r] = h_ds;
            AUX()[r] = a.aux;
        }
    }
    for(int b : {32, 64})
    {
        std::string s = std::to_string(b);
        T()["ds_load_2addr_b" + s] = T()["ds_store_2addr_b" + s] = T()["ds_load_2addr_stride64_b" + s] = T()["ds_store_2addr_stride64_b" + s] = h_ds2;
        AUX()["ds_load_2addr_b" + s] = b / 8 | (b / 8) << OPSHIFT;
        AUX()["ds_store_2addr_b" + s] = b / 8 | STORE | (b / 8) << OPSHIFT;
        AUX()["ds_load_2addr_stride64_b" + s] = b / 8 | (b * 8) << OPSHIFT;
        AUX()["ds_store_2addr_stride64_b" + s] = b / 8 | STORE | (b * 8) << OPSHIFT;
    }
    D("ds_bpermute_b32", u32 t[32]; for(int l = 0; l < 32; l++) t[l] = w.exec() >> l & 1 ? w.v[i.o[2].idx][l] : 0; LANES wr32(w, i.o[0], l, t[(w.v[i.o[1].idx][l] + i.offset) >> 2 & 31]););
    D("ds_permute_b32", u32 t[32] = {}; LANES t[(w.v[i.o[1].idx][l] + i.offset) >> 2 & 31] = w.v[i.o[2].idx][l]; LANES wr32(w, i.o[0], l, t[l]););
    int sz[] = {32, 64, 128, 256, 512};
    for(int b : sz)
    {
        T()["s_load_b" + std::to_string(b)] = h_smem; AUX()["s_load_b" + std::to_string(b)] = b / 8;
        T()["s_buffer_load_b" + std::to_string(b)] = h_smem; AUX()["s_buffer_load_b" + std::to_string(b)] = b / 8;
    }
}
} // namespace gfxemu
