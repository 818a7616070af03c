//! Engine plugins: where they are ([`search`]), what one is ([`loaded`]), which are loaded ([`manager`]), and one
//! handle's view of them ([`resources`]).

mod api;
pub(crate) mod loaded;
pub(crate) mod manager;
pub(crate) mod resources;
pub(crate) mod search;

pub(crate) use resources::Resources;
