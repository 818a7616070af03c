//! Activation functions on `f32` slices.
//!
//! Every one keeps NaN and has its limits at the infinities. Stated errors are in units in the last place of the exact
//! result (tested against f64); results below the smallest normal number may be zero.

use super::sums::{add_widened, total};
use hipdnn_cpu_simd::isa::{EXPONENT, Isa, Kernel, Lanewise, MAX_LANES, Several, Simd, WHOLE, first};

/// Maps an expression of `x`, written in the operations of the set `s`, over all values of a row: of [`TOGETHER`] vectors at a time,
/// operation by operation, then of whole vectors, then of what is left.
macro_rules! map_several {
    ($s:ident, $row:expr, |$x:ident| $value:expr) => {{
        let Row { from, to, len } = $row;
        let mut at = 0;
        while at + TOGETHER * S::LANES <= len {
            let mut values = [$s.splat(0.0); TOGETHER];
            for i in 0..TOGETHER {
                // SAFETY: so many values are left in the row, which who computes it vouches for.
                values[i] = unsafe { $s.load(from.add(at + i * S::LANES)) };
            }
            let values = {
                let ($s, $x) = (Several::<S, TOGETHER>($s), values);
                $value
            };
            for i in 0..TOGETHER {
                // SAFETY: so many places are left; their values have been read.
                unsafe { $s.store(to.add(at + i * S::LANES), values[i]) };
            }
            at += TOGETHER * S::LANES;
        }
        map(
            $s,
            Row { from, to, len }.part(at, len - at),
            #[inline(always)]
            |$x| $value,
        )
    }};
}

/// Vectors whose values are computed together, operation by operation.
const TOGETHER: usize = 4;

/// An activation with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// The identity.
    Identity,
    /// `lower_clip + slope · (x - lower_clip)` up to `lower_clip`, above it `x`; never above `upper_clip`.
    Relu {
        /// Threshold from which on the function is the identity.
        lower_clip: f32,
        /// The largest result; infinity for none.
        upper_clip: f32,
        /// The slope below `lower_clip`.
        slope: f32,
    },
    /// `1 / (1 + e⁻ˣ)`, within 4 ulp.
    Sigmoid,
    /// `tanh x`, within 6 ulp.
    Tanh,
    /// `x · sigmoid(beta · x)`, within 6 ulp of the result for the rounded `beta · x`.
    Swish {
        /// Scale of the sigmoid's argument.
        beta: f32,
    },
    /// GELU: `x · (1 + erf(x / √2)) / 2`, within 2⁻²²·|x|.
    Gelu,
    /// Tanh approximation of GELU, within 2⁻²²·|x|.
    GeluTanh,
    /// `alpha · (eˣ - 1)` below zero, above it `x`; within 4 ulp.
    Elu {
        /// Scale of the negative side.
        alpha: f32,
    },
    /// `ln(1 + e^(beta·x)) / beta`, within 6 ulp for the rounded `beta · x`.
    Softplus {
        /// Sharpness of the bend; not zero.
        beta: f32,
    },
    /// `alpha · x + beta` between 0 and 1.
    HardSigmoid {
        /// Slope.
        alpha: f32,
        /// Value at zero.
        beta: f32,
    },
    /// `x` times the hard sigmoid.
    HardSwish {
        /// Slope of the hard sigmoid.
        alpha: f32,
        /// Value of the hard sigmoid at zero.
        beta: f32,
    },
    /// `|x|`.
    Abs,
    /// `-x`.
    Neg,
}

impl Activation {
    /// The plain ReLU, `max(x, 0)`.
    pub const RELU: Activation = Activation::Relu { lower_clip: 0.0, upper_clip: f32::INFINITY, slope: 0.0 };

    /// Replaces each value by its activation.
    pub fn apply(&self, isa: Isa, values: &mut [f32]) {
        // SAFETY: a row may take its own results.
        unsafe { self.apply_row(isa, Row::of(values)) };
    }

    /// Computes the activation of each value of a row.
    ///
    /// # Safety
    /// As [`Row`] says.
    pub unsafe fn apply_row(&self, isa: Isa, row: Row) {
        isa.run(Apply { activation: *self, row });
    }

    /// Bounds `(low, high)` of the clamp that the activation is, if it is one that keeps NaN.
    pub fn as_clamp(&self) -> Option<(f32, f32)> {
        match *self {
            Activation::Identity => Some((f32::NEG_INFINITY, f32::INFINITY)),
            Activation::Relu { lower_clip, upper_clip, slope } if slope == 0.0 && lower_clip <= upper_clip => {
                Some((lower_clip, upper_clip))
            }
            _ => None,
        }
    }

    /// [`Activation::apply`] inside of a kernel.
    #[inline(always)]
    pub fn apply_with<S: Simd>(&self, s: S, values: &mut [f32]) {
        self.map(s, Row::of(values));
    }

    #[inline(always)]
    fn map<S: Simd>(&self, s: S, row: Row) {
        match *self {
            Activation::Identity => {
                if !std::ptr::eq(row.from, row.to) {
                    map(
                        s,
                        row,
                        #[inline(always)]
                        |x| x,
                    );
                }
            }
            Activation::Relu { lower_clip, upper_clip, slope: 0.0 } => {
                let (low, high) = (s.splat(lower_clip), s.splat(upper_clip));
                map(
                    s,
                    row,
                    #[inline(always)]
                    |x| s.min(high, s.max(low, x)),
                );
            }
            Activation::Relu { lower_clip, upper_clip, slope } => {
                let (low, high, slope) = (s.splat(lower_clip), s.splat(upper_clip), s.splat(slope));
                map(
                    s,
                    row,
                    #[inline(always)]
                    |x| {
                        let leaky = s.fma(slope, s.sub(x, low), low);
                        s.min(high, s.select(s.lt(low, x), x, leaky))
                    },
                );
            }
            Activation::Sigmoid => map_several!(s, row, |x| sigmoid(s, x)),
            Activation::Tanh => map_several!(s, row, |x| tanh(s, x)),
            Activation::Swish { beta } => {
                // A finite `x` where the weight vanishes: on one side.
                if beta > 0.0 {
                    map_several!(s, row, |x| {
                        let weight = sigmoid_of_negative(s, s.mul(s.splat(-beta), x));
                        s.mul(s.max(s.splat(f32::MIN), x), weight)
                    });
                } else {
                    let high = if beta < 0.0 { f32::MAX } else { f32::INFINITY };
                    map_several!(s, row, |x| {
                        let weight = sigmoid_of_negative(s, s.mul(s.splat(-beta), x));
                        s.mul(s.min(s.splat(high), x), weight)
                    });
                }
            }
            Activation::Gelu => map_several!(s, row, |x| {
                let half = s.splat(0.5);
                let weight = s.fma(half, erf(s, s.mul(x, s.splat(std::f32::consts::FRAC_1_SQRT_2))), half);
                s.mul(s.max(s.splat(f32::MIN), x), weight)
            }),
            Activation::GeluTanh => map_several!(s, row, |x| {
                // (1 + tanh u) / 2 = sigmoid(2u) with u = √(2/π)·(x + 0.044715·x³)
                let cube = s.mul(s.mul(x, x), x);
                let u2 = s.mul(s.splat(-1.595_769), s.fma(s.splat(0.044715), cube, x));
                s.mul(s.max(s.splat(f32::MIN), x), sigmoid_of_negative(s, u2))
            }),
            Activation::Elu { alpha } => map_several!(s, row, |x| {
                let below = s.mul(s.splat(alpha), expm1(s, s.min(s.splat(0.0), x)));
                s.select(s.lt(s.splat(0.0), x), x, below)
            }),
            Activation::Softplus { beta } => {
                let scale = 1.0 / beta;
                map_several!(s, row, |x| {
                    let t = s.mul(s.splat(beta), x);
                    let tail = log1p_unit(s, exp(s, s.sub(s.splat(0.0), s.abs(t))));
                    s.mul(s.splat(scale), s.add(s.max(s.splat(0.0), t), tail))
                });
            }
            Activation::HardSigmoid { alpha, beta } => {
                let (alpha, beta) = (s.splat(alpha), s.splat(beta));
                map(
                    s,
                    row,
                    #[inline(always)]
                    |x| hard_sigmoid(s, alpha, beta, x),
                );
            }
            Activation::HardSwish { alpha, beta } => {
                let (alpha, beta) = (s.splat(alpha), s.splat(beta));
                map(
                    s,
                    row,
                    #[inline(always)]
                    |x| gate(s, x, hard_sigmoid(s, alpha, beta, x)),
                );
            }
            Activation::Abs => map(
                s,
                row,
                #[inline(always)]
                |x| s.abs(x),
            ),
            Activation::Neg => map(
                s,
                row,
                #[inline(always)]
                |x| s.mul(s.splat(-1.0), x),
            ),
        }
    }
}

/// Row of values, and where the results go.
///
/// Its maker vouches that `len` values can be read at `from` and written at `to`. The results' place may be that of the
/// values, and overlaps it in no other way.
#[derive(Clone, Copy)]
pub struct Row {
    /// The values.
    pub from: *const f32,
    /// The results.
    pub to: *mut f32,
    /// Their number.
    pub len: usize,
}

impl Row {
    /// `len` values from `at` on.
    #[inline(always)]
    pub(super) fn part(self, at: usize, len: usize) -> Row {
        Row { from: self.from.wrapping_add(at), to: self.to.wrapping_add(at), len }
    }

    /// A row whose results take its values' place.
    #[inline(always)]
    fn of(values: &mut [f32]) -> Row {
        let to = values.as_mut_ptr();
        Row { from: to, to, len: values.len() }
    }
}

struct Apply {
    activation: Activation,
    row: Row,
}

impl Kernel for Apply {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        self.activation.map(simd, self.row);
    }
}

/// Replaces each value by `eˣ`, within 2 ulp.
pub fn exponential(isa: Isa, values: &mut [f32]) {
    // SAFETY: a row may take its own results.
    unsafe { exponential_row(isa, Row::of(values)) };
}

/// Computes what [`exponential`] does of a row.
///
/// # Safety
/// As [`Row`] says.
pub unsafe fn exponential_row(isa: Isa, row: Row) {
    isa.run(Exponential(row));
}

struct Exponential(Row);

impl Kernel for Exponential {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        map_several!(s, self.0, |x| exp(s, x));
    }
}

/// Computes `eˣ⁻ʸ` of a row's values `x` and values `y`, none of which is below its `x`; within 2 ulp for the rounded
/// difference, and zero below the normal numbers.
///
/// # Safety
/// As [`Row`] says; `y` can be read as [`Operand`] says.
pub unsafe fn falling_exponential_row(isa: Isa, row: Row, y: Operand) {
    isa.run(FallingExponential { row, y });
}

struct FallingExponential {
    row: Row,
    y: Operand,
}

impl Kernel for FallingExponential {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let lanes = self.y.lanes(self.row.len);
        let mut at = 0;
        while at < self.row.len {
            let row = self.row.part(at, lanes);
            // SAFETY: the caller's promise.
            match unsafe { self.y.part(at, lanes) } {
                Part::Row(y) => map_two(
                    s,
                    row,
                    y,
                    #[inline(always)]
                    |x, y| falling_exp(s, s.sub(x, y)),
                ),
                Part::Same(y) => {
                    let y = s.splat(y);
                    map(
                        s,
                        row,
                        #[inline(always)]
                        |x| falling_exp(s, s.sub(x, y)),
                    );
                }
            }
            at += lanes;
        }
    }
}

/// Computes what [`falling_exponential_row`] does where `y` is one value for each of as many parts of the row as there are
/// sums, and adds the results of each part to its sum: in `f64`, but for the additions of up to eight. The order of a sum
/// follows from the length of a part.
///
/// # Safety
/// As [`Row`] says; a value `y` can be read for each sum.
pub unsafe fn falling_exponential_sums(isa: Isa, row: Row, y: *const f32, sums: &mut [f64]) {
    isa.run(FallingSums { row, y, sums });
}

struct FallingSums<'a> {
    row: Row,
    y: *const f32,
    sums: &'a mut [f64],
}

impl Kernel for FallingSums<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let lanes = self.row.len / self.sums.len().max(1);
        for (part, sum) in self.sums.iter_mut().enumerate() {
            // SAFETY: who computes the row vouches for its values and for a `y` for each part.
            *sum += unsafe {
                falling_exponential_sum(s, self.row.part(part * lanes, lanes), self.y.add(part).read(), self.row.len)
            };
        }
    }
}

/// Computes `eˣ⁻ʸ` of a row's values `x`, none of which is above `y`, and the sum of the results as [`falling_exponential_sums`] does.
/// Values `ahead` of the row's are prefetched meanwhile.
///
/// # Safety
/// As [`Row`] says.
#[inline(always)]
pub(crate) unsafe fn falling_exponential_sum<S: Simd>(s: S, row: Row, y: f32, ahead: usize) -> f64 {
    // SAFETY: the caller's promise.
    unsafe {
        // The fastest with 16 registers, and with 32 of twice the lanes.
        match S::LANES {
            ..=8 => falling_sum_together::<S, 6>(s, row, y, ahead),
            _ => falling_sum_together::<S, 8>(s, row, y, ahead),
        }
    }
}

/// Adds the sums of `TOGETHER` vectors at a time.
///
/// # Safety
/// As [`Row`] says.
#[inline(always)]
unsafe fn falling_sum_together<S: Simd, const TOGETHER: usize>(s: S, row: Row, y: f32, ahead: usize) -> f64 {
    // Hidden from the compiler, which would load some of them to registers ahead of the loop, and others twice in it.
    let constants = std::hint::black_box(&FALLING);
    let lanes = row.len;
    let mut sums = [s.splat_wide(0.0); 2];
    let mut at = 0;
    // SAFETY: the caller's promise. Each call gets a row of as many vectors as it takes: `TOGETHER` whole ones, or what is left of
    // the row, which is divided by their lanes.
    unsafe {
        let y = s.splat(y);
        while at + TOGETHER * S::LANES <= lanes {
            for line in (0..TOGETHER * S::LANES).step_by(LINE) {
                s.prefetch(row.from.wrapping_add(at + ahead + line));
            }
            let values = falling_sum::<S, TOGETHER>(s, row.part(at, TOGETHER * S::LANES), y, constants);
            sums = add_widened(s, sums, values);
            at += TOGETHER * S::LANES;
        }
        let (whole, is_cut) = ((lanes - at) / S::LANES, !(lanes - at).is_multiple_of(S::LANES));
        let rest = row.part(at, whole * S::LANES);
        if let Some(values) = match whole {
            // A short rest is computed at once.
            0..=2 if is_cut => None,
            0 => None,
            1 => Some(falling_sum::<S, 1>(s, rest, y, constants)),
            2 => Some(falling_sum::<S, 2>(s, rest, y, constants)),
            3 => Some(falling_sum::<S, 3>(s, rest, y, constants)),
            4 => Some(falling_sum::<S, 4>(s, rest, y, constants)),
            5 => Some(falling_sum::<S, 5>(s, rest, y, constants)),
            6 => Some(falling_sum::<S, 6>(s, rest, y, constants)),
            _ => Some(falling_sum::<S, 7>(s, rest, y, constants)),
        } {
            sums = add_widened(s, sums, values);
            at += whole * S::LANES;
        }
        if is_cut {
            let rest = row.part(at, lanes - at);
            let values = match rest.len.div_ceil(S::LANES) {
                1 => sum_of_vectors::<S, 1>(s, falling_vectors(s, rest, y, constants)),
                2 => sum_of_vectors::<S, 2>(s, falling_vectors(s, rest, y, constants)),
                _ => sum_of_vectors::<S, 3>(s, falling_vectors(s, rest, y, constants)),
            };
            sums = add_widened(s, sums, values);
        }
    }
    total(s, sums)
}

/// Computes `eˣ⁻ʸ` of a row of `N` vectors, of which the last one may have fewer lanes: zero in others of its result.
///
/// # Safety
/// As [`Row`] says; the row has more values than `N - 1` vectors have lanes, and no more than `N` have.
#[inline(always)]
unsafe fn falling_vectors<S: Simd, const N: usize>(s: S, row: Row, y: S::V, constants: &Constants) -> [S::V; N] {
    let last = (N - 1) * S::LANES;
    let lanes = row.len - last;
    let mask = s.mask(first(lanes));
    let mut values = [y; N];
    // SAFETY: the caller's promise: the row has `N - 1` whole vectors and `lanes` values, of which each is read before its place
    // is written.
    unsafe {
        for (i, value) in values[..N - 1].iter_mut().enumerate() {
            *value = s.sub(s.load(row.from.add(i * S::LANES)), y);
        }
        values[N - 1] = s.sub(s.load_masked(mask, row.from.add(last)), y);
        values = falling_exps(s, values, constants);
        for (i, value) in values[..N - 1].iter().enumerate() {
            s.store(row.to.add(i * S::LANES), *value);
        }
        s.store_first(lanes, row.to.add(last), values[N - 1]);
    }
    values[N - 1] = s.select(mask, values[N - 1], s.splat(0.0));
    values
}

/// Computes [`falling_vectors`] of `N` whole vectors, and gives the sum of the results.
///
/// # Safety
/// As [`Row`] says; the row has `N` vectors.
#[inline(always)]
unsafe fn falling_sum<S: Simd, const N: usize>(s: S, row: Row, y: S::V, constants: &Constants) -> S::V {
    // The number of lanes is one that the compiler knows.
    let row = Row { len: N * S::LANES, ..row };
    // SAFETY: the caller's promise.
    sum_of_vectors::<S, N>(s, unsafe { falling_vectors(s, row, y, constants) })
}

/// Sum of vectors, in pairs.
#[inline(always)]
fn sum_of_vectors<S: Simd, const N: usize>(s: S, mut values: [S::V; N]) -> S::V {
    let mut left = N;
    while left > 1 {
        let pairs = left / 2;
        for pair in 0..pairs {
            values[pair] = s.add(values[pair], values[left - 1 - pair]);
        }
        left -= pairs;
    }
    values[0]
}

/// Replaces each value by its error function, within 6 ulp.
pub fn error_function(isa: Isa, values: &mut [f32]) {
    // SAFETY: a row may take its own results.
    unsafe { error_function_row(isa, Row::of(values)) };
}

/// Computes what [`error_function`] does of a row.
///
/// # Safety
/// As [`Row`] says.
pub unsafe fn error_function_row(isa: Isa, row: Row) {
    isa.run(ErrorFunction(row));
}

struct ErrorFunction(Row);

impl Kernel for ErrorFunction {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        map(
            s,
            self.0,
            #[inline(always)]
            |x| erf(s, x),
        );
    }
}

/// Arithmetic of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a · b`.
    Mul,
    /// `a / b`.
    Div,
}

/// Operand of functions of rows.
#[derive(Clone, Copy)]
pub enum Operand {
    /// A value for each result.
    Row(*const f32),
    /// One value for all results.
    Same(f32),
    /// A value for every so many results, in their order. The results are a multiple of that number, and all such operands
    /// of a function have it in common.
    Each(*const f32, usize),
    /// A row of so many values, for every so many results again.
    Again(*const f32, usize),
}

/// Operand of results that have its value in common, if it has none for each.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Row(*const f32),
    Same(f32),
}

impl Operand {
    /// Number of results, of `len`, that have a value or a row in common.
    #[inline(always)]
    pub(super) fn lanes(self, len: usize) -> usize {
        match self {
            Operand::Each(_, lanes) | Operand::Again(_, lanes) => lanes,
            Operand::Row(_) | Operand::Same(_) => len,
        }
    }

    /// Operand of `lanes` results from `at` on.
    ///
    /// # Safety
    /// These are results that have a value or a row in common, and it can be read.
    #[inline(always)]
    pub(super) unsafe fn part(self, at: usize, lanes: usize) -> Part {
        match self {
            Operand::Row(row) => Part::Row(row.wrapping_add(at)),
            Operand::Again(row, _) => Part::Row(row),
            Operand::Same(value) => Part::Same(value),
            // SAFETY: the caller's promise.
            Operand::Each(values, _) => Part::Same(unsafe { values.add(at / lanes).read() }),
        }
    }
}

impl Arithmetic {
    /// Computes a row of `len` results.
    ///
    /// # Safety
    /// The operands can be read as [`Operand`] says, and `len` values be written at `to`, which may be a row of an operand, and
    /// overlaps them in no other way.
    pub unsafe fn apply_row(self, isa: Isa, to: *mut f32, a: Operand, b: Operand, len: usize) {
        isa.run(Compute { arithmetic: self, to, a, b, len });
    }
}

struct Compute {
    arithmetic: Arithmetic,
    to: *mut f32,
    a: Operand,
    b: Operand,
    len: usize,
}

impl Kernel for Compute {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.arithmetic {
            Arithmetic::Add => self.map(
                s,
                #[inline(always)]
                |a, b| s.add(a, b),
            ),
            Arithmetic::Sub => self.map(
                s,
                #[inline(always)]
                |a, b| s.sub(a, b),
            ),
            Arithmetic::Mul => self.map(
                s,
                #[inline(always)]
                |a, b| s.mul(a, b),
            ),
            Arithmetic::Div => self.map(
                s,
                #[inline(always)]
                |a, b| s.div(a, b),
            ),
        }
    }
}

impl Compute {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, f: impl Fn(S::V, S::V) -> S::V) {
        let Compute { to, a, b, len, .. } = self;
        let lanes = a.lanes(len).min(b.lanes(len));
        let mut at = 0;
        while at < len {
            // SAFETY: the caller's promise.
            let operands = unsafe { (a.part(at, lanes), b.part(at, lanes)) };
            map_parts(s, to.wrapping_add(at), operands, lanes, &f);
            at += lanes;
        }
    }
}

/// Maps `f` over two operands of a row of `len` results.
#[inline(always)]
fn map_parts<S: Simd>(s: S, to: *mut f32, operands: (Part, Part), len: usize, f: &impl Fn(S::V, S::V) -> S::V) {
    match operands {
        (Part::Row(from), Part::Row(b)) => map_two(s, Row { from, to, len }, b, f),
        (Part::Row(from), Part::Same(b)) => {
            let b = s.splat(b);
            map(
                s,
                Row { from, to, len },
                #[inline(always)]
                |a| f(a, b),
            );
        }
        (Part::Same(a), Part::Row(from)) => {
            let a = s.splat(a);
            map(
                s,
                Row { from, to, len },
                #[inline(always)]
                |b| f(a, b),
            );
        }
        (Part::Same(a), Part::Same(b)) => {
            let value = f(s.splat(a), s.splat(b));
            let mut at = 0;
            while at < len {
                // SAFETY: so many places are left of the results, for which the caller answers.
                unsafe { s.store_first((len - at).min(S::LANES), to.add(at), value) };
                at += S::LANES;
            }
        }
    }
}

/// Maps `f` over all values of a row, whole vectors at a time.
#[inline(always)]
pub(crate) fn map<S: Simd>(s: S, row: Row, f: impl Fn(S::V) -> S::V) {
    let Row { from, to, len } = row;
    let mut at = 0;
    // SAFETY: so many values are left in the row, which who computes it vouches for; each is read before its place is
    // written.
    unsafe {
        while at + S::LANES <= len {
            s.store(to.add(at), f(s.load(from.add(at))));
            at += S::LANES;
        }
        if at < len {
            let lanes = len - at;
            s.store_first(lanes, to.add(at), f(s.load_masked(s.mask(first(lanes)), from.add(at))));
        }
    }
}

/// Maps `f` over all values of a row and as many others, whole vectors at a time.
#[inline(always)]
fn map_two<S: Simd>(s: S, row: Row, other: *const f32, f: impl Fn(S::V, S::V) -> S::V) {
    let Row { from, to, len } = row;
    let mut at = 0;
    // SAFETY: so many values are left in the rows, which who computes them vouches for; each is read before a place in its
    // row is written.
    unsafe {
        while at + S::LANES <= len {
            s.store(to.add(at), f(s.load(from.add(at)), s.load(other.add(at))));
            at += S::LANES;
        }
        if at < len {
            let lanes = len - at;
            let mask = s.mask(first(lanes));
            let value = f(s.load_masked(mask, from.add(at)), s.load_masked(mask, other.add(at)));
            s.store_first(lanes, to.add(at), value);
        }
    }
}

/// Gated value `x · weight`; zero rather than NaN for an infinite `x` of weight zero.
#[inline(always)]
fn gate<S: Simd>(s: S, x: S::V, weight: S::V) -> S::V {
    let some = s.lt(s.splat(0.0), weight);
    // A NaN weight comes from a NaN `x`.
    let nan = s.nan(weight);
    let product = s.mul(x, weight);
    s.select(nan, weight, s.select(some, product, s.splat(0.0)))
}

#[inline(always)]
fn hard_sigmoid<S: Simd>(s: S, alpha: S::V, beta: S::V, x: S::V) -> S::V {
    s.min(s.splat(1.0), s.max(s.splat(0.0), s.fma(alpha, x, beta)))
}

/// `c[0] + c[1]·x + …` by Horner's rule.
#[inline(always)]
fn polynomial<S: Lanewise, const N: usize>(s: S, x: S::V, c: [f32; N]) -> S::V {
    let mut sum = s.splat(c[N - 1]);
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        sum = s.fma(sum, x, s.splat(c[i]));
    }
    sum
}

/// `-ln 2` in two parts, of which the first has few digits.
const LN_2: (f32, f32) = (-0.693_359_4, 2.121_944_4e-4);

/// Coefficients of `(eʳ - 1 - r) / r²`.
const EXP: [f32; 5] = [0.499_999_94, 0.166_665_2, 0.041_668_39, 0.008_368_745, 0.001_381_453_7];

/// Whole number n nearest to x / ln 2, shifted by `at` (as the sum with it leaves it), and the rest r = x - n·ln 2,
/// |r| ≤ ln 2 / 2. Multiples of the first part of ln 2 are exact.
#[inline(always)]
fn exp_rest<S: Lanewise>(s: S, x: S::V, at: f32) -> (S::V, S::V) {
    let shifted = s.fma(x, s.splat(std::f32::consts::LOG2_E), s.splat(at));
    let n = s.sub(shifted, s.splat(at));
    let r = s.fma(n, s.splat(LN_2.0), x);
    (shifted, s.fma(n, s.splat(LN_2.1), r))
}

/// Whole number of [`exp_rest`], and `eʳ - 1` of the rest.
///
/// `(eʳ - 1 - r) / r²` is a polynomial whose error is at most 4·10⁻⁹ of eʳ (least squares on Chebyshev nodes, reweighted).
#[inline(always)]
fn exp_parts<S: Lanewise>(s: S, x: S::V, at: f32) -> (S::V, S::V) {
    let (shifted, r) = exp_rest(s, x, at);
    (shifted, s.fma(s.mul(polynomial(s, r, EXP), r), r, r))
}

/// `eˣ`, within 2 ulp.
#[inline(always)]
pub fn exp<S: Lanewise>(s: S, x: S::V) -> S::V {
    // Beyond these the result is infinite or zero; `x` second keeps NaN.
    let x = s.min(s.splat(89.0), s.max(s.splat(-104.5), x));
    let (shifted, p) = exp_parts(s, x, WHOLE);
    s.scale(s.add(p, s.splat(1.0)), s.sub(shifted, s.splat(WHOLE)))
}

/// Constants of [`falling_exps`], each in all lanes of a vector.
#[repr(align(64))]
pub(crate) struct Constants([[f32; MAX_LANES]; 12]);

pub(crate) static FALLING: Constants = {
    let constants: [f32; 12] =
        [-88.0, std::f32::consts::LOG2_E, EXPONENT, LN_2.0, LN_2.1, EXP[4], EXP[3], EXP[2], EXP[1], EXP[0], 1.0, 1.0];
    let mut lanes = [[0.0; MAX_LANES]; 12];
    let mut i = 0;
    while i < constants.len() {
        lanes[i] = [constants[i]; MAX_LANES];
        i += 1;
    }
    Constants(lanes)
};

/// `eˣ` for x ≤ 0, within 2 ulp; zero below the normal numbers.
#[inline(always)]
pub fn falling_exp<S: Simd>(s: S, x: S::V) -> S::V {
    let [value] = falling_exps(s, [x], &FALLING);
    value
}

/// `f32` values of a cache line.
const LINE: usize = 16;

/// [`falling_exp`] of vectors, operation by operation: each constant is loaded once for all of them, as there are not
/// registers for all constants.
///
/// By Horner's rule, which takes fewer operations and registers than pairs; while one vector waits there are the others.
#[inline(always)]
pub(crate) fn falling_exps<S: Simd, const N: usize>(s: S, mut x: [S::V; N], constants: &Constants) -> [S::V; N] {
    let Constants([least, scale, at, high, low, last, rest @ ..]) = constants;
    // SAFETY: each constant has as many lanes as the widest vector.
    let [least, scale, at] = unsafe { [s.load(least.as_ptr()), s.load(scale.as_ptr()), s.load(at.as_ptr())] };
    let mut shifted = x;
    for i in 0..N {
        x[i] = s.max(least, x[i]);
        // Of the least exponent, -127, the power is zero.
        shifted[i] = s.fma(x[i], scale, at);
    }
    let mut n = x;
    for i in 0..N {
        n[i] = s.sub(shifted[i], at);
    }
    for part in [high, low] {
        // SAFETY: each array has a value for every lane of the widest vector.
        let part = unsafe { s.load(part.as_ptr()) };
        for i in 0..N {
            x[i] = s.fma(n[i], part, x[i]);
        }
    }
    // SAFETY: the array has a value for every lane of the widest vector.
    let mut sums = [unsafe { s.load(last.as_ptr()) }; N];
    for constant in rest {
        // SAFETY: each array has a value for every lane of the widest vector.
        let constant = unsafe { s.load(constant.as_ptr()) };
        for i in 0..N {
            sums[i] = s.fma(sums[i], x[i], constant);
        }
    }
    for i in 0..N {
        sums[i] = s.mul(sums[i], s.exponent(shifted[i]));
    }
    sums
}

/// `eˣ - 1` for x ≤ 64, within 3 ulp.
#[inline(always)]
fn expm1<S: Lanewise>(s: S, x: S::V) -> S::V {
    let (shifted, p) = exp_parts(s, s.max(s.splat(-40.0), x), EXPONENT);
    // 2ⁿ·(1 + p) - 1
    let scale = s.exponent(shifted);
    s.fma(scale, p, s.sub(scale, s.splat(1.0)))
}

#[inline(always)]
fn sigmoid<S: Lanewise>(s: S, x: S::V) -> S::V {
    sigmoid_of_negative(s, s.sub(s.splat(0.0), x))
}

/// `1 / (1 + eˣ)`: the sigmoid of `-x`.
#[inline(always)]
fn sigmoid_of_negative<S: Lanewise>(s: S, x: S::V) -> S::V {
    // Both sides of the quotient 2⁻³² times their values: the power stays in range wherever the result is not zero, and what it adds
    // where it is smaller than e⁻⁶⁰ is nothing.
    const SCALE: f32 = 1.0 / (1u64 << 32) as f32;
    let x = s.min(s.splat(104.5), s.max(s.splat(-60.0), x));
    let (shifted, r) = exp_rest(s, x, EXPONENT - 32.0);
    let [c0, c1, c2, c3, c4] = EXP;
    let unit = s.splat(SCALE);
    let power = polynomial(s, r, [1.0, 1.0, c0, c1, c2, c3, c4]);
    s.quotient(unit, s.fma(s.exponent(shifted), power, unit))
}

/// `tanh x`, within 6 ulp.
///
/// An odd rational function fitted up to 9.02 (relative error 10⁻⁹, as [`erf`]'s) to `tanh x · (1 + 2.5·10⁻⁷ (x / 9.02)⁸)`, which
/// there is past one by more than rounding errors: the quotient is cut where it grows past one.
#[inline(always)]
fn tanh<S: Lanewise>(s: S, x: S::V) -> S::V {
    let above = [1.0, 0.137_838_05, 0.004_006_486_4, 3.154_214_5e-5, 5.056_943e-8];
    let below = [1.0, 0.471_171_37, 0.027_730_292, 4.203_661_2e-4, 1.613_611_8e-6, 7.329_859_4e-10];
    let x = s.min(s.splat(9.02), s.max(s.splat(-9.02), x));
    let square = s.mul(x, x);
    let quotient = s.quotient(s.mul(x, polynomial(s, square, above)), polynomial(s, square, below));
    s.min(s.splat(1.0), s.max(s.splat(-1.0), quotient))
}

/// Error function, within 6 ulp.
///
/// An odd rational function fitted to it up to 3.95 (relative error 2·10⁻⁹, by linearized least squares on Chebyshev nodes,
/// reweighted), where it is one but for 3·10⁻⁸. From there to 4.6 the quotient grows past one, where it is cut.
#[inline(always)]
fn erf<S: Lanewise>(s: S, x: S::V) -> S::V {
    let above = [
        std::f32::consts::FRAC_2_SQRT_PI,
        0.185_169_04,
        0.054_274_76,
        0.003_843_369,
        3.779_366e-4,
        4.640_428e-6,
        -1.296_702_2e-8,
    ];
    let below = [1.0, 0.497_435_18, 0.113_910_99, 0.015_443_714, 0.001_304_061_9, 6.269_244_5e-5];
    let x = s.min(s.splat(4.6), s.max(s.splat(-4.6), x));
    let square = s.mul(x, x);
    let quotient = s.quotient(s.mul(x, polynomial(s, square, above)), polynomial(s, square, below));
    s.min(s.splat(1.0), s.max(s.splat(-1.0), quotient))
}

/// `ln(1 + t)` for t from 0 to 1: 2·artanh(z) with z = t / (2 + t) ≤ 1/3, whose series' next term is below 10⁻⁸ of it.
#[inline(always)]
fn log1p_unit<S: Lanewise>(s: S, t: S::V) -> S::V {
    let z = s.quotient(t, s.add(t, s.splat(2.0)));
    let c = [1.0 / 3.0, 1.0 / 5.0, 1.0 / 7.0, 1.0 / 9.0, 1.0 / 11.0, 1.0 / 13.0, 1.0 / 15.0];
    let square = s.mul(z, z);
    let tail = s.mul(square, polynomial(s, square, c));
    let z2 = s.add(z, z);
    s.fma(z2, tail, z2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// erf in f64: its series near zero, the continued fraction of erfc further out.
    fn erf(x: f64) -> f64 {
        if x.abs() < 3.0 {
            let (mut term, mut sum) = (x, x);
            for n in 1..200 {
                term *= -x * x / n as f64;
                sum += term / (2 * n + 1) as f64;
            }
            sum * 2.0 / std::f64::consts::PI.sqrt()
        } else {
            let fraction = (1..200).rev().fold(0.0, |f, n| n as f64 / 2.0 / (x.abs() + f));
            let erfc = (-x * x).exp() / (x.abs() + fraction) / std::f64::consts::PI.sqrt();
            (1.0 - erfc).copysign(x)
        }
    }

    fn sigmoid64(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    fn exact(activation: Activation, value: f32) -> f64 {
        let x = f64::from(value);
        match activation {
            Activation::Identity => x,
            Activation::Relu { lower_clip, upper_clip, slope } => {
                let (low, high) = (f64::from(lower_clip), f64::from(upper_clip));
                // A slope of zero is flat even at -∞.
                let below = if slope == 0.0 { low } else { low + f64::from(slope) * (x - low) };
                (if x <= low { below } else { x }).min(high)
            }
            Activation::Sigmoid => sigmoid64(x),
            Activation::Tanh => x.tanh(),
            Activation::Swish { beta } => x * sigmoid64(f64::from(beta * value)),
            Activation::Gelu => x * 0.5 * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
            Activation::GeluTanh => {
                0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
            }
            Activation::Elu { alpha } => {
                if x <= 0.0 {
                    f64::from(alpha) * x.exp_m1()
                } else {
                    x
                }
            }
            Activation::Softplus { beta } => {
                let t = f64::from(beta * value);
                (t.max(0.0) + (-t.abs()).exp().ln_1p()) / f64::from(beta)
            }
            Activation::HardSigmoid { alpha, beta } => (f64::from(alpha) * x + f64::from(beta)).clamp(0.0, 1.0),
            Activation::HardSwish { alpha, beta } => x * (f64::from(alpha) * x + f64::from(beta)).clamp(0.0, 1.0),
            Activation::Abs => x.abs(),
            Activation::Neg => -x,
        }
    }

    fn ulp(value: f64) -> f64 {
        let v = (value.abs() as f32).max(f32::MIN_POSITIVE);
        f64::from(f32::from_bits(v.to_bits() + 1)) - f64::from(v)
    }

    const RELU6: Activation = Activation::Relu { lower_clip: 0.0, upper_clip: 6.0, slope: 0.0 };
    const LEAKY: Activation = Activation::Relu { lower_clip: -0.5, upper_clip: 3.0, slope: 0.25 };

    /// (activation, bound in ulp of the result, bound relative to |x|)
    const CASES: &[(Activation, f64, f64)] = &[
        (Activation::Identity, 0.0, 0.0),
        (Activation::RELU, 0.0, 0.0),
        (RELU6, 0.0, 0.0),
        // The sum may cancel: its parts are about |x|.
        (LEAKY, 1.0, 1.2e-7),
        (Activation::Sigmoid, 4.0, 0.0),
        (Activation::Tanh, 6.0, 0.0),
        (Activation::Swish { beta: 1.0 }, 6.0, 0.0),
        (Activation::Swish { beta: 1.7 }, 6.0, 0.0),
        (Activation::Swish { beta: -1.3 }, 6.0, 0.0),
        (Activation::Gelu, 0.0, 2.4e-7),
        (Activation::GeluTanh, 0.0, 2.4e-7),
        (Activation::Elu { alpha: 1.0 }, 4.0, 0.0),
        (Activation::Elu { alpha: 0.3 }, 4.0, 0.0),
        (Activation::Softplus { beta: 1.0 }, 6.0, 0.0),
        (Activation::Softplus { beta: 4.0 }, 6.0, 0.0),
        // One rounding of a sum of parts up to |x| and 1, without fma two.
        (Activation::HardSigmoid { alpha: 0.2, beta: 0.5 }, 4.0, 6e-8),
        (Activation::HardSwish { alpha: 1.0 / 6.0, beta: 0.5 }, 4.0, 6e-7),
        (Activation::Abs, 0.0, 0.0),
        (Activation::Neg, 0.0, 0.0),
    ];

    fn samples() -> Vec<f32> {
        let mut values: Vec<f32> = (-20_000..=20_000).map(|i| i as f32 * 0.005_01).collect();
        let mut x = 1e-30f32;
        while x < 1e30 {
            values.extend([x, -x]);
            x *= 1.0173;
        }
        values
    }

    #[test]
    fn errors_stay_within_the_stated_bounds() {
        let from = samples();
        for isa in Isa::of_vectors() {
            for (activation, ulps, relative) in CASES {
                let mut got = from.clone();
                activation.apply(isa, &mut got);
                for (x, got) in from.iter().zip(&got) {
                    let want = exact(*activation, *x);
                    let bound = ulps * ulp(want) + relative * f64::from(x.abs()) + f64::from(f32::MIN_POSITIVE);
                    let error = (f64::from(*got) - want).abs();
                    assert!(
                        error <= bound,
                        "{isa} {activation:?}({x:e}): {got:e} for {want:e}, {} ulp",
                        error / ulp(want)
                    );
                }
            }
        }
    }

    #[test]
    fn error_functions_stay_within_six_units() {
        let values = samples();
        for isa in Isa::of_vectors() {
            let mut got = values.clone();
            error_function(isa, &mut got);
            for (x, got) in values.iter().zip(got) {
                let want = erf(f64::from(*x));
                // Products of numbers below the normal ones may be rounded to zero.
                let bound = 6.0 * ulp(want) + f64::from(f32::MIN_POSITIVE);
                let error = (f64::from(got) - want).abs();
                assert!(error <= bound, "{isa} erf({x:e}): {got:e} for {want:e}, {} ulp", error / ulp(want));
            }
            let mut limits = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0];
            error_function(isa, &mut limits);
            assert!(limits[0].is_nan() && limits[1..] == [1.0, -1.0, 0.0, -0.0], "{isa} {limits:?}");
        }
    }

    #[test]
    fn exponentials_stay_within_two_units() {
        let values = samples();
        for isa in Isa::of_vectors() {
            let mut got = values.clone();
            exponential(isa, &mut got);
            for (x, got) in values.iter().zip(got) {
                let want = f64::from(*x).exp();
                if want > f64::from(f32::MAX) {
                    assert_eq!(got, f32::INFINITY, "{isa} e^{x:e}");
                    continue;
                }
                let error = (f64::from(got) - want).abs();
                assert!(error <= 2.0 * ulp(want), "{isa} e^{x:e}: {got:e} for {want:e}, {} ulp", error / ulp(want));
            }
            let mut limits = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0];
            exponential(isa, &mut limits);
            assert!(limits[0].is_nan() && limits[1..] == [f32::INFINITY, 0.0, 1.0, 1.0], "{isa}: {limits:?}");
        }
    }

    #[test]
    fn exponentials_of_differences_stay_within_two_units() {
        let values: Vec<f32> = samples().into_iter().filter(|x| x.abs() < 1e6).collect();
        for isa in Isa::of_vectors() {
            let mut got = vec![f32::NAN; values.len()];
            let y: Vec<f32> = values.iter().enumerate().map(|(i, x)| x + [0.0, 0.5, 7.0, 80.0, 200.0][i % 5]).collect();
            let row = Row { from: values.as_ptr(), to: got.as_mut_ptr(), len: values.len() };
            // SAFETY: all vectors have as many values.
            unsafe { falling_exponential_row(isa, row, Operand::Row(y.as_ptr())) };
            for ((x, y), got) in values.iter().zip(&y).zip(got) {
                let want = f64::from(x - y).exp();
                let bound = 2.0 * ulp(want) + if want < f64::from(f32::MIN_POSITIVE) { want } else { 0.0 };
                assert!((f64::from(got) - want).abs() <= bound, "{isa} e^({x:e} - {y:e}): {got:e} for {want:e}");
            }
            let (from, y) = ([f32::NAN, 1.0, f32::NEG_INFINITY, 3.0], [1.0, f32::NAN, 0.0, 3.0]);
            let mut got = [7.0; 5];
            // SAFETY: all arrays have at least four values.
            unsafe {
                let row = Row { from: from.as_ptr(), to: got.as_mut_ptr(), len: 4 };
                falling_exponential_row(isa, row, Operand::Row(y.as_ptr()));
                assert!(got[0].is_nan() && got[1].is_nan() && got[2..] == [0.0, 1.0, 7.0], "{isa}: {got:?}");
                falling_exponential_row(isa, row, Operand::Same(1.0));
            }
            assert!(got[0].is_nan() && got[1..3] == [1.0, 0.0] && got[4] == 7.0, "{isa}: {got:?}");
        }
    }

    #[test]
    fn sums_of_exponentials_are_those_of_their_results() {
        const GROUPS: usize = 3;
        for (isa, len) in Isa::of_vectors().flat_map(|isa| {
            [1, 7, 8, 20, 31, 32, 33, 40, 47, 48, 49, 63, 64, 77, 80, 95, 96, 100, 112, 127, 1030].map(|len| (isa, len))
        }) {
            let x: Vec<f32> = (0..GROUPS * len).map(|i| ((i * 37 % 101) as f32 - 101.0) * 0.97).collect();
            let y = [0.0f32, 2.5, 60.0];
            let (mut alone, mut got) = (x.clone(), vec![7f32; GROUPS * len + 1]);
            let mut sums = [0.0, 1.0, 0.0];
            // SAFETY: rows have this number of values, results may take their place, and there is a `y` for each group.
            unsafe {
                let row = Row { from: x.as_ptr(), to: got.as_mut_ptr(), len: GROUPS * len };
                falling_exponential_sums(isa, row, y.as_ptr(), &mut sums);
                let row = Row { from: alone.as_ptr(), to: alone.as_mut_ptr(), len: GROUPS * len };
                falling_exponential_row(isa, row, Operand::Each(y.as_ptr(), len));
            }
            assert_eq!(got[..GROUPS * len], alone, "{isa} {len}");
            assert_eq!(got[GROUPS * len], 7.0, "{isa} {len}: something was written behind the row");
            for (group, sum) in sums.iter().enumerate() {
                let results = &alone[group * len..(group + 1) * len];
                let want = results.iter().map(|value| f64::from(*value)).sum::<f64>() + [0.0, 1.0, 0.0][group];
                // Sums of up to eight are rounded to `f32` three times.
                let bound = want * (3.0 * 2f64.powi(-24) + len as f64 * f64::EPSILON);
                assert!((sum - want).abs() <= bound, "{isa} {len}, group {group}: expected {want}, got {sum}");
            }
            for (place, value) in [(0, f32::NAN), (len / 2, f32::NEG_INFINITY), (len - 1, f32::NAN)] {
                let mut row = vec![1f32; len];
                row[place] = value;
                let (y, mut sum) = (1f32, [0.0]);
                let to = row.as_mut_ptr();
                // SAFETY: the row has `len` values, and there is one subtrahend and one sum.
                unsafe { falling_exponential_sums(isa, Row { from: to, to, len }, &raw const y, &mut sum) };
                let want = if value.is_nan() { f64::NAN } else { (len - 1) as f64 };
                assert!(sum[0] == want || (sum[0].is_nan() && want.is_nan()), "{isa} {len}: {value} gives {}", sum[0]);
                assert!(row[place] == 0.0 || value.is_nan(), "{isa} {len}: {value} gives {}", row[place]);
            }
        }
    }

    #[test]
    fn arithmetic_takes_rows_and_single_values_and_may_be_in_place() {
        type Exact = fn(f32, f32) -> f32;
        let of: [(Arithmetic, Exact); 4] = [
            (Arithmetic::Add, |a, b| a + b),
            (Arithmetic::Sub, |a, b| a - b),
            (Arithmetic::Mul, |a, b| a * b),
            (Arithmetic::Div, |a, b| a / b),
        ];
        for (isa, (arithmetic, exact), len) in
            Isa::of_vectors().flat_map(|isa| of.map(|of| [0, 1, 7, 16, 37].map(|len| (isa, of, len)))).flatten()
        {
            let x: Vec<f32> = (0..len).map(|i| i as f32 * 0.75 - 3.0).collect();
            let y: Vec<f32> = (0..len).map(|i| 2.0 - i as f32 * 0.5).collect();
            let [row_x, row_y] = [&x, &y].map(|row| Operand::Row(row.as_ptr()));
            for (a, b, which) in [
                (row_x, row_y, [true, true]),
                (row_x, Operand::Same(0.3), [true, false]),
                (Operand::Same(0.3), row_y, [false, true]),
                (Operand::Same(0.3), Operand::Same(0.3), [false, false]),
            ] {
                let mut got = vec![7f32; len + 1];
                // SAFETY: rows have this number of values, and the results one more.
                unsafe { arithmetic.apply_row(isa, got.as_mut_ptr(), a, b, len) };
                for i in 0..len {
                    let operand = |row: &[f32], which: bool| if which { row[i] } else { 0.3 };
                    let want = exact(operand(&x, which[0]), operand(&y, which[1]));
                    assert!(got[i] == want || want.is_nan(), "{isa} {arithmetic:?} {which:?}, {i} of {len}");
                }
                assert_eq!(got[len], 7.0, "{isa} {arithmetic:?}: something was written behind the row");
            }
            for lanes in (1..=len).filter(|lanes| len % lanes == 0) {
                let mut got = vec![7f32; len + 1];
                let (each, again) = (Operand::Each(y.as_ptr(), lanes), Operand::Again(y.as_ptr(), lanes));
                for (a, b) in [(row_x, each), (each, row_x), (again, each), (row_x, again)] {
                    // SAFETY: rows have this number of values, of which the operands take no more.
                    unsafe { arithmetic.apply_row(isa, got.as_mut_ptr(), a, b, len) };
                    let value = |operand: Operand, i: usize| match operand {
                        Operand::Each(..) => y[i / lanes],
                        Operand::Again(..) => y[i % lanes],
                        _ => x[i],
                    };
                    let want = (0..len).map(|i| exact(value(a, i), value(b, i)).to_bits());
                    assert!(
                        got.iter().take(len).map(|v| v.to_bits()).eq(want),
                        "{isa} {arithmetic:?}, {lanes} of {len}"
                    );
                    assert_eq!(got[len], 7.0, "{isa} {arithmetic:?}: something was written behind the row");
                }
            }
            let mut both = x.clone();
            let row = both.as_mut_ptr();
            // SAFETY: results may take an operand's place.
            unsafe { arithmetic.apply_row(isa, row, row_y, Operand::Row(row), len) };
            let want = (0..len).map(|i| exact(y[i], x[i]).to_bits());
            assert!(both.iter().map(|v| v.to_bits()).eq(want), "{isa} {arithmetic:?} in place, {len}");
        }
    }

    #[test]
    fn nan_stays_and_infinities_have_their_limits() {
        for isa in Isa::of_vectors() {
            for (activation, ..) in CASES {
                let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN];
                let limit = |x: f32| match exact(*activation, x) {
                    // 0 · ∞: x falls slower than its weight.
                    limit if limit.is_nan() => 0.0,
                    limit => limit as f32,
                };
                // Less than a vector, and more vectors than are computed together.
                for len in [4, 100] {
                    let mut values: Vec<f32> = special.into_iter().cycle().take(len).collect();
                    activation.apply(isa, &mut values);
                    for of in values.chunks(4) {
                        assert!(of[0].is_nan() && of[3].is_nan(), "{isa} {activation:?} of NaN: {values:?}");
                        assert_eq!(of[1], limit(f32::INFINITY), "{isa} {activation:?} of ∞, {len} values");
                        assert_eq!(of[2], limit(f32::NEG_INFINITY), "{isa} {activation:?} of -∞, {len} values");
                    }
                }
            }
        }
    }

    #[test]
    fn a_value_does_not_depend_on_its_place() {
        for isa in Isa::of_vectors() {
            for (activation, ..) in CASES {
                // Fewer than a vector, and one to eight of them with every rest.
                for len in (0..40).chain(63..130) {
                    let from: Vec<f32> = (0..len).map(|i| i as f32 * 0.37 - 5.0).collect();
                    let mut got = from.clone();
                    activation.apply(isa, &mut got);
                    for (x, got) in from.iter().zip(&got) {
                        let mut one = [*x];
                        activation.apply(isa, &mut one);
                        assert_eq!(one[0].to_bits(), got.to_bits(), "{isa} {activation:?}({x}) among {len}");
                    }
                }
            }
        }
    }
}
