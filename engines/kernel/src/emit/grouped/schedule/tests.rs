//! Choices at the limits where they change.

use super::*;
use crate::emit::grouped::Bound;

fn place(strides: &[i64]) -> Access {
    Access { offset: 0, strides: strides.to_vec(), bounds: Vec::new() }
}

/// Bound of a dimension of 40 that moves along one of the loops.
fn bound(loops: usize, along: usize) -> Bound {
    let mut steps = vec![0; loops];
    steps[along] = 1;
    Bound { offset: -1, steps, divisor: 1, extent: 40, stride: 0 }
}

#[test]
fn vectors_along_members_are_as_wide_as_pays() {
    // (what, bytes of an element, extent, statements, bytes of all operands, element-wise, wanted)
    type Case<'a> = (&'a str, usize, usize, usize, usize, bool, Option<u32>);
    let cases: [Case<'_>; 21] = [
        ("sixteen bytes of halves", 2, 64, 0, 2, false, Some(8)),
        ("sixteen bytes of floats", 4, 64, 0, 4, false, Some(4)),
        ("bytes, of which eight are enough", 1, 64, 0, 1, false, Some(8)),
        ("doubles", 8, 64, 0, 8, false, Some(2)),
        ("few statements", 2, 64, 24, 2, false, Some(8)),
        ("one more", 2, 64, 25, 2, false, Some(4)),
        ("doubles of many statements", 8, 64, 25, 8, false, Some(2)),
        ("as many bytes as are under way", 2, 64, 0, 8, false, Some(8)),
        ("more", 2, 64, 0, 9, false, Some(4)),
        ("many more, which stay vectors", 2, 64, 0, 900, false, Some(4)),
        ("as many bytes as are under way at once", 2, 64, 0, 16, true, Some(8)),
        ("more at once", 2, 64, 0, 17, true, Some(4)),
        ("the shortest row", 2, 32, 0, 2, false, Some(8)),
        ("too short a row", 2, 31, 0, 2, false, None),
        ("too short a row, of vectors", 2, 24, 0, 2, false, None),
        ("a row that ends within a wide vector", 2, 36, 0, 2, false, Some(4)),
        ("a row that ends within any", 2, 33, 0, 2, false, Some(4)),
        ("the longest row of which that matters", 2, 255, 0, 2, false, Some(4)),
        ("a longer one", 2, 257, 0, 2, false, Some(8)),
        ("the shortest of these", 2, 260, 0, 2, true, Some(8)),
        ("floats that end within a vector", 4, 33, 0, 4, true, Some(4)),
    ];
    for (what, bytes, extent, statements, loaded, elements, want) in cases {
        let loops = Loops::new(&[1 << 15], &[extent], vec![place(&[extent as i64 + 3, 1])], &[bytes]);
        let got = Vector::of_members(&loops, statements, loaded, elements);
        assert_eq!(got, want.map(|width| Vector { axis: Axis::Members, width }), "{what}");
        let apart = Loops::new(&[1 << 15], &[extent], vec![place(&[1, 7])], &[bytes]);
        assert_eq!(Vector::of_members(&apart, statements, loaded, elements), None, "{what}, apart");
    }
}

#[test]
fn vectors_along_members_leave_no_lane_idle_that_a_wave_has() {
    // (what, groups, extents of members, element-wise, wanted)
    let cases: [(&str, usize, &[usize], bool, u32); 10] = [
        ("a lane for each member", 16, &[32], false, 1),
        ("a wave of pairs", 16, &[33], false, 2),
        ("the most members of pairs", 16, &[64], false, 2),
        ("more", 16, &[65], false, 4),
        ("the most vectors of a wave", 16, &[128], false, 4),
        ("rows of them", 16, &[2, 64], false, 4),
        ("element-wise", 16, &[32], true, 4),
        ("the most groups that leave lanes idle", 1 << 10, &[32], false, 1),
        ("more groups", (1 << 10) + 1, &[32], false, 2),
        ("so many that none is", 1 << 12, &[32], false, 4),
    ];
    for (what, groups, members, elements, want) in cases {
        let strides: &[i64] = if members.len() == 2 { &[4096, 64, 1] } else { &[4096, 1] };
        let loops = Loops::new(&[groups], members, vec![place(strides), place(&vec![0; strides.len()])], &[4, 0]);
        let got = Vector::of_members(&loops, 0, 4, elements);
        assert_eq!(got, Some(Vector { axis: Axis::Members, width: want }), "{what}");
    }
}

#[test]
fn vectors_along_groups_have_room_for_their_accumulators() {
    // (what, groups, statements, bytes of accumulators, values that are left behind, wanted)
    type Case<'a> = (&'a str, usize, usize, usize, usize, Option<u32>);
    let cases: [Case<'_>; 15] = [
        ("all that there is room for", 64, 0, 8, 0, Some(8)),
        ("many statements", 64, 25, 8, 0, Some(4)),
        ("room for four", 64, 0, 9, 0, Some(4)),
        ("just enough for four", 64, 0, 16, 0, Some(4)),
        ("room for two", 64, 0, 17, 0, Some(2)),
        ("just enough for two", 64, 0, 32, 0, Some(2)),
        ("room for one", 64, 0, 33, 0, None),
        ("what is left behind too", 64, 0, 8, 6, Some(8)),
        ("more of that", 64, 0, 8, 7, Some(4)),
        ("just enough for four of that", 64, 0, 8, 14, Some(4)),
        ("just enough for two of that", 64, 0, 8, 30, Some(2)),
        ("too much of that", 64, 0, 8, 31, None),
        ("four that divide the groups", 68, 0, 8, 0, Some(4)),
        ("two", 66, 0, 8, 0, Some(2)),
        ("none", 65, 0, 8, 0, None),
    ];
    for (what, groups, statements, folded, left, want) in cases {
        let loops = Loops::new(&[groups], &[9], vec![place(&[1, groups as i64 + 1])], &[2]);
        let got = Vector::of_groups(&loops, statements, folded, left);
        assert_eq!(got, want.map(|width| Vector { axis: Axis::Groups, width }), "{what}");
    }
    // Guards that are the same for all of a thread's groups do no harm.
    for (along, is_taken) in [(0, true), (1, false), (2, true)] {
        let guarded = Access { bounds: vec![bound(3, along)], ..place(&[999, 1, 50]) };
        let loops = Loops::new(&[5, 48], &[9], vec![guarded], &[2]);
        assert_eq!(loops.extents, [5, 48, 9]);
        let guards = loops.places[0].bounds.len();
        assert_eq!(Vector::of_groups(&loops, 0, 8, 0).is_some(), is_taken, "{guards} guards along loop {along}");
    }
    assert_eq!(Vector::of_groups(&Loops::new(&[], &[64], vec![place(&[1])], &[2]), 0, 8, 0), None, "no groups");
}

#[test]
fn few_members_of_short_programs_are_unrolled() {
    for (members, lanes, statements, want) in [
        (1, 1, 0, false),
        (2, 1, 0, true),
        (32, 1, 4, true),
        (33, 1, 0, false),
        (32, 1, 5, false),
        (4, 1, 32, true),
        (4, 1, 33, false),
        (9, 2, 1, false),
    ] {
        assert_eq!(is_unrolled(members, lanes, statements), want, "{members} members, {lanes} lanes, {statements}");
    }
}

#[test]
fn lanes_keep_as_many_steps_as_they_have_registers_for() {
    let rows = |steps, width, bytes, statements| Rows { steps, width, is_even: true, bytes, statements };
    let kept = |turns, is_whole| Some(Residency { turns, is_whole });
    for (what, rows, lanes, want) in [
        ("whole rows", rows(96, 8, 2, 0), 32, kept(3, true)),
        ("rows of which some lanes have less", rows(97, 8, 2, 0), 32, kept(4, false)),
        ("more lanes than steps", rows(96, 8, 2, 0), 128, kept(1, false)),
        ("as many members as there are registers for", rows(128, 8, 2, 0), 32, kept(4, true)),
        ("more members", rows(129, 8, 2, 0), 32, None),
        ("as many of a longer program", rows(64, 8, 2, 25), 32, kept(2, true)),
        ("more of a longer program", rows(65, 8, 2, 25), 32, None),
        ("a program that is not yet long", rows(128, 8, 2, 24), 32, kept(4, true)),
        ("as many bytes as there are registers for", rows(64, 8, 8, 0), 32, kept(2, true)),
        ("more bytes", rows(65, 8, 8, 0), 32, None),
        ("floats", rows(256, 4, 4, 0), 32, kept(8, true)),
        ("more floats", rows(257, 4, 4, 0), 32, None),
        ("twice as many in half a block", rows(4096, 8, 2, 0), 512, kept(8, true)),
        ("and of a longer program", rows(2048, 8, 2, 25), 512, kept(4, true)),
        ("more than half a block has", rows(4097, 8, 2, 0), 512, None),
        ("as many in a whole one", rows(4096, 8, 2, 0), 1024, kept(4, true)),
        ("nothing", rows(0, 8, 2, 0), 32, None),
    ] {
        assert_eq!(rows.over(lanes), want, "{what}");
    }
    let ragged = Rows { is_even: false, ..rows(96, 8, 2, 0) };
    assert_eq!(ragged.over(32), kept(3, false), "rows that end within a vector");
    for (what, rows, groups, most, want) in [
        ("no register idle", rows(96, 8, 2, 0), 8192, 1024, Some(32)),
        ("just enough to keep a device busy", rows(96, 8, 2, 0), 1024, 1024, Some(32)),
        ("few rows, of which more lanes keep it busy", rows(96, 8, 2, 0), 1023, 1024, Some(64)),
        ("fewer", rows(96, 8, 2, 0), 300, 1024, Some(128)),
        ("too few for that", rows(96, 8, 2, 0), 16, 1024, Some(128)),
        ("too few, and a smaller block", rows(96, 8, 2, 0), 16, 64, Some(64)),
        ("short rows", rows(4, 8, 2, 0), 1 << 20, 1024, Some(4)),
        ("rows of a cache line", rows(8, 8, 2, 0), 1 << 20, 1024, Some(8)),
        ("rows of two, which one has", rows(16, 8, 2, 0), 1 << 20, 1024, Some(8)),
        ("rows that leave some lanes of a block idle", rows(3136, 8, 2, 0), 256, 1024, Some(512)),
        ("the largest rows", rows(4096, 8, 2, 0), 300, 1024, Some(512)),
        ("larger ones", rows(4097, 8, 2, 0), 300, 1024, None),
    ] {
        assert_eq!(rows.lanes(groups, most), want, "{what}");
    }
}

#[test]
fn windows_beside_each_other_go_in_vectors() {
    let usual = ([1024, 128], 3, [3, 3], 1);
    for (what, (groups, statements, members, apart), is_taken) in [
        ("enough", usual, true),
        ("too few", ([1023, 128], 3, [3, 3], 1), false),
        ("rows that are no multiple", ([1100, 126], 3, [3, 3], 1), false),
        ("rows of four", ([1 << 15, 4], 3, [3, 3], 1), true),
        ("more statements", ([1024, 128], 4, [3, 3], 1), false),
        ("larger windows", ([1024, 128], 1, [7, 7], 1), false),
        ("windows of one", ([1024, 128], 3, [1, 1], 1), false),
        ("results apart", ([1024, 128], 3, [3, 3], 2), false),
    ] {
        let read = place(&[9000, 3, 2000, 1]);
        let stored = place(&[128 * apart + 5, apart, 0, 0]);
        let loops = Loops::new(&groups, &members, vec![read, stored], &[2, 2]);
        let got = Vector::of_windows(&loops, statements, std::iter::once(&loops.places[1]));
        assert_eq!(got, is_taken.then_some(Vector { axis: Axis::Groups, width: 4 }), "{what}");
    }
    let loops = Loops::new(&[1024, 128], &[3, 3], vec![place(&[9000, 3, 2000, 1]), place(&[133, 1, 0, 0])], &[2, 2]);
    let guarded = Access { bounds: vec![bound(4, 0)], ..loops.places[1].clone() };
    assert_eq!(Vector::of_windows(&loops, 3, std::iter::once(&guarded)), None, "guarded results");
}

#[test]
fn tiles_have_what_lies_across() {
    let loops = |across: usize, inner: usize| {
        Loops::elementwise(&[3, across, inner], vec![place(&[1 << 20, inner as i64 + 1, 1])], &[2])
    };
    let crossed = place(&[1 << 20, 1, 500]);
    let tile = |columns| Some(Tile { across: 1, rows: 64, columns });
    let (along, repeated) = (place(&[1 << 20, 500, 1]), place(&[1 << 20, 1, 0]));
    let guarded = Access { bounds: vec![bound(3, 0)], ..crossed.clone() };
    for (what, (across, inner), reads, want) in [
        ("halves", (100, 200), vec![(&crossed, 2)], tile(64)),
        ("floats", (100, 200), vec![(&crossed, 4)], tile(32)),
        ("both", (100, 200), vec![(&crossed, 2), (&crossed, 4)], tile(32)),
        ("beside what is not", (100, 200), vec![(&along, 4), (&crossed, 2)], tile(64)),
        ("three", (100, 200), vec![(&crossed, 2); 3], None),
        ("the smallest", (32, 32), vec![(&crossed, 2)], tile(64)),
        ("few rows", (32, 31), vec![(&crossed, 2)], None),
        ("few columns", (31, 32), vec![(&crossed, 2)], None),
        ("along", (100, 200), vec![(&along, 2)], None),
        ("the same along the innermost loop", (100, 200), vec![(&repeated, 2)], None),
        ("guarded", (100, 200), vec![(&guarded, 2)], None),
        ("nothing", (100, 200), vec![], None),
    ] {
        assert_eq!(Tile::of_elements(&loops(across, inner), reads.into_iter()), want, "{what}");
    }
}
