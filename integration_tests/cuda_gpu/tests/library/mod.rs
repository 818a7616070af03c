//! The library under test.

use hipdnn_sdk_bindings::library::Library;

/// The library that cargo built beside the test.
pub(crate) fn open() -> Library {
    let test = std::env::current_exe().expect("a test has a file");
    let file = test.with_file_name("libhipdnn_cuda_gpu.so");
    // SAFETY: the library is this package's, and has no initializers.
    unsafe { Library::open("HIP over CUDA", [file]) }.expect("cargo builds it before its tests")
}
