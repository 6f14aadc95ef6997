//! `RS5xx`: what tools did twice, or after they should have stopped. They need the tool ledger of `events.jsonl`; no known
//! agent's own log holds what they ask for.

mod rs501;
mod rs502;
mod rs503;
mod rs504;
mod rs505;
mod rs506;
mod rs507;

use retryscope_events::ToolAttempt;

use super::Rule;
use crate::tools::Entry;

pub(super) const RULES: &[Rule] =
    &[rs501::RULE, rs502::RULE, rs503::RULE, rs504::RULE, rs505::RULE, rs506::RULE, rs507::RULE];

/// Whether this is a second or later execution.
fn is_repeat(index: usize, attempt: &ToolAttempt) -> bool {
    index > 0 || attempt.attempt.is_some_and(|n| n > 1)
}

/// Returns the entries after the first that is meant, and that one.
fn after(ledger: &[Entry], is: impl Fn(&Entry) -> bool) -> Option<(&Entry, &[Entry])> {
    let at = ledger.iter().position(is)?;
    Some((&ledger[at], &ledger[at + 1..]))
}
