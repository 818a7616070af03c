//! AVX512-BF16: products of pairs of bf16 values, summed in `f32` lanes.

use super::Avx512;
use crate::machine;
use std::arch::is_x86_feature_detected;

/// Proof that the CPU has AVX512-BF16, beside [`Avx512`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Avx512Bf16(Avx512);

impl Avx512Bf16 {
    /// Detects the set: the token, if this CPU and its system support it.
    pub fn detect() -> Option<Avx512Bf16> {
        Avx512::detect().filter(|_| is_x86_feature_detected!("avx512bf16")).map(Avx512Bf16)
    }

    /// True if products of pairs are faster than as many of `f32` values. AMD's CPUs (Zen 5) begin as many of these instructions in a
    /// cycle as multiply-adds, each with twice the products; a Xeon (Sapphire Rapids) takes some four times as long for one.
    pub fn is_fast(self) -> bool {
        machine::is_amd()
    }

    /// Token of the vectors.
    pub fn vectors(self) -> Avx512 {
        self.0
    }
}
