//! Reductions.

use hipdnn_schemas::{DataType, Operation, Reduction, ReductionMode};
use serde::Deserialize;

use super::net::Net;
use super::{Case, Layout, text};
use crate::inputs::Fill;

/// A table of reductions: every combination of its lists is a case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// The first part of the names.
    name: String,
    /// Modes, or `all`.
    modes: Vec<String>,
    /// `in`, or `in>out`.
    types: Vec<String>,
    layouts: Vec<Layout>,
    /// `in extents > out extents`.
    shapes: Vec<String>,
    /// Values to choose from, other than those that suit the mode.
    #[serde(default)]
    values: Vec<f64>,
}

impl Table {
    pub(super) fn expand(&self, cases: &mut Vec<Case>) -> Result<(), String> {
        let modes: Vec<ReductionMode> = match self.modes[..] {
            [ref all] if all == "all" => {
                ReductionMode::ALL.iter().copied().filter(|mode| *mode != ReductionMode::Unset).collect()
            }
            _ => {
                let known =
                    |name: &String| ReductionMode::from_json_name(name).ok_or_else(|| format!("no mode {name}"));
                self.modes.iter().map(known).collect::<Result<_, _>>()?
            }
        };
        for shape in &self.shapes {
            let (input, output) = shape.split_once('>').ok_or_else(|| format!("expected in > out, got {shape:?}"))?;
            let (input, output) = (text::numbers(input)?, text::numbers(output)?);
            for mode in &modes {
                for types in &self.types {
                    let (from, to) = types.split_once('>').unwrap_or((types, types));
                    let (from, to) = (text::data_type(from)?, text::data_type(to)?);
                    for layout in &self.layouts {
                        let mut net = Net::new(DataType::Float);
                        let x = net.real("in", from, &input, *layout);
                        let y = net.real("out", to, &output, *layout);
                        if !self.values.is_empty() {
                            net.fill(x, Fill::Choice(self.values.clone()));
                        }
                        let node = Reduction { mode: *mode, input: x, output: y, is_deterministic: false };
                        net.node(Operation::Reduction(node));
                        let values = if self.values.is_empty() { "" } else { "/values" };
                        let name = format!(
                            "{}/{mode}/{}/{}/{}-to-{}{values}",
                            self.name,
                            layout.name(),
                            types.replace('>', "-to-"),
                            text::extents(&input),
                            text::extents(&output)
                        );
                        cases.push(Case::new(name, net));
                    }
                }
            }
        }
        Ok(())
    }
}
