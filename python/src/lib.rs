//! The native half of the Python package `hipdnn_rs`: checked graphs, a backend through its C ABI, plans, and executions on memory
//! that Python lends by DLPack. The other half, which gives graphs their shapes and names, is Python (`hipdnn_rs/`).

mod backend;
mod dlpack;
mod graph;
mod log;
mod plan;

hipdnn_sdk_bindings::glibc_2_28!();

use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};

create_exception!(hipdnn_rs, GraphError, PyValueError, "A graph that is not right; the message says where.");
create_exception!(hipdnn_rs, BackendError, PyRuntimeError, "A call of hipDNN's backend that failed, with its words.");
create_exception!(
    hipdnn_rs,
    PlanError,
    BackendError,
    "A graph that no engine makes a plan of, with each engine's reason."
);

#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use super::backend::Backend;
    #[pymodule_export]
    use super::graph::{Graph, pointwise_modes};
    #[pymodule_export]
    use super::plan::Plan;
    #[pymodule_export]
    use super::{BackendError, GraphError, PlanError};
}
