//! `tune`: times the engines that take a graph. A backend ranks them by it from then on, and the heuristics plugin by
//! what it learns of them for graphs like this one.

mod measured;
mod report;

use std::path::Path;

use hipdnn_client::handle::{Handle, set_plugins};
use hipdnn_client::search::{Environment, backend_candidates};
use hipdnn_client::{library, planning};
use hipdnn_heuristics_model::store;
use hipdnn_heuristics_model::table;
use hipdnn_sdk_bindings::hipdnn::backend::{AutotuneCacheWriteOutcome as Outcome, Backend, PluginLoadingMode};

use crate::Answer;
use crate::arguments::Tune;
use crate::bench::NO_ENGINE;
use crate::content::read_graph;
use crate::engines::{self, Loaded};
use crate::workplace::Workplace;

pub(crate) use measured::model;
use measured::{Measured, Share};

/// Seconds for each configuration, unless the user says otherwise.
const SECONDS: f64 = 2.0;

/// Times every engine that takes the graphs, and keeps the order and the times.
pub(crate) fn tune(arguments: &Tune) -> Result<Answer, String> {
    if arguments.report {
        return report::report(arguments);
    }
    let (candidates, _) = backend_candidates(arguments.backend.as_deref(), &Environment::current());
    let backend = library::open(&candidates).map_err(|error| error.to_string())?;
    let plugins = engines::open(&arguments.plugins.paths)?;
    let place = Workplace::new(arguments.memory);
    let (mut text, mut good) = (String::new(), true);
    for file in &arguments.files {
        match tune_graph(file, arguments, backend, &plugins, &place) {
            Ok((report, is_kept)) => {
                text.push_str(&report);
                good &= is_kept;
            }
            Err(problem) if arguments.files.len() == 1 => return Err(problem),
            // The others' times took as long, and some are kept already.
            Err(problem) => {
                text.push_str(&format!("{problem}\n"));
                good = false;
            }
        }
    }
    Ok(Answer::new(text, good))
}

/// Times every engine that takes a graph, and keeps the order and the times; the report, and whether the order is kept.
fn tune_graph(
    file: &Path,
    arguments: &Tune,
    backend: &'static Backend,
    plugins: &[Loaded],
    place: &Workplace,
) -> Result<(String, bool), String> {
    let source = read_graph(file)?;
    let named = |problem: String| match arguments.files.len() {
        1 => problem,
        _ => format!("{}: {problem}", file.display()),
    };
    let seconds = arguments.seconds.unwrap_or(SECONDS);
    let measured = measured::measure(plugins, source, place, seconds, arguments.seed, !arguments.no_settings);
    let measured = measured.map_err(named)?;
    let Some(measured) = measured else { return Ok((format!("{}: {NO_ENGINE}", file.display()), false)) };
    let kept = learn(&measured);
    let (ranking, is_kept) = rank(backend, plugins, &measured).map_err(named)?;
    Ok((format!("{}\n{kept}\n{ranking}\n", measured.table), is_kept))
}

/// Keeps the times for the heuristics plugin; what became of that. Where they can't be kept is no failure: the ranking
/// may be.
fn learn(measured: &Measured) -> String {
    let Some(folder) = store::folder() else {
        return "times are not kept: the cache is switched off, or there is no folder for it".to_owned();
    };
    let model = model();
    let key = table::key(&hipdnn_heuristics_model::features::of(&measured.source.graph));
    let kept = store::update(&folder, &model.device, |table| {
        for (configuration, seconds) in measured.seconds(Share::All) {
            let estimate = model.seconds(&measured.source.graph, &configuration);
            table.record(key, configuration.number(), estimate / seconds);
        }
    });
    match kept {
        Ok(known) => {
            let passed_over: String =
                known.passed_over.iter().map(|reason| format!("; passed over: {reason}")).collect();
            let place = folder.join(&model.device.name);
            format!(
                "times are kept for graphs like this one: {} in {}{passed_over}",
                known.table.len(),
                place.display()
            )
        }
        Err(error) => format!("times are not kept: {}: {error}", folder.display()),
    }
}

/// Has the backend rank the engines by their times without settings; what became of that, and whether it is kept.
fn rank(backend: &'static Backend, plugins: &[Loaded], measured: &Measured) -> Result<(String, bool), String> {
    // The engines that were measured, and no others.
    let files: Vec<&Path> = plugins.iter().map(|loaded| loaded.path.as_path()).collect();
    set_plugins(backend, &files, PluginLoadingMode::ABSOLUTE).map_err(|error| error.to_string())?;
    let handle = Handle::new(backend).map_err(|error| error.to_string())?;
    let graph = planning::graph(&handle, &measured.source.bytes).map_err(|error| error.to_string())?;
    let mut engines = measured.engines();
    engines.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ids: Vec<i64> = engines.iter().map(|(_, id, _)| *id).collect();
    let outcome = planning::keep_ranking(&handle, &graph, &ids).map_err(|error| error.to_string())?;
    let (said, good) = match outcome {
        Outcome::WRITTEN => ("is kept", true),
        Outcome::UNCHANGED => ("is not written: it, or one of more engines, is kept already", true),
        Outcome::DECLINED_DISABLED => ("is not kept: the backend's cache is switched off, or can't be written", false),
        Outcome::DECLINED_UNKEYABLE_OR_UNFINALIZED => ("is not kept: the backend can't tell graph or device", false),
        other => return Err(format!("writing the ranking: expected an outcome of 0 to 4, got {}", other.0)),
    };
    let names: Vec<&str> = engines.iter().map(|(_, _, name)| *name).collect();
    Ok((format!("order {said} ({}): {}", backend.path().display(), names.join(", ")), good))
}
