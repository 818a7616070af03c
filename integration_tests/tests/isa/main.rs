//! The code that the kernel compiler's text becomes: a table of numbers for each kernel and architecture, held against
//! the committed one.
//!
//! hiprtc compiles for any architecture, and the emulated runtime says to be of one and writes down what is loaded, so
//! no GPU of the kind is needed and no kernel runs. For what the emulated GPU executes, a second table has the issue
//! model's numbers ([`issue`]). `cargo xtask isa` writes the tables anew, with `--check` it compares, with `--issue` it
//! prints the model's alone. Numbers are those of one compiler, which the tables name: another's are not compared.

mod code;
mod counts;
mod graphs;
mod issue;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use hipdnn_conformance::plugin::{Plugin, take_log};
use hipdnn_rs_integration_tests::artifacts::{Artifact, library_path, workspace};
use hipdnn_rs_integration_tests::emulator::Hip;
use hipdnn_rs_integration_tests::program::this_program;
use hipdnn_schemas::EngineConfig;

use counts::{COLUMNS, Counts};

/// CDNA 2 and 3, RDNA 3 and 4.
const ARCHITECTURES: [&str; 4] = ["gfx90a", "gfx942", "gfx1100", "gfx1201"];

/// Tells a process the architecture that it compiles for.
const ARCHITECTURE: &str = "HIPDNN_RS_ISA_ARCHITECTURE";

/// Tells a process the architecture whose kernels it runs for the issue model.
const ISSUE: &str = "HIPDNN_RS_ISA_ISSUE";

/// Set: the issue model's table is printed, and nothing else done.
const PRINT: &str = "HIPDNN_RS_ISA_PRINT";

/// Set: the tables are written.
const WRITE: &str = "HIPDNN_RS_ISA_WRITE";

const ENGINE: &str = "HIPDNN_RS_GPU_ENGINE";

/// What a process of its own prints for an architecture.
type Part = fn(&str) -> Result<String, String>;

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let parts: [(&str, Part); 2] = [(ARCHITECTURE, compile), (ISSUE, model)];
    for (variable, part) in parts {
        if let Ok(architecture) = std::env::var(variable) {
            return match part(&architecture) {
                Ok(rows) => {
                    print!("{rows}");
                    ExitCode::SUCCESS
                }
                Err(problem) => {
                    eprintln!("{architecture}: {problem}");
                    ExitCode::FAILURE
                }
            };
        }
    }
    let is_emulated = Hip::get().is_ok_and(|hip| hip.control().is_some());
    if !is_emulated {
        println!(
            "\nrunning 0 tests\n`cargo xtask isa` runs this test, on the emulated GPU\n\ntest result: ok. 0 passed; 0 failed; 0 ignored\n"
        );
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(PRINT).is_some() {
        return print();
    }
    report(&check())
}

/// Prints the issue model's table, its columns one below the other.
fn print() -> ExitCode {
    let (tests, rows) = issue_rows();
    let header = format!("graph,architecture,{}", issue::COLUMNS);
    for row in std::iter::once(header.as_str()).chain(sorted(&rows, 1).lines()) {
        let line: String = row.split(',').zip([34, 12].into_iter().chain(std::iter::repeat(12))).fold(
            String::new(),
            |mut line, (cell, width)| {
                let _ = write!(line, "{cell:width$} ");
                line
            },
        );
        println!("{}", line.trim_end());
    }
    if tests.iter().all(|(_, outcome)| matches!(outcome, Outcome::Passed)) { ExitCode::SUCCESS } else { report(&tests) }
}

/// End of a test.
enum Outcome {
    Passed,
    Failed(String),
    Ignored(String),
}

impl From<Result<(), String>> for Outcome {
    fn from(result: Result<(), String>) -> Outcome {
        result.map_or_else(Outcome::Failed, |()| Outcome::Passed)
    }
}

/// Prints what cargo's test runner would.
fn report(tests: &[(String, Outcome)]) -> ExitCode {
    println!("\nrunning {} tests", tests.len());
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    for (name, outcome) in tests {
        match outcome {
            Outcome::Passed => {
                passed += 1;
                println!("test {name} ... ok");
            }
            Outcome::Failed(problem) => {
                failed += 1;
                println!("{problem}\ntest {name} ... FAILED");
            }
            Outcome::Ignored(reason) => {
                ignored += 1;
                println!("test {name} ... ignored, {reason}");
            }
        }
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {word}. {passed} passed; {failed} failed; {ignored} ignored\n");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A committed table beside this file.
fn table_path(name: &str) -> PathBuf {
    workspace().join("integration_tests/tests/isa").join(name)
}

/// Compiles for all architectures at once, and compares.
fn check() -> Vec<(String, Outcome)> {
    let running: Vec<_> = ARCHITECTURES.map(|architecture| (architecture, start(architecture))).into();
    let (mut tests, mut rows, mut compiler) = (Vec::new(), String::new(), String::new());
    for (architecture, child) in running {
        let (stdout, own) = finish(child, architecture, 2);
        let result = own.and_then(|own| {
            rows += &own;
            limits(&own)
        });
        tests.push((format!("{architecture}::limits"), result.into()));
        compiler = stdout.lines().find_map(|line| line.strip_prefix(COMPILER)).unwrap_or_default().to_owned();
    }
    let is_whole = |tests: &[(String, Outcome)]| tests.iter().all(|(_, outcome)| matches!(outcome, Outcome::Passed));
    let failed = || Outcome::Ignored("an architecture failed".to_owned());
    let header = format!("graph,kernel,architecture,{COLUMNS}");
    let table = if is_whole(&tests) { compare("kernels.csv", &compiler, &header, &sorted(&rows, 2)) } else { failed() };
    let (modeled, rows) = issue_rows();
    let header = format!("graph,architecture,{}", issue::COLUMNS);
    let issue = if is_whole(&modeled) { compare("issue.csv", &compiler, &header, &sorted(&rows, 1)) } else { failed() };
    tests.extend(modeled);
    tests.extend([("table".to_owned(), table), ("issue table".to_owned(), issue)]);
    tests
}

/// The issue model's rows, and a test for each architecture.
fn issue_rows() -> (Vec<(String, Outcome)>, String) {
    let running = issue::ARCHITECTURES.map(|architecture| (architecture, start_model(architecture)));
    let (mut tests, mut rows) = (Vec::new(), String::new());
    for (architecture, child) in running {
        let own = finish(child, architecture, 1).1.map(|own| rows += &own);
        tests.push((format!("{architecture}::issue"), own.into()));
    }
    (tests, rows)
}

/// What a child printed, and of that the rows with its architecture in this column.
fn finish(child: std::process::Child, architecture: &str, column: usize) -> (String, Result<String, String>) {
    let output = child.wait_with_output().expect("a child can be waited for");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    // What libraries print is no row.
    let own = stdout.lines().filter(|line| line.split(',').nth(column) == Some(architecture));
    let own: String = own.flat_map(|row| [row, "\n"]).collect();
    let result = if output.status.success() && !own.is_empty() { Ok(own) } else { Err(stdout.clone() + &stderr) };
    (stdout, result)
}

/// What the line of the table begins with that names the compiler.
const COMPILER: &str = "# ";

/// Bounds that hold on every architecture: nothing is spilled, and registers and LDS leave room for half of the waves
/// at least.
fn limits(rows: &str) -> Result<(), String> {
    let columns: Vec<&str> = COLUMNS.split(',').collect();
    let place = |name: &str| 3 + columns.iter().position(|column| *column == name).expect("a column of the table");
    let (spills, scratch, waves) = (place("spills"), place("scratch"), place("waves"));
    let mut problems = String::new();
    for row in rows.lines() {
        let cells: Vec<&str> = row.split(',').collect();
        let number = |place: usize| cells[place].parse::<u64>().expect("a number of the table");
        let most = counts::most_waves(cells[2]);
        if number(spills) > 0 || number(scratch) > 0 || 2 * number(waves) < most {
            let _ =
                writeln!(problems, "expected no spills, no scratch and {} waves a SIMD or more, got {row}", most / 2);
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Holds a table against the committed one, or writes it.
fn compare(name: &str, compiler: &str, header: &str, rows: &str) -> Outcome {
    let path = table_path(name);
    let said = |problem: std::io::Error| Outcome::Failed(format!("{}: {problem}", path.display()));
    let table = format!("{COMPILER}{compiler}\n{header}\n{rows}");
    if std::env::var_os(WRITE).is_some() {
        return std::fs::write(&path, table).map_or_else(said, |()| Outcome::Passed);
    }
    let committed = match std::fs::read_to_string(&path) {
        Ok(committed) => committed,
        Err(problem) => return said(problem),
    };
    let of = committed.lines().next().and_then(|line| line.strip_prefix(COMPILER)).unwrap_or_default();
    if of != compiler {
        return Outcome::Ignored(format!("the table is of {of:?}, the compiler here is {compiler:?}"));
    }
    if committed == table {
        return Outcome::Passed;
    }
    let (before, now): (Vec<_>, Vec<_>) = (committed.lines().collect(), table.lines().collect());
    let mut problem = "the code of kernels has changed; `cargo xtask isa` writes the table anew\n".to_owned();
    before.iter().filter(|row| !now.contains(row)).for_each(|row| problem += &format!("- {row}\n"));
    now.iter().filter(|row| !before.contains(row)).for_each(|row| problem += &format!("+ {row}\n"));
    Outcome::Failed(problem)
}

/// Rows by graph, as the graphs are listed, then by kernel, if there is a column before the architecture's for that,
/// and architecture.
fn sorted(rows: &str, architecture: usize) -> String {
    let mut sorted = String::new();
    for graphs::Named { name, .. } in graphs::all() {
        let own = rows.lines().filter(|row| row.split(',').next() == Some(name));
        let kernel = |row: &str| row.split(',').take(architecture).nth(1).and_then(|kernel| kernel.parse().ok());
        let mut own: Vec<(u64, &str)> = own.map(|row| (kernel(row).unwrap_or(0), row)).collect();
        own.sort_unstable();
        own.iter().for_each(|(_, row)| sorted += &format!("{row}\n"));
    }
    sorted
}

/// This program for one architecture, with the emulated runtime of it.
fn start(architecture: &str) -> std::process::Child {
    let directory = scratch(architecture);
    let mut command = this_program();
    command.env(ARCHITECTURE, architecture).env("HIPEMU_ARCH", architecture).env("HIPEMU_SKIP", "1");
    command.env("HIPEMU_DUMP", &directory).env("HIPDNN_RS_CACHE_DIR", directory.join("cache"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("this program starts again")
}

/// The same for the issue model: kernels run.
fn start_model(architecture: &str) -> std::process::Child {
    let directory = scratch(&format!("issue-{architecture}"));
    let mut command = this_program();
    command.env(ISSUE, architecture).env("HIPEMU_ARCH", architecture).env("HIPEMU_POISON", "0");
    if let Some(units) = issue::reported_compute_units(architecture) {
        command.env("HIPEMU_CUS", units.to_string());
    }
    command.env("GFXEMU_SAMPLE", issue::SAMPLE).env(issue::COUNTS, directory.join("counts.json"));
    command.env("HIPDNN_RS_CACHE_DIR", directory.join("cache"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("this program starts again")
}

/// An empty directory.
fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("isa").join(name);
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("the build directory is writable");
    directory
}

/// The plugin, and its engine for GPUs.
fn opened() -> Result<(Plugin, i64), String> {
    let plugin = Plugin::open(&library_path(Artifact::Plugin))?;
    let engines = plugin.engines()?;
    let (engine, _) = engines.into_iter().find(|(_, name)| name == ENGINE).ok_or("the plugin has no GPU engine")?;
    Ok((plugin, engine))
}

/// The issue model's rows.
fn model(architecture: &str) -> Result<String, String> {
    let (plugin, engine) = opened()?;
    issue::rows(architecture, &plugin, engine)
}

/// Plans every graph, and gives the rows of the kernels that were compiled for it: those of an earlier graph's text are
/// not again.
fn compile(architecture: &str) -> Result<String, String> {
    let directory = PathBuf::from(std::env::var("HIPEMU_DUMP").map_err(|_| "HIPEMU_DUMP is not set")?);
    let (plugin, engine) = opened()?;
    let mut rows = String::new();
    let mut is_named = false;
    // The first plan may load what tells whether kernels compile at all.
    let mut seen = code_objects(&directory).len();
    for graphs::Named { name, graph } in graphs::all() {
        let plan = plugin.plan(&EngineConfig { engine_id: engine, knobs: Vec::new() }, &graph.to_bytes());
        plan.map_err(|problem| format!("{name}: {problem}\n{}", take_log().join("\n")))?;
        let objects = code_objects(&directory);
        let mut kernel = 0;
        for object in &objects[seen..] {
            let bytes = std::fs::read(object).map_err(|problem| format!("{}: {problem}", object.display()))?;
            if !is_named {
                let _ = writeln!(rows, "{COMPILER}{}", code::compiler(&bytes)?);
                is_named = true;
            }
            for compiled in code::kernels(architecture, &bytes)? {
                let counts = Counts::of(architecture, &compiled);
                let _ = writeln!(rows, "{name},{kernel},{architecture},{}", counts.row());
                kernel += 1;
            }
        }
        seen = objects.len();
    }
    Ok(rows)
}

/// Code objects that the runtime has written, in the order in which they were loaded.
fn code_objects(directory: &Path) -> Vec<PathBuf> {
    (0..).map(|place| directory.join(format!("co{place}.elf"))).take_while(|path| path.is_file()).collect()
}
