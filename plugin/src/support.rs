//! `SUPPORT.md`, made by asking the code that decides: every cell is a small graph that was put to the engine.

use std::fmt::Write;

use hipdnn_schemas::{
    ConvMode, Convolution, ConvolutionFwd, DataType, Graph, GraphBuilder, Operation, Pointwise, PointwiseMode,
    TensorDef, TensorUid,
};

use crate::engine::host::applicability;

/// The whole page.
pub fn support_markdown() -> String {
    let mut page = String::from(HEAD);
    operations(&mut page);
    convolution(&mut page);
    pointwise(&mut page);
    fusing(&mut page);
    page
}

const HEAD: &str = "# What is supported

Made from the code that decides, by asking it: do not edit. A graph is taken if all of its nodes are; whatever is not here
is declined, with a reason in the log at level info.

Engines: `HOST_RS_ENGINE` computes on the CPU, on machines without a usable GPU (`HIPDNN_RS_HOST_ENGINE=on` and `off`
override that).

";

const COMPUTE: DataType = DataType::Float;

/// Whether the host engine takes a graph; `None` if there is no such graph in hipDNN's format.
fn host_takes(graph: GraphBuilder) -> Option<bool> {
    let graph: Graph = graph.build().ok()?;
    Some(applicability::lower(&graph).is_ok())
}

fn cell(answer: Option<bool>) -> &'static str {
    match answer {
        Some(true) => "yes",
        Some(false) => "no",
        None => "–",
    }
}

fn row(page: &mut String, cells: impl IntoIterator<Item = impl AsRef<str>>) {
    for cell in cells {
        let _ = write!(page, "| {} ", cell.as_ref());
    }
    page.push_str("|\n");
}

fn table(page: &mut String, head: &[&str]) {
    row(page, head);
    row(page, head.iter().map(|_| "---"));
}

fn operations(page: &mut String) {
    page.push_str("## Operations\n\n");
    table(page, &["operation", "HOST_RS_ENGINE"]);
    for kind in Operation::KINDS {
        let takes = applicability::OPERATIONS.contains(kind);
        row(page, [kind.strip_suffix("Attributes").unwrap_or(kind), cell(Some(takes))]);
    }
    page.push_str(
        "\nNo engine takes ragged tensors, graphs with override shapes, or tensors whose promised alignment is not a \
         multiple of their element. Scalars may be fixed in the graph, have a default, or come from the host.\n\n",
    );
}

/// A convolution with one tap a dimension.
struct Probe {
    types: [DataType; 3],
    compute: DataType,
    rank: usize,
    mode: ConvMode,
    layout: Layout,
    convolution: fn(&mut Convolution),
    x: [i64; 2],
    w: [i64; 2],
}

#[derive(Clone, Copy)]
enum Layout {
    Packed,
    ChannelsLast,
    View,
    Overlapping,
}

const PLAIN: Probe = Probe {
    types: [DataType::Float; 3],
    compute: COMPUTE,
    rank: 4,
    mode: ConvMode::CrossCorrelation,
    layout: Layout::Packed,
    convolution: |_| {},
    x: [2, 4],
    w: [4, 4],
};

impl Probe {
    fn answer(&self) -> Option<bool> {
        let spatial = self.rank - 2;
        let mut convolution = Convolution { mode: self.mode, ..Convolution::new(spatial) };
        (self.convolution)(&mut convolution);
        let dims = |first: [i64; 2], extent: &dyn Fn(usize) -> i64| -> Vec<i64> {
            first.into_iter().chain((0..spatial).map(extent)).collect()
        };
        let y = dims([self.x[0], self.w[0]], &|axis| convolution.output_extent(axis, 9, 3).unwrap_or(1));
        let dims = [dims(self.x, &|_| 9), dims(self.w, &|_| 3), y];
        let mut graph = GraphBuilder::new("probe").compute(self.compute);
        for (uid, (data_type, dims)) in self.types.into_iter().zip(dims).enumerate() {
            let tensor = TensorDef::new(uid as i64, data_type, &dims);
            graph.tensor(match self.layout {
                Layout::Packed => tensor,
                Layout::ChannelsLast => tensor.channels_last(),
                Layout::View => {
                    let strides: Vec<i64> = tensor.strides.iter().map(|stride| stride * 2).collect();
                    tensor.strided(&strides)
                }
                // Outputs that overlap are no graphs at all.
                Layout::Overlapping if uid == 2 => tensor,
                Layout::Overlapping => {
                    let strides: Vec<i64> = tensor.strides.iter().map(|_| 1).collect();
                    tensor.strided(&strides)
                }
            });
        }
        graph.node(
            "",
            Operation::ConvolutionFwd(ConvolutionFwd {
                x: TensorUid(0),
                w: TensorUid(1),
                y: TensorUid(2),
                convolution,
            }),
        );
        host_takes(graph)
    }
}

fn convolution(page: &mut String) {
    page.push_str("## ConvolutionFwd\n\n### HOST_RS_ENGINE: types\n\nThe types of x, w and y may differ.\n\n");
    table(page, &["type", "x", "w", "y", "compute"]);
    for &data_type in DataType::ALL {
        let with = |role: usize| {
            let mut types = PLAIN.types;
            types[role] = data_type;
            Probe { types, ..PLAIN }.answer()
        };
        let compute = Probe { compute: data_type, ..PLAIN }.answer();
        let answers = [with(0), with(1), with(2), compute];
        if answers.contains(&Some(true)) {
            row(page, [data_type.json_name()].into_iter().chain(answers.map(cell)));
        }
    }
    page.push_str("\n### HOST_RS_ENGINE: layouts\n\n");
    table(page, &["layout", "1-D", "2-D", "3-D"]);
    for (name, layout) in [
        ("channels first (NCL, NCHW, NCDHW)", Layout::Packed),
        ("channels last (NLC, NHWC, NDHWC)", Layout::ChannelsLast),
        ("any other strides whose elements are apart", Layout::View),
        ("strides that overlap", Layout::Overlapping),
    ] {
        let of_rank = |rank| cell(Probe { rank, layout, ..PLAIN }.answer());
        row(page, [name, of_rank(3), of_rank(4), of_rank(5)]);
    }
    page.push_str("\n### HOST_RS_ENGINE: attributes\n\n");
    table(page, &["attribute", "taken"]);
    let flipped = Probe { mode: ConvMode::Convolution, ..PLAIN };
    let strided = Probe { convolution: |c| c.stride[0] = 2, ..PLAIN };
    let dilated = Probe { convolution: |c| c.dilation[1] = 2, ..PLAIN };
    let padded = Probe { convolution: |c| (c.pre_padding, c.post_padding) = (vec![1; 2], vec![1; 2]), ..PLAIN };
    let asymmetric = Probe { convolution: |c| c.post_padding[1] = 3, ..PLAIN };
    let groups = Probe { w: [4, 2], ..PLAIN };
    let depthwise = Probe { w: [8, 1], ..PLAIN };
    for (name, probe) in [
        ("cross-correlation", &PLAIN),
        ("convolution (flipped filter)", &flipped),
        ("strides", &strided),
        ("dilations", &dilated),
        ("padding", &padded),
        ("asymmetric padding", &asymmetric),
        ("groups", &groups),
        ("depthwise, with a multiplier", &depthwise),
    ] {
        row(page, [name, cell(probe.answer())]);
    }
    let [depth, height, width] = applicability::CONVOLUTION_EXTENTS;
    let (taps, elements) = (applicability::CONVOLUTION_TAPS, applicability::CONVOLUTION_ELEMENTS);
    let _ = writeln!(
        page,
        "\nWith padding, an image has at most {depth} × {height} × {width} places and {elements} elements; a filter has at \
         most {taps} taps.\n"
    );
}

fn pointwise_answer(mode: PointwiseMode, operand: DataType, result: DataType, compute: DataType) -> Option<bool> {
    let mut graph = GraphBuilder::new("probe").compute(compute);
    let uids = [0, 1, 2].map(|uid| graph.tensor(TensorDef::new(uid, operand, &[4])));
    let out = graph.tensor(TensorDef::new(3, result, &[4]));
    let operands = mode.operands();
    let mut node = Pointwise::unary(mode, uids[0], out);
    node.in_1 = (operands > 1).then_some(uids[1]);
    node.in_2 = (operands > 2).then_some(uids[2]);
    node.axis = (mode == PointwiseMode::GenIndex).then_some(0);
    graph.pointwise(node);
    host_takes(graph)
}

fn pointwise(page: &mut String) {
    page.push_str(
        "## Pointwise\n\nOperands are broadcast along dimensions of extent 1; scalars may have any rank. Strides are free, \
         up to 8 dimensions. HOST_RS_ENGINE computes in `f32`, whatever of the compute types below is asked for, \
         but in `f64` where an operand or the compute type has more digits, and in whole numbers where all operands and \
         the result are whole; results are rounded to nearest, ties to even, and integers saturated.\n\n\
         Backward modes take the forward pass's input as in_0 and the gradient as in_1; `binary_select` takes the value \
         if true, the value if false, and the predicate.\n\n### HOST_RS_ENGINE: modes\n\n",
    );
    let float = DataType::Float;
    for (title, operands) in [("one operand", 1), ("two operands", 2), ("three operands", 3)] {
        let modes = |wanted: bool| {
            let all = PointwiseMode::ALL.iter().filter(|mode| mode.operands() == operands);
            let all = all.filter(|mode| pointwise_answer(**mode, float, float, COMPUTE) == Some(wanted));
            all.map(|mode| mode.json_name()).collect::<Vec<_>>().join(", ")
        };
        let _ = writeln!(page, "* {title}: {}", modes(true));
        if !modes(false).is_empty() {
            let _ = writeln!(page, "* {title}, not taken: {}", modes(false));
        }
    }
    page.push_str("\n### HOST_RS_ENGINE: types\n\nThe types of operands and results may differ.\n\n");
    table(page, &["type", "operand", "result", "compute"]);
    for &data_type in DataType::ALL {
        let mode = PointwiseMode::Add;
        let answers = [
            pointwise_answer(mode, data_type, float, COMPUTE),
            pointwise_answer(mode, float, data_type, COMPUTE),
            pointwise_answer(mode, float, float, data_type),
        ];
        if answers.contains(&Some(true)) {
            row(page, [data_type.json_name()].into_iter().chain(answers.map(cell)));
        }
    }
    page.push('\n');
}

fn fusing(page: &mut String) {
    page.push_str(
        "## Fusing\n\nAny connected graph of the nodes above is taken. Where a pointwise node is the only reader of a \
         convolution's virtual result (or of what was fused with it so far) and its own result is as large and of type \
         float, half or bfloat16, HOST_RS_ENGINE computes it in the convolution's own pass: activations, abs and neg; add, \
         sub and mul with any operand that broadcasts; div, max and min with a scalar fixed in the graph; and \
         x · sigmoid(x) as two nodes. Everything else is a step of its own, with its operands in the workspace.\n",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_what_the_tables_say() {
        let page = support_markdown();
        for line in [
            "| ConvolutionFwd | yes |",
            "| MoeGroupedMatmul | no |",
            "| half | yes | yes | yes | no |",
            "| float | yes | yes | yes | yes |",
            "| strides that overlap | no | no | no |",
            "| channels last (NLC, NHWC, NDHWC) | yes | yes | yes |",
            "| convolution (flipped filter) | yes |",
            "| boolean | yes | yes | no |",
            "* three operands: binary_select",
        ] {
            assert!(page.lines().any(|l| l == line), "{line} is missing in\n{page}");
        }
        for mode in PointwiseMode::ALL.iter().filter(|mode| mode.operands() > 0) {
            assert!(page.contains(mode.json_name()), "{mode}");
        }
    }
}
