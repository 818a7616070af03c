//! `inspect`: the content of a file.

use std::fmt::Write;

use hipdnn_schemas::{EngineConfig, EngineDetails, Knob, KnobConstraint, KnobValue, SerializedExecutionPlan};
use hipdnn_sdk_bindings::hipdnn::plugin::BehaviorNote;

use crate::arguments::{Inspect, Kind};
use crate::content::{Content, read_content, read_graph};
use crate::table::Table;
use crate::{Answer, dot, listing, names, text};

/// Lists or draws a file's content.
pub(crate) fn inspect(arguments: &Inspect) -> Result<Answer, String> {
    if arguments.dot {
        if !matches!(arguments.kind, None | Some(Kind::Graph | Kind::GraphAndPlan)) {
            return Err("--dot draws graphs only".into());
        }
        return Ok(Answer::new(dot::graph(&read_graph(&arguments.file)?.graph), true));
    }
    let text = match read_content(&arguments.file, arguments.kind)? {
        Content::Graph(graph) => listing::graph(&graph),
        Content::GraphAndPlan(graph, None) => listing::graph(&graph) + "\nno plan\n",
        Content::GraphAndPlan(graph, Some(plan)) => listing::graph(&graph) + "\n" + &self::plan(&plan)?,
        Content::Plan(plan) => self::plan(&plan)?,
        Content::Config(config) => self::config(&config),
        Content::Details(details) => self::details(&details),
        Content::Knob(knob) => self::knobs(&[knob]),
    };
    Ok(Answer::new(text, true))
}

fn engine(id: i64) -> String {
    let (name, number) = (names::engine_name(id), names::engine_number(id));
    if name == number { number } else { format!("{name} ({number})") }
}

fn plan(plan: &SerializedExecutionPlan) -> Result<String, String> {
    let mut text = format!("plan of engine {}\n", engine(plan.engine_id));
    let workspace = match u128::try_from(plan.workspace_size) {
        Ok(bytes) => text::bytes(bytes),
        Err(_) => plan.workspace_size.to_string(),
    };
    let _ = writeln!(text, "  version    {}", plan.version);
    let _ = writeln!(text, "  workspace  {workspace}");
    let _ = writeln!(text, "  tensors    {}", text::list(&plan.tensor_uids));
    if !plan.tensor_alignments.is_empty() {
        let _ = writeln!(text, "  alignment  {}", text::list(&plan.tensor_alignments));
    }
    let _ = writeln!(text, "  overrides  {}", if plan.is_override_shape_enabled { "allowed" } else { "no" });
    let _ = writeln!(text, "  payload    {}, for the plugin only", text::bytes(plan.plugin_payload.len() as u128));
    if !plan.engine_config.is_empty() {
        let config = EngineConfig::from_bytes(&plan.engine_config)
            .map_err(|problem| format!("the plan's engine configuration: {problem}"))?;
        text.push_str(&self::config(&config));
    }
    Ok(text)
}

fn config(config: &EngineConfig) -> String {
    let mut text = format!("configuration of engine {}\n", engine(config.engine_id));
    if config.knobs.is_empty() {
        text.push_str("  no knob is set\n");
    }
    for (id, value) in &config.knobs {
        let _ = writeln!(text, "  {} = {}", text::printable(id), knob_value(value));
    }
    text
}

fn details(details: &EngineDetails) -> String {
    let mut text = format!("details of engine {}\n", engine(details.engine_id));
    if let Some(name) = &details.name {
        let _ = writeln!(text, "  name   {}", text::quoted(name));
    }
    if let Some(notes) = behavior_notes(details) {
        let _ = writeln!(text, "  notes  {notes}");
    }
    text.push_str(&knobs(&details.knobs));
    text
}

/// Behavior notes of an engine; `None` if it has none.
pub(crate) fn behavior_notes(details: &EngineDetails) -> Option<String> {
    let note = |note: &i32| match BehaviorNote(*note).name() {
        Some(name) => name.trim_start_matches("HIPDNN_BEHAVIOR_NOTE_").to_lowercase().replace('_', " "),
        None => format!("note {note}"),
    };
    let notes: Vec<String> = details.behavior_notes.iter().map(note).collect();
    (!notes.is_empty()).then(|| notes.join(", "))
}

/// Knobs with defaults, ranges and meaning.
pub(crate) fn knobs(knobs: &[Knob]) -> String {
    let mut table = Table::new(&["knob", "default", "values", "meaning"]);
    for knob in knobs {
        let meaning = if knob.deprecated { "(deprecated) " } else { "" };
        table.row(vec![
            text::printable(&knob.id),
            knob_value(&knob.default),
            knob.constraint.as_ref().map(constraint).unwrap_or_default(),
            format!("{meaning}{}", text::printable(&knob.description)),
        ]);
    }
    if table.is_empty() { "  no knobs\n".into() } else { table.lines(2) }
}

/// The value as on the command line.
pub(crate) fn knob_value(value: &KnobValue) -> String {
    match value {
        KnobValue::Int(value) => value.to_string(),
        KnobValue::Float(value) => value.to_string(),
        KnobValue::String(value) => text::quoted(value),
    }
}

fn constraint(constraint: &KnobConstraint) -> String {
    match constraint {
        KnobConstraint::Int { valid, .. } if !valid.is_empty() => {
            valid.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
        }
        KnobConstraint::Int { min, max, step, .. } => {
            let step = if *step > 1 { format!(" in steps of {step}") } else { String::new() };
            match (*min, *max) {
                (i64::MIN, i64::MAX) => format!("any integer{step}"),
                (min, i64::MAX) => format!("{min} and more{step}"),
                (min, max) => format!("{min} to {max}{step}"),
            }
        }
        KnobConstraint::Float { min, max } => format!("{min} to {max}"),
        KnobConstraint::String { valid, .. } if !valid.is_empty() => {
            valid.iter().map(|value| text::quoted(value)).collect::<Vec<_>>().join(", ")
        }
        KnobConstraint::String { max_length, .. } => format!("text of at most {max_length} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let int = |min, max, step, valid: &[i64]| KnobConstraint::Int { min, max, step, valid: valid.to_vec() };
        for (range, want) in [
            (int(0, 4, 1, &[]), "0 to 4"),
            (int(0, i64::MAX, 2, &[]), "0 and more in steps of 2"),
            (int(i64::MIN, i64::MAX, 1, &[]), "any integer"),
            (int(0, 9, 1, &[2, 4]), "2, 4"),
            (KnobConstraint::Float { min: 0.0, max: 0.5 }, "0 to 0.5"),
            (KnobConstraint::String { max_length: 7, valid: vec![] }, "text of at most 7 bytes"),
            (KnobConstraint::String { max_length: 7, valid: vec!["a".into(), "b".into()] }, "\"a\", \"b\""),
        ] {
            assert_eq!(constraint(&range), want);
        }
        let notes = EngineDetails { behavior_notes: vec![0, 2, 99], ..EngineDetails::default() };
        assert_eq!(behavior_notes(&notes).as_deref(), Some("runtime compilation, supports graph capture, note 99"));
    }
}
