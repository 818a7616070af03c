//! The shared library itself: its exports, its search rules, its log file, and what is left after unloading it. One
//! test, because it sets environment variables.

mod common;

use std::collections::BTreeSet;
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null_mut;

use common::{add_graph, compile, scratch};
use hipdnn_sdk_bindings::hipdnn::backend::*;

/// Cargo builds the library for this package's tests and leaves it beside their binaries.
fn built_library() -> PathBuf {
    let binary = std::env::current_exe().unwrap();
    let library = binary.parent().unwrap().join(LIBRARY_NAME);
    assert!(library.is_file(), "{}", library.display());
    library
}

fn open(library: &Path) -> Backend {
    // SAFETY: it is ours, and sound to load and unload.
    unsafe { Backend::open([library]) }.unwrap()
}

fn engine_count(backend: &Backend) -> usize {
    let mut handle = null_mut();
    let mut count = 0;
    // SAFETY: the places are valid.
    unsafe {
        assert_eq!((backend.create)(&mut handle), Status::SUCCESS);
        assert_eq!(backend.get_engine_count.unwrap()(handle, &mut count), Status::SUCCESS);
        assert_eq!((backend.destroy)(handle), Status::SUCCESS);
    }
    count
}

fn set_variable(name: &str, value: &Path) {
    // SAFETY: this binary has one test, and nothing it loads reads variables on another thread.
    unsafe { std::env::set_var(name, value) };
}

fn remove_variable(name: &str) {
    // SAFETY: this binary has one test, and nothing it loads reads variables on another thread.
    unsafe { std::env::remove_var(name) };
}

/// Every function of a graph's life once.
fn live(backend: &Backend) {
    let bytes = add_graph().to_bytes();
    let data = common::Floats([1.0; 16]);
    let mut out = common::Floats([0.0; 16]);
    let set = |descriptor, name, kind, elements: &[*const c_void]| {
        // SAFETY: there are as many elements as we say.
        let status =
            unsafe { (backend.set_attribute)(descriptor, name, kind, elements.len() as i64, elements.as_ptr().cast()) };
        assert_eq!(status, Status::SUCCESS, "{}", backend.take_last_error());
    };
    let create = |kind| {
        let mut descriptor = null_mut();
        // SAFETY: the place is valid.
        assert_eq!(unsafe { (backend.create_descriptor)(kind, &mut descriptor) }, Status::SUCCESS);
        descriptor
    };
    let finalize = |descriptor| {
        // SAFETY: any value is taken.
        assert_eq!(unsafe { (backend.finalize)(descriptor) }, Status::SUCCESS, "{}", backend.take_last_error());
    };
    let descriptor_type = AttributeType::BACKEND_DESCRIPTOR;
    let (mut handle, mut graph) = (null_mut(), null_mut());
    // SAFETY: the places are valid, and there are as many bytes as we say.
    unsafe {
        assert_eq!((backend.create)(&mut handle), Status::SUCCESS);
        let deserialize = backend.create_and_deserialize_graph.unwrap();
        assert_eq!(deserialize(&mut graph, bytes.as_ptr(), bytes.len()), Status::SUCCESS);
    }
    set(graph, AttributeName::OPERATIONGRAPH_HANDLE, AttributeType::HANDLE, &[handle.cast_const().cast()]);
    finalize(graph);
    let heuristic = create(DescriptorType::ENGINEHEUR_DESCRIPTOR);
    set(heuristic, AttributeName::ENGINEHEUR_OPERATION_GRAPH, descriptor_type, &[graph.cast_const().cast()]);
    // SAFETY: one mode is there.
    unsafe {
        let mode = HeurMode::FALLBACK;
        let name = AttributeName::ENGINEHEUR_MODE;
        (backend.set_attribute)(heuristic, name, AttributeType::HEUR_MODE, 1, (&raw const mode).cast());
    }
    finalize(heuristic);
    let mut config = create(DescriptorType::ENGINECFG_DESCRIPTOR);
    let mut count = 0;
    // SAFETY: one descriptor is there.
    let status = unsafe {
        let name = AttributeName::ENGINEHEUR_RESULTS;
        (backend.get_attribute)(heuristic, name, descriptor_type, 1, &mut count, (&raw mut config).cast())
    };
    assert_eq!((status, count), (Status::SUCCESS, 1));
    finalize(config);
    let plan = create(DescriptorType::EXECUTION_PLAN_DESCRIPTOR);
    set(plan, AttributeName::EXECUTION_PLAN_ENGINE_CONFIG, descriptor_type, &[config.cast_const().cast()]);
    finalize(plan);
    let pack = create(DescriptorType::VARIANT_PACK_DESCRIPTOR);
    let addresses = [data.address(), data.address(), (&raw mut out).cast_const().cast()];
    set(pack, AttributeName::VARIANT_PACK_DATA_POINTERS, AttributeType::VOID_PTR, &addresses);
    // SAFETY: three uids are there.
    unsafe {
        let uids = [1i64, 2, 3];
        let name = AttributeName::VARIANT_PACK_UNIQUE_IDS;
        (backend.set_attribute)(pack, name, AttributeType::INT64, 3, uids.as_ptr().cast());
    }
    finalize(pack);
    // SAFETY: the pack leads to live memory.
    let status = unsafe { (backend.execute)(handle, plan, pack) };
    assert_eq!(status, Status::SUCCESS, "{}", backend.take_last_error());
    assert_eq!(out.0, [2.0; 16]);
    for descriptor in [pack, plan, config, heuristic, graph] {
        // SAFETY: any value is taken.
        assert_eq!(unsafe { (backend.destroy_descriptor)(descriptor) }, Status::SUCCESS);
    }
    // SAFETY: any value is taken.
    assert_eq!(unsafe { (backend.destroy)(handle) }, Status::SUCCESS);
}

fn mapped(name: &str) -> bool {
    std::fs::read_to_string("/proc/self/maps").unwrap().contains(name)
}

/// Bytes that the C allocator has given out; the Rust one is built on it.
fn allocated() -> usize {
    // SAFETY: takes nothing.
    unsafe { libc::mallinfo2() }.uordblks
}

#[test]
fn the_shared_library() {
    let library = built_library();

    // Exactly the ABI's functions are exported.
    let output = Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(&library).output();
    let output = output.expect("nm of binutils");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let exported: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(exported, Backend::SYMBOLS.iter().copied().collect());

    // Search rules that depend on where the library is.
    let root = scratch("library");
    let flat = root.join("flat");
    let lib = root.join("lib");
    let engines = lib.join("hipdnn_plugins/engines");
    let elsewhere = root.join("elsewhere");
    for directory in [&flat, &engines, &elsewhere] {
        std::fs::create_dir_all(directory).unwrap();
    }
    for directory in [&flat, &lib] {
        std::fs::copy(&library, directory.join(LIBRARY_NAME)).unwrap();
    }
    compile(&flat, "libhipdnn_rs_plugin.so", &[]);
    compile(&engines, "a.so", &[]);
    compile(&engines, "b.so", &["ECHO_NAME=\"SECOND\""]);
    compile(&elsewhere, "c.so", &["ECHO_NAME=\"THIRD\""]);
    compile(&elsewhere, "d.so", &["ECHO_NAME=\"FOURTH\""]);
    compile(&elsewhere, "e.so", &["ECHO_NAME=\"FIFTH\""]);
    remove_variable("HIPDNN_PLUGIN_DIR");
    assert_eq!(engine_count(&open(&flat.join(LIBRARY_NAME))), 1, "a plugin beside the library");
    assert_eq!(engine_count(&open(&lib.join(LIBRARY_NAME))), 2, "the default directory");
    set_variable("HIPDNN_PLUGIN_DIR", &elsewhere);
    assert_eq!(engine_count(&open(&lib.join(LIBRARY_NAME))), 3, "another directory");
    set_variable("HIPDNN_PLUGIN_DIR", Path::new("../elsewhere"));
    assert_eq!(engine_count(&open(&lib.join(LIBRARY_NAME))), 3, "relative to the library");
    remove_variable("HIPDNN_PLUGIN_DIR");

    // The log goes to the file, graphs to the directory.
    let log = root.join("log.txt");
    let graphs = root.join("graphs");
    set_variable("HIPDNN_LOG_LEVEL", Path::new("info"));
    set_variable("HIPDNN_LOG_FILE", &log);
    set_variable("HIPDNN_LOG_GRAPH_DIR", &graphs);
    let backend = open(&flat.join(LIBRARY_NAME));
    live(&backend);
    let mut level = Severity::OFF;
    // SAFETY: the place is valid, the text ends in a NUL.
    unsafe {
        assert_eq!(backend.get_global_log_level.unwrap()(&mut level), Status::SUCCESS);
        assert_eq!((backend.destroy)(null_mut()), Status::BAD_PARAM_NULL_POINTER);
        backend.logging_callback.unwrap()(Severity::WARN, c"a client's word".as_ptr());
        assert_eq!(backend.set_global_log_level.unwrap()(Severity::ERROR), Status::SUCCESS);
        backend.logging_callback.unwrap()(Severity::WARN, c"not any more".as_ptr());
    }
    assert_eq!(level, Severity::INFO);
    drop(backend);
    for name in ["HIPDNN_LOG_LEVEL", "HIPDNN_LOG_FILE", "HIPDNN_LOG_GRAPH_DIR"] {
        remove_variable(name);
    }
    let text = std::fs::read_to_string(&log).unwrap();
    for part in [
        "] [info] [hipdnn_backend] hipdnnCreate(",
        "] [info] [hipdnn_plugin] echo: hello",
        "] [info] [hipdnn_backend] hipdnnBackendExecute: HIPDNN_STATUS_SUCCESS",
        "] [error] [hipdnn_backend] hipdnnDestroy: HIPDNN_STATUS_BAD_PARAM_NULL_POINTER: the handle is null",
        "] [warning] [hipdnn_client] a client's word",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(!text.contains("not any more"));
    let dumped: Vec<PathBuf> = graphs.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(dumped.len(), 1);
    let name = dumped[0].file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("graph_") && name.ends_with(".json"), "{name}");
    let json = std::fs::read_to_string(&dumped[0]).unwrap();
    assert_eq!(hipdnn_schemas::GraphDef::from_json(&json).unwrap(), add_graph());

    // Unloading leaves nothing: no library, no memory.
    let flat_library = flat.join(LIBRARY_NAME);
    let round = || {
        let backend = open(&flat_library);
        live(&backend);
        drop(backend);
        assert!(!mapped("flat/libhipdnn_backend.so") && !mapped("flat/libhipdnn_rs_plugin.so"));
    };
    for _ in 0..20 {
        round();
    }
    // What a round leaves behind is there after each batch; the C library's own lists grow now and then, and less and less.
    let grown: Vec<usize> = (0..40)
        .map(|_| {
            let before = allocated();
            (0..25).for_each(|_| round());
            allocated().saturating_sub(before)
        })
        .collect();
    assert!(grown.contains(&0), "bytes are left after each batch of 25 rounds: {grown:?}");
}
