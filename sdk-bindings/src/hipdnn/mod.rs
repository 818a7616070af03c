//! hipDNN's two C ABIs: engine plugins ([`plugin`]) and the backend library ([`backend`]).

pub mod backend;
pub mod plugin;
