//! Stages that inputs reached: a fuzzer whose inputs are all refused at the door tests the door.

use std::collections::BTreeMap;
use std::fmt;

/// Counts by stage; a stage's name starts with its group, such as `graph: claimed`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stages(BTreeMap<&'static str, u64>);

impl Stages {
    pub(crate) fn reach(&mut self, stage: &'static str) {
        *self.0.entry(stage).or_default() += 1;
    }

    pub(crate) fn count(&self, stage: &str) -> u64 {
        self.0.get(stage).copied().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, other: &Stages) {
        for (stage, count) in &other.0 {
            *self.0.entry(stage).or_default() += count;
        }
    }
}

impl fmt::Display for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(stage, count)| writeln!(f, "  {count:>9}  {stage}"))
    }
}
