//! Pooling and its gradient.

use hipdnn_schemas::{DataType, Operation, PaddingMode, ResampleBwd, ResampleFwd, ResampleMode};
use serde::Deserialize;

use super::net::Net;
use super::text::{self, Words};
use super::{Case, Layout};

/// A table of poolings: every combination of its lists is a case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// The first part of the names.
    name: String,
    directions: Vec<Direction>,
    modes: Vec<String>,
    types: Vec<String>,
    layouts: Vec<Layout>,
    /// The extents, then w(indow), s(tride), p(adding), each for all axes or per axis; `p pre:post`. `c1` rounds the
    /// result's extents up.
    shapes: Vec<String>,
    /// `neg_inf_pad` or `zero_pad`.
    #[serde(default = "least")]
    paddings: Vec<String>,
    /// The type of indices.
    #[serde(default = "int32")]
    index: String,
}

fn least() -> Vec<String> {
    vec!["neg_inf_pad".into()]
}

fn int32() -> String {
    "int32".into()
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Direction {
    Forward,
    /// With the places of maxima.
    Indexed,
    Backward,
}

impl Table {
    pub(super) fn expand(&self, cases: &mut Vec<Case>) -> Result<(), String> {
        for shape in &self.shapes {
            for mode in &self.modes {
                for types in &self.types {
                    for layout in &self.layouts {
                        for padding in &self.paddings {
                            for direction in &self.directions {
                                let case = self.case(shape, mode, types, *layout, padding, *direction);
                                cases.extend(case.map_err(|problem| format!("{}: {shape}: {problem}", self.name))?);
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn case(
        &self,
        shape: &str,
        mode: &str,
        types: &str,
        layout: Layout,
        padding: &str,
        direction: Direction,
    ) -> Result<Option<Case>, String> {
        let resample_mode = ResampleMode::from_json_name(mode).ok_or_else(|| format!("no mode {mode}"))?;
        let padding_mode = PaddingMode::from_json_name(padding).ok_or_else(|| format!("no padding {padding}"))?;
        let is_max = resample_mode == ResampleMode::MaxPool;
        if direction == Direction::Indexed && !is_max {
            return Ok(None);
        }
        let (dims, rest) =
            shape.split_once(' ').ok_or_else(|| format!("expected extents and a window, got {shape:?}"))?;
        let x = text::numbers(dims)?;
        let spatial = x.len() - 2;
        let mut words = Words::new(rest);
        let window = text::per_axis(
            words.take("w").ok_or_else(|| format!("expected a window such as w3, got {shape:?}"))?,
            spatial,
        )?;
        let stride = words.take("s").map_or(Ok(vec![1; spatial]), |text| text::per_axis(text, spatial))?;
        let (pre_padding, post_padding) =
            words.take("p").map_or(Ok((vec![0; spatial], vec![0; spatial])), |text| text::padding(text, spatial))?;
        let up = words.take("c").is_some();
        words.finish()?;
        let mut y = x[..2].to_vec();
        for axis in 0..spatial {
            let room = x[axis + 2] + pre_padding[axis] + post_padding[axis] - window[axis];
            y.push(if up { (room + stride[axis] - 1) / stride[axis] + 1 } else { room / stride[axis] + 1 });
        }
        let data_type = text::data_type(types)?;
        let mut net = Net::new(DataType::Float);
        let wants_index = direction == Direction::Indexed || (direction == Direction::Backward && is_max);
        let index_type = text::data_type(&self.index)?;
        let from = match direction {
            Direction::Backward => net.real("dy", data_type, &y, layout),
            _ => net.real("x", data_type, &x, layout),
        };
        let index = wants_index.then(|| net.real("index", index_type, &y, layout));
        let operation = match direction {
            Direction::Backward => Operation::ResampleBwd(ResampleBwd {
                dy: from,
                dx: net.real("dx", data_type, &x, layout),
                index,
                pre_padding,
                post_padding,
                stride,
                window,
                resample_mode,
                padding_mode,
            }),
            _ => Operation::ResampleFwd(ResampleFwd {
                x: from,
                y: net.real("y", data_type, &y, layout),
                index,
                pre_padding,
                post_padding,
                stride,
                window,
                resample_mode,
                padding_mode,
                generate_index: Some(wants_index),
            }),
        };
        net.node(operation);
        let kind = match direction {
            Direction::Forward => "forward",
            Direction::Indexed => "indexed",
            Direction::Backward => "backward",
        };
        let name = format!(
            "{}/{kind}/{mode}/{}/{types}/{}/{}",
            self.name,
            layout.name(),
            text::dashed(&shape.replace(',', "x").replace(':', "_")),
            padding
        );
        Ok(Some(Case::new(name, net)))
    }
}
