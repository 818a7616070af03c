//! Errors of results against reference values, or against each other.

use std::collections::HashMap;

use hipdnn_conformance::array::each_index;
use hipdnn_conformance::execute::Results;
use hipdnn_conformance::format::{self, Float};
use hipdnn_conformance::number::Number;
use hipdnn_conformance::run::outputs;
use hipdnn_schemas::{DataType, Graph, Tensor, TensorUid};

use crate::table::Table;
use crate::text;

/// The bytes of each output.
pub(crate) type Outputs = HashMap<TensorUid, Vec<u8>>;

/// One output's verdict.
pub(crate) struct Difference {
    label: String,
    elements: usize,
    /// Number of elements with errors beyond their bound.
    outside: usize,
    /// Number of elements without a finite bound: any value is right.
    vague: usize,
    worst: Point,
    at: Vec<usize>,
}

/// One element's verdict.
#[derive(Clone, Copy)]
struct Point {
    got: f64,
    wanted: f64,
    /// Error bound.
    bound: f64,
    is_outside: bool,
}

impl Point {
    fn error(self) -> f64 {
        if self.got == self.wanted || (self.got.is_nan() && self.wanted.is_nan()) {
            return 0.0;
        }
        let error = (self.got - self.wanted).abs();
        if error.is_nan() { f64::INFINITY } else { error }
    }

    /// The share of the bound that the error uses.
    fn share(self) -> f64 {
        match (self.error(), self.bound) {
            (0.0, _) => 0.0,
            (error, 0.0) => error / f64::MIN_POSITIVE,
            (error, bound) => error / bound,
        }
    }
}

/// An engine's results against the reference.
pub(crate) fn with_reference(graph: &Graph, expected: &Results, got: &Outputs) -> Vec<Difference> {
    judge(graph, |tensor, position, place| {
        let (number, data_type) = (expected[&tensor.uid()].data[position], tensor.data_type());
        let got = format::load(data_type, &got[&tensor.uid()], place);
        let is_outside = !number.accepts(data_type, got);
        (!number.is_any()).then(|| Point { got, wanted: number.value, bound: bound(number, data_type), is_outside })
    })
}

/// Two engines' results against each other: each may be off by its bound.
pub(crate) fn with_bounds(graph: &Graph, expected: &Results, got: &Outputs, other: &Outputs) -> Vec<Difference> {
    judge(graph, |tensor, position, place| {
        let (number, data_type) = (expected[&tensor.uid()].data[position], tensor.data_type());
        let [got, wanted] = [got, other].map(|outputs| format::load(data_type, &outputs[&tensor.uid()], place));
        let mut point = Point { got, wanted, bound: 2.0 * bound(number, data_type), is_outside: false };
        point.is_outside =
            point.share() > 1.0 && !(number.accepts(data_type, got) && number.accepts(data_type, wanted));
        (!number.is_any()).then_some(point)
    })
}

/// Two engines' results against each other, which may differ by a share of the tensor's largest magnitude.
pub(crate) fn with_tolerance(graph: &Graph, tolerance: f64, got: &Outputs, other: &Outputs) -> Vec<Difference> {
    let scale: HashMap<TensorUid, f64> = outputs(graph)
        .map(|tensor| {
            let values = values(tensor, &other[&tensor.uid()]).into_iter().map(f64::abs).filter(|v| v.is_finite());
            (tensor.uid(), values.fold(0.0, f64::max))
        })
        .collect();
    judge(graph, |tensor, _, place| {
        let [got, wanted] =
            [got, other].map(|outputs| format::load(tensor.data_type(), &outputs[&tensor.uid()], place));
        let mut point = Point { got, wanted, bound: tolerance * scale[&tensor.uid()], is_outside: false };
        point.is_outside = point.error() > point.bound;
        Some(point)
    })
}

/// Error bound of a stored element: that of the arithmetic, and rounding to the type.
fn bound(number: Number, data_type: DataType) -> f64 {
    match Float::of(data_type) {
        Some(float) => {
            let rounding = float.roundoff() * number.magnitude().max(float.smallest_normal());
            number.error + if rounding.is_finite() { rounding } else { 0.0 }
        }
        None => number.stored(data_type).error,
    }
}

/// Judges every element of every output; `measure` gives `None` for an element that may be anything.
fn judge(graph: &Graph, measure: impl Fn(&Tensor, usize, usize) -> Option<Point>) -> Vec<Difference> {
    outputs(graph)
        .map(|tensor| {
            let (mut outside, mut vague, mut position) = (0, 0, 0);
            let mut worst: Option<(Point, Vec<usize>)> = None;
            each_index(tensor.dims(), |at| {
                let place = at.iter().zip(tensor.strides()).map(|(i, stride)| i * stride).sum();
                let point = measure(tensor, position, place);
                position += 1;
                let Some(point) = point else {
                    vague += 1;
                    return;
                };
                outside += usize::from(point.is_outside);
                let key = |point: Point| (point.is_outside, point.share());
                if worst.as_ref().is_none_or(|(other, _)| key(point) > key(*other)) {
                    worst = Some((point, at.to_vec()));
                }
            });
            let nothing = Point { got: 0.0, wanted: 0.0, bound: 0.0, is_outside: false };
            let (worst, at) = worst.unwrap_or((nothing, Vec::new()));
            Difference { label: label(tensor), elements: tensor.elements(), outside, vague, worst, at }
        })
        .collect()
}

/// A tensor's number and name.
pub(crate) fn label(tensor: &Tensor) -> String {
    format!("{} {}", tensor.uid(), text::name(tensor.name())).trim_end().to_string()
}

/// True if no element is outside of its bound.
pub(crate) fn agree(differences: &[Difference]) -> bool {
    differences.iter().all(|difference| difference.outside == 0)
}

/// A table with a line for each output. `wanted` names the second result.
pub(crate) fn table(differences: &[Difference], wanted: &str) -> String {
    let mut table = Table::new(&[
        "tensor",
        ">elements",
        ">largest error",
        ">bound",
        ">share",
        "at",
        ">is",
        &format!(">{wanted}"),
        ">outside",
        ">anything goes",
    ]);
    for difference in differences {
        let Difference { label, elements, outside, vague, worst, at } = difference;
        let share = match worst.share() {
            share if share > 1e6 => "> 10⁶".into(),
            share => format!("{share:.3}"),
        };
        table.row(vec![
            label.clone(),
            elements.to_string(),
            number(worst.error()),
            number(worst.bound),
            share,
            text::list(at),
            number(worst.got),
            number(worst.wanted),
            outside.to_string(),
            if *vague == 0 { String::new() } else { vague.to_string() },
        ]);
    }
    table.lines(2)
}

/// Statistics of each output, for a run that is compared with nothing.
pub(crate) fn summary(graph: &Graph, got: &Outputs) -> String {
    let mut table = Table::new(&["tensor", "type", ">elements", ">smallest", ">largest", ">mean", ">not finite"]);
    for tensor in outputs(graph) {
        let values = values(tensor, &got[&tensor.uid()]);
        let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        let of_some = |value: f64| if finite.is_empty() { String::new() } else { number(value) };
        table.row(vec![
            label(tensor),
            tensor.data_type().to_string(),
            values.len().to_string(),
            of_some(finite.iter().copied().fold(f64::INFINITY, f64::min)),
            of_some(finite.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
            of_some(finite.iter().sum::<f64>() / finite.len().max(1) as f64),
            (values.len() - finite.len()).to_string(),
        ]);
    }
    table.lines(2)
}

fn values(tensor: &Tensor, bytes: &[u8]) -> Vec<f64> {
    let mut values = Vec::with_capacity(tensor.elements());
    each_index(tensor.dims(), |at| {
        let place = at.iter().zip(tensor.strides()).map(|(i, stride)| i * stride).sum();
        values.push(format::load(tensor.data_type(), bytes, place));
    });
    values
}

/// Number with four digits, which are enough to see by.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        magnitude if (1e-3..1e5).contains(&magnitude) => format!("{value:.4}"),
        _ => format!("{value:.3e}"),
    }
}

#[cfg(test)]
mod tests {
    use hipdnn_conformance::array::Array;
    use hipdnn_conformance::execute::execute;
    use hipdnn_schemas::{GraphBuilder, Pointwise, PointwiseMode, TensorDef};

    use super::*;

    fn graph() -> Graph {
        let mut builder = GraphBuilder::new("").compute(DataType::Float);
        let x = builder.tensor(TensorDef::new(1, DataType::Float, &[2, 2]));
        let y = builder.tensor(TensorDef::new(2, DataType::Float, &[2, 2]).named("y"));
        builder.pointwise(Pointwise::unary(PointwiseMode::Exp, x, y));
        builder.build().expect("a graph")
    }

    fn outputs_of(values: [f32; 4]) -> Outputs {
        HashMap::from([(TensorUid(2), values.iter().flat_map(|value| value.to_ne_bytes()).collect())])
    }

    #[test]
    fn errors_are_found_where_they_are() {
        let graph = graph();
        let x = [0.5f32, -1.0, 2.0, 0.25];
        let numbers = x.iter().map(|value| Number::exact(f64::from(*value))).collect();
        let inputs = HashMap::from([(TensorUid(1), Array { dims: vec![2, 2], data: numbers })]);
        let expected = execute(&graph, &inputs).expect("it knows exp");
        let right = x.map(f32::exp);
        let [mut wrong, mut nan] = [right; 2];
        wrong[2] *= 1.001;
        nan[1] = f32::NAN;
        for (got, outside, at) in [(right, 0, None), (wrong, 1, Some([1, 0])), (nan, 1, Some([0, 1]))] {
            let (got, right) = (outputs_of(got), outputs_of(right));
            for differences in [
                with_reference(&graph, &expected, &got),
                with_bounds(&graph, &expected, &got, &right),
                with_tolerance(&graph, 1e-4, &got, &right),
            ] {
                assert_eq!(differences.len(), 1);
                assert_eq!((differences[0].outside, agree(&differences)), (outside, outside == 0), "{got:?}");
                if let Some(at) = at {
                    assert_eq!(differences[0].at, at);
                }
            }
        }
        let text = table(&with_reference(&graph, &expected, &outputs_of(wrong)), "exact");
        assert!(text.contains("2 \"y\"") && text.contains("[1,0]") && text.contains("7.3964"), "{text}");
        let text = summary(&graph, &outputs_of(nan));
        assert!(text.lines().nth(1).is_some_and(|line| line.ends_with(" 1")), "{text}");
    }
}
