//! `state_*.sqlite`: which thread started which. Everything else in it stands in the rollouts too.

use std::collections::BTreeSet;

use retryscope_record::{Facts, Mark, Place, Sink};
use rusqlite::Connection;

use super::say::Say;
use crate::DatabaseDecoder;

#[derive(Default)]
pub(super) struct State {
    told: BTreeSet<String>,
}

impl DatabaseDecoder for State {
    fn rows(&mut self, database: &Connection, sink: &mut dyn Sink) -> rusqlite::Result<()> {
        let known: i64 = database.query_row(
            "select count(*) from pragma_table_info('thread_spawn_edges') where name in ('parent_thread_id', 'child_thread_id')",
            [],
            |row| row.get(0),
        )?;
        if known < 2 {
            return Ok(());
        }
        let mut statement =
            database.prepare("select parent_thread_id, child_thread_id from thread_spawn_edges")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let text = |index: usize| row.get::<_, Option<String>>(index).ok().flatten();
            let (Some(parent), Some(child)) = (text(0), text(1)) else { continue };
            if self.told.insert(child.clone()) {
                let facts = Facts { parent_run_id: Some(parent), ..Facts::default() };
                Say::new(Place::Whole, &child, None, sink).mark(&Mark::Facts(facts));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use retryscope_record::Collected;

    use super::*;

    #[test]
    fn a_child_names_its_parent_once() {
        let database = Connection::open_in_memory().unwrap();
        let mut sink = Collected::default();
        let mut state = State::default();
        state.rows(&database, &mut sink).unwrap();
        database
            .execute_batch(
                "create table thread_spawn_edges (parent_thread_id, child_thread_id, status);
                 insert into thread_spawn_edges values ('P', 'C', 'open'), (null, 'D', 'open'), (1, 2, 3);",
            )
            .unwrap();
        state.rows(&database, &mut sink).unwrap();
        state.rows(&database, &mut sink).unwrap();
        assert_eq!(sink.items.len(), 1);
    }
}
