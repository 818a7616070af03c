//! Forward pass: blocks of queries, each with all blocks of the keys that it sees. One block of the scores is kept at a
//! time, so that memory does not grow with the sequences.

use super::{Attention, Operand, Sight, pack};
use crate::nodes::{LibraryKernel, Recipe};
use hipdnn_cpu_kernels::attention::{Beta, Bias, Biased, Multiply, Softmax};
use hipdnn_cpu_kernels::transpose::Transposition;
use hipdnn_cpu_pointwise::Storage;
use hipdnn_cpu_simd::isa::Isa;
use hipdnn_cpu_threads::Pool;

/// Maximum number of queries and keys of a block of the backward pass: a multiple of
/// [`hipdnn_cpu_kernels::attention::ROWS`] and of the lanes of two vectors.
pub(super) const BLOCK: usize = 96;

/// Maximum number of queries of a block, twice a multiple of the lanes of two vectors: each block reads all keys and values.
const QUERIES: usize = 256;

/// Maximum number of keys of a block.
const KEYS: usize = 128;

/// Number of queries down to which blocks are cut so that all threads have some: each reads all keys and values.
pub(super) const LEAST: usize = 32;

/// `f32` values of a block of rows that a first-level cache holds without conflicts.
const CACHED: usize = 8192;

/// Number of keys whose masks are loaded together.
const MASKS: usize = 16;

/// Forward pass.
#[derive(Clone, Debug)]
pub(super) struct Forward {
    pub(super) attention: Attention,
    pub(super) o: Operand,
    pub(super) stats: Option<Operand>,
    pub(super) largest: Option<Operand>,
    pub(super) sum: Option<Operand>,
    /// Type of the sinks, and the stride between heads.
    pub(super) sink: Option<(Storage, usize)>,
    /// Result of a query that sees no key.
    pub(super) unseen: f32,
}

impl Recipe for Forward {
    fn kernel(&self, threads: usize) -> Box<dyn LibraryKernel> {
        let isa = Isa::best();
        Box::new(Kernel { work: self.clone(), isa, threads, layout: Layout::new(&self.attention, isa, threads) })
    }
}

#[derive(Debug)]
struct Kernel {
    work: Forward,
    isa: Isa,
    threads: usize,
    layout: Layout,
}

/// Layout of a worker's scratch memory: offsets of its blocks, in `f32` values.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Number of queries of a block.
    block: usize,
    /// Stride between the scores of two keys: an odd number of cache lines, as others share a few sets of the
    /// first-level cache.
    pitch: usize,
    /// Depth of values, up to whole vectors.
    columns: usize,
    /// Queries, a column each, in panels; keys, a row each; values, a row each, in panels; scores, a column a query;
    /// results, a row a query.
    q: usize,
    k: usize,
    v: usize,
    scores: usize,
    o: usize,
    len: usize,
}

/// Offsets of places after each other, each from a cache line on, and the size of all.
pub(super) fn places<const N: usize>(sizes: [usize; N]) -> ([usize; N], usize) {
    let mut at = 0;
    let places = sizes.map(|size| {
        let place = at;
        at += size.next_multiple_of(pack::LINE);
        place
    });
    (places, at)
}

impl Layout {
    fn new(attention: &Attention, isa: Isa, threads: usize) -> Layout {
        let panel = pack::width(isa);
        // Blocks of about one size. Where they all see the same keys, results do not depend on how many there are: enough for
        // all threads, unless they get too small.
        let queries = attention.queries.max(1);
        let threads = if attention.window.is_bounded() { 1 } else { threads };
        let wanted = threads.div_ceil((attention.batch * attention.heads).max(1)).min(queries.div_ceil(LEAST));
        // A window's border crosses a block, of which a part is computed in vain.
        let most = if attention.window.is_bounded() { QUERIES / 2 } else { QUERIES };
        let block = queries.div_ceil(queries.div_ceil(most).max(wanted));
        let width = block.next_multiple_of(isa.lanes());
        let pitch = (width.div_ceil(pack::LINE) | 1) * pack::LINE;
        let columns = attention.value_depth.next_multiple_of(isa.lanes());
        let keys = attention.keys.min(KEYS);
        let depth = attention.depth;
        let panels = [width, columns].map(|columns| columns.next_multiple_of(panel));
        let sizes = [panels[0] * depth, keys * depth, keys * panels[1], keys * pitch, block * columns];
        let ([q, k, v, scores, o], len) = places(sizes);
        Layout { block, pitch, columns, q, k, v, scores, o, len }
    }
}

/// Size of blocks of so many, all but the last of one size.
fn balanced(all: usize) -> usize {
    all.div_ceil(all.div_ceil(KEYS).max(1))
}

/// Values of a block of keys as a product reads them: the first one, the stride between rows, and that between panels of
/// columns.
struct Panels {
    at: *const f32,
    pitch: usize,
    panel: usize,
}

/// State of a run, shared with the threads that work on it.
struct Run<'a> {
    kernel: &'a Kernel,
    isa: Isa,
    scale: f32,
    inputs: &'a [*const u8],
    outputs: &'a [*mut u8],
    scratch: *mut f32,
}

// SAFETY: inputs are only read; results are written by the one unit that computes them, scratch memory by the one worker
// whose it is.
unsafe impl Sync for Run<'_> {}

impl LibraryKernel for Kernel {
    fn scratch_bytes(&self) -> usize {
        self.threads * self.layout.len * size_of::<f32>()
    }

    unsafe fn run(&self, pool: &Pool, inputs: &[*const u8], outputs: &[*mut u8], scratch: *mut u8) {
        let attention = &self.work.attention;
        // SAFETY: the caller's promise about the scale.
        let scale = unsafe { attention.scale.get(inputs[4]) };
        let run = Run { kernel: self, isa: self.isa, scale, inputs, outputs, scratch: scratch.cast() };
        // The whole value moves into the closure, so that its promise about threads is what is checked.
        let run = &run;
        let blocks = attention.queries.div_ceil(self.layout.block);
        pool.run_indexed(attention.batch * attention.heads * blocks, self.threads, &|worker, unit| {
            let (row, block) = (unit / blocks, unit % blocks);
            let (batch, head) = (row / attention.heads, row % attention.heads);
            // SAFETY: the caller's promise; no other unit has these queries, no other thread this worker's memory.
            unsafe { run.block(worker, batch, head, block * self.layout.block) };
        });
    }
}

impl Run<'_> {
    /// Computes the results of a block of queries.
    ///
    /// # Safety
    /// As [`LibraryKernel::run`], and nobody else has the worker's scratch memory or computes these results.
    unsafe fn block(&self, worker: usize, batch: usize, head: usize, first: usize) {
        let (work, layout) = (&self.kernel.work, &self.kernel.layout);
        let attention = &work.attention;
        let count = layout.block.min(attention.queries - first);
        let (width, pitch) = (count.next_multiple_of(self.isa.lanes()), layout.pitch);
        let scratch = self.scratch.wrapping_add(worker * layout.len);
        let part = |at: usize, end: usize| {
            // SAFETY: the worker's scratch memory, aligned; each of its parts is borrowed once.
            unsafe { std::slice::from_raw_parts_mut(scratch.add(at), end - at) }
        };
        let q = part(layout.q, layout.k);
        let k = part(layout.k, layout.v);
        let v = part(layout.v, layout.scores);
        let scores = part(layout.scores, layout.o);
        let (mut largest, mut sum, mut factor) = ([f32::NEG_INFINITY; QUERIES], [0f32; QUERIES], [1f32; QUERIES]);
        if let Some((storage, stride)) = work.sink {
            let mut sink = [0f32];
            // SAFETY: there is a sink for each head.
            unsafe { storage.load(self.isa, self.inputs[7], head * stride, 1, &mut sink) };
            // e^(sink - largest) with the sink as the largest so far.
            largest.fill(sink[0]);
            sum.fill(1.0);
        }
        // SAFETY: the caller's promise about lengths, queries, keys and values.
        let sight = unsafe {
            let at = [batch, head, first];
            pack::columns(self.isa, &attention.q, self.inputs[0], at, [count, attention.depth], q);
            attention.sight(batch, [self.inputs[5], self.inputs[6]])
        };
        let masking = Masking { attention, mask: self.inputs[3], sight: &sight, scale: self.scale };
        let keys = sight.keys_of(first..first + count);
        let (block, mut key) = (balanced(keys.len().max(1)), keys.start);
        // Results are summed where they belong, if whole vectors fit there, else in scratch memory.
        let in_place = work.o.in_place(self.outputs[0].cast_const(), [batch, head, first]);
        let in_place = in_place.filter(|_| attention.value_depth == layout.columns);
        let (result, across) = match in_place {
            Some(rows) => (rows.cast_mut(), work.o.strides[2]),
            None => (scratch.wrapping_add(layout.o), layout.columns),
        };
        let mut inverse = [0f32; QUERIES];
        while key < keys.end {
            let some = block.min(keys.end - key);
            let part = Part { batch, head, query: first, queries: count, key };
            // SAFETY: the caller's promise; the keys are within the sequence.
            let (values, scale) = unsafe {
                let (shared_k, shared_v) = (head / attention.share_k, head / attention.share_v);
                let place = [batch, shared_k, key];
                let (a, row) = match attention.k.in_place(self.inputs[1], place) {
                    Some(rows) => (rows, attention.k.strides[2]),
                    None => {
                        let (isa, depth) = (self.isa, attention.depth);
                        match attention.k.columns_in_place(self.inputs[1], place) {
                            Some(from) => {
                                let (across, to) = (attention.k.strides[3], k.as_mut_ptr());
                                Transposition { from, across, to, out: depth, rows: depth, columns: some }.run(isa);
                            }
                            None => load_rows(isa, &attention.k, self.inputs[1], place, some, [depth; 2], k),
                        }
                        (k.as_ptr(), depth)
                    }
                };
                let place = [batch, shared_v, key];
                let (panel, across) = (pack::width(self.isa), attention.v.strides[2]);
                let whole = attention.value_depth.is_multiple_of(panel) && some * across <= CACHED;
                let values = match attention.v.in_place(self.inputs[2], place).filter(|_| whole) {
                    Some(rows) => Panels { at: rows, pitch: across, panel },
                    None => {
                        pack::rows(self.isa, &attention.v, self.inputs[2], place, [some, attention.value_depth], v);
                        Panels { at: v.as_ptr(), pitch: panel, panel: panel * some }
                    }
                };
                let product = Multiply {
                    rows: some,
                    columns: width,
                    depth: attention.depth,
                    a,
                    row,
                    step: 1,
                    b: q.as_ptr(),
                    pitch: pack::width(self.isa),
                    panel: pack::width(self.isa) * attention.depth,
                    c: scores.as_mut_ptr(),
                    to: pitch,
                    beta: Beta::Zero,
                    scale: std::ptr::null(),
                };
                product.run(self.isa);
                let scale = match masking.is_scale(part, some) {
                    true => self.scale,
                    false => {
                        masking.apply(self.isa, part, &mut scores[..some * pitch], [width, pitch]);
                        1.0
                    }
                };
                (values, scale)
            };
            let step = Softmax {
                scores: &mut scores[..some * pitch],
                pitch,
                scale,
                largest: &mut largest[..width],
                sum: &mut sum[..width],
                factor: &mut factor[..width],
            };
            step.run(self.isa);
            let is_last = key + some == keys.end;
            if is_last {
                for (inverse, sum) in inverse[..width].iter_mut().zip(&sum) {
                    *inverse = 1.0 / sum;
                }
            }
            let product = Multiply {
                rows: count,
                columns: layout.columns,
                depth: some,
                a: scores.as_ptr(),
                row: 1,
                step: pitch,
                b: values.at,
                pitch: values.pitch,
                panel: values.panel,
                c: result,
                to: across,
                beta: if key == keys.start { Beta::Zero } else { Beta::Rows(factor.as_ptr()) },
                scale: if is_last { inverse.as_ptr() } else { std::ptr::null() },
            };
            // SAFETY: the scores have a row for each of these keys. Values have one, too: in panels of whole vectors, as packed, or
            // as the caller's rows from this key on, whose columns are whole panels. Results have a row of whole vectors for each query, and a
            // factor each; what is rescaled has been stored for the first block of keys.
            unsafe { product.run(self.isa) };
            key += some;
        }
        for row in 0..count {
            let there = first + row < sight.queries;
            let (largest, sum) = if there { (largest[row], sum[row]) } else { (f32::NEG_INFINITY, 0.0) };
            let place = [batch, head, first + row];
            // SAFETY: the caller's promise about the results of this query, which scratch memory has room for.
            unsafe {
                let values = std::slice::from_raw_parts_mut(result.add(row * across), attention.value_depth);
                if keys.is_empty() || sum == 0.0 {
                    values.fill(work.unseen);
                }
                if in_place.is_none() {
                    let at = work.o.at(batch, head, first + row);
                    work.o.storage.store(self.isa, values, self.outputs[0], at, work.o.strides[3]);
                }
                if work.stats.is_some() {
                    let stats = (f64::from(largest) + f64::from(sum).ln()) as f32;
                    self.put(&work.stats, 1, place, stats);
                }
                self.put(&work.largest, 2, place, largest);
                self.put(&work.sum, 3, place, sum);
            }
        }
    }

    /// # Safety
    /// As [`Run::block`].
    unsafe fn put(&self, operand: &Option<Operand>, index: usize, [batch, head, row]: [usize; 3], value: f32) {
        if let Some(operand) = operand {
            let at = operand.at(batch, head, row);
            // SAFETY: the caller's promise.
            unsafe { operand.storage.store(self.isa, &[value], self.outputs[index], at, 1) };
        }
    }
}

/// Loads `count` rows of `depth` elements, each followed by zeros up to `columns`.
///
/// # Safety
/// The rows can be read.
pub(super) unsafe fn load_rows(
    isa: Isa,
    operand: &Operand,
    base: *const u8,
    [batch, head, row]: [usize; 3],
    count: usize,
    [depth, columns]: [usize; 2],
    to: &mut [f32],
) {
    for (i, to) in to.chunks_exact_mut(columns).take(count).enumerate() {
        let (values, rest) = to.split_at_mut(depth);
        let at = operand.at(batch, head, row + i);
        // SAFETY: the caller's promise.
        unsafe { operand.storage.load(isa, base, at, operand.strides[3], values) };
        rest.fill(0.0);
    }
}

/// Loads `count` rows as columns of `width`, with zeros for those that are missing.
///
/// # Safety
/// The rows can be read.
pub(super) unsafe fn load_columns(
    isa: Isa,
    operand: &Operand,
    base: *const u8,
    [batch, head, row]: [usize; 3],
    [count, width]: [usize; 2],
    to: &mut [f32],
) {
    const PIECE: usize = 256;
    let depth = to.len() / width;
    let mut values = [0f32; PIECE];
    for start in (0..depth).step_by(PIECE) {
        let len = PIECE.min(depth - start);
        for i in 0..count {
            let at = operand.at(batch, head, row + i) + start * operand.strides[3];
            // SAFETY: the caller's promise.
            unsafe { operand.storage.load(isa, base, at, operand.strides[3], &mut values[..len]) };
            for (value, to) in values[..len].iter().zip(to[start * width..].chunks_exact_mut(width)) {
                to[i] = *value;
            }
        }
    }
    for to in to.chunks_exact_mut(width) {
        to[count..].fill(0.0);
    }
}

/// Block of the scores: queries of a head, and keys from one on.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) batch: usize,
    pub(super) head: usize,
    pub(super) query: usize,
    pub(super) queries: usize,
    pub(super) key: usize,
}

/// Scale, mask and window of the scores before the softmax.
pub(super) struct Masking<'a> {
    pub(super) attention: &'a Attention,
    /// Address of the mask.
    pub(super) mask: *const u8,
    pub(super) sight: &'a Sight,
    pub(super) scale: f32,
}

impl Masking<'_> {
    /// True if the queries see all of these keys without a mask, so that the scale, a positive one, is all there is to apply.
    fn is_scale(&self, part: Part, keys: usize) -> bool {
        let Part { query: first, queries: count, key, .. } = part;
        let sees = |key: usize| {
            let seen = self.sight.queries_of(key);
            seen.start <= first && first + count <= seen.end
        };
        // Both ends of what a key is seen by grow with the key.
        self.scale > 0.0 && self.attention.mask.is_none() && sees(key) && sees(key + keys - 1)
    }

    /// Scales scores, adds the mask, and makes what is not seen -∞; the queries of a key are side by side, up to `width`,
    /// and `pitch` from those of the next.
    ///
    /// # Safety
    /// The mask of these queries and keys can be read.
    pub(super) unsafe fn apply(&self, isa: Isa, part: Part, scores: &mut [f32], [width, pitch]: [usize; 2]) {
        let Part { batch, head, query: first, queries: count, key } = part;
        let add = |scores: &mut [f32], bias: Bias| {
            // SAFETY: the caller's promise about the mask, which is read in place, or the buffer's size below.
            unsafe { Biased { scores, pitch, queries: count, scale: self.scale, bias }.run(isa) };
        };
        match &self.attention.mask {
            None => add(scores, Bias::None),
            Some(mask) if mask.storage == Storage::F32 && (mask.strides[2] == 0 || mask.strides[3] == 1) => {
                let from = self.mask.cast::<f32>().wrapping_add(mask.at(batch, head, first) + key * mask.strides[3]);
                add(
                    scores,
                    match mask.strides[2] {
                        0 => Bias::Keys(from, mask.strides[3]),
                        across => Bias::Rows(from, across),
                    },
                );
            }
            Some(mask) => {
                let mut bias = [0f32; MASKS * QUERIES];
                for (group, scores) in scores.chunks_mut(MASKS * pitch).enumerate() {
                    for (i, bias) in bias.chunks_exact_mut(QUERIES).take(scores.len() / pitch).enumerate() {
                        let at = mask.at(batch, head, first) + (key + group * MASKS + i) * mask.strides[3];
                        // SAFETY: the caller's promise.
                        unsafe { mask.storage.load(isa, self.mask, at, mask.strides[2], &mut bias[..count]) };
                    }
                    add(scores, Bias::Columns(bias.as_ptr(), QUERIES));
                }
            }
        }
        for (row, scores) in scores.chunks_mut(pitch).enumerate() {
            let seen = self.sight.queries_of(key + row);
            let place = |query: usize| query.clamp(first, first + count) - first;
            let (start, end) = (place(seen.start), place(seen.end));
            scores[..start].fill(f32::NEG_INFINITY);
            scores[end.max(start)..width].fill(f32::NEG_INFINITY);
        }
    }
}
