//! RS504: it went on after it was told to stop.

use retryscope_events::ToolStatus;

use super::after;
use crate::rules::{Check, Found, Rule, Subject};
use crate::run::RunOutcome;
use crate::tools::What;
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS504",
    name: "activity after cancel",
    what: "After a cancel, a request was sent, a retry planned or a tool started.",
    why: "Whoever cancels wants no more effects and no more cost.",
    example: "A retry timer fires 8 s after the cancel.",
    instead: "Let a cancel end every wait and every loop.",
    source: "https://docs.rs/tokio-util/latest/tokio_util/sync/struct.CancellationToken.html",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let Some((cancel, later)) = after(&subject.run.ledger, |e| matches!(e.what, What::Cancelled)) else {
        let cancelled = subject.run.turns.iter().filter(|turn| turn.outcome == RunOutcome::Cancelled);
        let ends: Vec<_> = cancelled.filter_map(|turn| turn.end_origin).collect();
        let tools = subject.run.ledger.iter().any(|entry| matches!(entry.what, What::Attempt(_)));
        return match (ends.is_empty(), tools) {
            (false, true) => {
                vec![Found::unknown(
                    "the run was cancelled; what happened after the cancel is not in the log",
                    ends,
                )]
            }
            _ => Vec::new(),
        };
    };
    let active: Vec<_> = later
        .iter()
        .filter(|entry| match &entry.what {
            What::Activity => true,
            // The end of what was running when it was cancelled is no new act.
            What::Attempt(a) => {
                a.status == Some(ToolStatus::Started)
                    || a.started_at.zip(cancel.at).is_some_and(|(s, c)| s > c)
            }
            _ => false,
        })
        .collect();
    let Some(last) = active.last() else {
        return vec![Found::pass("nothing was sent or started after the cancel")];
    };
    let span =
        last.at.zip(cancel.at).and_then(|(to, from)| u64::try_from((to - from).num_milliseconds()).ok());
    let until = span.map(|ms| format!(", the last {} after it", words::span(ms))).unwrap_or_default();
    let n = words::counted(crate::Bound::exact(active.len() as u64), "thing was", "things were");
    let evidence = [cancel.origin].into_iter().chain(active.iter().map(|e| e.origin)).collect();
    vec![Found::violation(format!("{n} sent or started after the cancel{until}"), evidence)]
}
