//! What the tool ledger says of one turn: calls, their attempts, denials, cancels and spent budgets.
//!
//! Kept as it was said, in order; not for judging it (the audit rules do) and never holding arguments or output.

use chrono::{DateTime, Utc};
use retryscope_events::{BudgetDenied, PermissionDenied, ToolAttempt, ToolStatus};
use retryscope_record::Origin;
use serde::{Deserialize, Serialize};

use crate::waits::is_long_enough;
use crate::words;

/// One entry of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When.
    pub at: Option<DateTime<Utc>>,
    /// Where it stands.
    pub origin: Origin,
    /// What.
    pub what: What,
}

/// What an entry says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum What {
    /// A tool was executed, or is being executed.
    Attempt(Box<ToolAttempt>),
    /// A call was not allowed.
    Denied(PermissionDenied),
    /// A retry was not made because a budget was spent.
    BudgetSpent(BudgetDenied),
    /// Somebody cancelled.
    Cancelled,
    /// A model request was sent, a retry planned, or a fallback made: activity, for what must stop after a cancel.
    Activity,
}

/// The attempts of one tool call, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Call<'a> {
    /// The call's id.
    pub id: Option<&'a str>,
    /// Name of the tool.
    pub tool: &'a str,
    /// Attempts; a later record of the same attempt number completes it.
    pub attempts: Vec<(&'a Entry, &'a ToolAttempt)>,
}

/// Returns the calls of a ledger, in the order in which they began.
pub fn calls(ledger: &[Entry]) -> Vec<Call<'_>> {
    let mut calls: Vec<Call<'_>> = Vec::new();
    for entry in ledger {
        let What::Attempt(attempt) = &entry.what else { continue };
        let id = attempt.call_id.as_deref();
        let tool = attempt.tool.as_deref().unwrap_or("tool");
        let index = calls.iter().position(|c| id.is_some() && c.id == id).unwrap_or_else(|| {
            calls.push(Call { id, tool, attempts: Vec::new() });
            calls.len() - 1
        });
        let known = &mut calls[index].attempts;
        match known.last_mut() {
            Some(last) if attempt.attempt.is_some() && last.1.attempt == attempt.attempt => {
                *last = (entry, attempt);
            }
            _ => known.push((entry, attempt)),
        }
    }
    calls
}

impl Call<'_> {
    /// Returns the waits between its attempts, in ms, where times tell them.
    pub fn intervals(&self) -> Vec<u64> {
        let start = |(entry, attempt): &(&Entry, &ToolAttempt)| attempt.started_at.or(entry.at);
        let end = |(entry, attempt): &(&Entry, &ToolAttempt)| attempt.ended_at.or(entry.at);
        self.attempts
            .windows(2)
            .filter_map(|pair| Some((start(&pair[1])? - end(&pair[0])?).num_milliseconds()))
            .filter_map(|ms| u64::try_from(ms).ok())
            .collect()
    }
}

/// Returns a line for each call that was repeated, denied or failed, for a person.
pub fn told(ledger: &[Entry]) -> Vec<String> {
    let mut out = Vec::new();
    for call in calls(ledger) {
        let Some((_, last)) = call.attempts.last() else { continue };
        let failed = !matches!(last.status, Some(ToolStatus::Succeeded | ToolStatus::Started) | None);
        if call.attempts.len() < 2 && !failed {
            continue;
        }
        let mut text = format!("{} was called {}", call.tool, words::times(call.attempts.len() as u64));
        let intervals: Vec<String> = call.intervals().into_iter().map(words::span).collect();
        if !intervals.is_empty() {
            text.push_str(&format!(", {} apart", words::list(&intervals)));
        }
        if let Some(status) = last.status {
            text.push_str(&format!("; it {}", ended(status)));
            if let Some(code) = &last.error_code {
                text.push_str(&format!(" ({code})"));
            }
        }
        for (pair, waited) in call.attempts.windows(2).zip(call.intervals()) {
            if let Some(asked) = pair[0].1.retry_after_ms {
                let kept = if is_long_enough(waited, asked) { "was kept" } else { "was not kept" };
                text.push_str(&format!("; the wait it asked for ({}) {kept}", words::span(asked)));
                break;
            }
        }
        out.push(text);
    }
    for (what, name) in
        [("Denied", "a denial"), ("BudgetSpent", "the spent budget"), ("Cancelled", "the cancel")]
    {
        let is = |entry: &Entry| match &entry.what {
            What::Denied(_) => what == "Denied",
            What::BudgetSpent(_) => what == "BudgetSpent",
            What::Cancelled => what == "Cancelled",
            _ => false,
        };
        let Some(at) = ledger.iter().position(is) else { continue };
        let after =
            ledger[at + 1..].iter().filter(|e| matches!(e.what, What::Attempt(_) | What::Activity)).count();
        out.push(match after {
            0 => format!("nothing was sent or executed after {name}"),
            1 => format!("one thing was sent or executed after {name}"),
            n => format!("{n} things were sent or executed after {name}"),
        });
    }
    out
}

fn ended(status: ToolStatus) -> &'static str {
    match status {
        ToolStatus::Started => "is still running",
        ToolStatus::Succeeded => "succeeded at last",
        ToolStatus::Failed => "failed at last",
        ToolStatus::Uncertain => "may or may not have had its effect",
        ToolStatus::Cancelled => "was cancelled",
        ToolStatus::Denied => "was denied",
        ToolStatus::TimedOut => "ran out of time",
    }
}
