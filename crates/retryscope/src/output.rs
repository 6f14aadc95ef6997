//! Standard output: buffered, and quiet when the reader goes away.

use std::io::{self, BufWriter, Stdout, Write};

use retryscope_analysis::words::visible_page;

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
        serde_json::to_writer(&mut self.out, value)?;
        self.out.write_all(b"\n")?;
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
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
