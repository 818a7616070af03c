//! hipDNN's JSON form.

use serde_json::{Map, Value};

use crate::field::{Field, expected};
use crate::read::{MAX_NODES, MAX_TENSORS, limit};
use crate::{
    DEFAULT_ALIGNMENT, EngineApiVersion, GraphDef, GraphError, Node, Operation, Ragged, TensorDef, TensorUid,
    TensorValue,
};

type Object = Map<String, Value>;

impl GraphDef {
    /// Decodes hipDNN's JSON form, and the one that this project wrote before, which had all fields of nodes in `inputs`,
    /// `outputs` and `parameters`. Unlike hipDNN's reader, it takes no unknown type names, and it does not insist on
    /// `is_runtime_pass_by_value`, which older files lack.
    ///
    /// # Errors
    /// If the text is not JSON, or a mandatory key is missing or of the wrong type.
    pub fn from_json(text: &str) -> Result<GraphDef, GraphError> {
        let value: Value = serde_json::from_str(text).map_err(|e| GraphError::Json(e.to_string()))?;
        graph(&value).map_err(GraphError::Json)
    }

    /// The description in hipDNN's JSON form. JSON has no infinities and no NaN: such scalars become `null`.
    pub fn to_json(&self) -> String {
        let mut graph = Object::new();
        graph.insert("name".into(), self.name.to_json());
        graph.insert("compute_data_type".into(), self.compute_data_type.to_json());
        graph.insert("intermediate_data_type".into(), self.intermediate_data_type.to_json());
        graph.insert("io_data_type".into(), self.io_data_type.to_json());
        graph.insert("is_override_shape_enabled".into(), self.is_override_shape_enabled.to_json());
        if let Some(id) = self.preferred_engine_id {
            graph.insert("preferred_engine_id".into(), id.to_json());
        }
        if let Some(v) = self.min_required_engine_api_version {
            let version = serde_json::json!({ "major": v.major, "minor": v.minor, "patch": v.patch });
            graph.insert("min_required_engine_api_version".into(), version);
        }
        if let Some(id) = self.id {
            graph.insert("id".into(), Value::from(uuid_text(id)));
        }
        graph.insert("tensors".into(), self.tensors.iter().map(tensor_to_json).collect());
        graph.insert("nodes".into(), self.nodes.iter().map(node_to_json).collect());
        Value::Object(graph).to_string()
    }
}

fn object<'a>(value: &'a Value, what: &str) -> Result<&'a Object, String> {
    value.as_object().ok_or_else(|| expected(what, value))
}

fn mandatory<T: Field>(object: &Object, key: &str) -> Result<T, String> {
    optional(object, key)?.ok_or_else(|| format!("{key} is missing"))
}

fn optional<T: Field>(object: &Object, key: &str) -> Result<Option<T>, String> {
    object.get(key).map(T::from_json).transpose().map_err(|reason| format!("{key}: {reason}"))
}

fn items<'a>(object: &'a Object, key: &str) -> Result<&'a [Value], String> {
    let value = object.get(key).ok_or_else(|| format!("{key} is missing"))?;
    value.as_array().map(Vec::as_slice).ok_or_else(|| format!("{key}: {}", expected("a list", value)))
}

fn graph(value: &Value) -> Result<GraphDef, String> {
    let graph = object(value, "an object")?;
    let tensors = items(graph, "tensors")?;
    let nodes = items(graph, "nodes")?;
    limit("tensors", tensors.len(), MAX_TENSORS)?;
    limit("nodes", nodes.len(), MAX_NODES)?;
    Ok(GraphDef {
        name: mandatory(graph, "name")?,
        compute_data_type: mandatory(graph, "compute_data_type")?,
        intermediate_data_type: mandatory(graph, "intermediate_data_type")?,
        io_data_type: mandatory(graph, "io_data_type")?,
        tensors: tensors
            .iter()
            .enumerate()
            .map(|(i, value)| tensor(value).map_err(|reason| format!("tensors[{i}]: {reason}")))
            .collect::<Result<_, _>>()?,
        nodes: nodes
            .iter()
            .enumerate()
            .map(|(i, value)| node(value).map_err(|reason| format!("nodes[{i}]: {reason}")))
            .collect::<Result<_, _>>()?,
        preferred_engine_id: optional::<Option<i64>>(graph, "preferred_engine_id")?.flatten(),
        is_override_shape_enabled: optional(graph, "is_override_shape_enabled")?.unwrap_or_default(),
        min_required_engine_api_version: graph
            .get("min_required_engine_api_version")
            .filter(|value| !value.is_null())
            .map(version)
            .transpose()
            .map_err(|reason| format!("min_required_engine_api_version: {reason}"))?,
        id: graph
            .get("id")
            .filter(|value| !value.is_null())
            .map(|value| value.as_str().and_then(uuid).ok_or_else(|| format!("id: {}", expected("a UUID", value))))
            .transpose()?,
    })
}

fn version(value: &Value) -> Result<EngineApiVersion, String> {
    let version = object(value, "an object with major, minor and patch")?;
    let part = |key: &str| {
        let value = version.get(key).ok_or_else(|| format!("{key} is missing"))?;
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| format!("{key}: {}", expected("a number of 32 bits", value)))
    };
    Ok(EngineApiVersion { major: part("major")?, minor: part("minor")?, patch: part("patch")? })
}

fn uuid(text: &str) -> Option<[u8; 16]> {
    let dashes_fit =
        text.len() == 36 && text.bytes().enumerate().all(|(i, b)| (b == b'-') == [8, 13, 18, 23].contains(&i));
    let digits: String = text.chars().filter(|c| c.is_ascii_hexdigit()).collect();
    if !dashes_fit || digits.len() != 32 {
        return None;
    }
    Some(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes())
}

fn uuid_text(id: [u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(id));
    format!("{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..])
}

fn node(value: &Value) -> Result<Node, String> {
    let node = object(value, "an object")?;
    let kind: String = mandatory(node, "type")?;
    Ok(Node {
        name: mandatory(node, "name")?,
        compute_data_type: mandatory(node, "compute_data_type")?,
        operation: Operation::from_json(&kind, node)?,
    })
}

fn node_to_json(node: &Node) -> Value {
    let mut json = Object::new();
    json.insert("name".into(), node.name.to_json());
    json.insert("compute_data_type".into(), node.compute_data_type.to_json());
    node.operation.to_json(&mut json);
    Value::Object(json)
}

fn tensor(value: &Value) -> Result<TensorDef, String> {
    let tensor = object(value, "an object")?;
    let ragged = optional::<Option<TensorUid>>(tensor, "ragged_offset_tensor_uid")?.flatten();
    let multiplier = optional(tensor, "ragged_offset_multiplier")?.unwrap_or(1);
    Ok(TensorDef {
        uid: mandatory(tensor, "uid")?,
        name: mandatory(tensor, "name")?,
        data_type: mandatory(tensor, "data_type")?,
        dims: mandatory(tensor, "dims")?,
        strides: mandatory(tensor, "strides")?,
        is_virtual: mandatory(tensor, "virtual")?,
        value: tensor_value(tensor)?,
        is_runtime_pass_by_value: optional(tensor, "is_runtime_pass_by_value")?.unwrap_or_default(),
        ragged: ragged.map(|offset| Ragged { offset, multiplier }),
        alignment: optional(tensor, "alignment")?.unwrap_or(DEFAULT_ALIGNMENT),
    })
}

fn tensor_to_json(tensor: &TensorDef) -> Value {
    let mut json = Object::new();
    json.insert("uid".into(), tensor.uid.to_json());
    json.insert("name".into(), tensor.name.to_json());
    json.insert("data_type".into(), tensor.data_type.to_json());
    json.insert("dims".into(), tensor.dims.to_json());
    json.insert("strides".into(), tensor.strides.to_json());
    json.insert("virtual".into(), tensor.is_virtual.to_json());
    json.insert("is_runtime_pass_by_value".into(), tensor.is_runtime_pass_by_value.to_json());
    json.insert("alignment".into(), tensor.alignment.to_json());
    if let Some(ragged) = tensor.ragged {
        json.insert("ragged_offset_tensor_uid".into(), ragged.offset.to_json());
        if ragged.multiplier != 1 {
            json.insert("ragged_offset_multiplier".into(), ragged.multiplier.to_json());
        }
    }
    if let Some(value) = tensor.value {
        let (kind, value) = match value {
            TensorValue::Float32(v) => ("Float32Value", v.to_json()),
            TensorValue::Float16(v) => ("Float16Value", v.to_json()),
            TensorValue::BFloat16(v) => ("BFloat16Value", v.to_json()),
            TensorValue::Float8(v) => ("Float8Value", Value::from(v)),
            TensorValue::Int32(v) => ("Int32Value", v.to_json()),
            TensorValue::Float64(v) => ("Float64Value", Value::from(v)),
            TensorValue::Int64(v) => ("Int64Value", v.to_json()),
            TensorValue::Bool(v) => ("BoolValue", v.to_json()),
        };
        json.insert("value_type".into(), Value::from(kind));
        json.insert("value".into(), value);
    }
    Value::Object(json)
}

fn tensor_value(tensor: &Object) -> Result<Option<TensorValue>, String> {
    let Some(kind) = optional::<String>(tensor, "value_type")?.filter(|kind| kind != "NONE") else {
        return Ok(None);
    };
    let value = tensor.get("value").ok_or("value is missing beside value_type")?;
    let decoded = match kind.as_str() {
        "Float32Value" => f32::from_json(value).map(TensorValue::Float32),
        "Float16Value" => f32::from_json(value).map(TensorValue::Float16),
        "BFloat16Value" => f32::from_json(value).map(TensorValue::BFloat16),
        "Float8Value" => {
            let byte = value.as_u64().and_then(|number| u8::try_from(number).ok());
            byte.map(TensorValue::Float8).ok_or_else(|| expected("a byte", value))
        }
        "Int32Value" => i32::from_json(value).map(TensorValue::Int32),
        "Float64Value" => value.as_f64().map(TensorValue::Float64).ok_or_else(|| expected("a number", value)),
        "Int64Value" => i64::from_json(value).map(TensorValue::Int64),
        "BoolValue" => bool::from_json(value).map(TensorValue::Bool),
        other => return Err(format!("value_type: {}", expected("the name of a value struct", &Value::from(other)))),
    };
    decoded.map(Some).map_err(|reason| format!("value: {reason}"))
}
