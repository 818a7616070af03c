//! Columns of text.

/// Rows of cells under a heading.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
}

impl Table {
    /// A table with these columns; those that begin with `>` are flushed right.
    pub(crate) fn new(columns: &[&str]) -> Table {
        let right = columns.iter().map(|column| column.starts_with('>')).collect();
        let heading = columns.iter().map(|column| column.trim_start_matches('>').to_string()).collect();
        Table { rows: vec![heading], right }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.right.len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// True if there is nothing but the heading.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        (0..self.right.len()).map(width).collect()
    }

    /// As aligned lines, each indented by that many blanks. Columns without any content are left out.
    pub(crate) fn lines(&self, blanks: usize) -> String {
        let widths = self.widths();
        let is_used = |column: &usize| self.rows[1..].iter().any(|row| !row[*column].is_empty());
        let columns: Vec<usize> = (0..widths.len()).filter(is_used).collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells: Vec<String> = columns
                .iter()
                .map(|&column| match self.right[column] {
                    true => format!("{:>width$}", row[column], width = widths[column]),
                    false => format!("{:<width$}", row[column], width = widths[column]),
                })
                .collect();
            text.push_str(&" ".repeat(blanks));
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text
    }

    /// As a Markdown table, its columns lined up.
    pub(crate) fn markdown(&self) -> String {
        let widths: Vec<usize> = self.widths().into_iter().map(|width| width.max(3)).collect();
        let mut text = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            for ((cell, &width), &right) in row.iter().zip(&widths).zip(&self.right) {
                // A bar would end the cell.
                let cell = cell.replace('|', "\\|");
                text.push_str(&if right { format!("| {cell:>width$} ") } else { format!("| {cell:<width$} ") });
            }
            text.push_str("|\n");
            if index == 0 {
                for (&width, &right) in widths.iter().zip(&self.right) {
                    let rule = "-".repeat(width);
                    text.push_str(&if right { format!("| {rule}:") } else { format!("| {rule} ") });
                }
                text.push_str("|\n");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[">uid", "name", "empty", "type"]);
        table.row(vec!["7".into(), "é".into(), String::new(), "half".into()]);
        table.row(vec!["1234".into(), String::new(), String::new(), "float".into()]);
        assert_eq!(
            table.markdown(),
            "|  uid | name | empty | type  |\n| ----:| ---- | ----- | ----- |\n|    7 | é    |       | half  |\n\
             | 1234 |      |       | float |\n"
        );
        assert_eq!(table.lines(1), "  uid  name  type\n    7  é     half\n 1234        float\n");
    }
}
