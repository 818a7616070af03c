//! Shapes as values, and arithmetic of folded whole numbers.

use hipdnn_schemas::DataType;

use super::fold::{Folded, MOST_ELEMENTS};
use super::{Bound, Declined, Importer, Operator, broadcast, data_type, declined, moves};
use hipdnn_sdk_bindings::ort::ElementType;

pub(super) const OPERATORS: &[Operator] = &[moves("Shape", shape), moves("Size", size)];

fn shape(n: &mut Importer<'_>) -> Result<(), Declined> {
    n.bound(0)?;
    let dims = n.bound_dims(n.input_index(0)?).expect("the input is bound");
    let rank = dims.len() as i64;
    let place = |place: i64| (if place < 0 { place + rank } else { place }).clamp(0, rank) as usize;
    let (start, end) = (place(n.int("start", 0)), place(n.int("end", rank)));
    let part = dims.get(start..end).unwrap_or_default().to_vec();
    n.output_folded(0, Folded::whole(DataType::Int64, vec![part.len() as i64], part));
    Ok(())
}

fn size(n: &mut Importer<'_>) -> Result<(), Declined> {
    n.bound(0)?;
    let dims = n.bound_dims(n.input_index(0)?).expect("the input is bound");
    n.output_folded(0, Folded::whole(DataType::Int64, vec![], vec![dims.iter().product()]));
    Ok(())
}

impl Importer<'_> {
    /// True if an input was folded: constants of the model alone are the runtime's to fold.
    pub(super) fn has_folded_input(&self) -> bool {
        let mut inputs = self.node().inputs.iter().flatten();
        inputs.any(|value| matches!(self.bound.get(value), Some(Bound::Folded(_))))
    }

    /// Folds a node of whole numbers whose inputs are all known; `None` if it is none, or they are not.
    pub(super) fn fold(&mut self) -> Result<Option<()>, Declined> {
        if !self.has_folded_input() {
            return Ok(None);
        }
        let mut operands = Vec::new();
        for index in 0..self.node().inputs.len() {
            let Some(folded) = self.folded(index)? else { return Ok(None) };
            operands.push(folded);
        }
        let folded = match (self.node().op_type.as_str(), operands.as_slice()) {
            ("Cast", [x]) => {
                let to = data_type(ElementType(self.int("to", 0) as _))?;
                x.cast(to)
            }
            ("Neg", [x]) => return self.fold_unary(x, i64::wrapping_neg).map(Some),
            ("Abs", [x]) => return self.fold_unary(x, i64::wrapping_abs).map(Some),
            ("Where", [predicate, a, b]) => {
                let (Some(predicate_values), Some(_), Some(_)) = (predicate.ints(), a.ints(), b.ints()) else {
                    return Ok(None);
                };
                let dims = broadcast(&predicate.dims, &broadcast(&a.dims, &b.dims)?)?;
                let (a_ints, b_ints) = (a.ints().unwrap_or_default(), b.ints().unwrap_or_default());
                let values = broadcast_places(&dims, &[&predicate.dims, &a.dims, &b.dims])?
                    .into_iter()
                    .map(|at| if predicate_values[at[0]] != 0 { a_ints[at[1]] } else { b_ints[at[2]] })
                    .collect();
                Folded::whole(a.data_type, dims.into_vec(), values)
            }
            (operator, [a, b]) => match self.fold_binary(operator, a, b)? {
                Some(folded) => folded,
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        self.output_folded(0, folded);
        Ok(Some(()))
    }

    fn fold_unary(&mut self, x: &Folded, function: fn(i64) -> i64) -> Result<(), Declined> {
        let Some(values) = x.ints() else { return declined("only whole numbers are folded") };
        let folded = Folded::whole(x.data_type, x.dims.clone(), values.into_iter().map(function).collect());
        self.output_folded(0, folded);
        Ok(())
    }

    fn fold_binary(&self, operator: &str, a: &Folded, b: &Folded) -> Result<Option<Folded>, Declined> {
        let to = if matches!(operator, "Equal" | "Less" | "Greater") { DataType::Boolean } else { a.data_type };
        if let (Some(left), Some(right)) = (a.ints(), b.ints()) {
            let function: fn(i64, i64) -> Option<i64> = match operator {
                "Add" => |a, b| a.checked_add(b),
                "Sub" => |a, b| a.checked_sub(b),
                "Mul" => |a, b| a.checked_mul(b),
                "Div" => |a, b| a.checked_div(b),
                "Max" => |a, b| Some(a.max(b)),
                "Min" => |a, b| Some(a.min(b)),
                "Equal" => |a, b| Some(i64::from(a == b)),
                "Less" => |a, b| Some(i64::from(a < b)),
                "Greater" => |a, b| Some(i64::from(a > b)),
                _ => return Ok(None),
            };
            let dims = broadcast(&a.dims, &b.dims)?;
            let places = broadcast_places(&dims, &[&a.dims, &b.dims])?;
            let values: Option<Vec<i64>> = places.into_iter().map(|at| function(left[at[0]], right[at[1]])).collect();
            let Some(values) = values else { return declined("shape arithmetic overflows or divides by zero") };
            return Ok(Some(Folded::whole(to, dims.into_vec(), values)));
        }
        let function: fn(f64, f64) -> f64 = match operator {
            "Add" => |a, b| a + b,
            "Sub" => |a, b| a - b,
            "Mul" => |a, b| a * b,
            "Div" => |a, b| a / b,
            _ => return Ok(None),
        };
        let (left, right) = (a.floats(), b.floats());
        let dims = broadcast(&a.dims, &b.dims)?;
        let places = broadcast_places(&dims, &[&a.dims, &b.dims])?;
        let values = places.into_iter().map(|at| function(left[at[0]], right[at[1]])).collect();
        Ok(Some(Folded::real(a.data_type, dims.into_vec(), values).cast(a.data_type)))
    }
}

/// For each element of a result of extents `dims`, the places of the elements of operands that broadcast to it.
fn broadcast_places(dims: &[i64], operands: &[&[i64]]) -> Result<Vec<Vec<usize>>, Declined> {
    let count: i64 = dims.iter().product();
    if count > MOST_ELEMENTS as i64 {
        return declined("the result is too large to be folded");
    }
    let strides: Vec<Vec<i64>> = operands
        .iter()
        .map(|own| {
            let packed = hipdnn_schemas::packed_strides(own);
            let missing = dims.len() - own.len();
            let stride = |axis: usize| match axis.checked_sub(missing) {
                Some(at) if own[at] != 1 => packed[at],
                _ => 0,
            };
            (0..dims.len()).map(stride).collect()
        })
        .collect();
    let whole = hipdnn_schemas::packed_strides(dims);
    let place = |element: i64, strides: &[i64]| {
        (0..dims.len()).map(|axis| element / whole[axis] % dims[axis] * strides[axis]).sum::<i64>() as usize
    };
    Ok((0..count).map(|element| strides.iter().map(|strides| place(element, strides)).collect()).collect())
}
