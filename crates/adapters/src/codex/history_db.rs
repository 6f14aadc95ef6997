//! `thread_history_*.sqlite`: how each turn ended, with its last error.
//!
//! It shows no requests. Rows change in place while a turn runs, so ended turns are remembered instead of a cursor.

use std::collections::BTreeSet;

use chrono::DateTime;
use retryscope_events::{ModelFailed, Source};
use retryscope_record::{Mark, Place, Shown, Sink, TurnOutcome};
use rusqlite::Connection;

use super::error::Told;
use super::say::Say;
use crate::DatabaseDecoder;
use crate::json::Object;

#[derive(Default)]
pub(super) struct History {
    told: BTreeSet<(String, String)>,
    introduced: BTreeSet<String>,
}

impl DatabaseDecoder for History {
    fn rows(&mut self, database: &Connection, sink: &mut dyn Sink) -> rusqlite::Result<()> {
        let known: i64 = database.query_row(
            "select count(*) from pragma_table_info('thread_turns') where name in ('thread_id', 'turn_id', 'status', 'error_json', 'started_at', 'completed_at')",
            [],
            |row| row.get(0),
        )?;
        if known < 6 {
            return Ok(());
        }
        let mut statement = database.prepare(
            "select rowid, thread_id, turn_id, status, error_json, started_at, completed_at from thread_turns order by rowid",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let text = |index: usize| row.get::<_, Option<String>>(index).ok().flatten();
            let seconds =
                |index: usize| row.get::<_, i64>(index).ok().and_then(|s| DateTime::from_timestamp(s, 0));
            let (Some(thread), Some(turn), Some(status)) = (text(1), text(2), text(3)) else { continue };
            let outcome = match status.as_str() {
                "completed" => TurnOutcome::Succeeded,
                "failed" => TurnOutcome::Failed,
                "interrupted" => TurnOutcome::Cancelled,
                _ => continue,
            };
            if !self.told.insert((thread.clone(), turn.clone())) {
                continue;
            }
            let mut say = Say::new(Place::Row(row.get(0)?), &thread, seconds(5), sink);
            if self.introduced.insert(thread.clone()) {
                let because = "the history database says how a turn ended, not what was requested";
                for source in [Source::Foreground, Source::Background] {
                    say.mark(&Mark::Shows { source, requests: Shown::None, attempts: Shown::None, because });
                }
            }
            say.turn = Some(turn.clone());
            say.mark(&Mark::TurnStarted { turn: say.turn.clone() });
            say.at = seconds(6);
            let is_own = outcome != TurnOutcome::Failed || !is_review(database, &thread, &turn);
            end(text(4).as_deref(), outcome, is_own, &mut say);
        }
        Ok(())
    }
}

/// Returns whether another thread asked for a turn: a review has a thread of its own, and its error ends both turns.
fn is_review(database: &Connection, thread: &str, turn: &str) -> bool {
    let read = || -> rusqlite::Result<bool> {
        let mut statement =
            database.prepare("select item_json from thread_items where thread_id = ? and turn_id = ?")?;
        let mut rows = statement.query([thread, turn])?;
        while let Some(row) = rows.next()? {
            let item = row.get::<_, String>(0).unwrap_or_default();
            if Object::parse(item.as_bytes()).is_some_and(|item| item.is("type", "enteredReviewMode")) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    read().unwrap_or(false)
}

fn end(error: Option<&str>, outcome: TurnOutcome, is_own: bool, say: &mut Say<'_>) {
    let error = error.and_then(|json| Object::parse(json.as_bytes()));
    let message = error.as_ref().and_then(|error| error.string("message"));
    let info = error
        .as_ref()
        .and_then(|error| error.raw("codexErrorInfo").or_else(|| error.raw("codex_error_info")));
    let told = Told::of(message.as_deref().unwrap_or_default()).with_info(info);
    if is_own && outcome == TurnOutcome::Failed && (told.status.is_some() || told.request_id.is_some()) {
        let mut failed = ModelFailed::new();
        // Ids are unique within a thread only if they name the turn.
        failed.request_id = say.turn.as_ref().map(|turn| format!("#{turn}"));
        told.fill_failed(&mut failed);
        say.event(failed);
    }
    let turn = say.turn.clone();
    say.mark(&Mark::TurnEnded { turn, outcome, reason: told.code, message });
}

#[cfg(test)]
mod tests {
    use retryscope_record::{Collected, Statement};

    use super::*;

    #[test]
    fn each_ended_turn_is_told_once() {
        let database = Connection::open_in_memory().unwrap();
        database
            .execute_batch(
                "create table thread_turns (thread_id, turn_id, status, error_json, started_at integer, completed_at integer);
                 insert into thread_turns values ('T', 'a', 'completed', null, 1, 2), ('T', 'b', 'running', null, 3, null),
                     ('T', 'c', 'failed', '{\"message\":\"x\",\"codexErrorInfo\":\"other\"}', 5, 6), (7, null, 'failed', '{', 1, 1);",
            )
            .unwrap();
        let mut sink = Collected::default();
        let mut history = History::default();
        for _ in 0..2 {
            history.rows(&database, &mut sink).unwrap();
        }
        let ends = sink
            .items
            .iter()
            .filter(|(_, i)| matches!(i, Statement::Mark { mark: Mark::TurnEnded { .. }, .. }))
            .count();
        assert_eq!(ends, 2);
    }

    #[test]
    fn a_review_fails_in_the_thread_that_asked() {
        let database = Connection::open_in_memory().unwrap();
        database
            .execute_batch(
                r#"create table thread_turns (thread_id, turn_id, status, error_json, started_at integer, completed_at integer);
                 create table thread_items (thread_id, turn_id, item_json);
                 insert into thread_turns values ('T', 'a', 'failed', '{"message":"unexpected status 503 x"}', 1, 2),
                     ('V', 'b', 'failed', '{"message":"unexpected status 503 x"}', 1, 2),
                     ('T', 'c', 'failed', '{"message":"unexpected status 503 x"}', 3, 4);
                 insert into thread_items values ('T', 'a', '{"type":"enteredReviewMode","id":"i"}'),
                     ('V', 'b', '{"type":"userMessage","id":"j"}');"#,
            )
            .unwrap();
        let mut sink = Collected::default();
        History::default().rows(&database, &mut sink).unwrap();
        let failed: Vec<_> = sink
            .items
            .iter()
            .filter_map(|(_, item)| match item {
                Statement::Event(event, _) => event.turn.as_deref(),
                Statement::Mark { .. } => None,
            })
            .collect();
        assert_eq!(failed, ["b", "c"]);
    }

    #[test]
    fn another_table_is_read_without_an_error() {
        let database = Connection::open_in_memory().unwrap();
        assert!(History::default().rows(&database, &mut Collected::default()).is_ok());
    }
}
