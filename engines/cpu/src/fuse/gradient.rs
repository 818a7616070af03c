//! The rule "convolution epilogue" for gradients with respect to the input, which are convolutions that enlarge an image: their
//! kernels compute the element-wise nodes behind them on lines of results before these are in memory.
//!
//! A node joins under the conditions of [`super::epilogue`], and its function is the node's own, so that the bits are those of the
//! nodes one by one; normalizations become a scale and a shift ([`super::fold`]).

use hipdnn_schemas::{DataType, Graph, PointwiseMode, TensorUid};
use smallvec::smallvec;

use super::{NodeList, Readers, Remark, Rule, fold, nodes_of};
use crate::geometry::{broadcast, element, layout, lift};
use crate::nodes::epilogue::{Epilogue, Operand};
use crate::nodes::factors::Factors;
use crate::nodes::{LibraryOp, MAX_INPUTS};
use crate::work::{Input, Work};
use hipdnn_cpu_pointwise::{Arg, ComputeType, Function, Parameters, Program, ProgramStep, Storage};

/// Reason for which a node stays apart: memory is not what its pass waits for.
const SLOW: &str = "its function takes longer than a pass through memory: one of its own is faster";

/// Fuses consumers into the node at `index`, if its kernels compute epilogues.
pub(super) fn apply(
    graph: &Graph,
    works: &mut [Option<Work>],
    nodes: &mut [NodeList],
    readers: &Readers<'_>,
    remarks: &mut Vec<Remark>,
    index: usize,
) {
    let Some(Work::Node(node)) = &works[index] else { return };
    if !node.recipe.takes_epilogue() {
        return;
    }
    let mut fused = Fused::new(node);
    let mut taken: NodeList = smallvec![index];
    let before = remarks.len();
    loop {
        let longer = fused.longer(graph, works, readers).and_then(|(next, reader, rule)| {
            let recipe = node.recipe.with_epilogue(next.epilogue.clone(), layout(graph.tensor(next.output)));
            let recipe =
                recipe.ok_or("its kernel does not store the reader's result, or has no room for its values")?;
            let op = LibraryOp { recipe, ..next.op.clone() };
            Ok((Fused { op, ..next }, reader, rule))
        });
        match longer {
            Ok((next, reader, rule)) => {
                fused = next;
                taken.push(reader);
                remarks.push(Remark { rule, nodes: nodes_of(nodes, &taken), refused: None });
            }
            Err(reason) => {
                // What is cheap costs nothing in the pass of its own that the next node is.
                if reason == SLOW && fused.epilogue.factors.is_empty() {
                    remarks.truncate(before);
                    remarks.push(Remark {
                        rule: Rule::Epilogue,
                        nodes: nodes_of(nodes, &[index]),
                        refused: Some(reason),
                    });
                    return;
                }
                let of = nodes_of(nodes, &taken);
                remarks.push(Remark { rule: Rule::Epilogue, nodes: of, refused: Some(reason) });
                break;
            }
        }
    }
    let at = *taken.iter().max().expect("the gradient itself at least");
    taken.iter().for_each(|node| works[*node] = None);
    works[at] = Some(Work::Node(fused.op));
    nodes[at] = nodes_of(nodes, &taken);
}

/// True if a function is computed in less time than its operand is read and its result written in memory.
fn is_fast(function: &Function) -> bool {
    use PointwiseMode::{Abs, Add, Div, Identity, Max, Min, Mul, Neg, ReluFwd, Sub};
    matches!(function.mode(), Abs | Add | Div | Identity | Max | Min | Mul | Neg | ReluFwd | Sub)
}

/// A node with the epilogue that it has so far.
struct Fused {
    op: LibraryOp,
    epilogue: Epilogue,
    output: TensorUid,
    /// Number of the node's own inputs.
    own: usize,
}

impl Fused {
    fn new(node: &LibraryOp) -> Fused {
        let program = Program { compute_type: ComputeType::F32, steps: smallvec![] };
        Fused {
            op: node.clone(),
            epilogue: Epilogue { program, operands: Vec::new(), factors: Vec::new() },
            output: node.outputs[0].expect("a gradient has a result"),
            own: node.inputs.len(),
        }
    }

    /// The node with its next consumer, or the reason why it does not take it in.
    fn longer(
        &self,
        graph: &Graph,
        works: &[Option<Work>],
        readers: &Readers<'_>,
    ) -> Result<(Fused, usize, Rule), &'static str> {
        let current = self.output;
        let between = graph.tensor(current);
        if !between.is_virtual() {
            return Err("its result is not virtual");
        }
        if between.data_type() != DataType::Float {
            return Err("its result is rounded");
        }
        let &[reader] = readers.of(current) else { return Err("its result has not one reader") };
        let mut next = Fused { op: self.op.clone(), epilogue: self.epilogue.clone(), ..*self };
        let unknown = "what reads its result is no function that an epilogue has";
        let rule = match &works[reader] {
            Some(Work::Pointwise(pointwise)) if pointwise.program.compute_type == ComputeType::F32 => {
                next.output = pointwise.output;
                let (base, last) = (self.epilogue.program.steps.len(), self.last());
                for step in &pointwise.program.steps {
                    if !is_fast(&step.function) {
                        return Err(SLOW);
                    }
                    let mut args = step.args.clone();
                    for arg in &mut args {
                        *arg = match *arg {
                            Arg::Step(step) => Arg::Step(base + step),
                            Arg::Input(input) => match pointwise.inputs[input] {
                                Input::Tensor(uid) if uid == current => last,
                                Input::Tensor(uid) => next.operand(graph, uid)?,
                                Input::Index(_) => return Err(unknown),
                            },
                        };
                    }
                    next.epilogue.program.steps.push(ProgramStep { args, ..step.clone() });
                }
                Rule::Epilogue
            }
            _ => {
                let (fold, output) = fold::normalization(graph, works, reader, current).ok_or(unknown)?;
                next.output = output;
                next.normalize(graph, &fold)?;
                Rule::Normalization
            }
        };
        let result = graph.tensor(next.output);
        if result.dims() != between.dims() {
            return Err("the reader's result has other extents");
        }
        if element(result.data_type()).is_none() {
            return Err("the reader's result has a type that convolutions do not write");
        }
        if next.op.inputs.len() > MAX_INPUTS || next.epilogue.operands.len() > MAX_INPUTS {
            return Err("the epilogue has no room for more operands");
        }
        next.op.name = "convolution data gradient, epilogue";
        next.op.outputs = vec![Some(next.output)];
        Ok((next, reader, rule))
    }

    /// The value that the functions so far come to.
    fn last(&self) -> Arg {
        match self.epilogue.program.steps.len() {
            0 => Arg::Input(0),
            steps => Arg::Step(steps - 1),
        }
    }

    /// Adds an operand, a tensor that is broadcast to the result.
    fn operand(&mut self, graph: &Graph, uid: TensorUid) -> Result<Arg, &'static str> {
        let tensor = graph.tensor(uid);
        // A caller may have the result at the place of an operand of element-wise functions, which the gradient reads all over.
        if self.op.inputs[..self.own].contains(&Some(uid)) {
            return Err("the gradient reads its other operand too");
        }
        let storage = Storage::of(tensor.data_type()).ok_or("its other operand has a type that no function reads")?;
        let strides = lift(&broadcast(tensor, graph.tensor(self.output)), 0);
        if strides[4] > 1 {
            return Err("the places of its other operand are no neighbors in memory: a pass of its own is faster");
        }
        let input = self.input(uid);
        self.epilogue.operands.push(Operand::Tensor { input, storage, strides });
        Ok(Arg::Input(self.epilogue.operands.len()))
    }

    /// Position of an input of the epilogue among the node's.
    fn input(&mut self, uid: TensorUid) -> usize {
        self.op.inputs.push(Some(uid));
        self.op.inputs.len() - 1
    }

    /// Adds the scale and the shift of a normalization.
    fn normalize(&mut self, graph: &Graph, fold: &fold::Fold) -> Result<(), &'static str> {
        let tensors = fold.tensors();
        let channels = graph.tensor(self.output).dims()[1];
        let factors = Factors::new(channels, tensors.iter().map(|uid| graph.tensor(*uid)));
        let positions = tensors.iter().map(|uid| self.input(*uid)).collect();
        let number = self.epilogue.factors.len();
        self.epilogue.factors.push((factors, positions));
        for (mode, operand) in
            [(PointwiseMode::Mul, Operand::Scale(number)), (PointwiseMode::Add, Operand::Shift(number))]
        {
            let function = Function::new(mode, &Parameters::default()).ok_or("there is no such function")?;
            self.epilogue.operands.push(operand);
            let args = smallvec![self.last(), Arg::Input(self.epilogue.operands.len())];
            self.epilogue.program.steps.push(ProgramStep { function, args, round: None });
        }
        Ok(())
    }
}
