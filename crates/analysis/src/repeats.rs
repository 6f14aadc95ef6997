//! How a repeat of an event is known: by a checksum of its run and its id, also after its run was forgotten.

use std::collections::VecDeque;

use foldhash::HashSet;
use retryscope_events::Event;
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

/// Returns the id under which a repeat of an event is dropped; `None` where nothing explicit tells.
pub(crate) fn repeat_id(agent: &str, event: &Event) -> Option<u64> {
    let sum = [agent, &event.run_id].into_iter().fold(0xcbf2_9ce4_8422_2325, checksum);
    match (&event.event_id, event.seq) {
        (Some(id), _) => Some(checksum(sum, id)),
        (None, Some(seq)) => {
            Some(mix(checksum(checksum(sum, event.writer.as_deref().unwrap_or("")), "#"), seq))
        }
        (None, None) => None,
    }
}

/// Adds a text to a checksum that must be the same after an upgrade.
fn checksum(sum: u64, text: &str) -> u64 {
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let sum = words.iter().fold(sum, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    mix(mix(sum, u64::from_le_bytes(last)), text.len() as u64)
}

fn mix(sum: u64, word: u64) -> u64 {
    let product = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 29
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
        ];
        assert!(ids.iter().all(Option::is_some));
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 6);
        assert_eq!(id("r", |e| e), None);
    }
}
