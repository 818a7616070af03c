//! Programs of kernels: operations over slots, computed for an element.

use std::collections::BTreeSet;

use hipdnn_engine_core::ops::pointwise::{self, Parameters};
use hipdnn_schemas::PointwiseMode;
use smallvec::SmallVec;

use super::element::Element;
use super::expression;

/// Operation. Slots are numbered: first the kernel's inputs, then the results of the operations.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Pointwise operation.
    Pointwise {
        /// Mode; all but `Unset` and `GenIndex`, which is an input ([`Input::Index`](super::Input::Index)).
        mode: PointwiseMode,
        /// Scalars of the mode.
        parameters: Parameters,
        /// Operand slots, as many as the mode takes: backward modes take the forward input first and the gradient
        /// second; selection takes "if true", "if false" and the predicate.
        operands: SmallVec<[usize; 3]>,
    },
    /// Rounding of a value to an element type and back.
    Round {
        /// Element type.
        to: Element,
        /// Operand slot.
        operand: usize,
    },
}

impl Op {
    /// Pointwise operation whose scalars have their defaults.
    pub fn pointwise(mode: PointwiseMode, operands: &[usize]) -> Op {
        Op::Pointwise { mode, parameters: Parameters::default(), operands: operands.into() }
    }

    /// Operation with other slots as operands.
    pub fn relocated(&self, slot: impl Fn(usize) -> usize) -> Op {
        match self {
            Op::Pointwise { mode, parameters, operands } => Op::Pointwise {
                mode: *mode,
                parameters: *parameters,
                operands: operands.iter().map(|operand| slot(*operand)).collect(),
            },
            Op::Round { to, operand } => Op::Round { to: *to, operand: slot(*operand) },
        }
    }

    /// Number of its scalars that are arguments of the kernel.
    pub fn scalars(&self) -> usize {
        match self {
            Op::Pointwise { mode, parameters, .. } => expression::scalar_count(ComputeType::F32, *mode, parameters),
            Op::Round { .. } => 0,
        }
    }

    /// Operand slots.
    pub fn operands(&self) -> &[usize] {
        match self {
            Op::Pointwise { operands, .. } => operands,
            Op::Round { operand, .. } => std::slice::from_ref(operand),
        }
    }
}

/// Compute type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComputeType {
    /// `f32`.
    F32,
    /// `f64`.
    F64,
    /// `i64`, saturating.
    I64,
    /// Uninterpreted bytes of that number, which are only moved.
    Bits(usize),
}

impl Op {
    /// True if integers give an integer, and so may be computed with as such: where the CPU engine does.
    pub fn keeps_whole(&self) -> bool {
        match self {
            Op::Round { to, .. } => to.is_whole(),
            Op::Pointwise { mode, parameters, .. } => pointwise::keeps_whole(*mode, parameters),
        }
    }
}

/// Arithmetic of whole numbers, by name: results out of range saturate.
const WHOLE: &[(&str, &str)] = &[
    (
        "whole_add",
        "DEVICE real whole_add(real x, real y) {
  real sum;
  return __builtin_add_overflow(x, y, &sum) ? y < 0 ? LEAST : MOST : sum;
}",
    ),
    (
        "whole_sub",
        "DEVICE real whole_sub(real x, real y) {
  real difference;
  return __builtin_sub_overflow(x, y, &difference) ? y < 0 ? MOST : LEAST : difference;
}",
    ),
    (
        "whole_mul",
        "DEVICE real whole_mul(real x, real y) {
  real product;
  return __builtin_mul_overflow(x, y, &product) ? (x < 0) != (y < 0) ? LEAST : MOST : product;
}",
    ),
];

/// Functions of the device's math library that statements call; `fma` has three operands, the others one.
const MATH: &[&str] = &[
    "ceil", "erf", "erfc", "exp", "expm1", "fabs", "floor", "fma", "log", "log1p", "rint", "sin", "sqrt", "tan", "tanh",
];

/// Declarations that programs in C need beside their statements.
#[derive(Debug)]
pub(super) struct Text {
    compute_type: ComputeType,
    /// Values of the scalars, in order: statements call them `a.p<index>`.
    pub(super) scalars: Vec<f32>,
    /// Names of the helpers and math functions that are called.
    uses: BTreeSet<&'static str>,
    /// Element types that are converted from and to.
    widened: Vec<Element>,
    narrowed: Vec<Element>,
    /// Short functions that statements call.
    short: BTreeSet<Short>,
}

/// Functions that are off by a few units of `f32`'s last place, or more where no more can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Short {
    Divide,
    Gelu,
    /// Exponential that is only summed.
    Power,
    /// Exponential of which only a half is left.
    PowerOfHalf,
}

/// Slots of a program by their uses. Those that are in no list are read by operations alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Results {
    /// Slots that are rounded to `f16` and stored, and nothing else but operations reads them.
    pub(super) halves: Vec<usize>,
    /// Slots that are only summed.
    pub(super) sums: Vec<usize>,
    /// Slots with other results, among others.
    pub(super) others: Vec<usize>,
}

impl Results {
    /// True if nothing is left of a slot's value but halves.
    fn is_half(&self, slot: usize, program: &[Op]) -> bool {
        self.halves.contains(&slot) && !is_read(slot, program)
    }

    /// True if nothing is left of a slot's value but halves, which may be products with it or quotients: these are off
    /// by as much, relatively, as it is. The first operation has the slot `inputs`.
    fn is_factor_of_half(&self, slot: usize, inputs: usize, program: &[Op]) -> bool {
        let is_loose = |(i, op): (usize, &Op)| match op {
            Op::Pointwise { mode: PointwiseMode::Mul | PointwiseMode::Div, operands, .. } => {
                operands.iter().filter(|operand| **operand == slot).count() == 1 && self.is_half(inputs + i, program)
            }
            _ => false,
        };
        let mut readers = program.iter().enumerate().filter(|(_, op)| op.operands().contains(&slot));
        !self.sums.contains(&slot) && !self.others.contains(&slot) && readers.all(is_loose)
    }
}

/// True if an operation reads a slot.
fn is_read(slot: usize, program: &[Op]) -> bool {
    program.iter().any(|op| op.operands().contains(&slot))
}

impl Short {
    /// Short function of a mode for a slot of a program, whose first operation has the slot `inputs`.
    fn of(mode: PointwiseMode, slot: usize, inputs: usize, program: &[Op], results: &Results) -> Option<Short> {
        match mode {
            PointwiseMode::Div => results.is_half(slot, program).then_some(Short::Divide),
            PointwiseMode::GeluFwd => results.is_half(slot, program).then_some(Short::Gelu),
            PointwiseMode::Exp if results.is_factor_of_half(slot, inputs, program) => Some(Short::PowerOfHalf),
            PointwiseMode::Exp => (results.sums.contains(&slot) && !is_read(slot, program)).then_some(Short::Power),
            _ => None,
        }
    }

    /// Call of the function.
    fn call(self, operands: &[usize]) -> String {
        match self {
            Short::Divide => format!("divide(t{}, t{})", operands[0], operands[1]),
            Short::Gelu => format!("gelu(t{})", operands[0]),
            Short::Power => format!("power(t{})", operands[0]),
            Short::PowerOfHalf => format!("power_of_half(t{})", operands[0]),
        }
    }

    /// Definition in C.
    fn definition(self) -> &'static str {
        match self {
            Short::Divide => DIVIDE,
            Short::Gelu => GELU,
            Short::Power => POWER,
            Short::PowerOfHalf => POWER_OF_HALF,
        }
    }

    /// Math functions that it calls.
    fn math(self) -> &'static [&'static str] {
        match self {
            Short::Divide => &["fabs"],
            Short::Gelu => &["fabs", "fma"],
            Short::Power => &["fma"],
            Short::PowerOfHalf => &[],
        }
    }
}

impl Text {
    /// Declarations of no program.
    pub(super) fn new(compute_type: ComputeType) -> Text {
        let (uses, scalars) = (BTreeSet::new(), Vec::new());
        Text { compute_type, scalars, uses, widened: Vec::new(), narrowed: Vec::new(), short: BTreeSet::new() }
    }

    /// Compute type of the programs.
    pub(super) fn compute_type(&self) -> ComputeType {
        self.compute_type
    }

    /// Statements of a program over `inputs` slots, which compute `t<slot>` from the slots before it; the error is the
    /// defect of the program. Where what becomes of slots does not tell the difference, their functions are short ones.
    pub(super) fn program(&mut self, inputs: usize, program: &[Op], results: &Results) -> Result<String, String> {
        let mut statements = self.statements(inputs, program)?;
        let is_single = self.compute_type == ComputeType::F32;
        for (i, op) in program.iter().enumerate().filter(|_| is_single) {
            let Op::Pointwise { mode, operands, .. } = op else { continue };
            let slot = inputs + i;
            let Some(short) = Short::of(*mode, slot, inputs, program, results) else { continue };
            let own = |line: &&str| !line.trim_start().starts_with(&format!("const auto t{slot}_"));
            let others: Vec<&str> = statements.lines().filter(own).collect();
            let name = format!("    const real t{slot} = ");
            let line = format!("{name}{};", short.call(operands));
            let replaced = others.iter().map(|other| if other.starts_with(&name) { line.as_str() } else { *other });
            statements = replaced.map(|line| format!("{line}\n")).collect();
            self.uses.extend(short.math());
            self.short.insert(short);
        }
        self.note(&statements);
        Ok(statements)
    }

    /// Statements of the operations as they are.
    fn statements(&mut self, inputs: usize, program: &[Op]) -> Result<String, String> {
        let mut statements = String::new();
        for (i, op) in program.iter().enumerate() {
            let slot = inputs + i;
            if let Some(later) = op.operands().iter().find(|operand| **operand >= slot) {
                return Err(format!("operation {i}: expected a slot below {slot}, got {later}"));
            }
            statements += &match op {
                Op::Round { to, operand } => {
                    self.widen(*to);
                    self.narrow(*to);
                    format!("    const real t{slot} = widen_{0}(narrow_{0}(t{operand}));\n", to.suffix())
                }
                Op::Pointwise { mode, parameters, operands } => {
                    if operands.len() != mode.operands() {
                        let (wanted, came) = (mode.operands(), operands.len());
                        return Err(format!("operation {i}: expected {wanted} operands of {mode}, got {came}"));
                    }
                    expression::statements(self.compute_type, *mode, parameters, operands, slot, &mut self.scalars)
                        .ok_or_else(|| format!("{mode} is no operation"))?
                }
            };
        }
        Ok(statements)
    }

    /// Adds the helpers and math functions that statements call.
    fn note(&mut self, statements: &str) {
        let whole = WHOLE.iter().map(|(name, _)| *name).filter(|name| statements.contains(name));
        let math = MATH.iter().copied().filter(|name| statements.contains(&format!("MATH({name})")));
        self.uses.extend(whole.chain(math));
    }

    /// Adds a helper or math function.
    pub(super) fn use_name(&mut self, name: &'static str) {
        self.uses.insert(name);
    }

    /// Adds the conversion from an element type.
    pub(super) fn widen(&mut self, element: Element) {
        if !self.widened.contains(&element) {
            self.widened.push(element);
        }
    }

    /// Adds the conversion to an element type.
    pub(super) fn narrow(&mut self, element: Element) {
        if !self.narrowed.contains(&element) {
            self.narrowed.push(element);
        }
        if element.narrows_by_rint() && self.compute_type != ComputeType::I64 {
            self.use_name("rint");
        }
    }

    /// Declarations and functions that the statements need.
    pub(super) fn prelude(&self) -> String {
        let (real, suffix) = match self.compute_type {
            ComputeType::F32 => ("float", "f32"),
            ComputeType::F64 => ("double", "f64"),
            ComputeType::I64 => ("long", ""),
            ComputeType::Bits(bytes) => return format!("typedef {} real;\n", unsigned(bytes)),
        };
        let mut text = format!("typedef {real} real;\n#define MATH(name) __ocml_##name##_{suffix}\n");
        if self.compute_type == ComputeType::I64 {
            text = "typedef long real;\n#define MOST 9223372036854775807L\n#define LEAST (-MOST - 1)\n".to_owned();
        }
        for name in MATH.iter().filter(|name| self.uses.contains(*name)) {
            let operands = if *name == "fma" { "real, real, real" } else { "real" };
            text += &format!("extern \"C\" __attribute__((device, const)) real MATH({name})({operands});\n");
        }
        if self.narrowed.iter().any(|element| element.narrows_by_odd()) {
            text += if self.compute_type == ComputeType::F64 { ODD_DOUBLE } else { ODD_SINGLE };
        }
        self.short.iter().for_each(|short| text += short.definition());
        let whole = self.compute_type == ComputeType::I64;
        let narrow = |element: &Element| if whole { element.narrow_whole() } else { element.narrow() };
        let functions = WHOLE.iter().filter(|(name, _)| self.uses.contains(name)).map(|(_, text)| *text);
        let functions = functions.chain(self.widened.iter().map(|e| e.widen()));
        for function in functions.chain(self.narrowed.iter().map(narrow)) {
            text += function;
            text.push('\n');
        }
        text
    }
}

/// C type of uninterpreted bytes of that number.
fn unsigned(bytes: usize) -> &'static str {
    match bytes {
        1 => "unsigned char",
        2 => "unsigned short",
        4 => "unsigned",
        _ => "unsigned long",
    }
}

/// Literal in C; integers have at most the digits of `f64`.
pub(super) fn literal(compute_type: ComputeType, value: f64) -> String {
    match compute_type {
        ComputeType::I64 => format!("{}L", value as i64),
        // What is moved has no padding but zeros.
        ComputeType::Bits(_) => "0".to_owned(),
        ComputeType::F64 => format!("__builtin_bit_cast(double, {:#018x}ul)", value.to_bits()),
        ComputeType::F32 => format!("__builtin_bit_cast(float, {:#010x}u)", (value as f32).to_bits()),
    }
}

/// True if a number can be a constant of integer programs: beyond 2⁵³ not every integer is exact in `f64`.
pub(super) fn is_whole(value: f64) -> bool {
    value.fract() == 0.0 && value.abs() <= (1i64 << 53) as f64
}

/// True if every index along a dimension of that extent is exact in `f32`.
pub(super) fn fits_single(extent: usize) -> bool {
    extent <= 1 << 24
}

/// `a / b` within two units of `f32`'s last place. Where several are divided by the same, its reciprocal is computed
/// once; that of what is very large or small is taken of a number of the usual size.
const DIVIDE: &str = "DEVICE real divide(real a, real b) {
  const real size = MATH(fabs)(b);
  const real scale = size > 7.9228163e28f ? 2.3283064e-10f : size < 1.2621774e-29f ? 4.2949673e9f : 1.0f;
  return a * __builtin_amdgcn_rcpf(b * scale) * scale;
}
";

/// `x · Φ(x)` within 6e-6 of itself where that is a normal number, and for every `f16` within 0.51 units of its last
/// place. Φ(-z) is `e^(-z²/2)` times a polynomial in `1 / (1 + 0.3 z)`, which is within 2e-6 for z up to 13.5 (least
/// squares on 20,001 points, reweighted towards the smallest largest relative error); behind that the power is
/// nothing.
const GELU: &str = "DEVICE real gelu(real x) {
  const real z = MATH(fabs)(x), t = __builtin_amdgcn_rcpf(MATH(fma)(0.3f, z, 1.0f));
  real p = MATH(fma)(-0.084642664f, t, 0.24073674f);
  p = MATH(fma)(p, t, -0.048859242f);
  p = MATH(fma)(p, t, 0.16490576f);
  p = MATH(fma)(p, t, 0.10665573f);
  p = MATH(fma)(p, t, 0.12128303f);
  p = MATH(fma)(p, t, -8.033612e-05f);
  const real tail = p * __builtin_amdgcn_exp2f(z * z * -0.72134752f), weight = x < real(0) ? tail : real(1) - tail;
  return weight == real(0) ? real(0) : x * weight;
}
";

/// `e^x` within 2.5 units of `f32`'s last place where that is a normal number, and 0 where it is a smaller one. The power
/// of two is that of a rounded product, and `1 + rest` the power of what rounding has lost. Of an infinite exponent the
/// rest is no number, and any factor above 0 will do.
const POWER: &str = "DEVICE real power(real x) {
  const real p = x * 1.442695f, rest = MATH(fma)(p, 1.9046542e-09f, MATH(fma)(p, -0.6931472f, x));
  return __builtin_amdgcn_exp2f(p) * (__builtin_fmaxf(rest, -0.5f) + 1.0f);
}
";

/// `e^x` within 8e-6 of itself where a half tells it from 0.
const POWER_OF_HALF: &str = "DEVICE real power_of_half(real x) { return __builtin_amdgcn_exp2f(x * 1.442695f); }
";

const ODD_SINGLE: &str = "DEVICE float odd(float v) { return v; }\n";

/// Rounding to odd. On the way to a shorter type through `float` only the last step may round: this one truncates and
/// sets the last bit where something was lost, so that the next step knows on which side the value lay.
const ODD_DOUBLE: &str = "DEVICE float odd(double v) {
  float near = float(v);
  if (double(near) == v || v != v || near == 0.0f || __builtin_isinf(near)) return near;
  unsigned bits = __builtin_bit_cast(unsigned, near);
  if (__builtin_fabs(double(near)) > __builtin_fabs(v)) bits -= 1;
  return __builtin_bit_cast(float, bits | 1);
}
";

#[cfg(test)]
mod tests {
    use half::f16;

    use super::{DIVIDE, GELU, POWER, POWER_OF_HALF};

    /// A text's literals in `f32`, in order.
    fn literals(text: &str) -> Vec<f32> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
        let words = text.split(|c: char| !is_part(c)).filter_map(|word| word.strip_suffix('f'));
        words.filter_map(|word| word.parse().ok()).collect()
    }

    /// What the text computes, with a reciprocal and a power of two that are rounded correctly.
    fn gelu(x: f32, literals: &[f32]) -> f32 {
        let [scale, one, first, rest @ .., power] = literals else { panic!("expected literals, got {literals:?}") };
        let z = x.abs();
        let t = 1.0 / scale.mul_add(z, *one);
        let p = rest.iter().fold(*first, |p, c| p.mul_add(t, *c));
        let tail = p * (z * z * power).exp2();
        let weight = if x < 0.0 { tail } else { 1.0 - tail };
        if weight == 0.0 { 0.0 } else { x * weight }
    }

    #[test]
    fn the_short_gelu_rounds_every_half_to_a_neighbor_of_the_exact_value() {
        let literals = literals(GELU);
        assert_eq!(literals.len(), 10, "{literals:?}");
        let mut worst = (0.0, 0.0);
        for x in (0..=u16::MAX).map(f16::from_bits).filter(|x| x.is_finite()) {
            let exact = f64::from(x) * 0.5 * libm::erfc(-f64::from(x) / std::f64::consts::SQRT_2);
            let got = f16::from_f32(gelu(f32::from(x), &literals));
            // The unit in the last place of a half as large as the exact value, subnormal ones included.
            let unit = 2f64.powi((exact.abs().log2().floor() as i32).max(-14) - 10);
            let error = (f64::from(got) - exact).abs() / unit;
            if error > worst.0 {
                worst = (error, f64::from(x));
            }
        }
        assert!(worst.0 <= 0.51, "expected at most 0.51 units of the last place, got {} at {}", worst.0, worst.1);
        assert!(gelu(f32::NAN, &literals).is_nan() && gelu(f32::NEG_INFINITY, &literals) == 0.0);
    }

    /// Powers of two are off by a unit of the last place, and 0 where they are no normal numbers.
    #[test]
    fn short_powers_are_as_near_as_they_say() {
        let [product, low, high, least, one] = literals(POWER)[..] else { panic!("expected five literals") };
        assert_eq!((least, one, literals(POWER_OF_HALF)), (-0.5, 1.0, vec![product]));
        let exp2 = |p: f32, off: i32| {
            let power = f64::from(p).exp2() as f32;
            match power.is_normal() {
                true => f32::from_bits(power.to_bits().wrapping_add_signed(off)),
                false if power.is_subnormal() => 0.0,
                false => power,
            }
        };
        let power = |x: f32, off: i32| {
            let p = x * product;
            exp2(p, off) * (p.mul_add(low, p.mul_add(high, x)).max(least) + one)
        };
        let half = |x: f32, off: i32| exp2(x * product, off);
        let mut random = fastrand::Rng::with_seed(7);
        let mixed = std::iter::repeat_with(|| random.f32() * 176.0 - 88.0).take(1 << 16);
        for x in mixed.chain((-1404..1420).map(|i| i as f32 / 16.0)) {
            for off in [-1, 0, 1] {
                let want = f64::from(x).exp();
                let error = |got: f32| (f64::from(got) - want).abs() / want;
                let (near, nearer) = (error(half(x, off)), error(power(x, off)));
                assert!(nearer < 3e-7 || want < 1.2e-38, "{x}: {} for {want}", power(x, off));
                assert!(near < 8e-6 || want < 1.2e-38, "{x}: {} for {want}", half(x, off));
            }
        }
        for (x, want) in
            [(f32::NEG_INFINITY, 0.0), (f32::INFINITY, f32::INFINITY), (-200.0, 0.0), (200.0, f32::INFINITY)]
        {
            assert_eq!((power(x, 0), half(x, 0)), (want, want), "{x}");
        }
        assert!(power(f32::NAN, 0).is_nan() && half(f32::NAN, 0).is_nan());
    }

    /// The reciprocal is one of a device that has no subnormal numbers, and is off by a unit of the last place.
    #[test]
    fn the_short_quotient_rounds_to_a_neighbor_of_the_exact_half() {
        let [large, down, small, up, one] = literals(DIVIDE)[..] else { panic!("expected five literals") };
        assert_eq!([large, down, small, up, one].map(f32::log2), [96.0, -32.0, -96.0, 32.0, 0.0]);
        let divide = |a: f32, b: f32| {
            let size = b.abs();
            let scale = if size > large {
                down
            } else if size < small {
                up
            } else {
                one
            };
            let scaled = b * scale;
            assert!(!scaled.is_subnormal(), "{b}");
            let reciprocal = 1.0 / scaled;
            assert!(!reciprocal.is_subnormal(), "{b}");
            a * f32::from_bits(reciprocal.to_bits() + u32::from(reciprocal.is_normal())) * scale
        };
        let numbers = (0..254u32).flat_map(|exponent| [0, 0x2a_aaab, 0x7f_ffff].map(|digits| exponent << 23 | digits));
        let numbers: Vec<f32> = numbers.map(f32::from_bits).collect();
        for (a, b) in numbers.iter().flat_map(|a| numbers.iter().map(move |b| (*a, -*b))) {
            let (got, want) = (f16::from_f32(divide(a, b)), f64::from(a) / f64::from(b));
            if want.is_nan() {
                assert!(got.is_nan(), "{a} / {b}");
                continue;
            }
            let unit = 2f64.powi((want.abs().log2().floor() as i32).clamp(-14, 15) - 10);
            let is_large = want.abs() >= 65519.0;
            let error = (f64::from(got) - want).abs() / unit;
            assert!(error <= 0.501 || (is_large && got.is_infinite()), "{a} / {b}: {got} for {want}");
        }
        for (a, b) in
            [(f32::INFINITY, 2.0), (1.0, f32::INFINITY), (1.0, 0.0), (f32::INFINITY, f32::INFINITY), (0.0, 0.0)]
        {
            let (got, want) = (divide(a, b), a / b);
            assert!(got == want || (got.is_nan() && want.is_nan()), "{a} / {b}: {got} for {want}");
        }
    }
}
