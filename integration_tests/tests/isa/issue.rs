//! The issue model: the share of memory bandwidth that the instructions of a graph's kernels leave room for, at best.
//!
//! The emulator runs some work-groups of every launch and tells what they executed. Each instruction holds one of four
//! units of a compute unit for some cycles; a launch takes as long as the unit that is busy longest, and never less
//! than one wave needs by itself. Memory is free and so is latency, so a kernel of 100 % or more may still be slow, and
//! one below can't be fast.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use hipdnn_conformance::plugin::{Plugin, take_log};
use hipdnn_rs_integration_tests::emulator::{DeviceMemory, Hip};
use hipdnn_schemas::{DataType, EngineConfig, Graph};
use hipdnn_sdk_bindings::hipdnn::plugin::DeviceBuffer;
use serde::Deserialize;

use crate::counts::{is_f64, is_filler, is_slow};
use crate::graphs;

/// Columns behind graph and architecture: launches, waves of all; what a wave executes in the mean, also of `f64` and
/// of slow ones; the percentage of bandwidth that each unit allows, and all together.
pub(crate) const COLUMNS: &str = "launches,waves,instructions,f64,slow,valu,salu,lds,vmem,share";

/// What the emulator executes.
pub(crate) const ARCHITECTURES: [&str; 2] = ["gfx1100", "gfx942"];

/// Work-groups of a launch that run.
pub(crate) const SAMPLE: &str = "4";

/// Where the emulator writes down what launches executed.
pub(crate) const COUNTS: &str = "GFXEMU_COUNTS";

/// A device that the model is of.
struct Device {
    compute_units: f64,
    simds: f64,
    hertz: f64,
    bytes_per_second: f64,
    lanes: f64,
    /// Cycles of a wave's vector instruction, of a slow one and of one in `f64`.
    vector: f64,
    slow: f64,
    double: f64,
    /// Cycles between two scalar instructions of a SIMD.
    scalar: f64,
    /// Bytes a cycle between a compute unit and its first cache, and the least cycles of an access.
    cache_bytes: f64,
    least_access: f64,
}

/// Bytes a cycle of a compute unit's LDS: 32 banks.
const LDS_BYTES: f64 = 128.0;

/// Radeon RX 7900 XTX: AMD's RDNA 3 ISA guide and data sheet (96 compute units, 2.4 GHz, 960 GB/s, FP64 at 1/16 of
/// single-issued FP32). Instinct MI300X: CDNA 3 ISA guide and data sheet (304 compute units, 2.1 GHz, 5.3 TB/s; a SIMD
/// of 16 lanes takes four cycles for a wave and issues every fourth, FP64 at full rate).
fn device(architecture: &str) -> Result<Device, String> {
    match architecture {
        "gfx1100" => Ok(Device {
            compute_units: 96.0,
            simds: 2.0,
            hertz: 2.4e9,
            bytes_per_second: 960e9,
            lanes: 32.0,
            vector: 1.0,
            slow: 4.0,
            double: 16.0,
            scalar: 1.0,
            cache_bytes: 128.0,
            least_access: 1.0,
        }),
        "gfx942" => Ok(Device {
            compute_units: 304.0,
            simds: 4.0,
            hertz: 2.1e9,
            bytes_per_second: 5.3e12,
            lanes: 64.0,
            vector: 4.0,
            slow: 16.0,
            double: 4.0,
            scalar: 4.0,
            cache_bytes: 64.0,
            least_access: 4.0,
        }),
        other => Err(format!("expected gfx1100 or gfx942, got {other}")),
    }
}

/// Compute units of the model's device as HIP counts them, by which kernels are cut into parts: those of RDNA 3 in
/// pairs. `None` for what there is no model of.
pub(crate) fn reported_compute_units(architecture: &str) -> Option<u32> {
    let device = device(architecture).ok()?;
    let of_one = if architecture.starts_with("gfx11") { 2.0 } else { 1.0 };
    Some((device.compute_units / of_one) as u32)
}

/// A launch as the emulator tells of it.
#[derive(Deserialize)]
struct Launch {
    groups: f64,
    sampled: f64,
    /// Of a work-group.
    waves: f64,
    /// Executions by mnemonic, of all waves that ran.
    instructions: BTreeMap<String, f64>,
}

/// Cycles of the units, of a wave or of all.
#[derive(Clone, Copy, Default)]
struct Cycles {
    vector: f64,
    scalar: f64,
    lds: f64,
    memory: f64,
}

impl Device {
    /// Adds what executions of an instruction cost.
    ///
    /// # Errors
    /// If the model has no cost for it.
    fn add(&self, cycles: &mut Cycles, name: &str, count: f64) -> Result<(), String> {
        if name.starts_with("v_mfma") || name.starts_with("v_wmma") {
            return Err(format!("expected an instruction with a cost, got {name}"));
        }
        if name.starts_with("v_") {
            cycles.vector += count
                * match () {
                    () if is_f64(name) => self.double.max(if is_slow(name) { self.slow } else { 0.0 }),
                    () if is_slow(name) => self.slow,
                    () => self.vector,
                };
        } else if name.starts_with("ds_") {
            cycles.lds += count * (self.lanes * lane_bytes(name) / LDS_BYTES).max(1.0);
        } else if ["global_", "flat_", "buffer_", "scratch_"].iter().any(|space| name.starts_with(space)) {
            cycles.memory += count * (self.lanes * lane_bytes(name) / self.cache_bytes).max(self.least_access);
        } else if !is_filler(name) {
            cycles.scalar += count * self.scalar;
        }
        Ok(())
    }

    /// Seconds of a launch with these cycles of a wave.
    fn seconds(&self, wave: Cycles, waves: f64) -> f64 {
        let simds = self.compute_units * self.simds;
        let by_simd = wave.vector.max(wave.scalar) * (waves / simds).max(1.0);
        let by_unit = wave.lds.max(wave.memory) * (waves / self.compute_units).max(1.0);
        by_simd.max(by_unit) / self.hertz
    }
}

/// Bytes that a memory instruction moves a lane, by the width in its name, GFX9's or RDNA 3's; four where it names
/// none.
fn lane_bytes(name: &str) -> f64 {
    let twice = if name.contains("2addr") || name.contains("read2") || name.contains("write2") { 2.0 } else { 1.0 };
    let widths = [
        ("b128", 16.0),
        ("dwordx4", 16.0),
        ("b96", 12.0),
        ("dwordx3", 12.0),
        ("64", 8.0),
        ("dwordx2", 8.0),
        ("_x2", 8.0),
        ("short", 2.0),
        ("b16", 2.0),
        ("u16", 2.0),
        ("i16", 2.0),
        ("byte", 1.0),
        ("b8", 1.0),
        ("u8", 1.0),
        ("i8", 1.0),
    ];
    // The distance of two accesses, in a name of GFX9, is no width.
    let name = name.replace("st64", "").replace("stride64", "");
    twice * widths.iter().find(|(width, _)| name.contains(width)).map_or(4.0, |(_, bytes)| *bytes)
}

/// One row: a graph's launches on an architecture.
fn row(device: &Device, launches: &[Launch], bytes: f64) -> Result<String, String> {
    let ideal = bytes / device.bytes_per_second;
    let (mut waves, mut executed, mut f64s, mut slow, mut seconds) = (0.0, 0.0, 0.0, 0.0, 0.0);
    let mut units = [0.0; 4];
    for launch in launches {
        let (all, ran) = (launch.groups * launch.waves, launch.sampled * launch.waves);
        let mut wave = Cycles::default();
        for (name, count) in &launch.instructions {
            let mean = count / ran;
            device.add(&mut wave, name, mean)?;
            if !is_filler(name) {
                executed += mean * all;
                f64s += if is_f64(name) { mean * all } else { 0.0 };
                slow += if is_slow(name) { mean * all } else { 0.0 };
            }
        }
        waves += all;
        seconds += device.seconds(wave, all);
        let alone = [
            Cycles { vector: wave.vector, ..Cycles::default() },
            Cycles { scalar: wave.scalar, ..Cycles::default() },
            Cycles { lds: wave.lds, ..Cycles::default() },
            Cycles { memory: wave.memory, ..Cycles::default() },
        ];
        alone.iter().zip(&mut units).for_each(|(unit, sum)| *sum += device.seconds(*unit, all));
    }
    let percent = |seconds: f64| match seconds > 0.0 {
        true => format!("{:.0}", 100.0 * ideal / seconds),
        false => "-".to_owned(),
    };
    let mean = |sum: f64| format!("{:.1}", sum / waves);
    let [vector, scalar, lds, memory] = units.map(percent);
    Ok(format!(
        "{},{waves},{},{},{},{vector},{scalar},{lds},{memory},{}",
        launches.len(),
        mean(executed),
        mean(f64s),
        mean(slow),
        percent(seconds)
    ))
}

/// Executes every graph of the list, and gives its rows.
///
/// # Errors
/// If the plugin declines or fails, or the emulator told of no launch.
pub(crate) fn rows(architecture: &str, plugin: &Plugin, engine: i64) -> Result<String, String> {
    let device = device(architecture)?;
    let counts = PathBuf::from(std::env::var(COUNTS).map_err(|_| format!("{COUNTS} is not set"))?);
    let hip = Hip::get()?;
    let mut rows = String::new();
    for graphs::Named { name, graph } in graphs::all() {
        let said = |problem: String| format!("{name}: {problem}\n{}", take_log().join("\n"));
        let plan =
            plugin.plan(&EngineConfig { engine_id: engine, knobs: Vec::new() }, &graph.to_bytes()).map_err(said)?;
        let graph = Graph::new(graph).map_err(|problem| format!("{name}: {problem}"))?;
        let (mut bytes, mut memory, mut buffers) = (0, Vec::new(), Vec::new());
        for tensor in graph.tensors().iter().filter(|tensor| !tensor.is_virtual() && tensor.value().is_none()) {
            let allocated = filled(hip, tensor.data_type(), tensor.span_bytes())?;
            bytes += tensor.span_bytes();
            buffers.push(DeviceBuffer { uid: tensor.uid().0, ptr: allocated.address().cast() });
            memory.push(allocated);
        }
        let workspace = hip.memory(plan.workspace_bytes.max(1)).map_err(|problem| problem.to_string())?;
        let before = launches(&counts)?.len();
        // SAFETY: the workspace has the plan's bytes, and each tensor that is not an intermediate has a buffer with all
        // its elements.
        unsafe { plan.execute(workspace.address().cast(), &buffers) }.map_err(said)?;
        hip.synchronize().map_err(|problem| said(problem.to_string()))?;
        let launches = launches(&counts)?.split_off(before);
        if launches.is_empty() {
            return Err(format!("{name}: expected launches, got none"));
        }
        let _ = writeln!(rows, "{name},{architecture},{}", row(&device, &launches, bytes as f64)?);
    }
    Ok(rows)
}

/// All launches that the file tells of.
fn launches(path: &Path) -> Result<Vec<Launch>, String> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(problem) if problem.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(problem) => return Err(format!("{}: {problem}", path.display())),
    };
    let read = |line| serde_json::from_str(line).map_err(|problem| format!("{}: {problem}", path.display()));
    text.lines().map(read).collect()
}

/// Memory with numbers from -2 to 2: branches on values go as they would in a network.
fn filled(hip: &'static Hip, data_type: DataType, bytes: usize) -> Result<DeviceMemory, String> {
    const PERIOD: usize = 64 << 10;
    let mut random = fastrand::Rng::with_seed(5);
    let values = std::iter::repeat_with(|| random.f32() * 4.0 - 2.0).take(PERIOD);
    let pattern: Vec<u8> = match data_type {
        DataType::Float => values.flat_map(f32::to_le_bytes).collect(),
        DataType::Half => values.flat_map(|value| f16::from_f32(value).to_le_bytes()).collect(),
        DataType::BFloat16 => values.flat_map(|value| bf16::from_f32(value).to_le_bytes()).collect(),
        other => return Err(format!("expected floats, got {other:?}")),
    };
    let memory = hip.memory(bytes.max(1)).map_err(|problem| problem.to_string())?;
    let mut offset = 0;
    while offset < bytes {
        let part = pattern.len().min(bytes - offset);
        memory.upload(offset, &pattern[..part]).map_err(|problem| problem.to_string())?;
        offset += part;
    }
    Ok(memory)
}
