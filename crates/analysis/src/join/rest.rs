//! What the logs of a turn together say of requests that one of them shows: how it ended, who was asked, how often.

use std::sync::Arc;

use retryscope_events::{AttemptKind, AttemptOutcome, Source};

use crate::cause::ended_by;
use crate::count::{Bound, Count, Counts, Evidence};
use crate::run::{Attempt, LogicalRequest};
use crate::view::{RequestEnd, RequestView};

use super::shown::may_be_one;
use super::{Joined, Part};

/// Tells of each request what the counts of the turn leave for it, beside what the others had: where each is shown, and what
/// the others sent is known, one log's sum is the word on the one that another log cut.
pub(super) fn narrow(requests: &mut [LogicalRequest], counts: &Counts) {
    let own: Vec<usize> =
        (0..requests.len()).filter(|at| requests[*at].source == Source::Foreground).collect();
    if own.len() < 2 || counts.logical_requests.bound != Bound::exact(own.len() as u64) {
        return;
    }
    let upstream = Rest::of(&counts.upstream_requests, &own, requests, |r| &r.upstream);
    let retries = Rest::of(&counts.retries, &own, requests, |r| &r.retries);
    for at in own {
        let request = &mut requests[at];
        for (count, rest) in [(&mut request.upstream, &upstream), (&mut request.retries, &retries)] {
            if let Some(least) = rest.as_ref().and_then(|rest| rest.beside(count)) {
                count.bound.min = least;
            }
        }
    }
}

/// What a turn's count leaves for one of its requests.
struct Rest {
    /// What all of them had at least.
    least: u64,
    /// Upper ends of those that have one, together, and how many have none.
    most: u64,
    unbounded: usize,
}

impl Rest {
    fn of(
        all: &Count,
        own: &[usize],
        requests: &[LogicalRequest],
        of: fn(&LogicalRequest) -> &Count,
    ) -> Option<Self> {
        let counts = || own.iter().map(|at| of(&requests[*at]));
        // What one log does not show bounds nothing.
        let is_told = all.is_visible() && counts().all(Count::is_visible);
        is_told.then(|| Self {
            least: all.bound.min,
            most: counts().filter_map(|count| count.bound.max).fold(0, u64::saturating_add),
            unbounded: counts().filter(|count| count.bound.max.is_none()).count(),
        })
    }

    /// Returns what this one of the requests had at least, where that says more than its own count.
    fn beside(&self, own: &Count) -> Option<u64> {
        let others = self.most - own.bound.max.unwrap_or(0).min(self.most);
        let others_are_bounded = self.unbounded == usize::from(own.bound.max.is_none());
        let least = self.least.saturating_sub(others);
        (others_are_bounded && least > own.bound.min && own.bound.max.is_none_or(|max| max >= least))
            .then_some(least)
    }
}

/// Puts the error that ended a failed turn at the end of its last request, where the log that shows its attempts does not
/// hold it: a writer that does not flush loses the last records, and another log has the agent's last word. What was sent
/// counts then, too.
pub(super) fn end_as_told(requests: &mut [LogicalRequest], counts: &mut Counts, group: &Joined<'_>) {
    let Some(place) = ended_by(requests) else { return };
    let is_last = requests.iter().skip(place + 1).all(|r| r.source != Source::Foreground);
    let Some(shown) = requests[place].attempts.last().filter(|last| last.failure.is_some() && is_last) else {
        return;
    };
    let source = shown.origin.source;
    let lost = |part: &Part<'_>| part.view.tail_may_be_lost;
    let told = group.iter().filter(|(part, _)| !lost(part)).find_map(|(_, turn)| {
        let given_up = |r: &&RequestView| r.end == Some(RequestEnd::GivenUp);
        let last = turn.requests.iter().rfind(|r| r.source == Source::Foreground).filter(given_up)?;
        last.attempts.last().filter(|a| a.failure.as_ref().is_some_and(|f| !f.is_empty()))
    });
    let Some(told) = told.filter(|told| told.origin.source != source) else { return };
    let (Some(own), Some(theirs)) = (shown.failure.clone(), &told.failure) else { return };
    let attempts = &mut requests[place].attempts;
    if may_be_one(&own, theirs) {
        // The text of the last error is the agent's last word, whichever of the equal attempts it was.
        if let (None, Some(last)) = (&own.message, attempts.last_mut().and_then(|last| last.failure.as_mut()))
        {
            last.message.clone_from(&theirs.message);
        }
    } else if group.iter().any(|(part, _)| lost(part) && part.sources.contains(&source)) {
        // A candidate changes with a fallback only.
        let candidate = attempts.last().filter(|_| told.kind != AttemptKind::Fallback);
        let candidate = candidate.map_or_else(|| told.candidate.clone(), |before| before.candidate.clone());
        let kind = if told.kind == AttemptKind::Original { AttemptKind::Retry } else { told.kind };
        attempts.push(Attempt { candidate, kind, ..told.clone() });
        count_shown(requests, place, counts);
    }
}

/// Raises the lower ends of a request's counts, and of those of its turn, to what its attempts show.
fn count_shown(requests: &mut [LogicalRequest], place: usize, counts: &mut Counts) {
    let raise = |count: &mut Count, least: u64| {
        if count.bound.min < least && count.bound.max.is_none_or(|max| max >= least) {
            count.bound.min = least;
            count.evidence = count.evidence.max(Evidence::Derived);
        }
    };
    let sent = |attempts: &[Attempt], counts: fn(&Attempt) -> bool| -> u64 {
        attempts.iter().filter(|a| counts(a)).map(|a| a.sends.min).sum()
    };
    let request = &mut requests[place];
    raise(&mut request.upstream, sent(&request.attempts, |_| true));
    raise(&mut request.retries, sent(&request.attempts, |a| a.kind == AttemptKind::Retry));
    let own = || requests.iter().filter(|r| r.source == Source::Foreground);
    raise(&mut counts.upstream_requests, own().map(|r| r.upstream.bound.min).sum());
    raise(&mut counts.retries, own().map(|r| r.retries.bound.min).sum());
    let failed = |a: &Attempt| a.outcome == Some(AttemptOutcome::Failed);
    raise(&mut counts.failed_attempts, own().map(|r| sent(&r.attempts, failed)).sum());
}

/// Gives the attempts of a request the provider and the model that the log names with some of them: what is sent again goes
/// to the same ones, unless the log says otherwise.
pub(super) fn name_alike(attempts: &mut [Attempt]) {
    let moved = |a: &Attempt| a.kind == AttemptKind::Fallback && a.candidate.transport.is_none();
    let names = |a: &Attempt| (a.candidate.provider.clone(), a.candidate.model.clone());
    let named = |a: &&Attempt| a.candidate.provider.is_some() && a.candidate.model.is_some();
    let Some((provider, model)) = attempts.iter().find(named).map(names) else { return };
    let differs = |own: &Option<String>, all: &Option<String>| own.is_some() && own != all;
    let is_other = |a: &Attempt| {
        moved(a) || differs(&a.candidate.provider, &provider) || differs(&a.candidate.model, &model)
    };
    if attempts.iter().any(is_other) {
        return;
    }
    for attempt in attempts.iter_mut().filter(|a| !named(&&**a)) {
        let own = Arc::make_mut(&mut attempt.candidate);
        own.provider.clone_from(&provider);
        own.model.clone_from(&model);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use chrono::{DateTime, Utc};
    use retryscope_events::{Candidate, Event, ModelAttempt, ModelFailed, ModelRequest, Sent};
    use retryscope_record::{Item, Origin, Place, SourceId, View};

    use super::*;
    use crate::engine::{AsOf, Engine};

    #[test]
    fn what_the_others_did_not_send_was_sent_for_this_one() {
        let mut engine = Engine::new();
        let origin = Origin { source: SourceId(0), place: Place::Whole };
        for id in ["a", "b"] {
            let asked = Event::new("r", DateTime::UNIX_EPOCH, ModelRequest::new().request_id(id)).agent("x");
            engine.apply(View::EVENTS, origin, Item::Event(&asked, None));
            let failed = Event::new("r", DateTime::UNIX_EPOCH, ModelFailed::new().request_id(id)).agent("x");
            engine.apply(View::EVENTS, origin, Item::Event(&failed, None));
        }
        let (now, sources): (DateTime<Utc>, _) = (DateTime::UNIX_EPOCH, BTreeMap::new());
        let turn = engine.runs(&AsOf { now, sources: &sources }).remove(0).turns.remove(0);
        let count = |min, max| Count::new(Bound::range(min, max), Evidence::Derived);
        let told = |first: Count| {
            let mut requests = turn.requests.clone();
            requests[0].upstream = first;
            requests[1].upstream = count(2, None);
            let counts = Counts {
                logical_requests: Count::observed(2),
                upstream_requests: count(7, None),
                ..turn.counts.clone()
            };
            narrow(&mut requests, &counts);
            requests[1].upstream.bound
        };
        assert_eq!(told(count(1, Some(3))), Bound::range(4, None));
        // Near misses: the other one may have had all of them, and what is not visible bounds nothing.
        assert_eq!(told(count(1, None)), Bound::range(2, None));
        assert_eq!(told(Count::not_visible(1)), Bound::range(2, None));
    }

    /// What the attempts of a request are taken to have been sent to, where the log names some of them.
    #[test]
    fn what_is_sent_again_goes_where_the_log_says_that_it_went() {
        let named = |model: Option<&str>, kind| {
            let mut attempt = ModelAttempt::new().kind(kind).sent(Sent::Yes);
            if let Some(model) = model {
                attempt = attempt.candidate(Candidate::new("openai", model));
            }
            attempt
        };
        let told = |attempts: [ModelAttempt; 3]| {
            let mut engine = Engine::new();
            let origin = Origin { source: SourceId(0), place: Place::Whole };
            for attempt in attempts {
                let event = Event::new("r", DateTime::UNIX_EPOCH, attempt.request_id("a")).agent("x");
                engine.apply(View::EVENTS, origin, Item::Event(&event, None));
            }
            let sources = BTreeMap::new();
            let as_of = AsOf { now: DateTime::<Utc>::UNIX_EPOCH, sources: &sources };
            let mut attempts = engine.runs(&as_of).remove(0).turns.remove(0).requests.remove(0).attempts;
            name_alike(&mut attempts);
            attempts.into_iter().map(|a| a.candidate.model.clone()).collect::<Vec<_>>()
        };
        let (original, retry, fallback) = (AttemptKind::Original, AttemptKind::Retry, AttemptKind::Fallback);
        let m = |name: &str| Some(name.to_owned());
        let all = told([named(None, original), named(Some("m"), retry), named(None, retry)]);
        assert_eq!(all, [m("m"), m("m"), m("m")]);
        // Near misses: another model was asked, or may have been.
        let other = told([named(Some("m"), original), named(Some("n"), fallback), named(None, retry)]);
        assert!(other[2] != m("m"), "{other:?}");
        let moved = told([named(Some("m"), original), named(None, fallback), named(None, retry)]);
        assert_eq!(moved[1..], [None, None]);
    }
}
