//! Asking whether a graph is taken prints nothing, though MIOpen likes to.

use hipdnn_rs_integration_tests::reference::Direction;
use hipdnn_schemas::{ConvMode, Convolution, DataType, GraphBuilder, TensorDef};
use hipdnn_sdk_bindings::hipdnn::plugin::{Severity, engine_id};

use crate::bench::{Bench, ENGINE, control, plugin, told};
use crate::case::Layout;
use crate::child::Child;
use crate::harness::{Outcome, Test};
use crate::logged;
use crate::table::{cases, conv};

/// The role: asks about every graph of the table and about graphs that are declined.
pub(crate) const ROLE: &str = "asks";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("applicability prints nothing", || silent(Child::of(ROLE))),
        // Debian's build has no sources for MIOpen's first choice.
        Test::new("applicability prints nothing with all solvers", || {
            silent(Child::of(ROLE).without("MIOPEN_DEBUG_CONV_WINOGRAD"))
        }),
        Test::new("asking again asks nobody", again),
    ]
}

fn silent(child: Child) -> Outcome {
    let ended = child.succeeds()?;
    if ended.stderr.is_empty() {
        return Ok(());
    }
    let lines = ended.stderr.lines().count();
    Err(format!("{lines} lines on standard error, the first: {:?}", ended.stderr.lines().next()).into())
}

/// The second question about a problem reaches neither HIP nor a stream.
fn again() -> Outcome {
    let bench = Bench::new(&plugin())?;
    let other = Bench::new(&plugin())?;
    for direction in Direction::ALL {
        let graph = conv("2d groups 2", direction, DataType::Half, Layout::First).graph();
        let ask = |bench: &Bench| bench.handle.applicable(&graph).map_err(|error| told(&error));
        let first = ask(&bench)?;
        let before = control().counters();
        for bench in [&bench, &other] {
            if ask(bench)? != first {
                return Err("the answer changed".into());
            }
        }
        let after = control().counters();
        if after.launches != before.launches || after.live_allocations != before.live_allocations {
            return Err("asking again launches or allocates".into());
        }
        // Which device is current may be asked for, nothing else.
        let calls = after.calls - before.calls;
        if calls > 4 {
            return Err(format!("asking twice again made {calls} HIP calls").into());
        }
    }
    Ok(())
}

/// Graphs that are valid, but not the engine's.
fn declined() -> Vec<(&'static str, Vec<u8>)> {
    let graph = |data_type: DataType, compute: DataType, dims: [&[i64]; 3], convolution: Convolution| {
        let mut graph = GraphBuilder::new("declined").compute(compute);
        let [x, w, y] = [0, 1, 2].map(|at| graph.tensor(TensorDef::new(at as i64 + 1, data_type, dims[at])));
        graph.convolution_fwd(x, w, y, convolution);
        graph.def().to_bytes()
    };
    let f = DataType::Float;
    let flat: [&[i64]; 3] = [&[1, 2, 4, 4], &[3, 2, 3, 3], &[1, 3, 2, 2]];
    vec![
        ("double", graph(DataType::Double, DataType::Double, flat, Convolution::new(2))),
        ("half accumulators", graph(f, DataType::Half, flat, Convolution::new(2))),
        (
            "four dimensions",
            graph(f, f, [&[1, 1, 3, 3, 3, 3], &[1, 1, 3, 3, 3, 3], &[1, 1, 1, 1, 1, 1]], Convolution::new(4)),
        ),
        (
            "an output that is too large",
            graph(
                f,
                f,
                [&[1, 2, 4, 4], &[3, 2, 3, 3], &[1, 3, 4, 4]],
                Convolution { mode: ConvMode::Convolution, ..Convolution::new(2) },
            ),
        ),
        ("no graph", b"this is no graph at all".to_vec()),
    ]
}

/// The role.
pub(crate) fn ask() -> Result<(), String> {
    let plugin = plugin();
    logged::listen(&plugin, Severity::INFO)?;
    let bench = Bench::new(&plugin)?;
    for _ in 0..2 {
        for case in cases() {
            let taken =
                bench.handle.applicable(&case.graph()).map_err(|error| format!("{}: {}", case.name(), told(&error)))?;
            if !taken.contains(&engine_id(ENGINE)) {
                return Err(format!("{} is declined: {:?}", case.name(), logged::lines()));
            }
        }
        logged::lines();
        for (what, graph) in declined() {
            let taken = bench.handle.applicable(&graph).map_err(|error| format!("{what}: {}", told(&error)))?;
            if taken.contains(&engine_id(ENGINE)) {
                return Err(format!("{what} is taken"));
            }
            let lines = logged::lines();
            if lines.is_empty() {
                return Err(format!("{what}: no line says why the graph is declined"));
            }
        }
    }
    Ok(())
}
