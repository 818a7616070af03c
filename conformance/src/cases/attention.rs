//! Attention.

use hipdnn_schemas::{DataType, Operation, Sdpa, TensorUid};
use serde::Deserialize;

use super::net::Net;
use super::{Case, Layout, text};

/// A table of attentions: every combination of its lists is a case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// The first part of the names.
    name: String,
    types: Vec<String>,
    layouts: Vec<Layout>,
    /// `batch,heads,queries,depth * heads,keys,depth of values`.
    shapes: Vec<String>,
    /// Words: causal, bottom-right, mask, mask-row, scale, scale-tensor, stats, padding.
    options: Vec<String>,
}

impl Table {
    pub(super) fn expand(&self, cases: &mut Vec<Case>) -> Result<(), String> {
        for shape in &self.shapes {
            for types in &self.types {
                for layout in &self.layouts {
                    for options in &self.options {
                        cases.push(self.case(shape, types, *layout, options)?);
                    }
                }
            }
        }
        Ok(())
    }

    fn case(&self, shape: &str, types: &str, layout: Layout, options: &str) -> Result<Case, String> {
        let wrong = || format!("expected batch,heads,queries,depth * heads,keys,depth, got {shape:?}");
        let (q, kv) = shape.split_once('*').ok_or_else(wrong)?;
        let (q, kv) = (text::numbers(q)?, text::numbers(kv)?);
        let (&[batch, heads, queries, depth], &[shared, keys, width]) = (&q[..], &kv[..]) else { return Err(wrong()) };
        let data_type = text::data_type(types)?;
        let mut net = Net::new(DataType::Float);
        let mut node = empty(
            net.real("q", data_type, &q, layout),
            net.real("k", data_type, &[batch, shared, keys, depth], layout),
            net.real("v", data_type, &[batch, shared, keys, width], layout),
        );
        for option in options.split_whitespace() {
            match option {
                "causal" => node.causal_mask = true,
                "bottom-right" => node.causal_mask_bottom_right = true,
                "mask" => {
                    node.attn_mask = Some(net.real("mask", DataType::Float, &[batch, heads, queries, keys], layout));
                }
                "mask-row" => {
                    node.attn_mask = Some(net.real("mask", DataType::Float, &[1, 1, queries, keys], Layout::First));
                }
                "scale" => node.attn_scale_value = Some(0.25),
                "scale-tensor" => node.scale = Some(net.scalar("scale", DataType::Float, 0.5)),
                "stats" => {
                    node.generate_stats = Some(true);
                    node.stats = Some(net.real("stats", DataType::Float, &[batch, heads, queries, 1], Layout::First));
                }
                "padding" => {
                    node.padding_mask = true;
                    node.seq_len_q = Some(net.real("seq_len_q", DataType::Int32, &[batch, 1, 1, 1], Layout::First));
                    node.seq_len_kv = Some(net.real("seq_len_kv", DataType::Int32, &[batch, 1, 1, 1], Layout::First));
                }
                other => return Err(format!("nobody knows the option {other}")),
            }
        }
        node.o = net.real("o", data_type, &[batch, heads, queries, width], layout);
        net.node(Operation::Sdpa(Box::new(node)));
        let options = if options.is_empty() { "plain".into() } else { text::dashed(options) };
        let name =
            format!("{}/{}/{types}/{}-kv{}/{options}", self.name, layout.name(), text::extents(&q), text::extents(&kv));
        Ok(Case::new(name, net))
    }
}

/// Attention without anything optional; the output is still to come.
pub(crate) fn empty(q: TensorUid, k: TensorUid, v: TensorUid) -> Sdpa {
    Sdpa::new(q, k, v, q)
}
