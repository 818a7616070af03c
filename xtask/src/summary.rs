//! Summary of tests: passed, failed, and skipped with the reason.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The outcome of one test.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Passed,
    /// Error.
    Failed(String),
    /// Reason.
    Skipped(String),
}

impl Outcome {
    /// Passed, or failed with the error's text.
    pub(crate) fn of(result: crate::Result<()>) -> Outcome {
        result.map_or_else(|problem| Outcome::Failed(problem.to_string()), |()| Outcome::Passed)
    }
}

/// The outcomes of all tests so far.
#[derive(Default, Deserialize, Serialize)]
pub(crate) struct Summary {
    passed: usize,
    failed: Vec<(String, String)>,
    skipped: Vec<(String, String)>,
}

impl Summary {
    pub(crate) fn record(&mut self, name: impl Into<String>, outcome: Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed(problem) => self.failed.push((name.into(), problem)),
            Outcome::Skipped(reason) if reason.trim().is_empty() => {
                self.failed.push((name.into(), "expected a reason for skipping it, got none".to_owned()));
            }
            Outcome::Skipped(reason) => self.skipped.push((name.into(), reason)),
        }
    }

    /// Records a failure by that name if nothing has passed since there were `before`.
    pub(crate) fn expect_more(&mut self, before: usize, name: impl Into<String>) {
        if self.passed == before {
            self.record(name, Outcome::Failed("nothing passed".to_owned()));
        }
    }

    /// Counts tests that were counted elsewhere already.
    pub(crate) fn record_passed(&mut self, count: usize) {
        self.passed += count;
    }

    /// Takes over the outcomes of another one.
    pub(crate) fn append(&mut self, other: Summary) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
    }

    pub(crate) fn passed(&self) -> usize {
        self.passed
    }

    pub(crate) fn failed(&self) -> usize {
        self.failed.len()
    }

    pub(crate) fn skipped(&self) -> usize {
        self.skipped.len()
    }
}

impl fmt::Display for Summary {
    /// Failures and skips by name, then the counts alone on the last line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (title, list) in [("skipped", &self.skipped), ("failed", &self.failed)] {
            if list.is_empty() {
                continue;
            }
            writeln!(f, "{title}:")?;
            for (name, text) in list {
                writeln!(f, "  {name}: {}", text.trim_end().replace('\n', "\n      "))?;
            }
        }
        write!(f, "{} passed, {} failed, {} skipped", self.passed(), self.failed(), self.skipped())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_stand_alone_on_the_last_line() {
        let cases: [(&str, &[Outcome], &str); 5] = [
            ("nothing ran", &[], "0 passed, 0 failed, 0 skipped"),
            ("all good", &[Outcome::Passed, Outcome::Passed], "2 passed, 0 failed, 0 skipped"),
            (
                "a failure of two lines",
                &[Outcome::Failed("first\nsecond\n".to_owned())],
                "failed:\n  case: first\n      second\n0 passed, 1 failed, 0 skipped",
            ),
            (
                "a skip without a reason",
                &[Outcome::Skipped(" ".to_owned())],
                "failed:\n  case: expected a reason for skipping it, got none\n0 passed, 1 failed, 0 skipped",
            ),
            (
                "all kinds",
                &[Outcome::Failed("bad".to_owned()), Outcome::Passed, Outcome::Skipped("no network".to_owned())],
                "skipped:\n  case: no network\nfailed:\n  case: bad\n1 passed, 1 failed, 1 skipped",
            ),
        ];
        for (name, outcomes, wanted) in cases {
            let mut summary = Summary::default();
            for outcome in outcomes {
                summary.record("case", outcome.clone());
            }
            assert_eq!(summary.to_string(), wanted, "{name}");
        }
    }
}
