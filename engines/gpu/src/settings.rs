//! The knobs of the GPU engine.

use std::time::Duration;

use hipdnn_engine_core::error::Error;
use hipdnn_engine_core::knobs::{ChoiceKnob, IntKnob, TextKnob, shortened};
use hipdnn_engine_kernel::legalize::LegalizeOptions;
use hipdnn_schemas::{EngineConfig, Knob, KnobValue};

use crate::miopen::choice::{Effort, Policy};

/// hipDNN's environment variable that decides about benchmarking, whatever the knobs say: 0 or 1.
pub const FORCE_BENCHMARKING_VARIABLE: &str = "HIPDNN_FORCE_BENCHMARKING";

/// Forbids the process to record launches.
const RECORD_VARIABLE: &str = "HIPDNN_RS_RECORD";

const BENCHMARKING: IntKnob = IntKnob {
    id: "global.benchmarking",
    description: "1 to time the solvers when the plan is built and take the fastest, as hipdnn_rs.gpu.search=benchmark",
    default: 0,
    min: 0,
    max: 1,
};

const DETERMINISTIC: IntKnob = IntKnob {
    id: "global.deterministic",
    description: "1 to have equal results from equal executions: only solvers that promise it are taken",
    default: 0,
    min: 0,
    max: 1,
};

const WORKSPACE_LIMIT: IntKnob = IntKnob {
    id: "global.workspace_size_limit",
    description: "Bytes that the workspace may have: solvers and intermediates together keep to it",
    default: i64::MAX,
    min: 0,
    max: i64::MAX,
};

const SEARCH: ChoiceKnob = ChoiceKnob {
    id: "hipdnn_rs.gpu.search",
    description: "How the solver of a convolution is chosen: immediate takes MIOpen's own order, benchmark times the \
                  solvers, tune has MIOpen tune them first",
    default: "immediate",
    valid: &["immediate", "benchmark", "tune"],
};

const SEARCH_TIME: IntKnob = IntKnob {
    id: "hipdnn_rs.gpu.search_time_ms",
    description: "Milliseconds after which benchmarking a convolution ends with what it has found",
    default: 2000,
    min: 1,
    max: 24 * 60 * 60 * 1000,
};

const SOLVERS: TextKnob = TextKnob {
    id: "hipdnn_rs.gpu.solvers",
    description: "id,… : the only solvers that are tried, by MIOpen's numbers; empty for all",
    max_length: 1 << 16,
};

const SOLVERS_DENIED: TextKnob = TextKnob {
    id: "hipdnn_rs.gpu.solvers_denied",
    description: "id,… : solvers that are not tried, by MIOpen's numbers",
    max_length: 1 << 16,
};

const STRICT_FP32: IntKnob = IntKnob {
    id: "hipdnn_rs.gpu.strict_fp32",
    description: "1 to keep intermediates float where the graph says so, also where only a function that can't undo rounding \
                  lies before a 16-bit result, and fp16 from being converted to bf16 inside of solvers",
    default: 0,
    min: 0,
    max: 1,
};

const RECORDED_LAUNCHES: IntKnob = IntKnob {
    id: "hipdnn_rs.gpu.recorded_launches",
    description: "1 to launch a solver's kernels directly, as recorded when the plan was built; 0 to call MIOpen each time",
    default: 1,
    min: 0,
    max: 1,
};

const FUSED_KERNELS: IntKnob = IntKnob {
    id: "hipdnn_rs.gpu.fused_kernels",
    description: "1 if MIOpen is asked for one kernel for a convolution with its bias and activation; 0 if not",
    default: 1,
    min: 0,
    max: 1,
};

const FUSE: IntKnob = IntKnob {
    id: "hipdnn_rs.gpu.fuse",
    description: "1 if several nodes may be computed in one step; 0 if each is a step of its own",
    default: 1,
    min: 0,
    max: 1,
};

/// Settings that a configuration asks of the GPU engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Effort of the search for a fast solver.
    pub search: Effort,
    /// Time after which no further solver is timed.
    pub search_time: Duration,
    /// True if equal executions have to give equal results.
    pub deterministic: bool,
    /// Bytes that the workspace may have.
    pub workspace_limit: usize,
    /// The only solvers that are tried; `None` for all.
    pub solvers: Option<Vec<u64>>,
    /// Solvers that are not tried.
    pub solvers_denied: Vec<u64>,
    /// True if values that the graph calls float stay float.
    pub strict_fp32: bool,
    /// True if kernels are launched as recorded.
    pub recorded_launches: bool,
    /// True if MIOpen is asked for fused kernels.
    pub fused_kernels: bool,
    /// True if nodes may be fused.
    pub fuse: bool,
}

impl Settings {
    /// The knobs, as offered for every graph.
    pub fn describe() -> Vec<Knob> {
        let ints = [
            BENCHMARKING,
            DETERMINISTIC,
            WORKSPACE_LIMIT,
            SEARCH_TIME,
            STRICT_FP32,
            RECORDED_LAUNCHES,
            FUSED_KERNELS,
            FUSE,
        ];
        let texts = [SOLVERS, SOLVERS_DENIED];
        let ints = ints.iter().map(IntKnob::describe);
        ints.chain([SEARCH.describe()]).chain(texts.iter().map(TextKnob::describe)).collect()
    }

    /// Reads a configuration.
    ///
    /// # Errors
    /// If a knob of this engine has a value that it does not take.
    pub fn new(config: &EngineConfig) -> Result<Settings, Error> {
        let variable = |name| std::env::var(name).ok();
        let settings = Settings::read(config, variable(FORCE_BENCHMARKING_VARIABLE).as_deref())?;
        Ok(settings.recording(variable(RECORD_VARIABLE).as_deref()))
    }

    /// Reads the configuration of a stored plan, which [`Settings::settled`] gave: only the process's own switch counts.
    ///
    /// # Errors
    /// As [`Settings::new`].
    pub fn stored(config: &EngineConfig) -> Result<Settings, Error> {
        Ok(Settings::read(config, None)?.recording(std::env::var(RECORD_VARIABLE).ok().as_deref()))
    }

    /// The configuration with the search that these settings have, whatever it came from.
    pub fn settled(&self, config: &EngineConfig) -> EngineConfig {
        let mut settled = config.clone();
        settled.knobs.push((BENCHMARKING.id.to_string(), KnobValue::Int(0)));
        settled.knobs.push((SEARCH.id.to_string(), KnobValue::String(self.search.name().to_string())));
        settled
    }

    fn read(config: &EngineConfig, forced: Option<&str>) -> Result<Settings, Error> {
        let int = |knob: IntKnob| Ok::<i64, Error>(knob.read(config)?.unwrap_or(knob.default));
        let least = if int(BENCHMARKING)? == 1 { Effort::Benchmark } else { Effort::Immediate };
        let search = match SEARCH.read(config)? {
            Some("tune") => Effort::Tune,
            Some("benchmark") => Effort::Benchmark,
            _ => Effort::Immediate,
        };
        let search = match forced {
            Some("0") => Effort::Immediate,
            Some("1") => search.max(Effort::Benchmark),
            other => {
                if let Some(other) = other.filter(|text| !text.is_empty()) {
                    let other = shortened(other);
                    log::warn!("{FORCE_BENCHMARKING_VARIABLE}: expected 0 or 1, got {other}; left to the knobs");
                }
                search.max(least)
            }
        };
        let solvers = ids(SOLVERS, config)?;
        Ok(Settings {
            search,
            search_time: Duration::from_millis(int(SEARCH_TIME)?.unsigned_abs()),
            deterministic: int(DETERMINISTIC)? == 1,
            workspace_limit: usize::try_from(int(WORKSPACE_LIMIT)?).unwrap_or(usize::MAX),
            solvers: (!solvers.is_empty()).then_some(solvers),
            solvers_denied: ids(SOLVERS_DENIED, config)?,
            strict_fp32: int(STRICT_FP32)? == 1,
            recorded_launches: int(RECORDED_LAUNCHES)? == 1,
            fused_kernels: int(FUSED_KERNELS)? == 1 && int(FUSE)? == 1,
            fuse: int(FUSE)? == 1,
        })
    }

    /// The same under the process's switch: `0` has nothing recorded, whatever the knob says.
    fn recording(mut self, switch: Option<&str>) -> Settings {
        self.recorded_launches &= switch != Some("0");
        self
    }

    /// Policy for the choice of solvers.
    pub fn policy(&self) -> Policy {
        Policy {
            workspace_limit: (self.workspace_limit < WORKSPACE_LIMIT.max as usize).then_some(self.workspace_limit),
            effort: self.search,
            search_time: self.search_time,
            allow: self.solvers.clone(),
            deny: self.solvers_denied.clone(),
            recorded: self.recorded_launches,
            fp16_alternative: !self.strict_fp32,
        }
    }

    /// Options of legalization for a device with that number of compute units.
    pub fn options(&self, compute_units: usize) -> LegalizeOptions {
        LegalizeOptions { deterministic: self.deterministic, strict_fp32: self.strict_fp32, compute_units }
    }

    /// The error of a workspace that needs more than the limit.
    pub fn too_small(&self, needed: usize) -> Error {
        let (id, limit) = (WORKSPACE_LIMIT.id, self.workspace_limit);
        Error::invalid_value(format!("knob {id}: expected at least {needed} bytes for this graph, got {limit}"))
    }
}

/// Parses `id,…`, ascending and each once afterwards.
fn ids(knob: TextKnob, config: &EngineConfig) -> Result<Vec<u64>, Error> {
    let text = knob.read(config)?.unwrap_or_default();
    let entries = text.split(',').map(str::trim).filter(|_| !text.trim().is_empty());
    let ids = entries.map(|entry| match entry.parse::<u64>() {
        // 0 is what MIOpen calls "no solution".
        Ok(id) if id > 0 => Ok(id),
        _ => {
            let (knob, came) = (knob.id, shortened(entry));
            Err(Error::bad_param(format!("knob {knob}: expected the numbers of solvers, as in 85,86, got {came}")))
        }
    });
    let mut ids = ids.collect::<Result<Vec<u64>, Error>>()?;
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hipdnn_schemas::KnobConstraint;

    fn config(knobs: &[(&str, KnobValue)]) -> EngineConfig {
        let knobs = knobs.iter().map(|(id, value)| (id.to_string(), value.clone())).collect();
        EngineConfig { engine_id: 0, knobs }
    }

    fn text(text: &str) -> KnobValue {
        KnobValue::String(text.to_string())
    }

    #[test]
    fn what_is_not_set_has_the_default_that_is_described() {
        let defaults = Settings::read(&EngineConfig::default(), None).unwrap();
        let described = Settings::describe().into_iter().map(|knob| (knob.id, knob.default)).collect();
        assert_eq!(Settings::read(&EngineConfig { engine_id: 0, knobs: described }, None).unwrap(), defaults);
        assert_eq!(defaults.search, Effort::Immediate);
        assert!(defaults.recorded_launches && !defaults.deterministic && !defaults.strict_fp32);
        assert!(defaults.fuse && defaults.fused_kernels);
        assert_eq!((defaults.solvers, defaults.solvers_denied), (None, vec![]));
    }

    #[test]
    fn every_described_bound_is_the_bound() {
        for knob in Settings::describe() {
            let good = |value: KnobValue| Settings::read(&config(&[(&knob.id, value)]), None).is_ok();
            match knob.constraint.as_ref().expect("every knob says what it takes") {
                KnobConstraint::Int { min, max, .. } => {
                    assert!(good(KnobValue::Int(*min)) && good(KnobValue::Int(*max)), "{}", knob.id);
                    assert!(!good(KnobValue::Int(min - 1)), "{}", knob.id);
                    assert!(max.checked_add(1).is_none_or(|more| !good(KnobValue::Int(more))), "{}", knob.id);
                    assert!(!good(text("1")), "{}", knob.id);
                }
                KnobConstraint::String { valid, .. } => {
                    assert!(valid.iter().all(|word| good(text(word))), "{}", knob.id);
                    assert!(!good(text("nonsense")) && !good(KnobValue::Int(1)), "{}", knob.id);
                }
                KnobConstraint::Float { .. } => panic!("{} is no number with a fraction", knob.id),
            }
        }
    }

    #[test]
    fn the_search_follows_the_knobs_and_the_environment() {
        let one = || ("global.benchmarking", KnobValue::Int(1));
        let search = |word: &str| ("hipdnn_rs.gpu.search", text(word));
        type Case<'a> = (Vec<(&'a str, KnobValue)>, Option<&'a str>, Effort);
        let cases: [Case<'_>; 10] = [
            (vec![], None, Effort::Immediate),
            (vec![one()], None, Effort::Benchmark),
            (vec![search("benchmark")], None, Effort::Benchmark),
            (vec![one(), search("immediate")], None, Effort::Benchmark),
            (vec![one(), search("tune")], None, Effort::Tune),
            (vec![], Some("1"), Effort::Benchmark),
            (vec![search("tune")], Some("1"), Effort::Tune),
            (vec![one(), search("tune")], Some("0"), Effort::Immediate),
            (vec![one()], Some(""), Effort::Benchmark),
            (vec![one()], Some("yes"), Effort::Benchmark),
        ];
        for (knobs, forced, want) in cases {
            let settings = Settings::read(&config(&knobs), forced).unwrap();
            assert_eq!(settings.search, want, "{knobs:?} {forced:?}");
            // What the environment decided is in the configuration of a stored plan.
            let settled = Settings::read(&settings.settled(&config(&knobs)), None).unwrap();
            assert_eq!(settled, settings, "{knobs:?} {forced:?}");
        }
    }

    #[test]
    fn lists_of_solvers_are_numbers() {
        for (list, want) in [
            ("", Some(None)),
            (" ", Some(None)),
            ("85", Some(Some(vec![85]))),
            ("91, 85,91", Some(Some(vec![85, 91]))),
            ("85,", None),
            ("0", None),
            ("-1", None),
            ("ConvDirectNaiveConvFwd", None),
        ] {
            let got = Settings::read(&config(&[("hipdnn_rs.gpu.solvers", text(list))]), None);
            assert_eq!(got.as_ref().ok().map(|settings| settings.solvers.clone()), want, "{list:?}");
            if let Err(error) = got {
                assert!(error.to_string().contains("expected the numbers of solvers"), "{error}");
            }
        }
    }

    #[test]
    fn the_process_may_forbid_recording() {
        let config = |recorded| EngineConfig {
            engine_id: 0,
            knobs: [(RECORDED_LAUNCHES.id.to_string(), KnobValue::Int(recorded))].into_iter().collect(),
        };
        for (knob, switch, want) in
            [(1, None, true), (1, Some("1"), true), (1, Some("0"), false), (0, Some("1"), false), (0, None, false)]
        {
            let settings = Settings::read(&config(knob), None).unwrap().recording(switch);
            assert_eq!(settings.recorded_launches, want, "{knob} {switch:?}");
        }
    }
}
