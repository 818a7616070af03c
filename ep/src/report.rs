//! The claim report: JSON lines that say of each node who runs it and why.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use hipdnn_ep_compiler::model::{Extent, Model};

use crate::claim::Claims;
use crate::error::Error;
use crate::log::Logger;

/// A report file; lines are appended.
pub(crate) struct Report {
    file: Mutex<File>,
    path: String,
    logger: Logger,
}

/// The first line of a session: with what it works.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Session<'a> {
    /// The provider's name.
    pub provider: &'a str,
    /// The provider's version.
    pub version: &'a str,
    /// The runtime's version.
    pub onnxruntime: &'a str,
    /// The backend library's file.
    pub backend: Option<String>,
    /// The backend library's version.
    pub backend_version: Option<String>,
    /// The backend's engines.
    pub engines: Vec<String>,
    /// The GPU whose memory tensors are in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Reason for there being no backend.
    pub reason: Option<String>,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Entry {
    /// The node's name; for one without, that of its first output.
    pub node: String,
    /// The operator.
    pub op: String,
    /// The operator's domain.
    pub domain: String,
    /// The operator set version that the operator dates from.
    pub since_version: i32,
    /// Path of the node's graph: names of graphs, and of nodes that have graphs, from the outermost.
    pub graph: String,
    /// True if this provider runs the node.
    pub claimed: bool,
    /// The engine that does.
    pub engine: Option<String>,
    /// Bytes of arena and workspace; where extents are free, for assumed ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) workspace: Option<usize>,
    /// Reason for leaving the node to another provider.
    pub reason: Option<String>,
    /// Extents of the node's input, null where unknown; left out if not even their number is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<Option<i64>>>,
    /// The first of the nodes that are computed together with this one, which may be this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Steps of the group's program that compute the node; none where it is a view.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<usize>,
}

/// The lines of a graph's nodes.
pub(crate) fn entries(model: &Model, graph: &str, claims: &Claims) -> Vec<Entry> {
    let mut entries: Vec<Entry> = model
        .nodes
        .iter()
        .zip(&claims.reasons)
        .map(|(node, reason)| {
            let input = node.inputs.iter().flatten().next().map(|input| &model.values[*input]);
            let shape = input.and_then(|input| input.shape.as_ref());
            Entry {
                node: node.label.clone(),
                op: node.op_type.clone(),
                domain: node.domain.clone(),
                since_version: node.since_version,
                graph: graph.to_string(),
                claimed: reason.is_none(),
                reason: reason.clone(),
                shape: shape.map(|shape| {
                    let known = |extent: &Extent| match extent {
                        Extent::Known(extent) => Some(*extent),
                        Extent::Symbol(_) => None,
                    };
                    shape.iter().map(known).collect()
                }),
                ..Entry::default()
            }
        })
        .collect();
    for partition in &claims.partitions {
        let first = model.nodes[partition.nodes[0]].label.clone();
        for node in &partition.nodes {
            entries[*node].group = Some(first.clone());
            entries[*node].workspace = Some(partition.program.arena() + partition.program.workspace());
        }
        for (number, step) in partition.program.steps.iter().enumerate() {
            for node in &step.nodes {
                entries[*node].engine.get_or_insert_with(|| step.engine().to_string());
                entries[*node].steps.push(number);
            }
        }
    }
    entries
}

impl Report {
    /// Opens or makes the file.
    ///
    /// # Errors
    /// If that fails.
    pub(crate) fn open(path: &Path, logger: Logger) -> Result<Report, Error> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        let file = file.map_err(|error| Error::invalid(format!("the report {}: {error}", path.display())))?;
        Ok(Report { file: Mutex::new(file), path: path.display().to_string(), logger })
    }

    /// Appends lines, in one piece. If that fails, the log says so: no session fails for what is only to be looked at.
    pub(crate) fn append<T: Serialize>(&self, lines: &[T]) {
        if let Err(error) = self.try_append(lines) {
            self.logger.warning(|| format!("{}: the report {} is not written: {error}", crate::NAME_TEXT, self.path));
        }
    }

    fn try_append<T: Serialize>(&self, lines: &[T]) -> std::io::Result<()> {
        let mut text = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut text, line)?;
            text.push(b'\n');
        }
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&text)?;
        file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let claimed = Entry {
            node: "conv1".into(),
            op: "Conv".into(),
            since_version: 11,
            graph: "main".into(),
            claimed: true,
            engine: Some("E".into()),
            shape: Some(vec![None, Some(3)]),
            ..Entry::default()
        };
        assert_eq!(
            serde_json::to_string(&claimed).unwrap(),
            "{\"node\":\"conv1\",\"op\":\"Conv\",\"domain\":\"\",\"since_version\":11,\"graph\":\"main\",\
             \"claimed\":true,\"engine\":\"E\",\"reason\":null,\"shape\":[null,3]}"
        );
    }

    #[test]
    fn sessions_append_to_one_file() {
        let path = std::env::temp_dir().join(format!("hipdnn-rs-report-{}.jsonl", std::process::id()));
        for node in ["a", "b"] {
            let entry = Entry { node: node.into(), ..Entry::default() };
            Report::open(&path, Logger::none()).unwrap().append(&[entry]);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let nodes: Vec<_> =
            text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["node"].clone()).collect();
        assert_eq!(nodes, ["a", "b"]);
        let error = Report::open(Path::new("/nonexistent/report"), Logger::none()).map(|_| ()).unwrap_err();
        assert!(error.message.starts_with("the report /nonexistent/report: "), "{error}");
    }
}
