//! The problem of the benchmark: so small that a GPU would wait for the host.

use hipdnn_schemas::{Convolution, DataType, GraphBuilder, Pointwise, PointwiseMode, TensorDef};

/// Input channels.
pub(crate) const C: usize = 16;
/// Output channels.
pub(crate) const K: usize = 16;
/// Height, of input and output.
pub(crate) const H: usize = 8;
/// Width, of input and output.
pub(crate) const W: usize = 8;

/// Uids of the tensors.
pub(crate) const X: i64 = 1;
pub(crate) const WEIGHTS: i64 = 2;
pub(crate) const B: i64 = 3;
pub(crate) const SUMS: i64 = 4;
pub(crate) const BIASED: i64 = 5;
pub(crate) const Y: i64 = 6;

/// The graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// A 3×3 convolution.
    Convolution,
    /// The same with bias and ReLU.
    Fused,
}

impl Case {
    /// Both.
    pub(crate) const ALL: [Case; 2] = [Case::Convolution, Case::Fused];

    /// For the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Case::Convolution => "conv",
            Case::Fused => "conv+bias+relu",
        }
    }

    /// As hipDNN's bytes.
    pub(crate) fn graph(self) -> Vec<u8> {
        let mut graph = GraphBuilder::new(self.name()).compute(DataType::Float);
        let tensor = |uid: i64, dims: &[i64], between: bool| {
            let tensor = TensorDef::new(uid, DataType::Float, dims);
            if between { tensor.intermediate() } else { tensor }
        };
        let fused = self == Case::Fused;
        let [c, k, h, w] = [C, K, H, W].map(|extent| extent as i64);
        let x = graph.tensor(tensor(X, &[1, c, h, w], false));
        let weights = graph.tensor(tensor(WEIGHTS, &[k, c, 3, 3], false));
        let sums = graph.tensor(tensor(SUMS, &[1, k, h, w], fused));
        let convolution = Convolution { pre_padding: vec![1; 2], post_padding: vec![1; 2], ..Convolution::new(2) };
        graph.convolution_fwd(x, weights, sums, convolution);
        if fused {
            let bias = graph.tensor(tensor(B, &[1, k, 1, 1], false));
            let biased = graph.tensor(tensor(BIASED, &[1, k, h, w], true));
            let y = graph.tensor(tensor(Y, &[1, k, h, w], false));
            graph.pointwise(Pointwise::binary(PointwiseMode::Add, sums, bias, biased));
            graph.pointwise(Pointwise::unary(PointwiseMode::ReluFwd, biased, y));
        }
        graph.def().to_bytes()
    }
}
