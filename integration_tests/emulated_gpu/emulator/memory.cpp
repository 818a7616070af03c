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
    // Where SRAM has ECC, as on every gfx942, the other half is lost.
    const u32 kept = w.gfx9 ? 0 : r;
    if(aux & D16LO) r = (kept & 0xffff0000) | (x & 0xffff);
    else if(aux & D16HI) r = (kept & 0xffff) | x << 16;
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
enum Atom { A_ADD = 1, A_SUB, A_MIN_I, A_MIN_U, A_MAX_I, A_MAX_U, A_AND, A_OR, A_XOR, A_SWAP, A_CMPSWAP, A_INC, A_DEC, A_ADD_F, A_MIN_F, A_MAX_F,
            A_PK_ADD_F16, A_PK_ADD_BF16, A_CMPSWAP_GFX9 };
// Two sums of half the bits each.
template <class ADD> u32 halves(u32 x, u32 y, ADD add) { return add((u16)x, (u16)y) | u32(add(u16(x >> 16), u16(y >> 16))) << 16; }
u16 bf_of(float x) // to nearest, ties to even
{
    u32 b = bits<u32>(x);
    return x != x ? 0x7fc0 : (b + 0x7fff + (b >> 16 & 1)) >> 16;
}
std::mutex atomic_mu;
// The new value for one of 4 or 8 bytes; floats and signed integers are of that size.
template <class U, class I, class F> U combine(int op, U o, U x, U cmp)
{
    switch(op)
    {
    case A_ADD: return o + x;
    case A_SUB: return o - x;
    case A_MIN_I: return std::min((I)o, (I)x);
    case A_MAX_I: return std::max((I)o, (I)x);
    case A_MIN_U: return std::min(o, x);
    case A_MAX_U: return std::max(o, x);
    case A_AND: return o & x;
    case A_OR: return o | x;
    case A_XOR: return o ^ x;
    case A_SWAP: return x;
    case A_CMPSWAP: return o == cmp ? x : o;
    case A_INC: return o >= x ? 0 : o + 1;
    case A_DEC: return o == 0 || o > x ? x : o - 1;
    case A_ADD_F: return bits<U>(F(bits<F>(o) + bits<F>(x)));
    case A_MIN_F: return bits<U>(F(std::fmin(bits<F>(o), bits<F>(x))));
    case A_MAX_F: return bits<U>(F(std::fmax(bits<F>(o), bits<F>(x))));
    case A_PK_ADD_F16: return halves((u32)o, (u32)x, [](u16 p, u16 q) { return bits<u16>((f16)(bits<f16>(p) + bits<f16>(q))); });
    case A_PK_ADD_BF16: return halves((u32)o, (u32)x, [](u16 p, u16 q) { return bf_of(bf2f(p) + bf2f(q)); });
    default: fail("atomic");
    }
}
u64 atomic_op(u8* p, int op, bool wide, u64 d, u64 cmp)
{
    std::lock_guard<std::mutex> lk(atomic_mu);
    u64 old = 0;
    memcpy(&old, p, wide ? 8 : 4);
    const u64 n = wide ? combine<u64, i64, double>(op, old, d, cmp) : combine<u32, i32, float>(op, (u32)old, (u32)d, (u32)cmp);
    memcpy(p, &n, wide ? 8 : 4);
    return old;
}
void do_atomic(Wave& w, const Inst& i, int l, u8* p, const Operand* dst, const Operand& data)
{
    int op = i.aux >> OPSHIFT;
    const bool wide = (i.aux & 255) == 8;
    Operand hi = data;
    hi.idx += wide ? 2 : 1;
    u64 d = wide ? rd64(w, data, l) : rd32(w, data, l), c = 0;
    if(op == A_CMPSWAP || op == A_CMPSWAP_GFX9) c = wide ? rd64(w, hi, l) : rd32(w, hi, l);
    // In LDS, where both values are operands, GFX9 has the one to compare with in front.
    if(op == A_CMPSWAP_GFX9)
    {
        std::swap(d, c);
        op = A_CMPSWAP;
    }
    u64 old = atomic_op(p, op, wide, d, c);
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
// Two operands of an atomic one behind the other, as global memory's has them.
Operand pair(Wave& w, const Inst& i, int k, int l)
{
    const u32 n = (i.aux & 255) / 4;
    for(u32 r = 0; r < n; r++)
    {
        w.v[SELECTED + r][l]     = w.v[i.o[k].idx + r][l];
        w.v[SELECTED + n + r][l] = w.v[i.o[k + 1].idx + r][l];
    }
    Operand both = i.o[k];
    both.idx     = SELECTED;
    return both;
}
void h_ds(Wave& w, const Inst& i)
{
    const int op   = i.aux >> OPSHIFT;
    const bool two = op == A_CMPSWAP || op == A_CMPSWAP_GFX9;
    bool st = i.aux & STORE, at = i.aux & ATOMIC, rtn = i.off1;
    const Operand& a = i.o[st || (at && !rtn) ? 0 : 1];
    LANES
    {
        u8* p = lds(w, w.v[a.idx][l] + i.offset, i.aux & 255);
        if(at && two) do_atomic(w, i, l, p, rtn ? &i.o[0] : nullptr, pair(w, i, rtn ? 2 : 1, l));
        else if(at) do_atomic(w, i, l, p, rtn ? &i.o[0] : nullptr, i.o[rtn ? 2 : 1]);
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
        {"store_d16_hi_b8", 1 | D16HI | STORE}, {"store_d16_hi_b16", 2 | D16HI | STORE}};
    for(auto& a : acc)
        for(auto p : {"global_", "flat_", "scratch_", "buffer_"})
        {
            std::string n = std::string(p) + a.n;
            T()[n]   = *p == 's' ? h_scratch : *p == 'b' ? h_buffer : h_global;
            AUX()[n] = a.aux;
        }
    struct { const char* n; int aux; } ds[] = {{"load_b32", 4}, {"load_b64", 8}, {"load_b96", 12}, {"load_b128", 16}, {"load_u8", 1}, {"load_i8", 1 | SIGNED}, {"load_u16", 2}, {"load_i16", 2 | SIGNED},
        {"load_u16_d16", 2 | D16LO}, {"load_u16_d16_hi", 2 | D16HI}, {"load_u8_d16", 1 | D16LO}, {"load_u8_d16_hi", 1 | D16HI}, {"load_i8_d16", 1 | SIGNED | D16LO}, {"load_i8_d16_hi", 1 | SIGNED | D16HI},
        {"store_b8", 1 | STORE}, {"store_b16", 2 | STORE}, {"store_b32", 4 | STORE}, {"store_b64", 8 | STORE}, {"store_b96", 12 | STORE}, {"store_b128", 16 | STORE}, {"store_b8_d16_hi", 1 | D16HI | STORE}, {"store_b16_d16_hi", 2 | D16HI | STORE}};
    for(auto& a : ds)
    {
        std::string n = std::string("ds_") + a.n;
        T()[n]   = h_ds;
        AUX()[n] = a.aux;
    }
    // Atomics: in global memory under one name, in LDS under one for each of what returns the value before and what doesn't.
    auto atomic = [](const std::string& name, const std::string& in_lds, const std::string& type, int bytes, int op, int op_in_lds) {
        for(auto p : {"global_atomic_", "flat_atomic_", "buffer_atomic_"})
        {
            T()[p + name + type]   = *p == 'b' ? h_buffer : h_global;
            AUX()[p + name + type] = bytes | ATOMIC | op << OPSHIFT;
        }
        for(auto p : {"_", "_rtn_"})
        {
            T()["ds_" + in_lds + p + type.substr(1)]   = h_ds;
            AUX()["ds_" + in_lds + p + type.substr(1)] = bytes | ATOMIC | op_in_lds << OPSHIFT;
        }
    };
    struct { const char *n, *in_lds, *type; int op, op_in_lds; } atomics[] = {{"add", "add", "_u", A_ADD, A_ADD}, {"sub", "sub", "_u", A_SUB, A_SUB}, {"min", "min", "_i", A_MIN_I, A_MIN_I},
        {"min", "min", "_u", A_MIN_U, A_MIN_U}, {"max", "max", "_i", A_MAX_I, A_MAX_I}, {"max", "max", "_u", A_MAX_U, A_MAX_U}, {"and", "and", "_b", A_AND, A_AND},
        {"or", "or", "_b", A_OR, A_OR}, {"xor", "xor", "_b", A_XOR, A_XOR}, {"swap", "storexchg", "_b", A_SWAP, A_SWAP}, {"cmpswap", "cmpstore", "_b", A_CMPSWAP, A_CMPSWAP},
        {"cmpswap", "cmpst", "_b", A_CMPSWAP, A_CMPSWAP_GFX9}, {"inc", "inc", "_u", A_INC, A_INC}, {"dec", "dec", "_u", A_DEC, A_DEC}, {"add", "add", "_f", A_ADD_F, A_ADD_F},
        {"min", "min", "_f", A_MIN_F, A_MIN_F}, {"max", "max", "_f", A_MAX_F, A_MAX_F}};
    for(auto& a : atomics)
        for(int b : {32, 64}) atomic(a.n, a.in_lds, a.type + std::to_string(b), b / 8, a.op, a.op_in_lds);
    atomic("pk_add", "pk_add", "_f16", 4, A_PK_ADD_F16, A_PK_ADD_F16);
    atomic("pk_add", "pk_add", "_bf16", 4, A_PK_ADD_BF16, A_PK_ADD_BF16);
    for(int b : {32, 64})
    {
        std::string s = std::to_string(b);
        T()["ds_load_2addr_b" + s] = T()["ds_store_2addr_b" + s] = T()["ds_load_2addr_stride64_b" + s] = T()["ds_store_2addr_stride64_b" + s] = h_ds2;
        AUX()["ds_load_2addr_b" + s] = b / 8 | (b / 8) << OPSHIFT;
        AUX()["ds_store_2addr_b" + s] = b / 8 | STORE | (b / 8) << OPSHIFT;
        AUX()["ds_load_2addr_stride64_b" + s] = b / 8 | (b * 8) << OPSHIFT;
        AUX()["ds_store_2addr_stride64_b" + s] = b / 8 | STORE | (b * 8) << OPSHIFT;
    }
    D("ds_bpermute_b32", u32 t[MOST_LANES]; const u64 run = w.exec(); for(u32 l = 0; l < w.lanes; l++) t[l] = run >> l & 1 ? w.v[i.o[2].idx][l] : 0;
        LANES wr32(w, i.o[0], l, t[(w.v[i.o[1].idx][l] + i.offset) >> 2 & (w.lanes - 1)]););
    D("ds_permute_b32", u32 t[MOST_LANES] = {}; LANES t[(w.v[i.o[1].idx][l] + i.offset) >> 2 & (w.lanes - 1)] = w.v[i.o[2].idx][l]; LANES wr32(w, i.o[0], l, t[l]););
    // The pattern is printed as words, and is the 16 bits of the offset.
    D("ds_swizzle_b32", const u32 pattern = i.raw & 0xffff; if(pattern >= 0xc000) fail("unimplemented pattern of ds_swizzle");
        u32 t[MOST_LANES]; const u64 run = w.exec(); for(u32 l = 0; l < w.lanes; l++) t[l] = run >> l & 1 ? w.v[i.o[1].idx][l] : 0;
        LANES { u32 from = pattern & 0x8000 ? (l & ~3u) | (pattern >> (2 * (l & 3)) & 3) : (l & 32) | (((l & 31 & pattern) | (pattern >> 5 & 31)) ^ (pattern >> 10 & 31)); wr32(w, i.o[0], l, t[from]); });
    int sz[] = {32, 64, 128, 256, 512};
    for(int b : sz)
    {
        T()["s_load_b" + std::to_string(b)] = h_smem; AUX()["s_load_b" + std::to_string(b)] = b / 8;
        T()["s_buffer_load_b" + std::to_string(b)] = h_smem; AUX()["s_buffer_load_b" + std::to_string(b)] = b / 8;
    }
}
} // namespace gfxemu
