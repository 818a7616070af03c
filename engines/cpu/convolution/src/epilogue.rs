//! The epilogue: steps on the sums, conversion to the output's type, and stores in its layout.
//!
//! Kernels add a bias and clamp in registers, and compute what [`InTile`] describes there; an activation at its end may instead be
//! applied to results that have been stored, in the output by a [`Tail`] or in the kernel's scratch memory. What is none of it is
//! applied to whole blocks of results, a tile or some planes in scratch memory: a call for each row of an image costs more than most
//! steps themselves.

use super::band::{is_even, load_lanes, store_lanes};
use super::naive::read;
use super::problem::{Element, EpilogueStep, Layout, Problem};
use super::tile::{self, NO_CLAMP};
use hipdnn_cpu_kernels::activation::Activation;
use hipdnn_cpu_simd::isa::{Kernel, MAX_LANES, Simd, first};

/// Values of a block that stay in the first-level cache beside the operands that they are computed from.
pub(super) const BLOCK: usize = 4096;

/// Epilogue of a plan, split into the part that kernels compute in registers and the rest.
#[derive(Clone, Debug)]
pub(super) struct Epilogue {
    /// Bias that the kernels add to their sums: operand, element type, stride.
    pub(super) bias: Option<(usize, Element, usize)>,
    /// Clamp bounds behind the bias.
    pub(super) clamp: (f32, f32),
    /// Steps applied to blocks in place.
    steps: Vec<Step>,
    /// Step applied while blocks are stored: a tensor to add or multiply by; its clamp follows.
    last: Option<Combine>,
    last_clamp: (f32, f32),
    y: Layout,
    /// Rows and columns of the output.
    plane: [usize; 2],
    /// True if the places of an output plane have one stride, within a row and from row to row, in the output and every
    /// operand: a block may be worked on across rows.
    flat: bool,
    /// True if output planes have one place: blocks are rows of channels.
    single: bool,
    /// True if there are several images of one place.
    images: bool,
}

/// A step on a block.
#[derive(Clone, Debug)]
enum Step {
    Combine(Combine),
    Activation(Activation),
}

/// Operand of an addition to, or of a multiplication of, the sums.
#[derive(Clone, Copy, Debug)]
struct Combine {
    operand: usize,
    layout: Layout,
    product: bool,
}

/// Epilogue behind bias and clamp that a matrix-product tile computes in registers.
#[derive(Clone, Debug)]
pub(super) struct InTile {
    /// Steps; the lists that they name are those of `lists`, a list's length apart.
    steps: Vec<tile::Step>,
    /// Per-channel operands: operand, element type, stride.
    pub(super) lists: Vec<(usize, Element, usize)>,
    /// Stride between images of each per-channel operand, 0 if all have the same values.
    pub(super) images: Vec<usize>,
    /// Tensor that is added last, which lies as vectors of the tile do.
    pub(super) summand: Option<(usize, Layout)>,
    /// Clamp bounds of the result.
    pub(super) clamp: (f32, f32),
}

/// Values of the lists of an epilogue in registers, each of `len` values: that of the biases, then those of `tile`.
pub(super) fn lists_len(tile: Option<&InTile>, len: usize) -> usize {
    len * (1 + tile.map_or(0, |tile| tile.lists.len()))
}

/// Steps of an epilogue in registers for lists of `len` values; none without one.
pub(super) fn steps(tile: Option<&InTile>, len: usize) -> Vec<tile::Step> {
    tile.map_or(Vec::new(), |tile| tile.steps(len))
}

impl InTile {
    /// Steps for lists of `len` values.
    fn steps(&self, len: usize) -> Vec<tile::Step> {
        let place = |step: &tile::Step| match *step {
            tile::Step::Add(list) => tile::Step::Add(list * len),
            tile::Step::Multiply(list) => tile::Step::Multiply(list * len),
            step => step,
        };
        self.steps.iter().map(place).collect()
    }

    /// Writes the lists' values for `count` channels from `channel` on, then zeros, each list `len` values at `to`.
    ///
    /// # Safety
    /// The operands are those of the problem, `image` and the channels are below its numbers of them, and `to` takes
    /// the values of all lists.
    #[inline(always)]
    pub(super) unsafe fn fill_lists(
        &self,
        operands: *const *const u8,
        image: usize,
        channel: usize,
        count: usize,
        to: *mut f32,
        len: usize,
    ) {
        let mut i = 0;
        while i < self.lists.len() {
            let (operand, element, stride) = self.lists[i];
            // SAFETY: the operand has a value for each of the image's channels; the list has its place at `to`.
            unsafe {
                let from = (*operands.add(operand)).wrapping_add(image * self.images[i] * element.bytes());
                list_at(from, (element, stride), channel, count, to.wrapping_add(i * len), len);
            }
            i += 1;
        }
    }

    /// True if a step is a call.
    pub(super) fn calls(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, tile::Step::Activation(_)))
    }

    /// Takes the activation that the epilogue ends with off its steps, to be applied to results in memory: by a
    /// [`Tail`] in the output, or where sums wait for their transposition.
    pub(super) fn take_tail(&mut self) -> Option<Activation> {
        match self.steps.last() {
            Some(tile::Step::Activation(activation)) if self.summand.is_none() && self.clamp == NO_CLAMP => {
                let activation = *activation;
                self.steps.pop();
                Some(activation)
            }
            _ => None,
        }
    }

    /// True if the epilogue is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.summand.is_none() && self.clamp == NO_CLAMP
    }

    /// Clamp bounds of the result where there is no summand, else of what it is added to: none.
    pub(super) fn clamp_before_summand(&self) -> (f32, f32) {
        if self.summand.is_some() { NO_CLAMP } else { self.clamp }
    }
}

/// Activation of results that have been stored to the output and are in a cache still. Rows that follow each other are one, until
/// there are [`BLOCK`] values: calls for few values take longer than their values.
pub(super) struct Tail<'a> {
    activation: Option<&'a Activation>,
    /// Results that wait: the first one, and their number.
    at: *mut f32,
    len: usize,
}

impl<'a> Tail<'a> {
    /// Makes the pass of an activation; without one it does nothing.
    pub(super) fn new(activation: Option<&'a Activation>) -> Tail<'a> {
        Tail { activation, at: std::ptr::null_mut(), len: 0 }
    }

    /// Adds `len` results at `at`, which may wait until [`Tail::finish`].
    ///
    /// # Safety
    /// Until then so many results can be read and written there, and nobody else does.
    #[inline(always)]
    pub(super) unsafe fn add<S: Simd>(&mut self, s: S, at: *mut f32, len: usize) {
        if self.activation.is_none() {
            return;
        }
        if self.len > 0 && (self.len >= BLOCK || self.at.wrapping_add(self.len) != at) {
            // SAFETY: the caller's duty.
            unsafe { self.finish(s) };
        }
        if self.len == 0 {
            self.at = at;
        }
        self.len += len;
    }

    /// Computes the results that wait.
    ///
    /// # Safety
    /// As of [`Tail::add`].
    #[inline(always)]
    pub(super) unsafe fn finish<S: Simd>(&mut self, s: S) {
        if let (Some(activation), true) = (self.activation, self.len > 0) {
            // SAFETY: the caller's duty.
            unsafe { tile::activate_row(s, activation, self.at, self.len) };
            self.len = 0;
        }
    }
}

/// Results that a kernel left in scratch memory: of neighboring channels, the same places of each, which follow each
/// other in an output plane.
pub(super) struct Block {
    /// Coordinates of the first value in the output.
    pub(super) at: [usize; 5],
    /// The values.
    pub(super) values: *mut f32,
    /// Number of channels.
    pub(super) channels: usize,
    /// Stride between channels' values.
    pub(super) pitch: usize,
    /// Number of places of a channel.
    pub(super) count: usize,
}

impl Block {
    /// Takes the block, and leaves it without channels.
    pub(super) fn take(&mut self) -> Block {
        Block { channels: std::mem::take(&mut self.channels), ..*self }
    }
}

impl Epilogue {
    pub(super) fn new(problem: &Problem) -> Epilogue {
        let mut rest = problem.epilogue.clone();
        rest.retain(|step| *step != EpilogueStep::Activation(Activation::Identity));
        let (mut bias, mut clamp) = (None, NO_CLAMP);
        if let Some(EpilogueStep::Bias { operand, element, channel_stride }) = rest.first() {
            bias = Some((*operand, *element, *channel_stride));
            rest.remove(0);
        }
        let as_clamp = |step: Option<&EpilogueStep>| match step {
            Some(EpilogueStep::Activation(activation)) => activation.as_clamp(),
            _ => None,
        };
        if let Some(bounds) = as_clamp(rest.first()) {
            clamp = bounds;
            rest.remove(0);
        }
        let mut last_clamp = NO_CLAMP;
        if let Some(bounds) = as_clamp(rest.last()) {
            last_clamp = bounds;
            rest.pop();
        }
        let mut steps: Vec<Step> = rest.iter().map(Step::new).collect();
        let last = match steps.last() {
            Some(Step::Combine(combine)) => Some(*combine),
            _ => None,
        };
        if last.is_some() {
            steps.pop();
        }
        let [_, height, width] = problem.shape.output;
        let even = |layout: &Layout| is_even(layout, [height, width]);
        let flat = even(&problem.y)
            && last.is_none_or(|combine| even(&combine.layout))
            && steps.iter().all(|step| match step {
                Step::Combine(combine) => even(&combine.layout),
                Step::Activation(_) => true,
            });
        let single = height == 1 && width == 1;
        let images = single && problem.shape.output[0] == 1 && problem.shape.batch > 1;
        Epilogue { bias, clamp, steps, last, last_clamp, y: problem.y, plane: [height, width], flat, single, images }
    }

    /// True if the kernels' results are the output's values.
    pub(super) fn in_registers(&self) -> bool {
        self.is_rounding() && self.y.element == Element::F32
    }

    /// True if the kernels' results are the output's values once they are rounded to its type.
    pub(super) fn is_rounding(&self) -> bool {
        self.steps.is_empty() && self.last.is_none() && self.last_clamp == NO_CLAMP
    }

    /// Epilogue behind bias and clamp, if a tile of channels by places can compute it in registers.
    pub(super) fn in_tile(&self) -> Option<InTile> {
        let single = |layout: &Layout| layout.element == Element::F32;
        let beside = |layout: &Layout| self.flat && !self.single && self.distance(layout) == 1;
        let summand = |layout: &Layout| single(layout) && beside(layout);
        if single(&self.y) { self.in_registers_with(false, summand) } else { None }
    }

    /// Epilogue behind bias and clamp, if a tile can compute it in registers before its results are rounded to the output's
    /// type. Lists may have other values for each image; `beside`: true for a summand, of any type, that lies as vectors of
    /// the tile do.
    pub(super) fn with_summand(&self, beside: impl Fn(&Layout) -> bool) -> Option<InTile> {
        self.in_registers_with(true, beside)
    }

    /// Epilogue behind bias and clamp without a summand, if a tile of places by channels can compute it in registers and store its
    /// results as they are: the output's channels lie side by side.
    pub(super) fn in_rows(&self) -> Option<InTile> {
        if self.y.strides[1] != 1 || self.y.element != Element::F32 {
            return None;
        }
        self.in_registers_with(true, |_| false)
    }

    /// Epilogue of a tile. `per_image`: lists may have other values for each image; `beside`: true for a summand that
    /// lies as vectors of a tile do.
    fn in_registers_with(&self, per_image: bool, beside: impl Fn(&Layout) -> bool) -> Option<InTile> {
        let (steps, lists, images) = (Vec::new(), Vec::new(), Vec::new());
        let mut tile = InTile { steps, lists, images, summand: None, clamp: self.last_clamp };
        for step in &self.steps {
            match step {
                Step::Combine(combine) => tile.list(combine, per_image)?,
                Step::Activation(activation) => tile.steps.push(in_registers(activation)),
            }
        }
        // Images of one place, each with an operand's values of its own, may be places of one plane.
        let apart =
            |last: &Combine| self.images && last.layout.strides[0] != 0 && !last.product && beside(&last.layout);
        if let Some(last) = &self.last
            && (apart(last) || tile.list(last, per_image).is_none())
        {
            if last.product || !beside(&last.layout) {
                return None;
            }
            tile.summand = Some((last.operand, last.layout));
        }
        Some(tile)
    }

    /// Writes the biases of `count` channels from `channel` on as `f32`, then zeros up to `len`; false if there are
    /// none.
    ///
    /// # Safety
    /// The operands are those of the problem; `to` takes `len` values.
    #[inline(always)]
    pub(super) unsafe fn biases(
        &self,
        operands: *const *const u8,
        channel: usize,
        count: usize,
        to: *mut f32,
        len: usize,
    ) -> bool {
        let Some(bias) = self.bias else { return false };
        // SAFETY: the bias has a value for each output channel.
        unsafe { list(operands, bias, channel, count, to, len) };
        true
    }

    /// Writes the lists of an epilogue in registers at `to`, each `len` values: the biases, or zeros where there are
    /// none, and the lists of `tile`, all for `count` channels from `channel` on of an image.
    ///
    /// # Safety
    /// The operands are those of the problem, `image` and the channels are below its numbers of them, and `to` takes
    /// [`lists_len`] values.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "the operands, which channels of them, and where they go")]
    pub(super) unsafe fn fill_lists(
        &self,
        tile: Option<&InTile>,
        operands: *const *const u8,
        image: usize,
        channel: usize,
        count: usize,
        to: *mut f32,
        len: usize,
    ) {
        // SAFETY: the caller's duty.
        unsafe {
            if !self.biases(operands, channel, count, to, len) {
                to.write_bytes(0, len);
            }
            if let Some(tile) = tile {
                tile.fill_lists(operands, image, channel, count, to.wrapping_add(len), len);
            }
        }
    }

    /// Prefetches the memory that a block's epilogue uses, so that it arrives while the block is computed.
    #[inline(always)]
    pub(super) fn prefetch<S: Simd>(
        &self,
        s: S,
        operands: *const *const u8,
        y: *mut u8,
        at: [usize; 5],
        channels: usize,
        count: usize,
    ) {
        prefetch(s, &self.y, self.distance(&self.y), y, at, [channels, count], true);
        if let Some(Combine { operand, layout, .. }) = &self.last {
            // SAFETY: the operand's address is there; what is asked for need not be.
            let p = unsafe { *operands.add(*operand) };
            prefetch(s, layout, self.distance(layout), p, at, [channels, count], false);
        }
    }

    /// Finishes a block and stores it in the output.
    ///
    /// # Safety
    /// The places are the output's and the values the block's to read and write, up to whole vectors where rows have
    /// them; the operands are those of the problem. An operand may be the output itself in the same layout.
    #[inline(always)]
    pub(super) unsafe fn run<S: Simd>(&self, s: S, operands: *const *const u8, y: *mut u8, block: Block) {
        s.call(Run { finish: self, operands, y, block });
    }

    /// Stride between neighboring places of a block.
    #[inline(always)]
    fn distance(&self, layout: &Layout) -> usize {
        match self.plane {
            [1, 1] => layout.strides[1],
            [_, 1] => layout.strides[3],
            _ => layout.strides[4],
        }
    }
}

/// Writes the values of `count` channels from `channel` on of an operand (its index, type and stride) as `f32`, then
/// zeros up to `len`.
///
/// # Safety
/// The operand has a value for each of them; `to` takes `len` values.
#[inline(always)]
pub(super) unsafe fn list(
    operands: *const *const u8,
    (operand, element, stride): (usize, Element, usize),
    channel: usize,
    count: usize,
    to: *mut f32,
    len: usize,
) {
    // SAFETY: the caller's duty.
    unsafe { list_at(*operands.add(operand), (element, stride), channel, count, to, len) };
}

/// Variant of [`list`] for the values at `from` (its type and stride).
///
/// # Safety
/// There is a value for each of the channels; `to` takes `len` values.
#[inline(always)]
unsafe fn list_at(
    from: *const u8,
    (element, stride): (Element, usize),
    channel: usize,
    count: usize,
    to: *mut f32,
    len: usize,
) {
    // SAFETY: the caller's duty.
    unsafe {
        match (element, stride) {
            (Element::F32, 1) => {
                from.cast::<f32>().add(channel).copy_to_nonoverlapping(to, count);
                to.add(count).write_bytes(0, len - count);
            }
            (_, 0) => {
                let value = read(element, from, 0);
                let mut i = 0;
                while i < len {
                    *to.add(i) = value;
                    i += 1;
                }
            }
            _ => {
                let mut i = 0;
                while i < len {
                    *to.add(i) = if i < count { read(element, from, (channel + i) * stride) } else { 0.0 };
                    i += 1;
                }
            }
        }
    }
}

/// Activation as a step of a tile: short ones are part of its code.
fn in_registers(activation: &Activation) -> tile::Step {
    match *activation {
        Activation::HardSigmoid { alpha, beta } => tile::Step::HardSigmoid(alpha, beta),
        Activation::HardSwish { alpha, beta } if alpha > 0.0 => tile::Step::HardSwish(alpha, beta),
        _ => match activation.as_clamp() {
            Some((low, high)) => tile::Step::Clamp(low, high),
            None => tile::Step::Activation(*activation),
        },
    }
}

impl InTile {
    /// Adds a tensor with one value for each channel, if `per_image` of each image, to the lists; `None` if it has more
    /// values.
    fn list(&mut self, combine: &Combine, per_image: bool) -> Option<()> {
        let [image, channel, places @ ..] = combine.layout.strides;
        if (image != 0 && !per_image) || places != [0; 3] {
            return None;
        }
        let list = self.lists.len();
        self.images.push(image);
        self.lists.push((combine.operand, combine.layout.element, channel));
        self.steps.push(if combine.product { tile::Step::Multiply(list) } else { tile::Step::Add(list) });
        Some(())
    }
}

impl Step {
    fn new(step: &EpilogueStep) -> Step {
        match *step {
            EpilogueStep::Bias { operand, element, channel_stride } => {
                let layout = Layout { element, strides: [0, channel_stride, 0, 0, 0] };
                Step::Combine(Combine { operand, layout, product: false })
            }
            EpilogueStep::Add { operand, layout } => Step::Combine(Combine { operand, layout, product: false }),
            EpilogueStep::Mul { operand, layout } => Step::Combine(Combine { operand, layout, product: true }),
            EpilogueStep::Activation(activation) => Step::Activation(activation),
        }
    }
}

/// Kernel of [`Epilogue::run`], compiled once for all callers.
struct Run<'a> {
    finish: &'a Epilogue,
    operands: *const *const u8,
    y: *mut u8,
    block: Block,
}

impl Kernel for Run<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Block { mut at, values, channels, pitch, count } = self.block;
        let width = self.finish.plane[1];
        let mut done = 0;
        while done < count {
            let part = if self.finish.flat { count } else { (width - at[4]).min(count - done) };
            let mut block = Block { at, values: values.wrapping_add(done), channels, pitch, count: part };
            // SAFETY: the duty of the caller of `Epilogue::run`; the part is of one row, or rows are as good as one.
            unsafe {
                // Functions would else be computed of mostly nothing. Where other parts lie between the channels'
                // values, they have to stay where they are.
                let waste = part.next_multiple_of(S::LANES) - part;
                let wasteful = part == count && waste >= S::LANES / 2 && !self.finish.steps.is_empty();
                if self.finish.single || wasteful {
                    compact(s, &mut block);
                }
                if self.finish.single {
                    block = Block { channels: 1, pitch: channels, count: channels, ..block };
                }
                self.part(s, &block, part == count);
            }
            done += part;
            at[3] += 1;
            at[4] = 0;
        }
    }
}

impl Run<'_> {
    /// Finishes places that have one stride; if they are the whole block, memory between the channels' values is free
    /// to overwrite.
    #[inline(always)]
    unsafe fn part<S: Simd>(&self, s: S, block: &Block, whole: bool) {
        let finish = self.finish;
        let Block { values, channels, pitch, count, .. } = *block;
        let mut step = 0;
        while step < finish.steps.len() {
            // SAFETY: the caller's duty.
            unsafe {
                match &finish.steps[step] {
                    Step::Combine(combine) => self.combine(s, block, combine),
                    Step::Activation(activation) => {
                        // Where little lies between the channels' values, it is computed with them and dropped.
                        let dense = whole && count.next_multiple_of(S::LANES) >= pitch;
                        let (rows, len) = if dense { (1, (channels - 1) * pitch + count) } else { (channels, count) };
                        let mut row = 0;
                        while row < rows {
                            activation.apply_with(s, std::slice::from_raw_parts_mut(values.add(row * pitch), len));
                            row += 1;
                        }
                    }
                }
            }
            step += 1;
        }
        // SAFETY: the caller's duty.
        unsafe {
            match &finish.last {
                None => self.store(s, block, &Keep),
                Some(last) => {
                    let other = Other::new(self, last, block.at);
                    match (last.product, other.layout.element, other.distance) {
                        (false, Element::F32, 1) => self.store(s, block, &With::<false, BESIDE>(&other)),
                        (true, Element::F32, 1) => self.store(s, block, &With::<true, BESIDE>(&other)),
                        (false, _, 0) => self.store(s, block, &With::<false, REPEATED>(&other)),
                        (true, _, 0) => self.store(s, block, &With::<true, REPEATED>(&other)),
                        (false, ..) => self.store(s, block, &With::<false, ANY>(&other)),
                        (true, ..) => self.store(s, block, &With::<true, ANY>(&other)),
                    }
                }
            }
        }
    }

    /// Adds a tensor to the block in place, or multiplies by it.
    #[inline(always)]
    unsafe fn combine<S: Simd>(&self, s: S, block: &Block, combine: &Combine) {
        // SAFETY: the caller's duty; lanes end with the block's places.
        unsafe {
            let other = Other::new(self, combine, block.at);
            let mut channel = 0;
            while channel < block.channels {
                let mut place = 0;
                while place < block.count {
                    let lanes = (block.count - place).min(S::LANES);
                    let at = block.values.add(channel * block.pitch + place);
                    let value = load(s, Element::F32, at.cast(), 0, 1, lanes);
                    let from = other.from + channel * other.layout.strides[1] + place * other.distance;
                    let operand = load(s, other.layout.element, other.p, from, other.distance, lanes);
                    let value = if combine.product { s.mul(value, operand) } else { s.add(value, operand) };
                    store(s, Element::F32, at.cast(), 0, 1, value, lanes);
                    place += S::LANES;
                }
                channel += 1;
            }
        }
    }

    /// Stores the block's values after `change`, clamped by the last bounds.
    #[inline(always)]
    unsafe fn store<S: Simd, C: Change>(&self, s: S, block: &Block, change: &C) {
        let finish = self.finish;
        let (low, high) = (s.splat(finish.last_clamp.0), s.splat(finish.last_clamp.1));
        let (from, distance) = (finish.y.offset(block.at), finish.distance(&finish.y));
        let element = finish.y.element;
        let count = block.count;
        let mut channel = 0;
        while channel < block.channels {
            let values = block.values.wrapping_add(channel * block.pitch);
            let to = from + channel * finish.y.strides[1];
            let mut place = 0;
            // SAFETY: the caller's duty; lanes end with the block's places.
            unsafe {
                let row = change.row(s, channel);
                if element == Element::F32 && distance == 1 {
                    let to = self.y.cast::<f32>().add(to);
                    while place + S::LANES <= count {
                        let value = change.apply(s, row, s.load(values.add(place)), place, S::LANES);
                        s.store(to.add(place), s.min(high, s.max(low, value)));
                        place += S::LANES;
                    }
                }
                while place < count {
                    let lanes = (count - place).min(S::LANES);
                    let value = load(s, Element::F32, values.add(place).cast(), 0, 1, lanes);
                    let value = s.min(high, s.max(low, change.apply(s, row, value, place, lanes)));
                    store(s, element, self.y, to + place * distance, distance, value, lanes);
                    place += S::LANES;
                }
            }
            channel += 1;
        }
    }
}

/// Moves the values of a block's channels together.
///
/// # Safety
/// The values can be read and written up to whole vectors where a channel's places end.
#[inline(always)]
unsafe fn compact<S: Simd>(s: S, block: &mut Block) {
    let Block { values, channels, pitch, count, .. } = *block;
    if pitch < count.next_multiple_of(S::LANES) {
        return;
    }
    let mut channel = 1;
    while channel < channels {
        let mut place = 0;
        while place < count {
            // SAFETY: whole vectors end before the next channel's values, which have not moved yet; what they write
            // behind the channel's end is overwritten by the next one.
            unsafe { s.store(values.add(channel * count + place), s.load(values.add(channel * pitch + place))) };
            place += S::LANES;
        }
        channel += 1;
    }
    block.pitch = count;
}

/// Transformation of values while they are stored.
trait Change {
    /// Per-channel constants: an offset, and a value in all lanes.
    ///
    /// # Safety
    /// The block has that channel.
    unsafe fn row<S: Simd>(&self, s: S, channel: usize) -> (usize, S::V);

    /// New values of the first `lanes` places from `place` on.
    ///
    /// # Safety
    /// The block has those places; `row` is of their channel.
    unsafe fn apply<S: Simd>(&self, s: S, row: (usize, S::V), value: S::V, place: usize, lanes: usize) -> S::V;
}

/// The identity transformation.
struct Keep;

impl Change for Keep {
    #[inline(always)]
    unsafe fn row<S: Simd>(&self, s: S, _: usize) -> (usize, S::V) {
        (0, s.splat(0.0))
    }

    #[inline(always)]
    unsafe fn apply<S: Simd>(&self, _: S, _: (usize, S::V), value: S::V, _: usize, _: usize) -> S::V {
        value
    }
}

/// Product or sum with another tensor, whose places are [`BESIDE`] each other, [`REPEATED`] or of [`ANY`] stride.
struct With<'a, const PRODUCT: bool, const PLACES: u8>(&'a Other);

/// Contiguous `f32` values.
const BESIDE: u8 = 0;
/// One value for each channel.
const REPEATED: u8 = 1;
/// Values of any type and stride.
const ANY: u8 = 2;

impl<const PRODUCT: bool, const PLACES: u8> Change for With<'_, PRODUCT, PLACES> {
    #[inline(always)]
    unsafe fn row<S: Simd>(&self, s: S, channel: usize) -> (usize, S::V) {
        let Other { layout, p, from, .. } = self.0;
        let from = from + channel * layout.strides[1];
        // SAFETY: the channel's one value.
        let value = if PLACES == REPEATED { unsafe { read(layout.element, *p, from) } } else { 0.0 };
        (from, s.splat(value))
    }

    #[inline(always)]
    unsafe fn apply<S: Simd>(&self, s: S, row: (usize, S::V), value: S::V, place: usize, lanes: usize) -> S::V {
        let Other { layout, p, distance, .. } = self.0;
        let (from, repeated) = row;
        // SAFETY: the caller's duty.
        let other = unsafe {
            match PLACES {
                BESIDE if lanes == S::LANES => s.load(p.cast::<f32>().add(from + place)),
                BESIDE => s.load_masked(s.mask(first(lanes)), p.cast::<f32>().add(from + place)),
                REPEATED => repeated,
                _ => load(s, layout.element, *p, from + place * distance, *distance, lanes),
            }
        };
        if PRODUCT { s.mul(value, other) } else { s.add(value, other) }
    }
}

/// Places of an operand that belong to a block.
struct Other {
    layout: Layout,
    p: *const u8,
    from: usize,
    distance: usize,
}

impl Other {
    /// # Safety
    /// The run's operands are the problem's.
    #[inline(always)]
    unsafe fn new(run: &Run<'_>, combine: &Combine, at: [usize; 5]) -> Other {
        let layout = combine.layout;
        // SAFETY: the caller's duty.
        let p = unsafe { *run.operands.add(combine.operand) };
        Other { layout, p, from: layout.offset(at), distance: run.finish.distance(&layout) }
    }
}

/// Prefetches `count` places of `channels` channels from `at` on if they lie side by side.
#[inline(always)]
fn prefetch<S: Simd>(
    s: S,
    layout: &Layout,
    distance: usize,
    p: *const u8,
    at: [usize; 5],
    [channels, count]: [usize; 2],
    write: bool,
) {
    /// Bytes of a cache line.
    const LINE: usize = 64;
    if distance != 1 {
        return;
    }
    let bytes = layout.element.bytes();
    let mut begin = p.wrapping_add(layout.offset(at) * bytes);
    let mut channel = 0;
    while channel < channels {
        let end = begin.wrapping_add(count * bytes - 1);
        let mut line = begin;
        while line < end {
            if write {
                s.prefetch_write(line.cast())
            } else {
                s.prefetch(line.cast())
            }
            line = line.wrapping_add(LINE);
        }
        // The last line may begin behind a multiple of lines.
        if write {
            s.prefetch_write(end.cast())
        } else {
            s.prefetch(end.cast())
        }
        begin = begin.wrapping_add(layout.strides[1] * bytes);
        channel += 1;
    }
}

/// Loads the first `lanes` values at every `distance`th element from `from` on.
///
/// # Safety
/// Those elements can be read at `p`.
#[inline(always)]
unsafe fn load<S: Simd>(s: S, element: Element, p: *const u8, from: usize, distance: usize, lanes: usize) -> S::V {
    // SAFETY: the caller's duty; arrays take the widest vector.
    unsafe {
        match (element, distance) {
            (_, 1) => load_lanes(s, element, p, from, lanes),
            (_, 0) => s.splat(read(element, p, from)),
            _ => {
                let mut values = [0f32; MAX_LANES];
                let mut lane = 0;
                while lane < lanes {
                    values[lane] = read(element, p, from + lane * distance);
                    lane += 1;
                }
                s.load(values.as_ptr())
            }
        }
    }
}

/// Stores the first `lanes` values at every `distance`th element from `from` on.
///
/// # Safety
/// Those elements can be written at `p`.
#[inline(always)]
unsafe fn store<S: Simd>(s: S, element: Element, p: *mut u8, from: usize, distance: usize, value: S::V, lanes: usize) {
    // SAFETY: the caller's duty; arrays take the widest vector.
    unsafe {
        match (element, distance) {
            (_, 1) => store_lanes(s, element, p, from, value, lanes),
            (Element::F32, _) => {
                let mut values = [0f32; MAX_LANES];
                s.store(values.as_mut_ptr(), value);
                let mut lane = 0;
                while lane < lanes {
                    p.cast::<f32>().add(from + lane * distance).write(values[lane]);
                    lane += 1;
                }
            }
            (Element::F16, _) => {
                let mut bits = [0u16; MAX_LANES];
                s.store_f16(bits.as_mut_ptr(), value);
                let mut lane = 0;
                while lane < lanes {
                    p.cast::<u16>().add(from + lane * distance).write(bits[lane]);
                    lane += 1;
                }
            }
            (Element::BF16, _) => {
                let mut bits = [0u16; MAX_LANES];
                s.store_bf16_masked(first(S::LANES), bits.as_mut_ptr(), value);
                let mut lane = 0;
                while lane < lanes {
                    p.cast::<u16>().add(from + lane * distance).write(bits[lane]);
                    lane += 1;
                }
            }
        }
    }
}
