//! NumPy's file format for arrays (version 1 to 3 read, 1 written).

use hipdnn_conformance::array::each_index;
use hipdnn_conformance::format;
use hipdnn_schemas::{DataType, Tensor};

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
    let (source, swapped) = source(value_of(header, "descr")?)?;
    let fortran = match value_of(header, "fortran_order")? {
        "True" => true,
        "False" => false,
        other => return Err(format!("fortran_order is {other:?}, wanted True or False")),
    };
    let shape = shape(value_of(header, "shape")?)?;
    let dims = tensor.dims();
    if shape != dims && !(tensor.elements() == 1 && shape.iter().product::<usize>() == 1) {
        return Err(format!("the array has shape {shape:?}, wanted {dims:?}"));
    }
    let width = source.width();
    if data.len() != tensor.elements() * width {
        return Err(format!("the array has {} bytes of data, wanted {}", data.len(), tensor.elements() * width));
    }
    let mut memory = vec![0; tensor.span_bytes()];
    // Steps through the data, in elements.
    let mut steps = vec![1; dims.len()];
    let order: Vec<usize> = if fortran { (0..dims.len()).collect() } else { (0..dims.len()).rev().collect() };
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
fn source(descr: &str) -> Result<(Source, bool), String> {
    let unknown = || format!("the array's elements are {descr:?}, wanted a float, an integer or bool of NumPy");
    let text = descr.trim_matches(['\'', '"']);
    let (order, kind) = text.split_at_checked(1).ok_or_else(unknown)?;
    let swapped = match order {
        "<" | "|" | "=" => false,
        ">" => true,
        _ => return Err(unknown()),
    };
    let source = match kind {
        "f8" => Source::Type(DataType::Double),
        "f4" => Source::Type(DataType::Float),
        "f2" => Source::Type(DataType::Half),
        "i8" => Source::Type(DataType::Int64),
        "i4" => Source::Type(DataType::Int32),
        "i2" => Source::Integer(2, true),
        "i1" => Source::Type(DataType::Int8),
        "u8" => Source::Integer(8, false),
        "u4" => Source::Integer(4, false),
        "u2" => Source::Integer(2, false),
        "u1" => Source::Type(DataType::UInt8),
        "b1" => Source::Type(DataType::Boolean),
        _ => return Err(unknown()),
    };
    Ok((source, swapped))
}

/// The header's text and the data.
fn split(bytes: &[u8]) -> Result<(&str, &[u8]), String> {
    let short = "the file ends within its header";
    let rest = bytes.strip_prefix(MAGIC).ok_or("it is no .npy file: it does not begin with \\x93NUMPY")?;
    let (version, rest) = rest.split_at_checked(2).ok_or(short)?;
    let width = match version[0] {
        1 => 2,
        2 | 3 => 4,
        other => return Err(format!("it is an .npy file of version {other}, wanted 1 to 3")),
    };
    let (length, rest) = rest.split_at_checked(width).ok_or(short)?;
    let length = length.iter().rev().fold(0usize, |length, byte| length << 8 | usize::from(*byte));
    let (header, data) = rest.split_at_checked(length).ok_or(short)?;
    Ok((std::str::from_utf8(header).map_err(|_| "its header is no text")?, data))
}

/// The value of a key in the header, which is a dictionary as Python writes it.
fn value_of<'a>(header: &'a str, key: &str) -> Result<&'a str, String> {
    let missing = || format!("its header has no {key}");
    let at = [format!("'{key}'"), format!("\"{key}\"")]
        .iter()
        .find_map(|quoted| header.find(quoted.as_str()).map(|at| at + quoted.len()));
    let rest = header[at.ok_or_else(missing)?..].trim_start().strip_prefix(':').ok_or_else(missing)?.trim_start();
    let end = match rest.strip_prefix('(') {
        Some(list) => list.find(')').map(|end| end + 2),
        None => rest.find([',', '}']),
    };
    Ok(rest[..end.ok_or_else(missing)?].trim())
}

fn shape(text: &str) -> Result<Vec<usize>, String> {
    let inside = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    let extents = inside.unwrap_or_default().split(',').map(str::trim).filter(|extent| !extent.is_empty());
    let shape: Option<Vec<usize>> = extents.map(|extent| extent.parse().ok()).collect();
    // The product is taken of small shapes only if it can't overflow.
    let fits = |shape: &Vec<usize>| shape.iter().try_fold(1usize, |all, extent| all.checked_mul(*extent)).is_some();
    shape.filter(|shape| inside.is_some() && fits(shape)).ok_or_else(|| format!("the array's shape is {text:?}"))
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
            (b"hello".to_vec(), "does not begin with"),
            (b"\x93NUMPY\x01\x00\xff\xff{".to_vec(), "ends within its header"),
            (b"\x93NUMPY\x09\x00\x00\x00".to_vec(), "of version 9"),
            (file("{}", &[]), "has no descr"),
            (file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 2), }", &[]), "wanted a float"),
            (file("{'descr': '<c8', 'fortran_order': False, 'shape': (2, 2), }", &[]), "\"'<c8'\", wanted a float"),
            (file("{'descr': '<f4', 'fortran_order': 1, 'shape': (2, 2), }", &[]), "wanted True or False"),
            (file("{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }", &[]), "shape [4], wanted [2, 2]"),
            (file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, x), }", &[]), "shape is \"(2, x)\""),
            (
                file("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", &[]),
                "shape is \"(4294967296, 4294967296)\"",
            ),
            (
                file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", &[0; 15]),
                "15 bytes of data, wanted 16",
            ),
        ] {
            let problem = decode(tensor, &bytes).unwrap_err();
            assert!(problem.contains(want), "{problem}");
        }
    }
}
