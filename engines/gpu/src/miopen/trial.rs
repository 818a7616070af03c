//! Scratch memory to run a solver with, and the test that repeated launches do what MIOpen's call does.

use half::{bf16, f16};
use hipdnn_engine_core::error::{Error, ErrorKind};
use hipdnn_engine_kernel::convolution::{ConvolutionProblem, DataType, Direction, TensorShape};

use super::handles::Builder;
use super::places::shift;
use super::record::{Addresses, Capture, OPERANDS, Recording, operand};
use super::sample::{Sample, reduction, samples};
use crate::hip::{CaptureError, DeviceMemory, Gpu, Node, Queue, Stream};

/// Sets of addresses that the memory has room for.
const SETS: usize = 3;

/// Memory for a problem's tensors, at [`SETS`] places.
#[derive(Debug)]
pub(crate) struct Scratch {
    gpu: &'static Gpu,
    tensors: [Option<(TensorShape, DeviceMemory)>; OPERANDS],
    output: usize,
    /// One in so many values is not zero.
    one_in: u64,
    expected: Vec<Expected>,
}

/// About what an element of the output must be.
#[derive(Clone, Copy, Debug)]
struct Expected {
    place: usize,
    value: f64,
    /// Transforms round: only gross errors count.
    room: f64,
}

/// Memory for a solver's workspace.
#[derive(Debug)]
pub(crate) struct Workspace(DeviceMemory);

/// Elements after which the data repeats: no multiple of any kernel's tile.
const PERIOD: usize = 4093;

impl Scratch {
    /// Memory for the problem's tensors.
    pub(crate) fn new(gpu: &'static Gpu, problem: &ConvolutionProblem) -> Result<Scratch, Error> {
        Scratch::fused_convolution(gpu, problem, None, &|value| value)
    }

    /// The same for a convolution that a bias and a function follow.
    pub(crate) fn fused_convolution(
        gpu: &'static Gpu,
        problem: &ConvolutionProblem,
        bias: Option<&TensorShape>,
        function: &dyn Fn(f64) -> f64,
    ) -> Result<Scratch, Error> {
        let mut tensors = [const { None }; OPERANDS];
        let shapes = [
            (operand::X, Some(&problem.x)),
            (operand::W, Some(&problem.w)),
            (operand::Y, Some(&problem.y)),
            (operand::BIAS, bias),
        ];
        for (operand, shape) in shapes {
            if let Some(shape) = shape {
                let memory = DeviceMemory::new(gpu, shape.bytes() + (SETS - 1) * shift(operand))?;
                tensors[operand] = Some((shape.clone(), memory));
            }
        }
        let output = match problem.direction {
            Direction::Forward => operand::Y,
            Direction::BackwardData => operand::X,
            Direction::BackwardWeights => operand::W,
        };
        let one_in = one_in(reduction(problem));
        let data: Vec<Vec<i8>> = (0..OPERANDS).map(|operand| values(operand, one_in).collect()).collect();
        let value = |operand: usize, place: usize| i64::from(data[operand][place % PERIOD]);
        let expect = |Sample { place, channel, sum, products }| {
            let bias = bias.map_or(0, |_| value(operand::BIAS, channel));
            Expected { place, value: function((sum + bias) as f64), room: room(products) }
        };
        let expected = samples(problem, &value).into_iter().map(expect).collect();
        Ok(Scratch { gpu, tensors, output, one_in, expected })
    }

    /// Memory for a workspace of so many bytes.
    pub(crate) fn workspace(&self, bytes: usize) -> Result<Workspace, Error> {
        let room = if bytes == 0 { 0 } else { (SETS - 1) * shift(operand::WORKSPACE) };
        Ok(Workspace(DeviceMemory::new(self.gpu, bytes + room)?))
    }

    /// A set of addresses.
    pub(crate) fn place(&self, workspace: &Workspace, set: usize) -> Addresses {
        let mut at = [0; OPERANDS];
        for (operand, tensor) in self.tensors.iter().enumerate() {
            if let Some((_, memory)) = tensor {
                at[operand] = memory.at(set * shift(operand)) as u64;
            }
        }
        if workspace.0.bytes() > 0 {
            at[operand::WORKSPACE] = workspace.0.at(set * shift(operand::WORKSPACE)) as u64;
        }
        at
    }

    /// Writes inputs at a set's places, and `unwritten` all over the output and the workspace.
    pub(crate) fn fill(&self, workspace: &Workspace, set: usize, unwritten: u8, stream: &Stream) -> Result<(), Error> {
        for (operand, tensor) in self.tensors.iter().enumerate() {
            let Some((shape, memory)) = tensor else { continue };
            if operand == self.output {
                memory.fill(unwritten, stream)?;
            } else {
                repeat(
                    memory,
                    set * shift(operand),
                    &pattern(shape.data_type, operand, self.one_in),
                    shape.bytes(),
                    stream,
                )?;
            }
        }
        workspace.0.fill(unwritten, stream)
    }

    /// Reads a piece of the output at a set's places, after what the stream has to do.
    fn read(&self, set: usize, offset: usize, bytes: &mut [u8], stream: &Stream) -> Result<(), Error> {
        let (_, memory) = self.output();
        memory.read(set * shift(self.output) + offset, bytes, stream)
    }

    /// Looks at some elements of what a call has written at the first set's places.
    fn look(&self, stream: &Stream) -> Result<(), Error> {
        let data_type = self.output().0.data_type;
        let mut bytes = [0; 4];
        for expected in &self.expected {
            let element = &mut bytes[..data_type.width()];
            self.read(0, expected.place * data_type.width(), element, stream)?;
            expected.check(number(data_type, element))?;
        }
        Ok(())
    }

    fn output(&self) -> &(TensorShape, DeviceMemory) {
        self.tensors[self.output].as_ref().expect("x, w and y are always there")
    }
}

/// So sparse that sums of so many products are about 32 at most: exact in every type, in whatever order they are added.
fn one_in(products: usize) -> u64 {
    ((products as f64).sqrt() / 32.0).ceil().max(2.0) as u64
}

/// Largest error of a sum of so many products of ones. Transforms round, all the more in short types; a sum of other
/// products is off by about the root of their number.
fn room(products: i64) -> f64 {
    let products = products as f64;
    ((products + 4.0) / 16.0).min((products.sqrt() + 1.0) / 2.0)
}

/// Small whole numbers: sums of their products are exact as long as possible.
fn values(operand: usize, one_in: u64) -> impl Iterator<Item = i8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(operand as u64 + 1) | 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let sign = if state & (1 << 60) == 0 { 1 } else { -1 };
        if (state >> 20).is_multiple_of(one_in) { sign } else { 0 }
    })
    .take(PERIOD)
}

/// A period of an operand's data.
fn pattern(data_type: DataType, operand: usize, one_in: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PERIOD * data_type.width());
    for value in values(operand, one_in).map(f32::from) {
        match data_type {
            DataType::Float => bytes.extend(value.to_ne_bytes()),
            DataType::Half => bytes.extend(f16::from_f32(value).to_ne_bytes()),
            DataType::BFloat16 => bytes.extend(bf16::from_f32(value).to_ne_bytes()),
        }
    }
    bytes
}

/// The number that an element's bytes are.
fn number(data_type: DataType, bytes: &[u8]) -> f64 {
    let two = [bytes[0], bytes[1]];
    match data_type {
        DataType::Float => f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).into(),
        DataType::Half => f16::from_ne_bytes(two).into(),
        DataType::BFloat16 => bf16::from_ne_bytes(two).into(),
    }
}

/// Writes the pattern again and again: once from the host, then doubling what is there.
fn repeat(memory: &DeviceMemory, at: usize, pattern: &[u8], bytes: usize, stream: &Stream) -> Result<(), Error> {
    let mut filled = pattern.len().min(bytes);
    memory.write(at, &pattern[..filled], stream)?;
    while filled < bytes {
        let more = filled.min(bytes - filled);
        memory.copy_within(at, at + filled, more, stream)?;
        filled += more;
    }
    Ok(())
}

/// A call of MIOpen that is tried on scratch memory.
pub(crate) struct Subject<'a> {
    pub gpu: &'static Gpu,
    /// Stream that the call launches on.
    pub stream: &'a Stream,
    pub scratch: &'a Scratch,
    pub workspace: &'a Workspace,
    /// The call, with its operands at these addresses.
    pub run: &'a dyn Fn(&Addresses) -> Result<(), Error>,
}

/// Output that MIOpen's own call wrote.
#[derive(Debug)]
pub(crate) struct Trial {
    /// The output; or why there is no copy of it.
    expected: Result<Vec<u8>, Error>,
}

/// Outcome of recording a call.
pub(crate) enum Outcome {
    /// Its launches, which do the same.
    Recorded(Recording),
    /// It can't be repeated, or not so that the same comes out.
    Refused(String),
    /// Something failed, which says nothing about the call.
    Failed(Error),
}

/// Bytes that the output holds before MIOpen's call, and before the launches are repeated: different, so that an
/// element that is not written differs too.
const UNWRITTEN: [u8; 2] = [0xff, 0x5a];

/// Bytes that are compared at a time.
const PIECE: usize = 16 << 20;

/// Bytes of the largest output that is kept on the host to compare with. What computes more takes so long that calling
/// MIOpen costs nothing beside it.
const LARGEST_COMPARED: usize = 1 << 30;

impl Subject<'_> {
    /// Makes the call, looks at what it wrote, and keeps that.
    pub(crate) fn run(&self) -> Result<Trial, Error> {
        let Subject { stream, scratch, workspace, .. } = *self;
        scratch.fill(workspace, 0, UNWRITTEN[0], stream)?;
        (self.run)(&scratch.place(workspace, 0))?;
        scratch.look(stream)?;
        let shape = &scratch.output().0;
        let mut expected = zeros(shape.bytes());
        if let Ok(expected) = &mut expected {
            scratch.read(0, 0, expected, stream)?;
        }
        Ok(Trial { expected })
    }

    /// Takes down the call's launches; if there is a trial, repeats them and compares.
    pub(crate) fn record(&self, trial: Option<&Trial>) -> Outcome {
        let captured = match trial {
            Some(_) => self.quiet_capture(),
            None => self.capture(),
        };
        let recording = match captured {
            Ok(recording) => recording,
            Err(CaptureError::Refused(reason)) => return Outcome::Refused(reason),
            Err(CaptureError::Failed(error) | CaptureError::Interrupted(error)) => return Outcome::Failed(error),
        };
        match trial.map(|trial| self.compare(trial, &recording)) {
            None | Some(Ok(Ok(()))) => Outcome::Recorded(recording),
            Some(Ok(Err(reason))) => Outcome::Refused(reason),
            Some(Err(error)) => Outcome::Failed(error),
        }
    }

    /// Captures, and looks whether something ran nevertheless: some launches, such as cooperative ones, do.
    fn quiet_capture(&self) -> Result<Recording, CaptureError> {
        let Subject { stream, scratch, workspace, .. } = *self;
        scratch.fill(workspace, 0, UNWRITTEN[1], stream)?;
        // What runs at once does not wait for the stream: the fill must not come behind it.
        stream.synchronize()?;
        let recording = self.capture()?;
        let mut piece = vec![0; scratch.output().0.bytes().min(PIECE)];
        scratch.read(0, 0, &mut piece, stream)?;
        match piece.iter().all(|byte| *byte == UNWRITTEN[1]) {
            true => Ok(recording),
            false => Err(CaptureError::Refused("it ran although its stream captured".to_string())),
        }
    }

    fn capture(&self) -> Result<Recording, CaptureError> {
        let [first, second] = [0, 1].map(|set| self.scratch.place(self.workspace, set));
        capture(self.gpu, self.stream, self.run, [first, second])
    }

    /// Repeats the launches with all operands elsewhere, and compares bit by bit.
    fn compare(&self, trial: &Trial, recording: &Recording) -> Result<Result<(), String>, Error> {
        // A set that nothing was captured with.
        const SET: usize = 2;
        let Subject { gpu, stream, scratch, workspace, .. } = *self;
        let expected = trial.expected.as_ref().map_err(Clone::clone)?;
        scratch.fill(workspace, SET, UNWRITTEN[1], stream)?;
        // SAFETY: the code was compiled for the call, and is still loaded; the addresses are those of scratch memory as
        // large as the call's operands.
        unsafe { recording.launch(gpu, &mut Queue::new(stream.raw().cast()), &scratch.place(workspace, SET)) }?;
        let shape = &scratch.output().0;
        let elements = Elements::of(shape);
        let mut piece = vec![0; expected.len().min(PIECE)];
        for (index, expected) in expected.chunks(PIECE).enumerate() {
            let start = index * PIECE;
            let got = &mut piece[..expected.len()];
            scratch.read(SET, start, got, stream)?;
            let differ = |at: &usize| expected[*at] != got[*at] && elements.has((start + at) / shape.data_type.width());
            if expected != got
                && let Some(at) = (0..expected.len()).find(differ)
            {
                return Ok(Err(format!("repeated launches wrote byte {} otherwise than MIOpen's call", start + at)));
            }
        }
        Ok(Ok(()))
    }
}

/// Takes down the launches of a call, made with its operands at two sets of addresses. Nothing runs.
fn capture(
    gpu: &Gpu,
    stream: &Stream,
    run: &dyn Fn(&Addresses) -> Result<(), Error>,
    [first, second]: [Addresses; 2],
) -> Result<Recording, CaptureError> {
    let nodes = undisturbed(stream, run, &first)?;
    let again = undisturbed(stream, run, &second)?;
    let captures = (Capture { nodes: &nodes, at: first }, Capture { nodes: &again, at: second });
    Recording::new(captures.0, captures.1, &|word| gpu.is_memory(word)).map_err(CaptureError::Refused)
}

/// Captures a call, once more where others have ended the capture.
fn undisturbed(
    stream: &Stream,
    run: &dyn Fn(&Addresses) -> Result<(), Error>,
    at: &Addresses,
) -> Result<Vec<Node>, CaptureError> {
    const ATTEMPTS: usize = 4;
    for _ in 1..ATTEMPTS {
        match stream.capture(|| run(at)) {
            Err(CaptureError::Interrupted(error)) => log::debug!("a capture is made once more: {error}"),
            other => return other,
        }
    }
    stream.capture(|| run(at))
}

/// Records a call that was tried before, with these operands. As nothing runs, that takes no memory of their sizes;
/// `None` where it does, because HIP looks at what a captured call says of its memory.
pub(crate) fn again(
    builder: &Builder,
    operands: &[usize],
    run: &dyn Fn(&Addresses) -> Result<(), Error>,
) -> Option<Recording> {
    let places = builder.places.as_ref()?;
    let recorded = capture(places.gpu(), &builder.stream, run, places.sets(operands));
    let reason = match recorded {
        Ok(recording) => return Some(recording),
        Err(CaptureError::Refused(reason)) => reason,
        Err(CaptureError::Failed(error) | CaptureError::Interrupted(error)) => error.to_string(),
    };
    log::debug!("launches are not recorded at once: {reason}");
    None
}

impl Expected {
    /// Checks that the value that MIOpen wrote there is the convolution's at all.
    fn check(&self, got: f64) -> Result<(), Error> {
        let Expected { place, value, room } = self;
        let near = (got - value).abs() <= *room;
        if near {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Device, format!("expected {value} at element {place}, got {got}")))
    }
}

/// Memory on the host for an output to compare with.
fn zeros(bytes: usize) -> Result<Vec<u8>, Error> {
    if bytes > LARGEST_COMPARED {
        let text = format!("expected an output of at most {LARGEST_COMPARED} bytes to compare, got {bytes}");
        return Err(Error::alloc_failed(text));
    }
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(bytes).map_err(|_| Error::alloc_failed(format!("{bytes} bytes on the host")))?;
    zeros.resize(bytes, 0);
    Ok(zeros)
}

/// Set of places in a tensor's memory that are elements.
enum Elements {
    All,
    Some(Vec<bool>),
}

impl Elements {
    fn of(shape: &TensorShape) -> Elements {
        let span = shape.span();
        if span == shape.elements() {
            return Elements::All;
        }
        let mut places = vec![false; span];
        let mut starts = vec![0];
        for (extent, stride) in shape.dims.iter().zip(&shape.strides) {
            starts = starts.iter().flat_map(|start| (0..*extent).map(move |index| start + index * stride)).collect();
        }
        starts.into_iter().for_each(|at| places[at] = true);
        Elements::Some(places)
    }

    fn has(&self, place: usize) -> bool {
        match self {
            Elements::All => true,
            Elements::Some(places) => places[place],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_no_elements() {
        let packed = TensorShape::channels_last(DataType::Half, &[2, 3, 4, 5]);
        assert!(matches!(Elements::of(&packed), Elements::All));
        let gaps = TensorShape { data_type: DataType::Float, dims: vec![2, 1, 1, 2], strides: vec![5, 5, 5, 2] };
        let Elements::Some(places) = Elements::of(&gaps) else { panic!("there are gaps") };
        assert_eq!(places, [true, false, true, false, false, true, false, true]);
    }

    #[test]
    fn operands_have_data_of_their_own() {
        for one_in in [2, 10] {
            let kinds: Vec<Vec<i8>> = (0..OPERANDS).map(|operand| values(operand, one_in).collect()).collect();
            for (operand, data) in kinds.iter().enumerate() {
                assert!(kinds[..operand].iter().all(|other| other != data));
                let nonzero = data.iter().filter(|value| **value != 0).count();
                let wanted = PERIOD / one_in as usize;
                assert!(nonzero.abs_diff(wanted) < wanted / 4, "{operand}: expected {wanted}, got {nonzero}");
                let sum: i32 = data.iter().map(|value| i32::from(*value)).sum();
                assert!(sum.unsigned_abs() < 200, "{operand}: {sum}");
            }
        }
        assert_eq!([1, 4096, 1 << 20, 1 << 22].map(one_in), [2, 2, 32, 64]);
    }

    #[test]
    fn gross_errors_are_noticed() {
        let expected = Expected { place: 1, value: -3.0, room: 1.28 };
        for (value, good) in [(-3.0, true), (-3.9, true), (-4.5, false), (0.0, false), (f64::NAN, false)] {
            assert_eq!(expected.check(value).is_ok(), good, "{value}");
        }
    }

    #[test]
    fn outputs_too_large_to_compare_are_an_error() {
        assert_eq!(zeros(5).unwrap(), [0; 5]);
        for bytes in [LARGEST_COMPARED + 1, usize::MAX] {
            assert_eq!(zeros(bytes).unwrap_err().kind(), ErrorKind::AllocFailed);
        }
    }
}
