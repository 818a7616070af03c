//! The embedded backend through its C ABI: plugins found and loaded, graphs run, misuse answered with hipDNN's statuses.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use hipdnn_rs_integration_tests::artifacts::{Artifact, compile, library_path};
use hipdnn_rs_integration_tests::backend::{Client, Descriptor, Handle};
use hipdnn_rs_integration_tests::reference::{assert_close, convolve};
use hipdnn_rs_integration_tests::tensor::{AlignedBytes, HostTensor};
use hipdnn_schemas::{Convolution, DataType, GraphBuilder, GraphDef, Pointwise, PointwiseMode, TensorDef};
use hipdnn_sdk_bindings::hipdnn::backend::{
    AttributeName as Name, AttributeType as Type, DescriptorType as Kind, PluginLoadingMode, Status,
};
use hipdnn_sdk_bindings::hipdnn::plugin::engine_id;

const HOST: &str = "HIPDNN_RS_CPU_ENGINE";

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("backend").join(name)
}

/// A backend of the test's own, installed with our plugin.
fn client(test: &str) -> Arc<Client> {
    settings();
    Client::installed(&scratch(test), &[library_path(Artifact::Plugin)])
}

fn settings() {
    static SETTINGS: Once = Once::new();
    SETTINGS.call_once(|| {
        // SAFETY: `Once` makes this the only writer, and every test calls it before it opens a library that reads the environment.
        unsafe {
            // The tests say where plugins are; and on a machine with a GPU the CPU engine would leave graphs to others.
            std::env::remove_var("HIPDNN_PLUGIN_DIR");
            std::env::set_var("HIPDNN_RS_CPU_ENGINE", "on");
        }
    });
}

/// conv + bias + ReLU with values and the exact result.
struct Case {
    bytes: Vec<u8>,
    json: String,
    tensors: Vec<HostTensor>,
    convolution: Convolution,
}

const Y: usize = 3;

impl Case {
    fn new(data_type: DataType) -> Case {
        let mut graph = GraphBuilder::new("conv_bias_relu").compute(DataType::Float);
        let convolution = Convolution { pre_padding: vec![1, 0], post_padding: vec![0, 1], ..Convolution::new(2) };
        let defs = [(1, [2, 5, 8, 9]), (-2, [6, 5, 3, 3]), (3, [1, 6, 1, 1]), (40, [2, 6, 7, 8])]
            .map(|(uid, dims)| TensorDef::new(uid, data_type, &dims));
        let [x, w, b, y] = defs.clone().map(|def| graph.tensor(def));
        let middle = |uid| TensorDef::new(uid, DataType::Float, &[2, 6, 7, 8]).intermediate();
        let (conv, sum) = (graph.tensor(middle(100)), graph.tensor(middle(101)));
        graph.convolution_fwd(x, w, conv, convolution.clone());
        graph.pointwise(Pointwise::binary(PointwiseMode::Add, conv, b, sum));
        graph.pointwise(Pointwise::unary(PointwiseMode::ReluFwd, sum, y));
        let mut tensors: Vec<_> =
            defs[..Y].iter().map(|def| HostTensor::random(def, def.uid.0.unsigned_abs())).collect();
        tensors.push(HostTensor::blank(&defs[Y]));
        let graph = graph.build().expect("the graph is well formed");
        Case { bytes: graph.def().to_bytes(), json: graph.def().to_json(), tensors, convolution }
    }

    fn check(&self, what: &str) {
        let y = &self.tensors[Y];
        let mut wanted = convolve(&self.tensors[0], &self.tensors[1], &y.def().dims, &self.convolution, 16.0);
        for (index, exact) in hipdnn_rs_integration_tests::tensor::indices(&y.def().dims).zip(&mut wanted) {
            let bias = self.tensors[2].get(&[0, index[1], 0, 0]);
            exact.error += 2f64.powi(-23) * (exact.value.abs() + bias.abs());
            exact.value = (exact.value + bias).max(0.0);
        }
        assert_close(what, y, &wanted);
    }

    fn clear(&mut self) {
        self.tensors[Y] = HostTensor::blank(&self.tensors[Y].def().clone());
    }

    fn pack(&mut self, client: &Arc<Client>, workspace: *mut c_void) -> Descriptor {
        let pack = self.unfinished_pack(client, workspace);
        pack.finalize().expect("the pack is complete");
        pack
    }

    fn unfinished_pack(&mut self, client: &Arc<Client>, workspace: *mut c_void) -> Descriptor {
        let pack = client.descriptor(Kind::VARIANT_PACK_DESCRIPTOR).expect("a variant pack");
        let buffers: Vec<_> = self.tensors.iter_mut().map(HostTensor::buffer).collect();
        let uids: Vec<i64> = buffers.iter().map(|buffer| buffer.uid).collect();
        let pointers: Vec<*mut c_void> = buffers.iter().map(|buffer| buffer.ptr).collect();
        pack.set(Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, &uids).expect("uids");
        pack.set(Name::VARIANT_PACK_DATA_POINTERS, Type::VOID_PTR, &pointers).expect("pointers");
        pack.set(Name::VARIANT_PACK_WORKSPACE, Type::VOID_PTR, &[workspace]).expect("a workspace");
        pack
    }
}

fn plan_of(client: &Arc<Client>, configuration: &Descriptor) -> Descriptor {
    let plan = client.descriptor(Kind::EXECUTION_PLAN_DESCRIPTOR).expect("a plan");
    plan.set(Name::EXECUTION_PLAN_ENGINE_CONFIG, Type::BACKEND_DESCRIPTOR, &[configuration.raw()])
        .expect("a configuration");
    plan.finalize().expect("the plan is built");
    plan
}

fn run(handle: &Handle, plan: &Descriptor, case: &mut Case, what: &str) {
    let bytes = plan.number(Name::EXECUTION_PLAN_WORKSPACE_SIZE).expect("a size");
    let mut workspace = AlignedBytes::filled(usize::try_from(bytes).expect("not negative"), 0xff);
    let pointer = if bytes == 0 { std::ptr::null_mut() } else { workspace.as_mut_ptr().cast() };
    for round in 0..2 {
        case.clear();
        let pack = case.pack(handle.client(), pointer);
        // SAFETY: the pack's pointers are those of tensors that `case` keeps.
        unsafe { handle.execute(plan, &pack) }.unwrap_or_else(|error| panic!("{what}, round {round}: {error:?}"));
        case.check(what);
    }
    assert!(workspace.guards_hold(), "{what}: written outside the workspace");
}

#[test]
fn the_plugin_beside_the_library_is_found_and_described() {
    let client = client("described");
    let handle = client.handle().expect("a handle");
    let table = client.table();
    let version = table.version().expect("a version");
    assert!(
        version.starts_with("1.") && version.split('.').count() == 4,
        "{version}: frontends want four fields and major 1"
    );
    let mut count = 0;
    // SAFETY: handle and pointer are valid.
    client.check(unsafe { table.get_engine_count.expect("exported")(handle.raw(), &mut count) }).expect("a count");
    assert_eq!(count, 2);

    let null = std::ptr::null_mut::<c_char>();
    let info = table.get_engine_info.expect("exported");
    let mut engines = Vec::new();
    for index in 0..count {
        let (mut id, mut sizes) = (0i64, [0usize; 4]);
        let [name_len, plugin_len, version_len, type_len] = &mut sizes;
        // SAFETY: null buffers with valid lengths ask for the sizes.
        let status = unsafe {
            info(handle.raw(), index, &mut id, null, name_len, null, plugin_len, null, version_len, null, type_len)
        };
        client.check(status).expect("sizes");
        let mut texts = sizes.map(|size| vec![0u8; size]);
        let [name, plugin, version, kind] = &mut texts;
        // SAFETY: the buffers are as large as their lengths say.
        let status = unsafe {
            info(
                handle.raw(),
                index,
                &mut id,
                name.as_mut_ptr().cast(),
                &mut sizes[0],
                plugin.as_mut_ptr().cast(),
                &mut sizes[1],
                version.as_mut_ptr().cast(),
                &mut sizes[2],
                kind.as_mut_ptr().cast(),
                &mut sizes[3],
            )
        };
        client.check(status).expect("texts");
        let text = |bytes| CString::from_vec_with_nul(bytes).expect("terminated").into_string().expect("UTF-8");
        let texts = texts.map(text);
        assert_eq!(id, engine_id(&texts[0]));
        assert!(texts[1..].iter().all(|text| !text.is_empty()), "{texts:?}");
        engines.push(texts[0].clone());
    }
    engines.sort();
    assert_eq!(engines, [HOST, "HIPDNN_RS_GPU_ENGINE"], "engines are listed whatever devices there are");
    // SAFETY: null buffers with valid lengths ask for the sizes; the index is out of range, which the backend checks.
    let status = unsafe { info(handle.raw(), count, &mut 0, null, &mut 0, null, &mut 0, null, &mut 0, null, &mut 0) };
    assert_eq!(status, Status::BAD_PARAM);

    let by_name = table.get_engine_id_by_name.expect("exported");
    let mut found = 0;
    // SAFETY: texts and pointers are valid.
    unsafe {
        assert_eq!(by_name(handle.raw(), c"HIPDNN_RS_CPU_ENGINE".as_ptr(), &mut found), Status::SUCCESS);
        assert_eq!(by_name(handle.raw(), c"NO_SUCH_ENGINE".as_ptr(), &mut found), Status::NOT_SUPPORTED);
    }
    assert_eq!(found, engine_id(HOST));
}

#[test]
fn graphs_run_from_json_and_from_bytes() {
    let client = client("run");
    let handle = client.handle().expect("a handle");
    for data_type in [DataType::Float, DataType::Half, DataType::BFloat16] {
        let mut case = Case::new(data_type);
        for form in ["JSON", "binary"] {
            let what = format!("{form}, {data_type}");
            let graph = match form {
                "JSON" => client.graph_from_json(&case.json),
                _ => client.graph_from_bytes(&case.bytes),
            };
            let graph = graph.unwrap_or_else(|error| panic!("{what}: {error:?}"));
            handle.finalize_graph(&graph).unwrap_or_else(|error| panic!("{what}: {error:?}"));
            let configurations = handle.configurations(&graph).unwrap_or_else(|error| panic!("{what}: {error:?}"));
            assert_eq!(configurations.len(), 1, "{what}");
            configurations[0].finalize().unwrap_or_else(|error| panic!("{what}: {error:?}"));
            let engine = configurations[0].child(Name::ENGINECFG_ENGINE).expect("an engine");
            assert_eq!(engine.number(Name::ENGINE_GLOBAL_INDEX), Ok(engine_id(HOST)), "{what}");
            assert_eq!(engine.text(Name::ENGINE_NAME_EXT).as_deref(), Ok(HOST), "{what}");
            let plan = plan_of(&client, &configurations[0]);
            // The plan stands alone: what it was made of may go.
            drop((graph, configurations, engine));
            run(&handle, &plan, &mut case, &what);
        }
    }
}

/// A variant pack has the shapes of its execution, of a plan that was built or restored. Graphs that do not allow that have no
/// such executions.
#[test]
fn shapes_are_overridden_by_variant_packs() {
    let client = client("overrides");
    let handle = client.handle().expect("a handle");
    for is_allowed in [true, false] {
        let mut case = Case::new(DataType::Float);
        let mut def = GraphDef::from_bytes(&case.bytes).expect("a graph");
        def.is_override_shape_enabled = is_allowed;
        let graph = client.graph_from_bytes(&def.to_bytes()).expect("a graph");
        handle.finalize_graph(&graph).expect("the graph is right");
        let configuration = handle.configurations(&graph).expect("engines").pop().expect("the CPU engine takes it");
        configuration.finalize().expect("the configuration is right");
        let built = plan_of(&client, &configuration);
        let restored = handle.restored(&built.stored_plan().expect("stored")).expect("restored");
        for plan in [&built, &restored] {
            run(&handle, plan, &mut case, "declared shapes");
            let whole: Vec<f64> = (0..8).map(|column| case.tensors[Y].get(&[0, 5, 6, column])).collect();
            case.clear();
            let bytes = plan.number(Name::EXECUTION_PLAN_WORKSPACE_SIZE).expect("a size");
            let mut workspace = AlignedBytes::filled(usize::try_from(bytes).expect("not negative"), 0xff);
            let pack = case.unfinished_pack(&client, workspace.as_mut_ptr().cast());
            // One image instead of two.
            for (name, numbers) in [
                (Name::VARIANT_PACK_OVERRIDE_UNIQUE_IDS_EXT, vec![1, 40]),
                (Name::VARIANT_PACK_OVERRIDE_LENGTHS_EXT, vec![4, 4]),
                (Name::VARIANT_PACK_OVERRIDE_SHAPES_EXT, vec![1, 5, 8, 9, 1, 6, 7, 8]),
                (Name::VARIANT_PACK_OVERRIDE_STRIDES_EXT, vec![360, 72, 9, 1, 336, 56, 8, 1]),
            ] {
                pack.set::<i64>(name, Type::INT64, &numbers).expect("overrides");
            }
            pack.finalize().expect("the pack is complete");
            // SAFETY: the case keeps the tensors, which are larger than the overridden ones; the workspace is the plan's.
            let executed = unsafe { handle.execute(plan, &pack) };
            if !is_allowed {
                assert_eq!(executed.expect_err("no overrides").status, Status::NOT_SUPPORTED);
                continue;
            }
            executed.expect("executed");
            for (column, whole) in whole.iter().enumerate() {
                let got = case.tensors[Y].get(&[0, 5, 6, column as i64]);
                assert!((got - whole).abs() <= 1e-4, "column {column}: expected {whole}, got {got}");
            }
            assert!(case.tensors[Y].get(&[1, 0, 0, 0]).is_nan(), "the other image is not written");
        }
    }
}

#[test]
fn an_engine_chosen_by_id_takes_knobs() {
    let client = client("knobs");
    let handle = client.handle().expect("a handle");
    let mut case = Case::new(DataType::Float);
    let graph = client.graph_from_bytes(&case.bytes).expect("a graph");
    handle.finalize_graph(&graph).expect("finalized");
    let engine = client.descriptor(Kind::ENGINE_DESCRIPTOR).expect("an engine");
    engine.set(Name::ENGINE_OPERATION_GRAPH, Type::BACKEND_DESCRIPTOR, &[graph.raw()]).expect("a graph");
    engine.set(Name::ENGINE_GLOBAL_INDEX, Type::INT64, &[engine_id(HOST)]).expect("an id");
    engine.finalize().expect("the engine takes the graph");
    assert!(engine.count(Name::ENGINE_KNOB_INFO, Type::BACKEND_DESCRIPTOR).expect("knobs") >= 3);

    let knob = |id: &str, value: i64| {
        let choice = client.descriptor(Kind::KNOB_CHOICE_DESCRIPTOR).expect("a choice");
        choice.set(Name::KNOB_CHOICE_KNOB_TYPE, Type::CHAR, id.as_bytes()).expect("an id");
        choice.set(Name::KNOB_CHOICE_KNOB_VALUE, Type::INT64, &[value]).expect("a value");
        choice.finalize().expect("complete");
        choice
    };
    let configuration = |knobs: &[Descriptor]| {
        let configuration = client.descriptor(Kind::ENGINECFG_DESCRIPTOR).expect("a configuration");
        configuration.set(Name::ENGINECFG_ENGINE, Type::BACKEND_DESCRIPTOR, &[engine.raw()]).expect("an engine");
        let raw: Vec<_> = knobs.iter().map(Descriptor::raw).collect();
        configuration.set(Name::ENGINECFG_KNOB_CHOICES, Type::BACKEND_DESCRIPTOR, &raw).expect("choices");
        configuration
    };
    let good = configuration(&[knob("hipdnn_rs.cpu.threads", 1), knob("hipdnn_rs.cpu.winograd", 0)]);
    good.finalize().expect("the knobs are good");
    run(&handle, &plan_of(&client, &good), &mut case, "one thread, no Winograd");

    let bad = configuration(&[knob("hipdnn_rs.cpu.threads", -7)]);
    let refused = bad.finalize().and_then(|()| {
        let plan = client.descriptor(Kind::EXECUTION_PLAN_DESCRIPTOR)?;
        plan.set(Name::EXECUTION_PLAN_ENGINE_CONFIG, Type::BACKEND_DESCRIPTOR, &[bad.raw()])?;
        plan.finalize()
    });
    let error = refused.expect_err("a negative number of threads");
    assert!(error.message.contains("hipdnn_rs.cpu.threads"), "{error:?}");

    let unknown = client.descriptor(Kind::ENGINE_DESCRIPTOR).expect("an engine");
    unknown.set(Name::ENGINE_OPERATION_GRAPH, Type::BACKEND_DESCRIPTOR, &[graph.raw()]).expect("a graph");
    unknown.set(Name::ENGINE_GLOBAL_INDEX, Type::INT64, &[4711i64]).expect("an id");
    assert_eq!(unknown.finalize().expect_err("no engine 4711").status, Status::BAD_PARAM);
}

#[test]
fn a_graph_that_no_engine_takes_has_no_configurations() {
    let client = client("declined");
    let handle = client.handle().expect("a handle");
    let mut graph = GraphBuilder::new("double").compute(DataType::Double);
    let [x, w, y] = [(1, [1, 1, 4, 4]), (2, [1, 1, 1, 1]), (3, [1, 1, 4, 4])]
        .map(|(uid, dims)| graph.tensor(TensorDef::new(uid, DataType::Double, &dims)));
    graph.convolution_fwd(x, w, y, Convolution::new(2));
    let descriptor = client.graph_from_bytes(&graph.def().to_bytes()).expect("the graph itself is fine");
    handle.finalize_graph(&descriptor).expect("finalized");
    assert_eq!(handle.configurations(&descriptor).expect("an empty answer").len(), 0);
}

#[test]
fn a_plugin_written_in_c_serves_beside_ours() {
    settings();
    let test = scratch("two-plugins");
    let foreign = test.join("build/libtest_c_plugin.so");
    compile("test_plugin.c", &foreign, &["-shared", "-fPIC"]);
    let client = Client::installed(&test.join("prefix"), &[foreign, library_path(Artifact::Plugin)]);
    let handle = client.handle().expect("a handle");
    let mut case = Case::new(DataType::Float);
    let graph = client.graph_from_bytes(&case.bytes).expect("a graph");
    handle.finalize_graph(&graph).expect("finalized");
    let configurations = handle.configurations(&graph).expect("configurations");
    let mut names = Vec::new();
    for configuration in &configurations {
        configuration.finalize().expect("complete");
        let name = configuration.child(Name::ENGINECFG_ENGINE).and_then(|engine| engine.text(Name::ENGINE_NAME_EXT));
        let name = name.expect("a name");
        run(&handle, &plan_of(&client, configuration), &mut case, &name);
        names.push(name);
    }
    names.sort();
    assert_eq!(names, [HOST, "TEST_C_ENGINE"]);
}

#[test]
fn files_that_are_no_plugins_are_passed_over() {
    settings();
    let test = scratch("rubbish");
    let client = Client::installed(&test, &[library_path(Artifact::Plugin)]);
    let engines = test.join("lib/hipdnn_plugins/engines");
    std::fs::write(engines.join("libempty.so"), b"").expect("writable");
    std::fs::write(engines.join("libtext.so"), b"no library").expect("writable");
    std::fs::write(engines.join("notes.txt"), b"no library").expect("writable");
    std::fs::copy(library_path(Artifact::Backend), engines.join("liba_backend.so")).expect("writable");
    std::fs::create_dir(engines.join("directory.so")).expect("writable");
    let handle = client.handle().expect("other files don't matter");
    assert_eq!(loaded(&handle).len(), 1);
}

fn loaded(handle: &Handle) -> Vec<String> {
    let client = handle.client();
    let function = client.table().get_loaded_engine_plugin_paths.expect("exported");
    let (mut count, mut longest) = (0, 0);
    // SAFETY: a null array asks for the count and the length.
    client.check(unsafe { function(handle.raw(), &mut count, std::ptr::null_mut(), &mut longest) }).expect("sizes");
    let mut buffers = vec![vec![0u8; longest]; count];
    let mut pointers: Vec<*mut c_char> = buffers.iter_mut().map(|buffer| buffer.as_mut_ptr().cast()).collect();
    // SAFETY: there are `count` buffers of `longest` bytes.
    client.check(unsafe { function(handle.raw(), &mut count, pointers.as_mut_ptr(), &mut longest) }).expect("paths");
    // SAFETY: the backend has terminated each text within its buffer.
    pointers.iter().map(|text| unsafe { CStr::from_ptr(*text) }.to_string_lossy().into_owned()).collect()
}

#[test]
fn plugin_paths_are_replaced_and_added_to() {
    settings();
    let test = scratch("paths");
    let client = Client::installed(&test.join("prefix"), &[]);
    let elsewhere = test.join("elsewhere");
    std::fs::create_dir_all(&elsewhere).expect("writable");
    let copy = elsewhere.join(Artifact::Plugin.file_name());
    std::fs::copy(library_path(Artifact::Plugin), &copy).expect("writable");
    let set = client.table().set_engine_plugin_paths.expect("exported");
    let path = CString::new(copy.to_str().expect("UTF-8")).expect("no NUL");
    let none = CString::new(test.join("nothing/here").to_str().expect("UTF-8")).expect("no NUL");
    // SAFETY: arrays and texts are valid for each call, or null on purpose.
    unsafe {
        assert_eq!(set(1, std::ptr::null(), PluginLoadingMode::ADDITIVE), Status::BAD_PARAM_NULL_POINTER);
        assert_eq!(set(1, [std::ptr::null()].as_ptr(), PluginLoadingMode::ADDITIVE), Status::BAD_PARAM_NULL_POINTER);
    }
    assert_eq!(loaded(&client.handle().expect("no plugin is no error")), Vec::<String>::new());
    // SAFETY: the array has one valid text.
    assert_eq!(unsafe { set(1, [path.as_ptr()].as_ptr(), PluginLoadingMode::ADDITIVE) }, Status::SUCCESS);
    let handle = client.handle().expect("a handle");
    assert_eq!(loaded(&handle), [copy.canonicalize().expect("it exists").to_str().expect("UTF-8")]);
    // SAFETY: the array has one valid text, of a path that is not there.
    unsafe {
        assert_eq!(
            set(1, [none.as_ptr()].as_ptr(), PluginLoadingMode::ABSOLUTE),
            Status::NOT_SUPPORTED,
            "a handle is alive"
        );
    }
    drop(handle);
    // SAFETY: the array has one valid text, of a path that is not there.
    unsafe {
        assert_eq!(set(1, [none.as_ptr()].as_ptr(), PluginLoadingMode::ABSOLUTE), Status::SUCCESS);
    }
    assert_eq!(loaded(&client.handle().expect("a handle")), Vec::<String>::new());
}

#[test]
fn serialized_graphs_come_back() {
    let client = client("serialized");
    let case = Case::new(DataType::Float);
    let graph = client.graph_from_json(&case.json).expect("a graph");
    let table = client.table();
    let binary = table.get_serialized_binary_graph.expect("exported");
    let json = table.get_serialized_json_graph.expect("exported");
    let mut size = 0;
    // SAFETY: descriptor and pointers are valid; a null buffer asks for the size.
    unsafe {
        assert_eq!(binary(graph.raw(), 0, &mut size, std::ptr::null_mut()), Status::SUCCESS);
        let mut bytes = vec![0u8; size];
        assert_eq!(binary(graph.raw(), size - 1, &mut size, bytes.as_mut_ptr()), Status::BAD_PARAM_SIZE_INSUFFICIENT);
        assert_eq!(binary(graph.raw(), bytes.len(), &mut size, bytes.as_mut_ptr()), Status::SUCCESS);
        let back = hipdnn_schemas::Graph::from_bytes(&bytes).expect("a good graph");
        assert_eq!(back.nodes().len(), 3);

        assert_eq!(json(graph.raw(), 0, &mut size, std::ptr::null_mut()), Status::SUCCESS);
        let mut text = vec![0u8; size];
        assert_eq!(json(graph.raw(), size, &mut size, text.as_mut_ptr().cast()), Status::SUCCESS);
        let text = CString::from_vec_with_nul(text).expect("the size counts the NUL").into_string().expect("UTF-8");
        let back = hipdnn_schemas::Graph::from_json(&text).expect("a good graph");
        assert_eq!(back.nodes().len(), 3);
        assert_eq!(binary(graph.raw(), 0, std::ptr::null_mut(), std::ptr::null_mut()), Status::BAD_PARAM_NULL_POINTER);
        assert_eq!(binary(std::ptr::null_mut(), 0, &mut size, std::ptr::null_mut()), Status::BAD_PARAM_NULL_POINTER);
    }
}

#[test]
fn misuse_is_answered_with_the_documented_statuses() {
    let client = client("misuse");
    let handle = client.handle().expect("a handle");
    let mut case = Case::new(DataType::Float);
    let table = client.table();
    let status = |outcome: Result<(), hipdnn_rs_integration_tests::backend::BackendError>| {
        outcome.map_or_else(|error| error.status, |()| Status::SUCCESS)
    };

    // Nulls and unknown kinds.
    let mut raw = std::ptr::null_mut();
    // SAFETY: pointers are valid, or null on purpose.
    unsafe {
        assert_eq!((table.create)(std::ptr::null_mut()), Status::BAD_PARAM_NULL_POINTER);
        assert_eq!((table.destroy)(std::ptr::null_mut()), Status::BAD_PARAM_NULL_POINTER);
        assert_eq!((table.set_stream)(std::ptr::null_mut(), std::ptr::null_mut()), Status::BAD_PARAM_NULL_POINTER);
        assert_eq!((table.get_stream)(handle.raw(), std::ptr::null_mut()), Status::BAD_PARAM_NULL_POINTER);
        assert_eq!(
            (table.create_descriptor)(Kind::TENSOR_DESCRIPTOR, std::ptr::null_mut()),
            Status::BAD_PARAM_NULL_POINTER
        );
        for kind in [
            Kind::INTERMEDIATE_INFO_DESCRIPTOR,
            Kind::LAYOUT_INFO_DESCRIPTOR,
            Kind::KERNEL_CACHE_DESCRIPTOR,
            Kind(4711),
            Kind(-1),
        ] {
            assert_eq!((table.create_descriptor)(kind, &mut raw), Status::NOT_SUPPORTED, "{kind}");
        }
        assert_eq!((table.destroy_descriptor)(std::ptr::null_mut()), Status::BAD_PARAM_NULL_POINTER);
        assert_eq!((table.finalize)(std::ptr::null_mut()), Status::BAD_PARAM_NULL_POINTER);
        assert_eq!(
            (table.execute)(handle.raw(), std::ptr::null_mut(), std::ptr::null_mut()),
            Status::BAD_PARAM_NULL_POINTER
        );
    }

    // A stream is a word that comes back.
    let mut stream = 0x1234usize as *mut c_void;
    // SAFETY: the CPU engine never looks behind the stream.
    unsafe {
        assert_eq!((table.set_stream)(handle.raw(), stream), Status::SUCCESS);
        stream = std::ptr::null_mut();
        assert_eq!((table.get_stream)(handle.raw(), &mut stream), Status::SUCCESS);
        assert_eq!(stream as usize, 0x1234);
        assert_eq!((table.set_stream)(handle.raw(), std::ptr::null_mut()), Status::SUCCESS);
    }

    // Graphs.
    for (what, bytes) in
        [("no bytes", &[][..]), ("rubbish", &[7u8; 40][..]), ("half", &case.bytes[..case.bytes.len() / 2])]
    {
        assert_eq!(client.graph_from_bytes(bytes).err().map(|error| error.status), Some(Status::BAD_PARAM), "{what}");
    }
    for (what, text) in [("no text", ""), ("no JSON", "{"), ("no graph", "[]")] {
        assert_eq!(client.graph_from_json(text).err().map(|error| error.status), Some(Status::BAD_PARAM), "{what}");
    }
    let graph = client.graph_from_bytes(&case.bytes).expect("a graph");
    assert_eq!(status(graph.finalize()), Status::BAD_PARAM, "no handle yet");
    assert_eq!(
        status(graph.set(Name::OPERATIONGRAPH_HANDLE, Type::INT64, &[handle.raw()])),
        Status::BAD_PARAM,
        "wrong type"
    );
    assert_eq!(
        status(graph.set(Name::OPERATIONGRAPH_HANDLE, Type::HANDLE, &[handle.raw(); 2])),
        Status::BAD_PARAM,
        "two handles"
    );
    assert_eq!(
        status(graph.set(Name::OPERATIONGRAPH_HANDLE, Type::HANDLE, &[std::ptr::null_mut::<c_void>()])),
        Status::BAD_PARAM_NULL_POINTER
    );
    assert_eq!(
        status(graph.set(Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, &[1i64])),
        Status::NOT_SUPPORTED,
        "not a graph's"
    );
    let heuristic = client.descriptor(Kind::ENGINEHEUR_DESCRIPTOR).expect("a heuristic");
    assert_eq!(
        status(heuristic.set(Name::ENGINEHEUR_OPERATION_GRAPH, Type::BACKEND_DESCRIPTOR, &[graph.raw()])),
        Status::BAD_PARAM_NOT_FINALIZED
    );
    handle.finalize_graph(&graph).expect("finalized");
    assert_eq!(
        status(graph.set(Name::OPERATIONGRAPH_HANDLE, Type::HANDLE, &[handle.raw()])),
        Status::NOT_INITIALIZED,
        "set after finalize"
    );

    // Heuristic.
    assert_eq!(status(heuristic.finalize()), Status::BAD_PARAM, "nothing is set");
    assert_eq!(
        heuristic.count(Name::ENGINEHEUR_RESULTS, Type::BACKEND_DESCRIPTOR).err().map(|error| error.status),
        Some(Status::BAD_PARAM_NOT_FINALIZED)
    );
    assert_eq!(status(heuristic.set(Name::ENGINEHEUR_MODE, Type::HEUR_MODE, &[3i32])), Status::NOT_SUPPORTED, "mode 3");

    // Configuration and plan.
    let configuration = handle.configurations(&graph).expect("an engine").remove(0);
    let plan = client.descriptor(Kind::EXECUTION_PLAN_DESCRIPTOR).expect("a plan");
    assert_eq!(
        status(plan.set(Name::EXECUTION_PLAN_ENGINE_CONFIG, Type::BACKEND_DESCRIPTOR, &[configuration.raw()])),
        Status::BAD_PARAM_NOT_FINALIZED
    );
    assert_eq!(status(plan.finalize()), Status::BAD_PARAM, "no configuration");
    assert_eq!(
        configuration.number(Name::ENGINECFG_WORKSPACE_SIZE).err().map(|error| error.status),
        Some(Status::NOT_INITIALIZED)
    );
    configuration.finalize().expect("complete");
    assert_eq!(status(configuration.finalize()), Status::BAD_PARAM, "finalized twice");
    plan.set(Name::EXECUTION_PLAN_ENGINE_CONFIG, Type::BACKEND_DESCRIPTOR, &[configuration.raw()])
        .expect("a configuration");

    // Variant pack and execution.
    let pack = client.descriptor(Kind::VARIANT_PACK_DESCRIPTOR).expect("a pack");
    assert_eq!(status(pack.finalize()), Status::BAD_PARAM, "an empty pack");
    pack.set(Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, &[1i64, 2]).expect("uids");
    pack.set(Name::VARIANT_PACK_DATA_POINTERS, Type::VOID_PTR, &[std::ptr::null_mut::<c_void>()]).expect("a pointer");
    assert_eq!(status(pack.finalize()), Status::BAD_PARAM, "two uids and one pointer");
    let good = case.pack(&client, std::ptr::null_mut());
    // SAFETY: the plan is not finalized, and so nothing is executed.
    assert_eq!(status(unsafe { handle.execute(&plan, &good) }), Status::BAD_PARAM, "the plan is not finalized");
    plan.finalize().expect("the plan is built");
    assert_eq!(status(plan.finalize()), Status::BAD_PARAM, "finalized twice");
    // SAFETY: the pack is not finalized, and so nothing is executed.
    assert_eq!(status(unsafe { handle.execute(&plan, &pack) }), Status::BAD_PARAM, "the pack is not finalized");
    let stranger = client.descriptor(Kind::VARIANT_PACK_DESCRIPTOR).expect("a pack");
    stranger.set(Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, &[4711i64]).expect("uids");
    stranger
        .set(Name::VARIANT_PACK_DATA_POINTERS, Type::VOID_PTR, &[std::ptr::null_mut::<c_void>()])
        .expect("a pointer");
    stranger.finalize().expect("complete in itself");
    // SAFETY: the pack names no tensor of the plan, which the engine checks.
    let error = unsafe { handle.execute(&plan, &stranger) }.expect_err("no tensor has memory");
    assert_eq!(error.status, Status::PLUGIN_ERROR);
    assert!(!error.message.is_empty());
    run(&handle, &plan, &mut case, "after all the misuse");
}

#[test]
fn the_last_error_is_read_once_and_per_thread() {
    let client = client("last-error");
    let table = client.table();
    let peek = table.peek_last_error_string.expect("exported");
    let peeked = || {
        let mut text = [0u8; 2048];
        // SAFETY: the buffer is as large as said.
        unsafe { peek(text.as_mut_ptr().cast(), text.len()) };
        CStr::from_bytes_until_nul(&text).expect("terminated").to_string_lossy().into_owned()
    };
    assert_eq!(peeked(), "");
    // SAFETY: null on purpose.
    assert_eq!(unsafe { (table.destroy)(std::ptr::null_mut()) }, Status::BAD_PARAM_NULL_POINTER);
    let text = peeked();
    assert!(!text.is_empty());
    assert_eq!(peeked(), text, "peeking leaves the text");
    std::thread::scope(|scope| assert_eq!(scope.spawn(peeked).join().expect("it ends"), "", "another thread's"));
    let mut short = [0x7fu8; 8];
    // SAFETY: the buffer is as large as said.
    unsafe { (table.get_last_error_string)(short.as_mut_ptr().cast(), short.len()) };
    assert_eq!(&short[..7], &text.as_bytes()[..7], "a short buffer gets the beginning");
    assert_eq!(short[7], 0);
    assert_eq!(peeked(), "", "getting clears");
}

#[test]
fn status_names_are_texts() {
    let client = client("names");
    for number in -1..20 {
        // SAFETY: the function takes a number and gives a static text.
        let text = unsafe { CStr::from_ptr((client.table().get_error_string)(Status(number))) };
        assert!(text.to_bytes().starts_with(b"HIPDNN_STATUS_") || !(0..=14).contains(&number), "{number}: {text:?}");
    }
}

#[test]
fn handles_of_four_threads_work_at_once() {
    let client = client("threads");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let client = &client;
            scope.spawn(move || {
                for _ in 0..5 {
                    let handle = client.handle().expect("a handle");
                    let mut case = Case::new(DataType::Float);
                    let graph = client.graph_from_bytes(&case.bytes).expect("a graph");
                    handle.finalize_graph(&graph).expect("finalized");
                    let configuration = handle.configurations(&graph).expect("an engine").remove(0);
                    configuration.finalize().expect("complete");
                    run(&handle, &plan_of(client, &configuration), &mut case, &format!("thread {thread}"));
                }
            });
        }
    });
}

#[test]
fn graphs_are_built_from_tensor_and_operation_descriptors() {
    let client = client("descriptors");
    let handle = client.handle().expect("a handle");
    let mut case = Case::new(DataType::Float);
    let tensor = |uid: i64, dims: &[i64], is_virtual: bool| {
        let tensor = client.descriptor(Kind::TENSOR_DESCRIPTOR).expect("a tensor");
        tensor.set(Name::TENSOR_UNIQUE_ID, Type::INT64, &[uid]).expect("a uid");
        tensor.set(Name::TENSOR_DATA_TYPE, Type::DATA_TYPE, &[0i32]).expect("float");
        tensor.set(Name::TENSOR_DIMENSIONS, Type::INT64, dims).expect("extents");
        tensor.set(Name::TENSOR_STRIDES, Type::INT64, &hipdnn_schemas::packed_strides(dims)).expect("strides");
        tensor.set(Name::TENSOR_IS_VIRTUAL, Type::BOOLEAN, &[is_virtual]).expect("virtual or not");
        tensor.finalize().expect("complete");
        tensor
    };
    let large = [2, 6, 7, 8];
    let (x, w, b, y) = (
        tensor(1, &[2, 5, 8, 9], false),
        tensor(-2, &[6, 5, 3, 3], false),
        tensor(3, &[1, 6, 1, 1], false),
        tensor(40, &large, false),
    );
    let (conv, sum) = (tensor(100, &large, true), tensor(101, &large, true));

    let convolution = client.descriptor(Kind::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR).expect("a convolution");
    let operand = |operation: &Descriptor, name, tensor: &Descriptor| {
        operation.set(name, Type::BACKEND_DESCRIPTOR, &[tensor.raw()]).expect("an operand");
    };
    operand(&convolution, Name::OPERATION_CONVOLUTION_FORWARD_X, &x);
    operand(&convolution, Name::OPERATION_CONVOLUTION_FORWARD_W, &w);
    operand(&convolution, Name::OPERATION_CONVOLUTION_FORWARD_Y, &conv);
    convolution.set(Name::CONVOLUTION_PRE_PADDINGS, Type::INT64, &[1i64, 0]).expect("paddings");
    convolution.set(Name::CONVOLUTION_POST_PADDINGS, Type::INT64, &[0i64, 1]).expect("paddings");
    convolution.set(Name::CONVOLUTION_FILTER_STRIDES, Type::INT64, &[1i64, 1]).expect("strides");
    convolution.set(Name::CONVOLUTION_DILATIONS, Type::INT64, &[1i64, 1]).expect("dilations");
    convolution.set(Name::CONVOLUTION_CONV_MODE, Type::CONVOLUTION_MODE, &[1i32]).expect("cross-correlation");
    convolution.set(Name::CONVOLUTION_COMP_TYPE, Type::DATA_TYPE, &[0i32]).expect("float");
    convolution.finalize().expect("complete");
    let pointwise = |mode: i32, inputs: &[&Descriptor], output: &Descriptor| {
        let operation = client.descriptor(Kind::OPERATION_POINTWISE_DESCRIPTOR).expect("a pointwise operation");
        operation.set(Name::POINTWISE_MODE, Type::POINTWISE_MODE, &[mode]).expect("a mode");
        for (name, tensor) in
            [Name::OPERATION_POINTWISE_IN_0_EXT, Name::OPERATION_POINTWISE_IN_1_EXT].into_iter().zip(inputs)
        {
            operand(&operation, name, tensor);
        }
        operand(&operation, Name::OPERATION_POINTWISE_OUT_0_EXT, output);
        operation.set(Name::POINTWISE_MATH_PREC, Type::DATA_TYPE, &[0i32]).expect("float");
        operation.finalize().expect("complete");
        operation
    };
    let (add, relu) = (pointwise(2, &[&conv, &b], &sum), pointwise(34, &[&sum], &y));

    let graph = client.descriptor(Kind::OPERATIONGRAPH_DESCRIPTOR).expect("a graph");
    let operations = [convolution.raw(), add.raw(), relu.raw()];
    graph.set(Name::OPERATIONGRAPH_OPS, Type::BACKEND_DESCRIPTOR, &operations).expect("operations");
    handle.finalize_graph(&graph).expect("finalized");
    // The graph keeps what it was made of.
    drop((x, w, b, y, conv, sum, convolution, add, relu));
    let configuration = handle.configurations(&graph).expect("an engine").remove(0);
    configuration.finalize().expect("complete");
    run(&handle, &plan_of(&client, &configuration), &mut case, "built from descriptors");
}
