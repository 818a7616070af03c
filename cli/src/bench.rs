//! `bench`: the time that a graph takes.

use std::time::{Duration, Instant};

use hipdnn_conformance::memory::Memory;
use hipdnn_conformance::run::{Bound, Execution};
use hipdnn_schemas::{EngineConfig, EngineDetails};

use crate::arguments::Bench;
use crate::content::{Source, read_graph};
use crate::engines::{self, Claim, Engine, Loaded, Settings};
use crate::table::Table;
use crate::workplace::Workplace;
use crate::{Answer, tensors, text};

/// Number of copies of the tensors in a run: inputs and results, for each engine.
const COPIES: u128 = 2;

/// Alignment of tensors' addresses in bytes, as that of HIP's allocator.
const ALIGNMENT: usize = 256;

/// Length of an engine's turn, of which it has at least four: engines take turns so that other load on the machine
/// affects all alike.
const TURN: Duration = Duration::from_millis(100);

/// Minimum number of executions.
const LEAST_RUNS: usize = 5;

/// Answer where no engine takes a graph.
pub(crate) const NO_ENGINE: &str = "no engine takes the graph; `hipdnn-rs explain` says why\n";

/// Times every engine that was asked for, in turn.
pub(crate) fn bench(arguments: &Bench) -> Result<Answer, String> {
    Ok(match measure(arguments)? {
        Some(report) => Answer::new(report, true),
        None => Answer::new(NO_ENGINE, false),
    })
}

/// Checks a time of measurement.
///
/// # Errors
/// If it is none.
pub(crate) fn check_seconds(seconds: f64) -> Result<(), String> {
    if seconds > 0.0 && seconds <= 3600.0 {
        return Ok(());
    }
    Err(format!("--seconds: expected a number above 0, at most 3600, got {seconds}"))
}

/// The table of the engines that were asked for, timed in turn; `None` if none takes the graph.
fn measure(arguments: &Bench) -> Result<Option<String>, String> {
    check_seconds(arguments.seconds)?;
    let source = read_graph(&arguments.file)?;
    let settings = Settings::parse(&arguments.knobs)?;
    let plugins = engines::open(&arguments.plugins.paths)?;
    let preferred = source.graph.def().preferred_engine_id;
    let chosen: Vec<(Engine, EngineDetails)> = if arguments.engines.is_empty() {
        let taking = taking(&plugins, &source)?;
        if taking.is_empty() {
            return Ok(None);
        }
        taking
    } else {
        let named = arguments.engines.iter();
        named.map(|name| engines::choose(&plugins, preferred, Some(name), &source)).collect::<Result<_, _>>()?
    };
    settings.check(&chosen.iter().map(|(_, details)| details).collect::<Vec<_>>())?;
    let place = Workplace::new(arguments.memory);
    let mut subjects = Vec::new();
    for (engine, details) in &chosen {
        let config = engine.config(details, &settings)?;
        subjects.push(Subject { engine: *engine, config, label: engine.name.to_owned() });
    }
    let timings = time_in_turn(&source, &subjects, &place, arguments.seed, arguments.seconds)?;
    Ok(Some(report(&source, &timings, subjects_on_host(&subjects, &place))))
}

/// The engines that take a graph, in the order in which hipDNN tries them.
pub(crate) fn taking<'a>(plugins: &'a [Loaded], source: &Source) -> Result<Vec<(Engine<'a>, EngineDetails)>, String> {
    let asked = engines::ask(&engines::all(plugins, source.graph.def().preferred_engine_id), source)?;
    let takes = |(engine, claim)| match claim {
        Claim::Takes(details) => Some((engine, details)),
        Claim::Declines(_) => None,
    };
    Ok(asked.claims.into_iter().filter_map(takes).collect())
}

/// An engine to time, with its settings.
pub(crate) struct Subject<'a> {
    pub(crate) engine: Engine<'a>,
    pub(crate) config: EngineConfig,
    /// Name in the table.
    pub(crate) label: String,
}

/// True if all of them compute on the host.
pub(crate) fn subjects_on_host(subjects: &[Subject<'_>], place: &Workplace) -> bool {
    subjects.iter().all(|subject| place.is_on_host(subject.engine.name))
}

/// Times every subject on the same inputs, in turns, so that other load on the machine affects all alike: for at least
/// so many seconds each.
pub(crate) fn time_in_turn(
    source: &Source,
    subjects: &[Subject<'_>],
    place: &Workplace,
    seed: u64,
    seconds: f64,
) -> Result<Vec<Times>, String> {
    tensors::check_size(&source.graph, COPIES * subjects.len() as u128)?;
    let inputs = tensors::inputs(&source.graph, seed, &[])?;
    let mut benches = Vec::new();
    for Subject { engine, config, label } in subjects {
        let fail = |problem: String| format!("{}: {problem}", engine.name);
        let memory = place.of(engine.name)?;
        let start = Instant::now();
        let plan = engine.loaded.plugin.plan(config, &source.bytes).map_err(fail)?;
        let built = start.elapsed();
        let execution = Execution::aligned(memory, &source.graph, &inputs, ALIGNMENT).map_err(fail)?;
        benches.push((label, memory, plan, built, execution));
    }
    let mut timings = Vec::new();
    for (name, memory, plan, built, execution) in &mut benches {
        let fail = |problem: String| format!("{name}: {problem}");
        let bound = execution.bind(plan).map_err(fail)?;
        let times = Times::new(name.clone(), *built, plan.workspace_bytes);
        timings.push(Timing::new(times, memory, bound).map_err(fail)?);
    }
    let wanted = Duration::from_secs_f64(seconds);
    while timings.iter().any(|timing| timing.wants_more(wanted)) {
        for timing in timings.iter_mut().filter(|timing| timing.wants_more(wanted)) {
            timing.take_turn(TURN.min(wanted / 4)).map_err(|problem| format!("{}: {problem}", timing.times.name))?;
        }
    }
    Ok(timings.into_iter().map(|timing| timing.times).collect())
}

/// One subject's times.
pub(crate) struct Times {
    name: String,
    workspace_bytes: usize,
    built: Duration,
    first: Duration,
    /// Times of the call alone.
    host: Vec<Duration>,
    /// Times until the results are there.
    pub(crate) whole: Vec<Duration>,
}

impl Times {
    fn new(name: String, built: Duration, workspace_bytes: usize) -> Times {
        Times { name, workspace_bytes, built, first: Duration::ZERO, host: Vec::new(), whole: Vec::new() }
    }
}

/// A subject that is being timed.
struct Timing<'a> {
    times: Times,
    memory: &'a Memory,
    bound: Bound<'a>,
    spent: Duration,
}

impl<'a> Timing<'a> {
    /// Executes for the first time.
    fn new(times: Times, memory: &'a Memory, bound: Bound<'a>) -> Result<Timing<'a>, String> {
        let mut timing = Timing { times, memory, bound, spent: Duration::ZERO };
        timing.times.first = timing.execute()?.1;
        Ok(timing)
    }

    /// The time of the call, and that until the results are there.
    fn execute(&mut self) -> Result<(Duration, Duration), String> {
        let start = Instant::now();
        self.bound.launch()?;
        let host = start.elapsed();
        self.memory.synchronize()?;
        Ok((host, start.elapsed()))
    }

    fn wants_more(&self, wanted: Duration) -> bool {
        self.spent < wanted || self.times.whole.len() < LEAST_RUNS
    }

    fn take_turn(&mut self, turn: Duration) -> Result<(), String> {
        // Another engine has used the caches meanwhile.
        self.execute()?;
        let start = Instant::now();
        loop {
            let (host, whole) = self.execute()?;
            self.times.host.push(host);
            self.times.whole.push(whole);
            if start.elapsed() >= turn {
                self.spent += start.elapsed();
                return Ok(());
            }
        }
    }
}

pub(crate) fn report(source: &Source, timings: &[Times], on_host: bool) -> String {
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
        let mut row = vec![text::printable(&timing.name), time(timing.built), time(timing.first)];
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

/// The time that half of the executions did not exceed.
pub(crate) fn median(times: &[Duration]) -> Duration {
    quantile(&sorted(times), 0.5)
}

/// The time that one of ten executions did not exceed: what a graph takes where nothing else gets in its way.
pub(crate) fn undisturbed(times: &[Duration]) -> Duration {
    quantile(&sorted(times), 0.1)
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

/// Estimated time: that of large graphs may be more than a `Duration` holds.
pub(crate) fn seconds(seconds: f64) -> String {
    time(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

/// Time with three digits and a unit.
pub(crate) fn time(time: Duration) -> String {
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
        for (estimate, want) in
            [(2.5e-6, "2.50 µs"), (1e30, "18446744073709551616 s"), (f64::NAN, "18446744073709551616 s")]
        {
            assert_eq!(seconds(estimate), want);
        }
    }
}
