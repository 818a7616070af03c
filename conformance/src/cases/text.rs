//! The small languages of the tables.

use hipdnn_schemas::DataType;

/// Numbers with commas between them: `1,16,16`.
pub(super) fn numbers(text: &str) -> Result<Vec<i64>, String> {
    text.split(',')
        .map(|part| part.trim().parse().map_err(|_| format!("expected numbers with commas between them, got {text:?}")))
        .collect()
}

/// One number for each of `count` axes, or one for all.
pub(super) fn per_axis(text: &str, count: usize) -> Result<Vec<i64>, String> {
    let list = numbers(text)?;
    match list.len() {
        1 => Ok(vec![list[0]; count]),
        len if len == count => Ok(list),
        len => Err(format!("expected 1 or {count} numbers, got {len}: {text:?}")),
    }
}

/// A type by its name in hipDNN's JSON.
pub(super) fn data_type(text: &str) -> Result<DataType, String> {
    DataType::from_json_name(text.trim()).ok_or_else(|| format!("expected a data type, got {text:?}"))
}

/// Words with a letter before a number list, such as `p1,0:2,1 s2`.
pub(super) struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    pub(super) fn new(text: &'a str) -> Words<'a> {
        Words(text.split_whitespace().collect())
    }

    /// Rest of the word that begins with the letter and a digit, if there is one.
    pub(super) fn take(&mut self, letter: &str) -> Option<&'a str> {
        let at = self.0.iter().position(|word| {
            word.strip_prefix(letter).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })?;
        self.0.remove(at).strip_prefix(letter)
    }

    /// Sees that every word was understood.
    pub(super) fn finish(self) -> Result<(), String> {
        if self.0.is_empty() { Ok(()) } else { Err(format!("nobody knows {:?}", self.0.join(" "))) }
    }
}

/// Padding before and after: `1`, `1,0`, or `1,0:2,1`.
pub(super) fn padding(text: &str, count: usize) -> Result<(Vec<i64>, Vec<i64>), String> {
    match text.split_once(':') {
        Some((pre, post)) => Ok((per_axis(pre, count)?, per_axis(post, count)?)),
        None => per_axis(text, count).map(|both| (both.clone(), both)),
    }
}

/// Extents as part of a name: `1x16x8`.
pub(super) fn extents(dims: &[i64]) -> String {
    dims.iter().map(i64::to_string).collect::<Vec<_>>().join("x")
}

/// A part of a name: words with dashes between them.
pub(super) fn dashed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join("-").replace('/', "_")
}
