//! Facts of this CPU that its instruction sets don't tell.

/// True if AMD made the CPU, by the vendor that it names (`CPUID`, leaf 0).
pub fn is_amd() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        let leaf = std::arch::x86_64::__cpuid(0);
        let words = [leaf.ebx, leaf.edx, leaf.ecx];
        words.map(u32::to_le_bytes).as_flattened() == b"AuthenticAMD"
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}
