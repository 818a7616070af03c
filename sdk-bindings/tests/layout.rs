//! Sizes, offsets and values of the bindings, against the C headers where the project has them, and against the
//! published numbers elsewhere.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use hipdnn_sdk_bindings::hipdnn::{backend, plugin};
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
         int main(void) {{\n{lines}return 0;\n}}\n"
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
    ";
    let ours = [
        (size_of::<plugin::ConstData>(), offset_of!(plugin::ConstData, size)),
        (size_of::<plugin::DeviceBuffer>(), offset_of!(plugin::DeviceBuffer, ptr)),
        (size_of::<backend::HandlePtr>(), size_of::<plugin::ExecutionContextPtr>()),
        (size_of::<backend::Status>(), size_of::<backend::AttributeName>()),
        (size_of::<plugin::LogCallback>(), size_of::<bool>()),
    ];
    let ours: String = ours.iter().map(|(a, b)| format!("{a} {b}\n")).collect();
    assert_eq!(printed_by_c("structs", lines), ours);
    assert_eq!((size_of::<backend::FlatbufferData>(), offset_of!(backend::FlatbufferData, size)), (16, 8));
    assert_eq!(size_of::<backend::UserLogCallback>(), size_of::<usize>());
}

#[test]
fn numbers_that_no_header_here_has() {
    use backend::{AttributeName as A, AttributeType as T, DescriptorType as D};
    // First and last of each block: the blocks are consecutive.
    for (value, number) in [
        (A::ENGINEHEUR_MODE, 100),
        (A::ENGINEHEUR_RANKING_METRIC_EXT, 107),
        (A::ENGINECFG_ENGINE, 200),
        (A::ENGINECFG_RANKING_METRIC_EXT, 206),
        (A::EXECUTION_PLAN_HANDLE, 300),
        (A::EXECUTION_PLAN_TENSOR_UIDS_EXT, 308),
        (A::EXECUTION_PLAN_IS_OVERRIDE_SHAPE_ENABLED_EXT, 310),
        (A::INTERMEDIATE_INFO_DEPENDENT_ATTRIBUTES, 403),
        (A::KNOB_CHOICE_KNOB_VALUE, 501),
        (A::OPERATIONGRAPH_HANDLE, 600),
        (A::OPERATIONGRAPH_IS_OVERRIDE_SHAPE_ENABLED_EXT, 609),
        (A::VARIANT_PACK_UNIQUE_IDS, 700),
        (A::VARIANT_PACK_OVERRIDE_LENGTHS_EXT, 707),
        (A::LAYOUT_INFO_TYPES, 801),
        (A::KNOB_INFO_TYPE, 900),
        (A::KNOB_INFO_DEFAULT_VALUE_TYPE, 910),
        (A::ENGINE_OPERATION_GRAPH, 1000),
        (A::ENGINE_NAME_EXT, 1008),
        (A::ENGINE_PREDICTION_METRIC_EXT, 1015),
        (A::KERNEL_CACHE_IS_ENGINECFG_KERNEL_CACHED, 1100),
        (A::DEVICEPROP_JSON_REPRESENTATION, 1202),
        (A::TENSOR_UNIQUE_ID, 1300),
        (A::TENSOR_RAGGED_OFFSET_MULTIPLIER, 1311),
        (A::OPERATION_CONVOLUTION_FORWARD_Y, 1402),
        (A::CONVOLUTION_COMP_TYPE, 1500),
        (A::CONVOLUTION_PRE_PADDINGS, 1505),
        (A::OPERATION_CONVOLUTION_BWD_FILTER_DW, 1602),
        (A::OPERATION_CONVOLUTION_BWD_DATA_DX, 1702),
        (A::BATCHNORM_INF_COMP_TYPE_EXT, 1806),
        (A::BATCHNORM_INF_VAR_COMP_TYPE_EXT, 1907),
        (A::OPERATION_BATCHNORM_BACKWARD_INV_VARIANCE_EXT, 2007),
        (A::BATCHNORM_BACKWARD_PEER_STATS_EXT, 2101),
        (A::OPERATION_POINTWISE_IN_2_EXT, 2203),
        (A::POINTWISE_AXIS, 2308),
        (A::OPERATION_RMSNORM_COMP_TYPE_EXT, 2407),
        (A::MATMUL_COMP_TYPE, 2503),
        (A::OPERATION_SDPA_FWD_AMAX_O_EXT, 2627),
        (A::OPERATION_SDPA_FWD_COMP_TYPE, 2641),
        (A::OPERATION_LAYERNORM_NORMALIZED_DIM_COUNT_EXT, 2709),
        (A::OPERATION_BLOCK_SCALE_QUANTIZE_MATH_PREC, 2806),
        (A::OPERATION_BLOCK_SCALE_DEQUANTIZE_MATH_PREC, 2812),
        (A::OPERATION_BATCHNORM_PEER_STATS_EXT, 2913),
        (A::OPERATION_CUSTOM_OP_COMP_TYPE_EXT, 3004),
        (A::OPERATION_SDPA_BWD_COMP_TYPE, 3128),
        (A::OPERATION_REDUCTION_IS_DETERMINISTIC, 3204),
        (A::OPERATION_RESAMPLE_FWD_IDX, 3302),
        (A::RESAMPLE_COMP_TYPE, 3407),
        (A::OPERATION_RESAMPLE_BWD_IDX, 3410),
        (A::OPERATION_RMSNORM_BACKWARD_COMP_TYPE_EXT, 3507),
        (A::OPERATION_LAYERNORM_BACKWARD_COMP_TYPE_EXT, 3610),
        (A::OPERATION_MOE_GROUPED_MATMUL_MATH_PREC, 3708),
        (A::OPERATION_MOE_GROUPED_MATMUL_BWD_MATH_PREC, 3804),
        (A::KNOB_INFO_SERIALIZED_VALUE, 60000),
        (A::KNOB_CHOICE_SERIALIZED_VALUE, 60100),
        (A::OPERATION_TYPE_EXT, 60200),
        (A::OPERATION_NAME_EXT, 60300),
        (A::PROFILING_DEVICE_SYNC_EXT, 60404),
    ] {
        assert_eq!(value.0, number, "{value}");
    }
    for (value, number) in [
        (T::HANDLE, 0),
        (T::VOID_PTR, 6),
        (T::BACKEND_DESCRIPTOR, 13),
        (T::INT32, 18),
        (T::CHAR, 19),
        (T::CONVOLUTION_MODE, 24),
        (T::POINTWISE_MODE, 25),
        (T::MOE_GROUPED_MATMUL_MODE, 31),
        (T::FLATBUFFER_DATA_STRUCT_EXT, 10000),
        (T::OPERATION_TYPE_EXT, 10001),
    ] {
        assert_eq!(value.0, number, "{value}");
    }
    for (value, number) in [
        (D::ENGINE_DESCRIPTOR, 1),
        (D::OPERATIONGRAPH_DESCRIPTOR, 10),
        (D::TENSOR_DESCRIPTOR, 14),
        (D::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 15),
        (D::OPERATION_POINTWISE_DESCRIPTOR, 18),
        (D::OPERATION_MATMUL_DESCRIPTOR, 22),
        (D::OPERATION_BATCHNORM_DESCRIPTOR_EXT, 27),
        (D::OPERATION_CUSTOM_OP_DESCRIPTOR_EXT, 29),
        (D::PROFILING_CONTROL_DESCRIPTOR_EXT, 34),
        (D::OPERATION_LAYERNORM_BACKWARD_DESCRIPTOR_EXT, 35),
    ] {
        assert_eq!(value.0, number, "{value}");
    }
    assert_eq!(backend::DataType::FP8_E5M2_FNUZ.0, 17);
    assert_eq!(backend::PointwiseMode::TANH_FWD.0, 47);
    assert_eq!(backend::OperationType::LAYERNORM_BACKWARD.0, 20);
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
