//! Host–engine messages beside graphs: configurations, details, knobs and plan containers.

use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};

use crate::GraphError;
use crate::field::Field;
use crate::generated as fb;
use crate::read::root;
use crate::write::{finish, tables};

/// The value of a knob.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the types")]
pub enum KnobValue {
    Int(i64),
    Float(f64),
    String(String),
}

/// Valid values of a knob.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the wire format's")]
pub enum KnobConstraint {
    Int { min: i64, max: i64, step: i64, valid: Vec<i64> },
    Float { min: f64, max: f64 },
    String { max_length: i32, valid: Vec<String> },
}

/// A setting that an engine offers.
#[derive(Clone, Debug, PartialEq)]
pub struct Knob {
    /// `<plugin>.<category>.<name>`, or one of hipDNN's `global.*`.
    pub id: String,
    /// Description for users.
    pub description: String,
    /// Default value.
    pub default: KnobValue,
    /// Valid values.
    pub constraint: Option<KnobConstraint>,
    /// True if the knob is still taken, but no longer of use.
    pub deprecated: bool,
}

impl Knob {
    /// Verifies and decodes one knob alone.
    ///
    /// # Errors
    /// If the bytes are not a knob.
    pub fn from_bytes(bytes: &[u8]) -> Result<Knob, GraphError> {
        knob(root::<fb::Knob>(bytes)?)
    }

    /// One knob alone, as a FlatBuffer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut fbb = FlatBufferBuilder::new();
        let knob = write_knob(&mut fbb, self);
        finish(fbb, knob, None)
    }
}

/// An engine and the knobs set on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineConfig {
    /// The engine.
    pub engine_id: i64,
    /// Knob id and value, in the client's order.
    pub knobs: Vec<(String, KnobValue)>,
}

impl EngineConfig {
    /// Verifies and decodes.
    ///
    /// # Errors
    /// If the bytes are not an engine configuration.
    pub fn from_bytes(bytes: &[u8]) -> Result<EngineConfig, GraphError> {
        // `ranking_metric` says by what the host ranked: for engines that choose among kernels by it. Ours do not.
        let config = root::<fb::EngineConfig>(bytes)?;
        let knobs = config.knobs().into_iter().flatten().map(setting);
        Ok(EngineConfig { engine_id: config.engine_id(), knobs: knobs.collect::<Result<_, GraphError>>()? })
    }

    /// As a FlatBuffer.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes_ranked_by(None)
    }

    /// As a FlatBuffer that names the metric by which the host has ranked engines, for engines that rank by it, too.
    pub fn to_bytes_ranked_by(&self, metric: Option<&str>) -> Vec<u8> {
        let mut fbb = FlatBufferBuilder::new();
        let settings: Vec<_> = self.knobs.iter().map(|(id, value)| write_setting(&mut fbb, id, value)).collect();
        let knobs = tables(&mut fbb, &settings);
        let ranking_metric = metric.map(|metric| fbb.create_string(metric));
        let args = fb::EngineConfigArgs { engine_id: self.engine_id, knobs, ranking_metric };
        let config = fb::EngineConfig::create(&mut fbb, &args);
        finish(fbb, config, None)
    }
}

/// Verifies and decodes one knob setting alone: the knob's id and value.
///
/// # Errors
/// If the bytes are not a knob setting.
pub fn knob_setting_from_bytes(bytes: &[u8]) -> Result<(String, KnobValue), GraphError> {
    setting(root::<fb::KnobSetting>(bytes)?)
}

/// One knob setting alone, as a FlatBuffer.
pub fn knob_setting_to_bytes(id: &str, value: &KnobValue) -> Vec<u8> {
    let mut fbb = FlatBufferBuilder::new();
    let setting = write_setting(&mut fbb, id, value);
    finish(fbb, setting, None)
}

/// Description of an engine for a graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineDetails {
    /// The engine.
    pub engine_id: i64,
    /// The knobs it offers.
    pub knobs: Vec<Knob>,
    /// Behavior notes, by number.
    pub behavior_notes: Vec<i32>,
    /// Informational; the engine-name entry point is what names an engine.
    pub name: Option<String>,
}

impl EngineDetails {
    /// Verifies and decodes.
    ///
    /// # Errors
    /// If the bytes are not engine details.
    pub fn from_bytes(bytes: &[u8]) -> Result<EngineDetails, GraphError> {
        let details = root::<fb::EngineDetails>(bytes)?;
        Ok(EngineDetails {
            engine_id: details.engine_id(),
            knobs: details.knobs().into_iter().flatten().map(knob).collect::<Result<_, _>>()?,
            behavior_notes: details.behavior_notes().into_iter().flatten().collect(),
            name: details.name().map(str::to_string),
        })
    }

    /// As a FlatBuffer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut fbb = FlatBufferBuilder::new();
        let knobs: Vec<_> = self.knobs.iter().map(|knob| write_knob(&mut fbb, knob)).collect();
        let args = fb::EngineDetailsArgs {
            engine_id: self.engine_id,
            knobs: tables(&mut fbb, &knobs),
            behavior_notes: self.behavior_notes.write(&mut fbb),
            name: self.name.as_ref().map(|name| fbb.create_string(name)),
            candidate_page: None,
        };
        let details = fb::EngineDetails::create(&mut fbb, &args);
        finish(fbb, details, None)
    }
}

fn setting(setting: fb::KnobSetting<'_>) -> Result<(String, KnobValue), GraphError> {
    let id = setting.knob_id().unwrap_or_default().to_string();
    let (int, float, text) =
        (setting.value_as_int_value(), setting.value_as_float_value(), setting.value_as_string_value());
    let value = knob_value(&id, setting.value_type(), int, float, text)?;
    Ok((id, value))
}

fn write_setting<'fbb>(
    fbb: &mut FlatBufferBuilder<'fbb>,
    id: &str,
    value: &KnobValue,
) -> WIPOffset<fb::KnobSetting<'fbb>> {
    let knob_id = id.to_string().write(fbb);
    let (value_type, value) = write_knob_value(fbb, value);
    fb::KnobSetting::create(fbb, &fb::KnobSettingArgs { knob_id, value_type, value: Some(value) })
}

fn knob_value(
    id: &str,
    kind: fb::KnobValue,
    int: Option<fb::IntValue<'_>>,
    float: Option<fb::FloatValue<'_>>,
    text: Option<fb::StringValue<'_>>,
) -> Result<KnobValue, GraphError> {
    let value = int
        .map(|v| KnobValue::Int(v.value()))
        .or(float.map(|v| KnobValue::Float(v.value())))
        .or(text.map(|v| KnobValue::String(v.value().unwrap_or_default().to_string())));
    value.ok_or_else(|| match kind {
        fb::KnobValue::NONE => GraphError::Malformed(format!("knob {id:?}: no value")),
        other => GraphError::Unknown(format!("knob {id:?}: value of kind {}", other.0)),
    })
}

fn write_knob_value(fbb: &mut FlatBufferBuilder<'_>, value: &KnobValue) -> (fb::KnobValue, WIPOffset<UnionWIPOffset>) {
    match value {
        KnobValue::Int(value) => {
            let table = fb::IntValue::create(fbb, &fb::IntValueArgs { value: *value });
            (fb::KnobValue::IntValue, table.as_union_value())
        }
        KnobValue::Float(value) => {
            let table = fb::FloatValue::create(fbb, &fb::FloatValueArgs { value: *value });
            (fb::KnobValue::FloatValue, table.as_union_value())
        }
        KnobValue::String(value) => {
            let value = value.write(fbb);
            (fb::KnobValue::StringValue, fb::StringValue::create(fbb, &fb::StringValueArgs { value }).as_union_value())
        }
    }
}

fn knob(knob: fb::Knob<'_>) -> Result<Knob, GraphError> {
    let id = knob.knob_id().unwrap_or_default().to_string();
    let (int, float, text) =
        (knob.default_value_as_int_value(), knob.default_value_as_float_value(), knob.default_value_as_string_value());
    let default = knob_value(&id, knob.default_value_type(), int, float, text)?;
    let int = knob.constraint_as_int_constraint().map(|c| KnobConstraint::Int {
        min: c.min_value(),
        max: c.max_value(),
        step: c.step(),
        valid: c.valid_values().into_iter().flatten().collect(),
    });
    let float =
        knob.constraint_as_float_constraint().map(|c| KnobConstraint::Float { min: c.min_value(), max: c.max_value() });
    let text = knob.constraint_as_string_constraint().map(|c| KnobConstraint::String {
        max_length: c.max_length(),
        valid: c.valid_values().into_iter().flatten().map(str::to_string).collect(),
    });
    let constraint = int.or(float).or(text);
    let kind = knob.constraint_type();
    if constraint.is_none() && kind != fb::KnobConstraint::NONE {
        return Err(GraphError::Unknown(format!("knob {id:?}: constraint of kind {}", kind.0)));
    }
    let description = knob.description().unwrap_or_default().to_string();
    Ok(Knob { id, description, default, constraint, deprecated: knob.deprecated() })
}

fn write_knob<'b>(fbb: &mut FlatBufferBuilder<'b>, knob: &Knob) -> WIPOffset<fb::Knob<'b>> {
    let knob_id = knob.id.write(fbb);
    let description = knob.description.write(fbb);
    let (default_value_type, default_value) = write_knob_value(fbb, &knob.default);
    let (constraint_type, constraint) = match &knob.constraint {
        None => (fb::KnobConstraint::NONE, None),
        Some(KnobConstraint::Int { min, max, step, valid }) => {
            let args =
                fb::IntConstraintArgs { min_value: *min, max_value: *max, step: *step, valid_values: valid.write(fbb) };
            (fb::KnobConstraint::IntConstraint, Some(fb::IntConstraint::create(fbb, &args).as_union_value()))
        }
        Some(KnobConstraint::Float { min, max }) => {
            let args = fb::FloatConstraintArgs { min_value: *min, max_value: *max };
            (fb::KnobConstraint::FloatConstraint, Some(fb::FloatConstraint::create(fbb, &args).as_union_value()))
        }
        Some(KnobConstraint::String { max_length, valid }) => {
            let valid: Vec<_> = valid.iter().map(|text| fbb.create_string(text)).collect();
            let args = fb::StringConstraintArgs { max_length: *max_length, valid_values: tables(fbb, &valid) };
            (fb::KnobConstraint::StringConstraint, Some(fb::StringConstraint::create(fbb, &args).as_union_value()))
        }
    };
    let args = fb::KnobArgs {
        knob_id,
        description,
        default_value_type,
        // Hosts refuse a knob without one.
        default_value: Some(default_value),
        constraint_type,
        constraint,
        deprecated: knob.deprecated,
    };
    fb::Knob::create(fbb, &args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_names_the_metric_that_ranked_it() {
        let config = EngineConfig { engine_id: 3, knobs: vec![("a".into(), KnobValue::Int(1))] };
        for metric in [None, Some("time")] {
            let bytes = config.to_bytes_ranked_by(metric);
            assert_eq!(root::<fb::EngineConfig>(&bytes).unwrap().ranking_metric(), metric);
            assert_eq!(EngineConfig::from_bytes(&bytes), Ok(config.clone()));
        }
    }
}
