//! Graphs of any nodes, judged by the conformance suite's executor: double precision, with derived bounds.

use std::collections::HashMap;
use std::sync::Arc;

use hipdnn_conformance::cases::Net;
use hipdnn_conformance::execute::{Results, Tolerance, execute_with};
use hipdnn_conformance::inputs::{self, seed};
use hipdnn_conformance::run;
use hipdnn_rs_integration_tests::tensor::HostTensor;
use hipdnn_schemas::{Graph, TensorDef, TensorUid};

/// A graph with seeded inputs.
#[derive(Clone)]
pub(crate) struct GraphCase {
    name: String,
    graph: Arc<Graph>,
    inputs: Arc<HashMap<TensorUid, Vec<u8>>>,
    in_place: HashMap<TensorUid, TensorUid>,
}

/// Expected outputs of a graph.
pub(crate) struct Right {
    graph: Arc<Graph>,
    results: Results,
}

impl GraphCase {
    /// A graph with the inputs that its nodes ask for.
    pub(crate) fn new(name: String, net: Net) -> GraphCase {
        let graph = Graph::new(net.def).unwrap_or_else(|problem| panic!("{name}: {problem}"));
        let inputs = inputs::generate(&graph, seed(&name), &net.fills);
        GraphCase { name, graph: Arc::new(graph), inputs: Arc::new(inputs), in_place: HashMap::new() }
    }

    /// The same with an output in the memory of an input.
    pub(crate) fn with_output_in(mut self, output: TensorUid, input: TensorUid) -> GraphCase {
        self.in_place.insert(output, input);
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn graph(&self) -> Vec<u8> {
        self.graph.def().to_bytes()
    }

    pub(crate) fn in_place(&self) -> &HashMap<TensorUid, TensorUid> {
        &self.in_place
    }

    /// The inputs in device memory, or the scalars in the host's.
    pub(crate) fn values(&self, scalars: bool) -> Vec<HostTensor> {
        inputs::needed(&self.graph)
            .filter(|tensor| tensor.is_runtime_pass_by_value() == scalars)
            .map(|tensor| {
                let mut host = HostTensor::blank(tensor.def());
                host.bytes_mut().copy_from_slice(&self.inputs[&tensor.uid()]);
                host
            })
            .collect()
    }

    pub(crate) fn outputs(&self) -> Vec<TensorDef> {
        run::outputs(&self.graph).map(|tensor| tensor.def().clone()).collect()
    }

    pub(crate) fn right(&self, strict: bool) -> Right {
        let tolerance = Tolerance { narrow_intermediates: !strict };
        let results = execute_with(&self.graph, &inputs::arrays(&self.graph, &self.inputs), tolerance);
        Right {
            graph: Arc::clone(&self.graph),
            results: results.unwrap_or_else(|problem| panic!("{}: {problem}", self.name)),
        }
    }
}

impl Right {
    pub(crate) fn check(&self, outputs: &[&HostTensor]) -> Result<(), String> {
        let got = outputs.iter().map(|output| (output.def().uid, output.bytes().to_vec())).collect();
        run::judge(&self.graph, &self.results, &got).map(|_| ())
    }
}
