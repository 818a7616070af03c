//! Plugins that this process has loaded.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hipdnn_sdk_bindings::hipdnn::plugin::Severity;

use super::heuristics::HeuristicPlugin;
use super::loaded::Plugin;
use super::search::{self, SearchPaths, library_directory};
use crate::error::{Error, Result};
use crate::{last_error, log, policy};

/// The plugins that one search found, in the order of their paths.
pub(crate) struct PluginSet {
    pub(crate) plugins: Vec<Plugin>,
    /// Engine id to index of its plugin.
    pub(crate) owner: HashMap<i64, usize>,
    /// Plugins whose policies rank engines.
    pub(crate) heuristics: Vec<HeuristicPlugin>,
}

/// A kind of plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Engines,
    Heuristics,
}

struct Manager {
    paths: SearchPaths,
    heuristic_paths: SearchPaths,
    /// Unload as soon as the last handle goes.
    eager: bool,
    /// Keeps the set between handles, unless eager.
    kept: Option<Arc<PluginSet>>,
    current: Weak<PluginSet>,
}

// Plugins are loaded with this lock held, and may log on the way: see `LOADING` and `LOADED`.
static MANAGER: Mutex<Manager> = Mutex::new(Manager {
    paths: SearchPaths { custom: BTreeSet::new(), absolute: false },
    heuristic_paths: SearchPaths { custom: BTreeSet::new(), absolute: false },
    eager: false,
    kept: None,
    current: Weak::new(),
});

/// The set whose plugins follow the log level; apart from the manager, so that a log callback can set the level while
/// plugins are being loaded.
static LOADED: Mutex<Weak<PluginSet>> = Mutex::new(Weak::new());

thread_local! {
    /// True while this thread is loading plugins: a log callback that it runs must not wait for the manager.
    static LOADING: Cell<bool> = const { Cell::new(false) };
}

fn manager() -> Result<MutexGuard<'static, Manager>> {
    if LOADING.get() {
        return Err(Error::not_supported("a log callback came back while plugins are being loaded"));
    }
    Ok(MANAGER.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The plugins of the present search paths, loaded if they are not yet.
pub(crate) fn acquire() -> Result<Arc<PluginSet>> {
    let mut manager = manager()?;
    if let Some(set) = manager.current.upgrade() {
        return Ok(set);
    }
    LOADING.set(true);
    // A panic leaves the flag to the next line as well: it must not outlive the loading.
    let loaded = catch_unwind(AssertUnwindSafe(|| load(&manager.paths, &manager.heuristic_paths)));
    LOADING.set(false);
    let set = Arc::new(loaded.unwrap_or_else(|panic| resume_unwind(panic)));
    manager.current = Arc::downgrade(&set);
    *LOADED.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&set);
    if !manager.eager {
        manager.kept = Some(Arc::clone(&set));
    }
    Ok(set)
}

fn load(paths: &SearchPaths, heuristic_paths: &SearchPaths) -> PluginSet {
    let directory = library_directory();
    let environment = search::ENGINES.environment();
    let files = paths.files(&search::ENGINES, environment.as_deref(), &directory);
    let mut taken = HashMap::new();
    let mut plugins = Vec::new();
    let mut failures = 0;
    for file in &files {
        match Plugin::load(file, &mut taken) {
            Ok(plugin) => {
                let names: Vec<&str> = plugin.engines.iter().map(|engine| engine.name.as_str()).collect();
                log::info!(
                    "plugin {} {} loaded from {}: {}",
                    plugin.name,
                    plugin.version,
                    file.display(),
                    names.join(", ")
                );
                plugins.push(plugin);
            }
            Err(reason) => {
                failures += 1;
                not_loaded(file, &reason);
            }
        }
    }
    if failures > 0 {
        log::warning!("{failures} of {} plugins could not be loaded", files.len());
    }
    if plugins.is_empty() {
        log::warning!(
            "no engine plugin: library directory {}, HIPDNN_PLUGIN_DIR {:?}, paths set {:?}",
            directory.display(),
            environment.unwrap_or_default(),
            paths.custom
        );
    }
    let owner = plugins
        .iter()
        .enumerate()
        .flat_map(|(index, plugin)| plugin.engines.iter().map(move |engine| (engine.id, index)))
        .collect();
    PluginSet { plugins, owner, heuristics: load_heuristics(heuristic_paths, &directory) }
}

fn load_heuristics(paths: &SearchPaths, directory: &Path) -> Vec<HeuristicPlugin> {
    let files = paths.files(&search::HEURISTICS, search::HEURISTICS.environment().as_deref(), directory);
    let mut taken = policy::built_in();
    let mut plugins = Vec::new();
    for file in &files {
        match HeuristicPlugin::load(file, &mut taken) {
            Ok(plugin) => {
                let names: Vec<&str> = plugin.policies.iter().map(|policy| policy.name.as_str()).collect();
                let (name, version) = (&plugin.name, &plugin.version);
                log::info!("plugin {name} {version} loaded from {}: {}", file.display(), names.join(", "));
                plugins.push(plugin);
            }
            Err(reason) => not_loaded(file, &reason),
        }
    }
    plugins
}

/// Tells that a plugin is absent, and why. The call succeeds all the same: its last error is what a client sees of it.
fn not_loaded(file: &Path, reason: &str) {
    let message = format!("plugin {} not loaded: {reason}", file.display());
    log::error!("{message}");
    last_error::set(&message);
}

/// Sets or extends the search paths of a kind of plugins. `live` tells whether a handle exists: then only a call without
/// effect is taken.
pub(crate) fn set_paths(kind: Kind, paths: Vec<PathBuf>, absolute: bool, live: impl FnOnce() -> bool) -> Result<()> {
    let dropped = {
        let mut manager = manager()?;
        let present = match kind {
            Kind::Engines => &mut manager.paths,
            Kind::Heuristics => &mut manager.heuristic_paths,
        };
        let mut custom = if absolute { BTreeSet::new() } else { present.custom.clone() };
        custom.extend(paths);
        let wanted = SearchPaths { custom, absolute };
        if wanted == *present {
            return Ok(());
        }
        if live() {
            return Err(Error::not_supported("plugin paths cannot change while a handle exists"));
        }
        *present = wanted;
        manager.current = Weak::new();
        manager.kept.take()
    };
    // Unloading runs foreign finalizers: not with the lock held.
    drop(dropped);
    Ok(())
}

/// Chooses between unloading with the last handle and keeping plugins for the next one.
pub(crate) fn set_eager(eager: bool) -> Result<()> {
    let dropped = {
        let mut manager = manager()?;
        manager.eager = eager;
        if eager {
            manager.kept.take()
        } else {
            manager.kept = manager.current.upgrade();
            None
        }
    };
    drop(dropped);
    Ok(())
}

/// Passes the log level to the loaded plugins.
pub(crate) fn set_log_level(level: Severity) {
    let set = LOADED.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
    for plugin in set.iter().flat_map(|set| &set.plugins) {
        plugin.set_log_level(level);
    }
    for plugin in set.iter().flat_map(|set| &set.heuristics) {
        plugin.set_log_level(level);
    }
}

/// Unloads kept plugins; this library is about to be unloaded itself.
pub(crate) fn shut_down() {
    if let Ok(mut manager) = MANAGER.try_lock() {
        let kept = manager.kept.take();
        manager.paths = SearchPaths::default();
        manager.heuristic_paths = SearchPaths::default();
        manager.current = Weak::new();
        drop(manager);
        drop(kept);
    }
    if let Ok(mut loaded) = LOADED.try_lock() {
        *loaded = Weak::new();
    }
}
