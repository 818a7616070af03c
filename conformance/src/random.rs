//! Random graphs: connected, of up to twelve nodes, over all operations and types, with small extents.
//!
//! A graph grows from a tensor: each further node reads at least one tensor that an earlier one wrote. Its other
//! operands are new, or come from earlier too. In the end most tensors that are read become intermediates.

use hipdnn_schemas::{
    Batchnorm, BatchnormBackward, BatchnormInference, BatchnormInferenceVarianceExt, BlockScaleDequantize,
    BlockScaleQuantize, ConvMode, Convolution, ConvolutionBwd, ConvolutionFwd, ConvolutionWrw, DataType, GraphDef,
    Layernorm, LayernormBackward, Matmul, NormFwdPhase, Operation, PaddingMode, Pointwise, PointwiseMode, Reduction,
    ReductionMode, ResampleBwd, ResampleFwd, ResampleMode, RmsNorm, RmsNormBackward, TensorUid,
};

use crate::cases::{Case, Layout, Net, attention_without_options};
use crate::inputs::Random;

/// The most nodes of a random graph.
pub const MOST_NODES: usize = 12;

/// The graph of that seed. Odd seeds give the graph of the even one before with memory behind every tensor: nothing can
/// be fused away there, and the results must be the same within their bounds.
pub fn case(seed: u64) -> Case {
    let mut growth = Growth::new(Random::new(seed / 2));
    let wanted = 1 + growth.random.below(MOST_NODES);
    let mut tries = 0;
    while growth.net.def.nodes.len() < wanted && tries < 200 {
        growth.grow();
        tries += 1;
    }
    let all_real = seed % 2 == 1;
    let mut case = Case::new(format!("random/{seed}"), growth.finish(all_real));
    case.seed = seed / 2;
    case
}

/// A tensor that further nodes may read.
#[derive(Clone)]
struct Item {
    uid: TensorUid,
    dims: Vec<i64>,
    data_type: DataType,
    /// True if all its elements are above zero.
    positive: bool,
}

struct Growth {
    random: Random,
    net: Net,
    /// Tensors that nodes wrote; before the first node, the input.
    items: Vec<Item>,
    written: Vec<TensorUid>,
}

const FLOATS: [DataType; 3] = [DataType::Float, DataType::Half, DataType::BFloat16];

impl Growth {
    fn new(random: Random) -> Growth {
        let mut growth = Growth { random, net: Net::new(DataType::Float), items: Vec::new(), written: Vec::new() };
        let rank = *growth.random.pick(&[2, 3, 3, 4, 4, 4, 4, 5]);
        let mut dims = vec![growth.extent(3), growth.extent(6)];
        (2..rank).for_each(|_| dims.push(1 + growth.random.below(7) as i64));
        let item = growth.input(&dims);
        growth.items.push(item);
        growth
    }

    /// True if one more node may follow.
    fn has_room(&self) -> bool {
        self.net.def.nodes.len() < MOST_NODES
    }

    fn extent(&mut self, most: usize) -> i64 {
        1 + self.random.below(most) as i64
    }

    fn float(&mut self) -> DataType {
        if self.random.one_in(2) { DataType::Float } else { *self.random.pick(&FLOATS) }
    }

    fn layout(&mut self) -> Layout {
        *self.random.pick(&[
            Layout::First,
            Layout::First,
            Layout::First,
            Layout::Last,
            Layout::Last,
            Layout::Padded,
            Layout::Sliced,
            Layout::Reversed,
        ])
    }

    fn tensor(&mut self, data_type: DataType, dims: &[i64]) -> TensorUid {
        let layout = self.layout();
        self.net.real("", data_type, dims, layout)
    }

    /// A new tensor of floats that no node writes.
    fn input(&mut self, dims: &[i64]) -> Item {
        let data_type = self.float();
        Item { uid: self.tensor(data_type, dims), dims: dims.to_vec(), data_type, positive: false }
    }

    fn inputs(&mut self, dims: &[i64]) -> TensorUid {
        self.input(dims).uid
    }

    /// A new tensor in single precision that no node writes, as statistics are.
    fn exact(&mut self, dims: &[i64]) -> TensorUid {
        self.tensor(DataType::Float, dims)
    }

    fn output(&mut self, dims: &[i64], positive: bool) -> TensorUid {
        let data_type = self.float();
        self.output_as(data_type, dims, positive)
    }

    fn output_as(&mut self, data_type: DataType, dims: &[i64], positive: bool) -> TensorUid {
        let uid = self.tensor(data_type, dims);
        self.written.push(uid);
        self.items.push(Item { uid, dims: dims.to_vec(), data_type, positive });
        uid
    }

    /// An output that is there or not.
    fn maybe(&mut self, wanted: bool, dims: &[i64]) -> Option<TensorUid> {
        wanted.then(|| self.output_as(DataType::Float, dims, false))
    }

    fn node(&mut self, operation: Operation) {
        self.net.node(operation);
        let written = &self.written;
        // From the first node on, only what nodes wrote keeps the graph connected.
        self.items.retain(|item| written.contains(&item.uid));
    }

    /// A tensor of those extents: an earlier one, if there is, or a new one.
    fn like(&mut self, dims: &[i64]) -> TensorUid {
        let fitting: Vec<TensorUid> = self
            .items
            .iter()
            .filter(|item| item.dims == dims && is_float(item.data_type))
            .map(|item| item.uid)
            .collect();
        if fitting.is_empty() || self.random.one_in(3) { self.inputs(dims) } else { *self.random.pick(&fitting) }
    }

    /// Extents that broadcast to these.
    fn narrowed(&mut self, dims: &[i64]) -> Vec<i64> {
        match self.random.below(4) {
            0 => dims.to_vec(),
            1 => (0..dims.len()).map(|axis| if axis == 1 { dims[1] } else { 1 }).collect(),
            2 => vec![1],
            _ => dims.iter().map(|extent| if self.random.one_in(2) { *extent } else { 1 }).collect(),
        }
    }

    /// A second operand for a result of those extents.
    fn operand(&mut self, dims: &[i64]) -> TensorUid {
        match self.random.below(8) {
            0 => {
                let value = *self.random.pick(&[0.5, -1.25, 2.0, 0.0, 1.0]);
                let data_type = self.float();
                self.net.scalar("", data_type, value)
            }
            1 => {
                let data_type = self.float();
                self.net.runtime_scalar("", data_type)
            }
            2..=4 => self.like(dims),
            _ => {
                let dims = self.narrowed(dims);
                self.like(&dims)
            }
        }
    }

    /// Adds a node, if the tensor that was picked suits the operation that was.
    fn grow(&mut self) {
        let item = self.random.pick(&self.items).clone();
        if !is_float(item.data_type) {
            // Narrow and integer results are read by few: by conversions, and by what belongs to them.
            if self.random.one_in(if item.data_type == DataType::Boolean { 2 } else { 12 }) {
                let out = self.output(&item.dims, false);
                self.node(Operation::Pointwise(Pointwise::unary(PointwiseMode::Identity, item.uid, out)));
            }
            return;
        }
        match self.random.below(24) {
            0..=2 => self.convolution(&item),
            3 => self.convolution_backward(&item),
            4 => self.convolution_weights(&item),
            5..=6 => self.unary(&item),
            7..=9 => self.binary(&item),
            10 => self.slope(&item),
            11 => self.choice(&item),
            12 => self.matmul(&item),
            13 => self.batchnorm_inference(&item),
            14 => self.batchnorm(&item),
            15 => self.batchnorm_backward(&item),
            16 => self.layernorm(&item),
            17 => self.rms_norm(&item),
            18 => self.row_backward(&item),
            19 => self.reduction(&item),
            20 => self.resample(&item),
            21 => self.resample_backward(&item),
            22 => self.block_scale(&item),
            _ => self.attention(&item),
        }
    }

    /// Geometry that fits a filter into an image, or `None`.
    fn geometry(&mut self, image: &[i64]) -> Option<(Vec<i64>, Convolution)> {
        let spatial = image.len();
        let mut convolution = Convolution::new(spatial);
        let mut filter = Vec::new();
        for axis in 0..spatial {
            filter.push(self.extent(3));
            convolution.pre_padding[axis] = self.random.below(3) as i64;
            convolution.post_padding[axis] =
                if self.random.one_in(3) { self.random.below(3) as i64 } else { convolution.pre_padding[axis] };
            convolution.stride[axis] = if self.random.one_in(3) { self.extent(3) } else { 1 };
            convolution.dilation[axis] = if self.random.one_in(4) { self.extent(3) } else { 1 };
        }
        if self.random.one_in(8) {
            convolution.mode = ConvMode::Convolution;
        }
        (0..spatial)
            .all(|axis| convolution.output_extent(axis, image[axis], filter[axis]).is_some())
            .then_some((filter, convolution))
    }

    /// A divisor of that number.
    fn divisor(&mut self, number: i64) -> i64 {
        let divisors: Vec<i64> = (1..=number).filter(|divisor| number % divisor == 0).collect();
        *self.random.pick(&divisors)
    }

    fn convolution(&mut self, x: &Item) {
        if x.dims.len() < 3 {
            return;
        }
        let Some((filter, convolution)) = self.geometry(&x.dims[2..]) else { return };
        let groups = if self.random.one_in(2) { 1 } else { self.divisor(x.dims[1]) };
        let filters = groups * self.extent(4);
        let mut w = vec![filters, x.dims[1] / groups];
        w.extend(&filter);
        let mut y = vec![x.dims[0], filters];
        for (axis, extent) in filter.iter().enumerate() {
            y.push(convolution.output_extent(axis, x.dims[axis + 2], *extent).expect("it fits"));
        }
        let w = self.like(&w);
        let y = self.output(&y, false);
        self.node(Operation::ConvolutionFwd(ConvolutionFwd { x: x.uid, w, y, convolution }));
    }

    fn convolution_backward(&mut self, dy: &Item) {
        if dy.dims.len() < 3 {
            return;
        }
        let Some((filter, convolution)) = self.geometry(&dy.dims[2..]) else { return };
        let groups = if self.random.one_in(2) { 1 } else { self.divisor(dy.dims[1]) };
        let channels = self.extent(4);
        let mut dx = vec![dy.dims[0], groups * channels];
        for (axis, extent) in filter.iter().enumerate() {
            let window = convolution.dilation[axis] * (extent - 1) + 1;
            let padding = convolution.pre_padding[axis] + convolution.post_padding[axis];
            let slack = self.random.below(convolution.stride[axis] as usize) as i64;
            dx.push((dy.dims[axis + 2] - 1) * convolution.stride[axis] + window - padding + slack);
        }
        if dx.iter().any(|extent| !(1..=30).contains(extent)) {
            return;
        }
        let mut w = vec![dy.dims[1], channels];
        w.extend(&filter);
        let w = self.like(&w);
        let dx = self.output(&dx, false);
        self.node(Operation::ConvolutionBwd(ConvolutionBwd { dy: dy.uid, w, dx, convolution }));
    }

    fn convolution_weights(&mut self, x: &Item) {
        if x.dims.len() < 3 {
            return;
        }
        let Some((filter, convolution)) = self.geometry(&x.dims[2..]) else { return };
        let groups = if self.random.one_in(2) { 1 } else { self.divisor(x.dims[1]) };
        let filters = groups * self.extent(4);
        let mut dy = vec![x.dims[0], filters];
        for (axis, extent) in filter.iter().enumerate() {
            dy.push(convolution.output_extent(axis, x.dims[axis + 2], *extent).expect("it fits"));
        }
        let mut dw = vec![filters, x.dims[1] / groups];
        dw.extend(&filter);
        let dy = self.like(&dy);
        let dw = self.output(&dw, false);
        self.node(Operation::ConvolutionWrw(ConvolutionWrw { x: x.uid, dy, dw, convolution }));
    }

    fn unary(&mut self, x: &Item) {
        use PointwiseMode::*;
        let positive = [Sqrt, Rsqrt, Log, Reciprocal];
        let mut any = modes(&[], |mode| mode.operands() == 1 && !positive.contains(&mode), &[GenIndex]);
        // As often as two others.
        let relu = any.iter().position(|mode| *mode == ReluFwd).expect("a unary mode");
        any.insert(relu, ReluFwd);
        let mode =
            if x.positive || self.random.one_in(40) { *self.random.pick(&positive) } else { *self.random.pick(&any) };
        let out_type = if mode == LogicalNot && self.random.one_in(2) { DataType::Boolean } else { self.float() };
        let stays = matches!(mode, Exp | SigmoidFwd | SoftplusFwd | Sqrt | Rsqrt | Reciprocal)
            || (matches!(mode, Abs | Identity | ReluFwd) && x.positive);
        let out = self.output_as(out_type, &x.dims, stays && is_float(out_type));
        let mut node = Pointwise::unary(mode, x.uid, out);
        self.parameters(&mut node);
        if mode == GenIndex {
            node.axis = Some(self.random.below(x.dims.len()) as i64);
        }
        self.node(Operation::Pointwise(node));
    }

    fn parameters(&mut self, node: &mut Pointwise) {
        if self.random.one_in(2) {
            return;
        }
        let some = |random: &mut Random, list: &[f32]| random.one_in(2).then(|| *random.pick(list));
        match node.mode {
            PointwiseMode::ReluFwd | PointwiseMode::ReluBwd => {
                node.relu_lower_clip = some(&mut self.random, &[0.0, -0.5, 0.25]);
                node.relu_upper_clip = some(&mut self.random, &[6.0, 1.0, 0.5]);
                node.relu_lower_clip_slope = some(&mut self.random, &[0.01, 0.5, 0.0]);
            }
            PointwiseMode::EluFwd | PointwiseMode::EluBwd => node.elu_alpha = some(&mut self.random, &[0.5, 2.0]),
            PointwiseMode::SwishFwd | PointwiseMode::SwishBwd => {
                node.swish_beta = some(&mut self.random, &[0.5, 2.0, -1.0]);
            }
            PointwiseMode::SoftplusFwd | PointwiseMode::SoftplusBwd => {
                node.softplus_beta = some(&mut self.random, &[0.5, 2.0]);
            }
            _ => {}
        }
    }

    fn binary(&mut self, x: &Item) {
        use PointwiseMode::*;
        let often = [Add, Add, Add, Add, Mul, Mul, Sub, AddSquare, Max, Min];
        let mode = *self.random.pick(&modes(&often, |mode| mode.operands() == 2 && !is_backward(mode), &[Div]));
        let compares = mode.json_name().starts_with("cmp") || mode.json_name().starts_with("logical");
        let mut other = self.operand(&x.dims);
        if mode == Div {
            let positive: Vec<TensorUid> = self
                .items
                .iter()
                .filter(|item| item.positive && item.dims == x.dims && item.data_type == DataType::Float)
                .map(|item| item.uid)
                .collect();
            other = if positive.is_empty() { self.inputs(&x.dims) } else { *self.random.pick(&positive) };
        }
        let out_type = if compares && self.random.one_in(2) { DataType::Boolean } else { self.float() };
        let out = self.output_as(out_type, &x.dims, false);
        let swapped = mode != Div && self.random.one_in(3);
        let (a, b) = if swapped { (other, x.uid) } else { (x.uid, other) };
        self.node(Operation::Pointwise(Pointwise::binary(mode, a, b, out)));
    }

    fn slope(&mut self, x: &Item) {
        use PointwiseMode::*;
        let often = [ReluBwd, ReluBwd, SigmoidBwd, TanhBwd, EluBwd, GeluBwd];
        let mode = *self.random.pick(&modes(&often, is_backward, &[]));
        let dy = self.like(&x.dims);
        let out = self.output(&x.dims, false);
        let (a, b) = if self.random.one_in(3) { (dy, x.uid) } else { (x.uid, dy) };
        let mut node = Pointwise::binary(mode, a, b, out);
        self.parameters(&mut node);
        self.node(Operation::Pointwise(node));
    }

    fn choice(&mut self, x: &Item) {
        let predicates: Vec<TensorUid> = self
            .items
            .iter()
            .filter(|item| item.dims == x.dims && item.data_type == DataType::Boolean)
            .map(|item| item.uid)
            .collect();
        let predicate = match predicates.is_empty() {
            true => self.tensor(DataType::Boolean, &x.dims),
            false => *self.random.pick(&predicates),
        };
        let other = self.operand(&x.dims);
        let out = self.output(&x.dims, false);
        let node =
            Pointwise { in_2: Some(predicate), ..Pointwise::binary(PointwiseMode::BinarySelect, x.uid, other, out) };
        self.node(Operation::Pointwise(node));
    }

    fn matmul(&mut self, a: &Item) {
        let rank = a.dims.len();
        let mut b: Vec<i64> =
            a.dims[..rank - 2].iter().map(|extent| if self.random.one_in(3) { 1 } else { *extent }).collect();
        b.extend([a.dims[rank - 1], self.extent(6)]);
        let mut c = a.dims.clone();
        c[rank - 1] = b[rank - 1];
        let b = self.like(&b);
        let c = self.output(&c, false);
        self.node(Operation::Matmul(Matmul { a: a.uid, b, c }));
    }

    fn per_channel(dims: &[i64]) -> Vec<i64> {
        (0..dims.len()).map(|axis| if axis == 1 { dims[1] } else { 1 }).collect()
    }

    fn epsilon(&mut self) -> TensorUid {
        if self.random.one_in(3) {
            self.net.runtime_scalar("", DataType::Float)
        } else {
            self.net.scalar("", DataType::Float, 1e-3)
        }
    }

    fn batchnorm_inference(&mut self, x: &Item) {
        let channel = Growth::per_channel(&x.dims);
        let [mean, spread, scale, bias] = std::array::from_fn(|_| self.exact(&channel));
        if self.random.one_in(2) {
            let y = self.output(&x.dims, false);
            let node = BatchnormInference { x: x.uid, mean, inv_variance: spread, scale, bias, y };
            self.node(Operation::BatchnormInference(node));
        } else {
            let epsilon = self.epsilon();
            let y = self.output(&x.dims, false);
            let node = BatchnormInferenceVarianceExt { x: x.uid, mean, variance: spread, scale, bias, y, epsilon };
            self.node(Operation::BatchnormInferenceVarianceExt(node));
        }
    }

    fn batchnorm(&mut self, x: &Item) {
        let channel = Growth::per_channel(&x.dims);
        let (saved, running) = (self.random.one_in(2), self.random.one_in(2));
        let (scale, bias) = (self.exact(&channel), self.exact(&channel));
        let node = Batchnorm {
            x: x.uid,
            scale,
            bias,
            epsilon: self.epsilon(),
            peer_stats: Vec::new(),
            prev_running_mean: running.then(|| self.exact(&channel)),
            prev_running_variance: running.then(|| self.exact(&channel)),
            momentum: running.then(|| self.net.scalar("", DataType::Float, 0.25)),
            y: self.output(&x.dims, false),
            mean: self.maybe(saved, &channel),
            inv_variance: self.maybe(saved, &channel),
            next_running_mean: self.maybe(running, &channel),
            next_running_variance: self.maybe(running, &channel),
        };
        self.node(Operation::Batchnorm(node));
    }

    fn batchnorm_backward(&mut self, x: &Item) {
        let channel = Growth::per_channel(&x.dims);
        let given = self.random.one_in(2);
        let other = self.like(&x.dims);
        let (x_uid, dy) = if self.random.one_in(2) { (x.uid, other) } else { (other, x.uid) };
        let node = BatchnormBackward {
            dy,
            x: x_uid,
            mean: given.then(|| self.exact(&channel)),
            inv_variance: given.then(|| self.exact(&channel)),
            scale: self.exact(&channel),
            peer_stats: Vec::new(),
            dx: self.output(&x.dims, false),
            dscale: self.output_as(DataType::Float, &channel, false),
            dbias: self.output_as(DataType::Float, &channel, false),
        };
        self.node(Operation::BatchnormBackward(node));
    }

    /// Number of last dimensions in a row, and the extents of operands along a row and of those with one element a row.
    fn rows(&mut self, dims: &[i64]) -> (usize, Vec<i64>, Vec<i64>) {
        let first = dims.len() - 1 - self.random.below(dims.len() - 1);
        let along = (0..dims.len()).map(|axis| if axis < first { 1 } else { dims[axis] }).collect();
        let each = (0..dims.len()).map(|axis| if axis < first { dims[axis] } else { 1 }).collect();
        (dims.len() - first, along, each)
    }

    fn layernorm(&mut self, x: &Item) {
        let (count, along, each) = self.rows(&x.dims);
        let training = self.random.one_in(2);
        let node = Layernorm {
            x: x.uid,
            scale: self.inputs(&along),
            bias: self.inputs(&along),
            epsilon: self.epsilon(),
            y: self.output(&x.dims, false),
            normalized_dim_count: count as i64,
            mean: self.maybe(training, &each),
            inv_variance: self.maybe(training, &each),
            forward_phase: if training { NormFwdPhase::Training } else { NormFwdPhase::Inference },
        };
        self.node(Operation::Layernorm(node));
    }

    /// True if a scale of those extents tells the dimensions of a row.
    fn says(dims: &[i64], along: &[i64]) -> bool {
        dims.iter().zip(along).rev().take_while(|(x, scale)| x == scale).count() < dims.len()
            && along.iter().any(|e| *e != 1)
    }

    fn rms_norm(&mut self, x: &Item) {
        let (_, along, each) = self.rows(&x.dims);
        if !Growth::says(&x.dims, &along) {
            return;
        }
        let (training, with_bias) = (self.random.one_in(2), self.random.one_in(2));
        let node = RmsNorm {
            x: x.uid,
            scale: self.inputs(&along),
            epsilon: self.epsilon(),
            y: self.output(&x.dims, false),
            bias: with_bias.then(|| self.inputs(&along)),
            inv_rms: self.maybe(training, &each),
            forward_phase: if training { NormFwdPhase::Training } else { NormFwdPhase::Inference },
        };
        self.node(Operation::RmsNorm(node));
    }

    fn row_backward(&mut self, x: &Item) {
        let (count, along, each) = self.rows(&x.dims);
        let other = self.like(&x.dims);
        let (x_uid, dy) = if self.random.one_in(2) { (x.uid, other) } else { (other, x.uid) };
        if self.random.one_in(2) {
            let given = self.random.one_in(2);
            let node = LayernormBackward {
                dy,
                x: x_uid,
                scale: self.inputs(&along),
                mean: given.then(|| self.exact(&each)),
                inv_variance: given.then(|| self.exact(&each)),
                epsilon: (!given).then(|| self.epsilon()),
                dx: self.output(&x.dims, false),
                dscale: self.output(&along, false),
                dbias: Some(self.output(&along, false)),
                normalized_dim_count: count as i64,
            };
            self.node(Operation::LayernormBackward(node));
        } else if Growth::says(&x.dims, &along) {
            let with_bias = self.random.one_in(2);
            let node = RmsNormBackward {
                dy,
                x: x_uid,
                scale: self.inputs(&along),
                inv_rms: self.exact(&each),
                dx: self.output(&x.dims, false),
                dscale: self.output(&along, false),
                dbias: with_bias.then(|| self.output(&along, false)),
            };
            self.node(Operation::RmsNormBackward(node));
        }
    }

    fn reduction(&mut self, x: &Item) {
        let modes: Vec<ReductionMode> =
            ReductionMode::ALL.iter().copied().filter(|mode| *mode != ReductionMode::Unset).collect();
        let mode = *self.random.pick(&modes);
        let dims: Vec<i64> = x.dims.iter().map(|extent| if self.random.one_in(2) { 1 } else { *extent }).collect();
        let output = self.output(&dims, false);
        self.node(Operation::Reduction(Reduction { mode, input: x.uid, output, is_deterministic: false }));
    }

    fn resample(&mut self, x: &Item) {
        if x.dims.len() < 3 {
            return;
        }
        let spatial = x.dims.len() - 2;
        let resample_mode = *self.random.pick(&[
            ResampleMode::MaxPool,
            ResampleMode::AvgPoolExcludePadding,
            ResampleMode::AvgPoolIncludePadding,
        ]);
        let is_max = resample_mode == ResampleMode::MaxPool;
        let (mut window, mut stride, mut pre, mut post, mut y) = (vec![], vec![], vec![], vec![], x.dims[..2].to_vec());
        for axis in 0..spatial {
            window.push(self.extent(3));
            stride.push(self.extent(3));
            // Every window has a place of the image: less padding than window on either side.
            pre.push(self.random.below(window[axis] as usize) as i64);
            post.push(self.random.below(window[axis] as usize) as i64);
            let room = x.dims[axis + 2] + pre[axis] + post[axis] - window[axis];
            if room < 0 {
                return;
            }
            y.push(room / stride[axis] + 1);
        }
        let index = (is_max && self.random.one_in(2)).then(|| self.output_as(DataType::Int32, &y, false));
        let node = ResampleFwd {
            x: x.uid,
            y: self.output(&y, false),
            index,
            pre_padding: pre.clone(),
            post_padding: post.clone(),
            stride: stride.clone(),
            window: window.clone(),
            resample_mode,
            padding_mode: PaddingMode::NegInf,
            generate_index: Some(index.is_some()),
        };
        self.node(Operation::ResampleFwd(node));
        if let Some(index) = index
            && self.has_room()
            && self.random.one_in(2)
        {
            let node = ResampleBwd {
                dy: self.like(&y),
                dx: self.output(&x.dims, false),
                index: Some(index),
                pre_padding: pre,
                post_padding: post,
                stride,
                window,
                resample_mode,
                padding_mode: PaddingMode::NegInf,
            };
            self.node(Operation::ResampleBwd(node));
        }
    }

    fn resample_backward(&mut self, dy: &Item) {
        if dy.dims.len() < 3 {
            return;
        }
        let spatial = dy.dims.len() - 2;
        let resample_mode = *self.random.pick(&[
            ResampleMode::MaxPool,
            ResampleMode::AvgPoolExcludePadding,
            ResampleMode::AvgPoolIncludePadding,
        ]);
        let (mut window, mut stride, mut pre, mut post, mut dx) =
            (vec![], vec![], vec![], vec![], dy.dims[..2].to_vec());
        for axis in 0..spatial {
            window.push(self.extent(3));
            stride.push(self.extent(3));
            pre.push(self.random.below(window[axis] as usize) as i64);
            post.push(self.random.below(window[axis] as usize) as i64);
            let extent = (dy.dims[axis + 2] - 1) * stride[axis] + window[axis] - pre[axis] - post[axis];
            if !(1..=30).contains(&extent) {
                return;
            }
            dx.push(extent);
        }
        let is_max = resample_mode == ResampleMode::MaxPool;
        let node = ResampleBwd {
            dy: dy.uid,
            index: is_max.then(|| self.tensor(DataType::Int32, &dy.dims)),
            dx: self.output(&dx, false),
            pre_padding: pre,
            post_padding: post,
            stride,
            window,
            resample_mode,
            padding_mode: PaddingMode::NegInf,
        };
        self.node(Operation::ResampleBwd(node));
    }

    fn block_scale(&mut self, x: &Item) {
        let rank = x.dims.len();
        let block = self.extent(4);
        if self.random.one_in(2) {
            let mut scales = x.dims.clone();
            scales[rank - 1] = (scales[rank - 1] + block - 1) / block;
            let node = BlockScaleDequantize {
                x: x.uid,
                scale: self.inputs(&scales),
                y: self.output(&x.dims, false),
                block_size: vec![block as i32],
                is_negative_scale: false,
            };
            self.node(Operation::BlockScaleDequantize(node));
            return;
        }
        let axis = self.random.below(rank);
        let mut scales = x.dims.clone();
        scales[axis] = (scales[axis] + block - 1) / block;
        let narrow = *self.random.pick(&[DataType::Fp8E4M3, DataType::Fp8E5M2]);
        let y = self.output_as(narrow, &x.dims, false);
        let scale_type = *self.random.pick(&[DataType::Float, DataType::Fp8E8M0]);
        let scale = self.output_as(scale_type, &scales, false);
        let node = BlockScaleQuantize {
            x: x.uid,
            y,
            scale,
            block_size: block as i32,
            axis: Some(axis as i64),
            transpose: false,
        };
        self.node(Operation::BlockScaleQuantize(node));
        if axis == rank - 1 && self.has_room() && self.random.one_in(2) {
            let node = BlockScaleDequantize {
                x: y,
                scale,
                y: self.output(&x.dims, false),
                block_size: vec![block as i32],
                is_negative_scale: false,
            };
            self.node(Operation::BlockScaleDequantize(node));
        }
    }

    fn attention(&mut self, q: &Item) {
        let &[batch, heads, _, depth] = &q.dims[..] else { return };
        let (shared, keys, width) = (self.divisor(heads), self.extent(5), self.extent(5));
        let k = self.like(&[batch, shared, keys, depth]);
        let v = self.like(&[batch, shared, keys, width]);
        let mut node = attention_without_options(q.uid, k, v);
        node.causal_mask = self.random.one_in(3);
        if self.random.one_in(3) {
            node.attn_scale_value = Some(0.5);
        }
        if self.random.one_in(4) {
            node.attn_mask = Some(self.inputs(&[batch, heads, q.dims[2], keys]));
        }
        let mut o = q.dims.clone();
        o[3] = width;
        node.o = self.output(&o, false);
        self.node(Operation::Sdpa(Box::new(node)));
    }

    /// Makes intermediates of most tensors that are read, and drops tensors that no node names.
    fn finish(mut self, all_real: bool) -> Net {
        let def = &mut self.net.def;
        let read: Vec<TensorUid> = def.nodes.iter().flat_map(|node| node.operation.inputs()).collect();
        for tensor in &mut def.tensors {
            // Drawn in any case, so that both graphs of a pair are the same otherwise.
            let kept = self.random.one_in(6);
            if self.written.contains(&tensor.uid) && read.contains(&tensor.uid) && !kept && !all_real {
                tensor.is_virtual = true;
            }
        }
        drop_unused(def);
        self.net
    }
}

/// Modes to pick from: some first, as often as they stand there, then all others of their kind, and some last. The
/// order is part of what a seed means.
fn modes(first: &[PointwiseMode], kind: impl Fn(PointwiseMode) -> bool, last: &[PointwiseMode]) -> Vec<PointwiseMode> {
    let others = PointwiseMode::ALL.iter().filter(|mode| kind(**mode) && !first.contains(mode) && !last.contains(mode));
    first.iter().chain(others).chain(last).copied().collect()
}

fn is_backward(mode: PointwiseMode) -> bool {
    mode.json_name().ends_with("_bwd")
}

fn is_float(data_type: DataType) -> bool {
    FLOATS.contains(&data_type)
}

fn drop_unused(def: &mut GraphDef) {
    let named: Vec<TensorUid> =
        def.nodes.iter().flat_map(|node| node.operation.inputs().into_iter().chain(node.operation.outputs())).collect();
    def.tensors.retain(|tensor| named.contains(&tensor.uid));
}

/// Graphs that are smaller than this one in one way each: a node less, or packed strides.
pub fn smaller(def: &GraphDef) -> Vec<GraphDef> {
    let mut graphs = Vec::new();
    for i in (0..def.nodes.len()).filter(|_| def.nodes.len() > 1) {
        let mut smaller = def.clone();
        let gone = smaller.nodes.remove(i).operation.outputs();
        // What the node wrote and others read is given from outside.
        smaller
            .tensors
            .iter_mut()
            .filter(|tensor| gone.contains(&tensor.uid))
            .for_each(|tensor| tensor.is_virtual = false);
        drop_unused(&mut smaller);
        graphs.push(smaller);
    }
    for i in 0..def.tensors.len() {
        let tensor = &def.tensors[i];
        let packed = Layout::First.strides(&tensor.dims);
        if tensor.strides != packed {
            let mut smaller = def.clone();
            smaller.tensors[i].strides = packed;
            graphs.push(smaller);
        }
    }
    graphs
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hipdnn_schemas::Graph;

    use super::*;

    #[test]
    fn graphs_are_valid_connected_and_of_every_kind() {
        let mut kinds = BTreeMap::new();
        let mut sizes = BTreeMap::new();
        for seed in 0..4000 {
            let case = case(seed);
            let graph = Graph::new(case.graph).unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
            *sizes.entry(graph.nodes().len()).or_insert(0) += 1;
            for (i, node) in graph.nodes().iter().enumerate() {
                *kinds.entry(node.operation.kind()).or_insert(0) += 1;
                let connected = node.operation.inputs().iter().any(|uid| graph.producer(*uid).is_some());
                assert!(i == 0 || connected, "seed {seed}: node {i}");
            }
        }
        assert_eq!(sizes.keys().max(), Some(&MOST_NODES));
        assert_eq!(kinds.len(), 19, "{kinds:?}");
        assert!(kinds.values().all(|count| *count > 100), "{kinds:?}");
    }

    #[test]
    fn pairs_differ_by_their_intermediates_only() {
        let (even, odd) = (case(20), case(21));
        let mut real = even.graph.clone();
        real.tensors.iter_mut().for_each(|tensor| tensor.is_virtual = false);
        assert_eq!(real, odd.graph);
        assert_eq!(even.seed, odd.seed);
    }

    #[test]
    fn smaller_graphs_are_graphs() {
        for seed in 0..200 {
            for smaller in smaller(&case(seed).graph) {
                Graph::new(smaller).unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
            }
        }
    }
}
