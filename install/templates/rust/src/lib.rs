//! An engine plugin for hipDNN: its exported functions. Each checks what comes in and calls safe code.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

mod abi;
mod flatbuffer;
mod relu;

use abi::{Buffer, ConstData, Failure, LogCallback, Status, guarded, put};
use relu::{Declined, Relu};

const PLUGIN_NAME: &CStr = c"example_rust_relu_plugin";
const PLUGIN_VERSION: &CStr = c"0.1.0";
/// The oldest that hipDNN loads: it promises nothing about overridden shapes, scalars at run time or ragged tensors, so that no
/// graph with them comes.
const API_VERSION: &CStr = c"1.0.0";
const ENGINE_NAME: &CStr = c"EXAMPLE_RUST_RELU_ENGINE";

/// FNV-1a of the name: how hipDNN numbers engines.
const ENGINE_ID: i64 = {
    let (mut hash, mut at, name) = (0xcbf29ce484222325u64, 0, ENGINE_NAME.to_bytes());
    while at < name.len() {
        hash = (hash ^ name[at] as u64).wrapping_mul(0x100000001b3);
        at += 1;
    }
    hash as i64
};

/// What hipDNN has of the plugin for each of its handles. Work for a GPU goes to the stream.
pub struct Handle {
    stream: *mut c_void,
}

/// The host's log: a [`LogCallback`], or 0.
static LOG: AtomicUsize = AtomicUsize::new(0);
static LOG_LEVEL: AtomicI32 = AtomicI32::new(abi::INFO);

fn log(text: &str) {
    let address = LOG.load(Ordering::Acquire);
    if address == 0 || LOG_LEVEL.load(Ordering::Relaxed) > abi::INFO {
        return;
    }
    let Ok(text) = CString::new(format!("{}: {text}", PLUGIN_NAME.to_string_lossy())) else { return };
    // SAFETY: the only number but 0 that is stored there is that of such a function.
    let callback = unsafe { std::mem::transmute::<usize, LogCallback>(address) };
    // SAFETY: the text ends in NUL and outlives the call, as the ABI wants it.
    unsafe { callback(abi::INFO, text.as_ptr()) };
}

/// The plan of a graph that a host gave.
///
/// # Safety
/// As for [`ConstData::bytes`], unless null.
unsafe fn plan(graph: *const ConstData) -> Result<Result<Relu, Declined>, Failure> {
    // SAFETY: the caller promises that it is null or a description of readable bytes.
    let graph = unsafe { graph.as_ref() }.ok_or_else(|| Failure::null("a graph"))?;
    // SAFETY: the description's bytes are readable while the host's call lasts, which the caller promises too.
    Ok(Relu::of_graph(unsafe { graph.bytes() }))
}

fn wanted<T>(pointer: *const T, expected: &str) -> Result<(), Failure> {
    if pointer.is_null() { Err(Failure::null(expected)) } else { Ok(()) }
}

/// # Safety
/// All functions below are called by hipDNN: pointers are null or valid for what its ABI has there, and handles and contexts are
/// those that `Create` gave and `Destroy` has not had.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnPluginGetName(name: *mut *const c_char) -> Status {
    // SAFETY: the host gives null or a place for it.
    guarded(|| unsafe { put(name, abi::text(PLUGIN_NAME), "a name") })
}

/// # Safety
/// See the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnPluginGetVersion(version: *mut *const c_char) -> Status {
    // SAFETY: the host gives null or a place for it.
    guarded(|| unsafe { put(version, abi::text(PLUGIN_VERSION), "a version") })
}

/// # Safety
/// See the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnPluginGetApiVersion(version: *mut *const c_char) -> Status {
    // SAFETY: the host gives null or a place for it.
    guarded(|| unsafe { put(version, abi::text(API_VERSION), "a version") })
}

/// # Safety
/// See the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnPluginGetType(kind: *mut c_int) -> Status {
    // SAFETY: the host gives null or a place for it.
    guarded(|| unsafe { put(kind, abi::ENGINE_PLUGIN, "a type") })
}

/// # Safety
/// See the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnPluginGetLastErrorString(text: *mut *const c_char) {
    // SAFETY: the host gives null, for which there is no status here, or a place for it.
    let _ = unsafe { put(text, abi::last_error(), "a text") };
}

/// # Safety
/// See the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnPluginSetLoggingCallback(callback: Option<LogCallback>) -> Status {
    guarded(|| {
        let callback = callback.ok_or_else(|| Failure::null("a callback"))?;
        LOG.store(callback as usize, Ordering::Release);
        Ok(())
    })
}

/// Sets what the host wants to be told.
#[unsafe(no_mangle)]
pub extern "C" fn hipdnnPluginSetLogLevel(level: c_int) -> Status {
    LOG_LEVEL.store(level, Ordering::Relaxed);
    Status::SUCCESS
}

/// # Safety
/// See the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginGetAllEngineIds(ids: *mut i64, room: u32, count: *mut u32) -> Status {
    guarded(|| {
        if !ids.is_null() && room > 0 {
            // SAFETY: it is not null, and the host says that there is room for one.
            unsafe { put(ids, ENGINE_ID, "room")? };
        }
        // SAFETY: the host gives null or a place for it.
        unsafe { put(count, 1, "a number of engines") }
    })
}

/// # Safety
/// See the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginGetEngineName(id: i64, name: *mut *const c_char) -> Status {
    if id != ENGINE_ID {
        return Status::NOT_APPLICABLE;
    }
    // SAFETY: the host gives null or a place for it.
    guarded(|| unsafe { put(name, abi::text(ENGINE_NAME), "a name") })
}

/// # Safety
/// See the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginCreate(handle: *mut *mut Handle) -> Status {
    guarded(|| {
        wanted(handle, "a handle")?;
        let made = Box::new(Handle { stream: std::ptr::null_mut() });
        // SAFETY: the host gives null or a place for it.
        unsafe { put(handle, Box::into_raw(made), "a handle") }
    })
}

/// # Safety
/// See the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginDestroy(handle: *mut Handle) -> Status {
    guarded(|| {
        wanted(handle, "a handle")?;
        // SAFETY: it is one that `hipdnnEnginePluginCreate` made, and has not been here.
        drop(unsafe { Box::from_raw(handle) });
        Ok(())
    })
}

/// # Safety
/// See the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginSetStream(handle: *mut Handle, stream: *mut c_void) -> Status {
    guarded(|| {
        // SAFETY: it is null or one that `hipdnnEnginePluginCreate` made, on which the host makes one call at a time.
        let handle = unsafe { handle.as_mut() }.ok_or_else(|| Failure::null("a handle"))?;
        handle.stream = stream;
        Ok(())
    })
}

/// Declining is an answer, not an error: no engines, and the reason in the log.
///
/// # Safety
/// See the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginGetApplicableEngineIds(
    handle: *mut Handle,
    graph: *const ConstData,
    ids: *mut i64,
    room: u32,
    count: *mut u32,
) -> Status {
    guarded(|| {
        wanted(handle, "a handle")?;
        // SAFETY: the host gives null or a graph that is readable during the call.
        let taken = match unsafe { plan(graph)? } {
            Ok(_) => !ids.is_null() && room > 0,
            Err(Declined(reason)) => {
                log(&format!("{} declines: {reason}", ENGINE_NAME.to_string_lossy()));
                false
            }
        };
        if taken {
            // SAFETY: it is not null, and the host says that there is room for one.
            unsafe { put(ids, ENGINE_ID, "room")? };
        }
        // SAFETY: the host gives null or a place for it.
        unsafe { put(count, u32::from(taken), "a number of engines") }
    })
}

/// # Safety
/// See the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginGetEngineDetails(
    handle: *mut Handle,
    id: i64,
    graph: *const ConstData,
    details: *mut ConstData,
) -> Status {
    // The smallest FlatBuffer with a number in it: where the table is, its list of fields (8 bytes with the padding before it), the
    // table, and the number. An engine with knobs has flatc's code for this.
    const HEAD: u128 = u128::from_le_bytes([12, 0, 0, 0, 0, 0, 6, 0, 12, 0, 4, 0, 6, 0, 0, 0]);
    guarded(|| {
        wanted(handle, "a handle")?;
        wanted(graph, "a graph")?;
        wanted(details, "details")?;
        if id != ENGINE_ID {
            return Err(Failure(Status::BAD_PARAM, format!("expected engine {ENGINE_ID}, got {id}")));
        }
        // Hosts read numbers in place, so that the buffer has to be aligned.
        let buffer = Box::new([HEAD.to_le(), (ENGINE_ID as u64 as u128).to_le()]);
        let made = ConstData { ptr: Box::into_raw(buffer).cast(), size: 24 };
        // SAFETY: the host gives null or a place for it.
        unsafe { put(details, made, "details") }
    })
}

/// # Safety
/// See the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginDestroyEngineDetails(
    handle: *mut Handle,
    details: *mut ConstData,
) -> Status {
    guarded(|| {
        wanted(handle, "a handle")?;
        // SAFETY: it is null or what `hipdnnEnginePluginGetEngineDetails` filled in.
        let details = unsafe { details.as_mut() }.ok_or_else(|| Failure::null("details"))?;
        let buffer = std::mem::replace(details, ConstData { ptr: std::ptr::null(), size: 0 }).ptr;
        if !buffer.is_null() {
            // SAFETY: it is the box that was made there.
            drop(unsafe { Box::from_raw(buffer.cast::<[u128; 2]>().cast_mut()) });
        }
        Ok(())
    })
}

/// # Safety
/// See the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginGetWorkspaceSize(
    handle: *mut Handle,
    config: *const ConstData,
    graph: *const ConstData,
    bytes: *mut usize,
) -> Status {
    guarded(|| {
        wanted(handle, "a handle")?;
        wanted(config, "a configuration")?;
        wanted(graph, "a graph")?;
        // SAFETY: the host gives null or a place for it.
        unsafe { put(bytes, 0, "a size") }
    })
}

/// # Safety
/// See the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginCreateExecutionContext(
    handle: *mut Handle,
    config: *const ConstData,
    graph: *const ConstData,
    context: *mut *mut Relu,
) -> Status {
    guarded(|| {
        wanted(handle, "a handle")?;
        wanted(config, "a configuration")?;
        wanted(context, "a context")?;
        // SAFETY: the host gives null or a graph that is readable during the call.
        let plan = unsafe { plan(graph)? };
        let plan = plan.map_err(|Declined(reason)| Failure(Status::INVALID_VALUE, reason))?;
        // SAFETY: the host gives null or a place for it.
        unsafe { put(context, Box::into_raw(Box::new(plan)), "a context") }
    })
}

/// # Safety
/// See the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginDestroyExecutionContext(handle: *mut Handle, context: *mut Relu) -> Status {
    guarded(|| {
        wanted(handle, "a handle")?;
        wanted(context, "a context")?;
        // SAFETY: it is one that `hipdnnEnginePluginCreateExecutionContext` made, and has not been here.
        drop(unsafe { Box::from_raw(context) });
        Ok(())
    })
}

/// # Safety
/// See the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext(
    handle: *mut Handle,
    context: *mut Relu,
    bytes: *mut usize,
) -> Status {
    guarded(|| {
        wanted(handle, "a handle")?;
        wanted(context, "a context")?;
        // SAFETY: the host gives null or a place for it.
        unsafe { put(bytes, 0, "a size") }
    })
}

/// # Safety
/// See the first. The tensors of the graph have memory of the size that it says, which nobody else writes meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnEnginePluginExecuteOpGraph(
    handle: *mut Handle,
    context: *mut Relu,
    _workspace: *mut c_void,
    buffers: *const Buffer,
    count: u32,
) -> Status {
    guarded(|| {
        wanted(handle, "a handle")?;
        wanted(buffers, "buffers")?;
        // SAFETY: it is null or one that `hipdnnEnginePluginCreateExecutionContext` made.
        let plan = unsafe { context.as_ref() }.ok_or_else(|| Failure::null("a context"))?;
        // SAFETY: the host says how many there are.
        let buffers = unsafe { std::slice::from_raw_parts(buffers, count as usize) };
        let memory = |uid: i64| {
            let found = buffers.iter().find(|buffer| buffer.uid == uid && !buffer.ptr.is_null());
            let missing = || Failure(Status::INVALID_VALUE, format!("expected memory for tensor {uid}, got none"));
            found.map(|buffer| buffer.ptr.cast::<f32>()).ok_or_else(missing)
        };
        let (x, y) = (memory(plan.input)?, memory(plan.output)?);
        for at in 0..plan.elements {
            // SAFETY: both have that many elements. They may be the same memory, so that there are no slices of it.
            unsafe { y.add(at).write(plan.apply(x.add(at).read())) };
        }
        Ok(())
    })
}
