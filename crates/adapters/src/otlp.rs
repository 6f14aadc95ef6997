//! OTLP/HTTP JSON bodies, kept one a line: walks resources and scopes and hands each record to the agent that claims it.
//!
//! A record that was sent again, as a client does that got no answer, is no second one: all that it holds is its identity,
//! within its resource. Not for: receiving them. A wrapper object with the request path (`{path, body}`) is accepted too.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use chrono::{DateTime, TimeZone, Utc};
use retryscope_record::{GapKind, Place, Sink, View};
use serde_json::Value;

use crate::json::holds;
use crate::{LineDecoder, Reading, Recognized};
use crate::{claude_code, codex, opencode};

pub(crate) fn recognize(head: &[u8]) -> Option<Recognized> {
    let first = head.split(|b| *b == b'\n').next()?;
    let json = first.first() == Some(&b'{');
    let looks = json
        && (holds(first, "\"resourceLogs\"")
            || holds(first, "\"resourceSpans\"")
            || holds(first, "\"resourceMetrics\""));
    let view = if holds(first, "\"resourceSpans\"") { View::OTLP_TRACES } else { View::OTLP_LOGS };
    looks.then(|| Recognized { agent: None, view, reading: Reading::Lines(Box::new(Otlp::new())) })
}

/// One agent's part of the telemetry.
pub(crate) trait Consumer: Send {
    /// Returns whether records of this resource and scope are the agent's.
    fn claims(&self, resource: &Attributes, scope: &str) -> bool;

    /// Returns whether a log record bears on anything that is told.
    fn matters(&self, record: &LogRecord<'_>) -> bool;

    /// Takes one log record.
    fn record(&mut self, place: Place, record: &LogRecord<'_>, sink: &mut dyn Sink);

    /// Takes one span.
    fn span(&mut self, place: Place, span: &Span<'_>, sink: &mut dyn Sink);

    /// Is told that one export was read to its end.
    fn end_of_body(&mut self, _place: Place, _sink: &mut dyn Sink) {}

    /// Is told that nothing more comes for now.
    fn end(&mut self, _sink: &mut dyn Sink) {}
}

/// Attributes of a resource, span, event or log record, values as text.
#[derive(Debug, Default, Clone, Hash)]
pub(crate) struct Attributes(Vec<(String, String)>);

impl Attributes {
    /// Returns attributes with these names and values.
    pub(crate) fn from_pairs(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(pairs.into_iter().collect())
    }

    /// Returns an attribute as a time.
    pub(crate) fn time(&self, key: &str) -> Option<DateTime<Utc>> {
        DateTime::parse_from_rfc3339(self.get(key)?).ok().map(|t| t.with_timezone(&Utc))
    }

    /// Returns these attributes alone.
    pub(crate) fn only(&self, keys: &[&str]) -> Self {
        Self(self.0.iter().filter(|(key, _)| keys.contains(&key.as_str())).cloned().collect())
    }

    /// Adds an attribute.
    pub(crate) fn push(&mut self, key: &str, value: &str) {
        self.0.push((key.to_owned(), value.to_owned()));
    }

    fn of(value: Option<&Value>) -> Self {
        let list = value.and_then(Value::as_array);
        let pairs = list.into_iter().flatten().filter_map(|pair| {
            let key = pair.get("key")?.as_str()?.to_owned();
            let value = match pair.get("value")?.as_object()?.values().next()? {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            Some((key, value))
        });
        Self(pairs.collect())
    }

    /// Returns an attribute.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Returns names and values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns an attribute as an owned string.
    pub(crate) fn string(&self, key: &str) -> Option<String> {
        self.get(key).map(str::to_owned)
    }

    /// Returns an attribute as a whole number.
    pub(crate) fn u64(&self, key: &str) -> Option<u64> {
        self.get(key)?.parse().ok()
    }

    /// Returns an attribute as a status.
    pub(crate) fn status(&self, key: &str) -> Option<u16> {
        self.get(key)?.parse().ok().filter(|n| (100..600).contains(n))
    }
}

/// One log record.
pub(crate) struct LogRecord<'a> {
    pub(crate) resource: &'a Attributes,
    pub(crate) attributes: Attributes,
    /// The text, where it is one; of several the first.
    pub(crate) body: Option<&'a str>,
    /// The second of several texts.
    pub(crate) further: Option<&'a str>,
    /// `INFO`, `ERROR`, and so on.
    pub(crate) severity: Option<&'a str>,
    pub(crate) at: Option<DateTime<Utc>>,
    /// When the exporter took note of it.
    pub(crate) observed_at: Option<DateTime<Utc>>,
    /// The trace that it was written in.
    pub(crate) trace: Option<&'a str>,
}

impl LogRecord<'_> {
    /// Returns the checksum by which it is known when it is sent again; without any time nothing tells.
    fn identity(&self, scope: &str) -> Option<u64> {
        let said = (&self.attributes, self.body, self.further, self.severity, self.at, self.observed_at);
        (self.at.is_some() || self.observed_at.is_some()).then(|| checksum(&(self.resource, scope, said)))
    }
}

/// One span.
pub(crate) struct Span<'a> {
    pub(crate) resource: &'a Attributes,
    pub(crate) name: Cow<'a, str>,
    pub(crate) id: Option<String>,
    pub(crate) trace: Option<String>,
    pub(crate) attributes: Attributes,
    pub(crate) started_at: Option<DateTime<Utc>>,
    pub(crate) ended_at: Option<DateTime<Utc>>,
    /// Events with their name, time and attributes.
    pub(crate) events: Vec<(String, Option<DateTime<Utc>>, Attributes)>,
}

impl Span<'_> {
    /// Returns the checksum by which it is known when it is sent again; its id is a part of it.
    fn identity(&self, scope: &str) -> Option<u64> {
        let said = (&self.name, &self.attributes, self.started_at, self.ended_at, &self.events);
        self.id.as_ref().map(|id| checksum(&(self.resource, scope, &self.trace, id, said)))
    }
}

/// Returns a checksum that holds as long as the process.
fn checksum(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

struct Otlp {
    consumers: [Box<dyn Consumer>; 3],
}

impl Otlp {
    fn new() -> Self {
        Self {
            consumers: [
                Box::<claude_code::Export>::default(),
                Box::<codex::Export>::default(),
                Box::<opencode::Export>::default(),
            ],
        }
    }
}

impl LineDecoder for Otlp {
    fn line(&mut self, place: Place, line: &[u8], sink: &mut dyn Sink) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let Ok(value) = serde_json::from_slice::<Value>(line) else {
            sink.gap(place, GapKind::InvalidJson);
            return;
        };
        let body = value.get("body").filter(|body| body.is_object()).unwrap_or(&value);
        let each = |key: &str| body.get(key).and_then(Value::as_array).into_iter().flatten();
        for group in each("resourceLogs") {
            let resource = Attributes::of(group.pointer("/resource/attributes"));
            for (scope, record) in members(group, "scopeLogs", "logRecords") {
                let observed_at = record.get("observedTimeUnixNano").and_then(nanos);
                let time = record.get("timeUnixNano").filter(|t| !is_zero(t)).and_then(nanos);
                let record = LogRecord {
                    resource: &resource,
                    attributes: Attributes::of(record.get("attributes")),
                    body: text_of(record.get("body"), 0),
                    further: text_of(record.get("body"), 1),
                    severity: record.get("severityText").and_then(Value::as_str),
                    at: time.or(observed_at),
                    observed_at,
                    trace: record.get("traceId").and_then(Value::as_str).filter(|id| !id.is_empty()),
                };
                if let Some(consumer) = self.consumers.iter_mut().find(|c| c.claims(&resource, scope))
                    && (!consumer.matters(&record) || record.identity(scope).is_none_or(|id| sink.is_new(id)))
                {
                    consumer.record(place, &record, sink);
                }
            }
        }
        for group in each("resourceSpans") {
            let resource = Attributes::of(group.pointer("/resource/attributes"));
            for (scope, span) in members(group, "scopeSpans", "spans") {
                let events =
                    span.get("events").and_then(Value::as_array).into_iter().flatten().map(|event| {
                        let name = event.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
                        (
                            name,
                            event.get("timeUnixNano").and_then(nanos),
                            Attributes::of(event.get("attributes")),
                        )
                    });
                let span = Span {
                    resource: &resource,
                    name: Cow::Borrowed(span.get("name").and_then(Value::as_str).unwrap_or_default()),
                    id: span.get("spanId").and_then(Value::as_str).map(str::to_owned),
                    trace: span.get("traceId").and_then(Value::as_str).map(str::to_owned),
                    attributes: Attributes::of(span.get("attributes")),
                    started_at: span.get("startTimeUnixNano").and_then(nanos),
                    ended_at: span.get("endTimeUnixNano").and_then(nanos),
                    events: events.collect(),
                };
                if let Some(consumer) = self.consumers.iter_mut().find(|c| c.claims(&resource, scope))
                    && span.identity(scope).is_none_or(|id| sink.is_new(id))
                {
                    consumer.span(place, &span, sink);
                }
            }
        }
        for consumer in &mut self.consumers {
            consumer.end_of_body(place, sink);
        }
    }

    fn end(&mut self, sink: &mut dyn Sink) {
        for consumer in &mut self.consumers {
            consumer.end(sink);
        }
    }
}

/// Iterates over the records of all scopes of a resource, with the scope's name.
fn members<'a>(
    group: &'a Value,
    scopes: &'a str,
    records: &'a str,
) -> impl Iterator<Item = (&'a str, &'a Value)> {
    group.get(scopes).and_then(Value::as_array).into_iter().flatten().flat_map(move |scope| {
        let name = scope.pointer("/scope/name").and_then(Value::as_str).unwrap_or_default();
        scope.get(records).and_then(Value::as_array).into_iter().flatten().map(move |record| (name, record))
    })
}

/// Returns a text of a body: the only one, or that of this number in a list.
fn text_of(body: Option<&Value>, index: usize) -> Option<&str> {
    let body = body?;
    let only = body.get("stringValue").filter(|_| index == 0);
    let listed = || body.pointer("/arrayValue/values")?.get(index)?.get("stringValue");
    only.or_else(listed)?.as_str()
}

fn is_zero(time: &Value) -> bool {
    matches!(time.as_str(), Some("0" | "")) || time.as_u64() == Some(0)
}

fn nanos(value: &Value) -> Option<DateTime<Utc>> {
    let nanos = value.as_str().map_or_else(|| value.as_i64(), |text| text.parse().ok())?;
    Some(Utc.timestamp_nanos(nanos)).filter(|t| t.timestamp() > 0)
}
