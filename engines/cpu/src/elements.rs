//! Element type assignment: intermediates of 16 bits that become `f32`.
//!
//! Kernels compute in `f32`, so that 16 bits between two of them cost a conversion each way, and a rounding. What a graph gains by
//! such an intermediate is memory, unless its producer does nothing but convert: then rounding is its meaning. So these become
//! `f32`, but for the inputs of convolutions that multiply bf16 terms of 16-bit values: of `f32` values there are more.

use hipdnn_cpu_convolution::multiplies_terms;
use hipdnn_cpu_simd::isa::Isa;
use hipdnn_schemas::{DataType, Graph, GraphError, Operation, PointwiseMode, Tensor, TensorUid};

use crate::geometry::element;

/// Minimum number of channels of a group, on both sides, with which a convolution is expected to multiply terms.
const CHANNELS: usize = 16;

/// Assigns the fastest element types to a graph's intermediates; `None` if those are the types that it has.
///
/// # Errors
/// None for checked graphs: strides do not depend on the type.
pub fn assign(graph: &Graph, isa: Isa) -> Result<Option<Graph>, GraphError> {
    let wide = |tensor: &&Tensor| is_free(graph, tensor) && !is_multiplied(graph, tensor.uid(), isa);
    let chosen: Vec<TensorUid> = graph.tensors().iter().filter(wide).map(Tensor::uid).collect();
    if chosen.is_empty() {
        return Ok(None);
    }
    graph.with_data_types(chosen.into_iter().map(|uid| (uid, DataType::Float))).map(Some)
}

/// True if an intermediate has 16 bits, and nothing but its memory depends on that.
fn is_free(graph: &Graph, tensor: &Tensor) -> bool {
    let Some(producer) = graph.producer(tensor.uid()) else { return false };
    let converts = matches!(&graph.nodes()[producer].operation, Operation::Pointwise(node) if node.mode == PointwiseMode::Identity);
    let short = matches!(tensor.data_type(), DataType::Half | DataType::BFloat16);
    tensor.is_virtual() && !tensor.is_runtime_pass_by_value() && short && !converts
}

/// True if a convolution multiplies bf16 terms of a tensor's values.
fn is_multiplied(graph: &Graph, uid: TensorUid, isa: Isa) -> bool {
    graph.consumers(uid).iter().any(|reader| match &graph.nodes()[*reader].operation {
        Operation::ConvolutionFwd(node) if node.x == uid => {
            let (x, w) = (graph.tensor(uid), graph.tensor(node.w));
            let many = w.dims()[..2].iter().all(|channels| *channels >= CHANNELS);
            let types = element(x.data_type()).zip(element(w.data_type()));
            many && types.is_some_and(|(x, w)| multiplies_terms(x, w, isa))
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use hipdnn_schemas::TensorDef;

    use super::*;
    use crate::tests::{build, conv, tensor, unary};

    /// A convolution, a function, a convolution of `channels`, a conversion, a function.
    fn chain(short: DataType, channels: i64) -> Graph {
        let image = |uid, data_type| tensor(uid, data_type, &[1, channels, 9, 9]);
        let within = |uid| image(uid, short).intermediate();
        let filter: TensorDef = tensor(1, short, &[channels, channels, 3, 3]);
        let tensors = [image(0, short), filter, within(2), within(3), within(4), within(5), image(6, short)];
        let nodes = vec![
            conv(0, 1, 2, 1),
            unary(PointwiseMode::ReluFwd, 2, 3),
            conv(3, 1, 4, 1),
            unary(PointwiseMode::Identity, 4, 5),
            unary(PointwiseMode::Neg, 5, 6),
        ];
        build(&tensors, nodes)
    }

    #[test]
    fn intermediates_of_sixteen_bits_are_float_unless_their_terms_are_multiplied_or_rounding_is_meant() {
        for isa in Isa::available() {
            for (short, channels, of_terms) in [
                (DataType::BFloat16, 16, isa.has_tiles() || isa.has_bf16_pairs()),
                (DataType::Half, 16, isa.has_tiles()),
                (DataType::Half, 8, false),
            ] {
                let graph = chain(short, channels);
                let assigned = assign(&graph, isa).expect("types fit").expect("some are wide");
                let got = (0..7).map(|uid| assigned.tensor(TensorUid(uid)).data_type());
                let input = if of_terms { short } else { DataType::Float };
                let want = [short, short, DataType::Float, input, DataType::Float, short, short];
                assert_eq!(Vec::from_iter(got), want, "{short} of {channels} channels, {isa:?}");
                assert!(assign(&assigned, isa).expect("types fit").is_none());
            }
        }
        let float = chain(DataType::Float, 16);
        assert!(assign(&float, Isa::best()).expect("types fit").is_none());
    }
}
