//! Rewrites of a function's operations into forms that engines have one operation or one epilogue for.

mod repeated;

use hipdnn_schemas::{DataType, Operation, Pointwise, PointwiseMode, TensorValue};

use crate::ir::{Def, Function, ValueId};

/// Applies every rewrite. Values keep their types, extents and places, but for copies that nothing reads any more.
pub fn canonicalize(function: &mut Function) {
    let readers = readers(function);
    for index in 0..function.ops.len() {
        if let Some(hard_swish) = HardSwish::find(function, &readers, index) {
            hard_swish.rewrite(function);
        }
    }
    repeated::apply(function, &readers);
}

/// Number of reads of each value, by views, parts and outputs too.
fn readers(function: &Function) -> Vec<usize> {
    let mut readers = vec![0; function.values.len()];
    let operands = function.ops.iter().flat_map(|op| op.operation.inputs()).map(ValueId::of);
    let bases = function.values.iter().flat_map(|value| match &value.def {
        Def::View(base) => vec![*base],
        Def::Assembled(parts) => parts.clone(),
        Def::Source | Def::Op(_) => Vec::new(),
    });
    for id in operands.chain(bases).chain(function.outputs.iter().copied()) {
        readers[id.0 as usize] += 1;
    }
    readers
}

/// `x · clip(x + 3, 0, 6) / 6` in four operations, as exporters spell a hard swish: as many as `x · clip(x/6 + ½, 0, 1)` has,
/// which engines know as the activation.
struct HardSwish {
    x: ValueId,
    /// The operations that add, clip, multiply and divide.
    ops: [usize; 4],
}

impl HardSwish {
    /// The pattern that ends with the operation `last`. Nothing else reads what lies between.
    fn find(function: &Function, readers: &[usize], last: usize) -> Option<HardSwish> {
        let only = |id: ValueId| (readers[id.0 as usize] == 1).then(|| defined(function, id)).flatten();
        let (product, six) = binary(function, last, PointwiseMode::Div)?;
        let multiplied = only(product).filter(|_| number(function, six) == Some(6.0))?;
        let (one, other) = binary(function, multiplied, PointwiseMode::Mul)?;
        [(one, other), (other, one)].into_iter().find_map(|(x, gate)| {
            let clipped = only(gate)?;
            let Operation::Pointwise(clip) = &function.ops[clipped].operation else { return None };
            let bounds = (clip.relu_lower_clip, clip.relu_upper_clip, clip.relu_lower_clip_slope);
            if clip.mode != PointwiseMode::ReluFwd || bounds != (Some(0.0), Some(6.0), None) {
                return None;
            }
            let added = only(ValueId::of(clip.in_0))?;
            let (base, three) = binary(function, added, PointwiseMode::Add)?;
            let fits = base == x && number(function, three) == Some(3.0);
            fits.then_some(HardSwish { x, ops: [added, clipped, multiplied, last] })
        })
    }

    fn rewrite(self, function: &mut Function) {
        let rank = function.value(self.x).dims.len();
        let sixth = function.scalar(TensorValue::Float32(1.0 / 6.0), DataType::Float, rank);
        let half = function.scalar(TensorValue::Float32(0.5), DataType::Float, rank);
        let results = self.ops.map(|op| ValueId::of(function.ops[op].operation.outputs()[0]));
        let [scaled, shifted, gate, y] = results.map(ValueId::uid);
        let x = self.x.uid();
        let clip = Pointwise {
            relu_lower_clip: Some(0.0),
            relu_upper_clip: Some(1.0),
            ..Pointwise::unary(PointwiseMode::ReluFwd, shifted, gate)
        };
        let operations = [
            Pointwise::binary(PointwiseMode::Mul, x, sixth.uid(), scaled),
            Pointwise::binary(PointwiseMode::Add, scaled, half.uid(), shifted),
            clip,
            Pointwise::binary(PointwiseMode::Mul, x, gate, y),
        ];
        for (op, operation) in self.ops.into_iter().zip(operations) {
            function.ops[op].operation = Operation::Pointwise(operation);
        }
    }
}

/// The operation that computes a value.
fn defined(function: &Function, id: ValueId) -> Option<usize> {
    match function.value(id).def {
        Def::Op(op) => Some(op),
        _ => None,
    }
}

/// The operands of a binary pointwise operation of that mode.
fn binary(function: &Function, op: usize, mode: PointwiseMode) -> Option<(ValueId, ValueId)> {
    match &function.ops[op].operation {
        Operation::Pointwise(pointwise) if pointwise.mode == mode => {
            Some((ValueId::of(pointwise.in_0), ValueId::of(pointwise.in_1?)))
        }
        _ => None,
    }
}

/// The number that a scalar is.
fn number(function: &Function, id: ValueId) -> Option<f32> {
    match function.value(id).scalar? {
        TensorValue::Float32(number) => Some(number),
        _ => None,
    }
}

/// The mode of each operation of a function of nothing but pointwise ones.
#[cfg(test)]
fn modes(function: &Function) -> Vec<PointwiseMode> {
    let mode = |op: &crate::ir::Op| match &op.operation {
        Operation::Pointwise(pointwise) => pointwise.mode,
        other => panic!("no pointwise operation: {other:?}"),
    };
    function.ops.iter().map(mode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Op, Source};

    fn push(f: &mut Function, pointwise: impl FnOnce(ValueId) -> Pointwise) -> ValueId {
        let y = f.result(DataType::Float, &[2, 3]);
        f.push(Op { operation: Operation::Pointwise(pointwise(y)), compute: DataType::Float, node: 0 });
        y
    }

    fn with_number(f: &mut Function, mode: PointwiseMode, x: ValueId, number: f32) -> ValueId {
        let number = f.scalar(TensorValue::Float32(number), DataType::Float, 2);
        push(f, |y| Pointwise::binary(mode, x.uid(), number.uid(), y.uid()))
    }

    /// `x · clip(x + 3, 0, upper) / 6`, with the product's operands in either order.
    fn spelled(f: &mut Function, upper: f32, gate_first: bool) -> (ValueId, ValueId) {
        let x = f.source(Source::Input(0), DataType::Float, &[2, 3]);
        let x = push(f, |y| Pointwise::unary(PointwiseMode::Abs, x.uid(), y.uid()));
        let shifted = with_number(f, PointwiseMode::Add, x, 3.0);
        let gate = push(f, |y| Pointwise {
            relu_lower_clip: Some(0.0),
            relu_upper_clip: Some(upper),
            ..Pointwise::unary(PointwiseMode::ReluFwd, shifted.uid(), y.uid())
        });
        let (one, other) = if gate_first { (gate, x) } else { (x, gate) };
        let product = push(f, |y| Pointwise::binary(PointwiseMode::Mul, one.uid(), other.uid(), y.uid()));
        (with_number(f, PointwiseMode::Div, product, 6.0), shifted)
    }

    #[test]
    fn a_spelled_hard_swish_becomes_the_activation() {
        use PointwiseMode::{Abs, Add, Div, Mul, ReluFwd};
        let spelling = [Abs, Add, ReluFwd, Mul, Div];
        for (what, upper, gate_first, read_twice, want) in [
            ("x first", 6.0, false, false, [Abs, Mul, Add, ReluFwd, Mul]),
            ("gate first", 6.0, true, false, [Abs, Mul, Add, ReluFwd, Mul]),
            ("another bound", 5.0, false, false, spelling),
            ("something between is an output", 6.0, false, true, spelling),
        ] {
            let mut f = Function::default();
            let (y, shifted) = spelled(&mut f, upper, gate_first);
            f.output(y, 0);
            if read_twice {
                f.output(shifted, 0);
            }
            canonicalize(&mut f);
            assert_eq!(modes(&f), want, "{what}");
        }
    }

    #[test]
    fn the_rewritten_operations_are_those_of_the_formula() {
        let mut f = Function::default();
        let (y, _) = spelled(&mut f, 6.0, false);
        f.output(y, 0);
        canonicalize(&mut f);
        let x = f.ops[0].operation.outputs()[0];
        let operands = |op: usize| f.ops[op].operation.inputs();
        assert_eq!((operands(1)[0], operands(4)[0]), (x, x));
        assert_eq!(number(&f, ValueId::of(operands(1)[1])), Some(1.0 / 6.0));
        assert_eq!(number(&f, ValueId::of(operands(2)[1])), Some(0.5));
        // Each reads what the one before wrote.
        for op in 2..5 {
            let previous = f.ops[op - 1].operation.outputs()[0];
            assert!(operands(op).contains(&previous), "operation {op}");
        }
    }
}
