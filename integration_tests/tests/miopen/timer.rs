//! The backend's profiling controls on two devices: times are of the stream's device, whichever is the thread's.

use hipdnn_rs_integration_tests::artifacts::{Artifact, library_path};
use hipdnn_rs_integration_tests::backend::{BackendError, Client, Descriptor, Handle};
use hipdnn_rs_integration_tests::emulator::HipError;
use hipdnn_sdk_bindings::hipdnn::backend::{AttributeName as Name, AttributeType as Type, DescriptorType as Kind};

use crate::bench::hip;
use crate::child::Child;
use crate::harness::Test;
use crate::trace::scratch;

/// The role: times streams of two devices.
pub(crate) const ROLE: &str = "times two devices";

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::new("times are of the stream's device", || {
        Child::of(ROLE).env("HIPEMU_DEVICES", "2").succeeds()?;
        Ok(())
    })]
}

/// The role.
pub(crate) fn two_devices() -> Result<(), String> {
    let hip_text = |error: HipError| error.to_string();
    let client = Client::installed(&scratch("timer-installed"), &[library_path(Artifact::Plugin)]);
    for of_stream in [1, 0] {
        hip().set_device(of_stream).map_err(hip_text)?;
        let stream = hip().stream().map_err(hip_text)?;
        let handle = client.handle().map_err(|error| error.message)?;
        // SAFETY: the handle is live, and goes before the stream.
        let status = unsafe { (client.table().set_stream)(handle.raw(), stream.raw()) };
        client.check(status).map_err(|error| error.message)?;
        for current in [0, 1] {
            hip().set_device(current).map_err(hip_text)?;
            let within =
                |problem: String| format!("a stream of device {of_stream} on a thread of {current}: {problem}");
            let control = client.descriptor(Kind::PROFILING_CONTROL_EXT).map_err(|error| error.message)?;
            let milliseconds = timed(&handle, &control).map_err(|error| within(error.message))?;
            if !(0.0..60e3).contains(&milliseconds) {
                return Err(within(format!("expected a time, got {milliseconds} ms")));
            }
            let left = hip().device().map_err(hip_text)?;
            if left != current {
                return Err(within(format!("the thread is left on device {left}")));
            }
        }
    }
    Ok(())
}

/// The time of nothing on the handle's stream, as a client takes it.
fn timed(handle: &Handle, control: &Descriptor) -> Result<f32, BackendError> {
    control.set(Name::PROFILING_HANDLE_EXT, Type::HANDLE, &[handle.raw()])?;
    for command in [Name::PROFILING_DEVICE_SYNC_EXT, Name::PROFILING_START_EXT, Name::PROFILING_STOP_EXT] {
        control.set(command, Type::BOOLEAN, &[1u8])?;
    }
    control.finalize()?;
    let mut milliseconds = [f32::NAN];
    control.get_into(Name::PROFILING_ELAPSED_MS_EXT, Type::FLOAT, &mut milliseconds)?;
    Ok(milliseconds[0])
}
