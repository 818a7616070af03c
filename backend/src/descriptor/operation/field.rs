//! Fields of the wire format's operations as attributes: their element types and values.

use std::collections::BTreeMap;
use std::sync::Arc;

use hipdnn_schemas::{
    AttentionImplementation, ConvMode, DataType, DiagonalAlignment, MoeGroupedMatmulMode, NormFwdPhase, PaddingMode,
    PointwiseMode, ReductionMode, ResampleMode, TensorUid,
};
use hipdnn_sdk_bindings::hipdnn::backend::{AttributeName, AttributeType};

use super::Tensors;
use crate::abi::pointer::{Elements, Output};
use crate::descriptor::{Object, Tensor};
use crate::enums::Enumeration;
use crate::error::{Error, Result};

/// Element type of an attribute.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Tensor,
    Tensors,
    Boolean,
    Int32,
    Int32s,
    Int64,
    Int64s,
    Float,
    /// The type of the enumeration's elements, and whether a number is an enumerator's.
    Enumerator(AttributeType, fn(i32) -> Result<()>),
    Text,
    Bytes,
}

/// The value of an attribute.
#[derive(Clone)]
pub(super) enum Value {
    Tensor(Arc<Tensor>),
    Tensors(Vec<Arc<Tensor>>),
    Boolean(bool),
    Int32(i32),
    Int32s(Vec<i32>),
    Int64(i64),
    Int64s(Vec<i64>),
    Float(f32),
    /// The type of the enumeration's elements, and C's number.
    Enumerator(AttributeType, i32),
    Text(String),
    Bytes(Vec<u8>),
}

pub(super) type Values = BTreeMap<AttributeName, Value>;

fn tensor(object: Object) -> Result<Arc<Tensor>> {
    let tensor = object.tensor()?;
    tensor.referred()?;
    Ok(tensor)
}

/// C's number of a convolution mode by its number in the wire format, which an early frontend sent as an integer.
fn early_convolution_mode(number: i64) -> Result<i32> {
    let mode = i8::try_from(number).ok().and_then(ConvMode::from_wire).and_then(ConvMode::to_c);
    mode.ok_or_else(|| Error::bad_param(format!("no convolution mode has wire number {number}")))
}

impl Kind {
    pub(super) const fn enumerator<E: Enumeration>() -> Kind {
        Kind::Enumerator(E::ELEMENT, |number| E::from_c(number).map(drop))
    }

    pub(super) fn parse(self, elements: Elements<'_>) -> Result<Value> {
        Ok(match self {
            Kind::Tensor => Value::Tensor(tensor(elements.descriptor()?)?),
            Kind::Tensors => Value::Tensors(elements.descriptors()?.into_iter().map(tensor).collect::<Result<_>>()?),
            Kind::Boolean => Value::Boolean(elements.boolean()?),
            Kind::Int32 => Value::Int32(elements.int32()?),
            Kind::Int32s => Value::Int32s(elements.int32s()?),
            Kind::Int64 => Value::Int64(elements.int64()?),
            Kind::Int64s => Value::Int64s(elements.int64s()?),
            // Frontends were seen with either type.
            Kind::Float if elements.kind() == AttributeType::DOUBLE => Value::Float(elements.double()? as f32),
            Kind::Float => Value::Float(elements.float()?),
            Kind::Enumerator(AttributeType::CONVOLUTION_MODE, _) if elements.kind() == AttributeType::INT64 => {
                Value::Enumerator(AttributeType::CONVOLUTION_MODE, early_convolution_mode(elements.int64()?)?)
            }
            Kind::Enumerator(element, check) => {
                let number = elements.enumerator(element)?;
                check(number)?;
                Value::Enumerator(element, number)
            }
            Kind::Text => Value::Text(elements.text()?),
            Kind::Bytes => Value::Bytes(elements.bytes()?),
        })
    }

    /// Answers for an attribute that is not set.
    pub(super) fn answer_unset(self, output: Output<'_>) -> Result<()> {
        match self {
            Kind::Tensor => output.optional_descriptor(None),
            Kind::Tensors => output.descriptors(&[], false),
            Kind::Boolean => output.optional::<u8>(AttributeType::BOOLEAN, None),
            Kind::Int32 => output.optional::<i32>(AttributeType::INT32, None),
            Kind::Int32s => output.vector::<i32>(AttributeType::INT32, &[]),
            Kind::Int64 => output.optional::<i64>(AttributeType::INT64, None),
            Kind::Int64s => output.vector::<i64>(AttributeType::INT64, &[]),
            Kind::Float => output.optional::<f32>(AttributeType::FLOAT, None),
            Kind::Enumerator(element, _) => output.optional::<i32>(element, None),
            Kind::Text => output.text(""),
            Kind::Bytes => output.vector::<u8>(AttributeType::CHAR, &[]),
        }
    }
}

impl Value {
    pub(super) fn answer(&self, output: Output<'_>) -> Result<()> {
        match self {
            Value::Tensor(tensor) => output.optional_descriptor(Some(Object::Tensor(Arc::clone(tensor)))),
            Value::Tensors(tensors) => {
                let objects: Vec<Object> = tensors.iter().map(|tensor| Object::Tensor(Arc::clone(tensor))).collect();
                output.descriptors(&objects, false)
            }
            Value::Boolean(value) => output.scalar(AttributeType::BOOLEAN, u8::from(*value)),
            Value::Int32(value) => output.scalar(AttributeType::INT32, *value),
            Value::Int32s(values) => output.vector(AttributeType::INT32, values),
            Value::Int64(value) => output.scalar(AttributeType::INT64, *value),
            Value::Int64s(values) => output.vector(AttributeType::INT64, values),
            Value::Float(value) if output.kind() == AttributeType::DOUBLE => {
                output.scalar(AttributeType::DOUBLE, f64::from(*value))
            }
            Value::Float(value) => output.scalar(AttributeType::FLOAT, *value),
            Value::Enumerator(element, number) => output.scalar(*element, *number),
            Value::Text(value) => output.text(value),
            Value::Bytes(value) => output.vector(AttributeType::CHAR, value),
        }
    }

    /// The tensors that the attribute refers to.
    pub(super) fn tensors(&self) -> &[Arc<Tensor>] {
        match self {
            Value::Tensor(tensor) => std::slice::from_ref(tensor),
            Value::Tensors(tensors) => tensors,
            _ => &[],
        }
    }
}

/// A field of the wire format's operations as an attribute.
pub(super) trait Field: Sized {
    const KIND: Kind;
    /// True if the attribute has to be set.
    const REQUIRED: bool;

    /// The field for a value that is set or not; `None` if a required value is missing.
    fn lower(value: Option<&Value>) -> Option<Self>;

    /// The attribute's value, if it is set.
    fn raise(self, tensors: &Tensors) -> Result<Option<Value>>;
}

fn find(tensors: &Tensors, uid: TensorUid) -> Result<Arc<Tensor>> {
    let found = tensors.get(&uid).cloned();
    found.ok_or_else(|| Error::bad_param(format!("tensor {uid} is named by a node, but is not in the graph")))
}

/// The uid of an operand.
pub(super) fn uid(tensor: &Tensor) -> TensorUid {
    tensor.referred().expect("only finalized tensors are taken").def.uid
}

impl Field for TensorUid {
    const KIND: Kind = Kind::Tensor;
    const REQUIRED: bool = true;

    fn lower(value: Option<&Value>) -> Option<Self> {
        if let Some(Value::Tensor(tensor)) = value { Some(uid(tensor)) } else { None }
    }

    fn raise(self, tensors: &Tensors) -> Result<Option<Value>> {
        find(tensors, self).map(|tensor| Some(Value::Tensor(tensor)))
    }
}

impl Field for Vec<TensorUid> {
    const KIND: Kind = Kind::Tensors;
    const REQUIRED: bool = false;

    fn lower(value: Option<&Value>) -> Option<Self> {
        match value {
            Some(Value::Tensors(tensors)) => Some(tensors.iter().map(|tensor| uid(tensor)).collect()),
            _ => Some(Vec::new()),
        }
    }

    fn raise(self, tensors: &Tensors) -> Result<Option<Value>> {
        if self.is_empty() {
            return Ok(None);
        }
        self.into_iter().map(|uid| find(tensors, uid)).collect::<Result<_>>().map(|found| Some(Value::Tensors(found)))
    }
}

macro_rules! plain_fields {
    ($($type:ty: $variant:ident;)*) => { $(
        impl Field for $type {
            const KIND: Kind = Kind::$variant;
            const REQUIRED: bool = true;

            fn lower(value: Option<&Value>) -> Option<Self> {
                if let Some(Value::$variant(value)) = value { Some(value.clone()) } else { None }
            }

            fn raise(self, _: &Tensors) -> Result<Option<Value>> {
                Ok(Some(Value::$variant(self)))
            }
        }
    )* };
}

plain_fields! {
    bool: Boolean;
    i32: Int32;
    Vec<i32>: Int32s;
    i64: Int64;
    Vec<i64>: Int64s;
    f32: Float;
    String: Text;
}

macro_rules! enumerator_fields {
    ($($type:ident)*) => { $(
        impl Field for $type {
            const KIND: Kind = Kind::enumerator::<$type>();
            const REQUIRED: bool = true;

            fn lower(value: Option<&Value>) -> Option<Self> {
                if let Some(Value::Enumerator(_, number)) = value { $type::from_c(*number).ok() } else { None }
            }

            fn raise(self, _: &Tensors) -> Result<Option<Value>> {
                Ok(self.to_c().map(|number| Value::Enumerator($type::ELEMENT, number)))
            }
        }
    )* };
}

enumerator_fields! {
    DataType ConvMode PointwiseMode ReductionMode ResampleMode PaddingMode NormFwdPhase DiagonalAlignment
    AttentionImplementation MoeGroupedMatmulMode
}

/// Opaque data of a custom operation may be left out.
impl Field for Vec<u8> {
    const KIND: Kind = Kind::Bytes;
    const REQUIRED: bool = false;

    fn lower(value: Option<&Value>) -> Option<Self> {
        if let Some(Value::Bytes(bytes)) = value { Some(bytes.clone()) } else { Some(Vec::new()) }
    }

    fn raise(self, _: &Tensors) -> Result<Option<Value>> {
        Ok((!self.is_empty()).then_some(Value::Bytes(self)))
    }
}

impl<T: Field> Field for Option<T> {
    const KIND: Kind = T::KIND;
    const REQUIRED: bool = false;

    fn lower(value: Option<&Value>) -> Option<Self> {
        match value {
            Some(value) => T::lower(Some(value)).map(Some),
            None => Some(None),
        }
    }

    fn raise(self, tensors: &Tensors) -> Result<Option<Value>> {
        match self {
            Some(field) => field.raise(tensors),
            None => Ok(None),
        }
    }
}
