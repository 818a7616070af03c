//! Names of MIOpen that are bound in builds whose public functions forward to hipDNN, and reasons against libraries
//! that can't be used; with stand-ins that the system's C compiler makes.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use hipdnn_sdk_bindings::library::{Library, LibraryError, Lookup};
use hipdnn_sdk_bindings::miopen::{MiOpen, miopenStatus_t};

/// Names of the functions in MIOpen's table.
fn functions() -> Vec<String> {
    let file = syn::parse_file(include_str!("../src/generated/miopen.rs")).expect("generated code parses");
    let table = file.items.into_iter().find_map(|item| match item {
        syn::Item::Struct(table) if table.ident == "Functions" => Some(table),
        _ => None,
    });
    let fields = table.expect("a table").fields;
    fields.into_iter().filter_map(|field| Some(field.ident?.to_string())).collect()
}

/// A library with all of MIOpen's functions but one; `miopenGetErrorString` tells which library it is of.
fn stand_in(path: &Path, suffix: &str, text: &str, major: u32, without: &str) {
    let mut source = String::from("#include <stddef.h>\n");
    for name in functions().iter().filter(|name| *name != without) {
        source += &match name.as_str() {
            "miopenGetErrorString" => {
                format!("const char* {name}{suffix}(int status) {{ (void)status; return \"{text}\"; }}\n")
            }
            "miopenGetVersion" => format!(
                "int {name}{suffix}(size_t* a, size_t* b, size_t* c) {{ *a = {major}; *b = 5; *c = 1; return 0; }}\n"
            ),
            _ => format!("int {name}{suffix}(void) {{ return 7; }}\n"),
        };
    }
    let file = path.with_extension("c");
    std::fs::write(&file, source).expect("a place for the source");
    let output = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(path).arg(&file).output();
    let output = output.expect("a C compiler called cc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    directory
}

fn open(path: &Path) -> Result<MiOpen, LibraryError> {
    // SAFETY: the stand-ins do nothing when they are loaded or unloaded.
    unsafe { MiOpen::open([path.to_path_buf()]) }
}

/// Name of the library that the bound function is of.
fn bound(miopen: &MiOpen) -> String {
    // SAFETY: the stand-in's function has this signature and gives static text.
    let text = unsafe { (miopen.functions.miopenGetErrorString)(miopenStatus_t::miopenStatusSuccess) };
    // SAFETY: the stand-in's text is static and ends in NUL.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[test]
fn implementations_are_bound_before_what_forwards_to_them() {
    let directory = directory("forwarding");
    let miopen = directory.join("libMIOpen.so.1");
    stand_in(&miopen, "", "public", 3, "");
    let opened = open(&miopen).expect("it has all functions");
    assert_eq!((bound(&opened).as_str(), opened.version()), ("public", [3, 5, 1]));
    drop(opened);

    stand_in(&directory.join("libMIOpen_private.so"), "_impl", "private", 3, "miopenCreate");
    let opened = open(&miopen).expect("both have all functions");
    assert_eq!(bound(&opened), "private");
    // The implementation lacks this one.
    let create = opened.lookup().address(c"miopenCreate");
    let public = Library::loaded(&miopen).expect("it is open").address(c"miopenCreate");
    assert!(create.is_some() && create == public);
    drop(opened);
    std::fs::remove_file(directory.join("libMIOpen_private.so")).expect("it was there");

    // Both kinds of names in one library.
    let both = directory.join("both").join("libMIOpen.so.1");
    std::fs::create_dir_all(both.parent().expect("a parent")).expect("a directory");
    stand_in(&both, "_impl", "implementation", 3, "");
    assert_eq!(bound(&open(&both).expect("it has all functions")), "implementation");
    std::fs::remove_dir_all(directory).expect("it was there");
}

#[test]
fn a_library_that_lacks_a_function_and_one_of_another_version_are_different_errors() {
    let directory = directory("lacking");
    for (name, major, without, want) in [
        ("needed", 3, "miopenCreate", Err("has no symbol miopenCreate")),
        ("version", 4, "", Err("expected version 3.x, got 4.5.1")),
        ("optional", 3, "miopenExecuteFusionPlan_v2", Ok(())),
    ] {
        let path = directory.join(format!("lib{name}.so"));
        stand_in(&path, "", name, major, without);
        match (open(&path), want) {
            (Ok(miopen), Ok(())) => assert!(miopen.functions.miopenExecuteFusionPlan_v2.is_none()),
            (Err(error), Err(text)) => assert!(error.to_string().ends_with(text), "{error}"),
            (got, _) => panic!("{name}: {got:?}"),
        }
    }
    std::fs::remove_dir_all(directory).expect("it was there");
}
