//! Vectors of every instruction set as one trait ([`isa`]), for which kernels are compiled; values of 16 bits to and from `f32`
//! ([`convert`]), and of 4 to 8 bits ([`minifloat`]); memory that vectors are aligned in ([`scratch`]); facts of the CPU
//! ([`machine`]); products on matrix tiles ([`tiles`]).

#[cfg(feature = "testing")]
pub mod clock;
pub mod convert;
#[cfg(any(test, feature = "testing"))]
pub mod guarded;
pub mod isa;
pub mod machine;
pub mod minifloat;
pub mod scratch;
pub mod tiles;
