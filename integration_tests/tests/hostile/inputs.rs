//! Inputs by index, and the function that takes each.

use hipdnn_schemas::{EngineDetails, GraphDef, SerializedExecutionPlan, SerializedGraphAndPlan, TensorUid};

use crate::api::{BackendApi, PluginApi};
use crate::calls::Calls;
use crate::random::Random;
use crate::stages::Stages;
use crate::through_backend::{Input, ThroughBackend};
use crate::through_plugin::ThroughPlugin;
use crate::{mutate, valid};

/// The valid graphs that inputs start from, in each form.
pub(crate) struct Corpus {
    graphs: Vec<GraphDef>,
    bytes: Vec<Vec<u8>>,
    json: Vec<String>,
}

impl Corpus {
    pub(crate) fn new() -> Corpus {
        let graphs = valid::fixed();
        let bytes = graphs.iter().map(GraphDef::to_bytes).collect();
        let json = graphs.iter().map(GraphDef::to_json).collect();
        Corpus { graphs, bytes, json }
    }

    fn other(&self, random: &mut Random) -> &GraphDef {
        &self.graphs[random.below(self.graphs.len())]
    }

    /// A graph that was right before up to three of its parts were changed.
    fn changed(&self, random: &mut Random) -> GraphDef {
        let mut graph = if random.once_in(4) { self.other(random).clone() } else { valid::grown(random) };
        let other = self.other(random);
        mutate::graph(random, &mut graph, other);
        graph
    }

    /// Bytes of a graph of which some were changed.
    fn changed_bytes(&self, random: &mut Random) -> Vec<u8> {
        let mut bytes = if random.once_in(3) {
            self.bytes[random.below(self.bytes.len())].clone()
        } else {
            valid::grown(random).to_bytes()
        };
        let other = &self.bytes[random.below(self.bytes.len())];
        mutate::bytes(random, &mut bytes, other);
        bytes
    }

    fn changed_json(&self, random: &mut Random) -> Vec<u8> {
        let other = &self.json[random.below(self.json.len())];
        match random.below(4) {
            0 => {
                let text = &self.json[random.below(self.json.len())];
                mutate::json(random, text, other)
            }
            1 => self.changed(random).to_json().into_bytes(),
            2 => valid::grown(random).to_json().into_bytes(),
            _ => {
                let text = valid::grown(random).to_json();
                mutate::json(random, &text, other)
            }
        }
    }

    /// A stored plan or a container, of which some bytes were changed.
    fn changed_store(&self, random: &mut Random, engine_id: i64) -> Vec<u8> {
        let graph = &self.bytes[random.below(self.bytes.len())];
        let tensors = random.range(0, 4);
        let plan = SerializedExecutionPlan {
            version: 1,
            engine_id,
            workspace_size: random.range(0, 4096),
            tensor_uids: (0..tensors).map(TensorUid).collect(),
            plugin_payload: graph.clone(),
            is_override_shape_enabled: random.once_in(2),
            tensor_alignments: (0..tensors).map(|_| random.range(1, 64)).collect(),
            ..SerializedExecutionPlan::default()
        };
        let plan = plan.to_bytes();
        let mut store = match random.below(4) {
            0 => plan,
            1 => EngineDetails::default().to_bytes(),
            2 => SerializedGraphAndPlan { graph: graph.clone(), plan: None }.to_bytes(),
            _ => SerializedGraphAndPlan { graph: graph.clone(), plan: Some(plan) }.to_bytes(),
        };
        if !random.once_in(8) {
            mutate::bytes(random, &mut store, graph);
        }
        store
    }
}

/// The ways in.
pub(crate) struct Doors {
    pub(crate) plugin: ThroughPlugin,
    pub(crate) backend: ThroughBackend,
    pub(crate) calls: Calls,
}

impl Doors {
    pub(crate) fn new(plugin: PluginApi, backend: BackendApi) -> Doors {
        let plugin = ThroughPlugin::new(plugin);
        let calls = Calls::new(backend, plugin.engine_id());
        Doors { plugin, backend: ThroughBackend::new(backend), calls }
    }
}

/// Makes the input of one index and hands it in.
pub(crate) fn hand_in(
    random: &mut Random,
    corpus: &Corpus,
    doors: &mut Doors,
    stages: &mut Stages,
) -> Result<(), String> {
    let engine_id = doors.plugin.engine_id();
    let Doors { plugin, backend, calls } = doors;
    match random.below(21) {
        // Changed graphs with a right configuration, through the plugin.
        0..=4 => {
            let graph = corpus.changed(random);
            let config = mutate::config(random, engine_id, &graph).to_bytes();
            plugin.graph(random, &graph.to_bytes(), &config, true, stages)
        }
        5..=7 => {
            let graph = corpus.changed_bytes(random);
            let config = mutate::config(random, engine_id, &corpus.graphs[0]).to_bytes();
            plugin.graph(random, &graph, &config, false, stages)
        }
        8 => {
            let graph = valid::grown(random);
            let config = mutate::config(random, engine_id, &graph).to_bytes();
            plugin.graph(random, &graph.to_bytes(), &config, true, stages)
        }
        // Changed configurations with a right graph.
        9..=11 => {
            let graph = valid::grown(random);
            let mut config = mutate::config(random, engine_id, &graph);
            mutate::wrong_config(random, &mut config, &graph);
            let mut config = config.to_bytes();
            if random.once_in(2) {
                mutate::bytes(random, &mut config, &corpus.bytes[0]);
            }
            plugin.graph(random, &graph.to_bytes(), &config, false, stages)
        }
        // The same through the backend.
        12 | 13 => {
            let graph = corpus.changed(random).to_bytes();
            backend.graph(random, Input::Bytes(&graph), stages)
        }
        14 => {
            let graph = corpus.changed_bytes(random);
            backend.graph(random, Input::Bytes(&graph), stages)
        }
        15 => {
            let graph = valid::grown(random);
            backend.graph(random, Input::Bytes(&graph.to_bytes()), stages)
        }
        16..=18 => {
            let text = corpus.changed_json(random);
            backend.graph(random, Input::Json(&text), stages)
        }
        19 => calls.sequence(random, stages),
        _ => {
            let store = corpus.changed_store(random, engine_id);
            if random.once_in(2) {
                backend.stored(&store, stages)
            } else {
                backend.graph(random, Input::Bytes(&store), stages)
            }
        }
    }
}
