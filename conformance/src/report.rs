//! Report of a run: a table for people, JUnit's XML and JSON for programs.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use crate::run::Outcome;
use crate::workers::Report;

/// All reports of a run.
#[derive(Default)]
pub struct Summary {
    reports: Vec<Report>,
}

#[derive(Default, Serialize)]
struct Counts {
    passed: usize,
    failed: usize,
    declined: usize,
}

impl Counts {
    fn add(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Passed { .. } | Outcome::Claimed => self.passed += 1,
            Outcome::Failed { .. } => self.failed += 1,
            Outcome::Declined { .. } => self.declined += 1,
        }
    }
}

impl Summary {
    /// Adds a report.
    pub fn add(&mut self, report: Report) {
        self.reports.push(report);
    }

    /// Puts the reports in the order of their names.
    pub fn sort(&mut self) {
        self.reports.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// All reports.
    pub fn reports(&self) -> &[Report] {
        &self.reports
    }

    /// True if no claim was broken.
    pub fn is_clean(&self) -> bool {
        self.counts().failed == 0
    }

    /// True if nothing was left to other engines.
    pub fn is_complete(&self) -> bool {
        self.counts().declined == 0
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.reports.iter().for_each(|report| counts.add(&report.outcome));
        counts
    }

    /// Counts by family, the failures, and the reasons of those that were declined.
    pub fn table(&self) -> String {
        let mut families: BTreeMap<&str, Counts> = BTreeMap::new();
        let mut reasons: BTreeMap<String, (usize, &str)> = BTreeMap::new();
        for report in &self.reports {
            let family = report.name.split('/').next().unwrap_or_default();
            families.entry(family).or_default().add(&report.outcome);
            if let Outcome::Declined { reason } = &report.outcome {
                reasons.entry(general(reason)).or_insert((0, &report.name)).0 += 1;
            }
        }
        let mut text = String::new();
        let width = families.keys().map(|family| family.len()).max().unwrap_or(0).max("family".len());
        let _ = writeln!(text, "{:width$}  {:>7}  {:>7}  {:>8}", "family", "passed", "failed", "declined");
        for (family, counts) in &families {
            let Counts { passed, failed, declined } = counts;
            let _ = writeln!(text, "{family:width$}  {passed:>7}  {failed:>7}  {declined:>8}");
        }
        if !reasons.is_empty() {
            let _ = writeln!(text, "\ndeclined:");
            let mut sorted: Vec<_> = reasons.into_iter().collect();
            sorted.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
            for (reason, (count, example)) in sorted {
                let _ = writeln!(text, "  {count:>5} × {reason}\n          such as {example}");
            }
        }
        let failures: Vec<&Report> =
            self.reports.iter().filter(|report| matches!(report.outcome, Outcome::Failed { .. })).collect();
        if !failures.is_empty() {
            let _ = writeln!(text, "\nfailed:");
            for report in failures {
                if let Outcome::Failed { reason } = &report.outcome {
                    let _ = writeln!(text, "  {}\n      {}", report.name, reason.replace('\n', "\n      "));
                }
            }
        }
        let mut worst = (0.0, "");
        let mut vague = 0.0;
        for report in &self.reports {
            if let Outcome::Passed { worst: share, vague: little, .. } = report.outcome {
                vague += little;
                if share > worst.0 {
                    worst = (share, &report.name);
                }
            }
        }
        let Counts { passed, failed, declined } = self.counts();
        if worst.0 > 0.0 {
            let _ = writeln!(text, "\nlargest share of a bound that was used: {:.3} ({})", worst.0, worst.1);
        }
        if passed > 0 {
            let share = 100.0 * vague / passed as f64;
            let _ = writeln!(text, "elements whose bound is a tenth of their tensor's range or more: {share:.2} %");
        }
        let _ = write!(text, "{passed} passed, {failed} failed, {declined} declined");
        text
    }

    /// JUnit's XML: what was declined is skipped.
    pub fn junit(&self, engine: &str) -> String {
        let Counts { failed, declined, .. } = self.counts();
        let seconds: f64 = self.reports.iter().map(|report| report.seconds).sum();
        let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let _ = writeln!(
            text,
            "<testsuite name=\"{}\" tests=\"{}\" failures=\"{failed}\" skipped=\"{declined}\" time=\"{seconds:.3}\">",
            escaped(engine),
            self.reports.len()
        );
        for report in &self.reports {
            let (family, _) = report.name.split_once('/').unwrap_or((&report.name, ""));
            let _ = write!(
                text,
                "  <testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\"",
                escaped(family),
                escaped(&report.name),
                report.seconds
            );
            let _ = match &report.outcome {
                Outcome::Passed { .. } | Outcome::Claimed => writeln!(text, "/>"),
                Outcome::Failed { reason } => {
                    writeln!(text, "><failure message=\"{}\"/></testcase>", escaped(reason))
                }
                Outcome::Declined { reason } => {
                    writeln!(text, "><skipped message=\"{}\"/></testcase>", escaped(reason))
                }
            };
        }
        text.push_str("</testsuite>\n");
        text
    }

    /// Everything, as JSON.
    ///
    /// # Errors
    /// Never in practice: reports are plain data.
    pub fn json(&self, engine: &str) -> Result<String, String> {
        #[derive(Serialize)]
        struct All<'a> {
            engine: &'a str,
            counts: Counts,
            cases: &'a [Report],
        }
        let all = All { engine, counts: self.counts(), cases: &self.reports };
        serde_json::to_string_pretty(&all).map_err(|problem| problem.to_string())
    }
}

/// A reason without what differs from case to case: positions, uids and extents.
pub(crate) fn general(reason: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for c in reason.chars() {
        let digit = c.is_ascii_digit();
        if !(digit && inside) {
            text.push(if digit { '#' } else { c });
        }
        inside = digit;
    }
    text
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        let report = |name: &str, outcome| Report { name: name.into(), seconds: 0.5, outcome };
        let mut summary = Summary::default();
        summary.add(report("b/2", Outcome::Declined { reason: "node 12: \"x\" <y>".into() }));
        summary.add(report("b/1", Outcome::Declined { reason: "node 3: \"x\" <y>".into() }));
        summary.add(report("a/1", Outcome::Passed { worst: 0.25, vague: 0.0, workspace_bytes: 64 }));
        summary.sort();
        summary
    }

    #[test]
    fn tables_and_files_say_the_same() {
        let mut summary = summary();
        assert!(summary.is_clean());
        let table = summary.table();
        assert!(
            table.contains("2 × node #: \"x\" <y>") && table.ends_with("1 passed, 0 failed, 2 declined"),
            "{table}"
        );
        let failure = Outcome::Failed { reason: "expected 1 & got 2".into() };
        summary.add(Report { name: "c/1".into(), seconds: 0.0, outcome: failure });
        assert!(!summary.is_clean());
        let xml = summary.junit("E");
        assert!(xml.contains("tests=\"4\" failures=\"1\" skipped=\"2\""), "{xml}");
        assert!(xml.contains("expected 1 &amp; got 2") && xml.contains("&quot;x&quot; &lt;y&gt;"), "{xml}");
        let json: serde_json::Value = serde_json::from_str(&summary.json("E").expect("plain data")).expect("JSON");
        assert_eq!(json["counts"]["declined"], 2);
        assert_eq!(json["cases"][0]["outcome"], "passed");
    }
}
