#include "names.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace gfxemu {
namespace {
bool starts(const std::string& s, const char* p) { return s.rfind(p, 0) == 0; }

using Pairs = std::vector<std::pair<const char*, const char*>>;

// The rest of a name, if it is one of a list.
bool renamed(std::string& rest, const Pairs& pairs)
{
    for(auto& [before, now] : pairs)
        if(rest == before)
        {
            rest = now;
            return true;
        }
    return false;
}

const Pairs ACCESSES = {{"load_dword", "load_b32"}, {"load_dwordx2", "load_b64"}, {"load_dwordx3", "load_b96"}, {"load_dwordx4", "load_b128"},
    {"load_dwordx8", "load_b256"}, {"load_dwordx16", "load_b512"}, {"store_dword", "store_b32"}, {"store_dwordx2", "store_b64"},
    {"store_dwordx3", "store_b96"}, {"store_dwordx4", "store_b128"}, {"load_ubyte", "load_u8"}, {"load_sbyte", "load_i8"}, {"load_ushort", "load_u16"},
    {"load_sshort", "load_i16"}, {"load_short_d16", "load_d16_b16"}, {"load_short_d16_hi", "load_d16_hi_b16"}, {"load_ubyte_d16", "load_d16_u8"},
    {"load_ubyte_d16_hi", "load_d16_hi_u8"}, {"load_sbyte_d16", "load_d16_i8"}, {"load_sbyte_d16_hi", "load_d16_hi_i8"}, {"store_byte", "store_b8"},
    {"store_short", "store_b16"}, {"store_byte_d16_hi", "store_d16_hi_b8"}, {"store_short_d16_hi", "store_d16_hi_b16"}};

// Atomics of integers: their type, without the size.
const Pairs ATOMICS = {{"add", "add_u"}, {"sub", "sub_u"}, {"smin", "min_i"}, {"umin", "min_u"}, {"smax", "max_i"}, {"umax", "max_u"}, {"and", "and_b"},
    {"or", "or_b"}, {"xor", "xor_b"}, {"swap", "swap_b"}, {"cmpswap", "cmpswap_b"}, {"inc", "inc_u"}, {"dec", "dec_u"}};

std::string memory_name(const std::string& space, std::string rest)
{
    if(renamed(rest, ACCESSES) || !starts(rest, "atomic_")) return space + rest;
    std::string operation = rest.substr(7);
    const bool wide       = operation.size() > 3 && operation.compare(operation.size() - 3, 3, "_x2") == 0;
    if(wide) operation.resize(operation.size() - 3);
    return renamed(operation, ATOMICS) ? space + "atomic_" + operation + (wide ? "64" : "32") : space + rest;
}

std::string lds_name(const std::string& rest)
{
    for(auto& [before, now] : Pairs{{"read2st64_", "load_2addr_stride64_"}, {"write2st64_", "store_2addr_stride64_"}, {"read2_", "load_2addr_"}, {"write2_", "store_2addr_"},
                                    {"read_", "load_"}, {"write_", "store_"}, {"wrxchg_", "storexchg_"}})
        if(starts(rest, before)) return "ds_" + (now + rest.substr(std::string(before).size()));
    return "ds_" + rest;
}

const std::unordered_map<std::string, std::string> ARITHMETIC = {{"s_ff1_i32_b32", "s_ctz_i32_b32"}, {"s_ff1_i32_b64", "s_ctz_i32_b64"},
    {"s_flbit_i32_b32", "s_clz_i32_u32"}, {"s_flbit_i32_b64", "s_clz_i32_u64"}, {"s_flbit_i32", "s_cls_i32"}, {"v_add_u32", "v_add_nc_u32"},
    {"v_sub_u32", "v_sub_nc_u32"}, {"v_subrev_u32", "v_subrev_nc_u32"}, {"v_add_i32", "v_add_nc_i32"}, {"v_sub_i32", "v_sub_nc_i32"},
    {"v_add_u16", "v_add_nc_u16"}, {"v_sub_u16", "v_sub_nc_u16"}, {"v_subrev_u16", "v_subrev_nc_u16"}, {"v_add_i16", "v_add_nc_i16"},
    {"v_sub_i16", "v_sub_nc_i16"}, {"v_addc_co_u32", "v_add_co_ci_u32"}, {"v_subb_co_u32", "v_sub_co_ci_u32"}, {"v_subbrev_co_u32", "v_subrev_co_ci_u32"},
    {"v_ffbl_b32", "v_ctz_i32_b32"}, {"v_ffbh_u32", "v_clz_i32_u32"}, {"v_ffbh_i32", "v_cls_i32"}, {"v_cvt_rpi_i32_f32", "v_cvt_nearest_i32_f32"},
    {"v_cvt_flr_i32_f32", "v_cvt_floor_i32_f32"}, {"v_mad_legacy_u16", "v_mad_u16"}, {"v_mad_legacy_i16", "v_mad_i16"}, {"v_mul_legacy_f32", "v_mul_dx9_zero_f32"},
    {"v_dot2c_f32_f16", "v_dot2acc_f32_f16"}, {"v_fmac_legacy_f32", "v_fmac_dx9_zero_f32"}};
} // namespace

std::string common_name(const std::string& gfx9)
{
    auto known = ARITHMETIC.find(gfx9);
    if(known != ARITHMETIC.end()) return known->second;
    for(const char* space : {"global_", "flat_", "scratch_", "buffer_", "s_buffer_"})
        if(starts(gfx9, space)) return memory_name(space, gfx9.substr(std::string(space).size()));
    if(starts(gfx9, "s_load_")) return memory_name("s_", gfx9.substr(2));
    if(starts(gfx9, "ds_")) return lds_name(gfx9.substr(3));
    if(starts(gfx9, "s_"))
        // "andn2" is what RDNA 3 calls "and_not1".
        for(auto& [before, now] : Pairs{{"s_andn2_", "s_and_not1_"}, {"s_orn2_", "s_or_not1_"}, {"s_andn1_", "s_and_not0_"}, {"s_orn1_", "s_or_not0_"}})
            if(starts(gfx9, before)) return now + gfx9.substr(std::string(before).size());
    return gfx9;
}

bool keeps_high_half(const std::string& gfx9)
{
    // From LLVM's list of what clears it (GCNSubtarget::zeroesHigh16BitsOfDest) and AMD's CDNA 3 ISA guide.
    static const std::unordered_set<std::string> all = {"v_mad_f16", "v_mad_u16", "v_mad_i16", "v_fma_f16", "v_div_fixup_f16", "v_mac_f16", "v_fmac_f16",
        "v_madak_f16", "v_madmk_f16", "v_fmaak_f16", "v_fmamk_f16", "v_add_i16", "v_sub_i16", "v_min3_f16", "v_min3_i16", "v_min3_u16", "v_max3_f16",
        "v_max3_i16", "v_max3_u16", "v_med3_f16", "v_med3_i16", "v_med3_u16"};
    return all.count(gfx9) != 0;
}
} // namespace gfxemu
