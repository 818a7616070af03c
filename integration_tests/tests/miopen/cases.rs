//! Convolutions of the table: all of them, or a sample.

use std::cell::OnceCell;
use std::rc::Rc;

use crate::bench::{Bench, plugin};
use crate::harness::Test;
use crate::table::cases;

/// Environment variable that asks for a sample; `cargo xtask test` sets it unless all cases are wanted.
const SAMPLE: &str = "HIPDNN_RS_TEST_SAMPLE";

/// A sample has every so-manieth case. The table is a product of directions, types and layouts, eighteen for a geometry: a stride
/// that has no factor in common with that comes to all of these combinations.
const STRIDE: usize = 5;

pub(crate) fn tests() -> Vec<Test> {
    let stride = if std::env::var_os(SAMPLE).is_some() { STRIDE } else { 1 };
    // One handle for all cases of a process, as a program has it.
    let bench: Rc<OnceCell<Result<Bench, String>>> = Rc::new(OnceCell::new());
    cases()
        .into_iter()
        .step_by(stride)
        .map(|case| {
            let bench = Rc::clone(&bench);
            Test::new(case.name(), move || {
                let bench = bench.get_or_init(|| Bench::new(&plugin())).as_ref().map_err(Clone::clone)?;
                Ok(bench.run(&case, &[])?)
            })
        })
        .collect()
}
