//! omp's `agent.db`: the only trace of a change of stored keys.
//!
//! Reads which key a session used last and which keys were put aside, never the columns that hold keys. It counts nothing:
//! it tells the person that more requests may have been sent than any log shows.

use std::path::Path;

use retryscope_record::{GapKind, Item, Mark, Place, RunKey, Shown, Sink};
use rusqlite::Connection;

use super::Profile;
use crate::DatabaseDecoder;
use crate::json::Object;

/// Blocks and sessions that are read at once.
const LIMIT: i64 = 4096;

pub(super) fn recognize(path: &Path, head: &[u8]) -> bool {
    head.starts_with(b"SQLite format 3\0") && path.file_name().is_some_and(|name| name == "agent.db")
}

#[derive(Default)]
pub(super) struct Credentials {
    said: Vec<(String, i64)>,
}

impl DatabaseDecoder for Credentials {
    fn rows(&mut self, database: &Connection, sink: &mut dyn Sink) -> rusqlite::Result<()> {
        let exists = |table: &str| {
            database.query_row(
                "select count(*) from sqlite_master where type='table' and name=?1",
                [table],
                |row| row.get::<_, i64>(0),
            )
        };
        if exists("auth_credential_blocks")? == 0 || exists("cache")? == 0 {
            return Ok(());
        }
        let mut blocks = database
            .prepare("select credential_id, provider_key, updated_at from auth_credential_blocks limit ?1")?;
        let blocks: Vec<(i64, String, i64)> = blocks
            .query_map([LIMIT], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
            .filter_map(Result::ok)
            .collect();
        if blocks.is_empty() {
            return Ok(());
        }
        let mut sticky = database
            .prepare("select rowid, key, value from cache where key like 'session:sticky:%' limit ?1")?;
        let mut rows = sticky.query([LIMIT])?;
        while let Some(row) = rows.next()? {
            let (Ok(id), Ok(key), Ok(value)) =
                (row.get::<_, i64>(0), row.get::<_, String>(1), row.get::<_, String>(2))
            else {
                sink.gap(Place::Whole, GapKind::IncompleteRecord);
                continue;
            };
            self.session(Place::Row(id), &key, &value, &blocks, sink);
        }
        Ok(())
    }
}

impl Credentials {
    fn session(
        &mut self,
        place: Place,
        key: &str,
        value: &str,
        blocks: &[(i64, String, i64)],
        sink: &mut dyn Sink,
    ) {
        let Some((provider, session)) =
            key.strip_prefix("session:sticky:").and_then(|rest| rest.rsplit_once(':'))
        else {
            return;
        };
        let Some(used) = Object::parse(value.as_bytes()) else { return };
        let credential = used.u64("credentialId").and_then(|id| i64::try_from(id).ok());
        let last_used = used.u64("lastUsedAtMs").map(|ms| ms / 1000).and_then(|s| i64::try_from(s).ok());
        let (Some(credential), Some(last_used)) = (credential, last_used) else { return };
        // Another key of the same provider was put aside shortly before: within one burst of the loops below.
        let changed = blocks.iter().find(|(id, of, at)| {
            *id != credential
                && of.split(':').next() == Some(provider)
                && (last_used - 120..=last_used).contains(at)
        });
        let said = (session.to_owned(), credential);
        if changed.is_none() || self.said.contains(&said) {
            return;
        }
        self.said.push(said);
        let run = RunKey::new(Profile::Omp.agent(), session);
        let mut mark = |mark| sink.item(place, Item::Mark { run: &run, at: None, mark: &mark });
        let because = "the key store shows no requests";
        for source in [retryscope_events::Source::Foreground, retryscope_events::Source::Background] {
            mark(Mark::Shows { source, requests: Shown::None, attempts: Shown::None, because });
        }
        mark(Mark::FallbacksHidden);
        mark(Mark::BlindSpot(format!(
            "a stored key of provider {provider} was put aside and another one used: the requests with the first key are in no log"
        )));
    }
}

#[cfg(test)]
mod tests {
    use retryscope_record::Collected;

    use super::*;

    #[test]
    fn a_change_of_keys_is_told_without_the_keys() {
        let database = Connection::open_in_memory().unwrap();
        database
            .execute_batch(
                "create table auth_credential_blocks(credential_id, provider_key, block_scope, blocked_until_ms, updated_at);
                 create table cache(key, value, expires_at);
                 insert into auth_credential_blocks values (1, 'p:api_key', '', 1, 1700000000);
                 insert into cache values ('session:sticky:p:s-1', '{\"credentialId\":2,\"lastUsedAtMs\":1700000001000}', 1);
                 insert into cache values ('session:sticky:q:s-2', '{\"credentialId\":2,\"lastUsedAtMs\":1700000001000}', 1);
                 insert into cache values ('session:sticky:p:s-3', 'nonsense', 1);",
            )
            .unwrap();
        let mut sink = Collected::default();
        let mut credentials = Credentials::default();
        credentials.rows(&database, &mut sink).unwrap();
        credentials.rows(&database, &mut sink).unwrap();
        assert_eq!(sink.items.len(), 4);
    }

    #[test]
    fn a_database_without_the_tables_says_nothing() {
        let mut sink = Collected::default();
        Credentials::default().rows(&Connection::open_in_memory().unwrap(), &mut sink).unwrap();
        assert!(sink.items.is_empty());
    }
}
