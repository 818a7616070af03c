use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicUsize};

use hipdnn_engine_core::payload::{Entry, Portrait};
use hipdnn_engine_core::{Applicable, Declined, Engine, Site, Workspace};
use hipdnn_engine_gpu::recording;
use hipdnn_schemas::{Convolution, DataType, EngineDetails, Graph, GraphBuilder, Pointwise, PointwiseMode, TensorDef};

use super::*;

const OK: PluginStatus = PluginStatus::SUCCESS;
const BAD: PluginStatus = PluginStatus::BAD_PARAM;

fn last() -> String {
    let mut text = null();
    // SAFETY: a place for a pointer; the text ends in NUL.
    unsafe {
        hipdnnPluginGetLastErrorString(&mut text);
        CStr::from_ptr(text).to_str().unwrap().to_string()
    }
}

fn host_id() -> i64 {
    engine_id(&hipdnn_engine_cpu::CPU_ENGINE)
}

fn data(bytes: &[u8]) -> ConstData {
    ConstData { ptr: bytes.as_ptr().cast(), size: bytes.len() }
}

fn config() -> Vec<u8> {
    EngineConfig { engine_id: host_id(), knobs: Vec::new() }.to_bytes()
}

/// x [1,2,3,3] of ones, w [2,2,2,2] of ones, bias (-6, -10), ReLU: 8 - 6 = 2 and 0.
fn conv_bias_relu() -> Vec<u8> {
    let mut graph = GraphBuilder::new("conv_bias_relu").compute(DataType::Float);
    let x = graph.tensor(TensorDef::new(0, DataType::Float, &[1, 2, 3, 3]));
    let w = graph.tensor(TensorDef::new(1, DataType::Float, &[2, 2, 2, 2]));
    let b = graph.tensor(TensorDef::new(2, DataType::Float, &[1, 2, 1, 1]));
    let c = graph.tensor(TensorDef::new(3, DataType::Float, &[1, 2, 2, 2]).intermediate());
    let s = graph.tensor(TensorDef::new(4, DataType::Float, &[1, 2, 2, 2]).intermediate());
    let y = graph.tensor(TensorDef::new(5, DataType::Float, &[1, 2, 2, 2]).named("y"));
    graph.convolution_fwd(x, w, c, Convolution::new(2));
    graph.pointwise(Pointwise::binary(PointwiseMode::Add, c, b, s));
    graph.pointwise(Pointwise::unary(PointwiseMode::ReluFwd, s, y));
    let def = graph.def().clone();
    graph.build().unwrap();
    def.to_bytes()
}

fn create() -> PluginHandlePtr {
    let mut handle = null_mut();
    // SAFETY: a place for a handle.
    assert_eq!(unsafe { hipdnnEnginePluginCreate(&mut handle) }, OK);
    assert!(!handle.is_null());
    handle
}

fn context(handle: PluginHandlePtr, graph: &[u8]) -> ExecutionContextPtr {
    let mut context = null_mut();
    let (config, graph) = (config(), data(graph));
    // SAFETY: buffers of these sizes, and a place for a context.
    let status = unsafe { hipdnnEnginePluginCreateExecutionContext(handle, &data(&config), &graph, &mut context) };
    assert_eq!(status, OK, "{}", last());
    context
}

#[test]
fn a_graph_goes_all_the_way() {
    let (handle, graph, config) = (create(), conv_bias_relu(), config());
    let (graph, config) = (data(&graph), data(&config));
    let mut ids = [0i64; 4];
    let mut count = 0;
    // SAFETY: buffers of the sizes given, and places for the results.
    unsafe {
        assert_eq!(
            hipdnnEnginePluginGetApplicableEngineIds(handle, &graph, ids.as_mut_ptr(), ids.len() as u32, &mut count),
            OK
        );
        // Beside a GPU it is not alone, and comes last.
        assert_eq!(ids[..count as usize].last(), Some(&host_id()));

        let mut details = ConstData { ptr: null(), size: 0 };
        assert_eq!(hipdnnEnginePluginGetEngineDetails(handle, host_id(), &graph, &mut details), OK);
        let bytes = std::slice::from_raw_parts(details.ptr.cast::<u8>(), details.size);
        let decoded = EngineDetails::from_bytes(bytes).unwrap();
        assert_eq!(decoded.engine_id, host_id());
        assert!(decoded.knobs.iter().any(|knob| knob.id == "hipdnn_rs.constants"));
        assert_eq!(hipdnnEnginePluginDestroyEngineDetails(handle, &mut details), OK);
        assert_eq!((details.ptr, details.size), (null(), 0));

        let mut context = null_mut();
        assert_eq!(hipdnnEnginePluginCreateExecutionContext(handle, &config, &graph, &mut context), OK);
        let (mut asked, mut built) = (1, 2);
        assert_eq!(hipdnnEnginePluginGetWorkspaceSize(handle, &config, &graph, &mut asked), OK);
        assert_eq!(hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext(handle, context, &mut built), OK);
        assert_eq!(asked, built);

        let (mut x, mut w, mut b) = ([1f32; 18], [1f32; 16], [-6f32, -10.0]);
        let mut y = [f32::NAN; 8];
        let mut workspace = vec![0u8; built];
        let entry = |uid, memory: *mut f32| DeviceBuffer { uid, ptr: memory.cast() };
        let mut pack = [
            entry(5, y.as_mut_ptr()),
            entry(0, x.as_mut_ptr()),
            entry(77, null_mut()),
            entry(2, b.as_mut_ptr()),
            entry(1, w.as_mut_ptr()),
        ];
        let workspace = workspace.as_mut_ptr().cast::<c_void>();
        assert_eq!(
            hipdnnEnginePluginExecuteOpGraph(handle, context, workspace, pack.as_ptr(), pack.len() as u32),
            OK,
            "{}",
            last()
        );
        assert_eq!(y, [2.0, 2.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0]);

        pack[0].ptr = null_mut();
        let status = hipdnnEnginePluginExecuteOpGraph(handle, context, workspace, pack.as_ptr(), pack.len() as u32);
        assert_eq!(status, PluginStatus::INVALID_VALUE);
        assert_eq!(last(), "tensor 5 \"y\": expected a buffer, got null");
        assert_eq!(hipdnnEnginePluginExecuteOpGraph(handle, context, workspace, null(), 3), BAD);
        assert_eq!(hipdnnEnginePluginExecuteOpGraph(handle, context, workspace, null(), 0), BAD);
        assert_eq!(
            hipdnnEnginePluginExecuteOpGraph(handle, context, workspace, pack.as_ptr(), 0),
            PluginStatus::INVALID_VALUE
        );
        if built > 0 {
            let status = hipdnnEnginePluginExecuteOpGraph(handle, context, null_mut(), pack.as_ptr(), 5);
            assert_eq!(status, PluginStatus::INVALID_VALUE);
            assert_eq!(last(), format!("workspace: expected {built} bytes, got null"));
        }

        // A plan works under any handle, and after the one it was made with.
        let other = create();
        pack[0].ptr = y.as_mut_ptr().cast();
        y.fill(0.0);
        assert_eq!(hipdnnEnginePluginDestroy(handle), OK);
        assert_eq!(hipdnnEnginePluginExecuteOpGraph(other, context, workspace, pack.as_ptr(), 5), OK);
        assert_eq!(y[0], 2.0);
        assert_eq!(hipdnnEnginePluginDestroyExecutionContext(other, context), OK);
        assert_eq!(hipdnnEnginePluginDestroy(other), OK);
    }
}

/// `x + b` of two rows, where every shape may be overridden.
fn overridable_sum() -> Vec<u8> {
    let mut graph = GraphBuilder::new("sum").compute(DataType::Float);
    let x = graph.tensor(TensorDef::new(0, DataType::Float, &[2, 4]));
    let b = graph.tensor(TensorDef::new(1, DataType::Float, &[1, 4]));
    let s = graph.tensor(TensorDef::new(2, DataType::Float, &[2, 4]).intermediate());
    let y = graph.tensor(TensorDef::new(3, DataType::Float, &[2, 4]));
    graph.pointwise(Pointwise::binary(PointwiseMode::Add, x, b, s));
    graph.pointwise(Pointwise::unary(PointwiseMode::ReluFwd, s, y));
    let mut def = graph.def().clone();
    graph.build().unwrap();
    def.is_override_shape_enabled = true;
    def.to_bytes()
}

/// Executes a sum of ones and these biases with shapes, given as uid, extents and strides; the result's bytes, which were
/// NaN before, as numbers.
fn overridden(
    handle: PluginHandlePtr,
    context: ExecutionContextPtr,
    shapes: &[(i64, [i64; 2], [i64; 2])],
) -> Result<[f32; 8], (PluginStatus, String)> {
    let (mut x, mut b, mut y) = ([1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [10f32, 20.0, 30.0, -40.0], [f32::NAN; 8]);
    let entry = |uid, memory: *mut f32| DeviceBuffer { uid, ptr: memory.cast() };
    let pack = [entry(0, x.as_mut_ptr()), entry(1, b.as_mut_ptr()), entry(3, y.as_mut_ptr())];
    let uids: Vec<i64> = shapes.iter().map(|shape| shape.0).collect();
    let lengths = vec![2u32; shapes.len()];
    let dims: Vec<*const i64> = shapes.iter().map(|shape| shape.1.as_ptr()).collect();
    let strides: Vec<*const i64> = shapes.iter().map(|shape| shape.2.as_ptr()).collect();
    let mut bytes = 0;
    // SAFETY: lists of these lengths, memory that every shape of the tests stays in, and a place for a number.
    let status = unsafe {
        assert_eq!(hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext(handle, context, &mut bytes), OK);
        let mut workspace = vec![0xffu8; bytes];
        hipdnnEnginePluginExecuteOpGraphWithOverrides(
            handle,
            context,
            workspace.as_mut_ptr().cast(),
            pack.as_ptr(),
            3,
            shapes.len() as u32,
            uids.as_ptr(),
            lengths.as_ptr(),
            dims.as_ptr(),
            strides.as_ptr(),
        )
    };
    if status == OK { Ok(y) } else { Err((status, last())) }
}

/// Executions have the shapes that they are given, in any order and any number of times, also with a plan that was stored.
#[test]
fn shapes_are_overridden() {
    let handle = create();
    let built = context(handle, &overridable_sum());
    let restored = restore(handle, &serialize(handle, built)).unwrap();
    let bits = |values: [f32; 8]| values.map(f32::to_bits);
    let none = f32::NAN;
    let whole = [11.0, 22.0, 33.0, 0.0, 15.0, 26.0, 37.0, 0.0];
    for context in [built, restored] {
        for _ in 0..2 {
            assert_eq!(bits(overridden(handle, context, &[]).unwrap()), bits(whole));
            // A row, of which intermediates follow.
            let row = [(0, [1, 4], [4, 1]), (3, [1, 4], [4, 1])];
            let want = [11.0, 22.0, 33.0, 0.0, none, none, none, none];
            assert_eq!(bits(overridden(handle, context, &row).unwrap()), bits(want));
            // Two columns of a larger tensor, packed in the result.
            let columns = [(0, [2, 2], [4, 1]), (1, [1, 2], [2, 1]), (3, [2, 2], [2, 1])];
            let want = [11.0, 22.0, 15.0, 26.0, none, none, none, none];
            assert_eq!(bits(overridden(handle, context, &columns).unwrap()), bits(want));
        }
        // More shapes than are kept.
        for first in 1..100 {
            let strided = [(0, [1, 4], [first, 1]), (3, [1, 4], [4, 1])];
            assert_eq!(overridden(handle, context, &strided).unwrap()[..3], whole[..3], "{first}");
        }
        assert_eq!(bits(overridden(handle, context, &[]).unwrap()), bits(whole));
    }
    for context in [built, restored] {
        assert_eq!(hipdnnEnginePluginDestroyExecutionContext(handle, context), OK);
    }
    assert_eq!(hipdnnEnginePluginDestroy(handle), OK);
}

#[test]
fn wrong_overrides_are_refused_with_their_reason() {
    let handle = create();
    let built = context(handle, &overridable_sum());
    type Case<'a> = (&'a [(i64, [i64; 2], [i64; 2])], &'a str);
    let cases: &[Case] = &[
        (&[(9, [1, 4], [4, 1])], "override shapes: tensor 9: the graph does not have it"),
        (&[(0, [3, 4], [4, 1])], "expected 1 to the declared extent 2 in dimension 0, got 3"),
        (&[(0, [0, 4], [4, 1])], "expected 1 to the declared extent 2 in dimension 0, got 0"),
        (&[(0, [1, 4], [4, -1])], "tensor 0: "),
        (&[(0, [1, 4], [4, 1]), (0, [1, 4], [4, 1])], "its shape is given twice"),
        (&[(3, [1, 4], [4, 1])], "in_0 (tensor 2): expected extents of 1 or those of out_0, [1, 4], got [2, 4]"),
    ];
    for (shapes, want) in cases {
        let (status, reason) = overridden(handle, built, shapes).expect_err(want);
        assert_eq!(status, PluginStatus::INVALID_VALUE, "{want}: {reason}");
        assert!(reason.contains(want), "expected {want:?}, got {reason:?}");
    }
    // While executions are recorded, plans that may be dropped must not take part.
    recording::begin();
    let (status, reason) =
        overridden(handle, built, &[(0, [1, 4], [4, 1]), (3, [1, 4], [4, 1])]).expect_err("recorded");
    recording::end();
    assert_eq!((status, reason.contains("are recorded")), (PluginStatus::NOT_APPLICABLE, true), "{reason}");

    let fixed = context(handle, &conv_bias_relu());
    let (status, reason) = overridden(handle, fixed, &[(0, [1, 4], [4, 1])]).expect_err("no overrides");
    assert_eq!(status, PluginStatus::INVALID_VALUE);
    assert!(reason.contains("expected a graph that allows override shapes"), "{reason}");

    let (uid, length, numbers, pack) = (0i64, 2u32, [1i64, 4], [DeviceBuffer { uid: 0, ptr: null_mut() }]);
    let rows = [numbers.as_ptr()];
    let nowhere = [null::<i64>()];
    type Lists = (*const i64, *const u32, *const *const i64, *const *const i64);
    let lists: [Lists; 6] = [
        (null(), &length, rows.as_ptr(), rows.as_ptr()),
        (&uid, null(), rows.as_ptr(), rows.as_ptr()),
        (&uid, &length, null(), rows.as_ptr()),
        (&uid, &length, rows.as_ptr(), null()),
        (&uid, &length, nowhere.as_ptr(), rows.as_ptr()),
        (&uid, &length, rows.as_ptr(), nowhere.as_ptr()),
    ];
    for (uids, lengths, shapes, strides) in lists {
        // SAFETY: lists of one entry, or null.
        let status = unsafe {
            hipdnnEnginePluginExecuteOpGraphWithOverrides(
                handle,
                built,
                null_mut(),
                pack.as_ptr(),
                1,
                1,
                uids,
                lengths,
                shapes,
                strides,
            )
        };
        assert_eq!(status, BAD, "{}", last());
    }
    for context in [built, fixed] {
        assert_eq!(hipdnnEnginePluginDestroyExecutionContext(handle, context), OK);
    }
    assert_eq!(hipdnnEnginePluginDestroy(handle), OK);
}

/// The numbers of element types are hipDNN's, whatever this project calls them: a plugin and the backend that loads it
/// come from different builds.
#[test]
fn element_types_16_to_18_are_boolean_and_the_two_fnuz() {
    let handle = create();
    let wire = |number| DataType::from_wire(number).unwrap();
    let run = |graph: GraphBuilder, pack: &[DeviceBuffer]| {
        let context = context(handle, &graph.def().to_bytes());
        // SAFETY: memory for every tensor of the graph; no graph here needs a workspace.
        unsafe {
            let status =
                hipdnnEnginePluginExecuteOpGraph(handle, context, null_mut(), pack.as_ptr(), pack.len() as u32);
            assert_eq!(status, OK, "{}", last());
            assert_eq!(hipdnnEnginePluginDestroyExecutionContext(handle, context), OK);
        }
    };
    // Eight, so that rows of vectors are taken too.
    let numbers = [1.5f32, -1.5, 2.0, 0.0, -0.25, 0.5, 1.0, -4.0];
    for (name, number, codes) in [
        // 1.5 is 0x44 where 1.0 is 0x40: a bias of 8 and three bits of fraction; with a bias of 16 and two it is 0x42.
        ("E4M3 FNUZ", 17, [0x44u8, 0xC4, 0x48, 0x00, 0xB0, 0x38, 0x40, 0xD0]),
        ("E5M2 FNUZ", 18, [0x42, 0xC2, 0x44, 0x00, 0xB8, 0x3C, 0x40, 0xC8]),
    ] {
        for to_codes in [true, false] {
            let (mut floats, mut bytes) = if to_codes { (numbers, [0xFFu8; 8]) } else { ([f32::NAN; 8], codes) };
            let mut graph = GraphBuilder::new(name).compute(DataType::Float);
            let float = graph.tensor(TensorDef::new(1, DataType::Float, &[2, 4]));
            let code = graph.tensor(TensorDef::new(2, wire(number), &[2, 4]));
            let (x, y) = if to_codes { (float, code) } else { (code, float) };
            graph.pointwise(Pointwise::unary(PointwiseMode::Identity, x, y));
            run(
                graph,
                &[
                    DeviceBuffer { uid: 1, ptr: floats.as_mut_ptr().cast() },
                    DeviceBuffer { uid: 2, ptr: bytes.as_mut_ptr().cast() },
                ],
            );
            assert_eq!((floats, bytes), (numbers, codes), "{name}, to codes: {to_codes}");
        }
    }
    let (mut a, mut b, mut y) = (numbers, [0.5f32; 8], [0xFFu8; 8]);
    let mut graph = GraphBuilder::new("boolean").compute(DataType::Float);
    let left = graph.tensor(TensorDef::new(1, DataType::Float, &[2, 4]));
    let right = graph.tensor(TensorDef::new(2, DataType::Float, &[2, 4]));
    let greater = graph.tensor(TensorDef::new(3, wire(16), &[2, 4]));
    graph.pointwise(Pointwise::binary(PointwiseMode::CmpGt, left, right, greater));
    run(
        graph,
        &[
            DeviceBuffer { uid: 1, ptr: a.as_mut_ptr().cast() },
            DeviceBuffer { uid: 2, ptr: b.as_mut_ptr().cast() },
            DeviceBuffer { uid: 3, ptr: y.as_mut_ptr().cast() },
        ],
    );
    assert_eq!(y, [1, 0, 1, 0, 0, 0, 1, 0]);
    assert_eq!(hipdnnEnginePluginDestroy(handle), OK);
}

#[test]
fn texts_are_given_and_null_is_refused() {
    type GetText = unsafe extern "C" fn(*mut *const c_char) -> PluginStatus;
    let cases: [(GetText, &str); 3] = [
        (hipdnnPluginGetName, "hipdnn_rs_plugin"),
        (hipdnnPluginGetVersion, env!("CARGO_PKG_VERSION")),
        (hipdnnPluginGetApiVersion, "1.4.0"),
    ];
    for (get, want) in cases {
        let mut text = null();
        // SAFETY: a place for a pointer, and null, which is refused.
        unsafe {
            assert_eq!(get(&mut text), OK);
            assert_eq!(CStr::from_ptr(text).to_str(), Ok(want));
            assert_eq!(get(null_mut()), BAD);
        }
        assert!(last().contains("got null"), "{}", last());
    }
    let mut name = null();
    let mut kind = PluginType::UNSPECIFIED;
    // SAFETY: places for the results, and null, which is refused or ignored.
    unsafe {
        assert_eq!(hipdnnPluginGetType(&mut kind), OK);
        assert_eq!(kind, PluginType::ENGINE);
        assert_eq!(hipdnnPluginGetType(null_mut()), BAD);
        hipdnnPluginGetLastErrorString(null_mut());
        assert_eq!(hipdnnPluginSetLoggingCallback(None), BAD);
        assert_eq!(hipdnnEnginePluginGetEngineName(host_id(), &mut name), OK);
        assert_eq!(CStr::from_ptr(name), c"HIPDNN_RS_CPU_ENGINE");
        assert_eq!(hipdnnEnginePluginGetEngineName(1, &mut name), PluginStatus::NOT_APPLICABLE);
        assert_eq!(hipdnnEnginePluginGetEngineName(host_id(), null_mut()), BAD);
    }
    assert_eq!(hipdnnPluginSetLogLevel(Severity(9)), PluginStatus::INVALID_VALUE);
}

#[test]
fn engine_ids_are_listed_as_asked() {
    let mut ids = [0i64; 3];
    let mut count = 9;
    // SAFETY: places for as many ids as said.
    unsafe {
        assert_eq!(hipdnnEnginePluginGetAllEngineIds(null_mut(), 0, &mut count), OK);
        assert_eq!(count as usize, registry::ENGINES.len());
        assert_eq!(hipdnnEnginePluginGetAllEngineIds(ids.as_mut_ptr(), count, &mut count), OK);
        assert_eq!(ids[..count as usize], registry::ids(registry::ENGINES));
        // With room for fewer, the number is still that of all.
        let mut few = [0i64; 2];
        assert_eq!(hipdnnEnginePluginGetAllEngineIds(few.as_mut_ptr(), 1, &mut count), OK);
        assert_eq!((count as usize, few), (registry::ENGINES.len(), [ids[0], 0]));
        assert_eq!(hipdnnEnginePluginGetAllEngineIds(null_mut(), 2, &mut count), BAD);
        assert_eq!(hipdnnEnginePluginGetAllEngineIds(ids.as_mut_ptr(), 1, null_mut()), BAD);
    }
}

#[test]
fn odd_graphs_have_no_engines_and_wrong_arguments_are_errors() {
    let handle = create();
    let mut tiny = GraphBuilder::new("tiny").compute(DataType::Fp8E4M3);
    let x = tiny.tensor(TensorDef::new(0, DataType::Fp8E4M3, &[4]));
    let y = tiny.tensor(TensorDef::new(1, DataType::Fp8E4M3, &[4]));
    tiny.pointwise(Pointwise::unary(PointwiseMode::Abs, x, y));
    let tiny = tiny.def().to_bytes();
    let truncated = &conv_bias_relu()[..40];
    for (what, bytes) in [("none", &[][..]), ("garbage", &[0xff; 64]), ("truncated", truncated), ("tiny", &tiny)] {
        let mut count = 9;
        let mut ids = [0; 1];
        // SAFETY: a buffer of that size, and places for the results.
        let status =
            unsafe { hipdnnEnginePluginGetApplicableEngineIds(handle, &data(bytes), ids.as_mut_ptr(), 1, &mut count) };
        assert_eq!((status, count), (OK, 0), "{what}");
        let mut details = ConstData { ptr: null(), size: 0 };
        // SAFETY: the bytes are as many as `data` says, and there is a place for the details.
        let status = unsafe { hipdnnEnginePluginGetEngineDetails(handle, host_id(), &data(bytes), &mut details) };
        let want = if what == "tiny" { PluginStatus::NOT_APPLICABLE } else { BAD };
        assert_eq!(status, want, "{what}: {}", last());
        let (mut context, config) = (null_mut(), config());
        // SAFETY: configuration and graph have as many bytes as `data` says, and there is a place for the context.
        let status =
            unsafe { hipdnnEnginePluginCreateExecutionContext(handle, &data(&config), &data(bytes), &mut context) };
        assert_eq!((status, context), (want, null_mut()), "{what}: {}", last());
    }
    let graph = conv_bias_relu();
    let graph = data(&graph);
    let nothing = ConstData { ptr: null(), size: 8 };
    let mut count = 0;
    let mut details = ConstData { ptr: null(), size: 0 };
    // SAFETY: null is refused, and so are engines of others.
    unsafe {
        assert_eq!(hipdnnEnginePluginGetApplicableEngineIds(handle, null(), null_mut(), 0, &mut count), BAD);
        assert_eq!(hipdnnEnginePluginGetApplicableEngineIds(handle, &nothing, null_mut(), 0, &mut count), BAD);
        assert_eq!(hipdnnEnginePluginGetApplicableEngineIds(handle, &graph, null_mut(), 1, &mut count), BAD);
        assert_eq!(hipdnnEnginePluginGetApplicableEngineIds(handle, &graph, null_mut(), 0, null_mut()), BAD);
        assert_eq!(hipdnnEnginePluginGetApplicableEngineIds(handle, &graph, null_mut(), 0, &mut count), OK);
        assert!(count >= 1, "{count}");
        assert_eq!(hipdnnEnginePluginGetEngineDetails(handle, 5, &graph, &mut details), BAD);
        assert_eq!(hipdnnEnginePluginGetEngineDetails(handle, host_id(), &graph, null_mut()), BAD);
        assert_eq!(hipdnnEnginePluginDestroyEngineDetails(handle, null_mut()), BAD);
        assert_eq!(hipdnnEnginePluginDestroyEngineDetails(handle, &mut details), BAD);
        assert_eq!(hipdnnEnginePluginCreate(null_mut()), BAD);
    }
    assert_eq!(hipdnnEnginePluginDestroy(handle), OK);
}

#[test]
fn stale_null_and_foreign_handles_are_refused_everywhere() {
    let graph = conv_bias_relu();
    let config = config();
    let live = create();
    let made = context(live, &graph);
    let stale = create();
    assert_eq!(hipdnnEnginePluginDestroy(stale), OK);
    let mut on_stack = 0u64;
    let (graph, config) = (data(&graph), data(&config));
    for (what, handle) in [
        ("null", null_mut()),
        ("destroyed", stale),
        ("a context", made.cast()),
        ("a real address", (&raw mut on_stack).cast()),
        ("garbage", std::ptr::without_provenance_mut(0xdead_beef_0123_4567)),
    ] {
        let mut details = ConstData { ptr: null(), size: 0 };
        let (mut count, mut size, mut context) = (0, 0, null_mut());
        // SAFETY: the other arguments are as they should be.
        let statuses = unsafe {
            [
                hipdnnEnginePluginDestroy(handle),
                hipdnnEnginePluginSetStream(handle, null_mut()),
                hipdnnEnginePluginGetApplicableEngineIds(handle, &graph, null_mut(), 0, &mut count),
                hipdnnEnginePluginGetEngineDetails(handle, host_id(), &graph, &mut details),
                hipdnnEnginePluginDestroyEngineDetails(handle, &mut details),
                hipdnnEnginePluginGetWorkspaceSize(handle, &config, &graph, &mut size),
                hipdnnEnginePluginCreateExecutionContext(handle, &config, &graph, &mut context),
                hipdnnEnginePluginDestroyExecutionContext(handle, made),
                hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext(handle, made, &mut size),
                hipdnnEnginePluginExecuteOpGraph(handle, made, null_mut(), null(), 0),
            ]
        };
        assert_eq!(statuses, [BAD; 10], "{what}");
        assert!(last().starts_with("expected a plugin handle, got "), "{what}: {}", last());
    }
    let destroyed = context(live, &conv_bias_relu());
    assert_eq!(hipdnnEnginePluginDestroyExecutionContext(live, destroyed), OK);
    for (what, context) in [("null", null_mut()), ("destroyed", destroyed), ("a handle", live.cast())] {
        let mut size = 0;
        // SAFETY: the other arguments are as they should be.
        let statuses = unsafe {
            [
                hipdnnEnginePluginDestroyExecutionContext(live, context),
                hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext(live, context, &mut size),
                hipdnnEnginePluginExecuteOpGraph(live, context, null_mut(), null(), 0),
            ]
        };
        assert_eq!(statuses, [BAD; 3], "{what}");
        assert!(last().starts_with("expected an execution context, got "), "{what}: {}", last());
    }
    assert_eq!(hipdnnEnginePluginDestroyExecutionContext(live, made), OK);
    assert_eq!(hipdnnEnginePluginDestroy(live), OK);
}

/// Stored plan of a context.
fn serialize(handle: PluginHandlePtr, context: ExecutionContextPtr) -> Vec<u8> {
    let mut out = ConstData { ptr: null(), size: 0 };
    // SAFETY: a place for the bytes, which are read before they are given back.
    unsafe {
        assert_eq!(hipdnnEnginePluginSerializeExecutionContext(handle, context, &mut out), OK, "{}", last());
        let bytes = std::slice::from_raw_parts(out.ptr.cast::<u8>(), out.size).to_vec();
        assert_eq!(hipdnnEnginePluginDestroySerializedExecutionContext(handle, &mut out), OK);
        assert_eq!((out.ptr, out.size), (null(), 0));
        bytes
    }
}

/// A context made of stored bytes, or the message.
fn restore(handle: PluginHandlePtr, bytes: &[u8]) -> Result<ExecutionContextPtr, String> {
    let untouched: ExecutionContextPtr = opaque(0x77);
    let mut context = untouched;
    // SAFETY: a buffer of that size, and a place for a context.
    let status = unsafe { hipdnnEnginePluginCreateExecutionContextFromSerialized(handle, &data(bytes), &mut context) };
    assert_eq!(status == OK, context != untouched, "a refused plan writes nothing");
    if status == OK { Ok(context) } else { Err(last()) }
}

/// The bits of y that a context of [`conv_bias_relu`] computes.
fn results(handle: PluginHandlePtr, context: ExecutionContextPtr) -> Vec<u32> {
    let mut size = 0;
    // SAFETY: a place for a number.
    assert_eq!(unsafe { hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext(handle, context, &mut size) }, OK);
    let mut x: Vec<f32> = (0..18).map(|i| (i as f32 * 0.37).sin()).collect();
    let mut w: Vec<f32> = (0..16).map(|i| (i as f32 * 0.91).cos()).collect();
    let (mut b, mut y, mut workspace) = ([0.3f32, -0.2], [f32::NAN; 8], vec![0u8; size]);
    let entry = |uid, memory: &mut [f32]| DeviceBuffer { uid, ptr: memory.as_mut_ptr().cast() };
    let pack = [entry(0, &mut x), entry(1, &mut w), entry(2, &mut b), entry(5, &mut y)];
    let workspace = workspace.as_mut_ptr().cast();
    // SAFETY: buffers of the graph's sizes, and a workspace of the context's.
    let status = unsafe { hipdnnEnginePluginExecuteOpGraph(handle, context, workspace, pack.as_ptr(), 4) };
    assert_eq!(status, OK, "{}", last());
    y.map(f32::to_bits).to_vec()
}

#[test]
fn stored_plans_come_back() {
    let handle = create();
    let first = context(handle, &conv_bias_relu());
    let bytes = serialize(handle, first);
    let wanted = results(handle, first);
    assert_eq!(hipdnnEnginePluginDestroyExecutionContext(handle, first), OK);
    // Wherever the bytes lie.
    let shifted = [&[0u8][..], &bytes].concat();
    for stored in [&bytes[..], &shifted[1..]] {
        let again = restore(handle, stored).expect("it was just stored");
        assert_eq!(results(handle, again), wanted);
        assert_eq!(serialize(handle, again), bytes, "a plan that was made again is stored as it was");
        assert_eq!(hipdnnEnginePluginDestroyExecutionContext(handle, again), OK);
    }
    assert_eq!(hipdnnEnginePluginDestroy(handle), OK);
}

#[test]
fn every_damage_to_a_stored_plan_is_refused() {
    let handle = create();
    let first = context(handle, &conv_bias_relu());
    let bytes = serialize(handle, first);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        for change in [0x01, 0x80, 0xff] {
            damaged[at] = bytes[at] ^ change;
            let error = restore(handle, &damaged).expect_err("damaged");
            assert!(error.contains("expected") && error.contains("got"), "byte {at} by {change:#x}: {error}");
        }
        let error = restore(handle, &bytes[..at]).expect_err("cut");
        assert!(error.contains("expected") && error.contains("got"), "cut at {at}: {error}");
    }
    let error = restore(handle, &[&bytes[..], b"x"].concat()).expect_err("longer");
    assert!(error.contains("expected a whole stored plan"), "{error}");
    assert_eq!(hipdnnEnginePluginDestroyExecutionContext(handle, first), OK);
    assert_eq!(hipdnnEnginePluginDestroy(handle), OK);
}

/// Payloads with the right checksum, so that their contents are what is refused.
#[test]
fn stored_plans_of_something_else_are_refused_with_their_reason() {
    type Change = fn(&mut Payload);
    let cases: [(&str, Change, &str); 8] = [
        ("another engine", |p| p.engine = "OTHER_ENGINE".into(), "got one of \"OTHER_ENGINE\""),
        ("another machine", |p| p.portrait.platform = "sparc vis".into(), "got one for \"sparc vis\""),
        ("no graph", |p| p.graph = vec![1, 2, 3], "the graph: "),
        ("an empty graph", |p| p.graph.clear(), "the graph: "),
        ("no configuration", |p| p.config = b"configuration".to_vec(), "the configuration: "),
        (
            "other knobs",
            |p| {
                let knobs = vec![("hipdnn_rs.cpu.threads".to_string(), hipdnn_schemas::KnobValue::Int(-1))];
                p.config = EngineConfig { engine_id: 0, knobs }.to_bytes();
            },
            "knob hipdnn_rs.cpu.threads",
        ),
        ("another plan", |p| p.portrait.description.push_str("\n  9: a step"), "as its graph is planned here"),
        (
            "the other engine's",
            |p| p.engine = hipdnn_engine_gpu::GPU_ENGINE.name().to_string_lossy().into_owned(),
            "expected",
        ),
    ];
    let handle = create();
    let first = context(handle, &conv_bias_relu());
    let payload = Payload::from_bytes(&serialize(handle, first)).unwrap();
    for (what, change, want) in cases {
        let mut changed = payload.clone();
        change(&mut changed);
        let Err(error) = restore(handle, &changed.to_bytes()) else { panic!("{what} is taken") };
        // Where there is no GPU, the other engine says that instead.
        let declined = error.contains("does not compute the stored plan's graph");
        assert!(error.starts_with("serialized_context: ") || error.starts_with("knob "), "{what}: {error}");
        assert!(error.contains(want) || (want == "expected" && declined), "{what}: {error}");
    }
    let mut more = payload;
    more.portrait.entries.push(Entry { kind: "x".into(), key: "y".into(), value: vec![] });
    let again = restore(handle, &more.to_bytes()).expect("entries that nothing asks for do no harm");
    assert_eq!(hipdnnEnginePluginDestroyExecutionContext(handle, again), OK);
    assert_eq!(hipdnnEnginePluginDestroyExecutionContext(handle, first), OK);
    assert_eq!(hipdnnEnginePluginDestroy(handle), OK);
}

/// Graphs and configurations that are damaged behind a right checksum are looked at like those of any host.
#[test]
fn forged_plans_are_made_or_refused_and_nothing_else() {
    let handle = create();
    let first = context(handle, &conv_bias_relu());
    let payload = Payload::from_bytes(&serialize(handle, first)).unwrap();
    type Part = fn(&mut Payload) -> &mut Vec<u8>;
    let parts: [Part; 2] = [|forged| &mut forged.graph, |forged| &mut forged.config];
    let mut made = 0;
    for part in parts {
        for at in 0..part(&mut payload.clone()).len() {
            for change in [0x01, 0x40, 0xff] {
                let mut forged = payload.clone();
                part(&mut forged)[at] ^= change;
                if let Ok(context) = restore(handle, &forged.to_bytes()) {
                    made += 1;
                    assert_eq!(hipdnnEnginePluginDestroyExecutionContext(handle, context), OK);
                }
            }
        }
    }
    assert!(made > 0, "names and padding don't matter");
    assert_eq!(hipdnnEnginePluginDestroyExecutionContext(handle, first), OK);
    assert_eq!(hipdnnEnginePluginDestroy(handle), OK);
}

#[test]
fn stored_plans_are_freed_once_and_by_their_handle() {
    let (handle, other) = (create(), create());
    let first = context(handle, &conv_bias_relu());
    let mut out = ConstData { ptr: null(), size: 0 };
    // SAFETY: places for the bytes and buffers of these sizes; a handle's own bytes are given back once.
    unsafe {
        assert_eq!(hipdnnEnginePluginSerializeExecutionContext(handle, first, null_mut()), BAD);
        assert_eq!(hipdnnEnginePluginSerializeExecutionContext(handle, null_mut(), &mut out), BAD);
        assert_eq!(hipdnnEnginePluginSerializeExecutionContext(null_mut(), first, &mut out), BAD);
        assert_eq!((out.ptr, out.size), (null(), 0));
        assert_eq!(hipdnnEnginePluginSerializeExecutionContext(handle, first, &mut out), OK);
        let mut copy = out;
        assert_eq!(hipdnnEnginePluginDestroySerializedExecutionContext(other, &mut copy), BAD);
        assert_eq!(hipdnnEnginePluginDestroyEngineDetails(handle, &mut copy), BAD, "they are no details");
        assert_eq!(hipdnnEnginePluginDestroySerializedExecutionContext(handle, null_mut()), BAD);
        assert_eq!(hipdnnEnginePluginDestroySerializedExecutionContext(handle, &mut out), OK);
        assert_eq!(hipdnnEnginePluginDestroySerializedExecutionContext(handle, &mut copy), BAD);
        let mut context = null_mut();
        let none = ConstData { ptr: null(), size: 8 };
        assert_eq!(hipdnnEnginePluginCreateExecutionContextFromSerialized(handle, null(), &mut context), BAD);
        assert_eq!(hipdnnEnginePluginCreateExecutionContextFromSerialized(handle, &none, &mut context), BAD);
        assert_eq!(hipdnnEnginePluginCreateExecutionContextFromSerialized(handle, &data(b"x"), null_mut()), BAD);
        // An earlier state of the ABI has the configuration before the plan.
        let config = config();
        assert_eq!(hipdnnEnginePluginCreateExecutionContextFromSerialized(handle, &data(&config), &mut context), BAD);
        assert!(last().contains("expected a plan that this plugin stored"), "{}", last());
        assert_eq!(context, null_mut());
    }
    assert_eq!(hipdnnEnginePluginDestroyExecutionContext(handle, first), OK);
    assert_eq!(hipdnnEnginePluginDestroy(handle), OK);
    assert_eq!(hipdnnEnginePluginDestroy(other), OK);
}

/// An engine with a defect: it panics where its name says.
struct Defective;

struct DefectivePlan;

impl Engine for Defective {
    fn name(&self) -> &'static CStr {
        c"DEFECTIVE_TEST_ENGINE"
    }

    fn attach(&self) -> Box<dyn Send + Sync> {
        Box::new(())
    }

    fn applicable(&self, graph: &Arc<Graph>, _site: Site) -> Result<Arc<dyn Applicable>, Declined> {
        if graph.name() == "applicable" { panic!("defect in applicable") } else { Ok(Arc::new(DefectivePlan)) }
    }

    fn restore(&self, _: &Payload, _: Site) -> Result<Box<dyn Plan>, Error> {
        panic!("defect in restore")
    }

    fn workspace(&self, bytes: usize, _: Site) -> Result<Box<dyn Workspace>, Error> {
        unreachable!("its plans need no workspace, and not {bytes} bytes")
    }
}

impl Applicable for DefectivePlan {
    fn details(&self) -> EngineDetails {
        panic!("defect in details")
    }

    fn settled(&self, config: &EngineConfig) -> Result<EngineConfig, Error> {
        Ok(config.clone())
    }

    fn workspace_bytes(&self, _: &EngineConfig) -> Result<usize, Error> {
        panic!("defect in workspace")
    }

    fn plan(&self, config: &EngineConfig) -> Result<Box<dyn Plan>, Error> {
        if config.knobs.is_empty() { Ok(Box::new(DefectivePlan)) } else { panic!("defect in plan") }
    }
}

impl Plan for DefectivePlan {
    fn workspace_bytes(&self) -> usize {
        0
    }

    fn portrait(&self) -> Result<Portrait, Error> {
        panic!("defect in portrait")
    }

    unsafe fn execute(&self, _: *mut c_void, _: *mut u8, _: &[DeviceBuffer]) -> Result<(), Error> {
        panic!("defect in execute")
    }
}

/// An engine that counts its answers, and what it lowers for them.
struct Counting;

static LOWERED: AtomicUsize = AtomicUsize::new(0);
static HOLDS: AtomicBool = AtomicBool::new(true);

struct Counted;

impl Engine for Counting {
    fn name(&self) -> &'static CStr {
        c"COUNTING_TEST_ENGINE"
    }

    fn attach(&self) -> Box<dyn Send + Sync> {
        Box::new(())
    }

    fn applicable(&self, graph: &Arc<Graph>, _: Site) -> Result<Arc<dyn Applicable>, Declined> {
        LOWERED.fetch_add(1, Ordering::Relaxed);
        if graph.name() == "declined" { Err(Declined::Unavailable("it says so".into())) } else { Ok(Arc::new(Counted)) }
    }

    fn restore(&self, _: &Payload, _: Site) -> Result<Box<dyn Plan>, Error> {
        unreachable!("nothing is stored")
    }

    fn workspace(&self, bytes: usize, _: Site) -> Result<Box<dyn Workspace>, Error> {
        unreachable!("its plans need no workspace, and not {bytes} bytes")
    }
}

impl Applicable for Counted {
    fn holds(&self, _: Site) -> bool {
        HOLDS.load(Ordering::Relaxed)
    }

    fn details(&self) -> EngineDetails {
        EngineDetails { engine_id: engine_id(&Counting), knobs: vec![], behavior_notes: vec![], name: None }
    }

    fn settled(&self, config: &EngineConfig) -> Result<EngineConfig, Error> {
        Ok(config.clone())
    }

    fn workspace_bytes(&self, _: &EngineConfig) -> Result<usize, Error> {
        Ok(0)
    }

    fn plan(&self, _: &EngineConfig) -> Result<Box<dyn Plan>, Error> {
        Ok(Box::new(DefectivePlan))
    }
}

/// However often a host asks, on one stream: a graph is lowered once.
#[test]
fn a_graph_is_lowered_once_a_handle() {
    let handle: PluginHandlePtr = opaque(HANDLES.insert(Handle::new(&[&Counting])).unwrap());
    let id = engine_id(&Counting);
    let config = EngineConfig { engine_id: id, knobs: Vec::new() }.to_bytes();
    let named = |name: &str| {
        let mut def = hipdnn_schemas::GraphDef::from_bytes(&conv_bias_relu()).unwrap();
        def.name = name.into();
        def.to_bytes()
    };
    // Number of times that the questions of a host up to a plan have the graph lowered.
    let ask = |graph: &[u8]| {
        let before = LOWERED.load(Ordering::Relaxed);
        let (mut ids, mut count, mut size, mut context) = ([0i64], 0, 0, null_mut());
        let mut details = ConstData { ptr: null(), size: 0 };
        let graph = data(graph);
        // SAFETY: buffers of these sizes, and places for the results.
        unsafe {
            let status = hipdnnEnginePluginGetApplicableEngineIds(handle, &graph, ids.as_mut_ptr(), 1, &mut count);
            assert_eq!((status, ids, count), (OK, [id], 1));
            assert_eq!(hipdnnEnginePluginGetEngineDetails(handle, id, &graph, &mut details), OK);
            assert_eq!(hipdnnEnginePluginDestroyEngineDetails(handle, &mut details), OK);
            assert_eq!(hipdnnEnginePluginGetWorkspaceSize(handle, &data(&config), &graph, &mut size), OK);
            assert_eq!(hipdnnEnginePluginCreateExecutionContext(handle, &data(&config), &graph, &mut context), OK);
            assert_eq!(hipdnnEnginePluginDestroyExecutionContext(handle, context), OK);
        }
        LOWERED.load(Ordering::Relaxed) - before
    };
    let graphs: Vec<Vec<u8>> = (0..5).map(|number| named(&format!("graph {number}"))).collect();
    assert_eq!(ask(&graphs[0]), 1, "four questions");
    assert_eq!(ask(&graphs[0].clone()), 0, "the same bytes elsewhere");
    assert_eq!(hipdnnEnginePluginSetStream(handle, std::ptr::without_provenance_mut(64)), OK);
    assert_eq!(ask(&graphs[0]), 1, "another stream may be of another device");
    HOLDS.store(false, Ordering::Relaxed);
    assert_eq!(ask(&graphs[0]), 4, "the engine would answer otherwise now");
    HOLDS.store(true, Ordering::Relaxed);
    assert_eq!(graphs[1..].iter().map(|graph| ask(graph)).sum::<usize>(), 4);
    assert_eq!((ask(&graphs[1]), ask(&graphs[0])), (0, 1), "the one that was not asked about for longest is forgotten");
    // A graph that is declined is asked about anew: the reason may be gone.
    let (declined, mut count) = (named("declined"), 0);
    for _ in 0..2 {
        let before = LOWERED.load(Ordering::Relaxed);
        // SAFETY: a place for the result.
        let status =
            unsafe { hipdnnEnginePluginGetApplicableEngineIds(handle, &data(&declined), null_mut(), 0, &mut count) };
        assert_eq!((status, count, LOWERED.load(Ordering::Relaxed) - before), (OK, 0, 1));
    }
    assert_eq!(hipdnnEnginePluginDestroy(handle), OK);
}

/// With room for fewer engines than there are, hosts still learn how many there are.
#[test]
fn more_applicable_engines_than_room_are_counted() {
    let handle: PluginHandlePtr = opaque(HANDLES.insert(Handle::new(&[&Defective, &Defective])).unwrap());
    let graph = conv_bias_relu();
    for (max, want) in [(1, [engine_id(&Defective), 0]), (2, [engine_id(&Defective); 2])] {
        let (mut ids, mut count) = ([0i64; 2], 0);
        // SAFETY: a buffer of that size, and places for the results.
        let status = unsafe {
            hipdnnEnginePluginGetApplicableEngineIds(handle, &data(&graph), ids.as_mut_ptr(), max, &mut count)
        };
        assert_eq!((status, count, ids), (OK, 2, want), "room for {max}");
    }
    assert_eq!(hipdnnEnginePluginDestroy(handle), OK);
}

#[test]
fn panics_of_an_engine_are_internal_errors_with_a_message() {
    let handle: PluginHandlePtr = opaque(HANDLES.insert(Handle::new(&[&Defective])).unwrap());
    let id = engine_id(&Defective);
    let mut def = hipdnn_schemas::GraphDef::from_bytes(&conv_bias_relu()).unwrap();
    let fine = def.to_bytes();
    def.name = "applicable".into();
    let bad = def.to_bytes();
    let plain = EngineConfig { engine_id: id, knobs: Vec::new() }.to_bytes();
    let knobs = vec![("x".to_string(), hipdnn_schemas::KnobValue::Int(1))];
    let with_knob = EngineConfig { engine_id: id, knobs }.to_bytes();
    let mut details = ConstData { ptr: null(), size: 0 };
    let (mut count, mut size, mut context) = (0, 0, null_mut());
    let check = |status: PluginStatus, place: &str| {
        assert_eq!(status, PluginStatus::INTERNAL_ERROR);
        assert_eq!(last(), format!("internal error: defect in {place}"));
    };
    // SAFETY: buffers of these sizes, and places for the results.
    unsafe {
        let status = hipdnnEnginePluginGetApplicableEngineIds(handle, &data(&bad), null_mut(), 0, &mut count);
        check(status, "applicable");
        check(hipdnnEnginePluginGetEngineDetails(handle, id, &data(&fine), &mut details), "details");
        check(hipdnnEnginePluginGetWorkspaceSize(handle, &data(&plain), &data(&fine), &mut size), "workspace");
        let status = hipdnnEnginePluginCreateExecutionContext(handle, &data(&with_knob), &data(&fine), &mut context);
        check(status, "plan");
        assert_eq!(context, null_mut());
        assert_eq!(hipdnnEnginePluginCreateExecutionContext(handle, &data(&plain), &data(&fine), &mut context), OK);
        let pack = DeviceBuffer { uid: 0, ptr: null_mut() };
        check(hipdnnEnginePluginExecuteOpGraph(handle, context, null_mut(), &pack, 1), "execute");
        check(hipdnnEnginePluginSerializeExecutionContext(handle, context, &mut details), "portrait");
        let engine = Defective.name().to_string_lossy().into_owned();
        let stored = Payload { engine, graph: vec![], config: vec![], portrait: Portrait::default() }.to_bytes();
        let status = hipdnnEnginePluginCreateExecutionContextFromSerialized(handle, &data(&stored), &mut context);
        check(status, "restore");
        assert_eq!(hipdnnEnginePluginDestroyExecutionContext(handle, context), OK);
    }
    assert_eq!(hipdnnEnginePluginDestroy(handle), OK);
}
