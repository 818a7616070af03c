//! Engine and plugin information of a handle.

use crate::error::{Error, Result};
use crate::names;
use crate::plugins::Resources;

/// One engine, as clients are told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EngineInfo {
    pub(crate) name: String,
    pub(crate) id: i64,
    pub(crate) plugin: String,
    pub(crate) version: String,
}

/// All engines, by name, then id, then plugin.
pub(crate) fn list(resources: &Resources) -> Vec<EngineInfo> {
    let mut engines: Vec<EngineInfo> = resources
        .loaded()
        .flat_map(|plugin| {
            plugin.engines.iter().map(|engine| EngineInfo {
                name: engine.name.clone(),
                id: engine.id,
                plugin: plugin.name.clone(),
                version: plugin.version.clone(),
            })
        })
        .collect();
    engines.sort();
    engines
}

/// The id of the engine of that name.
pub(crate) fn id_of(resources: &Resources, name: &str) -> Result<i64> {
    let mut engines = resources.loaded().flat_map(|plugin| &plugin.engines);
    let found = engines.find(|engine| engine.name == name).map(|engine| engine.id);
    found.ok_or_else(|| Error::not_supported(format!("no loaded plugin has an engine {name:?}")))
}

/// The name of the engine of that id.
pub(crate) fn name_of(resources: &Resources, id: i64) -> Result<String> {
    let mut engines = resources.loaded().flat_map(|plugin| &plugin.engines);
    let found = engines.find(|engine| engine.id == id).map(|engine| engine.name.clone());
    found.ok_or_else(|| Error::not_supported(format!("no loaded plugin has engine {}", names::fallback_name(id))))
}

/// The files of the plugins, in the order of loading.
pub(crate) fn paths(resources: &Resources) -> Vec<String> {
    resources.loaded().map(|plugin| plugin.path.to_string_lossy().into_owned()).collect()
}
