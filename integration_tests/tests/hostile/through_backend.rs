//! Data from outside through the backend's ABI, and through the plugin behind it.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use hipdnn_schemas::{ContentKind, Graph, SerializedGraphAndPlan, content_kind};
use hipdnn_sdk_bindings::hipdnn::backend::{
    AttributeName as Name, AttributeType as Type, DescriptorPtr, DescriptorType, HandlePtr, HeurMode, Status,
};

use crate::api::BackendApi;
use crate::guarded::{Guarded, Place};
use crate::random::Random;
use crate::run::Memory;
use crate::stages::Stages;

/// A backend handle with the memory to run graphs in.
pub(crate) struct ThroughBackend {
    api: BackendApi,
    handle: HandlePtr,
    memory: Memory,
    input: Guarded,
    output: Guarded,
}

/// A descriptor of ours.
struct Descriptor {
    api: BackendApi,
    ptr: DescriptorPtr,
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours and not used again.
        let status = unsafe { (self.api.destroy_descriptor)(self.ptr) };
        assert_eq!(status, Status::SUCCESS, "destroying a descriptor");
    }
}

impl Descriptor {
    fn new(api: BackendApi, kind: DescriptorType) -> Result<Descriptor, String> {
        let mut ptr = null_mut();
        // SAFETY: `ptr` is valid for the call.
        let status = unsafe { (api.create_descriptor)(kind, &mut ptr) };
        if status == Status::SUCCESS { Ok(Descriptor { api, ptr }) } else { Err(format!("create {kind}: {status}")) }
    }

    fn set<T>(&self, name: Name, kind: Type, elements: &[T]) -> Result<(), String> {
        // SAFETY: there are as many elements as we say, of the type that goes with `kind`.
        let status = unsafe {
            (self.api.set_attribute)(self.ptr, name, kind, elements.len() as i64, elements.as_ptr().cast::<c_void>())
        };
        if status == Status::SUCCESS { Ok(()) } else { Err(format!("set {name}: {status}: {}", error(&self.api))) }
    }

    fn get_i64(&self, name: Name) -> Result<i64, String> {
        let mut value = 0i64;
        // SAFETY: there is room for the one element we ask for.
        let status = unsafe {
            (self.api.get_attribute)(self.ptr, name, Type::INT64, 1, null_mut(), (&raw mut value).cast::<c_void>())
        };
        if status == Status::SUCCESS { Ok(value) } else { Err(format!("get {name}: {status}: {}", error(&self.api))) }
    }

    fn finalize(&self) -> Status {
        // SAFETY: the descriptor is alive.
        unsafe { (self.api.finalize)(self.ptr) }
    }
}

/// Takes the thread's error text.
fn error(api: &BackendApi) -> String {
    let mut text = [0u8; 2048];
    // SAFETY: there are as many bytes as we say.
    unsafe { (api.get_last_error_string)(text.as_mut_ptr().cast::<c_char>(), text.len()) };
    String::from_utf8_lossy(text.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// The graph in bytes that are one, or that are a container.
fn contained(bytes: &[u8]) -> Option<Vec<u8>> {
    match content_kind(bytes) {
        ContentKind::Bare => Some(bytes.to_vec()),
        ContentKind::GraphAndPlan => SerializedGraphAndPlan::from_bytes(bytes).ok().map(|container| container.graph),
    }
}

/// Input of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Input<'a> {
    /// A serialized graph, or a container with one.
    Bytes(&'a [u8]),
    /// A graph as JSON, which need not be UTF-8.
    Json(&'a [u8]),
}

impl ThroughBackend {
    pub(crate) fn new(api: BackendApi) -> ThroughBackend {
        let mut handle = null_mut();
        // SAFETY: `handle` is valid for the call.
        let status = unsafe { (api.create)(&mut handle) };
        assert_eq!(status, Status::SUCCESS, "{}", error(&api));
        let guarded = || Guarded::new(1 << 20);
        ThroughBackend { api, handle, memory: Memory::new(), input: guarded(), output: guarded() }
    }

    /// Takes a graph from its bytes or text to its execution.
    pub(crate) fn graph(&mut self, random: &mut Random, input: Input<'_>, stages: &mut Stages) -> Result<(), String> {
        let (bytes, typed) = match input {
            Input::Bytes(bytes) => (bytes, contained(bytes).and_then(|graph| Graph::from_bytes(&graph).ok())),
            Input::Json(text) => (text, std::str::from_utf8(text).ok().and_then(|text| Graph::from_json(text).ok())),
        };
        let put = self.input.put(bytes.len(), Place::Back(1), bytes);
        let address = self.input.address(put);
        let mut ptr = null_mut();
        // SAFETY: the bytes are readable, `ptr` is valid for the call.
        let status = unsafe {
            match input {
                Input::Bytes(_) => (self.api.deserialize_graph)(&mut ptr, address.cast(), bytes.len()),
                Input::Json(_) => (self.api.deserialize_json)(&mut ptr, address.cast(), bytes.len()),
            }
        };
        stages.reach(match input {
            Input::Bytes(_) => "backend: graph given",
            Input::Json(_) => "backend: JSON given",
        });
        self.input.content(put).fill(0xee);
        if status != Status::SUCCESS {
            if !ptr.is_null() || error(&self.api).is_empty() {
                return Err(format!("deserializing: {status}, {ptr:?}, or no text"));
            }
            return Ok(());
        }
        let graph = Descriptor { api: self.api, ptr };
        stages.reach(match input {
            Input::Bytes(_) => "backend: graph read",
            Input::Json(_) => "backend: JSON read",
        });
        self.read_back(&graph)?;

        graph.set(Name::OPERATIONGRAPH_HANDLE, Type::HANDLE, &[self.handle])?;
        if graph.finalize() != Status::SUCCESS {
            return if error(&self.api).is_empty() { Err("finalising fails without a text".into()) } else { Ok(()) };
        }
        stages.reach("backend: graph finalized");

        let heuristic = Descriptor::new(self.api, DescriptorType::ENGINEHEUR_DESCRIPTOR)?;
        heuristic.set(Name::ENGINEHEUR_OPERATION_GRAPH, Type::BACKEND_DESCRIPTOR, &[graph.ptr])?;
        heuristic.set(Name::ENGINEHEUR_MODE, Type::HEUR_MODE, &[HeurMode::FALLBACK])?;
        let status = heuristic.finalize();
        if status != Status::SUCCESS {
            let right = if typed.is_some() { "a right graph" } else { "a graph" };
            let text = error(&self.api);
            return if typed.is_some() { Err(format!("engines for {right}: {status}: {text}")) } else { Ok(()) };
        }
        let mut count = -1;
        // SAFETY: a query of the count writes nothing else.
        let status = unsafe {
            let name = Name::ENGINEHEUR_RESULTS;
            (self.api.get_attribute)(heuristic.ptr, name, Type::BACKEND_DESCRIPTOR, 0, &mut count, null_mut())
        };
        if status != Status::SUCCESS || count < 0 {
            return Err(format!("count of engines: {status}, {count}"));
        }
        if count == 0 {
            return Ok(());
        }
        stages.reach("backend: graph is claimed");
        let typed = typed.ok_or("a wrong graph is claimed")?;

        let config = Descriptor::new(self.api, DescriptorType::ENGINECFG_DESCRIPTOR)?;
        let mut results = [config.ptr];
        // SAFETY: there is room for the one descriptor we ask for, which is made already.
        let status = unsafe {
            let (name, array) = (Name::ENGINEHEUR_RESULTS, results.as_mut_ptr().cast::<c_void>());
            (self.api.get_attribute)(heuristic.ptr, name, Type::BACKEND_DESCRIPTOR, 1, &mut count, array)
        };
        if status != Status::SUCCESS || count != 1 || results != [config.ptr] {
            return Err(format!("engine: {status}, {count}: {}", error(&self.api)));
        }
        if random.once_in(3) {
            let knob = Descriptor::new(self.api, DescriptorType::KNOB_CHOICE_DESCRIPTOR)?;
            knob.set(Name::KNOB_CHOICE_KNOB_TYPE, Type::CHAR, b"hipdnn_rs.cpu.threads")?;
            knob.set(Name::KNOB_CHOICE_KNOB_VALUE, Type::INT64, &[random.range(1, 2)])?;
            if knob.finalize() != Status::SUCCESS {
                return Err(format!("knob: {}", error(&self.api)));
            }
            config.set(Name::ENGINECFG_KNOB_CHOICES, Type::BACKEND_DESCRIPTOR, &[knob.ptr])?;
        }
        if config.finalize() != Status::SUCCESS {
            return Err(format!("configuration of a claimed graph: {}", error(&self.api)));
        }
        let plan = Descriptor::new(self.api, DescriptorType::EXECUTION_PLAN_DESCRIPTOR)?;
        plan.set(Name::EXECUTION_PLAN_ENGINE_CONFIG, Type::BACKEND_DESCRIPTOR, &[config.ptr])?;
        if plan.finalize() != Status::SUCCESS {
            let text = error(&self.api);
            let is_large = typed.tensors().iter().map(|tensor| tensor.span_bytes()).sum::<usize>() > 1 << 28;
            return if is_large { Ok(()) } else { Err(format!("plan of a claimed graph: {text}")) };
        }
        stages.reach("backend: plan");
        let workspace = plan.get_i64(Name::EXECUTION_PLAN_WORKSPACE_SIZE)?;
        let workspace = usize::try_from(workspace).map_err(|_| format!("a workspace of {workspace} bytes"))?;
        // The plan must hold what it needs.
        drop((graph, heuristic, config));
        // The backend refuses what is misaligned; mostly, the engine is to run.
        let misaligned = random.once_in(8);
        let Some(prepared) = self.memory.prepare(random, &typed, workspace, misaligned) else {
            return Ok(());
        };
        if prepared.pack.is_empty() {
            return Ok(());
        }

        let mut pack = prepared.pack.clone();
        let must_succeed = prepared.essential.is_empty() || !random.once_in(8);
        if !must_succeed {
            pack.swap_remove(prepared.essential[random.below(prepared.essential.len())]);
        }
        let variant = Descriptor::new(self.api, DescriptorType::VARIANT_PACK_DESCRIPTOR)?;
        let (uids, pointers): (Vec<i64>, Vec<_>) = pack.into_iter().unzip();
        if uids.is_empty() {
            return Ok(());
        }
        variant.set(Name::VARIANT_PACK_UNIQUE_IDS, Type::INT64, &uids)?;
        variant.set(Name::VARIANT_PACK_DATA_POINTERS, Type::VOID_PTR, &pointers)?;
        variant.set(Name::VARIANT_PACK_WORKSPACE, Type::VOID_PTR, &[prepared.workspace_address])?;
        if variant.finalize() != Status::SUCCESS {
            return Err(format!("variant pack: {}", error(&self.api)));
        }
        // SAFETY: each buffer has the bytes its tensor spans, the workspace those the plan asks for.
        let status = unsafe { (self.api.execute)(self.handle, plan.ptr, variant.ptr) };
        let text = error(&self.api);
        self.memory.check(&prepared)?;
        // A pointer that is less aligned than its tensor is refused, but for scalars, which are read on the host.
        let mut memory = typed.tensors().iter().filter(|tensor| !tensor.is_runtime_pass_by_value());
        let is_aligned = memory.all(|tensor| {
            let at = prepared.pack.iter().find(|(uid, _)| *uid == tensor.uid().0);
            at.is_none_or(|(_, ptr)| (*ptr as usize).is_multiple_of(tensor.alignment() as usize))
        });
        if (must_succeed && is_aligned) != (status == Status::SUCCESS) {
            return Err(format!(
                "execute, aligned {is_aligned}: expected success {must_succeed}, got {status}: {text}"
            ));
        }
        stages.reach(if status == Status::SUCCESS { "backend: executed" } else { "backend: execution refused" });
        Ok(())
    }

    /// Reads a graph back: its answers fit the sizes they name, and are a graph again.
    fn read_back(&mut self, graph: &Descriptor) -> Result<(), String> {
        let mut size = 0;
        // SAFETY: a query of the size writes nothing else.
        let status = unsafe { (self.api.serialize_graph)(graph.ptr, 0, &mut size, null_mut()) };
        if status != Status::SUCCESS || size > self.output.capacity() {
            return if status == Status::SUCCESS { Ok(()) } else { Err(format!("size of the graph: {status}")) };
        }
        let put = self.output.put(size, Place::Back(1), &[0]);
        // SAFETY: there are as many bytes as we say.
        let status = unsafe { (self.api.serialize_graph)(graph.ptr, size, &mut size, self.output.address(put).cast()) };
        if status != Status::SUCCESS || !self.output.surroundings_untouched(put) {
            return Err(format!("serializing: {status}"));
        }
        hipdnn_schemas::verify_graph(self.output.content(put)).map_err(|error| format!("own bytes: {error}"))?;

        // SAFETY: a query of the size writes nothing else.
        let status = unsafe { (self.api.serialize_json)(graph.ptr, 0, &mut size, null_mut()) };
        if status != Status::SUCCESS || size > self.output.capacity() {
            return if status == Status::SUCCESS { Ok(()) } else { Err(format!("size of the JSON: {status}")) };
        }
        let put = self.output.put(size, Place::Back(1), b"x");
        // SAFETY: there are as many bytes as we say.
        let status = unsafe { (self.api.serialize_json)(graph.ptr, size, &mut size, self.output.address(put).cast()) };
        let ends = self.output.content(put).last() == Some(&0);
        if status != Status::SUCCESS || !self.output.surroundings_untouched(put) || !ends {
            return Err(format!("serializing to JSON: {status}, ends in NUL: {ends}"));
        }
        Ok(())
    }

    /// Hands in bytes as a stored plan, and asks what they hold.
    pub(crate) fn stored(&mut self, bytes: &[u8], stages: &mut Stages) -> Result<(), String> {
        let put = self.input.put(bytes.len(), Place::Back(1), bytes);
        let address = self.input.address(put).cast_const().cast::<u8>();
        let (mut flags, mut ptr): (c_int, _) = (-1, null_mut());
        stages.reach("backend: stored plan given");
        // SAFETY: the bytes are readable, the out-pointers are valid for the calls.
        let (contents, plan) = unsafe {
            (
                (self.api.get_contents)(address, bytes.len(), &mut flags),
                (self.api.deserialize_plan)(self.handle, &mut ptr, address, bytes.len()),
            )
        };
        if contents == Status::SUCCESS && !(0..=3).contains(&flags) {
            return Err(format!("contents {flags}"));
        }
        if plan == Status::SUCCESS {
            stages.reach("backend: stored plan read");
            drop(Descriptor { api: self.api, ptr });
        } else if !ptr.is_null() {
            return Err(format!("a stored plan: {plan}, but {ptr:?}"));
        }
        // SAFETY: no bytes are read where there are none.
        let nothing = unsafe { (self.api.get_contents)(null(), 0, &mut flags) };
        if nothing == Status::SUCCESS { Err("null holds something".into()) } else { Ok(()) }
    }
}

impl Drop for ThroughBackend {
    fn drop(&mut self) {
        // SAFETY: the handle is alive, and all descriptors that refer to it are destroyed.
        let status = unsafe { (self.api.destroy)(self.handle) };
        assert_eq!(status, Status::SUCCESS, "destroying the handle");
    }
}
