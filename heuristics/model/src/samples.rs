//! Layers of networks as graphs, of differing kind and size: what rankings are judged by.

use hipdnn_schemas::{
    Convolution, ConvolutionFwd, DataType, Graph, GraphBuilder, Matmul, Operation, Pointwise, PointwiseMode, Reduction,
    ReductionMode, TensorDef, TensorUid,
};

/// Uids in the order in which tensors are added.
struct Builder {
    graph: GraphBuilder,
    next: i64,
}

impl Builder {
    fn new(name: String) -> Builder {
        Builder { graph: GraphBuilder::new(name).compute(DataType::Float), next: 1 }
    }

    fn tensor(&mut self, dims: &[i64], inner: bool) -> TensorUid {
        let tensor = TensorDef::new(self.next, DataType::Float, dims);
        self.next += 1;
        self.graph.tensor(if inner { tensor.intermediate() } else { tensor })
    }

    /// A chain of pointwise modes behind the tensor, the last one's result in memory of the caller.
    fn chain(&mut self, mut from: TensorUid, dims: &[i64], modes: &[&str]) {
        for (place, mode) in modes.iter().enumerate() {
            let to = self.tensor(dims, place + 1 < modes.len());
            let (mode, other) = match *mode {
                "bias" => {
                    let ones = dims.iter().enumerate().map(|(axis, extent)| if axis == 1 { *extent } else { 1 });
                    let ones: Vec<i64> = ones.collect();
                    (PointwiseMode::Add, Some(self.tensor(&ones, false)))
                }
                "residual" => (PointwiseMode::Add, Some(self.tensor(dims, false))),
                "tanh" => (PointwiseMode::TanhFwd, None),
                "sigmoid" => (PointwiseMode::SigmoidFwd, None),
                "exp" => (PointwiseMode::Exp, None),
                _ => (PointwiseMode::ReluFwd, None),
            };
            self.graph.pointwise(match other {
                Some(other) => Pointwise::binary(mode, from, other, to),
                None => Pointwise::unary(mode, from, to),
            });
            from = to;
        }
    }

    fn convolve(&mut self, x: TensorUid, w: TensorUid, y: TensorUid, convolution: Convolution) {
        self.graph.node("", Operation::ConvolutionFwd(ConvolutionFwd { x, w, y, convolution }));
    }

    fn done(self) -> Graph {
        self.graph.build().expect("a sample is a graph")
    }
}

/// A convolution of square images that keeps their size, with pointwise modes behind it: `bias`, `residual`, `relu`,
/// `tanh`, `sigmoid`, `exp`.
pub fn convolution(images: i64, channels: i64, filters: i64, taps: i64, size: i64, behind: &[&str]) -> Graph {
    let behind_text: String = behind.iter().map(|mode| format!("+{mode}")).collect();
    let mut builder = Builder::new(format!("conv {images}x{channels}x{size}², {filters} of {taps}²{behind_text}"));
    let y = [images, filters, size, size];
    let uids = [
        builder.tensor(&[images, channels, size, size], false),
        builder.tensor(&[filters, channels, taps, taps], false),
        builder.tensor(&y, !behind.is_empty()),
    ];
    let mut geometry = Convolution::new(2);
    geometry.pre_padding = vec![taps / 2; 2];
    geometry.post_padding = vec![(taps - 1) / 2; 2];
    builder.convolve(uids[0], uids[1], uids[2], geometry);
    builder.chain(uids[2], &y, behind);
    builder.done()
}

/// A depthwise convolution of square images that keeps their size.
pub fn depthwise(images: i64, channels: i64, taps: i64, size: i64) -> Graph {
    let mut builder = Builder::new(format!("depthwise {images}x{channels}x{size}², {taps}²"));
    let dims = [images, channels, size, size];
    let uids =
        [builder.tensor(&dims, false), builder.tensor(&[channels, 1, taps, taps], false), builder.tensor(&dims, true)];
    let mut geometry = Convolution::new(2);
    geometry.pre_padding = vec![taps / 2; 2];
    geometry.post_padding = vec![taps / 2; 2];
    builder.convolve(uids[0], uids[1], uids[2], geometry);
    builder.chain(uids[2], &dims, &["bias", "relu"]);
    builder.done()
}

/// Three convolutions of a residual network's block: 1×1 to a fourth of the channels, 3×3, and 1×1 back.
pub fn bottleneck(images: i64, channels: i64, size: i64) -> Graph {
    let mut builder = Builder::new(format!("bottleneck {images}x{channels}x{size}²"));
    let inner = (channels / 4).max(1);
    let mut from = builder.tensor(&[images, channels, size, size], false);
    let layers = [(channels, inner, 1), (inner, inner, 3), (inner, channels, 1)];
    for (place, (channels, filters, taps)) in layers.into_iter().enumerate() {
        let dims = [images, filters, size, size];
        let w = builder.tensor(&[filters, channels, taps, taps], false);
        let sum = builder.tensor(&dims, true);
        let to = builder.tensor(&dims, place < 2);
        let mut geometry = Convolution::new(2);
        geometry.pre_padding = vec![taps / 2; 2];
        geometry.post_padding = vec![taps / 2; 2];
        builder.convolve(from, w, sum, geometry);
        builder.graph.pointwise(Pointwise::unary(PointwiseMode::ReluFwd, sum, to));
        from = to;
    }
    builder.done()
}

/// A product of matrices, `batch` times `rows` × `inner` × `columns`.
pub fn matmul(batch: i64, rows: i64, inner: i64, columns: i64) -> Graph {
    let mut builder = Builder::new(format!("matmul {batch} of {rows}x{inner}x{columns}"));
    let a = builder.tensor(&[batch, rows, inner], false);
    let b = builder.tensor(&[batch, inner, columns], false);
    let c = builder.tensor(&[batch, rows, columns], false);
    builder.graph.node("", Operation::Matmul(Matmul { a, b, c }));
    builder.done()
}

/// Pointwise modes one behind the other.
pub fn chain(elements: i64, modes: &[&str]) -> Graph {
    let mut builder = Builder::new(format!("{} of {elements}", modes.join("+")));
    let dims = [1, 1, elements];
    let x = builder.tensor(&dims, false);
    builder.chain(x, &dims, modes);
    builder.done()
}

/// A softmax of rows, spelled out in a maximum, a difference, an exponential function, a sum and a quotient.
pub fn softmax(rows: i64, columns: i64) -> Graph {
    let mut builder = Builder::new(format!("softmax {rows}x{columns}"));
    let (dims, ones) = ([rows, columns], [rows, 1]);
    let x = builder.tensor(&dims, false);
    let largest = builder.tensor(&ones, true);
    let difference = builder.tensor(&dims, true);
    let power = builder.tensor(&dims, true);
    let sum = builder.tensor(&ones, true);
    let y = builder.tensor(&dims, false);
    let reduction =
        |mode, input, output| Operation::Reduction(Reduction { mode, input, output, is_deterministic: false });
    builder.graph.node("", reduction(ReductionMode::Max, x, largest));
    builder.graph.pointwise(Pointwise::binary(PointwiseMode::Sub, x, largest, difference));
    builder.graph.pointwise(Pointwise::unary(PointwiseMode::Exp, difference, power));
    builder.graph.node("", reduction(ReductionMode::Add, power, sum));
    builder.graph.pointwise(Pointwise::binary(PointwiseMode::Div, power, sum, y));
    builder.done()
}

/// The graphs of a report: some of each kind, from those that take microseconds to those that take tens of
/// milliseconds.
pub fn all() -> Vec<Graph> {
    let mut graphs = Vec::new();
    for (images, channels, filters, taps, size) in [
        (1, 3, 32, 3, 112),
        (1, 3, 64, 7, 56),
        (1, 16, 16, 3, 8),
        (1, 32, 32, 3, 56),
        (1, 64, 64, 3, 14),
        (1, 64, 64, 3, 56),
        (1, 128, 128, 3, 28),
        (1, 256, 256, 3, 14),
        (1, 512, 512, 3, 7),
        (4, 64, 64, 3, 28),
        (8, 128, 128, 3, 14),
        (1, 24, 48, 5, 28),
        (1, 96, 32, 5, 14),
        (1, 16, 64, 1, 56),
        (1, 64, 256, 1, 28),
        (1, 256, 64, 1, 28),
        (1, 512, 128, 1, 14),
        (1, 1024, 256, 1, 7),
        (1, 32, 16, 1, 8),
        (8, 64, 64, 1, 28),
    ] {
        let behind: &[&str] = if size % 28 == 0 { &["bias", "relu"] } else { &["bias", "residual", "sigmoid"] };
        graphs.push(convolution(images, channels, filters, taps, size, behind));
    }
    for (images, channels, taps, size) in [
        (1, 32, 3, 112),
        (1, 96, 3, 56),
        (1, 144, 5, 28),
        (1, 384, 3, 14),
        (1, 960, 3, 7),
        (4, 96, 3, 28),
        (1, 16, 3, 8),
    ] {
        graphs.push(depthwise(images, channels, taps, size));
    }
    for (images, channels, size) in [(1, 64, 56), (1, 256, 28), (1, 512, 14), (1, 1024, 7), (2, 256, 14), (1, 32, 8)] {
        graphs.push(bottleneck(images, channels, size));
    }
    for (batch, rows, inner, columns) in [
        (1, 16, 16, 16),
        (1, 64, 64, 64),
        (1, 128, 256, 512),
        (1, 512, 512, 512),
        (8, 64, 64, 64),
        (12, 128, 64, 128),
        (1, 1, 1024, 1024),
        (1, 8, 2048, 256),
    ] {
        graphs.push(matmul(batch, rows, inner, columns));
    }
    for modes in [&["relu"][..], &["bias", "relu"], &["tanh", "residual"], &["exp", "sigmoid", "tanh"]] {
        for elements in [1 << 8, 1 << 12, 1 << 16, 1 << 20] {
            graphs.push(chain(elements, modes));
        }
    }
    for (rows, columns) in [(4, 64), (128, 128), (1024, 256), (32, 4096), (4096, 1024), (1, 32000)] {
        graphs.push(softmax(rows, columns));
    }
    graphs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_many_and_differ() {
        let graphs = all();
        let mut contents: Vec<_> = graphs.iter().map(|graph| graph.def().content()).collect();
        contents.sort();
        contents.dedup();
        assert_eq!(contents.len(), graphs.len());
        assert!(graphs.len() >= 60, "{}", graphs.len());
    }
}
