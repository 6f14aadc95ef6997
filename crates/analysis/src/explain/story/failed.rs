//! What is told of a turn that failed: what the provider answered, what the agent did about it, what that means.

use retryscope_taxonomy::{Class, Reason};

use super::Story;
use crate::cause::ended_by;
use crate::count::Bound;
use crate::explain::phrases::{
    answers, asks_alike, by_candidate, clock, describe, first_line, given_up_for, limit_word, name, repeated,
    retries_after, span_of, told_apart, visible_bound, waited_between,
};
use crate::explain::remedy::failed_compaction;
use crate::judge::Failure;
use crate::run::{Attempt, LogicalRequest};
use crate::words;

/// Candidates up to this number are told one by one.
const TOLD_ONE_BY_ONE: usize = 3;

impl Story<'_> {
    pub(super) fn failed(&self) -> String {
        let place = match &self.turn.cause {
            Some(cause) => cause.request,
            None => ended_by(&self.turn.requests),
        };
        let Some(request) = place.and_then(|place| self.turn.requests.get(place)) else {
            return self.failed_without_attempt();
        };
        let mut text = self.what_failed(request);
        text.push(' ');
        text.push_str(&self.why_it_ended(request));
        if let Some(cause) = &self.turn.cause
            && let Some(advice) = self.what_it_means(&cause.failure, request)
        {
            text.push(' ');
            text.push_str(&advice);
        }
        text
    }

    fn failed_without_attempt(&self) -> String {
        let said = self.turn.error.as_deref().or(self.turn.terminal_reason.as_deref());
        let said = said.map(|text| format!(": {}", first_line(text))).unwrap_or_default();
        let agent = words::capital(&self.agent);
        let (answered, asked) =
            (self.foreground().filter(|r| r.outcome.is_ok()).count(), self.foreground().count());
        if answered == 0 {
            let failed = &self.turn.counts.failed_attempts;
            return match failed.bound.max {
                Some(0) => {
                    format!("{agent} ended this turn with an error before a model request failed{said}.")
                }
                _ => format!(
                    "{agent} ended this turn with an error{said}. Whether a model request failed is not in this log."
                ),
            };
        }
        let logical = self.turn.counts.logical_requests.bound;
        let of_them = match (answered, asked) {
            (1, 1) if logical == Bound::exact(1) => "the one it made was".to_owned(),
            (1, 1) => "the one recorded was".to_owned(),
            (answered, asked) if answered == asked => format!("all {answered} were"),
            (answered, asked) => format!("{answered} of {asked} were"),
        };
        // An error that a provider may give is not one that the agent made.
        let class = self.turn.cause.as_ref().map_or(Class::Unknown, |cause| cause.failure.class);
        let how = if class == Class::Unknown { "itself" } else { "with an error" };
        match (self.failed_on_the_way(), self.turn.counts.failed_attempts.bound.max) {
            (Some(failures), _) => format!(
                "{agent} ended this turn {how}{said}. Of its model requests, {of_them} answered, after {failures}."
            ),
            (None, Some(0)) => {
                format!("{agent} ended this turn {how}{said}. No model request failed: {of_them} answered.")
            }
            (None, _) => format!(
                "{agent} ended this turn {how}{said}. No failure of a model request is recorded: {of_them} answered."
            ),
        }
    }

    /// "anthropic answered 503 (unavailable) to all 4 requests of step 1; rivumi then asked ..."
    fn what_failed(&self, request: &LogicalRequest) -> String {
        let step = self.step_of(request);
        let groups = by_candidate(&request.attempts);
        let several = groups.len() > 1;
        let mut parts = Vec::new();
        let last = groups.len().saturating_sub(1);
        let mut has_sent = false;
        let is_long = groups.len() > TOLD_ONE_BY_ONE;
        for (index, (candidate, attempts)) in groups.iter().enumerate() {
            if is_long && (1..last).contains(&index) {
                continue;
            }
            let who = match index.checked_sub(1).and_then(|before| groups.get(before)) {
                Some((before, _)) => told_apart(candidate, before).0,
                None => name(candidate, several),
            };
            let sent: Vec<&Attempt> = attempts.iter().copied().filter(|a| a.sends.max != Some(0)).collect();
            let sends = attempts.iter().map(|a| a.sends).fold(Bound::ZERO, Bound::plus);
            let sends = if several { sends } else { visible_bound(request, sends) };
            let before = if has_sent { index } else { 0 };
            has_sent |= !sent.is_empty();
            let requests = match (sends.max, before) {
                (Some(1), 0) => format!("the only request of {step}"),
                (Some(2), 0) if sends.is_exact() => format!("both requests of {step}"),
                (Some(_), 0) if sends.is_exact() => format!("all {} requests of {step}", sends.min),
                (None, 0) if !request.upstream.is_visible() => step.clone(),
                (_, 0) => format!("{} of {step}", words::counted(sends, "request", "requests")),
                (Some(1), _) => "one more".to_owned(),
                _ => format!("{} more", words::bound(sends)),
            };
            let what = match sent.as_slice() {
                [] => could_not_be_asked(attempts),
                sent => self.answers(sent, if several { 0 } else { request.unrecorded() }, &requests),
            };
            parts.push(match index {
                0 if candidate.provider.is_none() => format!("{} {what}", words::capital(&who)),
                0 => format!("{who} {what}"),
                _ if is_long => {
                    format!("{} then asked {last} others, the last of them {who}, which {what}", self.agent)
                }
                _ => format!("{} then asked {who}, which {what}", self.agent),
            });
        }
        format!("{}.", parts.join("; "))
    }

    fn answers(&self, attempts: &[&Attempt], undescribed: u64, requests: &str) -> String {
        let says_nothing = |failure: &Failure| failure.status.is_none() && failure.reason == Reason::NoDetail;
        let is_untold = attempts.iter().all(|a| a.failure.as_ref().is_none_or(says_nothing));
        if is_untold && self.turn.error.is_some() {
            return format!("failed {requests}; the message below is how the turn ended");
        }
        answers(attempts, undescribed, requests)
    }

    fn why_it_ended(&self, request: &LogicalRequest) -> String {
        let agent = words::capital(&self.agent);
        let retries = request.retries.bound;
        let is_timed = |last: &Attempt| last.ended_at.or(last.started_at).is_some();
        let is_whole = request.unrecorded() == 0 && request.attempts.last().is_none_or(is_timed);
        let least = if is_whole { "" } else { "at least " };
        let in_vain = self.waited_in_vain(request);
        let waited = waited_between(request) + in_vain;
        let took = span_of(request).map(|ms| ms + in_vain);
        let after = took.map(|ms| format!(" after {least}{}", words::span(ms))).unwrap_or_default();
        let deadline = self
            .turn
            .terminal_reason
            .as_deref()
            .is_some_and(|r| r.contains("wall_time") || r.contains("deadline"));
        if deadline {
            let time = self.turn.time;
            let after = time.wall_ms.map(|ms| format!(" after {}", words::span(ms))).unwrap_or_default();
            let waited = time.waiting_ms.map(|ms| format!(", {} of that spent waiting", words::span(ms)));
            return format!("The run's own time limit ended it{after}{}.", waited.unwrap_or_default());
        }
        if !request.upstream.is_visible() || retries == Bound::at_least(0) {
            return format!(
                "{agent} gave up{after}; no answer was produced. How often it was sent is not visible in this log."
            );
        }
        if request.upstream.bound.max == Some(0) {
            return format!("{agent} gave up before anything was sent; no answer was produced.");
        }
        if retries.max == Some(0) && request.fallbacks == 0 {
            return format!(
                "{agent} did not send it again{}; no answer was produced.",
                given_up_for(request)
            );
        }
        let mut did = Vec::new();
        if retries.min > 0 || retries.max.is_none_or(|max| max > 0) {
            did.push(format!("sent it again {}", repeated(retries)));
        }
        if request.fallbacks > 0 {
            did.push(match request.fallbacks {
                1 => "moved to another candidate once".to_owned(),
                n => format!("moved to another candidate {n} times"),
            });
        }
        let waits = match waited {
            0 => String::new(),
            ms if request.has_each_wait() => format!(" ({} of waiting)", words::span(ms)),
            ms => format!(" (at least {} of waiting)", words::span(ms)),
        };
        let why = given_up_for(request);
        format!("{agent} {}{waits} and gave up{after}{why}; no answer was produced.", did.join(", "))
    }

    /// The part of a planned wait that passed after the last attempt, before the turn ended without another one.
    fn waited_in_vain(&self, request: &LogicalRequest) -> u64 {
        let Some(last) = request.attempts.last().filter(|last| last.waited_ms.is_none()) else { return 0 };
        let until = self.turn.ended_at.zip(last.ended_at).map(|(end, from)| (end - from).num_milliseconds());
        let until = until.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0);
        last.delay_ms.map_or(0, |delay| delay.min(until))
    }

    /// What kind of failure it was, where that changes what a person should do.
    pub(super) fn what_it_means(&self, failure: &Failure, request: &LogicalRequest) -> Option<String> {
        let repeats = request.retries.bound.min;
        let after = retries_after(request, failure);
        let which = if after == repeats { "" } else { " after it" };
        let wasted = match after {
            0 => String::new(),
            1 => format!("; the retry{which} was wasted"),
            n => format!("; the {n} retries{which} were wasted"),
        };
        let asked = failure.retry_after_ms.map(words::span);
        Some(match failure.class.as_str() {
            "exhausted" if failure.reset_at.is_none() && asked.is_some() => format!(
                "The account has used up its {}; the provider asked to wait {}.",
                limit_word(failure.reason.as_str()),
                asked.unwrap_or_default(),
            ),
            "exhausted" => {
                let reset = self.reset(failure);
                format!("The account has used up its {}{reset}: waiting a moment cannot help{wasted}.", limit_word(failure.reason.as_str()))
            }
            "auth" => {
                let refused = match failure.reason {
                    Reason::ModelAccess | Reason::Permission => "The access was refused",
                    Reason::WafBlock => "A firewall in between refused it",
                    Reason::Region => "The region was refused",
                    _ => "The login or key was refused",
                };
                format!("{refused}, so no retry can help{wasted}.")
            }
            "invalid_request" => format!("The request itself was refused, so sending it again cannot help{wasted}."),
            "too_large" => match failed_compaction(self.turn) {
                Some(failed) => format!(
                    "The request was too large, and making it smaller failed as well ({}){wasted}.",
                    describe(failed)
                ),
                None => format!("The request was too large; it can pass only after it was made smaller{wasted}."),
            },
            "content" => match failure.reason {
                Reason::OutputBlocked => format!("A content filter stopped the answer, and may again for the same input{wasted}."),
                Reason::Refusal => format!("The model refused to answer, and may again for the same input{wasted}."),
                _ => format!("A content filter refused it, and will again for the same input{wasted}."),
            },
            "throttled" => match asked {
                Some(asked) if !failure.retryable || repeats == 0 => {
                    format!("It is a rate limit; the provider asked to wait {asked}.")
                }
                Some(asked) if asks_alike(request, failure) => {
                    format!("It is a rate limit; the provider asked to wait {asked} each time.")
                }
                Some(asked) => format!("It is a rate limit; the provider last asked to wait {asked}."),
                // That none is shown means something only where one would be.
                None if repeats == 0
                    && request.upstream.is_visible()
                    && self.run.key.agent.as_ref() == "claude-code" =>
                {
                    "It is a rate limit; without a retry it means a wait over 60 s was asked for, or a subscription limit: this log does not show which.".to_owned()
                }
                None => return None,
            },
            "transient" if request.retries.bound.max == Some(0) && request.fallbacks == 0 => match asked {
                Some(asked) => format!("This kind of error passes by itself; the provider asked to wait {asked}."),
                // Why no second try was made has been said.
                None if !given_up_for(request).is_empty() => return None,
                None => "This kind of error often passes by itself, and no second try was made.".to_owned(),
            },
            _ => return None,
        })
    }

    fn reset(&self, failure: &Failure) -> String {
        match failure.reset_at {
            Some(at) if at > self.now => {
                let left = u64::try_from((at - self.now).num_milliseconds()).unwrap_or(0);
                format!(" until {} (in {})", clock(at), words::span(left))
            }
            Some(at) => format!(" (it was to reset at {})", clock(at)),
            None => failure
                .reset_clock
                .map(|clock| {
                    let clock = clock.format("%Y-%m-%d %H:%M");
                    format!(" (its reset is stated for {clock}, without a time zone)")
                })
                .unwrap_or_default(),
        }
    }
}

/// Of a candidate that no request went to.
fn could_not_be_asked(attempts: &[&Attempt]) -> String {
    let why = attempts.iter().rev().find_map(|a| a.failure.as_ref());
    format!(
        "could not be asked{}",
        why.map(|failure| format!(" ({})", describe(failure))).unwrap_or_default()
    )
}
