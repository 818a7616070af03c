//! Parts of columns: groups that are contiguous in memory, of members that are not, are read in runs of rows, so that a block has
//! many groups. Where that leaves too few blocks for the device, each group is cut into parts. Long groups that are not cut take their
//! statistics by one pass.

use hipdnn_schemas::DataType;

use super::{Kind, Legalizer};
use crate::emit::grouped::ReduceOp;
use crate::ir::group::{GroupKernel, GroupWork, Input, Operand, Pass};
use crate::legalize::groups::access;
use crate::lower::shifted::shift;
use crate::lower::split_reduction::{self, Cut, split_where};

/// Bytes that a thread reads at a time, and a wave of them where rows are long enough.
const VECTOR: usize = 16;
const RUN: usize = 32 * VECTOR;

/// Threads of a block.
const THREADS: usize = 256;

/// Minimum number of members for each thread of a part.
const PER_THREAD: usize = 16;

/// Blocks for each compute unit that keep it busy.
const BLOCKS: usize = 4;

/// Number of members from which on a group has large blocks, whose waves wait for each other at every reduction.
const LONG: usize = 1 << 14;

/// Bytes that are read in the time of a further launch.
const LAUNCH: usize = 2 << 20;

impl Legalizer<'_> {
    /// The work with its groups in parts, where that is faster, and with means and sums of differences from them by one pass over
    /// long groups of 16-bit values. That loses more than a rounding of these only if a group's first member is far from all others.
    pub(super) fn in_parts(&self, work: &GroupWork) -> GroupWork {
        let mut parts = split_where(work.clone(), &|kernel| {
            self.cut_of_columns(work, kernel).or_else(|| {
                let parts = split_reduction::parts(kernel, self.options.compute_units)?;
                Some(Cut { parts, sums: work.partial, is_shifted: false })
            })
        });
        let is_long = |kernel: &GroupKernel| kernel.members.iter().product::<usize>() >= LONG;
        for kernel in parts.kernels.iter_mut().filter(|kernel| is_long(kernel) && self.reduces_narrow(kernel)) {
            if let Some(shifted) = shift(kernel) {
                *kernel = shifted;
            }
        }
        parts
    }

    /// True if all elements that a kernel reduces have 16 bits.
    fn reduces_narrow(&self, kernel: &GroupKernel) -> bool {
        let reduced = kernel.passes.iter().filter(|pass| matches!(pass, Pass::Reduce { .. })).flat_map(Pass::inputs);
        let mut elements = reduced.filter_map(|input| match input {
            Input::Element { of, .. } => Some(*of),
            _ => None,
        });
        elements.all(|of| match of {
            Operand::Tensor(uid) => match self.kind(uid) {
                Kind::Memory(stored) => matches!(stored.view.data_type, DataType::Half | DataType::BFloat16),
                Kind::Literal(_) | Kind::Scalar => true,
            },
            // What parts come to.
            Operand::Local(_) => false,
        })
    }

    /// Parts of each group of a kernel, if groups are columns that are to be cut.
    fn cut_of_columns(&self, work: &GroupWork, kernel: &GroupKernel) -> Option<Cut> {
        let columns = self.columns(work, kernel)?;
        let (groups, members) = (kernel.groups.iter().product::<usize>(), kernel.members.iter().product::<usize>());
        let bytes = groups.checked_mul(members)?.checked_mul(columns.bytes)?;
        // Threads of a run side by side; the others of a block take other rows.
        let along = (columns.contiguous * columns.bytes).clamp(RUN / 4, RUN) / VECTOR;
        let rows = THREADS / along.next_power_of_two();
        let blocks = (groups * columns.bytes).div_ceil(along * VECTOR);
        let parts = (BLOCKS * self.options.compute_units / blocks.max(1)).min(members / (rows * PER_THREAD));
        let cut = Cut { parts, sums: DataType::Float, is_shifted: columns.bytes == 2 };
        (parts >= 2 && bytes >= LAUNCH).then_some(cut)
    }

    /// Layout of the elements that a kernel reduces, if groups are columns of them.
    fn columns(&self, work: &GroupWork, kernel: &GroupKernel) -> Option<Columns> {
        let split = kernel.groups.len();
        let loops = [&kernel.groups[..], &kernel.members].concat();
        let mut found: Option<Columns> = None;
        let stored = |to: Operand| match to {
            Operand::Tensor(uid) => self.data_type(uid),
            Operand::Local(index) => work.locals[index].data_type,
        };
        for pass in &kernel.passes {
            // Partial results are kept in single precision.
            if pass.stores().iter().any(|store| stored(store.to) == DataType::Double) {
                return None;
            }
            if let Pass::Reduce { folds, .. } = pass
                && folds.iter().any(|fold| matches!(fold.mode, ReduceOp::Product | ReduceOp::ArgMax { .. }))
            {
                return None;
            }
            for input in pass.inputs() {
                let Input::Element { of, at, .. } = input else { continue };
                let (stored, dims) = match of {
                    Operand::Tensor(uid) => match self.kind(*uid) {
                        Kind::Memory(stored) => (stored, self.graph.tensor(*uid).dims()),
                        Kind::Literal(_) | Kind::Scalar => continue,
                    },
                    Operand::Local(index) if work.locals[*index].data_type == DataType::Float => continue,
                    Operand::Local(_) => return None,
                };
                let bytes = match stored.view.data_type {
                    DataType::Half | DataType::BFloat16 => 2,
                    DataType::Float => 4,
                    _ => return None,
                };
                let access = access(&stored.view, dims, at, &loops);
                let along = |l: &usize| loops[*l] > 1 && access.strides[*l] != 0;
                if !access.bounds.is_empty() {
                    return None;
                }
                let is_column = (0..split).find(|l| along(l) && access.strides[*l] == 1);
                let is_row = (split..loops.len()).filter(along).any(|l| access.strides[l].unsigned_abs() == 1);
                let is_whole = (split..loops.len()).all(|l| loops[l] == 1 || access.strides[l] != 0);
                if let (Pass::Reduce { .. }, Some(group), false, true) = (pass, is_column, is_row, is_whole) {
                    found = found.or(Some(Columns { contiguous: loops[group], bytes }));
                } else if is_row {
                    return None;
                }
            }
        }
        found
    }
}

/// Columns of a kernel.
struct Columns {
    /// Number of groups that lie side by side.
    contiguous: usize,
    /// Size of an element.
    bytes: usize,
}
