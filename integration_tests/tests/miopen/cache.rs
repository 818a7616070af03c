//! Caches: one process's findings serve the next, and a cache that is not as it was left costs nothing but time.

use std::path::PathBuf;

use hipdnn_rs_integration_tests::reference::Direction;
use hipdnn_schemas::{DataType, KnobValue};

use crate::bench::{Bench, Memory, control, plugin, told};
use crate::case::{Case, Layout};
use crate::child::Child;
use crate::compiler;
use crate::harness::{Ended, Outcome, Test};
use crate::table::{conv, fused};
use crate::trace::{self, scratch};

/// The role: builds plans and runs them.
pub(crate) const ROLE: &str = "builds and runs";

/// The role: the same in a directory that it must not write to.
pub(crate) const ROLE_READ_ONLY: &str = "builds and runs, reading only";

/// Variable that is set if the role benchmarks.
const BENCHMARK: &str = "HIPDNN_RS_TEST_BENCHMARK";

const CACHE: &str = "HIPDNN_RS_CACHE_DIR";

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::new("the second process searches and compiles nothing", || second(false)),
        Test::new("the second process searches nothing after a benchmark", || second(true)),
        Test::new("two processes at once", two_at_once),
        Test::new("the cache is off", || {
            let place = Place::new("off")?;
            place.child().env(CACHE, "off").succeeds()?;
            Ok(())
        }),
        Test::new("a directory that can't be made", || {
            let place = Place::new("impossible")?;
            for impossible in ["/proc/no-such-place/cache", "/dev/null/cache", ""] {
                place.child().env(CACHE, impossible).succeeds()?;
            }
            Ok(())
        }),
        Test::new("a directory that may only be read", read_only),
    ];
    for (name, damage) in DAMAGES {
        tests.push(Test::new(format!("entries that are {name}"), move || damaged(name, damage)));
    }
    tests
}

/// A fresh directory for the engine's cache, with a trace beside it.
struct Place {
    directory: PathBuf,
}

impl Place {
    fn new(name: &str) -> Result<Place, String> {
        let directory = scratch(&format!("cache-{name}"));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
        Ok(Place { directory })
    }

    fn cache(&self) -> PathBuf {
        self.directory.join("cache")
    }

    fn child(&self) -> Child {
        Child::of(ROLE).env(CACHE, self.cache())
    }

    /// The entries of the cache.
    fn entries(&self) -> Result<Vec<PathBuf>, String> {
        let files = std::fs::read_dir(self.cache()).map_err(|error| format!("no cache was made: {error}"))?;
        let mut files: Vec<PathBuf> = files.flatten().map(|file| file.path()).filter(|path| path.is_file()).collect();
        files.sort();
        if files.is_empty() { Err("the cache is empty".to_owned()) } else { Ok(files) }
    }

    /// Runs the role with its own home and counts compilations; what it did while it built plans.
    fn traced(&self, name: &str, benchmark: bool) -> Result<Built, Ended> {
        let (file, compilations) =
            (self.directory.join(format!("{name}.jsonl")), self.directory.join(format!("{name}.compilations")));
        let home = self.directory.join("home");
        std::fs::create_dir_all(&home).map_err(|error| error.to_string())?;
        let child = compiler::child(ROLE, &self.directory)?;
        let child = child
            .env(CACHE, self.cache())
            .env("HOME", &home)
            .env("HIPEMU_TRACE", &file)
            .env(compiler::COMPILATIONS, &compilations);
        child.env(BENCHMARK, if benchmark { "1" } else { "0" }).succeeds()?;
        let lines = trace::read(&file);
        let place = |text: &str| {
            let found = lines.iter().position(|line| line.mark.as_deref() == Some(text));
            found.ok_or_else(|| format!("the trace has no mark {text}"))
        };
        let built = &lines[place("build")?..place("built")?];
        let calls = |name: &str| built.iter().filter(|line| line.call.as_deref() == Some(name)).count();
        let compilations = std::fs::read_to_string(&compilations).unwrap_or_default();
        Ok(Built {
            kernels: built.iter().filter(|line| line.kernel.is_some()).count(),
            timings: calls("hipEventElapsedTime"),
            compilations: compilations.lines().count(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Work of a process while it built plans.
#[derive(Debug, PartialEq)]
struct Built {
    /// Kernels that ran: trials and searches.
    kernels: usize,
    /// Times that were taken.
    timings: usize,
    /// Programs that hiprtc compiled, in the whole process.
    compilations: usize,
}

fn second(benchmark: bool) -> Outcome {
    let place = Place::new(if benchmark { "second-benchmark" } else { "second" })?;
    let first = place.traced("first", benchmark)?;
    let second = place.traced("second", benchmark)?;
    if first.kernels == 0 || first.compilations == 0 || (benchmark && first.timings == 0) {
        return Err(format!("the first process is to try, compile and time, but did {first:?}").into());
    }
    if second != (Built { kernels: 0, timings: 0, compilations: 0 }) {
        return Err(format!("the second process did {second:?}, the first {first:?}").into());
    }
    Ok(())
}

fn two_at_once() -> Outcome {
    let place = Place::new("two")?;
    let both = [place.child().start(), place.child().start()];
    for process in both {
        process.wait().good()?;
    }
    place.entries()?;
    place.child().succeeds()?;
    Ok(())
}

/// Something that happens to the files.
type Damage = fn(&[PathBuf]) -> std::io::Result<()>;

const DAMAGES: [(&str, Damage); 9] = [
    ("cut", |files| each(files, |bytes| bytes.truncate(bytes.len() / 2))),
    ("cut at their last byte", |files| each(files, |bytes| bytes.truncate(bytes.len() - 1))),
    ("empty", |files| each(files, Vec::clear)),
    ("longer", |files| each(files, |bytes| bytes.extend([0; 100]))),
    ("one bit off", |files| {
        each(files, |bytes| {
            let middle = bytes.len() * 2 / 3;
            bytes[middle] ^= 4;
        })
    }),
    ("of another version", |files| {
        each(files, |bytes| {
            // The stamp is the first text of an entry.
            let version = env!("CARGO_PKG_VERSION").as_bytes();
            let at = bytes.windows(version.len()).position(|window| window == version).expect("an entry has a version");
            bytes[at] = b'9';
        })
    }),
    ("text", |files| each(files, |bytes| *bytes = b"this is no entry\n".to_vec())),
    ("each other's", |files| {
        let contents = files.iter().map(std::fs::read).collect::<Result<Vec<_>, _>>()?;
        files.iter().zip(contents.iter().cycle().skip(1)).try_for_each(|(file, bytes)| std::fs::write(file, bytes))
    }),
    ("directories", |files| {
        files.iter().try_for_each(|file| std::fs::remove_file(file).and_then(|()| std::fs::create_dir(file)))
    }),
];

fn each(files: &[PathBuf], change: fn(&mut Vec<u8>)) -> std::io::Result<()> {
    for file in files {
        let mut bytes = std::fs::read(file)?;
        change(&mut bytes);
        std::fs::write(file, bytes)?;
    }
    Ok(())
}

fn damaged(name: &str, damage: Damage) -> Outcome {
    let place = Place::new(&name.replace([' ', '\''], "-"))?;
    place.child().succeeds()?;
    damage(&place.entries()?).map_err(|error| error.to_string())?;
    place.child().succeeds().map_err(|problem| format!("with the damage: {problem}"))?;
    // The damage is mended or passed over, by whoever comes next.
    place.child().succeeds().map_err(|problem| format!("after the damage: {problem}"))?;
    Ok(())
}

fn read_only() -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("read-only")?;
    place.child().succeeds()?;
    let (before, cache) = (place.entries()?, place.cache());
    let mode = |mode: u32| {
        std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(mode)).map_err(|error| error.to_string())
    };
    mode(0o500)?;
    let full = Child::of(ROLE_READ_ONLY).env(CACHE, &cache).run().good();
    let after = place.entries();
    mode(0o700)?;
    full.map_err(|problem| format!("with entries: {problem}"))?;
    if after? != before {
        return Err("something was written".into());
    }
    for entry in &before {
        std::fs::remove_file(entry).map_err(|error| error.to_string())?;
    }
    mode(0o500)?;
    let empty = Child::of(ROLE_READ_ONLY).env(CACHE, &cache).run().good();
    mode(0o700)?;
    empty.map_err(|problem| format!("without entries: {problem}"))?;
    if place.entries().is_ok() {
        return Err("something was written".into());
    }
    Ok(())
}

fn work() -> Vec<Case> {
    vec![
        conv("2d 3x3 pad 1", Direction::Forward, DataType::Float, Layout::First),
        conv("2d 3x3", Direction::BackwardWeights, DataType::Float, Layout::First),
        fused("2d asymmetric", DataType::Float, Layout::First, "bias residual relu"),
    ]
}

/// The role.
pub(crate) fn builds_and_runs() -> Result<(), String> {
    let bench = Bench::new(&plugin())?;
    let benchmark = std::env::var(BENCHMARK).is_ok_and(|value| value == "1");
    let knobs = [("global.benchmarking", KnobValue::Int(benchmark.into()))];
    let cases = work();
    control().mark(c"build");
    let plans = cases.iter().map(|case| {
        let plan = bench.handle.plan(&crate::bench::config(&knobs), &case.graph());
        plan.map_err(|error| format!("{}: {}", case.name(), told(&error)))
    });
    let plans = plans.collect::<Result<Vec<_>, _>>()?;
    control().mark(c"built");
    for (case, plan) in cases.iter().zip(&plans) {
        let mut memory = Memory::new(case, plan.workspace_bytes())?;
        bench.execute(plan, &memory).map_err(|error| told(&error))?;
        bench.stream.synchronize().map_err(|error| error.to_string())?;
        memory.check(&case.wanted(&case.values(), false)).map_err(|problem| format!("{}: {problem}", case.name()))?;
    }
    Ok(())
}

/// The role, without root's right to write where permissions forbid it.
pub(crate) fn reading_only() -> Result<(), String> {
    give_up_capabilities()?;
    builds_and_runs()
}

/// Takes root's right from this process to do what permissions forbid.
pub(crate) fn give_up_capabilities() -> Result<(), String> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let header = Header { version: VERSION_3, pid: 0 };
    let nothing = [Data::default(); 2];
    // SAFETY: header and data have the layout of version 3, and giving rights up harms no memory.
    let result = unsafe { libc::syscall(libc::SYS_capset, &header, nothing.as_ptr()) };
    if result != 0 {
        return Err(format!("giving up capabilities: {}", std::io::Error::last_os_error()));
    }
    Ok(())
}
