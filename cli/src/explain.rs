//! `explain`: the engines that take a graph, and the reasons of the others.

use std::fmt::Write;

use hipdnn_conformance::plugin::take_log;
use hipdnn_heuristics_model::engine::Configuration;
use hipdnn_heuristics_model::{ranking, store};
use hipdnn_schemas::{EngineConfig, EngineDetails, Graph};

use crate::arguments::Explain;
use crate::content::{Source, read_graph};
use crate::engines::{self, Asked, Claim, Engine, Settings};
use crate::{Answer, bench, inspect, names, text, tune};

/// Asks every engine, in the order in which hipDNN does.
pub(crate) fn explain(arguments: &Explain) -> Result<Answer, String> {
    let source = read_graph(&arguments.file)?;
    let settings = Settings::parse(&arguments.knobs)?;
    let plugins = engines::open(&arguments.plugins.paths)?;
    let mut engines = engines::all(&plugins, source.graph.def().preferred_engine_id);
    if let Some(name) = &arguments.engine {
        engines = vec![engines::find(&engines, name)?];
    }
    let Asked { claims, remarks } = engines::ask(&engines, &source)?;
    let taking: Vec<&EngineDetails> = claims.iter().filter_map(|(_, claim)| claim.details()).collect();
    settings.check(&taking)?;

    let mut text =
        format!("graph {}: {}\n", text::quoted(source.graph.name()), text::count(source.graph.nodes().len(), "node"));
    for plugin in &plugins {
        let _ = writeln!(text, "{}", plugin.title());
        for line in &plugin.log {
            text.push_str(&text::indented(line, 2));
        }
    }
    for line in &remarks {
        text.push_str(&text::indented(line, 2));
    }
    let (takes, declines): (Vec<_>, Vec<_>) = claims.iter().partition(|(_, claim)| claim.details().is_some());
    for (place, (engine, claim)) in takes.iter().enumerate() {
        if let Claim::Takes(details) = claim {
            let order = if takes.len() == 1 { "".into() } else { format!("{}. ", place + 1) };
            let _ = writeln!(text, "\n{order}{} takes it", title(engine));
            text.push_str(&offer(engine, details, &source, &settings, arguments.no_plan)?);
        }
    }
    for (engine, claim) in &declines {
        if let Claim::Declines(reasons) = claim {
            let _ = writeln!(text, "\n{} declines", title(engine));
            let unsaid = ["the plugin logged nothing that names it".to_string()];
            let reasons = if reasons.is_empty() { &unsaid[..] } else { reasons };
            reasons.iter().for_each(|reason| text.push_str(&text::indented(reason, 2)));
        }
    }
    if takes.is_empty() {
        text.push_str("\nno engine takes it\n");
    }
    Ok(Answer::new(text, !takes.is_empty()))
}

impl Claim {
    fn details(&self) -> Option<&EngineDetails> {
        match self {
            Claim::Takes(details) => Some(details),
            Claim::Declines(_) => None,
        }
    }
}

fn title(engine: &Engine) -> String {
    let number = names::engine_number(engine.id);
    if engine.name == number { number } else { format!("{} ({number})", text::printable(engine.name)) }
}

/// Estimated time of an engine's configuration, as the heuristics plugin has it: engines themselves predict nothing.
fn predicted(config: &EngineConfig, graph: &Graph) -> String {
    let configuration = Configuration { engine: config.engine_id, knobs: config.knobs.clone() };
    let model = tune::model();
    let known = store::folder().map(|folder| store::read(&folder, &model.device)).unwrap_or_default();
    let estimate = ranking::learned(&model, &known, graph, &configuration)
        .unwrap_or_else(|| ranking::modeled(&model, graph, configuration));
    let time = bench::seconds(estimate.seconds);
    format!("{time} on {} ({})", model.device.name, estimate.basis)
}

/// Description of an engine for a graph: workspace, notes, knobs and the plan.
fn offer(
    engine: &Engine,
    details: &EngineDetails,
    source: &Source,
    settings: &Settings,
    no_plan: bool,
) -> Result<String, String> {
    let mut text = String::new();
    let config = engine.config(details, settings)?;
    let plugin = &engine.loaded.plugin;
    let fail = |problem: String| format!("{}: {problem}", engine.name);
    for (name, value) in &config.knobs {
        let _ = writeln!(text, "  set: {} = {}", text::printable(name), inspect::knob_value(value));
    }
    let workspace = plugin.workspace_bytes(&config, &source.bytes).map_err(fail)?;
    let _ = writeln!(text, "  workspace: {}", text::bytes(workspace as u128));
    let _ = writeln!(text, "  predicted: {}", predicted(&config, &source.graph));
    if let Some(notes) = inspect::behavior_notes(details) {
        let _ = writeln!(text, "  notes: {notes}");
    }
    text.push('\n');
    text.push_str(&inspect::knobs(&details.knobs));
    if no_plan {
        return Ok(text);
    }
    take_log();
    let plan = plugin.plan(&config, &source.bytes).map_err(fail)?;
    let log = take_log();
    let _ = writeln!(text, "\n  plan: {} of workspace", text::bytes(plan.workspace_bytes as u128));
    if log.is_empty() {
        text.push_str("    the plugin says nothing about it\n");
    }
    for line in log {
        text.push_str(&text::indented(&line, 4));
    }
    Ok(text)
}
