//! Attention.

use hipdnn_schemas::{AttentionImplementation, DataType, DiagonalAlignment, Operation, Sdpa};
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
        let wrong = || format!("wanted batch,heads,queries,depth * heads,keys,depth, came {shape:?}");
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
pub(crate) fn empty(q: hipdnn_schemas::TensorUid, k: hipdnn_schemas::TensorUid, v: hipdnn_schemas::TensorUid) -> Sdpa {
    Sdpa {
        q,
        k,
        v,
        o: q,
        attn_mask: None,
        scale: None,
        seq_len_q: None,
        seq_len_kv: None,
        seed: None,
        offset: None,
        dropout_mask: None,
        dropout_scale: None,
        page_table_k: None,
        page_table_v: None,
        block_mask: None,
        sink_token: None,
        descale_q: None,
        descale_k: None,
        descale_v: None,
        descale_s: None,
        scale_s: None,
        scale_o: None,
        stats: None,
        max: None,
        sum_exp: None,
        rng_dump: None,
        amax_s: None,
        amax_o: None,
        generate_stats: None,
        alibi_mask: false,
        padding_mask: false,
        causal_mask: false,
        causal_mask_bottom_right: false,
        dropout_probability: None,
        attn_scale_value: None,
        left_bound: None,
        right_bound: None,
        max_seq_len_kv: None,
        diagonal_alignment: DiagonalAlignment::TopLeft,
        mma_core_mode: DataType::Unset,
        implementation: AttentionImplementation::Auto,
    }
}
