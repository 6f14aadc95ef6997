//! One's own `policy.toml`: what should happen when a model request fails.
//!
//! The file starts from a shipped profile (`interactive` or `batch`) and adds rows for what should differ, by
//! provider, failure class and reason. [`parse`] reads it strictly, [`OwnPolicy::resolve`] gives what holds for
//! one failure, [`check`] finds what is wrong or contradictory in it, with place and advice.
//!
//! Nothing here executes a policy or knows what a provider's answer means; classes and reasons are words.
//!
//! ```toml
//! profile = "interactive"
//!
//! [[rows]]
//! provider = "anthropic"
//! class = "throttled"
//! attempts = 3
//! base_ms = 5000
//!
//! [fallback]
//! chain = ["anthropic/claude-opus-5-5", "bedrock/claude-opus-5-5@eu-west-1"]
//!
//! [recipients.customer-code]
//! to = "allow-list"
//! providers = ["anthropic", "bedrock"]
//! regions = ["eu-west-1"]
//!
//! [[tools]]
//! name = "send_mail"
//! idempotency = "non_idempotent"
//! attempts = 1
//! replay = "ask"
//! ```

mod check;
mod document;
mod recipients;
mod resolve;

pub use check::{Problem, Severity, check};
pub use document::{
    Budget, CLASSES, Fallback, Idempotency, JitterRange, Limits, OwnLayer, OwnPolicy, Profile, Recipients,
    RecipientsTo, Replay, Row, Tool,
};
pub use recipients::{Candidate, Refusal};
pub use resolve::Resolved;

use crate::position::LineIndex;

/// A `policy.toml` that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("policy.toml:{line}:{column}: {message}")]
pub struct ParseError {
    /// Line of the mistake, from 1.
    pub line: u32,
    /// Column of the mistake in characters, from 1.
    pub column: u32,
    /// What is wrong there.
    pub message: String,
}

/// Reads a `policy.toml`. Unknown keys are an error: a misspelt limit must not silently be no limit.
///
/// Errs on the first mistake; [`check`] lists all.
///
/// ```
/// use retryscope_policy::own;
///
/// let policy = own::parse("[[rows]]\nclass = \"transient\"\nattempts = 2\n")?;
/// assert_eq!(policy.resolve("openai", "transient", "unavailable").attempts, 2);
/// assert_eq!(policy.resolve("openai", "auth", "invalid_key").attempts, 1);
/// # Ok::<(), own::ParseError>(())
/// ```
pub fn parse(text: &str) -> Result<OwnPolicy, ParseError> {
    toml::from_str(text).map_err(|error| {
        let (line, column) = LineIndex::new(text).line_and_column(error.span().map_or(0, |span| span.start));
        ParseError { line, column, message: error.message().to_owned() }
    })
}
