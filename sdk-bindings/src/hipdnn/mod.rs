//! hipDNN's two C ABIs: engine plugins (`plugin`) and the backend library (`backend`).
