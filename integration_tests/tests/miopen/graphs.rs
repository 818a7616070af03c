//! Graphs of more than one convolution, or of none.

use hipdnn_rs_integration_tests::emulator::{DeviceTensor, GuardedMemory};
use hipdnn_rs_integration_tests::reference::{Direction, Exact, check_close, convolve, convolve_towards, roundoff};
use hipdnn_rs_integration_tests::tensor::{HostTensor, indices};
use hipdnn_schemas::{
    Convolution, ConvolutionBwd, ConvolutionWrw, DataType, GraphBuilder, Operation, Pointwise, PointwiseMode, TensorDef,
};

use crate::bench::{Bench, hip, plugin, told};
use crate::harness::{Outcome, Test};

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for (name, data_type) in [("fp32", DataType::Float), ("fp16", DataType::Half), ("bf16", DataType::BFloat16)] {
        tests.push(Test::new(format!("a fork and two convolutions, {name}"), move || fork(data_type)));
        tests.push(Test::new(format!("relu before a convolution, {name}"), move || before(data_type)));
        tests.push(Test::new(format!("both gradients in one graph, {name}"), move || gradients(data_type)));
        tests.push(Test::new(format!("pointwise alone, {name}"), move || alone(data_type)));
    }
    tests
}

fn padded() -> Convolution {
    Convolution { pre_padding: vec![1, 1], post_padding: vec![1, 1], ..Convolution::new(2) }
}

/// Runs a graph twice with these inputs; its outputs.
fn run(graph: &GraphBuilder, inputs: &[&HostTensor], outputs: &[TensorDef]) -> Result<Vec<HostTensor>, String> {
    let bench = Bench::new(&plugin())?;
    let plan = bench.plan(&graph.def().to_bytes(), &[])?;
    let text = |error: hipdnn_rs_integration_tests::emulator::HipError| error.to_string();
    let mut tensors = Vec::new();
    for input in inputs {
        let mut copy = HostTensor::blank(input.def());
        copy.bytes_mut().copy_from_slice(input.bytes());
        tensors.push(DeviceTensor::input(hip(), copy, 0).map_err(text)?);
    }
    for output in outputs {
        tensors.push(DeviceTensor::output(hip(), output, 0).map_err(text)?);
    }
    let workspace = GuardedMemory::new(hip(), plan.workspace_bytes(), 0, 0xff).map_err(text)?;
    let buffers: Vec<_> = tensors.iter().map(DeviceTensor::buffer).collect();
    for _ in 0..2 {
        for tensor in &tensors {
            tensor.reset().map_err(text)?;
        }
        // SAFETY: the memory was made for the graph's tensors and for the workspace of the plan, and stays until the stream was waited for.
        unsafe { plan.execute_with(&bench.handle, workspace.address().cast(), &buffers) }
            .map_err(|error| told(&error))?;
        bench.stream.synchronize().map_err(text)?;
        for tensor in &mut tensors {
            tensor.download()?;
        }
        workspace.read()?;
    }
    let results = tensors.split_off(inputs.len());
    Ok(results
        .into_iter()
        .map(|tensor| {
            let mut copy = HostTensor::blank(tensor.host().def());
            copy.bytes_mut().copy_from_slice(tensor.host().bytes());
            copy
        })
        .collect())
}

/// The rounding of a value that is stored between two nodes.
fn stored(exact: &mut [Exact], data_type: DataType) {
    for exact in exact {
        exact.error += 1.01 * roundoff(data_type) * (exact.value.abs() + exact.error) + 2f64.powi(-25);
    }
}

/// y = conv(r, w2) + r with r = relu(conv(x, w1)), and r an output as well.
fn fork(data_type: DataType) -> Outcome {
    let defs = [(1, [1, 6, 7, 8]), (2, [6, 6, 3, 3]), (3, [6, 6, 3, 3]), (10, [1, 6, 7, 8]), (11, [1, 6, 7, 8])]
        .map(|(uid, dims)| TensorDef::new(uid, data_type, &dims));
    let mut graph = GraphBuilder::new("fork").compute(DataType::Float);
    let [x, w1, w2, r, y] = defs.clone().map(|def| graph.tensor(def));
    let middle = |uid| TensorDef::new(uid, DataType::Float, &[1, 6, 7, 8]).intermediate();
    let (a, b) = (graph.tensor(middle(20)), graph.tensor(middle(21)));
    graph.convolution_fwd(x, w1, a, padded());
    graph.pointwise(Pointwise::unary(PointwiseMode::ReluFwd, a, r));
    graph.convolution_fwd(r, w2, b, padded());
    graph.pointwise(Pointwise::binary(PointwiseMode::Add, b, r, y));
    let inputs: Vec<HostTensor> = defs[..3].iter().map(|def| HostTensor::random(def, def.uid.0 as u64)).collect();
    let results = run(&graph, &inputs.iter().collect::<Vec<_>>(), &defs[3..])?;
    let mut wanted_r = convolve(&inputs[0], &inputs[1], &defs[3].dims, &padded(), 16.0);
    stored(&mut wanted_r, data_type);
    wanted_r.iter_mut().for_each(|exact| exact.value = exact.value.max(0.0));
    check_close(&results[0], &wanted_r).map_err(|problem| format!("r: {problem}"))?;
    // From the computed r, so that only the second convolution's own rounding counts.
    let mut wanted_y = convolve(&results[0], &inputs[2], &defs[4].dims, &padded(), 16.0);
    stored(&mut wanted_y, data_type);
    for (index, exact) in indices(&defs[4].dims).zip(&mut wanted_y) {
        let other = results[0].get(&index);
        exact.value += other;
        exact.error += 2.0 * roundoff(DataType::Float) * (exact.value.abs() + other.abs());
    }
    check_close(&results[1], &wanted_y).map_err(|problem| format!("y: {problem}"))?;
    Ok(())
}

/// y = conv(relu(x + b), w).
fn before(data_type: DataType) -> Outcome {
    let defs = [(1, [2, 4, 6, 6]), (2, [1, 4, 1, 1]), (3, [5, 4, 3, 3]), (10, [2, 5, 6, 6])]
        .map(|(uid, dims)| TensorDef::new(uid, data_type, &dims));
    let mut graph = GraphBuilder::new("before").compute(DataType::Float);
    let [x, b, w, y] = defs.clone().map(|def| graph.tensor(def));
    let middle = |uid| TensorDef::new(uid, data_type, &[2, 4, 6, 6]).intermediate();
    let (sum, activated) = (graph.tensor(middle(20)), graph.tensor(middle(21)));
    graph.pointwise(Pointwise::binary(PointwiseMode::Add, x, b, sum));
    graph.pointwise(Pointwise::unary(PointwiseMode::ReluFwd, sum, activated));
    graph.convolution_fwd(activated, w, y, padded());
    let inputs: Vec<HostTensor> = defs[..3].iter().map(|def| HostTensor::random(def, def.uid.0 as u64)).collect();
    let results = run(&graph, &inputs.iter().collect::<Vec<_>>(), &defs[3..])?;
    // What the convolution reads has the operands' type, so the sum is rounded to it whatever an engine does.
    let mut activated = HostTensor::blank(&defs[0]);
    let mut magnitudes = HostTensor::blank(&TensorDef::new(1, DataType::Float, &defs[0].dims));
    for index in indices(&defs[0].dims) {
        let value = inputs[0].get(&index) + inputs[1].get(&[0, index[1], 0, 0]);
        activated.set(&index, value.max(0.0));
        magnitudes.set(&index, value.abs());
    }
    let mut wanted = convolve(&activated, &inputs[2], &defs[3].dims, &padded(), 16.0);
    // The sum may have been rounded to floats first and so the other way: half a unit of its type more or less.
    let mut weights = HostTensor::blank(&TensorDef::new(2, DataType::Float, &defs[2].dims));
    for index in indices(&defs[2].dims) {
        weights.set(&index, inputs[2].get(&index).abs());
    }
    let spread = convolve(&magnitudes, &weights, &defs[3].dims, &padded(), 1.0);
    for (exact, spread) in wanted.iter_mut().zip(spread) {
        exact.error += 2.0 * roundoff(data_type) * spread.value;
    }
    Ok(check_close(&results[0], &wanted)?)
}

/// dx and dw of one dy.
fn gradients(data_type: DataType) -> Outcome {
    let defs = [(1, [2, 4, 6, 5]), (2, [6, 4, 3, 3]), (3, [2, 6, 6, 5]), (10, [2, 4, 6, 5]), (11, [6, 4, 3, 3])]
        .map(|(uid, dims)| TensorDef::new(uid, data_type, &dims).channels_last());
    let mut graph = GraphBuilder::new("gradients").compute(DataType::Float);
    let [x, w, dy, dx, dw] = defs.clone().map(|def| graph.tensor(def));
    graph.node("", Operation::ConvolutionBwd(ConvolutionBwd { dy, w, dx, convolution: padded() }));
    graph.node("", Operation::ConvolutionWrw(ConvolutionWrw { x, dy, dw, convolution: padded() }));
    let inputs: Vec<HostTensor> = defs[..3].iter().map(|def| HostTensor::random(def, def.uid.0 as u64)).collect();
    let results = run(&graph, &inputs.iter().collect::<Vec<_>>(), &defs[3..])?;
    let [x, w, dy] = &inputs[..] else { unreachable!("there are three") };
    let wanted_dx = convolve_towards(Direction::BackwardData, dy, w, &defs[3].dims, &padded(), 16.0);
    check_close(&results[0], &wanted_dx).map_err(|problem| format!("dx: {problem}"))?;
    let wanted_dw = convolve_towards(Direction::BackwardWeights, x, dy, &defs[4].dims, &padded(), 16.0);
    check_close(&results[1], &wanted_dw).map_err(|problem| format!("dw: {problem}"))?;
    Ok(())
}

/// y = max(a · b, c) with a row, a plane and strides of their own.
fn alone(data_type: DataType) -> Outcome {
    let dims = [2, 3, 4, 5];
    let defs = [
        TensorDef::new(1, data_type, &dims).channels_last(),
        TensorDef::new(2, data_type, &[1, 3, 1, 5]),
        TensorDef::new(3, data_type, &dims).strided(&[100, 30, 7, 1]),
        TensorDef::new(10, data_type, &dims),
    ];
    let mut graph = GraphBuilder::new("alone").compute(DataType::Float);
    let [a, b, c, y] = defs.clone().map(|def| graph.tensor(def));
    let product = graph.tensor(TensorDef::new(20, DataType::Float, &dims).intermediate());
    graph.pointwise(Pointwise::binary(PointwiseMode::Mul, a, b, product));
    graph.pointwise(Pointwise::binary(PointwiseMode::Max, product, c, y));
    let inputs: Vec<HostTensor> = defs[..3].iter().map(|def| HostTensor::random(def, def.uid.0 as u64)).collect();
    let results = run(&graph, &inputs.iter().collect::<Vec<_>>(), &defs[3..])?;
    let exact = indices(&dims).map(|index| {
        let product = inputs[0].get(&index) * inputs[1].get(&[0, index[1], 0, index[3]]);
        Exact { value: product.max(inputs[2].get(&index)), error: 2.0 * roundoff(DataType::Float) * product.abs() }
    });
    Ok(check_close(&results[0], &exact.collect::<Vec<_>>())?)
}
