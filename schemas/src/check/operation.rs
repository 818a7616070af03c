//! Constraints between an operation and its tensors.

use crate::*;

/// An operand: its name in the wire format and its tensor.
#[derive(Clone, Copy)]
struct Operand<'a> {
    role: &'static str,
    tensor: &'a Tensor,
}

impl<'a> Operand<'a> {
    fn dims(self) -> &'a [usize] {
        self.tensor.dims()
    }

    /// The message `role (tensor uid): wanted .., came ..`.
    fn wrong(self, wanted: impl std::fmt::Display, came: impl std::fmt::Display) -> String {
        format!("{} (tensor {}): expected {wanted}, got {came}", self.role, self.tensor.uid())
    }

    fn rank_at_least(self, least: usize) -> Result<(), String> {
        if self.tensor.rank() >= least {
            return Ok(());
        }
        Err(self.wrong(format_args!("at least {least} dimensions"), self.tensor.rank()))
    }

    fn rank_of(self, other: Operand) -> Result<(), String> {
        if self.tensor.rank() == other.tensor.rank() {
            return Ok(());
        }
        Err(self.wrong(format_args!("{} dimensions as {} has", other.tensor.rank(), other.role), self.tensor.rank()))
    }

    fn dims_are(self, wanted: &[usize]) -> Result<(), String> {
        if self.dims() == wanted {
            return Ok(());
        }
        Err(self.wrong(format_args!("dimensions {wanted:?}"), format_args!("{:?}", self.dims())))
    }

    /// Same rank, and every extent is 1 or that of `other`.
    fn broadcasts_to(self, other: Operand) -> Result<(), String> {
        self.rank_of(other)?;
        if self.dims().iter().zip(other.dims()).all(|(mine, whole)| *mine == 1 || mine == whole) {
            return Ok(());
        }
        let wanted = format!("extents of 1 or those of {}, {:?}", other.role, other.dims());
        Err(self.wrong(wanted, format_args!("{:?}", self.dims())))
    }

    fn elements_are(self, wanted: usize, why: &str) -> Result<(), String> {
        if self.tensor.elements() == wanted {
            return Ok(());
        }
        Err(self.wrong(format_args!("{wanted} elements, {why}"), self.tensor.elements()))
    }
}

/// Finds operands; [`check`](super::check) has made sure that each exists.
#[derive(Clone, Copy)]
struct Operands<'a>(&'a Graph);

impl<'a> Operands<'a> {
    fn get(self, role: &'static str, uid: TensorUid) -> Operand<'a> {
        Operand { role, tensor: self.0.tensor(uid) }
    }

    fn some(self, role: &'static str, uid: Option<TensorUid>) -> Option<Operand<'a>> {
        uid.map(|uid| self.get(role, uid))
    }
}

pub(super) fn check(graph: &Graph, operation: &Operation) -> Result<(), String> {
    let t = Operands(graph);
    match operation {
        Operation::ConvolutionFwd(c) => convolution(t.get("x", c.x), t.get("w", c.w), t.get("y", c.y), &c.convolution),
        Operation::ConvolutionBwd(c) => {
            convolution(t.get("dx", c.dx), t.get("w", c.w), t.get("dy", c.dy), &c.convolution)
        }
        Operation::ConvolutionWrw(c) => {
            convolution(t.get("x", c.x), t.get("dw", c.dw), t.get("dy", c.dy), &c.convolution)
        }
        Operation::Pointwise(p) => pointwise(t, p),
        Operation::Matmul(m) => matmul(t.get("a", m.a), t.get("b", m.b), t.get("c", m.c)),
        Operation::BatchnormInference(n) => {
            let x = t.get("x", n.x);
            let per_channel =
                [("mean", n.mean), ("inv_variance", n.inv_variance), ("scale", n.scale), ("bias", n.bias)];
            batchnorm(t, x, &[("y", n.y)], &per_channel.map(|(role, uid)| (role, Some(uid))), &[])
        }
        Operation::BatchnormInferenceVarianceExt(n) => {
            let x = t.get("x", n.x);
            let per_channel = [("mean", n.mean), ("variance", n.variance), ("scale", n.scale), ("bias", n.bias)];
            let per_channel = per_channel.map(|(role, uid)| (role, Some(uid)));
            batchnorm(t, x, &[("y", n.y)], &per_channel, &[("epsilon", Some(n.epsilon))])
        }
        Operation::BatchnormBackward(n) => {
            let x = t.get("x", n.x);
            let per_channel = [
                ("mean", n.mean),
                ("inv_variance", n.inv_variance),
                ("scale", Some(n.scale)),
                ("dscale", Some(n.dscale)),
                ("dbias", Some(n.dbias)),
            ];
            batchnorm(t, x, &[("dy", n.dy), ("dx", n.dx)], &per_channel, &[])
        }
        Operation::Batchnorm(n) => {
            let x = t.get("x", n.x);
            let per_channel = [
                ("scale", Some(n.scale)),
                ("bias", Some(n.bias)),
                ("prev_running_mean", n.prev_running_mean),
                ("prev_running_variance", n.prev_running_variance),
                ("mean", n.mean),
                ("inv_variance", n.inv_variance),
                ("next_running_mean", n.next_running_mean),
                ("next_running_variance", n.next_running_variance),
            ];
            let scalars = [("epsilon", Some(n.epsilon)), ("momentum", n.momentum)];
            batchnorm(t, x, &[("y", n.y)], &per_channel, &scalars)
        }
        Operation::Layernorm(n) => {
            let x = t.get("x", n.x);
            let affine = [("scale", Some(n.scale)), ("bias", Some(n.bias))];
            let statistics = [("mean", n.mean), ("inv_variance", n.inv_variance)];
            t.get("y", n.y).dims_are(x.dims())?;
            t.get("epsilon", n.epsilon).elements_are(1, "a scalar")?;
            layernorm(t, x, n.normalized_dim_count, &affine, &statistics)
        }
        Operation::LayernormBackward(n) => {
            let x = t.get("x", n.x);
            let affine = [("scale", Some(n.scale)), ("dscale", Some(n.dscale)), ("dbias", n.dbias)];
            let statistics = [("mean", n.mean), ("inv_variance", n.inv_variance)];
            t.get("dy", n.dy).dims_are(x.dims())?;
            t.get("dx", n.dx).dims_are(x.dims())?;
            if let Some(epsilon) = t.some("epsilon", n.epsilon) {
                epsilon.elements_are(1, "a scalar")?;
            }
            layernorm(t, x, n.normalized_dim_count, &affine, &statistics)
        }
        Operation::RmsNorm(n) => {
            let x = t.get("x", n.x);
            t.get("y", n.y).dims_are(x.dims())?;
            t.get("epsilon", n.epsilon).elements_are(1, "a scalar")?;
            rms_norm(x, t.get("scale", n.scale), &[t.some("bias", n.bias)], t.some("inv_rms", n.inv_rms))
        }
        Operation::RmsNormBackward(n) => {
            let x = t.get("x", n.x);
            t.get("dy", n.dy).dims_are(x.dims())?;
            t.get("dx", n.dx).dims_are(x.dims())?;
            let like_scale = [t.some("dscale", Some(n.dscale)), t.some("dbias", n.dbias)];
            rms_norm(x, t.get("scale", n.scale), &like_scale, t.some("inv_rms", Some(n.inv_rms)))
        }
        Operation::Reduction(r) => {
            if r.mode == ReductionMode::Unset {
                return Err("expected a reduction mode, got not_set".into());
            }
            t.get("out", r.output).broadcasts_to(t.get("in", r.input))
        }
        Operation::ResampleFwd(r) => {
            let (x, y) = (t.get("x", r.x), t.get("y", r.y));
            resample(
                x,
                y,
                t.some("index", r.index),
                r.resample_mode,
                [&r.pre_padding, &r.post_padding, &r.stride, &r.window],
            )
        }
        Operation::ResampleBwd(r) => {
            let (dx, dy) = (t.get("dx", r.dx), t.get("dy", r.dy));
            resample(
                dx,
                dy,
                t.some("index", r.index),
                r.resample_mode,
                [&r.pre_padding, &r.post_padding, &r.stride, &r.window],
            )
        }
        Operation::BlockScaleDequantize(b) => {
            let x = t.get("x", b.x);
            t.get("y", b.y).dims_are(x.dims())?;
            match b.block_size.iter().find(|size| **size < 1) {
                Some(size) => Err(format!("block_size: expected at least 1, got {size}")),
                None => Ok(()),
            }
        }
        Operation::BlockScaleQuantize(b) => {
            let x = t.get("x", b.x);
            axis("axis", b.axis, x)?;
            if b.block_size < 1 {
                return Err(format!("block_size: expected at least 1, got {}", b.block_size));
            }
            if b.transpose { t.get("y", b.y).rank_of(x) } else { t.get("y", b.y).dims_are(x.dims()) }
        }
        Operation::Sdpa(s) => {
            let [q, k, v, o] = [t.get("q", s.q), t.get("k", s.k), t.get("v", s.v), t.get("o", s.o)];
            // Paged keys and values are laid out by their page tables.
            if s.page_table_k.is_none() && s.page_table_v.is_none() { attention(q, k, v, o) } else { Ok(()) }
        }
        Operation::SdpaBackward(s) => {
            let [q, k, v, o] = [t.get("q", s.q), t.get("k", s.k), t.get("v", s.v), t.get("o", s.o)];
            attention(q, k, v, o)?;
            t.get("do", s.d_o).dims_are(o.dims())?;
            t.get("dq", s.dq).dims_are(q.dims())?;
            t.get("dk", s.dk).dims_are(k.dims())?;
            t.get("dv", s.dv).dims_are(v.dims())
        }
        Operation::CustomOp(c) if c.custom_op_id.is_empty() => Err("custom_op_id: expected a name, got none".into()),
        // What these do with their shapes is not the format's to say.
        Operation::CustomOp(_) | Operation::MoeGroupedMatmul(_) | Operation::MoeGroupedMatmulBwd(_) => Ok(()),
    }
}

/// A list with one entry for each spatial dimension. Larger entries than these have no use, and overflow sums.
fn spatial_list(name: &str, list: &[i64], spatial: usize, least: i64) -> Result<(), String> {
    if list.len() != spatial {
        return Err(format!("{name}: expected {spatial} entries, one for each spatial dimension, got {}", list.len()));
    }
    let most = i64::from(i32::MAX);
    match list.iter().find(|entry| !(least..=most).contains(entry)) {
        Some(entry) => Err(format!("{name}: expected entries of {least} to {most}, got {entry}")),
        None => Ok(()),
    }
}

fn convolution(x: Operand, w: Operand, y: Operand, c: &Convolution) -> Result<(), String> {
    if c.mode == ConvMode::Unset {
        return Err("conv_mode: expected CONVOLUTION or CROSS_CORRELATION, got UNSET".into());
    }
    x.rank_at_least(3)?;
    w.rank_of(x)?;
    y.rank_of(x)?;
    let spatial = x.tensor.rank() - 2;
    spatial_list("pre_padding", &c.pre_padding, spatial, 0)?;
    spatial_list("post_padding", &c.post_padding, spatial, 0)?;
    spatial_list("stride", &c.stride, spatial, 1)?;
    spatial_list("dilation", &c.dilation, spatial, 1)?;
    let (channels, filters, channels_of_group) = (x.dims()[1], w.dims()[0], w.dims()[1]);
    if !channels.is_multiple_of(channels_of_group) {
        return Err(w.wrong(
            format_args!("a dimension 1 that divides the {channels} channels of {}", x.role),
            channels_of_group,
        ));
    }
    let groups = channels / channels_of_group;
    if !filters.is_multiple_of(groups) {
        return Err(w.wrong(format_args!("a dimension 0 that is a multiple of the {groups} groups"), filters));
    }
    let mut wanted = vec![x.dims()[0], filters];
    for axis in 0..spatial {
        let (input, filter) = (x.dims()[axis + 2], w.dims()[axis + 2]);
        let extent = c.output_extent(axis, input as i64, filter as i64).ok_or_else(|| {
            let (pre, post, dilation) = (c.pre_padding[axis], c.post_padding[axis], c.dilation[axis]);
            let image = format!("extent {input} with padding {pre} and {post}");
            w.wrong(
                format_args!("a filter that fits {image} in dimension {}", axis + 2),
                format_args!("extent {filter} with dilation {dilation}"),
            )
        })?;
        wanted.push(extent as usize);
    }
    y.dims_are(&wanted)
}

fn pointwise(t: Operands, p: &Pointwise) -> Result<(), String> {
    if p.mode == PointwiseMode::Unset {
        return Err("operation: expected a pointwise mode, got unset".into());
    }
    let out = t.get("out_0", p.out_0);
    let inputs = [Some(t.get("in_0", p.in_0)), t.some("in_1", p.in_1), t.some("in_2", p.in_2)];
    let wanted = p.mode.operands();
    for (i, input) in inputs.iter().enumerate() {
        match input {
            None if i < wanted => {
                return Err(format!("in_{i}: expected {wanted} operands for {}, got none here", p.mode));
            }
            Some(input) if i >= wanted => {
                return Err(input.wrong(format_args!("{wanted} operands for {}", p.mode), "one more"));
            }
            // A scalar broadcasts whatever its rank; clients describe it as one dimension of extent 1.
            Some(input) if input.tensor.elements() != 1 => input.broadcasts_to(out)?,
            _ => {}
        }
    }
    if p.mode == PointwiseMode::GenIndex && p.axis.is_none() {
        return Err("axis_tensor_uid: expected the index of a dimension for gen_index, got none".into());
    }
    axis("axis_tensor_uid", p.axis, out)
}

fn axis(name: &str, axis: Option<i64>, of: Operand) -> Result<(), String> {
    match axis {
        Some(axis) if !(0..of.tensor.rank() as i64).contains(&axis) => {
            Err(format!("{name}: expected a dimension of {}, 0 to {}, got {axis}", of.role, of.tensor.rank() - 1))
        }
        _ => Ok(()),
    }
}

fn matmul(a: Operand, b: Operand, c: Operand) -> Result<(), String> {
    a.rank_at_least(2)?;
    b.rank_of(a)?;
    c.rank_of(a)?;
    let batch = a.tensor.rank() - 2;
    if b.dims()[batch] != a.dims()[batch + 1] {
        return Err(b.wrong(format_args!("{} rows, as a has columns", a.dims()[batch + 1]), b.dims()[batch]));
    }
    let mut wanted = Vec::with_capacity(batch + 2);
    for i in 0..batch {
        let (mine, other) = (a.dims()[i], b.dims()[i]);
        if mine != other && mine != 1 && other != 1 {
            return Err(b.wrong(format_args!("an extent of 1 or {mine} in dimension {i}"), other));
        }
        wanted.push(mine.max(other));
    }
    wanted.extend([a.dims()[batch], b.dims()[batch + 1]]);
    c.dims_are(&wanted)
}

type Named = (&'static str, Option<TensorUid>);

fn batchnorm(
    t: Operands,
    x: Operand,
    like_x: &[(&'static str, TensorUid)],
    per_channel: &[Named],
    scalars: &[Named],
) -> Result<(), String> {
    x.rank_at_least(2)?;
    for &(role, uid) in like_x {
        t.get(role, uid).dims_are(x.dims())?;
    }
    for operand in per_channel.iter().filter_map(|&(role, uid)| t.some(role, uid)) {
        operand.elements_are(x.dims()[1], "one for each channel of x")?;
    }
    for operand in scalars.iter().filter_map(|&(role, uid)| t.some(role, uid)) {
        operand.elements_are(1, "a scalar")?;
    }
    Ok(())
}

fn layernorm(t: Operands, x: Operand, count: i64, affine: &[Named], statistics: &[Named]) -> Result<(), String> {
    let rank = x.tensor.rank();
    if count < 1 || count > rank as i64 {
        return Err(format!("normalized_dim_count: expected 1 to {rank}, the dimensions of x, got {count}"));
    }
    let (outer, inner) = x.dims().split_at(rank - count as usize);
    for operand in affine.iter().filter_map(|&(role, uid)| t.some(role, uid)) {
        operand.elements_are(inner.iter().product(), "one for each normalized element of x")?;
    }
    for operand in statistics.iter().filter_map(|&(role, uid)| t.some(role, uid)) {
        operand.elements_are(outer.iter().product(), "one for each row of x")?;
    }
    Ok(())
}

fn rms_norm(
    x: Operand,
    scale: Operand,
    like_scale: &[Option<Operand>],
    inv_rms: Option<Operand>,
) -> Result<(), String> {
    scale.broadcasts_to(x)?;
    for operand in like_scale.iter().flatten() {
        operand.dims_are(scale.dims())?;
    }
    inv_rms.map_or(Ok(()), |inv_rms| inv_rms.broadcasts_to(x))
}

fn resample(
    x: Operand,
    y: Operand,
    index: Option<Operand>,
    mode: ResampleMode,
    lists: [&[i64]; 4],
) -> Result<(), String> {
    x.rank_at_least(3)?;
    y.rank_of(x)?;
    if y.dims()[..2] != x.dims()[..2] {
        let wanted = format!("the batch and channels of {}, {:?}", x.role, &x.dims()[..2]);
        return Err(y.wrong(wanted, format_args!("{:?}", &y.dims()[..2])));
    }
    match mode {
        ResampleMode::Unset => return Err("resample_mode: expected a mode, got not_set".into()),
        // Interpolation takes its scale from the extents.
        ResampleMode::Bilinear | ResampleMode::Nearest => {}
        _ => pooled_extents(x, y, lists)?,
    }
    index.map_or(Ok(()), |index| index.dims_are(y.dims()))
}

fn pooled_extents(x: Operand, y: Operand, [pre, post, stride, window]: [&[i64]; 4]) -> Result<(), String> {
    let spatial = x.tensor.rank() - 2;
    spatial_list("pre_padding", pre, spatial, 0)?;
    spatial_list("post_padding", post, spatial, 0)?;
    spatial_list("stride", stride, spatial, 1)?;
    spatial_list("window", window, spatial, 1)?;
    for axis in 0..spatial {
        let (input, output) = (x.dims()[axis + 2] as i64, y.dims()[axis + 2] as i64);
        let room = input + pre[axis] + post[axis] - window[axis];
        // Rounded down, or up where clients let the last window hang over.
        let least = room / stride[axis] + 1;
        let most = (room + stride[axis] - 1) / stride[axis] + 1;
        if room < 0 || output < least || output > most {
            let wanted = if room < 0 { "a window that fits".into() } else { format!("an extent of {least}") };
            return Err(y.wrong(format_args!("{wanted} in dimension {}", axis + 2), output));
        }
    }
    Ok(())
}

/// `q` is [batch, heads, queries, depth], `k` [batch, heads, keys, depth], `v` [batch, heads, keys, depth of values].
/// Groups of query heads may share a head of keys and values.
fn attention(q: Operand, k: Operand, v: Operand, o: Operand) -> Result<(), String> {
    for operand in [q, k, v, o] {
        if operand.tensor.rank() != 4 {
            return Err(operand.wrong("4 dimensions", operand.tensor.rank()));
        }
    }
    let [batch, heads, queries, depth] = std::array::from_fn(|i| q.dims()[i]);
    for operand in [k, v] {
        if !heads.is_multiple_of(operand.dims()[1]) {
            return Err(operand.wrong(format_args!("heads that divide the {heads} of q"), operand.dims()[1]));
        }
    }
    k.dims_are(&[batch, k.dims()[1], k.dims()[2], depth])?;
    v.dims_are(&[batch, v.dims()[1], k.dims()[2], v.dims()[3]])?;
    o.dims_are(&[batch, heads, queries, v.dims()[3]])
}
