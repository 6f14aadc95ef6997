//! `logs_*.sqlite`: the log lines of interactive sessions and the app server, one row for each HTTP request.
//!
//! Read by row id in windows, so that no read transaction stays open; rows of other targets are not looked into. Of a
//! response's headers only those about waiting are taken. A WebSocket is not seen by the HTTP client, so a thread that
//! speaks over one is shown in part only.
//!
//! Old rows are deleted, and a copy may lack the newest: a turn is there from its beginning only if something older is, and
//! to its end only if something newer is.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use retryscope_events::{AttemptOutcome, Layer, ModelAttempt, ModelRequest, ModelResponse, Source};
use retryscope_record::{Mark, Place, RawFailure, Shown, Sink};
use rusqlite::{Connection, OptionalExtension};

use super::fields::{RetryLine, named};
use super::say::{HTTPS, Say, over};
use crate::DatabaseDecoder;
use crate::json::Object;

/// Row ids that one read transaction covers.
const WINDOW: i64 = 20_000;

/// Most turns whose state is kept.
const TURN_LIMIT: usize = 4_096;

/// Rows worth reading: the HTTP client, the stream loop, any WebSocket. The module of the stream loop was another one
/// before 0.140.
const TARGETS: &str = "(target like 'codex_http_client%' or target like 'codex_client%' or target like '%responses_retry' or target like 'codex_core::session::turn' or target like '%websocket%')";

#[derive(Default)]
pub(super) struct Logs {
    /// Last row id seen.
    cursor: i64,
    turns: BTreeMap<(String, String), Turn>,
    /// How much is shown of the turn of each thread that came last.
    shown: BTreeMap<String, Shown>,
    /// Threads that spoke over something else than HTTP.
    in_part: BTreeSet<String>,
    /// Time of the oldest row of each thread that is read now.
    oldest: BTreeMap<String, Option<DateTime<Utc>>>,
    requests: u64,
}

/// What is known of one turn.
#[derive(Default)]
struct Turn {
    open: Option<String>,
    compaction: Option<String>,
    /// The stream of the last attempt was opened, and nothing was said against it since.
    streaming: bool,
    /// The stream loop announced the next attempt.
    again: bool,
    /// The last attempt of the open request.
    attempt: Option<String>,
    /// The open request is for a summary of the conversation.
    summarizing: bool,
}

struct Row {
    id: i64,
    at: Option<DateTime<Utc>>,
    target: String,
    thread: Option<String>,
    body: String,
}

impl DatabaseDecoder for Logs {
    fn rows(&mut self, database: &Connection, sink: &mut dyn Sink) -> rusqlite::Result<()> {
        let columns: Vec<String> = database
            .prepare("select name from pragma_table_info('logs')")?
            .query_map([], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        let has = |name: &str| columns.iter().any(|column| column == name);
        let body = if has("feedback_log_body") { "feedback_log_body" } else { "message" };
        if !["id", "ts", "target", "thread_id", body].iter().all(|name| has(name)) {
            return Ok(());
        }
        let nanos = if has("ts_nanos") { "ts_nanos" } else { "0" };
        let last: i64 = database.query_row("select coalesce(max(id), 0) from logs", [], |row| row.get(0))?;
        // A table that was emptied counts anew.
        if last < self.cursor {
            self.cursor = 0;
        }
        let mut next = database.prepare("select coalesce(min(id), 0) from logs where id > ?1")?;
        let mut first_of = database
            .prepare(&format!("select ts, {nanos} from logs where thread_id = ?1 order by id limit 1"))?;
        let at = |row: &rusqlite::Row<'_>| Ok(time(row.get(0)?, row.get(1)?));
        self.oldest.clear();
        let is_more = self.cursor < last;
        let query = format!(
            "select id, ts, {nanos}, target, thread_id, {body} from logs where id > ?1 and id <= ?2 and {TARGETS} order by id"
        );
        while self.cursor < last {
            // Ids may lie far apart.
            let first: i64 = next.query_row([self.cursor], |row| row.get(0))?;
            self.cursor = self.cursor.max(first.saturating_sub(1));
            let until = self.cursor.saturating_add(WINDOW).min(last);
            let mut statement = database.prepare(&query)?;
            let mut rows = statement.query([self.cursor, until])?;
            while let Some(row) = rows.next()? {
                let nanos = row.get(2).unwrap_or(0);
                let row = Row {
                    id: row.get(0)?,
                    at: row.get(1).ok().and_then(|seconds| time(seconds, nanos)),
                    target: row.get::<_, Option<String>>(3).ok().flatten().unwrap_or_default(),
                    thread: row.get(4).ok().flatten(),
                    body: row.get::<_, Option<String>>(5).ok().flatten().unwrap_or_default(),
                };
                if let Some(thread) = row.thread.as_ref().filter(|thread| !self.oldest.contains_key(*thread))
                {
                    let oldest = first_of.query_row([thread], at).optional()?.flatten();
                    self.oldest.insert(thread.clone(), oldest);
                }
                self.row(&row, sink);
            }
            self.cursor = until;
        }
        if is_more {
            let newest = format!("select ts, {nanos} from logs order by id desc limit 1");
            let until = database.query_row(&newest, [], at).optional()?.flatten();
            for thread in self.shown.keys() {
                Say::new(Place::Row(last), thread, until, sink).mark(&Mark::ToldUntil);
            }
        }
        Ok(())
    }
}

impl Logs {
    fn row(&mut self, row: &Row, sink: &mut dyn Sink) {
        let (spans, message) = row.body.rsplit_once("}: ").unwrap_or(("", &row.body));
        let in_spans =
            || ["thread_id", "thread.id", "conversation.id"].iter().find_map(|key| named(spans, key));
        let Some(thread) = row.thread.as_deref().or_else(in_spans) else { return };
        let turn =
            ["turn.id", "turn_id"].iter().find_map(|key| named(spans, key).or_else(|| named(message, key)));
        let mut say = Say::new(Place::Row(row.id), thread, row.at, sink);
        say.turn = turn.map(str::to_owned);
        if row.target.contains("websocket") || spans.contains("transport=\"responses_websocket\"") {
            self.show_in_part(thread, &mut say);
        }
        let Some(turn) = turn else { return };
        let key = (thread.to_owned(), turn.to_owned());
        if let Some(retry) = RetryLine::of(message) {
            self.begin(&key, &mut say);
            if self.turns.get(&key).is_none_or(|state| state.attempt.is_none()) {
                // A stream that failed without a request that the HTTP client made.
                self.show_in_part(thread, &mut say);
            }
            let state = self.turns.entry((thread.to_owned(), turn.to_owned())).or_default();
            state.again = true;
            let id = ensure(state, &mut self.requests, named(spans, "model"), &mut say);
            say.event(retry.retry().request_id(id));
        } else if message.starts_with("Request completed ") || message.starts_with("Request failed ") {
            self.sent(key, spans, message, &mut say);
        }
    }

    /// Takes note of a turn of which a row is read, and says how much of it is shown.
    fn begin(&mut self, key: &(String, String), say: &mut Say<'_>) {
        if self.turns.contains_key(key) {
            return;
        }
        if self.turns.len() >= TURN_LIMIT {
            self.turns.clear();
        }
        self.turns.insert(key.clone(), Turn::default());
        let (thread, turn) = key;
        say.mark(&Mark::TurnStarted { turn: Some(turn.clone()) });
        // Each thread loses its oldest rows by itself.
        let oldest = self.oldest.get(thread).copied().flatten();
        let is_whole = oldest.zip(time_in_id(turn)).is_some_and(|(oldest, begun)| oldest < begun);
        match (self.in_part.contains(thread), is_whole) {
            (true, _) => {}
            (false, true) => {
                self.show(thread, Shown::All, "the log database has a row for each HTTP request", say);
            }
            (false, false) => {
                let because = "rows from before the turn are no longer in the log database, and some of its own may not be";
                self.show(thread, Shown::Some, because, say);
            }
        }
    }

    /// Once in part, always in part.
    fn show_in_part(&mut self, thread: &str, say: &mut Say<'_>) {
        if self.in_part.insert(thread.to_owned()) {
            let because = "the log database has no row for a request over a WebSocket";
            self.show(thread, Shown::Some, because, say);
        }
    }

    fn show(&mut self, thread: &str, shown: Shown, because: &'static str, say: &mut Say<'_>) {
        let known = self.shown.insert(thread.to_owned(), shown);
        if known == Some(shown) {
            return;
        }
        for source in [Source::Foreground, Source::Background] {
            say.mark(&Mark::Shows { source, requests: shown, attempts: shown, because });
        }
        if known.is_none() {
            say.mark(&Mark::EndsElsewhere);
        }
    }

    fn sent(&mut self, key: (String, String), spans: &str, message: &str, say: &mut Say<'_>) {
        let url = named(message, "url").unwrap_or_default();
        let path = url.split('?').next().unwrap_or_default();
        let compaction = path.ends_with("/responses/compact");
        if named(message, "method") != Some("POST")
            || !compaction && !path.ends_with("/responses") && !path.ends_with("/chat/completions")
        {
            return;
        }
        self.begin(&key, say);
        let state = self.turns.entry(key).or_default();
        let model = named(spans, "model");
        let status = named(message, "status").and_then(|s| s.parse().ok()).filter(|s| (100..600).contains(s));
        let fine = status.is_some_and(|status: u16| status < 400);
        let id = if compaction {
            state.compaction.take().unwrap_or_else(|| {
                self.requests += 1;
                let id = format!("#{}", self.requests);
                say.event(
                    ModelRequest::new()
                        .request_id(id.clone())
                        .source(Source::Background)
                        .purpose("compaction"),
                );
                id
            })
        } else {
            // The loop of a summary does not say when it opens a stream again, and asks for one answer only.
            let same = state.again || state.summarizing && asks_for_summary(spans);
            if state.streaming && !same {
                // Nothing was said against the stream before: it was answered.
                if let Some(before) = state.open.take() {
                    say.event(ModelResponse::new().request_id(before));
                }
                state.attempt = None;
            }
            state.summarizing = asks_for_summary(spans);
            ensure(state, &mut self.requests, model, say)
        };
        let row = format!("row {}", say.place_number());
        if !compaction && let Some(before) = state.attempt.replace(row.clone()) {
            let layer = if state.again || state.streaming { Layer::Stream } else { Layer::Transport };
            let repeated = ModelAttempt::new().request_id(id.clone()).attempt_id(before).layer(layer);
            say.event(repeated.outcome(AttemptOutcome::Failed));
        }
        let mut attempt = ModelAttempt::new().request_id(id.clone()).attempt_id(row);
        attempt.candidate = Some(over(HTTPS, None, model.map(str::to_owned)));
        attempt.status = status;
        let mut raw = None;
        if let Some(headers) = headers_of(message) {
            attempt.upstream_request_id =
                ["x-request-id", "request-id", "cf-ray"].iter().find_map(|name| headers.string(name));
            raw = (!fine).then(|| waiting_headers(&headers));
        }
        if !fine {
            attempt.outcome = Some(AttemptOutcome::Failed);
            attempt.ended_at = say.at;
            if status.is_none() {
                let kind = |key| named(message, key) == Some("true");
                attempt.code = kind("is_connect")
                    .then(|| "connect".to_owned())
                    .or_else(|| kind("is_timeout").then(|| "timeout".to_owned()));
                attempt.message = Some("error sending request".to_owned());
            }
        }
        say.event_with(attempt, raw.as_ref());
        if compaction {
            state.compaction = Some(id).filter(|_| !fine);
        } else {
            state.streaming = fine;
            state.again = false;
        }
    }
}

/// Returns whether a row stands in the spans of a summary that the program or a person asked for.
fn asks_for_summary(spans: &str) -> bool {
    ["run_auto_compact", "session_task.compact"].iter().any(|name| spans.contains(name))
}

fn time(seconds: i64, nanos: i64) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(seconds, u32::try_from(nanos).unwrap_or(0))
}

/// Returns when an id was made, where it is a UUID that says so (version 7).
fn time_in_id(id: &str) -> Option<DateTime<Utc>> {
    let digits: String = id.chars().filter(|c| *c != '-').collect();
    let is_one = digits.len() == 32 && digits.get(12..13) == Some("7");
    let ms = is_one.then(|| i64::from_str_radix(digits.get(..12)?, 16).ok()).flatten()?;
    DateTime::from_timestamp_millis(ms)
}

/// Returns the id of the open request of a turn, opening one where needed.
fn ensure(state: &mut Turn, requests: &mut u64, model: Option<&str>, say: &mut Say<'_>) -> String {
    if let Some(open) = &state.open {
        return open.clone();
    }
    *requests += 1;
    let id = format!("#{requests}");
    let candidate = over(HTTPS, None, model.map(str::to_owned));
    let request = ModelRequest::new().request_id(id.clone()).source(Source::Foreground).purpose("main");
    say.event(request.candidate(candidate));
    state.open = Some(id.clone());
    id
}

/// `headers={"name": "value", …} version=HTTP/1.1`.
fn headers_of(message: &str) -> Option<Object<'_>> {
    let (_, rest) = message.split_once("headers=")?;
    let (headers, _) = rest.rsplit_once(" version=").unwrap_or((rest, ""));
    Object::parse(headers.as_bytes())
}

/// Keeps the headers that say when to come again.
fn waiting_headers(headers: &Object<'_>) -> RawFailure {
    let wanted = |name: &str| {
        name.starts_with("retry-after") || name.contains("ratelimit") || name == "x-should-retry"
    };
    let kept = headers.members().filter_map(|(name, value)| {
        let name = name.to_ascii_lowercase();
        wanted(&name).then(|| Some((name, crate::json::text(value)?.into_owned())))?
    });
    RawFailure { headers: kept.collect(), body: None }
}

#[cfg(test)]
mod tests {
    use retryscope_events::Body;
    use retryscope_record::{Collected, Statement};

    use super::*;

    fn read(rows: &[(&str, &str)]) -> Collected {
        let database = Connection::open_in_memory().unwrap();
        database
            .execute_batch("create table logs (id integer primary key, ts integer, ts_nanos integer, target, thread_id, feedback_log_body)")
            .unwrap();
        for (target, body) in rows {
            let insert = "insert into logs (ts, ts_nanos, target, thread_id, feedback_log_body) values (1, 0, ?1, 'T', ?2)";
            database.execute(insert, [target, body]).unwrap();
        }
        let mut sink = Collected::default();
        let mut logs = Logs::default();
        logs.rows(&database, &mut sink).unwrap();
        let before = sink.items.len();
        logs.rows(&database, &mut sink).unwrap();
        assert_eq!(sink.items.len(), before, "nothing is read twice");
        sink
    }

    fn count(read: &Collected, pick: fn(&Body) -> bool) -> usize {
        read.items
            .iter()
            .filter(|(_, item)| matches!(item, Statement::Event(event, _) if pick(&event.body)))
            .count()
    }

    const CLIENT: &str = "codex_http_client::client";

    #[test]
    fn an_open_stream_ends_the_request_unless_the_loop_goes_on() {
        let sent = |status: u16| {
            format!(
                "turn{{turn.id=\"u\" model=m}}: Request completed method=POST url=http://h/v1/responses status={status} X headers={{\"retry-after\": \"3\"}} version=HTTP/1.1"
            )
        };
        let again = "turn{turn.id=\"u\"}: stream disconnected - retrying sampling request (1/5 in 1s)... sampling_error=x";
        let read = read(&[
            (CLIENT, &sent(503)),
            (CLIENT, &sent(200)),
            ("codex_core::responses_retry", again),
            (CLIENT, &sent(200)),
            ("codex_core::session::turn", again),
            (CLIENT, &sent(200)),
            (CLIENT, &sent(200)),
        ]);
        assert_eq!(count(&read, |b| matches!(b, Body::ModelAttempt(_))), 8);
        assert_eq!(count(&read, |b| matches!(b, Body::ModelRequest(_))), 2);
        let headers = read.items.iter().find_map(|(_, item)| match item {
            Statement::Event(_, Some(raw)) => Some(raw.headers.clone()),
            _ => None,
        });
        assert_eq!(headers, Some(vec![("retry-after".to_owned(), "3".to_owned())]));
    }

    #[test]
    fn the_streams_of_a_summary_are_one_request() {
        let sent = |within: &str| {
            format!(
                "turn{{turn.id=\"u\" model=m}}:{within}: Request completed method=POST url=http://h/v1/responses status=200 OK headers={{}} version=HTTP/1.1"
            )
        };
        let asked = |rows: &[&str]| {
            let rows: Vec<_> = rows.iter().map(|within| (CLIENT, sent(within))).collect();
            let rows: Vec<_> = rows.iter().map(|(target, body)| (*target, body.as_str())).collect();
            let read = read(&rows);
            let failed = |b: &Body| matches!(b, Body::ModelAttempt(a) if a.layer == Some(Layer::Stream));
            (count(&read, |b| matches!(b, Body::ModelRequest(_))), count(&read, failed))
        };
        let (main, auto) = ("run_sampling_request{a=b}", "run_auto_compact{a=b}");
        let manual = "turn{otel.name=\"session_task.compact\" a=b}";
        assert_eq!(asked(&[main, auto, auto, main]), (3, 1));
        assert_eq!(asked(&[manual, manual, manual]), (1, 2));
        assert_eq!(asked(&[main, main]), (2, 0));
    }

    #[test]
    fn other_rows_are_no_requests() {
        let get = "turn{turn.id=\"u\"}: Request completed method=GET url=http://h/v1/responses status=200 OK";
        let other =
            "turn{turn.id=\"u\"}: Request completed method=POST url=http://h/v1/analytics status=200 OK";
        assert_eq!(count(&read(&[(CLIENT, get), (CLIENT, other), (CLIENT, "}: "), ("x", "y")]), |_| true), 0);
    }

    /// How much is shown of a turn that began in second 100, where rows of these ids, seconds and threads stand before its own.
    fn shown_after(before: &[(i64, i64, Option<&str>)]) -> Option<Shown> {
        let database = Connection::open_in_memory().unwrap();
        database
            .execute_batch("create table logs (id integer primary key, ts integer, ts_nanos integer, target, thread_id, feedback_log_body)")
            .unwrap();
        let insert = "insert into logs values (?1, ?2, 0, ?3, ?4, ?5)";
        for (id, at, thread) in before {
            database.execute(insert, rusqlite::params![id, at, "other", thread, "x"]).unwrap();
        }
        // Made 100 s after the epoch.
        let turn = "00000001-86a0-7000-8000-000000000000";
        let sent = format!(
            "turn{{turn.id=\"{turn}\" model=m}}: Request completed method=POST url=http://h/v1/responses status=503 X headers={{}} version=HTTP/1.1"
        );
        database.execute(insert, rusqlite::params![1_i64 << 61, 101, CLIENT, "T", sent]).unwrap();
        let mut sink = Collected::default();
        Logs::default().rows(&database, &mut sink).unwrap();
        sink.items.iter().rev().find_map(|(_, item)| match item {
            Statement::Mark { mark: Mark::Shows { source: Source::Foreground, attempts, .. }, .. } => {
                Some(*attempts)
            }
            _ => None,
        })
    }

    #[test]
    fn each_thread_loses_its_oldest_rows_by_itself() {
        assert_eq!(shown_after(&[(1, 99, Some("T"))]), Some(Shown::All));
        assert_eq!(shown_after(&[]), Some(Shown::Some));
        // Older rows of another thread, or of none, prove nothing of this one's.
        assert_eq!(shown_after(&[(1, 1, Some("other")), (2, 2, None)]), Some(Shown::Some));
    }

    #[test]
    fn another_table_is_read_without_an_error() {
        let database = Connection::open_in_memory().unwrap();
        assert!(Logs::default().rows(&database, &mut Collected::default()).is_ok());
    }
}
