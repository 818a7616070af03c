// Decodes with AMD's own disassembler: its text is parsed, so there are no opcode tables here.
#include "decode.h"

#include <dlfcn.h>
#include <map>
#include <mutex>

#include "names.h"
#include "select.h"
#include "tables.h"

namespace gfxemu {
namespace {
bool starts(const std::string& s, const char* p) { return s.compare(0, strlen(p), p) == 0; }

struct Comgr
{
    using Info = struct { u64 handle; };
    int (*create)(const char*, u64 (*)(u64, char*, u64, void*), void (*)(const char*, void*), void (*)(u64, void*), Info*);
    int (*dis)(Info, u64, void*, u64*);
    Info info;
    std::string isa;
    bool gfx9; // an instruction set of GCN and CDNA
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
        c->isa  = isa;
        c->gfx9 = starts(c->isa, "gfx9");
        if(c->create(name.c_str(), rd, pr, pa, &c->info)) fail("comgr: no disassembler for " + name);
        scalar_table();
        vector_table();
        matrix_table();
        mfma_table();
        memory_table();
        return c;
    }();
    if(c->isa != isa) fail("expected kernels for " + c->isa + ", which came first, got one for " + isa);
    return *c;
}

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
    if(starts(s, "sext(")) { o.sext = true; s = s.substr(5, s.size() - 6); }
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
    if(s[0] == 'a' && (s[1] == '[' || isdigit(s[1]))) { o.k = Operand::V; return reg(1, ACCUMULATION); }
    if(s[0] == 's' && (s[1] == '[' || isdigit(s[1]))) { o.k = Operand::S; return reg(1, 0); }
    if(starts(s, "ttmp")) { o.k = Operand::S; return reg(4, 108); }
    static const std::map<std::string, std::pair<int, int>> named = {{"vcc_lo", {VCC, 1}}, {"vcc_hi", {VCC + 1, 1}}, {"vcc", {VCC, 2}}, {"exec_lo", {EXEC, 1}}, {"exec_hi", {EXEC + 1, 1}}, {"exec", {EXEC, 2}},
        {"m0", {M0, 1}}, {"flat_scratch_lo", {FLAT_SCRATCH, 1}}, {"flat_scratch_hi", {FLAT_SCRATCH + 1, 1}}, {"flat_scratch", {FLAT_SCRATCH, 2}},
        {"xnack_mask_lo", {XNACK_MASK, 1}}, {"xnack_mask_hi", {XNACK_MASK + 1, 1}}, {"xnack_mask", {XNACK_MASK, 2}}, {"null", {SNULL, 1}}, {"scc", {SCC, 1}}, {"src_scc", {SCC, 1}}, {"src_shared_base", {SHARED_BASE, 1}}, {"src_private_base", {PRIVATE_BASE, 1}},
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
    u32 before[MOST_LANES], after[MOST_LANES];
    u32* d = w.v[i.o[0].idx];
    memcpy(before, d, sizeof before);
    Inst* y = i.y;
    i.inner(w, i);
    memcpy(after, d, sizeof after);
    memcpy(d, before, sizeof before);
    y->h(w, *y);
    memcpy(d, after, sizeof after);
}
// Parts of a register that SDWA selects.
bool parse_part(const std::string& s, Select& part)
{
    static const char* names[] = {"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD"};
    for(int k = 0; k < 7; k++)
        if(s == names[k])
        {
            part = Select(k);
            return true;
        }
    return false;
}

// Whether op_sel stands for halves of registers: not of packed operations, nor where it means something else.
bool selects_halves(const std::string& mn)
{
    for(auto other : {"v_pk_", "v_fma_mix", "v_mad_mix", "v_dot", "v_permlane", "v_wmma", "v_mfma"})
        if(starts(mn, other)) return false;
    return mn.find("16") != std::string::npos;
}

bool parse_half(std::string s, Inst& i, bool gfx9)
{
    s        = trim(s);
    size_t p = s.find_first_of(" \t");
    std::string mn = s.substr(0, p), rest = p == std::string::npos ? "" : trim(s.substr(p));
    bool dual = starts(mn, "v_dual_");
    if(dual) mn = "v_" + mn.substr(7);
    for(auto sfx : {"_e64_dpp", "_e32_dpp", "_dpp", "_sdwa", "_e32", "_e64", "_e96"})
        if(ends(mn, sfx))
        {
            i.sdwa = !strcmp(sfx, "_sdwa");
            mn.resize(mn.size() - strlen(sfx));
            break;
        }
    const std::string own = mn;
    if(gfx9) mn = common_name(mn);
    auto h = T().find(mn);
    if(h == T().end()) return false;
    i.h    = h->second;
    auto a = AUX().find(mn);
    if(a != AUX().end()) i.aux = a->second;
    if(starts(mn, "flat_")) i.off0 = 1;
    if(starts(mn, "s_buffer_load")) i.off1 = 1;
    if(starts(mn, "ds_") && mn.find("_rtn") != std::string::npos) i.off1 = 1;
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
        else if(key == "glc" || (gfx9 && key == "sc0")) i.glc = true; // what CDNA 3 calls an atomic's that returns
        else if(key == "offen") i.offen = true;
        else if(key == "idxen") i.idxen = true;
        else if(key == "slc" || key == "dlc" || key == "gds" || key == "tfe" || key == "fi" || key == "sc1" || key == "nt") {}
        else if(starts(t, "dst_sel:")) { if(!parse_part(val, i.dst_sel)) return false; }
        else if(starts(t, "src0_sel:") || starts(t, "src1_sel:")) { if(!parse_part(t.substr(9), i.src_sel[t[3] - '0'])) return false; }
        else if(key == "dst_unused") i.dst_unused = val == "UNUSED_PRESERVE" ? Preserve : val == "UNUSED_SEXT" ? Sext : Pad;
        else if(key == "cbsz") i.cbsz = num(val);
        else if(key == "abid") i.abid = num(val);
        else if(key == "blgp") i.blgp = num(val);
        else if(key == "quad_perm") { i.dpp = QuadPerm; sels(val); }
        else if(key == "dpp8") { i.dpp = Dpp8; sels(val); i.bound_ctrl = true; }
        else if(key == "row_shl") { i.dpp = RowShl; i.dpp_sel[0] = num(val); }
        else if(starts(t, "row_shr:")) { i.dpp = RowShr; i.dpp_sel[0] = num(val); }
        else if(key == "row_ror") { i.dpp = RowRor; i.dpp_sel[0] = num(val); }
        else if(key == "row_bcast") { i.dpp = RowBcast; i.dpp_sel[0] = num(val); }
        else if(key == "wave_shl" || key == "wave_shr" || key == "wave_rol" || key == "wave_ror")
            i.dpp = key == "wave_shl" ? WaveShl : key == "wave_shr" ? WaveShr : key == "wave_rol" ? WaveRol : WaveRor;
        else if(key == "row_share" || key == "row_newbcast") { i.dpp = RowShare; i.dpp_sel[0] = num(val); }
        else if(key == "row_xmask") { i.dpp = RowXmask; i.dpp_sel[0] = num(val); }
        else if(key == "row_mirror") i.dpp = RowMirror;
        else if(key == "row_half_mirror") i.dpp = RowHalfMirror;
        else if(key == "row_mask") i.row_mask = num(val);
        else if(key == "bank_mask") i.bank_mask = num(val);
        else if(key == "bound_ctrl") i.bound_ctrl = true;
        else if(i.n < 6 && parse_operand(t, i.o[i.n])) i.n++;
        else if(starts(mn, "s_getreg") || starts(mn, "s_call") || starts(mn, "s_set_gpr_idx")) {}
        else return false;
    }
    // VOP3P fp16 helper instructions that print no op_sel_hi have it all ones; fma_mix defaults to none
    if(starts(mn, "v_fma_mix") && rest.find("op_sel_hi") == std::string::npos) i.op_sel_hi = 0;
    if(i.has_op_sel && selects_halves(own))
    {
        for(int k = 1; k < i.n && k < 4; k++)
            if(i.op_sel >> (k - 1) & 1) i.o[k].half = 2;
        if(i.op_sel & 8) i.o[0].half = 2;
    }
    else if(gfx9 && i.o[0].k == Operand::V && !keeps_high_half(own)) i.o[0].half = ZERO_HIGH;
    const bool two_results = mn.find("_co_") != std::string::npos, no_result = starts(mn, "v_cmpx") && !gfx9;
    i.first_source         = two_results ? 2 : no_result ? 0 : 1;
    select_operands(i);
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
    bool ok  = parse_half(t.substr(0, y), *i, c.gfx9);
    if(ok && y != std::string::npos)
    {
        i->y = new Inst;
        ok   = parse_half(t.substr(y + 2), *i->y, c.gfx9);
        i->inner = i->h;
        i->h     = h_dual;
    }
    if(!ok) i->h = h_unimpl;
    return i;
}
} // namespace gfxemu
