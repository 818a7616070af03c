//! Tensor descriptors.

use std::sync::Arc;

use half::{bf16, f16};
use hipdnn_schemas::{DataType, Ragged, TensorDef, TensorUid, TensorValue};
use hipdnn_sdk_bindings::hipdnn::backend::{AttributeName, AttributeType};

use super::staged::Staged;
use super::{Object, required, unhandled};
use crate::abi::pointer::{Elements, Output};
use crate::enums::Enumeration;
use crate::error::{Error, Result};

#[derive(Clone)]
struct Draft {
    def: TensorDef,
    ragged: Option<Arc<Tensor>>,
}

impl Default for Draft {
    fn default() -> Self {
        Draft { def: TensorDef::new(0, DataType::Unset, &[]), ragged: None }
    }
}

/// Finalized tensor.
pub(crate) struct FinishedTensor {
    pub(crate) def: TensorDef,
    /// The tensor that `def.ragged` names.
    pub(crate) ragged: Option<Arc<Tensor>>,
}

/// `HIPDNN_BACKEND_TENSOR_DESCRIPTOR`.
#[derive(Default)]
pub(crate) struct Tensor(Staged<Draft, FinishedTensor>);

impl Tensor {
    /// A tensor of a deserialized graph.
    pub(super) fn finished_from(def: TensorDef, ragged: Option<Arc<Tensor>>) -> Tensor {
        Tensor(Staged::finished_from(FinishedTensor { def, ragged }))
    }

    /// The tensor, for descriptors that refer to it.
    pub(super) fn referred(&self) -> Result<&FinishedTensor> {
        self.0.referred("tensor")
    }

    pub(super) fn set(&self, name: AttributeName, elements: Elements<'_>) -> Result<()> {
        let mut draft = self.0.edit()?;
        let def = &mut draft.def;
        match name {
            AttributeName::TENSOR_UNIQUE_ID => def.uid = TensorUid(elements.int64()?),
            AttributeName::TENSOR_NAME_EXT => def.name = elements.text()?,
            AttributeName::TENSOR_DATA_TYPE => {
                let data_type = DataType::from_c(elements.enumerator(AttributeType::DATA_TYPE)?)?;
                if data_type != def.data_type && def.value.is_some() {
                    return Err(Error::bad_param("the tensor's value was set for another data type"));
                }
                def.data_type = data_type;
            }
            AttributeName::TENSOR_DIMENSIONS => def.dims = elements.int64s()?.into(),
            AttributeName::TENSOR_STRIDES => def.strides = elements.int64s()?.into(),
            AttributeName::TENSOR_IS_VIRTUAL => def.is_virtual = elements.boolean()?,
            AttributeName::TENSOR_VALUE_EXT => def.value = Some(decode(def.data_type, &elements.bytes()?)?),
            AttributeName::TENSOR_IS_RUNTIME_PASS_BY_VALUE_EXT => def.is_runtime_pass_by_value = elements.boolean()?,
            AttributeName::TENSOR_BYTE_ALIGNMENT => {
                let alignment = elements.int64()?;
                if alignment < 1 {
                    return Err(Error::bad_param(format!("expected an alignment of at least 1 byte, got {alignment}")));
                }
                def.alignment = alignment;
            }
            AttributeName::TENSOR_RAGGED_OFFSET_DESC => {
                let offset = elements.descriptor()?.tensor()?;
                let uid = offset.referred()?.def.uid;
                let multiplier = def.ragged.map_or(1, |ragged| ragged.multiplier);
                def.ragged = Some(Ragged { offset: uid, multiplier });
                draft.ragged = Some(offset);
            }
            AttributeName::TENSOR_RAGGED_OFFSET_MULTIPLIER => {
                let multiplier = elements.int64()?;
                let offset = def.ragged.map_or(TensorUid(0), |ragged| ragged.offset);
                def.ragged = Some(Ragged { offset, multiplier });
            }
            _ => return Err(unhandled(name)),
        }
        Ok(())
    }

    pub(super) fn get(&self, name: AttributeName, output: Output<'_>) -> Result<()> {
        let FinishedTensor { def, ragged } = self.0.read()?;
        match name {
            AttributeName::TENSOR_UNIQUE_ID => output.scalar(AttributeType::INT64, def.uid.0),
            AttributeName::TENSOR_NAME_EXT => output.text(&def.name),
            AttributeName::TENSOR_DATA_TYPE => output.optional(AttributeType::DATA_TYPE, def.data_type.to_c()),
            AttributeName::TENSOR_DIMENSIONS => output.vector(AttributeType::INT64, &def.dims),
            AttributeName::TENSOR_STRIDES => output.vector(AttributeType::INT64, &def.strides),
            AttributeName::TENSOR_IS_VIRTUAL => output.scalar(AttributeType::BOOLEAN, u8::from(def.is_virtual)),
            AttributeName::TENSOR_VALUE_EXT => {
                let value = def.value.ok_or_else(|| Error::bad_param("the tensor has no value"))?;
                output.vector(AttributeType::CHAR, &encode(def.data_type, value))
            }
            AttributeName::TENSOR_IS_BY_VALUE => output.scalar(AttributeType::BOOLEAN, u8::from(def.value.is_some())),
            AttributeName::TENSOR_IS_RUNTIME_PASS_BY_VALUE_EXT => {
                output.scalar(AttributeType::BOOLEAN, u8::from(def.is_runtime_pass_by_value))
            }
            AttributeName::TENSOR_BYTE_ALIGNMENT => output.scalar(AttributeType::INT64, def.alignment),
            AttributeName::TENSOR_RAGGED_OFFSET_DESC => {
                output.optional_descriptor(ragged.as_ref().map(|tensor| Object::Tensor(Arc::clone(tensor))))
            }
            AttributeName::TENSOR_RAGGED_OFFSET_MULTIPLIER => {
                output.optional(AttributeType::INT64, def.ragged.map(|ragged| ragged.multiplier))
            }
            _ => Err(unhandled(name)),
        }
    }

    pub(super) fn finalize(&self) -> Result<()> {
        if self.0.finished().is_some() {
            return Ok(());
        }
        let Draft { def, ragged } = self.0.draft().clone();
        if def.dims.is_empty() || def.dims.len() != def.strides.len() {
            return Err(Error::bad_param(format!(
                "tensor {}: expected dimensions and as many strides, got {} and {}",
                def.uid,
                def.dims.len(),
                def.strides.len()
            )));
        }
        required((def.data_type != DataType::Unset).then_some(()), AttributeName::TENSOR_DATA_TYPE)?;
        if def.ragged.is_some() {
            required(ragged.as_ref(), AttributeName::TENSOR_RAGGED_OFFSET_DESC)?;
        }
        self.0.finish(FinishedTensor { def, ragged })
    }
}

/// A scalar from its bytes in memory.
fn decode(data_type: DataType, bytes: &[u8]) -> Result<TensorValue> {
    fn exactly<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
        bytes.try_into().map_err(|_| Error::bad_param(format!("expected a value of {N} bytes, got {}", bytes.len())))
    }
    Ok(match data_type {
        DataType::Float => TensorValue::Float32(f32::from_ne_bytes(exactly(bytes)?)),
        DataType::Double => TensorValue::Float64(f64::from_ne_bytes(exactly(bytes)?)),
        DataType::Half => TensorValue::Float16(f16::from_ne_bytes(exactly(bytes)?).to_f32()),
        DataType::BFloat16 => TensorValue::BFloat16(bf16::from_ne_bytes(exactly(bytes)?).to_f32()),
        DataType::Int32 => TensorValue::Int32(i32::from_ne_bytes(exactly(bytes)?)),
        DataType::Int64 => TensorValue::Int64(i64::from_ne_bytes(exactly(bytes)?)),
        DataType::Boolean => TensorValue::Bool(exactly::<1>(bytes)?[0] != 0),
        DataType::Int8 | DataType::UInt8 | DataType::Fp8E4M3 | DataType::Fp8E5M2 => {
            TensorValue::Float8(exactly::<1>(bytes)?[0])
        }
        DataType::Unset => return Err(Error::bad_param("a value needs the data type to be set before it")),
        other => return Err(Error::bad_param(format!("tensors of type {other} have no values"))),
    })
}

/// The inverse of [`decode`]. The type tells half from bfloat16 where a graph's value does not.
fn encode(data_type: DataType, value: TensorValue) -> Vec<u8> {
    match value {
        TensorValue::Float16(v) | TensorValue::BFloat16(v) | TensorValue::Float32(v) => match data_type {
            DataType::Half => f16::from_f32(v).to_ne_bytes().to_vec(),
            DataType::BFloat16 => bf16::from_f32(v).to_ne_bytes().to_vec(),
            _ => v.to_ne_bytes().to_vec(),
        },
        TensorValue::Float8(v) => vec![v],
        TensorValue::Int32(v) => v.to_ne_bytes().to_vec(),
        TensorValue::Float64(v) => v.to_ne_bytes().to_vec(),
        TensorValue::Int64(v) => v.to_ne_bytes().to_vec(),
        TensorValue::Bool(v) => vec![u8::from(v)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_bytes() {
        let cases: &[(DataType, &[u8])] = &[
            (DataType::Float, &1.5f32.to_ne_bytes()),
            (DataType::Double, &(-0.1f64).to_ne_bytes()),
            (DataType::Half, &f16::from_f32(0.333).to_ne_bytes()),
            (DataType::BFloat16, &bf16::from_f32(0.333).to_ne_bytes()),
            (DataType::Int32, &(-7i32).to_ne_bytes()),
            (DataType::Int64, &i64::MIN.to_ne_bytes()),
            (DataType::Boolean, &[1]),
            (DataType::Int8, &[0x80]),
            (DataType::UInt8, &[200]),
            (DataType::Fp8E4M3, &[3]),
            (DataType::Fp8E5M2, &[3]),
        ];
        for (data_type, bytes) in cases {
            let value = decode(*data_type, bytes).unwrap();
            assert_eq!(encode(*data_type, value), *bytes, "{data_type}");
            assert!(decode(*data_type, &[0; 3]).is_err(), "{data_type}");
        }
        assert!(decode(DataType::Unset, &[0; 4]).is_err());
        assert!(decode(DataType::Int4, &[0]).is_err());
    }
}
