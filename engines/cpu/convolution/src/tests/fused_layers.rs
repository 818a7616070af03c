//! Fused layers against the same convolutions one after the other. Values are small integers, so that sums are exact in any order
//! and results equal bit by bit.

use super::*;

/// A layer with its memory: the input's is that of the layer before.
struct Layer {
    problem: Problem,
    w: Tensor,
    operands: Vec<Tensor>,
}

/// Integers of up to `most` on both sides of 0.
fn integers(tensor: &mut Tensor, most: usize, random: &mut Random) {
    for at in places(tensor.sizes) {
        tensor.put(at, random.below(2 * most + 1) as f32 - most as f32);
    }
}

/// Shape of a random layer: one filter for each channel, one tap, or, of a first layer of few channels, several.
fn layer_shape(input: [usize; 4], is_first: bool, random: &mut Random) -> Shape {
    let [batch, in_channels, height, width] = input;
    let kind = random.below(if is_first && in_channels <= 4 { 3 } else { 2 });
    let mut axis = |size: usize| {
        let kernel = if kind == 0 { 1 } else { random.among(&[1, 2, 3, 5]) };
        let (stride, dilation) = (random.among(&[1, 1, 2, 3]), if kernel > 1 { random.among(&[1, 1, 2]) } else { 1 });
        let reach = (kernel - 1) * dilation + 1;
        let [before, behind] = [0; 2].map(|_| random.below(reach.min(4)));
        let fits = reach <= size + before + behind;
        let (kernel, reach) = if fits { (kernel, reach) } else { (1, 1) };
        let before = before.min(reach - 1);
        let behind = behind.min(reach - 1);
        (kernel, stride, dilation, before, (size + before + behind - reach) / stride + 1)
    };
    let (rows, columns) = (axis(height), axis(width));
    let out_channels = if kind == 1 { in_channels } else { random.among(&[1, 7, 16, 33, 48]) };
    Shape {
        batch,
        groups: if kind == 1 { in_channels } else { 1 },
        in_channels,
        out_channels,
        input: [1, height, width],
        kernel: [1, rows.0, columns.0],
        output: [1, rows.4, columns.4],
        stride: [1, rows.1, columns.1],
        dilation: [1, rows.2, columns.2],
        pad_before: [0, rows.3, columns.3],
        flip: random.below(4) == 0,
    }
}

/// A random chain of layers, whose intermediates have their channels innermost.
fn random_chain(random: &mut Random, at_end: bool) -> Vec<Layer> {
    let count = 2 + random.below(4);
    let types = [Element::F32, Element::F32, Element::F16, Element::BF16];
    let channels = random.among(&[3, 4, 16, 20, 40]);
    let mut input = [1 + random.below(2), channels, 6 + random.below(40), 3 + random.below(24)];
    let mut element = random.among(&types);
    let mut order = random.among(&Order::ALL);
    let mut layers = Vec::new();
    for index in 0..count {
        let shape = layer_shape(input, index == 0, random);
        let is_last = index + 1 == count;
        let elements = [element, random.among(&types), random.among(&types)];
        let output = if is_last { random.among(&Order::ALL) } else { Order::ChannelsLast };
        let mut epilogue = vec![Then::Bias(random.among(&types), 1)];
        match random.below(4) {
            0 => epilogue.push(Then::Activation(Activation::Relu { lower_clip: 0.0, upper_clip: 60.0, slope: 0.0 })),
            1 => epilogue.push(Then::Add(random.among(&types), random.among(&Order::ALL))),
            2 => epilogue.push(Then::Scale),
            _ => {}
        }
        let case = Case { shape, elements, orders: [order, random.among(&Order::ALL), output], epilogue };
        let mut problem = case.problem();
        let mut operands = case.operands(&mut problem, at_end, random);
        operands.iter_mut().for_each(|operand| integers(operand, 2, random));
        let mut w = Tensor::new(problem.w, problem.w_sizes(), at_end);
        integers(&mut w, 1, random);
        problem.constant_weights = random.below(3) > 0;
        let [_, h, v] = problem.shape.output;
        input = [input[0], problem.shape.out_channels, h, v];
        (element, order) = (problem.y.element, output);
        layers.push(Layer { problem, w, operands });
    }
    layers
}

fn addresses(operands: &mut [Tensor]) -> Vec<*const u8> {
    operands.iter_mut().map(|operand| operand.memory.bytes().as_ptr()).collect()
}

/// Output of the layers one after the other.
fn one_by_one(layers: &mut [Layer], x: &mut Tensor, pool: &Pool) -> Dense {
    let isa = Isa::available().last().expect("there is one");
    let mut y = None;
    for layer in layers {
        let plan = ConvolutionPlan::with_isa(&layer.problem, 1, isa);
        let mut prepared = vec![0.0; plan.prepared_len()];
        let w = layer.w.memory.bytes().as_ptr();
        let mut workspace = vec![0; plan.workspace_bytes()];
        let mut output = Tensor::new(layer.problem.y, layer.problem.y_sizes(), true);
        let operands = addresses(&mut layer.operands);
        // SAFETY: the tensors have the problem's sizes and layouts, and nobody else uses them.
        unsafe {
            plan.prepare(w, &mut prepared, pool);
            let weights = if prepared.is_empty() { Weights::Raw(w) } else { Weights::Prepared(&prepared) };
            let x = y.as_mut().unwrap_or(&mut *x).memory.bytes().as_ptr();
            let y = output.memory.bytes().as_mut_ptr();
            plan.run(pool, &Args { x, weights, y, operands: &operands, workspace: workspace.as_mut_ptr() });
        }
        y = Some(output);
    }
    y.expect("there are layers").dense()
}

#[test]
fn fused_layers_compute_what_layers_do_one_after_the_other() {
    let pools = [Pool::new(1), Pool::new(3)];
    let mut random = Random::new(77);
    let (mut fused, mut of_many) = (0, 0);
    for round in 0..60 {
        let at_end = round % 2 == 0;
        let mut layers = random_chain(&mut random, at_end);
        let problems: Vec<Problem> = layers.iter().map(|layer| layer.problem.clone()).collect();
        let mut x = Tensor::new(problems[0].x, problems[0].x_sizes(), at_end);
        integers(&mut x, 3, &mut random);
        let want = one_by_one(&mut layers, &mut x, &pools[0]);
        let last = problems.last().expect("there are layers");
        for isa in Isa::available() {
            for (rows, threads) in [(1, 1), (2, 3), (3, 1), (5, 2)] {
                let Some(plan) = FusedLayers::with_rows(&problems, rows, threads, isa) else { continue };
                fused += 1;
                of_many += usize::from(plan.units() > last.shape.batch);
                let name = format!("round {round}, {isa}, bands of {rows} rows, {threads} threads: {problems:?}");
                let mut y = Tensor::new(last.y, last.y_sizes(), at_end);
                let prepared: Vec<Vec<f32>> = (0..plan.count())
                    .map(|layer| {
                        let of_layer = plan.plan(layer);
                        let mut prepared = vec![0.0; of_layer.prepared_len()];
                        let w = layers[layer].w.memory.bytes().as_ptr();
                        // SAFETY: the weights have the problem's sizes and layout.
                        unsafe { of_layer.prepare(w, &mut prepared, &pools[0]) };
                        prepared
                    })
                    .collect();
                let operands: Vec<Vec<*const u8>> =
                    layers.iter_mut().map(|layer| addresses(&mut layer.operands)).collect();
                let args: Vec<LayerArgs<'_>> = layers
                    .iter_mut()
                    .zip(&prepared)
                    .zip(&operands)
                    .map(|((layer, prepared), operands)| {
                        let is_raw = prepared.is_empty() || !layer.problem.constant_weights;
                        let raw = Weights::Raw(layer.w.memory.bytes().as_ptr());
                        LayerArgs { weights: if is_raw { raw } else { Weights::Prepared(prepared) }, operands }
                    })
                    .collect();
                let mut workspace = Guarded::new(plan.workspace_bytes(), at_end, GAP);
                let (x, to) = (x.memory.bytes().as_ptr(), y.memory.bytes().as_mut_ptr());
                // SAFETY: the tensors have the problems' sizes and layouts, and nobody else uses them; the workspace is of the plan's
                // size, and prepared weights are those of its layers' plans.
                unsafe { plan.run(&pools[threads / 2], x, to, &args, workspace.bytes().as_mut_ptr()) };
                y.check_gaps(&name);
                let got = y.dense();
                let wrong = places(last.y_sizes()).find(|at| got.get(*at) != want.get(*at));
                if let Some(at) = wrong {
                    panic!("{name}: at {at:?}: expected {}, got {}", want.get(at), got.get(at));
                }
            }
        }
    }
    assert!(
        fused > 300,
        "expected most chains to be fused, got {fused} of {} plans",
        60 * 4 * Isa::available().count()
    );
    assert!(of_many > 50, "expected images in several segments, got {of_many}");
}

/// Pointwise layer, one filter for each channel, pointwise layer.
fn inverted_residual(size: usize, [channels, expanded]: [usize; 2], kernel: usize) -> Vec<Problem> {
    let image = [1, size, size];
    let layer = |channels, outputs, kernel: usize, groups| Shape {
        batch: 1,
        groups,
        in_channels: channels,
        out_channels: outputs,
        input: image,
        kernel: [1, kernel, kernel],
        output: image,
        stride: [1; 3],
        dilation: [1; 3],
        pad_before: [0, kernel / 2, kernel / 2],
        flip: false,
    };
    let shapes =
        [layer(channels, expanded, 1, 1), layer(expanded, expanded, kernel, expanded), layer(expanded, channels, 1, 1)];
    let problem = |shape| {
        let orders = [Order::ChannelsLast, Order::Packed, Order::ChannelsLast];
        Case { shape, elements: [Element::F32; 3], orders, epilogue: Vec::new() }.problem()
    };
    shapes.map(problem).to_vec()
}

#[test]
fn layers_are_fused_where_no_cache_holds_what_is_between_them() {
    for isa in Isa::available() {
        let count =
            |problems: &[Problem]| FusedLayers::longest_with(problems.iter().cloned(), 2, isa).map(|plan| plan.count());
        assert_eq!(count(&inverted_residual(160, [24, 144], 3)), Some(3), "{isa}");
        // Intermediates that stay in a cache.
        assert_eq!(count(&inverted_residual(40, [24, 144], 3)), None, "{isa}");
        // Rows of which no cache holds two.
        assert_eq!(count(&inverted_residual(2000, [144, 144], 3)), None, "{isa}");
        // Channels of intermediates are apart, or a layer is none.
        let mut apart = inverted_residual(160, [24, 144], 3);
        apart[0].y = Layout::packed(Element::F32, apart[0].y_sizes());
        apart[1].x = apart[0].y;
        assert_eq!(count(&apart[..2]), None, "{isa}");
        let mut dense = inverted_residual(160, [24, 144], 3);
        dense[1].shape.groups = 1;
        assert_eq!(count(&dense), None, "{isa}");
        assert_eq!(count(&[]), None, "{isa}");
    }
}
