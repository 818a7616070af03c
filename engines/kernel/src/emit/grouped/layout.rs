//! Loop simplification: collapses and reorders loops over groups and members, in the order of memory.

use super::{Access, Bound};

/// Loops over groups and loops over members, with the accesses along them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loops {
    /// Extents, outermost first: those of the groups, then those of the members.
    pub(super) extents: Vec<u64>,
    /// Number of loops over groups.
    pub(super) split: usize,
    /// Accesses, whose lists have an entry for each loop.
    pub(super) places: Vec<Access>,
    /// Access that covers the most bytes, and the size of its elements.
    main: Option<(usize, usize)>,
}

impl Loops {
    /// Simplified loops: loops of extent 1 are dropped, the rest is ordered from the largest stride to the smallest in
    /// the access that covers the most bytes, and loops that are contiguous in every access are collapsed. `bytes` are
    /// the element sizes of the accesses, 0 where one is not in memory.
    pub(super) fn new(groups: &[usize], members: &[usize], mut places: Vec<Access>, bytes: &[usize]) -> Loops {
        let mut extents: Vec<u64> = groups.iter().chain(members).map(|extent| *extent as u64).collect();
        let split = groups.len();
        if members.contains(&0) {
            // One loop that is never entered.
            extents.truncate(split);
            extents.push(0);
            for list in places.iter_mut().flat_map(Access::lists) {
                list.truncate(split);
                list.push(0);
            }
        }
        for place in &mut places {
            simplify(place, &extents);
        }
        let covered = |place: &Access| {
            let along = extents.iter().enumerate().filter(|(l, _)| distance(place, *l) != 0);
            along.fold(1u64, |product, (_, extent)| product.saturating_mul(*extent))
        };
        let sizes: Vec<u64> =
            places.iter().zip(bytes).map(|(place, bytes)| covered(place).saturating_mul(*bytes as u64)).collect();
        let main = (0..places.len()).filter(|p| sizes[*p] > 0).reduce(|a, b| if sizes[b] > sizes[a] { b } else { a });
        let main = main.map(|main| (main, bytes[main]));
        let part = |range: std::ops::Range<usize>| {
            let mut order: Vec<usize> = range.filter(|l| extents[*l] != 1).collect();
            // What repeats goes outermost.
            order.sort_by_key(|l| {
                let distance = main.map_or(1, |(main, _)| distance(&places[main], *l));
                std::cmp::Reverse(if distance == 0 { u64::MAX } else { distance })
            });
            order
        };
        let (outer, inner) = (part(0..split), part(split..extents.len()));
        let order = [&outer[..], &inner[..]].concat();
        for list in places.iter_mut().flat_map(Access::lists) {
            *list = order.iter().map(|l| list[*l]).collect();
        }
        let extents = order.iter().map(|l| extents[*l]).collect();
        let mut loops = Loops { extents, split: outer.len(), places, main };
        loops.join();
        loops
    }

    fn join(&mut self) {
        for l in (1..self.extents.len()).rev() {
            let extent = self.extents[l];
            let behind = |list: &&mut Vec<i64>| i128::from(list[l - 1]) == i128::from(list[l]) * i128::from(extent);
            if l == self.split || !self.places.iter_mut().flat_map(Access::lists).all(|list| behind(&list)) {
                continue;
            }
            // An overflow shows in `count`.
            self.extents[l - 1] = self.extents[l - 1].saturating_mul(extent);
            self.extents.remove(l);
            self.split -= usize::from(l < self.split);
            for list in self.places.iter_mut().flat_map(Access::lists) {
                list.remove(l - 1);
            }
        }
    }

    /// Simplified loops of a kernel without reductions, whose elements are numbered by one list of loops: the innermost
    /// one is that of the members. `bytes` are those of the accesses that are stored to.
    pub(super) fn elementwise(extents: &[usize], places: Vec<Access>, bytes: &[usize]) -> Loops {
        let mut loops = Loops::new(extents, &[], places, bytes);
        loops.split = loops.extents.len().saturating_sub(1);
        loops
    }

    /// Number of groups, and of a group's members; `None` on overflow.
    pub(super) fn count(&self) -> Option<(u64, u64)> {
        let (groups, members) = self.extents.split_at(self.split);
        let product = |extents: &[u64]| extents.iter().try_fold(1u64, |product, extent| product.checked_mul(*extent));
        Some((product(groups)?, product(members)?))
    }

    /// Largest distance of an element from an access's offset, and largest number in index arithmetic; `None` on
    /// overflow.
    pub(super) fn reach(&self) -> Option<(u64, u64)> {
        let along = |steps: &[i64]| {
            self.extents.iter().zip(steps).try_fold(0u64, |sum, (extent, step)| {
                sum.checked_add(extent.saturating_sub(1).checked_mul(step.unsigned_abs())?)
            })
        };
        let (mut far, mut most) = (0u64, 0u64);
        for place in &self.places {
            let mut distance = along(&place.strides)?;
            for bound in &place.bounds {
                let index = along(&bound.steps)?.checked_add(bound.offset.unsigned_abs())?;
                most = most.max(index).max(bound.extent).max(bound.divisor);
                let side = bound.extent.saturating_sub(1).checked_mul(bound.stride.unsigned_abs())?;
                distance = distance.checked_add(side)?;
            }
            far = far.max(distance);
        }
        Some((far, most.max(far)))
    }

    /// Extent of the innermost loop if the main access is contiguous along it, else 0.
    pub(super) fn contiguous(&self) -> u64 {
        match (self.main, self.extents.last()) {
            (Some((main, _)), Some(extent)) if distance(&self.places[main], self.extents.len() - 1) == 1 => *extent,
            _ => 0,
        }
    }

    /// Size of the main access's elements in bytes.
    pub(super) fn element_bytes(&self) -> Option<usize> {
        self.main.map(|(_, bytes)| bytes)
    }

    /// Strides of the main access along the innermost loop of the groups and along that of the members; `None` where
    /// there is no such loop or the stride is 0.
    pub(super) fn neighbors(&self) -> (Option<u64>, Option<u64>) {
        let along = |loops: std::ops::Range<usize>| {
            let distance = distance(&self.places[self.main?.0], loops.last()?);
            (distance != 0).then_some(distance)
        };
        (along(0..self.split), along(self.split..self.extents.len()))
    }
}

/// Approximate stride of an access along a loop, in elements.
fn distance(place: &Access, l: usize) -> u64 {
    let bounds = place.bounds.iter().map(|bound| {
        let step = i128::from(bound.steps[l]) * i128::from(bound.stride);
        // What is less than an element is not nothing.
        let whole = step / i128::from(bound.divisor);
        if whole == 0 { step.signum() } else { whole }
    });
    let sum = bounds.fold(i128::from(place.strides[l]), |sum, step| sum.saturating_add(step));
    u64::try_from(sum.unsigned_abs()).unwrap_or(u64::MAX)
}

/// Folds exact divisions into the steps and drops bounds that always hold.
fn simplify(place: &mut Access, extents: &[u64]) {
    let Access { offset, strides, bounds } = place;
    bounds.retain_mut(|bound| {
        let moved = |l: &usize| extents[*l] > 1;
        let divides = |number: i64| i128::from(number) % i128::from(bound.divisor) == 0;
        if divides(bound.offset) && (0..extents.len()).filter(moved).all(|l| divides(bound.steps[l])) {
            let divisor = i128::from(bound.divisor);
            let divide = |number: i64| (i128::from(number) / divisor) as i64;
            bound.offset = divide(bound.offset);
            bound.steps.iter_mut().for_each(|step| *step = divide(*step));
            bound.divisor = 1;
        }
        let (mut least, mut most) = (i128::from(bound.offset), i128::from(bound.offset));
        for (extent, step) in extents.iter().zip(&bound.steps) {
            let last = (i128::from(*extent) - 1).max(0).saturating_mul(i128::from(*step));
            if last < 0 { least = least.saturating_add(last) } else { most = most.saturating_add(last) }
        }
        if bound.divisor != 1 || least < 0 || most >= i128::from(bound.extent) {
            return true;
        }
        // What overflows here lies too far away, as `reach` sees.
        *offset = offset.saturating_add(bound.offset.saturating_mul(bound.stride));
        for (stride, step) in strides.iter_mut().zip(&bound.steps) {
            *stride = stride.saturating_add(step.saturating_mul(bound.stride));
        }
        false
    });
}

impl Access {
    /// Lists with an entry for every loop.
    fn lists(&mut self) -> impl Iterator<Item = &mut Vec<i64>> {
        std::iter::once(&mut self.strides).chain(self.bounds.iter_mut().map(|bound| &mut bound.steps))
    }

    /// True if the access is invariant over the members, whose loops begin at `split`.
    pub(super) fn is_fixed(&self, split: usize) -> bool {
        let nothing = |steps: &[i64]| steps[split..].iter().all(|step| *step == 0);
        nothing(&self.strides) && self.bounds.iter().all(|bound: &Bound| nothing(&bound.steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(strides: &[i64]) -> Access {
        Access { offset: 0, strides: strides.to_vec(), bounds: Vec::new() }
    }

    fn bounded(offset: i64, steps: &[i64], divisor: u64, extent: u64, stride: i64) -> Access {
        let bound = Bound { offset, steps: steps.to_vec(), divisor, extent, stride };
        Access { offset: 5, strides: vec![0; steps.len()], bounds: vec![bound] }
    }

    #[test]
    fn loops_are_joined_and_follow_memory() {
        // (what, groups, members, places, wanted: extents, how many of them are groups', strides of each place)
        type Case<'a> = (&'a str, &'a [usize], &'a [usize], &'a [&'a [i64]], &'a [u64], usize, &'a [&'a [i64]]);
        let cases: &[Case<'_>] = &[
            ("rows", &[5], &[70], &[&[70, 1], &[1, 0]], &[5, 70], 1, &[&[70, 1], &[1, 0]]),
            ("rows that lie behind each other", &[4, 5], &[3, 2], &[&[30, 6, 2, 1]], &[20, 6], 1, &[&[6, 1]]),
            ("channels", &[3], &[4, 5, 7], &[&[35, 105, 7, 1]], &[3, 4, 35], 1, &[&[35, 105, 1]]),
            ("channels last", &[3], &[4, 5, 7], &[&[1, 105, 21, 3]], &[3, 140], 1, &[&[1, 3]]),
            ("an order that is not memory's", &[4], &[6, 5], &[&[30, 1, 6]], &[4, 30], 1, &[&[30, 1]]),
            (
                "a smaller tensor has another order",
                &[4],
                &[6, 5],
                &[&[0, 5, 1], &[30, 1, 6]],
                &[4, 5, 6],
                1,
                &[&[0, 1, 5], &[30, 6, 1]],
            ),
            (
                "a scale of the members",
                &[4],
                &[6, 5],
                &[&[30, 5, 1], &[0, 0, 1]],
                &[4, 6, 5],
                1,
                &[&[30, 5, 1], &[0, 0, 1]],
            ),
            ("what repeats", &[4], &[6, 5], &[&[5, 0, 1]], &[4, 6, 5], 1, &[&[5, 0, 1]]),
            ("what repeats is outermost", &[4], &[5, 6], &[&[5, 1, 0]], &[4, 6, 5], 1, &[&[5, 0, 1]]),
            ("one group", &[1, 1], &[6], &[&[9, 9, 1]], &[6], 0, &[&[1]]),
            ("one member", &[7], &[1], &[&[3, 9]], &[7], 1, &[&[3]]),
            ("neither", &[], &[], &[&[]], &[], 0, &[&[]]),
            ("no members", &[7], &[3, 0], &[&[3, 9, 1]], &[7, 0], 1, &[&[3, 0]]),
            ("groups and members are not joined", &[4], &[5], &[&[5, 1]], &[4, 5], 1, &[&[5, 1]]),
        ];
        for (what, groups, members, places, extents, split, strides) in cases {
            let loops = Loops::new(groups, members, places.iter().map(|p| place(p)).collect(), &vec![4; places.len()]);
            let got: Vec<&[i64]> = loops.places.iter().map(|place| &place.strides[..]).collect();
            assert_eq!((&loops.extents[..], loops.split, &got[..]), (*extents, *split, *strides), "{what}");
            let product = |extents: &[usize]| extents.iter().product::<usize>() as u64;
            assert_eq!(loops.count(), Some((product(groups), product(members))), "{what}");
        }
    }

    #[test]
    fn bounds_that_nothing_leaves_become_strides() {
        // (what, the place, wanted: offset and strides, or nothing)
        let cases = [
            ("all of it", bounded(0, &[2, 1], 1, 11, 3), Some((5, [6, 3]))),
            ("beyond the end", bounded(0, &[2, 1], 1, 10, 3), None),
            ("before the beginning", bounded(-1, &[2, 1], 1, 20, 3), None),
            ("backwards from the end", bounded(10, &[-2, -1], 1, 11, 3), Some((35, [-6, -3]))),
            ("backwards beyond the beginning", bounded(9, &[-2, -1], 1, 11, 3), None),
            ("a division that leaves nothing", bounded(4, &[2, 6], 2, 99, 3), Some((11, [3, 9]))),
            ("a division that leaves something", bounded(4, &[2, 3], 2, 99, 3), None),
        ];
        for (what, access, want) in cases {
            let mut loops = Loops::new(&[5], &[3], vec![access], &[4]);
            let place = loops.places.remove(0);
            let got = place.bounds.is_empty().then_some((place.offset, place.strides));
            assert_eq!(got, want.map(|(offset, strides)| (offset, strides.to_vec())), "{what}");
        }
    }

    #[test]
    fn reach_is_that_of_the_farthest_element() {
        let reach = |groups: &[usize], places: Vec<Access>| {
            let bytes = vec![4; places.len()];
            Loops::new(groups, &[3], places, &bytes).reach()
        };
        assert_eq!(reach(&[5], vec![place(&[-100, 7]), place(&[1, 1])]), Some((414, 414)));
        // Index 3 of stride 50, and the number 1000 before the division.
        assert_eq!(reach(&[5], vec![bounded(1000, &[1, 1], 7, 4, 50)]), Some((150, 1006)));
        assert_eq!(reach(&[usize::MAX], vec![place(&[3, 1])]), None);
        let loops = Loops::new(&[usize::MAX, 3], &[1], vec![place(&[3, 1, 0])], &[1]);
        assert_eq!(loops.count(), Some((u64::MAX, 1)), "saturated");
    }

    #[test]
    fn neighbors_are_those_of_the_largest_tensor() {
        // (what, places, bytes of each, wanted)
        let cases = [
            ("rows", vec![place(&[70, 1]), place(&[1, 0])], vec![4, 4], (Some(70), Some(1))),
            ("columns", vec![place(&[0, 2]), place(&[-1, 50])], vec![8, 2], (Some(1), Some(50))),
            ("what repeats", vec![place(&[0, 3])], vec![1], (None, Some(3))),
            ("nothing in memory", vec![place(&[70, 1])], vec![0], (None, None)),
            ("windows", vec![bounded(-1, &[2, 1], 1, 9, 3)], vec![4], (Some(6), Some(3))),
            ("divided", vec![bounded(1, &[1, -1], 2, 9, 1)], vec![4], (Some(1), Some(1))),
        ];
        for (what, places, bytes, want) in cases {
            assert_eq!(Loops::new(&[50], &[40], places, &bytes).neighbors(), want, "{what}");
        }
    }
}
