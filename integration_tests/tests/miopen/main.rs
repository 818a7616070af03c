//! The MIOpen engine through the plugin's C ABI, on the real MIOpen and the emulated GPU.
//!
//! `cargo xtask test --only miopen` runs it; without the emulated GPU's runtime nothing here runs.

mod bench;
mod case;
mod cases;
mod harness;
mod table;
mod tail;

use std::process::ExitCode;

use hipdnn_rs_integration_tests::emulator::Hip;

use harness::Module;

const MODULES: &[Module] = &[Module { name: "cases", tests: cases::tests, processes: 4 }];

fn main() -> ExitCode {
    harness::main(MODULES, ready())
}

/// Why nothing can run here.
fn ready() -> Result<(), String> {
    let how = "`cargo xtask test --only miopen` runs these tests on the emulated GPU";
    let hip = Hip::get().map_err(|reason| format!("{how}; here: {reason}"))?;
    if hip.control().is_none() {
        return Err(format!("{how}; here HIP is another one"));
    }
    Ok(())
}
