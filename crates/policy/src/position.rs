//! Line and column of a byte offset, for messages about text that a person wrote.

/// The starts of the lines of a text.
pub(crate) struct LineIndex<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> LineIndex<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let after_breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(after_breaks).collect() }
    }

    /// The line of byte `offset`, from 1. An offset beyond the end gives the last line.
    pub(crate) fn line(&self, offset: usize) -> u32 {
        u32::try_from(self.starts.partition_point(|start| *start <= offset)).unwrap_or(u32::MAX)
    }

    /// Line and column of byte `offset`, both from 1; the column counts characters.
    pub(crate) fn line_and_column(&self, offset: usize) -> (u32, u32) {
        let line = self.line(offset);
        let index = usize::try_from(line).unwrap_or(usize::MAX).saturating_sub(1);
        let start = self.starts.get(index).copied().unwrap_or(0);
        let before = self.text.get(start..offset.min(self.text.len())).unwrap_or("");
        (line, u32::try_from(before.chars().count()).unwrap_or(u32::MAX).saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::LineIndex;

    #[test]
    fn counts_characters_not_bytes() {
        let text = "a\nzä = 1";
        let lines = LineIndex::new(text);
        assert_eq!(lines.line_and_column(0), (1, 1));
        assert_eq!(lines.line_and_column(text.find('=').unwrap()), (2, 4));
        assert_eq!(lines.line_and_column(999), (2, 7));
    }
}
