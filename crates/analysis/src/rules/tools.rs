//! `RS5xx`: what tools did twice, or after they should have stopped. They need the tool ledger of `events.jsonl`; no known
//! agent's own log holds what they ask for.

mod rs501;
mod rs502;
mod rs503;
mod rs504;
mod rs505;
mod rs506;
mod rs507;

use retryscope_events::{ToolAttempt, ToolStatus};

use super::Rule;
use crate::tools::{Call, Entry};

pub(super) const RULES: &[Rule] =
    &[rs501::RULE, rs502::RULE, rs503::RULE, rs504::RULE, rs505::RULE, rs506::RULE, rs507::RULE];

/// Returns the executions of a call after its first: what was denied was not executed, and what stands between leaves its
/// number behind.
fn repeats<'a>(call: &Call<'a>) -> Vec<(&'a Entry, &'a ToolAttempt)> {
    let denied = |attempt: &ToolAttempt| attempt.status == Some(ToolStatus::Denied);
    let denials = call.attempts.iter().filter(|(_, attempt)| denied(attempt)).count() as u64;
    let executed = call.attempts.iter().filter(|(_, attempt)| !denied(attempt)).enumerate();
    let is_repeat =
        |index: usize, attempt: &ToolAttempt| index > 0 || attempt.attempt.is_some_and(|n| n > 1 + denials);
    executed.filter(|(index, (_, attempt))| is_repeat(*index, attempt)).map(|(_, known)| *known).collect()
}

/// Returns the entries after the first that is meant, and that one.
fn after(ledger: &[Entry], is: impl Fn(&Entry) -> bool) -> Option<(&Entry, &[Entry])> {
    let at = ledger.iter().position(is)?;
    Some((&ledger[at], &ledger[at + 1..]))
}
