//! Portraits: entries and words that a plan is stored with.

use std::collections::BTreeMap;

use hipdnn_engine_core::payload::{Entry, Portrait};

use super::GpuPlan;
use crate::miopen::fused;

/// The kind of entries for problems that MIOpen takes; there is nothing in them.
pub const PROBLEM: &str = "problem";

/// Portrait of a plan, with all that was looked for or compiled for it.
pub(super) fn portrait(plan: &GpuPlan) -> Portrait {
    // By kind and key: plans have the same kernel many times.
    let mut entries = BTreeMap::new();
    let mut add = |Entry { kind, key, value }: Entry| {
        entries.insert((kind, key), value);
    };
    let mut convolutions = false;
    for (dispatch, policy, chosen) in plan.choices.convolutions() {
        convolutions = true;
        add(Entry { kind: PROBLEM.to_string(), key: dispatch.problem.to_string(), value: Vec::new() });
        add(match &chosen.fused_convolution {
            Some(fused_convolution) => fused::entry(&chosen.prepared, &fused_convolution.epilogue, &policy),
            None => policy.entry(&chosen.prepared),
        });
    }
    plan.kernels().for_each(&mut add);
    let entries = entries.into_iter().map(|((kind, key), value)| Entry { kind, key, value }).collect();
    let platform = plan.context.fingerprint(convolutions).to_string();
    Portrait { platform, description: format!("{plan:#}"), entries }
}
