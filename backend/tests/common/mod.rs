//! Common part of the tests: plugins compiled on the spot, and the C functions in fewer words.

#![allow(dead_code, unreachable_pub, reason = "each test binary has this module and uses a part")]

use std::ffi::{CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use hipdnn_backend::exports::*;
use hipdnn_schemas as wire;
use hipdnn_schemas::{
    EngineConfig, EngineDetails, GraphBuilder, GraphDef, Knob, KnobConstraint, KnobValue, Operation, TensorDef,
};
pub use hipdnn_sdk_bindings::hipdnn::backend::*;
pub use hipdnn_sdk_bindings::hipdnn::plugin::engine_id;

pub const OK: Status = Status::SUCCESS;

/// Plugin paths and the like belong to the process: tests that touch them take turns.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A directory of its own for a test's files.
pub fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path.canonicalize().unwrap()
}

/// Details that the echo engine gives of itself.
pub fn details() -> EngineDetails {
    EngineDetails {
        engine_id: engine_id("ECHO_ENGINE"),
        knobs: vec![
            Knob {
                id: "echo.int".into(),
                description: "a number".into(),
                default: KnobValue::Int(3),
                constraint: Some(KnobConstraint::Int { min: 0, max: 8, step: 2, valid: vec![2, 4] }),
                deprecated: false,
            },
            Knob {
                id: "echo.float".into(),
                description: String::new(),
                default: KnobValue::Float(0.5),
                constraint: Some(KnobConstraint::Float { min: 0.0, max: 1.0 }),
                deprecated: true,
            },
            Knob {
                id: "echo.text".into(),
                description: "a text".into(),
                default: KnobValue::String("a".into()),
                constraint: Some(KnobConstraint::String { max_length: 9, valid: vec!["a".into(), "bc".into()] }),
                deprecated: false,
            },
        ],
        behavior_notes: vec![2, 3],
        name: None,
    }
}

/// Compiles the echo plugin with these macros to `directory/name`.
pub fn compile(directory: &Path, name: &str, macros: &[&str]) -> PathBuf {
    let bytes: String = details().to_bytes().iter().map(|byte| format!("{byte},")).collect();
    let included = directory.join("details.inc");
    std::fs::write(&included, bytes).unwrap();
    let details = format!("ECHO_DETAILS=\"{}\"", included.display());
    compile_source("echo_plugin.c", &directory.join(name), &[&[details.as_str()], macros].concat())
}

/// Compiles a plugin of these tests with these macros.
pub fn compile_source(source: &str, plugin: &Path, macros: &[&str]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-std=gnu11", "-fvisibility=default", "-I"])
        .arg(root.join("../install/include"))
        .args(macros.iter().map(|define| format!("-D{define}")))
        .arg(root.join("tests").join(source))
        .arg("-o")
        .arg(plugin)
        .output()
        .expect("a C compiler called cc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    plugin.to_path_buf()
}

/// Counts of the plugin; the layout is `struct calls` of the C file.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Calls {
    pub created: i64,
    pub destroyed: i64,
    pub contexts_created: i64,
    pub contexts_destroyed: i64,
    pub details_given: i64,
    pub details_taken: i64,
    pub executed: i64,
    pub graph_bytes: i64,
    pub config_bytes: i64,
    pub overrides: i64,
    pub first_override: i64,
    pub stream: *mut c_void,
    pub workspace: *mut c_void,
    pub log_level: i64,
}

/// A global of a plugin, if it is loaded.
///
/// # Safety
/// The symbol is a `T`.
pub unsafe fn global<T>(plugin: &Path, symbol: &std::ffi::CStr) -> Option<T> {
    let path = CString::new(plugin.to_str().unwrap()).unwrap();
    // SAFETY: the path ends in a NUL; nothing is loaded that is not already.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return None;
    }
    // SAFETY: the library is open, and the symbol is a `T`, by the caller.
    unsafe {
        let value = libc::dlsym(library, symbol.as_ptr()).cast::<T>().read();
        libc::dlclose(library);
        Some(value)
    }
}

/// The counters of a plugin, if it is loaded.
pub fn calls(plugin: &Path) -> Option<Calls> {
    // SAFETY: the symbol is a `struct calls`.
    unsafe { global(plugin, c"echo_calls") }
}

/// The configuration that a loaded plugin was given last.
pub fn config_of(plugin: &Path) -> EngineConfig {
    // SAFETY: the symbol is an array of so many bytes.
    let bytes: [u8; 4096] = unsafe { global(plugin, c"echo_config") }.unwrap();
    let size = calls(plugin).unwrap().config_bytes as usize;
    EngineConfig::from_bytes(&bytes[..size]).unwrap()
}

/// Uses these plugins and no others. No handle may be alive.
pub fn use_plugins(plugins: &[&Path]) {
    set_paths(hipdnnSetEnginePluginPaths_ext, plugins);
}

/// Uses these heuristics plugins and no others. No handle may be alive.
pub fn use_heuristics(plugins: &[&Path]) {
    set_paths(hipdnnSetHeuristicPluginPaths_ext, plugins);
}

type SetPaths = unsafe extern "C" fn(usize, *const *const c_char, PluginLoadingMode) -> Status;

fn set_paths(set: SetPaths, plugins: &[&Path]) {
    let texts: Vec<CString> = plugins.iter().map(|path| CString::new(path.to_str().unwrap()).unwrap()).collect();
    let pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
    // SAFETY: the array has as many texts as we say.
    let status = unsafe { set(pointers.len(), pointers.as_ptr(), PluginLoadingMode::ABSOLUTE) };
    assert_eq!(status, OK, "{}", last_error());
}

/// The thread's last error, cleared.
pub fn last_error() -> String {
    let mut text = [0u8; ERROR_STRING_MAX_LENGTH];
    // SAFETY: there is as much room as we say.
    unsafe { hipdnnGetLastErrorString(text.as_mut_ptr().cast(), text.len()) };
    let end = text.iter().position(|byte| *byte == 0).unwrap();
    String::from_utf8(text[..end].to_vec()).unwrap()
}

/// A handle, destroyed on drop.
pub struct OwnedHandle(pub HandlePtr);

impl OwnedHandle {
    pub fn new() -> OwnedHandle {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the place is valid.
        assert_eq!(unsafe { hipdnnCreate(&mut handle) }, OK, "{}", last_error());
        OwnedHandle(handle)
    }
}

impl Drop for OwnedHandle {
    fn drop(&mut self) {
        // SAFETY: any value is taken.
        assert_eq!(unsafe { hipdnnDestroy(self.0) }, OK);
    }
}

/// A descriptor, destroyed on drop.
#[derive(Debug)]
pub struct Desc(pub DescriptorPtr);

impl Drop for Desc {
    fn drop(&mut self) {
        // SAFETY: any value is taken.
        assert_eq!(unsafe { hipdnnBackendDestroyDescriptor(self.0) }, OK);
    }
}

impl Desc {
    pub fn new(kind: DescriptorType) -> Desc {
        let mut descriptor = std::ptr::null_mut();
        // SAFETY: the place is valid.
        assert_eq!(unsafe { hipdnnBackendCreateDescriptor(kind, &mut descriptor) }, OK, "{}", last_error());
        Desc(descriptor)
    }

    pub fn graph(def: &GraphDef) -> Desc {
        let bytes = def.to_bytes();
        let mut descriptor = std::ptr::null_mut();
        // SAFETY: there are as many bytes as we say.
        let status =
            unsafe { hipdnnBackendCreateAndDeserializeGraph_ext(&mut descriptor, bytes.as_ptr(), bytes.len()) };
        assert_eq!(status, OK, "{}", last_error());
        Desc(descriptor)
    }

    pub fn try_finalize(&self) -> Status {
        // SAFETY: any value is taken.
        unsafe { hipdnnBackendFinalize(self.0) }
    }

    pub fn finalize(&self) {
        assert_eq!(self.try_finalize(), OK, "{}", last_error());
    }

    /// Sets elements of a type that is laid out as the attribute type says.
    pub fn try_set<T>(&self, name: AttributeName, kind: AttributeType, elements: &[T]) -> Status {
        // SAFETY: there are as many elements as we say.
        unsafe { hipdnnBackendSetAttribute(self.0, name, kind, elements.len() as i64, elements.as_ptr().cast()) }
    }

    pub fn set<T>(&self, name: AttributeName, kind: AttributeType, elements: &[T]) -> &Desc {
        assert_eq!(self.try_set(name, kind, elements), OK, "{name}: {}", last_error());
        self
    }

    pub fn set_int64s(&self, name: AttributeName, values: &[i64]) -> &Desc {
        self.set(name, AttributeType::INT64, values)
    }

    pub fn set_text(&self, name: AttributeName, text: &str) -> &Desc {
        self.set(name, AttributeType::CHAR, text.as_bytes())
    }

    pub fn set_desc(&self, name: AttributeName, other: &Desc) -> &Desc {
        self.set(name, AttributeType::BACKEND_DESCRIPTOR, &[other.0])
    }

    /// Reads up to `out.len()` elements; the status and the count.
    pub fn try_get<T>(&self, name: AttributeName, kind: AttributeType, out: &mut [T]) -> (Status, i64) {
        let mut count = -1;
        // SAFETY: there is room for as many elements as we say.
        let status = unsafe {
            hipdnnBackendGetAttribute(self.0, name, kind, out.len() as i64, &mut count, out.as_mut_ptr().cast())
        };
        (status, count)
    }

    pub fn count(&self, name: AttributeName, kind: AttributeType) -> i64 {
        let mut count = -1;
        // SAFETY: nothing is asked for but the count.
        let status = unsafe { hipdnnBackendGetAttribute(self.0, name, kind, 0, &mut count, std::ptr::null_mut()) };
        assert_eq!(status, OK, "{name}: {}", last_error());
        count
    }

    /// One element, read without a place for the count.
    pub fn get<T: Default>(&self, name: AttributeName, kind: AttributeType) -> T {
        let mut value = T::default();
        // SAFETY: there is room for one element.
        let status =
            unsafe { hipdnnBackendGetAttribute(self.0, name, kind, 1, std::ptr::null_mut(), (&raw mut value).cast()) };
        assert_eq!(status, OK, "{name}: {}", last_error());
        value
    }

    pub fn get_int64s(&self, name: AttributeName) -> Vec<i64> {
        let mut values = vec![0; self.count(name, AttributeType::INT64) as usize];
        let (status, count) = self.try_get(name, AttributeType::INT64, &mut values);
        assert_eq!((status, count), (OK, values.len() as i64), "{name}: {}", last_error());
        values
    }

    pub fn get_text(&self, name: AttributeName) -> String {
        let mut bytes = vec![0u8; self.count(name, AttributeType::CHAR) as usize];
        let (status, count) = self.try_get(name, AttributeType::CHAR, &mut bytes);
        assert_eq!((status, count), (OK, bytes.len() as i64), "{name}: {}", last_error());
        assert_eq!(bytes.pop(), Some(0));
        String::from_utf8(bytes).unwrap()
    }

    pub fn get_descs(&self, name: AttributeName) -> Vec<Desc> {
        let mut tokens =
            vec![std::ptr::null_mut::<Descriptor>(); self.count(name, AttributeType::BACKEND_DESCRIPTOR) as usize];
        let (status, count) = self.try_get(name, AttributeType::BACKEND_DESCRIPTOR, &mut tokens);
        assert_eq!((status, count), (OK, tokens.len() as i64), "{name}: {}", last_error());
        tokens.into_iter().map(Desc).collect()
    }

    pub fn get_desc(&self, name: AttributeName) -> Desc {
        let mut token = [std::ptr::null_mut::<Descriptor>()];
        let (status, count) = self.try_get(name, AttributeType::BACKEND_DESCRIPTOR, &mut token);
        assert_eq!((status, count), (OK, 1), "{name}: {}", last_error());
        Desc(token[0])
    }
}

/// Tensor 3 = tensor 1 + tensor 2, of 16 floats each.
pub fn add_graph() -> GraphDef {
    let mut builder = GraphBuilder::new("add").compute(wire::DataType::Float);
    let tensors = [1, 2, 3].map(|uid| builder.tensor(TensorDef::new(uid, wire::DataType::Float, &[1, 16])));
    builder.node(
        "sum",
        Operation::Pointwise(wire::Pointwise::binary(wire::PointwiseMode::Add, tensors[0], tensors[1], tensors[2])),
    );
    builder.def().clone()
}

/// A finalized graph for a handle.
pub fn finished_graph(handle: &OwnedHandle, def: &GraphDef) -> Desc {
    let graph = Desc::graph(def);
    graph.set(AttributeName::OPERATIONGRAPH_HANDLE, AttributeType::HANDLE, &[handle.0]);
    graph.finalize();
    graph
}

/// A heuristic over a graph, not finalized.
pub fn heuristic(graph: &Desc) -> Desc {
    let heuristic = Desc::new(DescriptorType::ENGINEHEUR_DESCRIPTOR);
    heuristic.set_desc(AttributeName::ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristic.set(AttributeName::ENGINEHEUR_MODE, AttributeType::HEUR_MODE, &[HeurMode::FALLBACK]);
    heuristic
}

/// The candidates of a finalized heuristic, not finalized.
pub fn results(heuristic: &Desc) -> Vec<Desc> {
    let count = heuristic.count(AttributeName::ENGINEHEUR_RESULTS, AttributeType::BACKEND_DESCRIPTOR);
    let configs: Vec<Desc> = (0..count).map(|_| Desc::new(DescriptorType::ENGINECFG_DESCRIPTOR)).collect();
    let mut tokens: Vec<DescriptorPtr> = configs.iter().map(|config| config.0).collect();
    let (status, written) =
        heuristic.try_get(AttributeName::ENGINEHEUR_RESULTS, AttributeType::BACKEND_DESCRIPTOR, &mut tokens);
    assert_eq!((status, written), (OK, count), "{}", last_error());
    configs
}

/// The plan of the first candidate.
pub fn plan(graph: &Desc) -> Desc {
    let heuristic = heuristic(graph);
    heuristic.finalize();
    let config = results(&heuristic).remove(0);
    config.finalize();
    let plan = Desc::new(DescriptorType::EXECUTION_PLAN_DESCRIPTOR);
    plan.set_desc(AttributeName::EXECUTION_PLAN_ENGINE_CONFIG, &config);
    plan.finalize();
    plan
}

/// A pack of addresses, not finalized.
pub fn pack(entries: &[(i64, *const c_void)], workspace: *const c_void) -> Desc {
    let pack = Desc::new(DescriptorType::VARIANT_PACK_DESCRIPTOR);
    let (uids, addresses): (Vec<i64>, Vec<*const c_void>) = entries.iter().copied().unzip();
    pack.set(AttributeName::VARIANT_PACK_DATA_POINTERS, AttributeType::VOID_PTR, &addresses);
    pack.set_int64s(AttributeName::VARIANT_PACK_UNIQUE_IDS, &uids);
    pack.set(AttributeName::VARIANT_PACK_WORKSPACE, AttributeType::VOID_PTR, &[workspace]);
    pack
}

/// 16 floats where a tensor may be.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct Floats(pub [f32; 16]);

impl Floats {
    pub fn address(&self) -> *const c_void {
        (&raw const self.0).cast()
    }
}

/// Executes with a finalized pack.
pub fn execute(handle: &OwnedHandle, plan: &Desc, pack: &Desc) -> Status {
    // SAFETY: the tests' packs lead to live memory.
    unsafe { hipdnnBackendExecute(handle.0, plan.0, pack.0) }
}
