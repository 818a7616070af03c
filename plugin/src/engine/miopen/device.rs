//! Devices: what plans of one process share on each.

use std::collections::HashMap;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hipdnn_sdk_bindings::hip::{
    hipDeviceAttribute_t, hipError_t, hipStream_t, hipStreamCaptureStatus, hipStreamPerThread,
};
use hipdnn_sdk_bindings::miopen::miopenHandle_t;

use super::choose::Choice;
use super::gpu::{Gpu, LastError, OnDevice, Relaxed, Stream, gpu, hip_error};
use super::kernels::Kernels;
use super::trial::Places;
use crate::error::{Error, ErrorKind};

/// The devices that plans were built for, as long as somebody holds this.
#[derive(Debug, Default)]
pub struct Devices {
    known: Mutex<Vec<Arc<Device>>>,
}

static SHARED: Mutex<Weak<Devices>> = Mutex::new(Weak::new());

/// Nothing that a lock here guards is left half-done by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Devices {
    /// The process's devices: the same for all who hold them at a time.
    pub fn get() -> Arc<Devices> {
        let mut shared = lock(&SHARED);
        shared.upgrade().unwrap_or_else(|| {
            let devices = Arc::new(Devices::default());
            *shared = Arc::downgrade(&devices);
            devices
        })
    }

    /// The calling thread's current device.
    ///
    /// # Errors
    /// If there is no MIOpen or no device, or HIP does not answer.
    pub fn current(&self) -> Result<Arc<Device>, Error> {
        let gpu = gpu().map_err(|reason| Error::new(ErrorKind::Device, reason))?;
        self.numbered(gpu, gpu.current_device()?)
    }

    /// The device of a stream; for a default stream the calling thread's current device.
    ///
    /// # Errors
    /// As [`Devices::current`], or if it is no stream.
    pub(super) fn of(&self, stream: hipStream_t) -> Result<Arc<Device>, Error> {
        let gpu = gpu().map_err(|reason| Error::new(ErrorKind::Device, reason))?;
        if is_default(stream) || gpu.devices() == 1 {
            return self.current();
        }
        let _errors = LastError::keep(gpu);
        let mut ordinal = 0;
        // SAFETY: the host keeps a handle's stream alive, and HIP knows what is no stream; a place for one number.
        let status = unsafe { (gpu.hip.hipStreamGetDevice)(stream, &mut ordinal) };
        gpu.check_hip(status, "hipStreamGetDevice")?;
        self.numbered(gpu, ordinal)
    }

    fn numbered(&self, gpu: &'static Gpu, ordinal: i32) -> Result<Arc<Device>, Error> {
        let mut known = lock(&self.known);
        if let Some(device) = known.iter().find(|device| device.ordinal == ordinal) {
            return Ok(Arc::clone(device));
        }
        let device = Arc::new(Device::new(gpu, ordinal)?);
        known.push(Arc::clone(&device));
        Ok(device)
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        // The static would keep our memory when this library is unloaded.
        let mut shared = lock(&SHARED);
        if shared.strong_count() == 0 {
            *shared = Weak::new();
        }
    }
}

/// Whether it stands for a stream of the thread's current device.
fn is_default(stream: hipStream_t) -> bool {
    (stream as usize) <= (hipStreamPerThread as usize)
}

/// A device, and what plans for it share.
#[derive(Debug)]
pub struct Device {
    gpu: &'static Gpu,
    ordinal: i32,
    arch: String,
    fingerprint: String,
    builder: Mutex<Option<Arc<Builder>>>,
    /// By stream, the one that was used last at the end.
    runners: Mutex<Vec<(usize, Runner)>>,
    /// Choices that were made or read from the cache, by key.
    pub(super) choices: Mutex<HashMap<String, Choice>>,
    /// MIOpen's answers to whether it has solutions, by problem.
    pub(super) answers: Mutex<HashMap<String, Result<(), String>>>,
    kernels: Kernels,
}

/// The MIOpen handle of a stream, for one thread at a time.
type Runner = Arc<Mutex<MiopenHandle>>;

/// Streams that have a MIOpen handle of their own at a time; the handles of more are made anew.
const MOST_RUNNERS: usize = 64;

impl Device {
    pub(super) fn new(gpu: &'static Gpu, ordinal: i32) -> Result<Device, Error> {
        // SAFETY: the libraries stay open once they are.
        let properties = unsafe { gpu.hip.device_properties(ordinal) };
        let full = properties.map_err(|status| hip_error(status, "hipGetDevicePropertiesR0600"))?.arch();
        let arch = full.split(':').next().unwrap_or_default().to_string();
        if arch.is_empty() {
            return Err(Error::new(
                ErrorKind::Device,
                format!("HIP does not tell the architecture of device {ordinal}"),
            ));
        }
        let mut units: c_int = 0;
        let attribute = hipDeviceAttribute_t::hipDeviceAttributeMultiprocessorCount;
        // SAFETY: a place for one number.
        let status = unsafe { (gpu.hip.hipDeviceGetAttribute)(&mut units, attribute, ordinal) };
        gpu.check_hip(status, "hipDeviceGetAttribute")?;
        let [major, minor, patch] = gpu.miopen_version();
        let fingerprint = format!(
            "{full}, {units} units, MIOpen {major}.{minor}.{patch} of {} bytes, HIP {}",
            gpu.miopen_bytes(),
            gpu.hip_version()
        );
        Ok(Device {
            gpu,
            ordinal,
            arch,
            fingerprint,
            builder: Mutex::default(),
            runners: Mutex::default(),
            choices: Mutex::default(),
            answers: Mutex::default(),
            kernels: Kernels::default(),
        })
    }

    /// The libraries.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// Its number in HIP.
    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// Its architecture, without features: `gfx1100`.
    pub fn arch(&self) -> &str {
        &self.arch
    }

    /// What choices and compiled code depend on: architecture with features, compute units, MIOpen's build, HIP's version.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Its compiled kernels.
    pub(super) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// Makes it the thread's current device, in a mode that lets the thread allocate and load although others capture,
    /// until the guard is dropped.
    ///
    /// # Errors
    /// If HIP refuses.
    pub fn enter(&self) -> Result<Entered, Error> {
        let errors = LastError::keep(self.gpu);
        let relaxed = Relaxed::enter(self.gpu)?;
        Ok(Entered { _device: OnDevice::enter(self.gpu, self.ordinal)?, _relaxed: relaxed, _errors: errors })
    }

    /// Runs `work` with the device's builder, for one thread at a time.
    pub(super) fn build<R>(&self, work: impl FnOnce(&Arc<Builder>) -> Result<R, Error>) -> Result<R, Error> {
        let mut builder = lock(&self.builder);
        let _entered = self.enter()?;
        let ready = match &*builder {
            Some(ready) => Arc::clone(ready),
            None => Arc::clone(builder.insert(Arc::new(Builder::new(self)?))),
        };
        let result = work(&ready);
        if !ready.is_usable() {
            log::warn!(
                "device {}: the stream that plans are built on is unusable, the next plan gets a new one",
                self.ordinal
            );
            *builder = None;
        }
        result
    }

    /// Runs `work` with a MIOpen handle that launches on `stream`, for one thread at a time.
    pub(super) fn run<R>(
        &self,
        stream: hipStream_t,
        work: impl FnOnce(miopenHandle_t) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let _entered = self.enter()?;
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
                    Arc::new(Mutex::new(MiopenHandle::new(self, stream)?))
                }
            };
            runners.push((stream as usize, Arc::clone(&runner)));
            runner
        };
        let handle = lock(&runner);
        work(handle.raw)
    }

    /// Makes the device current if launches on that stream would go elsewhere otherwise: where there are several, the
    /// default streams are those of the thread's current device.
    pub(super) fn enter_for(&self, stream: hipStream_t) -> Result<Option<OnDevice>, Error> {
        if is_default(stream) && self.gpu.devices() > 1 {
            return OnDevice::enter(self.gpu, self.ordinal).map(Some);
        }
        Ok(None)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Their handles go while the thread is on the device.
        let _entered = self.enter().map_err(|error| log::warn!("device {}: {error}", self.ordinal));
        lock(&self.runners).clear();
        *lock(&self.builder) = None;
    }
}

/// While it lives the thread is on a device, and may allocate and load although others capture.
#[derive(Debug)]
pub struct Entered {
    _device: OnDevice,
    _relaxed: Relaxed,
    _errors: LastError,
}

/// A MIOpen handle. It belongs to one device and one stream.
#[derive(Debug)]
pub(super) struct MiopenHandle {
    gpu: &'static Gpu,
    raw: miopenHandle_t,
}

// SAFETY: MIOpen's handles belong to no thread; they only must not be used by two at once.
unsafe impl Send for MiopenHandle {}

impl MiopenHandle {
    /// A handle of the thread's current device, which `device` is.
    pub(super) fn new(device: &Device, stream: hipStream_t) -> Result<MiopenHandle, Error> {
        let gpu = device.gpu;
        let mut raw = std::ptr::null_mut();
        // SAFETY: a place for one handle; MIOpen keeps the stream's address and does not own it.
        let status = unsafe { (gpu.miopen.miopenCreateWithStream)(&mut raw, stream) };
        gpu.check_miopen(status, "miopenCreateWithStream")?;
        Ok(MiopenHandle { gpu, raw })
    }

    pub(super) fn raw(&self) -> miopenHandle_t {
        self.raw
    }
}

impl Drop for MiopenHandle {
    fn drop(&mut self) {
        // SAFETY: `new` made it, and nobody has it any more.
        let status = unsafe { (self.gpu.miopen.miopenDestroy)(self.raw) };
        self.gpu.log_miopen(status, "miopenDestroy");
    }
}

/// What plans are built with: a stream of our own and a MIOpen handle on it. The handle owns the code that recorded
/// launches are of, so they keep it.
#[derive(Debug)]
pub(super) struct Builder {
    gpu: &'static Gpu,
    ordinal: i32,
    /// There until it is dropped.
    handle: Option<MiopenHandle>,
    /// Dropped by hand, while the thread is on the device.
    pub stream: ManuallyDrop<Stream>,
    /// For launches that are recorded and not run. There is always a longer way without it.
    pub places: Option<Places>,
}

// SAFETY: the handle is used only inside of `Device::build`, by one thread at a time.
unsafe impl Sync for Builder {}

impl Builder {
    fn new(device: &Device) -> Result<Builder, Error> {
        let stream = Stream::new(device.gpu)?;
        let places = Places::new(device.gpu).inspect_err(|error| log::info!("device {}: {error}", device.ordinal)).ok();
        let handle = Some(MiopenHandle::new(device, stream.raw())?);
        let stream = ManuallyDrop::new(stream);
        Ok(Builder { gpu: device.gpu, ordinal: device.ordinal, handle, stream, places })
    }

    /// The handle. It is only for use within [`Device::build`].
    pub(super) fn handle(&self) -> miopenHandle_t {
        self.handle.as_ref().map_or(std::ptr::null_mut(), MiopenHandle::raw)
    }

    /// Whether the stream neither captures nor fails.
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
    use crate::engine::miopen::testing::skip;

    #[test]
    fn the_stream_that_was_used_longest_ago_loses_its_handle() {
        let Ok(gpu) = gpu().inspect_err(|reason| skip(reason)) else { return };
        let devices = Devices::default();
        let device = devices.current().expect("a device");
        let streams: Vec<Stream> = (0..MOST_RUNNERS + 3).map(|_| Stream::new(gpu).expect("a stream")).collect();
        let run = |stream: &Stream| device.run(stream.raw(), |handle| Ok(handle as usize)).expect("a handle");
        let first = run(&streams[0]);
        for stream in &streams[1..] {
            run(stream);
            assert_eq!(run(&streams[0]), first);
        }
        let mut kept: Vec<_> = lock(&device.runners).iter().map(|(stream, _)| *stream).collect();
        let recent = &streams[streams.len() - MOST_RUNNERS + 1..];
        let mut wanted: Vec<_> = recent.iter().chain(&streams[..1]).map(|stream| stream.raw() as usize).collect();
        kept.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(kept, wanted);
    }
}
