//! RS504: it went on after it was told to stop.

use crate::rules::{Check, Found, Rule, Subject};
use crate::run::RunOutcome;
use crate::tools::{AfterCancel, What, after_cancel};
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
    let Some(AfterCancel { cancel, acts, asked }) = after_cancel(&subject.run.ledger) else {
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
    let Some(last) = acts.last() else {
        return vec![match asked {
            Some(asked) => Found::unknown(
                "a request was asked after the cancel; whether for another prompt is not in the log",
                vec![cancel.origin, asked.origin],
            ),
            None => Found::pass("nothing was sent or started after the cancel"),
        }];
    };
    let span =
        last.at.zip(cancel.at).and_then(|(to, from)| u64::try_from((to - from).num_milliseconds()).ok());
    let until = span.map(|ms| format!(", the last {} after it", words::span(ms))).unwrap_or_default();
    let n = words::counted(crate::Bound::exact(acts.len() as u64), "thing was", "things were");
    let evidence = [cancel.origin].into_iter().chain(acts.iter().map(|e| e.origin)).collect();
    vec![Found::violation(format!("{n} sent or started after the cancel{until}"), evidence)]
}
