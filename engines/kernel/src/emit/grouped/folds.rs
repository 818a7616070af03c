//! Accumulators in C: a structure for each reduction, with the functions `put`, which accumulates a value, `join`,
//! which merges another thread's accumulator, and `value`. Extremes have `put_number` for values of which it is known, or
//! noted elsewhere, whether they are numbers.
//!
//! Sums of `f32` are kept in `f64` (of narrow elements, the `f32` sums of a few), and so are products, which then neither
//! overflow nor underflow on the way. Sums of `f64` carry the rounding error along (compensated summation). So the error
//! does not grow with the number of members.

use super::{Fold, ReduceOp};
use crate::emit::program::{ComputeType, Text};

/// C macros `MOST` and `LEAST`: the neutral elements of minimum and maximum.
pub(super) fn limits(compute_type: ComputeType) -> &'static str {
    match compute_type {
        // The prelude of whole numbers has them.
        ComputeType::I64 | ComputeType::Bits(_) => "",
        ComputeType::F32 => "#define MOST real(__builtin_inf())\n#define LEAST (-MOST)\n",
        // Clang 22 moves zero instead of ±∞ to a pair of scalar registers (where all members have the same value, say).
        ComputeType::F64 => {
            "DEVICE real in_vector(real v) { __asm__(\"\" : \"+v\"(v)); return v; }
#define MOST in_vector(__builtin_inf())
#define LEAST in_vector(-__builtin_inf())
"
        }
    }
}

/// Buffers in shared memory, in which lanes exchange their accumulators. A pass that reduces has other ones than the pass before it,
/// which some threads still read, and those of the one before that again: all have met in between.
#[derive(Debug, Default)]
pub(super) struct Buffers<'a> {
    /// Reduction of each buffer, and which of two passes in a row has it.
    buffers: Vec<(&'a ReduceOp, bool)>,
    /// Buffers of each pass's folds.
    of_passes: Vec<Vec<usize>>,
}

impl<'a> Buffers<'a> {
    /// Buffers for the folds of passes.
    pub(super) fn new(passes: impl Iterator<Item = &'a [Fold]>) -> Buffers<'a> {
        let mut list = Buffers::default();
        let mut turn = false;
        for folds in passes {
            let mut own: Vec<usize> = Vec::new();
            for Fold { mode, .. } in folds {
                let fits = |b: &usize| {
                    let (of, with) = list.buffers[*b];
                    with == turn && of.structure() == mode.structure() && !own.contains(b)
                };
                let free = (0..list.buffers.len()).find(fits);
                own.push(free.unwrap_or(list.buffers.len()));
                if free.is_none() {
                    list.buffers.push((mode, turn));
                }
            }
            turn ^= !folds.is_empty();
            list.of_passes.push(own);
        }
        list
    }

    /// Bytes of all buffers for one thread and one group of it.
    pub(super) fn bytes(&self, compute_type: ComputeType, wide: bool) -> usize {
        self.buffers.iter().map(|(mode, _)| mode.bytes(compute_type, wide)).sum()
    }

    /// Structures of the buffers, in order.
    pub(super) fn structures(&self) -> impl Iterator<Item = &'static str> {
        self.buffers.iter().map(|(mode, _)| mode.structure())
    }

    /// Buffers of the folds of a pass.
    pub(super) fn of_pass(&self, pass: usize) -> &[usize] {
        &self.of_passes[pass]
    }
}

impl ReduceOp {
    /// Name of the structure.
    pub(super) fn structure(&self) -> &'static str {
        match self {
            ReduceOp::Sum => "Sum",
            ReduceOp::Product => "Product",
            ReduceOp::Min => "Least",
            ReduceOp::Max => "Greatest",
            ReduceOp::ArgMax { .. } => "First",
        }
    }

    /// Initializer of the neutral element.
    pub(super) fn neutral(&self) -> &'static str {
        match self {
            ReduceOp::Sum => "{0}",
            ReduceOp::Product => "{1}",
            ReduceOp::Min => "{MOST}",
            ReduceOp::Max => "{LEAST}",
            ReduceOp::ArgMax { .. } => "{LEAST, real(-1), ~count(0)}",
        }
    }

    /// Size of the structure in bytes.
    pub(super) fn bytes(&self, compute_type: ComputeType, wide: bool) -> usize {
        let real = if compute_type == ComputeType::F32 { 4 } else { 8 };
        match self {
            ReduceOp::Sum if compute_type == ComputeType::F64 => 16,
            ReduceOp::Sum | ReduceOp::Product => 8,
            ReduceOp::Min | ReduceOp::Max => real,
            ReduceOp::ArgMax { .. } if real == 4 && !wide => 12,
            ReduceOp::ArgMax { .. } => 24,
        }
    }

    /// C definition of the structure and its functions.
    pub(super) fn definition(&self, text: &mut Text) -> &'static str {
        let compute_type = text.compute_type();
        match (self, compute_type) {
            (ReduceOp::Sum, ComputeType::I64) => {
                text.use_name("whole_add");
                "struct Sum { real total; };
DEVICE void put(Sum& s, real v) { s.total = whole_add(s.total, v); }
DEVICE void join(Sum& s, Sum o) { put(s, o.total); }
DEVICE real value(Sum s) { return s.total; }
"
            }
            (ReduceOp::Sum, ComputeType::F32 | ComputeType::Bits(_)) => {
                "struct Sum { double total; };
DEVICE void put(Sum& s, real v) { s.total += double(v); }
DEVICE void join(Sum& s, Sum o) { s.total += o.total; }
DEVICE real value(Sum s) { return real(s.total); }
"
            }
            // What an infinite or overflowing sum has lost is no number, and is forgotten.
            (ReduceOp::Sum, ComputeType::F64) => {
                "struct Sum { real total, rest; };
DEVICE void put(Sum& s, real v) {
  const real x = v + s.rest, t = s.total + x, b = t - s.total, rest = (s.total - (t - b)) + (x - b);
  s.total = t;
  s.rest = rest - rest == real(0) ? rest : real(0);
}
DEVICE void join(Sum& s, Sum o) { put(s, o.total); s.rest += o.rest; }
DEVICE real value(Sum s) { return s.total + s.rest; }
"
            }
            (ReduceOp::Product, ComputeType::I64) => {
                text.use_name("whole_mul");
                "struct Product { real total; };
DEVICE void put(Product& p, real v) { p.total = whole_mul(p.total, v); }
DEVICE void join(Product& p, Product o) { put(p, o.total); }
DEVICE real value(Product p) { return p.total; }
"
            }
            (ReduceOp::Product, _) => {
                "struct Product { double total; };
DEVICE void put(Product& p, real v) { p.total *= double(v); }
DEVICE void join(Product& p, Product o) { p.total *= o.total; }
DEVICE real value(Product p) { return real(p.total); }
"
            }
            (ReduceOp::Min, ComputeType::F32) => {
                "struct Least { real least; };
DEVICE void put(Least& l, real v) { if (v < l.least || v != v) l.least = v; }
DEVICE void put_number(Least& l, real v) { l.least = __builtin_fminf(l.least, v); }
DEVICE void join(Least& l, Least o) { put(l, o.least); }
DEVICE real value(Least l) { return l.least; }
"
            }
            (ReduceOp::Min, _) => {
                "struct Least { real least; };
DEVICE void put(Least& l, real v) { if (v < l.least || v != v) l.least = v; }
DEVICE void join(Least& l, Least o) { put(l, o.least); }
DEVICE real value(Least l) { return l.least; }
"
            }
            (ReduceOp::Max, ComputeType::F32) => {
                "struct Greatest { real greatest; };
DEVICE void put(Greatest& g, real v) { if (v > g.greatest || v != v) g.greatest = v; }
DEVICE void put_number(Greatest& g, real v) { g.greatest = __builtin_fmaxf(g.greatest, v); }
DEVICE void join(Greatest& g, Greatest o) { put(g, o.greatest); }
DEVICE real value(Greatest g) { return g.greatest; }
"
            }
            (ReduceOp::Max, _) => {
                "struct Greatest { real greatest; };
DEVICE void put(Greatest& g, real v) { if (v > g.greatest || v != v) g.greatest = v; }
DEVICE void join(Greatest& g, Greatest o) { put(g, o.greatest); }
DEVICE real value(Greatest g) { return g.greatest; }
"
            }
            // Of equal ones that of the smallest number, whichever thread has it; before there is any, all are smaller.
            (ReduceOp::ArgMax { .. }, _) => {
                "struct First { real greatest, at; count number; };
DEVICE void join(First& f, First o) {
  const bool no = o.greatest != o.greatest, none = f.greatest != f.greatest;
  const bool same = no ? none : o.greatest == f.greatest, more = no ? !none : o.greatest > f.greatest;
  if (more || (same && o.number < f.number)) f = o;
}
DEVICE void put(First& f, real v, real at, count number) { join(f, First{v, at, number}); }
DEVICE real value(First f) { return f.greatest; }
"
            }
        }
    }
}
