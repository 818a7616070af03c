//! Bench for one node by itself, for the tests of the kinds.

use std::collections::BTreeMap;

use half::{bf16, f16};
use hipdnn_cpu_simd::guarded::Guarded;
use hipdnn_cpu_simd::minifloat;
use hipdnn_cpu_simd::scratch::{AlignedBuffer, LINE};
use hipdnn_cpu_threads::Pool;
use hipdnn_schemas::{DataType, Extents, Graph, GraphBuilder, Operation, TensorDef, TensorUid, TensorValue};

use super::{LibraryKernel, LibraryOp, compiled};
use crate::applicability::lower;
use crate::work::Work;
use hipdnn_cpu_pointwise::{Code, Storage};

/// Fill of the gaps between the elements of a result.
const GAP: u8 = 0xA5;

/// Format of a type of 4 to 8 bits.
pub fn code_of(data_type: DataType) -> Option<Code> {
    match Storage::of(data_type)? {
        Storage::Code(code) => Some(code),
        _ => None,
    }
}

/// A node, its tensors, and the contents of its inputs.
pub struct Bench {
    graph: Graph,
    work: LibraryOp,
    memory: BTreeMap<i64, Vec<u64>>,
}

impl Bench {
    /// Makes a graph of that node alone, with compute type float.
    pub fn new(operation: Operation, tensors: Vec<TensorDef>) -> Bench {
        Bench::of_graph(graph(&operation, &tensors, DataType::Float))
    }

    /// Computes a graph of one node.
    pub fn of_graph(graph: Graph) -> Bench {
        let work = lower(&graph).unwrap_or_else(|reason| panic!("declined: {reason}")).remove(0);
        Bench::of(graph, work)
    }

    /// Makes a graph of that node alone, which the kernel compiler's kernels compute.
    pub fn compiled(operation: Operation, tensors: Vec<TensorDef>) -> Bench {
        let graph = graph(&operation, &tensors, DataType::Float);
        let work = compiled::lower(&graph, 0).unwrap_or_else(|reason| panic!("declined: {reason}"));
        Bench::of(graph, work)
    }

    /// Reason for which the kernel compiler's kernels do not compute the node.
    pub fn not_compiled(operation: Operation, tensors: Vec<TensorDef>) -> String {
        compiled::lower(&graph(&operation, &tensors, DataType::Float), 0)
            .map(|_| ())
            .expect_err("the node is taken")
            .to_string()
    }

    fn of(graph: Graph, work: Work) -> Bench {
        let work = match work {
            Work::Node(work) => work,
            Work::Matmul(work) => work.node(&graph),
            _ => panic!("not a step of its own"),
        };
        let mut bench = Bench { graph, work, memory: BTreeMap::new() };
        for uid in bench.work.inputs.clone().into_iter().flatten() {
            match bench.graph.tensor(uid).value() {
                None => drop(bench.fill(uid.0, |_| 0.0)),
                Some(TensorValue::Float32(v) | TensorValue::Float16(v) | TensorValue::BFloat16(v)) => {
                    bench.fill(uid.0, |_| f64::from(v));
                }
                Some(TensorValue::Float64(v)) => drop(bench.fill(uid.0, |_| v)),
                Some(other) => panic!("the tests have no {other:?}"),
            }
        }
        bench
    }

    /// Reason for which the node is declined.
    pub fn declined(operation: Operation, tensors: Vec<TensorDef>) -> String {
        lower(&graph(&operation, &tensors, DataType::Float)).map(|_| ()).expect_err("the node is taken").to_string()
    }

    /// Sets the elements of an input, in logical order; returns their values after rounding.
    pub fn fill(&mut self, uid: i64, value: impl Fn(usize) -> f64) -> Vec<f64> {
        let tensor = self.graph.tensor(TensorUid(uid));
        let mut memory = vec![0u64; tensor.span_bytes().div_ceil(8)];
        for (i, offset) in offsets(tensor.dims(), tensor.strides()).into_iter().enumerate() {
            write(tensor.data_type(), &mut memory, offset, value(i));
        }
        let values = self.values(uid, &memory);
        self.memory.insert(uid, memory);
        values
    }

    /// Scratch memory of the node for this many threads, in bytes.
    pub fn scratch_bytes(&self, threads: usize) -> usize {
        self.work.recipe.kernel(threads).scratch_bytes()
    }

    /// Runs the node on this many threads; returns the elements of its results, in logical order.
    pub fn run(&self, threads: usize) -> BTreeMap<i64, Vec<f64>> {
        self.run_kernel(&*self.work.recipe.kernel(threads), threads)
    }

    /// The same with the input prepared that kernels want so; `None` if there is none.
    pub fn run_prepared(&self, threads: usize) -> Option<BTreeMap<i64, Vec<f64>>> {
        self.work.recipe.constant()?;
        Some(self.run_kernel(&*self.work.recipe.kernel_of_constant(threads), threads))
    }

    fn run_kernel(&self, kernel: &dyn LibraryKernel, threads: usize) -> BTreeMap<i64, Vec<f64>> {
        // One run ends where its memory ends, the next begins where it begins.
        let at_end = threads == 1;
        let guarded = |bytes: usize, fill| Guarded::new(bytes, at_end, fill);
        let mut read: BTreeMap<i64, Guarded> = BTreeMap::new();
        for uid in self.work.inputs.iter().flatten() {
            let bytes = self.graph.tensor(*uid).span_bytes();
            let mut memory = guarded(bytes, 0);
            // SAFETY: a vector of integers is as many bytes, of which the tensor takes the first.
            let from = unsafe { std::slice::from_raw_parts(self.memory[&uid.0].as_ptr().cast::<u8>(), bytes) };
            memory.bytes().copy_from_slice(from);
            read.insert(uid.0, memory);
        }
        let mut written: Vec<(i64, Guarded)> = Vec::new();
        for uid in self.work.outputs.iter().flatten() {
            written.push((uid.0, guarded(self.graph.tensor(*uid).span_bytes(), GAP)));
        }
        let mut inputs: Vec<*const u8> = self
            .work
            .inputs
            .iter()
            .map(|uid| uid.map_or(std::ptr::null(), |uid| read[&uid.0].data.cast_const()))
            .collect();
        let mut addresses = written.iter().map(|(_, memory)| memory.data);
        let outputs: Vec<*mut u8> = self
            .work
            .outputs
            .iter()
            .map(|uid| uid.map_or(std::ptr::null_mut(), |_| addresses.next().unwrap()))
            .collect();
        let mut prepared = AlignedBuffer::new(kernel.preparation().map_or(0, |of| of.len));
        if let Some(of) = kernel.preparation() {
            prepared.fill(f32::NAN);
            // SAFETY: the input's memory has its span, and the values are as many as the kernel says.
            unsafe { kernel.prepare(inputs[of.input], &mut prepared, &Pool::new(threads)) };
            inputs[of.input] = prepared.as_ptr().cast();
        }
        // Filled with what is no number in any type.
        let scratch = guarded(kernel.scratch_bytes().next_multiple_of(LINE), 0xFF);
        // SAFETY: every tensor's memory has its span, and the scratch memory what the kernel asks for.
        unsafe { kernel.run(&Pool::new(threads), &inputs, &outputs, scratch.data) };
        let results = written.into_iter().map(|(uid, mut memory)| {
            let mut words = vec![u64::from_ne_bytes([GAP; 8]); memory.bytes().len().div_ceil(8)];
            // SAFETY: a vector of integers is as many bytes.
            let to = unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), memory.bytes().len()) };
            memory.bytes().swap_with_slice(to);
            (uid, words)
        });
        results
            .map(|(uid, mut memory)| {
                let values = self.values(uid, &memory);
                let tensor = self.graph.tensor(TensorUid(uid));
                let gap = u64::from_ne_bytes([GAP; 8]);
                let bits = tensor.data_type().bits().unwrap() as usize;
                let bytes: &mut [u8] =
                    // SAFETY: a vector of integers is as many bytes.
                    unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), memory.len() * 8) };
                for offset in offsets(tensor.dims(), tensor.strides()) {
                    let (first, last) = (offset * bits, (offset + 1) * bits);
                    for bit in first..last {
                        let mask = 1 << (bit % 8);
                        bytes[bit / 8] = bytes[bit / 8] & !mask | GAP & mask;
                    }
                }
                assert!(
                    memory.iter().all(|word| *word == gap),
                    "tensor {uid}: something between its elements was written"
                );
                (uid, values)
            })
            .collect()
    }

    fn values(&self, uid: i64, memory: &[u64]) -> Vec<f64> {
        let tensor = self.graph.tensor(TensorUid(uid));
        let offsets = offsets(tensor.dims(), tensor.strides());
        offsets.into_iter().map(|offset| read(tensor.data_type(), memory, offset)).collect()
    }
}

/// Graph of that node alone, with those of the tensors that it has.
pub fn graph(operation: &Operation, tensors: &[TensorDef], compute: DataType) -> Graph {
    let mut builder = GraphBuilder::new("").compute(compute);
    let mut used = operation.inputs();
    used.extend(operation.outputs());
    for tensor in tensors.iter().filter(|tensor| used.contains(&tensor.uid)) {
        builder.tensor(tensor.clone());
    }
    builder.node("", operation.clone());
    builder.build().unwrap()
}

/// Offset of every element, in logical order.
fn offsets(dims: &[usize], strides: &[usize]) -> Vec<usize> {
    (0..dims.iter().product())
        .map(|mut n| {
            let mut offset = 0;
            for (extent, stride) in dims.iter().zip(strides).rev() {
                offset += n % extent * stride;
                n /= extent;
            }
            offset
        })
        .collect()
}

/// # Panics
/// If the element is not within the memory.
fn place<T: Copy>(memory: &[u64], offset: usize) -> *const T {
    assert!((offset + 1) * size_of::<T>() <= memory.len() * 8);
    memory.as_ptr().cast::<T>().wrapping_add(offset)
}

fn read(data_type: DataType, memory: &[u64], offset: usize) -> f64 {
    // SAFETY: `place` has seen that the element is there; codes lie within the span, which the memory has.
    unsafe {
        match data_type {
            DataType::Float => f64::from(place::<f32>(memory, offset).read()),
            DataType::Half => place::<f16>(memory, offset).read().to_f64(),
            DataType::BFloat16 => place::<bf16>(memory, offset).read().to_f64(),
            DataType::Double => place::<f64>(memory, offset).read(),
            DataType::Int32 => f64::from(place::<i32>(memory, offset).read()),
            DataType::Int64 => place::<i64>(memory, offset).read() as f64,
            DataType::Int8 => f64::from(place::<i8>(memory, offset).read()),
            DataType::UInt8 => f64::from(place::<u8>(memory, offset).read()),
            other => {
                let code = code_of(other).unwrap_or_else(|| panic!("the tests have no {other}"));
                f64::from(code.decode(minifloat::read(memory.as_ptr().cast(), offset, code.bits())))
            }
        }
    }
}

fn write(data_type: DataType, memory: &mut [u64], offset: usize, value: f64) {
    // SAFETY: `place` has seen that the element is there, and the memory is borrowed for writing; codes lie within the
    // span.
    unsafe {
        match data_type {
            DataType::Float => place::<f32>(memory, offset).cast_mut().write(value as f32),
            DataType::Half => place::<f16>(memory, offset).cast_mut().write(f16::from_f64(value)),
            DataType::BFloat16 => place::<bf16>(memory, offset).cast_mut().write(bf16::from_f64(value)),
            DataType::Double => place::<f64>(memory, offset).cast_mut().write(value),
            DataType::Int32 => place::<i32>(memory, offset).cast_mut().write(value as i32),
            DataType::Int64 => place::<i64>(memory, offset).cast_mut().write(value as i64),
            DataType::Int8 => place::<i8>(memory, offset).cast_mut().write(value as i8),
            DataType::UInt8 => place::<u8>(memory, offset).cast_mut().write(value as u8),
            other => {
                let code = code_of(other).unwrap_or_else(|| panic!("the tests have no {other}"));
                let value = match other {
                    DataType::Fp8E8M0 => code.encode_up(value),
                    _ => code.encode(value as f32),
                };
                minifloat::write(memory.as_mut_ptr().cast(), offset, code.bits(), value);
            }
        }
    }
}

/// Numbers between -1 and 1 without a pattern.
pub fn noise(i: usize) -> f64 {
    let mut state = (i as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    state = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// Strides of a packed tensor.
pub fn packed(dims: &[i64]) -> Extents {
    hipdnn_schemas::packed_strides(dims)
}

/// Half the distance of neighboring numbers around 1, and half the smallest number.
pub fn unit(data_type: DataType) -> (f64, f64) {
    match data_type {
        DataType::Half => (2f64.powi(-11), 2f64.powi(-25)),
        DataType::BFloat16 => (2f64.powi(-8), 2f64.powi(-134)),
        _ => (2f64.powi(-24), 2f64.powi(-150)),
    }
}
