//! The program over files: what it prints, how it ends, and what hostile files can't do.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use hipdnn_rs_integration_tests::artifacts::{self, Artifact};
use hipdnn_schemas::{
    CustomOp, DataType, EngineConfig, EngineDetails, Graph, GraphBuilder, GraphDef, Knob, KnobConstraint, KnobValue,
    Operation, SerializedExecutionPlan, SerializedGraphAndPlan, TensorDef, TensorUid,
};
use hipdnn_sdk_bindings::hipdnn::plugin::engine_id;

/// hipDNN's own JSON form.
const JSON: &str = include_str!("fixture/conv_bias_relu.json");

fn scratch() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("command");
    std::fs::create_dir_all(&directory).expect("the scratch directory is writable");
    directory
}

/// A file of this test's own.
fn file(name: &str, bytes: &[u8]) -> String {
    let path = scratch().join(name);
    std::fs::write(&path, bytes).expect("the scratch directory is writable");
    path.to_str().expect("the path is text").to_string()
}

fn def() -> GraphDef {
    GraphDef::from_json(JSON).expect("the fixture is a graph")
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hipdnn-rs"));
    command.args(arguments).stdin(Stdio::null());
    for (variable, _) in std::env::vars().filter(|(name, _)| name.starts_with("HIPDNN_")) {
        command.env_remove(variable);
    }
    command
}

/// Exit code, output and errors.
fn run(arguments: &[&str]) -> (i32, String, String) {
    finish(command(arguments).output().expect("the program starts"))
}

fn finish(output: Output) -> (i32, String, String) {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the program writes text");
    (output.status.code().expect("no signal ended the program"), text(output.stdout), text(output.stderr))
}

/// The output of a run that must succeed.
fn succeeds(arguments: &[&str]) -> String {
    let (code, output, errors) = run(arguments);
    assert_eq!(code, 0, "{arguments:?}: {errors}{output}");
    output
}

/// The error of a run that must fail: one sentence, and nothing else.
fn fails(arguments: &[&str]) -> String {
    let (code, output, errors) = run(arguments);
    assert_eq!((code, output.as_str()), (2, ""), "{arguments:?}: {errors}");
    assert!(errors.starts_with("hipdnn-rs: ") && errors.lines().count() == 1, "{arguments:?}: {errors}");
    errors
}

fn plugin() -> &'static str {
    static PLUGIN: OnceLock<String> = OnceLock::new();
    PLUGIN.get_or_init(|| artifacts::library_path(Artifact::Plugin).to_str().expect("the path is text").to_string())
}

/// A plugin that is not ours, as somebody else would write one: conv, add, relu in fp32 with plain loops on the host.
fn foreign_plugin() -> &'static str {
    static PLUGIN: OnceLock<String> = OnceLock::new();
    PLUGIN.get_or_init(|| {
        let path = scratch().join("libtest_c_plugin.so");
        artifacts::compile("test_plugin.c", &path, &["-shared", "-fPIC", "-fvisibility=default"]);
        path.to_str().expect("the path is text").to_string()
    })
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

/// A node that only a plugin knows: no engine here takes it.
fn custom() -> GraphDef {
    let mut graph = GraphBuilder::new("custom").compute(DataType::Float);
    let x = graph.tensor(TensorDef::new(1, DataType::Float, &[4]));
    let y = graph.tensor(TensorDef::new(2, DataType::Float, &[4]));
    let operation = CustomOp { custom_op_id: "other.op".into(), inputs: vec![x], outputs: vec![y], data: vec![] };
    graph.node("mine", Operation::CustomOp(operation));
    graph.def().clone()
}

#[test]
fn both_forms_read_alike() {
    let json = file("alike.json", JSON.as_bytes());
    let binary = file("alike.bin", &def().to_bytes());
    let listing = succeeds(&["inspect", &json]);
    assert_eq!(succeeds(&["inspect", &binary]), listing);
    let mut child = command(&["inspect", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("a pipe").write_all(JSON.as_bytes()).expect("it reads");
    assert_eq!(finish(child.wait_with_output().expect("it ends")), (0, listing.clone(), String::new()));
    has(
        &listing,
        &[
            "graph \"conv_bias_relu\": 3 nodes, 6 tensors\n",
            "    3  \"conv\"    float  [1,6,12,10]  [720,120,10,1] packed  virtual  2880 B  node 0      node 1\n",
            "  0: ConvolutionFwd \"conv\" in float\n       reads  x = 1 \"x\", w = 2 \"w\"\n       writes y = 3 \"conv\"\n       \
             with   pre_padding [1,1], post_padding [1,1]\n",
            "  2: Pointwise relu_fwd \"relu\" in float\n",
            "memory: inputs 5.5 KiB, outputs 2880 B, intermediates 5.6 KiB if none were fused\n",
        ],
    );
}

#[test]
fn drawings_are_graphviz() {
    let drawing = succeeds(&["inspect", "--dot", &file("drawn.json", JSON.as_bytes())]);
    has(
        &drawing,
        &["digraph \"conv_bias_relu\" {\n", "\"t1\" -> n0 [label=\"x\"];", "n2 -> \"t6\" [label=\"out_0\"];"],
    );
    // Where Graphviz is installed, it says whether the drawing is one.
    let dot = Command::new("dot").arg("-Tplain").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    if let Ok(mut dot) = dot {
        dot.stdin.take().expect("a pipe").write_all(drawing.as_bytes()).expect("it reads");
        let (code, plain, _) = finish(dot.wait_with_output().expect("it ends"));
        assert_eq!((code, plain.lines().filter(|line| line.starts_with("edge")).count()), (0, 8), "{plain}");
    }
    assert!(fails(&["inspect", "--dot", "--as", "knob", "x"]).contains("--dot draws graphs only"));
}

#[test]
fn conversion_keeps_everything() {
    let (binary, json) = (scratch().join("converted.bin"), scratch().join("converted.json"));
    let (binary, json) = (binary.to_str().expect("text"), json.to_str().expect("text"));
    let original = file("original.json", JSON.as_bytes());
    succeeds(&["convert", &original, "--to", "binary", "-o", binary]);
    assert_eq!(GraphDef::from_bytes(&std::fs::read(binary).expect("it was written")), Ok(def()));
    succeeds(&["convert", binary, "--to", "json", "-o", json]);
    assert_eq!(GraphDef::from_json(&std::fs::read_to_string(json).expect("it was written")), Ok(def()));
    assert_eq!(GraphDef::from_json(&succeeds(&["convert", binary, "--to", "json", "-o", "-"])), Ok(def()));
    let missing = fails(&["convert", binary, "--to", "json", "-o", "/nonexistent/directory/graph.json"]);
    has(&missing, &["/nonexistent/directory/graph.json: No such file"]);
}

#[test]
fn what_is_no_graph_is_listed_too() {
    let engine = engine_id("HIPDNN_RS_CPU_ENGINE");
    let config = EngineConfig {
        engine_id: engine,
        knobs: vec![
            ("global.deterministic".into(), KnobValue::Int(1)),
            ("a".into(), KnobValue::String("b\x1b".into())),
        ],
    };
    let knob = Knob {
        id: "some.knob".into(),
        description: "turns something".into(),
        default: KnobValue::Float(0.5),
        constraint: Some(KnobConstraint::Float { min: 0.0, max: 1.0 }),
        deprecated: true,
    };
    let details = EngineDetails { engine_id: 77, knobs: vec![knob.clone()], behavior_notes: vec![4], name: None };
    let plan = SerializedExecutionPlan {
        version: 1,
        engine_id: engine,
        workspace_size: 1 << 20,
        tensor_uids: vec![TensorUid(1), TensorUid(6)],
        plugin_payload: vec![7; 33],
        is_override_shape_enabled: true,
        tensor_alignments: vec![16, 1],
        ..SerializedExecutionPlan::default()
    };
    let both = SerializedGraphAndPlan { graph: def().to_bytes(), plan: Some(plan.to_bytes()) };
    let configured = "configuration of engine HIPDNN_RS_CPU_ENGINE (0xb77bb794662ad634)\n  global.deterministic = 1\n  a = \"b\\u{1b}\"\n";
    let planned = "plan of engine HIPDNN_RS_CPU_ENGINE (0xb77bb794662ad634)\n  version    1\n  workspace  1.0 MiB\n  \
                   tensors    [1,6]\n  alignment  [16,1]\n  overrides  allowed\n  payload    33 B, for the plugin only\n";
    for (name, bytes, wanted) in [
        ("config", config.to_bytes(), configured.to_string()),
        ("plan", plan.to_bytes(), planned.into()),
        (
            "details",
            details.to_bytes(),
            "details of engine 0x000000000000004d\n  notes  supports execution plan serialization\n  knob       default  \
             values  meaning\n  some.knob  0.5      0 to 1  (deprecated) turns something\n"
                .into(),
        ),
        (
            "knob",
            knob.to_bytes(),
            "  knob       default  values  meaning\n  some.knob  0.5      0 to 1  (deprecated) turns something\n".into(),
        ),
    ] {
        let path = file(&format!("listed.{name}"), &bytes);
        assert_eq!(succeeds(&["inspect", &path]), wanted, "{name}");
        assert_eq!(succeeds(&["inspect", "--as", name, &path]), wanted, "{name}");
        let wrong = fails(&["explain", &path]);
        has(&wrong, &["expected a graph, got "]);
    }
    let container = file("listed.hdgp", &both.to_bytes());
    let listing = succeeds(&["inspect", &container]);
    has(&listing, &["graph \"conv_bias_relu\": 3 nodes", planned]);
    let graph = file("listed.json", JSON.as_bytes());
    has(&fails(&["inspect", "--as", "plan", &graph]), &["not a hipDNN FlatBuffer"]);
}

#[test]
fn errors_name_the_place() {
    for (change, want) in [
        (
            ("\"dims\": [6, 8, 3, 3]", "\"dims\": [6, 8, -3, 3]"),
            "tensor 2: expected an extent of at least 1 in dimension 2, got -3",
        ),
        (
            ("\"w_tensor_uid\": 2", "\"w_tensor_uid\": 9"),
            "node 0 (ConvolutionFwdAttributes): it reads tensor 9, which the graph does not have",
        ),
        (
            ("\"operation\": \"add\"", "\"operation\": \"plus\""),
            "nodes[1]: inputs.operation: expected a pointwise mode (unset, abs, add, ",
        ),
        (("\"uid\": 6", "\"uid\": 5"), "tensor 5: its uid is taken by another tensor"),
        (
            ("\"data_type\": \"float\", \"dims\": [1, 8", "\"data_type\": \"flaot\", \"dims\": [1, 8"),
            "tensors[0]: data_type: expected a data type (unset, float, half, ",
        ),
        (("\"name\": \"conv_bias_relu\",", "\"name\": \"conv_bias_relu\""), "not a hipDNN JSON graph: expected"),
    ] {
        assert!(JSON.contains(change.0), "{}", change.0);
        let path = file("wrong.json", JSON.replacen(change.0, change.1, 1).as_bytes());
        has(&fails(&["inspect", &path]), &[&path, want]);
    }
    has(&fails(&["inspect", "/nonexistent/graph"]), &["/nonexistent/graph: No such file"]);
    has(&fails(&["inspect", &file("empty", b"")]), &["the file is empty"]);
    has(&fails(&["inspect", "/dev/zero"]), &["/dev/zero: expected at most 1.0 GiB, got more"]);
    has(&fails(&["inspect", scratch().to_str().expect("text")]), &["Is a directory"]);
}

/// Cut and flipped files end with a listing or an error, never with a panic or a signal.
#[test]
fn hostile_files_are_survived() {
    let original = def().to_bytes();
    let mut random = fastrand::Rng::with_seed(7);
    let mut variants: Vec<Vec<u8>> = (0..30).map(|i| original[..i * original.len() / 30].to_vec()).collect();
    // Few of them are still graphs: one in about six.
    for _ in 0..300 {
        let mut bytes = original.clone();
        for _ in 0..random.usize(1..=4) {
            let at = random.usize(..bytes.len());
            bytes[at] = random.u8(..);
        }
        variants.push(bytes);
    }
    let mut deep = vec![b'['; 100_000];
    deep.extend(b"{");
    variants.extend([deep, vec![0; 4096], vec![0xff; 4096], b"{\"nodes\": 1e999}".to_vec()]);
    let (mut listed, mut refused) = (0, 0);
    for bytes in variants {
        let path = file("hostile", &bytes);
        for arguments in [&["inspect", &path][..], &["inspect", "--dot", &path]] {
            let (code, output, errors) = run(arguments);
            match code {
                0 => listed += 1,
                2 => refused += 1,
                _ => panic!("{arguments:?} of {bytes:?}: exit code {code}: {errors}"),
            }
            assert!(code == 0 || errors.lines().count() == 1, "{errors}");
            assert!(!output.contains(|c: char| c.is_control() && c != '\n'), "{output:?}");
        }
    }
    assert!(listed > 10 && refused > 50, "{listed} listed, {refused} refused");
}

/// A graph of 62 bytes a node may ask for more memory than there is.
#[test]
fn tensors_that_do_not_fit_are_refused_before_they_are_made() {
    let mut graph = def();
    for tensor in &mut graph.tensors {
        if tensor.dims[1] != 1 && tensor.uid != TensorUid(2) {
            tensor.dims[0] = 1 << 30;
        }
    }
    Graph::new(graph.clone()).expect("it is a graph all the same");
    let path = file("huge.bin", &graph.to_bytes());
    for command in [&["run", &path, "--against", "reference"][..], &["bench", &path]] {
        let problem = fails(&[command, &["--plugin", plugin()]].concat());
        has(&problem, &["expected ", " of free memory for a run, got ", "the largest tensor is 1 with"]);
    }
}

#[test]
fn a_reader_that_goes_away_is_survived() {
    let mut graph = def();
    // More than a pipe holds.
    graph.tensors.extend((100..3000).map(|uid| TensorDef::new(uid, DataType::Float, &[4]).named("spare")));
    let path = file("long.bin", &graph.to_bytes());
    let mut child =
        command(&["inspect", &path]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    let (code, _, errors) = finish(child.wait_with_output().expect("it ends"));
    assert_eq!((code, errors.as_str()), (0, ""));
}

#[test]
fn engines_are_explained() {
    let graph = file("explained.json", JSON.as_bytes());
    let mut on = command(&["explain", &graph, "--plugin", plugin(), "--knob", "hipdnn_rs.cpu.threads=1"]);
    let (code, output, errors) = finish(on.env("HIPDNN_RS_CPU_ENGINE", "on").output().expect("it starts"));
    assert_eq!((code, errors.as_str()), (0, ""), "{output}");
    has(
        &output,
        &[
            "hipdnn_rs_plugin, ",
            "HIPDNN_RS_CPU_ENGINE (0xb77bb794662ad634) takes it\n  set: hipdnn_rs.cpu.threads = 1\n  workspace: ",
            "  plan: ",
            "convolution",
            "bias",
        ],
    );
    // The columns are as wide as the longest knob's name, so a row is compared by its words.
    let knob = output.lines().find(|line| line.starts_with("  hipdnn_rs.cpu.threads ")).expect("a row of the table");
    assert!(knob.split_whitespace().skip(1).take(4).eq(["0", "0", "to", "1024"]), "{knob}");
    let mut off = command(&["explain", &graph, "--plugin", plugin(), "--engine", "HIPDNN_RS_CPU_ENGINE"]);
    let (code, output, _) = finish(off.env("HIPDNN_RS_CPU_ENGINE", "off").output().expect("it starts"));
    assert_eq!(code, 1);
    has(
        &output,
        &[
            "HIPDNN_RS_CPU_ENGINE (0xb77bb794662ad634) declines\n  the CPU engine is switched off",
            "no engine takes it\n",
        ],
    );
    let custom = file("custom.bin", &custom().to_bytes());
    let mut declined = command(&["explain", &custom, "--plugin", plugin()]);
    let (code, output, _) = finish(declined.env("HIPDNN_RS_CPU_ENGINE", "on").output().expect("it starts"));
    assert_eq!(code, 1);
    has(&output, &["HIPDNN_RS_CPU_ENGINE", "declines\n  node 0 (CustomOp \"mine\"): "]);
}

#[test]
fn other_plugins_are_asked_too() {
    let graph = file("asked.json", JSON.as_bytes());
    let both = ["--plugin", plugin(), "--plugin", foreign_plugin()];
    let mut explain = command(&[&["explain", &graph, "--no-plan"][..], &both].concat());
    let (code, output, _) = finish(explain.env("HIPDNN_RS_CPU_ENGINE", "on").output().expect("it starts"));
    assert_eq!(code, 0);
    has(
        &output,
        &["HIPDNN_RS_CPU_ENGINE (0xb77bb794662ad634) takes it", "TEST_C_ENGINE", "test_c_plugin: handle created"],
    );
    has(&output, &["1. ", "2. "]);
    // The engine's name doesn't tell that it works in host memory.
    let run = |against: &[&str]| {
        let arguments =
            [&["run", &graph, "--engine", "TEST_C_ENGINE", "--memory", "host"][..], &both, against].concat();
        self::run(&arguments)
    };
    let (code, output, errors) = run(&["--against", "HIPDNN_RS_CPU_ENGINE"]);
    assert_eq!((code, errors.as_str()), (0, ""), "{output}");
    has(
        &output,
        &[
            "TEST_C_ENGINE with 0 B of workspace\n",
            "TEST_C_ENGINE against HIPDNN_RS_CPU_ENGINE, each with its derived bound\n",
            "TEST_C_ENGINE against double precision\n",
            "HIPDNN_RS_CPU_ENGINE against double precision\n",
            "\nall within their bounds\n",
        ],
    );
    // Two engines round in different orders: equal bits are too much to ask.
    let (code, output, errors) = run(&["--against", "HIPDNN_RS_CPU_ENGINE", "--tolerance", "0"]);
    assert_eq!((code, errors.as_str()), (1, ""), "{output}");
    has(&output, &["within 0 of the largest magnitude", "\nNOT within their bounds\n"]);
    let engines = ["--engine", "HIPDNN_RS_CPU_ENGINE", "--engine", "TEST_C_ENGINE"];
    let table = succeeds(&[&["bench", &graph, "--seconds", "0.05", "--memory", "host"][..], &engines, &both].concat());
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).collect();
    assert_eq!(rows.len(), 4, "{table}");
    has(&table, &["| engine ", "median execute", "99 %", "workspace", "| HIPDNN_RS_CPU_ENGINE", "| TEST_C_ENGINE"]);
}

/// The order is kept by the backend: once, and not where its cache is switched off.
#[test]
fn engines_are_tuned() {
    let graph = file("tuned.json", JSON.as_bytes());
    let cache = scratch().join("rankings");
    let _ = std::fs::remove_dir_all(&cache);
    let backend = artifacts::library_path(Artifact::Backend);
    let tune = |environment: &[(&str, &str)]| {
        let both = ["--plugin", plugin(), "--plugin", foreign_plugin(), "--memory", "host", "--seconds", "0.05"];
        let mut command = command(&[&["tune", &graph][..], &both].concat());
        command.arg("--backend").arg(&backend).env("HIPDNN_CACHE_DIR", &cache).envs(environment.iter().copied());
        finish(command.output().expect("the program starts"))
    };
    let (code, output, errors) = tune(&[("HIPDNN_DISABLE_CACHE", "1")]);
    assert_eq!((code, errors.as_str()), (1, ""), "{output}");
    has(&output, &["order is not kept: the backend's cache is switched off"]);
    assert!(!cache.exists());
    let (code, output, errors) = tune(&[]);
    assert_eq!((code, errors.as_str()), (0, ""), "{output}");
    has(&output, &["| HIPDNN_RS_CPU_ENGINE", "| TEST_C_ENGINE", "order is kept (", "libhipdnn_backend.so): "]);
    let folders = || std::fs::read_dir(cache.join("autotune-rankings")).expect("it was made").flatten();
    let records = folders().flat_map(|folder| std::fs::read_dir(folder.path()).expect("a folder").flatten());
    let records: Vec<String> =
        records.map(|record| std::fs::read_to_string(record.path()).expect("a record")).collect();
    assert_eq!(records.len(), 1);
    let line = output.lines().last().expect("the order");
    let order: Vec<i64> = line.rsplit_once(": ").expect("names").1.split(", ").map(engine_id).collect();
    has(&records[0], &[&format!("\"order\":[{},{}]", order[0], order[1])]);
    // A file that is none does not take the others' times with it.
    let mut several = command(&["tune", "/nonexistent/graph.json", &graph, "--plugin", plugin(), "--seconds", "0.05"]);
    several.arg("--no-settings").arg("--backend").arg(&backend).env("HIPDNN_CACHE_DIR", &cache);
    let (code, output, errors) = finish(several.output().expect("the program starts"));
    assert_eq!((code, errors.as_str()), (1, ""), "{output}");
    has(&output, &["/nonexistent/graph.json: ", "| HIPDNN_RS_CPU_ENGINE", "times are kept for graphs like this one"]);
    let (code, output, errors) = run(&["tune", &graph, "--backend", "/nonexistent/backend.so"]);
    assert_eq!((code, output.as_str()), (2, ""));
    has(&errors, &["/nonexistent/backend.so"]);
}

#[test]
fn results_are_compared_saved_and_given_again() {
    let graph = file("saved.json", JSON.as_bytes());
    let directory = scratch().join("saved");
    let directory = directory.to_str().expect("text");
    let engine = ["run", &graph, "--engine", "HIPDNN_RS_CPU_ENGINE", "--plugin", plugin()];
    let run = |arguments: &[&str]| run(&[&engine[..], arguments].concat());
    let (code, output, errors) = run(&["--against", "reference", "--seed", "5", "--save", directory]);
    assert_eq!((code, errors.as_str()), (0, ""), "{output}");
    has(
        &output,
        &["seed 5", "HIPDNN_RS_CPU_ENGINE against double precision, with derived bounds\n", "  6 \"y\"        720  "],
    );
    let read = |name: &str| std::fs::read(Path::new(directory).join(name)).expect("it was saved");
    let (first, input) = (read("HIPDNN_RS_CPU_ENGINE.6.npy"), read("input.1.npy"));
    assert!(first.starts_with(b"\x93NUMPY") && input.starts_with(b"\x93NUMPY"));
    // The same inputs from files give the same bits, whatever the seed.
    let given = [1, 2, 4].map(|uid| format!("{uid}={directory}/input.{uid}.npy"));
    let again = scratch().join("again");
    let again = again.to_str().expect("text");
    let (code, output, errors) =
        run(&["--input", &given[0], "--input", &given[1], "--input", &given[2], "--seed", "6", "--save", again]);
    assert_eq!((code, errors.as_str()), (0, ""), "{output}");
    assert_eq!(std::fs::read(Path::new(again).join("HIPDNN_RS_CPU_ENGINE.6.npy")).expect("it was saved"), first);
    // Bytes as they lie in memory: a bias of 1000 shows in the result.
    let bias = file("bias.bin", &1000f32.to_ne_bytes().repeat(6));
    let (code, output, _) = run(&["--input", &format!("bias={bias}")]);
    assert_eq!(code, 0, "{output}");
    has(&output, &["  6 \"y\"   float       720  993.28"]);
    // The reference alone needs no engine.
    let (code, output, _) = self::run(&["run", &graph, "--engine", "reference", "--plugin", "/nonexistent"]);
    assert_eq!(code, 0);
    has(&output, &["the reference in double precision\n"]);
}

#[test]
fn mistakes_are_told() {
    let graph = file("mistaken.json", JSON.as_bytes());
    let custom = file("mistaken.bin", &custom().to_bytes());
    let short = file("short.bin", &[0; 5]);
    let (short, absent) = (format!("1={short}"), format!("77={short}"));
    let plugin = ["--plugin", plugin()];
    for (arguments, want) in [
        (
            &["run", &graph, "--engine", "NONE"][..],
            "expected an engine among HIPDNN_RS_GPU_ENGINE, HIPDNN_RS_CPU_ENGINE, got \"NONE\"",
        ),
        (
            &["run", &graph, "--input", &short],
            "tensor 1: expected 3840 bytes from its first to its last element, got 5",
        ),
        (&["run", &graph, "--input", &absent], "the graph has no input \"77\"; its inputs are 1, 2, 4"),
        (&["run", &graph, "--input", "1"], "--input: expected UID=FILE, got \"1\""),
        (&["run", &graph, "--tolerance", "2"], "--tolerance: expected a share from 0 to 1, got 2"),
        (&["run", &graph, "--knob", "threads"], "--knob: expected NAME=VALUE, got \"threads\""),
        (
            &["run", &graph, "--knob", "a=1"],
            "--knob: expected a knob of an engine that takes the graph, got \"a\"; there are ",
        ),
        (&["run", &graph, "--knob", "hipdnn_rs.cpu.threads=x"], "expected an integer (default 0), got \"x\""),
        (&["run", &graph, "--knob", "hipdnn_rs.cpu.threads=5000"], "hipdnn_rs.cpu.threads"),
        (&["run", &custom], "HIPDNN_RS_CPU_ENGINE declines: node 0 (CustomOp \"mine\"): "),
        (&["run", &custom, "--engine", "reference"], "the reference does not know the graph: node 0"),
        (&["bench", &graph, "--seconds=-1"], "--seconds: expected a number above 0, at most 3600, got -1"),
    ] {
        let joined: Vec<&str> = arguments.iter().copied().chain(plugin).collect();
        has(&fails(&joined), &[want]);
    }
    has(
        &fails(&["explain", &graph, "--plugin", "/nonexistent/p.so"]),
        &["/nonexistent/p.so: expected an engine plugin"],
    );
    has(&fails(&["explain", &graph, "--plugin", &graph]), &["mistaken.json", "the plugin not found"]);
    let (code, output, _) = run(&["bench", &custom, plugin[0], plugin[1]]);
    assert_eq!((code, output.as_str()), (1, "no engine takes the graph; `hipdnn-rs explain` says why\n"));
    for arguments in [&["inspect"][..], &["frobnicate"], &["inspect", "--graphviz", "x"]] {
        let (code, _, errors) = run(arguments);
        assert!(code == 2 && errors.contains("Usage"), "{errors}");
    }
    has(&succeeds(&["--help"]), &["inspect", "convert", "explain", "run", "bench", "tune", "Exit codes"]);
}

/// `HIPDNN_PLUGIN_DIR` is hipDNN's own way to name plugins.
#[test]
fn the_environment_names_plugins() {
    let graph = file("environment.json", JSON.as_bytes());
    let mut explain = command(&["explain", &graph, "--no-plan"]);
    let (code, output, errors) =
        finish(explain.env("HIPDNN_PLUGIN_DIR", foreign_plugin()).output().expect("it starts"));
    assert_eq!((code, errors.as_str()), (0, ""), "{output}");
    has(&output, &["TEST_C_ENGINE", " takes it"]);
    let empty = scratch().join("no plugins");
    std::fs::create_dir_all(&empty).expect("writable");
    let mut explain = command(&["explain", &graph]);
    let (code, _, errors) = finish(explain.env("HIPDNN_PLUGIN_DIR", &empty).output().expect("it starts"));
    assert_eq!(code, 2);
    has(&errors, &["HIPDNN_PLUGIN_DIR: ", "no plugins has no engine plugin"]);
}
