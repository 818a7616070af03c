//! Loop simplification: collapses tensors' dimensions to as few loops as possible.

/// Window of an input along a dimension of the output, where it is not simply strided: index `i` reads the tensor's
/// element `(i - begin) / step`, and zero where that is not a whole number from 0 to `extent - 1`.
///
/// With step 1 that is padding (or cropping, where `begin` is negative); a larger step inserts `step - 1` zeros between
/// adjacent elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Index that reads the first element.
    pub begin: i64,
    /// Extent of the tensor along this dimension.
    pub extent: u64,
    /// Distance of the indices that read adjacent elements; at least 1.
    pub step: u64,
}

/// Access of an element by the indices of the loops: at `offset + Σ index · stride`, through windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Offset in elements.
    pub(super) offset: i64,
    /// Axes, one for each dimension.
    pub(super) axes: Vec<Axis>,
}

/// A [`Place`] along one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    /// Stride in elements.
    pub(super) stride: i64,
    /// Window, outside of which reads are zero.
    pub(super) window: Option<Window>,
}

/// Loop nest over the output's elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loops {
    /// Extents, outermost first; at least one.
    pub(super) extents: Vec<u64>,
    /// Accesses of the input tensors, in order.
    pub(super) inputs: Vec<Place>,
    /// Access of the output.
    pub(super) output: Place,
}

impl Loops {
    /// Loops over `dims`: dimensions of extent 1 are dropped, the rest is ordered from the output's largest stride to
    /// its smallest, and dimensions that are contiguous in every tensor are collapsed.
    pub(super) fn new(dims: &[usize], mut inputs: Vec<Place>, mut output: Place) -> Loops {
        for (d, extent) in dims.iter().enumerate() {
            for place in &mut inputs {
                place.open(d, *extent as u64);
            }
        }
        let mut order: Vec<usize> = (0..dims.len())
            .filter(|d| dims[*d] != 1 || inputs.iter().any(|place| place.axes[*d].window.is_some()))
            .collect();
        order.sort_by_key(|d| std::cmp::Reverse(output.axes[*d].stride.unsigned_abs()));
        let mut extents: Vec<u64> = order.iter().map(|d| dims[*d] as u64).collect();
        for place in inputs.iter_mut().chain([&mut output]) {
            place.axes = order.iter().map(|d| place.axes[*d]).collect();
        }
        let mut inner = extents.len();
        while inner > 1 {
            inner -= 1;
            let joins = |place: &Place| place.axes[inner - 1].continues(&place.axes[inner], extents[inner]);
            if inputs.iter().chain([&output]).all(joins) {
                // An overflow shows in `reach`.
                extents[inner - 1] = extents[inner - 1].saturating_mul(extents[inner]);
                extents.remove(inner);
                for place in inputs.iter_mut().chain([&mut output]) {
                    place.axes.remove(inner - 1);
                }
            }
        }
        if extents.is_empty() {
            extents.push(1);
            for place in inputs.iter_mut().chain([&mut output]) {
                place.axes.push(Axis { stride: 0, window: None });
            }
        }
        Loops { extents, inputs, output }
    }

    /// Number of elements of the output; `None` on overflow.
    pub(super) fn elements(&self) -> Option<u64> {
        if self.extents.contains(&0) {
            return Some(0);
        }
        self.extents.iter().try_fold(1u64, |product, extent| product.checked_mul(*extent))
    }

    /// Largest distance of an element from the one of index 0, in any tensor; `None` on overflow.
    pub(super) fn reach(&self) -> Option<u64> {
        let of = |place: &Place| {
            let steps = self.extents.iter().zip(&place.axes);
            steps.into_iter().try_fold(0u64, |sum, (extent, axis)| {
                let indices = axis.window.map_or(*extent, |window| window.extent.max(*extent));
                sum.checked_add(indices.saturating_sub(1).checked_mul(axis.stride.unsigned_abs())?)
            })
        };
        self.inputs.iter().chain([&self.output]).try_fold(0, |most, place| Some(of(place)?.max(most)))
    }
}

impl Place {
    /// Drops a window that no index leaves.
    fn open(&mut self, dimension: usize, extent: u64) {
        let axis = &mut self.axes[dimension];
        let Some(Window { begin, extent: inside, step: 1 }) = axis.window else { return };
        let last = i128::from(extent) - 1 - i128::from(begin);
        if begin <= 0 && last < i128::from(inside) {
            // Such a product is the offset of an element of the tensor, or of nothing that is read.
            self.offset = self.offset.wrapping_sub(begin.wrapping_mul(axis.stride));
            axis.window = None;
        }
    }
}

impl Axis {
    /// True if the two axes can be collapsed: a step along this one goes as far as `extent` steps along the inner one.
    fn continues(&self, inner: &Axis, extent: u64) -> bool {
        let step = i128::from(inner.stride) * i128::from(extent);
        self.window.is_none() && inner.window.is_none() && i128::from(self.stride) == step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(strides: &[i64]) -> Place {
        Place { offset: 0, axes: strides.iter().map(|s| Axis { stride: *s, window: None }).collect() }
    }

    fn windowed(strides: &[i64], dimension: usize, begin: i64, extent: u64, step: u64) -> Place {
        let mut place = place(strides);
        place.axes[dimension].window = Some(Window { begin, extent, step });
        place
    }

    fn strides(place: &Place) -> Vec<i64> {
        place.axes.iter().map(|axis| axis.stride).collect()
    }

    #[test]
    fn dimensions_are_joined_where_all_tensors_allow_it() {
        // (what, dims, strides of the input, of the output, wanted: extents, input, output)
        type Case<'a> = (&'a str, &'a [usize], &'a [i64], &'a [i64], &'a [u64], &'a [i64], &'a [i64]);
        let cases: &[Case<'_>] = &[
            ("packed", &[2, 3, 4, 5], &[60, 20, 5, 1], &[60, 20, 5, 1], &[120], &[1], &[1]),
            ("per channel", &[2, 3, 4, 5], &[0, 1, 0, 0], &[60, 20, 5, 1], &[2, 3, 20], &[0, 1, 0], &[60, 20, 1]),
            ("both channels last", &[2, 3, 4, 5], &[60, 1, 15, 3], &[60, 1, 15, 3], &[120], &[1], &[1]),
            ("bias, channels last", &[2, 3, 4, 5], &[0, 1, 0, 0], &[60, 1, 15, 3], &[40, 3], &[0, 1], &[3, 1]),
            ("transposed", &[2, 3, 4, 5], &[60, 1, 15, 3], &[60, 20, 5, 1], &[2, 3, 20], &[60, 1, 3], &[60, 20, 1]),
            ("a scalar", &[7, 9], &[0, 0], &[9, 1], &[63], &[0], &[1]),
            ("padded rows", &[2, 3, 5], &[24, 8, 1], &[24, 8, 1], &[6, 5], &[8, 1], &[8, 1]),
            ("all ones", &[1, 1, 1], &[5, 4, 3], &[9, 8, 7], &[1], &[0], &[0]),
            ("ones between", &[4, 1, 5, 1], &[5, 99, 1, 7], &[5, 0, 1, 0], &[20], &[1], &[1]),
            ("no dimension", &[], &[], &[], &[1], &[0], &[0]),
            ("flipped", &[2, 3, 3], &[9, -3, -1], &[9, 3, 1], &[2, 9], &[9, -1], &[9, 1]),
            ("one flipped", &[2, 3, 3], &[9, 3, -1], &[9, 3, 1], &[6, 3], &[3, -1], &[3, 1]),
            ("nothing", &[2, 0, 3], &[3, 3, 1], &[3, 3, 1], &[2, 0], &[3, 1], &[3, 1]),
        ];
        for (what, dims, input, output, extents, want_input, want_output) in cases {
            let loops = Loops::new(dims, vec![place(input)], place(output));
            assert_eq!(
                (&loops.extents[..], strides(&loops.inputs[0]), strides(&loops.output)),
                (*extents, want_input.to_vec(), want_output.to_vec()),
                "{what}"
            );
            assert_eq!(loops.elements(), Some(dims.iter().product::<usize>() as u64), "{what}");
        }
    }

    /// Offset that each index reads, by the definition: `None` is a zero.
    fn reads(extents: &[u64], place: &Place) -> Vec<Option<i64>> {
        let total: u64 = extents.iter().product();
        let read = |mut n: u64| {
            let mut at = place.offset;
            for (extent, axis) in extents.iter().zip(&place.axes).rev() {
                let mut i = (n % extent) as i64;
                n /= extent;
                if let Some(window) = axis.window {
                    i -= window.begin;
                    if i < 0 || i % window.step as i64 != 0 || i / window.step as i64 >= window.extent as i64 {
                        return None;
                    }
                    i /= window.step as i64;
                }
                at += i * axis.stride;
            }
            Some(at)
        };
        (0..total).map(read).collect()
    }

    #[test]
    fn joined_loops_read_and_write_what_plain_ones_do() {
        let packed = [60, 20, 5, 1];
        let last = [60, 1, 15, 3];
        for (what, input) in [
            ("packed", place(&packed)),
            ("channels last", place(&last)),
            ("flipped", Place { offset: 59, axes: place(&[60, -20, -5, -1]).axes }),
            ("padded", windowed(&packed, 3, 2, 2, 1)),
            ("cropped", windowed(&packed, 2, -1, 9, 1)),
            ("cropped at the end", windowed(&packed, 2, -1, 3, 1)),
            ("zeros between", windowed(&packed, 3, 1, 2, 2)),
            ("padded batch of two", windowed(&packed, 0, 1, 1, 1)),
            ("broadcast", place(&[0, 7, 0, 0])),
        ] {
            for output in [&packed, &last] {
                let dims = [2usize, 3, 4, 5];
                let loops = Loops::new(&dims, vec![input.clone()], place(output));
                let pairs = |extents: &[u64], input: &Place, output: &Place| {
                    let mut pairs: Vec<_> = reads(extents, output).into_iter().zip(reads(extents, input)).collect();
                    pairs.sort();
                    pairs
                };
                assert_eq!(
                    pairs(&loops.extents, &loops.inputs[0], &loops.output),
                    pairs(&dims.map(|d| d as u64), &input, &place(output)),
                    "{what} to {output:?}"
                );
            }
        }
    }

    #[test]
    fn windows_that_nothing_leaves_are_taken_out() {
        for (what, window, open) in [
            ("all of it", (0, 5, 1), true),
            ("the middle", (-2, 9, 1), true),
            ("to the end", (-2, 7, 1), true),
            ("one beyond the end", (-2, 6, 1), false),
            ("one before", (1, 9, 1), false),
            ("a step", (0, 5, 2), false),
        ] {
            let (begin, extent, step) = window;
            let loops = Loops::new(&[5], vec![windowed(&[3], 0, begin, extent, step)], place(&[1]));
            assert_eq!(loops.inputs[0].axes[0].window.is_none(), open, "{what}");
            assert_eq!(loops.inputs[0].offset, if open { -begin * 3 } else { 0 }, "{what}");
        }
        // A single index beyond the tensor stays a loop: it reads zero.
        let loops = Loops::new(&[4, 1], vec![windowed(&[1, 1], 1, 1, 1, 1)], place(&[1, 1]));
        assert_eq!(loops.extents, [4, 1]);
    }

    #[test]
    fn sizes_that_overflow_are_seen() {
        let huge = usize::MAX / 2;
        let loops = Loops::new(&[huge, 3, 2], vec![place(&[0, 0, 0])], place(&[6, 2, 1]));
        assert_eq!((loops.elements(), loops.reach()), (Some(u64::MAX), Some(u64::MAX - 1)), "saturated");
        let loops = Loops::new(&[huge, 3], vec![place(&[1, 1])], place(&[9, 2]));
        assert_eq!((loops.elements(), loops.reach()), (None, None));
        let loops = Loops::new(&[10, 5], vec![place(&[1000, -3])], place(&[5, 1]));
        assert_eq!((loops.elements(), loops.reach()), (Some(50), Some(9012)));
        let loops = Loops::new(&[0, huge], vec![place(&[1, 1])], place(&[9, 2]));
        assert_eq!(loops.elements(), Some(0));
    }
}
