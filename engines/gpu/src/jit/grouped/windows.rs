//! Windows, and what leaves the tensor.

use hipdnn_engine_kernel::emit::grouped::Bound;
use hipdnn_engine_kernel::emit::grouped::testing::{Window, pooling};

use super::*;

#[test]
fn windows_are_read_within_bounds() {
    let Some(bench) = bench("windows_are_read_within_bounds") else { return };
    let window = |extent, window, stride, pad| Window { extent, window, stride, pad };
    let cases = [
        ("3 by 3, padded", window(9, 3, 2, 1), window(8, 3, 1, 1)),
        ("2 by 2, no padding", window(8, 2, 2, 0), window(10, 2, 2, 0)),
        ("1 by 4 with much padding", window(5, 1, 1, 0), window(6, 4, 3, 3)),
        ("all of it", window(7, 7, 1, 0), window(7, 7, 1, 0)),
        ("larger than the image", window(3, 5, 1, 1), window(20, 6, 5, 2)),
    ];
    for (n, (what, h, w)) in cases.iter().enumerate() {
        for channels_last in [false, true] {
            // Beside the first: kept as f64 for the sake of the second type, and as whole numbers.
            for element in if n == 0 { &[Element::F32, Element::I32, Element::U8][..] } else { &[Element::F32] } {
                let work = pooling(h, w, channels_last, *element);
                let planes = if channels_last { 8 } else { 6 };
                let (image, output) = (planes * h.extent * w.extent, planes * h.outputs() * w.outputs());
                let what = format!("{what}, {element:?}, channels last: {channels_last}");
                let choices = &several(n)[..if n == 0 { 3 } else { 2 }];
                check(&bench, &what, &work, choices, &[small(image, 2)], &[output; 3], Near { units: 0.5, scale: 0.0 });
            }
        }
    }
}

#[test]
fn gradients_are_gathered_through_divided_bounds() {
    let Some(bench) = bench("gradients_are_gathered_through_divided_bounds") else { return };
    for (n, (stride, pad, window, extent)) in
        [(2, 1, 3, 9), (3, 0, 2, 11), (1, 2, 5, 6), (5, 4, 9, 23)].into_iter().enumerate()
    {
        let outputs = (extent + 2 * pad - window) / stride + 1;
        // Place i of the image is element k of the window of output (i + pad - k) / stride.
        let bound = |stride_of| Bound {
            offset: pad as i64,
            steps: vec![0, 1, -1],
            divisor: stride as u64,
            extent: outputs as u64,
            stride: stride_of,
        };
        let access =
            |offset, strides: [i64; 3], bound| Access { offset, strides: strides.to_vec(), bounds: vec![bound] };
        let gradient = access(3, [outputs as i64, 0, 0], bound(1));
        let work = Grouped {
            groups: vec![4, extent],
            members: vec![window],
            reads: vec![Element::F32],
            writes: vec![Element::F32; 2],
            passes: vec![
                Pass::Reduce {
                    inputs: vec![
                        Input::Tensor { tensor: 0, access: gradient.clone(), pad_value: 0.5 },
                        Input::InBounds(gradient),
                    ],
                    program: vec![],
                    folds: [0, 1].map(|slot| Fold { mode: ReduceOp::Sum, slot }).to_vec(),
                },
                Pass::PerGroup {
                    inputs: vec![],
                    program: vec![],
                    keep: vec![],
                    stores: [0, 1].map(|k| store(k, k, &[extent as i64, 1, 0])).to_vec(),
                },
            ],
        };
        let what = format!("stride {stride}, padding {pad}, window {window}");
        check(&bench, &what, &work, &several(n), &[small(4 * outputs + 3, 1)], &[4 * extent; 2], EXACT);
    }
}
