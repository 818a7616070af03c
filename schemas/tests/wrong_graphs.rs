//! Errors of wrong graphs, to the letter.

mod samples;

use hipdnn_schemas::*;
use smallvec::smallvec;

type Change = fn(&mut GraphDef);
type OperationChange = fn(&mut Operation);

fn conv(def: &mut GraphDef) -> &mut ConvolutionFwd {
    match &mut def.nodes[0].operation {
        Operation::ConvolutionFwd(conv) => conv,
        other => unreachable!("{}", other.kind()),
    }
}

fn geometry(def: &mut GraphDef) -> &mut Convolution {
    &mut conv(def).convolution
}

fn pointwise(def: &mut GraphDef, node: usize) -> &mut Pointwise {
    match &mut def.nodes[node].operation {
        Operation::Pointwise(pointwise) => pointwise,
        other => unreachable!("{}", other.kind()),
    }
}

fn check(name: &str, def: GraphDef, message: &str) {
    let came = match Graph::new(def.clone()) {
        Ok(_) => "a graph".to_string(),
        Err(error) => error.to_string(),
    };
    assert_eq!(came, message, "{name}");
    let came = Graph::from_bytes(&def.to_bytes()).err().map(|error| error.to_string());
    assert_eq!(came.as_deref(), Some(message), "{name}, from bytes");
}

/// Changes to a convolution with bias and ReLU: x 1, w 2, c 3 (virtual), b 4, s 5 (virtual), y 6.
#[test]
fn convolution_bias_relu() {
    let cases: &[(&str, Change, &str)] = &[
        ("uid twice", |d| d.tensors[1].uid = TensorUid(1), "tensor 1: its uid is taken by another tensor"),
        ("no dims", |d| d.tensors[0].dims.clear(), "tensor 1: expected 1 to 8 dimensions, got 0"),
        ("rank 9", |d| d.tensors[0].dims = smallvec![1; 9], "tensor 1: expected 1 to 8 dimensions, got 9"),
        (
            "stride missing",
            |d| d.tensors[0].strides.truncate(3),
            "tensor 1: expected 4 strides, one for each dimension, got 3",
        ),
        ("extent 0", |d| d.tensors[0].dims[2] = 0, "tensor 1: expected an extent of at least 1 in dimension 2, got 0"),
        (
            "stride negative",
            |d| d.tensors[0].strides[3] = -32,
            "tensor 1: expected a stride of at least 0 in dimension 3, got -32",
        ),
        (
            "too many elements",
            |d| d.tensors[0].dims = smallvec![i64::MAX; 4],
            "tensor 1: expected at most 70368744177664 elements of type half, got 18446744073709551615",
        ),
        (
            "too wide",
            |d| d.tensors[0].strides[0] = i64::MAX,
            "tensor 1: expected at most 70368744177664 elements of type half, got 9223372036854782079",
        ),
        (
            "too many elements in one place",
            |d| {
                d.tensors[0].dims = smallvec![1 << 46, 2, 1, 1];
                d.tensors[0].strides = smallvec![0; 4];
            },
            "tensor 1: expected at most 70368744177664 elements of type half, got 140737488355328",
        ),
        (
            "no type anywhere",
            |d| {
                d.tensors[0].data_type = DataType::Unset;
                d.io_data_type = DataType::Unset;
            },
            "tensor 1: neither the tensor nor the graph has a data type for it",
        ),
        (
            "no compute type anywhere",
            |d| {
                d.nodes[1].compute_data_type = DataType::Unset;
                d.compute_data_type = DataType::Unset;
            },
            "node 1 (PointwiseAttributes): neither the node nor the graph has a compute type",
        ),
        ("alignment", |d| d.tensors[0].alignment = 0, "tensor 1: expected an alignment of at least 1 byte, got 0"),
        (
            "own offsets",
            |d| d.tensors[0].ragged = Some(Ragged { offset: TensorUid(1), multiplier: 1 }),
            "tensor 1: it cannot be its own row offsets",
        ),
        (
            "offsets missing",
            |d| d.tensors[0].ragged = Some(Ragged { offset: TensorUid(9), multiplier: 1 }),
            "tensor 1: its row offsets are tensor 9, which the graph does not have",
        ),
        (
            "offset multiplier",
            |d| d.tensors[0].ragged = Some(Ragged { offset: TensorUid(2), multiplier: 0 }),
            "tensor 1: expected a multiplier of row offsets of at least 1, got 0",
        ),
        (
            "value of another type",
            |d| d.tensors[3].value = Some(TensorValue::Float32(1.0)),
            "tensor 4: expected a value of type half, got Float32(1.0)",
        ),
        (
            "value of many",
            |d| d.tensors[3].value = Some(TensorValue::Float16(1.0)),
            "tensor 4: expected 1 element for a scalar passed by value, got 64",
        ),
        (
            "runtime scalar of many",
            |d| d.tensors[3].is_runtime_pass_by_value = true,
            "tensor 4: expected 1 element for a scalar passed by value, got 64",
        ),
        ("no nodes", |d| d.nodes.clear(), "the graph has no nodes"),
        (
            "reads nothing known",
            |d| conv(d).w = TensorUid(77),
            "node 0 (ConvolutionFwdAttributes): it reads tensor 77, which the graph does not have",
        ),
        (
            "writes nothing known",
            |d| conv(d).y = TensorUid(77),
            "node 0 (ConvolutionFwdAttributes): it writes tensor 77, which the graph does not have",
        ),
        (
            "two producers",
            |d| pointwise(d, 1).out_0 = TensorUid(3),
            "node 1 (PointwiseAttributes): it writes tensor 3, which node 0 writes too",
        ),
        (
            "own output",
            |d| pointwise(d, 1).in_0 = TensorUid(5),
            "node 1 (PointwiseAttributes): it reads tensor 5, which only node 1 writes",
        ),
        (
            "consumer first",
            |d| d.nodes.swap(1, 2),
            "node 1 (PointwiseAttributes): it reads tensor 5, which only node 2 writes",
        ),
        (
            "virtual input",
            |d| d.tensors[0].is_virtual = true,
            "node 0 (ConvolutionFwdAttributes): it reads tensor 1, which is virtual, but which no node writes",
        ),
        (
            "output overlaps: rows",
            |d| d.tensors[5].strides = smallvec![12544, 196, 13, 1],
            "tensor 6: stride 13 of dimension 2 overlaps dimension 3",
        ),
        (
            "output overlaps: equal strides",
            |d| d.tensors[5].strides = smallvec![12544, 196, 1, 1],
            "tensor 6: stride 1 of dimension 2 overlaps dimension 3",
        ),
        (
            "output overlaps: channels",
            |d| d.tensors[5].strides = smallvec![12544, 195, 14, 1],
            "tensor 6: stride 195 of dimension 1 overlaps dimension 2",
        ),
        (
            "output repeats",
            |d| d.tensors[5].strides = smallvec![12544, 0, 896, 64],
            "tensor 6: stride 0 of dimension 1 overlaps itself",
        ),
        (
            "written scalar",
            |d| {
                d.tensors[5] = TensorDef::new(6, DataType::Half, &[1]).with_value(TensorValue::Float16(0.0));
            },
            "tensor 6: it is a scalar passed by value, but a node writes it",
        ),
        (
            "mode unset",
            |d| geometry(d).mode = ConvMode::Unset,
            "node 0 (ConvolutionFwdAttributes): conv_mode: expected CONVOLUTION or CROSS_CORRELATION, got UNSET",
        ),
        (
            "rank 2",
            |d| {
                d.tensors[0] = TensorDef::new(1, DataType::Half, &[2, 32]);
            },
            "node 0 (ConvolutionFwdAttributes): x (tensor 1): expected at least 3 dimensions, got 2",
        ),
        (
            "ranks differ",
            |d| {
                d.tensors[1] = TensorDef::new(2, DataType::Half, &[64, 32, 3]);
            },
            "node 0 (ConvolutionFwdAttributes): w (tensor 2): expected 4 dimensions as x has, got 3",
        ),
        (
            "padding missing",
            |d| geometry(d).pre_padding.clear(),
            "node 0 (ConvolutionFwdAttributes): pre_padding: expected 2 entries, one for each spatial dimension, got 0",
        ),
        (
            "padding negative",
            |d| geometry(d).post_padding[1] = -1,
            "node 0 (ConvolutionFwdAttributes): post_padding: expected entries of 0 to 2147483647, got -1",
        ),
        (
            "stride 0",
            |d| geometry(d).stride[0] = 0,
            "node 0 (ConvolutionFwdAttributes): stride: expected entries of 1 to 2147483647, got 0",
        ),
        (
            "dilation huge",
            |d| geometry(d).dilation[0] = i64::MAX,
            "node 0 (ConvolutionFwdAttributes): dilation: expected entries of 1 to 2147483647, got 9223372036854775807",
        ),
        (
            "groups do not divide",
            |d| d.tensors[1] = TensorDef::new(2, DataType::Half, &[64, 5, 3, 3]),
            "node 0 (ConvolutionFwdAttributes): w (tensor 2): expected a dimension 1 that divides the 32 channels of x, \
             got 5",
        ),
        (
            "filters do not divide",
            |d| d.tensors[1] = TensorDef::new(2, DataType::Half, &[60, 4, 3, 3]),
            "node 0 (ConvolutionFwdAttributes): w (tensor 2): expected a dimension 0 that is a multiple of the 8 groups, \
             got 60",
        ),
        (
            "filter too large",
            |d| geometry(d).dilation[1] = 8,
            "node 0 (ConvolutionFwdAttributes): w (tensor 2): expected a filter that fits extent 14 with padding 1 and 1 \
             in dimension 3, got extent 3 with dilation 8",
        ),
        (
            "output extents",
            |d| geometry(d).stride[1] = 2,
            "node 0 (ConvolutionFwdAttributes): y (tensor 3): expected dimensions [2, 64, 14, 7], got [2, 64, 14, 14]",
        ),
        (
            "pointwise mode unset",
            |d| pointwise(d, 1).mode = PointwiseMode::Unset,
            "node 1 (PointwiseAttributes): operation: expected a pointwise mode, got unset",
        ),
        (
            "operand missing",
            |d| pointwise(d, 1).in_1 = None,
            "node 1 (PointwiseAttributes): in_1: expected 2 operands for add, got none here",
        ),
        (
            "operand too many",
            |d| pointwise(d, 2).in_1 = Some(TensorUid(4)),
            "node 2 (PointwiseAttributes): in_1 (tensor 4): expected 1 operands for relu_fwd, got one more",
        ),
        (
            "no broadcast",
            |d| d.tensors[3].dims[2] = 7,
            "node 1 (PointwiseAttributes): in_1 (tensor 4): expected extents of 1 or those of out_0, [2, 64, 14, 14], \
             got [1, 64, 7, 1]",
        ),
        (
            "axis missing",
            |d| pointwise(d, 2).mode = PointwiseMode::GenIndex,
            "node 2 (PointwiseAttributes): axis_tensor_uid: expected the index of a dimension for gen_index, got none",
        ),
        (
            "axis outside",
            |d| pointwise(d, 2).axis = Some(4),
            "node 2 (PointwiseAttributes): axis_tensor_uid: expected a dimension of out_0, 0 to 3, got 4",
        ),
    ];
    for (name, change, message) in cases {
        let mut def = samples::conv_bias_relu();
        change(&mut def);
        check(name, def, message);
    }
}

/// A tensor of the valid graph of a kind gets other dimensions.
#[test]
fn shapes_of_other_kinds() {
    let cases: &[(&str, usize, &[i64], &str)] = &[
        (
            "BatchnormInferenceAttributes",
            1,
            &[5],
            "mean (tensor 1): expected 4 elements, one for each channel of x, got 5",
        ),
        (
            "BatchnormInferenceAttributes",
            5,
            &[2, 4, 5, 7],
            "y (tensor 5): expected dimensions [2, 4, 5, 6], got [2, 4, 5, 7]",
        ),
        ("BatchnormAttributes", 3, &[2], "epsilon (tensor 3): expected 1 elements, a scalar, got 2"),
        (
            "BatchnormBackwardAttributes",
            8,
            &[3],
            "dscale (tensor 8): expected 4 elements, one for each channel of x, got 3",
        ),
        (
            "ConvolutionBwdAttributes",
            2,
            &[2, 4, 5, 7],
            "dy (tensor 0): expected dimensions [2, 6, 2, 7], got [2, 6, 2, 6]",
        ),
        (
            "ConvolutionWrwAttributes",
            2,
            &[6, 3, 3, 2],
            "dw (tensor 2): expected a dimension 1 that divides the 4 channels of x, got 3",
        ),
        ("MatmulAttributes", 1, &[1, 5, 3, 6], "b (tensor 1): expected 4 rows, as a has columns, got 3"),
        ("MatmulAttributes", 1, &[3, 5, 4, 6], "b (tensor 1): expected an extent of 1 or 2 in dimension 0, got 3"),
        ("MatmulAttributes", 2, &[2, 5, 6, 3], "c (tensor 2): expected dimensions [2, 5, 3, 6], got [2, 5, 6, 3]"),
        (
            "RMSNormAttributes",
            1,
            &[1, 4, 5, 7],
            "scale (tensor 1): expected extents of 1 or those of x, [2, 4, 5, 6], got [1, 4, 5, 7]",
        ),
        ("RMSNormAttributes", 4, &[1, 4, 1, 1], "bias (tensor 4): expected dimensions [1, 4, 5, 6], got [1, 4, 1, 1]"),
        (
            "RMSNormBackwardAttributes",
            0,
            &[2, 4, 5, 5],
            "dy (tensor 0): expected dimensions [2, 4, 5, 6], got [2, 4, 5, 5]",
        ),
        (
            "LayernormAttributes",
            1,
            &[4],
            "scale (tensor 1): expected 120 elements, one for each normalized element of x, got 4",
        ),
        ("LayernormAttributes", 5, &[3], "mean (tensor 5): expected 2 elements, one for each row of x, got 3"),
        ("LayernormBackwardAttributes", 3, &[3], "mean (tensor 3): expected 4 elements, one for each row of x, got 3"),
        (
            "ReductionAttributes",
            1,
            &[2, 4, 2, 1],
            "out (tensor 1): expected extents of 1 or those of in, [2, 4, 5, 6], got [2, 4, 2, 1]",
        ),
        ("ResampleFwdAttributes", 1, &[2, 4, 4, 3], "y (tensor 1): expected an extent of 3 in dimension 2, got 4"),
        (
            "ResampleFwdAttributes",
            1,
            &[2, 5, 3, 3],
            "y (tensor 1): expected the batch and channels of x, [2, 4], got [2, 5]",
        ),
        (
            "ResampleFwdAttributes",
            2,
            &[2, 4, 3, 2],
            "index (tensor 2): expected dimensions [2, 4, 3, 3], got [2, 4, 3, 2]",
        ),
        ("ResampleBwdAttributes", 1, &[2, 4, 9, 6], "dy (tensor 0): expected an extent of 5 in dimension 2, got 3"),
        ("BlockScaleDequantizeAttributes", 2, &[4, 9], "y (tensor 2): expected dimensions [4, 8], got [4, 9]"),
        ("BlockScaleQuantizeAttributes", 1, &[8], "y (tensor 1): expected 2 dimensions as x has, got 1"),
        ("SdpaAttributes", 1, &[2, 3, 5, 8], "k (tensor 1): expected heads that divide the 4 of q, got 3"),
        ("SdpaAttributes", 3, &[2, 4, 3, 9], "o (tensor 3): expected dimensions [2, 4, 3, 8], got [2, 4, 3, 9]"),
        (
            "SdpaBackwardAttributes",
            7,
            &[2, 4, 5, 8],
            "dk (tensor 7): expected dimensions [2, 2, 5, 8], got [2, 4, 5, 8]",
        ),
    ];
    for (kind, tensor, dims, message) in cases {
        let mut graphs = samples::one_of_each().into_iter();
        let mut def = graphs.find(|def| def.nodes[0].operation.kind() == *kind).expect("one of each kind");
        def.tensors[*tensor] = TensorDef::new(*tensor as i64, DataType::Float, dims);
        check(kind, def, &format!("node 0 ({kind}): {message}"));
    }
}

#[test]
fn attributes_of_other_kinds() {
    let cases: &[(&str, OperationChange, &str)] = &[
        (
            "LayernormAttributes",
            |op| {
                if let Operation::Layernorm(n) = op {
                    n.normalized_dim_count = 5
                }
            },
            "normalized_dim_count: expected 1 to 4, the dimensions of x, got 5",
        ),
        (
            "ReductionAttributes",
            |op| {
                if let Operation::Reduction(r) = op {
                    r.mode = ReductionMode::Unset
                }
            },
            "expected a reduction mode, got not_set",
        ),
        (
            "ResampleFwdAttributes",
            |op| {
                if let Operation::ResampleFwd(r) = op {
                    r.window.push(1)
                }
            },
            "window: expected 2 entries, one for each spatial dimension, got 3",
        ),
        (
            "ResampleBwdAttributes",
            |op| {
                if let Operation::ResampleBwd(r) = op {
                    r.resample_mode = ResampleMode::Unset
                }
            },
            "resample_mode: expected a mode, got not_set",
        ),
        (
            "BlockScaleDequantizeAttributes",
            |op| {
                if let Operation::BlockScaleDequantize(b) = op {
                    b.block_size[1] = 0
                }
            },
            "block_size: expected at least 1, got 0",
        ),
        (
            "BlockScaleQuantizeAttributes",
            |op| {
                if let Operation::BlockScaleQuantize(b) = op {
                    b.block_size = 0
                }
            },
            "block_size: expected at least 1, got 0",
        ),
        (
            "BlockScaleQuantizeAttributes",
            |op| {
                if let Operation::BlockScaleQuantize(b) = op {
                    b.axis = Some(-1)
                }
            },
            "axis: expected a dimension of x, 0 to 1, got -1",
        ),
        (
            "CustomOpAttributes",
            |op| {
                if let Operation::CustomOp(c) = op {
                    c.custom_op_id.clear()
                }
            },
            "custom_op_id: expected a name, got none",
        ),
        (
            "CustomOpAttributes",
            |op| {
                if let Operation::CustomOp(c) = op {
                    c.outputs.clear()
                }
            },
            "it writes no tensor",
        ),
    ];
    for (kind, change, message) in cases {
        let mut graphs = samples::one_of_each().into_iter();
        let mut def = graphs.find(|def| def.nodes[0].operation.kind() == *kind).expect("one of each kind");
        change(&mut def.nodes[0].operation);
        check(kind, def, &format!("node 0 ({kind}): {message}"));
    }
}

/// Graphs that look odd, but are right.
#[test]
fn odd_graphs_that_are_right() {
    let cases: &[(&str, Change)] = &[
        ("input repeats a row", |d| d.tensors[3].strides = smallvec![0, 0, 0, 0]),
        ("stride of an extent of 1 means nothing", |d| d.tensors[3].strides[0] = -1),
        ("wide stride of an extent of 1", |d| d.tensors[3].strides[0] = i64::MAX),
        ("sliced output", |d| d.tensors[5].strides = smallvec![4 * 12544, 1, 2 * 896, 128]),
        ("scalar of rank 1 as bias", |d| {
            d.tensors[3] = TensorDef::new(4, DataType::Half, &[1]).with_value(TensorValue::Float16(1.0));
        }),
        ("a virtual scalar has its value in the graph", |d| {
            let scalar = TensorDef::new(4, DataType::Half, &[1]).with_value(TensorValue::Float16(1.0));
            d.tensors[3] = scalar.intermediate();
        }),
        ("types from the graph", |d| {
            for tensor in &mut d.tensors {
                tensor.data_type = DataType::Unset;
            }
        }),
        ("intermediate handed out as well", |d| d.tensors[2].is_virtual = false),
        ("unused tensor", |d| d.tensors.push(TensorDef::new(0, DataType::Half, &[1]))),
        ("tensor of 8 dimensions", |d| d.tensors.push(TensorDef::new(0, DataType::Half, &[1; 8]))),
        ("as many elements as may be", |d| {
            d.tensors.push(TensorDef::new(0, DataType::Half, &[1 << 46]).strided(&[0]));
        }),
        ("bytes of no alignment", |d| d.tensors[0].alignment = 1),
        ("one tensor as both operands", |d| pointwise(d, 1).in_1 = Some(TensorUid(3))),
    ];
    for (name, change) in cases {
        let mut def = samples::conv_bias_relu();
        change(&mut def);
        let graph = Graph::new(def).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(graph.tensor(TensorUid(3)).data_type(), DataType::Half, "{name}");
        assert_eq!(graph.consumers(TensorUid(3)), [1], "{name}");
    }
}

/// Extents that operations have at their limits, or that are not the format's to judge.
#[test]
fn right_shapes_of_other_kinds() {
    let uid = TensorUid;
    let volume = ConvolutionFwd { x: uid(0), w: uid(1), y: uid(2), convolution: Convolution::new(3) };
    let scales =
        BlockScaleQuantize { x: uid(0), y: uid(1), scale: uid(2), block_size: 1, axis: None, transpose: false };
    let whole = Layernorm {
        x: uid(0),
        scale: uid(1),
        bias: uid(2),
        epsilon: uid(3),
        y: uid(4),
        normalized_dim_count: 2,
        mean: Some(uid(5)),
        inv_variance: None,
        forward_phase: NormFwdPhase::Training,
    };
    let interpolation = Operation::ResampleFwd(ResampleFwd {
        resample_mode: ResampleMode::Bilinear,
        ..pooling(&[0; 2], &[0; 2], &[1; 2], &[1; 2])
    });
    let paged = |page_table_k, page_table_v| {
        let attention = Sdpa::new(uid(0), uid(1), uid(2), uid(3));
        Operation::Sdpa(Box::new(Sdpa { page_table_k, page_table_v, ..attention }))
    };
    let (q, pages, table): (&[i64], &[i64], &[i64]) = (&[2, 4, 3, 8], &[9, 2, 16, 8], &[2, 1, 1, 1]);
    let cases: &[(&str, Operation, &[&[i64]])] = &[
        ("volume", Operation::ConvolutionFwd(volume), &[&[1, 2, 3, 3, 3], &[4, 2, 1, 1, 3], &[1, 4, 3, 3, 1]]),
        (
            "product of matrices",
            Operation::Matmul(Matmul { a: uid(0), b: uid(1), c: uid(2) }),
            &[&[3, 4], &[4, 6], &[3, 6]],
        ),
        ("normalization of all", Operation::Layernorm(whole), &[&[4, 6], &[24], &[24], &[1], &[4, 6], &[1]]),
        ("scales of elements", Operation::BlockScaleQuantize(scales), &[&[4, 6], &[4, 6], &[4, 6]]),
        ("interpolation", interpolation, &[&[1, 2, 4, 4], &[1, 2, 7, 3]]),
        ("pages of keys", paged(Some(uid(4)), None), &[q, pages, &[2, 4, 5, 8], q, table]),
        ("pages of values", paged(None, Some(uid(4))), &[q, &[2, 4, 5, 8], pages, q, table]),
    ];
    for (name, operation, dims) in cases {
        let def = samples::single(operation.clone(), dims);
        assert_eq!(Graph::new(def).err().map(|error| error.to_string()), None, "{name}");
    }
}

fn pooling(pre: &[i64], post: &[i64], stride: &[i64], window: &[i64]) -> ResampleFwd {
    let [pre_padding, post_padding, stride, window] = [pre, post, stride, window].map(<[i64]>::to_vec);
    ResampleFwd {
        x: TensorUid(0),
        y: TensorUid(1),
        index: None,
        pre_padding,
        post_padding,
        stride,
        window,
        resample_mode: ResampleMode::MaxPool,
        padding_mode: PaddingMode::NegInf,
        generate_index: None,
    }
}

/// Windows along the last dimension of a volume: extents with those that follow, rounded down or up.
#[test]
fn windows_of_pooling_fit() {
    let fits = "a window that fits in dimension 4";
    // Extent, padding before and behind, window, stride, extent of the result, what was wanted in its place.
    type Case<'a> = (i64, i64, i64, i64, i64, i64, Option<&'a str>);
    let cases: &[Case<'_>] = &[
        (5, 0, 1, 2, 2, 3, None),
        (6, 0, 0, 6, 2, 1, None),
        (6, 0, 0, 6, 2, 2, Some("an extent of 1 in dimension 4")),
        (6, 0, 0, 7, 2, 1, Some(fits)),
        (6, 0, 0, 8, 2, 3, Some(fits)),
        (6, 1, 0, 7, 2, 1, None),
        (6, 0, 1, 7, 2, 1, None),
        (6, 0, 0, 3, 2, 1, Some("an extent of 2 in dimension 4")),
        (6, 0, 0, 3, 2, 2, None),
        (6, 0, 0, 3, 2, 3, None),
        (6, 0, 0, 3, 2, 4, Some("an extent of 2 in dimension 4")),
    ];
    for (extent, pre, post, window, stride, result, wanted) in cases {
        let pooling = pooling(&[0, 0, *pre], &[0, 0, *post], &[1, 1, *stride], &[1, 1, *window]);
        let def = samples::single(Operation::ResampleFwd(pooling), &[&[1, 2, 3, 3, *extent], &[1, 2, 3, 3, *result]]);
        let wanted = wanted
            .map(|wanted| format!("node 0 (ResampleFwdAttributes): y (tensor 1): expected {wanted}, got {result}"));
        let came = Graph::new(def).err().map(|error| error.to_string());
        assert_eq!(came, wanted, "{window} of {pre} + {extent} + {post} by {stride}");
    }
}

#[test]
fn strides_and_types_of_intermediates_are_free() {
    let graph = Graph::new(samples::conv_bias_relu()).expect("the sample is right");
    let (between, input) = (graph.tensor(TensorUid(3)), graph.tensor(TensorUid(1)));
    let strides = packed_strides(&between.def().dims);
    assert_ne!(strides, between.def().strides);
    let other = graph.with_strides([(TensorUid(3), strides.clone())]).expect("the strides fit");
    assert_eq!(other.tensor(TensorUid(3)).def().strides, strides);
    assert_eq!(other.tensor(TensorUid(3)).strides(), strides.iter().map(|stride| *stride as usize).collect::<Vec<_>>());
    assert_eq!(other.def().nodes, graph.def().nodes);
    assert_eq!(other.tensor(TensorUid(1)), input);
    let rank = between.rank();
    for (uid, wrong, message) in [
        (
            1,
            strides.clone(),
            "tensor 1: expected an intermediate of the graph, whose strides and type are free".to_string(),
        ),
        (99, strides, "tensor 99: expected an intermediate of the graph, whose strides and type are free".to_string()),
        (3, smallvec![1], format!("tensor 3: expected {rank} strides, one for each dimension, got 1")),
        (3, smallvec![0; rank], "tensor 3: stride 0 of dimension 3 overlaps itself".to_string()),
    ] {
        let came = graph.with_strides([(TensorUid(uid), wrong)]).err().map(|error| error.to_string());
        assert_eq!(came, Some(message));
    }
    let half = graph.with_data_types([(TensorUid(3), DataType::Half)]).expect("the type fits");
    assert_eq!(half.tensor(TensorUid(3)).data_type(), DataType::Half);
    assert_eq!(half.def().nodes, graph.def().nodes);
    assert_eq!(half.tensor(TensorUid(1)), input);
    let def = GraphDef { intermediate_data_type: DataType::BFloat16, ..samples::conv_bias_relu() };
    let unset = Graph::new(def).and_then(|graph| graph.with_data_types([(TensorUid(3), DataType::Unset)]));
    assert_eq!(unset.expect("the graph has a type for it").tensor(TensorUid(3)).data_type(), DataType::BFloat16);
    let came = graph.with_data_types([(TensorUid(1), DataType::Half)]).err().map(|error| error.to_string());
    let message = "tensor 1: expected an intermediate of the graph, whose strides and type are free";
    assert_eq!(came.as_deref(), Some(message));
}

/// Work stays linear: a long chain, and one tensor that every node reads.
#[test]
fn large_graphs_are_checked() {
    let nodes = 20_000;
    let mut graph = GraphBuilder::new("chain").compute(DataType::Float);
    let bias = graph.tensor(TensorDef::new(-1, DataType::Float, &[1, 4]));
    let mut last = graph.tensor(TensorDef::new(0, DataType::Float, &[2, 4]));
    for i in 0..nodes {
        let next = graph.tensor(TensorDef::new(i + 1, DataType::Float, &[2, 4]).intermediate());
        graph.pointwise(Pointwise::binary(PointwiseMode::Add, last, bias, next));
        last = next;
    }
    let bytes = graph.def().to_bytes();
    let graph = Graph::from_bytes(&bytes).expect("a chain");
    assert_eq!(graph.consumers(bias).len(), nodes as usize);
    assert_eq!(graph.producer(last), Some(nodes as usize - 1));
}
