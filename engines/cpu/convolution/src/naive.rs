//! Plain loops for any problem, even one with nothing to sum; the other algorithms have to agree with them.

use super::problem::{Element, EpilogueStep, Problem};
use super::{Args, Send2};
use half::{bf16, f16};
use hipdnn_cpu_simd::isa::Isa;
use hipdnn_cpu_threads::Pool;

/// # Safety
/// A value of `element` can be read at index `i` of `p`.
#[inline]
pub(super) unsafe fn read(element: Element, p: *const u8, i: usize) -> f32 {
    // SAFETY: the caller's duty.
    unsafe {
        match element {
            Element::F32 => p.cast::<f32>().add(i).read_unaligned(),
            Element::F16 => p.cast::<f16>().add(i).read_unaligned().to_f32(),
            Element::BF16 => p.cast::<bf16>().add(i).read_unaligned().to_f32(),
        }
    }
}

/// # Safety
/// A value of `element` can be written at index `i` of `p`.
#[inline]
pub(super) unsafe fn write(element: Element, p: *mut u8, i: usize, value: f32) {
    // SAFETY: the caller's duty.
    unsafe {
        match element {
            Element::F32 => p.cast::<f32>().add(i).write_unaligned(value),
            Element::F16 => p.cast::<f16>().add(i).write_unaligned(f16::from_f32(value)),
            Element::BF16 => p.cast::<bf16>().add(i).write_unaligned(bf16::from_f32(value)),
        }
    }
}

/// Convolves with the weights where they lie.
///
/// # Safety
/// As for [`super::ConvolutionPlan::run`].
pub(super) unsafe fn run(isa: Isa, problem: &Problem, pool: &Pool, workers: usize, args: &Args<'_>, w: *const u8) {
    let shape = &problem.shape;
    let [od, oh, ow] = shape.output;
    let pointers = Send2(args.x, args.y);
    let (w, operands) =
        (Send2(w, std::ptr::null_mut()), Send2(args.operands.as_ptr().cast::<u8>(), std::ptr::null_mut()));
    pool.run_indexed(shape.batch * shape.out_channels * od * oh, workers, &|_, unit| {
        let (p, rest) = (unit % oh, unit / oh);
        let (z, rest) = (rest % od, rest / od);
        let (k, n) = (rest % shape.out_channels, rest / shape.out_channels);
        for q in 0..ow {
            let at = [n, k, z, p, q];
            // SAFETY: the place is one of the output's.
            unsafe {
                let mut value = sum(problem, pointers.x(), w.x(), at);
                for step in &problem.epilogue {
                    value = follow(isa, step, operands.x().cast(), at, value);
                }
                write(problem.y.element, pointers.y(), problem.y.offset(at), value);
            }
        }
    });
}

/// Sum of the convolution at an output place.
unsafe fn sum(problem: &Problem, x: *const u8, w: *const u8, [n, k, z, p, q]: [usize; 5]) -> f32 {
    let shape = &problem.shape;
    let first = k / shape.group_out() * shape.group_in();
    let inside = |axis: usize, out: usize, tap: usize| {
        (out * shape.stride[axis] + tap * shape.dilation[axis])
            .checked_sub(shape.pad_before[axis])
            .filter(|place| *place < shape.input[axis])
    };
    let tap = |axis: usize, t: usize| if shape.flip { shape.kernel[axis] - 1 - t } else { t };
    let mut sum = 0.0;
    for c in 0..shape.group_in() {
        for t in 0..shape.kernel[0] {
            let Some(iz) = inside(0, z, t) else { continue };
            for r in 0..shape.kernel[1] {
                let Some(iy) = inside(1, p, r) else { continue };
                for s in 0..shape.kernel[2] {
                    let Some(ix) = inside(2, q, s) else { continue };
                    // SAFETY: both places are inside their tensors.
                    unsafe {
                        let a = read(problem.x.element, x, problem.x.offset([n, first + c, iz, iy, ix]));
                        let at = [k, c, tap(0, t), tap(1, r), tap(2, s)];
                        sum += a * read(problem.w.element, w, problem.w.offset(at));
                    }
                }
            }
        }
    }
    sum
}

unsafe fn follow(isa: Isa, step: &EpilogueStep, operands: *const *const u8, at: [usize; 5], value: f32) -> f32 {
    // SAFETY: the operands named by the epilogue exist and have the output's places.
    unsafe {
        match step {
            EpilogueStep::Bias { operand, element, channel_stride } => {
                value + read(*element, *operands.add(*operand), at[1] * channel_stride)
            }
            EpilogueStep::Add { operand, layout } => {
                value + read(layout.element, *operands.add(*operand), layout.offset(at))
            }
            EpilogueStep::Mul { operand, layout } => {
                value * read(layout.element, *operands.add(*operand), layout.offset(at))
            }
            EpilogueStep::Activation(activation) => {
                let mut one = [value];
                activation.apply(isa, &mut one);
                one[0]
            }
        }
    }
}
