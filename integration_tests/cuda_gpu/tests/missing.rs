//! The library without a driver: it opens, and says that there is no device.

mod library;

use hipdnn_sdk_bindings::hip::{self, hipError_t};

#[test]
fn without_a_driver_there_is_no_device() {
    let library = library::open();
    // SAFETY: the library's functions of these names have HIP's signatures.
    let hip = unsafe { hip::Functions::load(&library) }.expect("all required functions of HIP");
    let mut count = 77;
    // SAFETY: a place for one number.
    let status = unsafe { (hip.hipGetDeviceCount)(&mut count) };
    if status == hipError_t::hipSuccess {
        println!("skipped: this machine has a CUDA driver");
        return;
    }
    assert_eq!((status, count), (hipError_t::hipErrorNoDevice, 0));
    let mut memory = std::ptr::null_mut();
    // SAFETY: a place for one address.
    assert_eq!(unsafe { (hip.hipMalloc)(&mut memory, 4) }, hipError_t::hipErrorNoDevice);
    assert!(memory.is_null());
}
