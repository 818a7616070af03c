//! Knobs of the CPU engine.

use std::sync::OnceLock;

use hipdnn_engine_core::error::Error;
use hipdnn_engine_core::knobs::{CONSTANTS, IntKnob};
use hipdnn_schemas::{EngineConfig, Graph, Knob, KnobValue, TensorUid};

/// Environment variable with the number of threads where the knob is not set; 0 for as many as there are cores.
pub const THREADS_VARIABLE: &str = "HIPDNN_RS_CPU_THREADS";

const THREADS: IntKnob = IntKnob {
    id: "hipdnn_rs.cpu.threads",
    description: "Threads that work on an execution; 0 for as many as there are cores",
    default: 0,
    min: 0,
    max: 1024,
};

const POOL: IntKnob = IntKnob {
    id: "hipdnn_rs.cpu.pool",
    description: "1 if the engine keeps threads for executions; 0 if those have the calling thread and what it lends",
    default: 1,
    min: 0,
    max: 1,
};

const WINOGRAD: IntKnob = IntKnob {
    id: "hipdnn_rs.cpu.winograd",
    description: "1 if Winograd's algorithm may be used, whose rounding errors are larger; 0 if not",
    default: 1,
    min: 0,
    max: 1,
};

const FUSE: IntKnob = IntKnob {
    id: "hipdnn_rs.cpu.fuse",
    description: "1 if several nodes may be computed in one step; 0 if each is a step of its own",
    default: 1,
    min: 0,
    max: 1,
};

const LAYOUT: IntKnob = IntKnob {
    id: "hipdnn_rs.cpu.layout",
    description: "1 if intermediates may have their channels innermost in memory, and 32 bits instead of 16, where that is \
                  faster; 0 if they are as the graph says",
    default: 1,
    min: 0,
    max: 1,
};

const DETERMINISTIC: IntKnob = IntKnob {
    id: "global.deterministic",
    description: "1 to have equal results from equal executions, which this engine gives in any case",
    default: 1,
    min: 0,
    max: 1,
};

const WORKSPACE_LIMIT: IntKnob = IntKnob {
    id: "global.workspace_size_limit",
    description: "Bytes that the workspace may have",
    default: i64::MAX,
    min: 0,
    max: i64::MAX,
};

const MAX_TOKEN: usize = 64;

/// Name that a client gives to the contents of a tensor.
pub type Token = Box<str>;

/// Settings of the CPU engine, from a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Number of threads that work on an execution.
    pub threads: usize,
    /// True if the engine keeps threads for executions by threads that lend none.
    pub pool: bool,
    /// True if Winograd's algorithm may be used.
    pub winograd: bool,
    /// True if several nodes may be computed in one step.
    pub fuse: bool,
    /// True if the element types and layouts of intermediates are chosen.
    pub layout: bool,
    /// Workspace limit in bytes.
    pub workspace_limit: usize,
    /// Tensors of constant contents, with their tokens.
    pub constants: Vec<(TensorUid, Token)>,
}

impl Settings {
    /// Knobs, as offered for every graph.
    pub fn describe() -> Vec<Knob> {
        let ints = [THREADS, POOL, WINOGRAD, FUSE, LAYOUT, DETERMINISTIC, WORKSPACE_LIMIT];
        ints.iter().map(IntKnob::describe).chain([CONSTANTS.describe()]).collect()
    }

    /// Reads a configuration for a graph.
    ///
    /// # Errors
    /// If a knob of this engine has a value that it does not take.
    pub fn new(config: &EngineConfig, graph: &Graph) -> Result<Settings, Error> {
        let int = |knob: IntKnob| Ok::<i64, Error>(knob.read(config)?.unwrap_or(knob.default));
        int(DETERMINISTIC)?;
        let threads = THREADS.read(config)?.unwrap_or_else(default_threads);
        Ok(Settings {
            threads: if threads == 0 { cores() } else { threads as usize },
            pool: int(POOL)? == 1,
            winograd: int(WINOGRAD)? == 1,
            fuse: int(FUSE)? == 1,
            layout: int(LAYOUT)? == 1,
            workspace_limit: usize::try_from(int(WORKSPACE_LIMIT)?).unwrap_or(usize::MAX),
            constants: constants(CONSTANTS.read(config)?.unwrap_or_default(), graph)?,
        })
    }

    /// Copy of the configuration with these settings' number of threads, wherever that came from.
    pub fn settled(&self, config: &EngineConfig) -> EngineConfig {
        let mut settled = config.clone();
        let threads = i64::try_from(self.threads).map_or(THREADS.max, |threads| threads.min(THREADS.max));
        settled.knobs.push((THREADS.id.to_string(), KnobValue::Int(threads)));
        settled
    }
}

/// Number of the process's processors, found once: on Linux that reads the files of its control groups.
fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Number of threads from the environment, or the knob's default.
fn default_threads() -> i64 {
    let Some(text) = std::env::var_os(THREADS_VARIABLE) else { return THREADS.default };
    let text = text.to_string_lossy();
    match text.trim().parse::<i64>() {
        Ok(threads) if (THREADS.min..=THREADS.max).contains(&threads) => threads,
        _ => {
            let (min, max, default) = (THREADS.min, THREADS.max, THREADS.default);
            log::warn!("{THREADS_VARIABLE}: expected {min} to {max}, got {text:?}; taking {default}");
            default
        }
    }
}

/// Parses `uid=token,…`.
fn constants(text: &str, graph: &Graph) -> Result<Vec<(TensorUid, Token)>, Error> {
    let id = CONSTANTS.id;
    let wrong = |reason: String| Error::bad_param(format!("knob {id}: {reason}"));
    let mut constants: Vec<(TensorUid, Token)> = Vec::new();
    if text.is_empty() {
        return Ok(constants);
    }
    for entry in text.split(',') {
        let (uid, token) =
            entry.split_once('=').ok_or_else(|| wrong(format!("expected uid=token, got {}", shortened(entry))))?;
        let uid: i64 = uid.parse().map_err(|_| wrong(format!("expected a uid, got {}", shortened(uid))))?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if token.is_empty() || token.len() > MAX_TOKEN || !token.bytes().all(is_plain) {
            let token = shortened(token);
            return Err(wrong(format!(
                "tensor {uid}: expected a token of 1 to {MAX_TOKEN} characters of [0-9A-Za-z._-], got {token}"
            )));
        }
        let uid = TensorUid(uid);
        if graph.find(uid).is_none() {
            return Err(wrong(format!("tensor {uid}: the graph has no such tensor")));
        }
        if let Some(node) = graph.producer(uid) {
            return Err(wrong(format!("tensor {uid}: node {node} writes it, so it is no constant")));
        }
        constants.push((uid, token.into()));
    }
    constants.sort();
    match constants.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(wrong(format!("tensor {}: expected one token, got two", pair[0].0))),
        None => Ok(constants),
    }
}

/// Foreign text, shortened for a message.
fn shortened(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    if short.len() < text.len() { format!("{short:?}…") } else { format!("{short:?}") }
}
