//! `bench`: the time that a graph takes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hipdnn_conformance::memory::Memory;
use hipdnn_conformance::plugin::Plan;
use hipdnn_conformance::run::{Bound, Execution};
use hipdnn_schemas::EngineDetails;

use crate::arguments::Bench;
use crate::content::{Source, read_graph};
use crate::engines::{self, Claim, Engine, Settings};
use crate::table::Table;
use crate::workplace::Workplace;
use crate::{Answer, tensors, text};

/// Number of copies of the tensors in a run: inputs and results, for each engine.
const COPIES: u128 = 2;

/// Alignment of tensors' addresses in bytes, as that of HIP's allocator.
const ALIGNMENT: usize = 256;

/// Length of an engine's turn: engines take turns so that other load on the machine affects all alike.
const TURN: Duration = Duration::from_millis(100);

/// Minimum number of executions.
const LEAST_RUNS: usize = 5;

/// Answer where no engine takes a graph.
pub(crate) const NO_ENGINE: &str = "no engine takes the graph; `hipdnn-rs explain` says why\n";

/// Times every engine that was asked for, in turn.
pub(crate) fn bench(arguments: &Bench) -> Result<Answer, String> {
    Ok(match measure(arguments)? {
        Some(measured) => Answer::new(measured.report, true),
        None => Answer::new(NO_ENGINE, false),
    })
}

/// Result of a measurement.
pub(crate) struct Measured {
    /// Table of the times.
    pub(crate) report: String,
    /// Engines by number and name, the fastest first by the median of an execution.
    pub(crate) order: Vec<(i64, String)>,
    /// Files of the plugins.
    pub(crate) plugins: Vec<PathBuf>,
    /// The graph as a FlatBuffer.
    pub(crate) graph: Vec<u8>,
}

/// Times every engine that was asked for, in turn; `None` if none takes the graph.
pub(crate) fn measure(arguments: &Bench) -> Result<Option<Measured>, String> {
    if !(arguments.seconds > 0.0 && arguments.seconds <= 3600.0) {
        return Err(format!("--seconds: expected a number above 0, at most 3600, got {}", arguments.seconds));
    }
    let source = read_graph(&arguments.file)?;
    let settings = Settings::parse(&arguments.knobs)?;
    let plugins = engines::open(&arguments.plugins.paths)?;
    let preferred = source.graph.def().preferred_engine_id;
    let chosen: Vec<(Engine, EngineDetails)> = if arguments.engines.is_empty() {
        let asked = engines::ask(&engines::all(&plugins, preferred), &source)?;
        let takes = |(engine, claim)| match claim {
            Claim::Takes(details) => Some((engine, details)),
            Claim::Declines(_) => None,
        };
        let taking: Vec<(Engine, EngineDetails)> = asked.claims.into_iter().filter_map(takes).collect();
        if taking.is_empty() {
            return Ok(None);
        }
        taking
    } else {
        let named = arguments.engines.iter();
        named.map(|name| engines::choose(&plugins, preferred, Some(name), &source)).collect::<Result<_, _>>()?
    };
    settings.check(&chosen.iter().map(|(_, details)| details).collect::<Vec<_>>())?;
    tensors::check_size(&source.graph, COPIES * chosen.len() as u128)?;
    let inputs = tensors::inputs(&source.graph, arguments.seed, &[])?;

    let place = Workplace::new(arguments.memory);
    let mut benches = Vec::new();
    for (engine, details) in &chosen {
        let config = engine.config(details, &settings)?;
        let fail = |problem: String| format!("{}: {problem}", engine.name);
        let memory = place.of(engine.name)?;
        let start = Instant::now();
        let plan = engine.loaded.plugin.plan(&config, &source.bytes).map_err(fail)?;
        let built = start.elapsed();
        let execution = Execution::aligned(memory, &source.graph, &inputs, ALIGNMENT).map_err(fail)?;
        benches.push((engine.name, memory, plan, built, execution));
    }
    let mut timings = Vec::new();
    for (name, memory, plan, built, execution) in &mut benches {
        let fail = |problem: String| format!("{name}: {problem}");
        let bound = execution.bind(plan).map_err(fail)?;
        timings.push(Timing::new(name, memory, plan, *built, bound).map_err(fail)?);
    }
    let wanted = Duration::from_secs_f64(arguments.seconds);
    while timings.iter().any(|timing| timing.wants_more(wanted)) {
        for timing in timings.iter_mut().filter(|timing| timing.wants_more(wanted)) {
            timing.take_turn(TURN.min(wanted)).map_err(|problem| format!("{}: {problem}", timing.name))?;
        }
    }
    let on_host = chosen.iter().all(|(engine, _)| place.is_on_host(engine.name));
    let report = report(&source, &timings, on_host);
    let median = |timing: &Timing| quantile(&sorted(&timing.whole), 0.5);
    let measured = timings.iter().map(median).zip(&chosen);
    let mut order: Vec<(Duration, i64, String)> =
        measured.map(|(time, (engine, _))| (time, engine.id, engine.name.to_owned())).collect();
    order.sort();
    Ok(Some(Measured {
        report,
        order: order.into_iter().map(|(_, id, name)| (id, name)).collect(),
        plugins: plugins.iter().map(|loaded| loaded.path.clone()).collect(),
        graph: source.bytes.to_vec(),
    }))
}

/// One engine's times.
struct Timing<'a> {
    name: &'a str,
    memory: &'a Memory,
    workspace_bytes: usize,
    built: Duration,
    first: Duration,
    bound: Bound<'a>,
    /// Times of the call alone.
    host: Vec<Duration>,
    /// Times until the results are there.
    whole: Vec<Duration>,
    spent: Duration,
}

impl<'a> Timing<'a> {
    /// Executes for the first time.
    fn new(
        name: &'a str,
        memory: &'a Memory,
        plan: &Plan,
        built: Duration,
        bound: Bound<'a>,
    ) -> Result<Timing<'a>, String> {
        let zero = Duration::ZERO;
        let (host, whole) = (Vec::new(), Vec::new());
        let workspace_bytes = plan.workspace_bytes;
        let mut timing = Timing { name, memory, workspace_bytes, built, first: zero, bound, host, whole, spent: zero };
        timing.first = timing.execute()?.1;
        Ok(timing)
    }

    /// The time of the call, and that until the results are there.
    fn execute(&mut self) -> Result<(Duration, Duration), String> {
        let start = Instant::now();
        self.bound.launch()?;
        let host = start.elapsed();
        self.memory.synchronise()?;
        Ok((host, start.elapsed()))
    }

    fn wants_more(&self, wanted: Duration) -> bool {
        self.spent < wanted || self.whole.len() < LEAST_RUNS
    }

    fn take_turn(&mut self, turn: Duration) -> Result<(), String> {
        // Another engine has used the caches meanwhile.
        self.execute()?;
        let start = Instant::now();
        loop {
            let (host, whole) = self.execute()?;
            self.host.push(host);
            self.whole.push(whole);
            if start.elapsed() >= turn {
                self.spent += start.elapsed();
                return Ok(());
            }
        }
    }
}

fn report(source: &Source, timings: &[Timing], on_host: bool) -> String {
    let columns: &[&str] = match on_host {
        // The call returns when the results are there: there is but one time.
        true => &["engine", ">plan", ">first execute", ">median execute", ">10 % to 90 %", ">99 %"],
        false => &[
            "engine",
            ">plan",
            ">first execute",
            ">median of the call",
            ">its 10 % to 90 %",
            ">median until done",
            ">10 % to 90 %",
            ">99 %",
        ],
    };
    let columns = [columns, &[">workspace", ">executions"]].concat();
    let mut table = Table::new(&columns);
    for timing in timings {
        let (host, whole) = (sorted(&timing.host), sorted(&timing.whole));
        let spread = |times: &[Duration]| format!("{} to {}", time(quantile(times, 0.1)), time(quantile(times, 0.9)));
        let mut row = vec![text::printable(timing.name), time(timing.built), time(timing.first)];
        if !on_host {
            row.extend([time(quantile(&host, 0.5)), spread(&host)]);
        }
        row.extend([time(quantile(&whole, 0.5)), spread(&whole), time(quantile(&whole, 0.99))]);
        row.extend([text::bytes(timing.workspace_bytes as u128), whole.len().to_string()]);
        table.row(row);
    }
    format!(
        "graph {}: {}\n\n{}",
        text::quoted(source.graph.name()),
        text::count(source.graph.nodes().len(), "node"),
        table.markdown()
    )
}

fn sorted(times: &[Duration]) -> Vec<Duration> {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted
}

/// Quantile: the time that this share of executions did not exceed.
fn quantile(sorted: &[Duration], share: f64) -> Duration {
    let last = sorted.len().saturating_sub(1);
    sorted.get((share * last as f64).round() as usize).copied().unwrap_or_default()
}

/// Time with three digits and a unit.
fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let (value, unit) = match seconds {
        s if s < 1e-3 => (s * 1e6, "µs"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    let digits = match value {
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_units() {
        let times: Vec<Duration> = (0..=100).map(Duration::from_micros).collect();
        for (share, want) in [(0.0, 0), (0.1, 10), (0.5, 50), (0.99, 99), (1.0, 100)] {
            assert_eq!(quantile(&times, share), Duration::from_micros(want));
        }
        assert_eq!(quantile(&[], 0.5), Duration::ZERO);
        assert_eq!(quantile(&times[7..8], 0.9), Duration::from_micros(7));
        for (nanoseconds, want) in [
            (950, "0.95 µs"),
            (12_340, "12.3 µs"),
            (999_000, "999 µs"),
            (1_234_000, "1.23 ms"),
            (5_000_000_000, "5.00 s"),
        ] {
            assert_eq!(time(Duration::from_nanos(nanoseconds)), want);
        }
    }
}
