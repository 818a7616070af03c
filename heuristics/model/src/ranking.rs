//! The order of candidates: by the cost model, or by that and what was measured.

use hipdnn_schemas::Graph;

use crate::cost::Model;
use crate::engine::{Configuration, find};
use crate::features::{self, COUNT};
use crate::store::Known;
use crate::table;

/// Gain from which on a setting is taken in place of an engine's defaults, in shares of their time.
pub const MARGIN: f64 = 0.2;

/// What an estimate comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Basis {
    /// The cost model alone.
    Model,
    /// Measurements of graphs like this one.
    Nearby {
        /// Number of measurements.
        count: usize,
        /// Distance of the nearest one, in powers of 2.
        distance: f64,
    },
    /// Trees.
    Trees,
    /// The engine's own prediction.
    Engine,
    /// Nothing is known of the engine: the cost model's words for one that fuses nothing.
    Unknown,
}

impl std::fmt::Display for Basis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Basis::Model => f.write_str("cost model"),
            Basis::Nearby { count, distance } => write!(f, "{count} measured nearby, the nearest {distance:.2} away"),
            Basis::Trees => f.write_str("trees"),
            Basis::Engine => f.write_str("the engine's own prediction"),
            Basis::Unknown => f.write_str("unknown engine"),
        }
    }
}

/// Estimated time of a configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// The configuration.
    pub configuration: Configuration,
    /// Seconds of an execution.
    pub seconds: f64,
    /// Where that comes from.
    pub basis: Basis,
}

/// The cost model's estimate of a configuration.
pub fn modeled(model: &Model, graph: &Graph, configuration: Configuration) -> Estimate {
    let basis = if model.knows(configuration.engine) { Basis::Model } else { Basis::Unknown };
    Estimate { seconds: model.seconds(graph, &configuration), configuration, basis }
}

/// An estimate by what was measured: by measurements nearby, else by trees; `None` without either.
pub fn learned(model: &Model, known: &Known, graph: &Graph, configuration: &Configuration) -> Option<Estimate> {
    let features = features::of(graph);
    let seconds = model.seconds(graph, configuration);
    let nearby = known.table.nearby(&table::key(&features), configuration.number());
    let (factor, basis) = match nearby {
        Some(nearby) => (nearby.score, Basis::Nearby { count: nearby.count, distance: nearby.distance }),
        None => (by_trees(model, known, &features, configuration)?, Basis::Trees),
    };
    Some(Estimate { configuration: configuration.clone(), seconds: seconds / factor, basis })
}

/// How many times as fast as the cost model says, by the trees: 2 to the power of their sum.
fn by_trees(model: &Model, known: &Known, features: &[f64; COUNT], configuration: &Configuration) -> Option<f64> {
    let trees = known.trees.as_ref()?;
    let engine = find(configuration.engine)?;
    let place = Configuration::all(configuration.engine).iter().position(|its| its == configuration)?;
    let on_host = engine.on_host || model.device.is_host;
    let mut all = features.to_vec();
    all.extend([place as f64, f64::from(u8::from(on_host))]);
    // A tree may say anything; a model is not wrong by a million.
    Some(trees.score(&all)?.clamp(-20.0, 20.0).exp2())
}

/// Candidates by the cost model, the fastest first, each with the configuration of it that is. Engines that nobody
/// knows come behind those that are known, in the order in which they were given: a guess is no reason to prefer one.
pub fn by_model(model: &Model, graph: &Graph, candidates: &[i64]) -> Vec<Estimate> {
    let best = |engine: &i64| {
        let all = Configuration::all(*engine).into_iter();
        best(all.map(|configuration| modeled(model, graph, configuration)).collect())
    };
    let mut order: Vec<Estimate> = candidates.iter().filter_map(best).collect();
    order.sort_by(|a, b| {
        let key = |estimate: &Estimate| match estimate.basis {
            Basis::Unknown => (true, 0.0),
            _ => (false, estimate.seconds),
        };
        // A total order, whatever trees in files may have made of the seconds.
        let ((unknown, seconds), (others_unknown, others_seconds)) = (key(a), key(b));
        unknown.cmp(&others_unknown).then(seconds.total_cmp(&others_seconds))
    });
    order
}

/// Candidates by what was measured, the fastest first. An engine of which nothing was measured keeps the cost model's
/// estimate, and comes behind the others if nobody knows it. `None` if nothing was measured of any: then it is the cost
/// model's turn.
pub fn by_measurements(model: &Model, known: &Known, graph: &Graph, candidates: &[i64]) -> Option<Vec<Estimate>> {
    let mut any = false;
    let mut order = Vec::new();
    for engine in candidates {
        let all = Configuration::all(*engine).into_iter();
        let found: Vec<Estimate> =
            all.filter_map(|its| learned(model, known, graph, &its)).filter(is_founded).collect();
        // Settings are compared with the defaults: without these there is nothing to compare.
        let plain = found.first().is_some_and(|estimate| estimate.configuration.is_plain());
        any |= plain;
        order.extend(match plain {
            true => best(found),
            false => Some(modeled(model, graph, Configuration::plain(*engine))),
        });
    }
    let unknown = |estimate: &Estimate| estimate.basis == Basis::Unknown;
    order.sort_by(|a: &Estimate, b| unknown(a).cmp(&unknown(b)).then_with(|| a.seconds.total_cmp(&b.seconds)));
    any.then_some(order)
}

/// True for what may decide: settings need more than one measurement, or one of a graph with equal features, since a
/// single one may have been disturbed, and defaults are never wrong by much.
fn is_founded(estimate: &Estimate) -> bool {
    match estimate.basis {
        Basis::Nearby { count, distance } => estimate.configuration.is_plain() || count > 1 || distance == 0.0,
        _ => true,
    }
}

/// The first of an engine's estimates, which is that of its defaults, or the fastest one that gains more than the
/// margin on it.
fn best(estimates: Vec<Estimate>) -> Option<Estimate> {
    let mut all = estimates.into_iter();
    let plain = all.next()?;
    let fastest = all.min_by(|a, b| a.seconds.total_cmp(&b.seconds));
    Some(match fastest {
        Some(fastest) if fastest.seconds < plain.seconds * (1.0 - MARGIN) => fastest,
        _ => plain,
    })
}

#[cfg(test)]
mod tests;
