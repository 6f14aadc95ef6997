//! The threads of one source, as many as may be kept.
//!
//! A file of telemetry may speak of any number of threads. Not for: what is known of one (`thread`).

use std::collections::BTreeMap;

use super::thread::Thread;

/// Most threads whose state is kept; a process rarely has ten.
const LIMIT: usize = 4_096;

/// Threads by id.
#[derive(Default)]
pub(super) struct Threads {
    known: BTreeMap<String, Known>,
    /// Times that any thread was asked for.
    asked: u64,
    /// Requests that a thread had at most that was forgotten: one that comes back goes on behind them, since a number that
    /// was given before would be the same request.
    given: u64,
}

#[derive(Default)]
struct Known {
    thread: Thread,
    /// When it was last asked for.
    asked: u64,
}

impl Threads {
    /// Returns the state of a thread.
    pub(super) fn get(&mut self, id: &str) -> &mut Thread {
        self.asked += 1;
        if !self.known.contains_key(id) {
            if self.known.len() >= LIMIT {
                self.forget_half();
            }
            let mut thread = Thread::default();
            thread.requests = self.given;
            self.known.insert(id.to_owned(), Known { thread, asked: 0 });
        }
        let known = self.known.entry(id.to_owned()).or_default();
        known.asked = self.asked;
        &mut known.thread
    }

    /// Forgets a thread.
    pub(super) fn forget(&mut self, id: &str) {
        self.known.remove(id);
    }

    /// Forgets those that were silent for longest, and of them those first in which nothing is open.
    fn forget_half(&mut self) {
        let rank = |known: &Known| (known.thread.open.is_some(), known.asked);
        let mut ranks: Vec<(bool, u64)> = self.known.values().map(rank).collect();
        ranks.sort_unstable();
        let Some(least) = ranks.get(ranks.len() / 2).copied() else { return };
        let given = &mut self.given;
        self.known.retain(|_, known| {
            let stays = rank(known) >= least;
            if !stays {
                *given = (*given).max(known.thread.requests);
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codex::signals::thread::Open;

    #[test]
    fn what_is_open_stays_and_what_comes_back_goes_on_behind() {
        let mut threads = Threads::default();
        let open = Open { id: "#3".to_owned(), attempt: None, retries: 0, is_over: false };
        threads.get("busy").open = Some(open);
        threads.get("busy").requests = 3;
        threads.get("idle").requests = 7;
        for n in 0..2 * LIMIT {
            threads.get(&format!("t{n}")).requests = 1;
        }
        assert!(threads.known.len() <= LIMIT);
        assert_eq!(threads.get("busy").requests, 3);
        assert_eq!(threads.get("idle").requests, 7);
        let last = format!("t{}", 2 * LIMIT - 1);
        assert_eq!(threads.get(&last).requests, 1);
    }
}
