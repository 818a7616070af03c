//! Tests that need a device.

use std::fmt::Display;

/// Says why a test is skipped.
///
/// # Panics
/// If `HIPDNN_RS_TEST_DEVICE` says that there is a device, so that no test there passes without one.
pub(super) fn skip(reason: &dyn Display) {
    let wanted = std::env::var_os("HIPDNN_RS_TEST_DEVICE");
    assert!(wanted.is_none(), "HIPDNN_RS_TEST_DEVICE is set, but there is no device: {reason}");
    println!("skipped: {reason}");
}
