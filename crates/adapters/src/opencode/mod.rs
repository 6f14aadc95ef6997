//! opencode: its database, the JSON tree before 1.2, program logs, `run --format json`, the event stream.
//!
//! Run = session id, turn = user message id, logical request = assistant message id: the database, the newer log and the
//! streams all name it, so that each request is joined on its own. Only the log and the event stream show attempts; the
//! log may have lost its last second; the database has the end of each request but no retry at all.
//!
//! Not for: the tables of version 2, which has not been seen.

mod database;
mod log;
mod message;
mod objects;
mod old_log;
mod otlp;
mod sse;
mod stdout;
mod track;

use std::path::Path;

use retryscope_record::View;

use crate::json::{Object, holds};
use crate::{Adapter, DefaultPlace, Reading, Recognized};

pub use log::is_message;
pub(crate) use otlp::Export;
pub use otlp::listed_body;

pub(crate) const AGENT: &str = "opencode";

pub(crate) const ADAPTER: Adapter = Adapter {
    agent: AGENT,
    places: &[DefaultPlace { env: Some("XDG_DATA_HOME"), below: "opencode", home: ".local/share/opencode" }],
    recognize,
};

fn recognize(path: &Path, head: &[u8]) -> Option<Recognized> {
    let found = |view, reading| Some(Recognized { agent: Some(AGENT), view, reading });
    if head.starts_with(b"SQLite format 3\0") {
        let name = path.file_name()?.to_str()?;
        let is_ours =
            name.starts_with("opencode") && path.extension().is_some_and(|extension| extension == "db");
        return is_ours
            .then(|| found(View::DATABASE, Reading::Database(Box::new(database::Database::default()))))
            .flatten();
    }
    if log::recognize(head) {
        return found(View::LOG, Reading::Lines(Box::new(log::Log::default())));
    }
    if old_log::recognize(head) {
        return found(View::LOG, Reading::Lines(Box::new(old_log::OldLog::default())));
    }
    if head.first() != Some(&b'{')
        && !head.starts_with(b"data:")
        && !head.starts_with(b"event:")
        && !head.starts_with(b"id:")
    {
        return None;
    }
    if objects::recognize(path) {
        return found(View::OBJECTS, Reading::Document(Box::new(objects::StoredObject)));
    }
    let records =
        || head.split(|b| *b == b'\n').take(40).filter_map(|line| Object::parse(sse::payload(line)));
    if records().any(|record| stdout::is_event(&record)) {
        return found(View::STDOUT, Reading::Lines(Box::new(stdout::Stdout::default())));
    }
    // A first event longer than the head shows only its beginning.
    let cut = records().next().is_none() && holds(head, "\"sessionID\":") && holds(head, "\"properties\":");
    if cut || records().any(|record| sse::is_event(&record)) {
        return found(View::TRACE, Reading::Lines(Box::new(sse::Sse::default())));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_record_is_recognized_by_content_or_place() {
        let view = |path: &str, head: &str| recognize(Path::new(path), head.as_bytes()).map(|r| r.view);
        assert_eq!(view("opencode.db", "SQLite format 3\0..."), Some(View::DATABASE));
        assert_eq!(view("other.db", "SQLite format 3\0..."), None);
        let line = "timestamp=2026-01-02T03:04:05.006Z level=INFO run=0a1b2c3d message=init\n";
        assert_eq!(view("opencode.log", line), Some(View::LOG));
        let old = "INFO  2026-01-02T03:04:05 +12ms service=default version=1.1.0 args=[] opencode\n";
        assert_eq!(view("x.log", old), Some(View::LOG));
        assert_eq!(view("storage/message/ses_1/msg_1.json", "{\n"), Some(View::OBJECTS));
        assert_eq!(
            view("out.jsonl", r#"{"type":"step_start","sessionID":"ses_1","part":{}}"#),
            Some(View::STDOUT)
        );
        let event =
            r#"{"type":"session.status","properties":{"sessionID":"ses_1","status":{"type":"busy"}}}"#;
        assert_eq!(view("sse.jsonl", event), Some(View::TRACE));
        assert_eq!(view("sse.txt", &format!("data: {event}\n")), Some(View::TRACE));
        for other in ["", "{}", "hello", "{\"type\":\"error\"}", "INFO  hello"] {
            assert_eq!(view("x.txt", other), None, "{other}");
        }
    }
}
