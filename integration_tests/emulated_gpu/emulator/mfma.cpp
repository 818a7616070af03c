// Matrix instructions of CDNA: D = A·B + C of several blocks, spread over the 64 lanes of a wave.
//
// Layouts are those of AMD's CDNA 3 ISA guide (chapter on matrix arithmetic). Of an M×N×K product of `blocks` blocks the lane
// i + M·(block + blocks·g) has of row i of A, and of column i of B, the g-th run of neighboring k, packed in its registers.
// Results of 32 bits come in runs of four rows: register r of lane l is row 4·(l/N) + 4·(64/N)·(r/4) + r%4 of column l%N.
#include "tables.h"

namespace gfxemu {
namespace {
enum Kind { F32, F16, BF16, F64, I8, FP8, BF8 };
struct Shape
{
    int side, k, blocks; // M and N are the same
    Kind a, b;
};
std::vector<Shape>& shapes()
{
    static auto* all = new std::vector<Shape>;
    return *all;
}

int bytes(Kind kind) { return kind == F64 ? 8 : kind == F32 ? 4 : kind == F16 || kind == BF16 ? 2 : 1; }

// The 8-bit floats of gfx942, which have no infinity nor a negative zero: that one's bits are not-a-number.
double small_float(u32 x, int mantissa_bits, int bias)
{
    if(x == 0x80) return NAN;
    const int exponent = (x & 0x7f) >> mantissa_bits, mantissa = x & ((1 << mantissa_bits) - 1);
    const double magnitude = exponent ? std::ldexp(1 + std::ldexp(mantissa, -mantissa_bits), exponent - bias) : std::ldexp(mantissa, 1 - bias - mantissa_bits);
    return x & 0x80 ? -magnitude : magnitude;
}

// The element of `kind` at a place of a lane's registers.
double element(const Wave& w, const Operand& from, Kind kind, int lane, int place)
{
    if(kind == F64)
        return bits<double>(w.v[from.idx + 2 * place][lane] | u64(w.v[from.idx + 2 * place + 1][lane]) << 32);
    const int size = bytes(kind), bit = place * size % 4 * 8;
    const u32 x    = w.v[from.idx + place * size / 4][lane] >> bit;
    switch(kind)
    {
    case F32: return bits<float>(x);
    case F16: return bits<f16>((u16)x);
    case BF16: return bf2f((u16)x);
    case I8: return (i8)x;
    case FP8: return small_float(x & 255, 3, 8);
    default: return small_float(x & 255, 2, 16);
    }
}

// Row and block of a lane's result.
struct Row { int row, block; };
Row result_row(const Shape& s, int lane, int place)
{
    if(s.a == F64) return s.blocks > 1 ? Row{lane / 16, lane / 4 % 4} : Row{4 * place + lane / 16, 0};
    if(s.side == 4) return {place, lane / 4};
    const int runs = 64 / s.side, of_block = s.side * s.side / 64, r = place % of_block;
    return {4 * (lane / s.side) + 4 * runs * (r / 4) + r % 4, place / of_block};
}

void h_mfma(Wave& w, const Inst& i)
{
    const Shape& s = shapes()[i.aux];
    if(w.lanes != 64) fail("expected a wave of 64 lanes");
    if(i.blgp || i.neg_lo || i.neg_hi || i.clamp) fail("unimplemented modifier of a matrix instruction");
    const int run = s.k * s.side * s.blocks / 64; // neighboring k in a lane
    const int results = s.side * s.side * s.blocks / 64;
    const bool wide = s.a == F64, whole = s.a == I8;
    auto lane_of = [&](int row, int block, int k) { return row + s.side * (block + s.blocks * (k / run)); };
    u64 out[32][64];
    for(int l = 0; l < 64; l++)
        for(int r = 0; r < results; r++)
        {
            const Row to = result_row(s, l, r);
            // One block of A may serve 2^cbsz neighboring products.
            const int from = (to.block & ~((1 << i.cbsz) - 1)) + (i.cbsz ? i.abid : 0), column = l % s.side;
            const Operand& c = i.o[3];
            u64 start = c.k != Operand::V ? (wide ? c.cf64 : c.c32)
                        : wide            ? w.v[c.idx + 2 * r][l] | u64(w.v[c.idx + 2 * r + 1][l]) << 32
                                          : w.v[c.idx + r][l];
            double sum_wide = bits<double>(start);
            float sum       = bits<float>((u32)start);
            u32 sum_whole   = (u32)start;
            for(int k = 0; k < s.k; k++)
            {
                const double a = element(w, i.o[1], s.a, lane_of(to.row, from, k), k % run);
                const double b = element(w, i.o[2], s.b, lane_of(column, to.block, k), k % run);
                if(wide) sum_wide = fma(a, b, sum_wide);
                else if(whole) sum_whole += (u32)((i32)a * (i32)b);
                else sum = fmaf((float)a, (float)b, sum);
            }
            out[r][l] = wide ? bits<u64>(sum_wide) : whole ? sum_whole : bits<u32>(sum);
        }
    // All is read before anything is written; EXEC says nothing about these.
    for(int l = 0; l < 64; l++)
        for(int r = 0; r < results; r++)
        {
            u32(*to)[MOST_LANES] = &w.v[i.o[0].idx + (wide ? 2 * r : r)];
            to[0][l]             = (u32)out[r][l];
            if(wide) to[1][l] = out[r][l] >> 32;
        }
}

// Under the names of gfx942 and, where they differ, of gfx90a.
void add(const char* result, int side, int k, int blocks, Kind a, Kind b, const std::vector<std::string>& types)
{
    const std::string size = std::to_string(side) + "x" + std::to_string(side) + "x" + std::to_string(k);
    for(auto& type : types)
        for(auto& count : {std::string(), "_" + std::to_string(blocks) + "b"})
            for(const char* between : {"_", ""})
            {
                const std::string name = std::string("v_mfma_") + result + "_" + size + count + between + type;
                T()[name]   = h_mfma;
                AUX()[name] = (int)shapes().size();
            }
    shapes().push_back({side, k, blocks, a, b});
}
} // namespace

void mfma_table()
{
    struct Blocks { int side, blocks; };
    const Blocks many[] = {{32, 2}, {16, 4}, {4, 16}};
    for(auto& m : many)
    {
        add("f32", m.side, 1, m.blocks, F32, F32, {"f32"});
        add("f32", m.side, 4, m.blocks, F16, F16, {"f16"});
        add("f32", m.side, 4, m.blocks, BF16, BF16, {"bf16", "bf16_1k"});
        add("i32", m.side, 4, m.blocks, I8, I8, {"i8"});
    }
    for(int side : {32, 16})
    {
        const int k = side == 32 ? 2 : 4;
        add("f32", side, k, 1, F32, F32, {"f32"});
        add("f32", side, 4 * k, 1, F16, F16, {"f16"});
        add("f32", side, 4 * k, 1, BF16, BF16, {"bf16", "bf16_1k"});
        add("i32", side, 8 * k, 1, I8, I8, {"i8"});
        for(Kind a : {FP8, BF8})
            for(Kind b : {FP8, BF8})
                add("f32", side, 8 * k, 1, a, b, {std::string(a == FP8 ? "fp8" : "bf8") + (b == FP8 ? "_fp8" : "_bf8")});
    }
    add("f64", 16, 4, 1, F64, F64, {"f64"});
    add("f64", 4, 4, 4, F64, F64, {"f64"});
}
} // namespace gfxemu
