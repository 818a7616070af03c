// What GFX9 calls the operations that the tables have by RDNA 3's names.
#pragma once
#include <string>

namespace gfxemu {
// The name in the tables: the name itself where it is the same.
std::string common_name(const std::string& gfx9);
// Whether an operation of 16 bits leaves the upper half of its destination, as those that came with GFX9 do. Older ones clear it.
bool keeps_high_half(const std::string& gfx9);
} // namespace gfxemu
