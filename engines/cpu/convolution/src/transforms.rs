//! Transforms of Winograd's F(M×M, R×R).
//!
//! As Lavin and Gray (arXiv:1509.09308) write it, a tile of M×M outputs is `Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A` of the kernel `g` of R×R taps
//! and the tile `d` of N×N inputs, N = M + R - 1; summed over input channels the middle is N² matrix products, one for each frequency.
//! The matrices are those of Toom and Cook for the points 0, ±1 and ∞ with N = 4, ±2 beside these with N = 6, and ±½ with N = 8: `Bᵀ`
//! does not depend on R, `G` holds powers of the points up to that of R - 1, and `Aᵀ` up to that of M - 1. A tile takes N² products:
//! F(4×4, 3×3) 36 where the plain sum has 144, F(4×4, 5×5) 64 where it has 400.
//!
//! With a stride of S the sum is that of S² convolutions without one: each phase of the taps, every S-th row and column of them, meets
//! the same phase of the input. Phases count as further input channels, with kernels of R = ⌈K / S⌉ taps an axis, zero behind the K
//! there are. The point ∞ picks the last of R taps, so that phases without it have no products of that point: F(M×M, 2×2) of 3×3 taps
//! with a stride of 2 takes (2M + 1)² products a channel, the plain sum 9M².

#![expect(clippy::needless_range_loop, reason = "closures of iterators are compiled without the instruction set")]

use super::problem::Shape;
use hipdnn_cpu_simd::isa::Simd;

/// Tiles of Winograd's algorithm, the same for rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tiling {
    /// Outputs of a tile, per axis.
    pub(super) outputs: usize,
    /// Taps, per axis.
    pub(super) kernel: usize,
    /// Stride, which is the number of phases per axis.
    pub(super) stride: usize,
}

impl Tiling {
    /// F(4×4, 3×3).
    pub(super) const LARGE: Tiling = Tiling { outputs: 4, kernel: 3, stride: 1 };

    /// Tilings that serve a shape: square kernels without dilation, of three taps or more for each phase, or two for each of four.
    pub(super) fn of(shape: &Shape) -> impl Iterator<Item = Tiling> + use<> {
        let (kernel, stride) = (shape.kernel[1], shape.stride[1]);
        let served = kernel == shape.kernel[2]
            && stride == shape.stride[2]
            && shape.dilation[1..] == [1, 1]
            && (shape.kernel[0], shape.stride[0], shape.input[0], shape.output[0]) == (1, 1, 1, 1)
            && shape.pad_before[0] == 0
            && stride <= MAX_STRIDE;
        let outputs: &[usize] = match kernel.div_ceil(stride) {
            2 if stride == 2 => &[5],
            3 => &[2, 4],
            4 => &[3, 5],
            5 => &[2, 4],
            7 => &[2],
            _ => &[],
        };
        outputs.iter().filter(move |_| served).map(move |outputs| Tiling { outputs: *outputs, kernel, stride })
    }

    /// Taps of a phase, per axis.
    pub(super) fn taps(&self) -> usize {
        self.kernel.div_ceil(self.stride)
    }

    /// Inputs of a tile of a phase, per axis.
    pub(super) fn side(&self) -> usize {
        self.outputs + self.taps() - 1
    }

    /// Number of frequencies.
    pub(super) fn frequencies(&self) -> usize {
        self.side() * self.side()
    }

    /// Number of phases.
    pub(super) fn phases(&self) -> usize {
        self.stride * self.stride
    }

    /// Number of phases per axis, the first ones, that have products of a point, given by its row or column of frequencies.
    #[inline(always)]
    pub(super) fn phases_of(&self, point: usize) -> usize {
        if point + 1 == self.side() { self.last_phases() } else { self.stride }
    }

    /// Number of phases per axis that have the last tap, and so products of the point ∞.
    fn last_phases(&self) -> usize {
        self.kernel - self.stride * (self.taps() - 1)
    }

    /// Number of a tile's products for each input channel: of all phases of all frequencies.
    pub(super) fn products(&self) -> usize {
        self.products_of_axis() * self.products_of_axis()
    }

    /// Number of products along an axis: of all phases of all points.
    fn products_of_axis(&self) -> usize {
        (self.side() - 1) * self.stride + self.last_phases()
    }

    /// Number of these products of the frequencies before the one at a row and a column of them.
    #[inline(always)]
    pub(super) fn products_before(&self, row: usize, column: usize) -> usize {
        row * self.stride * self.products_of_axis() + column * self.stride * self.phases_of(row)
    }
}

/// Largest stride that is served.
pub(super) const MAX_STRIDE: usize = 4;
/// Largest number of taps of a phase, per axis.
pub(super) const MAX_TAPS: usize = 7;

/// Kernel transform `G` for N×N inputs and R taps.
pub(super) const fn kernel_transform<const N: usize, const R: usize>() -> [[f64; R]; N] {
    const { assert!((N == 4 || N == 6 || N == 8) && R < N) };
    // Finite points, and the factors of their rows: 1 over the product of a point's distances from the others. Where that is -1, for
    // the point 0 with N = 4 and N = 8, the sign is in `Bᵀ`.
    let points = [0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5];
    let factors = match N {
        4 => [1.0, 1.0 / 2.0, 1.0 / 2.0, 0.0, 0.0, 0.0, 0.0],
        6 => [1.0 / 4.0, -1.0 / 6.0, -1.0 / 6.0, 1.0 / 24.0, 1.0 / 24.0, 0.0, 0.0],
        _ => [1.0, -2.0 / 9.0, -2.0 / 9.0, 1.0 / 90.0, 1.0 / 90.0, 32.0 / 45.0, 32.0 / 45.0],
    };
    let mut g = [[0.0; R]; N];
    let mut row = 0;
    while row < N - 1 {
        let (mut tap, mut power) = (0, factors[row]);
        while tap < R {
            g[row][tap] = power;
            power *= points[row];
            tap += 1;
        }
        row += 1;
    }
    g[N - 1][R - 1] = 1.0;
    g
}

/// Frequencies of kernels, row by row, computed in `f64` and rounded: of one in each lane, whose taps are given row by row.
#[inline(always)]
pub(super) fn transform_kernels<S: Simd, const N: usize, const R: usize>(
    s: S,
    kernels: &[[[S::W; 2]; R]; R],
) -> [[S::V; N]; N] {
    let transform = const { kernel_transform::<N, R>() };
    let zeros = [s.splat_wide(0.0); 2];
    // Rows of a kernel by columns of frequencies.
    let mut half = [[zeros; N]; R];
    for row in 0..R {
        for column in 0..N {
            for tap in 0..R {
                if transform[column][tap] != 0.0 {
                    let factor = s.splat_wide(transform[column][tap]);
                    for part in 0..2 {
                        half[row][column][part] = s.fma_wide(kernels[row][tap][part], factor, half[row][column][part]);
                    }
                }
            }
        }
    }
    let mut frequencies = [[s.splat(0.0); N]; N];
    for row in 0..N {
        for column in 0..N {
            let mut sums = zeros;
            for tap in 0..R {
                if transform[row][tap] != 0.0 {
                    let factor = s.splat_wide(transform[row][tap]);
                    for part in 0..2 {
                        sums[part] = s.fma_wide(half[tap][column][part], factor, sums[part]);
                    }
                }
            }
            frequencies[row][column] = s.narrow(sums);
        }
    }
    frequencies
}

/// Input transform: `Bᵀ` of a tile's row or column.
#[inline(always)]
pub(super) fn transform_input<S: Simd, const N: usize>(s: S, d: [S::V; N]) -> [S::V; N] {
    const { assert!(N == 4 || N == 6 || N == 8) };
    let mut t = d;
    if N == 4 {
        t[0] = s.sub(d[0], d[2]);
        t[1] = s.add(d[1], d[2]);
        t[2] = s.sub(d[2], d[1]);
        t[3] = s.sub(d[1], d[3]);
    } else if N == 6 {
        let even = s.fma(s.splat(-4.0), d[2], d[4]);
        let odd = s.fma(s.splat(-4.0), d[1], d[3]);
        let even2 = s.sub(d[4], d[2]);
        let difference = s.sub(d[3], d[1]);
        let odd2 = s.add(difference, difference);
        t[0] = s.fma(s.splat(4.0), d[0], s.fma(s.splat(-5.0), d[2], d[4]));
        t[1] = s.add(even, odd);
        t[2] = s.sub(even, odd);
        t[3] = s.add(even2, odd2);
        t[4] = s.sub(even2, odd2);
        t[5] = s.fma(s.splat(4.0), d[1], s.fma(s.splat(-5.0), d[3], d[5]));
    } else {
        t[0] = s.fma(s.splat(5.25), s.sub(d[4], d[2]), s.sub(d[0], d[6]));
        t[7] = s.fma(s.splat(5.25), s.sub(d[3], d[5]), s.sub(d[7], d[1]));
        let even = s.fma(s.splat(-4.25), d[4], s.add(d[2], d[6]));
        let odd = s.fma(s.splat(-4.25), d[3], s.add(d[1], d[5]));
        t[1] = s.add(even, odd);
        t[2] = s.sub(even, odd);
        let third = s.mul(s.splat(-2.5), d[3]);
        let even = s.fma(s.splat(0.25), d[2], s.fma(s.splat(-1.25), d[4], d[6]));
        let odd = s.fma(s.splat(0.5), d[1], s.fma(s.splat(2.0), d[5], third));
        t[3] = s.add(even, odd);
        t[4] = s.sub(even, odd);
        let even = s.fma(s.splat(4.0), d[2], s.fma(s.splat(-5.0), d[4], d[6]));
        let odd = s.fma(s.splat(2.0), d[1], s.fma(s.splat(0.5), d[5], third));
        t[5] = s.add(even, odd);
        t[6] = s.sub(even, odd);
    }
    t
}

/// Output transform: `Aᵀ` of a row or column of N products.
#[inline(always)]
pub(super) fn transform_output<S: Simd, const N: usize, const M: usize>(s: S, m: [S::V; N]) -> [S::V; M] {
    const { assert!(N == 4 && M == 2 || (N == 6 || N == 8) && M >= 2 && M < N) };
    let mut t = [m[0]; M];
    let (sum, difference) = (s.add(m[1], m[2]), s.sub(m[1], m[2]));
    if N == 4 {
        t[0] = s.add(m[0], sum);
        t[1] = s.sub(difference, m[3]);
    } else {
        let (sum2, difference2) = (s.add(m[3], m[4]), s.sub(m[3], m[4]));
        let halves = if N == 8 { Some((s.add(m[N - 3], m[N - 2]), s.sub(m[N - 3], m[N - 2]))) } else { None };
        let all = s.add(sum, sum2);
        t[0] = s.add(m[0], if let Some((half, _)) = halves { s.add(all, half) } else { all });
        for row in 1..M {
            let power = (1 << row) as f32;
            let (one, two) = if row % 2 == 0 { (sum, sum2) } else { (difference, difference2) };
            t[row] = s.fma(s.splat(power), two, one);
            if let Some((even, odd)) = halves {
                t[row] = s.fma(s.splat(1.0 / power), if row % 2 == 0 { even } else { odd }, t[row]);
            }
        }
        t[M - 1] = s.add(t[M - 1], m[N - 1]);
    }
    t
}

/// Transforms the rows of a tile, whose columns are transformed, and stores the frequencies, `stride` values apart.
///
/// # Safety
/// Vectors of N² frequencies can be written from `to` on.
#[inline(always)]
pub(super) unsafe fn store_frequencies<S: Simd, const N: usize>(s: S, d: [[S::V; N]; N], to: *mut f32, stride: usize) {
    for row in 0..N {
        let values = transform_input(s, d[row]);
        for column in 0..N {
            // SAFETY: the caller's duty.
            unsafe { s.store(to.wrapping_add((row * N + column) * stride), values[column]) };
        }
    }
}

/// Loads the products of a tile's frequencies, `stride` values apart, and transforms their columns.
///
/// # Safety
/// Vectors of N² frequencies can be read from `from` on.
#[inline(always)]
pub(super) unsafe fn load_products<S: Simd, const N: usize, const M: usize>(
    s: S,
    from: *const f32,
    stride: usize,
) -> [[S::V; N]; M] {
    let mut half = [[s.splat(0.0); N]; M];
    for column in 0..N {
        let mut values = [s.splat(0.0); N];
        for row in 0..N {
            // SAFETY: the caller's duty.
            values[row] = unsafe { s.load(from.wrapping_add((row * N + column) * stride)) };
        }
        let values: [S::V; M] = transform_output(s, values);
        for row in 0..M {
            half[row][column] = values[row];
        }
    }
    half
}
