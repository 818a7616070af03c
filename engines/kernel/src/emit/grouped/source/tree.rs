//! Reduction of the accumulators that the lanes of a group have.

use super::{Block, Writer};
use crate::emit::grouped::mapping::ThreadMap;

impl Writer<'_> {
    /// Declares the shared memory of all passes.
    pub(super) fn shared_memory(&mut self) {
        let threads = self.work.schedule.mapping.threads();
        let vector = self.of_lanes(self.width());
        let structures: Vec<_> = self.buffers.structures().collect();
        for (b, structure) in structures.into_iter().enumerate() {
            self.line(format_args!("static __attribute__((shared)) {structure} shared{b}{vector}[{threads}];"));
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

    /// Emits the reduction of the lanes' accumulators, through shared memory: a tree among the lanes of a wave, which run in step, then
    /// every lane joins the waves' results in one order. One barrier of the work-group, or none where a wave has all lanes of a group.
    pub(super) fn tree(&mut self, pass: usize, part: &Block<'_>, first_fold: usize) {
        let ThreadMap { lanes, .. } = self.work.schedule.mapping;
        let between = self.work.schedule.mapping.lane_stride();
        let (each, k) = (self.each_lane(), self.of_lanes("k"));
        let of = |f: usize| format!("f{}{k}", first_fold + f);
        let buffers: Vec<String> = self.buffers.of_pass(pass).iter().map(|b| format!("shared{b}{k}")).collect();
        debug_assert_eq!(buffers.len(), part.folds.len(), "each fold has a buffer");
        for (f, buffer) in buffers.iter().enumerate() {
            self.line(format_args!("{each}{buffer}[thread] = {};", of(f)));
        }
        self.line(format_args!("wave_barrier();"));
        self.open(format_args!("for (count half = together / 2; half > 0; half /= 2) {{"));
        self.open(format_args!("if (lane % together < half) {each}{{"));
        for (f, buffer) in buffers.iter().enumerate() {
            self.line(format_args!("join({}, {buffer}[thread + half * {between}]);", of(f)));
            self.line(format_args!("{buffer}[thread] = {};", of(f)));
        }
        self.close();
        self.line(format_args!("wave_barrier();"));
        self.close();
        self.line(format_args!("if (together < {lanes}) barrier();"));
        for (f, buffer) in buffers.iter().enumerate() {
            self.line(format_args!("{each}{} = {buffer}[thread - lane * {between}];", of(f)));
        }
        self.open(format_args!("for (count other = together; other < {lanes}; other += together) {{"));
        for (f, buffer) in buffers.iter().enumerate() {
            self.line(format_args!("{each}join({}, {buffer}[thread - (lane - other) * {between}]);", of(f)));
        }
        self.close();
    }
}
