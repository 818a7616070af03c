//! `run`: the results of a graph, and their comparison with a reference.

use std::collections::HashMap;
use std::fmt::Write;

use hipdnn_conformance::execute::{Results, execute};
use hipdnn_conformance::format;
use hipdnn_conformance::inputs::arrays;
use hipdnn_conformance::run::{Execution, outputs};
use hipdnn_schemas::{Graph, TensorUid};

use crate::arguments::Run;
use crate::compare::{self, Outputs};
use crate::content::{Source, read_graph};
use crate::engines::{self, Loaded, Settings};
use crate::workplace::Workplace;
use crate::{Answer, tensors, text};

/// The name of the executor in double precision.
const REFERENCE: &str = "reference";

/// Number of copies of the tensors in a run: inputs, results and guards; more with the reference's bounded numbers.
const COPIES: u128 = 3;
const COPIES_WITH_REFERENCE: u128 = 20;

/// Executes, compares and saves.
pub(crate) fn run(arguments: &Run) -> Result<Answer, String> {
    let source = read_graph(&arguments.file)?;
    let settings = Settings::parse(&arguments.knobs)?;
    let tolerance = arguments.tolerance;
    if let Some(tolerance) = tolerance.filter(|tolerance| !(0.0..=1.0).contains(tolerance)) {
        return Err(format!("--tolerance: expected a share from 0 to 1, got {tolerance}"));
    }
    let wants = |name: &Option<String>| name.as_deref() == Some(REFERENCE);
    let (only_reference, against_reference) = (wants(&arguments.engine), wants(&arguments.against));
    let needs_reference = only_reference || against_reference || (arguments.against.is_some() && tolerance.is_none());
    tensors::check_size(&source.graph, if needs_reference { COPIES_WITH_REFERENCE } else { COPIES })?;
    let inputs = tensors::inputs(&source.graph, arguments.seed, &arguments.inputs)?;
    let plugins = match only_reference && (against_reference || arguments.against.is_none()) {
        true => Vec::new(),
        false => engines::open(&arguments.plugins.paths)?,
    };
    let work = Work { source: &source, plugins: &plugins, settings: &settings, inputs: &inputs };
    let place = Workplace::new(arguments.memory);

    let expected = match needs_reference {
        true => Some(reference(&source.graph, &inputs)),
        false => None,
    };
    let exact = || -> Result<Outputs, String> {
        let expected = expected.as_ref().expect("it was computed for whoever wants it").as_ref();
        Ok(stored(&source.graph, expected.map_err(String::clone)?))
    };
    let first = match only_reference {
        true => Ran { name: REFERENCE.into(), title: "the reference in double precision".into(), outputs: exact()? },
        false => work.run(arguments.engine.as_deref(), &place)?,
    };
    let mut text = format!("graph {}, seed {}\n\n{}\n", text::quoted(source.graph.name()), arguments.seed, first.title);
    text.push_str(&compare::summary(&source.graph, &first.outputs));
    let mut good = true;
    let mut second = None;
    if let Some(name) = &arguments.against {
        let other = match against_reference {
            true => None,
            false => Some(work.run(Some(name), &place)?),
        };
        good = judge(&mut text, &source.graph, &first, other.as_ref(), expected.as_ref(), tolerance)?;
        second = Some(match other {
            Some(other) => other,
            None => Ran { name: REFERENCE.into(), title: String::new(), outputs: exact()? },
        });
    }
    if let Some(directory) = &arguments.save {
        tensors::save(directory, "input", &source.graph, &inputs)?;
        for ran in [Some(&first), second.as_ref()].into_iter().flatten() {
            tensors::save(directory, &ran.name, &source.graph, &ran.outputs)?;
        }
        let _ = writeln!(text, "\ninputs and results are in {}", directory.display());
    }
    Ok(Answer::new(text, good))
}

/// Result of an engine.
struct Ran {
    name: String,
    title: String,
    outputs: Outputs,
}

/// Context that runs share.
struct Work<'a> {
    source: &'a Source,
    plugins: &'a [Loaded],
    settings: &'a Settings,
    inputs: &'a HashMap<TensorUid, Vec<u8>>,
}

impl Work<'_> {
    /// Runs the engine of that name, or the first that takes the graph.
    fn run(&self, name: Option<&str>, place: &Workplace) -> Result<Ran, String> {
        let preferred = self.source.graph.def().preferred_engine_id;
        let (engine, details) = engines::choose(self.plugins, preferred, name, self.source)?;
        self.settings.check(&[&details])?;
        let config = engine.config(&details, self.settings)?;
        let fail = |problem: String| format!("{}: {problem}", engine.name);
        let plan = engine.loaded.plugin.plan(&config, &self.source.bytes).map_err(fail)?;
        let memory = place.of(engine.name)?;
        // Garbage tells what was not computed: all ones are NaN in every float.
        let outputs = Execution::new(memory, &self.source.graph, self.inputs)
            .and_then(|mut execution| execution.execute(&plan, 0xff))
            .map_err(fail)?;
        let title =
            format!("{} with {} of workspace", text::printable(engine.name), text::bytes(plan.workspace_bytes as u128));
        Ok(Ran { name: engine.name.to_string(), title, outputs })
    }
}

/// Adds the comparison to the text; `false` if results are further apart than they may be.
fn judge(
    text: &mut String,
    graph: &Graph,
    first: &Ran,
    other: Option<&Ran>,
    expected: Option<&Result<Results, String>>,
    tolerance: Option<f64>,
) -> Result<bool, String> {
    let mut good = true;
    let mut section = |heading: String, wanted: &str, differences: Vec<compare::Difference>| {
        let _ = writeln!(text, "\n{heading}");
        text.push_str(&compare::table(&differences, wanted));
        good &= compare::agree(&differences);
    };
    match (other, expected, tolerance) {
        (None, Some(expected), _) => {
            let expected = expected.as_ref().map_err(String::clone)?;
            let heading = format!("{} against double precision, with derived bounds", first.name);
            section(heading, "exact", compare::with_reference(graph, expected, &first.outputs));
        }
        (Some(other), Some(Ok(expected)), None) => {
            let heading = format!("{} against {}, each with its derived bound", first.name, other.name);
            section(heading, "other", compare::with_bounds(graph, expected, &first.outputs, &other.outputs));
            for ran in [first, other] {
                let heading = format!("{} against double precision", ran.name);
                section(heading, "exact", compare::with_reference(graph, expected, &ran.outputs));
            }
        }
        (Some(_), Some(Err(problem)), None) => {
            return Err(format!("{problem}; --tolerance compares without the reference"));
        }
        (Some(other), _, Some(tolerance)) => {
            let heading = format!("{} against {}, within {tolerance} of the largest magnitude", first.name, other.name);
            section(heading, "other", compare::with_tolerance(graph, tolerance, &first.outputs, &other.outputs));
        }
        (_, None, _) => unreachable!("the reference is computed unless a tolerance is given for another engine"),
    }
    text.push_str(if good { "\nall within their bounds\n" } else { "\nNOT within their bounds\n" });
    Ok(good)
}

/// Reference results, with bounds.
fn reference(graph: &Graph, inputs: &HashMap<TensorUid, Vec<u8>>) -> Result<Results, String> {
    execute(graph, &arrays(graph, inputs))
        .map_err(|problem| format!("the reference does not know the graph: {problem}"))
}

/// The reference's results as their tensors' types hold them.
fn stored(graph: &Graph, expected: &Results) -> Outputs {
    let bytes = |tensor: &hipdnn_schemas::Tensor| {
        let mut bytes = vec![0; tensor.span_bytes()];
        let mut numbers = expected[&tensor.uid()].data.iter();
        hipdnn_conformance::array::each_index(tensor.dims(), |at| {
            let place = at.iter().zip(tensor.strides()).map(|(i, stride)| i * stride).sum();
            if let Some(number) = numbers.next() {
                format::store(tensor.data_type(), &mut bytes, place, number.value);
            }
        });
        (tensor.uid(), bytes)
    };
    outputs(graph).map(bytes).collect()
}
