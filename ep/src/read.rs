//! Reading the runtime's graph into a [`Model`].

use std::collections::HashMap;

use hipdnn_ep_compiler::constants::Token;
use hipdnn_ep_compiler::model::{self, Attribute, Constant, Extent, Model, SMALL_CONSTANT, ValueIndex};

use crate::error::Error;
use crate::graph::{Graph, Node, ValueInfo};

/// Names the content of weights; `None` where nothing is promised of them.
pub(crate) type Naming<'t, 'a> = &'t dyn Fn(&'a [u8]) -> Option<Token>;

/// Copies a graph out of the runtime, constants above [`SMALL_CONSTANT`] bytes excepted; `token` names their contents.
///
/// # Errors
/// If the runtime does not answer.
pub(crate) fn model<'a>(graph: &Graph<'a>, token: Naming<'_, 'a>) -> Result<Model, Error> {
    let model = Model { name: graph.name()?.to_string(), ..Model::default() };
    let mut reader = Reader { model, token, index: HashMap::new() };
    for node in graph.nodes()? {
        let node = reader.node(&node)?;
        reader.model.nodes.push(node);
    }
    Ok(reader.model)
}

/// As [`model`], of the graph of a fused node, whose inputs and outputs are numbered as that node's.
///
/// # Errors
/// If the runtime does not answer.
pub(crate) fn fused<'a>(graph: &Graph<'a>, node: &Node<'a>, token: Naming<'_, 'a>) -> Result<Model, Error> {
    let mut model = model(graph, token)?;
    let mut names: HashMap<&str, ValueIndex> = HashMap::new();
    for (index, value) in model.values.iter().enumerate() {
        names.insert(&value.name, index);
    }
    let numbered = |values: Vec<Option<ValueInfo<'_>>>| {
        values
            .into_iter()
            .flatten()
            .map(|value| {
                let name = value.name()?;
                names.get(name).copied().ok_or_else(|| Error::failed(format!("the fused nodes have no value {name:?}")))
            })
            .collect::<Result<Vec<_>, Error>>()
    };
    let (inputs, outputs) = (numbered(node.inputs()?)?, numbered(node.outputs()?)?);
    (model.inputs, model.outputs) = (inputs, outputs);
    Ok(model)
}

/// Gives a partition that was compiled before the constants that the inputs of its node have, in their order.
///
/// # Errors
/// If they are not what the partition was compiled for, or the runtime does not answer.
pub(crate) fn bind_constants<'a>(model: &mut Model, node: &Node<'a>, token: Naming<'_, 'a>) -> Result<(), Error> {
    let inputs: Vec<ValueInfo<'a>> = node.inputs()?.into_iter().flatten().collect();
    if inputs.len() != model.inputs.len() {
        let (expected, got) = (model.inputs.len(), inputs.len());
        return Err(Error::invalid(format!("expected {expected} inputs of the compiled partition, got {got}")));
    }
    for (input, index) in inputs.iter().zip(model.inputs.clone()) {
        let constant = if input.is_constant()? { constant(input, token)? } else { None };
        same_type(&model.values[index], input)?;
        let known = model.values[index].known_dims();
        if let (Some(constant), Some(known)) = (&constant, &known)
            && constant.dims != *known
        {
            let (name, got) = (&model.values[index].name, &constant.dims);
            return Err(Error::invalid(format!("initializer {name:?}: expected extents {known:?}, got {got:?}")));
        }
        model.values[index].constant = constant;
    }
    let outputs: Vec<ValueInfo<'a>> = node.outputs()?.into_iter().flatten().collect();
    if outputs.len() != model.outputs.len() {
        let (expected, got) = (model.outputs.len(), outputs.len());
        return Err(Error::invalid(format!("expected {expected} outputs of the compiled partition, got {got}")));
    }
    outputs.iter().zip(&model.outputs).try_for_each(|(output, index)| same_type(&model.values[*index], output))
}

/// Compares a value of a compiled partition with what the node's has: a payload may be another model's.
fn same_type(compiled: &model::Value, found: &ValueInfo<'_>) -> Result<(), Error> {
    let Some(tensor) = found.tensor()? else { return Ok(()) };
    let same = |(known, extent): (&Extent, &i64)| match known {
        Extent::Known(known) => *extent < 0 || known == extent,
        Extent::Symbol(_) => true,
    };
    let shapes = match (&compiled.shape, &tensor.shape) {
        (Some(known), Some(found)) => known.len() == found.len() && known.iter().zip(found).all(same),
        _ => true,
    };
    if compiled.element == Some(tensor.element) && shapes {
        return Ok(());
    }
    let expected = compiled.element.unwrap_or_default();
    Err(Error::invalid(format!(
        "{:?} of the compiled partition: expected {expected} of extents {:?}, got {} of extents {:?}",
        compiled.name, compiled.shape, tensor.element, tensor.shape
    )))
}

struct Reader<'t, 'a> {
    model: Model,
    token: Naming<'t, 'a>,
    index: HashMap<String, ValueIndex>,
}

impl<'a> Reader<'_, 'a> {
    fn node(&mut self, node: &Node<'a>) -> Result<model::Node, Error> {
        let attributes: HashMap<String, Attribute> = node.attributes()?.into_iter().collect();
        let has_body = attributes.values().any(|attribute| *attribute == Attribute::Graph);
        let mut inputs = self.values(node.inputs()?)?;
        if has_body {
            inputs.extend(self.values(node.implicit_inputs()?.into_iter().map(Some).collect())?);
        }
        Ok(model::Node {
            label: node.label()?.to_string(),
            domain: node.domain()?.to_string(),
            op_type: node.op_type()?.to_string(),
            since_version: node.since_version()?,
            inputs,
            outputs: self.values(node.outputs()?)?,
            attributes,
            owner: node.ep_name()?.to_string(),
        })
    }

    fn values(&mut self, values: Vec<Option<ValueInfo<'a>>>) -> Result<Vec<Option<ValueIndex>>, Error> {
        values.into_iter().map(|value| value.map(|value| self.value(&value)).transpose()).collect()
    }

    fn value(&mut self, value: &ValueInfo<'a>) -> Result<ValueIndex, Error> {
        let name = value.name()?;
        if let Some(index) = self.index.get(name) {
            return Ok(*index);
        }
        let tensor = value.tensor()?;
        let element = tensor.as_ref().map(|tensor| tensor.element);
        let shape = tensor.and_then(|tensor| {
            let symbols = tensor.symbols;
            let extents = tensor.shape?.into_iter().enumerate().map(|(axis, extent)| match extent {
                0.. => Extent::Known(extent),
                _ if symbols[axis].is_empty() => Extent::Symbol(format!("{name}.{axis}")),
                _ => Extent::Symbol(symbols[axis].clone()),
            });
            Some(extents.collect())
        });
        let constant = if value.is_constant()? { constant(value, self.token)? } else { None };
        self.model.values.push(model::Value {
            name: name.to_string(),
            element,
            shape,
            constant,
            is_output: value.is_graph_output()?,
        });
        let index = self.model.values.len() - 1;
        self.index.insert(name.to_string(), index);
        Ok(index)
    }
}

/// Weights are matrices at least: what has fewer dimensions engines do not prepare.
const LEAST_RANK_OF_WEIGHTS: usize = 2;

fn constant<'a>(value: &ValueInfo<'a>, token: Naming<'_, 'a>) -> Result<Option<Constant>, Error> {
    let Some((tensor, bytes)) = value.initializer()? else { return Ok(None) };
    let Some(dims) = tensor.shape else { return Ok(None) };
    let small = bytes.len() <= SMALL_CONSTANT;
    let float = hipdnn_ep_compiler::import::data_type(tensor.element).is_ok_and(hipdnn_ep_compiler::import::is_float);
    let weights = float && dims.len() >= LEAST_RANK_OF_WEIGHTS && !bytes.is_empty();
    let token = if weights { token(bytes) } else { None };
    Ok(Some(Constant { dims, bytes: small.then(|| bytes.into()), token }))
}
