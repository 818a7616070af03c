//! The command line.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hipdnn_schemas::Graph;

use crate::cases::{self, Case};
use crate::execute::{Tolerance, has_narrow_intermediates};
use crate::inputs::{Random, seed};
use crate::report::Summary;
use crate::run::Outcome;
use crate::strata::{self, Covering};
use crate::workers::{self, CLAIMS, Job, NARROW, Target, WORKER};
use crate::{claims, random};

const USAGE: &str = "usage: hipdnn-conformance --plugin FILE [--engine NAME] [options]

  --plugin FILE        the engine plugin, any vendor's
  --engine NAME        one of its engines (HIPDNN_RS_CPU_ENGINE)
  --filter TEXT        only cases whose name contains this; may be repeated, all must fit
  --sample N           only N cases: a seeded choice that takes every family, kind, layout and type first
  --sample covering    a seeded choice that has a case of every stratum: nodes in their order x types x layout, and of
                       every mode, rank and other trait; of equal cases a cheap one
  --random N           N random graphs in place of the cases
  --seed S             another choice, or other random graphs (0)
  --knob NAME=VALUE    a setting for every plan; may be repeated
  --narrow-intermediates
                       a wider class of tolerance: convolutions of 16-bit operands may round a virtual float result to
                       their type where only results of that type come of it
  --where-narrow       only cases and graphs where that class makes a difference
  --claims             only ask what the engine would take: a section of a page in Markdown
  --memory WHICH       host, device, or auto: device unless the engine's name says CPU
  --workers N          processes (one per core)
  --junit FILE         a report for programs that know JUnit
  --json FILE          a report with everything
  --failures FILE      the failures, as they come
  --complete           what is declined counts as failed
  --list               only the names of the cases
  --graph              only the graphs of the cases, as JSON";

/// Size of the sample of the cases that fit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sample {
    Count(usize),
    Covering,
}

struct Options {
    plugin: Option<PathBuf>,
    engine: String,
    filters: Vec<String>,
    sample: Option<Sample>,
    random: Option<u64>,
    seed: u64,
    knobs: Vec<(String, String)>,
    tolerance: Tolerance,
    where_narrow: bool,
    claims: bool,
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
            engine: "HIPDNN_RS_CPU_ENGINE".into(),
            filters: Vec::new(),
            sample: None,
            random: None,
            seed: 0,
            knobs: Vec::new(),
            tolerance: Tolerance::default(),
            where_narrow: false,
            claims: false,
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
                "--sample" => {
                    options.sample = Some(match value()? {
                        word if word == "covering" => Sample::Covering,
                        count => Sample::Count(number(&argument, count)?),
                    });
                }
                "--random" => options.random = Some(number(&argument, value()?)?),
                "--seed" => options.seed = number(&argument, value()?)?,
                "--knob" => {
                    let text = value()?;
                    let split = text.split_once('=');
                    let (name, value) = split.ok_or_else(|| format!("--knob wants NAME=VALUE, came {text:?}"))?;
                    options.knobs.push((name.to_string(), value.to_string()));
                }
                NARROW => options.tolerance.narrow_intermediates = true,
                "--where-narrow" => options.where_narrow = true,
                CLAIMS => options.claims = true,
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
            "auto" => Ok(self.engine.contains("CPU")),
            other => Err(format!("--memory wants host, device or auto, came {other:?}")),
        }
    }
}

/// Runs the command; `false` if a claim was broken.
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
    let jobs = jobs(&options, &cases)?;
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
    let Options { engine, knobs, tolerance, claims, .. } = options;
    let target = Target { plugin, engine, on_host, knobs, tolerance, claims };
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
    if target.claims {
        print!("{}", claims::section(&target.engine, summary.reports()));
        eprintln!("{:.1} s", start.elapsed().as_secs_f64());
        return Ok(summary.is_clean());
    }
    println!("{}", summary.table());
    eprintln!("{:.1} s", start.elapsed().as_secs_f64());
    for report in summary.reports().iter().filter(|report| is_random_failure(report)).take(SHRUNK) {
        let seed = report.name.rsplit('/').next().and_then(|seed| seed.parse().ok()).unwrap_or_default();
        let (graph, reason) = workers::shrink(&target, &random::case(seed))?;
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

/// Number of failing random graphs that are shrunk.
const SHRUNK: usize = 5;

fn is_random_failure(report: &workers::Report) -> bool {
    report.name.starts_with("random/") && matches!(report.outcome, Outcome::Failed { .. })
}

/// The chosen cases, or random graphs.
fn jobs(options: &Options, cases: &[Case]) -> Result<Vec<Job>, String> {
    if options.worker {
        return Ok(Vec::new());
    }
    let narrow = |case: &Case| -> Result<bool, String> {
        // Graphs that must be refused can't be looked at.
        if !options.where_narrow || case.refused {
            return Ok(!options.where_narrow);
        }
        let graph = Graph::new(case.graph.clone()).map_err(|problem| format!("{}: {problem}", case.name))?;
        Ok(has_narrow_intermediates(&graph))
    };
    if let Some(count) = options.random {
        // Even, so that pairs stay together.
        let first = options.seed.wrapping_mul(1_000_000_006);
        let jobs = (0..count).map(|i| first.wrapping_add(i)).filter_map(|seed| match narrow(&random::case(seed)) {
            Ok(fits) => fits.then_some(Ok(Job::Random(seed))),
            Err(problem) => Some(Err(problem)),
        });
        return jobs.collect();
    }
    let mut chosen = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        let fits = options.filters.iter().all(|filter| case.name.contains(filter.as_str()));
        if fits && !(options.claims && case.refused) && narrow(case)? {
            chosen.push(index);
        }
    }
    let chosen = match options.sample {
        Some(Sample::Count(count)) => sample(cases, chosen, count, options.seed),
        Some(Sample::Covering) => {
            let Covering { chosen, strata, traits } = strata::covering(cases, &chosen, options.seed);
            eprintln!("{} cases cover {strata} strata and {traits} traits", chosen.len());
            chosen
        }
        None => chosen,
    };
    Ok(chosen.into_iter().map(Job::Case).collect())
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
        assert_eq!((options.sample, options.filters.len(), options.on_host()), (Some(Sample::Count(5)), 2, Ok(false)));
        let options = parse("--sample covering --knob a=1 --knob b=x=y --narrow-intermediates").expect("fine");
        assert_eq!((options.sample, options.tolerance.narrow_intermediates), (Some(Sample::Covering), true));
        assert_eq!(
            options.knobs,
            [("a", "1"), ("b", "x=y")].map(|(name, value)| (name.to_string(), value.to_string()))
        );
        assert_eq!(parse("--plugin p.so").expect("fine").on_host(), Ok(true));
        for wrong in ["--plugin", "--sample x", "--quick", "--knob a", "--memory paper --plugin p.so"] {
            assert!(parse(wrong).and_then(|options| options.on_host()).is_err(), "{wrong}");
        }
    }
}
