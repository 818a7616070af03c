//! Streams and notifications as the runtime holds them.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use hipdnn_sdk_bindings::ort::{self, Status, SyncNotificationImpl, SyncStreamImpl};

use super::Gpu;
use super::stream::{Event, Stream};
use crate::error::Error;
use crate::pointer::{Handles, Held, Place};
use crate::runtime::{Runtime, caught};

/// A stream, as the runtime holds it: its callbacks, then ours.
#[repr(C)]
pub(crate) struct SyncStream {
    callbacks: SyncStreamImpl,
    runtime: Runtime,
    stream: Arc<Stream>,
}

static STREAMS: Handles<SyncStream> = Handles::new("stream");

// SAFETY: the struct is `repr(C)` and begins with its callbacks.
unsafe impl Held for SyncStream {
    type Callbacks = SyncStreamImpl;

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

impl SyncStream {
    /// Makes the runtime's side of a stream; the runtime releases it.
    pub(crate) fn of(runtime: Runtime, stream: Arc<Stream>) -> *mut SyncStreamImpl {
        let callbacks = SyncStreamImpl {
            ort_version_supported: runtime.version(),
            release: Some(release),
            get_handle: Some(get_handle),
            create_notification: Some(create_notification),
            flush: Some(flush),
            on_session_run_end: Some(on_session_run_end),
        };
        let raw = Box::into_raw(Box::new(SyncStream { callbacks, runtime, stream })).cast();
        STREAMS.add(raw);
        raw
    }
}

/// The provider's stream that the runtime's is of; `None` of another provider's.
///
/// # Safety
/// `stream` is a living stream of the runtime.
pub(crate) unsafe fn stream_of(runtime: &Runtime, stream: *const ort::SyncStream) -> Option<Arc<Stream>> {
    // SAFETY: the caller's promise.
    let raw = unsafe { runtime.ep.sync_stream_get_impl()(stream) };
    STREAMS.look(raw, |stream| stream.stream.clone()).ok()
}

unsafe extern "system" fn release(this: *mut SyncStreamImpl) {
    // Neither a panic while dropping nor a stranger can be told.
    let _ = caught(|| {
        STREAMS.remove(this)?;
        // SAFETY: it was boxed, and is known no more.
        drop(unsafe { Box::from_raw(this.cast::<SyncStream>()) });
        Ok(())
    });
}

unsafe extern "system" fn get_handle(this: *mut SyncStreamImpl) -> *mut c_void {
    STREAMS.look(this, |stream| stream.stream.raw().cast()).unwrap_or(null_mut())
}

unsafe extern "system" fn create_notification(
    this: *mut SyncStreamImpl,
    notification: *mut *mut SyncNotificationImpl,
) -> *mut Status {
    STREAMS.with(this, |stream| {
        // SAFETY: the place is the runtime's, if it is one.
        let place = unsafe { Place::new(notification, "the place for the notification") }?;
        place.set(Notification::of(stream.runtime, Event::new(stream.stream.clone())?));
        Ok(())
    })
}

/// The runtime ends a run so: what it enqueued is done when this returns.
unsafe extern "system" fn flush(this: *mut SyncStreamImpl) -> *mut Status {
    STREAMS.with(this, |stream| {
        // The end of the run has waited already, unless it was told not to; a capture is not waited for before it ends.
        if !stream.stream.is_busy() || stream.stream.capture() != super::arena::SHARED {
            return Ok(());
        }
        stream.stream.synchronize().map_err(|error| failure(stream.stream.gpu(), &error))
    })
}

/// `Flush` comes next, and waits.
unsafe extern "system" fn on_session_run_end(_this: *mut SyncStreamImpl) -> *mut Status {
    null_mut()
}

/// The error of work that failed on a device.
pub(crate) fn failure(gpu: &Gpu, error: &super::hip::HipError) -> Error {
    Error::failed(format!("{}: device {} ({}): {error}", crate::NAME_TEXT, gpu.ordinal(), gpu.name))
}

/// A notification, as the runtime holds it: its callbacks, then ours.
#[repr(C)]
struct Notification {
    callbacks: SyncNotificationImpl,
    runtime: Runtime,
    event: Event,
}

static NOTIFICATIONS: Handles<Notification> = Handles::new("notification");

// SAFETY: the struct is `repr(C)` and begins with its callbacks.
unsafe impl Held for Notification {
    type Callbacks = SyncNotificationImpl;

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

impl Notification {
    fn of(runtime: Runtime, event: Event) -> *mut SyncNotificationImpl {
        let callbacks = SyncNotificationImpl {
            ort_version_supported: runtime.version(),
            release: Some(release_notification),
            activate: Some(activate),
            wait_on_device: Some(wait_on_device),
            wait_on_host: Some(wait_on_host),
        };
        let raw = Box::into_raw(Box::new(Notification { callbacks, runtime, event })).cast();
        NOTIFICATIONS.add(raw);
        raw
    }
}

unsafe extern "system" fn release_notification(this: *mut SyncNotificationImpl) {
    // Neither a panic while dropping nor a stranger can be told.
    let _ = caught(|| {
        NOTIFICATIONS.remove(this)?;
        // SAFETY: it was boxed, and is known no more.
        drop(unsafe { Box::from_raw(this.cast::<Notification>()) });
        Ok(())
    });
}

unsafe extern "system" fn activate(this: *mut SyncNotificationImpl) -> *mut Status {
    NOTIFICATIONS.with(this, |notification| {
        notification.event.record();
        Ok(())
    })
}

unsafe extern "system" fn wait_on_device(
    this: *mut SyncNotificationImpl,
    consumer: *mut ort::SyncStream,
) -> *mut Status {
    NOTIFICATIONS.with(this, |notification| {
        let event = &notification.event;
        // SAFETY: the consumer is the runtime's, alive during the call, if it is one.
        let ours = (!consumer.is_null()).then(|| unsafe { stream_of(&notification.runtime, consumer) }).flatten();
        let waited = match ours {
            Some(ours) => event.hold(&ours),
            // A stream of another provider does not wait for events of HIP.
            None => event.synchronize(),
        };
        waited.map_err(|error| failure(event.stream().gpu(), &error))
    })
}

unsafe extern "system" fn wait_on_host(this: *mut SyncNotificationImpl) -> *mut Status {
    NOTIFICATIONS.with(this, |notification| {
        let event = &notification.event;
        event.synchronize().map_err(|error| failure(event.stream().gpu(), &error))
    })
}
