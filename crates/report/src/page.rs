//! Lines of text for a terminal of a given width: wrapped paragraphs, labelled rows, tables.
//!
//! Readable without colour. Text from logs is untrusted: control characters are made visible before they get here or
//! here ([`visible`]).

use std::fmt::Write as _;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use retryscope_analysis::words::visible;

/// Width of the label column of a row.
const LABEL: usize = 14;

/// A page under construction.
#[derive(Debug)]
pub struct Page {
    width: usize,
    text: String,
}

impl Page {
    /// Returns an empty page for a terminal of `width` columns.
    pub fn new(width: usize) -> Self {
        Self { width, text: String::new() }
    }

    /// Adds a line with something at its right end, if there is room.
    pub fn heading(&mut self, left: &str, right: &str) {
        let left = visible(left);
        let gap = self.width.saturating_sub(length(&left) + length(right)).max(2);
        // Writing to a string cannot fail.
        let _ok = writeln!(self.text, "{left}{}{right}", " ".repeat(gap));
    }

    /// Adds an empty line.
    pub fn space(&mut self) {
        self.text.push('\n');
    }

    /// Adds a line as it is.
    pub fn line(&mut self, text: &str) {
        self.text.push_str(&visible(text));
        self.text.push('\n');
    }

    /// Adds a wrapped paragraph.
    pub fn paragraph(&mut self, text: &str) {
        for line in wrap(&visible(text), self.width) {
            self.text.push_str(&line);
            self.text.push('\n');
        }
    }

    /// Adds a label and a wrapped text beside it.
    pub fn row(&mut self, label: &str, text: &str) {
        let room = self.width.saturating_sub(LABEL + 2).max(20);
        for (index, line) in wrap(&visible(text), room).into_iter().enumerate() {
            // A label that is too long for its column still ends before the text.
            let label = if index == 0 { label } else { "" };
            let gap = LABEL.saturating_sub(length(label)).max(1);
            let _ok = writeln!(self.text, "  {label}{:gap$}{line}", "");
        }
    }

    /// Adds a label and a numbered list beside it.
    pub fn numbered(&mut self, label: &str, items: &[String]) {
        for (index, item) in items.iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            let room = self.width.saturating_sub(LABEL + 5).max(20);
            for (line, text) in wrap(&visible(item), room).into_iter().enumerate() {
                let mark = if line == 0 { format!("{}.", index + 1) } else { String::new() };
                let label = if line == 0 { label } else { "" };
                let _ok = writeln!(self.text, "  {label:<LABEL$}{mark:<3}{text}");
            }
        }
    }

    /// Adds a table without lines; columns in `right` (from 0) are aligned to the right.
    pub fn table(&mut self, header: &[&str], rows: &[Vec<String>], right: &[usize], indent: usize) {
        if let Some(lines) = plain_table(header, rows, right, self.width.saturating_sub(indent)) {
            for line in lines {
                let line = format!("{}{line}", " ".repeat(indent));
                self.text.push_str(line.trim_end());
                self.text.push('\n');
            }
            return;
        }
        let mut table = Table::new();
        table.load_style(NOTHING);
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(u16::try_from(self.width.saturating_sub(indent)).unwrap_or(u16::MAX));
        table.set_header(header.to_vec());
        for row in rows {
            table.add_row(row.iter().map(|cell| visible(cell)).collect::<Vec<_>>());
        }
        for column in right {
            if let Some(column) = table.column_mut(*column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        for line in table.to_string().lines() {
            let line = format!("{}{}", " ".repeat(indent), line);
            self.text.push_str(line.trim_end());
            self.text.push('\n');
        }
    }

    /// Returns the page.
    pub fn finish(self) -> String {
        self.text
    }
}

/// Lays out a table that needs no wrapping and has only plain characters, which is nearly every long one; `None` for others.
fn plain_table(header: &[&str], rows: &[Vec<String>], right: &[usize], width: usize) -> Option<Vec<String>> {
    let mut widths: Vec<usize> = header.iter().map(|title| title.len().max(1)).collect();
    for row in rows {
        if row.len() != widths.len() {
            return None;
        }
        for (cell, widest) in row.iter().zip(&mut widths) {
            if !cell.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
                return None;
            }
            *widest = (*widest).max(cell.len());
        }
    }
    if widths.iter().map(|width| width + 2).sum::<usize>() > width {
        return None;
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::with_capacity(width.min(200));
        for (column, (cell, width)) in cells.zip(&widths).enumerate() {
            let _ok = if right.contains(&column) {
                write!(line, " {cell:>width$} ")
            } else {
                write!(line, " {cell:<width$} ")
            };
        }
        line
    };
    let mut lines = vec![line(&mut header.iter().copied())];
    lines.extend(rows.iter().map(|row| line(&mut row.iter().map(String::as_str))));
    Some(lines)
}

/// Returns a cell of comma-separated values. A beginning that a spreadsheet would take for a formula is made plain text.
pub fn quoted(cell: &str) -> String {
    let mut text = visible(cell);
    if text.starts_with(['=', '+', '-', '@']) {
        text.insert(0, '\'');
    }
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// Breaks a text at spaces into lines of at most `width` characters; a longer word stands alone.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let size = length(word);
        if used > 0 && used + 1 + size > width {
            lines.push(String::new());
            used = 0;
        }
        if let Some(line) = lines.last_mut() {
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            line.push_str(word);
            used += size;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_at_spaces() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("incomprehensible word", 5), ["incomprehensible", "word"]);
    }
}
