//! RS301: sends that no log shows.

use retryscope_record::Origin;

use crate::rules::{Check, Found, Rule, Subject};
use crate::run::Attempt;
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS301",
    name: "retries hidden below the logged layer",
    what: "Logged attempts stand for more requests than there are records, by the agent's known retry layers.",
    why: "Bills, rate limits and outages see every request; whoever reads the log sees a fraction.",
    example: "One recorded attempt of oh-my-pi stands for 12 requests.",
    instead: "Log every send where it is made, or let one layer alone retry.",
    source: "https://sre.google/sre-book/handling-overload/",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let mut shown = 0;
    let mut sent = 0;
    let mut evidence = Vec::new();
    for (_, request) in subject.requests() {
        for attempt in request.attempts.iter().filter(|a| a.sends.min > 1 && !a.sends_told) {
            shown += 1;
            sent += attempt.sends.min;
            evidence.push(attempt.origin);
        }
    }
    if shown == 0 {
        let may_hide = |a: &&Attempt| a.failure.is_some() && !a.sends_told && a.sends.max != Some(1);
        let attempts = subject.requests().flat_map(|(_, request)| &request.attempts);
        let doubtful: Vec<Origin> = attempts.filter(may_hide).map(|attempt| attempt.origin).collect();
        let message = "failed attempts may stand for more requests of a layer below, which has no log";
        return if doubtful.is_empty() { Vec::new() } else { vec![Found::unknown(message, doubtful)] };
    }
    let message = format!(
        "{} in the log {} for at least {sent} requests",
        words::counted(crate::Bound::exact(shown), "attempt", "attempts"),
        if shown == 1 { "stands" } else { "stand" },
    );
    vec![Found::violation(message, evidence).fix(subject.setting_for("hidden_layer"))]
}
