//! Plans, and executions on borrowed memory.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

use hipdnn_client::descriptor::Descriptor;
use hipdnn_client::planning;
use pyo3::exceptions::{PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::backend::Shared;
use crate::dlpack::{self, Borrowed, Place, label};
use crate::graph::Graph;
use crate::log::lock;
use crate::{BackendError, PlanError};

/// A plan that is ready to run, by several threads at once.
#[pyclass(frozen, module = "hipdnn_rs._native")]
pub(crate) struct Plan {
    /// There until the plan is dropped.
    plan: Option<Descriptor>,
    workspace: usize,
    engine: String,
    place: Place,
    graph: Py<Graph>,
    shared: Arc<Shared>,
}

impl Plan {
    pub(crate) fn new(
        plan: Descriptor,
        workspace: usize,
        engine: String,
        place: Place,
        graph: Py<Graph>,
        shared: Arc<Shared>,
    ) -> Plan {
        Plan { plan: Some(plan), workspace, engine, place, graph, shared }
    }

    fn descriptor(&self) -> &Descriptor {
        self.plan.as_ref().expect("a plan is whole until it is dropped")
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        let plan = self.plan.take();
        // The engine destroys it by the handle that it was built with, which serves one caller at a time: other threads of the
        // interpreter go on while this one waits for its turn.
        Python::attach(|py| {
            py.detach(|| {
                let _builder = self.shared.site(self.place).ok().map(|site| lock(&site.builder));
                drop(plan);
            });
        });
    }
}

/// Addresses that another thread may use while this one waits for it.
struct Addresses {
    uids: Vec<i64>,
    places: Vec<*mut c_void>,
    workspace: Option<*mut c_void>,
    stream: Option<*mut c_void>,
}

// SAFETY: the addresses are used by the one thread that runs the closure while their owners are held.
unsafe impl Send for Addresses {}

/// Failure of an execution, before it is an exception.
enum Failure {
    Backend(String),
    Memory(String),
}

#[pymethods]
impl Plan {
    /// The engine that runs it.
    #[getter]
    fn engine(&self) -> &str {
        &self.engine
    }

    /// Bytes of memory that it works in.
    #[getter]
    fn workspace_bytes(&self) -> usize {
        self.workspace
    }

    /// The graph, and the plan as the engine stores it.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let stored = py.detach(|| {
            // The engine gives the bytes through the handle that the plan was built with.
            let _builder = lock(&self.shared.site(self.place)?.builder);
            self.descriptor().serialized_plan()
        });
        let stored = stored.map_err(|error| PlanError::new_err(error.to_string()))?;
        Ok(PyBytes::new(py, &packed(&self.graph.get().bytes, &stored)))
    }

    /// Runs the plan on arrays by tensor uid: inputs, scalars and outputs, all lent by `__dlpack__` and none copied. Other
    /// Python threads run meanwhile.
    #[pyo3(signature = (arrays, stream=None, workspace=None))]
    fn execute(
        &self,
        py: Python<'_>,
        arrays: HashMap<i64, Bound<'_, PyAny>>,
        stream: Option<usize>,
        workspace: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let graph = self.graph.get();
        let mut borrowed: Vec<(String, Borrowed, bool)> = Vec::new();
        let mut uids = Vec::new();
        for tensor in graph.graph.tensors() {
            let role = graph.role(tensor);
            if matches!(role, "virtual" | "constant") {
                continue;
            }
            let Some(array) = arrays.get(&tensor.uid().0) else {
                if role == "scalar" && tensor.value().is_some() {
                    continue;
                }
                return Err(PyTypeError::new_err(format!("{}: expected an array, got none", label(tensor))));
            };
            let is_written = role == "output";
            let place = if role == "scalar" { Place::Host } else { self.place };
            // The producer of a host's array knows no streams.
            let stream = stream.filter(|_| place == Place::Rocm);
            borrowed.push((label(tensor), dlpack::borrow(array, tensor, place, is_written, stream)?, is_written));
            uids.push(tensor.uid().0);
        }
        let on = stream.filter(|_| self.place == Place::Rocm);
        let lent = workspace.map(|array| dlpack::workspace(&array, self.workspace, self.place, on)).transpose()?;
        let workspace = lent.as_ref().map(|memory| memory.address);
        let places = borrowed.iter().map(|(_, memory, _)| memory.address).collect();
        borrowed.extend(lent.map(|memory| ("workspace".to_string(), memory, true)));
        apart(&borrowed)?;
        one_device(&borrowed)?;
        if self.place == Place::Rocm && workspace.is_none() && self.workspace > 0 {
            let bytes = self.workspace;
            return Err(PyValueError::new_err(format!(
                "workspace: expected an array of {bytes} bytes on the GPU, got none"
            )));
        }
        let addresses = Addresses { uids, places, workspace, stream: stream.map(std::ptr::without_provenance_mut) };
        let ran = py.detach(|| self.run(addresses));
        // The producers' memory was used until here.
        drop(borrowed);
        ran.map_err(|failure| match failure {
            Failure::Backend(text) => BackendError::new_err(text),
            Failure::Memory(text) => PyMemoryError::new_err(text),
        })
    }
}

impl Plan {
    fn run(&self, addresses: Addresses) -> Result<(), Failure> {
        let backend_failed = |error: hipdnn_client::descriptor::BackendError| Failure::Backend(error.to_string());
        let mut pooled = self.shared.pooled_handle(self.place).map_err(backend_failed)?;
        let memory = match addresses.workspace {
            Some(memory) => memory,
            None => pooled.workspace.get(self.workspace).map_err(|error| Failure::Memory(error.to_string()))?,
        };
        let pack =
            planning::pack(self.shared.backend, &addresses.uids, &addresses.places, memory).map_err(backend_failed)?;
        if self.place == Place::Rocm {
            let stream = addresses.stream.unwrap_or_default();
            // SAFETY: the caller's stream lives at least until it has waited for it; each execution sets its own.
            unsafe { pooled.handle.set_stream(stream) }.map_err(backend_failed)?;
        }
        // SAFETY: each tensor's memory was checked against the graph, and its owner is held by the caller until this returns;
        // outputs overlap nothing. The workspace has the plan's bytes.
        let ran = unsafe {
            planning::execute(&pooled.handle, self.descriptor(), &pack, || format!("running {}", self.engine))
        };
        self.shared.put_back(self.place, pooled);
        ran.map_err(backend_failed)
    }
}

/// A stored plan with the graph that it is of: the bytes of the graph's length, in little endian, the graph, the plan.
fn packed(graph: &[u8], plan: &[u8]) -> Vec<u8> {
    [&(graph.len() as u64).to_le_bytes()[..], graph, plan].concat()
}

/// The graph and the plan of [`packed`] bytes.
pub(crate) fn unpacked(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)
}

/// Checks that what is in GPUs' memory is in that of one.
fn one_device(tensors: &[(String, Borrowed, bool)]) -> PyResult<()> {
    let mut devices = tensors.iter().filter_map(|(name, memory, _)| Some((name, memory.device?)));
    let Some((first, device)) = devices.next() else { return Ok(()) };
    match devices.find(|(_, other)| *other != device) {
        Some((name, other)) => {
            let text = format!("{name}: expected memory of GPU {device}, where {first} is, got GPU {other}'s");
            Err(PyValueError::new_err(text))
        }
        None => Ok(()),
    }
}

/// Checks that no output overlaps another tensor, and no tensor the workspace.
fn apart(tensors: &[(String, Borrowed, bool)]) -> PyResult<()> {
    for (at, (name, written, is_written)) in tensors.iter().enumerate() {
        for (other, memory, _) in tensors.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, tensor)| tensor) {
            let (start, end) = (written.address.addr(), written.address.addr() + written.bytes);
            let overlaps =
                written.bytes > 0 && start < memory.address.addr() + memory.bytes && memory.address.addr() < end;
            if *is_written && overlaps {
                return Err(PyValueError::new_err(format!("{name}: expected memory of its own, got {other}'s")));
            }
        }
    }
    Ok(())
}
