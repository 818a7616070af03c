//! The generated tables against the C++ headers, by the system's C++ compiler: values of enumerators and constants, sizes
//! and offsets, and the functions' types. The headers are those of the emulated GPU's packages; tests pass over what
//! those of an older release don't have, and are skipped where there are none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use quote::ToTokens;
use syn::{Expr, Item, Type};

/// A generated module and the headers that it is made from.
struct Module {
    name: &'static str,
    text: &'static str,
    includes: &'static str,
    /// Functions that no header declares, or none that this compiler understands.
    undeclared: &'static [&'static str],
    /// Functions whose parameters became `const`: to a caller the same.
    became_const: &'static [&'static str],
}

const MODULES: [Module; 3] = [
    Module {
        name: "hip",
        text: include_str!("../src/generated/hip.rs"),
        includes: "#include <hip/hip_runtime_api.h>\n",
        undeclared: &["hipExtModuleLaunchKernel"],
        became_const: &[],
    },
    Module {
        name: "hiprtc",
        text: include_str!("../src/generated/hiprtc.rs"),
        includes: "#include <hip/hiprtc.h>\n",
        undeclared: &[],
        became_const: &["hiprtcCreateProgram", "hiprtcCompileProgram"],
    },
    Module {
        name: "miopen",
        text: include_str!("../src/generated/miopen.rs"),
        includes: "#define MIOPEN_BETA_API 1\n#include <miopen/version.h>\n#include <miopen/miopen.h>\n",
        undeclared: &[
            "miopenConvolutionForwardGetWorkSpaceSizeRange",
            "miopenConvolutionBackwardDataGetWorkSpaceSizeRange",
            "miopenConvolutionBackwardWeightsGetWorkSpaceSizeRange",
        ],
        became_const: &[],
    },
];

/// Claims of a module about the headers.
#[derive(Default)]
struct Claims {
    /// Numbers by the C++ expression that has them.
    numbers: BTreeMap<String, i128>,
    /// C++ types of functions.
    functions: BTreeMap<String, String>,
    optional: Vec<String>,
}

impl Claims {
    fn of(text: &str) -> Claims {
        let mut claims = Claims::default();
        for item in syn::parse_file(text).expect("generated code parses").items {
            match &item {
                Item::Const(constant) => {
                    if let Some(value) = number(&constant.expr) {
                        claims.numbers.insert(constant.ident.to_string(), value);
                    }
                    claims.layout(&constant.expr);
                }
                Item::Impl(block) => claims.enumerators(block),
                Item::Struct(table) if table.ident == "Functions" => {
                    for field in &table.fields {
                        let name = field.ident.as_ref().expect("a name").to_string();
                        let kind = match option(&field.ty) {
                            Some(inner) => {
                                claims.optional.push(name.clone());
                                inner
                            }
                            None => &field.ty,
                        };
                        claims.functions.insert(name, cpp(kind));
                    }
                }
                _ => {}
            }
        }
        claims
    }

    fn enumerators(&mut self, block: &syn::ItemImpl) {
        for item in &block.items {
            if let syn::ImplItem::Const(constant) = item
                && let Expr::Call(call) = &constant.expr
                && let Some(value) = call.args.first().and_then(number)
            {
                self.numbers.insert(constant.ident.to_string(), value);
            }
        }
    }

    /// bindgen checks a layout in lines like `["Size of name"][size_of::<name>() - 8usize];`.
    fn layout(&mut self, block: &Expr) {
        let Expr::Block(block) = block else { return };
        for statement in &block.block.stmts {
            if let syn::Stmt::Expr(Expr::Index(check), _) = statement
                && let Expr::Array(texts) = &*check.expr
                && let Some(Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. })) = texts.elems.first()
                && let Expr::Binary(difference) = &*check.index
                && let Some(value) = number(&difference.right)
            {
                let text = text.value();
                if text.contains("__bindgen") {
                    // It has no name in C++.
                    continue;
                }
                let expression = if let Some(name) = text.strip_prefix("Size of ") {
                    format!("sizeof({name})")
                } else if let Some(name) = text.strip_prefix("Alignment of ") {
                    format!("alignof({name})")
                } else if let Some((owner, field)) =
                    text.strip_prefix("Offset of field: ").and_then(|text| text.split_once("::"))
                {
                    // Rust's keyword has got an underscore.
                    format!("offsetof({owner}, {})", if field == "type_" { "type" } else { field })
                } else {
                    panic!("unknown check {text}")
                };
                self.numbers.insert(expression, value);
            }
        }
    }
}

fn number(expression: &Expr) -> Option<i128> {
    match expression {
        Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(value), .. }) => value.base10_parse().ok(),
        Expr::Unary(syn::ExprUnary { op: syn::UnOp::Neg(_), expr, .. }) => Some(-number(expr)?),
        _ => None,
    }
}

fn option(kind: &Type) -> Option<&Type> {
    let Type::Path(path) = kind else { return None };
    let last = path.path.segments.last()?;
    let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match (last.ident == "Option", arguments.args.first()) {
        (true, Some(syn::GenericArgument::Type(inner))) => Some(inner),
        _ => None,
    }
}

/// The C++ spelling of a type.
fn cpp(kind: &Type) -> String {
    match kind {
        Type::BareFn(function) => {
            let result = match &function.output {
                syn::ReturnType::Default => "void".to_owned(),
                syn::ReturnType::Type(_, kind) => cpp(kind),
            };
            let parameters: Vec<_> = function.inputs.iter().map(|parameter| cpp(&parameter.ty)).collect();
            format!("{result} (*)({})", parameters.join(", "))
        }
        Type::Ptr(pointer) => {
            let constant = if pointer.const_token.is_some() { " const" } else { "" };
            format!("{}{constant}*", cpp(&pointer.elem))
        }
        Type::Path(path) => {
            let name = path.path.segments.last().expect("a path has an end").ident.to_string();
            match name.as_str() {
                "c_int" => "int",
                "c_uint" => "unsigned int",
                "c_ushort" => "unsigned short",
                "c_uchar" => "unsigned char",
                "c_ulonglong" => "unsigned long long",
                "c_long" => "long",
                "c_char" => "char",
                "c_void" => "void",
                "usize" => "size_t",
                "u64" => "uint64_t",
                "u32" => "uint32_t",
                "i32" => "int32_t",
                "i64" => "int64_t",
                "f32" => "float",
                "f64" => "double",
                other => other,
            }
            .to_owned()
        }
        other => panic!("no C++ for {}", other.to_token_stream()),
    }
}

/// The headers of the packages in the cache.
fn installations() -> Vec<PathBuf> {
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/emulated-gpu");
    let directories = ["current", "current-sid"].into_iter().filter_map(|pointer| {
        let name = std::fs::read_to_string(cache.join(pointer)).ok()?;
        Some(cache.join(name.trim()).join("system/usr/include"))
    });
    directories.filter(|headers| headers.join("miopen/miopen.h").is_file()).collect()
}

/// True if the code was generated from headers of this release.
fn is_origin(headers: &Path) -> bool {
    use hipdnn_sdk_bindings::{hip, miopen};
    let has = |file: &str, numbers: [(&str, u32); 3]| {
        let text = std::fs::read_to_string(headers.join(file)).expect("a version header");
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        numbers.iter().all(|(name, value)| lines.contains(&format!("#define {name} {value}")))
    };
    has(
        "hip/hip_version.h",
        [
            ("HIP_VERSION_MAJOR", hip::HIP_VERSION_MAJOR),
            ("HIP_VERSION_MINOR", hip::HIP_VERSION_MINOR),
            ("HIP_VERSION_PATCH", hip::HIP_VERSION_PATCH),
        ],
    ) && has(
        "miopen/version.h",
        [
            ("MIOPEN_VERSION_MAJOR", miopen::MIOPEN_VERSION_MAJOR),
            ("MIOPEN_VERSION_MINOR", miopen::MIOPEN_VERSION_MINOR),
            ("MIOPEN_VERSION_PATCH", miopen::MIOPEN_VERSION_PATCH),
        ],
    )
}

/// All words of the headers, by which is known what they lack.
fn words(directory: &Path) -> std::collections::BTreeSet<String> {
    let mut words = std::collections::BTreeSet::new();
    let mut open = vec![directory.join("hip"), directory.join("miopen")];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                let split = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
                words.extend(split.map(str::to_owned));
            }
        }
    }
    words
}

/// Compiles the text; an error has what the compiler says.
fn compiles(name: &str, headers: &Path, text: &str) -> Result<(), String> {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.cpp", std::process::id()));
    std::fs::write(&source, text).expect("a place for the program");
    let output = Command::new("c++")
        .args(["-std=c++17", "-fsyntax-only", "-Wno-invalid-offsetof", "-isystem"])
        .arg(headers)
        .arg(&source)
        .output()
        .expect("c++ starts");
    std::fs::remove_file(&source).expect("the program is there");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[test]
fn the_headers_agree() {
    let installations = installations();
    if installations.is_empty() {
        eprintln!("skipped: no headers; `cargo xtask emulated-gpu setup` fetches them");
        return;
    }
    if Command::new("c++").arg("--version").output().is_err() {
        eprintln!("skipped: no C++ compiler called c++");
        return;
    }
    for headers in &installations {
        let origin = is_origin(headers);
        let words = words(headers);
        let has = |text: &str| {
            let mut names = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            names.all(|name| {
                name.is_empty() || ["sizeof", "alignof", "offsetof"].contains(&name) || words.contains(name)
            })
        };
        for module in &MODULES {
            let claims = Claims::of(module.text);
            let mut text = format!("#define __HIP_PLATFORM_AMD__ 1\n{}#include <cstddef>\n", module.includes);
            let (mut checked, mut lacking) = (0, Vec::new());
            for (expression, value) in &claims.numbers {
                if !origin && expression.contains("_VERSION") {
                    continue;
                }
                if has(expression) {
                    checked += 1;
                    text += &format!("static_assert((__int128)({expression}) == {value}LL, \"{expression}\");\n");
                } else {
                    lacking.push(expression.as_str());
                }
            }
            for (name, kind) in &claims.functions {
                let passed_over = if origin { &[] } else { module.became_const };
                if module.undeclared.iter().chain(passed_over).any(|passed| passed == name) {
                    continue;
                }
                if has(name) {
                    checked += 1;
                    // Declared once more: with another type that is an error.
                    text += &format!("extern \"C\" {};\n", kind.replacen("(*)", name, 1));
                } else {
                    assert!(claims.optional.contains(name), "{} lacks {name}", headers.display());
                    lacking.push(name);
                }
            }
            assert!(checked > 20, "{}: {checked} claims", module.name);
            assert!(!origin || lacking.is_empty(), "{}: {lacking:?}", headers.display());
            println!(
                "{}: {checked} claims about {}, {} things are not there",
                headers.display(),
                module.name,
                lacking.len()
            );
            if let Err(problem) = compiles(module.name, headers, &text) {
                panic!("{}: {problem}", headers.display());
            }
            let (name, value) = claims.numbers.first_key_value().expect("a claim");
            let (function, _) = claims.functions.last_key_value().expect("a function");
            let wrong_value = format!("static_assert((__int128)({name}) == {value}LL + 1, \"{name}\");\n");
            let wrong_type = format!("extern \"C\" char {function}(char);\n");
            for (subject, wrong) in [(name, wrong_value), (function, wrong_type)] {
                let problem = compiles(module.name, headers, &(text.clone() + &wrong)).expect_err("a claim is wrong");
                assert!(problem.contains(subject.as_str()), "{problem}");
            }
        }
    }
}
