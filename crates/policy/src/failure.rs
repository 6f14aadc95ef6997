//! The kinds of failure that retry layers tell apart, and the words for them in the data files.
//!
//! This is coarser than the failure classes of a run: it only says what a retry loop looks at.

use serde::{Deserialize, Serialize};

/// How an attempt failed, as far as a retry layer distinguishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// An HTTP answer with this status, without a quota code in its body.
    Status(u16),
    /// An answer that says the quota or credit is used up, whatever its status.
    Quota,
    /// No connection: refused, name not found, reset before an answer.
    Connection,
    /// The agent's own time limit ended the attempt.
    Timeout,
    /// The stream broke or ended early after HTTP 200.
    StreamCut,
    /// An error event inside a stream that began with HTTP 200.
    StreamError,
}

impl Failure {
    /// Whether the data word `word` names this failure, and how precisely (higher is more precise).
    ///
    /// Words are a status (`429`), a group of statuses (`5xx`), or `quota`, `connection`, `timeout`,
    /// `stream_cut`, `stream_error`.
    pub(crate) fn matches(self, word: &str) -> Option<u8> {
        let named = match self {
            Self::Status(status) => {
                if word.parse() == Ok(status) {
                    return Some(2);
                }
                return (word.strip_suffix("xx").and_then(|hundreds| hundreds.parse().ok())
                    == Some(status / 100))
                .then_some(1);
            }
            Self::Quota => "quota",
            Self::Connection => "connection",
            Self::Timeout => "timeout",
            Self::StreamCut => "stream_cut",
            Self::StreamError => "stream_error",
        };
        (word == named).then_some(2)
    }

    /// Whether `word` may stand in a data file.
    #[cfg(test)]
    pub(crate) fn is_word(word: &str) -> bool {
        matches!(word, "quota" | "connection" | "timeout" | "stream_cut" | "stream_error" | "4xx" | "5xx")
            || word.parse::<u16>().is_ok_and(|status| (100..=999).contains(&status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_more_precise_than_its_group() {
        assert_eq!(Failure::Status(503).matches("503"), Some(2));
        assert_eq!(Failure::Status(503).matches("5xx"), Some(1));
        assert_eq!(Failure::Status(503).matches("4xx"), None);
        assert_eq!(Failure::Quota.matches("429"), None);
        assert!(Failure::is_word("529") && !Failure::is_word("overloaded"));
    }
}
