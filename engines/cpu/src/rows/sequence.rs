//! Kernels of one node in rows, one after the other.

use std::sync::Arc;

use hipdnn_cpu_simd::isa::Isa;
use hipdnn_cpu_threads::Pool;
use hipdnn_engine_kernel::ir::group::GroupKernel;
use hipdnn_schemas::{Graph, TensorUid};

use super::Rows;
use super::execute::Kernel;
use crate::nodes::{LibraryKernel, LibraryOp, MAX_INPUTS, MAX_OUTPUTS, Recipe};

/// Kernels with the places of their operands among the node's.
#[derive(Debug)]
struct Sequence {
    parts: Vec<Part<Arc<Rows>>>,
}

#[derive(Debug)]
struct Part<K> {
    kernel: K,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

/// Binds the kernels of a node.
///
/// # Errors
/// Reason for which there are no rows for one of them.
pub(super) fn bind(
    isa: Isa,
    graph: &Graph,
    name: &'static str,
    kernels: &[GroupKernel],
) -> Result<LibraryOp, &'static str> {
    let (mut read, mut written): (Vec<TensorUid>, Vec<TensorUid>) = (Vec::new(), Vec::new());
    let mut parts = Vec::with_capacity(kernels.len());
    for kernel in kernels {
        let (rows, [inputs, outputs]) = Rows::new(isa, None, graph, kernel)?;
        if inputs.iter().any(|uid| written.contains(uid)) {
            return Err("a kernel reads what another one writes");
        }
        let (inputs, outputs) = (places(&mut read, &inputs), places(&mut written, &outputs));
        parts.push(Part { kernel: Arc::new(rows), inputs, outputs });
    }
    if read.len() > MAX_INPUTS || written.len() > MAX_OUTPUTS {
        return Err("it has too many operands");
    }
    let some = |uids: Vec<_>| uids.into_iter().map(Some).collect();
    Ok(LibraryOp { name, inputs: some(read), outputs: some(written), recipe: Arc::new(Sequence { parts }) })
}

/// Places of tensors in a list, to which those that it lacks are added.
fn places(list: &mut Vec<TensorUid>, uids: &[TensorUid]) -> Vec<usize> {
    let mut place = |uid: &TensorUid| {
        list.iter().position(|known| known == uid).unwrap_or_else(|| {
            list.push(*uid);
            list.len() - 1
        })
    };
    uids.iter().map(&mut place).collect()
}

impl Recipe for Sequence {
    fn kernel(&self, threads: usize) -> Box<dyn LibraryKernel> {
        let parts = self.parts.iter().map(|part| Part {
            kernel: Kernel::new(part.kernel.clone(), threads),
            inputs: part.inputs.clone(),
            outputs: part.outputs.clone(),
        });
        Box::new(Kernels { parts: parts.collect() })
    }
}

/// The kernels for a number of threads.
#[derive(Debug)]
struct Kernels {
    parts: Vec<Part<Kernel>>,
}

impl LibraryKernel for Kernels {
    fn scratch_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.kernel.scratch_bytes()).max().unwrap_or(0)
    }

    unsafe fn run(&self, pool: &Pool, inputs: &[*const u8], outputs: &[*mut u8], scratch: *mut u8) {
        for part in &self.parts {
            let (mut read, mut written) = ([std::ptr::null(); MAX_INPUTS], [std::ptr::null_mut(); MAX_OUTPUTS]);
            for (to, place) in read.iter_mut().zip(&part.inputs) {
                *to = inputs[*place];
            }
            for (to, place) in written.iter_mut().zip(&part.outputs) {
                *to = outputs[*place];
            }
            // SAFETY: these are operands of the node, in the order of this kernel, whose scratch memory is no larger
            // than the node's; the one before it has ended.
            unsafe {
                part.kernel.run(pool, &read[..part.inputs.len()], &written[..part.outputs.len()], scratch);
            }
        }
    }
}
