//! Plain values of a YAML file, with their lines, for the part of YAML that agents' settings use.
//!
//! Block mappings, block lists of plain values, flow lists and flow mappings on one line, comments, and files
//! that are JSON. Anchors, multi-line strings and several documents are not understood; such lines are skipped.

use super::{Leaf, MAX_DEPTH, SettingValue, json};

pub(super) fn leaves(text: &str) -> Vec<Leaf> {
    if text.trim_start().starts_with('{') {
        return json::leaves(text);
    }
    let mut reader = Reader::default();
    for (index, line) in text.lines().enumerate() {
        let number = u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1);
        reader.line(line, number);
    }
    reader.end_list();
    reader.leaves
}

#[derive(Default)]
struct Reader {
    /// The open mappings: indentation and key.
    open: Vec<(usize, String)>,
    /// The block list being read: its path, items and first line.
    list: Option<(Vec<String>, Vec<String>, u32)>,
    leaves: Vec<Leaf>,
}

impl Reader {
    fn line(&mut self, line: &str, number: u32) {
        let line = without_comment(line);
        let content = line.trim();
        if content.is_empty() || content == "---" {
            return;
        }
        let indentation = line.len() - line.trim_start().len();
        if let Some(item) = content.strip_prefix('-').filter(|item| item.is_empty() || item.starts_with(' '))
        {
            self.item(item.trim(), indentation, number);
            return;
        }
        self.end_list();
        self.close(indentation);
        let Some((key, value)) = split_key(content) else { return };
        if self.open.len() >= MAX_DEPTH {
            return;
        }
        self.open.push((indentation, key));
        match value.chars().next() {
            None | Some('&' | '|' | '>' | '*' | '!') => {}
            Some('{' | '[') => self.leaves.extend(json::leaves_below(value, self.path(), number)),
            Some(_) => {
                if let Some(value) = plain(value) {
                    self.leaves.push(Leaf { path: self.path(), value, line: Some(number) });
                }
            }
        }
    }

    /// A list item. A list may stand at the indentation of its key.
    fn item(&mut self, item: &str, indentation: usize, number: u32) {
        while self.open.last().is_some_and(|(open, _)| *open > indentation) {
            self.end_list();
            self.open.pop();
        }
        let path = self.path();
        if self.list.as_ref().is_some_and(|(list_path, ..)| *list_path != path) {
            self.end_list();
        }
        let (_, items, _) = self.list.get_or_insert_with(|| (path, Vec::new(), number));
        items.extend(plain(item).map(|item| item.to_string()));
    }

    fn end_list(&mut self) {
        if let Some((path, items, line)) = self.list.take() {
            self.leaves.push(Leaf { path, value: SettingValue::List(items), line: Some(line) });
        }
    }

    fn close(&mut self, indentation: usize) {
        while self.open.last().is_some_and(|(open, _)| *open >= indentation) {
            self.open.pop();
        }
    }

    fn path(&self) -> Vec<String> {
        self.open.iter().map(|(_, key)| key.clone()).collect()
    }
}

/// Cuts a comment: `#` at the start or after a blank, outside quotes.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (None, '#') if before.is_whitespace() => return line.get(..at).unwrap_or(line),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if c == open => quote = None,
            _ => {}
        }
        before = c;
    }
    line
}

/// Splits `key: value`. A colon that no blank follows belongs to the key, as in `prov/model:high`.
fn split_key(content: &str) -> Option<(String, &str)> {
    let first = content.chars().next()?;
    if first == '"' || first == '\'' {
        let (key, rest) = content.get(1..)?.split_once(first)?;
        return Some((key.to_owned(), rest.trim_start().strip_prefix(':')?.trim()));
    }
    if let Some((key, value)) = content.split_once(": ") {
        return Some((key.trim().to_owned(), value.trim()));
    }
    content.strip_suffix(':').map(|key| (key.trim().to_owned(), ""))
}

fn plain(word: &str) -> Option<SettingValue> {
    for quote in ['"', '\''] {
        if let Some(text) = word.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return Some(SettingValue::Text(text.to_owned()));
        }
    }
    if word.is_empty() { None } else { SettingValue::from_bare(word) }
}
