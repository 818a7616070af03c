//! Raw C ABIs of hipDNN, HIP, MIOpen and ONNX Runtime, without logic.
//!
//! Nothing here is linked. Every foreign library is opened at run time through [`library::Library`], and each module
//! holds a table of the functions it exports.

/// Declares a C enumeration as a transparent newtype over `int`: the other side may send numbers that this list does
/// not have, which a Rust enum must never hold.
macro_rules! c_enum {
    (@name $prefix:literal, $variant:ident) => { concat!($prefix, stringify!($variant), "\0") };
    (@name $prefix:literal, $variant:ident, $c_name:literal) => { concat!($c_name, "\0") };
    ($(#[$meta:meta])* $name:ident, $prefix:literal {
        $($(#[$vmeta:meta])* $variant:ident = $value:literal $(=> $c_name:literal)?,)*
    }) => {
        $(#[$meta])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub i32);

        #[allow(missing_docs, non_upper_case_globals, reason = "the names are the C enumerators'")]
        impl $name {
            $($(#[$vmeta])* pub const $variant: $name = $name($value);)*

            /// Every value that has a name here.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The enumerator's C name, if the number has one.
            pub const fn name(self) -> Option<&'static str> {
                match self.c_name() {
                    Some(name) => match name.to_str() {
                        Ok(name) => Some(name),
                        Err(_) => None,
                    },
                    None => None,
                }
            }

            /// [`Self::name`] for C callers.
            pub const fn c_name(self) -> Option<&'static std::ffi::CStr> {
                match self.0 {
                    $($value => {
                        const NAME: &std::ffi::CStr = $crate::terminated(c_enum!(@name $prefix, $variant $(, $c_name)?));
                        Some(NAME)
                    })*
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!($prefix, "{}"), self.0),
                }
            }
        }
    };
}

const fn terminated(text: &'static str) -> &'static std::ffi::CStr {
    match std::ffi::CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("an enumerator's name ends in the only NUL"),
    }
}

mod generated;
mod glibc;
pub mod hip;
pub mod hipdnn;
pub mod hiprtc;
pub mod library;
pub mod miopen;
pub mod ort;
pub mod rocm;
