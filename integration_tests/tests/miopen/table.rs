//! Every convolution that is run: plain ones, ones over strided memory, and ones with what follows them; then other graphs.

use hipdnn_rs_integration_tests::reference::Direction;
use hipdnn_schemas::DataType;

use crate::case::{Case, Layout};
use crate::convolution::{ConvolutionCase, geometries, geometry_named};
use crate::mixed;
use crate::tail::tails;

pub(crate) const TYPES: [DataType; 3] = [DataType::Float, DataType::Half, DataType::BFloat16];

/// Geometries for what is about memory or about what follows.
const COMMON: [&str; 4] = ["2d 3x3 pad 1", "2d groups 2", "2d 1x1", "1d 3 pad 1"];

/// All of them.
pub(crate) fn cases() -> Vec<Case> {
    let mut all = plain();
    all.extend(strided());
    all.extend(mixed());
    all.extend(followed());
    all.into_iter().map(Case::from).chain(mixed::cases()).collect()
}

fn plain() -> Vec<ConvolutionCase> {
    let mut all = Vec::new();
    for geometry in geometries() {
        for direction in Direction::ALL {
            for data_type in TYPES {
                for layout in [Layout::First, Layout::Last] {
                    all.push(ConvolutionCase::new(&geometry, direction, data_type, layout));
                }
            }
        }
    }
    all
}

fn strided() -> Vec<ConvolutionCase> {
    use Layout::{First, Gaps, ImagesLast, Last, Slice, SliceLast};
    let layouts: [[Layout; 3]; 9] = [
        [Gaps; 3],
        [Slice, First, Slice],
        [Slice, First, First],
        [First, First, Slice],
        [SliceLast, Last, SliceLast],
        [SliceLast, Last, Last],
        [ImagesLast, First, ImagesLast],
        [First, Last, Last],
        [Last, First, First],
    ];
    let mut all = Vec::new();
    for (at, layouts) in layouts.into_iter().enumerate() {
        for (turn, direction) in Direction::ALL.into_iter().enumerate() {
            // Each layout meets each type in some direction, and several geometries.
            for (more, geometry) in ["2d 3x3 pad 1", "2d groups 2", "3d 3x3x3 pad 1"].into_iter().enumerate() {
                let data_type = TYPES[(at + turn + more) % 3];
                all.push(ConvolutionCase {
                    layouts,
                    ..ConvolutionCase::new(&geometry_named(geometry), direction, data_type, First)
                });
            }
        }
    }
    for direction in Direction::ALL {
        for data_type in TYPES {
            for layout in [First, Last] {
                let geometry = geometry_named("2d 3x3 pad 1");
                all.push(ConvolutionCase { shift: 1, ..ConvolutionCase::new(&geometry, direction, data_type, layout) });
            }
        }
    }
    all
}

/// Operands and result of different types.
fn mixed() -> Vec<ConvolutionCase> {
    use DataType::{BFloat16, Float, Half};
    let types = [
        [Half, Half, Float],
        [BFloat16, BFloat16, Float],
        [Float, Float, Half],
        [Half, Float, Half],
        [Float, BFloat16, Float],
        [Half, BFloat16, Float],
    ];
    let mut all = Vec::new();
    for types in types {
        for direction in Direction::ALL {
            all.push(ConvolutionCase {
                types,
                ..ConvolutionCase::new(&geometry_named("2d 3x3 pad 1"), direction, Float, Layout::First)
            });
        }
    }
    all
}

fn followed() -> Vec<ConvolutionCase> {
    let mut all = Vec::new();
    for (at, (tail_name, tail)) in tails().into_iter().enumerate() {
        for (turn, data_type) in TYPES.into_iter().enumerate() {
            for (more, layout) in [Layout::First, Layout::Last].into_iter().enumerate() {
                let geometry = geometry_named(COMMON[(at + turn + more) % COMMON.len()]);
                let case = ConvolutionCase::new(&geometry, Direction::Forward, data_type, layout);
                all.push(ConvolutionCase { tail: tail.clone(), tail_name, ..case });
            }
        }
    }
    // Between the nodes the type of the operands, and other geometries, padding steps among them.
    let named = |name: &str| tails().into_iter().find(|(found, _)| *found == name).expect("a tail of that name");
    let more = [
        ("2d asymmetric", "bias relu"),
        ("2d flipped asymmetric", "bias residual relu"),
        ("2d depthwise", "bias relu6"),
        ("2d stem", "bias relu"),
        ("3d 3x3x3 pad 1", "bias swish"),
        ("3d asymmetric", "bias residual relu"),
        ("1d asymmetric", "bias gelu"),
        ("2d wide", "bias residual of the other layout, relu"),
        ("2d wide asymmetric", "bias tanh"),
    ];
    for (geometry, tail) in more {
        let (tail_name, tail) = named(tail);
        for data_type in TYPES {
            for layout in [Layout::First, Layout::Last] {
                let case = ConvolutionCase::new(&geometry_named(geometry), Direction::Forward, data_type, layout);
                all.push(ConvolutionCase { tail: tail.clone(), tail_name, stored: data_type, ..case });
            }
        }
    }
    for direction in [Direction::BackwardData, Direction::BackwardWeights] {
        for (tail_name, tail) in [named("scale"), named("residual")] {
            for data_type in TYPES {
                let case = ConvolutionCase::new(&geometry_named("2d 3x3 pad 1"), direction, data_type, Layout::First);
                all.push(ConvolutionCase { tail: tail.clone(), tail_name, ..case });
            }
        }
    }
    for layout in [Layout::Gaps, Layout::Slice, Layout::SliceLast] {
        let (tail_name, tail) = named("bias residual relu");
        for data_type in TYPES {
            let case = ConvolutionCase::new(&geometry_named("2d 3x3 pad 1"), Direction::Forward, data_type, layout);
            all.push(ConvolutionCase { tail: tail.clone(), tail_name, ..case });
        }
    }
    all
}

/// A plain convolution.
pub(crate) fn conv(geometry: &str, direction: Direction, data_type: DataType, layout: Layout) -> Case {
    plain_case(geometry, direction, data_type, layout).into()
}

fn plain_case(geometry: &str, direction: Direction, data_type: DataType, layout: Layout) -> ConvolutionCase {
    ConvolutionCase::new(&geometry_named(geometry), direction, data_type, layout)
}

/// A forward convolution with the tail of that name.
pub(crate) fn fused(geometry: &str, data_type: DataType, layout: Layout, tail: &str) -> Case {
    let found = tails().into_iter().find(|(name, _)| *name == tail);
    let (tail_name, tail) = found.unwrap_or_else(|| panic!("no tail is called {tail}"));
    ConvolutionCase { tail, tail_name, ..plain_case(geometry, Direction::Forward, data_type, layout) }.into()
}

/// A few that between them need every kind of step.
pub(crate) fn sample() -> Vec<Case> {
    use DataType::{BFloat16, Float, Half};
    use Direction::{BackwardData, BackwardWeights, Forward};
    use Layout::{First, Gaps, Last};
    let convolutions = vec![
        conv("2d 3x3 pad 1", Forward, Float, First),
        conv("2d groups 2", Forward, Half, Last),
        conv("1d asymmetric", Forward, BFloat16, First),
        conv("2d 3x3 stride 2", BackwardData, Float, First),
        conv("3d 3x3x3 pad 1", BackwardData, Half, First),
        conv("2d asymmetric", BackwardData, Float, Last),
        conv("2d 3x3", BackwardWeights, Float, Last),
        conv("2d depthwise", BackwardWeights, BFloat16, First),
        conv("2d asymmetric", BackwardWeights, Half, First),
        conv("2d asymmetric", Forward, Float, Last),
        conv("2d flipped", Forward, Float, First),
        conv("2d flipped", BackwardWeights, Float, First),
        conv("2d 3x3 pad 1", Forward, Float, Gaps),
        fused("2d 3x3 pad 1", Float, First, "bias relu"),
        fused("2d asymmetric", Half, Last, "bias residual relu"),
        fused("3d 3x3x3 pad 1", BFloat16, First, "bias swish"),
    ];
    convolutions.into_iter().chain(mixed::sample()).collect()
}
