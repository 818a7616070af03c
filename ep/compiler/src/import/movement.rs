//! Data movement: views where strides say it, identity operations where memory has to be written.

use hipdnn_schemas::{DataType, Operation, Pointwise, PointwiseMode, packed_strides};

use super::fold::{Folded, MOST_ELEMENTS};
use super::{Declined, Importer, MAX_RANK, Operator, declined, moves};
use crate::ir::{Op, ValueId};

pub(super) const OPERATORS: &[Operator] = &[
    moves("Concat", concat),
    moves("DepthToSpace", depth_to_space),
    moves("Dropout", dropout),
    moves("Expand", expand),
    moves("Flatten", flatten),
    moves("Gather", gather),
    moves("Identity", identity),
    moves("Pad", pad),
    moves("Reshape", reshape),
    moves("Resize", resize),
    moves("Slice", slice),
    moves("SpaceToDepth", space_to_depth),
    moves("Split", split),
    moves("Squeeze", squeeze),
    moves("Tile", tile),
    moves("Transpose", transpose),
    moves("Unsqueeze", unsqueeze),
    moves("Upsample", resize),
];

impl Importer<'_> {
    /// Input 0, if it is folded.
    fn folded_data(&self) -> Result<Option<Folded>, Declined> {
        let value = self.input_index(0)?;
        Ok(match self.bound.get(&value) {
            Some(super::Bound::Folded(folded)) => Some(folded.clone()),
            _ => None,
        })
    }

    /// Extents of input 0, folded or not.
    fn data_dims(&self) -> Result<Vec<i64>, Declined> {
        self.bound(0)?;
        Ok(self.bound_dims(self.input_index(0)?).expect("the input is bound"))
    }

    /// Hands input 0 out with other extents.
    fn output_reshaped(&mut self, dims: &[i64]) -> Result<(), Declined> {
        if dims.len() > MAX_RANK {
            return declined(format!("expected at most {MAX_RANK} dimensions, got {}", dims.len()));
        }
        if let Some(folded) = self.folded_data()? {
            self.output_folded(0, folded.reshaped(dims.to_vec()));
            return Ok(());
        }
        let x = self.input(0)?;
        let y = self.reshape(x, dims);
        self.output(0, y);
        Ok(())
    }

    /// Axes: an attribute at first, an input later.
    pub(super) fn axes(&self, input: usize) -> Result<Option<Vec<i64>>, Declined> {
        if self.has_input(input) { self.ints(input).map(Some) } else { Ok(self.ints_of("axes")) }
    }
}

fn identity(n: &mut Importer<'_>) -> Result<(), Declined> {
    let dims = n.data_dims()?;
    n.output_reshaped(&dims)
}

/// Inference: the input. Its mask would be all true.
fn dropout(n: &mut Importer<'_>) -> Result<(), Declined> {
    let trains = if n.has_input(2) { n.ints(2)? != [0] } else { false };
    if trains {
        return declined("dropout for training is not imported");
    }
    let dims = n.data_dims()?;
    if n.has_output(1) {
        // The mask keeps everything.
        let one = n.constant(&Folded::whole(DataType::Boolean, vec![1; dims.len()], vec![1]));
        let mask = n.function.expand(one, &dims);
        n.output(1, mask);
    }
    n.output_reshaped(&dims)
}

fn reshape(n: &mut Importer<'_>) -> Result<(), Declined> {
    let dims = n.data_dims()?;
    let wanted = if n.since() < 5 { n.ints_of("shape").unwrap_or_default() } else { n.ints(1)? };
    let keeps_zero = n.int("allowzero", 0) != 0;
    let mut result = Vec::with_capacity(wanted.len());
    for (axis, extent) in wanted.iter().enumerate() {
        result.push(match extent {
            0 if !keeps_zero => match dims.get(axis) {
                Some(extent) => *extent,
                None => return declined(format!("a shape of {wanted:?} copies dimension {axis} of {dims:?}")),
            },
            extent => *extent,
        });
    }
    let elements: i64 = dims.iter().product();
    if let Some(free) = result.iter().position(|extent| *extent == -1) {
        let others: i64 =
            result.iter().enumerate().filter(|(axis, _)| *axis != free).map(|(_, extent)| extent).product();
        if others == 0 || elements % others != 0 {
            return declined(format!("expected a shape of as many elements as {dims:?}, got {wanted:?}"));
        }
        result[free] = elements / others;
    }
    if result.iter().any(|extent| *extent < 0) || result.iter().product::<i64>() != elements {
        return declined(format!("expected a shape of as many elements as {dims:?}, got {wanted:?}"));
    }
    n.output_reshaped(&result)
}

fn flatten(n: &mut Importer<'_>) -> Result<(), Declined> {
    let dims = n.data_dims()?;
    let axis = n.int("axis", 1);
    let axis = if axis == dims.len() as i64 { dims.len() } else { n.axis(axis, dims.len().max(1))? };
    let (outer, inner) = dims.split_at(axis.min(dims.len()));
    n.output_reshaped(&[outer.iter().product(), inner.iter().product()])
}

fn squeeze(n: &mut Importer<'_>) -> Result<(), Declined> {
    let dims = n.data_dims()?;
    let mut gone = vec![false; dims.len()];
    match n.axes(1)? {
        Some(axes) => {
            for axis in axes {
                let axis = n.axis(axis, dims.len())?;
                if dims[axis] != 1 {
                    return declined(format!("expected an extent of 1 in dimension {axis}, got {dims:?}"));
                }
                gone[axis] = true;
            }
        }
        None => gone = dims.iter().map(|extent| *extent == 1).collect(),
    }
    let result: Vec<i64> = dims.iter().zip(gone).filter(|(_, gone)| !gone).map(|(extent, _)| *extent).collect();
    n.output_reshaped(&result)
}

fn unsqueeze(n: &mut Importer<'_>) -> Result<(), Declined> {
    let dims = n.data_dims()?;
    let Some(axes) = n.axes(1)? else { return declined("its axes are missing") };
    let rank = dims.len() + axes.len();
    let mut result = vec![0; rank];
    for axis in axes {
        let axis = n.axis(axis, rank)?;
        if result[axis] == 1 {
            return declined(format!("axis {axis} is named twice"));
        }
        result[axis] = 1;
    }
    let mut rest = dims.into_iter();
    for extent in result.iter_mut().filter(|extent| **extent == 0) {
        *extent = rest.next().expect("as many dimensions are left as the input has");
    }
    n.output_reshaped(&result)
}

fn transpose(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.input(0)?;
    let rank = n.rank(x);
    let order = match n.ints_of("perm") {
        Some(order) if !order.is_empty() => order,
        _ => (0..rank as i64).rev().collect(),
    };
    let mut seen = vec![false; rank];
    let mut axes = Vec::with_capacity(rank);
    for axis in &order {
        let axis = n.axis(*axis, rank)?;
        if std::mem::replace(&mut seen[axis], true) {
            return declined(format!("perm {order:?} names a dimension twice"));
        }
        axes.push(axis);
    }
    if axes.len() != rank {
        return declined(format!("expected perm of {rank} dimensions, got {order:?}"));
    }
    let y = n.function.transpose(x, &axes);
    n.output(0, y);
    Ok(())
}

fn expand(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.input(0)?;
    let wanted = n.ints(1)?;
    let dims = super::broadcast(&n.dims(x), &wanted)?;
    if dims.len() > MAX_RANK {
        return declined(format!("expected at most {MAX_RANK} dimensions, got {}", dims.len()));
    }
    let x = n.ranked(x, dims.len());
    let y = n.function.expand(x, &dims);
    n.output(0, y);
    Ok(())
}

/// Repeats by whole numbers: a view with a dimension of stride 0 in front of each repeated one, then a copy.
fn tile(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.input(0)?;
    let (dims, repeats) = (n.dims(x), n.ints(1)?);
    if repeats.len() != dims.len() || repeats.iter().any(|repeat| *repeat < 0) {
        return declined(format!("expected {} repeats of at least 0, got {repeats:?}", dims.len()));
    }
    let value = n.function.value(x);
    let (mut shape, mut strides, mut result) = (Vec::new(), Vec::new(), Vec::new());
    for axis in 0..dims.len() {
        if repeats[axis] != 1 {
            shape.push(repeats[axis]);
            strides.push(0);
        }
        shape.push(dims[axis]);
        strides.push(value.strides[axis]);
        result.push(repeats[axis] * dims[axis]);
    }
    if shape.len() > MAX_RANK {
        return declined(format!("expected at most {MAX_RANK} dimensions, got {}", shape.len()));
    }
    let wide = n.function.view(x, &shape, &strides, 0);
    let y = n.reshape(wide, &result);
    n.output(0, y);
    Ok(())
}

/// Start and length of a range of a dimension, as Slice clamps them; steps count from the start.
fn clamped(start: i64, end: i64, step: i64, extent: i64) -> (i64, i64) {
    let from = |place: i64| if place < 0 { place.saturating_add(extent) } else { place };
    let (start, end) = (from(start).clamp(0, extent), from(end).clamp(0, extent));
    (start, ((end - start).max(0) + step - 1) / step)
}

fn slice(n: &mut Importer<'_>) -> Result<(), Declined> {
    let dims = n.data_dims()?;
    let (starts, ends, axes, steps) = if n.since() < 10 {
        (n.ints_of("starts").unwrap_or_default(), n.ints_of("ends").unwrap_or_default(), n.ints_of("axes"), None)
    } else {
        let axes = if n.has_input(3) { Some(n.ints(3)?) } else { None };
        let steps = if n.has_input(4) { Some(n.ints(4)?) } else { None };
        (n.ints(1)?, n.ints(2)?, axes, steps)
    };
    let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if ends.len() != starts.len() || axes.len() != starts.len() || steps.len() != starts.len() {
        return declined("starts, ends, axes and steps are of different lengths");
    }
    let mut ranges: Vec<(i64, i64, i64)> = dims.iter().map(|extent| (0, *extent, 1)).collect();
    let mut backwards = Vec::new();
    for (((start, end), axis), step) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
        let axis = n.axis(*axis, dims.len())?;
        if *step == 0 {
            return declined("a step is 0");
        }
        if *step < 0 {
            let extent = dims[axis];
            let from = |place: i64| if place < 0 { place.saturating_add(extent) } else { place };
            // Backwards ONNX begins in the tensor, even where a start lies before it.
            let (start, end) = (from(*start).clamp(0, (extent - 1).max(0)), from(*end).clamp(-1, extent));
            let count =
                if start > end && extent > 0 { (start - end - 1) / step.saturating_neg().max(1) + 1 } else { 0 };
            if count < 2 {
                ranges[axis] = (start.max(0), count, 1);
            } else {
                // Upwards first, then turned round.
                ranges[axis] = (start + (count - 1) * step, count, -step);
                backwards.push(axis);
            }
            continue;
        }
        let (start, count) = clamped(*start, *end, *step, dims[axis]);
        ranges[axis] = (start, count, *step);
    }
    let result: Vec<i64> = ranges.iter().map(|(_, count, _)| *count).collect();
    if let Some(folded) = n.folded_data()? {
        for axis in backwards {
            let (start, count, step) = ranges[axis];
            ranges[axis] = (start + (count - 1) * step, count, -step);
        }
        let places = places(&dims, &ranges);
        n.output_folded(0, folded.picked(&places, result));
        return Ok(());
    }
    let x = n.input(0)?;
    let mut y = n.window(x, &ranges);
    if !result.contains(&0) {
        for axis in backwards {
            let places: Vec<i64> = (0..result[axis]).rev().collect();
            y = n.picked(y, axis, &places)?;
        }
    }
    n.output(0, y);
    Ok(())
}

/// Row-major places of the elements in (start, count, step) of each dimension.
fn places(dims: &[i64], ranges: &[(i64, i64, i64)]) -> Vec<usize> {
    let mut places = vec![0i64];
    for ((start, count, step), stride) in ranges.iter().zip(packed_strides(dims)) {
        let along: Vec<i64> = (0..*count).map(|index| (start + index * step) * stride).collect();
        places = places.iter().flat_map(|place| along.iter().map(move |more| place + more)).collect();
    }
    places.into_iter().map(|place| place as usize).collect()
}

impl Importer<'_> {
    /// A view of (start, count, step) of each dimension.
    pub(super) fn window(&mut self, x: ValueId, ranges: &[(i64, i64, i64)]) -> ValueId {
        let value = self.function.value(x);
        let dims: Vec<i64> = ranges.iter().map(|(_, count, _)| *count).collect();
        let strides: Vec<i64> = ranges.iter().zip(&value.strides).map(|((_, _, step), stride)| step * stride).collect();
        let empty = dims.contains(&0);
        let offset = ranges.iter().zip(&value.strides).map(|((start, _, _), stride)| start * stride).sum();
        self.function.view(x, &dims, &strides, if empty { 0 } else { offset })
    }
}

fn split(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.input(0)?;
    let dims = n.dims(x);
    let axis = n.axis(n.int("axis", 0), dims.len())?;
    let count = n.node().outputs.len() as i64;
    let sizes = if n.has_input(1) {
        n.ints(1)?
    } else if let Some(sizes) = n.ints_of("split") {
        sizes
    } else {
        // Equal parts, the last one smaller.
        let size = (dims[axis] + count - 1) / count;
        (0..count).map(|part| size.min(dims[axis] - part * size).max(0)).collect()
    };
    if sizes.len() as i64 != count || sizes.iter().any(|size| *size < 0) || sizes.iter().sum::<i64>() != dims[axis] {
        return declined(format!(
            "{} of dimension {axis} cannot be split into {sizes:?} for {count} outputs",
            dims[axis]
        ));
    }
    let mut start = 0;
    for (index, size) in sizes.into_iter().enumerate() {
        let mut ranges: Vec<(i64, i64, i64)> = dims.iter().map(|extent| (0, *extent, 1)).collect();
        ranges[axis] = (start, size, 1);
        start += size;
        let y = n.window(x, &ranges);
        n.output(index, y);
    }
    Ok(())
}

/// Slices at constant indices, or elements that are looked for where indices are not known.
fn gather(n: &mut Importer<'_>) -> Result<(), Declined> {
    let dims = n.data_dims()?;
    let axis = n.axis(n.int("axis", 0), dims.len())?;
    let Some(indices) = n.folded(1)? else {
        let y = n.gathered(axis)?;
        n.output(0, y);
        return Ok(());
    };
    let shape = indices.dims.clone();
    let extent = dims[axis];
    let indices = indices.ints().unwrap_or_default();
    let indices: Vec<i64> = indices.into_iter().map(|index| if index < 0 { index + extent } else { index }).collect();
    if let Some(index) = indices.iter().find(|index| !(0..extent).contains(index)) {
        return declined(format!("the index {index} is outside of dimension {axis} of {dims:?}"));
    }
    let mut result = dims[..axis].to_vec();
    result.extend(&shape);
    result.extend(&dims[axis + 1..]);
    if let Some(folded) = n.folded_data()? {
        let (outer, inner) = (dims[..axis].iter().product::<i64>(), dims[axis + 1..].iter().product::<i64>());
        if outer * inner * indices.len() as i64 > MOST_ELEMENTS as i64 {
            return declined("the result is too large to be folded");
        }
        let places: Vec<usize> = (0..outer)
            .flat_map(|o| indices.iter().flat_map(move |index| (0..inner).map(move |i| (o, *index, i))))
            .map(|(o, index, i)| ((o * extent + index) * inner + i) as usize)
            .collect();
        n.output_folded(0, folded.picked(&places, result));
        return Ok(());
    }
    let x = n.input(0)?;
    let y = if result.contains(&0) {
        let data_type = n.data_type(x);
        n.function.result(data_type, &result)
    } else {
        n.picked(x, axis, &indices)?
    };
    let y = n.reshape(y, &result);
    n.output(0, y);
    Ok(())
}

fn concat(n: &mut Importer<'_>) -> Result<(), Declined> {
    let count = n.node().inputs.len();
    if n.has_folded_input() && (0..count).all(|index| matches!(n.folded(index), Ok(Some(_)))) {
        return concat_folded(n);
    }
    let inputs = (0..count).map(|index| n.input(index)).collect::<Result<Vec<_>, _>>()?;
    let rank = n.rank(inputs[0]);
    let axis = n.axis(n.int("axis", if n.since() < 4 { 1 } else { 0 }), rank)?;
    let y = n.joined(&inputs, axis)?;
    n.output(0, y);
    Ok(())
}

impl Importer<'_> {
    /// Values side by side along `axis`: each one is written to its part of the result by its own operation where it is
    /// one piece, copied otherwise.
    pub(super) fn joined(&mut self, inputs: &[ValueId], axis: usize) -> Result<ValueId, Declined> {
        let first = self.dims(inputs[0]);
        let mut result = first.clone();
        result[axis] = 0;
        for input in inputs {
            let dims = self.dims(*input);
            let others = |dims: &[i64]| {
                dims.iter().enumerate().filter(|(at, _)| *at != axis).map(|(_, d)| *d).collect::<Vec<_>>()
            };
            if dims.len() != first.len() || others(&dims) != others(&first) {
                return declined(format!("expected extents {first:?} beside dimension {axis}, got {dims:?}"));
            }
            if self.data_type(*input) != self.data_type(inputs[0]) {
                return declined("its inputs are of different types");
            }
            result[axis] += dims[axis];
        }
        let data_type = self.data_type(inputs[0]);
        let whole = self.function.result(data_type, &result);
        let stride = self.function.value(whole).strides[axis];
        let mut parts = Vec::new();
        let mut start = 0;
        for input in inputs {
            let dims = self.dims(*input);
            let part = self.function.part(whole, &dims, start * stride);
            start += dims[axis];
            if dims.contains(&0) {
                continue;
            }
            if self.function.place(*input, part) {
                parts.push(*input);
            } else {
                let node = self.current;
                self.function.push_copy(*input, part, node);
                parts.push(part);
            }
        }
        self.function.assemble(whole, parts);
        Ok(whole)
    }

    /// The slices at these places along `axis`, in this order: one view if they are at equal distances upwards, a copy of
    /// each otherwise.
    pub(super) fn picked(&mut self, x: ValueId, axis: usize, places: &[i64]) -> Result<ValueId, Declined> {
        let dims = self.dims(x);
        let mut ranges: Vec<(i64, i64, i64)> = dims.iter().map(|extent| (0, *extent, 1)).collect();
        let step = match places {
            [] => return declined("there are no places to take slices from"),
            [_] => 1,
            [first, second, ..] => second - first,
        };
        if step > 0 && places.windows(2).all(|pair| pair[1] - pair[0] == step) {
            ranges[axis] = (places[0], places.len() as i64, step);
            return Ok(self.window(x, &ranges));
        }
        if places.len() > MOST_SLICES {
            return declined(format!(
                "{} places that are not at equal distances upwards are no slice, and at most {MOST_SLICES} are copied",
                places.len()
            ));
        }
        let slices: Vec<ValueId> = places
            .iter()
            .map(|place| {
                ranges[axis] = (*place, 1, 1);
                self.window(x, &ranges)
            })
            .collect();
        self.joined(&slices, axis)
    }

    /// A place in (start, count, step) of each dimension of `whole`, for an operation to define.
    pub(super) fn strided_part(&mut self, whole: ValueId, ranges: &[(i64, i64, i64)]) -> ValueId {
        let value = self.function.value(whole);
        let dims: Vec<i64> = ranges.iter().map(|(_, count, _)| *count).collect();
        let strides: Vec<i64> = ranges.iter().zip(&value.strides).map(|((_, _, step), stride)| step * stride).collect();
        let offset = ranges.iter().zip(&value.strides).map(|((start, _, _), stride)| start * stride).sum();
        self.function.strided_part(whole, &dims, &strides, offset)
    }
}

/// Most slices that are copied one by one.
const MOST_SLICES: usize = 64;

fn concat_folded(n: &mut Importer<'_>) -> Result<(), Declined> {
    let mut values = Vec::new();
    let mut data_type = DataType::Int64;
    for index in 0..n.node().inputs.len() {
        let Some(folded) = n.folded(index)? else { return Err(n.not_constant(index)) };
        let Some(ints) = folded.ints() else { return declined("only whole numbers are folded") };
        if folded.dims.len() != 1 {
            return declined("only lists are folded");
        }
        data_type = folded.data_type;
        values.extend(ints);
    }
    if values.len() > MOST_ELEMENTS {
        return declined("the result is too large to be folded");
    }
    n.output_folded(0, Folded::whole(data_type, vec![values.len() as i64], values));
    Ok(())
}

/// [N, C, H·b, W·b] from [N, C·b², H, W], and its inverse: one copy between views of six dimensions.
fn depth_to_space(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.input(0)?;
    let (dims, block) = (n.dims(x), n.int("blocksize", 0));
    let [batch, channels, height, width] = dims[..] else {
        return declined(format!("expected 4 dimensions, got {}", dims.len()));
    };
    if block < 1 || channels % (block * block) != 0 {
        return declined(format!("expected channels in blocks of {block} by {block}, got {channels}"));
    }
    let depth = channels / (block * block);
    let (shape, order) = match n.text("mode") {
        "" | "DCR" => ([batch, block, block, depth, height, width], [0, 3, 4, 1, 5, 2]),
        "CRD" => ([batch, depth, block, block, height, width], [0, 1, 4, 2, 5, 3]),
        other => return declined(format!("expected mode DCR or CRD, got {other:?}")),
    };
    let apart = n.reshape(x, &shape);
    let turned = n.function.transpose(apart, &order);
    let y = n.reshape(turned, &[batch, depth, height * block, width * block]);
    n.output(0, y);
    Ok(())
}

fn space_to_depth(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.input(0)?;
    let (dims, block) = (n.dims(x), n.int("blocksize", 0));
    let [batch, channels, height, width] = dims[..] else {
        return declined(format!("expected 4 dimensions, got {}", dims.len()));
    };
    if block < 1 || height % block != 0 || width % block != 0 {
        return declined(format!("expected an image in blocks of {block} by {block}, got {height} by {width}"));
    }
    let apart = n.reshape(x, &[batch, channels, height / block, block, width / block, block]);
    let turned = n.function.transpose(apart, &[0, 3, 5, 1, 2, 4]);
    let y = n.reshape(turned, &[batch, channels * block * block, height / block, width / block]);
    n.output(0, y);
    Ok(())
}

/// Padding with a constant.
fn pad(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.input(0)?;
    let dims = n.dims(x);
    match n.text("mode") {
        "" | "constant" => {}
        other => return declined(format!("padding of mode {other} is not imported")),
    }
    let old = n.since() < 11;
    let given = if old { n.ints_of("pads").unwrap_or_default() } else { n.ints(1)? };
    let number = match (old, n.has_input(2)) {
        (true, _) => f64::from(n.float("value", 0.0)),
        (false, true) => match n.floats(2)?[..] {
            [number] => number,
            ref others => return declined(format!("expected one number to pad with, got {}", others.len())),
        },
        (false, false) => 0.0,
    };
    let axes = if n.has_input(3) { n.ints(3)? } else { (0..dims.len() as i64).collect() };
    if given.len() != 2 * axes.len() {
        return declined(format!("expected {} pads, got {}", 2 * axes.len(), given.len()));
    }
    let mut pads = vec![(0, 0); dims.len()];
    for (index, axis) in axes.iter().enumerate() {
        let axis = n.axis(*axis, dims.len())?;
        pads[axis] = (given[index], given[index + axes.len()]);
    }
    // Negative padding leaves a part out.
    let inner: Vec<(i64, i64, i64)> = dims
        .iter()
        .zip(&pads)
        .map(|(extent, (pre, post))| ((-pre).max(0), extent + pre.min(&0) + post.min(&0), 1))
        .collect();
    if inner.iter().any(|(_, count, _)| *count < 0) {
        return declined(format!("pads {given:?} leave nothing of {dims:?}"));
    }
    let x = n.window(x, &inner);
    let pads: Vec<(i64, i64)> = pads.into_iter().map(|(pre, post)| (pre.max(0), post.max(0))).collect();
    if pads.iter().all(|pad| *pad == (0, 0)) {
        n.output(0, x);
        return Ok(());
    }
    let data_type = n.data_type(x);
    let fill = match data_type {
        data_type if super::is_float(data_type) || super::is_whole(data_type) => {
            n.number(number, data_type, dims.len())
        }
        _ => return declined(format!("padding of {data_type} is not imported")),
    };
    let y = n.padded(x, &pads, fill);
    n.output(0, y);
    Ok(())
}

impl Importer<'_> {
    /// The value with (before, after) more places along each dimension, filled with a scalar: the slabs of the border and
    /// the inside are written one by one.
    pub(super) fn padded(&mut self, x: ValueId, pads: &[(i64, i64)], fill: ValueId) -> ValueId {
        if pads.iter().all(|pad| *pad == (0, 0)) {
            return x;
        }
        let (data_type, kept) = (self.data_type(x), self.dims(x));
        let result: Vec<i64> = kept.iter().zip(pads).map(|(extent, (pre, post))| extent + pre + post).collect();
        let whole = self.function.result(data_type, &result);
        let mut parts = Vec::new();
        // What is left of the result as dimension after dimension loses its border: (start, count).
        let mut rest: Vec<(i64, i64)> = result.iter().map(|extent| (0, *extent)).collect();
        for axis in 0..result.len() {
            let (pre, post) = pads[axis];
            for (start, count) in [(0, pre), (result[axis] - post, post)] {
                if count > 0 {
                    let mut slab = rest.clone();
                    slab[axis] = (start, count);
                    parts.extend(write_part(self, whole, &slab, fill));
                }
            }
            rest[axis] = (pre, kept[axis]);
        }
        parts.extend(write_part(self, whole, &rest, x));
        self.function.assemble(whole, parts);
        whole
    }
}

/// Copies a value to (start, count) of each dimension of `whole`.
fn write_part(n: &mut Importer<'_>, whole: ValueId, ranges: &[(i64, i64)], from: ValueId) -> Option<ValueId> {
    let dims: Vec<i64> = ranges.iter().map(|(_, count)| *count).collect();
    if dims.contains(&0) {
        return None;
    }
    let value = n.function.value(whole);
    let offset = ranges.iter().zip(&value.strides).map(|((start, _), stride)| start * stride).sum();
    let part = n.function.part(whole, &dims, offset);
    let operation = Operation::Pointwise(Pointwise::unary(PointwiseMode::Identity, from.uid(), part.uid()));
    let compute = crate::ir::copy_type(n.data_type(part));
    let node = n.current;
    n.function.push(Op { operation, compute, node });
    Some(part)
}

/// Nearest neighbors by whole factors: every element repeated, which is a view with strides of 0, then a copy.
fn resize(n: &mut Importer<'_>) -> Result<(), Declined> {
    let x = n.input(0)?;
    let dims = n.dims(x);
    match n.text("mode") {
        "" | "nearest" => {}
        other => return declined(format!("interpolation of mode {other} is no view")),
    }
    let factors = resize_factors(n, &dims)?;
    if factors.iter().any(|factor| *factor > 1) {
        // A repeated element is nearest by every rule but these.
        let rule = n.text("coordinate_transformation_mode");
        let nearest = n.text("nearest_mode");
        let is_upsample = n.node().op_type == "Upsample" || n.since() < 11;
        let repeats = match (rule, nearest) {
            _ if is_upsample => true,
            ("asymmetric", "floor") => true,
            (
                "" | "half_pixel" | "pytorch_half_pixel" | "half_pixel_symmetric",
                "" | "round_prefer_floor" | "round_prefer_ceil",
            ) => true,
            // Half a step is rounded down only where the factor has no exact half.
            ("asymmetric", "" | "round_prefer_floor") => factors.iter().all(|factor| *factor <= 2),
            _ => false,
        };
        if !repeats {
            return declined(format!("nearest neighbors by the rule {rule:?}, {nearest:?} are no repetition"));
        }
    }
    let value = n.function.value(x);
    let (mut shape, mut strides) = (Vec::new(), Vec::new());
    for axis in 0..dims.len() {
        shape.push(dims[axis]);
        strides.push(value.strides[axis]);
        if factors[axis] > 1 {
            shape.push(factors[axis]);
            strides.push(0);
        }
    }
    if shape.len() > MAX_RANK {
        return declined(format!("expected at most {MAX_RANK} dimensions, got {}", shape.len()));
    }
    let result: Vec<i64> = dims.iter().zip(&factors).map(|(extent, factor)| extent * factor).collect();
    let wide = n.function.view(x, &shape, &strides, 0);
    let y = n.reshape(wide, &result);
    n.output(0, y);
    Ok(())
}

/// The whole number that each dimension grows by.
fn resize_factors(n: &Importer<'_>, dims: &[i64]) -> Result<Vec<i64>, Declined> {
    let (scales, sizes) = match (n.node().op_type.as_str(), n.since()) {
        ("Upsample", ..9) => (n.attribute("scales"), None),
        _ => (None, Some(())),
    };
    let scales: Option<Vec<f64>> = match (scales, sizes) {
        (Some(crate::model::Attribute::Floats(scales)), _) => Some(scales.iter().map(|s| f64::from(*s)).collect()),
        _ if n.node().op_type == "Upsample" || n.since() < 11 => Some(n.floats(1)?),
        _ if n.has_input(2) && !n.floats(2)?.is_empty() => Some(n.floats(2)?),
        _ => None,
    };
    if !matches!(n.text("keep_aspect_ratio_policy"), "" | "stretch") {
        return declined("sizes that keep the aspect ratio are not imported");
    }
    let given = match &scales {
        Some(scales) => scales.len(),
        None if n.has_input(3) => n.ints(3)?.len(),
        None => return declined("neither scales nor sizes are given"),
    };
    let axes = match n.ints_of("axes") {
        Some(axes) => axes.iter().map(|axis| n.axis(*axis, dims.len())).collect::<Result<Vec<_>, _>>()?,
        None => (0..dims.len()).collect(),
    };
    if axes.len() != given {
        return declined(format!("expected {} scales or sizes, got {given}", axes.len()));
    }
    let mut factors = vec![1; dims.len()];
    for (index, axis) in axes.into_iter().enumerate() {
        factors[axis] = match &scales {
            Some(scales) if scales[index] >= 1.0 && scales[index].fract() == 0.0 && scales[index] < 65536.0 => {
                scales[index] as i64
            }
            Some(scales) => {
                return declined(format!("expected scales of whole numbers from 1 to 65535, got {}", scales[index]));
            }
            None => {
                let size = n.ints(3)?[index];
                if dims[axis] < 1 || size < dims[axis] || size % dims[axis] != 0 {
                    return declined(format!("expected a multiple of the extent {}, got {size}", dims[axis]));
                }
                size / dims[axis]
            }
        };
    }
    Ok(factors)
}
