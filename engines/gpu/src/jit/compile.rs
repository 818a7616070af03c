//! From text to a function on the device: by hiprtc, or from what was compiled before.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hipdnn_engine_core::error::{Error, ErrorKind};
use hipdnn_engine_core::payload::Entry;
use hipdnn_sdk_bindings::hiprtc::{Functions, hiprtcProgram, hiprtcResult};

use crate::device::Device;
use crate::folders;
use crate::hip::{Function, Gpu, Module};
use crate::store::{Store, missing};

/// Options beside the architecture. A product and a sum are rounded each, as on the host; nothing else that changes
/// results is on by default.
const OPTIONS: &[&CStr] = &[c"-std=c++17", c"-O3", c"-ffp-contract=off", c"-fno-fast-math"];

/// Options that leave out HIP's own headers, a third of a second of every compilation: the kernels' text uses the
/// compiler's builtins and declares what it calls. They change no code, so that keys in the store do not have them.
const WITHOUT_HEADERS: [&CStr; 2] = [c"--hiprtc-no-builtin-header", c"-nogpuinc"];

/// True once a kernel compiled with HIP's headers and not without them: an hiprtc that does not know the option.
static NEEDS_HEADERS: AtomicBool = AtomicBool::new(false);

/// Kind of the store's entries.
const KIND: &str = "kernel";

/// Kernels that stay loaded when no plan has them: some ten kilobytes each. A plan may be gone before its last launch is
/// done.
const REMEMBERED: usize = 256;

/// A kernel on the device.
#[derive(Debug)]
pub struct Compiled {
    function: Function,
    /// Keeps the function.
    _module: Module,
    text: Arc<str>,
    /// The code object, for plans that are stored.
    code: Box<[u8]>,
}

impl Compiled {
    /// The kernel's function.
    pub fn function(&self) -> Function {
        self.function
    }

    /// Entry of the store for the kernel: stored with a plan, so that it is not compiled again.
    pub(crate) fn entry(&self, device: &Device) -> Entry {
        Entry { kind: KIND.to_string(), key: key(device, &self.text), value: self.code.to_vec() }
    }
}

/// The kernels of one device in this process.
#[derive(Debug)]
pub struct Kernels {
    device: Arc<Device>,
    /// By text. Held while a kernel is compiled: two plans that want the same one compile it once.
    loaded: Mutex<HashMap<Arc<str>, Arc<Compiled>>>,
}

impl Kernels {
    pub(crate) fn new(device: Arc<Device>) -> Kernels {
        Kernels { device, loaded: Mutex::default() }
    }

    /// The device.
    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The kernel of that name and text.
    ///
    /// # Errors
    /// If it does not compile or load, or there is no compiler.
    pub(crate) fn get(&self, name: &CStr, text: &str, store: &Store) -> Result<Arc<Compiled>, Error> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = loaded.get(text) {
            return Ok(compiled.clone());
        }
        let _entered = self.device.enter()?;
        let compiled = Arc::new(found(&self.device, name, text, store)?);
        if loaded.len() >= REMEMBERED {
            loaded.retain(|_, compiled| Arc::strong_count(compiled) > 1);
        }
        loaded.insert(Arc::clone(&compiled.text), compiled.clone());
        Ok(compiled)
    }

    /// Checks that the kernel of that text is loaded or can be: the store has it, or kernels compile.
    ///
    /// # Errors
    /// If there is no compiler that works.
    pub(crate) fn can_get(&self, text: &str, store: &Store) -> Result<(), Error> {
        let is_there = || {
            let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner).contains_key(text);
            loaded || store.get(KIND, &key(&self.device, text)).is_some()
        };
        if is_compiler_known() || is_there() { Ok(()) } else { compiler(&self.device) }
    }
}

/// True once this process has compiled something.
static COMPILES: AtomicBool = AtomicBool::new(false);

/// Checks that kernels compile here: tried with the smallest one, until one has compiled in this process.
///
/// # Errors
/// If none does; the message says what is missing.
pub fn compiler(device: &Device) -> Result<(), Error> {
    const SMALLEST: &str = "extern \"C\" __attribute__((global)) void hipdnn_rs_smallest() {}";
    if is_compiler_known() {
        return Ok(());
    }
    let _entered = device.enter()?;
    compile(device.gpu(), device.arch(), SMALLEST).map(|_| ())
}

/// True if [`compiler`] has its answer already: kernels compile.
pub fn is_compiler_known() -> bool {
    COMPILES.load(Ordering::Relaxed)
}

/// Key of the code object in the store: all that it depends on.
pub(crate) fn key(device: &Device, text: &str) -> String {
    let options = OPTIONS.iter().map(|option| option.to_string_lossy()).collect::<Vec<_>>().join(" ");
    format!("{} {options}\n{text}", device.fingerprint())
}

/// From the store, else compiled and put there.
fn found(device: &Device, name: &CStr, text: &str, store: &Store) -> Result<Compiled, Error> {
    let key = key(device, text);
    if let Some(code) = store.get(KIND, &key) {
        match load(device, name, text, code) {
            Ok(compiled) => return Ok(compiled),
            Err(error) if store.is_sealed() => return Err(error),
            Err(error) => log::info!("a cached kernel does not load and is compiled again: {error}"),
        }
    }
    if store.is_sealed() {
        return Err(missing("kernel"));
    }
    let code = compile(device.gpu(), device.arch(), text)?;
    let compiled = load(device, name, text, code)?;
    store.put(KIND, &key, &compiled.code);
    Ok(compiled)
}

fn load(device: &Device, name: &CStr, text: &str, code: Vec<u8>) -> Result<Compiled, Error> {
    // SAFETY: hiprtc made the code; the store and stored plans give back what was put, by its checksum.
    let module = unsafe { Module::load(device.gpu(), &code) }?;
    Ok(Compiled { function: module.function(name)?, _module: module, text: text.into(), code: code.into() })
}

/// A program of hiprtc.
struct Program<'a> {
    hiprtc: &'a Functions,
    raw: hiprtcProgram,
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: `compile` made the program, and nobody else has it.
        let status = unsafe { (self.hiprtc.hiprtcDestroyProgram)(&mut self.raw) };
        if let Err(error) = check(status, "hiprtcDestroyProgram") {
            log::warn!("{error}");
        }
    }
}

fn check(status: hiprtcResult, call: &str) -> Result<(), Error> {
    if status == hiprtcResult::HIPRTC_SUCCESS {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Device, format!("{call} gave {status} ({})", status.0)))
}

/// True unless an hiprtc was found to want HIP's headers in every kernel.
pub(super) fn can_do_without_headers() -> bool {
    !NEEDS_HEADERS.load(Ordering::Relaxed)
}

/// The code object of that text for an architecture.
pub(crate) fn compile(gpu: &Gpu, arch: &str, text: &str) -> Result<Vec<u8>, Error> {
    if can_do_without_headers()
        && let Ok(code) = compile_with(gpu, arch, text, &WITHOUT_HEADERS)
    {
        return Ok(code);
    }
    let code = compile_with(gpu, arch, text, &[])?;
    if !NEEDS_HEADERS.swap(true, Ordering::Relaxed) {
        log::info!("hiprtc wants HIP's headers in every kernel, which take it longer to compile");
    }
    Ok(code)
}

/// The same with these options beside the usual ones; with HIP's headers unless they leave them out.
pub(super) fn compile_with(gpu: &Gpu, arch: &str, text: &str, more: &[&CStr]) -> Result<Vec<u8>, Error> {
    let hiprtc = gpu.hiprtc.as_ref().map_err(|reason| {
        Error::new(ErrorKind::Device, format!("kernels can't be compiled, hiprtc can't be used: {reason}"))
    })?;
    folders::room()?;
    let source = CString::new(text).expect("generated text has no NUL");
    let architecture = CString::new(format!("--offload-arch={arch}")).expect("architectures have no NUL");
    let mut program = Program { hiprtc, raw: std::ptr::null_mut() };
    // SAFETY: a place for one program; texts end in NUL; there are no headers.
    let status = unsafe {
        (hiprtc.hiprtcCreateProgram)(
            &mut program.raw,
            source.as_ptr(),
            c"hipdnn_rs.hip".as_ptr(),
            0,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    if let Err(error) = check(status, "hiprtcCreateProgram") {
        // There is nothing to destroy.
        std::mem::forget(program);
        return Err(error);
    }
    let mut options: Vec<_> = OPTIONS.iter().chain(more).map(|option| option.as_ptr()).collect();
    options.push(architecture.as_ptr());
    // SAFETY: the program is alive; so many options, which end in NUL.
    let status = unsafe { (hiprtc.hiprtcCompileProgram)(program.raw, options.len() as i32, options.as_mut_ptr()) };
    check(status, "hiprtcCompileProgram").map_err(|error| {
        log::debug!("{text}");
        Error::new(error.kind(), format!("{error} for {arch}: {}", said(&program)))
    })?;
    let mut bytes = 0;
    // SAFETY: the program is compiled; a place for its size.
    check(unsafe { (hiprtc.hiprtcGetCodeSize)(program.raw, &mut bytes) }, "hiprtcGetCodeSize")?;
    let mut code = vec![0u8; bytes];
    // SAFETY: as many bytes as it said.
    check(unsafe { (hiprtc.hiprtcGetCode)(program.raw, code.as_mut_ptr().cast()) }, "hiprtcGetCode")?;
    COMPILES.store(true, Ordering::Relaxed);
    Ok(code)
}

/// The compiler's log.
fn said(program: &Program<'_>) -> String {
    let mut bytes = 0;
    // SAFETY: the program is alive; a place for the size of its log.
    let status = unsafe { (program.hiprtc.hiprtcGetProgramLogSize)(program.raw, &mut bytes) };
    if check(status, "hiprtcGetProgramLogSize").is_err() || bytes == 0 {
        return "the compiler said nothing".to_owned();
    }
    let mut text = vec![0u8; bytes];
    // SAFETY: as many bytes as it said.
    let status = unsafe { (program.hiprtc.hiprtcGetProgramLog)(program.raw, text.as_mut_ptr().cast()) };
    match check(status, "hiprtcGetProgramLog") {
        Ok(()) => String::from_utf8_lossy(&text).trim_end_matches('\0').trim().to_owned(),
        Err(error) => error.to_string(),
    }
}
