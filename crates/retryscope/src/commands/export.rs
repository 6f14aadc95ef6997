//! `retryscope export`: old runs for other programs.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat, Utc};
use retryscope_analysis::{Attempt, Bound, LogicalRequest, Run, Turn};
use retryscope_events::Source;
use retryscope_report::openmetrics::{self, Span};
use retryscope_report::quoted;

use crate::args::{Display, Export, Format, Reading};
use crate::context::{Reader, point};
use crate::exit::{Exit, hinted};
use crate::output::Output;

const COLUMNS: &str = "run_id,agent,turn,request_id,source,attempt,kind,layer,provider,model,started_at,ended_at,\
                       outcome,class,reason,status,retry_after_ms,delay_ms,waited_ms,sends_min,sends_max,request_outcome\n";

pub(crate) fn run(
    reading: &Reading,
    display: Display,
    args: &Export,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    if !matches!(display.format, Format::Openmetrics | Format::Csv) {
        let forms =
            "use --format openmetrics (for promtool) or --format csv (one line an attempt)".to_owned();
        return Err(hinted("export needs to know the form", [forms]));
    }
    let reader = Reader::open(reading)?;
    reader.complain();
    let since = args.since.as_deref().map(|text| point(text, reader.now)).transpose()?;
    let until = args.until.as_deref().map(|text| point(text, reader.now)).transpose()?;
    let span = Span { since, until: until.unwrap_or(reader.now) };
    let runs = reader.runs();
    if runs.is_empty() {
        return Err(reader.nothing_found());
    }
    if display.format == Format::Openmetrics {
        output.text(&openmetrics::text(&runs, span))?;
    } else {
        table(&runs, span, output)?;
    }
    Ok(reader.exit())
}

/// One line an attempt. Requests of which the log shows no attempt have a line of their own, so that the lines add up to the
/// counts of their run.
fn table(runs: &[Run], span: Span, output: &mut Output) -> anyhow::Result<()> {
    output.text(COLUMNS)?;
    let is_in = |at: Option<DateTime<Utc>>| {
        at.is_none_or(|at| span.since.is_none_or(|since| at >= since) && at <= span.until)
    };
    for run in runs {
        let mut told = BTreeMap::new();
        for turn in &run.turns {
            for request in &turn.requests {
                let of =
                    Of { run, turn: Some(turn), request: Some(request), source: request.source.as_str() };
                let mut shown = Bound::ZERO;
                for (index, attempt) in request.attempts.iter().enumerate() {
                    shown = shown.plus(attempt.sends);
                    if is_in(attempt.started_at.or(attempt.ended_at).or(turn.started_at)) {
                        output.text(&line(of, Some((index, attempt)), attempt.sends))?;
                    }
                }
                let rest = request.upstream.bound.without(shown);
                if rest != Bound::ZERO && is_in(request.opened_at.or(turn.started_at)) {
                    output.text(&line(of, None, rest))?;
                }
                let told = told.entry(of.source).or_insert(Bound::ZERO);
                *told = told.plus(shown).plus(rest);
            }
        }
        // Requests that the log counts and does not name.
        for (source, counts) in
            [(Source::Foreground, &run.counts), (Source::Background, &run.background_counts)]
        {
            let of = Of { run, turn: None, request: None, source: source.as_str() };
            let told = told.get(of.source).copied().unwrap_or(Bound::ZERO);
            let rest = counts.upstream_requests.bound.without(told);
            if rest != Bound::ZERO && is_in(run.started_at) {
                output.text(&line(of, None, rest))?;
            }
        }
    }
    Ok(())
}

/// What a line is about.
#[derive(Clone, Copy)]
struct Of<'a> {
    run: &'a Run,
    turn: Option<&'a Turn>,
    request: Option<&'a LogicalRequest>,
    source: &'static str,
}

/// Writes one attempt, or requests that were sent without being shown.
fn line(of: Of<'_>, attempt: Option<(usize, &Attempt)>, sends: Bound) -> String {
    let time = |at: Option<DateTime<Utc>>| {
        at.map(|at| at.to_rfc3339_opts(SecondsFormat::Millis, true)).unwrap_or_default()
    };
    let number = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
    let Of { run, turn, request, source } = of;
    let (index, attempt) = attempt.unzip();
    let failure = attempt.and_then(|attempt| attempt.failure.as_ref());
    let candidate = attempt.map(|attempt| &attempt.candidate).or(request.map(|request| &request.candidate));
    let named = |own: Option<&String>, of_run: Option<&String>| own.or(of_run).cloned().unwrap_or_default();
    let outcome = attempt.and_then(|a| a.outcome).and_then(|o| serde_json::to_value(o).ok());
    let cells = [
        run.key.id.to_string(),
        run.key.agent.to_string(),
        turn.map(|turn| turn.number.to_string()).unwrap_or_default(),
        request.map(|request| request.id.clone()).unwrap_or_default(),
        source.to_owned(),
        index.map(|index| (index + 1).to_string()).unwrap_or_default(),
        attempt.map_or("not_shown", |attempt| attempt.kind.as_str()).to_owned(),
        attempt.and_then(|a| a.layer).map(|layer| layer.as_str().to_owned()).unwrap_or_default(),
        named(candidate.and_then(|c| c.provider.as_ref()), run.facts.provider.as_ref()),
        named(candidate.and_then(|c| c.model.as_ref()), run.facts.model.as_ref()),
        time(attempt.and_then(|a| a.started_at)),
        time(attempt.and_then(|a| a.ended_at)),
        outcome.and_then(|o| o.as_str().map(str::to_owned)).unwrap_or_default(),
        failure.map(|f| f.class.as_str().to_owned()).unwrap_or_default(),
        failure.map(|f| f.reason.as_str().to_owned()).unwrap_or_default(),
        number(failure.and_then(|f| f.status).map(u64::from)),
        number(failure.and_then(|f| f.retry_after_ms)),
        number(attempt.and_then(|a| a.delay_ms)),
        number(attempt.and_then(|a| a.waited_ms)),
        sends.min.to_string(),
        number(sends.max),
        request.map(|request| request.outcome.as_str().to_owned()).unwrap_or_default(),
    ];
    let mut line = cells.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(",");
    line.push('\n');
    line
}
