//! Programs: the text is translated and compiled to machine code of NVIDIA's.

use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use cudarc::nvrtc::sys::{self, nvrtcResult};
use hipdnn_sdk_bindings::hiprtc::{hiprtcProgram, hiprtcResult};

use super::translate::{Bodies, translate};
use crate::device;

/// Assembler message about a kernel whose static shared memory is beyond a block's.
const TOO_MUCH_SHARED: &str = "uses too much shared data";

/// Option of hiprtc that names the architecture.
const ARCHITECTURE: &str = "--offload-arch=";

/// What is NVRTC's by default, or has no counterpart: kernels are always optimized, and exact arithmetic is the default but for `fmad`.
const WITHOUT_COUNTERPART: [&str; 7] =
    ["-O3", "-O2", "-fno-fast-math", "-ffp-contract=off", "-fgpu-rdc", "--hiprtc-no-builtin-header", "-nogpuinc"];

/// A program of hiprtc.
#[derive(Default)]
struct Program {
    text: String,
    code: Vec<u8>,
    log: CString,
}

type Result<T = ()> = std::result::Result<T, hiprtcResult>;

fn answer(body: impl FnOnce() -> Result) -> hiprtcResult {
    match catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(hiprtcResult::HIPRTC_ERROR_INTERNAL_ERROR)) {
        Ok(()) => hiprtcResult::HIPRTC_SUCCESS,
        Err(status) => status,
    }
}

/// A result of NVRTC, whose numbers hiprtc took.
fn check(result: nvrtcResult) -> Result {
    match result {
        nvrtcResult::NVRTC_SUCCESS => Ok(()),
        other => Err(hiprtcResult(other as u32)),
    }
}

/// # Safety
/// The handle is null, or a program of [`hiprtcCreateProgram`] that nobody else uses now and that lives as long as the result.
unsafe fn program<'a>(raw: hiprtcProgram) -> Result<&'a mut Program> {
    // SAFETY: the caller's promise.
    unsafe { raw.cast::<Program>().as_mut() }.ok_or(hiprtcResult::HIPRTC_ERROR_INVALID_PROGRAM)
}

/// # Safety
/// The address is null, or of a C string that lives as long as the result.
unsafe fn text<'a>(raw: *const c_char) -> Result<&'a CStr> {
    if raw.is_null() {
        return Err(hiprtcResult::HIPRTC_ERROR_INVALID_INPUT);
    }
    // SAFETY: it is not null, so the caller's promise.
    Ok(unsafe { CStr::from_ptr(raw) })
}

/// # Safety
/// The address is null, or a place for a `T`.
unsafe fn put<T>(place: *mut T, value: T) -> Result {
    if place.is_null() {
        return Err(hiprtcResult::HIPRTC_ERROR_INVALID_INPUT);
    }
    // SAFETY: it is not null, so the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcVersion(major: *mut c_int, minor: *mut c_int) -> hiprtcResult {
    // SAFETY: hiprtc's contract: two places for numbers.
    answer(|| unsafe {
        put(major, 7)?;
        put(minor, 2)
    })
}

#[unsafe(no_mangle)]
extern "C" fn hiprtcGetErrorString(status: hiprtcResult) -> *const c_char {
    let name = match status {
        hiprtcResult::HIPRTC_SUCCESS => c"HIPRTC_SUCCESS",
        hiprtcResult::HIPRTC_ERROR_INVALID_INPUT => c"HIPRTC_ERROR_INVALID_INPUT",
        hiprtcResult::HIPRTC_ERROR_INVALID_PROGRAM => c"HIPRTC_ERROR_INVALID_PROGRAM",
        hiprtcResult::HIPRTC_ERROR_INVALID_OPTION => c"HIPRTC_ERROR_INVALID_OPTION",
        hiprtcResult::HIPRTC_ERROR_COMPILATION => c"HIPRTC_ERROR_COMPILATION",
        hiprtcResult::HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE => c"HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE",
        _ => c"HIPRTC_ERROR_INTERNAL_ERROR",
    };
    name.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcCreateProgram(
    place: *mut hiprtcProgram,
    source: *const c_char,
    _name: *const c_char,
    headers: c_int,
    _contents: *const *const c_char,
    _names: *const *const c_char,
) -> hiprtcResult {
    answer(|| {
        if headers != 0 {
            return Err(hiprtcResult::HIPRTC_ERROR_INVALID_INPUT);
        }
        // SAFETY: hiprtc's contract: a text.
        let text = unsafe { text(source) }?.to_string_lossy().into_owned();
        // SAFETY: hiprtc's contract: a place for one handle.
        let place = unsafe { place.as_mut() }.ok_or(hiprtcResult::HIPRTC_ERROR_INVALID_INPUT)?;
        *place = Box::into_raw(Box::new(Program { text, ..Program::default() })).cast();
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcDestroyProgram(place: *mut hiprtcProgram) -> hiprtcResult {
    answer(|| {
        // SAFETY: hiprtc's contract: the place of a program that `hiprtcCreateProgram` made, and that nobody uses any more.
        unsafe {
            let made: *mut Program = program(*place.as_ref().ok_or(hiprtcResult::HIPRTC_ERROR_INVALID_PROGRAM)?)?;
            drop(Box::from_raw(made));
            put(place, std::ptr::null_mut())
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcCompileProgram(
    raw: hiprtcProgram,
    count: c_int,
    options: *const *const c_char,
) -> hiprtcResult {
    answer(|| {
        // SAFETY: hiprtc's contract: a program.
        let program = unsafe { program(raw) }?;
        let count = usize::try_from(count).map_err(|_| hiprtcResult::HIPRTC_ERROR_INVALID_INPUT)?;
        // SAFETY: hiprtc's contract: so many texts.
        let option = |at| Ok(unsafe { text(*options.add(at)) }?.to_string_lossy().into_owned());
        let given = (0..count).map(option).collect::<Result<Vec<String>>>()?;
        compile(program, &given)
    })
}

/// NVRTC's options for hiprtc's.
fn nvrtc_options(given: &[String], arch: impl FnOnce() -> Result<String>) -> Result<Vec<CString>> {
    let named = given.iter().find_map(|option| option.strip_prefix(ARCHITECTURE)).map(str::to_owned);
    let arch = named.map_or_else(arch, Ok)?;
    let has_fused = !given.iter().any(|option| option == "-ffp-contract=off");
    // Generated texts have variables that nothing uses, of which warnings would hide an error.
    let own = [
        format!("--gpu-architecture={arch}"),
        format!("--fmad={has_fused}"),
        "-default-device".to_owned(),
        "--disable-warnings".to_owned(),
    ];
    let kept = given.iter().filter(|option| {
        !option.starts_with(ARCHITECTURE) && !WITHOUT_COUNTERPART.iter().any(|without| option == without)
    });
    let text = |option: String| CString::new(option).map_err(|_| hiprtcResult::HIPRTC_ERROR_INVALID_OPTION);
    own.into_iter().chain(kept.cloned()).map(text).collect()
}

fn compile(program: &mut Program, given: &[String]) -> Result {
    let arch = || device::device(device::current()).and_then(|device| device.arch());
    let options = nvrtc_options(given, || arch().map_err(|_| hiprtcResult::HIPRTC_ERROR_INTERNAL_ERROR))?;
    let (code, log) = machine_code(&program.text, &options);
    program.log = log;
    program.code = code?;
    Ok(())
}

/// The machine code of HIP's text by NVRTC's options, and what the compiler said.
fn machine_code(text: &str, options: &[CString]) -> (Result<Vec<u8>>, CString) {
    if !is_nvrtc_there() {
        let log = c"NVRTC (libnvrtc.so) can't be opened".to_owned();
        return (Err(hiprtcResult::HIPRTC_ERROR_COMPILATION), log);
    }
    let (code, log) = compiled(&translate(text, Bodies::Two), options);
    if code.is_err() && log.to_string_lossy().contains(TOO_MUCH_SHARED) {
        return compiled(&translate(text, Bodies::One), options);
    }
    (code, log)
}

/// The machine code of a text for NVRTC, and what it said.
fn compiled(text: &str, options: &[CString]) -> (Result<Vec<u8>>, CString) {
    let compiler = match CString::new(text).map_err(|_| hiprtcResult::HIPRTC_ERROR_INVALID_INPUT) {
        Ok(text) => Nvrtc::new(&text),
        Err(status) => Err(status),
    };
    match compiler {
        Ok(compiler) => {
            let compiled = compiler.compile(options);
            let log = compiler.log();
            (compiled.and_then(|()| compiler.bytes(sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN)), log)
        }
        Err(status) => (Err(status), CString::default()),
    }
}

/// The machine code of HIP's text for an architecture.
///
/// # Errors
/// What the compiler said.
pub(crate) fn code_for(arch: &str, text: &str) -> std::result::Result<Vec<u8>, String> {
    let given = ["-std=c++17".to_owned(), format!("{ARCHITECTURE}{arch}")];
    let options = nvrtc_options(&given, || Ok(arch.to_owned())).map_err(|status| status.to_string())?;
    let (code, log) = machine_code(text, &options);
    code.map_err(|status| format!("{status}: {}", log.to_string_lossy()))
}

fn is_nvrtc_there() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    // SAFETY: opening NVRTC runs its initializers, as for every user of it.
    *ANSWER.get_or_init(|| unsafe { sys::is_culib_present() })
}

/// A program of NVRTC.
struct Nvrtc(sys::nvrtcProgram);

impl Nvrtc {
    fn new(text: &CStr) -> Result<Nvrtc> {
        let mut raw = std::ptr::null_mut();
        let (names, contents) = (std::ptr::null(), std::ptr::null());
        // SAFETY: a place for one handle; texts that end in NUL; no headers.
        check(unsafe {
            sys::nvrtcCreateProgram(&mut raw, text.as_ptr(), c"prelude.cuh".as_ptr(), 0, names, contents)
        })?;
        Ok(Nvrtc(raw))
    }

    fn compile(&self, options: &[CString]) -> Result {
        let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program is alive; so many texts.
        check(unsafe { sys::nvrtcCompileProgram(self.0, options.len() as c_int, options.as_ptr()) })
    }

    /// What the compiler said.
    fn log(&self) -> CString {
        let mut log = self.bytes(sys::nvrtcGetProgramLogSize, sys::nvrtcGetProgramLog).unwrap_or_default();
        log.retain(|byte| *byte != 0);
        CString::new(log).expect("without NUL")
    }

    /// What two functions of NVRTC tell: how many bytes, and these.
    fn bytes(
        &self,
        size: unsafe fn(sys::nvrtcProgram, *mut usize) -> nvrtcResult,
        get: unsafe fn(sys::nvrtcProgram, *mut c_char) -> nvrtcResult,
    ) -> Result<Vec<u8>> {
        let mut count = 0;
        // SAFETY: the program is alive; a place for one number.
        check(unsafe { size(self.0, &mut count) })?;
        let mut bytes = vec![0u8; count];
        // SAFETY: as many bytes as it said.
        check(unsafe { get(self.0, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for Nvrtc {
    fn drop(&mut self) {
        // SAFETY: `new` made it, and nobody else has it. There is nobody to tell an error.
        let _ = unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcGetProgramLogSize(raw: hiprtcProgram, bytes: *mut usize) -> hiprtcResult {
    // SAFETY: hiprtc's contract: a program, and a place for one number.
    answer(|| unsafe { put(bytes, program(raw)?.log.count_bytes() + 1) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcGetProgramLog(raw: hiprtcProgram, to: *mut c_char) -> hiprtcResult {
    // SAFETY: hiprtc's contract: a program, and a place for as many bytes as the function above says.
    answer(|| unsafe {
        let log = program(raw)?.log.as_bytes_with_nul();
        to.cast::<u8>().copy_from_nonoverlapping(log.as_ptr(), log.len());
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcGetCodeSize(raw: hiprtcProgram, bytes: *mut usize) -> hiprtcResult {
    // SAFETY: hiprtc's contract: a program, and a place for one number.
    answer(|| unsafe { put(bytes, program(raw)?.code.len()) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hiprtcGetCode(raw: hiprtcProgram, to: *mut c_char) -> hiprtcResult {
    // SAFETY: hiprtc's contract: a program, and a place for as many bytes as the function above says.
    answer(|| unsafe {
        let code = &program(raw)?.code;
        to.cast::<u8>().copy_from_nonoverlapping(code.as_ptr(), code.len());
        Ok(())
    })
}

/// The engine's kernels have C names, which are not asked for.
#[unsafe(no_mangle)]
extern "C" fn hiprtcAddNameExpression(_program: hiprtcProgram, _expression: *const c_char) -> hiprtcResult {
    hiprtcResult::HIPRTC_ERROR_INTERNAL_ERROR
}

/// See [`hiprtcAddNameExpression`].
#[unsafe(no_mangle)]
extern "C" fn hiprtcGetLoweredName(
    _program: hiprtcProgram,
    _expression: *const c_char,
    _name: *mut *const c_char,
) -> hiprtcResult {
    hiprtcResult::HIPRTC_ERROR_INTERNAL_ERROR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_their_counterparts() {
        let given = ["-std=c++17", "-O3", "-ffp-contract=off", "--offload-arch=sm_90"].map(str::to_owned);
        let options = nvrtc_options(&given, || panic!("the architecture is named")).unwrap();
        assert_eq!(
            options,
            [c"--gpu-architecture=sm_90", c"--fmad=false", c"-default-device", c"--disable-warnings", c"-std=c++17"]
        );
        let options = nvrtc_options(&[], || Ok("sm_80".to_owned())).unwrap();
        assert_eq!(options, [c"--gpu-architecture=sm_80", c"--fmad=true", c"-default-device", c"--disable-warnings"]);
    }
}
