//! The provider's functions with null in each place, with handles that are stale, foreign or invented, and with misaligned
//! addresses: each call ends in a status, or leaves things as they are. A stand-in takes the place of ONNX Runtime; the
//! functions of compiled nodes are tested from Python, behind a real one.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use hipdnn_rs_integration_tests::artifacts::{Artifact, library_path};
use hipdnn_sdk_bindings::library::Library;
use hipdnn_sdk_bindings::ort::{
    Allocator, ApiBase, CreateEpFactories, DataTransferImpl, Ep, EpFactory, EpProfilerImpl, ErrorCode, NodeComputeInfo,
    ReleaseEpFactory, SessionOptions, Status,
};

/// A status as the stand-in makes it.
struct FakeStatus {
    code: ErrorCode,
    message: String,
}

unsafe extern "system" fn create_status(code: ErrorCode, message: *const c_char) -> *mut FakeStatus {
    // SAFETY: the library gives a NUL-terminated text.
    let message = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    Box::into_raw(Box::new(FakeStatus { code, message }))
}

/// Success, null, zero or nothing, as the function has it.
unsafe extern "system" fn any_other() -> *mut c_void {
    OTHER_CALLS.fetch_add(1, Ordering::Relaxed);
    null_mut()
}

static OTHER_CALLS: AtomicUsize = AtomicUsize::new(0);

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Entry(*const c_void);

// SAFETY: the entries are addresses of functions, which any thread may hold.
unsafe impl Sync for Entry {}

unsafe extern "system" fn get_ep_api() -> *const c_void {
    EP_TABLE.as_ptr().cast()
}

static EP_TABLE: [Entry; 80] = [Entry(any_other as *const c_void); 80];

static TABLE: [Entry; 428] = {
    let mut table = [Entry(any_other as *const c_void); 428];
    table[0] = Entry(create_status as *const c_void);
    // `GetEpApi`
    table[317] = Entry(get_ep_api as *const c_void);
    table
};

unsafe extern "system" fn get_api(_version: u32) -> *const c_void {
    TABLE.as_ptr().cast()
}

unsafe extern "system" fn get_version_string() -> *const c_char {
    c"1.31.1".as_ptr()
}

static BASE: ApiBase = ApiBase { get_api, get_version_string };

/// Answer of a call.
#[derive(Clone, Debug, PartialEq)]
enum Answer {
    Success,
    Error(ErrorCode, String),
}

fn answer(status: *mut Status) -> Answer {
    if status.is_null() {
        return Answer::Success;
    }
    // SAFETY: `create_status` made it, and nothing else frees it.
    let FakeStatus { code, message } = *unsafe { Box::from_raw(status.cast::<FakeStatus>()) };
    Answer::Error(code, message)
}

#[track_caller]
fn refused(what: &str, status: *mut Status, part: &str) {
    match answer(status) {
        Answer::Error(ErrorCode::INVALID_ARGUMENT, message) => {
            assert!(message.contains(part), "{what}: expected {part:?} in the message, got {message:?}");
        }
        other => panic!("{what}: expected an INVALID_ARGUMENT, got {other:?}"),
    }
}

/// The library with one factory of it.
struct Provider {
    create: CreateEpFactories,
    release: ReleaseEpFactory,
    factory: *mut EpFactory,
}

impl Provider {
    fn new() -> Provider {
        // SAFETY: the provider's initializers do nothing.
        let library = unsafe { Library::open("the provider", [library_path(Artifact::Provider)]) }.expect("it opens");
        let library = Box::leak(Box::new(library));
        // SAFETY: these are the entry points' signatures, and the library stays.
        let (create, release) = unsafe {
            (
                library.symbol::<CreateEpFactories>(c"CreateEpFactories").expect("it is exported"),
                library.symbol::<ReleaseEpFactory>(c"ReleaseEpFactory").expect("it is exported"),
            )
        };
        let mut provider = Provider { create, release, factory: null_mut() };
        provider.factory = provider.another();
        provider
    }

    fn another(&self) -> *mut EpFactory {
        let (mut factory, mut count) = (null_mut(), 0);
        // SAFETY: the base is the stand-in's, and there is room for one factory.
        let status = unsafe { (self.create)(c"name".as_ptr(), &BASE, null(), &mut factory, 1, &mut count) };
        assert_eq!((answer(status), count), (Answer::Success, 1));
        factory
    }

    fn callbacks(&self) -> &EpFactory {
        // SAFETY: the factory lives as long as this.
        unsafe { &*self.factory }
    }

    /// Makes a provider of a session with the stand-in's options, of which there are none.
    fn ep(&self) -> *mut Ep {
        let (mut ep, options) = (null_mut(), 8usize as *const SessionOptions);
        let create = self.callbacks().create_ep.expect("it is served");
        // SAFETY: the stand-in does not follow the options.
        let status = unsafe { create(self.factory, null(), null(), 0, options, null(), &mut ep) };
        assert_eq!(answer(status), Answer::Success);
        ep
    }
}

/// Handles that are none: null, invented, misaligned, of another kind, and one that was released.
fn strangers<T>(stale: *mut T, foreign: *mut c_void) -> [(&'static str, *mut T); 5] {
    [
        ("null", null_mut()),
        ("invented", 0x1000 as *mut T),
        ("misaligned", 0x1001 as *mut T),
        ("foreign", foreign.cast()),
        ("stale", stale),
    ]
}

fn odd<T>(room: &mut [usize; 4]) -> *mut T {
    room.as_mut_ptr().wrapping_byte_add(1).cast()
}

#[test]
fn exported_functions() {
    let provider = Provider::new();
    let (create, mut room, mut count) = (provider.create, [0usize; 4], 7usize);
    let places: *mut *mut EpFactory = room.as_mut_ptr().cast();
    let name = c"name".as_ptr();
    // Without a base there is nothing to make a status with.
    let no_functions = [0usize; 2];
    for (what, base) in [
        ("null", null()),
        ("misaligned", (&raw const BASE).wrapping_byte_add(1)),
        ("without functions", no_functions.as_ptr().cast()),
    ] {
        // SAFETY: the base is none that could be followed.
        let status = unsafe { create(name, base, null(), places, 1, &mut count) };
        assert_eq!((answer(status), count, room[0]), (Answer::Success, 0, 0), "{what}");
        // SAFETY: the base is none that could be followed, and neither is the place.
        assert_eq!(answer(unsafe { create(name, base, null(), null_mut(), 0, null_mut()) }), Answer::Success, "{what}");
        count = 7;
    }
    let odd_places = odd(&mut [0; 4]);
    let odd_count = odd(&mut [0; 4]);
    // SAFETY: what is not null and aligned is valid.
    unsafe {
        refused("no array", create(name, &BASE, null(), null_mut(), 1, &mut count), "the array of factories");
        refused("odd array", create(name, &BASE, null(), odd_places, 1, &mut count), "expected a multiple of 8");
        refused("no room", create(name, &BASE, null(), places, 0, &mut count), "no room");
        assert_eq!(count, 0);
        refused("no count", create(name, &BASE, null(), places, 1, null_mut()), "number of factories");
        refused("odd count", create(name, &BASE, null(), places, 1, odd_count), "expected a multiple of 8");
        assert_eq!(room[0], 0);
        // The name and the logger are not looked at.
        assert_eq!(answer(create(null(), &BASE, null(), places, 1, &mut count)), Answer::Success);
        assert_eq!((answer((provider.release)(room[0] as *mut EpFactory)), count), (Answer::Success, 1));
    }
    let stale = provider.another();
    // SAFETY: the factory is not used again; the others are none.
    unsafe {
        assert_eq!(answer((provider.release)(stale)), Answer::Success);
        assert_eq!(answer((provider.release)(null_mut())), Answer::Success);
        for (what, factory) in strangers(stale, provider.ep().cast()).into_iter().skip(1) {
            refused(what, (provider.release)(factory), "expected a living factory");
        }
    }
}

#[test]
fn the_factory_s_functions() {
    let provider = Provider::new();
    let callbacks = *provider.callbacks();
    let stale = provider.another();
    // SAFETY: the factory is not used again but as a stale one.
    assert_eq!(answer(unsafe { (provider.release)(stale) }), Answer::Success);
    let options = 8usize as *const SessionOptions;
    let (mut offers, mut number, mut ep) = ([null_mut(); 2], 0usize, null_mut());
    let (mut allocator, mut transfer): (*mut Allocator, *mut DataTransferImpl) = (null_mut(), null_mut());
    let (devices, supported) = ([null(); 2], callbacks.get_supported_devices.expect("it is served"));
    let create_ep = callbacks.create_ep.expect("it is served");
    let create_allocator = callbacks.create_allocator.expect("it is served");
    let create_transfer = callbacks.create_data_transfer.expect("it is served");
    let this = provider.factory;
    // SAFETY: what is not null and aligned is valid, or a handle that is none.
    unsafe {
        for (what, stranger) in strangers(stale, provider.ep().cast()) {
            let status = supported(stranger, devices.as_ptr(), 2, offers.as_mut_ptr(), 2, &mut number);
            refused(what, status, "expected a living factory");
            refused(
                what,
                create_ep(stranger, null(), null(), 0, options, null(), &mut ep),
                "expected a living factory",
            );
            refused(what, create_allocator(stranger, null(), null(), &mut allocator), "expected a living factory");
            refused(what, create_transfer(stranger, &mut transfer), "expected a living factory");
            // Constants need no factory.
            assert!(!callbacks.get_name.expect("it is served")(stranger).is_null());
            assert!(!callbacks.get_vendor.expect("it is served")(stranger).is_null());
            assert!(!callbacks.get_version.expect("it is served")(stranger).is_null());
            assert_eq!(callbacks.get_vendor_id.expect("it is served")(stranger), 0x1002);
            assert!(!callbacks.is_stream_aware.expect("it is served")(stranger));
            callbacks.release_allocator.expect("it is served")(stranger, null_mut());
        }
        assert!(ep.is_null());
        refused("no devices", supported(this, null(), 2, offers.as_mut_ptr(), 2, &mut number), "array of devices");
        refused(
            "odd devices",
            supported(this, odd(&mut [0; 4]), 1, offers.as_mut_ptr(), 2, &mut number),
            "multiple of",
        );
        refused("no offers", supported(this, cpus().as_ptr(), 1, null_mut(), 1, &mut number), "array of offers");
        refused(
            "no number",
            supported(this, devices.as_ptr(), 2, offers.as_mut_ptr(), 2, null_mut()),
            "number of offers",
        );
        number = 7;
        assert_eq!(answer(supported(this, devices.as_ptr(), 2, offers.as_mut_ptr(), 2, &mut number)), Answer::Success);
        assert_eq!(number, 0, "null devices were offered");
        assert_eq!(answer(supported(this, null(), 0, null_mut(), 0, &mut number)), Answer::Success);

        refused("no options", create_ep(this, null(), null(), 0, null(), null(), &mut ep), "options are null");
        refused("no place", create_ep(this, null(), null(), 0, options, null(), null_mut()), "place for the provider");
        refused("odd place", create_ep(this, null(), null(), 0, options, null(), odd(&mut [0; 4])), "multiple of");
        refused("no place", create_transfer(this, null_mut()), "place for the data transfer");
        transfer = std::ptr::dangling_mut::<DataTransferImpl>();
        assert_eq!((answer(create_transfer(this, &mut transfer)), transfer), (Answer::Success, null_mut()));
        callbacks.release_allocator.expect("it is served")(this, null_mut());
    }
}

/// A device that the stand-in says is a CPU: it says 0 of everything.
fn cpus() -> [*const hipdnn_sdk_bindings::ort::HardwareDevice; 1] {
    [8usize as *const _]
}

#[test]
fn allocators_are_not_implemented() {
    let provider = Provider::new();
    let create = provider.callbacks().create_allocator.expect("the factory answers");
    let mut allocator = std::ptr::dangling_mut::<Allocator>();
    // SAFETY: the place is valid, the rest may be null.
    match answer(unsafe { create(provider.factory, null(), null(), &mut allocator) }) {
        Answer::Error(ErrorCode::NOT_IMPLEMENTED, message) => {
            assert!(message.contains("allocators for GPUs only"), "{message}")
        }
        other => panic!("expected NOT_IMPLEMENTED, got {other:?}"),
    }
    assert!(allocator.is_null());
    // SAFETY: the place is none.
    refused("no place", unsafe { create(provider.factory, null(), null(), null_mut()) }, "place for the allocator");
}

#[test]
fn the_session_s_functions() {
    let provider = Provider::new();
    let (ep, stale) = (provider.ep(), provider.ep());
    let release = provider.callbacks().release_ep.expect("it is served");
    // SAFETY: the provider is not used again but as a stale one; the others are none.
    unsafe {
        release(provider.factory, stale);
        for (_, stranger) in strangers(stale, provider.factory.cast()) {
            release(provider.factory, stranger);
        }
    }
    // SAFETY: the provider lives.
    let callbacks = unsafe { *ep };
    let capability = callbacks.get_capability.expect("it is served");
    let compile = callbacks.compile.expect("it is served");
    let concurrent = callbacks.is_concurrent_run_supported.expect("it is served");
    let complete = callbacks.on_session_initialization_end.expect("it is served");
    let storage = callbacks.get_ep_context_data_callback_support.expect("it is served");
    let take_back = callbacks.release_node_compute_infos.expect("it is served");
    let (mut graphs, mut nodes, mut infos) = ([null(); 2], [null(); 2], [null_mut::<NodeComputeInfo>(); 2]);
    let (graphs, nodes, infos) = (graphs.as_mut_ptr(), nodes.as_mut_ptr(), infos.as_mut_ptr());
    let (graph, info, mut yes) = (8usize as *const _, 8usize as *mut _, false);
    let mut served = 0;
    // SAFETY: what is not null and aligned is valid, opaque to the stand-in, or a handle that is none.
    unsafe {
        for (what, stranger) in strangers(stale, provider.factory.cast()) {
            refused(what, capability(stranger, graph, info), "expected a living provider");
            refused(what, compile(stranger, graphs, nodes, 1, infos, null_mut()), "expected a living provider");
            refused(what, concurrent(stranger, &mut yes), "expected a living provider");
            refused(what, complete(stranger), "expected a living provider");
            refused(what, storage(stranger, &mut served), "expected a living provider");
            take_back(stranger, infos, 2);
            assert!(!callbacks.get_name.expect("it is served")(stranger).is_null());
        }
        refused("no graph", capability(ep, null(), info), "graph is null");
        refused("no claims", capability(ep, graph, null_mut()), "place for claims is null");
        refused("no place", concurrent(ep, null_mut()), "place for the answer");
        refused("no place", storage(ep, null_mut()), "place for the answer");
        assert_eq!((answer(storage(ep, &mut served)), served), (Answer::Success, 3), "reading and writing");
        refused("no graphs", compile(ep, null_mut(), nodes, 1, infos, null_mut()), "array of graphs");
        refused("no nodes", compile(ep, graphs, null_mut(), 1, infos, null_mut()), "array of fused nodes");
        refused("no infos", compile(ep, graphs, nodes, 1, null_mut(), null_mut()), "array of compute functions");
        refused("odd infos", compile(ep, graphs, nodes, 1, odd(&mut [0; 4]), null_mut()), "multiple of");
        refused("null graphs", compile(ep, graphs, nodes, 2, infos, null_mut()), "graph is null");
        assert_eq!(answer(compile(ep, null_mut(), null_mut(), 0, null_mut(), null_mut())), Answer::Success);
        take_back(ep, null_mut(), 2);
        take_back(ep, odd(&mut [0; 4]), 1);
        for (_, stranger) in strangers::<NodeComputeInfo>(null_mut(), ep.cast()) {
            take_back(ep, (&raw const stranger).cast_mut(), 1);
        }
        assert_eq!((answer(concurrent(ep, &mut yes)), yes), (Answer::Success, true));
        assert_eq!(answer(complete(ep)), Answer::Success);
        release(provider.factory, ep);
        release(null_mut(), null_mut());
        assert_eq!(answer((provider.release)(provider.factory)), Answer::Success);
    }
    assert!(OTHER_CALLS.load(Ordering::Relaxed) > 0, "the stand-in was not asked for anything");
}

#[test]
fn the_profiler_s_functions() {
    let provider = Provider::new();
    let (ep, another) = (provider.ep(), provider.ep());
    // SAFETY: the provider's callbacks are its first member.
    let create = unsafe { *ep }.create_profiler.expect("ONNX Runtime 1.25 takes events");
    let make = || {
        let mut profiler = null_mut::<EpProfilerImpl>();
        // SAFETY: the provider lives, and the place is good for writing.
        assert_eq!(answer(unsafe { create(ep, &mut profiler) }), Answer::Success);
        assert!(!profiler.is_null());
        profiler
    };
    let (profiler, stale) = (make(), make());
    // SAFETY: the profiler's callbacks are its first member.
    let callbacks = unsafe { *profiler };
    let release = callbacks.release.expect("it is served");
    let start = callbacks.start_profiling.expect("it is served");
    let begin = callbacks.start_event.expect("it is served");
    let end = callbacks.stop_event.expect("it is served");
    let finish = callbacks.end_profiling.expect("it is served");
    let container = 8usize as *mut _;
    // SAFETY: what is not null and aligned is valid, opaque to the stand-in, or a handle that is none.
    unsafe {
        refused("no place", create(ep, null_mut()), "place for the profiler");
        release(stale);
        for (what, stranger) in strangers(stale, another.cast()) {
            refused(what, start(stranger, 0), "expected a living profiler");
            refused(what, begin(stranger, 1), "expected a living profiler");
            refused(what, end(stranger, 1, null()), "expected a living profiler");
            refused(what, finish(stranger, container), "expected a living profiler");
            release(stranger);
        }
        refused("no container", finish(profiler, null_mut()), "place for events is null");
        assert_eq!(answer(finish(profiler, container)), Answer::Success, "it ends before it began");
        assert_eq!(answer(start(profiler, 0)), Answer::Success);
        assert_eq!(answer(end(profiler, 1, null())), Answer::Success, "no event is open");
        assert_eq!(answer(begin(profiler, 1)), Answer::Success);
        assert_eq!(answer(finish(profiler, container)), Answer::Success);
        assert_eq!(answer(end(profiler, 1, null())), Answer::Success);
        release(profiler);
        let release_ep = provider.callbacks().release_ep.expect("it is served");
        release_ep(provider.factory, ep);
        release_ep(provider.factory, another);
        assert_eq!(answer((provider.release)(provider.factory)), Answer::Success);
    }
}
