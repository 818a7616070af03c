//! From a graph to its result, through a plugin written in C.

mod common;

use common::*;
use hipdnn_schemas::{GraphDef, SerializedExecutionPlan};
use std::ffi::c_void;
use std::ptr::null;

fn run(handle: &OwnedHandle, plan: &Desc, extra: impl Fn(&Desc)) -> (Status, [f32; 16]) {
    let a = Floats(std::array::from_fn(|i| i as f32));
    let b = Floats([100.0; 16]);
    let mut out = Floats([0.0; 16]);
    let out_address = (&raw mut out).cast_const().cast::<c_void>();
    let pack = pack(&[(3, out_address), (1, a.address()), (2, b.address())], null());
    extra(&pack);
    pack.finalize();
    (execute(handle, plan, &pack), out.0)
}

fn sum() -> [f32; 16] {
    std::array::from_fn(|i| i as f32 + 100.0)
}

#[test]
fn a_serialized_graph_runs() {
    let _turn = turn();
    let directory = scratch("pipeline-serialized");
    let plugin = compile(&directory, "echo.so", &[]);
    use_plugins(&[&plugin]);
    let def = add_graph();
    {
        let handle = OwnedHandle::new();
        let stream = 0x1234 as *mut c_void;
        let mut back = null::<c_void>().cast_mut();
        // SAFETY: the stream is a word to all; the place is valid.
        unsafe {
            assert_eq!(hipdnnGetStream(handle.0, &mut back), OK);
            assert!(back.is_null());
            assert_eq!(hipdnnSetStream(handle.0, stream), OK);
            assert_eq!(hipdnnGetStream(handle.0, &mut back), OK);
        }
        assert_eq!(back, stream);
        assert_eq!(calls(&plugin).unwrap().stream, stream);

        let graph = finished_graph(&handle, &def);
        let heuristic = heuristic(&graph);
        heuristic.finalize();
        let configs = results(&heuristic);
        assert_eq!(configs.len(), 1);
        configs[0].finalize();
        assert_eq!(configs[0].get::<i64>(AttributeName::ENGINECFG_WORKSPACE_SIZE, AttributeType::INT64), 64);
        let engine = configs[0].get_desc(AttributeName::ENGINECFG_ENGINE);
        let id: i64 = engine.get(AttributeName::ENGINE_GLOBAL_INDEX, AttributeType::INT64);
        assert_eq!(id, engine_id("ECHO_ENGINE"));
        assert_eq!(engine.get_text(AttributeName::ENGINE_NAME_EXT), "ECHO_ENGINE");

        let plan = Desc::new(DescriptorType::EXECUTION_PLAN_DESCRIPTOR);
        plan.set(AttributeName::EXECUTION_PLAN_HANDLE, AttributeType::HANDLE, &[handle.0]);
        plan.set_desc(AttributeName::EXECUTION_PLAN_ENGINE_CONFIG, &configs[0]);
        plan.finalize();
        assert_eq!(plan.get::<i64>(AttributeName::EXECUTION_PLAN_WORKSPACE_SIZE, AttributeType::INT64), 32);
        assert_eq!(plan.get_int64s(AttributeName::EXECUTION_PLAN_TENSOR_UIDS_EXT), [1, 2, 3]);
        assert_eq!(plan.get::<i64>(AttributeName::EXECUTION_PLAN_ENGINE_GLOBAL_INDEX_EXT, AttributeType::INT64), id);

        // Everything on the way may go; the plan holds what it needs.
        drop((engine, configs, heuristic, graph));
        for _ in 0..3 {
            assert_eq!(run(&handle, &plan, |_| ()), (OK, sum()), "{}", last_error());
        }
        let calls = calls(&plugin).unwrap();
        assert_eq!((calls.executed, calls.contexts_created, calls.contexts_destroyed), (3, 1, 0));
        assert_eq!(calls.graph_bytes, def.to_bytes().len() as i64, "the bytes go to the plugin as they came");
    }
    let calls = calls(&plugin).unwrap();
    assert_eq!((calls.created, calls.destroyed, calls.contexts_destroyed), (1, 1, 1));
}

#[test]
fn plans_outlive_their_handle_and_run_on_another() {
    let _turn = turn();
    let directory = scratch("pipeline-handles");
    let plugin = compile(&directory, "echo.so", &[]);
    use_plugins(&[&plugin]);
    let first = OwnedHandle::new();
    let second = OwnedHandle::new();
    let plan = plan(&finished_graph(&first, &add_graph()));
    drop(first);
    assert_eq!(calls(&plugin).unwrap().destroyed, 0, "the plan still needs the plugin's handle");
    assert_eq!(run(&second, &plan, |_| ()), (OK, sum()), "{}", last_error());
    drop(plan);
    assert_eq!(calls(&plugin).unwrap().destroyed, 1);
}

#[test]
fn misaligned_pointers_are_refused() {
    let _turn = turn();
    let directory = scratch("pipeline-alignment");
    let plugin = compile(&directory, "echo.so", &["ECHO_COUNT=8"]);
    use_plugins(&[&plugin]);
    let handle = OwnedHandle::new();
    let mut def = add_graph();
    def.tensors[1].alignment = 4;
    let plan = plan(&finished_graph(&handle, &def));
    let data = Floats([1.0; 16]);
    let mut out = Floats([0.0; 16]);
    let out_address = (&raw mut out).cast_const().cast::<c_void>();
    let skewed = data.address().wrapping_byte_add(4);
    for (a, b, want) in [
        (data.address(), data.address(), OK),
        (data.address(), skewed, OK),
        (skewed, data.address(), Status::BAD_PARAM),
        (null(), data.address(), Status::PLUGIN_ERROR),
    ] {
        let pack = pack(&[(1, a), (2, b), (3, out_address)], null());
        pack.finalize();
        assert_eq!(execute(&handle, &plan, &pack), want, "{a:p} {b:p} {}", last_error());
    }
}

#[test]
fn overridden_shapes_reach_plugins_that_take_them() {
    let _turn = turn();
    let directory = scratch("pipeline-overrides");
    let able = compile(&directory, "able.so", &["ECHO_OVERRIDES"]);
    let unable = compile(&directory, "unable.so", &[]);
    let old = compile(&directory, "old.so", &["ECHO_OVERRIDES", "ECHO_API=\"1.0.0\""]);
    let overriding = GraphDef { is_override_shape_enabled: true, ..add_graph() };
    let set = |pack: &Desc| {
        pack.set_int64s(AttributeName::VARIANT_PACK_OVERRIDE_UNIQUE_IDS_EXT, &[1]);
        pack.set_int64s(AttributeName::VARIANT_PACK_OVERRIDE_LENGTHS_EXT, &[2]);
        pack.set_int64s(AttributeName::VARIANT_PACK_OVERRIDE_SHAPES_EXT, &[1, 8]);
        pack.set_int64s(AttributeName::VARIANT_PACK_OVERRIDE_STRIDES_EXT, &[5, 1]);
    };
    use_plugins(&[&able]);
    {
        let handle = OwnedHandle::new();
        let plan = plan(&finished_graph(&handle, &overriding));
        assert_eq!(
            plan.get::<u8>(AttributeName::EXECUTION_PLAN_IS_OVERRIDE_SHAPE_ENABLED_EXT, AttributeType::BOOLEAN),
            1
        );
        assert_eq!(run(&handle, &plan, set), (OK, sum()), "{}", last_error());
        let counted = calls(&able).unwrap();
        assert_eq!((counted.overrides, counted.first_override), (1, 1000 + 200 + 80 + 5));
        let rigid = common::plan(&finished_graph(&handle, &add_graph()));
        assert_eq!(run(&handle, &rigid, set).0, Status::NOT_SUPPORTED);
    }
    for plugin in [&unable, &old] {
        use_plugins(&[plugin]);
        let handle = OwnedHandle::new();
        let heuristic = heuristic(&finished_graph(&handle, &overriding));
        heuristic.finalize();
        assert_eq!(heuristic.count(AttributeName::ENGINEHEUR_RESULTS, AttributeType::BACKEND_DESCRIPTOR), 0);
    }
}

#[test]
fn knobs_are_told_and_chosen() {
    let _turn = turn();
    let directory = scratch("pipeline-knobs");
    let plugin = compile(&directory, "echo.so", &[]);
    use_plugins(&[&plugin]);
    let handle = OwnedHandle::new();
    let graph = finished_graph(&handle, &add_graph());
    let engine = Desc::new(DescriptorType::ENGINE_DESCRIPTOR);
    engine.set_desc(AttributeName::ENGINE_OPERATION_GRAPH, &graph);
    engine.set_int64s(AttributeName::ENGINE_GLOBAL_INDEX, &[engine_id("ECHO_ENGINE")]);
    engine.finalize();
    let mut notes = [0i32; 4];
    let (status, count) = engine.try_get(AttributeName::ENGINE_BEHAVIOR_NOTE, AttributeType::BEHAVIOR_NOTE, &mut notes);
    assert_eq!((status, count, &notes[..2]), (OK, 2, &[2, 3][..]));

    let knobs = engine.get_descs(AttributeName::ENGINE_KNOB_INFO);
    let ids: Vec<String> = knobs.iter().map(|knob| knob.get_text(AttributeName::KNOB_INFO_TYPE)).collect();
    assert_eq!(ids, ["echo.int", "echo.float", "echo.text"]);
    let [int, float, text] = &knobs[..] else { panic!("three knobs") };
    let kinds = [int, float, text]
        .map(|knob| knob.get::<i64>(AttributeName::KNOB_INFO_DEFAULT_VALUE_TYPE, AttributeType::INT64));
    assert_eq!(kinds, [3, 5, 19]);
    assert_eq!(int.get::<i64>(AttributeName::KNOB_INFO_DEFAULT_VALUE, AttributeType::INT64), 3);
    assert_eq!(int.get::<i64>(AttributeName::KNOB_INFO_MINIMUM_VALUE, AttributeType::INT64), 0);
    assert_eq!(int.get::<i64>(AttributeName::KNOB_INFO_MAXIMUM_VALUE, AttributeType::INT64), 8);
    assert_eq!(int.get::<i64>(AttributeName::KNOB_INFO_STRIDE, AttributeType::INT64), 2);
    assert_eq!(int.get_int64s(AttributeName::KNOB_INFO_VALID_VALUES_INT), [2, 4]);
    assert_eq!(int.get_text(AttributeName::KNOB_INFO_DESCRIPTION), "a number");
    assert_eq!(float.get::<f64>(AttributeName::KNOB_INFO_DEFAULT_VALUE, AttributeType::DOUBLE), 0.5);
    assert_eq!(float.get::<f64>(AttributeName::KNOB_INFO_MAXIMUM_VALUE, AttributeType::DOUBLE), 1.0);
    assert_eq!(float.get::<u8>(AttributeName::KNOB_INFO_DEPRECATED, AttributeType::BOOLEAN), 1);
    assert_eq!(float.try_get(AttributeName::KNOB_INFO_STRIDE, AttributeType::INT64, &mut [0i64]), (OK, 0));
    assert_eq!(text.get_text(AttributeName::KNOB_INFO_DEFAULT_VALUE), "a");
    assert_eq!(text.get::<i32>(AttributeName::KNOB_INFO_STRING_MAX_LENGTH, AttributeType::INT32), 9);
    let mut list = [0u8; 16];
    let (status, count) = text.try_get(AttributeName::KNOB_INFO_VALID_VALUES_STRING, AttributeType::CHAR, &mut list);
    assert_eq!((status, &list[..count as usize]), (OK, &b"a\0bc\0"[..]));
    let none = FlatbufferData { ptr: null(), size: 0 };
    let mut blobs = [none; 3];
    let kind = AttributeType::FLATBUFFER_DATA_STRUCT_EXT;
    assert_eq!(engine.try_get(AttributeName::KNOB_INFO_SERIALIZED_VALUE, kind, &mut blobs), (OK, 3));
    for (blob, knob) in blobs.iter().zip(&details().knobs) {
        // SAFETY: the engine's descriptor keeps as many bytes there.
        let bytes = unsafe { std::slice::from_raw_parts(blob.ptr.cast::<u8>(), blob.size) };
        assert_eq!(hipdnn_schemas::Knob::from_bytes(bytes).unwrap(), *knob);
    }
    let told = calls(&plugin).unwrap();
    assert_eq!((told.details_given, told.details_taken), (1, 1));

    let choose = |id: &str, set: &dyn Fn(&Desc)| {
        let choice = Desc::new(DescriptorType::KNOB_CHOICE_DESCRIPTOR);
        choice.set_text(AttributeName::KNOB_CHOICE_KNOB_TYPE, id);
        set(&choice);
        choice.finalize();
        choice
    };
    let choices = [
        choose("echo.int", &|choice| {
            choice.set_int64s(AttributeName::KNOB_CHOICE_KNOB_VALUE, &[4]);
        }),
        choose("echo.float", &|choice| {
            choice.set(AttributeName::KNOB_CHOICE_KNOB_VALUE, AttributeType::DOUBLE, &[0.25f64]);
        }),
        choose("echo.text", &|choice| {
            choice.set_text(AttributeName::KNOB_CHOICE_KNOB_VALUE, "bc");
        }),
    ];
    let config = Desc::new(DescriptorType::ENGINECFG_DESCRIPTOR);
    config.set_desc(AttributeName::ENGINECFG_ENGINE, &engine);
    let tokens = choices.each_ref().map(|choice| choice.0);
    config.set(AttributeName::ENGINECFG_KNOB_CHOICES, AttributeType::BACKEND_DESCRIPTOR, &tokens);
    config.finalize();
    let expected = hipdnn_schemas::EngineConfig {
        engine_id: engine_id("ECHO_ENGINE"),
        knobs: vec![
            ("echo.int".into(), hipdnn_schemas::KnobValue::Int(4)),
            ("echo.float".into(), hipdnn_schemas::KnobValue::Float(0.25)),
            ("echo.text".into(), hipdnn_schemas::KnobValue::String("bc".into())),
        ],
    };
    assert_eq!(calls(&plugin).unwrap().config_bytes, expected.to_bytes().len() as i64);
}

/// hipDNN's two ways to set knobs, as descriptors and as FlatBuffers, add to each other and to themselves.
#[test]
fn repeated_sets_of_knobs_append() {
    use hipdnn_schemas::{KnobValue, knob_setting_to_bytes};
    let _turn = turn();
    let directory = scratch("pipeline-append");
    let plugin = compile(&directory, "echo.so", &[]);
    use_plugins(&[&plugin]);
    let handle = OwnedHandle::new();
    let heuristic = heuristic(&finished_graph(&handle, &add_graph()));
    heuristic.finalize();
    let config = results(&heuristic).remove(0);

    let choice = Desc::new(DescriptorType::KNOB_CHOICE_DESCRIPTOR);
    choice.set_text(AttributeName::KNOB_CHOICE_KNOB_TYPE, "first");
    choice.set_int64s(AttributeName::KNOB_CHOICE_KNOB_VALUE, &[1]);
    choice.finalize();
    let unfinished = Desc::new(DescriptorType::KNOB_CHOICE_DESCRIPTOR);
    let descriptors = AttributeType::BACKEND_DESCRIPTOR;
    config.set(AttributeName::ENGINECFG_KNOB_CHOICES, descriptors, &[choice.0]);
    config.set(AttributeName::ENGINECFG_KNOB_CHOICES, descriptors, &[choice.0]);
    let status = config.try_set(AttributeName::ENGINECFG_KNOB_CHOICES, descriptors, &[choice.0, unfinished.0]);
    assert_eq!(status, Status::BAD_PARAM_NOT_FINALIZED, "and nothing of it is taken");
    let status = config.try_set(AttributeName::ENGINECFG_KNOB_CHOICES, descriptors, &[choice.0; 1025]);
    assert_eq!((status, last_error().contains("at most 1024")), (Status::BAD_PARAM, true));

    let values = [KnobValue::Float(0.5), KnobValue::String("text".into())];
    let [float, text] = values.each_ref().map(|value| knob_setting_to_bytes("serialized", value));
    let data = |bytes: &[u8]| FlatbufferData { ptr: bytes.as_ptr().cast(), size: bytes.len() };
    let (name, kind) = (AttributeName::KNOB_CHOICE_SERIALIZED_VALUE, AttributeType::FLATBUFFER_DATA_STRUCT_EXT);
    config.set(name, kind, &[data(&float), data(&text)]);
    // From an odd address too.
    let shifted: Vec<u8> = [&[0][..], &float].concat();
    config.set(name, kind, &[data(&shifted[1..])]);
    let null_data = FlatbufferData { ptr: null(), size: 8 };
    let empty = FlatbufferData { ptr: float.as_ptr().cast(), size: 0 };
    let noise = [0xffu8; 32];
    for (what, elements, kind, want) in [
        ("none", &[][..], kind, Status::BAD_PARAM),
        ("another type", &[data(&float)], AttributeType::VOID_PTR, Status::BAD_PARAM),
        ("null bytes", &[data(&float), null_data], kind, Status::BAD_PARAM_NULL_POINTER),
        ("no bytes", &[empty], kind, Status::BAD_PARAM),
        ("noise", &[data(&float), data(&noise)], kind, Status::BAD_PARAM),
    ] {
        assert_eq!(config.try_set(name, kind, elements), want, "{what}: {}", last_error());
    }
    // SAFETY: the array is null, which is refused.
    let status = unsafe { hipdnnBackendSetAttribute(config.0, name, kind, 1, null()) };
    assert_eq!(status, Status::BAD_PARAM_NULL_POINTER);

    config.finalize();
    assert_eq!(config.try_set(name, kind, &[data(&float)]), Status::NOT_INITIALIZED);
    let first = ("first".to_string(), KnobValue::Int(1));
    let [float, text] = values.map(|value| ("serialized".to_string(), value));
    assert_eq!(config_of(&plugin).knobs, [first.clone(), first, float.clone(), text, float]);
}

#[test]
fn plans_are_stored_where_the_plugin_can() {
    let _turn = turn();
    let directory = scratch("pipeline-store");
    let able = compile(&directory, "able.so", &["ECHO_SERIALIZE"]);
    let unable = compile(&directory, "unable.so", &[]);
    let sized = |call: &dyn Fn(usize, *mut usize, *mut u8) -> Status| {
        let mut size = 0;
        assert_eq!(call(0, &mut size, std::ptr::null_mut()), OK, "{}", last_error());
        let mut bytes = vec![0u8; size];
        assert_eq!(call(size - 1, &mut size, bytes.as_mut_ptr()), Status::BAD_PARAM_SIZE_INSUFFICIENT);
        assert_eq!(call(size, &mut size, bytes.as_mut_ptr()), OK);
        bytes
    };
    use_plugins(&[&able]);
    {
        let handle = OwnedHandle::new();
        let graph = finished_graph(&handle, &add_graph());
        let plan = plan(&graph);
        // SAFETY: the buffers are as large as we say.
        let stored = sized(&|room, size, bytes| unsafe {
            hipdnnBackendGetSerializedExecutionPlan_ext(plan.0, room, size, bytes)
        });
        // SAFETY: `sized` has a buffer of `room` bytes; graph and plan are alive.
        let both = sized(&|room, size, bytes| unsafe {
            hipdnnBackendGetSerializedBinaryGraphAndPlan_ext(graph.0, plan.0, room, size, bytes)
        });
        // SAFETY: `sized` has a buffer of `room` bytes; no plan is a value that may be passed.
        let alone = sized(&|room, size, bytes| unsafe {
            hipdnnBackendGetSerializedBinaryGraphAndPlan_ext(graph.0, std::ptr::null_mut(), room, size, bytes)
        });
        for (blob, want) in [(&stored, 1), (&both, 3), (&alone, 1), (&vec![0; 4], 1)] {
            let mut flags = 0;
            // SAFETY: there are as many bytes as we say.
            let status = unsafe { hipdnnBackendGetSerializedBinaryContents_ext(blob.as_ptr(), blob.len(), &mut flags) };
            assert_eq!((status, flags), (OK, want), "{}", last_error());
        }
        drop(plan);
        for blob in [&stored, &both] {
            let mut restored = std::ptr::null_mut();
            // SAFETY: the container has as many bytes as we say; a place for a descriptor.
            let status = unsafe {
                hipdnnBackendCreateAndDeserializeExecutionPlan_ext(handle.0, &mut restored, blob.as_ptr(), blob.len())
            };
            assert_eq!(status, OK, "{}", last_error());
            let restored = Desc(restored);
            assert_eq!(run(&handle, &restored, |_| ()), (OK, sum()), "{}", last_error());
            assert_eq!(restored.get_int64s(AttributeName::EXECUTION_PLAN_TENSOR_UIDS_EXT), [1, 2, 3]);
            let config = restored.try_get(
                AttributeName::EXECUTION_PLAN_ENGINE_CONFIG,
                AttributeType::BACKEND_DESCRIPTOR,
                &mut [0usize],
            );
            assert_eq!(config.0, Status::BAD_PARAM_NULL_POINTER);
        }
        let whole = SerializedExecutionPlan::from_bytes(&stored).unwrap();
        assert_eq!((whole.version, whole.tensor_alignments.as_slice()), (1, &[16, 16, 16][..]));
        type Change = fn(&mut SerializedExecutionPlan);
        let changed: [(&str, Change, Status, Status); 7] = [
            ("as it is", |_| (), OK, OK),
            ("wider alignment", |plan| plan.tensor_alignments[0] = 1 << 40, OK, Status::BAD_PARAM),
            ("no alignment", |plan| plan.tensor_alignments.clear(), OK, OK),
            ("no payload", |plan| plan.plugin_payload.clear(), Status::BAD_PARAM, OK),
            (
                "no tensors",
                |plan| (plan.tensor_uids, plan.tensor_alignments) = Default::default(),
                Status::BAD_PARAM,
                OK,
            ),
            ("negative workspace", |plan| plan.workspace_size = -1, Status::BAD_PARAM, OK),
            ("version 2", |plan| plan.version = 2, Status::NOT_SUPPORTED, OK),
        ];
        for (name, change, restores, runs) in changed {
            let mut plan = whole.clone();
            change(&mut plan);
            let blob = plan.to_bytes();
            let mut restored = std::ptr::null_mut();
            // SAFETY: the changed plan has as many bytes as we say; a place for a descriptor.
            let status = unsafe {
                hipdnnBackendCreateAndDeserializeExecutionPlan_ext(handle.0, &mut restored, blob.as_ptr(), blob.len())
            };
            assert_eq!(status, restores, "{name}: {}", last_error());
            if status == OK {
                assert_eq!(run(&handle, &Desc(restored), |_| ()).0, runs, "{name}: {}", last_error());
            }
        }
        for is_override_shape_enabled in [false, true] {
            let blob = SerializedExecutionPlan { is_override_shape_enabled, ..whole.clone() }.to_bytes();
            let mut restored = std::ptr::null_mut();
            // SAFETY: the serialized plan has as many bytes as we say; a place for a descriptor.
            let status = unsafe {
                hipdnnBackendCreateAndDeserializeExecutionPlan_ext(handle.0, &mut restored, blob.as_ptr(), blob.len())
            };
            assert_eq!(status, OK, "{}", last_error());
            let told: u8 =
                Desc(restored).get(AttributeName::EXECUTION_PLAN_IS_OVERRIDE_SHAPE_ENABLED_EXT, AttributeType::BOOLEAN);
            assert_eq!(told, u8::from(is_override_shape_enabled));
        }
        let mut none = std::ptr::null_mut();
        // SAFETY: the container without a plan has as many bytes as we say; a place for a descriptor.
        let status = unsafe {
            hipdnnBackendCreateAndDeserializeExecutionPlan_ext(handle.0, &mut none, alone.as_ptr(), alone.len())
        };
        assert_eq!(status, Status::BAD_PARAM, "a container without a plan");
        let mut graph_again = std::ptr::null_mut();
        // SAFETY: the container with both has as many bytes as we say; a place for a descriptor.
        let status = unsafe { hipdnnBackendCreateAndDeserializeGraph_ext(&mut graph_again, both.as_ptr(), both.len()) };
        assert_eq!(status, OK, "a container's graph: {}", last_error());
        drop(Desc(graph_again));
    }
    use_plugins(&[&unable]);
    let handle = OwnedHandle::new();
    let plan = plan(&finished_graph(&handle, &add_graph()));
    let mut size = 0;
    // SAFETY: only the size is asked for.
    let status = unsafe { hipdnnBackendGetSerializedExecutionPlan_ext(plan.0, 0, &mut size, std::ptr::null_mut()) };
    assert_eq!(status, Status::NOT_SUPPORTED);
    assert_eq!(last_error(), "plugin echo cannot serialize plans");
}

#[test]
fn many_threads_each_with_a_handle() {
    let _turn = turn();
    let directory = scratch("pipeline-threads");
    let plugin = compile(&directory, "echo.so", &[]);
    use_plugins(&[&plugin]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let handle = OwnedHandle::new();
                    let plan = plan(&finished_graph(&handle, &add_graph()));
                    for _ in 0..20 {
                        assert_eq!(run(&handle, &plan, |_| ()), (OK, sum()));
                    }
                }
            });
        }
    });
    let calls = calls(&plugin).unwrap();
    assert_eq!((calls.created, calls.destroyed), (80, 80));
}
