//! The GPU engine through the plugin's C ABI, on the real MIOpen and the emulated GPU.
//!
//! `cargo xtask test --only miopen` runs it on the emulated GPU, `cargo xtask gpu-check` also on a real one: there run the
//! modules that ask nothing of the runtime that only the emulated one can do. Without a device nothing runs.

mod bench;
mod cache;
mod case;
mod cases;
mod child;
mod choice;
mod claims;
mod compiler;
mod convolution;
mod faults;
mod graph_case;
mod graphs;
mod harness;
mod knobs;
mod logged;
mod missing;
mod mixed;
mod quiet;
mod stored;
mod streams;
mod table;
mod tail;
mod timer;
mod trace;

use std::process::ExitCode;

use hipdnn_rs_integration_tests::emulator::Hip;

use harness::Module;

const MODULES: &[Module] = &[
    Module { name: "missing", tests: missing::tests, processes: 1, emulated: true },
    Module { name: "quiet", tests: quiet::tests, processes: 1, emulated: true },
    Module { name: "cases", tests: cases::tests, processes: 4, emulated: false },
    Module { name: "graphs", tests: graphs::tests, processes: 1, emulated: false },
    Module { name: "trace", tests: trace::tests, processes: 2, emulated: true },
    Module { name: "claims", tests: claims::tests, processes: 2, emulated: true },
    Module { name: "choice", tests: choice::tests, processes: 1, emulated: true },
    Module { name: "knobs", tests: knobs::tests, processes: 1, emulated: true },
    Module { name: "streams", tests: streams::tests, processes: 2, emulated: true },
    Module { name: "faults", tests: faults::tests, processes: 4, emulated: true },
    Module { name: "cache", tests: cache::tests, processes: 2, emulated: true },
    Module { name: "stored", tests: stored::tests, processes: 2, emulated: true },
    Module { name: "timer", tests: timer::tests, processes: 1, emulated: true },
];

fn main() -> ExitCode {
    match child::role() {
        Some(role) => child::play(play(&role)),
        None => harness::main(MODULES, ready()),
    }
}

fn play(role: &str) -> Result<(), String> {
    match role {
        streams::ROLE => streams::two_devices(),
        missing::ROLE => missing::without_gpu(),
        cache::ROLE => cache::builds_and_runs(),
        cache::ROLE_READ_ONLY => cache::reading_only(),
        quiet::ROLE => quiet::ask(),
        choice::ROLE => choice::plans(),
        claims::ROLE => claims::does(),
        knobs::ROLE_FORCED => knobs::forced(),
        stored::ROLE_STORES => stored::stores(),
        stored::ROLE_RUNS => stored::runs(),
        stored::ROLE_REFUSED => stored::is_refused(),
        stored::ROLE_DAMAGED => stored::damaged(),
        stored::ROLE_MUTATED => stored::mutations(),
        timer::ROLE => timer::two_devices(),
        other => Err(format!("there is no role {other:?}")),
    }
}

/// Checks that tests can run here: HIP has a device.
fn ready() -> Result<(), String> {
    let how = "`cargo xtask test --only miopen` runs these tests on the emulated GPU";
    let hip = Hip::get().map_err(|reason| format!("{how}; here: {reason}"))?;
    match hip.device_count().map_err(|error| format!("{how}; here: {error}"))? {
        0 => Err(format!("{how}; here HIP has no device")),
        _ => Ok(()),
    }
}
