//! Counts of one turn over all the views that speak of it.
//!
//! Each view's counts are sound by themselves, so what all of them allow together is sound too. Not for: which turns belong
//! together (see the module above).

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_events::{AttemptKind, AttemptOutcome, Source};
use retryscope_record::{Shown, TurnOutcome};

use crate::count::{Bound, Count, Counts, Evidence};
use crate::view::{RequestEnd, RequestView, TurnView};

use super::{Joined, Part};

/// Counts of one kind of requests in one turn, over all its views.
pub(super) fn counts_of(group: &Joined<'_>, source: Source) -> Counts {
    let mut total: Option<Counts> = joined_by_id(group, source);
    let ending = Ending::of(group);
    let views = group.chunk_by(|(a, _), (b, _)| std::ptr::eq(*a, *b)).map(|of_view| {
        let counts = of_view.iter().map(|member| counts_in_view(member, group, source, &ending));
        counts.fold(Counts::ZERO, |a, b| a.plus(&b))
    });
    let views: Vec<Counts> = views.collect();
    let mut contradict = false;
    let proven = views.iter().map(|counts| counts.logical_requests.bound.min).max().unwrap_or(0);
    for counts in views {
        // A view that holds fewer requests than there were does not show what was sent for the others.
        let lacks = counts.logical_requests.bound.max.is_some_and(|max| max < proven);
        let counts = if lacks {
            let logical_requests = counts.logical_requests.clone();
            Counts { logical_requests, ..opened(counts) }
        } else {
            counts
        };
        total = Some(match total {
            Some(known) => {
                contradict |= known.upstream_requests.bound.excludes(counts.upstream_requests.bound);
                known.intersect(&counts)
            }
            None => counts,
        });
    }
    let mut total = total.unwrap_or(Counts::ZERO);
    // A view that shows as many requests as there were shows all of them, whatever it can say for itself: unless another
    // one shows that this is not so.
    let logical = total.logical_requests.bound;
    if logical.is_exact() && !contradict {
        for member in group {
            if let Some(counts) = closed_in_view(member, source, logical.min, &ending) {
                total = total.intersect(&counts);
            }
        }
    }
    let unsent = |turn: &TurnView| {
        let of = turn.requests.iter().filter(|r| r.source == source);
        of.filter(|r| r.upstream(true).0.max == Some(0)).count() as u64
    };
    let unsent: u64 = group.iter().map(|(_, turn)| unsent(turn)).sum();
    whole(total, unsent)
}

/// One view may show the requests and another one their attempts: each logical request was sent once, and each retry and
/// fallback is a send of its own. So many requests were `unsent`: none of their attempts left.
fn whole(mut counts: Counts, unsent: u64) -> Counts {
    let logical = counts.logical_requests.bound.min.saturating_sub(unsent);
    let sends = logical + counts.retries.bound.min + counts.fallbacks.bound.min;
    let upstream = &mut counts.upstream_requests;
    if upstream.bound.min < sends {
        upstream.bound = Bound::range(sends, upstream.bound.max.map(|max| max.max(sends)));
        upstream.evidence = upstream.evidence.clamp(Evidence::Derived, Evidence::Inferred);
    }
    counts
}

/// How a turn ended, over all its views.
struct Ending {
    /// Some view holds the end.
    is_known: bool,
    /// When it ended, as the views that hold the end say.
    at: Option<DateTime<Utc>>,
    /// The provider's id of the request whose failure ended it.
    last_failure: Option<String>,
}

impl Ending {
    fn of(group: &Joined<'_>) -> Self {
        let ends = |turn: &TurnView| turn.end.as_ref().is_some_and(|end| end.outcome == TurnOutcome::Failed);
        let last_failure = group.iter().filter(|(_, turn)| ends(turn)).find_map(|(_, turn)| {
            let last = turn.requests.iter().rev().find(|r| r.source == Source::Foreground)?;
            let attempt = last.attempts.last().filter(|_| last.end == Some(RequestEnd::GivenUp))?;
            attempt.failure.as_ref()?.upstream_request_id.clone()
        });
        let settled = group.iter().filter(|(part, turn)| is_settled_alone(part, turn));
        let at = settled.clone().filter_map(|(_, turn)| turn.end.as_ref()?.at).max();
        Self { is_known: settled.count() > 0, at, last_failure }
    }

    /// Returns whether a view reaches to the failure that ended the turn.
    fn is_reached_by(&self, turn: &TurnView) -> bool {
        let last = turn
            .requests
            .iter()
            .rev()
            .find(|r| r.source == Source::Foreground)
            .and_then(|r| r.attempts.last());
        let id = last.and_then(|a| a.failure.as_ref()).and_then(|f| f.upstream_request_id.as_ref());
        id.is_some() && id == self.last_failure.as_ref()
    }

    /// Returns whether a view holds what was written until the turn had ended: the failure that ended it, something of a
    /// later turn, or whatever was written after the end.
    fn is_passed_by(&self, part: &Part<'_>, turn: &TurnView) -> bool {
        let is_last = part.view.turns.last().is_some_and(|last| std::ptr::eq(last, turn));
        let until = turn.told_until.zip(self.at).is_some_and(|(until, end)| until >= end);
        !is_last || until || self.is_reached_by(turn)
    }

    /// Returns whether a view is known to lack the request whose failure ended the turn. Only where each failure it
    /// shows has an id, since else one of them may be that one.
    fn is_missed_by(&self, turn: &TurnView) -> bool {
        let Some(last) = &self.last_failure else { return false };
        // A stream that died without a status was another request than one that was refused.
        let refused = turn.requests.iter().flat_map(|r| &r.attempts).filter_map(|a| a.failure.as_ref());
        let mut ids = refused.filter(|f| f.status.is_some()).map(|f| f.upstream_request_id.as_ref());
        ids.all(|id| id.is_some_and(|id| id != last))
    }
}

/// Where several views use the agent's own request ids: the sum over the requests, each intersected over its views.
fn joined_by_id(group: &Joined<'_>, source: Source) -> Option<Counts> {
    // Ids that were used again tell nothing.
    let native = |turn: &TurnView| {
        let of = || turn.requests.iter().filter(|r| r.source == source);
        let ids: BTreeSet<&str> = of().filter(|r| r.id_is_native).map(|r| r.id.as_str()).collect();
        !ids.is_empty() && ids.len() == of().count()
    };
    let views: Vec<_> = group.iter().filter(|(_, turn)| native(turn)).collect();
    if views.len() < 2 {
        return None;
    }
    let mut by_id: BTreeMap<&str, (Counts, Told)> = BTreeMap::new();
    for (part, turn) in &views {
        for request in turn.requests.iter().filter(|r| r.source == source) {
            let counts = counts_in_turn(turn, request, is_settled(part, turn, group));
            let counts = if turn.has_gap { opened(counts) } else { counts };
            let told = Told::of(request);
            by_id
                .entry(&request.id)
                .and_modify(|(known, all)| {
                    *known = known.intersect(&counts);
                    *all = all.and(told);
                })
                .or_insert((counts, told));
        }
    }
    let sum = by_id.values().fold(Counts::ZERO, |a, (counts, told)| a.plus(&told.at_least(counts)));
    let settled = views
        .iter()
        .any(|(part, turn)| is_settled(part, turn, group) && visibility(part, source).0 == Shown::All);
    Some(if settled { sum } else { opened(sum) })
}

/// What all views together say of one request: one may hold the failures, another the answer.
#[derive(Clone, Copy)]
struct Told {
    failed: u64,
    answered: bool,
}

impl Told {
    fn of(request: &RequestView) -> Self {
        let failed = request.attempts.iter().filter(|a| a.outcome == Some(AttemptOutcome::Failed));
        Self {
            failed: failed.map(|a| a.sends.min).sum(),
            answered: request.end == Some(RequestEnd::Answered),
        }
    }

    fn and(self, other: Self) -> Self {
        Self { failed: self.failed.max(other.failed), answered: self.answered || other.answered }
    }

    /// Raises the lower end: the failures and the answer were sends of their own.
    fn at_least(self, counts: &Counts) -> Counts {
        let mut counts = counts.clone();
        let proven = self.failed + 1;
        if self.answered && counts.upstream_requests.bound.min < proven {
            let raise = |count: &Count, by: u64| Count {
                bound: Bound::range(count.bound.min.max(by), count.bound.max),
                evidence: count.evidence.min(Evidence::Derived),
                ..count.clone()
            };
            let fallbacks = counts.fallbacks.bound.max;
            counts.upstream_requests = raise(&counts.upstream_requests, proven);
            if let Some(fallbacks) = fallbacks {
                counts.retries = raise(&counts.retries, self.failed.saturating_sub(fallbacks));
            }
            counts.failed_attempts = raise(&counts.failed_attempts, self.failed);
        }
        counts
    }
}

/// Returns whether all of a turn has been told: the source says so itself, or another one proves it.
pub(super) fn is_settled(part: &Part<'_>, turn: &TurnView, group: &Joined<'_>) -> bool {
    is_settled_alone(part, turn) || is_proven(part, turn, group)
}

pub(super) fn is_settled_alone(part: &Part<'_>, turn: &TurnView) -> bool {
    turn.complete || turn.end.is_some() && !part.view.tail_may_be_lost
}

/// Shortest wait after which a loop sends again.
const SHORTEST_WAIT: TimeDelta = TimeDelta::milliseconds(500);

/// A source that tells everything up to some time has told the whole turn, if another one shows that the last attempt of
/// the turn had been sent by then, or so soon after that nothing else fits between.
fn is_proven(part: &Part<'_>, turn: &TurnView, group: &Joined<'_>) -> bool {
    let Some(told_until) = turn.told_until else { return false };
    let of = |turn: &TurnView| turn.requests.iter().filter(|r| r.source == Source::Foreground).count();
    let own: usize = group.iter().filter(|(p, _)| std::ptr::eq(*p, part)).map(|(_, turn)| of(turn)).sum();
    let last = turn.requests.iter().rfind(|r| r.source == Source::Foreground);
    let last_outcome = last.and_then(|r| r.attempts.last()).map(|a| a.outcome);
    let mut others: Vec<&Part<'_>> = Vec::new();
    for (other, _) in group.iter().filter(|(p, _)| !std::ptr::eq(*p, part)) {
        if !others.iter().any(|known| std::ptr::eq(*known, *other)) {
            others.push(*other);
        }
    }
    others.into_iter().any(|other| {
        let turns: Vec<&TurnView> =
            group.iter().filter(|(p, _)| std::ptr::eq(*p, other)).map(|(_, turn)| *turn).collect();
        if visibility(other, Source::Foreground).0 != Shown::All
            || !turns.iter().all(|turn| is_settled_alone(other, turn))
            || turns.iter().map(|turn| of(turn)).sum::<usize>() != own
        {
            return false;
        }
        let requests =
            turns.iter().flat_map(|turn| &turn.requests).filter(|r| r.source == Source::Foreground);
        let Some(last) = requests.max_by_key(|r| r.sent_by) else { return false };
        let Some(sent_by) = last.sent_by else { return false };
        // Waits that must lie between what was told and the end: none if the last attempt told is the last one, and one
        // if it failed and the request was answered all the same (that one more is added where the views are joined).
        let waits = match (last.end, last_outcome) {
            (Some(RequestEnd::Answered), Some(None))
            | (Some(RequestEnd::GivenUp), Some(Some(AttemptOutcome::Failed))) => 0,
            (Some(RequestEnd::Answered), Some(Some(AttemptOutcome::Failed))) if last.id_is_native => 1,
            _ => return sent_by <= told_until,
        };
        sent_by <= told_until || sent_by < told_until + SHORTEST_WAIT * (waits + 1)
    })
}

fn visibility(part: &Part<'_>, source: Source) -> (Shown, Shown) {
    let visibility = match source {
        Source::Foreground => part.view.foreground,
        Source::Background => part.view.background,
    };
    (visibility.requests, visibility.attempts)
}

fn counts_in_view(
    (part, turn): &(&Part<'_>, &TurnView),
    group: &Joined<'_>,
    source: Source,
    ending: &Ending,
) -> Counts {
    let settled = is_settled(part, turn, group) || source == Source::Foreground && ending.is_reached_by(turn);
    let requests = requests_shown(part, turn, source);
    let sum = sum_of(turn, source, settled);
    match requests {
        Shown::All if settled => sum,
        Shown::None if sum.logical_requests.bound.min == 0 => Counts::not_visible(),
        _ => {
            let lost = !settled && source == Source::Foreground && ending.is_missed_by(turn);
            // A send that is still open in this view is that request, and counts already.
            let all_shown_failed = turn.requests.last().is_some_and(|r| {
                let last = r.attempts.last().and_then(|attempt| attempt.outcome);
                r.visibility.attempts == Shown::All && r.end.is_none() && last == Some(AttemptOutcome::Failed)
            });
            if lost && all_shown_failed { one_more(opened(sum)) } else { opened(sum) }
        }
    }
}

/// Counts of a view whose requests are known to be all there were; `None` where some of them may go on.
fn closed_in_view(
    (part, turn): &(&Part<'_>, &TurnView),
    source: Source,
    logical: u64,
    ending: &Ending,
) -> Option<Counts> {
    let of = || turn.requests.iter().filter(|r| r.source == source);
    if of().count() as u64 != logical || logical == 0 || turn.has_gap {
        return None;
    }
    let settled = is_settled_alone(part, turn)
        || part.view.ends_elsewhere
            && !part.view.tail_may_be_lost
            && ending.is_known
            && ending.is_passed_by(part, turn);
    (settled || of().all(|r| r.end.is_some())).then(|| sum_of(turn, source, settled))
}

fn sum_of(turn: &TurnView, source: Source, settled: bool) -> Counts {
    let of = turn.requests.iter().filter(|r| r.source == source);
    let sum = of.map(|r| counts_in_turn(turn, r, settled)).fold(Counts::ZERO, |a, b| a.plus(&b));
    // What could not be read may have been a request.
    if turn.has_gap { opened(sum) } else { sum }
}

fn requests_shown(part: &Part<'_>, turn: &TurnView, source: Source) -> Shown {
    let of_turn = match source {
        Source::Foreground => turn.foreground_requests,
        Source::Background => turn.background_requests,
    };
    of_turn.unwrap_or(visibility(part, source).0)
}

/// Adds the failed request that ended a turn and is not in the view.
fn one_more(counts: Counts) -> Counts {
    let add = |count: Count| Count {
        bound: count.bound.plus(Bound::exact(1)),
        evidence: count.evidence.max(Evidence::Derived),
        ..count
    };
    Counts {
        upstream_requests: add(counts.upstream_requests),
        retries: add(counts.retries),
        failed_attempts: add(counts.failed_attempts),
        ..counts
    }
}

/// Takes the upper ends away: more requests may follow or be hidden.
pub(super) fn opened(counts: Counts) -> Counts {
    let open = |count: Count| Count { bound: Bound::at_least(count.bound.min), ..count };
    Counts {
        logical_requests: open(counts.logical_requests),
        upstream_requests: open(counts.upstream_requests),
        retries: open(counts.retries),
        fallbacks: open(counts.fallbacks),
        failed_attempts: open(counts.failed_attempts),
    }
}

/// Counts that a request adds to those of its kind in a turn of which something could not be read. Where its own record was
/// lost, it may be of the other kind; an attempt is a retry only where a record says so.
fn counts_beside_gap(request: &RequestView, settled: bool) -> Counts {
    let counts = counts_of_request(request, settled);
    let told = request.attempts.iter().filter(|a| a.kind == AttemptKind::Retry && a.told.kind).count() as u64;
    let hidden: u64 = request.attempts.iter().map(|a| a.sends.min.saturating_sub(1)).sum();
    let least = |count: Count, min: u64| Count {
        bound: Bound::range(count.bound.min.min(min), count.bound.max),
        evidence: count.evidence.max(Evidence::Derived),
        ..count
    };
    let is_ours = if request.source_is_open { 0 } else { u64::MAX };
    Counts {
        logical_requests: least(counts.logical_requests, is_ours),
        upstream_requests: least(counts.upstream_requests, is_ours),
        retries: least(counts.retries, is_ours.min(told + hidden)),
        fallbacks: least(counts.fallbacks, is_ours),
        failed_attempts: least(counts.failed_attempts, is_ours),
    }
}

/// Counts that a request adds to those of its kind in its turn.
fn counts_in_turn(turn: &TurnView, request: &RequestView, settled: bool) -> Counts {
    if turn.has_gap { counts_beside_gap(request, settled) } else { counts_of_request(request, settled) }
}

pub(super) fn counts_of_request(request: &RequestView, settled: bool) -> Counts {
    let (upstream, evidence) = request.upstream(settled);
    let fallbacks = request.fallbacks();
    let all = request.visibility.attempts == Shown::All;
    let retries = upstream.without(fallbacks).without(request.hedges()).minus(1);
    let failed_seen = request
        .attempts
        .iter()
        .filter(|a| a.outcome == Some(AttemptOutcome::Failed))
        .map(|a| a.sends.min)
        .sum::<u64>();
    let failed = match request.end {
        Some(RequestEnd::Answered) => upstream.minus(1 + request.beside_the_answer()),
        Some(RequestEnd::GivenUp) => upstream.minus(request.ended_otherwise()),
        _ => Bound::range(failed_seen, upstream.max),
    };
    let with = |bound: Bound, evidence: Evidence| Count {
        bound,
        evidence,
        basis: if bound.is_exact() { None } else { request.basis.clone() },
    };
    let end_evidence = if request.end.is_some() { evidence } else { evidence.max(Evidence::Derived) };
    Counts {
        logical_requests: Count::observed(1),
        upstream_requests: with(upstream, evidence),
        retries: with(retries, evidence),
        fallbacks: if all || fallbacks.min > 0 {
            Count::new(fallbacks, Evidence::Observed)
        } else {
            Count::new(Bound::at_least(0), evidence)
        },
        failed_attempts: with(failed, end_evidence),
    }
}
