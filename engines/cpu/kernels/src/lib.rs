//! Kernels for CPUs that know no graph: rows, sums and blocks of values.
//!
//! [`activation`] is shared by the epilogues of convolutions and kernels of rows, [`sums`], [`extremes`], [`normalize`] and
//! [`norm_lines`] by kernels of rows, of reductions and of normalizations. [`attention`] has the products and the softmax of blocks
//! that lie in the cache, [`product`] matrix products, [`few_rows`] those of a few rows, [`pooling`] windows over images,
//! [`lines`] and [`transpose`] copies whose lines keep their order, and whose rows become columns, [`spread`] rows whose values are
//! repeated, [`links`] several functions of a row at once.

pub mod activation;
pub mod attention;
pub mod extremes;
pub mod few_rows;
pub mod lines;
pub mod links;
pub mod norm_lines;
pub mod normalize;
pub mod pooling;
pub mod product;
pub mod softmax;
pub mod spread;
pub mod sums;
pub mod transpose;
