//! RS203: waits without any randomness.

use crate::rules::{Found, Rule, Subject};

pub(super) const RULE: Rule = Rule {
    code: "RS203",
    name: "no jitter",
    what: "Three or more planned waits follow the same formula to the millisecond.",
    why: "Runs that fail together come back together, and hit the provider at the same moment again.",
    example: "2000, 4000 and 8000 ms, in every run.",
    instead: "Draw each wait at random between zero and the back-off (full jitter), or at least spread it widely.",
    source: "https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/",
    check,
};

/// Waits that are needed to tell: two may be equal by chance.
const ENOUGH: usize = 3;

fn check(subject: &Subject<'_>) -> Vec<Found> {
    for (_, request) in subject.requests() {
        let planned: Vec<(u64, retryscope_record::Origin)> = request
            .attempts
            .iter()
            .filter(|a| a.failure.as_ref().is_none_or(|f| f.retry_after_ms.is_none()))
            .filter_map(|a| Some((a.delay_ms?, a.origin)))
            .filter(|(delay, _)| *delay > 0)
            .collect();
        if planned.len() < ENOUGH {
            continue;
        }
        let doubling = planned.windows(2).all(|pair| pair[1].0 == pair[0].0 * 2);
        let constant = planned.windows(2).all(|pair| pair[1].0 == pair[0].0);
        if doubling || constant {
            let shape = if doubling { "double each time" } else { "are all equal" };
            let message =
                format!("{} planned waits {shape} to the millisecond (n = {})", planned.len(), planned.len());
            return vec![Found::violation(message, planned.iter().map(|(_, origin)| *origin).collect())];
        }
        return vec![Found::pass(format!("{} planned waits show jitter", planned.len()))];
    }
    Vec::new()
}
