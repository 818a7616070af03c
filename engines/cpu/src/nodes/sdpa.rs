//! Scaled dot-product attention: `o = softmax(scale · q · kᵀ + mask) · v`.
//!
//! Semantics that the wire format leaves open follow hipDNN's reference executor (`CpuFpReferenceSdpa` and
//! `SdpaFwdPlan` in hipDNN's test SDK):
//! * without a scale it is 1/√depth;
//! * the mask is added to the scaled scores, its dimensions aligned to the last of [batch, heads, queries, keys], extents of
//!   1 repeated;
//! * query `i` sees key `j` from `i + d - left_bound` to `i + d + right_bound`, without bound where that is absent or
//!   negative, where `d` is 0 for top-left alignment and keys - queries for bottom-right; the two deprecated causal flags
//!   stand for no left bound, right bound 0 and their alignment, whatever the other attributes say, and exclude each other;
//! * a query that sees no key has the result 0 and the statistic -∞; the statistics are the logarithm of the sum of
//!   e^score, [batch, heads, queries, 1] (an older release left the last dimension out);
//! * groups of query heads in order share the heads of keys and of values;
//! * a sink is a score for each head that takes part in the softmax's denominator only.
//!
//! It has no padding mask. As in cuDNN, whose interface hipDNN's frontend has, queries and keys behind their batch's
//! sequence length are not there: such keys are masked, such queries have the result 0, and bottom-right alignment goes by the
//! lengths.

mod backward;
mod forward;
mod pack;

use std::sync::Arc;

use hipdnn_engine_core::checks::{check_compute_type, check_type};
use hipdnn_engine_core::{Declined, NodeLabel, TensorLabel};
use hipdnn_schemas::{DataType, DiagonalAlignment, Graph, Sdpa, SdpaBackward, TensorUid};

use super::LibraryOp;
use crate::work::Work;
pub use backward::lower as lower_backward;
use hipdnn_cpu_pointwise::Storage;

/// Types of queries, keys, values, masks, statistics and results, in any mix.
pub const TYPES: &[DataType] = &[DataType::Float, DataType::Half, DataType::BFloat16];

/// Compute types that attention may ask for; all are computed in `f32`.
pub const COMPUTE: &[DataType] = &[DataType::Float, DataType::Half, DataType::BFloat16];

/// Types of a scale that is a tensor.
pub const SCALES: &[DataType] = &[DataType::Float, DataType::Half, DataType::BFloat16, DataType::Double];

/// Types of sequence lengths.
pub const LENGTHS: &[DataType] = &[DataType::Int32, DataType::Int64];

/// Maximum depth: a block of queries and of keys is kept for each thread.
pub const DEPTH: usize = 1 << 16;

/// Operand: its type, and the strides of batch, head, row and column; 0 repeats.
#[derive(Clone, Copy, Debug)]
struct Operand {
    storage: Storage,
    strides: [usize; 4],
}

impl Operand {
    /// Offset of the first element of a row.
    fn at(&self, batch: usize, head: usize, row: usize) -> usize {
        batch * self.strides[0] + head * self.strides[1] + row * self.strides[2]
    }
}

/// Attention window: the keys that a query sees.
#[derive(Clone, Copy, Debug)]
struct Window {
    left: Option<i64>,
    right: Option<i64>,
    bottom_right: bool,
}

impl Window {
    fn is_bounded(&self) -> bool {
        self.left.is_some() || self.right.is_some()
    }
}

/// Attention window over the sequences of a batch.
#[derive(Clone, Copy, Debug)]
struct Sight {
    window: Window,
    /// Sequence lengths: number of queries and of keys.
    queries: usize,
    keys: usize,
}

impl Sight {
    /// Offset of the diagonal: the key below which query 0 stands.
    fn diagonal(&self) -> i64 {
        if self.window.bottom_right { self.keys as i64 - self.queries as i64 } else { 0 }
    }

    /// Range of the keys that any of these queries sees, and perhaps others between them.
    fn keys_of(&self, queries: std::ops::Range<usize>) -> std::ops::Range<usize> {
        let queries = queries.start..queries.end.min(self.queries);
        if queries.is_empty() {
            return 0..0;
        }
        let d = self.diagonal();
        let bound = |key: i64| key.clamp(0, self.keys as i64) as usize;
        let first = self.window.left.map_or(0, |left| bound(queries.start as i64 + d - left));
        let end = self.window.right.map_or(self.keys, |right| bound(queries.end as i64 + d + right));
        first..end.max(first)
    }

    /// Range of the queries that see a key.
    fn queries_of(&self, key: usize) -> std::ops::Range<usize> {
        let d = self.diagonal();
        let bound = |query: i64| query.clamp(0, self.queries as i64) as usize;
        let first = self.window.right.map_or(0, |right| bound(key as i64 - d - right));
        let end = self.window.left.map_or(self.queries, |left| bound(key as i64 - d + left + 1));
        first..end.max(first)
    }
}

/// Factor of the scores.
#[derive(Clone, Copy, Debug)]
enum Scale {
    Fixed(f32),
    Read(Storage),
    /// The inverse of what is read.
    Inverse(Storage),
}

impl Scale {
    /// # Safety
    /// If it is to be read, `address` has a readable, aligned value of its type.
    unsafe fn get(self, address: *const u8) -> f32 {
        match self {
            Scale::Fixed(value) => value,
            Scale::Read(storage) | Scale::Inverse(storage) => {
                let mut value = [0.0];
                // SAFETY: the caller's promise.
                unsafe { storage.load_wide(address, 0, 1, &mut value) };
                let value = if let Scale::Inverse(_) = self { 1.0 / value[0] } else { value[0] };
                value as f32
            }
        }
    }
}

/// Sequence lengths of the batches: their type and the stride between them.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    storage: Storage,
    stride: usize,
}

impl Lengths {
    /// Sequence length of a batch, at least 0 and at most `most`.
    ///
    /// # Safety
    /// `address` has a readable, aligned value for each batch.
    unsafe fn get(self, address: *const u8, batch: usize, most: usize) -> usize {
        let mut value = [0.0];
        // SAFETY: the caller's promise.
        unsafe { self.storage.load_wide(address, batch * self.stride, 1, &mut value) };
        (value[0] as usize).min(most)
    }
}

/// Common part of forward and backward.
#[derive(Clone, Debug)]
struct Attention {
    batch: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    depth: usize,
    value_depth: usize,
    /// Number of query heads that share a head of keys, and of values.
    share_k: usize,
    share_v: usize,
    q: Operand,
    k: Operand,
    v: Operand,
    mask: Option<Operand>,
    scale: Scale,
    window: Window,
    /// Sequence lengths of queries and keys.
    lengths: Option<(Lengths, Lengths)>,
}

impl Attention {
    /// Attention window over the sequences of a batch.
    ///
    /// # Safety
    /// If there are lengths, the addresses have them.
    unsafe fn sight(&self, batch: usize, lengths: [*const u8; 2]) -> Sight {
        let (mut queries, mut keys) = (self.queries, self.keys);
        if let Some((of_queries, of_keys)) = self.lengths {
            // SAFETY: the caller's promise.
            unsafe {
                queries = of_queries.get(lengths[0], batch, queries);
                keys = of_keys.get(lengths[1], batch, keys);
            }
        }
        Sight { window: self.window, queries, keys }
    }
}

/// Declares [`Common`] with the conversions from the nodes that have its fields.
macro_rules! common {
    ($($field:ident: $type:ty,)+) => {
        /// Common attributes of forward and backward nodes.
        struct Common {
            $($field: $type,)+
        }

        impl From<&Sdpa> for Common {
            fn from(node: &Sdpa) -> Common {
                Common { $($field: node.$field),+ }
            }
        }

        impl From<&SdpaBackward> for Common {
            fn from(node: &SdpaBackward) -> Common {
                Common { $($field: node.$field),+ }
            }
        }
    };
}

common! {
    q: TensorUid,
    k: TensorUid,
    v: TensorUid,
    attn_mask: Option<TensorUid>,
    scale: Option<TensorUid>,
    seq_len_q: Option<TensorUid>,
    seq_len_kv: Option<TensorUid>,
    alibi_mask: bool,
    padding_mask: bool,
    causal_mask: bool,
    causal_mask_bottom_right: bool,
    dropout_probability: Option<f32>,
    attn_scale_value: Option<f32>,
    left_bound: Option<i64>,
    right_bound: Option<i64>,
    diagonal_alignment: DiagonalAlignment,
}

/// Lowering of a node's operands.
struct Lowering<'g> {
    graph: &'g Graph,
    index: usize,
}

impl Lowering<'_> {
    fn attribute(&self, attribute: &'static str, value: impl ToString, wanted: &'static str) -> Declined {
        Declined::Attribute { node: NodeLabel::of(self.graph, self.index), attribute, value: value.to_string(), wanted }
    }

    /// Declines operands that the engine has no use for.
    fn absent(&self, operands: &[(&'static str, Option<TensorUid>)]) -> Result<(), Declined> {
        match operands.iter().find_map(|(attribute, uid)| uid.map(|uid| (*attribute, uid))) {
            Some((attribute, uid)) => Err(self.attribute(attribute, uid, "null")),
            None => Ok(()),
        }
    }

    fn shape(&self, role: &'static str, uid: TensorUid, wanted: impl Into<String>) -> Declined {
        Declined::Shape {
            node: NodeLabel::of(self.graph, self.index),
            role,
            tensor: TensorLabel::of(self.graph, uid),
            dims: self.graph.tensor(uid).dims().to_vec(),
            wanted: wanted.into(),
        }
    }

    /// Operand with four dimensions, whose extents the graph's check has seen to.
    fn operand(&self, role: &'static str, uid: TensorUid) -> Result<Operand, Declined> {
        check_type(self.graph, self.index, role, uid, TYPES)?;
        let tensor = self.graph.tensor(uid);
        let storage = Storage::of(tensor.data_type()).expect("the types of the table have a storage");
        Ok(Operand { storage, strides: std::array::from_fn(|i| tensor.strides()[i]) })
    }

    /// Operand that is repeated along its missing dimensions and those of extent 1.
    fn broadcast(&self, role: &'static str, uid: TensorUid, whole: [usize; 4]) -> Result<Operand, Declined> {
        check_type(self.graph, self.index, role, uid, TYPES)?;
        let tensor = self.graph.tensor(uid);
        let missing = 4usize.checked_sub(tensor.rank());
        let missing = missing.ok_or_else(|| self.shape(role, uid, format!("of {whole:?} or ones")))?;
        let mut strides = [0; 4];
        for (i, (extent, stride)) in tensor.dims().iter().zip(tensor.strides()).enumerate() {
            match *extent {
                1 => {}
                extent if extent == whole[missing + i] => strides[missing + i] = *stride,
                _ => return Err(self.shape(role, uid, format!("as the last of {whole:?}, or ones"))),
            }
        }
        Ok(Operand {
            storage: Storage::of(tensor.data_type()).expect("the types of the table have a storage"),
            strides,
        })
    }

    /// Statistic of each query.
    fn statistic(
        &self,
        role: &'static str,
        uid: TensorUid,
        [batch, heads, queries]: [usize; 3],
    ) -> Result<Operand, Declined> {
        check_type(self.graph, self.index, role, uid, TYPES)?;
        let tensor = self.graph.tensor(uid);
        if tensor.dims() != [batch, heads, queries, 1] && tensor.dims() != [batch, heads, queries] {
            return Err(self.shape(role, uid, format!("{:?}", [batch, heads, queries, 1])));
        }
        let storage = Storage::of(tensor.data_type()).expect("the types of the table have a storage");
        let strides = tensor.strides();
        Ok(Operand { storage, strides: [strides[0], strides[1], strides[2], 0] })
    }

    /// List of one value for each of `count`, in a tensor without other dimensions or with ones.
    fn list(
        &self,
        role: &'static str,
        uid: TensorUid,
        count: usize,
        types: &[DataType],
    ) -> Result<(Storage, usize), Declined> {
        check_type(self.graph, self.index, role, uid, types)?;
        let tensor = self.graph.tensor(uid);
        let mut own = tensor.dims().iter().zip(tensor.strides()).filter(|(extent, _)| **extent > 1);
        let stride = match (own.next(), own.next()) {
            (None, _) if count == 1 => 0,
            (Some((extent, stride)), None) if *extent == count => *stride,
            _ => return Err(self.shape(role, uid, format!("[{count}] and ones"))),
        };
        Ok((Storage::of(tensor.data_type()).expect("the types of the table have a storage"), stride))
    }

    fn attention(&self, node: &Common) -> Result<Attention, Declined> {
        check_compute_type(self.graph, self.index, COMPUTE)?;
        let dims = |uid| -> [usize; 4] {
            let tensor = self.graph.tensor(uid);
            // The graph's check leaves paged attention out, which is declined here.
            std::array::from_fn(|i| tensor.dims()[i])
        };
        let ([batch, heads, queries, depth], [_, heads_k, keys, _], [_, heads_v, _, value_depth]) =
            (dims(node.q), dims(node.k), dims(node.v));
        for came in [depth, value_depth] {
            if came > DEPTH {
                let (node, what) = (NodeLabel::of(self.graph, self.index), "the depth of a head");
                return Err(Declined::Size { node, what, came: came as u128, most: DEPTH as u128 });
            }
        }
        if node.alibi_mask {
            return Err(self.attribute("alibi_mask", true, "false"));
        }
        if let Some(probability) = node.dropout_probability
            && probability != 0.0
        {
            return Err(self.attribute("dropout_probability", probability, "null or 0"));
        }
        let scale = match (node.scale, node.attn_scale_value) {
            (None, None) => Scale::Fixed((1.0 / (depth as f64).sqrt()) as f32),
            (None, Some(value)) => Scale::Fixed(value),
            (Some(uid), None) => Scale::Read(self.list("scale", uid, 1, SCALES)?.0),
            (Some(_), Some(value)) => {
                return Err(self.attribute("attn_scale_value", value, "null where scale is a tensor"));
            }
        };
        let window = match (node.causal_mask, node.causal_mask_bottom_right) {
            (true, true) => {
                return Err(self.attribute("causal_mask_bottom_right", true, "false where causal_mask is true"));
            }
            (false, false) => Window {
                left: node.left_bound.filter(|bound| *bound >= 0),
                right: node.right_bound.filter(|bound| *bound >= 0),
                bottom_right: node.diagonal_alignment == DiagonalAlignment::BottomRight,
            },
            (_, bottom_right) => Window { left: None, right: Some(0), bottom_right },
        };
        // Bounds beyond any sequence are none; sums with them do not overflow.
        let bounded = |bound: Option<i64>| bound.filter(|bound| *bound < 1 << 48);
        let window = Window { left: bounded(window.left), right: bounded(window.right), ..window };
        let lengths = match (node.padding_mask, node.seq_len_q, node.seq_len_kv) {
            (false, None, None) => None,
            (true, Some(of_queries), Some(of_keys)) => {
                let list = |role, uid| {
                    let (storage, stride) = self.list(role, uid, batch, LENGTHS)?;
                    Ok::<_, Declined>(Lengths { storage, stride })
                };
                Some((list("seq_len_q", of_queries)?, list("seq_len_kv", of_keys)?))
            }
            (true, _, _) => return Err(self.attribute("padding_mask", true, "false without seq_len_q and seq_len_kv")),
            (false, _, _) => {
                return Err(self.attribute("padding_mask", false, "true where sequence lengths are given"));
            }
        };
        let mask =
            node.attn_mask.map(|uid| self.broadcast("attn_mask", uid, [batch, heads, queries, keys])).transpose()?;
        Ok(Attention {
            batch,
            heads,
            queries,
            keys,
            depth,
            value_depth,
            share_k: heads / heads_k,
            share_v: heads / heads_v,
            q: self.operand("q", node.q)?,
            k: self.operand("k", node.k)?,
            v: self.operand("v", node.v)?,
            mask,
            scale,
            window,
            lengths,
        })
    }
}

/// Lowers a forward pass.
///
/// # Errors
/// Reason for which the engine declines the node.
pub fn lower(graph: &Graph, index: usize, node: &Sdpa) -> Result<Work, Declined> {
    let lowering = Lowering { graph, index };
    lowering.absent(&[
        ("page_table_k_tensor_uid", node.page_table_k),
        ("page_table_v_tensor_uid", node.page_table_v),
        ("block_mask_tensor_uid", node.block_mask),
        ("seed_tensor_uid", node.seed),
        ("offset_tensor_uid", node.offset),
        ("dropout_mask_tensor_uid", node.dropout_mask),
        ("dropout_scale_tensor_uid", node.dropout_scale),
        ("rng_dump_tensor_uid", node.rng_dump),
        ("descale_q_tensor_uid", node.descale_q),
        ("descale_k_tensor_uid", node.descale_k),
        ("descale_v_tensor_uid", node.descale_v),
        ("descale_s_tensor_uid", node.descale_s),
        ("scale_s_tensor_uid", node.scale_s),
        ("scale_o_tensor_uid", node.scale_o),
        ("amax_s_tensor_uid", node.amax_s),
        ("amax_o_tensor_uid", node.amax_o),
    ])?;
    // A wish for the type of products, which are summed in f32 anyway.
    if !matches!(node.mma_core_mode, DataType::Unset | DataType::Float | DataType::Half | DataType::BFloat16) {
        return Err(lowering.attribute("mma_core_mode", node.mma_core_mode, "unset, float, half or bfloat16"));
    }
    if node.generate_stats == Some(true) && node.stats.is_none() {
        return Err(lowering.attribute("generate_stats", true, "false without a tensor stats"));
    }
    let attention = lowering.attention(&node.into())?;
    let each = [attention.batch, attention.heads, attention.queries];
    let statistic = |role, uid: Option<TensorUid>| uid.map(|uid| lowering.statistic(role, uid, each)).transpose();
    let recipe = forward::Forward {
        o: lowering.operand("o", node.o)?,
        stats: statistic("stats", node.stats)?,
        largest: statistic("max", node.max)?,
        sum: statistic("sum_exp", node.sum_exp)?,
        sink: node.sink_token.map(|uid| lowering.list("sink_token", uid, attention.heads, TYPES)).transpose()?,
        unseen: 0.0,
        attention,
    };
    Ok(Work::Node(LibraryOp {
        name: "attention",
        inputs: vec![
            Some(node.q),
            Some(node.k),
            Some(node.v),
            node.attn_mask,
            node.scale,
            node.seq_len_q,
            node.seq_len_kv,
            node.sink_token,
        ],
        outputs: vec![Some(node.o), node.stats, node.max, node.sum_exp],
        recipe: Arc::new(recipe),
    }))
}

/// Tensors of an attention that is spelled out: `o = softmax(scale · q · k + mask) · v`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Products {
    pub(crate) q: TensorUid,
    /// Keys, whose last dimension numbers them.
    pub(crate) k: TensorUid,
    pub(crate) v: TensorUid,
    pub(crate) o: TensorUid,
    pub(crate) scale: Option<Factor>,
    pub(crate) mask: Option<TensorUid>,
}

impl Products {
    /// Tensors that the attention reads.
    pub(crate) fn operands(&self) -> impl Iterator<Item = TensorUid> {
        [Some(self.q), Some(self.k), Some(self.v), self.mask, self.scale.map(Factor::tensor)].into_iter().flatten()
    }
}

/// Most blocks of queries that a forward pass without a window is cut into.
pub(crate) fn blocks(heads: usize, queries: usize) -> usize {
    heads.saturating_mul(queries.div_ceil(forward::LEAST))
}

/// Factor of the scores: a tensor of one number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Factor {
    Multiplier(TensorUid),
    Divisor(TensorUid),
}

impl Factor {
    pub(crate) fn tensor(self) -> TensorUid {
        let (Factor::Multiplier(uid) | Factor::Divisor(uid)) = self;
        uid
    }
}

/// Lowers products with a softmax between them, of two to four dimensions, to one attention in the place of the last node. A
/// query whose scores are all -∞ has no number as its result, as the softmax has none.
///
/// # Errors
/// Reason for which it can't be computed as one.
pub(crate) fn of_products(graph: &Graph, last: usize, products: &Products) -> Result<LibraryOp, &'static str> {
    let Products { q, k, v, o, scale, mask } = *products;
    let lowering = Lowering { graph, index: last };
    let unsuitable = |_| "attention has no operands of such types or dimensions";
    let dims = |uid| lifted(graph.tensor(uid).dims()).ok_or("attention has up to four dimensions");
    let ([batch, heads, queries, value_depth], of_q, of_k) = (dims(o)?, dims(q)?, dims(k)?);
    let (depth, keys) = (of_q[3], of_k[3]);
    if [of_q[0].max(of_k[0]), of_q[1].max(of_k[1])] != [batch, heads] {
        return Err("scores that several values share are computed once by products");
    }
    let operand = |role, uid, [rows, columns]: [usize; 2]| {
        if graph.tensor(uid).value().is_some() {
            return Err("attention has no operands that are numbers");
        }
        lowering.broadcast(role, uid, [batch, heads, rows, columns]).map_err(unsuitable)
    };
    let by_rows = |role, uid, extents: [usize; 2]| {
        let operand = operand(role, uid, extents)?;
        let is_by_rows = operand.strides[3] == 1 || extents[1] == 1;
        is_by_rows.then_some(operand).ok_or("products gather queries and values faster that do not lie by rows")
    };
    let factor = |factor: Factor| {
        let (storage, _) = lowering.list("scale", factor.tensor(), 1, SCALES).map_err(unsuitable)?;
        Ok(match factor {
            Factor::Multiplier(_) => Scale::Read(storage),
            Factor::Divisor(_) => Scale::Inverse(storage),
        })
    };
    let mut keys_of = operand("k", k, [depth, keys])?;
    keys_of.strides.swap(2, 3);
    if keys_of.storage != Storage::F32 && keys_of.strides[3] != 1 && depth > 1 {
        return Err("products gather keys of 16 bits faster that do not lie by rows");
    }
    let attention = Attention {
        batch,
        heads,
        queries,
        keys,
        depth,
        value_depth,
        share_k: 1,
        share_v: 1,
        q: by_rows("q", q, [queries, depth])?,
        k: keys_of,
        v: by_rows("v", v, [keys, value_depth])?,
        mask: mask.map(|mask| operand("attn_mask", mask, [queries, keys])).transpose()?,
        scale: scale.map_or(Ok(Scale::Fixed(1.0)), factor)?,
        window: Window { left: None, right: None, bottom_right: false },
        lengths: None,
    };
    let recipe = forward::Forward {
        attention,
        o: operand("o", o, [queries, value_depth])?,
        stats: None,
        largest: None,
        sum: None,
        sink: None,
        unseen: f32::NAN,
    };
    let inputs = [Some(q), Some(k), Some(v), mask, scale.map(Factor::tensor), None, None, None];
    let outputs = vec![Some(o), None, None, None];
    Ok(LibraryOp { name: "attention", inputs: inputs.to_vec(), outputs, recipe: Arc::new(recipe) })
}

/// Extents of four dimensions, of which the first ones may be missing.
fn lifted(dims: &[usize]) -> Option<[usize; 4]> {
    let missing = 4usize.checked_sub(dims.len())?;
    Some(std::array::from_fn(|i| if i < missing { 1 } else { dims[i - missing] }))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::nodes::testing::{Bench, noise, unit};
    use DataType::{BFloat16, Double, Float, Half, Int32, Int64};
    use hipdnn_schemas::{Operation, TensorDef, TensorValue};

    /// A forward node of the tensors 0 to 3, without anything else.
    fn plain() -> Sdpa {
        Sdpa::new(TensorUid(0), TensorUid(1), TensorUid(2), TensorUid(3))
    }

    /// Sizes of a problem.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Sizes {
        pub(crate) batch: i64,
        pub(crate) heads: i64,
        pub(crate) heads_k: i64,
        pub(crate) heads_v: i64,
        pub(crate) queries: i64,
        pub(crate) keys: i64,
        pub(crate) depth: i64,
        pub(crate) value_depth: i64,
    }

    impl Sizes {
        pub(crate) const fn new(
            [batch, heads, heads_k, heads_v, queries, keys, depth, value_depth]: [i64; 8],
        ) -> Sizes {
            Sizes { batch, heads, heads_k, heads_v, queries, keys, depth, value_depth }
        }

        pub(crate) fn q(&self) -> [i64; 4] {
            [self.batch, self.heads, self.queries, self.depth]
        }

        pub(crate) fn k(&self) -> [i64; 4] {
            [self.batch, self.heads_k, self.keys, self.depth]
        }

        pub(crate) fn v(&self) -> [i64; 4] {
            [self.batch, self.heads_v, self.keys, self.value_depth]
        }

        pub(crate) fn o(&self) -> [i64; 4] {
            [self.batch, self.heads, self.queries, self.value_depth]
        }
    }

    /// Strides of [batch, heads, rows, depth] in the order batch, rows, heads, depth.
    pub(crate) fn rows_first(dims: [i64; 4]) -> [i64; 4] {
        let [_, heads, rows, depth] = dims;
        [rows * heads * depth, depth, heads * depth, 1]
    }

    /// Row of a query, by plain loops.
    pub(crate) struct Row {
        /// Power of each key.
        pub(crate) power: Vec<f64>,
        pub(crate) largest: f64,
        pub(crate) sum: f64,
        /// Error bound of a score: see [`score_error`].
        pub(crate) error: f64,
    }

    /// Inputs of the plain loops.
    pub(crate) struct Problem<'a> {
        pub(crate) sizes: Sizes,
        pub(crate) q: &'a [f64],
        pub(crate) k: &'a [f64],
        pub(crate) scale: f64,
        pub(crate) mask: &'a dyn Fn(usize, usize, usize, usize) -> f64,
        pub(crate) seen: &'a dyn Fn(usize, usize, usize) -> bool,
        pub(crate) sink: Option<&'a [f64]>,
    }

    impl Problem<'_> {
        pub(crate) fn row(&self, b: usize, h: usize, i: usize) -> Row {
            let Sizes { heads, heads_k, queries, keys, depth, .. } = self.sizes;
            let (heads, heads_k, queries, keys, depth) =
                (heads as usize, heads_k as usize, queries as usize, keys as usize, depth as usize);
            let u = 2f64.powi(-24);
            let (mut scores, mut size) = (Vec::with_capacity(keys), 0f64);
            for j in 0..keys {
                if !(self.seen)(b, i, j) {
                    scores.push(f64::NEG_INFINITY);
                    continue;
                }
                let at = ((b * heads + h) * queries + i) * depth;
                let to = ((b * heads_k + h / (heads / heads_k)) * keys + j) * depth;
                let terms = || (0..depth).map(|d| self.q[at + d] * self.k[to + d]);
                let mask = (self.mask)(b, h, i, j);
                scores.push(terms().sum::<f64>() * self.scale + mask);
                if mask.is_finite() {
                    size = size.max(terms().map(f64::abs).sum::<f64>() * self.scale.abs() + mask.abs());
                }
            }
            let sink = self.sink.map_or(f64::NEG_INFINITY, |sink| sink[h]);
            let largest = scores.iter().copied().fold(sink, f64::max);
            let power: Vec<f64> =
                scores.iter().map(|s| if largest == f64::NEG_INFINITY { 0.0 } else { (s - largest).exp() }).collect();
            let sum = power.iter().sum::<f64>() + if sink == f64::NEG_INFINITY { 0.0 } else { (sink - largest).exp() };
            // A sum of as many products as the head is deep, scaled, with a mask added and the largest score taken off, each
            // rounded.
            Row { power, largest, sum, error: (depth as f64 + 6.0) * u * (size + largest.abs().min(1e6)) }
        }
    }

    struct Case {
        what: &'static str,
        sizes: Sizes,
        change: fn(&mut Sdpa),
        /// Extents of the mask.
        mask: &'static [i64],
        seen: fn(usize, usize) -> bool,
    }

    const fn case(what: &'static str, sizes: [i64; 8]) -> Case {
        Case { what, sizes: Sizes::new(sizes), change: |_| {}, mask: &[], seen: |_, _| true }
    }

    fn cases() -> Vec<Case> {
        let masked =
            |what, sizes, mask| Case { change: |n| n.attn_mask = Some(TensorUid(4)), mask, ..case(what, sizes) };
        vec![
            case("one of everything", [1, 1, 1, 1, 1, 1, 1, 1]),
            case("small", [2, 3, 3, 3, 5, 7, 4, 6]),
            case("several blocks", [1, 2, 2, 2, 200, 211, 33, 17]),
            case("several blocks of queries, whole vectors of values", [1, 2, 2, 2, 300, 270, 20, 64]),
            case("one query, many keys", [2, 4, 4, 4, 1, 1000, 64, 64]),
            case("grouped heads", [2, 6, 2, 3, 20, 30, 16, 16]),
            case("one head of keys and values", [1, 8, 1, 1, 9, 100, 8, 40]),
            case("deep heads", [1, 1, 1, 1, 13, 14, 600, 300]),
            masked("a whole mask", [2, 2, 2, 2, 40, 50, 8, 8], &[2, 2, 40, 50]),
            masked("a mask for all heads", [2, 3, 3, 3, 100, 120, 8, 8], &[2, 1, 100, 120]),
            masked("a mask for several blocks of keys", [1, 1, 1, 1, 40, 300, 8, 16], &[40, 300]),
            masked("a mask for keys", [2, 2, 2, 2, 40, 50, 8, 8], &[50]),
            masked("a mask for queries", [2, 2, 2, 2, 40, 50, 8, 8], &[40, 1]),
            Case {
                change: |n| n.causal_mask = true,
                seen: |i, j| j <= i,
                ..case("causal", [1, 2, 2, 2, 210, 210, 16, 16])
            },
            Case {
                change: |n| n.causal_mask = true,
                seen: |i, j| j <= i,
                ..case("causal, fewer keys", [1, 2, 2, 2, 110, 30, 16, 16])
            },
            Case {
                change: |n| n.causal_mask_bottom_right = true,
                seen: |i, j| j <= i + 70,
                ..case("causal from the bottom right, more keys", [1, 2, 2, 2, 50, 120, 16, 16])
            },
            Case {
                change: |n| n.causal_mask_bottom_right = true,
                seen: |i, j| j + 100 <= i,
                ..case(
                    "causal from the bottom right, fewer keys: queries that see nothing",
                    [1, 2, 2, 2, 120, 20, 16, 16],
                )
            },
            Case {
                change: |n| (n.left_bound, n.right_bound) = (Some(3), Some(1)),
                seen: |i, j| j <= i + 1 && j + 3 >= i,
                ..case("a window", [1, 1, 1, 1, 230, 220, 8, 8])
            },
            Case {
                change: |n| {
                    (n.left_bound, n.diagonal_alignment) = (Some(100), DiagonalAlignment::BottomRight);
                    n.right_bound = Some(-1);
                },
                seen: |i, j| j + 100 >= i + 190,
                ..case("a window to the left, from the bottom right", [1, 1, 1, 1, 110, 300, 8, 8])
            },
            Case { change: |n| n.sink_token = Some(TensorUid(8)), ..case("sinks", [2, 3, 3, 3, 20, 25, 8, 8]) },
            Case {
                change: |n| {
                    n.padding_mask = true;
                    (n.seq_len_q, n.seq_len_kv) = (Some(TensorUid(6)), Some(TensorUid(7)));
                },
                ..case("sequence lengths", [4, 2, 2, 2, 130, 140, 8, 8])
            },
            Case {
                change: |n| {
                    (n.padding_mask, n.causal_mask_bottom_right) = (true, true);
                    (n.seq_len_q, n.seq_len_kv) = (Some(TensorUid(6)), Some(TensorUid(7)));
                },
                ..case("sequence lengths, causal from the bottom right", [4, 2, 2, 2, 130, 140, 8, 8])
            },
            Case {
                change: |n| n.attn_scale_value = Some(-40.0),
                ..case("a large scale that turns the order round", [1, 2, 2, 2, 20, 130, 8, 8])
            },
            Case { change: |n| n.attn_scale_value = Some(37.3), ..case("a large scale", [1, 2, 2, 2, 20, 130, 8, 8]) },
        ]
    }

    const SEQ_Q: [i64; 4] = [130, 1, 0, 97];
    const SEQ_KV: [i64; 4] = [140, 96, 50, 0];

    #[test]
    fn results_and_statistics_are_what_loops_give() {
        let types = [[Float; 4], [Half; 4], [BFloat16; 4], [Half, BFloat16, Float, Half]];
        for (turn, (case, types)) in cases().iter().flat_map(|c| types.iter().map(move |t| (c, *t))).enumerate() {
            let Case { what, sizes, .. } = case;
            let mut node = plain();
            (case.change)(&mut node);
            let from_tensor = turn % 3 == 0 && node.attn_scale_value.is_none();
            node.scale = from_tensor.then_some(TensorUid(5));
            node.stats = (turn % 5 != 4).then_some(TensorUid(9));
            node.max = (turn % 2 == 0).then_some(TensorUid(10));
            node.sum_exp = (turn % 2 == 1).then_some(TensorUid(11));
            let statistic = [sizes.batch, sizes.heads, sizes.queries, 1];
            let strided = |uid, data_type, dims: [i64; 4]| {
                let tensor = TensorDef::new(uid, data_type, &dims);
                match (turn as i64 + uid) % 3 {
                    0 => tensor,
                    1 => tensor.strided(&rows_first(dims)),
                    // Every other element, with a gap behind rows.
                    _ => {
                        let [_, heads, rows, depth] = dims;
                        let row = 2 * depth + 3;
                        tensor.strided(&[heads * rows * row, rows * row, row, 2])
                    }
                }
            };
            let mut tensors = vec![
                strided(0, types[0], sizes.q()),
                strided(1, types[1], sizes.k()),
                strided(2, types[2], sizes.v()),
                strided(3, types[3], sizes.o()),
                TensorDef::new(5, Double, &[1]).with_value(TensorValue::Float64(0.37)),
                TensorDef::new(6, Int32, &[sizes.batch, 1, 1, 1]),
                TensorDef::new(7, Int64, &[sizes.batch]),
                TensorDef::new(8, Float, &[1, sizes.heads, 1, 1]),
                TensorDef::new(9, Float, if turn % 2 == 0 { &statistic } else { &statistic[..3] }),
                TensorDef::new(10, Float, &statistic),
                TensorDef::new(11, Float, &statistic),
            ];
            if !case.mask.is_empty() {
                tensors.push(TensorDef::new(4, types[0], case.mask));
            }
            let mut bench = Bench::new(Operation::Sdpa(Box::new(node.clone())), tensors);
            let q = bench.fill(0, |i| noise(i) * 2.0);
            let k = bench.fill(1, |i| noise(i + 1000) * 2.0);
            let v = bench.fill(2, |i| noise(i + 2000) + 0.25);
            // Some of the mask is -∞, but never for a whole row.
            let minus = |i: usize| if i % 7 == 3 { f64::NEG_INFINITY } else { noise(i + 3000) * 3.0 };
            let mask = if case.mask.is_empty() { vec![] } else { bench.fill(4, minus) };
            let sink = node.sink_token.map(|_| bench.fill(8, |h| h as f64 - 0.5));
            if node.padding_mask {
                bench.fill(6, |b| SEQ_Q[b] as f64);
                bench.fill(7, |b| SEQ_KV[b] as f64);
            }
            let mask_at = |b: usize, h: usize, i: usize, j: usize| {
                let missing = 4 - case.mask.len();
                let place = case.mask.iter().enumerate().fold(0, |at, (axis, extent)| {
                    let i = [b, h, i, j][missing + axis];
                    at * *extent as usize + if *extent == 1 { 0 } else { i }
                });
                mask.get(place).copied().unwrap_or(0.0)
            };
            let seen = |b: usize, i: usize, j: usize| {
                let (mut keys, mut queries) = (sizes.keys, sizes.queries);
                if node.padding_mask {
                    (queries, keys) = (SEQ_Q[b], SEQ_KV[b]);
                }
                let (i64_i, i64_j) = (i as i64, j as i64);
                let causal = !(node.padding_mask && node.causal_mask_bottom_right) || i64_j <= i64_i + keys - queries;
                i64_i < queries && i64_j < keys && causal && (node.padding_mask || (case.seen)(i, j))
            };
            let scale = if from_tensor {
                f64::from(0.37f32)
            } else {
                node.attn_scale_value.map_or(f64::from((1.0 / (sizes.depth as f64).sqrt()) as f32), f64::from)
            };
            let problem =
                Problem { sizes: *sizes, q: &q, k: &k, scale, mask: &mask_at, seen: &seen, sink: sink.as_deref() };
            let got = bench.run(1);
            assert_eq!(
                Vec::from_iter(got.values().flatten().map(|v| v.to_bits())),
                Vec::from_iter(bench.run(3).values().flatten().map(|v| v.to_bits())),
                "{what}: other results on three threads"
            );
            let (unit, smallest) = unit(types[3]);
            let u = 2f64.powi(-24);
            let (heads, queries, keys, dv) =
                (sizes.heads as usize, sizes.queries as usize, sizes.keys as usize, sizes.value_depth as usize);
            for n in 0..sizes.batch as usize * heads * queries {
                let (b, h, i) = (n / queries / heads, n / queries % heads, n % queries);
                let row = problem.row(b, h, i);
                // Powers within 3 units of those of scores that are off; they and their products with values are summed up.
                let relative = 2.0 * row.error.exp_m1() + (2.0 * keys as f64 + 16.0) * u;
                let padded = node.padding_mask && i as i64 >= SEQ_Q[b];
                for d in 0..dv {
                    let at = ((b * sizes.heads_v as usize) + h / (heads / sizes.heads_v as usize)) * keys;
                    let term = |j: usize| row.power[j] * v[(at + j) * dv + d];
                    let (mut want, mut size) = (0.0, 0.0);
                    if row.sum > 0.0 {
                        want = (0..keys).map(term).sum::<f64>() / row.sum;
                        size = (0..keys).map(|j| term(j).abs()).sum::<f64>() / row.sum;
                    }
                    let bound = size * relative + want.abs() * unit + smallest;
                    let got = got[&3][n * dv + d];
                    assert!(
                        (got - want).abs() <= bound,
                        "{what} {types:?} {b} {h} {i} {d}: {got} for {want} ± {bound}"
                    );
                }
                let lse = if padded { f64::NEG_INFINITY } else { row.largest + row.sum.ln() };
                let largest = if padded { f64::NEG_INFINITY } else { row.largest };
                let near = |got: f64, want: f64, bound: f64| got == want || (got - want).abs() <= bound;
                if let Some(stats) = got.get(&9) {
                    let bound = row.error + relative + lse.abs() * u;
                    assert!(near(stats[n], lse, bound), "{what} {b} {h} {i}: {} for {lse} ± {bound}", stats[n]);
                }
                if let Some(got) = got.get(&10) {
                    assert!(near(got[n], largest, row.error), "{what}: {} for {largest}", got[n]);
                }
                if let Some(got) = got.get(&11) {
                    let want = if padded { 0.0 } else { row.sum };
                    assert!(near(got[n], want, want * relative), "{what}: {} for {want}", got[n]);
                }
            }
        }
    }

    #[test]
    fn memory_does_not_grow_with_the_sequences() {
        let bytes = |length: i64| {
            let dims = [1, 2, length, 64];
            let tensors = (0..4).map(|uid| TensorDef::new(uid, Float, &dims)).collect();
            Bench::new(Operation::Sdpa(Box::new(plain())), tensors).scratch_bytes(2)
        };
        // Sequences of whole blocks, and others, whose blocks are smaller.
        assert_eq!(bytes(256), bytes(12_800));
        assert!(bytes(2000) <= bytes(256));
    }

    #[test]
    fn nan_stays_in_its_row_and_infinite_masks_hide() {
        let sizes = Sizes::new([1, 1, 1, 1, 3, 4, 2, 2]);
        let node = Sdpa { attn_mask: Some(TensorUid(4)), stats: Some(TensorUid(9)), ..plain() };
        let mut bench = Bench::new(
            Operation::Sdpa(Box::new(node)),
            vec![
                TensorDef::new(0, Float, &sizes.q()),
                TensorDef::new(1, Float, &sizes.k()),
                TensorDef::new(2, Float, &sizes.v()),
                TensorDef::new(3, Float, &sizes.o()),
                TensorDef::new(4, Float, &[3, 4]),
                TensorDef::new(9, Float, &[1, 1, 3, 1]),
            ],
        );
        bench.fill(0, |i| if i == 0 { f64::NAN } else { 1e19 });
        bench.fill(1, |i| if i < 2 { 1e19 } else { 1.0 });
        bench.fill(2, |i| i as f64);
        // The second query sees only its last key; the third none.
        bench.fill(4, |i| if i == 7 || i < 4 { 0.0 } else { f64::NEG_INFINITY });
        let got = bench.run(1);
        assert!(got[&3][..2].iter().all(|v| v.is_nan()) && got[&9][0].is_nan(), "{:?}", got[&3]);
        assert_eq!(got[&3][2..], [6.0, 7.0, 0.0, 0.0], "the last value; nothing");
        assert_eq!(got[&9][2], f64::NEG_INFINITY);
    }

    #[test]
    fn what_is_not_served_is_declined_by_name() {
        let tensors = |data_type| {
            vec![
                TensorDef::new(0, data_type, &[2, 2, 5, 8]),
                TensorDef::new(1, Float, &[2, 2, 7, 8]),
                TensorDef::new(2, Float, &[2, 2, 7, 8]),
                TensorDef::new(3, Float, &[2, 2, 5, 8]),
                TensorDef::new(4, Float, &[2, 7]),
                TensorDef::new(5, Int32, &[2]),
                TensorDef::new(6, Float, &[2, 2, 5, 2]),
            ]
        };
        type Change = (&'static str, fn(&mut Sdpa));
        let changes: [Change; 14] = [
            ("alibi_mask: expected false, got true", |n| n.alibi_mask = true),
            ("dropout_probability: expected null or 0, got 0.5", |n| n.dropout_probability = Some(0.5)),
            ("dropout_mask_tensor_uid: expected null, got 4", |n| n.dropout_mask = Some(TensorUid(4))),
            ("block_mask_tensor_uid: expected null, got 4", |n| n.block_mask = Some(TensorUid(4))),
            ("page_table_k_tensor_uid: expected null, got 5", |n| n.page_table_k = Some(TensorUid(5))),
            ("descale_q_tensor_uid: expected null, got 4", |n| n.descale_q = Some(TensorUid(4))),
            ("amax_o_tensor_uid: expected null, got 6", |n| n.amax_o = Some(TensorUid(6))),
            ("padding_mask: expected false without seq_len_q and seq_len_kv, got true", |n| n.padding_mask = true),
            ("padding_mask: expected true where sequence lengths are given, got false", |n| {
                n.seq_len_kv = Some(TensorUid(5))
            }),
            ("generate_stats: expected false without a tensor stats, got true", |n| n.generate_stats = Some(true)),
            ("causal_mask_bottom_right: expected false where causal_mask is true, got true", |n| {
                (n.causal_mask, n.causal_mask_bottom_right) = (true, true)
            }),
            ("attn_mask (tensor 4): expected extents as the last of [2, 2, 5, 7], or ones, got [2, 7]", |n| {
                n.attn_mask = Some(TensorUid(4))
            }),
            ("stats (tensor 6): expected extents [2, 2, 5, 1], got [2, 2, 5, 2]", |n| n.stats = Some(TensorUid(6))),
            ("mma_core_mode: expected unset, float, half or bfloat16, got fp8_e4m3", |n| {
                n.mma_core_mode = DataType::Fp8E4M3
            }),
        ];
        for (want, change) in changes {
            let mut node = plain();
            change(&mut node);
            let reason = Bench::declined(Operation::Sdpa(Box::new(node)), tensors(Float));
            assert!(reason.contains(want) && reason.starts_with("node 0 (Sdpa)"), "{reason}");
        }
        let reason = Bench::declined(Operation::Sdpa(Box::new(plain())), tensors(Double));
        assert!(reason.contains("q (tensor 0): expected float, half or bfloat16, got double"), "{reason}");
    }
}
