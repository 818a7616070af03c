/* Interface between the software HIP runtime and an emulator of GPU
 * instructions, which the runtime opens with dlopen.
 *
 * The emulator is named by the environment variable HIPEMU_EMULATOR (a path to
 * a shared library). It must export, with C linkage:
 *
 *     int hipemu_run(const struct hipemu_dispatch *d, char *err, size_t err_cap);
 *
 * which executes the whole grid before it returns, and may be called by several
 * threads at once. 0 means success; anything else is a failure, with a one-line
 * reason written to err.
 *
 * Device addresses are not host addresses: `resolve` gives the place to read and
 * write. Code addresses are host addresses.
 */
#ifndef HIPEMU_DISPATCH_H
#define HIPEMU_DISPATCH_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#define HIPEMU_DISPATCH_VERSION 2

enum { HIPEMU_SYS_WGID_X = 1, HIPEMU_SYS_WGID_Y = 2, HIPEMU_SYS_WGID_Z = 4, HIPEMU_SYS_WG_INFO = 8 };

enum {
    HIPEMU_OK = 0,
    HIPEMU_FAILED = 1,       /* the emulator's own limit: an instruction it does not know */
    HIPEMU_BAD_ADDRESS = 2,  /* the kernel touched memory that is not its own */
};

struct hipemu_dispatch
{
    uint32_t version;   /* HIPEMU_DISPATCH_VERSION */
    uint32_t wave_size; /* 32 or 64, from the kernel descriptor */
    const char* isa;    /* "gfx1100" */
    const char* kernel; /* symbol name without ".kd" */

    const uint8_t* image; /* the loaded code object (all PT_LOAD segments) */
    uint64_t image_size;
    const uint32_t* entry;     /* first instruction, inside image */
    const uint8_t* descriptor; /* the 64-byte kernel descriptor, inside image */

    uint32_t grid[3];   /* in work-items */
    uint32_t block[3];  /* in work-items */
    uint32_t groups[3]; /* ceil(grid / block) */

    uint32_t lds_bytes;     /* static + dynamic, per work-group */
    uint32_t scratch_bytes; /* per work-item */

    /* Initial scalar registers: s[0 .. n_user_sgpr-1] = user_sgpr[]; then, in
     * this order and only where the flag is set in sys_sgpr: work-group id x,
     * y, z, work-group info. */
    uint32_t n_user_sgpr;
    uint32_t user_sgpr[32];
    uint32_t sys_sgpr;
    /* 0: v0 holds only x; 1: x,y; 2: x,y,z. From gfx90a / gfx11 on they are
     * packed in v0 as x | y<<10 | z<<20. */
    uint32_t vgpr_workitem_id;

    /* Where [addr, addr+size) of the device's address space can be read and
     * written; NULL when the kernel has no business there. */
    uint8_t* (*resolve)(const void* context, uint64_t addr, uint64_t size);
    const void* context;
};

typedef int (*hipemu_run_fn)(const struct hipemu_dispatch*, char*, size_t);
#ifdef __cplusplus
}
#endif
#endif
