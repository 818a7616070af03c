//! Constant folding: shapes, axes, bounds, and values computed of them, known when a program is built.

use half::{bf16, f16};
use hipdnn_schemas::DataType;
use hipdnn_sdk_bindings::ort::ElementType;

/// Most elements of a value that is folded.
pub const MOST_ELEMENTS: usize = 4096;

/// A tensor whose content is known. Numbers are kept in a type that holds all of `data_type`.
#[derive(Clone, Debug, PartialEq)]
pub struct Folded {
    /// Element type.
    pub data_type: DataType,
    /// Extents.
    pub dims: Vec<i64>,
    numbers: Numbers,
}

#[derive(Clone, Debug, PartialEq)]
enum Numbers {
    Ints(Vec<i64>),
    Floats(Vec<f64>),
}

fn is_whole(data_type: DataType) -> bool {
    use DataType::*;
    matches!(data_type, Int64 | Int32 | Int8 | UInt8 | Boolean)
}

impl Folded {
    /// Integers of a type of whole numbers.
    pub fn whole(data_type: DataType, dims: Vec<i64>, values: Vec<i64>) -> Folded {
        debug_assert_eq!(dims.iter().product::<i64>(), values.len() as i64);
        Folded { data_type, dims, numbers: Numbers::Ints(values) }
    }

    /// Numbers of a floating-point type.
    pub fn real(data_type: DataType, dims: Vec<i64>, values: Vec<f64>) -> Folded {
        debug_assert_eq!(dims.iter().product::<i64>(), values.len() as i64);
        Folded { data_type, dims, numbers: Numbers::Floats(values) }
    }

    /// The content of a constant in the host's byte order; `None` for types that are not folded.
    pub fn of_bytes(element: ElementType, dims: &[i64], bytes: &[u8]) -> Option<Folded> {
        let data_type = super::data_type(element).ok()?;
        let count = usize::try_from(dims.iter().product::<i64>()).ok()?;
        if count > MOST_ELEMENTS || bytes.len() < count * crate::ir::element_bytes(data_type) {
            return None;
        }
        macro_rules! read {
            ($kind:ty, $convert:expr) => {{
                let chunks = bytes.chunks_exact(size_of::<$kind>()).take(count);
                chunks
                    .map(|chunk| $convert(<$kind>::from_ne_bytes(chunk.try_into().expect("whole elements"))))
                    .collect()
            }};
        }
        let numbers = match data_type {
            DataType::Int64 => Numbers::Ints(read!(i64, |v| v)),
            DataType::Int32 => Numbers::Ints(read!(i32, i64::from)),
            DataType::Int8 => Numbers::Ints(read!(i8, i64::from)),
            DataType::UInt8 => Numbers::Ints(read!(u8, i64::from)),
            DataType::Boolean => Numbers::Ints(read!(u8, |v| i64::from(v != 0))),
            DataType::Float => Numbers::Floats(read!(f32, f64::from)),
            DataType::Double => Numbers::Floats(read!(f64, |v| v)),
            DataType::Half => Numbers::Floats(read!(f16, f64::from)),
            DataType::BFloat16 => Numbers::Floats(read!(bf16, f64::from)),
            _ => return None,
        };
        Some(Folded { data_type, dims: dims.to_vec(), numbers })
    }

    /// The integers, if the type is one of whole numbers.
    pub fn ints(&self) -> Option<Vec<i64>> {
        match &self.numbers {
            Numbers::Ints(values) => Some(values.clone()),
            Numbers::Floats(_) => None,
        }
    }

    /// The numbers.
    pub fn floats(&self) -> Vec<f64> {
        match &self.numbers {
            Numbers::Ints(values) => values.iter().map(|value| *value as f64).collect(),
            Numbers::Floats(values) => values.clone(),
        }
    }

    /// The numbers in another type, as a cast rounds them.
    pub fn cast(&self, to: DataType) -> Folded {
        let dims = self.dims.clone();
        match (is_whole(to), &self.numbers) {
            (true, Numbers::Ints(values)) => Folded::whole(to, dims, values.iter().map(|v| wrap(*v, to)).collect()),
            (true, Numbers::Floats(values)) => {
                let whole = |v: &f64| if to == DataType::Boolean { i64::from(*v != 0.0) } else { wrap(*v as i64, to) };
                Folded::whole(to, dims, values.iter().map(whole).collect())
            }
            (false, _) => Folded::real(to, dims, self.floats().into_iter().map(|v| round(v, to)).collect()),
        }
    }

    /// The same elements under other extents.
    pub fn reshaped(mut self, dims: Vec<i64>) -> Folded {
        debug_assert_eq!(dims.iter().product::<i64>(), self.dims.iter().product::<i64>());
        self.dims = dims;
        self
    }

    /// The elements at these places, under other extents.
    pub fn picked(&self, places: &[usize], dims: Vec<i64>) -> Folded {
        let numbers = match &self.numbers {
            Numbers::Ints(values) => Numbers::Ints(places.iter().map(|place| values[*place]).collect()),
            Numbers::Floats(values) => Numbers::Floats(places.iter().map(|place| values[*place]).collect()),
        };
        Folded { data_type: self.data_type, dims, numbers }
    }

    /// The content as bytes of the type.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match &self.numbers {
            Numbers::Ints(values) => {
                for value in values {
                    match self.data_type {
                        DataType::Int64 => bytes.extend(value.to_ne_bytes()),
                        DataType::Int32 => bytes.extend((*value as i32).to_ne_bytes()),
                        _ => bytes.push(*value as u8),
                    }
                }
            }
            Numbers::Floats(values) => {
                for value in values {
                    match self.data_type {
                        DataType::Double => bytes.extend(value.to_ne_bytes()),
                        DataType::Half => bytes.extend(f16::from_f64(*value).to_ne_bytes()),
                        DataType::BFloat16 => bytes.extend(bf16::from_f64(*value).to_ne_bytes()),
                        _ => bytes.extend((*value as f32).to_ne_bytes()),
                    }
                }
            }
        }
        bytes
    }
}

fn wrap(value: i64, to: DataType) -> i64 {
    match to {
        DataType::Int32 => i64::from(value as i32),
        DataType::Int8 => i64::from(value as i8),
        DataType::UInt8 => i64::from(value as u8),
        DataType::Boolean => i64::from(value != 0),
        _ => value,
    }
}

fn round(value: f64, to: DataType) -> f64 {
    match to {
        DataType::Float => f64::from(value as f32),
        DataType::Half => f16::from_f64(value).to_f64(),
        DataType::BFloat16 => bf16::from_f64(value).to_f64(),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_there_and_back() {
        for (element, bytes) in [
            (ElementType::INT64, (-5i64).to_ne_bytes().to_vec()),
            (ElementType::INT32, 7i32.to_ne_bytes().to_vec()),
            (ElementType::INT8, vec![255]),
            (ElementType::UINT8, vec![255]),
            (ElementType::BOOL, vec![1]),
            (ElementType::FLOAT, 1.5f32.to_ne_bytes().to_vec()),
            (ElementType::DOUBLE, 0.1f64.to_ne_bytes().to_vec()),
            (ElementType::FLOAT16, f16::from_f32(0.1).to_ne_bytes().to_vec()),
            (ElementType::BFLOAT16, bf16::from_f32(0.1).to_ne_bytes().to_vec()),
        ] {
            let folded = Folded::of_bytes(element, &[1], &bytes).unwrap();
            assert_eq!(folded.bytes(), bytes, "{element}");
        }
        assert_eq!(Folded::of_bytes(ElementType::STRING, &[1], &[0; 8]), None);
        assert_eq!(Folded::of_bytes(ElementType::FLOAT, &[2], &[0; 4]), None, "too few bytes");
    }

    #[test]
    fn casts_round_and_wrap() {
        let numbers = Folded::real(DataType::Double, vec![2], vec![300.7, -1.5]);
        assert_eq!(numbers.cast(DataType::Int32).ints(), Some(vec![300, -1]));
        assert_eq!(numbers.cast(DataType::Boolean).ints(), Some(vec![1, 1]));
        assert_eq!(numbers.cast(DataType::Float).floats(), [f64::from(300.7f32), -1.5]);
        let whole = Folded::whole(DataType::Int64, vec![1], vec![300]);
        assert_eq!(whole.cast(DataType::UInt8).ints(), Some(vec![44]));
        assert_eq!(whole.cast(DataType::Float).floats(), [300.0]);
    }
}
