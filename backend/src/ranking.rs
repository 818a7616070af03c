//! The rankings of engines that clients have measured, kept on disk by graph and device: what hipDNN calls its cache of
//! exact matches. The policy `SelectionHeuristic::Config` ranks by them.
//!
//! A record is hipDNN's: a line of JSON with the engines that were measured and their order. The key is our own, since
//! hipDNN's is made by generated code, so the records are in a folder of their own.

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use hipdnn_schemas::{DeviceProperties, GraphDef};
use hipdnn_sdk_bindings::hipdnn::backend::AutotuneCacheWriteOutcome as Outcome;
use serde_json::{Value, json};

use crate::descriptor::Graph;
use crate::plugins::Resources;
use crate::{device, log};

/// The records' folder, below hipDNN's cache folder. The name changes with the form of keys and records.
const FOLDER: &str = "autotune-rankings/hipdnn-rs-1";

/// Maximum size of a record, in bytes: a larger file is none of ours.
const MAX_RECORD: u64 = 1 << 20;

/// Stores the order of engines, fastest first, for the graph on the handle's device. A cache that can't be written is no
/// error for a client, who has tuned already.
pub(crate) fn write(resources: &Resources, graph: &Graph, order: &[i64]) -> Outcome {
    let Some(folder) = folder() else { return Outcome::DECLINED_DISABLED };
    let Ok(graph) = graph.referred() else { return Outcome::DECLINED_UNKEYABLE_OR_UNFINALIZED };
    if order.is_empty() {
        return Outcome::DECLINED_NO_ENGINES;
    }
    let key = key(&graph.def, &device::properties(resources.stream()));
    let path = folder.join(format!("{key}.jsonl"));
    // One that measured a part of the engines does not replace one that measured them all.
    if let Some(known) = read(&path, &key)
        && (known == order || (order.len() < known.len() && order.iter().all(|id| known.contains(id))))
    {
        return Outcome::UNCHANGED;
    }
    let record = json!({ "key": key, "sampledEngineIds": order, "order": order });
    match replace(&folder, &path, &format!("{record}\n")) {
        Ok(()) => Outcome::WRITTEN,
        Err(error) => {
            log::warning!("the ranking of engines is not kept: {}: {error}", path.display());
            Outcome::DECLINED_DISABLED
        }
    }
}

/// The candidates in the order that was measured for the graph on the handle's device, if each of them was.
pub(crate) fn look_up(resources: &Resources, graph: &GraphDef, candidates: &[i64]) -> Option<Vec<i64>> {
    // Where nobody has tuned the device is not asked for its facts.
    let folder = folder().filter(|folder| folder.is_dir())?;
    let key = key(graph, &device::properties(resources.stream()));
    let Some(order) = read(&folder.join(format!("{key}.jsonl")), &key) else {
        log::info!("exact-match cache miss: no ranking of engines has key {key}");
        return None;
    };
    if let Some(unmeasured) = candidates.iter().find(|id| !order.contains(id)) {
        log::info!("exact-match cache miss: the ranking with key {key} lacks engine {unmeasured}");
        return None;
    }
    log::info!("exact-match cache hit: key {key}");
    Some(order.into_iter().filter(|id| candidates.contains(id)).collect())
}

/// Cache key of a ranking: a graph's content, and the device without its number.
fn key(graph: &GraphDef, device: &DeviceProperties) -> String {
    let mut hasher = blake3::Hasher::new();
    let on_host = device.device_id == device::HOST;
    // The host's memory is what the kernel leaves of it, which changes; its architecture is of many instruction sets.
    let total_global_mem = if on_host { 0 } else { device.total_global_mem };
    let instructions = if on_host { device::instruction_set() } else { "" };
    let device = DeviceProperties { device_id: 0, total_global_mem, ..device.clone() }.to_bytes();
    // Each part with its length: nothing of one can pass for the other's.
    for part in [graph.content(), device, instructions.into()] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(&part);
    }
    hasher.finalize().to_hex().to_string()
}

/// The folder of the records; none where the environment disables it or names no place.
fn folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    // hipDNN's words: any other value leaves the cache on.
    let disables = |value: OsString| {
        let word = value.to_string_lossy().trim().to_ascii_lowercase();
        ["1", "true", "on", "yes", "enable", "enabled"].contains(&word.as_str())
    };
    if set("HIPDNN_DISABLE_CACHE").is_some_and(disables)
        || set("HIPDNN_DISABLE_EXACT_ENGINE_CACHE").is_some_and(disables)
    {
        return None;
    }
    let home = || set("HOME").map(|home| Path::new(&home).join(".cache/hipdnn"));
    set("HIPDNN_CACHE_DIR").map(PathBuf::from).or_else(home).map(|root| root.join(FOLDER))
}

/// The order of a record; none if there is no record, or it is damaged or another's.
fn read(path: &Path, key: &str) -> Option<Vec<i64>> {
    let metadata = path.metadata().ok()?;
    // Opening a pipe of that name would wait for its writer.
    if !metadata.is_file() || metadata.len() > MAX_RECORD {
        return None;
    }
    let text = std::fs::read_to_string(path).ok()?;
    // A later line replaces earlier ones.
    text.lines().rev().find_map(|line| order(line, key))
}

fn order(line: &str, key: &str) -> Option<Vec<i64>> {
    let record: Value = serde_json::from_str(line).ok()?;
    if record.get("key")?.as_str()? != key {
        return None;
    }
    let mut order = record.get("order")?.as_array()?.iter().map(Value::as_i64).collect::<Option<Vec<i64>>>()?;
    // An engine counts where it comes first.
    let mut seen = std::collections::HashSet::new();
    order.retain(|id| seen.insert(*id));
    (!order.is_empty()).then_some(order)
}

/// Replaces a record: another process reads the old one or the new one.
fn replace(folder: &Path, path: &Path, text: &str) -> std::io::Result<()> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let new = path.with_extension(format!("{}-{call}.new", std::process::id()));
    let written = File::options().write(true).create_new(true).mode(0o600).open(&new).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.and_then(|()| std::fs::rename(&new, path)).inspect_err(|_| {
        let _ = std::fs::remove_file(&new);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hipdnn_schemas::{DataType, GraphBuilder, Pointwise, PointwiseMode, TensorDef};

    #[test]
    fn keys_are_of_content_and_device() {
        let graph = |extent| {
            let mut graph = GraphBuilder::new("g").compute(DataType::Float);
            let [x, y] = [1, 2].map(|uid| graph.tensor(TensorDef::new(uid, DataType::Float, &[extent])));
            graph.pointwise(Pointwise::unary(PointwiseMode::Abs, x, y));
            graph.build().unwrap().def()
        };
        let device_of = |id, architecture: &str| DeviceProperties {
            device_id: id,
            multi_processor_count: 4,
            total_global_mem: 8,
            architecture_name: architecture.to_owned(),
        };
        let one = key(&graph(4), &device_of(0, "gfx90a"));
        assert_eq!(one, key(&graph(4), &device_of(1, "gfx90a")), "the number of a device says nothing of it");
        assert_ne!(one, key(&graph(5), &device_of(0, "gfx90a")));
        assert_ne!(one, key(&graph(4), &device_of(0, "gfx942")));
        let host = device_of(device::HOST, "x86_64");
        let less = DeviceProperties { total_global_mem: 7, ..host.clone() };
        assert_eq!(key(&graph(4), &host), key(&graph(4), &less), "a host's memory says nothing of its kernels");
    }

    #[test]
    fn records_are_read_with_suspicion() {
        for (line, want) in [
            (r#"{"key":"k","sampledEngineIds":[2,1],"order":[2,1]}"#, Some(vec![2, 1])),
            (r#"{"key":"k","order":[2,1,2]}"#, Some(vec![2, 1])),
            (r#"{"key":"other","order":[2,1]}"#, None),
            (r#"{"key":"k","order":[]}"#, None),
            (r#"{"key":"k","order":[2,"1"]}"#, None),
            (r#"{"key":"k","order":[2.5]}"#, None),
            (r#"{"key":"k""#, None),
            ("", None),
        ] {
            assert_eq!(order(line, "k"), want, "{line}");
        }
    }
}
