//! Exit codes: public contract.

use std::process::ExitCode;

/// How a command ended. Where several hold, the precedence is 2, 1, 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Answered, whatever the blind spots.
    Ok,
    /// An audit violation, or a failed run with `--exit-code`.
    Finding,
    /// Bad usage, or nothing readable.
    Usage,
    /// Answered, but a file or line could not be read.
    Incomplete,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(match exit {
            Exit::Ok => 0,
            Exit::Finding => 1,
            Exit::Usage => 2,
            Exit::Incomplete => 3,
        })
    }
}

/// An error with advice for the next step.
#[derive(Debug)]
pub(crate) struct Hinted {
    message: String,
    hints: Vec<String>,
}

impl std::fmt::Display for Hinted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Hinted {}

/// Returns an error with hints.
pub(crate) fn hinted(message: impl Into<String>, hints: impl IntoIterator<Item = String>) -> anyhow::Error {
    anyhow::Error::new(Hinted { message: message.into(), hints: hints.into_iter().collect() })
}

/// Returns the hints of an error.
pub(crate) fn hints(error: &anyhow::Error) -> Vec<String> {
    error.downcast_ref::<Hinted>().map(|hinted| hinted.hints.clone()).unwrap_or_default()
}
