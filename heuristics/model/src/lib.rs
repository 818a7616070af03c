//! How long an engine takes for a graph, in one configuration or another, without running it.
//!
//! ```text
//! graph ─► work: steps with operations and bytes ─┐
//! device properties ─► device: peak rates ────────┼─► cost: seconds ─┐
//! engine id ─► engine: what is known of it ───────┘                  ├─► ranking
//! graph ─► features ─► table: what was measured of its like ─────────┘
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`work`] | what a graph asks for: steps of fused nodes, each with its operations and the bytes that it moves |
//! | [`device`] | what a device can do a second: of GPUs by architecture, of the host by its CPU |
//! | [`engine`] | engines that are known by name, and the configurations of them that are worth a try |
//! | [`cost`] | the cost model: seconds from the three above |
//! | [`features`] | what makes graphs alike |
//! | [`table`] | measurements by features, and what they say of other graphs |
//! | [`store`] | the files of measurements, read with suspicion |
//! | [`ranking`] | the order of candidates |
//! | [`samples`] | layers of networks as graphs, by which rankings are judged |
//!
//! No device is touched: facts come from the host's words, and of the host's CPU from the operating system.

pub mod cost;
pub mod device;
pub mod engine;
pub mod features;
pub mod ranking;
pub mod samples;
pub mod store;
pub mod table;
pub mod work;
