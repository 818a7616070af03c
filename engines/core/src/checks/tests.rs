//! Checks of graphs and operands: reasons of declining, and what passes.

use hipdnn_schemas::{GraphBuilder, Operation, Ragged, TensorDef};

use super::*;
use DataType::{BFloat16, Boolean, Double, Float, Fp4E2M1, Fp6E2M3, Half, Int4, Int8, Int32, Int64, UInt8};

/// Identity whose result is tensor 1, the one that the test is about.
fn identity(result: TensorDef) -> GraphBuilder {
    let mut graph = GraphBuilder::new("").compute(Float);
    let from = graph.tensor(TensorDef::new(2, result.data_type, &result.dims.clone()));
    let to = graph.tensor(result);
    graph.node("same", Operation::Pointwise(Pointwise::unary(PointwiseMode::Identity, from, to)));
    graph
}

/// Reason of an answer, or nothing where it is yes.
fn reason(answer: Result<(), Declined>) -> String {
    answer.err().map_or(String::new(), |declined| declined.to_string())
}

/// The address of an element is aligned to the element's size, and to a byte if that is smaller.
#[test]
fn elements_are_aligned_to_their_size() {
    for (bytes, types) in [
        (8, &[Double, Int64][..]),
        (4, &[Float, Int32]),
        (2, &[Half, BFloat16]),
        (1, &[Int8, UInt8, Boolean, DataType::Fp8E5M2, Int4, Fp4E2M1, Fp6E2M3]),
    ] {
        for data_type in types {
            assert_eq!(element_bytes(*data_type), bytes, "{data_type}");
        }
    }
}

/// A caller's buffer is promised an alignment: it has to be a multiple of the element's, not only as large. No caller
/// stands behind intermediates, whatever is written there.
#[test]
fn alignments_have_to_suit_the_elements() {
    for (data_type, alignment, is_virtual, wanted) in [
        (Float, 16, false, None),
        (Float, 4, false, None),
        (Float, 12, false, None),
        (Float, 2, false, Some(4)),
        (Float, 6, false, Some(4)),
        (Float, 9, false, Some(4)),
        (Double, 4, false, Some(8)),
        (Half, 2, false, None),
        (Half, 1, false, Some(2)),
        (Int8, 1, false, None),
        (Int4, 1, false, None),
        (Float, 6, true, None),
        (Float, 1, true, None),
    ] {
        let result = TensorDef { alignment, is_virtual, ..TensorDef::new(1, data_type, &[3]).named("image") };
        let want = wanted.map_or(String::new(), |wanted| {
            format!("tensor 1 \"image\": expected an alignment to a multiple of {wanted} bytes, got {alignment}")
        });
        let got = reason(check_graph(&identity(result).build().unwrap()));
        assert_eq!(got, want, "{data_type}, {alignment}, {is_virtual}");
    }
}

/// Shapes may change at an execution, which has a plan of its own then; lengths of rows may not.
#[test]
fn ragged_tensors_are_declined_and_override_shapes_are_not() {
    let plain = || TensorDef::new(1, Float, &[3]);
    assert_eq!(reason(check_graph(&identity(plain()).build().unwrap())), "");

    let mut graph = identity(plain());
    graph.def_mut().is_override_shape_enabled = true;
    assert_eq!(check_graph(&graph.build().unwrap()), Ok(()));

    let ragged = Some(Ragged { offset: TensorUid(9), multiplier: 1 });
    let mut graph = identity(TensorDef { ragged, ..plain() });
    graph.tensor(TensorDef::new(9, Int32, &[2]));
    assert_eq!(reason(check_graph(&graph.build().unwrap())), "tensor 1 is ragged");
}

/// A type is declined unless it is among the supported ones, all of which the reason names.
#[test]
fn types_have_to_be_among_the_supported_ones() {
    let graph = identity(TensorDef::new(1, Half, &[3])).build().unwrap();
    for (types, wanted) in [
        (&[Float, Half][..], None),
        (&[Double, Float, Half], None),
        (&[], Some("none")),
        (&[Double], Some("double")),
        (&[Double, BFloat16], Some("double or bfloat16")),
        (&[Double, BFloat16, Int8], Some("double, bfloat16 or int8")),
    ] {
        let compute = wanted.map_or(String::new(), |wanted| {
            format!("node 0 (Pointwise \"same\"): compute_data_type: expected {wanted}, got float")
        });
        assert_eq!(reason(check_compute_type(&graph, 0, types)), compute);
        let element = wanted.map_or(String::new(), |wanted| {
            format!("node 0 (Pointwise \"same\"): out_0 (tensor 1): expected {wanted}, got half")
        });
        assert_eq!(reason(check_type(&graph, 0, "out_0", TensorUid(1), types)), element);
    }
}

/// A limit is itself still allowed.
#[test]
fn limits_are_inclusive() {
    let graph = identity(TensorDef::new(1, Float, &[3])).build().unwrap();
    assert_eq!(check_size(&graph, 0, "elements", 0, 7), Ok(()));
    assert_eq!(check_size(&graph, 0, "elements", 7, 7), Ok(()));
    let want = "node 0 (Pointwise \"same\"): elements: expected at most 7, got 8";
    assert_eq!(reason(check_size(&graph, 0, "elements", 8, 7)), want);
}

/// Softplus divides by its beta, and no other mode has one.
#[test]
fn softplus_needs_a_beta_to_divide_by() {
    use PointwiseMode::{SoftplusBwd, SoftplusFwd, SwishFwd};
    let graph = identity(TensorDef::new(1, Float, &[3])).build().unwrap();
    for (mode, beta, is_declined) in [
        (SoftplusFwd, None, false),
        (SoftplusFwd, Some(1.0), false),
        (SoftplusFwd, Some(-0.5), false),
        (SoftplusBwd, Some(2.0), false),
        (SoftplusFwd, Some(0.0), true),
        (SoftplusBwd, Some(-0.0), true),
        (SoftplusFwd, Some(f32::INFINITY), true),
        (SoftplusBwd, Some(f32::NEG_INFINITY), true),
        (SoftplusBwd, Some(f32::NAN), true),
        (SwishFwd, Some(0.0), false),
    ] {
        let node = Pointwise { softplus_beta: beta, ..Pointwise::unary(mode, TensorUid(1), TensorUid(2)) };
        let want = if is_declined {
            let beta = beta.unwrap();
            format!("node 0 (Pointwise \"same\"): softplus_beta: expected a finite number other than 0, got {beta}")
        } else {
            String::new()
        };
        assert_eq!(reason(check_softplus(&graph, 0, &node)), want, "{mode}, {beta:?}");
    }
}
