//! Matrix products.

use hipdnn_schemas::{Convolution, ConvolutionFwd, Extents, Matmul, Operation, PointwiseMode};

use super::{Declined, Importer, OnGpu, Operator, broadcast, declined, microsoft, sums};
use crate::ir::ValueId;
use crate::model::Target;

pub(super) const OPERATORS: &[Operator] = &[
    sums("Gemm", gemm).on_gpu(OnGpu::OneBatch),
    sums("MatMul", matmul).on_gpu(OnGpu::OneBatch),
    microsoft("FusedMatMul", fused_matmul).on_gpu(OnGpu::OneBatch),
];

impl Importer<'_> {
    /// `a · b` over the last two dimensions, the others broadcast.
    pub(super) fn product(&mut self, a: ValueId, b: ValueId) -> Result<ValueId, Declined> {
        let (product, dims) = self.product_in_form(a, b)?;
        Ok(self.reshape(product, &dims))
    }

    /// `a · b` as engines give it, and the extents that it is to be reshaped to.
    fn product_in_form(&mut self, a: ValueId, b: ValueId) -> Result<(ValueId, Extents), Declined> {
        let (a, b) = (self.apart(a), self.apart(b));
        let rank = self.rank(a).max(self.rank(b));
        let (a, b) = (self.ranked(a, rank), self.ranked(b, rank));
        let (left, right) = (self.dims(a), self.dims(b));
        if left[rank - 1] != right[rank - 2] {
            return declined(format!("expected {} rows of the second matrix, got {}", left[rank - 1], right[rank - 2]));
        }
        let mut dims = broadcast(&left[..rank - 2], &right[..rank - 2])?;
        dims.extend([left[rank - 2], right[rank - 1]]);
        let data_type = self.data_type(a);
        if left[rank - 1] == 0 && !dims.contains(&0) {
            return Ok((self.filled(data_type, &dims, 0.0)?, dims));
        }
        let product = if self.model.target == Target::Gpu {
            self.product_as_convolution(a, b)
        } else {
            self.emit(data_type, &dims, |c| Operation::Matmul(Matmul { a: a.uid(), b: b.uid(), c: c.uid() }))
        };
        Ok((product?, dims))
    }

    /// `a · b`, of as many dimensions, as a convolution with a filter of one tap, which engines for GPUs have instead.
    ///
    /// Rows of `a` are filters over the image that the rows of `b` are the channels of; where `b` is stored by columns, these
    /// are the filters, and the rows of `a` images of one pixel. So nothing is transposed. Filters are the same for all images:
    /// one of the factors is no batch.
    fn product_as_convolution(&mut self, a: ValueId, b: ValueId) -> Result<ValueId, Declined> {
        let (left, right) = (self.dims(a), self.dims(b));
        let rank = left.len();
        let (rows, depth, columns) = (left[rank - 2], left[rank - 1], right[rank - 1]);
        let batch = |dims: &[i64]| dims[..rank - 2].iter().product::<i64>();
        let strides = self.function.value(b).strides.clone();
        let by_columns = strides[rank - 2] == 1 && strides[rank - 1] == depth && columns > 1 && depth > 1;
        let (x, w, y) = match (batch(&left), batch(&right)) {
            (images, 1) if by_columns => {
                let filters = self.transposed(b);
                let w = self.reshape(filters, &[columns, depth, 1, 1]);
                let x = self.reshape(a, &[images * rows, depth, 1, 1]);
                (x, w, [images * rows, columns, 1, 1])
            }
            (images, 1) => {
                let w = self.reshape(a, &[images * rows, depth, 1, 1]);
                (self.reshape(b, &[1, depth, 1, columns]), w, [1, images * rows, 1, columns])
            }
            (1, images) => {
                let w = self.reshape(a, &[rows, depth, 1, 1]);
                (self.reshape(b, &[images, depth, 1, columns]), w, [images, rows, 1, columns])
            }
            (images, others) => {
                return declined(format!(
                    "engines for GPUs have no products of two batches of matrices, got {images} and {others}"
                ));
            }
        };
        let data_type = self.data_type(a);
        let convolution = Convolution::new(2);
        self.emit(data_type, &y, |y| {
            Operation::ConvolutionFwd(ConvolutionFwd { x: x.uid(), w: w.uid(), y: y.uid(), convolution })
        })
    }

    /// The last two dimensions swapped.
    fn transposed(&mut self, id: ValueId) -> ValueId {
        let rank = self.rank(id);
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(rank - 1, rank - 2);
        self.function.transpose(id, &order)
    }
}

fn matmul(n: &mut Importer<'_>) -> Result<(), Declined> {
    let (a, b) = (n.float_input(0)?, n.float_input(1)?);
    let (left, right) = (n.dims(a), n.dims(b));
    if left.is_empty() || right.is_empty() {
        return declined("a factor is a scalar");
    }
    // A vector is a row on the left and a column on the right, and leaves its dimension out of the product.
    let a = if left.len() == 1 { n.reshape(a, &[1, left[0]]) } else { a };
    let b = if right.len() == 1 { n.reshape(b, &[right[0], 1]) } else { b };
    let c = n.product(a, b)?;
    let mut dims = n.dims(c);
    if right.len() == 1 {
        dims.pop();
    }
    if left.len() == 1 {
        dims.remove(dims.len() - if right.len() == 1 { 1 } else { 2 });
    }
    let c = n.reshape(c, &dims);
    n.output(0, c);
    Ok(())
}

fn fused_matmul(n: &mut Importer<'_>) -> Result<(), Declined> {
    let (mut a, mut b) = (n.float_input(0)?, n.float_input(1)?);
    if n.rank(a) < 2 || n.rank(b) < 2 || n.int("transBatchA", 0) != 0 || n.int("transBatchB", 0) != 0 {
        return declined("vectors and transposed batches are not imported");
    }
    if n.int("transA", 0) != 0 {
        a = n.transposed(a);
    }
    if n.int("transB", 0) != 0 {
        b = n.transposed(b);
    }
    let mut c = n.product(a, b)?;
    let alpha = n.float("alpha", 1.0);
    if alpha != 1.0 {
        c = n.with_number(PointwiseMode::Mul, c, alpha)?;
    }
    n.output(0, c);
    Ok(())
}

/// `alpha·a·b + beta·c`
fn gemm(n: &mut Importer<'_>) -> Result<(), Declined> {
    let (mut a, mut b) = (n.float_input(0)?, n.float_input(1)?);
    if n.rank(a) != 2 || n.rank(b) != 2 {
        return declined(format!("expected matrices, got {} and {} dimensions", n.rank(a), n.rank(b)));
    }
    if n.int("transA", 0) != 0 {
        a = n.transposed(a);
    }
    if n.int("transB", 0) != 0 {
        b = n.transposed(b);
    }
    // What is done with the product is done in the form that it comes in: a view would end its region.
    let (mut y, dims) = n.product_in_form(a, b)?;
    let form = n.dims(y);
    let (alpha, beta) = (n.float("alpha", 1.0), n.float("beta", 1.0));
    if alpha != 1.0 {
        y = n.with_number(PointwiseMode::Mul, y, alpha)?;
    }
    if n.has_input(2) && beta != 0.0 {
        let mut c = n.operand(2)?;
        if beta != 1.0 {
            c = n.with_number(PointwiseMode::Mul, c, beta)?;
        }
        let own = n.dims(c);
        if own.len() > 2 || !broadcast(&own, &dims).is_ok_and(|both| *both == *dims) {
            return declined(format!("expected a C that broadcasts to {dims:?}, got {own:?}"));
        }
        let c = n.ranked(c, 2);
        let [rows, columns] = [0, 1].map(|axis| n.dims(c)[axis]);
        let c = match form.len() {
            2 => c,
            // Each row is an image, or each column a pixel.
            _ if form[2..] == [1, 1] && form[..2] == *dims => n.reshape(c, &[rows, columns, 1, 1]),
            _ => n.reshape(c, &[1, rows, 1, columns]),
        };
        y = n.binary(PointwiseMode::Add, y, c)?;
    }
    let y = n.reshape(y, &dims);
    n.output(0, y);
    Ok(())
}
