//! From stages to tasks, still without a device: every convolution becomes a problem that MIOpen takes, with copies around
//! it where tensors do not lie as MIOpen wants them; every chain becomes one kernel over strided views.
//!
//! MIOpen gets packed tensors of one type in one of two layouts only. It would take other strides, but its records of what
//! is fast know none, and few of its solvers do: what they save by not copying they lose many times over. Copies also
//! convert types, pad on one side, cut off and flip, since all of that is a matter of strides, offsets and windows.

mod chain;
mod convolution;
mod groups;
#[cfg(test)]
pub(super) mod simulate;
mod task;

use std::collections::{HashMap, HashSet};

use hipdnn_schemas::{DataType, Graph, Tensor, TensorUid, TensorValue};

pub use self::convolution::CONVOLUTION_ALIGNMENT;
use self::convolution::Form;
pub(super) use self::convolution::{lifted, miopen_type};
pub use self::groups::{GroupedTask, Number};
pub(super) use self::task::same_strides;
pub use self::task::{ConvolutionTask, Input, Layout, MapTask, MemoryInput, Task, Value, View};
use super::convolution::ConvolutionProblem;
use super::fuse::Stage;
use crate::engine::Declined;
use crate::engine::checks::element_bytes;

/// Tasks in the order in which they are done.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Arrangement {
    /// What is done.
    pub tasks: Vec<Task>,
    /// Bytes of each temporary.
    pub temporaries: Vec<usize>,
}

impl Arrangement {
    /// Whether tensors are copied for convolutions.
    pub fn copies(&self) -> bool {
        self.tasks.iter().any(|task| matches!(task, Task::Map(map) if map.program.is_empty()))
    }
}

/// What MIOpen may be asked about a problem: whether it takes it, or why not.
pub type Supported<'a> = &'a dyn Fn(&ConvolutionProblem) -> Result<(), String>;

/// What is asked of the arrangement.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wishes {
    /// Equal executions have to give equal results.
    pub deterministic: bool,
    /// What the graph calls float stays float.
    pub strict_fp32: bool,
}

/// Arranges stages.
///
/// # Errors
/// If MIOpen takes a convolution in no type and layout that it could be brought into.
pub fn arrange(
    graph: &Graph,
    stages: &[Stage],
    wishes: Wishes,
    supported: Supported<'_>,
) -> Result<Arrangement, Declined> {
    let mut readers: HashMap<TensorUid, Vec<usize>> = HashMap::new();
    for (index, stage) in stages.iter().enumerate() {
        for uid in stage.inputs() {
            let readers = readers.entry(uid).or_default();
            if readers.last() != Some(&index) {
                readers.push(index);
            }
        }
    }
    let mut arranger = Arranger {
        graph,
        stages,
        wishes,
        supported,
        readers,
        stored: HashMap::new(),
        prepared: HashMap::new(),
        claimed: HashSet::new(),
        current: 0,
        arrangement: Arrangement::default(),
    };
    for (index, stage) in stages.iter().enumerate() {
        arranger.current = index;
        match stage {
            Stage::Convolution(work) => arranger.convolution(work)?,
            Stage::Chain(chain) => arranger.chain(chain),
            Stage::Groups(groups) => arranger.groups(groups),
        }
    }
    Ok(arranger.arrangement)
}

/// A tensor in memory.
#[derive(Debug, Clone)]
struct Stored {
    value: Value,
    view: View,
}

/// What a tensor is to the plan.
enum Kind {
    Literal(f64),
    Scalar,
    Memory(Stored),
}

struct Arranger<'a> {
    graph: &'a Graph,
    stages: &'a [Stage],
    wishes: Wishes,
    supported: Supported<'a>,
    readers: HashMap<TensorUid, Vec<usize>>,
    /// Where virtual tensors are.
    stored: HashMap<TensorUid, Stored>,
    /// Copies that were made for convolutions.
    prepared: HashMap<(TensorUid, Form), Value>,
    /// Results of chains that lie where a convolution behind them has its result: one convolution each.
    claimed: HashSet<TensorUid>,
    /// The stage that is arranged.
    current: usize,
    arrangement: Arrangement,
}

impl Arranger<'_> {
    fn temporary(&mut self, elements: usize, data_type: DataType) -> Value {
        let temporaries = &mut self.arrangement.temporaries;
        temporaries.push(elements * element_bytes(data_type));
        Value::Temporary(temporaries.len() - 1)
    }

    fn kind(&self, uid: TensorUid) -> Kind {
        let tensor = self.graph.tensor(uid);
        match tensor.value() {
            Some(value) => Kind::Literal(number(value, tensor.data_type())),
            None if tensor.is_runtime_pass_by_value() => Kind::Scalar,
            None if tensor.is_virtual() => {
                Kind::Memory(self.stored.get(&uid).expect("producers are arranged before their readers").clone())
            }
            None => Kind::Memory(Stored { value: Value::Tensor(uid), view: view(tensor) }),
        }
    }

    /// The type of a tensor in memory, which for virtual tensors need not be the graph's.
    fn data_type(&self, uid: TensorUid) -> DataType {
        self.stored.get(&uid).map_or_else(|| self.graph.tensor(uid).data_type(), |stored| stored.view.data_type)
    }
}

/// A tensor as the caller has it.
fn view(tensor: &Tensor) -> View {
    let strides = tensor.strides().iter().map(|stride| *stride as i64).collect();
    View { data_type: tensor.data_type(), strides, offset: 0 }
}

/// A scalar of the graph, as its tensor's type has it.
fn number(value: TensorValue, data_type: DataType) -> f64 {
    match value {
        TensorValue::Float32(v) => f64::from(v),
        TensorValue::Float16(v) => half::f16::from_f32(v).to_f64(),
        TensorValue::BFloat16(v) => half::bf16::from_f32(v).to_f64(),
        TensorValue::Float8(v) => match data_type {
            DataType::Int8 => f64::from(v.cast_signed()),
            DataType::Boolean => f64::from(u8::from(v != 0)),
            _ => f64::from(v),
        },
        TensorValue::Int32(v) => f64::from(v),
        TensorValue::Float64(v) => v,
        TensorValue::Int64(v) => v as f64,
        TensorValue::Bool(v) => f64::from(u8::from(v)),
    }
}

#[cfg(test)]
mod tests;
