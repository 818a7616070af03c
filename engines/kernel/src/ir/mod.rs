//! Intermediate representation: operations of a graph's nodes, element-wise formulas, and loop nests over groups.

pub mod elementwise;
pub mod group;
pub mod op;
