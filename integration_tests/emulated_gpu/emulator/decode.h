// From code bytes to instructions.
#pragma once
#include "wave.h"

namespace gfxemu {
// Opens the disassembler for `isa` and fills the tables; throws when there is none.
void prepare_decoder(const char* isa);
// Decodes the instruction at `pc`. The result lives until the process ends.
Inst* decode(const hipemu_dispatch* d, const u8* pc);
} // namespace gfxemu
