//! What to change, most useful first: the act that the failure asks for, then the agent's own settings (from the policy
//! data), then what would make the next run visible.

use retryscope_events::{AttemptKind, AttemptOutcome, Source};
use retryscope_policy::{self as policy, Attempts, Policy};
use retryscope_taxonomy::{self as taxonomy, Class, Reason};

use crate::count::Bound;
use crate::judge::Failure;
use crate::run::{Attempt, Run, RunOutcome, Turn};
use crate::waits::is_long_enough;
use crate::words;

/// One piece of advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// The advice.
    pub text: String,
    /// The agent's setting it is about.
    pub setting: Option<String>,
}

/// Settings named in one explanation at most.
const SETTINGS: usize = 3;

pub(crate) fn remedies(run: &Run, turn: &Turn, children: &[&Run]) -> Vec<Remedy> {
    let mut out = Vec::new();
    let act = |text: String| Remedy { text, setting: None };
    if let Some(cause) = &turn.cause {
        out.extend(
            what_the_failure_asks_for(&cause.failure, cause.candidate.provider.as_deref(), run).map(act),
        );
    }
    if let Some(child) = children.iter().find(|child| child.failed_turns() > 0) {
        out.push(act(format!("read what ended the subagent: retryscope replay {}", child.key.id)));
    }
    let policy = policy_of(run);
    if let Some(policy) = policy {
        let situations = situations(turn);
        let set = |name: &str| run.settings.iter().any(|(known, _)| known == name);
        let fitting = situations.iter().flat_map(|situation| {
            policy
                .settings
                .iter()
                .filter(move |s| s.helps.iter().any(|h| h == situation))
                .map(move |s| (*situation, s))
        });
        for (situation, setting) in fitting {
            let known = out.iter().any(|remedy: &Remedy| remedy.setting.as_ref() == Some(&setting.name));
            let has_fallback =
                situation == "fallback" && (set(&setting.name) || turn.counts.fallbacks.bound.min > 0);
            if known || has_fallback || out.iter().filter(|r| r.setting.is_some()).count() >= SETTINGS {
                continue;
            }
            let below = matches!(setting.layer, Some(policy::Layer::Transport | policy::Layer::Sdk));
            let effect = below
                .then(|| effect(situation, turn))
                .flatten()
                .map(|e| format!(" ({e})"))
                .unwrap_or_default();
            out.push(Remedy {
                text: format!("{}{effect}", plain(&setting.remedy)),
                setting: Some(setting.name.clone()),
            });
        }
        if let Some(text) = see_more(turn, policy) {
            out.push(act(text));
        }
    }
    out
}

/// Returns the policy that was in force, if one is known.
fn policy_of(run: &Run) -> Option<&'static Policy> {
    policy::find(&run.key.agent, run.facts.policy_version.as_deref().or(run.facts.agent_version.as_deref()))
}

fn what_the_failure_asks_for(failure: &Failure, provider: Option<&str>, run: &Run) -> Option<String> {
    let table = provider.or(run.facts.provider.as_deref()).and_then(taxonomy::provider);
    let billing =
        table.and_then(|t| t.billing_url.as_deref()).map(|url| format!(": {url}")).unwrap_or_default();
    let status =
        table.and_then(|t| t.status_url.as_deref()).map(|url| format!(" ({url})")).unwrap_or_default();
    Some(match failure.class {
        Class::Exhausted if failure.reset_at.is_some() || failure.reset_clock.is_some() => format!(
            "wait for the reset, or raise the limit of the account{billing}; starting again before that fails the same way"
        ),
        Class::Exhausted => format!(
            "top up the account or raise its limit{billing}; starting again before that fails the same way"
        ),
        Class::Auth => match failure.reason {
            Reason::ModelAccess | Reason::Permission => {
                "ask for access to this model, or choose one the key may use".to_owned()
            }
            Reason::Region => "use an endpoint in a region the provider serves".to_owned(),
            Reason::WafBlock => {
                "a firewall answered, not the provider: look at the proxy or the network in between"
                    .to_owned()
            }
            Reason::ExpiredToken => "log in again, then start the run again".to_owned(),
            _ => "log in again or replace the key, then start the run again".to_owned(),
        },
        Class::InvalidRequest => match failure.reason {
            Reason::ModelNotFound => "choose a model name that this provider has".to_owned(),
            Reason::EndpointNotFound => "check the base URL of the provider".to_owned(),
            Reason::TlsVerify => "fix the certificate of the proxy or gateway; retrying cannot".to_owned(),
            _ => "change what the message names; sending the same request again fails again".to_owned(),
        },
        Class::TooLarge => {
            "make the conversation smaller (compact, or start a new session) before asking again".to_owned()
        }
        Class::Content => "change the input that the filter refused".to_owned(),
        Class::Throttled => match failure.retry_after_ms {
            Some(ms) => format!("start again after the wait the provider asked for ({})", words::span(ms)),
            None => "send less at once: fewer parallel runs on this key, or a higher limit".to_owned(),
        },
        Class::Transient if failure.reason == Reason::Refused => {
            "nothing listens at the endpoint: start the server or fix the base URL".to_owned()
        }
        Class::Transient if failure.reason == Reason::Dns => {
            "the name of the endpoint does not resolve: check the network and the base URL".to_owned()
        }
        Class::Transient => {
            format!("start the run again once the provider is healthy{status}: nothing in it was wrong")
        }
        Class::Cancelled | Class::Unknown => return None,
    })
}

/// What happened in a turn, in the words that the policy data uses for what a setting helps with.
fn situations(turn: &Turn) -> Vec<&'static str> {
    let mut out = Vec::new();
    let attempts =
        || turn.requests.iter().filter(|r| r.source == Source::Foreground).flat_map(|r| &r.attempts);
    let reason =
        |wanted: &[Reason]| attempts().filter_map(|a| a.failure.as_ref()).any(|f| wanted.contains(&f.reason));
    if attempts().any(ignored_wait) {
        out.push("stated_wait");
    }
    let failed = |a: &&Attempt| a.outcome == Some(AttemptOutcome::Failed);
    if attempts().filter(failed).any(|a| a.sends.max != Some(a.sends.min) || a.sends.min > 1) {
        out.push("hidden_layer");
    }
    if attempts().any(|a| a.kind == AttemptKind::Fallback && a.candidate.transport.is_some()) {
        out.push("transport_fallback");
    }
    if reason(&[Reason::Timeout]) {
        out.push("timeout");
    }
    if reason(&[Reason::IdleTimeout]) {
        out.push("idle_timeout");
    }
    if reason(&[Reason::Refused]) {
        out.push("refused");
    }
    let cause = turn.cause.as_ref().map(|cause| &cause.failure);
    if turn.outcome == RunOutcome::Failed {
        match cause.map(|f| f.class) {
            Some(Class::Transient | Class::Throttled) if turn.counts.retries.bound.min > 0 => {
                out.extend(["fallback", "outlast"]);
            }
            Some(Class::Exhausted) => out.push("exhausted"),
            _ => {}
        }
    }
    let side_call_failed = turn
        .requests
        .iter()
        .any(|r| r.source == Source::Background && !r.outcome.is_ok() && r.attempts.len() > 1);
    if side_call_failed {
        out.push("side_call");
    }
    out
}

/// Returns whether a stated wait was cut short by the next attempt.
fn ignored_wait(attempt: &Attempt) -> bool {
    let asked = attempt.failure.as_ref().and_then(|f| f.retry_after_ms);
    asked.zip(attempt.waited_ms).is_some_and(|(asked, waited)| !is_long_enough(waited, asked))
}

/// Returns what a change would have made of this turn, where that follows from its numbers.
fn effect(situation: &str, turn: &Turn) -> Option<String> {
    if situation != "hidden_layer" || !turn.counts.upstream_requests.is_visible() {
        return None;
    }
    let visible: u64 = turn
        .requests
        .iter()
        .filter(|r| r.source == Source::Foreground)
        .map(|r| r.attempts.len() as u64)
        .sum();
    let upstream = turn.counts.upstream_requests.bound;
    (upstream.max.is_none_or(|max| max > visible)).then(|| {
        format!(
            "without the hidden layer this turn would have sent {} instead of {}",
            words::counted(Bound::exact(visible), "request", "requests"),
            words::bound(upstream)
        )
    })
}

/// Returns how to see every request of the next run, where this one could not be seen whole.
fn see_more(turn: &Turn, policy: &Policy) -> Option<String> {
    let failed_or_hidden = turn.outcome != RunOutcome::Succeeded
        || turn.requests.iter().flat_map(|r| &r.attempts).any(|a| a.outcome == Some(AttemptOutcome::Failed))
        || !turn.counts.upstream_requests.is_visible();
    if turn.counts.upstream_requests.bound.is_exact() || !failed_or_hidden {
        return None;
    }
    let view = policy.views.iter().find(|view| view.attempts == Attempts::All && view.enable.is_some())?;
    let enable = view.enable.as_deref()?.trim();
    let first = enable.lines().next().unwrap_or_default();
    let more = if enable.lines().count() > 1 { " ... (retryscope sources prints it whole)" } else { "" };
    Some(format!("to see every request of the next run: {first}{more}"))
}

/// Back-quotes are for documents, not for a terminal.
fn plain(text: &str) -> String {
    text.replace('`', "")
}
