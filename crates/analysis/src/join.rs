//! Several sources' views of one run become one run.
//!
//! Views are joined by explicit ids only: turn ids, or ids (messages, prompts, provider requests) that stand in both.
//! Each view's counts are sound by themselves, so what all of them allow together is sound too. Evidence is merged per
//! request where two views use the same request ids, else per turn, never per run.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_events::{AttemptKind, AttemptOutcome, Source};
use retryscope_record::{Facts, RunKey, Shown, SourceId, TurnOutcome, View};

use crate::cause::cause_of;
use crate::count::{Bound, Count, Counts, Evidence};
use crate::engine::{AsOf, SourceState};
use crate::infer::Inference;
use crate::run::{Attempt, LogicalRequest, RequestOutcome, Run, RunOutcome, Time, Turn};
use crate::view::{RequestEnd, RequestView, TurnView, ViewOfRun, merge_facts};

/// One view with its source.
pub(crate) struct Part<'a> {
    pub(crate) source: SourceId,
    pub(crate) kind: View,
    pub(crate) view: Cow<'a, ViewOfRun>,
}

/// One turn of the run: the turns of the views that speak of it, best view first.
type Joined<'a> = Vec<(&'a Part<'a>, &'a TurnView)>;

/// Views in the order in which they are believed where they say the same thing.
const RANK: &[View] = &[
    View::EVENTS,
    View::SESSION,
    View::DATABASE,
    View::OBJECTS,
    View::HISTORY_DB,
    View::LOGS_DB,
    View::DEBUG_LOG,
    View::OTLP_TRACES,
    View::OTLP_LOGS,
    View::STDOUT,
    View::LOG,
    View::TRACE,
    View::RESULT,
];

fn rank(kind: View) -> usize {
    RANK.iter().position(|v| *v == kind).unwrap_or(RANK.len())
}

/// Joins the views of one run.
pub(crate) fn join(key: &RunKey, mut parts: Vec<Part<'_>>, as_of: &AsOf<'_>) -> Run {
    parts.sort_by_key(|part| (rank(part.kind), part.source));
    let mut facts = Facts::default();
    for part in parts.iter().rev() {
        merge_facts(&mut facts, &part.view.facts);
    }
    let settings = parts.iter().find_map(|p| as_of.source(p.source)?.settings.as_deref());
    let version = facts.policy_version.as_deref().or(facts.agent_version.as_deref());
    let inference = Inference::new(&key.agent, version, settings, facts.provider.as_deref());
    for part in &mut parts {
        if let Cow::Borrowed(view) = part.view {
            part.view = inference.fill(part.kind, view);
        }
    }
    let parts = parts;
    let (groups, left_out) = align(&parts);
    let last = groups.len().saturating_sub(1);
    let mut turns = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        turns.push(turn(index, group, index == last, &parts, as_of));
    }
    turns.sort_by_key(|t| t.started_at.map_or(i64::MAX, |at| at.timestamp_millis()));
    for (index, turn) in turns.iter_mut().enumerate() {
        turn.number = index + 1;
    }
    if let (Some(turn), Some((reason, message))) =
        (turns.last_mut(), parts.iter().find_map(|p| p.view.explained.as_ref()))
    {
        turn.terminal_reason = turn.terminal_reason.take().or_else(|| reason.clone());
        turn.error.get_or_insert_with(|| message.clone());
    }
    let sum = |f: fn(&Turn) -> &Counts| turns.iter().map(f).fold(Counts::ZERO, |a, b| a.plus(b));
    let mut counts = sum(|t| &t.counts);
    if turns.is_empty() {
        counts.upstream_requests = Count::not_visible(0);
        counts.logical_requests = Count::not_visible(0);
        counts.retries = Count::not_visible(0);
        counts.failed_attempts = Count::not_visible(0);
    }
    let background_counts = sum(|t| &t.background_counts);
    let started_at = parts.iter().filter_map(|p| p.view.first_at).min();
    let ended_at = parts.iter().filter_map(|p| p.view.last_at).max();
    let mut time = turns.iter().map(|t| t.time).fold(Time::default(), Time::plus);
    time.wall_ms = started_at.zip(ended_at).and_then(|(a, b)| u64::try_from((b - a).num_milliseconds()).ok());
    let mut blind_spots: BTreeSet<String> =
        parts.iter().flat_map(|p| p.view.blind_spots.iter().cloned()).collect();
    if !counts.upstream_requests.bound.is_exact() {
        let reasons =
            parts.iter().filter(|p| p.view.foreground.attempts < Shown::All && !p.view.because.is_empty());
        blind_spots.extend(reasons.map(|p| p.view.because.clone()));
        if parts.iter().any(|p| p.view.tail_may_be_lost) {
            blind_spots.insert(
                "the last records of one log may be missing: its writer ends without flushing".into(),
            );
        }
    }
    if left_out > 0 {
        blind_spots.insert(format!(
            "{left_out} turn(s) in further logs of this run share no id with the others and were not used"
        ));
    }
    let outcome = turns.last().map_or(RunOutcome::Unknown, |t| t.outcome);
    let told = parts.iter().flat_map(|p| p.view.settings.iter().cloned());
    let read = settings
        .into_iter()
        .flat_map(retryscope_policy::Settings::entries)
        .map(|s| (s.name.clone(), s.value.to_string()));
    let settings: Vec<(String, String)> = read.chain(told).collect();
    let mut sources: Vec<SourceId> = parts.iter().map(|p| p.source).collect();
    sources.sort_unstable();
    sources.dedup();
    Run {
        key: key.clone(),
        facts,
        started_at,
        ended_at,
        outcome,
        turns,
        counts,
        background_counts,
        time,
        sources,
        blind_spots: blind_spots.into_iter().collect(),
        settings,
    }
}

/// Groups the turns of all views. Returns the groups in order, and how many turns of further views could not be placed.
fn align<'a>(parts: &'a [Part<'a>]) -> (Vec<Joined<'a>>, usize) {
    let mut groups: Vec<(BTreeSet<&str>, Joined<'a>)> = Vec::new();
    let full = |part: &Part<'_>| part.view.turns.iter().filter(|t| !is_empty(t)).count();
    let single = parts.iter().all(|part| full(part) <= 1);
    let mut left_out = 0;
    let base = parts.iter().find(|part| full(part) > 0).map(|part| part.kind);
    for part in parts {
        for turn in part.view.turns.iter().filter(|t| !is_empty(t)) {
            let requests = turn.requests.iter().filter(|r| r.id_is_native).map(|r| r.id.as_str());
            let ids: BTreeSet<&str> =
                turn.anchors.iter().map(String::as_str).chain(turn.key.as_deref()).chain(requests).collect();
            // Two logs of the same kind hold different turns, unless an id says otherwise.
            let repeats = |(known, members): &(BTreeSet<&str>, Joined<'_>)| {
                members.iter().all(|(p, _)| p.kind != part.kind) || !known.is_disjoint(&ids)
            };
            let mut found: Vec<usize> = if single {
                groups.iter().position(repeats).into_iter().collect()
            } else {
                let shares = |(known, members): &(BTreeSet<&str>, Joined<'_>)| {
                    let same_view = members.iter().any(|(p, _)| std::ptr::eq(*p, part));
                    !same_view && !known.is_disjoint(&ids)
                };
                groups.iter().enumerate().filter(|(_, group)| shares(group)).map(|(index, _)| index).collect()
            };
            // What one view calls one turn and another calls several is one: nothing in it may count twice.
            while found.len() > 1
                && let Some(index) = found.pop()
            {
                let (known, members) = groups.remove(index);
                groups[found[0]].0.extend(known);
                groups[found[0]].1.extend(members);
            }
            match found.first().copied() {
                Some(index) => {
                    groups[index].0.extend(ids);
                    groups[index].1.push((part, turn));
                }
                // A further file of the best kind holds further turns; another kind of log without a common id may
                // repeat what is there already, so it adds nothing.
                None if base.is_none_or(|base| base == part.kind) => groups.push((ids, vec![(part, turn)])),
                None => left_out += 1,
            }
        }
    }
    let mut groups: Vec<Joined<'a>> = groups.into_iter().map(|(_, members)| members).collect();
    for members in &mut groups {
        // Best view first; of several turns of one view the last one says how it ended.
        members
            .sort_by_key(|(part, turn)| (rank(part.kind), part.source, std::cmp::Reverse(turn.started_at)));
    }
    groups.sort_by_key(|members| {
        members.iter().filter_map(|(_, t)| t.started_at).min().map_or(i64::MAX, |at| at.timestamp_millis())
    });
    (groups, left_out)
}

fn is_empty(turn: &TurnView) -> bool {
    turn.requests.is_empty() && turn.end.is_none() && turn.anchors.is_empty() && turn.key.is_none()
}

fn turn(index: usize, group: &Joined<'_>, is_last: bool, parts: &[Part<'_>], as_of: &AsOf<'_>) -> Turn {
    let started_at = group.iter().filter_map(|(_, t)| t.started_at).min();
    let ended_at = group.iter().filter_map(|(_, t)| t.last_at).max();
    let end = group.iter().find_map(|(_, t)| t.end.as_ref().filter(|e| e.outcome != TurnOutcome::Unknown));
    let any_end = end.or_else(|| group.iter().find_map(|(_, t)| t.end.as_ref()));
    let outcome = match any_end.map(|e| e.outcome) {
        Some(TurnOutcome::Succeeded) => RunOutcome::Succeeded,
        Some(TurnOutcome::Failed) => RunOutcome::Failed,
        Some(TurnOutcome::Cancelled) => RunOutcome::Cancelled,
        Some(TurnOutcome::Unknown) => RunOutcome::Unknown,
        None if is_last => liveness(parts, ended_at, as_of),
        None => RunOutcome::Interrupted,
    };
    let mut counts = counts_of(group, Source::Foreground);
    if parts.iter().any(|part| part.view.fallbacks_hidden) {
        // Each candidate has retries of its own, and what was taken for one may be the first send to another.
        let logical = counts.logical_requests.clone();
        counts = Counts { logical_requests: logical, ..opened(counts) };
        counts.fallbacks.evidence = counts.fallbacks.evidence.max(Evidence::Derived);
        counts.retries.bound.min = counts.retries.bound.min.saturating_sub(1);
    }
    let background_counts = counts_of(group, Source::Background);
    let requests = requests_of(group, &counts);
    let is_over = any_end.is_some();
    let time = time_of(&requests, started_at, ended_at, is_over);
    let cause = (outcome == RunOutcome::Failed).then(|| cause_of(&requests, any_end)).flatten();
    let reason = group.iter().find_map(|(_, t)| t.end.as_ref().and_then(|e| e.reason.clone()));
    let error = group.iter().find_map(|(_, t)| t.end.as_ref().and_then(|e| e.message.clone()));
    Turn {
        number: index + 1,
        key: group.iter().find_map(|(_, t)| t.key.clone()),
        started_at,
        ended_at,
        outcome,
        terminal_reason: reason,
        error,
        cause,
        counts,
        background_counts,
        time,
        requests,
        end_origin: any_end.map(|e| e.origin),
    }
}

/// A log that stops: is its writer still there?
fn liveness(parts: &[Part<'_>], ended_at: Option<DateTime<Utc>>, as_of: &AsOf<'_>) -> RunOutcome {
    let mut known = false;
    for part in parts {
        match as_of.source(part.source) {
            Some(SourceState { writer_alive: Some(true), .. }) => return RunOutcome::Running,
            Some(SourceState { writer_alive: Some(false), .. }) => return RunOutcome::Interrupted,
            _ => known |= ended_at.is_some(),
        }
    }
    match ended_at {
        Some(at) if as_of.now - at < TimeDelta::minutes(5) => RunOutcome::Running,
        _ if known => RunOutcome::Interrupted,
        _ => RunOutcome::Unknown,
    }
}

/// Counts of one kind of requests in one turn, over all its views.
fn counts_of(group: &Joined<'_>, source: Source) -> Counts {
    let mut total: Option<Counts> = joined_by_id(group, source);
    let ending = Ending::of(group);
    for of_view in group.chunk_by(|(a, _), (b, _)| std::ptr::eq(*a, *b)) {
        let counts = of_view.iter().map(|member| counts_in_view(member, group, source, &ending));
        let counts = counts.fold(Counts::ZERO, |a, b| a.plus(&b));
        total = Some(match total {
            Some(known) => known.intersect(&counts),
            None => counts,
        });
    }
    let mut total = total.unwrap_or(Counts::ZERO);
    // A view that shows as many requests as there were shows all of them, whatever it can say for itself.
    let logical = total.logical_requests.bound;
    if logical.is_exact() {
        for member in group {
            if let Some(counts) = closed_in_view(member, source, logical.min, &ending) {
                total = total.intersect(&counts);
            }
        }
    }
    total
}

/// How a turn ended, over all its views.
struct Ending {
    /// Some view holds the end.
    is_known: bool,
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
        Self { is_known: group.iter().any(|(part, turn)| is_settled_alone(part, turn)), last_failure }
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
    let native = |turn: &TurnView| {
        let mut of = turn.requests.iter().filter(|r| r.source == source).peekable();
        of.peek().is_some() && of.all(|r| r.id_is_native)
    };
    let views: Vec<_> = group.iter().filter(|(_, turn)| native(turn)).collect();
    if views.len() < 2 {
        return None;
    }
    let mut by_id: BTreeMap<&str, (Counts, Told)> = BTreeMap::new();
    for (part, turn) in &views {
        for request in turn.requests.iter().filter(|r| r.source == source) {
            let counts = counts_of_request(request, is_settled(part, turn, group));
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
fn is_settled(part: &Part<'_>, turn: &TurnView, group: &Joined<'_>) -> bool {
    is_settled_alone(part, turn) || is_proven(part, turn, group)
}

fn is_settled_alone(part: &Part<'_>, turn: &TurnView) -> bool {
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
        Shown::None if sum.logical_requests.bound.min == 0 => Counts {
            logical_requests: Count::not_visible(0),
            upstream_requests: Count::not_visible(0),
            retries: Count::not_visible(0),
            fallbacks: Count::not_visible(0),
            failed_attempts: Count::not_visible(0),
        },
        _ => {
            let lost = !settled && source == Source::Foreground && ending.is_missed_by(turn);
            let shows_all =
                turn.requests.last().is_some_and(|r| r.visibility.attempts == Shown::All && r.end.is_none());
            if lost && shows_all { one_more(opened(sum)) } else { opened(sum) }
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
        || part.view.ends_elsewhere && !part.view.tail_may_be_lost && ending.is_known;
    (settled || of().all(|r| r.end.is_some())).then(|| sum_of(turn, source, settled))
}

fn sum_of(turn: &TurnView, source: Source, settled: bool) -> Counts {
    let of = turn.requests.iter().filter(|r| r.source == source);
    let sum = of.map(|r| counts_of_request(r, settled)).fold(Counts::ZERO, |a, b| a.plus(&b));
    // What could not be read may have been a request.
    if turn.has_gap { opened(sum) } else { sum }
}

fn requests_shown(part: &Part<'_>, turn: &TurnView, source: Source) -> Shown {
    match source {
        Source::Foreground => turn.foreground_requests.unwrap_or(visibility(part, source).0),
        Source::Background => visibility(part, source).0,
    }
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
fn opened(counts: Counts) -> Counts {
    let open = |count: Count| Count { bound: Bound::at_least(count.bound.min), ..count };
    Counts {
        logical_requests: open(counts.logical_requests),
        upstream_requests: open(counts.upstream_requests),
        retries: open(counts.retries),
        fallbacks: open(counts.fallbacks),
        failed_attempts: open(counts.failed_attempts),
    }
}

fn counts_of_request(request: &RequestView, settled: bool) -> Counts {
    let (upstream, evidence) = request.upstream(settled);
    let fallbacks = request.fallbacks();
    let first_sends = 1 + fallbacks + request.hedges();
    let all = request.visibility.attempts == Shown::All;
    let retries = upstream.minus(first_sends);
    let failed_seen = request
        .attempts
        .iter()
        .filter(|a| a.outcome == Some(AttemptOutcome::Failed))
        .map(|a| a.sends.min)
        .sum::<u64>();
    let failed = match request.end {
        Some(RequestEnd::Answered) => upstream.minus(1),
        Some(RequestEnd::GivenUp) => upstream,
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
        fallbacks: if all || fallbacks > 0 {
            Count::new(Bound::exact(fallbacks), Evidence::Observed)
        } else {
            Count::new(Bound::at_least(0), evidence)
        },
        failed_attempts: with(failed, end_evidence),
    }
}

/// The requests to show: from the view that tells most, with details that other views hold of the same attempts.
///
/// Where there was one request only, what all views together know of the turn is known of it.
fn requests_of(group: &Joined<'_>, joined: &Counts) -> Vec<LogicalRequest> {
    let told = |(part, turn): &&(&Part<'_>, &TurnView)| {
        let attempts: usize = turn.requests.iter().map(|r| r.attempts.len()).sum();
        let known = |a: &&Attempt| match (&a.failure, a.outcome) {
            (Some(failure), _) => !failure.says_nothing(),
            (None, outcome) => outcome == Some(AttemptOutcome::Ok),
        };
        let details = turn.requests.iter().flat_map(|r| &r.attempts).filter(known).count();
        let exact = turn.requests.iter().all(|r| r.upstream(is_settled(part, turn, group)).0.is_exact());
        (attempts, exact, part.view.foreground.attempts, details, std::cmp::Reverse(rank(part.kind)))
    };
    let Some((part, turn)) = group.iter().max_by_key(|member| told(member)) else { return Vec::new() };
    let mut details: BTreeMap<&str, Vec<&Attempt>> = BTreeMap::new();
    for (other, turn) in group {
        if !std::ptr::eq(*other, *part) {
            for attempt in turn.requests.iter().flat_map(|r| &r.attempts) {
                if let Some(id) = attempt.failure.as_ref().and_then(|f| f.upstream_request_id.as_deref()) {
                    details.entry(id).or_default().push(attempt);
                }
            }
        }
    }
    // How a request that was given up ended, by the agent's own id: another log may hold the answer that this one lacks.
    let mut ends: BTreeMap<&str, &Attempt> = BTreeMap::new();
    let others = group.iter().filter(|(other, _)| !std::ptr::eq(*other, *part));
    for request in others.flat_map(|(_, turn)| &turn.requests) {
        let last = request.attempts.last().filter(|a| a.failure.is_some());
        if let (true, Some(RequestEnd::GivenUp), Some(last)) = (request.id_is_native, request.end, last) {
            ends.entry(&request.id).or_insert(last);
        }
    }
    let settled = is_settled(part, turn, group);
    let single = joined.logical_requests.bound == Bound::exact(1)
        && turn.requests.iter().filter(|r| r.source == Source::Foreground).count() == 1;
    turn.requests
        .iter()
        .map(|request| {
            let counts = match request.source {
                Source::Foreground if single => joined.clone(),
                _ => counts_of_request(request, settled),
            };
            let mut attempts = request.attempts.clone();
            for attempt in &mut attempts {
                let id = attempt.failure.as_ref().and_then(|f| f.upstream_request_id.clone());
                for other in id.iter().flat_map(|id| details.get(id.as_str()).into_iter().flatten()) {
                    enrich(attempt, other);
                }
            }
            if (request.end == Some(RequestEnd::GivenUp) || request.end.is_none() && settled)
                && let (Some(last), Some(end)) = (attempts.last_mut(), ends.get(request.id.as_str()))
            {
                enrich(last, end);
            }
            LogicalRequest {
                id: request.id.clone(),
                step: request.step,
                source: request.source,
                purpose: request.purpose.clone(),
                outcome: outcome_of(request, &attempts),
                upstream: counts.upstream_requests,
                retries: counts.retries,
                fallbacks: request.fallbacks(),
                attempts,
                shows_attempts: request.visibility.attempts == Shown::All,
                usage: request.usage.clone(),
                requested_model: request.requested_model.clone(),
                origin: request.origin,
            }
        })
        .collect()
}

fn enrich(attempt: &mut Attempt, other: &Attempt) {
    let candidate = &mut attempt.candidate;
    candidate.provider = candidate.provider.take().or_else(|| other.candidate.provider.clone());
    candidate.model = candidate.model.take().or_else(|| other.candidate.model.clone());
    candidate.endpoint = candidate.endpoint.take().or_else(|| other.candidate.endpoint.clone());
    attempt.delay_ms = attempt.delay_ms.or(other.delay_ms);
    attempt.layer = attempt.layer.or(other.layer);
    if attempt.failure.is_none() && attempt.outcome != Some(AttemptOutcome::Ok) {
        attempt.failure.clone_from(&other.failure);
        attempt.outcome = other.outcome.or(attempt.outcome);
    }
    if let (Some(own), Some(theirs)) = (&mut attempt.failure, &other.failure) {
        own.retry_after_ms = own.retry_after_ms.or(theirs.retry_after_ms);
        own.reset_at = own.reset_at.or(theirs.reset_at);
        own.status = own.status.or(theirs.status);
        if own.says_nothing() && !theirs.says_nothing() {
            own.class = theirs.class;
            own.reason = theirs.reason;
            own.retryable = theirs.retryable;
        }
    }
}

fn outcome_of(request: &RequestView, attempts: &[Attempt]) -> RequestOutcome {
    let repeated = attempts.len() > 1 || attempts.iter().any(|a| a.sends.min > 1);
    let fell_back = attempts.iter().any(|a| a.kind == AttemptKind::Fallback);
    let sure = request.visibility.attempts == Shown::All && attempts.iter().all(|a| a.sends.is_exact());
    match request.end {
        Some(RequestEnd::Answered) if fell_back => RequestOutcome::OkAfterFallback,
        Some(RequestEnd::Answered) if repeated => RequestOutcome::OkAfterRetry,
        Some(RequestEnd::Answered) if sure => RequestOutcome::OkFirstTry,
        Some(RequestEnd::Answered) => RequestOutcome::Ok,
        Some(RequestEnd::GivenUp) if repeated || fell_back => RequestOutcome::FailedAfterRetry,
        Some(RequestEnd::GivenUp) => RequestOutcome::FailedNoRetry,
        Some(RequestEnd::Cancelled) => RequestOutcome::Cancelled,
        None => RequestOutcome::Open,
    }
}

fn time_of(
    requests: &[LogicalRequest],
    started_at: Option<DateTime<Utc>>,
    ended_at: Option<DateTime<Utc>>,
    is_over: bool,
) -> Time {
    let span = |a: DateTime<Utc>, b: DateTime<Utc>| u64::try_from((b - a).num_milliseconds()).ok();
    let last_origin = requests.last().and_then(|r| r.attempts.last()).map(|a| a.origin);
    let mut time =
        Time { wall_ms: started_at.zip(ended_at).and_then(|(a, b)| span(a, b)), ..Time::default() };
    for attempt in requests.iter().flat_map(|r| &r.attempts) {
        // The real wait where times tell it, else the planned one. Where the log just stops, a wait that was planned last
        // is known only up to its last line.
        let open = attempt.ended_at.zip(ended_at).filter(|_| !is_over && Some(attempt.origin) == last_origin);
        let planned = attempt.delay_ms.map(|delay| match open {
            Some((from, to)) => delay.min(span(from, to).unwrap_or(0)),
            None => delay,
        });
        let wait = attempt.waited_ms.or(planned);
        let failed = (attempt.outcome == Some(AttemptOutcome::Failed))
            .then(|| attempt.started_at.zip(attempt.ended_at).and_then(|(a, b)| span(a, b)))
            .flatten();
        if let Some(wait) = wait {
            time.waiting_ms = Some(time.waiting_ms.unwrap_or(0) + wait);
        }
        if wait.is_some() || failed.is_some() {
            time.lost_ms = Some(time.lost_ms.unwrap_or(0) + wait.unwrap_or(0) + failed.unwrap_or(0));
        }
    }
    time
}
