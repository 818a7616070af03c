//! Legalization of kernels: tensors and indices become memory and strides.

use hipdnn_schemas::{DataType, TensorUid};

use super::dispatch::{Source, element};
use super::{Dispatch, KernelDispatch, Kind, Layout, Legalizer, Number, Stored, Value, View, same_strides, view};
use crate::emit::Element;
use crate::emit::grouped::{self, Access, Bound, Grouped};
use crate::fuse::{Chain, Groups, stays_within};
use crate::ir::group::{AffineExpr, GroupKernel, GroupWork, Input, Operand, Pass, Store};

impl Legalizer<'_> {
    /// Emits the kernels of a work over groups.
    pub(super) fn groups(&mut self, groups: &Groups) {
        for uid in groups.work.outputs() {
            self.place(&groups.work, uid);
        }
        let work = &self.in_parts(&groups.work);
        let locals: Vec<Stored> = work.locals.iter().map(|l| self.packed(&l.dims, l.data_type, false)).collect();
        let numbers: Vec<String> = groups.nodes.iter().map(usize::to_string).collect();
        for (index, kernel) in work.kernels.iter().enumerate() {
            let mut purpose = format!("compute node {} ({}", numbers.join(", "), work.name);
            if work.kernels.len() > 1 {
                purpose += &format!(", kernel {} of {}", index + 1, work.kernels.len());
            }
            let dispatch = Resolution::new(self, work, &locals, kernel).dispatch(kernel, purpose + ")");
            self.legalized.dispatches.push(Dispatch::Kernel(dispatch));
        }
    }

    /// Emits a chain as one kernel, of which every element of the result is a member.
    pub(super) fn chain(&mut self, chain: &Chain) {
        self.place_chain(chain);
        let numbers: Vec<String> = chain.nodes().iter().map(|node| node.node.to_string()).collect();
        let (node, kernels) = (chain.nodes()[0].node, vec![chain.kernel(self.graph)]);
        let work = GroupWork { node, name: "chain", locals: Vec::new(), kernels, partial: DataType::Float };
        let kernel = Resolution::new(self, &work, &[], &work.kernels[0]);
        let dispatch = kernel.dispatch(&work.kernels[0], format!("compute node {}", numbers.join(", ")));
        self.legalized.dispatches.push(Dispatch::Kernel(dispatch));
    }

    /// Allocates a packed temporary.
    fn packed(&mut self, dims: &[usize], data_type: DataType, last: bool) -> Stored {
        let layout = if last { Layout::ChannelsLast } else { Layout::ChannelsFirst };
        let value = self.temporary(dims.iter().product(), data_type);
        Stored { value, view: View { data_type, strides: layout.strides(dims).to_vec(), offset: 0 } }
    }

    /// Allocates a virtual result, packed: channels last if the first image among its work's operands is, else if the
    /// graph has it so.
    fn place(&mut self, work: &GroupWork, uid: TensorUid) {
        let tensor = self.graph.tensor(uid);
        if !tensor.is_virtual() || self.stored.contains_key(&uid) {
            return;
        }
        let lies_last = |dims: &[usize], strides: &[i64]| {
            dims.len() > 2
                && same_strides(dims, strides, &Layout::ChannelsLast.strides(dims))
                && !same_strides(dims, strides, &Layout::ChannelsFirst.strides(dims))
        };
        // What a later kernel of the work reads of an earlier one's results may have no place yet.
        let is_there = |input: &TensorUid| !self.graph.tensor(*input).is_virtual() || self.stored.contains_key(input);
        let inputs = work.inputs();
        let mut images = inputs.iter().filter(|input| is_there(input)).filter_map(|input| match self.kind(*input) {
            Kind::Memory(stored) => Some((self.graph.tensor(*input).dims(), stored.view.strides)),
            Kind::Literal(_) | Kind::Scalar => None,
        });
        let is_image = |dims: &[usize]| dims.len() == tensor.rank() && dims[2..].iter().any(|extent| *extent > 1);
        let last = match images.find(|(dims, _)| tensor.rank() > 2 && is_image(dims)) {
            Some((dims, strides)) => lies_last(dims, &strides),
            None => lies_last(tensor.dims(), &view(tensor).strides),
        };
        let stored = self.packed(tensor.dims(), tensor.data_type(), last);
        self.stored.insert(uid, stored);
    }
}

/// Operands of a kernel while they are resolved to memory.
struct Resolution<'a, 'b> {
    legalizer: &'a mut Legalizer<'b>,
    work: &'a GroupWork,
    locals: &'a [Stored],
    /// Extents of all loops.
    loops: Vec<usize>,
    /// Number of loops that number groups.
    groups: usize,
    reads: Operands,
    writes: Operands,
    scalars: Vec<Number>,
}

/// Tensors that a kernel gets addresses of, in order.
#[derive(Default)]
struct Operands {
    values: Vec<Value>,
    elements: Vec<Element>,
}

impl Operands {
    /// Index of an operand, which is added if it is new.
    fn of(&mut self, stored: &Stored) -> usize {
        let element = element(stored.view.data_type);
        let known = self.values.iter().zip(&self.elements).position(|known| known == (&stored.value, &element));
        known.unwrap_or_else(|| {
            self.values.push(stored.value);
            self.elements.push(element);
            self.values.len() - 1
        })
    }
}

impl<'a, 'b> Resolution<'a, 'b> {
    fn new(
        legalizer: &'a mut Legalizer<'b>,
        work: &'a GroupWork,
        locals: &'a [Stored],
        kernel: &GroupKernel,
    ) -> Resolution<'a, 'b> {
        let loops = [&kernel.groups[..], &kernel.members].concat();
        let (reads, writes) = (Operands::default(), Operands::default());
        Resolution { legalizer, work, locals, loops, groups: kernel.groups.len(), reads, writes, scalars: Vec::new() }
    }

    fn dispatch(mut self, kernel: &GroupKernel, purpose: String) -> KernelDispatch {
        let passes = kernel.passes.iter().map(|pass| self.pass(pass)).collect();
        let Resolution { reads, writes, scalars, .. } = self;
        let (groups, members) = (kernel.groups.clone(), kernel.members.clone());
        let kernel = Grouped { groups, members, reads: reads.elements, writes: writes.elements, passes };
        KernelDispatch { purpose, kernel, reads: reads.values, writes: writes.values, scalars }
    }

    fn pass(&mut self, pass: &Pass) -> grouped::Pass {
        match pass {
            Pass::Reduce { inputs, program, folds } => {
                let loops = self.loops.clone();
                let inputs = self.inputs(inputs, &loops);
                grouped::Pass::Reduce { inputs, program: program.clone(), folds: folds.clone() }
            }
            Pass::PerGroup { inputs, program, keep, stores } => {
                // There is one place along members.
                let mut loops = self.loops.clone();
                loops[self.groups..].fill(1);
                let (inputs, stores) = (self.inputs(inputs, &loops), self.stores(stores));
                grouped::Pass::PerGroup { inputs, program: program.clone(), keep: keep.clone(), stores }
            }
            Pass::PerMember { inputs, program, stores } => {
                let loops = self.loops.clone();
                let (inputs, stores) = (self.inputs(inputs, &loops), self.stores(stores));
                grouped::Pass::PerMember { inputs, program: program.clone(), stores }
            }
        }
    }

    fn inputs(&mut self, inputs: &[Input], loops: &[usize]) -> Vec<grouped::Input> {
        inputs.iter().map(|input| self.input(input, loops)).collect()
    }

    fn input(&mut self, input: &Input, loops: &[usize]) -> grouped::Input {
        match input {
            Input::Element { of: Operand::Tensor(uid), at, pad_value } => {
                let tensor = self.legalizer.graph.tensor(*uid);
                let stored = match self.legalizer.kind(*uid) {
                    Kind::Memory(stored) => stored,
                    kind => {
                        let number = match kind {
                            Kind::Literal(number) => Number::Known(number),
                            _ => Number::Host(*uid, tensor.data_type()),
                        };
                        if at.iter().zip(tensor.dims()).all(|(line, extent)| stays_within(line, loops, *extent)) {
                            return self.scalar(number);
                        }
                        // What is left of it at some places is a tensor.
                        self.tensor_of(*uid, number)
                    }
                };
                let access = access(&stored.view, tensor.dims(), at, loops);
                grouped::Input::Tensor { tensor: self.reads.of(&stored), access, pad_value: *pad_value }
            }
            Input::Element { of: Operand::Local(index), at, pad_value } => {
                let stored = &self.locals[*index];
                let access = access(&stored.view, &self.work.locals[*index].dims, at, loops);
                grouped::Input::Tensor { tensor: self.reads.of(stored), access, pad_value: *pad_value }
            }
            Input::InBounds { dims, at } => {
                let nothing = View { data_type: DataType::Float, strides: vec![0; dims.len()], offset: 0 };
                let access = access(&nothing, dims, at, loops);
                match access.bounds.is_empty() {
                    true => grouped::Input::Literal(1.0),
                    false => grouped::Input::InBounds(access),
                }
            }
            Input::Index(axis) => grouped::Input::Index { axis: *axis },
            Input::Literal(number) => grouped::Input::Literal(*number),
            Input::Number(number) => self.scalar(Number::Known(*number)),
        }
    }

    fn scalar(&mut self, number: Number) -> grouped::Input {
        self.scalars.push(number);
        number.input()
    }

    /// Temporary that a dispatch of its own fills with the number.
    fn tensor_of(&mut self, uid: TensorUid, number: Number) -> Stored {
        let data_type = self.legalizer.graph.tensor(uid).data_type();
        let dims = self.legalizer.graph.tensor(uid).dims().to_vec();
        let stored = self.legalizer.packed(&dims, data_type, false);
        let purpose = format!("copy tensor {uid} for node {}", self.work.node);
        let copy = KernelDispatch::copy(purpose, dims, Source::Number(number), stored.clone());
        self.legalizer.legalized.dispatches.push(Dispatch::Kernel(copy));
        stored
    }

    fn stores(&mut self, stores: &[Store]) -> Vec<grouped::Store> {
        let store = |store: &Store| {
            let stored = match store.to {
                Operand::Tensor(uid) => match self.legalizer.kind(uid) {
                    Kind::Memory(stored) => stored,
                    Kind::Literal(_) | Kind::Scalar => unreachable!("results of nodes are in memory"),
                },
                Operand::Local(index) => self.locals[index].clone(),
            };
            let access = straight(&stored.view, &store.at, self.loops.len());
            grouped::Store { slot: store.slot, tensor: self.writes.of(&stored), access }
        };
        stores.iter().map(store).collect()
    }
}

/// Access of elements at those indices, none of which leaves the tensor.
fn straight(view: &View, at: &[AffineExpr], loops: usize) -> Access {
    let mut access = Access { offset: view.offset, strides: vec![0; loops], bounds: Vec::new() };
    for (line, stride) in at.iter().zip(&view.strides) {
        add(&mut access, line, *stride);
    }
    access
}

fn add(access: &mut Access, line: &AffineExpr, stride: i64) {
    access.offset += line.offset * stride;
    for (along, step) in access.strides.iter_mut().zip(&line.steps) {
        *along += step * stride;
    }
}

/// Access of elements at those indices, with bounds where they may leave the tensor.
pub(super) fn access(view: &View, dims: &[usize], at: &[AffineExpr], loops: &[usize]) -> Access {
    let mut access = Access { offset: view.offset, strides: vec![0; loops.len()], bounds: Vec::new() };
    for ((line, extent), stride) in at.iter().zip(dims).zip(&view.strides) {
        if stays_within(line, loops, *extent) {
            add(&mut access, line, *stride);
        } else {
            access.bounds.push(Bound {
                offset: line.offset,
                steps: line.steps.to_vec(),
                divisor: line.divisor,
                extent: *extent as u64,
                stride: *stride,
            });
        }
    }
    access
}

#[cfg(test)]
mod tests;
