//! Mutated graphs, configurations, JSON and stored plans through the plugin's and the backend's ABI: no crash, no hang,
//! no access outside the memory that was handed over, and a status and a text for whatever is wrong.
//!
//! Inputs follow from a seed and an index. `HIPDNN_RS_FUZZ_ITERATIONS` sets how many there are, `HIPDNN_RS_FUZZ_SEED`
//! the seed, and `HIPDNN_RS_FUZZ_FIRST` the first index, to try one again.

mod api;
mod calls;
mod guarded;
mod inputs;
mod mutate;
mod random;
mod run;
#[path = "../../../schemas/tests/samples/mod.rs"]
mod samples;
mod stages;
mod through_backend;
mod through_plugin;
mod valid;

use std::ffi::c_void;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libloading::Library;

use hipdnn_rs_integration_tests::artifacts::{Artifact, library_path, plugin_directory};

use crate::api::{BackendApi, PluginApi};
use crate::inputs::{Corpus, Doors, hand_in};
use crate::random::Random;
use crate::stages::Stages;

/// About a minute on two cores.
const ITERATIONS: u64 = 300_000;

const WORKERS: usize = 2;

/// No input takes a thousandth of this on an idle machine; it is a hang then, or a machine that does nothing.
const PATIENCE: Duration = Duration::from_secs(120);

/// The handles are made anew after this many inputs, so that what piles up in one does not hide what ends with it.
const INPUTS_OF_A_HANDLE: u64 = 500;

/// The index that each worker is at; [`IDLE`] between inputs.
static CURRENT: [AtomicU64; WORKERS] = [const { AtomicU64::new(IDLE) }; WORKERS];

const IDLE: u64 = u64::MAX;

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}: expected a number, got {text:?}")),
        Err(_) => default,
    }
}

#[test]
fn hostile_input_is_refused_or_served() {
    let iterations = number("HIPDNN_RS_FUZZ_ITERATIONS", ITERATIONS);
    let seed = number("HIPDNN_RS_FUZZ_SEED", 20_260_401);
    let first = number("HIPDNN_RS_FUZZ_FIRST", 0);
    let plugins = plugin_directory(Path::new(env!("CARGO_TARGET_TMPDIR")), "hostile");
    // SAFETY: no other test of this program looks at the environment, and the libraries, which do, are opened below.
    unsafe {
        std::env::set_var("HIPDNN_PLUGIN_DIR", &plugins);
        std::env::set_var("HIPDNN_RS_CPU_ENGINE", "on");
    }
    limit_memory();
    name_the_input_on_a_crash();

    static PLUGIN: OnceLock<Library> = OnceLock::new();
    static BACKEND: OnceLock<Library> = OnceLock::new();
    let plugin = open(&plugins.join(Artifact::Plugin.file_name()), &PLUGIN);
    let backend = open(&library_path(Artifact::Backend), &BACKEND);
    // SAFETY: the libraries are never closed, and their functions have the signatures of hipDNN's headers.
    let (plugin, backend) = unsafe { (PluginApi::of(find(plugin)), BackendApi::of(find(backend))) };

    let corpus = Corpus::new();
    let next = AtomicU64::new(first);
    let is_over = AtomicBool::new(false);
    let started = Instant::now();
    let stages = std::thread::scope(|scope| {
        scope.spawn(|| watch(&is_over, seed));
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (corpus, next) = (&corpus, &next);
                let work = move || work(worker, seed, first + iterations, next, corpus, plugin, backend);
                std::thread::Builder::new().spawn_scoped(scope, work).expect("a thread")
            })
            .collect();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        let mut stages = Stages::default();
        for result in results {
            stages.add(&result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        stages
    });
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{iterations} inputs in {seconds:.0} s, {:.0} a second, seed {seed}:\n{stages}",
        iterations as f64 / seconds
    );

    // A few inputs tried again need not reach everything.
    if iterations >= 10_000 {
        for (stage, of, least) in [
            ("plugin: graph is right", "plugin: graph given", 0.3),
            ("plugin: graph is claimed", "plugin: graph given", 0.25),
            ("plugin: executed", "plugin: graph given", 0.1),
            ("backend: JSON read", "backend: JSON given", 0.3),
            ("backend: graph is claimed", "backend: graph given", 0.2),
            ("backend: executed", "backend: graph given", 0.1),
            ("calls: executed", "calls: sequence", 0.05),
        ] {
            let share = stages.count(stage) as f64 / stages.count(of) as f64;
            assert!(share >= least, "{stage:?}: expected a share of {least} of the inputs, got {share:.2}");
        }
    }
}

/// Opens a library for the rest of the process; it stays where leak checkers see that it is in use.
fn open(path: &Path, place: &'static OnceLock<Library>) -> &'static Library {
    place.get_or_init(|| {
        // SAFETY: the library is ours, and sound to load.
        let library = unsafe { Library::new(path) };
        library.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    })
}

fn find(library: &'static Library) -> impl Fn(&'static str) -> *mut c_void {
    |name| {
        // SAFETY: nothing is called or read here: this is the address of a symbol, whatever it is.
        let address = unsafe { library.get::<*mut c_void>(name.as_bytes()).ok().and_then(|s| s.try_as_raw_ptr()) };
        address.unwrap_or(std::ptr::null_mut())
    }
}

fn work(
    worker: usize,
    seed: u64,
    end: u64,
    next: &AtomicU64,
    corpus: &Corpus,
    plugin: PluginApi,
    backend: BackendApi,
) -> Stages {
    let mut stages = Stages::default();
    loop {
        let mut doors = Doors::new(plugin, backend);
        for _ in 0..INPUTS_OF_A_HANDLE {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= end {
                return stages;
            }
            CURRENT[worker].store(index, Ordering::Relaxed);
            let mut random = Random::new(seed, index);
            if let Err(fault) = hand_in(&mut random, corpus, &mut doors, &mut stages) {
                panic!("input {index} of seed {seed}: {fault}");
            }
            CURRENT[worker].store(IDLE, Ordering::Relaxed);
        }
    }
}

/// Ends the process when a worker stays at one input.
fn watch(is_over: &AtomicBool, seed: u64) {
    let mut seen = [(IDLE, Instant::now()); WORKERS];
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(200));
        for (current, (index, since)) in CURRENT.iter().zip(&mut seen) {
            let now = current.load(Ordering::Relaxed);
            if now != *index {
                (*index, *since) = (now, Instant::now());
            } else if now != IDLE && since.elapsed() > PATIENCE {
                eprintln!("input {now} of seed {seed} hangs");
                std::process::abort();
            }
        }
    }
}

/// A graph may describe tensors of terabytes; asking for memory of that size must fail as on a small machine.
/// `HIPDNN_RS_FUZZ_NO_LIMIT` is for sanitizers, which map terabytes themselves.
fn limit_memory() {
    if std::env::var_os("HIPDNN_RS_FUZZ_NO_LIMIT").is_some() {
        return;
    }
    let limit = libc::rlimit { rlim_cur: 8 << 30, rlim_max: 8 << 30 };
    // SAFETY: `limit` is valid for the call.
    let status = unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) };
    assert_eq!(status, 0, "memory can be limited");
}

/// On a fatal signal, writes the inputs that the workers are at, then dies of it.
fn name_the_input_on_a_crash() {
    extern "C" fn on_crash(signal: libc::c_int) {
        let mut text = [0u8; 64];
        for current in &CURRENT {
            let mut number = current.load(Ordering::Relaxed);
            if number == IDLE {
                continue;
            }
            // Formatting allocates, which a signal handler may not do.
            let prefix = b"hostile: died at input ";
            text[..prefix.len()].copy_from_slice(prefix);
            let mut digits = [0u8; 20];
            let mut at = digits.len();
            loop {
                at -= 1;
                digits[at] = b'0' + (number % 10) as u8;
                number /= 10;
                if number == 0 {
                    break;
                }
            }
            let end = prefix.len() + digits.len() - at;
            text[prefix.len()..end].copy_from_slice(&digits[at..]);
            text[end] = b'\n';
            // SAFETY: the bytes are there; `write` may be called in a signal handler.
            unsafe { libc::write(2, text.as_ptr().cast(), end + 1) };
        }
        // SAFETY: both may be called in a signal handler; the default is to die.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT] {
        // SAFETY: all zeroes are a valid `sigaction`, filled in below; the handler does only what signal handlers may.
        // It runs on the alternative stack that the standard library gives each thread, so stack overflow is seen too.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_crash as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_ONSTACK;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}
