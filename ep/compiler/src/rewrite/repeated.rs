//! Element-wise operations on repeated elements, as an image enlarged to its nearest neighbors has them.
//!
//! The import makes such an image by a copy of a view with strides of 0, which has a dimension for each factor. An element-wise
//! operation that alone reads the copy reads the view itself instead, along the view's dimensions: the enlarged image is never in
//! memory. Its other operands and its result are seen along these dimensions too.

use hipdnn_schemas::{Extents, Operation, Pointwise, PointwiseMode};
use rustc_hash::FxHashMap;

use super::defined;
use crate::ir::{Def, Function, ValueId};
use crate::outline;

/// Has element-wise operations read repeated elements where they lie. `readers` are the numbers of reads of each value.
pub(super) fn apply(function: &mut Function, readers: &[usize]) {
    let mut levels = vec![0; function.ops.len()];
    // Results of rewritten operations, with the value along the view's dimensions that each is a view of.
    let mut wide = FxHashMap::default();
    for index in 0..function.ops.len() {
        levels[index] = outline::level(function, &levels, index);
        if let Some(dims) = applies(function, readers, &wide, &levels, index)
            && rewrite(function, &mut wide, &dims, index)
        {
            levels[index] = outline::level(function, &levels, index);
        }
    }
}

/// The dimensions that an operation is to be computed along, if it reads repeated elements through a copy that nobody else reads, or
/// a result of such an operation.
fn applies(
    function: &Function,
    readers: &[usize],
    wide: &FxHashMap<ValueId, ValueId>,
    levels: &[usize],
    index: usize,
) -> Option<Extents> {
    let Operation::Pointwise(pointwise) = &function.ops[index].operation else { return None };
    let dims = &function.value(ValueId::of(pointwise.out_0)).dims;
    // The index is that of a dimension.
    if pointwise.mode == PointwiseMode::GenIndex || dims.contains(&0) {
        return None;
    }
    // With an operation of its own level it is one graph, and may be an epilogue there: the view would end that.
    let is_alone = |id: ValueId| defined(function, id).is_none_or(|op| levels[op] != levels[index]);
    let operands: Vec<ValueId> = operands(pointwise).collect();
    let repeated = operands.iter().find_map(|id| {
        let is_whole = readers.get(id.0 as usize) == Some(&1) && function.value(*id).dims == *dims;
        if !is_whole {
            return None;
        }
        wide.get(id).copied().or_else(|| repeated(function, *id))
    })?;
    operands.iter().all(|id| is_alone(*id)).then(|| function.value(repeated).dims.clone())
}

/// The repeated elements that a value is a packed copy of, whose extents are factors of its own.
fn repeated(function: &Function, id: ValueId) -> Option<ValueId> {
    let value = function.value(id);
    let Def::View(copy) = value.def else { return None };
    let Operation::Pointwise(pointwise) = &function.ops[defined(function, copy)?].operation else { return None };
    let from = ValueId::of(pointwise.in_0);
    let (source, copied) = (function.value(from), function.value(copy));
    let is_copy = pointwise.mode == PointwiseMode::Identity
        && pointwise.out_0 == copy.uid()
        && source.data_type == copied.data_type
        && source.scalar.is_none()
        && !copied.rounds;
    let is_view = value.is_packed() && copied.is_packed() && value.offset == copied.offset;
    // Others are read one by one: a copy does that once, by squares.
    let has_runs = match &source.strides[..] {
        [.., 1] | [.., 1, 0] => source.strides.contains(&0),
        _ => false,
    };
    (is_copy && is_view && has_runs && value.elements() == copied.elements()).then_some(from)
}

/// Has an operation read and write along dimensions that are factors of those of its result; false where they are not.
fn rewrite(function: &mut Function, wide: &mut FxHashMap<ValueId, ValueId>, dims: &[i64], index: usize) -> bool {
    let Operation::Pointwise(pointwise) = &function.ops[index].operation else { return false };
    let mut pointwise = pointwise.clone();
    let result = ValueId::of(pointwise.out_0);
    let Some(factors) = factors(&function.value(result).dims, dims) else { return false };
    let along = |function: &mut Function, id: ValueId| {
        let value = function.value(id);
        if let Some(scalar) = value.scalar {
            let data_type = value.data_type;
            return function.scalar(scalar, data_type, dims.len());
        }
        let same = wide.get(&id).copied().or_else(|| repeated(function, id));
        if let Some(same) = same.filter(|same| *function.value(*same).dims == *dims) {
            return same;
        }
        let (extents, strides) = split(&function.value(id).dims, &function.value(id).strides, &factors, dims);
        function.view(id, &extents, &strides, 0)
    };
    pointwise.in_0 = along(function, ValueId::of(pointwise.in_0)).uid();
    for operand in [&mut pointwise.in_1, &mut pointwise.in_2].into_iter().flatten() {
        *operand = along(function, ValueId::of(*operand)).uid();
    }
    let (extents, strides) = split(&function.value(result).dims, &function.value(result).strides, &factors, dims);
    let whole = function.result_behind(result, &extents, &strides);
    pointwise.out_0 = whole.uid();
    function.ops[index].operation = Operation::Pointwise(pointwise);
    wide.insert(result, whole);
    true
}

fn operands(pointwise: &Pointwise) -> impl Iterator<Item = ValueId> {
    [Some(pointwise.in_0), pointwise.in_1, pointwise.in_2].into_iter().flatten().map(ValueId::of)
}

/// For each dimension of these extents the number of dimensions of `wide` that it is the product of.
fn factors(dims: &[i64], wide: &[i64]) -> Option<Vec<usize>> {
    let mut factors = Vec::with_capacity(dims.len());
    let mut rest = wide;
    for extent in dims {
        let (mut product, mut count) = (1, 0);
        while product < *extent {
            product *= rest.get(count)?;
            count += 1;
        }
        if product != *extent {
            return None;
        }
        factors.push(count);
        rest = &rest[count..];
    }
    // What is left are dimensions of one element.
    let last = factors.last_mut().filter(|_| rest.iter().all(|extent| *extent == 1))?;
    *last += rest.len();
    Some(factors)
}

/// Extents and strides of a tensor along the factors of its dimensions; a dimension of one element has it for all.
fn split(dims: &[i64], strides: &[i64], factors: &[usize], wide: &[i64]) -> (Extents, Extents) {
    let (mut extents, mut steps) = (Extents::new(), Extents::new());
    let mut at = 0;
    for ((extent, stride), count) in dims.iter().zip(strides).zip(factors) {
        let parts = &wide[at..at + count];
        for (number, part) in parts.iter().enumerate() {
            let inner: i64 = parts[number + 1..].iter().product();
            let is_one = *extent == 1;
            extents.push(if is_one { 1 } else { *part });
            steps.push(if is_one { *stride } else { stride * inner });
        }
        at += count;
    }
    (extents, steps)
}

#[cfg(test)]
mod tests {
    use hipdnn_schemas::{DataType, TensorValue};

    use super::super::{canonicalize, modes};
    use crate::ir::{Op, Source};
    use crate::outline::{Uses, graph, outline};

    use super::*;

    fn push(f: &mut Function, dims: &[i64], pointwise: impl FnOnce(ValueId) -> Pointwise) -> ValueId {
        let y = f.result(DataType::Float, dims);
        f.push(Op { operation: Operation::Pointwise(pointwise(y)), compute: DataType::Float, node: 0 });
        y
    }

    /// An image of 3 by 5 places enlarged to 6 by 20, as it is imported.
    fn enlarged(f: &mut Function, input: usize) -> ValueId {
        let x = f.source(Source::Input(input), DataType::Float, &[1, 2, 3, 5]);
        let view = f.view(x, &[1, 2, 3, 2, 5, 4], &[30, 15, 5, 0, 1, 0], 0);
        f.reshape(view, &[1, 2, 6, 20], 0)
    }

    const DIMS: [i64; 4] = [1, 2, 6, 20];

    fn live(f: &Function) -> Vec<Vec<usize>> {
        outline(f, &Uses::of(f)).into_iter().map(|region| region.ops).collect()
    }

    /// Extents and strides of the operands and the result of an operation.
    fn places(f: &Function, op: usize) -> Vec<(Vec<i64>, Vec<i64>)> {
        let operation = &f.ops[op].operation;
        let all = operation.inputs().into_iter().chain(operation.outputs());
        all.map(|uid| f.value(ValueId::of(uid))).map(|v| (v.dims.to_vec(), v.strides.to_vec())).collect()
    }

    #[test]
    fn a_sum_reads_an_enlarged_image_where_it_lies() {
        let mut f = Function::default();
        let large = enlarged(&mut f, 0);
        let other = f.source(Source::Input(1), DataType::Float, &DIMS);
        let bias = f.source(Source::Input(2), DataType::Float, &[1, 2, 1, 1]);
        let half = f.scalar(TensorValue::Float32(0.5), DataType::Float, 4);
        let sum = push(&mut f, &DIMS, |y| Pointwise::binary(PointwiseMode::Add, other.uid(), large.uid(), y.uid()));
        let sum = push(&mut f, &DIMS, |y| Pointwise::binary(PointwiseMode::Add, sum.uid(), bias.uid(), y.uid()));
        let sum = push(&mut f, &DIMS, |y| Pointwise::binary(PointwiseMode::Mul, half.uid(), sum.uid(), y.uid()));
        f.output(sum, 0);
        assert_eq!(live(&f), [vec![0], vec![1, 2, 3]]);
        canonicalize(&mut f);
        assert_eq!(live(&f), [vec![1, 2, 3]], "the copy is gone, and what follows the sum is with it");
        let dims = vec![1, 2, 3, 2, 5, 4];
        let packed = (dims.clone(), vec![240, 120, 40, 20, 4, 1]);
        assert_eq!(places(&f, 1), [packed.clone(), (dims, vec![30, 15, 5, 0, 1, 0]), packed.clone()]);
        assert_eq!(places(&f, 2)[1], (vec![1, 2, 1, 1, 1, 1], vec![2, 1, 1, 1, 1, 1]));
        assert_eq!(places(&f, 3), [(vec![1; 6], vec![1; 6]), packed.clone(), packed]);
        let uses = Uses::of(&f);
        let outlined = graph(&f, &uses, &outline(&f, &uses)[0], &|_| "");
        assert_eq!(outlined.arguments.len(), 4, "the sums between are nowhere in memory");
        hipdnn_schemas::Graph::new(outlined.graph).expect("a region is a graph");
    }

    #[test]
    fn two_enlarged_images_are_both_read_where_they_lie() {
        let mut f = Function::default();
        let (one, other) = (enlarged(&mut f, 0), enlarged(&mut f, 1));
        let sum = push(&mut f, &DIMS, |y| Pointwise::binary(PointwiseMode::Add, one.uid(), other.uid(), y.uid()));
        f.output(sum, 0);
        canonicalize(&mut f);
        assert_eq!(live(&f), [vec![2]]);
        assert_eq!([0, 1].map(|operand| places(&f, 2)[operand].1[5]), [0, 0]);
    }

    #[test]
    fn others_keep_the_copy() {
        // Read twice; with a result of its own level; of an image whose elements are no neighbors.
        for (what, twice, level, apart) in [
            ("read twice", true, false, false),
            ("beside a result of the same graph", false, true, false),
            ("elements far from each other", false, false, true),
        ] {
            let mut f = Function::default();
            let mut large = enlarged(&mut f, 0);
            if apart {
                let x = f.source(Source::Input(3), DataType::Float, &[1, 3, 5, 2]);
                let view = f.view(x, &[1, 2, 3, 2, 5, 4], &[30, 1, 10, 0, 2, 0], 0);
                large = f.reshape(view, &DIMS, 0);
            }
            let mut other = f.source(Source::Input(1), DataType::Float, &DIMS);
            if level {
                // A view of a result is of the next level.
                for _ in 0..3 {
                    let result = push(&mut f, &DIMS, |y| Pointwise::unary(PointwiseMode::Abs, other.uid(), y.uid()));
                    other = f.reshape(result, &[240], 0);
                    other = push(&mut f, &[240], |y| Pointwise::unary(PointwiseMode::Exp, other.uid(), y.uid()));
                    other = f.reshape(other, &DIMS, 0);
                }
                other = push(&mut f, &DIMS, |y| Pointwise::unary(PointwiseMode::Abs, other.uid(), y.uid()));
            }
            let add = |y: ValueId| Pointwise::binary(PointwiseMode::Add, other.uid(), large.uid(), y.uid());
            let sum = push(&mut f, &DIMS, add);
            f.output(sum, 0);
            if twice {
                let exp = push(&mut f, &DIMS, |y| Pointwise::unary(PointwiseMode::Exp, large.uid(), y.uid()));
                f.output(exp, 0);
            }
            let before = (modes(&f), live(&f));
            canonicalize(&mut f);
            assert_eq!((modes(&f), live(&f)), before, "{what}");
            assert_eq!(places(&f, f.ops.len() - 1)[0].0.len(), 4, "{what}");
        }
    }

    #[test]
    fn extents_are_factored() {
        for (dims, wide, want) in [
            (&[1, 2, 6, 20][..], &[1, 2, 3, 2, 5, 4][..], Some(vec![0, 2, 2, 2])),
            (&[6, 1], &[3, 2, 1], Some(vec![2, 1])),
            (&[6, 4], &[6, 4], Some(vec![1, 1])),
            (&[6, 4], &[4, 6], None),
            (&[6, 4], &[3, 2, 2, 4], None),
        ] {
            assert_eq!(factors(dims, wide), want, "{dims:?} of {wide:?}");
        }
    }
}
