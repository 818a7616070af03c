//! Shape inference: the extents of what a node writes, from those of what it reads.
//!
//! Where the operation leaves a choice, the shape that the graph declares says how it was made: an extent of 1 stays one
//! that a reduction or a broadcast made, a window that hung over keeps hanging over.

use std::collections::HashMap;

use crate::{Convolution, Graph, Operation, Pointwise, ResampleFwd, ResampleMode, ShapeOverride, TensorUid};

/// Extents of a graph's tensors at one execution.
pub(crate) struct Inference<'g> {
    graph: &'g Graph,
    /// Those that were given or inferred; all others are as declared.
    dims: HashMap<TensorUid, Vec<i64>>,
}

impl<'g> Inference<'g> {
    /// The extents that are given.
    pub(crate) fn new(graph: &'g Graph, given: &[ShapeOverride<'_>]) -> Inference<'g> {
        Inference { graph, dims: given.iter().map(|shape| (shape.uid, shape.dims.to_vec())).collect() }
    }

    /// The extents of a tensor, if they differ from those declared.
    pub(crate) fn changed(&self, uid: TensorUid) -> Option<Vec<i64>> {
        self.dims.get(&uid).filter(|dims| **dims != self.declared(uid)).cloned()
    }

    /// Infers the extents of a tensor that the operation writes.
    ///
    /// # Errors
    /// If they don't follow from those of what it reads.
    pub(crate) fn infer(&mut self, operation: &Operation, uid: TensorUid) -> Result<(), String> {
        if operation.inputs().iter().all(|input| self.now(*input) == self.declared(*input)) {
            return Ok(());
        }
        let dims = self.output(operation, uid).ok_or_else(|| {
            format!(
                "the extents of tensor {uid}, an intermediate, don't follow from the override shapes: it needs its own"
            )
        })?;
        self.dims.insert(uid, dims);
        Ok(())
    }

    fn declared(&self, uid: TensorUid) -> &'g [i64] {
        &self.graph.tensor(uid).def().dims
    }

    fn now(&self, uid: TensorUid) -> &[i64] {
        self.dims.get(&uid).map_or(self.declared(uid), |dims| dims)
    }

    fn output(&self, operation: &Operation, uid: TensorUid) -> Option<Vec<i64>> {
        let like = |other: TensorUid| Some(self.now(other).to_vec());
        match operation {
            Operation::Pointwise(p) => self.pointwise(p),
            Operation::ConvolutionFwd(c) => self.convolution(&c.convolution, c.x, c.w),
            Operation::ConvolutionBwd(c) => self.convolution_data(&c.convolution, c.dy, c.w, c.dx),
            Operation::ConvolutionWrw(c) => {
                // The number of taps is the operation's own; the rest follows.
                let groups = self.declared(c.x).get(1)? / self.declared(c.dw).get(1)?;
                let mut dims = self.declared(c.dw).to_vec();
                (dims[0], dims[1]) = (*self.now(c.dy).get(1)?, self.now(c.x).get(1)? / groups);
                Some(dims)
            }
            Operation::Matmul(m) => {
                let (a, b) = (self.now(m.a), self.now(m.b));
                let batch = a.len().checked_sub(2).filter(|batch| b.len() == batch + 2)?;
                let mut dims: Vec<i64> = a[..batch].iter().zip(b).map(|(a, b)| *a.max(b)).collect();
                dims.extend([a[batch], b[batch + 1]]);
                Some(dims)
            }
            Operation::BatchnormInference(n) => like(n.x),
            Operation::BatchnormInferenceVarianceExt(n) => like(n.x),
            Operation::BatchnormBackward(n) if uid == n.dx => like(n.x),
            Operation::BatchnormBackward(n) => self.per_channel(uid, n.x),
            Operation::Batchnorm(n) if uid == n.y => like(n.x),
            Operation::Batchnorm(n) => self.per_channel(uid, n.x),
            Operation::Layernorm(n) if uid == n.y => like(n.x),
            Operation::Layernorm(n) => self.rows(uid, n.x, n.normalized_dim_count),
            Operation::LayernormBackward(n) if uid == n.dx => like(n.x),
            // The gradients of scale and bias have the scale's elements.
            Operation::LayernormBackward(n) if self.declared(uid) == self.declared(n.scale) => like(n.scale),
            Operation::LayernormBackward(_) => None,
            // The result is reduced nowhere: it declares 1 only where `x` does.
            Operation::RmsNorm(n) => Some(self.reduced(uid, n.x)),
            Operation::RmsNormBackward(n) if uid == n.dx => like(n.x),
            Operation::RmsNormBackward(n) => like(n.scale),
            Operation::Reduction(r) => Some(self.reduced(uid, r.input)),
            Operation::ResampleFwd(r) => self.pooled(r),
            // How far an image reached behind the last window is not in the gradient.
            Operation::ResampleBwd(r) if self.now(r.dy)[2..] == self.declared(r.dy)[2..] => {
                Some([&self.now(r.dy)[..2], &self.declared(r.dx)[2..]].concat())
            }
            Operation::ResampleBwd(_) => None,
            Operation::BlockScaleDequantize(b) => like(b.x),
            Operation::BlockScaleQuantize(b) if uid == b.y && !b.transpose => like(b.x),
            Operation::BlockScaleQuantize(b) if uid == b.scale => self.blocks(uid, b.x, i64::from(b.block_size)),
            Operation::BlockScaleQuantize(_) => None,
            Operation::Sdpa(s) => {
                let [q, v] = [self.now(s.q), self.now(s.v)];
                let rows = |dims: &[i64]| Some(vec![*dims.first()?, *dims.get(1)?, *dims.get(2)?]);
                let one = |of: &[i64]| rows(of).map(|rows| [&rows[..], &[1]].concat());
                match self.declared(uid) {
                    _ if uid == s.o => rows(q).and_then(|rows| Some([&rows[..], &[*v.get(3)?]].concat())),
                    declared if Some(declared) == one(self.declared(s.q)).as_deref() => one(q),
                    declared if declared.iter().all(|extent| *extent == 1) => Some(declared.to_vec()),
                    _ => None,
                }
            }
            Operation::SdpaBackward(s) => match uid {
                _ if uid == s.dq => like(s.q),
                _ if uid == s.dk => like(s.k),
                _ if uid == s.dv => like(s.v),
                _ => s.attn_mask.filter(|mask| self.declared(*mask) == self.declared(uid)).and_then(like),
            },
            Operation::CustomOp(_) | Operation::MoeGroupedMatmul(_) | Operation::MoeGroupedMatmulBwd(_) => None,
        }
    }

    /// The largest extent among those inputs that are not broadcast along a dimension.
    fn pointwise(&self, p: &Pointwise) -> Option<Vec<i64>> {
        let declared = self.declared(p.out_0);
        let inputs = || [Some(p.in_0), p.in_1, p.in_2].into_iter().flatten();
        let extent = |(axis, declared): (usize, &i64)| {
            let whole = inputs().filter(|input| self.declared(*input).get(axis) == Some(declared));
            let whole = whole.filter(|input| self.declared(*input).len() == self.declared(p.out_0).len());
            whole.map(|input| self.now(input)[axis]).max().unwrap_or(*declared)
        };
        Some(declared.iter().enumerate().map(extent).collect())
    }

    fn convolution(&self, c: &Convolution, x: TensorUid, w: TensorUid) -> Option<Vec<i64>> {
        let (x, w) = (self.now(x), self.now(w));
        let mut dims = vec![*x.first()?, *w.first()?];
        for (axis, (input, filter)) in x[2..].iter().zip(w.get(2..)?).enumerate() {
            dims.push(c.output_extent(axis, *input, *filter)?);
        }
        Some(dims)
    }

    /// With steps of more than 1, several extents of images have the same gradient.
    fn convolution_data(&self, c: &Convolution, dy: TensorUid, w: TensorUid, dx: TensorUid) -> Option<Vec<i64>> {
        let groups = self.declared(dx).get(1)? / self.declared(w).get(1)?;
        let (gradient, filter) = (self.now(dy), self.now(w));
        let mut dims = vec![*gradient.first()?, filter.get(1)? * groups];
        for axis in 0..self.declared(dx).len() - 2 {
            let [gradient, filter] = [gradient, filter].map(|dims| dims[axis + 2]);
            let is_declared =
                [(dy, gradient), (w, filter)].iter().all(|(of, now)| self.declared(*of)[axis + 2] == *now);
            dims.push(match c.stride[axis] {
                _ if is_declared => self.declared(dx)[axis + 2],
                1 => gradient + c.dilation[axis] * (filter - 1) - c.pre_padding[axis] - c.post_padding[axis],
                _ => return None,
            });
        }
        Some(dims)
    }

    /// Extents of a tensor with an element for each channel, one dimension of which is the channels.
    fn per_channel(&self, uid: TensorUid, x: TensorUid) -> Option<Vec<i64>> {
        let mut dims = self.declared(uid).to_vec();
        let axis = dims.iter().position(|extent| *extent == self.declared(x)[1])?;
        dims[axis] = self.now(x)[1];
        Some(dims)
    }

    /// Extents of a tensor with an element for each row: the rows' own, with a 1 for each normalized dimension or without.
    fn rows(&self, uid: TensorUid, x: TensorUid, normalized: i64) -> Option<Vec<i64>> {
        let outer = self.declared(x).len() - normalized as usize;
        let declared = self.declared(uid);
        let (head, tail) = declared.split_at_checked(outer)?;
        let fits = head == &self.declared(x)[..outer] && tail.iter().all(|extent| *extent == 1);
        fits.then(|| [&self.now(x)[..outer], tail].concat())
    }

    /// Extents of a tensor that is reduced where it declares 1.
    fn reduced(&self, uid: TensorUid, input: TensorUid) -> Vec<i64> {
        let extents = self.declared(uid).iter().zip(self.now(input));
        extents.map(|(declared, now)| if *declared == 1 { 1 } else { *now }).collect()
    }

    fn pooled(&self, r: &ResampleFwd) -> Option<Vec<i64>> {
        let (now, was) = (self.now(r.x), self.declared(r.x));
        let mut dims = now[..2].to_vec();
        for axis in 0..now.len() - 2 {
            let declared = self.declared(r.y)[axis + 2];
            let (now, was) = (now[axis + 2], was[axis + 2]);
            if now == was {
                dims.push(declared);
                continue;
            }
            // Interpolation takes its scale from the extents.
            if matches!(r.resample_mode, ResampleMode::Bilinear | ResampleMode::Nearest) {
                return None;
            }
            let stride = r.stride[axis];
            let room = |extent: i64| extent + r.pre_padding[axis] + r.post_padding[axis] - r.window[axis];
            let hangs_over = declared > room(was) / stride + 1;
            let room = Some(room(now)).filter(|room| *room >= 0)?;
            dims.push(if hangs_over { (room + stride - 1) / stride } else { room / stride } + 1);
        }
        Some(dims)
    }

    /// Extents of the scales of blocks: those of `x`, divided along the dimension of blocks.
    fn blocks(&self, uid: TensorUid, x: TensorUid, block: i64) -> Option<Vec<i64>> {
        let (declared, was, now) = (self.declared(uid), self.declared(x), self.now(x));
        if declared.len() != was.len() {
            return None;
        }
        let blocks = |extent: i64| (extent + block - 1) / block;
        (0..was.len())
            .map(|axis| match declared[axis] {
                declared if declared == was[axis] => Some(now[axis]),
                declared if declared == blocks(was[axis]) => Some(blocks(now[axis])),
                _ => None,
            })
            .collect()
    }
}
