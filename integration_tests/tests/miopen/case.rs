//! Cases that are built and run: a convolution of the table, or any graph.

use std::collections::HashMap;

use hipdnn_rs_integration_tests::reference::{Exact, check_close};
use hipdnn_rs_integration_tests::tensor::HostTensor;
use hipdnn_schemas::{TensorDef, TensorUid};

use crate::convolution::ConvolutionCase;
pub(crate) use crate::convolution::Layout;
use crate::graph_case::{GraphCase, Right};

/// A graph with inputs, and what has to come of it.
#[derive(Clone)]
pub(crate) enum Case {
    Convolution(Box<ConvolutionCase>),
    Graph(Box<GraphCase>),
}

impl From<ConvolutionCase> for Case {
    fn from(case: ConvolutionCase) -> Case {
        Case::Convolution(Box::new(case))
    }
}

impl From<GraphCase> for Case {
    fn from(case: GraphCase) -> Case {
        Case::Graph(Box::new(case))
    }
}

/// Expected outputs.
pub(crate) enum Wanted {
    /// The only output of a convolution.
    Convolution(Vec<Exact>),
    Graph(Right),
}

impl Case {
    pub(crate) fn name(&self) -> String {
        match self {
            Case::Convolution(case) => case.name(),
            Case::Graph(case) => case.name().to_owned(),
        }
    }

    /// True if more than a convolution is asked for.
    pub(crate) fn is_chain(&self) -> bool {
        match self {
            Case::Convolution(case) => !case.tail.is_empty(),
            Case::Graph(_) => true,
        }
    }

    /// The graph in its binary form.
    pub(crate) fn graph(&self) -> Vec<u8> {
        match self {
            Case::Convolution(case) => case.graph(),
            Case::Graph(case) => case.graph(),
        }
    }

    /// Values for the inputs in device memory, the same at every call.
    pub(crate) fn values(&self) -> Vec<HostTensor> {
        match self {
            Case::Convolution(case) => case.values(),
            Case::Graph(case) => case.values(false),
        }
    }

    /// Scalars that the host gives at each execution.
    pub(crate) fn scalars(&self) -> Vec<HostTensor> {
        match self {
            Case::Convolution(_) => Vec::new(),
            Case::Graph(case) => case.values(true),
        }
    }

    /// The outputs of the graph.
    pub(crate) fn outputs(&self) -> Vec<TensorDef> {
        match self {
            Case::Convolution(case) => vec![case.output()],
            Case::Graph(case) => case.outputs(),
        }
    }

    /// Inputs whose memory outputs have too: by output.
    pub(crate) fn in_place(&self) -> HashMap<TensorUid, TensorUid> {
        match self {
            Case::Convolution(_) => HashMap::new(),
            Case::Graph(case) => case.in_place().clone(),
        }
    }

    /// By how many elements the buffers are shifted from the alignment of allocations.
    pub(crate) fn shift(&self) -> usize {
        match self {
            Case::Convolution(case) => case.shift,
            Case::Graph(_) => 0,
        }
    }

    /// Expected outputs; `strict` says that floats between the nodes stay floats.
    pub(crate) fn wanted(&self, inputs: &[HostTensor], strict: bool) -> Wanted {
        match self {
            Case::Convolution(case) => Wanted::Convolution(case.wanted(inputs, strict)),
            Case::Graph(case) => Wanted::Graph(case.right(strict)),
        }
    }
}

impl Wanted {
    /// Checks that the outputs, in the order of the case's, are right.
    pub(crate) fn check(&self, outputs: &[&HostTensor]) -> Result<(), String> {
        match self {
            Wanted::Convolution(wanted) => match outputs {
                [output] => check_close(output, wanted),
                more => Err(format!("a convolution has one output, not {}", more.len())),
            },
            Wanted::Graph(right) => right.check(outputs),
        }
    }
}
