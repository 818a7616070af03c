//! What happens to sums on their way to the output: the epilogue's steps, the output's type and its layout.

use super::naive::{read, write};
use super::problem::{Element, EpilogueStep, Layout, Problem};
use crate::engine::host::activation::Activation;
use crate::engine::host::isa::{Kernel, MAX_LANES, Simd};

/// The epilogue, split into what the kernels do in registers and the rest.
#[derive(Clone, Debug)]
pub(super) struct Finish {
    /// A bias that the kernels add to their sums: operand, element type, stride.
    pub(super) bias: Option<(usize, Element, usize)>,
    /// Bounds that follow it.
    pub(super) clamp: (f32, f32),
    /// What is left.
    rest: Vec<EpilogueStep>,
    y: Layout,
}

const NO_CLAMP: (f32, f32) = (f32::NEG_INFINITY, f32::INFINITY);

impl Finish {
    pub(super) fn new(problem: &Problem) -> Finish {
        let mut rest = problem.epilogue.clone();
        rest.retain(|step| *step != EpilogueStep::Activation(Activation::Identity));
        let mut finish = Finish { bias: None, clamp: NO_CLAMP, rest, y: problem.y };
        if let Some(EpilogueStep::Bias { operand, element, channel_stride }) = finish.rest.first() {
            finish.bias = Some((*operand, *element, *channel_stride));
            finish.rest.remove(0);
        }
        if let Some(EpilogueStep::Activation(activation)) = finish.rest.first()
            && let Some(clamp) = activation.as_clamp()
        {
            finish.clamp = clamp;
            finish.rest.remove(0);
        }
        finish
    }

    /// True if the kernels' results are the output's values.
    pub(super) fn in_registers(&self) -> bool {
        self.rest.is_empty() && self.y.element == Element::F32
    }

    /// The biases of `count` channels from `channel` on as `f32`, then zeros up to `len`; false if there are none.
    ///
    /// # Safety
    /// The operands are those of the problem; `to` takes `len` values.
    #[inline(always)]
    pub(super) unsafe fn biases(
        &self,
        operands: *const *const u8,
        channel: usize,
        count: usize,
        to: *mut f32,
        len: usize,
    ) -> bool {
        let Some((operand, element, stride)) = self.bias else { return false };
        for i in 0..len {
            // SAFETY: the bias has a value for each output channel.
            unsafe {
                let bias = if i < count { read(element, *operands.add(operand), (channel + i) * stride) } else { 0.0 };
                *to.add(i) = bias;
            }
        }
        true
    }

    /// Finishes `count` sums, of output places that follow each other in the last dimension from `at` on, and stores them.
    ///
    /// # Safety
    /// The places are the output's, `values` can be read and written, and the operands are those of the problem.
    #[inline(always)]
    pub(super) unsafe fn run<S: Simd>(
        &self,
        s: S,
        operands: *const *const u8,
        y: *mut u8,
        at: [usize; 5],
        values: *mut f32,
        count: usize,
    ) {
        s.call(Run { finish: self, operands, y, at, values, count });
    }
}

/// [`Finish::run`], compiled once for all who call it.
struct Run<'a> {
    finish: &'a Finish,
    operands: *const *const u8,
    y: *mut u8,
    at: [usize; 5],
    values: *mut f32,
    count: usize,
}

impl Kernel for Run<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Run { finish, operands, y, at, values, count } = self;
        // SAFETY: the duty of the caller of `Finish::run`.
        let values = unsafe { std::slice::from_raw_parts_mut(values, count) };
        for step in &finish.rest {
            // SAFETY: operands have the output's places.
            unsafe {
                match step {
                    EpilogueStep::Bias { operand, element, channel_stride } => {
                        let bias = read(*element, *operands.add(*operand), at[1] * channel_stride);
                        values.iter_mut().for_each(|value| *value += bias);
                    }
                    EpilogueStep::Add { operand, layout } => {
                        combine(*operands.add(*operand), layout, at, values, |value, other| value + other);
                    }
                    EpilogueStep::Mul { operand, layout } => {
                        combine(*operands.add(*operand), layout, at, values, |value, other| value * other);
                    }
                    EpilogueStep::Activation(activation) => activation.apply_with(s, values),
                }
            }
        }
        let (from, stride) = (offset(&finish.y, at), finish.y.strides[4]);
        // SAFETY: the output's places.
        unsafe { store(s, finish.y.element, y, from, stride, values) };
    }
}

pub(super) fn offset(layout: &Layout, at: [usize; 5]) -> usize {
    (0..5).map(|i| at[i] * layout.strides[i]).sum()
}

#[inline(always)]
unsafe fn combine(p: *const u8, layout: &Layout, at: [usize; 5], values: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    let (from, stride) = (offset(layout, at), layout.strides[4]);
    // SAFETY: the operand's places.
    unsafe {
        if layout.element == Element::F32 && stride == 1 {
            let p = p.cast::<f32>().add(from);
            for (i, value) in values.iter_mut().enumerate() {
                *value = f(*value, *p.add(i));
            }
        } else if stride == 0 {
            let other = read(layout.element, p, from);
            values.iter_mut().for_each(|value| *value = f(*value, other));
        } else {
            for (i, value) in values.iter_mut().enumerate() {
                *value = f(*value, read(layout.element, p, from + i * stride));
            }
        }
    }
}

/// Stores values at every `stride`th element from `from` on.
///
/// # Safety
/// Those elements can be written at `y`.
#[inline(always)]
unsafe fn store<S: Simd>(s: S, element: Element, y: *mut u8, from: usize, stride: usize, values: &[f32]) {
    // SAFETY: the caller's duty.
    unsafe {
        match (element, stride) {
            (Element::F32, 1) => {
                std::ptr::copy_nonoverlapping(values.as_ptr(), y.cast::<f32>().add(from), values.len());
            }
            (Element::F16, 1) => {
                let to = y.cast::<u16>().add(from);
                let mut i = 0;
                while i + S::LANES <= values.len() {
                    s.store_f16(to.add(i), s.load(values.as_ptr().add(i)));
                    i += S::LANES;
                }
                if i < values.len() {
                    let (mut lanes, mut bits) = ([0f32; MAX_LANES], [0u16; MAX_LANES]);
                    lanes[..values.len() - i].copy_from_slice(&values[i..]);
                    s.store_f16(bits.as_mut_ptr(), s.load(lanes.as_ptr()));
                    std::ptr::copy_nonoverlapping(bits.as_ptr(), to.add(i), values.len() - i);
                }
            }
            _ => {
                for (i, value) in values.iter().enumerate() {
                    write(element, y, from + i * stride, *value);
                }
            }
        }
    }
}
