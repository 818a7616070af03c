//! Legalized graphs, run in `f64` dispatch by dispatch, against the reference results of their graphs.

use hipdnn_schemas::{
    ConvMode, Convolution as Geometry, ConvolutionBwd, ConvolutionFwd, ConvolutionWrw, GraphBuilder, Operation,
    Pointwise, PointwiseMode, TensorDef,
};

use super::simulate::{Definition, at, indices, run};
use super::*;
use crate::convolution::{self, Direction};
use crate::emit::grouped::Input;
use crate::fuse::fuse;
use crate::lower::lower;

const F: DataType = DataType::Float;
const H: DataType = DataType::Half;

/// Deterministic random numbers: a linear congruential generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

fn convolution(direction: Direction, [x, w, y]: [TensorUid; 3], convolution: Geometry) -> Operation {
    match direction {
        Direction::Forward => Operation::ConvolutionFwd(ConvolutionFwd { x, w, y, convolution }),
        Direction::BackwardData => Operation::ConvolutionBwd(ConvolutionBwd { dy: y, w, dx: x, convolution }),
        Direction::BackwardWeights => Operation::ConvolutionWrw(ConvolutionWrw { x, dy: y, dw: w, convolution }),
    }
}

/// Places of a tensor's memory, numbered, -3 to 3.
fn fill(tensor: &Tensor, seed: usize) -> Vec<f64> {
    (0..tensor.span()).map(|i| ((i * 5 + i / 7 + seed) % 7) as f64 - 3.0).collect()
}

fn legalized_for(graph: &Graph, options: LegalizeOptions) -> Legalized {
    legalize(graph, &fuse(graph, lower(graph).unwrap()), options, &|_| Ok(())).unwrap()
}

#[test]
fn arranged_convolutions_compute_what_the_graph_says() {
    let mut numbers = Numbers(1);
    let mut copies = 0;
    for case in 0..360 {
        let direction = Direction::ALL[case % 3];
        let spatial = 1 + numbers.below(3);
        let groups = [1, 1, 2, 3][numbers.below(4)];
        let mut geometry = Geometry::new(spatial);
        let mut dims = [vec![1 + numbers.below(2), groups * (1 + numbers.below(2))], vec![], vec![]].map(|d| d);
        dims[1] = vec![groups * (1 + numbers.below(2)), dims[0][1] / groups];
        dims[2] = vec![dims[0][0], dims[1][0]];
        if numbers.below(4) == 0 {
            geometry.mode = ConvMode::Convolution;
        }
        for axis in 0..spatial {
            let mut number = |bound: usize| numbers.below(bound) as i64;
            geometry.stride[axis] = 1 + number(3);
            geometry.dilation[axis] = 1 + number(2);
            let symmetric = number(2) == 0;
            geometry.pre_padding[axis] = number(4);
            geometry.post_padding[axis] = if symmetric { geometry.pre_padding[axis] } else { number(4) };
            let taps = 1 + number(3);
            let window = geometry.dilation[axis] * (taps - 1) + 1;
            let least = (window - geometry.pre_padding[axis] - geometry.post_padding[axis]).max(1);
            let input = least + number(5);
            dims[0].push(input as usize);
            dims[1].push(taps as usize);
            dims[2].push(geometry.output_extent(axis, input, taps).unwrap() as usize);
        }
        let mut graph = GraphBuilder::new("case").compute(F);
        for (uid, dims) in dims.iter().enumerate() {
            let dims: Vec<i64> = dims.iter().map(|extent| *extent as i64).collect();
            let data_type = [F, F, F, H][numbers.below(4)];
            let tensor = TensorDef::new(uid as i64, data_type, &dims);
            let result = [2, 0, 1][case % 3];
            let tensor = match numbers.below(5) {
                0 => tensor.channels_last(),
                // Operands may be broadcast, or overlap in other ways.
                2 if uid != result => {
                    let strides: Vec<i64> =
                        tensor.strides.iter().enumerate().map(|(i, _)| (i as i64 + 1) % 3).collect();
                    tensor.strided(&strides)
                }
                1 => {
                    let strides: Vec<i64> = tensor.strides.iter().map(|stride| stride * 2).collect();
                    tensor.strided(&strides)
                }
                _ => tensor,
            };
            graph.tensor(tensor);
        }
        graph.node("", convolution(direction, [0, 1, 2].map(TensorUid), geometry.clone()));
        let graph = graph.build().unwrap();
        let legalized = legalized_for(&graph, LegalizeOptions::default());
        copies += legalized.dispatches.len() - 1;
        let output = match direction {
            Direction::Forward => 2,
            Direction::BackwardData => 0,
            Direction::BackwardWeights => 1,
        };
        let memory: Vec<Vec<f64>> = (0..3).map(|i| fill(graph.tensor(TensorUid(i as i64)), i)).collect();
        let definition = Definition {
            direction,
            tensors: [0, 1, 2].map(|i| (&dims[i][..], view(graph.tensor(TensorUid(i as i64))).strides)),
            pre: geometry.pre_padding.clone(),
            stride: geometry.stride.clone(),
            dilation: geometry.dilation.clone(),
            flip: geometry.mode == ConvMode::Convolution,
        };
        let want = definition.run([0, 1, 2].map(|i| &memory[i][..]));
        let values = memory.iter().enumerate().map(|(i, m)| (Value::Tensor(TensorUid(i as i64)), m.clone())).collect();
        let got = &run(&legalized, values)[&Value::Tensor(TensorUid(output as i64))];
        for index in indices(&dims[output]) {
            let place = at(&index, &view(graph.tensor(TensorUid(output as i64))).strides) as usize;
            assert_eq!(got[place], want[place], "case {case}: {direction:?} {dims:?} {geometry:?} at {index:?}");
        }
        let strides = view(graph.tensor(TensorUid(output as i64))).strides;
        let elements: HashSet<usize> = indices(&dims[output]).map(|index| at(&index, &strides) as usize).collect();
        for place in (0..want.len()).filter(|place| !elements.contains(place)) {
            assert_eq!(got[place], memory[output][place], "case {case}: gaps stay as they are");
        }
    }
    assert!(copies > 240, "{copies} copies are too few to say anything");
}

/// Test case: a 2-D convolution of half tensors with a tail, and its options.
struct Case {
    graph: GraphBuilder,
    options: LegalizeOptions,
}

impl Case {
    /// x (0), w (1) and y (2), after a change.
    fn new(change: impl FnOnce(&mut [TensorDef; 3], &mut Geometry)) -> Case {
        let mut geometry = Geometry::new(2);
        let mut tensors = [
            TensorDef::new(0, H, &[2, 4, 9, 9]),
            TensorDef::new(1, H, &[4, 4, 3, 3]),
            TensorDef::new(2, H, &[2, 4, 7, 7]),
        ];
        change(&mut tensors, &mut geometry);
        let mut graph = GraphBuilder::new("case").compute(F);
        let uids = tensors.map(|tensor| graph.tensor(tensor));
        graph.node("", convolution(Direction::Forward, uids, geometry));
        Case { graph, options: LegalizeOptions::default() }
    }

    fn tensor(mut self, tensor: TensorDef) -> Case {
        self.graph.tensor(tensor);
        self
    }

    fn add(mut self, a: i64, b: i64, y: i64) -> Case {
        self.graph.pointwise(Pointwise::binary(PointwiseMode::Add, TensorUid(a), TensorUid(b), TensorUid(y)));
        self
    }

    fn relu(mut self, x: i64, y: i64) -> Case {
        self.graph.pointwise(Pointwise::unary(PointwiseMode::ReluFwd, TensorUid(x), TensorUid(y)));
        self
    }

    fn elu(mut self, alpha: f32, x: i64, y: i64) -> Case {
        let mut elu = Pointwise::unary(PointwiseMode::EluFwd, TensorUid(x), TensorUid(y));
        elu.elu_alpha = Some(alpha);
        self.graph.pointwise(elu);
        self
    }

    fn strict(mut self) -> Case {
        self.options.strict_fp32 = true;
        self
    }

    /// Summary of the dispatches: purpose, sources and destination.
    fn dispatches(self) -> Vec<String> {
        let graph = self.graph.build().unwrap();
        let value = |value: Value| match value {
            Value::Tensor(uid) => uid.to_string(),
            Value::Temporary(index) => format!("t{index}"),
        };
        let dispatch = |dispatch: &Dispatch| match dispatch {
            Dispatch::Convolution(dispatch) => {
                let [x, w, y] = [dispatch.x, dispatch.w, dispatch.y].map(value);
                let last = dispatch.problem.x.strides[1] == 1;
                format!("{:?}{} {x} {w} > {y}", dispatch.problem.x.data_type, if last { " last" } else { "" })
            }
            Dispatch::Kernel(dispatch) => {
                let list = |values: &[Value]| values.iter().map(|v| value(*v)).collect::<Vec<_>>().join(" ");
                let writes = list(&dispatch.writes);
                let Some((inputs, ..)) = dispatch.kernel.elementwise() else {
                    return format!("groups {} > {writes}", list(&dispatch.reads));
                };
                let mut scalars = dispatch.scalars.iter();
                let inputs: Vec<String> = inputs
                    .iter()
                    .map(|input| match input {
                        Input::Tensor { tensor, .. } => value(dispatch.reads[*tensor]),
                        Input::Index { axis } => format!("#{axis}"),
                        _ => match scalars.next().unwrap() {
                            Number::Known(number) => format!("={number}"),
                            Number::Host(uid, _) => format!("?{uid}"),
                        },
                    })
                    .collect();
                let what = dispatch.purpose.split(' ').next().unwrap();
                format!("{what} {} > {writes}", inputs.join(" "))
            }
        };
        legalized_for(&graph, self.options).dispatches.iter().map(dispatch).collect()
    }
}

#[test]
fn copies_are_made_where_they_are_needed_only() {
    let last = |t: &mut TensorDef| *t = t.clone().channels_last();
    let intermediate = |t: &mut [TensorDef; 3], data_type| {
        t[2].is_virtual = true;
        t[2].data_type = data_type;
    };
    let result = || TensorDef::new(3, H, &[2, 4, 7, 7]);
    let bias = || TensorDef::new(4, H, &[1, 4, 1, 1]);
    let cases: Vec<(&str, Case, &[&str])> = vec![
        ("plain", Case::new(|_, _| ()), &["Half 0 1 > 2"]),
        ("channels last", Case::new(|t, _| t.iter_mut().for_each(last)), &["Half last 0 1 > 2"]),
        (
            "most are channels last",
            Case::new(|t, _| (last(&mut t[0]), last(&mut t[2])).0),
            &["copy 1 > t0", "Half last 0 t0 > 2"],
        ),
        ("a float result", Case::new(|t, _| t[2].data_type = F), &["copy 0 > t0", "copy 1 > t1", "Float t0 t1 > 2"]),
        (
            "other types",
            Case::new(|t, _| t[2].data_type = DataType::BFloat16),
            &["copy 0 > t0", "copy 1 > t1", "Float t0 t1 > t2", "copy t2 > 2"],
        ),
        ("every second element", Case::new(|t, _| t[0].strides[3] = 2), &["copy 0 > t0", "Half t0 1 > 2"]),
        ("badly aligned", Case::new(|t, _| t[0].alignment = 2), &["copy 0 > t0", "Half t0 1 > 2"]),
        ("flipped", Case::new(|_, g| g.mode = ConvMode::Convolution), &["flip 1 > t0", "Half 0 t0 > 2"]),
        (
            "padded behind",
            Case::new(|t, g| {
                g.post_padding = vec![0, 2];
                t[2] = TensorDef::new(2, H, &[2, 4, 7, 9]);
            }),
            &["pad 0 > t0", "Half t0 1 > 2"],
        ),
        (
            "padded behind where no window looks",
            Case::new(|t, g| {
                (g.pre_padding, g.post_padding, g.stride) = (vec![0; 2], vec![1; 2], vec![2; 2]);
                t[2] = TensorDef::new(2, H, &[2, 4, 4, 4]);
            }),
            &["Half 0 1 > 2"],
        ),
        (
            // Its type is converted in any case, so that only the reads of the copy are in the wrong order.
            "a half that lies in the order that other tensors don't have",
            Case::new(|t, _| {
                last(&mut t[0]);
                (t[1].data_type, t[2].data_type) = (F, F);
            }),
            &["copy 0 > t0", "Float t0 1 > 2"],
        ),
        (
            "x is w",
            {
                let mut case = Case::new(|t, _| t[0] = TensorDef::new(0, H, &[4, 4, 3, 3]));
                case.graph.def_mut().tensors.remove(1);
                case.graph.def_mut().tensors[1] = TensorDef::new(2, H, &[4, 4, 1, 1]);
                let flipped = Geometry { mode: ConvMode::Convolution, ..Geometry::new(2) };
                let nodes = &mut case.graph.def_mut().nodes;
                nodes[0].operation = convolution(Direction::Forward, [0, 0, 2].map(TensorUid), flipped);
                case
            },
            &["flip 0 > t0", "Half 0 t0 > 2"],
        ),
        (
            "an activation in place",
            Case::new(|t, _| intermediate(t, H)).tensor(result()).relu(2, 3),
            &["Half 0 1 > 3", "compute 3 > 3"],
        ),
        (
            "bias and activation in place",
            Case::new(|t, _| intermediate(t, H))
                .tensor(result())
                .tensor(bias())
                .tensor(TensorDef::new(5, H, &[2, 4, 7, 7]).intermediate())
                .add(2, 4, 5)
                .relu(5, 3),
            &["Half 0 1 > 3", "compute 3 4 > 3"],
        ),
        (
            "a residual may be the result's memory",
            Case::new(|t, _| intermediate(t, H))
                .tensor(result())
                .tensor(TensorDef::new(4, H, &[2, 4, 7, 7]))
                .add(2, 4, 3),
            &["Half 0 1 > t0", "compute t0 4 > 3"],
        ),
        (
            "a result that the chain behind it broadcasts",
            Case::new(|t, _| {
                t[1] = TensorDef::new(1, H, &[4, 4, 9, 9]);
                t[2] = TensorDef::new(2, H, &[2, 4, 1, 1]).intermediate();
            })
            .tensor(result())
            .tensor(TensorDef::new(4, H, &[1, 4, 7, 7]))
            .add(2, 4, 3),
            &["Half 0 1 > t0", "compute t0 4 > 3"],
        ),
        (
            "a float intermediate between halves",
            Case::new(|t, _| intermediate(t, F)).tensor(result()).relu(2, 3),
            &["Half 0 1 > 3", "compute 3 > 3"],
        ),
        (
            "a float intermediate, strictly",
            Case::new(|t, _| intermediate(t, F)).tensor(result()).relu(2, 3).strict(),
            &["copy 0 > t0", "copy 1 > t1", "Float t0 t1 > t2", "compute t2 > 3"],
        ),
        (
            // 70000 - 10000 is a half, 70000 is none.
            "a float intermediate that a sum brings back into range",
            Case::new(|t, _| intermediate(t, F)).tensor(result()).tensor(bias()).add(2, 4, 3),
            &["copy 0 > t0", "copy 1 > t1", "Float t0 t1 > t2", "compute t2 4 > 3"],
        ),
        (
            "a float sum before an activation",
            Case::new(|t, _| intermediate(t, F))
                .tensor(result())
                .tensor(bias())
                .tensor(TensorDef::new(5, F, &[2, 4, 7, 7]).intermediate())
                .add(2, 4, 5)
                .relu(5, 3),
            &["copy 0 > t0", "copy 1 > t1", "Float t0 t1 > t2", "compute t2 4 > 3"],
        ),
        (
            "a float intermediate that is scaled down for negative values",
            {
                let mut case = Case::new(|t, _| intermediate(t, F)).tensor(result());
                let mut relu = Pointwise::unary(PointwiseMode::ReluFwd, TensorUid(2), TensorUid(3));
                relu.relu_lower_clip_slope = Some(0.125);
                case.graph.pointwise(relu);
                case
            },
            &["copy 0 > t0", "copy 1 > t1", "Float t0 t1 > t2", "compute t2 > 3"],
        ),
        (
            "a float intermediate of which an ELU leaves no more than there is",
            Case::new(|t, _| intermediate(t, F)).tensor(result()).elu(0.5, 2, 3),
            &["Half 0 1 > 3", "compute 3 > 3"],
        ),
        (
            "a float intermediate of which an ELU enlarges what halves have no digits for",
            Case::new(|t, _| intermediate(t, F)).tensor(result()).elu(1e4, 2, 3),
            &["copy 0 > t0", "copy 1 > t1", "Float t0 t1 > t2", "compute t2 > 3"],
        ),
        (
            "a float result behind a float intermediate",
            Case::new(|t, _| intermediate(t, F)).tensor(TensorDef::new(3, F, &[2, 4, 7, 7])).relu(2, 3),
            &["copy 0 > t0", "copy 1 > t1", "Float t0 t1 > 3", "compute 3 > 3"],
        ),
        (
            "a virtual result in place",
            Case::new(|t, _| intermediate(t, H))
                .tensor(TensorDef::new(5, H, &[2, 4, 7, 7]).intermediate())
                .relu(2, 5)
                .tensor(result())
                .tensor(TensorDef::new(6, H, &[2, 4, 7, 7]))
                .relu(5, 3)
                .relu(5, 6),
            &["Half 0 1 > t0", "compute t0 > t0", "compute t0 > 3", "compute t0 > 6"],
        ),
        (
            "the result is seen and used",
            Case::new(|_, _| ()).tensor(result()).relu(2, 3),
            &["Half 0 1 > 2", "compute 2 > 3"],
        ),
        (
            "scalars",
            {
                let scalar = |uid| TensorDef::new(uid, F, &[1]);
                let mut case = Case::new(|t, _| intermediate(t, H))
                    .tensor(result())
                    .tensor(scalar(4).with_value(TensorValue::Float32(1.5)))
                    .tensor(scalar(5))
                    .tensor(TensorDef::new(6, H, &[2, 4, 7, 7]).intermediate())
                    .add(2, 4, 6)
                    .add(6, 5, 3);
                let tensors = &mut case.graph.def_mut().tensors;
                tensors.iter_mut().find(|tensor| tensor.uid.0 == 5).unwrap().is_runtime_pass_by_value = true;
                case
            },
            &["Half 0 1 > 3", "compute 3 ?5 =1.5 > 3"],
        ),
    ];
    for (what, case, want) in cases {
        let got = case.dispatches();
        // The order of a kernel's inputs means nothing.
        let sorted = |text: &str| {
            let mut words: Vec<String> = text.split(' ').map(str::to_string).collect();
            words.sort();
            words
        };
        let same = got.len() == want.len() && got.iter().zip(want).all(|(g, w)| sorted(g) == sorted(w));
        assert!(same, "{what}: expected {want:?}, got {got:?}");
    }
}

/// A float function of halves before a convolution of halves is stored in them if that loses nothing.
#[test]
fn what_selects_among_halves_is_stored_in_halves() {
    use PointwiseMode::*;
    let narrow: &[&str] = &["compute 7 > t0", "Half t0 1 > 2"];
    let float: &[&str] = &["compute 7 > t0", "copy 1 > t1", "Float t0 t1 > t2", "copy t2 > 2"];
    for (mode, lower_clip, strict, want) in [
        (Identity, None, false, narrow),
        (Abs, None, false, narrow),
        (Neg, None, false, narrow),
        (ReluFwd, None, false, narrow),
        (ReluFwd, Some(0.5), false, narrow),
        (ReluFwd, Some(0.1), false, float),
        (ReluFwd, None, true, float),
        (Abs, None, true, float),
        (TanhFwd, None, false, float),
        (Exp, None, false, float),
    ] {
        let mut case = Case::new(|t, _| (t[0].is_virtual, t[0].data_type) = (true, F));
        case = case.tensor(TensorDef::new(7, H, &[2, 4, 9, 9]));
        let mut function = Pointwise::unary(mode, TensorUid(7), TensorUid(0));
        function.relu_lower_clip = lower_clip;
        case.graph.pointwise(function);
        case.graph.def_mut().nodes.rotate_right(1);
        case.options.strict_fp32 = strict;
        assert_eq!(case.dispatches(), want, "{mode}, at least {lower_clip:?}, strict: {strict}");
    }
}

#[test]
fn what_miopen_does_not_take_is_tried_in_other_forms() {
    let graph = |data_type: DataType, last: bool| {
        let mut graph = GraphBuilder::new("case").compute(F);
        for (uid, dims) in [[2, 4, 9, 9], [6, 4, 3, 3], [2, 6, 7, 7]].iter().enumerate() {
            let tensor = TensorDef::new(uid as i64, data_type, dims);
            graph.tensor(if last { tensor.channels_last() } else { tensor });
        }
        graph.convolution_fwd(TensorUid(0), TensorUid(1), TensorUid(2), Geometry::new(2));
        graph.build().unwrap()
    };
    let forms = |graph: &Graph, takes: &dyn Fn(&ConvolutionProblem) -> bool| {
        let asked = std::cell::RefCell::new(Vec::new());
        let ask = |problem: &ConvolutionProblem| {
            let last = if problem.x.strides[1] == 1 { "last" } else { "first" };
            asked.borrow_mut().push(format!("{:?} {last}", problem.x.data_type));
            if takes(problem) { Ok(()) } else { Err(format!("no {last}")) }
        };
        let answer = legalize(graph, &fuse(graph, lower(graph).unwrap()), LegalizeOptions::default(), &ask);
        (asked.into_inner().join(", "), answer.map(|legalized| legalized.dispatches.len()).map_err(|d| d.to_string()))
    };
    let graph_last = graph(H, true);
    assert_eq!(forms(&graph_last, &|_| true), ("Half last".to_string(), Ok(1)));
    let (asked, answer) = forms(&graph_last, &|problem| problem.x.strides[1] != 1);
    assert_eq!((asked.as_str(), answer), ("Half last, Half first", Ok(4)));
    let (asked, answer) = forms(&graph_last, &|problem| problem.x.data_type == convolution::DataType::Float);
    assert_eq!((asked.as_str(), answer), ("Half last, Half first, Float last", Ok(4)));
    let (asked, answer) = forms(&graph(F, false), &|_| false);
    assert_eq!(asked, "Float first, Float last");
    assert_eq!(answer, Err("node 0 (ConvolutionFwd): no first".to_string()), "the first refusal counts");
}

#[test]
fn scalars_have_their_tensors_values() {
    for (value, data_type, want) in [
        (TensorValue::Float32(0.1), F, f64::from(0.1f32)),
        (TensorValue::Float16(0.1), H, half::f16::from_f32(0.1).to_f64()),
        (TensorValue::BFloat16(-0.1), DataType::BFloat16, half::bf16::from_f32(-0.1).to_f64()),
        (TensorValue::Float8(0xff), DataType::UInt8, 255.0),
        (TensorValue::Float8(0xff), DataType::Int8, -1.0),
        (TensorValue::Float8(7), DataType::Boolean, 1.0),
        (TensorValue::Int32(-5), DataType::Int32, -5.0),
        (TensorValue::Float64(1e300), DataType::Double, 1e300),
        (TensorValue::Int64(1 << 40), DataType::Int64, (1u64 << 40) as f64),
        (TensorValue::Bool(true), DataType::Boolean, 1.0),
    ] {
        assert_eq!(number(value, data_type), want, "{value:?}");
    }
}
