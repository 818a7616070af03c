//! Every exported function called wrongly: null, what was destroyed, what is something else, out of order. Each answers
//! with its documented status and a text.

mod table;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::{Arc, OnceLock};

use hipdnn_rs_integration_tests::artifacts::{Artifact, library_path, plugin_directory};
use hipdnn_rs_integration_tests::plugin::{Plugin, const_data};
use hipdnn_schemas::{Convolution, DataType, EngineConfig, GraphBuilder, KnobValue, SerializedGraphAndPlan, TensorDef};
use hipdnn_sdk_bindings::hipdnn::backend::{
    AttributeName as Name, AttributeType as Type, Backend, DescriptorPtr, DescriptorType as Kind, HandlePtr, HeurMode,
    LogCallbackMode, PluginLoadingMode, PluginUnloadingMode, Severity, Status,
};
use hipdnn_sdk_bindings::hipdnn::plugin::{ConstData, DeviceBuffer, PluginStatus, engine_id};

const HOST: &str = "HIPDNN_RS_CPU_ENGINE";

/// A directory with the plugin, and settings under which the CPU engine takes graphs on any machine.
fn plugins() -> &'static Path {
    static PLUGINS: OnceLock<std::path::PathBuf> = OnceLock::new();
    PLUGINS.get_or_init(|| {
        let directory = plugin_directory(Path::new(env!("CARGO_TARGET_TMPDIR")), "misuse");
        // SAFETY: `OnceLock` makes this the only writer, and the libraries, which read, are opened after it.
        unsafe {
            std::env::set_var("HIPDNN_PLUGIN_DIR", &directory);
            std::env::set_var("HIPDNN_RS_CPU_ENGINE", "on");
        }
        directory
    })
}

/// A convolution that needs a workspace or not, as the engine likes; x is tensor 1, w 2, y 3.
fn graph_bytes() -> Vec<u8> {
    let mut graph = GraphBuilder::new("misuse").compute(DataType::Float);
    let x = graph.tensor(TensorDef::new(1, DataType::Float, &[1, 4, 6, 6]));
    let w = graph.tensor(TensorDef::new(2, DataType::Float, &[4, 4, 3, 3]));
    let y = graph.tensor(TensorDef::new(3, DataType::Float, &[1, 4, 4, 4]));
    graph.convolution_fwd(x, w, y, Convolution::new(2));
    graph.build().expect("a right graph").def().to_bytes()
}

/// A graph that is right, but that no engine here computes.
fn declined_graph_bytes() -> Vec<u8> {
    let mut graph = GraphBuilder::new("declined").compute(DataType::Double);
    let x = graph.tensor(TensorDef::new(1, DataType::Double, &[1, 4, 6, 6]));
    let w = graph.tensor(TensorDef::new(2, DataType::Double, &[4, 4, 3, 3]));
    let y = graph.tensor(TensorDef::new(3, DataType::Double, &[1, 4, 4, 4]));
    graph.convolution_fwd(x, w, y, Convolution::new(2));
    graph.build().expect("a right graph").def().to_bytes()
}

#[test]
fn plugin_functions() {
    let plugin = Plugin::open(&plugins().join(Artifact::Plugin.file_name()));
    let f = plugin.functions();
    let handle = plugin.handle().expect("a handle");
    let h = handle.raw();
    let id = engine_id(HOST);
    let config_of = |engine_id, knobs: &[(&str, KnobValue)]| {
        let knobs = knobs.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
        EngineConfig { engine_id, knobs }.to_bytes()
    };
    let (graph, declined, config) = (graph_bytes(), declined_graph_bytes(), config_of(id, &[]));
    let wrong_knob = config_of(id, &[("hipdnn_rs.cpu.threads", KnobValue::String("two".into()))]);
    let foreign_engine = config_of(id ^ 1, &[]);
    let plan = handle.plan(&config, &graph).expect("a plan");
    let x = plan.raw();
    let (destroyed_handle, destroyed_context) = {
        let other = plugin.handle().expect("a handle");
        let plan = other.plan(&config, &graph).expect("a plan");
        let raw = plan.raw();
        drop(plan);
        (other.raw(), raw)
    };
    let garbage = std::ptr::without_provenance_mut::<c_void>(0x1000).cast();
    let garbage_context = std::ptr::without_provenance_mut::<c_void>(usize::MAX).cast();

    let (graph, declined, config) = (const_data(&graph), const_data(&declined), const_data(&config));
    let (wrong_knob, foreign_engine) = (const_data(&wrong_knob), const_data(&foreign_engine));
    let noise = const_data(b"neither a graph nor a configuration");
    let nothing = ConstData { ptr: null(), size: 0 };
    let no_bytes = ConstData { ptr: null(), size: 8 };
    let endless = ConstData { ptr: graph.ptr, size: usize::MAX };
    let mut details = nothing;
    let mut lent = nothing;
    let mut never_lent = const_data(b"not engine details");
    let (mut text, mut count, mut ids, mut size, mut context) = (null(), 0u32, [0i64; 4], 0usize, null_mut());
    let (mut new_handle, mut kind) = (null_mut(), Default::default());
    let mut memory = vec![0u128; 4096];
    let memory = memory.as_mut_ptr().cast::<c_void>();
    let pack = [1, 2, 3].map(|uid| DeviceBuffer { uid, ptr: memory });
    let null_pack = [1, 2, 3].map(|uid| DeviceBuffer { uid, ptr: null_mut() });

    use PluginStatus as S;
    // SAFETY: pointers are null, keys of the plugin's own making, numbers that it never dereferences, or valid for their
    // calls; that the plugin tells them apart is what is tested.
    let cases: Vec<(&str, PluginStatus, PluginStatus)> = unsafe {
        vec![
            ("GetName: null", S::BAD_PARAM, (f.get_name)(null_mut())),
            ("GetVersion: null", S::BAD_PARAM, (f.get_version)(null_mut())),
            ("GetApiVersion: null", S::BAD_PARAM, (f.get_api_version)(null_mut())),
            ("GetType: null", S::BAD_PARAM, (f.get_type)(null_mut())),
            ("GetType: right", S::SUCCESS, (f.get_type)(&mut kind)),
            ("SetLoggingCallback: null", S::BAD_PARAM, (f.set_logging_callback)(None)),
            ("SetLogLevel: below", S::INVALID_VALUE, (f.set_log_level)(Severity(-1))),
            ("SetLogLevel: above", S::INVALID_VALUE, (f.set_log_level)(Severity(5))),
            ("GetAllEngineIds: no count", S::BAD_PARAM, (f.get_all_engine_ids)(ids.as_mut_ptr(), 4, null_mut())),
            ("GetAllEngineIds: no array", S::BAD_PARAM, (f.get_all_engine_ids)(null_mut(), 4, &mut count)),
            ("GetEngineName: null", S::BAD_PARAM, (f.get_engine_name)(id, null_mut())),
            ("GetEngineName: foreign", S::NOT_APPLICABLE, (f.get_engine_name)(id ^ 1, &mut text)),
            ("Create: null", S::BAD_PARAM, (f.create)(null_mut())),
            ("Destroy: null", S::BAD_PARAM, (f.destroy)(null_mut())),
            ("Destroy: twice", S::BAD_PARAM, (f.destroy)(destroyed_handle)),
            ("Destroy: garbage", S::BAD_PARAM, (f.destroy)(garbage)),
            ("Destroy: a context", S::BAD_PARAM, (f.destroy)(x.cast())),
            ("SetStream: null handle", S::BAD_PARAM, (f.set_stream)(null_mut(), null_mut())),
            ("SetStream: destroyed", S::BAD_PARAM, (f.set_stream)(destroyed_handle, null_mut())),
            ("SetStream: a context", S::BAD_PARAM, (f.set_stream)(x.cast(), null_mut())),
            (
                "GetApplicable: null handle",
                S::BAD_PARAM,
                (f.get_applicable_engine_ids)(null_mut(), &graph, ids.as_mut_ptr(), 4, &mut count),
            ),
            (
                "GetApplicable: destroyed",
                S::BAD_PARAM,
                (f.get_applicable_engine_ids)(destroyed_handle, &graph, ids.as_mut_ptr(), 4, &mut count),
            ),
            (
                "GetApplicable: no graph",
                S::BAD_PARAM,
                (f.get_applicable_engine_ids)(h, null(), ids.as_mut_ptr(), 4, &mut count),
            ),
            (
                "GetApplicable: no bytes",
                S::BAD_PARAM,
                (f.get_applicable_engine_ids)(h, &no_bytes, ids.as_mut_ptr(), 4, &mut count),
            ),
            (
                "GetApplicable: endless",
                S::BAD_PARAM,
                (f.get_applicable_engine_ids)(h, &endless, ids.as_mut_ptr(), 4, &mut count),
            ),
            (
                "GetApplicable: noise is no error of the host",
                S::SUCCESS,
                (f.get_applicable_engine_ids)(h, &noise, ids.as_mut_ptr(), 4, &mut count),
            ),
            (
                "GetApplicable: no array",
                S::BAD_PARAM,
                (f.get_applicable_engine_ids)(h, &graph, null_mut(), 4, &mut count),
            ),
            (
                "GetApplicable: no count",
                S::BAD_PARAM,
                (f.get_applicable_engine_ids)(h, &graph, ids.as_mut_ptr(), 4, null_mut()),
            ),
            (
                "GetEngineDetails: null handle",
                S::BAD_PARAM,
                (f.get_engine_details)(null_mut(), id, &graph, &mut details),
            ),
            ("GetEngineDetails: foreign engine", S::BAD_PARAM, (f.get_engine_details)(h, id ^ 1, &graph, &mut details)),
            ("GetEngineDetails: no graph", S::BAD_PARAM, (f.get_engine_details)(h, id, null(), &mut details)),
            ("GetEngineDetails: noise", S::BAD_PARAM, (f.get_engine_details)(h, id, &noise, &mut details)),
            ("GetEngineDetails: declined", S::NOT_APPLICABLE, (f.get_engine_details)(h, id, &declined, &mut details)),
            ("GetEngineDetails: no place", S::BAD_PARAM, (f.get_engine_details)(h, id, &graph, null_mut())),
            ("GetEngineDetails: right", S::SUCCESS, (f.get_engine_details)(h, id, &graph, &mut lent)),
            ("DestroyEngineDetails: null handle", S::BAD_PARAM, (f.destroy_engine_details)(null_mut(), &mut lent)),
            ("DestroyEngineDetails: null", S::BAD_PARAM, (f.destroy_engine_details)(h, null_mut())),
            ("DestroyEngineDetails: never lent", S::BAD_PARAM, (f.destroy_engine_details)(h, &mut never_lent)),
            ("DestroyEngineDetails: right", S::SUCCESS, (f.destroy_engine_details)(h, &mut lent)),
            ("DestroyEngineDetails: twice", S::BAD_PARAM, (f.destroy_engine_details)(h, &mut lent)),
            (
                "GetWorkspaceSize: null handle",
                S::BAD_PARAM,
                (f.get_workspace_size)(null_mut(), &config, &graph, &mut size),
            ),
            ("GetWorkspaceSize: no config", S::BAD_PARAM, (f.get_workspace_size)(h, &nothing, &graph, &mut size)),
            ("GetWorkspaceSize: noise as config", S::BAD_PARAM, (f.get_workspace_size)(h, &noise, &graph, &mut size)),
            ("GetWorkspaceSize: noise as graph", S::BAD_PARAM, (f.get_workspace_size)(h, &config, &noise, &mut size)),
            ("GetWorkspaceSize: foreign", S::BAD_PARAM, (f.get_workspace_size)(h, &foreign_engine, &graph, &mut size)),
            ("GetWorkspaceSize: wrong knob", S::BAD_PARAM, (f.get_workspace_size)(h, &wrong_knob, &graph, &mut size)),
            ("GetWorkspaceSize: declined", S::NOT_APPLICABLE, (f.get_workspace_size)(h, &config, &declined, &mut size)),
            ("GetWorkspaceSize: no place", S::BAD_PARAM, (f.get_workspace_size)(h, &config, &graph, null_mut())),
            (
                "CreateContext: null handle",
                S::BAD_PARAM,
                (f.create_execution_context)(null_mut(), &config, &graph, &mut context),
            ),
            (
                "CreateContext: destroyed handle",
                S::BAD_PARAM,
                (f.create_execution_context)(destroyed_handle, &config, &graph, &mut context),
            ),
            ("CreateContext: no config", S::BAD_PARAM, (f.create_execution_context)(h, null(), &graph, &mut context)),
            ("CreateContext: no graph", S::BAD_PARAM, (f.create_execution_context)(h, &config, &nothing, &mut context)),
            (
                "CreateContext: foreign engine",
                S::BAD_PARAM,
                (f.create_execution_context)(h, &foreign_engine, &graph, &mut context),
            ),
            (
                "CreateContext: wrong knob",
                S::BAD_PARAM,
                (f.create_execution_context)(h, &wrong_knob, &graph, &mut context),
            ),
            (
                "CreateContext: declined",
                S::NOT_APPLICABLE,
                (f.create_execution_context)(h, &config, &declined, &mut context),
            ),
            ("CreateContext: no place", S::BAD_PARAM, (f.create_execution_context)(h, &config, &graph, null_mut())),
            ("DestroyContext: null", S::BAD_PARAM, (f.destroy_execution_context)(h, null_mut())),
            ("DestroyContext: twice", S::BAD_PARAM, (f.destroy_execution_context)(h, destroyed_context)),
            ("DestroyContext: garbage", S::BAD_PARAM, (f.destroy_execution_context)(h, garbage_context)),
            ("DestroyContext: a handle", S::BAD_PARAM, (f.destroy_execution_context)(h, h.cast())),
            ("DestroyContext: null handle", S::BAD_PARAM, (f.destroy_execution_context)(null_mut(), x)),
            (
                "ContextWorkspace: null context",
                S::BAD_PARAM,
                (f.get_workspace_size_from_execution_context)(h, null_mut(), &mut size),
            ),
            (
                "ContextWorkspace: destroyed",
                S::BAD_PARAM,
                (f.get_workspace_size_from_execution_context)(h, destroyed_context, &mut size),
            ),
            (
                "ContextWorkspace: null handle",
                S::BAD_PARAM,
                (f.get_workspace_size_from_execution_context)(null_mut(), x, &mut size),
            ),
            (
                "ContextWorkspace: no place",
                S::BAD_PARAM,
                (f.get_workspace_size_from_execution_context)(h, x, null_mut()),
            ),
            ("Execute: null handle", S::BAD_PARAM, (f.execute_op_graph)(null_mut(), x, memory, pack.as_ptr(), 3)),
            ("Execute: null context", S::BAD_PARAM, (f.execute_op_graph)(h, null_mut(), memory, pack.as_ptr(), 3)),
            ("Execute: destroyed", S::BAD_PARAM, (f.execute_op_graph)(h, destroyed_context, memory, pack.as_ptr(), 3)),
            ("Execute: no pack", S::BAD_PARAM, (f.execute_op_graph)(h, x, memory, null(), 3)),
            ("Execute: empty pack", S::INVALID_VALUE, (f.execute_op_graph)(h, x, memory, pack.as_ptr(), 0)),
            ("Execute: tensor missing", S::INVALID_VALUE, (f.execute_op_graph)(h, x, memory, pack.as_ptr(), 2)),
            ("Execute: memory missing", S::INVALID_VALUE, (f.execute_op_graph)(h, x, memory, null_pack.as_ptr(), 3)),
            // A plan may be run through any handle of its plugin, so nothing is left to refuse here.
            ("Create: right", S::SUCCESS, (f.create)(&mut new_handle)),
            ("Destroy: right", S::SUCCESS, (f.destroy)(new_handle)),
            ("Destroy: again", S::BAD_PARAM, (f.destroy)(new_handle)),
        ]
    };
    let mut wrong = Vec::new();
    for (what, wanted, came) in cases {
        if wanted != came {
            wrong.push(format!("{what}: expected {wanted}, got {came}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}\nlast text: {}", plugin.last_error());
    assert!(context.is_null(), "a refused context leaves its place alone");
    assert!(details.ptr.is_null(), "refused details leave their place alone");
    assert!(lent.ptr.is_null() && lent.size == 0, "destroyed details are cleared");
    assert!(!plugin.last_error().is_empty());
    plugin.ask_last_error_with_null();

    // The number of engines is that of all, whatever the room.
    let (mut few, mut number) = ([0i64; 2], 0);
    // SAFETY: there is room for one id, and a place for the number.
    assert_eq!(unsafe { (f.get_all_engine_ids)(few.as_mut_ptr(), 1, &mut number) }, S::SUCCESS);
    assert_eq!((number, few[0] != 0, few[1]), (2, true, 0));
}

/// The backend and one descriptor of each kind and state.
struct World {
    b: Arc<Backend>,
    handle: HandlePtr,
    destroyed_handle: HandlePtr,
    graph: DescriptorPtr,
    raw_graph: DescriptorPtr,
    heuristic: DescriptorPtr,
    engine: DescriptorPtr,
    config: DescriptorPtr,
    plan: DescriptorPtr,
    pack: DescriptorPtr,
    knob: DescriptorPtr,
    tensor: DescriptorPtr,
    destroyed: DescriptorPtr,
    /// Memory for every tensor.
    memory: Vec<u128>,
}

impl World {
    fn new() -> World {
        plugins();
        // SAFETY: the file is the backend of this project.
        let b = unsafe { Backend::open([library_path(Artifact::Backend)]) }.unwrap_or_else(|error| panic!("{error}"));
        let mut world = World {
            b: Arc::new(b),
            handle: null_mut(),
            destroyed_handle: null_mut(),
            graph: null_mut(),
            raw_graph: null_mut(),
            heuristic: null_mut(),
            engine: null_mut(),
            config: null_mut(),
            plan: null_mut(),
            pack: null_mut(),
            knob: null_mut(),
            tensor: null_mut(),
            destroyed: null_mut(),
            memory: vec![0; 4096],
        };
        let bytes = graph_bytes();
        let b = Arc::clone(&world.b);
        let deserialize = b.create_and_deserialize_graph.expect("our backend has it");
        // SAFETY: pointers are valid for their calls.
        let made = unsafe {
            [
                (b.create)(&mut world.handle),
                (b.create)(&mut world.destroyed_handle),
                (b.destroy)(world.destroyed_handle),
                deserialize(&mut world.graph, bytes.as_ptr(), bytes.len()),
                deserialize(&mut world.raw_graph, bytes.as_ptr(), bytes.len()),
            ]
        };
        assert_eq!(made, [Status::SUCCESS; 5], "{}", b.take_last_error());
        world.ok(world.set(world.graph, Name::OPERATIONGRAPH_HANDLE, Type::HANDLE, &[world.handle]));
        world.ok(world.finalize(world.graph));
        world.heuristic = world.new_descriptor(Kind::ENGINEHEUR_DESCRIPTOR);
        let graph = [world.graph];
        world.ok(world.set(world.heuristic, Name::ENGINEHEUR_OPERATION_GRAPH, Type::BACKEND_DESCRIPTOR, &graph));
        world.ok(world.set(world.heuristic, Name::ENGINEHEUR_MODE, Type::HEUR_MODE, &[HeurMode::FALLBACK]));
        world.ok(world.finalize(world.heuristic));
        world.engine = world.new_descriptor(Kind::ENGINE_DESCRIPTOR);
        world.ok(world.set(world.engine, Name::ENGINE_OPERATION_GRAPH, Type::BACKEND_DESCRIPTOR, &graph));
        world.ok(world.set(world.engine, Name::ENGINE_GLOBAL_INDEX, Type::INT64, &[engine_id(HOST)]));
        world.ok(world.finalize(world.engine));
        world.config = world.new_descriptor(Kind::ENGINECFG_DESCRIPTOR);
        world.ok(world.set(world.config, Name::ENGINECFG_ENGINE, Type::BACKEND_DESCRIPTOR, &[world.engine]));
        world.ok(world.finalize(world.config));
        world.plan = world.new_descriptor(Kind::EXECUTION_PLAN_DESCRIPTOR);
        world.ok(world.set(world.plan, Name::EXECUTION_PLAN_ENGINE_CONFIG, Type::BACKEND_DESCRIPTOR, &[world.config]));
        world.ok(world.finalize(world.plan));
        world.knob = world.new_descriptor(Kind::KNOB_CHOICE_DESCRIPTOR);
        world.ok(world.set(world.knob, Name::KNOB_CHOICE_KNOB_TYPE, Type::CHAR, b"hipdnn_rs.cpu.threads"));
        world.ok(world.set(world.knob, Name::KNOB_CHOICE_KNOB_VALUE, Type::INT64, &[1i64]));
        world.ok(world.finalize(world.knob));
        world.tensor = world.new_descriptor(Kind::TENSOR_DESCRIPTOR);
        world.ok(world.set(world.tensor, Name::TENSOR_DATA_TYPE, Type::DATA_TYPE, &[0i32]));
        world.ok(world.set(world.tensor, Name::TENSOR_DIMENSIONS, Type::INT64, &[2i64, 3]));
        world.ok(world.set(world.tensor, Name::TENSOR_STRIDES, Type::INT64, &[3i64, 1]));
        world.ok(world.finalize(world.tensor));
        world.pack = world.new_descriptor(Kind::VARIANT_PACK_DESCRIPTOR);
        let memory = world.memory.as_mut_ptr().cast::<c_void>();
        world.ok(world.set(world.pack, Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, &[1i64, 2, 3]));
        world.ok(world.set(world.pack, Name::VARIANT_PACK_DATA_POINTERS, Type::VOID_PTR, &[memory; 3]));
        world.ok(world.set(world.pack, Name::VARIANT_PACK_WORKSPACE, Type::VOID_PTR, &[memory]));
        world.ok(world.finalize(world.pack));
        world.destroyed = world.new_descriptor(Kind::VARIANT_PACK_DESCRIPTOR);
        // SAFETY: the descriptor is alive.
        world.ok(unsafe { (world.b.destroy_descriptor)(world.destroyed) });
        world
    }

    #[track_caller]
    fn ok(&self, status: Status) {
        assert_eq!(status, Status::SUCCESS, "{}", self.b.take_last_error());
    }

    fn new_descriptor(&self, kind: Kind) -> DescriptorPtr {
        let mut descriptor = null_mut();
        // SAFETY: `descriptor` is valid for the call.
        self.ok(unsafe { (self.b.create_descriptor)(kind, &mut descriptor) });
        descriptor
    }

    fn set<T>(&self, descriptor: DescriptorPtr, name: Name, kind: Type, elements: &[T]) -> Status {
        // SAFETY: there are as many elements as we say, as large as those of `kind` or larger.
        unsafe { (self.b.set_attribute)(descriptor, name, kind, elements.len() as i64, elements.as_ptr().cast()) }
    }

    /// Asks for one element of at most 16 bytes.
    fn get(&self, descriptor: DescriptorPtr, name: Name, kind: Type) -> Status {
        let (mut element, mut count) = (0u128, 0);
        let place = (&raw mut element).cast();
        // SAFETY: there is room for one element of any type, zeroed as descriptors must be.
        let status = unsafe { (self.b.get_attribute)(descriptor, name, kind, 1, &mut count, place) };
        if status == Status::SUCCESS && kind == Type::BACKEND_DESCRIPTOR && count == 1 {
            let owned = std::ptr::with_exposed_provenance_mut::<c_void>(element as usize);
            // SAFETY: what was got is ours to destroy.
            self.ok(unsafe { (self.b.destroy_descriptor)(owned.cast()) });
        }
        status
    }

    fn finalize(&self, descriptor: DescriptorPtr) -> Status {
        // SAFETY: a descriptor of this backend, or what it must tell from one.
        unsafe { (self.b.finalize)(descriptor) }
    }

    /// The status of finalising a new descriptor that nothing was set on.
    fn finalize_empty(&self, kind: Kind) -> Status {
        let descriptor = self.new_descriptor(kind);
        let status = self.finalize(descriptor);
        // SAFETY: the descriptor is alive.
        self.ok(unsafe { (self.b.destroy_descriptor)(descriptor) });
        status
    }

    /// The status of setting an attribute of a new descriptor.
    fn set_new<T>(&self, of: Kind, name: Name, kind: Type, elements: &[T]) -> Status {
        let descriptor = self.new_descriptor(of);
        let status = self.set(descriptor, name, kind, elements);
        // SAFETY: the descriptor is alive.
        self.ok(unsafe { (self.b.destroy_descriptor)(descriptor) });
        status
    }

    /// The status of reading an attribute of a new descriptor.
    fn get_new(&self, of: Kind, name: Name, kind: Type) -> Status {
        let descriptor = self.new_descriptor(of);
        let status = self.get(descriptor, name, kind);
        // SAFETY: the descriptor is alive.
        self.ok(unsafe { (self.b.destroy_descriptor)(descriptor) });
        status
    }

    #[track_caller]
    fn check(&self, cases: Vec<(&str, Status, Status)>) {
        let wrong: Vec<_> = cases
            .iter()
            .filter(|(_, wanted, came)| wanted != came)
            .map(|(what, wanted, came)| format!("{what}: expected {wanted}, got {came}"))
            .collect();
        assert!(wrong.is_empty(), "{wrong:#?}\nlast text: {}", self.b.take_last_error());
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let all = [
            self.pack,
            self.plan,
            self.config,
            self.engine,
            self.heuristic,
            self.graph,
            self.raw_graph,
            self.knob,
            self.tensor,
        ];
        for descriptor in all {
            // SAFETY: each is alive.
            let status = unsafe { (self.b.destroy_descriptor)(descriptor) };
            assert!(status == Status::SUCCESS || std::thread::panicking());
        }
        // SAFETY: the handle is alive.
        let status = unsafe { (self.b.destroy)(self.handle) };
        assert!(status == Status::SUCCESS || std::thread::panicking());
    }
}

const NULL: Status = Status::BAD_PARAM_NULL_POINTER;
const BAD: Status = Status::BAD_PARAM;
const UNSUPPORTED: Status = Status::NOT_SUPPORTED;
const UNINITIALIZED: Status = Status::NOT_INITIALIZED;
const UNFINALIZED: Status = Status::BAD_PARAM_NOT_FINALIZED;
const OK: Status = Status::SUCCESS;

#[test]
fn backend_core_functions() {
    let w = World::new();
    let b = &w.b;
    let garbage = std::ptr::without_provenance_mut::<c_void>(0x1000);
    let (handle_garbage, garbage): (HandlePtr, DescriptorPtr) = (garbage.cast(), garbage.cast());
    let (mut stream, mut descriptor, mut count) = (null_mut(), null_mut(), 0i64);
    let unfinished_plan = w.new_descriptor(Kind::EXECUTION_PLAN_DESCRIPTOR);
    let unfinished_pack = w.new_descriptor(Kind::VARIANT_PACK_DESCRIPTOR);
    let one = 1i64;
    let one = (&raw const one).cast::<c_void>();
    // SAFETY: pointers are null, tokens of the backend's own making, numbers that it never dereferences, or valid for
    // their calls; that the backend tells them apart is what is tested.
    let cases = unsafe {
        vec![
            ("Create: null", NULL, (b.create)(null_mut())),
            ("Destroy: null", NULL, (b.destroy)(null_mut())),
            ("Destroy: twice", BAD, (b.destroy)(w.destroyed_handle)),
            ("Destroy: garbage", BAD, (b.destroy)(handle_garbage)),
            ("Destroy: a descriptor", BAD, (b.destroy)(w.graph.cast())),
            ("SetStream: null", NULL, (b.set_stream)(null_mut(), null_mut())),
            ("SetStream: destroyed", BAD, (b.set_stream)(w.destroyed_handle, null_mut())),
            ("SetStream: the null stream", OK, (b.set_stream)(w.handle, null_mut())),
            ("GetStream: null handle", NULL, (b.get_stream)(null_mut(), &mut stream)),
            ("GetStream: null place", NULL, (b.get_stream)(w.handle, null_mut())),
            ("GetStream: destroyed", BAD, (b.get_stream)(w.destroyed_handle, &mut stream)),
            ("CreateDescriptor: null", NULL, (b.create_descriptor)(Kind::VARIANT_PACK_DESCRIPTOR, null_mut())),
            ("CreateDescriptor: type 0", UNSUPPORTED, (b.create_descriptor)(Kind(0), &mut descriptor)),
            ("CreateDescriptor: layout", UNSUPPORTED, (b.create_descriptor)(Kind(8), &mut descriptor)),
            ("CreateDescriptor: negative", UNSUPPORTED, (b.create_descriptor)(Kind(-1), &mut descriptor)),
            ("CreateDescriptor: unknown", UNSUPPORTED, (b.create_descriptor)(Kind(999), &mut descriptor)),
            ("DestroyDescriptor: null", NULL, (b.destroy_descriptor)(null_mut())),
            ("DestroyDescriptor: twice", BAD, (b.destroy_descriptor)(w.destroyed)),
            ("DestroyDescriptor: garbage", BAD, (b.destroy_descriptor)(garbage)),
            ("DestroyDescriptor: a handle", BAD, (b.destroy_descriptor)(w.handle.cast())),
            ("Finalize: null", NULL, (b.finalize)(null_mut())),
            ("Finalize: destroyed", BAD, (b.finalize)(w.destroyed)),
            ("Finalize: garbage", BAD, (b.finalize)(garbage)),
            ("Set: null", NULL, (b.set_attribute)(null_mut(), Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, 1, one)),
            ("Set: destroyed", BAD, (b.set_attribute)(w.destroyed, Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, 1, one)),
            ("Set: a handle", BAD, {
                (b.set_attribute)(w.handle.cast(), Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, 1, one)
            }),
            ("Set: null elements", NULL, {
                (b.set_attribute)(unfinished_pack, Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, 1, null())
            }),
            ("Set: negative count", BAD, {
                (b.set_attribute)(unfinished_pack, Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, -1, one)
            }),
            ("Set: endless count", BAD, {
                (b.set_attribute)(unfinished_pack, Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, i64::MAX, one)
            }),
            ("Set: other type", BAD, {
                (b.set_attribute)(unfinished_pack, Name::VARIANT_PACK_UNIQUE_IDS, Type::VOID_PTR, 1, one)
            }),
            ("Set: unknown type", BAD, {
                (b.set_attribute)(unfinished_pack, Name::VARIANT_PACK_UNIQUE_IDS, Type(12345), 1, one)
            }),
            ("Set: unknown name", UNSUPPORTED, (b.set_attribute)(unfinished_pack, Name(-7), Type::INT64, 1, one)),
            ("Get: null", NULL, {
                (b.get_attribute)(null_mut(), Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, 0, &mut count, null_mut())
            }),
            ("Get: destroyed", BAD, {
                (b.get_attribute)(w.destroyed, Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, 0, &mut count, null_mut())
            }),
            ("Get: count without a place", NULL, {
                (b.get_attribute)(w.pack, Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, 0, null_mut(), null_mut())
            }),
            ("Get: negative request", BAD, {
                (b.get_attribute)(w.pack, Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, -1, &mut count, null_mut())
            }),
            ("Get: unknown name", UNSUPPORTED, w.get(w.pack, Name(4711), Type::INT64)),
            ("Execute: null handle", NULL, (b.execute)(null_mut(), w.plan, w.pack)),
            ("Execute: null plan", NULL, (b.execute)(w.handle, null_mut(), w.pack)),
            ("Execute: null pack", NULL, (b.execute)(w.handle, w.plan, null_mut())),
            ("Execute: destroyed handle", BAD, (b.execute)(w.destroyed_handle, w.plan, w.pack)),
            ("Execute: destroyed pack", BAD, (b.execute)(w.handle, w.plan, w.destroyed)),
            ("Execute: swapped", BAD, (b.execute)(w.handle, w.pack, w.plan)),
            ("Execute: a graph as plan", BAD, (b.execute)(w.handle, w.graph, w.pack)),
            ("Execute: unfinalized plan", BAD, (b.execute)(w.handle, unfinished_plan, w.pack)),
            ("Execute: unfinalized pack", BAD, (b.execute)(w.handle, w.plan, unfinished_pack)),
            ("Execute: right", OK, (b.execute)(w.handle, w.plan, w.pack)),
            ("Destroy the unfinished plan", OK, (b.destroy_descriptor)(unfinished_plan)),
            ("Destroy the unfinished pack", OK, (b.destroy_descriptor)(unfinished_pack)),
        ]
    };
    w.check(cases);
    assert!(descriptor.is_null(), "a refused descriptor leaves its place alone");

    // The text functions answer nothing; a place of no bytes is not written.
    let mut text = [b'x' as c_char; 4];
    // SAFETY: there are as many bytes as we say, or none.
    unsafe {
        (b.get_last_error_string)(null_mut(), 100);
        (b.get_last_error_string)(text.as_mut_ptr(), 0);
        assert_eq!(text, [b'x' as c_char; 4]);
        (b.destroy)(null_mut());
        (b.peek_last_error_string.expect("our backend has it"))(text.as_mut_ptr(), 4);
        assert_eq!((text[3], text[0] != 0), (0, true), "cut to the room, with a NUL");
        (b.get_last_error_string)(text.as_mut_ptr(), 1);
        assert_eq!(text[0], 0, "room for the NUL only");
        for (status, name) in [(0, "HIPDNN_STATUS_SUCCESS"), (14, "HIPDNN_STATUS_PLUGIN_ERROR")] {
            assert_eq!(CStr::from_ptr((b.get_error_string)(Status(status))).to_str(), Ok(name));
        }
        for unknown in [-1, 99, i32::MAX] {
            assert!(!CStr::from_ptr((b.get_error_string)(Status(unknown))).is_empty());
        }
    }
}

#[test]
fn backend_extensions() {
    let w = World::new();
    let b = &w.b;
    let bytes = graph_bytes();
    let noise = b"neither a graph nor a plan, but long enough";
    let container = SerializedGraphAndPlan { graph: bytes.clone(), plan: None }.to_bytes();
    let empty_container = SerializedGraphAndPlan::default().to_bytes();
    let (mut d, mut size, mut flags, mut id) = (null_mut(), 0usize, 0 as c_int, 0i64);
    let (mut count, mut longest, mut level) = (0usize, 0usize, Severity(0));
    let mut small = [0u8; 4];
    let deserialize = b.create_and_deserialize_graph.expect("our backend has it");
    let deserialize_json = b.create_and_deserialize_json_graph.expect("our backend has it");
    let serialize = b.get_serialized_binary_graph.expect("our backend has it");
    let serialize_json = b.get_serialized_json_graph.expect("our backend has it");
    let serialize_plan = b.get_serialized_execution_plan.expect("our backend has it");
    let deserialize_plan = b.create_and_deserialize_execution_plan.expect("our backend has it");
    let serialize_both = b.get_serialized_binary_graph_and_plan.expect("our backend has it");
    let contents = b.get_serialized_binary_contents.expect("our backend has it");
    let engine_paths = b.set_engine_plugin_paths.expect("our backend has it");
    let heuristic_paths = b.set_heuristic_plugin_paths.expect("our backend has it");
    let unload_mode = b.set_plugin_unload_mode.expect("our backend has it");
    let loaded = b.get_loaded_engine_plugin_paths.expect("our backend has it");
    let engine_count = b.get_engine_count.expect("our backend has it");
    let engine_info = b.get_engine_info.expect("our backend has it");
    let id_by_name = b.get_engine_id_by_name.expect("our backend has it");
    let name_by_id = b.get_engine_name_by_id.expect("our backend has it");
    let policy_count = b.get_heuristic_policy_count.expect("our backend has it");
    let policy_info = b.get_heuristic_policy_info.expect("our backend has it");
    let write_ranking = b.write_engine_ranking_results.expect("our backend has it");
    let log = b.logging_callback.expect("our backend has it");
    let set_callback = b.set_user_log_callback.expect("our backend has it");
    let set_level = b.set_global_log_level.expect("our backend has it");
    let get_level = b.get_global_log_level.expect("our backend has it");
    let version = b.get_version.expect("our backend has it");
    let unfinished_plan = w.new_descriptor(Kind::EXECUTION_PLAN_DESCRIPTOR);
    let path = c"/nonexistent/plugin.so".as_ptr();
    let paths = [path, null()];
    let h = w.handle;
    let n = null_mut::<c_char>;
    // SAFETY: pointers are null, valid for their calls, or tokens and numbers that the backend never dereferences.
    let cases = unsafe {
        vec![
            ("Deserialize: no place", NULL, deserialize(null_mut(), bytes.as_ptr(), bytes.len())),
            ("Deserialize: no bytes", NULL, deserialize(&mut d, null(), 8)),
            ("Deserialize: size 0", BAD, deserialize(&mut d, bytes.as_ptr(), 0)),
            ("Deserialize: noise", BAD, deserialize(&mut d, noise.as_ptr(), noise.len())),
            ("Deserialize: cut", BAD, deserialize(&mut d, bytes.as_ptr(), bytes.len() / 2)),
            ("Deserialize: empty container", BAD, deserialize(&mut d, empty_container.as_ptr(), empty_container.len())),
            ("JSON: no place", NULL, deserialize_json(null_mut(), noise.as_ptr().cast(), noise.len())),
            ("JSON: no text", NULL, deserialize_json(&mut d, null(), 8)),
            ("JSON: size 0", BAD, deserialize_json(&mut d, noise.as_ptr().cast(), 0)),
            ("JSON: noise", BAD, deserialize_json(&mut d, noise.as_ptr().cast(), noise.len())),
            ("JSON: no UTF-8", BAD, deserialize_json(&mut d, [0xffu8, 0xfe].as_ptr().cast(), 2)),
            ("Serialize: null", NULL, serialize(null_mut(), 0, &mut size, null_mut())),
            ("Serialize: destroyed", BAD, serialize(w.destroyed, 0, &mut size, null_mut())),
            ("Serialize: not a graph", BAD, serialize(w.plan, 0, &mut size, null_mut())),
            ("Serialize: no size", NULL, serialize(w.graph, 0, null_mut(), null_mut())),
            ("Serialize: too small", Status::BAD_PARAM_SIZE_INSUFFICIENT, {
                serialize(w.graph, 4, &mut size, small.as_mut_ptr())
            }),
            ("Serialize JSON: null", NULL, serialize_json(null_mut(), 0, &mut size, null_mut())),
            ("Serialize JSON: not a graph", BAD, serialize_json(w.pack, 0, &mut size, null_mut())),
            ("Serialize JSON: no size", NULL, serialize_json(w.graph, 0, null_mut(), null_mut())),
            ("Serialize JSON: too small", Status::BAD_PARAM_SIZE_INSUFFICIENT, {
                serialize_json(w.graph, 4, &mut size, small.as_mut_ptr().cast())
            }),
            ("Serialize plan: null", NULL, serialize_plan(null_mut(), 0, &mut size, null_mut())),
            ("Serialize plan: not a plan", BAD, serialize_plan(w.graph, 0, &mut size, null_mut())),
            ("Serialize plan: unfinalized", UNINITIALIZED, serialize_plan(unfinished_plan, 0, &mut size, null_mut())),
            ("Deserialize plan: null handle", NULL, deserialize_plan(null_mut(), &mut d, noise.as_ptr(), noise.len())),
            ("Deserialize plan: destroyed handle", BAD, {
                deserialize_plan(w.destroyed_handle, &mut d, noise.as_ptr(), noise.len())
            }),
            ("Deserialize plan: no place", NULL, deserialize_plan(h, null_mut(), noise.as_ptr(), noise.len())),
            ("Deserialize plan: no bytes", NULL, deserialize_plan(h, &mut d, null(), 8)),
            ("Deserialize plan: size 0", BAD, deserialize_plan(h, &mut d, noise.as_ptr(), 0)),
            ("Deserialize plan: noise", BAD, deserialize_plan(h, &mut d, noise.as_ptr(), noise.len())),
            ("Deserialize plan: no plan", BAD, deserialize_plan(h, &mut d, container.as_ptr(), container.len())),
            ("Serialize both: null graph", NULL, serialize_both(null_mut(), null_mut(), 0, &mut size, null_mut())),
            ("Serialize both: not a graph", BAD, serialize_both(w.plan, null_mut(), 0, &mut size, null_mut())),
            ("Serialize both: no size", NULL, serialize_both(w.graph, null_mut(), 0, null_mut(), null_mut())),
            ("Serialize both: no plan is right", OK, serialize_both(w.graph, null_mut(), 0, &mut size, null_mut())),
            ("Contents: no place", NULL, contents(noise.as_ptr(), noise.len(), null_mut())),
            ("Contents: no bytes", NULL, contents(null(), 8, &mut flags)),
            ("EnginePaths: null array", NULL, engine_paths(1, null(), PluginLoadingMode::ABSOLUTE)),
            ("EnginePaths: null entry", NULL, engine_paths(2, paths.as_ptr(), PluginLoadingMode::ABSOLUTE)),
            ("EnginePaths: live handle", UNSUPPORTED, engine_paths(1, &path, PluginLoadingMode::ABSOLUTE)),
            ("HeuristicPaths: null array", NULL, heuristic_paths(1, null(), PluginLoadingMode::ABSOLUTE)),
            ("HeuristicPaths: live handle", UNSUPPORTED, heuristic_paths(1, &path, PluginLoadingMode::ABSOLUTE)),
            ("UnloadMode: below", BAD, unload_mode(PluginUnloadingMode(-1))),
            ("UnloadMode: above", BAD, unload_mode(PluginUnloadingMode(2))),
            ("LoadedPaths: null handle", NULL, loaded(null_mut(), &mut count, null_mut(), &mut longest)),
            ("LoadedPaths: destroyed", BAD, loaded(w.destroyed_handle, &mut count, null_mut(), &mut longest)),
            ("LoadedPaths: no count", NULL, loaded(h, null_mut(), null_mut(), &mut longest)),
            ("LoadedPaths: no length", NULL, loaded(h, &mut count, null_mut(), null_mut())),
            ("LoadedPaths: no room", BAD, {
                let mut place = small.as_mut_ptr().cast::<c_char>();
                (count, longest) = (1, 4);
                loaded(h, &mut count, &mut place, &mut longest)
            }),
            ("LoadedPaths: null entry", BAD, {
                let mut place = null_mut();
                (count, longest) = (1, 1 << 20);
                loaded(h, &mut count, &mut place, &mut longest)
            }),
            ("EngineCount: null handle", NULL, engine_count(null_mut(), &mut count)),
            ("EngineCount: null place", NULL, engine_count(h, null_mut())),
            ("EngineCount: destroyed", BAD, engine_count(w.destroyed_handle, &mut count)),
            ("EngineInfo: null handle", NULL, {
                let (s, t, u, v) = (&mut 0, &mut 0, &mut 0, &mut 0);
                engine_info(null_mut(), 0, &mut id, n(), s, n(), t, n(), u, n(), v)
            }),
            ("EngineInfo: no length", NULL, {
                let (s, t, u) = (&mut 0, &mut 0, &mut 0);
                engine_info(h, 0, &mut id, n(), s, n(), t, n(), u, n(), null_mut())
            }),
            ("EngineInfo: index", BAD, {
                let (s, t, u, v) = (&mut 0, &mut 0, &mut 0, &mut 0);
                engine_info(h, usize::MAX, &mut id, n(), s, n(), t, n(), u, n(), v)
            }),
            ("EngineInfo: too small", BAD, {
                let (s, t, u, v) = (&mut 1, &mut 1, &mut 1, &mut 1);
                let p = small.as_mut_ptr().cast::<c_char>();
                engine_info(h, 0, &mut id, p, s, p, t, p, u, p, v)
            }),
            ("IdByName: null handle", NULL, id_by_name(null_mut(), c"X".as_ptr(), &mut id)),
            ("IdByName: null name", NULL, id_by_name(h, null(), &mut id)),
            ("IdByName: null place", NULL, id_by_name(h, c"HIPDNN_RS_CPU_ENGINE".as_ptr(), null_mut())),
            ("IdByName: unknown", UNSUPPORTED, id_by_name(h, c"NO_SUCH_ENGINE".as_ptr(), &mut id)),
            ("NameById: null handle", NULL, name_by_id(null_mut(), engine_id(HOST), n(), &mut size)),
            ("NameById: null length", NULL, name_by_id(h, engine_id(HOST), n(), null_mut())),
            ("NameById: unknown", UNSUPPORTED, name_by_id(h, 1, n(), &mut size)),
            ("NameById: too small", BAD, {
                size = 4;
                name_by_id(h, engine_id(HOST), small.as_mut_ptr().cast(), &mut size)
            }),
            ("PolicyCount: null handle", NULL, policy_count(null_mut(), &mut count)),
            ("PolicyCount: null place", NULL, policy_count(h, null_mut())),
            ("PolicyInfo: null handle", NULL, {
                let (s, t, u, v) = (&mut 0, &mut 0, &mut 0, &mut 0);
                policy_info(null_mut(), 0, &mut id, n(), s, n(), t, n(), u, n(), v)
            }),
            ("PolicyInfo: index", BAD, {
                let (s, t, u, v) = (&mut 0, &mut 0, &mut 0, &mut 0);
                policy_info(h, 99, &mut id, n(), s, n(), t, n(), u, n(), v)
            }),
            ("WriteRanking: null handle", NULL, write_ranking(null_mut(), w.graph, &id, 1, null_mut())),
            ("WriteRanking: null graph", NULL, write_ranking(h, null_mut(), &id, 1, null_mut())),
            ("WriteRanking: no graph", BAD, write_ranking(h, w.plan, &id, 1, null_mut())),
            ("WriteRanking: no engines", OK, write_ranking(h, w.graph, null(), 9, null_mut())),
            ("UserLogCallback: level", BAD, set_callback(None, Severity(9), LogCallbackMode::SYNC, null_mut())),
            ("SetLogLevel: below", BAD, set_level(Severity(-1))),
            ("SetLogLevel: above", BAD, set_level(Severity(5))),
            ("GetLogLevel: null", BAD, get_level(null_mut())),
            ("GetLogLevel: right", OK, get_level(&mut level)),
            ("GetVersion: null", NULL, version(null_mut())),
            ("Destroy the unfinished plan", OK, (b.destroy_descriptor)(unfinished_plan)),
        ]
    };
    w.check(cases);
    assert!(d.is_null(), "what is refused leaves its place alone");
    // SAFETY: null is what is tested.
    unsafe { log(Severity::INFO, null()) };
    // SAFETY: the function takes nothing and gives a text for ever.
    let version = unsafe { CStr::from_ptr((b.version_string.expect("our backend has it"))()) };
    assert_eq!(version.to_bytes().iter().filter(|byte| **byte == b'.').count(), 3, "{version:?}");
}

#[test]
fn backend_descriptors_out_of_order() {
    let w = World::new();
    let graph = [w.graph];
    let raw = [w.raw_graph];
    let cases = vec![
        // Finalising what lacks a part.
        ("finalise an empty graph", BAD, w.finalize_empty(Kind::OPERATIONGRAPH_DESCRIPTOR)),
        ("finalise a graph without a handle", BAD, w.finalize(w.raw_graph)),
        ("finalise an empty heuristic", BAD, w.finalize_empty(Kind::ENGINEHEUR_DESCRIPTOR)),
        ("finalise an empty engine", BAD, w.finalize_empty(Kind::ENGINE_DESCRIPTOR)),
        ("finalise an empty configuration", BAD, w.finalize_empty(Kind::ENGINECFG_DESCRIPTOR)),
        ("finalise an empty plan", BAD, w.finalize_empty(Kind::EXECUTION_PLAN_DESCRIPTOR)),
        ("finalise an empty knob choice", BAD, w.finalize_empty(Kind::KNOB_CHOICE_DESCRIPTOR)),
        ("finalise an empty variant pack", BAD, w.finalize_empty(Kind::VARIANT_PACK_DESCRIPTOR)),
        ("finalise an empty tensor", BAD, w.finalize_empty(Kind::TENSOR_DESCRIPTOR)),
        ("finalise an empty convolution", BAD, w.finalize_empty(Kind::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)),
        ("finalise an empty pointwise", BAD, w.finalize_empty(Kind::OPERATION_POINTWISE_DESCRIPTOR)),
        // Finalising twice.
        ("finalise the heuristic twice", BAD, w.finalize(w.heuristic)),
        ("finalise the engine twice", BAD, w.finalize(w.engine)),
        ("finalise the configuration twice", BAD, w.finalize(w.config)),
        ("finalise the plan twice", BAD, w.finalize(w.plan)),
        ("finalise the knob choice twice", BAD, w.finalize(w.knob)),
        // Setting after finalising.
        ("set the heuristic", UNINITIALIZED, w.set(w.heuristic, Name::ENGINEHEUR_MODE, Type::HEUR_MODE, &[0i32])),
        ("set the engine", UNINITIALIZED, w.set(w.engine, Name::ENGINE_GLOBAL_INDEX, Type::INT64, &[1i64])),
        (
            "set the configuration",
            UNINITIALIZED,
            w.set(w.config, Name::ENGINECFG_ENGINE, Type::BACKEND_DESCRIPTOR, &[w.engine]),
        ),
        (
            "set the plan",
            UNINITIALIZED,
            w.set(w.plan, Name::EXECUTION_PLAN_ENGINE_CONFIG, Type::BACKEND_DESCRIPTOR, &[w.config]),
        ),
        ("set the knob choice", UNINITIALIZED, w.set(w.knob, Name::KNOB_CHOICE_KNOB_VALUE, Type::INT64, &[1i64])),
        ("set the tensor", UNINITIALIZED, w.set(w.tensor, Name::TENSOR_UNIQUE_ID, Type::INT64, &[1i64])),
        ("set the pack", UNINITIALIZED, w.set(w.pack, Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, &[1i64])),
        ("set the graph", UNINITIALIZED, w.set(w.graph, Name::OPERATIONGRAPH_NAME_EXT, Type::CHAR, b"name")),
        // Reading before finalising.
        (
            "read a heuristic",
            UNFINALIZED,
            w.get_new(Kind::ENGINEHEUR_DESCRIPTOR, Name::ENGINEHEUR_RESULTS, Type::BACKEND_DESCRIPTOR),
        ),
        ("read an engine", UNINITIALIZED, w.get_new(Kind::ENGINE_DESCRIPTOR, Name::ENGINE_GLOBAL_INDEX, Type::INT64)),
        (
            "read a configuration",
            UNINITIALIZED,
            w.get_new(Kind::ENGINECFG_DESCRIPTOR, Name::ENGINECFG_WORKSPACE_SIZE, Type::INT64),
        ),
        (
            "read a plan",
            UNINITIALIZED,
            w.get_new(Kind::EXECUTION_PLAN_DESCRIPTOR, Name::EXECUTION_PLAN_WORKSPACE_SIZE, Type::INT64),
        ),
        (
            "read a knob choice",
            UNINITIALIZED,
            w.get_new(Kind::KNOB_CHOICE_DESCRIPTOR, Name::KNOB_CHOICE_KNOB_VALUE, Type::INT64),
        ),
        ("read a tensor", UNINITIALIZED, w.get_new(Kind::TENSOR_DESCRIPTOR, Name::TENSOR_UNIQUE_ID, Type::INT64)),
        (
            "read a pack",
            UNINITIALIZED,
            w.get_new(Kind::VARIANT_PACK_DESCRIPTOR, Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64),
        ),
        // Referring to what is not finalized, null, destroyed, or something else.
        (
            "a raw graph for a heuristic",
            UNFINALIZED,
            w.set_new(Kind::ENGINEHEUR_DESCRIPTOR, Name::ENGINEHEUR_OPERATION_GRAPH, Type::BACKEND_DESCRIPTOR, &raw),
        ),
        (
            "a raw graph for an engine",
            UNFINALIZED,
            w.set_new(Kind::ENGINE_DESCRIPTOR, Name::ENGINE_OPERATION_GRAPH, Type::BACKEND_DESCRIPTOR, &raw),
        ),
        (
            "a graph as engine",
            BAD,
            w.set_new(Kind::ENGINECFG_DESCRIPTOR, Name::ENGINECFG_ENGINE, Type::BACKEND_DESCRIPTOR, &graph),
        ),
        (
            "a graph as configuration",
            BAD,
            w.set_new(
                Kind::EXECUTION_PLAN_DESCRIPTOR,
                Name::EXECUTION_PLAN_ENGINE_CONFIG,
                Type::BACKEND_DESCRIPTOR,
                &graph,
            ),
        ),
        (
            "a null configuration",
            NULL,
            w.set_new(
                Kind::EXECUTION_PLAN_DESCRIPTOR,
                Name::EXECUTION_PLAN_ENGINE_CONFIG,
                Type::BACKEND_DESCRIPTOR,
                &[0usize],
            ),
        ),
        (
            "a destroyed configuration",
            BAD,
            w.set_new(
                Kind::EXECUTION_PLAN_DESCRIPTOR,
                Name::EXECUTION_PLAN_ENGINE_CONFIG,
                Type::BACKEND_DESCRIPTOR,
                &[w.destroyed],
            ),
        ),
        (
            "two engines",
            BAD,
            w.set_new(
                Kind::ENGINECFG_DESCRIPTOR,
                Name::ENGINECFG_ENGINE,
                Type::BACKEND_DESCRIPTOR,
                &[w.engine, w.engine],
            ),
        ),
        (
            "a graph as knob choice",
            BAD,
            w.set_new(Kind::ENGINECFG_DESCRIPTOR, Name::ENGINECFG_KNOB_CHOICES, Type::BACKEND_DESCRIPTOR, &graph),
        ),
        ("a null handle for a graph", NULL, {
            w.set_new(Kind::OPERATIONGRAPH_DESCRIPTOR, Name::OPERATIONGRAPH_HANDLE, Type::HANDLE, &[0usize])
        }),
        ("a destroyed handle for a graph", BAD, {
            w.set_new(Kind::OPERATIONGRAPH_DESCRIPTOR, Name::OPERATIONGRAPH_HANDLE, Type::HANDLE, &[w.destroyed_handle])
        }),
        ("a tensor as operation", UNSUPPORTED, {
            let (name, kind) = (Name::OPERATIONGRAPH_OPS, Type::BACKEND_DESCRIPTOR);
            w.set_new(Kind::OPERATIONGRAPH_DESCRIPTOR, name, kind, &[w.tensor])
        }),
        ("another heuristic mode", UNSUPPORTED, {
            w.set_new(Kind::ENGINEHEUR_DESCRIPTOR, Name::ENGINEHEUR_MODE, Type::HEUR_MODE, &[1i32])
        }),
        ("two heuristic modes", BAD, {
            w.set_new(Kind::ENGINEHEUR_DESCRIPTOR, Name::ENGINEHEUR_MODE, Type::HEUR_MODE, &[0i32, 0])
        }),
        // Attributes that a descriptor does not have are absent, not wrong.
        ("numerical notes", UNSUPPORTED, w.get(w.engine, Name::ENGINE_NUMERICAL_NOTE, Type::NUMERICAL_NOTE)),
        ("layout info", UNSUPPORTED, w.get(w.engine, Name::ENGINE_LAYOUT_INFO, Type::BACKEND_DESCRIPTOR)),
        (
            "intermediate info",
            UNSUPPORTED,
            w.get(w.config, Name::ENGINECFG_INTERMEDIATE_INFO, Type::BACKEND_DESCRIPTOR),
        ),
        ("the handle of a graph", UNSUPPORTED, w.get(w.graph, Name::OPERATIONGRAPH_HANDLE, Type::HANDLE)),
        ("the engine count of a graph", UNSUPPORTED, {
            w.get(w.graph, Name::OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, Type::INT64)
        }),
        ("the JSON of a plan", UNSUPPORTED, w.get(w.plan, Name::EXECUTION_PLAN_JSON_REPRESENTATION, Type::CHAR)),
        ("intermediates of a pack", UNSUPPORTED, w.get(w.pack, Name::VARIANT_PACK_INTERMEDIATES, Type::VOID_PTR)),
        // Reading with the wrong type.
        ("the workspace as int", BAD, w.get(w.plan, Name::EXECUTION_PLAN_WORKSPACE_SIZE, Type::INT32)),
        ("the id as text", BAD, w.get(w.engine, Name::ENGINE_GLOBAL_INDEX, Type::CHAR)),
        ("the engine as int", BAD, w.get(w.config, Name::ENGINECFG_ENGINE, Type::INT64)),
        // Everything still works.
        ("the workspace", OK, w.get(w.plan, Name::EXECUTION_PLAN_WORKSPACE_SIZE, Type::INT64)),
        ("the engine", OK, w.get(w.config, Name::ENGINECFG_ENGINE, Type::BACKEND_DESCRIPTOR)),
    ];
    w.check(cases);
}

/// A pack whose parts do not fit together is refused when it is finalized.
#[test]
fn backend_variant_packs() {
    let w = World::new();
    let memory = w.memory.as_ptr().cast::<c_void>();
    type Part<'a> = (Name, &'a [i64]);
    type Case<'a> = (&'a str, &'a [i64], usize, &'a [Part<'a>], Status);
    let cases: &[Case] = &[
        ("counts differ", &[1, 2], 3, &[], BAD),
        ("right", &[1, 2, 3], 3, &[], OK),
        (
            "override of a stranger",
            &[1, 2, 3],
            3,
            &[
                (Name::VARIANT_PACK_OVERRIDE_UNIQUE_IDS_EXT, &[9]),
                (Name::VARIANT_PACK_OVERRIDE_LENGTHS_EXT, &[1]),
                (Name::VARIANT_PACK_OVERRIDE_SHAPES_EXT, &[1]),
                (Name::VARIANT_PACK_OVERRIDE_STRIDES_EXT, &[1]),
            ],
            BAD,
        ),
        (
            "override twice",
            &[1, 2, 3],
            3,
            &[
                (Name::VARIANT_PACK_OVERRIDE_UNIQUE_IDS_EXT, &[1, 1]),
                (Name::VARIANT_PACK_OVERRIDE_LENGTHS_EXT, &[1, 1]),
                (Name::VARIANT_PACK_OVERRIDE_SHAPES_EXT, &[1, 1]),
                (Name::VARIANT_PACK_OVERRIDE_STRIDES_EXT, &[1, 1]),
            ],
            BAD,
        ),
        (
            "override of length 0",
            &[1, 2, 3],
            3,
            &[(Name::VARIANT_PACK_OVERRIDE_UNIQUE_IDS_EXT, &[1]), (Name::VARIANT_PACK_OVERRIDE_LENGTHS_EXT, &[0])],
            BAD,
        ),
        (
            "override lengths that overflow",
            &[1, 2, 3],
            3,
            &[
                (Name::VARIANT_PACK_OVERRIDE_UNIQUE_IDS_EXT, &[1, 2]),
                (Name::VARIANT_PACK_OVERRIDE_LENGTHS_EXT, &[i64::MAX, i64::MAX]),
                (Name::VARIANT_PACK_OVERRIDE_SHAPES_EXT, &[1]),
                (Name::VARIANT_PACK_OVERRIDE_STRIDES_EXT, &[1]),
            ],
            BAD,
        ),
        (
            "override shapes missing",
            &[1, 2, 3],
            3,
            &[
                (Name::VARIANT_PACK_OVERRIDE_UNIQUE_IDS_EXT, &[1]),
                (Name::VARIANT_PACK_OVERRIDE_LENGTHS_EXT, &[2]),
                (Name::VARIANT_PACK_OVERRIDE_STRIDES_EXT, &[2, 1]),
            ],
            BAD,
        ),
    ];
    let mut answers = Vec::new();
    for (what, uids, pointers, parts, wanted) in cases {
        let pack = w.new_descriptor(Kind::VARIANT_PACK_DESCRIPTOR);
        w.ok(w.set(pack, Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, uids));
        w.ok(w.set(pack, Name::VARIANT_PACK_DATA_POINTERS, Type::VOID_PTR, &vec![memory; *pointers]));
        for (name, values) in *parts {
            w.ok(w.set(pack, *name, Type::INT64, values));
        }
        answers.push((*what, *wanted, w.finalize(pack)));
        // SAFETY: the descriptor is alive.
        w.ok(unsafe { (w.b.destroy_descriptor)(pack) });
    }
    w.check(answers);

    // The plan was built without overrides, and memory that is less aligned than its tensor is refused.
    let run = |uids: &[i64], pointers: &[usize], overrides: bool| {
        let pack = w.new_descriptor(Kind::VARIANT_PACK_DESCRIPTOR);
        w.ok(w.set(pack, Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, uids));
        w.ok(w.set(pack, Name::VARIANT_PACK_DATA_POINTERS, Type::VOID_PTR, pointers));
        w.ok(w.set(pack, Name::VARIANT_PACK_WORKSPACE, Type::VOID_PTR, &[memory]));
        if overrides {
            w.ok(w.set(pack, Name::VARIANT_PACK_OVERRIDE_UNIQUE_IDS_EXT, Type::INT64, &[1i64]));
            w.ok(w.set(pack, Name::VARIANT_PACK_OVERRIDE_LENGTHS_EXT, Type::INT64, &[4i64]));
            w.ok(w.set(pack, Name::VARIANT_PACK_OVERRIDE_SHAPES_EXT, Type::INT64, &[1i64, 4, 6, 6]));
            w.ok(w.set(pack, Name::VARIANT_PACK_OVERRIDE_STRIDES_EXT, Type::INT64, &[144i64, 36, 6, 1]));
        }
        w.ok(w.finalize(pack));
        // SAFETY: the memory is as large as all tensors together, wherever in its first bytes they start.
        let status = unsafe { (w.b.execute)(w.handle, w.plan, pack) };
        // SAFETY: the descriptor is alive.
        w.ok(unsafe { (w.b.destroy_descriptor)(pack) });
        status
    };
    let at = memory as usize;
    w.check(vec![
        ("all three", OK, run(&[1, 2, 3], &[at; 3], false)),
        ("strangers beside them", OK, run(&[4, 3, 2, 1], &[0, at, at, at], false)),
        ("overrides", UNSUPPORTED, run(&[1, 2, 3], &[at; 3], true)),
        ("misaligned", BAD, run(&[1, 2, 3], &[at, at + 4, at], false)),
        ("a tensor missing", Status::PLUGIN_ERROR, run(&[1, 3], &[at; 2], false)),
        ("memory missing", Status::PLUGIN_ERROR, run(&[1, 2, 3], &[at, 0, at], false)),
    ]);
}
