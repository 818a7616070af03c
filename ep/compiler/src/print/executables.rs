//! Executables: steps of equal graphs, engines and types share one, which a private function stands for.

use std::collections::HashMap;

use super::{Linked, Step, text};

/// The executables of a program.
pub(super) struct Executables<'a> {
    /// The first step of each.
    distinct: Vec<&'a Step<'a>>,
    /// Executables by step.
    numbers: Vec<usize>,
}

impl<'a> Executables<'a> {
    pub(super) fn of(linked: &'a Linked<'a>) -> Executables<'a> {
        let mut known: HashMap<(Vec<u8>, &str), usize> = HashMap::new();
        let mut executables = Executables { distinct: Vec::new(), numbers: Vec::new() };
        for step in &linked.steps {
            let next = executables.distinct.len();
            let number = *known.entry((step.graph.to_bytes_without_names(), step.engine)).or_insert(next);
            if number == next {
                executables.distinct.push(step);
            }
            executables.numbers.push(number);
        }
        executables
    }

    /// The private functions: `types` gives those of a step's operands and results.
    pub(super) fn declare(&self, text: &mut text::Text, types: impl Fn(&Step<'_>) -> String) {
        for (number, step) in self.distinct.iter().enumerate() {
            let attributes = text::dictionary(&[
                ("hipdnn.engine".to_string(), text::quoted(step.engine)),
                ("hipdnn.workspace".to_string(), format!("{} : i64", step.workspace)),
            ]);
            text.line(1, format_args!("func.func private @graph_{number}{} attributes{attributes}", types(step)));
        }
    }

    /// The function that a step calls.
    pub(super) fn name(&self, step: usize) -> String {
        format!("@graph_{}", self.numbers[step])
    }
}

/// Attributes of a call: the number of its step, and the ONNX nodes that it computes.
pub(super) fn call_attributes(number: usize, step: &Step<'_>) -> String {
    text::dictionary(&[
        ("hipdnn.step".to_string(), format!("{number} : i64")),
        ("hipdnn.nodes".to_string(), text::strings(&step.labels())),
    ])
}
