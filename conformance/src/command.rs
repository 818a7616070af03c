//! The command line.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::cases::{self, Case};
use crate::inputs::{Random, seed};
use crate::report::Summary;
use crate::run::Outcome;
use crate::workers::{self, Job, Target, WORKER};

const USAGE: &str = "usage: hipdnn-conformance --plugin FILE [--engine NAME] [options]

  --plugin FILE        the engine plugin, any vendor's
  --engine NAME        one of its engines (HOST_RS_ENGINE)
  --filter TEXT        only cases whose name contains this; may be repeated, all must fit
  --sample N           only N cases: a seeded choice that takes every family, kind, layout and type first
  --random N           N random graphs in place of the cases
  --seed S             another choice, or other random graphs (0)
  --memory WHICH       host, device, or auto: device unless the engine's name says HOST
  --workers N          processes (one per core)
  --junit FILE         a report for programs that know JUnit
  --json FILE          a report with everything
  --failures FILE      the failures, as they come
  --complete           what is declined counts as failed
  --list               only the names of the cases
  --graph              only the graphs of the cases, as JSON";

struct Options {
    plugin: Option<PathBuf>,
    engine: String,
    filters: Vec<String>,
    sample: Option<usize>,
    random: Option<u64>,
    seed: u64,
    memory: String,
    workers: usize,
    junit: Option<PathBuf>,
    json: Option<PathBuf>,
    failures: Option<PathBuf>,
    complete: bool,
    list: bool,
    graph: bool,
    worker: bool,
}

impl Options {
    fn parse(arguments: Vec<String>) -> Result<Options, String> {
        let mut options = Options {
            plugin: None,
            engine: "HOST_RS_ENGINE".into(),
            filters: Vec::new(),
            sample: None,
            random: None,
            seed: 0,
            memory: "auto".into(),
            workers: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            junit: None,
            json: None,
            failures: None,
            complete: false,
            list: false,
            graph: false,
            worker: false,
        };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} wants a value\n\n{USAGE}"));
            fn number<T: std::str::FromStr>(argument: &str, text: String) -> Result<T, String> {
                text.parse().map_err(|_| format!("{argument} wants a number, came {text:?}"))
            }
            match argument.as_str() {
                "--plugin" => options.plugin = Some(value()?.into()),
                "--engine" => options.engine = value()?,
                "--filter" => options.filters.push(value()?),
                "--sample" => options.sample = Some(number(&argument, value()?)?),
                "--random" => options.random = Some(number(&argument, value()?)?),
                "--seed" => options.seed = number(&argument, value()?)?,
                "--memory" => options.memory = value()?,
                "--workers" => options.workers = number(&argument, value()?)?,
                "--junit" => options.junit = Some(value()?.into()),
                "--json" => options.json = Some(value()?.into()),
                "--failures" => options.failures = Some(value()?.into()),
                "--complete" => options.complete = true,
                "--list" => options.list = true,
                "--graph" => options.graph = true,
                WORKER => options.worker = true,
                other => return Err(format!("nobody knows {other:?}\n\n{USAGE}")),
            }
        }
        Ok(options)
    }

    fn on_host(&self) -> Result<bool, String> {
        match self.memory.as_str() {
            "host" => Ok(true),
            "device" => Ok(false),
            "auto" => Ok(self.engine.contains("HOST")),
            other => Err(format!("--memory wants host, device or auto, came {other:?}")),
        }
    }
}

/// Runs what the arguments ask for; `false` if a claim was broken.
///
/// # Errors
/// If the arguments, the plugin or the tables are not right, or a report can't be written.
pub fn main(arguments: Vec<String>) -> Result<bool, String> {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        println!("{USAGE}");
        return Ok(true);
    }
    let options = Options::parse(arguments)?;
    let cases = cases::all()?;
    let jobs = jobs(&options, &cases);
    if options.list || options.graph {
        for job in &jobs {
            match options.graph {
                true => println!("{}", job.case(&cases)?.graph.to_json()),
                false => println!("{}", job.name(&cases)),
            }
        }
        return Ok(true);
    }
    let on_host = options.on_host()?;
    let plugin = options.plugin.ok_or_else(|| format!("no plugin was named\n\n{USAGE}"))?;
    let target = Target { plugin, engine: options.engine, on_host };
    if options.worker {
        return workers::serve(&target).map(|()| true);
    }
    let start = Instant::now();
    let mut summary = Summary::default();
    let (mut told, mut failures) = (Instant::now(), String::new());
    let (total, mut finished, mut failed) = (jobs.len(), 0usize, 0usize);
    workers::run(&target, &cases, &jobs, options.workers, |report| {
        finished += 1;
        if let Outcome::Failed { reason } = &report.outcome {
            failed += 1;
            failures.push_str(&format!("{}\n    {reason}\n", report.name));
            if let Some(path) = &options.failures {
                // Whoever reads the file wants it current; that it can't be written shows at the end.
                let _ = std::fs::write(path, &failures);
            }
        }
        if told.elapsed() > Duration::from_secs(20) {
            told = Instant::now();
            eprintln!("{finished} of {total}, {failed} failed, {:.0} s", start.elapsed().as_secs_f64());
        }
        summary.add(report);
    })?;
    summary.sort();
    println!("{}", summary.table());
    eprintln!("{:.1} s", start.elapsed().as_secs_f64());
    for report in summary.reports().iter().filter(|report| is_random_failure(report)).take(SHRUNK) {
        let seed = report.name.rsplit('/').next().and_then(|seed| seed.parse().ok()).unwrap_or_default();
        let (graph, reason) = workers::shrink(&target, &crate::random::case(seed))?;
        println!("\n{} shrinks to {} nodes: {reason}\n{}", report.name, graph.nodes.len(), graph.to_json());
    }
    let write = |path: &PathBuf, text: String| {
        std::fs::write(path, text).map_err(|problem| format!("{}: {problem}", path.display()))
    };
    if let Some(path) = &options.failures {
        write(path, failures)?;
    }
    if let Some(path) = &options.junit {
        write(path, summary.junit(&target.engine))?;
    }
    if let Some(path) = &options.json {
        write(path, summary.json(&target.engine)?)?;
    }
    Ok(summary.is_clean() && (summary.is_complete() || !options.complete))
}

/// How many random graphs that fail are shrunk.
const SHRUNK: usize = 5;

fn is_random_failure(report: &workers::Report) -> bool {
    report.name.starts_with("random/") && matches!(report.outcome, Outcome::Failed { .. })
}

/// The chosen cases, or random graphs.
fn jobs(options: &Options, cases: &[Case]) -> Vec<Job> {
    if let Some(count) = options.random {
        // Even, so that pairs stay together.
        let first = options.seed.wrapping_mul(1_000_000_006);
        return (0..count).map(|i| Job::Random(first.wrapping_add(i))).collect();
    }
    let fits = |case: &Case| options.filters.iter().all(|filter| case.name.contains(filter.as_str()));
    let chosen: Vec<usize> = (0..cases.len()).filter(|index| fits(&cases[*index])).collect();
    let chosen = match options.sample {
        Some(count) => sample(cases, chosen, count, options.seed),
        None => chosen,
    };
    chosen.into_iter().map(Job::Case).collect()
}

/// A seeded choice that takes one of each group first: cases that differ by no more than shape and tail are a group.
fn sample(cases: &[Case], mut chosen: Vec<usize>, count: usize, choice: u64) -> Vec<usize> {
    let mut random = Random::new(choice);
    for i in (1..chosen.len()).rev() {
        chosen.swap(i, random.below(i + 1));
    }
    let group = |index: &usize| seed(&cases[*index].name.splitn(5, '/').take(4).collect::<Vec<_>>().join("/"));
    let mut seen = std::collections::HashMap::new();
    let mut ranked: Vec<(usize, usize)> = chosen
        .into_iter()
        .map(|index| {
            let rank = seen.entry(group(&index)).or_insert(0);
            *rank += 1;
            (*rank, index)
        })
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.truncate(count);
    ranked.into_iter().map(|(_, index)| index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_takes_every_group_first() {
        let cases = cases::all().expect("the tables are right");
        let all: Vec<usize> = (0..cases.len()).collect();
        let group = |index: usize| cases[index].name.splitn(5, '/').take(4).collect::<Vec<_>>().join("/");
        let groups: std::collections::HashSet<String> = all.iter().map(|index| group(*index)).collect();
        let chosen = sample(&cases, all.clone(), groups.len(), 3);
        let hit: std::collections::HashSet<String> = chosen.iter().map(|index| group(*index)).collect();
        assert_eq!(hit, groups);
        assert_ne!(chosen, sample(&cases, all, groups.len(), 4));
    }

    #[test]
    fn arguments() {
        let parse = |text: &str| Options::parse(text.split_whitespace().map(str::to_string).collect());
        let options = parse("--plugin p.so --engine MIOPEN_ENGINE --sample 5 --filter a --filter b").expect("fine");
        assert_eq!((options.sample, options.filters.len(), options.on_host()), (Some(5), 2, Ok(false)));
        assert_eq!(parse("--plugin p.so").expect("fine").on_host(), Ok(true));
        for wrong in ["--plugin", "--sample x", "--quick", "--memory paper --plugin p.so"] {
            assert!(parse(wrong).and_then(|options| options.on_host()).is_err(), "{wrong}");
        }
    }
}
