//! Reading and describing settings.

use hipdnn_schemas::{EngineConfig, Knob, KnobConstraint, KnobValue};

use crate::error::Error;

/// A setting that is a whole number.
#[derive(Debug, Clone, Copy)]
pub struct IntKnob {
    /// Its id.
    pub id: &'static str,
    /// What it does.
    pub description: &'static str,
    /// What holds when it is not set.
    pub default: i64,
    /// The least value.
    pub min: i64,
    /// The greatest value.
    pub max: i64,
}

/// A setting that is text.
#[derive(Debug, Clone, Copy)]
pub struct TextKnob {
    /// Its id.
    pub id: &'static str,
    /// What it does.
    pub description: &'static str,
    /// How many bytes it has at most.
    pub max_length: i32,
}

/// A setting that is one of some words.
#[derive(Debug, Clone, Copy)]
pub struct ChoiceKnob {
    /// Its id.
    pub id: &'static str,
    /// What it does.
    pub description: &'static str,
    /// What holds when it is not set.
    pub default: &'static str,
    /// The words.
    pub valid: &'static [&'static str],
}

impl IntKnob {
    /// As the host wants it described.
    pub fn describe(&self) -> Knob {
        Knob {
            id: self.id.to_string(),
            description: self.description.to_string(),
            default: KnobValue::Int(self.default),
            constraint: Some(KnobConstraint::Int { min: self.min, max: self.max, step: 1, valid: Vec::new() }),
            deprecated: false,
        }
    }

    /// The value that was set, if any.
    ///
    /// # Errors
    /// If it is no whole number, or out of range.
    pub fn read(&self, config: &EngineConfig) -> Result<Option<i64>, Error> {
        let (id, min, max) = (self.id, self.min, self.max);
        match find(config, id) {
            None => Ok(None),
            Some(KnobValue::Int(value)) if (min..=max).contains(value) => Ok(Some(*value)),
            Some(KnobValue::Int(value)) => {
                Err(Error::bad_param(format!("knob {id}: wanted {min} to {max}, came {value}")))
            }
            Some(other) => Err(Error::bad_param(format!("knob {id}: wanted a whole number, came {other:?}"))),
        }
    }
}

impl TextKnob {
    /// As the host wants it described.
    pub fn describe(&self) -> Knob {
        Knob {
            id: self.id.to_string(),
            description: self.description.to_string(),
            default: KnobValue::String(String::new()),
            constraint: Some(KnobConstraint::String { max_length: self.max_length, valid: Vec::new() }),
            deprecated: false,
        }
    }

    /// The text that was set, if any.
    ///
    /// # Errors
    /// If it is no text, or too long.
    pub fn read<'c>(&self, config: &'c EngineConfig) -> Result<Option<&'c str>, Error> {
        let (id, most) = (self.id, self.max_length);
        match find(config, id) {
            None => Ok(None),
            Some(KnobValue::String(text)) if text.len() <= most as usize => Ok(Some(text)),
            Some(KnobValue::String(text)) => {
                Err(Error::bad_param(format!("knob {id}: wanted at most {most} bytes, came {}", text.len())))
            }
            Some(other) => Err(Error::bad_param(format!("knob {id}: wanted text, came {other:?}"))),
        }
    }
}

impl ChoiceKnob {
    /// As the host wants it described.
    pub fn describe(&self) -> Knob {
        let longest = self.valid.iter().map(|word| word.len()).max().unwrap_or(0);
        Knob {
            id: self.id.to_string(),
            description: self.description.to_string(),
            default: KnobValue::String(self.default.to_string()),
            constraint: Some(KnobConstraint::String {
                max_length: i32::try_from(longest).expect("words are short"),
                valid: self.valid.iter().map(|word| word.to_string()).collect(),
            }),
            deprecated: false,
        }
    }

    /// The word that was set, if any.
    ///
    /// # Errors
    /// If it is none of the words.
    pub fn read(&self, config: &EngineConfig) -> Result<Option<&'static str>, Error> {
        let (id, wanted) = (self.id, self.valid.join(", "));
        match find(config, id) {
            None => Ok(None),
            Some(KnobValue::String(text)) => match self.valid.iter().find(|word| **word == text) {
                Some(word) => Ok(Some(word)),
                None => Err(Error::bad_param(format!("knob {id}: wanted one of {wanted}, came {}", shortened(text)))),
            },
            Some(other) => Err(Error::bad_param(format!("knob {id}: wanted one of {wanted}, came {other:?}"))),
        }
    }
}

/// Foreign text in a message.
pub fn shortened(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    if short.len() < text.len() { format!("{short:?}…") } else { format!("{short:?}") }
}

/// The last setting of that id: settings of unknown ids are for other engines.
fn find<'c>(config: &'c EngineConfig, id: &str) -> Option<&'c KnobValue> {
    config.knobs.iter().rev().find(|(name, _)| name == id).map(|(_, value)| value)
}
