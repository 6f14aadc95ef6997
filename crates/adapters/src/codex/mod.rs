//! Codex CLI: rollouts, `exec --json`, text logs, OTLP, its databases, rollout traces.
//!
//! Run = thread uuid, turn = `turn_id`. Two loops are nested: requests (`transport`) inside streams (`stream`), and each
//! kind of log shows another part of them. The session file shows neither; `exec --json` and the trace show streams; OTLP,
//! the text log and the log database show requests. Not for: `config.toml` (the policy crate reads it), or how many
//! requests a visible stream may stand for (that follows from the policy, in the analysis).

mod course;
mod error;
mod fields;
mod history_db;
mod logs_db;
mod otlp;
mod rollout;
mod say;
mod signals;
mod state_db;
mod stdout;
mod text_log;
mod trace;
mod zst;

use std::path::Path;

use retryscope_record::View;

use crate::json::{Object, holds};
use crate::{Adapter, DefaultPlace, Reading, Recognized};

pub(crate) use otlp::Export;

pub(crate) const AGENT: &str = "codex";

pub(crate) const ADAPTER: Adapter = Adapter {
    agent: AGENT,
    places: &[DefaultPlace { env: Some("CODEX_HOME"), below: "", home: ".codex" }],
    recognize,
};

/// How an SQLite file begins.
const SQLITE: &[u8] = b"SQLite format 3\0";

/// How a zstd frame begins.
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";

fn recognize(path: &Path, head: &[u8]) -> Option<Recognized> {
    let name = path.file_name()?.to_str()?;
    let lines =
        |view, decoder| Some(Recognized { agent: Some(AGENT), view, reading: Reading::Lines(decoder) });
    if head.starts_with(SQLITE) {
        return database(name);
    }
    let named = thread_of_name(name);
    if head.starts_with(ZSTD) {
        let reading = Reading::Document(Box::new(zst::Compressed::new(named?)));
        return Some(Recognized { agent: Some(AGENT), view: View::SESSION, reading });
    }
    if is_rollout(head) {
        return lines(View::SESSION, Box::new(rollout::Rollout::new(named)));
    }
    if trace::recognize(head) {
        return lines(View::TRACE, Box::<trace::Trace>::default());
    }
    if stdout::recognize(head) {
        return lines(View::STDOUT, Box::<stdout::Stdout>::default());
    }
    if text_log::recognize(head) {
        return lines(View::LOG, Box::<text_log::TextLog>::default());
    }
    None
}

/// The databases are known by name; the number in it is the generation of the schema.
fn database(name: &str) -> Option<Recognized> {
    let stem = name.strip_suffix(".sqlite")?;
    let (kind, generation) = stem.rsplit_once('_')?;
    if generation.is_empty() || !generation.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (view, decoder): (View, Box<dyn crate::DatabaseDecoder>) = match kind {
        "logs" => (View::LOGS_DB, Box::new(logs_db::Logs::default())),
        "thread_history" => (View::HISTORY_DB, Box::new(history_db::History::default())),
        "state" => (View::RESULT, Box::new(state_db::State::default())),
        _ => return None,
    };
    Some(Recognized { agent: Some(AGENT), view, reading: Reading::Database(decoder) })
}

/// A rollout begins with its metadata. That line is often longer than the head, so it may not parse.
fn is_rollout(head: &[u8]) -> bool {
    let first = head.split(|b| *b == b'\n').find(|line| !line.is_empty()).unwrap_or_default();
    let types = [
        "session_meta",
        "turn_context",
        "event_msg",
        "response_item",
        "token_usage_record",
        "world_state",
        "compacted",
    ];
    if let Some(record) = Object::parse(first) {
        let known = record.str("type").is_some_and(|kind| types.contains(&kind.as_ref()));
        return known
            && record.raw("payload").is_some_and(|payload| payload.starts_with('{'))
            && record.raw("timestamp").is_some();
    }
    first.first() == Some(&b'{') && holds(first, "\"session_meta\"") && holds(first, "\"payload\"")
}

/// `rollout-<local time>-<thread uuid>.jsonl`, also with a further ending.
fn thread_of_name(name: &str) -> Option<String> {
    let (stem, _) = name.strip_prefix("rollout-")?.split_once(".jsonl")?;
    let uuid = stem.get(stem.len().checked_sub(36)?..)?;
    is_uuid(uuid).then(|| uuid.to_owned())
}

fn is_uuid(text: &str) -> bool {
    let shape =
        |(i, b): (usize, u8)| if matches!(i, 8 | 13 | 18 | 23) { b == b'-' } else { b.is_ascii_hexdigit() };
    text.len() == 36 && text.bytes().enumerate().all(shape)
}

/// Returns the time in a version 7 uuid, in ms since the epoch.
fn time_of_uuid(uuid: &str) -> Option<u64> {
    if !is_uuid(uuid) || uuid.as_bytes().get(14) != Some(&b'7') {
        return None;
    }
    let (high, low) = (uuid.get(..8)?, uuid.get(9..13)?);
    Some(u64::from_str_radix(high, 16).ok()? << 16 | u64::from_str_radix(low, 16).ok()?)
}

/// Returns whether a version is at least `major.minor`; an unreadable one is not.
fn at_least(version: Option<&str>, major: u64, minor: u64) -> bool {
    let mut parts = version.unwrap_or_default().split(['.', '-']).map(|part| part.parse::<u64>().ok());
    let (Some(Some(a)), Some(Some(b))) = (parts.next(), parts.next()) else { return false };
    (a, b) >= (major, minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_is_named_for_its_thread() {
        let uuid = "0199aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee";
        assert_eq!(
            thread_of_name(&format!("rollout-2026-01-02T03-04-05-{uuid}.jsonl")).as_deref(),
            Some(uuid)
        );
        assert_eq!(
            thread_of_name(&format!("rollout-2026-01-02T03-04-05-{uuid}.jsonl.zst")).as_deref(),
            Some(uuid)
        );
        assert_eq!(thread_of_name("rollout-x.jsonl"), None);
        assert_eq!(thread_of_name("rollout-ä.jsonl"), None);
    }

    #[test]
    fn only_version_seven_tells_a_time() {
        assert_eq!(time_of_uuid("00000000-0001-7000-8000-000000000000"), Some(1));
        assert_eq!(time_of_uuid("00000000-0001-4000-8000-000000000000"), None);
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(at_least(Some("0.171.0"), 0, 171));
        assert!(at_least(Some("0.142.0-alpha.6"), 0, 104));
        assert!(!at_least(Some("0.60.1"), 0, 104));
        assert!(!at_least(None, 0, 1));
    }

    #[test]
    fn databases_are_known_by_name_and_generation() {
        assert!(database("logs_2.sqlite").is_some());
        assert!(database("goals_1.sqlite").is_none());
        assert!(database("logs_x.sqlite").is_none());
    }
}
