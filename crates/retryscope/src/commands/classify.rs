//! `retryscope classify`: one error, or a batch of them; `retryscope taxonomy export`.

use std::fs::File;
use std::io::{self, BufRead, BufReader};

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use retryscope_analysis::words;
use retryscope_report::{Page, visible};
use retryscope_taxonomy::{Class, Failure, Judgement, classify, export as tables, provider};
use serde_json::{Value, json};

use crate::args::{Classify, Display, Format, Reading};
use crate::context::now;
use crate::exit::{Exit, hinted};
use crate::lines::{Next, next_line};
use crate::output::{Output, width};

pub(crate) fn run(
    reading: &Reading,
    display: Display,
    args: &Classify,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let now = now(reading)?;
    if let Some(path) = &args.input {
        return if path.as_os_str() == "-" {
            batch(io::stdin().lock(), now, display, output)
        } else {
            let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
            batch(BufReader::new(file), now, display, output)
        };
    }
    let headers: Vec<(&str, &str)> =
        args.header.iter().filter_map(|h| h.split_once(':')).map(|(n, v)| (n.trim(), v.trim())).collect();
    if headers.len() < args.header.len() {
        return Err(hinted(
            "a header is `name: value`",
            ["for example --header 'retry-after: 30'".to_owned()],
        ));
    }
    if args.text.is_none() && args.status.is_none() && args.body.is_none() {
        return Err(hinted(
            "nothing to classify",
            ["give a text, or --status and --body; retryscope classify --help has examples".to_owned()],
        ));
    }
    let failure = Failure {
        provider: args.provider.as_deref(),
        status: args.status,
        headers: &headers,
        body: args.body.as_deref(),
        code: None,
        message: args.text.as_deref(),
        now: Some(now),
    };
    let judged = classify(&failure);
    match display.format {
        Format::Text => output.text(&page(&judged, args.provider.as_deref(), now))?,
        _ => output.json(&object(&judged))?,
    }
    Ok(Exit::Ok)
}

/// One answer a line, in order; a line that cannot be read is answered as unknown, so that lines keep their partner.
fn batch(
    mut input: impl BufRead,
    now: DateTime<Utc>,
    display: Display,
    output: &mut Output,
) -> anyhow::Result<Exit> {
    let mut line = Vec::new();
    let mut number = 0;
    let mut exit = Exit::Ok;
    loop {
        let next = next_line(&mut input, &mut line)?;
        if next == Next::End {
            return Ok(exit);
        }
        number += 1;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let judged = if let Ok(Value::Object(record)) = serde_json::from_slice::<Value>(&line) {
            of_record(&record, now)
        } else {
            use std::io::Write as _;
            let why = if next == Next::TooLong { "too long" } else { "not a JSON object" };
            drop(writeln!(io::stderr().lock(), "warning: line {number}: {why}"));
            exit = Exit::Incomplete;
            classify(&Failure::default())
        };
        match display.format {
            Format::Text => {
                let wait =
                    judged.retry_after_ms.map(|ms| format!("  wait {}", words::span(ms))).unwrap_or_default();
                output.text(&format!(
                    "{number}  {}/{}  {}{wait}  {}\n",
                    judged.class,
                    judged.reason,
                    retry_word(&judged),
                    judged.rule
                ))?;
            }
            _ => output.json(&object(&judged))?,
        }
    }
}

fn of_record(record: &serde_json::Map<String, Value>, now: DateTime<Utc>) -> Judgement {
    let text = |key: &str| match record.get(key) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Null) | None => None,
        Some(other) => Some(other.to_string()),
    };
    let (provider, body, code, message) = (text("provider"), text("body"), text("code"), text("message"));
    let status = record.get("status").and_then(|s| s.as_u64().or_else(|| s.as_str()?.parse().ok()));
    let headers: Vec<(String, String)> = match record.get("headers") {
        Some(Value::Object(map)) => map
            .iter()
            .map(|(name, value)| {
                // Go keeps a list for each name.
                let value = value.as_array().and_then(|sent| sent.first()).unwrap_or(value);
                (name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            })
            .collect(),
        _ => Vec::new(),
    };
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    classify(&Failure {
        provider: provider.as_deref(),
        status: status.and_then(|s| u16::try_from(s).ok()).filter(|s| (100..600).contains(s)),
        headers: &headers,
        body: body.as_deref(),
        code: code.as_deref(),
        message: message.as_deref(),
        now: Some(now),
    })
}

fn object(judged: &Judgement) -> Value {
    json!({
        "schema": "retryscope.classify/1",
        "class": judged.class,
        "reason": judged.reason,
        "retryable": judged.retryable,
        "retry_after_ms": judged.retry_after_ms,
        "reset_at": judged.reset_at.map(|at| at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)),
        "reset_clock": judged.reset_clock,
        "rule": judged.rule,
        "confidence": judged.confidence,
    })
}

fn page(judged: &Judgement, name: Option<&str>, now: DateTime<Utc>) -> String {
    let mut page = Page::new(width());
    page.line(&format!("{}/{}", judged.class, judged.reason));
    page.row("means", judged.class.meaning());
    page.row("retry", retry_word(judged));
    if let Some(ms) = judged.retry_after_ms {
        page.row("wait", &format!("the provider asked for {}", words::span(ms)));
    }
    if let Some(at) = judged.reset_at {
        let left = u64::try_from((at - now).num_milliseconds())
            .map(|ms| format!(" (in {})", words::span(ms)))
            .unwrap_or_default();
        page.row("resets", &format!("{}{left}", at.format("%Y-%m-%d %H:%M:%S UTC")));
    }
    if let Some(clock) = judged.reset_clock {
        page.row("resets", &format!("{clock}, time zone not stated"));
    }
    page.row("what to do", judged.advice());
    let table =
        name.and_then(provider).or_else(|| provider(judged.rule.split('/').next().unwrap_or_default()));
    if let Some(table) = table {
        if matches!(judged.class, Class::Exhausted | Class::Auth)
            && let Some(url) = &table.billing_url
        {
            page.row("account", url);
        }
        if judged.class == Class::Transient
            && let Some(url) = &table.status_url
        {
            page.row("status page", url);
        }
    }
    page.row(
        "matched",
        &format!(
            "row {} ({} confidence)",
            judged.rule,
            visible(&format!("{:?}", judged.confidence).to_lowercase())
        ),
    );
    page.finish()
}

fn retry_word(judged: &Judgement) -> &'static str {
    match (judged.retryable, judged.class) {
        (true, Class::TooLarge) => "after shrinking",
        (true, Class::Unknown) => "once, bounded",
        (true, _) => "yes, bounded, with backoff and jitter",
        (false, _) => "no",
    }
}

/// `retryscope taxonomy export`.
pub(crate) fn export(output: &mut Output) -> anyhow::Result<Exit> {
    let mut value = serde_json::to_value(tables())?;
    if let Value::Object(object) = &mut value {
        object.insert("schema".into(), json!("retryscope.taxonomy/1"));
    }
    output.json(&value)?;
    Ok(Exit::Ok)
}
