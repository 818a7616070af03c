//! Products of matrices.

use hipdnn_schemas::Matmul;

use super::Step;
use crate::array::Array;

/// `c[.., i, j] = Σ a[.., i, k] · b[.., k, j]`; extents of 1 before the last two dimensions broadcast.
pub(super) fn matmul(step: &mut Step, node: &Matmul) -> Result<(), String> {
    let (a, b) = (step.operand(node.a)?, step.operand(node.b)?);
    let arithmetic = step.arithmetic;
    let rank = a.dims.len();
    let depth = a.dims[rank - 1];
    let clip = |index: usize, extent: usize| if extent == 1 { 0 } else { index };
    let c = Array::from_fn(step.tensor(node.c).dims(), |at| {
        let mut left: Vec<usize> = at.iter().zip(&a.dims).map(|(i, extent)| clip(*i, *extent)).collect();
        let mut right: Vec<usize> = at.iter().zip(&b.dims).map(|(i, extent)| clip(*i, *extent)).collect();
        left[rank - 2] = at[rank - 2];
        right[rank - 1] = at[rank - 1];
        let mut sum = arithmetic.sum();
        for k in 0..depth {
            left[rank - 1] = k;
            right[rank - 2] = k;
            sum.push_product(a.at(&left), b.at(&right));
        }
        sum.finish()
    });
    step.write(node.c, c);
    Ok(())
}
