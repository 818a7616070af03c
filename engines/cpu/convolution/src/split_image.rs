//! A padded copy of the input rows that some output rows need, in bf16 terms, a place's channels side by side.
//!
//! Tiles of a matrix product have rows of one distance, and a row is an output place: its input has to be at a constant distance
//! from the one of the place before. There are two such orders. *Across rows*: input places are sorted by phases of the strides, as in
//! [`super::band`], so that neighboring outputs read neighboring places, also behind the end of a row, where places past the
//! output's width compute nothing of use. *Within rows*: places stay as they are, a stride apart, and every output row begins
//! with a tile of its own.
//!
//! Channels lie in blocks of [`DEPTH`], those of neighboring places side by side, so that a tile is one run of memory; of pointwise
//! convolutions all that a pair of tiles is multiplied with is one run. Where channels are no whole blocks, those of a kernel row's
//! places are one run instead, if the places are neighbors.

#![expect(clippy::needless_range_loop, reason = "closures of iterators are compiled without the instruction set")]

use super::band::{Axis, PhaseColumns, inside, load_apart, load_lanes};
use super::indirect::{interleave, turn};
use super::problem::{Element, Layout, Shape};
use hipdnn_cpu_simd::isa::{MAX_LANES, Simd};
use hipdnn_cpu_simd::tiles::{DEPTH, Range, Splitting, TILE, Values, split_halves, split_pair, split_row};

/// Number of places whose channels are brought side by side at a time.
const COLUMNS: usize = 16;

/// Order of the places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    AcrossRows,
    WithinRows,
}

/// Packing of the channels of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    /// Those of all places are one run: a kernel row is one tap.
    Run,
    /// For each block of channels those of all places.
    Blocks,
    /// For each pair of tiles for each block of channels its terms: of what has one tap.
    Pairs,
}

/// Places of a pair of tiles.
const PAIR: usize = 2 * TILE;

/// Sizes of the copies of a shape, for output units of some rows.
#[derive(Clone, Debug)]
pub(super) struct SplitImage {
    shape: Shape,
    x: Layout,
    order: Order,
    rows: Axis,
    columns: Axis,
    /// Places of a row, and rows of a phase.
    pitch: usize,
    phase_rows: usize,
    packing: Packing,
    /// Values from a block of channels to the next, unless pairs of tiles are packed.
    block: usize,
    /// Number of blocks, or 1 if the channels of a place are one run.
    blocks: usize,
    /// Number of places.
    count: usize,
    /// Number of places of the sum of a tap.
    pub(super) depth: usize,
    /// Number of taps.
    pub(super) taps: usize,
    /// Number of places of an output row, with those behind its end that compute nothing of use.
    pub(super) line: usize,
    terms: usize,
}

impl SplitImage {
    /// Makes the copy for `height` output rows.
    pub(super) fn new(shape: &Shape, x: &Layout, order: Order, height: usize, terms: usize) -> SplitImage {
        let width = shape.output[2];
        let steps = match order {
            Order::AcrossRows => [shape.stride[1], shape.stride[2]],
            Order::WithinRows => [1, 1],
        };
        let rows = Axis::new(shape.kernel[1], steps[0], shape.dilation[1]);
        let columns = Axis::new(shape.kernel[2], steps[1], shape.dilation[2]);
        let (line, pitch, phase_rows) = match order {
            Order::AcrossRows => (width + columns.reach, width + columns.reach, height + rows.reach),
            Order::WithinRows => {
                let line = width.next_multiple_of(TILE);
                (
                    line,
                    (line - 1) * shape.stride[2] + columns.reach + 1,
                    (height - 1) * shape.stride[1] + rows.reach + 1,
                )
            }
        };
        // A kernel row is one tap if its places are neighbors, and their channels no whole tiles anyway.
        let merged = columns.phases.len() == 1
            && shape.dilation[2] == 1
            && shape.kernel[2] > 1
            && !shape.group_in().is_multiple_of(DEPTH);
        let packing = match order {
            _ if merged => Packing::Run,
            Order::AcrossRows if shape.kernel == [1; 3] => Packing::Pairs,
            _ => Packing::Blocks,
        };
        let blocks = if merged { 1 } else { shape.group_in().div_ceil(DEPTH) };
        let place = if merged { shape.group_in() } else { DEPTH };
        let count = shape.kernel[0] * rows.phases.len() * columns.phases.len() * phase_rows * pitch;
        // Blocks whose distance is a multiple of a page would share their sets of the first-level cache.
        let block =
            (count * place).next_multiple_of(DEPTH) + if (count * place).is_multiple_of(1024) { DEPTH } else { 0 };
        let (depth, across) = match merged {
            true => (shape.kernel[2] * shape.group_in(), 1),
            false => (shape.group_in(), shape.kernel[2]),
        };
        let taps = shape.kernel[0] * shape.kernel[1] * across;
        SplitImage {
            shape: shape.clone(),
            x: *x,
            order,
            rows,
            columns,
            pitch,
            phase_rows,
            packing,
            block,
            blocks,
            count,
            depth,
            taps,
            line,
            terms,
        }
    }

    /// Tiles of the sum of a tap.
    pub(super) fn steps(&self) -> usize {
        self.depth.div_ceil(DEPTH)
    }

    /// Number of places of an output unit of `height` rows, with those between its rows that compute nothing of use.
    pub(super) fn places(&self, height: usize) -> usize {
        (height - 1) * self.line + self.shape.output[2]
    }

    /// True if the places of a kernel row are one tap.
    pub(super) fn is_merged(&self) -> bool {
        self.packing == Packing::Run
    }

    /// Values from a place to the next of a tile.
    fn place(&self) -> usize {
        if self.packing == Packing::Run { self.shape.group_in() } else { DEPTH }
    }

    /// Bytes from the first term of a tile's row to that of the next.
    pub(super) fn row_bytes(&self) -> usize {
        2 * self.place() * self.stride()
    }

    fn stride(&self) -> usize {
        if self.order == Order::WithinRows { self.shape.stride[2] } else { 1 }
    }

    /// Begin of the first term of a place's block of channels, in values.
    #[inline(always)]
    fn value(&self, place: usize, block: usize) -> usize {
        match self.packing {
            Packing::Run => place * self.shape.group_in(),
            Packing::Blocks => block * self.block + place * DEPTH,
            Packing::Pairs => {
                let pair = place / PAIR * self.blocks + block;
                (pair * self.terms * PAIR + place % PAIR) * DEPTH
            }
        }
    }

    /// Values from a block of channels to the next.
    fn block_step(&self) -> usize {
        match self.packing {
            Packing::Pairs => self.terms * PAIR * DEPTH,
            _ => self.block,
        }
    }

    /// Bytes from the copy's begin to the input of place `at` of a unit, at which a tile begins.
    pub(super) fn offset(&self, at: usize) -> usize {
        let place = match self.order {
            Order::AcrossRows => at,
            Order::WithinRows => {
                at / self.line * self.shape.stride[1] * self.pitch + at % self.line * self.shape.stride[2]
            }
        };
        2 * self.value(place, 0)
    }

    /// Values from a term to the next.
    fn term(&self) -> usize {
        if self.packing == Packing::Pairs {
            return PAIR * DEPTH;
        }
        // What the last tiles read in vain, behind the last place: of a pair of tiles, and of the last tile of a sum.
        let slack = PAIR * self.stride() * self.place() + 2 * DEPTH;
        (self.blocks * self.block + slack).next_multiple_of(DEPTH)
    }

    /// Bytes from a term to the next.
    pub(super) fn term_bytes(&self) -> usize {
        2 * self.term()
    }

    /// Bytes from the places of the sum of a step to those of the next.
    pub(super) fn step_bytes(&self) -> usize {
        2 * if self.packing == Packing::Run { DEPTH } else { self.block_step() }
    }

    /// Values of all terms.
    fn values(&self) -> usize {
        match self.packing {
            Packing::Pairs => self.count.next_multiple_of(PAIR) * self.blocks * DEPTH * self.terms,
            _ => self.terms * self.term(),
        }
    }

    /// Size of the copy in `f32` values, with the row that channels are brought side by side in.
    pub(super) fn len(&self) -> usize {
        self.values() / 2 + self.buffer()
    }

    /// Values of the buffer of places whose channels are apart.
    fn buffer(&self) -> usize {
        let apart = self.x.strides[1] != 1 && self.shape.group_in() > 1;
        if apart && self.packing == Packing::Run { (COLUMNS * self.shape.group_in()).next_multiple_of(16) } else { 0 }
    }

    /// Offsets of the taps, in bytes, in the order of the weights.
    pub(super) fn offsets(&self) -> Vec<usize> {
        let mut offsets = Vec::with_capacity(self.taps);
        let across = self.taps / (self.shape.kernel[0] * self.shape.kernel[1]);
        for t in 0..self.shape.kernel[0] {
            for (row_phase, row) in &self.rows.taps {
                for (column_phase, column) in self.columns.taps.iter().take(across) {
                    let phases = (t * self.rows.phases.len() + row_phase) * self.columns.phases.len() + column_phase;
                    let place = (phases * self.phase_rows + row) * self.pitch + column;
                    offsets.push(2 * self.value(place, 0));
                }
            }
        }
        offsets
    }

    /// Copies the input of the output rows from `row` on of a plane of an image and group; the kind of the values, of which those
    /// that are large are split with care.
    ///
    /// # Safety
    /// `x` is the input; `to` has room for [`SplitImage::len`] values.
    #[inline(always)]
    pub(super) unsafe fn fill<S: Simd>(&self, s: S, x: *const u8, at: At, to: *mut f32) -> Values {
        Fill { image: self, x, at, to }.split_by_terms(s, self.terms)
    }
}

/// Place of a copy in the output: the first row, and the first column, which only shapes of a single row have.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) image: usize,
    pub(super) group: usize,
    pub(super) z: usize,
    pub(super) row: usize,
    pub(super) column: usize,
}

/// Splitting of [`SplitImage::fill`].
#[derive(Clone, Copy)]
struct Fill<'a> {
    image: &'a SplitImage,
    x: *const u8,
    at: At,
    to: *mut f32,
}

impl Splitting for Fill<'_> {
    #[inline(always)]
    fn split<S: Simd, const T: usize, const HOW: u8>(self, s: S) -> Values {
        let Fill { image, x, at, to } = self;
        let shape = &image.shape;
        let strides = image.x.strides;
        let [depth, height, width] = shape.input;
        let [row_step, column_step] = match image.order {
            Order::AcrossRows => [shape.stride[1], shape.stride[2]],
            Order::WithinRows => [1, 1],
        };
        let source = at.image * strides[0] + at.group * shape.group_in() * strides[1];
        let copy = Copy { image, x, begin: to.cast(), buffer: to.wrapping_add(image.values() / 2) };
        let mut range = Range::new(s);
        let mut next = 0;
        // SAFETY: the copy has so many rows of so many places for each term; rows and columns are the input's.
        unsafe {
            for t in 0..shape.kernel[0] {
                let z = inside(at.z * shape.stride[0] + t * shape.dilation[0], shape.pad_before[0], depth);
                for row_phase in &image.rows.phases {
                    for column_phase in &image.columns.phases {
                        for i in 0..image.phase_rows {
                            let to = next;
                            next += image.pitch;
                            let line = at.row * shape.stride[1] + i * row_step + row_phase;
                            let line = inside(line, shape.pad_before[1], height);
                            let (Some(z), Some(line)) = (z, line) else {
                                copy.zero::<T>(to, image.pitch);
                                continue;
                            };
                            let (pad, width) = (shape.pad_before[2], width.saturating_sub(at.column));
                            let columns = PhaseColumns::new(*column_phase, column_step, pad, width, image.pitch);
                            let PhaseColumns { left, begin, count, .. } = columns;
                            copy.zero::<T>(to, left);
                            let from = source + z * strides[2] + line * strides[3] + (begin + at.column) * strides[4];
                            let places = Places { from, step: column_step * strides[4], count };
                            copy.places::<S, T, HOW>(s, &mut range, &places, to + left);
                            copy.zero::<T>(to + left + count, image.pitch - left - count);
                        }
                    }
                }
            }
            // What the last tile of a sum reads in vain has to be finite.
            if image.packing == Packing::Run {
                for term in 0..T {
                    copy.begin.add(term * image.term() + image.value(next, 0)).write_bytes(0, 2 * DEPTH);
                }
            }
        }
        range.kind(s)
    }
}

/// Places of an input row: the first channel's value of the first, the distance of two, in elements, and their number.
struct Places {
    from: usize,
    step: usize,
    count: usize,
}

/// A copy that is being filled.
struct Copy<'a> {
    image: &'a SplitImage,
    x: *const u8,
    begin: *mut u16,
    buffer: *mut f32,
}

impl Copy<'_> {
    /// Writes zeros for `count` places from `place` on.
    #[inline(always)]
    unsafe fn zero<const T: usize>(&self, place: usize, count: usize) {
        let image = self.image;
        for block in 0..image.blocks {
            for term in 0..T {
                // SAFETY: the caller's duty: places of the copy.
                unsafe {
                    let begin = self.begin.add(term * image.term());
                    if image.packing == Packing::Pairs {
                        for place in place..place + count {
                            begin.add(image.value(place, block)).write_bytes(0, DEPTH);
                        }
                    } else {
                        begin.add(image.value(place, block)).write_bytes(0, count * image.place());
                    }
                }
            }
        }
    }

    /// Splits the channels of some places, to those from `first` on.
    #[inline(always)]
    unsafe fn places<S: Simd, const T: usize, const HOW: u8>(
        &self,
        s: S,
        range: &mut Range<S>,
        places: &Places,
        first: usize,
    ) {
        let Copy { image, x, begin, buffer } = *self;
        let (element, strides, cg, term) = (image.x.element, image.x.strides, image.shape.group_in(), image.term());
        let Places { from, step, count } = *places;
        let side_by_side = strides[1] == 1 || cg == 1;
        // SAFETY: the caller's duty: so many places of the input, and of the copy; whole vectors that are written past a place's
        // end are overwritten by the next place or the zeros behind the row, or lie in the slack behind the copy.
        unsafe {
            match (image.packing, side_by_side) {
                (Packing::Run, true) => {
                    let run = step == cg;
                    for column in 0..if run { 1 } else { count } {
                        let to = begin.add(image.value(first + column, 0));
                        split_row::<S, T, HOW>(
                            s,
                            range,
                            if run { count * cg } else { cg },
                            #[inline(always)]
                            |i, lanes| load_lanes(s, element, x, from + column * step + i, lanes),
                            to,
                            term,
                        );
                    }
                }
                (Packing::Run, false) => {
                    let mut column = 0;
                    while column < count {
                        let columns = COLUMNS.min(count - column);
                        let from = from + column * step;
                        if cg == 3 && step == 1 {
                            interleave(s, element, x, [0, 1, 2].map(|c| from + c * strides[1]), columns, buffer);
                        } else {
                            turn(s, &image.x, x, from, step, [cg, columns], (buffer, cg));
                        }
                        let to = begin.add(image.value(first + column, 0));
                        split_row::<S, T, HOW>(
                            s,
                            range,
                            columns * cg,
                            #[inline(always)]
                            |i, lanes| load_lanes(s, Element::F32, buffer.cast(), i, lanes),
                            to,
                            term,
                        );
                        column += columns;
                    }
                }
                (_, true) => {
                    // A tile's places before the next block of channels: what is written lies in few pages then.
                    let mut column = 0;
                    while column < count {
                        let columns = TILE.min(count - column);
                        for block in 0..image.blocks {
                            let channel = block * DEPTH;
                            for column in column..column + columns {
                                let from = from + column * step;
                                let to = begin.add(image.value(first + column, block));
                                split_halves::<S, T, HOW>(
                                    s,
                                    range,
                                    #[inline(always)]
                                    |i| {
                                        let lanes = cg.saturating_sub(channel + i).min(S::LANES);
                                        load_lanes(s, element, x, from + channel + i, lanes)
                                    },
                                    to,
                                    term,
                                );
                            }
                        }
                        column += columns;
                    }
                }
                (_, false) => self.squares::<S, T, HOW>(s, range, places, first),
            }
        }
    }

    /// Splits the channels of some places, which are apart, in blocks: squares of channels and places are transposed.
    #[inline(always)]
    unsafe fn squares<S: Simd, const T: usize, const HOW: u8>(
        &self,
        s: S,
        range: &mut Range<S>,
        places: &Places,
        first: usize,
    ) {
        let Copy { image, x, begin, .. } = *self;
        let (cg, term, element) = (image.shape.group_in(), image.term(), image.x.element);
        let channel_stride = image.x.strides[1];
        let Places { from, step, count } = *places;
        let mut column = 0;
        while column < count {
            let columns = S::LANES.min(count - column);
            let mut places = [0; MAX_LANES];
            for (i, place) in places.iter_mut().enumerate() {
                *place = image.value(first + column + i, 0);
            }
            let mut channel = 0;
            while channel < image.blocks * DEPTH {
                // SAFETY: the caller's duty: channels below `cg` of so many places, and the blocks of the copy.
                unsafe {
                    let mut halves = [[s.splat(0.0); MAX_LANES]; 2];
                    for (half, square) in halves.iter_mut().enumerate() {
                        let first = channel + half * TILE;
                        for i in 0..S::LANES {
                            if first + i < cg {
                                let from = from + (first + i) * channel_stride + column * step;
                                square[i] = load_apart(s, element, x, from, step, columns);
                            }
                        }
                        *square = s.transpose(*square);
                    }
                    for i in 0..S::LANES {
                        if i < columns {
                            let to = places[i] + channel / DEPTH * image.block_step() + channel % DEPTH * 2;
                            let pair = [halves[0][i], halves[1][i]];
                            split_pair::<S, T, HOW>(s, range, pair, begin.add(to), term as isize);
                        }
                    }
                }
                channel += S::LANES;
                if channel % DEPTH == TILE {
                    channel += TILE;
                }
            }
            column += columns;
        }
    }
}
