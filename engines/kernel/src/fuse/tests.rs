//! Fusion of nodes into fusion groups.

use super::*;
use crate::ir::group::AffineExpr;
use crate::lower::interpret::interpret;
use crate::lower::lower;
use hipdnn_schemas::{
    Convolution as Geometry, GraphBuilder, Operation, Pointwise as Node, Reduction, ReductionMode, TensorDef,
};

const F: DataType = DataType::Float;

/// Graph of tensors of 2×3×4×4 by their uids; those from 100 on are virtual.
struct Case(GraphBuilder);

impl Case {
    fn new() -> Case {
        Case(GraphBuilder::new("case").compute(F))
    }

    fn uid(&mut self, uid: i64) -> TensorUid {
        if !self.0.def().tensors.iter().any(|tensor| tensor.uid.0 == uid) {
            let tensor = TensorDef::new(uid, F, &[2, 3, 4, 4]);
            self.0.tensor(if uid >= 100 { tensor.intermediate() } else { tensor });
        }
        TensorUid(uid)
    }

    fn unary(mut self, mode: PointwiseMode, x: i64, y: i64) -> Case {
        let (x, y) = (self.uid(x), self.uid(y));
        self.0.pointwise(Node::unary(mode, x, y));
        self
    }

    fn binary(mut self, a: i64, b: i64, y: i64) -> Case {
        let (a, b, y) = (self.uid(a), self.uid(b), self.uid(y));
        self.0.pointwise(Node::binary(PointwiseMode::Add, a, b, y));
        self
    }

    fn convolution(mut self, x: i64, y: i64) -> Case {
        let (x, y) = (self.uid(x), self.uid(y));
        let w = self.0.tensor(TensorDef::new(90 + x.0, F, &[3, 3, 1, 1]));
        self.0.convolution_fwd(x, w, y, Geometry::new(2));
        self
    }

    fn typed(mut self, uid: i64, data_type: DataType) -> Case {
        let uid = self.uid(uid);
        let tensors = &mut self.0.def_mut().tensors;
        tensors.iter_mut().find(|tensor| tensor.uid == uid).unwrap().data_type = data_type;
        self
    }

    /// Node numbers of each fusion group: chains in brackets.
    fn fusion_groups(self) -> String {
        let graph = self.0.build().unwrap();
        let fusion_groups = fuse(&graph, lower(&graph).unwrap());
        let name = |fusion_group: &FusionGroup| match fusion_group {
            FusionGroup::Convolution(convolution) => convolution.node.to_string(),
            FusionGroup::Chain(chain) => {
                let nodes: Vec<String> = chain.nodes.iter().map(|node| node.node.to_string()).collect();
                let mut inputs: Vec<i64> = chain.inputs().iter().map(|argument| argument.tensor.0).collect();
                inputs.sort();
                let inputs: Vec<String> = inputs.iter().map(i64::to_string).collect();
                format!("[{} of {}]", nodes.join(" "), inputs.join(" "))
            }
            FusionGroup::Groups(groups) => format!("{{{}}}", groups.work.node),
            FusionGroup::Opaque(opaque) => format!("<{}>", opaque.node),
        };
        fusion_groups.iter().map(name).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn pointwise_nodes_become_chains() {
    use PointwiseMode::*;
    for (what, case, want) in [
        ("one", Case::new().unary(Abs, 1, 2), "[0 of 1]"),
        ("two", Case::new().unary(Abs, 1, 100).unary(Exp, 100, 2), "[0 1 of 1]"),
        ("seen between", Case::new().unary(Abs, 1, 2).unary(Exp, 2, 3), "[0 of 1] [1 of 2]"),
        ("operand twice", Case::new().unary(Abs, 1, 100).binary(100, 100, 2), "[0 1 of 1]"),
        (
            "a diamond",
            Case::new().unary(Abs, 1, 100).unary(Exp, 100, 101).unary(Neg, 100, 102).binary(101, 102, 2),
            "[0 1 2 3 of 1]",
        ),
        (
            "two readers",
            Case::new().unary(Abs, 1, 100).unary(Exp, 100, 2).unary(Neg, 100, 3),
            "[0 of 1] [1 of 100] [2 of 100]",
        ),
        (
            "behind a convolution",
            Case::new().convolution(1, 100).binary(100, 2, 101).unary(ReluFwd, 101, 3),
            "0 [1 2 of 2 100]",
        ),
        (
            "around a convolution",
            Case::new().unary(Abs, 1, 100).convolution(100, 101).unary(Exp, 101, 2),
            "[0 of 1] 1 [2 of 101]",
        ),
        (
            "a residual computed before",
            Case::new().unary(Abs, 1, 100).convolution(2, 101).binary(100, 101, 3),
            "1 [0 2 of 1 101]",
        ),
        (
            // The caller may have tensor 2 where tensor 1 is.
            "a function that may overwrite an operand",
            Case::new().unary(Abs, 1, 100).unary(Neg, 1, 2).binary(100, 3, 4),
            "[0 of 1] [1 of 1] [2 of 3 100]",
        ),
        (
            "a function that can't overwrite an operand",
            Case::new().typed(2, DataType::Half).unary(Abs, 1, 100).unary(Neg, 1, 2).binary(100, 3, 4),
            "[1 of 1] [0 2 of 1 3]",
        ),
        (
            "two convolutions",
            Case::new().convolution(1, 100).convolution(2, 101).binary(100, 101, 3),
            "0 1 [2 of 100 101]",
        ),
        ("unseen", Case::new().unary(Abs, 1, 2).convolution(1, 100).unary(Exp, 100, 101), "[0 of 1]"),
        (
            "a rounding that means something",
            Case::new().typed(100, DataType::Int32).unary(Exp, 1, 100).unary(Neg, 100, 2),
            "[0 of 1] [1 of 100]",
        ),
        (
            "a truth",
            Case::new().typed(100, DataType::Boolean).unary(LogicalNot, 1, 100).unary(Neg, 100, 2),
            "[0 1 of 1]",
        ),
        (
            "no truth",
            Case::new().typed(100, DataType::Boolean).unary(Exp, 1, 100).unary(Neg, 100, 2),
            "[0 of 1] [1 of 100]",
        ),
    ] {
        assert_eq!(case.fusion_groups(), want, "{what}");
    }
}

#[test]
fn what_is_broadcast_is_computed_once() {
    let mut graph = GraphBuilder::new("case").compute(F);
    let x = graph.tensor(TensorDef::new(0, F, &[1, 3, 1, 1]));
    let t = graph.tensor(TensorDef::new(1, F, &[1, 3, 1, 1]).intermediate());
    let y = graph.tensor(TensorDef::new(2, F, &[2, 3, 4, 4]));
    graph.pointwise(Node::unary(PointwiseMode::Exp, x, t));
    graph.pointwise(Node::unary(PointwiseMode::Neg, t, y));
    let graph = graph.build().unwrap();
    assert_eq!(fuse(&graph, lower(&graph).unwrap()).len(), 2);
}

#[test]
fn chains_have_bounds() {
    let mut long = Case::new().unary(PointwiseMode::Neg, 1, 100);
    for i in 0..100 {
        long = long.unary(PointwiseMode::Neg, 100 + i, 101 + i);
    }
    let mut wide = Case::new().binary(1, 2, 100);
    for i in 0..40 {
        wide = wide.binary(100 + i, 3 + i, 101 + i);
    }
    for case in [long.unary(PointwiseMode::Neg, 200, 2), wide.unary(PointwiseMode::Neg, 140, 60)] {
        let graph = case.0.build().unwrap();
        let fusion_groups = fuse(&graph, lower(&graph).unwrap());
        assert!(fusion_groups.len() > 1);
        let mut nodes = 0;
        for fusion_group in &fusion_groups {
            let FusionGroup::Chain(chain) = fusion_group else { panic!("{fusion_group:?}") };
            assert!(chain.nodes.len() <= MAX_OPERATIONS && chain.inputs().len() <= MAX_INPUTS);
            nodes += chain.nodes.len();
        }
        assert_eq!(nodes, graph.nodes().len(), "every node once");
    }
}

/// Affine index of these steps.
fn line(offset: i64, steps: &[i64], divisor: u64) -> AffineExpr {
    AffineExpr { offset, steps: steps.into(), divisor }
}

#[test]
fn indices_that_never_leave_a_dimension_are_known() {
    // (offset, steps, divisor, extents of the loops, the smallest extent that it stays within; 0: none)
    for (offset, steps, divisor, loops, extent) in [
        (0, &[1][..], 1, &[5][..], 5),
        (2, &[1], 1, &[5], 7),
        (-1, &[1], 1, &[5], 0),
        (0, &[-1], 1, &[5], 0),
        (4, &[-1], 1, &[5], 5),
        (3, &[-1], 1, &[5], 0),
        (6, &[-1], 1, &[5], 7),
        (0, &[1, 2], 1, &[3, 3], 7),
        (2, &[1, -1], 1, &[3, 3], 5),
        (1, &[1, -1], 1, &[3, 3], 0),
        (6, &[-1, -2], 1, &[3, 3], 7),
        (0, &[9], 1, &[1], 1),
        (0, &[0], 1, &[5], 1),
        (3, &[], 1, &[], 4),
        (0, &[2], 2, &[5], 0),
    ] {
        let line = line(offset, steps, divisor);
        for candidate in 1..12 {
            let want = extent != 0 && candidate >= extent;
            assert_eq!(stays_within(&line, loops, candidate), want, "{line:?} over {loops:?} in {candidate}");
        }
    }
}

#[test]
fn indices_that_are_loops_are_known() {
    for (at, loops, want) in [
        (line(0, &[0, 1], 1), [4, 5], Some(Input::Index(1))),
        (line(0, &[1, 0], 1), [4, 5], Some(Input::Index(0))),
        (line(0, &[1, 1], 1), [4, 1], Some(Input::Index(0))),
        (line(0, &[1, 1], 1), [4, 5], None),
        (line(0, &[0, 0], 1), [4, 5], Some(Input::Literal(0.0))),
        (line(0, &[7, 0], 1), [1, 5], Some(Input::Literal(0.0))),
        (line(1, &[0, 0], 1), [4, 5], None),
        (line(1, &[0, 1], 1), [4, 5], None),
        (line(0, &[0, 2], 1), [4, 5], None),
        (line(0, &[0, 1], 2), [4, 5], None),
    ] {
        assert_eq!(places::index(&at, &loops), want, "{at:?} over {loops:?}");
    }
    let along = |which| line(0, &[i64::from(which == 0), i64::from(which == 1)], 1);
    let same = |a: &[AffineExpr], b: &[AffineExpr], loops| places::same_places(a, b, loops);
    assert!(same(&[along(0), along(1)], &[along(0), along(1)], &[4, 5]));
    assert!(!same(&[along(0), along(1)], &[along(1), along(0)], &[4, 5]));
    assert!(!same(&[along(0), along(1)], &[along(0)], &[4, 5]));
    assert!(same(&[along(0), along(1)], &[along(0), line(0, &[3, 1], 1)], &[1, 5]), "one step along a loop of one");
}

#[test]
fn whole_tensors_are_visited_once() {
    let along = |which: usize| line(0, &(0..3).map(|l| i64::from(l == which)).collect::<Vec<_>>(), 1);
    let fixed = || line(0, &[0; 3], 1);
    let loops = [4, 5, 1];
    for (what, at, dims, want) in [
        ("all of it", vec![along(0), along(1)], vec![4, 5], true),
        ("in another order", vec![along(1), along(0)], vec![5, 4], true),
        ("with a dimension of one", vec![along(0), fixed(), along(1)], vec![4, 1, 5], true),
        ("along a loop of one", vec![along(0), along(2), along(1)], vec![4, 1, 5], true),
        ("one loop too few", vec![along(0)], vec![4], false),
        ("a part of a dimension", vec![along(0), along(1)], vec![4, 6], false),
        ("one of several", vec![along(0), along(1), fixed()], vec![4, 5, 2], false),
        ("a diagonal", vec![along(0), along(0)], vec![4, 4], false),
        ("a sum of loops", vec![line(0, &[1, 1, 0], 1), along(1)], vec![4, 5], false),
        ("every second", vec![line(0, &[2, 0, 0], 1), along(1)], vec![4, 5], false),
        ("from the second on", vec![line(1, &[1, 0, 0], 1), along(1)], vec![4, 5], false),
        ("every second index", vec![line(0, &[1, 0, 0], 2), along(1)], vec![4, 5], false),
    ] {
        assert_eq!(places::is_whole(&at, &dims, &loops), want, "{what}");
    }
}

/// A kernel of which some values have no reader, and the same without them.
#[test]
fn dead_values_leave_the_others_where_they_belong() {
    use crate::emit::grouped::{Fold, ReduceOp};
    use crate::ir::group::{Pass, Store};
    let read = |uid| Input::Element {
        of: Operand::Tensor(TensorUid(uid)),
        at: [line(0, &[1, 0], 1), line(0, &[0, 1], 1)].into(),
        pad_value: 0.0,
    };
    let store = |slot, to| Store { slot, to, at: [line(0, &[1, 0], 1), line(0, &[0, 0], 1)].into() };
    let pair = |mode, a, b| Op::pointwise(mode, &[a, b]);
    use PointwiseMode::{Add, Div, Max, Min, Mul, Sub};
    let kernel = GroupKernel {
        groups: vec![4],
        members: vec![5],
        passes: vec![
            // Left behind: a sum (0), the greatest and its place (1, 2), the least (3) and a product (4).
            Pass::Reduce {
                inputs: vec![read(1), Input::Index(1)],
                program: vec![],
                folds: vec![
                    Fold { mode: ReduceOp::Sum, slot: 0 },
                    Fold { mode: ReduceOp::ArgMax { at: 1 }, slot: 0 },
                    Fold { mode: ReduceOp::Min, slot: 0 },
                    Fold { mode: ReduceOp::Product, slot: 0 },
                ],
            },
            // 5 to 8, of which the second and the last are read by nobody.
            Pass::PerGroup {
                inputs: vec![],
                program: vec![pair(Sub, 2, 4), pair(Mul, 2, 2), pair(Div, 4, 2), pair(Max, 4, 4)],
                keep: vec![5, 6, 7, 8],
                stores: vec![],
            },
            Pass::PerGroup {
                inputs: vec![],
                program: vec![pair(Add, 5, 7), pair(Min, 7, 5)],
                keep: vec![9],
                stores: vec![store(10, Operand::Tensor(TensorUid(2))), store(5, Operand::Local(0))],
            },
            Pass::PerMember {
                inputs: vec![read(1)],
                program: vec![pair(Sub, 10, 7), pair(Mul, 11, 9)],
                stores: vec![Store {
                    slot: 12,
                    to: Operand::Tensor(TensorUid(3)),
                    at: [line(0, &[1, 0], 1), line(0, &[0, 1], 1)].into(),
                }],
            },
        ],
    };
    let left = KernelBlocks::of(&kernel).finish(|to| to != Operand::Local(0)).expect("something is stored");
    let Pass::Reduce { folds, .. } = &left.passes[0] else { panic!("{left:?}") };
    // The greatest goes with its place.
    assert_eq!(folds.iter().map(|fold| fold.mode.leaves()).collect::<Vec<_>>(), [2, 1], "{left:?}");
    let [_, Pass::PerGroup { program, keep, stores, .. }, Pass::PerMember { .. }] = &left.passes[..] else {
        panic!("scalar passes are one: {left:?}")
    };
    // Three values come before: the quotient is the product by the place; what is stored and kept is of them.
    assert_eq!(program.len(), 4, "{left:?}");
    assert_eq!((keep.len(), stores.len()), (3, 1), "{left:?}");
    let mut graph = GraphBuilder::new("case").compute(F);
    let [x, column, y] =
        [(1, [4, 5]), (2, [4, 1]), (3, [4, 5])].map(|(uid, dims)| graph.tensor(TensorDef::new(uid, F, &dims)));
    let sum = Reduction { mode: ReductionMode::Add, input: x, output: column, is_deterministic: true };
    graph.node("", Operation::Reduction(sum));
    graph.pointwise(Node::unary(PointwiseMode::Abs, x, y));
    let graph = graph.build().unwrap();
    let work = |kernel: GroupKernel| GroupWork {
        node: 0,
        name: "case",
        locals: vec![crate::ir::group::Local { dims: vec![4, 1], data_type: F }],
        kernels: vec![kernel],
        partial: F,
    };
    let results = |kernel: &GroupKernel| {
        let x: Vec<f64> = (0..20).map(|i| f64::from(i * 7 % 11) + 1.0).collect();
        let mut tensors = std::collections::BTreeMap::from([(1, x)]);
        interpret(&graph, &work(kernel.clone()), &mut tensors, |value| value);
        tensors
    };
    assert_eq!(results(&left), results(&kernel));
    // Locals of a kernel that is appended are numbered behind those that there are.
    let mut both = KernelBlocks::of(&kernel);
    both.append(&graph, &kernel, 3).expect("nothing that the first one stores is read");
    let stored = |kernel: &GroupKernel| -> Vec<Operand> {
        kernel
            .passes
            .iter()
            .flat_map(|pass| pass.stores())
            .map(|store| store.to)
            .filter(|to| to.tensor().is_none())
            .collect()
    };
    assert_eq!(stored(&both.finish(|_| true).unwrap()), [Operand::Local(0), Operand::Local(3)]);
}

#[test]
fn truths_are_known() {
    let op = |mode: PointwiseMode| Op::pointwise(mode, &[0, 1][..mode.operands()]);
    assert!(is_truth(&op(PointwiseMode::CmpLt)) && is_truth(&op(PointwiseMode::LogicalNot)));
    assert!(!is_truth(&op(PointwiseMode::Add)) && !is_truth(&op(PointwiseMode::Identity)));
    for (to, want) in [(Element::Boolean, true), (Element::U8, false), (Element::F32, false)] {
        assert_eq!(is_truth(&Op::Round { to, operand: 0 }), want, "{to:?}");
    }
}
