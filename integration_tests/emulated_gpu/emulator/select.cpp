// The plain operation runs on registers of no program, where the selected operands were put, so it knows nothing of this.
#include "select.h"

namespace gfxemu {
namespace {
// The lane that DPP reads, below zero if there is none.
int source_lane(const Inst& i, int lane, int lanes)
{
    const int row = lane & ~15, place = lane & 15, n = i.dpp_sel[0];
    switch(i.dpp)
    {
    case QuadPerm: return (lane & ~3) | i.dpp_sel[lane & 3];
    case Dpp8: return (lane & ~7) | i.dpp_sel[lane & 7];
    case RowShl: return place + n < 16 ? lane + n : -1;
    case RowShr: return place >= n ? lane - n : -1;
    case RowRor: return row + ((place + 16 - n) & 15);
    case RowMirror: return row + 15 - place;
    case RowHalfMirror: return (lane & ~7) + 7 - (lane & 7);
    case RowShare: return row + n;
    case RowXmask: return row + (place ^ n);
    case WaveShl: return lane + 1 < lanes ? lane + 1 : -1;
    case WaveShr: return lane - 1;
    case WaveRol: return (lane + 1) % lanes;
    case WaveRor: return (lane + lanes - 1) % lanes;
    // The last lane of each row to the next row, or lane 31 to the upper half.
    case RowBcast: return n == 15 ? row - 1 : lane < 32 ? -1 : 31;
    default: fail("expected a DPP control, got " + i.text);
    }
}

void h_dpp(Wave& w, const Inst& i)
{
    const Operand& from = i.o[i.first_source];
    const u64 exec      = w.exec();
    u64 run             = exec;
    for(int l = 0; l < (int)w.lanes; l++)
    {
        const int lane    = source_lane(i, l, (int)w.lanes);
        const bool masked = !(i.row_mask >> (l / 16) & 1) || !(i.bank_mask >> (l % 16 / 4) & 1);
        const bool active = lane >= 0 && (exec >> lane & 1);
        if(masked || (!active && !i.bound_ctrl)) run &= ~(1ull << l);
        for(int r = 0; r < from.n; r++) w.v[SELECTED + r][l] = active ? w.v[from.idx + r][lane] : 0;
    }
    w.set_mask(EXEC, run);
    i.plain->h(w, *i.plain);
    // A comparison may have written it.
    if(i.text.compare(0, 6, "v_cmpx") != 0) w.set_mask(EXEC, exec);
}

u32 selected(u32 x, Select part, bool sext)
{
    switch(part)
    {
    case Dword: return x;
    case Word0:
    case Word1: x >>= part == Word1 ? 16 : 0; return sext ? (u32)(i32)(i16)x : x & 0xffff;
    default: x >>= 8 * part; return sext ? (u32)(i32)(i8)x : x & 0xff;
    }
}

u32 placed(u32 result, u32 before, Select part, Unused rest)
{
    if(part == Dword) return result;
    const bool word = part == Word0 || part == Word1;
    const u32 shift = word ? (part == Word1 ? 16 : 0) : 8 * part, mask = (word ? 0xffffu : 0xffu) << shift;
    const u32 value = result << shift & mask;
    if(rest == Preserve) return value | (before & ~mask);
    if(rest == Pad) return value;
    // The sign goes to what is above, zeros to what is below.
    const u32 sign = word ? shift + 15 : shift + 7;
    return value >> sign & 1 ? value | ~(mask | (mask - 1)) : value;
}

void h_sdwa(Wave& w, const Inst& i)
{
    const u32 result = SELECTED + 2;
    const bool vector = i.o[0].k == Operand::V;
    const u64 run     = w.exec();
    LANES
    {
        for(int k = 0; k < 2 && i.first_source + k < i.n; k++)
        {
            const Operand& from   = i.o[i.first_source + k];
            w.v[SELECTED + k][l] = selected(rd32(w, from, l), i.src_sel[k], from.sext);
        }
        // An operation may add to its destination.
        if(vector) w.v[result][l] = w.v[i.o[0].idx][l];
    }
    i.plain->h(w, *i.plain);
    if(!vector) return;
    for(u32 l = 0; l < w.lanes; l++)
        if(run >> l & 1)
        {
            u32& to = w.v[i.o[0].idx][l];
            to      = placed(w.v[result][l], to, i.dst_sel, i.dst_unused);
        }
}
} // namespace

void select_operands(Inst& i)
{
    if(i.dpp == NoDpp && !i.sdwa) return;
    auto* plain = new Inst(i); // for as long as the instruction itself: until the process ends
    auto take   = [&](int k, u16 place) {
        plain->o[k].k   = Operand::V;
        plain->o[k].idx = place;
    };
    if(i.sdwa)
    {
        for(int k = 0; k < 2 && i.first_source + k < i.n; k++)
            // What a conditional move or a carry reads besides is a mask.
            take(i.first_source + k, SELECTED + k);
        if(i.o[0].k == Operand::V) take(0, SELECTED + 2);
    }
    else take(i.first_source, SELECTED);
    i.plain = plain;
    i.h     = i.sdwa ? h_sdwa : h_dpp;
}
} // namespace gfxemu
