//! Numbers in logical order, whatever a tensor's strides are.

use hipdnn_schemas::Tensor;

use crate::format;
use crate::number::Number;

/// A tensor's elements; the last dimension runs fastest.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// The extents.
    pub dims: Vec<usize>,
    /// As many numbers as the extents' product.
    pub data: Vec<Number>,
}

impl Array {
    /// The same number everywhere.
    pub fn filled(dims: &[usize], number: Number) -> Array {
        Array { dims: dims.to_vec(), data: vec![number; dims.iter().product()] }
    }

    /// An array whose elements are computed from their coordinates.
    pub fn from_fn(dims: &[usize], mut element: impl FnMut(&[usize]) -> Number) -> Array {
        let mut data = Vec::with_capacity(dims.iter().product());
        each_index(dims, |at| data.push(element(at)));
        Array { dims: dims.to_vec(), data }
    }

    /// The elements of a tensor in memory, which are exact.
    pub fn read(tensor: &Tensor, bytes: &[u8]) -> Array {
        let (data_type, strides) = (tensor.data_type(), tensor.strides());
        Array::from_fn(tensor.dims(), |at| {
            Number::exact(format::load(data_type, bytes, at.iter().zip(strides).map(|(i, stride)| i * stride).sum()))
        })
    }

    /// The element at these coordinates.
    pub fn at(&self, index: &[usize]) -> Number {
        self.data[self.position(index)]
    }

    /// Position in `data` of the element at these coordinates.
    pub fn position(&self, index: &[usize]) -> usize {
        index.iter().zip(&self.dims).fold(0, |position, (i, extent)| position * extent + i)
    }

    /// The element that an operand of extents 1 gives at a result's coordinates; a single element serves any rank.
    pub fn broadcast(&self, index: &[usize]) -> Number {
        if self.data.len() == 1 {
            return self.data[0];
        }
        let clipped = index.iter().zip(&self.dims).map(|(i, extent)| if *extent == 1 { 0 } else { *i });
        self.data[clipped.zip(&self.dims).fold(0, |position, (i, extent)| position * extent + i)]
    }

    /// The only element of a scalar.
    pub fn scalar(&self) -> Number {
        self.data[0]
    }
}

/// Calls `body` with all coordinates, the last one running fastest.
pub fn each_index(dims: &[usize], mut body: impl FnMut(&[usize])) {
    if dims.contains(&0) {
        return;
    }
    let mut at = vec![0; dims.len()];
    loop {
        body(&at);
        let mut axis = dims.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            at[axis] += 1;
            if at[axis] < dims[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use hipdnn_schemas::{DataType, Graph, GraphBuilder, Pointwise, PointwiseMode, TensorDef};

    use super::*;

    #[test]
    fn strides_are_followed() {
        let mut builder = GraphBuilder::new("").compute(DataType::Float);
        let x = builder.tensor(TensorDef::new(1, DataType::UInt8, &[2, 3]).strided(&[1, 2]));
        let y = builder.tensor(TensorDef::new(2, DataType::UInt8, &[2, 3]));
        builder.pointwise(Pointwise::unary(PointwiseMode::Identity, x, y));
        let graph: Graph = builder.build().expect("a valid graph");
        let array = Array::read(graph.tensor(x), &[0, 1, 2, 3, 4, 5]);
        let values: Vec<f64> = array.data.iter().map(|number| number.value).collect();
        assert_eq!(values, [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
        assert_eq!(array.at(&[1, 2]).value, 5.0);
        assert_eq!(Array::filled(&[1], Number::exact(7.0)).broadcast(&[1, 2, 3]).value, 7.0);
    }
}
