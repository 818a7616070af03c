//! Descriptors: the objects with attributes that clients build graphs and plans from.
//!
//! A client's `hipdnnBackendDescriptor_t` is a token ([`hipdnn_capi::table`]) for a shared [`Object`]: a descriptor
//! that refers to another one holds the object, whether or not the client still has a token.

mod engine;
mod engine_config;
mod graph;
mod heuristic;
mod knob;
mod operation;
mod plan;
mod profiling;
mod staged;
mod tensor;
mod variant_pack;

use std::sync::Arc;

use hipdnn_sdk_bindings::hipdnn::backend::{AttributeName, DescriptorType};

pub(crate) use engine::Engine;
pub(crate) use engine_config::EngineConfig;
pub(crate) use graph::{FinishedGraph, Graph};
pub(crate) use heuristic::Heuristic;
pub(crate) use knob::{KnobChoice, KnobInfo};
pub(crate) use operation::Operation;
pub(crate) use plan::Plan;
pub(crate) use profiling::ProfilingControl;
pub(crate) use tensor::Tensor;
pub(crate) use variant_pack::VariantPack;

use hipdnn_capi::table::{Slot, Slots};

use crate::abi::pointer::{Elements, Output, Token};
use crate::error::{Error, Result};

/// Object behind a descriptor, by its type.
#[derive(Clone)]
pub(crate) enum Object {
    Graph(Arc<Graph>),
    Tensor(Arc<Tensor>),
    Operation(Arc<Operation>),
    Heuristic(Arc<Heuristic>),
    Engine(Arc<Engine>),
    EngineConfig(Arc<EngineConfig>),
    KnobChoice(Arc<KnobChoice>),
    KnobInfo(Arc<KnobInfo>),
    Plan(Arc<Plan>),
    ProfilingControl(Arc<ProfilingControl>),
    VariantPack(Arc<VariantPack>),
}

/// Maximum number of live descriptors: slots that are never used take no memory.
const MOST: usize = 1 << 20;

static SLOTS: [Slot<Object>; MOST] = [const { Slot::empty() }; MOST];
static DESCRIPTORS: Slots<Object> = Slots::new("a descriptor", 0xD5, &SLOTS);

macro_rules! kinds {
    ($($variant:ident $what:literal $(as $method:ident)? $(ref $by_reference:ident)?;)*) => {
        impl Object {
            $($(pub(crate) fn $method(self) -> Result<Arc<$variant>> {
                match self {
                    Object::$variant(object) => Ok(object),
                    other => Err(other.is_not($what)),
                }
            })?
            $(pub(crate) fn $by_reference(&self) -> Result<&$variant> {
                match self {
                    Object::$variant(object) => Ok(object),
                    other => Err(other.is_not($what)),
                }
            })?)*

            /// Name for messages.
            pub(crate) fn what(&self) -> &'static str {
                match self { $(Object::$variant(_) => $what),* }
            }
        }
    };
}

kinds! {
    Graph "an operation graph" as graph;
    Tensor "a tensor" as tensor;
    Operation "an operation" as operation;
    Heuristic "an engine heuristic";
    Engine "an engine" as engine;
    EngineConfig "an engine configuration" as engine_config;
    KnobChoice "a knob choice" as knob_choice;
    KnobInfo "knob information";
    Plan "an execution plan" ref plan;
    ProfilingControl "a profiling control";
    VariantPack "a variant pack" ref variant_pack;
}

impl Object {
    /// A new descriptor of a type that clients may create.
    pub(crate) fn new(kind: DescriptorType) -> Result<Object> {
        Ok(match kind {
            DescriptorType::ENGINE_DESCRIPTOR => Object::Engine(Arc::default()),
            DescriptorType::ENGINECFG_DESCRIPTOR => Object::EngineConfig(Arc::default()),
            DescriptorType::ENGINEHEUR_DESCRIPTOR => Object::Heuristic(Arc::default()),
            DescriptorType::EXECUTION_PLAN_DESCRIPTOR => Object::Plan(Arc::default()),
            DescriptorType::KNOB_CHOICE_DESCRIPTOR => Object::KnobChoice(Arc::default()),
            DescriptorType::KNOB_INFO_DESCRIPTOR => Object::KnobInfo(Arc::default()),
            DescriptorType::OPERATIONGRAPH_DESCRIPTOR => Object::Graph(Arc::default()),
            DescriptorType::PROFILING_CONTROL_EXT => Object::ProfilingControl(Arc::default()),
            DescriptorType::VARIANT_PACK_DESCRIPTOR => Object::VariantPack(Arc::default()),
            DescriptorType::TENSOR_DESCRIPTOR => Object::Tensor(Arc::default()),
            other => match Operation::new(other) {
                Some(operation) => Object::Operation(Arc::new(operation)),
                None => return Err(Error::not_supported(format!("descriptors of type {other} are not served"))),
            },
        })
    }

    /// The object behind a client's pointer.
    pub(crate) fn find(token: Token) -> Result<Object> {
        Ok(DESCRIPTORS.get(token.get() as u64)?)
    }

    /// Calls `body` with the object behind a client's pointer, which stays meanwhile.
    pub(crate) fn with<R>(token: Token, body: impl FnOnce(&Object) -> Result<R>) -> Result<R> {
        DESCRIPTORS.with(token.get() as u64, body)
    }

    fn is_not(&self, wanted: &str) -> Error {
        Error::bad_param(format!("expected {wanted}, got {}", self.what()))
    }

    /// A new pointer for a client, who owns it.
    pub(crate) fn wrap(self) -> Result<usize> {
        Ok(DESCRIPTORS.insert(self)? as usize)
    }

    /// Takes a client's pointer back.
    pub(crate) fn destroy(token: Token) -> Result<()> {
        drop(DESCRIPTORS.remove(token.get() as u64)?);
        Ok(())
    }

    pub(crate) fn finalize(&self) -> Result<()> {
        match self {
            Object::Graph(graph) => graph.finalize(),
            Object::Tensor(tensor) => tensor.finalize(),
            Object::Operation(operation) => operation.finalize(),
            Object::Heuristic(heuristic) => heuristic.finalize(),
            Object::Engine(engine) => engine.finalize(),
            Object::EngineConfig(config) => config.finalize(),
            Object::KnobChoice(choice) => choice.finalize(),
            Object::KnobInfo(_) => Err(Error::not_supported("knob information is read-only")),
            Object::Plan(plan) => plan.finalize(),
            Object::ProfilingControl(control) => control.finalize(),
            Object::VariantPack(pack) => pack.finalize(),
        }
    }

    pub(crate) fn set(&self, name: AttributeName, elements: Elements<'_>) -> Result<()> {
        match self {
            Object::Graph(graph) => graph.set(name, elements),
            Object::Tensor(tensor) => tensor.set(name, elements),
            Object::Operation(operation) => operation.set(name, elements),
            Object::Heuristic(heuristic) => heuristic.set(name, elements),
            Object::Engine(engine) => engine.set(name, elements),
            Object::EngineConfig(config) => config.set(name, elements),
            Object::KnobChoice(choice) => choice.set(name, elements),
            Object::KnobInfo(_) => Err(unhandled(name)),
            Object::Plan(plan) => plan.set(name, elements),
            Object::ProfilingControl(control) => control.set(name, elements),
            Object::VariantPack(pack) => pack.set(name, elements),
        }
        .map_err(|error| self.named(name, error))
    }

    pub(crate) fn get(&self, name: AttributeName, output: Output<'_>) -> Result<()> {
        match self {
            Object::Graph(graph) => graph.get(name, output),
            Object::Tensor(tensor) => tensor.get(name, output),
            Object::Operation(operation) => operation.get(name, output),
            Object::Heuristic(heuristic) => heuristic.get(name, output),
            Object::Engine(engine) => engine.get(name, output),
            Object::EngineConfig(config) => config.get(name, output),
            Object::KnobChoice(choice) => choice.get(name, output),
            Object::KnobInfo(info) => info.get(name, output),
            Object::Plan(plan) => plan.get(name, output),
            Object::ProfilingControl(control) => control.get(name, output),
            Object::VariantPack(pack) => pack.get(name, output),
        }
        .map_err(|error| self.named(name, error))
    }

    fn named(&self, name: AttributeName, error: Error) -> Error {
        Error { status: error.status, message: format!("{name} of {}: {}", self.what(), error.message) }
    }
}

/// An attribute that a descriptor does not have. Clients take this status for "absent".
fn unhandled(_: AttributeName) -> Error {
    Error::not_supported("the descriptor has no such attribute")
}

/// An optional part that finalizing needs.
fn required<T>(part: Option<T>, name: AttributeName) -> Result<T> {
    part.ok_or_else(|| Error::bad_param(format!("{name} is not set")))
}
