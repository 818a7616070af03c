//! Claims of an engine: the cases that it would take, as a section of a page in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write;

use hipdnn_schemas::DataType;

use crate::report::general;
use crate::run::Outcome;
use crate::workers::Report;

/// Columns: classes of element types.
const CLASSES: [&str; 5] = ["float", "half", "bfloat16", "mixed", "other"];

/// The class of a case, from its name: one type, several floating-point types of 16 bits and more, or others.
fn class(name: &str) -> usize {
    let types_of = |part: &str| -> Option<Vec<DataType>> {
        let words = part.split('-').filter(|word| !["to", "in"].contains(word));
        words.map(DataType::from_json_name).collect()
    };
    let types = name.split('/').skip(1).find_map(types_of).unwrap_or_default();
    let usual = [DataType::Float, DataType::Half, DataType::BFloat16];
    match types.first() {
        Some(first) if types.iter().all(|other| other == first) => {
            usual.iter().position(|usual| usual == first).unwrap_or(4)
        }
        Some(_) if types.iter().all(|other| usual.contains(other)) => 3,
        _ => 4,
    }
}

#[derive(Clone, Copy, Default)]
struct Counts {
    cases: usize,
    claimed: usize,
}

impl Counts {
    fn add(&mut self, claimed: bool) {
        self.cases += 1;
        self.claimed += usize::from(claimed);
    }

    /// One number if all are claimed.
    fn text(self) -> String {
        match self {
            Counts { cases: 0, .. } => String::new(),
            Counts { cases, claimed } if cases == claimed => cases.to_string(),
            Counts { cases, claimed } => format!("{claimed} of {cases}"),
        }
    }
}

/// The section: claims by family and types, and the reasons for all others. Reports need to be in the order of their names.
pub fn section(engine: &str, reports: &[Report]) -> String {
    let mut families: BTreeMap<&str, [Counts; CLASSES.len()]> = BTreeMap::new();
    let mut reasons: BTreeMap<String, (usize, &str)> = BTreeMap::new();
    let mut all = Counts::default();
    for report in reports {
        let claimed = report.outcome == Outcome::Claimed;
        let family = report.name.split('/').next().unwrap_or_default();
        families.entry(family).or_default()[class(&report.name)].add(claimed);
        all.add(claimed);
        let reason = match &report.outcome {
            Outcome::Declined { reason } => general(reason),
            Outcome::Failed { reason } => format!("**failed**: {}", general(reason)),
            Outcome::Passed { .. } | Outcome::Claimed => continue,
        };
        reasons.entry(reason).or_insert((0, &report.name)).0 += 1;
    }
    let mut text = format!("## {engine}\n\nClaimed: {} of {} cases.\n\n| family |", all.claimed, all.cases);
    CLASSES.iter().for_each(|class| text.push_str(&format!(" {class} |")));
    text.push_str("\n|---|");
    CLASSES.iter().for_each(|_| text.push_str("---:|"));
    text.push('\n');
    for (family, counts) in &families {
        let _ = write!(text, "| {family} |");
        counts.iter().for_each(|counts| text.push_str(&format!(" {} |", counts.text())));
        text.push('\n');
    }
    if reasons.is_empty() {
        return text;
    }
    text.push_str("\n| declined | because | such as |\n|---:|---|---|\n");
    let mut sorted: Vec<_> = reasons.into_iter().collect();
    sorted.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    for (reason, (count, example)) in sorted {
        let _ = writeln!(text, "| {count} | {} | `{example}` |", reason.replace('|', "\\|").replace('\n', " "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    #[test]
    fn names_tell_the_types() {
        for (name, wanted) in [
            ("conv-fwd/first/half/1x2", "half"),
            ("conv-1d/data/last/bfloat16/1x2", "bfloat16"),
            ("conv-mixed/data/first/half-half-float/1x2", "mixed"),
            ("unary/abs/first/half-to-float/1", "mixed"),
            ("compute/add/first/half-in-half/1", "half"),
            ("layernorm/training/first/half-float/1", "mixed"),
            ("integers/add/first/int8-float-to-float/1", "other"),
            ("dequantize/first/fp8_e4m3-float-float/1", "other"),
            ("matmul/nn/float/1", "float"),
        ] {
            assert_eq!(CLASSES[class(name)], wanted, "{name}");
        }
        let other = cases::all().expect("the tables are right").into_iter().filter(|case| !case.refused);
        let other: Vec<String> = other.map(|case| case.name).filter(|name| class(name) == 4).collect();
        assert!(
            other.iter().all(|name| name.contains("int")
                || name.contains("fp")
                || name.contains("bool")
                || name.contains("double")),
            "{other:?}"
        );
    }

    #[test]
    fn a_section_counts_and_explains() {
        let report = |name: &str, outcome| Report { name: name.into(), seconds: 0.0, outcome };
        let declined = |node: u32| Outcome::Declined { reason: format!("node {node}: no | no") };
        let text = section(
            "E",
            &[
                report("a/float/1", Outcome::Claimed),
                report("a/half/1", declined(1)),
                report("a/half/2", declined(12)),
                report("b/half/1", Outcome::Claimed),
            ],
        );
        for wanted in [
            "Claimed: 2 of 4 cases.",
            "| a | 1 | 0 of 2 |  |  |  |\n",
            "| b |  | 1 |  |  |  |\n",
            "| 2 | node #: no \\| no | `a/half/1` |\n",
        ] {
            assert!(text.contains(wanted), "{wanted:?} in {text}");
        }
    }
}
