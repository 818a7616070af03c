//! Followers of a convolution that may be one kernel with it in MIOpen: a bias for each channel, an activation.

use hipdnn_engine_kernel::convolution::{DataType, Direction};
use hipdnn_engine_kernel::emit::grouped::{Access, Input};
use hipdnn_engine_kernel::emit::{Element, Op};
use hipdnn_engine_kernel::legalize::{
    CONVOLUTION_ALIGNMENT, ConvolutionDispatch, Dispatch, KernelDispatch, Legalized, Value, lifted, same_strides,
};
use hipdnn_schemas::{Graph, PointwiseMode};

use super::fused::{Activation, Epilogue};

/// A convolution that is one kernel with what follows it.
#[derive(Debug, Clone, PartialEq)]
pub struct FusedConvolution {
    /// Bias and activation that follow.
    pub epilogue: Epilogue,
    /// The bias, if there is one.
    pub bias: Option<Value>,
    /// Destination of the result.
    pub y: Value,
}

/// Bias and activation that the next dispatch applies to a convolution's result, if MIOpen may have both dispatches as one
/// kernel.
pub fn fused_convolution(graph: &Graph, legalized: &Legalized, index: usize) -> Option<FusedConvolution> {
    let [Dispatch::Convolution(convolution), Dispatch::Kernel(map)] = legalized.dispatches.get(index..index + 2)?
    else {
        return None;
    };
    // Nobody else may want what lies between.
    let is_read = |dispatch: &Dispatch| match dispatch {
        Dispatch::Convolution(dispatch) => [dispatch.x, dispatch.w, dispatch.y].contains(&convolution.y),
        Dispatch::Kernel(dispatch) => dispatch.reads.contains(&convolution.y),
    };
    let [output] = map.writes[..] else { return None };
    let between = match convolution.y {
        value if value == output => true,
        Value::Tensor(_) => false,
        Value::Temporary(_) => !legalized.dispatches[index + 2..].iter().any(is_read),
    };
    if !between || convolution.problem.direction != Direction::Forward || !is_aligned(graph, output) {
        return None;
    }
    let (epilogue, bias) = epilogue(convolution, map)?;
    if !bias.is_none_or(|bias| is_aligned(graph, bias)) {
        return None;
    }
    Some(FusedConvolution { epilogue, bias, y: output })
}

/// True if MIOpen may have the value's memory as it is: a caller's tensor is aligned for it.
fn is_aligned(graph: &Graph, value: Value) -> bool {
    match value {
        Value::Tensor(uid) => graph.tensor(uid).alignment() % CONVOLUTION_ALIGNMENT as i64 == 0,
        Value::Temporary(_) => true,
    }
}

fn epilogue(convolution: &ConvolutionDispatch, map: &KernelDispatch) -> Option<(Epilogue, Option<Value>)> {
    let (inputs, mut program, store) = map.kernel.elementwise()?;
    let y = &convolution.problem.y;
    let strides: Vec<i64> = y.strides.iter().map(|stride| *stride as i64).collect();
    let is_plain = |element: Element, access: &Access| {
        element == library_element(y.data_type) && access.offset == 0 && access.bounds.is_empty()
    };
    let lies_so = |access: &Access| same_strides(&y.dims, &lifted(&access.strides, 0), &strides);
    if lifted(&map.kernel.members, 1) != y.dims
        || !is_plain(map.kernel.writes[store.tensor], &store.access)
        || !lies_so(&store.access)
    {
        return None;
    }
    let per_channel = |access: &Access| {
        let channel = if y.dims[1] == 1 { 0 } else { 1 };
        let mut strides = lifted(&access.strides, 0).into_iter().enumerate();
        strides.all(|(axis, stride)| stride == if axis == 1 { channel } else { 0 })
    };
    let (mut result, mut bias) = (None, None);
    for (slot, input) in inputs.iter().enumerate() {
        match input {
            Input::Tensor { tensor, access, .. } if is_plain(map.kernel.reads[*tensor], access) => {
                let value = map.reads[*tensor];
                if value == convolution.y && lies_so(access) {
                    result = Some(slot);
                } else if bias.is_none() && per_channel(access) {
                    bias = Some((slot, value));
                } else {
                    return None;
                }
            }
            _ => return None,
        }
    }
    let mut current = result?;
    if let Some((bias, _)) = bias {
        let (Op::Pointwise { mode: PointwiseMode::Add, operands, .. }, rest) = program.split_first()? else {
            return None;
        };
        if ![[current, bias], [bias, current]].contains(&<[usize; 2]>::try_from(&operands[..]).ok()?) {
            return None;
        }
        (current, program) = (inputs.len(), rest);
    }
    let activation = match program {
        [] => None,
        [op] if op.operands() == [current] => Some(activation(op)?),
        _ => return None,
    };
    let epilogue = Epilogue { bias: bias.is_some(), activation };
    Some((epilogue, bias.map(|(_, value)| value)))
}

/// Element type of a convolution's tensors.
fn library_element(data_type: DataType) -> Element {
    match data_type {
        DataType::Half => Element::F16,
        DataType::Float => Element::F32,
        DataType::BFloat16 => Element::BF16,
    }
}

/// The activation, if MIOpen's fused kernels have it.
fn activation(op: &Op) -> Option<Activation> {
    let Op::Pointwise { mode, parameters, .. } = op else { return None };
    Some(match mode {
        PointwiseMode::ReluFwd => {
            let (lower, upper) = (f64::from(parameters.relu_lower_clip), f64::from(parameters.relu_upper_clip));
            match (lower, upper, f64::from(parameters.relu_lower_clip_slope)) {
                (0.0, f64::INFINITY, 0.0) => Activation::Relu,
                (0.0, f64::INFINITY, slope) if slope.is_finite() => Activation::LeakyRelu { slope },
                (0.0, upper, 0.0) if upper >= 0.0 => Activation::ClippedRelu { upper },
                (lower, upper, 0.0) if lower.is_finite() && upper.is_finite() && lower <= upper => {
                    Activation::Clamp { lower, upper }
                }
                _ => return None,
            }
        }
        PointwiseMode::SigmoidFwd => Activation::Logistic,
        PointwiseMode::TanhFwd => Activation::Tanh,
        PointwiseMode::EluFwd => Activation::Elu { alpha: f64::from(parameters.elu_alpha) },
        PointwiseMode::Abs => Activation::Abs,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hipdnn_engine_kernel::fuse::fuse;
    use hipdnn_engine_kernel::legalize::{LegalizeOptions, legalize};
    use hipdnn_engine_kernel::lower::lower;
    use hipdnn_schemas::{Convolution, DataType, GraphBuilder, Pointwise, TensorDef, TensorUid};

    const H: DataType = DataType::Half;

    /// A convolution (x 0, w 1, virtual result 100), and what follows: nodes from one uid to another.
    fn case(data_type: DataType, tail: &dyn Fn(&mut GraphBuilder)) -> Option<FusedConvolution> {
        let mut graph = GraphBuilder::new("case").compute(DataType::Float);
        for tensor in [
            TensorDef::new(0, H, &[2, 4, 9, 9]),
            TensorDef::new(1, H, &[6, 4, 3, 3]),
            TensorDef::new(2, data_type, &[2, 6, 7, 7]),
            TensorDef::new(3, H, &[1, 6, 1, 1]),
            TensorDef::new(4, DataType::Float, &[1, 6, 1, 1]),
            TensorDef::new(5, H, &[2, 6, 7, 7]),
            TensorDef::new(6, H, &[1, 1, 7, 7]),
            TensorDef::new(100, H, &[2, 6, 7, 7]).intermediate(),
            TensorDef::new(101, H, &[2, 6, 7, 7]).intermediate(),
            TensorDef::new(102, H, &[2, 6, 7, 7]).intermediate(),
        ] {
            graph.tensor(tensor);
        }
        graph.convolution_fwd(TensorUid(0), TensorUid(1), TensorUid(100), Convolution::new(2));
        tail(&mut graph);
        let graph = graph.build().unwrap();
        let stages = fuse(&graph, lower(&graph).unwrap());
        let legalized = legalize(&graph, &stages, LegalizeOptions::default(), &|_| Ok(())).unwrap();
        let at = legalized.dispatches.iter().position(|dispatch| matches!(dispatch, Dispatch::Convolution(_))).unwrap();
        fused_convolution(&graph, &legalized, at)
    }

    fn unary(graph: &mut GraphBuilder, mode: PointwiseMode, x: i64, y: i64) {
        graph.pointwise(Pointwise::unary(mode, TensorUid(x), TensorUid(y)));
    }

    fn add(graph: &mut GraphBuilder, a: i64, b: i64, y: i64) {
        graph.pointwise(Pointwise::binary(PointwiseMode::Add, TensorUid(a), TensorUid(b), TensorUid(y)));
    }

    #[test]
    fn bias_and_activation_are_recognised() {
        use PointwiseMode::*;
        /// Name, the result's type, the nodes that follow; expected: whether there is a bias, and the activation.
        type Case = (&'static str, DataType, fn(&mut GraphBuilder), Option<(bool, Option<Activation>)>);
        let relu = Some(Activation::Relu);
        let cases: [Case; 14] = [
            ("relu", H, |g| unary(g, ReluFwd, 100, 2), Some((false, relu))),
            ("bias", H, |g| add(g, 100, 3, 2), Some((true, None))),
            (
                "bias first, relu",
                H,
                |g| {
                    add(g, 3, 100, 101);
                    unary(g, ReluFwd, 101, 2);
                },
                Some((true, relu)),
            ),
            (
                "a clamp",
                H,
                |g| {
                    let mut node = Pointwise::unary(ReluFwd, TensorUid(100), TensorUid(2));
                    (node.relu_lower_clip, node.relu_upper_clip) = (Some(-1.0), Some(2.0));
                    g.pointwise(node);
                },
                Some((false, Some(Activation::Clamp { lower: -1.0, upper: 2.0 }))),
            ),
            (
                "a slope above a bound",
                H,
                |g| {
                    let mut node = Pointwise::unary(ReluFwd, TensorUid(100), TensorUid(2));
                    (node.relu_lower_clip, node.relu_lower_clip_slope) = (Some(-1.0), Some(0.5));
                    g.pointwise(node);
                },
                None,
            ),
            ("no activation of MIOpen's", H, |g| unary(g, GeluFwd, 100, 2), None),
            ("a bias of another type", H, |g| add(g, 100, 4, 2), None),
            ("a bias along the rows", H, |g| add(g, 100, 6, 2), None),
            ("a residual", H, |g| add(g, 100, 5, 2), None),
            ("twice itself", H, |g| add(g, 100, 100, 2), None),
            ("a result of another type", DataType::Float, |g| unary(g, ReluFwd, 100, 2), None),
            (
                "the activation first",
                H,
                |g| {
                    unary(g, ReluFwd, 100, 101);
                    add(g, 101, 3, 2);
                },
                None,
            ),
            (
                "two activations",
                H,
                |g| {
                    unary(g, TanhFwd, 100, 101);
                    unary(g, ReluFwd, 101, 2);
                },
                None,
            ),
            (
                "two readers",
                H,
                |g| {
                    unary(g, ReluFwd, 100, 2);
                    unary(g, TanhFwd, 100, 5);
                },
                None,
            ),
        ];
        for (what, data_type, tail, want) in cases {
            let got = case(data_type, &tail);
            let want = want.map(|(bias, activation)| FusedConvolution {
                epilogue: Epilogue { bias, activation },
                bias: bias.then_some(Value::Tensor(TensorUid(3))),
                y: Value::Tensor(TensorUid(2)),
            });
            assert_eq!(got, want, "{what}");
        }
    }
}
