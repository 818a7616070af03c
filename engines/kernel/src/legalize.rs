//! Legalization and buffer assignment, from fusion groups to dispatches, still without a device: every convolution becomes a
//! problem that MIOpen takes, with copies around it where a tensor's layout is not MIOpen's; tensors and indices of every
//! other group become memory and strides.
//!
//! MIOpen gets packed tensors of one type in one of two layouts only. It would take other strides, but its performance
//! databases know none, and few of its solvers do: what they save by not copying they lose many times over. Copies also
//! convert types, pad on one side, crop and flip, since all of that is a matter of strides, offsets and windows.

mod chain;
mod columns;
mod convolution;
mod dispatch;
mod groups;
#[cfg(any(test, feature = "testing"))]
pub mod simulate;

use std::collections::{HashMap, HashSet};

use hipdnn_engine_core::checks::element_bytes;
use hipdnn_engine_core::{Declined, NodeLabel};
use hipdnn_schemas::{DataType, Graph, Tensor, TensorUid, TensorValue};

pub use self::convolution::CONVOLUTION_ALIGNMENT;
use self::convolution::Form;
pub use self::convolution::{library_type, lifted};
pub use self::dispatch::{ConvolutionDispatch, Dispatch, KernelDispatch, Layout, Number, Value, View, same_strides};
use crate::convolution::ConvolutionProblem;
use crate::fuse::FusionGroup;

/// Schedule of dispatches and their temporaries.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Legalized {
    /// Dispatches in order of execution.
    pub dispatches: Vec<Dispatch>,
    /// Size of each temporary in bytes.
    pub temporaries: Vec<usize>,
}

impl Legalized {
    /// True if tensors are copied for convolutions.
    pub fn copies(&self) -> bool {
        self.dispatches.iter().any(|dispatch| matches!(dispatch, Dispatch::Kernel(kernel) if kernel.kernel.is_copy()))
    }
}

/// Predicate of problems that MIOpen takes; the error is the reason why not.
pub type Supported<'a> = &'a dyn Fn(&ConvolutionProblem) -> Result<(), String>;

/// Options of the legalized graph.
#[derive(Debug, Clone, Copy, Default)]
pub struct LegalizeOptions {
    /// Deterministic results: equal executions give equal bits.
    pub deterministic: bool,
    /// No intermediate that the graph calls float is narrowed.
    pub strict_fp32: bool,
    /// Compute units of the device; 0 if it is not known, and so how much keeps it busy.
    pub compute_units: usize,
}

/// Legalizes fusion groups as dispatches.
///
/// # Errors
/// If MIOpen takes a convolution in none of the types and layouts that it could be converted to, or a fusion group is opaque.
pub fn legalize(
    graph: &Graph,
    fusion_groups: &[FusionGroup],
    options: LegalizeOptions,
    supported: Supported<'_>,
) -> Result<Legalized, Declined> {
    let mut readers: HashMap<TensorUid, Vec<usize>> = HashMap::new();
    for (index, fusion_group) in fusion_groups.iter().enumerate() {
        for uid in fusion_group.inputs() {
            let readers = readers.entry(uid).or_default();
            if readers.last() != Some(&index) {
                readers.push(index);
            }
        }
    }
    let mut legalizer = Legalizer {
        graph,
        fusion_groups,
        options,
        supported,
        readers,
        stored: HashMap::new(),
        prepared: HashMap::new(),
        claimed: HashSet::new(),
        current: 0,
        legalized: Legalized::default(),
    };
    for (index, fusion_group) in fusion_groups.iter().enumerate() {
        legalizer.current = index;
        match fusion_group {
            FusionGroup::Convolution(work) => legalizer.convolution(work)?,
            FusionGroup::Chain(chain) => legalizer.chain(chain),
            FusionGroup::Groups(groups) => legalizer.groups(groups),
            FusionGroup::Opaque(opaque) => return Err(Declined::Operation { node: NodeLabel::of(graph, opaque.node) }),
        }
    }
    Ok(legalizer.legalized)
}

/// Tensor in memory: buffer and view.
#[derive(Debug, Clone)]
struct Stored {
    value: Value,
    view: View,
}

/// Storage class of a tensor.
enum Kind {
    Literal(f64),
    Scalar,
    Memory(Stored),
}

struct Legalizer<'a> {
    graph: &'a Graph,
    fusion_groups: &'a [FusionGroup],
    options: LegalizeOptions,
    supported: Supported<'a>,
    readers: HashMap<TensorUid, Vec<usize>>,
    /// Memory of virtual tensors.
    stored: HashMap<TensorUid, Stored>,
    /// Copies that were made for convolutions.
    prepared: HashMap<(TensorUid, Form), Value>,
    /// Results of chains whose memory the convolution before them writes in place: one convolution each.
    claimed: HashSet<TensorUid>,
    /// Index of the current fusion group.
    current: usize,
    legalized: Legalized,
}

impl Legalizer<'_> {
    fn temporary(&mut self, elements: usize, data_type: DataType) -> Value {
        let temporaries = &mut self.legalized.temporaries;
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

    /// Element type of a tensor in memory, which for virtual tensors need not be the graph's.
    fn data_type(&self, uid: TensorUid) -> DataType {
        self.stored.get(&uid).map_or_else(|| self.graph.tensor(uid).data_type(), |stored| stored.view.data_type)
    }
}

/// View of a caller's tensor.
fn view(tensor: &Tensor) -> View {
    let strides = tensor.strides().iter().map(|stride| *stride as i64).collect();
    View { data_type: tensor.data_type(), strides, offset: 0 }
}

/// Number that a scalar of the graph stands for in its tensor's type.
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
