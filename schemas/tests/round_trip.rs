//! Bytes, descriptions and JSON say the same.

mod samples;

use hipdnn_schemas::*;

#[test]
fn all_kinds_round_trip_and_check() {
    let graphs = samples::one_of_each();
    let kinds: Vec<_> = graphs.iter().map(|graph| graph.nodes[0].operation.kind()).collect();
    assert_eq!(kinds, Operation::KINDS);
    for def in graphs.into_iter().chain([samples::conv_bias_relu(), samples::every_field()]) {
        let bytes = def.to_bytes();
        verify_graph(&bytes).expect("own bytes");
        assert_eq!(GraphDef::from_bytes(&bytes), Ok(def.clone()), "{} through bytes", def.name);
        assert_eq!(GraphDef::from_json(&def.to_json()), Ok(def.clone()), "{} through JSON", def.name);
        assert_eq!(GraphDef::from_bytes(&bytes).unwrap().to_bytes(), bytes, "{}: stable bytes", def.name);
        let graph = Graph::new(def.clone()).unwrap_or_else(|e| panic!("{}: {e}", def.name));
        let node = &graph.nodes()[0].operation;
        for uid in node.inputs() {
            assert_eq!(graph.consumers(uid), [0], "{}: tensor {uid}", def.name);
        }
        for uid in node.outputs() {
            assert_eq!(graph.producer(uid), Some(0), "{}: tensor {uid}", def.name);
        }
        let named = node.inputs().into_iter().chain(node.outputs()).collect::<std::collections::HashSet<_>>();
        if def.nodes.len() == 1 && def.name != "every_field" {
            assert_eq!(named.len(), def.tensors.len(), "{}: every tensor is an operand", def.name);
        }
    }
}
