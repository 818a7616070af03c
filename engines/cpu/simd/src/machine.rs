//! Facts of this CPU that its instruction sets don't tell.

use std::sync::OnceLock;

/// True if AMD made the CPU, by the vendor that it names (`CPUID`, leaf 0).
pub fn is_amd() -> bool {
    identity().is_amd
}

/// Class of a CPU, by its vectors of `f32` lanes: what estimates of cycles tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Eight lanes.
    Eight,
    /// Sixteen lanes.
    Sixteen,
    /// Sixteen lanes on AMD's CPUs, where an instruction takes a cycle: Zen 5.
    SixteenOfAmd,
    /// Sixteen lanes on AMD's CPUs, where an instruction takes two cycles, a half each: Zen 4, the ones of family 19h that have AVX-512.
    HalvesOfAmd,
}

impl Class {
    /// Class of this CPU with vectors of `lanes` lanes.
    pub fn of(lanes: usize) -> Class {
        match (lanes, identity()) {
            (16, Identity { is_amd: true, family: 0x19 }) => Class::HalvesOfAmd,
            (16, Identity { is_amd: true, .. }) => Class::SixteenOfAmd,
            (16, _) => Class::Sixteen,
            _ => Class::Eight,
        }
    }
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
