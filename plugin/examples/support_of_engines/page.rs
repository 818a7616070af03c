//! `SUPPORT.md`, made by asking the code that decides: every cell is a small graph that was put to the engine.

use std::fmt::Write;

use hipdnn_engine_cpu::{applicability, geometry};
use hipdnn_engine_kernel::lower;
use hipdnn_schemas::{
    ConvMode, Convolution, ConvolutionBwd, ConvolutionFwd, ConvolutionWrw, DataType, Graph, GraphBuilder, Operation,
    Pointwise, PointwiseMode, TensorDef, TensorUid,
};

/// The whole page.
pub(crate) fn support_markdown() -> String {
    let mut page = String::from(HEAD);
    operations(&mut page);
    convolutions(&mut page);
    pointwise(&mut page);
    crate::nodes::nodes(&mut page);
    page.push_str(FUSING);
    page
}

const HEAD: &str = "# What is supported

Made from the code that decides, by asking it: do not edit. A graph is taken if all of its nodes are; whatever is not here
is declined, with a reason in the log at level info.

* `HIPDNN_RS_CPU_ENGINE` computes on the CPU, on machines without a usable GPU (`HIPDNN_RS_CPU_ENGINE=on` and `off` override
  that).
* `HIPDNN_RS_GPU_ENGINE` computes on AMD GPUs: convolutions by MIOpen, everything else by kernels of its own. The tables say
  what it does with graphs; whether MIOpen has a solver for a convolution, in any of the types and layouts that it can be
  brought into, is asked on the machine.

";

/// Engine, as far as it decides without looking at the machine.
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    /// True for operations that it has, by the names of their attribute tables.
    pub(crate) has: fn(&str) -> bool,
    takes: fn(&Graph) -> bool,
}

pub(crate) const ENGINES: [Engine; 2] = [
    Engine {
        name: "HIPDNN_RS_CPU_ENGINE",
        has: applicability::has_operation,
        takes: |graph| applicability::lower(graph).is_ok(),
    },
    Engine {
        name: "HIPDNN_RS_GPU_ENGINE",
        has: |kind| lower::OPERATIONS.contains(&kind),
        takes: |graph| lower::lower(graph).is_ok(),
    },
];

pub(crate) const COMPUTE: DataType = DataType::Float;

impl Engine {
    /// True if the engine takes a graph; `None` if there is no such graph in hipDNN's format.
    pub(crate) fn answer(&self, graph: GraphBuilder) -> Option<bool> {
        graph.build().ok().map(|graph| (self.takes)(&graph))
    }
}

pub(crate) fn cell(answer: Option<bool>) -> &'static str {
    match answer {
        Some(true) => "yes",
        Some(false) => "no",
        None => "–",
    }
}

pub(crate) fn row(page: &mut String, cells: impl IntoIterator<Item = impl AsRef<str>>) {
    for cell in cells {
        let _ = write!(page, "| {} ", cell.as_ref());
    }
    page.push_str("|\n");
}

fn table(page: &mut String, head: &[&str]) {
    row(page, head);
    row(page, head.iter().map(|_| "---"));
}

/// The head of a table with a column for each engine.
pub(crate) fn table_of_engines(page: &mut String, first: &[&str]) {
    let head: Vec<&str> = first.iter().copied().chain(ENGINES.iter().map(|engine| engine.name)).collect();
    table(page, &head);
}

/// Types for which `taken` holds, in words.
pub(crate) fn types(taken: impl Fn(DataType) -> Option<bool>) -> String {
    let taken = DataType::ALL.iter().filter(|data_type| taken(**data_type) == Some(true));
    let names: Vec<&str> = taken.map(|data_type| data_type.json_name()).collect();
    if names.is_empty() { "no".to_string() } else { names.join(", ") }
}

fn operations(page: &mut String) {
    page.push_str("## Operations\n\n");
    table_of_engines(page, &["operation"]);
    for kind in Operation::KINDS {
        let takes = ENGINES.iter().map(|engine| cell(Some((engine.has)(kind))));
        row(page, [kind.strip_suffix("Attributes").unwrap_or(kind)].into_iter().chain(takes));
    }
    page.push_str(
        "\nNo engine takes ragged tensors, or tensors whose promised alignment is not a \
         multiple of their element. Scalars may be fixed in the graph, have a default, or come from the host.\n\n\
         Both engines execute with override shapes, where a graph allows them: extents of at most the declared ones, of any \
         of its tensors; those of intermediates follow. The first execution with a shape plans it, and the last 64 shapes of a \
         plan are kept.\n\n\
         Plans of either engine can be stored and made again in another process, for the same version of this plugin and the \
         same instruction set, or GPU with its libraries. For a plan of `HIPDNN_RS_GPU_ENGINE` MIOpen has to have the kernels of its \
         convolutions in its cache.\n\n",
    );
}

/// The three convolutions.
const KINDS: [&str; 3] = ["ConvolutionFwd", "ConvolutionBwd", "ConvolutionWrw"];

/// A convolution of nine places and three taps a dimension.
#[derive(Clone, Copy)]
struct Probe {
    kind: &'static str,
    /// Types of the tensors in the places that x, w and y have in the forward convolution.
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
    kind: KINDS[0],
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
    fn graph(&self) -> GraphBuilder {
        let spatial = self.rank - 2;
        let mut convolution = Convolution { mode: self.mode, ..Convolution::new(spatial) };
        (self.convolution)(&mut convolution);
        let dims = |first: [i64; 2], extent: &dyn Fn(usize) -> i64| -> Vec<i64> {
            first.into_iter().chain((0..spatial).map(extent)).collect()
        };
        let y = dims([self.x[0], self.w[0]], &|axis| convolution.output_extent(axis, 9, 3).unwrap_or(1));
        let dims = [dims(self.x, &|_| 9), dims(self.w, &|_| 3), y];
        let result = match self.kind {
            "ConvolutionBwd" => 0,
            "ConvolutionWrw" => 1,
            _ => 2,
        };
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
                // Results that overlap are no graphs at all.
                Layout::Overlapping if uid == result => tensor,
                Layout::Overlapping => {
                    let strides: Vec<i64> = tensor.strides.iter().map(|_| 1).collect();
                    tensor.strided(&strides)
                }
            });
        }
        let [x, w, y] = [0, 1, 2].map(TensorUid);
        let operation = match self.kind {
            "ConvolutionBwd" => Operation::ConvolutionBwd(ConvolutionBwd { dy: y, w, dx: x, convolution }),
            "ConvolutionWrw" => Operation::ConvolutionWrw(ConvolutionWrw { x, dy: y, dw: w, convolution }),
            _ => Operation::ConvolutionFwd(ConvolutionFwd { x, w, y, convolution }),
        };
        graph.node("", operation);
        graph
    }
}

fn convolutions(page: &mut String) {
    page.push_str("## Convolutions\n\n### Types by layout\n\n");
    table_of_engines(page, &["operation", "layout"]);
    let layouts = [
        ("NCL", 3, Layout::Packed),
        ("NLC", 3, Layout::ChannelsLast),
        ("NCHW", 4, Layout::Packed),
        ("NHWC", 4, Layout::ChannelsLast),
        ("NCDHW", 5, Layout::Packed),
        ("NDHWC", 5, Layout::ChannelsLast),
        ("four spatial dimensions", 6, Layout::Packed),
        ("any other strides whose elements are apart", 4, Layout::View),
        ("operands with strides that overlap", 4, Layout::Overlapping),
    ];
    for kind in KINDS {
        for (name, rank, layout) in layouts {
            let of = |engine: &Engine| {
                types(|t| engine.answer(Probe { kind, rank, layout, types: [t; 3], ..PLAIN }.graph()))
            };
            row(page, [kind.to_string(), name.to_string()].into_iter().chain(ENGINES.iter().map(of)));
        }
    }
    page.push_str("\n### Types by operand\n\nThe other two are float: types may differ.\n\n");
    table_of_engines(page, &["operation", "tensor"]);
    for kind in KINDS {
        let roles = match kind {
            "ConvolutionBwd" => ["dx", "w", "dy"],
            "ConvolutionWrw" => ["x", "dw", "dy"],
            _ => ["x", "w", "y"],
        };
        for (role, name) in roles.into_iter().enumerate() {
            let of = |engine: &Engine| {
                types(|data_type| {
                    let mut types = PLAIN.types;
                    types[role] = data_type;
                    engine.answer(Probe { kind, types, ..PLAIN }.graph())
                })
            };
            row(page, [kind.to_string(), name.to_string()].into_iter().chain(ENGINES.iter().map(of)));
        }
        let of = |engine: &Engine| types(|compute| engine.answer(Probe { kind, compute, ..PLAIN }.graph()));
        row(page, [kind.to_string(), "compute type".to_string()].into_iter().chain(ENGINES.iter().map(of)));
    }
    page.push_str("\n### Attributes\n\n");
    let columns: Vec<String> =
        KINDS.iter().flat_map(|kind| ENGINES.iter().map(move |e| format!("{kind}, {}", e.name))).collect();
    table(page, &["attribute"].into_iter().chain(columns.iter().map(String::as_str)).collect::<Vec<_>>());
    let flipped = Probe { mode: ConvMode::Convolution, ..PLAIN };
    let strided = Probe { convolution: |c| c.stride[0] = 2, ..PLAIN };
    let dilated = Probe { convolution: |c| c.dilation[1] = 2, ..PLAIN };
    let padded = Probe { convolution: |c| (c.pre_padding, c.post_padding) = (vec![1; 2], vec![1; 2]), ..PLAIN };
    let asymmetric = Probe { convolution: |c| c.post_padding[1] = 3, ..PLAIN };
    let groups = Probe { w: [4, 2], ..PLAIN };
    let depthwise = Probe { w: [8, 1], ..PLAIN };
    for (name, probe) in [
        ("cross-correlation", PLAIN),
        ("convolution (flipped filter)", flipped),
        ("strides", strided),
        ("dilations", dilated),
        ("padding", padded),
        ("asymmetric padding", asymmetric),
        ("groups", groups),
        ("depthwise, with a multiplier", depthwise),
    ] {
        let probes = KINDS.map(|kind| Probe { kind, ..probe });
        let answers = probes.iter().flat_map(|probe| ENGINES.iter().map(|e| cell(e.answer(probe.graph()))));
        row(page, [name].into_iter().chain(answers));
    }
    let [depth, height, width] = geometry::CONVOLUTION_EXTENTS;
    let (taps, elements) = (geometry::CONVOLUTION_TAPS, geometry::CONVOLUTION_ELEMENTS);
    let _ = writeln!(
        page,
        "\nWith padding, an image has at most {depth} × {height} × {width} places and {elements} elements on \
         HIPDNN_RS_CPU_ENGINE; a filter has at most {taps} taps. On HIPDNN_RS_GPU_ENGINE no extent is above {}, and no tensor has \
         more than {} elements.\n",
        lower::CONVOLUTION_NUMBERS,
        lower::CONVOLUTION_ELEMENTS,
    );
}

fn pointwise_graph(mode: PointwiseMode, operand: DataType, result: DataType, compute: DataType) -> GraphBuilder {
    let mut graph = GraphBuilder::new("probe").compute(compute);
    let uids = [0, 1, 2].map(|uid| graph.tensor(TensorDef::new(uid, operand, &[4])));
    let out = graph.tensor(TensorDef::new(3, result, &[4]));
    let operands = mode.operands();
    let mut node = Pointwise::unary(mode, uids[0], out);
    node.in_1 = (operands > 1).then_some(uids[1]);
    node.in_2 = (operands > 2).then_some(uids[2]);
    node.axis = (mode == PointwiseMode::GenIndex).then_some(0);
    graph.pointwise(node);
    graph
}

fn pointwise(page: &mut String) {
    page.push_str(
        "## Pointwise\n\nOperands are broadcast along dimensions of extent 1; scalars may have any rank. Strides are free, \
         up to 8 dimensions. Values are computed in `f32`, whatever of the compute types below is asked for, but in `f64` \
         where an operand or the compute type has more digits; HIPDNN_RS_CPU_ENGINE computes in whole numbers where all operands \
         and the result are whole. Results are rounded to nearest, ties to even, and integers saturated.\n\n\
         Backward modes take the forward pass's input as in_0 and the gradient as in_1; `binary_select` takes the value \
         if true, the value if false, and the predicate.\n\n### Modes\n\n",
    );
    let float = DataType::Float;
    table_of_engines(page, &["mode", "operands"]);
    for mode in PointwiseMode::ALL.iter().copied().filter(|mode| *mode != PointwiseMode::Unset) {
        let answers = ENGINES.iter().map(|e| cell(e.answer(pointwise_graph(mode, float, float, COMPUTE))).to_string());
        row(page, [mode.json_name().to_string(), mode.operands().to_string()].into_iter().chain(answers));
    }
    page.push_str("\n### Types\n\nThe types of operands and results may differ.\n\n");
    table_of_engines(page, &["type of"]);
    type Graphs = fn(DataType) -> GraphBuilder;
    let rows: [(&str, Graphs); 5] = [
        ("operands", |t| pointwise_graph(PointwiseMode::Add, t, DataType::Float, COMPUTE)),
        ("the result", |t| pointwise_graph(PointwiseMode::Add, DataType::Float, t, COMPUTE)),
        ("computation, of float operands", |t| {
            pointwise_graph(PointwiseMode::Add, DataType::Float, DataType::Float, t)
        }),
        ("computation, of operands and a result of the same type", |t| pointwise_graph(PointwiseMode::Add, t, t, t)),
        ("tensors of a copy (identity) computed in int32", |t| {
            pointwise_graph(PointwiseMode::Identity, t, t, DataType::Int32)
        }),
    ];
    for (name, graph) in rows {
        let answers = ENGINES.iter().map(|engine| types(|t| engine.answer(graph(t))));
        row(page, [name.to_string()].into_iter().chain(answers));
    }
    page.push('\n');
}

const FUSING: &str = "## Fusing

Any connected graph of the nodes above is taken.

HIPDNN_RS_CPU_ENGINE: where a pointwise node is the only reader of a convolution's virtual result (or of what was fused with it
so far) and its own result is as large and of type float, half or bfloat16, it is computed in the convolution's own pass:
activations, abs and neg; add, sub and mul with any operand that broadcasts; div, max and min with a scalar fixed in the
graph. Nodes that spell out a swish or a GELU are that one function, there and elsewhere. Pointwise nodes behind each other, and
behind a matmul, are one pass; reductions and pointwise nodes that go through the same groups are one kernel. Everything else is
a step of its own, with its operands in the workspace.

HIPDNN_RS_GPU_ENGINE: pointwise nodes, and batch normalizations by given statistics, whose results between them are virtual, as
large as the last one's, and of type float, half or bfloat16 become one kernel, whatever their modes. A convolution before
such a kernel writes its result to where the kernel's goes, if that has the same type and a layout that MIOpen takes, and is
changed there. A normalization, a reduction or pooling is one kernel, or several where few groups have many elements or gradients
sum in two directions; pointwise nodes and reductions around it become part of it where they go through the same groups, so
that a softmax that a graph spells out is one kernel.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_what_the_tables_say() {
        let page = support_markdown();
        let all = "float, half, bfloat16";
        for line in [
            "| ConvolutionFwd | yes | yes |".to_string(),
            "| Batchnorm | yes | yes |".to_string(),
            "| MoeGroupedMatmul | no | no |".to_string(),
            format!("| ConvolutionFwd | NHWC | {all} | {all} |"),
            format!("| ConvolutionBwd | NCL | {all} | {all} |"),
            format!("| ConvolutionWrw | NDHWC | {all} | {all} |"),
            "| ConvolutionFwd | four spatial dimensions | no | no |".to_string(),
            format!("| ConvolutionFwd | operands with strides that overlap | no | {all} |"),
            format!("| ConvolutionBwd | dx | {all} | {all} |"),
            "| ConvolutionFwd | compute type | float | float |".to_string(),
            "| convolution (flipped filter) | yes | yes | yes | yes | yes | yes |".to_string(),
            "| binary_select | 3 | yes | yes |".to_string(),
        ] {
            assert!(page.lines().any(|l| l == line), "{line} is missing in\n{page}");
        }
        for mode in PointwiseMode::ALL.iter().filter(|mode| mode.operands() > 0) {
            assert!(page.contains(mode.json_name()), "{mode}");
        }
    }
}
