//! Stored plans: the payload that a plan is serialized to, and from which another process makes it again.
//!
//! A payload holds the graph, the settled configuration (with every choice of the environment or the machine written
//! down), the platform of the plan ([`Portrait::platform`]), its steps ([`Portrait::description`]), and everything that
//! was searched for or compiled ([`Portrait::entries`]). Lowering, fusing and memory planning follow from the graph and
//! are done again, which takes no time; their result has to be the one that is written down. So a plan that is made
//! from a payload is the one that was stored, or none.
//!
//! ```text
//! magic │ stamp │ engine │ platform │ graph │ configuration │ description │ (kind │ key │ value)… │ checksum
//! ```
//!
//! The checksum finds damage, not malice: a payload is code, as a plugin is.

use hipdnn_schemas::{EngineConfig, Graph};

use super::{Declined, Engine};
use crate::error::Error;
use crate::framed::{Reader, Writer};

/// First bytes of a payload.
const MAGIC: &[u8; 8] = b"HDNNRSP\n";

/// Version stamp of a payload: the version of payloads, and this version of the library, since another one may lower
/// and fuse otherwise.
const STAMP: &str = concat!("1 ", env!("CARGO_PKG_VERSION"));

/// Stored result of a search or a compilation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Kind of the entry.
    pub kind: String,
    /// Key: the problem or source that it belongs to.
    pub key: String,
    /// Result as bytes: a choice or a code object.
    pub value: Vec<u8>,
}

/// Description of a plan from which it can be made again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Portrait {
    /// Device and libraries of the plan: it is made again only where this is the same.
    pub platform: String,
    /// Steps as text, equal for equal plans.
    pub description: String,
    /// Results of searches and compilations.
    pub entries: Vec<Entry>,
}

/// Stored plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// Name of the engine.
    pub engine: String,
    /// Serialized graph.
    pub graph: Vec<u8>,
    /// Serialized settled configuration.
    pub config: Vec<u8>,
    /// Portrait of the plan.
    pub portrait: Portrait,
}

impl Payload {
    /// Serializes the payload.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Payload { engine, graph, config, portrait: Portrait { platform, description, entries } } = self;
        let mut writer = Writer::new(MAGIC);
        for text in [STAMP, engine, platform] {
            writer.field(text.as_bytes());
        }
        for field in [graph, config, description.as_bytes()] {
            writer.field(field);
        }
        for Entry { kind, key, value } in entries {
            writer.field(kind.as_bytes());
            writer.field(key.as_bytes());
            writer.field(value);
        }
        writer.finish()
    }

    /// Deserializes a payload of [`Payload::to_bytes`].
    ///
    /// # Errors
    /// If the bytes are something else, of another version, or damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Payload, Error> {
        let wrong = |reason: String| Error::bad_param(format!("serialized_context: {reason}"));
        let damaged = |reason: &str| wrong(format!("expected a whole stored plan, got a damaged one: {reason}"));
        let mut fields = Reader::new(bytes, MAGIC).ok_or_else(|| {
            let got = String::from_utf8_lossy(&bytes[..bytes.len().min(MAGIC.len())]).into_owned();
            let magic = String::from_utf8_lossy(MAGIC);
            wrong(format!("expected a plan that this plugin stored ({magic:?}), got {} bytes of {got:?}", bytes.len()))
        })?;
        let stamp = fields.field().map_err(damaged)?;
        if stamp != STAMP.as_bytes() {
            let stamp = String::from_utf8_lossy(&stamp[..stamp.len().min(40)]);
            return Err(wrong(format!("expected a stored plan of version {STAMP:?}, got {stamp:?}")));
        }
        let mut all = Vec::new();
        while !fields.is_at_end() {
            all.push(fields.field().map_err(damaged)?);
        }
        fields.finish().map_err(damaged)?;
        let [engine, platform, graph, config, description, rest @ ..] = &all[..] else {
            return Err(damaged("fields are missing"));
        };
        let text = |field: &[u8]| String::from_utf8(field.to_vec()).map_err(|_| damaged("a text is no UTF-8"));
        let entry = |fields: &[&[u8]]| match fields {
            [kind, key, value] => Ok(Entry { kind: text(kind)?, key: text(key)?, value: value.to_vec() }),
            _ => Err(damaged("an entry's fields are missing")),
        };
        Ok(Payload {
            engine: text(engine)?,
            graph: graph.to_vec(),
            config: config.to_vec(),
            portrait: Portrait {
                platform: text(platform)?,
                description: text(description)?,
                entries: rest.chunks(3).map(entry).collect::<Result<_, _>>()?,
            },
        })
    }

    /// Parses the graph.
    ///
    /// # Errors
    /// If the bytes are not valid.
    pub fn graph(&self) -> Result<Graph, Error> {
        let graph = Graph::from_bytes(&self.graph);
        graph.map_err(|error| Error::bad_param(format!("serialized_context: the graph: {error}")))
    }

    /// Parses the configuration.
    ///
    /// # Errors
    /// If the bytes are not valid.
    pub fn config(&self) -> Result<EngineConfig, Error> {
        let config = EngineConfig::from_bytes(&self.config);
        config.map_err(|error| Error::bad_param(format!("serialized_context: the configuration: {error}")))
    }

    /// Checks that the plan is for this platform.
    ///
    /// # Errors
    /// If it is for another one.
    pub fn expect_platform(&self, here: &str) -> Result<(), Error> {
        let stored = &self.portrait.platform;
        if stored != here {
            return Err(Error::not_applicable(format!(
                "serialized_context: expected a plan for {here:?}, got one for {stored:?}"
            )));
        }
        Ok(())
    }

    /// Checks that the plan that was made has the stored description.
    ///
    /// # Errors
    /// With the first line that differs.
    pub fn expect_description(&self, made: &str) -> Result<(), Error> {
        let stored = &self.portrait.description;
        if stored == made {
            return Ok(());
        }
        let mut lines = made.lines().zip(stored.lines()).skip_while(|(made, stored)| made == stored);
        let counts = (format!("{} lines", made.lines().count()), format!("{} lines", stored.lines().count()));
        let (made, stored) = lines.next().map_or(counts, |(made, stored)| (made.to_string(), stored.to_string()));
        Err(Error::not_applicable(format!(
            "serialized_context: expected a plan with {made:?}, as its graph is planned here, got {stored:?}"
        )))
    }
}

/// Error of a plan whose graph the engine declines here.
pub fn declined(engine: &dyn Engine, declined: &Declined) -> Error {
    let name = engine.name().to_string_lossy();
    Error::not_applicable(format!("serialized_context: {name} does not compute the stored plan's graph: {declined}"))
}

#[cfg(test)]
mod tests {
    use hipdnn_schemas::{DataType, GraphBuilder, KnobValue, Pointwise, PointwiseMode, TensorDef};

    use super::*;
    use crate::error::ErrorKind;

    fn payload() -> Payload {
        let entry =
            |kind: &str, value: &[u8]| Entry { kind: kind.into(), key: format!("{kind} key"), value: value.into() };
        Payload {
            engine: "SOME_ENGINE".into(),
            graph: vec![1, 2, 3],
            config: vec![],
            portrait: Portrait {
                platform: "a machine".into(),
                description: "one step\ntwo steps".into(),
                entries: vec![entry("kernel", &[7; 40]), entry("choice", b"")],
            },
        }
    }

    #[test]
    fn payloads_come_back() {
        let mut plain = payload();
        plain.portrait.entries.clear();
        for payload in [payload(), plain] {
            assert_eq!(Payload::from_bytes(&payload.to_bytes()), Ok(payload));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_refused() {
        let bytes = payload().to_bytes();
        for at in 0..bytes.len() {
            let error = Payload::from_bytes(&bytes[..at]).unwrap_err().to_string();
            assert!(error.contains("expected") && error.contains("got"), "cut at {at}: {error}");
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                let error = Payload::from_bytes(&damaged).expect_err("damaged").to_string();
                assert!(error.contains("expected") && error.contains("got"), "byte {at}, bit {bit}: {error}");
            }
        }
        assert!(Payload::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn what_is_not_ours_is_refused_with_its_reason() {
        let stamped = |stamp: &str, fields: usize| {
            let mut writer = Writer::new(MAGIC);
            writer.field(stamp.as_bytes());
            (0..fields).for_each(|_| writer.field(b"x"));
            writer.finish()
        };
        let mut not_text = Writer::new(MAGIC);
        [STAMP.as_bytes(), &[0xff], b"", b"", b"", b""].iter().for_each(|field| not_text.field(field));
        for (what, bytes, want) in [
            ("nothing", vec![], "expected a plan that this plugin stored (\"HDNNRSP\\n\"), got 0 bytes"),
            ("another's", b"another plugin's".to_vec(), "got 16 bytes of \"another \""),
            ("an older one", stamped("0 0.1.0", 5), "expected a stored plan of version \"1 "),
            ("a newer one", stamped("2 99.0.0", 5), "got \"2 99.0.0\""),
            ("too few fields", stamped(STAMP, 4), "fields are missing"),
            ("half an entry", stamped(STAMP, 7), "an entry's fields are missing"),
            ("no text", not_text.finish(), "a text is no UTF-8"),
        ] {
            let error = Payload::from_bytes(&bytes).expect_err(what).to_string();
            assert!(error.contains(want), "{what}: {error}");
        }
    }

    #[test]
    fn other_machines_and_other_plans_are_refused() {
        let payload = payload();
        assert_eq!(payload.expect_platform("a machine"), Ok(()));
        let error = payload.expect_platform("another").unwrap_err().to_string();
        assert!(error.ends_with("expected a plan for \"another\", got one for \"a machine\""), "{error}");
        assert_eq!(payload.expect_description("one step\ntwo steps"), Ok(()));
        for (made, want) in [
            ("one step\nthree", "expected a plan with \"three\", as its graph is planned here, got \"two steps\""),
            ("one step", "expected a plan with \"1 lines\", as its graph is planned here, got \"2 lines\""),
        ] {
            let error = payload.expect_description(made).unwrap_err().to_string();
            assert!(error.ends_with(want), "{error}");
        }
        assert!(payload.graph().is_err() && payload.config().is_err());
    }

    /// A stored graph and configuration are read back as they were; what is wrong with others is said of which it is.
    #[test]
    fn the_graph_and_the_configuration_are_parsed() {
        let mut graph = GraphBuilder::new("stored").compute(DataType::Float);
        let x = graph.tensor(TensorDef::new(1, DataType::Float, &[2, 3]));
        let y = graph.tensor(TensorDef::new(2, DataType::Float, &[2, 3]));
        graph.pointwise(Pointwise::unary(PointwiseMode::Exp, x, y));
        let graph = graph.build().unwrap();
        let config = EngineConfig { engine_id: 5, knobs: vec![("a.knob".into(), KnobValue::Int(3))] };
        let stored = Payload { graph: graph.def().to_bytes(), config: config.to_bytes(), ..payload() };
        assert_eq!(stored.graph().unwrap().def(), graph.def());
        assert_eq!(stored.config().unwrap(), config);
        for (error, part) in
            [(payload().graph().unwrap_err(), "graph"), (payload().config().unwrap_err(), "configuration")]
        {
            assert_eq!(error.kind(), ErrorKind::BadParam);
            assert!(error.to_string().starts_with(&format!("serialized_context: the {part}: ")), "{error}");
        }
    }
}
