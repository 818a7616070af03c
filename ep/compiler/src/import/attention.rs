//! Attention and rotary embeddings, by matrix products, softmax and pointwise operations.

use hipdnn_schemas::{DataType, Operation, PointwiseMode, Sdpa};

use super::fold::Folded;
use super::{Attribute, Declined, Importer, OnGpu, Operator, Work, computes, declined, microsoft, sums};
use crate::ir::{Op, ValueId};

/// Operations that compute attention.
const PRODUCTS: &str = "attention, and no products of two batches of matrices";

pub(super) const OPERATORS: &[Operator] = &[
    sums("Attention", attention).on_gpu(OnGpu::Without(PRODUCTS)),
    computes("RotaryEmbedding", rotary_embedding),
    Operator { work: Work::Heavy, ..microsoft("MultiHeadAttention", multi_head_attention) }
        .on_gpu(OnGpu::Without(PRODUCTS)),
];

/// Most elements of a mask that is computed when a program is built.
const MOST_MASK_ELEMENTS: i64 = 1 << 22;

impl Importer<'_> {
    /// Input `index` as [batch, heads, sequence, size].
    fn heads(&mut self, index: usize, heads: &str) -> Result<ValueId, Declined> {
        let x = self.float_input(index)?;
        self.split_heads(x, heads)
    }

    /// A value of 3 or 4 dimensions as [batch, heads, sequence, size].
    fn split_heads(&mut self, x: ValueId, heads: &str) -> Result<ValueId, Declined> {
        match self.dims(x)[..] {
            [_, _, _, _] => Ok(x),
            [batch, sequence, hidden] => {
                let heads = self.int(heads, 0);
                if heads < 1 || hidden % heads != 0 {
                    return declined(format!("{hidden} places cannot be split into {heads} heads"));
                }
                let apart = self.reshape(x, &[batch, sequence, heads, hidden / heads]);
                Ok(self.function.transpose(apart, &[0, 2, 1, 3]))
            }
            ref dims => declined(format!("expected 3 or 4 dimensions, got {}", dims.len())),
        }
    }

    /// [batch, groups · count, ...] as [batch, groups, count, ...].
    fn grouped(&mut self, x: ValueId, groups: i64) -> ValueId {
        let mut dims = self.dims(x);
        let count = dims[1] / groups;
        dims[1] = groups;
        dims.insert(2, count);
        self.reshape(x, &dims)
    }

    /// Addend of the products of queries and keys: minus infinity where a mask is false.
    fn bias(&mut self, mask: ValueId, data_type: DataType) -> Result<ValueId, Declined> {
        if self.data_type(mask) != DataType::Boolean {
            return Ok(mask);
        }
        let rank = self.rank(mask);
        let (zero, out) = (self.number(0.0, data_type, rank), self.number(f64::NEG_INFINITY, data_type, rank));
        self.select_to(mask, zero, out, data_type)
    }
}

/// Queries, keys and values of a MultiHeadAttention node by its inputs; a bias of the projections before them, if there is one.
fn projected(n: &mut Importer<'_>, index: usize, from: i64) -> Result<(ValueId, i64), Declined> {
    let x = n.float_input(index)?;
    let dims = n.dims(x);
    if !n.has_input(3) || dims.len() == 4 {
        return Ok((n.heads(index, "num_heads")?, from));
    }
    let bias = n.float_input(3)?;
    let width = dims.last().copied().unwrap_or(0);
    if n.rank(bias) != 1 || n.dims(bias)[0] < from + width {
        return declined(format!("expected a bias of all projections, got extents {:?}", n.dims(bias)));
    }
    let part = n.function.view(bias, &[1, 1, width], &[0, 0, 1], from);
    let sum = n.binary(PointwiseMode::Add, x, part)?;
    Ok((n.split_heads(sum, "num_heads")?, from + width))
}

/// ONNX Runtime's own attention, where queries, keys and values are inputs of their own: one node of hipDNN.
fn multi_head_attention(n: &mut Importer<'_>) -> Result<(), Declined> {
    for (index, what) in
        [(4, "key padding mask"), (6, "past"), (7, "past"), (8, "past length"), (9, "cache indirection")]
    {
        if n.has_input(index) {
            return declined(format!("its {what} is not imported"));
        }
    }
    if !n.has_input(1) || !n.has_input(2) {
        return declined("packed queries, keys and values are not imported");
    }
    if n.has_output(3) {
        return declined("the products of queries and keys are not handed out");
    }
    let (q, from) = projected(n, 0, 0)?;
    let (k, from) = projected(n, 1, from)?;
    let (v, _) = projected(n, 2, from)?;
    let (qs, ks, vs) = (n.dims(q), n.dims(k), n.dims(v));
    let ([batch, heads, rows, size], [_, _, columns, _]) = (&qs[..], &ks[..]) else {
        return declined(format!("expected queries and keys of 3 or 4 dimensions, got {qs:?} and {ks:?}"));
    };
    let (batch, heads, rows, columns) = (*batch, *heads, *rows, *columns);
    if ks[..2] != qs[..2] || vs[..3] != ks[..3] || ks[3] != *size {
        return declined(format!("queries {qs:?}, keys {ks:?} and values {vs:?} do not fit"));
    }
    if qs.contains(&0) || ks.contains(&0) || vs.contains(&0) {
        return declined("attention to nothing is not imported");
    }
    let data_type = n.data_type(q);
    if data_type == DataType::Double || [k, v].iter().any(|id| n.data_type(*id) != data_type) {
        return declined("attention of this type is not imported");
    }
    let mask = if n.has_input(5) {
        let mask = n.float_input(5)?;
        let dims = n.dims(mask);
        let fits = |axis: usize, whole: i64| dims[axis] == 1 || dims[axis] == whole;
        if dims.len() != 4 || !(fits(0, batch) && fits(1, heads) && dims[2..] == [rows, columns]) {
            return declined(format!(
                "expected an attention bias of {:?}, got {dims:?}",
                [batch, heads, rows, columns]
            ));
        }
        Some(mask)
    } else {
        None
    };
    let scale = n.float("scale", 0.0);
    n.output(1, k);
    n.output(2, v);
    let fused = Fused { mask, scale: (scale != 0.0).then_some(scale), causal: n.int("unidirectional", 0) != 0 };
    let y = n.fused_attention([q, k, v], &fused, true)?;
    n.output(0, y);
    Ok(())
}

/// Parameters of attention as one node of hipDNN.
struct Fused {
    /// Addend of the products of queries and keys.
    mask: Option<ValueId>,
    /// Factor of the products; one over the root of a head's size if there is none.
    scale: Option<f32>,
    /// True if a query sees the keys up to its own place.
    causal: bool,
}

impl Importer<'_> {
    /// Attention of [batch, heads, sequence, size] as one node; `flat` has the heads of a place next to one another.
    fn fused_attention(&mut self, [q, k, v]: [ValueId; 3], fused: &Fused, flat: bool) -> Result<ValueId, Declined> {
        let (data_type, qs, width) = (self.data_type(q), self.dims(q), self.dims(v)[3]);
        let [batch, heads, rows, size] = qs[..] else {
            return declined(format!("expected queries of 4 dimensions, got {}", qs.len()));
        };
        let dims = [batch, heads, rows, width];
        let y = if flat { vec![batch, rows, heads * width] } else { dims.to_vec() };
        let y = self.function.result(data_type, &y);
        let by_heads = if flat {
            let hidden = heads * width;
            self.function.strided_part(y, &dims, &[rows * hidden, width, hidden, 1], 0)
        } else {
            y
        };
        let operation = Operation::Sdpa(Box::new(Sdpa {
            attn_mask: fused.mask.map(ValueId::uid),
            attn_scale_value: Some(fused.scale.unwrap_or(1.0 / (size as f32).sqrt())),
            causal_mask: fused.causal,
            ..Sdpa::new(q.uid(), k.uid(), v.uid(), by_heads.uid())
        }));
        let compute = self.compute_type(&operation)?;
        self.function.push(Op { operation, compute, node: self.current });
        if flat {
            self.function.assemble(y, vec![by_heads]);
        }
        Ok(y)
    }
}

/// The mask of an Attention node, if attention as one node of hipDNN takes it: none, or an addend of the same type.
fn fitting_mask(n: &mut Importer<'_>, whole: &[i64], data_type: DataType) -> Result<Option<Option<ValueId>>, Declined> {
    let types = matches!(data_type, DataType::Float | DataType::Half | DataType::BFloat16);
    if !types || (1..3).any(|index| n.input(index).is_ok_and(|id| n.data_type(id) != data_type)) {
        return Ok(None);
    }
    if !n.has_input(3) {
        return Ok(Some(None));
    }
    let mask = n.input(3)?;
    let dims = n.dims(mask);
    let broadcasts =
        dims.len() <= 4 && dims.iter().rev().zip(whole.iter().rev()).all(|(own, all)| own == all || *own == 1);
    Ok((n.data_type(mask) == data_type && broadcasts && dims.len() >= 2).then_some(Some(mask)))
}

fn attention(n: &mut Importer<'_>) -> Result<(), Declined> {
    let flat = {
        let x = n.float_input(0)?;
        n.rank(x) == 3
    };
    let (q, mut k, mut v) = (n.heads(0, "q_num_heads")?, n.heads(1, "kv_num_heads")?, n.heads(2, "kv_num_heads")?);
    let mut past = 0;
    if n.has_input(4) && n.has_input(5) {
        let (key, value) = (n.float_input(4)?, n.float_input(5)?);
        if n.rank(key) != 4 || n.rank(value) != 4 {
            let ranks = [key, value].map(|id| n.rank(id));
            return declined(format!("expected past keys and values of 4 dimensions, got {ranks:?}"));
        }
        past = n.dims(key)[2];
        k = n.joined(&[key, k], 2)?;
        v = n.joined(&[value, v], 2)?;
    }
    n.output(1, k);
    n.output(2, v);
    let data_type = n.data_type(q);
    let (qs, ks, vs) = (n.dims(q), n.dims(k), n.dims(v));
    let [batch, heads, rows, size] = qs[..] else {
        return declined(format!("expected queries of 4 dimensions, got {}", qs.len()));
    };
    let (groups, columns) = (ks[1], ks[2]);
    if groups < 1 || heads % groups != 0 || vs[1] != groups || vs[2] != columns || ks[3] != size {
        return declined(format!("queries {qs:?}, keys {ks:?} and values {vs:?} do not fit"));
    }
    if qs.contains(&0) || ks.contains(&0) || vs.contains(&0) {
        return declined("attention to nothing is not imported");
    }
    if let Some(Attribute::Int(precision)) = n.attribute("softmax_precision")
        && *precision == 11
    {
        return declined("softmax in double is not imported");
    }
    let scale = match n.attribute("scale") {
        Some(Attribute::Float(scale)) => *scale,
        _ => 1.0 / (size as f32).sqrt(),
    };
    if let Some(mask) = fitting_mask(n, &[batch, heads, rows, columns], data_type)?
        && past == 0
        && !n.has_input(6)
        && !n.has_output(3)
        && n.float("softcap", 0.0) == 0.0
    {
        let fused = Fused { mask, scale: Some(scale), causal: n.int("is_causal", 0) != 0 };
        let y = n.fused_attention([q, k, v], &fused, flat)?;
        n.output(0, y);
        return Ok(());
    }
    // Heads that share keys are a dimension of their own: [batch, groups, heads, rows, columns].
    let q = n.grouped(q, groups);
    let (k, v) = (n.grouped(k, groups), n.grouped(v, groups));
    let keys = n.function.transpose(k, &[0, 1, 2, 4, 3]);
    let q = n.with_number(PointwiseMode::Mul, q, scale.sqrt())?;
    let keys = n.with_number(PointwiseMode::Mul, keys, scale.sqrt())?;
    let mut weights = n.product(q, keys)?;
    let stages = n.int("qk_matmul_output_mode", 0);
    let whole = [batch, heads, rows, columns];
    let hand_out = |n: &mut Importer<'_>, stage: i64, weights: ValueId| {
        if stage == stages && n.has_output(3) {
            let weights = n.reshape(weights, &whole);
            n.output(3, weights);
        }
    };
    hand_out(n, 0, weights);
    // ONNX Runtime limits what is compared before it masks it; ONNX' own reference does it the other way round.
    let cap = n.float("softcap", 0.0);
    if cap > 0.0 {
        if n.has_output(3) && (1..3).contains(&stages) {
            return declined("products between the limit and the mask are not imported");
        }
        weights = n.with_number(PointwiseMode::Div, weights, cap)?;
        weights = n.apply(PointwiseMode::TanhFwd, weights)?;
        weights = n.with_number(PointwiseMode::Mul, weights, cap)?;
    }
    if n.has_input(3) {
        let mask = n.input(3)?;
        let mut dims = n.dims(mask);
        if dims.last() != Some(&columns) || dims.len() > 4 || dims.len() < 2 {
            return declined(format!("expected a mask whose last extent is {columns}, got {dims:?}"));
        }
        while dims.len() < 4 {
            dims.insert(0, 1);
        }
        let split = if dims[1] == heads && heads > 1 { [groups, heads / groups] } else { [dims[1], 1] };
        dims[1] = split[0];
        dims.insert(2, split[1]);
        let mask = n.reshape(mask, &dims);
        let bias = n.bias(mask, data_type)?;
        weights = n.binary(PointwiseMode::Add, weights, bias)?;
    }
    if n.int("is_causal", 0) != 0 {
        if rows * columns > MOST_MASK_ELEMENTS {
            return declined(format!(
                "expected a mask of at most {MOST_MASK_ELEMENTS} elements, got {rows} by {columns}"
            ));
        }
        let seen = (0..rows).flat_map(|row| (0..columns).map(move |column| i64::from(column <= row + past))).collect();
        let mask = n.constant(&Folded::whole(DataType::Boolean, vec![1, 1, 1, rows, columns], seen));
        let bias = n.bias(mask, data_type)?;
        weights = n.binary(PointwiseMode::Add, weights, bias)?;
    }
    if n.has_input(6) {
        let lengths = n.input(6)?;
        if n.data_type(lengths) != DataType::Int64 || *n.dims(lengths) != [batch] {
            return declined(format!("expected {batch} lengths, got extents {:?}", n.dims(lengths)));
        }
        let lengths = n.reshape(lengths, &[batch, 1, 1, 1, 1]);
        let places = n.indices(4, columns, 5, DataType::Int64);
        let mask = n.binary_to(PointwiseMode::CmpLt, places, lengths, DataType::Boolean)?;
        let bias = n.bias(mask, data_type)?;
        weights = n.binary(PointwiseMode::Add, weights, bias)?;
    }
    hand_out(n, 1, weights);
    hand_out(n, 2, weights);
    let weights = n.softmax(weights, 4, false)?;
    hand_out(n, 3, weights);
    let y = n.product(weights, v)?;
    let y = n.reshape(y, &[batch, heads, rows, vs[3]]);
    let y = if flat {
        let turned = n.function.transpose(y, &[0, 2, 1, 3]);
        n.reshape(turned, &[batch, rows, heads * vs[3]])
    } else {
        y
    };
    n.output(0, y);
    Ok(())
}

/// Pairs of places turned by an angle for each position, whose cosines and sines are inputs.
fn rotary_embedding(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let flat = n.rank(x) == 3;
    let given = n.dims(x);
    let x = n.heads(0, "num_heads")?;
    let (dims, data_type) = (n.dims(x), n.data_type(x));
    let [batch, heads, rows, size] = dims[..] else {
        return declined(format!("expected 3 or 4 dimensions, got {}", given.len()));
    };
    let turned = match n.int("rotary_embedding_dim", 0) {
        0 => size,
        turned => turned,
    };
    let half = turned / 2;
    if turned < 2 || turned % 2 != 0 || turned > size || dims.contains(&0) {
        return declined(format!("{turned} of {size} places cannot be turned in pairs"));
    }
    let mut angles = [x; 2];
    for (index, angle) in angles.iter_mut().enumerate() {
        let table = n.float_input(index + 1)?;
        let table = if n.has_input(3) {
            let places = n.input(3)?;
            if n.rank(table) != 2 || *n.dims(places) != [batch, rows] {
                let (table, places) = (n.dims(table), n.dims(places));
                return declined(format!(
                    "expected a table of 2 dimensions and positions of {:?}, got extents {table:?} and {places:?}",
                    [batch, rows]
                ));
            }
            let entries = n.dims(table);
            let table = n.reshape(table, &[1, entries[0], entries[1]]);
            let places = n.reshape(places, &[batch * rows, 1, 1]);
            n.taken(table, places, 1)?
        } else {
            table
        };
        if n.function.value(table).elements() != batch * rows * half {
            return declined(format!(
                "expected {half} angles for each of {batch} × {rows} rows, got {:?}",
                n.dims(table)
            ));
        }
        *angle = n.reshape(table, &[batch, 1, rows, half]);
    }
    let interleaved = n.int("interleaved", 0) != 0;
    let ranges = |start: i64, count: i64, step: i64| [(0, batch, 1), (0, heads, 1), (0, rows, 1), (start, count, step)];
    let places = if interleaved { [(0, 2), (1, 2)] } else { [(0, 1), (half, 1)] };
    let [a, b] = places.map(|(start, step)| n.window(x, &ranges(start, half, step)));
    let [cos, sin] = angles;
    let term = |n: &mut Importer<'_>, x, y| n.binary(PointwiseMode::Mul, x, y);
    let (ac, bs, as_, bc) = (term(n, a, cos)?, term(n, b, sin)?, term(n, a, sin)?, term(n, b, cos)?);
    let first = n.binary(PointwiseMode::Sub, ac, bs)?;
    let second = n.binary(PointwiseMode::Add, as_, bc)?;
    let y = n.function.result(data_type, &dims);
    let mut parts = Vec::new();
    for (value, (start, step)) in [first, second].into_iter().zip(places) {
        let place = n.strided_part(y, &ranges(start, half, step));
        let node = n.current;
        n.function.push_copy(value, place, node);
        parts.push(place);
    }
    if turned < size {
        let rest = n.window(x, &ranges(turned, size - turned, 1));
        let place = n.strided_part(y, &ranges(turned, size - turned, 1));
        let node = n.current;
        n.function.push_copy(rest, place, node);
        parts.push(place);
    }
    n.function.assemble(y, parts);
    let y = if flat {
        let back = n.function.transpose(y, &[0, 2, 1, 3]);
        n.reshape(back, &given)
    } else {
        y
    };
    n.output(0, y);
    Ok(())
}
