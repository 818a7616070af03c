//! NumPy's file format for arrays (version 1 to 3 read, 1 written).

use hipdnn_conformance::array::each_index;
use hipdnn_conformance::format;
use hipdnn_schemas::{DataType, Tensor};
use npyz::{DType, Endianness, NpyHeader, Order, TypeChar};

const MAGIC: &[u8] = b"\x93NUMPY";

/// The array of a tensor in memory. Types that NumPy lacks are widened: to float32, int4 to int8.
pub(crate) fn encode(tensor: &Tensor, memory: &[u8]) -> Vec<u8> {
    let (stored, descr) = element(tensor.data_type());
    let shape: Vec<String> = tensor.dims().iter().map(|extent| format!("{extent},")).collect();
    let dictionary = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}", shape.join(" "));
    // The data begin at a multiple of 64 bytes; the last byte before them is a line break.
    let unpadded = MAGIC.len() + 4 + dictionary.len() + 1;
    let padding = unpadded.next_multiple_of(64) - unpadded;
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend(u16::try_from(dictionary.len() + padding + 1).expect("ranks are small").to_le_bytes());
    bytes.extend(dictionary.as_bytes());
    bytes.extend(std::iter::repeat_n(b' ', padding));
    bytes.push(b'\n');
    let start = bytes.len();
    let width = bits(stored) / 8;
    bytes.resize(start + tensor.elements() * width, 0);
    let data = &mut bytes[start..];
    let mut position = 0;
    each_index(tensor.dims(), |at| {
        let place = at.iter().zip(tensor.strides()).map(|(i, stride)| i * stride).sum();
        if stored == tensor.data_type() {
            data[position * width..][..width].copy_from_slice(&memory[place * width..][..width]);
        } else {
            format::store(stored, data, position, format::load(tensor.data_type(), memory, place));
        }
        position += 1;
    });
    bytes
}

/// The memory of a tensor with the elements of an array, rounded to the tensor's type where that is another.
///
/// # Errors
/// If the bytes are no such file, or the array has another shape.
pub(crate) fn decode(tensor: &Tensor, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let (header, data) = split(bytes)?;
    let (source, swapped) = source(&header.dtype())?;
    let (dims, shape) = (tensor.dims(), header.shape());
    let scalar = tensor.elements() == 1 && shape.iter().all(|extent| *extent == 1);
    if !scalar && !shape.iter().copied().eq(dims.iter().map(|extent| *extent as u64)) {
        return Err(format!("expected an array of shape {dims:?}, got {shape:?}"));
    }
    let width = source.width();
    if data.len() != tensor.elements() * width {
        return Err(format!("expected {} bytes of data, got {}", tensor.elements() * width, data.len()));
    }
    let mut memory = vec![0; tensor.span_bytes()];
    // Steps through the data, in elements.
    let mut steps = vec![1; dims.len()];
    let order: Vec<usize> = match header.order() {
        Order::Fortran => (0..dims.len()).collect(),
        Order::C => (0..dims.len()).rev().collect(),
    };
    order.windows(2).for_each(|pair| steps[pair[1]] = steps[pair[0]] * dims[pair[0]]);
    each_index(dims, |at| {
        let sum = |strides: &[usize]| at.iter().zip(strides).map(|(i, stride)| i * stride).sum::<usize>();
        let (from, to) = (sum(&steps), sum(tensor.strides()));
        let mut element = [0; 8];
        element[..width].copy_from_slice(&data[from * width..][..width]);
        if swapped {
            element[..width].reverse();
        }
        match source {
            Source::Type(same) if same == tensor.data_type() && bits(same) >= 8 => {
                memory[to * width..][..width].copy_from_slice(&element[..width]);
            }
            _ => format::store(tensor.data_type(), &mut memory, to, source.value(element)),
        }
    });
    Ok(memory)
}

fn bits(data_type: DataType) -> usize {
    data_type.bits().expect("a checked tensor has a type") as usize
}

/// The type that stands for a tensor's in an array, with NumPy's name for it.
fn element(data_type: DataType) -> (DataType, &'static str) {
    match data_type {
        DataType::Double => (DataType::Double, "<f8"),
        DataType::Half => (DataType::Half, "<f2"),
        DataType::Int64 => (DataType::Int64, "<i8"),
        DataType::Int32 => (DataType::Int32, "<i4"),
        DataType::Int8 | DataType::Int4 => (DataType::Int8, "|i1"),
        DataType::UInt8 => (DataType::UInt8, "|u1"),
        DataType::Boolean => (DataType::Boolean, "|b1"),
        _ => (DataType::Float, "<f4"),
    }
}

/// An element type of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Source {
    /// One that tensors have too.
    Type(DataType),
    /// Another integer type: its size in bytes, and true if it has a sign.
    Integer(usize, bool),
}

impl Source {
    fn width(self) -> usize {
        match self {
            Source::Type(data_type) => bits(data_type) / 8,
            Source::Integer(width, _) => width,
        }
    }

    /// The value of an element, its bytes in the machine's order, zeros behind.
    fn value(self, element: [u8; 8]) -> f64 {
        match self {
            Source::Type(data_type) => format::load(data_type, &element, 0),
            Source::Integer(_, false) => u64::from_le_bytes(element) as f64,
            Source::Integer(width, true) => {
                let unused = 64 - 8 * width as u32;
                ((u64::from_le_bytes(element) << unused).cast_signed() >> unused) as f64
            }
        }
    }
}

/// The element type, and true if its bytes are in the other order.
fn source(dtype: &DType) -> Result<(Source, bool), String> {
    let unknown = || format!("expected elements that are a float, an integer or bool of NumPy, got {}", dtype.descr());
    let DType::Plain(kind) = dtype else { return Err(unknown()) };
    let source = match (kind.type_char(), kind.size_field()) {
        (TypeChar::Float, 8) => Source::Type(DataType::Double),
        (TypeChar::Float, 4) => Source::Type(DataType::Float),
        (TypeChar::Float, 2) => Source::Type(DataType::Half),
        (TypeChar::Int, 8) => Source::Type(DataType::Int64),
        (TypeChar::Int, 4) => Source::Type(DataType::Int32),
        (TypeChar::Int, 2) => Source::Integer(2, true),
        (TypeChar::Int, 1) => Source::Type(DataType::Int8),
        (TypeChar::Uint, size @ (8 | 4 | 2)) => Source::Integer(size as usize, false),
        (TypeChar::Uint, 1) => Source::Type(DataType::UInt8),
        (TypeChar::Bool, 1) => Source::Type(DataType::Boolean),
        _ => return Err(unknown()),
    };
    Ok((source, kind.endianness() == Endianness::Big))
}

/// The header and the data behind it.
fn split(bytes: &[u8]) -> Result<(NpyHeader, &[u8]), String> {
    let invalid =
        |problem: &dyn std::fmt::Display| format!("expected an .npy file of numbers, got one whose {problem}");
    let width = if bytes.get(MAGIC.len()) == Some(&1) { 2 } else { 4 };
    let start = MAGIC.len() + 2 + width;
    let length = bytes.iter().take(start).rev().take(width).fold(0, |length, byte| length << 8 | usize::from(*byte));
    if bytes.starts_with(MAGIC) {
        let text = bytes.get(start..start + length).ok_or_else(|| invalid(&"header is cut off"))?;
        // The library's time doubles with each level of an expression.
        if text.iter().filter(|byte| b"{[(".contains(byte)).count() > 2 {
            return Err(invalid(&"header has more than a dictionary with a tuple"));
        }
    }
    let header = NpyHeader::from_reader(bytes).map_err(|problem| invalid(&format!("header is bad: {problem}")))?;
    Ok((header, &bytes[start + length..]))
}

#[cfg(test)]
mod tests {
    use hipdnn_schemas::{Graph, GraphBuilder, Pointwise, PointwiseMode, TensorDef, TensorUid};

    use super::*;

    fn graph(data_type: DataType, dims: &[i64], strides: &[i64]) -> Graph {
        let mut builder = GraphBuilder::new("").compute(DataType::Float);
        let x = builder.tensor(TensorDef::new(1, data_type, dims).strided(strides));
        let y = builder.tensor(TensorDef::new(2, data_type, dims));
        builder.pointwise(Pointwise::unary(PointwiseMode::Identity, x, y));
        builder.build().expect("a graph")
    }

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn tensors_come_back() {
        for data_type in DataType::ALL.iter().copied().filter(|data_type| *data_type != DataType::Unset) {
            let graph = graph(data_type, &[2, 3], &[1, 2]);
            let tensor = graph.tensor(TensorUid(1));
            let mut memory = vec![0; tensor.span_bytes()];
            (0..6).for_each(|at| format::store(data_type, &mut memory, at, [0.0, 1.0, 2.0, 4.0, 1.0, 0.5][at]));
            let bytes = encode(tensor, &memory);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            assert!(text.contains("'fortran_order': False, 'shape': (2, 3,)"), "{text}");
            let data = bytes.len() - 6 * bits(element(data_type).0) / 8;
            assert_eq!(data % 64, 0, "{data_type}");
            assert_eq!(decode(tensor, &bytes), Ok(memory), "{data_type}");
        }
    }

    #[test]
    fn arrays_of_other_types_and_orders() {
        let graph = graph(DataType::Float, &[2, 2], &[2, 1]);
        let tensor = graph.tensor(TensorUid(1));
        let floats =
            |bytes: &[u8]| bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        for (header, data, want) in [
            ("{'descr': '|i1', 'fortran_order': False, 'shape': (2, 2), }", &[1, 2, 3, 255][..], [1.0, 2.0, 3.0, -1.0]),
            ("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 2)}", &[1, 2, 3, 255], [1.0, 3.0, 2.0, 255.0]),
            (
                "{\"shape\": (2,2,), \"descr\":\">i2\",\"fortran_order\":False}",
                &[1, 0, 255, 255, 0, 3, 0, 4],
                [256.0, -1.0, 3.0, 4.0],
            ),
            (
                "{'descr': '<u2', 'fortran_order': False, 'shape': (2, 2), }",
                &[1, 0, 255, 255, 0, 0, 4, 0],
                [1.0, 65535.0, 0.0, 4.0],
            ),
        ] {
            let memory = decode(tensor, &file(header, data)).expect("an array");
            let values: Vec<f32> = floats(&memory);
            assert_eq!(values, want, "{header}");
        }
    }

    #[test]
    fn bad_files() {
        let graph = graph(DataType::Float, &[2, 2], &[2, 1]);
        let tensor = graph.tensor(TensorUid(1));
        for (bytes, want) in [
            (b"hello".to_vec(), "magic not found"),
            (b"\x93NUMPY\x01\x00\xff\xff{".to_vec(), "header is cut off"),
            (b"\x93NUMPY\x09\x00\x00\x00\x00\x00".to_vec(), "version"),
            (file("{}", &[]), "missing key '"),
            (
                file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 2), }", &[]),
                "more than a dictionary",
            ),
            (file("{'descr': '<c8', 'fortran_order': False, 'shape': (2, 2), }", &[]), "got '<c8'"),
            (
                file("{'descr': '<f4', 'fortran_order': 1, 'shape': (2, 2), }", &[]),
                "'fortran_order' value is not a bool",
            ),
            (file("{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }", &[]), "shape [2, 2], got [4]"),
            (file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, x), }", &[]), "could not parse"),
            (
                file("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", &[]),
                "got [4294967296, 4294967296]",
            ),
            (
                file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", &[0; 15]),
                "expected 16 bytes of data, got 15",
            ),
            (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{".to_vec(), "header is cut off"),
            (b"\x93NUMPY\x01".to_vec(), "header is cut off"),
            (b"\x93NUMPY\x01\x00\x01".to_vec(), "header is cut off"),
            (file(&"[".repeat(5000), &[]), "more than a dictionary with a tuple"),
        ] {
            let problem = decode(tensor, &bytes).unwrap_err();
            assert!(problem.contains(want), "{problem}");
        }
    }
}
