//! Engines of plugins: opened, asked about a graph, and set.

use std::path::PathBuf;

use hipdnn_conformance::plugin::{Plugin, take_log};
use hipdnn_schemas::{EngineConfig, EngineDetails, KnobValue};

use crate::content::Source;
use crate::{inspect, names, search, text};

/// An open plugin.
pub(crate) struct Loaded {
    pub(crate) path: PathBuf,
    pub(crate) plugin: Plugin,
    pub(crate) engines: Vec<(i64, String)>,
    /// What it logged when it was opened.
    pub(crate) log: Vec<String>,
}

impl Loaded {
    /// The plugin's file and what it says of itself.
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
        format!("wanted an engine called {name:?}; there are {}", known.join(", "))
    })
}

/// What an engine says of a graph.
pub(crate) enum Claim {
    Takes(EngineDetails),
    /// The reasons, in the plugin's words.
    Declines(Vec<String>),
}

impl Engine<'_> {
    /// Asks whether the engine takes the graph.
    ///
    /// # Errors
    /// If the plugin fails.
    pub(crate) fn ask(&self, source: &Source) -> Result<Claim, String> {
        take_log();
        let explain = |problem: String| format!("{} in {}: {problem}", self.name, self.loaded.path.display());
        let ids = self.loaded.plugin.applicable(&source.bytes).map_err(explain)?;
        if ids.contains(&self.id) {
            let details = self.loaded.plugin.details(self.id, &source.bytes);
            return details.map(Claim::Takes).map_err(explain);
        }
        Ok(Claim::Declines(self.reasons(take_log(), source.graph.name())))
    }

    /// The lines that speak of this engine, or all if none does.
    fn reasons(&self, log: Vec<String>, graph: &str) -> Vec<String> {
        let said = format!("{} does not compute graph {graph:?}: ", self.name);
        let other = |line: &String| self.loaded.engines.iter().any(|(id, name)| *id != self.id && line.contains(name));
        let own: Vec<String> = log.iter().filter(|line| line.contains(self.name)).cloned().collect();
        let reasons = match own.is_empty() {
            false => own,
            true => log.into_iter().filter(|line| !other(line)).collect(),
        };
        match reasons.is_empty() {
            true => vec!["the plugin logged no reason".into()],
            false => reasons.iter().map(|line| line.replacen(&said, "", 1)).collect(),
        }
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
                    format!("knob {name} of {} wants {wanted} (default {default}), came {value:?}", self.name)
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
                text.split_once('=').ok_or_else(|| format!("--knob wants NAME=VALUE, came {text:?}"))?;
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
                    "no engine that takes the graph has a knob {name:?}; there are {}",
                    known.join(", ")
                ));
            }
        }
        Ok(())
    }
}

/// The error is what was wanted.
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
        assert_eq!(Settings::parse(&texts(&["a"])).map(|_| ()), Err("--knob wants NAME=VALUE, came \"a\"".to_string()));
        let knob = |id: &str, default| Knob {
            id: id.into(),
            description: String::new(),
            default,
            constraint: None,
            deprecated: false,
        };
        let details = EngineDetails { knobs: vec![knob("a", KnobValue::Int(0))], ..EngineDetails::default() };
        let problem = settings.check(&[&details]).unwrap_err();
        assert_eq!(problem, "no engine that takes the graph has a knob \"b\"; there are a");
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
