//! One run of a graph: which tensors need memory, that memory between guards, and what must hold afterwards.

use std::collections::HashSet;
use std::ffi::c_void;

use hipdnn_schemas::{Graph, Operation, PointwiseMode, Tensor, TensorUid};

use crate::guarded::{Guarded, Place, Put};
use crate::random::Random;

/// Tensors larger than this are not run.
const MOST_BYTES: usize = 1 << 18;

/// Graphs that take more steps than this are not run.
const MOST_STEPS: usize = 4_000_000;

/// More tensors than this are not run.
const MOST_TENSORS: usize = 24;

/// The memory of the tensors of one graph at a time.
pub(crate) struct Memory {
    slots: Vec<Guarded>,
    workspace: Guarded,
    content: Vec<u8>,
}

/// A graph put into [`Memory`].
pub(crate) struct Prepared<'g> {
    tensors: Vec<(&'g Tensor, Put, bool)>,
    /// Uid and address of each, in the order of the graph.
    pub(crate) pack: Vec<(i64, *mut c_void)>,
    /// The entries of the pack that no engine can do without.
    pub(crate) essential: Vec<usize>,
    workspace: Put,
    /// Null if none is needed.
    pub(crate) workspace_address: *mut c_void,
}

impl Memory {
    pub(crate) fn new() -> Memory {
        let mut random = Random::new(0, 0);
        let floats = std::iter::repeat_with(|| (random.below(2001) as f32 - 1000.0) / 500.0);
        let content = floats.take(MOST_BYTES / 4).flat_map(f32::to_le_bytes).collect();
        Memory {
            slots: (0..MOST_TENSORS).map(|_| Guarded::new(MOST_BYTES)).collect(),
            workspace: Guarded::new(1 << 23),
            content,
        }
    }

    /// Puts the tensors of a graph that a caller supplies, some less aligned than they should be if `misaligned`; `None`
    /// if it is too large to run here.
    pub(crate) fn prepare<'g>(
        &mut self,
        random: &mut Random,
        graph: &'g Graph,
        workspace_bytes: usize,
        misaligned: bool,
    ) -> Option<Prepared<'g>> {
        if workspace_bytes > self.workspace.capacity() || steps(graph)? > MOST_STEPS {
            return None;
        }
        let needed = supplied(graph);
        if needed.len() > MOST_TENSORS || needed.iter().any(|(tensor, _)| tensor.span_bytes() > MOST_BYTES) {
            return None;
        }
        let mut tensors = Vec::new();
        let mut pack = Vec::new();
        for ((tensor, is_output), slot) in needed.into_iter().zip(&mut self.slots) {
            let element = tensor.data_type().bits().map_or(1, |bits| (bits as usize).div_ceil(8));
            let place = match random.below(4) {
                0 => Place::Front,
                1 | 2 if misaligned => Place::Back(element.next_power_of_two()),
                _ => Place::Back(16),
            };
            // What an output held before must not matter; 0xff bytes are a NaN in every type of float.
            let content = if is_output { &[0xff; 64][..] } else { &self.content[..] };
            let put = slot.put(tensor.span_bytes(), place, content);
            tensors.push((tensor, put, is_output));
            pack.push((tensor.uid().0, slot.address(put)));
        }
        let place = if random.once_in(2) { Place::Front } else { Place::Back(16) };
        let workspace = self.workspace.put(workspace_bytes, place, &[0xff; 64]);
        let address = self.workspace.address(workspace);
        let workspace_address = if workspace_bytes == 0 { std::ptr::null_mut() } else { address };
        let essential = essential(graph);
        let essential = (0..pack.len()).filter(|at| essential.contains(&TensorUid(pack[*at].0))).collect();
        Some(Prepared { tensors, pack, essential, workspace, workspace_address })
    }

    /// Checks what holds after any run, successful or not: nothing beside the outputs' elements and the workspace
    /// changed.
    pub(crate) fn check(&mut self, prepared: &Prepared) -> Result<(), String> {
        if !self.workspace.surroundings_untouched(prepared.workspace) {
            return Err("memory beside the workspace was written".into());
        }
        for ((tensor, put, is_output), slot) in prepared.tensors.iter().zip(&mut self.slots) {
            let uid = tensor.uid();
            if !slot.surroundings_untouched(*put) {
                return Err(format!("memory beside tensor {uid} was written"));
            }
            let bytes = slot.content(*put);
            if !is_output {
                if bytes.chunks(self.content.len()).any(|chunk| chunk != &self.content[..chunk.len()]) {
                    return Err(format!("the input, tensor {uid}, was written"));
                }
            } else if let Some(gap) = gaps(tensor).into_iter().find(|byte| bytes[*byte] != 0xff) {
                return Err(format!("byte {gap} of tensor {uid}, which is between its elements, was written"));
            }
        }
        Ok(())
    }
}

/// Tensors of the pack with whether they are written: what is not virtual and has no value, and takes part in what the
/// caller gets to see. Engines leave the rest out.
fn supplied(graph: &Graph) -> Vec<(&Tensor, bool)> {
    let mut wanted = vec![false; graph.nodes().len()];
    for (index, node) in graph.nodes().iter().enumerate().rev() {
        wanted[index] =
            node.operation.outputs().into_iter().any(|uid| {
                !graph.tensor(uid).is_virtual() || graph.consumers(uid).iter().any(|reader| wanted[*reader])
            });
    }
    let mut seen = HashSet::new();
    let mut needed = Vec::new();
    for (node, _) in graph.nodes().iter().zip(wanted).filter(|(_, is_wanted)| *is_wanted) {
        // Of the operand of gen_index only the extents matter.
        let is_read = !matches!(&node.operation, Operation::Pointwise(p) if p.mode == PointwiseMode::GenIndex);
        let inputs = node.operation.inputs().into_iter().filter(|_| is_read);
        for uid in inputs.chain(node.operation.outputs()) {
            let tensor = graph.tensor(uid);
            if seen.insert(uid) && !tensor.is_virtual() && tensor.value().is_none() {
                needed.push((tensor, graph.producer(uid).is_some()));
            }
        }
    }
    needed
}

/// Results, and operands of operations that have no use for fewer: others have some that stand for each other.
fn essential(graph: &Graph) -> HashSet<TensorUid> {
    let mut essential = HashSet::new();
    for node in graph.nodes() {
        essential.extend(node.operation.outputs());
        let operation = &node.operation;
        if matches!(
            operation,
            Operation::ConvolutionFwd(_)
                | Operation::ConvolutionBwd(_)
                | Operation::ConvolutionWrw(_)
                | Operation::Pointwise(_)
                | Operation::Matmul(_)
        ) {
            essential.extend(operation.inputs());
        }
    }
    essential
}

/// About how many multiplications a graph takes; `None` for numbers beyond counting.
fn steps(graph: &Graph) -> Option<usize> {
    let elements = |uid: TensorUid| graph.tensor(uid).elements();
    let mut steps = 0usize;
    for node in graph.nodes() {
        let of_node = match &node.operation {
            Operation::ConvolutionFwd(c) => elements(c.y).checked_mul(elements(c.w) / graph.tensor(c.w).dims()[0])?,
            other => other.outputs().into_iter().chain(other.inputs()).map(elements).max()?,
        };
        steps = steps.checked_add(of_node)?;
        // Intermediates and padding take memory and time of their own.
        for uid in node.operation.inputs().into_iter().chain(node.operation.outputs()) {
            steps = steps.checked_add(elements(uid))?;
        }
    }
    Some(steps)
}

/// The bytes between the elements of a tensor that is not packed.
fn gaps(tensor: &Tensor) -> Vec<usize> {
    let Some(bits) = tensor.data_type().bits().filter(|bits| bits % 8 == 0) else {
        return Vec::new();
    };
    let element = bits as usize / 8;
    if tensor.span() == tensor.elements() {
        return Vec::new();
    }
    let mut is_gap = vec![true; tensor.span_bytes()];
    let mut position = vec![0; tensor.rank()];
    loop {
        let offset: usize = position.iter().zip(tensor.strides()).map(|(p, s)| p * s).sum();
        is_gap[offset * element..(offset + 1) * element].fill(false);
        let Some(axis) = (0..tensor.rank()).rev().find(|axis| position[*axis] + 1 < tensor.dims()[*axis]) else {
            break;
        };
        position[axis] += 1;
        position[axis + 1..].fill(0);
    }
    (0..is_gap.len()).filter(|byte| is_gap[*byte]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hipdnn_schemas::{DataType, GraphBuilder, Pointwise, PointwiseMode, TensorDef};

    /// A ReLU whose output has a gap of one element between its two rows.
    fn gapped() -> Graph {
        let mut graph = GraphBuilder::new("gapped").compute(DataType::Float);
        let x = graph.tensor(TensorDef::new(1, DataType::Float, &[2, 3]));
        let y = graph.tensor(TensorDef::new(2, DataType::Float, &[2, 3]).strided(&[4, 1]));
        graph.pointwise(Pointwise::unary(PointwiseMode::ReluFwd, x, y));
        graph.build().expect("a right graph")
    }

    #[test]
    fn gaps_are_the_bytes_between_elements() {
        let graph = gapped();
        let [x, y] = graph.tensors() else { panic!("two tensors") };
        assert!(gaps(x).is_empty());
        assert_eq!(gaps(y), vec![12, 13, 14, 15]);
    }

    #[test]
    fn what_must_not_be_written_is_noticed() {
        let graph = gapped();
        let mut memory = Memory::new();
        for (byte, of, noticed) in [
            (0, 1, None),
            (11, 1, None),
            (12, 1, Some("byte 12 of tensor 2, which is between its elements, was written")),
            (5, 0, Some("the input, tensor 1, was written")),
        ] {
            let prepared = memory.prepare(&mut Random::new(1, 1), &graph, 0, false).expect("it is small");
            assert_eq!(prepared.pack.iter().map(|(uid, _)| *uid).collect::<Vec<_>>(), [1, 2]);
            assert!(prepared.workspace_address.is_null());
            let (_, put, _) = prepared.tensors[of];
            let place = &mut memory.slots[of].content(put)[byte];
            *place = !*place;
            assert_eq!(memory.check(&prepared).err().as_deref(), noticed, "byte {byte} of tensor {}", of + 1);
        }
    }
}
