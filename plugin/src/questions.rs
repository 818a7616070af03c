//! Questions of a handle: graphs that it was asked about, decoded and lowered once however often the host asks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hipdnn_engine_core::{Applicable, Declined, Engine, Site, engine_id};
use hipdnn_schemas::{Graph, GraphError};

use crate::selection;

/// Maximum number of graphs that a handle remembers. Hosts put all questions about one before those about the next; several
/// threads may share a handle.
const MOST: usize = 4;

/// Size in bytes from which serialized graphs are not remembered: their works are many times as large.
const LARGE: usize = 4 << 20;

/// The graphs that a handle was asked about last.
#[derive(Default)]
pub struct Questions {
    /// The last one at the end.
    recent: Mutex<Vec<Arc<Question>>>,
}

/// A graph, and the engines that have found it applicable.
pub struct Question {
    bytes: Box<[u8]>,
    graph: Arc<Graph>,
    answers: Mutex<Vec<Answer>>,
}

struct Answer {
    engine: i64,
    stream: usize,
    applicable: Arc<dyn Applicable>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Questions {
    /// The graph of these bytes.
    ///
    /// # Errors
    /// If they are none.
    pub fn about(&self, bytes: &[u8]) -> Result<Arc<Question>, GraphError> {
        let mut recent = lock(&self.recent);
        if let Some(index) = recent.iter().rposition(|question| *question.bytes == *bytes) {
            let question = recent.remove(index);
            recent.push(question.clone());
            return Ok(question);
        }
        drop(recent);
        let graph = Arc::new(Graph::from_bytes(bytes)?);
        let question = Arc::new(Question { bytes: bytes.into(), graph, answers: Mutex::default() });
        if bytes.len() < LARGE {
            let mut recent = lock(&self.recent);
            let oldest = (recent.len() >= MOST).then(|| recent.remove(0));
            recent.push(question.clone());
            drop(recent);
            // What an engine prepared for it may take long to free: not under the lock.
            drop(oldest);
        }
        Ok(question)
    }
}

impl Question {
    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The graph, to keep.
    pub fn shared_graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// Applicability of an engine at a site of the handle.
    ///
    /// # Errors
    /// The reason for which it declines the graph.
    pub fn applicable(&self, engine: &'static dyn Engine, site: Site) -> Result<Arc<dyn Applicable>, Declined> {
        let (id, stream) = (engine_id(engine), site.stream.addr());
        let is_of = |answer: &Answer| (answer.engine, answer.stream) == (id, stream);
        let known = lock(&self.answers).iter().find(|answer| is_of(answer)).map(|answer| answer.applicable.clone());
        if let Some(known) = known
            && known.holds(site)
        {
            return Ok(known);
        }
        let applicable = selection::applicable(engine, &self.graph, site)?;
        let mut answers = lock(&self.answers);
        // A handle is on one stream at a time.
        let (others, stale) = answers.drain(..).partition(|answer| answer.engine != id);
        *answers = others;
        answers.push(Answer { engine: id, stream, applicable: applicable.clone() });
        drop(answers);
        drop::<Vec<Answer>>(stale);
        Ok(applicable)
    }
}
