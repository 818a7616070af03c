//! MLIR's notation: types, attributes, literals, and lines.

use std::fmt::{Display, Write};

use half::{bf16, f16};
use hipdnn_schemas::{DataType, TensorValue};

/// Lines of text, and numbers for the values that they define.
#[derive(Default)]
pub(super) struct Text {
    text: String,
    next: usize,
}

impl Text {
    /// Appends a line that is indented by that many levels.
    pub(super) fn line(&mut self, level: usize, line: impl Display) {
        writeln!(self.text, "{:width$}{line}", "", width = 2 * level).expect("a string takes any text");
    }

    /// A name that no other value has.
    pub(super) fn fresh(&mut self) -> String {
        self.next += 1;
        format!("%{}", self.next - 1)
    }

    /// Appends the lines of another text.
    pub(super) fn append(&mut self, other: Text) {
        self.text.push_str(&other.text);
    }

    /// Ends the function and its module: `outputs` are returned, of the types that `results` lists.
    pub(super) fn finish_module(mut self, outputs: impl IntoIterator<Item = impl Display>, results: &str) -> String {
        let outputs = joined(outputs, ", ");
        if outputs.is_empty() {
            self.line(2, "return");
        } else {
            self.line(2, format_args!("return {outputs} : {results}"));
        }
        self.line(1, "}");
        self.line(0, "}");
        self.finish()
    }

    /// All lines.
    pub(super) fn finish(self) -> String {
        self.text
    }
}

/// Element type in the torch dialect, where integers have a sign.
pub(super) fn torch_element(data_type: DataType) -> &'static str {
    match data_type {
        DataType::Int64 => "si64",
        DataType::Int32 => "si32",
        DataType::Int8 => "si8",
        other => element(other),
    }
}

/// Element type of builtin tensors and memory.
pub(super) fn element(data_type: DataType) -> &'static str {
    match data_type {
        DataType::Float => "f32",
        DataType::Half => "f16",
        DataType::BFloat16 => "bf16",
        DataType::Double => "f64",
        DataType::Int64 => "i64",
        DataType::Int32 => "i32",
        DataType::Int8 => "i8",
        DataType::Int4 => "i4",
        DataType::UInt8 => "ui8",
        DataType::Boolean => "i1",
        DataType::Fp8E4M3 => "f8E4M3FN",
        DataType::Fp8E5M2 => "f8E5M2",
        DataType::Fp8E4M3Fnuz => "f8E4M3FNUZ",
        DataType::Fp8E5M2Fnuz => "f8E5M2FNUZ",
        DataType::Fp8E8M0 => "f8E8M0FNU",
        DataType::Fp6E2M3 => "f6E2M3FN",
        DataType::Fp6E3M2 => "f6E3M2FN",
        DataType::Fp4E2M1 => "f4E2M1FN",
        DataType::Unset => "none",
    }
}

/// `!torch.vtensor<[1,3],f32>`
pub(super) fn vtensor(data_type: DataType, dims: &[i64]) -> String {
    format!("!torch.vtensor<[{}],{}>", joined(dims, ","), torch_element(data_type))
}

/// `tensor<1x3xf32>`
pub(super) fn tensor(data_type: DataType, dims: &[i64]) -> String {
    format!("tensor<{}{}>", extents(dims), element(data_type))
}

/// `tensor<1x3xsi64>`, as the torch dialect's literals have it.
pub(super) fn torch_tensor(data_type: DataType, dims: &[i64]) -> String {
    format!("tensor<{}{}>", extents(dims), torch_element(data_type))
}

/// `memref<1x3xf32>`: elements in row-major order.
pub(super) fn memref(data_type: DataType, dims: &[i64]) -> String {
    format!("memref<{}{}>", extents(dims), element(data_type))
}

/// `memref<1x3xf32, strided<[3, 1], offset: 0>>`
pub(super) fn strided_memref(data_type: DataType, dims: &[i64], strides: &[i64], offset: impl Display) -> String {
    let strides = joined(strides, ", ");
    format!("memref<{}{}, strided<[{strides}], offset: {offset}>>", extents(dims), element(data_type))
}

fn extents(dims: &[i64]) -> String {
    dims.iter().map(|dim| format!("{dim}x")).collect()
}

/// Items with a separator between them.
pub(super) fn joined(items: impl IntoIterator<Item = impl Display>, separator: &str) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(separator)
}

/// `array<i64: 1, 2>`
pub(super) fn integers(values: &[i64]) -> String {
    if values.is_empty() { "array<i64>".to_string() } else { format!("array<i64: {}>", joined(values, ", ")) }
}

/// A text in quotes.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'"' && byte != b'\\' => quoted.push(char::from(byte)),
            _ => write!(quoted, "\\{byte:02X}").expect("a string takes any text"),
        }
    }
    quoted.push('"');
    quoted
}

/// Texts in quotes, as an array.
pub(super) fn strings(texts: &[&str]) -> String {
    format!("[{}]", joined(texts.iter().map(|text| quoted(text)), ", "))
}

/// ` loc("…")` for the node that something is for; nothing without a name.
pub(super) fn location(label: &str) -> String {
    if label.is_empty() { String::new() } else { format!(" loc({})", quoted(label)) }
}

/// `{a = 1 : i64, b}` with a space before it; nothing without attributes.
pub(super) fn dictionary(attributes: &[(String, String)]) -> String {
    if attributes.is_empty() {
        return String::new();
    }
    let entry = |(key, value): &(String, String)| {
        if value.is_empty() { key.clone() } else { format!("{key} = {value}") }
    };
    format!(" {{{}}}", joined(attributes.iter().map(entry), ", "))
}

/// Digits of a float, which have a point; the bits where there are none.
fn digits(digits: String, finite: bool, bits: u64, width: usize) -> String {
    if !finite {
        return format!("0x{bits:0width$X}");
    }
    let (mantissa, exponent) = digits.split_once('e').map_or((digits.as_str(), None), |(m, e)| (m, Some(e)));
    let point = if mantissa.contains('.') { "" } else { ".0" };
    format!("{mantissa}{point}{}", exponent.map_or(String::new(), |exponent| format!("e{exponent}")))
}

/// A literal of 32 bits.
pub(super) fn float(value: f32) -> String {
    digits(format!("{value:?}"), value.is_finite(), value.to_bits().into(), 8)
}

/// A literal of 64 bits.
pub(super) fn double(value: f64) -> String {
    digits(format!("{value:?}"), value.is_finite(), value.to_bits(), 16)
}

/// `dense<1.0>` for a scalar fixed in a graph.
pub(super) fn scalar(value: TensorValue) -> String {
    let literal = match value {
        TensorValue::Float32(value) => float(value),
        TensorValue::Float16(value) => half(f16::from_f32(value)),
        TensorValue::BFloat16(value) => brain(bf16::from_f32(value)),
        TensorValue::Float64(value) => double(value),
        TensorValue::Float8(bits) => format!("0x{bits:02X}"),
        TensorValue::Int32(value) => value.to_string(),
        TensorValue::Int64(value) => value.to_string(),
        TensorValue::Bool(value) => value.to_string(),
    };
    format!("dense<{literal}>")
}

fn half(value: f16) -> String {
    if value.is_finite() { float(value.to_f32()) } else { format!("0x{:04X}", value.to_bits()) }
}

fn brain(value: bf16) -> String {
    if value.is_finite() { float(value.to_f32()) } else { format!("0x{:04X}", value.to_bits()) }
}

/// Most bytes of a constant whose content is written.
const MOST_BYTES: usize = 256;

/// `dense<…>` of elements in row-major order and the host's byte order; large ones are named by `resource`, without their
/// content, which is no text.
pub(super) fn dense(data_type: DataType, dims: &[i64], bytes: &[u8], resource: &str) -> String {
    if dims.contains(&0) {
        return "dense<>".to_string();
    }
    let size = crate::ir::element_bytes(data_type);
    let mut elements = bytes.chunks_exact(size);
    let splat = elements.next().filter(|first| elements.all(|other| other == *first));
    if let Some(first) = splat
        && let Some(literal) = literal(data_type, first)
    {
        return format!("dense<{literal}>");
    }
    let literals: Option<Vec<String>> = bytes.chunks_exact(size).map(|bytes| literal(data_type, bytes)).collect();
    match literals {
        Some(literals) if bytes.len() <= MOST_BYTES => format!("dense<{}>", nested(dims, &literals)),
        _ => format!("dense_resource<{resource}>"),
    }
}

/// An element of a constant; `None` for types that constants do not have.
fn literal(data_type: DataType, bytes: &[u8]) -> Option<String> {
    Some(match data_type {
        DataType::Float => float(f32::from_ne_bytes(bytes.try_into().ok()?)),
        DataType::Double => double(f64::from_ne_bytes(bytes.try_into().ok()?)),
        DataType::Half => half(f16::from_ne_bytes(bytes.try_into().ok()?)),
        DataType::BFloat16 => brain(bf16::from_ne_bytes(bytes.try_into().ok()?)),
        DataType::Int64 => i64::from_ne_bytes(bytes.try_into().ok()?).to_string(),
        DataType::Int32 => i32::from_ne_bytes(bytes.try_into().ok()?).to_string(),
        DataType::Int8 => i8::from_ne_bytes(bytes.try_into().ok()?).to_string(),
        DataType::UInt8 => u8::from_ne_bytes(bytes.try_into().ok()?).to_string(),
        DataType::Boolean => (bytes != [0]).to_string(),
        _ => return None,
    })
}

fn nested(dims: &[i64], literals: &[String]) -> String {
    match dims.split_first() {
        None => literals.concat(),
        Some((first, rest)) => {
            let each = literals.len() / usize::try_from(*first).unwrap_or(1).max(1);
            format!("[{}]", joined(literals.chunks(each.max(1)).map(|part| nested(rest, part)), ", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals() {
        for (value, want) in [
            (1.0, "1.0"),
            (-0.5, "-0.5"),
            (1e-7, "1.0e-7"),
            (1.5e20, "1.5e20"),
            (f32::INFINITY, "0x7F800000"),
            (f32::NEG_INFINITY, "0xFF800000"),
        ] {
            assert_eq!(float(value), want);
        }
        assert_eq!(double(f64::NEG_INFINITY), "0xFFF0000000000000");
        assert_eq!(quoted("a\"b\\\n\u{e9}"), "\"a\\22b\\5C\\0A\\C3\\A9\"");
    }

    #[test]
    fn constants() {
        let floats: Vec<u8> = [1f32, 2., 3., 4.].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let ints: Vec<u8> = [-1i64, 7].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let many: Vec<u8> = (0..100i32).flat_map(i32::to_ne_bytes).collect();
        for (data_type, dims, bytes, want) in [
            (DataType::Float, &[2, 2][..], &floats[..], "dense<[[1.0, 2.0], [3.0, 4.0]]>"),
            (DataType::Float, &[], &floats[..4], "dense<1.0>"),
            (DataType::Int64, &[2], &ints, "dense<[-1, 7]>"),
            (DataType::Int64, &[1, 1], &ints[..8], "dense<-1>"),
            (DataType::Boolean, &[3], &[0, 1, 1], "dense<[false, true, true]>"),
            (DataType::Half, &[2], &[0, 0x3C, 0, 0x7C], "dense<[1.0, 0x7C00]>"),
            (DataType::Int32, &[100], &many, "dense_resource<c>"),
            (DataType::Int32, &[100], &[0; 400], "dense<0>"),
            (DataType::Float, &[3, 0], &[], "dense<>"),
        ] {
            assert_eq!(dense(data_type, dims, bytes, "c"), want);
        }
    }

    #[test]
    fn types() {
        assert_eq!(vtensor(DataType::Int64, &[2, 0]), "!torch.vtensor<[2,0],si64>");
        assert_eq!(vtensor(DataType::Half, &[]), "!torch.vtensor<[],f16>");
        assert_eq!(tensor(DataType::Int64, &[2, 3]), "tensor<2x3xi64>");
        assert_eq!(tensor(DataType::Float, &[]), "tensor<f32>");
        assert_eq!(
            strided_memref(DataType::Boolean, &[2, 3], &[0, 1], "?"),
            "memref<2x3xi1, strided<[0, 1], offset: ?>>"
        );
    }
}
