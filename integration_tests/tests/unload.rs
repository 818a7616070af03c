//! Loading and unloading the libraries again and again, with work in between, leaves nothing behind.

use std::ffi::c_void;
use std::path::Path;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use hipdnn_rs_integration_tests::artifacts::{Artifact, directory_with, library_path, plugin_directory};
use hipdnn_rs_integration_tests::plugin::Plugin;
use hipdnn_schemas::{Convolution, DataType, EngineConfig, GraphBuilder, KnobValue, TensorDef};
use hipdnn_sdk_bindings::hipdnn::backend::{
    AttributeName as Name, AttributeType as Type, Backend, DescriptorPtr, DescriptorType, HeurMode,
    PluginUnloadingMode, Status,
};
use hipdnn_sdk_bindings::hipdnn::plugin::{DeviceBuffer, engine_id};

const CYCLES: usize = 1000;

/// Of the heuristics plugin: the first declines, since nothing was measured.
const POLICIES: &str = "SelectionHeuristic::HipdnnRsMeasured,SelectionHeuristic::HipdnnRsCostModel";

/// Before the first comparison the allocator, the dynamic loader and the standard library have made what they keep.
const WARM_UP: usize = 100;

/// Resources that a process holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    resident_bytes: usize,
    open_files: usize,
    threads: usize,
    mappings: usize,
}

impl Held {
    fn now() -> Held {
        let read = |name: &str| std::fs::read_to_string(name).expect("Linux has /proc");
        let status = read("/proc/self/status");
        let field = |name: &str| -> usize {
            let line = status.lines().find(|line| line.starts_with(name)).expect("a field of the status");
            line.split_whitespace().nth(1).and_then(|value| value.parse().ok()).expect("a number")
        };
        Held {
            resident_bytes: field("VmRSS:") * 1024,
            open_files: std::fs::read_dir("/proc/self/fd").expect("Linux has /proc").count(),
            threads: field("Threads:"),
            mappings: read("/proc/self/maps").lines().count(),
        }
    }
}

/// Resources held once joined threads are gone: the kernel wakes who joins before it stops counting the thread.
fn settled(before: &Held) -> Held {
    let late = Instant::now() + Duration::from_secs(5);
    loop {
        let now = Held::now();
        if now.threads <= before.threads || Instant::now() > late {
            return now;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn is_mapped(library: &str) -> bool {
    std::fs::read_to_string("/proc/self/maps").expect("Linux has /proc").contains(library)
}

/// A convolution that two threads work at, with weights that are prepared once.
struct Work {
    graph: Vec<u8>,
    config: Vec<u8>,
    x: Vec<f32>,
    w: Vec<f32>,
    y: Vec<f32>,
}

impl Work {
    fn new() -> Work {
        let mut graph = GraphBuilder::new("unload").compute(DataType::Float);
        let (x, w, y) = ([1, 16, 20, 20], [16, 16, 3, 3], [1, 16, 18, 18]);
        let elements = |dims: [i64; 4]| dims.iter().product::<i64>() as usize;
        let (x_uid, w_uid, y_uid) = (
            graph.tensor(TensorDef::new(1, DataType::Float, &x)),
            graph.tensor(TensorDef::new(2, DataType::Float, &w)),
            graph.tensor(TensorDef::new(3, DataType::Float, &y)),
        );
        graph.convolution_fwd(x_uid, w_uid, y_uid, Convolution::new(2));
        let knobs = vec![
            ("hipdnn_rs.cpu.threads".to_string(), KnobValue::Int(2)),
            ("hipdnn_rs.constants".to_string(), KnobValue::String("2=unload".to_string())),
        ];
        Work {
            graph: graph.build().expect("a right graph").def().to_bytes(),
            config: EngineConfig { engine_id: engine_id("HIPDNN_RS_CPU_ENGINE"), knobs }.to_bytes(),
            x: vec![1.0; elements(x)],
            w: vec![0.5; elements(w)],
            y: vec![f32::NAN; elements(y)],
        }
    }

    fn pack(&mut self) -> [(i64, *mut c_void); 3] {
        self.y.fill(f32::NAN);
        [(1, self.x.as_mut_ptr().cast()), (2, self.w.as_mut_ptr().cast()), (3, self.y.as_mut_ptr().cast())]
    }

    fn check(&self) {
        // Each output is 16 channels by 9 taps of 1 × 0.5: sums of few halves are exact in any order.
        assert!(self.y.iter().all(|y| *y == 72.0), "the convolution was computed");
    }
}

/// The plugin alone: opened, used and closed.
fn plugin_cycle(path: &Path, work: &mut Work) {
    let plugin = Plugin::open(path);
    let handle = plugin.handle().expect("a handle");
    let plan = handle.plan(&work.config, &work.graph).expect("a plan");
    for _ in 0..2 {
        let buffers = work.pack().map(|(uid, ptr)| DeviceBuffer { uid, ptr });
        // SAFETY: each buffer has as many elements as its tensor.
        unsafe { plan.execute(&buffers) }.expect("an execution");
        work.check();
    }
    let stored = plan.serialized().expect("a stored plan");
    drop(plan);
    drop(handle.restored(&stored).expect("the plan again"));
    handle.restored(&stored[1..]).err().expect("a part is no stored plan");
    // An error leaves a text in the thread.
    handle.plan(&[], &[]).err().expect("nothing is no graph");
    drop(handle);
}

/// The backend with the plugin behind it: opened, used and closed.
fn backend_cycle(path: &Path, work: &mut Work, mode: PluginUnloadingMode) {
    // SAFETY: the file is the backend of this project.
    let backend = unsafe { Backend::open([path]) }.unwrap_or_else(|error| panic!("{error}"));
    let ok = |status: Status| assert_eq!(status, Status::SUCCESS, "{}", backend.take_last_error());
    let (mut handle, mut graph) = (null_mut(), null_mut());
    let new = |kind| {
        let mut descriptor: DescriptorPtr = null_mut();
        // SAFETY: `descriptor` is valid for the call.
        ok(unsafe { (backend.create_descriptor)(kind, &mut descriptor) });
        descriptor
    };
    let set = |descriptor, name, kind, count, elements: *const c_void| {
        // SAFETY: callers below pass as many elements as they say, of the type that goes with `kind`.
        ok(unsafe { (backend.set_attribute)(descriptor, name, kind, count, elements) });
    };
    // SAFETY: descriptors and handles are alive, out-pointers valid for their calls, and buffers as large as their
    // tensors.
    unsafe {
        ok((backend.set_plugin_unload_mode.expect("our backend has it"))(mode));
        ok((backend.create)(&mut handle));
        let deserialize = backend.create_and_deserialize_graph.expect("our backend has it");
        ok(deserialize(&mut graph, work.graph.as_ptr(), work.graph.len()));
        set(graph, Name::OPERATIONGRAPH_HANDLE, Type::HANDLE, 1, (&raw const handle).cast());
        ok((backend.finalize)(graph));

        let heuristic = new(DescriptorType::ENGINEHEUR_DESCRIPTOR);
        set(heuristic, Name::ENGINEHEUR_OPERATION_GRAPH, Type::BACKEND_DESCRIPTOR, 1, (&raw const graph).cast());
        let mode = HeurMode::FALLBACK;
        set(heuristic, Name::ENGINEHEUR_MODE, Type::HEUR_MODE, 1, (&raw const mode).cast());
        ok((backend.finalize)(heuristic));
        let mut config = new(DescriptorType::ENGINECFG_DESCRIPTOR);
        let mut count = 0;
        let results = (&raw mut config).cast();
        let name = Name::ENGINEHEUR_RESULTS;
        ok((backend.get_attribute)(heuristic, name, Type::BACKEND_DESCRIPTOR, 1, &mut count, results));
        assert_eq!(count, 1, "the CPU engine takes the graph");
        assert!(is_mapped(Artifact::Heuristics.file_name()), "the backend loads the plugin whose policies are named");
        ok((backend.finalize)(config));
        let plan = new(DescriptorType::EXECUTION_PLAN_DESCRIPTOR);
        set(plan, Name::EXECUTION_PLAN_ENGINE_CONFIG, Type::BACKEND_DESCRIPTOR, 1, (&raw const config).cast());
        ok((backend.finalize)(plan));
        let mut bytes = 0i64;
        let name = Name::EXECUTION_PLAN_WORKSPACE_SIZE;
        ok((backend.get_attribute)(plan, name, Type::INT64, 1, null_mut(), (&raw mut bytes).cast()));

        let mut workspace = vec![0u128; (bytes as usize).div_ceil(16)];
        let workspace = workspace.as_mut_ptr().cast::<c_void>();
        let (uids, pointers): (Vec<i64>, Vec<*mut c_void>) = work.pack().into_iter().unzip();
        let pack = new(DescriptorType::VARIANT_PACK_DESCRIPTOR);
        set(pack, Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, 3, uids.as_ptr().cast());
        set(pack, Name::VARIANT_PACK_DATA_POINTERS, Type::VOID_PTR, 3, pointers.as_ptr().cast());
        set(pack, Name::VARIANT_PACK_WORKSPACE, Type::VOID_PTR, 1, (&raw const workspace).cast());
        ok((backend.finalize)(pack));
        ok((backend.execute)(handle, plan, pack));
        work.check();
        for descriptor in [pack, plan, config, heuristic, graph] {
            ok((backend.destroy_descriptor)(descriptor));
        }
        ok((backend.destroy)(handle));
    }
}

fn repeat(name: &str, mut cycle: impl FnMut()) {
    let mut before = None;
    for i in 0..CYCLES {
        if i == WARM_UP {
            before = Some(Held::now());
        }
        cycle();
        for library in [Artifact::Plugin, Artifact::Backend, Artifact::Heuristics].map(Artifact::file_name) {
            assert!(!is_mapped(library), "{name}: {library} is still there after it was closed in cycle {i}");
        }
    }
    let before = before.expect("more cycles than the warm-up");
    let after = settled(&before);
    println!("{name}: {CYCLES} cycles; before {before:?}, after {after:?}");
    assert!(after.open_files <= before.open_files, "{name}: files stay open");
    assert!(after.threads <= before.threads, "{name}: threads stay");
    // The allocator may put an arena aside for a thread number that it had not seen before: a few mappings, whatever
    // the number of cycles. One that leaks in each cycle would be 900.
    assert!(after.mappings <= before.mappings + 8, "{name}: mappings stay");
    // A megabyte over 900 cycles is 1.1 KiB for each: less than a handle, a plan or a thread's stack, and more than
    // the allocator's own movements.
    assert!(after.resident_bytes <= before.resident_bytes + (1 << 20), "{name}: memory stays");
}

/// One test for all: they count what the whole process holds.
#[test]
fn a_thousand_cycles_leave_nothing_behind() {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let plugins = plugin_directory(scratch, "unload");
    let heuristics = directory_with(Artifact::Heuristics, scratch, "unload-heuristics");
    // SAFETY: this is the only test of the program: no other thread reads or writes the environment yet.
    unsafe {
        std::env::set_var("HIPDNN_PLUGIN_DIR", &plugins);
        std::env::set_var("HIPDNN_RS_CPU_ENGINE", "on");
        // The backend asks the policies of a second plugin, which it unloads as well.
        std::env::set_var("HIPDNN_HEURISTIC_PLUGIN_DIR", &heuristics);
        std::env::set_var("HIPDNN_HEUR_POLICY_ORDER", POLICIES);
        std::env::set_var("HIPDNN_CACHE_DIR", scratch.join("unload-cache"));
    }
    let plugin = plugins.join(Artifact::Plugin.file_name());
    let backend = library_path(Artifact::Backend);
    let mut work = Work::new();
    repeat("plugin", || plugin_cycle(&plugin, &mut work));
    repeat("backend, eager", || backend_cycle(&backend, &mut work, PluginUnloadingMode::EAGER));
    repeat("backend, lazy", || backend_cycle(&backend, &mut work, PluginUnloadingMode::LAZY));
}
