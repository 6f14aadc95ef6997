//! A report as blocks, for a terminal and as Markdown: the same words and numbers in both.

use retryscope_analysis::words::visible;

use crate::page::Page;

/// One part of a report.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// A sentence.
    Line(String),
    /// Texts with a label beside each; a repeated label is empty.
    Rows(Vec<(String, String)>),
    /// A table under a title; columns in `right` (from 0) hold numbers.
    Table {
        /// What it shows.
        title: String,
        /// Names of the columns.
        header: Vec<String>,
        /// Cells, row by row.
        rows: Vec<Vec<String>>,
        /// Columns that are aligned to the right.
        right: Vec<usize>,
    },
}

/// Returns blocks for a terminal of `width` columns.
pub fn text(blocks: &[Block], width: usize) -> String {
    let mut page = Page::new(width);
    for (index, block) in blocks.iter().enumerate() {
        let tabular = |block: &Block| matches!(block, Block::Table { .. });
        if index > 0 && (tabular(block) || tabular(&blocks[index - 1])) {
            page.space();
        }
        match block {
            Block::Line(line) => page.paragraph(line),
            Block::Rows(rows) => {
                for (label, text) in rows {
                    page.row(label, text);
                }
            }
            Block::Table { title, header, rows, right } => {
                if !title.is_empty() {
                    page.line(title);
                }
                let header: Vec<&str> = header.iter().map(String::as_str).collect();
                page.table(&header, rows, right, 0);
            }
        }
    }
    page.finish()
}

/// Returns blocks as Markdown.
pub fn markdown(title: &str, blocks: &[Block]) -> String {
    let mut out = format!("# {}\n", cell(title));
    for block in blocks {
        out.push('\n');
        match block {
            Block::Line(line) => out.push_str(&format!("{}\n", cell(line))),
            Block::Rows(rows) => {
                for (label, text) in rows {
                    let label =
                        if label.is_empty() { String::new() } else { format!("**{}:** ", cell(label)) };
                    out.push_str(&format!("- {label}{}\n", cell(text)));
                }
            }
            Block::Table { title, header, rows, right } => {
                if !title.is_empty() {
                    out.push_str(&format!("## {}\n\n", cell(title)));
                }
                let line = |cells: &[String]| {
                    format!("| {} |\n", cells.iter().map(|text| cell(text)).collect::<Vec<_>>().join(" | "))
                };
                out.push_str(&line(header));
                let rule = |column| if right.contains(&column) { "---:" } else { "---" };
                out.push_str(&format!(
                    "| {} |\n",
                    (0..header.len()).map(rule).collect::<Vec<_>>().join(" | ")
                ));
                for row in rows {
                    out.push_str(&line(row));
                }
            }
        }
    }
    out
}

/// Makes untrusted text harmless in Markdown: no cell ends, no links, no HTML.
fn cell(text: &str) -> String {
    let mut out = String::new();
    for c in visible(text).chars() {
        if matches!(c, '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_keeps_its_shape_whatever_a_log_says() {
        let rows = vec![vec!["a|b".to_owned(), "<img src=x>\n# no".to_owned()]];
        let header = vec!["one".to_owned(), "two".to_owned()];
        let table = Block::Table { title: "t".into(), header, rows, right: vec![1] };
        assert_eq!(
            markdown("r", &[table]),
            "# r\n\n## t\n\n| one | two |\n| --- | ---: |\n| a\\|b | \\<img src=x\\> # no |\n"
        );
    }
}
