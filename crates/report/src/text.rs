//! Pages for a person: one run, a list of runs, everything on one screen.

use chrono::{DateTime, Local, TimeDelta, Timelike as _, Utc};
use retryscope_analysis::{
    Attempt, Bound, Exhausted, Explanation, LogicalRequest, Overview, Remedy, Run, RunLine, RunOutcome, Sums,
    Turn, words,
};
use retryscope_events::{AttemptKind, AttemptOutcome, Candidate, Source};

use crate::json::PathOf;
use crate::page::Page;

/// Runs from which a list is not wrapped to the width of the terminal.
const LONG_LIST: usize = 200;

/// Attempts of one request that are shown; of more, the first and the last.
const SHOWN_ATTEMPTS: usize = 16;

/// Characters of an id that are shown in a list: a UUID, and after it the name of a subagent.
pub(crate) const ID_SHOWN: usize = 60;

/// Returns the page that explains one turn of a run.
pub fn replay(
    run: &Run,
    turn: &Turn,
    explanation: &Explanation,
    evidence: bool,
    path_of: PathOf<'_>,
    width: usize,
) -> String {
    let mut page = Page::new(width);
    page.heading(&title(run), &ending(turn));
    if run.turns.len() > 1 {
        let failed = run.failed_turns();
        page.line(&format!(
            "turn {} of {}{}",
            turn.number,
            run.turns.len(),
            match failed {
                0 => String::new(),
                n => format!(", {n} failed"),
            }
        ));
    }
    page.paragraph(&explanation.summary);
    page.space();
    page.row("requests", &explanation.requests);
    let rows = [("budget", &explanation.budget), ("time", &explanation.time), ("owner", &explanation.owner)];
    for (label, text) in rows {
        if let Some(text) = text {
            page.row(label, text);
        }
    }
    if let Some(message) = message_of(turn) {
        page.row("message", &message);
    }
    attempts(&mut page, run, turn, evidence);
    if !explanation.tools.is_empty() {
        page.space();
        for (index, line) in explanation.tools.iter().enumerate() {
            page.row(if index == 0 { "tools" } else { "" }, line);
        }
    }
    if !explanation.findings.is_empty() {
        page.space();
        for (index, finding) in explanation.findings.iter().enumerate() {
            let fix = finding.fix.as_ref().map(|fix| format!("; {fix}")).unwrap_or_default();
            page.row(
                if index == 0 { "findings" } else { "" },
                &format!("{} {}{fix}", finding.rule, finding.message),
            );
        }
    }
    if !explanation.blind_spots.is_empty() {
        page.space();
        for (index, spot) in explanation.blind_spots.iter().enumerate() {
            page.row(if index == 0 { "not visible" } else { "" }, spot);
        }
    }
    if !explanation.remedies.is_empty() {
        page.space();
        let remedies: Vec<String> = explanation.remedies.iter().map(Remedy::told).collect();
        page.numbered("what to do", &remedies);
    }
    if evidence {
        page.space();
        for (index, source) in run.sources.iter().enumerate() {
            let label = if index == 0 { "read from" } else { "" };
            page.row(label, &format!("[{}] {}", index + 1, path_of(*source).display()));
        }
    }
    page.finish()
}

/// `run 01a2290c  codex 0.171.0  gpt-5.5 via openai`.
fn title(run: &Run) -> String {
    let mut parts = vec![format!("run {}", run.key.id)];
    parts.push(match &run.facts.agent_version {
        Some(version) => format!("{} {version}", run.key.agent),
        None => run.key.agent.to_string(),
    });
    if let Some(model) = model_of(run) {
        parts.push(model);
    }
    parts.join("  ")
}

fn model_of(run: &Run) -> Option<String> {
    let foreground = run.turns.iter().flat_map(|t| &t.requests).filter(|r| r.source == Source::Foreground);
    let first = foreground.flat_map(|r| &r.attempts).next();
    let model = first.and_then(|a| a.candidate.model.clone()).or_else(|| run.facts.model.clone())?;
    let provider = first.and_then(|a| a.candidate.provider.clone()).or_else(|| run.facts.provider.clone());
    Some(match provider {
        Some(provider) => format!("{model} via {provider}"),
        None => model,
    })
}

fn ending(turn: &Turn) -> String {
    let word = turn.outcome.as_str().to_uppercase();
    match (turn.outcome, turn.time.wall_ms) {
        (RunOutcome::Running | RunOutcome::Unknown, _) | (_, None) => word,
        (_, Some(wall)) => format!("{word} after {}", words::span(wall)),
    }
}

fn message_of(turn: &Turn) -> Option<String> {
    let stopped_at = || turn.stopped_at()?.failure.as_ref();
    let failure = turn.cause.as_ref().map(|cause| &cause.failure).or_else(stopped_at);
    let message = failure?.message.as_ref()?;
    let line: String = message.chars().take(300).collect();
    Some(if line.len() < message.len() { format!("{line}…") } else { line })
}

fn attempts(page: &mut Page, run: &Run, turn: &Turn, evidence: bool) {
    let told: Vec<&LogicalRequest> = turn
        .requests
        .iter()
        .filter(|r| {
            r.attempts.len() > 1 || r.attempts.iter().any(|a| a.outcome == Some(AttemptOutcome::Failed))
        })
        .collect();
    if told.is_empty() {
        return;
    }
    let start =
        turn.requests.iter().flat_map(|r| &r.attempts).filter_map(|a| a.started_at.or(a.ended_at)).min();
    let several = told.len() > 1 || turn.requests.len() > 1;
    let candidates = several_candidates(&told);
    let hidden_sends = told.iter().flat_map(|r| &r.attempts).any(|a| a.sends != Bound::exact(1));
    let mut header = vec!["attempt", "time", "answer", "asked", "waited", "layer"];
    if hidden_sends {
        header.push("sent");
    }
    if candidates != Candidates::One {
        header.push("candidate");
    }
    if evidence {
        header.push("evidence");
    }
    let mut rows = Vec::new();
    for request in told {
        if several {
            let step = request.step.map_or_else(|| request_number(turn, request), |step| step.to_string());
            let mut row = vec![format!("step {step}")];
            if request.source == Source::Background {
                row = vec![format!("side call ({})", request.purpose.as_deref().unwrap_or("other"))];
            }
            row.resize(header.len(), String::new());
            rows.push(row);
        }
        let hidden = request.attempts.len().saturating_sub(SHOWN_ATTEMPTS);
        for (index, attempt) in request.attempts.iter().enumerate() {
            let in_gap = hidden > 0 && (SHOWN_ATTEMPTS / 2..SHOWN_ATTEMPTS / 2 + hidden).contains(&index);
            if in_gap {
                if index == SHOWN_ATTEMPTS / 2 {
                    let mut row = vec![format!("… {hidden} more")];
                    row.resize(header.len(), String::new());
                    rows.push(row);
                }
                continue;
            }
            let mut row = vec![
                (index + 1).to_string(),
                since(start, attempt.started_at.or(attempt.ended_at)),
                match request.attempts.get(index + 1) {
                    Some(next) if next.kind == AttemptKind::Retry && is_ok(attempt) => {
                        "ok, not taken".to_owned()
                    }
                    _ => answer(attempt),
                },
                attempt
                    .failure
                    .as_ref()
                    .and_then(|f| f.retry_after_ms)
                    .map_or_else(|| "-".to_owned(), words::span),
                wait(attempt),
                attempt.layer.map_or_else(|| "-".to_owned(), |layer| layer.to_string()),
            ];
            if hidden_sends {
                row.push(words::bound(attempt.sends));
            }
            if candidates != Candidates::One {
                let mark = if attempt.kind == AttemptKind::Fallback { "→ " } else { "" };
                row.push(format!("{mark}{}", candidate(attempt, candidates)));
            }
            if evidence {
                // The number of the file in the list at the end.
                let number = run.sources.iter().position(|s| *s == attempt.origin.source);
                let number = number.map_or_else(|| "?".to_owned(), |at| (at + 1).to_string());
                row.push(format!("[{number}]{}", attempt.origin.place));
            }
            rows.push(row);
        }
    }
    page.space();
    page.table(&header, &rows, &[], 2);
}

fn request_number(turn: &Turn, request: &LogicalRequest) -> String {
    let position = turn.requests.iter().position(|r| std::ptr::eq(r, request));
    position.map_or_else(String::new, |index| (index + 1).to_string())
}

/// What differs between the candidates of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Candidates {
    One,
    OneProvider,
    Several,
}

fn several_candidates(requests: &[&LogicalRequest]) -> Candidates {
    let all = || requests.iter().flat_map(|r| &r.attempts).map(|a| &*a.candidate);
    let same =
        |part: fn(&Candidate) -> &Option<String>| all().all(|c| part(c) == all().next().map_or(&None, part));
    match (same(|c| &c.provider), same(|c| &c.model) && same(|c| &c.transport)) {
        (true, true) => Candidates::One,
        (true, false) => Candidates::OneProvider,
        (false, _) => Candidates::Several,
    }
}

fn candidate(attempt: &Attempt, candidates: Candidates) -> String {
    let c = &attempt.candidate;
    let mut text = match (&c.provider, &c.model) {
        (_, Some(model)) if candidates == Candidates::OneProvider => model.clone(),
        (Some(provider), Some(model)) => format!("{provider}/{model}"),
        (Some(one), None) | (None, Some(one)) => one.clone(),
        (None, None) => "-".to_owned(),
    };
    if let Some(transport) = &c.transport {
        text.push_str(&format!(" ({transport})"));
    }
    text
}

fn since(start: Option<DateTime<Utc>>, at: Option<DateTime<Utc>>) -> String {
    match (start, at) {
        (Some(start), Some(at)) => {
            let ms = u64::try_from((at - start).num_milliseconds()).unwrap_or(0);
            format!("+{}", words::span(ms))
        }
        _ => "-".to_owned(),
    }
}

fn is_ok(attempt: &Attempt) -> bool {
    attempt.outcome == Some(AttemptOutcome::Ok)
}

fn answer(attempt: &Attempt) -> String {
    match (attempt.outcome, &attempt.failure) {
        (Some(AttemptOutcome::Ok), _) => "ok".to_owned(),
        (Some(AttemptOutcome::Cancelled), _) => "cancelled".to_owned(),
        (Some(AttemptOutcome::Superseded), _) => "superseded".to_owned(),
        (_, Some(failure)) => {
            let reason = failure.reason.as_str().replace('_', " ");
            failure.status.map_or(reason.clone(), |status| format!("{status} {reason}"))
        }
        (Some(AttemptOutcome::Failed), None) => "failed, reason not logged".to_owned(),
        (None, None) => "no answer logged".to_owned(),
    }
}

fn wait(attempt: &Attempt) -> String {
    match (attempt.waited_ms, attempt.delay_ms) {
        (Some(waited), _) => words::span(waited),
        (None, Some(planned)) => format!("{} planned", words::span(planned)),
        (None, None) => "-".to_owned(),
    }
}

/// Returns the list of runs, newest last.
pub fn runs(runs: &[&RunLine], width: usize) -> String {
    // A long list is searched rather than read: one run is one line there.
    let mut page = Page::new(if runs.len() > LONG_LIST { 10_000 } else { width });
    let rows: Vec<Vec<String>> = runs
        .iter()
        .map(|run| {
            vec![
                run.started_at.map_or_else(|| "-".to_owned(), moment),
                run.key.agent.to_string(),
                run.key.id.chars().take(ID_SHOWN).collect(),
                run.outcome.as_str().to_owned(),
                words::count(&run.upstream_requests),
                run.in_short.clone(),
            ]
        })
        .collect();
    page.table(&["started", "agent", "run", "outcome", "requests", "what happened"], &rows, &[], 0);
    page.finish()
}

/// Returns one screen over many runs; `recent` are the newest that failed, with a sentence each.
pub fn overview(of: &Overview, recent: &[(&Run, String)], now: DateTime<Utc>, width: usize) -> String {
    let mut page = Page::new(width);
    let sums = &of.sums;
    let runs = if sums.runs == 1 { "run" } else { "runs" };
    page.line(&format!("{} {runs}, {} with a failed turn", sums.runs, sums.failed));
    page.space();
    page.row("asked", &asked(sums));
    page.row("sent", &sent(sums));
    if sums.not_countable > 0 {
        page.row(
            "",
            &format!(
                "{} of {} runs not countable: their logs are cut or do not show retries",
                sums.not_countable, sums.runs
            ),
        );
    }
    if let Some(waited) = waited(sums) {
        page.row("waited", &waited);
    }
    for (index, (cause, n)) in of.killed_by.iter().take(5).enumerate() {
        page.row(if index == 0 { "ended by" } else { "" }, &format!("{cause}: {n}"));
    }
    if of.unretried > 0 {
        page.row("", &format!("{} of them might have passed with a retry and got none", of.unretried));
    }
    for (index, account) in of.exhausted.iter().take(5).enumerate() {
        page.row(if index == 0 { "out of quota" } else { "" }, &out_of_quota(account, now));
    }
    if !of.settings.is_empty() {
        page.space();
        let lines: Vec<String> = of
            .settings
            .iter()
            .map(|(agent, text, n)| {
                format!("{}: {text} (concerns {})", words::agent(agent), words::number(*n, "run", "runs"))
            })
            .collect();
        page.numbered("what to do", &lines);
    }
    if !recent.is_empty() {
        page.space();
        page.line("newest failed runs (retryscope replay RUN tells more):");
        for (run, summary) in recent {
            page.space();
            let when = run.ended_at.map(|at| ago(at, now)).unwrap_or_default();
            page.heading(&format!("{}  {}", run.key.agent, run.key.id), &when);
            page.paragraph(summary);
        }
    }
    page.finish()
}

/// Says how much was asked for.
pub(crate) fn asked(of: &Sums) -> String {
    words::counted(of.counts.logical_requests.bound, "logical request", "logical requests")
}

/// Says how much was sent for it.
pub(crate) fn sent(of: &Sums) -> String {
    let mut text = words::counted(of.counts.upstream_requests.bound, "request", "requests");
    let factor = of.countable.amplification();
    if let Some(factor) = factor.filter(|(min, max)| *min > 1.0 || max.is_none_or(|max| max > 1.0)) {
        text.push_str(&format!(", amplification {}", words::factor(factor)));
    }
    if let Some(ratio) = of.countable.retry_ratio() {
        text.push_str(&format!(", retry ratio {} (budget 10 %)", words::percent(ratio)));
    }
    text
}

/// Says how long was waited; `None` where no log tells.
pub(crate) fn waited(of: &Sums) -> Option<String> {
    let told = |ms, is_least| span(ms, is_least).unwrap_or_else(|| "an unknown time".to_owned());
    (of.waiting_ms.is_some() || of.lost_ms.is_some()).then(|| {
        let waited = told(of.waiting_ms, of.waiting_is_least);
        format!("{waited} between attempts, {} lost in all", told(of.lost_ms, of.lost_is_least))
    })
}

/// Returns a span of time of which no more than the least may be known; `None` where nothing is.
pub(crate) fn span(ms: Option<u64>, is_least: bool) -> Option<String> {
    match ms {
        Some(ms) if !is_least => Some(words::span(ms)),
        Some(ms) if ms > 0 => Some(format!("at least {}", words::span(ms))),
        _ => None,
    }
}

/// Says that an account is out of quota, and until when.
pub(crate) fn out_of_quota(account: &Exhausted, now: DateTime<Utc>) -> String {
    let reset = match account.reset_at {
        Some(at) if at > now => format!("resets {}", moment(at)),
        Some(at) => format!("was to reset {}", moment(at)),
        None => account.reset_clock.map_or_else(
            || "no reset stated".to_owned(),
            |clock| format!("reset stated for {clock}, without a time zone"),
        ),
    };
    let seen = account.seen_at.map(|at| format!(", said {}", ago(at, now))).unwrap_or_default();
    format!("{}: {}, {reset}{seen}", account.provider, account.reason)
}

/// Returns a moment in local time.
pub fn moment(at: DateTime<Utc>) -> String {
    // Written for each run of a list: without a format to be read each time.
    let local = at.with_timezone(&Local).naive_local();
    local.with_nanosecond(0).unwrap_or(local).to_string()
}

/// Returns how long ago something was.
pub fn ago(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let past = now - at;
    if past < TimeDelta::zero() {
        return "in the future".to_owned();
    }
    format!("{} ago", words::span(u64::try_from(past.num_milliseconds()).unwrap_or(0)))
}
