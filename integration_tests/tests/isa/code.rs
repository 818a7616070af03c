//! Code objects of AMD GPUs: what the compiler says of a kernel, and its instructions.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use hipdnn_sdk_bindings::library::Library;
use object::elf::FileHeader64;
use object::read::elf::{ElfFile64, FileHeader, SectionHeader};
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol};
use rmpv::Value;

/// Type of the note, of AMDGPU's, that holds the metadata, since code objects of version 3.
const NT_AMDGPU_METADATA: u32 = 32;

/// A kernel of a code object.
pub(crate) struct Kernel {
    /// Vector registers a lane, scalar ones a wave.
    pub(crate) vgprs: u64,
    pub(crate) sgprs: u64,
    /// Registers that were spilled.
    pub(crate) spills: u64,
    /// Bytes of scratch memory a lane.
    pub(crate) scratch: u64,
    /// Bytes of LDS a work-group.
    pub(crate) lds: u64,
    /// Lanes of a wave.
    pub(crate) wave: u64,
    /// Threads of a work-group, at most.
    pub(crate) threads: u64,
    pub(crate) instructions: Vec<Instruction>,
}

/// An instruction as the disassembler prints it.
pub(crate) struct Instruction {
    /// Offset in the code.
    pub(crate) address: u64,
    pub(crate) mnemonic: String,
    pub(crate) operands: String,
}

/// The kernels of a code object, in the order of its metadata.
///
/// # Errors
/// If it is no code object, or the disassembler is not there.
pub(crate) fn kernels(architecture: &str, bytes: &[u8]) -> Result<Vec<Kernel>, String> {
    let said = |problem: object::Error| format!("the code object can't be read: {problem}");
    let file = ElfFile64::<LittleEndian>::parse(bytes).map_err(said)?;
    let metadata = metadata(bytes).map_err(said)?.ok_or("the code object has no metadata")?;
    let kernels = field(&metadata, "amdhsa.kernels").and_then(Value::as_array).ok_or("the metadata names no kernel")?;
    let text = file.section_by_name(".text").ok_or("the code object has no code")?;
    let code = text.data().map_err(said)?;
    kernels
        .iter()
        .map(|kernel| {
            let number = |name: &str| field(kernel, name).and_then(Value::as_u64).unwrap_or(0);
            let name = field(kernel, ".name").and_then(Value::as_str).ok_or("a kernel has no name")?;
            let symbol = file.symbols().chain(file.dynamic_symbols()).find(|symbol| symbol.name() == Ok(name));
            let symbol = symbol.ok_or_else(|| format!("the code object has no symbol {name}"))?;
            let from = (symbol.address() - text.address()) as usize;
            let code = &code[from..from + symbol.size() as usize];
            Ok(Kernel {
                vgprs: number(".vgpr_count"),
                sgprs: number(".sgpr_count"),
                spills: number(".vgpr_spill_count") + number(".sgpr_spill_count"),
                scratch: number(".private_segment_fixed_size"),
                lds: number(".group_segment_fixed_size"),
                wave: number(".wavefront_size"),
                threads: number(".max_flat_workgroup_size"),
                instructions: disassembled(architecture, code)?,
            })
        })
        .collect()
}

/// Name and version of the compiler that made a code object.
///
/// # Errors
/// If it does not say.
pub(crate) fn compiler(bytes: &[u8]) -> Result<String, String> {
    let said = |problem: object::Error| format!("the code object can't be read: {problem}");
    let file = ElfFile64::<LittleEndian>::parse(bytes).map_err(said)?;
    let comment = file.section_by_name(".comment").ok_or("the code object names no compiler")?;
    let first = comment.data().map_err(said)?.split(|byte| *byte == 0).find(|text| !text.is_empty());
    Ok(String::from_utf8_lossy(first.unwrap_or_default()).into_owned())
}

/// The note of a code object that describes its kernels.
fn metadata(bytes: &[u8]) -> object::Result<Option<Value>> {
    let header = FileHeader64::<LittleEndian>::parse(bytes)?;
    let endian = header.endian()?;
    for section in header.section_headers(endian, bytes)? {
        let Some(mut notes) = section.notes(endian, bytes)? else { continue };
        while let Some(note) = notes.next()? {
            if note.n_type(endian) == NT_AMDGPU_METADATA && note.name() == b"AMDGPU" {
                return Ok(rmpv::decode::read_value(&mut note.desc()).ok());
            }
        }
    }
    Ok(None)
}

fn field<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    map.as_map()?.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value)
}

type Read = unsafe extern "C" fn(from: u64, to: *mut c_char, size: u64, data: *mut c_void) -> u64;
type Print = unsafe extern "C" fn(text: *const c_char, data: *mut c_void);
type PrintAddress = unsafe extern "C" fn(address: u64, data: *mut c_void);

/// AMD's disassembler: functions of `amd_comgr.h`. A disassembly is a structure of one number there.
struct Comgr {
    create: unsafe extern "C" fn(*const c_char, Read, Print, PrintAddress, *mut u64) -> c_int,
    destroy: unsafe extern "C" fn(u64) -> c_int,
    disassemble: unsafe extern "C" fn(u64, u64, *mut c_void, *mut u64) -> c_int,
    // The functions above are good as long as it is open.
    _library: Library,
}

impl Comgr {
    fn get() -> Result<&'static Comgr, String> {
        static OPENED: OnceLock<Result<Comgr, String>> = OnceLock::new();
        OPENED.get_or_init(Comgr::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Comgr, String> {
        const NAMES: [&str; 2] = ["libamd_comgr.so.3", "libamd_comgr.so.2"];
        let said = |problem: hipdnn_sdk_bindings::library::LibraryError| problem.to_string();
        // SAFETY: these are the compiler library's own names; loading it is what every user of it does. It stays in a static.
        let library = unsafe { Library::open("AMD's disassembler", NAMES) }.map_err(said)?;
        // SAFETY: the signatures are those of `amd_comgr.h`, and the library stays beside the functions.
        unsafe {
            Ok(Comgr {
                create: library.symbol(c"amd_comgr_create_disassembly_info").map_err(said)?,
                destroy: library.symbol(c"amd_comgr_destroy_disassembly_info").map_err(said)?,
                disassemble: library.symbol(c"amd_comgr_disassemble_instruction").map_err(said)?,
                _library: library,
            })
        }
    }
}

/// State of the disassembler's callbacks: the code, whose first byte has the address 0, and the last text.
struct Session<'a> {
    code: &'a [u8],
    text: String,
}

unsafe extern "C" fn read(from: u64, to: *mut c_char, size: u64, data: *mut c_void) -> u64 {
    // SAFETY: `disassembled` passes its session, which no one else has while the disassembler runs.
    let session = unsafe { &*data.cast::<Session<'_>>() };
    let rest = usize::try_from(from).ok().and_then(|from| session.code.get(from..)).unwrap_or_default();
    let count = rest.len().min(usize::try_from(size).unwrap_or(usize::MAX));
    // SAFETY: `to` has room for `size` bytes, and `count` is no more.
    unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), to.cast(), count) };
    count as u64
}

unsafe extern "C" fn print(text: *const c_char, data: *mut c_void) {
    // SAFETY: `disassembled` passes its session, which no one else has while the disassembler runs.
    let session = unsafe { &mut *data.cast::<Session<'_>>() };
    // SAFETY: the disassembler's texts end in NUL.
    session.text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
}

unsafe extern "C" fn print_address(_: u64, _: *mut c_void) {}

/// The instructions of `code` up to its end.
fn disassembled(architecture: &str, code: &[u8]) -> Result<Vec<Instruction>, String> {
    let comgr = Comgr::get()?;
    let isa = std::ffi::CString::new(format!("amdgcn-amd-amdhsa--{architecture}")).expect("architectures have no NUL");
    let mut info = 0;
    // SAFETY: the name ends in NUL, the callbacks have the header's signatures, and there is a place for the answer.
    if unsafe { (comgr.create)(isa.as_ptr(), read, print, print_address, &mut info) } != 0 {
        return Err(format!("there is no disassembler for {architecture}"));
    }
    let mut session = Session { code, text: String::new() };
    let mut instructions = Vec::new();
    let mut address = 0;
    while address < code.len() as u64 {
        let mut size = 0;
        let data = (&raw mut session).cast();
        // SAFETY: the disassembly is live, and the callbacks get the session, which outlives the call.
        let status = unsafe { (comgr.disassemble)(info, address, data, &mut size) };
        if status != 0 || size == 0 {
            break;
        }
        let text = session.text.split("//").next().unwrap_or_default().trim();
        let (mnemonic, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        instructions.push(Instruction { address, mnemonic: mnemonic.to_owned(), operands: operands.trim().to_owned() });
        address += size;
    }
    // SAFETY: the disassembly is live and not used again.
    unsafe { (comgr.destroy)(info) };
    match address >= code.len() as u64 {
        true => Ok(instructions),
        false => Err(format!("the code for {architecture} can't be disassembled at byte {address}")),
    }
}
