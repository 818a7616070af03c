//! One case on one engine: asked, built, executed twice and judged.

use std::collections::HashMap;
use std::path::Path;
use std::time::Instant;

use hipdnn_schemas::{EngineConfig, Graph, KnobValue, ShapeOverride, Tensor, TensorUid};
use hipdnn_sdk_bindings::hipdnn::plugin::{DeviceBuffer, engine_id};
use serde::{Deserialize, Serialize};

use crate::array::each_index;
use crate::cases::Case;
use crate::execute::{Results, Tolerance, execute_with};
use crate::format;
use crate::inputs;
use crate::memory::{Buffer, Memory};
use crate::plugin::{Plan, Plugin, take_log};

/// Outcome of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Outcome {
    /// The engine took it, and every element was right; or it refused what must be refused.
    Passed {
        /// The largest share of its bound that any element's error used.
        worst: f64,
        /// The share of elements whose bound says little: it is a tenth of the tensor's largest number, or more.
        vague: f64,
        /// Bytes of workspace that the plan needs.
        workspace_bytes: usize,
    },
    /// Something was wrong.
    Failed {
        /// Expected and actual result.
        reason: String,
    },
    /// The engine would take it; nothing more was asked.
    Claimed,
    /// The engine left the graph to others.
    Declined {
        /// Reason, in the engine's words.
        reason: String,
    },
}

/// An engine of a plugin, ready to be asked.
pub struct Engine {
    pub(crate) plugin: Plugin,
    pub(crate) memory: Memory,
    pub(crate) id: i64,
    pub(crate) name: String,
    knobs: Vec<(String, String)>,
    tolerance: Tolerance,
}

/// A failure, as a sentence.
pub(crate) type Failure = String;

impl Engine {
    /// Opens the plugin and finds the engine; without a name, the only engine there is.
    ///
    /// # Errors
    /// If there is no such plugin, engine or memory.
    pub fn open(plugin: &Path, name: &str, on_host: bool) -> Result<Engine, String> {
        let plugin = Plugin::open(plugin)?;
        let engines = plugin.engines()?;
        let id = engine_id(name);
        if !engines.iter().any(|(other, _)| *other == id) {
            let names: Vec<&str> = engines.iter().map(|(_, name)| name.as_str()).collect();
            return Err(format!("expected an engine among {names:?}, got {name:?}"));
        }
        let memory = if on_host { Memory::Host } else { Memory::device()? };
        Ok(Engine { plugin, memory, id, name: name.to_string(), knobs: Vec::new(), tolerance: Tolerance::default() })
    }

    /// The same with knobs, by name and value, that every plan gets.
    #[must_use]
    pub fn with_knobs(self, knobs: Vec<(String, String)>) -> Engine {
        Engine { knobs, ..self }
    }

    /// The same with bounds that allow more.
    #[must_use]
    pub fn with_tolerance(self, tolerance: Tolerance) -> Engine {
        Engine { tolerance, ..self }
    }

    /// Asks whether the engine takes a case, and no more.
    pub fn claim(&self, case: &Case) -> Outcome {
        take_log();
        match self.plugin.applicable(&case.graph.to_bytes()) {
            Ok(ids) if ids.contains(&self.id) => Outcome::Claimed,
            Ok(_) => Outcome::Declined { reason: reason(&take_log(), &self.name) },
            Err(problem) => Outcome::Failed { reason: format!("asking the engine: {problem}") },
        }
    }

    /// Runs a case.
    pub fn run(&self, case: &Case) -> Outcome {
        take_log();
        let outcome = if case.refused { self.refusal(case) } else { self.service(case) };
        outcome.unwrap_or_else(|reason| Outcome::Failed { reason })
    }

    /// A graph that no engine may take.
    fn refusal(&self, case: &Case) -> Result<Outcome, Failure> {
        let bytes = case.graph.to_bytes();
        if let Ok(ids) = self.plugin.applicable(&bytes)
            && ids.contains(&self.id)
        {
            return Err("the engine takes a graph that must be refused".into());
        }
        let config = EngineConfig { engine_id: self.id, knobs: Vec::new() };
        match self.plugin.plan(&config, &bytes) {
            Ok(_) => Err("a plan was built for a graph that must be refused".into()),
            Err(message) if message.trim_end().ends_with(':') => Err("a plan was refused without a message".into()),
            Err(_) => Ok(Outcome::Passed { worst: 0.0, vague: 0.0, workspace_bytes: 0 }),
        }
    }

    fn service(&self, case: &Case) -> Result<Outcome, Failure> {
        let graph = Graph::new(case.graph.clone()).map_err(|problem| format!("the case is not a graph: {problem}"))?;
        let bytes = case.graph.to_bytes();
        let ids = self.plugin.applicable(&bytes).map_err(|problem| format!("asking the engine: {problem}"))?;
        if !ids.contains(&self.id) {
            return Ok(Outcome::Declined { reason: reason(&take_log(), &self.name) });
        }
        let inputs = inputs::generate(&graph, case.seed, &case.fills);
        let expected = execute_with(&graph, &inputs::arrays(&graph, &inputs), self.tolerance)
            .map_err(|problem| format!("the executor can't tell what is right: {problem}"))?;
        let (config, offers) = self.configuration(&bytes)?;
        let bound = self
            .plugin
            .workspace_bytes(&config, &bytes)
            .map_err(|problem| format!("workspace size after a claim: {problem}"))?;
        let plan = self.plugin.plan(&config, &bytes).map_err(|problem| format!("no plan after a claim: {problem}"))?;
        if plan.workspace_bytes > bound {
            return Err(format!(
                "expected a plan of at most {bound} bytes of workspace, as announced, got {}",
                plan.workspace_bytes
            ));
        }
        let mut run = Execution::new(&self.memory, &graph, &inputs)?;
        let first = run.execute(&plan, 0xff)?;
        let verdict = judge(&graph, &expected, &first)?;
        let second = run.execute(&plan, 0x00)?;
        for (uid, bytes) in &first {
            if let Some(at) = bytes.iter().zip(&second[uid]).position(|(one, other)| one != other) {
                return Err(format!(
                    "tensor {uid}: the second execution gave other bits than the first, from byte {at}"
                ));
            }
        }
        if offers.limit && plan.workspace_bytes > 0 {
            self.tight_limit(&config, &bytes, plan.workspace_bytes)?;
        }
        if let Some(knob) = offers.fusion {
            let mut config = config.clone();
            config.knobs.push((knob.clone(), KnobValue::Int(0)));
            let plain = self.plugin.plan(&config, &bytes).map_err(|problem| format!("with {knob} = 0: {problem}"))?;
            let got = run.execute(&plain, 0xff).map_err(|problem| format!("with {knob} = 0: {problem}"))?;
            judge(&graph, &expected, &got).map_err(|problem| format!("with {knob} = 0: {problem}"))?;
        }
        Ok(Outcome::Passed { worst: verdict.worst, vague: verdict.vague, workspace_bytes: plan.workspace_bytes })
    }

    /// The configuration, deterministic if the engine has the knob, and the other knobs that a run makes use of.
    pub(crate) fn configuration(&self, graph: &[u8]) -> Result<(EngineConfig, Offers), Failure> {
        let details =
            self.plugin.details(self.id, graph).map_err(|problem| format!("details after a claim: {problem}"))?;
        if details.engine_id != self.id {
            return Err(format!("the details are those of engine {}", details.engine_id));
        }
        let has = |id: &str| details.knobs.iter().any(|knob| knob.id == id);
        let mut knobs = Vec::new();
        for (name, value) in &self.knobs {
            let knob = details.knobs.iter().find(|knob| knob.id == *name);
            let knob = knob.ok_or_else(|| format!("the engine has no knob {name:?} for the graph"))?;
            knobs.push((
                name.clone(),
                knob_value(value, &knob.default)
                    .map_err(|wanted| format!("knob {name}: expected {wanted}, got {value:?}"))?,
            ));
        }
        if has("global.deterministic") && !knobs.iter().any(|(name, _)| name == "global.deterministic") {
            knobs.push(("global.deterministic".to_string(), KnobValue::Int(1)));
        }
        let fusion = details.knobs.iter().map(|knob| &knob.id).find(|id| id.ends_with(".fuse")).cloned();
        Ok((EngineConfig { engine_id: self.id, knobs }, Offers { limit: has(LIMIT), fusion }))
    }

    /// With one byte less, a plan must be refused with a message, or do with what there is.
    fn tight_limit(&self, config: &EngineConfig, graph: &[u8], workspace_bytes: usize) -> Result<(), Failure> {
        let limit = workspace_bytes - 1;
        let mut config = config.clone();
        config.knobs.push((LIMIT.to_string(), KnobValue::Int(limit as i64)));
        match self.plugin.plan(&config, graph) {
            Ok(plan) if plan.workspace_bytes > limit => Err(format!(
                "expected a plan of at most {limit} bytes of workspace, the limit, got {}",
                plan.workspace_bytes
            )),
            Ok(_) => Ok(()),
            Err(message) if message.trim_end().ends_with(':') => Err("a limit was refused without a message".into()),
            Err(_) => Ok(()),
        }
    }
}

/// Knobs that a run makes use of.
pub(crate) struct Offers {
    /// True if the workspace can be limited.
    limit: bool,
    /// The knob that forbids fusing.
    fusion: Option<String>,
}

/// A knob's value of the same type as its default; the error is what was wanted.
fn knob_value(text: &str, default: &KnobValue) -> Result<KnobValue, &'static str> {
    match default {
        KnobValue::Int(_) => text.trim().parse().map(KnobValue::Int).map_err(|_| "an integer"),
        KnobValue::Float(_) => text.trim().parse().map(KnobValue::Float).map_err(|_| "a number"),
        KnobValue::String(_) => Ok(KnobValue::String(text.to_string())),
    }
}

/// The knob that limits a plan's workspace.
const LIMIT: &str = "global.workspace_size_limit";

/// Addresses of workspaces have this alignment, as hipMalloc's have.
const WORKSPACE_ALIGNMENT: usize = 256;

/// The buffers of a graph, inputs filled.
pub struct Execution<'a> {
    memory: &'a Memory,
    graph: &'a Graph,
    buffers: Vec<(TensorUid, Buffer<'a>)>,
}

/// The tensors that a run gives back.
pub fn outputs(graph: &Graph) -> impl Iterator<Item = &Tensor> {
    graph.tensors().iter().filter(|tensor| !tensor.is_virtual() && graph.producer(tensor.uid()).is_some())
}

impl<'a> Execution<'a> {
    /// Buffers that end at their guards. `inputs` has every tensor that the graph needs.
    ///
    /// # Errors
    /// If there is no such memory.
    pub fn new(
        memory: &'a Memory,
        graph: &'a Graph,
        inputs: &HashMap<TensorUid, Vec<u8>>,
    ) -> Result<Execution<'a>, Failure> {
        Execution::aligned(memory, graph, inputs, 1)
    }

    /// Buffers whose addresses are multiples of `least`, as an allocator's are.
    ///
    /// # Errors
    /// If there is no such memory.
    pub fn aligned(
        memory: &'a Memory,
        graph: &'a Graph,
        inputs: &HashMap<TensorUid, Vec<u8>>,
        least: usize,
    ) -> Result<Execution<'a>, Failure> {
        let alignment = |tensor: &Tensor| usize::try_from(tensor.alignment()).unwrap_or(1).max(least);
        let mut buffers = Vec::new();
        for tensor in inputs::needed(graph) {
            // Scalars are read by the host, whatever the engine works on.
            let host = Memory::Host;
            let mut buffer = match tensor.is_runtime_pass_by_value() {
                true => match host.buffer(tensor.span_bytes(), 1)? {
                    Buffer::Host(buffer) => Buffer::Host(buffer),
                    Buffer::Device(_) => return Err("host memory is on the device".into()),
                },
                false => memory.buffer(tensor.span_bytes(), alignment(tensor))?,
            };
            buffer.write(&inputs[&tensor.uid()])?;
            buffer.seal()?;
            buffers.push((tensor.uid(), buffer));
        }
        for tensor in outputs(graph) {
            buffers.push((tensor.uid(), memory.buffer(tensor.span_bytes(), alignment(tensor))?));
        }
        Ok(Execution { memory, graph, buffers })
    }

    /// A plan with a workspace, to be executed any number of times.
    ///
    /// # Errors
    /// If there is no such memory.
    pub fn bind<'r>(&'r mut self, plan: &'r Plan<'r>) -> Result<Bound<'r>, Failure> {
        let workspace = self.memory.buffer(plan.workspace_bytes, WORKSPACE_ALIGNMENT)?;
        let pack =
            self.buffers.iter().map(|(uid, buffer)| DeviceBuffer { uid: uid.0, ptr: buffer.address() }).collect();
        Ok(Bound { plan, workspace, pack })
    }

    /// Executes with outputs and workspace full of that byte, and gives the bytes of the outputs.
    ///
    /// # Errors
    /// If the execution fails, or wrote where it may not.
    pub fn execute(&mut self, plan: &Plan, garbage: u8) -> Result<HashMap<TensorUid, Vec<u8>>, Failure> {
        self.execute_with(plan, &[], garbage)
    }

    /// The same of a plan for larger shapes, which are overridden by these: those of this execution's graph.
    ///
    /// # Errors
    /// As [`Execution::execute`].
    pub fn execute_with(
        &mut self,
        plan: &Plan,
        shapes: &[ShapeOverride<'_>],
        garbage: u8,
    ) -> Result<HashMap<TensorUid, Vec<u8>>, Failure> {
        let graph = self.graph;
        let is_output = |uid: TensorUid| graph.producer(uid).is_some();
        for (uid, buffer) in self.buffers.iter_mut().filter(|(uid, _)| is_output(*uid)) {
            buffer.write(&vec![garbage; graph.tensor(*uid).span_bytes()])?;
        }
        let mut workspace = self.memory.buffer(plan.workspace_bytes, WORKSPACE_ALIGNMENT)?;
        workspace.write(&vec![garbage; plan.workspace_bytes])?;
        let address = if plan.workspace_bytes == 0 { std::ptr::null_mut() } else { workspace.address() };
        let pack: Vec<DeviceBuffer> =
            self.buffers.iter().map(|(uid, buffer)| DeviceBuffer { uid: uid.0, ptr: buffer.address() }).collect();
        // SAFETY: each buffer has the bytes of its tensor's span, the workspace those that the plan wants, in the memory
        // that the engine works on; only inputs are sealed.
        let executed = unsafe {
            match shapes {
                [] => plan.execute(address, &pack),
                _ => plan.execute_with_overrides(address, &pack, shapes),
            }
        };
        executed.map_err(|problem| format!("executing after a claim: {problem}"))?;
        self.memory.synchronize()?;
        workspace.read().map_err(|problem| format!("the workspace: {problem}"))?;
        let mut results = HashMap::new();
        for (uid, buffer) in &self.buffers {
            let mut bytes = buffer.read().map_err(|problem| format!("tensor {uid}: {problem}"))?;
            if is_output(*uid) {
                untouched_between(graph.tensor(*uid), &mut bytes, garbage)?;
                results.insert(*uid, bytes);
            }
        }
        Ok(results)
    }
}

/// A plan with everything that an execution needs.
pub struct Bound<'a> {
    plan: &'a Plan<'a>,
    workspace: Buffer<'a>,
    pack: Vec<DeviceBuffer>,
}

impl Bound<'_> {
    /// Starts an execution; on a device it may still run when this returns.
    ///
    /// # Errors
    /// The plugin's.
    pub fn launch(&mut self) -> Result<(), Failure> {
        let address = if self.plan.workspace_bytes == 0 { std::ptr::null_mut() } else { self.workspace.address() };
        // SAFETY: each buffer has the bytes of its tensor's span, the workspace those that the plan wants, in the memory
        // that the engine works on; the borrow of the buffers lives as long as this.
        unsafe { self.plan.execute(address, &self.pack) }
    }
}

/// Sees that nothing was written between the elements of a tensor with gaps, and makes the gaps the same in all runs.
fn untouched_between(tensor: &Tensor, bytes: &mut [u8], garbage: u8) -> Result<(), Failure> {
    let bits = tensor.data_type().bits().expect("a checked tensor has a type") as usize;
    if (tensor.span() == tensor.elements()) && bits >= 8 {
        return Ok(());
    }
    // Which bits of each byte belong to elements.
    let mut inside = vec![0u8; bytes.len()];
    each_index(tensor.dims(), |at| {
        let place: usize = at.iter().zip(tensor.strides()).map(|(i, stride)| i * stride).sum();
        (place * bits..(place + 1) * bits).for_each(|bit| inside[bit / 8] |= 1 << (bit % 8));
    });
    // Bits beside an element of less than a byte can't be kept without reading them; whole bytes can.
    if let Some(at) = bytes.iter().zip(&inside).position(|(byte, inside)| *inside == 0 && *byte != garbage) {
        return Err(format!("tensor {}: byte {at}, between its elements, was written", tensor.uid()));
    }
    bytes.iter_mut().zip(&inside).for_each(|(byte, inside)| *byte &= inside);
    Ok(())
}

/// Distance of right results from their bounds.
pub struct Verdict {
    /// The largest share of its bound that an element's error used.
    pub worst: f64,
    /// The share of elements whose bound says little.
    pub vague: f64,
}

/// Compares every output with the reference.
///
/// # Errors
/// If an element is outside of its bound.
pub fn judge(graph: &Graph, expected: &Results, got: &HashMap<TensorUid, Vec<u8>>) -> Result<Verdict, Failure> {
    let (mut worst, mut vague, mut all) = (0f64, 0usize, 0usize);
    for tensor in outputs(graph) {
        let (uid, data_type) = (tensor.uid(), tensor.data_type());
        let wanted = &expected[&uid];
        let finite = wanted.data.iter().filter(|number| number.value.is_finite());
        let little = 0.1 * finite.map(|number| number.value.abs()).fold(0.0, f64::max);
        let mut wrong = Vec::new();
        let mut at_element = 0;
        each_index(tensor.dims(), |at| {
            let number = wanted.data[at_element];
            at_element += 1;
            all += 1;
            vague += usize::from(number.error > little && number.error > 0.0);
            let place = at.iter().zip(tensor.strides()).map(|(i, stride)| i * stride).sum();
            let value = format::load(data_type, &got[&uid], place);
            if !number.accepts(data_type, value) {
                if wrong.len() < 3 {
                    wrong.push(format!("{at:?}: expected {:e} ± {:.1e}, got {value:e}", number.value, number.error));
                } else {
                    wrong.push(String::new());
                }
            } else if number.error > 0.0 && number.error.is_finite() {
                let rounding = format::Float::of(data_type).map_or(1.0, |float| float.step(number.value) / 2.0);
                let used = ((value - number.value).abs() - rounding).max(0.0) / number.error;
                // An overflow that is right has no distance.
                worst = if used.is_finite() { worst.max(used) } else { worst };
            }
        });
        if !wrong.is_empty() {
            let name = if tensor.name().is_empty() { String::new() } else { format!(" \"{}\"", tensor.name()) };
            let shown: Vec<&str> = wrong.iter().map(String::as_str).take(3).collect();
            return Err(format!(
                "tensor {uid}{name} ({data_type}): {} of {} elements are wrong: {}",
                wrong.len(),
                tensor.elements(),
                shown.join("; ")
            ));
        }
    }
    Ok(Verdict { worst, vague: vague as f64 / all.max(1) as f64 })
}

/// Reason that the plugin logged for the engine's decline.
pub(crate) fn reason(log: &[String], engine: &str) -> String {
    // This project's plugin says which engine declines, and which graph: here graphs have no names.
    let own = format!("{engine} does not compute graph \"\": ");
    if let Some((_, said)) = log.iter().rev().find_map(|line| line.split_once(&own)) {
        return said.trim_end().to_string();
    }
    let said =
        log.iter().rev().find(|line| line.contains("declin") || line.contains("node") || line.contains("tensor"));
    said.or(log.last()).cloned().unwrap_or_else(|| "no reason was logged".into())
}

/// Runs and measures.
pub fn timed(run: impl FnOnce() -> Outcome) -> (Outcome, f64) {
    let start = Instant::now();
    let outcome = run();
    (outcome, start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;
    use crate::execute::execute;
    use crate::format::Float;

    /// Results of an ideal engine, which rounds each exact result once.
    fn ideal(graph: &Graph, expected: &Results) -> HashMap<TensorUid, Vec<u8>> {
        let mut got = HashMap::new();
        for tensor in outputs(graph) {
            let mut bytes = vec![0; tensor.span_bytes()];
            let mut data = expected[&tensor.uid()].data.iter();
            each_index(tensor.dims(), |at| {
                let place = at.iter().zip(tensor.strides()).map(|(i, stride)| i * stride).sum();
                let value = data.next().expect("as many numbers as elements").value;
                format::store(tensor.data_type(), &mut bytes, place, value);
            });
            got.insert(tensor.uid(), bytes);
        }
        got
    }

    #[test]
    fn the_reason_is_that_of_the_engine() {
        let log = |lines: &[&str]| lines.iter().map(|line| (*line).to_string()).collect::<Vec<_>>();
        let both = log(&[
            "A does not compute graph \"\": node 1: no: B or another takes it",
            "B does not compute graph \"\": tensor 2: no",
            "bye",
        ]);
        assert_eq!(reason(&both, "A"), "node 1: no: B or another takes it");
        assert_eq!(reason(&both, "B"), "tensor 2: no");
        assert_eq!(reason(&log(&["this node is strange", "bye"]), "C"), "this node is strange");
        assert_eq!(reason(&log(&["bye"]), "C"), "bye");
        assert_eq!(reason(&[], "C"), "no reason was logged");
    }

    /// The suite is of use only if a single wrong element is seen.
    #[test]
    fn one_wrong_element_is_seen() {
        let (mut seen, mut spoilt) = (0, 0);
        for case in cases::all().expect("the tables are right").iter().filter(|case| !case.refused).step_by(97) {
            let graph = Graph::new(case.graph.clone()).expect("a graph");
            let given = inputs::generate(&graph, case.seed, &case.fills);
            let expected = execute(&graph, &inputs::arrays(&graph, &given)).expect("known operations");
            let got = ideal(&graph, &expected);
            judge(&graph, &expected, &got).unwrap_or_else(|problem| panic!("{}: {problem}", case.name));
            for tensor in outputs(&graph) {
                let numbers = &expected[&tensor.uid()].data;
                let largest = numbers.iter().map(|n| n.value.abs()).filter(|v| v.is_finite()).fold(0.0, f64::max);
                let Some(i) = (0..numbers.len()).rev().find(|i| numbers[*i].value.is_finite()) else { continue };
                if largest == 0.0 || Float::of(tensor.data_type()).is_none() {
                    continue;
                }
                let mut place = 0;
                let mut at_element = 0;
                each_index(tensor.dims(), |at| {
                    if at_element == i {
                        place = at.iter().zip(tensor.strides()).map(|(i, stride)| i * stride).sum();
                    }
                    at_element += 1;
                });
                // Four percent of the range: a few roundings in the coarsest type.
                let wrong = numbers[i].value + if numbers[i].value < 0.0 { 0.04 } else { -0.04 } * largest;
                let mut bad = got.clone();
                format::store(tensor.data_type(), bad.get_mut(&tensor.uid()).expect("an output"), place, wrong);
                spoilt += 1;
                seen += usize::from(judge(&graph, &expected, &bad).is_err());
            }
        }
        assert!(spoilt > 90 && seen * 100 >= spoilt * 95, "{seen} of {spoilt} wrong elements were seen");
    }
}
