//! Gradients of attention, from the statistics that the forward pass has left.
//!
//! With the scores `s` of the forward pass, `p = e^(s - stats)`, `d = Σ do · o` of each query and `ds = p · (do · vᵀ - d)`:
//! `dq = scale · ds · k`, `dk = scale · dsᵀ · q` and `dv = pᵀ · do`, the last two summed over the query heads that share a
//! head of keys and values. Scores are computed anew, a block at a time: once for blocks of queries with all their keys, and
//! once for blocks of keys with all their queries, so that each sum is in one thread's hands.

use std::sync::Arc;

use hipdnn_engine_core::Declined;
use hipdnn_schemas::{Graph, SdpaBackward};

use super::forward::{BLOCK, Masking, Part, load_columns, load_rows, places};
use super::{Attention, Lowering, Operand, Sight};
use crate::nodes::{LibraryKernel, LibraryOp, Recipe};
use crate::work::Work;
use hipdnn_cpu_kernels::attention::{Beta, Gradient, Multiply, ROWS};
use hipdnn_cpu_simd::isa::{Isa, MAX_LANES};
use hipdnn_cpu_threads::Pool;

/// Lowers a gradient.
///
/// # Errors
/// Reason for which the engine declines the node.
pub fn lower(graph: &Graph, index: usize, node: &SdpaBackward) -> Result<Work, Declined> {
    let lowering = Lowering { graph, index };
    lowering.absent(&[
        ("seed_tensor_uid", node.seed),
        ("offset_tensor_uid", node.offset),
        ("dropout_mask_tensor_uid", node.dropout_mask),
        ("dropout_scale_tensor_uid", node.dropout_scale),
        ("dropout_scale_inv_tensor_uid", node.dropout_scale_inv),
        ("dbias_tensor_uid", node.dbias),
    ])?;
    let attention = lowering.attention(&node.into())?;
    if attention.share_k != attention.share_v {
        let heads = attention.heads / attention.share_k;
        return Err(lowering.shape("v", node.v, format!("with the {heads} heads of k")));
    }
    let recipe = Backward {
        o: lowering.operand("o", node.o)?,
        d_o: lowering.operand("do", node.d_o)?,
        stats: lowering.statistic("stats", node.stats, [attention.batch, attention.heads, attention.queries])?,
        dq: lowering.operand("dq", node.dq)?,
        dk: lowering.operand("dk", node.dk)?,
        dv: lowering.operand("dv", node.dv)?,
        attention,
    };
    Ok(Work::Node(LibraryOp {
        name: "gradient of attention",
        inputs: vec![
            Some(node.q),
            Some(node.k),
            Some(node.v),
            node.attn_mask,
            node.scale,
            node.seq_len_q,
            node.seq_len_kv,
            Some(node.o),
            Some(node.d_o),
            Some(node.stats),
        ],
        outputs: vec![Some(node.dq), Some(node.dk), Some(node.dv)],
        recipe: Arc::new(recipe),
    }))
}

/// Gradient of attention.
#[derive(Clone, Debug)]
struct Backward {
    attention: Attention,
    o: Operand,
    d_o: Operand,
    stats: Operand,
    dq: Operand,
    dk: Operand,
    dv: Operand,
}

impl Recipe for Backward {
    fn kernel(&self, threads: usize) -> Box<dyn LibraryKernel> {
        Box::new(Kernel { work: self.clone(), threads, layout: Layout::new(&self.attention) })
    }
}

#[derive(Debug)]
struct Kernel {
    work: Backward,
    threads: usize,
    layout: Layout,
}

/// Layout of a worker's scratch memory: offsets of its blocks, in `f32` values.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Number of queries of a block, up to whole vectors.
    width: usize,
    /// Depths of queries and values, up to whole vectors.
    columns: usize,
    value_columns: usize,
    /// Queries and gradients of results, a column each.
    q_columns: usize,
    do_columns: usize,
    /// The same, a row each; keys and values, a row each; all up to whole vectors.
    q: usize,
    d_o: usize,
    k: usize,
    v: usize,
    /// Scores, and the powers that they become; products of values and gradients, and the slopes that they become: a
    /// column a query.
    scores: usize,
    slopes: usize,
    /// Sums: of queries or of keys, and of values.
    sum: usize,
    value_sum: usize,
    len: usize,
}

impl Layout {
    fn new(attention: &Attention) -> Layout {
        let width = attention.queries.min(BLOCK).next_multiple_of(MAX_LANES);
        let tall = width.next_multiple_of(ROWS);
        let keys = attention.keys.min(BLOCK).next_multiple_of(ROWS);
        let [columns, value_columns] =
            [attention.depth, attention.value_depth].map(|depth| depth.next_multiple_of(MAX_LANES));
        // Rows past the queries are read of slopes when keys are summed.
        let square = keys * width + tall - width;
        let sizes = [
            width * attention.depth,
            width * attention.value_depth,
            width * columns,
            width * value_columns,
            keys * columns,
            keys * value_columns,
            square,
            square,
            keys.max(tall) * columns,
            keys * value_columns,
        ];
        let ([q_columns, do_columns, q, d_o, k, v, scores, slopes, sum, value_sum], len) = places(sizes);
        Layout {
            width,
            columns,
            value_columns,
            q_columns,
            do_columns,
            q,
            d_o,
            k,
            v,
            scores,
            slopes,
            sum,
            value_sum,
            len,
        }
    }
}

/// State of a run, shared with the threads that work on it.
struct Run<'a> {
    kernel: &'a Kernel,
    isa: Isa,
    scale: f32,
    inputs: &'a [*const u8],
    outputs: &'a [*mut u8],
    /// Sum `d` of each query.
    shares: *mut f32,
    scratch: *mut f32,
}

// SAFETY: inputs are only read; results and `shares` are written by the one unit that computes them, and those read by
// others only in a later job of the pool; scratch memory is used by the one worker whose it is.
unsafe impl Sync for Run<'_> {}

impl Kernel {
    /// Number of values of `shares`, up to a cache line.
    fn shares(&self) -> usize {
        let attention = &self.work.attention;
        places([attention.batch * attention.heads * attention.queries]).1
    }
}

impl LibraryKernel for Kernel {
    fn scratch_bytes(&self) -> usize {
        (self.shares() + self.threads * self.layout.len) * size_of::<f32>()
    }

    unsafe fn run(&self, pool: &Pool, inputs: &[*const u8], outputs: &[*mut u8], scratch: *mut u8) {
        let attention = &self.work.attention;
        // SAFETY: the caller's promise about the scale.
        let scale = unsafe { attention.scale.get(inputs[4]) };
        let shares = scratch.cast::<f32>();
        let scratch = shares.wrapping_add(self.shares());
        let run = &Run { kernel: self, isa: Isa::best(), scale, inputs, outputs, shares, scratch };
        let blocks = attention.queries.div_ceil(BLOCK);
        pool.run_indexed(attention.batch * attention.heads * blocks, self.threads, &|worker, unit| {
            let (row, block) = (unit / blocks, unit % blocks);
            let (batch, head) = (row / attention.heads, row % attention.heads);
            // SAFETY: the caller's promise; no other unit has these queries, no other thread this worker's memory.
            unsafe { run.queries(worker, batch, head, block * BLOCK) };
        });
        let (blocks, heads) = (attention.keys.div_ceil(BLOCK), attention.heads / attention.share_k);
        pool.run_indexed(attention.batch * heads * blocks, self.threads, &|worker, unit| {
            let (row, block) = (unit / blocks, unit % blocks);
            let (batch, head) = (row / heads, row % heads);
            // SAFETY: the caller's promise; no other unit has these keys, no other thread this worker's memory, and the
            // shares of all queries are there.
            unsafe { run.keys(worker, batch, head, block * BLOCK) };
        });
    }
}

/// A worker's blocks.
struct Blocks<'a> {
    q_columns: &'a mut [f32],
    do_columns: &'a mut [f32],
    q: &'a mut [f32],
    d_o: &'a mut [f32],
    k: &'a mut [f32],
    v: &'a mut [f32],
    scores: &'a mut [f32],
    slopes: &'a mut [f32],
    sum: &'a mut [f32],
    value_sum: &'a mut [f32],
}

impl Run<'_> {
    /// # Safety
    /// Nobody else has the worker's scratch memory while the blocks are used.
    unsafe fn blocks(&self, worker: usize) -> Blocks<'_> {
        let layout = &self.kernel.layout;
        let base = self.scratch.wrapping_add(worker * layout.len);
        // SAFETY: the caller's promise; the places are within the worker's memory and apart.
        let part = |at: usize, end: usize| unsafe { std::slice::from_raw_parts_mut(base.add(at), end - at) };
        let attention = &self.kernel.work.attention;
        let columns = |at: usize, depth: usize| part(at, at + layout.width * depth);
        Blocks {
            q_columns: columns(layout.q_columns, attention.depth),
            do_columns: columns(layout.do_columns, attention.value_depth),
            q: part(layout.q, layout.d_o),
            d_o: part(layout.d_o, layout.k),
            k: part(layout.k, layout.v),
            v: part(layout.v, layout.scores),
            scores: part(layout.scores, layout.slopes),
            slopes: part(layout.slopes, layout.sum),
            sum: part(layout.sum, layout.value_sum),
            value_sum: part(layout.value_sum, layout.len),
        }
    }

    /// Attention window over the sequences of a batch.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`].
    unsafe fn sight(&self, batch: usize) -> Sight {
        // SAFETY: the caller's promise.
        unsafe { self.kernel.work.attention.sight(batch, [self.inputs[5], self.inputs[6]]) }
    }

    /// Computes the gradients of a block of queries.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`], and nobody else has the worker's scratch memory or computes these results.
    unsafe fn queries(&self, worker: usize, batch: usize, head: usize, first: usize) {
        let (work, layout) = (&self.kernel.work, &self.kernel.layout);
        let attention = &work.attention;
        let count = BLOCK.min(attention.queries - first);
        // SAFETY: the caller's promise.
        let (mut blocks, sight) = unsafe { (self.blocks(worker), self.sight(batch)) };
        // SAFETY: the caller's promise about the queries, their results and gradients.
        unsafe {
            self.load_queries(&mut blocks, [batch, head, first], count);
            self.share(&mut blocks, [batch, head, first], count);
        }
        blocks.slopes.fill(0.0);
        let keys = sight.keys_of(first..first + count);
        let mut part = Part { batch, head, query: first, queries: count, key: keys.start };
        while part.key < keys.end {
            let some = BLOCK.min(keys.end - part.key);
            // SAFETY: the caller's promise about the keys and values, which are within the sequence.
            unsafe {
                self.load_keys(&mut blocks, batch, head / attention.share_k, part.key, some);
                self.slopes(&mut blocks, &sight, part, some);
                let product = Multiply {
                    rows: count.next_multiple_of(ROWS),
                    columns: layout.columns,
                    depth: some,
                    a: blocks.slopes.as_ptr(),
                    row: 1,
                    step: layout.width,
                    b: blocks.k.as_ptr(),
                    pitch: layout.columns,
                    panel: 2 * self.isa.lanes(),
                    c: blocks.sum.as_mut_ptr(),
                    to: layout.columns,
                    beta: if part.key == keys.start { Beta::Zero } else { Beta::One },
                    scale: std::ptr::null(),
                };
                product.run(self.isa);
            }
            part.key += some;
        }
        if keys.is_empty() {
            blocks.sum.fill(0.0);
        }
        // SAFETY: the caller's promise about these results.
        unsafe {
            let to = (&work.dq, self.outputs[0], [batch, head, first]);
            self.store(to, count, [attention.depth, layout.columns], self.scale, blocks.sum);
        }
    }

    /// Computes the gradients of a block of keys and values.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`], the shares of all queries are there, and nobody else has the worker's scratch memory or
    /// computes these results.
    unsafe fn keys(&self, worker: usize, batch: usize, head: usize, first: usize) {
        let (work, layout) = (&self.kernel.work, &self.kernel.layout);
        let attention = &work.attention;
        let all = BLOCK.min(attention.keys - first);
        // SAFETY: the caller's promise.
        let (mut blocks, sight) = unsafe { (self.blocks(worker), self.sight(batch)) };
        let keys = all.min(sight.keys.saturating_sub(first));
        blocks.sum.fill(0.0);
        blocks.value_sum.fill(0.0);
        if keys > 0 {
            // The queries that see any of the keys, and perhaps others between them.
            let seen = (first..first + keys).map(|key| sight.queries_of(key)).filter(|queries| !queries.is_empty());
            let (start, end) =
                seen.fold((usize::MAX, 0), |(start, end), queries| (start.min(queries.start), end.max(queries.end)));
            // SAFETY: the caller's promise; the keys are within the sequence.
            unsafe { self.load_keys(&mut blocks, batch, head, first, keys) };
            for shared in 0..attention.share_k {
                let head = head * attention.share_k + shared;
                let mut query = start.min(end);
                while query < end {
                    let queries = BLOCK.min(end - query);
                    let part = Part { batch, head, query, queries, key: first };
                    // SAFETY: the caller's promise about the queries and their gradients, which are within the
                    // sequence.
                    unsafe {
                        self.load_queries(&mut blocks, [batch, head, query], queries);
                        self.slopes(&mut blocks, &sight, part, keys);
                        for (a, b, c, columns) in [
                            (&*blocks.slopes, &*blocks.q, &mut *blocks.sum, layout.columns),
                            (&*blocks.scores, &*blocks.d_o, &mut *blocks.value_sum, layout.value_columns),
                        ] {
                            let product = Multiply {
                                rows: keys.next_multiple_of(ROWS),
                                columns,
                                depth: queries,
                                a: a.as_ptr(),
                                row: layout.width,
                                step: 1,
                                b: b.as_ptr(),
                                pitch: columns,
                                panel: 2 * self.isa.lanes(),
                                c: c.as_mut_ptr(),
                                to: columns,
                                beta: Beta::One,
                                scale: std::ptr::null(),
                            };
                            product.run(self.isa);
                        }
                    }
                    query += queries;
                }
            }
        }
        // Rows behind the keys that are there have sums of what else was in the blocks.
        blocks.sum[keys * layout.columns..].fill(0.0);
        blocks.value_sum[keys * layout.value_columns..].fill(0.0);
        // SAFETY: the caller's promise about these results.
        unsafe {
            let at = [batch, head, first];
            let (depths, value_depths) =
                ([attention.depth, layout.columns], [attention.value_depth, layout.value_columns]);
            self.store((&work.dk, self.outputs[1], at), all, depths, self.scale, blocks.sum);
            self.store((&work.dv, self.outputs[2], at), all, value_depths, 1.0, blocks.value_sum);
        }
    }

    /// Loads queries and the gradients of their results.
    ///
    /// # Safety
    /// They can be read.
    unsafe fn load_queries(&self, blocks: &mut Blocks<'_>, at: [usize; 3], count: usize) {
        let (work, layout) = (&self.kernel.work, &self.kernel.layout);
        let attention = &work.attention;
        let (q, d_o) = (self.inputs[0], self.inputs[8]);
        let (depths, value_depths) = ([attention.depth, layout.columns], [attention.value_depth, layout.value_columns]);
        // SAFETY: the caller's promise.
        unsafe {
            load_columns(self.isa, &attention.q, q, at, [count, layout.width], blocks.q_columns);
            load_columns(self.isa, &work.d_o, d_o, at, [count, layout.width], blocks.do_columns);
            load_rows(self.isa, &attention.q, q, at, count, depths, blocks.q);
            load_rows(self.isa, &work.d_o, d_o, at, count, value_depths, blocks.d_o);
        }
    }

    /// Loads keys and values, with rows of zeros up to a multiple of [`ROWS`].
    ///
    /// # Safety
    /// They can be read.
    unsafe fn load_keys(&self, blocks: &mut Blocks<'_>, batch: usize, head: usize, key: usize, count: usize) {
        let layout = &self.kernel.layout;
        let attention = &self.kernel.work.attention;
        let at = [batch, head, key];
        let (depths, value_depths) = ([attention.depth, layout.columns], [attention.value_depth, layout.value_columns]);
        // SAFETY: the caller's promise.
        unsafe {
            load_rows(self.isa, &attention.k, self.inputs[1], at, count, depths, blocks.k);
            load_rows(self.isa, &attention.v, self.inputs[2], at, count, value_depths, blocks.v);
        }
        let rows = count.next_multiple_of(ROWS);
        blocks.k[count * layout.columns..rows * layout.columns].fill(0.0);
        blocks.v[count * layout.value_columns..rows * layout.value_columns].fill(0.0);
    }

    /// Keeps the sum `d` of each query of a block.
    ///
    /// # Safety
    /// The results can be read, their gradients have been loaded, and no other unit has these queries.
    unsafe fn share(&self, blocks: &mut Blocks<'_>, [batch, head, first]: [usize; 3], count: usize) {
        let (work, layout) = (&self.kernel.work, &self.kernel.layout);
        let attention = &work.attention;
        let depth = attention.value_depth;
        for row in 0..count {
            // The row of sums is not in use yet, but may be shorter than a result.
            let (mut sum, mut start) = (0f64, 0);
            let piece = &mut blocks.scores[..MAX_LANES];
            while start < depth {
                let len = piece.len().min(depth - start);
                let at = work.o.at(batch, head, first + row) + start * work.o.strides[3];
                // SAFETY: the caller's promise.
                unsafe { work.o.storage.load(self.isa, self.inputs[7], at, work.o.strides[3], &mut piece[..len]) };
                let gradients = &blocks.d_o[row * layout.value_columns + start..][..len];
                sum += piece.iter().zip(gradients).map(|(o, d)| f64::from(*o) * f64::from(*d)).sum::<f64>();
                start += len;
            }
            let place = (batch * attention.heads + head) * attention.queries + first + row;
            // SAFETY: there is a place for each query.
            unsafe { self.shares.add(place).write(sum as f32) };
        }
    }

    /// Computes `p`, in the place of scores, and `ds` for a block of the scores.
    ///
    /// # Safety
    /// Queries and keys have been loaded; the mask and the statistics can be read; the shares are there.
    unsafe fn slopes(&self, blocks: &mut Blocks<'_>, sight: &Sight, part: Part, keys: usize) {
        let (work, layout) = (&self.kernel.work, &self.kernel.layout);
        let attention = &work.attention;
        let rows = keys.next_multiple_of(ROWS);
        // What no query has makes all powers 0.
        let (mut base, mut share) = ([f32::INFINITY; BLOCK], [0f32; BLOCK]);
        for row in 0..part.queries {
            let mut stats = [0f32];
            let offset = work.stats.at(part.batch, part.head, part.query + row);
            // SAFETY: the caller's promise.
            unsafe {
                work.stats.storage.load(self.isa, self.inputs[9], offset, 1, &mut stats);
                let place = (part.batch * attention.heads + part.head) * attention.queries + part.query + row;
                share[row] = self.shares.add(place).read();
            }
            // A query that sees nothing has -∞.
            base[row] = if stats[0] == f32::NEG_INFINITY { f32::INFINITY } else { stats[0] };
        }
        // SAFETY: the blocks have as many rows and columns.
        unsafe {
            let products = [
                (
                    blocks.k.as_ptr(),
                    layout.columns,
                    blocks.q_columns.as_ptr(),
                    attention.depth,
                    blocks.scores.as_mut_ptr(),
                ),
                (
                    blocks.v.as_ptr(),
                    layout.value_columns,
                    blocks.do_columns.as_ptr(),
                    attention.value_depth,
                    blocks.slopes.as_mut_ptr(),
                ),
            ];
            for (a, row, b, depth, c) in products {
                let product = Multiply {
                    rows,
                    columns: layout.width,
                    depth,
                    a,
                    row,
                    step: 1,
                    b,
                    pitch: layout.width,
                    panel: 2 * self.isa.lanes(),
                    c,
                    to: layout.width,
                    beta: Beta::Zero,
                    scale: std::ptr::null(),
                };
                product.run(self.isa);
            }
            let masking = Masking { attention, mask: self.inputs[3], sight, scale: self.scale };
            masking.apply(self.isa, part, &mut blocks.scores[..keys * layout.width], [layout.width; 2]);
        }
        let gradient = Gradient {
            scores: &mut blocks.scores[..keys * layout.width],
            slopes: &mut blocks.slopes[..keys * layout.width],
            base: &base[..layout.width],
            share: &share[..layout.width],
        };
        gradient.run(self.isa);
    }

    /// Writes rows of sums, multiplied by a factor.
    ///
    /// # Safety
    /// The rows can be written, and nobody else uses them.
    unsafe fn store(
        &self,
        (operand, base, [batch, head, first]): (&Operand, *mut u8, [usize; 3]),
        count: usize,
        [depth, columns]: [usize; 2],
        factor: f32,
        sums: &mut [f32],
    ) {
        for (row, values) in sums.chunks_exact_mut(columns).take(count).enumerate() {
            let values = &mut values[..depth];
            values.iter_mut().for_each(|value| *value *= factor);
            let at = operand.at(batch, head, first + row);
            // SAFETY: the caller's promise.
            unsafe { operand.storage.store(self.isa, values, base, at, operand.strides[3]) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::sdpa::tests::{Problem, Sizes, rows_first};
    use crate::nodes::testing::{Bench, noise, unit};
    use DataType::{BFloat16, Float, Half, Int32};
    use hipdnn_schemas::{DataType, Operation, TensorDef, TensorUid};

    fn plain() -> SdpaBackward {
        SdpaBackward::new([0, 1, 2, 3, 4, 5].map(TensorUid), [6, 7, 8].map(TensorUid))
    }

    /// Case: name, sizes, a change of the node, the pairs that are seen.
    type Case = (&'static str, [i64; 8], fn(&mut SdpaBackward), fn(usize, usize, usize) -> bool);

    const SEQ_Q: [i64; 3] = [50, 101, 0];
    const SEQ_KV: [i64; 3] = [97, 30, 60];

    const CASES: &[Case] = &[
        ("one of everything", [1, 1, 1, 1, 1, 1, 1, 1], |_| {}, |_, _, _| true),
        ("small", [2, 3, 3, 3, 5, 7, 4, 6], |_| {}, |_, _, _| true),
        ("several blocks, grouped heads", [1, 4, 2, 2, 130, 110, 20, 17], |_| {}, |_, _, _| true),
        ("a mask", [2, 2, 1, 1, 30, 20, 8, 8], |n| n.attn_mask = Some(TensorUid(9)), |_, _, _| true),
        ("causal", [1, 2, 2, 2, 120, 120, 8, 8], |n| n.causal_mask = true, |_, i, j| j <= i),
        (
            "causal from the bottom right, with queries that see nothing",
            [1, 2, 2, 2, 120, 20, 16, 16],
            |n| n.causal_mask_bottom_right = true,
            |_, i, j| j + 100 <= i,
        ),
        (
            "a window",
            [1, 1, 1, 1, 210, 220, 8, 8],
            |n| (n.left_bound, n.right_bound, n.attn_scale_value) = (Some(3), Some(1), Some(0.7)),
            |_, i, j| j <= i + 1 && j + 3 >= i,
        ),
        (
            "sequence lengths",
            [3, 2, 1, 1, 101, 97, 8, 8],
            |n| {
                n.padding_mask = true;
                (n.seq_len_q, n.seq_len_kv) = (Some(TensorUid(10)), Some(TensorUid(11)));
            },
            |b, i, j| (i as i64) < SEQ_Q[b] && (j as i64) < SEQ_KV[b],
        ),
    ];

    #[test]
    fn gradients_are_what_loops_give() {
        let types = [[Float, Float], [Half, Half], [BFloat16, Float]];
        for (turn, ((what, sizes, change, seen), [data, gradients])) in
            CASES.iter().flat_map(|case| types.iter().map(move |types| (case, *types))).enumerate()
        {
            let sizes = Sizes::new(*sizes);
            let mut node = plain();
            change(&mut node);
            let strided = |uid, data_type, dims: [i64; 4]| {
                let tensor = TensorDef::new(uid, data_type, &dims);
                if (turn as i64 + uid) % 2 == 0 { tensor } else { tensor.strided(&rows_first(dims)) }
            };
            let masked = [1, sizes.heads, sizes.queries, sizes.keys];
            let mut bench = Bench::new(
                Operation::SdpaBackward(Box::new(node.clone())),
                vec![
                    strided(0, data, sizes.q()),
                    strided(1, data, sizes.k()),
                    strided(2, data, sizes.v()),
                    strided(3, data, sizes.o()),
                    strided(4, data, sizes.o()),
                    TensorDef::new(5, Float, &[sizes.batch, sizes.heads, sizes.queries, 1]),
                    strided(6, gradients, sizes.q()),
                    strided(7, gradients, sizes.k()),
                    strided(8, gradients, sizes.v()),
                    TensorDef::new(9, Float, &masked),
                    TensorDef::new(10, Int32, &[sizes.batch]),
                    TensorDef::new(11, Int32, &[sizes.batch]),
                ],
            );
            let q = bench.fill(0, |i| noise(i) * 1.5);
            let k = bench.fill(1, |i| noise(i + 1000) * 1.5);
            let v = bench.fill(2, |i| noise(i + 2000) + 0.25);
            let d_o = bench.fill(4, |i| noise(i + 3000));
            let mask = node.attn_mask.map(|_| bench.fill(9, |i| noise(i + 4000)));
            if node.padding_mask {
                bench.fill(10, |b| SEQ_Q[b] as f64);
                bench.fill(11, |b| SEQ_KV[b] as f64);
            }
            let [heads, share, queries, keys, depth, dv] = [
                sizes.heads as usize,
                (sizes.heads / sizes.heads_k) as usize,
                sizes.queries as usize,
                sizes.keys as usize,
                sizes.depth as usize,
                sizes.value_depth as usize,
            ];
            let scale = node.attn_scale_value.map_or(f64::from((1.0 / (depth as f64).sqrt()) as f32), f64::from);
            let mask_at = |_: usize, h: usize, i: usize, j: usize| {
                mask.as_ref().map_or(0.0, |mask| mask[(h * queries + i) * keys + j])
            };
            let problem = Problem { sizes, q: &q, k: &k, scale, mask: &mask_at, seen, sink: None };
            let rows: Vec<_> = (0..sizes.batch as usize * heads * queries)
                .map(|n| problem.row(n / queries / heads, n / queries % heads, n % queries))
                .collect();
            let value = |n: usize, j: usize, d: usize| {
                let (b, h) = (n / queries / heads, n / queries % heads);
                v[((b * (heads / share) + h / share) * keys + j) * dv + d]
            };
            let o = bench.fill(3, |at| {
                let (n, d) = (at / dv, at % dv);
                if rows[n].sum == 0.0 {
                    return 0.0;
                }
                (0..keys).map(|j| rows[n].power[j] * value(n, j, d)).sum::<f64>() / rows[n].sum
            });
            let stats = bench.fill(5, |n| rows[n].largest + rows[n].sum.ln());
            // The formula, and the magnitude of what each gradient is a sum of times how far off that can be.
            let u = 2f64.powi(-24);
            let (mut want, mut off) = ([vec![], vec![], vec![]], [vec![], vec![], vec![]]);
            for (i, len) in [q.len(), k.len(), v.len()].into_iter().enumerate() {
                (want[i], off[i]) = (vec![0f64; len], vec![0f64; len]);
            }
            for (n, row) in rows.iter().enumerate() {
                let (b, h) = (n / queries / heads, n / queries % heads);
                let share_of = |d: usize| d_o[n * dv + d] * o[n * dv + d];
                let (d, d_size) = ((0..dv).map(share_of).sum::<f64>(), (0..dv).map(|d| share_of(d).abs()).sum::<f64>());
                for j in (0..keys).filter(|j| row.power[*j] > 0.0) {
                    let p = row.power[j] * (row.largest - stats[n]).exp();
                    let term = |d: usize| d_o[n * dv + d] * value(n, j, d);
                    let slope = (0..dv).map(term).sum::<f64>() - d;
                    let size = (0..dv).map(|d| term(d).abs()).sum::<f64>() + d_size;
                    // Scores, statistics and powers; sums of as many products as values are deep.
                    let relative = row.error + (stats[n].abs() + 8.0) * u;
                    let slope_off = p * (slope.abs() * relative + size * (dv as f64 + 4.0) * u);
                    let key = ((b * (heads / share) + h / share) * keys + j) * depth;
                    let at = ((b * (heads / share) + h / share) * keys + j) * dv;
                    let long = (keys.max(queries * share) + 8) as f64 * u;
                    for d in 0..depth {
                        for (which, to, factor) in [(0, n * depth + d, k[key + d]), (1, key + d, q[n * depth + d])] {
                            let factor = factor * scale;
                            want[which][to] += p * slope * factor;
                            off[which][to] += (slope_off + p * size * long) * factor.abs();
                        }
                    }
                    for d in 0..dv {
                        want[2][at + d] += p * d_o[n * dv + d];
                        off[2][at + d] += p * d_o[n * dv + d].abs() * (relative + long);
                    }
                }
            }
            let got = bench.run(1);
            assert_eq!(
                Vec::from_iter(got.values().flatten().map(|v| v.to_bits())),
                Vec::from_iter(bench.run(3).values().flatten().map(|v| v.to_bits())),
                "{what}: other results on three threads"
            );
            let (relative, smallest) = unit(gradients);
            for (which, uid, name) in [(0, 6, "dq"), (1, 7, "dk"), (2, 8, "dv")] {
                for (i, (got, want)) in got[&uid].iter().zip(&want[which]).enumerate() {
                    let bound = 1.01 * off[which][i] + want.abs() * relative + smallest;
                    assert!((got - want).abs() <= bound, "{what} {data}: {name} {i}: {got} for {want} ± {bound}");
                }
            }
        }
    }

    #[test]
    fn what_is_not_served_is_declined_by_name() {
        type Change = (&'static str, i64, fn(&mut SdpaBackward));
        let changes: [Change; 4] = [
            ("dbias_tensor_uid: expected null, got 9", 2, |n| n.dbias = Some(TensorUid(9))),
            ("dropout_scale_inv_tensor_uid: expected null, got 9", 2, |n| n.dropout_scale_inv = Some(TensorUid(9))),
            ("alibi_mask: expected false, got true", 2, |n| n.alibi_mask = true),
            ("v (tensor 2): expected extents with the 2 heads of k, got [1, 1, 5, 8]", 1, |_| {}),
        ];
        for (want, heads_v, change) in changes {
            let sizes = Sizes::new([1, 2, 2, heads_v, 3, 5, 8, 8]);
            let mut node = plain();
            change(&mut node);
            let shapes =
                [sizes.q(), sizes.k(), sizes.v(), sizes.o(), sizes.o(), [1, 2, 3, 1], sizes.q(), sizes.k(), sizes.v()];
            let mut tensors: Vec<TensorDef> =
                shapes.iter().enumerate().map(|(uid, dims)| TensorDef::new(uid as i64, Float, dims)).collect();
            tensors.push(TensorDef::new(9, Float, &[1]));
            let reason = Bench::declined(Operation::SdpaBackward(Box::new(node)), tensors);
            assert!(reason.contains(want) && reason.starts_with("node 0 (SdpaBackward)"), "{reason}");
        }
    }
}
