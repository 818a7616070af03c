//! Claims: graphs that the engine claims it builds and runs, whatever is missing on the machine; others it declines,
//! and says what is missing.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use hipdnn_rs_integration_tests::reference::Direction;
use hipdnn_schemas::DataType;
use hipdnn_sdk_bindings::hipdnn::plugin::{Severity, engine_id};

use crate::bench::{Bench, ENGINE, hip, plugin, told};
use crate::cache::give_up_capabilities;
use crate::case::{Case, Layout};
use crate::child::Child;
use crate::compiler::{self, Hiprtc};
use crate::harness::{Ended, Outcome, Test};
use crate::logged;
use crate::missing::libraries_without;
use crate::mixed;
use crate::table::{conv, fused};
use crate::trace::scratch;

/// The role of the processes.
pub(crate) const ROLE: &str = "does what it claims";

/// Bytes that a file may have at most, in the process of the role.
const FILE_SIZE: &str = "HIPDNN_RS_TEST_FILE_SIZE";

/// Set if the process of the role has no rights beyond those of files.
const UNPRIVILEGED: &str = "HIPDNN_RS_TEST_UNPRIVILEGED";

/// Graphs that are to be claimed; the others are to be declined.
#[derive(Clone, Copy, PartialEq)]
enum Claimed {
    All,
    /// Those that need no kernel of ours.
    WithoutKernels,
    /// Those that need no convolution.
    WithoutConvolutions,
    None,
}

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("nothing is missing", || with(Place::new("all")?.child(Hiprtc::Counting)?, Claimed::All, "")),
        Test::new("hiprtc lacks a function", || {
            let child = Place::new("hiprtc")?.child(Hiprtc::Lacking("hiprtcGetLoweredName"))?;
            with(child, Claimed::WithoutKernels, "hiprtcGetLoweredName")
        }),
        Test::new("hiprtc does not compile what is ours", || {
            let child = Place::new("own")?.child(Hiprtc::Counting)?;
            with(child.env(compiler::REFUSED, "hipdnn_rs"), Claimed::WithoutKernels, "hiprtcCompileProgram")
        }),
        Test::new("hiprtc puts its headers before every kernel", || {
            let child = Place::new("headers")?.child(Hiprtc::Counting)?;
            with(child.env(compiler::UNKNOWN, "--hiprtc-no-builtin-header"), Claimed::All, "")
        }),
        Test::new("hiprtc compiles nothing", || {
            let child = Place::new("nothing")?.child(Hiprtc::Counting)?;
            with(child.env(compiler::REFUSED, ""), Claimed::None, "hiprtcCompileProgram")
        }),
        Test::new("hiprtc compiles nothing, and lacks a function", || {
            let child = Place::new("neither")?.child(Hiprtc::Lacking("hiprtcGetLoweredName"))?;
            with(child.env(compiler::REFUSED, ""), Claimed::None, "ompil")
        }),
        Test::new("there is no libMIOpen", || {
            let child = Place::new("no-miopen")?.without(&["libMIOpen"])?;
            with(child, Claimed::WithoutConvolutions, "libMIOpen.so")
        }),
        Test::new("there is no libhiprtc, and so no libMIOpen", || {
            with(Place::new("no-hiprtc")?.without(&["libhiprtc"])?, Claimed::None, "libhiprtc.so")
        }),
        Test::new("kernels of an earlier process need no compiler", kept),
        Test::new("kernels of an earlier process need neither compiler nor MIOpen", kept_alone),
        Test::new("MIOpen's records can't be written", || locked("records", ".config/miopen", "MIOPEN_USER_DB_PATH")),
        Test::new("MIOpen's kernels can't be written", || {
            locked("kernels", ".cache/miopen", "MIOPEN_CUSTOM_CACHE_DIR")
        }),
        Test::new("the home can't be written", || locked("home", "", "MIOPEN_USER_DB_PATH")),
        Test::new("files can't be written", || limited("0")),
        Test::new("files can't grow", || limited("4096")),
        Test::new("the disk of temporary files is full", || full("TMPDIR", "", Claimed::None)),
        Test::new("the disk of the compiler's cache is full", || full("AMD_COMGR_CACHE_DIR", "", Claimed::None)),
        Test::new("the disk of the home is full", || full("HOME", "", Claimed::None)),
        Test::new("the disk of the engine's cache is full", || full("HIPDNN_RS_CACHE_DIR", "ours", Claimed::All)),
    ]
}

/// A fresh home, with the engine's cache in it.
struct Place {
    directory: PathBuf,
}

impl Place {
    fn new(name: &str) -> Result<Place, String> {
        let directory = scratch(&format!("claims-{name}"));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(directory.join("home")).map_err(|error| error.to_string())?;
        Ok(Place { directory })
    }

    fn home(&self) -> PathBuf {
        self.directory.join("home")
    }

    fn child(&self, hiprtc: Hiprtc) -> Result<Child, Ended> {
        let child = compiler::child_with(ROLE, &self.directory, hiprtc)?;
        Ok(self.at_home(child))
    }

    /// A process that has all libraries of the emulated GPU but those.
    fn without(&self, libraries: &[&str]) -> Result<Child, String> {
        let all = libraries_without(&format!("claims-without-{}", libraries.join("-")), libraries)?;
        Ok(self.at_home(Child::with_libraries(ROLE, Some(&[&all]))))
    }

    fn at_home(&self, child: Child) -> Child {
        child.env("HOME", self.home()).env("HIPDNN_RS_CACHE_DIR", self.home().join("ours"))
    }
}

/// The folder may only be read; the reason names the variable that can name another.
fn locked(name: &str, folder: &str, variable: &str) -> Outcome {
    let place = Place::new(name)?;
    for folder in [".config/miopen", ".cache/miopen"].iter().take(if folder.is_empty() { 0 } else { 2 }) {
        std::fs::create_dir_all(place.home().join(folder)).map_err(|error| error.to_string())?;
    }
    let child = place.child(Hiprtc::Counting)?.env(UNPRIVILEGED, "1");
    let mode = |mode: u32| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(place.home().join(folder), permissions).map_err(|error| error.to_string())
    };
    mode(0o500)?;
    let outcome = with(child, Claimed::WithoutConvolutions, variable);
    mode(0o700)?;
    outcome
}

/// A graph, and what it needs.
struct Work {
    case: Case,
    /// A kernel of ours.
    kernels: bool,
    convolutions: bool,
}

fn work() -> Vec<Work> {
    let with = |case: Case, kernels: bool| Work { case, kernels, convolutions: true };
    let behind = |name: &str, data_type: DataType| Work {
        case: mixed::behind(name, data_type),
        kernels: true,
        convolutions: false,
    };
    vec![
        with(conv("2d 3x3 pad 1", Direction::Forward, DataType::Float, Layout::First), false),
        with(conv("2d groups 2", Direction::BackwardWeights, DataType::Half, Layout::First), false),
        with(conv("2d 3x3 stride 2", Direction::BackwardData, DataType::Float, Layout::First), false),
        with(conv("2d asymmetric", Direction::Forward, DataType::Float, Layout::First), true),
        with(conv("2d 3x3 pad 1", Direction::Forward, DataType::Float, Layout::Gaps), true),
        with(fused("2d 3x3 pad 1", DataType::Float, Layout::First, "bias relu"), true),
        with(mixed::named("convolution, mean of windows, tanh", DataType::Half), true),
        behind("bias, softmax", DataType::Half),
        behind("layer norm", DataType::Float),
        behind("batch norm of inference", DataType::BFloat16),
        behind("relu, maxima with places", DataType::Float),
        behind("relu, mean of images", DataType::Float),
    ]
}

/// The process claims those graphs, and declines others for a reason with this word.
fn with(child: Child, claimed: Claimed, word: &str) -> Outcome {
    let ended = child.succeeds()?;
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let mut problems = Vec::new();
    for Work { case, kernels, convolutions } in work() {
        let name = case.name();
        let wanted = match claimed {
            Claimed::All => true,
            Claimed::WithoutKernels => !kernels,
            Claimed::WithoutConvolutions => !convolutions,
            Claimed::None => false,
        };
        let of_case: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix(&format!("{name}: "))).collect();
        for round in 0..2 {
            match of_case.get(round) {
                Some(&"runs") if wanted => {}
                Some(reason) if !wanted && reason.starts_with("declined: ") && reason.contains(word) => {}
                other => problems.push(format!("{name}, round {round}: expected claimed {wanted}, got {other:?}")),
            }
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n").into()) }
}

/// Files have no more bytes than that.
fn limited(bytes: &str) -> Outcome {
    let child = Place::new(&format!("files-{bytes}"))?.child(Hiprtc::Counting)?;
    with(child.env(FILE_SIZE, bytes), Claimed::None, "RLIMIT_FSIZE")
}

/// The variable names a folder on a file system that is full.
fn full(variable: &str, folder: &str, claimed: Claimed) -> Outcome {
    let place = Place::new(&format!("full-{variable}"))?;
    let disk = place.directory.join("disk");
    std::fs::create_dir_all(&disk).map_err(|error| error.to_string())?;
    let child = place.child(Hiprtc::Counting)?.env(variable, disk.join(folder));
    with(child.on_a_full_disk(&disk)?, claimed, "bytes free for ")
}

/// Kernels that were compiled once are good without a compiler.
fn kept() -> Outcome {
    let place = Place::new("kept")?;
    with(place.child(Hiprtc::Counting)?, Claimed::All, "")?;
    with(place.child(Hiprtc::Lacking("hiprtcGetLoweredName"))?.env(compiler::REFUSED, ""), Claimed::All, "")
}

/// Kernels that were compiled once are good without any library but HIP.
fn kept_alone() -> Outcome {
    let place = Place::new("kept-alone")?;
    with(place.child(Hiprtc::Counting)?, Claimed::All, "")?;
    with(place.without(&["libMIOpen", "libhiprtc"])?, Claimed::WithoutConvolutions, "libMIOpen.so")
}

/// The role: asks about every graph, and builds and runs those that are claimed.
pub(crate) fn does() -> Result<(), String> {
    if std::env::var_os(UNPRIVILEGED).is_some() {
        give_up_capabilities()?;
    }
    if let Ok(bytes) = std::env::var(FILE_SIZE) {
        // The emulated device's memory is a file of this process.
        hip().memory(1).map_err(|error| error.to_string())?;
        limit_files(bytes.parse().map_err(|error| format!("{FILE_SIZE}: {error}"))?)?;
    }
    let plugin = plugin();
    logged::listen(&plugin, Severity::INFO)?;
    for _ in 0..2 {
        // A handle of its own: what the process shares on the device is made anew.
        let bench = Bench::new(&plugin)?;
        for Work { case, .. } in work() {
            logged::lines();
            let taken = bench.handle.applicable(&case.graph()).map_err(|error| told(&error))?;
            if taken.contains(&engine_id(ENGINE)) {
                bench.run(&case, &[]).map_err(|problem| format!("{}: claimed, then {problem}", case.name()))?;
                println!("{}: runs", case.name());
                continue;
            }
            let lines = logged::lines();
            let about = lines.iter().find(|(_, line)| line.starts_with(ENGINE)).map(|(_, line)| line.as_str());
            println!("{}: declined: {}", case.name(), about.unwrap_or("for no reason"));
            let refused = bench.handle.plan(&crate::bench::config(&[]), &case.graph()).err();
            crate::bench::is_told(&refused.ok_or("a plan of a graph that was declined")?)?;
        }
    }
    Ok(())
}

/// From now on writing to a file fails past so many bytes, as on a disk that is full.
fn limit_files(bytes: u64) -> Result<(), String> {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the signal's action is one of the two that need no function; the limit is a value of its struct.
    let failed = unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN) == libc::SIG_ERR || libc::setrlimit(libc::RLIMIT_FSIZE, &limit) != 0
    };
    if failed { Err(format!("limiting files: {}", std::io::Error::last_os_error())) } else { Ok(()) }
}
