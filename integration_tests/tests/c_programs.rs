//! The ABIs from C: programs compiled against the installed headers drive the libraries as a stranger would.

use std::path::{Path, PathBuf};
use std::process::Command;

use hipdnn_rs_integration_tests::artifacts::{Artifact, compile, library_path, plugin_directory};
use hipdnn_schemas::{EngineConfig, Graph, KnobValue};
use hipdnn_sdk_bindings::hipdnn::plugin::engine_id;

fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).expect("the scratch directory is writable");
    directory
}

/// Runs to the end and gives the output back; the engine settings of the shell are replaced by ours.
fn run(program: &Path, arguments: &[&Path], environment: &[(&str, &Path)]) -> String {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HIPDNN_") {
            command.env_remove(name);
        }
    }
    // On a machine with a GPU the CPU engine would leave the graph to others.
    command.env("HIPDNN_RS_CPU_ENGINE", "on").envs(environment.iter().copied());
    let output = command.args(arguments).output().expect("the program starts");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{} ended with {}:\n{text}", program.display(), output.status);
    text
}

#[test]
fn a_c_program_runs_a_graph_through_the_backend_on_our_plugin() {
    let directory = scratch("c-backend-ours");
    let program = directory.join("smoke_backend");
    compile("smoke_backend.c", &program, &[]);
    let plugins = plugin_directory(&directory, "plugins");
    let output = run(
        &program,
        &[&library_path(Artifact::Backend), Path::new("HIPDNN_RS_CPU_ENGINE")],
        &[("HIPDNN_PLUGIN_DIR", &plugins)],
    );
    assert_eq!(output.matches("on HIPDNN_RS_CPU_ENGINE: largest error").count(), 4, "{output}");
}

#[test]
fn a_c_program_runs_a_graph_through_the_backend_on_a_plugin_written_in_c() {
    let directory = scratch("c-backend-foreign");
    let program = directory.join("smoke_backend");
    compile("smoke_backend.c", &program, &[]);
    let plugins = directory.join("plugins");
    compile("test_plugin.c", &plugins.join("libtest_c_plugin.so"), &["-shared", "-fPIC", "-fvisibility=default"]);
    let output = run(
        &program,
        &[&library_path(Artifact::Backend), Path::new("TEST_C_ENGINE")],
        &[("HIPDNN_PLUGIN_DIR", &plugins)],
    );
    assert_eq!(output.matches("on TEST_C_ENGINE: largest error").count(), 4, "{output}");
}

#[test]
fn a_c_program_drives_the_plugin_directly() {
    let directory = scratch("c-plugin");
    let program = directory.join("smoke_plugin");
    compile("smoke_plugin.c", &program, &[]);
    let (graph, config) = (directory.join("graph.bin"), directory.join("config.bin"));
    std::fs::write(&graph, c_graph().def().to_bytes()).expect("the scratch directory is writable");
    let engine_id = engine_id("HIPDNN_RS_CPU_ENGINE");
    // On two threads whatever the machine has: one lends none.
    let knobs = vec![("hipdnn_rs.cpu.threads".to_owned(), KnobValue::Int(2))];
    std::fs::write(&config, EngineConfig { engine_id, knobs }.to_bytes()).expect("as above");
    let output = run(&program, &[&library_path(Artifact::Plugin), &graph, &config], &[]);
    assert!(output.contains("API 1.4.0, engine HIPDNN_RS_CPU_ENGINE"), "{output}");
    assert_eq!(output.matches("of its bound").count(), 3, "{output}");
}

/// The graph that the C programs carry as JSON, taken from their own source.
fn c_graph() -> Graph {
    let source = include_str!("../c/conv_case.h");
    let (_, rest) = source.split_once("CONV_BIAS_RELU_JSON =").expect("the header holds the graph");
    let (literals, _) = rest.split_once(';').expect("the definition ends");
    let json: String = literals
        .lines()
        .map(|line| line.trim().trim_start_matches('"').trim_end_matches('"').replace("\\\"", "\""))
        .collect();
    Graph::from_json(&json).expect("the C programs' graph is well formed")
}
