//! Override shapes: plans of a graph for the shapes of single executions.
//!
//! A graph that allows override shapes declares the largest extents. An execution with others is one of a plan that is built
//! for them as any plan is, when they first come. A context keeps the plans that were executed last, so that an execution
//! with shapes that came before only launches. Callers give every execution the workspace of the declared shapes; a plan
//! that needs more than that, since smaller shapes may have other algorithms, has memory of its own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hipdnn_engine_core::error::Error;
use hipdnn_engine_core::{Engine, Plan, Site, Workspace, knobs};
use hipdnn_engine_gpu::recording;
use hipdnn_schemas::{EngineConfig, Graph, ShapeOverride, TensorUid};
use hipdnn_sdk_bindings::hipdnn::plugin::DeviceBuffer;

use crate::selection;

/// Maximum number of plans that a context keeps for override shapes.
const MOST: usize = 64;

/// Maximum number of streams that a plan keeps workspaces of its own for.
const MOST_STREAMS: usize = 8;

/// A graph that allows override shapes, with the plans for those that came last.
pub struct Overrides {
    engine: &'static dyn Engine,
    graph: Arc<Graph>,
    /// Settled, as the plan for the declared shapes has it.
    config: EngineConfig,
    /// Workspace in bytes that a caller gives.
    workspace_bytes: usize,
    /// The last one at the end.
    plans: Mutex<Vec<Arc<Overridden>>>,
}

/// The shape of a tensor, as it is kept.
struct Shape {
    uid: TensorUid,
    dims: Box<[i64]>,
    strides: Box<[i64]>,
}

/// A plan for override shapes.
struct Overridden {
    shapes: Vec<Shape>,
    plan: Box<dyn Plan>,
    /// The plan's own workspaces, by stream: executions on one stream come one after the other. They are made at the first
    /// execution, where a caller's workspace is too small.
    own: Mutex<Vec<(usize, Box<dyn Workspace>)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that is guarded is left half-done by a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shape {
    fn of(shape: &ShapeOverride<'_>) -> Shape {
        Shape { uid: shape.uid, dims: shape.dims.into(), strides: shape.strides.into() }
    }

    fn is(&self, shape: &ShapeOverride<'_>) -> bool {
        (self.uid, &*self.dims, &*self.strides) == (shape.uid, shape.dims, shape.strides)
    }
}

impl Overrides {
    /// Nothing built yet; `None` if the graph allows no override shapes. `config` and `workspace_bytes` are those of the
    /// plan for the declared shapes.
    pub fn new(
        engine: &'static dyn Engine,
        graph: Arc<Graph>,
        config: EngineConfig,
        workspace_bytes: usize,
    ) -> Option<Overrides> {
        let plans = Mutex::default();
        graph.allows_override_shapes().then_some(Overrides { engine, graph, config, workspace_bytes, plans })
    }

    /// Executes the graph with these shapes; `base` is the plan for the declared ones, whose device it is.
    ///
    /// # Safety
    /// As [`Plan::execute`]: buffers have what the override shapes reach, and the workspace is null or has the bytes of the
    /// plan for the declared shapes.
    ///
    /// # Errors
    /// If the graph can't have these shapes, the engine does not compute it with them, or the execution fails; also if it were
    /// recorded or captured, since a recording outlives the plan.
    pub unsafe fn execute(
        &self,
        base: &dyn Plan,
        site: Site,
        workspace: *mut u8,
        buffers: &[DeviceBuffer],
        shapes: &[ShapeOverride<'_>],
    ) -> Result<(), Error> {
        if recording::is_on() {
            let reason = "expected the declared shapes while executions are recorded, got override shapes";
            return Err(Error::not_applicable(reason));
        }
        if self.engine.is_capturing(site) {
            let reason = "expected the declared shapes on a stream that captures, got override shapes";
            return Err(Error::not_applicable(reason));
        }
        let overridden = self.plan(base, site, shapes)?;
        let bytes = overridden.plan.workspace_bytes();
        if bytes <= self.workspace_bytes {
            // SAFETY: the caller's promise; the workspace is large enough.
            return unsafe { overridden.plan.execute(site.stream, workspace, buffers) };
        }
        // Held until everything is enqueued: launches of two executions that share memory must not mix.
        let mut own = lock(&overridden.own);
        let stream = site.stream.addr();
        let at = match own.iter().position(|(of, _)| *of == stream) {
            Some(at) => at,
            None => {
                let _entered = base.enter(site.stream)?;
                if own.len() >= MOST_STREAMS {
                    // The oldest one's stream may still run what uses it.
                    self.engine.settle(site)?;
                    own.remove(0);
                }
                own.push((stream, self.engine.workspace(bytes, site)?));
                own.len() - 1
            }
        };
        // SAFETY: the caller's promise for the buffers; the memory has the plan's bytes, and is only used by executions on
        // this stream, under this lock.
        unsafe { overridden.plan.execute(site.stream, own[at].1.address(), buffers) }
    }

    /// The plan for these shapes: one that is kept, or a new one.
    fn plan(&self, base: &dyn Plan, site: Site, shapes: &[ShapeOverride<'_>]) -> Result<Arc<Overridden>, Error> {
        if let Some(known) = take_last(&mut lock(&self.plans), shapes) {
            return Ok(known);
        }
        let _entered = base.enter(site.stream)?;
        // Not under the lock: it takes long.
        let built = Arc::new(self.build(site, shapes)?);
        let mut plans = lock(&self.plans);
        if let Some(known) = take_last(&mut plans, shapes) {
            // Another thread was as fast.
            drop(plans);
            return Ok(known);
        }
        // One that an execution has in hand is not given up: its work is not all enqueued.
        let idle = plans.iter().position(|plan| Arc::strong_count(plan) == 1).filter(|_| plans.len() >= MOST);
        let oldest = idle.map(|at| plans.remove(at));
        plans.push(Arc::clone(&built));
        drop(plans);
        if let Some(oldest) = oldest {
            // Work that was enqueued may still run its code in its memory. What can't be waited for is kept.
            match self.engine.settle(site) {
                Ok(()) => drop(oldest),
                Err(_) => lock(&self.plans).insert(0, oldest),
            }
        }
        Ok(built)
    }

    fn build(&self, site: Site, shapes: &[ShapeOverride<'_>]) -> Result<Overridden, Error> {
        let graph = self.graph.overridden(shapes);
        let graph = Arc::new(graph.map_err(|error| Error::invalid_value(format!("override shapes: {error}")))?);
        let applicable = selection::applicable(self.engine, &graph, site).map_err(|declined| {
            let (name, graph) = (self.engine.name().to_string_lossy(), graph.name());
            Error::not_applicable(format!(
                "{name} does not compute graph {graph:?} with these override shapes: {declined}"
            ))
        })?;
        // A token stands for the contents of a tensor of the declared shape.
        let config = knobs::without_constants(&self.config, |uid| shapes.iter().any(|shape| shape.uid == uid));
        let plan = applicable.plan(&config)?;
        Ok(Overridden { shapes: shapes.iter().map(Shape::of).collect(), plan, own: Mutex::default() })
    }
}

/// The plan for these shapes, moved to the end.
fn take_last(plans: &mut [Arc<Overridden>], shapes: &[ShapeOverride<'_>]) -> Option<Arc<Overridden>> {
    let is_for = |plan: &Arc<Overridden>| {
        plan.shapes.len() == shapes.len() && plan.shapes.iter().zip(shapes).all(|(mine, shape)| mine.is(shape))
    };
    let at = plans.iter().rposition(is_for)?;
    plans[at..].rotate_left(1);
    plans.last().cloned()
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, c_void};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use hipdnn_engine_core::payload::{Payload, Portrait};
    use hipdnn_engine_core::{Applicable, Declined};
    use hipdnn_schemas::{DataType, EngineDetails, GraphBuilder, Pointwise, PointwiseMode, TensorDef};

    use super::*;

    /// An engine whose plans enqueue work that runs until it is waited for.
    struct Late;

    static IS_CAPTURING: AtomicBool = AtomicBool::new(false);
    static ENQUEUED: AtomicUsize = AtomicUsize::new(0);
    static DROPPED: AtomicUsize = AtomicUsize::new(0);

    struct LatePlan;

    impl Drop for LatePlan {
        fn drop(&mut self) {
            assert_eq!(ENQUEUED.load(Ordering::Relaxed), 0, "a plan is dropped whose work may run");
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Engine for Late {
        fn name(&self) -> &'static CStr {
            c"LATE_TEST_ENGINE"
        }

        fn attach(&self) -> Box<dyn Send + Sync> {
            Box::new(())
        }

        fn applicable(&self, _: &Arc<Graph>, _: Site) -> Result<Arc<dyn Applicable>, Declined> {
            Ok(Arc::new(LateGraph))
        }

        fn restore(&self, _: &Payload, _: Site) -> Result<Box<dyn Plan>, Error> {
            unreachable!("nothing is stored")
        }

        fn workspace(&self, bytes: usize, _: Site) -> Result<Box<dyn Workspace>, Error> {
            unreachable!("its plans need no workspace, and not {bytes} bytes")
        }

        fn is_capturing(&self, _: Site) -> bool {
            IS_CAPTURING.load(Ordering::Relaxed)
        }

        fn settle(&self, _: Site) -> Result<(), Error> {
            ENQUEUED.store(0, Ordering::Relaxed);
            Ok(())
        }
    }

    struct LateGraph;

    impl Applicable for LateGraph {
        fn details(&self) -> EngineDetails {
            unreachable!("nobody asks for details")
        }

        fn settled(&self, config: &EngineConfig) -> Result<EngineConfig, Error> {
            Ok(config.clone())
        }

        fn workspace_bytes(&self, _: &EngineConfig) -> Result<usize, Error> {
            Ok(0)
        }

        fn plan(&self, _: &EngineConfig) -> Result<Box<dyn Plan>, Error> {
            Ok(Box::new(LatePlan))
        }
    }

    impl Plan for LatePlan {
        fn workspace_bytes(&self) -> usize {
            0
        }

        fn portrait(&self) -> Result<Portrait, Error> {
            unreachable!("nothing is stored")
        }

        unsafe fn execute(&self, _: *mut c_void, _: *mut u8, _: &[DeviceBuffer]) -> Result<(), Error> {
            ENQUEUED.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn plans_are_given_up_when_their_work_is_done_and_nothing_is_captured() {
        let mut graph = GraphBuilder::new("relu").compute(DataType::Float);
        let x = graph.tensor(TensorDef::new(1, DataType::Float, &[200]));
        let y = graph.tensor(TensorDef::new(2, DataType::Float, &[200]));
        graph.pointwise(Pointwise::unary(PointwiseMode::ReluFwd, x, y));
        graph.def_mut().is_override_shape_enabled = true;
        let graph = Arc::new(graph.build().unwrap());
        let config = EngineConfig { engine_id: 0, knobs: Vec::new() };
        let overrides = Overrides::new(&Late, graph, config, 0).unwrap();
        let base = std::mem::ManuallyDrop::new(LatePlan);
        let run = |extent: i64| {
            let dims = [extent];
            let shapes = [x, y].map(|uid| ShapeOverride { uid, dims: &dims, strides: &[1] });
            // SAFETY: the engine touches no memory.
            unsafe { overrides.execute(&*base, Site::UNSPECIFIED, std::ptr::null_mut(), &[], &shapes) }
        };
        for extent in 1..=MOST as i64 {
            run(extent).unwrap();
        }
        assert_eq!(DROPPED.load(Ordering::Relaxed), 0);
        for extent in 100..=110 {
            run(extent).unwrap();
        }
        assert_eq!(DROPPED.load(Ordering::Relaxed), 11, "the oldest ones, each after a wait");
        IS_CAPTURING.store(true, Ordering::Relaxed);
        let refused = run(110).unwrap_err().to_string();
        assert!(refused.contains("expected the declared shapes on a stream that captures"), "{refused}");
        ENQUEUED.store(0, Ordering::Relaxed);
    }
}
