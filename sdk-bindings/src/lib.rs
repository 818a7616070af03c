//! Raw C ABIs, no logic: what hipDNN, HIP, MIOpen and ONNX Runtime look like from outside.
pub mod hipdnn;
