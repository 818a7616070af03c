//! Element-wise functions that a node's kernel computes on lines of its results, while these are in the first-level cache.

use super::MAX_INPUTS;
use super::factors::Factors;
use hipdnn_cpu_pointwise::{Chain, Direct, Lie, Program, Storage};
use hipdnn_cpu_simd::isa::Isa;
use hipdnn_cpu_simd::scratch::lines;

/// Number of values of a line, at most.
pub(super) const LINE: usize = 1024;

/// Functions of a node's result, in `f32`.
#[derive(Clone, Debug)]
pub struct Epilogue {
    /// The functions; input 0 is the node's result, the others are `operands`.
    pub program: Program,
    /// Operands, in order.
    pub operands: Vec<Operand>,
    /// Normalizations, each with the positions of its operands among the node's inputs.
    pub factors: Vec<(Factors, Vec<usize>)>,
}

/// Operand of an epilogue.
#[derive(Clone, Debug)]
pub enum Operand {
    /// Input of the node.
    Tensor {
        /// Position among the node's inputs.
        input: usize,
        /// Element type in memory.
        storage: Storage,
        /// Strides of the output's dimensions, lifted to three spatial ones, in elements; 0 repeats.
        strides: [usize; 5],
    },
    /// Scale of each channel, of the normalization of that number.
    Scale(usize),
    /// Shift of each channel, of the normalization of that number.
    Shift(usize),
}

impl Operand {
    /// Element type and strides.
    fn place(&self) -> (Storage, [usize; 5]) {
        match self {
            Operand::Tensor { storage, strides, .. } => (*storage, *strides),
            Operand::Scale(_) | Operand::Shift(_) => (Storage::F32, [0, 1, 0, 0, 0]),
        }
    }
}

/// Kernel of an epilogue.
#[derive(Debug)]
pub(super) struct OnLines {
    epilogue: Epilogue,
    /// True if each operand has one value for all places of a channel: sums may be finished where they are, in any order of places.
    by_channel: bool,
    /// The program in registers for results side by side, if it is a chain.
    chain: Option<Chain>,
    /// The program for results side by side, and for such that are apart in the output.
    beside: Direct,
    apart: Direct,
}

impl OnLines {
    /// Prepares an epilogue whose results are stored as that type; `None` if it has more values at a time than there are rows.
    pub(super) fn new(epilogue: Epilogue, to: Storage) -> Option<OnLines> {
        let lies = |step: usize| -> Vec<Lie> {
            let lie = |operand: &Operand| match operand.place() {
                (Storage::F32, [.., 0]) => Lie::Same,
                (Storage::F32, [.., 1]) if step == 1 => Lie::Beside,
                _ => Lie::Apart,
            };
            std::iter::once(Lie::Beside).chain(epilogue.operands.iter().map(lie)).collect()
        };
        let by_channel = epilogue.operands.iter().all(|operand| operand.place().1[2..] == [0; 3]);
        let single = by_channel || to == Storage::F32;
        let beside = Direct::new(&epilogue.program, &lies(1), single)?;
        let apart = Direct::new(&epilogue.program, &lies(2), false)?;
        let chain = single.then(|| Chain::new(&epilogue.program, &lies(1))).flatten();
        Some(OnLines { epilogue, by_channel, chain, beside, apart })
    }

    /// Number of values that a thread has room for to work with: [`LINE`] results, and the program's rows.
    pub(super) fn spare(&self) -> usize {
        LINE * (1 + self.beside.rows().max(self.apart.rows()))
    }

    /// Bytes of the normalizations' scales and shifts.
    pub(super) fn scratch_bytes(&self) -> usize {
        self.epilogue.factors.iter().map(|(factors, _)| 2 * lines(factors.bytes())).sum()
    }

    /// Computes scales and shifts, and finds the operands.
    ///
    /// # Safety
    /// `inputs` are the node's, with those of the epilogue; `scratch` begins on a cache line and has
    /// [`OnLines::scratch_bytes`].
    pub(super) unsafe fn bind(&self, inputs: &[*const u8], scratch: *mut u8) -> Bound<'_> {
        let mut at = scratch;
        let mut addresses = [std::ptr::null(); MAX_INPUTS];
        for (number, (factors, positions)) in self.epilogue.factors.iter().enumerate() {
            let mut operands = [std::ptr::null(); MAX_INPUTS];
            for (to, position) in operands.iter_mut().zip(positions) {
                *to = inputs[*position];
            }
            let (scales, shifts) = (at, at.wrapping_add(lines(factors.bytes())));
            // SAFETY: the caller's promise; both have room for a value of each channel.
            unsafe { factors.run(&operands, scales.cast(), shifts.cast()) };
            for (address, operand) in addresses.iter_mut().zip(&self.epilogue.operands) {
                match operand {
                    Operand::Scale(of) if *of == number => *address = scales.cast_const(),
                    Operand::Shift(of) if *of == number => *address = shifts.cast_const(),
                    _ => {}
                }
            }
            at = shifts.wrapping_add(lines(factors.bytes()));
        }
        for (address, operand) in addresses.iter_mut().zip(&self.epilogue.operands) {
            if let Operand::Tensor { input, .. } = operand {
                *address = inputs[*input];
            }
        }
        Bound { kernel: self, addresses }
    }
}

/// Epilogue with its operands' memory.
pub(super) struct Bound<'a> {
    kernel: &'a OnLines,
    addresses: [*const u8; MAX_INPUTS],
}

// SAFETY: the operands are only read.
unsafe impl Sync for Bound<'_> {}

impl Bound<'_> {
    /// True if sums are finished by [`Bound::finish`].
    pub(super) fn is_by_channel(&self) -> bool {
        self.kernel.by_channel
    }

    /// Computes the functions of sums of a channel in their place. `rows`: room for the program's rows.
    pub(super) fn finish(&self, isa: Isa, sums: &mut [f32], image: usize, channel: usize, rows: &mut [f32]) {
        assert!(self.kernel.by_channel, "expected one value for all places of a channel");
        for sums in sums.chunks_mut(LINE) {
            let at = sums.as_mut_ptr();
            // SAFETY: the operands have a value for the channel, which is the same for all sums; they are written where they are.
            let results =
                unsafe { self.run(isa, (at.cast_const(), sums.len()), ([image, channel, 0, 0, 0], 1), rows, at) };
            if let Some(results) = results {
                sums.copy_from_slice(results);
            }
        }
    }

    /// Computes the functions of up to [`LINE`] sums at an output's place and those after it, `step` apart along the last
    /// dimension: writes them at `to`, or leaves them in the row that is returned. `rows`: room for the program's rows.
    ///
    /// # Safety
    /// There are `len` sums, and the output has their places. Where `step` is 1 as many values can be written at `to`, which may be
    /// those of an operand; nothing of it is written else.
    pub(super) unsafe fn run<'r>(
        &self,
        isa: Isa,
        (sums, len): (*const f32, usize),
        (at, step): ([usize; 5], usize),
        rows: &'r mut [f32],
        to: *mut f32,
    ) -> Option<&'r mut [f32]> {
        let operands = &self.kernel.epilogue.operands;
        // Input 0 are the sums.
        let place = |input: usize| {
            let (storage, strides) = operands[input - 1].place();
            let offset: usize = at.iter().zip(strides).map(|(index, stride)| index * stride).sum();
            (storage, self.addresses[input - 1], offset, step * strides[4])
        };
        let load = |input: usize, values: &mut [f32]| {
            let (storage, base, offset, stride) = place(input);
            // SAFETY: the caller's promise: the operand has an element for each place of the output.
            unsafe { storage.load(isa, base, offset, stride, values) };
        };
        let address = |input: usize| match input {
            0 => sums,
            input => {
                let (_, base, offset, _) = place(input);
                base.cast::<f32>().wrapping_add(offset)
            }
        };
        if let (Some(chain), 1) = (&self.kernel.chain, step) {
            // SAFETY: the caller's promise, for the sums, for operands that lie side by side or are one for the line, and for the
            // output.
            unsafe { chain.run(isa, (sums, len), address, to) };
            return None;
        }
        let direct = if step == 1 { &self.kernel.beside } else { &self.kernel.apart };
        // SAFETY: the caller's promise, for the sums, for operands that lie side by side or are one for the line, and for the output.
        unsafe { direct.run(isa, (rows, LINE, len), load, address, to) }
    }
}
