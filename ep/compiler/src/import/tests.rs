//! Importers as tables: an ONNX node at given extents becomes these operations, or is declined for this reason.

use std::collections::HashMap;

use hipdnn_schemas::{DataType, Operation};
use hipdnn_sdk_bindings::ort::ElementType;

use super::{Declined, Importer};
use crate::ir::Function;
use crate::model::{Attribute, Constant, Extent, Model, Node, Value};

const FLOAT: ElementType = ElementType::FLOAT;
const HALF: ElementType = ElementType::FLOAT16;
const INT64: ElementType = ElementType::INT64;
const UINT8: ElementType = ElementType::UINT8;
const BOOL: ElementType = ElementType::BOOL;

/// An input of the node.
enum Input {
    Tensor(ElementType, &'static [i64]),
    Ints(&'static [i64]),
    Floats(&'static [f32]),
    Missing,
}
use Input::{Floats, Ints, Missing, Tensor};

fn attribute(text: &str, value: Attribute) -> (String, Attribute) {
    (text.to_string(), value)
}

fn int(name: &str, value: i64) -> (String, Attribute) {
    attribute(name, Attribute::Int(value))
}

fn ints(name: &str, values: &[i64]) -> (String, Attribute) {
    attribute(name, Attribute::Ints(values.to_vec()))
}

fn text(name: &str, value: &str) -> (String, Attribute) {
    attribute(name, Attribute::String(value.to_string()))
}

fn value(name: String, element: Option<ElementType>, shape: Option<&[i64]>) -> Value {
    let shape = shape.map(|shape| shape.iter().map(|extent| Extent::Known(*extent)).collect());
    Value { name, element, shape, constant: None, is_output: false }
}

/// A model of one node of the newest operator set.
fn model(operator: &str, inputs: &[Input], attributes: &[(String, Attribute)], outputs: usize) -> Model {
    let mut values = Vec::new();
    let mut numbers = Vec::new();
    for (index, input) in inputs.iter().enumerate() {
        let name = format!("x{index}");
        let constant = |dims: Vec<i64>, bytes: Vec<u8>| Constant { dims, bytes: Some(bytes.into()), token: None };
        let (mut value, constant) = match input {
            Missing => {
                numbers.push(None);
                continue;
            }
            Tensor(element, dims) => (value(name, Some(*element), Some(dims)), None),
            Ints(content) => {
                let dims = [content.len() as i64];
                let bytes = content.iter().flat_map(|v| v.to_ne_bytes()).collect();
                (value(name, Some(INT64), Some(&dims)), Some(constant(dims.to_vec(), bytes)))
            }
            Floats(content) => {
                let dims: &[i64] = if content.len() == 1 { &[] } else { &[content.len() as i64] };
                let bytes = content.iter().flat_map(|v| v.to_ne_bytes()).collect();
                (value(name, Some(FLOAT), Some(dims)), Some(constant(dims.to_vec(), bytes)))
            }
        };
        value.constant = constant;
        numbers.push(Some(values.len()));
        values.push(value);
    }
    let first = values.len();
    values.extend((0..outputs).map(|index| value(format!("y{index}"), None, None)));
    let node = Node {
        label: "node".to_string(),
        op_type: operator.to_string(),
        since_version: 21,
        inputs: numbers,
        outputs: (first..first + outputs).map(Some).collect(),
        attributes: attributes.iter().cloned().collect::<HashMap<_, _>>(),
        ..Node::default()
    };
    let inputs = (0..first).collect();
    Model { values, nodes: vec![node], inputs, outputs: (first..first + outputs).collect(), ..Model::default() }
}

fn import(model: &Model) -> Result<Function, Declined> {
    let mut importer = Importer::new(model);
    for (number, value) in model.inputs.iter().enumerate() {
        let dims = model.values[*value].known_dims().expect("the tests' extents are known");
        importer.bind_input(*value, number, &dims)?;
    }
    importer.import(0)?;
    importer.finish(&model.outputs)
}

/// Operations in words: the mode of what has one.
fn words(function: &Function) -> Vec<String> {
    let word = |operation: &Operation| match operation {
        Operation::Pointwise(pointwise) => pointwise.mode.to_string(),
        Operation::Reduction(reduction) => format!("reduce {}", reduction.mode),
        Operation::ConvolutionFwd(_) => "convolution".to_string(),
        Operation::ConvolutionBwd(_) => "transposed convolution".to_string(),
        Operation::Matmul(_) => "product".to_string(),
        Operation::ResampleFwd(_) => "pooling".to_string(),
        Operation::Layernorm(_) => "layer normalization".to_string(),
        Operation::RmsNorm(_) => "rms normalization".to_string(),
        Operation::BatchnormInferenceVarianceExt(_) => "batch normalization".to_string(),
        _ => "another operation".to_string(),
    };
    function.ops.iter().map(|op| word(&op.operation)).collect()
}

#[test]
fn nodes_become_operations() {
    let image = || Tensor(FLOAT, &[2, 4, 8, 8]);
    type Row<'a> = (&'a str, Vec<Input>, Vec<(String, Attribute)>, &'a [&'a str], &'a [i64]);
    let table: Vec<Row<'_>> = vec![
        ("Relu", vec![image()], vec![], &["relu_fwd"], &[2, 4, 8, 8]),
        ("Add", vec![Tensor(FLOAT, &[2, 3]), Tensor(FLOAT, &[3])], vec![], &["add"], &[2, 3]),
        ("Add", vec![Tensor(FLOAT, &[0, 3]), Tensor(FLOAT, &[3])], vec![], &[], &[0, 3]),
        ("Add", vec![Tensor(INT64, &[]), Tensor(INT64, &[])], vec![], &["add"], &[]),
        (
            "Add",
            vec![Tensor(UINT8, &[3]), Tensor(UINT8, &[3])],
            vec![],
            &["add", "div", "mul", "sub", "add", "div", "mul", "sub", "add"],
            &[3],
        ),
        ("Less", vec![Tensor(INT64, &[3]), Tensor(INT64, &[3])], vec![], &["cmp_lt", "identity"], &[3]),
        ("Where", vec![Tensor(BOOL, &[3]), Tensor(FLOAT, &[3]), Floats(&[0.0])], vec![], &["binary_select"], &[3]),
        ("Clip", vec![image(), Floats(&[0.0]), Floats(&[6.0])], vec![], &["relu_fwd"], &[2, 4, 8, 8]),
        ("Pow", vec![image(), Floats(&[3.0])], vec![], &["mul", "mul"], &[2, 4, 8, 8]),
        (
            "Conv",
            vec![image(), Tensor(FLOAT, &[6, 4, 3, 3]), Tensor(FLOAT, &[6])],
            vec![ints("pads", &[1, 1, 1, 1])],
            &["convolution", "add"],
            &[2, 6, 8, 8],
        ),
        (
            "ConvTranspose",
            vec![image(), Tensor(FLOAT, &[4, 3, 2, 2])],
            vec![ints("strides", &[2, 2])],
            &["transposed convolution"],
            &[2, 3, 16, 16],
        ),
        ("MatMul", vec![Tensor(FLOAT, &[5]), Tensor(FLOAT, &[2, 5, 3])], vec![], &["product"], &[2, 3]),
        ("MaxPool", vec![image()], vec![ints("kernel_shape", &[2, 2])], &["pooling"], &[2, 4, 7, 7]),
        (
            "MaxPool",
            vec![image()],
            vec![ints("kernel_shape", &[2, 2]), ints("dilations", &[2, 2])],
            &["reduce max"],
            &[2, 4, 6, 6],
        ),
        ("GlobalAveragePool", vec![image()], vec![], &["reduce avg"], &[2, 4, 1, 1]),
        ("ReduceSum", vec![image(), Ints(&[1])], vec![int("keepdims", 0)], &["reduce add"], &[2, 8, 8]),
        ("Softmax", vec![image()], vec![], &["reduce max", "sub", "exp", "reduce add", "div"], &[2, 4, 8, 8]),
        ("Transpose", vec![Tensor(FLOAT, &[2, 3])], vec![], &["identity"], &[3, 2]),
        ("Reshape", vec![image(), Ints(&[2, -1])], vec![], &["identity"], &[2, 256]),
        (
            "Slice",
            vec![Tensor(FLOAT, &[3]), Ints(&[-1]), Ints(&[-9]), Ints(&[0]), Ints(&[-1])],
            vec![],
            &["identity"; 3],
            &[3],
        ),
        (
            "Concat",
            vec![Tensor(FLOAT, &[2, 3]), Tensor(FLOAT, &[2, 1])],
            vec![int("axis", 1)],
            &["identity"; 2],
            &[2, 4],
        ),
        ("Gather", vec![Tensor(FLOAT, &[4, 3]), Ints(&[2, 0])], vec![], &["identity"; 2], &[2, 3]),
        ("Cast", vec![Tensor(FLOAT, &[3])], vec![int("to", 10)], &["identity"], &[3]),
    ];
    for (operator, inputs, attributes, operations, dims) in table {
        let model = model(operator, &inputs, &attributes, 1);
        let function = import(&model).unwrap_or_else(|Declined(reason)| panic!("{operator}: {reason}"));
        let mut found = words(&function);
        // The copy to the output, where a view or an input is handed out.
        if found.len() == operations.len() + 1 && found.last().is_some_and(|last| last == "identity") {
            found.pop();
        }
        assert_eq!(found, operations, "{operator}");
        assert_eq!(*function.value(function.outputs[0]).dims, *dims, "{operator}");
    }
}

#[test]
fn nodes_are_declined_with_reasons() {
    let image = || Tensor(FLOAT, &[2, 4, 8, 8]);
    type Row<'a> = (&'a str, Vec<Input>, Vec<(String, Attribute)>, &'a str);
    let table: Vec<Row<'_>> = vec![
        ("NonZero", vec![image()], vec![], "the operator NonZero is not imported"),
        ("Add", vec![Tensor(FLOAT, &[2]), Tensor(HALF, &[2])], vec![], "its inputs are of types half and float"),
        ("Add", vec![Tensor(FLOAT, &[2]), Tensor(FLOAT, &[3])], vec![], "do not broadcast"),
        ("Add", vec![Tensor(BOOL, &[2]), Tensor(BOOL, &[2])], vec![], "is of type boolean"),
        ("Relu", vec![Tensor(ElementType::STRING, &[2])], vec![], "have no hipDNN type"),
        ("Pow", vec![image(), Floats(&[2.5])], vec![], "no operation for the exponent 2.5"),
        ("Pow", vec![image(), Tensor(FLOAT, &[])], vec![], "has to be known before the model runs"),
        ("Conv", vec![image(), Tensor(FLOAT, &[6, 3, 3, 3])], vec![], "the image has 4 channels, the weights want 3"),
        ("Conv", vec![image(), Tensor(FLOAT, &[6, 4, 9, 9])], vec![], "the window is larger than the input"),
        (
            "MatMul",
            vec![Tensor(FLOAT, &[2, 3]), Tensor(FLOAT, &[4, 5])],
            vec![],
            "expected 3 rows of the second matrix, got 4",
        ),
        ("MaxPool", vec![image()], vec![], "expected kernel_shape of 2 values"),
        (
            "AveragePool",
            vec![image()],
            vec![ints("kernel_shape", &[1, 1]), ints("strides", &[2, 2]), text("auto_pad", "SAME_UPPER")],
            "negative padding",
        ),
        ("Pad", vec![image(), Ints(&[0; 8])], vec![text("mode", "reflect")], "padding of mode reflect is not imported"),
        ("Reshape", vec![image(), Ints(&[7, -1])], vec![], "expected a shape of as many elements as"),
        ("Reshape", vec![image(), Tensor(INT64, &[2])], vec![], "has to be known before the model runs"),
        (
            "Slice",
            vec![image(), Ints(&[0]), Ints(&[1]), Ints(&[9])],
            vec![],
            "axis 9 is outside of a tensor of 4 dimensions",
        ),
        ("Cast", vec![Tensor(INT64, &[2])], vec![int("to", 12)], "have no hipDNN type"),
        ("QuantizeLinear", vec![image(), Missing], vec![], "its input 1 is missing"),
    ];
    for (operator, inputs, attributes, wanted) in table {
        let model = model(operator, &inputs, &attributes, 1);
        match import(&model) {
            Ok(function) => panic!("{operator} became {:?}, expected {wanted:?}", words(&function)),
            Err(Declined(reason)) => assert!(reason.contains(wanted), "{operator}: {reason:?}, expected {wanted:?}"),
        }
    }
}

#[test]
fn what_is_declined_leaves_nothing() {
    let model = model("Softmax", &[Tensor(FLOAT, &[2, 3])], &[int("axis", 5)], 1);
    let mut importer = Importer::new(&model);
    importer.bind_input(0, 0, &[2, 3]).unwrap();
    let before = (importer.function.values.len(), importer.function.ops.len());
    importer.import(0).unwrap_err();
    assert_eq!((importer.function.values.len(), importer.function.ops.len()), before);
    assert_eq!(importer.bound_dims(1), None);
}

/// Contents that decide are assumed so that the outputs have their declared extents.
#[test]
fn contents_are_assumed_for_declared_extents() {
    type Row<'a> = (&'a str, Vec<Input>, Vec<(String, Attribute)>, &'a [i64], &'a [&'a [i64]]);
    let table: Vec<Row<'_>> = vec![
        ("ReduceSum", vec![Tensor(FLOAT, &[2, 3, 4]), Tensor(INT64, &[1])], vec![], &[2, 1, 4], &[&[1]]),
        ("ReduceSum", vec![Tensor(FLOAT, &[2, 3, 4]), Tensor(INT64, &[2])], vec![int("keepdims", 0)], &[3], &[&[0, 2]]),
        ("Reshape", vec![Tensor(FLOAT, &[2, 3, 4]), Tensor(INT64, &[2])], vec![], &[6, 4], &[&[6, 4]]),
        ("Unsqueeze", vec![Tensor(FLOAT, &[2, 3]), Tensor(INT64, &[1])], vec![], &[2, 1, 3], &[&[1]]),
        ("Squeeze", vec![Tensor(FLOAT, &[2, 1, 3, 1]), Tensor(INT64, &[1])], vec![], &[2, 3, 1], &[&[1]]),
        ("Expand", vec![Tensor(FLOAT, &[2, 1]), Tensor(INT64, &[3])], vec![], &[4, 2, 5], &[&[4, 2, 5]]),
        ("Tile", vec![Tensor(FLOAT, &[2, 3]), Tensor(INT64, &[2])], vec![], &[4, 3], &[&[2, 1]]),
        ("Pad", vec![Tensor(FLOAT, &[2, 3]), Tensor(INT64, &[4])], vec![], &[3, 5], &[&[1, 2, 0, 0]]),
        (
            "Slice",
            vec![Tensor(FLOAT, &[5, 3]), Tensor(INT64, &[1]), Tensor(INT64, &[1])],
            vec![],
            &[2, 3],
            &[&[0], &[2]],
        ),
        ("ReduceSum", vec![Tensor(FLOAT, &[2, 3, 4]), Tensor(INT64, &[1])], vec![], &[5, 5, 5], &[]),
    ];
    for (operator, inputs, attributes, output, wanted) in table {
        let mut model = model(operator, &inputs, &attributes, 1);
        let last = model.values.len() - 1;
        model.values[last].shape = Some(output.iter().map(|extent| Extent::Known(*extent)).collect());
        let deciding = super::content::deciding(&model);
        let mut importer = Importer::new(&model);
        importer.bind_input(0, 0, &model.values[0].known_dims().unwrap()).unwrap();
        let assumed = importer.assume_contents(0, &deciding);
        let found: Vec<Vec<i64>> = assumed.iter().map(|(_, content)| content.ints().unwrap()).collect();
        assert_eq!(found, wanted, "{operator} {output:?}");
        assert_eq!(importer.import(0).is_ok(), !wanted.is_empty(), "{operator} {output:?}");
    }
}

/// Contents lead to the numbers of a type.
#[test]
fn constants_have_the_type_of_the_operand() {
    let model = model("Add", &[Tensor(INT64, &[2]), Ints(&[7])], &[], 1);
    let function = import(&model).unwrap();
    let types: Vec<DataType> = function.ops[0]
        .operation
        .inputs()
        .into_iter()
        .map(|uid| function.value(crate::ir::ValueId::of(uid)).data_type)
        .collect();
    assert_eq!(types, [DataType::Int64; 2]);
    assert_eq!(function.ops[0].compute, DataType::Int64);
}
