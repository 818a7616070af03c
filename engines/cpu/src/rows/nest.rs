//! Loop nests of rows: which loop is vectorized, and the paths of operands through the others.

use super::values::Values;

/// Loop nest: groups, and members of each, with one of the loops vectorized.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Nest {
    /// Extents of the loops that number groups, outermost first, but for the innermost one.
    pub(super) groups: Vec<usize>,
    /// Extent of the innermost loop of the groups: neighbors there may be worked on together.
    pub(super) inner: usize,
    /// Extents of the loops that number members, outermost first, but for that of the lanes.
    pub(super) members: Vec<usize>,
    /// Extent of the loop of the members that is vectorized; 1 where that is the innermost one of the groups.
    pub(super) lanes: usize,
    /// True if lanes are members of one group, false if they are groups.
    pub(super) along_members: bool,
    /// Path of each view.
    pub(super) paths: Vec<Path>,
}

/// Path of a view through a nest: its strides, and its first element.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Path {
    pub(super) offset: usize,
    pub(super) groups: Vec<usize>,
    pub(super) inner: usize,
    pub(super) members: Vec<usize>,
    pub(super) lane: usize,
}

/// Loop with the stride of each view.
#[derive(Clone)]
struct Loop {
    extent: usize,
    strides: Vec<usize>,
}

impl Nest {
    /// Chooses the vectorized loop: the innermost one of the members or of the groups, along which most of what is read
    /// and written for members lies without gaps; it has at least `fewest` lanes. Without that number, either will do.
    ///
    /// # Errors
    /// Reason why neither would be fast.
    pub(super) fn new(values: &Values, fewest: Option<usize>) -> Result<Nest, &'static str> {
        let strides = |which: usize| values.views.iter().map(|view| view.strides[which]).collect();
        let all =
            values.loops.iter().enumerate().map(|(which, extent)| Loop { extent: *extent, strides: strides(which) });
        let all: Vec<Loop> = all.collect();
        let (groups, members) = all.split_at(values.groups);
        let is_of_members = |view: usize| members.iter().any(|l| l.extent > 1 && l.strides[view] > 0);
        // Views that are read or written for every member; the largest of them leads.
        let busy: Vec<usize> = (0..values.views.len()).filter(|view| is_of_members(*view)).collect();
        let visited = |view: &usize| all.iter().filter(|l| l.strides[*view] > 0).map(|l| l.extent).product::<usize>();
        let lead = match (busy.iter().rev().max_by_key(|view| visited(view)), fewest) {
            (Some(lead), _) => *lead,
            // Each group has one member, or all members are the same: any view will do.
            (None, None) => 0,
            (None, Some(_)) => return Err("it reads nothing of its members"),
        };
        let [mut groups, mut members] = [groups, members].map(|loops| ordered(loops, lead));
        let score = |loops: &[Loop]| {
            let lane = loops.last().filter(|lane| fewest.is_none_or(|fewest| lane.extent >= fewest))?;
            Some(busy.iter().filter(|view| lane.strides[**view] <= 1).count())
        };
        let (of_groups, of_members) = (score(&groups), score(&members));
        if fewest.is_some() && of_groups.max(of_members).ok_or("its rows are too short")? * 2 < busy.len() {
            return Err("its rows are scattered in memory");
        }
        let along_members = of_members >= of_groups;
        let alone = || Loop { extent: 1, strides: vec![0; values.views.len()] };
        let inner = groups.pop().unwrap_or_else(alone);
        let lane = if along_members { members.pop() } else { None }.unwrap_or_else(alone);
        let path = |view: usize| Path {
            offset: values.views[view].offset,
            groups: groups.iter().map(|l| l.strides[view]).collect(),
            inner: inner.strides[view],
            members: members.iter().map(|l| l.strides[view]).collect(),
            lane: lane.strides[view],
        };
        let paths = (0..values.views.len()).map(path).collect();
        let extents = |loops: &[Loop]| loops.iter().map(|l| l.extent).collect();
        let (groups, members) = (extents(&groups), extents(&members));
        Ok(Nest { paths, groups, inner: inner.extent, members, lanes: lane.extent, along_members })
    }
}

/// Loops in the order in which the leading view lies in memory, those joined that are one to every view.
fn ordered(loops: &[Loop], lead: usize) -> Vec<Loop> {
    let mut loops: Vec<Loop> = loops.iter().filter(|l| l.extent > 1).cloned().collect();
    loops.sort_by_key(|l| std::cmp::Reverse(l.strides[lead]));
    let mut joined: Vec<Loop> = Vec::new();
    for inner in loops {
        match joined.last_mut() {
            Some(outer) if outer.strides.iter().zip(&inner.strides).all(|(o, i)| *o == i * inner.extent) => {
                *outer = Loop { extent: outer.extent * inner.extent, strides: inner.strides };
            }
            _ => joined.push(inner),
        }
    }
    joined
}

/// Offset of the `n`th place of nested loops.
pub(super) fn offset(extents: &[usize], strides: &[usize], n: usize) -> usize {
    let (mut offset, mut rest) = (0, n);
    for (extent, stride) in extents.iter().zip(strides).rev() {
        offset += rest % extent * stride;
        rest /= extent;
    }
    offset
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::values::View;
    use hipdnn_cpu_pointwise::Storage;

    fn values(loops: &[usize], groups: usize, views: &[&[usize]]) -> Values {
        let view = |(tensor, strides): (usize, &&[usize])| View {
            tensor,
            is_written: false,
            storage: Storage::F32,
            offset: 0,
            strides: strides.to_vec(),
        };
        Values {
            loops: loops.to_vec(),
            groups,
            inputs: Vec::new(),
            outputs: Vec::new(),
            views: views.iter().enumerate().map(view).collect(),
            values: Vec::new(),
            passes: Vec::new(),
            left: 0,
        }
    }

    #[test]
    fn lanes_are_what_lies_together() {
        // What, extents, number of loops of groups, strides of the views, and the nest: groups, the innermost of them,
        // members, lanes.
        type Case<'a> = (&'a str, &'a [usize], usize, &'a [&'a [usize]], (&'a [usize], usize, &'a [usize], usize));
        let cases: [Case<'_>; 5] = [
            ("rows", &[8, 5, 64], 2, &[&[320, 64, 1], &[5, 1, 0]], (&[], 40, &[], 64)),
            ("channels in the middle", &[2, 6, 7, 21], 3, &[&[882, 7, 1, 42]], (&[2], 42, &[21], 1)),
            ("channels last", &[2, 6, 7, 21], 3, &[&[882, 147, 21, 1]], (&[], 84, &[], 21)),
            ("sums of channels", &[3, 2, 6, 7], 1, &[&[42, 126, 7, 1]], (&[], 3, &[2], 42)),
            ("sums of channels, last", &[32, 2, 6, 7], 1, &[&[1, 1344, 224, 32]], (&[], 32, &[84], 1)),
        ];
        for (what, loops, groups, views, want) in cases {
            let nest = Nest::new(&values(loops, groups, views), Some(16)).unwrap();
            assert_eq!((&nest.groups[..], nest.inner, &nest.members[..], nest.lanes), want, "{what}");
        }
        for (what, loops, groups, views) in [
            ("too short", &[100, 5][..], 1, &[&[5, 1][..]][..]),
            ("scattered", &[100, 50], 1, &[&[100, 2]]),
            ("nothing", &[100, 50], 1, &[&[1, 0]]),
        ] {
            Nest::new(&values(loops, groups, views), Some(16)).expect_err(what);
            Nest::new(&values(loops, groups, views), None).expect(what);
        }
    }
}
