//! Index operators (arg-max, gather, hardmax, triangles), by comparison with index ramps.

use hipdnn_schemas::{DataType, PointwiseMode, ReductionMode};

use super::fold::Folded;
use super::{Declined, Importer, Operator, broadcast, computes, declined};
use crate::ir::ValueId;
use crate::model::Extent;

pub(super) const OPERATORS: &[Operator] = &[
    computes("ArgMax", |n| extreme_place(n, ReductionMode::Max)),
    computes("ArgMin", |n| extreme_place(n, ReductionMode::Min)),
    computes("GatherElements", gather_elements),
    computes("Hardmax", hardmax),
    computes("Trilu", triangle),
];

/// Maximum number of comparisons of a gather whose indices are not known before the model runs.
const MOST_COMPARISONS: i64 = 1 << 24;

/// Maximum number of elements of a mask.
const MOST_MASK_ELEMENTS: i64 = 1 << 22;

impl Importer<'_> {
    /// Index of the first or last maximum or minimum along `axis`, whose extent becomes 1: 32-bit numbers.
    fn place_of_extreme(
        &mut self,
        x: ValueId,
        axis: usize,
        mode: ReductionMode,
        last: bool,
    ) -> Result<ValueId, Declined> {
        let (dims, rank) = (self.dims(x), self.rank(x));
        let mut result = dims.clone();
        result[axis] = 1;
        if result.contains(&0) {
            return Ok(self.function.result(DataType::Int32, &result));
        }
        if dims[axis] < 1 {
            return declined("nothing is there to look for an extreme in");
        }
        let extreme = self.reduce(mode, x, &[axis])?;
        let hit = self.binary_to(PointwiseMode::CmpEq, x, extreme, DataType::Boolean)?;
        let places = self.indices(axis, dims[axis], rank, DataType::Int32);
        // What is no hit must not win, and stay a place where nothing is a hit, as among numbers that are none.
        let (other, mode) = if last { (0, ReductionMode::Max) } else { (dims[axis] - 1, ReductionMode::Min) };
        let other = self.number(other as f64, DataType::Int32, rank);
        let places = self.select_to(hit, places, other, DataType::Int32)?;
        self.reduce(mode, places, &[axis])
    }

    /// True if the extents of input `index` are the same in every run.
    pub(super) fn is_fixed(&self, index: usize) -> bool {
        let value = self.input_index(index).map(|value| &self.model.values[value]);
        value.is_ok_and(|value| {
            value.constant.is_some()
                || value.shape.as_ref().is_some_and(|shape| shape.iter().all(|e| matches!(e, Extent::Known(_))))
        })
    }

    /// Gather of `data` at the indices `places` along `axis`: `data` has all elements there, `places` one, and both
    /// broadcast elsewhere. Negative indices count from the end.
    pub(super) fn taken(&mut self, data: ValueId, places: ValueId, axis: usize) -> Result<ValueId, Declined> {
        let rank = self.rank(data);
        let extent = self.dims(data)[axis];
        let (data_type, kind) = (self.data_type(data), self.data_type(places));
        let comparisons: i64 = broadcast(&self.dims(data), &self.dims(places))?.iter().product();
        if comparisons > MOST_COMPARISONS {
            return declined(format!("{comparisons} comparisons would stand for the places"));
        }
        if !matches!(kind, DataType::Int32 | DataType::Int64) {
            return declined(format!("expected places of type int32 or int64, got {kind}"));
        }
        let (zero, end) = (self.number(0.0, kind, rank), self.number(extent as f64, kind, rank));
        let negative = self.binary_to(PointwiseMode::CmpLt, places, zero, DataType::Boolean)?;
        let raised = self.binary_to(PointwiseMode::Add, places, end, kind)?;
        let places = self.select_to(negative, raised, places, kind)?;
        let numbers = self.indices(axis, extent, rank, kind);
        let hit = self.binary_to(PointwiseMode::CmpEq, places, numbers, DataType::Boolean)?;
        let nothing = self.number(0.0, data_type, rank);
        let alone = self.select_to(hit, data, nothing, data_type)?;
        self.reduce(ReductionMode::Add, alone, &[axis])
    }

    /// Gather at indices that are not known before the model runs; `data` is input 0, the indices are input 1.
    pub(super) fn gathered(&mut self, axis: usize) -> Result<ValueId, Declined> {
        if !self.is_fixed(0) || !self.is_fixed(1) {
            return declined(
                "places that are not known before the model runs, in extents that are not, are not imported",
            );
        }
        let (data, places) = (self.number_input(0)?, self.input(1)?);
        let (dims, shape) = (self.dims(data), self.dims(places));
        let (outer, inner) = (dims[..axis].iter().product(), dims[axis + 1..].iter().product());
        let count = shape.iter().product();
        let data = self.reshape(data, &[outer, 1, dims[axis], inner]);
        let places = self.reshape(places, &[1, count, 1, 1]);
        let y = self.taken(data, places, 2)?;
        let mut result = dims[..axis].to_vec();
        result.extend(shape);
        result.extend(&dims[axis + 1..]);
        Ok(self.reshape(y, &result))
    }
}

fn extreme_place(n: &mut Importer<'_>, mode: ReductionMode) -> Result<(), Declined> {
    let x = n.number_input(0)?;
    let mut dims = n.dims(x);
    let axis = n.axis(n.int("axis", 0), dims.len())?;
    if dims.contains(&0) && n.declared {
        return declined("places in tensors without elements are not imported");
    }
    let place = n.place_of_extreme(x, axis, mode, n.int("select_last_index", 0) != 0)?;
    let place = n.converted(place, DataType::Int64)?;
    if n.int("keepdims", 1) == 0 {
        dims.remove(axis);
    } else {
        dims[axis] = 1;
    }
    let y = n.reshape(place, &dims);
    n.output(0, y);
    Ok(())
}

/// 1 at the first largest element along an axis, 0 elsewhere.
fn hardmax(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.float_input(0)?;
    let dims = n.dims(x);
    if dims.contains(&0) {
        let data_type = n.data_type(x);
        let y = n.function.result(data_type, &dims);
        n.output(0, y);
        return Ok(());
    }
    let (x, axis) = n.softmax_operand(x)?;
    let place = n.place_of_extreme(x, axis, ReductionMode::Max, false)?;
    let (data_type, own) = (n.data_type(x), n.dims(x));
    let numbers = n.indices(axis, own[axis], own.len(), DataType::Int32);
    let hit = n.binary_to(PointwiseMode::CmpEq, place, numbers, DataType::Boolean)?;
    let y = n.converted(hit, data_type)?;
    let y = n.reshape(y, &dims);
    n.output(0, y);
    Ok(())
}

fn gather_elements(n: &mut Importer<'_>) -> Result<(), Declined> {
    if !n.is_fixed(0) || !n.is_fixed(1) {
        return declined("extents that are not known before the model runs are not imported");
    }
    let (data, places) = (n.number_input(0)?, n.input(1)?);
    let (dims, mut shape) = (n.dims(data), n.dims(places));
    let axis = n.axis(n.int("axis", 0), dims.len())?;
    if shape.len() != dims.len() || (0..dims.len()).any(|at| at != axis && shape[at] > dims[at]) {
        return declined(format!("places of extents {shape:?} are not within {dims:?}"));
    }
    let result = shape.clone();
    // The part of the data that the places lie over, and its elements along the axis as the last dimension.
    let ranges: Vec<_> = (0..dims.len()).map(|at| (0, if at == axis { dims[at] } else { shape[at] }, 1)).collect();
    let data = n.window(data, &ranges);
    let mut order: Vec<usize> = (0..dims.len()).collect();
    order.remove(axis);
    order.push(axis);
    let data = n.function.transpose(data, &order);
    let mut wide = n.dims(data);
    wide.insert(axis, 1);
    if wide.len() > super::MAX_RANK {
        return declined(format!("expected at most {} dimensions, got {}", super::MAX_RANK, wide.len()));
    }
    let data = n.reshape(data, &wide);
    shape.push(1);
    let places = n.reshape(places, &shape);
    let y = n.taken(data, places, dims.len())?;
    let y = n.reshape(y, &result);
    n.output(0, y);
    Ok(())
}

/// The elements on one side of a diagonal of the last two dimensions, 0 on the other.
fn triangle(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.number_input(0)?;
    let (dims, data_type) = (n.dims(x), n.data_type(x));
    let [.., height, width] = dims[..] else {
        return declined(format!("expected at least 2 dimensions, got {}", dims.len()));
    };
    let diagonal = if n.has_input(1) { n.ints(1)?.first().copied().unwrap_or(0) } else { 0 };
    let upper = n.int("upper", 1) != 0;
    if height * width > MOST_MASK_ELEMENTS {
        return declined(format!("expected a mask of at most {MOST_MASK_ELEMENTS} elements, got {height} by {width}"));
    }
    let keeps = |row: i64, column: i64| {
        let distance = column - row;
        i64::from(if upper { distance >= diagonal } else { distance <= diagonal })
    };
    let mask = (0..height).flat_map(|row| (0..width).map(move |column| keeps(row, column))).collect();
    let mut shape = vec![1; dims.len() - 2];
    shape.extend([height, width]);
    let mask = n.constant(&Folded::whole(DataType::Boolean, shape, mask));
    let zero = n.number(0.0, data_type, dims.len());
    let y = n.select_to(mask, x, zero, data_type)?;
    n.output(0, y);
    Ok(())
}
