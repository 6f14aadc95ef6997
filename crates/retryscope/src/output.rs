//! Standard output: buffered, and quiet when the reader goes away.

use std::io::{self, BufWriter, Stdout, Write};

use retryscope_analysis::words::{is_unsafe, visible_page};
use serde::Serialize as _;
use serde_json::Serializer;
use serde_json::ser::Formatter;

/// Where a command writes its answer.
pub(crate) struct Output {
    out: BufWriter<Stdout>,
}

impl Output {
    pub(crate) fn stdout() -> Self {
        Self { out: BufWriter::new(io::stdout()) }
    }

    /// Writes a text; whatever came into it from a log moves no cursor and sets no color.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(visible_page(text).as_bytes())
    }

    /// Writes one JSON value and a line end.
    pub(crate) fn json(&mut self, value: &serde_json::Value) -> anyhow::Result<()> {
        value.serialize(&mut Serializer::with_formatter(&mut self.out, Visible))?;
        self.out.write_all(b"\n")?;
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes what would steer a terminal as an escape, which is the same value to whoever reads JSON.
struct Visible;

impl Formatter for Visible {
    fn write_string_fragment<W: Write + ?Sized>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| is_unsafe(*c)) {
            let (before, more) = rest.split_at(at);
            out.write_all(before.as_bytes())?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = more.get(c.len_utf8()..).unwrap_or_default();
        }
        out.write_all(rest.as_bytes())
    }
}

/// Returns whether an error only says that nobody reads any more.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
            || cause
                .downcast_ref::<serde_json::Error>()
                .is_some_and(|e| e.io_error_kind() == Some(io::ErrorKind::BrokenPipe))
    })
}

/// Returns the width to write for: `COLUMNS`, else the terminal's, else 100.
pub(crate) fn width() -> usize {
    std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok())
        .or_else(|| terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)))
        .unwrap_or(100)
        .clamp(40, 160)
}
