//! SSA form of a kernel over groups: programs whose operands are values, not numbered slots.

use hipdnn_schemas::{DataType, Graph, PointwiseMode, TensorUid};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::places::{along, index, same_places, stays_within};
use super::vertical::fits;
use super::{Chain, is_truth};
use crate::emit::grouped::{Fold, ReduceOp};
use crate::emit::{Element, Op};
use crate::ir::group::{AffineExpr, GroupKernel, IndexMap, Input, Operand, Pass, Store};

/// Kernel in SSA form: parts in order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KernelBlocks {
    pub(super) groups: Vec<usize>,
    pub(super) members: Vec<usize>,
    pub(super) parts: Vec<Block>,
}

/// Pass in SSA form. Slots of operations, folds and stores are indices in the list of values.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Block {
    pub(super) values: Vec<Value>,
    pub(super) kind: Kind,
}

/// Definition of a value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// Result of a part before: the index of the part, and of the value among those that it leaves behind.
    Carried(usize, usize),
    Input(Input),
    /// Operation on values before it.
    Op(Op),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Reduce(Vec<Fold>),
    PerGroup { keep: Vec<usize>, stores: Vec<Store> },
    PerMember(Vec<Store>),
}

impl Block {
    fn new(kind: Kind) -> Block {
        Block { values: Vec::new(), kind }
    }

    /// Index of a value, which is added if it is new.
    fn add(&mut self, value: Value) -> usize {
        let known = self.values.iter().position(|known| *known == value);
        known.unwrap_or_else(|| {
            self.values.push(value);
            self.values.len() - 1
        })
    }

    fn input(&mut self, input: Input) -> usize {
        self.add(Value::Input(input))
    }

    fn is_once(&self) -> bool {
        matches!(self.kind, Kind::PerGroup { .. })
    }

    pub(super) fn stores(&self) -> &[Store] {
        match &self.kind {
            Kind::Reduce(_) => &[],
            Kind::PerGroup { stores, .. } | Kind::PerMember(stores) => stores,
        }
    }

    fn stores_mut(&mut self) -> Option<&mut Vec<Store>> {
        match &mut self.kind {
            Kind::Reduce(_) => None,
            Kind::PerGroup { stores, .. } | Kind::PerMember(stores) => Some(stores),
        }
    }

    /// Elements that it reads.
    pub(super) fn elements(&self) -> impl Iterator<Item = (Operand, &IndexMap)> {
        self.values.iter().filter_map(|value| match value {
            Value::Input(Input::Element { of, at, .. }) => Some((*of, at)),
            _ => None,
        })
    }

    /// Liveness of values: true for those that the roots depend on.
    fn live(&self, roots: impl IntoIterator<Item = usize>) -> Vec<bool> {
        let mut live = vec![false; self.values.len()];
        roots.into_iter().for_each(|root| live[root] = true);
        for place in (0..self.values.len()).rev() {
            if let (true, Value::Op(op)) = (live[place], &self.values[place]) {
                op.operands().iter().for_each(|operand| live[*operand] = true);
            }
        }
        live
    }

    /// Copies the roots and their dependencies into another part; returns the new index of each value.
    fn copy_into(
        &self,
        other: &mut Block,
        roots: impl IntoIterator<Item = usize>,
        mut left: impl FnMut(&mut Block, usize, usize) -> usize,
    ) -> Vec<usize> {
        let live = self.live(roots);
        let mut places = vec![usize::MAX; self.values.len()];
        for (place, value) in self.values.iter().enumerate().filter(|(place, _)| live[*place]) {
            places[place] = match value {
                Value::Carried(part, value) => left(other, *part, *value),
                Value::Input(input) => other.input(input.clone()),
                Value::Op(op) => other.add(Value::Op(op.relocated(|operand| places[operand]))),
            };
        }
        places
    }
}

fn moved_fold(fold: &Fold, slot: impl Fn(usize) -> usize) -> Fold {
    let mode = match fold.mode {
        ReduceOp::ArgMax { at } => ReduceOp::ArgMax { at: slot(at) },
        ref other => other.clone(),
    };
    Fold { mode, slot: slot(fold.slot) }
}

fn moved_stores(stores: &[Store], slot: impl Fn(usize) -> usize) -> Vec<Store> {
    stores.iter().map(|store| Store { slot: slot(store.slot), ..store.clone() }).collect()
}

impl KernelBlocks {
    pub(super) fn new(groups: &[usize], members: &[usize]) -> KernelBlocks {
        KernelBlocks { groups: groups.to_vec(), members: members.to_vec(), parts: Vec::new() }
    }

    /// SSA form of a kernel.
    pub(super) fn of(kernel: &GroupKernel) -> KernelBlocks {
        let mut draft = KernelBlocks::new(&kernel.groups, &kernel.members);
        let whole = draft.append_with(kernel, 0, |_, part, input| Some(part.input(input.clone())));
        whole.expect("inputs stay what they are");
        draft
    }

    /// SSA form of a chain by itself: one group, of which every element of the result is a member.
    pub(super) fn of_chain(graph: &Graph, chain: &Chain) -> KernelBlocks {
        let dims = graph.tensor(chain.output()).dims();
        let at = (0..dims.len()).map(|axis| AffineExpr::along(dims.len(), axis)).collect();
        let mut blocks = KernelBlocks::new(&[], dims);
        blocks.append_chain(graph, chain, &at, false).expect("operands are in memory, and indices are loops");
        blocks
    }

    pub(super) fn loops(&self) -> Vec<usize> {
        [&self.groups[..], &self.members].concat()
    }

    /// Extents of the loops of a part: those of the members are 1 where it runs once.
    fn loops_of(&self, once: bool) -> Vec<usize> {
        let mut loops = self.loops();
        if once {
            loops[self.groups.len()..].fill(1);
        }
        loops
    }

    /// Appends the passes of a kernel over the same groups; results of earlier parts are forwarded instead of being
    /// read from memory. `None` if that is not possible.
    pub(super) fn append(&mut self, graph: &Graph, kernel: &GroupKernel, locals: usize) -> Option<()> {
        self.append_with(kernel, locals, |draft, part, input| match input {
            Input::Element { of: Operand::Tensor(uid), at, pad_value } => {
                draft.fetch(graph, part, *uid, at, *pad_value)
            }
            other => Some(part.input(other.clone())),
        })
    }

    /// Appends the passes of a kernel, with `locals` added to the numbers of its locals.
    fn append_with(
        &mut self,
        kernel: &GroupKernel,
        locals: usize,
        mut input: impl FnMut(&mut KernelBlocks, &mut Block, &Input) -> Option<usize>,
    ) -> Option<()> {
        let operand = |of: Operand| match of {
            Operand::Local(index) => Operand::Local(index + locals),
            tensor => tensor,
        };
        let mut left: Vec<Value> = Vec::new();
        for pass in &kernel.passes {
            let kind = match pass {
                Pass::Reduce { .. } => Kind::Reduce(Vec::new()),
                Pass::PerGroup { .. } => Kind::PerGroup { keep: Vec::new(), stores: Vec::new() },
                Pass::PerMember { .. } => Kind::PerMember(Vec::new()),
            };
            let mut part = Block::new(kind);
            let mut slots: Vec<usize> = left.iter().map(|value| part.add(value.clone())).collect();
            for from in pass.inputs() {
                let from = match from {
                    Input::Element { of, at, pad_value } => {
                        &Input::Element { of: operand(*of), at: at.clone(), pad_value: *pad_value }
                    }
                    other => other,
                };
                slots.push(input(self, &mut part, from)?);
            }
            for op in pass.program() {
                slots.push(part.add(Value::Op(op.relocated(|slot| slots[slot]))));
            }
            let stores = |stores: &[Store]| {
                let stores = moved_stores(stores, |slot| slots[slot]).into_iter();
                stores.map(|store| Store { to: operand(store.to), ..store }).collect::<Vec<Store>>()
            };
            part.kind = match pass {
                Pass::Reduce { folds, .. } => {
                    Kind::Reduce(folds.iter().map(|f| moved_fold(f, |slot| slots[slot])).collect())
                }
                Pass::PerGroup { keep, stores: s, .. } => {
                    Kind::PerGroup { keep: keep.iter().map(|slot| slots[*slot]).collect(), stores: stores(s) }
                }
                Pass::PerMember { stores: s, .. } => Kind::PerMember(stores(s)),
            };
            left.extend((0..pass.leaves()).map(|value| Value::Carried(self.parts.len(), value)));
            self.parts.push(part);
        }
        Some(())
    }

    /// Appends a part that computes a chain's result at these indices, once for each group or for each member. `None`
    /// if an operand that this kernel computes is not available there.
    pub(super) fn append_chain(&mut self, graph: &Graph, chain: &Chain, at: &IndexMap, once: bool) -> Option<()> {
        let kind =
            if once { Kind::PerGroup { keep: Vec::new(), stores: Vec::new() } } else { Kind::PerMember(Vec::new()) };
        let mut part = Block::new(kind);
        let mut results: SmallVec<[(TensorUid, usize); 4]> = SmallVec::new();
        for node in chain.nodes() {
            let mut slots = Vec::new();
            for argument in &node.inputs {
                slots.push(match results.iter().find(|(uid, _)| *uid == argument.tensor) {
                    Some((_, slot)) => *slot,
                    None => {
                        let at = along(argument, graph.tensor(argument.tensor).dims(), at);
                        self.fetch(graph, &mut part, argument.tensor, &at, 0.0)?
                    }
                });
            }
            if let Some(axis) = node.index {
                slots.push(part.input(index(&at[axis], &self.loops_of(once))?));
            }
            for op in &node.program {
                slots.push(part.add(Value::Op(op.relocated(|slot| slots[slot]))));
            }
            results.push((node.output, *slots.last().expect("a formula starts from something")));
        }
        let slot = results.last().expect("a chain has a node").1;
        let store = Store { slot, to: Operand::Tensor(chain.output()), at: at.clone() };
        part.stores_mut().expect("a chain is stored").push(store);
        self.parts.push(part);
        Some(())
    }

    /// Store of a tensor, and the index of its part.
    pub(super) fn store_of(&self, uid: TensorUid) -> Option<(usize, &Store)> {
        let parts = self.parts.iter().enumerate();
        let stores = parts.flat_map(|(place, part)| part.stores().iter().map(move |store| (place, store)));
        stores.into_iter().find(|(_, store)| store.to == Operand::Tensor(uid))
    }

    /// Value of an element in a later part: forwarded from this kernel's results, else read from memory. `None` if it
    /// is not available there.
    fn fetch(
        &mut self,
        graph: &Graph,
        part: &mut Block,
        uid: TensorUid,
        at: &IndexMap,
        pad_value: f64,
    ) -> Option<usize> {
        let Some((from, store)) = self.store_of(uid) else {
            return Some(part.input(Input::Element { of: Operand::Tensor(uid), at: at.clone(), pad_value }));
        };
        let loops = self.loops_of(part.is_once());
        let (slot, stored_at) = (store.slot, store.at.clone());
        if !same_places(&stored_at, at, &loops) {
            return None;
        }
        let value = if let Kind::PerGroup { keep, .. } = &mut self.parts[from].kind {
            let known = keep.iter().position(|kept| *kept == slot);
            let value = known.unwrap_or_else(|| {
                keep.push(slot);
                keep.len() - 1
            });
            part.add(Value::Carried(from, value))
        } else if part.is_once() {
            return None;
        } else {
            let left = |part: &mut Block, from, value| part.add(Value::Carried(from, value));
            self.parts[from].copy_into(part, [slot], left)[slot]
        };
        let tensor = graph.tensor(uid);
        let value = match tensor.data_type() {
            DataType::Float | DataType::Half | DataType::BFloat16 if tensor.is_virtual() => value,
            DataType::Boolean if matches!(&part.values[value], Value::Op(op) if is_truth(op)) => value,
            // What it is when it is read from memory.
            DataType::Float | DataType::Half | DataType::BFloat16 | DataType::Boolean => {
                let to = Element::of(tensor.data_type())?;
                part.add(Value::Op(Op::Round { to, operand: value }))
            }
            _ => return None,
        };
        if at.iter().zip(tensor.dims()).all(|(line, extent)| stays_within(line, &loops, *extent)) {
            return Some(value);
        }
        let inside = part.input(Input::InBounds { dims: tensor.dims().to_vec(), at: at.clone() });
        let pad_value = part.input(Input::Literal(pad_value));
        Some(part.add(Value::Op(Op::pointwise(PointwiseMode::BinarySelect, &[value, pad_value, inside]))))
    }

    /// True if the kernel is within the limits even with its dead values. [`KernelBlocks::finish`] removes those, and adds none.
    pub(super) fn is_small(&self) -> bool {
        let values = self.parts.iter().flat_map(|part| &part.values);
        let inputs =
            values.clone().filter_map(|value| if let Value::Input(input) = value { Some(input) } else { None });
        let operations = values.filter_map(|value| if let Value::Op(op) = value { Some(op) } else { None });
        fits(inputs, operations, self.parts.iter().map(|part| part.stores().len()).sum())
    }

    /// Converts back to a kernel without dead values, of the stores those that are seen; `None` if nothing is left.
    pub(super) fn finish(&self, is_seen: impl Fn(Operand) -> bool) -> Option<GroupKernel> {
        let needed = self.without_dead(is_seen).joined();
        let mut left: FxHashMap<(usize, usize), usize> = FxHashMap::default();
        let mut passes = Vec::new();
        for (place, part) in needed.parts.iter().enumerate() {
            passes.push(part.pass(&left));
            for value in 0..passes.last().map_or(0, Pass::leaves) {
                left.insert((place, value), left.len());
            }
        }
        (!passes.is_empty()).then(|| GroupKernel { groups: self.groups.clone(), members: self.members.clone(), passes })
    }

    /// Removes dead parts, stores, folds and kept values.
    fn without_dead(&self, is_seen: impl Fn(Operand) -> bool) -> KernelBlocks {
        let seen = |stores: &[Store]| stores.iter().filter(|store| is_seen(store.to)).cloned().collect::<Vec<_>>();
        let mut wanted: FxHashSet<(usize, usize)> = FxHashSet::default();
        let mut kept: Vec<(usize, Kind)> = Vec::new();
        // For each value that was left behind its new place among those of its part.
        let mut places: FxHashMap<(usize, usize), usize> = FxHashMap::default();
        for (number, part) in self.parts.iter().enumerate().rev() {
            let mut count = 0;
            let mut keeps = |value: usize| {
                let is_wanted = wanted.contains(&(number, value));
                if is_wanted {
                    places.insert((number, value), count);
                    count += 1;
                }
                is_wanted
            };
            let kind = match &part.kind {
                Kind::PerMember(stores) => Kind::PerMember(seen(stores)),
                Kind::PerGroup { keep, stores } => {
                    let keep = keep.iter().enumerate().filter(|(value, _)| keeps(*value)).map(|(_, slot)| *slot);
                    Kind::PerGroup { keep: keep.collect(), stores: seen(stores) }
                }
                Kind::Reduce(folds) => {
                    let mut next = 0;
                    let is_wanted = |fold: &&Fold| {
                        let values = next..next + fold.mode.leaves();
                        next = values.end;
                        let is_wanted = values.clone().any(|value| wanted.contains(&(number, value)));
                        if is_wanted {
                            for value in values {
                                places.insert((number, value), count);
                                count += 1;
                            }
                        }
                        is_wanted
                    };
                    Kind::Reduce(folds.iter().filter(is_wanted).cloned().collect())
                }
            };
            let roots = kind.roots();
            if roots.is_empty() {
                continue;
            }
            let live = part.live(roots);
            let needs = part.values.iter().zip(live).filter_map(|(value, live)| match value {
                Value::Carried(from, value) if live => Some((*from, *value)),
                _ => None,
            });
            wanted.extend(needs);
            kept.push((number, kind));
        }
        kept.reverse();
        let numbers: FxHashMap<usize, usize> = kept.iter().enumerate().map(|(new, (old, _))| (*old, new)).collect();
        let parts = kept.into_iter().map(|(number, kind)| {
            let mut tidy = Block::new(Kind::PerMember(Vec::new()));
            let moved = self.parts[number].copy_into(&mut tidy, kind.roots(), |tidy, from, value| {
                tidy.add(Value::Carried(numbers[&from], places[&(from, value)]))
            });
            tidy.kind = kind.moved(|slot| moved[slot]);
            tidy
        });
        KernelBlocks { groups: self.groups.clone(), members: self.members.clone(), parts: parts.collect() }
    }

    /// Merges consecutive parts that run once, and consecutive parts that run for each member.
    fn joined(self) -> KernelBlocks {
        let mut parts: Vec<Block> = Vec::new();
        // Where each value is that was left behind.
        let mut places: FxHashMap<(usize, usize), (usize, usize)> = FxHashMap::default();
        for (number, part) in self.parts.iter().enumerate() {
            let joins = match (parts.last().map(|last| &last.kind), &part.kind) {
                (Some(Kind::PerMember(_)), Kind::PerMember(_))
                | (Some(Kind::PerGroup { .. }), Kind::PerGroup { .. }) => parts.pop(),
                _ => None,
            };
            let target = parts.len();
            let mut whole = joins.unwrap_or_else(|| match &part.kind {
                Kind::Reduce(_) => Block::new(Kind::Reduce(Vec::new())),
                Kind::PerGroup { .. } => Block::new(Kind::PerGroup { keep: Vec::new(), stores: Vec::new() }),
                Kind::PerMember(_) => Block::new(Kind::PerMember(Vec::new())),
            });
            let moved = part.copy_into(&mut whole, part.kind.roots(), |whole, from, value| {
                let (from, value) = places[&(from, value)];
                match &whole.kind {
                    Kind::PerGroup { keep, .. } if from == target => keep[value],
                    _ => whole.add(Value::Carried(from, value)),
                }
            });
            let before = whole.kind.leaves();
            whole.kind.extend(part.kind.moved(|slot| moved[slot]));
            for value in 0..part.kind.leaves() {
                places.insert((number, value), (target, before + value));
            }
            parts.push(whole);
        }
        KernelBlocks { parts, ..self }
    }
}

impl Kind {
    fn moved(&self, slot: impl Fn(usize) -> usize) -> Kind {
        match self {
            Kind::Reduce(folds) => Kind::Reduce(folds.iter().map(|fold| moved_fold(fold, &slot)).collect()),
            Kind::PerGroup { keep, stores } => Kind::PerGroup {
                keep: keep.iter().map(|kept| slot(*kept)).collect(),
                stores: moved_stores(stores, slot),
            },
            Kind::PerMember(stores) => Kind::PerMember(moved_stores(stores, slot)),
        }
    }

    fn leaves(&self) -> usize {
        match self {
            Kind::Reduce(folds) => folds.iter().map(|fold| fold.mode.leaves()).sum(),
            Kind::PerGroup { keep, .. } => keep.len(),
            Kind::PerMember(_) => 0,
        }
    }

    /// Appends the folds, stores and kept values of another part of the kind.
    fn extend(&mut self, other: Kind) {
        match (self, other) {
            (Kind::Reduce(folds), Kind::Reduce(others)) => folds.extend(others),
            (Kind::PerGroup { keep, stores }, Kind::PerGroup { keep: more_keep, stores: more }) => {
                keep.extend(more_keep);
                stores.extend(more);
            }
            (Kind::PerMember(stores), Kind::PerMember(more)) => stores.extend(more),
            _ => unreachable!("parts of one kind are joined"),
        }
    }

    /// Roots of liveness: values that are folded, kept or stored.
    fn roots(&self) -> SmallVec<[usize; 4]> {
        match self {
            Kind::Reduce(folds) => {
                let slots = folds.iter().flat_map(|fold| match fold.mode {
                    ReduceOp::ArgMax { at } => [Some(fold.slot), Some(at)],
                    _ => [Some(fold.slot), None],
                });
                slots.flatten().collect()
            }
            Kind::PerGroup { keep, stores } => {
                keep.iter().copied().chain(stores.iter().map(|store| store.slot)).collect()
            }
            Kind::PerMember(stores) => stores.iter().map(|store| store.slot).collect(),
        }
    }
}

impl Block {
    /// Converts back to a pass; `left` has the slots of the values that earlier parts leave behind, which come first.
    fn pass(&self, left: &FxHashMap<(usize, usize), usize>) -> Pass {
        let inputs: Vec<Input> = self
            .values
            .iter()
            .filter_map(|value| match value {
                Value::Input(input) => Some(input.clone()),
                _ => None,
            })
            .collect();
        let (mut next_input, mut next_op) = (left.len(), left.len() + inputs.len());
        let mut slots = Vec::with_capacity(self.values.len());
        let mut program = Vec::new();
        for value in &self.values {
            let place = match value {
                Value::Carried(part, value) => left[&(*part, *value)],
                Value::Input(_) => {
                    next_input += 1;
                    next_input - 1
                }
                Value::Op(op) => {
                    program.push(op.relocated(|operand| slots[operand]));
                    next_op += 1;
                    next_op - 1
                }
            };
            slots.push(place);
        }
        match self.kind.moved(|slot| slots[slot]) {
            Kind::Reduce(folds) => Pass::Reduce { inputs, program, folds },
            Kind::PerGroup { keep, stores } => Pass::PerGroup { inputs, program, keep, stores },
            Kind::PerMember(stores) => Pass::PerMember { inputs, program, stores },
        }
    }
}
