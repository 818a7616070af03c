//! EPContext nodes: how a compiled partition is part of an ONNX model.
//!
//! A node has the inputs and outputs of the partition, weights among them, and a payload ([`crate::compiled`]) that is
//! embedded, in a file beside the model, or in the application's own storage ([`crate::storage`]).

use std::ffi::{CString, c_char};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use hipdnn_ep_compiler::model;
use hipdnn_sdk_bindings::ort::{self, ModelEditorApi, OpAttr, OpAttrType};

use crate::error::Error;
use crate::graph::{Graph, Node, ValueInfo};
use crate::runtime::Runtime;
use crate::storage::Storage;

/// The operator and its domain.
const OPERATOR: &str = "EPContext";
const DOMAIN: &str = "com.microsoft";

/// Compiled model that a session is asked for by ONNX Runtime's own options.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Request {
    /// `ep.context_enable`: a model of EPContext nodes is wanted.
    pub enable: bool,
    /// `ep.context_file_path`: where that model goes, or where one that was loaded from memory came from.
    pub file: Option<PathBuf>,
    /// `ep.context_embed_mode`: payloads are in the nodes, not in files.
    pub embed: bool,
}

impl Request {
    /// Takes note of an entry of the session's configuration, if it is one of these.
    pub(crate) fn read(&mut self, key: &str, value: &str) {
        match key {
            "ep.context_enable" => self.enable = value == "1",
            "ep.context_file_path" => self.file = (!value.is_empty()).then(|| PathBuf::from(value)),
            "ep.context_embed_mode" => self.embed = value == "1",
            _ => {}
        }
    }
}

/// True if a node is a compiled partition of this provider.
pub(crate) fn is_ours(node: &model::Node) -> bool {
    let source = node.attributes.get("source");
    node.op_type == OPERATOR
        && node.domain == DOMAIN
        && matches!(source, Some(model::Attribute::String(source)) if source == crate::NAME_TEXT)
}

/// The node of this provider that a partition consists of, if it is a compiled one.
///
/// # Errors
/// If the runtime does not answer.
pub(crate) fn find<'a>(graph: &Graph<'a>) -> Result<Option<Node<'a>>, Error> {
    let nodes = graph.nodes()?;
    let [node] = nodes[..] else { return Ok(None) };
    Ok((node.op_type()? == OPERATOR && node.domain()? == DOMAIN).then_some(node))
}

/// The payload of a node.
///
/// # Errors
/// If there is none, or its file or the application's storage can't be read.
pub(crate) fn payload(
    runtime: &Runtime,
    graph: &Graph<'_>,
    node: &Node<'_>,
    request: &Request,
    storage: &Storage,
) -> Result<Vec<u8>, Error> {
    let attributes = node.attributes()?;
    let embedded = attributes.iter().find(|(name, _)| name == "embed_mode");
    let embedded = !matches!(embedded, Some((_, model::Attribute::Int(0))));
    let content = node.text_bytes("ep_cache_context")?;
    if embedded {
        return Ok(content);
    }
    let name =
        String::from_utf8(content).map_err(|_| Error::invalid("expected a file's name in \"ep_cache_context\""))?;
    if let Some(read) = storage.read(runtime, &name) {
        return read;
    }
    let relative = Path::new(&name);
    if relative.components().any(|part| !matches!(part, Component::Normal(_))) {
        return Err(Error::invalid(format!("expected a file beside the model in \"ep_cache_context\", got {name:?}")));
    }
    let model = graph.model_path()?.or_else(|| request.file.clone());
    let model = model.as_deref().unwrap_or(Path::new(""));
    let file = folder(model).join(relative);
    let read = within(model, &file).and_then(std::fs::read);
    read.map_err(|error| Error::invalid(format!("the compiled partition {}: {error}", file.display())))
}

/// The folder that a file is in.
fn folder(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// A file without links, if it is in the folder of the model, or in that of what the model is a link to: caches of models
/// have links to files that lie side by side elsewhere.
fn within(model: &Path, file: &Path) -> io::Result<PathBuf> {
    let resolved = file.canonicalize()?;
    let beside = [folder(model).canonicalize(), model.canonicalize().map(|model| folder(&model).to_path_buf())];
    if beside.into_iter().flatten().any(|folder| resolved.starts_with(folder)) {
        return Ok(resolved);
    }
    Err(io::Error::other(format!("expected a file in the model's folder, got a link to {}", resolved.display())))
}

/// Makes the node of a compiled partition, which takes the place of a fused one.
///
/// # Errors
/// If it can't be written, or what the runtime says.
pub(crate) fn create(
    runtime: &Runtime,
    graph: &Graph<'_>,
    fused: &Node<'_>,
    payload: &[u8],
    compatibility: &str,
    (request, storage): (&Request, &Storage),
    is_main: bool,
) -> Result<*mut ort::Node, Error> {
    let name = fused.name()?;
    let model = match &request.file {
        Some(file) => Some(file.clone()),
        None => graph.model_path()?,
    };
    let beside = if request.embed { None } else { write(runtime, model.as_deref(), name, payload, storage)? };
    let content = beside.as_deref().map_or(payload, str::as_bytes);
    let embedded = i64::from(beside.is_none());
    let mut attributes = Attributes { runtime, made: Vec::new() };
    attributes.add(c"main_context", OpAttrType::INT, &i64::from(is_main).to_ne_bytes(), 1)?;
    attributes.add(c"embed_mode", OpAttrType::INT, &embedded.to_ne_bytes(), 1)?;
    for (key, text) in [
        (c"ep_cache_context", content),
        (c"source", crate::NAME_TEXT.as_bytes()),
        (c"ep_sdk_version", crate::VERSION_TEXT.as_bytes()),
        (c"hardware_architecture", compatibility.rsplit(' ').next().unwrap_or_default().as_bytes()),
        (c"partition_name", name.as_bytes()),
    ] {
        attributes.add(key, OpAttrType::STRING, text, text.len())?;
    }
    let (inputs, outputs) = (names(fused.inputs()?)?, names(fused.outputs()?)?);
    let pointers = |names: &[CString]| names.iter().map(|name| name.as_ptr()).collect::<Vec<*const c_char>>();
    let (inputs, outputs) = (pointers(&inputs), pointers(&outputs));
    let name = CString::new(name).unwrap_or_default();
    // SAFETY: the entry takes nothing.
    let table = NonNull::new(unsafe { runtime.api.get_model_editor_api()() }.cast_mut());
    let table = table.ok_or_else(|| Error::failed("this build of ONNX Runtime can't write models"))?;
    // SAFETY: this is the same runtime's `OrtModelEditorApi`.
    let editor = unsafe { ModelEditorApi::new(table, runtime.version()) }?;
    let mut node = null_mut();
    // SAFETY: all texts end in NUL and live during the call, as do the attributes, which are copied.
    let status = unsafe {
        editor.create_node()(
            c"EPContext".as_ptr(),
            c"com.microsoft".as_ptr(),
            name.as_ptr(),
            inputs.as_ptr(),
            inputs.len(),
            outputs.as_ptr(),
            outputs.len(),
            attributes.made.as_mut_ptr(),
            attributes.made.len(),
            &mut node,
        )
    };
    // SAFETY: the status is ours.
    unsafe { runtime.check(status) }?;
    Ok(node)
}

/// Names of values; empty where one is left out.
fn names(values: Vec<Option<ValueInfo<'_>>>) -> Result<Vec<CString>, Error> {
    let name = |value: Option<ValueInfo<'_>>| match value {
        Some(value) => Ok(CString::new(value.name()?).unwrap_or_default()),
        None => Ok(CString::default()),
    };
    values.into_iter().map(name).collect()
}

/// Gives a payload to the application, or writes it beside the model; its name there. `None` where there is no place for it.
fn write(
    runtime: &Runtime,
    model: Option<&Path>,
    node: &str,
    payload: &[u8],
    storage: &Storage,
) -> Result<Option<String>, Error> {
    let stem = model.and_then(Path::file_stem).map(|stem| stem.to_string_lossy()).unwrap_or_default();
    let safe = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-' | '.'), "_");
    let name = format!("{}_{}.hipdnn_rs.bin", safe(&stem), safe(node));
    if let Some(written) = storage.write(runtime, &name, payload) {
        return written.map(|()| Some(name));
    }
    match model {
        Some(model) => write_file(model, &name, payload).map(|()| Some(name)),
        None => Ok(None),
    }
}

/// Writes a payload beside a model.
fn write_file(model: &Path, name: &str, payload: &[u8]) -> Result<(), Error> {
    let file = folder(model).join(name);
    // Nobody finds half of a file under its name.
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let unfinished = file.with_extension(format!("{}-{number}.tmp", std::process::id()));
    let written = std::fs::write(&unfinished, payload).and_then(|()| std::fs::rename(&unfinished, &file));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&unfinished);
        Error::failed(format!("the compiled partition {}: {error}", file.display()))
    })
}

/// Attributes that the runtime made for us.
struct Attributes<'a> {
    runtime: &'a Runtime,
    made: Vec<*mut OpAttr>,
}

impl Attributes<'_> {
    /// Makes an attribute of so many elements, or bytes of a text.
    fn add(&mut self, name: &std::ffi::CStr, kind: OpAttrType, bytes: &[u8], count: usize) -> Result<(), Error> {
        let count = i32::try_from(count)
            .map_err(|_| Error::failed(format!("expected a compiled partition below 2 GiB, got {count} bytes")))?;
        let mut attribute = null_mut();
        let create = self.runtime.api.create_op_attr();
        // SAFETY: the name ends in NUL, the bytes are those of `count` elements, and there is a place for the answer.
        let status = unsafe { create(name.as_ptr(), bytes.as_ptr().cast(), count, kind, &mut attribute) };
        // SAFETY: the status is ours.
        unsafe { self.runtime.check(status) }?;
        self.made.push(attribute);
        Ok(())
    }
}

impl Drop for Attributes<'_> {
    fn drop(&mut self) {
        for attribute in &self.made {
            // SAFETY: the attribute was made for us, and is released once.
            unsafe { self.runtime.api.release_op_attr()(*attribute) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_lead_nowhere_but_to_files_beside_the_model() {
        let place = std::env::temp_dir().join(format!("hipdnn-rs-context-{}", std::process::id()));
        let [here, store, elsewhere] = ["here", "store", "elsewhere"].map(|name| place.join(name));
        for folder in [&here, &store, &elsewhere, &here.join("below")] {
            fs::create_dir_all(folder).expect("a folder");
        }
        let [model, own, below] = ["model.onnx", "own.bin", "below/part.bin"].map(|name| here.join(name));
        let [stored, part, foreign] =
            [store.join("model"), store.join("part"), elsewhere.join("part")].map(|path| path.to_path_buf());
        for file in [&model, &own, &below, &stored, &part, &foreign] {
            fs::write(file, "x").expect("a file");
        }
        for (target, link) in [
            (&stored, here.join("linked.onnx")),
            (&part, here.join("linked.bin")),
            (&own, here.join("alias.bin")),
            (&foreign, here.join("foreign.bin")),
            (&elsewhere, here.join("folder")),
        ] {
            symlink(target, link).expect("a link");
        }
        for (of, name, taken) in [
            ("model.onnx", "own.bin", true),
            ("model.onnx", "below/part.bin", true),
            ("model.onnx", "alias.bin", true),
            ("model.onnx", "foreign.bin", false),
            ("model.onnx", "folder/part", false),
            ("model.onnx", "linked.bin", false),
            ("linked.onnx", "linked.bin", true),
            ("linked.onnx", "own.bin", true),
            ("linked.onnx", "foreign.bin", false),
            ("model.onnx", "missing.bin", false),
        ] {
            let found = within(&here.join(of), &here.join(name));
            assert_eq!(found.is_ok(), taken, "{name} of {of}: {found:?}");
        }
        let told = within(&model, &here.join("foreign.bin")).expect_err("it is elsewhere").to_string();
        assert!(told.starts_with("expected a file in the model's folder, got a link to "), "{told}");
        fs::remove_dir_all(place).expect("the test's own folder");
    }
}
