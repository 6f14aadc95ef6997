//! How a repeat of an event is known: by a checksum of its run and its id, also after its run was forgotten. How a repeat
//! of a record without an id is known: by a checksum of all that it holds, over all sources that were read together.

use std::collections::{BTreeMap, VecDeque};

use foldhash::{HashMap, HashSet};
use retryscope_events::Event;
use retryscope_record::{CHECKSUM_START, SourceId, checksum, checksum_word};
use serde::{Deserialize, Serialize};

/// Ids of events of runs that were forgotten, so that a repeat is still known as one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Forgotten {
    order: VecDeque<u64>,
    #[serde(skip)]
    ids: HashSet<u64>,
}

/// Most ids of forgotten runs that are remembered.
const FORGOTTEN_LIMIT: usize = 50_000;

impl Forgotten {
    pub(crate) fn insert(&mut self, id: u64) {
        if self.ids.insert(id) {
            self.order.push_back(id);
        }
        if self.order.len() > FORGOTTEN_LIMIT
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }

    pub(crate) fn holds(&self, id: u64) -> bool {
        self.ids.contains(&id)
    }

    /// Puts back what is not saved.
    pub(crate) fn restored(mut self) -> Self {
        self.ids = self.order.iter().copied().collect();
        self
    }
}

/// Records that sources hold, by checksums that hold as long as the process, so that one that was sent again is known.
#[derive(Debug, Default)]
pub(crate) struct Records {
    order: VecDeque<(u64, SourceId)>,
    known: HashMap<u64, SourceId>,
    repeats: BTreeMap<SourceId, Repeats>,
}

/// Repeats in one source.
#[derive(Debug, Default, Clone, Copy)]
struct Repeats {
    /// Since it is read.
    now: u64,
    /// The most there were: what is read again adds nothing.
    most: u64,
}

/// Most records that are remembered.
const RECORD_LIMIT: usize = 200_000;

impl Records {
    pub(crate) fn is_new(&mut self, source: SourceId, id: u64) -> bool {
        if self.known.contains_key(&id) {
            let repeats = self.repeats.entry(source).or_default();
            repeats.now += 1;
            repeats.most = repeats.most.max(repeats.now);
            return false;
        }
        self.insert(source, id);
        true
    }

    fn insert(&mut self, source: SourceId, id: u64) {
        self.known.insert(id, source);
        self.order.push_back((id, source));
        if self.order.len() > RECORD_LIMIT
            && let Some((oldest, source)) = self.order.pop_front()
            && self.known.get(&oldest) == Some(&source)
        {
            self.known.remove(&oldest);
        }
    }

    /// Forgets the records of a source that is read again.
    pub(crate) fn forget(&mut self, source: SourceId) {
        if let Some(repeats) = self.repeats.get_mut(&source) {
            repeats.now = 0;
        }
        if self.known.values().any(|known| *known == source) {
            self.known.retain(|_, known| *known != source);
            self.order.retain(|(_, known)| *known != source);
        }
    }

    /// Takes over what was read of further sources.
    pub(crate) fn and(mut self, later: Records) -> Self {
        if self.order.is_empty() && self.repeats.is_empty() {
            return later;
        }
        for (id, source) in later.order {
            if !self.known.contains_key(&id) {
                self.insert(source, id);
            }
        }
        self.repeats.extend(later.repeats);
        self
    }

    pub(crate) fn repeated(&self) -> BTreeMap<SourceId, u64> {
        self.repeats.iter().map(|(source, repeats)| (*source, repeats.most)).collect()
    }

    pub(crate) fn restore(&mut self, repeated: BTreeMap<SourceId, u64>) {
        let told = repeated.into_iter().map(|(source, most)| (source, Repeats { now: 0, most }));
        self.repeats = told.collect();
    }
}

/// Returns the id under which a repeat of an event is dropped; `None` where nothing explicit tells.
///
/// A writer may begin to count again when its process does: what it wrote at another time under the same number is no repeat.
pub(crate) fn repeat_id(agent: &str, event: &Event) -> Option<u64> {
    let sum = [agent, &event.run_id].into_iter().fold(CHECKSUM_START, checksum);
    match (&event.event_id, event.seq) {
        (Some(id), _) => Some(checksum(sum, id)),
        (None, Some(seq)) => {
            let sum = checksum(checksum(sum, event.writer.as_deref().unwrap_or("")), "#");
            let written = event.ts.map_or(0, |ts| ts.timestamp_micros().cast_unsigned());
            Some(checksum_word(checksum_word(sum, seq), written))
        }
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use retryscope_events::ModelRetry;

    fn id(run: &str, set: impl Fn(Event) -> Event) -> Option<u64> {
        repeat_id("a", &set(Event::new(run, chrono::DateTime::UNIX_EPOCH, ModelRetry::new())))
    }

    #[test]
    fn what_names_an_event_tells_it_from_others() {
        let mut ids = vec![
            id("r", |e| e.event_id("x")),
            id("r2", |e| e.event_id("x")),
            id("r", |e| e.event_id("x1")),
            id("r", |e| e.seq(1_u64)),
            id("r", |e| e.seq(2_u64)),
            id("r", |e| e.seq(1_u64).writer("w")),
            id("r", |mut e| {
                e.ts = Some(chrono::DateTime::UNIX_EPOCH + chrono::TimeDelta::seconds(1));
                e.seq(1_u64)
            }),
        ];
        assert!(ids.iter().all(Option::is_some));
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 7);
        assert_eq!(id("r", |e| e), None);
    }
}
