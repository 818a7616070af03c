//! Transforms of Winograd's F(2×2, 3×3) and F(4×4, 3×3).
//!
//! With the matrices of Lavin and Gray (arXiv:1509.09308) a tile of M×M outputs is `Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A` of the kernel `g` and
//! the tile `d` of N×N inputs, N = M + 2; summed over input channels the middle is N² matrix products, one for each frequency. For a
//! tile of 4×4 these are 36 products where the plain sum has 144, for one of 2×2 16 instead of 36.

#![expect(clippy::needless_range_loop, reason = "closures of iterators are compiled without the instruction set")]

use hipdnn_cpu_simd::isa::Simd;

/// Rows and columns of a kernel.
pub(super) const KERNEL: usize = 3;

/// Kernel transform `G` of F(2×2, 3×3).
pub(super) const G2: [[f64; KERNEL]; 4] = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]];

/// Kernel transform `G` of F(4×4, 3×3).
pub(super) const G4: [[f64; KERNEL]; 6] = [
    [1.0 / 4.0, 0.0, 0.0],
    [-1.0 / 6.0, -1.0 / 6.0, -1.0 / 6.0],
    [-1.0 / 6.0, 1.0 / 6.0, -1.0 / 6.0],
    [1.0 / 24.0, 1.0 / 12.0, 1.0 / 6.0],
    [1.0 / 24.0, -1.0 / 12.0, 1.0 / 6.0],
    [0.0, 0.0, 1.0],
];

/// Row `i` of `G`, for tiles of N×N inputs.
#[inline(always)]
fn kernel_row<const N: usize>(i: usize) -> [f64; KERNEL] {
    if N == 4 { G2[i] } else { G4[i] }
}

/// Frequencies of kernels, row by row, rounded once: of one in each lane, whose taps are given row by row.
#[inline(always)]
pub(super) fn transform_kernels<const N: usize, const L: usize>(kernels: &[[f64; L]; 9]) -> [[[f32; L]; N]; N] {
    const { assert!(N == 4 || N == 6) };
    // Rows of a kernel by columns of frequencies.
    let mut half = [[[0f64; L]; N]; KERNEL];
    for row in 0..KERNEL {
        for column in 0..N {
            let g = kernel_row::<N>(column);
            for lane in 0..L {
                let [a, b, c] = [kernels[3 * row][lane], kernels[3 * row + 1][lane], kernels[3 * row + 2][lane]];
                half[row][column][lane] = a * g[0] + b * g[1] + c * g[2];
            }
        }
    }
    let mut frequencies = [[[0f32; L]; N]; N];
    for row in 0..N {
        for column in 0..N {
            let g = kernel_row::<N>(row);
            for lane in 0..L {
                let [a, b, c] = [half[0][column][lane], half[1][column][lane], half[2][column][lane]];
                frequencies[row][column][lane] = (g[0] * a + g[1] * b + g[2] * c) as f32;
            }
        }
    }
    frequencies
}

/// Input transform: `Bᵀ` of a tile's row or column.
#[inline(always)]
pub(super) fn transform_input<S: Simd, const N: usize>(s: S, d: [S::V; N]) -> [S::V; N] {
    const { assert!(N == 4 || N == 6) };
    let mut t = d;
    if N == 4 {
        t[0] = s.sub(d[0], d[2]);
        t[1] = s.add(d[1], d[2]);
        t[2] = s.sub(d[2], d[1]);
        t[3] = s.sub(d[1], d[3]);
    } else {
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
    }
    t
}

/// Output transform: `Aᵀ` of a row or column of N products.
#[inline(always)]
pub(super) fn transform_output<S: Simd, const N: usize, const M: usize>(s: S, m: [S::V; N]) -> [S::V; M] {
    const { assert!(N == M + KERNEL - 1 && (M == 2 || M == 4)) };
    let mut t = [m[0]; M];
    let (sum, difference) = (s.add(m[1], m[2]), s.sub(m[1], m[2]));
    if N == 4 {
        t[0] = s.add(m[0], sum);
        t[1] = s.sub(difference, m[3]);
    } else {
        let (sum2, difference2) = (s.add(m[3], m[4]), s.sub(m[3], m[4]));
        t[0] = s.add(m[0], s.add(sum, sum2));
        t[1] = s.fma(s.splat(2.0), difference2, difference);
        t[2] = s.fma(s.splat(4.0), sum2, sum);
        t[3] = s.add(s.fma(s.splat(8.0), difference2, difference), m[5]);
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
