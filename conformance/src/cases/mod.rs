//! The suite: graphs with names, made from the tables in `conformance/cases`.
//!
//! A table gives the shapes, types, layouts, modes and epilogues; the modules say how cases are made of them. Every
//! combination is a case, named by its parameters.

mod attention;
mod block_scale;
mod convolution;
mod layout;
mod matmul;
mod net;
mod node;
mod normalization;
mod pointwise;
mod reduction;
mod refused;
mod resample;
mod tail;
mod text;

use std::collections::{HashMap, HashSet};

use hipdnn_schemas::{GraphDef, TensorUid};
use serde::Deserialize;

use crate::inputs::{Fill, seed};
pub(crate) use attention::empty as attention_without_options;
pub use layout::Layout;
pub use net::Net;

/// A graph with its inputs, to be run or refused.
#[derive(Clone, Debug)]
pub struct Case {
    /// Unique name, from which the seed of the inputs derives.
    pub name: String,
    /// Graph to compute.
    pub graph: GraphDef,
    /// Seed of the inputs.
    pub seed: u64,
    /// Distributions of inputs other than those that suit their readers.
    pub fills: HashMap<TensorUid, Fill>,
    /// True if an engine must refuse the graph.
    pub refused: bool,
}

impl Case {
    /// A case with inputs as its operations want them.
    pub fn new(name: String, net: Net) -> Case {
        Case { seed: seed(&name), name, graph: net.def, fills: net.fills, refused: false }
    }
}

/// A file of tables.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    convolution: Vec<convolution::Table>,
    #[serde(default)]
    pointwise: Vec<pointwise::Table>,
    #[serde(default)]
    matmul: Vec<matmul::Table>,
    #[serde(default)]
    batchnorm: Vec<normalization::Batchnorm>,
    #[serde(default)]
    layernorm: Vec<normalization::Rows>,
    #[serde(default)]
    rmsnorm: Vec<normalization::Rows>,
    #[serde(default)]
    reduction: Vec<reduction::Table>,
    #[serde(default)]
    resample: Vec<resample::Table>,
    #[serde(default)]
    dequantize: Vec<block_scale::Dequantize>,
    #[serde(default)]
    quantize: Vec<block_scale::Quantize>,
    #[serde(default)]
    attention: Vec<attention::Table>,
    #[serde(default)]
    node: Vec<node::Table>,
    #[serde(default)]
    refused: Vec<refused::Table>,
}

/// The tables, by the names of their files.
const FILES: &[(&str, &str)] = &[
    ("incumbent.toml", include_str!("../../cases/incumbent.toml")),
    ("convolution.toml", include_str!("../../cases/convolution.toml")),
    ("pointwise.toml", include_str!("../../cases/pointwise.toml")),
    ("others.toml", include_str!("../../cases/others.toml")),
];

/// Every case, in the order of the tables.
///
/// # Errors
/// If a table can't be read, or two cases have the same name.
pub fn all() -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    for (name, text) in FILES {
        let file: File = toml::from_str(text).map_err(|problem| format!("{name}: {problem}"))?;
        expand(file, &mut cases).map_err(|problem| format!("{name}: {problem}"))?;
    }
    let mut names = HashSet::new();
    match cases.iter().find(|case| !names.insert(case.name.as_str())) {
        Some(twice) => Err(format!("two cases are called {}", twice.name)),
        None => Ok(cases),
    }
}

fn expand(file: File, cases: &mut Vec<Case>) -> Result<(), String> {
    file.convolution.iter().try_for_each(|table| table.expand(cases))?;
    file.pointwise.iter().try_for_each(|table| table.expand(cases))?;
    file.matmul.iter().try_for_each(|table| table.expand(cases))?;
    file.batchnorm.iter().try_for_each(|table| table.expand(cases))?;
    file.layernorm.iter().try_for_each(|table| table.layernorm(cases))?;
    file.rmsnorm.iter().try_for_each(|table| table.rmsnorm(cases))?;
    file.reduction.iter().try_for_each(|table| table.expand(cases))?;
    file.resample.iter().try_for_each(|table| table.expand(cases))?;
    file.dequantize.iter().try_for_each(|table| table.expand(cases))?;
    file.quantize.iter().try_for_each(|table| table.expand(cases))?;
    file.attention.iter().try_for_each(|table| table.expand(cases))?;
    file.node.iter().try_for_each(|table| table.expand(cases))?;
    file.refused.iter().try_for_each(|table| table.expand(cases))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::execute::execute;
    use crate::inputs;

    #[test]
    fn every_case_is_a_graph_that_the_executor_knows() {
        let cases = all().expect("the tables are right");
        assert!(cases.len() >= 3000, "{} cases", cases.len());
        for case in cases.iter().filter(|case| !case.refused) {
            let graph = hipdnn_schemas::Graph::new(case.graph.clone());
            let graph = graph.unwrap_or_else(|problem| panic!("{}: {problem}", case.name));
            // Computing all of them takes minutes; a seeded choice keeps the executor from falling behind the tables.
            if case.seed % 40 == 0 {
                let given = inputs::generate(&graph, case.seed, &case.fills);
                execute(&graph, &inputs::arrays(&graph, &given))
                    .unwrap_or_else(|problem| panic!("{}: {problem}", case.name));
            }
        }
    }

    /// The incumbent's suite, by the number of its bundles.
    #[test]
    fn the_incumbent_s_families_have_their_counts() {
        let mut counts = BTreeMap::new();
        for case in all().expect("the tables are right") {
            *counts.entry(case.name.split('/').next().expect("a first part").to_string()).or_insert(0) += 1;
        }
        for (family, wanted) in [
            ("conv-fwd", 108),
            ("conv-fused", 1080),
            ("conv-data", 108),
            ("conv-weights", 109),
            ("batchnorm-training", 842),
            ("batchnorm-backward", 193),
            ("batchnorm-inference", 471),
            ("batchnorm-variance", 266),
            ("pointwise", 6),
        ] {
            assert_eq!(counts.get(family), Some(&wanted), "{family} of {counts:?}");
        }
    }
}
