//! Knobs: descriptions and values of settings.

use hipdnn_schemas::{EngineConfig, Knob, KnobConstraint, KnobValue, TensorUid};

use crate::error::Error;

/// Integer knob.
#[derive(Debug, Clone, Copy)]
pub struct IntKnob {
    /// Id of the knob.
    pub id: &'static str,
    /// Description for users and logs.
    pub description: &'static str,
    /// Value that holds when the knob is not set.
    pub default: i64,
    /// Smallest value.
    pub min: i64,
    /// Largest value.
    pub max: i64,
}

/// Text knob.
#[derive(Debug, Clone, Copy)]
pub struct TextKnob {
    /// Id of the knob.
    pub id: &'static str,
    /// Description for users and logs.
    pub description: &'static str,
    /// Maximum length in bytes.
    pub max_length: i32,
}

/// Enumerated knob: one of some words.
#[derive(Debug, Clone, Copy)]
pub struct ChoiceKnob {
    /// Id of the knob.
    pub id: &'static str,
    /// Description for users and logs.
    pub description: &'static str,
    /// Value that holds when the knob is not set.
    pub default: &'static str,
    /// Allowed words.
    pub valid: &'static [&'static str],
}

/// Tensors whose contents are constant, with a token for each: equal tokens, equal contents.
pub const CONSTANTS: TextKnob = TextKnob {
    id: "hipdnn_rs.constants",
    description: "uid=token,… : the tensor's contents are the same whenever the token is, in this process",
    max_length: 1 << 20,
};

/// The configuration, where tensors that are `left_out` are no [`CONSTANTS`].
pub fn without_constants(config: &EngineConfig, left_out: impl Fn(TensorUid) -> bool) -> EngineConfig {
    let is_kept = |entry: &&str| {
        let uid = entry.split_once('=').and_then(|(uid, _)| uid.parse().ok());
        !uid.is_some_and(|uid| left_out(TensorUid(uid)))
    };
    let mut config = config.clone();
    for (id, value) in &mut config.knobs {
        if let (true, KnobValue::String(text)) = (*id == CONSTANTS.id, value) {
            *text = text.split(',').filter(is_kept).collect::<Vec<_>>().join(",");
        }
    }
    config
}

impl IntKnob {
    /// Description of the knob in the host's form.
    pub fn describe(&self) -> Knob {
        Knob {
            id: self.id.to_string(),
            description: self.description.to_string(),
            default: KnobValue::Int(self.default),
            constraint: Some(KnobConstraint::Int { min: self.min, max: self.max, step: 1, valid: Vec::new() }),
            deprecated: false,
        }
    }

    /// Reads the value that was set, if any.
    ///
    /// # Errors
    /// If it is not an integer, or out of range.
    pub fn read(&self, config: &EngineConfig) -> Result<Option<i64>, Error> {
        let (id, min, max) = (self.id, self.min, self.max);
        match find(config, id) {
            None => Ok(None),
            Some(KnobValue::Int(value)) if (min..=max).contains(value) => Ok(Some(*value)),
            Some(KnobValue::Int(value)) => {
                Err(Error::bad_param(format!("knob {id}: expected {min} to {max}, got {value}")))
            }
            Some(other) => Err(Error::bad_param(format!("knob {id}: expected a whole number, got {other:?}"))),
        }
    }
}

impl TextKnob {
    /// Description of the knob in the host's form.
    pub fn describe(&self) -> Knob {
        Knob {
            id: self.id.to_string(),
            description: self.description.to_string(),
            default: KnobValue::String(String::new()),
            constraint: Some(KnobConstraint::String { max_length: self.max_length, valid: Vec::new() }),
            deprecated: false,
        }
    }

    /// Reads the text that was set, if any.
    ///
    /// # Errors
    /// If it is not text, or too long.
    pub fn read<'c>(&self, config: &'c EngineConfig) -> Result<Option<&'c str>, Error> {
        let (id, most) = (self.id, self.max_length);
        match find(config, id) {
            None => Ok(None),
            Some(KnobValue::String(text)) if text.len() <= most as usize => Ok(Some(text)),
            Some(KnobValue::String(text)) => {
                Err(Error::bad_param(format!("knob {id}: expected at most {most} bytes, got {}", text.len())))
            }
            Some(other) => Err(Error::bad_param(format!("knob {id}: expected text, got {other:?}"))),
        }
    }
}

impl ChoiceKnob {
    /// Description of the knob in the host's form.
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

    /// Reads the word that was set, if any.
    ///
    /// # Errors
    /// If it is none of the allowed words.
    pub fn read(&self, config: &EngineConfig) -> Result<Option<&'static str>, Error> {
        let (id, wanted) = (self.id, self.valid.join(", "));
        match find(config, id) {
            None => Ok(None),
            Some(KnobValue::String(text)) => match self.valid.iter().find(|word| **word == text) {
                Some(word) => Ok(Some(word)),
                None => Err(Error::bad_param(format!("knob {id}: expected one of {wanted}, got {}", shortened(text)))),
            },
            Some(other) => Err(Error::bad_param(format!("knob {id}: expected one of {wanted}, got {other:?}"))),
        }
    }
}

/// Foreign text for a message: quoted, cut to 80 characters.
pub fn shortened(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    if short.len() < text.len() { format!("{short:?}…") } else { format!("{short:?}") }
}

/// Value of the last setting of that id; settings of unknown ids are for other engines.
fn find<'c>(config: &'c EngineConfig, id: &str) -> Option<&'c KnobValue> {
    config.knobs.iter().rev().find(|(name, _)| name == id).map(|(_, value)| value)
}

#[cfg(test)]
mod tests;
