//! Results by hand: the executor is what engines are judged by.

use std::collections::HashMap;

use hipdnn_schemas::*;

use super::execute;
use crate::array::Array;
use crate::cases::{Layout, Net};
use crate::number::Number;

fn array(dims: &[i64], values: &[f64]) -> Array {
    let dims: Vec<usize> = dims.iter().map(|extent| *extent as usize).collect();
    assert_eq!(dims.iter().product::<usize>(), values.len());
    Array { dims, data: values.iter().map(|value| Number::exact(*value)).collect() }
}

/// A graph in the making, with its inputs.
pub(super) struct Example {
    net: Net,
    inputs: HashMap<TensorUid, Array>,
}

impl Example {
    pub(super) fn new() -> Example {
        Example { net: Net::new(DataType::Float), inputs: HashMap::new() }
    }

    pub(super) fn input(&mut self, dims: &[i64], values: &[f64]) -> TensorUid {
        let uid = self.net.real("", DataType::Float, dims, Layout::First);
        self.inputs.insert(uid, array(dims, values));
        uid
    }

    pub(super) fn output(&mut self, dims: &[i64]) -> TensorUid {
        self.net.real("", DataType::Float, dims, Layout::First)
    }

    pub(super) fn run(self, operation: Operation) -> Box<dyn Fn(TensorUid) -> Vec<f64>> {
        let mut net = self.net;
        net.node(operation);
        let graph = Graph::new(net.def).expect("a valid graph");
        let results = execute(&graph, &self.inputs).expect("known operations");
        Box::new(move |uid| results[&uid].data.iter().map(|number| number.value).collect())
    }
}

pub(super) fn close(got: Vec<f64>, wanted: &[f64], what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (got, wanted) in got.iter().zip(wanted) {
        assert!((got - wanted).abs() <= 1e-6 * wanted.abs().max(1e-3), "{what}: {got} for {wanted}");
    }
}

#[test]
fn convolutions_in_three_directions() {
    // x = [1, 2, 3] padded by one before, w = [10, 1], stride 2: y = [0·10 + 1, 2·10 + 3].
    let convolution = || Convolution { pre_padding: vec![1], stride: vec![2], ..Convolution::new(1) };
    let mut e = Example::new();
    let (x, w, y) = (e.input(&[1, 1, 3], &[1.0, 2.0, 3.0]), e.input(&[1, 1, 2], &[10.0, 1.0]), e.output(&[1, 1, 2]));
    close(
        e.run(Operation::ConvolutionFwd(ConvolutionFwd { x, w, y, convolution: convolution() }))(y),
        &[1.0, 23.0],
        "y",
    );
    let mut e = Example::new();
    let (dy, w, dx) = (e.input(&[1, 1, 2], &[5.0, 7.0]), e.input(&[1, 1, 2], &[10.0, 1.0]), e.output(&[1, 1, 3]));
    let node = ConvolutionBwd { dy, w, dx, convolution: convolution() };
    close(e.run(Operation::ConvolutionBwd(node))(dx), &[5.0, 70.0, 7.0], "dx");
    let mut e = Example::new();
    let (x, dy, dw) = (e.input(&[1, 1, 3], &[1.0, 2.0, 3.0]), e.input(&[1, 1, 2], &[5.0, 7.0]), e.output(&[1, 1, 2]));
    let node = ConvolutionWrw { x, dy, dw, convolution: convolution() };
    close(e.run(Operation::ConvolutionWrw(node))(dw), &[14.0, 26.0], "dw");
    // Two groups: each filter sees one channel. Flipped, the filter runs backwards.
    for (mode, wanted) in [(ConvMode::CrossCorrelation, [12.0, 340.0]), (ConvMode::Convolution, [21.0, 430.0])] {
        let mut e = Example::new();
        let (x, w) = (e.input(&[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]), e.input(&[2, 1, 2], &[10.0, 1.0, 100.0, 10.0]));
        let y = e.output(&[1, 2, 1]);
        let convolution = Convolution { mode, ..Convolution::new(1) };
        close(e.run(Operation::ConvolutionFwd(ConvolutionFwd { x, w, y, convolution }))(y), &wanted, "groups");
    }
}

#[test]
fn matrices_and_reductions() {
    let mut e = Example::new();
    let (a, b) = (e.input(&[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]), e.input(&[2, 2, 1], &[1.0, 10.0, 100.0, 1000.0]));
    let c = e.output(&[2, 2, 1]);
    close(e.run(Operation::Matmul(Matmul { a, b, c }))(c), &[21.0, 43.0, 2100.0, 4300.0], "matmul");
    use ReductionMode::*;
    for (mode, wanted) in [
        (Add, [-3.0, 0.0]),
        (Mul, [-4.0, 0.0]),
        (Min, [-4.0, -3.0]),
        (Max, [1.0, 3.0]),
        (AbsMax, [4.0, 3.0]),
        (Average, [-1.5, 0.0]),
        (Norm1, [5.0, 6.0]),
        (Norm2, [17f64.sqrt(), 18f64.sqrt()]),
    ] {
        let mut e = Example::new();
        let input = e.input(&[2, 2], &if mode == Mul { [1.0, -4.0, 3.0, 0.0] } else { [1.0, -4.0, 3.0, -3.0] });
        let output = e.output(&[2, 1]);
        let node = Reduction { mode, input, output, is_deterministic: false };
        close(e.run(Operation::Reduction(node))(output), &wanted, mode.json_name());
    }
    let mut e = Example::new();
    let (input, output) = (e.input(&[3, 2], &[2.0, 3.0, 0.0, 5.0, 7.0, 0.0]), e.output(&[1, 2]));
    let node = Reduction { mode: MulNoZeros, input, output, is_deterministic: false };
    close(e.run(Operation::Reduction(node))(output), &[14.0, 15.0], "mul_no_zeros");
}

#[test]
fn pooling() {
    let x = [1.0, 5.0, 2.0, 4.0];
    let node = |x, y, index, resample_mode| ResampleFwd {
        x,
        y,
        index,
        pre_padding: vec![1],
        post_padding: vec![0],
        stride: vec![2],
        window: vec![2],
        resample_mode,
        padding_mode: PaddingMode::NegInf,
        generate_index: Some(true),
    };
    // Windows: (padding, 1), (5, 2).
    for (mode, wanted) in [
        (ResampleMode::MaxPool, [1.0, 5.0]),
        (ResampleMode::AvgPoolExcludePadding, [1.0, 3.5]),
        (ResampleMode::AvgPoolIncludePadding, [0.5, 3.5]),
    ] {
        let mut e = Example::new();
        let (input, y) = (e.input(&[1, 1, 4], &x), e.output(&[1, 1, 2]));
        let index = (mode == ResampleMode::MaxPool).then(|| e.output(&[1, 1, 2]));
        let results = e.run(Operation::ResampleFwd(node(input, y, index, mode)));
        close(results(y), &wanted, mode.json_name());
        if let Some(index) = index {
            close(results(index), &[0.0, 1.0], "index");
        }
    }
    for (resample_mode, wanted) in [
        (ResampleMode::MaxPool, [10.0, 20.0, 0.0, 0.0]),
        (ResampleMode::AvgPoolExcludePadding, [10.0, 10.0, 10.0, 0.0]),
        (ResampleMode::AvgPoolIncludePadding, [5.0, 10.0, 10.0, 0.0]),
    ] {
        let mut e = Example::new();
        let (dy, dx) = (e.input(&[1, 1, 2], &[10.0, 20.0]), e.output(&[1, 1, 4]));
        let index = Some(e.input(&[1, 1, 2], &[0.0, 1.0]));
        let node = ResampleBwd {
            dy,
            dx,
            index,
            pre_padding: vec![1],
            post_padding: vec![0],
            stride: vec![2],
            window: vec![2],
            resample_mode,
            padding_mode: PaddingMode::NegInf,
        };
        close(e.run(Operation::ResampleBwd(node))(dx), &wanted, resample_mode.json_name());
    }
}

/// The gradients of normalizations are those of their forward passes, by differences.
#[test]
fn gradients_of_normalizations() {
    let x = [0.3, -1.2, 0.8, 2.0, -0.4, 1.1];
    let dy = [1.0, -0.5, 0.25, 2.0, 0.75, -1.5];
    let scale = [1.5, 0.5, -2.0];
    let layer = |x: &[f64], scale: &[f64], bias: &[f64]| {
        let mut e = Example::new();
        let node = Layernorm {
            x: e.input(&[2, 3], x),
            scale: e.input(&[1, 3], scale),
            bias: e.input(&[1, 3], bias),
            epsilon: e.net.scalar("", DataType::Float, 0.01),
            y: e.output(&[2, 3]),
            normalized_dim_count: 1,
            mean: None,
            inv_variance: None,
            forward_phase: NormFwdPhase::Inference,
        };
        let y = node.y;
        e.run(Operation::Layernorm(node))(y)
    };
    let rms = |x: &[f64], scale: &[f64], bias: &[f64]| {
        let mut e = Example::new();
        let node = RmsNorm {
            x: e.input(&[2, 3], x),
            scale: e.input(&[1, 3], scale),
            epsilon: e.net.scalar("", DataType::Float, 0.01),
            y: e.output(&[2, 3]),
            bias: Some(e.input(&[1, 3], bias)),
            inv_rms: None,
            forward_phase: NormFwdPhase::Inference,
        };
        let y = node.y;
        e.run(Operation::RmsNorm(node))(y)
    };
    let batch = |x: &[f64], scale: &[f64], bias: &[f64]| {
        let mut e = Example::new();
        let (x, scale, bias) = (e.input(&[2, 3], x), e.input(&[1, 3], scale), e.input(&[1, 3], bias));
        // The gradient that computes its own statistics has this epsilon.
        let epsilon = e.net.scalar("", DataType::Float, 1e-5);
        let node = Batchnorm::new(x, scale, bias, epsilon, e.output(&[2, 3]));
        let y = node.y;
        e.run(Operation::Batchnorm(node))(y)
    };
    type Forward<'a> = &'a dyn Fn(&[f64], &[f64], &[f64]) -> Vec<f64>;
    let differences = |forward: Forward| {
        let loss = |x: &[f64], scale: &[f64], bias: &[f64]| -> f64 {
            forward(x, scale, bias).iter().zip(&dy).map(|(y, dy)| y * dy).sum()
        };
        let moved = |list: &[f64], i: usize, by: f64| {
            let mut list = list.to_vec();
            list[i] += by;
            list
        };
        let (h, zero) = (1e-5, [0.0; 3]);
        let of_x: Vec<f64> = (0..6)
            .map(|i| (loss(&moved(&x, i, h), &scale, &zero) - loss(&moved(&x, i, -h), &scale, &zero)) / (2.0 * h))
            .collect();
        let of_scale: Vec<f64> = (0..3)
            .map(|i| (loss(&x, &moved(&scale, i, h), &zero) - loss(&x, &moved(&scale, i, -h), &zero)) / (2.0 * h))
            .collect();
        let of_bias: Vec<f64> = (0..3)
            .map(|i| (loss(&x, &scale, &moved(&zero, i, h)) - loss(&x, &scale, &moved(&zero, i, -h))) / (2.0 * h))
            .collect();
        [of_x, of_scale, of_bias]
    };
    let near = |got: Vec<f64>, wanted: &[f64], what: &str| {
        for (got, wanted) in got.iter().zip(wanted) {
            assert!((got - wanted).abs() < 1e-5, "{what}: {got} for {wanted}");
        }
    };

    let mut e = Example::new();
    let node = LayernormBackward {
        dy: e.input(&[2, 3], &dy),
        x: e.input(&[2, 3], &x),
        scale: e.input(&[1, 3], &scale),
        mean: None,
        inv_variance: None,
        epsilon: Some(e.net.scalar("", DataType::Float, 0.01)),
        dx: e.output(&[2, 3]),
        dscale: e.output(&[1, 3]),
        dbias: Some(e.output(&[1, 3])),
        normalized_dim_count: 1,
    };
    let outputs = [node.dx, node.dscale, node.dbias.expect("given")];
    let results = e.run(Operation::LayernormBackward(node));
    for (uid, wanted) in outputs.iter().zip(differences(&layer)) {
        near(results(*uid), &wanted, "layer normalization");
    }

    let mut e = Example::new();
    let inv = |row: &[f64]| 1.0 / (row.iter().map(|x| x * x).sum::<f64>() / 3.0 + f64::from(0.01f32)).sqrt();
    let node = RmsNormBackward {
        dy: e.input(&[2, 3], &dy),
        x: e.input(&[2, 3], &x),
        scale: e.input(&[1, 3], &scale),
        inv_rms: e.input(&[2, 1], &[inv(&x[..3]), inv(&x[3..])]),
        dx: e.output(&[2, 3]),
        dscale: e.output(&[1, 3]),
        dbias: Some(e.output(&[1, 3])),
    };
    let outputs = [node.dx, node.dscale, node.dbias.expect("given")];
    let results = e.run(Operation::RmsNormBackward(node));
    for (uid, wanted) in outputs.iter().zip(differences(&rms)) {
        near(results(*uid), &wanted, "RMS normalization");
    }

    let mut e = Example::new();
    let node = BatchnormBackward {
        dy: e.input(&[2, 3], &dy),
        x: e.input(&[2, 3], &x),
        mean: None,
        inv_variance: None,
        scale: e.input(&[1, 3], &scale),
        peer_stats: Vec::new(),
        dx: e.output(&[2, 3]),
        dscale: e.output(&[1, 3]),
        dbias: e.output(&[1, 3]),
    };
    let outputs = [node.dx, node.dscale, node.dbias];
    let results = e.run(Operation::BatchnormBackward(node));
    for (uid, wanted) in outputs.iter().zip(differences(&batch)) {
        near(results(*uid), &wanted, "batch normalization");
    }
}

#[test]
fn blocks_with_scales() {
    let mut e = Example::new();
    let x = e.input(&[1, 4], &[1.0, 2.0, 3.0, 4.0]);
    let scale = e.input(&[1, 2], &[10.0, 0.5]);
    let y = e.output(&[1, 4]);
    let node = BlockScaleDequantize { x, scale, y, block_size: vec![2], is_negative_scale: false };
    close(e.run(Operation::BlockScaleDequantize(node))(y), &[10.0, 20.0, 1.5, 2.0], "dequantised");
    let mut e = Example::new();
    let x = e.input(&[1, 4], &[1.0, -896.0, 0.0, 0.0]);
    let y = e.net.real("", DataType::Fp8E4M3, &[1, 4], Layout::First);
    let scale = e.net.real("", DataType::Fp8E8M0, &[1, 2], Layout::First);
    let node = BlockScaleQuantize { x, y, scale, block_size: 2, axis: None, transpose: false };
    let results = e.run(Operation::BlockScaleQuantize(node));
    close(results(scale), &[2.0, 2f64.powi(-127)], "scales");
    close(results(y), &[0.5, -448.0, 0.0, 0.0], "quantised");
}

#[test]
fn attention() {
    // Scores 0 and ln 3 make weights of 1/4 and 3/4; the causal mask leaves query 0 one key.
    for (causal, wanted) in [(false, [7.0, 7.0]), (true, [4.0, 7.0])] {
        let mut e = Example::new();
        let q = e.input(&[1, 1, 2, 1], &[1.0, 1.0]);
        let k = e.input(&[1, 1, 2, 1], &[0.0, 3f64.ln()]);
        let v = e.input(&[1, 1, 2, 1], &[4.0, 8.0]);
        let mut node = crate::cases::attention_without_options(q, k, v);
        node.o = e.output(&[1, 1, 2, 1]);
        node.causal_mask = causal;
        let o = node.o;
        close(e.run(Operation::Sdpa(Box::new(node)))(o), &wanted, "attention");
    }
}
