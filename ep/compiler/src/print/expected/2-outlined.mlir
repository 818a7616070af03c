module attributes {hipdnn.name = "small"} {
  func.func @main(%in0: !torch.vtensor<[2,3,4,5],f32>, %in1: !torch.vtensor<[2,3,1,1],f32>, %in2: !torch.vtensor<[1],si64>, %in3: !torch.vtensor<[1],si64>, %in4: !torch.vtensor<[1],si64>) -> (!torch.vtensor<[2,5,3,5],f32>, !torch.vtensor<[2,4,5,2],f32>) {
    %0:2 = torch.operator "hipdnn.graph"(%in0, %in1) {hipdnn.step = 0 : i64, hipdnn.nodes = ["the_conv", "the_relu", "the_concat"]} : (!torch.vtensor<[2,3,4,5],f32>, !torch.vtensor<[2,3,1,1],f32>) -> (!torch.vtensor<[2,2,4,5],f32>, !torch.vtensor<[2,2,4,5],f32>) {
    ^bb0(%1: !torch.vtensor<[2,3,4,5],f32>, %2: !torch.vtensor<[2,3,1,1],f32>):
      %3 = torch.operator "hipdnn.convolution_fwd"(%1, %2) {hipdnn.compute = "float", hipdnn.operands = ["x", "w"], hipdnn.pre_padding = array<i64: 0, 0>, hipdnn.post_padding = array<i64: 0, 0>, hipdnn.stride = array<i64: 1, 1>, hipdnn.dilation = array<i64: 1, 1>, hipdnn.conv_mode = "CROSS_CORRELATION"} : (!torch.vtensor<[2,3,4,5],f32>, !torch.vtensor<[2,3,1,1],f32>) -> !torch.vtensor<[2,2,4,5],f32> loc("the_conv")
      %4 = torch.operator "hipdnn.pointwise"(%3) {hipdnn.compute = "float", hipdnn.operands = ["in_0"], hipdnn.operation = "relu_fwd"} : (!torch.vtensor<[2,2,4,5],f32>) -> !torch.vtensor<[2,2,4,5],f32> loc("the_relu")
      %5 = torch.operator "hipdnn.pointwise"(%4) {hipdnn.compute = "float", hipdnn.operands = ["in_0"], hipdnn.operation = "identity"} : (!torch.vtensor<[2,2,4,5],f32>) -> !torch.vtensor<[2,2,4,5],f32> loc("the_concat")
      torch.operator_terminator %4, %5 : !torch.vtensor<[2,2,4,5],f32>, !torch.vtensor<[2,2,4,5],f32>
    }
    %6 = torch.operator "hipdnn.graph"(%in0) {hipdnn.step = 1 : i64, hipdnn.nodes = ["the_concat"]} : (!torch.vtensor<[2,3,4,5],f32>) -> !torch.vtensor<[2,3,4,5],f32> {
    ^bb0(%7: !torch.vtensor<[2,3,4,5],f32>):
      %8 = torch.operator "hipdnn.pointwise"(%7) {hipdnn.compute = "float", hipdnn.operands = ["in_0"], hipdnn.operation = "identity"} : (!torch.vtensor<[2,3,4,5],f32>) -> !torch.vtensor<[2,3,4,5],f32> loc("the_concat")
      torch.operator_terminator %8 : !torch.vtensor<[2,3,4,5],f32>
    }
    %9 = torch.operator "hipdnn.assemble"(%0#1, %6) {hipdnn.offsets = array<i64: 0, 40>, hipdnn.strides = [array<i64: 100, 20, 5, 1>, array<i64: 100, 20, 5, 1>]} : (!torch.vtensor<[2,2,4,5],f32>, !torch.vtensor<[2,3,4,5],f32>) -> !torch.vtensor<[2,5,4,5],f32>
    %10 = torch.constant.int 2
    %11 = torch.constant.int 5
    %12 = torch.constant.int 3
    %13 = torch.prim.ListConstruct %10, %11, %12, %11 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
    %14 = torch.constant.int 100
    %15 = torch.constant.int 20
    %16 = torch.constant.int 1
    %17 = torch.prim.ListConstruct %14, %15, %11, %16 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
    %18 = torch.aten.as_strided %9, %13, %17, %11 : !torch.vtensor<[2,5,4,5],f32>, !torch.list<int>, !torch.list<int>, !torch.int -> !torch.vtensor<[2,5,3,5],f32>
    %19 = torch.operator "hipdnn.graph"(%18) {hipdnn.step = 2 : i64, hipdnn.nodes = ["the_neg"]} : (!torch.vtensor<[2,5,3,5],f32>) -> !torch.vtensor<[2,5,3,5],f32> {
    ^bb0(%20: !torch.vtensor<[2,5,3,5],f32>):
      %21 = torch.operator "hipdnn.pointwise"(%20) {hipdnn.compute = "float", hipdnn.operands = ["in_0"], hipdnn.operation = "neg"} : (!torch.vtensor<[2,5,3,5],f32>) -> !torch.vtensor<[2,5,3,5],f32> loc("the_neg")
      torch.operator_terminator %21 : !torch.vtensor<[2,5,3,5],f32>
    }
    %22 = torch.constant.int 4
    %23 = torch.prim.ListConstruct %10, %22, %11, %10 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
    %24 = torch.constant.int 40
    %25 = torch.prim.ListConstruct %24, %11, %16, %15 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
    %26 = torch.constant.int 0
    %27 = torch.aten.as_strided %0#0, %23, %25, %26 : !torch.vtensor<[2,2,4,5],f32>, !torch.list<int>, !torch.list<int>, !torch.int -> !torch.vtensor<[2,4,5,2],f32>
    %28 = torch.operator "hipdnn.graph"(%27) {hipdnn.step = 3 : i64, hipdnn.nodes = ["the_transpose"]} : (!torch.vtensor<[2,4,5,2],f32>) -> !torch.vtensor<[2,4,5,2],f32> {
    ^bb0(%29: !torch.vtensor<[2,4,5,2],f32>):
      %30 = torch.operator "hipdnn.pointwise"(%29) {hipdnn.compute = "float", hipdnn.operands = ["in_0"], hipdnn.operation = "identity"} : (!torch.vtensor<[2,4,5,2],f32>) -> !torch.vtensor<[2,4,5,2],f32> loc("the_transpose")
      torch.operator_terminator %30 : !torch.vtensor<[2,4,5,2],f32>
    }
    return %19, %28 : !torch.vtensor<[2,5,3,5],f32>, !torch.vtensor<[2,4,5,2],f32>
  }
}
