//! The provider's part of `SUPPORT.md`: ONNX operators by engine.

use std::fmt::Write;

use crate::import::{self, OnGpu};

/// The section with the table of operators.
pub fn support_markdown() -> String {
    let mut rows: Vec<_> = import::operators().collect();
    rows.sort_by_key(|row| (row.domain, row.name));
    let mut text = String::from(
        "\n## Operators of the execution provider\n\n\
         Types, attributes and shapes decide, too: ORT-CONFORMANCE.md has what of onnx's tests is taken, and a session's claim report \
         has the reason for each node that is not. Where an operator's shapes, axes or pads are inputs whose content only a run \
         knows, a session on the CPU looks at them, and one on a GPU leaves the node to ONNX Runtime's CPU provider.\n\n\
         | operator | HIPDNN_RS_CPU_ENGINE | HIPDNN_RS_GPU_ENGINE |\n|---|---|---|\n",
    );
    for row in rows {
        let domain = if row.domain.is_empty() { String::new() } else { format!("{}.", row.domain) };
        let gpu = match row.gpu {
            OnGpu::Whole => "yes".to_string(),
            OnGpu::OneBatch => {
                "where one factor is no batch of matrices, as a convolution with a filter of one tap".to_string()
            }
            OnGpu::Without(what) => format!("no: the engine has no {what}"),
        };
        writeln!(text, "| {domain}{} | yes | {gpu} |", row.name).expect("a text takes everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_has_a_row() {
        let text = support_markdown();
        for row in
            ["| Conv | yes | yes |", "| com.microsoft.FusedMatMul | yes | where one factor", "| Attention | yes | no: "]
        {
            assert!(text.contains(row), "{row} is not in\n{text}");
        }
        let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| operator")).count();
        assert_eq!(rows, import::operators().count());
    }
}
