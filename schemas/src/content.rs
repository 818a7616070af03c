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
    use crate::{DataType, GraphBuilder, GraphDef, Pointwise, PointwiseMode, TensorDef};

    fn graph(name: &str, uids: [i64; 3], extent: i64, mode: PointwiseMode, swapped: bool) -> GraphDef {
        let mut graph = GraphBuilder::new(name).compute(DataType::Float);
        let [a, b, c] = uids.map(|uid| graph.tensor(TensorDef::new(uid, DataType::Float, &[extent])));
        let (first, second) = if swapped { (b, a) } else { (a, b) };
        graph.pointwise(Pointwise::binary(mode, first, second, c));
        graph.build().unwrap().def().clone()
    }

    #[test]
    fn content_is_what_is_computed() {
        let one = graph("one", [1, 2, 3], 4, PointwiseMode::Sub, false);
        let mut other = graph("two", [-9, 5, 70], 4, PointwiseMode::Sub, false);
        other.preferred_engine_id = Some(5);
        other.id = Some([3; 16]);
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
}
