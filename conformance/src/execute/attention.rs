//! Scaled dot-product attention.

use hipdnn_schemas::{DataType, DiagonalAlignment, Sdpa};

use super::Step;
use crate::array::{Array, each_index};
use crate::number::{Number, ulp};

/// `o = softmax(q·kᵀ·scale + mask)·v`, heads of k and v being shared by groups of q's heads.
///
/// Engines for half-precision data may round the probabilities to that type before they multiply with v.
pub(super) fn forward(step: &mut Step, node: &Sdpa) -> Result<(), String> {
    for (role, absent) in [
        ("dropout", node.dropout_mask.is_none() && node.dropout_probability.is_none_or(|p| p == 0.0)),
        ("alibi_mask", !node.alibi_mask),
        ("page_table", node.page_table_k.is_none() && node.page_table_v.is_none()),
        ("block_mask", node.block_mask.is_none()),
        ("sink_token", node.sink_token.is_none()),
        (
            "descale",
            [node.descale_q, node.descale_k, node.descale_v, node.descale_s, node.scale_s, node.scale_o]
                .iter()
                .all(Option::is_none),
        ),
        ("rng_dump or amax", [node.rng_dump, node.amax_s, node.amax_o].iter().all(Option::is_none)),
        ("max or sum_exp", node.max.is_none() && node.sum_exp.is_none()),
        ("bounds", node.left_bound.is_none() && node.right_bound.is_none()),
        ("max_seq_len_kv", node.max_seq_len_kv.is_none()),
    ] {
        if !absent {
            return Err(format!("the executor does not have {role}"));
        }
    }
    let a = step.arithmetic;
    let (q, k, v) = (step.operand(node.q)?, step.operand(node.k)?, step.operand(node.v)?);
    let mask = step.optional(node.attn_mask)?;
    let lengths_q = step.optional(node.seq_len_q)?;
    let lengths_kv = step.optional(node.seq_len_kv)?;
    if node.padding_mask != (lengths_q.is_some() || lengths_kv.is_some()) {
        return Err("padding_mask goes with sequence lengths".into());
    }
    let [_, heads, queries, depth] = [q.dims[0], q.dims[1], q.dims[2], q.dims[3]];
    let (keys, width) = (k.dims[2], v.dims[3]);
    let scale = match (node.attn_scale_value, step.optional(node.scale)?) {
        (Some(value), _) => a.operand(Number::exact(value.into())),
        (None, Some(tensor)) => tensor.scalar(),
        (None, None) => a.monotone(Number::exact(depth as f64), ulp::SQRT + ulp::DIVIDE, |d| 1.0 / d.sqrt()),
    };
    let top_left = node.causal_mask;
    let bottom_right = node.causal_mask_bottom_right
        || (node.causal_mask && node.diagonal_alignment == DiagonalAlignment::BottomRight);
    let kept = step.tensor(node.q).data_type();
    let probability_roundoff = match kept {
        DataType::Float | DataType::Double => 0.0,
        narrow => crate::format::Float::of(narrow).map_or(0.0, crate::format::Float::roundoff),
    };
    let mut output = vec![Number::exact(0.0); step.tensor(node.o).elements()];
    let mut statistics = vec![Number::exact(0.0); q.dims[..3].iter().product()];
    each_index(&[q.dims[0], heads, queries], |at| {
        let [b, h, i] = [at[0], at[1], at[2]];
        let place = (b * heads + h) * queries + i;
        let (head_k, head_v) = (h / (heads / k.dims[1]), h / (heads / v.dims[1]));
        let length = |lengths: &Option<Array>, all: usize| {
            lengths.as_ref().map_or(all, |lengths| (lengths.data[b].value.max(0.0) as usize).min(all))
        };
        let (rows, columns) = (length(&lengths_q, queries), length(&lengths_kv, keys));
        let out = &mut output[place * width..(place + 1) * width];
        if i >= rows {
            // Padded queries have no result.
            out.fill(Number::any());
            statistics[place] = Number::any();
            return;
        }
        let mut scores = Vec::new();
        for j in 0..columns {
            let hidden = if bottom_right { j + rows > i + columns } else { top_left && j > i };
            if hidden {
                continue;
            }
            let mut dot = a.sum();
            for d in 0..depth {
                dot.push_product(q.at(&[b, h, i, d]), k.at(&[b, head_k, j, d]));
            }
            let mut score = a.mul(dot.finish(), scale);
            // Scaling q beforehand rounds each of its elements: no more than the terms' own roundings.
            score = Number::new(score.value, score.error + a.u * dot.magnitude() * scale.magnitude());
            if let Some(mask) = &mask {
                let context = [b, h, i, j];
                score = a.add(score, mask.broadcast(&context[4 - mask.dims.len()..]));
            }
            scores.push((j, score));
        }
        let spoilt =
            scores.iter().any(|(_, score)| score.is_any() || score.value.is_nan() || score.value == f64::INFINITY);
        let top = scores.iter().map(|(_, score)| score.value).fold(f64::NEG_INFINITY, f64::max);
        if spoilt || !top.is_finite() {
            // A row without keys is 0/0.
            out.fill(Number::any());
            statistics[place] = Number::any();
            return;
        }
        // exp(s − max): the difference is rounded, and an error of max cancels in the quotient.
        let weights: Vec<(usize, Number)> = scores
            .iter()
            .map(|(j, score)| (*j, a.monotone(a.sub(*score, Number::exact(top)), ulp::EXP + 1.0, f64::exp)))
            .collect();
        let mut total = a.sum();
        weights.iter().for_each(|(_, weight)| total.push(*weight));
        let total = total.finish();
        for (d, out) in out.iter_mut().enumerate() {
            let mut sum = a.sum();
            for (j, weight) in &weights {
                let error = weight.error + probability_roundoff * weight.value;
                sum.push_product(Number::new(weight.value, error), v.at(&[b, head_v, *j, d]));
            }
            // Probabilities may be divided before the sum: one more rounding for each.
            let sum = sum.finish();
            let quotient = a.div(sum, total);
            *out = Number::new(quotient.value, quotient.error * (1.0 + 8.0 * a.u) + a.u * quotient.magnitude());
        }
        let log = a.monotone(total, ulp::LOG, f64::ln);
        let log = Number::new(log.value, log.error + 2.0 * a.u);
        statistics[place] = a.add(Number::exact(top), log);
        let worst = scores.iter().map(|(_, score)| score.error).fold(0.0, f64::max);
        statistics[place] = Number::new(statistics[place].value, statistics[place].error + worst);
    });
    let dims = step.tensor(node.o).dims().to_vec();
    step.write(node.o, Array { dims, data: output });
    if let Some(uid) = node.stats {
        step.write_list(uid, statistics);
    }
    Ok(())
}
