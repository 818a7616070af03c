//! The functions that `glibc_2_28` puts in the place of newer ones: this program is linked with them.
#![cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]

use std::fs;
use std::hint::black_box;

hipdnn_sdk_bindings::glibc_2_28!();

#[test]
fn files() {
    let path = std::env::temp_dir().join(format!("hipdnn-rs-glibc-{}", std::process::id()));
    fs::write(&path, [7; 12_345]).unwrap();
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let file = fs::File::open(&path).unwrap();
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file);
    let size = |read: &dyn Fn(*mut libc::stat64) -> i32| {
        // SAFETY: the structure is integers, of which all bits zero are values.
        let mut status: libc::stat64 = unsafe { std::mem::zeroed() };
        assert_eq!(read(&mut status), 0);
        status.st_size
    };
    // SAFETY: the name ends with a NUL, and the structure is valid for the call.
    assert_eq!(size(&|status| unsafe { libc::stat64(name.as_ptr(), status) }), 12_345);
    // SAFETY: the name ends with a NUL, and the structure is valid for the call.
    assert_eq!(size(&|status| unsafe { libc::lstat64(name.as_ptr(), status) }), 12_345);
    // SAFETY: the descriptor is open, and the structure is valid for the call.
    assert_eq!(size(&|status| unsafe { libc::fstat64(descriptor, status) }), 12_345);
    // SAFETY: the name ends with a NUL, and the structure is valid for the call.
    assert_eq!(size(&|status| unsafe { libc::fstatat64(libc::AT_FDCWD, name.as_ptr(), status, 0) }), 12_345);
    fs::remove_file(&path).unwrap();
    let mut status = std::mem::MaybeUninit::uninit();
    // SAFETY: the name ends with a NUL, and the structure is valid for the call.
    assert_eq!(unsafe { libc::stat64(name.as_ptr(), status.as_mut_ptr()) }, -1);
    assert_eq!(std::io::Error::last_os_error().kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn libraries() {
    // SAFETY: the C library is open already, and the function has this signature.
    unsafe {
        let library = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null());
        let abs = libc::dlsym(library, c"abs".as_ptr());
        assert!(!abs.is_null());
        let abs: extern "C" fn(i32) -> i32 = std::mem::transmute(abs);
        assert_eq!(abs(-5), 5);
        let mut info = std::mem::zeroed();
        assert_ne!(libc::dladdr(abs as *const std::ffi::c_void, &mut info), 0);
        assert!(libc::dlsym(library, c"no_such_function".as_ptr()).is_null());
        assert!(!libc::dlerror().is_null());
        assert_eq!(libc::dlclose(library), 0);
    }
}

#[test]
fn threads() {
    let named = std::thread::Builder::new().name("a-name".to_string()).stack_size(1 << 20);
    let work = || {
        // SAFETY: the call has no arguments that could be wrong.
        let (ours, kernels) = unsafe { (libc::gettid(), libc::syscall(libc::SYS_gettid)) };
        (i64::from(ours), kernels, fs::read_to_string("/proc/thread-self/comm").unwrap())
    };
    let (ours, kernels, name) = named.spawn(work).unwrap().join().unwrap();
    assert_eq!((ours, name.trim_end()), (kernels, "a-name"));
    assert!(std::thread::spawn(|| panic!("on purpose")).join().is_err());
}

#[test]
fn numbers() {
    for (got, want) in [
        (black_box(1f64).exp(), std::f64::consts::E),
        (black_box(3f64).exp2(), 8.0),
        (black_box(std::f64::consts::E).ln(), 1.0),
        (black_box(8f64).log2(), 3.0),
        (black_box(2f64).powf(0.5), std::f64::consts::SQRT_2),
        (black_box(1000f64).exp(), f64::INFINITY),
        (black_box(-1000f64).exp(), 0.0),
        (black_box(0f64).ln(), f64::NEG_INFINITY),
    ] {
        assert_eq!(got, want);
    }
    assert!(black_box(-1f64).ln().is_nan());
}
