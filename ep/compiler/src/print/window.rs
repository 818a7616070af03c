//! Windows as slices: the elements of a packed tensor that a strided window names, where a slice can name them.

use hipdnn_schemas::packed_strides;

/// A slice: the first element and the step along each dimension.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slice {
    pub starts: Vec<i64>,
    pub steps: Vec<i64>,
}

/// The slice of a packed tensor that a window of extents, strides and a first element (in elements) is; `None` if it is
/// none, as a transposed one is not.
pub(super) fn slice(of: &[i64], dims: &[i64], strides: &[i64], offset: i64) -> Option<Slice> {
    if of.len() != dims.len() || of.contains(&0) || dims.contains(&0) || offset < 0 {
        return None;
    }
    let packed = packed_strides(of);
    let mut rest = offset;
    let mut starts = Vec::new();
    let mut steps = Vec::new();
    for axis in 0..of.len() {
        let start = rest / packed[axis];
        rest %= packed[axis];
        let step = if dims[axis] == 1 { 1 } else { strides[axis] / packed[axis] };
        let exact = dims[axis] == 1 || strides[axis] % packed[axis] == 0;
        if !exact || step < 1 || start + (dims[axis] - 1) * step >= of[axis] {
            return None;
        }
        starts.push(start);
        steps.push(step);
    }
    (rest == 0).then_some(Slice { starts, steps })
}

/// For each dimension of the coarser of two shapes the dimensions of the finer one that are its factors, in order; `None`
/// if neither shape refines the other.
pub(super) fn reassociation(fine: &[i64], coarse: &[i64]) -> Option<Vec<Vec<usize>>> {
    let mut groups = Vec::new();
    let mut next = 0;
    for extent in coarse {
        let mut group = vec![next];
        let mut product = *fine.get(next)?;
        next += 1;
        while product < *extent {
            product *= *fine.get(next)?;
            group.push(next);
            next += 1;
        }
        if product != *extent {
            return None;
        }
        groups.push(group);
    }
    // What is left are dimensions of extent 1 behind the last group.
    let last = groups.last_mut()?;
    for (axis, extent) in fine.iter().enumerate().skip(next) {
        if *extent != 1 {
            return None;
        }
        last.push(axis);
    }
    Some(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices() {
        let some = |starts: &[i64], steps: &[i64]| Some(Slice { starts: starts.to_vec(), steps: steps.to_vec() });
        for (of, dims, strides, offset, want) in [
            (&[4, 6][..], &[2, 3][..], &[6, 1][..], 8, some(&[1, 2], &[1, 1])),
            (&[4, 6], &[2, 3], &[12, 2], 1, some(&[0, 1], &[2, 2])),
            (&[4, 6], &[1, 3], &[99, 1], 18, some(&[3, 0], &[1, 1])),
            (&[4, 6], &[6, 4], &[1, 6], 0, None),
            (&[4, 6], &[2, 6], &[0, 1], 0, None),
            (&[4, 6], &[24], &[1], 0, None),
            (&[4, 6], &[2, 6], &[6, 1], 3, None),
            (&[4, 6], &[2, 3], &[-6, 1], 8, None),
            (&[4, 0], &[4, 0], &[1, 1], 0, None),
            (&[], &[], &[], 0, some(&[], &[])),
        ] {
            assert_eq!(slice(of, dims, strides, offset), want, "{dims:?} with {strides:?} from {offset} of {of:?}");
        }
    }

    #[test]
    fn reassociations() {
        for (fine, coarse, want) in [
            (&[2, 3, 4][..], &[6, 4][..], Some(vec![vec![0, 1], vec![2]])),
            (&[1, 16, 1, 1], &[16], Some(vec![vec![0, 1, 2, 3]])),
            (&[2, 1, 3], &[2, 3], Some(vec![vec![0], vec![1, 2]])),
            (&[2, 3], &[2, 3], Some(vec![vec![0], vec![1]])),
            (&[2, 6], &[4, 3], None),
            (&[2, 3, 2], &[2, 3], None),
            (&[2], &[2, 1], None),
            (&[1], &[], None),
            (&[0, 3], &[0], None),
        ] {
            assert_eq!(reassociation(fine, coarse), want, "{fine:?} of {coarse:?}");
        }
    }
}
