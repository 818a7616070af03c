//! Generated sources and refusals, without a device.

use hipdnn_schemas::{
    DataType, GraphBuilder, Operation, Pointwise, PointwiseMode, Reduction, ReductionMode, TensorDef,
};

use super::testing::{MAPPINGS, Window, folds, layer_norm, op, pooling, softmax};
use super::*;
use crate::fuse::fuse;
use crate::legalize::{Dispatch, LegalizeOptions, legalize};
use crate::lower::lower;

/// Source text of a work.
fn text(work: &Grouped, choice: Choice) -> String {
    generate(work, choice).unwrap().unwrap().source.text
}

#[test]
fn text_depends_on_the_kind_of_work_and_not_on_its_numbers() {
    let one = layer_norm(&[12], &[4, 40], &[200, 50, 1], Element::F16);
    let with =
        |groups: &[usize], members: &[usize], strides: &[i64]| layer_norm(groups, members, strides, Element::F16);
    for (what, other, same) in [
        ("another shape", with(&[500], &[4, 48], &[900, 62, 1]), true),
        ("rows that end within a vector", with(&[12], &[4, 41], &[200, 50, 1]), false),
        ("rows too short for that", with(&[12], &[8, 20], &[200, 25, 1]), false),
        ("more members, and so more threads", with(&[12], &[40, 40], &[2000, 50, 1]), false),
        ("columns", with(&[12], &[4, 40], &[1, 500, 12]), false),
        ("a loop less", with(&[12], &[160], &[200, 1]), false),
        ("another type", layer_norm(&[12], &[4, 40], &[200, 50, 1], Element::BF16), false),
        ("less to do", Grouped { passes: one.passes[..3].to_vec(), ..one.clone() }, false),
    ] {
        let (own, text) = (text(&one, Choice::default()), text(&other, Choice::default()));
        // The number of members is a constant of the program.
        let plain = |text: &str| {
            let lines = text.lines().filter(|line| !line.contains("__builtin_bit_cast(float, 0x4"));
            lines.collect::<Vec<_>>().join("\n")
        };
        assert_eq!(plain(&own) == plain(&text), same, "{what}:\n{own}\n{text}");
    }
}

#[test]
fn text_has_what_is_used_and_nothing_else() {
    let rows = |element| softmax(&[8192], &[64], &[64, 1], element);
    let one = |m: usize| Choice { mapping: Some(MAPPINGS[m]), wide: false };
    for (work, choice, with, without) in [
        (
            rows(Element::F16),
            Choice::default(),
            &[
                "typedef float real",
                "load<8, 16>(h0_0",
                "store<8, 16>(w0",
                "join(f0, from_lane(f0, thread ^ 4))",
                "struct Sum { double",
                "struct Greatest",
            ][..],
            &["a.inner", "struct First", "struct Least", "mulhi(", "long index", "asm"][..],
        ),
        (
            softmax(&[9], &[65], &[65, 1], Element::F32),
            Choice::default(),
            &["a.inner", "load<", "if (all)"],
            &["First"],
        ),
        (rows(Element::F32), one(0), &["load<", "const count lane = 0"], &["barrier", "shared"]),
        (
            rows(Element::F64),
            Choice::default(),
            &["typedef double real", "real total, rest", "asm"],
            &["load<", "EACH"],
        ),
        (
            softmax(&[67], &[90], &[1, 67], Element::F32),
            Choice::default(),
            &["const bool alive = block * 16", "barrier"],
            &["load<", "% 32"],
        ),
        (softmax(&[9], &[64], &[1 << 26, 1], Element::F32), Choice::default(), &["typedef int index"], &["long index"]),
        (softmax(&[9], &[64], &[1 << 27, 1], Element::F32), Choice::default(), &["typedef long index"], &["mulhi"]),
        (
            folds(&[7], &[3, 5], &[15, 5, 1], Element::I8, Element::I32),
            Choice::default(),
            &["typedef long real", "whole_add(s.total", "whole_mul(p.total", "struct First", "a.x"],
            &["__builtin_inf", "double", "MATH"],
        ),
    ] {
        let text = text(&work, choice);
        for name in with {
            assert!(text.contains(name), "{name} is missing:\n{text}");
        }
        for name in without {
            assert!(!text.contains(name), "{name} is not used:\n{text}");
        }
    }
}

#[test]
fn groups_that_lie_together_are_taken_in_vectors() {
    let width = |work: &Grouped| {
        let text = text(work, Choice::default());
        let each =
            text.lines().find_map(|line| line.strip_prefix("#define EACH _Pragma(\"unroll\") for (int k = 0; k < "));
        (each.map_or(1, |line| line.split(';').next().unwrap().parse::<u32>().unwrap()), text)
    };
    let columns = |groups: usize, element| softmax(&[groups], &[90], &[1, groups as i64], element);
    for (what, work, want) in [
        ("sixteen bytes", columns(64, Element::F16), 8),
        ("sixteen bytes of longer elements", columns(64, Element::F32), 4),
        ("as many as divide the groups", columns(68, Element::F16), 4),
        ("none that divides them", columns(65, Element::F16), 1),
        ("doubles", columns(64, Element::F64), 1),
        ("more accumulators than there is room for", folds(&[64], &[9], &[1, 64], Element::F16, Element::F16), 1),
        (
            "windows that slide along others",
            pooling(
                &Window { extent: 9, window: 3, stride: 2, pad: 1 },
                &Window { extent: 8, window: 3, stride: 2, pad: 1 },
                true,
                Element::F32,
            ),
            2,
        ),
    ] {
        let (got, text) = width(&work);
        assert_eq!(got, want, "{what}:\n{text}");
    }
    let sums = |element| Grouped {
        groups: vec![64],
        members: vec![90],
        reads: vec![element],
        writes: vec![Element::F32],
        passes: vec![
            Pass::Reduce {
                inputs: vec![super::testing::read(0, &[1, 64])],
                program: vec![],
                folds: vec![Fold { mode: ReduceOp::Sum, slot: 0 }],
            },
            Pass::PerGroup {
                inputs: vec![],
                program: vec![],
                keep: vec![],
                stores: vec![super::testing::store(0, 0, &[1, 0])],
            },
        ],
    };
    // Single precision is not enough for a few of its own numbers.
    for (element, partial) in [(Element::F16, true), (Element::F32, false), (Element::BF16, false)] {
        assert_eq!(text(&sums(element), Choice::default()).contains("c = 0; c < 8"), partial, "{element:?}");
    }
}

#[test]
fn rows_stay_in_the_registers_of_as_many_lanes_as_suit_them() {
    let kept = |work: &Grouped, mapping| {
        let made = generate(work, Choice { mapping, wide: false }).unwrap().unwrap();
        let turns = made
            .text
            .split_once(" step(s) in registers")
            .map(|(text, _)| text.rsplit(' ').next().expect("a number").parse::<u32>().expect("a number of steps"));
        (made.mapping.side, made.mapping.lanes, turns, made.source.text)
    };
    let rows = |groups, members: usize, element| softmax(&[groups], &[members], &[members as i64, 1], element);
    for (what, work, want) in [
        ("a wave for each row", rows(8192, 768, Element::F16), (2, 32, Some(3))),
        ("several rows a wave", rows(8192, 64, Element::F16), (16, 8, Some(1))),
        ("several waves a row", rows(8192, 4096, Element::F16), (1, 128, Some(4))),
        ("longer elements", rows(8192, 4096, Element::F32), (1, 128, Some(8))),
        ("a block of the largest size", rows(300, 25088, Element::F16), (1, 1024, Some(4))),
        ("few rows, with all lanes that have something to do", rows(16, 2048, Element::F16), (1, 256, Some(1))),
        ("rows that no block has registers for", rows(300, 128_000, Element::F16), (1, 256, None)),
        ("wide indices", rows(1 << 20, 4096, Element::F16), (1, 128, None)),
        ("doubles, which do not go in vectors", rows(300, 1024, Element::F64), (1, 256, None)),
    ] {
        let (side, lanes, turns, text) = kept(&work, None);
        assert_eq!((side, lanes, turns), want, "{what}:\n{text}");
        assert_eq!(text.contains("h0_0["), turns.is_some(), "{what}:\n{text}");
    }
    // One load for three passes, and no look at where a row ends.
    let (.., text) = kept(&rows(8192, 768, Element::F16), None);
    assert_eq!(text.matches("load<8, 16>").count(), 1, "{text}");
    assert!(!text.contains("is_there") && !text.contains("barrier"), "{text}");
    // A row that ends within a step, or within a vector.
    assert!(kept(&rows(8192, 776, Element::F16), None).3.contains("const bool is_there = c + 1 <"));
    assert!(kept(&rows(8192, 770, Element::F16), None).3.contains("const bool all = is_there && first + 8 <= a.inner"));
    // A mapping that leaves a lane more than it has registers for.
    assert_eq!(kept(&rows(8192, 4096, Element::F16), Some(MAPPINGS[2])).2, None);
    assert_eq!(kept(&rows(8192, 4096, Element::F16), Some(MAPPINGS[4])).2, Some(2));
    // Guards are for other schedules.
    let mut guarded = rows(8192, 768, Element::F16);
    let Pass::Reduce { inputs, .. } = &mut guarded.passes[0] else { unreachable!("the first pass reduces") };
    let Input::Tensor { access, .. } = &mut inputs[0] else { unreachable!("it reads a tensor") };
    access.bounds = vec![Bound { offset: -1, steps: vec![0, 1], divisor: 1, extent: 768, stride: 1 }];
    access.strides[1] = 0;
    assert_eq!(kept(&guarded, None).2, None);
}

#[test]
fn lanes_keep_what_two_passes_compute() {
    let rows = |members: usize, element| softmax(&[8192], &[members], &[members as i64, 1], element);
    let is_kept = |work: &Grouped| text(work, Choice::default()).contains("real e[");
    for (what, work, want) in [
        ("in registers", rows(768, Element::F16), true),
        ("longer elements", rows(768, Element::F32), true),
        ("no registers for so many", rows(128_000, Element::F16), false),
        ("columns", softmax(&[8192], &[768], &[1, 8192], Element::F16), false),
        ("nothing that takes long", layer_norm(&[8192], &[768], &[768, 1], Element::F16), false),
    ] {
        assert_eq!(is_kept(&work), want, "{what}:\n{}", text(&work, Choice::default()));
    }
    let kept = text(&rows(768, Element::F16), Choice::default());
    assert_eq!(kept.matches("= power(").count(), 1, "{kept}");
    assert!(kept.contains("e[c][k] = t3;") && kept.contains("const real t2 = e[c][k];"), "{kept}");
    // What depends on a scalar of the launch may be another value in each pass, and differences are not worth it.
    let mut scaled = rows(768, Element::F16);
    for pass in &mut scaled.passes[1..] {
        let (Pass::Reduce { inputs, program, folds: _ } | Pass::PerMember { inputs, program, .. }) = pass else {
            unreachable!("softmax has no pass that runs once")
        };
        inputs.push(Input::Scalar(2.0));
        let scalar = if program.len() == 2 { 2 } else { 3 };
        program[0] = op(PointwiseMode::Sub, &[scalar - 1, scalar]);
        program.iter_mut().skip(1).for_each(|op| *op = op.relocated(|slot| if slot < 2 { slot } else { slot + 1 }));
    }
    let Pass::Reduce { folds, .. } = &mut scaled.passes[1] else { unreachable!("the second pass reduces") };
    folds[0].slot = 4;
    let Pass::PerMember { stores, .. } = &mut scaled.passes[2] else { unreachable!("the third writes members") };
    stores[0].slot = 6;
    assert!(!is_kept(&scaled), "{}", text(&scaled, Choice::default()));
}

#[test]
fn vectors_know_their_distance_from_the_beginning() {
    for (what, stride, offset, want) in [
        ("rows at multiples of sixteen bytes", 768, 0, "load<8, 16>"),
        ("rows between them", 772, 0, "load<8, 2>"),
        ("a beginning between them", 768, 4, "load<8, 2>"),
        ("a beginning at another of them", 768, 16, "load<8, 16>"),
    ] {
        let mut work = softmax(&[100], &[768], &[stride, 1], Element::F16);
        for pass in &mut work.passes {
            let (Pass::Reduce { inputs, .. } | Pass::PerMember { inputs, .. }) = pass else { continue };
            let Input::Tensor { access, .. } = &mut inputs[0] else { unreachable!("it reads a tensor") };
            access.offset = offset;
        }
        let text = text(&work, Choice::default());
        assert!(text.contains(want), "{what}:\n{text}");
    }
}

#[test]
fn few_members_of_a_thread_have_literal_loops() {
    let window = |window| Window { extent: 56, window, stride: 2, pad: 1 };
    let pooled = |size, wide, mapping| {
        let work = pooling(&window(size), &window(size), false, Element::F16);
        text(&work, Choice { mapping, wide })
    };
    let literal = "_Pragma(\"unroll\") for (index j3 = 0; j3 < 3; ++j3)";
    assert!(pooled(3, false, None).contains(literal), "{}", pooled(3, false, None));
    for (what, text) in [
        ("more members", pooled(6, false, Some(MAPPINGS[0]))),
        ("several lanes", pooled(3, false, Some(MAPPINGS[1]))),
        ("wide indices", pooled(3, true, None)),
    ] {
        assert!(!text.contains("_Pragma(\"unroll\") for (index j"), "{what}:\n{text}");
    }
}

#[test]
fn windows_beside_each_other_are_a_threads() {
    let window = |extent| Window { extent, window: 3, stride: 2, pad: 1 };
    let vectors = |h, w, choice| {
        let all = pooling(&window(h), &window(w), false, Element::F16);
        let Pass::Reduce { inputs, .. } = &all.passes[0] else { unreachable!("the first pass reduces") };
        let Pass::PerGroup { stores, .. } = &all.passes[1] else { unreachable!("the second runs once") };
        let greatest = Fold { mode: ReduceOp::Max, slot: 0 };
        let passes = vec![
            Pass::Reduce { inputs: vec![inputs[0].clone()], program: vec![], folds: vec![greatest] },
            Pass::PerGroup {
                inputs: vec![],
                program: vec![],
                keep: vec![],
                stores: vec![Store { slot: 0, tensor: 0, ..stores[0].clone() }],
            },
        ];
        text(&Grouped { passes, writes: vec![Element::F16], reads: vec![Element::F16], ..all }, choice)
    };
    let (large, usual) = ((511, 575), Choice::default());
    let own = "#define EACH _Pragma(\"unroll\") for (int k = 0; k < 4; ++k)";
    let text = vectors(large.0, large.1, usual);
    // Guards along the rows are a window's own; those along columns are the same for all of a thread's.
    assert!(text.contains(own) && text.contains("+ k * 2;"), "{text}");
    assert_eq!(text.matches("const bool in").count(), 2, "{text}");
    // Of rows that end at a multiple of what is loaded in one, these hold what several windows share.
    let text = vectors(511, 576, usual);
    assert!(text.contains("load<8, 16>(v, r0_0 + (x0 + index(b0) * a.x0_s0 + g1) + 1);"), "{text}");
    assert!(text.contains("const real t0 = line0[k * 2 + j4 * 1];"), "{text}");
    assert_eq!(text.matches("line0[0] = ").count(), 1, "{text}");
    for (what, text) in [
        ("results that are no multiple", vectors(511, 577, usual)),
        ("too few windows", vectors(63, 63, usual)),
        ("wide indices", vectors(large.0, large.1, Choice { wide: true, ..usual })),
    ] {
        assert!(!text.contains(own), "{what}:\n{text}");
    }
}

#[test]
fn what_is_only_rounded_to_half_is_a_short_function() {
    let work = |to, program: &[Op]| Grouped {
        groups: vec![],
        members: vec![4096],
        reads: vec![Element::F16; 2],
        writes: vec![to],
        passes: vec![Pass::PerMember {
            inputs: vec![super::testing::read(0, &[1]), super::testing::read(1, &[1])],
            program: program.to_vec(),
            stores: vec![super::testing::store(1 + program.len(), 0, &[1])],
        }],
    };
    for (function, call, long) in [
        (op(PointwiseMode::GeluFwd, &[0]), "const real t2 = gelu(t0);", "MATH(erfc)"),
        (op(PointwiseMode::Div, &[0, 1]), "const real t2 = divide(t0, t1);", "t0 / t1"),
    ] {
        let plain = [function.clone()];
        let scaled = [function, op(PointwiseMode::Mul, &[2, 2])];
        for (what, work, is_short) in [
            ("half", work(Element::F16, &plain), true),
            ("float", work(Element::F32, &plain), false),
            ("bfloat16, which has smaller numbers", work(Element::BF16, &plain), false),
            ("another operation behind it", work(Element::F16, &scaled), false),
        ] {
            let text = text(&work, Choice::default());
            assert_eq!(text.contains(call), is_short, "{what}:\n{text}");
            assert_eq!(text.contains(long), !is_short, "{what}:\n{text}");
        }
    }
}

#[test]
fn an_exponential_of_which_little_is_left_is_a_short_one() {
    let each = |program: &[Op], slots: &[usize], to: &[Element]| Grouped {
        groups: vec![],
        members: vec![4096],
        reads: vec![Element::F16],
        writes: to.to_vec(),
        passes: vec![Pass::PerMember {
            inputs: vec![super::testing::read(0, &[1])],
            program: program.to_vec(),
            stores: slots.iter().enumerate().map(|(t, slot)| super::testing::store(*slot, t, &[1])).collect(),
        }],
    };
    let folded = |program: &[Op], mode: ReduceOp, slot| Grouped {
        groups: vec![64],
        members: vec![4096],
        reads: vec![Element::F16],
        writes: vec![Element::F32],
        passes: vec![
            Pass::Reduce {
                inputs: vec![super::testing::read(0, &[4096, 1])],
                program: program.to_vec(),
                folds: vec![Fold { mode, slot }],
            },
            Pass::PerGroup {
                inputs: vec![],
                program: vec![],
                keep: vec![],
                stores: vec![super::testing::store(0, 0, &[1, 0])],
            },
        ],
    };
    use Element::{BF16, F16, F32};
    use PointwiseMode::{Add, Div, Exp, Mul, Sqrt};
    let exp = op(Exp, &[0]);
    let alone = std::slice::from_ref(&exp);
    let with = |mode, operands: &[usize]| vec![exp.clone(), op(mode, operands)];
    for (what, work, want) in [
        ("rounded to half", each(alone, &[1], &[F16]), "power_of_half(t0)"),
        ("a factor of what is", each(&with(Mul, &[0, 1]), &[2], &[F16]), "power_of_half(t0)"),
        ("its dividend, and itself", each(&with(Div, &[1, 0]), &[2, 1], &[F16, F16]), "power_of_half(t0)"),
        ("a square", each(&with(Mul, &[1, 1]), &[2], &[F16]), "MATH(exp)(t0)"),
        ("a root", each(&with(Sqrt, &[1]), &[2], &[F16]), "MATH(exp)(t0)"),
        ("a term", each(&with(Add, &[1, 0]), &[2], &[F16]), "MATH(exp)(t0)"),
        ("rounded to half and stored in float", each(alone, &[1, 1], &[F16, F32]), "MATH(exp)(t0)"),
        ("a factor that is stored in float", each(&with(Mul, &[0, 1]), &[2, 1], &[F16, F32]), "MATH(exp)(t0)"),
        ("in float", each(alone, &[1], &[F32]), "MATH(exp)(t0)"),
        ("in bfloat16, which has smaller numbers", each(alone, &[1], &[BF16]), "MATH(exp)(t0)"),
        ("summed", folded(alone, ReduceOp::Sum, 1), "power(t0)"),
        ("its square summed", folded(&with(Mul, &[1, 1]), ReduceOp::Sum, 2), "MATH(exp)(t0)"),
        ("its greatest", folded(alone, ReduceOp::Max, 1), "MATH(exp)(t0)"),
        ("multiplied", folded(alone, ReduceOp::Product, 1), "MATH(exp)(t0)"),
    ] {
        let text = text(&work, Choice::default());
        assert!(text.contains(&format!("const real t1 = {want};")), "{what}: expected {want}, got\n{text}");
    }
}

/// A store of a group may be in place of what an earlier pass reads, on other lanes.
#[test]
fn lanes_wait_before_a_group_is_stored_in_place() {
    let read = super::testing::read;
    let sum = Pass::Reduce {
        inputs: vec![read(0, &[300, 1])],
        program: vec![],
        folds: vec![Fold { mode: ReduceOp::Sum, slot: 0 }],
    };
    let store = |tensor, strides: &[i64]| vec![super::testing::store(0, tensor, strides)];
    let shifted = Pass::PerMember { inputs: vec![read(1, &[1, 0])], program: vec![], stores: store(0, &[300, 1]) };
    let group = |keep: &[usize], inputs| {
        let stores = store(1, &[1, 0]);
        Pass::PerGroup { inputs, program: vec![], keep: keep.to_vec(), stores }
    };
    for (what, passes, barriers) in [
        ("nothing is read since the lanes met", vec![sum.clone(), group(&[], vec![])], 0),
        ("the pass before reads", vec![sum.clone(), shifted.clone(), group(&[], vec![])], 1),
        ("a pass before the lanes met reads", vec![shifted, sum.clone(), group(&[], vec![])], 0),
        ("the pass itself reads and keeps", vec![sum.clone(), group(&[1], vec![read(1, &[1, 0])])], 1),
        ("the pass itself reads for its store", vec![sum, group(&[], vec![read(1, &[1, 0])])], 0),
    ] {
        let (groups, members) = (vec![5], vec![300]);
        let work = Grouped { groups, members, reads: vec![Element::F32; 2], writes: vec![Element::F32; 2], passes };
        let text = text(&work, Choice::default());
        assert_eq!(text.matches(" barrier_of_memory();").count(), barriers, "{what}:\n{text}");
    }
}

#[test]
fn places_with_the_same_bounds_look_at_them_once() {
    let window = |extent| Window { extent, window: 3, stride: 2, pad: 1 };
    // The sum's element, the greatest's and whether there is one: two bounds each.
    let text = text(&pooling(&window(9), &window(8), false, Element::F32), Choice::default());
    assert_eq!(text.matches("const bool in").count(), 2, "{text}");
}

#[test]
fn arguments_lie_as_the_structure_says() {
    let work = layer_norm(&[12], &[4, 41], &[200, 50, 1], Element::F16);
    let source = generate(&work, Choice::default()).unwrap().unwrap().source;
    let bytes = &source.arguments.bytes;
    let int = |at: usize| i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let declared = source.text.split("struct Arguments {").nth(1).unwrap().split("};").next().unwrap();
    let fields: Vec<_> = declared.split(';').filter_map(|field| field.split_whitespace().last()).collect();
    assert_eq!(fields[..6], ["r0", "r1", "r2", "w0", "w1", "w2"]);
    // Then 32-bit numbers without gaps: 4 · 11 fours, of which the lanes take 64 at a time: 5 · 11 + 9.
    let at = |name: &str| 48 + 4 * (fields.iter().position(|field| *field == name).unwrap() - 6);
    for (name, want) in
        [("members", 44), ("inner", 41), ("blocks", 12), ("step", 12), ("e2", 11), ("e2_w", 9), ("e1_w", 5)]
    {
        assert_eq!(int(at(name)), want, "{name} of {fields:?}");
    }
    for (name, want) in [("x0_0", 200), ("x0_1", 50)] {
        assert_eq!(int(at(name)), want, "{name} of {fields:?}");
    }
    let &[epsilon] = &source.arguments.scalars[..] else { panic!("one scalar") };
    assert_eq!(int(epsilon), 1e-3f32.to_bits() as i32);
    assert_eq!(bytes.len(), (48 + 4 * (fields.len() - 6)).next_multiple_of(8));
    assert!(bytes[..48].iter().all(|byte| *byte == 0), "pointers come at launch");
}

#[test]
fn work_that_makes_no_sense_is_refused_with_a_reason() {
    let with = |change: fn(&mut Grouped)| {
        let mut work = pooling(
            &Window { extent: 9, window: 3, stride: 2, pad: 1 },
            &Window { extent: 8, window: 2, stride: 2, pad: 0 },
            false,
            Element::F32,
        );
        change(&mut work);
        work
    };
    fn fold(work: &mut Grouped) -> (&mut Vec<Input>, &mut Vec<Op>, &mut Vec<Fold>) {
        let Pass::Reduce { inputs, program, folds } = &mut work.passes[0] else {
            panic!("the first pass is a reduction")
        };
        (inputs, program, folds)
    }
    fn access(work: &mut Grouped) -> &mut Access {
        let Input::Tensor { access, .. } = &mut fold(work).0[0] else { panic!("the first input is a tensor") };
        access
    }
    fn once(work: &mut Grouped) -> (&mut Vec<Input>, &mut Vec<usize>, &mut Vec<Store>) {
        let Pass::PerGroup { inputs, keep, stores, .. } = &mut work.passes[1] else { panic!("the second runs once") };
        (inputs, keep, stores)
    }
    assert!(generate(&with(|_| {}), Choice::default()).is_ok());
    for (work, want) in [
        (with(|work| work.passes.clear()), "a kernel over groups has at least one pass"),
        (with(|work| work.reads.clear()), "pass 0 of a kernel over groups: input 0: expected a tensor below 0, got 0"),
        (
            with(|work| access(work).strides.truncate(5)),
            "pass 0 of a kernel over groups: input 0 has 5 strides for 6 loops",
        ),
        (with(|work| access(work).bounds[1].steps.push(1)), "input 0 has a bound of 7 steps for 6 loops"),
        (with(|work| access(work).bounds[0].divisor = 0), "input 0 has a bound of divisor 0"),
        (
            with(|work| fold(work).0[3] = Input::Index { axis: 6 }),
            "input 3: expected the index of a loop below 6, got 6",
        ),
        (
            with(|work| once(work).0.push(Input::Index { axis: 4 })),
            "pass 1 of a kernel over groups: input 0 is the index of loop 4, but this runs once for all members",
        ),
        (with(|work| fold(work).2[0].slot = 20), "its result: expected a slot below 20, got 20"),
        (
            with(|work| fold(work).2[1].mode = ReduceOp::ArgMax { at: 99 }),
            "its result: expected a slot below 20, got 99",
        ),
        (with(|work| once(work).1.push(5)), "its result: expected a slot below 5, got 5"),
        (with(|work| once(work).2[0].slot = 7), "its result: expected a slot below 5, got 7"),
        (with(|work| work.writes.truncate(2)), "store 2: expected a tensor below 2, got 2"),
        (
            with(|work| {
                let bounds = access(work).bounds.clone();
                once(work).2[0].access.bounds = bounds;
            }),
            "store 0 has bounds",
        ),
        (with(|work| once(work).2[1].access.strides[2] = 0), "store 1 writes 5 elements in one place along loop 2"),
        (
            with(|work| fold(work).1[0] = op(PointwiseMode::Mul, &[3, 12])),
            "operation 0: expected a slot below 12, got 12",
        ),
        (with(|work| fold(work).1[0] = op(PointwiseMode::Mul, &[3])), "operation 0: expected 2 operands of mul, got 1"),
        (with(|work| work.groups[0] = usize::MAX), "would reach further than addresses do"),
        (with(|work| work.members[0] = usize::MAX), "would reach further than addresses do"),
        (with(|work| access(work).offset = i64::MIN), "would reach further than addresses do"),
        (with(|work| access(work).strides[0] = i64::MIN), "would reach further than addresses do"),
        (with(|work| access(work).bounds[0].extent = u64::MAX), "would reach further than addresses do"),
        (
            with(|work| {
                let literal = fold(work).0[7].clone();
                fold(work).0.extend((0..1000).map(|i| if i % 2 == 0 { Input::Scalar(0.0) } else { literal.clone() }));
                fold(work).0.extend((0..1000).map(|_| Input::Scalar(0.0)));
                fold(work).1.clear();
            }),
            "expected at most 4096 bytes of arguments, got ",
        ),
    ] {
        let error = generate(&work, Choice::default()).err().unwrap_or_else(|| panic!("expected {want}"));
        assert!(error.to_string().contains(want), "expected {want}, got {error}");
    }
}

/// Graph of `levels` sums of rows, each of the elements times the sum before it.
fn sums(data_type: DataType, levels: i64) -> GraphBuilder {
    let mut graph = GraphBuilder::new("sums").compute(DataType::Float);
    let x = graph.tensor(TensorDef::new(0, data_type, &[256, 4096]));
    let mut before = None;
    for level in 0..levels {
        let mut input = x;
        if let Some(before) = before {
            input = graph.tensor(TensorDef::new(100 + level, DataType::Float, &[256, 4096]).intermediate());
            graph.pointwise(Pointwise::binary(PointwiseMode::Mul, x, before, input));
        }
        let sum = TensorDef::new(1000 + level, DataType::Float, &[256, 1]);
        let output = graph.tensor(if level + 1 < levels { sum.intermediate() } else { sum });
        let mode = ReductionMode::Add;
        graph.node("", Operation::Reduction(Reduction { mode, input, output, is_deterministic: true }));
        before = Some(output);
    }
    graph
}

/// Graph of a sum of rows that is added to integers, and of many functions with scalars of the result.
fn functions(count: i64) -> GraphBuilder {
    let mut graph = GraphBuilder::new("functions").compute(DataType::Float);
    let input = graph.tensor(TensorDef::new(0, DataType::Float, &[64, 16]));
    let output = graph.tensor(TensorDef::new(1, DataType::Float, &[64, 1]).intermediate());
    let compute_type = graph.tensor(TensorDef::new(2, DataType::Int32, &[64, 16]));
    let mode = ReductionMode::Add;
    graph.node("", Operation::Reduction(Reduction { mode, input, output, is_deterministic: true }));
    let mut last = graph.tensor(TensorDef::new(10, DataType::Float, &[64, 16]).intermediate());
    graph.pointwise(Pointwise::binary(PointwiseMode::Add, compute_type, output, last));
    for i in 0..count {
        let next = TensorDef::new(11 + i, DataType::Float, &[64, 16]);
        let next = graph.tensor(if i + 1 < count { next.intermediate() } else { next });
        let leaky =
            Pointwise { relu_lower_clip_slope: Some(0.01), ..Pointwise::unary(PointwiseMode::ReluFwd, last, next) };
        graph.pointwise(leaky);
        last = next;
    }
    graph
}

#[test]
fn whatever_is_joined_fits_into_arguments_and_shared_memory() {
    for graph in [
        sums(DataType::Float, 18),
        sums(DataType::Double, 18),
        sums(DataType::Int32, 120),
        functions(20),
        functions(190),
    ] {
        let graph = graph.build().unwrap();
        let fusion_groups = fuse(&graph, lower(&graph).unwrap());
        let legalized = legalize(&graph, &fusion_groups, LegalizeOptions::default(), &|_| Ok(())).unwrap();
        let grouped: Vec<&Grouped> = legalized
            .dispatches
            .iter()
            .filter_map(|dispatch| match dispatch {
                Dispatch::Kernel(dispatch) => Some(&dispatch.kernel),
                _ => None,
            })
            .collect();
        assert!(!grouped.is_empty());
        for work in grouped {
            let made = generate(work, Choice::default()).unwrap_or_else(|error| panic!("{}: {error}", graph.name()));
            let made = made.expect("there are groups");
            // Lists of structures, for each lane of a vector and each thread.
            let lists = made.source.text.lines().filter_map(|line| line.split_once("__attribute__((shared)) "));
            let bytes = lists.map(|(_, list)| {
                let structure = list.split(' ').next().expect("a list has a type");
                let modes =
                    [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max, ReduceOp::ArgMax { at: 0 }];
                let mode = modes.iter().find(|mode| mode.structure() == structure).expect("lists are of folds");
                let extents = list.split('[').skip(1).map(|extent| extent.split(']').next().unwrap().parse::<usize>());
                mode.bytes(made.compute_type, false) * extents.map(Result::unwrap).product::<usize>()
            });
            let shared: usize = bytes.sum();
            assert_eq!(shared > 0, made.mapping.exchanged() > 0, "{}", made.source.text);
            assert!(shared <= MOST_SHARED, "{shared}");
        }
    }
}

/// Lanes that exchange accumulators have shared memory for them, and more of it than half leaves fewer blocks a unit.
#[test]
fn many_accumulators_have_smaller_blocks() {
    let made = |sums: usize| {
        let work = Grouped {
            groups: vec![63],
            members: vec![100_000],
            reads: vec![Element::F32],
            writes: vec![Element::F32],
            passes: vec![
                Pass::Reduce {
                    inputs: vec![super::testing::read(0, &[1, 63])],
                    program: vec![],
                    folds: vec![Fold { mode: ReduceOp::Sum, slot: 0 }; sums],
                },
                Pass::PerGroup {
                    inputs: vec![],
                    program: vec![],
                    keep: vec![],
                    stores: vec![super::testing::store(sums - 1, 0, &[1, 0])],
                },
            ],
        };
        let made = generate(&work, Choice::default()).unwrap().unwrap();
        (made.mapping.side, made.mapping.lanes, made.source.text.matches("__attribute__((shared)) Sum").count())
    };
    // Eight bytes for each of 256 threads, then of 64, then of 32.
    for (sums, want) in [
        (16, (8, 128, 16)),
        (17, (8, 32, 17)),
        (128, (8, 32, 128)),
        (129, (8, 16, 129)),
        (256, (8, 16, 256)),
        (257, (8, 8, 257)),
    ] {
        assert_eq!(made(sums), want, "{sums} sums");
    }
}

/// Indices of 32 bits, as far as they reach.
#[test]
fn indices_are_as_wide_as_what_they_reach() {
    for (members, stride, is_wide) in [(64, (1i64 << 30) - 64, false), (65, (1 << 30) - 64, true), (64, 1 << 30, true)]
    {
        let text = text(&softmax(&[2], &[members], &[stride, 1], Element::F32), Choice::default());
        assert_eq!(text.contains("typedef long index"), is_wide, "{members} members, {stride} apart:\n{text}");
    }
    let far = |stride| generate(&softmax(&[2], &[64], &[stride, 1], Element::F32), Choice::default()).map(|_| ());
    assert_eq!(far((1 << 55) - 63).map_err(|error| error.to_string()), Ok(()));
    assert!(far((1 << 55) - 62).unwrap_err().to_string().contains("would reach further than addresses do"));
}

/// Partial sums of columns in single precision have half as many members behind a short program.
#[test]
fn columns_of_narrow_elements_are_summed_in_parts() {
    let sums = |program: &[Op], mode| {
        let work = Grouped {
            groups: vec![64],
            members: vec![90],
            reads: vec![Element::F16],
            writes: vec![Element::F32],
            passes: vec![
                Pass::Reduce {
                    inputs: vec![super::testing::read(0, &[1, 64])],
                    program: program.to_vec(),
                    folds: vec![Fold { mode, slot: program.len() }],
                },
                Pass::PerGroup {
                    inputs: vec![],
                    program: vec![],
                    keep: vec![],
                    stores: vec![super::testing::store(0, 0, &[1, 0])],
                },
            ],
        };
        let text = text(&work, Choice::default());
        let part =
            text.split_once("for (count c = 0; c < ").map(|(_, text)| text.split(';').next().unwrap().to_owned());
        (part, text.contains("unroll 2"))
    };
    let program = |count| (0..count).map(|i| op(PointwiseMode::Neg, &[i])).collect::<Vec<_>>();
    let part = |text: &str| Some(text.to_owned());
    assert_eq!(sums(&[], ReduceOp::Sum), (part("8"), false));
    assert_eq!(sums(&program(1), ReduceOp::Sum), (part("4"), false));
    assert_eq!(sums(&program(4), ReduceOp::Sum), (part("4"), false));
    assert_eq!(sums(&program(5), ReduceOp::Sum), (None, false));
    assert_eq!(sums(&program(4), ReduceOp::Max), (None, true));
    assert_eq!(sums(&program(5), ReduceOp::Max), (None, false));
}

/// A store along a loop of one goes to one place, whatever its stride.
#[test]
fn loops_of_one_need_no_stride() {
    let work = softmax(&[1, 5], &[64], &[0, 64, 1], Element::F32);
    assert!(generate(&work, Choice::default()).is_ok());
    assert!(generate(&softmax(&[2, 5], &[64], &[0, 64, 1], Element::F32), Choice::default()).is_err());
}

/// The log says how many groups a block has, of which each thread may have several.
#[test]
fn mappings_are_described() {
    let mapping = |work: Grouped| work.source().unwrap().expect("there is something to do").mapping;
    let rows = |groups, members: usize| softmax(&[groups], &[members], &[members as i64, 1], Element::F16);
    for (work, want) in [
        (softmax(&[64], &[90], &[1, 64], Element::F16), "128 groups a block, 16 thread(s) for each, 1 blocks"),
        (softmax(&[67], &[90], &[1, 67], Element::F16), "16 groups a block, 16 thread(s) for each, 5 blocks"),
        (rows(8192, 768), "2 groups a block, 32 thread(s) for each, 4096 blocks, 3 step(s) in registers"),
    ] {
        assert_eq!(mapping(work), want);
    }
}

/// Groups that overlap, as windows that slide by one element, have no vectors.
#[test]
fn overlapping_groups_go_one_by_one() {
    for (what, strides, has_vectors) in [("by one", [1, 1], false), ("by more", [64, 1], true)] {
        let text = text(&sums_of_rows(&strides), Choice::default());
        assert_eq!(text.contains("#define EACH"), has_vectors, "{what}:\n{text}");
    }
}

/// Sums of 64 members of each of 64 groups.
fn sums_of_rows(strides: &[i64]) -> Grouped {
    Grouped {
        groups: vec![64],
        members: vec![64],
        reads: vec![Element::F32],
        writes: vec![Element::F32],
        passes: vec![
            Pass::Reduce {
                inputs: vec![super::testing::read(0, strides)],
                program: vec![],
                folds: vec![Fold { mode: ReduceOp::Sum, slot: 0 }],
            },
            Pass::PerGroup {
                inputs: vec![],
                program: vec![],
                keep: vec![],
                stores: vec![super::testing::store(0, 0, &[1, 0])],
            },
        ],
    }
}
