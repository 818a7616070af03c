//! Kernels for CPUs that know no graph: rows, sums and blocks of values.
//!
//! [`activation`] is shared by the epilogues of convolutions and kernels of rows, [`sums`], [`extremes`], [`normalize`] and
//! [`norm_lines`] by kernels of rows, of reductions and of normalizations. [`attention`] has the products and the softmax of blocks
//! that lie in the cache, [`product`] matrix products, [`few_rows`] those of a few rows, [`pooling`] windows over images,
//! [`transpose`] copies whose rows become columns.

pub mod activation;
pub mod attention;
pub mod extremes;
pub mod few_rows;
pub mod norm_lines;
pub mod normalize;
pub mod pooling;
pub mod product;
pub mod softmax;
pub mod sums;
pub mod transpose;
