//! Executions allocate nothing, on the engine's threads and on lent ones.
//!
//! The program has no test harness: its main thread allocates while a test begins, and would be counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hipdnn_cpu_threads::lent;
use hipdnn_engine_core::{Engine, Plan, Site, engine_id};
use hipdnn_engine_cpu::CPU_ENGINE;
use hipdnn_schemas::{
    Convolution, DataType, EngineConfig, GraphBuilder, KnobValue, Operation, Pointwise, PointwiseMode, Reduction,
    ReductionMode, TensorDef,
};
use hipdnn_sdk_bindings::hipdnn::extension::{Body, ParallelFor};
use hipdnn_sdk_bindings::hipdnn::plugin::DeviceBuffer;

/// The system's allocator, with a counter that can be switched on.
struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTS.load(Ordering::SeqCst) {
            ALLOCATIONS.fetch_add(1, Ordering::SeqCst);
        }
        // SAFETY: the caller promises a layout of more than no bytes, as the system's allocator asks.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller gives back what `alloc` gave, which is the system's, with its layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

unsafe extern "C" fn run_in_order(_: *mut c_void, items: usize, body: Body, data: *mut c_void) -> c_int {
    for item in 0..items {
        // SAFETY: body and data come together.
        unsafe { body(data, item) };
    }
    0
}

/// Plan of a convolution with an epilogue, and of rows that are divided by their maximum.
fn plan(knobs: &[(&str, KnobValue)]) -> Box<dyn Plan> {
    let mut graph = GraphBuilder::new("allocation").compute(DataType::Float);
    let (dims, wide) = ([1, 16, 20, 20], [1, 16, 18, 18]);
    let x = graph.tensor(TensorDef::new(1, DataType::Float, &dims));
    let w = graph.tensor(TensorDef::new(2, DataType::Float, &[16, 16, 3, 3]));
    let c = graph.tensor(TensorDef::new(3, DataType::Float, &wide).intermediate());
    let r = graph.tensor(TensorDef::new(4, DataType::Float, &wide).intermediate());
    let m = graph.tensor(TensorDef::new(6, DataType::Float, &[1, 16, 18, 1]).intermediate());
    let q = graph.tensor(TensorDef::new(7, DataType::Float, &wide).intermediate());
    let y = graph.tensor(TensorDef::new(5, DataType::Float, &wide));
    graph.convolution_fwd(x, w, c, Convolution::new(2));
    graph.pointwise(Pointwise::unary(PointwiseMode::ReluFwd, c, r));
    let greatest = Reduction { mode: ReductionMode::Max, input: r, output: m, is_deterministic: true };
    graph.node("", Operation::Reduction(greatest));
    graph.pointwise(Pointwise::binary(PointwiseMode::Div, r, m, q));
    graph.pointwise(Pointwise::unary(PointwiseMode::Sin, q, y));
    let graph = std::sync::Arc::new(graph.build().unwrap());
    let knobs = knobs.iter().map(|(id, value)| (id.to_string(), value.clone())).collect();
    let config = EngineConfig { engine_id: engine_id(&CPU_ENGINE), knobs };
    let applicable = CPU_ENGINE.applicable(&graph, Site::UNSPECIFIED).unwrap_or_else(|declined| panic!("{declined}"));
    applicable.plan(&config).unwrap()
}

const NAME: &str = "executions_allocate_nothing";

/// True if arguments of Rust's test harness name the test: by a part of the name, or all of it with `--exact`. None is
/// ignored.
fn is_wanted(arguments: &[String]) -> bool {
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let matches = |filter: &String| if has("--exact") { filter == NAME } else { NAME.contains(filter.as_str()) };
    let (mut filters, mut skips) = (Vec::new(), Vec::new());
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--skip" => skips.extend(rest.next()),
            "--color" | "--format" | "--logfile" | "--shuffle-seed" | "--test-threads" | "-Z" => drop(rest.next()),
            flag if flag.starts_with('-') => {}
            _ => filters.push(argument),
        }
    }
    let named = filters.is_empty() || filters.into_iter().any(matches);
    named && !skips.into_iter().any(matches) && !has("--ignored")
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let count = usize::from(is_wanted(&arguments));
    if arguments.iter().any(|argument| argument == "--list") {
        print!("{}", format!("{NAME}: test\n").repeat(count));
        return;
    }
    println!("\nrunning {count} test{}", if count == 1 { "" } else { "s" });
    if count == 1 {
        executions_allocate_nothing();
        println!("test {NAME} ... ok");
    }
    println!("\ntest result: ok. {count} passed; 0 failed; 0 ignored; {} filtered out\n", 1 - count);
}

fn executions_allocate_nothing() {
    // SAFETY: the program has no other thread yet that reads or writes the environment.
    unsafe { std::env::set_var("HIPDNN_RS_CPU_ENGINE", "on") };
    let mut x = vec![1.0f32; 16 * 20 * 20];
    let mut w = vec![0.5f32; 16 * 16 * 3 * 3];
    let mut y = vec![0.0f32; 16 * 18 * 18];
    let buffers = [(1, &mut x), (2, &mut w), (5, &mut y)]
        .map(|(uid, values)| DeviceBuffer { uid, ptr: values.as_mut_ptr().cast() });
    let threads = ("hipdnn_rs.cpu.threads", KnobValue::Int(3));
    let constants = ("hipdnn_rs.constants", KnobValue::String("2=allocation".to_owned()));
    let unpooled = ("hipdnn_rs.cpu.pool", KnobValue::Int(0));
    let in_order = ParallelFor { run: Some(run_in_order), context: null_mut() };
    for knobs in [&[threads.clone()][..], &[threads.clone(), constants.clone()], &[threads, constants, unpooled]] {
        for lent in [ParallelFor::NONE, in_order] {
            let plan = plan(knobs);
            let mut workspace = vec![0u8; plan.workspace_bytes()];
            ALLOCATIONS.store(0, Ordering::SeqCst);
            for _ in 0..3 {
                let before = lent::replace(lent);
                COUNTS.store(true, Ordering::SeqCst);
                // SAFETY: each buffer has as many elements as its tensor, and the workspace the plan's size.
                let result = unsafe { plan.execute(null_mut(), workspace.as_mut_ptr(), &buffers) };
                COUNTS.store(false, Ordering::SeqCst);
                lent::replace(before);
                result.unwrap();
            }
            let count = ALLOCATIONS.load(Ordering::SeqCst);
            assert_eq!(count, 0, "lent {}, {knobs:?}", lent.run.is_some());
        }
    }
    // All sums are equal: 16 channels by 9 taps of 1 × 0.5.
    assert!(y.iter().all(|y| (*y - 1f32.sin()).abs() < 1e-5), "the graph was computed");
    let probe = || Box::new(std::hint::black_box(1));
    COUNTS.store(true, Ordering::SeqCst);
    drop(std::hint::black_box(probe()));
    COUNTS.store(false, Ordering::SeqCst);
    assert!(ALLOCATIONS.load(Ordering::SeqCst) > 0, "allocations are counted");
}
