// Decodes with AMD's own disassembler: its text is parsed, so there are no opcode tables here.
#include "decode.h"

#include <dlfcn.h>
#include <map>
#include <mutex>

#include "tables.h"

namespace gfxemu {
namespace {
struct Comgr
{
    using Info = struct { u64 handle; };
    int (*create)(const char*, u64 (*)(u64, char*, u64, void*), void (*)(const char*, void*), void (*)(u64, void*), Info*);
    int (*dis)(Info, u64, void*, u64*);
    Info info;
    std::string text;
    const u8* end;
    std::mutex mu;
};
Comgr& comgr(const char* isa)
{
    static Comgr* c = [&] {
        auto* c = new Comgr;
        void* h = dlopen("libamd_comgr.so.3", RTLD_NOW);
        if(!h) h = dlopen("libamd_comgr.so.2", RTLD_NOW);
        if(!h) fail(dlerror());
        c->create = (decltype(c->create))dlsym(h, "amd_comgr_create_disassembly_info");
        c->dis    = (decltype(c->dis))dlsym(h, "amd_comgr_disassemble_instruction");
        std::string name = std::string("amdgcn-amd-amdhsa--") + isa;
        auto rd = [](u64 from, char* to, u64 n, void* u) -> u64 {
            auto c = (Comgr*)u;
            if(from >= (u64)c->end) return 0;
            n = std::min<u64>(n, (u64)c->end - from);
            memcpy(to, (void*)from, n);
            return n;
        };
        auto pr = [](const char* s, void* u) { ((Comgr*)u)->text = s; };
        auto pa = [](u64, void*) {};
        if(c->create(name.c_str(), rd, pr, pa, &c->info)) fail("comgr: no disassembler for " + name);
        scalar_table();
        vector_table();
        matrix_table();
        memory_table();
        return c;
    }();
    return *c;
}

bool starts(const std::string& s, const char* p) { return s.compare(0, strlen(p), p) == 0; }
bool ends(const std::string& s, const char* p)
{
    size_t n = strlen(p);
    return s.size() >= n && s.compare(s.size() - n, n, p) == 0;
}
std::string trim(const std::string& s)
{
    size_t a = s.find_first_not_of(" \t"), b = s.find_last_not_of(" \t");
    return a == std::string::npos ? "" : s.substr(a, b - a + 1);
}
i64 num(const std::string& s) { return s[0] == '-' ? -(i64)strtoull(s.c_str() + 1, nullptr, 0) : (i64)strtoull(s.c_str(), nullptr, 0); }

bool parse_operand(std::string s, Operand& o)
{
    o = Operand();
    if(starts(s, "neg(")) { o.neg = true; s = s.substr(4, s.size() - 5); }
    if(s.size() > 1 && s[0] == '-' && !isdigit(s[1])) { o.neg = true; s = s.substr(1); }
    if(s[0] == '|') { o.abs = true; s = s.substr(1, s.size() - 2); }
    if(starts(s, "abs(")) { o.abs = true; s = s.substr(4, s.size() - 5); }
    // A literal that could have been an inline constant: "lit(0x0)".
    if(starts(s, "lit(")) s = s.substr(4, s.size() - 5);
    if(ends(s, ".l")) { o.half = 1; s.resize(s.size() - 2); }
    else if(ends(s, ".h")) { o.half = 2; s.resize(s.size() - 2); }
    auto reg = [&](size_t p, int base) {
        if(s[p] == '[')
        {
            int a, b;
            if(sscanf(s.c_str() + p, "[%d:%d]", &a, &b) != 2) { if(sscanf(s.c_str() + p, "[%d]", &a) != 1) return false; b = a; }
            o.idx = base + a;
            o.n   = b - a + 1;
            return true;
        }
        if(!isdigit(s[p])) return false;
        o.idx = base + atoi(s.c_str() + p);
        return true;
    };
    if(s[0] == 'v' && (s[1] == '[' || isdigit(s[1]))) { o.k = Operand::V; return reg(1, 0); }
    if(s[0] == 's' && (s[1] == '[' || isdigit(s[1]))) { o.k = Operand::S; return reg(1, 0); }
    if(starts(s, "ttmp")) { o.k = Operand::S; return reg(4, 108); }
    static const std::map<std::string, std::pair<int, int>> named = {{"vcc_lo", {VCC, 1}}, {"vcc_hi", {VCC + 1, 1}}, {"vcc", {VCC, 2}}, {"exec_lo", {EXEC, 1}}, {"exec_hi", {EXEC + 1, 1}}, {"exec", {EXEC, 2}},
        {"m0", {M0, 1}}, {"null", {SNULL, 1}}, {"scc", {SCC, 1}}, {"src_scc", {SCC, 1}}, {"src_shared_base", {SHARED_BASE, 1}}, {"src_private_base", {PRIVATE_BASE, 1}},
        {"src_shared_limit", {ZERO_SREG, 1}}, {"src_private_limit", {ZERO_SREG, 1}}};
    auto it = named.find(s);
    if(it != named.end())
    {
        o.k   = Operand::S;
        o.idx = it->second.first;
        o.n   = it->second.second;
        return true;
    }
    if(s == "off") return true;
    if(isdigit(s[0]) || s[0] == '-')
    {
        o.k = Operand::C;
        if(s.find('.') != std::string::npos && !starts(s, "0x"))
        {
            double d = strtod(s.c_str(), nullptr);
            o.isf  = true;
            o.c32  = bits<u32>((float)d);
            o.c16  = bits<u16>((f16)(float)d);
            o.c64 = o.cf64 = bits<u64>(d);
            if(starts(s, "0.15915494")) { o.c32 = 0x3e22f983; o.c16 = 0x3118; o.c64 = o.cf64 = 0x3fc45f306dc9c882ull; }
        }
        else
        {
            i64 x = num(s);
            o.hex = s.find("0x") != std::string::npos;
            o.c32 = (u32)x;
            o.c16 = (u16)x;
            o.c64 = (u64)x;
            o.cf64 = o.hex ? u64((u32)x) << 32 : (u64)x;
        }
        return true;
    }
    return false;
}

void h_unimpl(Wave&, const Inst& i) { fail("unimplemented instruction: " + i.text); }
void h_dual(Wave& w, const Inst& i) // both halves read before either writes
{
    u32 before[32], after[32];
    u32* d = w.v[i.o[0].idx];
    memcpy(before, d, sizeof before);
    Inst* y = i.y;
    i.inner(w, i);
    memcpy(after, d, sizeof after);
    memcpy(d, before, sizeof before);
    y->h(w, *y);
    memcpy(d, after, sizeof after);
}
void h_dpp(Wave& w, const Inst& i) // replace source 0 by its shuffled copy, then run the plain operation
{
    int k   = starts(i.text, "v_cmp") && !starts(i.text, "v_cmpx") ? 1 : starts(i.text, "v_cmpx") ? 0 : 1;
    const Operand& src = i.o[k];
    u32 save[32], t[32], exec = w.exec(), run = exec;
    memcpy(save, w.v[src.idx], sizeof save);
    for(int l = 0; l < 32; l++)
    {
        int row = l & ~15, p = l & 15, from = l;
        bool ok = true;
        int n   = i.dpp_sel[0];
        switch(i.dpp)
        {
        case QuadPerm: from = (l & ~3) | i.dpp_sel[l & 3]; break;
        case Dpp8: from = (l & ~7) | i.dpp_sel[l & 7]; break;
        case RowShl: ok = p + n < 16; from = row + p + n; break;
        case RowShr: ok = p >= n; from = row + p - n; break;
        case RowRor: from = row + ((p + 16 - n) & 15); break;
        case RowMirror: from = row + 15 - p; break;
        case RowHalfMirror: from = (l & ~7) + 7 - (l & 7); break;
        case RowShare: from = row + n; break;
        case RowXmask: from = row + (p ^ n); break;
        }
        if(!(i.row_mask >> (l / 16) & 1) || !(i.bank_mask >> (p / 4) & 1)) { run &= ~(1u << l); t[l] = save[l]; continue; }
        bool src_active = ok && (exec >> from & 1);
        if(src_active) t[l] = save[from];
        else if(i.bound_ctrl) t[l] = 0;
        else { run &= ~(1u << l); t[l] = save[l]; }
    }
    // If the destination is the source register, lanes must keep what the operation wrote.
    bool same = i.o[0].k == Operand::V && i.o[0].idx == src.idx;
    memcpy(w.v[src.idx], t, sizeof t);
    w.s[EXEC] = run;
    i.inner(w, i);
    w.s[EXEC] = exec;
    for(int l = 0; l < 32; l++)
        if(!same || !(run >> l & 1)) w.v[src.idx][l] = save[l];
}

bool parse_half(std::string s, Inst& i)
{
    s        = trim(s);
    size_t p = s.find_first_of(" \t");
    std::string mn = s.substr(0, p), rest = p == std::string::npos ? "" : trim(s.substr(p));
    bool dual = starts(mn, "v_dual_");
    if(dual) mn = "v_" + mn.substr(7);
    for(auto sfx : {"_e64_dpp", "_e32_dpp", "_dpp", "_e32", "_e64", "_e96"})
        if(ends(mn, sfx)) { mn.resize(mn.size() - strlen(sfx)); break; }
    auto h = T().find(mn);
    if(h == T().end()) return false;
    i.h    = h->second;
    auto a = AUX().find(mn);
    if(a != AUX().end()) i.aux = a->second;
    bool vmem = starts(mn, "global_") || starts(mn, "flat_");
    if(starts(mn, "flat_")) i.off0 = 1;
    if(starts(mn, "s_buffer_load")) i.off1 = 1;
    if(starts(mn, "ds_") && mn.find("_rtn") != std::string::npos) i.off1 = 1;
    (void)vmem;
    if(starts(mn, "s_waitcnt") || starts(mn, "s_delay") || starts(mn, "s_sendmsg") || starts(mn, "s_setreg") || starts(mn, "s_branch") || starts(mn, "s_cbranch") || starts(mn, "s_nop") || starts(mn, "s_clause"))
        return true;
    // split at commas and blanks outside brackets
    std::vector<std::string> tok;
    std::string cur;
    int depth = 0;
    for(char c : rest)
    {
        if(c == '[' || c == '(') depth++;
        if(c == ']' || c == ')') depth--;
        if(depth == 0 && (c == ',' || c == ' ' || c == '\t')) { if(!cur.empty()) tok.push_back(cur); cur.clear(); }
        else if(c != ' ') cur += c;
    }
    if(!cur.empty()) tok.push_back(cur);
    auto list = [](const std::string& t) { // [a,b,c] -> bit mask
        u8 m = 0;
        int k = 0;
        for(char c : t.substr(t.find('['))) { if(c == '1') m |= 1 << k; if(c == ',') k++; }
        return m;
    };
    auto sels = [&](const std::string& t) { int k = 0; for(char c : t.substr(t.find('['))) if(isdigit(c) && k < 8) i.dpp_sel[k++] = c - '0'; };
    for(auto& t : tok)
    {
        size_t c = t.find(':');
        std::string key = c == std::string::npos || t[0] == 'v' || t[0] == 's' ? t : t.substr(0, c), val = c == std::string::npos ? "" : t.substr(c + 1);
        if(key == "offset") i.offset = (int)num(val);
        else if(key == "offset0") i.off0 = (int)num(val);
        else if(key == "offset1") i.off1 = (int)num(val);
        else if(key == "op_sel") { i.op_sel = list(val); i.has_op_sel = true; }
        else if(key == "op_sel_hi") i.op_sel_hi = list(val);
        else if(key == "neg_lo") i.neg_lo = list(val);
        else if(key == "neg_hi") i.neg_hi = list(val);
        else if(key == "clamp") i.clamp = true;
        else if(key == "mul") i.omod = val == "2" ? 1 : 2;
        else if(key == "div") i.omod = 3;
        else if(key == "glc") i.glc = true;
        else if(key == "offen") i.offen = true;
        else if(key == "idxen") i.idxen = true;
        else if(key == "slc" || key == "dlc" || key == "gds" || key == "lds" || key == "tfe" || key == "scc_" || key == "fi") {}
        else if(key == "quad_perm") { i.dpp = QuadPerm; sels(val); }
        else if(key == "dpp8") { i.dpp = Dpp8; sels(val); i.bound_ctrl = true; }
        else if(key == "row_shl") { i.dpp = RowShl; i.dpp_sel[0] = num(val); }
        else if(starts(t, "row_shr:")) { i.dpp = RowShr; i.dpp_sel[0] = num(val); }
        else if(key == "row_ror") { i.dpp = RowRor; i.dpp_sel[0] = num(val); }
        else if(key == "row_share") { i.dpp = RowShare; i.dpp_sel[0] = num(val); }
        else if(key == "row_xmask") { i.dpp = RowXmask; i.dpp_sel[0] = num(val); }
        else if(key == "row_mirror") i.dpp = RowMirror;
        else if(key == "row_half_mirror") i.dpp = RowHalfMirror;
        else if(key == "row_mask") i.row_mask = num(val);
        else if(key == "bank_mask") i.bank_mask = num(val);
        else if(key == "bound_ctrl") i.bound_ctrl = true;
        else if(i.n < 6 && parse_operand(t, i.o[i.n])) i.n++;
        else if(starts(mn, "s_getreg") || starts(mn, "s_call")) {}
        else return false;
    }
    // VOP3P fp16 helper instructions that print no op_sel_hi have it all ones; fma_mix defaults to none
    if(starts(mn, "v_fma_mix") && rest.find("op_sel_hi") == std::string::npos) i.op_sel_hi = 0;
    if(i.dpp != NoDpp)
    {
        i.inner = i.h;
        i.h     = h_dpp;
    }
    return true;
}
} // namespace

void prepare_decoder(const char* isa) { comgr(isa); }

Inst* decode(const hipemu_dispatch* d, const u8* pc)
{
    auto& c = comgr(d->isa);
    std::lock_guard<std::mutex> lk(c.mu);
    c.end  = d->image + d->image_size;
    u64 sz = 0;
    c.text.clear();
    if(c.dis(c.info, (u64)pc, &c, &sz) || !sz) fail("cannot disassemble the instruction at offset " + std::to_string(pc - d->image));
    auto* i = new Inst;
    i->size = (u32)sz;
    memcpy(&i->raw, pc, 4);
    memcpy(i->bytes, pc, std::min<u64>(sz, sizeof i->bytes));
    i->text = trim(c.text);
    std::string t = i->text;
    size_t cmt = t.find("//");
    if(cmt != std::string::npos) t = trim(t.substr(0, cmt));
    size_t y = t.find("::");
    bool ok  = parse_half(t.substr(0, y), *i);
    if(ok && y != std::string::npos)
    {
        i->y = new Inst;
        ok   = parse_half(t.substr(y + 2), *i->y);
        i->inner = i->h;
        i->h     = h_dual;
    }
    if(!ok) i->h = h_unimpl;
    return i;
}
} // namespace gfxemu
