//! The exported C functions. hipDNN defines their semantics; comments here give only what is not served or differs.

#![expect(clippy::missing_safety_doc, reason = "said once: pointers are null or valid as the C header says")]

use std::ffi::{CStr, c_char, c_int, c_void};

use hipdnn_schemas::{ContentKind, SerializedGraphAndPlan, content_kind};
use hipdnn_sdk_bindings::hipdnn::backend::{
    AttributeName, AttributeType, AutotuneCacheWriteOutcome, DescriptorPtr, DescriptorType, HandlePtr, LogCallbackMode,
    PluginLoadingMode, PluginUnloadingMode, SERIALIZED_CONTENT_EXECUTION_PLAN, SERIALIZED_CONTENT_GRAPH, Severity,
    Status, StreamPtr, UserLogCallback,
};

use crate::abi::pointer::{self, Elements, Output, Place, Text, Token, token, write_sized};
use crate::abi::unwind::{enter, enter_infallible, enter_quietly, log_from};
use crate::buffer::Buffer;
use crate::descriptor::{Graph, Object, Plan};
use crate::error::{Error, Result};
use crate::plugins::manager::{self, Kind};
use crate::{engines, handle, last_error, log, policy, ranking};

/// Major, minor, patch, tweak: the major is the ABI's.
const VERSION: &CStr = c"1.3.0.0";

/// `hipdnnCreate`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnCreate(handle: *mut HandlePtr) -> Status {
    enter("hipdnnCreate", format_args!("{handle:p}"), || {
        // SAFETY: null or valid, by the header.
        let place = unsafe { Place::new(handle, "the place for the handle") }?;
        place.set(handle::create()? as HandlePtr);
        Ok(())
    })
}

/// `hipdnnDestroy`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnDestroy(handle: HandlePtr) -> Status {
    enter("hipdnnDestroy", format_args!("{handle:p}"), || handle::destroy(token(handle, "the handle")?))
}

/// `hipdnnSetStream`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnSetStream(handle: HandlePtr, stream: StreamPtr) -> Status {
    enter("hipdnnSetStream", format_args!("{handle:p}, {stream:p}"), || {
        handle::find(token(handle, "the handle")?)?.resources.set_stream(stream)
    })
}

/// `hipdnnGetStream`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnGetStream(handle: HandlePtr, stream: *mut StreamPtr) -> Status {
    enter("hipdnnGetStream", format_args!("{handle:p}, {stream:p}"), || {
        let handle = token(handle, "the handle")?;
        // SAFETY: null or valid, by the header.
        let place = unsafe { Place::new(stream, "the place for the stream") }?;
        place.set(handle::find(handle)?.resources.stream());
        Ok(())
    })
}

/// `hipdnnBackendCreateDescriptor`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendCreateDescriptor(kind: DescriptorType, descriptor: *mut DescriptorPtr) -> Status {
    enter("hipdnnBackendCreateDescriptor", format_args!("{kind}, {descriptor:p}"), || {
        // SAFETY: null or valid, by the header.
        let place = unsafe { Place::new(descriptor, "the place for the descriptor") }?;
        place.set(Object::new(kind)?.wrap()? as DescriptorPtr);
        Ok(())
    })
}

/// `hipdnnBackendDestroyDescriptor`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendDestroyDescriptor(descriptor: DescriptorPtr) -> Status {
    enter("hipdnnBackendDestroyDescriptor", format_args!("{descriptor:p}"), || {
        Object::destroy(token(descriptor, "the descriptor")?)
    })
}

/// `hipdnnBackendFinalize`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendFinalize(descriptor: DescriptorPtr) -> Status {
    enter("hipdnnBackendFinalize", format_args!("{descriptor:p}"), || {
        Object::find(token(descriptor, "the descriptor")?)?.finalize()
    })
}

/// `hipdnnBackendSetAttribute`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendSetAttribute(
    descriptor: DescriptorPtr,
    name: AttributeName,
    kind: AttributeType,
    count: i64,
    elements: *const c_void,
) -> Status {
    let arguments = format_args!("{descriptor:p}, {name}, {kind}, {count}, {elements:p}");
    enter("hipdnnBackendSetAttribute", arguments, || {
        // SAFETY: null or that many elements of that type, by the header.
        let elements = unsafe { Elements::new(kind, count, elements) };
        Object::find(token(descriptor, "the descriptor")?)?.set(name, elements)
    })
}

/// `hipdnnBackendGetAttribute`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendGetAttribute(
    descriptor: DescriptorPtr,
    name: AttributeName,
    kind: AttributeType,
    requested: i64,
    count: *mut i64,
    elements: *mut c_void,
) -> Status {
    let arguments = format_args!("{descriptor:p}, {name}, {kind}, {requested}, {count:p}, {elements:p}");
    enter("hipdnnBackendGetAttribute", arguments, || {
        // SAFETY: null or room for that many elements of that type, by the header.
        let output = unsafe { Output::new(kind, requested, count, elements) };
        Object::find(token(descriptor, "the descriptor")?)?.get(name, output)
    })
}

/// `hipdnnBackendExecute`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendExecute(handle: HandlePtr, plan: DescriptorPtr, pack: DescriptorPtr) -> Status {
    enter("hipdnnBackendExecute", format_args!("{handle:p}, {plan:p}, {pack:p}"), || {
        let handle = token(handle, "the handle")?;
        let (plan, pack) = (token(plan, "the execution plan")?, token(pack, "the variant pack")?);
        // They are counted in where they are, not shared: executions are what clients call most.
        handle::with(handle, |handle| {
            Object::with(plan, |plan| {
                let plan = plan.plan()?;
                Object::with(pack, |pack| {
                    // SAFETY: the pack's addresses are what the plan's engine expects, by the header.
                    unsafe { plan.execute(&handle.resources, pack.variant_pack()?) }
                })
            })
        })
    })
}

/// `hipdnnGetErrorString`
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnGetErrorString(status: Status) -> *const c_char {
    status.c_name().unwrap_or(c"HIPDNN_STATUS_UNKNOWN").as_ptr()
}

/// `hipdnnGetLastErrorString`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnGetLastErrorString(message: *mut c_char, max_size: usize) {
    enter_infallible(|| {
        // SAFETY: null or room for that many bytes, by the header.
        if unsafe { copy_last_error("hipdnnGetLastErrorString", message, max_size) } {
            last_error::clear();
        }
    });
}

/// `hipdnnPeekLastErrorString_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnPeekLastErrorString_ext(message: *mut c_char, max_size: usize) {
    enter_infallible(|| {
        // SAFETY: null or room for that many bytes, by the header.
        unsafe { copy_last_error("hipdnnPeekLastErrorString_ext", message, max_size) };
    });
}

/// # Safety
/// `message` is null or has room for `max_size` bytes.
unsafe fn copy_last_error(function: &str, message: *mut c_char, max_size: usize) -> bool {
    if message.is_null() || max_size == 0 {
        last_error::set(&format!("{function}: no room for the text"));
        return false;
    }
    // No text is longer, and `max_size` may be more than there is.
    let mut text = [0u8; hipdnn_sdk_bindings::hipdnn::backend::ERROR_STRING_MAX_LENGTH];
    let room = max_size.min(text.len());
    last_error::copy(&mut text[..room]);
    let length = text.iter().position(|byte| *byte == 0).expect("the copy ends in a NUL");
    // SAFETY: `length` and the NUL fit in `room`, which the caller has.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), message.cast(), length + 1) };
    true
}

/// `hipdnnBackendCreateAndDeserializeGraph_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendCreateAndDeserializeGraph_ext(
    descriptor: *mut DescriptorPtr,
    graph: *const u8,
    size: usize,
) -> Status {
    let arguments = format_args!("{descriptor:p}, {graph:p}, {size}");
    enter("hipdnnBackendCreateAndDeserializeGraph_ext", arguments, || {
        // SAFETY: null or valid, by the header.
        let place = unsafe { Place::new(descriptor, "the place for the descriptor") }?;
        // SAFETY: null or that many bytes, by the header.
        let bytes = unsafe { pointer::bytes(graph, size, "the serialized graph") }?;
        place.set(Object::Graph(Graph::from_bytes(bytes)?.into()).wrap()? as DescriptorPtr);
        Ok(())
    })
}

/// `hipdnnBackendGetSerializedBinaryGraph_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendGetSerializedBinaryGraph_ext(
    descriptor: DescriptorPtr,
    requested: usize,
    size: *mut usize,
    graph: *mut u8,
) -> Status {
    let arguments = format_args!("{descriptor:p}, {requested}, {size:p}, {graph:p}");
    enter("hipdnnBackendGetSerializedBinaryGraph_ext", arguments, || {
        let descriptor = token(descriptor, "the descriptor")?;
        // SAFETY: null or valid, by the header.
        let size = unsafe { Place::new(size, "the size") }?;
        let bytes = Object::find(descriptor)?.graph()?.bytes()?;
        // SAFETY: null or room for that many bytes, by the header.
        unsafe { write_sized(&bytes, requested, size, graph) }
    })
}

/// `hipdnnBackendGetSerializedJsonGraph_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendGetSerializedJsonGraph_ext(
    descriptor: DescriptorPtr,
    requested: usize,
    size: *mut usize,
    json: *mut c_char,
) -> Status {
    let arguments = format_args!("{descriptor:p}, {requested}, {size:p}, {json:p}");
    enter("hipdnnBackendGetSerializedJsonGraph_ext", arguments, || {
        let descriptor = token(descriptor, "the descriptor")?;
        // SAFETY: null or valid, by the header.
        let size = unsafe { Place::new(size, "the size") }?;
        let mut text = Object::find(descriptor)?.graph()?.json()?.into_bytes();
        text.push(0);
        // SAFETY: null or room for that many bytes, by the header.
        unsafe { write_sized(&text, requested, size, json.cast()) }
    })
}

/// `hipdnnBackendCreateAndDeserializeJsonGraph_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendCreateAndDeserializeJsonGraph_ext(
    descriptor: *mut DescriptorPtr,
    json: *const c_char,
    size: usize,
) -> Status {
    let arguments = format_args!("{descriptor:p}, {json:p}, {size}");
    enter("hipdnnBackendCreateAndDeserializeJsonGraph_ext", arguments, || {
        // SAFETY: null or valid, by the header.
        let place = unsafe { Place::new(descriptor, "the place for the descriptor") }?;
        // SAFETY: null or that many bytes, by the header.
        let bytes = unsafe { pointer::bytes(json.cast(), size, "the JSON graph") }?;
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        let text = std::str::from_utf8(text).map_err(|_| Error::bad_param("the JSON graph is not UTF-8"))?;
        place.set(Object::Graph(Graph::from_json(text)?.into()).wrap()? as DescriptorPtr);
        Ok(())
    })
}

/// `hipdnnBackendGetSerializedExecutionPlan_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendGetSerializedExecutionPlan_ext(
    descriptor: DescriptorPtr,
    requested: usize,
    size: *mut usize,
    plan: *mut u8,
) -> Status {
    let arguments = format_args!("{descriptor:p}, {requested}, {size:p}, {plan:p}");
    enter("hipdnnBackendGetSerializedExecutionPlan_ext", arguments, || {
        let descriptor = token(descriptor, "the descriptor")?;
        // SAFETY: null or valid, by the header.
        let size = unsafe { Place::new(size, "the size") }?;
        let bytes = Object::find(descriptor)?.plan()?.serialized()?;
        // SAFETY: null or room for that many bytes, by the header.
        unsafe { write_sized(&bytes, requested, size, plan) }
    })
}

/// `hipdnnBackendCreateAndDeserializeExecutionPlan_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendCreateAndDeserializeExecutionPlan_ext(
    handle: HandlePtr,
    descriptor: *mut DescriptorPtr,
    plan: *const u8,
    size: usize,
) -> Status {
    let arguments = format_args!("{handle:p}, {descriptor:p}, {plan:p}, {size}");
    enter("hipdnnBackendCreateAndDeserializeExecutionPlan_ext", arguments, || {
        let handle = token(handle, "the handle")?;
        // SAFETY: null or valid, by the header.
        let place = unsafe { Place::new(descriptor, "the place for the descriptor") }?;
        // SAFETY: null or that many bytes, by the header.
        let bytes = unsafe { pointer::bytes(plan, size, "the serialized plan") }?;
        let handle = handle::find(handle)?;
        let plan = match content_kind(bytes) {
            ContentKind::Bare => Plan::restored(&handle.resources, bytes)?,
            ContentKind::GraphAndPlan => {
                let container = SerializedGraphAndPlan::from_bytes(Buffer::new(bytes).bytes())?;
                let plan = container.plan.ok_or_else(|| Error::bad_param("the container holds no plan"))?;
                Plan::restored(&handle.resources, &plan)?
            }
        };
        place.set(Object::Plan(plan.into()).wrap()? as DescriptorPtr);
        Ok(())
    })
}

/// `hipdnnBackendGetSerializedBinaryGraphAndPlan_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendGetSerializedBinaryGraphAndPlan_ext(
    graph: DescriptorPtr,
    plan: DescriptorPtr,
    requested: usize,
    size: *mut usize,
    blob: *mut u8,
) -> Status {
    let arguments = format_args!("{graph:p}, {plan:p}, {requested}, {size:p}, {blob:p}");
    enter("hipdnnBackendGetSerializedBinaryGraphAndPlan_ext", arguments, || {
        let graph = token(graph, "the graph")?;
        // SAFETY: null or valid, by the header.
        let size = unsafe { Place::new(size, "the size") }?;
        let graph = Object::find(graph)?.graph()?.bytes()?;
        let plan = Token::new(plan as usize).map(|plan| Object::find(plan)?.plan()?.serialized()).transpose()?;
        let bytes = SerializedGraphAndPlan { graph, plan }.to_bytes();
        // SAFETY: null or room for that many bytes, by the header.
        unsafe { write_sized(&bytes, requested, size, blob) }
    })
}

/// `hipdnnBackendGetSerializedBinaryContents_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendGetSerializedBinaryContents_ext(
    blob: *const u8,
    size: usize,
    flags: *mut c_int,
) -> Status {
    enter("hipdnnBackendGetSerializedBinaryContents_ext", format_args!("{blob:p}, {size}, {flags:p}"), || {
        // SAFETY: null or valid, by the header.
        let place = unsafe { Place::new(flags, "the place for the flags") }?;
        // SAFETY: null or that many bytes, by the header.
        let bytes = unsafe { pointer::bytes(blob, size, "the blob") }?;
        place.set(match content_kind(bytes) {
            ContentKind::Bare => SERIALIZED_CONTENT_GRAPH,
            ContentKind::GraphAndPlan => {
                let container = SerializedGraphAndPlan::from_bytes(Buffer::new(bytes).bytes())?;
                let graph = if container.graph.is_empty() { 0 } else { SERIALIZED_CONTENT_GRAPH };
                graph | container.plan.map_or(0, |_| SERIALIZED_CONTENT_EXECUTION_PLAN)
            }
        });
        Ok(())
    })
}

/// `hipdnnSetEnginePluginPaths_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnSetEnginePluginPaths_ext(
    count: usize,
    paths: *const *const c_char,
    mode: PluginLoadingMode,
) -> Status {
    enter("hipdnnSetEnginePluginPaths_ext", format_args!("{count}, {paths:p}, {mode}"), || {
        // SAFETY: null or that many paths, by the header.
        let paths = unsafe { pointer::paths(count, paths) }?;
        manager::set_paths(Kind::Engines, paths, mode == PluginLoadingMode::ABSOLUTE, handle::any)
    })
}

/// `hipdnnSetHeuristicPluginPaths_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnSetHeuristicPluginPaths_ext(
    count: usize,
    paths: *const *const c_char,
    mode: PluginLoadingMode,
) -> Status {
    enter("hipdnnSetHeuristicPluginPaths_ext", format_args!("{count}, {paths:p}, {mode}"), || {
        // SAFETY: null or that many paths, by the header.
        let paths = unsafe { pointer::paths(count, paths) }?;
        manager::set_paths(Kind::Heuristics, paths, mode == PluginLoadingMode::ABSOLUTE, handle::any)
    })
}

/// `hipdnnSetPluginUnloadMode_ext`
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnSetPluginUnloadMode_ext(mode: PluginUnloadingMode) -> Status {
    enter("hipdnnSetPluginUnloadMode_ext", format_args!("{mode}"), || match mode {
        PluginUnloadingMode::LAZY => manager::set_eager(false),
        PluginUnloadingMode::EAGER => manager::set_eager(true),
        other => Err(Error::bad_param(format!("expected an unloading mode of 0 or 1, got {}", other.0))),
    })
}

/// `hipdnnGetLoadedEnginePluginPaths_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnGetLoadedEnginePluginPaths_ext(
    handle: HandlePtr,
    count: *mut usize,
    paths: *mut *mut c_char,
    max_length: *mut usize,
) -> Status {
    let arguments = format_args!("{handle:p}, {count:p}, {paths:p}, {max_length:p}");
    enter("hipdnnGetLoadedEnginePluginPaths_ext", arguments, || {
        let handle = token(handle, "the handle")?;
        // SAFETY: null or valid, by the header.
        let (count, max_length) =
            unsafe { (Place::new(count, "the count")?, Place::new(max_length, "the longest length")?) };
        let loaded = engines::paths(&handle::find(handle)?.resources);
        let longest = loaded.iter().map(|path| path.len() + 1).max().unwrap_or(0);
        if paths.is_null() {
            count.set(loaded.len());
            max_length.set(longest);
            return Ok(());
        }
        if count.get() < loaded.len() || max_length.get() < longest {
            return Err(Error::bad_param(format!(
                "expected room for {} paths of {longest} bytes, got {} of {}",
                loaded.len(),
                count.get(),
                max_length.get()
            )));
        }
        let places: Vec<*mut c_char> = (0..loaded.len())
            // SAFETY: there are at least `count` entries, by the header.
            .map(|index| unsafe { paths.add(index).read_unaligned() })
            .collect();
        if places.iter().any(|place| place.is_null()) {
            return Err(Error::bad_param("a place for a path is null"));
        }
        for (path, place) in loaded.iter().zip(places) {
            // SAFETY: each place has `max_length` bytes, by the header; the path and its NUL are no longer.
            unsafe { pointer::write_text(path, place) };
        }
        count.set(loaded.len());
        Ok(())
    })
}

/// `hipdnnGetEngineCount_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnGetEngineCount_ext(handle: HandlePtr, count: *mut usize) -> Status {
    enter("hipdnnGetEngineCount_ext", format_args!("{handle:p}, {count:p}"), || {
        let handle = token(handle, "the handle")?;
        // SAFETY: null or valid, by the header.
        let place = unsafe { Place::new(count, "the count") }?;
        place.set(engines::list(&handle::find(handle)?.resources).len());
        Ok(())
    })
}

/// The destinations of texts' lengths.
///
/// # Safety
/// Each is null or valid.
unsafe fn places<'a, const N: usize>(lengths: [*mut usize; N]) -> Result<Vec<Place<'a, usize>>> {
    // SAFETY: the caller's duty.
    lengths.into_iter().map(|length| unsafe { Place::new(length, "a text's length") }).collect()
}

/// Texts for a caller's buffers: all lengths, NULs included, if any buffer is null; else all texts, if all fit.
///
/// # Safety
/// Each buffer is null or has as many bytes as its length says.
unsafe fn write_texts<const N: usize>(
    texts: [&str; N],
    buffers: [*mut c_char; N],
    lengths: &[Place<'_, usize>],
) -> Result<()> {
    if buffers.iter().all(|buffer| !buffer.is_null()) {
        for (text, length) in texts.iter().zip(lengths) {
            let room = length.get();
            if room < text.len() + 1 {
                return Err(Error::bad_param(format!("expected room for {} bytes, got {room}", text.len() + 1)));
            }
        }
        for (text, buffer) in texts.iter().zip(buffers) {
            // SAFETY: the buffer has room, as checked.
            unsafe { pointer::write_text(text, buffer) };
        }
    }
    for (text, length) in texts.iter().zip(lengths) {
        length.set(text.len() + 1);
    }
    Ok(())
}

/// `hipdnnGetEngineInfo_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnGetEngineInfo_ext(
    handle: HandlePtr,
    index: usize,
    id: *mut i64,
    name: *mut c_char,
    name_length: *mut usize,
    plugin: *mut c_char,
    plugin_length: *mut usize,
    version: *mut c_char,
    version_length: *mut usize,
    kind: *mut c_char,
    kind_length: *mut usize,
) -> Status {
    enter("hipdnnGetEngineInfo_ext", format_args!("{handle:p}, {index}"), || {
        let handle = token(handle, "the handle")?;
        // SAFETY: null or valid, by the header.
        let lengths = unsafe { places([name_length, plugin_length, version_length, kind_length]) }?;
        let engines = engines::list(&handle::find(handle)?.resources);
        let outside = || Error::bad_param(format!("expected an engine index below {}, got {index}", engines.len()));
        let engine = engines.get(index).ok_or_else(outside)?;
        // SAFETY: null, for a caller who does not ask, or valid, by the header.
        if let Ok(place) = unsafe { Place::new(id, "the engine id") } {
            place.set(engine.id);
        }
        let texts = [engine.name.as_str(), &engine.plugin, &engine.version, "ENGINE"];
        // SAFETY: null or as large as the lengths say, by the header.
        unsafe { write_texts(texts, [name, plugin, version, kind], &lengths) }
    })
}

/// `hipdnnGetEngineIdByName_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnGetEngineIdByName_ext(handle: HandlePtr, name: *const c_char, id: *mut i64) -> Status {
    enter("hipdnnGetEngineIdByName_ext", format_args!("{handle:p}, {name:p}, {id:p}"), || {
        let handle = token(handle, "the handle")?;
        // SAFETY: null or a text, by the header.
        let name = unsafe { Text::new(name, "the engine name") }?;
        // SAFETY: null or valid, by the header.
        let place = unsafe { Place::new(id, "the engine id") }?;
        place.set(engines::id_of(&handle::find(handle)?.resources, name.get()?)?);
        Ok(())
    })
}

/// `hipdnnGetEngineNameById_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnGetEngineNameById_ext(
    handle: HandlePtr,
    id: i64,
    name: *mut c_char,
    name_length: *mut usize,
) -> Status {
    enter("hipdnnGetEngineNameById_ext", format_args!("{handle:p}, {id}, {name:p}, {name_length:p}"), || {
        let handle = token(handle, "the handle")?;
        // SAFETY: null or valid, by the header.
        let lengths = unsafe { places([name_length]) }?;
        let found = engines::name_of(&handle::find(handle)?.resources, id)?;
        // SAFETY: null or as large as the length says, by the header.
        unsafe { write_texts([found.as_str()], [name], &lengths) }
    })
}

/// `hipdnnGetHeuristicPolicyCount_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnGetHeuristicPolicyCount_ext(handle: HandlePtr, count: *mut usize) -> Status {
    enter("hipdnnGetHeuristicPolicyCount_ext", format_args!("{handle:p}, {count:p}"), || {
        let handle = token(handle, "the handle")?;
        // SAFETY: null or valid, by the header.
        let place = unsafe { Place::new(count, "the count") }?;
        place.set(policy::list(&handle::find(handle)?.resources).len());
        Ok(())
    })
}

/// `hipdnnGetHeuristicPolicyInfo_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnGetHeuristicPolicyInfo_ext(
    handle: HandlePtr,
    index: usize,
    id: *mut i64,
    name: *mut c_char,
    name_length: *mut usize,
    plugin: *mut c_char,
    plugin_length: *mut usize,
    version: *mut c_char,
    version_length: *mut usize,
    api_version: *mut c_char,
    api_version_length: *mut usize,
) -> Status {
    enter("hipdnnGetHeuristicPolicyInfo_ext", format_args!("{handle:p}, {index}"), || {
        let handle = token(handle, "the handle")?;
        // SAFETY: null or valid, by the header.
        let lengths = unsafe { places([name_length, plugin_length, version_length, api_version_length]) }?;
        let policies = policy::list(&handle::find(handle)?.resources);
        let found = policies.get(index);
        let found = found.ok_or_else(|| {
            Error::bad_param(format!("expected a policy index below {}, got {index}", policies.len()))
        })?;
        // SAFETY: null, for a caller who does not ask, or valid, by the header.
        if let Ok(place) = unsafe { Place::new(id, "the policy id") } {
            place.set(found.id);
        }
        let texts = [&found.name, &found.plugin, &found.version, &found.api_version].map(String::as_str);
        // SAFETY: null or as large as the lengths say, by the header.
        unsafe { write_texts(texts, [name, plugin, version, api_version], &lengths) }
    })
}

/// `hipdnnBackendWriteEngineRankingResults_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendWriteEngineRankingResults_ext(
    handle: HandlePtr,
    graph: DescriptorPtr,
    ids: *const i64,
    count: usize,
    outcome: *mut AutotuneCacheWriteOutcome,
) -> Status {
    let arguments = format_args!("{handle:p}, {graph:p}, {ids:p}, {count}, {outcome:p}");
    enter("hipdnnBackendWriteEngineRankingResults_ext", arguments, || {
        let (handle, graph) = (token(handle, "the handle")?, token(graph, "the graph")?);
        let handle = handle::find(handle)?;
        let graph = Object::find(graph)?.graph()?;
        // SAFETY: null or that many ids, by the header.
        let ids = unsafe { pointer::numbers(ids, count) }?;
        let written = ranking::write(&handle.resources, &graph, &ids);
        // SAFETY: null, for a caller who does not ask, or valid, by the header.
        if let Ok(place) = unsafe { Place::new(outcome, "the outcome") } {
            place.set(written);
        }
        Ok(())
    })
}

/// `hipdnnLoggingCallback_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnLoggingCallback_ext(severity: Severity, message: *const c_char) {
    // SAFETY: null or a text, by the header.
    unsafe { log_from(log::CLIENT, severity.0, message) };
}

/// `hipdnnSetUserLogCallback_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnSetUserLogCallback_ext(
    callback: UserLogCallback,
    min_level: Severity,
    mode: LogCallbackMode,
    user: *mut c_void,
) -> Status {
    enter_quietly(|| log::set_callback(callback, min_level, mode, user))
}

/// `hipdnnBackendSetGlobalLogLevel_ext`
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnBackendSetGlobalLogLevel_ext(level: Severity) -> Status {
    enter_quietly(|| {
        log::check_level(level)?;
        log::set_level(level);
        manager::set_log_level(level);
        Ok(())
    })
}

/// `hipdnnBackendGetGlobalLogLevel_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnBackendGetGlobalLogLevel_ext(level: *mut Severity) -> Status {
    enter_quietly(|| {
        // SAFETY: null or valid, by the header.
        let place = unsafe { Place::new(level, "the level") };
        // hipDNN's answer here is not the one of other null pointers.
        place.map_err(|error| Error::bad_param(error.message))?.set(log::level());
        Ok(())
    })
}

/// `hipdnnGetVersion_ext`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnGetVersion_ext(version: *mut *const c_char) -> Status {
    enter("hipdnnGetVersion_ext", format_args!("{version:p}"), || {
        // SAFETY: null or valid, by the header.
        unsafe { Place::new(version, "the place for the version") }?.set(VERSION.as_ptr());
        Ok(())
    })
}

/// `hipdnnVersionString_ext`
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnVersionString_ext() -> *const c_char {
    VERSION.as_ptr()
}
