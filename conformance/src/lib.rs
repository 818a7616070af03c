//! Conformance of hipDNN engines.
//!
//! Cases ([`cases`]) are graphs with seeded inputs. An executor of its own ([`execute`]) computes each in double precision,
//! with a bound on every element that is derived from the types and operations ([`number`]). The runner ([`run`])
//! loads any plugin library, asks one of its engines for each graph, and judges what it claims. [`overrides`] compares
//! executions with override shapes with those of plans for these shapes.

pub mod array;
pub mod cases;
pub mod claims;
pub mod command;
pub mod execute;
pub mod format;
pub mod inputs;
pub mod memory;
pub mod number;
pub mod overrides;
pub mod plugin;
pub mod random;
pub mod report;
pub mod run;
pub mod strata;
pub mod workers;
