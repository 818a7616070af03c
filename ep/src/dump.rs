//! Dumps: graphs and stages of programs, as files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::error::Error;
use crate::log::Logger;

/// Content of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// hipDNN graphs in their wire format.
    Graphs,
    /// Stages of programs as MLIR text.
    Stages,
}

impl Content {
    /// For messages.
    const fn noun(self) -> &'static str {
        match self {
            Content::Graphs => "graph",
            Content::Stages => "stage",
        }
    }

    /// Suffix of file names.
    const fn suffix(self) -> &'static str {
        match self {
            Content::Graphs => ".hipdnn.bin",
            Content::Stages => ".mlir",
        }
    }
}

/// A directory for graphs or stages.
pub(crate) struct Dump {
    directory: PathBuf,
    content: Content,
    logger: Logger,
    /// The hash of what is behind each file name of this session: two nodes of one name must not share a file.
    written: Mutex<HashMap<String, u128>>,
}

/// File systems take names of 255 bytes.
const LONGEST_NAME: usize = 160;

/// Most characters of extents in a file's name.
const LONGEST_EXTENTS: usize = 64;

impl Dump {
    /// Makes the directory if there is none.
    ///
    /// # Errors
    /// If that fails.
    pub(crate) fn open(directory: &Path, content: Content, logger: Logger) -> Result<Dump, Error> {
        let made = std::fs::create_dir_all(directory);
        made.map_err(|error| {
            Error::invalid(format!("the directory for {}s {}: {error}", content.noun(), directory.display()))
        })?;
        Ok(Dump { directory: directory.to_path_buf(), content, logger, written: Mutex::default() })
    }

    /// Writes a graph of a node, or a stage of the program that begins with it; `extents` are those of inputs where the
    /// model leaves them open. If that fails, the log says so: no run fails for what is only to be looked at.
    pub(crate) fn write(&self, node: &str, extents: Option<&[i64]>, stage: Option<&str>, content: &[u8]) {
        let path = self.directory.join(self.name(node, extents, stage, content));
        if let Err(error) = std::fs::write(&path, content) {
            self.warning(&format!("{} is not written: {error}", path.display()));
        }
    }

    /// Logs what is wrong with a graph or stage.
    pub(crate) fn warning(&self, problem: &str) {
        self.logger.warning(|| format!("{}: the {} {problem}", crate::NAME_TEXT, self.content.noun()));
    }

    fn name(&self, node: &str, extents: Option<&[i64]>, stage: Option<&str>, content: &[u8]) -> String {
        let suffix = self.content.suffix();
        let mut stem = file_name(node);
        if let Some(extents) = extents {
            stem = format!("{stem}.{}", extents_name(extents));
        }
        if let Some(stage) = stage {
            stem = format!("{stem}.{stage}");
        }
        let hash = xxhash_rust::xxh3::xxh3_128(content);
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let mut name = format!("{stem}{suffix}");
        let mut turn = 2;
        while written.get(&name).is_some_and(|other| *other != hash) {
            name = format!("{stem}-{turn}{suffix}");
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

/// Extents in a file's name: a hash of them where they are many.
fn extents_name(extents: &[i64]) -> String {
    let name = extents.iter().map(i64::to_string).collect::<Vec<_>>().join("x");
    if name.len() <= LONGEST_EXTENTS {
        return name;
    }
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64(name.as_bytes()))
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
        let dump = Dump::open(&directory, Content::Graphs, Logger::none()).unwrap();
        for (node, extents, graph) in [
            ("conv", None, "one"),
            ("conv", None, "other"),
            ("conv", None, "one"),
            ("conv", Some(&[1, 3, 8][..]), "third"),
        ] {
            dump.write(node, extents, None, graph.as_bytes());
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
        let extents: Vec<i64> = (100..150).collect();
        let name = dump.name(&"n".repeat(1000), Some(&extents), Some("3-executables"), b"");
        assert!(name.len() < 255 && name.ends_with(".3-executables.hipdnn.bin"), "{name}");
        for content in [Content::Graphs, Content::Stages] {
            let error = Dump::open(Path::new("/dev/null/x"), content, Logger::none()).map(|_| ()).unwrap_err();
            let start = format!("the directory for {}s /dev/null/x: ", content.noun());
            assert!(error.message.starts_with(&start), "{error}");
        }
    }
}
