//! Plugins: which are loaded, which of their engines are admitted, when they are unloaded, and what their failures
//! become.

mod common;

use std::ffi::{CStr, CString, c_char};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use common::*;

fn engines(handle: &OwnedHandle) -> Vec<(String, i64)> {
    let mut count = 0;
    // SAFETY: the places are valid.
    assert_eq!(unsafe { hipdnnGetEngineCount_ext(handle.0, &mut count) }, OK);
    (0..count).map(|index| (info(handle, index)[0].clone(), engine_info_id(handle, index))).collect()
}

fn engine_info_id(handle: &OwnedHandle, index: usize) -> i64 {
    let mut id = 0;
    let mut lengths = [0usize; 4];
    let [a, b, c, d] = lengths.each_mut();
    // SAFETY: the places are valid, the buffers null.
    let status = unsafe {
        hipdnnGetEngineInfo_ext(handle.0, index, &mut id, null_mut(), a, null_mut(), b, null_mut(), c, null_mut(), d)
    };
    assert_eq!(status, OK);
    id
}

/// Name, plugin, version and type of an engine.
fn info(handle: &OwnedHandle, index: usize) -> [String; 4] {
    let mut id = 0;
    let mut lengths = [0usize; 4];
    let [a, b, c, d] = lengths.each_mut();
    // SAFETY: the places are valid, the buffers null.
    let status = unsafe {
        hipdnnGetEngineInfo_ext(handle.0, index, &mut id, null_mut(), a, null_mut(), b, null_mut(), c, null_mut(), d)
    };
    assert_eq!(status, OK);
    let mut texts = lengths.map(|length| vec![0u8; length]);
    let call = |texts: &mut [Vec<u8>; 4], lengths: &mut [usize; 4]| {
        let [w, x, y, z] = texts.each_mut().map(|text| text.as_mut_ptr().cast::<c_char>());
        let [a, b, c, d] = lengths.each_mut();
        // SAFETY: the buffers are as large as the lengths say.
        unsafe { hipdnnGetEngineInfo_ext(handle.0, index, &mut 0, w, a, x, b, y, c, z, d) }
    };
    let mut short = lengths;
    short[2] -= 1;
    assert_eq!(call(&mut texts, &mut short), Status::BAD_PARAM);
    assert_eq!(call(&mut texts, &mut lengths), OK);
    texts.map(|text| CStr::from_bytes_with_nul(&text).unwrap().to_str().unwrap().to_string())
}

fn loaded(handle: &OwnedHandle) -> Vec<PathBuf> {
    let (mut count, mut longest) = (0, 0);
    // SAFETY: the places are valid.
    let status = unsafe { hipdnnGetLoadedEnginePluginPaths_ext(handle.0, &mut count, null_mut(), &mut longest) };
    assert_eq!(status, OK);
    let mut texts = vec![vec![0u8; longest]; count];
    let mut places: Vec<*mut c_char> = texts.iter_mut().map(|text| text.as_mut_ptr().cast()).collect();
    let mut few = count.wrapping_sub(1);
    if count > 0 {
        // SAFETY: there are more places than `few` says, of `longest` bytes.
        let status =
            unsafe { hipdnnGetLoadedEnginePluginPaths_ext(handle.0, &mut few, places.as_mut_ptr(), &mut longest) };
        assert_eq!(status, Status::BAD_PARAM);
    }
    // SAFETY: there are `count` places of `longest` bytes.
    let status =
        unsafe { hipdnnGetLoadedEnginePluginPaths_ext(handle.0, &mut count, places.as_mut_ptr(), &mut longest) };
    assert_eq!(status, OK);
    let text = |bytes: Vec<u8>| CStr::from_bytes_until_nul(&bytes).unwrap().to_str().unwrap().to_string();
    texts.into_iter().map(|bytes| PathBuf::from(text(bytes))).collect()
}

#[test]
fn engines_are_told() {
    let _turn = turn();
    let directory = scratch("plugins-info");
    let echo = compile(&directory, "z_echo.so", &[]);
    let other = compile(&directory, "a_other.so", &["ECHO_NAME=\"OTHER_ENGINE\""]);
    use_plugins(&[&echo, &other]);
    let handle = OwnedHandle::new();
    assert_eq!(loaded(&handle), [other.clone(), echo.clone()], "in the order of their paths");
    let told = engines(&handle);
    let want = ["ECHO_ENGINE", "OTHER_ENGINE"].map(|name| (name.to_string(), engine_id(name)));
    assert_eq!(told, want, "in the order of their names");
    assert_eq!(info(&handle, 0), ["ECHO_ENGINE", "echo", "0.1.2", "ENGINE"]);
    let mut id = 0;
    let mut length = 0;
    let mut name = [0u8; 32];
    // SAFETY: the places are valid and as large as we say.
    unsafe {
        assert_eq!(hipdnnGetEngineIdByName_ext(handle.0, c"OTHER_ENGINE".as_ptr(), &mut id), OK);
        assert_eq!(id, engine_id("OTHER_ENGINE"));
        assert_eq!(hipdnnGetEngineNameById_ext(handle.0, id, null_mut(), &mut length), OK);
        assert_eq!(length, 13);
        length = 12;
        assert_eq!(hipdnnGetEngineNameById_ext(handle.0, id, name.as_mut_ptr().cast(), &mut length), Status::BAD_PARAM);
        length = name.len();
        assert_eq!(hipdnnGetEngineNameById_ext(handle.0, id, name.as_mut_ptr().cast(), &mut length), OK);
    }
    assert!(name.starts_with(b"OTHER_ENGINE\0"));
    let mut count = 0;
    // SAFETY: the place is valid.
    assert_eq!(unsafe { hipdnnGetHeuristicPolicyCount_ext(handle.0, &mut count) }, OK);
    assert_eq!(count, 2);
}

#[test]
fn admission() {
    let _turn = turn();
    let hash = format!("ECHO_ID={}", engine_id("MIOPEN_ENGINE"));
    #[rustfmt::skip]
    let cases: &[(&str, &[&str], &[&str])] = &[
        ("named", &[], &["ECHO_ENGINE"]),
        ("no version counts as 1.0.0", &["ECHO_NO_API"], &["ECHO_ENGINE"]),
        ("major 0 is still taken", &["ECHO_API=\"0.3.0\""], &["ECHO_ENGINE"]),
        ("a newer minor", &["ECHO_API=\"1.99.0\""], &["ECHO_ENGINE"]),
        ("major 2", &["ECHO_API=\"2.0.0\""], &[]),
        ("no version number", &["ECHO_API=\"1.2\""], &[]),
        ("a heuristic plugin", &["ECHO_TYPE=HIPDNN_PLUGIN_TYPE_HEURISTIC"], &[]),
        ("an id twice", &["ECHO_TWICE"], &[]),
        ("no engine", &["ECHO_NONE"], &[]),
        ("a name that is not the id's", &["ECHO_ID=5"], &[]),
        ("unnamed and unknown", &["ECHO_ID=5", "ECHO_UNNAMED"], &["0x0000000000000005"]),
        ("unnamed, but hipDNN knows it", &[&hash, "ECHO_UNNAMED"], &["MIOPEN_ENGINE"]),
        ("an empty name", &["ECHO_ID=-1", "ECHO_NAME=\"\""], &["0xFFFFFFFFFFFFFFFF"]),
        ("no handle", &["ECHO_CREATE_FAILS"], &[]),
    ];
    let directory = scratch("plugins-admission");
    for (index, (what, macros, want)) in cases.iter().enumerate() {
        let plugin = compile(&directory, &format!("case{index}.so"), macros);
        use_plugins(&[&plugin]);
        let handle = OwnedHandle::new();
        let names: Vec<String> = engines(&handle).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, *want, "{what}");
    }
    // Of two plugins with one engine, the first by path keeps it.
    let first = compile(&directory, "first.so", &[]);
    let second = compile(&directory, "second.so", &["ECHO_COUNT=4"]);
    use_plugins(&[&second, &first]);
    let handle = OwnedHandle::new();
    assert_eq!(engines(&handle).len(), 1);
    drop(plan(&finished_graph(&handle, &add_graph())));
    assert_eq!(calls(&first).unwrap().contexts_created, 1);
    assert_eq!(calls(&second).unwrap().contexts_created, 0, "what it offers is passed over");
    drop(handle);
    // No plugin at all is no error until an engine is wanted; nor is a file that is none.
    std::fs::write(directory.join("text.so"), "not a library").unwrap();
    use_plugins(&[&directory.join("text.so"), &directory.join("missing.so")]);
    let handle = OwnedHandle::new();
    assert_eq!(engines(&handle).len(), 0);
    let heuristic = heuristic(&finished_graph(&handle, &add_graph()));
    heuristic.finalize();
    assert_eq!(results(&heuristic).len(), 0);
}

#[test]
fn failures_of_plugins() {
    let _turn = turn();
    let directory = scratch("plugins-failures");
    let plugin = |name: &str, define: &str| {
        let path = compile(&directory, name, &[define]);
        use_plugins(&[&path]);
    };
    let stage = |define: &str| -> (Status, String) {
        plugin(&format!("{define}.so"), define);
        let handle = OwnedHandle::new();
        // SAFETY: any stream is taken.
        let status = unsafe { hipdnnSetStream(handle.0, null_mut()) };
        if status != OK {
            return (status, "stream: ".to_string() + &last_error());
        }
        let heuristic = heuristic(&finished_graph(&handle, &add_graph()));
        let status = heuristic.try_finalize();
        if status != OK {
            return (status, "heuristic: ".to_string() + &last_error());
        }
        let config = results(&heuristic).remove(0);
        let status = config.try_finalize();
        if status != OK {
            return (status, "config: ".to_string() + &last_error());
        }
        let engine = config.get_desc(AttributeName::ENGINECFG_ENGINE);
        let (status, _) =
            engine.try_get(AttributeName::ENGINE_KNOB_INFO, AttributeType::BACKEND_DESCRIPTOR, &mut [0usize; 0]);
        if status != OK {
            return (status, "details: ".to_string() + &last_error());
        }
        let plan = Desc::new(DescriptorType::EXECUTION_PLAN_DESCRIPTOR);
        plan.set_desc(AttributeName::EXECUTION_PLAN_ENGINE_CONFIG, &config);
        let status = plan.try_finalize();
        if status != OK {
            return (status, "plan: ".to_string() + &last_error());
        }
        let data = Floats([0.0; 16]);
        let pack = pack(&[(1, data.address())], std::ptr::null());
        pack.finalize();
        (execute(&handle, &plan, &pack), "execute: ".to_string() + &last_error())
    };
    for (define, want, text) in [
        (
            "ECHO_STREAM_FAILS",
            Status::PLUGIN_ERROR,
            "stream: plugin echo: hipdnnEnginePluginSetStream gave HIPDNN_PLUGIN_STATUS_INTERNAL_ERROR (3): no streams",
        ),
        ("ECHO_APPLICABLE_FAILS", Status::PLUGIN_ERROR, "heuristic: "),
        ("ECHO_TOO_MANY", Status::PLUGIN_ERROR, "heuristic: "),
        ("ECHO_WORKSPACE_FAILS", Status::PLUGIN_ERROR, "config: "),
        ("ECHO_WORKSPACE=(size_t)-1", Status::INTERNAL_ERROR, "config: "),
        ("ECHO_NO_DETAILS", Status::PLUGIN_ERROR, "details: "),
        ("ECHO_CONTEXT_FAILS", Status::PLUGIN_ERROR, "plan: "),
        ("ECHO_NULL_CONTEXT", Status::PLUGIN_ERROR, "plan: "),
        ("ECHO_EXECUTE_FAILS", Status::PLUGIN_ERROR, "execute: "),
        (
            "ECHO_COUNT=16",
            Status::PLUGIN_ERROR,
            "execute: plugin echo: hipdnnEnginePluginExecuteOpGraph gave HIPDNN_PLUGIN_STATUS_INTERNAL_ERROR (3): a tensor is missing",
        ),
    ] {
        let (status, came) = stage(define);
        assert_eq!(status, want, "{define}: {came}");
        assert!(came.starts_with(text), "{define}: {came}");
    }
}

#[test]
fn search_paths_change_only_without_handles() {
    let _turn = turn();
    let directory = scratch("plugins-paths");
    let one = compile(&directory, "one.so", &[]);
    let two = compile(&directory, "two.so", &["ECHO_NAME=\"TWO\""]);
    let set = |path: &Path, mode: PluginLoadingMode| {
        let text = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: one text is there.
        unsafe { hipdnnSetEnginePluginPaths_ext(1, [text.as_ptr()].as_ptr(), mode) }
    };
    use_plugins(&[&one]);
    {
        let handle = OwnedHandle::new();
        assert_eq!(set(&one, PluginLoadingMode::ABSOLUTE), OK, "no change");
        assert_eq!(set(&two, PluginLoadingMode::ABSOLUTE), Status::NOT_SUPPORTED);
        assert_eq!(set(&one, PluginLoadingMode::ADDITIVE), Status::NOT_SUPPORTED);
        assert_eq!(loaded(&handle), std::slice::from_ref(&one));
    }
    assert!(calls(&one).is_some(), "lazily unloaded: it stays");
    assert_eq!(set(&two, PluginLoadingMode::ADDITIVE), OK);
    assert!(calls(&one).is_none(), "another search drops it");
    let handle = OwnedHandle::new();
    assert_eq!(loaded(&handle), [one.clone(), two.clone()], "added to what was set before");
    drop(handle);
    assert_eq!(set(&directory, PluginLoadingMode::ABSOLUTE), OK);
    let handle = OwnedHandle::new();
    assert_eq!(loaded(&handle), [one, two], "a directory");
}

#[test]
fn eager_unloading_closes_with_the_last_handle() {
    let _turn = turn();
    let directory = scratch("plugins-eager");
    let plugin = compile(&directory, "echo.so", &[]);
    use_plugins(&[&plugin]);
    drop(OwnedHandle::new());
    assert!(calls(&plugin).is_some());
    assert_eq!(hipdnnSetPluginUnloadMode_ext(PluginUnloadingMode::EAGER), OK);
    assert!(calls(&plugin).is_none(), "at once, as there is no handle");
    let (first, second) = (OwnedHandle::new(), OwnedHandle::new());
    let plan = plan(&finished_graph(&first, &add_graph()));
    drop(first);
    drop(second);
    assert!(calls(&plugin).is_some(), "a plan still lives");
    drop(plan);
    assert!(calls(&plugin).is_none());
    assert_eq!(hipdnnSetPluginUnloadMode_ext(PluginUnloadingMode::LAZY), OK);
    drop(OwnedHandle::new());
    assert!(calls(&plugin).is_some());
}

#[test]
fn order_of_engines() {
    let _turn = turn();
    let directory = scratch("plugins-order");
    let deterministic = compile(&directory, "a.so", &["ECHO_NAME=\"MIOPEN_ENGINE_DETERMINISTIC\""]);
    let other = compile(&directory, "b.so", &["ECHO_NAME=\"OTHER\""]);
    let miopen = compile(&directory, "c.so", &["ECHO_NAME=\"MIOPEN_ENGINE\""]);
    use_plugins(&[&deterministic, &other, &miopen]);
    let handle = OwnedHandle::new();
    let order = |def: &hipdnn_schemas::GraphDef, set: &dyn Fn(&Desc)| {
        let heuristic = heuristic(&finished_graph(&handle, def));
        set(&heuristic);
        let status = heuristic.try_finalize();
        if status != OK {
            return Err(status);
        }
        let ids = results(&heuristic).into_iter().map(|config| {
            config.finalize();
            config.get_desc(AttributeName::ENGINECFG_ENGINE).get_text(AttributeName::ENGINE_NAME_EXT)
        });
        Ok(ids.collect::<Vec<_>>())
    };
    let names = |names: &[&str]| Ok(names.iter().map(|name| name.to_string()).collect::<Vec<_>>());
    let plain = add_graph();
    assert_eq!(order(&plain, &|_| ()), names(&["MIOPEN_ENGINE", "OTHER", "MIOPEN_ENGINE_DETERMINISTIC"]));
    let mut preferring = add_graph();
    preferring.preferred_engine_id = Some(engine_id("OTHER"));
    assert_eq!(order(&preferring, &|_| ()), names(&["OTHER", "MIOPEN_ENGINE", "MIOPEN_ENGINE_DETERMINISTIC"]));
    let find_first = |heuristic: &Desc| {
        heuristic.set(AttributeName::ENGINEHEUR_FIND_FIRST_EXT, AttributeType::BOOLEAN, &[true]);
    };
    assert_eq!(order(&plain, &find_first), names(&["MIOPEN_ENGINE_DETERMINISTIC"]), "the first plugin's");
    for (policies, want) in [
        (vec![], Err(Status::INTERNAL_ERROR)),
        (vec![7], Err(Status::INTERNAL_ERROR)),
        (
            vec![7, engine_id("SelectionHeuristic::StaticOrdering")],
            names(&["MIOPEN_ENGINE", "OTHER", "MIOPEN_ENGINE_DETERMINISTIC"]),
        ),
        (vec![engine_id("SelectionHeuristic::Config")], Err(Status::INTERNAL_ERROR)),
    ] {
        let set = |heuristic: &Desc| {
            heuristic.set_int64s(AttributeName::ENGINEHEUR_POLICY_ORDER_EXT, &policies);
        };
        assert_eq!(order(&plain, &set), want, "{policies:?}");
    }
}

/// hipDNN passes over policies that it does not know, and fails where no other one ranks.
#[test]
fn unknown_heuristic_policies_are_named() {
    let _turn = turn();
    let directory = scratch("plugins-policies");
    let plugin = compile(&directory, "echo.so", &[]);
    use_plugins(&[&plugin]);
    let handle = OwnedHandle::new();
    let graph = finished_graph(&handle, &add_graph());
    let [config, ordering, newer] =
        ["Config", "StaticOrdering", "ModeA"].map(|name| engine_id(&format!("SelectionHeuristic::{name}")));
    let (name, kind) = (AttributeName::ENGINEHEUR_POLICY_ORDER_EXT, AttributeType::INT64);
    for (chosen, resolved) in [
        (None, vec![config, ordering]),
        (Some(vec![ordering]), vec![ordering]),
        // What the frontend sends for its mode A.
        (Some(vec![config, newer, ordering]), vec![config, newer, ordering]),
    ] {
        let heuristic = heuristic(&graph);
        if let Some(chosen) = &chosen {
            heuristic.set_int64s(name, chosen);
        }
        heuristic.finalize();
        assert_eq!(heuristic.get_int64s(name), resolved, "{chosen:?}");
    }
    let heuristic = heuristic(&graph);
    heuristic.set_int64s(name, &[newer, config]);
    assert_eq!(heuristic.try_finalize(), Status::INTERNAL_ERROR);
    let text = last_error();
    assert!(text.contains(&format!("0x{newer:016X}")) && text.contains("SelectionHeuristic::StaticOrdering"), "{text}");
    // SAFETY: the array is null, which is refused.
    let status = unsafe { hipdnnBackendSetAttribute(heuristic.0, name, kind, 1, std::ptr::null()) };
    assert_eq!(status, Status::BAD_PARAM_NULL_POINTER);
}

/// A handle is made without the plugins that do not load; its maker's last error tells why.
#[test]
fn creating_keeps_why_a_plugin_was_not_loaded() {
    let _turn = turn();
    let directory = scratch("plugins-reasons");
    std::fs::write(directory.join("text.so"), "not a library").unwrap();
    let no_plugin = directory.join("empty.so");
    let mut cc = std::process::Command::new("cc");
    assert!(cc.args(["-shared", "-x", "c", "/dev/null", "-o"]).arg(&no_plugin).status().unwrap().success());
    for (plugin, wanted) in [
        (directory.join("text.so"), "text.so"),
        (no_plugin, "Failed to get symbol"),
        (compile(&directory, "major.so", &["ECHO_API=\"2.0.0\""]), "does not match expected engine API major version"),
        (compile(&directory, "version.so", &["ECHO_API=\"1.2\""]), "MAJOR.MINOR.PATCH"),
        (compile(&directory, "none.so", &["ECHO_NONE"]), "engines"),
    ] {
        use_plugins(&[&plugin]);
        assert_eq!(last_error(), "");
        let handle = OwnedHandle::new();
        let text = last_error();
        assert!(text.contains(wanted) && text.contains(plugin.to_str().unwrap()), "{plugin:?}: {text}");
        assert_eq!(loaded(&handle), [] as [PathBuf; 0]);
        drop(OwnedHandle::new());
        assert_eq!(last_error(), "", "said when the plugins are loaded, which the second handle does not");
    }
    use_plugins(&[&compile(&directory, "echo.so", &[])]);
    drop(OwnedHandle::new());
    assert_eq!(last_error(), "");
}

/// Messages that [`collect`] received.
static LINES: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());

unsafe extern "C" fn collect(_: *mut std::ffi::c_void, _: Severity, message: *const c_char) {
    // SAFETY: the text ends in a NUL.
    let message = unsafe { CStr::from_ptr(message) };
    LINES.lock().unwrap().push(message.to_str().unwrap().to_string());
}

#[test]
fn engines_that_are_left_out_are_logged() {
    let _turn = turn();
    let directory = scratch("plugins-left-out");
    let id = engine_id("ECHO_ENGINE");
    let duplicate = [compile(&directory, "a.so", &[]), compile(&directory, "b.so", &[])];
    let misnamed = [compile(&directory, "c.so", &["ECHO_ID=5"])];
    let user = (&raw const LINES).cast_mut().cast();
    let register = |level| {
        // SAFETY: the callback may be called at any time.
        unsafe { hipdnnSetUserLogCallback_ext(Some(collect), level, LogCallbackMode::SYNC, user) }
    };
    assert_eq!(register(Severity::ERROR), OK);
    assert_eq!(hipdnnBackendSetGlobalLogLevel_ext(Severity::ERROR), OK);
    for (plugins, wanted) in [
        (&duplicate[..], format!("declares engine 0x{id:016X}, which plugin echo")),
        (&misnamed[..], "reports engine name 'ECHO_ENGINE' for engine 0x0000000000000005".to_string()),
    ] {
        use_plugins(&plugins.iter().map(PathBuf::as_path).collect::<Vec<_>>());
        drop(OwnedHandle::new());
        let lines = std::mem::take(&mut *LINES.lock().unwrap());
        assert!(lines.iter().any(|line| line.contains(&wanted)), "expected {wanted:?}, got {lines:#?}");
    }
    assert_eq!(hipdnnBackendSetGlobalLogLevel_ext(Severity::OFF), OK);
    assert_eq!(register(Severity::OFF), OK);
}

/// Comes back into the library whenever something is logged.
unsafe extern "C" fn intruder(user: *mut std::ffi::c_void, _: Severity, message: *const c_char) {
    // SAFETY: the text ends in a NUL; the test registers a place for the statuses that outlives the registration.
    let (message, statuses) = unsafe { (CStr::from_ptr(message), &*user.cast::<std::sync::Mutex<Vec<Status>>>()) };
    if message.to_bytes() != b"echo: hello" {
        return;
    }
    let mut handle = null_mut();
    // SAFETY: the place is valid.
    let created = unsafe { hipdnnCreate(&mut handle) };
    let unloading = hipdnnSetPluginUnloadMode_ext(PluginUnloadingMode::LAZY);
    // SAFETY: no path is there.
    let paths = unsafe { hipdnnSetEnginePluginPaths_ext(0, std::ptr::null(), PluginLoadingMode::ABSOLUTE) };
    let level = hipdnnBackendSetGlobalLogLevel_ext(Severity::INFO);
    statuses.lock().unwrap().extend([created, unloading, paths, level]);
}

#[test]
fn log_callbacks_may_come_back_while_plugins_load() {
    let _turn = turn();
    let directory = scratch("plugins-intruder");
    let plugin = compile(&directory, "echo.so", &[]);
    use_plugins(&[&plugin]);
    let statuses = std::sync::Mutex::new(Vec::<Status>::new());
    let user = (&raw const statuses).cast_mut().cast();
    let register = |level| {
        // SAFETY: `statuses` outlives the registration.
        unsafe { hipdnnSetUserLogCallback_ext(Some(intruder), level, LogCallbackMode::SYNC, user) }
    };
    assert_eq!(register(Severity::INFO), OK);
    assert_eq!(hipdnnBackendSetGlobalLogLevel_ext(Severity::INFO), OK);
    let handle = OwnedHandle::new();
    assert_eq!(hipdnnBackendSetGlobalLogLevel_ext(Severity::WARN), OK);
    assert_eq!(calls(&plugin).unwrap().log_level, i64::from(Severity::WARN.0), "plugins follow the level");
    assert_eq!(hipdnnBackendSetGlobalLogLevel_ext(Severity::OFF), OK);
    assert_eq!(register(Severity::OFF), OK);
    let refused = Status::NOT_SUPPORTED;
    assert_eq!(*statuses.lock().unwrap(), [refused, refused, refused, OK]);
    assert_eq!(engines(&handle).len(), 1);
}
