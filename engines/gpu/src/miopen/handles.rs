//! MIOpen's handles on one device: the builder's, and one for each stream that MIOpen is called on.

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hipdnn_engine_core::error::Error;
use hipdnn_sdk_bindings::hip::{hipError_t, hipStream_t, hipStreamCaptureStatus};
use hipdnn_sdk_bindings::miopen::miopenHandle_t;

use super::library::Library;
use super::places::Places;
use crate::device::Device;
use crate::hip::{Gpu, LoadedMiopen, OnDevice, Relaxed, Stream};

/// Nothing that a lock here guards is left half-done by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// MIOpen's handles on a device.
#[derive(Debug)]
pub(crate) struct Handles {
    library: Library,
    device: Arc<Device>,
    fingerprint: String,
    builder: Mutex<Option<Arc<Builder>>>,
    /// By stream, the one that was used last at the end.
    runners: Mutex<Vec<(usize, Runner)>>,
}

/// The MIOpen handle of a stream, for one thread at a time.
type Runner = Arc<Mutex<MiopenHandle>>;

/// Streams that have a MIOpen handle of their own at a time; the handles of more are made anew.
const MOST_RUNNERS: usize = 64;

impl Handles {
    pub(super) fn new(library: Library, device: Arc<Device>) -> Handles {
        let LoadedMiopen { version: [major, minor, patch], bytes, .. } = library.loaded;
        let fingerprint = format!("{}, MIOpen {major}.{minor}.{patch} of {bytes} bytes", device.fingerprint());
        Handles { library, device, fingerprint, builder: Mutex::default(), runners: Mutex::default() }
    }

    /// MIOpen.
    pub(crate) fn library(&self) -> Library {
        self.library
    }

    /// The device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Text of all that choices of solvers depend on: the device, HIP's version, MIOpen's build.
    pub(crate) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Runs `work` with the device's builder, for one thread at a time.
    pub(crate) fn build<R>(&self, work: impl FnOnce(&Arc<Builder>) -> Result<R, Error>) -> Result<R, Error> {
        let mut builder = lock(&self.builder);
        let _entered = self.device.enter()?;
        let ready = match &*builder {
            Some(ready) => Arc::clone(ready),
            None => Arc::clone(builder.insert(Arc::new(Builder::new(self.library, &self.device)?))),
        };
        let result = work(&ready);
        if !ready.is_usable() {
            log::warn!(
                "device {}: the stream that plans are built on is unusable, the next plan gets a new one",
                self.device.ordinal()
            );
            *builder = None;
        }
        result
    }

    /// Runs `work` with a MIOpen handle that launches on `stream`, for one thread at a time.
    pub(crate) fn run<R>(
        &self,
        stream: hipStream_t,
        work: impl FnOnce(miopenHandle_t) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let _entered = self.device.enter()?;
        let runner = {
            let mut runners = lock(&self.runners);
            let runner = match runners.iter().position(|(of, _)| *of == stream as usize) {
                Some(index) => runners.remove(index).1,
                None => {
                    // Streams that are gone leave theirs behind.
                    let idle = |(_, runner): &(usize, Runner)| Arc::strong_count(runner) == 1;
                    if runners.len() >= MOST_RUNNERS
                        && let Some(index) = runners.iter().position(idle)
                    {
                        runners.remove(index);
                    }
                    Arc::new(Mutex::new(MiopenHandle::new(self.library, stream)?))
                }
            };
            runners.push((stream as usize, Arc::clone(&runner)));
            runner
        };
        let handle = lock(&runner);
        work(handle.raw)
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        // Their handles go while the thread is on the device.
        let _entered = self.device.enter().map_err(|error| log::warn!("device {}: {error}", self.device.ordinal()));
        lock(&self.runners).clear();
        *lock(&self.builder) = None;
    }
}

/// A MIOpen handle. It belongs to one device and one stream.
#[derive(Debug)]
pub(crate) struct MiopenHandle {
    library: Library,
    raw: miopenHandle_t,
}

// SAFETY: MIOpen's handles belong to no thread; they only must not be used by two at once.
unsafe impl Send for MiopenHandle {}

impl MiopenHandle {
    /// A handle of the thread's current device, which the stream is of.
    pub(crate) fn new(library: Library, stream: hipStream_t) -> Result<MiopenHandle, Error> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: a place for one handle; MIOpen keeps the stream's address and does not own it.
        let status = unsafe { (library.functions.miopenCreateWithStream)(&mut raw, stream) };
        library.check(status, "miopenCreateWithStream")?;
        Ok(MiopenHandle { library, raw })
    }

    pub(crate) fn raw(&self) -> miopenHandle_t {
        self.raw
    }
}

impl Drop for MiopenHandle {
    fn drop(&mut self) {
        // SAFETY: `new` made it, and nobody has it any more.
        let status = unsafe { (self.library.functions.miopenDestroy)(self.raw) };
        self.library.log(status, "miopenDestroy");
    }
}

/// Stream of our own and a MIOpen handle on it, with which plans are built. The handle owns the code that recorded
/// launches are of, so they keep it.
#[derive(Debug)]
pub(crate) struct Builder {
    gpu: &'static Gpu,
    ordinal: i32,
    /// There until it is dropped.
    handle: Option<MiopenHandle>,
    /// Dropped by hand, while the thread is on the device.
    pub stream: ManuallyDrop<Stream>,
    /// For launches that are recorded and not run. There is always a longer way without it.
    pub places: Option<Places>,
}

// SAFETY: the handle is used only inside of `Handles::build`, by one thread at a time.
unsafe impl Sync for Builder {}

impl Builder {
    fn new(library: Library, device: &Device) -> Result<Builder, Error> {
        let (gpu, ordinal) = (device.gpu(), device.ordinal());
        let stream = Stream::new(gpu)?;
        let places = Places::new(gpu).inspect_err(|error| log::info!("device {ordinal}: {error}")).ok();
        let handle = Some(MiopenHandle::new(library, stream.raw())?);
        let stream = ManuallyDrop::new(stream);
        Ok(Builder { gpu, ordinal, handle, stream, places })
    }

    /// The handle. It is only for use within [`Handles::build`].
    pub(crate) fn handle(&self) -> miopenHandle_t {
        self.handle.as_ref().map_or(std::ptr::null_mut(), MiopenHandle::raw)
    }

    /// True if the stream neither captures nor fails.
    fn is_usable(&self) -> bool {
        let mut status = hipStreamCaptureStatus::hipStreamCaptureStatusNone;
        // SAFETY: the stream is alive; a place for one number.
        let asked = unsafe { (self.gpu.hip.hipStreamIsCapturing)(self.stream.raw(), &mut status) };
        asked == hipError_t::hipSuccess
            && status == hipStreamCaptureStatus::hipStreamCaptureStatusNone
            && self.stream.synchronize().is_ok()
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        let relaxed = Relaxed::enter(self.gpu);
        let entered = OnDevice::enter(self.gpu, self.ordinal);
        if let Some(error) = relaxed.as_ref().err().or(entered.as_ref().err()) {
            log::warn!("device {}: {error}", self.ordinal);
        }
        self.handle = None;
        self.places = None;
        // SAFETY: nobody uses it any more, and it is not dropped again.
        unsafe { ManuallyDrop::drop(&mut self.stream) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Contexts;
    use crate::hip::gpu;
    use crate::testing::skip;

    #[test]
    fn the_stream_that_was_used_longest_ago_loses_its_handle() {
        let Ok(gpu) = gpu().inspect_err(|reason| skip(reason)) else { return };
        let contexts = Contexts::default();
        let context = contexts.current().expect("a device");
        let handles = context.miopen().expect("MIOpen").handles();
        let streams: Vec<Stream> = (0..MOST_RUNNERS + 3).map(|_| Stream::new(gpu).expect("a stream")).collect();
        let run = |stream: &Stream| handles.run(stream.raw(), |handle| Ok(handle as usize)).expect("a handle");
        let first = run(&streams[0]);
        for stream in &streams[1..] {
            run(stream);
            assert_eq!(run(&streams[0]), first);
        }
        let mut kept: Vec<_> = lock(&handles.runners).iter().map(|(stream, _)| *stream).collect();
        let recent = &streams[streams.len() - MOST_RUNNERS + 1..];
        let mut wanted: Vec<_> = recent.iter().chain(&streams[..1]).map(|stream| stream.raw() as usize).collect();
        kept.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(kept, wanted);
    }
}
