//! Plans that were stored, and are made again without looking for anything.
//!
//! A plan is stored with every choice of a solver, every kernel of ours as code, and the problems that MIOpen was found to
//! take. Making it again is the usual way, with a [`Store`] that has these and nothing else: what is not there is an error
//! instead of a search or a compilation, and MIOpen is asked neither what it offers nor whether it takes something.
//!
//! MIOpen gives nobody the code of its kernels, so a stored plan has the numbers of its solvers. MIOpen takes their kernels
//! from its own cache. If it has to compile one, which it does without saying so, its cache changes, and the plan is refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::convolution::ConvolutionProblem;
use super::device::Device;
use super::fused;
use super::plan::{Choices, MiopenPlan};
use super::settings::Settings;
use super::shared::Shared;
use super::store::Store;
use super::{MIOPEN, arranged, folders, lower};
use crate::engine::payload::{Entry, Payload, Portrait, declined};
use crate::error::{Error, ErrorKind};

/// The kind of entries for problems that MIOpen takes; there is nothing in them.
const PROBLEM: &str = "problem";

/// Makes a stored plan again.
///
/// # Errors
/// If something of it is missing, or it does not come out as it was.
pub(super) fn restore(payload: &Payload, device: &Arc<Device>, shared: &Shared) -> Result<MiopenPlan, Error> {
    payload.expect_platform(device.fingerprint())?;
    let (graph, config) = (payload.graph()?, payload.config()?);
    let settings = Settings::stored(&config)?;
    let store = Store::sealed(payload.portrait.entries.clone());
    let taken = |problem: &ConvolutionProblem| match store.get(PROBLEM, &problem.to_string()) {
        Some(_) => Ok(()),
        None => Err("the stored plan does not have it".to_string()),
    };
    let works = lower::lower(&graph).map_err(|reason| declined(&MIOPEN, &reason))?;
    let arrangement = arranged(&graph, works, &settings, &taken).map_err(|reason| declined(&MIOPEN, &reason))?;
    let choices = Arc::new(Choices::new(&graph, arrangement, device, &settings, &store)?);
    let plan = MiopenPlan::new(&graph, choices, device, Arc::clone(shared.devices()), &store)?;
    payload.expect_description(&format!("{plan:#}"))?;
    Ok(plan)
}

/// What a plan is stored with.
pub(super) fn portrait(plan: &MiopenPlan) -> Portrait {
    // By kind and key: plans have the same kernel many times.
    let mut entries = BTreeMap::new();
    let mut add = |Entry { kind, key, value }: Entry| {
        entries.insert((kind, key), value);
    };
    for (task, policy, chosen) in plan.choices().convolutions() {
        add(Entry { kind: PROBLEM.to_string(), key: task.problem.to_string(), value: Vec::new() });
        add(match &chosen.followed {
            Some(followed) => fused::entry(&chosen.prepared, &followed.followers, &policy),
            None => policy.entry(&chosen.prepared),
        });
    }
    plan.kernels().for_each(&mut add);
    let entries = entries.into_iter().map(|((kind, key), value)| Entry { kind, key, value }).collect();
    Portrait { platform: plan.device().fingerprint().to_string(), description: format!("{plan:#}"), entries }
}

/// The error of a stored plan that lacks something.
pub(super) fn missing(what: &str) -> Error {
    Error::not_applicable(format!("serialized_context: expected every {what} of the plan, got one that lacks a {what}"))
}

/// Has MIOpen make something ready that it has in its cache of kernels.
///
/// # Errors
/// If it had to compile.
pub(super) fn uncompiled<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let folder = folders::kernels();
    let files = || folder.as_deref().map(|folder| files(folder, DEPTH)).unwrap_or_default();
    let before = files();
    let made = work()?;
    if files() == before {
        return Ok(made);
    }
    let folder = folder.unwrap_or_default();
    let text = format!(
        "serialized_context: expected the plan's kernels in MIOpen's cache, got none: it compiled them into {}",
        folder.display()
    );
    Err(Error::new(ErrorKind::Device, text))
}

/// Levels of folders that MIOpen's cache has, and one more.
const DEPTH: usize = 3;

/// Every file below a folder, with its size and when it was changed last.
fn files(folder: &Path, depth: usize) -> Vec<(PathBuf, u64, Option<SystemTime>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_file() {
            found.push((entry.path(), metadata.len(), metadata.modified().ok()));
        } else if metadata.is_dir() && depth > 0 {
            found.extend(files(&entry.path(), depth - 1));
        }
    }
    found.sort();
    found
}
