//! HIP's text as NVRTC takes it: a prelude of macros and types, and two constructs that no macro can replace.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use regex::{Captures, Regex};

const PRELUDE: &str = include_str!("prelude.cuh");

/// Name of the text as the kernels' own lines are numbered.
const NAME: &str = "kernel.hip";

/// A fingerprint of what the translation adds, for caches of compiled kernels.
pub(crate) fn prelude_fingerprint() -> String {
    // With all that is replaced in it.
    const SAMPLE: &str = "typedef float V __attribute__((ext_vector_type(4)));\n__asm__(\"\" : \"+v\"(v));\n";
    let mut hasher = DefaultHasher::new();
    translate(SAMPLE).hash(&mut hasher);
    format!("prelude-{:016x}", hasher.finish())
}

/// The text for NVRTC.
pub(crate) fn translate(text: &str) -> String {
    // Clang's vectors.
    static VECTOR: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"typedef\s+([\w\s]+?)\s+(\w+)\s+__attribute__\(\(ext_vector_type\((\w+)\)[^;]*\)\);")
            .expect("a valid expression")
    });
    let text = VECTOR.replace_all(text, |found: &Captures<'_>| {
        format!("typedef hip_vector<{}, {}> {};", &found[1], &found[3], &found[2])
    });
    // A vector register is one of PTX's for doubles: the only use.
    let text = text.replace("\"+v\"(", "\"+d\"(");
    format!("{PRELUDE}#line 1 \"{NAME}\"\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_the_preludes() {
        let text = "template <class T> struct Four { typedef T V __attribute__((ext_vector_type(4), aligned(sizeof(T)))); };\n\
                    typedef unsigned char V __attribute__((ext_vector_type(N)));";
        let translated = translate(text);
        let own = translated.split_once("#line 1 \"kernel.hip\"\n").expect("the mark of the own text").1;
        assert_eq!(
            own,
            "template <class T> struct Four { typedef hip_vector<T, 4> V; };\ntypedef hip_vector<unsigned char, N> V;"
        );
    }
}
