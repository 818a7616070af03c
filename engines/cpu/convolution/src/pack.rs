//! Packing of weights into the order in which kernels walk them.

mod panel;

use super::Send2;
use super::naive::read;
use super::problem::{Element, Layout, Problem};
use super::transforms::Tiling;
use hipdnn_cpu_simd::isa::{Isa, Kernel, MAX_LANES, Simd};
use hipdnn_cpu_simd::tiles::{DEPTH, Pairs, Range, Splitting, TILE, TILE_BYTES, Values, split_halves, split_right};
use hipdnn_cpu_threads::Pool;
use panel::{Frequencies, Panel, Terms};

pub(super) use panel::Order;

/// Layout of a problem's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Source {
    layout: Layout,
    /// Sizes: output channels, input channels of a group, kernel.
    sizes: [usize; 5],
    groups: usize,
    flip: bool,
}

impl Source {
    pub(super) fn new(problem: &Problem) -> Source {
        let mut layout = problem.w;
        // Strides of single places mean nothing and must not make two packings differ.
        for (stride, size) in layout.strides.iter_mut().zip(problem.w_sizes()) {
            if size == 1 {
                *stride = 0;
            }
        }
        Source { layout, sizes: problem.w_sizes(), groups: problem.shape.groups, flip: problem.shape.flip }
    }

    /// Same weights as output channels of a single group, for groups of one channel each.
    pub(super) fn ungrouped(self) -> Source {
        Source { groups: 1, ..self }
    }

    /// Bytes from the first weight to behind the last.
    pub(super) fn bytes(&self) -> usize {
        self.layout.span(self.sizes) * self.layout.element.bytes()
    }

    /// Bytes of a weight.
    pub(super) fn element_bytes(&self) -> usize {
        self.layout.element.bytes()
    }

    fn group_out(&self) -> usize {
        self.sizes[0] / self.groups
    }

    fn depth(&self) -> usize {
        self.sizes[1..].iter().product()
    }

    /// Values of panels of `width` output channels.
    pub(super) fn panels_len(&self, width: usize) -> usize {
        self.groups * self.group_out().div_ceil(width) * width * self.depth()
    }

    /// Offset of the weight of output channel `k`, input channel `c` and tap number `tap`, as correlation reads it.
    fn offset(&self, k: usize, c: usize, tap: usize) -> usize {
        let [_, _, d, h, w] = self.sizes;
        let tap = if self.flip { d * h * w - 1 - tap } else { tap };
        let (t, r, s) = (tap / (h * w), tap / w % h, tap % w);
        let strides = self.layout.strides;
        k * strides[0] + c * strides[1] + t * strides[2] + r * strides[3] + s * strides[4]
    }

    /// True if the depth of an output channel is one run of `f32` values.
    fn contiguous(&self) -> bool {
        let packed = Layout::packed(Element::F32, self.sizes).strides;
        self.layout.element == Element::F32
            && !self.flip
            && (1..5).all(|i| self.sizes[i] == 1 || self.layout.strides[i] == packed[i])
    }

    /// True if the weights lie as one run of `f32` values in the order correlation reads them.
    pub(super) fn plain(&self) -> bool {
        self.contiguous() && (self.sizes[0] == 1 || self.layout.strides[0] == self.depth())
    }

    /// Places of the sum of a tap, and taps: with `merged` those of a kernel row are one.
    fn terms(&self, merged: bool) -> (usize, usize) {
        let [_, channels, d, h, w] = self.sizes;
        if merged { (channels * w, d * h) } else { (channels, d * h * w) }
    }

    /// `f32` values of a panel of tiles: for each tile of places of the sum for each tap its tiles, then a cache line whose first value
    /// is the [`Values`]' number.
    fn tile_panel_len(&self, form: &TileForm) -> usize {
        let (depth, taps) = self.terms(form.merged);
        depth.div_ceil(DEPTH) * taps * form.terms * form.columns * TILE_BYTES / 4 + TILE
    }

    /// `f32` values of panels of tiles.
    pub(super) fn tiles_len(&self, form: &TileForm) -> usize {
        self.groups * self.group_out().div_ceil(form.columns * TILE) * self.tile_panel_len(form)
    }

    /// Values of the frequencies of Winograd's kernel transform, for panels of `width` output channels.
    pub(super) fn frequencies_len(&self, tiling: &Tiling, width: usize) -> usize {
        self.groups * self.group_out().div_ceil(width) * self.frequency_panel_len(tiling, width)
    }

    /// Values of a panel of them.
    fn frequency_panel_len(&self, tiling: &Tiling, width: usize) -> usize {
        width * self.sizes[1] * tiling.products()
    }
}

/// Estimated cycles of a frequency of a kernel that is transformed at each run, for eight and for sixteen lanes, beside what other forms of
/// weights take: a fit to measured times.
const TRANSFORMED: [f64; 2] = [2.0, 1.0];

/// Estimated cycles in which `threads` threads transform run-time weights.
pub(super) fn transform_cycles(problem: &Problem, tiling: &Tiling, threads: usize, isa: Isa) -> f64 {
    let kernels = problem.shape.out_channels * problem.shape.group_in();
    match problem.constant_weights {
        true => 0.0,
        false => TRANSFORMED[isa.lanes() / 16] * (kernels * tiling.products()) as f64 / threads as f64,
    }
}

/// Estimated cycles of a weight that is packed at each run, if all of them and their panels stay in the second-level cache, and else.
const PACKED: [f64; 2] = [1.0, 1.6];
/// Number of weights that do.
const NEAR_WEIGHTS: usize = 128 << 10;

/// Estimated cycles in which `threads` threads pack run-time weights.
pub(super) fn pack_cycles(problem: &Problem, threads: usize) -> f64 {
    let weights: usize = problem.w_sizes().iter().product();
    PACKED[usize::from(weights > NEAR_WEIGHTS)] * weights as f64 / threads as f64
}

/// Packing of a tensor on the threads of a pool.
pub(super) struct Packer<'a> {
    pub(super) source: &'a Source,
    /// The tensor.
    pub(super) w: *const u8,
    /// Destination of the panels.
    pub(super) out: *mut f32,
    pub(super) isa: Isa,
    pub(super) pool: &'a Pool,
    /// Number of threads that work on it.
    pub(super) workers: usize,
}

impl Packer<'_> {
    /// Packs panels of `width` output channels of a group: for each term of an output channel's sum, in that order, the weights
    /// of the panel's channels side by side, zero where there is none.
    ///
    /// # Safety
    /// The tensor can be read; the destination takes [`Source::panels_len`] values.
    pub(super) unsafe fn terms(&self, width: usize, order: Order) {
        let len = width * self.source.depth();
        self.each_panel(width, len, &|isa, panel| isa.run(Terms(panel, order)));
    }

    /// Packs panels of `width` output channels of a group: for each frequency, and each input channel of each phase that has products
    /// of it, the transformed weights of the panel's channels side by side, zero where there is none.
    ///
    /// # Safety
    /// The tensor, whose kernels the tiling serves, can be read; the destination takes [`Source::frequencies_len`] values.
    pub(super) unsafe fn frequencies(&self, tiling: &Tiling, width: usize) {
        let len = self.source.frequency_panel_len(tiling, width);
        self.each_panel(width, len, &|isa, panel| match (tiling.side(), tiling.taps()) {
            (4, 3) => isa.run(Frequencies::<4, 3> { panel, tiling }),
            (6, 2) => isa.run(Frequencies::<6, 2> { panel, tiling }),
            (6, 3) => isa.run(Frequencies::<6, 3> { panel, tiling }),
            (6, 4) => isa.run(Frequencies::<6, 4> { panel, tiling }),
            (6, 5) => isa.run(Frequencies::<6, 5> { panel, tiling }),
            (8, 4) => isa.run(Frequencies::<8, 4> { panel, tiling }),
            (8, 5) => isa.run(Frequencies::<8, 5> { panel, tiling }),
            (8, 7) => isa.run(Frequencies::<8, 7> { panel, tiling }),
            _ => unreachable!("tilings are chosen among those that there are"),
        });
    }

    /// Packs panels of tiles of output channels in bf16 terms.
    ///
    /// # Safety
    /// The tensor can be read; the destination takes [`Source::tiles_len`] values.
    pub(super) unsafe fn tiles(&self, form: &TileForm) {
        let len = self.source.tile_panel_len(form);
        self.each_panel(form.columns * TILE, len, &|isa, panel| isa.run(TilePanel { panel, form }));
    }

    /// Calls for each panel of `width` output channels of a group, of `len` values.
    fn each_panel(&self, width: usize, len: usize, pack: &(dyn Fn(Isa, Panel<'_>) + Sync)) {
        let (source, isa, memory) = (self.source, self.isa, Send2(self.w, self.out.cast()));
        self.pool.run_indexed(source.groups * source.group_out().div_ceil(width), self.workers, &|_, unit| {
            let to = memory.y().cast::<f32>().wrapping_add(unit * len);
            pack(isa, Panel { source, w: memory.x(), width, unit, to });
        });
    }
}

/// Form of weights in tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TileForm {
    /// True if output channels are rows of a product, of a convolution with one tap; else they are columns.
    pub(super) left: bool,
    /// Tiles of output channels of a panel.
    pub(super) columns: usize,
    /// bf16 terms of a weight.
    pub(super) terms: usize,
    /// True if the channels of a kernel row's taps are places of one sum.
    pub(super) merged: bool,
}

impl TileForm {
    /// Order of the places of a tile's sum.
    pub(super) fn order(&self) -> Pairs {
        if self.merged { Pairs::Neighbors } else { Pairs::Halves }
    }

    /// Kind of the values of a panel, as [`Packer::tiles`] packs it.
    ///
    /// # Safety
    /// `panel` is one of `len` values.
    pub(super) unsafe fn kind(panel: *const f32, len: usize) -> Values {
        // SAFETY: the caller's duty.
        Values::of_number(unsafe { *panel.add(len - TILE) } as u8)
    }
}

/// Kernel that packs a panel of tiles.
#[derive(Clone, Copy)]
struct TilePanel<'a> {
    panel: Panel<'a>,
    form: &'a TileForm,
}

impl Kernel for TilePanel<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let kind = self.split_by_terms(s, self.form.terms);
        let Panel { source, to, .. } = self.panel;
        let line = to.wrapping_add(source.tile_panel_len(self.form) - TILE);
        // SAFETY: the line behind the panel's tiles.
        unsafe {
            line.write_bytes(0, TILE);
            *line = kind as u8 as f32;
        }
    }
}

impl Splitting for TilePanel<'_> {
    #[inline(always)]
    fn split<S: Simd, const T: usize, const HOW: u8>(self, s: S) -> Values {
        let TilePanel { panel, form } = self;
        let Panel { source, w, width, to, .. } = panel;
        let (first, rows) = panel.rows();
        let (depth, taps) = source.terms(form.merged);
        let (channels, element) = (source.sizes[1], source.layout.element);
        // Taps between two of a kernel row's.
        let row = if form.merged { source.sizes[4] } else { 1 };
        let mut range = Range::new(s);
        let mut next = to.cast::<u8>();
        for step in 0..depth.div_ceil(DEPTH) {
            let places = DEPTH.min(depth - step * DEPTH);
            for tap in 0..taps {
                let mut values = [0f32; DEPTH * 2 * TILE];
                for place in 0..places {
                    let (across, channel) = ((step * DEPTH + place) / channels, (step * DEPTH + place) % channels);
                    let from = source.offset(first, channel, tap * row + across);
                    for (column, value) in values[place * width..].iter_mut().enumerate().take(rows) {
                        // SAFETY: the tensor's weights.
                        *value = unsafe { read(element, w, from + column * source.layout.strides[0]) };
                    }
                }
                let tiles = T * form.columns * TILE_BYTES;
                // SAFETY: the values are of a tile's places, and the panel has room for the tiles.
                unsafe {
                    if form.left {
                        for row in 0..width {
                            let load = |i: usize| {
                                let mut lanes = [0f32; MAX_LANES];
                                for (lane, value) in lanes.iter_mut().enumerate().take(S::LANES) {
                                    *value = values[(i + lane) * width + row];
                                }
                                s.load(lanes.as_ptr())
                            };
                            let (to, term) = (next.cast::<u16>().add(row * DEPTH), form.columns * TILE_BYTES / 2);
                            split_halves::<S, T, HOW>(s, &mut range, load, to, term);
                        }
                        next = next.wrapping_add(tiles);
                        continue;
                    }
                    let (order, from) = (form.order(), (values.as_ptr(), width));
                    split_right::<S, T, HOW>(s, &mut range, order, form.columns, places, from, next, tiles);
                }
                next = next.wrapping_add(tiles);
            }
        }
        range.kind(s)
    }
}
