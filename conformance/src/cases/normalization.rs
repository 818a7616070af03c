//! Batch, layer and RMS normalization, forward and backward.

use hipdnn_schemas::{
    Batchnorm as Training, BatchnormBackward, BatchnormInference, BatchnormInferenceVarianceExt, DataType, Layernorm,
    LayernormBackward, NormFwdPhase, Operation, Pointwise, PointwiseMode, RmsNorm, RmsNormBackward,
};
use serde::Deserialize;

use super::net::Net;
use super::tail::{self, Types};
use super::{Case, Layout, text};
use crate::inputs::Fill;

/// A table of batch normalizations: every combination of its lists is a case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Batchnorm {
    /// The first part of the names.
    name: String,
    kinds: Vec<Kind>,
    /// Of x and y; statistics, scale and bias are float.
    types: Vec<String>,
    layouts: Vec<Layout>,
    shapes: Vec<String>,
    #[serde(default = "nothing")]
    tails: Vec<String>,
    #[serde(default)]
    range: Option<[f64; 2]>,
}

fn nothing() -> Vec<String> {
    vec![String::new()]
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Inference,
    Variance,
    /// Only the result.
    Training,
    /// With the statistics of the batch.
    TrainingSaved,
    /// With running statistics, old and new.
    TrainingRunning,
    /// With both.
    TrainingAll,
    /// With given statistics.
    Backward,
    /// With statistics that the gradient computes.
    BackwardAlone,
    /// Behind an inference and the gradient of a rectifier.
    BackwardFused,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Inference => "inference",
            Kind::Variance => "variance",
            Kind::Training => "training",
            Kind::TrainingSaved => "saved",
            Kind::TrainingRunning => "running",
            Kind::TrainingAll => "saved-running",
            Kind::Backward => "backward",
            Kind::BackwardAlone => "alone",
            Kind::BackwardFused => "fused",
        }
    }
}

impl Batchnorm {
    pub(super) fn expand(&self, cases: &mut Vec<Case>) -> Result<(), String> {
        for shape in &self.shapes {
            for tail in &self.tails {
                for types in &self.types {
                    for layout in &self.layouts {
                        for kind in &self.kinds {
                            let case = self.case(shape, tail, types, *layout, *kind);
                            cases.push(case.map_err(|problem| format!("{}: {shape}: {problem}", self.name))?);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn case(&self, shape: &str, tail: &str, types: &str, layout: Layout, kind: Kind) -> Result<Case, String> {
        let io = text::data_type(types)?;
        let dims = text::numbers(shape)?;
        let mut channel = vec![1; dims.len()];
        channel[1] = dims[1];
        let mut net = Net::new(DataType::Float);
        let x = net.real("x", io, &dims, layout);
        let per_channel = |net: &mut Net, name: &str| net.real(name, DataType::Float, &channel, layout);
        let scale = per_channel(&mut net, "scale");
        let result = |net: &mut Net| match tail.is_empty() {
            true => net.real("y", io, &dims, layout),
            false => net.intermediate("n", DataType::Float, &dims, layout),
        };
        let mut behind = None;
        match kind {
            Kind::Inference => {
                let (mean, inv_variance) = (per_channel(&mut net, "mean"), per_channel(&mut net, "inv_variance"));
                let (bias, y) = (per_channel(&mut net, "bias"), result(&mut net));
                net.node(Operation::BatchnormInference(BatchnormInference { x, mean, inv_variance, scale, bias, y }));
                behind = Some(y);
            }
            Kind::Variance => {
                let (mean, variance) = (per_channel(&mut net, "mean"), per_channel(&mut net, "variance"));
                let (bias, epsilon) = (per_channel(&mut net, "bias"), net.scalar("epsilon", DataType::Float, 1e-5));
                let y = result(&mut net);
                let node = BatchnormInferenceVarianceExt { x, mean, variance, scale, bias, y, epsilon };
                net.node(Operation::BatchnormInferenceVarianceExt(node));
                behind = Some(y);
            }
            Kind::Training | Kind::TrainingSaved | Kind::TrainingRunning | Kind::TrainingAll => {
                let saved = matches!(kind, Kind::TrainingSaved | Kind::TrainingAll);
                let running = matches!(kind, Kind::TrainingRunning | Kind::TrainingAll);
                let (bias, epsilon) = (per_channel(&mut net, "bias"), net.scalar("epsilon", DataType::Float, 1e-3));
                let some = |net: &mut Net, wanted: bool, name: &str| wanted.then(|| per_channel(net, name));
                let node = Training {
                    x,
                    scale,
                    bias,
                    epsilon,
                    peer_stats: Vec::new(),
                    prev_running_mean: some(&mut net, running, "prev_running_mean"),
                    prev_running_variance: some(&mut net, running, "prev_running_variance"),
                    mean: some(&mut net, saved, "mean"),
                    inv_variance: some(&mut net, saved, "inv_variance"),
                    next_running_mean: some(&mut net, running, "next_running_mean"),
                    next_running_variance: some(&mut net, running, "next_running_variance"),
                    momentum: running.then(|| net.scalar("momentum", DataType::Float, 0.1)),
                    y: result(&mut net),
                };
                behind = Some(node.y);
                net.node(Operation::Batchnorm(node));
            }
            Kind::Backward | Kind::BackwardAlone | Kind::BackwardFused => {
                let given = !matches!(kind, Kind::BackwardAlone);
                let mean = given.then(|| per_channel(&mut net, "mean"));
                let inv_variance = given.then(|| per_channel(&mut net, "inv_variance"));
                let mut dy = net.real("dy", io, &dims, layout);
                if let (Kind::BackwardFused, Some(mean), Some(inv_variance)) = (kind, mean, inv_variance) {
                    let bias = per_channel(&mut net, "bias");
                    let y = net.intermediate("y", DataType::Float, &dims, layout);
                    let gradient = net.intermediate("dz", DataType::Float, &dims, layout);
                    net.node(Operation::BatchnormInference(BatchnormInference {
                        x,
                        mean,
                        inv_variance,
                        scale,
                        bias,
                        y,
                    }));
                    net.node(Operation::Pointwise(Pointwise::binary(PointwiseMode::ReluBwd, y, dy, gradient)));
                    dy = gradient;
                }
                let node = BatchnormBackward {
                    dy,
                    x,
                    mean,
                    inv_variance,
                    scale,
                    peer_stats: Vec::new(),
                    dx: net.real("dx", io, &dims, layout),
                    dscale: per_channel(&mut net, "dscale"),
                    dbias: per_channel(&mut net, "dbias"),
                };
                net.node(Operation::BatchnormBackward(node));
            }
        }
        if let (Some(y), false) = (behind, tail.is_empty()) {
            let types = Types { intermediate: DataType::Float, io, compute: DataType::Float };
            tail::append(&mut net, y, &dims, layout, tail, types)?;
        }
        if let Some([low, high]) = self.range {
            net.fill(x, Fill::Uniform(low, high));
        }
        let tail = if tail.is_empty() { String::new() } else { format!("/{}", text::dashed(tail)) };
        let range = self.range.map_or_else(String::new, |[low, high]| format!("/from{low}to{high}"));
        let name =
            format!("{}/{}/{}/{types}/{}{tail}{range}", self.name, kind.name(), layout.name(), text::extents(&dims));
        Ok(Case::new(name, net))
    }
}

/// A table of normalizations along rows: every combination of its lists is a case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rows {
    /// The first part of the names.
    name: String,
    kinds: Vec<RowKind>,
    /// Of x and y, or `x,scale`; statistics are float.
    types: Vec<String>,
    layouts: Vec<Layout>,
    /// The extents, then `|` and the number of last dimensions that make a row.
    shapes: Vec<String>,
    #[serde(default = "nothing")]
    tails: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RowKind {
    Inference,
    Training,
    /// For RMS: without a bias.
    Plain,
    Backward,
    /// With statistics that the gradient computes; for RMS, without the bias's gradient.
    BackwardAlone,
}

impl RowKind {
    fn name(self) -> &'static str {
        match self {
            RowKind::Inference => "inference",
            RowKind::Training => "training",
            RowKind::Plain => "plain",
            RowKind::Backward => "backward",
            RowKind::BackwardAlone => "alone",
        }
    }
}

/// Parameters of a case of row normalization.
struct Row {
    io: DataType,
    affine: DataType,
    dims: Vec<i64>,
    count: usize,
    layout: Layout,
    kind: RowKind,
    tail: String,
}

impl Rows {
    pub(super) fn layernorm(&self, cases: &mut Vec<Case>) -> Result<(), String> {
        self.expand(cases, layernorm)
    }

    pub(super) fn rmsnorm(&self, cases: &mut Vec<Case>) -> Result<(), String> {
        self.expand(cases, rmsnorm)
    }

    fn expand(&self, cases: &mut Vec<Case>, build: fn(&Row) -> Result<Net, String>) -> Result<(), String> {
        for shape in &self.shapes {
            let (dims, count) =
                shape.split_once('|').ok_or_else(|| format!("expected extents | count, got {shape:?}"))?;
            let dims = text::numbers(dims.trim())?;
            let count = text::numbers(count)?[0] as usize;
            for types in &self.types {
                let (io, affine) = types.split_once(',').unwrap_or((types, types));
                let (io, affine) = (text::data_type(io)?, text::data_type(affine)?);
                for layout in &self.layouts {
                    for kind in &self.kinds {
                        for tail in &self.tails {
                            let row = Row {
                                io,
                                affine,
                                dims: dims.clone(),
                                count,
                                layout: *layout,
                                kind: *kind,
                                tail: tail.clone(),
                            };
                            let net = build(&row).map_err(|problem| format!("{}: {shape}: {problem}", self.name))?;
                            let tail = if tail.is_empty() { String::new() } else { format!("/{}", text::dashed(tail)) };
                            let name = format!(
                                "{}/{}/{}/{}/{}-last{count}{tail}",
                                self.name,
                                kind.name(),
                                layout.name(),
                                types.replace(',', "-"),
                                text::extents(&dims)
                            );
                            cases.push(Case::new(name, net));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

impl Row {
    fn affine_dims(&self) -> Vec<i64> {
        let first = self.dims.len() - self.count;
        self.dims.iter().enumerate().map(|(axis, extent)| if axis < first { 1 } else { *extent }).collect()
    }

    fn statistics_dims(&self) -> Vec<i64> {
        let first = self.dims.len() - self.count;
        self.dims.iter().enumerate().map(|(axis, extent)| if axis < first { *extent } else { 1 }).collect()
    }

    /// The result of a forward pass, and its epilogue.
    fn result(&self, net: &mut Net) -> hipdnn_schemas::TensorUid {
        match self.tail.is_empty() {
            true => net.real("y", self.io, &self.dims, self.layout),
            false => net.intermediate("n", DataType::Float, &self.dims, self.layout),
        }
    }

    fn finish(&self, net: &mut Net, y: hipdnn_schemas::TensorUid) -> Result<(), String> {
        let types = Types { intermediate: DataType::Float, io: self.io, compute: DataType::Float };
        tail::append(net, y, &self.dims, self.layout, &self.tail, types).map(|_| ())
    }
}

fn layernorm(row: &Row) -> Result<Net, String> {
    let mut net = Net::new(DataType::Float);
    let (affine, statistics) = (row.affine_dims(), row.statistics_dims());
    let x = net.real("x", row.io, &row.dims, row.layout);
    let scale = net.real("scale", row.affine, &affine, Layout::First);
    let backward = matches!(row.kind, RowKind::Backward | RowKind::BackwardAlone);
    if !backward {
        let training = row.kind == RowKind::Training;
        let some =
            |net: &mut Net, name: &str| training.then(|| net.real(name, DataType::Float, &statistics, Layout::First));
        let node = Layernorm {
            x,
            scale,
            bias: net.real("bias", row.affine, &affine, Layout::First),
            epsilon: net.scalar("epsilon", DataType::Float, 1e-5),
            y: row.result(&mut net),
            normalized_dim_count: row.count as i64,
            mean: some(&mut net, "mean"),
            inv_variance: some(&mut net, "inv_variance"),
            forward_phase: if training { NormFwdPhase::Training } else { NormFwdPhase::Inference },
        };
        let y = node.y;
        net.node(Operation::Layernorm(node));
        row.finish(&mut net, y)?;
        return Ok(net);
    }
    let given = row.kind == RowKind::Backward;
    let some = |net: &mut Net, name: &str| given.then(|| net.real(name, DataType::Float, &statistics, Layout::First));
    let node = LayernormBackward {
        dy: net.real("dy", row.io, &row.dims, row.layout),
        x,
        scale,
        mean: some(&mut net, "mean"),
        inv_variance: some(&mut net, "inv_variance"),
        epsilon: (!given).then(|| net.scalar("epsilon", DataType::Float, 1e-5)),
        dx: net.real("dx", row.io, &row.dims, row.layout),
        dscale: net.real("dscale", row.affine, &affine, Layout::First),
        dbias: Some(net.real("dbias", row.affine, &affine, Layout::First)),
        normalized_dim_count: row.count as i64,
    };
    net.node(Operation::LayernormBackward(node));
    Ok(net)
}

fn rmsnorm(row: &Row) -> Result<Net, String> {
    let mut net = Net::new(DataType::Float);
    let (affine, statistics) = (row.affine_dims(), row.statistics_dims());
    let x = net.real("x", row.io, &row.dims, row.layout);
    let scale = net.real("scale", row.affine, &affine, Layout::First);
    if !matches!(row.kind, RowKind::Backward | RowKind::BackwardAlone) {
        let training = row.kind == RowKind::Training;
        let with_bias = row.kind != RowKind::Plain;
        let node = RmsNorm {
            x,
            scale,
            epsilon: net.scalar("epsilon", DataType::Float, 1e-5),
            y: row.result(&mut net),
            bias: with_bias.then(|| net.real("bias", row.affine, &affine, Layout::First)),
            inv_rms: training.then(|| net.real("inv_rms", DataType::Float, &statistics, Layout::First)),
            forward_phase: if training { NormFwdPhase::Training } else { NormFwdPhase::Inference },
        };
        let y = node.y;
        net.node(Operation::RmsNorm(node));
        row.finish(&mut net, y)?;
        return Ok(net);
    }
    let with_bias = row.kind == RowKind::Backward;
    let node = RmsNormBackward {
        dy: net.real("dy", row.io, &row.dims, row.layout),
        x,
        scale,
        inv_rms: net.real("inv_rms", DataType::Float, &statistics, Layout::First),
        dx: net.real("dx", row.io, &row.dims, row.layout),
        dscale: net.real("dscale", row.affine, &affine, Layout::First),
        dbias: with_bias.then(|| net.real("dbias", row.affine, &affine, Layout::First)),
    };
    net.node(Operation::RmsNormBackward(node));
    Ok(net)
}
