//! A claimed group of nodes as a hipDNN graph.
//!
//! [`Group`] is what the nodes say, without the extents of the run-time inputs; [`Group::graph`] is the hipDNN graph for
//! given extents. Extents are known early for static shapes, at each run for dynamic ones.

use hipdnn_schemas::{
    Convolution, ConvolutionFwd, DataType, GraphDef, GraphFeatures, Node, Operation, Pointwise, PointwiseMode,
    TensorDef, TensorUid, TensorValue,
};

/// Uid of the convolution's input.
pub(crate) const X: i64 = 1;
/// Uid of the weights.
pub(crate) const W: i64 = 2;
/// Uid of the bias.
pub(crate) const B: i64 = 3;
/// Uid of the group's output.
pub(crate) const Y: i64 = 4;
/// Uid of the first residual input; others follow.
pub(crate) const RESIDUAL: i64 = 10;
/// Uid of the first intermediate; others follow.
const INTERMEDIATE: i64 = 100;

/// ONNX's `auto_pad`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AutoPad {
    /// Padding is given.
    NotSet,
    /// As much padding as makes the output `ceil(input / stride)`, the odd one after the image.
    SameUpper,
    /// The same, the odd one before the image.
    SameLower,
    /// No padding.
    Valid,
}

impl AutoPad {
    /// Whether ONNX Runtime may let the first window begin behind the first element, since its padding is negative where
    /// windows leave gaps. How much depends on the extent of the input; engines have no such padding.
    pub(crate) fn begins_inside(self, stride: i64, window: i64) -> bool {
        match self {
            AutoPad::NotSet | AutoPad::Valid => false,
            // Padding of -1 and -2 is none.
            AutoPad::SameUpper => stride.saturating_sub(window) >= 3,
            AutoPad::SameLower => stride.saturating_sub(window) >= 4,
        }
    }
}

impl std::fmt::Display for AutoPad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            AutoPad::NotSet => "NOTSET",
            AutoPad::SameUpper => "SAME_UPPER",
            AutoPad::SameLower => "SAME_LOWER",
            AutoPad::Valid => "VALID",
        })
    }
}

/// A convolution's attributes, filled in and checked against its weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConvAttributes {
    /// How padding is found.
    pub auto_pad: AutoPad,
    /// Padding before each spatial dimension.
    pub pre_padding: Vec<i64>,
    /// Padding after each spatial dimension.
    pub post_padding: Vec<i64>,
    /// Steps of the window.
    pub strides: Vec<i64>,
    /// Distance between the taps of the filter.
    pub dilations: Vec<i64>,
    /// Channels and filters are split into so many independent parts.
    pub group: i64,
}

/// One element-wise step after the convolution.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// A function of each element.
    Activation(Activation),
    /// Adds an input of the output's shape.
    AddInput,
}

/// A function of each element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Activation {
    /// `max(x, 0)`
    Relu,
    /// `x < 0 ? alpha·x : x`
    LeakyRelu(f32),
    /// `min(max(x, low), high)`
    Clip(Option<f32>, Option<f32>),
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// `tanh(x)`
    Tanh,
    /// `x < 0 ? alpha·(exp(x) - 1) : x`
    Elu(f32),
    /// `ln(1 + exp(x))`
    Softplus,
    /// `x · sigmoid(alpha·x)`
    Swish(f32),
    /// `x · Φ(x)`
    Gelu,
    /// `x · Φ(x)` by its approximation with tanh.
    GeluTanh,
    /// `min(max(alpha·x + beta, 0), 1)`
    HardSigmoid(f32, f32),
    /// `x · hardsigmoid(x)` with these parameters.
    HardSwish(f32, f32),
}

/// A bound of [`Activation::Clip`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The lower one.
    Low,
    /// The upper one.
    High,
}

/// What a group of nodes computes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    /// For messages and the backend's logs.
    pub name: String,
    /// Type of all inputs and of the output.
    pub data_type: DataType,
    /// The convolution.
    pub conv: ConvAttributes,
    /// Extents of the weights: [K, C/group, ...].
    pub weights: Vec<i64>,
    /// Whether there is a bias.
    pub bias: bool,
    /// What follows, in order.
    pub tail: Vec<Step>,
}

/// The extents that follow from those of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Extents of the input as hipDNN gets it: no spatial one is 0.
    pub(crate) x: Vec<i64>,
    /// Whether the input as hipDNN gets it is zeros: the real one has no elements, and the windows see padding alone.
    pub(crate) only_padding: bool,
    /// Extents of the output.
    pub y: Vec<i64>,
    /// The convolution with its padding resolved.
    pub convolution: Convolution,
}

impl Geometry {
    /// The first number of the convolution that 32 bits do not hold, in words: what engines count with.
    pub(crate) fn beyond_32_bits(&self) -> Option<String> {
        let convolution = &self.convolution;
        let lists: [(&str, usize, &[i64]); 6] = [
            ("input's extent", 0, &self.x),
            ("output's extent", 0, &self.y),
            ("padding", 2, &convolution.pre_padding),
            ("padding", 2, &convolution.post_padding),
            ("stride", 2, &convolution.stride),
            ("dilation", 2, &convolution.dilation),
        ];
        lists.into_iter().find_map(|(what, first, values)| {
            let axis = values.iter().position(|value| *value > i64::from(i32::MAX))?;
            Some(format!("the {what} of {} along dimension {} is beyond {}", values[axis], first + axis, i32::MAX))
        })
    }
}

impl Group {
    /// How many dimensions are spatial.
    pub(crate) fn spatial(&self) -> usize {
        self.weights.len() - 2
    }

    /// Channels that the input must have.
    pub(crate) fn channels(&self) -> i64 {
        self.weights[1] * self.conv.group
    }

    /// Sets a bound of the step `step`, which is a `Clip`.
    pub(crate) fn set_bound(&mut self, step: usize, side: Side, value: f32) {
        if let Some(Step::Activation(Activation::Clip(low, high))) = self.tail.get_mut(step) {
            *(if side == Side::Low { low } else { high }) = Some(value);
        }
    }

    /// The output's extents and the padding for an input of extents `x`, which may be 0.
    ///
    /// # Errors
    /// In a sentence, if the input does not fit the weights.
    pub(crate) fn geometry(&self, x: &[i64]) -> Result<Geometry, String> {
        let rank = self.weights.len();
        if x.len() != rank {
            return Err(format!("the input has rank {}, the weights have rank {rank}", x.len()));
        }
        if let Some(axis) = x.iter().position(|extent| *extent < 0) {
            return Err(format!("the input's extent along dimension {axis} is {}", x[axis]));
        }
        if x[1] != self.channels() {
            return Err(format!(
                "the input has {} channels, the weights want {} ({} in each of {} groups)",
                x[1],
                self.channels(),
                self.weights[1],
                self.conv.group
            ));
        }
        let mut convolution = Convolution {
            pre_padding: self.conv.pre_padding.clone(),
            post_padding: self.conv.post_padding.clone(),
            stride: self.conv.strides.clone(),
            dilation: self.conv.dilations.clone(),
            ..Convolution::new(self.spatial())
        };
        let mut y = vec![x[0], self.weights[0]];
        for axis in 0..self.spatial() {
            let (input, filter) = (x[axis + 2], self.weights[axis + 2]);
            let (stride, dilation) = (self.conv.strides[axis], self.conv.dilations[axis]);
            let window = i128::from(dilation) * i128::from(filter - 1) + 1;
            if let Some((pre, post)) = auto_padding(self.conv.auto_pad, input, stride, window) {
                let beyond = || format!("the padding of {} along dimension {} is beyond 64 bits", pre + post, axis + 2);
                convolution.pre_padding[axis] = i64::try_from(pre).map_err(|_| beyond())?;
                convolution.post_padding[axis] = i64::try_from(post).map_err(|_| beyond())?;
            }
            let extent = convolution.output_extent(axis, input, filter).ok_or_else(|| {
                let (pre, post) = (convolution.pre_padding[axis], convolution.post_padding[axis]);
                let padded = i128::from(input) + i128::from(pre) + i128::from(post);
                let (axis, image) = (axis + 2, format!("the input of {input} with its padding of {pre} and {post}"));
                if window > padded {
                    format!("the window of {window} along dimension {axis} is larger than {image}")
                } else {
                    format!("{image} along dimension {axis} is beyond 64 bits")
                }
            })?;
            y.push(extent);
        }
        let mut x = x.to_vec();
        let only_padding = !y.contains(&0) && x.contains(&0);
        if only_padding {
            // hipDNN has no extents of 0: one row of the padding is the image.
            for axis in 0..self.spatial() {
                if x[axis + 2] == 0 {
                    x[axis + 2] = 1;
                    let after = convolution.post_padding[axis] > 0;
                    let side = if after { &mut convolution.post_padding } else { &mut convolution.pre_padding };
                    side[axis] -= 1;
                }
            }
        }
        Ok(Geometry { x, only_padding, y, convolution })
    }

    /// The hipDNN graph for that geometry, whose output has elements.
    pub(crate) fn graph(&self, geometry: &Geometry) -> GraphDef {
        let mut writer = Writer {
            graph: GraphDef {
                name: self.name.clone(),
                compute_data_type: DataType::Float,
                intermediate_data_type: DataType::Float,
                io_data_type: self.data_type,
                ..GraphDef::default()
            },
            y: geometry.y.clone(),
            next: INTERMEDIATE,
        };
        let (io, rank) = (self.data_type, self.weights.len());
        writer.tensor(TensorDef::new(X, io, &geometry.x).named("x"));
        writer.tensor(TensorDef::new(W, io, &self.weights).named("w"));
        let mut current = writer.intermediate();
        let convolution =
            ConvolutionFwd { x: TensorUid(X), w: TensorUid(W), y: current, convolution: geometry.convolution.clone() };
        writer.node("conv", Operation::ConvolutionFwd(convolution));
        if self.bias {
            let mut dims = vec![1; rank];
            dims[1] = self.weights[0];
            writer.tensor(TensorDef::new(B, io, &dims).named("bias"));
            current = writer.binary("bias", PointwiseMode::Add, current, TensorUid(B));
        }
        let mut residual = RESIDUAL;
        for step in &self.tail {
            current = match step {
                Step::AddInput => {
                    let input = writer.tensor(TensorDef::new(residual, io, &geometry.y).named("residual"));
                    residual += 1;
                    writer.binary("add", PointwiseMode::Add, current, input)
                }
                Step::Activation(activation) => writer.activation(*activation, current),
            };
        }
        writer.finish(current, io)
    }
}

/// Builds a graph whose nodes hang on one another in a chain of intermediates, all of the output's extents.
struct Writer {
    graph: GraphDef,
    y: Vec<i64>,
    next: i64,
}

impl Writer {
    fn tensor(&mut self, tensor: TensorDef) -> TensorUid {
        let uid = tensor.uid;
        // Tensors come from users' buffers, which are aligned for their elements and nothing more.
        let bits = tensor.data_type.bits().unwrap_or(8);
        self.graph.tensors.push(TensorDef { alignment: i64::from(bits / 8), ..tensor });
        uid
    }

    fn intermediate(&mut self) -> TensorUid {
        let uid = self.next;
        self.next += 1;
        let tensor = TensorDef::new(uid, DataType::Float, &self.y).intermediate();
        self.graph.tensors.push(tensor);
        TensorUid(uid)
    }

    fn scalar(&mut self, value: f32) -> TensorUid {
        let uid = self.next;
        self.next += 1;
        let dims = vec![1; self.y.len()];
        self.graph.tensors.push(TensorDef::new(uid, DataType::Float, &dims).with_value(TensorValue::Float32(value)));
        TensorUid(uid)
    }

    fn node(&mut self, name: &str, operation: Operation) {
        self.graph.nodes.push(Node { name: name.to_string(), compute_data_type: DataType::Float, operation });
    }

    fn binary(&mut self, name: &str, mode: PointwiseMode, one: TensorUid, other: TensorUid) -> TensorUid {
        let out = self.intermediate();
        self.node(name, Operation::Pointwise(Pointwise::binary(mode, one, other, out)));
        out
    }

    fn unary(&mut self, name: &str, input: TensorUid, pointwise: Pointwise) -> TensorUid {
        let out = self.intermediate();
        self.node(name, Operation::Pointwise(Pointwise { in_0: input, out_0: out, ..pointwise }));
        out
    }

    fn activation(&mut self, activation: Activation, x: TensorUid) -> TensorUid {
        let plain = |mode| Pointwise::unary(mode, x, x);
        match activation {
            Activation::Relu => self.unary("relu", x, plain(PointwiseMode::ReluFwd)),
            Activation::LeakyRelu(slope) => {
                let pointwise = Pointwise { relu_lower_clip_slope: Some(slope), ..plain(PointwiseMode::ReluFwd) };
                self.unary("leaky_relu", x, pointwise)
            }
            Activation::Clip(low, high) => self.clip(x, low, high),
            Activation::Sigmoid => self.unary("sigmoid", x, plain(PointwiseMode::SigmoidFwd)),
            Activation::Tanh => self.unary("tanh", x, plain(PointwiseMode::TanhFwd)),
            Activation::Elu(alpha) => {
                self.unary("elu", x, Pointwise { elu_alpha: Some(alpha), ..plain(PointwiseMode::EluFwd) })
            }
            Activation::Softplus => self.unary("softplus", x, plain(PointwiseMode::SoftplusFwd)),
            Activation::Swish(alpha) => {
                self.unary("swish", x, Pointwise { swish_beta: Some(alpha), ..plain(PointwiseMode::SwishFwd) })
            }
            Activation::Gelu => self.unary("gelu", x, plain(PointwiseMode::GeluFwd)),
            Activation::GeluTanh => self.unary("gelu", x, plain(PointwiseMode::GeluApproxTanhFwd)),
            Activation::HardSigmoid(alpha, beta) => self.hard_sigmoid(x, alpha, beta),
            Activation::HardSwish(alpha, beta) => {
                let gate = self.hard_sigmoid(x, alpha, beta);
                self.binary("hard_swish", PointwiseMode::Mul, x, gate)
            }
        }
    }

    fn clip(&mut self, x: TensorUid, low: Option<f32>, high: Option<f32>) -> TensorUid {
        match (low, high) {
            (None, None) => self.unary("identity", x, Pointwise::unary(PointwiseMode::Identity, x, x)),
            (None, Some(high)) => {
                let bound = self.scalar(high);
                self.binary("min", PointwiseMode::Min, x, bound)
            }
            // Bounds in the wrong order make the upper one the result, which ReLU's clips do not promise.
            (Some(low), Some(high)) if low > high => {
                let (low, high) = (self.scalar(low), self.scalar(high));
                let raised = self.binary("max", PointwiseMode::Max, x, low);
                self.binary("min", PointwiseMode::Min, raised, high)
            }
            (Some(low), high) => {
                let pointwise = Pointwise {
                    relu_lower_clip: Some(low),
                    relu_upper_clip: high,
                    ..Pointwise::unary(PointwiseMode::ReluFwd, x, x)
                };
                self.unary("clip", x, pointwise)
            }
        }
    }

    fn hard_sigmoid(&mut self, x: TensorUid, alpha: f32, beta: f32) -> TensorUid {
        let (alpha, beta) = (self.scalar(alpha), self.scalar(beta));
        let scaled = self.binary("scale", PointwiseMode::Mul, x, alpha);
        let shifted = self.binary("shift", PointwiseMode::Add, scaled, beta);
        self.clip(shifted, Some(0.0), Some(1.0))
    }

    /// Makes the last intermediate the output.
    fn finish(mut self, last: TensorUid, data_type: DataType) -> GraphDef {
        let output = TensorDef {
            alignment: i64::from(data_type.bits().unwrap_or(8) / 8),
            ..TensorDef::new(Y, data_type, &self.y).named("y")
        };
        for tensor in &mut self.graph.tensors {
            if tensor.uid == last {
                *tensor = output.clone();
            }
        }
        let node = self.graph.nodes.last_mut().expect("a group has a convolution");
        match &mut node.operation {
            Operation::ConvolutionFwd(convolution) => convolution.y = TensorUid(Y),
            Operation::Pointwise(pointwise) => pointwise.out_0 = TensorUid(Y),
            other => unreachable!("the chain has no {other:?}"),
        }
        let features = GraphFeatures::from(&self.graph);
        self.graph.min_required_engine_api_version = Some(features.required_api_version());
        self.graph
    }
}

/// The padding that `auto_pad` asks for, before and after; `None` if it is given.
fn auto_padding(auto_pad: AutoPad, input: i64, stride: i64, window: i128) -> Option<(i128, i128)> {
    match auto_pad {
        AutoPad::NotSet => None,
        AutoPad::Valid => Some((0, 0)),
        AutoPad::SameUpper | AutoPad::SameLower => {
            let (input, stride) = (i128::from(input), i128::from(stride));
            let output = (input + stride - 1) / stride;
            // A stride larger than the window leaves more than it needs: no padding, not less than none.
            let padding = ((output - 1) * stride + window - input).max(0);
            let small = padding / 2;
            Some(if auto_pad == AutoPad::SameUpper { (small, padding - small) } else { (padding - small, small) })
        }
    }
}

#[cfg(test)]
mod tests {
    use hipdnn_schemas::Graph;

    use super::*;

    fn group(weights: &[i64], conv: ConvAttributes) -> Group {
        Group {
            name: "g".to_string(),
            data_type: DataType::Float,
            conv,
            weights: weights.to_vec(),
            bias: false,
            tail: Vec::new(),
        }
    }

    fn attributes(spatial: usize) -> ConvAttributes {
        ConvAttributes {
            auto_pad: AutoPad::NotSet,
            pre_padding: vec![0; spatial],
            post_padding: vec![0; spatial],
            strides: vec![1; spatial],
            dilations: vec![1; spatial],
            group: 1,
        }
    }

    #[test]
    fn padding_by_the_formula() {
        use AutoPad::*;
        for (auto_pad, input, filter, stride, dilation, want) in [
            (NotSet, 5, 3, 1, 1, None),
            (Valid, 5, 3, 2, 1, Some((0, 0))),
            (SameUpper, 5, 3, 1, 1, Some((1, 1))),
            (SameUpper, 5, 3, 2, 1, Some((1, 1))),
            (SameUpper, 6, 3, 2, 1, Some((0, 1))),
            (SameLower, 6, 3, 2, 1, Some((1, 0))),
            (SameUpper, 5, 4, 1, 1, Some((1, 2))),
            (SameLower, 5, 4, 1, 1, Some((2, 1))),
            (SameUpper, 7, 3, 1, 2, Some((2, 2))),
            (SameLower, 8, 2, 1, 3, Some((2, 1))),
            // The stride passes over more than the window needs.
            (SameUpper, 5, 1, 3, 1, Some((0, 0))),
            (SameLower, 7, 1, 2, 1, Some((0, 0))),
        ] {
            let got = auto_padding(auto_pad, input, stride, i128::from(dilation * (filter - 1) + 1));
            assert_eq!(got, want, "{auto_pad:?} {input} {filter} {stride} {dilation}");
        }
    }

    #[test]
    fn same_padding_gives_the_output_extent_it_promises() {
        for auto_pad in [AutoPad::SameUpper, AutoPad::SameLower] {
            for input in 1..12 {
                for (filter, stride, dilation) in [(1, 1, 1), (3, 1, 1), (3, 2, 1), (2, 3, 1), (3, 2, 2), (5, 4, 1)] {
                    let conv =
                        ConvAttributes { auto_pad, strides: vec![stride], dilations: vec![dilation], ..attributes(1) };
                    let geometry = group(&[4, 3, filter], conv).geometry(&[2, 3, input]).unwrap();
                    assert_eq!(
                        geometry.y,
                        [2, 4, (input + stride - 1) / stride],
                        "{auto_pad:?} {input} {filter} {stride}"
                    );
                }
            }
        }
    }

    #[test]
    fn inputs_that_do_not_fit() {
        let conv = ConvAttributes { group: 2, ..attributes(2) };
        let group = group(&[4, 3, 3, 3], conv);
        for (x, want) in [
            (&[1, 6, 8][..], "the input has rank 3, the weights have rank 4"),
            (&[1, 5, 8, 8], "the input has 5 channels, the weights want 6 (3 in each of 2 groups)"),
            (
                &[1, 6, 8, 2],
                "the window of 3 along dimension 3 is larger than the input of 2 with its padding of 0 and 0",
            ),
            (&[1, 6, -1, 8], "the input's extent along dimension 2 is -1"),
        ] {
            assert_eq!(group.geometry(x), Err(want.to_string()));
        }
        assert_eq!(group.geometry(&[0, 6, 8, 8]).unwrap().y, [0, 4, 6, 6]);
    }

    #[test]
    fn numbers_of_many_bits() {
        let large = 1i64 << 62;
        for (conv, taps, want) in [
            (
                ConvAttributes { dilations: vec![large], ..attributes(1) },
                3,
                "the window of 9223372036854775809 along dimension 2 is larger than the input of 12 with its padding of 0 \
                 and 0",
            ),
            (
                ConvAttributes { pre_padding: vec![large], post_padding: vec![large], ..attributes(1) },
                3,
                "the input of 12 with its padding of 4611686018427387904 and 4611686018427387904 along dimension 2 is \
                 beyond 64 bits",
            ),
            (
                ConvAttributes { auto_pad: AutoPad::SameUpper, dilations: vec![i64::MAX], ..attributes(1) },
                5,
                "the padding of 36893488147419103228 along dimension 2 is beyond 64 bits",
            ),
        ] {
            assert_eq!(group(&[4, 3, taps], conv).geometry(&[1, 3, 12]), Err(want.to_string()));
        }
        for (conv, want) in [
            (
                ConvAttributes { strides: vec![1 << 31], ..attributes(1) },
                Some("the stride of 2147483648 along dimension 2"),
            ),
            (ConvAttributes { strides: vec![(1 << 31) - 1], ..attributes(1) }, None),
            (
                ConvAttributes { pre_padding: vec![1 << 31], ..attributes(1) },
                Some("the output's extent of 2147483656 along dimension 2"),
            ),
            (
                ConvAttributes { post_padding: vec![1 << 31], strides: vec![9], ..attributes(1) },
                Some("the padding of 2147483648 along dimension 2"),
            ),
        ] {
            let beyond = group(&[4, 3, 3], conv).geometry(&[1, 3, 10]).unwrap().beyond_32_bits();
            assert_eq!(beyond, want.map(|want| format!("{want} is beyond 2147483647")));
        }
    }

    #[test]
    fn an_extent_of_zero_never_reaches_a_graph() {
        for (pre, post, want) in [(2, 2, (2, 1)), (3, 0, (2, 0)), (0, 4, (0, 3))] {
            let padded = ConvAttributes { pre_padding: vec![pre], post_padding: vec![post], ..attributes(1) };
            let group = group(&[4, 3, 3], padded);
            let geometry = group.geometry(&[1, 3, 0]).unwrap();
            assert_eq!((geometry.x.as_slice(), geometry.only_padding), (&[1, 3, 1][..], true));
            assert_eq!(geometry.y, [1, 4, pre + post - 2]);
            let convolution = &geometry.convolution;
            assert_eq!((convolution.pre_padding[0], convolution.post_padding[0]), want);
            assert!(Graph::new(group.graph(&geometry)).is_ok());
        }
        let error = group(&[4, 3, 3], attributes(1)).geometry(&[1, 3, 0]).unwrap_err();
        assert!(error.starts_with("the window of 3 along dimension 2 is larger than the input of 0"), "{error}");
    }

    /// The operations of the graph, in order, and the output's type.
    fn operations(group: &Group, x: &[i64]) -> Vec<String> {
        let graph = group.graph(&group.geometry(x).unwrap());
        let graph = Graph::new(graph).unwrap_or_else(|error| panic!("{group:?}: {error}"));
        assert!(!graph.tensor(TensorUid(Y)).is_virtual());
        graph
            .nodes()
            .iter()
            .map(|node| match &node.operation {
                Operation::ConvolutionFwd(_) => "conv".to_string(),
                Operation::Pointwise(pointwise) => pointwise.mode.to_string(),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn groups_as_graphs() {
        use Activation::*;
        let plain = group(&[4, 3, 3, 3], attributes(2));
        let with = |bias: bool, tail: &[Step]| Group { bias, tail: tail.to_vec(), ..plain.clone() };
        let act = Step::Activation;
        for (group, want) in [
            (with(false, &[]), &["conv"][..]),
            (with(true, &[]), &["conv", "add"]),
            (with(true, &[act(Relu)]), &["conv", "add", "relu_fwd"]),
            (with(true, &[Step::AddInput, act(Relu)]), &["conv", "add", "add", "relu_fwd"]),
            (with(false, &[act(LeakyRelu(0.1))]), &["conv", "relu_fwd"]),
            (with(false, &[act(Clip(Some(0.0), Some(6.0)))]), &["conv", "relu_fwd"]),
            (with(false, &[act(Clip(Some(-1.0), None))]), &["conv", "relu_fwd"]),
            (with(false, &[act(Clip(Some(2.0), Some(1.0)))]), &["conv", "max_op", "min_op"]),
            (with(false, &[act(Clip(None, Some(6.0)))]), &["conv", "min_op"]),
            (with(false, &[act(Clip(None, None))]), &["conv", "identity"]),
            (with(false, &[act(Elu(1.0)), act(Swish(1.0))]), &["conv", "elu_fwd", "swish_fwd"]),
            (with(false, &[act(HardSigmoid(0.2, 0.5))]), &["conv", "mul", "add", "relu_fwd"]),
            (with(false, &[act(HardSwish(0.2, 0.5))]), &["conv", "mul", "add", "relu_fwd", "mul"]),
            (
                with(true, &[act(Gelu), act(GeluTanh), act(Sigmoid), act(Tanh), act(Softplus)]),
                &["conv", "add", "gelu_fwd", "gelu_approx_tanh_fwd", "sigmoid_fwd", "tanh_fwd", "softplus_fwd"],
            ),
        ] {
            assert_eq!(operations(&group, &[2, 3, 8, 8]), want);
        }
    }

    #[test]
    fn attributes_reach_the_graph() {
        let conv = ConvAttributes {
            auto_pad: AutoPad::NotSet,
            pre_padding: vec![1, 2, 3],
            post_padding: vec![4, 5, 6],
            strides: vec![1, 2, 3],
            dilations: vec![3, 2, 1],
            group: 2,
        };
        let group = Group { data_type: DataType::Half, bias: true, ..group(&[4, 3, 1, 2, 3], conv) };
        let x = [2, 6, 7, 8, 9];
        let geometry = group.geometry(&x).unwrap();
        let graph = Graph::new(group.graph(&geometry)).unwrap();
        let Operation::ConvolutionFwd(conv) = &graph.nodes()[0].operation else { panic!("no convolution") };
        assert_eq!(conv.convolution.pre_padding, [1, 2, 3]);
        assert_eq!(conv.convolution.post_padding, [4, 5, 6]);
        assert_eq!(conv.convolution.stride, [1, 2, 3]);
        assert_eq!(conv.convolution.dilation, [3, 2, 1]);
        assert_eq!(graph.tensor(TensorUid(B)).dims(), [1, 4, 1, 1, 1]);
        for uid in [X, W, B, Y] {
            let tensor = graph.tensor(TensorUid(uid));
            assert_eq!((tensor.data_type(), tensor.alignment()), (DataType::Half, 2), "{uid}");
        }
        assert_eq!(graph.tensor(conv.y).data_type(), DataType::Float);
        assert_eq!(geometry.y, [2, 4, 12, 7, 6]);
    }
}
