//! Sizes, offsets and values of the bindings, against the C headers that the project has.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use hipdnn_sdk_bindings::hipdnn::{backend, extension, plugin};
use hipdnn_sdk_bindings::ort;

/// Every enumerator that the bindings name, by its C name.
fn enumerators() -> BTreeMap<String, i64> {
    let mut all = BTreeMap::new();
    macro_rules! collect {
        ($($module:ident::$name:ident),* $(,)?) => { $(
            for value in $module::$name::ALL {
                let name = value.name().expect("what is listed has a name");
                let before = all.insert(name.to_string(), i64::from(value.0));
                assert!(before.is_none_or(|before| before == i64::from(value.0)), "{name} has two values");
            }
        )* };
    }
    collect!(
        backend::Status,
        backend::AttributeType,
        backend::AttributeName,
        backend::DescriptorType,
        backend::DataType,
        backend::ConvolutionMode,
        backend::PointwiseMode,
        backend::OperationType,
        backend::HeurMode,
        backend::BehaviorNote,
        backend::PluginLoadingMode,
        backend::PluginUnloadingMode,
        backend::Severity,
        backend::LogCallbackMode,
        plugin::PluginStatus,
        plugin::PluginType,
        plugin::BehaviorNote,
    );
    all
}

/// Compiles a program that prints `lines` of C and gives what it prints.
fn printed_by_c(name: &str, lines: &str) -> String {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../install/include");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = directory.join(format!("{name}-{}.c", std::process::id()));
    let program = source.with_extension("");
    let text = format!(
        "#include <stdio.h>\n#include \"hipdnn_rs/hipdnn_backend.h\"\n#include \"hipdnn_rs/hipdnn_plugin.h\"\n\
         #include \"hipdnn_rs/hipdnn_rs_extension.h\"\nint main(void) {{\n{lines}return 0;\n}}\n"
    );
    std::fs::write(&source, text).unwrap();
    let output = Command::new("cc").arg("-I").arg(include).arg(&source).arg("-o").arg(&program).output();
    let output = output.expect("a C compiler called cc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = Command::new(&program).output().unwrap();
    assert!(output.status.success());
    for file in [source, program] {
        std::fs::remove_file(file).unwrap();
    }
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn enumerators_of_the_c_headers_have_our_values() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../install/include/hipdnn_rs");
    let mut names = Vec::new();
    for header in ["hipdnn_backend.h", "hipdnn_plugin.h"] {
        let text = std::fs::read_to_string(include.join(header)).unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        let assigned = words.windows(2).filter(|pair| pair[0].starts_with("HIPDNN_") && pair[1] == "=");
        names.extend(assigned.map(|pair| pair[0].to_string()));
    }
    assert!(names.len() > 80, "{} enumerators were found in the headers", names.len());
    let lines: String = names.iter().map(|name| format!("printf(\"{name} %d\\n\", (int){name});\n")).collect();
    let ours = enumerators();
    let mut checked = 0;
    for line in printed_by_c("enumerators", &lines).lines() {
        let (name, value) = line.split_once(' ').unwrap();
        let value: i64 = value.parse().unwrap();
        assert_eq!(ours.get(name), Some(&value), "{name}");
        checked += 1;
    }
    assert_eq!(checked, names.len());
}

#[test]
fn structs_are_laid_out_as_in_c() {
    let lines = "
        printf(\"%zu %zu\\n\", sizeof(hipdnnPluginConstData_t), offsetof(hipdnnPluginConstData_t, size));
        printf(\"%zu %zu\\n\", sizeof(hipdnnPluginDeviceBuffer_t), offsetof(hipdnnPluginDeviceBuffer_t, ptr));
        printf(\"%zu %zu\\n\", sizeof(hipdnnHandle_t), sizeof(hipdnnEnginePluginExecutionContext_t));
        printf(\"%zu %zu\\n\", sizeof(hipdnnStatus_t), sizeof(hipdnnBackendAttributeName_t));
        printf(\"%zu %zu\\n\", sizeof(hipdnnCallback_t), sizeof(bool));
        printf(\"%zu %zu\\n\", sizeof(hipdnnRsParallelFor_t), offsetof(hipdnnRsParallelFor_t, context));
        printf(\"%zu %zu\\n\", sizeof(hipdnnRsExtension_t), offsetof(hipdnnRsExtension_t, lend_parallel_for));
        printf(\"%zu %zu\\n\", sizeof(hipdnnRsConstant_t), offsetof(hipdnnRsConstant_t, size));
        printf(\"%zu %zu\\n\", sizeof(hipdnnRsConstants_t), offsetof(hipdnnRsConstants_t, count));
        printf(\"%zu %zu\\n\", sizeof(hipdnnRsExtension_t), offsetof(hipdnnRsExtension_t, lend_constants));
        printf(\"%zu %zu\\n\", sizeof(hipdnnRsRecording_t), offsetof(hipdnnRsExtension_t, begin_recording));
        printf(\"%zu %zu\\n\", offsetof(hipdnnRsExtension_t, end_recording), offsetof(hipdnnRsExtension_t, replay));
        printf(\"%zu %zu\\n\", sizeof(hipdnnRsExtension_t), offsetof(hipdnnRsExtension_t, destroy_recording));
        printf(\"%zu %d\\n\", sizeof HIPDNN_RS_EXTENSION_VERSION, HIPDNN_RS_EXTENSION_VERSION);
    ";
    let ours = [
        (size_of::<plugin::ConstData>(), offset_of!(plugin::ConstData, size)),
        (size_of::<plugin::DeviceBuffer>(), offset_of!(plugin::DeviceBuffer, ptr)),
        (size_of::<backend::HandlePtr>(), size_of::<plugin::ExecutionContextPtr>()),
        (size_of::<backend::Status>(), size_of::<backend::AttributeName>()),
        (size_of::<plugin::LogCallback>(), size_of::<bool>()),
        (size_of::<extension::ParallelFor>(), offset_of!(extension::ParallelFor, context)),
        (size_of::<extension::Extension>(), offset_of!(extension::Extension, lend_parallel_for)),
        (size_of::<extension::Constant>(), offset_of!(extension::Constant, size)),
        (size_of::<extension::Constants>(), offset_of!(extension::Constants, count)),
        (size_of::<extension::Extension>(), offset_of!(extension::Extension, lend_constants)),
        (size_of::<extension::RecordingPtr>(), offset_of!(extension::Extension, begin_recording)),
        (offset_of!(extension::Extension, end_recording), offset_of!(extension::Extension, replay)),
        (size_of::<extension::Extension>(), offset_of!(extension::Extension, destroy_recording)),
        (size_of_val(&extension::VERSION), extension::VERSION as usize),
    ];
    let ours: String = ours.iter().map(|(a, b)| format!("{a} {b}\n")).collect();
    assert_eq!(printed_by_c("structs", lines), ours);
    assert_eq!((size_of::<backend::FlatbufferData>(), offset_of!(backend::FlatbufferData, size)), (16, 8));
    assert_eq!(size_of::<backend::UserLogCallback>(), size_of::<usize>());
}

#[test]
fn every_function_of_the_backend_is_known() {
    assert_eq!(backend::Backend::SYMBOLS.len(), 38);
}

/// The provider's structs as ONNX Runtime 1.31 reads them; their members' offsets are asserted beside them.
#[test]
fn sizes_of_onnx_runtimes_structs() {
    for (name, size, want) in [
        ("OrtEpFactory", size_of::<ort::EpFactory>(), 168),
        ("OrtEp", size_of::<ort::Ep>(), 216),
        ("OrtNodeComputeInfo", size_of::<ort::NodeComputeInfo>(), 32),
        ("OrtNodeFusionOptions", size_of::<ort::NodeFusionOptions>(), 8),
        ("OrtAllocator", size_of::<ort::Allocator>(), 64),
        ("OrtDataTransferImpl", size_of::<ort::DataTransferImpl>(), 32),
        ("OrtSyncStreamImpl", size_of::<ort::SyncStreamImpl>(), 48),
        ("OrtSyncNotificationImpl", size_of::<ort::SyncNotificationImpl>(), 40),
        ("OrtEpProfilerImpl", size_of::<ort::EpProfilerImpl>(), 48),
        ("OrtResourceCount", size_of::<ort::ResourceCount>(), 56),
    ] {
        assert_eq!(size, want, "{name}");
    }
}
