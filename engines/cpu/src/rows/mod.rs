//! Kernels over groups of elements in rows: the CPU's back end of the kernel compiler.
//!
//! A [`GroupKernel`] folds, computes and writes in passes over groups and their members. Its values are rows of `f32`
//! here, of members of one group or several, or of one member of neighboring groups, whichever lie together in memory:
//! [`nest`] chooses. Each operation is a pointwise [`Function`](hipdnn_cpu_pointwise::Function) on rows, but for two of a
//! softmax: an exponential whose exponent is a difference from the greatest, which is never above zero, and a quotient by the
//! sum of those, which is at least one, so that its inverse is a factor. Some run through a row together: the exponentials of
//! a softmax with their sum, differences with the sum of their squares, and the last steps of a normalization. What is
//! computed once for a group is computed in `f64`, but for exponentials and the like; sums, squares in them and products are
//! kept in it too, but for the first additions of up to eight vectors of such exponentials, and of four squares of differences.
//! Members' values that a later pass needs again are kept while they fit the second cache, or where the last pass writes
//! its results, so that a softmax computes its exponentials once. Passes that are a softmax and no more are one kernel, row by row.
//!
//! The order of every sum follows from the shapes, that of squares of differences also from their range: the same kernel gives the
//! same bits on any number of threads.
//!
//! [`values`] numbers a kernel's values, [`compile`] assigns rows to them, [`execute`] runs blocks of groups on
//! threads.

mod compile;
mod execute;
mod nest;
mod sequence;
#[cfg(test)]
mod tests;
mod values;

use std::sync::Arc;

use hipdnn_cpu_simd::isa::Isa;
use hipdnn_engine_kernel::ir::group::GroupKernel;
use hipdnn_schemas::{Graph, TensorUid};

use crate::nodes::{LibraryKernel, LibraryOp, MAX_INPUTS, MAX_OUTPUTS, Recipe};
use compile::Compiled;
use execute::Kernel;
use nest::Nest;
use values::{Values, View};

/// Extent of the vectorized loop below which rows cost more than they save.
const FEWEST_LANES: usize = 8;

/// Number of elements of a kernel from which on it should keep several threads busy ...
const LARGE: usize = 64 * 1024;

/// ... with at least this number of blocks of groups.
const FEWEST_BLOCKS: usize = 8;

/// A kernel over groups, bound to the layouts of its tensors.
#[derive(Debug)]
struct Rows {
    isa: Isa,
    nest: Nest,
    views: Vec<View>,
    compiled: Compiled,
    /// Number of values that passes leave behind for a group.
    left: usize,
}

impl Recipe for Arc<Rows> {
    fn kernel(&self, threads: usize) -> Box<dyn LibraryKernel> {
        Box::new(Kernel::new(self.clone(), threads))
    }
}

/// Binds a kernel over groups of a graph's tensors.
///
/// # Errors
/// Reason for which the nodes are faster, or more exact, one by one.
pub(crate) fn bind(graph: &Graph, kernel: &GroupKernel) -> Result<LibraryOp, &'static str> {
    bind_for(Isa::best(), FEWEST_LANES, graph, kernel)
}

/// Binds the kernels of a node that there are no others for: rows of any length, wherever they lie.
///
/// # Errors
/// Reason for which there are no rows for them.
pub(crate) fn bind_all(graph: &Graph, name: &'static str, kernels: &[GroupKernel]) -> Result<LibraryOp, &'static str> {
    sequence::bind(Isa::best(), graph, name, kernels)
}

/// Binds a kernel for an instruction set, if that is faster than nodes one by one; its rows have at least this number
/// of lanes.
fn bind_for(isa: Isa, fewest: usize, graph: &Graph, kernel: &GroupKernel) -> Result<LibraryOp, &'static str> {
    let (rows, [inputs, outputs]) = Rows::new(isa, Some(fewest), graph, kernel)?;
    if rows.elements() >= LARGE && rows.blocks() < FEWEST_BLOCKS {
        return Err("its groups are too few for threads to share");
    }
    let some = |uids: Vec<_>| uids.into_iter().map(Some).collect();
    Ok(LibraryOp { name: "rows", inputs: some(inputs), outputs: some(outputs), recipe: Arc::new(Arc::new(rows)) })
}

impl Rows {
    /// Rows of a kernel, with the tensors that it reads and writes. Where `fewest` is given, they are worth their while
    /// and have at least this number of lanes.
    ///
    /// # Errors
    /// Reason for which there are none.
    fn new(
        isa: Isa,
        fewest: Option<usize>,
        graph: &Graph,
        kernel: &GroupKernel,
    ) -> Result<(Rows, [Vec<TensorUid>; 2]), &'static str> {
        let values = Values::new(graph, kernel)?;
        if values.inputs.len() > MAX_INPUTS || values.outputs.len() > MAX_OUTPUTS {
            return Err("it has too many operands");
        }
        let nest = Nest::new(&values, fewest)?;
        let compiled = compile::compile(&values, &nest)?;
        let Values { inputs, outputs, views, left, .. } = values;
        Ok((Rows { isa, nest, views, compiled, left }, [inputs, outputs]))
    }

    /// Number of members of all groups.
    fn elements(&self) -> usize {
        let Nest { groups, inner, members, lanes, .. } = &self.nest;
        groups.iter().chain(members).product::<usize>() * inner * lanes
    }

    /// Number of blocks: sets of neighboring groups that are worked on together.
    fn blocks(&self) -> usize {
        self.nest.groups.iter().product::<usize>() * self.nest.inner.div_ceil(self.compiled.chunk.together)
    }
}
