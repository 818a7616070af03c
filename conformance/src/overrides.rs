//! Override shapes: a plan's executions with other shapes than its graph declares give the bits of plans for these shapes.
//!
//! Shapes are found by chance: some extents of what a graph reads become smaller, and those of all that it computes follow.

use hipdnn_schemas::{Extents, Graph, GraphDef, ShapeOverride, TensorUid, packed_strides};

use crate::cases::Case;
use crate::inputs::{self, Random};
use crate::plugin::take_log;
use crate::run::{Engine, Execution, Failure, Outcome, outputs, reason};

/// The shape of a tensor.
#[derive(Clone, Debug, PartialEq)]
struct Shape {
    uid: TensorUid,
    dims: Extents,
    strides: Extents,
}

impl Shape {
    fn borrowed(&self) -> ShapeOverride<'_> {
        ShapeOverride { uid: self.uid, dims: &self.dims, strides: &self.strides }
    }
}

/// Tries for one shape: random extents fit few operations together.
const TRIES: usize = 60;

impl Engine {
    /// Executes a case's graph with `count` override shapes, and with the first of them once more.
    pub fn override_shapes(&self, case: &Case, count: usize) -> Outcome {
        take_log();
        self.compare(case, count).unwrap_or_else(|reason| Outcome::Failed { reason })
    }

    fn compare(&self, case: &Case, count: usize) -> Result<Outcome, Failure> {
        let declined = |reason: &str| Ok(Outcome::Declined { reason: reason.into() });
        let def = GraphDef { is_override_shape_enabled: true, ..case.graph.clone() };
        let Ok(graph) = Graph::new(def.clone()) else { return declined("it is no graph") };
        let bytes = def.to_bytes();
        let ids = self.plugin.applicable(&bytes).map_err(|problem| format!("asking the engine: {problem}"))?;
        if !ids.contains(&self.id) {
            return Ok(Outcome::Declined { reason: reason(&take_log(), &self.name) });
        }
        let (config, _) = self.configuration(&bytes)?;
        let plan = self.plugin.plan(&config, &bytes).map_err(|problem| format!("no plan after a claim: {problem}"))?;
        let mut random = Random::new(case.seed ^ 0x0be7_71de);
        let mut shapes: Vec<Vec<Shape>> = (0..count).filter_map(|_| smaller(&graph, &mut random)).collect();
        let Some(first) = shapes.first().cloned() else { return declined("no other shapes of it were found") };
        shapes.push(first);
        let mut compared = 0;
        for shapes in &shapes {
            let within = |problem: Failure| format!("with {}: {problem}", text(shapes));
            let shapes: Vec<_> = shapes.iter().map(Shape::borrowed).collect();
            let small = graph.overridden(&shapes).map_err(|problem| within(problem.to_string()))?;
            let bytes = small.def().to_bytes();
            let ids = self.plugin.applicable(&bytes).map_err(within)?;
            let given = inputs::generate(&small, case.seed, &case.fills);
            let mut run = Execution::new(&self.memory, &small, &given).map_err(within)?;
            let got = run.execute_with(&plan, &shapes, 0xff);
            if !ids.contains(&self.id) {
                // What the engine declines as a graph it has to refuse as an execution.
                let is_said = |message: &String| {
                    message
                        .strip_prefix("executing after a claim: ")
                        .is_some_and(|said| !said.trim_end().ends_with(':'))
                };
                match got {
                    Err(message) if is_said(&message) => continue,
                    _ => return Err(within("the engine declines the graph of these shapes, and executes it".into())),
                }
            }
            let got = got.map_err(within)?;
            let plan = self.plugin.plan(&config, &bytes).map_err(within)?;
            let want = run.execute(&plan, 0xff).map_err(within)?;
            for (uid, want) in &want {
                if let Some(at) = want.iter().zip(&got[uid]).position(|(want, got)| want != got) {
                    return Err(within(format!(
                        "tensor {uid}: other bits than a plan for these shapes, from byte {at}"
                    )));
                }
            }
            compared += 1;
        }
        // What the plan does with the declared shapes is not changed by other executions.
        let given = inputs::generate(&graph, case.seed, &case.fills);
        let mut run = Execution::new(&self.memory, &graph, &given)?;
        let got = run.execute(&plan, 0xff)?;
        let plain = GraphDef { is_override_shape_enabled: false, ..def }.to_bytes();
        let plain = self.plugin.plan(&config, &plain)?;
        if run.execute(&plain, 0xff)? != got {
            return Err("the declared shapes give other bits than a graph without override shapes".into());
        }
        if compared == 0 {
            return declined("the engine declines every other shape of it");
        }
        Ok(Outcome::Passed { worst: 0.0, vague: 0.0, workspace_bytes: plan.workspace_bytes })
    }
}

fn text(shapes: &[Shape]) -> String {
    let one = |shape: &Shape| format!("tensor {} of {:?} by {:?}", shape.uid, shape.dims, shape.strides);
    shapes.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Override shapes for all tensors whose shape is another one than declared; `None` if none were found that fit.
fn smaller(graph: &Graph, random: &mut Random) -> Option<Vec<Shape>> {
    // Extents of whatever is computed are to follow.
    let mut def = graph.def();
    for tensor in outputs(graph) {
        let at = def.tensors.iter().position(|other| other.uid == tensor.uid())?;
        def.tensors[at].is_virtual = true;
    }
    let computed = Graph::new(def).ok()?;
    let inputs: Vec<_> = inputs::needed(graph).filter(|tensor| !tensor.is_runtime_pass_by_value()).collect();
    for _ in 0..TRIES {
        let mut dims: Vec<Extents> = inputs.iter().map(|tensor| tensor.def().dims.clone()).collect();
        for _ in 0..1 + random.below(3) {
            let at = random.below(dims.len());
            let axis = random.below(dims[at].len());
            let extent = dims[at][axis];
            let new = 1 + random.below(extent as usize) as i64;
            // Extents that are equal most likely belong together, in the same dimension at least.
            let everywhere = random.one_in(2);
            for (other, extents) in dims.iter_mut().enumerate() {
                for (place, old) in extents.iter_mut().enumerate().filter(|(_, old)| **old == extent) {
                    if everywhere || place == axis || (other, place) == (at, axis) {
                        *old = new;
                    }
                }
            }
        }
        let shapes: Vec<Shape> = inputs
            .iter()
            .zip(dims)
            .map(|(tensor, dims)| {
                // A part of a larger tensor, or a packed one.
                let strides = if random.one_in(2) { tensor.def().strides.clone() } else { packed_strides(&dims) };
                Shape { uid: tensor.uid(), dims, strides }
            })
            .collect();
        let borrowed: Vec<_> = shapes.iter().map(Shape::borrowed).collect();
        let Ok(found) = computed.overridden(&borrowed) else { continue };
        let of_outputs = outputs(graph).map(|tensor| {
            let declared = tensor.def();
            let follows = found.tensor(tensor.uid()).def();
            let strides = if random.one_in(2) { &declared.strides } else { &follows.strides };
            Shape { uid: tensor.uid(), dims: follows.dims.clone(), strides: strides.clone() }
        });
        let mut all: Vec<Shape> = shapes.iter().cloned().chain(of_outputs).collect();
        all.retain(|shape| {
            let declared = graph.tensor(shape.uid).def();
            (&shape.dims, &shape.strides) != (&declared.dims, &declared.strides)
        });
        let is_smaller = all.iter().any(|shape| shape.dims != graph.tensor(shape.uid).def().dims);
        let borrowed: Vec<_> = all.iter().map(Shape::borrowed).collect();
        if is_smaller && graph.overridden(&borrowed).is_ok() {
            return Some(all);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random;

    /// Most random graphs have other shapes, all of which are right and smaller.
    #[test]
    fn random_graphs_have_smaller_shapes() {
        let mut found = 0;
        for seed in 0..100 {
            let case = random::case(seed);
            let def = GraphDef { is_override_shape_enabled: true, ..case.graph };
            let graph = Graph::new(def).expect("random graphs are right");
            let Some(shapes) = smaller(&graph, &mut Random::new(seed)) else { continue };
            found += 1;
            let borrowed: Vec<_> = shapes.iter().map(Shape::borrowed).collect();
            let small = graph.overridden(&borrowed).expect("they fit");
            assert!(shapes.iter().all(|shape| small.tensor(shape.uid).def().dims == shape.dims), "{seed}");
            let elements = |graph: &Graph| graph.tensors().iter().map(|tensor| tensor.elements()).sum::<usize>();
            assert!(elements(&small) < elements(&graph), "{seed}");
        }
        assert!(found >= 80, "{found} of 100");
    }
}
