//! Types of the operands of all other nodes: each has a small graph of which one tensor's type is changed at a time.

use hipdnn_schemas::{
    Batchnorm, BatchnormBackward, BatchnormInference, BatchnormInferenceVarianceExt, BlockScaleDequantize,
    BlockScaleQuantize, DataType, GraphBuilder, Layernorm, LayernormBackward, Matmul, NormFwdPhase, Operation,
    PaddingMode, Reduction, ReductionMode, ResampleBwd, ResampleFwd, ResampleMode, RmsNorm, RmsNormBackward, Sdpa,
    SdpaBackward, TensorDef, TensorUid,
};

use crate::page::{COMPUTE, ENGINES, cell, row, table_of_engines, types};

/// A node with the tensors of its operands.
struct Probe {
    /// Remark behind the name of the operation.
    note: &'static str,
    operation: Operation,
    tensors: Vec<Tensor>,
}

/// A tensor by the name of its operand.
#[derive(Clone)]
struct Tensor {
    role: &'static str,
    data_type: DataType,
    dims: Vec<i64>,
}

impl Probe {
    fn noted(self, note: &'static str) -> Probe {
        Probe { note, ..self }
    }

    fn kind(&self) -> String {
        let table = self.operation.kind();
        format!("{}{}", table.strip_suffix("Attributes").unwrap_or(table), self.note)
    }

    /// Makes the graph with another type for one tensor, and for the computation.
    fn graph(&self, changed: Option<(usize, DataType)>, compute: DataType) -> GraphBuilder {
        let mut graph = GraphBuilder::new("probe").compute(compute);
        for (uid, tensor) in self.tensors.iter().enumerate() {
            let data_type = changed.filter(|(which, _)| *which == uid).map_or(tensor.data_type, |(_, t)| t);
            graph.tensor(TensorDef::new(uid as i64, data_type, &tensor.dims));
        }
        graph.node("", self.operation.clone());
        graph
    }
}

/// Collects tensors.
#[derive(Default)]
struct Tensors(Vec<Tensor>);

impl Tensors {
    fn typed(&mut self, role: &'static str, data_type: DataType, dims: &[i64]) -> TensorUid {
        self.0.push(Tensor { role, data_type, dims: dims.to_vec() });
        TensorUid(self.0.len() as i64 - 1)
    }

    fn float(&mut self, role: &'static str, dims: &[i64]) -> TensorUid {
        self.typed(role, DataType::Float, dims)
    }
}

/// A node with the tensors that it asks for.
fn probe(make: impl FnOnce(&mut Tensors) -> Operation) -> Probe {
    let mut tensors = Tensors::default();
    let operation = make(&mut tensors);
    Probe { note: "", operation, tensors: tensors.0 }
}

const IMAGE: &[i64] = &[2, 4, 6, 6];
const CHANNEL: &[i64] = &[1, 4, 1, 1];
const ROWS: &[i64] = &[4, 8];
const ROW: &[i64] = &[1, 8];
const STATISTIC: &[i64] = &[4, 1];
const ONE: &[i64] = &[1];

fn batch_normalizations() -> Vec<Probe> {
    vec![
        probe(|t| {
            let node = BatchnormInference {
                x: t.float("x", IMAGE),
                mean: t.float("mean", CHANNEL),
                inv_variance: t.float("inv_variance", CHANNEL),
                scale: t.float("scale", CHANNEL),
                bias: t.float("bias", CHANNEL),
                y: t.float("y", IMAGE),
            };
            Operation::BatchnormInference(node)
        }),
        probe(|t| {
            let node = BatchnormInferenceVarianceExt {
                x: t.float("x", IMAGE),
                mean: t.float("mean", CHANNEL),
                variance: t.float("variance", CHANNEL),
                scale: t.float("scale", CHANNEL),
                bias: t.float("bias", CHANNEL),
                epsilon: t.float("epsilon", ONE),
                y: t.float("y", IMAGE),
            };
            Operation::BatchnormInferenceVarianceExt(node)
        }),
        probe(|t| {
            let node = Batchnorm {
                x: t.float("x", IMAGE),
                scale: t.float("scale", CHANNEL),
                bias: t.float("bias", CHANNEL),
                epsilon: t.float("epsilon", ONE),
                peer_stats: Vec::new(),
                prev_running_mean: Some(t.float("prev_running_mean", CHANNEL)),
                prev_running_variance: Some(t.float("prev_running_variance", CHANNEL)),
                momentum: Some(t.float("momentum", ONE)),
                y: t.float("y", IMAGE),
                mean: Some(t.float("mean", CHANNEL)),
                inv_variance: Some(t.float("inv_variance", CHANNEL)),
                next_running_mean: Some(t.float("next_running_mean", CHANNEL)),
                next_running_variance: Some(t.float("next_running_variance", CHANNEL)),
            };
            Operation::Batchnorm(node)
        }),
        probe(|t| {
            let node = BatchnormBackward {
                dy: t.float("dy", IMAGE),
                x: t.float("x", IMAGE),
                mean: Some(t.float("mean", CHANNEL)),
                inv_variance: Some(t.float("inv_variance", CHANNEL)),
                scale: t.float("scale", CHANNEL),
                peer_stats: Vec::new(),
                dx: t.float("dx", IMAGE),
                dscale: t.float("dscale", CHANNEL),
                dbias: t.float("dbias", CHANNEL),
            };
            Operation::BatchnormBackward(node)
        }),
    ]
}

fn row_normalizations() -> Vec<Probe> {
    vec![
        probe(|t| {
            let node = Layernorm {
                x: t.float("x", ROWS),
                scale: t.float("scale", ROW),
                bias: t.float("bias", ROW),
                epsilon: t.float("epsilon", ONE),
                y: t.float("y", ROWS),
                normalized_dim_count: 1,
                mean: Some(t.float("mean", STATISTIC)),
                inv_variance: Some(t.float("inv_variance", STATISTIC)),
                forward_phase: NormFwdPhase::Training,
            };
            Operation::Layernorm(node)
        }),
        probe(|t| {
            let node = LayernormBackward {
                dy: t.float("dy", ROWS),
                x: t.float("x", ROWS),
                scale: t.float("scale", ROW),
                mean: None,
                inv_variance: None,
                epsilon: Some(t.float("epsilon", ONE)),
                dx: t.float("dx", ROWS),
                dscale: t.float("dscale", ROW),
                dbias: Some(t.float("dbias", ROW)),
                normalized_dim_count: 1,
            };
            Operation::LayernormBackward(node)
        }),
        probe(|t| {
            let node = RmsNorm {
                x: t.float("x", ROWS),
                scale: t.float("scale", ROW),
                epsilon: t.float("epsilon", ONE),
                y: t.float("y", ROWS),
                bias: Some(t.float("bias", ROW)),
                inv_rms: Some(t.float("inv_rms", STATISTIC)),
                forward_phase: NormFwdPhase::Training,
            };
            Operation::RmsNorm(node)
        }),
        probe(|t| {
            let node = RmsNormBackward {
                dy: t.float("dy", ROWS),
                x: t.float("x", ROWS),
                scale: t.float("scale", ROW),
                inv_rms: t.float("inv_rms", STATISTIC),
                dx: t.float("dx", ROWS),
                dscale: t.float("dscale", ROW),
                dbias: Some(t.float("dbias", ROW)),
            };
            Operation::RmsNormBackward(node)
        }),
    ]
}

fn reduction(mode: ReductionMode) -> Probe {
    probe(|t| {
        let (input, output) = (t.float("in", ROWS), t.float("out", STATISTIC));
        Operation::Reduction(Reduction { mode, input, output, is_deterministic: false })
    })
}

/// Places that windows of 2 × 2 have in an image.
const POOLED: &[i64] = &[2, 4, 3, 3];

fn pooling(resample_mode: ResampleMode, padding_mode: PaddingMode) -> Probe {
    probe(|t| {
        let has_index = resample_mode == ResampleMode::MaxPool;
        let node = ResampleFwd {
            x: t.float("x", IMAGE),
            y: t.float("y", POOLED),
            index: has_index.then(|| t.typed("index", DataType::Int32, POOLED)),
            pre_padding: vec![0; 2],
            post_padding: vec![0; 2],
            stride: vec![2; 2],
            window: vec![2; 2],
            resample_mode,
            padding_mode,
            generate_index: Some(has_index),
        };
        Operation::ResampleFwd(node)
    })
}

fn pooling_gradient(resample_mode: ResampleMode, padding_mode: PaddingMode) -> Probe {
    probe(|t| {
        let node = ResampleBwd {
            dy: t.float("dy", POOLED),
            dx: t.float("dx", IMAGE),
            index: (resample_mode == ResampleMode::MaxPool).then(|| t.typed("index", DataType::Int32, POOLED)),
            pre_padding: vec![0; 2],
            post_padding: vec![0; 2],
            stride: vec![2; 2],
            window: vec![2; 2],
            resample_mode,
            padding_mode,
        };
        Operation::ResampleBwd(node)
    })
}

fn products() -> Vec<Probe> {
    let heads: &[i64] = &[1, 2, 8, 16];
    vec![
        probe(|t| {
            let node = Matmul { a: t.float("a", &[4, 8]), b: t.float("b", &[8, 4]), c: t.float("c", &[4, 4]) };
            Operation::Matmul(node)
        }),
        probe(|t| {
            let [q, k, v, o] = ["q", "k", "v", "o"].map(|role| t.float(role, heads));
            let mut node = Sdpa::new(q, k, v, o);
            node.attn_mask = Some(t.float("attn_mask", &[1, 2, 8, 8]));
            node.scale = Some(t.float("scale", ONE));
            (node.generate_stats, node.stats) = (Some(true), Some(t.float("stats", &[1, 2, 8, 1])));
            Operation::Sdpa(Box::new(node))
        }),
        probe(|t| {
            let [q, k, v, o, d_o] = ["q", "k", "v", "o", "do"].map(|role| t.float(role, heads));
            let stats = t.float("stats", &[1, 2, 8, 1]);
            let gradients = ["dq", "dk", "dv"].map(|role| t.float(role, heads));
            let mut node = SdpaBackward::new([q, k, v, o, d_o, stats], gradients);
            node.scale = Some(t.float("scale", ONE));
            Operation::SdpaBackward(Box::new(node))
        }),
    ]
}

fn block_scales() -> Vec<Probe> {
    let (wide, narrow): (&[i64], &[i64]) = (&[4, 64], &[4, 2]);
    vec![
        probe(|t| {
            let node = BlockScaleQuantize {
                x: t.float("x", wide),
                y: t.typed("y", DataType::Fp8E4M3, wide),
                scale: t.typed("scale", DataType::Fp8E8M0, narrow),
                block_size: 32,
                axis: None,
                transpose: false,
            };
            Operation::BlockScaleQuantize(node)
        }),
        probe(|t| {
            let node = BlockScaleDequantize {
                x: t.typed("x", DataType::Fp8E4M3, wide),
                scale: t.typed("scale", DataType::Fp8E8M0, narrow),
                y: t.float("y", wide),
                block_size: vec![32],
                is_negative_scale: false,
            };
            Operation::BlockScaleDequantize(node)
        }),
    ]
}

fn probes() -> Vec<Probe> {
    let mut probes = batch_normalizations();
    probes.extend(row_normalizations());
    probes.push(reduction(ReductionMode::Add).noted(", sums and products"));
    probes.push(reduction(ReductionMode::Max).noted(", extremes"));
    for (mode, note) in [(ResampleMode::MaxPool, ", maximum"), (ResampleMode::AvgPoolIncludePadding, ", average")] {
        probes.push(pooling(mode, PaddingMode::Zero).noted(note));
        probes.push(pooling_gradient(mode, PaddingMode::Zero).noted(note));
    }
    probes.extend(products());
    probes.extend(block_scales());
    probes
}

/// Appends the tables.
pub(crate) fn nodes(page: &mut String) {
    page.push_str(
        "## All other nodes\n\n### Types\n\nOther tensors are float (numbers of few bits are fp8_e4m3 with scales of \
         fp8_e8m0, indices int32): types may differ. Strides are free. On HIPDNN_RS_GPU_ENGINE, values are computed in `f32`, \
         and in `f64` where a tensor that is read, or a result, has more digits.\n\n",
    );
    table_of_engines(page, &["operation", "tensor"]);
    for probe in probes() {
        // Operands that are answered alike share a line.
        let mut lines: Vec<(Vec<&str>, Vec<String>)> = Vec::new();
        for (which, tensor) in probe.tensors.iter().enumerate() {
            let answers = ENGINES.iter().map(|e| types(|t| e.answer(probe.graph(Some((which, t)), COMPUTE))));
            let answers: Vec<String> = answers.collect();
            match lines.iter_mut().find(|(_, known)| *known == answers) {
                Some((roles, _)) => roles.push(tensor.role),
                None => lines.push((vec![tensor.role], answers)),
            }
        }
        let compute = ENGINES.iter().map(|e| types(|compute| e.answer(probe.graph(None, compute))));
        lines.push((vec!["compute type, of such tensors"], compute.collect()));
        for (roles, answers) in lines {
            row(page, [probe.kind(), roles.join(", ")].into_iter().chain(answers));
        }
    }
    page.push_str("\n### Modes\n\n");
    table_of_engines(page, &["operation", "mode"]);
    let mut answers = |probe: &Probe, mode: String| {
        let answers = ENGINES.iter().map(|e| cell(e.answer(probe.graph(None, COMPUTE))).to_string());
        row(page, [probe.kind(), mode].into_iter().chain(answers));
    };
    for mode in ReductionMode::ALL.iter().copied().filter(|mode| *mode != ReductionMode::Unset) {
        answers(&reduction(mode), mode.json_name().to_string());
    }
    for mode in ResampleMode::ALL.iter().copied().filter(|mode| *mode != ResampleMode::Unset) {
        for make in [pooling, pooling_gradient] {
            match mode {
                ResampleMode::MaxPool => {
                    for padding in [PaddingMode::NegInf, PaddingMode::Zero] {
                        answers(&make(mode, padding), format!("{}, {}", mode.json_name(), padding.json_name()));
                    }
                }
                _ => answers(&make(mode, PaddingMode::Zero), mode.json_name().to_string()),
            }
        }
    }
    page.push_str(
        "\nThe gradient of maximum pooling needs the indices of the forward pass. No engine takes statistics of peers. Of \
         attention HIPDNN_RS_CPU_ENGINE takes causal and padding masks, bounds, additive masks, sinks and grouped heads, but \
         neither dropout nor ALiBi, pages, block masks, or scales for few bits.\n\n",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_that_an_engine_names_is_one_that_it_takes() {
        let mut probed = Vec::new();
        for probe in probes() {
            probed.push(probe.operation.kind());
            for engine in &ENGINES {
                let named = (engine.has)(probe.operation.kind());
                assert_eq!(engine.answer(probe.graph(None, COMPUTE)), Some(named), "{} {}", engine.name, probe.kind());
            }
        }
        // These have tables of their own.
        let others = ["ConvolutionFwd", "ConvolutionBwd", "ConvolutionWrw", "Pointwise"];
        for kind in Operation::KINDS {
            let is_other = others.iter().any(|other| kind.strip_suffix("Attributes") == Some(other));
            let is_taken = ENGINES.iter().any(|engine| (engine.has)(kind));
            assert!(is_other || probed.contains(kind) == is_taken, "{kind} is taken: {is_taken}");
        }
    }
}
