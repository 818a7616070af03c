// Operands that an instruction takes from other lanes (DPP) or as parts of registers (SDWA).
#pragma once
#include "wave.h"

namespace gfxemu {
// Puts the selection before the plain operation of a decoded instruction that names one.
void select_operands(Inst& i);
} // namespace gfxemu
