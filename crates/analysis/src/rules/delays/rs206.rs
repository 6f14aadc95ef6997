//! RS206: far longer waited than asked.

use retryscope_events::DelaySource;

use crate::rules::{Check, Found, Rule, Subject};
use crate::run::Attempt;
use crate::words;

pub(super) const RULE: Rule = Rule {
    code: "RS206",
    name: "over-waiting",
    what: "The provider stated a wait, and the agent waited more than five times as long and at least a minute more.",
    why: "The run stands still although the provider would have answered.",
    example: "Asked for 42 s, waited 30 min.",
    instead: "Wait as stated, plus jitter.",
    source: "https://github.com/can1357/oh-my-pi/issues/1253",
    check: Check::Run(check),
};

fn check(subject: &Subject<'_>) -> Vec<Found> {
    let over = subject.repeats().find_map(|(_, failed, next)| {
        if matches!(failed.delay_source, Some(DelaySource::User | DelaySource::Queue)) {
            return None;
        }
        let asked = failed.failure.as_ref()?.retry_after_ms?;
        let waited = failed.waited_ms.or(failed.delay_ms)?;
        (waited > asked * 5 && waited > asked + 60_000).then_some((asked, waited, next.origin))
    });
    let over = over.map(|(asked, waited, origin)| {
        let message = format!("asked to wait {}, waited {}", words::span(asked), words::span(waited));
        Found::violation(message, vec![origin])
    });
    let unseen = || {
        let stated = |failed: &Attempt| failed.failure.as_ref().is_some_and(|f| f.retry_after_ms.is_some());
        let (_, failed, _) = subject
            .repeats()
            .find(|(_, failed, _)| stated(failed) && failed.waited_ms.or(failed.delay_ms).is_none())?;
        Some(Found::unknown(
            "a wait was stated; how long was really waited is not in the log",
            vec![failed.origin],
        ))
    };
    over.or_else(unseen).into_iter().collect()
}
