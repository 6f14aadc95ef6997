//! `retryscope export`: old runs for other programs.

use chrono::{DateTime, SecondsFormat, Utc};
use retryscope_analysis::{Attempt, LogicalRequest, Run, Turn};
use retryscope_report::openmetrics::{self, Span};
use retryscope_report::quoted;

use crate::args::{Display, Export, Format, Reading};
use crate::context::{Reader, point};
use crate::exit::{Exit, hinted};
use crate::output::Output;

const COLUMNS: &str = "run_id,agent,turn,request_id,source,attempt,kind,layer,provider,model,started_at,ended_at,\
                       outcome,class,reason,status,retry_after_ms,waited_ms,sends_min,sends_max,request_outcome\n";

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

/// One line an attempt.
fn table(runs: &[Run], span: Span, output: &mut Output) -> anyhow::Result<()> {
    output.text(COLUMNS)?;
    for run in runs {
        for turn in &run.turns {
            for request in &turn.requests {
                for (index, attempt) in request.attempts.iter().enumerate() {
                    let at = attempt.started_at.or(attempt.ended_at).or(turn.started_at);
                    if at.is_none_or(|at| span.since.is_none_or(|since| at >= since) && at <= span.until) {
                        output.text(&line(run, turn, request, index, attempt))?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn line(run: &Run, turn: &Turn, request: &LogicalRequest, index: usize, attempt: &Attempt) -> String {
    let time = |at: Option<DateTime<Utc>>| {
        at.map(|at| at.to_rfc3339_opts(SecondsFormat::Millis, true)).unwrap_or_default()
    };
    let number = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
    let failure = attempt.failure.as_ref();
    let named = |own: Option<&String>, of_run: Option<&String>| own.or(of_run).cloned().unwrap_or_default();
    let outcome = attempt.outcome.and_then(|o| serde_json::to_value(o).ok());
    let cells = [
        run.key.id.to_string(),
        run.key.agent.to_string(),
        turn.number.to_string(),
        request.id.clone(),
        request.source.as_str().to_owned(),
        (index + 1).to_string(),
        attempt.kind.as_str().to_owned(),
        attempt.layer.map(|layer| layer.as_str().to_owned()).unwrap_or_default(),
        named(attempt.candidate.provider.as_ref(), run.facts.provider.as_ref()),
        named(attempt.candidate.model.as_ref(), run.facts.model.as_ref()),
        time(attempt.started_at),
        time(attempt.ended_at),
        outcome.and_then(|o| o.as_str().map(str::to_owned)).unwrap_or_default(),
        failure.map(|f| f.class.as_str().to_owned()).unwrap_or_default(),
        failure.map(|f| f.reason.as_str().to_owned()).unwrap_or_default(),
        number(failure.and_then(|f| f.status).map(u64::from)),
        number(failure.and_then(|f| f.retry_after_ms)),
        number(attempt.waited_ms.or(attempt.delay_ms)),
        attempt.sends.min.to_string(),
        number(attempt.sends.max),
        request.outcome.as_str().to_owned(),
    ];
    let mut line = cells.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(",");
    line.push('\n');
    line
}
