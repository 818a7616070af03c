//! Coverage-guided input through the plugin's and the backend's ABI, both linked into this program.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run graphs` in `integration_tests`. The first byte of an input says what the rest is.
//! The backend opens its plugins itself: with `HIPDNN_PLUGIN_DIR` naming the directory of a built plugin, graphs go
//! through it to their execution; without, as far as the question which engine takes them.

#![no_main]

#[path = "../../tests/hostile/api.rs"]
mod api;
#[path = "../../tests/hostile/calls.rs"]
mod calls;
#[path = "../../tests/hostile/guarded.rs"]
mod guarded;
#[path = "../../tests/hostile/inputs.rs"]
mod inputs;
#[path = "../../tests/hostile/mutate.rs"]
mod mutate;
#[path = "../../tests/hostile/random.rs"]
mod random;
#[path = "../../tests/hostile/run.rs"]
mod run;
#[path = "../../../schemas/tests/samples/mod.rs"]
mod samples;
#[path = "../../tests/hostile/stages.rs"]
#[allow(dead_code, reason = "the test counts them")]
mod stages;
#[path = "../../tests/hostile/through_backend.rs"]
mod through_backend;
#[path = "../../tests/hostile/through_plugin.rs"]
mod through_plugin;
#[path = "../../tests/hostile/valid.rs"]
mod valid;

use std::cell::RefCell;
use std::ffi::c_void;

use hipdnn_backend as _;
use hipdnn_rs_plugin as _;
use libfuzzer_sys::fuzz_target;

use crate::api::{BackendApi, PluginApi};
use crate::inputs::{Corpus, Doors};
use crate::random::Random;
use crate::stages::Stages;
use crate::through_backend::Input;

macro_rules! linked {
    ($($symbol:ident)*) => {
        unsafe extern "C" {
            $(fn $symbol();)*
        }

        fn find(name: &str) -> *mut c_void {
            match name {
                $(stringify!($symbol) => $symbol as *mut c_void,)*
                _ => std::ptr::null_mut(),
            }
        }
    };
}

linked! {
    hipdnnPluginGetLastErrorString
    hipdnnEnginePluginGetAllEngineIds
    hipdnnEnginePluginCreate
    hipdnnEnginePluginDestroy
    hipdnnEnginePluginGetApplicableEngineIds
    hipdnnEnginePluginGetEngineDetails
    hipdnnEnginePluginDestroyEngineDetails
    hipdnnEnginePluginGetWorkspaceSize
    hipdnnEnginePluginCreateExecutionContext
    hipdnnEnginePluginDestroyExecutionContext
    hipdnnEnginePluginGetWorkspaceSizeFromExecutionContext
    hipdnnEnginePluginExecuteOpGraph
    hipdnnCreate
    hipdnnDestroy
    hipdnnBackendCreateDescriptor
    hipdnnBackendDestroyDescriptor
    hipdnnBackendFinalize
    hipdnnBackendSetAttribute
    hipdnnBackendGetAttribute
    hipdnnBackendExecute
    hipdnnGetLastErrorString
    hipdnnBackendCreateAndDeserializeGraph_ext
    hipdnnBackendCreateAndDeserializeJsonGraph_ext
    hipdnnBackendGetSerializedBinaryGraph_ext
    hipdnnBackendGetSerializedJsonGraph_ext
    hipdnnBackendCreateAndDeserializeExecutionPlan_ext
    hipdnnBackendGetSerializedBinaryContents_ext
}

struct State {
    corpus: Corpus,
    doors: Doors,
    stages: Stages,
}

fn state() -> State {
    // SAFETY: the fuzzer calls from one thread, and nothing of the libraries has run yet.
    unsafe { std::env::set_var("HIPDNN_RS_CPU_ENGINE", "on") };
    // SAFETY: the functions have the signatures of hipDNN's headers, and stay: they are linked.
    let (plugin, backend) = unsafe { (PluginApi::of(find), BackendApi::of(find)) };
    let doors = Doors::new(plugin, backend);
    State { corpus: Corpus::new(), doors, stages: Stages::default() }
}

thread_local! {
    static STATE: RefCell<State> = RefCell::new(state());
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else { return };
    // Larger inputs than the harness has room for say nothing new.
    if rest.len() > 1 << 16 {
        return;
    }
    STATE.with_borrow_mut(|State { corpus, doors, stages }| {
        let seed = rest.iter().fold(0u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        let mut random = Random::new(seed, 0);
        let result = match kind % 6 {
            0 => {
                let graph = valid::grown(&mut random);
                let config = mutate::config(&mut random, doors.plugin.engine_id(), &graph).to_bytes();
                doors.plugin.graph(&mut random, rest, &config, false, stages)
            }
            1 => {
                let graph = valid::grown(&mut random).to_bytes();
                doors.plugin.graph(&mut random, &graph, rest, false, stages)
            }
            2 => doors.backend.graph(&mut random, Input::Bytes(rest), stages),
            3 => doors.backend.graph(&mut random, Input::Json(rest), stages),
            4 => doors.backend.stored(rest, stages),
            _ => inputs::hand_in(&mut random, corpus, doors, stages),
        };
        if let Err(fault) = result {
            panic!("{fault}");
        }
    });
});
