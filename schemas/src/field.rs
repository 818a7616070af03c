//! One field of a node, between its Rust type, its FlatBuffer form and its JSON form.

use flatbuffers::{FlatBufferBuilder, Vector, WIPOffset};
use serde_json::Value;

use crate::generated as fb;
use crate::{
    AttentionImplementation, ConvMode, DataType, DiagonalAlignment, Extents, MoeGroupedMatmulMode, NormFwdPhase,
    PaddingMode, PointwiseMode, ReductionMode, ResampleMode, TensorUid, Uids,
};

/// Type of a node's field.
pub(crate) trait Field: Sized {
    /// Return type of the generated accessor.
    type Wire<'a>;
    /// Argument type of the generated writer.
    type Slot<'b>;

    /// True if the field names tensors.
    const IS_OPERAND: bool = false;

    /// Decodes; the error is the reason only.
    fn read(wire: Self::Wire<'_>) -> Result<Self, String>;

    /// Encodes, writing what lies outside the table.
    fn write<'b>(&self, fbb: &mut FlatBufferBuilder<'b>) -> Self::Slot<'b>;

    /// Decodes; the error is the reason only.
    fn from_json(value: &Value) -> Result<Self, String>;

    /// Encodes; enumerations by their names.
    fn to_json(&self) -> Value;

    /// Encodes; enumerations by their numbers.
    fn to_json_by_number(&self) -> Value {
        self.to_json()
    }

    /// Value of a missing JSON key; `None` makes the key mandatory.
    fn absent() -> Option<Self> {
        None
    }

    /// Appends the tensors named here.
    fn tensors(&self, _uids: &mut Uids) {}

    /// Replaces the tensors named here.
    fn rename(&mut self, _rename: &mut dyn FnMut(TensorUid) -> TensorUid) {}

    /// Text for people; `None` if the field is absent.
    fn text(&self) -> Option<String> {
        match self.to_json() {
            Value::Null => None,
            Value::String(text) => Some(text),
            other => Some(other.to_string()),
        }
    }
}

/// Error for a `value` of the wrong kind. Long values are cut: the text may be hostile.
pub(crate) fn expected(expected: &str, value: &Value) -> String {
    let text = match value {
        Value::Array(_) => "a list".to_string(),
        Value::Object(_) => "an object".to_string(),
        Value::String(s) if s.chars().count() > 40 => format!("{:?}...", s.chars().take(40).collect::<String>()),
        other => other.to_string(),
    };
    format!("expected {expected}, got {text}")
}

fn integer(value: &Value) -> Result<i64, String> {
    value.as_i64().ok_or_else(|| expected("an integer of 64 bits", value))
}

fn number(value: &Value) -> Result<f32, String> {
    value.as_f64().map(|v| v as f32).ok_or_else(|| expected("a number", value))
}

fn list<T>(value: &Value, what: &str, element: impl Fn(&Value) -> Result<T, String>) -> Result<Vec<T>, String> {
    value.as_array().ok_or_else(|| expected(what, value))?.iter().map(element).collect()
}

/// The object API leaves empty lists out, and so do we.
fn vector<'b, T: flatbuffers::Push + Copy>(
    fbb: &mut FlatBufferBuilder<'b>,
    items: &[T],
) -> Option<WIPOffset<Vector<'b, T::Output>>> {
    (!items.is_empty()).then(|| fbb.create_vector(items))
}

macro_rules! scalar {
    ($type:ty, $value:ident => $decode:expr) => {
        impl Field for $type {
            type Wire<'a> = $type;
            type Slot<'b> = $type;

            fn read(wire: $type) -> Result<Self, String> {
                Ok(wire)
            }

            fn write<'b>(&self, _: &mut FlatBufferBuilder<'b>) -> $type {
                *self
            }

            fn from_json($value: &Value) -> Result<Self, String> {
                $decode
            }

            fn to_json(&self) -> Value {
                Value::from(*self)
            }

            // JSON has no infinities.
            fn text(&self) -> Option<String> {
                Some(self.to_string())
            }
        }

        impl Field for Option<$type> {
            type Wire<'a> = Option<$type>;
            type Slot<'b> = Option<$type>;

            fn read(wire: Option<$type>) -> Result<Self, String> {
                Ok(wire)
            }

            fn write<'b>(&self, _: &mut FlatBufferBuilder<'b>) -> Option<$type> {
                *self
            }

            fn from_json(value: &Value) -> Result<Self, String> {
                if value.is_null() { Ok(None) } else { <$type>::from_json(value).map(Some) }
            }

            fn to_json(&self) -> Value {
                self.map_or(Value::Null, Value::from)
            }

            fn text(&self) -> Option<String> {
                self.map(|value| value.to_string())
            }

            fn absent() -> Option<Self> {
                Some(None)
            }
        }
    };
}

scalar!(i64, value => integer(value));
scalar!(i32, value => i32::try_from(integer(value)?).map_err(|_| expected("an integer of 32 bits", value)));
scalar!(f32, value => number(value));
scalar!(bool, value => value.as_bool().ok_or_else(|| expected("true or false", value)));

impl Field for TensorUid {
    type Wire<'a> = i64;
    type Slot<'b> = i64;

    const IS_OPERAND: bool = true;

    fn read(wire: i64) -> Result<Self, String> {
        Ok(TensorUid(wire))
    }

    fn write<'b>(&self, _: &mut FlatBufferBuilder<'b>) -> i64 {
        self.0
    }

    fn from_json(value: &Value) -> Result<Self, String> {
        integer(value).map(TensorUid)
    }

    fn to_json(&self) -> Value {
        Value::from(self.0)
    }

    fn tensors(&self, uids: &mut Uids) {
        uids.push(*self);
    }

    fn rename(&mut self, rename: &mut dyn FnMut(TensorUid) -> TensorUid) {
        *self = rename(*self);
    }
}

impl Field for Option<TensorUid> {
    type Wire<'a> = Option<i64>;
    type Slot<'b> = Option<i64>;

    const IS_OPERAND: bool = true;

    fn read(wire: Option<i64>) -> Result<Self, String> {
        Ok(wire.map(TensorUid))
    }

    fn write<'b>(&self, _: &mut FlatBufferBuilder<'b>) -> Option<i64> {
        self.map(|uid| uid.0)
    }

    fn from_json(value: &Value) -> Result<Self, String> {
        if value.is_null() { Ok(None) } else { TensorUid::from_json(value).map(Some) }
    }

    fn to_json(&self) -> Value {
        self.map_or(Value::Null, |uid| Value::from(uid.0))
    }

    fn absent() -> Option<Self> {
        Some(None)
    }

    fn tensors(&self, uids: &mut Uids) {
        uids.extend(*self);
    }

    fn rename(&mut self, rename: &mut dyn FnMut(TensorUid) -> TensorUid) {
        *self = self.map(rename);
    }
}

impl Field for Vec<TensorUid> {
    type Wire<'a> = Option<Vector<'a, i64>>;
    type Slot<'b> = Option<WIPOffset<Vector<'b, i64>>>;

    const IS_OPERAND: bool = true;

    fn read(wire: Self::Wire<'_>) -> Result<Self, String> {
        Ok(wire.into_iter().flatten().map(TensorUid).collect())
    }

    fn write<'b>(&self, fbb: &mut FlatBufferBuilder<'b>) -> Self::Slot<'b> {
        vector(fbb, &self.iter().map(|uid| uid.0).collect::<Vec<_>>())
    }

    fn from_json(value: &Value) -> Result<Self, String> {
        list(value, "a list of tensor uids", TensorUid::from_json)
    }

    fn to_json(&self) -> Value {
        self.iter().map(|uid| uid.0).collect()
    }

    fn absent() -> Option<Self> {
        Some(Vec::new())
    }

    fn tensors(&self, uids: &mut Uids) {
        uids.extend_from_slice(self);
    }

    fn rename(&mut self, rename: &mut dyn FnMut(TensorUid) -> TensorUid) {
        for uid in self {
            *uid = rename(*uid);
        }
    }
}

macro_rules! number_list {
    ($list:ty, $type:ty, $what:literal) => {
        impl Field for $list {
            type Wire<'a> = Option<Vector<'a, $type>>;
            type Slot<'b> = Option<WIPOffset<Vector<'b, $type>>>;

            fn read(wire: Self::Wire<'_>) -> Result<Self, String> {
                Ok(wire.into_iter().flatten().collect())
            }

            fn write<'b>(&self, fbb: &mut FlatBufferBuilder<'b>) -> Self::Slot<'b> {
                vector(fbb, self)
            }

            fn from_json(value: &Value) -> Result<Self, String> {
                list(value, $what, |item| {
                    integer(item)?
                        .try_into()
                        .map_err(|_| expected(concat!("a number of type ", stringify!($type)), item))
                })
                .map(Into::into)
            }

            fn to_json(&self) -> Value {
                self.iter().copied().collect()
            }
        }
    };
}

number_list!(Vec<i64>, i64, "a list of integers");
number_list!(Extents, i64, "a list of integers");
number_list!(Vec<i32>, i32, "a list of integers");
number_list!(Vec<u8>, u8, "a list of bytes");

impl Field for String {
    type Wire<'a> = Option<&'a str>;
    type Slot<'b> = Option<WIPOffset<&'b str>>;

    fn read(wire: Self::Wire<'_>) -> Result<Self, String> {
        Ok(wire.unwrap_or_default().to_string())
    }

    fn write<'b>(&self, fbb: &mut FlatBufferBuilder<'b>) -> Self::Slot<'b> {
        (!self.is_empty()).then(|| fbb.create_string(self))
    }

    fn from_json(value: &Value) -> Result<Self, String> {
        value.as_str().map(str::to_string).ok_or_else(|| expected("a string", value))
    }

    fn to_json(&self) -> Value {
        Value::from(self.as_str())
    }
}

/// `numbered` enumerations may stand in JSON as their numbers.
macro_rules! enumeration {
    ($($type:ident: $what:literal $(, $numbered:ident)?;)*) => { $(
        impl Field for $type {
            type Wire<'a> = fb::$type;
            type Slot<'b> = fb::$type;

            fn read(wire: fb::$type) -> Result<Self, String> {
                $type::from_wire(wire.0).ok_or_else(|| format!("number {} is not {}", wire.0, $what))
            }

            fn write<'b>(&self, _: &mut FlatBufferBuilder<'b>) -> fb::$type {
                fb::$type(self.wire())
            }

            fn from_json(value: &Value) -> Result<Self, String> {
                let named = value.as_str().and_then($type::from_json_name);
                $(
                    stringify!($numbered);
                    let number = value.as_i64().and_then(|number| i8::try_from(number).ok());
                    let named = named.or_else(|| number.and_then($type::from_wire));
                )?
                named.ok_or_else(|| {
                    let names = $type::ALL.iter().map(|variant| variant.json_name()).collect::<Vec<_>>().join(", ");
                    expected(&format!("{} ({names})", $what), value)
                })
            }

            fn to_json(&self) -> Value {
                Value::from(self.json_name())
            }

            fn to_json_by_number(&self) -> Value {
                Value::from(self.wire())
            }
        }
    )* };
}

enumeration! {
    DataType: "a data type";
    ConvMode: "a convolution mode";
    PointwiseMode: "a pointwise mode";
    ReductionMode: "a reduction mode";
    ResampleMode: "a resample mode", numbered;
    PaddingMode: "a padding mode", numbered;
    NormFwdPhase: "a normalization phase", numbered;
    DiagonalAlignment: "a diagonal alignment";
    AttentionImplementation: "an attention implementation";
    MoeGroupedMatmulMode: "a mixture-of-experts mode";
}
