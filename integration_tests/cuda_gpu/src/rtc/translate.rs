//! HIP's text as NVRTC takes it: a prelude of macros and types, and two constructs that no macro can replace.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use regex::Regex;

const PRELUDE: &str = include_str!("prelude.cuh");

/// Name of the text as the kernels' own lines are numbered.
const NAME: &str = "kernel.hip";

/// A fingerprint of what the translation adds, for caches of compiled kernels.
pub(crate) fn prelude_fingerprint() -> String {
    // With all that is replaced in it.
    const SAMPLE: &str = "typedef float V __attribute__((ext_vector_type(4)));\n__asm__(\"\" : \"+v\"(v));\n";
    let mut hasher = DefaultHasher::new();
    translate(SAMPLE, Bodies::Two).hash(&mut hasher);
    format!("prelude-{:016x}", hasher.finish())
}

/// Bodies of a kernel whose text says of vectors how far they lie from the beginning of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bodies {
    /// One for tensors that begin at multiples of the widest access, and one for all others.
    Two,
    /// One for all, which looks at each address. Two have shared memory of their own each, for which a block may have too little.
    One,
}

/// The text for NVRTC.
pub(crate) fn translate(text: &str, bodies: Bodies) -> String {
    // Clang's vectors.
    static VECTOR: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"typedef\s+([\w\s]+?)\s+(\w+)\s+__attribute__\(\(ext_vector_type\((\w+)\)[^;]*\)\);")
            .expect("a valid expression")
    });
    // A vector register is one of PTX's for doubles: the only use.
    let text = text.replace("\"+v\"(", "\"+d\"(");
    let lines = format!("#line 1 \"{NAME}\"\n");
    let with = |vector: &str| VECTOR.replace_all(&text, format!("typedef hip_vector{vector} $2;")).into_owned();
    match Twofold::of(&text).filter(|_| bodies == Bodies::Two) {
        Some(Twofold { attributes, entry, pointers }) => {
            let body = |name: &str, vector: &str| {
                let text = with(vector).replace(entry, "DEVICE void body(");
                format!("namespace {name} {{\n{lines}{text}}}\n")
            };
            let (general, whole) = (body("general", "_at<$1, $3, A, false>"), body("whole", "_at<$1, $3, A, true>"));
            let any = pointers.iter().map(|pointer| format!(" | (unsigned long)a.{pointer}")).collect::<String>();
            format!(
                "{PRELUDE}{general}{whole}{attributes}\nvoid kernel(const whole::Arguments a) {{\n  \
                 if ((0ul{any}) % 16 == 0) whole::body(a);\n  \
                 else general::body(__builtin_bit_cast(general::Arguments, a));\n}}\n"
            )
        }
        None => format!("{PRELUDE}{lines}{}", with("<$1, $3>")),
    }
}

/// A kernel whose text says of vectors which multiple of bytes lies between them and the beginning of a tensor: there
/// are [`Bodies::Two`]. A branch at each access would keep those behind it waiting.
struct Twofold<'a> {
    /// Attributes of the kernel function.
    attributes: &'a str,
    /// Its declaration up to its arguments.
    entry: &'a str,
    /// Names of the pointers among its arguments.
    pointers: Vec<&'a str>,
}

impl Twofold<'_> {
    fn of(text: &str) -> Option<Twofold<'_>> {
        static ENTRY: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(r#"(extern "C" __attribute__\(\(global, [^\n]*)\nvoid kernel\("#).expect("a valid expression")
        });
        static POINTER: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"(?m)^  [\w ]+\* (\w+);$").expect("a valid expression"));
        let found = ENTRY.captures(text).filter(|_| text.contains("template <class T, int N, int A> struct Lanes"))?;
        let arguments = text.split_once("struct Arguments {")?.1.split_once("};")?.0;
        let pointers = POINTER.captures_iter(arguments).map(|found| found.get(1).expect("the name").as_str()).collect();
        let part = |i: usize| found.get(i).expect("both are in each match").as_str();
        Some(Twofold { attributes: part(1), entry: part(0), pointers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_the_preludes() {
        let text = "template <class T> struct Four { typedef T V __attribute__((ext_vector_type(4), aligned(sizeof(T)))); };\n\
                    typedef unsigned char V __attribute__((ext_vector_type(N)));";
        let translated = translate(text, Bodies::Two);
        let own = translated.split_once("#line 1 \"kernel.hip\"\n").expect("the mark of the own text").1;
        assert_eq!(
            own,
            "template <class T> struct Four { typedef hip_vector<T, 4> V; };\ntypedef hip_vector<unsigned char, N> V;"
        );
    }

    #[test]
    fn kernels_that_know_of_distances_have_two_bodies() {
        let text = "template <class T, int N, int A> struct Lanes {\n  \
                    typedef T V __attribute__((ext_vector_type(N)));\n};\n\
                    struct Arguments {\n  const float* r0;\n  _Float16* w0;\n  index members;\n};\n\
                    extern \"C\" __attribute__((global, amdgpu_flat_work_group_size(64, 64)))\n\
                    void kernel(const Arguments a) {\n}\n";
        let translated = translate(text, Bodies::Two);
        let own = translated.split_once("namespace general {").expect("the general body").1;
        assert!(own.contains("typedef hip_vector_at<T, N, A, false> V;"), "{own}");
        assert!(own.contains("typedef hip_vector_at<T, N, A, true> V;"), "{own}");
        assert_eq!(own.matches("DEVICE void body(const Arguments a) {").count(), 2, "{own}");
        let end = "extern \"C\" __attribute__((global, amdgpu_flat_work_group_size(64, 64)))\n\
                   void kernel(const whole::Arguments a) {\n  \
                   if ((0ul | (unsigned long)a.r0 | (unsigned long)a.w0) % 16 == 0) whole::body(a);\n  \
                   else general::body(__builtin_bit_cast(general::Arguments, a));\n}\n";
        assert!(own.ends_with(end), "{own}");
        let single = translate(text, Bodies::One);
        let own = single.split_once("#line 1 \"kernel.hip\"\n").expect("the mark of the own text").1;
        assert!(own.contains("typedef hip_vector<T, N> V;") && !own.contains("namespace"), "{own}");
    }
}
