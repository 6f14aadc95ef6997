//! What the tool ledger says of one turn: calls, their attempts, denials, cancels and spent budgets.
//!
//! Kept as it was said, in order; not for judging it (the audit rules do) and never holding arguments or output.

use chrono::{DateTime, Utc};
use retryscope_events::{BudgetDenied, PermissionDenied, ToolAttempt, ToolStatus};
use retryscope_record::Origin;
use serde::{Deserialize, Serialize};

use crate::redact::{redact, redact_within};
use crate::waits::is_long_enough;
use crate::words;

/// One entry of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When.
    pub at: Option<DateTime<Utc>>,
    /// Where it stands.
    pub origin: Origin,
    /// Place of its turn among those of its log, from 0.
    #[serde(default)]
    pub turn: usize,
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
    /// A logical request was asked for; whether its record says in which turn.
    Asked {
        /// Its turn is named.
        in_named_turn: bool,
    },
    /// A model request was sent, a retry planned, or a fallback made: activity, for what must stop after a cancel.
    Activity,
    /// The run, or a turn of it, ended.
    Ended,
}

impl What {
    /// Keeps what a record says of an execution.
    pub(crate) fn attempt(said: &ToolAttempt) -> Self {
        let mut said = Box::new(said.clone());
        let texts = [&mut said.tool, &mut said.effect, &mut said.error_code, &mut said.idempotency];
        texts.into_iter().chain([&mut said.replay_policy]).flatten().for_each(|text| *text = redact(text));
        said.replay_check.iter_mut().for_each(redact_within);
        What::Attempt(said)
    }

    /// Keeps what a record says of a denial.
    pub(crate) fn denied(said: &PermissionDenied) -> Self {
        let mut said = said.clone();
        said.tool.iter_mut().for_each(|text| *text = redact(text));
        What::Denied(said)
    }

    /// Keeps what a record says of a spent budget.
    pub(crate) fn budget_spent(said: &BudgetDenied) -> Self {
        let mut said = said.clone();
        [&mut said.kind, &mut said.scope].into_iter().flatten().for_each(|text| *text = redact(text));
        What::BudgetSpent(said)
    }

    /// Returns whether something was sent or executed.
    pub fn is_activity(&self) -> bool {
        matches!(self, What::Attempt(_) | What::Asked { .. } | What::Activity)
    }
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

/// What happened after a cancel.
#[derive(Debug)]
pub(crate) struct AfterCancel<'a> {
    pub(crate) cancel: &'a Entry,
    /// What was sent or started for the same prompt.
    pub(crate) acts: Vec<&'a Entry>,
    /// A request that was asked next, of which the log does not say whether it is for another prompt.
    pub(crate) asked: Option<&'a Entry>,
}

/// Returns what happened after the first cancel; `None` without one.
pub(crate) fn after_cancel(ledger: &[Entry]) -> Option<AfterCancel<'_>> {
    let at = ledger.iter().position(|entry| entry.what == What::Cancelled)?;
    let (cancel, later) = (&ledger[at], &ledger[at + 1..]);
    // What is asked after the end of the turn, or in another one, is another prompt.
    let is_other = |entry: &&Entry| matches!(entry.what, What::Asked { .. }) && entry.turn != cancel.turn;
    let same = later.iter().take_while(|entry| entry.what != What::Ended && !is_other(entry)).count();
    let is_after = |at: Option<DateTime<Utc>>| at.zip(cancel.at).is_some_and(|(at, cancel)| at > cancel);
    let is_act = |entry: &&Entry| match &entry.what {
        What::Activity | What::Asked { .. } => is_after(entry.at),
        // The end of what was running when it was cancelled is no new act.
        What::Attempt(a) if a.status == Some(ToolStatus::Denied) => false,
        What::Attempt(a) => a.status == Some(ToolStatus::Started) || is_after(a.started_at),
        _ => false,
    };
    let acts = later.iter().take(same).filter(is_act).collect();
    let asked = later.get(same).filter(|entry| entry.what == What::Asked { in_named_turn: false });
    Some(AfterCancel { cancel, acts, asked })
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
    let denied = |entry: &Entry| matches!(entry.what, What::Denied(_));
    let spent = |entry: &Entry| matches!(entry.what, What::BudgetSpent(_));
    let after = |is: &dyn Fn(&Entry) -> bool| {
        let later = &ledger[ledger.iter().position(is)? + 1..];
        let same = later.iter().take_while(|entry| entry.what != What::Ended);
        Some(same.filter(|entry| entry.what.is_activity()).count())
    };
    let after_cancel = after_cancel(ledger).filter(|after| after.asked.is_none() || !after.acts.is_empty());
    for (count, name) in [
        (after(&denied), "a denial"),
        (after(&spent), "the spent budget"),
        (after_cancel.map(|after| after.acts.len()), "the cancel"),
    ] {
        out.extend(count.map(|count| match count {
            0 => format!("nothing was sent or executed after {name}"),
            1 => format!("one thing was sent or executed after {name}"),
            n => format!("{n} things were sent or executed after {name}"),
        }));
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
