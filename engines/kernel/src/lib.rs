//! Kernel compiler: from a graph to kernels, without a device.
//!
//! ```text
//! Graph ─► lower ─► Work ─► fuse ─► FusionGroup ─► legalize ─► Dispatch ─► emit ─► KernelSource
//! ```
//!
//! The CPU engine takes kernels over groups from `FusionGroup`, and runs them in rows.
//!
//! | module | holds |
//! |---|---|
//! | [`ir`] | operations of nodes: element-wise operations, loop nests over groups, convolutions |
//! | [`lower`] | a graph's nodes as operations, or the reason why not |
//! | [`fuse`] | operations that are one kernel |
//! | [`legalize`] | kernels over memory: layouts, copies, temporaries |
//! | [`convolution`] | convolutions as libraries of kernels are asked for them |
//! | [`emit`] | the text of kernels, and their arguments |

#![forbid(unsafe_code)]

pub mod convolution;
pub mod emit;
pub mod fuse;
pub mod ir;
pub mod legalize;
pub mod lower;
