//! The content of a graph: what is computed, whatever it is called.

use std::collections::HashMap;

use crate::{GraphDef, Node, Ragged, TensorDef, TensorUid};

impl GraphDef {
    /// Bytes that are equal for graphs that compute the same from the same shapes: names, the graph's id, the engine
    /// that it prefers and the values of uids are left out. Tensors and nodes count in their order.
    pub fn content(&self) -> Vec<u8> {
        let ordinals: HashMap<TensorUid, TensorUid> =
            self.tensors.iter().zip(0..).map(|(tensor, ordinal)| (tensor.uid, TensorUid(ordinal))).collect();
        // Uids of no tensor, which only wrong graphs have, stay apart from ordinals.
        let of = |uid: TensorUid| ordinals.get(&uid).copied().unwrap_or(TensorUid(uid.0 | i64::MIN));
        let tensors = self.tensors.iter().map(|tensor| TensorDef {
            uid: of(tensor.uid),
            name: String::new(),
            ragged: tensor.ragged.map(|ragged| Ragged { offset: of(ragged.offset), ..ragged }),
            ..tensor.clone()
        });
        let nodes = self.nodes.iter().map(|node| Node {
            name: String::new(),
            compute_data_type: node.compute_data_type,
            operation: node.operation.renamed(&mut |uid| of(uid)),
        });
        let content = GraphDef {
            name: String::new(),
            preferred_engine_id: None,
            min_required_engine_api_version: None,
            id: None,
            tensors: tensors.collect(),
            nodes: nodes.collect(),
            ..self.clone()
        };
        content.to_bytes()
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        CustomOp, DataType, EngineApiVersion, GraphBuilder, GraphDef, Node, Operation, Pointwise, PointwiseMode,
        Ragged, TensorDef, TensorUid,
    };

    fn graph(name: &str, uids: [i64; 3], extent: i64, mode: PointwiseMode, swapped: bool) -> GraphDef {
        let mut graph = GraphBuilder::new(name).compute(DataType::Float);
        let [a, b, c] = uids.map(|uid| graph.tensor(TensorDef::new(uid, DataType::Float, &[extent])));
        let (first, second) = if swapped { (b, a) } else { (a, b) };
        graph.pointwise(Pointwise::binary(mode, first, second, c));
        graph.build().unwrap().def()
    }

    #[test]
    fn content_is_what_is_computed() {
        let one = graph("one", [1, 2, 3], 4, PointwiseMode::Sub, false);
        let mut other = graph("two", [-9, 5, 70], 4, PointwiseMode::Sub, false);
        other.preferred_engine_id = Some(5);
        other.id = Some([3; 16]);
        other.min_required_engine_api_version = Some(EngineApiVersion { major: 1, minor: 3, patch: 0 });
        other.tensors[1].name = "weights".into();
        other.nodes[0].name = "difference".into();
        assert_eq!(one.content(), other.content());
        for different in [
            graph("one", [1, 2, 3], 5, PointwiseMode::Sub, false),
            graph("one", [1, 2, 3], 4, PointwiseMode::Add, false),
            graph("one", [1, 2, 3], 4, PointwiseMode::Sub, true),
            GraphDef { compute_data_type: DataType::Double, ..one.clone() },
        ] {
            assert_ne!(one.content(), different.content());
        }
    }

    /// Row offsets and lists of operands name tensors too.
    #[test]
    fn uids_are_left_out_wherever_they_stand() {
        let graph = |x: i64, offsets: i64, multiplier: i64, swapped: bool| {
            let ragged = Some(Ragged { offset: TensorUid(offsets), multiplier });
            let mut inputs = vec![TensorUid(x), TensorUid(offsets)];
            if swapped {
                inputs.reverse();
            }
            let custom_op_id = "acme.rope".into();
            let operation =
                Operation::CustomOp(CustomOp { custom_op_id, inputs, outputs: vec![TensorUid(9)], data: Vec::new() });
            GraphDef {
                tensors: vec![
                    TensorDef { ragged, ..TensorDef::new(x, DataType::Float, &[2, 3]) },
                    TensorDef::new(offsets, DataType::Int64, &[3]),
                    TensorDef::new(9, DataType::Float, &[2, 3]),
                ],
                nodes: vec![Node { name: String::new(), compute_data_type: DataType::Float, operation }],
                ..GraphDef::default()
            }
        };
        let one = graph(1, 2, 4, false).content();
        assert_eq!(one, graph(70, -5, 4, false).content());
        for different in [graph(1, 2, 5, false), graph(1, 2, 4, true)] {
            assert_ne!(one, different.content());
        }
    }

    /// A uid of no tensor is no other tensor's number, whatever it is.
    #[test]
    fn wrong_graphs_are_not_right_ones() {
        let right = graph("one", [0, 1, 2], 4, PointwiseMode::Sub, false);
        for unknown in [7, i64::MIN] {
            let mut wrong = right.clone();
            wrong.nodes[0].operation = Operation::Pointwise(Pointwise::binary(
                PointwiseMode::Sub,
                TensorUid(unknown),
                TensorUid(1),
                TensorUid(2),
            ));
            assert_ne!(right.content(), wrong.content(), "uid {unknown}");
        }
    }
}
