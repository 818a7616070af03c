//! Builder of graphs.

use crate::{
    Convolution, ConvolutionFwd, DataType, Graph, GraphDef, GraphError, Node, Operation, Pointwise, PointwiseMode,
    TensorDef, TensorUid,
};

/// Collects tensors and nodes; [`GraphBuilder::build`] checks them.
///
/// ```
/// use hipdnn_schemas::{Convolution, DataType, GraphBuilder, Pointwise, PointwiseMode, TensorDef};
///
/// let mut graph = GraphBuilder::new("conv_relu").compute(DataType::Float);
/// let x = graph.tensor(TensorDef::new(1, DataType::Float, &[1, 3, 8, 8]));
/// let w = graph.tensor(TensorDef::new(2, DataType::Float, &[16, 3, 3, 3]));
/// let c = graph.tensor(TensorDef::new(3, DataType::Float, &[1, 16, 6, 6]).intermediate());
/// let y = graph.tensor(TensorDef::new(4, DataType::Float, &[1, 16, 6, 6]));
/// graph.convolution_fwd(x, w, c, Convolution::new(2));
/// graph.pointwise(Pointwise::unary(PointwiseMode::ReluFwd, c, y));
/// let graph = graph.build()?;
/// assert_eq!(graph.consumers(c), [1]);
/// # Ok::<(), hipdnn_schemas::GraphError>(())
/// ```
#[derive(Clone, Debug)]
pub struct GraphBuilder {
    def: GraphDef,
}

impl GraphBuilder {
    /// An empty graph.
    pub fn new(name: impl Into<String>) -> GraphBuilder {
        GraphBuilder { def: GraphDef { name: name.into(), ..GraphDef::default() } }
    }

    /// Sets the type that nodes compute in unless they say otherwise.
    pub fn compute(mut self, data_type: DataType) -> GraphBuilder {
        self.def.compute_data_type = data_type;
        self
    }

    /// Adds a tensor and gives its uid back.
    pub fn tensor(&mut self, tensor: TensorDef) -> TensorUid {
        let uid = tensor.uid;
        self.def.tensors.push(tensor);
        uid
    }

    /// Adds a node.
    pub fn node(&mut self, name: impl Into<String>, operation: Operation) -> &mut GraphBuilder {
        self.def.nodes.push(Node { name: name.into(), compute_data_type: DataType::Unset, operation });
        self
    }

    /// Adds `y = conv(x, w)`.
    pub fn convolution_fwd(
        &mut self,
        x: TensorUid,
        w: TensorUid,
        y: TensorUid,
        convolution: Convolution,
    ) -> &mut GraphBuilder {
        self.node("", Operation::ConvolutionFwd(ConvolutionFwd { x, w, y, convolution }))
    }

    /// Adds an element-wise operation.
    pub fn pointwise(&mut self, pointwise: Pointwise) -> &mut GraphBuilder {
        self.node("", Operation::Pointwise(pointwise))
    }

    /// The description so far, unchecked.
    pub fn def(&self) -> &GraphDef {
        &self.def
    }

    /// The description so far, for changes that have no method here.
    pub fn def_mut(&mut self) -> &mut GraphDef {
        &mut self.def
    }

    /// Checks the collected description.
    ///
    /// # Errors
    /// As [`Graph::new`].
    pub fn build(self) -> Result<Graph, GraphError> {
        Graph::new(self.def)
    }
}

impl Pointwise {
    /// `out = mode(in_0)`.
    pub fn unary(mode: PointwiseMode, in_0: TensorUid, out_0: TensorUid) -> Pointwise {
        Pointwise {
            mode,
            in_0,
            in_1: None,
            in_2: None,
            out_0,
            relu_lower_clip: None,
            relu_upper_clip: None,
            relu_lower_clip_slope: None,
            axis: None,
            swish_beta: None,
            elu_alpha: None,
            softplus_beta: None,
        }
    }

    /// `out = mode(in_0, in_1)`.
    pub fn binary(mode: PointwiseMode, in_0: TensorUid, in_1: TensorUid, out_0: TensorUid) -> Pointwise {
        Pointwise { in_1: Some(in_1), ..Pointwise::unary(mode, in_0, out_0) }
    }
}
