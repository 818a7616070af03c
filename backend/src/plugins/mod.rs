//! Engine plugins: search for their files ([`search`]), a loaded plugin ([`loaded`]), the process's set of them
//! ([`manager`]), and one handle's view of them ([`resources`]).

mod api;
pub(crate) mod loaded;
pub(crate) mod manager;
pub(crate) mod resources;
pub(crate) mod search;

pub(crate) use resources::Resources;
