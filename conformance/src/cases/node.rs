//! Single nodes of any kind, described as they stand on the wire: a kind needs no code here to have cases.

use hipdnn_schemas::{DataType, GraphDef, Operation, TensorUid};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::net::Net;
use super::{Case, Layout, text};

/// A table of nodes of one kind: every combination of its lists is a case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// The first part of the names.
    name: String,
    /// The name of the attribute table.
    kind: String,
    /// Attributes other than operands, as JSON has them.
    #[serde(default)]
    attributes: Map<String, Value>,
    /// Types of the operands that name no type of their own.
    types: Vec<String>,
    layouts: Vec<Layout>,
    /// Operands and, behind `>`, results: `x=4,6 scale=1,6:float epsilon=(0.01) > y=4,6`. A name is that on the wire
    /// without `_tensor_uid`; `name[]` is one of a list. In parentheses stands the value of a scalar that is fixed in
    /// the graph.
    shapes: Vec<String>,
}

impl Table {
    pub(super) fn expand(&self, cases: &mut Vec<Case>) -> Result<(), String> {
        for shape in &self.shapes {
            for types in &self.types {
                for layout in &self.layouts {
                    let case = self.case(shape, types, *layout);
                    cases.push(case.map_err(|problem| format!("{}: {shape}: {problem}", self.name))?);
                }
            }
        }
        Ok(())
    }

    fn case(&self, shape: &str, types: &str, layout: Layout) -> Result<Case, String> {
        let data_type = text::data_type(types)?;
        let mut net = Net::new(DataType::Float);
        let (read, written) = shape.split_once('>').ok_or("expected operands, then > and results")?;
        let [inputs, outputs] = [read, written].map(|list| operands(&mut net, list, data_type, layout));
        let operation = self.operation(inputs?, outputs?)?;
        net.node(operation);
        let extents: Vec<String> = shape.split_whitespace().filter(|word| *word != ">").map(extents).collect();
        let name = format!("{}/{}/{types}/{}", self.name, layout.name(), extents.join("-"));
        Ok(Case::new(name, net))
    }

    /// The operation, read as the node of a graph in JSON.
    fn operation(&self, inputs: Map<String, Value>, outputs: Map<String, Value>) -> Result<Operation, String> {
        let node = json!({
            "name": "", "type": self.kind, "compute_data_type": "float",
            "inputs": inputs, "outputs": outputs, "parameters": self.attributes,
        });
        let graph = json!({
            "name": "", "compute_data_type": "float", "intermediate_data_type": "float", "io_data_type": "float",
            "tensors": [], "nodes": [node],
        });
        let mut graph = GraphDef::from_json(&graph.to_string()).map_err(|problem| problem.to_string())?;
        Ok(graph.nodes.remove(0).operation)
    }
}

/// The extents of an operand's word, or its value, for names.
fn extents(word: &str) -> String {
    let (_, what) = word.split_once('=').unwrap_or(("", word));
    what.replace(',', "x").replace(':', "-").replace(['(', ')'], "")
}

/// The operands of a list, by their names on the wire.
fn operands(net: &mut Net, list: &str, data_type: DataType, layout: Layout) -> Result<Map<String, Value>, String> {
    let mut fields = Map::new();
    for word in list.split_whitespace() {
        let (name, what) = word.split_once('=').ok_or_else(|| format!("expected name=extents, got {word:?}"))?;
        let TensorUid(uid) = operand(net, name.trim_end_matches("[]"), what, data_type, layout)?;
        match name.strip_suffix("[]") {
            None => drop(fields.insert(format!("{name}_tensor_uid"), uid.into())),
            Some(name) => {
                let list = fields.entry(format!("{name}_tensor_uids")).or_insert_with(|| json!([]));
                list.as_array_mut().ok_or_else(|| format!("{name} is a list and none"))?.push(uid.into());
            }
        }
    }
    Ok(fields)
}

fn operand(net: &mut Net, name: &str, what: &str, data_type: DataType, layout: Layout) -> Result<TensorUid, String> {
    if let Some(value) = what.strip_prefix('(').and_then(|what| what.strip_suffix(')')) {
        let value = value.parse().map_err(|_| format!("expected a number, got {value:?}"))?;
        return Ok(net.scalar(name, DataType::Float, value));
    }
    let (dims, own) = what.split_once(':').map_or((what, None), |(dims, own)| (dims, Some(own)));
    let data_type = own.map_or(Ok(data_type), text::data_type)?;
    Ok(net.real(name, data_type, &text::numbers(dims)?, layout))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hipdnn_schemas::Graph;

    const RMSNORM: &str = "x=4,6 scale=1,6:float epsilon=(0.01) > y=4,6 inv_rms=4,1:float";

    fn table(kind: &str, attributes: &Value, shape: &str) -> Table {
        Table {
            name: "node".to_string(),
            kind: kind.to_string(),
            attributes: attributes.as_object().cloned().unwrap_or_default(),
            types: vec!["half".to_string()],
            layouts: vec![Layout::Reversed],
            shapes: vec![shape.to_string()],
        }
    }

    fn cases(table: &Table) -> Result<Vec<Case>, String> {
        let mut cases = Vec::new();
        table.expand(&mut cases)?;
        Ok(cases)
    }

    #[test]
    fn a_node_is_read_with_its_operands_and_attributes() {
        let phase = json!({ "forward_phase": "TRAINING" });
        let [case] = &cases(&table("RMSNormAttributes", &phase, RMSNORM)).unwrap()[..] else { panic!("one case") };
        assert_eq!(case.name, "node/reversed/half/4x6-1x6-float-0.01-4x6-4x1-float");
        let graph = Graph::new(case.graph.clone()).unwrap();
        let Operation::RmsNorm(node) = &graph.nodes()[0].operation else { panic!("{:?}", graph.nodes()) };
        let tensor = |uid: TensorUid| (graph.tensor(uid).data_type(), graph.tensor(uid).strides());
        assert_eq!(tensor(node.x), (DataType::Half, &[1, 4][..]));
        assert_eq!(tensor(node.inv_rms.unwrap()), (DataType::Float, &[1, 4][..]));
        assert!(graph.tensor(node.epsilon).value().is_some() && node.bias.is_none());
        let custom = json!({ "custom_op_id": "mine", "data": [] });
        let lists = "input[]=4 input[]=5 > output[]=6";
        let [case] = &cases(&table("CustomOpAttributes", &custom, lists)).unwrap()[..] else { panic!("one case") };
        let Operation::CustomOp(node) = &case.graph.nodes[0].operation else { panic!("{:?}", case.graph.nodes) };
        assert_eq!((node.inputs.len(), node.outputs.len(), &node.custom_op_id[..]), (2, 1, "mine"));
    }

    #[test]
    fn what_is_no_node_is_refused_with_the_reason() {
        for (kind, shape, wanted) in [
            ("RMSNormAttributes", "x=4,6", "expected operands, then > and results"),
            ("RMSNormAttributes", "x=4,6 scale=1,6 > y=4,6", "epsilon_tensor_uid is missing"),
            ("RMSNormAttributes", "x > y=4,6", "expected name=extents, got \"x\""),
            ("RMSNormAttributes", "x=4 scale=1 epsilon=(a) > y=4", "expected a number, got \"a\""),
            ("NormAttributes", RMSNORM, "NormAttributes"),
        ] {
            let problem = cases(&table(kind, &json!({}), shape)).expect_err(shape);
            assert!(problem.contains(wanted), "{problem}");
        }
    }
}
