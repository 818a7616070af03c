//! Affine indices of tensors in loop nests.

use crate::ir::elementwise::Argument;
use crate::ir::group::{AffineExpr, IndexMap, Input};

/// Indices at which an argument of those extents is read for a result's element.
pub(super) fn along(argument: &Argument, dims: &[usize], at: &IndexMap) -> IndexMap {
    let loops = at.first().map_or(0, |line| line.steps.len());
    let repeated = dims.iter().all(|extent| *extent == 1);
    let line = |(dimension, extent): (usize, &usize)| {
        let axis = argument.axes.as_ref().map_or(dimension, |axes| axes[dimension]);
        if repeated || *extent == 1 { AffineExpr::fixed(loops) } else { at[axis].clone() }
    };
    dims.iter().enumerate().map(line).collect()
}

/// Loop index that an affine index equals, if it is one.
pub(super) fn index(line: &AffineExpr, loops: &[usize]) -> Option<Input> {
    let line = line.plain(loops);
    let mut steps = line.steps.iter().enumerate().filter(|(_, step)| **step != 0);
    match (line.offset, line.divisor, steps.next(), steps.next()) {
        (0, 1, None, _) => Some(Input::Literal(0.0)),
        (0, 1, Some((which, 1)), None) => Some(Input::Index(which)),
        _ => None,
    }
}

/// True if an index never leaves a dimension of that extent.
pub fn stays_within(line: &AffineExpr, loops: &[usize], extent: usize) -> bool {
    let reach = |step: &i64, count: &usize| i128::from(*step) * (*count as i128 - 1);
    let reaches = || line.steps.iter().zip(loops).map(|(step, count)| reach(step, count));
    let least = i128::from(line.offset) + reaches().map(|reach| reach.min(0)).sum::<i128>();
    let most = i128::from(line.offset) + reaches().map(|reach| reach.max(0)).sum::<i128>();
    line.divisor == 1 && least >= 0 && most < extent as i128
}

/// True if two index maps are equal over the loops.
pub(super) fn same_places(a: &[AffineExpr], b: &[AffineExpr], loops: &[usize]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.plain(loops) == b.plain(loops))
}

/// True if the loops visit each element of a tensor exactly once.
pub(super) fn is_whole(at: &[AffineExpr], dims: &[usize], loops: &[usize]) -> bool {
    let mut free: Vec<bool> = loops.iter().map(|extent| *extent > 1).collect();
    let follows = at.iter().zip(dims).all(|(line, dim)| {
        let line = line.plain(loops);
        let mut steps = line.steps.iter().enumerate().filter(|(_, step)| **step != 0);
        let is_loop = match (steps.next(), steps.next()) {
            (None, _) => *dim == 1,
            (Some((which, 1)), None) => loops[which] == *dim && std::mem::replace(&mut free[which], false),
            _ => false,
        };
        is_loop && stays_within(&line, loops, *dim)
    });
    follows && !free.contains(&true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hipdnn_schemas::TensorUid;

    #[test]
    fn indices_follow_the_axes() {
        // Axes of the argument, its extents, the rank of the result; wanted: the loop that each index runs along.
        type Case<'a> = (Option<Vec<usize>>, &'a [usize], usize, &'a [Option<usize>]);
        let cases: [Case<'_>; 6] = [
            (None, &[2, 3, 4], 3, &[Some(0), Some(1), Some(2)]),
            (None, &[1, 3, 1], 3, &[None, Some(1), None]),
            (None, &[1], 4, &[None]),
            (Some(vec![1]), &[5], 4, &[Some(1)]),
            (Some(vec![1, 0, 2]), &[2, 3, 4], 3, &[Some(1), Some(0), Some(2)]),
            (Some(vec![1, 1]), &[5, 1], 2, &[Some(1), None]),
        ];
        for (axes, dims, rank, want) in cases {
            let argument = Argument { tensor: TensorUid(0), axes };
            let at = (0..rank).map(|axis| AffineExpr::along(rank, axis)).collect();
            let line = |of: &Option<usize>| of.map_or(AffineExpr::fixed(rank), |which| AffineExpr::along(rank, which));
            assert_eq!(along(&argument, dims, &at), want.iter().map(line).collect::<IndexMap>(), "{argument:?}");
        }
    }
}
