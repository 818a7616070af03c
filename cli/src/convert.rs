//! `convert`: a graph in the other form.

use std::path::Path;

use hipdnn_schemas::GraphDef;

use crate::Answer;
use crate::arguments::{Convert, Form};
use crate::content::read_graph;

/// Reads a graph in either form and writes it in one.
pub(crate) fn convert(arguments: &Convert) -> Result<Answer, String> {
    let source = read_graph(&arguments.file)?;
    let bytes = match arguments.to {
        Form::Binary => source.def.to_bytes(),
        Form::Json => json(&source.def).map_err(|problem| format!("{}: {problem}", arguments.file.display()))?,
    };
    let path = &arguments.output;
    if path == Path::new("-") {
        return Ok(Answer::new(bytes, true));
    }
    std::fs::write(path, &bytes).map_err(|problem| format!("{}: {problem}", path.display()))?;
    Ok(Answer::new(format!("{}: {} bytes\n", path.display(), bytes.len()), true))
}

/// hipDNN's JSON form, in lines.
fn json(def: &GraphDef) -> Result<Vec<u8>, String> {
    let text = def.to_json();
    // JSON has no infinities and no NaN, and silence would lose them.
    if GraphDef::from_json(&text).as_ref() != Ok(def) {
        return Err("the graph has no JSON form: a scalar or an attribute is infinite or not a number".into());
    }
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|problem| problem.to_string())?;
    let mut lines = serde_json::to_vec_pretty(&value).map_err(|problem| problem.to_string())?;
    lines.push(b'\n');
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use hipdnn_schemas::{DataType, TensorDef, TensorValue};

    use super::*;

    #[test]
    fn what_json_cannot_say_is_an_error() {
        let with = |value: f32| GraphDef {
            tensors: vec![TensorDef::new(1, DataType::Float, &[1]).with_value(TensorValue::Float32(value))],
            ..GraphDef::default()
        };
        let lines = json(&with(0.1)).expect("a number");
        assert_eq!(GraphDef::from_json(std::str::from_utf8(&lines).expect("text")), Ok(with(0.1)));
        for value in [f32::INFINITY, f32::NAN] {
            assert!(json(&with(value)).unwrap_err().contains("has no JSON form"), "{value}");
        }
    }
}
