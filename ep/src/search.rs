//! Search for the backend library and the engine plugins.

use std::path::{Path, PathBuf};

pub(crate) use hipdnn_client::search::Environment;
use hipdnn_client::search::{self, PLUGIN_NAME};

use crate::options::Options;

/// The candidates for the backend library, in the order of trying, and whether somebody named it: then a failure is an
/// error, not a reason to go on without.
pub(crate) fn backend_candidates(options: &Options, surroundings: &Environment) -> (Vec<PathBuf>, bool) {
    search::backend_candidates(options.backend.as_deref(), surroundings)
}

/// Plugins that the backend is told to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plugins {
    /// These and no others.
    Only(PathBuf),
    /// Plugins that the backend finds by itself, and if none of them serves host memory, this one, too.
    Default(Option<PathBuf>),
}

/// The choice of plugins.
pub(crate) fn plugins(options: &Options, surroundings: &Environment) -> Plugins {
    if let Some(path) = &options.plugin_dir {
        return Plugins::Only(absolute(path));
    }
    if surroundings.plugin_directory.is_some() {
        return Plugins::Default(None);
    }
    Plugins::Default(surroundings.beside.as_ref().map(|directory| directory.join(PLUGIN_NAME)).filter(|p| p.is_file()))
}

/// The backend takes relative paths as relative to itself; users mean the working directory.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_named_or_default() {
        let surroundings = Environment { plugin_directory: Some("/env".into()), ..Environment::default() };
        assert_eq!(plugins(&Options::default(), &surroundings), Plugins::Default(None));
        let options = Options { plugin_dir: Some("/p".into()), ..Options::default() };
        assert_eq!(plugins(&options, &surroundings), Plugins::Only("/p".into()));
        let nothing_there = Environment { beside: Some("/nonexistent".into()), ..Environment::default() };
        assert_eq!(plugins(&Options::default(), &nothing_there), Plugins::Default(None));
    }
}
