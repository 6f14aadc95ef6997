//! The first sentences: who failed, how often, with what, how long it waited, why that ended the run.

use chrono::{DateTime, Utc};
use retryscope_events::{AttemptKind, AttemptOutcome, DelaySource};

use retryscope_taxonomy::{Class, Reason};

use crate::cause::ended_by;
use crate::count::Bound;
use crate::judge::Failure;
use crate::run::{Attempt, LogicalRequest, RequestOutcome, Run, RunOutcome, Turn};
use crate::words;

use super::phrases::{
    answers, asks_alike, by_candidate, clock, describe, first_line, fold, given_up_for, limit_word, name,
    repeated, retries_after, short_id, span_of, told_apart, visible_bound, waited_between,
};
use super::remedy::failed_compaction;

/// Candidates up to this number are told one by one.
const TOLD_ONE_BY_ONE: usize = 3;

pub(super) fn summary(run: &Run, turn: &Turn, children: &[&Run], now: DateTime<Utc>) -> String {
    let story = Story { run, turn, now, agent: words::agent(&run.key.agent) };
    let mut text = match turn.outcome {
        RunOutcome::Failed => story.failed(),
        RunOutcome::Succeeded => story.succeeded(),
        RunOutcome::Cancelled => story.stopped("Cancelled"),
        RunOutcome::Interrupted => story.stopped("The log stops without an end: the process is gone."),
        RunOutcome::Running => story.stopped("Still running."),
        RunOutcome::Unknown => story.stopped("The log does not say how this ended."),
    };
    let others = super::retries_of_others(run, turn);
    if super::is_good(turn) && turn.counts.retries.bound.min == 0 && others.min > 0 {
        let retries = words::counted(others, "retry", "retries");
        text.push_str(&format!(" Other turns of the run had {retries}."));
    }
    let is_answered = |other: &Turn| other.number > turn.number && super::is_good(other);
    if turn.outcome == RunOutcome::Failed && run.turns.iter().any(is_answered) {
        text.push_str(" A later turn of the run succeeded.");
    }
    let dead: Vec<&&Run> = children.iter().filter(|child| child.failed_turns() > 0).collect();
    if super::is_good(turn) && !dead.is_empty() {
        // The id of a subagent may begin with the run's own.
        let name = |child: &&&Run| {
            let own = child.key.id.strip_prefix(&*run.key.id).and_then(|rest| rest.strip_prefix(':'));
            short_id(own.unwrap_or(&child.key.id))
        };
        let names: Vec<String> = dead.iter().take(3).map(name).collect();
        let cause = dead.iter().find_map(|child| child.last_failed_turn()?.cause.as_ref());
        let why = cause.map(|c| format!(" ({})", describe(&c.failure))).unwrap_or_default();
        text.push_str(&format!(
            " But {} it started failed{why}: {}. The work given to {} is lost although the run says success.",
            if dead.len() == 1 { "a subagent".to_owned() } else { format!("{} subagents", dead.len()) },
            words::list(&names),
            if dead.len() == 1 { "it" } else { "them" },
        ));
    }
    text
}

struct Story<'a> {
    run: &'a Run,
    turn: &'a Turn,
    now: DateTime<Utc>,
    agent: String,
}

impl Story<'_> {
    fn foreground(&self) -> impl DoubleEndedIterator<Item = &LogicalRequest> {
        self.turn.foreground()
    }

    fn failed(&self) -> String {
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

    /// "3 failed attempts: 503 unavailable (2 times) and 429 rate limit"; `None` if none is known.
    fn failed_on_the_way(&self) -> Option<String> {
        let failed = self.turn.counts.failed_attempts.bound;
        if failed.min == 0 {
            return None;
        }
        let known = self.foreground().flat_map(|r| &r.attempts).filter_map(|a| a.failure.as_ref());
        let known: Vec<String> = known.map(describe).collect();
        let with = match known.as_slice() {
            [] => String::new(),
            all if all.len() as u64 == failed.min => format!(": {}", words::list(&fold(all))),
            some => format!(", among them {}", words::list(&fold(some))),
        };
        Some(format!("{}{with}", words::counted(failed, "failed attempt", "failed attempts")))
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
    fn what_it_means(&self, failure: &Failure, request: &LogicalRequest) -> Option<String> {
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

    fn succeeded(&self) -> String {
        let recovered: Vec<&LogicalRequest> = self
            .foreground()
            .filter(|r| matches!(r.outcome, RequestOutcome::OkAfterRetry | RequestOutcome::OkAfterFallback))
            .collect();
        let lost: Vec<&LogicalRequest> = self.foreground().filter(|r| r.outcome.is_failed()).collect();
        let mut text = match recovered.as_slice() {
            [] if self.turn.counts.retries.bound.min > 0 && lost.is_empty() => self.succeeded_after_retries(),
            [] if !self.turn.counts.upstream_requests.is_visible() => {
                "It succeeded; whether requests were sent more than once is not visible in this log."
                    .to_owned()
            }
            [] if lost.is_empty() && !self.turn.counts.upstream_requests.bound.is_exact() => {
                let failed = self.foreground().flat_map(|r| &r.attempts).filter_map(|a| a.failure.as_ref());
                let failed: Vec<String> = failed.map(describe).collect();
                if failed.is_empty() {
                    "It succeeded; no repeat is recorded, but this log cannot show all of them.".to_owned()
                } else {
                    let after = words::list(&fold(&failed));
                    format!("It succeeded, after {after}; how often that was sent again is not certain.")
                }
            }
            [] if lost.is_empty() && self.has_hedge() => {
                "It succeeded; no retry was needed, and what was sent beside an attempt was a hedge."
                    .to_owned()
            }
            [] if lost.is_empty() && self.turn.background_counts.retries.bound.min > 0 => {
                "It succeeded; only side calls were sent more than once.".to_owned()
            }
            [] if lost.is_empty() => "It succeeded; nothing was sent twice.".to_owned(),
            [] => "It succeeded.".to_owned(),
            [one] => told_recovered(one),
            several => {
                let retries = several.iter().map(|r| r.retries.bound).fold(Bound::ZERO, Bound::plus);
                let least =
                    if self.foreground().all(LogicalRequest::has_each_loss) { "" } else { "at least " };
                let lost = self.turn.time.lost_ms.filter(|ms| *ms > 0 || least.is_empty());
                let lost = lost.map(|ms| format!(" ({least}{} lost)", words::span(ms))).unwrap_or_default();
                format!(
                    "It succeeded; {} of its requests needed {} in all{lost}, no work lost.",
                    several.len(),
                    words::counted(retries, "retry", "retries"),
                )
            }
        };
        let too_large = lost.iter().any(|r| {
            r.attempts.iter().filter_map(|a| a.failure.as_ref()).any(|f| f.class == Class::TooLarge)
        });
        if too_large {
            text.push_str(" One request was too large; the conversation was made smaller and asked again.");
        } else if !lost.is_empty() {
            text.push_str(&format!(
                " {} got no answer on the way{}.",
                words::counted(Bound::exact(lost.len() as u64), "request", "requests"),
                lost.iter()
                    .find_map(|r| r.attempts.iter().rev().find_map(|a| a.failure.as_ref()))
                    .map(|f| format!(" ({})", describe(f)))
                    .unwrap_or_default(),
            ));
        }
        text
    }

    /// Retries are known, but not which of them was answered.
    fn succeeded_after_retries(&self) -> String {
        let failures = self.foreground().flat_map(|r| &r.attempts).filter_map(|a| a.failure.as_ref());
        let failures: Vec<String> = failures.map(describe).collect();
        let after = match failures.as_slice() {
            [] => String::new(),
            all => format!(", after {}", words::list(&fold(all))),
        };
        let retries = self.turn.counts.retries.bound;
        format!("It succeeded with {}{after}; no work lost.", words::counted(retries, "retry", "retries"))
    }

    fn has_hedge(&self) -> bool {
        self.foreground().flat_map(|r| &r.attempts).any(|a| a.kind == AttemptKind::Hedge)
    }

    fn stopped(&self, beginning: &str) -> String {
        let open = self.foreground().rev().find(|r| !r.outcome.is_ok());
        let mut text = beginning.trim_end_matches('.').to_owned();
        let last = open.and_then(|r| {
            r.attempts.iter().rev().find(|a| a.outcome == Some(AttemptOutcome::Failed)).map(|a| (r, a))
        });
        match last {
            Some((request, attempt)) => {
                let failed =
                    request.attempts.iter().filter(|a| a.outcome == Some(AttemptOutcome::Failed)).count();
                let why = attempt.failure.as_ref().map_or_else(|| "no reason logged".to_owned(), describe);
                text.push_str(&format!(
                    ". By then {} of {} had failed, last with {why}",
                    words::counted(Bound::exact(failed as u64), "attempt", "attempts"),
                    self.step_of(request),
                ));
                let is_last = request.attempts.last().is_some_and(|last| std::ptr::eq(last, attempt));
                if !is_last {
                    text.push_str("; the next was sent");
                } else if let Some(delay) = attempt.delay_ms {
                    let asked = match attempt.delay_source {
                        Some(DelaySource::Server) => ", as the provider had asked",
                        _ => "",
                    };
                    text.push_str(&format!("; the next was planned {} later{asked}", words::span(delay)));
                }
                text.push('.');
                if let Some(failure) = attempt
                    .failure
                    .as_ref()
                    .filter(|f| matches!(f.class, Class::Auth | Class::Exhausted | Class::InvalidRequest))
                    && let Some(meaning) = self.what_it_means(failure, request)
                {
                    text.push(' ');
                    text.push_str(&meaning);
                }
            }
            None if self.turn.requests.is_empty() => text.push_str(". No model request is recorded."),
            None if open.is_some() => text.push_str(". A request was in flight; no failure is recorded."),
            None => match self.failed_on_the_way() {
                Some(failures) => {
                    text.push_str(&format!(". Each request recorded was answered, after {failures}."));
                }
                None if self.turn.counts.failed_attempts.bound.max == Some(0) => {
                    text.push_str(". No request had failed.");
                }
                None => text.push_str(". No failure is recorded."),
            },
        }
        text
    }

    fn step_of(&self, request: &LogicalRequest) -> String {
        let number = request.step.or_else(|| {
            self.foreground().position(|r| std::ptr::eq(r, request)).map(|index| index as u64 + 1)
        });
        let steps = self.foreground().count();
        match number {
            Some(n) if steps > 1 || request.step.is_some() => format!("model step {n}"),
            _ => "the prompt".to_owned(),
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

/// "Recovered on attempt 3 after 2.1 s, after 503 unavailable (2 times); no work lost."
fn told_recovered(request: &LogicalRequest) -> String {
    let failed: Vec<&Attempt> =
        request.attempts.iter().filter(|a| a.outcome == Some(AttemptOutcome::Failed)).collect();
    let answers = failed.iter().filter_map(|a| a.failure.as_ref()).map(describe).collect::<Vec<_>>();
    let is_answered = |a: &Attempt| a.outcome == Some(AttemptOutcome::Ok);
    let before = request.attempts.split_last().map_or(&[][..], |(_, before)| before);
    let after = match answers.as_slice() {
        [] if !before.is_empty() && before.iter().all(is_answered) => {
            "after an answer that the agent did not take".to_owned()
        }
        [] => "the failures before it are not described in this log".to_owned(),
        all => format!("after {}", words::list(&fold(all))),
    };
    let took = span_of(request).map(|ms| format!(" after {}", words::span(ms))).unwrap_or_default();
    let silent = failed.iter().filter(|a| a.failure.is_none() && a.sends.max != Some(0)).count();
    let silent = match silent {
        0 => String::new(),
        1 => " One of the repeats is in no error record of this agent.".to_owned(),
        n => format!(" {n} of the repeats are in no error record of this agent."),
    };
    if request.outcome == RequestOutcome::OkAfterFallback {
        let (Some(first), Some(last)) = (request.attempts.first(), request.attempts.last()) else {
            return "Recovered with another candidate; no work lost.".to_owned();
        };
        let (to, from) = told_apart(&last.candidate, &first.candidate);
        return format!("Recovered: {to} answered{took} instead of {from}, {after}; no work lost.{silent}");
    }
    let attempt = request.upstream.bound;
    let on = if attempt.is_exact() {
        format!("on attempt {}", attempt.min)
    } else {
        format!("with {} attempts", words::bound(attempt))
    };
    format!("Recovered {on}{took}, {after}; no work lost.{silent}")
}
