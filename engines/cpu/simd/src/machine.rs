//! Facts of this CPU that its instruction sets don't tell.

use std::sync::OnceLock;

/// True if AMD made the CPU, by the vendor that it names (`CPUID`, leaf 0). It is asked once: the instruction leaves a virtual machine.
pub fn is_amd() -> bool {
    static IS_AMD: OnceLock<bool> = OnceLock::new();
    *IS_AMD.get_or_init(names_amd)
}

#[cfg(target_arch = "x86_64")]
fn names_amd() -> bool {
    #[allow(unused_unsafe, reason = "the function was unsafe before Rust 1.91")]
    // SAFETY: every CPU of the architecture has the instruction.
    let leaf = unsafe { std::arch::x86_64::__cpuid(0) };
    [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).as_flattened() == b"AuthenticAMD"
}

#[cfg(not(target_arch = "x86_64"))]
fn names_amd() -> bool {
    false
}
