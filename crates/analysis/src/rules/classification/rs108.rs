//! RS108: two agents, one error, two opinions.

use std::collections::BTreeMap;

use retryscope_events::AttemptKind;
use retryscope_record::{Origin, RunKey};
use retryscope_taxonomy::{Class, Reason};

use crate::explain::describe;
use crate::judge::Failure;
use crate::rules::{Check, Fleet, Found, Rule, Subject};
use crate::run::RequestOutcome;
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS108",
    name: "agents disagree about an error",
    what: "The same provider, status and code was always retried by one agent and never by another. Needs runs of two agents.",
    why: "One of them is wrong: either it gives up too early, or it burns requests on what cannot pass.",
    example: "One agent retries a 401 six times, the other stops at once.",
    instead: "Follow the provider's table: retry what passes by itself, stop at what does not.",
    source: "https://platform.openai.com/docs/guides/error-codes",
    check: Check::Runs(check),
};

/// Provider, status, code, class and reason of an error.
type Met<'a> = (&'a str, u16, Option<&'a str>, Class, Reason);

/// What one agent did about one error.
struct Did {
    failure: Failure,
    retried: u64,
    gave_up: u64,
    unclear: u64,
    run: RunKey,
    origin: Origin,
}

fn check(fleet: &Fleet<'_>) -> Vec<(RunKey, Found)> {
    let mut seen: BTreeMap<Met<'_>, BTreeMap<&str, Did>> = BTreeMap::new();
    for (run, turn, request) in fleet.requests() {
        let Some((index, attempt)) = request.attempts.iter().enumerate().find(|(_, a)| a.failure.is_some())
        else {
            continue;
        };
        let Some(failure) = &attempt.failure else { continue };
        let (Some(provider), Some(status)) = (attempt.candidate.provider.as_deref(), failure.status) else {
            continue;
        };
        // A stated wait may be too long to sit out: that is no disagreement about the error.
        if failure.retry_after_ms.is_some() {
            continue;
        }
        let error = (provider, status, failure.code.as_deref(), failure.class, failure.reason);
        let agents = seen.entry(error).or_default();
        let did = agents.entry(&run.key.agent).or_insert_with(|| Did {
            failure: failure.clone(),
            retried: 0,
            gave_up: 0,
            unclear: 0,
            run: run.key.clone(),
            origin: attempt.origin,
        });
        let again = request.attempts.get(index + 1).is_some_and(|next| next.kind == AttemptKind::Retry);
        let stopped = request.outcome == RequestOutcome::FailedNoRetry && Subject::sent_once(turn, request);
        match (again || attempt.sends.min > 1, stopped) {
            (true, _) => did.retried += 1,
            (false, true) => did.gave_up += 1,
            (false, false) => did.unclear += 1,
        }
    }
    let mut out = Vec::new();
    for ((provider, ..), agents) in &seen {
        let always = agents.iter().find(|(_, did)| did.retried > 0 && did.gave_up == 0);
        let never = agents.iter().find(|(_, did)| did.gave_up > 0 && did.retried == 0);
        let unclear = agents.iter().find(|(_, did)| did.unclear > 0 && did.retried + did.gave_up == 0);
        match (always, never) {
            (Some((one, retried)), Some((other, stopped))) => {
                let retryable = retried.failure.retryable;
                let message = format!(
                    "{} from {provider}: {one} retried it {}, {other} gave up {}; {}",
                    describe(&retried.failure),
                    words::times(retried.retried),
                    words::times(stopped.gave_up),
                    if retryable { "it usually passes" } else { "no retry can pass it" },
                );
                let wrong = if retryable { stopped } else { retried };
                out.push((
                    wrong.run.clone(),
                    Found::violation(message, vec![retried.origin, stopped.origin]),
                ));
            }
            (Some((one, known)), None) | (None, Some((one, known))) => match unclear {
                Some((other, hidden)) => {
                    let message = format!(
                        "{} from {provider}: what {other} did about it is not visible, so it cannot be compared with {one}",
                        describe(&known.failure)
                    );
                    out.push((hidden.run.clone(), Found::unknown(message, vec![hidden.origin])));
                }
                None if agents.len() > 1 => out.push((
                    known.run.clone(),
                    Found::pass(format!(
                        "{} agents did the same about {}",
                        agents.len(),
                        describe(&known.failure)
                    )),
                )),
                None => {}
            },
            (None, None) => {}
        }
    }
    out
}
