//! Every convolution of the table.

use std::cell::OnceCell;
use std::rc::Rc;

use crate::bench::{Bench, plugin};
use crate::harness::Test;
use crate::table::cases;

pub(crate) fn tests() -> Vec<Test> {
    // One handle for all cases of a process, as a program has it.
    let bench: Rc<OnceCell<Result<Bench, String>>> = Rc::new(OnceCell::new());
    cases()
        .into_iter()
        .map(|case| {
            let bench = Rc::clone(&bench);
            Test::new(case.name(), move || {
                let bench = bench.get_or_init(|| Bench::new(&plugin())).as_ref().map_err(Clone::clone)?;
                Ok(bench.run(&case, &[])?)
            })
        })
        .collect()
}
