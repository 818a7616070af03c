//! Kernel compiler: from a graph to kernels, without a device.
//!
//! ```text
//! Graph ─► lower ─► Work ─► fuse ─► Stage ─► arrange ─► Task ─► emit ─► KernelSource
//! ```
//!
//! The CPU engine takes kernels over groups from `Stage`, and runs them in rows.
//!
//! | module | holds |
//! |---|---|
//! | [`ir`] | operations of nodes: element-wise formulas, loop nests over groups, convolutions |
//! | [`lower`] | a graph's nodes as operations, or the reason why not |
//! | [`fuse`] | operations that are one kernel |
//! | [`arrange`] | kernels over memory: layouts, copies, temporaries |
//! | [`convolution`] | convolutions as libraries of kernels are asked for them |
//! | [`emit`] | the text of kernels, and their arguments |

#![forbid(unsafe_code)]

pub mod arrange;
pub mod convolution;
pub mod emit;
pub mod fuse;
pub mod ir;
pub mod lower;
