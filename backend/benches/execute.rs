//! Cost of an execution beside the plugin's work: the echo plugin adds 16 numbers.
//!
//! `cargo bench -p hipdnn-rs-backend`

#[path = "../tests/common/mod.rs"]
mod common;

use std::ffi::c_void;
use std::ptr::null;
use std::time::Instant;

use common::*;

fn nanoseconds(rounds: u32, mut work: impl FnMut()) -> f64 {
    (0..rounds / 10).for_each(|_| work());
    let start = Instant::now();
    (0..rounds).for_each(|_| work());
    start.elapsed().as_secs_f64() * 1e9 / f64::from(rounds)
}

fn main() {
    let directory = scratch("bench");
    let plugin = compile(&directory, "echo.so", &[]);
    use_plugins(&[&plugin]);
    let handle = OwnedHandle::new();
    let plan = plan(&finished_graph(&handle, &add_graph()));
    let data = Floats([1.0; 16]);
    let mut out = Floats([0.0; 16]);
    let out_address = (&raw mut out).cast_const().cast::<c_void>();
    let make = || {
        let pack = pack(&[(1, data.address()), (2, data.address()), (3, out_address)], null());
        pack.finalize();
        pack
    };
    let pack = make();
    let reused = nanoseconds(1_000_000, || assert_eq!(execute(&handle, &plan, &pack), OK));
    let fresh = nanoseconds(200_000, || assert_eq!(execute(&handle, &plan, &make()), OK));
    println!("execute with one variant pack: {reused:.0} ns; with a new pack each time: {fresh:.0} ns");
}
