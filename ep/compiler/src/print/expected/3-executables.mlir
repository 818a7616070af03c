module attributes {hipdnn.name = "small"} {
  func.func private @graph_0(!torch.vtensor<[2,3,4,5],f32>, !torch.vtensor<[2,3,1,1],f32>) -> (!torch.vtensor<[2,2,4,5],f32>, !torch.vtensor<[2,2,4,5],f32>) attributes {hipdnn.engine = "ENGINE", hipdnn.workspace = 64 : i64}
  func.func private @graph_1(!torch.vtensor<[2,3,4,5],f32>) -> (!torch.vtensor<[2,3,4,5],f32>) attributes {hipdnn.engine = "ENGINE", hipdnn.workspace = 64 : i64}
  func.func private @graph_2(!torch.vtensor<[2,5,3,5],f32>) -> (!torch.vtensor<[2,5,3,5],f32>) attributes {hipdnn.engine = "ENGINE", hipdnn.workspace = 64 : i64}
  func.func private @graph_3(!torch.vtensor<[2,4,5,2],f32>) -> (!torch.vtensor<[2,4,5,2],f32>) attributes {hipdnn.engine = "ENGINE", hipdnn.workspace = 64 : i64}
  func.func @main(%in0: !torch.vtensor<[2,3,4,5],f32>, %in1: !torch.vtensor<[2,3,1,1],f32>, %in2: !torch.vtensor<[1],si64>, %in3: !torch.vtensor<[1],si64>, %in4: !torch.vtensor<[1],si64>) -> (!torch.vtensor<[2,5,3,5],f32>, !torch.vtensor<[2,4,5,2],f32>) {
    %0:2 = func.call @graph_0(%in0, %in1) {hipdnn.step = 0 : i64, hipdnn.nodes = ["the_conv", "the_relu", "the_concat"]} : (!torch.vtensor<[2,3,4,5],f32>, !torch.vtensor<[2,3,1,1],f32>) -> (!torch.vtensor<[2,2,4,5],f32>, !torch.vtensor<[2,2,4,5],f32>)
    %1 = func.call @graph_1(%in0) {hipdnn.step = 1 : i64, hipdnn.nodes = ["the_concat"]} : (!torch.vtensor<[2,3,4,5],f32>) -> !torch.vtensor<[2,3,4,5],f32>
    %2 = torch.operator "hipdnn.assemble"(%0#1, %1) {hipdnn.offsets = array<i64: 0, 40>, hipdnn.strides = [array<i64: 100, 20, 5, 1>, array<i64: 100, 20, 5, 1>]} : (!torch.vtensor<[2,2,4,5],f32>, !torch.vtensor<[2,3,4,5],f32>) -> !torch.vtensor<[2,5,4,5],f32>
    %3 = torch.constant.int 2
    %4 = torch.constant.int 5
    %5 = torch.constant.int 3
    %6 = torch.prim.ListConstruct %3, %4, %5, %4 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
    %7 = torch.constant.int 100
    %8 = torch.constant.int 20
    %9 = torch.constant.int 1
    %10 = torch.prim.ListConstruct %7, %8, %4, %9 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
    %11 = torch.aten.as_strided %2, %6, %10, %4 : !torch.vtensor<[2,5,4,5],f32>, !torch.list<int>, !torch.list<int>, !torch.int -> !torch.vtensor<[2,5,3,5],f32>
    %12 = func.call @graph_2(%11) {hipdnn.step = 2 : i64, hipdnn.nodes = ["the_neg"]} : (!torch.vtensor<[2,5,3,5],f32>) -> !torch.vtensor<[2,5,3,5],f32>
    %13 = torch.constant.int 4
    %14 = torch.prim.ListConstruct %3, %13, %4, %3 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
    %15 = torch.constant.int 40
    %16 = torch.prim.ListConstruct %15, %4, %9, %8 : (!torch.int, !torch.int, !torch.int, !torch.int) -> !torch.list<int>
    %17 = torch.constant.int 0
    %18 = torch.aten.as_strided %0#0, %14, %16, %17 : !torch.vtensor<[2,2,4,5],f32>, !torch.list<int>, !torch.list<int>, !torch.int -> !torch.vtensor<[2,4,5,2],f32>
    %19 = func.call @graph_3(%18) {hipdnn.step = 3 : i64, hipdnn.nodes = ["the_transpose"]} : (!torch.vtensor<[2,4,5,2],f32>) -> !torch.vtensor<[2,4,5,2],f32>
    return %12, %19 : !torch.vtensor<[2,5,3,5],f32>, !torch.vtensor<[2,4,5,2],f32>
  }
}
