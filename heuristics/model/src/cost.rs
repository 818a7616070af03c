//! The cost model: seconds of an execution.
//!
//! `seconds = overhead + Σ over steps (overhead of a step + max(operations / rate, bytes / bandwidth))`, where rate is
//! the device's peak times the share that the engine gets of it for the step's kind, and bandwidth is that of the last
//! cache for what fits into it (a roofline).

use hipdnn_sdk_bindings::hipdnn::plugin::engine_id;

use crate::device::Device;
use crate::engine::{self, Configuration, Engine};
use crate::work::{Kind, Step, steps};
use hipdnn_schemas::Graph;

/// Version of the model: measurements are kept as what they are of its estimates, so those of another are of no use.
pub const VERSION: &str = "hipdnn-rs-cost-2";

/// Seconds of a step that several threads share: to wake them and to wait for the last.
const WAKE: f64 = 4e-6;

/// How much slower a convolution is without Winograd's algorithm.
const DIRECT: f64 = 1.8;

/// The cost model for a device.
#[derive(Clone, Debug)]
pub struct Model {
    /// The device that is ranked for.
    pub device: Device,
    /// The host, for engines that compute there.
    pub host: Device,
}

impl Model {
    /// Seconds of one execution; of an engine that nobody knows, as of one that fuses nothing and gets MIOpen's shares.
    pub fn seconds(&self, graph: &Graph, configuration: &Configuration) -> f64 {
        let unknown = engine::unknown(self.device.is_host);
        let engine = engine::find(configuration.engine).unwrap_or(&unknown);
        let device = if engine.on_host { &self.host } else { &self.device };
        let fused = engine.fuses && engine::FUSE.iter().all(|knob| configuration.knob(knob) != Some(0));
        let units = match configuration.knob(engine::THREADS) {
            Some(threads) if threads > 0 => device.units.min(threads as f64),
            _ => device.units,
        };
        let of = |step: &Step| engine.overhead[1] + step_seconds(step, engine, device, units, configuration);
        engine.overhead[0] + steps(graph, fused).iter().map(of).sum::<f64>()
    }

    /// True if the model knows what the engine is.
    pub fn knows(&self, engine: i64) -> bool {
        engine::find(engine).is_some()
    }
}

fn step_seconds(step: &Step, engine: &Engine, device: &Device, units: f64, configuration: &Configuration) -> f64 {
    let share = engine.share[step.kind as usize];
    let mut rate = device.unit_rate * share;
    if step.bits <= 16 && step.kind != Kind::Moving {
        rate *= device.half_factor;
    }
    if step.kind == Kind::Winograd && configuration.knob(engine::WINOGRAD) == Some(0) {
        rate /= DIRECT;
    }
    let near = if step.bytes <= device.cache.0 { device.cache.1 } else { 1.0 };
    let on = |units: f64| {
        let bandwidth = (units * device.unit_bandwidth).min(device.bandwidth) * near;
        (step.operations / (units * rate)).max(step.bytes / bandwidth)
    };
    // A host's engine shares a step among threads where that pays.
    if engine.on_host { on(1.0).min(WAKE + on(units)) } else { on(units) }
}

/// Id of this project's CPU engine.
pub fn cpu_engine() -> i64 {
    engine_id(engine::CPU)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::HOST;
    use crate::samples;
    use hipdnn_schemas::DeviceProperties;

    fn device(id: i32, architecture: &str, units: i32) -> Device {
        Device::of(&DeviceProperties {
            device_id: id,
            multi_processor_count: units,
            total_global_mem: 1 << 34,
            architecture_name: architecture.to_owned(),
        })
    }

    fn model() -> Model {
        Model { device: device(0, "gfx942", 304), host: device(HOST, "x86_64", 8) }
    }

    fn of(name: &str) -> Configuration {
        Configuration::plain(engine_id(name))
    }

    #[test]
    fn large_work_belongs_on_gpus_and_little_work_does_not() {
        let model = model();
        let large = samples::bottleneck(16, 256, 56);
        let little = samples::chain(16, &["relu"]);
        let faster =
            |graph: &Graph| model.seconds(graph, &of(engine::CPU)) < model.seconds(graph, &of("HIPDNN_RS_GPU_ENGINE"));
        assert!(!faster(&large) && faster(&little));
    }

    #[test]
    fn engines_that_ask_a_library_each_time_are_behind() {
        let graph = samples::convolution(1, 64, 64, 3, 28, &["relu"]);
        let seconds = ["HIPDNN_RS_GPU_ENGINE", "MIOPEN_ENGINE", "MIOPEN_ENGINE_DETERMINISTIC"]
            .map(|name| model().seconds(&graph, &of(name)));
        assert!(seconds.is_sorted_by(|a, b| a < b), "{seconds:?}");
    }

    #[test]
    fn settings_change_what_they_say() {
        let model = model();
        let with = |name: &str, value| {
            let mut configuration = of(engine::CPU);
            configuration.knobs.push((name.to_owned(), hipdnn_schemas::KnobValue::Int(value)));
            configuration
        };
        let (tiny, large) =
            (samples::chain(64, &["relu"]), samples::convolution(1, 128, 128, 3, 56, &["bias", "relu"]));
        let plain = |graph: &Graph| model.seconds(graph, &of(engine::CPU));
        assert_eq!(model.seconds(&tiny, &with(engine::THREADS, 1)), plain(&tiny), "nothing to share");
        assert!(model.seconds(&large, &with(engine::THREADS, 1)) > plain(&large));
        assert!(model.seconds(&large, &with(engine::WINOGRAD, 0)) > plain(&large));
        assert!(model.seconds(&large, &with(engine::FUSE[0], 0)) > plain(&large));
        assert_eq!(model.seconds(&large, &with("anything", 0)), plain(&large));
    }

    #[test]
    fn half_the_bytes_take_less_on_matrix_instructions() {
        let graph = samples::matmul(1, 4096, 4096, 4096);
        let mut half = graph.def();
        half.tensors.iter_mut().for_each(|tensor| tensor.data_type = hipdnn_schemas::DataType::Half);
        let half = Graph::new(half).unwrap();
        let engine = of("HIPBLASLT_ENGINE");
        assert!(model().seconds(&half, &engine) * 4.0 < model().seconds(&graph, &engine));
    }
}
