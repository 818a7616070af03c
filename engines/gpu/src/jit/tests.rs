//! Kernels on a device, where the process has one, against an evaluation by their definition in `f64`.

use std::sync::Arc;

use hipdnn_engine_core::ops::pointwise::Parameters;
use hipdnn_engine_kernel::emit::grouped::Choice;
use hipdnn_engine_kernel::emit::testing::{
    Elementwise, Input, Output, PARAMETERS, Random, View, Window, decode, decoded, encode, encoded, evaluate, packed,
    rounded, rows, select_rows, ulp, vector,
};
use hipdnn_engine_kernel::emit::{Element, Op};
use hipdnn_schemas::PointwiseMode;

use super::*;
use crate::context::{Context, Contexts};
use crate::hip::{DeviceMemory, Queue, Stream};
use crate::testing::skip;

/// A device to run on.
pub(crate) struct Bench {
    pub(crate) context: Arc<Context>,
    pub(crate) stream: Stream,
    pub(crate) store: Store,
}

/// The process's device; says why where there is none.
pub(crate) fn bench(test: &str) -> Option<Bench> {
    let context = match Contexts::get().current() {
        Ok(context) => context,
        Err(reason) => {
            skip(&format_args!("{test}: {reason}"));
            return None;
        }
    };
    let _entered = context.device().enter().unwrap();
    let stream = Stream::new(context.device().gpu()).unwrap();
    Some(Bench { context, stream, store: Store::disabled() })
}

impl Bench {
    /// Contents that the kernel of `work` leaves in a buffer that held `output` before.
    fn run(&self, work: &Elementwise, inputs: &[Vec<u8>], output: &[u8]) -> Vec<u8> {
        self.run_with(work, false, inputs, output)
    }

    fn run_with(&self, work: &Elementwise, wide: bool, inputs: &[Vec<u8>], output: &[u8]) -> Vec<u8> {
        let kernel = work.kernel();
        let source = kernel.source_with(Choice { wide, ..Choice::default() }).unwrap();
        let kernel = PreparedKernel::new(self.context.kernels(), &kernel, source, &self.store);
        self.launch(&kernel.unwrap_or_else(|error| panic!("{work:?}: {error}")), inputs, output, &[])
    }

    fn launch(&self, kernel: &PreparedKernel, inputs: &[Vec<u8>], output: &[u8], scalars: &[f64]) -> Vec<u8> {
        let _entered = self.context.device().enter().unwrap();
        let memory = |bytes: &[u8]| {
            let memory = DeviceMemory::new(self.context.device().gpu(), bytes.len()).unwrap();
            memory.write(0, bytes, &self.stream).unwrap();
            memory
        };
        let (inputs, output) = (inputs.iter().map(|bytes| memory(bytes)).collect::<Vec<_>>(), memory(output));
        let addresses: Vec<_> = inputs.iter().map(|memory| memory.address().cast_const()).collect();
        // SAFETY: the buffers are as large as the caller made them for the work, and are read after the kernel.
        unsafe { kernel.launch(&mut Queue::new(self.stream.raw().cast()), &addresses, &[output.address()], scalars) }
            .unwrap();
        let mut bytes = vec![0; output.bytes()];
        output.read(0, &mut bytes, &self.stream).unwrap();
        bytes
    }
}

fn operations() -> impl Iterator<Item = PointwiseMode> {
    let none = |mode: &PointwiseMode| matches!(mode, PointwiseMode::Unset | PointwiseMode::GenIndex);
    PointwiseMode::ALL.iter().copied().filter(move |mode| !none(mode))
}

#[test]
fn every_mode_computes_its_definition() {
    let Some(bench) = bench("every_mode_computes_its_definition") else { return };
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    // Around zero in steps that miss the kinks, then far out, then what is special.
    let mut xs: Vec<f64> = (-40..=40).map(|i| f64::from(i) * 37.0 / 256.0 + 1.0 / 512.0).collect();
    xs.extend([-80.0, -20.0, -9.5, 9.5, 20.0, 80.0, 1e-6, -1e-6, 1e-30, -1e-30]);
    let mut ys: Vec<f64> = xs.iter().rev().map(|v| if v.abs() < 6.0 { v * 0.5 + 0.125 } else { 0.75 }).collect();
    for x in [0.0, -0.0, inf, -inf, nan, 1.0, -0.5, 2.0, 1e30, -1e30] {
        for y in [0.0, 1.0, -inf, nan, -2.5] {
            xs.push(x);
            ys.push(y);
        }
    }
    let ts: Vec<f64> = (0..xs.len()).map(|i| if i % 7 == 3 { nan } else { (i % 2) as f64 }).collect();
    let modes: Vec<_> = operations().collect();
    for element in [Element::F32, Element::F64] {
        let inputs = [&xs, &ys, &ts].map(|values| values.iter().map(|v| rounded(element, *v)).collect::<Vec<_>>());
        let bytes = inputs.each_ref().map(|values| encoded(element, values));
        for (modes, parameters) in
            modes.chunks(12).flat_map(|modes| [(modes, PARAMETERS), (modes, Parameters::default())])
        {
            let work = rows(modes, parameters, element, xs.len());
            let want = evaluate(&work, &inputs, &vec![nan; xs.len() * modes.len()]);
            let got = decoded(element, &bench.run(&work, &bytes, &encoded(element, &want)));
            for (mode, (got, want)) in modes.iter().zip(got.chunks(xs.len()).zip(want.chunks(xs.len()))) {
                let (mut worst, mut place) = (0.0, 0.0);
                for (i, (got, want)) in got.iter().zip(want).enumerate() {
                    let operands: Vec<f64> = inputs[..mode.operands()].iter().map(|values| values[i]).collect();
                    let same = got == want || (got.is_nan() && want.is_nan());
                    let units = (got - want).abs() / ulp(element, *want);
                    if !same && units > worst {
                        (worst, place) = (units, xs[i]);
                    }
                    let bound = bound(*mode, element, &operands, *want);
                    let what =
                        format!("{mode}{operands:?} of {element:?}: expected {want} within {bound:e}, got {got}");
                    assert!(same || (got - want).abs() <= bound, "{what}");
                }
                println!("{mode} of {element:?}: at most {worst:.1} units off, at {place}");
            }
        }
    }
}

/// Largest distance of a result from the definition's.
///
/// The library's functions are within a few units in the last place, and each formula has a few roundings more. Where a
/// rounded argument is magnified (exponents of squares) or parts cancel, the error is relative to the operands.
fn bound(mode: PointwiseMode, element: Element, operands: &[f64], want: f64) -> f64 {
    use PointwiseMode::*;
    let unit = if element == Element::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let scale = operands.iter().fold(1.0, |most: f64, v| if v.is_finite() { most.max(v.abs()) } else { most });
    let exact = rounded(element, want);
    (match mode {
        Identity | Abs | Ceil | Floor | Neg | Max | Min | BinarySelect | CmpEq | CmpNeq | CmpGt | CmpGe | CmpLt
        | CmpLe | LogicalAnd | LogicalOr | LogicalNot => 0.0,
        Add | Sub | Mul | Div | Sqrt | Reciprocal => 0.5 * ulp(element, exact),
        AddSquare | ReluFwd | ReluBwd | GeluFwd | GeluBwd | GeluApproxTanhFwd | GeluApproxTanhBwd | SwishBwd
        | TanhBwd => 4.0 * unit * scale * scale,
        _ => 6.0 * ulp(element, exact),
    }) + ulp(element, 0.0)
}

/// Values at which conversions turn: halves, ties of each type, limits and what lies beyond.
fn edges() -> Vec<f64> {
    let mut values = vec![0.0, -0.0, 0.25, 0.5, 1.5, 2.5, 3.5, 100.0, 126.5, 127.5, 128.0, 254.5, 255.5, 256.0, 300.0];
    values.extend([1.0 + 2f64.powi(-11), 1.0 + 3.0 * 2f64.powi(-11), 1.0 + 2f64.powi(-8), 1.0 + 3.0 * 2f64.powi(-8)]);
    values.extend([65504.0, 65519.0, 65520.0, 65536.0, 3.4e38, 1e-5, 2f64.powi(-24), 2f64.powi(-25), 1e-40]);
    values.extend([2147483520.0, 2147483648.0, 4e9, 9.2e18, 9223372036854775808.0, 1e30, f64::INFINITY]);
    // Digits that f32 has not: beside the middle of neighbors of f16 and bf16, and of whole numbers.
    let tiny = 2f64.powi(-40);
    values.extend([1.0 + 2f64.powi(-11) + tiny, 1.0 + 2f64.powi(-11) - tiny, 1.0 + 2f64.powi(-8) + tiny, 2.5 + tiny]);
    values.extend([2147483647.0, 2147483646.5, 16777217.0, 1e300, 1e-300, 6.1e-5 + tiny]);
    let negative: Vec<f64> = values.iter().map(|value| -value).collect();
    values.extend(negative);
    values.push(f64::NAN);
    values
}

#[test]
fn every_type_is_read_and_written_as_the_host_does() {
    let Some(bench) = bench("every_type_is_read_and_written_as_the_host_does") else { return };
    for from in [Element::F32, Element::F64] {
        let values: Vec<f64> = edges().iter().map(|value| rounded(from, *value)).collect();
        for to in Element::ALL {
            // Not only copied, so that values are computed with.
            let work = vector(PointwiseMode::Neg, Parameters::default(), from, *to, values.len());
            let got = decoded(*to, &bench.run(&work, &[encoded(from, &values)], &encoded(*to, &values)));
            for (value, got) in values.iter().zip(&got) {
                let want = decode(*to, &encode(*to, -value));
                assert!(
                    *got == want || (got.is_nan() && want.is_nan()),
                    "{value:e} of {from:?} to {to:?}: {got}, not {want}"
                );
            }
        }
    }
    for from in Element::ALL {
        for to in [Element::F32, Element::F64] {
            let values: Vec<f64> = edges().iter().map(|value| rounded(*from, *value)).collect();
            let work = vector(PointwiseMode::Neg, Parameters::default(), *from, to, values.len());
            let got = decoded(to, &bench.run(&work, &[encoded(*from, &values)], &encoded(to, &values)));
            for (value, got) in values.iter().zip(&got) {
                let want = rounded(to, -decode(*from, &encode(*from, *value)));
                assert!(
                    *got == want || (got.is_nan() && want.is_nan()),
                    "{value:e} of {from:?} to {to:?}: {got}, not {want}"
                );
            }
        }
    }
}

#[test]
fn whole_numbers_keep_all_their_digits_and_saturate() {
    let Some(bench) = bench("whole_numbers_keep_all_their_digits_and_saturate") else { return };
    use PointwiseMode::*;
    let (most, least) = (i64::MAX, i64::MIN);
    let one = (1i64 << 53) + 1;
    let numbers = [0, 1, -1, 7, -9, one, -one, 1 << 32, -(1 << 32), 3_037_000_500, most, least, most - 1, least + 1];
    let (mut xs, mut ys) = (Vec::new(), Vec::new());
    for x in numbers {
        for y in numbers {
            xs.push(x);
            ys.push(y);
        }
    }
    type Function = fn(i64, i64) -> i64;
    let functions: [(PointwiseMode, Function); 19] = [
        (Identity, |x, _| x),
        (Abs, |x, _| x.saturating_abs()),
        (Neg, |x, _| x.saturating_neg()),
        (ReluFwd, |x, _| x.max(0)),
        (LogicalNot, |x, _| i64::from(x == 0)),
        (Add, i64::saturating_add),
        (AddSquare, |x, y| x.saturating_add(y.saturating_mul(y))),
        (Sub, i64::saturating_sub),
        (Mul, i64::saturating_mul),
        (Max, i64::max),
        (Min, i64::min),
        (CmpEq, |x, y| i64::from(x == y)),
        (CmpNeq, |x, y| i64::from(x != y)),
        (CmpGt, |x, y| i64::from(x > y)),
        (CmpGe, |x, y| i64::from(x >= y)),
        (CmpLt, |x, y| i64::from(x < y)),
        (CmpLe, |x, y| i64::from(x <= y)),
        (LogicalAnd, |x, y| i64::from(x != 0 && y != 0)),
        (LogicalOr, |x, y| i64::from(x != 0 || y != 0)),
    ];
    for mode in operations() {
        let listed = mode == BinarySelect || functions.iter().any(|(other, _)| *other == mode);
        assert_eq!(Op::pointwise(mode, &[]).keeps_whole(), listed, "{mode}");
    }
    let bytes = [&xs, &ys, &xs].map(|values| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
    for functions in functions.chunks(12) {
        let modes: Vec<_> = functions.iter().map(|(mode, _)| *mode).collect();
        let work = rows(&modes, Parameters::default(), Element::I64, xs.len());
        assert!(work.kernel().source().unwrap().unwrap().text.contains("typedef long real"));
        let got = bench.run(&work, &bytes, &vec![0; 8 * xs.len() * modes.len()]);
        let got: Vec<i64> = got.chunks(8).map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap())).collect();
        for ((mode, function), got) in functions.iter().zip(got.chunks(xs.len())) {
            for ((x, y), got) in xs.iter().zip(&ys).zip(got) {
                assert_eq!(*got, function(*x, *y), "{mode} of {x} and {y}");
            }
        }
    }
    // Shorter types take the nearest number that they have.
    for (element, low, high) in
        [(Element::I32, i64::from(i32::MIN), i64::from(i32::MAX)), (Element::I8, -128, 127), (Element::U8, 0, 255)]
    {
        let work = vector(Sub, Parameters::default(), Element::I64, element, xs.len());
        let got = decoded(element, &bench.run(&work, &bytes[..2], &vec![0; element.bytes() * xs.len()]));
        for ((x, y), got) in xs.iter().zip(&ys).zip(got) {
            assert_eq!(got as i64, x.saturating_sub(*y).clamp(low, high), "{x} - {y} of {element:?}");
        }
    }
}

#[test]
fn values_are_rounded_on_the_way() {
    let Some(bench) = bench("values_are_rounded_on_the_way") else { return };
    for from in [Element::F32, Element::F64] {
        let values: Vec<f64> = edges().iter().map(|value| rounded(from, *value)).collect();
        // Row k is what is left of the values after the type of number k.
        let rounds = Element::ALL.len();
        let mut inputs = vec![Input::Tensor(View::new(from, [0, 1])); 3];
        inputs.push(Input::Index { axis: 0 });
        inputs.extend((1..rounds).map(|k| Input::Literal(k as f64)));
        let mut work = Elementwise {
            dims: vec![rounds, values.len()],
            output: Output::new(Element::F64, [values.len() as i64, 1]),
            program: Element::ALL.iter().map(|to| Op::Round { to: *to, operand: 0 }).collect(),
            inputs,
        };
        let functions = work.inputs.len();
        select_rows(&mut work, functions, rounds);
        let total = values.len() * rounds;
        let got = decoded(Element::F64, &bench.run(&work, &vec![encoded(from, &values); 3], &vec![0; total * 8]));
        for (k, to) in Element::ALL.iter().enumerate() {
            for (i, value) in values.iter().enumerate() {
                let (got, want) = (got[k * values.len() + i], decode(*to, &encode(*to, *value)));
                assert!(got == want || (got.is_nan() && want.is_nan()), "{value:e} through {to:?}: {got}, not {want}");
            }
        }
    }
}

/// A view with an offset and a window along one dimension.
fn view(element: Element, strides: &[i64], offset: i64, window: Option<(usize, i64, u64, u64)>) -> Input {
    let mut view = View { offset, ..View::new(element, strides) };
    if let Some((dimension, begin, extent, step)) = window {
        view.windows = vec![None; strides.len()];
        view.windows[dimension] = Some(Window { begin, extent, step });
    }
    Input::Tensor(view)
}

/// Runs the work on small whole numbers, of which every sum and product is exact, and compares all of the buffer.
fn check_exactly(bench: &Bench, what: &str, work: &Elementwise) {
    // Enough for every place that a case reads or writes.
    const LEN: usize = 9000;
    let tensors = work.inputs.iter().filter_map(|input| match input {
        Input::Tensor(view) => Some(view.element),
        _ => None,
    });
    let elements: Vec<_> = tensors.collect();
    let values: Vec<Vec<f64>> =
        (0..elements.len()).map(|t| (0..LEN).map(|i| ((i * (t + 3) * 7 + i / 11) % 8) as f64).collect()).collect();
    let values: Vec<Vec<f64>> = values
        .iter()
        .zip(&elements)
        .map(|(values, element)| values.iter().map(|value| rounded(*element, *value)).collect())
        .collect();
    let before: Vec<f64> = (0..LEN).map(|i| (i % 2) as f64).collect();
    let bytes: Vec<_> = values.iter().zip(&elements).map(|(values, element)| encoded(*element, values)).collect();
    let want = evaluate(work, &values, &before);
    let want: Vec<f64> = want.iter().map(|value| rounded(work.output.element, *value)).collect();
    for wide in [false, true] {
        // Kernels with wide indices differ in nothing else: a few do for all.
        if wide && !(what.starts_with("padded") || what.contains("mixed") || what.contains("zeros")) {
            continue;
        }
        let got = bench.run_with(work, wide, &bytes, &encoded(work.output.element, &before));
        for (i, (got, want)) in decoded(work.output.element, &got).iter().zip(&want).enumerate() {
            assert_eq!(got, want, "{what}, wide {wide}: element {i}");
        }
    }
}

#[test]
fn tensors_of_any_layout_are_copied() {
    let Some(bench) = bench("tensors_of_any_layout_are_copied") else { return };
    use Element::*;
    let dims = [2usize, 3, 5, 40];
    let (first, last) = (packed(&dims), [600, 1, 120, 3]);
    for (what, dims, input, output) in [
        ("packed", &dims[..], view(F32, &first, 0, None), Output::new(F32, &first[..])),
        ("packed bytes", &dims, view(U8, &first, 5, None), Output::new(U8, &first[..])),
        ("packed words", &dims, view(I64, &first, 5, None), Output::new(I64, &first[..])),
        ("a row that four does not divide", &[37], view(F16, &[1], 1, None), Output::new(F16, [1])),
        ("one element", &[1, 1], view(F16, &[1, 1], 7, None), Output::new(F16, [1, 1])),
        ("no dimension", &[], view(F16, &[], 7, None), Output::new(F16, [])),
        ("to channels last", &dims, view(F16, &first, 0, None), Output::new(F16, last)),
        ("from channels last", &dims, view(BF16, &last, 0, None), Output::new(BF16, &first[..])),
        ("converted from channels last", &dims, view(F32, &last, 0, None), Output::new(BF16, &first[..])),
        ("through tiles", &[70, 50], view(F16, &[1, 72], 3, None), Output::new(F16, [50, 1])),
        ("bytes through tiles", &[2, 66, 33], view(U8, &[2300, 1, 66], 0, None), Output::new(U8, [2200, 33, 1])),
        ("converted through tiles", &[40, 65], view(F32, &[1, 40], 0, None), Output::new(BF16, [66, 1])),
        ("widened through tiles", &[32, 130], view(BF16, &[1, 33], 1, None), Output::new(F32, [130, 1])),
        ("flipped", &[6, 3, 3], view(F32, &[9, -3, -1], 8, None), Output::new(F32, [9, 3, 1])),
        ("flipped, long", &[6, 3, 50], view(F32, &[150, -50, -1], 149, None), Output::new(F32, [150, 50, 1])),
        (
            "into the middle",
            &[4, 6, 33],
            view(F32, &[198, 33, 1], 0, None),
            Output { element: F32, strides: vec![500, 50, 1], offset: 111 },
        ),
        ("every other", &[4, 40], view(F32, &[80, 2], 1, None), Output::new(F32, [120, 3])),
        ("a slice", &[4, 40], view(F32, &[100, 1], 30, None), Output::new(F32, [40, 1])),
        ("broadcast", &[4, 6, 40], view(F16, &[0, 1, 0], 0, None), Output::new(F32, [240, 40, 1])),
        (
            "written backwards",
            &[4, 40],
            view(F32, &[40, 1], 0, None),
            Output { element: F32, strides: vec![-40, -1], offset: 159 },
        ),
        ("padded rows", &[3, 4, 36], view(F32, &[120, 30, 1], 0, Some((2, 2, 30, 1))), Output::new(F32, [144, 36, 1])),
        (
            "padded columns",
            &[3, 8, 36],
            view(F16, &[180, 36, 1], 0, Some((1, 1, 5, 1))),
            Output::new(F32, [288, 36, 1]),
        ),
        ("padded, short rows", &[3, 4, 9], view(F32, &[24, 6, 1], 0, Some((2, 2, 6, 1))), Output::new(F32, [36, 9, 1])),
        ("cropped", &[3, 4, 20], view(F32, &[120, 30, 1], 0, Some((2, -7, 30, 1))), Output::new(F32, [80, 20, 1])),
        ("cropped and padded", &[3, 40], view(F32, &[30, 1], 0, Some((1, -7, 30, 1))), Output::new(F32, [40, 1])),
        ("padded and flipped", &[3, 40], view(F32, &[30, -1], 29, Some((1, 4, 30, 1))), Output::new(F32, [40, 1])),
        ("zeros between", &[3, 40], view(F32, &[14, 1], 0, Some((1, 1, 14, 3))), Output::new(F32, [40, 1])),
        ("zeros between rows", &[8, 40], view(BF16, &[40, 1], 0, Some((0, -1, 4, 2))), Output::new(BF16, [40, 1])),
        ("beyond everything", &[8, 40], view(F32, &[40, 1], 0, Some((0, 9, 4, 1))), Output::new(F32, [40, 1])),
        ("transposed with padding", &[40, 9], view(F32, &[1, 40], 0, Some((1, 1, 7, 1))), Output::new(F32, [9, 1])),
        ("whole numbers of other sizes", &[3, 40], view(I8, &[40, 1], 0, None), Output::new(I32, [1, 3])),
        ("truths", &[3, 40], view(Boolean, &[40, 1], 0, None), Output::new(Boolean, [40, 1])),
    ] {
        check_exactly(
            &bench,
            what,
            &Elementwise { dims: dims.to_vec(), inputs: vec![input], output, program: Vec::new() },
        );
    }
}

#[test]
fn chains_over_tensors_of_any_layout_are_one_kernel() {
    let Some(bench) = bench("chains_over_tensors_of_any_layout_are_one_kernel") else { return };
    use Element::*;
    use PointwiseMode::*;
    // relu(x + bias · 3 - residual) + index, with a scalar and a constant.
    let program = |inputs: usize| {
        vec![
            Op::pointwise(Mul, &[1, 3]),
            Op::pointwise(Add, &[0, inputs]),
            Op::pointwise(Sub, &[inputs + 1, 2]),
            Op::pointwise(ReluFwd, &[inputs + 2]),
            Op::pointwise(Add, &[inputs + 3, 4]),
            Op::pointwise(Max, &[inputs + 4, 5]),
        ]
    };
    let dims = vec![2usize, 3, 5, 40];
    let (first, last) = (packed(&dims), vec![600, 1, 120, 3]);
    for (what, x, bias, residual, axis, output) in [
        (
            "channels first",
            view(F32, &first, 0, None),
            F32,
            view(F32, &first, 0, None),
            3,
            Output::new(F32, &first[..]),
        ),
        ("channels last", view(F16, &last, 0, None), F32, view(F16, &last, 0, None), 1, Output::new(F16, &last[..])),
        ("mixed", view(F16, &last, 0, None), BF16, view(F32, &first, 0, None), 2, Output::new(BF16, &first[..])),
        (
            "padded",
            view(F32, &[600, 200, 40, 1], 0, Some((2, 1, 3, 1))),
            F32,
            view(F16, &[0, 0, 0, 1], 0, None),
            0,
            Output::new(F32, &first[..]),
        ),
        ("wide", view(F64, &first, 0, None), I32, view(F32, &last, 0, None), 3, Output::new(F64, &first[..])),
        (
            "sparse",
            view(F32, &first, 0, None),
            F32,
            view(F32, &[0, 0, 0, 0], 3, None),
            3,
            Output::new(F32, [1800, 600, 120, 3]),
        ),
    ] {
        let bias = view(bias, &[0, 1, 0, 0], 2, None);
        let inputs = vec![x, bias, residual, Input::Scalar(3.0), Input::Index { axis }, Input::Literal(2.0)];
        check_exactly(
            &bench,
            what,
            &Elementwise { dims: dims.clone(), program: program(inputs.len()), inputs, output },
        );
    }
    // Operands that lie across, one of which is padded and has no tile.
    let (straight, across) = (vec![1750, 50, 1], vec![1750, 1, 35]);
    for (what, x, residual, output) in [
        ("one across", view(F16, &across, 0, None), view(F32, &straight, 2, None), F32),
        ("two across", view(F32, &across, 5, None), view(F16, &across, 0, None), F16),
        ("a word and bytes across", view(F32, &across, 5, None), view(U8, &across, 3, None), F32),
        ("padded, one across", view(F32, &straight, 0, Some((2, 1, 48, 1))), view(BF16, &across, 0, None), F32),
    ] {
        let bias = view(F32, &[0, 1, 0], 2, None);
        let inputs = vec![x, bias, residual, Input::Scalar(3.0), Input::Index { axis: 1 }, Input::Literal(2.0)];
        let (program, output) = (program(inputs.len()), Output::new(output, &straight[..]));
        check_exactly(&bench, what, &Elementwise { dims: vec![2, 35, 50], program, inputs, output });
    }
}

#[test]
fn random_work_computes_its_definition() {
    let Some(bench) = bench("random_work_computes_its_definition") else { return };
    let count = std::env::var("HIPDNN_RS_RANDOM_KERNELS").map_or(12, |count| count.parse().unwrap());
    for seed in 0..count {
        let work = Random::new(seed).work();
        check_exactly(&bench, &format!("seed {seed}: {work:?}, mixed"), &work);
    }
}

#[test]
fn one_kernel_serves_many_shapes_and_scalars() {
    let Some(bench) = bench("one_kernel_serves_many_shapes_and_scalars") else { return };
    let work = |dims: [usize; 2], scalar: f64| Elementwise {
        dims: dims.to_vec(),
        inputs: vec![Input::Tensor(View::new(Element::F32, [dims[1] as i64 + 1, 1])), Input::Scalar(scalar)],
        output: Output::new(Element::F32, [dims[1] as i64, 1]),
        program: vec![Op::pointwise(PointwiseMode::Mul, &[0, 1])],
    };
    let values: Vec<f64> = (0..4000).map(f64::from).collect();
    // By where rows lie: at no multiples of a vector, at some where they are read, at some where they are written. The text
    // says which, and nothing else of the extents.
    let mut kernels: [Vec<PreparedKernel>; 3] = [const { Vec::new() }; 3];
    for (class, dims, scalar) in [
        (0, [40, 50], 2.0),
        (1, [4, 703], -1.0),
        (0, [70, 33], 0.5),
        (0, [2, 1997], 3.0),
        (2, [3, 700], 0.25),
        (1, [2, 1999], 5.0),
        (2, [50, 60], -4.0),
    ] {
        let work = work(dims, scalar);
        let kernel = prepare(bench.context.kernels(), &work.kernel(), &bench.store).unwrap();
        let inputs = [encoded(Element::F32, &values)];
        let output = encoded(Element::F32, &values);
        let got = bench.launch(&kernel, &inputs, &output, &[]);
        assert_eq!(decoded(Element::F32, &got), evaluate(&work, std::slice::from_ref(&values), &values), "{dims:?}");
        let other = Elementwise { inputs: vec![work.inputs[0].clone(), Input::Scalar(7.0)], ..work };
        let got = bench.launch(&kernel, &inputs, &output, &[7.0]);
        assert_eq!(decoded(Element::F32, &got), evaluate(&other, std::slice::from_ref(&values), &values), "{dims:?}");
        kernels[class].push(kernel);
    }
    let function = |kernel: &PreparedKernel| kernel.kernel.as_ref().unwrap().compiled.function();
    for same in &kernels {
        assert!(same.len() > 1 && same.iter().all(|kernel| function(kernel) == function(&same[0])), "one code object");
    }
}

#[test]
fn nothing_is_launched_for_no_elements_and_wrong_calls_are_refused() {
    let Some(bench) = bench("nothing_is_launched_for_no_elements_and_wrong_calls_are_refused") else { return };
    let work = |dims: Vec<usize>| Elementwise {
        inputs: vec![Input::Tensor(View::new(Element::F32, packed(&dims))), Input::Scalar(1.0)],
        output: Output::new(Element::F32, packed(&dims)),
        program: vec![Op::pointwise(PointwiseMode::Add, &[0, 1])],
        dims,
    };
    let empty = prepare(bench.context.kernels(), &work(vec![3, 0, 2]).kernel(), &bench.store).unwrap();
    let null = std::ptr::null_mut();
    // SAFETY: there is no element to read or write.
    unsafe { empty.launch(&mut Queue::new(bench.stream.raw().cast()), &[null], &[null], &[]) }.unwrap();
    let kernel = prepare(bench.context.kernels(), &work(vec![3]).kernel(), &bench.store).unwrap();
    // SAFETY: nothing is launched.
    let (tensors, scalars) = unsafe {
        let stream = bench.stream.raw().cast();
        (
            kernel.launch(&mut Queue::new(stream), &[], &[null], &[]),
            kernel.launch(&mut Queue::new(stream), &[null], &[null], &[1.0, 2.0]),
        )
    };
    assert_eq!(tensors.unwrap_err().to_string(), "expected 1 tensors to read and 1 to write, got 0 and 1");
    assert_eq!(scalars.unwrap_err().to_string(), "expected values for the kernel's 1 scalars, got 2");
}

#[test]
fn a_tensor_may_be_written_where_it_is_read() {
    let Some(bench) = bench("a_tensor_may_be_written_where_it_is_read") else { return };
    let work = vector(PointwiseMode::Neg, Parameters::default(), Element::F16, Element::F16, 1001);
    let kernel = prepare(bench.context.kernels(), &work.kernel(), &bench.store).unwrap();
    let values: Vec<f64> = (0..1001).map(f64::from).collect();
    let _entered = bench.context.device().enter().unwrap();
    let memory = DeviceMemory::new(bench.context.device().gpu(), 2002).unwrap();
    memory.write(0, &encoded(Element::F16, &values), &bench.stream).unwrap();
    // SAFETY: 1001 elements of two bytes, read after the kernel.
    unsafe { kernel.launch(&mut Queue::new(bench.stream.raw().cast()), &[memory.address()], &[memory.address()], &[]) }
        .unwrap();
    let mut bytes = vec![0; 2002];
    memory.read(0, &mut bytes, &bench.stream).unwrap();
    assert!(decoded(Element::F16, &bytes).iter().zip(&values).all(|(got, value)| *got == -value));
}

#[test]
fn code_objects_come_from_the_store() {
    let Some(bench) = bench("code_objects_come_from_the_store") else { return };
    let directory = std::env::temp_dir().join(format!("hipdnn-rs-code-objects-{}", std::process::id()));
    let store = Store::at(&directory);
    let work = vector(PointwiseMode::Add, Parameters::default(), Element::F16, Element::BF16, 100);
    let KernelSource { name, text, .. } = work.kernel().source().unwrap().unwrap();
    let files = || std::fs::read_dir(&directory).map_or(0, |files| files.count());
    // Kernels of their own each, as in a process.
    let own = || Kernels::new(Arc::clone(bench.context.kernels().device()));
    let first = own();
    let compiled = first.get(name, &text, &store).unwrap();
    assert_eq!(files(), 1);
    assert!(Arc::ptr_eq(&compiled, &first.get(name, &text, &store).unwrap()), "once in a process");
    own().get(name, &text, &store).unwrap();
    assert_eq!(files(), 1);

    // What can't be loaded is compiled again and replaced.
    let key = compile::key(bench.context.device(), &text);
    store.put("kernel", &key, b"no code object");
    assert_eq!(store.get("kernel", &key).as_deref(), Some(&b"no code object"[..]));
    own().get(name, &text, &store).unwrap();
    assert!(store.get("kernel", &key).unwrap().starts_with(b"\x7fELF"));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn what_the_compiler_says_is_passed_on() {
    let Some(bench) = bench("what_the_compiler_says_is_passed_on") else { return };
    let kernels = Kernels::new(Arc::clone(bench.context.kernels().device()));
    let error = kernels.get(c"elementwise", "int f( { return undeclared; }", &bench.store).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("hiprtcCompileProgram gave HIPRTC_ERROR_COMPILATION (6) for gfx"), "{text}");
    assert!(text.contains("hipdnn_rs.hip:1:"), "{text}");
}

#[test]
fn kernels_compile_for_other_devices_too() {
    let Some(bench) = bench("kernels_compile_for_other_devices_too") else { return };
    let modes = [PointwiseMode::GeluBwd, PointwiseMode::Tan, PointwiseMode::SoftplusFwd];
    let work = rows(&modes, PARAMETERS, Element::F16, 100);
    let wide = work.kernel().source_with(Choice { wide: true, ..Choice::default() }).unwrap().unwrap().text;
    let narrow = work.kernel().source().unwrap().unwrap().text;
    // With waves of 64 and of 32.
    for (arch, text) in [("gfx906", &narrow), ("gfx942", &wide), ("gfx1030", &wide), ("gfx1201", &narrow)] {
        let gpu = bench.context.device().gpu();
        let code = compile::compile(gpu, arch, text).unwrap();
        assert!(code.starts_with(b"\x7fELF"), "{arch}");
        assert!(code == compile::compile_with(gpu, arch, text, &[]).unwrap(), "{arch}: HIP's headers change it");
        assert!(compile::can_do_without_headers(), "{arch}");
    }
}
