//! Several sources' views of one run become one run.
//!
//! Views are joined by explicit ids only: turn ids, or ids (messages, prompts, provider requests) that stand in both.
//! Each view's counts are sound by themselves, so what all of them allow together is sound too. Evidence is merged per
//! request where two views use the same request ids, else per turn, never per run.

mod counts;
mod rest;
mod shown;

use std::borrow::Cow;
use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use retryscope_events::Source;
use retryscope_record::{Anchor, Facts, RunKey, Shown, SourceId, TurnOutcome, View};

use crate::cause::cause_of;
use crate::count::{Counts, Evidence};
use crate::engine::{AsOf, SourceState};
use crate::infer::Inference;
use crate::line::{MAY_GO_ON, quiet_since};
use crate::run::{LogicalRequest, Run, RunOutcome, Time, Turn};
use crate::view::{End, TurnView, ViewOfRun, merge_facts};

use counts::{counts_of, is_settled_alone, opened};
use rest::{end_as_told, narrow};
use shown::{requests_of, time_of};

/// One view with its source.
pub(crate) struct Part<'a> {
    /// The first of its sources, to sort by.
    pub(crate) source: SourceId,
    /// All of them: a log that continues has more than one.
    pub(crate) sources: Vec<SourceId>,
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

/// Logs that an agent keeps of a whole run, whatever number of processes it takes.
const HOLDS_RUNS: &[View] =
    &[View::EVENTS, View::SESSION, View::DATABASE, View::OBJECTS, View::HISTORY_DB, View::LOGS_DB];

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
    let settings =
        parts.iter().flat_map(|p| &p.sources).find_map(|id| as_of.source(*id)?.settings.as_deref());
    let version = facts.policy_version.as_deref().or(facts.agent_version.as_deref());
    let inference = Inference::new(&key.agent, version, settings, facts.provider.as_deref());
    let is_only = |part: &Part<'_>| full(part) <= 1;
    let mut lasts = parts.iter().flat_map(|part| &part.view.turns).filter_map(|turn| turn.requests.last());
    let last_once = lasts.any(|request| request.sent_once_each) && parts.iter().all(is_only);
    for part in &mut parts {
        if let Cow::Borrowed(view) = part.view {
            part.view = inference.fill(part.kind, view, last_once);
        }
    }
    for (part, turn) in lent_turns(&parts) {
        let turn = &mut parts[part].view.to_mut().turns[turn];
        turn.requests.clear();
        turn.foreground_requests = Some(Shown::None);
    }
    let parts = parts;
    let Aligned { groups, left_out, may_be_further } = align(&parts);
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
    let mut background_counts = sum(|t| &t.background_counts);
    if turns.is_empty() {
        counts = Counts::not_visible();
        background_counts = Counts::not_visible();
    } else if may_be_further || left_out > 0 && !holds_all_turns(&parts) {
        counts = opened(counts);
    }
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
    let unrecorded: u64 = turns.iter().flat_map(Turn::foreground).map(LogicalRequest::unrecorded).sum();
    if unrecorded > 0 {
        let which = match unrecorded {
            1 => "1 of the requests sent has no record of its own".to_owned(),
            n => format!("{n} of the requests sent have no record of their own"),
        };
        blind_spots.insert(format!("{which}: waits and times are at least what is shown"));
    }
    if left_out > 0 {
        let (turns, share, were) = match left_out {
            1 => ("1 turn".to_owned(), "shares", "was"),
            n => (format!("{n} turns"), "share", "were"),
        };
        blind_spots.insert(format!(
            "{turns} in further logs of this run {share} no id with the others and {were} not used"
        ));
    }
    let outcome = turns.last().map_or(RunOutcome::Unknown, |t| t.outcome);
    let read = settings
        .into_iter()
        .flat_map(retryscope_policy::Settings::entries)
        .map(|s| (s.name.clone(), s.value.to_string()));
    let settings: Vec<(String, String)> = read.collect();
    let mut sources: Vec<SourceId> = parts.iter().flat_map(|p| &p.sources).copied().collect();
    sources.sort_unstable();
    sources.dedup();
    let declared = parts.iter().find_map(|part| part.view.declared.as_deref()).cloned();
    Run {
        key: key.clone(),
        facts,
        declared: declared.unwrap_or_default(),
        started_at,
        ended_at,
        outcome,
        turns,
        counts,
        background_counts,
        time,
        sources,
        views: parts.iter().map(|part| part.kind).collect(),
        blind_spots: blind_spots.into_iter().collect(),
        ledger: parts.iter().flat_map(|p| p.view.ledger.iter().cloned()).collect(),
        settings,
    }
}

/// Returns the turns, by part and place, whose requests are another run's: standard output names one run, and shows what the
/// run that works for it does as well.
fn lent_turns(parts: &[Part<'_>]) -> Vec<(usize, usize)> {
    if !parts.iter().any(|part| part.view.turns.iter().any(|turn| turn.asked_elsewhere)) {
        return Vec::new();
    }
    let groups = align(parts).groups;
    let lent = groups.iter().filter(|group| group.iter().any(|(_, turn)| turn.asked_elsewhere));
    let told = lent.flatten().filter(|(part, _)| part.kind == View::STDOUT);
    let place = |(part, turn): &(&Part<'_>, &TurnView)| {
        let of = parts.iter().position(|p| std::ptr::eq(p, *part))?;
        Some((of, part.view.turns.iter().position(|t| std::ptr::eq(t, *turn))?))
    };
    told.filter_map(place).collect()
}

/// The turns of all views.
struct Aligned<'a> {
    /// Turns of the run, in order.
    groups: Vec<Joined<'a>>,
    /// Turns of further views that could not be placed.
    left_out: usize,
    /// One of these took place at a time of its own: it is none of the turns of the run that are told.
    may_be_further: bool,
}

/// Groups the turns of all views.
fn align<'a>(parts: &'a [Part<'a>]) -> Aligned<'a> {
    let mut groups: Vec<(BTreeSet<Anchor>, Joined<'a>)> = Vec::new();
    // Two logs of one kind that begin a turn each hold different turns: which of them a third log speaks of, only ids tell.
    let begins = |part: &&Part<'_>| part.view.turns.iter().any(|t| !is_empty(t) && !t.begins_elsewhere);
    let kinds: BTreeSet<View> = parts.iter().filter(begins).map(|part| part.kind).collect();
    let single =
        parts.iter().all(|part| full(part) <= 1) && kinds.len() == parts.iter().filter(begins).count();
    let (mut left_out, mut may_be_further) = (0, false);
    if let [part] = parts
        && !part.view.turns.iter().any(|turn| turn.begins_elsewhere)
    {
        // No other log may speak of these turns.
        let mut groups: Vec<Joined<'a>> =
            part.view.turns.iter().filter(|turn| !is_empty(turn)).map(|turn| vec![(part, turn)]).collect();
        groups.sort_by_key(|members| began(members));
        return Aligned { groups, left_out, may_be_further };
    }
    let base = base_of(parts);
    let all = parts.iter().flat_map(|part| part.view.turns.iter().map(move |turn| (part, turn)));
    let (later, first): (Vec<_>, Vec<_>) =
        all.filter(|(_, turn)| !is_empty(turn)).partition(|(_, turn)| !single && turn.begins_elsewhere);
    // What goes on with a turn is placed when that one is.
    for (part, turn) in first.into_iter().chain(later) {
        // Which of several turns its requests are of is not told, and each of them may be told already.
        if turn.holds_turns && groups.iter().filter(|(_, members)| is_beside(members, turn)).count() > 1 {
            left_out += 1;
            continue;
        }
        let requests = turn.requests.iter().filter(|r| r.id_is_native).map(|r| r.id.as_str());
        let named = turn.key.as_deref().into_iter().chain(requests).map(Anchor::of);
        let ids: BTreeSet<Anchor> = turn.ids.iter().copied().chain(named).collect();
        // Two logs of the same kind hold different turns, unless an id says otherwise.
        let repeats = |(known, members): &(BTreeSet<Anchor>, Joined<'_>)| {
            let may_be_one = |(p, other): &(&Part<'_>, &TurnView)| {
                p.kind != part.kind || may_go_on(p, other, turn) || may_go_on(part, turn, other)
            };
            members.iter().all(may_be_one) || !known.is_disjoint(&ids)
        };
        let mut found: Vec<usize> = if single {
            // A prompt at another time is another one.
            let may_be_one = |group: &(BTreeSet<Anchor>, Joined<'_>)| {
                repeats(group) && !group.1.iter().all(|(_, other)| are_apart(other, turn))
            };
            groups.iter().position(may_be_one).into_iter().collect()
        } else {
            let shares = |(known, members): &(BTreeSet<Anchor>, Joined<'_>)| {
                let same_view = members.iter().any(|(p, _)| std::ptr::eq(*p, part));
                !same_view && !known.is_disjoint(&ids)
            };
            groups.iter().enumerate().filter(|(_, group)| shares(group)).map(|(index, _)| index).collect()
        };
        if found.is_empty() && !single && turn.begins_elsewhere {
            found.extend(beginning_of(part, turn, &groups));
        }
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
            None => {
                left_out += 1;
                // A debug log goes on with the turns of a session that was forked from the one it is named after.
                may_be_further |= part.kind != View::DEBUG_LOG && is_timed(turn) && !is_told(&groups, turn);
            }
        }
    }
    let mut groups: Vec<Joined<'a>> = groups.into_iter().map(|(_, members)| members).collect();
    for members in &mut groups {
        // Best view first; of several turns of one view the last one says how it ended.
        members
            .sort_by_key(|(part, turn)| (rank(part.kind), part.source, std::cmp::Reverse(turn.started_at)));
    }
    groups.sort_by_key(|members| began(members));
    Aligned { groups, left_out, may_be_further }
}

/// Returns the kind of log whose turns are those of the run: the first of the kinds that hold whole runs, else the one that
/// holds most turns.
fn base_of(parts: &[Part<'_>]) -> Option<View> {
    let first = parts.iter().find(|part| full(part) > 0)?.kind;
    if HOLDS_RUNS.contains(&first) {
        return Some(first);
    }
    let turns = |kind: View| parts.iter().filter(|part| part.kind == kind).map(full).sum::<usize>();
    parts.iter().map(|part| part.kind).rev().max_by_key(|kind| turns(*kind))
}

/// Returns whether the log whose turns are those of the run holds all of them: its kind does, and it tells of ends itself.
fn holds_all_turns(parts: &[Part<'_>]) -> bool {
    let Some(base) = base_of(parts).filter(|base| HOLDS_RUNS.contains(base)) else { return false };
    parts.iter().filter(|part| part.kind == base).all(|part| !part.view.ends_elsewhere)
}

/// Returns how many turns of a log hold something.
fn full(part: &Part<'_>) -> usize {
    part.view.turns.iter().filter(|turn| !is_empty(turn)).count()
}

/// Returns when a turn began, to sort by; one of which nobody knows comes last.
fn began(members: &Joined<'_>) -> i64 {
    members.iter().filter_map(|(_, t)| t.started_at).min().map_or(i64::MAX, |at| at.timestamp_millis())
}

/// Returns whether `later` may be the rest of a turn of which another source of the same kind holds the beginning.
fn may_go_on(part: &Part<'_>, turn: &TurnView, later: &TurnView) -> bool {
    later.begins_elsewhere && !is_settled_alone(part, turn) && turn.started_at <= later.started_at
}

/// Returns the group of the last turn of the same kind of log that began before this one, if this one may go on with it.
fn beginning_of(
    part: &Part<'_>,
    turn: &TurnView,
    groups: &[(BTreeSet<Anchor>, Joined<'_>)],
) -> Option<usize> {
    let before = groups.iter().enumerate().flat_map(|(index, (_, members))| {
        members.iter().filter(|(p, _)| p.kind == part.kind).map(move |(p, turn)| (index, *p, *turn))
    });
    let last = before
        .filter(|(_, _, before)| before.started_at <= turn.started_at)
        .max_by_key(|(_, _, before)| before.started_at)?;
    let (index, of, before) = last;
    may_go_on(of, before, turn).then_some(index)
}

/// Returns whether one of the turns took place while another one did, unless their times tell otherwise.
fn is_beside(members: &Joined<'_>, turn: &TurnView) -> bool {
    let is_apart = |from: Option<DateTime<Utc>>, to: Option<DateTime<Utc>>| {
        from.zip(turn.last_at).is_some_and(|(from, last)| from > last)
            || to.zip(turn.started_at).is_some_and(|(to, first)| to < first)
    };
    members.iter().any(|(_, other)| !is_apart(other.started_at, other.last_at))
}

/// Records of one turn may differ so much in time: some logs count whole seconds, and some are written late.
const CLOCKS_DIFFER: TimeDelta = TimeDelta::seconds(10);

/// Returns whether one of two turns was over before the other one began.
fn are_apart(a: &TurnView, b: &TurnView) -> bool {
    let is_before = |first: &TurnView, second: &TurnView| {
        let over = first.last_at.filter(|_| first.end.is_some());
        over.zip(second.started_at).is_some_and(|(over, began)| began - over > CLOCKS_DIFFER)
    };
    is_before(a, b) || is_before(b, a)
}

fn is_timed(turn: &TurnView) -> bool {
    turn.started_at.is_some() && turn.last_at.is_some()
}

/// Returns whether one of the turns that are told may be this one, by its times.
fn is_told(groups: &[(BTreeSet<Anchor>, Joined<'_>)], turn: &TurnView) -> bool {
    groups.iter().flat_map(|(_, members)| members).any(|(_, other)| !are_apart(other, turn))
}

fn is_empty(turn: &TurnView) -> bool {
    turn.requests.is_empty()
        && turn.end.is_none()
        && turn.ids.is_empty()
        && turn.key.is_none()
        && !turn.asked_elsewhere
}

fn turn(index: usize, group: &Joined<'_>, is_last: bool, parts: &[Part<'_>], as_of: &AsOf<'_>) -> Turn {
    let started_at = group.iter().filter_map(|(_, t)| t.started_at).min();
    let ended_at = group.iter().filter_map(|(_, t)| t.last_at).max();
    let any_end = end_of(group);
    let mut counts = counts_of(group, Source::Foreground);
    if parts.iter().any(|part| part.view.fallbacks_hidden) {
        // Each candidate has retries of its own, and what was taken for one may be the first send to another.
        let logical = counts.logical_requests.clone();
        counts = Counts { logical_requests: logical, ..opened(counts) };
        counts.fallbacks.evidence = counts.fallbacks.evidence.max(Evidence::Derived);
        counts.retries.bound.min = counts.retries.bound.min.saturating_sub(1);
    }
    let background_counts = counts_of(group, Source::Background);
    let mut requests = requests_of(group, &counts);
    narrow(&mut requests, &counts);
    let outcome = match any_end.map(|e| e.outcome) {
        Some(TurnOutcome::Succeeded) => RunOutcome::Succeeded,
        Some(TurnOutcome::Failed) => RunOutcome::Failed,
        Some(TurnOutcome::Cancelled) => RunOutcome::Cancelled,
        Some(TurnOutcome::Unknown) => RunOutcome::Unknown,
        None if is_last => {
            let quiet_since = quiet_since(ended_at, &requests);
            let outcome = liveness(parts, quiet_since, as_of);
            // Logs that never say how a turn ends stop without an end, however it ended, and their writer may live on.
            let stops = outcome == RunOutcome::Interrupted
                || outcome == RunOutcome::Running
                    && quiet_since.is_some_and(|at| as_of.now - at >= MAY_GO_ON);
            if stops && group.iter().all(|(part, _)| part.view.ends_untold) {
                RunOutcome::Unknown
            } else {
                outcome
            }
        }
        // The log goes on: what it says of the last request is what it says of the turn.
        None => match requests.iter().rfind(|r| r.source == Source::Foreground).map(|r| r.outcome) {
            Some(outcome) if outcome.is_failed() => RunOutcome::Failed,
            _ => RunOutcome::Unknown,
        },
    };
    let time = time_of(&requests, started_at, ended_at);
    if outcome == RunOutcome::Failed {
        end_as_told(&mut requests, &mut counts, group);
    }
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

/// The end of a turn: of the view that is believed first, but a later one where they contradict each other, since a log that
/// is cut takes the last failure in it for the end.
fn end_of<'a>(group: &Joined<'a>) -> Option<&'a End> {
    let at = |turn: &TurnView, end: &End| end.at.or(turn.last_at);
    let ends = group.iter().filter_map(|(_, turn)| turn.end.as_ref().map(|end| (at(turn, end), end)));
    let mut known = ends.clone().filter(|(_, end)| end.outcome != TurnOutcome::Unknown);
    let first = known.next();
    let later = |(at, end): &(Option<DateTime<Utc>>, &End)| {
        first.is_some_and(|(first_at, first)| end.outcome != first.outcome && *at > first_at)
    };
    known
        .filter(later)
        .max_by_key(|(at, _)| *at)
        .or(first)
        .or_else(|| ends.clone().next())
        .map(|(_, end)| end)
}

/// A log that stops: is its writer still there?
fn liveness(parts: &[Part<'_>], quiet_since: Option<DateTime<Utc>>, as_of: &AsOf<'_>) -> RunOutcome {
    let mut known = false;
    for source in parts.iter().flat_map(|part| &part.sources) {
        match as_of.source(*source) {
            Some(SourceState { writer_alive: Some(true), .. }) => return RunOutcome::Running,
            Some(SourceState { writer_alive: Some(false), .. }) => return RunOutcome::Interrupted,
            _ => known |= quiet_since.is_some(),
        }
    }
    match quiet_since {
        Some(at) if as_of.now - at < MAY_GO_ON => RunOutcome::Running,
        _ if known => RunOutcome::Interrupted,
        _ => RunOutcome::Unknown,
    }
}
