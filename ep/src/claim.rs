//! Which nodes the provider takes, by the rules that need no backend.
//!
//! [`recognise`] reads a run of nodes as one [`Recognised`] group or says why it is none. It is asked with nodes of the
//! whole graph when nodes are claimed and with the claimed ones when they are compiled, and depends on nothing else, so
//! that both times it gives the same answer.

use hipdnn_schemas::DataType;
use hipdnn_sdk_bindings::ort::ElementType;

use crate::error::Error;
use crate::graph::{Node, TensorType, ValueInfo};
use crate::translate::{Activation, AutoPad, ConvAttributes, Group, Side, Step};

/// A run of nodes that is a group.
pub(crate) struct Recognised<'a> {
    /// What they compute.
    pub group: Group,
    /// The inputs in the order of the graph's uids: x, w, the bias if there is one, residuals.
    pub inputs: Vec<Input<'a>>,
    /// The value that the last node writes.
    pub output: ValueInfo<'a>,
    /// The constants whose values are in the group itself.
    pub bounds: Vec<ClipBound<'a>>,
}

/// A constant that is a bound of a `Clip` of the group.
pub(crate) struct ClipBound<'a> {
    /// The value.
    pub value: ValueInfo<'a>,
    /// Which step of the group is the `Clip`.
    pub step: usize,
    /// Which of its bounds this is.
    pub side: Side,
}

/// An input of a group.
#[derive(Clone)]
pub(crate) struct Input<'a> {
    /// The value.
    pub value: ValueInfo<'a>,
    /// What is known of it.
    pub tensor: TensorType,
}

/// Why nodes are no group; the text is for users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Declined(pub String);

impl From<Error> for Declined {
    fn from(error: Error) -> Declined {
        Declined(error.message)
    }
}

fn declined<T>(reason: impl Into<String>) -> Result<T, Declined> {
    Err(Declined(reason.into()))
}

/// Whether a group can begin with this node.
pub(crate) fn begins_group(node: &Node<'_>) -> Result<bool, Error> {
    Ok(node.domain()?.is_empty() && node.op_type()? == "Conv")
}

/// Reads nodes, each after those that it reads, as one group.
///
/// # Errors
/// Why they are none.
pub(crate) fn recognise<'a>(nodes: &[Node<'a>]) -> Result<Recognised<'a>, Declined> {
    let Some((first, rest)) = nodes.split_first() else { return declined("there are no nodes") };
    let mut recognised = convolution(first)?;
    let mut rest = rest;
    while let Some(step) = next_step(&recognised, rest)? {
        rest = &rest[step.nodes..];
        recognised.take(step);
    }
    match rest.first() {
        None => Ok(recognised),
        Some(node) => declined(format!("{} is not computed with what is before it", node.op_type()?)),
    }
}

impl<'a> Recognised<'a> {
    fn take(&mut self, step: NextStep<'a>) {
        self.inputs.extend(step.input);
        let index = self.group.tail.len();
        self.bounds.extend(step.bounds.into_iter().map(|(side, value)| ClipBound { value, step: index, side }));
        self.group.tail.push(step.step);
        self.output = step.output;
    }
}

fn convolution<'a>(node: &Node<'a>) -> Result<Recognised<'a>, Declined> {
    let (domain, op) = (node.domain()?, node.op_type()?);
    if !begins_group(node)? {
        let domain = if domain.is_empty() { "ai.onnx" } else { domain };
        return declined(format!("the provider does not take {op} of {domain}"));
    }
    let mut operands = node.inputs()?.into_iter();
    let mut operand =
        |name: &str| operands.next().flatten().ok_or_else(|| Declined(format!("input {name} is missing")));
    let (x, w) = (operand("X")?, operand("W")?);
    let bias = operand("B").ok();
    let (x, w) = (input(x, "X")?, input(w, "W")?);
    let Some(output) = node.outputs()?.into_iter().next().flatten() else { return declined("output Y is missing") };

    let data_type = data_type(x.tensor.element)?;
    let weights = known_extents(&w, "W")?;
    let rank = weights.len();
    if !(3..=5).contains(&rank) {
        return declined(format!("W has rank {rank}; convolutions have 1, 2 or 3 spatial dimensions"));
    }
    if let Some(shape) = &x.tensor.shape
        && shape.len() != rank
    {
        return declined(format!("X has rank {}, W has rank {rank}", shape.len()));
    }
    let conv = attributes(node, &weights)?;
    let channels = weights[1] * conv.group;
    if let Some(found) = x.tensor.shape.as_ref().map(|shape| shape[1])
        && found >= 0
        && found != channels
    {
        return declined(format!("X has {found} channels, W wants {channels}"));
    }
    let mut inputs = vec![x, w];
    let has_bias = bias.is_some();
    if let Some(bias) = bias {
        let bias = input(bias, "B")?;
        let extents = known_extents(&bias, "B")?;
        if extents != [weights[0]] {
            return declined(format!("B has extents {extents:?}, W has {} filters", weights[0]));
        }
        inputs.push(bias);
    }
    for input in &inputs[1..] {
        if input.tensor.element != inputs[0].tensor.element {
            return declined(format!("inputs are of types {} and {}", inputs[0].tensor.element, input.tensor.element));
        }
    }
    let group = Group { name: node.label()?.to_string(), data_type, conv, weights, bias: has_bias, tail: Vec::new() };
    if let Some(shape) = &inputs[0].tensor.shape
        && shape.iter().all(|extent| *extent >= 0)
    {
        let geometry = group.geometry(shape).map_err(Declined)?;
        if geometry.y.contains(&0) {
            return declined(format!("the output has extents {:?}: there is nothing to compute", geometry.y));
        }
    }
    Ok(Recognised { group, inputs, output, bounds: Vec::new() })
}

/// The attributes of a `Conv`, with ONNX's defaults filled in.
fn attributes(node: &Node<'_>, weights: &[i64]) -> Result<ConvAttributes, Declined> {
    let raw = RawAttributes {
        auto_pad: node.string(c"auto_pad")?,
        kernel_shape: node.ints(c"kernel_shape")?,
        pads: node.ints(c"pads")?,
        strides: node.ints(c"strides")?,
        dilations: node.ints(c"dilations")?,
        group: node.int(c"group")?,
    };
    raw.check(weights)
}

/// The attributes as the model has them.
#[derive(Clone, Debug, Default)]
struct RawAttributes {
    auto_pad: Option<String>,
    kernel_shape: Option<Vec<i64>>,
    pads: Option<Vec<i64>>,
    strides: Option<Vec<i64>>,
    dilations: Option<Vec<i64>>,
    group: Option<i64>,
}

impl RawAttributes {
    fn check(self, weights: &[i64]) -> Result<ConvAttributes, Declined> {
        let filter = &weights[2..];
        let spatial = filter.len();
        if let Some(axis) = weights.iter().position(|extent| *extent < 1) {
            return declined(format!("W has extent {} along dimension {axis}", weights[axis]));
        }
        if let Some(kernel) = self.kernel_shape
            && !kernel.is_empty()
            && kernel != filter
        {
            return declined(format!("kernel_shape is {kernel:?}, W's is {filter:?}"));
        }
        let auto_pad = match self.auto_pad.as_deref() {
            None | Some("" | "NOTSET") => AutoPad::NotSet,
            Some("SAME_UPPER") => AutoPad::SameUpper,
            Some("SAME_LOWER") => AutoPad::SameLower,
            Some("VALID") => AutoPad::Valid,
            Some(other) => return declined(format!("auto_pad is {other:?}")),
        };
        let list = |name: &str, list: Option<Vec<i64>>, count: usize, least: i64, default: i64| {
            let list = list.filter(|list| !list.is_empty()).unwrap_or_else(|| vec![default; count]);
            match list.iter().find(|value| **value < least) {
                _ if list.len() != count => declined(format!("{name} has {} values, wanted {count}", list.len())),
                Some(value) => declined(format!("{name} has the value {value}, the least is {least}")),
                None => Ok(list),
            }
        };
        if auto_pad != AutoPad::NotSet && self.pads.is_some() {
            return declined(format!("auto_pad is {auto_pad} beside pads, which ONNX Runtime refuses"));
        }
        let mut pre_padding = list("pads", self.pads, 2 * spatial, 0, 0)?;
        let post_padding = pre_padding.split_off(spatial);
        let strides = list("strides", self.strides, spatial, 1, 1)?;
        let dilations = list("dilations", self.dilations, spatial, 1, 1)?;
        for (axis, (stride, dilation)) in strides.iter().zip(&dilations).enumerate() {
            let window = dilation.saturating_mul(filter[axis] - 1).saturating_add(1);
            if auto_pad.begins_inside(*stride, window) {
                return declined(format!(
                    "auto_pad is {auto_pad} with a stride of {stride} and a window of {window} along dimension {}: ONNX \
                     Runtime's own begins behind the first element",
                    axis + 2
                ));
            }
        }
        let group = self.group.unwrap_or(1);
        if group < 1 || weights[0] % group != 0 {
            return declined(format!("{} filters cannot be split into {group} groups", weights[0]));
        }
        if weights[1].checked_mul(group).is_none() {
            return declined(format!("{group} groups of {} channels are too many", weights[1]));
        }
        Ok(ConvAttributes { auto_pad, pre_padding, post_padding, strides, dilations, group })
    }
}

fn input<'a>(value: ValueInfo<'a>, name: &str) -> Result<Input<'a>, Declined> {
    match value.tensor()? {
        Some(tensor) => Ok(Input { value, tensor }),
        None => declined(format!("the type of input {name} is not known")),
    }
}

fn known_extents(input: &Input<'_>, name: &str) -> Result<Vec<i64>, Declined> {
    let mut shape = input.tensor.shape.clone();
    if shape.as_ref().is_none_or(|shape| shape.iter().any(|extent| *extent < 0)) && input.value.is_constant()? {
        shape = input.value.initializer()?.and_then(|(tensor, _)| tensor.shape);
    }
    match shape {
        Some(shape) if shape.iter().all(|extent| *extent >= 0) => Ok(shape),
        _ => declined(format!("the extents of {name} are not known before the model runs")),
    }
}

fn data_type(element: ElementType) -> Result<DataType, Declined> {
    match element {
        ElementType::FLOAT => Ok(DataType::Float),
        ElementType::FLOAT16 => Ok(DataType::Half),
        ElementType::BFLOAT16 => Ok(DataType::BFloat16),
        other => declined(format!("tensors are of type {other}; FLOAT, FLOAT16 and BFLOAT16 are taken")),
    }
}

/// A step that follows a group.
struct NextStep<'a> {
    step: Step,
    input: Option<Input<'a>>,
    output: ValueInfo<'a>,
    bounds: Vec<(Side, ValueInfo<'a>)>,
    /// How many nodes it takes.
    nodes: usize,
}

/// Reads the first of `nodes` as the step that follows the value `current`, of these extents.
fn next_step<'a>(recognised: &Recognised<'a>, nodes: &[Node<'a>]) -> Result<Option<NextStep<'a>>, Declined> {
    let Some(first) = nodes.first() else { return Ok(None) };
    let current = recognised.output.name()?;
    let inputs = first.inputs()?;
    let Some(output) = first.outputs()?.into_iter().next().flatten() else { return Ok(None) };
    let reads = |value: &Option<ValueInfo<'a>>| match value {
        Some(value) => Ok::<_, Error>(value.name()? == current),
        None => Ok(false),
    };
    if first.domain()?.is_empty() && first.op_type()? == "Add" {
        let [one, other] = inputs.as_slice() else { return Ok(None) };
        let other = match (reads(one)?, reads(other)?) {
            (true, false) => other,
            (false, true) => one,
            _ => return Ok(None),
        };
        let Some(other) = *other else { return Ok(None) };
        let input = input(other, "of Add")?;
        if !same_extents(recognised, &input) {
            return Ok(None);
        }
        let step = Step::AddInput;
        return Ok(Some(NextStep { step, input: Some(input), output, bounds: Vec::new(), nodes: 1 }));
    }
    let Some(value) = inputs.first() else { return Ok(None) };
    if !reads(value)? {
        return Ok(None);
    }
    let Some(activation) = activation(first, &inputs)? else { return Ok(None) };
    // `x · f(x)` in two nodes.
    if let (Activation::Sigmoid | Activation::HardSigmoid(..), Some(second)) = (activation, nodes.get(1))
        && second.domain()?.is_empty()
        && second.op_type()? == "Mul"
    {
        let gate = output.name()?;
        let mut names = Vec::new();
        for input in second.inputs()?.into_iter().flatten() {
            names.push(input.name()?);
        }
        let product = second.outputs()?.into_iter().next().flatten();
        if let Some(product) = product
            && (names == [current, gate] || names == [gate, current])
        {
            let activation = match activation {
                Activation::HardSigmoid(alpha, beta) => Activation::HardSwish(alpha, beta),
                _ => Activation::Swish(1.0),
            };
            let step = Step::Activation(activation);
            return Ok(Some(NextStep { step, input: None, output: product, bounds: Vec::new(), nodes: 2 }));
        }
    }
    let bounds = if matches!(activation, Activation::Clip(..)) {
        let sides = [Side::Low, Side::High].into_iter().zip(inputs.iter().skip(1));
        sides.filter_map(|(side, input)| Some((side, (*input)?))).collect()
    } else {
        Vec::new()
    };
    Ok(Some(NextStep { step: Step::Activation(activation), input: None, output, bounds, nodes: 1 }))
}

/// Whether an input certainly has the extents of the group's output. Only then is adding it no broadcast.
fn same_extents(recognised: &Recognised<'_>, input: &Input<'_>) -> bool {
    let known = |tensor: &TensorType| tensor.shape.clone().filter(|shape| shape.iter().all(|extent| *extent > 0));
    let x = &recognised.inputs[0].tensor;
    let Some(y) = known(x).and_then(|x| recognised.group.geometry(&x).ok()) else { return false };
    input.tensor.element == x.element && known(&input.tensor).is_some_and(|extents| extents == y.y)
}

/// The activation that a node is.
fn activation(node: &Node<'_>, inputs: &[Option<ValueInfo<'_>>]) -> Result<Option<Activation>, Declined> {
    if !node.domain()?.is_empty() {
        return Ok(None);
    }
    let number = |name, default: f32| Ok::<_, Error>(node.float(name)?.unwrap_or(default));
    Ok(Some(match node.op_type()? {
        "Relu" => Activation::Relu,
        "LeakyRelu" => Activation::LeakyRelu(number(c"alpha", 0.01)?),
        "Sigmoid" => Activation::Sigmoid,
        "Tanh" => Activation::Tanh,
        "Elu" => Activation::Elu(number(c"alpha", 1.0)?),
        "Softplus" => Activation::Softplus,
        "HardSigmoid" => Activation::HardSigmoid(number(c"alpha", 0.2)?, number(c"beta", 0.5)?),
        "HardSwish" => Activation::HardSwish(1.0 / 6.0, 0.5),
        "Swish" => Activation::Swish(number(c"alpha", 1.0)?),
        "Gelu" => match node.string(c"approximate")?.as_deref() {
            None | Some("" | "none") => Activation::Gelu,
            Some("tanh") => Activation::GeluTanh,
            Some(_) => return Ok(None),
        },
        // The bounds were attributes before they were inputs.
        "Clip" if node.since_version()? < 11 => Activation::Clip(node.float(c"min")?, node.float(c"max")?),
        "Clip" => {
            let (Some(low), Some(high)) = (bound(inputs.get(1))?, bound(inputs.get(2))?) else { return Ok(None) };
            Activation::Clip(low.0, high.0)
        }
        _ => return Ok(None),
    }))
}

/// A bound of `Clip`, which may be left out.
struct Bound(Option<f32>);

/// Reads a bound; `None` if it is not known before the model runs.
fn bound(value: Option<&Option<ValueInfo<'_>>>) -> Result<Option<Bound>, Declined> {
    let Some(Some(value)) = value else { return Ok(Some(Bound(None))) };
    if !value.is_constant()? {
        return Ok(None);
    }
    let Some((tensor, bytes)) = value.initializer()? else { return Ok(None) };
    Ok(scalar(tensor.element, bytes).map(|value| Bound(Some(value))))
}

/// The number that a tensor of these bytes is, if it is one of a type that groups have.
pub(crate) fn scalar(element: ElementType, bytes: &[u8]) -> Option<f32> {
    match element {
        ElementType::FLOAT => Some(f32::from_ne_bytes(bytes.try_into().ok()?)),
        ElementType::FLOAT16 => Some(half::f16::from_ne_bytes(bytes.try_into().ok()?).to_f32()),
        ElementType::BFLOAT16 => Some(half::bf16::from_ne_bytes(bytes.try_into().ok()?).to_f32()),
        _ => None,
    }
}

/// The most steps behind a convolution.
const MOST_STEPS: usize = 4;
/// The most bounds of `Clip` behind one.
pub(crate) const MAX_BOUNDS: usize = 2 * MOST_STEPS;
/// The most inputs that are added.
const MOST_ADDED: usize = 2;

/// The convolution `first` with the nodes that can be computed with it: `first` alone, then with each further step.
/// What is between them nobody else reads.
///
/// # Errors
/// If the runtime does not answer.
pub(crate) fn grow<'a>(first: Node<'a>, taken: impl Fn(usize) -> bool) -> Result<Vec<Vec<Node<'a>>>, Error> {
    let mut nodes = vec![first];
    let mut sizes = vec![nodes.clone()];
    let Ok(mut recognised) = recognise(&nodes) else { return Ok(sizes) };
    for _ in 0..MOST_STEPS {
        let Some(next) = only_readers(&recognised.output, &taken)? else { break };
        let Ok(Some(step)) = next_step(&recognised, &next) else { break };
        // A reader that the step does not take would see its input vanish.
        if step.nodes != next.len() {
            break;
        }
        let added = recognised.group.tail.iter().filter(|step| **step == Step::AddInput).count();
        if step.step == Step::AddInput && added == MOST_ADDED {
            break;
        }
        nodes.extend(next);
        recognised.take(step);
        sizes.push(nodes.clone());
    }
    Ok(sizes)
}

/// All nodes that read a value, each after those whose outputs it reads; `None` if there is another reader.
fn only_readers<'a>(value: &ValueInfo<'a>, taken: impl Fn(usize) -> bool) -> Result<Option<Vec<Node<'a>>>, Error> {
    if value.is_graph_output()? {
        return Ok(None);
    }
    let uses = value.consumers()?;
    let mut readers: Vec<Node<'a>> = Vec::new();
    for (node, input) in uses {
        // Bodies read values without having them as inputs.
        if input < 0 || taken(node.id()?) || !matches!(node.ep_name()?, "" | crate::NAME_TEXT) {
            return Ok(None);
        }
        readers.push(node);
    }
    match readers.as_slice() {
        [_] => Ok(Some(readers)),
        [one, other] => {
            let (gate, product) = if one.op_type()? == "Mul" { (*other, *one) } else { (*one, *other) };
            // Of the two only the second may be seen from elsewhere.
            let outputs = gate.outputs()?;
            let [Some(output)] = outputs.as_slice() else { return Ok(None) };
            let alone = !output.is_graph_output()? && output.uses()? == 1 && gate.id()? != product.id()?;
            Ok(alone.then(|| vec![gate, product]))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(weights: &[i64], change: impl FnOnce(&mut RawAttributes)) -> Result<ConvAttributes, String> {
        let mut raw = RawAttributes::default();
        change(&mut raw);
        raw.check(weights).map_err(|declined| declined.0)
    }

    #[test]
    fn defaults() {
        let want = ConvAttributes {
            auto_pad: AutoPad::NotSet,
            pre_padding: vec![0, 0],
            post_padding: vec![0, 0],
            strides: vec![1, 1],
            dilations: vec![1, 1],
            group: 1,
        };
        assert_eq!(check(&[4, 3, 3, 3], |_| ()), Ok(want.clone()));
        let explicit = |raw: &mut RawAttributes| {
            *raw = RawAttributes {
                auto_pad: Some("NOTSET".to_string()),
                kernel_shape: Some(vec![3, 3]),
                pads: Some(vec![0; 4]),
                strides: Some(vec![1, 1]),
                dilations: Some(vec![1, 1]),
                group: Some(1),
            };
        };
        assert_eq!(check(&[4, 3, 3, 3], explicit), Ok(want));
    }

    #[test]
    fn padding_comes_in_two_halves() {
        let conv = check(&[4, 3, 3, 3, 3], |raw| raw.pads = Some(vec![1, 2, 3, 4, 5, 6])).unwrap();
        assert_eq!((conv.pre_padding, conv.post_padding), (vec![1, 2, 3], vec![4, 5, 6]));
    }

    #[test]
    fn auto_pad_rules_out_pads() {
        for name in ["SAME_UPPER", "SAME_LOWER", "VALID"] {
            for pads in [vec![0, 0], vec![7, 7]] {
                let conv = check(&[4, 3, 3], |raw| {
                    raw.auto_pad = Some(name.to_string());
                    raw.pads = Some(pads);
                });
                assert_eq!(conv, Err(format!("auto_pad is {name} beside pads, which ONNX Runtime refuses")));
            }
        }
    }

    #[test]
    fn windows_that_may_begin_behind_the_first_element() {
        for (name, stride, dilation, window, taken) in [
            ("SAME_UPPER", 3, 1, 1, true),
            ("SAME_UPPER", 4, 1, 1, false),
            ("SAME_UPPER", 4, 1, 2, true),
            ("SAME_UPPER", 5, 1, 2, false),
            ("SAME_UPPER", 5, 2, 3, true),
            ("SAME_UPPER", i64::MAX, 1, 3, false),
            ("SAME_LOWER", 4, 1, 1, true),
            ("SAME_LOWER", 5, 1, 1, false),
            ("VALID", 9, 1, 1, true),
            ("NOTSET", 9, 1, 1, true),
        ] {
            let conv = check(&[4, 3, (window - 1) / dilation + 1], |raw| {
                raw.auto_pad = Some(name.to_string());
                raw.strides = Some(vec![stride]);
                raw.dilations = Some(vec![dilation]);
            });
            assert_eq!(conv.is_ok(), taken, "{name}, stride {stride}, window {window}: {conv:?}");
        }
    }

    #[test]
    fn scalars() {
        for (element, bytes, want) in [
            (ElementType::FLOAT, &6f32.to_ne_bytes()[..], Some(6.0)),
            (ElementType::FLOAT16, &half::f16::from_f32(-0.5).to_ne_bytes(), Some(-0.5)),
            (ElementType::BFLOAT16, &half::bf16::from_f32(3.0).to_ne_bytes(), Some(3.0)),
            (ElementType::FLOAT, &[0; 8], None),
            (ElementType::FLOAT, &[], None),
            (ElementType::DOUBLE, &[0; 8], None),
        ] {
            assert_eq!(scalar(element, bytes), want, "{element} {bytes:?}");
        }
    }

    #[test]
    fn mistakes() {
        type Change = fn(&mut RawAttributes);
        let cases: [(&[i64], Change, &str); 9] = [
            (&[4, 3, 3, 3], |raw| raw.auto_pad = Some("SAME".into()), "auto_pad is \"SAME\""),
            (&[4, 3, 3, 3], |raw| raw.kernel_shape = Some(vec![3, 5]), "kernel_shape is [3, 5], W's is [3, 3]"),
            (&[4, 3, 3, 3], |raw| raw.pads = Some(vec![1, 1]), "pads has 2 values, wanted 4"),
            (&[4, 3, 3, 3], |raw| raw.pads = Some(vec![1, -1, 0, 0]), "pads has the value -1, the least is 0"),
            (&[4, 3, 3, 3], |raw| raw.strides = Some(vec![0, 1]), "strides has the value 0, the least is 1"),
            (&[4, 3, 3, 3], |raw| raw.dilations = Some(vec![1]), "dilations has 1 values, wanted 2"),
            (&[4, 3, 3, 3], |raw| raw.group = Some(3), "4 filters cannot be split into 3 groups"),
            (&[4, 3, 3, 3], |raw| raw.group = Some(0), "4 filters cannot be split into 0 groups"),
            (&[4, 0, 3, 3], |_| (), "W has extent 0 along dimension 1"),
        ];
        for (weights, change, want) in cases {
            assert_eq!(check(weights, change), Err(want.to_string()));
        }
    }
}
