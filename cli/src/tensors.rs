//! Input tensors of a run: seeded, or read from files.

use std::collections::HashMap;
use std::path::Path;

use hipdnn_conformance::inputs;
use hipdnn_conformance::run::outputs;
use hipdnn_schemas::{Graph, Tensor, TensorUid};

use crate::compare::Outputs;
use crate::{content, npy, text};

/// The bytes of every tensor that a run needs: from `UID=FILE` texts, the rest seeded.
///
/// # Errors
/// If a file does not fit its tensor, or there is no such input.
pub(crate) fn inputs(graph: &Graph, seed: u64, given: &[String]) -> Result<HashMap<TensorUid, Vec<u8>>, String> {
    let mut tensors = inputs::generate(graph, seed, &HashMap::new());
    for text in given {
        let (name, file) = text.split_once('=').ok_or_else(|| format!("--input: expected UID=FILE, got {text:?}"))?;
        let tensor = find(graph, name)?;
        let bytes = content::read(Path::new(file))?;
        let is_npy = Path::new(file).extension().is_some_and(|extension| extension == "npy");
        let memory = if is_npy { npy::decode(tensor, &bytes) } else { raw(tensor, bytes) };
        tensors.insert(tensor.uid(), memory.map_err(|problem| format!("{file}: {problem}"))?);
    }
    Ok(tensors)
}

/// The input of that uid or name.
fn find<'a>(graph: &'a Graph, name: &str) -> Result<&'a Tensor, String> {
    let is_it = |tensor: &&Tensor| tensor.uid().to_string() == name || (!name.is_empty() && tensor.name() == name);
    inputs::needed(graph).find(is_it).ok_or_else(|| {
        let known: Vec<String> = inputs::needed(graph).map(|tensor| tensor.uid().to_string()).collect();
        format!("--input: the graph has no input {name:?}; its inputs are {}", known.join(", "))
    })
}

/// The memory as it is, from the first to the last element.
fn raw(tensor: &Tensor, bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    let wanted = tensor.span_bytes();
    if bytes.len() == wanted {
        return Ok(bytes);
    }
    Err(format!(
        "tensor {}: expected {wanted} bytes from its first to its last element, got {}",
        tensor.uid(),
        bytes.len()
    ))
}

/// Writes tensors as `<prefix>.<uid>.npy`.
///
/// # Errors
/// If a file can't be written.
pub(crate) fn save(directory: &Path, prefix: &str, graph: &Graph, tensors: &Outputs) -> Result<(), String> {
    let explain = |path: &Path, problem: std::io::Error| format!("{}: {problem}", path.display());
    std::fs::create_dir_all(directory).map_err(|problem| explain(directory, problem))?;
    for (uid, bytes) in tensors {
        // Names of engines may come from a plugin.
        let safe: String =
            prefix.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect();
        let path = directory.join(format!("{safe}.{uid}.npy"));
        std::fs::write(&path, npy::encode(graph.tensor(*uid), bytes)).map_err(|problem| explain(&path, problem))?;
    }
    Ok(())
}

/// Refuses graphs whose tensors don't fit in memory, before the system finds out. `copies` is how often a run holds them.
///
/// # Errors
/// If they don't; the message names the largest tensor.
pub(crate) fn check_size(graph: &Graph, copies: u128) -> Result<(), String> {
    let Some(available) = available_memory() else { return Ok(()) };
    fits(graph, copies, available)
}

fn fits(graph: &Graph, copies: u128, available: u128) -> Result<(), String> {
    let tensors: Vec<&Tensor> = inputs::needed(graph).chain(outputs(graph)).collect();
    // Where strides are 0, elements count, not bytes: a run walks over them.
    let bits = |tensor: &Tensor| u128::from(tensor.data_type().bits().unwrap_or(0));
    let size = |tensor: &Tensor| (tensor.elements() as u128 * bits(tensor) / 8).max(tensor.span_bytes() as u128);
    let wanted = copies * tensors.iter().map(|tensor| size(tensor)).sum::<u128>();
    let largest = tensors.into_iter().max_by_key(|tensor| size(tensor));
    match largest {
        Some(largest) if wanted > available => Err(format!(
            "expected {} of free memory for a run, got {}; the largest tensor is {} with {}",
            text::bytes(wanted),
            text::bytes(available),
            largest.uid(),
            text::bytes(size(largest))
        )),
        _ => Ok(()),
    }
}

/// Available memory in bytes, according to the system.
fn available_memory() -> Option<u128> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u128>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use hipdnn_schemas::{DataType, GraphBuilder, Pointwise, PointwiseMode, TensorDef};

    use super::*;

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut builder = GraphBuilder::new("").compute(DataType::Float);
        let x = builder.tensor(TensorDef::new(1, DataType::Float, &[1 << 10]).named("x"));
        let y = builder.tensor(TensorDef::new(7, DataType::Double, &[1 << 10]));
        builder.pointwise(Pointwise::unary(PointwiseMode::Identity, x, y));
        let graph = builder.build().expect("a graph");
        assert_eq!(fits(&graph, 2, 24 << 10), Ok(()));
        let problem = fits(&graph, 2, 23 << 10).unwrap_err();
        assert_eq!(
            problem,
            "expected 24.0 KiB of free memory for a run, got 23.0 KiB; the largest tensor is 7 with 8.0 KiB"
        );
        assert!(available_memory().is_some_and(|bytes| bytes > 1 << 20));
        for name in ["1", "x"] {
            assert_eq!(find(&graph, name).map(|tensor| tensor.uid()), Ok(x));
        }
        for name in ["7", "", "y"] {
            let problem = find(&graph, name).map(|tensor| tensor.uid()).unwrap_err();
            assert!(problem.ends_with("its inputs are 1"), "{problem}");
        }
        let problem = raw(graph.tensor(x), vec![0; 5]).unwrap_err();
        assert_eq!(problem, "tensor 1: expected 4096 bytes from its first to its last element, got 5");
    }
}
