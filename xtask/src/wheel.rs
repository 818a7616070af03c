//! Checks of the wheel: the systems that it may be installed on, and auditwheel's verdict.

use std::path::Path;
use std::process::Command;

use crate::Result;
use crate::process;
use crate::python::Environment;
use crate::summary::{Outcome, Summary};

/// The newest glibc that systems may be asked for: that of RHEL 8, and of the newest policy that every pip knows.
const NEWEST_GLIBC: (u32, u32) = (2, 28);

/// Requirement of the checker.
const AUDITWHEEL: &str = "auditwheel==6.8.2";

/// Checks a wheel.
pub(crate) fn test(wheel: &Path, summary: &mut Summary) -> Result<()> {
    let name = wheel.file_name().and_then(|name| name.to_str()).ok_or("the wheel's name is not UTF-8")?;
    let tagged = glibc(name).ok_or_else(|| format!("expected a manylinux tag in the name of the wheel, got {name}"))?;
    let outcome = if tagged <= NEWEST_GLIBC { Outcome::Passed } else { Outcome::Failed(format!("its tag is {name}")) };
    summary.record("wheel: systems with glibc 2.28 may install it", outcome);
    let audit = "wheel: auditwheel agrees with its tag";
    let environment = match Environment::ensure("auditwheel", &[AUDITWHEEL]) {
        Ok(environment) => environment,
        Err(problem) => {
            summary.record(audit, Outcome::Skipped(format!("no {AUDITWHEEL}: {problem}")));
            return Ok(());
        }
    };
    let output = process::capture(Command::new(environment.program()).args(["-m", "auditwheel", "show"]).arg(wheel))?;
    let text = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    let outcome = match verdict(&text) {
        Some(found) if found <= tagged => Outcome::Passed,
        _ => Outcome::Failed(format!("{name}: {text} {}", process::tail(&output.stderr, 3))),
    };
    summary.record(audit, outcome);
    Ok(())
}

/// The glibc of a name or tag such as `manylinux_2_28_x86_64`.
fn glibc(name: &str) -> Option<(u32, u32)> {
    let (_, version) = name.split_once("manylinux_")?;
    let mut numbers = version.split('_').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The glibc of the tag that auditwheel finds a wheel consistent with.
fn verdict(text: &str) -> Option<(u32, u32)> {
    let (_, tag) = text.split_once("consistent with the following platform tag: \"")?;
    glibc(tag.split('"').next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags() {
        for (text, want) in [
            ("p-0.1.0-py3-none-manylinux_2_28_x86_64.whl", Some((2, 28))),
            ("p-0.1.0-py3-none-manylinux_2_17_aarch64.whl", Some((2, 17))),
            ("p-0.1.0-py3-none-linux_x86_64.whl", None),
        ] {
            assert_eq!(glibc(text), want, "{text}");
        }
        let text =
            "x.whl is consistent with the following platform tag: \"manylinux_2_27_x86_64\". The wheel references";
        assert_eq!(verdict(text), Some((2, 27)));
        assert_eq!(verdict("x.whl is consistent with the following platform tag: \"linux_x86_64\"."), None);
    }
}
