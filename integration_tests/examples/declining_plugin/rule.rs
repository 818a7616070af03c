//! Rules: which graphs are declined, at which call, and the reason that is given.

use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};

use hipdnn_schemas::{Graph, Operation};

/// The call at which a declined graph is declined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The engine is not applicable to the graph.
    #[default]
    Applicable,
    /// The engine is applicable, and building its plan fails.
    Plan,
    /// The plan is built, and its execution fails.
    Execute,
}

/// Conditions of which any declines a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    /// Every graph of this many that are asked about.
    graphs: Option<u64>,
    /// One operation of this many, told by what it is and by its tensors.
    operations: Option<u64>,
    /// More operations than this.
    nodes: Option<usize>,
    /// A tensor of more elements than this.
    elements: Option<usize>,
    /// Operations of these kinds; of `Pointwise`, also of one mode.
    kinds: Vec<String>,
    /// Stage at which it is declined.
    pub stage: Stage,
}

impl Rule {
    /// Reads `graphs=N operations=N nodes=N elements=N kinds=A+Pointwise.Mode at=applicable|plan|execute`, all optional;
    /// an empty text declines nothing.
    pub(crate) fn parse(text: &str) -> Result<Rule, String> {
        let mut rule = Rule::default();
        for clause in text.split_whitespace() {
            let (name, value) = clause.split_once('=').ok_or_else(|| format!("expected name=value, got {clause:?}"))?;
            let number = || match value.parse::<u64>() {
                Ok(number) if number > 0 || name == "nodes" || name == "elements" => Ok(number),
                _ => Err(format!("{name}: expected a number, got {value:?}")),
            };
            match name {
                "graphs" => rule.graphs = Some(number()?),
                "operations" => rule.operations = Some(number()?),
                "nodes" => rule.nodes = Some(number()? as usize),
                "elements" => rule.elements = Some(number()? as usize),
                "kinds" => rule.kinds = value.split('+').map(str::to_string).collect(),
                "at" => {
                    rule.stage = match value {
                        "applicable" => Stage::Applicable,
                        "plan" => Stage::Plan,
                        "execute" => Stage::Execute,
                        _ => return Err(format!("at: expected applicable, plan or execute, got {value:?}")),
                    }
                }
                _ => return Err(format!("expected a condition, got {name:?}")),
            }
        }
        Ok(rule)
    }

    /// Reason for declining a graph, which is the `turn`th that is asked about; `None` if it is not declined.
    pub(crate) fn declines(&self, graph: &Graph, turn: u64) -> Option<String> {
        if self.graphs.is_some_and(|every| turn.is_multiple_of(every)) {
            return Some(format!("this is graph {turn}"));
        }
        if let Some(most) = self.nodes
            && graph.nodes().len() > most
        {
            return Some(format!("expected at most {most} operations, got {}", graph.nodes().len()));
        }
        if let Some(most) = self.elements
            && let Some(tensor) = graph.tensors().iter().find(|tensor| tensor.elements() > most)
        {
            return Some(format!("expected at most {most} elements, got {:?}", tensor.dims()));
        }
        for node in graph.nodes() {
            let kind = kind(&node.operation);
            if self.kinds.iter().any(|other| *other == kind || kind.split('.').next() == Some(other)) {
                return Some(format!("{kind} is declined"));
            }
            if self.operations.is_some_and(|every| digest(graph, &node.operation).is_multiple_of(every)) {
                return Some(format!("this {kind} is declined"));
            }
        }
        None
    }
}

/// An operation's kind; of a pointwise one with its mode.
fn kind(operation: &Operation) -> String {
    let kind = operation.kind().trim_end_matches("Attributes").to_string();
    match operation {
        Operation::Pointwise(pointwise) => format!("Pointwise.{:?}", pointwise.mode),
        _ => kind,
    }
}

/// A number that is the same for the same operation on tensors of the same types, extents and strides.
fn digest(graph: &Graph, operation: &Operation) -> u64 {
    let mut text = kind(operation);
    for uid in operation.inputs().into_iter().chain(operation.outputs()) {
        let tensor = graph.tensor(uid);
        // What is an intermediate in one graph is an argument in another: its type there may be a wider one.
        let _ = write!(text, " {:?}", tensor.dims());
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use hipdnn_schemas::{DataType, GraphBuilder, Pointwise, PointwiseMode, TensorDef};

    use super::*;

    /// `exp(-x)` of `extent` numbers.
    fn chain(extent: i64) -> Graph {
        let mut builder = GraphBuilder::new("chain").compute(DataType::Float);
        let x = builder.tensor(TensorDef::new(1, DataType::Float, &[extent]));
        let between = builder.tensor(TensorDef::new(2, DataType::Float, &[extent]).intermediate());
        let y = builder.tensor(TensorDef::new(3, DataType::Float, &[extent]));
        builder.pointwise(Pointwise::unary(PointwiseMode::Neg, x, between));
        builder.pointwise(Pointwise::unary(PointwiseMode::Exp, between, y));
        builder.build().expect("a chain is a graph")
    }

    #[test]
    fn any_condition_declines() {
        let graph = chain(8);
        for (rule, turn, want) in [
            ("", 1, None),
            ("graphs=3", 3, Some("this is graph 3")),
            ("graphs=3", 4, None),
            ("nodes=1", 1, Some("expected at most 1 operations, got 2")),
            ("nodes=2", 1, None),
            ("elements=7", 1, Some("expected at most 7 elements, got [8]")),
            ("elements=8 nodes=2", 1, None),
            ("kinds=Reduction+Pointwise.Exp", 1, Some("Pointwise.Exp is declined")),
            ("kinds=Pointwise", 1, Some("Pointwise.Neg is declined")),
            ("kinds=Pointwise.Abs", 1, None),
            ("operations=1 at=plan", 1, Some("this Pointwise.Neg is declined")),
        ] {
            let rule = Rule::parse(rule).expect("a rule");
            assert_eq!(rule.declines(&graph, turn).as_deref(), want, "{rule:?}");
        }
        let rule = Rule::parse("operations=3").expect("a rule");
        let declined = (1..=60).filter(|extent| rule.declines(&chain(*extent), 1).is_some()).count();
        assert!((20..50).contains(&declined), "two of three operations are not declined: {declined} of 60 graphs");
    }

    #[test]
    fn what_is_no_rule_says_so() {
        for (text, want) in [
            ("graphs", "expected name=value, got \"graphs\""),
            ("graphs=0", "graphs: expected a number, got \"0\""),
            ("nodes=many", "nodes: expected a number, got \"many\""),
            ("at=once", "at: expected applicable, plan or execute, got \"once\""),
            ("sizes=3", "expected a condition, got \"sizes\""),
        ] {
            assert_eq!(Rule::parse(text), Err(want.to_string()), "{text}");
        }
        assert_eq!(Rule::parse("at=execute").map(|rule| rule.stage), Ok(Stage::Execute));
    }
}
