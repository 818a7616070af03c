//! Engines of plugins: opened, asked about a graph, and set.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};

use hipdnn_conformance::plugin::{Plugin, take_log};
use hipdnn_schemas::{EngineConfig, EngineDetails, KnobValue};

use crate::content::Source;
use crate::{inspect, names, search, text};

/// An open plugin.
pub(crate) struct Loaded {
    pub(crate) path: PathBuf,
    pub(crate) plugin: Plugin,
    pub(crate) engines: Vec<(i64, String)>,
    /// Log of its opening.
    pub(crate) log: Vec<String>,
}

impl Loaded {
    /// The plugin's file, name and versions.
    pub(crate) fn title(&self) -> String {
        let [name, version, api] = self.plugin.identity();
        let mut text = format!("plugin {}", self.path.display());
        let said: Vec<String> = [name, version, api.map(|api| format!("engine API {api}"))]
            .into_iter()
            .flatten()
            .map(|part| text::printable(&part))
            .collect();
        if !said.is_empty() {
            text.push_str(&format!(": {}", said.join(", ")));
        }
        text
    }
}

/// Opens the plugins. One of a directory that is no engine plugin, or makes no handle, is passed over with a note.
///
/// # Errors
/// If there is none to open, or none opens.
pub(crate) fn open(named: &[PathBuf]) -> Result<Vec<Loaded>, String> {
    let mut loaded = Vec::new();
    let mut problems = Vec::new();
    for path in search::plugins(named)? {
        take_log();
        // The loader takes a name without a slash for one to search for.
        let absolute = path.canonicalize().unwrap_or_else(|_| path.clone());
        let opened = Plugin::open(&absolute).and_then(|plugin| plugin.engines().map(|engines| (plugin, engines)));
        match opened {
            Ok((plugin, engines)) => loaded.push(Loaded { path, plugin, engines, log: take_log() }),
            Err(problem) => problems.push(format!("{}: {problem}", path.display())),
        }
    }
    if loaded.is_empty() {
        return Err(problems.join("; "));
    }
    for problem in problems {
        eprintln!("hipdnn-rs: passed over: {problem}");
    }
    Ok(loaded)
}

/// An engine and the plugin it is in.
#[derive(Clone, Copy)]
pub(crate) struct Engine<'a> {
    pub(crate) loaded: &'a Loaded,
    pub(crate) id: i64,
    pub(crate) name: &'a str,
}

/// All engines, in the order in which hipDNN tries them.
pub(crate) fn all<'a>(plugins: &'a [Loaded], preferred: Option<i64>) -> Vec<Engine<'a>> {
    let mut engines: Vec<Engine> = plugins
        .iter()
        .flat_map(|loaded| loaded.engines.iter().map(move |(id, name)| Engine { loaded, id: *id, name }))
        .collect();
    engines.sort_by_key(|engine| (Some(engine.id) != preferred, names::rank(engine.id)));
    engines
}

/// The engine of that name or number.
///
/// # Errors
/// If there is none.
pub(crate) fn find<'a>(engines: &[Engine<'a>], name: &str) -> Result<Engine<'a>, String> {
    let is_it = |engine: &&Engine| engine.name == name || names::engine_number(engine.id) == name.to_lowercase();
    engines.iter().find(is_it).copied().ok_or_else(|| {
        let known: Vec<&str> = engines.iter().map(|engine| engine.name).collect();
        format!("expected an engine among {}, got {name:?}", known.join(", "))
    })
}

/// The engine of that name, or the first that takes the graph, with its details.
///
/// # Errors
/// If it declines, with its reasons.
pub(crate) fn choose<'a>(
    plugins: &'a [Loaded],
    preferred: Option<i64>,
    name: Option<&str>,
    source: &Source,
) -> Result<(Engine<'a>, EngineDetails), String> {
    let mut engines = all(plugins, preferred);
    if let Some(name) = name {
        engines = vec![find(&engines, name)?];
    }
    let Asked { claims, remarks } = ask(&engines, source)?;
    let mut declined = Vec::new();
    for (engine, claim) in claims {
        match claim {
            Claim::Takes(details) => return Ok((engine, details)),
            Claim::Declines(reasons) => declined.push(format!("{} declines: {}", engine.name, reasons.join("; "))),
        }
    }
    declined.extend(remarks);
    Err(if declined.is_empty() { "the plugins have no engine".into() } else { declined.join("; ") })
}

/// Answer of an engine to a graph.
pub(crate) enum Claim {
    Takes(EngineDetails),
    /// The reasons, in the plugin's words.
    Declines(Vec<String>),
}

/// Answers of engines to a graph.
pub(crate) struct Asked<'a> {
    pub(crate) claims: Vec<(Engine<'a>, Claim)>,
    /// Other log messages of the plugins.
    pub(crate) remarks: Vec<String>,
}

/// Asks each plugin once, as hipDNN does.
///
/// # Errors
/// If a plugin fails.
pub(crate) fn ask<'a>(engines: &[Engine<'a>], source: &Source) -> Result<Asked<'a>, String> {
    let mut asked = Asked { claims: Vec::new(), remarks: Vec::new() };
    let mut answers: HashMap<&Path, (Vec<i64>, Vec<String>)> = HashMap::new();
    for engine in engines {
        let Loaded { path, plugin, engines: others, .. } = engine.loaded;
        let explain = |problem: String| format!("{} in {}: {problem}", engine.name, path.display());
        let (ids, log) = match answers.entry(path) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                take_log();
                let ids = plugin.applicable(&source.bytes).map_err(explain)?;
                let log = take_log();
                let is_remark = |line: &&String| !others.iter().any(|(_, name)| line.contains(name));
                asked.remarks.extend(log.iter().filter(is_remark).cloned());
                entry.insert((ids, log))
            }
        };
        let claim = match ids.contains(&engine.id) {
            true => Claim::Takes(plugin.details(engine.id, &source.bytes).map_err(explain)?),
            false => Claim::Declines(engine.reasons(log, source.graph.name())),
        };
        asked.claims.push((*engine, claim));
    }
    Ok(asked)
}

impl Engine<'_> {
    /// The engine's reasons in a log: of this project's plugin the lines made for them, of another the lines that name the
    /// engine. (Ours name it elsewhere too: the variable that switches the CPU engine is called like it.)
    fn reasons(&self, log: &[String], graph: &str) -> Vec<String> {
        let said = format!("{} does not compute graph {graph:?}: ", self.name);
        let own: Vec<String> =
            log.iter().filter(|line| line.contains(&said)).map(|line| line.replacen(&said, "", 1)).collect();
        if own.is_empty() { log.iter().filter(|line| line.contains(self.name)).cloned().collect() } else { own }
    }

    /// The settings that the engine has knobs for.
    ///
    /// # Errors
    /// If a value is of the wrong type.
    pub(crate) fn config(&self, details: &EngineDetails, settings: &Settings) -> Result<EngineConfig, String> {
        let mut knobs = Vec::new();
        for (name, value) in &settings.0 {
            if let Some(knob) = details.knobs.iter().find(|knob| knob.id == *name) {
                let value = parse(value, &knob.default).map_err(|wanted| {
                    let default = inspect::knob_value(&knob.default);
                    format!("knob {name} of {}: expected {wanted} (default {default}), got {value:?}", self.name)
                })?;
                knobs.push((name.clone(), value));
            }
        }
        Ok(EngineConfig { engine_id: self.id, knobs })
    }
}

/// Knobs as the command line has them.
pub(crate) struct Settings(Vec<(String, String)>);

impl Settings {
    /// Reads `NAME=VALUE` texts.
    ///
    /// # Errors
    /// If one has no `=`.
    pub(crate) fn parse(texts: &[String]) -> Result<Settings, String> {
        let split = |text: &String| {
            let (name, value) =
                text.split_once('=').ok_or_else(|| format!("--knob: expected NAME=VALUE, got {text:?}"))?;
            Ok((name.to_string(), value.to_string()))
        };
        texts.iter().map(split).collect::<Result<_, String>>().map(Settings)
    }

    /// Sees that each setting is of use to one of these engines.
    ///
    /// # Errors
    /// If one is not.
    pub(crate) fn check(&self, details: &[&EngineDetails]) -> Result<(), String> {
        for (name, _) in &self.0 {
            let knobs = || details.iter().flat_map(|details| &details.knobs);
            if !details.is_empty() && !knobs().any(|knob| knob.id == *name) {
                let known: Vec<&str> = knobs().map(|knob| knob.id.as_str()).collect();
                return Err(format!(
                    "--knob: expected a knob of an engine that takes the graph, got {name:?}; there are {}",
                    known.join(", ")
                ));
            }
        }
        Ok(())
    }
}

/// A knob's value of the type of `like`; the error is the name of that type.
fn parse(text: &str, like: &KnobValue) -> Result<KnobValue, &'static str> {
    match like {
        KnobValue::Int(_) => text.trim().parse().map(KnobValue::Int).map_err(|_| "an integer"),
        KnobValue::Float(_) => text.trim().parse().map(KnobValue::Float).map_err(|_| "a number"),
        KnobValue::String(_) => Ok(KnobValue::String(text.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use hipdnn_schemas::Knob;

    use super::*;

    #[test]
    fn settings() {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_string()).collect::<Vec<_>>();
        let settings = Settings::parse(&texts(&["a=1", "b=x=y,z=w"])).expect("fine");
        assert_eq!(settings.0[1], ("b".to_string(), "x=y,z=w".to_string()));
        assert_eq!(
            Settings::parse(&texts(&["a"])).map(|_| ()),
            Err("--knob: expected NAME=VALUE, got \"a\"".to_string())
        );
        let knob = |id: &str, default| Knob {
            id: id.into(),
            description: String::new(),
            default,
            constraint: None,
            deprecated: false,
        };
        let details = EngineDetails { knobs: vec![knob("a", KnobValue::Int(0))], ..EngineDetails::default() };
        let problem = settings.check(&[&details]).unwrap_err();
        assert_eq!(problem, "--knob: expected a knob of an engine that takes the graph, got \"b\"; there are a");
        for (text, like, want) in [
            ("3", KnobValue::Int(0), Ok(KnobValue::Int(3))),
            ("3.5", KnobValue::Int(0), Err("an integer")),
            ("3.5", KnobValue::Float(0.0), Ok(KnobValue::Float(3.5))),
            ("x", KnobValue::Float(0.0), Err("a number")),
            ("3", KnobValue::String(String::new()), Ok(KnobValue::String("3".into()))),
        ] {
            assert_eq!(parse(text, &like), want, "{text}");
        }
    }
}
