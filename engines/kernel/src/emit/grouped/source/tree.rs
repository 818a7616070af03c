//! Reduction of the accumulators that the lanes of a group have.

use super::{Block, Writer};
use crate::emit::grouped::ReduceOp;
use crate::emit::grouped::mapping::ThreadMap;
use crate::emit::program::ComputeType;

/// C function that gives a structure that another lane of the wave has. All lanes call it.
pub(super) const FROM_LANE: &str = "template <int N> struct Words { int words[N]; };
template <class T> DEVICE T from_lane(T own, count lane) {
  Words<sizeof(T) / 4> w = __builtin_bit_cast(Words<sizeof(T) / 4>, own);
  _Pragma(\"unroll\") for (int i = 0; i < int(sizeof(T) / 4); ++i) {
    w.words[i] = __builtin_amdgcn_ds_bpermute(int(lane * 4), w.words[i]);
  }
  return __builtin_bit_cast(T, w);
}
";

/// Maximum number of lanes of a wave.
const MOST_WAVE: u32 = 64;

impl Writer<'_> {
    /// Declares the shared memory of all passes.
    pub(super) fn shared_memory(&mut self) {
        let exchanged = self.work.schedule.mapping.exchanged();
        if exchanged == 0 {
            return;
        }
        let vector = self.of_lanes(self.width());
        let structures: Vec<_> = self.buffers.structures().collect();
        for (b, structure) in structures.into_iter().enumerate() {
            self.line(format_args!("static __attribute__((shared)) {structure} shared{b}{vector}[{exchanged}];"));
        }
    }

    /// Subscript in lists of what each of a thread's groups has, or nothing if it has one group.
    pub(super) fn of_lanes(&self, of: impl std::fmt::Display) -> String {
        if self.beside().is_some() { format!("[{of}]") } else { String::new() }
    }

    /// Beginning of a statement for each of a thread's groups.
    pub(super) fn each_lane(&self) -> &'static str {
        if self.beside().is_some() { "EACH " } else { "" }
    }

    /// Emits the reduction of the lanes' accumulators: pair by pair among the lanes of a wave; then, where a group has
    /// lanes in several waves, through shared memory among the waves' results, with one barrier of the work-group, or
    /// two where a thread has several groups. All lanes get the result.
    pub(super) fn tree(&mut self, pass: usize, part: &Block<'_>, first_fold: usize) {
        let ThreadMap { side, lanes, lanes_first } = self.work.schedule.mapping;
        let (each, k) = (self.each_lane(), self.of_lanes("k"));
        let folds: Vec<String> = (0..part.folds.len()).map(|f| format!("f{}{k}", first_fold + f)).collect();
        self.among_lanes(part, &folds, "together", self.work.schedule.mapping.together());
        if self.work.schedule.mapping.exchanged() == 0 {
            return;
        }
        let buffers: Vec<String> = self.buffers.of_pass(pass).iter().map(|b| format!("shared{b}{k}")).collect();
        debug_assert_eq!(buffers.len(), part.folds.len(), "each fold has a buffer");
        // What a wave has of a group is a chunk of its lanes.
        self.open(format_args!("if (together < {lanes}) {{"));
        self.line(format_args!("const count chunks = {lanes} / together;"));
        let slot = |chunk: &str| match lanes_first {
            true => format!("place * chunks + {chunk}"),
            false => format!("({chunk}) * {side} + place"),
        };
        let own = slot("lane / together");
        self.open(format_args!("if (lane % together == 0) {each}{{"));
        for (fold, buffer) in folds.iter().zip(&buffers) {
            self.line(format_args!("{buffer}[{own}] = {fold};"));
        }
        self.close();
        self.line(format_args!("barrier();"));
        // A wave has a lane for each chunk.
        if lanes_first {
            let one = slot("lane % chunks");
            for (fold, buffer) in folds.iter().zip(&buffers) {
                self.line(format_args!("{each}{fold} = {buffer}[{one}];"));
            }
            self.among_lanes(part, &folds, "chunks", 1);
        } else if self.beside().is_some() {
            // Lanes share the groups of a thread between them.
            let (first, other, width) = (slot("0"), slot("other"), self.width());
            self.open(format_args!("for (count k = lane; k < {width}; k += {lanes}) {{"));
            self.open(format_args!("for (count other = 1; other < chunks; ++other) {{"));
            for buffer in &buffers {
                self.line(format_args!("join({buffer}[{first}], {buffer}[{other}]);"));
            }
            self.close();
            self.close();
            self.line(format_args!("barrier();"));
            for (fold, buffer) in folds.iter().zip(&buffers) {
                self.line(format_args!("{each}{fold} = {buffer}[{first}];"));
            }
        } else {
            let (first, other) = (slot("0"), slot("other"));
            for (fold, buffer) in folds.iter().zip(&buffers) {
                self.line(format_args!("{each}{fold} = {buffer}[{first}];"));
            }
            self.open(format_args!("for (count other = 1; other < chunks; ++other) {{"));
            for (fold, buffer) in folds.iter().zip(&buffers) {
                self.line(format_args!("{each}join({fold}, {buffer}[{other}]);"));
            }
            self.close();
        }
        self.close();
    }

    /// Emits the reduction of the accumulators of so many lanes of a wave, which are `least` or more, after which all
    /// of them have the result.
    fn among_lanes(&mut self, part: &Block<'_>, folds: &[String], lanes: &str, least: u32) {
        let (each, between) = (self.each_lane(), self.work.schedule.mapping.lane_stride());
        self.open(format_args!("for (count half = {lanes} / 2; half >= {least}; half /= 2) {each}{{"));
        for fold in folds {
            self.line(format_args!("join({fold}, from_lane({fold}, thread ^ half * {between}));"));
        }
        self.close();
        for half in (0..least.ilog2()).rev().map(|log| between << log) {
            for fold in folds {
                self.line(format_args!("{each}join({fold}, from_lane({fold}, thread ^ {half}));"));
            }
        }
        // Where it matters which of two is joined to the other, the first lane's result is that of all.
        for (fold, name) in part.folds.iter().zip(folds) {
            let is_same = matches!(fold.mode, ReduceOp::Sum | ReduceOp::Product);
            if (!is_same || self.work.compute_type == ComputeType::F64) && between < MOST_WAVE {
                self.line(format_args!("{each}{name} = from_lane({name}, thread - lane % {lanes} * {between});"));
            }
        }
    }
}
