//! Times of a graph on every engine that takes it, in its configurations.

use std::time::Duration;

use hipdnn_heuristics_model::cost::Model;
use hipdnn_heuristics_model::device::{Device, HOST};
use hipdnn_heuristics_model::engine::Configuration;
use hipdnn_schemas::DeviceProperties;
use hipdnn_sdk_bindings::hip::{Hip, hipError_t};

use crate::bench::{self, Subject, Times};
use crate::content::Source;
use crate::engines::Loaded;
use crate::workplace::Workplace;

/// Times of a graph.
pub(crate) struct Measured {
    pub(crate) source: Source,
    /// The table of `bench`.
    pub(crate) table: String,
    /// Configurations with their times: of each engine first the one without settings.
    times: Vec<(Configuration, Times)>,
    /// Name of each configuration's engine.
    engines: Vec<String>,
}

/// Times all configurations of the engines that take the graph, in turn; `None` if there is none. Settings are those
/// that the engines have knobs for.
pub(crate) fn measure(
    plugins: &[Loaded],
    source: Source,
    place: &Workplace,
    seconds: f64,
    seed: u64,
    with_settings: bool,
) -> Result<Option<Measured>, String> {
    bench::check_seconds(seconds)?;
    let taking = bench::taking(plugins, &source)?;
    if taking.is_empty() {
        return Ok(None);
    }
    let (mut subjects, mut configurations, mut engines) = (Vec::new(), Vec::new(), Vec::new());
    for (engine, details) in &taking {
        let has = |name: &String| details.knobs.iter().any(|knob| knob.id == *name);
        let all = Configuration::all(engine.id).into_iter();
        for configuration in all.filter(|its| its.knobs.iter().all(|(name, _)| with_settings && has(name))) {
            let label = match configuration.is_plain() {
                true => engine.name.to_owned(),
                false => format!("{} with {}", engine.name, configuration.shown()),
            };
            subjects.push(Subject { engine: *engine, config: configuration.config(), label });
            configurations.push(configuration);
            engines.push(engine.name.to_owned());
        }
    }
    let times = bench::time_in_turn(&source, &subjects, place, seed, seconds)?;
    let table = bench::report(&source, &times, bench::subjects_on_host(&subjects, place));
    Ok(Some(Measured { source, table, times: configurations.into_iter().zip(times).collect(), engines }))
}

/// Executions that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    All,
    /// Every second one, from the first on.
    First,
    /// Those between.
    Second,
}

impl Measured {
    /// Seconds of each configuration where nothing else gets in its way, by some of the executions.
    pub(crate) fn seconds(&self, share: Share) -> Vec<(Configuration, f64)> {
        let of = |(configuration, times): &(Configuration, Times)| {
            let (start, step) = match share {
                Share::All => (0, 1),
                Share::First => (0, 2),
                Share::Second => (1, 2),
            };
            let chosen: Vec<Duration> = times.whole.iter().skip(start).step_by(step).copied().collect();
            // No execution takes no time: a clock's step is the least.
            (configuration.clone(), bench::undisturbed(&chosen).as_secs_f64().max(1e-9))
        };
        self.times.iter().map(of).collect()
    }

    /// Name of each engine with the median of its executions without settings, in seconds.
    pub(crate) fn engines(&self) -> Vec<(f64, i64, &str)> {
        let plain = |((configuration, times), name): (&(Configuration, Times), _)| {
            configuration.is_plain().then(|| (bench::median(&times.whole).as_secs_f64(), configuration.engine, name))
        };
        self.times.iter().zip(self.engines.iter().map(String::as_str)).filter_map(plain).collect()
    }

    /// Number of configurations.
    pub(crate) fn count(&self) -> usize {
        self.times.len()
    }
}

/// The cost model for the device that a backend in this process would rank for.
pub(crate) fn model() -> Model {
    let host = Device::of(&host());
    match gpu() {
        Some(properties) => Model { device: Device::of(&properties), host },
        None => Model { device: host.clone(), host },
    }
}

fn host() -> DeviceProperties {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    DeviceProperties {
        device_id: HOST,
        multi_processor_count: i32::try_from(threads).unwrap_or(i32::MAX),
        total_global_mem: 0,
        architecture_name: std::env::consts::ARCH.to_owned(),
    }
}

/// Facts of the current device, if an engine has loaded HIP and there is one.
fn gpu() -> Option<DeviceProperties> {
    let hip = Hip::of_process().ok()?;
    let mut device = 0;
    // SAFETY: the place is valid, and the library is open.
    let status = unsafe { (hip.functions.hipGetDevice)(&mut device) };
    if status != hipError_t::hipSuccess {
        return None;
    }
    // SAFETY: the library is open.
    let properties = unsafe { hip.functions.device_properties(device) }.ok()?;
    Some(DeviceProperties {
        device_id: device,
        multi_processor_count: properties.known.multiProcessorCount,
        total_global_mem: properties.known.totalGlobalMem as u64,
        architecture_name: properties.arch(),
    })
}
