//! The cases that engines are tested with, against images that were counted by hand and the checks of graphs.

use hipdnn_schemas::{GraphBuilder, Operation};

use super::*;

/// Image of 3 rows and 5 columns, of which windows of 2 by 3 begin a row before it and a column before it:
///
/// ```text
///            ┆ 0  1  2  3  4
///            ┆ 5  6  7  8  9
///            ┆10 11 12 13 14
/// ```
const SMALL: Case = case("small", &[2, 7, 3, 5], &[2, 3], &[2, 2], [&[1, 1], &[0, 2]], false);

/// Rows -1 and 0, then 1 and 2; columns -1 to 1, 1 to 3, then 3 to 5.
#[test]
fn windows_are_those_that_were_counted() {
    assert_eq!(SMALL.y(), [2, 7, 2, 3]);
    assert_eq!(SMALL.places(), 15);
    let windows = SMALL.windows();
    assert_eq!(windows, [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]);
    let out: Option<usize> = None;
    for (window, want) in windows.iter().zip([
        [out, out, out, out, Some(0), Some(1)],
        [out, out, out, Some(1), Some(2), Some(3)],
        [out, out, out, Some(3), Some(4), out],
        [out, Some(5), Some(6), out, Some(10), Some(11)],
        [Some(6), Some(7), Some(8), Some(11), Some(12), Some(13)],
        [Some(8), Some(9), out, Some(13), Some(14), out],
    ]) {
        assert_eq!(SMALL.taps(window), want, "window {window:?}");
    }
}

/// Three spatial dimensions are numbered as memory is: the last one fastest.
#[test]
fn places_are_numbered_in_the_order_of_memory() {
    let case = case("", &[1, 1, 2, 3, 4], &[1, 1, 1], &[1, 1, 1], [&[0; 3], &[0; 3]], false);
    let places: Vec<usize> = case.windows().iter().flat_map(|window| case.taps(window)).flatten().collect();
    assert!(places.iter().copied().eq(0..24), "{places:?}");
}

/// A last window that would hang over the end is left out, or counts where a client rounds up.
#[test]
fn a_window_over_the_end_counts_where_it_may() {
    type Row = (&'static [i64], &'static [i64], i64, i64);
    let rows: [Row; 6] = [
        (&[1, 1, 7], &[2], 3, 3),
        (&[1, 1, 8], &[2], 3, 4),
        (&[1, 1, 9], &[3], 3, 3),
        (&[1, 1, 10], &[3], 3, 4),
        (&[1, 1, 11], &[3], 3, 4),
        (&[1, 1, 12], &[3], 4, 4),
    ];
    for (x, stride, down, up) in rows {
        for (over, want) in [(false, down), (true, up)] {
            assert_eq!(case("", x, &[3], stride, [&[0], &[0]], over).y(), [1, 1, want], "{x:?} by {stride:?}");
        }
    }
}

/// Nodes and tensors of a case are a graph, in both directions, of any mode and in either layout.
#[test]
fn cases_are_graphs() {
    for mode in MODES {
        for (index, last) in [(false, false), (true, false), (true, true)] {
            let types = [DataType::Half, DataType::Float, DataType::Int64];
            let tensors = SMALL.tensors(types, last);
            for (tensor, (dims, data_type)) in tensors.iter().zip([SMALL.x, &SMALL.y(), &SMALL.y()].iter().zip(types)) {
                assert_eq!((&tensor.dims[..], tensor.data_type), (*dims, data_type));
                let fastest = if last { 1 } else { 3 };
                assert_eq!(tensor.strides[fastest], 1, "channels last: {last}");
            }
            let (forward, backward) = (SMALL.forward(mode, index), SMALL.backward(mode, index));
            assert_eq!(
                (forward.generate_index, forward.index.is_some(), backward.index.is_some()),
                (Some(index), index, index)
            );
            assert_eq!((forward.resample_mode, forward.padding_mode), mode);
            assert_eq!((backward.resample_mode, backward.padding_mode), mode);
            for operation in [Operation::ResampleFwd(forward), Operation::ResampleBwd(backward)] {
                let mut graph = GraphBuilder::new("").compute(DataType::Float);
                graph.def_mut().tensors.clone_from(&tensors);
                graph.node("", operation);
                graph.build().unwrap_or_else(|error| panic!("{mode:?}: {error}"));
            }
        }
    }
}
