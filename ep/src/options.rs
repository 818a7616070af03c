//! The provider's options: strings in the session's configuration, under `ep.hipdnnrsexecutionprovider.<key>`.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::ep_context::Request;
use crate::error::Error;
use crate::gpu::memory::{Growth, Terms};

/// Beginning of every key: the runtime lower-cases the provider's name, and leaves the rest as it is.
pub const PREFIX: &str = "ep.hipdnnrsexecutionprovider.";

/// The options, read and checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    /// `backend`: the backend library, or the directory it is in. Nothing else is tried.
    pub backend: Option<PathBuf>,
    /// `plugin_dir`: a directory with engine plugins, or one plugin. Nothing else is loaded.
    pub plugin_dir: Option<PathBuf>,
    /// `engine`: the engine that is tried first.
    pub engine: Option<String>,
    /// `report`: where the claim report is appended, as JSON lines.
    pub report: Option<PathBuf>,
    /// `dump_graphs`: the directory that hipDNN graphs are written to.
    pub dump_graphs: Option<PathBuf>,
    /// `dump_ir`: the directory that the stages of programs are written to.
    pub dump_ir: Option<PathBuf>,
    /// `threads`: how many threads the CPU engine uses; 0 is one per core.
    pub threads: Option<i64>,
    /// `winograd`: whether the CPU engine may use Winograd's algorithm.
    pub winograd: Option<bool>,
    /// `tuning`: how much is done to find fast kernels.
    pub tuning: Option<Tuning>,
    /// `precision`: whether rounding beyond the graph's own is forbidden.
    pub strict: bool,
    /// `cache_dir`: the directory of chosen solvers and compiled kernels.
    pub cache_dir: Option<CString>,
    /// `plan_cache`: how many programs of a partition are kept.
    pub plan_cache: usize,
    /// `cost_rule`: whether partitions that would not pay stay with other providers.
    pub cost_rule: bool,
    /// `device_id`: HIP's number of the GPU.
    pub device_id: Option<usize>,
    /// `memory_limit`: most bytes of the GPU's memory.
    pub memory_limit: Option<usize>,
    /// `arena_extend_strategy`: how the arena of the GPU's memory grows.
    pub growth: Growth,
    /// `user_compute_stream`: the application's stream of HIP.
    pub user_compute_stream: Option<usize>,
    /// `graph_capture`: whether runs are captured and replayed.
    pub graph_capture: bool,
    /// `disable`: claim nothing.
    pub disable: bool,
    /// Compiled models that ONNX Runtime's own options ask for.
    pub compiled: Request,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            backend: None,
            plugin_dir: None,
            engine: None,
            report: None,
            dump_graphs: None,
            dump_ir: None,
            threads: None,
            winograd: None,
            tuning: None,
            strict: false,
            cache_dir: None,
            plan_cache: 16,
            cost_rule: true,
            device_id: None,
            memory_limit: None,
            growth: Growth::default(),
            user_compute_stream: None,
            graph_capture: false,
            disable: false,
            compiled: Request::default(),
        }
    }
}

/// Each key with its meaning, for messages and documentation.
pub const KEYS: &[(&str, &str)] = &[
    ("backend", "path of `libhipdnn_backend.so`, or of the directory it is in; nothing else is tried"),
    ("plugin_dir", "directory with hipDNN engine plugins, or one plugin; nothing else is loaded"),
    ("engine", "name of the engine that is tried first"),
    ("report", "file to which the claim report is appended, as JSON lines"),
    (
        "dump_graphs",
        "directory to which each hipDNN graph is written, as `<its first node>.hipdnn.bin`; of programs for \
         free extents when they are built (with the first run of such inputs, or, but for GPUs, with the session for \
         a batch of one if only the batch is free), with the extents of the first such input in the name",
    ),
    (
        "dump_ir",
        "directory to which every stage of each program is written as MLIR text, as `<its first node>.<stage>.mlir`; \
         of programs for free extents when they are built (with the first run of such inputs, or, but for GPUs, with the \
         session for a batch of one if only the batch is free), with the extents of such inputs in the name",
    ),
    (
        "threads",
        "how many threads of the session's intra-op pool (`intra_op_num_threads`) the CPU engine has work for at a time; \
         0 is one per core (default: `HIPDNN_RS_CPU_THREADS`, or 0)",
    ),
    (
        "winograd",
        "0 or 1: whether the CPU engine may use Winograd's algorithm (default: 1, and 0 with `precision` = `strict`)",
    ),
    (
        "precision",
        "`default`, or `strict`: no rounding beyond the network's own types. Then the GPU's engine stores in 16 bits only what \
         the network has in 16 bits, and no solver converts fp16 to bf16; the CPU engine does without Winograd's algorithm, \
         whose errors are larger",
    ),
    (
        "tuning",
        "`immediate`, `benchmark` or `tune`: whether a GPU's solvers are taken in MIOpen's own order, timed when plans are \
         built, or tuned by MIOpen first; the CPU engine chooses by rules (default: `immediate`; \
         `HIPDNN_FORCE_BENCHMARKING` counts more)",
    ),
    (
        "cache_dir",
        "directory in which the GPU's engine keeps the chosen solvers and compiled kernels of the session's plans between \
         processes, or `off` (default: as `HIPDNN_RS_CACHE_DIR` says); the CPU engine keeps nothing",
    ),
    ("plan_cache", "programs of a partition that are kept, one for each set of extents, at least 1 (default: 16)"),
    (
        "cost_rule",
        "0 or 1: whether partitions stay with other providers that would not be faster here: on the CPU those without a \
         convolution, matrix product, pooling or normalization, on a GPU those with less arithmetic than their copies from \
         and to other providers are worth (default: 1)",
    ),
    ("device_id", "HIP's number of the GPU, where the device that the session was given does not say it"),
    ("memory_limit", "most bytes of the GPU's memory that the session has in use at a time (default: all)"),
    (
        "arena_extend_strategy",
        "`kNextPowerOfTwo` or `kSameAsRequested`: whether the arena of the GPU's memory grows by as much as it holds, or \
         by what is asked for (default: `kNextPowerOfTwo`)",
    ),
    (
        "user_compute_stream",
        "address of the application's `hipStream_t`, which outlives the session: all runs are enqueued on it",
    ),
    (
        "graph_capture",
        "0 or 1: whether a GPU session's runs are captured as graphs of HIP and replayed; wants ONNX Runtime 1.26, all nodes \
         on the provider, and inputs and outputs bound to fixed addresses (default: 0)",
    ),
    ("disable", "0 or 1: claim nothing (default: 0)"),
];

impl Options {
    /// Reads the options among all entries of a session's configuration.
    ///
    /// # Errors
    /// An unknown key or a value that its key does not take.
    pub(crate) fn parse<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Options, Error> {
        let mut options = Options::default();
        for (key, value) in entries {
            let Some(key) = key.strip_prefix(PREFIX) else {
                options.compiled.read(key, value);
                continue;
            };
            match key {
                "backend" => options.backend = path(value),
                "plugin_dir" => options.plugin_dir = path(value),
                "engine" => options.engine = (!value.is_empty()).then(|| value.to_string()),
                "report" => options.report = path(value),
                "dump_graphs" => options.dump_graphs = path(value),
                "dump_ir" => options.dump_ir = path(value),
                "threads" => options.threads = Some(number(key, value, 0, 1024)?),
                "winograd" => options.winograd = Some(switch(key, value)?),
                "precision" => options.strict = word(key, value, &[("default", false), ("strict", true)])?,
                "tuning" => options.tuning = Some(word(key, value, &Tuning::WORDS)?),
                "cache_dir" => options.cache_dir = cache_dir(key, value)?,
                "plan_cache" => options.plan_cache = number(key, value, 1, 1 << 20)? as usize,
                "cost_rule" => options.cost_rule = switch(key, value)?,
                "device_id" => options.device_id = Some(number(key, value, 0, i64::from(i32::MAX))? as usize),
                "memory_limit" => options.memory_limit = Some(number(key, value, 1, i64::MAX)? as usize),
                "arena_extend_strategy" => {
                    options.growth = word(
                        key,
                        value,
                        &[("kNextPowerOfTwo", Growth::Doubling), ("kSameAsRequested", Growth::Exact)],
                    )?;
                }
                "user_compute_stream" => {
                    let address = number(key, value, 0, i64::MAX)? as usize;
                    options.user_compute_stream = (address != 0).then_some(address);
                }
                "graph_capture" => options.graph_capture = switch(key, value)?,
                "disable" => options.disable = switch(key, value)?,
                _ => return Err(unknown(key)),
            }
        }
        Ok(options)
    }
}

impl Options {
    /// Terms under which the session has a GPU's memory.
    pub(crate) fn terms(&self) -> Terms {
        Terms { limit: self.memory_limit.unwrap_or(usize::MAX), growth: self.growth }
    }
}

/// Effort of the search for fast kernels when plans are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tuning {
    /// Nothing: the library's own order counts.
    Immediate,
    /// Kernels that exist are timed.
    Benchmark,
    /// Kernels are tuned, too.
    Tune,
}

impl Tuning {
    const WORDS: [(&'static str, Tuning); 3] =
        [("immediate", Tuning::Immediate), ("benchmark", Tuning::Benchmark), ("tune", Tuning::Tune)];

    /// Its word, as the option and engines have it.
    pub(crate) fn word(self) -> &'static str {
        Tuning::WORDS.iter().find(|(_, tuning)| *tuning == self).map_or("", |(word, _)| word)
    }
}

/// The meaning of a word.
fn word<T: Copy>(key: &str, value: &str, words: &[(&str, T)]) -> Result<T, Error> {
    let known = words.iter().find(|(word, _)| *word == value.trim());
    known.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let valid: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        wrong(key, &valid.join(" or "), value)
    })
}

/// Most bytes of a directory's name: as many as systems take.
const LONGEST_PATH: usize = 4096;

/// A directory's name as engines take it, absolute, since the process may change its own directory; or `off`.
fn cache_dir(key: &str, value: &str) -> Result<Option<CString>, Error> {
    let name = match value {
        "" => return Ok(None),
        "off" => Some(value.as_bytes().to_vec()),
        _ => std::path::absolute(value).ok().map(|path| path.into_os_string().into_vec()),
    };
    let name = name.filter(|name| name.len() <= LONGEST_PATH).and_then(|name| CString::new(name).ok());
    name.map(Some).ok_or_else(|| wrong(key, &format!("a directory's name of at most {LONGEST_PATH} bytes"), value))
}

/// The error for a key that there is not, with the nearest one that there is.
fn unknown(key: &str) -> Error {
    let advice = nearest(key).map_or("it has".to_string(), |near| format!("did you mean {near:?}? It has"));
    let valid: Vec<_> = KEYS.iter().map(|(key, _)| *key).collect();
    Error::invalid(format!("{} has no option {key:?}; {advice} {}", crate::NAME_TEXT, valid.join(", ")))
}

/// Least likeness, from 0 to 1, of a key that is meant.
const LIKELY: f64 = 0.6;

/// The key that was probably meant.
fn nearest(key: &str) -> Option<&'static str> {
    let key = key.to_lowercase().replace('-', "_");
    let likeness = |known: &str| strsim::normalized_damerau_levenshtein(&key, known);
    let known = KEYS.iter().map(|(known, _)| (*known, likeness(known)));
    known.filter(|(_, likeness)| *likeness >= LIKELY).max_by(|a, b| a.1.total_cmp(&b.1)).map(|(known, _)| known)
}

fn path(value: &str) -> Option<PathBuf> {
    (!value.is_empty()).then(|| PathBuf::from(value))
}

fn wrong(key: &str, wanted: &str, value: &str) -> Error {
    Error::invalid(format!("option {key:?} of {}: expected {wanted}, got {value:?}", crate::NAME_TEXT))
}

fn number(key: &str, value: &str, least: i64, most: i64) -> Result<i64, Error> {
    let number = value.trim().parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| wrong(key, &format!("a number from {least} to {most}"), value))
}

fn switch(key: &str, value: &str) -> Result<bool, Error> {
    match value.trim() {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(wrong(key, "0 or 1", value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(entries: &[(&str, &str)]) -> Result<Options, String> {
        let entries: Vec<_> = entries.iter().map(|(key, value)| (format!("{PREFIX}{key}"), *value)).collect();
        Options::parse(entries.iter().map(|(key, value)| (key.as_str(), *value))).map_err(|error| error.message)
    }

    #[test]
    fn values() {
        let read = parse(&[
            ("backend", "/a/b.so"),
            ("plugin_dir", "/p"),
            ("engine", "HIPDNN_RS_CPU_ENGINE"),
            ("report", "r.jsonl"),
            ("dump_graphs", "graphs"),
            ("dump_ir", "ir"),
            ("threads", "3"),
            ("winograd", "0"),
            ("precision", "strict"),
            ("tuning", "benchmark"),
            ("cache_dir", "/a/cache"),
            ("plan_cache", "2"),
            ("cost_rule", "0"),
            ("device_id", "1"),
            ("memory_limit", "1000000"),
            ("arena_extend_strategy", "kSameAsRequested"),
            ("user_compute_stream", "4096"),
            ("graph_capture", "1"),
            ("disable", "0"),
        ]);
        let want = Options {
            backend: Some("/a/b.so".into()),
            plugin_dir: Some("/p".into()),
            engine: Some("HIPDNN_RS_CPU_ENGINE".into()),
            report: Some("r.jsonl".into()),
            dump_graphs: Some("graphs".into()),
            dump_ir: Some("ir".into()),
            threads: Some(3),
            winograd: Some(false),
            tuning: Some(Tuning::Benchmark),
            strict: true,
            cache_dir: Some(c"/a/cache".to_owned()),
            plan_cache: 2,
            cost_rule: false,
            device_id: Some(1),
            memory_limit: Some(1_000_000),
            growth: Growth::Exact,
            user_compute_stream: Some(4096),
            graph_capture: true,
            disable: false,
            compiled: Request::default(),
        };
        assert_eq!(read, Ok(want));
        assert_eq!(parse(&[("engine", ""), ("backend", "")]), Ok(Options::default()));
        assert_eq!(
            Options::parse([("session.disable_cpu_ep_fallback", "1"), ("ep.other.backend", "x")]),
            Ok(Options::default())
        );
    }

    #[test]
    fn every_key_is_listed() {
        for (key, _) in KEYS {
            let value = match *key {
                "threads" | "plan_cache" => "5",
                "arena_extend_strategy" => "kSameAsRequested",
                "precision" => "strict",
                "tuning" => "tune",
                _ => "1",
            };
            assert_ne!(
                parse(&[(key, value)]).map(|options| options == Options::default()),
                Err(String::new()),
                "{key}"
            );
            assert!(parse(&[(key, value)]).is_ok(), "{key}");
        }
    }

    #[test]
    fn mistakes() {
        for (key, value, want) in [
            (
                "thread",
                "1",
                "HipDnnRsExecutionProvider has no option \"thread\"; did you mean \"threads\"? It has backend, plugin_dir, \
                 engine, report, dump_graphs, dump_ir, threads, winograd, precision, tuning, cache_dir, plan_cache, \
                 cost_rule, device_id, memory_limit, arena_extend_strategy, user_compute_stream, graph_capture, disable",
            ),
            ("Threads", "1", "has no option \"Threads\"; did you mean \"threads\"? It has backend, "),
            ("dump-ir", "x", "has no option \"dump-ir\"; did you mean \"dump_ir\"? It has backend, "),
            ("plugins_dir", "x", "; did you mean \"plugin_dir\"?"),
            ("accuracy", "x", "has no option \"accuracy\"; it has backend, "),
            (
                "precision",
                "fp16",
                "option \"precision\" of HipDnnRsExecutionProvider: expected default or strict, got \"fp16\"",
            ),
            ("tuning", "1", "expected immediate or benchmark or tune, got \"1\""),
            (
                "threads",
                "-1",
                "option \"threads\" of HipDnnRsExecutionProvider: expected a number from 0 to 1024, got \"-1\"",
            ),
            ("threads", "many", "expected a number from 0 to 1024, got \"many\""),
            ("plan_cache", "0", "expected a number from 1 to 1048576, got \"0\""),
            ("arena_extend_strategy", "2", "expected kNextPowerOfTwo or kSameAsRequested, got \"2\""),
            ("memory_limit", "0", "expected a number from 1 to 9223372036854775807, got \"0\""),
            ("winograd", "yes", "option \"winograd\" of HipDnnRsExecutionProvider: expected 0 or 1, got \"yes\""),
        ] {
            let error = parse(&[(key, value)]).unwrap_err();
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn the_readme_has_the_same_table() {
        let readme = include_str!("../../README.md");
        let rows: String = KEYS.iter().map(|(key, meaning)| format!("| `{key}` | {meaning} |\n")).collect();
        assert!(readme.contains(&rows), "README.md wants this table of options:\n{rows}");
    }
}
