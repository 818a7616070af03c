//! Functions of pointwise nodes, on rows of `f32`, `f64` and `i64`.

use hipdnn_engine_core::ops::pointwise::{self, Operands, Parameters, Whole};
use hipdnn_schemas::PointwiseMode;

use hipdnn_cpu_kernels::activation::{
    self, Activation, Arithmetic, Operand, error_function, error_function_row, exponential, exponential_row,
};
use hipdnn_cpu_simd::isa::{Isa, Kernel, Simd};

/// Pointwise function with its scalars.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Function {
    mode: PointwiseMode,
    parameters: Parameters,
    /// Kernel of all instruction sets that computes it in `f32`, if there is one.
    activation: Option<Activation>,
}

impl Function {
    /// Function of a mode; `None` if it is not set. Index generation is the identity of its operand, the index.
    pub fn new(mode: PointwiseMode, parameters: &Parameters) -> Option<Function> {
        let mode = match mode {
            PointwiseMode::Unset => return None,
            PointwiseMode::GenIndex => PointwiseMode::Identity,
            mode => mode,
        };
        let p = *parameters;
        let activation = match mode {
            PointwiseMode::Identity => Some(Activation::Identity),
            PointwiseMode::ReluFwd => Some(Activation::Relu {
                lower_clip: p.relu_lower_clip,
                upper_clip: p.relu_upper_clip,
                slope: p.relu_lower_clip_slope,
            }),
            PointwiseMode::SigmoidFwd => Some(Activation::Sigmoid),
            PointwiseMode::TanhFwd => Some(Activation::Tanh),
            PointwiseMode::SwishFwd => Some(Activation::Swish { beta: p.swish_beta }),
            PointwiseMode::GeluFwd => Some(Activation::Gelu),
            PointwiseMode::GeluApproxTanhFwd => Some(Activation::GeluTanh),
            PointwiseMode::EluFwd => Some(Activation::Elu { alpha: p.elu_alpha }),
            PointwiseMode::SoftplusFwd => Some(Activation::Softplus { beta: p.softplus_beta }),
            _ => None,
        };
        Some(Function { mode, parameters: p, activation })
    }

    /// Mode of the function.
    pub fn mode(&self) -> PointwiseMode {
        self.mode
    }

    /// Activation that the function is, if there is a kernel for it.
    pub fn activation(&self) -> Option<Activation> {
        self.activation
    }

    /// Number of operands.
    pub fn operands(&self) -> usize {
        self.mode.operands()
    }

    /// True if the function is defined on whole numbers.
    pub fn is_whole(&self) -> bool {
        pointwise::is_whole(self.mode, &self.parameters)
    }

    /// True if the function of whole numbers is always a whole number.
    pub fn keeps_whole(&self) -> bool {
        pointwise::keeps_whole(self.mode, &self.parameters)
    }

    /// Replaces each `a` by the function of `a`, `b` and `c`; operands that the function does not take are not read.
    pub fn apply(&self, isa: Isa, a: &mut [f32], b: &[f32], c: &[f32]) {
        match self.activation {
            Some(activation) => activation.apply(isa, a),
            None if self.mode == PointwiseMode::Exp => exponential(isa, a),
            None if self.mode == PointwiseMode::Erf => error_function(isa, a),
            None => self.computed(pointwise::apply::<f32, _>(self.mode, &self.parameters, Rows { isa, a, b, c })),
        }
    }

    /// True for functions of `f32` that are computed from rows to another one, or in the place of one.
    pub fn is_direct(&self) -> bool {
        self.activation.is_some()
            || self.arithmetic().is_some()
            || matches!(self.mode, PointwiseMode::Exp | PointwiseMode::Erf)
    }

    /// Arithmetic that the function is, if it is one whose operands may be single values.
    pub fn arithmetic(&self) -> Option<Arithmetic> {
        Some(match self.mode {
            PointwiseMode::Add => Arithmetic::Add,
            PointwiseMode::Sub => Arithmetic::Sub,
            PointwiseMode::Mul => Arithmetic::Mul,
            PointwiseMode::Div => Arithmetic::Div,
            _ => return None,
        })
    }

    /// Computes a row of `len` values from rows, or from single values where the function is arithmetic; the bits are
    /// those of [`Function::apply`].
    ///
    /// # Safety
    /// As many values can be read of each row and written at `to`, which may be the row of an operand and overlaps them in no
    /// other way.
    ///
    /// # Panics
    /// If the function is not [`Function::is_direct`].
    pub unsafe fn apply_row(&self, isa: Isa, to: *mut f32, [a, b]: [Operand; 2], len: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(arithmetic) = self.arithmetic() {
                return arithmetic.apply_row(isa, to, a, b, len);
            }
            let Operand::Row(from) = a else { panic!("expected a row, got a single value: {}", self.mode) };
            let row = activation::Row { from, to, len };
            match self.activation {
                Some(activation) => activation.apply_row(isa, row),
                None if self.mode == PointwiseMode::Exp => exponential_row(isa, row),
                None if self.mode == PointwiseMode::Erf => error_function_row(isa, row),
                None => panic!("expected a function of rows, got {}", self.mode),
            }
        }
    }

    /// Variant of [`Function::apply`] in `f64`.
    pub fn apply_wide(&self, isa: Isa, a: &mut [f64], b: &[f64], c: &[f64]) {
        self.computed(pointwise::apply::<f64, _>(self.mode, &self.parameters, Rows { isa, a, b, c }));
    }

    /// Variant of [`Function::apply`] in whole numbers.
    ///
    /// # Panics
    /// If it is not [`Function::is_whole`].
    pub fn apply_whole(&self, isa: Isa, a: &mut [i64], b: &[i64], c: &[i64]) {
        self.computed(pointwise::apply_whole::<Whole, _>(self.mode, &self.parameters, Rows { isa, a, b, c }));
    }

    fn computed(&self, applied: Option<()>) {
        applied.unwrap_or_else(|| panic!("expected a function of these numbers, got {}", self.mode));
    }
}

/// Rows of operands, of which the first one takes the results.
struct Rows<'a, T> {
    isa: Isa,
    a: &'a mut [T],
    b: &'a [T],
    c: &'a [T],
}

impl<T: Copy + From<N>, N: From<T>> Operands<N> for Rows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn unary(self, f: impl Fn(N) -> N) {
        self.isa.run(Loop(
            #[inline(always)]
            move || {
                for x in self.a {
                    *x = f((*x).into()).into();
                }
            },
        ));
    }

    #[inline(always)]
    fn binary(self, f: impl Fn(N, N) -> N) {
        self.isa.run(Loop(
            #[inline(always)]
            move || {
                for (x, y) in self.a.iter_mut().zip(self.b) {
                    *x = f((*x).into(), (*y).into()).into();
                }
            },
        ));
    }

    #[inline(always)]
    fn ternary(self, f: impl Fn(N, N, N) -> N) {
        self.isa.run(Loop(
            #[inline(always)]
            move || {
                for ((x, y), z) in self.a.iter_mut().zip(self.b).zip(self.c) {
                    *x = f((*x).into(), (*y).into(), (*z).into()).into();
                }
            },
        ));
    }
}

/// Loop that is compiled for the instruction set, so that it is vectorized where it can be.
struct Loop<F>(F);

impl<F: FnOnce()> Kernel for Loop<F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use hipdnn_engine_core::ops::pointwise::testing::{PARAMETERS, definition, forward_of, whole_definition};

    use super::*;

    #[test]
    fn every_mode_computes_its_definition() {
        // Steps of 37/256 around zero, none on a kink of a function (where slopes are a matter of definition).
        let xs: Vec<f32> = (-40..=40).map(|i| i as f32 * 37.0 / 256.0 + 1.0 / 512.0).collect();
        let ys: Vec<f32> = xs.iter().rev().map(|v| v * 0.5 + 0.125).collect();
        let ts: Vec<f32> = (0..xs.len()).map(|i| (i % 2) as f32).collect();
        let mut served = 0;
        for &mode in PointwiseMode::ALL {
            let Some(function) = Function::new(mode, &PARAMETERS) else {
                assert!(mode == PointwiseMode::Unset, "{mode} is not served");
                continue;
            };
            served += 1;
            assert_eq!(function.operands(), mode.operands(), "{mode}");
            // A definition of a backward mode is a difference, whose error is much below a rounding in f32.
            let reference = |x, y, t| definition(function.mode(), &PARAMETERS, [x, y, t]);
            for isa in Isa::of_vectors() {
                let mut out = xs.clone();
                function.apply(isa, &mut out, &ys, &ts);
                for (i, got) in out.iter().enumerate() {
                    let (x, y, t) = (f64::from(xs[i]), f64::from(ys[i]), f64::from(ts[i]));
                    let want = reference(x, y, t);
                    // A handful of roundings on values of at most |x|·|y|-like size, each half a unit in the last
                    // place; tangents near their poles multiply the input's rounding, which is exact here.
                    let scale = want.abs().max(x.abs()).max(y.abs()).max(1.0);
                    let bound = 16.0 * f64::from(f32::EPSILON) * scale;
                    let same = (want.is_nan() && got.is_nan()) || (f64::from(*got) - want).abs() <= bound;
                    assert!(same, "{mode} on {isa}: f({x}, {y}, {t}): expected {want} within {bound:e}, got {got}");
                }
            }
            let wide = |values: &[f32]| values.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
            let mut out = wide(&xs);
            function.apply_wide(Isa::best(), &mut out, &wide(&ys), &wide(&ts));
            for (i, got) in out.iter().enumerate() {
                let (x, y, t) = (f64::from(xs[i]), f64::from(ys[i]), f64::from(ts[i]));
                let want = reference(x, y, t);
                // As above; where the definition is a difference of fourth order with step h = 4.8e-4, its error is
                // h⁴/30 times the fifth derivative, at most a few hundred here, and roundings of the function over h.
                let scale = want.abs().max(x.abs()).max(y.abs()).max(1.0);
                let bound = if forward_of(mode).is_some() { 1e-11 } else { 16.0 * f64::EPSILON } * scale;
                let same = (want.is_nan() && got.is_nan()) || (got - want).abs() <= bound;
                assert!(same, "{mode} in f64: f({x}, {y}, {t}): expected {want} within {bound:e}, got {got}");
            }
            if !function.is_whole() || mode == PointwiseMode::ReluFwd {
                continue;
            }
            let numbers: Vec<i64> = (-8..=8).collect();
            for y in &numbers {
                let mut out = numbers.clone();
                function.apply_whole(Isa::best(), &mut out, &[*y; 17], &[y % 2; 17]);
                for (x, got) in numbers.iter().zip(out) {
                    let want = whole_definition(function.mode(), [*x, *y, y % 2]).expect("a mode of whole numbers");
                    assert_eq!(got, want.clamp(i64::MIN.into(), i64::MAX.into()) as i64, "{mode} of {x} and {y}");
                }
            }
        }
        assert_eq!(served, PointwiseMode::ALL.len() - 1);
    }

    #[test]
    fn whole_numbers_saturate() {
        use PointwiseMode::*;
        for (mode, x, y, want) in [
            (Add, i64::MAX, 1, i64::MAX),
            (Sub, i64::MIN, 1, i64::MIN),
            (Mul, i64::MAX, -2, i64::MIN),
            (AddSquare, 1, i64::MIN, i64::MAX),
            (Neg, i64::MIN, 0, i64::MAX),
            (Abs, i64::MIN, 0, i64::MAX),
            (Div, -7, 2, -3),
            (Div, -7, 0, i64::MIN),
            (Div, i64::MIN, -1, i64::MAX),
            (ReluFwd, -7, 0, 0),
            (ReluFwd, 1 << 60, 0, 1 << 60),
        ] {
            let mut a = [x];
            Function::new(mode, &Parameters::default()).unwrap().apply_whole(Isa::best(), &mut a, &[y], &[0]);
            assert_eq!(a[0], want, "{mode} of {x} and {y}");
        }
    }

    #[test]
    fn nan_is_kept_and_infinity_has_its_limit() {
        use PointwiseMode::*;
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        for (mode, x, y, want) in [
            (Max, nan, 1.0, nan),
            (Max, 1.0, nan, nan),
            (Min, nan, 1.0, nan),
            (Min, 1.0, nan, nan),
            (Add, inf, -inf, nan),
            (ReluFwd, nan, 0.0, nan),
            (SwishBwd, inf, 1.0, 1.0),
            (SwishBwd, -inf, 1.0, 0.0),
            (GeluBwd, inf, 2.0, 2.0),
            (GeluBwd, -inf, 2.0, 0.0),
            (GeluApproxTanhBwd, 30.0, 2.0, 2.0),
            (GeluApproxTanhBwd, -30.0, 2.0, 0.0),
            (SigmoidBwd, -200.0, 1.0, 0.0),
            (CmpNeq, nan, nan, 1.0),
            (CmpEq, nan, nan, 0.0),
        ] {
            let function = Function::new(mode, &Parameters::default()).unwrap();
            let mut a = [x];
            function.apply(Isa::best(), &mut a, &[y], &[0.0]);
            assert!(
                a[0] == want || (a[0].is_nan() && want.is_nan()),
                "{mode}({x}, {y}): expected {want}, got {}",
                a[0]
            );
            let mut a = [f64::from(x)];
            function.apply_wide(Isa::best(), &mut a, &[f64::from(y)], &[0.0]);
            let (got, want) = (a[0], f64::from(want));
            let same = (got - want).abs() <= 1e-80 || got == want || (got.is_nan() && want.is_nan());
            assert!(same, "{mode}({x}, {y}) in f64: expected {want}, got {got}");
        }
    }
}
