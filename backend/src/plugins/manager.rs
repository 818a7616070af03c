//! Plugins that this process has loaded.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hipdnn_sdk_bindings::hipdnn::plugin::Severity;

use super::loaded::Plugin;
use super::search::{SearchPaths, library_directory};
use crate::error::{Error, Result};
use crate::{last_error, log};

/// The plugins that one search found, in the order of their paths.
pub(crate) struct PluginSet {
    pub(crate) plugins: Vec<Plugin>,
    /// Engine id to index of its plugin.
    pub(crate) owner: HashMap<i64, usize>,
}

struct Manager {
    paths: SearchPaths,
    /// Unload as soon as the last handle goes.
    eager: bool,
    /// Keeps the set between handles, unless eager.
    kept: Option<Arc<PluginSet>>,
    current: Weak<PluginSet>,
}

// Plugins are loaded with this lock held, and may log on the way: see `LOADING` and `LOADED`.
static MANAGER: Mutex<Manager> = Mutex::new(Manager {
    paths: SearchPaths { custom: BTreeSet::new(), absolute: false },
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
    let loaded = catch_unwind(AssertUnwindSafe(|| load(&manager.paths)));
    LOADING.set(false);
    let set = Arc::new(loaded.unwrap_or_else(|panic| resume_unwind(panic)));
    manager.current = Arc::downgrade(&set);
    *LOADED.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&set);
    if !manager.eager {
        manager.kept = Some(Arc::clone(&set));
    }
    Ok(set)
}

fn load(paths: &SearchPaths) -> PluginSet {
    let directory = library_directory();
    let environment = std::env::var_os("HIPDNN_PLUGIN_DIR");
    let files = paths.files(environment.as_deref(), &directory);
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
                let message = format!("plugin {} not loaded: {reason}", file.display());
                log::error!("{message}");
                // The call succeeds all the same: its last error is what tells a client why an engine is absent.
                last_error::set(&message);
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
    PluginSet { plugins, owner }
}

/// Sets or extends the search paths. `live` tells whether a handle exists: then only a call without effect is taken.
pub(crate) fn set_paths(paths: Vec<PathBuf>, absolute: bool, live: impl FnOnce() -> bool) -> Result<()> {
    let dropped = {
        let mut manager = manager()?;
        let mut custom = if absolute { BTreeSet::new() } else { manager.paths.custom.clone() };
        custom.extend(paths);
        let wanted = SearchPaths { custom, absolute };
        if wanted == manager.paths {
            return Ok(());
        }
        if live() {
            return Err(Error::not_supported("plugin paths cannot change while a handle exists"));
        }
        manager.paths = wanted;
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
}

/// Unloads kept plugins; this library is about to be unloaded itself.
pub(crate) fn shut_down() {
    if let Ok(mut manager) = MANAGER.try_lock() {
        let kept = manager.kept.take();
        manager.paths = SearchPaths::default();
        manager.current = Weak::new();
        drop(manager);
        drop(kept);
    }
    if let Ok(mut loaded) = LOADED.try_lock() {
        *loaded = Weak::new();
    }
}
