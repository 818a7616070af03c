//! Streams, events, and the thread's own state in HIP.

use hipdnn_engine_core::error::Error;
use hipdnn_sdk_bindings::hip::{hipError_t, hipEvent_t, hipStream_t, hipStreamCaptureMode, hipStreamNonBlocking};

use super::Gpu;

/// A stream of our own, on the device that was current when it was made. It does not wait for the default stream.
#[derive(Debug)]
pub struct Stream {
    gpu: &'static Gpu,
    raw: hipStream_t,
}

// SAFETY: HIP's streams belong to no thread.
unsafe impl Send for Stream {}
// SAFETY: the handle never changes, and HIP locks where calls on one stream need it.
unsafe impl Sync for Stream {}

impl Stream {
    /// A stream on the thread's current device.
    ///
    /// # Errors
    /// If HIP refuses.
    pub fn new(gpu: &'static Gpu) -> Result<Stream, Error> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: a place for one handle.
        let status = unsafe { (gpu.hip.hipStreamCreateWithFlags)(&mut raw, hipStreamNonBlocking) };
        gpu.check_hip(status, "hipStreamCreateWithFlags")?;
        Ok(Stream { gpu, raw })
    }

    /// HIP's handle of it.
    pub fn raw(&self) -> hipStream_t {
        self.raw
    }

    pub(super) fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// Waits until all its work is done.
    ///
    /// # Errors
    /// If some of it failed.
    pub fn synchronize(&self) -> Result<(), Error> {
        // SAFETY: the stream is alive.
        let status = unsafe { (self.gpu.hip.hipStreamSynchronize)(self.raw) };
        self.gpu.check_hip(status, "hipStreamSynchronize")
    }
}

impl Stream {
    /// Waits as well as can be: host memory that the stream's work uses is given back after this. A wait that fails says
    /// that the work failed, and so is over, or that there was no wait; a second one tells.
    pub(super) fn settle(&self) -> Result<(), Error> {
        self.synchronize().inspect_err(|_| drop(self.synchronize()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: `new` made it, and nobody has it any more.
        let status = unsafe { (self.gpu.hip.hipStreamDestroy)(self.raw) };
        self.gpu.log_hip(status, "hipStreamDestroy");
    }
}

/// A point in a stream's work, with its time.
#[derive(Debug)]
pub struct Event {
    gpu: &'static Gpu,
    raw: hipEvent_t,
}

// SAFETY: HIP's events belong to no thread.
unsafe impl Send for Event {}

impl Event {
    /// An event on the thread's current device.
    ///
    /// # Errors
    /// If HIP refuses.
    pub fn new(gpu: &'static Gpu) -> Result<Event, Error> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: a place for one handle.
        let status = unsafe { (gpu.hip.hipEventCreateWithFlags)(&mut raw, 0) };
        gpu.check_hip(status, "hipEventCreateWithFlags")?;
        Ok(Event { gpu, raw })
    }

    /// Puts it behind what the stream has to do.
    ///
    /// # Errors
    /// If HIP refuses.
    pub fn record(&self, stream: &Stream) -> Result<(), Error> {
        // SAFETY: both are alive.
        let status = unsafe { (self.gpu.hip.hipEventRecord)(self.raw, stream.raw()) };
        self.gpu.check_hip(status, "hipEventRecord")
    }

    /// Milliseconds from this event to a later one; waits for both.
    ///
    /// # Errors
    /// If work before them failed.
    pub fn milliseconds_to(&self, later: &Event) -> Result<f32, Error> {
        let mut milliseconds = 0.0;
        // SAFETY: both are alive and were recorded by the caller; HIP checks that.
        let status = unsafe { (self.gpu.hip.hipEventSynchronize)(later.raw) };
        self.gpu.check_hip(status, "hipEventSynchronize")?;
        // SAFETY: both are alive and were recorded by the caller, which HIP checks; a place for one number.
        let status = unsafe { (self.gpu.hip.hipEventElapsedTime)(&mut milliseconds, self.raw, later.raw) };
        self.gpu.check_hip(status, "hipEventElapsedTime")?;
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: `new` made it, and nobody has it any more.
        let status = unsafe { (self.gpu.hip.hipEventDestroy)(self.raw) };
        self.gpu.log_hip(status, "hipEventDestroy");
    }
}

/// Makes a device the thread's current one until it is dropped, when the device from before is put back.
#[derive(Debug)]
pub struct OnDevice {
    gpu: &'static Gpu,
    before: i32,
    _thread: std::marker::PhantomData<*const ()>,
}

impl OnDevice {
    /// Enters the device.
    ///
    /// # Errors
    /// If HIP refuses.
    pub fn enter(gpu: &'static Gpu, ordinal: i32) -> Result<OnDevice, Error> {
        let before = gpu.current_device()?;
        let guard = OnDevice { gpu, before, _thread: std::marker::PhantomData };
        if before != ordinal {
            gpu.set_device(ordinal)?;
        }
        Ok(guard)
    }
}

impl Drop for OnDevice {
    fn drop(&mut self) {
        // Whatever was called meanwhile may have changed it.
        match self.gpu.current_device() {
            Ok(now) if now == self.before => {}
            _ => {
                if let Err(error) = self.gpu.set_device(self.before) {
                    log::warn!("the thread's current device is not put back: {error}");
                }
            }
        }
    }
}

/// HIP keeps a thread's last error for whoever asks next. Where there was none, none is left when this is dropped: what
/// was asked and tried here is not the caller's.
#[derive(Debug)]
pub struct LastError {
    gpu: &'static Gpu,
    clean: bool,
    _thread: std::marker::PhantomData<*const ()>,
}

impl LastError {
    /// From here on.
    pub fn keep(gpu: &'static Gpu) -> LastError {
        // SAFETY: it takes nothing.
        let clean = unsafe { (gpu.hip.hipPeekAtLastError)() } == hipError_t::hipSuccess;
        LastError { gpu, clean, _thread: std::marker::PhantomData }
    }
}

impl Drop for LastError {
    fn drop(&mut self) {
        if self.clean {
            // SAFETY: it takes nothing. What it tells was told where it happened.
            let _ = unsafe { (self.gpu.hip.hipGetLastError)() };
        }
    }
}

/// Lets the thread allocate, load and wait although streams of others capture, until it is dropped.
#[derive(Debug)]
pub struct Relaxed {
    gpu: &'static Gpu,
    before: hipStreamCaptureMode,
    _thread: std::marker::PhantomData<*const ()>,
}

impl Relaxed {
    /// Enters the mode.
    ///
    /// # Errors
    /// If HIP refuses.
    pub fn enter(gpu: &'static Gpu) -> Result<Relaxed, Error> {
        let mut mode = hipStreamCaptureMode::hipStreamCaptureModeRelaxed;
        // SAFETY: a mode to set, and a place for the one before.
        let status = unsafe { (gpu.hip.hipThreadExchangeStreamCaptureMode)(&mut mode) };
        gpu.check_hip(status, "hipThreadExchangeStreamCaptureMode")?;
        Ok(Relaxed { gpu, before: mode, _thread: std::marker::PhantomData })
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        let mut mode = self.before;
        let exchange = self.gpu.hip.hipThreadExchangeStreamCaptureMode;
        // SAFETY: the mode to set is the thread's earlier one, and its place takes the one before.
        let status = unsafe { exchange(&mut mode) };
        if status != hipError_t::hipSuccess {
            // The mode decides what the caller's next captures forbid, so one refusal is not taken for the last word.
            mode = self.before;
            // SAFETY: the mode to set was put back into its place, which takes the one before.
            let status = unsafe { exchange(&mut mode) };
            self.gpu.log_hip(status, "hipThreadExchangeStreamCaptureMode");
        }
    }
}
