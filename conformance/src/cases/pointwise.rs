//! Pointwise nodes alone.

use hipdnn_schemas::{DataType, Operation, Pointwise, PointwiseMode};
use serde::Deserialize;

use super::net::Net;
use super::{Case, Layout, tail, text};
use crate::inputs::Fill;

/// A table of pointwise nodes: every combination of its lists is a case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// The first part of the names.
    name: String,
    /// Modes with parameters, or `unary`, `binary` and `backward` for all of these.
    modes: Vec<String>,
    /// The operands' types with commas between them, then `>` and the result's. Operands beyond the list take its last
    /// type; without `>`, the result has the first operand's. `/` and a type give the node's compute type.
    types: Vec<String>,
    layouts: Vec<Layout>,
    /// The result's extents, then `|` and those of each further operand; the last ones repeat.
    shapes: Vec<String>,
    /// Values to choose from, other than those that suit the mode.
    #[serde(default)]
    values: Vec<f64>,
}

impl Table {
    pub(super) fn expand(&self, cases: &mut Vec<Case>) -> Result<(), String> {
        let mut modes = Vec::new();
        for mode in &self.modes {
            let of = |wanted: fn(PointwiseMode) -> bool| {
                let all = PointwiseMode::ALL
                    .iter()
                    .copied()
                    .filter(move |mode| *mode != PointwiseMode::Unset && wanted(*mode));
                all.map(|mode| mode.json_name().to_string()).collect::<Vec<_>>()
            };
            match mode.as_str() {
                "unary" => modes.extend(of(|mode| mode.operands() == 1 && mode != PointwiseMode::GenIndex)),
                "binary" => modes.extend(of(|mode| mode.operands() == 2 && !mode.json_name().ends_with("_bwd"))),
                "backward" => modes.extend(of(|mode| mode.json_name().ends_with("_bwd"))),
                other => modes.push(other.to_string()),
            }
        }
        for mode in &modes {
            for shape in &self.shapes {
                for types in &self.types {
                    for layout in &self.layouts {
                        let case = self.case(mode, shape, types, *layout);
                        cases.push(case.map_err(|problem| format!("{}: {mode}: {shape}: {problem}", self.name))?);
                    }
                }
            }
        }
        Ok(())
    }

    fn case(&self, mode: &str, shape: &str, types: &str, layout: Layout) -> Result<Case, String> {
        let (name, parameters) = mode.split_once(':').unwrap_or((mode, ""));
        let mode_number = tail::mode(name)?;
        let shapes: Vec<Vec<i64>> =
            shape.split('|').map(|part| text::numbers(part.trim())).collect::<Result<_, _>>()?;
        let (rest, compute) = types.split_once('/').unwrap_or((types, "float"));
        let (operands, result) = rest.split_once('>').unwrap_or((rest, ""));
        let operands: Vec<DataType> = operands.split(',').map(text::data_type).collect::<Result<_, _>>()?;
        let result = if result.is_empty() { operands[0] } else { text::data_type(result)? };
        let mut net = Net::new(text::data_type(compute)?);
        let count = mode_number.operands();
        let inputs: Vec<_> = (0..count)
            .map(|i| {
                let dims = if i == 0 && shapes.len() < 2 + usize::from(count == 1) {
                    &shapes[0]
                } else {
                    &shapes[i.min(shapes.len() - 1)]
                };
                net.real(&format!("in_{i}"), operands[i.min(operands.len() - 1)], dims, layout)
            })
            .collect();
        if !self.values.is_empty() {
            inputs.iter().for_each(|uid| net.fill(*uid, Fill::Choice(self.values.clone())));
        }
        // Extents of 1 broadcast in every operand: the result's are the greatest.
        let used = &shapes[..count.clamp(1, shapes.len())];
        let mut dims = used.iter().max_by_key(|dims| dims.len()).expect("at least one shape").clone();
        let rank = dims.len();
        for shape in used.iter().filter(|shape| shape.len() == rank) {
            dims.iter_mut().zip(shape).for_each(|(extent, other)| *extent = (*extent).max(*other));
        }
        let out = net.real("out", result, &dims, layout);
        let mut node = Pointwise {
            in_1: inputs.get(1).copied(),
            in_2: inputs.get(2).copied(),
            ..Pointwise::unary(mode_number, inputs[0], out)
        };
        tail::set_parameters(&mut node, parameters)?;
        net.node(Operation::Pointwise(node));
        let values = if self.values.is_empty() { "" } else { "/values" };
        let name = format!(
            "{}/{}/{}/{}/{}{values}",
            self.name,
            mode.replace([':', ','], "-"),
            layout.name(),
            types.replace(',', "-").replace('>', "-to-").replace('/', "-in-"),
            text::dashed(&shape.replace(',', "x").replace('|', "and"))
        );
        Ok(Case::new(name, net))
    }
}
