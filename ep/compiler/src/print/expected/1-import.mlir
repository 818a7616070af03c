module attributes {hipdnn.name = "small"} {
  func.func @main(%in0: !torch.vtensor<[?,3,4,5],f32> {hipdnn.name = "x"}, %in1: !torch.vtensor<[2,3,1,1],f32> {hipdnn.name = "w", hipdnn.constant}, %in2: !torch.vtensor<[1],si64> {hipdnn.name = "starts", hipdnn.constant}, %in3: !torch.vtensor<[1],si64> {hipdnn.name = "ends", hipdnn.constant}, %in4: !torch.vtensor<[1],si64> {hipdnn.name = "axes", hipdnn.constant}) -> (!torch.vtensor<[?,5,3,5],f32>, !torch.vtensor<[?,4,5,2],f32>) attributes {torch.onnx_meta.opset_version = 13 : si64} {
    %symbol0 = torch.symbolic_int "n" {min_val = 0, max_val = 9223372036854775807} : !torch.int
    torch.bind_symbolic_shape %in0, [%symbol0], affine_map<()[s0] -> (s0, 3, 4, 5)> : !torch.vtensor<[?,3,4,5],f32>
    %0 = torch.vtensor.literal(dense<1> : tensor<1xsi64>) : !torch.vtensor<[1],si64> loc("starts")
    %1 = torch.vtensor.literal(dense<4> : tensor<1xsi64>) : !torch.vtensor<[1],si64> loc("ends")
    %2 = torch.vtensor.literal(dense<2> : tensor<1xsi64>) : !torch.vtensor<[1],si64> loc("axes")
    %3 = torch.operator "onnx.Conv"(%in0, %in1) {torch.onnx.auto_pad = "NOTSET", torch.onnx.pads = [0 : si64, 0 : si64, 0 : si64, 0 : si64]} : (!torch.vtensor<[?,3,4,5],f32>, !torch.vtensor<[2,3,1,1],f32>) -> !torch.vtensor<[?,2,4,5],f32> loc("the_conv")
    %4 = torch.operator "onnx.Relu"(%3) : (!torch.vtensor<[?,2,4,5],f32>) -> !torch.vtensor<[?,2,4,5],f32> loc("the_relu")
    %5 = torch.operator "onnx.Concat"(%4, %in0) {torch.onnx.axis = 1 : si64} : (!torch.vtensor<[?,2,4,5],f32>, !torch.vtensor<[?,3,4,5],f32>) -> !torch.vtensor<[?,5,4,5],f32> loc("the_concat")
    %6 = torch.operator "onnx.Slice"(%5, %0, %1, %2) : (!torch.vtensor<[?,5,4,5],f32>, !torch.vtensor<[1],si64>, !torch.vtensor<[1],si64>, !torch.vtensor<[1],si64>) -> !torch.vtensor<[?,5,3,5],f32> loc("the_slice")
    %7 = torch.operator "onnx.Neg"(%6) : (!torch.vtensor<[?,5,3,5],f32>) -> !torch.vtensor<[?,5,3,5],f32> loc("the_neg")
    %8 = torch.operator "onnx.Transpose"(%4) {torch.onnx.perm = [0 : si64, 2 : si64, 3 : si64, 1 : si64]} : (!torch.vtensor<[?,2,4,5],f32>) -> !torch.vtensor<[?,4,5,2],f32> loc("the_transpose")
    return %7, %8 : !torch.vtensor<[?,5,3,5],f32>, !torch.vtensor<[?,4,5,2],f32>
  }
}
