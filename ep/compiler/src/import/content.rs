//! Inputs whose content determines the program: axes, shapes, pads and the like that only a run knows.
//!
//! Programs are built for contents as they are built for extents. A node is claimed on such an input only if the extents of
//! its outputs are declared, so that they are the same whatever the content, and if every valid content can be imported.

use std::collections::HashMap;

use hipdnn_schemas::DataType;

use super::fold::Folded;
use super::{Bound, Importer, data_type, is_whole};
use crate::model::{Model, Node, Target, ValueIndex};

/// Most elements of an input whose content decides.
const MOST_ELEMENTS: i64 = 64;

/// Largest extent that is turned round, or sliced at places that are not known.
const MOST_SLICED: i64 = 64;

/// The inputs of a node whose content decides.
fn places(node: &Node) -> &'static [usize] {
    if !node.domain.is_empty() {
        return &[];
    }
    match node.op_type.as_str() {
        "Expand" | "ReduceL1" | "ReduceL2" | "ReduceLogSum" | "ReduceLogSumExp" | "ReduceMax" | "ReduceMean"
        | "ReduceMin" | "ReduceProd" | "ReduceSum" | "ReduceSumSquare" | "Reshape" | "Split" | "Squeeze" | "Tile"
        | "Trilu" | "Unsqueeze" => &[1],
        "Pad" => &[1, 2, 3],
        "Slice" => &[1, 2, 3, 4],
        _ => &[],
    }
}

/// True if a value can decide: a small tensor that no node of the model writes.
fn can_decide(model: &Model, written: &HashMap<ValueIndex, ()>, value: ValueIndex) -> bool {
    let declared = &model.values[value];
    let known = declared.known_dims().is_some_and(|dims| dims.iter().product::<i64>() <= MOST_ELEMENTS);
    let numbers = declared.element.and_then(|element| data_type(element).ok());
    known && declared.constant.is_none() && !written.contains_key(&value) && numbers.is_some()
}

/// The inputs of a model whose content decides: none in a GPU's memory, where a look would wait for all that was enqueued.
pub fn deciding(model: &Model) -> Vec<ValueIndex> {
    if model.target == Target::Gpu {
        return Vec::new();
    }
    let written: HashMap<ValueIndex, ()> =
        model.nodes.iter().flat_map(|node| node.outputs.iter().flatten().map(|value| (*value, ()))).collect();
    let mut found: Vec<ValueIndex> = Vec::new();
    for node in &model.nodes {
        for place in places(node) {
            if let Some(Some(value)) = node.inputs.get(*place)
                && can_decide(model, &written, *value)
                && !found.contains(value)
            {
                found.push(*value);
            }
        }
    }
    found
}

impl Importer<'_> {
    /// Binds a value whose content is known.
    pub fn bind_content(&mut self, value: ValueIndex, content: &Folded) {
        self.bound.insert(value, Bound::Folded(content.clone()));
    }

    /// Assumes contents for the inputs of a node that decide, so that its outputs have the extents that are declared; says
    /// what was assumed.
    pub fn assume_contents(&mut self, node: usize, deciding: &[ValueIndex]) -> Vec<(ValueIndex, Folded)> {
        self.current = node;
        let model = self.model;
        let open: Vec<(usize, ValueIndex)> = places(&model.nodes[node])
            .iter()
            .filter_map(|place| Some((*place, (*model.nodes[node].inputs.get(*place)?)?)))
            .filter(|(_, value)| deciding.contains(value) && !matches!(self.bound.get(value), Some(Bound::Folded(_))))
            .collect();
        if open.is_empty() {
            return Vec::new();
        }
        let Some(guesses) = self.guesses(&open) else { return Vec::new() };
        let mut assumed = Vec::new();
        for ((_, value), numbers) in open.into_iter().zip(guesses) {
            let declared = &model.values[value];
            let (Some(dims), Some(Ok(kind))) = (declared.known_dims(), declared.element.map(data_type)) else {
                continue;
            };
            if dims.iter().product::<i64>() != numbers.len() as i64 {
                return Vec::new();
            }
            let content = if is_whole(kind) || kind == DataType::Boolean {
                Folded::whole(kind, dims, numbers)
            } else {
                Folded::real(kind, dims, numbers.into_iter().map(|number| number as f64).collect())
            };
            assumed.push((value, content));
        }
        for (value, content) in &assumed {
            self.bind_content(*value, content);
        }
        assumed
    }

    /// Numbers for open inputs by which the node's outputs get the extents that are declared.
    fn guesses(&self, open: &[(usize, ValueIndex)]) -> Option<Vec<Vec<i64>>> {
        let node = self.node();
        let dims = self.bound_dims(self.input_index(0).ok()?)?;
        let outputs: Option<Vec<Vec<i64>>> =
            node.outputs.iter().flatten().map(|value| self.model.values[*value].known_dims()).collect();
        let outputs = outputs?;
        let wanted = outputs.first()?;
        if !self.is_fixed(0) || dims.contains(&0) {
            return None;
        }
        let count = |value: ValueIndex| self.model.values[value].known_dims().map(|dims| dims.iter().product::<i64>());
        let length = usize::try_from(count(open[0].1)?).ok()?;
        let axes_by = |rank: usize, result: &dyn Fn(&[usize]) -> Vec<i64>| {
            let sets = 0..1u32 << rank.min(16);
            let mut sets = sets.map(|set| (0..rank).filter(|axis| set >> axis & 1 == 1).collect::<Vec<_>>());
            sets.find(|axes| axes.len() == length && result(axes) == *wanted)
                .map(|axes| vec![axes.into_iter().map(|axis| axis as i64).collect::<Vec<_>>()])
        };
        let without = |axes: &[usize]| {
            dims.iter().enumerate().filter(|(axis, _)| !axes.contains(axis)).map(|(_, d)| *d).collect::<Vec<_>>()
        };
        match node.op_type.as_str() {
            "Reshape" => (wanted.len() == length).then(|| vec![wanted.clone()]),
            "Expand" => Some(vec![wanted[wanted.len().checked_sub(length)?..].to_vec()]),
            "Tile" if dims.len() <= 4 && wanted.len() == dims.len() => {
                Some(vec![wanted.iter().zip(&dims).map(|(result, own)| result / own).collect()])
            }
            "Split" => {
                let axis = self.axis(self.int("axis", 0), dims.len()).ok()?;
                Some(vec![outputs.iter().map(|output| output.get(axis).copied()).collect::<Option<_>>()?])
            }
            "Trilu" => Some(vec![vec![0; length]]),
            "Squeeze" => axes_by(dims.len(), &without),
            "Unsqueeze" => axes_by(wanted.len(), &|axes| {
                let mut rest = dims.iter();
                let extent = |axis| if axes.contains(&axis) { 1 } else { rest.next().copied().unwrap_or(0) };
                (0..wanted.len()).map(extent).collect()
            }),
            "Pad" => self.padding_guesses(open, &dims, wanted),
            "Slice" => self.slice_guesses(open, &dims, wanted),
            "Tile" => None,
            // Reductions.
            _ if length == 0 => Some(vec![vec![]]),
            _ if self.int("keepdims", 1) == 0 => axes_by(dims.len(), &without),
            _ => axes_by(dims.len(), &|axes| {
                dims.iter().enumerate().map(|(axis, d)| if axes.contains(&axis) { 1 } else { *d }).collect()
            }),
        }
    }

    fn padding_guesses(&self, open: &[(usize, ValueIndex)], dims: &[i64], wanted: &[i64]) -> Option<Vec<Vec<i64>>> {
        let axes: Vec<i64> = if self.has_input(3) && !open.iter().any(|(place, _)| *place == 3) {
            self.ints(3).ok()?
        } else {
            (0..dims.len() as i64).collect()
        };
        let guess = |place: usize, value: ValueIndex| {
            let count = self.model.values[value].known_dims()?.iter().product::<i64>() as usize;
            Some(match place {
                1 => {
                    let mut pads = Vec::new();
                    for axis in axes.iter().take(count / 2) {
                        let axis = self.axis(*axis, dims.len()).ok()?;
                        pads.push(wanted.get(axis)? - dims[axis]);
                    }
                    pads.resize(count, 0);
                    pads
                }
                2 => vec![0; count],
                _ => (0..count as i64).collect(),
            })
        };
        open.iter().map(|(place, value)| guess(*place, *value)).collect()
    }

    fn slice_guesses(&self, open: &[(usize, ValueIndex)], dims: &[i64], wanted: &[i64]) -> Option<Vec<Vec<i64>>> {
        if wanted.len() != dims.len() || dims.iter().any(|extent| *extent > MOST_SLICED) {
            return None;
        }
        let starts = self.input_index(1).ok()?;
        let count = match self.ints(1) {
            Ok(starts) => starts.len(),
            Err(_) => self.model.values[starts].known_dims()?.iter().product::<i64>() as usize,
        };
        let is_open = |place: usize| open.iter().any(|(other, _)| *other == place);
        let axes: Vec<i64> = if self.has_input(3) && !is_open(3) {
            self.ints(3).ok()?
        } else if self.has_input(3) {
            // Those that change, then others.
            let changes = |axis: &i64| dims[*axis as usize] != wanted[*axis as usize];
            let (changing, others): (Vec<i64>, Vec<i64>) = (0..dims.len() as i64).partition(changes);
            changing.into_iter().chain(others).take(count).collect()
        } else {
            (0..count as i64).collect()
        };
        let extents: Option<Vec<i64>> =
            axes.iter().map(|axis| wanted.get(self.axis(*axis, dims.len()).ok()?).copied()).collect();
        let extents = extents?;
        let guess = |place: usize| match place {
            1 => vec![0; count],
            2 => extents.clone(),
            3 => axes.clone(),
            _ => vec![1; count],
        };
        Some(open.iter().map(|(place, _)| guess(*place)).collect())
    }
}
