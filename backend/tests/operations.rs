//! Graphs from tensor and operation descriptors, and back.

mod common;

use common::*;
use hipdnn_schemas::{
    ConvMode, DataType as WireType, GraphDef, Operation, PointwiseMode as WireMode, TensorUid, TensorValue,
};
use std::ffi::c_char;

use AttributeName as A;
use AttributeType as T;
use DescriptorType as D;

fn tensor(uid: i64, dims: &[i64], with: impl Fn(&Desc)) -> Desc {
    let tensor = Desc::new(D::TENSOR_DESCRIPTOR);
    tensor.set_int64s(A::TENSOR_UNIQUE_ID, &[uid]);
    tensor.set(A::TENSOR_DATA_TYPE, T::DATA_TYPE, &[DataType::HALF]);
    tensor.set_int64s(A::TENSOR_DIMENSIONS, dims);
    tensor.set_int64s(A::TENSOR_STRIDES, &hipdnn_schemas::packed_strides(dims));
    tensor.set(A::TENSOR_IS_VIRTUAL, T::BOOLEAN, &[false]);
    with(&tensor);
    tensor.finalize();
    tensor
}

fn convolution(x: &Desc, w: &Desc, y: &Desc) -> Desc {
    let conv = Desc::new(D::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    conv.set_desc(A::OPERATION_CONVOLUTION_FORWARD_X, x);
    conv.set_desc(A::OPERATION_CONVOLUTION_FORWARD_W, w);
    conv.set_desc(A::OPERATION_CONVOLUTION_FORWARD_Y, y);
    conv.set_int64s(A::CONVOLUTION_PRE_PADDINGS, &[1, 2]);
    conv.set_int64s(A::CONVOLUTION_POST_PADDINGS, &[3, 4]);
    conv.set_int64s(A::CONVOLUTION_FILTER_STRIDES, &[5, 6]);
    conv.set_int64s(A::CONVOLUTION_DILATIONS, &[7, 8]);
    conv.set(A::CONVOLUTION_CONV_MODE, T::CONVOLUTION_MODE, &[ConvolutionMode::CROSS_CORRELATION]);
    conv.set(A::CONVOLUTION_COMP_TYPE, T::DATA_TYPE, &[DataType::FLOAT]);
    conv.set_text(A::OPERATION_NAME_EXT, "conv");
    conv
}

fn binary_of(graph: &Desc) -> GraphDef {
    let mut size = 0;
    // SAFETY: only the size is asked for.
    let status = unsafe { hipdnnBackendGetSerializedBinaryGraph_ext(graph.0, 0, &mut size, std::ptr::null_mut()) };
    assert_eq!(status, OK, "{}", last_error());
    let mut bytes = vec![0u8; size];
    // SAFETY: there is as much room as we say.
    let status = unsafe { hipdnnBackendGetSerializedBinaryGraph_ext(graph.0, size, &mut size, bytes.as_mut_ptr()) };
    assert_eq!(status, OK, "{}", last_error());
    GraphDef::from_bytes(&bytes).unwrap()
}

/// conv, then relu with a clip, over a virtual tensor; as a C++ frontend lowers it.
fn frontend_graph() -> Desc {
    let x = tensor(10, &[2, 8, 16, 16], |tensor| {
        tensor.set_text(A::TENSOR_NAME_EXT, "x");
    });
    let w = tensor(11, &[4, 8, 3, 3], |tensor| {
        tensor.set_int64s(A::TENSOR_BYTE_ALIGNMENT, &[64]);
    });
    let c = tensor(12, &[2, 4, 16, 16], |tensor| {
        tensor.set(A::TENSOR_IS_VIRTUAL, T::BOOLEAN, &[true]);
    });
    let y = tensor(13, &[2, 4, 16, 16], |_| ());
    let conv = convolution(&x, &w, &c);
    conv.finalize();
    let relu = Desc::new(D::OPERATION_POINTWISE_DESCRIPTOR);
    relu.set(A::POINTWISE_MODE, T::POINTWISE_MODE, &[PointwiseMode::RELU_FWD]);
    relu.set_desc(A::OPERATION_POINTWISE_IN_0_EXT, &c);
    relu.set_desc(A::OPERATION_POINTWISE_OUT_0_EXT, &y);
    relu.set(A::POINTWISE_RELU_UPPER_CLIP, T::FLOAT, &[6.0f32]);
    relu.set(A::POINTWISE_RELU_LOWER_CLIP, T::DOUBLE, &[0.5f64]);
    relu.set(A::POINTWISE_MATH_PREC, T::DATA_TYPE, &[DataType::FLOAT]);
    relu.finalize();
    let graph = Desc::new(D::OPERATIONGRAPH_DESCRIPTOR);
    graph.set(A::OPERATIONGRAPH_OPS, T::BACKEND_DESCRIPTOR, &[conv.0, relu.0]);
    graph.set(A::OPERATIONGRAPH_COMPUTE_DATA_TYPE_EXT, T::DATA_TYPE, &[DataType::FLOAT]);
    graph.set(A::OPERATIONGRAPH_IO_DATA_TYPE_EXT, T::DATA_TYPE, &[DataType::HALF]);
    graph.set_int64s(A::OPERATIONGRAPH_PREFERRED_ENGINE_ID_EXT, &[-5]);
    graph.set(A::OPERATIONGRAPH_IS_OVERRIDE_SHAPE_ENABLED_EXT, T::BOOLEAN, &[false]);
    graph.set_text(A::OPERATIONGRAPH_NAME_EXT, "net");
    // The frontend destroys tensors and operations here, before the graph is finalized.
    graph
}

#[test]
fn descriptors_become_a_graph() {
    let _turn = turn();
    let directory = scratch("operations-lowering");
    let plugin = compile(&directory, "echo.so", &[]);
    use_plugins(&[&plugin]);
    let graph = frontend_graph();
    let draft = binary_of(&graph);
    assert_eq!((draft.tensors.len(), draft.id), (4, None), "readable before it is finalized");

    let handle = OwnedHandle::new();
    graph.set(A::OPERATIONGRAPH_HANDLE, T::HANDLE, &[handle.0]);
    graph.finalize();
    graph.finalize();
    let def = binary_of(&graph);
    assert_eq!((def.name.as_str(), def.preferred_engine_id), ("net", Some(-5)));
    assert_eq!((def.compute_data_type, def.io_data_type), (WireType::Float, WireType::Half));
    assert_eq!(def.intermediate_data_type, WireType::Unset);
    assert!(def.id.is_some());
    assert_eq!(def.min_required_engine_api_version.map(|version| version.minor), Some(3), "an alignment of 64");
    let uids: Vec<i64> = def.tensors.iter().map(|tensor| tensor.uid.0).collect();
    assert_eq!(uids, [10, 11, 12, 13]);
    assert_eq!(def.tensors[0].name, "x");
    assert_eq!(def.tensors[1].alignment, 64);
    assert!(def.tensors[2].is_virtual && !def.tensors[3].is_virtual);
    assert!(def.tensors.iter().all(|tensor| tensor.data_type == WireType::Half));
    let Operation::ConvolutionFwd(conv) = &def.nodes[0].operation else { panic!("{:?}", def.nodes[0]) };
    assert_eq!((conv.x, conv.w, conv.y), (TensorUid(10), TensorUid(11), TensorUid(12)));
    let geometry = &conv.convolution;
    assert_eq!((&geometry.pre_padding[..], &geometry.post_padding[..]), (&[1, 2][..], &[3, 4][..]));
    assert_eq!((&geometry.stride[..], &geometry.dilation[..]), (&[5, 6][..], &[7, 8][..]));
    assert_eq!(geometry.mode, ConvMode::CrossCorrelation);
    assert_eq!((def.nodes[0].name.as_str(), def.nodes[0].compute_data_type), ("conv", WireType::Float));
    let Operation::Pointwise(relu) = &def.nodes[1].operation else { panic!("{:?}", def.nodes[1]) };
    assert_eq!((relu.mode, relu.in_0, relu.in_1, relu.out_0), (WireMode::ReluFwd, TensorUid(12), None, TensorUid(13)));
    assert_eq!((relu.relu_lower_clip, relu.relu_upper_clip, relu.swish_beta), (Some(0.5), Some(6.0), None));

    let plan = plan(&graph);
    assert_eq!(plan.get_int64s(A::EXECUTION_PLAN_TENSOR_UIDS_EXT), [10, 11, 12, 13]);
}

#[test]
fn a_deserialized_graph_is_read_back() {
    let original = binary_of(&frontend_graph());
    let graph = Desc::graph(&original);
    assert_eq!(graph.get_text(A::OPERATIONGRAPH_NAME_EXT), "net");
    assert_eq!(graph.get::<i32>(A::OPERATIONGRAPH_IO_DATA_TYPE_EXT, T::DATA_TYPE), DataType::HALF.0);
    assert_eq!(graph.get::<i64>(A::OPERATIONGRAPH_PREFERRED_ENGINE_ID_EXT, T::INT64), -5);
    let unset = graph.try_get(A::OPERATIONGRAPH_INTERMEDIATE_DATA_TYPE_EXT, T::DATA_TYPE, &mut [0i32]);
    assert_eq!(unset, (OK, 0));
    let operations = graph.get_descs(A::OPERATIONGRAPH_OPS);
    let [conv, relu] = &operations[..] else { panic!("two operations") };
    assert_eq!(conv.get::<i32>(A::OPERATION_TYPE_EXT, T::OPERATION_TYPE_EXT), OperationType::CONVOLUTION_FORWARD_EXT.0);
    assert_eq!(conv.get_text(A::OPERATION_NAME_EXT), "conv");
    assert_eq!(conv.get_int64s(A::CONVOLUTION_FILTER_STRIDES), [5, 6]);
    assert_eq!(conv.get::<i32>(A::CONVOLUTION_CONV_MODE, T::CONVOLUTION_MODE), 1);
    assert_eq!(conv.get::<i32>(A::CONVOLUTION_COMP_TYPE, T::DATA_TYPE), DataType::FLOAT.0);
    let x = conv.get_desc(A::OPERATION_CONVOLUTION_FORWARD_X);
    assert_eq!(x.get::<i64>(A::TENSOR_UNIQUE_ID, T::INT64), 10);
    assert_eq!(x.get_text(A::TENSOR_NAME_EXT), "x");
    assert_eq!(x.get_int64s(A::TENSOR_DIMENSIONS), [2, 8, 16, 16]);
    assert_eq!(x.get_int64s(A::TENSOR_STRIDES), [2048, 256, 16, 1]);
    assert_eq!(x.get::<i32>(A::TENSOR_DATA_TYPE, T::DATA_TYPE), DataType::HALF.0);
    assert_eq!(x.get::<i64>(A::TENSOR_BYTE_ALIGNMENT, T::INT64), 16);
    assert_eq!(relu.get::<i32>(A::OPERATION_TYPE_EXT, T::OPERATION_TYPE_EXT), OperationType::POINTWISE_EXT.0);
    assert_eq!(relu.get::<i32>(A::POINTWISE_MODE, T::POINTWISE_MODE), PointwiseMode::RELU_FWD.0);
    assert_eq!(relu.get::<f32>(A::POINTWISE_RELU_UPPER_CLIP, T::FLOAT), 6.0);
    assert_eq!(relu.try_get(A::POINTWISE_SWISH_BETA, T::FLOAT, &mut [0f32]), (OK, 0), "unset");
    assert_eq!(relu.try_get(A::OPERATION_POINTWISE_IN_1_EXT, T::BACKEND_DESCRIPTOR, &mut [0usize]), (OK, 0));

    // Asked again, the graph gives the same objects: they mix.
    let conv_again = graph.get_descs(A::OPERATIONGRAPH_OPS).remove(0);
    let mixed = Desc::new(D::OPERATIONGRAPH_DESCRIPTOR);
    mixed.set(A::OPERATIONGRAPH_OPS, T::BACKEND_DESCRIPTOR, &[conv_again.0, relu.0]);
    assert_eq!(binary_of(&mixed).tensors, original.tensors);

    // One tensor, one object: the graph can be built again from what was read.
    let again = Desc::new(D::OPERATIONGRAPH_DESCRIPTOR);
    again.set(A::OPERATIONGRAPH_OPS, T::BACKEND_DESCRIPTOR, &[conv.0, relu.0]);
    assert_eq!(binary_of(&again).nodes, original.nodes);
    assert_eq!(binary_of(&again).tensors, original.tensors);
    assert_eq!(binary_of(&graph), original);

    // Adding operations appends to what came serialized.
    let y = relu.get_desc(A::OPERATION_POINTWISE_OUT_0_EXT);
    let z = tensor(99, &[2, 4, 16, 16], |_| ());
    let extra = Desc::new(D::OPERATION_POINTWISE_DESCRIPTOR);
    extra.set(A::POINTWISE_MODE, T::POINTWISE_MODE, &[PointwiseMode::ABS]);
    extra.set_desc(A::OPERATION_POINTWISE_IN_0_EXT, &z);
    extra.set_desc(A::OPERATION_POINTWISE_OUT_0_EXT, &y);
    extra.finalize();
    // Whether or not its own fields were changed before.
    for renamed in [false, true] {
        let graph = Desc::graph(&original);
        if renamed {
            graph.set_text(A::OPERATIONGRAPH_NAME_EXT, "renamed");
        }
        graph.set_desc(A::OPERATIONGRAPH_OPS, &extra);
        assert_eq!(graph.count(A::OPERATIONGRAPH_OPS, T::BACKEND_DESCRIPTOR), 3);
    }
    let graph = Desc::graph(&original);
    graph.set_text(A::OPERATIONGRAPH_NAME_EXT, "renamed");
    let renamed = binary_of(&graph);
    assert_eq!(renamed, GraphDef { name: "renamed".into(), ..original.clone() });
    let abs = Desc::new(D::OPERATION_POINTWISE_DESCRIPTOR);
    abs.set(A::POINTWISE_MODE, T::POINTWISE_MODE, &[PointwiseMode::ABS]);
    abs.set_desc(A::OPERATION_POINTWISE_IN_0_EXT, &z);
    let end = common_tensor(100);
    abs.set_desc(A::OPERATION_POINTWISE_OUT_0_EXT, &end);
    abs.finalize();
    graph.set_desc(A::OPERATIONGRAPH_OPS, &abs);
    let longer = binary_of(&graph);
    let uids: Vec<i64> = longer.tensors.iter().map(|tensor| tensor.uid.0).collect();
    assert_eq!((longer.nodes.len(), uids), (3, vec![10, 11, 12, 13, 99, 100]));
}

#[test]
fn json_goes_there_and_back() {
    let graph = frontend_graph();
    let mut size = 0;
    // SAFETY: only the size is asked for.
    let status = unsafe { hipdnnBackendGetSerializedJsonGraph_ext(graph.0, 0, &mut size, std::ptr::null_mut()) };
    assert_eq!(status, OK, "{}", last_error());
    let mut json = vec![1u8; size];
    let place = json.as_mut_ptr().cast::<c_char>();
    // SAFETY: there is as much room as we say.
    assert_eq!(unsafe { hipdnnBackendGetSerializedJsonGraph_ext(graph.0, size, &mut size, place) }, OK);
    assert_eq!(json.last(), Some(&0), "the size includes the NUL");
    for length in [size, size - 1] {
        let mut back = std::ptr::null_mut();
        // SAFETY: there are as many bytes as we say.
        let status = unsafe { hipdnnBackendCreateAndDeserializeJsonGraph_ext(&mut back, json.as_ptr().cast(), length) };
        assert_eq!(status, OK, "{}", last_error());
        assert_eq!(binary_of(&Desc(back)), binary_of(&graph));
    }
}

#[test]
fn values_are_scalars_of_the_tensors_type() {
    let half = half::f16::from_f32(0.75);
    let tensor = tensor(1, &[1], |tensor| {
        assert_eq!(tensor.try_set(A::TENSOR_VALUE_EXT, T::CHAR, &[0u8; 4]), Status::BAD_PARAM, "a half has 2 bytes");
        tensor.set(A::TENSOR_VALUE_EXT, T::CHAR, &half.to_ne_bytes());
    });
    assert_eq!(tensor.get::<u8>(A::TENSOR_IS_BY_VALUE, T::BOOLEAN), 1);
    let mut bytes = [0u8; 2];
    assert_eq!(tensor.try_get(A::TENSOR_VALUE_EXT, T::CHAR, &mut bytes), (OK, 2));
    assert_eq!(bytes, half.to_ne_bytes());
    let out = common_tensor(2);
    let operation = Desc::new(D::OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(A::POINTWISE_MODE, T::POINTWISE_MODE, &[PointwiseMode::IDENTITY]);
    operation.set_desc(A::OPERATION_POINTWISE_IN_0_EXT, &tensor);
    operation.set_desc(A::OPERATION_POINTWISE_OUT_0_EXT, &out);
    operation.finalize();
    let graph = Desc::new(D::OPERATIONGRAPH_DESCRIPTOR);
    graph.set_desc(A::OPERATIONGRAPH_OPS, &operation);
    assert_eq!(binary_of(&graph).tensors[0].value, Some(TensorValue::Float16(0.75)));
}

fn common_tensor(uid: i64) -> Desc {
    tensor(uid, &[1, 4], |_| ())
}

/// Elements of an attribute that is no tensor.
#[derive(Debug, PartialEq)]
enum Plain {
    Boolean(u8),
    Int32s(&'static [i32]),
    Int64s(&'static [i64]),
    Float(f32),
    Enumerator(T, i32),
}

use Plain::{Boolean, Enumerator, Float, Int32s, Int64s};

impl Plain {
    fn set(&self, operation: &Desc, attribute: A) {
        match self {
            Boolean(value) => operation.set(attribute, T::BOOLEAN, &[*value]),
            Int32s(values) => operation.set(attribute, T::INT32, values),
            Int64s(values) => operation.set(attribute, T::INT64, values),
            Float(value) => operation.set(attribute, T::FLOAT, &[*value]),
            Enumerator(kind, number) => operation.set(attribute, *kind, &[*number]),
        };
    }

    fn expect(&self, operation: &Desc, attribute: A) {
        match self {
            Boolean(value) => assert_eq!(operation.get::<u8>(attribute, T::BOOLEAN), *value, "{attribute}"),
            Int32s(values) => {
                let mut got = vec![0i32; values.len() + 1];
                assert_eq!(operation.try_get(attribute, T::INT32, &mut got), (OK, values.len() as i64), "{attribute}");
                assert_eq!(&got[..values.len()], *values, "{attribute}");
            }
            Int64s(values) => assert_eq!(operation.get_int64s(attribute), *values, "{attribute}"),
            Float(value) => assert_eq!(operation.get::<f32>(attribute, T::FLOAT), *value, "{attribute}"),
            Enumerator(kind, number) => assert_eq!(operation.get::<i32>(attribute, *kind), *number, "{attribute}"),
        }
    }
}

/// Attributes of a pooling: windows, modes, compute type.
const POOLING: &[(i32, Plain)] = &[
    (3400, Enumerator(T::RESAMPLE_MODE, 2)),
    (3401, Int64s(&[1, 2])),
    (3402, Int64s(&[3, 4])),
    (3403, Int64s(&[5, 6])),
    (3404, Int64s(&[7, 8])),
    (3405, Enumerator(T::PADDING_MODE, 2)),
    (3407, Enumerator(T::DATA_TYPE, 0)),
];

/// A kind of operation: attribute numbers of its tensors, those that must be there and those that may; other attributes,
/// those that must be there and those that may.
type Case<'a> = (D, OperationType, &'a [i32], &'a [i32], &'a [(i32, Plain)], &'a [(i32, Plain)]);

#[test]
fn every_served_operation_keeps_its_attributes() {
    #[rustfmt::skip]
    let cases: &[Case] = &[
        (D::OPERATION_MATMUL_DESCRIPTOR, OperationType::MATMUL_EXT, &[2500, 2501, 2502], &[], &[], &[]),
        (D::OPERATION_BATCHNORM_INFERENCE_DESCRIPTOR_EXT, OperationType::BATCHNORM_INFERENCE_EXT,
         &[1800, 1801, 1802, 1803, 1804, 1805], &[], &[], &[]),
        (D::OPERATION_BATCHNORM_INFERENCE_VARIANCE_DESCRIPTOR_EXT, OperationType::BATCHNORM_INFERENCE_VARIANCE_EXT,
         &[1900, 1901, 1902, 1903, 1904, 1905, 1906], &[], &[], &[]),
        (D::OPERATION_BATCHNORM_BACKWARD_DESCRIPTOR_EXT, OperationType::BATCHNORM_BACKWARD_EXT,
         &[2000, 2001, 2002, 2003, 2004, 2005], &[2006, 2007, 2101], &[], &[]),
        (D::OPERATION_BATCHNORM_DESCRIPTOR_EXT, OperationType::BATCHNORM_EXT,
         &[2900, 2901, 2902, 2903, 2904], &[2905, 2906, 2907, 2908, 2909, 2910, 2911, 2913], &[], &[]),
        (D::OPERATION_RMSNORM_BACKWARD_DESCRIPTOR_EXT, OperationType::RMSNORM_BACKWARD_EXT,
         &[3500, 3501, 3502, 3503, 3504, 3505], &[3506], &[], &[]),
        (D::OPERATION_LAYERNORM_BACKWARD_DESCRIPTOR_EXT, OperationType::LAYERNORM_BACKWARD_EXT,
         &[3600, 3601, 3602, 3606, 3607], &[3603, 3604, 3605, 3608], &[(3609, Int64s(&[2]))], &[]),
        (D::OPERATION_LAYERNORM_DESCRIPTOR_EXT, OperationType::LAYERNORM_EXT,
         &[2700, 2701, 2702, 2703, 2704], &[2705, 2706],
         &[(2707, Enumerator(T::NORM_FWD_PHASE, 2)), (2708, Enumerator(T::DATA_TYPE, 0))], &[(2709, Int64s(&[2]))]),
        (D::OPERATION_RMSNORM_DESCRIPTOR_EXT, OperationType::RMSNORM_EXT,
         &[2400, 2401, 2402, 2403], &[2404, 2405],
         &[(2406, Enumerator(T::NORM_FWD_PHASE, 1)), (2407, Enumerator(T::DATA_TYPE, 0))], &[]),
        (D::OPERATION_REDUCTION_DESCRIPTOR, OperationType::REDUCTION_EXT, &[3200, 3201], &[],
         &[(3202, Enumerator(T::REDUCTION_OPERATOR_TYPE, 9)), (3203, Enumerator(T::DATA_TYPE, 0))],
         &[(3204, Boolean(1))]),
        (D::OPERATION_RESAMPLE_FWD_DESCRIPTOR, OperationType::RESAMPLE_FWD, &[3300, 3301], &[3302],
         POOLING, &[(3406, Boolean(1))]),
        (D::OPERATION_RESAMPLE_BWD_DESCRIPTOR, OperationType::RESAMPLE_BWD_EXT, &[3408, 3409], &[3410], POOLING, &[]),
        (D::OPERATION_BLOCK_SCALE_QUANTIZE_DESCRIPTOR, OperationType::BLOCK_SCALE_QUANTIZE_EXT,
         &[2800, 2801, 2802], &[], &[(2803, Int32s(&[32])), (2806, Enumerator(T::DATA_TYPE, 0))],
         &[(2804, Int64s(&[1])), (2805, Boolean(1))]),
        (D::OPERATION_BLOCK_SCALE_DEQUANTIZE_DESCRIPTOR, OperationType::BLOCK_SCALE_DEQUANTIZE_EXT,
         &[2807, 2808, 2809], &[], &[(2810, Int32s(&[1, 32])), (2812, Enumerator(T::DATA_TYPE, 0))],
         &[(2811, Boolean(1))]),
        (D::OPERATION_SDPA_FWD_DESCRIPTOR, OperationType::SDPA_FORWARD_EXT, &[2600, 2601, 2602, 2603],
         &[2604, 2605, 2606, 2607, 2608, 2609, 2610, 2611, 2612, 2613, 2614, 2615, 2616, 2617, 2618, 2619, 2620, 2621,
           2622, 2623, 2624, 2625, 2626, 2627],
         &[(2641, Enumerator(T::DATA_TYPE, 0))],
         &[(2628, Boolean(1)), (2629, Boolean(1)), (2630, Boolean(1)), (2631, Boolean(1)), (2632, Boolean(1)),
           (2633, Float(0.25)), (2634, Float(0.125)), (2635, Int64s(&[-1])), (2636, Int64s(&[3])), (2637, Int32s(&[7])),
           (2638, Enumerator(T::DIAGONAL_ALIGNMENT_EXT, 1)), (2639, Enumerator(T::DATA_TYPE, 2)),
           (2640, Enumerator(T::ATTENTION_IMPLEMENTATION_EXT, 2))]),
        (D::OPERATION_SDPA_BWD_DESCRIPTOR_EXT, OperationType::SDPA_BACKWARD_EXT,
         &[3100, 3101, 3102, 3103, 3104, 3105, 3106, 3107, 3108],
         &[3109, 3110, 3111, 3112, 3113, 3114, 3115, 3116, 3117, 3118], &[(3128, Enumerator(T::DATA_TYPE, 0))],
         &[(3119, Boolean(1)), (3120, Boolean(1)), (3121, Boolean(1)), (3122, Boolean(1)), (3123, Float(0.25)),
           (3124, Float(0.125)), (3125, Int64s(&[-1])), (3126, Int64s(&[3])),
           (3127, Enumerator(T::DIAGONAL_ALIGNMENT_EXT, 1))]),
        (D::OPERATION_MOE_GROUPED_MATMUL_DESCRIPTOR, OperationType::MOE_GROUPED_MATMUL_EXT,
         &[3700, 3701, 3702, 3705], &[3703, 3704], &[(3708, Enumerator(T::DATA_TYPE, 0))],
         &[(3706, Enumerator(T::MOE_GROUPED_MATMUL_MODE, 2)), (3707, Int32s(&[2]))]),
        (D::OPERATION_MOE_GROUPED_MATMUL_BWD_DESCRIPTOR, OperationType::MOE_GROUPED_MATMUL_BWD_EXT,
         &[3800, 3801, 3802, 3803], &[], &[(3804, Enumerator(T::DATA_TYPE, 0))], &[]),
    ];
    for (kind, operation_type, mandatory, optional, plain, optional_plain) in cases {
        let operation = Desc::new(*kind);
        let attributes: Vec<A> = mandatory.iter().chain(*optional).map(|number| A(*number)).collect();
        let tensors: Vec<Desc> = (0..attributes.len()).map(|index| common_tensor(index as i64)).collect();
        for (number, value) in *plain {
            assert_eq!(operation.try_finalize(), Status::BAD_PARAM, "{kind} without {}", A(*number));
            value.set(&operation, A(*number));
        }
        for (index, (attribute, tensor)) in attributes.iter().zip(&tensors).enumerate() {
            if index < mandatory.len() {
                assert_eq!(operation.try_finalize(), Status::BAD_PARAM, "{kind} without {attribute}");
            }
            operation.set_desc(*attribute, tensor);
        }
        for (number, value) in *optional_plain {
            value.set(&operation, A(*number));
        }
        operation.finalize();
        let graph = Desc::new(D::OPERATIONGRAPH_DESCRIPTOR);
        graph.set_desc(A::OPERATIONGRAPH_OPS, &operation);
        let def = binary_of(&graph);
        assert_eq!(def.tensors.len(), attributes.len(), "{kind}");
        let read = Desc::graph(&def);
        let back = &read.get_descs(A::OPERATIONGRAPH_OPS)[0];
        for operation in [&operation, back] {
            assert_eq!(operation.get::<i32>(A::OPERATION_TYPE_EXT, T::OPERATION_TYPE_EXT), operation_type.0);
            for (index, attribute) in attributes.iter().enumerate() {
                let tensor = operation.get_desc(*attribute);
                assert_eq!(tensor.get::<i64>(A::TENSOR_UNIQUE_ID, T::INT64), index as i64, "{kind} {attribute}");
            }
            for (number, value) in plain.iter().chain(*optional_plain) {
                value.expect(operation, A(*number));
            }
        }
    }
}

#[test]
fn mandatory_attributes_alone_are_enough_and_others_read_as_hipdnns_defaults() {
    let operation = Desc::new(D::OPERATION_SDPA_FWD_DESCRIPTOR);
    let tensors = [1, 2, 3, 4].map(common_tensor);
    for (attribute, tensor) in [2600, 2601, 2602, 2603].into_iter().zip(&tensors) {
        operation.set_desc(A(attribute), tensor);
    }
    operation.set(A::SDPA_FWD_COMP_TYPE_EXT, T::DATA_TYPE, &[DataType::FLOAT]);
    operation.finalize();
    let graph = Desc::new(D::OPERATIONGRAPH_DESCRIPTOR);
    graph.set_desc(A::OPERATIONGRAPH_OPS, &operation);
    let [q, k, v, o] = [1, 2, 3, 4].map(TensorUid);
    let def = binary_of(&graph);
    assert_eq!(def.nodes[0].operation, Operation::Sdpa(hipdnn_schemas::Sdpa::new(q, k, v, o).into()));
    let back = Desc::graph(&def).get_descs(A::OPERATIONGRAPH_OPS).remove(0);
    assert_eq!(back.get::<u8>(A::SDPA_FWD_CAUSAL_MASK_EXT, T::BOOLEAN), 0);
    assert_eq!(back.get::<i32>(A::SDPA_FWD_IMPLEMENTATION_EXT, T::ATTENTION_IMPLEMENTATION_EXT), 0);
    assert_eq!(back.try_get(A::SDPA_FWD_GENERATE_STATS_EXT, T::BOOLEAN, &mut [0u8]), (OK, 0), "unset");
    assert_eq!(back.try_get(A::SDPA_FWD_MAX_SEQ_LEN_KV_EXT, T::INT32, &mut [0i32]), (OK, 0), "unset");
    assert_eq!(back.try_get(A::SDPA_FWD_MMA_CORE_MODE_EXT, T::DATA_TYPE, &mut [0i32]), (OK, 0), "unset");
    assert_eq!(back.try_get(A::OPERATION_SDPA_FWD_STATSDESC, T::BACKEND_DESCRIPTOR, &mut [0usize]), (OK, 0));
}

#[test]
fn numbers_of_no_enumerator_are_refused() {
    let reduction = Desc::new(D::OPERATION_REDUCTION_DESCRIPTOR);
    for number in [-1, 0, 10, 257] {
        let status = reduction.try_set(A::REDUCTION_OPERATOR, T::REDUCTION_OPERATOR_TYPE, &[number]);
        assert_eq!(status, Status::BAD_PARAM, "{number}");
        assert!(last_error().contains(&format!("no reduction operator has number {number}")));
    }
    assert_eq!(reduction.try_set(A::REDUCTION_OPERATOR, T::INT64, &[1i64]), Status::BAD_PARAM);
}

#[test]
fn descriptors_that_are_not_served_are_refused_by_name() {
    for (number, name) in
        [(8, "HIPDNN_BACKEND_LAYOUT_INFO_DESCRIPTOR"), (39, "HIPDNN_BACKEND_39"), (0, "HIPDNN_INVALID_TYPE_EXT")]
    {
        let mut descriptor = std::ptr::null_mut();
        // SAFETY: a place for a descriptor.
        let status = unsafe { hipdnnBackendCreateDescriptor(D(number), &mut descriptor) };
        assert_eq!((status, descriptor.is_null()), (Status::NOT_SUPPORTED, true), "{number}");
        assert!(last_error().contains(&format!("descriptors of type {name} are not served")), "{}", last_error());
    }
}

#[test]
fn convolution_gradients_and_the_early_mode_number() {
    for (kind, attributes) in [
        (D::OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, [A(1700), A(1701), A(1702)]),
        (D::OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, [A(1600), A(1601), A(1602)]),
    ] {
        let operation = Desc::new(kind);
        let tensors = [1, 2, 3].map(common_tensor);
        for (attribute, tensor) in attributes.iter().zip(&tensors) {
            operation.set_desc(*attribute, tensor);
        }
        for geometry in [1502, 1503, 1504, 1505] {
            operation.set_int64s(A(geometry), &[1]);
        }
        operation.set(A::CONVOLUTION_COMP_TYPE, T::DATA_TYPE, &[DataType::FLOAT]);
        assert_eq!(operation.try_finalize(), Status::BAD_PARAM, "no mode");
        assert_eq!(operation.try_set(A::CONVOLUTION_CONV_MODE, T::INT64, &[0i64]), Status::BAD_PARAM);
        operation.set_int64s(A::CONVOLUTION_CONV_MODE, &[2]);
        operation.finalize();
        assert_eq!(operation.get::<i32>(A::CONVOLUTION_CONV_MODE, T::CONVOLUTION_MODE), 1);
        assert_eq!(operation.get_desc(attributes[2]).get::<i64>(A::TENSOR_UNIQUE_ID, T::INT64), 3);
    }
}

#[test]
fn custom_operations_carry_arrays_and_bytes() {
    let operation = Desc::new(D::OPERATION_CUSTOM_OP_DESCRIPTOR_EXT);
    let tensors = [1, 2, 3].map(common_tensor);
    operation.set(A::OPERATION_CUSTOM_OP_INPUTS_EXT, T::BACKEND_DESCRIPTOR, &[tensors[0].0, tensors[1].0]);
    operation.set(A::OPERATION_CUSTOM_OP_OUTPUTS_EXT, T::BACKEND_DESCRIPTOR, &[tensors[2].0]);
    assert_eq!(operation.try_finalize(), Status::BAD_PARAM, "no id");
    operation.set_text(A::OPERATION_CUSTOM_OP_ID_EXT, "echo.rope");
    operation.set(A::OPERATION_CUSTOM_OP_DATA_EXT, T::CHAR, &[0u8, 1, 2]);
    operation.finalize();
    assert_eq!(operation.get_descs(A::OPERATION_CUSTOM_OP_INPUTS_EXT).len(), 2);
    let graph = Desc::new(D::OPERATIONGRAPH_DESCRIPTOR);
    graph.set_desc(A::OPERATIONGRAPH_OPS, &operation);
    let def = binary_of(&graph);
    let Operation::CustomOp(custom) = &def.nodes[0].operation else { panic!("{def:?}") };
    assert_eq!((custom.custom_op_id.as_str(), &custom.data[..]), ("echo.rope", &[0, 1, 2][..]));
}

#[test]
fn rows_of_variable_length_bring_their_offsets() {
    let offsets = common_tensor(7);
    let ragged = tensor(8, &[1, 4], |tensor| {
        tensor.set_desc(A::TENSOR_RAGGED_OFFSET_DESC, &offsets);
        tensor.set_int64s(A::TENSOR_RAGGED_OFFSET_MULTIPLIER, &[3]);
    });
    let out = common_tensor(9);
    let operation = Desc::new(D::OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(A::POINTWISE_MODE, T::POINTWISE_MODE, &[PointwiseMode::ABS]);
    operation.set_desc(A::OPERATION_POINTWISE_IN_0_EXT, &ragged);
    operation.set_desc(A::OPERATION_POINTWISE_OUT_0_EXT, &out);
    operation.finalize();
    let graph = Desc::new(D::OPERATIONGRAPH_DESCRIPTOR);
    graph.set_desc(A::OPERATIONGRAPH_OPS, &operation);
    let def = binary_of(&graph);
    let uids: Vec<i64> = def.tensors.iter().map(|tensor| tensor.uid.0).collect();
    assert_eq!(uids, [7, 8, 9], "the offsets come before");
    let read = Desc::graph(&def);
    let back = read.get_descs(A::OPERATIONGRAPH_OPS)[0].get_desc(A::OPERATION_POINTWISE_IN_0_EXT);
    let back = back.get_desc(A::TENSOR_RAGGED_OFFSET_DESC);
    assert_eq!(back.get::<i64>(A::TENSOR_UNIQUE_ID, T::INT64), 7);
}

#[test]
fn graphs_refuse_what_is_no_graph() {
    let _turn = turn();
    let graph = Desc::new(D::OPERATIONGRAPH_DESCRIPTOR);
    let unfinished = Desc::new(D::OPERATION_POINTWISE_DESCRIPTOR);
    let tensor = common_tensor(1);
    let set = |elements: &[DescriptorPtr]| graph.try_set(A::OPERATIONGRAPH_OPS, T::BACKEND_DESCRIPTOR, elements);
    assert_eq!(set(&[std::ptr::null_mut()]), Status::BAD_PARAM_NULL_POINTER);
    assert_eq!(set(&[unfinished.0]), Status::BAD_PARAM_NOT_FINALIZED);
    assert_eq!(set(&[tensor.0]), Status::NOT_SUPPORTED);
    assert_eq!(set(&[]), Status::BAD_PARAM);
    assert_eq!(graph.try_finalize(), Status::BAD_PARAM, "no handle");
    let handle = OwnedHandle::new();
    assert_eq!(
        graph.try_set(A::OPERATIONGRAPH_HANDLE, T::HANDLE, &[std::ptr::null_mut::<Handle>()]),
        Status::BAD_PARAM_NULL_POINTER
    );
    graph.set(A::OPERATIONGRAPH_HANDLE, T::HANDLE, &[handle.0]);
    assert_eq!(graph.try_finalize(), Status::BAD_PARAM, "no operations");

    // The same uid on two tensor descriptors, across operations and within one.
    let one = common_tensor(1);
    let other = common_tensor(1);
    let out = common_tensor(2);
    for (a, b) in [(&one, &out), (&one, &other)] {
        let operation = Desc::new(D::OPERATION_POINTWISE_DESCRIPTOR);
        operation.set(A::POINTWISE_MODE, T::POINTWISE_MODE, &[PointwiseMode::ABS]);
        operation.set_desc(A::OPERATION_POINTWISE_IN_0_EXT, a);
        operation.set_desc(A::OPERATION_POINTWISE_OUT_0_EXT, b);
        operation.finalize();
        let graph = Desc::new(D::OPERATIONGRAPH_DESCRIPTOR);
        graph.set(A::OPERATIONGRAPH_HANDLE, T::HANDLE, &[handle.0]);
        graph.set_desc(A::OPERATIONGRAPH_OPS, &operation);
        let second = Desc::new(D::OPERATION_POINTWISE_DESCRIPTOR);
        second.set(A::POINTWISE_MODE, T::POINTWISE_MODE, &[PointwiseMode::ABS]);
        second.set_desc(A::OPERATION_POINTWISE_IN_0_EXT, &out);
        second.set_desc(A::OPERATION_POINTWISE_OUT_0_EXT, &other);
        second.finalize();
        graph.set_desc(A::OPERATIONGRAPH_OPS, &second);
        assert_eq!(graph.try_finalize(), Status::BAD_PARAM);
        assert!(last_error().contains("uid 1"));
    }
}
