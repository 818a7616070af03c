//! A policy that is asked once: its inputs, and its answer.

use std::ffi::{CStr, CString};

use hipdnn_heuristics_model::cost::Model;
use hipdnn_heuristics_model::device::{Device, HOST};
use hipdnn_heuristics_model::engine::Configuration;
use hipdnn_heuristics_model::ranking::{self, Basis, Estimate};
use hipdnn_heuristics_model::store;
use hipdnn_schemas::{DeviceProperties, Graph};
use hipdnn_sdk_bindings::hipdnn::plugin::engine_id;

use crate::error::Error;
use crate::log;

/// The policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// By what was measured.
    Measured,
    /// By the cost model.
    CostModel,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 2] = [Policy::Measured, Policy::CostModel];

    /// Name, of which the id is a hash.
    pub const fn name(self) -> &'static CStr {
        match self {
            Policy::Measured => c"SelectionHeuristic::HipdnnRsMeasured",
            Policy::CostModel => c"SelectionHeuristic::HipdnnRsCostModel",
        }
    }

    /// Number for hosts.
    pub fn id(self) -> i64 {
        engine_id(&self.name().to_string_lossy())
    }

    /// The policy of that number.
    ///
    /// # Errors
    /// If there is none.
    pub fn find(id: i64) -> Result<Policy, Error> {
        let found = Policy::ALL.into_iter().find(|policy| policy.id() == id);
        found.ok_or_else(|| {
            Error::bad_param(format!("expected a policy of this plugin, got {:#018x}", id.cast_unsigned()))
        })
    }
}

/// Metrics by which an order of times is an order: of one graph, throughput is the more the less time is.
const METRICS: [&str; 2] = ["tflops", "time"];

/// Most candidates of a request: more are a wrong count.
pub const MAX_ENGINES: usize = 1 << 12;

/// Bytes where a host reads scalars of FlatBuffers in place.
#[derive(Debug)]
struct Aligned {
    words: Box<[u128]>,
    size: usize,
}

impl Aligned {
    fn new(bytes: &[u8]) -> Aligned {
        let word = |chunk: &[u8]| {
            let mut word = [0; 16];
            word[..chunk.len()].copy_from_slice(chunk);
            u128::from_ne_bytes(word)
        };
        Aligned { words: bytes.chunks(16).map(word).collect(), size: bytes.len() }
    }
}

/// An engine's place in an answer.
#[derive(Debug)]
struct Place {
    estimate: Estimate,
    /// Serialized configuration, if the engine has settings.
    config: Option<Aligned>,
    trace: CString,
}

/// A request.
#[derive(Debug)]
pub struct Request {
    policy: Policy,
    /// The candidates, once they are set.
    engines: Option<Vec<i64>>,
    graph: Option<Graph>,
    /// The answer, once there is one.
    places: Option<Vec<Place>>,
}

impl Request {
    /// A request without inputs.
    pub fn new(policy: Policy) -> Request {
        Request { policy, engines: None, graph: None, places: None }
    }

    /// Sets the candidates.
    pub fn set_engines(&mut self, engines: &[i64]) {
        self.places = None;
        self.engines = Some(engines.to_vec());
    }

    /// Sets the graph.
    ///
    /// # Errors
    /// If the bytes are none.
    pub fn set_graph(&mut self, bytes: &[u8]) -> Result<(), Error> {
        (self.places, self.graph) = (None, None);
        let graph = Graph::from_bytes(bytes).map_err(|error| Error::bad_param(format!("serialized_graph: {error}")))?;
        self.graph = Some(graph);
        Ok(())
    }

    /// Ranks the candidates for the device; `None` if the policy declines.
    ///
    /// # Errors
    /// If something was not set.
    pub fn rank(&mut self, device: &DeviceProperties, metric: Option<&str>) -> Result<Option<Vec<Estimate>>, Error> {
        self.places = None;
        let graph = self.graph.as_ref().ok_or_else(|| Error::not_initialized("expected a graph before, got none"))?;
        let engines = self.engines.as_ref();
        let engines = engines.ok_or_else(|| Error::not_initialized("expected candidates before, got none"))?;
        if let Some(metric) = metric.filter(|metric| !METRICS.contains(metric)) {
            log::info(|| format!("declined: nothing is known of metric {metric:?}"));
            return Ok(None);
        }
        if engines.is_empty() {
            return Ok(None);
        }
        Ok(rank(self.policy, device, graph, engines))
    }

    /// Takes an order of [`Request::rank`] for the answer.
    pub fn answer(&mut self, mut order: Vec<Estimate>, device: &DeviceProperties) {
        let unknown = |estimate: &Estimate| estimate.basis == Basis::Unknown;
        // Stable: unknown engines stay in the order in which they were given.
        order.sort_by(|a, b| match (unknown(a), unknown(b)) {
            (false, false) => a.seconds.total_cmp(&b.seconds),
            (a, b) => a.cmp(&b),
        });
        log::info(|| {
            let shown = order.iter().map(shown).collect::<Vec<_>>().join("; ");
            let name = self.graph.as_ref().map_or("", Graph::name);
            format!("{}: graph {name:?}: {shown}", self.policy.name().to_string_lossy())
        });
        self.places = Some(order.into_iter().map(|estimate| place(estimate, device)).collect());
    }

    fn places(&self) -> Result<&[Place], Error> {
        self.places
            .as_deref()
            .ok_or_else(|| Error::not_initialized("expected a policy that ranked, got one that did not"))
    }

    fn place(&self, engine: i64) -> Result<&Place, Error> {
        let found = self.places()?.iter().find(|place| place.estimate.configuration.engine == engine);
        found.ok_or_else(|| {
            Error::bad_param(format!("expected an engine of the answer, got {:#018x}", engine.cast_unsigned()))
        })
    }

    /// The engines, the best first.
    ///
    /// # Errors
    /// If the policy has not ranked.
    pub fn sorted(&self) -> Result<Vec<i64>, Error> {
        Ok(self.places()?.iter().map(|place| place.estimate.configuration.engine).collect())
    }

    /// Address and size of an engine's serialized configuration, good until the request changes.
    ///
    /// # Errors
    /// If the policy has not ranked, or the engine has no settings.
    pub fn config(&self, engine: i64) -> Result<(*const u8, usize), Error> {
        let config = self.place(engine)?.config.as_ref();
        let config = config.ok_or_else(|| Error::not_applicable("the engine was ranked without settings"))?;
        Ok((config.words.as_ptr().cast(), config.size))
    }

    /// The trace of an engine, good until the request changes.
    ///
    /// # Errors
    /// If the policy has not ranked, or not that engine.
    pub fn trace(&self, engine: i64) -> Result<&CStr, Error> {
        Ok(&self.place(engine)?.trace)
    }
}

/// Puts the seconds that engines predict themselves in the place of estimates.
pub fn predict(order: &mut [Estimate], predicted: &dyn Fn(i64) -> Option<f64>) {
    for estimate in order {
        if let Some(seconds) = predicted(estimate.configuration.engine) {
            let configuration = Configuration::plain(estimate.configuration.engine);
            *estimate = Estimate { configuration, seconds, basis: Basis::Engine };
        }
    }
}

fn rank(policy: Policy, properties: &DeviceProperties, graph: &Graph, engines: &[i64]) -> Option<Vec<Estimate>> {
    let device = Device::of(properties);
    let host = if device.is_host { device.clone() } else { this_host() };
    let model = Model { device, host };
    if policy == Policy::CostModel {
        return Some(ranking::by_model(&model, graph, engines));
    }
    let Some(folder) = store::folder() else {
        log::info(|| {
            "declined: HIPDNN_DISABLE_CACHE switches measurements off, or there is no folder for them".to_owned()
        });
        return None;
    };
    let known = store::read(&folder, &model.device);
    for reason in &known.passed_over {
        log::warning(&format!("measurements are passed over: {reason}"));
    }
    let order = ranking::by_measurements(&model, &known, graph, engines);
    if order.is_none() {
        log::info(|| format!("declined: nothing like graph {:?} was measured on {}", graph.name(), model.device.name));
    }
    order
}

/// The host beside a GPU, for engines that compute there.
fn this_host() -> Device {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Device::of(&DeviceProperties {
        device_id: HOST,
        multi_processor_count: i32::try_from(threads).unwrap_or(i32::MAX),
        total_global_mem: 0,
        architecture_name: std::env::consts::ARCH.to_owned(),
    })
}

fn shown(estimate: &Estimate) -> String {
    let Estimate { configuration, seconds, basis } = estimate;
    let engine = format!("{:#018x}", configuration.engine.cast_unsigned());
    format!("{engine} ({}) {:.1} µs by {basis}", configuration.shown(), seconds * 1e6)
}

fn place(estimate: Estimate, device: &DeviceProperties) -> Place {
    let config =
        (!estimate.configuration.is_plain()).then(|| Aligned::new(&estimate.configuration.config().to_bytes()));
    let used = matches!(estimate.basis, Basis::Nearby { .. } | Basis::Trees);
    // Names of hipDNN's trace, and two of our own. Every text in it is this plugin's or printable.
    let device: String =
        device.architecture_name.chars().filter(|c| c.is_ascii_alphanumeric() || ":+-_".contains(*c)).collect();
    let trace = format!(
        r#"{{"adapter_type":"{}","used_model":{used},"model_version":"{}","device_arch":"{device}","predicted_time_ms":{:e},"basis":"{}"}}"#,
        if used { "table" } else { "static_order" },
        hipdnn_heuristics_model::cost::VERSION,
        estimate.seconds * 1e3,
        estimate.basis,
    );
    Place { estimate, config, trace: CString::new(trace).unwrap_or_default() }
}

#[cfg(test)]
mod tests;
