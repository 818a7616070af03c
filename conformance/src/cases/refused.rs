//! Graphs that no engine may take.

use hipdnn_schemas::{Convolution, ConvolutionFwd, DataType, Operation, Pointwise, PointwiseMode, TensorUid};
use serde::Deserialize;

use super::net::Net;
use super::{Case, Layout};

/// A list of wrongs done to a convolution with a rectifier behind it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// The first part of the names.
    name: String,
    wrongs: Vec<String>,
}

impl Table {
    pub(super) fn expand(&self, cases: &mut Vec<Case>) -> Result<(), String> {
        for wrong in &self.wrongs {
            let mut net = Net::new(DataType::Float);
            let x = net.real("x", DataType::Float, &[2, 3, 8, 8], Layout::First);
            let w = net.real("w", DataType::Float, &[4, 3, 3, 3], Layout::First);
            let c = net.intermediate("c", DataType::Float, &[2, 4, 6, 6], Layout::First);
            let y = net.real("y", DataType::Float, &[2, 4, 6, 6], Layout::First);
            let mut convolution = Convolution::new(2);
            let empty = |net: &mut Net, uid: TensorUid, axis: usize| net.tensor(uid).dims[axis] = 0;
            match wrong.as_str() {
                "batch-0" => [x, c, y].iter().for_each(|uid| empty(&mut net, *uid, 0)),
                "channels-0" => [x, w].iter().for_each(|uid| empty(&mut net, *uid, 1)),
                "filters-0" => {
                    empty(&mut net, w, 0);
                    [c, y].iter().for_each(|uid| empty(&mut net, *uid, 1));
                }
                "image-0" => empty(&mut net, x, 2),
                "filter-0" => empty(&mut net, w, 3),
                "negative-extent" => net.tensor(x).dims[2] = -8,
                "negative-stride" => net.tensor(x).strides[2] = -8,
                "overlapping-result" => net.tensor(y).strides = [144, 36, 1, 1].as_slice().into(),
                "huge-extent" => net.tensor(x).dims[3] = i64::MAX,
                "wrong-result" => net.tensor(c).dims[2] = 7,
                "filter-too-large" => net.tensor(w).dims[2] = 9,
                "padding-missing" => convolution.pre_padding = vec![0],
                "stride-0" => convolution.stride[0] = 0,
                "dilation-0" => convolution.dilation[1] = 0,
                "negative-padding" => convolution.post_padding[1] = -1,
                "groups-that-do-not-divide" => net.tensor(w).dims[1] = 2,
                other => return Err(format!("nobody knows the wrong {other}")),
            }
            net.node(Operation::ConvolutionFwd(ConvolutionFwd { x, w, y: c, convolution }));
            net.node(Operation::Pointwise(Pointwise::unary(PointwiseMode::ReluFwd, c, y)));
            let mut case = Case::new(format!("{}/{wrong}", self.name), net);
            case.refused = true;
            cases.push(case);
        }
        Ok(())
    }
}
