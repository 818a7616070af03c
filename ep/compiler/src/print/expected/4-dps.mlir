module attributes {hipdnn.name = "small"} {
  func.func private @graph_0(tensor<2x3x4x5xf32>, tensor<2x3x1x1xf32>, tensor<2x2x4x5xf32>, tensor<2x2x4x5xf32>) -> (tensor<2x2x4x5xf32>, tensor<2x2x4x5xf32>) attributes {hipdnn.engine = "ENGINE", hipdnn.workspace = 64 : i64}
  func.func private @graph_1(tensor<2x3x4x5xf32>, tensor<2x3x4x5xf32>) -> (tensor<2x3x4x5xf32>) attributes {hipdnn.engine = "ENGINE", hipdnn.workspace = 64 : i64}
  func.func private @graph_2(tensor<2x5x3x5xf32>, tensor<2x5x3x5xf32>) -> (tensor<2x5x3x5xf32>) attributes {hipdnn.engine = "ENGINE", hipdnn.workspace = 64 : i64}
  func.func private @graph_3(tensor<2x4x5x2xf32>, tensor<2x4x5x2xf32>) -> (tensor<2x4x5x2xf32>) attributes {hipdnn.engine = "ENGINE", hipdnn.workspace = 64 : i64}
  func.func private @view_0(tensor<2x2x4x5xf32>) -> tensor<2x4x5x2xf32> attributes {hipdnn.strides = array<i64: 40, 5, 1, 20>, hipdnn.offset = 0 : i64}
  func.func @main(%in0: tensor<2x3x4x5xf32>, %in1: tensor<2x3x1x1xf32>, %in2: tensor<1xi64>, %in3: tensor<1xi64>, %in4: tensor<1xi64>, %out0: tensor<2x5x3x5xf32>, %out1: tensor<2x4x5x2xf32>) -> (tensor<2x5x3x5xf32>, tensor<2x4x5x2xf32>) {
    %0 = tensor.empty() : tensor<2x2x4x5xf32>
    %1 = tensor.empty() : tensor<2x2x4x5xf32>
    %2:2 = func.call @graph_0(%in0, %in1, %0, %1) {hipdnn.step = 0 : i64, hipdnn.nodes = ["the_conv", "the_relu", "the_concat"]} : (tensor<2x3x4x5xf32>, tensor<2x3x1x1xf32>, tensor<2x2x4x5xf32>, tensor<2x2x4x5xf32>) -> (tensor<2x2x4x5xf32>, tensor<2x2x4x5xf32>)
    %3 = tensor.empty() : tensor<2x3x4x5xf32>
    %4 = func.call @graph_1(%in0, %3) {hipdnn.step = 1 : i64, hipdnn.nodes = ["the_concat"]} : (tensor<2x3x4x5xf32>, tensor<2x3x4x5xf32>) -> tensor<2x3x4x5xf32>
    %5 = tensor.empty() : tensor<2x5x4x5xf32>
    %6 = tensor.insert_slice %2#1 into %5[0, 0, 0, 0] [2, 2, 4, 5] [1, 1, 1, 1] : tensor<2x2x4x5xf32> into tensor<2x5x4x5xf32>
    %7 = tensor.insert_slice %4 into %6[0, 2, 0, 0] [2, 3, 4, 5] [1, 1, 1, 1] : tensor<2x3x4x5xf32> into tensor<2x5x4x5xf32>
    %8 = tensor.extract_slice %7[0, 0, 1, 0] [2, 5, 3, 5] [1, 1, 1, 1] : tensor<2x5x4x5xf32> to tensor<2x5x3x5xf32>
    %9 = func.call @graph_2(%8, %out0) {hipdnn.step = 2 : i64, hipdnn.nodes = ["the_neg"]} : (tensor<2x5x3x5xf32>, tensor<2x5x3x5xf32>) -> tensor<2x5x3x5xf32>
    %10 = func.call @view_0(%2#0) : (tensor<2x2x4x5xf32>) -> tensor<2x4x5x2xf32>
    %11 = func.call @graph_3(%10, %out1) {hipdnn.step = 3 : i64, hipdnn.nodes = ["the_transpose"]} : (tensor<2x4x5x2xf32>, tensor<2x4x5x2xf32>) -> tensor<2x4x5x2xf32>
    return %9, %11 : tensor<2x5x3x5xf32>, tensor<2x4x5x2xf32>
  }
}
