//! Reductions.

use hipdnn_schemas::{Reduction, ReductionMode};

use super::Step;
use crate::array::{Array, each_index};
use crate::number::{Arithmetic, Number, ulp};

/// Combines the elements that lie along the dimensions where only the output's extent is 1.
pub(super) fn reduction(step: &mut Step, node: &Reduction) -> Result<(), String> {
    let input = step.operand(node.input)?;
    let arithmetic = step.arithmetic;
    let dims = step.tensor(node.output).dims().to_vec();
    let mut groups = vec![Vec::new(); dims.iter().product()];
    each_index(&input.dims, |at| {
        let place =
            at.iter().zip(&dims).fold(0, |place, (i, extent)| place * extent + if *extent == 1 { 0 } else { *i });
        groups[place].push(input.at(at));
    });
    let data = groups.iter().map(|group| reduce(arithmetic, node.mode, group)).collect::<Result<_, _>>()?;
    step.write(node.output, Array { dims, data });
    Ok(())
}

fn reduce(arithmetic: Arithmetic, mode: ReductionMode, group: &[Number]) -> Result<Number, String> {
    let absolute = |x: &Number| Number { value: x.value.abs(), error: x.error };
    let mut sum = arithmetic.sum();
    Ok(match mode {
        ReductionMode::Add => {
            group.iter().for_each(|x| sum.push(*x));
            sum.finish()
        }
        ReductionMode::Average => {
            group.iter().for_each(|x| sum.push(*x));
            arithmetic.div(sum.finish(), Number::exact(group.len() as f64))
        }
        ReductionMode::Norm1 => {
            group.iter().for_each(|x| sum.push(absolute(x)));
            sum.finish()
        }
        ReductionMode::Norm2 => {
            group.iter().for_each(|x| sum.push_product(*x, *x));
            // A sum of squares is not below zero, whatever its bound says.
            arithmetic.monotone(sum.finish(), ulp::SQRT, |sum| if sum < 0.0 { 0.0 } else { sum.sqrt() })
        }
        ReductionMode::Mul => product(arithmetic, group.iter().copied()),
        ReductionMode::MulNoZeros => {
            if group.iter().any(|x| x.error > 0.0 && x.may_be_zero()) {
                Number::any()
            } else {
                product(arithmetic, group.iter().copied().filter(|x| x.value != 0.0))
            }
        }
        ReductionMode::Max => extreme(group.iter().copied(), f64::max),
        ReductionMode::Min => extreme(group.iter().copied(), f64::min),
        ReductionMode::AbsMax => extreme(group.iter().map(absolute), f64::max),
        ReductionMode::Unset => return Err("the reduction has no mode".into()),
    })
}

fn product(arithmetic: Arithmetic, factors: impl Iterator<Item = Number>) -> Number {
    let (mut product, mut largest, mut smallest) = (Number::exact(1.0), 1.0f64, 1.0f64);
    let (mut zero, mut infinite) = (false, false);
    for factor in factors {
        product = arithmetic.mul(product, factor);
        zero |= factor.may_be_zero();
        let magnitude = factor.magnitude();
        if !magnitude.is_finite() {
            infinite = true;
        } else if magnitude > 1.0 {
            largest *= magnitude;
        } else {
            smallest *= magnitude;
        }
    }
    // In another order, partial products may leave the range of the type: to a zero that no later factor brings back, or to
    // an infinity that only another one, and no zero, makes no difference to.
    let range = crate::format::Float::of(hipdnn_schemas::DataType::Float).expect("a float");
    let vanishes = !zero && smallest < range.smallest_normal() * 2f64.powi(24);
    let overflows = largest > range.largest() && (!infinite || zero);
    if vanishes || overflows { Number::any() } else { product }
}

/// The greatest or least: each end of the bound is that of the ends.
pub(super) fn extreme(numbers: impl Iterator<Item = Number>, pick: fn(f64, f64) -> f64) -> Number {
    let mut numbers = numbers.peekable();
    let Some(first) = numbers.peek().copied() else { return Number::any() };
    let (mut value, mut low, mut high) = (first.value, first.low(), first.high());
    for number in numbers {
        // Whether NaN wins depends on the engine.
        if number.is_any() || number.value.is_nan() {
            return Number::any();
        }
        value = pick(value, number.value);
        low = pick(low, number.low());
        high = pick(high, number.high());
    }
    if value.is_infinite() { Number::exact(value) } else { Number::new(value, (high - value).max(value - low)) }
}
