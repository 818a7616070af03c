//! `tune --report`: how far orders of engines and settings are from the fastest one, on graphs that they know nothing
//! of.
//!
//! Every third graph is held out; what is learned is learned of the others. Each graph's executions are halved, every
//! second one:
//! one half is what a policy may learn from, and by the other its choice is judged, since the fastest of several times
//! by the same executions is too fast by chance. So the choice by the graph's own first half, which is what a kept
//! ranking does, has a regret too: the noise.

use std::time::Duration;

use hipdnn_heuristics_model::cost::Model;
use hipdnn_heuristics_model::engine::Configuration;
use hipdnn_heuristics_model::ranking::{self, Estimate};
use hipdnn_heuristics_model::store::Known;
use hipdnn_heuristics_model::work::Kind;
use hipdnn_heuristics_model::{features, samples, table};

use super::measured::{self, Measured, Share, model};
use crate::arguments::Tune;
use crate::content::{Source, read_graph};
use crate::table::Table;
use crate::workplace::Workplace;
use crate::{Answer, bench, engines, text};

/// Seconds for each configuration, unless the user says otherwise.
const SECONDS: f64 = 0.1;

/// One graph of this many is held out.
const HELD_OUT: usize = 3;

/// Share of the fastest time within which a choice is as good.
const CLOSE: f64 = 0.05;

/// Measures and judges.
pub(super) fn report(arguments: &Tune) -> Result<Answer, String> {
    let plugins = engines::open(&arguments.plugins.paths)?;
    let place = Workplace::new(arguments.memory);
    let sources: Vec<Source> = match arguments.files.is_empty() {
        true => samples::all().into_iter().map(made).collect(),
        false => arguments.files.iter().map(|file| read_graph(file)).collect::<Result<_, _>>()?,
    };
    let seconds = arguments.seconds.unwrap_or(SECONDS);
    let (mut all, mut declined) = (Vec::new(), 0);
    for source in sources {
        match measured::measure(&plugins, source, &place, seconds, arguments.seed, !arguments.no_settings)? {
            Some(measured) => all.push(measured),
            None => declined += 1,
        }
    }
    let (held_out, known): (Vec<_>, Vec<_>) =
        all.iter().enumerate().partition(|(place, _)| place % HELD_OUT == HELD_OUT - 1);
    if held_out.is_empty() || known.is_empty() {
        let count = all.len();
        return Err(format!("expected at least {HELD_OUT} graphs that an engine takes, got {count}"));
    }
    let model = model();
    let mut learned = Known::default();
    for (_, measured) in &known {
        let key = table::key(&features::of(&measured.source.graph));
        for (configuration, seconds) in measured.seconds(Share::First) {
            let estimate = model.seconds(&measured.source.graph, &configuration);
            learned.table.record(key, configuration.number(), estimate / seconds);
        }
    }
    let cases: Vec<Case> = held_out.iter().map(|(_, measured)| Case::new(measured, &model, &learned)).collect();
    let mut report = format!(
        "{} of {} on {}, {declined} that no engine takes; of these {} held out, of the others {} learned\n\n",
        text::count(all.len(), "graph"),
        text::count(all.iter().map(Measured::count).sum(), "configuration"),
        model.device.name,
        held_out.len(),
        text::count(learned.table.len(), "time"),
    );
    report.push_str(&each(&cases));
    report.push('\n');
    report.push_str(&summary(&cases));
    report.push_str(&by_kind(&all, &model));
    Ok(Answer::new(report, true))
}

fn made(graph: hipdnn_schemas::Graph) -> Source {
    let def = graph.def();
    Source { bytes: def.to_bytes(), def, graph }
}

/// The ways to choose, in the order of the tables' rows.
const WAYS: [&str; 4] = ["default order", "cost model", "measured", "the graph's own times"];

/// A graph that was held out.
struct Case {
    name: String,
    /// The fastest configuration, and its seconds.
    fastest: (String, f64),
    /// Seconds of what each way chooses.
    chosen: [f64; WAYS.len()],
    /// What the measured way chooses.
    settings: String,
    /// Estimates of the first engine without settings over its seconds: by the cost model, and by measurements if there
    /// are any.
    estimates: [Option<f64>; 2],
}

impl Case {
    fn new(measured: &Measured, model: &Model, known: &Known) -> Case {
        let graph = &measured.source.graph;
        let (own, judged) = (measured.seconds(Share::First), measured.seconds(Share::Second));
        // Engines are in hipDNN's order, each first without settings.
        let mut candidates: Vec<i64> = judged.iter().map(|(configuration, _)| configuration.engine).collect();
        candidates.dedup();
        let plain = Configuration::plain(candidates[0]);
        let by_model = ranking::by_model(model, graph, &candidates);
        let by_measurements = ranking::by_measurements(model, known, graph, &candidates);
        let first = |order: &[Estimate]| order.first().map_or_else(|| plain.clone(), |its| its.configuration.clone());
        let fastest = |times: &[(Configuration, f64)]| {
            times.iter().min_by(|a, b| a.1.total_cmp(&b.1)).map(|(its, _)| its.clone()).unwrap_or_else(|| plain.clone())
        };
        let choices =
            [plain.clone(), first(&by_model), first(by_measurements.as_deref().unwrap_or(&by_model)), fastest(&own)];
        // A setting that the engine has no knob for leaves it as it is.
        let seconds = |choice: &Configuration| {
            let of = |wanted: &Configuration| judged.iter().find(|(its, _)| its == wanted).map(|(_, seconds)| *seconds);
            of(choice).or_else(|| of(&Configuration::plain(choice.engine))).unwrap_or(f64::NAN)
        };
        let best = fastest(&judged);
        let took = seconds(&plain);
        Case {
            name: graph.name().to_owned(),
            fastest: (best.shown(), seconds(&best)),
            chosen: choices.each_ref().map(seconds),
            settings: choices[2].shown(),
            estimates: [
                Some(ranking::modeled(model, graph, plain.clone()).seconds / took),
                ranking::learned(model, known, graph, &plain).map(|estimate| estimate.seconds / took),
            ],
        }
    }

    fn regret(&self, way: usize) -> f64 {
        self.chosen[way] / self.fastest.1 - 1.0
    }
}

/// How far the cost model is off, by the kind of a graph's heaviest step.
fn by_kind(all: &[Measured], model: &Model) -> String {
    let mut table = Table::new(&["kind of most work", ">graphs", ">cost model over time"]);
    for (number, kind) in Kind::ALL.into_iter().enumerate() {
        let of_kind = all.iter().filter(|measured| features::of(&measured.source.graph)[0] == number as f64);
        let ratio = |measured: &Measured| {
            let (plain, seconds) = measured.seconds(Share::All).swap_remove(0);
            model.seconds(&measured.source.graph, &plain) / seconds
        };
        let ratios: Vec<f64> = of_kind.map(ratio).collect();
        if !ratios.is_empty() {
            let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
            table.row(vec![format!("{kind:?}"), ratios.len().to_string(), format!("{mean:.2}")]);
        }
    }
    format!("\n{}", table.markdown())
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn each(cases: &[Case]) -> String {
    let columns = ["graph held out", ">fastest", "with", ">default", ">cost model", ">measured", "chooses"];
    let mut table = Table::new(&columns);
    for case in cases {
        let seconds = bench::time(Duration::from_secs_f64(case.fastest.1));
        let regrets = (0..3).map(|way| percent(case.regret(way)));
        let mut row = vec![text::printable(&case.name), seconds, case.fastest.0.clone()];
        row.extend(regrets);
        row.push(case.settings.clone());
        table.row(row);
    }
    table.markdown()
}

/// Regret of each way: the geometric mean of times over the fastest's, less 1.
fn summary(cases: &[Case]) -> String {
    let mut table = Table::new(&["choice by", ">mean regret", ">median", ">largest", ">within 5 %"]);
    for (way, name) in WAYS.iter().enumerate() {
        let mut regrets: Vec<f64> = cases.iter().map(|case| case.regret(way)).collect();
        regrets.sort_by(f64::total_cmp);
        let mean = (regrets.iter().map(|regret| regret.ln_1p()).sum::<f64>() / regrets.len() as f64).exp_m1();
        let close = regrets.iter().filter(|regret| **regret <= CLOSE).count();
        table.row(vec![
            (*name).to_owned(),
            percent(mean),
            percent(regrets[regrets.len() / 2]),
            percent(regrets[regrets.len() - 1]),
            format!("{close} of {}", cases.len()),
        ]);
    }
    let mut text = table.markdown();
    for (place, name) in ["cost model", "measurements nearby"].into_iter().enumerate() {
        let errors: Vec<f64> =
            cases.iter().filter_map(|case| case.estimates[place]).map(|ratio| ratio.ln().abs()).collect();
        if !errors.is_empty() {
            let mean = (errors.iter().sum::<f64>() / errors.len() as f64).exp();
            let count = text::count(errors.len(), "graph");
            text.push_str(&format!("\nestimates by {name} are off by a factor of {mean:.2} (geometric mean, {count})"));
        }
    }
    text.push('\n');
    text
}
