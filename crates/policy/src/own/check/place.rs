//! Where a key stands in the text.

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::position::LineIndex;

/// Finds the places of keys in a parsed document.
pub(super) struct Places<'a> {
    document: &'a Spanned<DeTable<'a>>,
    lines: &'a LineIndex<'a>,
}

impl<'a> Places<'a> {
    pub(super) fn new(document: &'a Spanned<DeTable<'a>>, lines: &'a LineIndex<'a>) -> Self {
        Self { document, lines }
    }

    /// Line and column of the key at `path`; list items are named by their index. Where the path goes beyond
    /// what is written, it is the last part that is there.
    pub(super) fn of(&self, path: &[&str]) -> (u32, u32) {
        let mut at = 0;
        let mut table = Some(self.document.get_ref());
        let mut list = None;
        for part in path {
            let value = if let Some(open) = table {
                let Some((key, value)) = open.get_key_value(*part) else { break };
                at = key.span().start;
                value
            } else {
                let items: Option<&toml::de::DeArray<'_>> = list;
                let index: Option<usize> = part.parse().ok();
                let Some(item) = items.zip(index).and_then(|(items, index)| items.get(index)) else { break };
                at = item.span().start;
                item
            };
            table = None;
            list = None;
            match value.get_ref() {
                DeValue::Table(inner) => table = Some(inner),
                DeValue::Array(inner) => list = Some(inner),
                _ => {}
            }
        }
        self.lines.line_and_column(at)
    }
}
