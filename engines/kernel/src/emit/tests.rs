//! Generated sources and refusals.

use hipdnn_engine_core::ops::pointwise::Parameters;
use hipdnn_schemas::PointwiseMode;

use super::testing::{Elementwise, Input, Output, PARAMETERS, View, Window, scaled, vector};
use super::*;

/// Source and arguments of a work.
fn source(work: &Elementwise) -> KernelSource {
    work.kernel().source().unwrap().unwrap()
}

#[test]
fn text_depends_on_the_kind_of_work_and_not_on_its_numbers() {
    let one = scaled([2, 3, 8, 8], false, 2.0);
    let text = source(&one).text;
    for (what, other, same) in [
        ("another shape", scaled([7, 64, 56, 9], false, 2.0), true),
        ("another scalar", scaled([2, 3, 8, 8], false, -1.5), true),
        ("another layout", scaled([2, 3, 8, 8], true, 2.0), false),
        ("one image, and so one loop less", scaled([1, 3, 8, 8], false, 2.0), false),
        ("rows too short for vectors", scaled([2, 3, 2, 2], false, 2.0), false),
        ("another type", Elementwise { output: Output::new(Element::F32, [192, 64, 8, 1]), ..one.clone() }, false),
        (
            "another constant",
            Elementwise { inputs: [&one.inputs[..2], &[Input::Literal(2.0)]].concat(), ..one.clone() },
            false,
        ),
        ("another operation", Elementwise { program: one.program[..1].to_vec(), ..one.clone() }, false),
    ] {
        assert_eq!(source(&other).text == text, same, "{what}:\n{text}\n{}", source(&other).text);
    }
    let parameters = |slope| Parameters { relu_lower_clip_slope: slope, ..Parameters::default() };
    let relu = |slope| source(&vector(PointwiseMode::ReluFwd, parameters(slope), Element::F32, Element::F32, 64)).text;
    assert_eq!(relu(0.25), relu(0.5), "slopes are arguments");
    assert_ne!(relu(0.25), relu(0.0), "the plain one has none");
}

#[test]
fn text_has_what_is_used_and_nothing_else() {
    for (work, with, without) in [
        (
            vector(PointwiseMode::Neg, PARAMETERS, Element::F32, Element::F32, 64),
            &["typedef float real", "load<4, ", "const real t1 = -t0;", "typedef int index"][..],
            &["MATH(exp)", "mulhi", "whole_sub", "long index", "narrow_f16", "p0"][..],
        ),
        (
            vector(PointwiseMode::SwishFwd, PARAMETERS, Element::F16, Element::BF16, 64),
            &["= MATH(exp)(-MATH(fabs)(", "real MATH(exp)(real)", "widen_f16", "narrow_bf16", "a.p0", "float odd("],
            &["MATH(erfc)", "MATH(tanh)", "narrow_f16", "double"],
        ),
        (
            vector(PointwiseMode::Div, PARAMETERS, Element::I32, Element::I32, 64),
            &["typedef double real", "real MATH(rint)(real)", "narrow_i32"],
            &["load<", "odd("],
        ),
        (
            vector(PointwiseMode::Add, PARAMETERS, Element::I32, Element::I64, 64),
            &["typedef long real", "whole_add(t0, t1)", "narrow_i64"],
            &["MATH", "whole_mul"],
        ),
        (
            Elementwise {
                program: Vec::new(),
                ..vector(PointwiseMode::Identity, PARAMETERS, Element::BF16, Element::BF16, 64)
            },
            &["typedef unsigned short real", "const real* r0", "load<8, "],
            &["real(", "widen", "narrow"],
        ),
        (
            Elementwise {
                output: Output::new(Element::F16, [1 << 29, 1 << 23, 1 << 21, 1]),
                ..scaled([3, 9, 8, 8], false, 1.0)
            },
            &["typedef long index", "item += count(a.threads)"],
            &["mulhi"],
        ),
    ] {
        let text = source(&work).text;
        for name in with {
            assert!(text.contains(name), "{name} is missing:\n{text}");
        }
        for name in without {
            assert!(!text.contains(name), "{name} is not used:\n{text}");
        }
    }
}

#[test]
fn what_lies_across_goes_through_tiles() {
    let transposed = |dims: [usize; 2], element, output| Elementwise {
        dims: dims.to_vec(),
        inputs: vec![Input::Tensor(View::new(element, [1, dims[0] as i64]))],
        output: Output::new(output, [dims[1] as i64, 1]),
        program: Vec::new(),
    };
    for (what, work, want) in [
        ("64 by 64", transposed([100, 200], Element::F16, Element::F16), Some(("tile0[64][66]", 8))),
        ("words", transposed([100, 200], Element::F32, Element::F32), Some(("tile0[64][34]", 16))),
        ("converted", transposed([100, 200], Element::F32, Element::F16), Some(("tile0[64][34]", 16))),
        ("few rows", transposed([31, 200], Element::F16, Element::F16), None),
        ("few columns", transposed([200, 31], Element::F16, Element::F16), None),
        ("doubles", transposed([100, 200], Element::F64, Element::F64), None),
    ] {
        let source = source(&work);
        match want {
            Some((list, blocks)) => {
                assert!(source.text.contains(list) && source.text.contains("barrier();"), "{what}:\n{}", source.text);
                assert_eq!(source.blocks, blocks, "{what}");
                assert_eq!(source.mapping, "a block for each tile of elements", "{what}");
            }
            None => {
                assert!(!source.text.contains("shared"), "{what}:\n{}", source.text);
                assert_eq!(source.mapping, "a thread for each element or vector of them", "{what}");
            }
        }
    }
}

#[test]
fn arguments_lie_as_the_structure_says() {
    let source = source(&scaled([2, 3, 5, 8], false, 2.5));
    let bytes = &source.arguments;
    let int = |at: usize| i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let declared = source.text.split("struct Arguments {").nth(1).unwrap().split("};").next().unwrap();
    let fields: Vec<_> = declared.split(';').filter_map(|field| field.split_whitespace().last()).collect();
    // Pointers first; then 32-bit numbers without gaps: loops over 2, 3 and 40 = 5 · 8, and the strides that are not
    // 0 or 1.
    assert_eq!(fields[..4], ["r0", "r1", "w0", "inner"]);
    let at = |name: &str| 24 + 4 * (fields.iter().position(|field| *field == name).unwrap() - 3);
    for (name, want) in [
        ("items", 2 * 3 * 5),
        ("members", 5),
        ("e1", 3),
        ("inner", 40),
        ("x0_0", 120),
        ("x0_1", 40),
        ("s0", 2.5f32.to_bits() as i32),
    ] {
        assert_eq!(int(at(name)), want, "{name} of {fields:?}");
    }
    assert_eq!(*source.scalars, [at("s0")]);
    assert_eq!(bytes.len(), (24 + 4 * (fields.len() - 3)).next_multiple_of(8));
    assert!(bytes[..24].iter().all(|byte| *byte == 0), "pointers come at launch");
    assert_eq!((source.blocks, source.threads), (1, 256));
}

#[test]
fn division_by_multiplication_is_exact() {
    for d in (1..200).chain([255, 256, 257, 1000, 65535, 65536, 65537, (1 << 29) + 1, (1 << 30) - 1, 1 << 30]) {
        let (multiplier, shift) = arguments::divisor(d);
        let divide = |n: u64| (((n * u64::from(multiplier)) >> 32) + n) >> shift;
        let near = [0, 1, 2, d, 2 * d, 3 * d, 1 << 30, (1 << 31) - 1, (1u64 << 31) - 1 - ((1u64 << 31) - 1) % d];
        for n in near.into_iter().flat_map(|n| [n.saturating_sub(1), n, n + 1]).filter(|n| *n < 1 << 31) {
            let sum = ((n * u64::from(multiplier)) >> 32) + n;
            assert!(divide(n) == n / d && sum < 1 << 32, "{n} / {d}");
        }
    }
}

#[test]
fn work_that_makes_no_sense_is_refused_with_a_reason() {
    let good = || scaled([2, 3, 5, 8], false, 1.0);
    let with = |change: fn(&mut Elementwise)| {
        let mut work = good();
        change(&mut work);
        work
    };
    assert!(good().kernel().source().is_ok());
    for (work, want) in [
        (
            with(|work| work.inputs[2] = Input::Index { axis: 4 }),
            "input 2: expected the index of a loop below 4, got 4",
        ),
        (with(|work| work.inputs[1] = view(Element::F16, &[1, 1], 0, None)), "input 1 has 2 strides for 4 loops"),
        (
            with(|work| work.inputs[0] = view(Element::F16, &[1; 4], 0, Some((1, 0, 3, 0)))),
            "input 0 has a bound of divisor 0",
        ),
        (with(|work| work.output.strides.truncate(3)), "store 0 has 3 strides for 4 loops"),
        (with(|work| work.output.strides[1] = 0), "store 0 writes 3 elements in one place along loop 1"),
        (
            with(|work| work.program[0] = Op::pointwise(PointwiseMode::Mul, &[0, 3])),
            "operation 0: expected a slot below 3, got 3",
        ),
        (
            with(|work| work.program[0] = Op::pointwise(PointwiseMode::Mul, &[0])),
            "operation 0: expected 2 operands of mul, got 1",
        ),
        (with(|work| work.program[0] = Op::pointwise(PointwiseMode::GenIndex, &[0])), "gen_index is no operation"),
        (with(|work| work.dims[0] = usize::MAX), "would reach further than addresses do"),
        (with(|work| work.output.strides[0] = i64::MIN), "would reach further than addresses do"),
        (with(|work| work.output.offset = i64::MAX), "would reach further than addresses do"),
    ] {
        let error = work.kernel().source().err().unwrap_or_else(|| panic!("expected {want}"));
        assert!(error.to_string().contains(want), "expected {want}, got {error}");
    }
}

/// Input with an offset and a window along one dimension.
fn view(element: Element, strides: &[i64], offset: i64, window: Option<(usize, i64, u64, u64)>) -> Input {
    let mut view = View { offset, ..View::new(element, strides) };
    if let Some((dimension, begin, extent, step)) = window {
        view.windows = vec![None; strides.len()];
        view.windows[dimension] = Some(Window { begin, extent, step });
    }
    Input::Tensor(view)
}

#[test]
fn arithmetic_is_as_wide_as_operands_and_results_ask_for() {
    use Element::{BF16, Boolean, F16, F32, F64, I8, I32, I64, U8};
    let neg = |from, to| vector(PointwiseMode::Neg, PARAMETERS, from, to, 64);
    let copy = |from, to| Elementwise { program: Vec::new(), ..neg(from, to) };
    let add = |from, literal| {
        let one = vector(PointwiseMode::Add, PARAMETERS, from, I32, 64);
        Elementwise { inputs: vec![one.inputs[0].clone(), Input::Literal(literal)], ..one }
    };
    for (what, work, want) in [
        ("floats", neg(F32, F32), "float"),
        ("halves", neg(F16, BF16), "float"),
        ("floats to whole numbers", neg(F32, I32), "float"),
        ("short whole numbers to floats", neg(I8, F32), "float"),
        ("doubles", neg(F64, F32), "double"),
        ("to doubles", neg(F32, F64), "double"),
        ("whole numbers to floats", neg(I32, F32), "double"),
        ("whole numbers", neg(I32, I64), "long"),
        ("short whole numbers", neg(U8, I8), "long"),
        ("whole numbers and a whole one", add(I32, 3.0), "long"),
        ("whole numbers and a fraction", add(I32, 0.5), "double"),
        ("whole numbers and one too large", add(I32, 2f64.powi(54)), "double"),
        ("bytes of two", copy(F16, F16), "unsigned short"),
        ("bytes of one", copy(I8, I8), "unsigned char"),
        ("bytes of four", copy(F32, F32), "unsigned"),
        ("bytes of eight", copy(I64, I64), "unsigned long"),
        ("truths, of which true is written as 1", copy(Boolean, Boolean), "long"),
        ("a conversion", copy(F16, F32), "float"),
    ] {
        let text = source(&work).text;
        assert!(text.contains(&format!("typedef {want} real;")), "{what}: expected {want}, got\n{text}");
    }
}
