//! Every exported function, by what its arguments are: null in each place, handles that are stale, of something else or
//! garbage, and misaligned addresses, each beside addresses that nothing is mapped at wherever a right library does not
//! look. Statuses are those of AMD's libraries, which look at every pointer for null before they follow any; what those
//! do with a handle that is none is undefined, and a parameter error here.

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use super::*;
use hipdnn_rs_integration_tests::artifacts::exported;

/// An address that nothing is mapped at.
const UNMAPPED: usize = 0x5678;

/// A status of either library.
type Answer = i32;

/// Calls a function with arguments as words.
type Call<'a> = Box<dyn Fn(&[usize]) -> Answer + 'a>;

/// Kind of an argument.
enum Argument {
    /// A handle of the library's own: the right one, and wrong ones beside the ones that are wrong everywhere. Null is
    /// refused unless it is the right one.
    Handle { right: usize, wrong: Vec<(&'static str, usize)> },
    /// An address, the size of what is there (0 for bytes, which lie anywhere), and the answer to null.
    Address { right: usize, size: usize, null: Answer },
    /// An address whose null is for the object of the handle to judge.
    Elements { right: usize, size: usize, null: Answer },
    /// A number, or an address that is handed on and never looked at: the right one, and wrong ones with their answers.
    Value { right: usize, wrong: &'static [(usize, Answer)] },
}

impl Argument {
    fn right(&self) -> usize {
        match self {
            Argument::Handle { right, .. }
            | Argument::Address { right, .. }
            | Argument::Elements { right, .. }
            | Argument::Value { right, .. } => *right,
        }
    }
}

fn value(right: usize) -> Argument {
    Argument::Value { right, wrong: &[] }
}

/// The exported functions of one library.
struct Table<'a> {
    /// The answer to null, and to a handle that is none.
    null: Answer,
    bad: Answer,
    /// The answer to a misaligned address; that to a right call if there is none.
    misaligned: Option<Answer>,
    /// Handles that are wrong wherever a handle is wanted.
    wrong: Vec<(&'static str, usize)>,
    rows: Vec<Row<'a>>,
}

/// A function: its arguments, the answer to right ones, and the call.
struct Row<'a> {
    function: &'static str,
    arguments: Vec<Argument>,
    right: Answer,
    call: Call<'a>,
}

/// The case that is running, for the report of a crash.
static CASE: AtomicPtr<c_char> = AtomicPtr::new(null_mut());

/// Names the case that crashed; returning runs into the crash again.
extern "C" fn name_case(signal: c_int) {
    let case = CASE.load(Ordering::Relaxed);
    // SAFETY: the text of the running case ends in a NUL and outlives it; these calls are allowed in signal handlers.
    unsafe {
        if !case.is_null() {
            libc::write(2, case.cast(), libc::strlen(case));
        }
        libc::signal(signal, libc::SIG_DFL);
    }
}

impl Table<'_> {
    /// Makes every wrong call of every row, and in the end the right one.
    fn check(&self) {
        // One table at a time, so that a crash is named rightly.
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the handler does only what handlers may.
        unsafe { libc::signal(libc::SIGSEGV, name_case as *const () as libc::sighandler_t) };
        let mut wrong = Vec::new();
        for row in &self.rows {
            let mut expect = |what: &str, arguments: &[usize], want: Answer| {
                let case = std::ffi::CString::new(format!("crashed: {}: {what}\n", row.function)).expect("no NUL");
                CASE.store(case.as_ptr().cast_mut(), Ordering::Relaxed);
                let got = (row.call)(arguments);
                CASE.store(null_mut(), Ordering::Relaxed);
                if got != want {
                    wrong.push(format!("{}: {what}: expected {want}, got {got}", row.function));
                }
            };
            self.wrong_calls(row, &mut expect);
            expect("right", &row.arguments.iter().map(Argument::right).collect::<Vec<_>>(), row.right);
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    fn wrong_calls(&self, row: &Row<'_>, expect: &mut dyn FnMut(&str, &[usize], Answer)) {
        let right: Vec<usize> = row.arguments.iter().map(Argument::right).collect();
        // What a function must not look at while something else is wrong.
        let unmapped: Vec<usize> = row
            .arguments
            .iter()
            .map(|argument| match argument {
                Argument::Address { .. } | Argument::Elements { .. } => UNMAPPED,
                other => other.right(),
            })
            .collect();
        let garbage: Vec<usize> = row
            .arguments
            .iter()
            .map(|argument| match argument {
                Argument::Handle { right, .. } if *right != 0 => UNMAPPED,
                Argument::Address { .. } | Argument::Elements { .. } => UNMAPPED,
                other => other.right(),
            })
            .collect();
        let with = |arguments: &[usize], index: usize, value: usize| {
            let mut arguments = arguments.to_vec();
            arguments[index] = value;
            arguments
        };
        for (index, argument) in row.arguments.iter().enumerate() {
            match argument {
                Argument::Handle { right: handle, wrong } => {
                    if *handle != 0 {
                        expect(&format!("null as {index}"), &with(&unmapped, index, 0), self.null);
                        expect(&format!("null as {index} beside garbage"), &with(&garbage, index, 0), self.null);
                    }
                    for (what, handle) in self.wrong.iter().chain(wrong) {
                        expect(&format!("{what} as {index}"), &with(&unmapped, index, *handle), self.bad);
                    }
                }
                Argument::Address { size, null, .. } | Argument::Elements { size, null, .. } => {
                    if *null == row.right {
                        expect(&format!("null as {index}"), &with(&right, index, 0), *null);
                    } else {
                        expect(&format!("null as {index}"), &with(&unmapped, index, 0), *null);
                        if let Argument::Address { .. } = argument {
                            expect(&format!("null as {index} beside garbage"), &with(&garbage, index, 0), *null);
                        }
                    }
                    if *size > 0 {
                        let mut room = vec![0u64; size / 8 + 2];
                        let odd = room.as_mut_ptr().cast::<u8>().wrapping_add(1);
                        // SAFETY: the right address has so many bytes, and the room has one more.
                        unsafe { std::ptr::copy_nonoverlapping(right[index] as *const u8, odd, *size) };
                        let want = self.misaligned.filter(|_| *null != row.right).unwrap_or(row.right);
                        expect(&format!("misaligned as {index}"), &with(&right, index, odd as usize), want);
                    }
                }
                Argument::Value { wrong, .. } => {
                    for (value, want) in *wrong {
                        expect(&format!("{value:#x} as {index}"), &with(&right, index, *value), *want);
                    }
                }
            }
        }
    }

    /// Fails where the library exports a function without a row, or a row has none.
    fn check_exports(&self, artifact: Artifact) {
        let rows: std::collections::BTreeSet<String> = self.rows.iter().map(|row| row.function.to_string()).collect();
        assert_eq!(rows.len(), self.rows.len(), "a function has one row");
        assert_eq!(rows, exported(artifact), "{artifact:?}: a row for each exported function");
    }
}

/// Declares a row whose call passes the arguments on as they are.
macro_rules! row {
    ($rows:ident, $name:literal, $function:expr, [$($index:literal)*], $arguments:expr, $right:expr) => {{
        let function = $function;
        row!($rows, $name, $arguments, $right, move |a: &[usize]| {
            // SAFETY: addresses are valid, or a right library does not look at them.
            unsafe { function($(a[$index] as _),*) }.0
        });
    }};
    ($rows:ident, $name:literal, $arguments:expr, $right:expr, $call:expr) => {
        $rows.push(Row { function: $name, arguments: Vec::from($arguments), right: $right, call: Box::new($call) })
    };
}

/// Value at an address, which may be misaligned.
///
/// # Safety
/// A `T` is there.
unsafe fn at<T>(address: usize) -> T {
    // SAFETY: the caller's word.
    unsafe { (address as *const T).read_unaligned() }
}

unsafe extern "C" fn plugin_log(_: Severity, _: *const c_char) {}

unsafe extern "C" fn user_log(_: *mut c_void, _: Severity, _: *const c_char) {}

/// Room for a result of any kind.
fn place() -> usize {
    Box::leak(Box::new([0u64; 64])).as_mut_ptr() as usize
}

#[test]
fn every_function_of_the_plugin() {
    use PluginStatus as S;
    let (ok, bad) = (S::SUCCESS.0, S::BAD_PARAM.0);
    let plugin = Plugin::open(&plugins().join(Artifact::Plugin.file_name()));
    let f = plugin.functions();
    let id = engine_id(HOST);
    let (graph, config) = (graph_bytes(), EngineConfig { engine_id: id, knobs: Vec::new() }.to_bytes());
    let handle = plugin.handle().expect("a handle");
    let plan = handle.plan(&config, &graph).expect("a plan");
    let (h, x) = (handle.raw() as usize, plan.raw() as usize);
    let (mut own, mut stale) = (null_mut(), null_mut());
    let (mut own_context, mut stale_context) = (null_mut(), null_mut());
    let (graph, config) = (const_data(&graph), const_data(&config));
    let stored = plan.serialized().expect("a stored plan");
    let stored = const_data(&stored);
    let (mut lent, mut lent_plan) = (ConstData { ptr: null(), size: 0 }, ConstData { ptr: null(), size: 0 });
    // SAFETY: pointers are valid for their calls.
    let made = unsafe {
        [
            (f.create)(&mut own),
            (f.create)(&mut stale),
            (f.destroy)(stale),
            (f.create_execution_context)(handle.raw(), &config, &graph, &mut own_context),
            (f.create_execution_context)(handle.raw(), &config, &graph, &mut stale_context),
            (f.destroy_execution_context)(handle.raw(), stale_context),
            (f.get_engine_details)(handle.raw(), id, &graph, &mut lent),
            (f.serialize_execution_context)(handle.raw(), plan.raw(), &mut lent_plan),
        ]
    };
    assert_eq!(made, [S::SUCCESS; 8], "{}", plugin.last_error());
    let memory = vec![0u128; 4096];
    let pack = [1, 2, 3].map(|uid| DeviceBuffer { uid, ptr: memory.as_ptr().cast_mut().cast() });

    let handle_of =
        |right| Argument::Handle { right, wrong: vec![("a destroyed one", stale as usize), ("a context", x)] };
    let context_of =
        |right| Argument::Handle { right, wrong: vec![("a destroyed one", stale_context as usize), ("a handle", h)] };
    let address = |right: usize, size| Argument::Address { right, size, null: bad };
    let out = |size| address(place(), size);
    let data = |data: &ConstData| address(data as *const ConstData as usize, size_of::<ConstData>());

    let mut rows: Vec<Row<'_>> = Vec::new();
    row!(rows, "hipdnnPluginGetName", f.get_name, [0], [out(8)], ok);
    row!(rows, "hipdnnPluginGetVersion", f.get_version, [0], [out(8)], ok);
    row!(rows, "hipdnnPluginGetApiVersion", f.get_api_version, [0], [out(8)], ok);
    row!(rows, "hipdnnPluginGetType", f.get_type, [0], [out(4)], ok);
    let last_error = plugin.last_error_function();
    row!(
        rows,
        "hipdnnPluginGetLastErrorString",
        [Argument::Address { right: place(), size: 8, null: ok }],
        ok,
        move |a| {
            // SAFETY: null, which is ignored, or a place.
            unsafe { last_error(a[0] as _) };
            ok
        }
    );
    let version = Argument::Value { right: 1, wrong: &[(0, 5), (1 << 31, 5)] };
    row!(rows, "hipdnnRsGetExtension", plugin.get_extension(), [0 1], [version, out(8)], ok);
    let callback = plugin_log as *const () as usize;
    row!(rows, "hipdnnPluginSetLoggingCallback", [address(callback, 0)], ok, |a| {
        // SAFETY: null, or a function that may be called at any time.
        unsafe { (f.set_logging_callback)((a[0] != 0).then_some(plugin_log)) }.0
    });
    let levels = Argument::Value { right: 4, wrong: &[(5, 2), (usize::MAX, 2)] };
    // SAFETY: takes a number.
    row!(rows, "hipdnnPluginSetLogLevel", [levels], ok, |a| unsafe { (f.set_log_level)(Severity(a[0] as i32)) }.0);
    row!(rows, "hipdnnEnginePluginGetAllEngineIds", f.get_all_engine_ids, [0 1 2], [out(32), value(4), out(4)], ok);
    let unknown = Argument::Value { right: id as usize, wrong: &[(1, 5)] };
    row!(rows, "hipdnnEnginePluginGetEngineName", f.get_engine_name, [0 1], [unknown, out(8)], ok);
    row!(rows, "hipdnnEnginePluginCreate", [out(8)], ok, |a| {
        // SAFETY: null or a place; what a success leaves there is a handle.
        unsafe {
            let status = (f.create)(a[0] as _);
            if status == S::SUCCESS { (f.destroy)(at(a[0])).0 } else { status.0 }
        }
    });
    row!(rows, "hipdnnEnginePluginDestroy", f.destroy, [0], [handle_of(own as usize)], ok);
    row!(rows, "hipdnnEnginePluginSetStream", f.set_stream, [0 1], [handle_of(h), value(0)], ok);
    row!(
        rows,
        "hipdnnEnginePluginGetApplicableEngineIds",
        f.get_applicable_engine_ids,
        [0 1 2 3 4],
        [handle_of(h), data(&graph), out(32), value(4), out(4)],
        ok
    );
    let unknown = Argument::Value { right: id as usize, wrong: &[(1, 1)] };
    row!(rows, "hipdnnEnginePluginGetEngineDetails", [handle_of(h), unknown, data(&graph), out(16)], ok, |a| {
        // SAFETY: addresses are valid, or a right plugin does not look at them; a success leaves details.
        unsafe {
            let status = (f.get_engine_details)(a[0] as _, a[1] as _, a[2] as _, a[3] as _);
            if status == S::SUCCESS { (f.destroy_engine_details)(a[0] as _, a[3] as _).0 } else { status.0 }
        }
    });
    row!(
        rows,
        "hipdnnEnginePluginDestroyEngineDetails",
        f.destroy_engine_details,
        [0 1],
        [handle_of(h), data(&lent)],
        ok
    );
    row!(
        rows,
        "hipdnnEnginePluginGetWorkspaceSize",
        f.get_workspace_size,
        [0 1 2 3],
        [handle_of(h), data(&config), data(&graph), out(8)],
        ok
    );
    row!(
        rows,
        "hipdnnEnginePluginCreateExecutionContext",
        [handle_of(h), data(&config), data(&graph), out(8)],
        ok,
        |a| {
            // SAFETY: addresses are valid, or a right plugin does not look at them; a success leaves a context.
            unsafe {
                let status = (f.create_execution_context)(a[0] as _, a[1] as _, a[2] as _, a[3] as _);
                if status == S::SUCCESS { (f.destroy_execution_context)(a[0] as _, at(a[3])).0 } else { status.0 }
            }
        }
    );
    row!(
        rows,
        "hipdnnEnginePluginDestroyExecutionContext",
        f.destroy_execution_context,
        [0 1],
        [handle_of(h), context_of(own_context as usize)],
        ok
    );
    row!(
        rows,
        "hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext",
        f.get_workspace_size_from_execution_context,
        [0 1 2],
        [handle_of(h), context_of(x), out(8)],
        ok
    );
    let buffers = address(pack.as_ptr() as usize, size_of_val(&pack));
    row!(
        rows,
        "hipdnnEnginePluginExecuteOpGraph",
        f.execute_op_graph,
        [0 1 2 3 4],
        [handle_of(h), context_of(x), value(memory.as_ptr() as usize), buffers, value(3)],
        ok
    );
    row!(
        rows,
        "hipdnnEnginePluginExecuteOpGraphWithOverrides",
        f.execute_op_graph_with_overrides,
        [0 1 2 3 4 5 6 7 8 9],
        [
            handle_of(h),
            context_of(x),
            value(memory.as_ptr() as usize),
            address(pack.as_ptr() as usize, size_of_val(&pack)),
            value(3),
            value(0),
            value(0),
            value(0),
            value(0),
            value(0),
        ],
        ok
    );
    row!(rows, "hipdnnEnginePluginSerializeExecutionContext", [handle_of(h), context_of(x), out(16)], ok, |a| {
        // SAFETY: addresses are valid, or a right plugin does not look at them; a success leaves a stored plan.
        unsafe {
            let status = (f.serialize_execution_context)(a[0] as _, a[1] as _, a[2] as _);
            if status == S::SUCCESS {
                (f.destroy_serialized_execution_context)(a[0] as _, a[2] as _).0
            } else {
                status.0
            }
        }
    });
    row!(
        rows,
        "hipdnnEnginePluginDestroySerializedExecutionContext",
        f.destroy_serialized_execution_context,
        [0 1],
        [handle_of(h), data(&lent_plan)],
        ok
    );
    row!(
        rows,
        "hipdnnEnginePluginCreateExecutionContextFromSerialized",
        [handle_of(h), data(&stored), out(8)],
        ok,
        |a| {
            // SAFETY: addresses are valid, or a right plugin does not look at them; a success leaves a context.
            unsafe {
                let status = (f.create_execution_context_from_serialized)(a[0] as _, a[1] as _, a[2] as _);
                if status == S::SUCCESS { (f.destroy_execution_context)(a[0] as _, at(a[2])).0 } else { status.0 }
            }
        }
    );

    let wrong = vec![("an address", memory.as_ptr() as usize), ("garbage", UNMAPPED), ("all bits", usize::MAX)];
    let table = Table { null: bad, bad, misaligned: Some(bad), wrong, rows };
    table.check_exports(Artifact::Plugin);
    table.check();
}

#[test]
fn every_function_of_the_backend() {
    let (ok, bad, null, unsupported) = (OK.0, BAD.0, NULL.0, UNSUPPORTED.0);
    let w = World::new();
    let b = &w.b;
    let bytes = graph_bytes();
    let json = {
        let mut size = 0;
        let mut text = vec![0u8; 1 << 16];
        let serialize = b.get_serialized_json_graph.expect("our backend has it");
        // SAFETY: there is as much room as we say.
        w.ok(unsafe { serialize(w.graph, text.len(), &mut size, text.as_mut_ptr().cast()) });
        text.truncate(size);
        text
    };
    let plan = {
        let mut size = 0;
        let mut bytes = vec![0u8; 1 << 16];
        let serialize = b.get_serialized_execution_plan.expect("our backend has it");
        // SAFETY: there is as much room as we say.
        w.ok(unsafe { serialize(w.plan, bytes.len(), &mut size, bytes.as_mut_ptr()) });
        bytes.truncate(size);
        bytes
    };
    let mut own = null_mut();
    // SAFETY: the place is valid.
    w.ok(unsafe { (b.create)(&mut own) });
    let own_descriptor = w.new_descriptor(Kind::TENSOR_DESCRIPTOR);
    let tensor = w.new_descriptor(Kind::TENSOR_DESCRIPTOR);
    let one = 1i64;
    let paths = [c"/nonexistent/plugin.so".as_ptr()];

    let (h, t, graph) = (w.handle as usize, w.tensor as usize, w.graph as usize);
    let handle_of = |right| Argument::Handle {
        right,
        wrong: vec![("a destroyed one", w.destroyed_handle as usize), ("a descriptor", graph)],
    };
    let any = |right: usize| Argument::Handle {
        right,
        wrong: vec![("a destroyed one", w.destroyed as usize), ("a handle", h)],
    };
    let kind = |right: usize| Argument::Handle {
        right,
        wrong: vec![("a destroyed one", w.destroyed as usize), ("a handle", h), ("another kind", t)],
    };
    let address = |right: usize, size| Argument::Address { right, size, null };
    let out = |size| address(place(), size);
    // Null where the caller does not ask, or asks for a size.
    let optional = |size, right| Argument::Address { right: place(), size, null: right };
    // SAFETY: what the row's call has just made, at a place that it was given.
    let destroyed = |status: Status, place: usize| unsafe {
        if status == OK { (b.destroy_descriptor)(at(place)).0 } else { status.0 }
    };
    macro_rules! extension {
        ($field:ident) => {
            b.$field.expect("our backend has it")
        };
    }

    let mut rows: Vec<Row<'_>> = Vec::new();
    row!(rows, "hipdnnCreate", [out(8)], ok, |a| {
        // SAFETY: null or a place; what a success leaves there is a handle.
        unsafe {
            let status = (b.create)(a[0] as _);
            if status == OK { (b.destroy)(at(a[0])).0 } else { status.0 }
        }
    });
    row!(rows, "hipdnnDestroy", b.destroy, [0], [handle_of(own as usize)], ok);
    row!(rows, "hipdnnSetStream", b.set_stream, [0 1], [handle_of(h), value(0)], ok);
    row!(rows, "hipdnnGetStream", b.get_stream, [0 1], [handle_of(h), out(8)], ok);
    let kinds = Argument::Value { right: 14, wrong: &[(0, 8), (8, 8), (999, 8), (usize::MAX, 8)] };
    row!(rows, "hipdnnBackendCreateDescriptor", [kinds, out(8)], ok, |a| {
        // SAFETY: null or a place.
        destroyed(unsafe { (b.create_descriptor)(Kind(a[0] as i32), a[1] as _) }, a[1])
    });
    row!(rows, "hipdnnBackendDestroyDescriptor", b.destroy_descriptor, [0], [any(own_descriptor as usize)], ok);
    row!(rows, "hipdnnBackendFinalize", b.finalize, [0], [any(t)], ok);
    let elements = Argument::Elements { right: &raw const one as usize, size: 8, null };
    row!(rows, "hipdnnBackendSetAttribute", [any(tensor as usize), value(1), elements], ok, |a| {
        let (name, kind) = (Name::TENSOR_UNIQUE_ID, Type::INT64);
        // SAFETY: an element is there, or a right backend does not look.
        unsafe { (b.set_attribute)(a[0] as _, name, kind, a[1] as _, a[2] as _) }.0
    });
    row!(
        rows,
        "hipdnnBackendGetAttribute",
        [any(t), Argument::Value { right: 1, wrong: &[(usize::MAX, 2)] }, optional(8, ok), optional(8, ok)],
        ok,
        |a| {
            let (name, kind) = (Name::TENSOR_UNIQUE_ID, Type::INT64);
            // SAFETY: there is room for the count and an element, or a right backend does not look.
            unsafe { (b.get_attribute)(a[0] as _, name, kind, a[1] as _, a[2] as _, a[3] as _) }.0
        }
    );
    row!(
        rows,
        "hipdnnBackendExecute",
        b.execute,
        [0 1 2],
        [handle_of(h), kind(w.plan as usize), kind(w.pack as usize)],
        ok
    );
    row!(rows, "hipdnnGetErrorString", [value(3)], ok, |a| {
        // SAFETY: takes a number.
        if unsafe { (b.get_error_string)(Status(a[0] as i32)) }.is_null() { -1 } else { ok }
    });
    row!(rows, "hipdnnGetLastErrorString", [optional(0, ok), value(100)], ok, |a| {
        // SAFETY: null, or room for so many bytes.
        unsafe { (b.get_last_error_string)(a[0] as _, a[1]) };
        ok
    });
    let peek = extension!(peek_last_error_string);
    row!(rows, "hipdnnPeekLastErrorString_ext", [optional(0, ok), value(100)], ok, move |a| {
        // SAFETY: null, or room for so many bytes.
        unsafe { peek(a[0] as _, a[1]) };
        ok
    });
    let bytes_of = |bytes: &[u8]| address(bytes.as_ptr() as usize, 0);
    let deserialize = extension!(create_and_deserialize_graph);
    row!(
        rows,
        "hipdnnBackendCreateAndDeserializeGraph_ext",
        [out(8), bytes_of(&bytes), value(bytes.len())],
        ok,
        // SAFETY: addresses are valid, or a right backend does not look at them.
        |a| destroyed(unsafe { deserialize(a[0] as _, a[1] as _, a[2]) }, a[0])
    );
    let deserialize_json = extension!(create_and_deserialize_json_graph);
    row!(
        rows,
        "hipdnnBackendCreateAndDeserializeJsonGraph_ext",
        [out(8), bytes_of(&json), value(json.len())],
        ok,
        // SAFETY: addresses are valid, or a right backend does not look at them.
        |a| destroyed(unsafe { deserialize_json(a[0] as _, a[1] as _, a[2]) }, a[0])
    );
    let room = vec![0u8; 1 << 16];
    let buffer = |right| Argument::Address { right: room.as_ptr() as usize, size: 0, null: right };
    row!(
        rows,
        "hipdnnBackendGetSerializedBinaryGraph_ext",
        extension!(get_serialized_binary_graph),
        [0 1 2 3],
        [kind(graph), value(room.len()), out(8), buffer(ok)],
        ok
    );
    row!(
        rows,
        "hipdnnBackendGetSerializedJsonGraph_ext",
        extension!(get_serialized_json_graph),
        [0 1 2 3],
        [kind(graph), value(room.len()), out(8), buffer(ok)],
        ok
    );
    row!(
        rows,
        "hipdnnBackendGetSerializedExecutionPlan_ext",
        extension!(get_serialized_execution_plan),
        [0 1 2 3],
        [kind(w.plan as usize), value(room.len()), out(8), buffer(ok)],
        ok
    );
    let deserialize_plan = extension!(create_and_deserialize_execution_plan);
    row!(
        rows,
        "hipdnnBackendCreateAndDeserializeExecutionPlan_ext",
        [handle_of(h), out(8), bytes_of(&plan), value(plan.len())],
        ok,
        // SAFETY: addresses are valid, or a right backend does not look at them.
        |a| destroyed(unsafe { deserialize_plan(a[0] as _, a[1] as _, a[2] as _, a[3]) }, a[1])
    );
    row!(
        rows,
        "hipdnnBackendGetSerializedBinaryGraphAndPlan_ext",
        extension!(get_serialized_binary_graph_and_plan),
        [0 1 2 3 4],
        [kind(graph), kind(0), value(room.len()), out(8), buffer(ok)],
        ok
    );
    row!(
        rows,
        "hipdnnBackendGetSerializedBinaryContents_ext",
        extension!(get_serialized_binary_contents),
        [0 1 2],
        [bytes_of(&bytes), value(bytes.len()), out(4)],
        ok
    );
    let modes = |a: usize| PluginLoadingMode(a as i32);
    let set_paths = extension!(set_engine_plugin_paths);
    // Not while a handle lives.
    row!(
        rows,
        "hipdnnSetEnginePluginPaths_ext",
        [value(1), address(paths.as_ptr() as usize, 8), value(1)],
        unsupported,
        // SAFETY: there are as many paths as we say, or a right backend does not look.
        |a| unsafe { set_paths(a[0], a[1] as _, modes(a[2])) }.0
    );
    let set_heuristic_paths = extension!(set_heuristic_plugin_paths);
    row!(
        rows,
        "hipdnnSetHeuristicPluginPaths_ext",
        [value(1), address(paths.as_ptr() as usize, 8), value(1)],
        unsupported,
        // SAFETY: there are as many paths as we say, or a right backend does not look.
        |a| unsafe { set_heuristic_paths(a[0], a[1] as _, modes(a[2])) }.0
    );
    let set_mode = extension!(set_plugin_unload_mode);
    let modes = Argument::Value { right: 0, wrong: &[(2, 2), (usize::MAX, 2)] };
    // SAFETY: takes a number.
    row!(rows, "hipdnnSetPluginUnloadMode_ext", [modes], ok, |a| unsafe { set_mode(PluginUnloadingMode(a[0] as i32)) }
        .0);
    row!(
        rows,
        "hipdnnGetLoadedEnginePluginPaths_ext",
        extension!(get_loaded_engine_plugin_paths),
        [0 1 2 3],
        [handle_of(h), out(8), value(0), out(8)],
        ok
    );
    row!(rows, "hipdnnGetEngineCount_ext", extension!(get_engine_count), [0 1], [handle_of(h), out(8)], ok);
    let texts = || (0..4).flat_map(|_| [value(0), out(8)]);
    let indices = || Argument::Value { right: 0, wrong: &[(99, 2), (usize::MAX, 2)] };
    row!(
        rows,
        "hipdnnGetEngineInfo_ext",
        extension!(get_engine_info),
        [0 1 2 3 4 5 6 7 8 9 10],
        [handle_of(h), indices(), optional(8, ok)].into_iter().chain(texts()).collect::<Vec<_>>(),
        ok
    );
    let name = c"HIPDNN_RS_CPU_ENGINE".as_ptr() as usize;
    row!(
        rows,
        "hipdnnGetEngineIdByName_ext",
        extension!(get_engine_id_by_name),
        [0 1 2],
        [handle_of(h), address(name, 0), out(8)],
        ok
    );
    row!(
        rows,
        "hipdnnGetEngineNameById_ext",
        extension!(get_engine_name_by_id),
        [0 1 2 3],
        [handle_of(h), Argument::Value { right: engine_id(HOST) as usize, wrong: &[(1, 8)] }, value(0), out(8)],
        ok
    );
    row!(
        rows,
        "hipdnnGetHeuristicPolicyCount_ext",
        extension!(get_heuristic_policy_count),
        [0 1],
        [handle_of(h), out(8)],
        ok
    );
    row!(
        rows,
        "hipdnnGetHeuristicPolicyInfo_ext",
        extension!(get_heuristic_policy_info),
        [0 1 2 3 4 5 6 7 8 9 10],
        [handle_of(h), indices(), optional(8, ok)].into_iter().chain(texts()).collect::<Vec<_>>(),
        ok
    );
    row!(
        rows,
        "hipdnnBackendWriteEngineRankingResults_ext",
        extension!(write_engine_ranking_results),
        [0 1 2 3 4],
        // Without engines nothing is written.
        [handle_of(h), kind(graph), optional(8, ok), value(0), optional(4, ok)],
        ok
    );
    let log = extension!(logging_callback);
    row!(rows, "hipdnnLoggingCallback_ext", [value(0), optional(0, ok)], ok, move |a| {
        // SAFETY: null or a text.
        unsafe { log(Severity(a[0] as i32), a[1] as _) };
        ok
    });
    let set_callback = extension!(set_user_log_callback);
    let user = |right| Argument::Address { right, size: 0, null: bad };
    row!(
        rows,
        "hipdnnSetUserLogCallback_ext",
        [
            user(user_log as *const () as usize),
            Argument::Value { right: 2, wrong: &[(5, 2), (usize::MAX, 2)] },
            Argument::Value { right: 0, wrong: &[(2, 2), (usize::MAX, 2)] },
            user(place())
        ],
        ok,
        move |a| {
            let callback = (a[0] != 0).then_some(user_log as unsafe extern "C" fn(_, _, _));
            // SAFETY: null, or a function that may be called at any time with any word.
            let set = |level| unsafe { set_callback(callback, level, LogCallbackMode(a[2] as i32), a[3] as _) };
            let status = set(Severity(a[1] as i32));
            if status == OK { set(Severity::OFF).0 } else { status.0 }
        }
    );
    let set_level = extension!(set_global_log_level);
    let levels = Argument::Value { right: 4, wrong: &[(5, 2), (usize::MAX, 2)] };
    // SAFETY: takes a number.
    row!(rows, "hipdnnBackendSetGlobalLogLevel_ext", [levels], ok, move |a| unsafe {
        set_level(Severity(a[0] as i32))
    }
    .0);
    let level = Argument::Address { right: place(), size: 4, null: bad };
    row!(rows, "hipdnnBackendGetGlobalLogLevel_ext", extension!(get_global_log_level), [0], [level], ok);
    row!(rows, "hipdnnGetVersion_ext", extension!(get_version), [0], [out(8)], ok);
    let version = extension!(version_string);
    // SAFETY: takes nothing.
    row!(rows, "hipdnnVersionString_ext", [], ok, move |_| if unsafe { version() }.is_null() { -1 } else { ok });

    let wrong = vec![("an address", room.as_ptr() as usize), ("garbage", UNMAPPED), ("all bits", usize::MAX)];
    let table = Table { null, bad, misaligned: None, wrong, rows };
    table.check_exports(Artifact::Backend);
    table.check();
    // SAFETY: the descriptor is alive.
    w.ok(unsafe { (b.destroy_descriptor)(tensor) });
}
