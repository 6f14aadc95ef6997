//! The first sentences: who failed, how often, with what, how long it waited, why that ended the run.

mod failed;
mod succeeded;

use chrono::{DateTime, Utc};
use retryscope_events::{AttemptOutcome, DelaySource};
use retryscope_taxonomy::Class;

use super::phrases::{describe, fold, short_id};
use crate::count::Bound;
use crate::run::{LogicalRequest, Run, RunOutcome, Turn};
use crate::words;

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
