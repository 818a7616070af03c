//! hipDNN's two C ABIs: engine plugins ([`plugin`]) and the backend library ([`backend`]); and what this project's plugin
//! has beyond ([`extension`]).

pub mod backend;
pub mod extension;
pub mod plugin;
