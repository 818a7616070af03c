//! Facts of this CPU that its instruction sets don't tell.

use std::sync::OnceLock;

/// True if AMD made the CPU, by the vendor that it names (`CPUID`, leaf 0).
pub fn is_amd() -> bool {
    identity().is_amd
}

/// True if instructions on vectors of sixteen `f32` lanes, where there are any, take two cycles, a half each: on AMD's CPUs of the
/// Zen 4 kind, the ones of family 19h that have AVX-512.
pub fn halves_wide_vectors() -> bool {
    identity().is_amd && identity().family == 0x19
}

/// Vendor and family of the CPU.
#[derive(Clone, Copy, Default)]
struct Identity {
    is_amd: bool,
    family: u32,
}

/// Identity that `CPUID` gives, read once: the instruction leaves a virtual machine.
fn identity() -> Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    *IDENTITY.get_or_init(read)
}

#[cfg(target_arch = "x86_64")]
fn read() -> Identity {
    #[allow(unused_unsafe, reason = "the function was unsafe before Rust 1.91")]
    // SAFETY: every CPU of the architecture has the instruction, with both leaves.
    let [vendor, version] = [0, 1].map(|leaf| unsafe { std::arch::x86_64::__cpuid(leaf) });
    let is_amd = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).as_flattened() == b"AuthenticAMD";
    // The extension counts for the last base family only, which all of AMD's with AVX2 have.
    let family = (version.eax >> 8 & 0xf) + (version.eax >> 20 & 0xff);
    Identity { is_amd, family }
}

#[cfg(not(target_arch = "x86_64"))]
fn read() -> Identity {
    Identity::default()
}
