module attributes {hipdnn.name = "small"} {
  func.func private @graph_0(memref<2x3x4x5xf32, strided<[60, 20, 5, 1], offset: ?>>, memref<2x3x1x1xf32, strided<[3, 1, 1, 1], offset: ?>>, memref<2x2x4x5xf32, strided<[40, 20, 5, 1], offset: ?>>, memref<2x2x4x5xf32, strided<[100, 20, 5, 1], offset: ?>>) attributes {hipdnn.engine = "ENGINE", hipdnn.workspace = 64 : i64}
  func.func private @graph_1(memref<2x3x4x5xf32, strided<[60, 20, 5, 1], offset: ?>>, memref<2x3x4x5xf32, strided<[100, 20, 5, 1], offset: ?>>) attributes {hipdnn.engine = "ENGINE", hipdnn.workspace = 64 : i64}
  func.func private @graph_2(memref<2x5x3x5xf32, strided<[100, 20, 5, 1], offset: ?>>, memref<2x5x3x5xf32, strided<[75, 15, 5, 1], offset: ?>>) attributes {hipdnn.engine = "ENGINE", hipdnn.workspace = 64 : i64}
  func.func private @graph_3(memref<2x4x5x2xf32, strided<[40, 5, 1, 20], offset: ?>>, memref<2x4x5x2xf32, strided<[40, 10, 2, 1], offset: ?>>) attributes {hipdnn.engine = "ENGINE", hipdnn.workspace = 64 : i64}
  func.func @main(%in0: memref<2x3x4x5xf32>, %in1: memref<2x3x1x1xf32>, %in2: memref<1xi64>, %in3: memref<1xi64>, %in4: memref<1xi64>, %out0: memref<2x5x3x5xf32>, %out1: memref<2x4x5x2xf32>, %arena: memref<1152xi8>) attributes {hipdnn.workspace = 64 : i64} {
    %0 = memref.reinterpret_cast %in0 to offset: [0], sizes: [2, 3, 4, 5], strides: [60, 20, 5, 1] : memref<2x3x4x5xf32> to memref<2x3x4x5xf32, strided<[60, 20, 5, 1], offset: 0>>
    %1 = memref.cast %0 : memref<2x3x4x5xf32, strided<[60, 20, 5, 1], offset: 0>> to memref<2x3x4x5xf32, strided<[60, 20, 5, 1], offset: ?>>
    %2 = memref.reinterpret_cast %in1 to offset: [0], sizes: [2, 3, 1, 1], strides: [3, 1, 1, 1] : memref<2x3x1x1xf32> to memref<2x3x1x1xf32, strided<[3, 1, 1, 1], offset: 0>>
    %3 = memref.cast %2 : memref<2x3x1x1xf32, strided<[3, 1, 1, 1], offset: 0>> to memref<2x3x1x1xf32, strided<[3, 1, 1, 1], offset: ?>>
    %4 = arith.constant 832 : index
    %5 = memref.view %arena[%4][] : memref<1152xi8> to memref<80xf32>
    %6 = memref.reinterpret_cast %5 to offset: [0], sizes: [2, 2, 4, 5], strides: [40, 20, 5, 1] : memref<80xf32> to memref<2x2x4x5xf32, strided<[40, 20, 5, 1], offset: 0>>
    %7 = memref.cast %6 : memref<2x2x4x5xf32, strided<[40, 20, 5, 1], offset: 0>> to memref<2x2x4x5xf32, strided<[40, 20, 5, 1], offset: ?>>
    %8 = arith.constant 0 : index
    %9 = memref.view %arena[%8][] : memref<1152xi8> to memref<200xf32>
    %10 = memref.reinterpret_cast %9 to offset: [0], sizes: [2, 2, 4, 5], strides: [100, 20, 5, 1] : memref<200xf32> to memref<2x2x4x5xf32, strided<[100, 20, 5, 1], offset: 0>>
    %11 = memref.cast %10 : memref<2x2x4x5xf32, strided<[100, 20, 5, 1], offset: 0>> to memref<2x2x4x5xf32, strided<[100, 20, 5, 1], offset: ?>>
    func.call @graph_0(%1, %3, %7, %11) {hipdnn.step = 0 : i64, hipdnn.nodes = ["the_conv", "the_relu", "the_concat"]} : (memref<2x3x4x5xf32, strided<[60, 20, 5, 1], offset: ?>>, memref<2x3x1x1xf32, strided<[3, 1, 1, 1], offset: ?>>, memref<2x2x4x5xf32, strided<[40, 20, 5, 1], offset: ?>>, memref<2x2x4x5xf32, strided<[100, 20, 5, 1], offset: ?>>) -> ()
    %12 = memref.reinterpret_cast %9 to offset: [40], sizes: [2, 3, 4, 5], strides: [100, 20, 5, 1] : memref<200xf32> to memref<2x3x4x5xf32, strided<[100, 20, 5, 1], offset: 40>>
    %13 = memref.cast %12 : memref<2x3x4x5xf32, strided<[100, 20, 5, 1], offset: 40>> to memref<2x3x4x5xf32, strided<[100, 20, 5, 1], offset: ?>>
    func.call @graph_1(%1, %13) {hipdnn.step = 1 : i64, hipdnn.nodes = ["the_concat"]} : (memref<2x3x4x5xf32, strided<[60, 20, 5, 1], offset: ?>>, memref<2x3x4x5xf32, strided<[100, 20, 5, 1], offset: ?>>) -> ()
    %14 = memref.reinterpret_cast %9 to offset: [5], sizes: [2, 5, 3, 5], strides: [100, 20, 5, 1] : memref<200xf32> to memref<2x5x3x5xf32, strided<[100, 20, 5, 1], offset: 5>>
    %15 = memref.cast %14 : memref<2x5x3x5xf32, strided<[100, 20, 5, 1], offset: 5>> to memref<2x5x3x5xf32, strided<[100, 20, 5, 1], offset: ?>>
    %16 = memref.reinterpret_cast %out0 to offset: [0], sizes: [2, 5, 3, 5], strides: [75, 15, 5, 1] : memref<2x5x3x5xf32> to memref<2x5x3x5xf32, strided<[75, 15, 5, 1], offset: 0>>
    %17 = memref.cast %16 : memref<2x5x3x5xf32, strided<[75, 15, 5, 1], offset: 0>> to memref<2x5x3x5xf32, strided<[75, 15, 5, 1], offset: ?>>
    func.call @graph_2(%15, %17) {hipdnn.step = 2 : i64, hipdnn.nodes = ["the_neg"]} : (memref<2x5x3x5xf32, strided<[100, 20, 5, 1], offset: ?>>, memref<2x5x3x5xf32, strided<[75, 15, 5, 1], offset: ?>>) -> ()
    %18 = memref.reinterpret_cast %5 to offset: [0], sizes: [2, 4, 5, 2], strides: [40, 5, 1, 20] : memref<80xf32> to memref<2x4x5x2xf32, strided<[40, 5, 1, 20], offset: 0>>
    %19 = memref.cast %18 : memref<2x4x5x2xf32, strided<[40, 5, 1, 20], offset: 0>> to memref<2x4x5x2xf32, strided<[40, 5, 1, 20], offset: ?>>
    %20 = memref.reinterpret_cast %out1 to offset: [0], sizes: [2, 4, 5, 2], strides: [40, 10, 2, 1] : memref<2x4x5x2xf32> to memref<2x4x5x2xf32, strided<[40, 10, 2, 1], offset: 0>>
    %21 = memref.cast %20 : memref<2x4x5x2xf32, strided<[40, 10, 2, 1], offset: 0>> to memref<2x4x5x2xf32, strided<[40, 10, 2, 1], offset: ?>>
    func.call @graph_3(%19, %21) {hipdnn.step = 3 : i64, hipdnn.nodes = ["the_transpose"]} : (memref<2x4x5x2xf32, strided<[40, 5, 1, 20], offset: ?>>, memref<2x4x5x2xf32, strided<[40, 10, 2, 1], offset: ?>>) -> ()
    return
  }
}
