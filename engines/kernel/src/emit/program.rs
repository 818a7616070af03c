//! Programs of kernels: operations over slots, computed for an element.

use std::collections::BTreeSet;

use hipdnn_engine_core::ops::pointwise::{self, Parameters};
use hipdnn_schemas::PointwiseMode;

use super::element::Element;

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
        operands: Vec<usize>,
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
        Op::Pointwise { mode, parameters: Parameters::default(), operands: operands.to_vec() }
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
            Op::Pointwise { mode, parameters, .. } => {
                formula(*mode, parameters).map_or(0, |formula| formula.scalars.len())
            }
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
pub(super) enum Numbers {
    /// `f32`.
    Single,
    /// `f64`.
    Double,
    /// `i64`, saturating.
    Whole,
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

/// Lower clip, upper clip and slope of a ReLU.
fn relu(p: &Parameters) -> [f32; 3] {
    [p.relu_lower_clip, p.relu_upper_clip, p.relu_lower_clip_slope]
}

const PLAIN_RELU: [f32; 3] = [0.0, f32::INFINITY, 0.0];

/// C expression of a mode: text with `$0`, `$1`, `$2` for operands and `$a`, `$b`, … for scalars.
struct Formula {
    text: &'static str,
    scalars: Vec<f32>,
}

/// Helper function in C, and the helpers and math functions that it calls.
struct Helper {
    name: &'static str,
    text: &'static str,
    uses: &'static [&'static str],
}

/// Helper functions in the order of their definitions.
const HELPERS: &[Helper] = &[
    Helper {
        name: "whole_add",
        text: "DEVICE real whole_add(real x, real y) {
  real sum;
  return __builtin_add_overflow(x, y, &sum) ? y < 0 ? LEAST : MOST : sum;
}",
        uses: &[],
    },
    Helper {
        name: "whole_sub",
        text: "DEVICE real whole_sub(real x, real y) {
  real difference;
  return __builtin_sub_overflow(x, y, &difference) ? y < 0 ? MOST : LEAST : difference;
}",
        uses: &[],
    },
    Helper {
        name: "whole_mul",
        text: "DEVICE real whole_mul(real x, real y) {
  real product;
  return __builtin_mul_overflow(x, y, &product) ? (x < 0) != (y < 0) ? LEAST : MOST : product;
}",
        uses: &[],
    },
    // e^-|x| never overflows, and the quotient keeps its precision on both sides.
    Helper {
        name: "sigmoid",
        text: "DEVICE real sigmoid(real x) {
  real e = MATH(exp)(-MATH(fabs)(x));
  return (x < real(0) ? e : real(1)) / (real(1) + e);
}",
        uses: &["exp", "fabs"],
    },
    // Without the cancellation of 1 - s.
    Helper {
        name: "sigmoid_slope",
        text: "DEVICE real sigmoid_slope(real x) {
  real e = MATH(exp)(-MATH(fabs)(x)), d = real(1) + e;
  return e / (d * d);
}",
        uses: &["exp", "fabs"],
    },
    // x·weight, but 0 for an infinite x of weight zero; a NaN weight comes from a NaN x.
    Helper {
        name: "gate",
        text: "DEVICE real gate(real x, real weight) { return weight != weight ? weight : weight == real(0) ? real(0) : x * weight; }",
        uses: &[],
    },
    // A slope of zero is flat even at minus infinity.
    Helper {
        name: "relu",
        text: "DEVICE real relu(real x, real lower, real upper, real slope) {
  real below = slope == real(0) ? (x != x ? x : lower) : MATH(fma)(slope, x - lower, lower);
  real y = x > lower ? x : below;
  return y > upper ? upper : y;
}",
        uses: &["fma"],
    },
    Helper {
        name: "relu_bwd",
        text: "DEVICE real relu_bwd(real x, real dy, real lower, real upper, real slope) {
  return dy * (x <= lower ? slope : x > upper ? real(0) : real(1));
}",
        uses: &[],
    },
    // d/dx x·s(βx) = s + βx·s'(βx); far out the last factor is 0 and x may be infinite: their product is 0 in the
    // limit.
    Helper {
        name: "swish_bwd",
        text: "DEVICE real swish_bwd(real x, real dy, real beta) { return dy * (sigmoid(beta * x) + gate(beta * x, sigmoid_slope(beta * x))); }",
        uses: &["sigmoid", "sigmoid_slope", "gate"],
    },
    Helper {
        name: "gelu",
        text: "DEVICE real gelu(real x) { return gate(x, real(0.5) * MATH(erfc)(x * real(-0.70710678118654752))); }",
        uses: &["gate", "erfc"],
    },
    // d/dx x·Φ(x) = Φ(x) + x·φ(x), with Φ and φ the normal distribution and its density.
    Helper {
        name: "gelu_bwd",
        text: "DEVICE real gelu_bwd(real x, real dy) {
  real density = MATH(exp)(real(-0.5) * x * x) * real(0.39894228040143268);
  return dy * (real(0.5) * MATH(erfc)(x * real(-0.70710678118654752)) + gate(x, density));
}",
        uses: &["gate", "erfc", "exp"],
    },
    // (1 + tanh u) / 2 = sigmoid(2u) with u = √(2/π)·(x + 0.044715·x³)
    Helper {
        name: "gelu_tanh",
        text: "DEVICE real gelu_tanh(real x) { return gate(x, sigmoid(real(1.5957691216057308) * MATH(fma)(real(0.044715), x * x * x, x))); }",
        uses: &["gate", "sigmoid", "fma"],
    },
    // d/dx x·s(2u) = s + x·s'(2u)·2u'
    Helper {
        name: "gelu_tanh_bwd",
        text: "DEVICE real gelu_tanh_bwd(real x, real dy) {
  real u2 = real(1.5957691216057308) * MATH(fma)(real(0.044715), x * x * x, x);
  real du2 = real(1.5957691216057308) * MATH(fma)(real(0.134145), x * x, real(1));
  real slope = sigmoid_slope(u2);
  return dy * (sigmoid(u2) + (slope == real(0) ? real(0) : x * slope * du2));
}",
        uses: &["sigmoid", "sigmoid_slope", "fma"],
    },
    Helper {
        name: "elu",
        text: "DEVICE real elu(real x, real alpha) { return x > real(0) ? x : alpha * MATH(expm1)(x); }",
        uses: &["expm1"],
    },
    Helper {
        name: "elu_bwd",
        text: "DEVICE real elu_bwd(real x, real dy, real alpha) { return x > real(0) ? dy : dy * alpha * MATH(exp)(x); }",
        uses: &["exp"],
    },
    Helper {
        name: "softplus",
        text: "DEVICE real softplus(real x, real beta) {
  real t = beta * x;
  return ((t < real(0) ? real(0) : t) + MATH(log1p)(MATH(exp)(-MATH(fabs)(t)))) / beta;
}",
        uses: &["exp", "log1p", "fabs"],
    },
];

/// Semantics of each mode, the same as on the CPU engine.
fn formula(mode: PointwiseMode, p: &Parameters) -> Option<Formula> {
    use PointwiseMode::*;
    let relu = relu(p);
    let (text, scalars): (_, &[f32]) = match mode {
        Unset | GenIndex => return None,
        Identity => ("$0", &[]),
        Abs => ("MATH(fabs)($0)", &[]),
        Ceil => ("MATH(ceil)($0)", &[]),
        Erf => ("MATH(erf)($0)", &[]),
        Exp => ("MATH(exp)($0)", &[]),
        Floor => ("MATH(floor)($0)", &[]),
        Log => ("MATH(log)($0)", &[]),
        LogicalNot => ("TRUTH($0 == real(0))", &[]),
        Neg => ("-$0", &[]),
        Reciprocal => ("real(1) / $0", &[]),
        Rsqrt => ("real(1) / MATH(sqrt)($0)", &[]),
        Sin => ("MATH(sin)($0)", &[]),
        Sqrt => ("MATH(sqrt)($0)", &[]),
        Tan => ("MATH(tan)($0)", &[]),
        Add => ("$0 + $1", &[]),
        AddSquare => ("$0 + $1 * $1", &[]),
        Sub => ("$0 - $1", &[]),
        Mul => ("$0 * $1", &[]),
        Div => ("$0 / $1", &[]),
        Max => ("$0 > $1 || $0 != $0 ? $0 : $1", &[]),
        Min => ("$0 < $1 || $0 != $0 ? $0 : $1", &[]),
        CmpEq => ("TRUTH($0 == $1)", &[]),
        CmpNeq => ("TRUTH($0 != $1)", &[]),
        CmpGt => ("TRUTH($0 > $1)", &[]),
        CmpGe => ("TRUTH($0 >= $1)", &[]),
        CmpLt => ("TRUTH($0 < $1)", &[]),
        CmpLe => ("TRUTH($0 <= $1)", &[]),
        LogicalAnd => ("TRUTH($0 != real(0) && $1 != real(0))", &[]),
        LogicalOr => ("TRUTH($0 != real(0) || $1 != real(0))", &[]),
        BinarySelect => ("$2 != real(0) ? $0 : $1", &[]),
        // By far the most frequent one has no scalars to load; NaN stays.
        ReluFwd if relu == PLAIN_RELU => ("$0 > real(0) || $0 != $0 ? $0 : real(0)", &[]),
        ReluFwd => ("relu($0, $a, $b, $c)", &relu),
        ReluBwd => ("relu_bwd($0, $1, $a, $b, $c)", &relu),
        SigmoidFwd => ("sigmoid($0)", &[]),
        SigmoidBwd => ("$1 * sigmoid_slope($0)", &[]),
        TanhFwd => ("MATH(tanh)($0)", &[]),
        // 1 - tanh² x = 4·s'(2x)
        TanhBwd => ("$1 * (real(4) * sigmoid_slope(real(2) * $0))", &[]),
        EluFwd => ("elu($0, $a)", &[p.elu_alpha]),
        EluBwd => ("elu_bwd($0, $1, $a)", &[p.elu_alpha]),
        SoftplusFwd => ("softplus($0, $a)", &[p.softplus_beta]),
        SoftplusBwd => ("$1 * sigmoid($a * $0)", &[p.softplus_beta]),
        SwishFwd => ("gate($0, sigmoid($a * $0))", &[p.swish_beta]),
        SwishBwd => ("swish_bwd($0, $1, $a)", &[p.swish_beta]),
        GeluFwd => ("gelu($0)", &[]),
        GeluBwd => ("gelu_bwd($0, $1)", &[]),
        GeluApproxTanhFwd => ("gelu_tanh($0)", &[]),
        GeluApproxTanhBwd => ("gelu_tanh_bwd($0, $1)", &[]),
    };
    Some(Formula { text, scalars: scalars.to_vec() })
}

/// Formulas that differ for integers: results out of range saturate.
fn whole_formula(mode: PointwiseMode) -> Option<Formula> {
    let text = match mode {
        PointwiseMode::Abs => "$0 < 0 ? whole_sub(0, $0) : $0",
        PointwiseMode::Neg => "whole_sub(0, $0)",
        PointwiseMode::Add => "whole_add($0, $1)",
        PointwiseMode::AddSquare => "whole_add($0, whole_mul($1, $1))",
        PointwiseMode::Sub => "whole_sub($0, $1)",
        PointwiseMode::Mul => "whole_mul($0, $1)",
        _ => return None,
    };
    Some(Formula { text, scalars: Vec::new() })
}

/// Functions of the device's math library that formulas call, with their number of operands.
const MATH: &[(&str, usize)] = &[
    ("ceil", 1),
    ("erf", 1),
    ("erfc", 1),
    ("exp", 1),
    ("expm1", 1),
    ("fabs", 1),
    ("floor", 1),
    ("fma", 3),
    ("log", 1),
    ("log1p", 1),
    ("rint", 1),
    ("sin", 1),
    ("sqrt", 1),
    ("tan", 1),
    ("tanh", 1),
];

/// Declarations that programs in C need beside their statements.
#[derive(Debug)]
pub(super) struct Text {
    numbers: Numbers,
    /// Values of the scalars, in order: statements call them `a.p<index>`.
    pub(super) scalars: Vec<f32>,
    /// Names of the helpers and math functions that are called.
    uses: BTreeSet<&'static str>,
    /// Element types that are converted from and to.
    widened: Vec<Element>,
    narrowed: Vec<Element>,
}

impl Text {
    /// Declarations of no program.
    pub(super) fn new(numbers: Numbers) -> Text {
        Text { numbers, scalars: Vec::new(), uses: BTreeSet::new(), widened: Vec::new(), narrowed: Vec::new() }
    }

    /// Compute type of the programs.
    pub(super) fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// Statements of a program over `inputs` slots, which compute `t<slot>` from the slots before it; the error is the
    /// defect of the program.
    pub(super) fn program(&mut self, inputs: usize, program: &[Op]) -> Result<String, String> {
        let mut statements = String::new();
        for (i, op) in program.iter().enumerate() {
            let slot = inputs + i;
            if let Some(later) = op.operands().iter().find(|operand| **operand >= slot) {
                return Err(format!("operation {i} reads slot {later}, which comes after it: there are {slot}"));
            }
            let expression = match op {
                Op::Round { to, operand } => {
                    self.widen(*to);
                    self.narrow(*to);
                    format!("widen_{0}(narrow_{0}(t{operand}))", to.suffix())
                }
                Op::Pointwise { mode, parameters, operands } => {
                    if operands.len() != mode.operands() {
                        let (wanted, came) = (mode.operands(), operands.len());
                        return Err(format!("{mode} takes {wanted} operands, operation {i} has {came}"));
                    }
                    let whole = if self.numbers == Numbers::Whole { whole_formula(*mode) } else { None };
                    let formula = whole
                        .or_else(|| formula(*mode, parameters))
                        .ok_or_else(|| format!("{mode} is no operation"))?;
                    self.expression(&formula, operands)
                }
            };
            statements += &format!("    const real t{slot} = {expression};\n");
        }
        Ok(statements)
    }

    fn expression(&mut self, formula: &Formula, operands: &[usize]) -> String {
        self.use_names(formula.text);
        let mut parts = formula.text.split('$');
        let mut expression = parts.next().expect("there is one part at least").to_owned();
        for part in parts {
            let (name, rest) = part.split_at(1);
            expression += &match name.as_bytes()[0] {
                digit @ b'0'..=b'9' => format!("t{}", operands[usize::from(digit - b'0')]),
                letter => format!("a.p{}", self.scalars.len() + usize::from(letter - b'a')),
            };
            expression.push_str(rest);
        }
        self.scalars.extend(&formula.scalars);
        expression
    }

    /// Adds the helpers and math functions that are called in a formula, and those that they call.
    fn use_names(&mut self, text: &'static str) {
        for helper in HELPERS {
            if calls(text, helper.name) && self.uses.insert(helper.name) {
                for name in helper.uses {
                    self.use_name(name);
                }
            }
        }
        for (name, _) in MATH {
            if text.contains(&format!("MATH({name})")) {
                self.uses.insert(name);
            }
        }
    }

    /// Adds a helper or math function, and those that it calls.
    pub(super) fn use_name(&mut self, name: &'static str) {
        if self.uses.insert(name)
            && let Some(helper) = HELPERS.iter().find(|helper| helper.name == name)
        {
            for name in helper.uses {
                self.use_name(name);
            }
        }
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
        if element.narrows_by_rint() && self.numbers != Numbers::Whole {
            self.use_name("rint");
        }
    }

    /// Declarations and functions that the statements need.
    pub(super) fn prelude(&self) -> String {
        let (real, suffix) = match self.numbers {
            Numbers::Single => ("float", "f32"),
            Numbers::Double => ("double", "f64"),
            Numbers::Whole => ("long", ""),
        };
        let mut text = format!("typedef {real} real;\n#define MATH(name) __ocml_##name##_{suffix}\n");
        if self.numbers == Numbers::Whole {
            text = "typedef long real;\n#define MOST 9223372036854775807L\n#define LEAST (-MOST - 1)\n".to_owned();
        }
        text += "#define TRUTH(holds) ((holds) ? real(1) : real(0))\n";
        for (name, operands) in MATH.iter().filter(|(name, _)| self.uses.contains(name)) {
            let operands = vec!["real"; *operands].join(", ");
            text += &format!("extern \"C\" __attribute__((device, const)) real MATH({name})({operands});\n");
        }
        if self.narrowed.iter().any(|element| element.narrows_by_odd()) {
            text += if self.numbers == Numbers::Double { ODD_DOUBLE } else { ODD_SINGLE };
        }
        let whole = self.numbers == Numbers::Whole;
        let narrow = |element: &Element| if whole { element.narrow_whole() } else { element.narrow() };
        let functions = HELPERS.iter().filter(|helper| self.uses.contains(helper.name)).map(|helper| helper.text);
        let functions = functions.chain(self.widened.iter().map(|e| e.widen()));
        for function in functions.chain(self.narrowed.iter().map(narrow)) {
            text += function;
            text.push('\n');
        }
        text
    }
}

/// Literal in C; integers have at most the digits of `f64`.
pub(super) fn literal(numbers: Numbers, value: f64) -> String {
    match numbers {
        Numbers::Whole => format!("{}L", value as i64),
        Numbers::Double => format!("__builtin_bit_cast(double, {:#018x}ul)", value.to_bits()),
        Numbers::Single => format!("__builtin_bit_cast(float, {:#010x}u)", (value as f32).to_bits()),
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

/// True if a formula calls the helper of exactly that name, not one whose name ends or begins so.
fn calls(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        text[at + name.len()..].starts_with('(')
            && !before.is_some_and(|c| c == '_' || c.is_alphanumeric())
            && !text[..at].ends_with("MATH(")
    })
}

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
