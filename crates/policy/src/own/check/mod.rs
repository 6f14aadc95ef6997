//! What is wrong or contradictory in a `policy.toml`, with place and advice.
//!
//! Checking goes on after a mistake as far as it can: unknown keys are reported and left out, then the rest is
//! read and its meaning checked. Whether a class or reason fits a provider is not checked here.

mod delays;
mod keys;
mod place;
mod rules;

use serde::{Deserialize, Serialize};
use toml::de::{DeTable, Deserializer};

use self::place::Places;
use super::OwnPolicy;
use crate::position::LineIndex;

/// Something wrong in a `policy.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// How bad it is.
    pub severity: Severity,
    /// Stable name of the check: `unknown-key`, `cap-below-base`, ...
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do. `None` when the message says it.
    pub hint: Option<String>,
}

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The policy cannot be read, or does what nobody can want.
    Error,
    /// The policy works, but part of it has no effect or makes failures worse.
    Warning,
}

/// Lists the problems of a `policy.toml`, in the order of the text. Empty for a sound one; never panics.
///
/// ```
/// let problems = retryscope_policy::own::check("[defaults]\natempts = 3\n");
/// assert_eq!((problems[0].line, problems[0].code), (2, "unknown-key"));
/// assert_eq!(problems[0].hint.as_deref(), Some("did you mean `attempts`?"));
/// ```
pub fn check(text: &str) -> Vec<Problem> {
    let lines = LineIndex::new(text);
    let (mut document, mistakes) = DeTable::parse_recoverable(text);
    let mut found = Vec::new();
    for mistake in &mistakes {
        let at = mistake.span().map_or(0, |span| span.start);
        found.push(problem(&lines, at, Severity::Error, "syntax", mistake.message(), None));
    }
    if mistakes.is_empty() {
        keys::remove_unknown(document.get_mut(), &lines, &mut found);
        match OwnPolicy::deserialize(Deserializer::from(document.clone())) {
            Ok(policy) => {
                let places = Places::new(&document, &lines);
                rules::check(&policy, &mut Findings { places: &places, found: &mut found });
            }
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                found.push(problem(&lines, at, Severity::Error, "value", error.message(), None));
            }
        }
    }
    found.sort_by_key(|problem| (problem.line, problem.column));
    found
}

fn problem(
    lines: &LineIndex<'_>,
    at: usize,
    severity: Severity,
    code: &'static str,
    message: &str,
    hint: Option<String>,
) -> Problem {
    let (line, column) = lines.line_and_column(at);
    Problem { line, column, severity, code, message: message.trim_end().to_owned(), hint }
}

/// Collects what the rules find, with the place of the key it is about.
struct Findings<'a> {
    places: &'a Places<'a>,
    found: &'a mut Vec<Problem>,
}

impl Findings<'_> {
    fn error(&mut self, place: &[&str], code: &'static str, message: &str, hint: &str) {
        self.add(place, Severity::Error, code, message, hint);
    }

    fn warning(&mut self, place: &[&str], code: &'static str, message: &str, hint: &str) {
        self.add(place, Severity::Warning, code, message, hint);
    }

    fn add(&mut self, place: &[&str], severity: Severity, code: &'static str, message: &str, hint: &str) {
        let (line, column) = self.places.of(place);
        let hint = (!hint.is_empty()).then(|| hint.to_owned());
        self.found.push(Problem { line, column, severity, code, message: message.to_owned(), hint });
    }
}
