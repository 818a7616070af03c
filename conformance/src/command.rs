//! The command line.

use std::path::PathBuf;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use hipdnn_schemas::Graph;

use crate::cases::{self, Case};
use crate::execute::{Tolerance, has_narrow_intermediates};
use crate::inputs::{Random, seed};
use crate::report::Summary;
use crate::run::Outcome;
use crate::strata::{self, Combinations, Covering};
use crate::workers::{self, Job, Target};
use crate::{claims, random};

/// Size of the sample of the cases that fit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sample {
    Count(usize),
    Covering(Combinations),
}

impl FromStr for Sample {
    type Err = String;

    fn from_str(text: &str) -> Result<Sample, String> {
        match text {
            "covering" => Ok(Sample::Covering(Combinations::RuleTypesLayout)),
            "rules" => Ok(Sample::Covering(Combinations::Rule)),
            count => count.parse().map(Sample::Count).map_err(|_| "expected a number, covering or rules".into()),
        }
    }
}

/// Memory of the tensors.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Memory {
    /// On the device unless the engine's name says CPU
    Auto,
    /// In the process's own memory
    Host,
    /// In the memory of the current HIP device
    Device,
}

/// Runs the conformance suite on an engine of any plugin.
#[derive(Debug, Parser)]
#[command(name = "hipdnn-conformance", max_term_width = 110)]
struct Options {
    /// The engine plugin, any vendor's
    #[arg(long, value_name = "FILE", required_unless_present_any = ["list", "graph"])]
    plugin: Option<PathBuf>,
    /// One of its engines
    #[arg(long, value_name = "NAME", default_value = "HIPDNN_RS_CPU_ENGINE")]
    engine: String,
    /// Only cases whose name contains this; may be repeated, all must fit
    #[arg(long = "filter", value_name = "TEXT")]
    filters: Vec<String>,
    /// Only N cases: a seeded choice that takes every family, kind, layout and type first. `covering`: one that has a case
    /// of every stratum (nodes in their order x types x layout) and of every mode, rank and other trait; of equal cases
    /// a cheap one. `rules`: the same with every rule (nodes in their order) once, in some types and layout
    #[arg(long, value_name = "N|covering|rules")]
    sample: Option<Sample>,
    /// N random graphs in place of the cases
    #[arg(long, value_name = "N")]
    random: Option<u64>,
    /// Another choice, or other random graphs
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// A setting for every plan; may be repeated
    #[arg(long = "knob", value_name = "NAME=VALUE", value_parser = knob)]
    knobs: Vec<(String, String)>,
    /// A wider class of tolerance: convolutions of 16-bit operands may round a virtual float result to their type where
    /// only results of that type come of it
    #[arg(long)]
    narrow_intermediates: bool,
    /// Only cases and graphs where that class makes a difference
    #[arg(long)]
    where_narrow: bool,
    /// Only ask what the engine would take: a section of a page in Markdown
    #[arg(long)]
    claims: bool,
    /// Execute each graph with N override shapes, and compare bits with plans that are built for these shapes
    #[arg(long, value_name = "N", default_value_t = 0)]
    overrides: usize,
    /// Memory of the tensors
    #[arg(long, value_enum, default_value_t = Memory::Auto)]
    memory: Memory,
    /// Number of processes [default: one per core]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// A report for programs that know JUnit
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// A report with everything
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The failures, as they come
    #[arg(long, value_name = "FILE")]
    failures: Option<PathBuf>,
    /// Declined cases count as failed
    #[arg(long)]
    complete: bool,
    /// Only the names of the cases
    #[arg(long)]
    list: bool,
    /// Only the graphs of the cases, as JSON
    #[arg(long)]
    graph: bool,
    /// Take jobs from standard input
    #[arg(long, hide = true)]
    worker: bool,
}

fn knob(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_string(), value.to_string()))
}

impl Options {
    fn on_host(&self) -> bool {
        match self.memory {
            Memory::Host => true,
            Memory::Device => false,
            Memory::Auto => self.engine.contains("CPU"),
        }
    }
}

/// Runs the command; `false` if a claim was broken. What is wrong with the arguments, or help, ends the process.
///
/// # Errors
/// If the plugin or the tables are not right, or a report can't be written.
pub fn main() -> Result<bool, String> {
    let options = Options::parse();
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
    let on_host = options.on_host();
    let plugin = options.plugin.ok_or("expected a plugin, got none")?;
    let tolerance = Tolerance { narrow_intermediates: options.narrow_intermediates };
    let Options { engine, knobs, claims, overrides, .. } = options;
    let target = Target { plugin, engine, on_host, knobs, tolerance, claims, overrides };
    if options.worker {
        return workers::serve(&target).map(|()| true);
    }
    let start = Instant::now();
    let mut summary = Summary::default();
    let (mut told, mut failures) = (Instant::now(), String::new());
    let (total, mut finished, mut failed) = (jobs.len(), 0usize, 0usize);
    let processes = options.workers.unwrap_or_else(|| thread::available_parallelism().map_or(1, |cores| cores.get()));
    workers::run(&target, &cases, &jobs, processes, |report| {
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
        Some(Sample::Covering(combinations)) => {
            let Covering { chosen, strata, traits } = strata::covering(cases, &chosen, combinations, options.seed);
            let name = if combinations == Combinations::Rule { "rules" } else { "strata" };
            eprintln!("{} cases cover {strata} {name} and {traits} traits", chosen.len());
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
        let parse = |text: &str| Options::try_parse_from(std::iter::once("").chain(text.split_whitespace()));
        let options = parse("--plugin p.so --engine MIOPEN_ENGINE --sample 5 --filter a --filter b").expect("fine");
        assert_eq!((options.sample, options.filters.len(), options.on_host()), (Some(Sample::Count(5)), 2, false));
        let options = parse("--plugin p.so --sample covering --knob a=1 --knob b=x=y").expect("fine");
        assert_eq!((options.sample, options.on_host()), (Some(Sample::Covering(Combinations::RuleTypesLayout)), true));
        assert_eq!(
            options.knobs,
            [("a", "1"), ("b", "x=y")].map(|(name, value)| (name.to_string(), value.to_string()))
        );
        assert!(parse("--list").is_ok());
        for wrong in ["--plugin", "", "--sample x", "--quick", "--knob a", "--memory paper"] {
            let line = if wrong.starts_with("--plugin") || wrong.is_empty() {
                wrong.into()
            } else {
                format!("--plugin p.so {wrong}")
            };
            assert!(parse(&line).is_err(), "{line}");
        }
    }

    #[test]
    fn workers_understand_what_they_are_told() {
        for (narrow_intermediates, claims, on_host, overrides) in [(true, false, true, 7), (false, true, false, 0)] {
            let knobs = vec![("a".to_string(), "1".to_string())];
            let tolerance = Tolerance { narrow_intermediates };
            let (plugin, engine) = ("p.so".into(), "E".into());
            let target = Target { plugin, engine, on_host, knobs, tolerance, claims, overrides };
            let options = Options::try_parse_from(std::iter::once("".into()).chain(target.arguments())).expect("fine");
            assert!(options.worker);
            assert_eq!(
                (options.narrow_intermediates, options.claims, options.on_host(), options.overrides),
                (narrow_intermediates, claims, on_host, overrides)
            );
            assert_eq!((options.knobs, options.engine), (target.knobs, target.engine));
        }
    }
}
