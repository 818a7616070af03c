//! Profiling controls: times around executions, as a frontend's autotuning takes them.

mod common;

use std::time::Duration;

use common::*;

use AttributeName as A;
use AttributeType as T;

const BAD: Status = Status::BAD_PARAM;

fn command(control: &Desc, attribute: A) -> Status {
    control.try_set(attribute, T::BOOLEAN, &[1u8])
}

#[test]
fn a_time_lies_between_start_and_stop() {
    let _turn = turn();
    let handle = OwnedHandle::new();
    let control = Desc::new(DescriptorType::PROFILING_CONTROL_EXT);
    assert_eq!(command(&control, A::PROFILING_START_EXT), BAD, "no handle");
    assert_eq!(control.try_finalize(), BAD, "no handle");
    let none = [std::ptr::null_mut::<Handle>()];
    assert_eq!(control.try_set(A::PROFILING_HANDLE_EXT, T::HANDLE, &none), Status::BAD_PARAM_NULL_POINTER);
    control.set(A::PROFILING_HANDLE_EXT, T::HANDLE, &[handle.0]);
    assert_eq!(command(&control, A::PROFILING_DEVICE_SYNC_EXT), OK);
    assert_eq!(command(&control, A::PROFILING_STOP_EXT), BAD, "stop before start");
    assert_eq!(control.try_finalize(), BAD, "no start");
    assert_eq!(control.try_set(A::PROFILING_START_EXT, T::INT64, &[1i64]), BAD, "type");
    assert_eq!(control.try_set(A::PROFILING_START_EXT, T::BOOLEAN, &[1u8, 1]), BAD, "count");

    let before = std::time::Instant::now();
    assert_eq!(command(&control, A::PROFILING_START_EXT), OK);
    assert_eq!(command(&control, A::PROFILING_START_EXT), BAD, "twice");
    assert_eq!(control.try_finalize(), BAD, "no stop");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(command(&control, A::PROFILING_STOP_EXT), OK);
    let most = before.elapsed().as_secs_f32() * 1e3;
    assert_eq!(command(&control, A::PROFILING_STOP_EXT), BAD, "twice");
    let elapsed = |out: &mut [f32]| control.try_get(A::PROFILING_ELAPSED_MS_EXT, T::FLOAT, out);
    assert_eq!(elapsed(&mut [0.0]).0, Status::NOT_INITIALIZED);
    std::thread::sleep(Duration::from_millis(20));
    control.finalize();
    assert_eq!(control.try_finalize(), BAD, "twice");
    let mut time = [0f32];
    assert_eq!(elapsed(&mut time), (OK, 1));
    assert!((20.0..=most).contains(&time[0]), "expected 20 to {most} ms, got {}", time[0]);
    assert_eq!(command(&control, A::PROFILING_START_EXT), Status::NOT_INITIALIZED, "it is finalized");
    assert_eq!(control.try_get(A::PROFILING_START_EXT, T::BOOLEAN, &mut [0u8]).0, Status::NOT_SUPPORTED);
}
