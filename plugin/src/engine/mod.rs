//! The engines of the plugin.

pub mod host;
