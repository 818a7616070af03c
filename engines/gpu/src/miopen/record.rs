//! Launches taken down once and repeated with other addresses.
//!
//! Launches of one call of MIOpen are captured twice, with its buffers at different places. A word of a kernel's
//! arguments that moved as far as one buffer did is that buffer's address plus a constant; every other word must be the
//! same both times. Repeating the launches then takes neither MIOpen nor a lock nor memory: it works on any stream,
//! from any thread, and while a stream captures.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use hipdnn_engine_core::error::{Error, ErrorKind};
use hipdnn_sdk_bindings::hip::hipMemcpyKind;

use crate::hip::{FillNode, Gpu, KernelLaunch, KernelNode, MOST_ARGUMENT_BYTES, Node, Queue};

/// Number of buffers that a recorded call has at most.
pub const OPERANDS: usize = 5;

/// The buffers of a recorded call, as indices of [`Addresses`].
pub mod operand {
    /// A convolution's image side.
    pub const X: usize = 0;
    /// A convolution's filters.
    pub const W: usize = 1;
    /// A convolution's other side.
    pub const Y: usize = 2;
    /// A bias for each channel of y.
    pub const BIAS: usize = 3;
    /// Memory that the call may use as it likes.
    pub const WORKSPACE: usize = 4;
}

/// Names of the operands, for messages.
const NAMES: [&str; OPERANDS] = ["x", "w", "y", "bias", "workspace"];

/// An address for each operand; 0 for one that the call does not have.
pub type Addresses = [u64; OPERANDS];

const MOST_WORDS: usize = MOST_ARGUMENT_BYTES / 8;

/// An address: an operand's plus a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    operand: u8,
    offset: u64,
}

impl Place {
    fn resolve(self, at: &Addresses) -> u64 {
        at[usize::from(self.operand)].wrapping_add(self.offset)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Relocation {
    word: u16,
    place: Place,
}

#[derive(Debug)]
struct Launch {
    kernel: KernelLaunch,
    words: Box<[u64]>,
    argument_bytes: usize,
    relocations: Box<[Relocation]>,
}

#[derive(Debug)]
enum Step {
    Launch(Launch),
    Fill { to: Place, value: u32, width: usize, count: usize },
    Copy { from: Place, to: Place, bytes: usize },
}

/// Launches that can be repeated.
#[derive(Debug)]
pub struct Recording {
    steps: Box<[Step]>,
    used: [bool; OPERANDS],
}

/// One captured call: what it had its stream do, and where its operands were.
#[derive(Clone, Copy, Debug)]
pub struct Capture<'a> {
    /// The work, in order.
    pub nodes: &'a [Node],
    /// The operands.
    pub at: Addresses,
}

impl Recording {
    /// Common part of the two captures of one call. `is_memory` tells whether a word that stayed the same is an
    /// address that HIP knows: such memory may be gone when the launches are repeated.
    ///
    /// # Errors
    /// If the call can't be repeated, with the reason.
    pub fn new(first: Capture<'_>, second: Capture<'_>, is_memory: &dyn Fn(u64) -> bool) -> Result<Recording, String> {
        let moves = Moves::new(&first.at, &second.at)?;
        if first.nodes.len() != second.nodes.len() {
            return Err(format!("{} pieces of work, then {}", first.nodes.len(), second.nodes.len()));
        }
        if first.nodes.is_empty() {
            return Err("nothing was launched".to_string());
        }
        let mut steps = Vec::new();
        for (index, nodes) in first.nodes.iter().zip(second.nodes).enumerate() {
            let step = match nodes {
                (Node::Kernel(first), Node::Kernel(second)) => {
                    launch(first, second, &moves, is_memory).map(Step::Launch)
                }
                (Node::Fill(first), Node::Fill(second)) => fill(first, second, &moves),
                (Node::Copy(first), Node::Copy(second)) if first.bytes == second.bytes => {
                    let places = [(first.from, second.from), (first.to, second.to)];
                    match places.map(|(first, second)| moves.place(first, second)) {
                        [Some(from), Some(to)] => Ok(Step::Copy { from, to, bytes: first.bytes }),
                        _ => Err("memory is copied that is no operand".to_string()),
                    }
                }
                _ => Err("it is not the same work both times".to_string()),
            };
            steps.push(step.map_err(|reason| format!("piece {} of {}: {reason}", index + 1, first.nodes.len()))?);
        }
        let mut used = [false; OPERANDS];
        for step in &steps {
            match step {
                Step::Launch(launch) => {
                    launch.relocations.iter().for_each(|r| used[usize::from(r.place.operand)] = true)
                }
                Step::Fill { to, .. } => used[usize::from(to.operand)] = true,
                Step::Copy { from, to, .. } => {
                    [from, to].iter().for_each(|place| used[usize::from(place.operand)] = true)
                }
            }
        }
        Ok(Recording { steps: steps.into(), used })
    }

    /// Number of launches, fills and copies.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// True if it does nothing; no recording does.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// True if the operand's address is in any launch.
    pub fn uses(&self, operand: usize) -> bool {
        self.used[operand]
    }

    /// Repeats the launches on a stream.
    ///
    /// # Safety
    /// The code that the launches were captured from is still loaded, the stream is of its device, and each used operand
    /// is the address of as much device memory as the captured call had there.
    ///
    /// # Errors
    /// If an operand is missing, or HIP refuses a launch.
    pub unsafe fn launch(&self, gpu: &Gpu, queue: &mut Queue<'_>, at: &Addresses) -> Result<(), Error> {
        for (operand, used) in self.used.iter().enumerate() {
            if *used && at[operand] == 0 {
                return Err(Error::bad_param(format!("expected an address of {}, got null", NAMES[operand])));
            }
        }
        for (index, step) in self.steps.iter().enumerate() {
            // SAFETY: the caller's promise.
            if let Err(error) = unsafe { step.run(gpu, queue, at) } {
                return Err(error.within(format!("piece {} of {}", index + 1, self.steps.len())));
            }
        }
        Ok(())
    }
}

impl Step {
    /// # Safety
    /// As [`Recording::launch`].
    unsafe fn run(&self, gpu: &Gpu, queue: &mut Queue<'_>, at: &Addresses) -> Result<(), Error> {
        match self {
            // SAFETY: the caller's promise.
            Step::Launch(launch) => unsafe { launch.run(gpu, queue, at) },
            Step::Fill { to, value, width, count } => {
                let (to, stream) = (to.resolve(at), queue.untaped());
                let missing = || Error::new(ErrorKind::Device, format!("HIP sets no {width}-byte values"));
                match width {
                    1 => {
                        // HIP takes the lowest byte.
                        let value = (*value & 0xff) as i32;
                        // SAFETY: the captured call set as many bytes of this operand, which is as large.
                        let status = unsafe { (gpu.hip.hipMemsetAsync)(to as *mut c_void, value, *count, stream) };
                        gpu.check_hip(status, "hipMemsetAsync")
                    }
                    2 => {
                        let set = gpu.hip.hipMemsetD16Async.ok_or_else(missing)?;
                        // SAFETY: the captured call set as many values of two bytes of this operand, which is as large.
                        let status = unsafe { set(to as *mut c_void, *value as u16, *count, stream) };
                        gpu.check_hip(status, "hipMemsetD16Async")
                    }
                    _ => {
                        let set = gpu.hip.hipMemsetD32Async.ok_or_else(missing)?;
                        // SAFETY: the captured call set as many values of four bytes of this operand, which is as
                        // large.
                        let status = unsafe { set(to as *mut c_void, *value as i32, *count, stream) };
                        gpu.check_hip(status, "hipMemsetD32Async")
                    }
                }
            }
            Step::Copy { from, to, bytes } => {
                let [from, to] = [from, to].map(|place| place.resolve(at) as *mut c_void);
                let kind = hipMemcpyKind::hipMemcpyDeviceToDevice;
                // SAFETY: the captured call copied as many bytes between these operands, which are as large.
                let status = unsafe { (gpu.hip.hipMemcpyAsync)(to, from, *bytes, kind, queue.untaped()) };
                gpu.check_hip(status, "hipMemcpyAsync")
            }
        }
    }
}

impl Launch {
    /// # Safety
    /// As [`Recording::launch`].
    unsafe fn run(&self, gpu: &Gpu, queue: &mut Queue<'_>, at: &Addresses) -> Result<(), Error> {
        // On the stack, so that any number of threads can launch at once.
        let mut arguments = [MaybeUninit::<u64>::uninit(); MOST_WORDS];
        let words: *const u64 = self.patched(&mut arguments, at);
        // SAFETY: as many words were written as the bytes are part of.
        let arguments = unsafe { std::slice::from_raw_parts(words.cast(), self.argument_bytes) };
        // SAFETY: the arguments are those of a launch that was captured, at addresses that the caller vouches for.
        unsafe { queue.launch(gpu, &self.kernel, arguments) }
    }

    /// Writes the arguments for these addresses; gives the first word's address.
    fn patched(&self, arguments: &mut [MaybeUninit<u64>; MOST_WORDS], at: &Addresses) -> *mut u64 {
        for (place, word) in arguments.iter_mut().zip(&self.words) {
            place.write(*word);
        }
        for relocation in &self.relocations {
            arguments[usize::from(relocation.word)].write(relocation.place.resolve(at));
        }
        arguments.as_mut_ptr().cast()
    }
}

/// Distances of the operands from their first places to their second; no two are equal.
struct Moves {
    first: Addresses,
    by: Addresses,
}

impl Moves {
    fn new(first: &Addresses, second: &Addresses) -> Result<Moves, String> {
        let mut by = [0; OPERANDS];
        for operand in 0..OPERANDS {
            by[operand] = second[operand].wrapping_sub(first[operand]);
            let present = (first[operand] != 0, second[operand] != 0);
            let distinct = by[operand] != 0 && !by[..operand].contains(&by[operand]);
            if present.0 != present.1 || (present.0 && !distinct) {
                return Err(format!("the places of {} do not tell it from others", NAMES[operand]));
            }
        }
        Ok(Moves { first: *first, by })
    }

    fn place(&self, first: u64, second: u64) -> Option<Place> {
        let moved = second.wrapping_sub(first);
        let operand = (0..OPERANDS).find(|operand| self.first[*operand] != 0 && self.by[*operand] == moved)?;
        let offset = first.wrapping_sub(self.first[operand]);
        Some(Place { operand: u8::try_from(operand).expect("there are five"), offset })
    }
}

fn launch(
    first: &KernelNode,
    second: &KernelNode,
    moves: &Moves,
    is_memory: &dyn Fn(u64) -> bool,
) -> Result<Launch, String> {
    let shape = |node: &KernelNode| (node.function, node.grid, node.block, node.shared_bytes, node.arguments.len());
    if shape(first) != shape(second) {
        return Err("it is not the same launch both times".to_string());
    }
    let threads = first.grid.into_iter().zip(first.block).map(|(blocks, threads)| blocks.checked_mul(threads));
    if threads.into_iter().any(|threads| threads.is_none()) {
        return Err(format!("{:?} blocks of {:?} threads are too many to be launched again", first.grid, first.block));
    }
    let (words, others) = (words(&first.arguments), words(&second.arguments));
    if words.len() > MOST_WORDS {
        return Err(format!("{} bytes of arguments; {MOST_ARGUMENT_BYTES} can be repeated", first.arguments.len()));
    }
    let mut relocations = Vec::new();
    for (index, (word, other)) in words.iter().zip(&others).enumerate() {
        if word == other {
            if is_memory(*word) {
                return Err(format!("word {index} of its arguments is an address of memory that is no operand"));
            }
        } else if let Some(place) = moves.place(*word, *other) {
            relocations.push(Relocation { word: u16::try_from(index).expect("at most 512 words"), place });
        } else {
            return Err(format!("word {index} of its arguments changed, and not as an operand's address did"));
        }
    }
    Ok(Launch {
        kernel: KernelLaunch {
            function: first.function,
            grid: first.grid,
            block: first.block,
            shared_bytes: first.shared_bytes,
        },
        argument_bytes: first.arguments.len(),
        words: words.into(),
        relocations: relocations.into(),
    })
}

/// The bytes as words; what is left of the last one is zeros.
fn words(bytes: &[u8]) -> Vec<u64> {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_ne_bytes(word)
    };
    bytes.chunks(8).map(word).collect()
}

fn fill(first: &FillNode, second: &FillNode, moves: &Moves) -> Result<Step, String> {
    let what = |node: &FillNode| (node.value, node.width, node.count);
    if what(first) != what(second) {
        return Err("it is not the same fill both times".to_string());
    }
    let to = moves.place(first.address, second.address).ok_or("memory is set that is no operand")?;
    Ok(Step::Fill { to, value: first.value, width: first.width, count: first.count })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hip::{CopyNode, Function};

    const FIRST: Addresses = [0x1000_0000, 0x2000_0000, 0x3000_0000, 0, 0x5000_0000];
    const SECOND: Addresses = [0x1000_1000, 0x2000_2000, 0x3000_3000, 0, 0x5000_5000];

    fn arguments(words: &[u64], tail: &[u8]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).chain(tail.iter().copied()).collect()
    }

    fn kernel(arguments: Vec<u8>) -> Node {
        let function = Function(std::ptr::without_provenance_mut(0x77));
        Node::Kernel(KernelNode { function, grid: [4, 2, 1], block: [64, 1, 1], shared_bytes: 0, arguments })
    }

    fn grown(node: Node) -> Node {
        match node {
            Node::Kernel(node) => Node::Kernel(KernelNode { grid: [5, 2, 1], ..node }),
            node => node,
        }
    }

    fn huge() -> Node {
        let function = Function(std::ptr::without_provenance_mut(0x77));
        let arguments = arguments(&[FIRST[0]], &[]);
        Node::Kernel(KernelNode { function, grid: [1 << 24, 1, 1], block: [256, 1, 1], shared_bytes: 0, arguments })
    }

    fn record(first: &[Node], second: &[Node], memory: &[u64]) -> Result<Recording, String> {
        let (first, second) = (Capture { nodes: first, at: FIRST }, Capture { nodes: second, at: SECOND });
        Recording::new(first, second, &|word| memory.contains(&word))
    }

    /// The words of a launch with all operands elsewhere.
    fn words_at(recording: &Recording, at: &Addresses) -> Vec<u64> {
        let [Step::Launch(launch)] = &*recording.steps else { panic!("one launch") };
        let mut arguments = [MaybeUninit::uninit(); MOST_WORDS];
        let first = launch.patched(&mut arguments, at);
        // SAFETY: as many words were written as the launch has.
        unsafe { std::slice::from_raw_parts(first, launch.words.len()) }.to_vec()
    }

    #[test]
    fn words_that_move_with_an_operand_are_patched() {
        // x, a number, y at 64 bytes, the workspace 8 bytes before its start, and six bytes more.
        let of = |at: &Addresses| kernel(arguments(&[at[0], 12345, at[2] + 64, at[4] - 8], &[1, 2, 3, 4, 5, 6]));
        let recording = record(&[of(&FIRST)], &[of(&SECOND)], &[]).unwrap();
        let elsewhere: Addresses = [0x7f00_0000_0000, 0x7f01_0000_0000, 0x7f02_0000_0000, 0, 0x10];
        let tail = u64::from_ne_bytes([1, 2, 3, 4, 5, 6, 0, 0]);
        assert_eq!(words_at(&recording, &elsewhere), [0x7f00_0000_0000, 12345, 0x7f02_0000_0040, 8, tail]);
        let used: Vec<_> = (0..OPERANDS).map(|operand| recording.uses(operand)).collect();
        assert_eq!(used, [true, false, true, false, true]);
        let [Step::Launch(launch)] = &*recording.steps else { panic!("one launch") };
        assert_eq!(launch.argument_bytes, 38);
    }

    #[test]
    fn fills_and_copies_move_with_their_operands() {
        let of = |at: &Addresses| {
            [
                Node::Fill(FillNode { address: at[2] + 16, value: 0, width: 1, count: 99 }),
                Node::Copy(CopyNode { from: at[0], to: at[4] + 256, bytes: 77 }),
            ]
        };
        let recording = record(&of(&FIRST), &of(&SECOND), &[]).unwrap();
        let [Step::Fill { to, count: 99, .. }, Step::Copy { from, to: copy, bytes: 77 }] = &*recording.steps else {
            panic!("a fill and a copy: {recording:?}")
        };
        let at = [1 << 20, 2 << 20, 3 << 20, 0, 5 << 20];
        assert_eq!([to, from, copy].map(|place| place.resolve(&at)), [(3 << 20) + 16, 1 << 20, (5 << 20) + 256]);
        assert_eq!(recording.len(), 2);
    }

    #[test]
    fn what_cannot_be_repeated_is_refused() {
        let plain = |at: &Addresses| kernel(arguments(&[at[0], 7], &[]));
        let node = |words: &[u64]| kernel(arguments(words, &[]));
        let fill = |address, count| Node::Fill(FillNode { address, value: 0, width: 1, count });
        let copy = |from, to| Node::Copy(CopyNode { from, to, bytes: 8 });
        let cases = [
            ("nothing", vec![], vec![], "nothing was launched"),
            ("one, then two", vec![plain(&FIRST)], vec![plain(&SECOND); 2], "1 pieces of work, then 2"),
            ("another shape", vec![plain(&FIRST)], vec![grown(plain(&SECOND))], "not the same launch"),
            (
                "more arguments",
                vec![plain(&FIRST)],
                vec![kernel(arguments(&[SECOND[0], 7], &[0]))],
                "not the same launch",
            ),
            ("another kind", vec![plain(&FIRST)], vec![fill(SECOND[0], 8)], "not the same work"),
            (
                "a changed number",
                vec![node(&[FIRST[0], 7])],
                vec![node(&[SECOND[0], 8])],
                "word 1 of its arguments changed",
            ),
            (
                "half a move",
                vec![node(&[FIRST[0]])],
                vec![node(&[FIRST[0] + 0x800])],
                "word 0 of its arguments changed",
            ),
            ("other memory", vec![node(&[FIRST[0], 0xabc0_0000])], vec![node(&[SECOND[0], 0xabc0_0000])], "no operand"),
            ("an operand that stays", vec![node(&[FIRST[0]])], vec![node(&[FIRST[0]])], "no operand"),
            ("another fill", vec![fill(FIRST[2], 8)], vec![fill(SECOND[2], 9)], "not the same fill"),
            ("a fill elsewhere", vec![fill(0x9000, 8)], vec![fill(0x9000, 8)], "no operand"),
            ("a copy from elsewhere", vec![copy(0x9000, FIRST[2])], vec![copy(0x9000, SECOND[2])], "no operand"),
            ("too many threads", vec![huge()], vec![huge()], "too many to be launched"),
            (
                "too many arguments",
                vec![kernel(vec![0; MOST_ARGUMENT_BYTES + 8])],
                vec![kernel(vec![0; MOST_ARGUMENT_BYTES + 8])],
                "can be repeated",
            ),
        ];
        for (name, first, second, want) in cases {
            let reason = record(&first, &second, &[0xabc0_0000, FIRST[0]]).expect_err(name);
            assert!(reason.contains(want), "{name}: {reason}");
        }
    }

    #[test]
    fn places_must_tell_operands_apart() {
        let nodes = [kernel(arguments(&[FIRST[0]], &[]))];
        let try_with = |second: Addresses| {
            let at = |at| Capture { nodes: &nodes, at };
            Recording::new(at(FIRST), at(second), &|_| false).expect_err("places that don't differ")
        };
        let same_distance = [SECOND[0], FIRST[1] + 0x1000, SECOND[2], 0, SECOND[4]];
        let not_moved = [SECOND[0], FIRST[1], SECOND[2], 0, SECOND[4]];
        let gone = [SECOND[0], SECOND[1], SECOND[2], 0, 0];
        for (second, operand) in [(same_distance, "w"), (not_moved, "w"), (gone, "workspace")] {
            assert!(try_with(second).contains(&format!("places of {operand} do not")), "{operand}");
        }
    }
}
