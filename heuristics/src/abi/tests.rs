use super::*;
use hipdnn_heuristics_model::samples;
use std::ffi::c_void;
use std::ptr::{null, null_mut};

const BAD: PluginStatus = PluginStatus::BAD_PARAM;
const OK: PluginStatus = PluginStatus::SUCCESS;

fn data(bytes: &[u8]) -> ConstData {
    ConstData { ptr: bytes.as_ptr().cast(), size: bytes.len() }
}

fn device() -> Vec<u8> {
    let architecture_name = "gfx942".to_owned();
    DeviceProperties { device_id: 0, multi_processor_count: 304, total_global_mem: 1 << 37, architecture_name }
        .to_bytes()
}

/// A handle and a descriptor of the cost model, with a device.
fn made() -> (HeuristicHandlePtr, PolicyDescriptorPtr) {
    let (mut handle, mut desc) = (null_mut(), null_mut());
    // SAFETY: the places and the bytes are variables of this function.
    unsafe {
        assert_eq!(hipdnnHeuristicHandleCreate(&mut handle), OK);
        assert_eq!(hipdnnHeuristicHandleSetDeviceProperties(handle, &data(&device())), OK);
        assert_eq!(hipdnnHeuristicPolicyDescriptorCreate(handle, Policy::CostModel.id(), &mut desc), OK);
    }
    (handle, desc)
}

fn message() -> String {
    let mut text = null();
    // SAFETY: the place is a variable; the text is this thread's and ends in NUL.
    unsafe {
        hipdnnPluginGetLastErrorString(&mut text);
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

#[test]
fn null_misaligned_and_foreign_arguments_are_refused() {
    let (handle, desc) = made();
    let graph = samples::softmax(8, 8).def().to_bytes();
    let (null_data, short) = (ConstData { ptr: null(), size: 8 }, data(&graph[..9]));
    let (mut id, mut count, mut applied, mut config) = (0, 0usize, 0, null_data);
    let mut text = null();
    let odd = (&raw mut count).cast::<u8>().wrapping_add(1);
    // SAFETY: pointers are null, misaligned, or those of variables of this function.
    unsafe {
        for status in [
            hipdnnPluginGetName(null_mut()),
            hipdnnPluginGetVersion(null_mut()),
            hipdnnPluginGetApiVersion(null_mut()),
            hipdnnPluginGetType(null_mut()),
            hipdnnPluginSetLoggingCallback(None),
            hipdnnPluginSetLogLevel(Severity(5)),
            hipdnnHeuristicPluginGetAllPolicyIds(&mut id, 1, null_mut()),
            hipdnnHeuristicPluginGetAllPolicyIds(null_mut(), 1, (&raw mut applied).cast()),
            hipdnnHeuristicPluginGetPolicyName(1, &mut text),
            hipdnnHeuristicPluginGetPolicyName(Policy::Measured.id(), null_mut()),
            hipdnnHeuristicHandleCreate(null_mut()),
            hipdnnHeuristicHandleSetDeviceProperties(handle, null()),
            hipdnnHeuristicHandleSetDeviceProperties(handle, &null_data),
            hipdnnHeuristicHandleSetDeviceProperties(handle, &short),
            hipdnnHeuristicPolicyDescriptorCreate(handle, Policy::Measured.id(), null_mut()),
            hipdnnHeuristicPolicySetEngineIds(desc, null(), 3),
            hipdnnHeuristicPolicySetEngineIds(desc, odd.cast(), 1),
            hipdnnHeuristicPolicySetEngineIds(desc, &id, usize::MAX),
            hipdnnHeuristicPolicySetSerializedGraph(desc, null()),
            hipdnnHeuristicPolicySetSerializedGraph(desc, &null_data),
            hipdnnHeuristicPolicySetSerializedGraph(desc, &short),
            hipdnnHeuristicPolicyFinalize(desc, null_mut()),
            hipdnnHeuristicPolicyFinalizeWithHost(desc, odd.cast(), &mut applied),
            hipdnnHeuristicPolicyGetSortedEngineIds(desc, null_mut(), null_mut()),
            hipdnnHeuristicPolicyGetEngineConfig(desc, 1, null_mut()),
            hipdnnHeuristicPolicyGetTrace(desc, 1, null_mut()),
        ] {
            assert_eq!(status, BAD, "{}", message());
        }
        assert_eq!(hipdnnHeuristicPolicyFinalize(desc, &mut applied), PluginStatus::NOT_INITIALIZED, "no graph");
        assert_eq!(hipdnnHeuristicPolicyGetTrace(desc, 1, &mut text), PluginStatus::NOT_INITIALIZED);
        // Null, another kind of object, and an address that is nobody's.
        for wrong in [null_mut::<c_void>(), handle.cast(), 0x1000 as *mut c_void] {
            let desc: PolicyDescriptorPtr = wrong.cast();
            for status in [
                hipdnnHeuristicPolicySetEngineIds(desc, &id, 1),
                hipdnnHeuristicPolicySetSerializedGraph(desc, &data(&graph)),
                hipdnnHeuristicPolicyFinalize(desc, &mut applied),
                hipdnnHeuristicPolicyFinalizeWithHost(desc, null(), &mut applied),
                hipdnnHeuristicPolicyGetSortedEngineIds(desc, null_mut(), &mut count),
                hipdnnHeuristicPolicyGetEngineConfig(desc, 1, &mut config),
                hipdnnHeuristicPolicyGetTrace(desc, 1, &mut text),
                hipdnnHeuristicPolicyDescriptorDestroy(desc),
            ] {
                assert_eq!(status, BAD, "{}", message());
            }
        }
    }
    assert_eq!(hipdnnHeuristicPolicyDescriptorDestroy(desc), OK);
    assert_eq!(hipdnnHeuristicPolicyDescriptorDestroy(desc), BAD, "twice");
    assert_eq!(hipdnnHeuristicHandleDestroy(handle), OK);
    assert_eq!(hipdnnHeuristicHandleDestroy(handle), BAD, "twice");
    assert!(message().contains("none or was destroyed"), "{}", message());
}

/// A host that predicts 1 ns for engine 7, says it of another engine for 8, and fails for the rest.
unsafe extern "C" fn predict(
    _: *mut c_void,
    engine: i64,
    _: PredictionKind,
    prediction: *mut ConstData,
) -> PluginStatus {
    if engine != 7 && engine != 8 {
        return PluginStatus::INTERNAL_ERROR;
    }
    let answer = EnginePrediction {
        engine_id: 7,
        kind: hipdnn_schemas::PredictionKind::Engine,
        status: PredictionStatus::Available(1e-6),
        reason: String::new(),
        metric: "time".to_owned(),
    };
    let bytes: &'static [u8] = answer.to_bytes().leak();
    // SAFETY: the plugin's place for the answer.
    unsafe { prediction.write(data(bytes)) };
    PluginStatus::SUCCESS
}

#[test]
fn what_was_not_set_is_told() {
    let (mut handle, mut desc, mut applied) = (null_mut(), null_mut(), 7);
    let graph = samples::softmax(64, 64).def().to_bytes();
    // SAFETY: the pointers are those of variables of this function.
    unsafe {
        assert_eq!(hipdnnHeuristicHandleCreate(&mut handle), OK);
        assert_eq!(hipdnnHeuristicPolicyDescriptorCreate(handle, Policy::CostModel.id(), &mut desc), OK);
        let mut told = |what: &str| {
            assert_eq!(hipdnnHeuristicPolicyFinalize(desc, &mut applied), PluginStatus::NOT_INITIALIZED, "{what}");
            assert!(message().contains(what) && applied == 0, "{}", message());
        };
        told("device properties");
        assert_eq!(hipdnnHeuristicHandleSetDeviceProperties(handle, &data(&device())), OK);
        told("a graph");
        assert_eq!(hipdnnHeuristicPolicySetSerializedGraph(desc, &data(&graph)), OK);
        told("candidates");
        assert_eq!(hipdnnHeuristicPolicySetEngineIds(desc, null(), 0), OK);
        assert_eq!((hipdnnHeuristicPolicyFinalize(desc, &mut applied), applied), (OK, 0), "nothing to rank");
        assert_eq!(hipdnnHeuristicPolicySetEngineIds(desc, &3, 1), OK);
        assert_eq!((hipdnnHeuristicPolicyFinalize(desc, &mut applied), applied), (OK, 1));
    }
    assert_eq!(hipdnnHeuristicPolicyDescriptorDestroy(desc), OK);
    assert_eq!(hipdnnHeuristicHandleDestroy(handle), OK);
}

/// A host that destroys the descriptor that is finalized, which it passes as context.
unsafe extern "C" fn destroy(desc: *mut c_void, _: i64, _: PredictionKind, _: *mut ConstData) -> PluginStatus {
    assert_eq!(hipdnnHeuristicPolicyDescriptorDestroy(desc.cast()), OK);
    PluginStatus::INTERNAL_ERROR
}

#[test]
fn a_host_that_calls_back_is_not_waited_for() {
    let (handle, desc) = made();
    let graph = samples::softmax(64, 64).def().to_bytes();
    let host = HostCallbacks {
        version: 2,
        struct_size: size_of::<HostCallbacks>(),
        context: desc.cast(),
        get_prediction: Some(destroy),
        ranking_metric: c"time".as_ptr(),
    };
    let mut applied = 7;
    // SAFETY: the pointers are those of variables of this function.
    unsafe {
        assert_eq!(hipdnnHeuristicPolicySetEngineIds(desc, &3, 1), OK);
        assert_eq!(hipdnnHeuristicPolicySetSerializedGraph(desc, &data(&graph)), OK);
        assert_eq!(hipdnnHeuristicPolicyFinalizeWithHost(desc, &host, &mut applied), BAD, "{}", message());
    }
    assert_eq!(applied, 0);
    assert_eq!(hipdnnHeuristicHandleDestroy(handle), OK);
}

#[test]
fn a_host_is_answered() {
    let (handle, desc) = made();
    let graph = samples::softmax(64, 64).def().to_bytes();
    let names = ["MIOPEN_ENGINE", "HIPDNN_RS_GPU_ENGINE"].map(hipdnn_sdk_bindings::hipdnn::plugin::engine_id);
    let candidates = [8, names[0], 7, names[1]];
    let host = |version, metric: &'static CStr| HostCallbacks {
        version,
        struct_size: size_of::<HostCallbacks>(),
        context: null_mut(),
        get_prediction: Some(predict),
        ranking_metric: metric.as_ptr(),
    };
    let sorted = |room: usize| {
        let (mut ids, mut count) = ([0i64; 4], room);
        // SAFETY: there is room for four ids.
        assert_eq!(unsafe { hipdnnHeuristicPolicyGetSortedEngineIds(desc, ids.as_mut_ptr(), &mut count) }, OK);
        ids[..count].to_vec()
    };
    let mut applied = 0;
    // SAFETY: the pointers are those of variables of this function.
    unsafe {
        assert_eq!(hipdnnHeuristicPolicySetEngineIds(desc, candidates.as_ptr(), 4), OK);
        assert_eq!(hipdnnHeuristicPolicySetSerializedGraph(desc, &data(&graph)), OK);
        let mute = HostCallbacks { get_prediction: None, ..host(2, c"time") };
        for host in [null(), &raw const mute, &host(1, c"time"), &host(2, c"tflops")] {
            assert_eq!(hipdnnHeuristicPolicyFinalizeWithHost(desc, host, &mut applied), OK);
            assert_eq!((applied, sorted(4)), (1, vec![names[1], names[0], 8, 7]));
        }
        assert_eq!(hipdnnHeuristicPolicyFinalizeWithHost(desc, &host(2, c"time"), &mut applied), OK);
        assert_eq!(
            (applied, sorted(4)),
            (1, vec![7, names[1], names[0], 8]),
            "7 says what it takes, and 8 nothing of itself"
        );
        assert_eq!(sorted(2), [7, names[1]]);
        assert_eq!(hipdnnHeuristicPolicyFinalizeWithHost(desc, &host(2, c"joules"), &mut applied), OK);
        assert_eq!(applied, 0);
    }
    assert_eq!(hipdnnHeuristicPolicyDescriptorDestroy(desc), OK);
    assert_eq!(hipdnnHeuristicHandleDestroy(handle), OK);
}
