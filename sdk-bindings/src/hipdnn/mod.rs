//! hipDNN's two C ABIs: engine plugins ([`plugin`]) and the backend library ([`backend`]); and this project's extension
//! of the former ([`extension`]).

pub mod backend;
pub mod extension;
pub mod plugin;
