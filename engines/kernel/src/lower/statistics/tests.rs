//! Which folds are pairs.

use PointwiseMode::{Div, Exp, Mul, Sub};

use super::*;
use crate::emit::grouped::Fold;
use crate::ir::group::{AffineExpr, Operand};

fn read(uid: i64, steps: [i64; 2]) -> Input {
    let at = [AffineExpr { steps: steps.as_slice().into(), ..AffineExpr::fixed(2) }].into();
    Input::Element { of: Operand::Tensor(hipdnn_schemas::TensorUid(uid)), at, pad_value: 0.0 }
}

/// Element of the same tensor for each member.
fn x() -> Input {
    read(0, [1 << 20, 1])
}

fn op(mode: PointwiseMode, operands: &[usize]) -> Op {
    Op::pointwise(mode, operands)
}

fn reduce(input: Input, program: &[Op], folds: &[(ReduceOp, usize)]) -> Pass {
    let folds = folds.iter().map(|(mode, slot)| Fold { mode: mode.clone(), slot: *slot }).collect();
    Pass::Reduce { inputs: vec![input], program: program.to_vec(), folds }
}

fn once(inputs: &[Input], program: &[Op], keep: usize) -> Pass {
    Pass::PerGroup { inputs: inputs.to_vec(), program: program.to_vec(), keep: vec![keep], stores: vec![] }
}

fn kernel(groups: usize, members: usize, passes: Vec<Pass>) -> GroupKernel {
    GroupKernel { groups: vec![groups], members: vec![members], passes }
}

/// The folds of a softmax.
pub(in crate::lower) fn softmax(groups: usize, members: usize) -> GroupKernel {
    let powers = reduce(x(), &[op(Sub, &[1, 0]), op(Exp, &[2])], &[(ReduceOp::Sum, 3)]);
    kernel(groups, members, vec![reduce(x(), &[], &[(ReduceOp::Max, 0)]), powers])
}

/// Value that a pair goes on from, pass of the second fold, terms and the slot of differences that is summed beside
/// them.
type Found = (Reference, usize, usize, Vec<Term>, Option<usize>);

fn pair(kernel: &GroupKernel, first: usize) -> Option<Found> {
    Pair::of(kernel, first).map(|pair| (pair.reference, pair.from, pair.second, pair.terms.clone(), pair.rest()))
}

#[test]
fn powers_of_differences_from_the_greatest_are_a_pair() {
    let want = |from, second| Some((Reference::Greatest, from, second, vec![Term::Power], None));
    assert_eq!(pair(&softmax(4, 5), 0), want(0, 1));
    let powers = |input, program: &[Op], fold| {
        kernel(4, 5, vec![reduce(x(), &[], &[(ReduceOp::Max, 0)]), reduce(input, program, &[fold])])
    };
    let usual = [op(Sub, &[1, 0]), op(Exp, &[2])];
    let sum = (ReduceOp::Sum, 3);
    for (what, kernel, want) in [
        ("as they are", powers(x(), &usual, sum.clone()), want(0, 1)),
        ("of another tensor", powers(read(1, [1 << 20, 1]), &usual, sum.clone()), None),
        ("of another element", powers(read(0, [1 << 20, 2]), &usual, sum.clone()), None),
        ("of the opposite", powers(x(), &[op(Sub, &[0, 1]), op(Exp, &[2])], sum.clone()), None),
        ("of the member itself", powers(x(), &[op(Sub, &[1, 1]), op(Exp, &[2])], sum.clone()), None),
        ("of the member alone", powers(x(), &[op(Sub, &[1, 0]), op(Exp, &[1])], sum.clone()), None),
        ("no powers", powers(x(), &usual, (ReduceOp::Sum, 2)), None),
        ("the greatest power", powers(x(), &usual, (ReduceOp::Max, 3)), None),
    ] {
        assert_eq!(pair(&kernel, 0), want, "{what}");
    }
    for (mode, is_pair) in [(ReduceOp::Max, true), (ReduceOp::Min, false), (ReduceOp::Product, false)] {
        let mut kernel = softmax(4, 5);
        kernel.passes[0] = reduce(x(), &[], &[(mode.clone(), 0)]);
        assert_eq!(pair(&kernel, 0).is_some(), is_pair, "{mode:?}");
    }
    let mut two = softmax(4, 5);
    two.passes[0] = reduce(x(), &[], &[(ReduceOp::Max, 0), (ReduceOp::Max, 0)]);
    assert_eq!(pair(&two, 0), None, "two folds");
    assert_eq!(pair(&softmax(4, 5), 1), None, "nothing behind it");
    // What a scalar pass keeps of the greatest member, and what it keeps beside that.
    for (keep, is_pair) in [(0, true), (1, false)] {
        let passes = vec![
            reduce(x(), &[], &[(ReduceOp::Max, 0)]),
            once(&[Input::Literal(1.0)], &[], keep),
            reduce(x(), &[op(Sub, &[2, 1]), op(Exp, &[3])], &[(ReduceOp::Sum, 4)]),
        ];
        assert_eq!(pair(&kernel(4, 5, passes), 0), want(1, 2).filter(|_| is_pair), "keeps {keep}");
    }
    // Along a loop of one there is no other element.
    let mut thin = softmax(1, 5);
    thin.passes[0] = reduce(read(0, [7, 1]), &[], &[(ReduceOp::Max, 0)]);
    assert_eq!(pair(&thin, 0), want(0, 1));
}

#[test]
fn differences_from_the_mean_and_their_squares_are_a_pair() {
    let count = |members: usize| Input::Number(members as f64);
    let differences = [op(Sub, &[2, 1]), op(Mul, &[3, 3])];
    let mean = |count: Input, division: Op, program: &[Op], folds: &[(ReduceOp, usize)]| {
        let passes =
            vec![reduce(x(), &[], &[(ReduceOp::Sum, 0)]), once(&[count], &[division], 2), reduce(x(), program, folds)];
        kernel(4, 5, passes)
    };
    let division = || op(Div, &[0, 1]);
    let sum = |slot| (ReduceOp::Sum, slot);
    let want = |terms: &[Term], rest| Some((Reference::Mean, 1, 2, terms.to_vec(), rest));
    use Term::{Difference, Square};
    for (what, kernel, want) in [
        ("squares", mean(count(5), division(), &differences, &[sum(4)]), want(&[Square], Some(3))),
        ("differences", mean(count(5), division(), &differences, &[sum(3)]), want(&[Difference], None)),
        ("both", mean(count(5), division(), &differences, &[sum(3), sum(4)]), want(&[Difference, Square], None)),
        (
            "both, turned",
            mean(count(5), division(), &differences, &[sum(4), sum(3)]),
            want(&[Square, Difference], None),
        ),
        ("of another number of members", mean(count(6), division(), &differences, &[sum(4)]), None),
        ("of a literal", mean(Input::Literal(5.0), division(), &differences, &[sum(4)]), None),
        ("the opposite", mean(count(5), op(Div, &[1, 0]), &differences, &[sum(4)]), None),
        ("no quotient", mean(count(5), op(Mul, &[0, 1]), &differences, &[sum(4)]), None),
        ("products", mean(count(5), division(), &[op(Sub, &[2, 1]), op(Mul, &[3, 2])], &[sum(4)]), None),
        ("from the sum", mean(count(5), division(), &[op(Sub, &[2, 0]), op(Mul, &[3, 3])], &[sum(4)]), None),
        ("the greatest square", mean(count(5), division(), &differences, &[(ReduceOp::Max, 4)]), None),
        (
            "differences from two numbers",
            mean(count(5), division(), &[op(Sub, &[2, 1]), op(Sub, &[2, 0])], &[sum(3), sum(4)]),
            None,
        ),
    ] {
        assert_eq!(pair(&kernel, 0), want, "{what}");
    }
    // Folds of what has been computed from a value before them, by the same value and by another.
    for (other, is_pair) in [(0, true), (1, false), (2, false)] {
        let passes = vec![
            reduce(x(), &[], &[(ReduceOp::Max, 0)]),
            reduce(x(), &[op(Sub, &[1, 0])], &[(ReduceOp::Sum, 2)]),
            once(&[count(5)], &[op(Div, &[1, 2])], 3),
            reduce(x(), &[op(Sub, &[3, other]), op(Sub, &[4, 2]), op(Mul, &[5, 5])], &[sum(6)]),
        ];
        let want = Some((Reference::Mean, 2, 3, vec![Square], Some(5))).filter(|_| is_pair);
        assert_eq!(pair(&kernel(4, 5, passes), 1), want, "less value {other}");
    }
}
