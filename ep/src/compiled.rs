//! Compiled partitions: what a partition is stored as in a model of EPContext nodes, and what it is made again from.
//!
//! A payload holds the partition's nodes, and the plans of its programs as the engines store them: solvers that were chosen,
//! code that was compiled. Importing, outlining and planning memory follow from the nodes and are done again, which takes
//! no time. Weights stay what they were, initializers of the model.
//!
//! ```text
//! magic │ length │ BLAKE3 of the body │ body: compatibility, model, plans by the content of their graphs │ end
//! ```
//!
//! The hash finds damage, not malice: a payload is code, as a library is.

use std::collections::HashMap;

use hipdnn_ep_compiler::constants::Promise;
use hipdnn_ep_compiler::model::Model;
use hipdnn_schemas::KnobValue;
use serde::{Deserialize, Serialize};

/// First bytes of a payload; the last two are the version of the layout.
const MAGIC: &[u8; 8] = b"HDNNEC01";

/// Last byte: texts lose zeros at their end.
const END: u8 = b'\n';

const LENGTH: usize = size_of::<u64>();
const HASH: usize = blake3::OUT_LEN;
const HEADER: usize = MAGIC.len() + LENGTH + HASH;

/// Target of plans; they are made again only where it is the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Compatibility(pub String);

impl Compatibility {
    /// Of this library and a processor: a GPU's architecture, or the CPU.
    pub(crate) fn of(processor: &str) -> Compatibility {
        Compatibility(format!("{} {} {processor}", crate::NAME_TEXT, crate::VERSION_TEXT))
    }

    /// True if it is one of this provider's, of whatever version and processor.
    pub(crate) fn is_ours(text: &str) -> bool {
        text.split(' ').next() == Some(crate::NAME_TEXT)
    }
}

/// A key of plans: the hash of a region's graph without names, and of what is promised about its tensors.
pub(crate) type PlanKey = [u8; HASH];

/// The key of a region's graph.
pub(crate) fn key(graph: &[u8], promise: &Promise) -> PlanKey {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(graph.len() as u64).to_le_bytes()).update(graph);
    if let Some((_, KnobValue::String(tokens))) = promise.knob() {
        hasher.update(tokens.as_bytes());
    }
    *hasher.finalize().as_bytes()
}

/// A compiled partition.
#[derive(Serialize, Deserialize)]
pub(crate) struct Compiled {
    /// Target of its plans.
    pub compatibility: Compatibility,
    /// Its nodes, without what constants hold.
    pub model: Model,
    /// Stored plans.
    pub plans: HashMap<PlanKey, Vec<u8>>,
}

impl Compiled {
    /// The payload.
    ///
    /// # Errors
    /// If something in it can't be written.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, String> {
        let body = postcard::to_allocvec(self).map_err(|error| error.to_string())?;
        let mut bytes = Vec::with_capacity(HEADER + body.len() + 1);
        bytes.extend(MAGIC);
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(blake3::hash(&body).as_bytes());
        bytes.extend(body);
        bytes.push(END);
        Ok(bytes)
    }

    /// Reads a payload that was made for the same.
    ///
    /// # Errors
    /// The defect, or the other target that it was made for.
    pub(crate) fn parse(bytes: &[u8], wanted: &Compatibility) -> Result<Compiled, String> {
        let refused = |expected: &str, got: String| Err(format!("expected {expected}, got {got}"));
        let Some((magic, rest)) = bytes.split_first_chunk::<{ MAGIC.len() }>() else {
            return refused("a compiled partition", format!("{} bytes", bytes.len()));
        };
        if magic != MAGIC {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).escape_debug().to_string();
            return refused(&format!("a compiled partition that begins with {}", text(MAGIC)), text(magic));
        }
        let Some((length, rest)) = rest.split_first_chunk::<LENGTH>() else {
            return refused("a compiled partition", format!("{} bytes", bytes.len()));
        };
        let length = u64::from_le_bytes(*length);
        if usize::try_from(length).ok().and_then(|length| length.checked_add(HASH + 1)) != Some(rest.len()) {
            let there = rest.len().saturating_sub(HASH + 1);
            return refused(&format!("a compiled partition of {length} bytes"), format!("{there}"));
        }
        let (hash, body) = rest.split_at(HASH);
        let (end, body) = body.split_last().expect("the length counts it");
        if *end != END || blake3::hash(body).as_bytes() != hash {
            return refused("a whole compiled partition", "one that was changed".to_string());
        }
        let (compatibility, _) = postcard::take_from_bytes::<Compatibility>(body)
            .map_err(|error| format!("a compiled partition: {error}"))?;
        if compatibility != *wanted {
            return refused(&format!("a model compiled for {}", wanted.0), format!("one for {}", compatibility.0));
        }
        let compiled: Compiled =
            postcard::from_bytes(body).map_err(|error| format!("a compiled partition: {error}"))?;
        if !compiled.model.is_whole() {
            return refused("nodes that read and write values of the compiled partition", "others".to_string());
        }
        Ok(compiled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hipdnn_ep_compiler::model::{Attribute, Extent, Node, Target, Value};

    fn compiled() -> Compiled {
        let attributes = [("alpha".to_string(), Attribute::Float(f32::NEG_INFINITY))];
        let node = Node {
            label: "leaky".to_string(),
            op_type: "LeakyRelu".to_string(),
            inputs: vec![Some(0), None],
            outputs: vec![Some(1)],
            attributes: HashMap::from(attributes),
            ..Node::default()
        };
        let value = |name: &str| Value {
            name: name.to_string(),
            element: Some(hipdnn_sdk_bindings::ort::ElementType::FLOAT),
            shape: Some(vec![Extent::Known(3), Extent::Symbol("n".to_string())]),
            constant: None,
            is_output: false,
        };
        let model = Model {
            name: "main".to_string(),
            values: vec![value("x"), value("y")],
            nodes: vec![node],
            inputs: vec![0],
            outputs: vec![1],
            target: Target::Gpu,
        };
        let plans = HashMap::from([(key(b"graph", &Promise::default()), b"plan\0".to_vec())]);
        Compiled { compatibility: Compatibility::of("gfx1100"), model, plans }
    }

    #[test]
    fn a_payload_comes_back() {
        let bytes = compiled().to_bytes().unwrap();
        let again = Compiled::parse(&bytes, &Compatibility::of("gfx1100")).unwrap();
        assert_eq!(format!("{:?}", again.model), format!("{:?}", compiled().model));
        assert_eq!(again.plans, compiled().plans);
        assert_ne!(bytes.last(), Some(&0));
    }

    #[test]
    fn damage_is_found_wherever_it_is() {
        let (bytes, wanted) = (compiled().to_bytes().unwrap(), Compatibility::of("gfx1100"));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x20;
            let reason = Compiled::parse(&damaged, &wanted).err().unwrap_or_default();
            assert!(reason.starts_with("expected "), "byte {at}: {reason:?}");
            let reason = Compiled::parse(&bytes[..at], &wanted).err().unwrap_or_default();
            assert!(reason.starts_with("expected "), "{at} bytes: {reason:?}");
        }
        let longer = [&bytes[..], b"x"].concat();
        assert!(Compiled::parse(&longer, &wanted).is_err());
    }

    #[test]
    fn nodes_of_values_that_are_not_there_are_refused() {
        let wanted = Compatibility::of("gfx1100");
        let damages: [fn(&mut Model); 3] =
            [|m| m.inputs.push(2), |m| m.outputs[0] = usize::MAX, |m| m.nodes[0].inputs.push(Some(7))];
        for damage in damages {
            let mut compiled = compiled();
            damage(&mut compiled.model);
            let reason = Compiled::parse(&compiled.to_bytes().unwrap(), &wanted).err().unwrap();
            assert!(reason.starts_with("expected nodes that read and write values"), "{reason}");
        }
    }

    #[test]
    fn others_payloads_are_refused() {
        let bytes = compiled().to_bytes().unwrap();
        let reason = Compiled::parse(&bytes, &Compatibility::of("gfx942")).err().unwrap();
        let version = crate::VERSION_TEXT;
        let want = format!(
            "expected a model compiled for HipDnnRsExecutionProvider {version} gfx942, got one for \
             HipDnnRsExecutionProvider {version} gfx1100"
        );
        assert_eq!(reason, want);
        assert!(Compatibility::is_ours(&Compatibility::of("cpu").0) && !Compatibility::is_ours("Other 1 cpu"));
    }
}
