//! What to change, most useful first: the act that the failure asks for, then the agent's own settings (from the policy
//! data), then what would make the next run visible.

use retryscope_events::{AttemptKind, AttemptOutcome, Source};
use retryscope_policy::{self as policy, Acts, Attempts, LayerPolicy, Policy, Setting, View};
use retryscope_taxonomy::{self as taxonomy, Class, Reason};

use crate::count::Bound;
use crate::infer::kind_of;
use crate::judge::Failure;
use crate::run::{Attempt, LogicalRequest, Run, RunOutcome, Turn};
use crate::waits::is_long_enough;
use crate::words;

use super::phrases::describe;

/// One piece of advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// The advice.
    pub text: String,
    /// The agent's setting it is about.
    pub setting: Option<String>,
    /// What it would have made of this turn, where that follows from its numbers.
    pub effect: Option<String>,
}

impl Remedy {
    /// Returns the advice as it is told of this turn.
    pub fn told(&self) -> String {
        match &self.effect {
            Some(effect) => format!("{} ({effect})", self.text),
            None => self.text.clone(),
        }
    }
}

/// Settings named in one explanation at most.
const SETTINGS: usize = 3;

pub(crate) fn remedies(run: &Run, turn: &Turn, children: &[&Run]) -> Vec<Remedy> {
    let mut out = Vec::new();
    let act = |text: String| Remedy { text, setting: None, effect: None };
    if let Some(cause) = &turn.cause {
        out.extend(
            what_the_failure_asks_for(&cause.failure, cause.candidate.provider.as_deref(), run, turn)
                .map(act),
        );
    }
    if let Some(attempt) = stopped_by(turn)
        && let Some(failure) = &attempt.failure
    {
        let provider = attempt.candidate.provider.as_deref();
        out.extend(what_the_failure_asks_for(failure, provider, run, turn).map(act));
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
                .filter(|s| can_help(s, policy, run, attempts_of(turn)))
                .map(move |s| (*situation, s))
        });
        for (situation, setting) in fitting {
            let known = out.iter().any(|remedy: &Remedy| remedy.setting.as_ref() == Some(&setting.name));
            let has_fallback = situation.starts_with("fallback")
                && (set(&setting.name) || turn.counts.fallbacks.bound.min > 0);
            // What a loop above the hidden ones did is seen, and may be what saved the run.
            let is_idle = situation == "hidden_layer"
                && setting.layer == Some(policy::Layer::Agent)
                && (turn.outcome == RunOutcome::Succeeded || !has_retry(turn));
            if known
                || has_fallback
                || is_idle
                || out.iter().filter(|r| r.setting.is_some()).count() >= SETTINGS
            {
                continue;
            }
            let below = matches!(setting.layer, Some(policy::Layer::Transport | policy::Layer::Sdk));
            out.push(Remedy {
                text: plain(&setting.remedy),
                setting: Some(setting.name.clone()),
                effect: below.then(|| effect(situation, turn)).flatten(),
            });
        }
        if let Some(text) = see_more(run, turn, policy) {
            out.push(act(text));
        }
    }
    out
}

/// Returns whether a setting can change what happened to these attempts: it does not have the advised value already, and of
/// the retry layers that it rules, if any, one was at work.
pub(crate) fn can_help<'a>(
    setting: &Setting,
    policy: &Policy,
    run: &Run,
    attempts: impl IntoIterator<Item = &'a Attempt>,
) -> bool {
    let mut values = values_of(run, &setting.name).peekable();
    if values.peek().is_some() && values.all(|value| setting.is_reached_by(value)) {
        return false;
    }
    let rules = |layer: &LayerPolicy| layer.is_ruled_by(&setting.name);
    if !policy.layers.iter().any(rules) {
        return true;
    }
    let is_applied = |attempt: &Attempt| {
        let provider = attempt.candidate.provider.as_deref();
        !provider.is_some_and(|provider| setting.not_applied_in.iter().any(|other| other == provider))
    };
    let is_at_work = |(layer, acts): (&LayerPolicy, Acts)| {
        let is_switch = layer.switch.as_ref().is_some_and(|switch| switch.setting == setting.name);
        rules(layer) && acts != Acts::No && (is_switch || !is_off(run, layer))
    };
    attempts
        .into_iter()
        .filter(|attempt| attempt.outcome != Some(AttemptOutcome::Ok) && is_applied(attempt))
        .any(|attempt| layers_at_work(policy, attempt).any(is_at_work))
}

/// Returns the retry layers on the way of a failed attempt, with what they do about its failure.
pub(crate) fn layers_at_work<'p>(
    policy: &'p Policy,
    attempt: &Attempt,
) -> impl Iterator<Item = (&'p LayerPolicy, Acts)> {
    let failure = attempt.failure.as_ref().and_then(kind_of);
    let layers = policy.layers_for(attempt.api.as_deref()).into_iter();
    layers.map(move |layer| (layer, failure.map_or(Acts::Unknown, |failure| layer.acts_on(failure))))
}

/// Returns whether a layer is known to have been switched off.
pub(crate) fn is_off(run: &Run, layer: &LayerPolicy) -> bool {
    let is_off = |value: &str| matches!(value, "false" | "off" | "0");
    layer.switch.as_ref().is_some_and(|switch| values_of(run, &switch.setting).any(is_off))
}

/// Returns the values that were read of a setting; one for each provider, where each has its own.
fn values_of<'a>(run: &'a Run, name: &'a str) -> impl Iterator<Item = &'a str> {
    run.settings.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// Returns the last failed attempt of a turn that was stopped, where a person must act on it before it can pass.
fn stopped_by(turn: &Turn) -> Option<&Attempt> {
    let last = turn.stopped_at()?;
    let failure = last.failure.as_ref()?;
    let is_ones_own = match failure.class {
        Class::Transient => matches!(failure.reason, Reason::Connect | Reason::Dns | Reason::Refused),
        Class::Throttled | Class::Cancelled | Class::Unknown => false,
        _ => true,
    };
    is_ones_own.then_some(last)
}

fn has_retry(turn: &Turn) -> bool {
    attempts_of(turn).any(|attempt| attempt.kind == AttemptKind::Retry)
}

fn attempts_of(turn: &Turn) -> impl Iterator<Item = &Attempt> {
    turn.requests.iter().filter(|r| r.source == Source::Foreground).flat_map(|r| &r.attempts)
}

/// Returns the policy that was in force, if one is known.
fn policy_of(run: &Run) -> Option<&'static Policy> {
    policy::find(&run.key.agent, run.facts.policy_version.as_deref().or(run.facts.agent_version.as_deref()))
}

/// Returns how the last attempt to make the conversation of a turn smaller failed, if none had success.
pub(super) fn failed_compaction(turn: &Turn) -> Option<&Failure> {
    let compacts = |r: &&LogicalRequest| {
        r.source == Source::Background && r.purpose.as_deref().is_some_and(|p| p.starts_with("compact"))
    };
    let last = turn.requests.iter().rfind(compacts).filter(|r| !r.outcome.is_ok())?;
    last.attempts.last()?.failure.as_ref().filter(|f| !f.is_empty())
}

fn what_the_failure_asks_for(
    failure: &Failure,
    provider: Option<&str>,
    run: &Run,
    turn: &Turn,
) -> Option<String> {
    let table = provider.or(run.facts.provider.as_deref()).and_then(taxonomy::provider);
    let billing =
        table.and_then(|t| t.billing_url.as_deref()).map(|url| format!(": {url}")).unwrap_or_default();
    let status =
        table.and_then(|t| t.status_url.as_deref()).map(|url| format!(" ({url})")).unwrap_or_default();
    Some(match failure.class {
        Class::Exhausted if failure.reset_at.is_some() || failure.reset_clock.is_some() => format!(
            "wait for the reset, or raise the limit of the account{billing}; starting again before that fails the same way"
        ),
        Class::Exhausted if failure.retry_after_ms.is_some() => format!(
            "start again after the wait the provider asked for ({}); if it fails the same way, raise the limit of the account{billing}",
            words::span(failure.retry_after_ms.unwrap_or_default())
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
            _ if failure.message.is_none() => {
                "change the request: sending the same again fails again; what to change is in the provider's message, which these logs do not hold".to_owned()
            }
            _ => "change what the message names; sending the same request again fails again".to_owned(),
        },
        Class::TooLarge => {
            if let Some(failed) = failed_compaction(turn) {
                return Some(format!(
                    "start a new session, or make the conversation smaller once that can be asked for: it failed with {}",
                    describe(failed)
                ));
            }
            "make the conversation smaller (compact, or start a new session) before asking again".to_owned()
        }
        Class::Content => match failure.reason {
            Reason::OutputBlocked => "ask in other words: the filter stopped the answer".to_owned(),
            Reason::Refusal => "ask in other words: the model refused to answer".to_owned(),
            _ => "change the input that the filter refused".to_owned(),
        },
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
        // It may be the way to the provider as well as the provider.
        Class::Transient if failure.reason == Reason::Connect => {
            format!(
                "check the network, the proxy and the base URL; if they are right, start the run again once the provider is healthy{status}"
            )
        }
        Class::Transient if failure.is_no_answer_of_a_model() => {
            format!(
                "look for a proxy or gateway that answers instead of the provider; if there is none, start the run again once the provider is healthy{status}"
            )
        }
        Class::Transient => {
            format!("start the run again once the provider is healthy{status}: nothing in it was wrong")
        }
        Class::Unknown if failure.is_output_limit() => {
            let setting = match run.key.agent.as_ref() {
                "claude-code" => " (CLAUDE_CODE_MAX_OUTPUT_TOKENS)",
                _ => "",
            };
            format!("ask for less in one answer, or raise the output limit of the agent{setting}")
        }
        Class::Cancelled | Class::Unknown => return None,
    })
}

/// What happened in a turn, in the words that the policy data uses for what a setting helps with.
fn situations(turn: &Turn) -> Vec<&'static str> {
    let mut out = Vec::new();
    let attempts = || attempts_of(turn);
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
    // A time limit of requests is none for opening a socket.
    let is_request = |a: &&Attempt| a.candidate.transport.as_deref() != Some("websocket");
    // A server that reports a time limit means its own.
    let late =
        |a: &Attempt| a.failure.as_ref().is_some_and(|f| f.reason == Reason::Timeout && f.status.is_none());
    if attempts().filter(is_request).any(late) {
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
                let is_unreached = |f: &Failure| {
                    f.status.is_none()
                        && matches!(f.reason, Reason::Connect | Reason::Dns | Reason::Refused | Reason::Reset)
                };
                // Another model at an endpoint that cannot be reached is no way out.
                let elsewhere = cause.is_some_and(is_unreached);
                out.extend([if elsewhere { "fallback_elsewhere" } else { "fallback" }, "outlast"]);
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
    (upstream.max.unwrap_or(upstream.min) > visible).then(|| {
        format!(
            "without the hidden layer this turn would have sent {} instead of {}",
            words::counted(Bound::exact(visible), "request", "requests"),
            words::bound(upstream)
        )
    })
}

/// Returns how to see every request of the next run, where this one could not be seen whole.
fn see_more(run: &Run, turn: &Turn, policy: &Policy) -> Option<String> {
    let failed_or_hidden = turn.outcome != RunOutcome::Succeeded
        || turn.requests.iter().flat_map(|r| &r.attempts).any(|a| a.outcome == Some(AttemptOutcome::Failed))
        || !turn.counts.upstream_requests.is_visible();
    if turn.counts.upstream_requests.bound.is_exact() || !failed_or_hidden {
        return None;
    }
    let view = better_view(run, policy)?;
    let enable = view.enable.as_deref()?.trim();
    let first = enable.lines().next().unwrap_or_default();
    let more = if enable.lines().count() > 1 { " ... (retryscope sources prints it whole)" } else { "" };
    Some(format!("to see every request of the next run: {first}{more}"))
}

/// Returns a log that would show every request and has to be asked for. Where one of these was read and did not do, another
/// one, if there is any.
pub(crate) fn better_view<'p>(run: &Run, policy: &'p Policy) -> Option<&'p View> {
    let mut full = policy.views.iter().filter(|view| view.attempts == Attempts::All && view.enable.is_some());
    let was_read = |view: &View| run.views.iter().any(|read| read.0 == view.id);
    if full.clone().any(was_read) { full.rfind(|view| !was_read(view)) } else { full.next() }
}

/// Back-quotes are for documents, not for a terminal.
fn plain(text: &str) -> String {
    text.replace('`', "")
}
