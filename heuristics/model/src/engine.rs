//! Engines that are known by name, and the configurations of them that are worth a try.

use hipdnn_schemas::{EngineConfig, KnobValue};
use hipdnn_sdk_bindings::hipdnn::plugin::engine_id;

use crate::work::Kind;

/// What is known of an engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Engine {
    /// Name, of which the id is a hash.
    pub name: &'static str,
    /// True if it computes on the host.
    pub on_host: bool,
    /// True if it computes several nodes in one kernel.
    pub fuses: bool,
    /// Seconds of the host for an execution, and for each of its steps.
    pub overhead: [f64; 2],
    /// Share of the device's peak rate that each kind of work gets, in the order of [`Kind::ALL`].
    pub share: [f64; Kind::ALL.len()],
    /// Settings that are worth a try, one at a time, of those that change no result's meaning.
    pub settings: &'static [(&'static str, i64)],
}

/// This project's CPU engine.
pub const CPU: &str = "HIPDNN_RS_CPU_ENGINE";

/// The knob of the CPU engine that says how many threads work.
pub const THREADS: &str = "hipdnn_rs.cpu.threads";

/// The knobs that switch fusing and Winograd's algorithm.
pub const FUSE: [&str; 2] = ["hipdnn_rs.cpu.fuse", "hipdnn_rs.gpu.fuse"];
/// The knob that permits Winograd's algorithm.
pub const WINOGRAD: &str = "hipdnn_rs.cpu.winograd";

/// Shares of MIOpen's solvers; also of engines that nobody knows, of which nothing better can be said.
const SOLVERS: [f64; 7] = [0.5, 0.1, 0.4, 0.6, 0.4, 0.3, 0.4];

/// Engines that are known. Overheads are those of launches on ROCm (some 5 µs, more where a library is asked each
/// time). Shares are estimates; `hipdnn-rs tune --report` says by how much they are off.
pub const KNOWN: [Engine; 5] = [
    Engine {
        name: "HIPDNN_RS_GPU_ENGINE",
        on_host: false,
        fuses: true,
        overhead: [2e-6, 4e-6],
        share: SOLVERS,
        settings: &[("hipdnn_rs.gpu.fused_kernels", 0)],
    },
    Engine {
        name: "MIOPEN_ENGINE",
        on_host: false,
        fuses: true,
        overhead: [5e-6, 10e-6],
        share: SOLVERS,
        settings: &[],
    },
    Engine {
        name: "MIOPEN_ENGINE_DETERMINISTIC",
        on_host: false,
        fuses: true,
        overhead: [5e-6, 10e-6],
        share: [0.5, 0.07, 0.3, 0.3, 0.3, 0.15, 0.3],
        settings: &[],
    },
    Engine {
        name: "HIPBLASLT_ENGINE",
        on_host: false,
        fuses: true,
        overhead: [3e-6, 5e-6],
        share: [0.5, 0.1, 0.4, 0.4, 0.4, 0.3, 0.7],
        settings: &[],
    },
    Engine {
        name: CPU,
        on_host: true,
        fuses: true,
        overhead: [0.5e-6, 2e-6],
        share: [0.15, 0.12, 0.45, 0.4, 0.5, 0.4, 0.5],
        settings: &[(THREADS, 1), (WINOGRAD, 0), ("hipdnn_rs.cpu.layout", 0), (FUSE[0], 0)],
    },
];

/// The engine of that id, if it is known.
pub fn find(id: i64) -> Option<&'static Engine> {
    KNOWN.iter().find(|engine| engine_id(engine.name) == id)
}

/// An engine that nobody knows, on a device of the kind that is ranked for.
pub const fn unknown(on_host: bool) -> Engine {
    Engine { name: "", on_host, fuses: false, overhead: [10e-6, 10e-6], share: SOLVERS, settings: &[] }
}

/// An engine with settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// Id of the engine.
    pub engine: i64,
    /// Knobs that are not at their defaults.
    pub knobs: Vec<(String, KnobValue)>,
}

impl Configuration {
    /// An engine as it is without settings.
    pub fn plain(engine: i64) -> Configuration {
        Configuration { engine, knobs: Vec::new() }
    }

    /// The configurations of an engine that are ranked: as it is, then with each of its settings.
    pub fn all(engine: i64) -> Vec<Configuration> {
        let settings = find(engine).map_or(&[][..], |engine| engine.settings);
        let set = |(name, value): &(&str, i64)| Configuration {
            engine,
            knobs: vec![((*name).to_owned(), KnobValue::Int(*value))],
        };
        std::iter::once(Configuration::plain(engine)).chain(settings.iter().map(set)).collect()
    }

    /// Number by which measurements are kept: the engine's id, or with knobs the hash of both, as ids are hashes of
    /// names.
    pub fn number(&self) -> i64 {
        if self.knobs.is_empty() {
            return self.engine;
        }
        let mut text = format!("{:016x}", self.engine);
        for (name, value) in &self.knobs {
            text.push_str(&format!(" {name}={}", shown(value)));
        }
        engine_id(&text)
    }

    /// True without settings.
    pub fn is_plain(&self) -> bool {
        self.knobs.is_empty()
    }

    /// Value of a knob of whole numbers.
    pub fn knob(&self, name: &str) -> Option<i64> {
        self.knobs.iter().find(|(its, _)| its == name).and_then(|(_, value)| match value {
            KnobValue::Int(value) => Some(*value),
            _ => None,
        })
    }

    /// As hipDNN's configuration.
    pub fn config(&self) -> EngineConfig {
        EngineConfig { engine_id: self.engine, knobs: self.knobs.clone() }
    }

    /// The knobs as a text, `default` without any.
    pub fn shown(&self) -> String {
        if self.knobs.is_empty() {
            return "default".to_owned();
        }
        let one = |(name, value): &(String, KnobValue)| format!("{name}={}", shown(value));
        self.knobs.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

fn shown(value: &KnobValue) -> String {
    match value {
        KnobValue::Int(value) => value.to_string(),
        KnobValue::Float(value) => value.to_string(),
        KnobValue::String(value) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn numbers_tell_configurations_apart() {
        let all: Vec<_> = KNOWN.iter().flat_map(|engine| Configuration::all(engine_id(engine.name))).collect();
        let numbers: HashSet<i64> = all.iter().map(Configuration::number).collect();
        assert_eq!(numbers.len(), all.len());
        assert_eq!(Configuration::plain(77).number(), 77, "hipDNN's readers know an engine by its id");
        assert_eq!(Configuration::all(77).len(), 1, "nobody knows its knobs");
        assert_eq!(all.last().unwrap().shown(), "hipdnn_rs.cpu.fuse=0");
        assert_eq!(all.last().unwrap().knob(FUSE[0]), Some(0));
    }
}
