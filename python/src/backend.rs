//! A backend with its plugins, and what it is asked of graphs.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use hipdnn_client::engines::{DEVICE_ENGINES, HOST_ENGINE};
use hipdnn_client::extension::Table;
use hipdnn_client::handle::{EngineInfo, Handle, set_plugins};
use hipdnn_client::planning::{self, Candidate};
use hipdnn_client::search::{Environment, PLUGIN_NAME, backend_candidates};
use hipdnn_client::workspace::Workspace;
use hipdnn_client::{descriptor, library};
use hipdnn_schemas::KnobValue;
use hipdnn_sdk_bindings::hipdnn::backend::PluginLoadingMode;
use hipdnn_sdk_bindings::hipdnn::extension::MemoryKind;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::dlpack::Place;
use crate::graph::Graph;
use crate::log::{listen, lock, refresh};
use crate::plan::{Plan, unpacked};
use crate::{BackendError, PlanError};

/// The oldest version of our plugin's extension that can be told of memory.
const LEAST_VERSION: u32 = 2;

/// A backend with its plugins.
pub(crate) struct Shared {
    pub(crate) backend: &'static hipdnn_sdk_bindings::hipdnn::backend::Backend,
    engines: Vec<EngineInfo>,
    table: Option<Table>,
    sites: [OnceLock<Site>; 2],
    /// Plugins can be chosen only while there is no handle: while this one lives, they stay those that `engines` names.
    _first: Mutex<Handle>,
}

/// What plans for tensors in one memory share.
pub(crate) struct Site {
    /// Plans are made with this handle, which outlives them all.
    pub(crate) builder: Mutex<Handle>,
    idle: Mutex<Vec<PooledHandle>>,
}

/// Handle and memory of one execution: a handle serves one caller at a time.
pub(crate) struct PooledHandle {
    pub(crate) handle: Handle,
    pub(crate) workspace: Workspace,
}

impl Shared {
    /// What plans for that memory share, made for the first of them.
    pub(crate) fn site(&self, place: Place) -> Result<&Site, descriptor::BackendError> {
        let site = &self.sites[place as usize];
        if let Some(site) = site.get() {
            return Ok(site);
        }
        let builder = Mutex::new(self.handle(place)?);
        // Of two threads that come here at once the second one's handle is dropped.
        Ok(site.get_or_init(|| Site { builder, idle: Mutex::default() }))
    }

    /// A handle whose plugins are told where its tensors are, if they can be.
    fn handle(&self, place: Place) -> Result<Handle, descriptor::BackendError> {
        let memory = match place {
            Place::Host => MemoryKind::HOST,
            Place::Rocm => MemoryKind::DEVICE,
        };
        match &self.table {
            Some(table) => table.with_handle_memory(memory, || Handle::new(self.backend)),
            None => Handle::new(self.backend),
        }
    }

    /// An idle handle, or a new one.
    pub(crate) fn pooled_handle(&self, place: Place) -> Result<PooledHandle, descriptor::BackendError> {
        if let Some(pooled) = lock(&self.site(place)?.idle).pop() {
            return Ok(pooled);
        }
        Ok(PooledHandle { handle: self.handle(place)?, workspace: Workspace::default() })
    }

    /// Keeps a handle for the next execution.
    pub(crate) fn put_back(&self, place: Place, pooled: PooledHandle) {
        if let Ok(site) = self.site(place) {
            lock(&site.idle).push(pooled);
        }
    }
}

/// What is asked of engines beside the graph.
struct Wanted<'a> {
    engine: Option<&'a str>,
    knobs: &'a [(String, KnobValue)],
    place: Place,
}

impl Wanted<'_> {
    /// Reason against an engine; `None` if it may be used.
    fn refuses(&self, engine: &str) -> Option<String> {
        if let Some(wanted) = self.engine
            && wanted != engine
        {
            return Some(format!("{engine}: expected {wanted}"));
        }
        // Nothing in the engine ABI tells the memory of a stranger's engine: whoever names it knows.
        let is_stranger = engine != HOST_ENGINE && self.engine.is_none();
        match self.place {
            Place::Host if is_stranger || DEVICE_ENGINES.contains(&engine) => {
                Some(format!("{engine}: expected device=\"rocm\", since it works in a GPU's memory"))
            }
            Place::Rocm if engine == HOST_ENGINE => {
                Some(format!("{engine}: expected device=\"cpu\", since it works in the host's memory"))
            }
            _ => None,
        }
    }

    /// Reason why an engine can't have the knobs; `None` if it can.
    fn unknown_knob(&self, candidate: &Candidate) -> Result<Option<String>, descriptor::BackendError> {
        let known = planning::knobs(&candidate.engine)?;
        let unknown = self.knobs.iter().find(|(name, _)| !known.contains(name));
        Ok(unknown.map(|(name, _)| format!("expected knobs among {}, got {name}", known.join(", "))))
    }
}

/// A finalized plan before it is Python's.
type Made = (descriptor::Descriptor, usize, String);

impl Shared {
    /// A plan by the first engine that makes one; else each engine's reason.
    fn make(&self, graph: &[u8], wanted: &Wanted<'_>) -> Result<Made, String> {
        let fail = |error: descriptor::BackendError| error.to_string();
        let builder = lock(&self.site(wanted.place).map_err(fail)?.builder);
        if let Some(engine) = wanted.engine
            && !self.engines.iter().any(|known| known.name == engine)
        {
            let names: Vec<&str> = self.engines.iter().map(|engine| engine.name.as_str()).collect();
            return Err(format!("expected an engine among {}, got {engine}", names.join(", ")));
        }
        let graph = planning::graph(&builder, graph).map_err(fail)?;
        let (candidates, mut reasons) = planning::candidates(self.backend, &graph, &self.engines).map_err(fail)?;
        for candidate in candidates {
            let name = &candidate.name;
            if let Some(reason) = wanted.refuses(name) {
                reasons.push(reason);
                continue;
            }
            if let Some(reason) = wanted.unknown_knob(&candidate).map_err(fail)? {
                reasons.push(format!("{name}: {reason}"));
                continue;
            }
            match planning::plan(&builder, &candidate, wanted.knobs) {
                Ok((plan, workspace)) => return Ok((plan, workspace, candidate.name)),
                Err(error) => reasons.push(format!("{name}: {error}")),
            }
        }
        for engine in self.engines.iter().filter(|engine| wanted.refuses(&engine.name).is_none()) {
            reasons.extend(
                planning::candidate_of(self.backend, &graph, engine)
                    .err()
                    .map(|error| format!("{}: {error}", engine.name)),
            );
        }
        Err(if reasons.is_empty() { "no engine takes it".to_string() } else { reasons.join("; ") })
    }

    /// What each engine says of a graph, or only the wanted one.
    fn explain(&self, graph: &[u8], wanted: &Wanted<'_>, text: &mut String) -> Result<(), descriptor::BackendError> {
        let builder = lock(&self.site(wanted.place)?.builder);
        let graph = planning::graph(&builder, graph)?;
        let (candidates, failures) = planning::candidates(self.backend, &graph, &self.engines)?;
        let is_wanted = |name: &str| wanted.engine.is_none_or(|engine| engine == name);
        for candidate in candidates.iter().filter(|candidate| is_wanted(&candidate.name)) {
            let (plan, log) = listen(self.backend, || planning::plan(&builder, candidate, wanted.knobs));
            let _ = match plan {
                Ok((_, workspace)) => {
                    write!(text, "\n{} takes it, with {workspace} bytes of workspace", candidate.name)
                }
                Err(error) => write!(text, "\n{} takes it, but makes no plan: {error}", candidate.name),
            };
            indent(text, log.iter());
            let _ = write!(text, "\n  knobs: {}", planning::knobs(&candidate.engine)?.join(", "));
        }
        indent(text, failures.iter());
        let taken = |engine: &EngineInfo| candidates.iter().any(|candidate| candidate.id == engine.id);
        for engine in self.engines.iter().filter(|engine| is_wanted(&engine.name) && !taken(engine)) {
            let reason = planning::candidate_of(self.backend, &graph, engine).err().map(|error| error.to_string());
            let reason = reason.unwrap_or_else(|| "its plugin does not offer it".to_string());
            let _ = write!(text, "\n{} declines: {reason}", engine.name);
        }
        Ok(())
    }
}

/// Adds the lines of texts, indented.
fn indent<'a>(text: &mut String, lines: impl Iterator<Item = &'a String>) {
    for line in lines.flat_map(|text| text.lines()) {
        let _ = write!(text, "\n  {line}");
    }
}

/// A hipDNN backend with its engine plugins.
#[pyclass(frozen, module = "hipdnn_rs._native")]
pub(crate) struct Backend {
    shared: Arc<Shared>,
}

#[pymethods]
impl Backend {
    /// Opens a backend: the library at `library` (a file or its directory), else the first of the usual places. `plugins` is
    /// an engine plugin or a directory of them, in the place of the backend's own.
    #[new]
    #[pyo3(signature = (library=None, plugins=None))]
    fn new(py: Python<'_>, library: Option<PathBuf>, plugins: Option<PathBuf>) -> PyResult<Backend> {
        let opened = py.detach(|| open(library.as_deref(), plugins.as_deref()));
        Ok(Backend { shared: Arc::new(opened.map_err(BackendError::new_err)?) })
    }

    /// The library's file.
    #[getter]
    fn path(&self) -> PathBuf {
        self.shared.backend.path()
    }

    /// The library's version, if it says.
    #[getter]
    fn version(&self) -> Option<String> {
        self.shared.backend.version()
    }

    /// The names of the engines.
    #[getter]
    fn engines(&self) -> Vec<String> {
        self.shared.engines.iter().map(|engine| engine.name.clone()).collect()
    }

    /// A plan of a graph by the named engine, or the first that takes it, with knobs set.
    fn plan(
        &self,
        py: Python<'_>,
        graph: Py<Graph>,
        engine: Option<&str>,
        knobs: Vec<(String, Bound<'_, PyAny>)>,
        device: &str,
    ) -> PyResult<Plan> {
        let place = place(device)?;
        let knobs = knobs.into_iter().map(knob).collect::<PyResult<Vec<_>>>()?;
        let wanted = Wanted { engine, knobs: &knobs, place };
        let bytes = &graph.get().bytes;
        let made = py.detach(|| self.shared.make(bytes, &wanted));
        let (plan, workspace, engine) = made.map_err(PlanError::new_err)?;
        Ok(Plan::new(plan, workspace, engine, place, graph, self.shared.clone()))
    }

    /// A plan again from what [`Plan::to_bytes`] gave for the same graph: the bytes of another graph's plan are refused, since
    /// arrays are held against the graph, and the engine runs what the plan was made for.
    fn stored_plan(&self, py: Python<'_>, graph: Py<Graph>, bytes: &[u8], device: &str) -> PyResult<Plan> {
        let place = place(device)?;
        let (of, bytes) = unpacked(bytes).ok_or_else(|| {
            PlanError::new_err(format!(
                "reading the stored plan: expected a graph and its plan, got {} bytes",
                bytes.len()
            ))
        })?;
        if of != graph.get().bytes {
            let text = "reading the stored plan: expected a plan of this graph, got one of another graph";
            return Err(PlanError::new_err(text));
        }
        let made = py.detach(|| -> Result<Made, descriptor::BackendError> {
            let builder = lock(&self.shared.site(place)?.builder);
            let plan = descriptor::Descriptor::stored_plan(&builder, bytes)?;
            let workspace = planning::workspace_of(&plan)?;
            let name = hipdnn_sdk_bindings::hipdnn::backend::AttributeName::EXECUTION_PLAN_ENGINE_GLOBAL_INDEX_EXT;
            let id = plan.get::<i64>(name)?;
            let known = self.shared.engines.iter().find(|engine| engine.id == id);
            Ok((plan, workspace, known.map_or_else(|| format!("engine {id}"), |engine| engine.name.clone())))
        });
        let (plan, workspace, engine) = made.map_err(|error| PlanError::new_err(error.to_string()))?;
        let wanted = Wanted { engine: Some(&engine), knobs: &[], place };
        if let Some(reason) = wanted.refuses(&engine) {
            return Err(PlanError::new_err(reason));
        }
        Ok(Plan::new(plan, workspace, engine, place, graph, self.shared.clone()))
    }

    /// Has the plugins read their settings of logs again.
    fn refresh_log(&self) {
        refresh(self.shared.backend);
    }

    /// What each engine says of a graph, or the named one: whether it takes it, how its plan with these knobs computes it, or
    /// why it declines.
    #[pyo3(signature = (graph, device, engine=None, knobs=Vec::new()))]
    fn explain(
        &self,
        py: Python<'_>,
        graph: Py<Graph>,
        device: &str,
        engine: Option<&str>,
        knobs: Vec<(String, Bound<'_, PyAny>)>,
    ) -> PyResult<String> {
        let place = place(device)?;
        let knobs = knobs.into_iter().map(knob).collect::<PyResult<Vec<_>>>()?;
        let wanted = Wanted { engine, knobs: &knobs, place };
        let checked = graph.get();
        let nodes = checked.graph.nodes().len();
        let mut text = format!("graph {:?}: {nodes} node{}", checked.graph.name(), if nodes == 1 { "" } else { "s" });
        let explained = py.detach(|| self.shared.explain(&checked.bytes, &wanted, &mut text));
        explained.map_err(|error| BackendError::new_err(error.to_string()))?;
        Ok(text)
    }
}

fn place(device: &str) -> PyResult<Place> {
    match device {
        "cpu" => Ok(Place::Host),
        "rocm" => Ok(Place::Rocm),
        other => Err(PyValueError::new_err(format!("device: expected \"cpu\" or \"rocm\", got {other:?}"))),
    }
}

fn knob((name, value): (String, Bound<'_, PyAny>)) -> PyResult<(String, KnobValue)> {
    let value = if let Ok(value) = value.extract::<i64>() {
        KnobValue::Int(value)
    } else if let Ok(value) = value.extract::<f64>() {
        KnobValue::Float(value)
    } else if let Ok(value) = value.extract::<String>() {
        KnobValue::String(value)
    } else {
        return Err(PyValueError::new_err(format!("knob {name}: expected an int, a float or a str, got {value}")));
    };
    Ok((name, value))
}

/// Opens a backend, with its own plugins or these; with its own, also the plugin of this package if none of them computes on
/// the CPU.
fn open(named: Option<&Path>, plugins: Option<&Path>) -> Result<Shared, String> {
    let surroundings = Environment::current();
    let (candidates, _) = backend_candidates(named, &surroundings);
    let backend = library::open(&candidates).map_err(|error| error.to_string())?;
    let fail = |error: descriptor::BackendError| format!("{}: {error}", backend.path().display());
    if let Some(path) = plugins {
        // The backend takes relative paths as relative to itself.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        set_plugins(backend, &[&path], PluginLoadingMode::ABSOLUTE).map_err(fail)?;
    }
    let mut builder = Handle::new(backend).map_err(fail)?;
    let mut engines = builder.engines();
    let own = surroundings.beside.map(|directory| directory.join(PLUGIN_NAME)).filter(|path| path.is_file());
    if let Some(own) = own
        && plugins.is_none()
        && surroundings.plugin_directory.is_none()
        && !engines.iter().any(|engine| engine.name == HOST_ENGINE)
    {
        // Plugins can be added only while there is no handle. Without this one the backend still serves what its own do.
        drop(builder);
        let _ = set_plugins(backend, &[&own], PluginLoadingMode::ADDITIVE);
        builder = Handle::new(backend).map_err(fail)?;
        engines = builder.engines();
    }
    // SAFETY: the handle is this backend's.
    let table = unsafe { Table::find(backend, builder.as_ptr(), LEAST_VERSION) };
    Ok(Shared { backend, engines, table, sites: Default::default(), _first: Mutex::new(builder) })
}
