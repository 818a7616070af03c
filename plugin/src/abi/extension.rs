//! Extension of hipDNN's plugin ABI: one exported function, which gives a table of others.

use std::ffi::{CStr, c_char};

use hipdnn_capi::pointer::{Out, key, opaque};
use hipdnn_capi::table::{Slot, Slots};
use hipdnn_cpu_threads::lent;
use hipdnn_engine_core::error::Error;
use hipdnn_engine_core::site;
use hipdnn_engine_gpu::recording::{self, Recording};
use hipdnn_sdk_bindings::hipdnn::extension::{Constants, Extension, MemoryKind, ParallelFor, RecordingPtr, VERSION};
use hipdnn_sdk_bindings::hipdnn::plugin::{PluginStatus, StreamPtr};

use super::unwind::guard;

static EXTENSION: Extension = Extension {
    version: VERSION,
    lend_parallel_for,
    lend_constants,
    set_handle_memory,
    set_handle_cache,
    begin_recording,
    end_recording,
    replay,
    destroy_recording,
};

static RECORDING_SLOTS: [Slot<Recording>; 65536] = [const { Slot::empty() }; 65536];
static RECORDINGS: Slots<Recording> = Slots::new("a recording", 0x53, &RECORDING_SLOTS);

/// Gives the table of extensions, of at least `version`.
///
/// # Safety
/// `extension` is null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipdnnRsGetExtension(version: u32, extension: *mut *const Extension) -> PluginStatus {
    guard("hipdnnRsGetExtension", || {
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(extension, "extension") }?;
        if !(1..=VERSION).contains(&version) {
            return Err(Error::not_applicable(format!("version: expected 1 to {VERSION}, got {version}")));
        }
        out.set(&EXTENSION);
        Ok(())
    })
}

/// Lends executions by the calling thread a parallel-for until something else is lent; null lends nothing.
///
/// # Safety
/// `lent` is null or readable, and what it says may be called until something else is lent; `before` is null or good for
/// writing.
unsafe extern "C" fn lend_parallel_for(lent: *const ParallelFor, before: *mut ParallelFor) -> PluginStatus {
    guard("lend_parallel_for", || {
        // SAFETY: the caller's promise, for addresses that are not null.
        let (lent, before) = unsafe { (optional(lent.cast_mut(), "lent")?, optional(before, "before")?) };
        let lent = lent.map_or(ParallelFor::NONE, Out::get);
        let replaced = lent::replace(lent);
        if let Some(before) = before {
            before.set(replaced);
        }
        Ok(())
    })
}

/// Lends plan builds by the calling thread the contents of constants until others are lent; null lends none.
///
/// # Safety
/// `lent` is null or readable, and its constants, their tokens and their bytes stay as they are until others are lent;
/// `before` is null or good for writing.
unsafe extern "C" fn lend_constants(lent: *const Constants, before: *mut Constants) -> PluginStatus {
    guard("lend_constants", || {
        // SAFETY: the caller's promise, for addresses that are not null.
        let (lent, before) = unsafe { (optional(lent.cast_mut(), "lent")?, optional(before, "before")?) };
        let lent = lent.map_or(Constants::NONE, Out::get);
        if lent.count > 0 {
            // SAFETY: the caller's promise, for addresses that are not null.
            unsafe { Out::new(lent.constants.cast_mut(), "lent.constants") }?;
        }
        // SAFETY: the caller's promise.
        let replaced = unsafe { lent::replace_constants(lent) };
        if let Some(before) = before {
            before.set(replaced);
        }
        Ok(())
    })
}

/// Sets the memory kind of tensors, for handles that the calling thread makes from now on.
///
/// # Safety
/// `before` is null or good for writing.
unsafe extern "C" fn set_handle_memory(memory: MemoryKind, before: *mut MemoryKind) -> PluginStatus {
    guard("set_handle_memory", || {
        // SAFETY: the caller's promise, for an address that is not null.
        let before = unsafe { optional(before, "before") }?;
        if ![MemoryKind::UNSPECIFIED, MemoryKind::HOST, MemoryKind::DEVICE].contains(&memory) {
            return Err(Error::bad_param(format!("memory: expected 0 to 2, got {}", memory.0)));
        }
        let replaced = site::replace_memory(memory);
        if let Some(before) = before {
            before.set(replaced);
        }
        Ok(())
    })
}

/// Longest name of a directory, in bytes.
const LONGEST_PATH: usize = 4096;

/// Sets the cache directory of engines, for handles that the calling thread makes from now on.
///
/// # Safety
/// `directory` is null or ends in NUL; `before` is null or good for writing.
unsafe extern "C" fn set_handle_cache(directory: *const c_char, before: *mut *const c_char) -> PluginStatus {
    guard("set_handle_cache", || {
        // SAFETY: the caller's promise, for an address that is not null.
        let before = unsafe { optional(before, "before") }?;
        // SAFETY: the caller's promise.
        let directory = (!directory.is_null()).then(|| unsafe { CStr::from_ptr(directory) });
        if let Some(length) = directory.map(CStr::count_bytes).filter(|length| !(1..=LONGEST_PATH).contains(length)) {
            return Err(Error::bad_param(format!("directory: expected 1 to {LONGEST_PATH} bytes, got {length}")));
        }
        let replaced = site::replace_cache(directory.map(site::interned));
        if let Some(before) = before {
            before.set(replaced.map_or(std::ptr::null(), CStr::as_ptr));
        }
        Ok(())
    })
}

/// Begins to record the calling thread's executions.
unsafe extern "C" fn begin_recording() -> PluginStatus {
    guard("begin_recording", || {
        recording::begin();
        Ok(())
    })
}

/// Ends the calling thread's recording; gives the number of its executions, and a recording if they can be repeated, else null.
///
/// # Safety
/// `executions` and `recording` are null or good for writing.
unsafe extern "C" fn end_recording(executions: *mut usize, recording: *mut RecordingPtr) -> PluginStatus {
    guard("end_recording", || {
        let (count, recorded) = recording::end();
        // SAFETY: the caller's promise.
        let (executions, out) = unsafe { (Out::new(executions, "executions")?, Out::new(recording, "recording")?) };
        let recorded = recorded.map(|recorded| RECORDINGS.insert(recorded)).transpose()?;
        executions.set(count);
        out.set(recorded.map_or(std::ptr::null_mut(), opaque));
        Ok(())
    })
}

/// Repeats a recording's launches on a stream; gives the number of the execution of one that fails.
///
/// # Safety
/// The recording's plans live, with the memory of the recorded executions, and the stream is of their device; `execution` is null
/// or good for writing.
unsafe extern "C" fn replay(recording: RecordingPtr, stream: StreamPtr, execution: *mut usize) -> PluginStatus {
    guard("replay", || {
        // SAFETY: the caller's promise, for an address that is not null.
        let execution = unsafe { optional(execution, "execution") }?;
        RECORDINGS.with(key(recording), |recording| {
            // SAFETY: the caller's promise.
            unsafe { recording.replay(stream) }.map_err(|(number, error)| {
                if let Some(execution) = execution {
                    execution.set(number);
                }
                error
            })
        })
    })
}

/// Destroys a recording.
unsafe extern "C" fn destroy_recording(recording: RecordingPtr) -> PluginStatus {
    guard("destroy_recording", || RECORDINGS.remove(key(recording)).map(drop).map_err(Error::from))
}

/// Makes an out-pointer that may be null.
///
/// # Safety
/// As [`Out::new`].
unsafe fn optional<T: Copy>(pointer: *mut T, what: &'static str) -> Result<Option<Out<T>>, Error> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    Ok(Some(unsafe { Out::new(pointer, what) }?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{null, null_mut};

    #[test]
    fn the_table_is_given_by_version() {
        for (version, want) in [
            (0, PluginStatus::NOT_APPLICABLE),
            (1, PluginStatus::SUCCESS),
            (VERSION, PluginStatus::SUCCESS),
            (VERSION + 1, PluginStatus::NOT_APPLICABLE),
            (u32::MAX, PluginStatus::NOT_APPLICABLE),
        ] {
            let mut extension = null();
            // SAFETY: a place for a table.
            assert_eq!(unsafe { hipdnnRsGetExtension(version, &mut extension) }, want, "version {version}");
            // SAFETY: the table is static.
            let got = unsafe { extension.as_ref() }.map(|extension| extension.version);
            assert_eq!(got, (want == PluginStatus::SUCCESS).then_some(VERSION), "version {version}");
        }
    }

    #[test]
    fn wrong_places_are_refused_and_change_nothing() {
        unsafe extern "C" fn run(
            _: *mut std::ffi::c_void,
            _: usize,
            _: hipdnn_sdk_bindings::hipdnn::extension::Body,
            _: *mut std::ffi::c_void,
        ) -> i32 {
            0
        }
        let lent = ParallelFor { run: Some(run), context: std::ptr::without_provenance_mut(0x10) };
        let mut places = [ParallelFor::NONE; 2];
        let askew = |place: *mut ParallelFor| place.cast::<u8>().wrapping_add(1).cast::<ParallelFor>();
        // SAFETY: every address is null, misaligned, or good for reading and writing.
        unsafe {
            assert_eq!(hipdnnRsGetExtension(1, null_mut()), PluginStatus::BAD_PARAM);
            let nowhere = Constants { constants: null(), count: 1 };
            assert_eq!(lend_constants(&nowhere, null_mut()), PluginStatus::BAD_PARAM);
            assert_eq!(lend_constants(null(), null_mut()), PluginStatus::SUCCESS);
            assert_eq!(lend_parallel_for(&lent, null_mut()), PluginStatus::SUCCESS);
            assert_eq!(lend_parallel_for(askew(&mut places[0]), &mut places[1]), PluginStatus::BAD_PARAM);
            assert_eq!(lend_parallel_for(null(), askew(&mut places[0])), PluginStatus::BAD_PARAM);
            assert_eq!(lend_parallel_for(null(), &mut places[1]), PluginStatus::SUCCESS);
            assert_eq!(places[1].context, lent.context, "what was refused changed nothing");
            assert_eq!(lend_parallel_for(null(), &mut places[1]), PluginStatus::SUCCESS);
            assert!(places[1].run.is_none());
        }
    }

    #[test]
    fn the_cache_is_said_until_another_is() {
        let mut before = c"untouched".as_ptr();
        let long = std::ffi::CString::new("x".repeat(LONGEST_PATH + 1)).unwrap();
        // SAFETY: texts end in NUL; places are null, misaligned, or good for writing.
        unsafe {
            assert_eq!(set_handle_cache(c"/a".as_ptr(), &mut before), PluginStatus::SUCCESS);
            assert!(before.is_null() && site::cache() == Some(c"/a"));
            for refused in [c"", long.as_c_str()] {
                assert_eq!(set_handle_cache(refused.as_ptr(), null_mut()), PluginStatus::BAD_PARAM);
            }
            let askew = (&raw mut before).cast::<u8>().wrapping_add(1).cast();
            assert_eq!(set_handle_cache(null(), askew), PluginStatus::BAD_PARAM);
            assert_eq!(site::cache(), Some(c"/a"), "what was refused changed nothing");
            assert_eq!(set_handle_cache(null(), &mut before), PluginStatus::SUCCESS);
            assert_eq!((CStr::from_ptr(before), site::cache()), (c"/a", None));
        }
        assert_eq!(site::interned(c"/a").as_ptr(), site::interned(c"/a").as_ptr());
    }

    #[test]
    fn recordings_are_keys_and_empty_ones_are_none() {
        let (mut executions, mut recording) = (77, opaque(1));
        // SAFETY: places are null, misaligned, or good for writing; recordings are looked up and never followed.
        unsafe {
            assert_eq!(begin_recording(), PluginStatus::SUCCESS);
            assert_eq!(end_recording(&mut executions, &mut recording), PluginStatus::SUCCESS);
            assert_eq!((executions, recording), (0, null_mut()), "nothing was executed");
            let askew = (&raw mut executions).cast::<u8>().wrapping_add(1).cast();
            for (count, out) in
                [(null_mut(), &raw mut recording), (&raw mut executions, null_mut()), (askew, &raw mut recording)]
            {
                assert_eq!(end_recording(count, out), PluginStatus::BAD_PARAM);
            }
            for wrong in [null_mut(), opaque(1 << 62 | 0x53 << 54), (&raw mut executions).cast()] {
                assert_eq!(replay(wrong, null_mut(), &mut executions), PluginStatus::BAD_PARAM);
                assert_eq!(replay(wrong, null_mut(), askew), PluginStatus::BAD_PARAM);
                assert_eq!(destroy_recording(wrong), PluginStatus::BAD_PARAM);
            }
        }
        assert_eq!(executions, 0, "what was refused changed nothing");
    }

    #[test]
    fn memory_is_said_until_another_is() {
        let mut before = MemoryKind(77);
        // SAFETY: places are null, misaligned, or good for writing.
        unsafe {
            assert_eq!(set_handle_memory(MemoryKind::DEVICE, &mut before), PluginStatus::SUCCESS);
            assert_eq!((before, site::memory()), (MemoryKind::UNSPECIFIED, MemoryKind::DEVICE));
            assert_eq!(set_handle_memory(MemoryKind(3), null_mut()), PluginStatus::BAD_PARAM);
            let askew = (&raw mut before).cast::<u8>().wrapping_add(1).cast();
            assert_eq!(set_handle_memory(MemoryKind::HOST, askew), PluginStatus::BAD_PARAM);
            assert_eq!(site::memory(), MemoryKind::DEVICE, "what was refused changed nothing");
            assert_eq!(set_handle_memory(MemoryKind::UNSPECIFIED, &mut before), PluginStatus::SUCCESS);
        }
        assert_eq!((before, site::memory()), (MemoryKind::DEVICE, MemoryKind::UNSPECIFIED));
    }
}
