//! Solvers that don't compile or don't work are passed over for the next, with a line in the log, while one is left.

use hipdnn_rs_integration_tests::reference::Direction;
use hipdnn_schemas::{DataType, KnobValue};
use hipdnn_sdk_bindings::hipdnn::plugin::Severity;

use crate::bench::{Bench, is_told, plugin, told};
use crate::case::{Case, Layout};
use crate::compiler;
use crate::harness::{Ended, Outcome, Test};
use crate::logged;
use crate::table::{conv, fused};
use crate::trace::scratch;

/// The role: builds plans, and runs those that were built. What is wanted of it comes by the environment.
pub(crate) const ROLE: &str = "chooses";

/// `plan`, `error`, or `error of chain`: only the plan with a kernel of ours fails.
const WANTED: &str = "HIPDNN_RS_TEST_WANTED";

/// Variable with the text that the log has to have.
const LOGGED: &str = "HIPDNN_RS_TEST_LOGGED";

/// Variable with the search for solvers.
const SEARCH: &str = "HIPDNN_RS_TEST_SEARCH";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        // Before its matrix product, which here has no kernels either, a GEMM solver gathers pixels with a kernel.
        Test::new("a solver whose kernel does not compile is passed over", || {
            Chooses { refused: Some("Im2"), logged: "given up", ..Chooses::well("no-gather") }.run()
        }),
        Test::new("a solver that does not run is passed over", || {
            Chooses { logged: "given up", ..Chooses::well("no-product") }.run()
        }),
        Test::new("no solver's kernel compiles", || {
            Chooses { refused: Some("naive"), wanted: "error", ..Chooses::well("no-naive") }.run()
        }),
        Test::new("our own kernel does not compile", || {
            Chooses { refused: Some("hipdnn_rs.hip"), wanted: "error of chain", ..Chooses::well("no-own") }.run()
        }),
        Test::new("nothing compiles", || {
            Chooses { refused: Some(""), wanted: "error", ..Chooses::well("nothing") }.run()
        }),
        // Debian's MIOpen has no sources of Winograd's kernels, for which its own search fails as a whole.
        Test::new("MIOpen's search fails", || {
            Chooses { search: "tune", winograd: true, ..Chooses::well("no-search") }.run()
        }),
    ]
}

/// A process with a fresh home.
struct Chooses {
    directory: &'static str,
    refused: Option<&'static str>,
    wanted: &'static str,
    logged: &'static str,
    search: &'static str,
    winograd: bool,
}

impl Chooses {
    fn well(directory: &'static str) -> Chooses {
        Chooses { directory, refused: None, wanted: "plan", logged: "", search: "immediate", winograd: false }
    }

    fn run(self) -> Outcome {
        let directory = scratch(&format!("choice-{}", self.directory));
        let _ = std::fs::remove_dir_all(&directory);
        let home = directory.join("home");
        std::fs::create_dir_all(&home).map_err(|error| error.to_string())?;
        let mut child =
            compiler::child(ROLE, &directory)?.env("HOME", &home).env("HIPDNN_RS_CACHE_DIR", home.join("ours"));
        child = child.env(WANTED, self.wanted).env(LOGGED, self.logged).env(SEARCH, self.search);
        if let Some(refused) = self.refused {
            child = child.env(compiler::REFUSED, refused);
        }
        if self.winograd {
            child = child.without("MIOPEN_DEBUG_CONV_WINOGRAD");
        }
        child.succeeds().map_err(Ended::from)?;
        let _ = std::fs::remove_dir_all(&directory);
        Ok(())
    }
}

fn cases() -> [Case; 2] {
    [
        conv("2d 3x3 pad 1", Direction::Forward, DataType::Float, Layout::First),
        fused("2d asymmetric", DataType::Float, Layout::First, "bias residual relu"),
    ]
}

/// The role.
pub(crate) fn plans() -> Result<(), String> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let (wanted, logged, search) = (variable(WANTED), variable(LOGGED), variable(SEARCH));
    let plugin = plugin();
    logged::listen(&plugin, Severity::INFO)?;
    let bench = Bench::new(&plugin)?;
    let knobs = [("hipdnn_rs.gpu.search", KnobValue::String(search))];
    // Twice: what failed once fails again, or works again, in the same way.
    for round in 0..2 {
        for case in cases() {
            let fails = wanted == "error" || (wanted == "error of chain" && case.is_chain());
            let what = format!("round {round}, {}", case.name());
            if fails {
                let config = crate::bench::config(&knobs);
                let error = bench.handle.plan(&config, &case.graph()).err().ok_or_else(|| format!("{what}: a plan"))?;
                is_told(&error)?;
                if !error.message.to_lowercase().contains("compil") {
                    return Err(format!("{what}: the text does not speak of compiling: {}", told(&error)));
                }
            } else {
                bench.run(&case, &knobs).map_err(|problem| format!("{what}: {problem}"))?;
            }
        }
    }
    let lines = logged::lines();
    if !lines.iter().any(|(_, line)| line.contains(&logged)) {
        return Err(format!("no line speaks of {logged:?}: {lines:?}"));
    }
    match lines.iter().find(|(severity, _)| *severity == Severity::ERROR && wanted == "plan") {
        Some((_, line)) => Err(format!("logged as an error although a plan was built: {line}")),
        None => Ok(()),
    }
}
