//! The libraries export what their ABIs name, and nothing else.

use std::collections::BTreeSet;

use hipdnn_rs_integration_tests::artifacts::{Artifact, exported, library_path};
use hipdnn_rs_integration_tests::plugin::Functions;
use hipdnn_sdk_bindings::hipdnn::backend::Backend;

fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    names.into_iter().map(str::to_string).collect()
}

/// hipDNN's functions of heuristics plugins, with the optional ones.
const HEURISTICS: [&str; 14] = [
    "hipdnnHeuristicPluginGetAllPolicyIds",
    "hipdnnHeuristicPluginGetPolicyName",
    "hipdnnHeuristicHandleCreate",
    "hipdnnHeuristicHandleDestroy",
    "hipdnnHeuristicHandleSetDeviceProperties",
    "hipdnnHeuristicPolicyDescriptorCreate",
    "hipdnnHeuristicPolicyDescriptorDestroy",
    "hipdnnHeuristicPolicySetEngineIds",
    "hipdnnHeuristicPolicySetSerializedGraph",
    "hipdnnHeuristicPolicyFinalize",
    "hipdnnHeuristicPolicyFinalizeWithHost",
    "hipdnnHeuristicPolicyGetSortedEngineIds",
    "hipdnnHeuristicPolicyGetEngineConfig",
    "hipdnnHeuristicPolicyGetTrace",
];

#[test]
fn exports_are_the_intended_ones() {
    let plugin =
        names(Functions::SYMBOLS.iter().copied().chain(["hipdnnPluginGetLastErrorString", "hipdnnRsGetExtension"]));
    assert_eq!(
        plugin.len(),
        25,
        "7 base functions, 12 of engines, the engine's name, override shapes, 3 of stored plans, and the extension"
    );
    let backend = names(Backend::SYMBOLS.iter().copied());
    let provider = names(["CreateEpFactories", "ReleaseEpFactory"]);
    let of_any = Functions::SYMBOLS.iter().copied().filter(|name| name.starts_with("hipdnnPlugin"));
    let heuristics = names(of_any.chain(["hipdnnPluginGetLastErrorString"]).chain(HEURISTICS));
    assert_eq!(heuristics.len(), 7 + HEURISTICS.len(), "7 base functions");
    for (artifact, wanted) in [
        (Artifact::Plugin, plugin),
        (Artifact::Backend, backend),
        (Artifact::Provider, provider),
        (Artifact::Heuristics, heuristics),
    ] {
        let exported = exported(artifact);
        let missing: Vec<_> = wanted.difference(&exported).collect();
        let stray: Vec<_> = exported.difference(&wanted).collect();
        assert!(
            missing.is_empty() && stray.is_empty(),
            "{}: missing {missing:?}, stray {stray:?}",
            artifact.file_name()
        );
    }
}

/// Libraries of the system that ours need at load: nothing that a machine without a GPU or ONNX Runtime lacks.
#[test]
fn dependencies_are_the_c_library() {
    let allowed = ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1"];
    for artifact in Artifact::ALL {
        let bytes = std::fs::read(library_path(artifact)).expect("the library can be read");
        let needed = needed(&bytes);
        assert!(!needed.is_empty(), "{}: no dependencies were found", artifact.file_name());
        for library in &needed {
            let is_loader = library.starts_with("ld-linux");
            assert!(is_loader || allowed.contains(&library.as_str()), "{} needs {library}", artifact.file_name());
        }
    }
}

/// The `DT_NEEDED` entries of an ELF file of 64 bits.
fn needed(bytes: &[u8]) -> Vec<String> {
    use object::elf;
    use object::read::elf::{Dyn, FileHeader};
    let header = elf::FileHeader64::<object::Endianness>::parse(bytes).expect("the library is an ELF file");
    let endian = header.endian().expect("the byte order is known");
    let sections = header.sections(endian, bytes).expect("the library has sections");
    let (entries, strings) =
        sections.dynamic(endian, bytes).expect("the dynamic section is whole").expect("it is a shared library");
    let strings = sections.strings(endian, bytes, strings).expect("the dynamic section has strings");
    let needed = entries.iter().filter(|entry| entry.tag32(endian) == Some(elf::DT_NEEDED));
    let names = needed.map(|entry| entry.string(endian, strings).expect("each names a library"));
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}
