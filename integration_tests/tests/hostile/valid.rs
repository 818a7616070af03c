//! Valid graphs: the fixed ones of each kind, and grown ones that the CPU engine claims.

use hipdnn_schemas::*;

use crate::random::Random;
use crate::samples;

/// One graph of each kind of node, one with every field, and the classic fused one.
pub(crate) fn fixed() -> Vec<GraphDef> {
    let mut graphs = samples::one_of_each();
    graphs.push(samples::every_field());
    let mut small = samples::conv_bias_relu();
    for tensor in &mut small.tensors {
        // The same graph over a small image, so that running it takes no time.
        for extent in &mut tensor.dims {
            *extent = match *extent {
                64 => 8,
                32 => 4,
                14 => 5,
                other => other,
            };
        }
        tensor.strides = channels_last_strides(&tensor.dims);
    }
    graphs.push(small);
    graphs
}

/// A graph that is right: a convolution with some pointwise nodes after it, or pointwise nodes alone.
pub(crate) fn grown(random: &mut Random) -> GraphDef {
    let mut graph = Growing {
        def: GraphDef {
            name: "grown".into(),
            compute_data_type: DataType::Float,
            intermediate_data_type: DataType::Float,
            io_data_type: DataType::Float,
            ..GraphDef::default()
        },
        data_type: random.pick(&[DataType::Float, DataType::Float, DataType::Half, DataType::BFloat16]),
        next_uid: random.pick(&[0, 1, -4, 1 << 40]),
    };
    let mut last = if random.once_in(5) { graph.image(random) } else { graph.convolution(random) };
    for _ in 0..random.below(4) {
        last = graph.pointwise(random, last);
    }
    let end = graph.tensor_mut(last);
    end.is_virtual = false;
    if graph.def.nodes.is_empty() {
        graph.pointwise(random, last);
    }
    let last = graph.def.tensors.len() - 1;
    graph.def.tensors[last].is_virtual = false;
    graph.def
}

struct Growing {
    def: GraphDef,
    data_type: DataType,
    next_uid: i64,
}

impl Growing {
    fn tensor(&mut self, random: &mut Random, dims: &[i64]) -> TensorUid {
        let mut tensor = TensorDef::new(self.next_uid, self.data_type, dims);
        self.next_uid += 1;
        match random.below(4) {
            0 => tensor.strides = channels_last_strides(dims),
            // A view into something larger.
            1 => {
                let wider: Vec<i64> = dims.iter().map(|extent| extent + random.range(0, 2)).collect();
                tensor.strides = packed_strides(&wider);
            }
            _ => {}
        }
        let uid = tensor.uid;
        self.def.tensors.push(tensor);
        uid
    }

    fn tensor_mut(&mut self, uid: TensorUid) -> &mut TensorDef {
        self.def.tensors.iter_mut().find(|tensor| tensor.uid == uid).expect("a tensor of this graph")
    }

    fn node(&mut self, operation: Operation) {
        self.def.nodes.push(Node { name: String::new(), compute_data_type: DataType::Float, operation });
    }

    fn image(&mut self, random: &mut Random) -> TensorUid {
        let spatial = random.range(1, 3);
        let mut dims = vec![random.range(1, 2), random.range(1, 9)];
        dims.extend((0..spatial).map(|_| random.range(1, 6)));
        self.tensor(random, &dims)
    }

    fn convolution(&mut self, random: &mut Random) -> TensorUid {
        let spatial = random.range(1, 3) as usize;
        let groups = random.pick(&[1, 1, 1, 2, 3]);
        let (mut per_group, mut filters) = (random.range(1, 6), groups * random.range(1, 6));
        let mut groups = groups;
        if random.once_in(5) {
            (groups, per_group) = (random.range(2, 9), 1);
            filters = groups * random.range(1, 2);
        }
        let mut convolution = Convolution::new(spatial);
        if random.once_in(6) {
            convolution.mode = ConvMode::Convolution;
        }
        let mut x = vec![random.range(1, 2), groups * per_group];
        let mut w = vec![filters, per_group];
        let mut y = vec![x[0], filters];
        for axis in 0..spatial {
            let filter = random.pick(&[1, 1, 2, 3, 3, 3, 5]);
            convolution.stride[axis] = random.pick(&[1, 1, 1, 2, 3]);
            convolution.dilation[axis] = random.pick(&[1, 1, 1, 2]);
            convolution.pre_padding[axis] = random.range(0, 2);
            convolution.post_padding[axis] = random.range(0, 2);
            let window = convolution.dilation[axis] * (filter - 1) + 1;
            let padding = convolution.pre_padding[axis] + convolution.post_padding[axis];
            let input = (window - padding).max(1) + random.range(0, if spatial == 3 { 3 } else { 9 });
            x.push(input);
            w.push(filter);
            y.push(convolution.output_extent(axis, input, filter).expect("the window fits"));
        }
        let x = self.tensor(random, &x);
        let w = self.tensor(random, &w);
        let y = self.tensor(random, &y);
        self.tensor_mut(y).is_virtual = random.once_in(2);
        self.node(Operation::ConvolutionFwd(ConvolutionFwd { x, w, y, convolution }));
        y
    }

    fn pointwise(&mut self, random: &mut Random, input: TensorUid) -> TensorUid {
        use PointwiseMode::*;
        let dims = self.tensor_mut(input).dims.clone();
        let unary = [
            ReluFwd,
            ReluFwd,
            SigmoidFwd,
            TanhFwd,
            GeluFwd,
            GeluApproxTanhFwd,
            SwishFwd,
            EluFwd,
            SoftplusFwd,
            Abs,
            Neg,
            Identity,
            Exp,
            Sqrt,
            Erf,
        ];
        let binary = [Add, Add, Add, Mul, Sub, Max, Min, Div];
        let mut pointwise = if random.once_in(2) {
            Pointwise::unary(random.pick(&unary), input, TensorUid(0))
        } else {
            let other = match random.below(4) {
                // A bias, a residual, a scalar of the graph, or the same tensor twice.
                0 => {
                    let channels = [1, dims[1]].into_iter().chain(vec![1; dims.len() - 2]).collect::<Vec<_>>();
                    self.tensor(random, &channels)
                }
                1 => self.tensor(random, &dims),
                2 => {
                    let uid = self.tensor(random, &[1]);
                    let data_type = self.data_type;
                    self.tensor_mut(uid).value = Some(match data_type {
                        DataType::Half => TensorValue::Float16(0.5),
                        DataType::BFloat16 => TensorValue::BFloat16(0.5),
                        _ => TensorValue::Float32(0.5),
                    });
                    uid
                }
                _ => input,
            };
            let (a, b) = if random.once_in(2) { (input, other) } else { (other, input) };
            Pointwise::binary(random.pick(&binary), a, b, TensorUid(0))
        };
        if pointwise.mode == ReluFwd && random.once_in(3) {
            pointwise.relu_lower_clip = Some(0.0);
            pointwise.relu_upper_clip = Some(6.0);
            pointwise.relu_lower_clip_slope = random.once_in(2).then_some(0.1);
        }
        pointwise.out_0 = self.tensor(random, &dims);
        let out = pointwise.out_0;
        self.tensor_mut(out).is_virtual = random.once_in(2);
        self.node(Operation::Pointwise(pointwise));
        out
    }
}
