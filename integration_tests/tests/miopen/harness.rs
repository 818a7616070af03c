//! Runs tests in processes of their own and reports as cargo's test runner does.
//!
//! A test's settings of the emulated runtime (failures, delays, held streams) hold for its whole process, so tests of a
//! process run one after the other; several processes share the work. A process that dies takes only its own tests
//! along.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use hipdnn_rs_integration_tests::emulator::Hip;
use hipdnn_rs_integration_tests::program::this_program;

use crate::trace::scratch;

/// End of a test that did not go well.
pub(crate) enum Ended {
    /// With what was wrong.
    Failed(String),
    /// With the reason why it could not run.
    Skipped(String),
}

impl From<String> for Ended {
    fn from(problem: String) -> Ended {
        Ended::Failed(problem)
    }
}

impl From<&str> for Ended {
    fn from(problem: &str) -> Ended {
        Ended::Failed(problem.to_owned())
    }
}

pub(crate) type Outcome = Result<(), Ended>;

/// A test of a module.
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) run: Box<dyn FnOnce() -> Outcome>,
}

impl Test {
    pub(crate) fn new(name: impl Into<String>, run: impl FnOnce() -> Outcome + 'static) -> Test {
        Test { name: name.into(), run: Box::new(run) }
    }
}

/// Tests that belong together.
pub(crate) struct Module {
    pub(crate) name: &'static str,
    pub(crate) tests: fn() -> Vec<Test>,
    /// Into how many processes its tests are dealt.
    pub(crate) processes: usize,
    /// True if they ask of the runtime what only the emulated one can do.
    pub(crate) emulated: bool,
}

/// A process that says nothing for so long hangs: the longest test takes seconds.
const SILENCE: Duration = Duration::from_secs(400);

/// Tests whose time the end of the report tells: the longest ones.
const TOLD: usize = 12;

/// The longest delay before each piece of a stream's work, in microseconds: several launches' time.
const LATE_US: &str = "300";

/// Tells the program that it is one of the processes, and which: `module part parts`.
const JOB: &str = "--job";

/// Options of the command line.
#[derive(Default)]
struct Options {
    filters: Vec<String>,
    skipped: Vec<String>,
    exact: bool,
    list: bool,
    jobs: Option<usize>,
}

impl Options {
    fn parse(arguments: &[String]) -> Options {
        let mut options = Options::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--exact" => options.exact = true,
                "--list" => options.list = true,
                "--skip" => options.skipped.extend(rest.next().cloned()),
                "--test-threads" => options.jobs = rest.next().and_then(|count| count.parse().ok()),
                // Others of cargo's runner change how it prints, or have no meaning here.
                other if other.starts_with('-') => {}
                other => options.filters.push(other.to_owned()),
            }
        }
        options
    }

    fn takes(&self, name: &str) -> bool {
        let fits = |filter: &String| if self.exact { name == filter } else { name.contains(filter.as_str()) };
        (self.filters.is_empty() || self.filters.iter().any(fits)) && !self.skipped.iter().any(fits)
    }
}

/// Runs what the command line asks for; `ready` says why nothing can run here.
pub(crate) fn main(modules: &[Module], ready: Result<(), String>) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == JOB) {
        return job(modules, &arguments[1..]);
    }
    let options = Options::parse(&arguments);
    if let Err(reason) = ready {
        if !options.list {
            println!("\nrunning 0 tests\n{reason}\n\ntest result: ok. 0 passed; 0 failed; 0 ignored\n");
        }
        return ExitCode::SUCCESS;
    }
    let selected: Vec<(&Module, Vec<String>)> = modules
        .iter()
        .filter(|module| !module.emulated || is_emulated())
        .map(|module| {
            let all = (module.tests)().into_iter().map(|test| format!("{}::{}", module.name, test.name));
            (module, all.filter(|name| options.takes(name)).collect())
        })
        .collect();
    let names: BTreeSet<&String> = selected.iter().flat_map(|(_, names)| names).collect();
    let total: usize = selected.iter().map(|(_, names)| names.len()).sum();
    assert_eq!(names.len(), total, "every test has a name of its own");
    if options.list {
        selected.iter().flat_map(|(_, names)| names).for_each(|name| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {total} tests");
    // What an earlier run found out must not help this one.
    let _ = std::fs::remove_dir_all(scratch("cache"));
    let report = run_all(&selected, &options, &arguments);
    if !report.failed.is_empty() {
        println!("\nfailures:\n");
        for (name, problem) in &report.failed {
            println!("---- {name} ----\n{problem}\n");
        }
    }
    let mut times = report.times;
    times.sort_by_key(|(_, time)| Reverse(*time));
    let slowest = times.iter().take(TOLD).map(|(name, time)| format!("{name} {:.0} s", time.as_secs_f64()));
    println!("\nslowest: {}", slowest.collect::<Vec<_>>().join(", "));
    let (verdict, failed) = (if report.failed.is_empty() { "ok" } else { "FAILED" }, report.failed.len());
    println!("\ntest result: {verdict}. {} passed; {failed} failed; {} ignored\n", report.passed, report.skipped);
    if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(101) }
}

#[derive(Default)]
struct Report {
    passed: usize,
    skipped: usize,
    failed: Vec<(String, String)>,
    times: Vec<(String, Duration)>,
}

fn run_all(selected: &[(&Module, Vec<String>)], options: &Options, arguments: &[String]) -> Report {
    let mut jobs = Vec::new();
    for (module, names) in selected {
        let parts = module.processes.min(names.len());
        jobs.extend((0..parts).map(|part| (*module, part, parts, names.len())));
    }
    // The next one is at the end.
    jobs.reverse();
    let workers = options.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1);
    let (queue, report) = (Mutex::new(jobs), Mutex::new(Report::default()));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no worker panics with the queue").pop();
                    let Some((module, part, parts, tests)) = next else { break };
                    watch(module, (part, parts, tests), arguments, &report);
                }
            });
        }
    });
    report.into_inner().expect("no worker panics with the report")
}

/// Runs one process and reads what it reports.
fn watch(module: &Module, (part, parts, tests): (usize, usize, usize), arguments: &[String], report: &Mutex<Report>) {
    let mut command = this_program();
    command.arg(JOB).arg(module.name).arg(part.to_string()).arg(parts.to_string()).args(arguments);
    settle(&mut command);
    if !module.emulated && is_emulated() {
        // Tests of results only: streams run their work late, each process by other random numbers.
        command.env("HIPEMU_DELAY_US", LATE_US).env("HIPEMU_SEED", (part + 1).to_string());
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("this program starts again");
    let lines = lines_of(&mut child);
    let (mut ended, mut silent, mut last, mut begun) = (0, false, "none".to_owned(), Instant::now());
    // Tests are dealt in turn.
    let expected = (tests + parts - 1 - part) / parts;
    loop {
        match lines.recv_timeout(SILENCE) {
            Ok(line) => {
                let mut report = report.lock().expect("no worker panics with the report");
                match line.split('\t').collect::<Vec<_>>()[..] {
                    ["begin", name] => (last, begun) = (name.to_owned(), Instant::now()),
                    ["ok", name] => {
                        report.times.push((name.to_owned(), begun.elapsed()));
                        println!("test {name} ... ok");
                        report.passed += 1;
                        ended += 1;
                    }
                    ["failed", name, problem] => {
                        println!("test {name} ... FAILED");
                        report.failed.push((name.to_owned(), problem.replace('\u{1}', "\n").replace('\u{2}', "\t")));
                        ended += 1;
                    }
                    ["skipped", name, reason] => {
                        println!("test {name} ... ignored, {}", reason.replace(['\u{1}', '\u{2}'], " "));
                        report.skipped += 1;
                        ended += 1;
                    }
                    _ => println!("{line}"),
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                silent = true;
                let _ = child.kill();
                break;
            }
        }
    }
    let status = child.wait().expect("a child that was started can be waited for");
    if ended == expected && !silent && status.success() {
        return;
    }
    let how = if silent { format!("said nothing for {} s", SILENCE.as_secs()) } else { status.to_string() };
    let problem = format!("the process ended after {ended} of {expected} tests ({how}); the last to begin was {last}");
    let name = format!("{}::process {part}", module.name);
    println!("test {name} ... FAILED");
    report.lock().expect("no worker panics with the report").failed.push((name, problem));
}

/// The user's settings must not decide what a test sees, but how much of it there is.
fn settle(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let of_tests = text == "HIPDNN_RS_LIB_DIR" || text.starts_with("HIPDNN_RS_TEST_");
        let ours = text.starts_with("HIPDNN_") && !of_tests;
        let of_device = text.starts_with("HIPEMU_") && text != "HIPEMU_EMULATOR";
        if ours || of_device || text.starts_with("MIOPEN_") {
            command.env_remove(name);
        }
    }
    command.env("HIPDNN_RS_CACHE_DIR", scratch("cache"));
    command.env("HIPDNN_CACHE_DIR", scratch("rankings"));
    if is_emulated() {
        // Debian's MIOpen lacks the sources of these; a test of its own looks at what happens with them.
        command.env("MIOPEN_DEBUG_CONV_WINOGRAD", "0");
    }
}

/// True if the GPU is the emulated one.
fn is_emulated() -> bool {
    Hip::get().is_ok_and(|hip| hip.control().is_some())
}

fn lines_of(child: &mut Child) -> mpsc::Receiver<String> {
    let stdout = child.stdout.take().expect("the output is a pipe");
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// One of the processes.
fn job(modules: &[Module], arguments: &[String]) -> ExitCode {
    let [name, part, parts, rest @ ..] = arguments else { panic!("{JOB}: expected a module and its part") };
    let (part, parts): (usize, usize) =
        (part.parse().expect("a part is a number"), parts.parse().expect("parts are a number"));
    let module = modules.iter().find(|module| module.name == name).expect("a module of this program");
    let options = Options::parse(rest);
    let all = (module.tests)().into_iter().map(|test| (format!("{}::{}", module.name, test.name), test));
    let mine = all.filter(|(name, _)| options.takes(name)).enumerate().filter(|(at, _)| at % parts == part);
    // Panics are told as the test's problem.
    std::panic::set_hook(Box::new(|_| {}));
    for (_, (name, test)) in mine {
        say(&["begin", &name]);
        match catch_unwind(AssertUnwindSafe(test.run)) {
            Ok(Ok(())) => say(&["ok", &name]),
            Ok(Err(Ended::Failed(problem))) => say(&["failed", &name, &problem]),
            Ok(Err(Ended::Skipped(reason))) => say(&["skipped", &name, &reason]),
            Err(payload) => {
                let text = payload.downcast_ref::<String>().cloned();
                let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                say(&["failed", &name, &text.unwrap_or_else(|| "a panic without a text".to_owned())]);
            }
        }
    }
    ExitCode::SUCCESS
}

/// One line for the process that watches.
fn say(fields: &[&str]) {
    let fields: Vec<String> = fields.iter().map(|field| field.replace('\n', "\u{1}").replace('\t', "\u{2}")).collect();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", fields.join("\t")).expect("the watching process reads");
    out.flush().expect("the watching process reads");
}
