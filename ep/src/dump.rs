//! The graphs that nodes become, as files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::error::Error;
use crate::log::Logger;

/// A directory for graphs.
pub(crate) struct Dump {
    directory: PathBuf,
    logger: Logger,
    /// The hash of the graph behind each file name of this session: two nodes of one name must not share a file.
    written: Mutex<HashMap<String, u128>>,
}

/// What every file name ends with.
const SUFFIX: &str = ".hipdnn.bin";

/// File systems take names of 255 bytes.
const LONGEST_NAME: usize = 160;

impl Dump {
    /// Makes the directory if there is none.
    ///
    /// # Errors
    /// If that fails.
    pub(crate) fn open(directory: &Path, logger: Logger) -> Result<Dump, Error> {
        let made = std::fs::create_dir_all(directory);
        made.map_err(|error| Error::invalid(format!("the directory for graphs {}: {error}", directory.display())))?;
        Ok(Dump { directory: directory.to_path_buf(), logger, written: Mutex::default() })
    }

    /// Writes the graph of a node; `extents` are those of its input where the model leaves them open. If that fails, the
    /// log says so: no run fails for what is only to be looked at.
    pub(crate) fn write(&self, node: &str, extents: Option<&[i64]>, graph: &[u8]) {
        let path = self.directory.join(self.name(node, extents, graph));
        if let Err(error) = std::fs::write(&path, graph) {
            self.logger
                .warning(|| format!("{}: the graph {} is not written: {error}", crate::NAME_TEXT, path.display()));
        }
    }

    fn name(&self, node: &str, extents: Option<&[i64]>, graph: &[u8]) -> String {
        let mut stem = file_name(node);
        if let Some(extents) = extents {
            let extents: Vec<String> = extents.iter().map(i64::to_string).collect();
            stem = format!("{stem}.{}", extents.join("x"));
        }
        let hash = xxhash_rust::xxh3::xxh3_128(graph);
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let mut name = format!("{stem}{SUFFIX}");
        let mut turn = 2;
        while written.get(&name).is_some_and(|other| *other != hash) {
            name = format!("{stem}-{turn}{SUFFIX}");
            turn += 1;
        }
        written.insert(name.clone(), hash);
        name
    }
}

/// A node's name without what has a meaning in paths.
fn file_name(node: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = node.trim_start_matches(['/', '.']).chars().map(plain).take(LONGEST_NAME).collect();
    if name.is_empty() { "node".to_string() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nodes_are_names_of_files() {
        let long = "n".repeat(1000);
        for (node, want) in [
            ("conv1", "conv1"),
            ("/model/layer.0/Conv", "model_layer.0_Conv"),
            ("../../etc/passwd", "etc_passwd"),
            ("a b\n\0é", "a_b___"),
            ("", "node"),
            ("..", "node"),
            (long.as_str(), &long[..LONGEST_NAME]),
        ] {
            assert_eq!(file_name(node), want, "{node:?}");
        }
    }

    #[test]
    fn every_graph_has_its_file() {
        let directory = std::env::temp_dir().join(format!("hipdnn-rs-dump-{}/below", std::process::id()));
        let dump = Dump::open(&directory, Logger::none()).unwrap();
        for (node, extents, graph) in [
            ("conv", None, "one"),
            ("conv", None, "other"),
            ("conv", None, "one"),
            ("conv", Some(&[1, 3, 8][..]), "third"),
        ] {
            dump.write(node, extents, graph.as_bytes());
        }
        let mut files: Vec<(String, String)> = directory
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, std::fs::read_to_string(entry.path()).unwrap())
            })
            .collect();
        files.sort();
        std::fs::remove_dir_all(directory.parent().unwrap()).unwrap();
        let files: Vec<_> = files.iter().map(|(name, graph)| (name.as_str(), graph.as_str())).collect();
        let want = [("conv-2.hipdnn.bin", "other"), ("conv.1x3x8.hipdnn.bin", "third"), ("conv.hipdnn.bin", "one")];
        assert_eq!(files, want);
        let error = Dump::open(Path::new("/dev/null/graphs"), Logger::none()).map(|_| ()).unwrap_err();
        assert!(error.message.starts_with("the directory for graphs /dev/null/graphs: "), "{error}");
    }
}
