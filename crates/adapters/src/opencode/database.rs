//! `opencode.db`, 1.2 to 1.18: tables `session`, `message` and `part`.
//!
//! Read by time of change and by place, so that asking again gives what is new, also where a clock was set back; a message
//! that has not changed in what matters is not said twice. Of the parts only the kinds are read, never their content.

use std::collections::{HashMap, VecDeque};

use chrono::{DateTime, Utc};
use retryscope_events::Source;
use retryscope_record::{Facts, GapKind, Mark, Place, RunKey, Shown, Sink};
use rusqlite::{Connection, OptionalExtension};

use super::AGENT;
use super::message::{self, Assistant, NO_RETRIES, Steps};
use crate::DatabaseDecoder;
use crate::json::Object;
use crate::say::Say;

/// Messages whose state is remembered; older ones do not change any more.
const SEEN_LIMIT: usize = 8192;

/// Messages that are looked at again because they go on.
const OPEN_LIMIT: usize = 64;

/// Parts that bear on attempts are small; a larger one holds content.
const PART_LIMIT: i64 = 4096;

#[derive(Default)]
pub(super) struct Database {
    /// Latest change that has been read.
    changed: i64,
    /// The last row that has been read: another process may write with an earlier time.
    last: i64,
    /// Rows of messages that go on, the newest last: their changes may have any time.
    open: VecDeque<i64>,
    /// Message id to what was last said of it.
    seen: HashMap<String, State>,
    order: VecDeque<String>,
    session: Option<RunKey>,
    /// When that session was made.
    made_at: Option<DateTime<Utc>>,
    /// Turn of the user messages that the program wrote itself: they go on with the one before.
    turns: HashMap<String, String>,
    turn: Option<String>,
    /// The last turn of each session.
    turn_of: HashMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    /// It is the model's, not a person's.
    is_answer: bool,
    steps: Steps,
    completed: Option<DateTime<Utc>>,
    finish: Option<String>,
    failed: bool,
}

impl State {
    /// Returns whether a message may still change.
    fn goes_on(&self) -> bool {
        self.is_answer && self.completed.is_none() && !self.failed
    }
}

impl DatabaseDecoder for Database {
    fn rows(&mut self, database: &Connection, sink: &mut dyn Sink) -> rusqlite::Result<()> {
        // Empty until the first start is over.
        let known =
            "select count(*) from sqlite_master where type='table' and name in ('session','message','part')";
        if database.query_row(known, [], |row| row.get::<_, i64>(0))? < 3 {
            return Ok(());
        }
        let mut list = database
            .prepare("select rowid, time_updated from message where time_updated >= ?1 or rowid > ?2 order by session_id, time_created, id")?;
        let mut rows = list.query([self.changed, self.last])?;
        let mut listed: Vec<(i64, i64)> = Vec::new();
        // What stands before a damaged page is told; that there is more is an error.
        let mut failure = loop {
            match rows.next() {
                Ok(Some(row)) => listed.push((row.get(0)?, row.get(1)?)),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        let again = std::mem::take(&mut self.open);
        let again = again.into_iter().filter(|rowid| listed.iter().all(|(known, _)| known != rowid));
        listed.extend(again.map(|rowid| (rowid, self.changed)).collect::<Vec<_>>());
        let mut one = database.prepare("select id, session_id, data from message where rowid = ?1")?;
        // Sessions come one after another, each from its beginning; a later call may start in the middle of one.
        self.session = None;
        let (mut latest, mut last) = (self.changed, self.last);
        for (rowid, changed) in listed {
            latest = latest.max(changed);
            last = last.max(rowid);
            let row = one.query_row([rowid], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
            });
            let (id, session, data) = match row {
                Ok(row) => row,
                Err(error @ rusqlite::Error::SqliteFailure(..)) => {
                    failure.get_or_insert(error);
                    continue;
                }
                Err(_) => {
                    sink.gap(Place::Row(rowid), GapKind::IncompleteRecord);
                    continue;
                }
            };
            let Some(info) = Object::parse(data.as_bytes()) else {
                sink.gap(Place::Row(rowid), GapKind::InvalidJson);
                continue;
            };
            if let Err(error) = self.message(database, Place::Row(rowid), &id, &session, &info, sink) {
                failure.get_or_insert(error);
            }
            if self.seen.get(&id).is_some_and(State::goes_on) {
                self.open.push_back(rowid);
                if self.open.len() > OPEN_LIMIT {
                    self.open.pop_front();
                }
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        self.changed = latest;
        self.last = last;
        Ok(())
    }
}

impl Database {
    fn message(
        &mut self,
        database: &Connection,
        place: Place,
        id: &str,
        session: &str,
        info: &Object<'_>,
        sink: &mut dyn Sink,
    ) -> rusqlite::Result<()> {
        let role = info.str("role");
        let user = role.as_deref() == Some("user");
        let mut state = State {
            is_answer: role.as_deref() == Some("assistant"),
            steps: Steps::default(),
            completed: info.object("time").and_then(|time| time.time("completed")),
            finish: info.string("finish"),
            failed: info.raw("error").is_some(),
        };
        if state.is_answer {
            state.steps = steps(database, id)?;
        }
        if self.seen.get(id) == Some(&state) {
            return Ok(());
        }
        let run = RunKey::new(AGENT, session);
        let is_other = self.session.as_ref() != Some(&run);
        let made_at = if is_other { made_at(database, session) } else { self.made_at };
        let at = info.object("time").and_then(|time| time.time("created"));
        if at.is_some() && at < made_at {
            // A fork copies the messages of the other session, under new ids and with their times.
            self.remember(id, state);
            return Ok(());
        }
        if is_other {
            self.made_at = made_at;
            self.enter(database, &run, place, sink)?;
        }
        let mut say = Say { run, place, at, turn: None, step: None, sink };
        if user {
            let goes_on = self.turn.is_some() && is_own_prompt(database, id)?;
            let turn = self.turn.clone().filter(|_| goes_on).unwrap_or_else(|| id.to_owned());
            if self.turns.len() >= SEEN_LIMIT {
                self.turns.clear();
            }
            self.turns.insert(id.to_owned(), turn.clone());
            if self.turn.as_ref() != Some(&turn) {
                say.mark(&Mark::TurnStarted { turn: Some(turn.clone()) });
            }
            if self.turn_of.len() >= SEEN_LIMIT {
                self.turn_of.clear();
            }
            self.turn_of.insert(session.to_owned(), turn.clone());
            self.turn = Some(turn);
            if let Some(model) = info.object("model") {
                let (provider, model) = (model.string("providerID"), model.string("modelID"));
                say.mark(&Mark::Facts(Facts { provider, model, ..Facts::default() }));
            }
        } else if state.is_answer {
            let mut assistant = Assistant::parse(id, info);
            if let Some(turn) = assistant.turn.as_ref().and_then(|parent| self.turns.get(parent)) {
                assistant.turn = Some(turn.clone());
            }
            assistant.say(state.steps, &mut say);
        }
        self.remember(id, state);
        Ok(())
    }

    fn enter(
        &mut self,
        database: &Connection,
        run: &RunKey,
        place: Place,
        sink: &mut dyn Sink,
    ) -> rusqlite::Result<()> {
        self.session = Some(run.clone());
        // A later call may begin in the middle of a turn.
        self.turn = self.turn_of.get(&*run.id).cloned();
        let mut session =
            database.prepare("select version, parent_id, directory from session where id = ?1")?;
        let facts = session
            .query_row([&*run.id], |row| {
                Ok(Facts {
                    agent_version: row.get(0).ok(),
                    parent_run_id: row.get(1).ok().flatten(),
                    directory: row.get(2).ok(),
                    ..Facts::default()
                })
            })
            .optional()?;
        let mut say = Say { run: run.clone(), place, at: None, turn: None, step: None, sink };
        if let Some(facts) = facts {
            say.mark(&Mark::Facts(facts));
        }
        shows(Shown::All, &mut say);
        Ok(())
    }

    fn remember(&mut self, id: &str, state: State) {
        if self.seen.insert(id.to_owned(), state).is_none() {
            self.order.push_back(id.to_owned());
            if self.order.len() > SEEN_LIMIT
                && let Some(oldest) = self.order.pop_front()
            {
                self.seen.remove(&oldest);
            }
        }
    }
}

/// Returns when a session was made, where the table tells.
fn made_at(database: &Connection, session: &str) -> Option<DateTime<Utc>> {
    let time = "select time_created from session where id = ?1";
    database.query_row(time, [session], |row| row.get(0)).ok().and_then(DateTime::from_timestamp_millis)
}

/// What stored messages show: how each request ended, and no attempt.
pub(super) fn shows(requests: Shown, say: &mut Say<'_>) {
    message::shows(requests, NO_RETRIES, say);
    let because = "the title request is not stored";
    say.mark(&Mark::Shows {
        source: Source::Background,
        requests: Shown::None,
        attempts: Shown::None,
        because,
    });
}

fn steps(database: &Connection, message: &str) -> rusqlite::Result<Steps> {
    let mut kinds = database.prepare(
        "select json_extract(data, '$.type'), count(*), max(time_created) from part
         where message_id = ?1 and octet_length(data) < ?2 and json_valid(data) group by 1",
    )?;
    let mut steps = Steps::default();
    let mut rows = kinds.query(rusqlite::params![message, PART_LIMIT])?;
    while let Some(row) = rows.next()? {
        let Ok(kind) = row.get::<_, String>(0) else { continue };
        let count = u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0);
        match kind.as_str() {
            "step-start" => {
                steps.started = count;
                steps.last_started = row.get(2).ok().and_then(DateTime::from_timestamp_millis);
            }
            "step-finish" => steps.finished = count,
            _ => {}
        }
    }
    if steps.started == 0 {
        // Whatever it gave: its kind stands first.
        let kind = "select exists(select 1 from part where message_id = ?1 and instr(substr(data, 1, 64), '\"type\":\"tool\"') > 0)";
        steps.has_tool = database.query_row(kind, [message], |row| row.get(0))?;
    }
    Ok(steps)
}

/// Returns whether the program wrote a user message itself: for a compaction, or to go on after one.
fn is_own_prompt(database: &Connection, message: &str) -> rusqlite::Result<bool> {
    let mut parts = database.prepare(
        "select coalesce(sum(json_extract(data, '$.type') = 'compaction' and coalesce(json_extract(data, '$.auto'), 0) = 1), 0),
                coalesce(sum(json_extract(data, '$.synthetic') = 1), 0),
                count(*)
         from part where message_id = ?1 and octet_length(data) < ?2 and json_valid(data)",
    )?;
    let (compaction, synthetic, all): (i64, i64, i64) = parts
        .query_row(rusqlite::params![message, PART_LIMIT], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
    Ok(compaction > 0 || all > 0 && synthetic == all)
}

#[cfg(test)]
mod tests {
    use retryscope_record::{Collected, Statement};

    use super::*;

    const SESSIONS: usize = 60;

    #[test]
    fn a_damaged_page_hides_no_session_without_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("opencode.db");
        let database = Connection::open(&path).unwrap();
        database
            .execute_batch(
                "pragma page_size = 1024;
                 create table session(id text primary key, version, parent_id, directory);
                 create table message(id text primary key, session_id text, time_created integer, time_updated integer, data text);
                 create index of_session on message(session_id, time_created, id);
                 create table part(id text primary key, message_id text, time_created integer, data text);",
            )
            .unwrap();
        for n in 0..SESSIONS {
            let data = format!(r#"{{"role":"user","time":{{"created":1}},"padding":"{}"}}"#, "x".repeat(200));
            database
                .execute(
                    "insert into message values (?1, ?2, 1, 1, ?3)",
                    rusqlite::params![format!("msg_{n:04}"), format!("ses_{n:04}"), data],
                )
                .unwrap();
        }
        drop(database);
        let whole = std::fs::read(&path).unwrap();
        let (mut hidden, mut pages) = (0, 0);
        for page in whole.chunks(1024).enumerate().skip(1).map(|(number, _)| number * 1024) {
            let mut damaged = whole.clone();
            damaged[page..page + 1024].fill(0xff);
            std::fs::write(&path, &damaged).unwrap();
            let mut decoder = Database::default();
            let mut read = Collected::default();
            let result = Connection::open(&path).and_then(|database| decoder.rows(&database, &mut read));
            let run_of = |item: &Statement| match item {
                Statement::Event(event, _) => event.run_id.clone(),
                Statement::Mark { run, .. } => run.id.to_string(),
            };
            let found: std::collections::BTreeSet<String> =
                read.items.iter().map(|(_, item)| run_of(item)).collect();
            assert!(found.len() == SESSIONS || result.is_err(), "{} at {page}", found.len());
            hidden += usize::from(found.len() < SESSIONS);
            pages += 1;
        }
        assert!(pages > 20 && hidden > 10, "{hidden} of {pages}");
    }

    fn database() -> Connection {
        let database = Connection::open_in_memory().unwrap();
        database
            .execute_batch(
                "create table session(id text primary key, version, parent_id, directory);
                 create table message(id text primary key, session_id, time_created, time_updated, data);
                 create table part(id text primary key, message_id, session_id, time_created, time_updated, data);
                 insert into session values ('ses_1', '1.18.33', 'ses_0', '/w');
                 insert into message values ('msg_1', 'ses_1', 1, 1, '{\"role\":\"user\",\"time\":{\"created\":1795985483000}}');
                 insert into message values ('msg_2', 'ses_1', 2, 2, '{\"role\":\"assistant\",\"parentID\":\"msg_1\",\"time\":{\"created\":1795985483029}}');
                 insert into part values ('prt_1', 'msg_2', 'ses_1', 1, 1, '{\"type\":\"step-start\"}');
                 insert into part values ('prt_2', 'msg_2', 'ses_1', 1, 1, 'no json');",
            )
            .unwrap();
        database
    }

    fn events(collected: &Collected) -> Vec<&str> {
        collected
            .items
            .iter()
            .filter_map(
                |(_, item)| if let Statement::Event(e, _) = item { Some(e.body.kind()) } else { None },
            )
            .collect()
    }

    #[test]
    fn asking_again_gives_only_what_changed() {
        let database = database();
        let mut decoder = Database::default();
        let mut sink = Collected::default();
        decoder.rows(&database, &mut sink).unwrap();
        assert_eq!(events(&sink), ["model.request", "model.attempt"]);
        let mut sink = Collected::default();
        decoder.rows(&database, &mut sink).unwrap();
        assert!(sink.items.is_empty());
        database
            .execute_batch(
                "update message set time_updated = 3, data = json_set(data, '$.finish', 'stop', '$.time.completed', 1795985483900)
                 where id = 'msg_2'",
            )
            .unwrap();
        decoder.rows(&database, &mut sink).unwrap();
        assert_eq!(events(&sink).last(), Some(&"model.response"));
    }

    #[test]
    fn a_prompt_for_a_compaction_goes_on_with_the_turn() {
        let database = database();
        database
            .execute_batch(
                "insert into message values ('msg_3', 'ses_1', 3, 3, '{\"role\":\"user\"}');
                 insert into part values ('prt_3', 'msg_3', 'ses_1', 3, 3, '{\"type\":\"compaction\",\"auto\":true}');
                 insert into message values ('msg_4', 'ses_1', 4, 4, '{\"role\":\"assistant\",\"parentID\":\"msg_3\"}');
                 insert into part values ('prt_4', 'msg_4', 'ses_1', 4, 4, '{\"type\":\"step-start\"}');",
            )
            .unwrap();
        let mut sink = Collected::default();
        Database::default().rows(&database, &mut sink).unwrap();
        let turns: Vec<_> = sink
            .items
            .iter()
            .filter_map(|(_, item)| if let Statement::Event(e, _) = item { e.turn.as_deref() } else { None })
            .collect();
        assert!(turns.len() == 4 && turns.iter().all(|turn| *turn == "msg_1"), "{turns:?}");
    }

    #[test]
    fn a_clock_that_was_set_back_hides_nothing() {
        let database = database();
        let (mut decoder, mut sink) = (Database::default(), Collected::default());
        decoder.rows(&database, &mut sink).unwrap();
        // A message that goes on, and another session: both are written with a time before what was read.
        database
            .execute_batch(
                "update message set time_updated = 0, data = json_set(data, '$.finish', 'stop', '$.time.completed', 1795985483900)
                 where id = 'msg_2';
                 insert into session values ('ses_2', '1.18.33', null, '/w');
                 insert into message values ('msg_5', 'ses_2', 0, 0, '{\"role\":\"assistant\",\"error\":{\"name\":\"APIError\"}}');",
            )
            .unwrap();
        let mut sink = Collected::default();
        decoder.rows(&database, &mut sink).unwrap();
        let mut said = events(&sink);
        said.sort_unstable();
        assert!(said.contains(&"model.response") && said.contains(&"model.failed"), "{said:?}");
        let mut sink = Collected::default();
        decoder.rows(&database, &mut sink).unwrap();
        assert!(sink.items.is_empty(), "{:?}", events(&sink));
    }

    #[test]
    fn a_turn_goes_on_where_it_is_read_bit_by_bit() {
        let database = database();
        let (mut decoder, mut sink) = (Database::default(), Collected::default());
        decoder.rows(&database, &mut sink).unwrap();
        database
            .execute_batch(
                "insert into message values ('msg_3', 'ses_1', 3, 3, '{\"role\":\"user\"}');
                 insert into part values ('prt_3', 'msg_3', 'ses_1', 3, 3, '{\"type\":\"compaction\",\"auto\":true}');",
            )
            .unwrap();
        decoder.rows(&database, &mut sink).unwrap();
        let begins =
            |item: &Statement| matches!(item, Statement::Mark { mark: Mark::TurnStarted { .. }, .. });
        assert_eq!(sink.items.iter().filter(|(_, item)| begins(item)).count(), 1);
    }

    #[test]
    fn what_a_fork_copied_is_not_said_of_it() {
        let database = database();
        let fork = |made_at: i64| {
            database
                .execute_batch(&format!(
                    "alter table session add column time_created;
                     update session set time_created = {made_at};"
                ))
                .unwrap();
            let mut sink = Collected::default();
            Database::default().rows(&database, &mut sink).unwrap();
            database.execute_batch("alter table session drop column time_created").unwrap();
            sink.items.len()
        };
        // Both messages are older than the session, or only the one from which it goes on, or none.
        let (none, all) = (fork(1_795_985_484_000), fork(1_795_985_482_000));
        assert_eq!(none, 0);
        let some = fork(1_795_985_483_010);
        assert!(0 < some && some < all, "{some} of {all}");
    }

    #[test]
    fn a_database_without_the_tables_says_nothing() {
        let mut sink = Collected::default();
        Database::default().rows(&Connection::open_in_memory().unwrap(), &mut sink).unwrap();
        assert!(sink.items.is_empty() && sink.gaps.is_empty());
    }
}
