//! One convolution graph: its tensors, its nodes, and what it has to give.

use hipdnn_rs_integration_tests::reference::{Direction, Exact, convolve_towards, roundoff};
use hipdnn_rs_integration_tests::tensor::HostTensor;
use hipdnn_schemas::{
    ConvMode, Convolution, ConvolutionBwd, ConvolutionWrw, DataType, GraphBuilder, Operation, Pointwise, TensorDef,
    TensorUid, TensorValue,
};

use crate::tail::{Operand, Step, apply};

/// Order of a tensor's elements in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Row major: NCHW and its kin.
    First,
    /// Channels innermost: NHWC and its kin.
    Last,
    /// Row major with a gap after every row, as a view into a larger tensor has.
    Gaps,
    /// Some channels of a row-major tensor with more of them.
    Slice,
    /// Some channels of a channels-last tensor with more of them.
    SliceLast,
    /// Row major, but images innermost: CHWN.
    ImagesLast,
}

impl Layout {
    pub(crate) fn apply(self, def: TensorDef) -> TensorDef {
        let dims = def.dims.clone();
        match self {
            Layout::First => def,
            Layout::Last => def.channels_last(),
            Layout::Gaps => {
                let mut strides = def.strides.clone();
                let mut step = 1;
                for (axis, stride) in strides.iter_mut().enumerate().rev() {
                    *stride = step;
                    step *= dims[axis] + 1;
                }
                def.strided(&strides)
            }
            Layout::Slice => {
                let mut strides = def.strides.clone();
                strides[0] += 3 * strides[1];
                def.strided(&strides)
            }
            Layout::SliceLast => {
                let wider: Vec<i64> = dims
                    .iter()
                    .enumerate()
                    .map(|(axis, extent)| if axis == 1 { extent + 3 } else { *extent })
                    .collect();
                let strides = TensorDef::new(0, def.data_type, &wider).channels_last().strides;
                def.strided(&strides)
            }
            Layout::ImagesLast => {
                let mut strides: Vec<i64> = def.strides.iter().map(|stride| stride * dims[0]).collect();
                strides[0] = 1;
                def.strided(&strides)
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Layout::First => "first",
            Layout::Last => "last",
            Layout::Gaps => "gaps",
            Layout::Slice => "slice",
            Layout::SliceLast => "slice-last",
            Layout::ImagesLast => "images-last",
        }
    }

    /// The layout of a residual that has not the output's.
    fn other(self) -> Layout {
        if self == Layout::Last { Layout::First } else { Layout::Last }
    }
}

/// Extents and parameters, with a name.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    pub(crate) name: &'static str,
    pub(crate) x: Vec<i64>,
    pub(crate) w: Vec<i64>,
    pub(crate) convolution: Convolution,
}

impl Geometry {
    pub(crate) fn y(&self) -> Vec<i64> {
        let extents = (0..self.x.len() - 2).map(|axis| {
            let extent = self.convolution.output_extent(axis, self.x[2 + axis], self.w[2 + axis]);
            extent.unwrap_or_else(|| panic!("{}: the window does not fit", self.name))
        });
        [self.x[0], self.w[0]].into_iter().chain(extents).collect()
    }
}

/// A convolution in one direction with what follows it.
#[derive(Clone)]
pub(crate) struct ConvolutionCase {
    pub(crate) geometry: Geometry,
    pub(crate) direction: Direction,
    /// Of x, w and y.
    pub(crate) types: [DataType; 3],
    /// Of x, w and y.
    pub(crate) layouts: [Layout; 3],
    /// By how many elements the buffers are shifted from the alignment of allocations.
    pub(crate) shift: usize,
    pub(crate) tail: Vec<Step>,
    pub(crate) tail_name: &'static str,
    /// The type of the values between the nodes.
    pub(crate) stored: DataType,
}

pub(crate) const X: i64 = 1;
pub(crate) const W: i64 = 2;
pub(crate) const Y: i64 = 3;
const RESULT: i64 = 9;
const OPERANDS: i64 = 10;
const INTERMEDIATES: i64 = 100;

impl ConvolutionCase {
    pub(crate) fn new(
        geometry: &Geometry,
        direction: Direction,
        data_type: DataType,
        layout: Layout,
    ) -> ConvolutionCase {
        ConvolutionCase {
            geometry: geometry.clone(),
            direction,
            types: [data_type; 3],
            layouts: [layout; 3],
            shift: 0,
            tail: Vec::new(),
            tail_name: "",
            stored: DataType::Float,
        }
    }

    pub(crate) fn name(&self) -> String {
        let direction = match self.direction {
            Direction::Forward => "forward",
            Direction::BackwardData => "data",
            Direction::BackwardWeights => "weights",
        };
        let joined = |all: [&str; 3]| {
            if all.iter().all(|one| *one == all[0]) { all[0].to_owned() } else { all.join("·") }
        };
        let types = joined(self.types.map(|data_type| match data_type {
            DataType::Float => "fp32",
            DataType::Half => "fp16",
            DataType::BFloat16 => "bf16",
            _ => "other",
        }));
        let mut name = format!("{direction} {types} {} {}", joined(self.layouts.map(Layout::name)), self.geometry.name);
        if self.shift > 0 {
            name += " shifted";
        }
        if !self.tail.is_empty() {
            name += &format!(", {}", self.tail_name);
        }
        if self.stored != DataType::Float {
            name += &format!(", between the nodes {}", self.stored);
        }
        name
    }

    /// The convolution's own result.
    fn result(&self) -> usize {
        match self.direction {
            Direction::Forward => 2,
            Direction::BackwardData => 0,
            Direction::BackwardWeights => 1,
        }
    }

    fn dims(&self, tensor: usize) -> Vec<i64> {
        match tensor {
            0 => self.geometry.x.clone(),
            1 => self.geometry.w.clone(),
            _ => self.geometry.y(),
        }
    }

    fn def(&self, tensor: usize) -> TensorDef {
        let data_type = self.types[tensor];
        let mut def = TensorDef::new([X, W, Y][tensor], data_type, &self.dims(tensor));
        if self.shift > 0 {
            def.alignment = i64::from(data_type.bits().expect("a type")) / 8;
        }
        self.layouts[tensor].apply(def)
    }

    /// The two tensors that the convolution reads, in the order of [`convolve_towards`].
    fn operands_of_convolution(&self) -> [usize; 2] {
        match self.direction {
            Direction::Forward => [0, 1],
            Direction::BackwardData => [2, 1],
            Direction::BackwardWeights => [0, 2],
        }
    }

    /// The inputs of the graph: first the convolution's two, then those of the steps.
    pub(crate) fn inputs(&self) -> Vec<TensorDef> {
        let mut defs: Vec<TensorDef> = self.operands_of_convolution().map(|tensor| self.def(tensor)).to_vec();
        let result = self.result();
        let dims = self.dims(result);
        let mut channels = vec![1; dims.len()];
        channels[1] = dims[1];
        for (at, step) in self.tail.iter().enumerate() {
            let uid = OPERANDS + at as i64;
            let whole = |layout: Layout| layout.apply(TensorDef::new(uid, self.types[result], &dims));
            match step.with {
                Some(Operand::Bias(data_type)) => {
                    defs.push(TensorDef::new(uid, data_type.unwrap_or(self.types[result]), &channels));
                }
                Some(Operand::Residual) => defs.push(whole(self.layouts[result])),
                Some(Operand::ResidualElsewhere) => defs.push(whole(self.layouts[result].other())),
                Some(Operand::Scalar(_)) | None => {}
            }
        }
        defs
    }

    /// The output of the graph.
    pub(crate) fn output(&self) -> TensorDef {
        self.def(self.result())
    }

    /// Values for the inputs, the same at every call.
    pub(crate) fn values(&self) -> Vec<HostTensor> {
        self.inputs().iter().map(|def| HostTensor::random(def, def.uid.0.unsigned_abs())).collect()
    }

    /// The graph in its binary form.
    pub(crate) fn graph(&self) -> Vec<u8> {
        let mut graph = GraphBuilder::new(self.name()).compute(DataType::Float);
        for def in self.inputs() {
            graph.tensor(def);
        }
        let output = self.output();
        let uid = output.uid;
        let layout = self.layouts[self.result()];
        let between = |uid: i64| layout.apply(TensorDef::new(uid, self.stored, &output.dims)).intermediate();
        let mut from = if self.tail.is_empty() { uid } else { graph.tensor(between(RESULT)) };
        self.convolution(&mut graph, from);
        for (at, step) in self.tail.iter().enumerate() {
            let last = at + 1 == self.tail.len();
            let to = if last { uid } else { graph.tensor(between(INTERMEDIATES + at as i64)) };
            let other = match step.with {
                None => None,
                Some(Operand::Scalar(value)) => {
                    let def = TensorDef::new(OPERANDS + at as i64, DataType::Float, &[1]);
                    Some(graph.tensor(def.with_value(TensorValue::Float32(value))))
                }
                Some(_) => Some(TensorUid(OPERANDS + at as i64)),
            };
            let mut pointwise = match other {
                None => Pointwise::unary(step.mode, from, to),
                Some(other) if step.swapped => Pointwise::binary(step.mode, other, from, to),
                Some(other) => Pointwise::binary(step.mode, from, other, to),
            };
            (step.adjust)(&mut pointwise);
            graph.pointwise(pointwise);
            from = to;
        }
        graph.tensor(output);
        graph.def().to_bytes()
    }

    fn convolution(&self, graph: &mut GraphBuilder, result: TensorUid) {
        let convolution = self.geometry.convolution.clone();
        let [x, w, y] = [X, W, Y].map(TensorUid);
        match self.direction {
            Direction::Forward => {
                graph.convolution_fwd(x, w, result, convolution);
            }
            Direction::BackwardData => {
                graph.node("", Operation::ConvolutionBwd(ConvolutionBwd { dy: y, w, dx: result, convolution }));
            }
            Direction::BackwardWeights => {
                graph.node("", Operation::ConvolutionWrw(ConvolutionWrw { x, dy: y, dw: result, convolution }));
            }
        }
    }

    /// Expected output; `strict` says that floats between the nodes stay floats.
    ///
    /// An engine that does not compute the whole chain in one kernel stores the convolution's result before it goes on.
    /// Unless asked to be strict it may do so in the type of the operands, which rounds once more.
    pub(crate) fn wanted(&self, inputs: &[HostTensor], strict: bool) -> Vec<Exact> {
        let dims = self.dims(self.result());
        let mut wanted =
            convolve_towards(self.direction, &inputs[0], &inputs[1], &dims, &self.geometry.convolution, 16.0);
        if !self.tail.is_empty() {
            let operands = self.operands_of_convolution().map(|tensor| roundoff(self.types[tensor]));
            let stored = roundoff(self.stored);
            let unit = if strict { stored } else { operands[0].max(operands[1]).max(stored) };
            if unit > roundoff(DataType::Float) {
                for exact in &mut wanted {
                    exact.error += 1.01 * unit * (exact.value.abs() + exact.error) + 2f64.powi(-25);
                }
            }
        }
        let others: Vec<&HostTensor> = inputs[2..].iter().collect();
        apply(&self.tail, &mut wanted, &dims, &others, self.stored);
        wanted
    }
}

/// A geometry; lists have one entry for each spatial dimension.
fn geometry(
    name: &'static str,
    (x, w): (&[i64], &[i64]),
    (pre, post): (&[i64], &[i64]),
    (stride, dilation): (&[i64], &[i64]),
) -> Geometry {
    let convolution = Convolution {
        pre_padding: pre.to_vec(),
        post_padding: post.to_vec(),
        stride: stride.to_vec(),
        dilation: dilation.to_vec(),
        mode: ConvMode::CrossCorrelation,
    };
    Geometry { name, x: x.to_vec(), w: w.to_vec(), convolution }
}

fn flipped(mut geometry: Geometry) -> Geometry {
    geometry.convolution.mode = ConvMode::Convolution;
    geometry
}

/// Every kind of geometry, as small as shows it.
pub(crate) fn geometries() -> Vec<Geometry> {
    vec![
        geometry("1d 1", (&[2, 4, 9], &[3, 4, 1]), (&[0], &[0]), (&[1], &[1])),
        geometry("1d 3 pad 1", (&[1, 4, 11], &[6, 4, 3]), (&[1], &[1]), (&[1], &[1])),
        geometry("1d 3 stride 2", (&[2, 3, 12], &[4, 3, 3]), (&[1], &[1]), (&[2], &[1])),
        geometry("1d 3 dilation 2", (&[1, 4, 13], &[4, 4, 3]), (&[2], &[2]), (&[1], &[2])),
        geometry("1d groups 2", (&[1, 4, 10], &[6, 2, 3]), (&[1], &[1]), (&[1], &[1])),
        geometry("1d asymmetric", (&[1, 3, 10], &[4, 3, 4]), (&[1], &[2]), (&[1], &[1])),
        flipped(geometry("1d flipped", (&[1, 3, 10], &[4, 3, 4]), (&[0], &[0]), (&[2], &[1]))),
        geometry("2d 1x1", (&[2, 8, 5, 6], &[7, 8, 1, 1]), (&[0, 0], &[0, 0]), (&[1, 1], &[1, 1])),
        geometry("2d 1x1 stride 2", (&[1, 6, 7, 8], &[5, 6, 1, 1]), (&[0, 0], &[0, 0]), (&[2, 2], &[1, 1])),
        geometry("2d 3x3", (&[1, 4, 8, 7], &[5, 4, 3, 3]), (&[0, 0], &[0, 0]), (&[1, 1], &[1, 1])),
        geometry("2d 3x3 pad 1", (&[2, 5, 6, 7], &[8, 5, 3, 3]), (&[1, 1], &[1, 1]), (&[1, 1], &[1, 1])),
        geometry("2d 3x3 stride 2", (&[1, 4, 9, 8], &[4, 4, 3, 3]), (&[1, 1], &[1, 1]), (&[2, 2], &[1, 1])),
        geometry("2d 3x3 dilation 2", (&[1, 4, 9, 8], &[4, 4, 3, 3]), (&[2, 2], &[2, 2]), (&[1, 1], &[2, 2])),
        geometry("2d 2x3 each axis its own", (&[1, 3, 9, 11], &[4, 3, 2, 3]), (&[1, 2], &[1, 2]), (&[2, 1], &[1, 3])),
        geometry("2d stem", (&[1, 3, 12, 12], &[8, 3, 7, 7]), (&[3, 3], &[3, 3]), (&[2, 2], &[1, 1])),
        geometry("2d groups 2", (&[1, 8, 6, 6], &[6, 4, 3, 3]), (&[1, 1], &[1, 1]), (&[1, 1], &[1, 1])),
        geometry("2d groups 3", (&[2, 6, 5, 6], &[9, 2, 3, 1]), (&[1, 0], &[1, 0]), (&[2, 1], &[1, 1])),
        geometry("2d depthwise", (&[1, 7, 7, 6], &[7, 1, 3, 3]), (&[1, 1], &[1, 1]), (&[1, 1], &[1, 1])),
        geometry("2d depthwise stride 2", (&[1, 8, 9, 8], &[8, 1, 5, 5]), (&[2, 2], &[2, 2]), (&[2, 2], &[1, 1])),
        geometry("2d multiplier 2", (&[1, 4, 6, 6], &[8, 1, 3, 3]), (&[0, 0], &[0, 0]), (&[1, 1], &[1, 1])),
        geometry("2d asymmetric", (&[1, 4, 7, 6], &[5, 4, 3, 3]), (&[0, 1], &[1, 0]), (&[1, 1], &[1, 1])),
        geometry("2d asymmetric stride 2", (&[2, 3, 7, 8], &[4, 3, 3, 2]), (&[0, 2], &[1, 0]), (&[2, 2], &[1, 1])),
        geometry("2d asymmetric groups 2", (&[1, 4, 6, 7], &[4, 2, 3, 3]), (&[2, 0], &[0, 1]), (&[1, 1], &[1, 2])),
        geometry("2d padding only", (&[1, 2, 3, 3], &[3, 2, 2, 2]), (&[3, 3], &[3, 3]), (&[1, 1], &[1, 1])),
        flipped(geometry("2d flipped", (&[1, 4, 7, 6], &[5, 4, 3, 2]), (&[1, 1], &[1, 1]), (&[1, 1], &[1, 1]))),
        flipped(geometry("2d flipped groups", (&[1, 4, 6, 6], &[6, 2, 2, 3]), (&[0, 1], &[0, 1]), (&[2, 1], &[1, 1]))),
        flipped(geometry(
            "2d flipped asymmetric",
            (&[1, 3, 6, 7], &[4, 3, 3, 3]),
            (&[1, 0], &[0, 2]),
            (&[1, 1], &[1, 1]),
        )),
        geometry("2d whole image", (&[2, 6, 4, 5], &[3, 6, 4, 5]), (&[0, 0], &[0, 0]), (&[1, 1], &[1, 1])),
        geometry("2d one pixel", (&[3, 16, 1, 1], &[10, 16, 1, 1]), (&[0, 0], &[0, 0]), (&[1, 1], &[1, 1])),
        // More elements than one block of a kernel takes, and no multiple of a power of two.
        geometry("2d wide", (&[2, 2, 41, 67], &[5, 2, 1, 1]), (&[0, 0], &[0, 0]), (&[1, 1], &[1, 1])),
        geometry("2d wide asymmetric", (&[1, 3, 37, 53], &[4, 3, 2, 3]), (&[0, 2], &[1, 0]), (&[1, 1], &[1, 1])),
        geometry("2d many channels", (&[1, 33, 3, 3], &[65, 33, 1, 1]), (&[0, 0], &[0, 0]), (&[1, 1], &[1, 1])),
        geometry("3d 1x1x1", (&[1, 4, 3, 4, 5], &[6, 4, 1, 1, 1]), (&[0; 3], &[0; 3]), (&[1; 3], &[1; 3])),
        geometry("3d 3x3x3 pad 1", (&[1, 3, 4, 4, 5], &[4, 3, 3, 3, 3]), (&[1; 3], &[1; 3]), (&[1; 3], &[1; 3])),
        geometry("3d stride 2", (&[2, 2, 5, 4, 6], &[3, 2, 3, 3, 3]), (&[1; 3], &[1; 3]), (&[2; 3], &[1; 3])),
        geometry("3d dilation 2", (&[1, 2, 5, 6, 5], &[3, 2, 3, 2, 3]), (&[2, 1, 2], &[2, 1, 2]), (&[1; 3], &[2; 3])),
        geometry("3d flat", (&[1, 3, 1, 6, 5], &[4, 3, 1, 3, 3]), (&[0, 1, 1], &[0, 1, 1]), (&[1, 2, 1], &[1; 3])),
        geometry("3d groups 2", (&[1, 4, 3, 4, 4], &[6, 2, 2, 3, 3]), (&[0, 1, 1], &[0, 1, 1]), (&[1; 3], &[1; 3])),
        geometry("3d depthwise", (&[1, 5, 3, 4, 4], &[5, 1, 3, 3, 3]), (&[1; 3], &[1; 3]), (&[1; 3], &[1; 3])),
        geometry("3d asymmetric", (&[1, 3, 4, 5, 4], &[3, 3, 3, 2, 3]), (&[1, 0, 0], &[0, 1, 2]), (&[1; 3], &[1; 3])),
        flipped(geometry(
            "3d flipped",
            (&[1, 3, 4, 4, 5], &[4, 3, 2, 3, 2]),
            (&[0; 3], &[0; 3]),
            (&[1, 2, 1], &[1; 3]),
        )),
    ]
}

/// The geometry of that name.
pub(crate) fn geometry_named(name: &str) -> Geometry {
    let found = geometries().into_iter().find(|geometry| geometry.name == name);
    found.unwrap_or_else(|| panic!("no geometry is called {name}"))
}
