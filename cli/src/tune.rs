//! `tune`: times the engines that take a graph, and has a backend rank them by it from then on.

use std::path::Path;

use hipdnn_client::handle::{Handle, set_plugins};
use hipdnn_client::search::{Environment, backend_candidates};
use hipdnn_client::{library, planning};
use hipdnn_sdk_bindings::hipdnn::backend::{AutotuneCacheWriteOutcome as Outcome, PluginLoadingMode};

use crate::Answer;
use crate::arguments::{Bench, Tune};
use crate::bench::{self, NO_ENGINE};

/// Times every engine that takes the graph, and writes their order.
pub(crate) fn tune(arguments: &Tune) -> Result<Answer, String> {
    let Tune { file, plugins, backend, seconds, seed, memory } = arguments;
    let (candidates, _) = backend_candidates(backend.as_deref(), &Environment::current());
    let backend = library::open(&candidates).map_err(|error| error.to_string())?;
    let bench = Bench {
        file: file.clone(),
        plugins: plugins.clone(),
        engines: Vec::new(),
        seconds: *seconds,
        knobs: Vec::new(),
        seed: *seed,
        memory: *memory,
    };
    let Some(measured) = bench::measure(&bench)? else { return Ok(Answer::new(NO_ENGINE, false)) };
    // The engines that were measured, and no others.
    let files: Vec<&Path> = measured.plugins.iter().map(AsRef::as_ref).collect();
    set_plugins(backend, &files, PluginLoadingMode::ABSOLUTE).map_err(|error| error.to_string())?;
    let handle = Handle::new(backend).map_err(|error| error.to_string())?;
    let graph = planning::graph(&handle, &measured.graph).map_err(|error| error.to_string())?;
    let ids: Vec<i64> = measured.order.iter().map(|(id, _)| *id).collect();
    let outcome = planning::keep_ranking(&handle, &graph, &ids).map_err(|error| error.to_string())?;
    let (said, good) = match outcome {
        Outcome::WRITTEN => ("is kept", true),
        Outcome::UNCHANGED => ("is not written: it, or one of more engines, is kept already", true),
        Outcome::DECLINED_DISABLED => ("is not kept: the backend's cache is switched off, or can't be written", false),
        Outcome::DECLINED_UNKEYABLE_OR_UNFINALIZED => ("is not kept: the backend can't tell graph or device", false),
        other => return Err(format!("writing the ranking: expected an outcome of 0 to 4, got {}", other.0)),
    };
    let names: Vec<&str> = measured.order.iter().map(|(_, name)| name.as_str()).collect();
    let order = names.join(", ");
    Ok(Answer::new(format!("{}\norder {said} ({}): {order}\n", measured.report, backend.path().display()), good))
}
