//! The engine plugin through its C ABI: what a host relies on, and numbers over types, layouts, ranks and fused chains.

use std::collections::HashMap;
use std::sync::Arc;

use hipdnn_rs_integration_tests::artifacts::{Artifact, library_path};
use hipdnn_rs_integration_tests::plugin::{Handle, Plugin, PluginError, const_data};
use hipdnn_rs_integration_tests::reference::{Exact, assert_close, convolve, roundoff};
use hipdnn_rs_integration_tests::tensor::{HostTensor, indices};
use hipdnn_schemas::{
    ConvMode, Convolution, DataType, EngineConfig, EngineDetails, GraphBuilder, KnobValue, Pointwise, PointwiseMode,
    TensorDef, TensorUid, TensorValue,
};
use hipdnn_sdk_bindings::hipdnn::plugin::{ConstData, PluginStatus, PluginType, Severity, engine_id};

const HOST: &str = "HIPDNN_RS_CPU_ENGINE";

fn plugin() -> Arc<Plugin> {
    static SETTING: std::sync::Once = std::sync::Once::new();
    SETTING.call_once(|| {
        // On a machine with a GPU the engine would leave graphs to others.
        // SAFETY: `Once` makes this the only writer; the plugin, the only reader, is opened below.
        unsafe { std::env::set_var("HIPDNN_RS_CPU_ENGINE", "on") };
    });
    Plugin::open(&library_path(Artifact::Plugin))
}

fn config(knobs: &[(&str, KnobValue)]) -> Vec<u8> {
    let knobs = knobs.iter().map(|(id, value)| ((*id).to_owned(), value.clone())).collect();
    EngineConfig { engine_id: engine_id(HOST), knobs }.to_bytes()
}

#[test]
fn the_plugin_introduces_itself() {
    let plugin = plugin();
    let functions = plugin.functions();
    assert!(!plugin.text(functions.get_name).expect("a name").is_empty());
    let version = plugin.text(functions.get_version).expect("a version");
    assert_eq!(version.split('.').count(), 3, "{version}");
    assert_eq!(plugin.text(functions.get_api_version).expect("an API version"), "1.4.0");
    let mut kind = PluginType::UNSPECIFIED;
    // SAFETY: `kind` is valid for the call.
    assert_eq!(unsafe { (functions.get_type)(&mut kind) }, PluginStatus::SUCCESS);
    assert_eq!(kind, PluginType::ENGINE);
    let ids = plugin.engine_ids().expect("engine ids");
    assert!(ids.contains(&engine_id(HOST)), "{ids:?}");
    for id in ids {
        let mut name = std::ptr::null();
        // SAFETY: `name` is valid for the call.
        assert_eq!(unsafe { (functions.get_engine_name)(id, &mut name) }, PluginStatus::SUCCESS);
        // SAFETY: engine names are static texts.
        let name = unsafe { std::ffi::CStr::from_ptr(name) }.to_str().expect("names are ASCII");
        assert_eq!(engine_id(name), id, "{name}: hosts drop an engine whose id is not the hash of its name");
    }
    let mut name = std::ptr::null();
    // SAFETY: `name` is valid for the call.
    assert_eq!(unsafe { (functions.get_engine_name)(4711, &mut name) }, PluginStatus::NOT_APPLICABLE);
}

fn null<T>() -> *mut T {
    std::ptr::null_mut()
}

#[test]
fn null_arguments_are_refused_with_a_message() {
    let plugin = plugin();
    let handle = plugin.handle().expect("a handle");
    let f = plugin.functions();
    let (graph, config) = (small_graph(), config(&[]));
    let (graph, config) = (const_data(&graph), const_data(&config));
    let nothing = ConstData { ptr: std::ptr::null(), size: 0 };
    let (mut count, mut id, mut size) = (0u32, 0i64, 0usize);
    let mut details = nothing;
    let mut context = std::ptr::null_mut();
    // SAFETY: every pointer below is null or valid for its call; null is what is being tested, and the ABI has the plugin check it.
    let answers = unsafe {
        [
            ("GetName", (f.get_name)(null())),
            ("GetVersion", (f.get_version)(null())),
            ("GetApiVersion", (f.get_api_version)(null())),
            ("GetType", (f.get_type)(null())),
            ("SetLoggingCallback", (f.set_logging_callback)(None)),
            ("GetAllEngineIds", (f.get_all_engine_ids)(null(), 0, null())),
            ("GetEngineName", (f.get_engine_name)(engine_id(HOST), null())),
            ("Create", (f.create)(null())),
            ("Destroy", (f.destroy)(null())),
            ("SetStream", (f.set_stream)(null(), null())),
            ("GetApplicable: handle", (f.get_applicable_engine_ids)(null(), &graph, &mut id, 1, &mut count)),
            ("GetApplicable: graph", (f.get_applicable_engine_ids)(handle.raw(), null(), &mut id, 1, &mut count)),
            ("GetApplicable: ids", (f.get_applicable_engine_ids)(handle.raw(), &graph, null(), 1, &mut count)),
            ("GetApplicable: count", (f.get_applicable_engine_ids)(handle.raw(), &graph, &mut id, 1, null())),
            ("GetDetails: handle", (f.get_engine_details)(null(), engine_id(HOST), &graph, &mut details)),
            ("GetDetails: graph", (f.get_engine_details)(handle.raw(), engine_id(HOST), null(), &mut details)),
            ("GetDetails: details", (f.get_engine_details)(handle.raw(), engine_id(HOST), &graph, null())),
            ("DestroyDetails: handle", (f.destroy_engine_details)(null(), &mut details)),
            ("DestroyDetails: details", (f.destroy_engine_details)(handle.raw(), null())),
            ("GetWorkspaceSize: handle", (f.get_workspace_size)(null(), &config, &graph, &mut size)),
            ("GetWorkspaceSize: config", (f.get_workspace_size)(handle.raw(), null(), &graph, &mut size)),
            ("GetWorkspaceSize: no config", (f.get_workspace_size)(handle.raw(), &nothing, &graph, &mut size)),
            ("GetWorkspaceSize: graph", (f.get_workspace_size)(handle.raw(), &config, null(), &mut size)),
            ("GetWorkspaceSize: size", (f.get_workspace_size)(handle.raw(), &config, &graph, null())),
            ("CreateContext: handle", (f.create_execution_context)(null(), &config, &graph, &mut context)),
            ("CreateContext: config", (f.create_execution_context)(handle.raw(), null(), &graph, &mut context)),
            ("CreateContext: graph", (f.create_execution_context)(handle.raw(), &config, null(), &mut context)),
            ("CreateContext: no graph", (f.create_execution_context)(handle.raw(), &config, &nothing, &mut context)),
            ("CreateContext: context", (f.create_execution_context)(handle.raw(), &config, &graph, null())),
            ("DestroyContext", (f.destroy_execution_context)(handle.raw(), null())),
            ("GetWorkspace…Context", (f.get_workspace_size_from_execution_context)(handle.raw(), null(), &mut size)),
            ("Execute: handle", (f.execute_op_graph)(null(), null(), null(), null(), 0)),
            ("Execute: context", (f.execute_op_graph)(handle.raw(), null(), null(), null(), 0)),
        ]
    };
    for (what, status) in answers {
        assert!(
            status == PluginStatus::BAD_PARAM || status == PluginStatus::INVALID_VALUE,
            "{what}: expected BAD_PARAM or INVALID_VALUE, got {status}"
        );
    }
    assert!(!plugin.last_error().is_empty());
    plugin.ask_last_error_with_null();
}

#[test]
fn the_last_error_belongs_to_its_thread() {
    let plugin = plugin();
    // SAFETY: null is what is being tested.
    assert_eq!(unsafe { (plugin.functions().create)(std::ptr::null_mut()) }, PluginStatus::BAD_PARAM);
    let mine = plugin.last_error();
    assert!(!mine.is_empty());
    let other = std::thread::scope(|scope| scope.spawn(|| plugin.last_error()).join().expect("the thread ends"));
    assert_eq!(other, "", "another thread sees no error");
    assert_eq!(plugin.last_error(), mine);
}

#[test]
fn graphs_that_no_engine_takes_are_declined_not_refused() {
    let plugin = plugin();
    let handle = plugin.handle().expect("a handle");
    let good = small_graph();
    let mut declined: Vec<(&str, Vec<u8>)> = vec![
        ("no bytes to speak of", vec![0; 8]),
        ("text", b"this is no graph at all".to_vec()),
        ("half of a graph", good[..good.len() / 2].to_vec()),
        ("a graph without nodes", GraphBuilder::new("empty").def().to_bytes()),
    ];
    let mut double = GraphBuilder::new("double").compute(DataType::Double);
    let x = double.tensor(TensorDef::new(1, DataType::Double, &[1, 1, 4, 4]));
    let w = double.tensor(TensorDef::new(2, DataType::Double, &[1, 1, 1, 1]));
    let y = double.tensor(TensorDef::new(3, DataType::Double, &[1, 1, 4, 4]));
    double.convolution_fwd(x, w, y, Convolution::new(2));
    declined.push(("double precision", double.def().to_bytes()));
    let mut wrong = GraphBuilder::new("wrong").compute(DataType::Float);
    let x = wrong.tensor(TensorDef::new(1, DataType::Float, &[1, 3, 4, 4]));
    let w = wrong.tensor(TensorDef::new(2, DataType::Float, &[2, 3, 3, 3]));
    let y = wrong.tensor(TensorDef::new(3, DataType::Float, &[1, 2, 4, 4]));
    wrong.convolution_fwd(x, w, y, Convolution::new(2));
    declined.push(("an output that is too large", wrong.def().to_bytes()));
    for (what, bytes) in declined {
        assert_eq!(handle.applicable(&bytes), Ok(vec![]), "{what}");
        let plan = handle.plan(&config(&[]), &bytes);
        let error = plan.err().unwrap_or_else(|| panic!("{what}: a plan was built"));
        assert!(!error.message.is_empty(), "{what}: {}", error.status);
    }
    assert_eq!(handle.applicable(&good), Ok(vec![engine_id(HOST)]));
}

#[test]
fn details_name_the_engine_and_its_knobs() {
    let plugin = plugin();
    let handle = plugin.handle().expect("a handle");
    let graph = small_graph();
    let details =
        EngineDetails::from_bytes(&handle.details(engine_id(HOST), &graph).expect("details")).expect("a valid buffer");
    assert_eq!(details.engine_id, engine_id(HOST));
    let knobs: HashMap<_, _> = details.knobs.iter().map(|knob| (knob.id.as_str(), &knob.default)).collect();
    for (id, default) in [("hipdnn_rs.cpu.threads", KnobValue::Int(0)), ("hipdnn_rs.cpu.winograd", KnobValue::Int(1))] {
        assert_eq!(knobs.get(id), Some(&&default), "{id}");
    }
    assert!(handle.details(4711, &graph).is_err(), "an unknown engine has no details");
    let unknown = EngineConfig { engine_id: 4711, knobs: Vec::new() }.to_bytes();
    assert!(handle.plan(&unknown, &graph).is_err(), "an unknown engine builds no plan");
}

#[test]
fn knobs_are_checked() {
    let plugin = plugin();
    let handle = plugin.handle().expect("a handle");
    let graph = small_graph();
    let cases: [(&str, KnobValue, bool); 8] = [
        ("hipdnn_rs.cpu.threads", KnobValue::Int(2), true),
        ("hipdnn_rs.cpu.threads", KnobValue::Int(-1), false),
        ("hipdnn_rs.cpu.threads", KnobValue::String("two".to_owned()), false),
        ("hipdnn_rs.cpu.winograd", KnobValue::Int(0), true),
        ("hipdnn_rs.cpu.winograd", KnobValue::Float(0.5), false),
        ("global.deterministic", KnobValue::Int(1), true),
        ("someone.else.s", KnobValue::Int(1), true),
        ("hipdnn_rs.constants", KnobValue::String("no equals sign".to_owned()), false),
    ];
    for (id, value, accepted) in cases {
        let outcome = handle.plan(&config(&[(id, value.clone())]), &graph);
        match (outcome, accepted) {
            (Ok(_), true) => {}
            (Err(PluginError { message, .. }), false) => assert!(message.contains(id), "{id}={value:?}: {message}"),
            (Ok(_), false) => panic!("{id}={value:?} was taken"),
            (Err(error), true) => panic!("{id}={value:?} was refused: {error:?}"),
        }
    }
}

#[test]
fn handles_and_threads_are_independent() {
    let plugin = plugin();
    let case = &conv_cases()[2];
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let handle = plugin.handle().expect("a handle");
                for _ in 0..5 {
                    run_conv(&handle, case, DataType::Float, Layout::Packed, &[]);
                }
            });
        }
    });
}

#[test]
fn one_plan_runs_under_another_handle() {
    let plugin = plugin();
    let first = plugin.handle().expect("a handle");
    let second = plugin.handle().expect("a handle");
    let graph = small_graph();
    let plan = first.plan(&config(&[]), &graph).expect("a plan");
    let mut tensors = small_tensors();
    let buffers: Vec<_> = tensors.iter_mut().map(HostTensor::buffer).collect();
    let mut workspace = hipdnn_rs_integration_tests::tensor::AlignedBytes::filled(plan.workspace_bytes().max(1), 0);
    // SAFETY: both handles and the context are live; the buffers are those of the graph's tensors.
    let status = unsafe {
        let function = plugin.functions().execute_op_graph;
        function(second.raw(), plan.raw(), workspace.as_mut_ptr().cast(), buffers.as_ptr(), buffers.len() as u32)
    };
    assert_eq!(status, PluginStatus::SUCCESS, "{}", plugin.last_error());
}

#[test]
fn missing_buffers_and_workspace_are_errors() {
    let plugin = plugin();
    let handle = plugin.handle().expect("a handle");
    let plan = handle.plan(&config(&[]), &small_graph()).expect("a plan");
    let mut tensors = small_tensors();
    let all: Vec<_> = tensors.iter_mut().map(HostTensor::buffer).collect();
    for left_out in 0..all.len() {
        let mut some = all.clone();
        let missing = some.remove(left_out);
        // SAFETY: the buffers are those of the graph's tensors, without one.
        let error = unsafe { plan.execute(&some) }.expect_err("a buffer is missing");
        assert!(error.message.contains(&missing.uid.to_string()), "{error:?} names uid {}", missing.uid);
        let mut nulled = all.clone();
        nulled[left_out].ptr = std::ptr::null_mut();
        // SAFETY: the buffers are right but for a null in one entry, which the ABI has the plugin check.
        assert!(unsafe { plan.execute(&nulled) }.is_err(), "uid {} is null", missing.uid);
    }
    if plan.workspace_bytes() > 0 {
        // SAFETY: the buffers are right; the workspace is missing, which the ABI has the plugin check.
        let status = unsafe {
            let function = plugin.functions().execute_op_graph;
            function(handle.raw(), plan.raw(), std::ptr::null_mut(), all.as_ptr(), all.len() as u32)
        };
        assert_ne!(status, PluginStatus::SUCCESS, "a plan that needs a workspace ran without");
    }
    // SAFETY: the buffers are those of the graph's tensors.
    unsafe { plan.execute(&all) }.expect("all buffers are there");
}

#[test]
fn log_lines_arrive_by_level() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static LINES: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn count(_: Severity, message: *const std::ffi::c_char) {
        assert!(!message.is_null());
        LINES.fetch_add(1, Ordering::Relaxed);
    }
    let plugin = plugin();
    let f = plugin.functions();
    // SAFETY: the callback is a function of this process.
    assert_eq!(unsafe { (f.set_logging_callback)(Some(count)) }, PluginStatus::SUCCESS);
    for (level, wanted) in [(Severity::INFO, true), (Severity::OFF, false)] {
        // SAFETY: the function takes a number.
        assert_eq!(unsafe { (f.set_log_level)(level) }, PluginStatus::SUCCESS);
        let before = LINES.load(Ordering::Relaxed);
        let handle = plugin.handle().expect("a handle");
        // A declined graph is told of at level info.
        assert_eq!(handle.applicable(&GraphBuilder::new("empty").def().to_bytes()), Ok(vec![]));
        assert_eq!(LINES.load(Ordering::Relaxed) > before, wanted, "{level}");
    }
    // SAFETY: the function takes a number.
    assert_ne!(unsafe { (f.set_log_level)(Severity(17)) }, PluginStatus::SUCCESS, "there is no level 17");
}

fn small_graph() -> Vec<u8> {
    let mut graph = GraphBuilder::new("small").compute(DataType::Float);
    let [x, w, y] = small_defs().map(|def| graph.tensor(def));
    graph.convolution_fwd(x, w, y, Convolution::new(2));
    graph.def().to_bytes()
}

fn small_defs() -> [TensorDef; 3] {
    [(1, [1, 3, 8, 8]), (2, [4, 3, 3, 3]), (3, [1, 4, 6, 6])]
        .map(|(uid, dims)| TensorDef::new(uid, DataType::Float, &dims))
}

fn small_tensors() -> Vec<HostTensor> {
    small_defs().iter().map(|def| HostTensor::random(def, def.uid.0.unsigned_abs())).collect()
}

/// Order of a tensor's elements in memory.
#[derive(Clone, Copy, Debug)]
enum Layout {
    /// Row major: NCHW and its kin.
    Packed,
    /// NHWC and its kin.
    ChannelsLast,
    /// Row major with a gap after every row, as a view into a larger tensor has.
    View,
}

impl Layout {
    const ALL: [Layout; 3] = [Layout::Packed, Layout::ChannelsLast, Layout::View];

    fn apply(self, def: TensorDef) -> TensorDef {
        match self {
            Layout::Packed => def,
            Layout::ChannelsLast => def.channels_last(),
            Layout::View => {
                let mut strides = def.strides.clone();
                let mut step = 1;
                for (axis, stride) in strides.iter_mut().enumerate().rev() {
                    *stride = step;
                    step *= def.dims[axis] + 1;
                }
                def.strided(&strides)
            }
        }
    }
}

struct ConvCase {
    name: &'static str,
    x: Vec<i64>,
    w: Vec<i64>,
    convolution: Convolution,
}

impl ConvCase {
    fn y(&self) -> Vec<i64> {
        let mut dims = vec![self.x[0], self.w[0]];
        for axis in 0..self.x.len() - 2 {
            let extent = self.convolution.output_extent(axis, self.x[2 + axis], self.w[2 + axis]);
            dims.push(extent.expect("the window fits"));
        }
        dims
    }
}

fn case(
    name: &'static str,
    (x, w): (&[i64], &[i64]),
    (pre, post): (&[i64], &[i64]),
    (stride, dilation): (&[i64], &[i64]),
    mode: ConvMode,
) -> ConvCase {
    let convolution = Convolution {
        pre_padding: pre.to_vec(),
        post_padding: post.to_vec(),
        stride: stride.to_vec(),
        dilation: dilation.to_vec(),
        mode,
    };
    ConvCase { name, x: x.to_vec(), w: w.to_vec(), convolution }
}

fn conv_cases() -> Vec<ConvCase> {
    use ConvMode::{Convolution as Flip, CrossCorrelation as Cross};
    vec![
        case("rank 3", (&[2, 3, 17], &[5, 3, 3]), (&[1], &[2]), (&[1], &[1]), Cross),
        case("rank 3, strided, dilated, flipped", (&[1, 4, 29], &[6, 4, 4]), (&[3], &[0]), (&[2], &[3]), Flip),
        case("rank 4, 3x3", (&[2, 9, 13, 15], &[11, 9, 3, 3]), (&[1, 1], &[1, 1]), (&[1, 1], &[1, 1]), Cross),
        case("rank 4, 3x3 flipped", (&[1, 5, 9, 10], &[7, 5, 3, 3]), (&[1, 1], &[1, 1]), (&[1, 1], &[1, 1]), Flip),
        case("rank 4, 1x1", (&[2, 19, 7, 9], &[35, 19, 1, 1]), (&[0, 0], &[0, 0]), (&[1, 1], &[1, 1]), Cross),
        case("rank 4, 1x1 stride 2", (&[1, 16, 9, 9], &[18, 16, 1, 1]), (&[0, 0], &[0, 0]), (&[2, 2], &[1, 1]), Cross),
        case("rank 4, 7x7 stem", (&[1, 3, 30, 31], &[16, 3, 7, 7]), (&[3, 3], &[3, 3]), (&[2, 2], &[1, 1]), Cross),
        case("rank 4, asymmetric", (&[1, 4, 12, 10], &[5, 4, 3, 2]), (&[0, 3], &[2, 0]), (&[2, 1], &[1, 2]), Cross),
        case("rank 4, padding only", (&[1, 2, 3, 3], &[3, 2, 2, 2]), (&[4, 4], &[4, 4]), (&[1, 1], &[1, 1]), Cross),
        case("rank 4, depthwise", (&[2, 21, 11, 12], &[21, 1, 3, 3]), (&[1, 1], &[1, 1]), (&[1, 1], &[1, 1]), Cross),
        case(
            "rank 4, depthwise stride 2",
            (&[1, 16, 15, 14], &[16, 1, 5, 5]),
            (&[2, 2], &[2, 2]),
            (&[2, 2], &[1, 1]),
            Cross,
        ),
        case(
            "rank 4, channel multiplier",
            (&[1, 6, 9, 9], &[18, 1, 3, 3]),
            (&[0, 0], &[0, 0]),
            (&[1, 1], &[1, 1]),
            Flip,
        ),
        case("rank 4, four groups", (&[1, 12, 10, 11], &[20, 3, 3, 3]), (&[1, 0], &[0, 1]), (&[1, 1], &[1, 1]), Cross),
        case("rank 4, whole image", (&[2, 8, 6, 7], &[4, 8, 6, 7]), (&[0, 0], &[0, 0]), (&[1, 1], &[1, 1]), Cross),
        case("rank 5", (&[1, 3, 5, 6, 7], &[4, 3, 3, 2, 3]), (&[1, 0, 1], &[1, 1, 0]), (&[1, 2, 1], &[1, 1, 2]), Cross),
        case(
            "rank 5, grouped, flipped",
            (&[2, 4, 4, 5, 6], &[6, 2, 2, 3, 1]),
            (&[0, 1, 0], &[1, 1, 0]),
            (&[2, 1, 1], &[1, 1, 1]),
            Flip,
        ),
    ]
}

/// Runs one convolution and compares every element; gaps and surroundings of the output must stay as they were.
fn run_conv(handle: &Handle, case: &ConvCase, data_type: DataType, layout: Layout, knobs: &[(&str, KnobValue)]) {
    let what = format!("{}, {data_type}, {layout:?}, {knobs:?}", case.name);
    let mut graph = GraphBuilder::new(case.name).compute(DataType::Float);
    let defs = [(10, &case.x), (-3, &case.w), (0, &case.y())]
        .map(|(uid, dims)| layout.apply(TensorDef::new(uid, data_type, dims)));
    let [x, w, y] = defs.clone().map(|def| graph.tensor(def));
    graph.convolution_fwd(x, w, y, case.convolution.clone());
    let bytes = graph.def().to_bytes();
    assert_eq!(handle.applicable(&bytes), Ok(vec![engine_id(HOST)]), "{what}");
    let config = config(knobs);
    let bound = handle.workspace_size(&config, &bytes).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    let plan = handle.plan(&config, &bytes).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    assert!(
        plan.workspace_bytes() <= bound,
        "{what}: {} bytes of workspace, {bound} announced",
        plan.workspace_bytes()
    );

    let (mut x, mut w, mut y) =
        (HostTensor::random(&defs[0], 1), HostTensor::random(&defs[1], 2), HostTensor::blank(&defs[2]));
    let wanted = convolve(&x, &w, &case.y(), &case.convolution, if knobs.is_empty() { 16.0 } else { 1.0 });
    let mut first = Vec::new();
    for round in 0..2 {
        // SAFETY: each buffer has memory for all elements of its tensor.
        unsafe { plan.execute(&[y.buffer(), w.buffer(), x.buffer()]) }
            .unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert_close(&what, &y, &wanted);
        if round == 0 {
            first = y.bytes().to_vec();
        }
    }
    assert_eq!(first, y.bytes(), "{what}: the second execution gives other bits");
    for tensor in [&x, &w, &y] {
        tensor.assert_untouched_outside(&what);
    }
}

#[test]
fn convolutions_of_every_rank_type_and_layout_are_right() {
    let plugin = plugin();
    let handle = plugin.handle().expect("a handle");
    for case in conv_cases() {
        for data_type in [DataType::Float, DataType::Half, DataType::BFloat16] {
            for layout in Layout::ALL {
                run_conv(&handle, &case, data_type, layout, &[]);
            }
        }
        // Without Winograd, and on one thread, the plain error bound holds for every case.
        let strict = [("hipdnn_rs.cpu.winograd", KnobValue::Int(0)), ("hipdnn_rs.cpu.threads", KnobValue::Int(1))];
        run_conv(&handle, &case, DataType::Float, Layout::Packed, &strict);
    }
}

#[test]
fn constant_weights_give_the_same_as_weights_read_at_every_execution() {
    let plugin = plugin();
    let handle = plugin.handle().expect("a handle");
    for case in conv_cases() {
        let knob =
            [("hipdnn_rs.constants", KnobValue::String(format!("-3=abi-{}", case.name.replace([' ', ','], "_"))))];
        run_conv(&handle, &case, DataType::Float, Layout::Packed, &[]);
        let defs = [(10, &case.x), (-3, &case.w), (0, &case.y())]
            .map(|(uid, dims)| TensorDef::new(uid, DataType::Float, dims));
        let mut graph = GraphBuilder::new(case.name).compute(DataType::Float);
        let [x, w, y] = defs.clone().map(|def| graph.tensor(def));
        graph.convolution_fwd(x, w, y, case.convolution.clone());
        let plan = handle
            .plan(&config(&knob), &graph.def().to_bytes())
            .unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
        let (mut x, mut w, mut y) =
            (HostTensor::random(&defs[0], 5), HostTensor::random(&defs[1], 6), HostTensor::blank(&defs[2]));
        let wanted = convolve(&x, &w, &case.y(), &case.convolution, 16.0);
        for _ in 0..2 {
            // SAFETY: each buffer has memory for all elements of its tensor.
            unsafe { plan.execute(&[y.buffer(), w.buffer(), x.buffer()]) }.expect("the plan executes");
            assert_close(case.name, &y, &wanted);
        }
    }
}

/// A pointwise step after a convolution, as a graph node and in double precision.
struct Step {
    mode: PointwiseMode,
    /// The second operand, if the step has one.
    with: Option<Operand>,
    adjust: fn(&mut Pointwise),
    exact: fn(f64, f64) -> f64,
    /// By how much the step can enlarge an error of its operands.
    slope: f64,
}

#[derive(Clone, Copy)]
enum Operand {
    /// One value a channel: [1, K, 1, 1].
    Bias,
    /// A tensor as large as the output.
    Residual,
    /// One number, fixed in the graph.
    Scalar(f32),
}

fn step(mode: PointwiseMode, with: Option<Operand>, exact: fn(f64, f64) -> f64, slope: f64) -> Step {
    Step { mode, with, adjust: |_| {}, exact, slope }
}

fn relu(adjust: fn(&mut Pointwise), exact: fn(f64, f64) -> f64) -> Step {
    Step { mode: PointwiseMode::ReluFwd, with: None, adjust, exact, slope: 1.0 }
}

fn bias() -> Step {
    step(PointwiseMode::Add, Some(Operand::Bias), |a, b| a + b, 1.0)
}

fn residual() -> Step {
    step(PointwiseMode::Add, Some(Operand::Residual), |a, b| a + b, 1.0)
}

fn chains() -> Vec<(&'static str, Vec<Step>)> {
    use PointwiseMode as Mode;
    let plain_relu = || relu(|_| {}, |a, _| a.max(0.0));
    vec![
        ("bias", vec![bias()]),
        ("bias, relu", vec![bias(), plain_relu()]),
        ("relu without bias", vec![plain_relu()]),
        ("bias, residual, relu", vec![bias(), residual(), plain_relu()]),
        ("bias, relu, residual", vec![bias(), plain_relu(), residual()]),
        (
            "bias, relu clipped at both ends",
            vec![
                bias(),
                relu(
                    |p| (p.relu_lower_clip, p.relu_upper_clip) = (Some(-0.25), Some(0.75)),
                    |a, _| a.clamp(-0.25, 0.75),
                ),
            ],
        ),
        (
            "bias, leaky relu",
            vec![bias(), relu(|p| p.relu_lower_clip_slope = Some(0.125), |a, _| if a > 0.0 { a } else { 0.125 * a })],
        ),
        ("bias, sigmoid", vec![bias(), step(Mode::SigmoidFwd, None, |a, _| 1.0 / (1.0 + (-a).exp()), 0.25)]),
        ("bias, tanh", vec![bias(), step(Mode::TanhFwd, None, |a, _| a.tanh(), 1.0)]),
        ("bias, swish", vec![bias(), step(Mode::SwishFwd, None, |a, _| a / (1.0 + (-a).exp()), 1.1)]),
        (
            "bias, tanh gelu",
            vec![
                bias(),
                step(
                    Mode::GeluApproxTanhFwd,
                    None,
                    |a, _| 0.5 * a * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (a + 0.044715 * a * a * a)).tanh()),
                    1.13,
                ),
            ],
        ),
        // x · min(max(x + 3, 0), 6) / 6 as a host without that mode writes it.
        (
            "hard swish as a chain",
            vec![
                step(Mode::Add, Some(Operand::Scalar(3.0)), |a, b| a + b, 1.0),
                relu(|p| p.relu_upper_clip = Some(6.0), |a, _| a.clamp(0.0, 6.0)),
                step(Mode::Mul, Some(Operand::Scalar(1.0 / 6.0)), |a, b| a * b, 0.17),
            ],
        ),
        (
            "scale, subtract, absolute",
            vec![
                step(Mode::Mul, Some(Operand::Scalar(-1.5)), |a, b| a * b, 1.5),
                step(Mode::Sub, Some(Operand::Residual), |a, b| a - b, 1.0),
                step(Mode::Abs, None, |a, _| a.abs(), 1.0),
            ],
        ),
    ]
}

#[test]
fn chains_of_pointwise_steps_after_a_convolution_are_right() {
    let plugin = plugin();
    let handle = plugin.handle().expect("a handle");
    let cases = conv_cases();
    for (name, steps) in chains() {
        for case in [&cases[2], &cases[4], &cases[9], &cases[12]] {
            for (data_type, layout) in [
                (DataType::Float, Layout::Packed),
                (DataType::Float, Layout::ChannelsLast),
                (DataType::Half, Layout::Packed),
                (DataType::BFloat16, Layout::ChannelsLast),
            ] {
                run_chain(&handle, name, &steps, case, data_type, layout);
            }
        }
    }
}

fn run_chain(handle: &Handle, name: &str, steps: &[Step], case: &ConvCase, data_type: DataType, layout: Layout) {
    let what = format!("{} then {name}, {data_type}, {layout:?}", case.name);
    let dims = case.y();
    let mut graph = GraphBuilder::new(name).compute(DataType::Float);
    let mut tensors = Vec::new();
    let mut input = |graph: &mut GraphBuilder, uid: i64, dims: &[i64], layout: Layout| {
        let def = layout.apply(TensorDef::new(uid, data_type, dims));
        tensors.push(HostTensor::random(&def, uid.unsigned_abs()));
        graph.tensor(def)
    };
    let x = input(&mut graph, 1, &case.x, layout);
    let w = input(&mut graph, 2, &case.w, layout);
    let mut channel = vec![1; dims.len()];
    channel[1] = dims[1];
    // Intermediates in fp32, so that only the last step rounds to the type of the output.
    let middle = |uid: i64| layout.apply(TensorDef::new(uid, DataType::Float, &dims)).intermediate();
    let mut from = graph.tensor(middle(100));
    graph.convolution_fwd(x, w, from, case.convolution.clone());
    let mut operands: Vec<Option<usize>> = Vec::new();
    let mut count = 2;
    for (index, step) in steps.iter().enumerate() {
        let uid = 101 + index as i64;
        let last = index + 1 == steps.len();
        let with = step.with.map(|operand| match operand {
            Operand::Bias => input(&mut graph, 200 + index as i64, &channel, Layout::Packed),
            Operand::Residual => input(&mut graph, 200 + index as i64, &dims, layout),
            Operand::Scalar(value) => {
                let scalar =
                    TensorDef::new(200 + index as i64, DataType::Float, &[1]).with_value(TensorValue::Float32(value));
                graph.tensor(scalar)
            }
        });
        operands.push(match step.with {
            Some(Operand::Bias | Operand::Residual) => {
                count += 1;
                Some(count - 1)
            }
            _ => None,
        });
        let to = graph.tensor(if last { layout.apply(TensorDef::new(uid, data_type, &dims)) } else { middle(uid) });
        let mut pointwise = match with {
            Some(other) => Pointwise::binary(step.mode, from, other, to),
            None => Pointwise::unary(step.mode, from, to),
        };
        (step.adjust)(&mut pointwise);
        graph.pointwise(pointwise);
        from = to;
    }
    let output = layout.apply(TensorDef::new(from.0, data_type, &dims));
    let bytes = graph.def().to_bytes();
    assert_eq!(handle.applicable(&bytes), Ok(vec![engine_id(HOST)]), "{what}");

    let mut wanted = convolve(&tensors[0], &tensors[1], &dims, &case.convolution, 16.0);
    for (step, operand) in steps.iter().zip(operands) {
        for (index, exact) in indices(&dims).zip(&mut wanted) {
            let other = match (step.with, operand) {
                (Some(Operand::Scalar(value)), _) => f64::from(value),
                (Some(Operand::Bias), Some(at)) => {
                    let mut channel = vec![0; dims.len()];
                    channel[1] = index[1];
                    tensors[at].get(&channel)
                }
                (_, Some(at)) => tensors[at].get(&index),
                _ => 0.0,
            };
            let value = (step.exact)(exact.value, other);
            // Each step rounds its own result in fp32, an activation by a few units of its last place.
            let own = 8.0 * roundoff(DataType::Float) * (value.abs() + exact.value.abs() + other.abs());
            *exact = Exact { value, error: exact.error * step.slope + own };
        }
    }
    let mut y = HostTensor::blank(&output);
    let mut buffers: Vec<_> = tensors.iter_mut().map(HostTensor::buffer).collect();
    buffers.push(y.buffer());
    let plan = handle.plan(&config(&[]), &bytes).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    for _ in 0..2 {
        // SAFETY: each buffer has memory for all elements of its tensor.
        unsafe { plan.execute(&buffers) }.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert_close(&what, &y, &wanted);
    }
    y.assert_untouched_outside(&what);
}

#[test]
fn two_convolutions_and_a_fork_in_one_graph() {
    // y = conv(r, w2) + r with r = relu(conv(x, w1)), and r an output as well.
    let plugin = plugin();
    let handle = plugin.handle().expect("a handle");
    let mut geometry = Convolution::new(2);
    (geometry.pre_padding, geometry.post_padding) = (vec![1, 1], vec![1, 1]);
    let defs = [(1, [1, 6, 9, 8]), (2, [6, 6, 3, 3]), (3, [6, 6, 3, 3]), (10, [1, 6, 9, 8]), (11, [1, 6, 9, 8])]
        .map(|(uid, dims)| TensorDef::new(uid, DataType::Float, &dims));
    let mut graph = GraphBuilder::new("fork").compute(DataType::Float);
    let [x, w1, w2, r, y] = defs.clone().map(|def| graph.tensor(def));
    let middle = |uid| TensorDef::new(uid, DataType::Float, &[1, 6, 9, 8]).intermediate();
    let (a, b) = (graph.tensor(middle(20)), graph.tensor(middle(21)));
    graph.convolution_fwd(x, w1, a, geometry.clone());
    graph.pointwise(Pointwise::unary(PointwiseMode::ReluFwd, a, r));
    graph.convolution_fwd(r, w2, b, geometry.clone());
    graph.pointwise(Pointwise::binary(PointwiseMode::Add, b, r, y));
    let bytes = graph.def().to_bytes();
    assert_eq!(handle.applicable(&bytes), Ok(vec![engine_id(HOST)]));
    let plan = handle.plan(&config(&[]), &bytes).expect("a plan");
    let mut tensors: Vec<_> = defs[..3].iter().map(|def| HostTensor::random(def, def.uid.0 as u64)).collect();
    tensors.extend(defs[3..].iter().map(HostTensor::blank));
    let buffers: Vec<_> = tensors.iter_mut().map(HostTensor::buffer).collect();
    // SAFETY: each buffer has memory for all elements of its tensor.
    unsafe { plan.execute(&buffers) }.expect("the plan executes");
    let mut wanted_r = convolve(&tensors[0], &tensors[1], &defs[3].dims, &geometry, 16.0);
    wanted_r.iter_mut().for_each(|exact| exact.value = exact.value.max(0.0));
    assert_close("r", &tensors[3], &wanted_r);
    // From the computed r, so that only the second convolution's own rounding counts.
    let mut wanted_y = convolve(&tensors[3], &tensors[2], &defs[4].dims, &geometry, 16.0);
    for (index, exact) in indices(&defs[4].dims).zip(&mut wanted_y) {
        exact.value += tensors[3].get(&index);
        exact.error += 2.0 * roundoff(DataType::Float) * (exact.value.abs() + tensors[3].get(&index).abs());
    }
    assert_close("y", &tensors[4], &wanted_y);
}

#[test]
fn tensor_uids_are_any_numbers() {
    let plugin = plugin();
    let handle = plugin.handle().expect("a handle");
    let mut graph = GraphBuilder::new("uids").compute(DataType::Float);
    let defs = [(i64::MIN, [1, 1, 4, 4]), (i64::MAX, [1, 1, 3, 3]), (0, [1, 1, 2, 2])]
        .map(|(uid, dims)| TensorDef::new(uid, DataType::Float, &dims));
    let [x, w, y] = defs.clone().map(|def| graph.tensor(def));
    assert_eq!(y, TensorUid(0));
    graph.convolution_fwd(x, w, y, Convolution::new(2));
    let plan = handle.plan(&config(&[]), &graph.def().to_bytes()).expect("a plan");
    let mut tensors: Vec<_> =
        defs.iter().enumerate().map(|(seed, def)| HostTensor::random(def, seed as u64 + 1)).collect();
    let buffers: Vec<_> = tensors.iter_mut().map(HostTensor::buffer).collect();
    // SAFETY: each buffer has memory for all elements of its tensor.
    unsafe { plan.execute(&buffers) }.expect("the plan executes");
    assert_close("uids", &tensors[2], &convolve(&tensors[0], &tensors[1], &defs[2].dims, &Convolution::new(2), 16.0));
}
