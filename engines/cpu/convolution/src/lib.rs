//! Convolution on the CPU: a plan chosen and sized once, then run any number of times.
//!
//! Memory, algorithm and work split are decided in [`ConvolutionPlan::new`]; a run allocates nothing and shares no lock
//! with other plans.

mod band;
mod depthwise;
mod direct;
mod epilogue;
mod few_places;
mod fused_layers;
mod gemm;
mod indirect;
mod naive;
mod pack;
mod problem;
mod rounding;
mod row_tile;
mod split_image;
mod stem;
#[cfg(test)]
pub mod tests;
mod tile;
mod tiled;
mod tiled_planes;
mod transforms;
mod units;
mod wide;
mod winograd;
mod winograd_rows;

pub use fused_layers::{FusedLayers, LayerArgs, MOST_LAYERS};
pub use problem::{Element, EpilogueStep, Layout, MAX_OPERANDS, Problem, Shape};

use depthwise::{Depthwise, DepthwisePlanes, DepthwiseRows};
use direct::Direct;
use few_places::FewPlaces;
use gemm::Gemm;
use hipdnn_cpu_simd::isa::Isa;
use hipdnn_cpu_simd::scratch::{LINE, align_up, lines};
use hipdnn_cpu_threads::Pool;
use indirect::Indirect;
use pack::Packer;
use stem::Stem;
use tiled::Tiled;
use tiled_planes::TiledPlanes;
use transforms::Tiling;
use units::InUnits;
use wide::Wide;
use winograd::Winograd;
use winograd_rows::WinogradRows;

/// Form of weights that a plan works on. Plans with equal packings can share prepared weights of equal contents:
/// layout, sizes and mirroring are part of the packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packing {
    form: Form,
    source: pack::Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    /// Layout of the tensor itself.
    Raw,
    /// Panels of this many output channels.
    Panels(usize),
    /// Panels with the input channels of a tap side by side.
    TapPanels(usize),
    /// Panels of this many output channels, for each frequency of Winograd's tiles.
    Frequencies { tiling: Tiling, width: usize },
    /// Panels of tiles in bf16 terms.
    Tiles(pack::TileForm),
}

/// Weights given to a run.
#[derive(Clone, Copy)]
pub enum Weights<'a> {
    /// The tensor itself; a plan that wants another form prepares it in the workspace at every run.
    Raw(*const u8),
    /// Output of [`ConvolutionPlan::prepare`].
    Prepared(&'a [f32]),
}

/// Memory of a run. Tensors are aligned for their elements.
pub struct Args<'a> {
    /// The input tensor.
    pub x: *const u8,
    /// The weights.
    pub weights: Weights<'a>,
    /// The output tensor.
    pub y: *mut u8,
    /// The operands of the epilogue.
    pub operands: &'a [*const u8],
    /// Scratch memory of [`ConvolutionPlan::workspace_bytes`], of any alignment.
    pub workspace: *mut u8,
}

/// A convolution ready to run.
#[derive(Debug)]
pub struct ConvolutionPlan {
    problem: Problem,
    isa: Isa,
    threads: usize,
    algorithm: Algorithm,
    packing: Packing,
}

#[derive(Debug)]
enum Algorithm {
    /// Plain loops, for no output or nothing to sum.
    Naive,
    Depthwise(Depthwise),
    DepthwisePlanes(DepthwisePlanes),
    DepthwiseRows(DepthwiseRows),
    Direct(Direct),
    FewPlaces(Box<FewPlaces>),
    Gemm(Box<Gemm>),
    Indirect(Box<Indirect>),
    Stem(Stem),
    Tiled(Box<Tiled>),
    TiledPlanes(Box<TiledPlanes>),
    Wide(Wide),
    Winograd(Winograd),
    WinogradRows(Box<WinogradRows>),
}

impl Algorithm {
    /// Algorithm expected to be the fastest.
    fn best(problem: &Problem, threads: usize, isa: Isa) -> Algorithm {
        let packed = Algorithm::best_of_packed(problem, threads, isa);
        if problem.constant_weights || problem.shape.is_empty() || problem.shape.depth() == 0 {
            return packed;
        }
        let few = FewPlaces::new(problem, threads, isa);
        let packing = match packed {
            Algorithm::Direct(_) | Algorithm::DepthwiseRows(_) => 0.0,
            _ => pack::pack_cycles(problem, threads),
        };
        let cost = packed.cost().map(|cost| cost + packing);
        match few.filter(|few| cost.is_some_and(|cost| few.cost < cost)) {
            Some(few) => Algorithm::FewPlaces(Box::new(few)),
            None => packed,
        }
    }

    /// Algorithm expected to be the fastest once the weights are packed.
    fn best_of_packed(problem: &Problem, threads: usize, isa: Isa) -> Algorithm {
        let vectors = Algorithm::best_of_vectors(problem, threads, isa);
        let of_terms = multiplies_terms(problem.x.element, problem.w.element, isa);
        let Some(cost) = vectors.cost().filter(|_| of_terms) else {
            return vectors;
        };
        let tiled = Tiled::new(problem, threads, isa).filter(|tiled| tiled.cost < cost);
        let cost = tiled.as_ref().map_or(cost, |tiled| tiled.cost);
        let apart = problem.x.strides[1] != 1 && problem.y.strides[1] != 1;
        let planes = apart.then(|| TiledPlanes::new(problem, threads, isa)).flatten();
        match (planes.filter(|planes| planes.cost < cost), tiled) {
            (Some(planes), _) => Algorithm::TiledPlanes(Box::new(planes)),
            (None, Some(tiled)) => Algorithm::Tiled(Box::new(tiled)),
            (None, None) => vectors,
        }
    }

    /// Estimated cycles of a run; `None` where no other algorithm's estimate is compared with it.
    fn cost(&self) -> Option<f64> {
        match self {
            Algorithm::Naive | Algorithm::Depthwise(_) => None,
            Algorithm::Stem(stem) => Some(stem.cost),
            Algorithm::Direct(direct) => direct.cost,
            Algorithm::DepthwisePlanes(planes) => Some(planes.cost),
            Algorithm::DepthwiseRows(rows) => Some(rows.cost),
            Algorithm::FewPlaces(few) => Some(few.cost),
            Algorithm::Gemm(gemm) => Some(gemm.cost),
            Algorithm::Indirect(indirect) => Some(indirect.cost),
            Algorithm::Tiled(tiled) => Some(tiled.cost),
            Algorithm::TiledPlanes(tiled) => Some(tiled.cost),
            Algorithm::Wide(wide) => Some(wide.cost),
            Algorithm::Winograd(winograd) => Some(winograd.cost),
            Algorithm::WinogradRows(winograd) => Some(winograd.cost),
        }
    }

    /// Fastest algorithm on vectors, as expected.
    fn best_of_vectors(problem: &Problem, threads: usize, isa: Isa) -> Algorithm {
        let shape = &problem.shape;
        if shape.is_empty() || shape.depth() == 0 {
            return Algorithm::Naive;
        }
        if let Some(depthwise) = Depthwise::new(problem, threads, isa) {
            return Algorithm::Depthwise(depthwise);
        }
        let direct = (Direct::applies(shape) && Direct::suits(shape))
            .then(|| Direct::new(problem, threads, isa))
            .filter(|direct| shape.groups > 1 || direct.is_in_place(threads));
        let mut limit = direct.as_ref().and_then(|direct| direct.cost).unwrap_or(f64::INFINITY);
        let rows = DepthwiseRows::new(problem, threads, isa);
        if let Some(rows) = &rows {
            limit = rows.cost;
        }
        if DepthwisePlanes::applies(problem)
            && let Some(planes) = DepthwisePlanes::new(problem, threads, isa).filter(|planes| planes.cost < limit)
        {
            return Algorithm::DepthwisePlanes(planes);
        }
        if let Some(rows) = rows {
            return Algorithm::DepthwiseRows(rows);
        }
        if let Some(direct) = direct {
            return Algorithm::Direct(direct);
        }
        // Transforms of channels, if they serve the problem and are expected to take less than so many cycles.
        let winograd = |limit: f64| {
            let rows = problem.winograd.then(|| WinogradRows::new(problem, threads, isa)).flatten();
            rows.filter(|rows| rows.cost < limit).map(|rows| Algorithm::WinogradRows(Box::new(rows)))
        };
        if Indirect::suits(problem) {
            let indirect = Indirect::new(problem, threads, isa);
            // Products of terms are faster than stems.
            let of_terms = multiplies_terms(problem.x.element, problem.w.element, isa);
            let stem = if of_terms { None } else { Stem::new(problem, threads, isa) };
            let (cost, best) = match stem.filter(|stem| stem.cost < indirect.cost) {
                Some(stem) => (stem.cost, Algorithm::Stem(stem)),
                None => (indirect.cost, Algorithm::Indirect(Box::new(indirect))),
            };
            return winograd(cost).unwrap_or(best);
        }
        let mut best = (f64::INFINITY, Algorithm::Naive);
        if let Some(gemm) = Gemm::new(problem, threads, isa, gemm::Source::ALL) {
            best = (gemm.cost, Algorithm::Gemm(Box::new(gemm)));
        }
        if Wide::applies(shape) {
            let wide = Wide::new(problem, threads, isa);
            // Of a vector of places all but one would be computed in vain.
            if wide.cost < best.0 || shape.pixels() == 1 && problem.x.element == Element::F32 {
                best = (wide.cost, Algorithm::Wide(wide));
            }
        }
        if Indirect::suits_planes(problem) {
            let indirect = Indirect::new(problem, threads, isa);
            let cost = indirect.cost_beside_planes();
            if cost < best.0 {
                best = (cost, Algorithm::Indirect(Box::new(indirect)));
            }
        }
        if problem.winograd && Winograd::applies(problem) {
            let planes = Winograd::new(problem, threads, isa);
            if planes.cost < best.0 {
                best = (planes.cost, Algorithm::Winograd(planes));
            }
        }
        winograd(best.0).unwrap_or(best.1)
    }

    /// All algorithms that serve the problem.
    fn all(problem: &Problem, threads: usize, isa: Isa) -> Vec<Algorithm> {
        let shape = &problem.shape;
        let mut all = vec![Algorithm::Naive];
        if shape.is_empty() || shape.depth() == 0 {
            return all;
        }
        for source in gemm::Source::ALL {
            let gemm = Gemm::new(problem, threads, isa, std::slice::from_ref(source));
            all.extend(gemm.map(|gemm| Algorithm::Gemm(Box::new(gemm))));
        }
        all.extend(Depthwise::new(problem, threads, isa).map(Algorithm::Depthwise));
        if DepthwisePlanes::applies(problem) {
            all.extend(DepthwisePlanes::new(problem, threads, isa).map(Algorithm::DepthwisePlanes));
        }
        all.extend(DepthwiseRows::new(problem, threads, isa).map(Algorithm::DepthwiseRows));
        if Direct::applies(shape) {
            all.push(Algorithm::Direct(Direct::new(problem, threads, isa)));
        }
        if Wide::applies(shape) {
            all.push(Algorithm::Wide(Wide::new(problem, threads, isa)));
        }
        all.extend(FewPlaces::new(problem, threads, isa).map(|few| Algorithm::FewPlaces(Box::new(few))));
        all.push(Algorithm::Indirect(Box::new(Indirect::new(problem, threads, isa))));
        all.extend(Stem::new(problem, threads, isa).map(Algorithm::Stem));
        all.extend(Tiled::new(problem, threads, isa).map(|plan| Algorithm::Tiled(Box::new(plan))));
        all.extend(TiledPlanes::new(problem, threads, isa).map(|plan| Algorithm::TiledPlanes(Box::new(plan))));
        for tiling in Tiling::of(shape) {
            let rows = WinogradRows::of_tiles(tiling, problem, threads, isa);
            all.extend(rows.map(|plan| Algorithm::WinogradRows(Box::new(plan))));
        }
        if Winograd::applies(problem) {
            all.push(Algorithm::Winograd(Winograd::new(problem, threads, isa)));
        }
        all
    }
}

/// Maximum number of products of terms for one of values with which matrix tiles are faster than vectors on shared cores too.
const MOST_ON_TILES: usize = 4;

/// True if convolutions of inputs and weights of these types are products of bf16 terms, where their shapes are worth it.
pub fn multiplies_terms(x: Element, w: Element, isa: Isa) -> bool {
    let products = tiled::products(tiled::terms_of(x, w));
    // Products of pairs have twice the rate of vectors: more than one for a value gains nothing.
    isa.splits_f32() || isa.has_tiles() && products <= MOST_ON_TILES || isa.has_bf16_pairs() && products == 1
}

/// Pointers that go to the workers of a pool, which write disjoint places.
#[derive(Clone, Copy)]
struct Send2(*const u8, *mut u8);
// SAFETY: a pointer is a number; what may be done with it is said where it is dereferenced.
unsafe impl Send for Send2 {}
// SAFETY: its pointers are only copied out of it, which any number of threads may do.
unsafe impl Sync for Send2 {}

impl Send2 {
    fn x(&self) -> *const u8 {
        self.0
    }

    fn y(&self) -> *mut u8 {
        self.1
    }
}

impl ConvolutionPlan {
    /// Makes the plan for a problem, to be run by up to `threads` threads with the fastest instruction set of this CPU.
    pub fn new(problem: &Problem, threads: usize) -> ConvolutionPlan {
        ConvolutionPlan::with_isa(problem, threads, Isa::best())
    }

    /// Variant of [`ConvolutionPlan::new`] with the instruction set given.
    pub fn with_isa(problem: &Problem, threads: usize, isa: Isa) -> ConvolutionPlan {
        let threads = threads.max(1);
        ConvolutionPlan::with_algorithm(problem, threads, isa, Algorithm::best(problem, threads, isa))
    }

    /// Plans of all algorithms that serve the problem, in no order: what [`ConvolutionPlan::with_isa`] chose among, and
    /// those its rules passed over.
    pub fn all(problem: &Problem, threads: usize, isa: Isa) -> impl Iterator<Item = ConvolutionPlan> {
        let threads = threads.max(1);
        let algorithms = Algorithm::all(problem, threads, isa).into_iter();
        algorithms.map(move |algorithm| ConvolutionPlan::with_algorithm(problem, threads, isa, algorithm))
    }

    /// Plan of the same algorithm and packing for a problem with the same weights; `None` if the algorithm does not serve it with that.
    fn alike(&self, problem: &Problem) -> Option<ConvolutionPlan> {
        let (threads, isa) = (self.threads, self.isa);
        let plan = match &self.algorithm {
            Algorithm::Indirect(indirect) => {
                let indirect = Indirect::with_panel(problem, threads, isa, indirect.panel())?;
                ConvolutionPlan::with_algorithm(problem, threads, isa, Algorithm::Indirect(Box::new(indirect)))
            }
            _ => {
                let best = ConvolutionPlan::with_isa(problem, threads, isa);
                let is_alike = |plan: &ConvolutionPlan| plan.algorithm() == self.algorithm();
                if is_alike(&best) { best } else { ConvolutionPlan::all(problem, threads, isa).find(is_alike)? }
            }
        };
        Some(plan).filter(|plan| plan.packing == self.packing)
    }

    fn with_algorithm(problem: &Problem, threads: usize, isa: Isa, algorithm: Algorithm) -> ConvolutionPlan {
        let source = match &algorithm {
            Algorithm::Depthwise(_) | Algorithm::DepthwisePlanes(_) => pack::Source::new(problem).ungrouped(),
            _ => pack::Source::new(problem),
        };
        let form = match &algorithm {
            Algorithm::Naive => Form::Raw,
            Algorithm::Depthwise(depthwise) => Form::TapPanels(depthwise.panel()),
            Algorithm::DepthwisePlanes(planes) => Form::TapPanels(planes.panel()),
            Algorithm::Direct(_) | Algorithm::DepthwiseRows(_) if source.plain() => Form::Raw,
            Algorithm::Direct(_) | Algorithm::DepthwiseRows(_) => Form::Panels(1),
            Algorithm::FewPlaces(_) => Form::Raw,
            Algorithm::Gemm(gemm) => Form::Panels(gemm.panel()),
            Algorithm::Indirect(indirect) => Form::TapPanels(indirect.panel()),
            Algorithm::Stem(stem) => Form::Panels(stem.panel()),
            Algorithm::Tiled(tiled) => Form::Tiles(tiled.form()),
            Algorithm::TiledPlanes(tiled) => Form::Tiles(tiled.form()),
            Algorithm::Wide(wide) => Form::Panels(wide.panel()),
            Algorithm::Winograd(winograd) => Form::Frequencies { tiling: Tiling::LARGE, width: winograd.panel() },
            Algorithm::WinogradRows(winograd) => {
                Form::Frequencies { tiling: winograd.tiling(), width: winograd.panel() }
            }
        };
        let packing = Packing { form, source };
        ConvolutionPlan { problem: problem.clone(), isa, threads, algorithm, packing }
    }

    /// Name of the chosen algorithm.
    pub fn algorithm(&self) -> &'static str {
        match &self.algorithm {
            Algorithm::Naive => "naive",
            Algorithm::Depthwise(_) => "depthwise, channels last",
            Algorithm::DepthwisePlanes(_) => "depthwise, planes",
            Algorithm::DepthwiseRows(_) => "depthwise, rows",
            Algorithm::Direct(_) => "direct",
            Algorithm::FewPlaces(_) => "dot products",
            Algorithm::Gemm(gemm) => gemm.name(),
            Algorithm::Indirect(_) => "indirect gemm",
            Algorithm::Stem(_) => "stem",
            Algorithm::Tiled(_) => "matrix tiles",
            Algorithm::TiledPlanes(_) => "matrix tiles, planes",
            Algorithm::Wide(_) => "wide gemm",
            Algorithm::Winograd(_) => "winograd",
            Algorithm::WinogradRows(winograd) => winograd.name(),
        }
    }

    /// Estimated cycles of a run, by which algorithms are chosen; `None` for those that rules alone choose. Beside algorithms of
    /// planes the estimate of an indirect product counts for a little less.
    pub fn cycles(&self) -> Option<f64> {
        self.algorithm.cost()
    }

    /// Epilogue of the convolution.
    pub fn epilogue(&self) -> &[EpilogueStep] {
        &self.problem.epilogue
    }

    /// Bytes of workspace that a run needs. It is enough for pools of any size: no more workers take part than the plan
    /// was made for.
    pub fn workspace_bytes(&self) -> usize {
        let bytes = self.weights_bytes() + self.shared_bytes() + self.threads * self.slot_bytes();
        if bytes == 0 { 0 } else { bytes + LINE }
    }

    /// Bytes of the workspace's first part, for weights prepared at every run.
    fn weights_bytes(&self) -> usize {
        if self.problem.constant_weights { 0 } else { lines(4 * self.prepared_len()) }
    }

    /// Bytes of a worker's part of the workspace.
    fn slot_bytes(&self) -> usize {
        match &self.algorithm {
            Algorithm::Naive => 0,
            Algorithm::Depthwise(depthwise) => lines(4 * depthwise.slot()),
            Algorithm::DepthwisePlanes(planes) => lines(4 * planes.slot()),
            Algorithm::DepthwiseRows(rows) => lines(4 * rows.slot()),
            Algorithm::Direct(direct) => lines(4 * direct.slot()),
            Algorithm::FewPlaces(few) => lines(4 * few.slot()),
            Algorithm::Gemm(gemm) => lines(4 * gemm.slot()),
            Algorithm::Indirect(indirect) => lines(4 * indirect.slot()),
            Algorithm::Stem(stem) => lines(4 * stem.slot()),
            Algorithm::Tiled(tiled) => lines(4 * tiled.slot()),
            Algorithm::TiledPlanes(tiled) => lines(4 * tiled.slot()),
            Algorithm::Wide(wide) => lines(4 * wide.slot()),
            Algorithm::Winograd(winograd) => lines(4 * winograd.slot()),
            Algorithm::WinogradRows(winograd) => lines(4 * winograd.slot()),
        }
    }

    /// Bytes of the workspace that all workers share.
    fn shared_bytes(&self) -> usize {
        match &self.algorithm {
            Algorithm::WinogradRows(winograd) => lines(4 * winograd.shared()),
            _ => 0,
        }
    }

    /// Form of the weights that the plan works on.
    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// `f32` values of the prepared weights; 0 if the plan takes them as they lie, and [`Weights::Raw`] has to be given.
    pub fn prepared_len(&self) -> usize {
        match self.packing.form {
            Form::Raw => 0,
            Form::Panels(width) | Form::TapPanels(width) => self.packing.source.panels_len(width),
            Form::Frequencies { tiling, width } => self.packing.source.frequencies_len(&tiling, width),
            Form::Tiles(form) => self.packing.source.tiles_len(&form),
        }
    }

    /// True if these bytes can be a tensor of the weights' sizes and layout, as far as their number and address tell.
    pub fn holds_weights(&self, bytes: &[u8]) -> bool {
        let source = &self.packing.source;
        bytes.len() >= source.bytes() && bytes.as_ptr().addr().is_multiple_of(source.element_bytes())
    }

    /// Writes the prepared weights to `out`, which has [`ConvolutionPlan::prepared_len`] values and best begins on a cache
    /// line ([`super::scratch::AlignedBuffer`]).
    ///
    /// # Safety
    /// `w` points to a tensor of the problem's sizes and weight layout.
    pub unsafe fn prepare(&self, w: *const u8, out: &mut [f32], pool: &Pool) {
        assert_eq!(out.len(), self.prepared_len(), "the prepared weights' length is the plan's");
        // SAFETY: the caller's duty, and the length.
        unsafe { self.prepare_at(w, out.as_mut_ptr(), pool, self.threads) };
    }

    /// Variant of [`ConvolutionPlan::prepare`] by so many workers.
    ///
    /// # Safety
    /// As there, with as much memory.
    unsafe fn prepare_at(&self, w: *const u8, out: *mut f32, pool: &Pool, workers: usize) {
        let Packing { form, source } = &self.packing;
        let packer = Packer { source, w, out, isa: self.isa, pool, workers };
        // SAFETY: the caller's duty.
        unsafe {
            match form {
                Form::Raw => {}
                Form::Panels(width) => packer.terms(*width, pack::Order::Channels),
                Form::TapPanels(width) => packer.terms(*width, pack::Order::Taps),
                Form::Frequencies { tiling, width } => packer.frequencies(tiling, *width),
                Form::Tiles(form) => packer.tiles(form),
            }
        }
    }

    /// Convolves.
    ///
    /// A plan made for constant weights has no workspace to prepare them in: it wants them prepared.
    ///
    /// # Safety
    /// The pointers refer to tensors of the problem's sizes and layouts, aligned for their elements, and to the workspace;
    /// output and workspace overlap nothing else, except that an epilogue operand may be the output itself in the same
    /// layout. Prepared weights are of a plan with equal [`Packing`]. Nobody else writes to any of it during the run.
    pub unsafe fn run(&self, pool: &Pool, args: &Args<'_>) {
        let workspace = align_up(args.workspace);
        let shared = workspace.wrapping_add(self.weights_bytes());
        let slots = shared.wrapping_add(self.shared_bytes()).cast::<f32>();
        let weights = match (args.weights, self.packing.form) {
            (Weights::Raw(w), Form::Raw) => w.cast::<f32>(),
            (Weights::Raw(w), _) => {
                assert!(!self.problem.constant_weights, "a plan for constant weights was given them unprepared");
                // SAFETY: the workspace begins with room for the weights.
                unsafe { self.prepare_at(w, workspace.cast(), pool, self.threads) };
                workspace.cast::<f32>().cast_const()
            }
            (Weights::Prepared(weights), _) => {
                assert_eq!(weights.len(), self.prepared_len(), "the prepared weights are of another plan");
                weights.as_ptr()
            }
        };
        // SAFETY: the caller's duty; the weights have the form the algorithm wants.
        unsafe {
            match &self.algorithm {
                Algorithm::Naive => naive::run(self.isa, &self.problem, pool, self.threads, args, weights.cast()),
                Algorithm::Depthwise(depthwise) => depthwise.run(pool, self.threads, args, weights, slots),
                Algorithm::DepthwisePlanes(planes) => planes.run(pool, self.threads, args, weights, slots),
                Algorithm::DepthwiseRows(rows) => rows.run(pool, self.threads, args, weights, slots),
                Algorithm::Direct(direct) => direct.run(pool, self.threads, args, weights, slots),
                Algorithm::FewPlaces(few) => few.run(pool, self.threads, args, weights, slots),
                Algorithm::Gemm(gemm) => gemm.run(pool, self.threads, args, weights, slots),
                Algorithm::Indirect(indirect) => indirect.run(pool, self.threads, args, weights, slots),
                Algorithm::Stem(stem) => stem.run(pool, self.threads, args, weights, slots),
                Algorithm::Tiled(tiled) => tiled.run(pool, self.threads, args, weights, slots),
                Algorithm::TiledPlanes(tiled) => tiled.run(pool, self.threads, args, weights, slots),
                Algorithm::Wide(wide) => wide.run(pool, self.threads, args, weights, slots),
                Algorithm::Winograd(winograd) => winograd.run(pool, self.threads, args, weights, slots),
                Algorithm::WinogradRows(winograd) => {
                    winograd.run(pool, self.threads, args, weights, shared.cast(), slots)
                }
            }
        }
    }
}
