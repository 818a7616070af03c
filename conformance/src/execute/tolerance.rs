//! Deviations that an engine is allowed beyond its graph.

use hipdnn_schemas::{DataType, Graph, Operation, TensorUid};

/// Classes of tolerance; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tolerance {
    /// A convolution of 16-bit operands may give its virtual float result in their type, where nothing but results of that
    /// type come of it. Libraries have few convolutions that read 16 bits and write 32, and computing in float costs twice
    /// the memory and more. The bound has one rounding to the 16-bit type more there; what follows carries it along.
    pub narrow_intermediates: bool,
}

impl Tolerance {
    /// The type that an engine may store the tensor in instead of its own.
    pub(super) fn narrowed(self, graph: &Graph, uid: TensorUid) -> Option<DataType> {
        self.narrow_intermediates.then(|| narrow_intermediate(graph, uid)).flatten()
    }
}

/// The 16-bit type that [`Tolerance::narrow_intermediates`] allows for the tensor.
fn narrow_intermediate(graph: &Graph, uid: TensorUid) -> Option<DataType> {
    let tensor = graph.tensor(uid);
    let operands = match &graph.nodes()[graph.producer(uid)?].operation {
        Operation::ConvolutionFwd(node) => [node.x, node.w],
        Operation::ConvolutionBwd(node) => [node.dy, node.w],
        Operation::ConvolutionWrw(node) => [node.x, node.dy],
        _ => return None,
    };
    let [data_type, other] = operands.map(|operand| graph.tensor(operand).data_type());
    let is_narrow = data_type == other && matches!(data_type, DataType::Half | DataType::BFloat16);
    (is_narrow && tensor.is_virtual() && tensor.data_type() == DataType::Float && ends_as(graph, uid, data_type))
        .then_some(data_type)
}

/// True if every result that depends on the tensor has that type.
fn ends_as(graph: &Graph, uid: TensorUid, data_type: DataType) -> bool {
    let mut reached = vec![uid];
    let mut next = 0;
    while next < reached.len() {
        let tensor = graph.tensor(reached[next]);
        next += 1;
        if !tensor.is_virtual() && tensor.data_type() != data_type {
            return false;
        }
        for &reader in graph.consumers(tensor.uid()) {
            for output in graph.nodes()[reader].operation.outputs() {
                if !reached.contains(&output) {
                    reached.push(output);
                }
            }
        }
    }
    true
}

/// True if the class makes a difference to the graph.
pub fn has_narrow_intermediates(graph: &Graph) -> bool {
    graph.tensors().iter().any(|tensor| narrow_intermediate(graph, tensor.uid()).is_some())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use hipdnn_schemas::{Convolution, ConvolutionFwd, Pointwise, PointwiseMode};

    use super::*;
    use crate::array::Array;
    use crate::cases::{Layout, Net};
    use crate::execute::{execute, execute_with};
    use crate::number::Number;

    /// A 1×1 convolution with those operands, then a sigmoid; in which type the intermediate and the result are.
    fn graph(operands: [DataType; 2], between: DataType, result: DataType) -> (Graph, HashMap<TensorUid, Array>) {
        let mut net = Net::new(DataType::Float);
        let dims = [1, 1, 1, 1];
        let x = net.real("x", operands[0], &dims, Layout::First);
        let w = net.real("w", operands[1], &dims, Layout::First);
        let c = net.intermediate("c", between, &dims, Layout::First);
        let y = net.real("y", result, &dims, Layout::First);
        net.node(Operation::ConvolutionFwd(ConvolutionFwd { x, w, y: c, convolution: Convolution::new(2) }));
        net.node(Operation::Pointwise(Pointwise::unary(PointwiseMode::SigmoidFwd, c, y)));
        let inputs = [(x, 1.25), (w, 0.75)].map(|(uid, value)| (uid, Array::filled(&[1; 4], Number::exact(value))));
        (Graph::new(net.def).expect("a valid graph"), inputs.into())
    }

    #[test]
    fn only_what_ends_narrow_may_be_narrow() {
        use DataType::{BFloat16, Float, Half};
        for (operands, between, result, wanted) in [
            ([Half, Half], Float, Half, true),
            ([BFloat16, BFloat16], Float, BFloat16, true),
            ([Half, Half], Float, Float, false),
            ([Half, Half], Float, BFloat16, false),
            ([Half, BFloat16], Float, Half, false),
            ([Float, Float], Float, Half, false),
            ([Half, Half], Half, Half, false),
        ] {
            let (graph, _) = graph(operands, between, result);
            assert_eq!(has_narrow_intermediates(&graph), wanted, "{operands:?} {between} {result}");
        }
    }

    /// 1.25 · 0.75 is off by half a step of bf16 at most when it is rounded, and the sigmoid's slope is a quarter at most.
    #[test]
    fn the_bound_has_one_rounding_more() {
        let (graph, inputs) = graph([DataType::BFloat16; 2], DataType::Float, DataType::BFloat16);
        let y = graph.tensors().iter().find(|tensor| tensor.name() == "y").expect("the result").uid();
        let tight = execute(&graph, &inputs).expect("known operations")[&y].scalar();
        let tolerance = Tolerance { narrow_intermediates: true };
        let wide = execute_with(&graph, &inputs, tolerance).expect("known operations")[&y].scalar();
        assert_eq!(tight.value, wide.value);
        // 0.9375 is a number of bf16: rounding it changes nothing but what the sum before may be off by.
        assert!(wide.error >= tight.error && wide.error < 2f64.powi(-9), "{tight:?} {wide:?}");
        let mut inputs = inputs;
        inputs.values_mut().for_each(|array| array.data[0] = Number::exact(1.0078125));
        let tight = execute(&graph, &inputs).expect("known operations")[&y].scalar();
        let wide = execute_with(&graph, &inputs, tolerance).expect("known operations")[&y].scalar();
        // The product 1 + 2⁻⁶ + 2⁻¹⁴ becomes 1 + 2⁻⁶.
        let moved = 0.25 * 2f64.powi(-14);
        assert!(
            wide.error > tight.error + 0.7 * moved && wide.error < tight.error + 0.25 * 2f64.powi(-7),
            "{tight:?} {wide:?}"
        );
    }
}
