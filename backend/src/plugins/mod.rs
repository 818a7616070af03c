//! Plugins: search for their files ([`search`]), a loaded one with engines ([`loaded`]) or with policies that rank them
//! ([`heuristics`]), the process's set of both ([`manager`]), and one handle's view of them ([`resources`]).

mod api;
pub(crate) mod heuristics;
pub(crate) mod loaded;
pub(crate) mod manager;
pub(crate) mod resources;
pub(crate) mod search;

pub(crate) use resources::Resources;
