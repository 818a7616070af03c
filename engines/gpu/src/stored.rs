//! Plans that were stored, and are made again without looking for anything.
//!
//! A plan is stored with every choice of a solver, every kernel of ours as code, and the problems that MIOpen was found to
//! take. Making it again is the usual way, with a [`Store`] that has these and nothing else: what is not there is an error
//! instead of a search or a compilation, and MIOpen is asked neither what it offers nor whether it takes something.
//!
//! MIOpen gives nobody the code of its kernels, so a stored plan has the numbers of its solvers. MIOpen takes their kernels
//! from its own cache. If it has to compile one, which it does without saying so, its cache changes, and the plan is refused.

use std::sync::Arc;

use hipdnn_engine_core::error::Error;
use hipdnn_engine_core::payload::{Payload, declined};
use hipdnn_engine_kernel::convolution::ConvolutionProblem;
use hipdnn_engine_kernel::lower;

use super::context::Context;
use super::plan::{Choices, GpuPlan, PROBLEM};
use super::settings::Settings;
use super::shared::Shared;
use super::store::Store;
use super::{GPU_ENGINE, legalized_for};

/// Makes a stored plan again.
///
/// # Errors
/// If something of it is missing, or it does not come out as it was.
pub(super) fn restore(payload: &Payload, context: &Arc<Context>, shared: &Shared) -> Result<GpuPlan, Error> {
    let convolutions = payload.portrait.entries.iter().any(|entry| entry.kind == PROBLEM);
    payload.expect_platform(context.fingerprint(convolutions))?;
    let (graph, config) = (payload.graph()?, payload.config()?);
    let settings = Settings::stored(&config)?;
    let store = Store::sealed(payload.portrait.entries.clone());
    let taken = |problem: &ConvolutionProblem| match store.get(PROBLEM, &problem.to_string()) {
        Some(_) => Ok(()),
        None => Err("the stored plan does not have it".to_string()),
    };
    let works = lower::lower(&graph).map_err(|reason| declined(&GPU_ENGINE, &reason))?;
    let legalized = legalized_for(&graph, works, &settings, context.device(), &taken);
    let legalized = legalized.map_err(|reason| declined(&GPU_ENGINE, &reason))?;
    let choices = Arc::new(Choices::new(&graph, legalized, context, &settings, &store)?);
    let plan = GpuPlan::new(&graph, choices, context, shared.contexts().clone(), &store)?;
    payload.expect_description(&format!("{plan:#}"))?;
    Ok(plan)
}
