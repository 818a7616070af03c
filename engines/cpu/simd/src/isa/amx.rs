//! AMX: matrix tiles of bf16 whose products are summed in `f32`.

use super::Avx512;
use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::marker::PhantomData;
use std::sync::OnceLock;

/// Proof that the CPU has AMX with bf16, and that the system lets this process use it, beside [`Avx512`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Amx(Avx512);

/// Operand of the instruction that configures tiles (palette 1: eight tiles of up to 16 rows of up to 64 bytes).
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Tiles of this thread, configured: all of 16 rows of 64 bytes.
pub struct Tiles {
    token: Amx,
    /// They are the thread's.
    thread: PhantomData<*const ()>,
}

impl Amx {
    /// Detects the set, and asks the system for it once in a process: the token, if there is one.
    pub fn detect() -> Option<Amx> {
        static ALLOWED: OnceLock<bool> = OnceLock::new();
        let vectors = Avx512::detect()?;
        ALLOWED.get_or_init(|| has_instructions() && request()).then_some(Amx(vectors))
    }

    /// Token of the vectors.
    pub fn vectors(self) -> Avx512 {
        self.0
    }

    /// Configures the thread's tiles; they are released when the result is dropped.
    pub fn configure(self) -> Tiles {
        static CONFIGURATION: Configuration = Configuration {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
            rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
        };
        // SAFETY: the token exists only where the CPU has the instruction and the system allows tiles; it reads a configuration of
        // 64 bytes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIGURATION, options(nostack, readonly)) };
        Tiles { token: self, thread: PhantomData }
    }
}

impl Tiles {
    /// Token of the set.
    pub fn token(&self) -> Amx {
        self.token
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: the value is the proof that the thread's tiles are configured; nobody else uses them.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// True if the CPU has tiles and products of bf16 (Intel's manual, volume 2, `CPUID`, leaf 7: bits 24 and 22 of EDX).
fn has_instructions() -> bool {
    const TILES: u32 = 1 << 24;
    const BF16: u32 = 1 << 22;
    #[allow(unused_unsafe, reason = "the functions were unsafe before Rust 1.91")]
    // SAFETY: every CPU of the architecture has the instruction.
    unsafe {
        __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & (TILES | BF16) == TILES | BF16
    }
}

/// Asks the system for the tiles' state, which threads get memory for at their first use; false if it has none to give.
#[cfg(target_os = "linux")]
fn request() -> bool {
    // Of the kernel's `asm/prctl.h`, and the number of the tiles' data among the CPU's states.
    const REQUEST_PERMISSION: libc::c_long = 0x1023;
    const TILE_DATA: libc::c_long = 18;
    // SAFETY: the call takes two numbers and changes nothing but the permission.
    unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn request() -> bool {
    false
}
