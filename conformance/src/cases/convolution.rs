//! Convolutions in three directions, with epilogues.

use hipdnn_schemas::{ConvMode, Convolution, ConvolutionBwd, ConvolutionFwd, ConvolutionWrw, DataType, Operation};
use serde::Deserialize;

use super::net::Net;
use super::tail::{self, Types};
use super::text::{self, Words};
use super::{Case, Layout};
use crate::inputs::Fill;

/// A table of convolutions: every combination of its lists is a case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// The first part of the names.
    name: String,
    /// forward, data (gradient), weights (gradient).
    directions: Vec<Direction>,
    /// One type for all tensors, or `x,w,y`.
    types: Vec<String>,
    layouts: Vec<Layout>,
    /// `x extents * w extents`, then p(adding), s(tride), d(ilation), each for all axes or per axis; `p pre:post`.
    shapes: Vec<String>,
    /// Epilogues; see [`tail`].
    #[serde(default = "nothing")]
    tails: Vec<String>,
    /// True if the filter is flipped.
    #[serde(default)]
    flipped: bool,
    /// The type of intermediates; float if not given.
    #[serde(default)]
    intermediate: Option<String>,
    /// The type that nodes of the tail compute in: `io` for that of the tensors, float if not given.
    #[serde(default)]
    tail_compute: Option<String>,
    /// A range of values other than −1 to 1.
    #[serde(default)]
    range: Option<[f64; 2]>,
    /// Values to choose from instead of a range.
    #[serde(default)]
    values: Vec<f64>,
}

fn nothing() -> Vec<String> {
    vec![String::new()]
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Direction {
    Forward,
    Data,
    Weights,
}

impl Table {
    pub(super) fn expand(&self, cases: &mut Vec<Case>) -> Result<(), String> {
        for shape in &self.shapes {
            for tail in &self.tails {
                for types in &self.types {
                    for layout in &self.layouts {
                        for direction in &self.directions {
                            let case = self.case(shape, tail, types, *layout, *direction);
                            cases.push(case.map_err(|problem| format!("{}: {shape}: {tail}: {problem}", self.name))?);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn case(&self, shape: &str, tail: &str, types: &str, layout: Layout, direction: Direction) -> Result<Case, String> {
        let (x, w, convolution) = parse(shape)?;
        let convolution =
            if self.flipped { Convolution { mode: ConvMode::Convolution, ..convolution } } else { convolution };
        let mut y = vec![x[0], w[0]];
        for axis in 0..x.len() - 2 {
            y.push(convolution.output_extent(axis, x[axis + 2], w[axis + 2]).ok_or("the filter does not fit")?);
        }
        let listed: Vec<DataType> = types.split(',').map(text::data_type).collect::<Result<_, _>>()?;
        let [tx, tw, ty] = match listed[..] {
            [all] => [all; 3],
            [x, w, y] => [x, w, y],
            _ => return Err(format!("expected one type or three, got {types:?}")),
        };
        let intermediate = self.intermediate.as_deref().map_or(Ok(DataType::Float), |name| match name {
            "io" => Ok(ty),
            name => text::data_type(name),
        })?;
        let tail_compute = if self.tail_compute.as_deref() == Some("io") { ty } else { DataType::Float };
        let mut net = Net::new(DataType::Float);
        let (out, out_type) = match direction {
            Direction::Forward => (&y, ty),
            Direction::Data => (&x, tx),
            Direction::Weights => (&w, tw),
        };
        let tensor =
            |net: &mut Net, name: &str, data_type: DataType, dims: &[i64]| net.real(name, data_type, dims, layout);
        let inputs = match direction {
            Direction::Forward => [tensor(&mut net, "x", tx, &x), tensor(&mut net, "w", tw, &w)],
            Direction::Data => [tensor(&mut net, "dy", ty, &y), tensor(&mut net, "w", tw, &w)],
            Direction::Weights => [tensor(&mut net, "x", tx, &x), tensor(&mut net, "dy", ty, &y)],
        };
        let result = match tail.is_empty() {
            true => net.real("result", out_type, out, layout),
            false => net.intermediate("c", intermediate, out, layout),
        };
        let [a, b] = inputs;
        net.node(match direction {
            Direction::Forward => Operation::ConvolutionFwd(ConvolutionFwd { x: a, w: b, y: result, convolution }),
            Direction::Data => Operation::ConvolutionBwd(ConvolutionBwd { dy: a, w: b, dx: result, convolution }),
            Direction::Weights => Operation::ConvolutionWrw(ConvolutionWrw { x: a, dy: b, dw: result, convolution }),
        });
        tail::append(&mut net, result, out, layout, tail, Types { intermediate, io: out_type, compute: tail_compute })?;
        let fill = match (self.range, &self.values[..]) {
            (Some([low, high]), _) => Some(Fill::Uniform(low, high)),
            (None, []) => None,
            (None, values) => Some(Fill::Choice(values.to_vec())),
        };
        if let Some(fill) = fill {
            inputs.iter().for_each(|uid| net.fill(*uid, fill.clone()));
        }
        let several = self.directions.len() > 1;
        let direction = match direction {
            Direction::Forward if several => "forward/",
            Direction::Data if several => "data/",
            Direction::Weights if several => "weights/",
            _ => "",
        };
        let tail = if tail.is_empty() { String::new() } else { format!("/{}", text::dashed(tail)) };
        let values = match (self.range, self.values.is_empty()) {
            (Some([low, high]), _) => format!("/from{low}to{high}"),
            (None, true) => String::new(),
            (None, false) => "/values".into(),
        };
        let flip = if self.flipped { "/flipped" } else { "" };
        let name = format!(
            "{}/{direction}{}/{}/{}{tail}{flip}{values}",
            self.name,
            layout.name(),
            types.replace(',', "-"),
            text::dashed(&shape.replace(',', "x").replace('*', "by").replace(':', "_"))
        );
        Ok(Case::new(name, net))
    }
}

fn parse(shape: &str) -> Result<(Vec<i64>, Vec<i64>, Convolution), String> {
    let (x, rest) = shape.split_once('*').ok_or_else(|| format!("expected x * w, got {shape:?}"))?;
    let (w, rest) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
    let (x, w) = (text::numbers(x)?, text::numbers(w)?);
    let spatial = x.len() - 2;
    let mut words = Words::new(rest);
    let mut convolution = Convolution::new(spatial);
    if let Some(padding) = words.take("p") {
        (convolution.pre_padding, convolution.post_padding) = text::padding(padding, spatial)?;
    }
    if let Some(stride) = words.take("s") {
        convolution.stride = text::per_axis(stride, spatial)?;
    }
    if let Some(dilation) = words.take("d") {
        convolution.dilation = text::per_axis(dilation, spatial)?;
    }
    words.finish()?;
    Ok((x, w, convolution))
}
