//! Fusion of nodes into fusion groups.

use super::*;
use crate::lower::lower;
use hipdnn_schemas::{Convolution as Geometry, GraphBuilder, Pointwise as Node, TensorDef};

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
