//! Every function called wrongly answers with its status, and nothing else happens.

mod common;

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use common::*;

use AttributeName as A;
use AttributeType as T;
use DescriptorType as D;

const NULL: Status = Status::BAD_PARAM_NULL_POINTER;
const BAD: Status = Status::BAD_PARAM;
const EARLY: Status = Status::NOT_INITIALIZED;
const UNKNOWN: Status = Status::NOT_SUPPORTED;
const UNFINISHED: Status = Status::BAD_PARAM_NOT_FINALIZED;

/// A foreign address, and one that was never anybody's.
fn strangers() -> [*mut c_void; 3] {
    static SOMETHING: u64 = 0;
    [(&raw const SOMETHING).cast_mut().cast(), 0x10 as *mut c_void, usize::MAX as *mut c_void]
}

#[test]
fn null_and_strange_pointers() {
    let _turn = turn();
    let handle = OwnedHandle::new();
    let mut size = 0usize;
    let mut number = 0i64;
    let mut flags: c_int = 0;
    let mut level = Severity::OFF;
    let mut version = null();
    let mut descriptor = null_mut();
    let mut stream = null_mut();
    let h = handle.0;
    let no_handle: HandlePtr = null_mut();
    let none: DescriptorPtr = null_mut();
    // SAFETY: every place is valid or null, and sizes are true.
    #[rustfmt::skip]
    let cases: Vec<(&str, Status, Status)> = unsafe { vec![
        ("Create(null)", hipdnnCreate(null_mut()), NULL),
        ("Destroy(null)", hipdnnDestroy(no_handle), NULL),
        ("SetStream(null)", hipdnnSetStream(no_handle, null_mut()), NULL),
        ("GetStream(null)", hipdnnGetStream(no_handle, &mut stream), NULL),
        ("GetStream(h, null)", hipdnnGetStream(h, null_mut()), NULL),
        ("CreateDescriptor(null)", hipdnnBackendCreateDescriptor(D::TENSOR_DESCRIPTOR, null_mut()), NULL),
        ("DestroyDescriptor(null)", hipdnnBackendDestroyDescriptor(none), NULL),
        ("Finalize(null)", hipdnnBackendFinalize(none), NULL),
        ("SetAttribute(null)", hipdnnBackendSetAttribute(none, A(1), T(1), 1, null()), NULL),
        ("GetAttribute(null)", hipdnnBackendGetAttribute(none, A(1), T(1), 1, null_mut(), null_mut()), NULL),
        ("Execute(null)", hipdnnBackendExecute(no_handle, none, none), NULL),
        ("Execute(h, null)", hipdnnBackendExecute(h, none, none), NULL),
        ("Deserialize(null)", hipdnnBackendCreateAndDeserializeGraph_ext(null_mut(), [0u8].as_ptr(), 1), NULL),
        ("Deserialize(.., null)", hipdnnBackendCreateAndDeserializeGraph_ext(&mut descriptor, null(), 1), NULL),
        ("Deserialize(.., 0)", hipdnnBackendCreateAndDeserializeGraph_ext(&mut descriptor, [0u8].as_ptr(), 0), BAD),
        ("Json(null)", hipdnnBackendCreateAndDeserializeJsonGraph_ext(null_mut(), c"{}".as_ptr(), 2), NULL),
        ("Json(.., null)", hipdnnBackendCreateAndDeserializeJsonGraph_ext(&mut descriptor, null(), 2), NULL),
        ("Json(.., 0)", hipdnnBackendCreateAndDeserializeJsonGraph_ext(&mut descriptor, c"{}".as_ptr(), 0), BAD),
        ("GetBinary(null)", hipdnnBackendGetSerializedBinaryGraph_ext(none, 0, &mut size, null_mut()), NULL),
        ("GetJson(null)", hipdnnBackendGetSerializedJsonGraph_ext(none, 0, &mut size, null_mut()), NULL),
        ("GetPlan(null)", hipdnnBackendGetSerializedExecutionPlan_ext(none, 0, &mut size, null_mut()), NULL),
        ("GetBoth(null)", hipdnnBackendGetSerializedBinaryGraphAndPlan_ext(none, none, 0, &mut size, null_mut()), NULL),
        ("Plan(null)", hipdnnBackendCreateAndDeserializeExecutionPlan_ext(
            no_handle, &mut descriptor, [0u8].as_ptr(), 1), NULL),
        ("Plan(h, null)", hipdnnBackendCreateAndDeserializeExecutionPlan_ext(h, null_mut(), [0u8].as_ptr(), 1), NULL),
        ("Plan(.., null)", hipdnnBackendCreateAndDeserializeExecutionPlan_ext(h, &mut descriptor, null(), 1), NULL),
        ("Contents(null)", hipdnnBackendGetSerializedBinaryContents_ext(null(), 1, &mut flags), NULL),
        ("Contents(.., null)", hipdnnBackendGetSerializedBinaryContents_ext([0u8].as_ptr(), 1, null_mut()), NULL),
        ("Paths(1, null)", hipdnnSetEnginePluginPaths_ext(1, null(), PluginLoadingMode::ADDITIVE), NULL),
        ("Paths(1, [null])", hipdnnSetEnginePluginPaths_ext(
            1, [null::<c_char>()].as_ptr(), PluginLoadingMode::ADDITIVE), NULL),
        ("Heuristics(1, null)", hipdnnSetHeuristicPluginPaths_ext(1, null(), PluginLoadingMode::ADDITIVE), NULL),
        ("Heuristics(1, ..)", hipdnnSetHeuristicPluginPaths_ext(
            1, [c"x".as_ptr()].as_ptr(), PluginLoadingMode::ADDITIVE), UNKNOWN),
        ("Heuristics(0)", hipdnnSetHeuristicPluginPaths_ext(0, null(), PluginLoadingMode::ADDITIVE), OK),
        ("UnloadMode(2)", hipdnnSetPluginUnloadMode_ext(PluginUnloadingMode(2)), BAD),
        ("LoadedPaths(null)", hipdnnGetLoadedEnginePluginPaths_ext(
            no_handle, &mut size, null_mut(), &mut size.clone()), NULL),
        ("LoadedPaths(h, null)", hipdnnGetLoadedEnginePluginPaths_ext(h, null_mut(), null_mut(), &mut size), NULL),
        ("LoadedPaths(.., null)", hipdnnGetLoadedEnginePluginPaths_ext(h, &mut size, null_mut(), null_mut()), NULL),
        ("EngineCount(null)", hipdnnGetEngineCount_ext(no_handle, &mut size), NULL),
        ("EngineCount(h, null)", hipdnnGetEngineCount_ext(h, null_mut()), NULL),
        ("EngineInfo(null)", hipdnnGetEngineInfo_ext(no_handle, 0, &mut number, null_mut(), &mut size, null_mut(),
            &mut size.clone(), null_mut(), &mut size.clone(), null_mut(), &mut size.clone()), NULL),
        ("EngineInfo(h, lengths null)", hipdnnGetEngineInfo_ext(h, 0, &mut number, null_mut(), null_mut(), null_mut(),
            null_mut(), null_mut(), null_mut(), null_mut(), null_mut()), NULL),
        ("EngineInfo(h, 9999)", hipdnnGetEngineInfo_ext(h, 9999, &mut number, null_mut(), &mut size, null_mut(),
            &mut size.clone(), null_mut(), &mut size.clone(), null_mut(), &mut size.clone()), BAD),
        ("IdByName(null)", hipdnnGetEngineIdByName_ext(no_handle, c"x".as_ptr(), &mut number), NULL),
        ("IdByName(h, null)", hipdnnGetEngineIdByName_ext(h, null(), &mut number), NULL),
        ("IdByName(.., null)", hipdnnGetEngineIdByName_ext(h, c"x".as_ptr(), null_mut()), NULL),
        ("IdByName(unknown)", hipdnnGetEngineIdByName_ext(h, c"NO_SUCH".as_ptr(), &mut number), UNKNOWN),
        ("NameById(null)", hipdnnGetEngineNameById_ext(no_handle, 1, null_mut(), &mut size), NULL),
        ("NameById(unknown)", hipdnnGetEngineNameById_ext(h, 1, null_mut(), &mut size), UNKNOWN),
        ("PolicyCount(null)", hipdnnGetHeuristicPolicyCount_ext(no_handle, &mut size), NULL),
        ("PolicyCount(h, null)", hipdnnGetHeuristicPolicyCount_ext(h, null_mut()), NULL),
        ("PolicyInfo(h, 99)", hipdnnGetHeuristicPolicyInfo_ext(h, 99, &mut number, null_mut(), &mut size, null_mut(),
            &mut size.clone(), null_mut(), &mut size.clone(), null_mut(), &mut size.clone()), BAD),
        ("Ranking(null)", hipdnnBackendWriteEngineRankingResults_ext(no_handle, none, null(), 0, null_mut()), NULL),
        ("Ranking(h)", hipdnnBackendWriteEngineRankingResults_ext(h, none, null(), 0, null_mut()), NULL),
        ("UserLog(null)", hipdnnSetUserLogCallback_ext(None, Severity::INFO, LogCallbackMode::SYNC, null_mut()), BAD),
        ("SetLevel(5)", hipdnnBackendSetGlobalLogLevel_ext(Severity(5)), BAD),
        // hipDNN's own answer to this one.
        ("GetLevel(null)", hipdnnBackendGetGlobalLogLevel_ext(null_mut()), BAD),
        ("GetLevel", hipdnnBackendGetGlobalLogLevel_ext(&mut level), OK),
        ("GetVersion(null)", hipdnnGetVersion_ext(null_mut()), NULL),
        ("GetVersion", hipdnnGetVersion_ext(&mut version), OK),
    ] };
    for (what, came, want) in cases {
        assert_eq!(came, want, "{what}");
    }
    for strange in strangers() {
        let (strange_handle, strange) = (strange.cast::<Handle>(), strange.cast::<Descriptor>());
        // SAFETY: every place is valid or null.
        unsafe {
            assert_eq!(hipdnnDestroy(strange_handle), BAD);
            assert_eq!(hipdnnSetStream(strange_handle, null_mut()), BAD);
            assert_eq!(hipdnnGetEngineCount_ext(strange_handle, &mut size), BAD);
            assert_eq!(hipdnnBackendDestroyDescriptor(strange), BAD);
            assert_eq!(hipdnnBackendFinalize(strange), BAD);
            assert_eq!(hipdnnBackendExecute(h, strange, strange), BAD);
            assert_eq!(hipdnnBackendSetAttribute(strange, A(1300), T::INT64, 1, (&raw const number).cast()), BAD);
        }
        let graph = Desc::new(D::OPERATIONGRAPH_DESCRIPTOR);
        assert_eq!(graph.try_set(A::OPERATIONGRAPH_HANDLE, T::HANDLE, &[strange_handle]), BAD);
        assert_eq!(graph.try_set(A::OPERATIONGRAPH_OPS, T::BACKEND_DESCRIPTOR, &[strange]), BAD);
        // A handle is no descriptor, nor the other way round.
        // SAFETY: any value is taken.
        unsafe {
            assert_eq!(hipdnnBackendFinalize(h.cast()), BAD);
            assert_eq!(hipdnnDestroy(graph.0.cast()), BAD);
        }
    }
    // SAFETY: a place for a descriptor; a destroyed one is a value that the functions must refuse.
    unsafe {
        let mut gone = null_mut();
        assert_eq!(hipdnnBackendCreateDescriptor(D::TENSOR_DESCRIPTOR, &mut gone), OK);
        assert_eq!(hipdnnBackendDestroyDescriptor(gone), OK);
        assert_eq!(hipdnnBackendDestroyDescriptor(gone), BAD);
        assert_eq!(hipdnnBackendFinalize(gone), BAD);
    }
}

#[test]
fn descriptor_types() {
    let refused = [-1, 0, 5, 8, 9, 12, 13, 39];
    for number in -1..40 {
        let mut descriptor = null_mut();
        // SAFETY: the place is valid.
        let status = unsafe { hipdnnBackendCreateDescriptor(D(number), &mut descriptor) };
        if refused.contains(&number) {
            assert_eq!((status, descriptor.is_null()), (UNKNOWN, true), "type {number}");
        } else {
            assert_eq!(status, OK, "type {number}");
            drop(Desc(descriptor));
        }
    }
}

/// Answers of a fresh descriptor of each type.
#[test]
fn attributes_of_fresh_descriptors() {
    let types: Vec<i32> = [1, 2, 3, 4, 6, 10, 11].into_iter().chain(14..39).collect();
    for number in types {
        let descriptor = Desc::new(D(number));
        let mut out = [0u64; 4];
        assert_eq!(descriptor.try_set(A(99), T::INT64, &[1i64]), UNKNOWN, "type {number}");
        let get = descriptor.try_get(A(99), T::INT64, &mut out).0;
        match number {
            // Readable at any time, so it knows that there is no such attribute.
            10 => assert_eq!(get, UNKNOWN),
            3 => assert_eq!(get, UNFINISHED),
            _ => assert_eq!(get, EARLY, "type {number}"),
        }
        assert_eq!(descriptor.try_finalize(), BAD, "type {number}: nothing is set");
    }
    let info = Desc::new(D::KNOB_INFO_DESCRIPTOR);
    assert_eq!(info.try_set(A::KNOB_INFO_TYPE, T::CHAR, b"x"), UNKNOWN);
    assert_eq!(info.try_get(A::KNOB_INFO_TYPE, T::CHAR, &mut [0u8]).0, EARLY);
}

/// Wrong types, counts and nulls, for every kind of element.
#[test]
fn elements_must_fit() {
    let tensor = Desc::new(D::TENSOR_DESCRIPTOR);
    let raw = |name: A, kind: T, count: i64, data: *const c_void| {
        // SAFETY: `data` is null or has at least as many elements as are read: wrong counts are refused before.
        unsafe { hipdnnBackendSetAttribute(tensor.0, name, kind, count, data) }
    };
    let numbers = [1i64, 2, 3];
    let data = numbers.as_ptr().cast::<c_void>();
    for (what, status, want) in [
        ("type", raw(A::TENSOR_UNIQUE_ID, T::INT32, 1, data), BAD),
        ("null", raw(A::TENSOR_UNIQUE_ID, T::INT64, 1, null()), NULL),
        ("two", raw(A::TENSOR_UNIQUE_ID, T::INT64, 2, data), BAD),
        ("none", raw(A::TENSOR_UNIQUE_ID, T::INT64, 0, data), BAD),
        ("negative", raw(A::TENSOR_UNIQUE_ID, T::INT64, -1, data), BAD),
        ("vector none", raw(A::TENSOR_DIMENSIONS, T::INT64, 0, data), BAD),
        ("vector negative", raw(A::TENSOR_DIMENSIONS, T::INT64, -5, data), BAD),
        ("vector endless", raw(A::TENSOR_DIMENSIONS, T::INT64, i64::MAX, data), BAD),
        ("vector null", raw(A::TENSOR_DIMENSIONS, T::INT64, 3, null()), NULL),
        ("text null", raw(A::TENSOR_NAME_EXT, T::CHAR, 3, null()), NULL),
        ("text not UTF-8", raw(A::TENSOR_NAME_EXT, T::CHAR, 1, [0xffu8].as_ptr().cast()), BAD),
        ("data type 99", raw(A::TENSOR_DATA_TYPE, T::DATA_TYPE, 1, [99i32].as_ptr().cast()), BAD),
        ("alignment 0", raw(A::TENSOR_BYTE_ALIGNMENT, T::INT64, 1, [0i64].as_ptr().cast()), BAD),
        ("read-only", raw(A::TENSOR_IS_BY_VALUE, T::BOOLEAN, 1, [1u8].as_ptr().cast()), UNKNOWN),
        ("value before type", raw(A::TENSOR_VALUE_EXT, T::CHAR, 4, [0u8; 4].as_ptr().cast()), BAD),
        (
            "not a tensor",
            raw(A::TENSOR_RAGGED_OFFSET_DESC, T::BACKEND_DESCRIPTOR, 1, (&raw const tensor.0).cast()),
            UNFINISHED,
        ),
    ] {
        assert_eq!(status, want, "{what}: {}", last_error());
    }
    tensor.set(A::TENSOR_DATA_TYPE, T::DATA_TYPE, &[DataType::FLOAT]);
    assert_eq!(tensor.try_finalize(), BAD, "no dimensions");
    tensor.set_int64s(A::TENSOR_DIMENSIONS, &[1, 2]);
    tensor.set_int64s(A::TENSOR_STRIDES, &[1]);
    assert_eq!(tensor.try_finalize(), BAD, "one stride for two dimensions");
    tensor.set_int64s(A::TENSOR_STRIDES, &[2, 1]);
    tensor.set_text(A::TENSOR_NAME_EXT, "name");
    tensor.finalize();
    assert_eq!(tensor.try_finalize(), OK, "tensors may be finalized again");
    assert_eq!(tensor.try_set(A::TENSOR_UNIQUE_ID, T::INT64, &[1i64]), EARLY);

    // Reading.
    assert_eq!(tensor.try_get(A::TENSOR_DATA_TYPE, T::INT64, &mut [0i64]).0, BAD, "type");
    assert_eq!(tensor.try_get(A::TENSOR_VALUE_EXT, T::CHAR, &mut [0u8; 4]).0, BAD, "no value");
    let mut dims = [0i64; 3];
    assert_eq!(tensor.try_get(A::TENSOR_DIMENSIONS, T::INT64, &mut dims[..1]), (OK, 1), "as many as fit");
    assert_eq!(tensor.try_get(A::TENSOR_DIMENSIONS, T::INT64, &mut dims), (OK, 2));
    assert_eq!(dims, [1, 2, 0]);
    let mut text = [1u8; 8];
    assert_eq!(tensor.try_get(A::TENSOR_NAME_EXT, T::CHAR, &mut text), (OK, 5));
    assert_eq!(&text[..5], b"name\0");
    assert_eq!(tensor.try_get(A::TENSOR_NAME_EXT, T::CHAR, &mut text[..3]), (OK, 3));
    assert_eq!(&text[..3], b"na\0", "cut, and still ended");
    // SAFETY: nothing is written where nothing is asked for.
    unsafe {
        let get = |requested, count: *mut i64, data: *mut c_void| {
            hipdnnBackendGetAttribute(tensor.0, A::TENSOR_DIMENSIONS, T::INT64, requested, count, data)
        };
        assert_eq!(get(0, null_mut(), null_mut()), NULL, "a count query needs a place");
        assert_eq!(get(-1, null_mut(), dims.as_mut_ptr().cast()), BAD);
        assert_eq!(get(2, null_mut(), dims.as_mut_ptr().cast()), OK);
    }
}

#[test]
fn heuristics_engines_configurations_plans() {
    let _turn = turn();
    let directory = scratch("misuse-stages");
    let plugin = compile(&directory, "echo.so", &[]);
    use_plugins(&[&plugin]);
    let handle = OwnedHandle::new();
    let loose = Desc::graph(&add_graph());
    let graph = finished_graph(&handle, &add_graph());
    assert_eq!(graph.try_set(A::OPERATIONGRAPH_NAME_EXT, T::CHAR, b"x"), EARLY);

    let heuristic = Desc::new(D::ENGINEHEUR_DESCRIPTOR);
    assert_eq!(heuristic.try_set(A::ENGINEHEUR_OPERATION_GRAPH, T::BACKEND_DESCRIPTOR, &[loose.0]), UNFINISHED);
    assert_eq!(heuristic.try_set(A::ENGINEHEUR_OPERATION_GRAPH, T::BACKEND_DESCRIPTOR, &[heuristic.0]), BAD);
    assert_eq!(heuristic.try_set(A::ENGINEHEUR_MODE, T::HEUR_MODE, &[7i32]), UNKNOWN);
    assert_eq!(heuristic.try_set(A::ENGINEHEUR_MODE, T::HEUR_MODE, &[0i32, 0]), BAD);
    heuristic.set_desc(A::ENGINEHEUR_OPERATION_GRAPH, &graph);
    assert_eq!(heuristic.try_finalize(), BAD, "no mode");
    heuristic.set(A::ENGINEHEUR_MODE, T::HEUR_MODE, &[0i32]);
    heuristic.set(A::ENGINEHEUR_FIND_FIRST_EXT, T::BOOLEAN, &[true]);
    heuristic.finalize();
    assert_eq!(heuristic.try_finalize(), BAD, "twice");
    assert_eq!(heuristic.try_set(A::ENGINEHEUR_MODE, T::HEUR_MODE, &[0i32]), EARLY);
    assert_eq!(heuristic.get::<i32>(A::ENGINEHEUR_MODE, T::HEUR_MODE), 0);
    assert_eq!(heuristic.get::<u8>(A::ENGINEHEUR_FIND_FIRST_EXT, T::BOOLEAN), 1);
    drop(heuristic.get_desc(A::ENGINEHEUR_OPERATION_GRAPH));
    let wrong = Desc::new(D::TENSOR_DESCRIPTOR);
    let results =
        |tokens: &mut [DescriptorPtr]| heuristic.try_get(A::ENGINEHEUR_RESULTS, T::BACKEND_DESCRIPTOR, tokens).0;
    assert_eq!(results(&mut [wrong.0]), BAD, "results want engine configurations");
    assert_eq!(results(&mut [null_mut()]), NULL);
    // SAFETY: the array and the place are null.
    let status = unsafe {
        hipdnnBackendGetAttribute(heuristic.0, A::ENGINEHEUR_RESULTS, T::BACKEND_DESCRIPTOR, 1, null_mut(), null_mut())
    };
    assert_eq!(status, NULL);

    let engine = Desc::new(D::ENGINE_DESCRIPTOR);
    assert_eq!(engine.try_set(A::ENGINE_OPERATION_GRAPH, T::BACKEND_DESCRIPTOR, &[loose.0]), UNFINISHED);
    engine.set_desc(A::ENGINE_OPERATION_GRAPH, &graph);
    engine.set_int64s(A::ENGINE_GLOBAL_INDEX, &[4711]);
    assert_eq!(engine.try_finalize(), BAD, "no such engine");
    assert!(last_error().contains("Engine id is not in a valid range of engine IDs"));
    engine.set_int64s(A::ENGINE_GLOBAL_INDEX, &[engine_id("ECHO_ENGINE")]);

    let config = Desc::new(D::ENGINECFG_DESCRIPTOR);
    assert_eq!(config.try_set(A::ENGINECFG_ENGINE, T::BACKEND_DESCRIPTOR, &[engine.0]), UNFINISHED);
    engine.finalize();
    assert_eq!(engine.try_finalize(), BAD, "twice");
    for absent in [A::ENGINE_NUMERICAL_NOTE, A::ENGINE_LAYOUT_INFO, A::ENGINE_CU_COUNT_TARGET_EXT, A::ENGINE_DEVICEPROP]
    {
        assert_eq!(engine.try_get(absent, T::INT64, &mut [0i64]).0, UNKNOWN, "{absent}");
    }
    assert_eq!(engine.try_get(A::ENGINE_GLOBAL_INDEX, T::INT64, &mut [0i64; 2]).0, BAD, "exactly one");
    config.set_desc(A::ENGINECFG_ENGINE, &engine);
    let choice = Desc::new(D::KNOB_CHOICE_DESCRIPTOR);
    assert_eq!(choice.try_set(A::KNOB_CHOICE_KNOB_TYPE, T::CHAR, b""), BAD);
    assert_eq!(choice.try_set(A::KNOB_CHOICE_KNOB_TYPE, T::CHAR, &[b'x'; 300]), BAD);
    assert_eq!(choice.try_set(A::KNOB_CHOICE_KNOB_VALUE, T::INT32, &[1i32]), BAD);
    assert_eq!(config.try_set(A::ENGINECFG_KNOB_CHOICES, T::BACKEND_DESCRIPTOR, &[choice.0]), UNFINISHED);

    let plan = Desc::new(D::EXECUTION_PLAN_DESCRIPTOR);
    assert_eq!(plan.try_set(A::EXECUTION_PLAN_ENGINE_CONFIG, T::BACKEND_DESCRIPTOR, &[config.0]), UNFINISHED);
    config.finalize();
    assert_eq!(config.try_finalize(), BAD, "twice");
    assert_eq!(config.try_get(A::ENGINECFG_INTERMEDIATE_INFO, T::INT64, &mut [0i64]).0, UNKNOWN);
    assert_eq!(plan.try_set(A::EXECUTION_PLAN_HANDLE, T::HANDLE, &[null_mut::<Handle>()]), NULL);
    plan.set_desc(A::EXECUTION_PLAN_ENGINE_CONFIG, &config);
    let data = Floats([0.0; 16]);
    let mut out = Floats([0.0; 16]);
    let out_address = (&raw mut out).cast_const().cast::<c_void>();
    let unfinished_pack = pack(&[(1, data.address()), (2, data.address()), (3, out_address)], null());
    let pack = pack(&[(1, data.address()), (2, data.address()), (3, out_address)], null());
    pack.finalize();
    assert_eq!(execute(&handle, &plan, &pack), BAD, "the plan is not finalized");
    let mut size = 0;
    // SAFETY: only the size is asked for.
    let status = unsafe { hipdnnBackendGetSerializedExecutionPlan_ext(plan.0, 0, &mut size, null_mut()) };
    assert_eq!(status, EARLY);
    plan.finalize();
    assert_eq!(plan.try_finalize(), BAD, "twice");
    assert_eq!(plan.try_get(A::EXECUTION_PLAN_TENSOR_UIDS_EXT, T::INT64, &mut [0i64; 2]).0, BAD, "room for all");
    assert_eq!(plan.try_get(A::EXECUTION_PLAN_JSON_REPRESENTATION, T::CHAR, &mut [0u8; 2]).0, UNKNOWN);
    assert_eq!(execute(&handle, &plan, &unfinished_pack), BAD, "the pack is not finalized");
    assert_eq!(execute(&handle, &pack, &plan), BAD, "the wrong way round");
    assert_eq!(execute(&handle, &plan, &pack), OK);
    assert_eq!(pack.try_set(A::VARIANT_PACK_UNIQUE_IDS, T::INT64, &[1i64]), EARLY);
    assert_eq!(pack.get_int64s(A::VARIANT_PACK_UNIQUE_IDS), [1, 2, 3]);
    assert_eq!(pack.try_get(A::VARIANT_PACK_INTERMEDIATES, T::BACKEND_DESCRIPTOR, &mut [0usize]).0, UNKNOWN);
    let mut addresses = [0usize; 3];
    assert_eq!(pack.try_get(A::VARIANT_PACK_DATA_POINTERS, T::VOID_PTR, &mut addresses), (OK, 3));
    assert_eq!(addresses[0], data.address() as usize);
    let mut count = 0;
    // SAFETY: the array is null, which is refused.
    let status = unsafe {
        hipdnnBackendGetAttribute(pack.0, A::VARIANT_PACK_DATA_POINTERS, T::VOID_PTR, 0, &mut count, null_mut())
    };
    assert_eq!(status, NULL, "no count query here");
    let get = |name, requested, count, data| {
        // SAFETY: there is room for three addresses, or none is wanted.
        unsafe { hipdnnBackendGetAttribute(pack.0, name, T::VOID_PTR, requested, count, data) }
    };
    let places = addresses.as_mut_ptr().cast::<c_void>();
    let workspace = A::VARIANT_PACK_WORKSPACE;
    for (what, status, want) in [
        ("addresses without a place for the count", get(A::VARIANT_PACK_DATA_POINTERS, 3, null_mut(), places), NULL),
        ("fewer than no addresses", get(A::VARIANT_PACK_DATA_POINTERS, -1, &mut count, places), BAD),
        ("two workspaces", get(workspace, 2, &mut count, places), BAD),
        ("no workspace", get(workspace, 0, &mut count, places), BAD),
        ("a workspace nowhere", get(workspace, 1, &mut count, null_mut()), NULL),
        ("a workspace", get(workspace, 1, null_mut(), places), OK),
    ] {
        assert_eq!(status, want, "{what}: {}", last_error());
    }
    for (uids, addresses) in [(vec![1i64, 2], vec![data.address()]), (vec![], vec![])] {
        let pack = Desc::new(D::VARIANT_PACK_DESCRIPTOR);
        assert_eq!(pack.try_set(A::VARIANT_PACK_UNIQUE_IDS, T::INT64, &uids), OK);
        assert_eq!(pack.try_set(A::VARIANT_PACK_DATA_POINTERS, T::VOID_PTR, &addresses), OK);
        assert_eq!(pack.try_finalize(), BAD, "{uids:?}");
    }
}

/// hipDNN's features that this library lacks are declined; the error's text names them and says why.
#[test]
fn absent_features_say_why() {
    let _turn = turn();
    let directory = scratch("misuse-absent");
    let plugin = compile(&directory, "echo.so", &[]);
    use_plugins(&[&plugin]);
    let handle = OwnedHandle::new();
    let graph = finished_graph(&handle, &add_graph());
    let heuristic = heuristic(&graph);
    heuristic.finalize();
    let config = results(&heuristic).remove(0);
    let engine = {
        config.finalize();
        config.get_desc(A::ENGINECFG_ENGINE)
    };
    let get = |descriptor: &Desc, name: A| (name, descriptor.try_get(name, T::INT64, &mut [0i64]).0, last_error());
    for ((name, status, text), why) in [
        (get(&engine, A::ENGINE_CANDIDATES_EXT), "enumerate no candidate configurations"),
        (get(&engine, A::ENGINE_CU_COUNT_TARGET_EXT), "compute units"),
        (get(&engine, A::ENGINE_NUMERICAL_NOTE), "no numerical ones"),
        (get(&engine, A::ENGINE_LAYOUT_INFO), "no such attribute"),
        (get(&config, A::ENGINECFG_INTERMEDIATE_INFO), "no such attribute"),
    ] {
        assert_eq!(status, UNKNOWN, "{name}: {text}");
        assert!(text.starts_with(&name.to_string()) && text.contains(why), "{name}: {text}");
    }
}

/// Each metric's answer is a prediction that is not available, which stays where it is as long as its descriptor.
#[test]
fn predictions_are_unavailable() {
    use hipdnn_schemas::{EnginePrediction, PredictionKind, PredictionStatus};
    let _turn = turn();
    let directory = scratch("misuse-predictions");
    let plugin = compile(&directory, "echo.so", &[]);
    use_plugins(&[&plugin]);
    let handle = OwnedHandle::new();
    let graph = finished_graph(&handle, &add_graph());
    let heuristic = heuristic(&graph);
    heuristic.set_text(A::ENGINEHEUR_RANKING_METRIC_EXT, "time");
    heuristic.finalize();
    let config = results(&heuristic).remove(0);
    let new_config = Desc::new(D::ENGINECFG_DESCRIPTOR);
    let nothing = FlatbufferData { ptr: null(), size: 0 };
    let ask = |descriptor: &Desc, name: A| {
        let mut data = [nothing];
        assert_eq!(descriptor.try_get(name, T::FLATBUFFER_DATA_STRUCT_EXT, &mut data), (OK, 1), "{}", last_error());
        data[0]
    };
    let read = |data: FlatbufferData| {
        // SAFETY: the descriptor keeps so many bytes there.
        let bytes = unsafe { std::slice::from_raw_parts(data.ptr.cast::<u8>(), data.size) };
        EnginePrediction::from_bytes(bytes).unwrap()
    };
    let expect = |data: FlatbufferData, kind, metric: &str| {
        let prediction = read(data);
        assert_eq!((prediction.kind, prediction.status), (kind, PredictionStatus::Unavailable));
        assert_eq!((prediction.engine_id, prediction.metric.as_str()), (engine_id("ECHO_ENGINE"), metric));
        assert!(prediction.reason.contains("predicts no speed"), "{}", prediction.reason);
    };
    // Before it is finalized, and after.
    let by_time = ask(&config, A::ENGINECFG_PREDICTION_EXT);
    expect(by_time, PredictionKind::Configuration, "time");
    config.set_text(A::ENGINECFG_RANKING_METRIC_EXT, "tflops");
    expect(ask(&config, A::ENGINECFG_PREDICTION_EXT), PredictionKind::Configuration, "tflops");
    expect(by_time, PredictionKind::Configuration, "time");
    config.set_text(A::ENGINECFG_RANKING_METRIC_EXT, "time");
    assert_eq!(ask(&config, A::ENGINECFG_PREDICTION_EXT).ptr, by_time.ptr, "the answer is kept");
    config.finalize();
    assert_eq!(ask(&config, A::ENGINECFG_PREDICTION_EXT).ptr, by_time.ptr);
    let engine = config.get_desc(A::ENGINECFG_ENGINE);
    let of_engine = ask(&engine, A::ENGINE_PREDICTION_EXT);
    expect(of_engine, PredictionKind::Engine, "time");
    assert_eq!(ask(&engine, A::ENGINE_PREDICTION_EXT).ptr, of_engine.ptr);
    // The engine is told the metric that it was ranked by.
    let told = hipdnn_schemas::EngineConfig { engine_id: engine_id("ECHO_ENGINE"), knobs: Vec::new() };
    assert_eq!(calls(&plugin).unwrap().config_bytes, told.to_bytes_ranked_by(Some("time")).len() as i64);
    for (descriptor, name) in [(&engine, A::ENGINE_PREDICTION_EXT), (&config, A::ENGINECFG_PREDICTION_EXT)] {
        assert_eq!(descriptor.try_get(name, T::INT64, &mut [0i64]).0, BAD);
        assert_eq!(descriptor.try_get(name, T::FLATBUFFER_DATA_STRUCT_EXT, &mut [nothing; 2]).0, BAD);
        assert_eq!(descriptor.count(name, T::FLATBUFFER_DATA_STRUCT_EXT), 1);
    }
    assert_eq!(new_config.count(A::ENGINECFG_PREDICTION_EXT, T::FLATBUFFER_DATA_STRUCT_EXT), 1);
    let mut data = [nothing];
    let asked = new_config.try_get(A::ENGINECFG_PREDICTION_EXT, T::FLATBUFFER_DATA_STRUCT_EXT, &mut data);
    assert_eq!(asked.0, BAD, "a configuration of no engine");
}

/// Metrics are hipDNN's, and travel from a heuristic to its engines and configurations; questions of predictions and
/// candidates may be prepared.
#[test]
fn ranking_metrics_and_questions_of_predictions() {
    let _turn = turn();
    let directory = scratch("misuse-metrics");
    let plugin = compile(&directory, "echo.so", &[]);
    use_plugins(&[&plugin]);
    let handle = OwnedHandle::new();
    let graph = finished_graph(&handle, &add_graph());
    for (metric, want) in [(None, "tflops"), (Some("tflops"), "tflops"), (Some("time"), "time")] {
        let heuristic = heuristic(&graph);
        assert_eq!(heuristic.try_set(A::ENGINEHEUR_RANKING_METRIC_EXT, T::CHAR, b"flops"), BAD);
        assert!(last_error().contains("expected a ranking metric among"), "{}", last_error());
        assert_eq!(heuristic.try_set(A::ENGINEHEUR_RANKING_METRIC_EXT, T::INT64, &[1i64]), BAD);
        if let Some(metric) = metric {
            heuristic.set_text(A::ENGINEHEUR_RANKING_METRIC_EXT, metric);
        }
        heuristic.finalize();
        assert_eq!(heuristic.get_text(A::ENGINEHEUR_RANKING_METRIC_EXT), want);
        let config = results(&heuristic).remove(0);
        assert_eq!(config.get_text(A::ENGINECFG_RANKING_METRIC_EXT), want, "also before it is finalized");
        config.finalize();
        assert_eq!(config.get_text(A::ENGINECFG_RANKING_METRIC_EXT), want);
        assert_eq!(config.get_desc(A::ENGINECFG_ENGINE).get_text(A::ENGINE_PREDICTION_METRIC_EXT), want);
    }
    let config = Desc::new(D::ENGINECFG_DESCRIPTOR);
    assert_eq!(config.get_text(A::ENGINECFG_RANKING_METRIC_EXT), "tflops");
    config.set_text(A::ENGINECFG_RANKING_METRIC_EXT, "time");
    assert_eq!(config.get_text(A::ENGINECFG_RANKING_METRIC_EXT), "time");
    assert_eq!(config.try_set(A::ENGINECFG_RANKING_METRIC_EXT, T::CHAR, b"flops"), BAD);
    let engine = Desc::new(D::ENGINE_DESCRIPTOR);
    engine.set_text(A::ENGINE_PREDICTION_METRIC_EXT, "time");
    assert_eq!(engine.try_set(A::ENGINE_PREDICTION_METRIC_EXT, T::CHAR, b"flops"), BAD);
    for (descriptor, name, right, wrong) in [
        (&config, A::ENGINECFG_PREDICTION_EVALUATE_EXT, [0, 1], [-1, 2]),
        (&engine, A::ENGINE_PREDICTION_EVALUATE_EXT, [0, 1], [-1, 2]),
        (&engine, A::ENGINE_CANDIDATE_OFFSET_EXT, [0, i64::MAX], [-1, i64::MIN]),
        (&engine, A::ENGINE_CANDIDATE_LIMIT_EXT, [1, 10_000], [0, 10_001]),
    ] {
        for (values, want) in [(right, OK), (wrong, BAD)] {
            for value in values {
                assert_eq!(descriptor.try_set(name, T::INT64, &[value]), want, "{name} {value}");
            }
        }
    }
    let choice = Desc::new(D::KNOB_CHOICE_DESCRIPTOR);
    let scope = |choice: &Desc| engine.try_set(A::ENGINE_CANDIDATE_SCOPE_EXT, T::BACKEND_DESCRIPTOR, &[choice.0]);
    assert_eq!(scope(&choice), Status::BAD_PARAM_NOT_FINALIZED);
    choice.set_text(A::KNOB_CHOICE_KNOB_TYPE, "echo.int");
    choice.set_int64s(A::KNOB_CHOICE_KNOB_VALUE, &[2]);
    choice.finalize();
    assert_eq!(scope(&choice), OK);
}

#[test]
fn bytes_that_are_no_graph() {
    let good = add_graph().to_bytes();
    let mut newer = add_graph();
    newer.min_required_engine_api_version = Some(hipdnn_schemas::EngineApiVersion { major: 1, minor: 9, patch: 0 });
    for (what, bytes, want) in [
        ("text", b"not a graph at all".to_vec(), BAD),
        ("one byte", vec![0], BAD),
        ("cut", good[..good.len() / 2].to_vec(), BAD),
        ("a newer ABI", newer.to_bytes(), UNKNOWN),
        ("an empty container", hipdnn_schemas::SerializedGraphAndPlan::default().to_bytes(), BAD),
    ] {
        let mut descriptor = null_mut();
        // SAFETY: there are as many bytes as we say.
        let status =
            unsafe { hipdnnBackendCreateAndDeserializeGraph_ext(&mut descriptor, bytes.as_ptr(), bytes.len()) };
        assert_eq!((status, descriptor.is_null()), (want, true), "{what}");
        assert!(!last_error().is_empty(), "{what}");
    }
    for text in ["", "{", "[]", "{\"name\": 3}", "\u{0}"] {
        let mut descriptor = null_mut();
        // SAFETY: there are as many bytes as we say.
        let status = unsafe {
            hipdnnBackendCreateAndDeserializeJsonGraph_ext(&mut descriptor, text.as_ptr().cast(), text.len())
        };
        assert_eq!((status, descriptor.is_null()), (BAD, true), "{text:?}");
    }
}

#[test]
fn last_errors_are_peeked_taken_and_cut() {
    // SAFETY: buffers are as large as we say, or null.
    unsafe {
        assert_eq!(hipdnnDestroy(null_mut()), NULL);
        let mut text = [b'x'; 64];
        hipdnnPeekLastErrorString_ext(text.as_mut_ptr().cast(), text.len());
        assert!(text.starts_with(b"the handle is null\0"));
        hipdnnPeekLastErrorString_ext(text.as_mut_ptr().cast(), 4);
        assert!(text.starts_with(b"the\0"));
        let mut level = Severity::OFF;
        assert_eq!(hipdnnBackendGetGlobalLogLevel_ext(&mut level), OK);
        assert_eq!(last_error(), "the handle is null", "success does not clear it");
        assert_eq!(last_error(), "", "taking does");
        hipdnnGetLastErrorString(null_mut(), 10);
        assert!(last_error().contains("no room"));
        hipdnnGetLastErrorString(text.as_mut_ptr().cast(), 0);
        assert!(last_error().contains("no room"));
    }
    for (status, want) in
        [(0, "HIPDNN_STATUS_SUCCESS"), (14, "HIPDNN_STATUS_PLUGIN_ERROR"), (99, "HIPDNN_STATUS_UNKNOWN")]
    {
        // SAFETY: the text is static.
        let text = unsafe { std::ffi::CStr::from_ptr(hipdnnGetErrorString(Status(status))) };
        assert_eq!(text.to_str().unwrap(), want);
    }
    // SAFETY: the text is static.
    let version = unsafe { std::ffi::CStr::from_ptr(hipdnnVersionString_ext()) }.to_str().unwrap();
    let fields: Vec<u32> = version.split('.').map(|field| field.parse().unwrap()).collect();
    assert_eq!((fields.len(), fields[0]), (4, MAJOR_VERSION));
}
