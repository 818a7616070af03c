//! A handle with a stream, and running cases on it.

use std::collections::HashMap;
use std::sync::Arc;

use hipdnn_rs_integration_tests::artifacts::{Artifact, library_path};
use hipdnn_rs_integration_tests::emulator::{Control, DeviceTensor, GuardedMemory, Hip, Stream};
use hipdnn_rs_integration_tests::plugin::{Handle, Plan, Plugin, PluginError};
use hipdnn_rs_integration_tests::tensor::HostTensor;
use hipdnn_schemas::{EngineConfig, KnobValue, TensorUid};
use hipdnn_sdk_bindings::hipdnn::plugin::{DeviceBuffer, PluginStatus, engine_id};

use crate::case::{Case, Wanted};

/// The engine under test.
pub(crate) const ENGINE: &str = "HIPDNN_RS_GPU_ENGINE";

/// Knobs of a plan.
pub(crate) type Knobs<'a> = &'a [(&'a str, KnobValue)];

/// The emulated runtime; every test here runs on it.
pub(crate) fn hip() -> &'static Hip {
    Hip::get().expect("main has looked for HIP")
}

/// Controls of the emulated runtime.
pub(crate) fn control() -> &'static Control {
    hip().control().expect("main has looked for the emulated runtime")
}

/// The configuration that names the engine.
pub(crate) fn config(knobs: Knobs) -> Vec<u8> {
    let knobs = knobs.iter().map(|(id, value)| ((*id).to_owned(), value.clone())).collect();
    EngineConfig { engine_id: engine_id(ENGINE), knobs }.to_bytes()
}

pub(crate) fn plugin() -> Arc<Plugin> {
    Plugin::open(&library_path(Artifact::Plugin))
}

/// Message of a plugin's error, with its status.
pub(crate) fn told(error: &PluginError) -> String {
    format!("{}: {}", error.status, error.message)
}

/// Checks that an error is one: a status with a message.
pub(crate) fn is_told(error: &PluginError) -> Result<(), String> {
    if error.status == PluginStatus::SUCCESS || error.message.trim().is_empty() {
        return Err(format!("an error without a text: {}", error.status));
    }
    Ok(())
}

/// A handle of the plugin with a stream of its own.
pub(crate) struct Bench {
    pub(crate) handle: Handle,
    // After the handle: it may wait for its stream when it goes.
    pub(crate) stream: Stream,
}

impl Bench {
    pub(crate) fn new(plugin: &Arc<Plugin>) -> Result<Bench, String> {
        let handle = plugin.handle().map_err(|error| format!("no handle: {}", told(&error)))?;
        let stream = hip().stream().map_err(|error| error.to_string())?;
        // SAFETY: the stream goes after the handle.
        unsafe { handle.set_stream(stream.raw()) }.map_err(|error| format!("no stream: {}", told(&error)))?;
        Ok(Bench { handle, stream })
    }

    /// Builds the plan of a graph that the engine takes.
    pub(crate) fn plan(&self, graph: &[u8], knobs: Knobs) -> Result<Plan<'_>, String> {
        let taken = self.handle.applicable(graph).map_err(|error| format!("whether applicable: {}", told(&error)))?;
        if !taken.contains(&engine_id(ENGINE)) {
            return Err("the engine does not take the graph".to_owned());
        }
        let config = config(knobs);
        let announced =
            self.handle.workspace_size(&config, graph).map_err(|error| format!("workspace size: {}", told(&error)))?;
        let plan = self.handle.plan(&config, graph).map_err(|error| format!("no plan: {}", told(&error)))?;
        if plan.workspace_bytes() > announced {
            return Err(format!(
                "expected a workspace of at most {announced} bytes, as announced, got {}",
                plan.workspace_bytes()
            ));
        }
        Ok(plan)
    }

    /// Runs a case as everything here wants it: right, twice the same, and nothing written that is not the plan's.
    pub(crate) fn run(&self, case: &Case, knobs: Knobs) -> Result<(), String> {
        let strict = knobs.iter().any(|(id, value)| *id == "hipdnn_rs.gpu.strict_fp32" && *value == KnobValue::Int(1));
        let plan = self.plan(&case.graph(), knobs)?;
        let mut memory = Memory::new(case, plan.workspace_bytes())?;
        let wanted = case.wanted(&case.values(), strict);
        let mut first = Vec::new();
        for round in 0..2 {
            memory.reset(if round == 0 { 0xff } else { 0x3c })?;
            self.execute(&plan, &memory).map_err(|error| format!("execution {round}: {}", told(&error)))?;
            self.stream.synchronize().map_err(|error| error.to_string())?;
            memory.check(&wanted).map_err(|problem| format!("execution {round}: {problem}"))?;
            let bytes = memory.results();
            if round == 0 {
                first = bytes;
            } else if first != bytes {
                return Err("the second execution gives other bits".to_owned());
            }
        }
        Ok(())
    }

    /// Executes a plan on this handle's stream.
    pub(crate) fn execute(&self, plan: &Plan, memory: &Memory) -> Result<(), PluginError> {
        // SAFETY: the memory was made for the plan's case and stays until the stream was waited for.
        unsafe { plan.execute_with(&self.handle, memory.workspace(), &memory.buffers()) }
    }
}

/// The device memory of a case: tensors, and a workspace of exactly the size that the plan wants.
pub(crate) struct Memory {
    inputs: Vec<DeviceTensor>,
    outputs: Vec<DeviceTensor>,
    /// Scalars that the host gives at each execution.
    scalars: Vec<HostTensor>,
    workspace: GuardedMemory,
    workspace_bytes: usize,
}

impl Memory {
    pub(crate) fn new(case: &Case, workspace_bytes: usize) -> Result<Memory, String> {
        let text = |error: hipdnn_rs_integration_tests::emulator::HipError| error.to_string();
        let in_place = case.in_place();
        let mut inputs: HashMap<TensorUid, HostTensor> = HashMap::new();
        let mut order = Vec::new();
        for host in case.values() {
            order.push(host.def().uid);
            inputs.insert(host.def().uid, host);
        }
        let mut outputs = Vec::new();
        for output in case.outputs() {
            let shift = case.shift() * element_bytes(&output);
            let made = match in_place.get(&output.uid) {
                None => DeviceTensor::output(hip(), &output, shift),
                Some(input) => {
                    let values = inputs.remove(input).ok_or_else(|| format!("there is no input {input}"))?;
                    DeviceTensor::in_place(hip(), &output, values)
                }
            };
            outputs.push(made.map_err(text)?);
        }
        let mut rest = Vec::new();
        for host in order.into_iter().filter_map(|uid| inputs.remove(&uid)) {
            let shift = case.shift() * element_bytes(host.def());
            rest.push(DeviceTensor::input(hip(), host, shift).map_err(text)?);
        }
        let workspace = GuardedMemory::new(hip(), workspace_bytes, 0, 0xff).map_err(text)?;
        Ok(Memory { inputs: rest, outputs, scalars: case.scalars(), workspace, workspace_bytes })
    }

    pub(crate) fn buffers(&self) -> Vec<DeviceBuffer> {
        // The outputs first: the order must not matter.
        let tensors = self.outputs.iter().rev().chain(self.inputs.iter().rev()).flat_map(DeviceTensor::buffers);
        // The plugin only reads them.
        let scalar = |scalar: &HostTensor| DeviceBuffer {
            uid: scalar.def().uid.0,
            ptr: scalar.bytes().as_ptr().cast_mut().cast(),
        };
        tensors.chain(self.scalars.iter().map(scalar)).collect()
    }

    /// Overwrites the scalars: an execution that was started has read them.
    pub(crate) fn spoil_scalars(&mut self) {
        self.scalars.iter_mut().for_each(|scalar| scalar.bytes_mut().fill(0xff));
    }

    pub(crate) fn workspace(&self) -> *mut std::ffi::c_void {
        if self.workspace_bytes == 0 { std::ptr::null_mut() } else { self.workspace.address().cast() }
    }

    /// The bytes of all outputs, as they were when they were last brought to the host.
    pub(crate) fn results(&self) -> Vec<u8> {
        self.outputs.iter().flat_map(|output| output.host().bytes()).copied().collect()
    }

    /// The outputs are not-a-number again, or what the inputs in their place are; the workspace is this byte.
    pub(crate) fn reset(&self, workspace: u8) -> Result<(), String> {
        let outputs = self.outputs.iter().try_for_each(DeviceTensor::reset);
        outputs.and_then(|()| self.workspace.reset(workspace)).map_err(|error| error.to_string())
    }

    /// Brings the outputs to the host; everything else must be as it was.
    pub(crate) fn download(&mut self) -> Result<(), String> {
        for tensor in self.inputs.iter_mut().chain(&mut self.outputs) {
            tensor.download()?;
        }
        self.workspace.read().map_err(|problem| format!("workspace: {problem}"))?;
        Ok(())
    }

    /// Checks that the outputs are right and everything else is as it was.
    pub(crate) fn check(&mut self, wanted: &Wanted) -> Result<(), String> {
        self.download()?;
        wanted.check(&self.outputs.iter().map(DeviceTensor::host).collect::<Vec<_>>())
    }
}

fn element_bytes(def: &hipdnn_schemas::TensorDef) -> usize {
    def.data_type.bits().expect("a tensor has a type") as usize / 8
}
