//! Source of a kernel and the arguments of a launch.
//!
//! The text depends on the program, the types, the number of loops, the mapping of threads, and on which strides are
//! zero, one or multiples of a vector; extents, strides, offsets and scalars are arguments. So one code object serves
//! many shapes, but where registers hold a group's members or loops over them are unrolled: of those the text has the
//! number of steps or the extents, and steps of windows that a thread has side by side.

mod columns;
mod lines;
mod passes;
mod places;
mod resident;
mod tiles;
mod tree;

use std::ops::Range;

use super::folds::{self, Buffers};
use super::layout::Loops;
use super::mapping::ThreadMap;
use super::schedule::{Axis, Schedule};
use super::{Bound, Fold, ReduceOp};
use crate::emit::arguments::{self, Arguments, quotient};
use crate::emit::element::Element;
use crate::emit::program::{ComputeType, Text};
pub(super) use resident::resident;

/// Name of the kernel function.
pub(super) const FUNCTION: &std::ffi::CStr = c"kernel";

/// Checked and simplified work of a kernel.
pub(super) struct Work<'a> {
    pub(super) loops: &'a Loops,
    pub(super) reads: &'a [Element],
    pub(super) writes: &'a [Element],
    pub(super) passes: Vec<Block<'a>>,
    /// Place whose offset is the number of a member, if an input asks for it.
    pub(super) number: Option<usize>,
    pub(super) compute_type: ComputeType,
    pub(super) schedule: Schedule,
    /// True for a kernel without reductions, whose threads take one step of the members each.
    pub(super) elementwise: bool,
    /// Number of groups, and of a group's members.
    pub(super) groups: u64,
    pub(super) members: u64,
    pub(super) wide: bool,
}

/// Pass with its statements in C.
pub(super) struct Block<'a> {
    pub(super) inputs: Vec<Slot>,
    pub(super) statements: String,
    /// Number of slots before the inputs: values that passes before have left behind.
    pub(super) kept: usize,
    /// Number of values that this pass leaves behind.
    pub(super) leaves: usize,
    pub(super) folds: &'a [Fold],
    pub(super) keep: &'a [usize],
    pub(super) stores: Vec<Target>,
    /// True if the program runs for every member.
    pub(super) members: bool,
    /// Slot whose value of each member lanes keep for a later pass.
    pub(super) remembered: Option<usize>,
}

/// Source of a slot that is filled before the program runs. Places are those of the loops.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Slot {
    /// Element of a tensor, or `pad_value` if the place is out of bounds.
    Tensor { tensor: usize, place: usize, pad_value: f64 },
    /// In-bounds predicate of the place.
    InBounds { place: usize },
    /// Offset of the place itself.
    Index { place: usize },
    /// Argument of the kernel.
    Scalar(f64),
    /// Constant in the source.
    Literal(f64),
    /// Value of a member that a pass before has computed and lanes keep.
    Kept,
}

impl Slot {
    pub(super) fn place(self) -> Option<usize> {
        match self {
            Slot::Tensor { place, .. } | Slot::InBounds { place } | Slot::Index { place } => Some(place),
            Slot::Scalar(_) | Slot::Literal(_) | Slot::Kept => None,
        }
    }
}

/// Store of a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Target {
    pub(super) slot: usize,
    pub(super) tensor: usize,
    pub(super) place: usize,
}

/// Kernel in C, and the arguments of one launch of it.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) text: String,
    pub(super) arguments: Arguments,
    /// Number of blocks to launch.
    pub(super) blocks: u32,
}

/// Limit of blocks in a launch: enough for any device. Each then goes on to other groups (grid-stride loop).
const MOST_BLOCKS: u64 = 1 << 14;

/// Source builder. Arguments and text grow together: the text reads exactly the fields that the arguments hold.
struct Writer<'a> {
    work: &'a Work<'a>,
    arguments: Arguments,
    /// Bounds of all places, without duplicates and strides.
    bounds: Vec<Bound>,
    body: String,
    /// Indentation in spaces.
    indent: usize,
    /// True where `within` says whether a lane of a vector is still within the loop.
    guarded: bool,
    /// True where `k` is one of a thread's groups.
    in_lane: bool,
    buffers: Buffers<'a>,
}

impl Source {
    /// Source of the kernel. There is a group, and the caller has checked that nothing overflows.
    pub(super) fn new(work: &Work<'_>, mut program: Text) -> Source {
        let mut writer = Writer {
            work,
            arguments: Arguments::default(),
            bounds: places::unique(work.loops),
            body: String::new(),
            indent: 2,
            guarded: false,
            in_lane: false,
            buffers: Buffers::new(work.passes.iter().map(|part| part.folds)),
        };
        let blocks = writer.write(&program);
        let text = writer.text(&mut program);
        Source { text, arguments: writer.arguments, blocks: u32::try_from(blocks).expect("blocks are below 2³¹") }
    }
}

impl Writer<'_> {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.body += &format!("{:1$}{line}\n", "", self.indent);
    }

    fn open(&mut self, line: std::fmt::Arguments<'_>) {
        self.line(line);
        self.indent += 2;
    }

    fn close(&mut self) {
        self.indent -= 2;
        self.line(format_args!("}}"));
    }

    fn index(&mut self, name: &str, value: i64) {
        self.arguments.index(self.work.wide, name, value);
    }

    fn groups(&self) -> Range<usize> {
        0..self.work.loops.split
    }

    fn members(&self) -> Range<usize> {
        self.work.loops.split..self.work.loops.extents.len()
    }

    /// Number of adjacent steps that a thread takes together.
    fn width(&self) -> u64 {
        self.work.schedule.vector.map_or(1, |vector| u64::from(vector.width))
    }

    /// Loop over members that goes in vectors, if there is one.
    fn inner(&self) -> Option<usize> {
        self.along(Axis::Members).then(|| self.work.loops.extents.len() - 1)
    }

    /// Loop over groups that goes in vectors, if there is one.
    fn beside(&self) -> Option<usize> {
        self.along(Axis::Groups).then(|| self.work.loops.split - 1)
    }

    fn along(&self, axis: Axis) -> bool {
        self.work.schedule.vector.is_some_and(|vector| vector.axis == axis)
    }

    /// True if the extent of the vectorized loop over members need not be a multiple of the width.
    fn tail(&self) -> bool {
        let is_whole = |inner: usize| self.work.loops.extents[inner].is_multiple_of(self.width());
        self.inner().is_some_and(|inner| self.work.elementwise || !is_whole(inner))
    }

    /// Number of steps of a loop.
    fn extent(&self, l: usize) -> u64 {
        let extent = self.work.loops.extents[l];
        let in_vectors = self.inner() == Some(l) || self.beside() == Some(l);
        if in_vectors { extent.div_ceil(self.width()) } else { extent }
    }

    /// Number of steps that the lanes of a group share.
    fn steps(&self) -> u64 {
        let Work { members, .. } = *self.work;
        self.inner().map_or(members, |inner| members / self.work.loops.extents[inner] * self.extent(inner))
    }

    /// C variable that counts the steps of a loop.
    fn counter(&self, l: usize) -> String {
        if self.inner() == Some(l) { "vector".to_owned() } else { format!("j{l}") }
    }

    /// True if a vector's elements are contiguous in a place whose guards, if any, are the same for all of them.
    fn is_side_by_side(&self, place: usize) -> bool {
        let place = &self.work.loops.places[place];
        self.inner().is_some_and(|inner| place.strides[inner] == 1 && place.bounds.is_empty())
            || self.beside().is_some_and(|beside| place.strides[beside] == 1)
    }

    /// True if a block may have places beyond the last group.
    fn ragged(&self) -> bool {
        self.work.schedule.mapping.side > 1
    }

    /// C type of a tensor's elements in memory.
    fn memory_type(&self, element: Element) -> &'static str {
        if self.is_moved() { "real" } else { element.c_type() }
    }

    /// True if values are bytes that are only moved.
    fn is_moved(&self) -> bool {
        matches!(self.work.compute_type, ComputeType::Bits(_))
    }

    /// C expression of the value of an element of a tensor that is read.
    fn widened(&self, tensor: usize, element: &str) -> String {
        if self.is_moved() {
            return element.to_owned();
        }
        format!("widen_{}({element})", self.work.reads[tensor].suffix())
    }

    /// C expression of the value that is written to a target.
    fn narrowed(&self, target: &Target) -> String {
        if self.is_moved() {
            return format!("t{}", target.slot);
        }
        format!("narrow_{}(t{})", self.work.writes[target.tensor].suffix(), target.slot)
    }

    /// Writes arguments and statements; returns the number of blocks to launch.
    fn write(&mut self, program: &Text) -> u64 {
        let work = self.work;
        for (t, element) in work.reads.iter().enumerate() {
            self.arguments.pointer(&format!("const {}", self.memory_type(*element)), &format!("r{t}"));
        }
        for (t, element) in work.writes.iter().enumerate() {
            self.arguments.pointer(self.memory_type(*element), &format!("w{t}"));
        }
        self.pointers();
        if let Some(inner) = self.inner().filter(|_| self.tail()) {
            self.index("inner", work.loops.extents[inner] as i64);
        }
        let blocks = match work.schedule.tile {
            Some(tile) => self.elements_in_tiles(tile),
            None if work.elementwise => self.elements(),
            None => self.over_groups(),
        };
        for (i, value) in program.scalars.iter().enumerate() {
            self.arguments.real(work.compute_type, &format!("p{i}"), f64::from(*value));
        }
        self.arguments.finish();
        blocks
    }

    /// Emits a kernel without reductions, in which each thread takes one step of the members.
    fn elements(&mut self) -> u64 {
        let work = self.work;
        let [pass] = &work.passes[..] else { unreachable!("an element-wise kernel has one pass") };
        let items = work.groups * self.steps();
        let threads = work.schedule.mapping.threads();
        let blocks = items.div_ceil(u64::from(threads));
        // A grid has fewer threads than 2³²: where there are more elements, each thread takes several.
        let launched = if work.wide { blocks.min(MOST_BLOCKS) } else { blocks };
        let thread = format!("count(__builtin_amdgcn_workgroup_id_x()) * {threads} + __builtin_amdgcn_workitem_id_x()");
        self.index("items", items as i64);
        if work.wide {
            self.index("threads", (launched * u64::from(threads)) as i64);
            self.open(format_args!("for (count item = {thread}; item < count(a.items); item += count(a.threads)) {{"));
        } else {
            self.line(format_args!("const count item = {thread};"));
            self.open(format_args!("if (item < count(a.items)) {{"));
        }
        if self.groups().is_empty() {
            self.line(format_args!("const count m = item;"));
        } else {
            self.arguments.divisor(work.wide, "members", self.steps());
            if work.wide {
                self.line(format_args!("const count group = {};", quotient(work.wide, "item", "members")));
            } else {
                self.group_of_item(threads);
            }
            self.line(format_args!("const count m = item - group * count(a.members);"));
        }
        self.group_indices();
        self.group_places();
        self.element(pass);
        self.close();
        launched
    }

    /// Emits the group of an item where indices are narrow. With as many members as threads or more a block has items of two
    /// groups at most, so that the one division is its first item's, in scalar registers; the branch is uniform, and leaves
    /// one text for groups of any size.
    fn group_of_item(&mut self, threads: u32) {
        self.line(format_args!("count group;"));
        self.open(format_args!("if (count(a.members) >= {threads}) {{"));
        self.line(format_args!("const count begin = count(__builtin_amdgcn_workgroup_id_x()) * {threads};"));
        self.line(format_args!("group = {};", quotient(false, "begin", "members")));
        self.line(format_args!("group += item - group * count(a.members) >= count(a.members);"));
        self.close();
        self.open(format_args!("else {{"));
        self.line(format_args!("group = {};", quotient(false, "item", "members")));
        self.close();
    }

    /// Emits a kernel whose threads share groups.
    fn over_groups(&mut self) -> u64 {
        let work = self.work;
        let groups = if self.beside().is_some() { work.groups / self.width() } else { work.groups };
        let blocks = groups.div_ceil(u64::from(work.schedule.mapping.side));
        let launched = blocks.min(MOST_BLOCKS);
        self.index("members", self.steps() as i64);
        self.index("blocks", blocks as i64);
        self.index("step", launched as i64);
        let ThreadMap { side, lanes, lanes_first } = work.schedule.mapping;
        self.line(format_args!("const count thread = count(__builtin_amdgcn_workitem_id_x());"));
        let (lane, place) = match (lanes, side, lanes_first) {
            (1, _, _) => ("0".to_owned(), "thread".to_owned()),
            (_, 1, _) => ("thread".to_owned(), "0".to_owned()),
            (_, _, true) => (format!("thread % {lanes}"), format!("thread / {lanes}")),
            (_, _, false) => (format!("thread / {side}"), format!("thread % {side}")),
        };
        self.line(format_args!("const count lane = {lane}, place = {place};"));
        self.steps_of_lanes();
        self.open(format_args!(
            "for (count block = __builtin_amdgcn_workgroup_id_x(); block < count(a.blocks); block += count(a.step)) {{"
        ));
        if self.ragged() {
            self.index("groups", groups as i64);
            self.line(format_args!("const bool alive = block * {side} + place < count(a.groups);"));
            self.line(format_args!("const count group = alive ? block * {side} + place : 0;"));
            self.line(format_args!("const count begin = alive ? lane : count(a.members);"));
        } else {
            self.line(format_args!("const bool alive = true;"));
            self.line(format_args!("const count group = block, begin = lane;"));
        }
        self.group_indices();
        self.group_places();
        if lanes > 1 {
            self.shared_memory();
        }
        let has_folds = work.passes.iter().any(|part| !part.folds.is_empty());
        if lanes > 1 && has_folds {
            // Lanes of one group in a wave.
            let wave = "count(__builtin_amdgcn_wavefrontsize())";
            let between = work.schedule.mapping.lane_stride();
            let among =
                if between == 1 { wave.to_owned() } else { format!("({wave} < {between} ? 1 : {wave} / {between})") };
            self.line(format_args!("const count together = {among} < {lanes} ? {among} : {lanes};"));
        }
        self.residents();
        let mut fold = 0;
        for (p, part) in work.passes.iter().enumerate() {
            self.pass(p, part, fold);
            fold += part.folds.len();
        }
        if lanes > 1 && fold > 0 {
            // The next groups' values go where these ones' are still read.
            if work.schedule.mapping.exchanged() > 0 {
                self.line(format_args!("if (together < {lanes}) barrier();"));
            }
        }
        self.close();
        launched
    }

    /// Declares `l<loop>`, the indices of the first member of this lane, and arguments to go on from there.
    fn steps_of_lanes(&mut self) {
        let (work, members) = (self.work, self.members());
        if members.len() < 2 {
            return;
        }
        let lanes = u64::from(work.schedule.mapping.lanes);
        if lanes > 1 {
            self.line(format_args!("count n = lane;"));
        }
        let mut rest = lanes;
        for l in members.clone().skip(1).rev() {
            let extent = self.extent(l);
            self.arguments.divisor(work.wide, &format!("e{l}"), extent);
            if lanes > 1 {
                self.index(&format!("e{l}_w"), (rest % extent) as i64);
                rest /= extent;
                let quotient = quotient(work.wide, "n", &format!("e{l}"));
                self.line(format_args!("const count n{l} = {quotient};"));
                self.line(format_args!("const index l{l} = index(n - n{l} * count(a.e{l}));"));
                self.line(format_args!("n = n{l};"));
            }
        }
        if lanes > 1 {
            self.index(&format!("e{}_w", members.start), rest as i64);
            self.line(format_args!("const index l{} = index(n);", members.start));
        }
    }

    /// Declares `j<loop>` for the groups.
    fn group_indices(&mut self) {
        let (work, groups) = (self.work, self.groups());
        if groups.is_empty() {
            return;
        }
        // The first group of a vector.
        let (beside, width) = (self.beside(), self.width());
        let times = |l: usize| if beside == Some(l) { format!(" * {width}") } else { String::new() };
        if groups.len() == 1 {
            let times = times(0);
            return self.line(format_args!("const index j0 = index(group){times};"));
        }
        self.line(format_args!("count n = group;"));
        for l in groups.skip(1).rev() {
            let (extent, times) = (self.extent(l), times(l));
            self.arguments.divisor(work.wide, &format!("e{l}"), extent);
            self.line(format_args!("const count n{l} = {};", quotient(work.wide, "n", &format!("e{l}"))));
            self.line(format_args!("const index j{l} = index(n - n{l} * count(a.e{l})){times};"));
            self.line(format_args!("n = n{l};"));
        }
        self.line(format_args!("const index j0 = index(n);"));
    }

    fn text(&self, program: &mut Text) -> String {
        let work = self.work;
        let mut definitions: Vec<&ReduceOp> = Vec::new();
        for fold in work.passes.iter().flat_map(|part| part.folds) {
            if !definitions.iter().any(|mode| mode.structure() == fold.mode.structure()) {
                definitions.push(&fold.mode);
            }
        }
        let definitions: String = definitions.iter().map(|mode| mode.definition(program)).collect();
        let mut text = arguments::DEVICE.to_owned();
        text += arguments::index_types(work.wide);
        text += &program.prelude();
        if self.body.contains("mulhi(") {
            text += arguments::MULHI;
        }
        if !definitions.is_empty() {
            text += folds::limits(work.compute_type);
        }
        text += &definitions;
        if self.body.contains("barrier") {
            text += BARRIER;
        }
        if self.body.contains("from_lane(") {
            text += tree::FROM_LANE;
        }
        if work.schedule.vector.is_some() {
            text += arguments::VECTORS;
            text += &format!("#define EACH _Pragma(\"unroll\") for (int k = 0; k < {}; ++k)\n", self.width());
        }
        let threads = work.schedule.mapping.threads();
        text += &format!("struct Arguments {{\n{}}};\n", self.arguments.declarations);
        text += &format!("extern \"C\" __attribute__((global, amdgpu_flat_work_group_size({threads}, {threads})))\n");
        text += "void kernel(const Arguments a) {\n";
        text += &self.body;
        text += "}\n";
        text
    }
}

/// C functions that the threads of a block wait in for each other: for what they write to shared memory, and the same
/// for what they read of all memory. The fence of shared memory alone leaves the caches as they are; compilers before
/// the nineteenth have only the other, and the twentieth is asked for.
const BARRIER: &str = "#if __clang_major__ >= 20
#define LOCAL , \"local\"
#else
#define LOCAL
#endif
DEVICE void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, \"workgroup\" LOCAL);
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"workgroup\" LOCAL);
}
DEVICE void barrier_of_memory() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, \"workgroup\");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"workgroup\");
}
";
