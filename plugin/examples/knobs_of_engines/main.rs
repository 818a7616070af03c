//! Prints the book's page of knobs: `cargo xtask support` writes it.

use hipdnn_engine_cpu::settings::Settings as CpuSettings;
use hipdnn_engine_gpu::settings::Settings as GpuSettings;
use hipdnn_schemas::{Knob, KnobConstraint, KnobValue};

fn main() {
    println!("<!-- Made by `cargo xtask support`. -->\n\n# Knobs as engines describe them\n");
    println!(
        "What clients of hipDNN read of each engine: the knob's type, its default, and the values that are taken. What each one does \
         is told in [hipDNN](hipdnn.md).\n"
    );
    for (engine, knobs) in
        [("HIPDNN_RS_GPU_ENGINE", GpuSettings::describe()), ("HIPDNN_RS_CPU_ENGINE", CpuSettings::describe())]
    {
        println!("## {engine}\n\n| knob | type | default | values | description |\n|---|---|---|---|---|");
        for knob in knobs {
            println!("{}", row(&knob));
        }
        println!();
    }
}

fn row(knob: &Knob) -> String {
    let (kind, default) = match &knob.default {
        KnobValue::Int(value) => ("int", number(*value)),
        KnobValue::Float(value) => ("float", value.to_string()),
        KnobValue::String(text) if text.is_empty() => ("string", "empty".to_owned()),
        KnobValue::String(text) => ("string", format!("`{text}`")),
    };
    let values = knob.constraint.as_ref().map_or("any".to_owned(), values);
    format!("| `{}` | {kind} | {default} | {values} | {} |", knob.id, knob.description.replace('|', "\\|"))
}

fn values(constraint: &KnobConstraint) -> String {
    let listed = |values: Vec<String>| values.join(", ");
    match constraint {
        KnobConstraint::Int { valid, .. } if !valid.is_empty() => listed(valid.iter().map(i64::to_string).collect()),
        KnobConstraint::Int { min, max, .. } => format!("{} to {}", number(*min), number(*max)),
        KnobConstraint::Float { min, max } => format!("{min} to {max}"),
        KnobConstraint::String { valid, .. } if !valid.is_empty() => {
            listed(valid.iter().map(|word| format!("`{word}`")).collect())
        }
        KnobConstraint::String { max_length, .. } => format!("at most {max_length} bytes"),
    }
}

/// A number that a person can read.
fn number(value: i64) -> String {
    if value == i64::MAX { "2⁶³ − 1".to_owned() } else { value.to_string() }
}
