//! The tables of HIP's, hiprtc's and MIOpen's functions, made by bindgen from the headers that the emulated GPU's
//! packages bring.

use std::path::{Path, PathBuf};
use std::process::Command;

use bindgen::{Builder, EnumVariation, Formatter, RustEdition, RustTarget};

use super::{Files, MARK, Outcome, settle, table, wheel};
use crate::{Result, emulated_gpu, workspace};

/// Directory of the generated code.
pub(super) const DIRECTORY: &str = "sdk-bindings/src/generated";

/// libclang, which bindgen reads headers with. It comes without headers of its own: the system's are used.
const LIBCLANG: &str = "libclang==18.1.1";

/// Names the directory of libclang to bindgen.
const LIBCLANG_PATH: &str = "LIBCLANG_PATH";

/// A library's functions: those that every library has and those that some lack. Names are regular expressions.
struct Api {
    file: &'static str,
    /// The library's noun, for the first line.
    library: &'static str,
    includes: &'static str,
    functions: &'static [&'static str],
    /// May be missing.
    optional: &'static [&'static str],
    constants: &'static [&'static str],
    /// Declared by another module here.
    foreign: &'static [&'static str],
    imports: &'static str,
    /// Macro that declares functions which libraries may lack, but for `settled`.
    beta: Option<&'static str>,
    settled: &'static [&'static str],
}

const HIP: Api = Api {
    file: "hip.rs",
    library: "HIP",
    includes: "#include <hip/hip_runtime_api.h>\n#include <hip/hip_ext.h>\n",
    functions: &[
        "hipInit",
        "hip(Runtime|Driver)GetVersion",
        "hipGetDeviceCount",
        "hip[GS]etDevice",
        "hipGetDevicePropertiesR0600",
        "hipDevice(GetAttribute|Synchronize)",
        "hip(GetLastError|PeekAtLastError|GetErrorString|GetErrorName)",
        "hip(Malloc|Free|HostMalloc|HostFree|MemGetInfo|PointerGetAttributes)",
        "hip(Memcpy|Memset)(Async)?",
        "hipStream(CreateWithFlags|Destroy|Synchronize|Query|WaitEvent|GetDevice|GetFlags)",
        "hipStream(IsCapturing|BeginCapture|EndCapture)",
        "hipThreadExchangeStreamCaptureMode",
        "hipEvent(CreateWithFlags|Destroy|Record|Synchronize|Query|ElapsedTime)",
        "hipGraph(GetNodes|GetEdges|Destroy|NodeGetType)",
        "hipGraph(Kernel|Memset|Memcpy)NodeGetParams",
        "hipModule(LoadData|GetFunction|LaunchKernel|Unload)",
        "hipExtModuleLaunchKernel",
    ],
    optional: &[
        "hipDevice(TotalMem|GetPCIBusId|GetUuid|GetDefaultMemPool|CanAccessPeer|EnablePeerAccess)",
        "hip(Malloc|Free)Async",
        "hipMemPool(TrimTo|SetAttribute)",
        "hipMemGetAddressRange",
        "hipMemset(D16|D32)Async",
        "hipMemcpy2DAsync",
        "hipStream(Create|CreateWithPriority|GetCaptureInfo|GetPriority)",
        "hipDeviceGetStreamPriorityRange",
        "hipLaunchHostFunc",
        "hipGraph(Create|GetRootNodes|Instantiate|InstantiateWithFlags|ExecDestroy|Launch|Upload)",
        "hipModule(Load|GetGlobal|LaunchCooperativeKernel)",
        "hipModuleOccupancyMax(ActiveBlocksPerMultiprocessor|PotentialBlockSize)",
        "hipFuncGetAttribute",
        "hipGetStreamDeviceId",
        "hipDrvGetErrorName",
        "hipExtGetLastError",
        "hipGetProcAddress",
    ],
    constants: &[
        "HIP_VERSION(_MAJOR|_MINOR|_PATCH)?",
        "hipStream(Default|NonBlocking)",
        "hipEvent(Default|BlockingSync|DisableTiming|DisableSystemFence)",
        "hipHostMalloc(Default|Portable|Mapped|NonCoherent)",
    ],
    foreign: &[],
    imports: "",
    beta: None,
    settled: &[],
};

const HIPRTC: Api = Api {
    file: "hiprtc.rs",
    library: "hiprtc",
    includes: "#include <hip/hiprtc.h>\n",
    functions: &[
        "hiprtc(GetErrorString|Version|AddNameExpression|GetLoweredName)",
        "hiprtc(Create|Compile|Destroy)Program",
        "hiprtcGet(Code|ProgramLog)(Size)?",
    ],
    optional: &["hiprtcGetBitcode(Size)?", "hiprtcLink.*"],
    constants: &[],
    foreign: &[],
    imports: "",
    beta: None,
    settled: &[],
};

const MIOPEN: Api = Api {
    file: "miopen.rs",
    library: "MIOpen",
    includes: "#include <miopen/version.h>\n#include <miopen/miopen.h>\n\
               // Exported by newer libraries, and left out of their headers.\n\
               extern \"C\" {\n\
               miopenStatus_t miopenConvolutionForwardGetWorkSpaceSizeRange(miopenHandle_t handle, \
               const miopenTensorDescriptor_t wDesc, const miopenTensorDescriptor_t xDesc, \
               const miopenConvolutionDescriptor_t convDesc, const miopenTensorDescriptor_t yDesc, \
               size_t* minWorkSpaceSize, size_t* maxWorkSpaceSize);\n\
               miopenStatus_t miopenConvolutionBackwardDataGetWorkSpaceSizeRange(miopenHandle_t handle, \
               const miopenTensorDescriptor_t dyDesc, const miopenTensorDescriptor_t wDesc, \
               const miopenConvolutionDescriptor_t convDesc, const miopenTensorDescriptor_t dxDesc, \
               size_t* minWorkSpaceSize, size_t* maxWorkSpaceSize);\n\
               miopenStatus_t miopenConvolutionBackwardWeightsGetWorkSpaceSizeRange(miopenHandle_t handle, \
               const miopenTensorDescriptor_t dyDesc, const miopenTensorDescriptor_t xDesc, \
               const miopenConvolutionDescriptor_t convDesc, const miopenTensorDescriptor_t dwDesc, \
               size_t* minWorkSpaceSize, size_t* maxWorkSpaceSize);\n\
               }\n",
    functions: &["miopen.*"],
    optional: &[
        "miopenConvolution.*GetWorkSpaceSizeRange",
        // Not in 3.4, which ROCm 6.4 has.
        "miopenBatchNorm(ForwardInference|ForwardTraining|Backward)Activation",
        "miopenExecuteFusionPlan_v2",
        "miopen[GS]etTuningPolicy",
        "miopenGetLayerNormBackwardWorkspaceSize",
        "miopenLayerNormBackward",
    ],
    constants: &["MIOPEN_VERSION_(MAJOR|MINOR|PATCH)"],
    foreign: &["ihip.*", "hip.*"],
    imports: "use super::hip::hipStream_t;\n",
    beta: Some("MIOPEN_BETA_API"),
    settled: &["miopenSetTensorDescriptorV2"],
};

/// Generates the tables, or checks that they are current.
///
/// # Errors
/// If a header can't be parsed, or files can't be read or written.
pub(super) fn generate(check: bool) -> Result<Outcome> {
    let Some(installation) = emulated_gpu::fetched() else {
        return Ok(Outcome::Skipped("no headers: `cargo xtask emulated-gpu setup` fetches them".to_owned()));
    };
    let headers = installation.headers();
    let origin = origin(&headers)?;
    let directory = workspace::root().join(DIRECTORY);
    if check {
        let committed = std::fs::read_to_string(directory.join(HIP.file))?;
        let made_from = committed.lines().nth(1).unwrap_or_default();
        if made_from != origin {
            let [made_from, origin] =
                [made_from, &origin].map(|line| line.trim_start_matches("// From the headers of "));
            return Ok(Outcome::Skipped(format!(
                "it was made from the headers of {made_from}; here are those of {origin}"
            )));
        }
    }
    let includes = match system_includes() {
        Ok(includes) => includes,
        Err(reason) => return Ok(Outcome::Skipped(reason)),
    };
    if let Err(reason) = provide_libclang() {
        return Ok(Outcome::Skipped(reason));
    }
    let parser = Parser { headers, includes };
    let mut fresh = Files::new();
    for api in [HIP, HIPRTC, MIOPEN] {
        let text = parser.module(&api).map_err(|problem| format!("{}: {problem}", api.library))?;
        fresh.insert(api.file.to_owned(), format!("{MARK}{origin}\n\n{text}").into_bytes());
    }
    settle(&directory, &fresh, check)
}

/// The line that says which headers the code was made from.
fn origin(headers: &Path) -> Result<String> {
    let version = |file: &str, prefix: &str| -> Result<String> {
        let path = headers.join(file);
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let parts = ["MAJOR", "MINOR", "PATCH"].map(|part| defined(&text, &format!("{prefix}_VERSION_{part}")));
        let parts: Option<Vec<_>> = parts.into_iter().collect();
        Ok(parts.ok_or_else(|| format!("{} has no version", path.display()))?.join("."))
    };
    let (hip, miopen) = (version("hip/hip_version.h", "HIP")?, version("miopen/version.h", "MIOPEN")?);
    Ok(format!("// From the headers of HIP {hip} and MIOpen {miopen}."))
}

/// The value of `#define name value`.
fn defined<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    header.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("#define") && words.next() == Some(name)).then(|| words.next())?
    })
}

/// The system compiler's directory of C headers, used after those of C++ that libclang finds by itself.
fn system_includes() -> Result<PathBuf, String> {
    let output = Command::new("c++").arg("-print-file-name=include").output();
    let output = output.map_err(|e| format!("c++, whose headers are needed: {e}"))?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    if path.join("stddef.h").is_file() { Ok(path) } else { Err("c++ names no directory that has stddef.h".to_owned()) }
}

/// Makes bindgen find libclang, fetching it if need be.
fn provide_libclang() -> Result<(), String> {
    const FILE: &str = "libclang-18.1.1.data/platlib/clang/native/libclang.so";
    if std::env::var_os(LIBCLANG_PATH).is_some() {
        return Ok(());
    }
    let cache = workspace::cache().join("libclang");
    let library = match cache.join(FILE) {
        library if library.is_file() => library,
        _ => wheel::fetch(LIBCLANG, &cache, FILE)?,
    };
    // SAFETY: all of this program reads the environment through the standard library, which has a lock for it; libclang,
    // which does not, isn't loaded yet.
    unsafe { std::env::set_var(LIBCLANG_PATH, library.parent().unwrap_or(&cache)) };
    Ok(())
}

struct Parser {
    headers: PathBuf,
    includes: PathBuf,
}

impl Parser {
    fn module(&self, api: &Api) -> Result<String> {
        let declarations = self.declarations(api, true)?;
        let mut always = table::functions(&self.declarations(api, false)?)?;
        always.extend(api.settled.iter().map(|name| (*name).to_owned()));
        let mut patterns = Vec::new();
        for pattern in api.optional {
            patterns.push(regex::Regex::new(&format!("^({pattern})$"))?);
        }
        let optional =
            |name: &str| !always.iter().any(|known| known == name) || patterns.iter().any(|p| p.is_match(name));
        table::module(&format!("{}{declarations}", api.imports), optional)
    }

    fn declarations(&self, api: &Api, beta: bool) -> Result<String> {
        let mut text = "#define __HIP_PLATFORM_AMD__ 1\n".to_owned();
        if let Some(name) = api.beta.filter(|_| beta) {
            text += &format!("#define {name} 1\n");
        }
        text += api.includes;
        let mut builder = Builder::default()
            .header_contents("headers.hpp", &text)
            .detect_include_paths(false)
            .clang_args(["-x", "c++", "-std=c++17", "-w", "-isystem"])
            .clang_arg(self.headers.display().to_string())
            .clang_arg("-idirafter")
            .clang_arg(self.includes.display().to_string())
            .default_enum_style(EnumVariation::NewType { is_bitfield: false, is_global: false })
            .derive_default(true)
            .generate_comments(false)
            .use_core()
            .ctypes_prefix("::core::ffi")
            .rust_edition(RustEdition::Edition2024)
            .rust_target(RustTarget::stable(89, 0).map_err(|e| e.to_string())?)
            .disable_header_comment()
            .formatter(Formatter::None);
        for pattern in api.functions.iter().chain(api.optional) {
            builder = builder.allowlist_function(pattern);
        }
        for pattern in api.constants {
            builder = builder.allowlist_var(pattern);
        }
        for pattern in api.foreign {
            builder = builder.blocklist_type(pattern);
        }
        Ok(builder.generate()?.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_defined_value_is_the_word_after_the_name() {
        let header = "#ifndef V\n#define V_MAJORITY 1\n#define V_MAJOR  7\n  #define V_MINOR 2 // two\n#define EMPTY\n";
        for (name, value) in [("V_MAJOR", Some("7")), ("V_MINOR", Some("2")), ("V", None), ("EMPTY", None)] {
            assert_eq!(defined(header, name), value, "{name}");
        }
    }
}
