//! AMD GPUs: what HIP has of them, and the memory and streams that the runtime's tensors and runs get there.
//!
//! A [`Gpu`] is the process's: its arenas and streams serve every session. `hip` is the border to HIP; `arena` decides
//! which block is reused when, and knows nothing of HIP; `memory`, `stream` and `capture` join the two. `allocator`, `transfer`,
//! `sync`, `memcpy` and `session` are the runtime's callbacks over them; `offer` makes devices of the runtime out of GPUs.

pub(crate) mod allocator;
pub(crate) mod arena;
pub(crate) mod capture;
pub(crate) mod clock;
pub(crate) mod few;
pub(crate) mod hip;
pub(crate) mod memcpy;
pub(crate) mod memory;
pub(crate) mod offer;
mod runs;
pub(crate) mod session;
pub(crate) mod stream;
pub(crate) mod sync;
pub(crate) mod transfer;

use std::any::Any;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use hipdnn_sdk_bindings::hip::{self as sdk, hipEvent_t, hipMemcpyKind};

use crate::error::Error;
use arena::Timeline;
use hip::{Entered, Hip, HipError, call};
use memory::{Account, Block, Memory};
use stream::Stream;

/// A GPU that HIP can use.
pub(crate) struct Gpu {
    hip: &'static Hip,
    ordinal: c_int,
    /// True if HIP has no other.
    is_only: bool,
    /// The product's name.
    pub name: String,
    /// The architecture and its features, as `gfx1100`.
    pub architecture: String,
    /// Bus id, as `0000:03:00.0`, if HIP says it.
    pub bus: Option<String>,
    /// Bytes of its memory.
    pub bytes: usize,
    memory: Memory,
    pinned: Memory,
    /// Streams that live, by HIP's own object.
    streams: RwLock<Vec<Known>>,
    /// Events that nobody uses.
    events: Mutex<Vec<usize>>,
    /// The stream of copies that no other stream is named for.
    transfers: Mutex<Option<Arc<Stream>>>,
    /// Constants that programs keep here, by content.
    constants: Mutex<HashMap<blake3::Hash, Weak<Block>>>,
    /// Devices whose memory this one was made to reach, or can't.
    peers: Mutex<Vec<c_int>>,
}

/// A stream that lives.
struct Known {
    /// HIP's own object.
    raw: usize,
    stream: Weak<Stream>,
    /// Of one that is being dropped, too.
    timeline: Arc<Timeline>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits on the host for streams that have work, but for those that capture.
fn wait_for(streams: &[Arc<Stream>]) -> Result<(), HipError> {
    let mut result = Ok(());
    for stream in streams.iter().filter(|stream| stream.is_busy() && stream.capture() == arena::SHARED) {
        let waited = stream.synchronize();
        if result.is_ok() {
            result = waited;
        }
    }
    result
}

/// The GPUs of this process, in HIP's order.
///
/// # Errors
/// The reason, if there are none; asked again at the next call.
pub(crate) fn all() -> Result<&'static [&'static Gpu], String> {
    static ALL: Mutex<Option<&'static [&'static Gpu]>> = Mutex::new(None);
    let mut all = lock(&ALL);
    if let Some(all) = *all {
        return Ok(all);
    }
    let hip = Hip::get()?;
    hip.check_process().map_err(|error| error.message)?;
    let count = hip.devices().map_err(|error| format!("HIP has no device: {error}"))?;
    let gpus = (0..count).map(|ordinal| Gpu::new(hip, ordinal, count == 1)).collect::<Result<Vec<_>, _>>();
    let gpus: Vec<&'static Gpu> =
        gpus.map_err(|error| error.to_string())?.into_iter().map(|gpu| &*Box::leak(Box::new(gpu))).collect();
    if gpus.is_empty() {
        return Err("HIP has no device".to_string());
    }
    Ok(*all.insert(Box::leak(gpus.into_boxed_slice())))
}

/// The GPU of that number.
///
/// # Errors
/// If there is none.
pub(crate) fn of(ordinal: usize) -> Result<&'static Gpu, Error> {
    let all = all().map_err(Error::failed)?;
    let count = all.len();
    all.get(ordinal).copied().ok_or_else(|| {
        Error::invalid(format!("{}: expected a device number below {count}, got {ordinal}", crate::NAME_TEXT))
    })
}

/// The GPU that is the calling thread's current device.
///
/// # Errors
/// If HIP does not tell.
pub(crate) fn current() -> Result<&'static Gpu, Error> {
    all().map_err(Error::failed)?;
    let device = Hip::get().map_err(Error::failed)?.current_device()?;
    of(usize::try_from(device).unwrap_or_default())
}

impl Gpu {
    fn new(hip: &'static Hip, ordinal: c_int, is_only: bool) -> Result<Gpu, HipError> {
        // SAFETY: the library stays open.
        let properties = unsafe { hip.functions().device_properties(ordinal) };
        let properties = properties.map_err(|status| HipError { call: "hipGetDeviceProperties", status })?;
        Ok(Gpu {
            hip,
            ordinal,
            is_only,
            name: properties.name(),
            architecture: properties.arch(),
            bus: hip.pci_bus_id(ordinal),
            bytes: properties.known.totalGlobalMem,
            memory: Memory::new(false),
            pinned: Memory::new(true),
            streams: RwLock::default(),
            events: Mutex::default(),
            transfers: Mutex::default(),
            constants: Mutex::default(),
            peers: Mutex::default(),
        })
    }

    fn hip(&self) -> &'static Hip {
        self.hip
    }

    /// HIP's number of it.
    pub(crate) fn ordinal(&self) -> c_int {
        self.ordinal
    }

    /// Fails in a process that was forked after HIP was opened.
    ///
    /// # Errors
    /// An error in such a process, with both processes' ids.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        self.hip.check_process()
    }

    /// Versions of HIP's run-time library and of the driver.
    pub(crate) fn versions(&self) -> (Option<c_int>, Option<c_int>) {
        (self.hip.version(), self.hip.driver_version())
    }

    /// Its memory.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Host memory for copies from and to it.
    pub(crate) fn pinned(&self) -> &Memory {
        &self.pinned
    }

    /// Makes it the calling thread's device until the result is dropped.
    ///
    /// # Errors
    /// HIP's status.
    pub(crate) fn enter(&self) -> Result<Entered, HipError> {
        if self.is_only { Ok(self.hip.entered(self.ordinal)) } else { self.hip.enter(self.ordinal) }
    }

    /// Bytes of its memory that are free, and all, if HIP says.
    pub(crate) fn free_memory(&self) -> Option<(usize, usize)> {
        let _entered = self.enter().ok()?;
        self.hip.memory().ok()
    }

    // Streams.

    fn know(&self, stream: &Arc<Stream>) {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        let timeline = stream.progress().clone();
        streams.push(Known { raw: stream.raw().addr(), stream: Arc::downgrade(stream), timeline });
    }

    fn forget(&self, stream: &Stream) {
        let mut streams = self.streams.write().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|known| !std::ptr::eq(known.stream.as_ptr(), stream));
    }

    /// The stream that HIP's object is of.
    ///
    /// # Errors
    /// If it is none of the provider's.
    pub(crate) fn stream_of(&self, raw: *mut c_void) -> Result<Arc<Stream>, Error> {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        let known = streams.iter().filter(|known| known.raw == raw.addr());
        known.filter_map(|known| known.stream.upgrade()).next().ok_or_else(|| {
            Error::invalid(format!(
                "{}: expected a stream of the provider's on device {}, got {raw:p}",
                crate::NAME_TEXT,
                self.ordinal
            ))
        })
    }

    fn living(&self) -> Vec<Arc<Stream>> {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        streams.iter().filter_map(|known| known.stream.upgrade()).collect()
    }

    /// Does something with each stream that lives.
    fn each_stream(&self, body: impl FnMut(&Arc<Stream>)) {
        self.living().iter().for_each(body);
    }

    fn timelines(&self) -> Vec<Arc<Timeline>> {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        streams.iter().map(|known| known.timeline.clone()).collect()
    }

    /// Timelines of streams with work that nobody has waited for.
    fn busy_timelines(&self) -> Vec<Arc<Timeline>> {
        let busy = self.living().into_iter().filter(|stream| stream.is_busy());
        busy.map(|stream| stream.progress().clone()).collect()
    }

    /// Keeps what enqueued work may need, until the streams that have some now have been waited for.
    pub(crate) fn keep<T: Any + Send + Sync>(&self, kept: &Arc<T>) {
        self.living().iter().filter(|stream| stream.is_busy()).for_each(|stream| stream.keep(kept));
    }

    /// Waits on the host for all that was enqueued on it.
    ///
    /// # Errors
    /// The first status that is none of success.
    pub(crate) fn synchronize(&self) -> Result<(), HipError> {
        wait_for(&self.living())
    }

    /// Its place among those whose runs are noted.
    fn number(&self) -> usize {
        usize::try_from(self.ordinal).unwrap_or(usize::MAX)
    }

    /// A run of the calling thread begins.
    pub(crate) fn begin_run(&self) {
        runs::begin(self.number());
    }

    /// Takes note that the calling thread's run enqueues work on a stream.
    fn note(&self, stream: &Stream) {
        runs::note(self.number(), std::ptr::from_ref(stream).addr());
    }

    /// The calling thread's run ends; waits for the streams that it used, where that is asked for, or for all of the device's if
    /// none is known: a run of several threads may have used them on others.
    ///
    /// # Errors
    /// The first status that is none of success: that of a kernel that failed, say.
    pub(crate) fn end_run(&self, wait: bool) -> Result<(), HipError> {
        let used = runs::end(self.number());
        if !wait {
            return Ok(());
        }
        let Some(used) = used else { return self.synchronize() };
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        // A stream that is gone was waited for.
        let used = streams.iter().filter(|known| used(known.stream.as_ptr().addr()));
        let used: Vec<_> = used.filter_map(|known| known.stream.upgrade()).collect();
        drop(streams);
        wait_for(&used)
    }

    /// The stream of copies that no other stream is named for.
    ///
    /// # Errors
    /// HIP's status.
    pub(crate) fn transfers(&'static self) -> Result<Arc<Stream>, HipError> {
        let mut transfers = lock(&self.transfers);
        match &*transfers {
            Some(stream) => Ok(stream.clone()),
            None => Ok(transfers.insert(Stream::new(self)?).clone()),
        }
    }

    // Events.

    fn take_event(&self) -> Result<hipEvent_t, HipError> {
        if let Some(event) = lock(&self.events).pop() {
            return Ok(std::ptr::without_provenance_mut(event));
        }
        let _entered = self.enter()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: a place for an event.
        unsafe { call!(self.hip, hipEventCreateWithFlags(&mut event, sdk::hipEventDisableTiming)) }?;
        Ok(event)
    }

    fn put_back_event(&self, event: hipEvent_t) {
        lock(&self.events).push(event.addr());
    }

    // Copies and constants.

    /// Has this device reach another's memory for copies, if it can: asked at the first copy between the two. Where it fails HIP
    /// copies by way of the host, which is no error of the copy.
    pub(crate) fn reach(&self, peer: &Gpu) {
        let mut peers = lock(&self.peers);
        if self.ordinal == peer.ordinal || peers.contains(&peer.ordinal) {
            return;
        }
        let opened = self.enter().and_then(|_entered| self.hip.open_peer(self.ordinal, peer.ordinal));
        if opened.is_ok() {
            peers.push(peer.ordinal);
        }
    }

    /// Copies to the device, done on return.
    ///
    /// # Safety
    /// `destination` has as many bytes on this device, and no work that is enqueued uses them.
    ///
    /// # Errors
    /// HIP's status.
    pub(crate) unsafe fn write(&'static self, destination: *mut c_void, bytes: &[u8]) -> Result<(), Error> {
        if bytes.is_empty() {
            return Ok(());
        }
        let _entered = self.enter()?;
        let stream = self.transfers()?;
        let kind = hipMemcpyKind::hipMemcpyHostToDevice;
        // SAFETY: the caller's promise for the device, and the bytes live until the stream has passed.
        unsafe { self.hip.copy(destination, bytes.as_ptr().cast(), bytes.len(), kind, stream.raw()) }?;
        Ok(stream.synchronize()?)
    }

    /// Copies from the device behind what a stream has enqueued, done on return.
    ///
    /// # Safety
    /// `source` has as many bytes on this device.
    ///
    /// # Errors
    /// HIP's status.
    pub(crate) unsafe fn read(&self, source: *const c_void, bytes: &mut [u8], stream: &Stream) -> Result<(), Error> {
        if bytes.is_empty() {
            return Ok(());
        }
        let kind = hipMemcpyKind::hipMemcpyDeviceToHost;
        // SAFETY: the caller's promise for the device, and the bytes live until the stream has passed.
        unsafe { self.hip.copy(bytes.as_mut_ptr().cast(), source, bytes.len(), kind, stream.raw()) }?;
        Ok(stream.synchronize()?)
    }

    /// A constant in device memory, shared by all that have the same bytes.
    ///
    /// # Errors
    /// If there is no memory, or HIP's status.
    pub(crate) fn constant(&'static self, bytes: &[u8], account: &Arc<Account>) -> Result<Arc<Block>, Error> {
        let hash = blake3::hash(bytes);
        let mut constants = lock(&self.constants);
        if let Some(known) = constants.get(&hash).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let block = Arc::new(Block::take(self, bytes.len(), None, account.clone())?);
        // SAFETY: the block has so many bytes, and nobody knows it yet.
        unsafe { self.write(block.address(), bytes) }?;
        constants.retain(|_, known| known.strong_count() > 0);
        constants.insert(hash, Arc::downgrade(&block));
        Ok(block)
    }

    /// Gives back to HIP what nobody uses: memory, events, and the stream of copies.
    pub(crate) fn shrink(&'static self) {
        if self.check_process().is_err() {
            return;
        }
        let transfers = lock(&self.transfers).take();
        drop(transfers);
        self.memory.shrink(self);
        self.pinned.shrink(self);
        let events = std::mem::take(&mut *lock(&self.events));
        for event in events {
            // SAFETY: the event is this device's, and nobody uses it.
            let _ = unsafe { call!(self.hip, hipEventDestroy(std::ptr::without_provenance_mut(event))) };
        }
    }
}
