//! Operation descriptors. They all have the same shape, so one table has the attributes of each kind.

mod field;
mod table;

use std::sync::Arc;

use hipdnn_schemas as wire;
use hipdnn_schemas::{DataType, TensorUid};
use hipdnn_sdk_bindings::hipdnn::backend::{AttributeName, AttributeType, DescriptorType};

use self::field::{Field, Kind, Value, Values, uid};
use self::table::{TABLES, Table};
use super::staged::Staged;
use super::{Tensor, required, unhandled};
use crate::abi::pointer::{Elements, Output};
use crate::error::Result;

/// The tensors of a graph by uid.
pub(super) type Tensors = std::collections::HashMap<TensorUid, Arc<Tensor>>;

#[derive(Clone, Default)]
struct Draft {
    name: String,
    values: Values,
}

/// Finalized operation.
pub(super) struct FinishedOperation {
    pub(super) node: wire::Node,
    values: Values,
}

impl FinishedOperation {
    /// The operands as descriptors, inputs before outputs, in the wire format's order.
    pub(super) fn tensors(&self) -> Vec<Arc<Tensor>> {
        let own: Tensors =
            self.values.values().flat_map(Value::tensors).map(|tensor| (uid(tensor), Arc::clone(tensor))).collect();
        let operation = &self.node.operation;
        operation.inputs().into_iter().chain(operation.outputs()).map(|uid| Arc::clone(&own[&uid])).collect()
    }

    /// Two operands that are different tensors under one uid.
    pub(super) fn clash(&self) -> Option<TensorUid> {
        let mut seen = Tensors::new();
        for value in self.values.values() {
            for tensor in value.tensors() {
                let first = seen.entry(uid(tensor)).or_insert_with(|| Arc::clone(tensor));
                if !Arc::ptr_eq(first, tensor) {
                    return Some(uid(tensor));
                }
            }
        }
        None
    }
}

/// An operation descriptor of any kind.
pub(crate) struct Operation {
    table: &'static Table,
    stage: Staged<Draft, FinishedOperation>,
}

impl Operation {
    /// An empty operation, if descriptors of this type are operations that we serve.
    pub(super) fn new(descriptor: DescriptorType) -> Option<Operation> {
        let table = TABLES.iter().find(|table| table.descriptor == descriptor)?;
        Some(Operation { table, stage: Staged::default() })
    }

    /// The operation of a node whose tensors are given.
    pub(super) fn from_node(node: &wire::Node, tensors: &Tensors) -> Result<Operation> {
        let mut values = Values::new();
        let raised = TABLES.iter().find_map(|table| {
            (table.raise)(&node.operation, tensors, &mut values).map(|outcome| outcome.map(|()| table))
        });
        let table = raised.expect("the table has every operation of the wire format")?;
        if let Some(compute) = node.compute_data_type.raise(tensors)? {
            values.insert(table.compute.name, compute);
        }
        let finished = FinishedOperation { node: node.clone(), values };
        Ok(Operation { table, stage: Staged::finished_from(finished) })
    }

    pub(super) fn referred(&self) -> Result<&FinishedOperation> {
        self.stage.referred("operation")
    }

    fn attribute(&self, name: AttributeName) -> Result<Kind> {
        let found = self.table.attributes().find(|attribute| attribute.name == name);
        found.map(|attribute| attribute.kind).ok_or_else(|| unhandled(name))
    }

    pub(super) fn set(&self, name: AttributeName, elements: Elements<'_>) -> Result<()> {
        let mut draft = self.stage.edit()?;
        if name == AttributeName::OPERATION_NAME_EXT {
            draft.name = elements.text()?;
            return Ok(());
        }
        let value = self.attribute(name)?.parse(elements)?;
        draft.values.insert(name, value);
        Ok(())
    }

    pub(super) fn get(&self, name: AttributeName, output: Output<'_>) -> Result<()> {
        let finished = self.stage.read()?;
        match name {
            AttributeName::OPERATION_NAME_EXT => output.text(&finished.node.name),
            AttributeName::OPERATION_TYPE_EXT => {
                output.scalar(AttributeType::OPERATION_TYPE_EXT, self.table.operation.0)
            }
            _ => {
                let kind = self.attribute(name)?;
                match finished.values.get(&name) {
                    Some(value) => value.answer(output),
                    None => kind.answer_unset(output),
                }
            }
        }
    }

    pub(super) fn finalize(&self) -> Result<()> {
        if self.stage.finished().is_some() {
            return Ok(());
        }
        let Draft { name, values } = self.stage.draft().clone();
        for attribute in self.table.attributes().filter(|attribute| attribute.required) {
            required(values.get(&attribute.name), attribute.name)?;
        }
        let operation = (self.table.lower)(&values)?;
        let compute_data_type = DataType::lower(values.get(&self.table.compute.name)).unwrap_or_default();
        let node = wire::Node { name, compute_data_type, operation };
        self.stage.finish(FinishedOperation { node, values })
    }
}
