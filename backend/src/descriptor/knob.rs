//! Knobs: an engine's offers and a client's choices.

use hipdnn_schemas::{Knob, KnobConstraint, KnobValue};
use hipdnn_sdk_bindings::hipdnn::backend::{AttributeName, AttributeType};

use super::staged::Staged;
use super::{required, unhandled};
use crate::abi::pointer::{Elements, Output};
use crate::error::{Error, Result};

/// Maximum length of a knob's id, in bytes.
const MAX_ID: usize = 256;

#[derive(Clone, Default)]
struct Draft {
    id: Option<String>,
    value: Option<KnobValue>,
}

/// `HIPDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR`.
#[derive(Default)]
pub(crate) struct KnobChoice(Staged<Draft, (String, KnobValue)>);

impl KnobChoice {
    pub(super) fn referred(&self) -> Result<&(String, KnobValue)> {
        self.0.referred("knob choice")
    }

    pub(super) fn set(&self, name: AttributeName, elements: Elements<'_>) -> Result<()> {
        let mut draft = self.0.edit()?;
        match name {
            AttributeName::KNOB_CHOICE_KNOB_TYPE => {
                let id = elements.text()?;
                if !(1..=MAX_ID).contains(&id.len()) {
                    return Err(Error::bad_param(format!(
                        "expected a knob id of 1 to {MAX_ID} bytes, got {} bytes",
                        id.len()
                    )));
                }
                draft.id = Some(id);
            }
            AttributeName::KNOB_CHOICE_KNOB_VALUE => {
                draft.value = Some(match elements.kind() {
                    AttributeType::INT64 => KnobValue::Int(elements.int64()?),
                    AttributeType::DOUBLE => KnobValue::Float(elements.double()?),
                    AttributeType::CHAR => KnobValue::String(elements.text()?),
                    other => return Err(Error::bad_param(format!("expected INT64, DOUBLE or CHAR, got {other}"))),
                });
            }
            _ => return Err(unhandled(name)),
        }
        Ok(())
    }

    pub(super) fn get(&self, name: AttributeName, output: Output<'_>) -> Result<()> {
        let (id, value) = self.0.read()?;
        match name {
            AttributeName::KNOB_CHOICE_KNOB_TYPE => output.text(id),
            AttributeName::KNOB_CHOICE_KNOB_VALUE => answer(value, output),
            _ => Err(unhandled(name)),
        }
    }

    pub(super) fn finalize(&self) -> Result<()> {
        self.0.expect_unfinished()?;
        let Draft { id, value } = self.0.draft().clone();
        let id = required(id, AttributeName::KNOB_CHOICE_KNOB_TYPE)?;
        let value = required(value, AttributeName::KNOB_CHOICE_KNOB_VALUE)?;
        self.0.finish((id, value))
    }
}

fn answer(value: &KnobValue, output: Output<'_>) -> Result<()> {
    match value {
        KnobValue::Int(value) => output.scalar(AttributeType::INT64, *value),
        KnobValue::Float(value) => output.scalar(AttributeType::DOUBLE, *value),
        KnobValue::String(value) => output.text(value),
    }
}

/// `HIPDNN_BACKEND_KNOB_INFO_DESCRIPTOR`: made by engines; one that a client makes is empty.
#[derive(Default)]
pub(crate) struct KnobInfo(Option<Knob>);

impl KnobInfo {
    pub(super) fn of(knob: Knob) -> KnobInfo {
        KnobInfo(Some(knob))
    }

    pub(super) fn get(&self, name: AttributeName, output: Output<'_>) -> Result<()> {
        let empty = || Error::not_initialized("the knob information comes from no engine");
        let knob = self.0.as_ref().ok_or_else(empty)?;
        let constraint = knob.constraint.as_ref();
        match name {
            AttributeName::KNOB_INFO_TYPE => output.text(&knob.id),
            AttributeName::KNOB_INFO_DESCRIPTION => output.text(&knob.description),
            AttributeName::KNOB_INFO_DEPRECATED => output.scalar(AttributeType::BOOLEAN, u8::from(knob.deprecated)),
            AttributeName::KNOB_INFO_DEFAULT_VALUE_TYPE => {
                let kind = match knob.default {
                    KnobValue::Int(_) => AttributeType::INT64,
                    KnobValue::Float(_) => AttributeType::DOUBLE,
                    KnobValue::String(_) => AttributeType::CHAR,
                };
                output.scalar(AttributeType::INT64, i64::from(kind.0))
            }
            AttributeName::KNOB_INFO_DEFAULT_VALUE => answer(&knob.default, output),
            AttributeName::KNOB_INFO_MAXIMUM_VALUE => match constraint {
                Some(KnobConstraint::Float { max, .. }) => output.scalar(AttributeType::DOUBLE, *max),
                Some(KnobConstraint::Int { max, .. }) => output.scalar(AttributeType::INT64, *max),
                _ => output.optional::<i64>(output.kind(), None),
            },
            AttributeName::KNOB_INFO_MINIMUM_VALUE => match constraint {
                Some(KnobConstraint::Float { min, .. }) => output.scalar(AttributeType::DOUBLE, *min),
                Some(KnobConstraint::Int { min, .. }) => output.scalar(AttributeType::INT64, *min),
                _ => output.optional::<i64>(output.kind(), None),
            },
            AttributeName::KNOB_INFO_STRIDE => {
                let step = constraint.and_then(|constraint| match constraint {
                    KnobConstraint::Int { step, .. } => Some(*step),
                    _ => None,
                });
                output.optional(AttributeType::INT64, step)
            }
            AttributeName::KNOB_INFO_VALID_VALUES_INT => match constraint {
                Some(KnobConstraint::Int { valid, .. }) => output.vector(AttributeType::INT64, valid),
                _ => output.vector::<i64>(AttributeType::INT64, &[]),
            },
            AttributeName::KNOB_INFO_VALID_VALUES_STRING => {
                // Each value ends in a NUL.
                let list: Vec<u8> = match constraint {
                    Some(KnobConstraint::String { valid, .. }) => {
                        valid.iter().flat_map(|value| value.bytes().chain([0])).collect()
                    }
                    _ => Vec::new(),
                };
                output.vector(AttributeType::CHAR, &list)
            }
            AttributeName::KNOB_INFO_STRING_MAX_LENGTH => {
                let length = constraint.and_then(|constraint| match constraint {
                    KnobConstraint::String { max_length, .. } => Some(*max_length),
                    _ => None,
                });
                output.optional(AttributeType::INT32, length)
            }
            _ => Err(unhandled(name)),
        }
    }
}
