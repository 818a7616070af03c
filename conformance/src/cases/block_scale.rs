//! Blocks with a common scale.

use hipdnn_schemas::{BlockScaleDequantize, BlockScaleQuantize, DataType, Operation};
use serde::Deserialize;

use super::net::Net;
use super::{Case, Layout, text};

/// A table of dequantizations: every combination of its lists is a case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dequantize {
    /// The first part of the names.
    name: String,
    /// `x,scale,y`.
    types: Vec<String>,
    layouts: Vec<Layout>,
    /// The extents, then `|` and the block sizes of the last dimensions.
    shapes: Vec<String>,
    #[serde(default)]
    negative: bool,
}

impl Dequantize {
    pub(super) fn expand(&self, cases: &mut Vec<Case>) -> Result<(), String> {
        for shape in &self.shapes {
            let (dims, blocks) =
                shape.split_once('|').ok_or_else(|| format!("expected extents | blocks, got {shape:?}"))?;
            let (dims, blocks) = (text::numbers(dims.trim())?, text::numbers(blocks)?);
            for types in &self.types {
                let listed: Vec<DataType> = types.split(',').map(text::data_type).collect::<Result<_, _>>()?;
                let [tx, ts, ty] = listed[..] else { return Err(format!("expected three types, got {types:?}")) };
                for layout in &self.layouts {
                    let mut scale_dims = dims.clone();
                    let first = dims.len() - blocks.len();
                    for (axis, block) in blocks.iter().enumerate() {
                        scale_dims[first + axis] = (dims[first + axis] + block - 1) / block;
                    }
                    let mut net = Net::new(DataType::Float);
                    let node = BlockScaleDequantize {
                        x: net.real("x", tx, &dims, *layout),
                        scale: net.real("scale", ts, &scale_dims, *layout),
                        y: net.real("y", ty, &dims, *layout),
                        block_size: blocks.iter().map(|block| *block as i32).collect(),
                        is_negative_scale: self.negative,
                    };
                    net.node(Operation::BlockScaleDequantize(node));
                    let name = format!(
                        "{}/{}/{}/{}-block{}",
                        self.name,
                        layout.name(),
                        types.replace(',', "-"),
                        text::extents(&dims),
                        text::extents(&blocks)
                    );
                    cases.push(Case::new(name, net));
                }
            }
        }
        Ok(())
    }
}

/// A table of quantizations: every combination of its lists is a case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Quantize {
    /// The first part of the names.
    name: String,
    /// `x,y,scale`.
    types: Vec<String>,
    layouts: Vec<Layout>,
    /// The extents, then `|`, the block size, and the axis if it is not the last.
    shapes: Vec<String>,
}

impl Quantize {
    pub(super) fn expand(&self, cases: &mut Vec<Case>) -> Result<(), String> {
        for shape in &self.shapes {
            let (dims, rest) =
                shape.split_once('|').ok_or_else(|| format!("expected extents | block, got {shape:?}"))?;
            let (dims, rest) = (text::numbers(dims.trim())?, text::numbers(rest)?);
            let block = rest[0];
            let axis = rest.get(1).copied();
            for types in &self.types {
                let listed: Vec<DataType> = types.split(',').map(text::data_type).collect::<Result<_, _>>()?;
                let [tx, ty, ts] = listed[..] else { return Err(format!("expected three types, got {types:?}")) };
                for layout in &self.layouts {
                    let mut scale_dims = dims.clone();
                    let along = axis.unwrap_or(dims.len() as i64 - 1) as usize;
                    scale_dims[along] = (dims[along] + block - 1) / block;
                    let mut net = Net::new(DataType::Float);
                    let node = BlockScaleQuantize {
                        x: net.real("x", tx, &dims, *layout),
                        y: net.real("y", ty, &dims, *layout),
                        scale: net.real("scale", ts, &scale_dims, *layout),
                        block_size: block as i32,
                        axis,
                        transpose: false,
                    };
                    net.node(Operation::BlockScaleQuantize(node));
                    let name = format!(
                        "{}/{}/{}/{}-block{block}-axis{along}{}",
                        self.name,
                        layout.name(),
                        types.replace(',', "-"),
                        text::extents(&dims),
                        if axis.is_none() { "-by-default" } else { "" }
                    );
                    cases.push(Case::new(name, net));
                }
            }
        }
        Ok(())
    }
}
