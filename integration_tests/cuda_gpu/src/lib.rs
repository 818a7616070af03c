//! HIP's runtime, hiprtc and MIOpen's convolutions over the CUDA driver, NVRTC and cuDNN, in one library that is installed under the
//! three names: the unchanged plugin, provider and suites run on an NVIDIA GPU. A vehicle for tests and measurements, not a product.
//!
//! Nothing of CUDA is needed to build it. `libcuda`, `libnvrtc` and `libcudnn` are opened when the first call needs them; without the
//! driver these calls fail and standard error has the reason; without NVRTC compilations fail, and their log has it; without cuDNN a
//! plain kernel computes all convolutions, and standard error says so.
//!
//! | module | what it has |
//! |---|---|
//! | `device` | the driver, its devices, and the calling thread's current one |
//! | `status` | CUDA's results as HIP's statuses, the thread's last error, the border that no panic crosses |
//! | `hip` | the functions of `libamdhip64` |
//! | `rtc` | the functions of `libhiprtc`, and HIP's text as NVRTC takes it |
//! | `miopen` | the functions of `libMIOpen` that convolutions need, by cuDNN and by a plain kernel |

mod device;
mod hip;
mod miopen;
mod rtc;
mod status;
